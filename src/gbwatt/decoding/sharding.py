"""Batches of a corpus that do not depend on how many processes read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from gbwatt.errors import ParameterError

Array = NDArray[Any]


class Windows(Protocol):
    """What can be learnt from: windows with their labels, read when they are needed."""

    labels: Array

    def __len__(self) -> int:
        """How many there are."""

    def read(self, indices: Sequence[int] | Array) -> tuple[Array, Array]:
        """Windows (n, n_chans, n_times) and labels (n,) at places."""


def batches(n: int, size: int, shards: int, seed: int, epoch: int) -> list[list[Array]]:
    """Places of all windows in the order of an epoch: a list of batches, each of them a list of shards.

    A batch makes one step, a shard one pass through the network, wherever it is done: with which other windows a window
    is, and what is drawn at random for it, depends on ``shards``, but not on the number of processes.  A rest too small
    for all shards goes with the batch before it.

    Examples
    --------
    >>> [[len(shard) for shard in batch] for batch in batches(21, size=8, shards=2, seed=0, epoch=1)]
    [[4, 4], [4, 4], [3, 2]]
    """
    if n < shards:
        raise ParameterError(f"{n} windows cannot be divided into shards={shards}; lower it.")
    if size < shards:
        raise ParameterError(f"batch_size={size} cannot be divided into shards={shards}; raise it.")
    order = np.random.default_rng([seed, epoch]).permutation(n)
    starts = list(range(0, n, size))
    if len(starts) > 1 and n - starts[-1] < shards:
        starts.pop()
    return [np.array_split(part, shards) for part in np.split(order, starts[1:])]


def own_shards(shards: int, process: int, processes: int) -> range:
    """Numbers of the shards that a process does.

    Examples
    --------
    >>> own_shards(8, process=1, processes=2)
    range(4, 8)
    """
    if shards % processes:
        fitting = shards + processes - shards % processes
        raise ParameterError(
            f"shards={shards} cannot be divided among {processes} processes; take shards={fitting}. Other shards make "
            "other random numbers: for the same result use the same everywhere."
        )
    each = shards // processes
    return range(process * each, (process + 1) * each)


class _Reader(Dataset[tuple[Tensor, Tensor]]):
    """Windows by arrays of places."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def __getitem__(self, places: Any) -> tuple[Tensor, Tensor]:
        x, y = self.windows.read(places)
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)), torch.from_numpy(
            np.asarray(y, dtype=np.int64)
        )


def stream(
    windows: Windows, places: Sequence[Array], device: torch.device, workers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Windows and labels of each array of places, on a device; ``workers`` processes read ahead."""
    pinned = device.type == "cuda"
    # a sampler of arrays, each of which is one item
    loader: DataLoader[Any] = DataLoader(
        _Reader(windows),
        sampler=list(places),
        batch_size=None,
        num_workers=workers,
        pin_memory=pinned,
    )
    for x, y in loader:
        yield x.to(device, non_blocking=pinned), y.to(device, non_blocking=pinned)
