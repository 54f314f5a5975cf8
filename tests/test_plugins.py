"""Plugins: packages add models, data sets and executors by entry points, which are imported when they are needed."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from gbwatt import _plugins
from gbwatt.data import list_datasets
from gbwatt.errors import PluginError

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
GROUPS = (_plugins.MODELS, _plugins.DATASETS, _plugins.EXECUTORS)

#: A package that adds a model, a data set and an executor of its runs.
MODULE = """
from dataclasses import replace
from torch import nn
from gbwatt.data.simulated import DATASETS as SIMULATED
from gbwatt.experiments.runs import Row
from gbwatt.models.registry import register

@register("linear", "A linear classifier")
def _linear(signal, task, **options):
    return nn.Sequential(nn.Flatten(), nn.Linear(signal.n_chans * signal.n_times, signal.n_outputs))

DATASETS = (replace(SIMULATED[0], name="ours"),)

class Executor:
    def fingerprint(self, dataset, root=None): return f"{dataset} of {root}"
    def extend_fingerprint(self, data, options, root=None): return data + "+" + options.get("weights", "")
    def base_fingerprint(self, data): return data.partition("+")[0]
    def execute(self, run, root=None): return Row(run.key, "done", run.to_dict(), accuracy=0.5)
    def epoch_seconds(self, run, root=None): return 2.0
    def discard_checkpoint(self, run, root=None): print("discarded", run.dataset)

EXECUTOR = Executor()
"""
ENTRY_POINTS = """
[gbwatt.models]
ours = ours

[gbwatt.datasets]
ours = ours:DATASETS

[gbwatt.executors]
ours = ours:EXECUTOR
"""


def install(folder: Path, name: str, points: str, module: str) -> None:
    """Write a package and its metadata as installers do."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    (folder / f"{name}.py").write_text(module)


@pytest.fixture
def python(tmp_path):
    """Run code in a new process that can import packages of a folder."""

    def run(code: str) -> subprocess.CompletedProcess[str]:
        code = f"import sys; sys.path.append({str(tmp_path)!r})\n{code}"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    return run


def output(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_installed_entry_points_are_those_of_pyproject():
    """If this fails, install the package again: its metadata are older than pyproject.toml."""
    declared = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["entry-points"]
    assert set(declared) == set(GROUPS)
    for group in GROUPS:
        installed = {point.name: point.value for point in entry_points(group=group) if point.dist.name == "gbwatt"}
        assert installed == declared[group]


def test_corpora_are_listed_between_the_data_sets_of_the_paper_and_others():
    names = list_datasets()
    assert names[:6] == ["bcic-iv-2a", "mamem-ssvep-ii", "bci-ern", "tuab", "tuev", "physionet-mi"]


@pytest.mark.slow
def test_built_in_names_import_no_plugin(python):
    done = python("""
import gbwatt.cli
from gbwatt.data import find_dataset
from gbwatt.experiments.runs import find_executor, has_executor
from gbwatt.models import entry
entry("gbwatt"), find_dataset("mamem-ssvep-ii"), find_executor("mamem-ssvep-ii"), has_executor("tuab")
print(*(name for name in sys.modules if name in ("gbwatt.clinical.classifier", "gbwatt.clinical.finetuning")))
""")
    assert output(done) == [""]


def test_data_sets_are_listed_without_torch(python):
    assert output(python("from gbwatt.data import list_datasets; list_datasets(); print('torch' in sys.modules)")) == [
        "False"
    ]


def test_entry_points_are_looked_up_once(monkeypatch):
    calls = []
    monkeypatch.setattr(_plugins, "entry_points", lambda **group: calls.append(group) or ())
    _plugins.find_plugins.cache_clear()
    try:
        assert [_plugins.find_plugins("gbwatt.models") for _ in range(3)] == [(), (), ()]
        assert len(calls) == 1
    finally:
        _plugins.find_plugins.cache_clear()


@pytest.mark.slow
def test_another_package_adds_a_model_a_data_set_and_an_executor(python, tmp_path):
    install(tmp_path, "ours", ENTRY_POINTS, MODULE)
    done = python("""
from gbwatt.data import find_dataset, list_datasets, load
from gbwatt.experiments.execution import execute
from gbwatt.experiments.runs import Run, discard_checkpoint, find_executor
from gbwatt.models import create, list_models

print(find_dataset("ours").name, list_datasets().index("ours"), load("ours").shape[1:])
print("linear" in list_models(), create("linear", n_chans=2, n_outputs=3, n_times=4)[1].out_features)
(row,) = execute([Run("ours", 1, "linear", seed=0, data="")])
print(row.status, row.accuracy)
discard_checkpoint(row)
discard_checkpoint(row._replace(status="failed"))
print(find_executor("ours").fingerprint("ours", "here"))
""")
    assert output(done) == ["ours 5 (22, 438)", "True 3", "done 0.5", "discarded ours", "ours of here"]


@pytest.mark.slow
def test_experiments_ask_the_executor_for_fingerprints(python, tmp_path):
    install(tmp_path, "ours", ENTRY_POINTS, MODULE)
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(
        "name: ours\ntitle: ours\ndatasets: [ours]\nsubjects: [1]\nseeds: 1\n"
        "training: {max_epochs: 1, lr: 0.1, batch_size: 8, weight_decay: 0}\nmodels: [{label: A, model: linear}]\n"
    )
    done = python(f"""
from gbwatt.experiments import read_experiment
(labelled, *_) = read_experiment({str(experiment)!r}).labelled_runs(root="here")
print(labelled.run.data)
""")
    assert output(done) == ["ours of here+"]


LIST = "from gbwatt.data import list_datasets; list_datasets()"
FIND = "from gbwatt.experiments.runs import find_executor; find_executor"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "points", "call", "said"),
    [
        (
            "import nowhere",
            "[gbwatt.models]\nbad = broken",
            "from gbwatt.models import list_models; list_models()",
            ["broken", "nowhere"],
        ),
        (
            "raise OSError('no disk')",
            "[gbwatt.models]\nbad = broken",
            "from gbwatt.models import entry; entry('other')",
            ["OSError", "no disk"],
        ),
        ("import nowhere", "[gbwatt.datasets]\nbad = broken:DATASETS", LIST, ["broken:DATASETS"]),
        ("DATASETS = [1]", "[gbwatt.datasets]\nbad = broken:DATASETS", LIST, ["tuple of Dataset"]),
        (
            "from gbwatt.data.simulated import DATASETS",
            "[gbwatt.datasets]\nbad = broken:DATASETS",
            LIST,
            ["'simulated-mi'", "already in use"],
        ),
        ("", "[gbwatt.executors]\nours = broken:EXECUTOR", FIND + "('ours')", ["EXECUTOR"]),
        ("EXECUTOR = 1", "[gbwatt.executors]\nours = broken:EXECUTOR", FIND + "('ours')", ["Executor", "int"]),
        ("EXECUTOR = 1", "[gbwatt.executors]\ntuab = broken:EXECUTOR", FIND + "('tuab')", ["another executor"]),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named_with_its_package(python, tmp_path, module, points, call, said):
    install(tmp_path, "broken", points, module)
    done = python(f"""
from gbwatt.errors import PluginError
try:
    {call}
except PluginError as error:
    print(error)
""")
    (message,) = output(done)
    assert all(words in message for words in ["broken", *said])


@pytest.mark.slow
def test_a_broken_plugin_does_not_keep_built_in_names_from_working(python, tmp_path):
    install(tmp_path, "broken", "[gbwatt.models]\nbad = broken\n[gbwatt.datasets]\nbad = broken:SETS", "import nowhere")
    done = python("""
from gbwatt.data import find_dataset
from gbwatt.models import entry
print(entry("gbwatt").name, find_dataset("simulated-ssvep").name)
""")
    assert output(done) == ["gbwatt simulated-ssvep"]


def test_an_error_reaches_the_parent_of_a_process():
    error = pickle.loads(pickle.dumps(PluginError("the plugin …")))
    assert str(error) == "the plugin …"
