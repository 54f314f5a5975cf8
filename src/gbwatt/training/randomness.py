"""Random numbers of a training: a function of seed and epoch, apart from those of the caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def isolated(device: torch.device) -> Iterator[None]:
    """Give torch's generators back as they were."""
    if device.type == "cpu":
        with torch.random.fork_rng(devices=[]):
            yield
    else:
        with torch.random.fork_rng(devices=[device.index or 0], device_type=device.type):
            yield


def start_epoch(seed: int, epoch: int, device: torch.device) -> None:
    """Set the generators for an epoch, counted from 1; 0 is the initialisation.

    All that is random in an epoch follows, so a training can continue after any of them without a stored state.
    """
    value = int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0])
    torch.default_generator.manual_seed(value)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(value)
