"""Execution of the runs that a store lacks: on this machine or a cluster, and time estimates."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from gbwatt._processes import cores, spread
from gbwatt._validation import check_at_least
from gbwatt.errors import PackageError, ParameterError
from gbwatt.experiments.execution import decoder_of, parts_of
from gbwatt.experiments.runs import Cell, Executor, Row, Run, find_executor, written_out
from gbwatt.experiments.store import Store

_DIED = "The process of this run died twice, without a Python error: out of memory, or killed by a signal."

#: Runs that one training serves.
Group = tuple[Run, ...]


class Engine(ABC):
    """Does runs, and gives their rows as they come, in no order."""

    threads: int  # of each run

    @abstractmethod
    def rows(self, runs: Sequence[Run]) -> Generator[Row]:
        """Do the runs.  When the iterator is closed, what is not done yet is given up."""


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Runs by their training, in the order of the first of each."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.trained.key, []).append(run)
    return [tuple(group) for group in groups.values()]


def _do(group: Group, root: str | None, threads: int) -> list[Row]:
    from gbwatt.experiments.execution import attempt  # torch, in the process that needs it

    return attempt(group, root, threads)


def _lost(group: Group, why: str) -> list[Row]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return [Row(run.key, "failed", run.to_dict(), traceback=why, finished=now) for run in group]


@dataclass(frozen=True)
class Local(Engine):
    """Processes of this machine.

    A process that dies takes no other run with it: what was running is tried once more, by itself.

    Parameters
    ----------
    jobs : int
        Processes; 0 for one a core.
    threads : int
        Threads of each.
    root : path, optional
        Folder of recordings.
    """

    jobs: int = 0
    threads: int = 1
    root: str | Path | None = None

    def __post_init__(self) -> None:
        check_at_least("jobs", self.jobs, 0)
        check_at_least("threads", self.threads, 1)

    def rows(self, runs: Sequence[Run]) -> Generator[Row]:
        """Do the runs, several at a time."""
        groups = grouped(runs)
        root = None if self.root is None else str(self.root)
        work = partial(_do, root=root, threads=self.threads)
        with closing(spread(work, groups, self.workers(len(groups)), self.threads)) as done:
            for group, rows in done:
                yield from _lost(group, _DIED) if rows is None else rows

    def workers(self, runs: int) -> int:
        """Processes for so many runs."""
        return max(1, min(self.jobs or cores() // self.threads or 1, runs))


@dataclass(frozen=True)
class Cluster(Engine):
    """The workers of a Dask cluster, which read the recordings themselves.

    Runs of a worker that dies are given to others.

    Parameters
    ----------
    scheduler : str
        Address, ``tcp://host:8786``.
    threads : int
        Threads of a run.
    root : path, optional
        Folder of recordings, as the workers see it; by default what GBWATT_DATA says there.
    """

    scheduler: str
    threads: int = 1
    root: str | Path | None = None

    def rows(self, runs: Sequence[Run]) -> Generator[Row]:
        """Do the runs on the cluster."""
        try:
            from distributed import Client, as_completed
        except ImportError as error:
            raise PackageError.missing("dask.distributed", "a Dask cluster", "dask") from error
        root = None if self.root is None else str(self.root)
        with _connected(Client, self.scheduler) as client:
            futures = {client.submit(_do, group, root, self.threads, pure=False): group for group in grouped(runs)}
            for future in as_completed(futures):
                if future.status == "finished":
                    yield from future.result()
                else:
                    yield from _lost(futures[future], f"The cluster could not do it: {future.exception()!r}")


def _connected(client: Any, scheduler: str) -> Any:
    try:
        return client(scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        raise ParameterError(
            f"scheduler={scheduler!r}: no Dask scheduler answers there ({error}); start one with `dask scheduler`, and "
            "workers with `dask worker tcp://HOST:8786`."
        ) from error


Watch = Callable[[Row], None]
#: Packages of our extras that models need.
EXTRAS = {"braindecode": ("braindecode",), "clinical": ("accelerate", "braindecode")}
EXTRAS["foundation"] = EXTRAS["clinical"]  # former name


@dataclass(frozen=True)
class Plan:
    """Runs of an experiment: all, those that the store has, and those to do."""

    runs: tuple[Run, ...]
    done: frozenset[str]
    failed: frozenset[str]
    todo: tuple[Run, ...]
    barred: Mapping[str, int]  # packages that are not here, and how many runs need them


def plan(cells: Iterable[Cell], rows: Iterable[Row], retry: bool = False, here: bool = True) -> Plan:
    """What is to be done: runs that have a row are not done again, failed ones only if ``retry``.

    If they are to be done ``here``, those of models whose package is not installed are left out.
    """
    runs = {cell.run.key: cell.run for cell in cells}  # a run may be in several cells
    status = {row.key: row.status for row in rows if row.key in runs}
    done, failed = ({key for key, found in status.items() if found == which} for which in ("done", "failed"))
    known = done if retry else done | failed
    left = [run for key, run in runs.items() if key not in known]
    packages = [_lacking(run.model) if here else None for run in left]
    todo = tuple(run for run, package in zip(left, packages, strict=True) if package is None)
    barred = Counter(package for package in packages if package is not None)
    return Plan(tuple(runs.values()), frozenset(done), frozenset(failed), todo, barred)


def _lacking(model: str) -> str | None:
    """The extra that a model needs, if its packages are not installed."""
    from gbwatt.models.registry import entry  # imports torch

    extra = entry(model).extra
    return None if extra is None or all(find_spec(package) for package in EXTRAS[extra]) else extra


@dataclass(frozen=True)
class Outcome:
    """How many runs were done now, and how many of them failed."""

    done: int
    failed: int


def carry_out(todo: Sequence[Run], store: Store, engine: Engine, watch: Watch) -> Outcome:
    """Do runs, each of which is in the store the moment it ends.

    Whatever interrupts it, a signal, a full disk or an error of the engine, the rows so far are kept, and the same call
    goes on from there.
    """
    done = failed = 0
    with closing(engine.rows(todo)) as rows:
        for row in rows:
            store.add(row)
            done, failed = done + (row.status == "done"), failed + (row.status == "failed")
            watch(row)
    return Outcome(done, failed)


def expected_seconds(runs: Sequence[Run], rows: Iterable[Row]) -> tuple[float, list[Run]]:
    """Seconds that runs will take, one after the other, from the epochs of the same networks on the same data set.

    Also the runs that are like nothing that was done before, which are not counted.
    """
    seen: dict[str, list[float]] = {}
    for row in rows:
        if row.status == "done" and row.seconds is not None and row.epochs:
            seen.setdefault(_like(Run.from_dict(row.run)), []).append(row.seconds / row.epochs)
    known = [run for run in runs if _like(run) in seen]
    seconds = sum(statistics.median(seen[_like(run)]) * _epochs(run) for run in known)
    return seconds, [run for run in runs if _like(run) not in seen]


def _like(run: Run) -> str:
    """What runs have in common whose epochs take as long."""
    return f"{run.dataset}, {run.model}, {sorted(run.options.items())}, {run.fraction}"


def measured_seconds(runs: Sequence[Run], root: str | Path | None = None, threads: int = 1) -> float:
    """Seconds that runs would take, one after the other, if all epochs take as long as the second.

    A model that cannot be built here counts nothing; its runs will say why.
    """
    torch.set_num_threads(threads)
    epoch: dict[str, float] = {}
    total = 0.0
    for run in runs:
        whole = replace(run, fraction=1.0)
        if _like(whole) not in epoch:
            epoch[_like(whole)] = _epoch(whole, root)
        total += epoch[_like(whole)] * _epochs(run)
    return total


def _epochs(run: Run) -> int:
    return int(written_out(run.model, run.dataset, run.training)["max_epochs"])


def _epoch(run: Run, root: str | Path | None) -> float:
    executor = find_executor(run.dataset)
    if executor is not None:
        return _estimated_epoch(executor, run, root)
    short = replace(run, training={**run.training, "max_epochs": 2})
    parts = parts_of(short, root)
    try:
        decoder = decoder_of(short, parts).fit(parts.train)
    except ImportError:
        return 0.0
    return float(decoder.history_[-1]["duration"])


def _estimated_epoch(executor: Executor, run: Run, root: str | Path | None) -> float:
    try:
        return executor.epoch_seconds(run, root)
    except (ImportError, ValueError):  # no package, or no weights: the runs will report it
        return 0.0
