"""Peak memory of a training step, with each network in a separate process."""

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
    """Bytes in addition to those before the step: of the process, and of the tensors of torch."""

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
    """Growth of the resident set up to its peak; NaN if the system does not report it."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        CLEAR.write_text("5")  # reset the high-water mark
    except OSError:
        return math.nan
    before = _status("VmRSS")
    runner.step(batch)
    return _status("VmHWM") - before


def _status(field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+) kB", STATUS.read_text())
    return 1024 * float(found.group(1)) if found else math.nan


def _tensor_peak(runner: Contestant, batch: Batch) -> float:
    """Peak of the memory allocated by torch, from its profiler."""
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
