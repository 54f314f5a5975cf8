"""Orthogonal alignment: polar factors, and the Procrustes distance behind the Bures-Wasserstein metric."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gbwatt.geometry import _native
from gbwatt.geometry._context import apply, differentiable_once, thread_independent
from gbwatt.geometry.linalg import SVD, svd


class _Polar(torch.autograd.Function):
    """Polar factor from a precomputed SVD (``frame``) of ``f``, with its derivative."""

    @staticmethod
    def forward(ctx: Any, f: Tensor, frame: SVD) -> Tensor:
        ctx.save_for_backward(f, *frame)
        return frame.u @ frame.v.mT

    @staticmethod
    @differentiable_once("the polar factor")
    @thread_independent
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _, u, s, v = ctx.saved_tensors
        inner = u.mT @ grad @ v
        floor = (torch.finfo(s.dtype).eps * s.amax(-1)).clamp_min(torch.finfo(s.dtype).tiny)
        total = (s[..., :, None] + s[..., None, :]).maximum(floor[..., None, None])
        return u @ ((inner - inner.mT) / total) @ v.mT, None


def polar(f: Tensor, frame: SVD | None = None) -> Tensor:
    r"""Orthogonal matrix closest to ``f``: :math:`U V^⊤` for :math:`F = U S V^⊤`, shape (..., k, k).

    The derivative divides by sums of singular values, never by differences.  ``frame`` is the decomposition of ``f``,
    if it is already known.
    """
    return apply(_Polar, f, svd(f) if frame is None else frame)


class _Procrustes(torch.autograd.Function):
    """Squared distance, whose gradient needs no derivative of Q because the distance is stationary in Q."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        square, in_a, in_b = _procrustes(a, b, any(ctx.needs_input_grad))
        ctx.save_for_backward(a, b, in_a, in_b)
        return square

    @staticmethod
    @differentiable_once("the Bures-Wasserstein distance")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b, in_a, in_b = ctx.saved_tensors
        grad = 2 * grad
        return _sum_over_broadcast_axes(grad, in_a, a.shape), _sum_over_broadcast_axes(grad, in_b, b.shape)


def _sum_over_broadcast_axes(w: Tensor, x: Tensor, shape: torch.Size) -> Tensor:
    """Gradient in an argument of ``shape``: ``w x`` for w (...) and x (..., k, k), summed over its broadcast axes."""
    w = w[..., None, None]
    shared = [axis - len(shape) for axis, size in enumerate(shape) if size == 1 and x.shape[axis - len(shape)] > 1]
    if len(shared) != 1 or x.ndim != len(shape):
        return (w * x).sum_to_size(shape)
    parts = zip(w.unbind(shared[0]), x.unbind(shared[0]), strict=True)  # without an array as large as x
    weight, matrix = next(parts)
    total = weight * matrix
    for weight, matrix in parts:
        total.addcmul_(weight, matrix)
    return total.unsqueeze(shared[0])


def _procrustes(a: Tensor, b: Tensor, derive: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Squared distance, and half its derivatives in ``a`` and ``b``, not yet summed over broadcast axes.

    The derivatives may be None unless ``derive`` is true.
    """
    if not _native.supports(a):
        return _procrustes_by_torch(a, b)
    square, in_a, in_b, failed = _native.procrustes(a, b, derive)
    if failed is not None:
        failed_a, failed_b = (x.expand(*failed.shape, *x.shape[-2:])[failed] for x in (a, b))
        square[failed], grad_a, grad_b = _procrustes_by_torch(failed_a, failed_b)
        if in_a is not None and in_b is not None:
            in_a[failed], in_b[failed] = grad_a, grad_b
    return square, in_a, in_b


def _procrustes_by_torch(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute :func:`_procrustes` with torch, where the compiled kernel is unavailable or has failed."""
    q = polar(b.mT @ a)
    in_a = a - b @ q
    return in_a.square().sum((-2, -1)), in_a, b - a @ q.mT


def procrustes(a: Tensor, b: Tensor) -> Tensor:
    r"""Squared Procrustes distance :math:`\min_Q ‖A - B Q‖_F^2` over orthogonal Q, shape (...).

    As the norm of a difference it is free of cancellation.  The gradient, :math:`2 (A - B Q)` in A, needs no inverse.

    Parameters
    ----------
    a, b : Tensor, shape (..., k, k)
        Batch axes broadcast.

    Returns
    -------
    Tensor, shape (...)
    """
    return apply(_Procrustes, a, b)
