"""The deformation :math:`C^{-1} X^θ C^{-⊤}` of the generalised Bures-Wasserstein metric, and back, by the kernel.

One call for what would be a dozen operations of torch on small matrices.  None where the kernel does not take a matrix:
callers then take these operations, which also say what is wrong with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gbwatt._validation import check_same_kind, check_square
from gbwatt.geometry import _native
from gbwatt.geometry._autograd import apply, differentiable_once
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
from gbwatt.geometry.symmetric import sym, symmetrised

_Job = Callable[[Tensor, Tensor, float, bool], _native.Deformed | None]
_Adjoint = Callable[[Tensor, _native.Deformed, Tensor, float, Tensor], tuple[Tensor, Tensor, Tensor]]


class _Deformation(torch.autograd.Function):
    """What the kernel found, with its derivative in the matrices, in ``c`` and in the exponent.

    That of a factor, ``C⁻¹ U Λ^p`` for ``X = U Λ Uᵀ``, is right for whoever does not see a turn of the columns.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, c: Tensor, p: Tensor | float, found: _native.Deformed, adjoint: _Adjoint, power: float
    ) -> Tensor:
        ctx.save_for_backward(x, c, p if isinstance(p, Tensor) else None, *found)
        ctx.adjoint, ctx.power = adjoint, power
        return found.value

    @staticmethod
    @differentiable_once("a power of a matrix")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, c, p, *found = ctx.saved_tensors
        in_x, in_c, slopes = ctx.adjoint(x, _native.Deformed(*found), c, ctx.power, grad)
        return in_x, in_c, slopes.sum().reshape(p.shape) if ctx.needs_input_grad[2] else None, None, None, None


def deformed_factor(x: Tensor, c: Tensor, p: Tensor | float) -> Tensor | None:
    """A factor ``C⁻¹ U Λ^p`` of ``C⁻¹ X^2p C⁻ᵀ`` for symmetric ``x`` (..., k, k) and lower triangular ``c`` (k, k)."""
    return _by_kernel(_native.chart, _native.chart_adjoint, x, c, p)


def deformed_power(a: Tensor, c: Tensor, p: Tensor | float) -> Tensor | None:
    """``(C a aᵀ Cᵀ)^p`` for factors ``a`` (..., k, k) and lower triangular ``c`` (k, k)."""
    return _by_kernel(_native.unchart, _native.unchart_adjoint, a, c, p)


def _by_kernel(job: _Job, adjoint: _Adjoint, x: Tensor, c: Tensor, p: Tensor | float) -> Tensor | None:
    if not _native.supports(x) or (isinstance(p, Tensor) and p.numel() > 1):
        return None
    power = float(p.detach()) if isinstance(p, Tensor) else p
    found = job(x, c, power, power < 0)
    return None if found is None else apply(_Deformation, x, c, p, found, adjoint, power)


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
        check_same_kind(**{name: x, "M": self.M})
        check_square(**{name: x, "M": self.M})
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
        check_same_kind(c=a, M=self.M)  # `point` is given coordinates c, which no chart has seen
        check_square(c=a, M=self.M)
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
