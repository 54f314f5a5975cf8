"""A program that starts the same benchmark again and again, so that each can be killed.

``python killed_benchmark.py FOLDER STORE`` prints how many seconds a run takes here.  Then, for each line on stdin,
``gbwatt benchmark`` begins in a process of its own, whose number is printed; when it has ended, its exit status is.

Only two things are not as in the command itself.  Its processes are forked from this one, which has imported
everything, since imports would take longer than all runs.  And what it is doing is told in FOLDER: ``phases`` has a
byte for the store and one for each worker, 1 inside of a write or a run, and ``acknowledged`` the key of each row that
is in the store.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import loky
import torch
from rich.console import Console

from gbwatt.cli import benchmark as command
from gbwatt.experiments import execution, read_experiment, runner
from gbwatt.experiments.store import Store

STORE, WORKERS = 0, 1  # places in the phases
SIZE = 256


class Forking(ProcessPoolExecutor):
    """Has the interface of loky's executor, and forks."""

    def __init__(self, max_workers, initializer, **_):
        super().__init__(max_workers, multiprocessing.get_context("fork"), initializer)

    def shutdown(self, wait=True, *, cancel_futures=False, kill_workers=False):
        if kill_workers:
            for process in self._processes.values():
                process.kill()
        super().shutdown(wait, cancel_futures=cancel_futures)


def main(folder: Path, path: Path) -> None:
    (folder / "phases").write_bytes(bytes(SIZE))
    with (folder / "phases").open("r+b") as file:
        phases = mmap.mmap(file.fileno(), SIZE)
    acknowledged = os.open(folder / "acknowledged", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    class Told(Store):
        def add(self, row):
            phases[STORE] = 1
            super().add(row)
            phases[STORE] = 0
            os.write(acknowledged, f"{row.key}\n".encode())

    real = execution.attempt

    def told(runs, *arguments):
        place = WORKERS + os.getpid() % (SIZE - WORKERS)
        phases[place] = 1
        rows = real(runs, *arguments)
        phases[place] = 0
        return rows

    torch.set_num_threads(1)
    runner.Store, loky.get_reusable_executor, execution.attempt = Told, Forking, told
    say(warm(folder))
    for _ in sys.stdin:
        phases[:] = bytes(SIZE)
        child = os.fork()
        if not child:
            benchmark(folder, path)
        say(child)
        say(os.waitpid(child, 0)[1])


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def warm(folder: Path) -> float:
    """Do a run here, for everything that is imported when it is needed; then how many seconds one takes."""
    run = read_experiment(folder / "tiny.yaml").labelled_runs()[0].run
    taken = []
    for _ in range(4):
        started = time.perf_counter()
        (row,) = runner._run_group((run,), None, 1)
        taken.append(time.perf_counter() - started)
        assert row.status == "done", row.traceback
    return min(taken[1:])  # the least disturbed


def benchmark(folder: Path, path: Path) -> None:
    os.dup2(os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    try:
        command.Console = lambda **_: Console(file=sys.__stderr__, quiet=True)
        command.benchmark(folder / "tiny.yaml", store=path, jobs=2)
    except BaseException as error:
        sys.__stderr__.write(f"{error!r}\n")
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
