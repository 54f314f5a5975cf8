"""Classifiers on foundation models: heads of SPD attention on the tokens of a backbone."""

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

GROUPS = 8  # matrices in a sequence


class Head(nn.Module, ABC):
    """From tokens (batch, channels, segments, width) to features (batch, size) that go with the pooled token."""

    size: int

    @abstractmethod
    def forward(self, tokens: Tensor) -> Tensor:
        """Features of tokens."""


class NoHead(Head):
    """Nothing but the pooled token: the backbone as it was published."""

    size = 0

    def forward(self, tokens: Tensor) -> Tensor:
        """No features."""
        return tokens.new_empty(len(tokens), 0)


class SPDHead(Head):
    """Attention of SPD matrices to groups of features: moments of tokens, SSAM, MEEM.

    It computes in float32 at least, whatever the backbone does.

    Parameters
    ----------
    channels : int
        Channels of the tokens; matrices have one row more, for the mean.
    n_groups : int
        Matrices m in the sequence.
    k : int, optional
        Size after the bilinear maps; by default three quarters of the rows.
    eps, shrinkage : float
        Of :class:`~gbwatt.nn.covariance.TokenMoments`.
    reeig : float
        Threshold of the rectification.
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
        """Features of tokens."""
        with torch.autocast(tokens.device.type, enabled=False):
            if tokens.dtype != torch.float64:
                tokens = tokens.float()
            matrices = self.moments(tokens)  # (batch, m, n, n)
            attended, _ = self.attention(matrices)  # SSAM: (batch, m, k, k)
            features: Tensor = self.embedding(attended)  # MEEM
            return features


#: Heads by name, and what attention is in each: the metric, the score, the mean, and the rectification.
HEADS: Mapping[str, Mapping[str, Any] | None] = MappingProxyType(
    {
        "base": None,
        "matt": {"metric": "log-euclidean", "score": "inverse-log-squared", "reeig": 1e-4},
        "gbwatt": {"metric": "gbw", "theta": 1.5},
    }
)


#: What a head can be given.
HEAD_OPTIONS = (
    *("n_groups", "k", "eps", "shrinkage", "reeig"),
    *("metric", "theta", "learn_metric", "learn_theta", "score", "aggregation", "formulation"),
)


def make_head(name: str, channels: int, width: int, **options: Any) -> Head:
    """A head by its name, for tokens of so many channels and such a width."""
    check_one_of("head", name, tuple(HEADS))
    for option in options:
        check_one_of("option of the head", option, HEAD_OPTIONS)
    settings = HEADS[name]
    if settings is None:
        if options:
            raise ParameterError(f"head='base' has no {', '.join(sorted(options))}; leave it out, or take 'gbwatt'.")
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
        A :class:`~gbwatt.clinical.Backbone`, or any module that turns epochs (batch, n_chans, n_times) into
        tokens (batch, channels, segments, width).
    n_chans, n_outputs, n_times : int
        The epochs, and how many classes there are.
    head : "gbwatt", "matt" or "base"
        Attention under the generalised Bures-Wasserstein metric, under the log-Euclidean one, or none.
    frozen : bool
        Whether the backbone is left as it is.
    **options
        Of :class:`~gbwatt.clinical.classifier.SPDHead`.

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
        channels, width = self._probe()
        self.head = make_head(head, channels, width, **options)
        self.final_layer = nn.Linear(width + self.head.size, n_outputs)
        if self.backbone.final_scale is not None:
            nn.init.trunc_normal_(self.final_layer.weight, std=self.backbone.final_scale)
            nn.init.zeros_(self.final_layer.bias)
        if frozen:  # what was frozen before stays so
            self.backbone.requires_grad_(False)

    @torch.no_grad()
    def _probe(self) -> tuple[int, int]:
        """Channels and width of the tokens, by trying."""
        was = self.backbone.training
        some = next((p.dtype for p in self.backbone.parameters() if p.is_floating_point()), torch.get_default_dtype())
        tokens = self.backbone.eval()(torch.zeros(1, self.n_chans, self.n_times, dtype=some))
        self.backbone.train(was)
        if not isinstance(tokens, Tensor) or tokens.ndim != 4 or len(tokens) != 1:
            got = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
            raise ShapeError(
                f"the backbone gives {got} for an epoch (1, {self.n_chans}, {self.n_times}); tokens (batch, channels, "
                "segments, width) are needed."
            )
        return tokens.shape[1], tokens.shape[3]

    def train(self, mode: bool = True) -> Self:
        """Set the mode; a frozen backbone stays in evaluation."""
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Logits of epochs (batch, n_chans, n_times)."""
        x = as_epochs(x, self.n_chans, self.n_times)
        tokens = self.backbone(x)  # (batch, channels, segments, width)
        features = self.head(tokens)
        pooled = self.backbone.pool(tokens).to(features.dtype)
        logits: Tensor = self.final_layer(torch.cat([pooled, features], dim=-1))
        return logits

    def stages(self) -> list[list[nn.Parameter]]:
        """All parameters, from input to output: those of the backbone, and at last those of the head and all others."""
        stages = self.backbone.stages()
        named = {id(p) for stage in stages for p in stage}
        return [*stages, [p for p in self.parameters() if id(p) not in named]]


# ------------------------------------------------------------------------------------------------------------ registry


class PretrainedClassifier(FoundationClassifier):
    """A classifier on a backbone that has a name; ``config`` says how it was built.

    Parameters
    ----------
    name : "biot" or "labram"
    signal : Signal
    weights : path, "random" or "later"
        File with the weights of the backbone; random ones, if that is what is wanted; or those that are set afterwards,
        as in a model that was saved.
    ch_names : sequence of str, optional
        Channels of the epochs; needed if they are not those of the corpora.
    head, frozen, **options
        As for :class:`FoundationClassifier`.

    Attributes
    ----------
    report : WeightsReport or None
        What was read.
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
                f"{name} needs the weights of its pretraining: give weights=, a file of its authors; weights='random' "
                "if it shall learn from nothing."
            )
        names = _names(name, signal, ch_names)
        if signal.sfreq is not None and signal.sfreq != RATE:
            raise ParameterError(f"sfreq={signal.sfreq:g}: {name} was made for {RATE:g} Hz; resample first.")
        backbone = BACKBONES[name](names, signal.n_times)
        report = None if str(weights) in NO_FILE else load_weights(backbone, weights)
        shape = (signal.n_chans, signal.n_outputs, signal.n_times)
        super().__init__(backbone, *shape, head=head, frozen=frozen, **options)
        self.name, self.report, self.weights = name, report, str(weights)
        given = {"ch_names": list(names), "head": head, "frozen": frozen, "weights": "later"}
        self.config: dict[str, Any] = {**asdict(signal), **given, **options}

    @property
    def initialisation(self) -> str:
        """Where the backbone began, in words for results."""
        if self.report is None:
            return f"{self.weights} weights"
        return f"{Path(self.report.source).name}, SHA-256 {self.report.sha256[:16]}"


def _names(backbone: str, signal: Signal, ch_names: Sequence[str] | None) -> tuple[str, ...]:
    """The channels as given, or those of the corpora, if there are as many."""
    if ch_names is None:
        usual = {len(REFERENTIAL): REFERENTIAL, len(BIPOLAR): BIPOLAR}.get(signal.n_chans)
        if usual is None:
            raise ParameterError(
                f"{backbone} has to know its channels: give ch_names, {signal.n_chans} names; without them there are "
                f"{len(REFERENTIAL)} electrodes, {', '.join(REFERENTIAL[:3])}, …, or {len(BIPOLAR)} pairs."
            )
        return usual
    if len(ch_names) != signal.n_chans:
        raise ParameterError(f"ch_names has {len(ch_names)} names for n_chans={signal.n_chans} channels.")
    return tuple(ch_names)


#: As the programs of their authors train them on the corpora.
BIOT_TRAINING = {"own": Training(1e-3, 512, 100, 1e-5)}
LABRAM_TRAINING = {"own": Training(5e-4, 512, 50, 5e-2)}


def _registered(name: str) -> Callable[..., nn.Module]:
    def build(signal: Signal, _task: Task | None, **options: Any) -> nn.Module:
        return PretrainedClassifier(name, signal, **options)

    return build


#: What can be given besides the signal.
OPTIONS = ("weights", "head", "frozen", *HEAD_OPTIONS)
for _name, _title, _training in (("biot", "BIOT", BIOT_TRAINING), ("labram", "LaBraM", LABRAM_TRAINING)):
    _summary = f"{_title} with a head of SPD attention, for clinical corpora"
    register(_name, _summary, training=_training, extra="foundation", options=OPTIONS)(_registered(_name))
