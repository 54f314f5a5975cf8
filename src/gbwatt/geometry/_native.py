"""The compiled linear algebra of small matrices, where it could be built.

The extension ``_jacobi`` is plain C and optional: without a compiler the package installs all the same and the callers
of these functions take their torch path, with the same results.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_jacobi: Any
try:
    from gbwatt.geometry import _jacobi
except ImportError:  # no compiler when the package was installed: torch does the work
    _jacobi = None

MAX_SIZE = 64  # about where LAPACK, which blocks larger matrices better, catches up


def available() -> bool:
    """Whether the compiled kernel was built with the package."""
    return _jacobi is not None


def supports(f: Tensor) -> bool:
    """Whether the compiled kernel takes these matrices: small, real, dense, on the CPU."""
    return (
        _jacobi is not None
        and f.device.type == "cpu"
        and f.dtype in (torch.float32, torch.float64)
        and 0 < f.shape[-1] <= MAX_SIZE
        and not torch.compiler.is_compiling()
    )


def _address(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


def svd(f: Tensor, start: Tensor | None, right: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """``f = u diag(s) vᵀ`` by one-sided Jacobi, for the matrices that :func:`supports` accepts.

    Parameters
    ----------
    f : Tensor, shape (..., k, k)
    start : Tensor, shape (..., k, k) or None
        Orthogonal matrices close to ``v``, from which the iteration starts.
    right : bool
        Whether ``v`` is wanted.

    Returns
    -------
    u, s, v, failed : Tensors of shape (..., k, k), (..., k), (..., k, k) or None, (...)
        ``failed`` marks singular or non-finite matrices, whose vectors are not to be trusted.
    """
    f = f.contiguous()
    start = None if start is None else start.expand(f.shape).contiguous()
    u, s = torch.empty_like(f), f.new_empty(f.shape[:-1])
    v = torch.empty_like(f) if right or start is not None else None
    failed = torch.empty(f.shape[:-2], dtype=torch.bool)
    arrays = map(_address, (f, start, u, s, v, failed))
    _jacobi.svd(*arrays, failed.numel(), f.shape[-1], f.element_size(), torch.get_num_threads())
    return u, s, v, failed


def procrustes(a: Tensor, b: Tensor, align: bool) -> tuple[Tensor, Tensor | None, Tensor]:
    """``min |a - b q|²`` over orthogonal ``q``, for factors (..., k, k) whose batch axes broadcast.

    Returns
    -------
    square, q, failed : Tensors of shape (...), (..., k, k) or None if not ``align``, (...)
    """
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = a.contiguous(), b.contiguous()
    square, failed = a.new_empty(batch), torch.empty(batch, dtype=torch.bool)
    q = a.new_empty(*batch, *a.shape[-2:]) if align else None
    which = [torch.arange(x[..., 0, 0].numel()).reshape(x.shape[:-2]).expand(batch).contiguous() for x in (a, b)]
    arrays = map(_address, (a, b, *which, square, q, failed))
    _jacobi.procrustes(*arrays, failed.numel(), a.shape[-1], a.element_size(), torch.get_num_threads())
    return square, q, failed


def bures_step(
    n: Tensor, b: Tensor, w: Tensor, start: Tensor | None, tolerance: float
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor], Tensor]:
    """``Σ_j w_j b_j q_j`` with the orthogonal ``q_j`` that bring ``b_j`` closest to ``n``.

    Parameters
    ----------
    n, b, w : Tensors, shape (r, k, k), (r, m, k, k), (r, m)
    start : Tensor, shape (r, m, k, k) or None
        Guesses of the right singular vectors of ``nᵀ b_j``.
    tolerance : float
        Cosine of two singular vectors that counts as orthogonal, if above rounding.

    Returns
    -------
    new, residual, (u, s, v), failed : Tensors of shape (r, k, k), (r,), (r, m, ...), (r,)
    """
    start = None if start is None else start.contiguous()
    u, s, v = b.new_empty(b.shape), b.new_empty(b.shape[:-1]), b.new_empty(b.shape)
    new, residual, failed = _bures_step(n, b, w, start, u, s, v, tolerance)
    return new, residual, (u, s, v), failed


def turning_bures_step(n: Tensor, b: Tensor, w: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What :func:`bures_step` finds, with ``b_j v_j`` in place of the frames: a cheaper start of the next step.

    Returns
    -------
    new, residual, turned, failed : Tensors of shape (r, k, k), (r,), (r, m, k, k), (r,)
    """
    turned = b.new_empty(b.shape)
    new, residual, failed = _bures_step(n, b, w, None, turned, None, None, tolerance)
    return new, residual, turned, failed


def _bures_step(
    n: Tensor,
    b: Tensor,
    w: Tensor,
    start: Tensor | None,
    u: Tensor,
    s: Tensor | None,
    v: Tensor | None,
    tolerance: float,
) -> tuple[Tensor, Tensor, Tensor]:
    n, b, w = n.contiguous(), b.contiguous(), w.contiguous()
    new, residual, failed = torch.empty_like(n), n.new_empty(n.shape[0]), torch.empty(n.shape[0], dtype=torch.bool)
    arrays = map(_address, (n, b, w, start, new, residual, u, s, v, failed))
    sizes = (len(n), b.shape[1], b.shape[-1], b.element_size())
    _jacobi.bures_step(*arrays, tolerance, *sizes, torch.get_num_threads())
    return new, residual, failed


def bures_adjoint(
    n: Tensor, frame: tuple[Tensor, Tensor, Tensor], w: Tensor, grad: Tensor, tolerance: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives in points and weights of the fixed point of :func:`bures_step`, from the derivative in it.

    Parameters
    ----------
    n, frame, w, grad : Tensors, shape (r, k, k), (r, m, ...), (r, m), (r, k, k)
    tolerance : float
        Relative residual of the linear equation that is solved.

    Returns
    -------
    grad_b, grad_w, failed : Tensors of shape (r, m, k, k), (r, m), (r,)
    """
    n, w, grad = n.contiguous(), w.contiguous(), grad.contiguous()
    u, s, v = (x.contiguous() for x in frame)
    grad_b, grad_w = torch.empty_like(u), torch.empty_like(w)
    failed = torch.empty(len(n), dtype=torch.bool)
    arrays = map(_address, (n, grad, w, u, s, v, grad_b, grad_w, failed))
    sizes = (len(n), u.shape[1], u.shape[-1], u.element_size())
    _jacobi.bures_adjoint(*arrays, tolerance, *sizes, torch.get_num_threads())
    return grad_b, grad_w, failed
