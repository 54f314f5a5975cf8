"""Where runs are done: in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gbwatt import checks
from gbwatt.experiments.runs import Row, Run

_DIED = "The process of this run died twice, without a Python error: out of memory, or killed by a signal."

#: Libraries that would each take all cores in each process.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


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
        suspects: list[Group] = []
        left = grouped(runs)
        while left:
            lost: list[Group] = []
            for group, rows in self._pool(left, self.workers(len(left)), lost):
                left = [other for other in left if other != group]
                yield from rows
            suspects += lost
            left = [group for group in left if group not in lost]
        for group in suspects:
            again: list[Group] = []
            for _, rows in self._pool([group], 1, again):
                yield from rows
            if again:
                yield from _lost(group, _DIED)

    def _pool(self, groups: Sequence[Group], workers: int, lost: list[Group]) -> Generator[tuple[Group, list[Row]]]:
        """Rows until all are there or a process dies; then ``lost`` are the runs that may have been in it."""
        from joblib.externals.loky import get_reusable_executor
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        environment = dict.fromkeys(_THREADS, str(self.threads))
        pool = get_reusable_executor(max_workers=workers, timeout=60, env=environment, reuse=False)
        root = None if self.root is None else str(self.root)
        waiting, active = list(groups), dict[Future[list[Row]], Group]()
        try:
            while waiting or active:
                while waiting and len(active) < workers:  # so many only: what is lost with a process is known
                    group = waiting.pop(0)
                    active[pool.submit(_do, group, root, self.threads)] = group
                done, _ = wait(active, return_when=FIRST_COMPLETED)
                for future in done:
                    rows = future.result()
                    yield active.pop(future), rows
        except TerminatedWorkerError:
            lost.extend(active.values())
        finally:
            pool.shutdown(wait=not active, kill_workers=bool(active))

    def workers(self, runs: int) -> int:
        """Processes for so many runs."""
        return max(1, min(self.jobs or _cores() // self.threads or 1, runs))


def _cores() -> int:
    """Cores that this process may use."""
    with suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
