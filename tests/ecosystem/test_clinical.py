"""The clinical table end to end: official files, windows, six configurations, the table; and a training by command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'gbwatt[clinical]'")
pytest.importorskip("braindecode", reason="braindecode is not installed: pip install 'gbwatt[clinical]'")

from typer.testing import CliRunner

from gbwatt.cli import app
from gbwatt.clinical.corpora import Corpus, build
from gbwatt.decoding import TrainingRecord
from gbwatt.experiments.config import PACKAGED, read_experiment
from gbwatt.experiments.store import Store
from gbwatt.models.serialization import load_pretrained
from tests.clinical.corpora.synthetic import write_tuab, write_tuev

pytestmark = pytest.mark.ecosystem

EXPERIMENT = PACKAGED / "clinical.yaml"
LABELS = [f"{backbone}-{head}" for backbone in ("BIOT", "LaBraM") for head in ("Base", "MAtt", "GBWAtt")]
RANDOM = ["--set", "models.*.options.weights=random"]
SHORT = [*RANDOM, "--set", "training.max_epochs=1", "--set", "training.batch_size=16"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of recordings with the windows of two small corpora."""
    folder = tmp_path_factory.mktemp("recordings")
    build(
        write_tuev(folder / "raw-tuev", train=4, evaluation=2), folder / "tuev", corpus="tuev", montage="referential23"
    )
    tuab = write_tuab(folder / "raw-tuab", train=3, evaluation=1, seconds=20.0)
    build(tuab, folder / "tuab", corpus="tuab", montage="referential23")
    return folder


def gbwatt(*arguments):
    return CliRunner().invoke(app, [str(word) for word in arguments])


@pytest.fixture(scope="module")
def store(root):
    """All six lines on both corpora, from one command."""
    path = root / "results.sqlite"
    done = gbwatt("benchmark", EXPERIMENT, "--root", root, "--seeds", 1, "--jobs", 2, "--store", path, *SHORT)
    assert done.exit_code == 0, done.output
    return path


def test_six_configurations_are_trained_on_both_corpora_by_one_command(store):
    with Store(store, create=False) as kept:
        rows = kept.rows()
    assert len(rows) == 12
    assert {row.status for row in rows} == {"done"}
    found = {(row.run["dataset"], row.run["model"], row.run["options"]["head"]) for row in rows}
    assert len(found) == 12
    for row in rows:
        n_classes = 2 if row.run["dataset"] == "tuab" else 6
        assert len(row.confusion) == len(row.per_class) == n_classes
        assert (row.auc is None) == (n_classes == 6)
        assert row.trials["train"] > row.trials["valid"] > 0
        assert sum(map(sum, row.confusion)) == row.trials["test"]
        assert row.versions["weights"] == "random weights"
        assert {"accelerate", "braindecode", "torch"} <= set(row.versions)
        assert row.preprocessing
    assert not (store.parent / "checkpoints").exists() or not list((store.parent / "checkpoints").iterdir())


def test_a_second_call_does_nothing(root, store):
    again = gbwatt("benchmark", EXPERIMENT, "--root", root, "--seeds", 1, "--store", store, "--json", *SHORT)
    assert json.loads(again.stdout)["done"] == 0


def test_the_table_stands_beside_the_papers_and_says_that_weights_were_random(store):
    shown = gbwatt("tables", EXPERIMENT, "--store", store, "--format", "markdown", *SHORT)
    assert shown.exit_code == 0, shown.output
    for label in LABELS:
        assert f"| {label} |" in shown.stdout
    assert "79.59 ± 0.57" in shown.stdout
    assert "65.04 ± 0.45" in shown.stdout
    assert "Backbone initialised with random weights" in shown.stdout
    assert "weighted F1" in shown.stdout
    assert "AUROC" in shown.stdout


def test_a_dry_run_tells_how_long_it_may_take(root, tmp_path):
    store = tmp_path / "none.sqlite"
    one = ["--set", "models=[{label: BIOT, model: biot, options: {head: base, weights: random}}]"]
    words = ("benchmark", EXPERIMENT, "--root", root, "--dataset", "tuev", "--seeds", 3, "--store", store, *one)
    found = json.loads(gbwatt(*words, "--dry-run", "--json").stdout)
    assert found["todo"] == 3
    assert found["seconds"] > 0
    assert not store.exists()


def test_other_weights_make_other_runs_and_no_others(root, store, tmp_path):
    """Of a backbone only its own file counts; for random weights none does."""
    (root / "weights").mkdir()
    try:
        words = ("benchmark", EXPERIMENT, "--root", root, "--dataset", "tuev", "--seeds", 1, "--dry-run")
        keys = {}
        for content in ("one", "two"):
            (root / "weights" / "labram-base.pth").write_text(content)
            (root / "weights" / ".hidden").write_text(content)
            labelled_runs = read_experiment(EXPERIMENT).labelled_runs(datasets=["tuev"], seeds=1, root=root)
            keys[content] = {labelled.label: labelled.run.key for labelled in labelled_runs}
        changed = {label for label, key in keys["one"].items() if keys["two"][label] != key}
        assert changed == {"LaBraM-Base", "LaBraM-MAtt", "LaBraM-GBWAtt"}
        found = json.loads(gbwatt(*words, "--store", store, "--json", *SHORT).stdout)
        assert (found["done"], found["todo"]) == (6, 0)
        estimate = gbwatt(*words, "--store", tmp_path / "none.sqlite", "--json")  # weights that cannot be read
        assert json.loads(estimate.stdout)["todo"] == 6
    finally:
        shutil.rmtree(root / "weights")


def test_without_weights_runs_fail_and_say_what_to_do(root, tmp_path):
    store = tmp_path / "store.sqlite"
    done = gbwatt("benchmark", EXPERIMENT, "--root", root, "--dataset", "tuev", "--seeds", 1, "--store", store)
    assert done.exit_code == 3
    with Store(store, create=False) as kept:
        said = {row.traceback.strip().splitlines()[-1] for row in kept.rows()}
    assert len(said) == 2
    assert all("does not exist" in text and "weights='random'" in text for text in said)


def test_corpora_that_are_not_there_are_said_with_where_to_get_them(tmp_path):
    done = gbwatt("benchmark", EXPERIMENT, "--root", tmp_path, "--seeds", 1)
    assert done.exit_code != 0
    assert "gbwatt corpus build" in str(done.exception)


# ---- one training by command


def command(root, output, *arguments, processes=1, corpus="tuab"):
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    words = ["-m", "gbwatt", "finetune", root / corpus, "--weights", "random", "--backbone", "biot", "-o", output]
    settings = ["--max-epochs", 3, "--batch-size", 8, "--shards", 2, "--json"]
    return [sys.executable, *several, *map(str, [*words, *settings, *arguments])]


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def alone(root):
    done = subprocess.run(command(root, root / "alone"), env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def losses(record):
    return np.array([loss for row in record["history"] for loss in row["step_losses"]])


def test_a_model_is_trained_tested_once_and_saved(alone, root):
    assert alone["options"]["weights"] == "random weights"
    assert 0 <= alone["test"]["balanced_accuracy"] <= 1
    assert {"auc", "kappa", "weighted_f1", "confusion"} <= set(alone["test"])
    loaded = load_pretrained(root / "alone")
    corpus = Corpus.open(root / "tuab")
    x, y = corpus.part("eval").read(range(4))
    with torch.no_grad():
        predicted = loaded.model(torch.from_numpy(x)).argmax(1)
    assert loaded.class_names == corpus.class_names
    assert loaded.extra["weights began as"] == "random weights"
    assert predicted.shape == y.shape
    assert not (root / "alone" / "checkpoint").exists()


def test_the_folder_has_the_record_that_train_writes(alone, root):
    record = TrainingRecord.read(root / "alone").to_dict()
    assert (record["dataset"], record["model"], record["status"]) == ("tuab", "biot", "done")
    assert record["trials"]["test"] == sum(map(sum, alone["test"]["confusion"])) == record["test"]["n"]
    assert record["test"]["balanced_accuracy"] == alone["test"]["balanced_accuracy"]
    assert record["epochs"] == len(alone["history"])
    assert record["at_best_epoch"]["epoch"] == record["best_epoch"] == alone["best_epoch"]
    assert "seed" not in record["training"]
    assert load_pretrained(root / "alone").extra["training"]["best_epoch"] == alone["best_epoch"]


def test_a_result_of_several_processes_enters_the_table(alone, root, tmp_path):
    """With the settings of the experiment, as a line of it."""
    assert alone["processes"] == 1
    store, output = tmp_path / "results.sqlite", tmp_path / "model"
    words = command(root, output, "--store", store, processes=2)
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    settings = ["--set", "training.max_epochs=3", "--set", "training.batch_size=8", "--set", "training.shards=2"]
    shown = gbwatt("tables", EXPERIMENT, "--store", store, "--format", "markdown", *RANDOM, *settings)
    assert shown.exit_code == 0, shown.exception
    (line,) = [line for line in shown.stdout.splitlines() if line.startswith("| BIOT-GBWAtt |") and "80.16" in line]
    assert "1 × 1" in line
    assert "Runs: 1 of 6 done" in shown.stdout


def test_killed_while_it_was_saved_it_goes_on(alone, root, tmp_path):
    output = tmp_path / "saved"
    output.mkdir()
    (output / "checkpoint").mkdir()
    for name in ("config.json.new", "README.md", ".model.safetensors.123.tmp"):
        (output / name).write_text("half")
    done = subprocess.run(
        command(root, output), env=environment(), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["test"]["loss"] == alone["test"]["loss"]


def test_two_processes_have_the_losses_of_one(alone, root, tmp_path):
    done = subprocess.run(
        command(root, tmp_path / "both", processes=2), env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    both = json.loads(done.stdout)
    assert both["processes"] == 2
    np.testing.assert_allclose(losses(both), losses(alone), rtol=1e-4)
    assert both["test"]["confusion"] == alone["test"]["confusion"]


def test_a_training_that_was_killed_goes_on_to_the_same_result(alone, root, tmp_path):
    output = tmp_path / "killed"
    words = command(root, output, "--save-every", 1)
    process = subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (output / "checkpoint" / "checkpoint.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (output / "finetuning.json").exists()
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    again = json.loads(done.stdout)
    assert losses(again).tolist() == losses(alone).tolist()
    assert again["test"]["confusion"] == alone["test"]["confusion"]
    assert again["test"]["loss"] == alone["test"]["loss"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--backbone", "bios"], "Did you mean 'biot'"),
        (["--head", "gbwat"], "Did you mean 'gbwatt'"),
        (["--weights", "nowhere.pth"], "nowhere.pth does not exist"),
        (["--precision", "half"], "precision='half'"),
        (["--shards", "0"], "shards=0"),
        (["--precision", "float16"], "needs a GPU"),
        (["--option", "tetha=1"], "Did you mean 'theta'"),
        (["--option", "weights=x"], "option='weights' is not known"),
    ],
)
def test_what_cannot_be_is_refused_before_training(root, tmp_path, change, said):
    given = ["--weights", "random", "-o", tmp_path / "model", "--backbone", "biot"]
    done = gbwatt("finetune", root / "tuab", *given, *change)
    assert done.exit_code != 0
    assert said in str(done.exception)
    assert not (tmp_path / "model").exists()


def test_other_things_in_the_folder_are_left_alone(root, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for force in ([], ["--force"]):
        done = gbwatt("finetune", root / "tuab", "--weights", "random", "-o", tmp_path, *force)
        assert "notes.txt" in str(done.exception) or "other things" in str(done.exception)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_no_cache_is_said_with_the_command_that_makes_one(tmp_path):
    done = gbwatt("finetune", tmp_path, "--weights", "random", "-o", tmp_path / "model")
    assert "gbwatt corpus build" in str(done.exception)
