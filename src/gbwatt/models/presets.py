"""The three tasks of the paper, and the rule for recordings that are none of them: each number in one place."""

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
    """How a model is trained."""

    lr: float
    batch_size: int
    max_epochs: int
    weight_decay: float


@dataclass(frozen=True)
class Architecture:
    """Sizes of the filters and of the sequence of matrices.

    ``split`` says where the m matrices come from: windows in time, or parallel branches of filters, with spatial
    filters of their own ("grouped") or common ones ("shared").
    """

    n_spatial: int  # in each branch
    n_temporal: int  # in each branch; the size of the covariances
    kernel: int
    split: Split
    n_segments: int
    k: int


@dataclass(frozen=True)
class Task:
    """One data set of the paper: the input, the architecture for it (Table 1), and the training."""

    name: str
    signal: Signal
    architecture: Architecture
    training: Training
    raw_k: int  # for covariances of raw channels
    variants: Mapping[str, int] = field(default_factory=dict)  # n_spatial for other splits

    def architecture_for(self, split: Split | None, features: bool = True) -> Architecture:
        """The architecture, for another split if one is given, or for raw channels."""
        own = self.architecture
        if not features:
            return replace(own, split="time" if split is None else split, k=self.raw_k)
        if split is None or split == own.split:
            return own
        return replace(own, split=split, n_spatial=self.variants.get(split, own.n_spatial))


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

#: For recordings that are none of the paper's.
OWN_DATA = Training(1e-3, 32, 150, 1e-2)

#: How convolutional networks are trained, by task or for "own" recordings.  The paper does not say; its weight decay
#: leaves EEGNet near chance, and their authors have none.
CONVOLUTIONAL: Mapping[str, Training] = MappingProxyType(
    {
        "mi": Training(2.5e-3, 128, 350, 0.0),
        "ssvep": Training(1e-3, 64, 180, 0.0),
        "ern": Training(1e-3, 32, 130, 0.0),
        "own": Training(1e-3, 32, 150, 0.0),
    }
)


def architecture_for(signal: Signal) -> Architecture:
    """Sizes for any epochs.

    As many spatial filters as channels, but between 16 and 64; 16 temporal filters of a quarter of a second (an eighth
    of the epoch, if the sampling rate is not known), fewer and shorter for epochs below 64 samples; windows with two
    samples or more for each filter, at most 7; k three quarters of the filters.

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
    """A task by its name; an error lists the names."""
    check_one_of("task", name, tuple(TASKS))
    return TASKS[name]
