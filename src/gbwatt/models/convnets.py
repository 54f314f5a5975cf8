"""Convolutional baselines: TCNet-Fusion and MBEEGSE, both based on the block of EEGNet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gbwatt._validation import check_at_least, check_positive
from gbwatt.errors import ParameterError
from gbwatt.models.presets import CONVOLUTIONAL, Task
from gbwatt.models.registry import register
from gbwatt.models.signal import Signal, as_epochs

_DEPTH = 2  # spatial filters per temporal filter
_SEPARABLE = 16  # length of the second temporal filters
_SPATIAL_MAX_NORM = 1.0
_NORM_EPS = 1e-3  # of batch normalisation in the framework of the original networks


# ---------------------------------------------------------------------------------------------------------- max-norm


def _limit_norms(weight: Tensor, max_norm: float) -> Tensor:
    """Scale filters ``weight[i]`` whose norm exceeds ``max_norm`` down to it."""
    norm: Tensor = torch.linalg.vector_norm(weight, dim=tuple(range(1, weight.ndim)), keepdim=True)
    return weight * (max_norm / norm.clamp_min(max_norm))


class MaxNormLinear(nn.Linear):
    """Linear layer whose rows have a norm of at most ``max_norm``.

    The limit is part of the forward pass; other implementations project the weights after each step of the optimiser.
    Both represent the same functions.
    """

    def __init__(self, in_features: int, out_features: int, max_norm: float) -> None:
        super().__init__(in_features, out_features)
        self.max_norm = check_positive("max_norm", max_norm)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        return nn.functional.linear(x, _limit_norms(self.weight, self.max_norm), self.bias)


class MaxNormSpatial(nn.Conv2d):
    """Depthwise spatial filters with a norm of at most 1, (batch, f, n_chans, t) -> (batch, 2 f, 1, t)."""

    def __init__(self, n_filters: int, n_chans: int) -> None:
        super().__init__(n_filters, _DEPTH * n_filters, (n_chans, 1), groups=n_filters, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Filter (batch, f, n_chans, t)."""
        out: Tensor = self._conv_forward(x, _limit_norms(self.weight, _SPATIAL_MAX_NORM), None)
        return out


# ------------------------------------------------------------------------------------------------------------- blocks


def _temporal_filters(n_in: int, n_out: int, kernel: int, groups: int = 1) -> nn.Sequential:
    """Temporal filters without bias that preserve the number of samples."""
    same = nn.ZeroPad2d(((kernel - 1) // 2, kernel // 2, 0, 0))
    return nn.Sequential(same, nn.Conv2d(n_in, n_out, (1, kernel), groups=groups, bias=False))


class EEGNetBlock(nn.Sequential):
    """EEGNet without its classifier, (batch, 1, n_chans, n_times) -> (batch, 2 f, 1, n_times // pool // pool) [1]_.

    Parameters
    ----------
    n_chans : int
        Number of channels.
    n_filters, kernel : int
        Number of temporal filters f, and their length.
    pool : int
        Length of each of the two average pools.
    dropout : float
        Dropout probability.

    References
    ----------
    .. [1] V. J. Lawhern et al., "EEGNet: a compact convolutional neural network for EEG-based brain-computer
       interfaces", J. Neural Eng. 15, 2018.
    """

    def __init__(self, n_chans: int, n_filters: int, kernel: int, pool: int, dropout: float) -> None:
        width = _DEPTH * n_filters
        super().__init__(
            _temporal_filters(1, n_filters, kernel),
            nn.BatchNorm2d(n_filters, _NORM_EPS),
            MaxNormSpatial(n_filters, n_chans),
            nn.BatchNorm2d(width, _NORM_EPS),
            nn.ELU(),
            nn.AvgPool2d((1, pool)),
            nn.Dropout(dropout),
            _temporal_filters(width, width, _SEPARABLE, groups=width),
            nn.Conv2d(width, width, 1, bias=False),
            nn.BatchNorm2d(width, _NORM_EPS),
            nn.ELU(),
            nn.AvgPool2d((1, pool)),
            nn.Dropout(dropout),
        )


class SqueezeExcite(nn.Module):
    """Features scaled by gates that depend on their means, (batch, f, 1, t) -> (batch, f, 1, t) [1]_.

    References
    ----------
    .. [1] J. Hu, L. Shen, G. Sun, "Squeeze-and-excitation networks", CVPR 2018.
    """

    def __init__(self, n_features: int, ratio: int) -> None:
        super().__init__()
        narrow = max(1, n_features // ratio)
        self.gate = nn.Sequential(nn.Linear(n_features, narrow), nn.ReLU(), nn.Linear(narrow, n_features), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        """Gate (batch, f, 1, t)."""
        gates: Tensor = self.gate(x.mean((-2, -1)))
        return x * gates[..., None, None]


class CausalBlock(nn.Module):
    """Two dilated causal convolutions with a skip connection, (batch, n_in, t) -> (batch, n_out, t)."""

    def __init__(self, n_in: int, n_out: int, kernel: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            *self._convolution_layers(n_in, n_out, kernel, dilation, dropout),
            *self._convolution_layers(n_out, n_out, kernel, dilation, dropout),
        )
        self.skip = nn.Identity() if n_in == n_out else nn.Conv1d(n_in, n_out, 1)
        self.activation = nn.ELU()

    @staticmethod
    def _convolution_layers(n_in: int, n_out: int, kernel: int, dilation: int, dropout: float) -> list[nn.Module]:
        """Layers of one causal convolution: padding, convolution, normalisation, activation and dropout."""
        return [
            nn.ZeroPad1d(((kernel - 1) * dilation, 0)),
            nn.Conv1d(n_in, n_out, kernel, dilation=dilation),
            nn.BatchNorm1d(n_out, _NORM_EPS),
            nn.ELU(),
            nn.Dropout(dropout),
        ]

    def forward(self, x: Tensor) -> Tensor:
        """Filter (batch, n_in, t)."""
        out: Tensor = self.activation(self.convolutions(x) + self.skip(x))
        return out


# ------------------------------------------------------------------------------------------------------------- models


class TCNetFusion(nn.Module):
    """TCNet-Fusion: features of EEGNet, concatenated with those of a temporal convolutional network [1]_.

    (batch, n_chans, n_times) -> logits (batch, n_outputs).

    Parameters
    ----------
    n_chans, n_outputs, n_times : int
        Numbers of channels, classes and samples.
    n_filters, kernel : int
        Number of temporal filters of EEGNet's block, and their length.
    n_causal, causal_kernel, causal_blocks : int
        Number of filters of the temporal convolutional network, their length, and number of its blocks, each with twice
        the dilation of the previous one.
    pool : int
        Length of each of the two pools; epochs must have at least ``pool ** 2`` samples.
    dropout : float
        Dropout probability.
    max_norm : float
        Largest norm of the rows of the classifier.

    References
    ----------
    .. [1] Y. K. Musallam et al., "Electroencephalography-based motor imagery classification using temporal
       convolutional network fusion", Biomed. Signal Process. Control 69, 2021.

    Examples
    --------
    >>> model = TCNetFusion(n_chans=22, n_outputs=4, n_times=438)
    >>> sum(p.numel() for p in model.parameters())
    12496
    """

    def __init__(
        self,
        n_chans: int,
        n_outputs: int,
        n_times: int,
        *,
        n_filters: int = 24,
        kernel: int = 32,
        n_causal: int = 12,
        causal_kernel: int = 4,
        causal_blocks: int = 2,
        pool: int = 8,
        dropout: float = 0.3,
        max_norm: float = 0.25,
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = {
            "n_chans": n_chans,
            "n_outputs": n_outputs,
            "n_times": n_times,
            "n_filters": n_filters,
            "kernel": kernel,
            "n_causal": n_causal,
            "causal_kernel": causal_kernel,
            "causal_blocks": causal_blocks,
            "pool": pool,
            "dropout": dropout,
            "max_norm": max_norm,
        }
        times = _pooled_length(n_times, pool)
        for name in ("n_filters", "kernel", "n_causal", "causal_kernel", "causal_blocks"):
            check_at_least(name, self.config[name], 1)
        width, dropout = _DEPTH * n_filters, _check_dropout(dropout)
        self.block = EEGNetBlock(n_chans, n_filters, kernel, pool, dropout)
        sizes = [width] + [n_causal] * causal_blocks
        self.causal = nn.Sequential(
            *(CausalBlock(n, n_causal, causal_kernel, 2**i, dropout) for i, n in enumerate(sizes[:-1]))
        )
        self.final_layer = MaxNormLinear((2 * width + n_causal) * times, n_outputs, max_norm)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of epochs (batch, n_chans, n_times), or (batch, 1, n_chans, n_times)."""
        x = as_epochs(x, self.config["n_chans"], self.config["n_times"], self)
        x = self.block(x[:, None])[:, :, 0]  # (batch, 2 f, times)
        fused = torch.cat([x, self.causal(x)], 1)
        logits: Tensor = self.final_layer(torch.cat([fused.flatten(1), x.flatten(1)], 1))
        return logits


class Branch(NamedTuple):
    """An EEGNet block of :class:`MBEEGSE`; ``ratio`` is the reduction ratio of squeeze-and-excitation."""

    n_filters: int
    kernel: int
    dropout: float
    ratio: int


BRANCHES = (Branch(4, 16, 0.0, 4), Branch(8, 32, 0.1, 4), Branch(16, 64, 0.2, 2))


class MBEEGSE(nn.Module):
    """MBEEGSE: parallel EEGNet blocks of three time scales, each with squeeze-and-excitation [1]_.

    (batch, n_chans, n_times) -> logits (batch, n_outputs).

    Parameters
    ----------
    n_chans, n_outputs, n_times : int
        Numbers of channels, classes and samples.
    branches : sequence of (n_filters, kernel, dropout, ratio)
        The blocks (see :class:`Branch`).
    pool : int
        Length of each of the two pools; epochs must have at least ``pool ** 2`` samples.
    max_norm : float
        Largest norm of the rows of the classifier.

    References
    ----------
    .. [1] G. A. Altuwaijri, G. Muhammad, H. Altaheri, M. Alsulaiman, "A multi-branch convolutional neural network with
       squeeze-and-excitation attention blocks for EEG-based motor imagery signals classification", Diagnostics 12,
       2022.

    Examples
    --------
    >>> model = MBEEGSE(n_chans=22, n_outputs=4, n_times=438)
    >>> sum(p.numel() for p in model.parameters())
    7706
    """

    def __init__(
        self,
        n_chans: int,
        n_outputs: int,
        n_times: int,
        *,
        branches: Sequence[Sequence[float]] = BRANCHES,
        pool: int = 8,
        max_norm: float = 0.25,
    ) -> None:
        super().__init__()
        parts = [_check_branch(i, part) for i, part in enumerate(branches)]
        self.config: dict[str, Any] = {
            "n_chans": n_chans,
            "n_outputs": n_outputs,
            "n_times": n_times,
            "branches": [list(part) for part in parts],
            "pool": pool,
            "max_norm": max_norm,
        }
        times = _pooled_length(n_times, pool)
        self.branches = nn.ModuleList(
            nn.Sequential(
                EEGNetBlock(n_chans, part.n_filters, part.kernel, pool, part.dropout),
                SqueezeExcite(_DEPTH * part.n_filters, part.ratio),
            )
            for part in parts
        )
        width = sum(_DEPTH * part.n_filters for part in parts)
        self.final_layer = MaxNormLinear(width * times, n_outputs, max_norm)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of epochs (batch, n_chans, n_times), or (batch, 1, n_chans, n_times)."""
        x = as_epochs(x, self.config["n_chans"], self.config["n_times"], self)[:, None]
        logits: Tensor = self.final_layer(torch.cat([branch(x).flatten(1) for branch in self.branches], 1))
        return logits


# ------------------------------------------------------------------------------------------------------------- checks


def _check_branch(index: int, values: Sequence[float]) -> Branch:
    """Check the values of ``branches[index]``, and convert them to a branch."""
    if len(values) != len(Branch._fields):
        raise ParameterError(
            f"branches[{index}]={tuple(values)} must have {len(Branch._fields)} values: {', '.join(Branch._fields)}."
        )
    n_filters, kernel, dropout, ratio = values
    for name, value in (("n_filters", n_filters), ("kernel", kernel), ("ratio", ratio)):
        check_at_least(f"branches[{index}].{name}", value, 1)
    return Branch(int(n_filters), int(kernel), _check_dropout(dropout), int(ratio))


def _pooled_length(n_times: int, pool: int) -> int:
    """Number of samples after both pools; raise ParameterError if none is left."""
    check_at_least("pool", pool, 1)
    left = n_times // pool // pool
    if left < 1:
        raise ParameterError(
            f"n_times={n_times} is too short for two pools of {pool} samples: use epochs of {pool * pool} samples or "
            f"more, or pool={math.isqrt(n_times)} or less."
        )
    return left


def _check_dropout(dropout: float) -> float:
    """Return the dropout probability; raise ParameterError unless it is in [0, 1)."""
    if not 0 <= dropout < 1:
        raise ParameterError(f"dropout={dropout} must be in [0, 1).")
    return dropout


# ----------------------------------------------------------------------------------------------------------- registry


@register(
    "tcnetfusion",
    "EEGNet block and temporal convolutional network, fused (Musallam et al. 2021)",
    training=CONVOLUTIONAL,
)
def _tcnet_fusion(signal: Signal, _task: Task | None, **options: Any) -> nn.Module:
    """Build TCNet-Fusion for the registry."""
    return TCNetFusion(signal.n_chans, signal.n_outputs, signal.n_times, **options)


@register(
    "mbeegse",
    "EEGNet blocks of three time scales with squeeze-and-excitation (Altuwaijri et al. 2022)",
    training=CONVOLUTIONAL,
)
def _mbeegse(signal: Signal, _task: Task | None, **options: Any) -> nn.Module:
    """Build MBEEGSE for the registry."""
    return MBEEGSE(signal.n_chans, signal.n_outputs, signal.n_times, **options)
