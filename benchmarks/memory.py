"""Peak memory of a step of training, each network in a process of its own."""

from __future__ import annotations

import ctypes
import math
import os
import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch
from contestants import Batch, Contestant, contestant
from torch.profiler import ProfilerActivity, profile

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak(NamedTuple):
    """Bytes beyond those before the step: of the process, and of torch's tensors alone."""

    process: float
    tensors: float


def peak(name: str, preset: str, batch: Batch, threads: int) -> Peak:
    """Peaks of one network, measured in a new process."""
    arrays = (batch[0].numpy(), batch[1].numpy())
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measure, name, preset, arrays, threads).result()


def _measure(name: str, preset: str, arrays: tuple[object, object], threads: int) -> Peak:
    torch.set_num_threads(threads)
    batch = torch.as_tensor(arrays[0]), torch.as_tensor(arrays[1])
    runner = contestant(name, preset, batch, learnt=False)
    few = batch[0][:4], batch[1][:4]
    for _ in range(2):  # what libraries set up once, and the state of the optimiser
        runner.step(few)
    runner.model.zero_grad()
    return Peak(_process_peak(runner, batch), _tensor_peak(runner, batch))


def _process_peak(runner: Contestant, batch: Batch) -> float:
    """Growth of the resident set up to its highest point; NaN where the system does not tell."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        CLEAR.write_text("5")  # the high-water mark begins anew
    except OSError:
        return math.nan
    before = _status("VmRSS")
    runner.step(batch)
    return _status("VmHWM") - before


def _status(field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+) kB", STATUS.read_text())
    return 1024 * float(found.group(1)) if found else math.nan


def _tensor_peak(runner: Contestant, batch: Batch) -> float:
    """The highest sum of what torch allocated and had not freed, from its profiler."""
    runner.model.zero_grad()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the profiler writes messages; the process ends after this
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        runner.step(batch)
    current = highest = 0
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        current += event.nbytes()
        highest = max(highest, current)
    return float(highest)
