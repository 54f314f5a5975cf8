r"""Riemannian metrics on symmetric positive definite matrices, all with the same verbs.

A metric is a :mod:`chart <gbwatt.geometry.charts>` and the :mod:`space <gbwatt.geometry.spaces>` that it is pulled
back from: the verbs are written once, in :class:`Metric`, and a new metric is a line.

=================================  ================  ==================  ==========
metric                             space             chart               scale
=================================  ================  ==================  ==========
:class:`Euclidean`                 Cone              X                   1
:class:`LogEuclidean`              Symmetric         log X               1
:class:`AffineInvariant`           Invariant         factor of X         1
:class:`BuresWasserstein`          Factors           factor of X         1
:class:`GeneralizedBuresWasserstein`  Factors        factor of ψ(X)      θ⁻²
=================================  ================  ==================  ==========
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from gbwatt._validation import above_zero, check_broadcastable, check_finite
from gbwatt.errors import MismatchError, ParameterError, ShapeError
from gbwatt.geometry._autograd import apply, differentiable_once, full_precision
from gbwatt.geometry._threads import as_batches, thread_independent
from gbwatt.geometry.charts import Chart, DeformedRoot, Identity, Logarithm, Root
from gbwatt.geometry.linalg import factor, in_range
from gbwatt.geometry.means import barycenter
from gbwatt.geometry.spaces import Cone, Factors, Interval, Invariant, Space, Symmetric, outside, require_coordinates
from gbwatt.geometry.symmetric import require_symmetric, symmetric_part, tangent_vectors


class _SmoothRoot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, square: Tensor, resolution: Tensor) -> Tensor:
        root = square.clamp_min(0).sqrt()
        ctx.save_for_backward(root, resolution)
        return root

    @staticmethod
    @differentiable_once("a distance")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        root, resolution = ctx.saved_tensors
        tiny = torch.finfo(root.dtype).tiny
        return grad * root / (2 * (root.square() + resolution.square()) + tiny), None


def smooth_root(square: Tensor, resolution: Tensor) -> Tensor:
    r"""Square root whose gradient is finite everywhere, 0 at 0; shape (...).

    The value is :math:`\sqrt{u}`.  The derivative is that of :math:`\sqrt u - δ \arctan(\sqrt u / δ)`, a smooth
    function that differs from the root by less than :math:`2 δ`, where δ is ``resolution``: the size of what
    rounding makes of a distance of zero.
    """
    return apply(_SmoothRoot, square, resolution)


class Metric(ABC):
    r"""A Riemannian metric: the pull-back of the geometry of ``space`` by ``chart``, times ``scale``.

    Arguments are batches (..., k, k) whose leading axes broadcast; ``base``, ``x`` and ``y`` are positive definite,
    ``u`` and ``v`` symmetric, up to rounding of the larger of them and ``base``.  Results are differentiable in all of
    them, once; but ``log``, ``exp`` and ``inner`` of metrics with a curved chart (log-Euclidean, generalised
    Bures-Wasserstein) not in the base point, nor in theta.

    Results that exceed the range of the dtype raise :class:`~gbwatt.errors.RangeError`.  Under ``torch.autocast`` the
    results are the same as without: nothing is computed in half precision.
    """

    @property
    @abstractmethod
    def space(self) -> Space:
        """The geometry that is pulled back."""

    @property
    @abstractmethod
    def chart(self) -> Chart:
        """The map into it."""

    @property
    def scale(self) -> Tensor | float:
        """Factor of the squared distance."""
        return 1.0

    @full_precision
    @thread_independent
    def sqdist(self, x: Tensor, y: Tensor) -> Tensor:
        """Squared geodesic distance, shape (...); exactly 0 where the matrices are equal."""
        return self._sqdist(x, y)[0]

    def _sqdist(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Squared distance, and the points that it is of."""
        require_symmetric(x=x, y=y)
        x, y = as_batches(x, y)
        a, b = self.chart(x, "x"), self.chart(y, "y")
        square = self.scale * self.space.sqdist(a, b)
        # without one equal entry no matrices can be equal; a graph cannot ask for it
        if torch.compiler.is_compiling() or bool((x[..., 0, 0] == y[..., 0, 0]).any()):
            square = square.masked_fill((x == y).all(-1).all(-1), 0)
        return in_range("the distance", square), a.detach(), b.detach()

    @full_precision
    @thread_independent
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """Geodesic distance, shape (...); its gradient at equal matrices is 0 (see :func:`smooth_root`)."""
        square, a, b = self._sqdist(x, y)
        if not square.requires_grad:
            return square.clamp_min(0).sqrt()
        return smooth_root(square, self.scale**0.5 * self.space.resolution(a, b))

    @full_precision
    @thread_independent
    def log(self, base: Tensor, x: Tensor) -> Tensor:
        """Tangent vector at ``base`` whose geodesic reaches ``x`` at time 1, shape (..., k, k)."""
        require_symmetric(base=base, x=x)
        base, x = as_batches(base, x)
        tangent = self.space.log(self.chart(base, "base"), self.chart(x, "x"))
        return in_range("log(base, x)", self.chart.pull(base, tangent))

    @full_precision
    @thread_independent
    def exp(self, base: Tensor, v: Tensor) -> Tensor:
        """Where the geodesic from ``base`` along ``v`` is at time 1, shape (..., k, k).

        Raises :class:`~gbwatt.errors.DomainError` if the geodesic ends before, and
        :class:`~gbwatt.errors.RangeError` if it exists but leaves the range of the dtype: affine-invariant and
        log-Euclidean steps grow, and shrink, exponentially with the length of ``v``.
        """
        base, v = as_batches(base, *tangent_vectors(base, v=v))
        a, w = self.chart(base, "base"), self.chart.push(base, v)
        limits = self.space.interval(a.detach(), w.detach())
        outside(torch.ones_like(limits[0]), limits, "exp(base, v)")
        return self._in_range("exp(base, v)", self.chart.inverse(self.space.exp(a, w)))

    def _in_range(self, what: str, x: Tensor) -> Tensor:
        """``x``, if it is finite, and no underflow made it singular where matrices have to be positive definite."""
        in_range(what, x)
        if not torch.compiler.is_compiling() and self.chart.definite:
            above_zero(what, x.detach())
        return x

    @full_precision
    @thread_independent
    def interval(self, base: Tensor, v: Tensor) -> Interval:
        """Open interval of t on which the geodesic ``exp(base, t v)`` exists, two arrays of shape (...)."""
        base, v = as_batches(base, *tangent_vectors(base, v=v))
        return self.space.interval(self.chart(base, "base"), self.chart.push(base, v))

    @full_precision
    @thread_independent
    def geodesic(self, x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
        """Point at time ``t`` on the geodesic from ``x`` (t = 0) to ``y`` (t = 1), shape (..., k, k).

        ``t`` is a number or an array (...).  Outside [0, 1] the geodesic may end: a
        :class:`~gbwatt.errors.DomainError` then tells the interval.
        """
        require_symmetric(x=x, y=y)
        check_finite(t=t)
        t = torch.as_tensor(t, dtype=x.dtype, device=x.device)
        check_broadcastable(x=x, y=y, t=t[..., None, None])
        x, y = as_batches(x, y)
        a, b = self.chart(x, "x"), self.chart(y, "y")
        times = t.detach()
        if bool(((times < 0) | (times > 1)).any()):
            outside(
                times,
                self.space.interval(a.detach(), self.space.log(a.detach(), b.detach())),
                "geodesic(x, y, t)",
            )
        return self._in_range("geodesic(x, y, t)", self.chart.inverse(self.space.geodesic(a, b, t[..., None, None])))

    @full_precision
    @thread_independent
    def inner(self, base: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Inner product of the tangent vectors ``u`` and ``v`` at ``base``, shape (...)."""
        base, u, v = as_batches(base, *tangent_vectors(base, u=u, v=v))
        push = self.chart.push
        product = self.scale * self.space.inner(self.chart(base, "base"), push(base, u), push(base, v))
        return in_range("inner(base, u, v)", product)

    @full_precision
    @thread_independent
    def coordinates(self, x: Tensor) -> Tensor:
        """Logarithm at the origin of the metric, as symmetric matrices (..., k, k) with the Frobenius inner product.

        The origin is what the chart maps to the identity, or to 0 if it is a logarithm: I for all metrics here, but
        M^(1/θ) for the generalised one.  Bures-Wasserstein coordinates are ``X^½ - I``; their norm is the distance
        from the origin.
        """
        require_symmetric(x=x)
        return in_range("coordinates(x)", self.scale**0.5 * self.space.coordinates(self.chart(x, "x")))

    @full_precision
    @thread_independent
    def point(self, c: Tensor) -> Tensor:
        """Matrices with these :meth:`coordinates`, shape (..., k, k).

        Where the geometry ends somewhere (Euclidean, Bures-Wasserstein), I + c |θ| has to be positive definite, else
        this raises :class:`~gbwatt.errors.DomainError`; it is so for sums of coordinates with weights that are not
        negative and sum to one.
        """
        c = symmetric_part("c", c, 1.0)
        if not torch.compiler.is_compiling():
            require_coordinates(self.space, (c / self.scale**0.5).detach())
        return self._in_range("point(c)", self._point(c))

    def _point(self, c: Tensor) -> Tensor:
        """:meth:`point` for what is known to be coordinates."""
        return in_range("point(c)", self.chart.inverse(self.space.point(c / self.scale**0.5)))

    def mean(self, points: Tensor, weights: Tensor | None = None) -> Tensor:
        """Weighted Fréchet mean: points (..., m, k, k) and weights (..., q, m) -> (..., q, k, k).

        :func:`~gbwatt.geometry.means` with its defaults, which see.
        """
        return barycenter(self, points, weights).value


@final
class PullBack(Metric):
    r"""The metric that makes ``chart`` an isometry, up to ``scale``, onto ``space``: any pair of your own.

    Examples
    --------
    The metric in which X ↦ X⁻¹ is flat, by a chart of five lines:

    >>> from gbwatt.geometry import powm
    >>> from gbwatt.geometry.charts import Chart
    >>> class Inverse(Chart):
    ...     def __call__(self, x, name="x"):
    ...         return powm(x, -1.0)
    ...
    ...     inverse = __call__
    ...
    ...     def push(self, x, v):
    ...         return -powm(x, -1.0) @ v @ powm(x, -1.0)
    ...
    ...     def pull(self, x, w):
    ...         return -x @ w @ x
    >>> harmonic = PullBack(Symmetric(), Inverse())
    >>> harmonic.mean(torch.stack([torch.eye(2), 3 * torch.eye(2)]))
    tensor([[1.5000, 0.0000],
            [0.0000, 1.5000]])
    """

    def __init__(self, space: Space, chart: Chart, scale: Tensor | float = 1.0) -> None:
        self._space, self._chart, self._scale = space, chart, scale

    def __repr__(self) -> str:
        return f"PullBack({self._space}, {self._chart}, scale={self._scale})"

    @property
    def space(self) -> Space:
        """The geometry that is pulled back."""
        return self._space

    @property
    def chart(self) -> Chart:
        """The map into it."""
        return self._chart

    @property
    def scale(self) -> Tensor | float:
        """Factor of the squared distance."""
        return self._scale


@final
@dataclass(frozen=True)
class Euclidean(Metric):
    """The Frobenius inner product.

    Examples
    --------
    >>> Euclidean().dist(torch.eye(2), 2 * torch.eye(2))
    tensor(1.4142)
    """

    space = Cone()
    chart = Identity()


@final
@dataclass(frozen=True)
class LogEuclidean(Metric):
    r"""Log-Euclidean metric (LEM), :math:`d(X, Y) = ‖\log X - \log Y‖_F`.

    References
    ----------
    .. [1] V. Arsigny, P. Fillard, X. Pennec, N. Ayache, "Geometric means in a novel vector space structure on
       symmetric positive-definite matrices", SIAM J. Matrix Anal. Appl. 29(1), 2007.

    Examples
    --------
    >>> LogEuclidean().mean(torch.stack([torch.eye(2), 4 * torch.eye(2)]))
    tensor([[2.0000, 0.0000],
            [0.0000, 2.0000]])
    """

    space = Symmetric()
    chart = Logarithm()


@final
@dataclass(frozen=True)
class AffineInvariant(Metric):
    r"""Affine-invariant metric (AIM), :math:`d(X, Y) = ‖\log(X^{-1/2} Y X^{-1/2})‖_F`.

    References
    ----------
    .. [1] X. Pennec, P. Fillard, N. Ayache, "A Riemannian framework for tensor computing", IJCV 66(1), 2006.
    .. [2] D. A. Bini, B. Iannazzo, "Computing the Karcher mean of symmetric positive definite matrices", Linear
       Algebra Appl. 438(4), 2013.

    Examples
    --------
    >>> AffineInvariant().dist(torch.eye(2), torch.eye(2))
    tensor(0.)
    """

    space = Invariant()
    chart = Root("definite")


@final
@dataclass(frozen=True)
class BuresWasserstein(Metric):
    r"""Bures-Wasserstein metric (BWM; Eqs. 3-9 of the paper).

    .. math:: d²(X, Y) = \mathrm{tr} X + \mathrm{tr} Y - 2\, \mathrm{tr} (X^{1/2} Y X^{1/2})^{1/2}
                       = \min_Q ‖A - B Q‖_F^2, \qquad X = A A^⊤, \; Y = B B^⊤,

    computed in the second form, in which nothing cancels.  Singular matrices are accepted.

    References
    ----------
    .. [1] R. Bhatia, T. Jain, Y. Lim, "On the Bures-Wasserstein distance between positive definite matrices",
       Expositiones Mathematicae 37(2), 2019.

    Examples
    --------
    >>> x, y = torch.eye(2), 4 * torch.eye(2)
    >>> BuresWasserstein().sqdist(x, y)
    tensor(2.)
    >>> BuresWasserstein().mean(torch.stack([x, y]), torch.tensor([0.5, 0.5]))
    tensor([[2.2500, 0.0000],
            [0.0000, 2.2500]])
    """

    space = Factors()
    chart = Root()


@final
@dataclass(frozen=True, eq=False)
class GeneralizedBuresWasserstein(Metric):
    r"""Power-deformed generalised Bures-Wasserstein metric, the θ-GBWM of the paper (Eq. 29).

    The pull-back of the Bures-Wasserstein metric by :math:`ψ(X) = M^{-1/2} X^θ M^{-1/2}`, times :math:`θ^{-2}`:
    :math:`d(X, Y) = d_{BW}(ψ(X), ψ(Y)) / |θ|`.  M = I and θ = 1 is the Bures-Wasserstein metric; θ → 0 approaches half
    the log-Euclidean distance.

    Parameters
    ----------
    M : Tensor, shape (k, k)
        Positive definite; may require gradients.
    theta : float or Tensor of shape ()
        Not zero; may require gradients.

    References
    ----------
    .. [1] A. Han, B. Mishra, P. Jawanpuria, J. Gao, "Learning with symmetric positive definite matrices via
       generalized Bures-Wasserstein geometry", GSI 2023.

    Examples
    --------
    >>> metric = GeneralizedBuresWasserstein(2 * torch.eye(2), theta=1.0)
    >>> metric.sqdist(torch.eye(2), 4 * torch.eye(2))
    tensor(1.)
    """

    M: Tensor
    theta: Tensor | float = 1.0
    root: Tensor | None = field(default=None, init=False)  # of M, by Cholesky, where it is kept: see rooted()
    space = Factors()

    def __post_init__(self) -> None:
        require_symmetric(M=self.M)
        if self.M.ndim != 2:
            raise ShapeError(f"'M' {tuple(self.M.shape)} must be a single matrix (k, k).")
        if isinstance(self.theta, Tensor) and not self.theta.is_floating_point():
            raise MismatchError(f"'theta' has dtype {self.theta.dtype}; a floating number is needed.")
        if isinstance(self.theta, Tensor) and self.theta.ndim != 0:
            raise ShapeError(f"'theta' {tuple(self.theta.shape)} must be a number or a tensor of shape ().")
        theta = float(self.theta.detach() if isinstance(self.theta, Tensor) else self.theta)
        if not math.isfinite(theta) or theta == 0:
            raise ParameterError(
                f"theta={theta} must be finite and not 0; "
                "for M = I the limit of small theta is half the distance of LogEuclidean()."
            )

    def __repr__(self) -> str:
        size = self.M.shape[-1]
        return f"GeneralizedBuresWasserstein(M {size}x{size}, theta={float(torch.as_tensor(self.theta).detach()):g})"

    @property
    def chart(self) -> Chart:
        """Factor of ψ(X)."""
        return DeformedRoot(self.M, self.theta, self.root)

    def rooted(self) -> GeneralizedBuresWasserstein:
        """The metric, with what all its functions need of M computed once.

        For functions that are differentiated together, as in one forward pass: what they share has one graph.
        """
        rooted = copy(self)
        object.__setattr__(rooted, "root", factor(self.M, "M", "definite"))
        return rooted

    @property
    def scale(self) -> Tensor | float:
        """θ⁻²."""
        return self.theta**-2
