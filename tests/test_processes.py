"""Work run_in_processes over processes, some of which really die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from gbwatt._processes import cores, run_in_processes


def twice(task, folder=None):
    """Kills its process for the task 13, and for 7 the first time."""
    if task == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    if task == 7 and not (folder / "seen").exists():
        (folder / "seen").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * task


def test_every_task_has_its_result():
    assert dict(run_in_processes(twice, [1, 2, 3], workers=2)) == {1: 2, 2: 4, 3: 6}
    assert list(run_in_processes(twice, [], workers=2)) == []


@pytest.mark.parametrize(("deadly", "result"), [(7, 14), (13, None)])
def test_a_process_that_dies_takes_no_other_task_with_it(tmp_path, deadly, result):
    found = dict(run_in_processes(partial(twice, folder=tmp_path), [1, deadly, 2, 3], workers=2))
    assert found == {1: 2, 2: 4, 3: 6, deadly: result}


def fail(task):
    raise ValueError(f"task {task}")


def test_an_error_of_the_work_is_an_error_here():
    with pytest.raises(ValueError, match="task 1"):
        list(run_in_processes(fail, [1], workers=1))


def threads(_task):
    return os.environ["OMP_NUM_THREADS"]


def test_processes_have_so_many_threads():
    assert dict(run_in_processes(threads, [0], workers=1, threads=3)) == {0: "3"}
    assert cores() >= 1


def test_what_is_closed_is_given_up():
    with closing(run_in_processes(twice, list(range(1, 5)), workers=1)) as found:
        assert next(found) == (1, 2)


# Starts two workers, each of which writes its process id into FOLDER and then works without letting go of Python.
RUNNER = """
import os, sys, time
from pathlib import Path
from gbwatt._processes import run_in_processes

def work(task):
    (Path(sys.argv[1]) / str(os.getpid())).touch()
    {work}

list(run_in_processes(work, [0, 1], workers=2))
"""
ASLEEP, BUSY = "time.sleep(600)", "sum(range(10**13))  # one call of C, which never gives the other threads a turn"


@pytest.mark.skipif(not hasattr(os, "kill") or sys.platform == "win32", reason="this system has no SIGKILL")
@pytest.mark.parametrize(
    "work",
    [
        pytest.param(ASLEEP, id="asleep"),
        pytest.param(BUSY, id="busy", marks=pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")),
    ],
)
def test_workers_end_soon_after_their_runner_was_killed(tmp_path, work):
    script = tmp_path / "runner.py"
    script.write_text(RUNNER.replace("{work}", work).replace("sys.argv[1]", repr(str(tmp_path / "workers"))))
    (tmp_path / "workers").mkdir()
    runner = subprocess.Popen([sys.executable, script], stderr=subprocess.DEVNULL)
    pids = wait_for(lambda: [int(file.name) for file in (tmp_path / "workers").iterdir()], 2, seconds=60)
    try:
        assert all(map(alive, pids))
        runner.kill()
        runner.wait()
        wait_for(lambda: [pid for pid in pids if not alive(pid)], 2, seconds=15)  # a second or less on idle cores
    finally:
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def wait_for(find, count, seconds):
    end = time.monotonic() + seconds
    while len(found := find()) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} after {seconds} s"
        time.sleep(0.02)
    return found


def alive(pid):
    """Whether a process is there, and is not one that ended and was not waited for."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat")
        return sys.platform != "linux" or status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_outlive_the_thread_that_started_them():
    found = run_in_processes(twice, [1, 2, 3], workers=1)
    first = []
    thread = threading.Thread(target=lambda: first.append(next(found)))
    thread.start()
    thread.join()
    assert [*first, *found] == [(1, 2), (2, 4), (3, 6)]
