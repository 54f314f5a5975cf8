"""A benchmark that is killed a hundred times loses no row, and ends with what an undisturbed one finds."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gbwatt.experiments.store import Store

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork and no SIGKILL"),
]

KILLS = 100
RUNS = 800  # two or three are done between two kills, however fast the machine is
TIMES = ("seconds", "seconds_per_epoch", "finished")  # what differs between two equal runs
PROGRAM = Path(__file__).with_name("killed_benchmark.py")
PATIENCE = 120  # seconds without progress


@pytest.fixture
def folder(tmp_path):
    """An experiment of many runs on 40 small trials."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 3, 64)) * 10, np.tile([0, 1], 20)
    x[y == 0, 0] *= 3
    np.savez(tmp_path / "tiny.npz", X=x, y=y, sfreq=100.0, ch_names=["C3", "Cz", "C4"], subject=np.ones(40, int))
    model = {"label": "SPDNet", "model": "spdnet", "options": {"n_spatial": 4, "n_temporal": 4, "kernel": 5, "k": 3}}
    experiment = {
        "name": "tiny",
        "title": "Tiny",
        "datasets": [str(tmp_path / "tiny.npz")],
        "seeds": RUNS,
        "training": {"max_epochs": 2, "batch_size": 16},
        "models": [model],
    }
    (tmp_path / "tiny.yaml").write_text(json.dumps(experiment))  # JSON is YAML
    return tmp_path


@contextmanager
def program(folder, store):
    command = [sys.executable, PROGRAM, folder, store]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        yield Benchmarks(running, folder, store, float(running.stdout.readline()))


class Benchmarks:
    """The benchmark that is under way, and those before it."""

    def __init__(self, running, folder, store, seconds):
        self.running, self.folder, self.store = running, folder, store
        self.seconds = seconds  # that a run takes

    def start(self):
        self.running.stdin.write("\n")
        self.running.stdin.flush()
        return int(self.running.stdout.readline())

    def status(self):
        """The exit status of the last one, when it has ended."""
        return int(self.running.stdout.readline())

    def phases(self):
        """Whether it is inside a write to the store, and whether a worker is inside a run."""
        content = (self.folder / "phases").read_bytes()
        return bool(content[0]), any(content[1:])

    def acknowledged(self):
        """Keys of rows whose writing has returned."""
        file = self.folder / "acknowledged"
        return set(file.read_text().split()) if file.exists() else set()

    def wait(self, true):
        end = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < end, f"nothing happened in {PATIENCE} s"
            time.sleep(0.0005)


def findings(store):
    """What each run found, without how long it took."""
    with Store(store, create=False) as kept:
        return {row.key: row._replace(**dict.fromkeys(TIMES)) for row in kept.rows()}


def test_a_benchmark_killed_a_hundred_times_loses_no_row_and_ends_as_if_undisturbed(folder, tmp_path):
    rng, store = random.Random(18), tmp_path / "results.sqlite"
    sizes, phases = [0], []
    with program(folder, store) as benchmarks:
        for kill in range(KILLS):
            before = len(benchmarks.acknowledged())
            pid = benchmarks.start()
            more = rng.choice((0, 1, 2, 3))
            benchmarks.wait(lambda before=before, more=more: len(benchmarks.acknowledged()) >= before + more)
            if kill % 3 == 0:  # inside a write, at any moment of it
                benchmarks.wait(lambda: benchmarks.phases()[0])
                time.sleep(rng.uniform(0, 0.005))
            else:
                time.sleep(rng.uniform(0, benchmarks.seconds))
            os.kill(pid, signal.SIGKILL)
            assert benchmarks.status() == signal.SIGKILL, f"kill {kill}: it had ended"
            phases.append(benchmarks.phases())
            kept = Store(store, create=False).keys("done") if store.exists() and store.stat().st_size else set()
            assert benchmarks.acknowledged() <= kept, f"kill {kill}: a row is lost"
            assert len(kept) >= sizes[-1]
            sizes.append(len(kept))
        assert sizes[-1] < RUNS, "it was still under way"
        benchmarks.start()
        assert benchmarks.status() == 0
        seconds = benchmarks.seconds
    grown = sum(later > earlier for earlier, later in pairwise(sizes))
    writing, running = (sum(found[place] for found in phases) for place in (0, 1))
    print(f"{seconds:.3f} s a run; rows after each kill: {sizes}")  # noqa: T201
    print(f"{writing} kills inside a write, {running} inside a run")  # noqa: T201
    assert grown > KILLS / 2
    assert writing > KILLS / 10
    assert running > KILLS / 2
    with program(folder, tmp_path / "undisturbed.sqlite") as benchmarks:
        benchmarks.start()
        assert benchmarks.status() == 0
    found, undisturbed = findings(store), findings(tmp_path / "undisturbed.sqlite")
    assert len(found) == RUNS
    assert all(row.status == "done" for row in found.values())
    assert found == undisturbed
