"""Classifiers with an SPD attention head on the tokens of a backbone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import Tensor, nn

from gbwatt._validation import check_at_least, check_one_of
from gbwatt.clinical.backbones import BACKBONES, RATE, AnyBackbone, Backbone
from gbwatt.clinical.weights import NO_FILE, load_weights
from gbwatt.data.montage import BIPOLAR, REFERENTIAL
from gbwatt.errors import ParameterError, ShapeError
from gbwatt.models.presets import Task, Training
from gbwatt.models.registry import register
from gbwatt.models.signal import Signal, as_epochs
from gbwatt.nn.attention import SPDSelfAttention
from gbwatt.nn.covariance import TokenMoments
from gbwatt.nn.spd_layers import Embedding

GROUPS = 8  # SPD matrices per sequence


class Head(nn.Module, ABC):
    """Abstract map from tokens (batch, channels, segments, width) to features (batch, size)."""

    size: int

    @abstractmethod
    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the features of tokens."""


class NoHead(Head):
    """No features besides the pooled token: the published backbone."""

    size = 0

    def forward(self, tokens: Tensor) -> Tensor:
        """Return features of size 0."""
        return tokens.new_empty(len(tokens), 0)


class SPDHead(Head):
    """SPD self-attention between groups of token features: moments, SSAM, MEEM.

    It computes in float32 or float64, also if the backbone uses half precision.

    Parameters
    ----------
    channels : int
        Channels of the tokens; matrices have one more row, for the mean.
    n_groups : int
        Number m of matrices in the sequence.
    k : int, optional
        Matrix size after the bilinear maps; default: three quarters of the rows.
    eps, shrinkage : float
        Regularisation in :class:`~gbwatt.nn.covariance.TokenMoments`.
    reeig : float
        Threshold of eigenvalue rectification.
    **attention
        Arguments of :class:`~gbwatt.nn.attention.SPDSelfAttention`.
    """

    def __init__(
        self,
        channels: int,
        n_groups: int = GROUPS,
        k: int | None = None,
        eps: float = 1e-5,
        shrinkage: float = 0.0,
        reeig: float = 1e-5,
        **attention: Any,
    ) -> None:
        super().__init__()
        n = channels + 1
        k = max(1, 3 * n // 4) if k is None else k
        check_at_least("k", k, 1)
        self.moments = TokenMoments(n_groups, eps, shrinkage)
        self.attention = SPDSelfAttention(n, k, **attention)
        self.embedding = Embedding(eps=reeig)
        self.size = n_groups * k * (k + 1) // 2

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the features of tokens."""
        with torch.autocast(tokens.device.type, enabled=False):
            if tokens.dtype != torch.float64:
                tokens = tokens.float()
            matrices = self.moments(tokens)  # (batch, m, n, n)
            attended, _ = self.attention(matrices)  # SSAM: (batch, m, k, k)
            features: Tensor = self.embedding(attended)  # MEEM
            return features


#: Heads by name, with the settings of their attention.
HEADS: Mapping[str, Mapping[str, Any] | None] = MappingProxyType(
    {
        "base": None,
        "matt": {"metric": "log-euclidean", "score": "inverse-log-squared", "reeig": 1e-4},
        "gbwatt": {"metric": "gbw", "theta": 1.5},
    }
)


#: Options of heads.
HEAD_OPTIONS = (
    *("n_groups", "k", "eps", "shrinkage", "reeig"),
    *("metric", "theta", "learn_metric", "learn_theta", "score", "aggregation", "formulation"),
)


def make_head(name: str, channels: int, width: int, **options: Any) -> Head:
    """Build a head by name, for tokens with the given number of channels and width."""
    check_one_of("head", name, tuple(HEADS))
    for option in options:
        check_one_of("option of the head", option, HEAD_OPTIONS)
    settings = HEADS[name]
    if settings is None:
        if options:
            raise ParameterError(
                f"head='base' has no option {', '.join(sorted(options))}; leave it out, or use head='gbwatt'."
            )
        return NoHead()
    n_groups = options.get("n_groups", GROUPS)
    check_at_least("n_groups", n_groups, 1)
    if width % n_groups:
        raise ParameterError(f"n_groups={n_groups} does not divide the width of the tokens, {width}.")
    return SPDHead(channels, **{**settings, **options})


class FoundationClassifier(nn.Module):
    """A backbone and a head, (batch, n_chans, n_times) -> (batch, n_outputs).

    Parameters
    ----------
    backbone : nn.Module
        A :class:`~gbwatt.clinical.Backbone`, or any module from epochs (batch, n_chans, n_times) to tokens (batch,
        channels, segments, width).
    n_chans, n_outputs, n_times : int
        Number of channels, classes and samples.
    head : "gbwatt", "matt" or "base"
        Attention with the generalised Bures-Wasserstein metric, with the log-Euclidean metric, or none.
    frozen : bool
        If True, the backbone is not trained.
    **options
        Options of :class:`~gbwatt.clinical.classifier.SPDHead`.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> patches = nn.Sequential(nn.Unflatten(2, (5, 40)), nn.Linear(40, 16))  # (batch, 4, 200) -> (batch, 4, 5, 16)
    >>> model = FoundationClassifier(patches, n_chans=4, n_outputs=2, n_times=200)
    >>> model(torch.randn(3, 4, 200)).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        backbone: nn.Module,
        n_chans: int,
        n_outputs: int,
        n_times: int,
        *,
        head: str = "gbwatt",
        frozen: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.n_chans, self.n_times, self.frozen = n_chans, n_times, frozen
        self.backbone: Backbone = backbone if isinstance(backbone, Backbone) else AnyBackbone(backbone)
        channels, width = self._token_shape()
        self.head = make_head(head, channels, width, **options)
        self.final_layer = nn.Linear(width + self.head.size, n_outputs)
        if self.backbone.final_scale is not None:
            nn.init.trunc_normal_(self.final_layer.weight, std=self.backbone.final_scale)
            nn.init.zeros_(self.final_layer.bias)
        if frozen:  # parameters that were frozen before stay so in any case
            self.backbone.requires_grad_(False)

    @torch.no_grad()
    def _token_shape(self) -> tuple[int, int]:
        """Return the number of channels and the width of tokens, from a forward pass."""
        was_training = self.backbone.training
        dtype = next((p.dtype for p in self.backbone.parameters() if p.is_floating_point()), torch.get_default_dtype())
        tokens = self.backbone.eval()(torch.zeros(1, self.n_chans, self.n_times, dtype=dtype))
        self.backbone.train(was_training)
        if not isinstance(tokens, Tensor) or tokens.ndim != 4 or len(tokens) != 1:
            got = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
            raise ShapeError(
                f"the backbone returns {got} for an epoch (1, {self.n_chans}, {self.n_times}); tokens (batch, "
                "channels, segments, width) are needed."
            )
        return tokens.shape[1], tokens.shape[3]

    def train(self, mode: bool = True) -> Self:
        """Set the training mode; a frozen backbone stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits (batch, n_outputs) of epochs (batch, n_chans, n_times)."""
        x = as_epochs(x, self.n_chans, self.n_times)
        tokens = self.backbone(x)  # (batch, channels, segments, width)
        features = self.head(tokens)
        pooled = self.backbone.pool(tokens).to(features.dtype)
        logits: Tensor = self.final_layer(torch.cat([pooled, features], dim=-1))
        return logits

    def stages(self) -> list[list[nn.Parameter]]:
        """Return groups of all parameters from input to output, for layer-wise learning-rate decay.

        These are the stages of the backbone, then the head and all other parameters.
        """
        stages = self.backbone.stages()
        named = {id(p) for stage in stages for p in stage}
        return [*stages, [p for p in self.parameters() if id(p) not in named]]


# ------------------------------------------------------------------------------------------------------------ registry


class PretrainedClassifier(FoundationClassifier):
    """A classifier on BIOT or LaBraM with published weights.

    Parameters
    ----------
    name : "biot" or "labram"
        Backbone.
    signal : Signal
        Shape of the epochs.
    weights : path, "random" or "later"
        File with the weights of the backbone; "random" for random weights; "later" if they are set afterwards, as for a
        saved model.
    ch_names : sequence of str, optional
        Channels of the epochs; default: those of the corpora.
    head, frozen, **options
        As for :class:`FoundationClassifier`.

    Attributes
    ----------
    report : WeightsReport or None
        Which tensors of the weights file were used.
    config : dict
        Arguments to build the model again.
    """

    def __init__(
        self,
        name: str,
        signal: Signal,
        *,
        weights: str | Path | None = None,
        ch_names: Sequence[str] | None = None,
        head: str = "gbwatt",
        frozen: bool = False,
        **options: Any,
    ) -> None:
        if weights is None:
            raise ParameterError(
                f"{name} needs pretrained weights: give weights=, a file of its authors, or weights='random' to train "
                "from scratch."
            )
        names = _channel_names(name, signal, ch_names)
        if signal.sfreq is not None and signal.sfreq != RATE:
            raise ParameterError(f"sfreq={signal.sfreq:g}: {name} needs {RATE:g} Hz; resample the recordings.")
        backbone = BACKBONES[name](names, signal.n_times)
        report = None if str(weights) in NO_FILE else load_weights(backbone, weights)
        shape = (signal.n_chans, signal.n_outputs, signal.n_times)
        super().__init__(backbone, *shape, head=head, frozen=frozen, **options)
        self.name, self.report, self.weights = name, report, str(weights)
        arguments = {"ch_names": list(names), "head": head, "frozen": frozen, "weights": "later"}
        self.config: dict[str, Any] = {**asdict(signal), **arguments, **options}

    @property
    def initialisation(self) -> str:
        """Name of the initial weights of the backbone, as recorded in results: a file with its hash, or the kind."""
        if self.report is None:
            return f"{self.weights} weights"
        return f"{Path(self.report.source).name}, SHA-256 {self.report.sha256[:16]}"


def _channel_names(backbone: str, signal: Signal, ch_names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the given channel names, or by default those of a corpus with as many channels."""
    if ch_names is None:
        usual = {len(REFERENTIAL): REFERENTIAL, len(BIPOLAR): BIPOLAR}.get(signal.n_chans)
        if usual is None:
            raise ParameterError(
                f"{backbone} needs the names of {signal.n_chans} channels: give ch_names. Only {len(REFERENTIAL)} "
                f"electrodes ({', '.join(REFERENTIAL[:3])}, …) and {len(BIPOLAR)} pairs have default names."
            )
        return usual
    if len(ch_names) != signal.n_chans:
        raise ParameterError(f"ch_names has {len(ch_names)} names for n_chans={signal.n_chans} channels.")
    return tuple(ch_names)


#: Training settings of the authors' code for the corpora.
BIOT_TRAINING = {"own": Training(1e-3, 512, 100, 1e-5)}
LABRAM_TRAINING = {"own": Training(5e-4, 512, 50, 5e-2)}


def _make_builder(name: str) -> Callable[..., nn.Module]:
    """Return the function by which the registry builds a classifier on the backbone ``name``."""

    def build(signal: Signal, _task: Task | None, **options: Any) -> nn.Module:
        return PretrainedClassifier(name, signal, **options)

    return build


#: Options besides the signal.
OPTIONS = ("weights", "head", "frozen", *HEAD_OPTIONS)
for _name, _title, _training in (("biot", "BIOT", BIOT_TRAINING), ("labram", "LaBraM", LABRAM_TRAINING)):
    _summary = f"{_title} with a head of SPD attention, for clinical corpora"
    register(_name, _summary, training=_training, extra="foundation", options=OPTIONS)(_make_builder(_name))
