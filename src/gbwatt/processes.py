"""Work in processes of this machine, any of which may die.  Nothing here imports the rest of the package."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

#: Libraries that would each take all cores in each process.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def cores() -> int:
    """Cores that this process may use."""
    with suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def spread(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    workers: int,
    threads: int = 1,
    initializer: Callable[[], None] | None = None,
) -> Generator[tuple[Task, Result | None]]:
    """Each task with its result, in the order in which they end; None for one whose process died twice.

    A process that dies takes no other task with it: what was running is tried once more, by itself, at the end.  When
    the iterator is closed, what is not done yet is given up.

    Parameters
    ----------
    work : callable
        Of one task; it and the tasks have to be such that they can be sent to a process.
    tasks : sequence
        That can be compared.
    workers : int
        Processes.
    threads : int
        Threads of each.
    initializer : callable, optional
        Called by each process at its beginning.
    """
    left, suspects = list(tasks), list[Task]()
    while left:
        lost: list[Task] = []
        for task, result in _pool(work, left, min(workers, len(left)), threads, initializer, lost):
            left.remove(task)
            yield task, result
        suspects += lost
        left = [task for task in left if task not in lost]
    for task in suspects:
        again: list[Task] = []
        yield from _pool(work, [task], 1, threads, initializer, again)
        yield from ((dead, None) for dead in again)


def _pool(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    workers: int,
    threads: int,
    initializer: Callable[[], None] | None,
    lost: list[Task],
) -> Generator[tuple[Task, Result]]:
    """Results until all are there or a process dies; then ``lost`` are the tasks that may have been in it."""
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    environment = dict.fromkeys(_THREADS, str(threads))
    pool = get_reusable_executor(max_workers=workers, timeout=60, env=environment, reuse=False, initializer=initializer)
    waiting, active = list(tasks), dict[Future[Result], Task]()
    try:
        while waiting or active:
            while waiting and len(active) < workers:  # so many only: what is lost with a process is known
                task = waiting.pop(0)
                active[pool.submit(work, task)] = task
            done, _ = wait(active, return_when=FIRST_COMPLETED)
            for future in done:
                result = future.result()
                yield active.pop(future), result
    except TerminatedWorkerError:
        lost.extend(active.values())
    finally:
        pool.shutdown(wait=not active, kill_workers=bool(active))
