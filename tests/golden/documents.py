"""The documents that commands print with ``--json``, and their form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gbwatt.data import load, write_npz
from gbwatt.models import entry
from tests.golden import doors
from tests.golden.program import run

EXPERIMENT = """
name: small
title: Small
datasets: [simulated-ssvep]
subjects: [1, 2]
seeds: 1
training: {max_epochs: 1}
models:
  - {label: SPDNet, model: spdnet}
"""
SIZES = ("--option", "n_spatial=6", "--option", "n_temporal=5", "--option", "kernel=9", "--option", "k=4")
BENCHMARK = ("benchmark", "small.yaml", "--jobs", 1, "--json")
#: Values that depend neither on the machine nor on how something is said, with all that is below them.
# fmt: off
EXACT = frozenset({
    "before", "best_epoch", "bytes", "ch_names", "chance", "checkpoint", "class_name", "class_names", "corpus",
    "counts", "data", "dataset", "decodable", "done", "early_stopping", "epoch", "epochs", "experiment", "extra",
    "failed", "files", "flat", "folder", "here", "m", "measure", "method", "model", "montage", "n", "n_channels",
    "n_chans", "n_test", "n_times", "n_train", "n_trials", "n_valid", "name", "new", "options", "parameters", "part",
    "parts", "pipeline", "planted", "reading", "recipe", "recordings", "runs", "seed", "seeds", "sfreq", "simulated",
    "skipped", "sources", "split", "status", "steps", "store", "subject", "subjects", "theta", "tmax", "tmin", "todo",
    "training", "trials", "unit", "window", "windows",
})
# fmt: on
#: Of these, names that may have spaces.
NAMES = frozenset({"class_name", "class_names"})


def form(document: Any, name: str = "") -> Any:
    """A document with the types of values in their place, where these may change."""
    if name == "versions":
        assert all(isinstance(text, str) for text in document.values())
        return "<versions>"
    if name == "reliability":  # which bins there are depends on the scores
        assert all(set(one) == {"low", "high", "n", "confidence", "accuracy"} for one in document)
        return "<bins>"
    if name in EXACT and not _may_change(document, name):
        return document
    if isinstance(document, dict):
        return {key: form(value, key) for key, value in document.items()}
    if isinstance(document, list):
        return "<texts>" if all(isinstance(item, str) for item in document) else [form(item) for item in document]
    return f"<{type(document).__name__}>"


def _may_change(value: Any, name: str) -> bool:
    """Whether a value has scores, or sentences, in spite of its name."""
    if isinstance(value, dict):
        return "hits" in value or any(_may_change(item, key) for key, item in value.items())
    if isinstance(value, list):
        return any(_may_change(item, name) for item in value)
    return isinstance(value, str) and " " in value and name not in NAMES


def of_models() -> Any:
    """Rows of the networks; pipelines that are fitted without gradient steps were added later."""
    rows = [row for row in run("models", "--task", "ssvep", "--json").document if not entry(row["name"]).classical]
    installed = ("here", "reason", "parameters")  # of those that need another package
    return [{**row, **dict.fromkeys(installed)} if row["extra"] else row for row in rows]


def of_data() -> dict[str, Any]:
    return {
        "data list": run("data", "list", "--json").document,
        "data describe": run("data", "describe", "simulated-ssvep", "--subject", 2, "--json").document,
    }


def of_training() -> dict[str, Any]:
    """Train, evaluate and explain, in this folder."""
    asked = ("train", "--dataset", "simulated-ssvep", "--max-epochs", 1, *SIZES, "--json")
    return {
        "train": run(*asked, "--recipe", "paper", "-o", "model").document,
        "train, without validation": run(*asked, "-o", "other").document,
        "evaluate": run("evaluate", "model", "--dataset", "simulated-ssvep", "--json").document,
        "evaluate --all": run("evaluate", "model", "--dataset", "simulated-ssvep", "--all", "--json").document,
        "explain": run("explain", "model", "-o", "pictures", "--json").document,
        "predict": run("predict", "model", _written_trials(), "--json").document,
    }


def _written_trials() -> Path:
    """A file with some trials of the data set that the model is trained on."""
    write_npz(load("simulated-ssvep", 1)[:3], "trials.npz")
    return Path("trials.npz")


def of_search() -> dict[str, Any]:
    asked = ("search", "--dataset", "simulated-ssvep", "--model", "spdnet", "--max-epochs", 1, "--trials", 1)
    return {"search": run(*asked, "--space", "shrinkage=0.0,0.1", "-o", "best", "--json").document}


def of_benchmark() -> dict[str, Any]:
    """Before and after the runs were done, elsewhere."""
    Path("small.yaml").write_text(EXPERIMENT, encoding="utf-8")
    planned = run(*BENCHMARK, "--dry-run").document
    rows = [{"run": one, "status": "done", "accuracy": 0.5} for one in doors.runs_of(Path("small.yaml"))]
    doors.add_rows(Path("results.sqlite"), rows)
    return {
        "benchmark --dry-run": planned,
        "benchmark, done": run(*BENCHMARK).document,
        "benchmark --dry-run, done": run(*BENCHMARK, "--dry-run").document,
    }


def of_new_runs() -> dict[str, Any]:
    Path("small.yaml").write_text(EXPERIMENT, encoding="utf-8")
    return {"benchmark": run(*BENCHMARK).document}


def of_corpus() -> dict[str, Any]:
    doors.write_corpus(Path("tuev"))
    return {
        "corpus build": run("corpus", "build", "tuev", "cache", "--corpus", "tuev", "--jobs", 1, "--json").document,
        "corpus describe": run("corpus", "describe", "cache", "--json").document,
        "corpus check": run("corpus", "check", "cache", "--json").document,
    }


GROUPS = {
    "models": lambda: {"models": of_models()},
    "data": of_data,
    "training": of_training,
    "search": of_search,
    "benchmark": of_benchmark,
    "new runs": of_new_runs,
    "corpus": of_corpus,
}


def observe(group: str) -> dict[str, Any]:
    return {name: form(document) for name, document in GROUPS[group]().items()}
