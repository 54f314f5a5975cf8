"""Charts: maps from SPD matrices to the points of a :mod:`space <gbwatt.geometry.spaces>`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gbwatt._validation import check_same_kind, check_square
from gbwatt.geometry import _native
from gbwatt.geometry._context import apply, differentiable_once, thread_independent
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

_KernelFunction = Callable[[Tensor, Tensor, float, bool], _native.Deformed | None]
_Adjoint = Callable[[Tensor, _native.Deformed, Tensor, float, Tensor], tuple[Tensor, Tensor, Tensor]]


class _Deformation(torch.autograd.Function):
    """Autograd node for a precomputed kernel result: derivatives in matrices ``x``, in ``c`` and in the exponent ``p``.

    The derivative of a factor ``C⁻¹ U Λ^p`` for ``X = U Λ Uᵀ`` is valid for functions that are invariant to rotations
    of its columns.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, c: Tensor, p: Tensor | float, deformed: _native.Deformed, adjoint: _Adjoint, power: float
    ) -> Tensor:
        ctx.save_for_backward(x, c, p if isinstance(p, Tensor) else None, *deformed)
        ctx.adjoint, ctx.power = adjoint, power
        return deformed.value

    @staticmethod
    @differentiable_once("a power of a matrix")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, c, p, *deformed = ctx.saved_tensors
        in_x, in_c, slopes = ctx.adjoint(x, _native.Deformed(*deformed), c, ctx.power, grad)
        return in_x, in_c, slopes.sum().reshape(p.shape) if ctx.needs_input_grad[2] else None, None, None, None


def deformed_factor(x: Tensor, c: Tensor, p: Tensor | float) -> Tensor | None:
    """A factor ``C⁻¹ U Λ^p`` of ``C⁻¹ X^2p C⁻ᵀ`` for symmetric ``x`` (..., k, k) and lower triangular ``c`` (k, k).

    Computed by the compiled kernel in one call; None if it does not accept the matrices, or if ``p`` is not a single
    number.
    """
    deformed = _call_kernel(_native.chart, x, c, p)
    return None if deformed is None else apply(_Deformation, x, c, p, deformed, _native.chart_adjoint, _number(p))


def deformed_power(a: Tensor, c: Tensor, p: Tensor | float) -> Tensor | None:
    """``(C a aᵀ Cᵀ)^p`` for factors ``a`` (..., k, k) and lower triangular ``c`` (k, k), as :func:`deformed_factor`."""
    deformed = _call_kernel(_native.unchart, a, c, p)
    return None if deformed is None else apply(_Deformation, a, c, p, deformed, _native.unchart_adjoint, _number(p))


def _number(p: Tensor | float) -> float:
    """The value of a parameter."""
    return float(p.detach()) if isinstance(p, Tensor) else p


def _call_kernel(job: _KernelFunction, x: Tensor, c: Tensor, p: Tensor | float) -> _native.Deformed | None:
    """Result of ``job(x, c, p)``; None if the kernel does not accept the matrices or ``p`` is not a single number."""
    if not _native.supports(x) or (isinstance(p, Tensor) and p.numel() > 1):
        return None
    power = _number(p)
    return job(x, c, power, power < 0)


class _MappedCharts(torch.autograd.Function):
    """Autograd node for :func:`mapped_factors`: derivatives in the matrices ``x``, the maps ``w``, ``c`` and ``p``."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor,
        c: Tensor,
        p: Tensor | float,
        d: Tensor,
        deformed: _native.Deformed,
        power: float,
    ) -> Tensor:
        ctx.save_for_backward(x, w, c, p if isinstance(p, Tensor) else None, d, *deformed)
        ctx.power = power
        return deformed.value

    @staticmethod
    @differentiable_once("a power of a matrix")
    @thread_independent
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _, w, c, p, d, *deformed = ctx.saved_tensors
        in_x, in_d, in_w, slopes = _native.mapped_charts_adjoint(_native.Deformed(*deformed), d, ctx.power, grad)
        in_c = -solve_lower(c, (in_d @ d.mT).sum(0), transposed=True).tril()  # of d = c⁻¹ wᵀ
        return (
            in_x,
            in_w @ w,
            in_c,
            slopes.sum().reshape(p.shape) if ctx.needs_input_grad[3] else None,
            None,
            None,
            None,
        )


def mapped_factors(x: Tensor, w: Tensor, c: Tensor, p: Tensor | float) -> Tensor | None:
    """Factors :func:`deformed_factor` of ``wᵀ x w`` for several maps ``w`` (maps, k, k), shape (maps, ..., k, k).

    If the maps are orthogonal, the eigenvectors of ``wᵀ x w`` are those of ``x`` (..., k, k), multiplied by ``wᵀ``, so
    that a single decomposition serves all maps.  None if they are not, or as for :func:`deformed_factor`.
    """
    if not _native.supports(x) or (isinstance(p, Tensor) and p.numel() > 1) or not _are_orthogonal(w):
        return None
    with torch.no_grad():
        d = solve_lower(c, w.mT)
    power = _number(p)
    deformed = _native.mapped_charts(x, d, power, power < 0)
    return None if deformed is None else apply(_MappedCharts, x, w, c, p, d, deformed, power)


def _are_orthogonal(w: Tensor) -> bool:
    """Whether square matrices (n, k, k) are orthogonal up to rounding."""
    k = w.shape[-1]
    with torch.no_grad():
        defect = torch.baddbmm(torch.eye(k, dtype=w.dtype, device=w.device), w.mT, w, beta=-1)
        return float(defect.abs().max()) <= 8 * k * torch.finfo(w.dtype).eps  # false for NaN


class Chart(ABC):
    """A diffeomorphism from SPD matrices (..., k, k) to the points of a space, and its differential."""

    @property
    def definite(self) -> bool:
        """Whether results that underflow to singular matrices are errors, because they have no image, as under log."""
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
        """``a`` itself."""
        return a

    def push(self, x: Tensor, v: Tensor) -> Tensor:
        """``v`` itself."""
        return v

    def pull(self, x: Tensor, w: Tensor) -> Tensor:
        """``w`` itself."""
        return w


@dataclass(frozen=True)
class Logarithm(Chart):
    """``log X``, which maps SPD matrices onto all symmetric matrices."""

    definite = True

    def __call__(self, x: Tensor, name: str = "x") -> Tensor:
        return spectral(symmetrised(x), LOG, name=name)

    def inverse(self, a: Tensor) -> Tensor:
        """``exp a``."""
        return spectral(a, EXP)

    def push(self, x: Tensor, v: Tensor) -> Tensor:
        """Derivative of the logarithm at ``x`` in direction ``v``."""
        return spectral_derivative(x, v, LOG)

    def pull(self, x: Tensor, w: Tensor) -> Tensor:
        """Direction in which the derivative of the logarithm at ``x`` is ``w``."""
        return spectral_derivative(x, w, LOG, inverse=True)


@dataclass(frozen=True)
class Root(Chart):
    """A factor ``X = a aᵀ``: the Cholesky factor, or the square root if X is singular to working precision."""

    domain: Domain = "semidefinite"

    @property
    def definite(self) -> bool:
        """True if the factor is the Cholesky factor, which singular matrices lack."""
        return self.domain == "definite"

    def __call__(self, x: Tensor, name: str = "x") -> Tensor:
        return factor(sym(x), name, self.domain)

    def inverse(self, a: Tensor) -> Tensor:
        """``a aᵀ``."""
        return gram(a)

    def push(self, x: Tensor, v: Tensor) -> Tensor:
        """``v`` itself: tangent vectors of the space are changes of ``a aᵀ``."""
        return v

    def pull(self, x: Tensor, w: Tensor) -> Tensor:
        """``w`` itself, as in :meth:`push`."""
        return w


@dataclass(frozen=True)
class DeformedRoot(Chart):
    r"""A factor :math:`C^{-1} X^{θ/2}`, up to rotation, of :math:`ψ(X) = C^{-1} X^θ C^{-⊤}` with :math:`M = C C^⊤`.

    ψ differs from :math:`M^{-1/2} X^θ M^{-1/2}` by an orthogonal congruence, which changes no distance, mean or
    geodesic.
    """

    M: Tensor  # (k, k)
    theta: Tensor | float
    root: Tensor | None = None  # C, if it is already known

    @property
    def definite(self) -> bool:
        """True for a negative power, which singular matrices lack."""
        return bool(self.theta < 0)

    def __call__(self, x: Tensor, name: str = "x") -> Tensor:
        check_same_kind(**{name: x, "M": self.M})
        check_square(**{name: x, "M": self.M})
        half, root = self.theta / 2, self._factor_of_m()
        factors = deformed_factor(x, root, half)
        if factors is not None:
            return factors
        power = spectral(symmetrised(x), power_function(half), half, name=name)
        # one system for the rows of all matrices: a = (X^½θ C⁻ᵀ)ᵀ because the power is symmetric
        rows = power.flatten(0, -2).mT
        return solve_lower(root, rows).mT.reshape(power.shape).mT

    def of_maps(self, x: Tensor, w: Tensor) -> Tensor | None:
        """Images (maps, ..., k, k) of ``wᵀ x w`` for square maps ``w``; None if they cannot be computed together."""
        check_same_kind(x=x, M=self.M)
        check_square(x=x, M=self.M)
        return mapped_factors(x, w, self._factor_of_m(), self.theta / 2)

    def _factor_of_m(self) -> Tensor:
        """Cholesky factor C of M."""
        return factor(self.M, "M", "definite") if self.root is None else self.root

    def inverse(self, a: Tensor) -> Tensor:
        """``(C a aᵀ Cᵀ)^(1/θ)``."""
        check_same_kind(c=a, M=self.M)  # `point` passes coordinates c, which are not yet checked
        check_square(c=a, M=self.M)
        back, root = 1 / self.theta, self._factor_of_m()
        matrices = deformed_power(a, root, back)
        if matrices is not None:
            return matrices
        return spectral(product(root.expand(a.shape), a), power_function(back), back, gram=True)

    def push(self, x: Tensor, v: Tensor) -> Tensor:
        """``C⁻¹ d(X^θ)[V] C⁻ᵀ``."""
        return whiten(self._factor_of_m(), spectral_derivative(x, v, power_function(self.theta), self.theta))

    def pull(self, x: Tensor, w: Tensor) -> Tensor:
        """Direction in which the derivative of ``X^θ`` is ``C W Cᵀ``."""
        w = congruence(self._factor_of_m(), w)
        return spectral_derivative(x, w, power_function(self.theta), self.theta, inverse=True)
