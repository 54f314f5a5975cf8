"""Mini-batches, drawn from torch's generator as it is when an epoch begins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from gbwatt import checks
from gbwatt.training.inputs import Examples


def batch_sizes(n: int, batch_size: int, whole: bool = False) -> list[int]:
    """Sizes of the batches of n trials; with ``whole`` none has a single trial: a last one joins the batch before.

    Batch normalisation has no variance of a single trial.

    Examples
    --------
    >>> batch_sizes(9, 4), batch_sizes(9, 4, whole=True), batch_sizes(3, 64)
    ([4, 4, 1], [4, 5], [3])
    """
    sizes = [batch_size] * (n // batch_size) + [n % batch_size] * (n % batch_size > 0)
    if whole and len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [batch_size + 1]
    return sizes


class Batches:
    """All trials once, in batches; shuffled for training, in order otherwise."""

    def __init__(self, trials: Examples, batch_size: int, shuffle: bool) -> None:
        if shuffle and len(trials) < 2:
            raise checks.ShapeError(f"{len(trials)} training trial is too few; at least 2 are needed.")
        self.trials, self.shuffle = trials, shuffle
        self.sizes = batch_sizes(len(trials), batch_size, whole=shuffle)

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.trials)).split(self.sizes) if self.shuffle else self._slices()
        for index in order:
            yield self.trials[index]

    def _slices(self) -> Iterator[slice]:
        """Trials in order, which need no copy."""
        ends = itertools.accumulate(self.sizes)
        return (slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True))
