"""GBWAtt, BWAtt and their ablations as one configurable model."""

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
from gbwatt.geometry._context import full_precision
from gbwatt.models import serialization
from gbwatt.models.presets import Architecture, Split, Task, Training, architecture_for, find_task
from gbwatt.models.registry import register
from gbwatt.models.signal import Signal, as_epochs
from gbwatt.nn import (
    Aggregation,
    DomainSPDBatchNorm,
    Embedding,
    MetricLayer,
    Score,
    SegmentCovariance,
    SPDSelfAttention,
)
from gbwatt.nn.attention import EuclideanSelfAttention, Formulation, NoAttention, Segments
from gbwatt.nn.covariance import Shrinkage
from gbwatt.nn.features import SpatioTemporalFeatures, Templates

Recipe = Literal["paper", "release", "best"]
Attention = Literal["spd", "euclidean", "none"]

#: Arguments that a recipe sets unless the caller gives them.
RECIPES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "paper": MappingProxyType({"aggregation": "frechet", "shrinkage": 0.0}),
        "release": MappingProxyType(
            {"aggregation": "tangent", "shrinkage": 0.0, "theta": 1.0, "learn_metric": False, "normalize_trace": False}
        ),
        "best": MappingProxyType({"aggregation": "tangent", "shrinkage": 0.3}),
    }
)
#: Values of these arguments in recipes that do not set them.
_USUAL = MappingProxyType({"theta": 1.5, "learn_metric": True, "normalize_trace": True})


_ADAPTED = 256  # epochs that are filtered at a time by GBWAtt.adapt


class Details(NamedTuple):
    """Logits and intermediate results of a forward pass."""

    logits: Tensor  # (batch, n_outputs)
    covariances: Tensor  # (batch, m, n, n): the sequence before attention
    attention: Tensor  # (batch, m, m): weights, a row for each query
    attended: Tensor  # (batch, m, k, k): the sequence after attention, before the embedding
    residual: float = 0.0  # share t of the residual connection in the attention weights
    temperature: float = 1.0  # temperature τ of the attention weights

    def condition_numbers(self) -> tuple[Tensor, Tensor]:
        """Condition numbers of the matrices before and after attention.

        Returns
        -------
        before, after : Tensor, shape (batch, m)

        Raises
        ------
        ParameterError
            If the network has no attention of SPD matrices.
        """
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

    (batch, n_chans, n_times) -> logits (batch, n_outputs).  Spatial and temporal filters (SFEM) extract features.
    Their covariances in m windows or branches form a sequence of SPD matrices (SPDM), to which self-attention is
    applied (SSAM).  The logarithms of its results, as vectors (MEEM), are classified.

    Parameters
    ----------
    n_chans, n_outputs, n_times : int
        Numbers of channels, classes and samples.
    sfreq : float, optional
        Sampling rate in Hz.
    chs_info : sequence, optional
        Channel descriptions as in braindecode, from which ``n_chans`` is inferred.
    input_window_seconds : float, optional
        Duration of an epoch, from which ``n_times`` is inferred.
    n_spatial, n_temporal, kernel, split, n_segments, k : optional
        Sizes of the architecture (:class:`~gbwatt.models.presets.Architecture`); by default, they follow from the
        input (:func:`~gbwatt.models.presets.architecture_for`).
    metric, theta, learn_metric, learn_theta, score, aggregation, formulation, residual, temperature
        Options of the attention (:class:`~gbwatt.nn.SPDSelfAttention`).  ``metric="bures-wasserstein"`` is BWAtt.
    eps, shrinkage
        Regularisation of the covariances (:class:`~gbwatt.nn.SegmentCovariance`).
    n_templates : int
        Number of trained templates that are appended to the features, for event-related potentials
        (:class:`~gbwatt.nn.Templates`).
    embed_mean : bool
        Embed the means of windows together with their covariances, for event-related potentials
        (:class:`~gbwatt.nn.SegmentCovariance`).
    reeig : float
        Threshold of the eigenvalue rectification.
    features : bool
        If False, SFEM is left out, and the covariances are those of the raw channels.
    attention : "spd", "euclidean" or "none"
        "euclidean" replaces the SPD matrices by dot-product attention of the features; "none" classifies the features.
    embedding : bool
        If False, the rectification and the logarithm are left out.
    normalize_trace : bool
        Divide covariances by their trace (:class:`~gbwatt.nn.SegmentCovariance`).
    domain_norm : "affine-invariant", "bures-wasserstein" or None
        Normalise the covariances of each domain, such as a subject, by its own mean and dispersion
        (:class:`~gbwatt.nn.DomainSPDBatchNorm`).
    n_domains : int
        Number of domains of ``domain_norm``; :meth:`adapt` adds more.
    recipe : "paper", "release" or "best"
        Defaults of ``aggregation``, ``shrinkage``, ``theta``, ``learn_metric`` and ``normalize_trace``.  "paper": as
        the paper describes, with Fréchet means, no shrinkage, theta 1.5, a trained M and covariances of trace one.
        "release": as the code of the authors computes, with tangent means, theta 1, M fixed at the identity and
        covariances that are not normalised.  "best": tangent means and ``shrinkage=0.3``, selected on validation data.
    center_epochs : bool
        Subtract the mean over time of each channel from each epoch, so that offsets and slow drifts of the recording
        have no influence.

    Attributes
    ----------
    config : dict
        All arguments, including inferred ones; ``GBWAtt(**config)`` builds the same architecture.

    Raises
    ------
    ParameterError
        If an argument is out of range, or the size of the input cannot be inferred.

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
        theta: float | None = None,
        learn_metric: bool | None = None,
        learn_theta: bool = False,
        score: str | Score = "inverse-log",
        aggregation: str | Aggregation | None = None,
        formulation: Formulation = "isometric",
        residual: float | Literal["learnt"] = 0.0,
        temperature: float | Literal["learnt"] = 1.0,
        eps: float = 1e-5,
        shrinkage: Shrinkage | None = None,
        n_templates: int = 0,
        embed_mean: bool = False,
        normalize_trace: bool | None = None,
        reeig: float = 1e-5,
        features: bool = True,
        attention: Attention = "spd",
        embedding: bool = True,
        domain_norm: str | None = None,
        n_domains: int = 1,
        recipe: Recipe = "paper",
        center_epochs: bool = False,
    ) -> None:
        super().__init__()
        check_one_of("attention", attention, ("spd", "euclidean", "none"))
        check_one_of("recipe", recipe, tuple(RECIPES))
        check_at_least("n_templates", n_templates, 0)
        if attention != "spd" and (n_templates or embed_mean):
            raise ParameterError(f"attention={attention!r} has no covariances; n_templates and embed_mean need 'spd'.")
        _check_domains(domain_norm, n_domains, attention)
        signal = Signal.infer(n_chans, n_outputs, n_times, sfreq, chs_info, input_window_seconds)
        rule = architecture_for(signal)
        if not features:
            rule = replace(rule, k=max(1, 3 * signal.n_chans // 4))
        sizes = _complete(rule, n_spatial, n_temporal, kernel, split, n_segments, k)
        usual: dict[str, Any] = {**_USUAL, **RECIPES[recipe]}
        shrinkage = usual["shrinkage"] if shrinkage is None else shrinkage
        aggregation = usual["aggregation"] if aggregation is None else aggregation
        theta = usual["theta"] if theta is None else theta
        learn_metric = usual["learn_metric"] if learn_metric is None else learn_metric
        normalize_trace = usual["normalize_trace"] if normalize_trace is None else normalize_trace
        of_attention: dict[str, Any] = {
            "metric": metric,
            "theta": theta,
            "learn_metric": learn_metric,
            "learn_theta": learn_theta,
            "score": score,
            "aggregation": aggregation,
            "formulation": formulation,
            "residual": residual,
            "temperature": temperature,
        }
        self.config: dict[str, Any] = {
            **asdict(signal),
            **asdict(sizes),
            **of_attention,
            "eps": eps,
            "shrinkage": shrinkage,
            "n_templates": n_templates,
            "embed_mean": embed_mean,
            "normalize_trace": normalize_trace,
            "reeig": reeig,
            "features": features,
            "attention": attention,
            "embedding": embedding,
            "domain_norm": domain_norm,
            "n_domains": n_domains,
            "center_epochs": center_epochs,
            "recipe": recipe,
        }
        derived = _Sizes(signal, sizes, features)
        self.features = derived.features()
        self.templates = Templates(n_templates, derived.times) if n_templates else nn.Identity()
        self.covariances: nn.Module
        self.attention: nn.Module
        self.embedding: nn.Module
        size = derived.n + n_templates + embed_mean
        self.domain_norm = None if domain_norm is None else DomainSPDBatchNorm(size, n_domains, domain_norm)
        if attention == "spd":
            self.covariances = SegmentCovariance(derived.windows, eps, shrinkage, embed_mean, normalize_trace)
            self.attention = SPDSelfAttention(size, sizes.k, **of_attention)
            self.embedding = Embedding(embedding, reeig)
        elif attention == "euclidean":
            self.covariances = Segments(derived.windows)
            self.attention = EuclideanSelfAttention(derived.n * (derived.times // derived.windows), derived.width)
            self.embedding = nn.Flatten()
        else:
            self.covariances, self.attention, self.embedding = nn.Identity(), NoAttention(), nn.Flatten()
        inputs = (
            derived.branches * derived.n * derived.times if attention == "none" else sizes.n_segments * derived.width
        )
        self.final_layer = nn.Linear(inputs, signal.n_outputs)

    @overload
    def forward(self, x: Tensor, domain: Tensor | None = ..., *, details: Literal[False] = ...) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, domain: Tensor | None = ..., *, details: Literal[True]) -> Details: ...
    def forward(self, x: Tensor, domain: Tensor | None = None, *, details: bool = False) -> Tensor | Details:
        """Classify epochs.

        Parameters
        ----------
        x : Tensor, shape (batch, n_chans, n_times) or (batch, 1, n_chans, n_times)
        domain : Tensor of int64, shape (batch,), optional
            Number of each epoch's domain, for networks with ``domain_norm``; by default domain 0.
        details : bool
            Also return intermediate results.

        Returns
        -------
        Tensor, shape (batch, n_outputs), or Details
            Logits, or logits with intermediate results.
        """
        covariances = self._normalize(self._covariances_of(x), domain)  # SFEM, SPDM: (batch, m, n, n)
        attended, weights = self.attention(covariances)  # SSAM: (batch, m, k, k) and (batch, m, m)
        logits = self._classify(attended)  # MEEM
        if not details:
            return logits
        mixing = self.attention.mixing if isinstance(self.attention, SPDSelfAttention) else ()
        return Details(logits, covariances, weights, attended, *mixing)

    def embed(self, x: Tensor, domain: Tensor | None = None) -> Tensor:
        """Vectors that the final layer classifies, (batch, n_chans, n_times) -> (batch, n_features)."""
        embedded: Tensor = self.embedding(self.attention(self._normalize(self._covariances_of(x), domain))[0])
        return embedded

    @torch.no_grad()
    def adapt(self, x: Tensor, domain: Tensor | None = None) -> None:
        """Estimate the statistics of ``domain_norm`` for domains from epochs without labels; new domains are added.

        The network is put into evaluation mode.

        Parameters
        ----------
        x : Tensor, shape (n, n_chans, n_times)
        domain : Tensor of int64, shape (n,), optional
            Number of each epoch's domain; by default domain 0.

        Raises
        ------
        ParameterError
            If the network has no ``domain_norm``.
        """
        if self.domain_norm is None:
            raise ParameterError("domain_norm=None: the network has no statistics of domains; choose a domain_norm.")
        self.eval()
        self.domain_norm.adapt(torch.cat([self._covariances_of(part) for part in x.split(_ADAPTED)]), domain)
        self.config["n_domains"] = self.domain_norm.n_domains

    def _covariances_of(self, x: Tensor) -> Tensor:
        """SFEM and SPDM: the covariances (batch, m, n, n) of the features of epochs, before normalisation."""
        x = self.features(self.centered(as_epochs(x, self.config["n_chans"], self.config["n_times"], self)))
        covariances: Tensor = self.covariances(self.templates(x))
        return covariances

    def centered(self, x: Tensor) -> Tensor:
        """Epochs without the mean of each channel, if the network has ``center_epochs``; otherwise unchanged."""
        return x - x.mean(-1, keepdim=True) if self.config["center_epochs"] else x

    def _normalize(self, covariances: Tensor, domain: Tensor | None) -> Tensor:
        """Normalise covariances by the statistics of their domains, if the network has ``domain_norm``."""
        if self.domain_norm is None:
            return covariances
        normalized: Tensor = self.domain_norm(covariances, domain)
        return normalized

    @full_precision
    def _classify(self, x: Tensor) -> Tensor:
        """Logits of matrices (batch, m, k, k), never in half precision."""
        logits: Tensor = self.final_layer(self.embedding(x))
        return logits

    @classmethod
    def for_task(cls, name: str, **changes: Any) -> Self:
        """Build the model that the paper uses for a task.

        Parameters
        ----------
        name : "mi", "ssvep" or "ern"
            Motor imagery, steady-state visually evoked potentials, or error-related negativity.
        **changes
            Arguments of :class:`GBWAtt` that replace those of the paper.

        Returns
        -------
        GBWAtt

        Examples
        --------
        >>> sum(p.numel() for p in GBWAtt.for_task("ssvep").parameters())
        72339
        """
        return cls(**preset(find_task(name), changes))

    def save_pretrained(self, folder: str | Path, **metadata: Any) -> None:
        """Save the model to a folder.

        Parameters
        ----------
        folder : path
            Created if it does not exist.
        **metadata
            Further arguments of :func:`gbwatt.models.serialization.save_pretrained`, such as ``class_names``.
        """
        serialization.save_pretrained(self, folder, **metadata)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Load a model saved by :meth:`save_pretrained`, or the network of a saved estimator.

        Parameters
        ----------
        folder : path

        Returns
        -------
        GBWAtt
            In evaluation mode.

        Raises
        ------
        ModelFileError
            If the folder does not contain a valid model of this class.

        Warns
        -----
        ScaleWarning
            If the folder contains an estimator that multiplies epochs by a factor, which the network does not.
        """
        loaded = serialization.load_pretrained(folder)
        if not isinstance(loaded.model, cls):
            raise ModelFileError(f"{folder} contains a {type(loaded.model).__name__}, not a {cls.__name__}.")
        _warn_of_scale(folder, loaded.extra)
        return loaded.model


def _warn_of_scale(folder: str | Path, extra: Mapping[str, Any]) -> None:
    """Warn of a network that was trained on epochs in another unit than those of its estimator."""
    scale, estimator = extra.get("multiply epochs by"), extra.get("estimator")
    if not isinstance(scale, int | float) or abs(scale - 1) <= 0.01:
        return
    name = (estimator.get("class") if isinstance(estimator, Mapping) else None) or "GBWAttClassifier"
    warnings.warn(
        f"the network in {folder} was trained on epochs multiplied by {scale:.6g}, and does not apply this factor "
        f"itself: multiply epochs by it, or use {name}.from_pretrained, which does.",
        ScaleWarning,
        stacklevel=3,
    )


def preset(task: Task, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments for a task, with the given changes."""
    sizes = asdict(task.architecture_for(changes.get("split"), changes.get("features", True)))
    signal = asdict(task.signal)
    if "chs_info" in changes:
        del signal["n_chans"]
    return {**signal, **sizes, **changes}


def _check_domains(domain_norm: str | None, n_domains: int, attention: str) -> None:
    """Raise ParameterError for numbers of domains or kinds of attention that do not fit ``domain_norm``."""
    check_at_least("n_domains", n_domains, 1)
    if domain_norm is not None:
        check_one_of("domain_norm", domain_norm, DomainSPDBatchNorm.METRICS)
    if domain_norm is not None and attention != "spd":
        raise ParameterError(f"attention={attention!r} has no covariances; domain_norm needs 'spd'.")
    if domain_norm is None and n_domains != 1:
        raise ParameterError(f"n_domains={n_domains} needs domain_norm, which is None.")


def _complete(
    rule: Architecture,
    n_spatial: int | None,
    n_temporal: int | None,
    kernel: int | None,
    split: Split | None,
    n_segments: int | None,
    k: int | None,
) -> Architecture:
    """Replace sizes of the rule by those that are given."""
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
class _Sizes:
    """Sizes of layers, derived from the architecture."""

    signal: Signal
    sizes: Architecture
    filtered: bool

    @property
    def branches(self) -> int:
        """Number of parallel groups of filters; 1 if the sequence consists of windows in time."""
        return 1 if self.sizes.split == "time" else self.sizes.n_segments

    @property
    def windows(self) -> int:
        """Number of windows that the output of each branch is cut into."""
        return self.sizes.n_segments // self.branches

    @property
    def n(self) -> int:
        """Size of the covariances: the number of temporal filters, or of raw channels."""
        return self.sizes.n_temporal if self.filtered else self.signal.n_chans

    @property
    def times(self) -> int:
        """Number of samples after the filters; padding adds one for filters of even length."""
        return self.signal.n_times + (self.filtered and self.sizes.kernel % 2 == 0)

    @property
    def width(self) -> int:
        """Number of entries in the upper triangle of a k×k matrix, the features of one matrix."""
        return self.sizes.k * (self.sizes.k + 1) // 2

    def features(self) -> nn.Module:
        """Create the filters; without them, a module that passes raw channels on."""
        sizes = self.sizes
        if self.filtered:
            shared = sizes.split == "shared"
            return SpatioTemporalFeatures(
                self.signal.n_chans, sizes.n_spatial, sizes.n_temporal, sizes.kernel, self.branches, shared
            )
        if self.branches > 1:
            raise ParameterError(
                f"features=False uses the raw channels, which have no branches: split={sizes.split!r} must be 'time'."
            )
        return _RawChannels()


# ----------------------------------------------------------------------------------------------------------- registry

#: Learning rate, batch size, epochs and weight decay of the code released with MAtt.  The optimiser differs: that code
#: applies element-wise Adam to the Euclidean gradient of the bilinear maps and orthonormalises the result by QR; gbwatt
#: uses Riemannian Adam.
_MATT_TRAINING = {
    "mi": Training(5e-4, 128, 350, 1e-1),
    "ssvep": Training(5e-3, 64, 180, 1e-1),
    "ern": Training(1e-2, 64, 130, 1e-1),
}


@register("gbwatt", "self-attention under the generalised Bures-Wasserstein metric")
def _gbwatt(signal: Signal, task: Task | None, **options: Any) -> nn.Module:
    """Build GBWAtt for the registry, with the preset of a task if one is given."""
    given = {**asdict(signal), **options}
    return GBWAtt(**(given if task is None else preset(task, given)))


@register("bwatt", "self-attention under the Bures-Wasserstein metric")
def _bwatt(signal: Signal, task: Task | None, **options: Any) -> nn.Module:
    """Build GBWAtt with the Bures-Wasserstein metric for the registry."""
    return _gbwatt(signal, task, **{"metric": "bures-wasserstein", **options})


@register(
    "matt",
    "self-attention under the log-Euclidean metric (Pan et al. 2022; trained with Riemannian Adam, where the authors "
    "use Adam and QR)",
    training=_MATT_TRAINING,
)
def _matt(signal: Signal, task: Task | None, **options: Any) -> nn.Module:
    """Build GBWAtt with metric, score and filters of MAtt for the registry."""
    own = {"metric": "log-euclidean", "score": "inverse-log-squared", "reeig": 1e-4, "split": "time"}
    return _gbwatt(signal, task, **{**own, **options})
