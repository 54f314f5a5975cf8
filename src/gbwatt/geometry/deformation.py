r"""The deformation :math:`C^{-1} X^θ C^{-⊤}` of the generalised Bures-Wasserstein metric, and back, by the kernel.

One call for what would be a dozen operations of torch on small matrices.  None where the kernel does not take a matrix:
callers then take these operations, which also say what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gbwatt.geometry import _native
from gbwatt.geometry._autograd import apply, differentiable_once

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
