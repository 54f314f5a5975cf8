"""Architectures and training parameters of the paper's tasks, and defaults for other recordings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from gbwatt._validation import check_one_of
from gbwatt.models.signal import Signal

Split = Literal["time", "grouped", "shared"]


@dataclass(frozen=True)
class Training:
    """Training parameters of a model.

    Attributes
    ----------
    lr : float
        Learning rate.
    batch_size : int
    max_epochs : int
    weight_decay : float
    """

    lr: float
    batch_size: int
    max_epochs: int
    weight_decay: float


@dataclass(frozen=True)
class Architecture:
    """Sizes of the filters and of the sequence of matrices.

    Attributes
    ----------
    n_spatial : int
        Spatial filters of each branch.
    n_temporal : int
        Temporal filters of each branch; the size of the covariances.
    kernel : int
        Length of the temporal filters in samples.
    split : "time", "grouped" or "shared"
        Source of the sequence: windows in time, or parallel branches of filters, with separate ("grouped") or common
        ("shared") spatial filters.
    n_segments : int
        Length m of the sequence.
    k : int
        Size of the matrices after the bilinear maps.
    """

    n_spatial: int
    n_temporal: int
    kernel: int
    split: Split
    n_segments: int
    k: int


@dataclass(frozen=True)
class Task:
    """A task of the paper: its input, architecture (Table 1) and training parameters."""

    name: str
    signal: Signal
    architecture: Architecture
    training: Training
    raw_k: int  # matrix size k for covariances of raw channels
    variants: Mapping[str, int] = field(default_factory=dict)  # n_spatial for other splits

    def architecture_for(self, split: Split | None, features: bool = True) -> Architecture:
        """Architecture for a given split, or for raw channels if ``features`` is False."""
        default = self.architecture
        if not features:
            return replace(default, split="time" if split is None else split, k=self.raw_k)
        if split is None or split == default.split:
            return default
        return replace(default, split=split, n_spatial=self.variants.get(split, default.n_spatial))


TASKS = MappingProxyType(
    {
        "mi": Task(
            "mi",
            Signal(22, 4, 438, 125.0),
            Architecture(22, 20, 12, "time", 3, 18),
            Training(2.5e-3, 128, 350, 1e-1),
            18,
        ),
        "ssvep": Task(
            "ssvep",
            Signal(8, 5, 125, 125.0),
            Architecture(125, 15, 36, "time", 7, 12),
            Training(1e-3, 64, 180, 1e-1),
            6,
        ),
        "ern": Task(
            "ern",
            Signal(56, 2, 160, 128.0),
            Architecture(23, 16, 64, "grouped", 3, 8),
            Training(5e-4, 32, 130, 1e-1),
            8,
            {"shared": 14, "time": 22},
        ),
    }
)

#: Training parameters for other recordings than the paper's.
OWN_DATA = Training(1e-3, 32, 150, 1e-2)

#: Classical pipelines are fitted without gradient steps.
NO_TRAINING = Training(0.0, 32, 0, 0.0)

#: Training parameters of convolutional networks, by task or for "own" recordings.  The paper does not state them.  With
#: the paper's weight decay EEGNet stays near chance; the authors of these networks use none.
CONVOLUTIONAL: Mapping[str, Training] = MappingProxyType(
    {
        "mi": Training(2.5e-3, 128, 350, 0.0),
        "ssvep": Training(1e-3, 64, 180, 0.0),
        "ern": Training(1e-3, 32, 130, 0.0),
        "own": Training(1e-3, 32, 150, 0.0),
    }
)


def architecture_for(signal: Signal) -> Architecture:
    """Default architecture for an input.

    There are as many spatial filters as channels, but between 16 and 64, and 16 temporal filters of a quarter of a
    second (an eighth of the epoch if the sampling rate is unknown), fewer and shorter ones for epochs below 64 samples.
    Windows have at least two samples per temporal filter, and there are at most 7.  k is three quarters of the number
    of temporal filters.

    Parameters
    ----------
    signal : Signal

    Returns
    -------
    Architecture

    Examples
    --------
    >>> architecture_for(Signal(n_chans=64, n_outputs=2, n_times=640, sfreq=160.0))
    Architecture(n_spatial=64, n_temporal=16, kernel=40, split='time', n_segments=7, k=12)
    """
    n_temporal = max(2, min(16, signal.n_times // 4))
    kernel = signal.sfreq / 4 if signal.sfreq is not None else signal.n_times / 8
    return Architecture(
        n_spatial=min(max(signal.n_chans, 16), 64),
        n_temporal=n_temporal,
        kernel=2 * max(1, round(min(kernel, signal.n_times / 2) / 2)),
        split="time",
        n_segments=max(1, min(7, signal.n_times // (2 * n_temporal))),
        k=max(1, 3 * n_temporal // 4),
    )


def find_task(name: str) -> Task:
    """Look up a task by its name; raise ParameterError, which lists the names, if it is unknown."""
    check_one_of("task", name, tuple(TASKS))
    return TASKS[name]
