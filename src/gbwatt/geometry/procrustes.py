"""Orthogonal alignment: the polar factor, and the Procrustes distance that the Bures-Wasserstein metric is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gbwatt.geometry import _native
from gbwatt.geometry._autograd import apply, differentiable_once
from gbwatt.geometry.linalg import SVD, svd


class _Polar(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, f: Tensor, frame: SVD) -> Tensor:
        ctx.save_for_backward(f, *frame)
        return frame.u @ frame.v.mT

    @staticmethod
    @differentiable_once("the polar factor")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _, u, s, v = ctx.saved_tensors
        inner = u.mT @ grad @ v
        floor = (torch.finfo(s.dtype).eps * s.amax(-1)).clamp_min(torch.finfo(s.dtype).tiny)
        total = (s[..., :, None] + s[..., None, :]).maximum(floor[..., None, None])
        return u @ ((inner - inner.mT) / total) @ v.mT, None


def polar(f: Tensor, frame: SVD | None = None) -> Tensor:
    r"""Orthogonal matrix closest to ``f``: :math:`U V^⊤` for :math:`F = U S V^⊤`, shape (..., k, k).

    Its derivative divides by sums of singular values, never by differences.  ``frame`` is the decomposition of ``f``,
    if it is at hand.
    """
    return apply(_Polar, f, svd(f) if frame is None else frame)


class _Procrustes(torch.autograd.Function):
    """The distance is stationary in Q: its gradient does not see how Q moves."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        square, q = _procrustes(a, b, any(ctx.needs_input_grad))
        ctx.save_for_backward(a, b, q)
        return square

    @staticmethod
    @differentiable_once("the Bures-Wasserstein distance")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b, q = ctx.saved_tensors
        r = 2 * grad[..., None, None] * (a - b @ q)
        return r.sum_to_size(a.shape), (-r @ q.mT).sum_to_size(b.shape)


def _procrustes(a: Tensor, b: Tensor, align: bool) -> tuple[Tensor, Tensor | None]:
    if not _native.supports(a):
        q = polar(b.mT @ a)
        return (a - b @ q).square().sum((-2, -1)), q
    square, aligned, failed = _native.procrustes(a, b, align)
    if bool(failed.any()):
        one, two = (x.expand(*failed.shape, *x.shape[-2:])[failed] for x in (a, b))
        q = polar(two.mT @ one)
        square[failed] = (one - two @ q).square().sum((-2, -1))
        if aligned is not None:
            aligned[failed] = q
    return square, aligned


def procrustes(a: Tensor, b: Tensor) -> Tensor:
    r"""Squared Procrustes distance :math:`\min_Q ‖A - B Q‖_F^2` over orthogonal Q, shape (...).

    The norm of a difference: nothing cancels.  The gradient, :math:`2 (A - B Q)` in A, needs no inverse.

    Parameters
    ----------
    a, b : Tensor, shape (..., k, k)
        Batch axes broadcast.
    """
    return apply(_Procrustes, a, b)
