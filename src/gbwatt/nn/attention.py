"""Self-attention of SPD matrices (SSAM, Sections 3.1 and 3.2 of the paper)."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from gbwatt import checks
from gbwatt.geometry import BuresWasserstein, Metric
from gbwatt.geometry._autograd import full_precision
from gbwatt.geometry.linalg import congruence, powm, sqrtm
from gbwatt.nn.aggregation import Aggregation, find_aggregation
from gbwatt.nn.bimap import BiMap
from gbwatt.nn.manifolds import positive_definite
from gbwatt.nn.metric import LearnableMetric, MetricLayer, find_metric
from gbwatt.nn.score import Score, find_score

Formulation = Literal["isometric", "paper"]


class Attended(NamedTuple):
    """What attention gives: a sequence of matrices, and the weights (batch, m, m), a row for each query."""

    value: Tensor
    weights: Tensor


class SPDSelfAttention(nn.Module):
    r"""Self-attention of a sequence of SPD matrices, (batch, m, n, n) -> (batch, m, k, k) (Algorithms 1 and 2).

    Queries, keys and values are bilinear maps of the sequence; the score of a query and a key falls with their
    geodesic distance; what a query sees is the Fréchet mean of the values, weighted by the softmax of its scores.

    Parameters
    ----------
    n, k : int
        Sizes of the matrices that come and go.
    metric : str, Metric or MetricLayer
        "gbw", "bures-wasserstein", "affine-invariant", "log-euclidean", "euclidean"; a metric of one's own; or a
        layer that owns one.
    theta : float
        Power of "gbw".
    learn_metric, learn_theta : bool
        Whether M and theta of "gbw" are trained.
    score : str or Score
        "inverse-log", "inverse-log-squared", "gaussian", "negative-squared" or "inner".
    aggregation : str or Aggregation
        "frechet", "tangent" or "euclidean".
    formulation : "isometric" or "paper"
        The deformation of "gbw" inside distance and mean, with M (k, k); or, to the letter of Algorithm 2, as a map
        of the input, with a second M (n, n), and once more of the output.
    """

    def __init__(
        self,
        n: int,
        k: int,
        *,
        metric: str | Metric | MetricLayer = "gbw",
        theta: float = 1.5,
        learn_metric: bool = True,
        learn_theta: bool = False,
        score: str | Score = "inverse-log",
        aggregation: str | Aggregation = "frechet",
        formulation: Formulation = "isometric",
    ) -> None:
        super().__init__()
        checks.one_of("formulation", formulation, ("isometric", "paper"))
        self.query, self.key, self.value = BiMap(n, k), BiMap(n, k), BiMap(n, k)
        self.metric: MetricLayer = find_metric(metric, k, theta, learn_metric, learn_theta)
        self.score, self.aggregation = find_score(score), find_aggregation(aggregation)
        self.formulation = formulation
        if formulation == "paper":
            if not isinstance(self.metric, LearnableMetric):
                raise checks.ParameterError(
                    f"formulation='paper' deforms by M and theta, which metric={metric!r} does not have; take 'gbw'."
                )
            self.lift = positive_definite(n)
            self.lift.requires_grad_(learn_metric)

    def extra_repr(self) -> str:
        """What repr shows."""
        return f"score={self.score}, aggregation={self.aggregation}, formulation={self.formulation!r}"

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @full_precision
    def forward(self, x: Tensor) -> Attended:
        """Attend to sequences (batch, m, n, n)."""
        checks.same_kind(weight=self.query.weight, x=x)
        if x.ndim < 3 or x.shape[-3] == 0:
            raise checks.ShapeError(
                f"'x' {tuple(x.shape)} does not hold sequences of matrices; (batch, m, n, n) with m > 0 is required."
            )
        metric = self.metric()  # M and theta as they are now
        x = self._deform(x)
        q, k, v = self.query(x), self.key(x), self.value(x)
        weights = self.score(metric, q, k).softmax(dim=-1)
        return Attended(self._aggregate(metric, v, weights), weights)

    def _deform(self, x: Tensor) -> Tensor:
        """The first step of Algorithm 2; nothing in the isometric formulation."""
        return x if self.formulation == "isometric" else self._power(self.lift, x)

    def _aggregate(self, metric: Metric, v: Tensor, weights: Tensor) -> Tensor:
        """The last step: the mean under the metric, or the undeformed mean, deformed."""
        if self.formulation == "isometric":
            return self.aggregation(metric, v, weights)
        assert isinstance(self.metric, LearnableMetric)
        return self._power(self.metric.M, self.aggregation(BuresWasserstein(), v, weights))

    def _power(self, m: Tensor, x: Tensor) -> Tensor:
        """``(M^½ X M^½)^θ``."""
        assert isinstance(self.metric, LearnableMetric)
        return powm(congruence(sqrtm(m), x), self.metric.theta)
