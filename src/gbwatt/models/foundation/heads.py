"""Heads: from the tokens of a backbone to the vector that is classified."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from gbwatt import checks
from gbwatt.nn.attention import SPDSelfAttention
from gbwatt.nn.embedding import Embedding
from gbwatt.nn.tokens import TokenMoments

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
        Of :class:`~gbwatt.nn.tokens.TokenMoments`.
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
        checks.at_least("k", k, 1)
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
OPTIONS = (
    *("n_groups", "k", "eps", "shrinkage", "reeig"),
    *("metric", "theta", "learn_metric", "learn_theta", "score", "aggregation", "formulation"),
)


def make_head(name: str, channels: int, width: int, **options: Any) -> Head:
    """A head by its name, for tokens of so many channels and such a width."""
    checks.one_of("head", name, tuple(HEADS))
    for option in options:
        checks.one_of("option of the head", option, OPTIONS)
    settings = HEADS[name]
    if settings is None:
        if options:
            raise checks.ParameterError(
                f"head='base' has no {', '.join(sorted(options))}; leave it out, or take 'gbwatt'."
            )
        return NoHead()
    n_groups = options.get("n_groups", GROUPS)
    checks.at_least("n_groups", n_groups, 1)
    if width % n_groups:
        raise checks.ParameterError(f"n_groups={n_groups} does not divide the width of the tokens, {width}.")
    return SPDHead(channels, **{**settings, **options})
