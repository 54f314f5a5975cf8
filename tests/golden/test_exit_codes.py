"""Exit codes: 0 done, 1 an unexpected failure, 2 a wrong argument or file, 3 some runs failed, 130 Ctrl-C."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from gbwatt.data import load
from tests.golden import doors, saved
from tests.golden.documents import EXPERIMENT
from tests.golden.program import DATA, RESULTS

#: In the background of a shell, what tests start would ignore Ctrl-C.
PROGRAM = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); {}"
    "runpy.run_module('gbwatt', run_name='__main__')"
)
TRAIN = ("train", "--dataset", "simulated-ssvep", "-o", "model", "--json")


def start(code, *arguments):
    command = [sys.executable, "-c", PROGRAM.format(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def trained(here):
    return shutil.copytree(DATA / "trained", here / "trained")


# ---- 0


@pytest.mark.parametrize("arguments", [["--version"], ["version"], ["--help"], ["data", "list"], ["store", "--help"]])
def test_done(gbwatt, arguments):
    left = gbwatt(*arguments)
    assert (left.code, left.err) == (0, "")
    assert left.out


# ---- 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["train", "--no-such-option"],
        ["train", "--max-epochs", "many"],
        ["train", "--dataset", "simulated-none"],
        ["train", "--subject", "99"],
        ["train", "--model", "none"],
        ["train", "--option", "thetta=1"],
        ["train", "--lr", "-1"],
        ["evaluate", "model"],
        ["benchmark", "none"],
        ["benchmark", "main", "--seeds", "0"],
        ["benchmark", "main", "--set", "sedes=3"],
        ["tables"],
        ["tables", "main", "--format", "excel", "--results", RESULTS],
        ["data", "describe", "simulated-none"],
        ["models", "--task", "none"],
    ],
    ids=lambda words: " ".join(str(word).rpartition("/")[2] for word in words),
)
def test_a_wrong_argument(gbwatt, here, arguments):
    left = gbwatt(*arguments)
    assert left.code == 2
    assert left.err
    assert "Traceback" not in left.err
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "none", "--dataset", "simulated-ssvep"],
        ["explain", "none"],
        ["report", "none"],
        ["train", "--dataset", "none.npz"],
        ["train", "--dataset", "mamem-ssvep-ii"],
        ["benchmark", "none.yaml"],
        ["tables", "main", "--store", "none.sqlite"],
        ["tables", "main", "--results", "none.csv"],
        ["tables", "--fill", "none.md", "--results", RESULTS],
        ["store", "import", "none.csv"],
        ["store", "failed"],
        ["corpus", "describe", "none"],
    ],
    ids=lambda words: " ".join(str(word).rpartition("/")[2] for word in words),
)
def test_a_missing_file(gbwatt, arguments):
    left = gbwatt(*arguments)
    assert (left.code, left.out) == (2, "")
    assert "Traceback" not in left.err


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "training.json"])
def test_a_damaged_model(gbwatt, trained, file):
    content = (trained / file).read_bytes()
    (trained / file).write_bytes(content[: len(content) // 2])
    assert gbwatt("evaluate", trained, "--dataset", "simulated-ssvep").code == 2


@pytest.mark.parametrize("name", ["results.db", "results.csv", "recordings.npz"])
def test_a_damaged_file(gbwatt, here, name):
    content = bytearray((DATA / name).read_bytes())
    content[len(content) // 2 :] = bytes(byte ^ 255 for byte in content[len(content) // 2 :])
    (here / name).write_bytes(content)
    asked = {
        "results.db": ["store", "export", "rows.csv", "--store", name],
        "results.csv": ["store", "import", name],
        "recordings.npz": ["data", "describe", name],
    }
    assert gbwatt(*asked[name]).code == 2


def test_a_damaged_checkpoint(gbwatt, here):
    (here / "state").mkdir()
    content = (DATA / "checkpoint" / "checkpoint.safetensors").read_bytes()
    (here / "state" / "checkpoint.safetensors").write_bytes(content[:-100])
    assert gbwatt(*TRAIN, "--checkpoint", "state").code == 2
    assert not (here / "model").exists()


# ---- 3


def test_runs_that_had_failed(gbwatt, here):
    (here / "small.yaml").write_text(EXPERIMENT)
    first, second = doors.runs_of(here / "small.yaml")
    rows = [{"run": first, "status": "done", "accuracy": 0.5}, {"run": second, "status": "failed", "traceback": "No"}]
    doors.add_rows(here / "results.sqlite", rows)
    left = gbwatt("benchmark", "small.yaml", "--jobs", 1, "--json")
    assert left.code == 3
    assert json.loads(left.out)["done"] == 0


@pytest.mark.slow
def test_some_runs_fail_and_the_others_are_done(gbwatt, here):
    trials = load(saved.RECORDINGS, "all")
    one = (trials.subject == 1) | (trials.y == 0)  # nothing can be learnt from subject 2
    names = np.asarray(trials.class_names)[trials.y[one]]
    np.savez("mine.npz", X=trials.X[one], y=names, sfreq=100, ch_names=trials.ch_names, subject=trials.subject[one])
    (here / "small.yaml").write_text(EXPERIMENT)
    left = gbwatt("benchmark", "small.yaml", "--dataset", "mine.npz", "--simulated", "never", "--jobs", 1, "--json")
    assert left.code == 3, left.err
    document = json.loads(left.out)
    assert (document["done"], document["failed"]) == (1, 1)
    assert sorted(row["status"] for row in doors.stored_rows(here / "results.sqlite")) == ["done", "failed"]


# ---- 130


def test_ctrl_c_in_training(gbwatt, monkeypatch):
    doors.break_training(monkeypatch, KeyboardInterrupt())
    left = gbwatt(*TRAIN)
    assert left.code == 130
    assert json.loads(left.out) == {"status": "interrupted", "epochs": 0, "folder": None}


@pytest.mark.slow
def test_ctrl_c_in_a_process(here):
    with start("", *TRAIN, "--max-epochs", 1_000_000, "--threads", 1) as process:
        try:
            assert process.stderr.readline()  # the first epoch
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert json.loads(out)["status"] == "interrupted"
    assert json.loads((here / "model" / "training.json").read_text())["status"] == "interrupted"


# ---- 1


def test_an_unexpected_failure(gbwatt, monkeypatch):
    doors.break_training(monkeypatch, RuntimeError("unexpected"))
    left = gbwatt(*TRAIN)
    assert left.code == 1
    assert isinstance(left.error, RuntimeError)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_an_unexpected_failure_in_a_process():
    code = "import gbwatt, numpy; gbwatt.EEGDecoder.fit = lambda *_: numpy.linalg.inv([[0.0]]); "
    with start(code, *TRAIN) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "Traceback" in err
