"""Work spread over processes, some of which really die."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from functools import partial

import pytest

from gbwatt.processes import cores, spread


def twice(task, folder=None):
    """Kills its process for the task 13, and for 7 the first time."""
    if task == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    if task == 7 and not (folder / "seen").exists():
        (folder / "seen").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * task


def test_every_task_has_its_result():
    assert dict(spread(twice, [1, 2, 3], workers=2)) == {1: 2, 2: 4, 3: 6}
    assert list(spread(twice, [], workers=2)) == []


@pytest.mark.parametrize(("deadly", "result"), [(7, 14), (13, None)])
def test_a_process_that_dies_takes_no_other_task_with_it(tmp_path, deadly, result):
    found = dict(spread(partial(twice, folder=tmp_path), [1, deadly, 2, 3], workers=2))
    assert found == {1: 2, 2: 4, 3: 6, deadly: result}


def fail(task):
    raise ValueError(f"task {task}")


def test_an_error_of_the_work_is_an_error_here():
    with pytest.raises(ValueError, match="task 1"):
        list(spread(fail, [1], workers=1))


def threads(_task):
    return os.environ["OMP_NUM_THREADS"]


def test_processes_have_so_many_threads():
    assert dict(spread(threads, [0], workers=1, threads=3)) == {0: "3"}
    assert cores() >= 1


def test_what_is_closed_is_given_up():
    with closing(spread(twice, list(range(1, 5)), workers=1)) as found:
        assert next(found) == (1, 2)
