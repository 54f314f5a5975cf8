r"""How much a query and a key are alike: scores (..., m, m) from matrices (..., m, k, k), before the softmax."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from gbwatt import checks
from gbwatt.geometry import Metric


class Score(ABC):
    """A function of a metric, queries and keys."""

    @abstractmethod
    def __call__(self, metric: Metric, q: Tensor, k: Tensor) -> Tensor:
        """Scores (..., m, m) of queries and keys (..., m, k, k)."""


def _pairs(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return q[..., :, None, :, :], k[..., None, :, :, :]


@dataclass(frozen=True)
class InverseLog(Score):
    """``1 / (1 + log(1 + d))`` (Eq. 14 of the paper), or with the squared distance, as MAtt has it."""

    squared: bool = False

    def __call__(self, metric: Metric, q: Tensor, k: Tensor) -> Tensor:
        distance = metric.sqdist if self.squared else metric.dist
        return 1 / (1 + distance(*_pairs(q, k)).log1p())


@dataclass(frozen=True)
class Gaussian(Score):
    """``exp(-d² / 2 σ²)``."""

    sigma: float = 1.0

    def __call__(self, metric: Metric, q: Tensor, k: Tensor) -> Tensor:
        return (-metric.sqdist(*_pairs(q, k)) / (2 * self.sigma**2)).exp()


@dataclass(frozen=True)
class NegativeSquared(Score):
    """``-d²``."""

    def __call__(self, metric: Metric, q: Tensor, k: Tensor) -> Tensor:
        return -metric.sqdist(*_pairs(q, k))


@dataclass(frozen=True)
class Inner(Score):
    """Inner product of the logarithms at the origin of the metric: for Bures-Wasserstein ``tr (Q^½ - I)(K^½ - I)``."""

    def __call__(self, metric: Metric, q: Tensor, k: Tensor) -> Tensor:
        return metric.coordinates(q).flatten(-2) @ metric.coordinates(k).flatten(-2).mT


SCORES: dict[str, Score] = {
    "inverse-log": InverseLog(),
    "inverse-log-squared": InverseLog(squared=True),
    "gaussian": Gaussian(),
    "negative-squared": NegativeSquared(),
    "inner": Inner(),
}


def find_score(score: str | Score) -> Score:
    """A score by its name, or as it is."""
    if isinstance(score, Score):
        return score
    checks.one_of("score", score, tuple(SCORES))
    return SCORES[score]
