r"""Riemannian metrics on symmetric positive definite matrices, with a common interface.

A metric consists of a :mod:`chart <gbwatt.geometry.charts>` and the :mod:`space <gbwatt.geometry.spaces>` from which it
is pulled back.  :class:`Metric` implements all methods; a new metric only chooses a chart and a space.

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
from gbwatt.geometry._context import apply, as_batches, differentiable_once, full_precision, thread_independent
from gbwatt.geometry.charts import Chart, DeformedRoot, Identity, Logarithm, Root
from gbwatt.geometry.linalg import factor, in_range, weighted_sums
from gbwatt.geometry.means import barycenter
from gbwatt.geometry.spaces import Cone, Factors, Interval, Invariant, Space, Symmetric, outside, require_coordinates
from gbwatt.geometry.symmetric import require_symmetric, symmetric_part, tangent_vectors


class _SmoothRoot(torch.autograd.Function):
    """Autograd function of :func:`smooth_root`."""

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
    r"""Square root with a gradient that is finite everywhere and 0 at 0, shape (...).

    The value is :math:`\sqrt{u}`.  The derivative is that of :math:`\sqrt u - δ \arctan(\sqrt u / δ)`, a smooth
    function that differs from the root by less than :math:`2 δ`, where δ is ``resolution``: the distance of equal
    matrices due to rounding.
    """
    return apply(_SmoothRoot, square, resolution)


class Metric(ABC):
    r"""A Riemannian metric: the pull-back of the geometry of ``space`` by ``chart``, times ``scale``.

    Arguments are batches (..., k, k) whose leading axes broadcast.  ``base``, ``x`` and ``y`` are positive definite.
    ``u`` and ``v`` are symmetric, up to rounding relative to the larger of their own size and that of ``base``.
    Results are differentiable once in all arguments.  There is one exception: ``log``, ``exp`` and ``inner`` of metrics
    with a curved chart (log-Euclidean, generalised Bures-Wasserstein) are not differentiable in the base point, nor in
    theta.

    All methods raise :class:`~gbwatt.errors.NotSPDError`, :class:`~gbwatt.errors.NotSymmetricError` or
    :class:`~gbwatt.errors.NotFiniteError` for matrices that are not positive definite, symmetric or finite,
    :class:`~gbwatt.errors.ShapeError` and :class:`~gbwatt.errors.MismatchError` for shapes, dtypes or devices that do
    not match, and :class:`~gbwatt.errors.RangeError` if a result exceeds the range of the dtype.

    ``torch.autocast`` does not change the results: nothing is computed in half precision.
    """

    @property
    @abstractmethod
    def space(self) -> Space:
        """The geometry that is pulled back."""

    @property
    @abstractmethod
    def chart(self) -> Chart:
        """The map from SPD matrices into the space."""

    @property
    def scale(self) -> Tensor | float:
        """Factor of the squared distance."""
        return 1.0

    def _check_points(self, **points: Tensor) -> None:
        """Raise an error for points that are no symmetric matrices; the chart checks the eigenvalues."""
        require_symmetric(**points)

    def _image(self, x: Tensor, name: str) -> Tensor:
        """Map a point into the space."""
        return self.chart(x, name)

    @full_precision
    @thread_independent
    def sqdist(self, x: Tensor, y: Tensor) -> Tensor:
        """Squared geodesic distance, exactly 0 for equal matrices.

        Parameters
        ----------
        x, y : Tensor, shape (..., k, k)
            Positive definite matrices.

        Returns
        -------
        Tensor, shape (...)
        """
        return self._sqdist_and_images(x, y)[0]

    def _sqdist_and_images(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Squared distance, and the images of ``x`` and ``y`` in the space."""
        self._check_points(x=x, y=y)
        x, y = as_batches(x, y)
        a, b = self._image(x, "x"), self._image(y, "y")
        square = self.scale * self.space.sqdist(a, b)
        # no matrices are equal unless one entry is; a traced graph cannot branch on it
        if torch.compiler.is_compiling() or bool((x[..., 0, 0] == y[..., 0, 0]).any()):
            square = square.masked_fill((x == y).all(-1).all(-1), 0)
        return in_range("the distance", square), a.detach(), b.detach()

    @full_precision
    @thread_independent
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """Geodesic distance; its gradient at equal matrices is 0 (see :func:`smooth_root`).

        Parameters
        ----------
        x, y : Tensor, shape (..., k, k)
            Positive definite matrices.

        Returns
        -------
        Tensor, shape (...)
        """
        square, a, b = self._sqdist_and_images(x, y)
        if not square.requires_grad:
            return square.clamp_min(0).sqrt()
        return smooth_root(square, self.scale**0.5 * self.space.resolution(a, b))

    @full_precision
    @thread_independent
    def log(self, base: Tensor, x: Tensor) -> Tensor:
        """Riemannian logarithm: the tangent vector at ``base`` whose geodesic reaches ``x`` at time 1.

        Parameters
        ----------
        base, x : Tensor, shape (..., k, k)
            Positive definite matrices.

        Returns
        -------
        Tensor, shape (..., k, k)
            Symmetric matrices.
        """
        require_symmetric(base=base, x=x)
        base, x = as_batches(base, x)
        tangent = self.space.log(self.chart(base, "base"), self.chart(x, "x"))
        return in_range("log(base, x)", self.chart.pull(base, tangent))

    @full_precision
    @thread_independent
    def exp(self, base: Tensor, v: Tensor) -> Tensor:
        """Riemannian exponential: the point at time 1 on the geodesic from ``base`` along ``v``.

        Parameters
        ----------
        base : Tensor, shape (..., k, k)
            Positive definite matrices.
        v : Tensor, shape (..., k, k)
            Tangent vectors: symmetric matrices.

        Returns
        -------
        Tensor, shape (..., k, k)
            Positive definite matrices.

        Raises
        ------
        DomainError
            If the geodesic ends before time 1.
        RangeError
            If the point leaves the range of the dtype: affine-invariant and log-Euclidean steps grow and shrink
            exponentially with the length of ``v``.
        """
        base, v = as_batches(base, *tangent_vectors(base, v=v))
        a, w = self.chart(base, "base"), self.chart.push(base, v)
        limits = self.space.interval(a.detach(), w.detach())
        outside(torch.ones_like(limits[0]), limits, "exp(base, v)")
        return self._in_range("exp(base, v)", self.chart.inverse(self.space.exp(a, w)))

    def _in_range(self, what: str, x: Tensor) -> Tensor:
        """Return ``x``; raise RangeError if it is not finite, or singular where the chart needs definite matrices."""
        in_range(what, x)
        if not torch.compiler.is_compiling() and self.chart.definite:
            above_zero(what, x.detach())
        return x

    @full_precision
    @thread_independent
    def interval(self, base: Tensor, v: Tensor) -> Interval:
        """Open interval of t on which the geodesic ``exp(base, t v)`` exists.

        Parameters
        ----------
        base : Tensor, shape (..., k, k)
            Positive definite matrices.
        v : Tensor, shape (..., k, k)
            Tangent vectors: symmetric matrices.

        Returns
        -------
        low, high : Tensor, shape (...)
            Limits of the interval, infinite where the geodesic does not end.
        """
        base, v = as_batches(base, *tangent_vectors(base, v=v))
        return self.space.interval(self.chart(base, "base"), self.chart.push(base, v))

    @full_precision
    @thread_independent
    def geodesic(self, x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
        """Point at time ``t`` on the geodesic from ``x`` (t = 0) to ``y`` (t = 1).

        Parameters
        ----------
        x, y : Tensor, shape (..., k, k)
            Positive definite matrices.
        t : float or Tensor, shape (...)
            Time; outside [0, 1] the geodesic is extrapolated.

        Returns
        -------
        Tensor, shape (..., k, k)
            Positive definite matrices.

        Raises
        ------
        DomainError
            If the geodesic does not exist at time ``t``; the message contains the interval on which it exists.
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
        """Inner product of the tangent vectors ``u`` and ``v`` at ``base``.

        Parameters
        ----------
        base : Tensor, shape (..., k, k)
            Positive definite matrices.
        u, v : Tensor, shape (..., k, k)
            Tangent vectors: symmetric matrices.

        Returns
        -------
        Tensor, shape (...)
        """
        base, u, v = as_batches(base, *tangent_vectors(base, u=u, v=v))
        push = self.chart.push
        product = self.scale * self.space.inner(self.chart(base, "base"), push(base, u), push(base, v))
        return in_range("inner(base, u, v)", product)

    @full_precision
    @thread_independent
    def coordinates(self, x: Tensor) -> Tensor:
        """Logarithm at the origin of the metric, in coordinates with the Frobenius inner product.

        The origin is the matrix that the chart maps to the identity, or to 0 if the chart is a logarithm: M^(1/θ) for
        the generalised Bures-Wasserstein metric, I for the other metrics of this module.  The norm of the coordinates
        is the distance from the origin.  Bures-Wasserstein coordinates, for example, are ``X^½ - I``.

        Parameters
        ----------
        x : Tensor, shape (..., k, k)
            Positive definite matrices.

        Returns
        -------
        Tensor, shape (..., k, k)
            Symmetric matrices.
        """
        self._check_points(x=x)
        return in_range("coordinates(x)", self.scale**0.5 * self.space.coordinates(self._image(x, "x")))

    @full_precision
    @thread_independent
    def point(self, c: Tensor) -> Tensor:
        """Inverse of :meth:`coordinates`.

        Parameters
        ----------
        c : Tensor, shape (..., k, k)
            Symmetric matrices.

        Returns
        -------
        Tensor, shape (..., k, k)
            Positive definite matrices.

        Raises
        ------
        DomainError
            If I + c |θ| is not positive definite, for metrics that are not geodesically complete (Euclidean,
            Bures-Wasserstein).  Convex combinations of coordinates are always valid.
        """
        c = symmetric_part("c", c, 1.0)
        if not torch.compiler.is_compiling():
            require_coordinates(self.space, (c / self.scale**0.5).detach())
        return self._in_range("point(c)", self.chart.inverse(self.space.point(c / self.scale**0.5)))

    @full_precision
    @thread_independent
    def tangent_mean(self, points: Tensor, weights: Tensor) -> Tensor:
        """Mean in the tangent space at the origin: the :meth:`point` of the weighted sum of :meth:`coordinates`.

        Parameters
        ----------
        points : Tensor, shape (..., m, k, k)
            Positive definite matrices to average, shared by all queries.
        weights : Tensor, shape (..., q, m)
            Non-negative weights that sum to one over the last axis.

        Returns
        -------
        Tensor, shape (..., q, k, k)
            Positive definite matrices.
        """
        self._check_points(points=points)
        coordinates = self.space.coordinates(self._image(points, "points"))
        mean = weighted_sums(weights, coordinates)  # a convex combination, for which a point exists
        return in_range("the tangent mean", self.chart.inverse(self.space.point(mean)))

    def mean(self, points: Tensor, weights: Tensor | None = None) -> Tensor:
        """Weighted Fréchet mean, the ``value`` of :func:`~gbwatt.geometry.barycenter` with its default options.

        Parameters
        ----------
        points : Tensor, shape (..., m, k, k)
            Positive definite matrices to average, shared by all queries.
        weights : Tensor, shape (..., q, m) or (m,), optional
            Non-negative weights that sum to one over the last axis.  For a single row (m,), or None for equal
            weights, the result has no query axis.

        Returns
        -------
        Tensor, shape (..., q, k, k) or (..., k, k)
            Positive definite matrices.

        Warns
        -----
        ConvergenceWarning
            If the iteration does not converge.
        """
        return barycenter(self, points, weights).value


@final
class OfImages(Metric):
    """A metric for points that are given by their images in its space; :meth:`point` still returns matrices.

    It has distances, coordinates and tangent means, but neither tangent vectors nor Fréchet means.
    """

    def __init__(self, metric: Metric) -> None:
        self.metric = metric

    @property
    def space(self) -> Space:
        """That of the metric."""
        return self.metric.space

    @property
    def chart(self) -> Chart:
        """That of the metric, of which only the inverse is used."""
        return self.metric.chart

    @property
    def scale(self) -> Tensor | float:
        """That of the metric."""
        return self.metric.scale

    def _check_points(self, **points: Tensor) -> None:
        """Images have been checked."""

    def _image(self, x: Tensor, name: str) -> Tensor:
        """The point itself."""
        del name
        return x


@final
class PullBack(Metric):
    r"""The metric that makes ``chart`` an isometry onto ``space``, up to ``scale``.

    Parameters
    ----------
    space : Space
        The geometry that is pulled back, from :mod:`gbwatt.geometry.spaces`.
    chart : Chart
        The map into the space, from :mod:`gbwatt.geometry.charts` or a subclass of your own.
    scale : float or Tensor of shape ()
        Factor of the squared distance.

    Examples
    --------
    The metric in which X ↦ X⁻¹ is an isometry onto a flat space:

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
        """The map from SPD matrices into the space."""
        return self._chart

    @property
    def scale(self) -> Tensor | float:
        """Factor of the squared distance."""
        return self._scale


@final
@dataclass(frozen=True)
class Euclidean(Metric):
    r"""Euclidean metric, :math:`d(X, Y) = ‖X - Y‖_F`.

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

    computed in the second form, which is free of cancellation.  Singular matrices are accepted.

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
    root: Tensor | None = field(default=None, init=False)  # Cholesky factor of M, see with_cached_root()
    space = Factors()

    def __post_init__(self) -> None:
        require_symmetric(M=self.M)
        if self.M.ndim != 2:
            raise ShapeError(f"'M' {tuple(self.M.shape)} must be a single matrix (k, k).")
        if isinstance(self.theta, Tensor) and not self.theta.is_floating_point():
            raise MismatchError(f"'theta' has dtype {self.theta.dtype}; a floating-point number is required.")
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
    def chart(self) -> DeformedRoot:
        """Factor of ψ(X)."""
        return DeformedRoot(self.M, self.theta, self.root)

    def of_maps(self, x: Tensor, w: Tensor) -> Tensor | None:
        """Images (maps, ..., k, k) of ``wᵀ x w`` for matrices ``x`` and maps ``w`` (maps, k, k), see :class:`OfImages`.

        They come from a single decomposition of each matrix; None if this is not possible, as if a map is not
        orthogonal.
        """
        return self.chart.of_maps(x, w)

    def with_cached_root(self) -> GeneralizedBuresWasserstein:
        """Copy of the metric that computes the Cholesky factor of M once instead of in every method.

        Use it for results that are differentiated together, as in one forward pass: they share the graph of the
        factor.

        Returns
        -------
        GeneralizedBuresWasserstein

        Examples
        --------
        >>> metric = GeneralizedBuresWasserstein(2 * torch.eye(2)).with_cached_root()
        >>> metric.sqdist(torch.eye(2), 4 * torch.eye(2))
        tensor(1.)
        """
        metric = copy(self)
        object.__setattr__(metric, "root", factor(self.M, "M", "definite"))
        return metric

    @property
    def scale(self) -> Tensor | float:
        """θ⁻²."""
        return self.theta**-2
