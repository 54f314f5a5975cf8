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


def _square_norm(x: Tensor) -> Tensor:
    return x.square().sum((-2, -1))


def _eye(a: Tensor) -> Tensor:
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
        """Distance of equal points due to rounding, shape (...)."""

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


def _everywhere(a: Tensor) -> Interval:
    infinite = torch.full(a.shape[:-2], torch.inf, dtype=a.dtype, device=a.device)
    return -infinite, infinite


def _reach(speed: Tensor) -> Interval:
    r"""Interval on which :math:`1 + t λ > 0` for all eigenvalues λ of ``speed`` (the paper's proposition)."""
    with single_threaded(speed), converging(speed):
        values = torch.linalg.eigvalsh(speed)
    low, high = values[..., 0], values[..., -1]
    infinite = torch.full_like(low, torch.inf)
    return torch.where(high > 0, -1 / high, -infinite), torch.where(low < 0, -1 / low, infinite)


@dataclass(frozen=True)
class Symmetric(Space):
    """All symmetric matrices with the Frobenius inner product."""

    def sqdist(self, a: Tensor, b: Tensor) -> Tensor:
        return _square_norm(a - b)

    def resolution(self, a: Tensor, b: Tensor) -> Tensor:
        eps = torch.finfo(a.dtype).eps
        return eps * (_square_norm(a) + _square_norm(b)).sqrt()

    def log(self, a: Tensor, b: Tensor) -> Tensor:
        return b - a

    def exp(self, a: Tensor, w: Tensor) -> Tensor:
        return a + w

    def inner(self, a: Tensor, w: Tensor, z: Tensor) -> Tensor:
        _, w, z = torch.broadcast_tensors(a, w, z)
        return (w * z).sum((-2, -1))

    def geodesic(self, a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        return (1 - t) * a + t * b

    def interval(self, a: Tensor, w: Tensor) -> Interval:
        return _everywhere(a + w)

    def coordinates(self, a: Tensor) -> Tensor:
        return a

    def point(self, c: Tensor) -> Tensor:
        return c


@dataclass(frozen=True)
class Cone(Symmetric):
    """Positive definite matrices with the Frobenius inner product: flat, but not geodesically complete."""

    ends = "definite"

    def interval(self, a: Tensor, w: Tensor) -> Interval:
        root = factor(a, "base", "definite")
        return _reach(whiten(root, w))

    def coordinates(self, a: Tensor) -> Tensor:
        return a - _eye(a)

    def point(self, c: Tensor) -> Tensor:
        return c + _eye(c)


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
        return procrustes(a, b)

    def resolution(self, a: Tensor, b: Tensor) -> Tensor:
        eps = torch.finfo(a.dtype).eps
        return a.shape[-1] * eps * (_square_norm(a) + _square_norm(b)).sqrt()

    def log(self, a: Tensor, b: Tensor) -> Tensor:
        return 2 * sym((b @ polar(b.mT @ a) - a) @ a.mT)

    def exp(self, a: Tensor, w: Tensor) -> Tensor:
        return a + self._speed(a, w) @ a

    def _speed(self, a: Tensor, w: Tensor) -> Tensor:
        return lyapunov(sym(a @ a.mT), w)

    def inner(self, a: Tensor, w: Tensor, z: Tensor) -> Tensor:
        return (self._speed(a, w) * z).sum((-2, -1)) / 2

    def geodesic(self, a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        return (1 - t) * a + t * (b @ polar(b.mT @ a))

    def interval(self, a: Tensor, w: Tensor) -> Interval:
        return _reach(self._speed(a, w))

    def coordinates(self, a: Tensor) -> Tensor:
        return spectral(a, SQRT, gram=True) - _eye(a)

    def point(self, c: Tensor) -> Tensor:
        return c + _eye(c)


@dataclass(frozen=True)
class Invariant(Space):
    r"""Factors with the affine-invariant distance :math:`‖\log(a^{-1} b b^⊤ a^{-⊤})‖_F` of ``a aᵀ`` and ``b bᵀ``."""

    mean_equation = KARCHER

    def _relative_log(self, a: Tensor, b: Tensor) -> Tensor:
        return spectral(solve(a, b), LOG, gram=True)

    def sqdist(self, a: Tensor, b: Tensor) -> Tensor:
        return _square_norm(self._relative_log(a, b))

    def resolution(self, a: Tensor, b: Tensor) -> Tensor:
        size = broadcast_shape(a.shape[:-2], b.shape[:-2])
        return a.new_full(size, a.shape[-1] * torch.finfo(a.dtype).eps)

    def log(self, a: Tensor, b: Tensor) -> Tensor:
        return congruence(a, self._relative_log(a, b))

    def exp(self, a: Tensor, w: Tensor) -> Tensor:
        return a @ spectral(whiten(a, w) / 2, EXP)

    def inner(self, a: Tensor, w: Tensor, z: Tensor) -> Tensor:
        return (whiten(a, w) * whiten(a, z)).sum((-2, -1))

    def geodesic(self, a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        c = solve(a, b)
        return a @ spectral(c, POWER, t[..., 0, 0] / 2, gram=True)

    def interval(self, a: Tensor, w: Tensor) -> Interval:
        return _everywhere(a + w)

    def coordinates(self, a: Tensor) -> Tensor:
        return spectral(a, LOG, gram=True)

    def point(self, c: Tensor) -> Tensor:
        return spectral(c / 2, EXP)


def require_coordinates(space: Space, c: Tensor) -> None:
    """Raise DomainError if no point of the space has the coordinates ``c``."""
    if space.ends == "nowhere":
        return
    with single_threaded(c), converging(c):
        values = torch.linalg.eigvalsh(c + _eye(c))
    least = 0.0 if space.ends == "definite" else -8 * c.shape[-1] * torch.finfo(c.dtype).eps  # rounding
    bad = ~(values[..., 0] > least * values[..., -1].abs())
    if bool(bad.any()):
        at = first_index(bad)
        raise DomainError(
            f"'c' {tuple(c.shape)} are not coordinates: I + c must be positive definite, but its smallest eigenvalue "
            f"is {float(values[at][0]):.1e}{describe_index(at)}. Use a smaller c."
        )


def outside(times: Tensor, interval: Interval, what: str) -> None:
    """Raise DomainError if a time lies outside the open interval."""
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
