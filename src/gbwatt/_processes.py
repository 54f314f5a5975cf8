"""Parallel work in processes that survives the death of any of them."""

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

#: Environment variables that limit the threads of libraries, which would use all cores in every process.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_POLLING_INTERVAL = 0.5  # seconds between two checks of a worker whether its parent is alive
_PR_SET_PDEATHSIG = 1  # option of prctl: the signal that a process gets when its parent ends


def cores() -> int:
    """Number of cores that this process may use."""
    with suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_in_processes(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    workers: int,
    threads: int = 1,
    initializer: Callable[[], None] | None = None,
) -> Generator[tuple[Task, Result | None]]:
    """Run tasks in worker processes and yield each with its result as it completes.

    Tasks that were running when a process died are retried at the end, one at a time.  A task whose process dies again
    is yielded with the result None.  Closing the generator cancels the remaining tasks.  If the calling process is
    killed, its workers exit within about a second.

    Parameters
    ----------
    work : callable
        Function of one task.  It and the tasks must be picklable.
    tasks : sequence
        Tasks, which must support comparison with ``==``.
    workers : int
        Number of processes.
    threads : int
        Number of threads per process.
    initializer : callable, optional
        Called at the start of each process.

    Yields
    ------
    task, result
        In the order of completion.
    """
    remaining, suspects = list(tasks), list[Task]()
    while remaining:
        lost: list[Task] = []
        for task, result in _run_pool(work, remaining, min(workers, len(remaining)), threads, initializer, lost):
            remaining.remove(task)
            yield task, result
        suspects += lost
        remaining = [task for task in remaining if task not in lost]
    for task in suspects:
        lost_again: list[Task] = []
        yield from _run_pool(work, [task], 1, threads, initializer, lost_again)
        yield from ((dead, None) for dead in lost_again)


def _run_pool(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    workers: int,
    threads: int,
    initializer: Callable[[], None] | None,
    lost: list[Task],
) -> Generator[tuple[Task, Result]]:
    """Yield results until all tasks are done or a process dies; then add the tasks that were running to ``lost``."""
    import loky

    environment = dict.fromkeys(_THREADS, str(threads))
    by_signal = threading.current_thread() is threading.main_thread()
    start = partial(_start_worker, os.getpid(), by_signal, initializer)
    pool = loky.get_reusable_executor(max_workers=workers, timeout=60, env=environment, reuse=False, initializer=start)
    waiting, active = list(tasks), dict[Future[Result], Task]()
    try:
        while waiting or active:
            while waiting and len(active) < workers:  # no more than can run, to know which tasks a dead process had
                task = waiting.pop(0)
                active[pool.submit(work, task)] = task
            done, _ = wait(active, return_when=FIRST_COMPLETED)
            for future in done:
                result = future.result()
                yield active.pop(future), result
    except loky.BrokenProcessPool:
        lost.extend(active.values())
    finally:
        pool.shutdown(wait=not active, kill_workers=bool(active))


# ---- workers


def ignore_interrupts() -> None:
    """Leave Ctrl-C to the main process, which ends the workers; an ``initializer`` for :func:`run_in_processes`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _start_worker(parent: int, by_signal: bool, initializer: Callable[[], None] | None) -> None:
    """First call in a worker process: make it exit when its parent dies, then call ``initializer``.

    ``parent`` and ``by_signal`` are the arguments of :func:`end_with_parent`.
    """
    end_with_parent(parent, by_signal)
    if initializer is not None:
        initializer()


def end_with_parent(parent: int, by_signal: bool = True) -> None:
    """Make this process exit soon after its parent has died.

    Parameters
    ----------
    parent : int
        Process id of the parent.  The parent must determine it, since it may have died before this call.
    by_signal : bool
        Also let Linux kill this process, in case it never returns to the Python interpreter.  Linux sends the signal
        when the thread that started this process ends, so that must be a long-lived thread.
    """
    if by_signal and sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):  # the C library may lack prctl: the thread below is enough then
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_exit_after, args=(parent,), daemon=True, name="end with parent").start()


def _exit_after(parent: int) -> None:
    """Wait until the parent has ended, and end this process."""
    _wait_for_end(parent)
    os._exit(1)  # immediately: no process is left to read a result


def _wait_for_end(parent: int) -> None:
    """Return when the process with this id, the parent, has ended."""
    if sys.platform == "win32":
        import _winapi

        with suppress(OSError):  # it has already ended
            handle = _winapi.OpenProcess(0x00100000, False, parent)  # SYNCHRONIZE
            _winapi.WaitForSingleObject(handle, _winapi.INFINITE)
    else:
        while os.getppid() == parent:  # orphans get another parent
            time.sleep(_POLLING_INTERVAL)
