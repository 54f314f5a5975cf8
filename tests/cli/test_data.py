"""``gbwatt data`` as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.io
from typer.testing import CliRunner

import gbwatt
from gbwatt.cli import app
from gbwatt.data import DATASETS


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})


def as_json(*arguments: str):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def call(*arguments: str):
    """The installed program, in a process of its own."""
    command = [sys.executable, "-c", "from gbwatt.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def mamem_folder(tmp_path):
    rng = np.random.default_rng(0)
    y = np.tile(np.repeat([0] * 5 + [1] * 5 + [2] * 6 + [3] * 5 + [4] * 4, 4), 5)
    (tmp_path / "mamem").mkdir()
    file = tmp_path / "mamem" / "U003.mat"
    scipy.io.savemat(file, {"x_test": rng.standard_normal((500, 8, 125)), "y_test": y[:, None]})
    return tmp_path


def test_list_names_every_data_set_and_what_is_here(mamem_folder):
    rows = {row["name"]: row for row in as_json("data", "list", "--root", str(mamem_folder))}
    assert set(rows) == set(DATASETS)
    assert rows["mamem-ssvep-ii"]["here"] == [3]
    assert rows["bcic-iv-2a"]["here"] == []
    assert rows["simulated-mi"]["here"] == list(range(1, 10))
    shown = run("data", "list", "--root", str(mamem_folder))
    assert shown.exit_code == 0
    assert all(name in shown.output for name in DATASETS)


def test_describe_shows_what_is_in_a_data_set():
    shown = run("data", "describe", "simulated-ssvep", "--subject", "2")
    assert shown.exit_code == 0, shown.output
    for part in ("12 Hz", "125 Hz", "µV", "Oz", "300", "above chance"):
        assert part in shown.output


def test_describe_gives_the_same_as_json():
    found = as_json("data", "describe", "simulated-ssvep")
    assert found["n_trials"] == 500
    assert found["counts"]["1"] == {"12 Hz": 20, "10 Hz": 20, "8.57 Hz": 24, "7.5 Hz": 20, "6.66 Hz": 16}
    assert found["splits"] == [{"test": "subject 1, session 5", "n_train": 300, "n_valid": 100, "n_test": 100}]
    assert found["sanity"]["pipeline"] == "cca"
    assert found["sanity"]["score"] > found["sanity"]["chance_95"]


def test_options_reach_the_reader():
    hard = as_json("data", "describe", "simulated-ssvep", "--option", "difficulty=1.0")
    assert not hard["sanity"]["decodable"]
    assert hard["sanity"]["score"] < as_json("data", "describe", "simulated-ssvep")["sanity"]["score"]
    assert run("data", "describe", "simulated-ssvep", "--option", "difficulty").exit_code == 2


def test_files_of_a_user_are_described(mamem_folder):
    found = as_json("data", "describe", "mamem-ssvep-ii", "--subject", "3", "--root", str(mamem_folder))
    assert found["counts"]["5"]["8.57 Hz"] == 24
    file = mamem_folder / "mine.npz"
    rng = np.random.default_rng(0)
    np.savez(file, X=rng.standard_normal((40, 3, 100)), y=np.tile(["rest", "move"], 20), sfreq=100)
    found = as_json("data", "describe", str(file))
    assert found["splits"] == [{"test": "subject 1, last trials", "n_train": 26, "n_valid": 4, "n_test": 10}]


@pytest.mark.parametrize("name", [name for name in DATASETS if name.startswith("simulated")])
def test_the_first_subject_is_described_unless_another_is_named(name):
    assert as_json("data", "describe", name)["subjects"] == [DATASETS[name].subjects[0]]


@pytest.mark.parametrize(("y", "reason"), [([0] * 40, "one class only"), ([0] * 39 + [1], "single trial")])
def test_what_cannot_be_scored_is_described_all_the_same(tmp_path, y, reason):
    file = tmp_path / "mine.npz"
    np.savez(file, X=np.random.default_rng(0).standard_normal((40, 3, 100)), y=y, sfreq=100)
    found = as_json("data", "describe", str(file))
    assert found["n_trials"] == 40
    assert found["sanity"] is None
    assert reason in found["no_sanity"]
    shown = run("data", "describe", str(file))
    assert shown.exit_code == 0
    assert "No baseline score" in shown.output
    assert "3: " in shown.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "simulated-mii"], "Did you mean 'simulated-mi'"),
        (["describe", "simulated-mi", "--subject", "10"], "it has 1-9"),
        (["describe", "mamem-ssvep-ii", "--root", "/nowhere"], "root='/nowhere' is not a folder"),
        (["describe", "simulated-mi", "--option", "dificulty=1"], "Did you mean 'difficulty'"),
        (["describe", "nowhere.npz"], "nowhere.npz does not exist"),
    ],
)
def test_errors_have_no_traceback_and_exit_code_2(arguments, message):
    done = call("data", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_version_is_printed():
    assert call("version").stdout.splitlines()[0] == gbwatt.__version__
