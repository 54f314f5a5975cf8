"""Spaces: the geometries from which metrics are pulled back.

A :mod:`chart <gbwatt.geometry.charts>` maps matrices to points ``a``, ``b`` of a space and tangent vectors to ambient
tangent vectors ``w``.  :class:`Symmetric` and :class:`Cone` are flat, and their points are matrices.  The points of
:class:`Factors` and :class:`Invariant` are factors ``a`` of ``Y = a aᵀ``, unique up to an orthogonal matrix on the
right, and their tangent vectors are changes of Y.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from gbwatt._validation import broadcast_shape, describe_index, first_index
from gbwatt.errors import DomainError
from gbwatt.geometry._context import single_threaded
from gbwatt.geometry._fixed_point import BURES, KARCHER, MeanEquation
from gbwatt.geometry.linalg import (
    EXP,
    LOG,
    POWER,
    SQRT,
    congruence,
    converging,
    factor,
    lyapunov,
    solve,
    spectral,
    whiten,
)
from gbwatt.geometry.procrustes import polar, procrustes
from gbwatt.geometry.symmetric import sym

Interval = tuple[Tensor, Tensor]


def _squared_norm(x: Tensor) -> Tensor:
    """Squared Frobenius norm: (..., k, k) -> (...)."""
    return x.square().sum((-2, -1))


def _norm(x: Tensor) -> Tensor:
    """Frobenius norm: (..., k, k) -> (...)."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=(-2, -1))
    return norm


def _identity_like(a: Tensor) -> Tensor:
    """Identity matrix (k, k) with the dtype and device of ``a``."""
    return torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)


class Space(ABC):
    """A geometry with the methods of :class:`~gbwatt.geometry.Metric`, for points and tangent vectors of a chart.

    Attributes
    ----------
    ends : "nowhere", "definite" or "semidefinite"
        Which symmetric matrices c are coordinates: all of them, or those for which I + c is definite or semidefinite.
    mean_equation : MeanEquation or None
        The equation of the Fréchet mean; None if the mean is the weighted sum of the points.
    """

    ends: ClassVar[Literal["nowhere", "definite", "semidefinite"]] = "nowhere"
    mean_equation: ClassVar[MeanEquation | None] = None

    @abstractmethod
    def sqdist(self, a: Tensor, b: Tensor) -> Tensor:
        """Squared distance, shape (...)."""

    @abstractmethod
    def resolution(self, a: Tensor, b: Tensor) -> Tensor:
        """Rounding error of a distance: the value computed for equal points may be that large, shape (...)."""

    @abstractmethod
    def log(self, a: Tensor, b: Tensor) -> Tensor:
        """Tangent vector at ``a`` whose geodesic reaches ``b`` at time 1."""

    @abstractmethod
    def exp(self, a: Tensor, w: Tensor) -> Tensor:
        """Point that the geodesic from ``a`` along ``w`` reaches at time 1."""

    @abstractmethod
    def inner(self, a: Tensor, w: Tensor, z: Tensor) -> Tensor:
        """Inner product of two tangent vectors at ``a``, shape (...)."""

    @abstractmethod
    def geodesic(self, a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        """Point at time ``t`` (..., 1, 1) on the geodesic from ``a`` at 0 to ``b`` at 1."""

    @abstractmethod
    def interval(self, a: Tensor, w: Tensor) -> Interval:
        """Open interval of times on which the geodesic from ``a`` along ``w`` exists, shapes (...)."""

    @abstractmethod
    def coordinates(self, a: Tensor) -> Tensor:
        """Logarithm at the origin, as a symmetric matrix whose Frobenius norm is the distance from the origin."""

    @abstractmethod
    def point(self, c: Tensor) -> Tensor:
        """Point with the given coordinates."""


def _infinite_interval(a: Tensor) -> Interval:
    """The interval (-∞, ∞) for each matrix of a batch (..., k, k): geodesics that never end."""
    infinite = torch.full(a.shape[:-2], torch.inf, dtype=a.dtype, device=a.device)
    return -infinite, infinite


def _interval_of_definiteness(speed: Tensor) -> Interval:
    """Interval of t on which ``I + t S`` is positive definite, for ``speed`` S (..., k, k); see the paper."""
    with single_threaded(speed), converging(speed):
        values = torch.linalg.eigvalsh(speed)
    low, high = values[..., 0], values[..., -1]
    infinite = torch.full_like(low, torch.inf)
    return torch.where(high > 0, -1 / high, -infinite), torch.where(low < 0, -1 / low, infinite)


@dataclass(frozen=True)
class Symmetric(Space):
    """All symmetric matrices with the Frobenius inner product."""

    def sqdist(self, a: Tensor, b: Tensor) -> Tensor:
        """``‖a - b‖²``."""
        return _squared_norm(a - b)

    def resolution(self, a: Tensor, b: Tensor) -> Tensor:
        """Rounding error of a distance: machine epsilon times the norm of the points."""
        eps = torch.finfo(a.dtype).eps
        return eps * torch.hypot(_norm(a), _norm(b))

    def log(self, a: Tensor, b: Tensor) -> Tensor:
        """``b - a``."""
        return b - a

    def exp(self, a: Tensor, w: Tensor) -> Tensor:
        """``a + w``."""
        return a + w

    def inner(self, a: Tensor, w: Tensor, z: Tensor) -> Tensor:
        """Frobenius inner product of ``w`` and ``z``."""
        _, w, z = torch.broadcast_tensors(a, w, z)
        return (w * z).sum((-2, -1))

    def geodesic(self, a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        """Straight line from ``a`` to ``b``."""
        return (1 - t) * a + t * b

    def interval(self, a: Tensor, w: Tensor) -> Interval:
        """All times: straight lines never leave the space."""
        return _infinite_interval(a + w)

    def coordinates(self, a: Tensor) -> Tensor:
        """``a`` itself."""
        return a

    def point(self, c: Tensor) -> Tensor:
        """``c`` itself."""
        return c


@dataclass(frozen=True)
class Cone(Symmetric):
    """Positive definite matrices with the Frobenius inner product: flat, but not geodesically complete."""

    ends = "definite"

    def interval(self, a: Tensor, w: Tensor) -> Interval:
        """Times at which ``a + t w`` is positive definite."""
        root = factor(a, "base", "definite")
        return _interval_of_definiteness(whiten(root, w))

    def coordinates(self, a: Tensor) -> Tensor:
        """``a - I``."""
        return a - _identity_like(a)

    def point(self, c: Tensor) -> Tensor:
        """``I + c``."""
        return c + _identity_like(c)


@dataclass(frozen=True)
class Factors(Space):
    r"""Factors up to an orthogonal matrix, with the Procrustes distance :math:`\min_Q ‖a - b Q‖_F`.

    In terms of :math:`Y = a a^⊤` this is the Bures-Wasserstein geometry [1]_.

    References
    ----------
    .. [1] R. Bhatia, T. Jain, Y. Lim, "On the Bures-Wasserstein distance between positive definite matrices",
       Expositiones Mathematicae 37(2), 2019.
    """

    ends = "semidefinite"
    mean_equation = BURES

    def sqdist(self, a: Tensor, b: Tensor) -> Tensor:
        """Squared Procrustes distance."""
        return procrustes(a, b)

    def resolution(self, a: Tensor, b: Tensor) -> Tensor:
        """Rounding error of a distance: machine epsilon times the size k of the matrices and the norm of the points."""
        eps = torch.finfo(a.dtype).eps
        return a.shape[-1] * eps * torch.hypot(_norm(a), _norm(b))

    def log(self, a: Tensor, b: Tensor) -> Tensor:
        """Change of Y along the line from ``a`` to ``b Q``, the factor of ``b bᵀ`` closest to ``a``."""
        return 2 * sym((b @ polar(b.mT @ a) - a) @ a.mT)

    def exp(self, a: Tensor, w: Tensor) -> Tensor:
        """``(I + L) a`` with the Lyapunov solution L."""
        return a + self._lyapunov_speed(a, w) @ a

    def _lyapunov_speed(self, a: Tensor, w: Tensor) -> Tensor:
        """Solution L of ``Y L + L Y = w`` for ``Y = a aᵀ``: the geodesic along ``w`` is ``(I + t L) a``."""
        return lyapunov(sym(a @ a.mT), w)

    def inner(self, a: Tensor, w: Tensor, z: Tensor) -> Tensor:
        """``tr(L z) / 2`` with the Lyapunov solution L of ``w``."""
        return (self._lyapunov_speed(a, w) * z).sum((-2, -1)) / 2

    def geodesic(self, a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        """Line from ``a`` to ``b Q``, the factor of ``b bᵀ`` closest to ``a``."""
        return (1 - t) * a + t * (b @ polar(b.mT @ a))

    def interval(self, a: Tensor, w: Tensor) -> Interval:
        """Times at which ``I + t L`` is positive definite."""
        return _interval_of_definiteness(self._lyapunov_speed(a, w))

    def coordinates(self, a: Tensor) -> Tensor:
        """``(a aᵀ)^½ - I``."""
        return spectral(a, SQRT, gram=True) - _identity_like(a)

    def point(self, c: Tensor) -> Tensor:
        """``I + c``, a factor of ``(I + c)²``."""
        return c + _identity_like(c)


@dataclass(frozen=True)
class Invariant(Space):
    r"""Factors with the affine-invariant distance :math:`‖\log(a^{-1} b b^⊤ a^{-⊤})‖_F` of ``a aᵀ`` and ``b bᵀ``."""

    mean_equation = KARCHER

    def _relative_log(self, a: Tensor, b: Tensor) -> Tensor:
        """``log(a⁻¹ b bᵀ a⁻ᵀ)``, whose norm is the distance."""
        return spectral(solve(a, b), LOG, gram=True)

    def sqdist(self, a: Tensor, b: Tensor) -> Tensor:
        """``‖log(a⁻¹ b bᵀ a⁻ᵀ)‖²``."""
        return _squared_norm(self._relative_log(a, b))

    def resolution(self, a: Tensor, b: Tensor) -> Tensor:
        """Rounding error of a distance: machine epsilon times the size k; the norm of the points does not matter."""
        size = broadcast_shape(a.shape[:-2], b.shape[:-2])
        return a.new_full(size, a.shape[-1] * torch.finfo(a.dtype).eps)

    def log(self, a: Tensor, b: Tensor) -> Tensor:
        """``a log(a⁻¹ b bᵀ a⁻ᵀ) aᵀ``."""
        return congruence(a, self._relative_log(a, b))

    def exp(self, a: Tensor, w: Tensor) -> Tensor:
        """``a exp(a⁻¹ w a⁻ᵀ / 2)``."""
        return a @ spectral(whiten(a, w) / 2, EXP)

    def inner(self, a: Tensor, w: Tensor, z: Tensor) -> Tensor:
        """Frobenius inner product of ``a⁻¹ w a⁻ᵀ`` and ``a⁻¹ z a⁻ᵀ``."""
        return (whiten(a, w) * whiten(a, z)).sum((-2, -1))

    def geodesic(self, a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        """``a (a⁻¹ b bᵀ a⁻ᵀ)^(t/2)``."""
        c = solve(a, b)
        return a @ spectral(c, POWER, t[..., 0, 0] / 2, gram=True)

    def interval(self, a: Tensor, w: Tensor) -> Interval:
        """All times: the space is geodesically complete."""
        return _infinite_interval(a + w)

    def coordinates(self, a: Tensor) -> Tensor:
        """``log(a aᵀ)``."""
        return spectral(a, LOG, gram=True)

    def point(self, c: Tensor) -> Tensor:
        """``exp(c / 2)``, a factor of ``exp(c)``."""
        return spectral(c / 2, EXP)


def require_coordinates(space: Space, c: Tensor) -> None:
    """Raise DomainError if no point of the space has the coordinates ``c``."""
    if space.ends == "nowhere":
        return
    with single_threaded(c), converging(c):
        values = torch.linalg.eigvalsh(c + _identity_like(c))
    least = 0.0 if space.ends == "definite" else -8 * c.shape[-1] * torch.finfo(c.dtype).eps  # rounding
    bad = ~(values[..., 0] > least * values[..., -1].abs())
    if bool(bad.any()):
        at = first_index(bad)
        raise DomainError(
            f"'c' {tuple(c.shape)} are not coordinates: I + c must be positive definite, but its smallest eigenvalue "
            f"is {float(values[at][0]):.1e}{describe_index(at)}. Use a smaller c."
        )


def outside(times: Tensor, interval: Interval, what: str) -> None:
    """Raise DomainError if a time lies outside the open interval; ``what`` names the operation in the message."""
    low, high = (x.detach() for x in interval)
    bad = ~((times > low) & (times < high))
    if bool(bad.any()):
        at = first_index(bad)
        times, low, high = (x[at] for x in torch.broadcast_tensors(times, low, high))
        raise DomainError(
            f"{what} leaves the positive definite matrices: t = {float(times):.6g} is not in the interval "
            f"({float(low):.6g}, {float(high):.6g}) on which the geodesic exists{describe_index(at)}. "
            "Use a smaller step; metric.interval(base, v) returns the limits."
        )
