"""Work in processes of this machine, any of which may die.  Nothing here imports the rest of the package."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from functools import partial
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

#: Libraries that would each take all cores in each process.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_LOOKS = 0.5  # seconds between two looks of a worker at whether the process that started it is alive
_PR_SET_PDEATHSIG = 1


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
    the iterator is closed, what is not done yet is given up.  When the calling process dies, killed by a signal for
    instance, its workers end within about a second.

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
    by_signal = threading.current_thread() is threading.main_thread()
    begin = partial(_begin, os.getpid(), by_signal, initializer)
    pool = get_reusable_executor(max_workers=workers, timeout=60, env=environment, reuse=False, initializer=begin)
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


# ------------------------------------------------------------------------------------------------------------- workers


def _begin(parent: int, by_signal: bool, initializer: Callable[[], None] | None) -> None:
    """Begin a worker: it ends with the process that started it."""
    end_with_parent(parent, by_signal)
    if initializer is not None:
        initializer()


def end_with_parent(parent: int, by_signal: bool = True) -> None:
    """End this process soon after its parent has died.

    Parameters
    ----------
    parent : int
        Process id of the parent, which it has read itself: it may have died before this call.
    by_signal : bool
        Let Linux kill this process, too, in case no Python code gets a turn.  The signal comes when the thread that
        started this process ends, so that has to be one that lasts.
    """
    if by_signal and sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):  # a C library without prctl: the watch below does it
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_after, args=(parent,), daemon=True, name="end with parent").start()


def _end_after(parent: int) -> None:
    _wait_for_end(parent)
    os._exit(1)  # at once: nobody is left to read a result


def _wait_for_end(parent: int) -> None:
    if sys.platform == "win32":
        import _winapi

        with suppress(OSError):  # it has ended already
            handle = _winapi.OpenProcess(0x00100000, False, parent)  # SYNCHRONIZE
            _winapi.WaitForSingleObject(handle, _winapi.INFINITE)
    else:
        while os.getppid() == parent:  # orphans get another parent
            time.sleep(_LOOKS)
