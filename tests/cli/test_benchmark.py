"""An experiment from the command line: it resumes, survives, and says what went wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from gbwatt.data import load
from gbwatt.data.formats.npz import write_npz
from gbwatt.errors import StoreError
from gbwatt.experiments.store import Store

COMMAND = [sys.executable, "-c", "from gbwatt.cli import main; main()"]
EXPERIMENT = """
name: small
title: Small
datasets: [simulated-ssvep]
subjects: [1, 2]
seeds: 1
training: {max_epochs: 2}
models:
  - {label: SPDNet, model: spdnet}
  - {label: MAtt, model: matt}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(EXPERIMENT)
    return path


def benchmark(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "benchmark", str(file), "--jobs", "2", *arguments]
    return subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=300, check=False)


def document(result: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert result.returncode == 0, result.stderr
    found: dict[str, object] = json.loads(result.stdout)
    return found


def scores(store: Path) -> dict[str, tuple[float, float]]:
    """What each run found, and nothing of when and how fast."""
    with Store(store, create=False) as kept:
        return {row.key: (row.accuracy, row.loss) for row in kept.rows() if row.status == "done"}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[float, float]]:
    """Scores of the experiment with two seeds, done at one go."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "small.yaml").write_text(EXPERIMENT)
    document(benchmark(folder / "small.yaml", "--seeds", "2", "--json"))
    return scores(folder / "results.sqlite")


@pytest.mark.slow
def test_what_is_done_is_not_done_again_and_more_seeds_add_only_theirs(file, uninterrupted):
    first, second, third = (document(benchmark(file, "--seeds", n, "--json")) for n in ("1", "1", "2"))
    assert (first["done"], second["done"], third["done"]) == (4, 0, 4)
    assert scores(file.parent / "results.sqlite") == uninterrupted


@pytest.mark.slow
def test_a_killed_benchmark_keeps_its_rows_and_goes_on(file, uninterrupted):
    store = file.parent / "results.sqlite"
    running = subprocess.Popen(
        [*COMMAND, "benchmark", str(file), "--seeds", "2", "--jobs", "1"],
        cwd=file.parent,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    before = wait_for_rows(store, 2)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    kept = scores(store)
    assert len(kept) >= before
    again = document(benchmark(file, "--seeds", "2", "--json"))
    assert again["done"] == 8 - len(kept)
    assert scores(store) == uninterrupted


@pytest.mark.slow
def test_a_process_that_dies_takes_no_run_with_it(file, uninterrupted):
    running = subprocess.Popen(
        [*COMMAND, "benchmark", str(file), "--seeds", "2", "--jobs", "2", "--json"],
        cwd=file.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    store = file.parent / "results.sqlite"
    wait_for_rows(store, 1)
    os.kill(workers(running.pid)[0], signal.SIGKILL)
    running.communicate(timeout=300)
    assert running.returncode == 0
    assert scores(store) == uninterrupted


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are found in /proc")
def test_workers_end_when_the_command_is_killed(file):
    command = [*COMMAND, "benchmark", str(file), "--seeds", "50", "--jobs", "2"]
    running = subprocess.Popen(command, cwd=file.parent, stdout=subprocess.DEVNULL)
    wait_for_rows(file.parent / "results.sqlite", 1)
    found = workers(running.pid)
    running.kill()
    running.wait()
    end = time.monotonic() + 15  # a second or less on idle cores
    while left := [pid for pid in found if Path(f"/proc/{pid}/cmdline").exists() and "loky" in cmdline(pid)]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


def cmdline(pid: int) -> str:
    """The command of a process; nothing for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.slow
def test_an_interrupt_stops_cleanly(file):
    running = subprocess.Popen(
        [*COMMAND, "benchmark", str(file), "--seeds", "20", "--jobs", "1"],
        cwd=file.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    store = file.parent / "results.sqlite"
    wait_for_rows(store, 1)
    running.send_signal(signal.SIGTERM)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "run the same command to continue" in " ".join(said.split())
    assert "Traceback" not in said
    assert len(scores(store)) >= 1


@pytest.mark.slow
def test_a_failed_run_is_a_row_and_the_others_go_on(file):
    trials = load("simulated-ssvep", [1, 2])
    only = (trials.subject == 1) | (trials.y == 0)  # nothing can be learnt from subject 2
    write_npz(trials[np.flatnonzero(only)], file.parent / "mine.npz")
    arguments = ["--dataset", str(file.parent / "mine.npz"), "--simulated", "never"]
    result = benchmark(file, *arguments)
    assert result.returncode == 3
    assert result.stdout.count("failed: ") == 2
    with Store(file.parent / "results.sqlite", create=False) as kept:
        found = {(row.run["subject"], row.run["model"]): row for row in kept.rows()}
    assert [found[1, model].status for model in ("spdnet", "matt")] == ["done", "done"]
    assert all("class" in found[2, model].traceback for model in ("spdnet", "matt"))
    assert "0 to do" in benchmark(file, *arguments).stdout
    assert "2 to do" in benchmark(file, *arguments, "--retry-failed").stdout


def wait_for_rows(store: Path, count: int) -> int:
    for _ in range(1200):
        # Between the creation of the file and its first transaction it is not a store yet.
        with suppress(StoreError), Store(store, create=False) as kept:
            if len(kept) >= count:
                return len(kept)
        time.sleep(0.1)
    raise AssertionError(f"no {count} rows after two minutes")


def workers(pid: int) -> list[int]:
    """Processes that do runs, of a command."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_text()
            except (OSError, ValueError, IndexError):
                continue  # it has ended in the meantime
            if parent == pid and "popen_loky" in command:
                found.append(int(folder.name))
    assert found
    return found


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "dusk"], "Did you mean 'dask'"),
        (["--engine", "dask"], "--scheduler"),
        (["--scheduler", "tcp://localhost:1"], "--engine dask"),
        (["--subjects", "1,x"], "numbers and ranges"),
        (["--subjects", "99"], "99"),
        (["--seeds", "0"], "seeds=0 must be a whole number, 1 or more"),
        (["--root", "/nowhere"], "root='/nowhere' is not a folder"),
        (["--dataset", "mamen"], "mamem"),
        (["--simulated", "maybe"], "simulated"),
        (["--set", "models.0.model=spdnt"], "Did you mean 'spdnet'"),
        (["--set", "sedes=3"], "seeds"),
        (["--store", "small.yaml"], "small.yaml"),
        (["--store", "small.yaml/results.sqlite"], "small.yaml"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_written(file, arguments, said, capsys, monkeypatch):
    from gbwatt.cli import main

    monkeypatch.chdir(file.parent)
    monkeypatch.setattr(sys, "argv", ["gbwatt", "benchmark", str(file), *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (file.parent / "results.sqlite").exists()


def test_a_dry_run_shows_the_grid_and_does_nothing(file, capsys, monkeypatch):
    from gbwatt.cli import main

    monkeypatch.chdir(file.parent)
    monkeypatch.setattr(sys, "argv", ["gbwatt", "benchmark", str(file), "--seeds", "2", "--dry-run", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["done"], found["todo"]) == (8, 0, 8)
    assert found["seconds"] > 0
    assert not (file.parent / "results.sqlite").exists()


# ------------------------------------------------------------------------------------------------ where files are found


def dry_run(monkeypatch, capsys, name):
    from gbwatt.cli import main

    arguments = ["benchmark", name, "--dataset", "mamem-ssvep-ii", "--simulated", "always", "--subjects", "1"]
    arguments += ["--set", "models=[{label: SPDNet, model: spdnet}]", "--set", "reference=SPDNet", "--seeds", "1"]
    monkeypatch.setattr(sys, "argv", ["gbwatt", *arguments, "--dry-run"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    return ended.value.code or 0, said.out + said.err


def test_the_papers_experiments_are_found_by_name_in_any_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main").mkdir()  # a folder of that name is no experiment
    code, said = dry_run(monkeypatch, capsys, "main")
    assert code == 0
    assert "Accuracy on MI and SSVEP, AUC on ERN" in said
    assert "1 runs: 0 done" in said


def test_an_experiment_of_ones_own_takes_precedence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").mkdir()
    text = EXPERIMENT.replace("name: small", "name: main").replace("simulated-ssvep", "mamem-ssvep-ii")
    (tmp_path / "experiments/main.yaml").write_text(text.replace("Small", "My own"))
    code, said = dry_run(monkeypatch, capsys, "main")
    assert code == 0
    assert "My own" in said


@pytest.mark.parametrize(
    ("name", "hint"), [("mian", "Did you mean 'main'"), ("experiments/main.yaml", "'main', without folder and suffix")]
)
def test_an_unknown_experiment_is_named_with_what_could_be_meant(tmp_path, monkeypatch, capsys, name, hint):
    monkeypatch.chdir(tmp_path)
    code, said = dry_run(monkeypatch, capsys, name)
    assert code == 2
    assert name in said
    assert hint in said
