r"""Subspaces as points of the Grassmann manifold: orthonormal bases (..., n, p), equal up to a rotation of the basis.

These functions are used by GDLNet.  Batch axes come first, and matrices are the last two axes.

References
----------
.. [1] A. Edelman, T. A. Arias, S. T. Smith, "The geometry of algorithms with orthogonality constraints", SIAM J.
   Matrix Anal. Appl. 20(2), 1998.
.. [2] R. Wang, C. Hu, Z. Chen, X.-J. Wu, X. Song, "A Grassmannian manifold self-attention network for signal
   classification", IJCAI 2024.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gbwatt._validation import check_broadcastable, check_same_kind, rounding_tolerance
from gbwatt.errors import ParameterError, ShapeError
from gbwatt.geometry._context import apply, differentiable_once, full_precision, single_threaded, thread_independent
from gbwatt.geometry.linalg import eigh
from gbwatt.geometry.metrics import smooth_root
from gbwatt.geometry.symmetric import require_symmetric, sym


class _LeadingSubspace(torch.autograd.Function):
    """Leading eigenvectors, with the derivative of their subspace, which ignores rotations within it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: int) -> Tensor:
        values, vectors = eigh(x)  # ascending, as returned by LAPACK
        ctx.save_for_backward(x, values, vectors)
        ctx.p = p
        lead: Tensor = vectors[..., -p:].flip(-1)
        return lead

    @staticmethod
    @differentiable_once("the leading subspace of a symmetric matrix")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _, values, vectors = ctx.saved_tensors
        cut = values.shape[-1] - ctx.p
        rest, lead = vectors[..., :cut], vectors[..., cut:]
        gap = values[..., None, cut:] - values[..., :cut, None]  # (..., n - p, p), not negative
        floor = rounding_tolerance(values.dtype) * values.abs().amax(-1)[..., None, None]
        floor = floor.masked_fill(floor < torch.finfo(values.dtype).tiny, torch.inf)  # zero matrices: no gradient
        inner = rest.mT @ grad.flip(-1) / gap.maximum(floor)
        return sym(rest @ inner @ lead.mT), None


@full_precision
@thread_independent
def leading_subspace(x: Tensor, p: int) -> Tensor:
    r"""Orthonormal eigenvectors of the p largest eigenvalues, largest first.

    With :math:`X = U Λ U^⊤ + U_⊥ Λ_⊥ U_⊥^⊤` the subspace moves by

    .. math:: dU = U_⊥ (K ∘ U_⊥^⊤ dX\, U), \qquad K_{ji} = 1 / (λ_i - λ_j^⊥).

    The derivative is valid for functions of the subspace, which depend on :math:`U U^⊤` only.  It divides by gaps
    between eigenvalues of the subspace and of its complement, so that eigenvalues may repeat within either.  Gaps below
    the rounding of the largest eigenvalue, for which the subspace is not defined, are replaced by that rounding.

    Parameters
    ----------
    x : Tensor, shape (..., n, n)
        Symmetric matrices.
    p : int
        Dimension of the subspace, 1 to n.

    Returns
    -------
    Tensor, shape (..., n, p)

    Examples
    --------
    >>> leading_subspace(torch.diag(torch.tensor([1.0, 3.0, 2.0])), 2).abs()
    tensor([[0., 0.],
            [1., 0.],
            [0., 1.]])
    """
    require_symmetric(x=x)
    if not 1 <= p <= x.shape[-1]:
        raise ParameterError(f"p={p} must be between 1 and {x.shape[-1]}, the size of 'x' {tuple(x.shape)}.")
    return apply(_LeadingSubspace, x, p)


@full_precision
@thread_independent
def orthonormalise(y: Tensor) -> Tensor:
    r"""The factor Q of :math:`Y = Q R` with non-negative diagonal of R: an orthonormal basis of the columns.

    Parameters
    ----------
    y : Tensor, shape (..., n, p)
        Linearly independent columns, p ≤ n.

    Returns
    -------
    Tensor, shape (..., n, p)

    Examples
    --------
    >>> orthonormalise(torch.tensor([[-3.0], [4.0]]))
    tensor([[-0.6000],
            [ 0.8000]])
    """
    check_same_kind(y=y)
    if y.ndim < 2 or not 1 <= y.shape[-1] <= y.shape[-2]:
        raise ShapeError(f"'y' {tuple(y.shape)} does not contain bases; (..., n, p) with 1 ≤ p ≤ n is required.")
    q: Tensor
    with single_threaded(y):
        q, r = torch.linalg.qr(y)
    diagonal = r.detach().diagonal(dim1=-2, dim2=-1)
    return q * torch.where(diagonal < 0, -1.0, 1.0).to(q.dtype)[..., None, :]


@full_precision
@thread_independent
def projection_distance(q: Tensor, k: Tensor) -> Tensor:
    r"""Projection distance of two subspaces, from orthonormal bases of them.

    .. math:: d(Q, K) = ‖Q Q^⊤ - K K^⊤‖_F = \sqrt 2\, ‖K - Q (Q^⊤ K)‖_F = \sqrt{2 \sum_i \sin^2 θ_i}

    with the principal angles θ.  The second form is computed: it needs no n×n matrix, and it avoids the cancellation in
    :math:`2 p - 2 ‖Q^⊤ K‖_F^2`.  At equal subspaces the gradient is 0, see
    :func:`~gbwatt.geometry.metrics.smooth_root`.

    Parameters
    ----------
    q, k : Tensor, shape (..., n, p)
        Orthonormal columns; the batch axes broadcast.

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> projection_distance(torch.eye(3)[:, :1], torch.eye(3)[:, 1:2])
    tensor(1.4142)
    """
    check_same_kind(q=q, k=k)
    if q.ndim < 2 or k.ndim < 2 or q.shape[-2:] != k.shape[-2:]:
        raise ShapeError(
            f"'q' {tuple(q.shape)} and 'k' {tuple(k.shape)} do not contain bases of one size; (..., n, p) is required."
        )
    check_broadcastable(q=q, k=k)
    square = 2 * (k - q @ (q.mT @ k)).square().sum((-2, -1))
    square = square.masked_fill((q == k).all(-1).all(-1), 0)
    rounding = 4 * torch.finfo(q.dtype).eps * q.shape[-1] ** 0.5
    return smooth_root(square, torch.full_like(square.detach(), rounding))
