"""BWAtt and GBWAtt, and all their ablations, as one model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self, overload

import torch
from torch import Tensor, nn

from gbwatt._validation import check_at_least, check_one_of
from gbwatt.errors import ModelFileError, ParameterError, ScaleWarning
from gbwatt.geometry import Metric
from gbwatt.geometry._autograd import full_precision
from gbwatt.models import serialization
from gbwatt.models.presets import Architecture, Split, Task, Training, architecture_for, find_task
from gbwatt.models.registry import register
from gbwatt.models.signal import Signal, as_epochs
from gbwatt.nn import Aggregation, Embedding, MetricLayer, Score, SegmentCovariance, SPDSelfAttention
from gbwatt.nn.attention import EuclideanSelfAttention, Formulation, NoAttention, Segments
from gbwatt.nn.covariance import Shrinkage
from gbwatt.nn.features import SpatioTemporalFeatures

Recipe = Literal["paper", "best"]
Attention = Literal["spd", "euclidean", "none"]

#: What a recipe says where the caller does not.
RECIPES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "paper": MappingProxyType({"aggregation": "frechet", "shrinkage": 0.0}),
        "best": MappingProxyType({"aggregation": "tangent", "shrinkage": 0.3}),
    }
)


class Details(NamedTuple):
    """What a forward pass saw on its way."""

    logits: Tensor  # (batch, n_outputs)
    covariances: Tensor  # (batch, m, n, n): the sequence before attention
    attention: Tensor  # (batch, m, m): weights, a row for each query
    attended: Tensor  # (batch, m, k, k): the sequence after attention, before the embedding

    def condition_numbers(self) -> tuple[Tensor, Tensor]:
        """Condition numbers (batch, m) of the matrices before attention and after it."""
        if self.covariances.ndim != 4 or self.covariances.shape[-1] != self.covariances.shape[-2]:
            raise ParameterError("a network without attention of SPD matrices has no condition numbers.")
        before, after = (torch.linalg.eigvalsh(x.detach().double()) for x in (self.covariances, self.attended))
        return before[..., -1] / before[..., 0], after[..., -1] / after[..., 0]


class _RawChannels(nn.Module):
    """The channels themselves as features, (batch, n_chans, n_times) -> (batch, 1, n_chans, n_times)."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, None]


class GBWAtt(nn.Module):
    r"""Riemannian self-attention for EEG under the (power-deformed, generalised) Bures-Wasserstein metric.

    (batch, n_chans, n_times) -> logits (batch, n_outputs).  Spatial and temporal filters (SFEM) make features, whose
    covariances in m windows or branches are a sequence of SPD matrices (SPDM); each attends to all (SSAM); the
    logarithms of what they see, as vectors (MEEM), are classified.

    Parameters
    ----------
    n_chans, n_outputs, n_times : int
        Channels, classes and samples.
    sfreq, chs_info, input_window_seconds
        As in braindecode: sampling rate, channel descriptions and duration, from which the first three are inferred
        where they are not given.
    n_spatial, n_temporal, kernel, split, n_segments, k
        Sizes of the architecture (:class:`~gbwatt.models.presets.Architecture`).  What is not given follows from the
        input (:func:`~gbwatt.models.presets.architecture_for`).
    metric, theta, learn_metric, learn_theta, score, aggregation, formulation
        Of the attention (:class:`~gbwatt.nn.SPDSelfAttention`).  ``metric="bures-wasserstein"`` is BWAtt.
    eps, shrinkage
        Of the covariances (:class:`~gbwatt.nn.SegmentCovariance`).
    reeig : float
        Threshold of the rectification of eigenvalues.
    features : bool
        False leaves out SFEM: covariances of the raw channels.
    attention : "spd", "euclidean" or "none"
        "euclidean" and "none" leave out the matrices: dot-product attention of the features, or just the features.
    embedding : bool
        False leaves out the rectification and the logarithm.
    recipe : "paper" or "best"
        The mean of the attention and the regularisation of the covariances, where they are not given: the Fréchet mean
        and none, as in the paper, or what validation data preferred.

    Attributes
    ----------
    config : dict
        All arguments as they were resolved; ``GBWAtt(**config)`` builds the same model.

    References
    ----------
    .. [1] The paper that this package implements; see CITATION.cff.

    Examples
    --------
    >>> model = GBWAtt(n_chans=8, n_outputs=5, n_times=125, sfreq=125)
    >>> model(torch.randn(4, 8, 125)).shape
    torch.Size([4, 5])
    >>> details = model(torch.randn(4, 8, 125), details=True)
    >>> details.attention.sum(-1).allclose(torch.ones(()))
    True
    """

    def __init__(
        self,
        n_chans: int | None = None,
        n_outputs: int | None = None,
        n_times: int | None = None,
        *,
        sfreq: float | None = None,
        chs_info: Sequence[Any] | None = None,
        input_window_seconds: float | None = None,
        n_spatial: int | None = None,
        n_temporal: int | None = None,
        kernel: int | None = None,
        split: Split | None = None,
        n_segments: int | None = None,
        k: int | None = None,
        metric: str | Metric | MetricLayer = "gbw",
        theta: float = 1.5,
        learn_metric: bool = True,
        learn_theta: bool = False,
        score: str | Score = "inverse-log",
        aggregation: str | Aggregation | None = None,
        formulation: Formulation = "isometric",
        eps: float = 1e-5,
        shrinkage: Shrinkage | None = None,
        reeig: float = 1e-5,
        features: bool = True,
        attention: Attention = "spd",
        embedding: bool = True,
        recipe: Recipe = "paper",
    ) -> None:
        super().__init__()
        check_one_of("attention", attention, ("spd", "euclidean", "none"))
        check_one_of("recipe", recipe, tuple(RECIPES))
        signal = Signal.infer(n_chans, n_outputs, n_times, sfreq, chs_info, input_window_seconds)
        rule = architecture_for(signal)
        if not features:
            rule = replace(rule, k=max(1, 3 * signal.n_chans // 4))
        sizes = _complete(rule, n_spatial, n_temporal, kernel, split, n_segments, k)
        shrinkage = RECIPES[recipe]["shrinkage"] if shrinkage is None else shrinkage
        aggregation = RECIPES[recipe]["aggregation"] if aggregation is None else aggregation
        of_attention: dict[str, Any] = {
            "metric": metric,
            "theta": theta,
            "learn_metric": learn_metric,
            "learn_theta": learn_theta,
            "score": score,
            "aggregation": aggregation,
            "formulation": formulation,
        }
        self.config: dict[str, Any] = {
            **asdict(signal),
            **asdict(sizes),
            **of_attention,
            "eps": eps,
            "shrinkage": shrinkage,
            "reeig": reeig,
            "features": features,
            "attention": attention,
            "embedding": embedding,
            "recipe": recipe,
        }
        plan = _Plan(signal, sizes, features)
        self.features = plan.features()
        self.covariances: nn.Module
        self.attention: nn.Module
        self.embedding: nn.Module
        if attention == "spd":
            self.covariances = SegmentCovariance(plan.windows, eps, shrinkage)
            self.attention = SPDSelfAttention(plan.n, sizes.k, **of_attention)
            self.embedding = Embedding(embedding, reeig)
        elif attention == "euclidean":
            self.covariances = Segments(plan.windows)
            self.attention = EuclideanSelfAttention(plan.n * (plan.times // plan.windows), plan.width)
            self.embedding = nn.Flatten()
        else:
            self.covariances, self.attention, self.embedding = nn.Identity(), NoAttention(), nn.Flatten()
        inputs = plan.branches * plan.n * plan.times if attention == "none" else sizes.n_segments * plan.width
        self.final_layer = nn.Linear(inputs, signal.n_outputs)

    @overload
    def forward(self, x: Tensor, *, details: Literal[False] = ...) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, *, details: Literal[True]) -> Details: ...
    def forward(self, x: Tensor, *, details: bool = False) -> Tensor | Details:
        """Logits of epochs (batch, n_chans, n_times) or (batch, 1, n_chans, n_times); ``details`` for all there was."""
        x = as_epochs(x, self.config["n_chans"], self.config["n_times"], self)
        x = self.features(x)  # SFEM: (batch, branches, n, times)
        covariances = self.covariances(x)  # SPDM: (batch, m, n, n)
        attended, weights = self.attention(covariances)  # SSAM: (batch, m, k, k) and (batch, m, m)
        logits = self._classify(attended)  # MEEM
        return Details(logits, covariances, weights, attended) if details else logits

    @full_precision
    def _classify(self, x: Tensor) -> Tensor:
        logits: Tensor = self.final_layer(self.embedding(x))
        return logits

    @classmethod
    def for_task(cls, name: str, **changes: Any) -> Self:
        """The model that the paper uses for "mi", "ssvep" or "ern", with other arguments where they are given.

        Examples
        --------
        >>> sum(p.numel() for p in GBWAtt.for_task("ssvep").parameters())
        72339
        """
        return cls(**preset(find_task(name), changes))

    def save_pretrained(self, folder: str | Path, **metadata: Any) -> None:
        """Write the model into a folder; see :func:`gbwatt.models.serialization.save_pretrained`."""
        serialization.save_pretrained(self, folder, **metadata)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Read a model that :meth:`save_pretrained` wrote.

        The network alone: if an estimator was saved that multiplies its epochs by a factor, a
        :class:`~gbwatt.errors.ScaleWarning` says so.
        """
        found = serialization.load_pretrained(folder)
        if not isinstance(found.model, cls):
            raise ModelFileError(f"{folder} has a {type(found.model).__name__}, not a {cls.__name__}.")
        _warn_of_scale(folder, found.extra)
        return found.model


def _warn_of_scale(folder: str | Path, extra: Mapping[str, Any]) -> None:
    """Warn of a network that was trained on epochs in another unit than those of its estimator."""
    scale, estimator = extra.get("multiply epochs by"), extra.get("estimator")
    if not isinstance(scale, int | float) or abs(scale - 1) <= 0.01:
        return
    name = (estimator.get("class") if isinstance(estimator, Mapping) else None) or "GBWAttClassifier"
    warnings.warn(
        f"{folder} has a network that was trained on epochs multiplied by {scale:.6g}, and the network alone does not "
        f"do that: multiply epochs by this factor before you call it, or use {name}.from_pretrained, which does.",
        ScaleWarning,
        stacklevel=3,
    )


def preset(task: Task, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments for a task, with changes."""
    sizes = asdict(task.architecture_for(changes.get("split"), changes.get("features", True)))
    signal = asdict(task.signal)
    if "chs_info" in changes:
        del signal["n_chans"]
    return {**signal, **sizes, **changes}


def _complete(
    rule: Architecture,
    n_spatial: int | None,
    n_temporal: int | None,
    kernel: int | None,
    split: Split | None,
    n_segments: int | None,
    k: int | None,
) -> Architecture:
    """The rule's sizes where none are given."""
    given: dict[str, Any] = {
        "n_spatial": n_spatial,
        "n_temporal": n_temporal,
        "kernel": kernel,
        "split": split,
        "n_segments": n_segments,
        "k": k,
    }
    if split is not None:
        check_one_of("split", split, ("time", "grouped", "shared"))
    for name, value in given.items():
        if value is not None and name != "split":
            check_at_least(name, value, 1)
    return replace(rule, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True)
class _Plan:
    """Sizes that follow from the architecture."""

    signal: Signal
    sizes: Architecture
    filtered: bool

    @property
    def branches(self) -> int:
        return 1 if self.sizes.split == "time" else self.sizes.n_segments

    @property
    def windows(self) -> int:
        return self.sizes.n_segments // self.branches

    @property
    def n(self) -> int:
        return self.sizes.n_temporal if self.filtered else self.signal.n_chans

    @property
    def times(self) -> int:
        return self.signal.n_times + (self.filtered and self.sizes.kernel % 2 == 0)

    @property
    def width(self) -> int:
        return self.sizes.k * (self.sizes.k + 1) // 2

    def features(self) -> nn.Module:
        sizes = self.sizes
        if self.filtered:
            shared = sizes.split == "shared"
            return SpatioTemporalFeatures(
                self.signal.n_chans, sizes.n_spatial, sizes.n_temporal, sizes.kernel, self.branches, shared
            )
        if self.branches > 1:
            raise ParameterError(
                f"features=False leaves the raw channels, which have no branches: split={sizes.split!r} must be 'time'."
            )
        return _RawChannels()


# ----------------------------------------------------------------------------------------------------------- registry

#: Learning rate, batch size, epochs and weight decay of MAtt's released programs.  The optimiser is not theirs: they
#: apply Adam, element by element, to the Euclidean gradient of the bilinear maps and orthonormalise the result by QR;
#: gbwatt has Riemannian Adam.
_MATT_TRAINING = {
    "mi": Training(5e-4, 128, 350, 1e-1),
    "ssvep": Training(5e-3, 64, 180, 1e-1),
    "ern": Training(1e-2, 64, 130, 1e-1),
}


@register("gbwatt", "self-attention under the generalised Bures-Wasserstein metric")
def _gbwatt(signal: Signal, task: Task | None, **options: Any) -> nn.Module:
    given = {**asdict(signal), **options}
    return GBWAtt(**(given if task is None else preset(task, given)))


@register("bwatt", "self-attention under the Bures-Wasserstein metric")
def _bwatt(signal: Signal, task: Task | None, **options: Any) -> nn.Module:
    return _gbwatt(signal, task, **{"metric": "bures-wasserstein", **options})


@register(
    "matt",
    "self-attention under the log-Euclidean metric (Pan et al. 2022; trained with Riemannian Adam, where the authors "
    "use Adam and QR)",
    training=_MATT_TRAINING,
)
def _matt(signal: Signal, task: Task | None, **options: Any) -> nn.Module:
    own = {"metric": "log-euclidean", "score": "inverse-log-squared", "reeig": 1e-4, "split": "time"}
    return _gbwatt(signal, task, **{**own, **options})
