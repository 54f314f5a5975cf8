"""What a query makes of the values: means (..., m, k, k) of matrices (..., m, k, k) for weights (..., m, m)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from gbwatt import checks
from gbwatt.geometry import Metric
from gbwatt.geometry.linalg import weighted_sums
from gbwatt.geometry.symmetry import sym


def _sum(weights: Tensor, x: Tensor) -> Tensor:
    """``Σ_j w_ij x_j``: (..., q, m) and (..., m, k, k) -> (..., q, k, k)."""
    return sym(weighted_sums(weights, x))


class Aggregation(ABC):
    """A weighted mean under a metric."""

    @abstractmethod
    def __call__(self, metric: Metric, v: Tensor, weights: Tensor) -> Tensor:
        """Means (..., m, k, k) of values (..., m, k, k) for weights (..., m, m)."""


@dataclass(frozen=True)
class Frechet(Aggregation):
    """The Fréchet mean (Eq. 22 of the paper)."""

    def __call__(self, metric: Metric, v: Tensor, weights: Tensor) -> Tensor:
        return metric.mean(v, weights)


@dataclass(frozen=True)
class Tangent(Aggregation):
    """The mean in the tangent space at the origin of the metric: for Bures-Wasserstein ``(Σ w V^½)²``."""

    def __call__(self, metric: Metric, v: Tensor, weights: Tensor) -> Tensor:
        return metric._point(_sum(weights, metric.coordinates(v)))  # weighted means of coordinates are coordinates


@dataclass(frozen=True)
class Arithmetic(Aggregation):
    """``Σ w V``, whatever the metric."""

    def __call__(self, metric: Metric, v: Tensor, weights: Tensor) -> Tensor:
        return _sum(weights, v)


AGGREGATIONS: dict[str, Aggregation] = {"frechet": Frechet(), "tangent": Tangent(), "euclidean": Arithmetic()}


def find_aggregation(aggregation: str | Aggregation) -> Aggregation:
    """An aggregation by its name, or as it is."""
    if isinstance(aggregation, Aggregation):
        return aggregation
    checks.one_of("aggregation", aggregation, tuple(AGGREGATIONS))
    return AGGREGATIONS[aggregation]
