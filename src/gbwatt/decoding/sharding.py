"""Batches of a corpus that do not depend on how many processes share the work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from gbwatt.errors import ParameterError

Array = NDArray[Any]
Pair = tuple[Tensor, Tensor]  # examples (n, n_chans, n_times) and class numbers (n,)
#: A pair, perhaps followed by the numbers of the domains (n,), and by the weights of the examples (n,) in the loss; the
#: domains are None if there are weights only.
Batch = tuple[Any, ...]


class Windows(Protocol):
    """Windows of recordings with their labels, read when they are needed."""

    labels: Array

    def __len__(self) -> int:
        """Number of windows."""

    def read(self, indices: Sequence[int] | Array) -> tuple[Array, Array]:
        """Windows (n, n_chans, n_times) and labels (n,) with these numbers."""


# -------------------------------------------------------------------------------------------------------------- shards


def batches(n: int, size: int, shards: int, seed: int, epoch: int) -> list[list[Array]]:
    """Numbers of all windows in the order of an epoch: a list of batches, each of them a list of shards.

    A batch is one step of the optimiser, a shard one pass through the network.  Which windows share a pass, and which
    random numbers it uses, depends on ``shards``, but not on the number of processes.  If the last batch would have
    fewer windows than shards, they join the batch before.

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
    """Numbers of the shards that a process computes.

    Examples
    --------
    >>> own_shards(8, process=1, processes=2)
    range(4, 8)
    """
    if shards % processes:
        fitting = shards + processes - shards % processes
        raise ParameterError(
            f"shards={shards} cannot be divided among {processes} processes; use shards={fitting}. The random numbers "
            "depend on the number of shards: use the same everywhere to get the same result."
        )
    each = shards // processes
    return range(process * each, (process + 1) * each)


class _WindowReader(Dataset[Pair]):
    """Data set for a DataLoader whose index is an array of window numbers: windows and labels as tensors."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def __getitem__(self, numbers: Any) -> Pair:
        x, y = self.windows.read(numbers)
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)), torch.from_numpy(
            np.asarray(y, dtype=np.int64)
        )


def stream(windows: Windows, numbers: Sequence[Array], device: torch.device, workers: int) -> Iterator[Pair]:
    """Windows and labels for each array of numbers, on a device; ``workers`` processes read ahead."""
    pinned = device.type == "cuda"
    # a sampler of arrays, each of which is one item
    loader: DataLoader[Any] = DataLoader(
        _WindowReader(windows),
        sampler=list(numbers),
        batch_size=None,
        num_workers=workers,
        pin_memory=pinned,
    )
    for x, y in loader:
        yield x.to(device, non_blocking=pinned), y.to(device, non_blocking=pinned)


# ------------------------------------------------------------------------------------------------------------- batches


class ShardedBatches:
    """Training batches of windows, of which each process computes its own shards.

    Each shard has its own random stream, so the number of processes does not change the result.

    Parameters
    ----------
    windows : Windows
    batch_size : int
        Windows of a batch, those of all processes together.
    shards : int
        Shards of a batch, those of all processes together.
    accelerator : accelerate.Accelerator or SingleProcess
    workers : int
        Processes that read ahead.
    """

    def __init__(self, windows: Windows, batch_size: int, shards: int, accelerator: Any, workers: int = 0) -> None:
        self.windows, self.batch_size, self.shards = windows, batch_size, shards
        self.device, self.workers = accelerator.device, workers
        self.own = own_shards(shards, accelerator.process_index, accelerator.num_processes)
        self.n_shards = len(self.own)
        self.sizes = [sum(map(len, batch)) for batch in self._epoch_batches(seed=0, epoch=1)]

    def _epoch_batches(self, seed: int, epoch: int) -> list[list[Array]]:
        """Window numbers of an epoch, for all processes; see :func:`batches`."""
        return batches(len(self.windows), self.batch_size, self.shards, seed, epoch)

    def epoch(self, seed: int, epoch: int, start: int = 0) -> Iterator[Iterator[Pair]]:
        """Batches of an epoch from number ``start`` on, each as the shards of this process."""
        plan = self._epoch_batches(seed, epoch)[start:]
        pairs = stream(self.windows, [batch[k] for batch in plan for k in self.own], self.device, self.workers)
        for step in range(start, start + len(plan)):
            yield self._seeded_shards(pairs, seed, epoch, step)

    def _seeded_shards(self, pairs: Iterator[Pair], seed: int, epoch: int, step: int) -> Iterator[Pair]:
        """Shards of this process for one step, each after seeding torch's random generators for it."""
        for shard in self.own:
            pair = next(pairs)
            seed_generators(hash_numbers(seed, epoch, step, shard) >> 1, self.device)
            yield pair


class OrderedWindows:
    """The part of all windows that this process computes, in order and in batches."""

    def __init__(self, windows: Windows, batch_size: int, accelerator: Any, workers: int = 0) -> None:
        self.windows, self.device, self.workers = windows, accelerator.device, workers
        own = np.array_split(np.arange(len(windows)), accelerator.num_processes)[accelerator.process_index]
        self.numbers = np.array_split(own, math.ceil(len(own) / batch_size)) if len(own) else []

    def __iter__(self) -> Iterator[Pair]:
        return stream(self.windows, self.numbers, self.device, self.workers)


# ------------------------------------------------------------------------------------------------------ random numbers


def hash_numbers(*numbers: int) -> int:
    """A 64-bit seed that depends on all numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def seed_generators(value: int, device: torch.device) -> None:
    """Seed torch's random generators on the CPU and on a device."""
    torch.default_generator.manual_seed(value)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(value)


# ----------------------------------------------------------------------------------------------------------- processes


class SingleProcess:
    """The part of accelerate's ``Accelerator`` that training uses, for one process and one device."""

    num_processes, process_index, is_main_process = 1, 0, True
    scaler = None

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)

    def prepare(self, *objects: Any) -> tuple[Any, ...]:
        """Return the objects unchanged."""
        return objects

    def no_sync(self, model: nn.Module) -> Any:  # noqa: ARG002
        """A context in which nothing changes."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Compute gradients."""
        loss.backward()

    def reduce(self, x: Tensor, reduction: str) -> Tensor:  # noqa: ARG002
        """Return the tensor unchanged."""
        return x

    def wait_for_everyone(self) -> None:
        """Return at once."""

    def unwrap_model(self, model: nn.Module, **_: Any) -> nn.Module:
        """Return the model unchanged."""
        return model


def gather(accelerator: Any, objects: list[Any]) -> list[Any]:
    """Join the lists of all processes, in every process."""
    if accelerator.num_processes == 1:
        return objects
    from accelerate.utils import gather_object

    joined: list[Any] = gather_object(objects)
    return joined
