"""Bilinear maps of SPD matrices (Eqs. 11-13 of the paper)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gbwatt import checks
from gbwatt.geometry import _native
from gbwatt.geometry._autograd import apply, differentiable_once, full_precision
from gbwatt.geometry.linalg import congruence
from gbwatt.geometry.symmetry import symmetric_part
from gbwatt.nn.manifolds import stiefel


class _Map(torch.autograd.Function):
    """``Wᵀ X W``, by the kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return _native.bimap(x, w)

    @staticmethod
    @differentiable_once("a bilinear map")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        return _native.bimap_adjoint(x, w, grad)


class BiMap(nn.Module):
    r"""Reduction :math:`X ↦ W^⊤ X W`, (..., n, n) -> (..., k, k), with W (n, k) on the Stiefel manifold [1]_.

    References
    ----------
    .. [1] Z. Huang, L. Van Gool, "A Riemannian network for SPD matrix learning", AAAI 2017.
    """

    def __init__(self, n: int, k: int) -> None:
        super().__init__()
        checks.at_least("n", n, 1)
        checks.at_least("k", k, 1)
        if not 1 <= k <= n:
            raise checks.ParameterError(
                f"k={k} must be between 1 and n={n}: a map with orthonormal columns cannot raise the dimension."
            )
        self.weight = stiefel(n, k)

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map symmetric matrices (..., n, n)."""
        checks.same_kind(weight=self.weight, x=x)
        x = symmetric_part("x", x)
        if x.shape[-1] != len(self.weight):
            raise checks.ShapeError(
                f"'x' {tuple(x.shape)} does not fit a map of {len(self.weight)}x{len(self.weight)} matrices; build "
                f"BiMap(n={x.shape[-1]}, k)."
            )
        if _native.supports(x):
            return apply(_Map, x, self.weight)
        return congruence(self.weight.mT, x)
