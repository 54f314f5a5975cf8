r"""Charts: how a metric looks at a matrix before it measures anything.

A chart maps SPD matrices to the points of a :mod:`space <gbwatt.geometry.spaces>`.  Spaces of *factors* represent a
matrix Y by any ``a`` with :math:`Y = a a^⊤`: a factor has half the digits to lose that Y has, so charts produce it
directly and Y itself is never formed.  ``push`` and ``pull`` carry tangent vectors between X and Y.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from gbwatt import checks
from gbwatt.geometry.deformation import deformed_factor, deformed_power
from gbwatt.geometry.linalg import (
    EXP,
    LOG,
    Domain,
    congruence,
    factor,
    gram,
    power_function,
    product,
    solve_lower,
    spectral,
    spectral_derivative,
    whiten,
)
from gbwatt.geometry.symmetry import sym, symmetrised


class Chart(ABC):
    """A diffeomorphism from SPD matrices (..., k, k) to the points of a space, and its differential."""

    @property
    def definite(self) -> bool:
        """Whether matrices that underflow to singular ones are outside its domain, as under a logarithm."""
        return False

    @abstractmethod
    def __call__(self, x: Tensor, name: str = "x") -> Tensor:
        """Image of ``x``; raises NotSPDError with ``name`` if ``x`` is not in the domain."""

    @abstractmethod
    def inverse(self, a: Tensor) -> Tensor:
        """SPD matrix whose image is ``a``."""

    @abstractmethod
    def push(self, x: Tensor, v: Tensor) -> Tensor:
        """Differential at ``x``, applied to the symmetric matrix ``v``."""

    @abstractmethod
    def pull(self, x: Tensor, w: Tensor) -> Tensor:
        """Inverse of :meth:`push`."""


@dataclass(frozen=True)
class Identity(Chart):
    """The matrix itself."""

    def __call__(self, x: Tensor, name: str = "x") -> Tensor:
        factor(x.detach(), name, "definite")
        return sym(x)

    def inverse(self, a: Tensor) -> Tensor:
        return a

    def push(self, x: Tensor, v: Tensor) -> Tensor:
        return v

    def pull(self, x: Tensor, w: Tensor) -> Tensor:
        return w


@dataclass(frozen=True)
class Logarithm(Chart):
    """``log X``, which maps SPD matrices onto all symmetric ones."""

    definite = True

    def __call__(self, x: Tensor, name: str = "x") -> Tensor:
        return spectral(symmetrised(x), LOG, name=name)

    def inverse(self, a: Tensor) -> Tensor:
        return spectral(a, EXP)

    def push(self, x: Tensor, v: Tensor) -> Tensor:
        return spectral_derivative(x, v, LOG)

    def pull(self, x: Tensor, w: Tensor) -> Tensor:
        return spectral_derivative(x, w, LOG, inverse=True)


@dataclass(frozen=True)
class Root(Chart):
    """A factor ``X = a aᵀ``: Cholesky's, or the square root where X is singular to working precision."""

    domain: Domain = "semidefinite"

    @property
    def definite(self) -> bool:
        return self.domain == "definite"

    def __call__(self, x: Tensor, name: str = "x") -> Tensor:
        return factor(sym(x), name, self.domain)

    def inverse(self, a: Tensor) -> Tensor:
        return gram(a)

    def push(self, x: Tensor, v: Tensor) -> Tensor:
        return v

    def pull(self, x: Tensor, w: Tensor) -> Tensor:
        return w


@dataclass(frozen=True)
class DeformedRoot(Chart):
    r"""A factor of :math:`ψ(X) = C^{-1} X^θ C^{-⊤}` with :math:`M = C C^⊤`: :math:`C^{-1} X^{θ/2}`, or a turn of it.

    An orthogonal congruence away from :math:`M^{-1/2} X^θ M^{-1/2}`, which changes no distance, mean or geodesic.
    """

    M: Tensor  # (k, k)
    theta: Tensor | float
    root: Tensor | None = None  # C, if it is at hand

    @property
    def definite(self) -> bool:
        return bool(self.theta < 0)

    def __call__(self, x: Tensor, name: str = "x") -> Tensor:
        checks.same_kind(**{name: x, "M": self.M})
        checks.square(**{name: x, "M": self.M})
        half, root = self.theta / 2, self._root()
        found = deformed_factor(x, root, half)
        if found is not None:
            return found
        power = spectral(symmetrised(x), power_function(half), half, name=name)
        # one system for all rows of all matrices; a = (X^½θ C⁻ᵀ)ᵀ because the power is symmetric
        rows = power.flatten(0, -2).mT
        return solve_lower(root, rows).mT.reshape(power.shape).mT

    def _root(self) -> Tensor:
        return factor(self.M, "M", "definite") if self.root is None else self.root

    def inverse(self, a: Tensor) -> Tensor:
        checks.same_kind(c=a, M=self.M)  # `point` is given coordinates c, which no chart has seen
        checks.square(c=a, M=self.M)
        back, root = 1 / self.theta, self._root()
        found = deformed_power(a, root, back)
        if found is not None:
            return found
        return spectral(product(root.expand(a.shape), a), power_function(back), back, gram=True)

    def push(self, x: Tensor, v: Tensor) -> Tensor:
        return whiten(self._root(), spectral_derivative(x, v, power_function(self.theta), self.theta))

    def pull(self, x: Tensor, w: Tensor) -> Tensor:
        w = congruence(self._root(), w)
        return spectral_derivative(x, w, power_function(self.theta), self.theta, inverse=True)
