"""Metrics as layers: who owns M and theta."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from gbwatt import checks
from gbwatt.geometry import (
    AffineInvariant,
    BuresWasserstein,
    Euclidean,
    GeneralizedBuresWasserstein,
    LogEuclidean,
    Metric,
)
from gbwatt.nn.manifolds import positive_definite

#: Metrics without parameters, by name; "gbw" has some.
FIXED: dict[str, Metric] = {
    "affine-invariant": AffineInvariant(),
    "bures-wasserstein": BuresWasserstein(),
    "euclidean": Euclidean(),
    "log-euclidean": LogEuclidean(),
}
METRICS = ("gbw", *FIXED)


class MetricLayer(nn.Module, ABC):
    """Gives a metric when it is called; subclasses may own its parameters."""

    @abstractmethod
    def forward(self) -> Metric:
        """The metric as it is now."""


class FixedMetric(MetricLayer):
    """A metric without parameters."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self.fixed = metric

    def extra_repr(self) -> str:
        """What repr shows."""
        return repr(self.fixed)

    def forward(self) -> Metric:
        """The metric."""
        return self.fixed


class LearnableMetric(MetricLayer):
    r"""θ-GBW for matrices (k, k), with M on the manifold of SPD matrices, from the identity on.

    Parameters
    ----------
    k : int
    theta : float
        Not 0.  If it is learnt, it keeps its sign: :math:`θ = ± e^t`.
    learn_metric, learn_theta : bool
    """

    undecayed = ("log_theta",)

    def __init__(self, k: int, theta: float = 1.5, learn_metric: bool = True, learn_theta: bool = False) -> None:
        super().__init__()
        checks.number("theta", theta)
        if theta == 0:
            raise checks.ParameterError(f"theta={theta} must be a finite number, not 0.")
        self.M = positive_definite(k)
        self.M.requires_grad_(learn_metric)
        self.sign = math.copysign(1.0, theta)
        self.fixed_theta = None if learn_theta else float(theta)
        if learn_theta:
            self.log_theta = nn.Parameter(torch.tensor(math.log(abs(theta))))

    def extra_repr(self) -> str:
        """What repr shows."""
        theta = float(torch.as_tensor(self.theta).detach())
        return f"k={self.M.shape[-1]}, theta={theta:g}, learn_metric={self.M.requires_grad}"

    @property
    def theta(self) -> Tensor | float:
        """The power, as it is now."""
        return self.sign * self.log_theta.exp() if self.fixed_theta is None else self.fixed_theta

    def forward(self) -> Metric:
        """The metric for M and theta as they are now."""
        return GeneralizedBuresWasserstein(self.M, self.theta).rooted()


def find_metric(
    metric: str | Metric | MetricLayer, k: int, theta: float, learn_metric: bool, learn_theta: bool
) -> MetricLayer:
    """A layer for a name, a metric or a layer."""
    if isinstance(metric, MetricLayer):
        return metric
    if isinstance(metric, Metric):
        return FixedMetric(metric)
    checks.one_of("metric", metric, METRICS)
    if metric == "gbw":
        return LearnableMetric(k, theta, learn_metric, learn_theta)
    return FixedMetric(FIXED[metric])
