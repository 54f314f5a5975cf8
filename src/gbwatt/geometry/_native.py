"""The compiled linear algebra of small matrices, where it could be built.

The extension ``_jacobi`` is plain C and optional: without a compiler the package installs all the same and the callers
of these functions take their torch path, with the same results.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gbwatt import checks

_jacobi: Any
try:
    from gbwatt.geometry import _jacobi
except ImportError:  # no compiler when the package was installed: torch does the work
    _jacobi = None

MAX_SIZE = 64  # about where LAPACK, which blocks larger matrices better, catches up
BLOCK = 16  # matrices that the kernel works on at a time
_REAL = (torch.float32, torch.float64)


def available() -> bool:
    """Whether the compiled kernel was built with the package."""
    return _jacobi is not None


def supports(f: Tensor) -> bool:
    """Whether the compiled kernel takes these matrices: small, real, dense, on the CPU."""
    return (
        _jacobi is not None
        and f.is_cpu
        and f.dtype in _REAL
        and 0 < f.size(-1) <= MAX_SIZE
        and not torch.compiler.is_compiling()
    )


def _address(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


def _count(x: Tensor) -> int:
    """How many matrices there are."""
    return math.prod(x.shape[:-2])


def _sizes(x: Tensor) -> tuple[int, int, int, int]:
    """What jobs on matrices (..., k, k) have to know."""
    return _count(x), x.size(-1), x.element_size(), torch.get_num_threads()


def svd(f: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """``f = u diag(s) vᵀ`` by one-sided Jacobi, for the matrices that :func:`supports` accepts.

    Parameters
    ----------
    f : Tensor, shape (..., k, k)

    Returns
    -------
    u, s, v, failed : Tensors of shape (..., k, k), (..., k), (..., k, k), (...)
        ``failed`` marks singular or non-finite matrices, whose vectors are not to be trusted; it is None if there are
        none.
    """
    f = f.contiguous()
    u, s, v = torch.empty_like(f), f.new_empty(f.shape[:-1]), torch.empty_like(f)
    failed = torch.empty(f.shape[:-2], dtype=torch.bool)
    arrays = map(_address, (f, u, s, v, failed))
    bad = _jacobi.svd(*arrays, failed.numel(), f.shape[-1], f.element_size(), torch.get_num_threads())
    return u, s, v, failed if bad else None


def eigh(x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Eigenvalues and vectors of positive definite matrices (..., k, k), of which the lower half is read.

    Returns
    -------
    values, u, failed : Tensors of shape (..., k), (..., k, k), (...)
        ``failed`` marks those that are not positive definite; it is None if all are.
    """
    x = x.contiguous()
    values, u, failed = x.new_empty(x.shape[:-1]), torch.empty_like(x), torch.empty(x.shape[:-2], dtype=torch.bool)
    arrays = map(_address, (x, u, values, failed))
    bad = _jacobi.eigen(*arrays, failed.numel(), x.shape[-1], x.element_size(), torch.get_num_threads())
    return values, u, failed if bad else None


def symmetric(x: Tensor) -> bool:
    """Whether all matrices (..., k, k) are finite, and symmetric to the last bit."""
    x = x.contiguous()
    return not _jacobi.symmetric(_address(x), 0, *_sizes(x))


def bimap(x: Tensor, w: Tensor) -> Tensor:
    """``wᵀ x w`` for symmetric x (..., n, n) and w (n, k)."""
    x, w = x.contiguous(), w.contiguous()
    out = x.new_empty(*x.shape[:-2], w.shape[1], w.shape[1])
    _jacobi.map(*map(_address, (x, w, out)), 0, _count(x), *w.shape, x.element_size(), torch.get_num_threads())
    return out


def bimap_adjoint(x: Tensor, w: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives of :func:`bimap` in ``x`` and ``w``."""
    x, w, grad = x.contiguous(), w.contiguous(), grad.contiguous()
    out, sums = torch.empty_like(x), x.new_empty(-(-_count(x) // BLOCK), *w.shape)
    arrays = map(_address, (x, w, grad, out, sums))
    _jacobi.map_adjoint(*arrays, 0, _count(x), *w.shape, x.element_size(), torch.get_num_threads())
    return out, sums.sum(0)


def compose(u: Tensor, s: Tensor) -> Tensor:
    """``u diag(s) uᵀ``, for u (..., k, k) and s (..., k): symmetric to the last bit."""
    u, s = u.contiguous(), s.contiguous()
    out = torch.empty_like(u)
    _jacobi.compose(*map(_address, (u, s, out)), 0, *_sizes(u))
    return out


#: Functions whose derivative the kernel knows: powers, and the logarithm of what is above the parameter.
POWER, LOGARITHM = 0, 1


def derive(u: Tensor, values: Tensor, grad: Tensor, function: int, parameter: float) -> Tensor:
    """Derivative of a function of symmetric matrices with eigenvectors u (..., k, k) and values (..., k)."""
    u, values, grad = u.contiguous(), values.contiguous(), grad.contiguous()
    out = torch.empty_like(u)
    _jacobi.derive(*map(_address, (u, values, grad, out)), 0, function, parameter, *_sizes(u))
    return out


class Deformed(NamedTuple):
    """Values of :func:`chart` and :func:`unchart`, with the eigenvectors and eigenvalues that they were made of."""

    value: Tensor
    u: Tensor
    eigenvalues: Tensor


def chart(x: Tensor, c: Tensor, power: float, definite: bool) -> Deformed | None:
    """``c⁻¹ u diag(λ^power)`` for symmetric ``x = u diag(λ) uᵀ`` (..., k, k) and lower triangular ``c`` (k, k).

    None if a matrix is not positive definite, or, if ``definite``, not far enough from singular.
    """
    return _deform(_jacobi.chart, x, c, power, definite)


def unchart(a: Tensor, c: Tensor, power: float, definite: bool) -> Deformed | None:
    """``(c a aᵀ cᵀ)^power`` for ``a`` (..., k, k) and lower triangular ``c`` (k, k); None as for :func:`chart`."""
    return _deform(_jacobi.unchart, a, c, power, definite)


def _deform(job: Any, x: Tensor, c: Tensor, power: float, definite: bool) -> Deformed | None:
    x, c = x.contiguous(), c.contiguous()
    value, u, eigenvalues = torch.empty_like(x), torch.empty_like(x), x.new_empty(x.shape[:-1])
    failures = job(*map(_address, (x, c, u, eigenvalues, value)), 0, power, definite, *_sizes(x))
    return None if failures else Deformed(value, u, eigenvalues)


def chart_adjoint(_x: Tensor, found: Deformed, c: Tensor, power: float, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives in ``x``, ``c`` and the power of a function of :func:`chart` that is blind to turns of factors.

    That in the power is one for each matrix, (...).
    """
    return _undeform(_jacobi.chart_adjoint, found.value, found, c, power, grad)


def unchart_adjoint(a: Tensor, found: Deformed, c: Tensor, power: float, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives in ``a``, ``c`` and the power, one for each matrix, of what is made of :func:`unchart`."""
    return _undeform(_jacobi.unchart_adjoint, a, found, c, power, grad)


def _undeform(
    job: Any, a: Tensor, found: Deformed, c: Tensor, power: float, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    a, c, grad = a.contiguous(), c.contiguous(), grad.contiguous()
    out, slopes = torch.empty_like(a), a.new_empty(a.shape[:-2])
    sums = a.new_empty(-(-slopes.numel() // BLOCK), *c.shape)
    job(*map(_address, (a, c, found.u, found.eigenvalues, grad, out, sums, slopes)), 0, power, *_sizes(a))
    return out, sums.sum(0).tril(), slopes


@lru_cache(maxsize=64)
def _positions(shape: tuple[int, ...], batch: tuple[int, ...]) -> Tensor:
    """Which of the matrices of a batch each of a larger one is."""
    return torch.arange(math.prod(shape)).reshape(shape).expand(batch).contiguous()


def procrustes(a: Tensor, b: Tensor, derive: bool) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """``min |a - b q|²`` over orthogonal ``q``, for factors (..., k, k) whose batch axes broadcast.

    Returns
    -------
    square, in_a, in_b, failed : Tensors of shape (...), (..., k, k), (..., k, k), (...)
        Half the derivatives in ``a`` and ``b``, ``a - b q`` and ``b - a qᵀ``; None if not ``derive``.  ``failed`` is
        None if nothing did.
    """
    batch = checks.common_shape(a.shape[:-2], b.shape[:-2])
    a, b = a.contiguous(), b.contiguous()
    square, failed = a.new_empty(batch), torch.empty(batch, dtype=torch.bool)
    in_a, in_b = (a.new_empty(*batch, *a.shape[-2:]) if derive else None for _ in range(2))
    which = [_positions(x.shape[:-2], batch) for x in (a, b)]
    arrays = map(_address, (a, b, *which, square, in_a, in_b, failed))
    bad = _jacobi.procrustes(*arrays, failed.numel(), a.shape[-1], a.element_size(), torch.get_num_threads())
    return square, in_a, in_b, failed if bad else None


def bures_start(b: Tensor) -> Tensor | None:
    """A factor (..., k, k) of the mean of ``b_j b_jᵀ`` over points (..., m, k, k); None if one is singular."""
    b = b.contiguous()
    out = b.new_empty(*b.shape[:-3], *b.shape[-2:])
    sizes = (_count(out), *b.shape[-3:-1], b.element_size(), torch.get_num_threads())
    return None if _jacobi.bures_start(_address(b), _address(out), 0, *sizes) else out


def bures_frames(n: Tensor, b: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Frames ``nᵀ b_j = u diag(s) vᵀ`` of points, for ``n`` (..., k, k) and ``b`` (..., m, k, k).

    If the points are turned by orthogonal matrices already, ``before``, ``v`` is that of what they were.

    Returns
    -------
    u, v, turned, aligned : Tensors of shape (..., m, k, k)
        ``turned`` are the points times ``v``, ``aligned`` the points times ``v uᵀ``.  None if a matrix was
        singular or not finite.
    """
    n, b = n.contiguous(), b.contiguous()
    u, v, turned, aligned = (torch.empty_like(b) for _ in range(4))
    arrays = map(_address, (n, b, before, u, v, turned, aligned))
    sizes = (_count(b), *b.shape[-3:-1], b.element_size(), torch.get_num_threads())
    return None if _jacobi.bures_frames(*arrays, 0, *sizes) else (u, v, turned, aligned)


def bures_step(n: Tensor, b: Tensor, w: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """``Σ_j w_j b_j q_j`` with the orthogonal ``q_j`` that bring ``b_j`` closest to ``n``.

    Parameters
    ----------
    n, b, w : Tensors, shape (r, k, k), (r, m, k, k), (r, m)
    tolerance : float
        Cosine of two singular vectors of ``nᵀ b_j`` that counts as orthogonal, if above rounding.

    Returns
    -------
    new, residual, turned, failed : Tensors of shape (r, k, k), (r,), (r, m, k, k), (r,)
        ``turned`` are the points times their right singular vectors: a cheaper start of the next step.  ``failed`` is
        None if nothing did.
    """
    n, b, w = n.contiguous(), b.contiguous(), w.contiguous()
    new, residual, failed = _results(n)
    turned = torch.empty_like(b)
    arrays = map(_address, (n, b, w, new, residual, turned, failed))
    sizes = (len(n), *b.shape[1:3], b.element_size(), torch.get_num_threads())
    return new, residual, turned, failed if _jacobi.bures_step(*arrays, tolerance, *sizes) else None


def bures_walk(
    n: Tensor, b: Tensor, w: Tensor, u: Tensor, tolerance: float, max_steps: int, base: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fixed point of :func:`bures_step`, in the frames of a point close by.

    Parameters
    ----------
    n, w : Tensors, shape (r, k, k), (r, m)
        Where to start, and the weights.
    b, u : Tensors, shape (i, m, k, k)
        Points that as many rows in a row share, and orthogonal matrices for which ``uᵀ nᵀ b`` is nearly diagonal.
    tolerance : float
        Relative residual of the fixed point.
    max_steps : int
        Steps after which a problem is given up.
    base : Tensor, shape (i, k, k), optional
        What ``n`` is a step from.

    Returns
    -------
    mean, residual, steps, converged : Tensors of shape (r, k, k), (r,), (r,), (r,)
        Problems that are too far from the frames, or converge slowly, are given up, with the way they have come.
    """
    n, b, w, u = n.contiguous(), b.contiguous(), w.contiguous(), u.contiguous()
    mean, residual, failed = _results(n)
    steps = torch.zeros(len(n), dtype=torch.long)
    base = base if base is None else base.contiguous()
    arrays = map(_address, (n, b, w, u, base, mean, residual, steps, failed))
    sizes = (len(n), len(n) // max(len(b), 1), *b.shape[1:3], b.element_size())
    _jacobi.bures_walk(*arrays, tolerance, max_steps, *sizes, torch.get_num_threads())
    return mean, residual, steps, ~failed


def affine_slope(p: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """``Σ_j w_j log(pᵀ b_j b_jᵀ p)``, the step from ``n`` to the affine-invariant mean, for ``p = n⁻ᵀ``.

    Parameters
    ----------
    p, b, w : Tensors, shape (r, k, k), (r, m, k, k), (r, m)

    Returns
    -------
    slope, tau, failed : Tensors of shape (r, k, k), (r,), (r,)
        ``tau`` is how much of it to go.  ``failed`` is None if nothing did.
    """
    p, b, w = p.contiguous(), b.contiguous(), w.contiguous()
    slope, tau, failed = _results(p)
    arrays = map(_address, (p, b, w, slope, tau, failed))
    sizes = (len(p), *b.shape[1:3], b.element_size(), torch.get_num_threads())
    return slope, tau, failed if _jacobi.affine_slope(*arrays, *sizes) else None


def bures_adjoint(
    n: Tensor, b: Tensor, w: Tensor, grad: Tensor, tolerance: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Derivatives in points and weights of the fixed point of :func:`bures_step`, from the derivative in it.

    Parameters
    ----------
    n, b, w, grad : Tensors, shape (r, k, k), (i, m, k, k), (r, m), (r, k, k)
    tolerance : float
        Relative residual of the linear equation that is solved.

    Returns
    -------
    grad_b, grad_w, failed : Tensors of shape (r, m, k, k), (r, m), (r,)
        ``failed`` is None if nothing did.
    """
    return _adjoint(n, b, w, grad, POWER, tolerance)


def affine_adjoint(
    p: Tensor, b: Tensor, w: Tensor, right: Tensor, tolerance: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same of means where :func:`affine_slope` is zero; ``right`` is the symmetric part of ``nᵀ grad / 2``."""
    return _adjoint(p, b, w, right, LOGARITHM, tolerance)


def _adjoint(
    n: Tensor, b: Tensor, w: Tensor, grad: Tensor, function: int, tolerance: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    n, b, w, grad = n.contiguous(), b.contiguous(), w.contiguous(), grad.contiguous()
    grad_b, grad_w = b.new_empty(*w.shape, *n.shape[-2:]), torch.empty_like(w)
    failed = torch.empty(len(n), dtype=torch.bool)
    arrays = map(_address, (n, b, w, grad, grad_b, grad_w, failed))
    sizes = (len(n), len(n) // max(len(b), 1), *b.shape[1:3], b.element_size(), torch.get_num_threads())
    return grad_b, grad_w, failed if _jacobi.adjoint(*arrays, function, tolerance, *sizes) else None


def _results(n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(n), n.new_empty(len(n)), torch.empty(len(n), dtype=torch.bool)
