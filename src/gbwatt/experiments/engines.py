"""Where runs are done: in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from gbwatt import checks
from gbwatt.experiments.runs import Row, Run
from gbwatt.processes import cores, spread

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
        checks.at_least("jobs", self.jobs, 0)
        checks.at_least("threads", self.threads, 1)

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
            raise ImportError("a Dask cluster needs dask.distributed: pip install 'gbwatt[dask]'") from error
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
        raise checks.ParameterError(
            f"scheduler={scheduler!r}: no Dask scheduler answers there ({error}); start one with `dask scheduler`, and "
            "workers with `dask worker tcp://HOST:8786`."
        ) from error
