"""Layers of SPD matrices: bilinear map, batch normalisation, eigenvalue rectification and embedding (MEEM)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from gbwatt._validation import check_at_least, check_same_kind, check_square
from gbwatt.errors import ParameterError, ShapeError
from gbwatt.geometry import AffineInvariant, _native
from gbwatt.geometry._context import apply, differentiable_once, full_precision
from gbwatt.geometry.linalg import LOG, LOG_REEIG, REEIG, congruence, in_range, invsqrtm, spectral, sqrtm
from gbwatt.geometry.symmetric import symmetric_part, vech
from gbwatt.nn.optim import positive_definite, stiefel


class _Map(torch.autograd.Function):
    """``Wᵀ X W`` by the compiled kernel."""

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
    r"""Bilinear map :math:`X ↦ W^⊤ X W`, (..., n, n) -> (..., k, k), with W (n, k) on the Stiefel manifold [1]_.

    Parameters
    ----------
    n, k : int
        Sizes of the input and output matrices, k ≤ n.

    References
    ----------
    .. [1] Z. Huang, L. Van Gool, "A Riemannian network for SPD matrix learning", AAAI 2017.

    Examples
    --------
    >>> BiMap(4, 2)(torch.eye(4).expand(3, 4, 4)).shape
    torch.Size([3, 2, 2])
    """

    def __init__(self, n: int, k: int) -> None:
        super().__init__()
        check_at_least("n", n, 1)
        check_at_least("k", k, 1)
        if not 1 <= k <= n:
            raise ParameterError(
                f"k={k} must be between 1 and n={n}: a map with orthonormal columns cannot increase the dimension."
            )
        self.weight = stiefel(n, k)

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map symmetric matrices (..., n, n)."""
        check_same_kind(weight=self.weight, x=x)
        x = symmetric_part("x", x)
        if x.shape[-1] != len(self.weight):
            raise ShapeError(
                f"'x' {tuple(x.shape)} does not fit a map of {len(self.weight)}x{len(self.weight)} matrices; use "
                f"BiMap(n={x.shape[-1]}, k)."
            )
        if _native.supports(x):
            return apply(_Map, x, self.weight)
        return congruence(self.weight.mT, x)


class SPDBatchNorm(nn.Module):
    r"""Affine-invariant batch normalisation, (batch, ..., k, k) -> (batch, ..., k, k) [1]_.

    Matrices are transported so that their mean G becomes a trained matrix B:
    :math:`X ↦ B^{1/2} G^{-1/2} X G^{-1/2} B^{1/2}`.  In training, G is the Karcher mean of the batch, treated as a
    constant, and the running mean moves towards it along the geodesic.  In evaluation, G is the running mean.

    The Karcher mean is iterated to convergence.  The authors' code takes a single step of the Karcher flow from the
    arithmetic mean, which is accurate only for matrices that are close to each other.

    Parameters
    ----------
    k : int
        Size of the matrices.
    momentum : float in (0, 1]
        Fraction of the geodesic to the batch mean by which the running mean moves in each step.

    References
    ----------
    .. [1] D. Brooks, O. Schwander, F. Barbaresco, J.-Y. Schneider, M. Cord, "Riemannian batch normalization for SPD
       neural networks", NeurIPS 2019.
    """

    running_mean: Tensor

    def __init__(self, k: int, momentum: float = 0.1) -> None:
        super().__init__()
        if not 0 < momentum <= 1:
            raise ParameterError(f"momentum={momentum} must be in (0, 1].")
        self.momentum, self.metric = momentum, AffineInvariant()
        self.bias = positive_definite(k)
        self.register_buffer("running_mean", torch.eye(k))

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Normalise matrices (batch, ..., k, k)."""
        check_same_kind(bias=self.bias, x=x)
        x = symmetric_part("x", x)
        check_square(bias=self.bias, x=x)
        if self.training:
            mean = self.metric.mean(x.detach().reshape(-1, *x.shape[-2:]))
            with torch.no_grad():
                self.running_mean.copy_(self.metric.geodesic(self.running_mean, mean, self.momentum))
        else:
            mean = self.running_mean
        return congruence(sqrtm(self.bias), congruence(invsqrtm(mean), x))


def _checked_threshold(eps: float) -> float:
    """Return ``eps``, the threshold of eigenvalue rectification; raise ParameterError unless it is positive."""
    if not (math.isfinite(eps) and eps > 0):
        raise ParameterError(f"eps={eps} must be a positive number.")
    return eps


class ReEig(nn.Module):
    r"""Eigenvalue rectification :math:`U \max(ε, Λ) U^⊤`, (..., k, k) -> (..., k, k).

    Parameters
    ----------
    eps : float
        Threshold ε.
    """

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = _checked_threshold(eps)

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Rectify matrices (..., k, k)."""
        return in_range("ReEig", spectral(symmetric_part("x", x), REEIG, self.eps))


class LogEig(nn.Module):
    """Matrix logarithm, (..., k, k) -> (..., k, k)."""

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Logarithm of positive definite matrices (..., k, k)."""
        return spectral(symmetric_part("x", x), LOG)


class Embedding(nn.Module):
    """Upper triangles of a sequence as one vector, (batch, m, k, k) -> (batch, m * k * (k + 1) / 2).

    Parameters
    ----------
    logarithm : bool
        Whether to apply :class:`ReEig` and :class:`LogEig` first, in one decomposition.
    eps : float
        Threshold of the rectification.

    Examples
    --------
    >>> Embedding()(torch.eye(3).expand(2, 5, 3, 3)).shape
    torch.Size([2, 30])
    """

    def __init__(self, logarithm: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        self.logarithm, self.eps = logarithm, _checked_threshold(eps)

    def extra_repr(self) -> str:
        """Describe the options for repr."""
        return f"eps={self.eps:g}" if self.logarithm else "logarithm=False"

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Embed sequences (batch, m, k, k)."""
        x = symmetric_part("x", x)
        if x.ndim < 3:
            raise ShapeError(
                f"'x' {tuple(x.shape)} is a single matrix, but sequences (batch, m, k, k) are required: x[None, None]."
            )
        if self.logarithm:
            x = spectral(x, LOG_REEIG, self.eps)
        return vech(x).flatten(1)
