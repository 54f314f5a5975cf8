"""Binding of the compiled linear algebra of small matrices.

The extension ``_jacobi`` is written in C and optional.  Without it, callers use torch instead, with the same results.
"""

from __future__ import annotations

import math
import os
import warnings
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gbwatt._validation import broadcast_shape, check_one_of
from gbwatt.errors import MismatchError, ParameterError, ShapeError

INTERFACE = 2  # version of the interface of _jacobi, as in _jacobi.c; increase both when a function changes
MAX_SIZE = 64  # largest matrix size k that the kernel accepts; LAPACK is as fast for larger matrices
BLOCK = 16  # matrices that the kernel computes together
MAX_MAPS = 64  # maps of the same matrices
_REAL = (torch.float32, torch.float64)

#: Environment variable that selects the instruction set of the kernels, and its values.
CAPABILITY = "GBWATT_CPU_CAPABILITY"
LEVELS = ("default", "avx2")


def load_kernel(module: str, interface: int) -> Any:
    """Import a compiled kernel and select its instruction set.

    Parameters
    ----------
    module : str
        Name of the extension module.
    interface : int
        Number of the interface for which the binding is written.

    Returns
    -------
    module or None
        None if the kernel was not built, or if it was built from another version of the sources.

    Warns
    -----
    RuntimeWarning
        If the number of its interface differs: its functions would be called with wrong arguments.
    """
    try:
        kernel = import_module(module)
    except ImportError:
        kernel = None
    if kernel is not None and getattr(kernel, "INTERFACE", None) != interface:
        warnings.warn(
            f"{module}: the compiled kernels are from another version of gbwatt; run `pip install .` or `make` again. "
            "Until then gbwatt uses torch instead, which is slower.",
            RuntimeWarning,
            stacklevel=3,
        )
        kernel = None
    force_level(kernel)
    return kernel


def force_level(kernel: Any) -> None:
    """Make a kernel use the instruction set named by ``GBWATT_CPU_CAPABILITY``; without it, the best one is used.

    Raises
    ------
    ParameterError
        If the name is unknown or the processor lacks these instructions.
    """
    level = os.environ.get(CAPABILITY)
    if not level:
        return
    check_one_of(CAPABILITY, level, LEVELS)
    if kernel is None:
        return
    if level not in kernel.levels():
        raise ParameterError(
            f"{CAPABILITY}={level!r}, but this processor lacks these instructions; it has "
            f"{', '.join(map(repr, kernel.levels()))}. Unset the variable to use the best of them."
        )
    kernel.set_level(level)


_jacobi = load_kernel("gbwatt.geometry._native._jacobi", INTERFACE)


def available() -> bool:
    """Whether the compiled kernel is used."""
    return _jacobi is not None


def supports(f: Tensor) -> bool:
    """Whether the compiled kernel accepts these matrices: small, real, dense, on the CPU."""
    return (
        _jacobi is not None
        and f.is_cpu
        and f.dtype in _REAL
        and 0 < f.size(-1) <= MAX_SIZE
        and not torch.compiler.is_compiling()
    )


# --------------------------------------------------------------------------------------------- arguments of the kernels


def arrays(*tensors: Tensor | None) -> list[tuple[int, int]]:
    """Addresses and numbers of bytes of contiguous arrays, which the kernels expect; zeros for None."""
    try:
        return [(0, 0) if x is None else (x.data_ptr(), x.nbytes) for x in tensors]
    except RuntimeError as error:
        raise MismatchError(
            "an array has no memory that a kernel can read; dense tensors on the CPU are required."
        ) from error


def dense(name: str, x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return ``x``, contiguous; raise an error unless it is on the CPU and has this shape and dtype."""
    if x.shape != shape:
        raise ShapeError(f"'{name}' has shape {tuple(x.shape)}, but {tuple(shape)} is required.")
    if x.dtype is not dtype or not x.is_cpu:
        raise MismatchError(
            f"'{name}' is {x.dtype} on {x.device}, but {dtype} on the CPU is required; use {name}.to('cpu', {dtype})."
        )
    return _contiguous(name, x)


def _contiguous(name: str, x: Tensor) -> Tensor:
    """Return ``x`` as a contiguous dense tensor, in which negations are carried out."""
    try:
        return x.resolve_neg().contiguous()
    except RuntimeError as error:
        raise MismatchError(f"'{name}' is {x.layout}, but a dense tensor is required.") from error


def _check_matrices(name: str, x: Tensor, ndim: int = 2) -> Tensor:
    """Return ``x`` (..., k, k), contiguous; raise an error unless the kernel accepts it."""
    shape = x.shape
    if len(shape) < ndim or not 0 < shape[-1] == shape[-2] <= MAX_SIZE:
        raise ShapeError(
            f"'{name}' has shape {tuple(shape)}, but (..., k, k) with k from 1 to {MAX_SIZE} and at least {ndim} axes "
            "is required."
        )
    if x.dtype not in _REAL or not x.is_cpu:
        raise MismatchError(f"'{name}' is {x.dtype} on {x.device}, but float32 or float64 on the CPU is required.")
    return _contiguous(name, x)


def _check_points(name: str, x: Tensor) -> Tensor:
    """Return ``x`` (..., m, k, k), contiguous; raise an error if m is 0."""
    x = _check_matrices(name, x, 3)
    if x.shape[-3] == 0:
        raise ShapeError(f"'{name}' has shape {tuple(x.shape)}, but at least one point is required.")
    return x


def _check_grouped_points(name: str, x: Tensor) -> Tensor:
    """Return points (r, m, k, k) of r problems, contiguous; raise an error for other shapes or m = 0."""
    if x.ndim != 4:
        raise ShapeError(f"'{name}' has shape {tuple(x.shape)}, but (r, m, k, k) is required.")
    return _check_points(name, x)


def _count_matrices(x: Tensor) -> int:
    """Number of matrices in a batch (..., k, k)."""
    return math.prod(x.shape[:-2])


def _size_arguments(x: Tensor) -> tuple[int, int, int, int]:
    """Arguments of kernel functions for matrices (..., k, k): number, k, bytes per element, number of threads."""
    shape = x.shape
    return math.prod(shape[:-2]), shape[-1], x.element_size(), torch.get_num_threads()


# -------------------------------------------------------------------------------------------------------------- jobs


def svd(f: Tensor, right: bool = True) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """``f = u diag(s) vᵀ`` by one-sided Jacobi, for the matrices that :func:`supports` accepts.

    Parameters
    ----------
    f : Tensor, shape (..., k, k)
    right : bool
        Whether to compute v.

    Returns
    -------
    u, s, v, failed : Tensors of shape (..., k, k), (..., k), (..., k, k), (...)
        v is None unless ``right``.  ``failed`` is a mask of singular or non-finite matrices, whose vectors are not
        accurate; None if there are none.
    """
    f = _check_matrices("f", f)
    u, s, v = torch.empty_like(f), f.new_empty(f.shape[:-1]), torch.empty_like(f) if right else None
    failed = torch.empty(f.shape[:-2], dtype=torch.bool)
    bad = _jacobi.svd(*arrays(f, u, s, v, failed), *_size_arguments(f))
    return u, s, v, failed if bad else None


def eigh(x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Eigenvalues and eigenvectors of positive definite matrices (..., k, k); only the lower triangle is read.

    Returns
    -------
    values, u, failed : Tensors of shape (..., k), (..., k, k), (...)
        ``failed`` is a mask of matrices that are not positive definite; None if there are none.
    """
    x = _check_matrices("x", x)
    values, u, failed = x.new_empty(x.shape[:-1]), torch.empty_like(x), torch.empty(x.shape[:-2], dtype=torch.bool)
    bad = _jacobi.eigen(*arrays(x, u, values, failed), *_size_arguments(x))
    return values, u, failed if bad else None


def symmetric(x: Tensor) -> bool:
    """Whether all matrices (..., k, k) are finite and exactly symmetric."""
    x = _check_matrices("x", x)
    return not _jacobi.symmetric(*arrays(x), *_size_arguments(x))


def bimap(x: Tensor, w: Tensor) -> Tensor:
    """``wᵀ x w`` for symmetric x (..., n, n) and w (n, k)."""
    x, w = _check_map(x, w)
    n, k = w.shape
    out = x.new_empty(*x.shape[:-2], k, k)
    _jacobi.map(*arrays(x, w, out), n, _count_matrices(x), k, x.element_size(), torch.get_num_threads())
    return out


def bimap_adjoint(x: Tensor, w: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives of :func:`bimap` in ``x`` and ``w``."""
    x, w = _check_map(x, w)
    n, k = w.shape
    grad = dense("grad", grad, (*x.shape[:-2], k, k), x.dtype)
    out, sums = torch.empty_like(x), x.new_empty(-(-_count_matrices(x) // BLOCK), n, k)
    memory = arrays(x, w, grad, out, sums)
    _jacobi.map_adjoint(*memory, n, _count_matrices(x), k, x.element_size(), torch.get_num_threads())
    return out, sums.sum(0)


def _check_map(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Check matrices (..., n, n) and the map (n, k) of :func:`bimap`; return them contiguous."""
    x = _check_matrices("x", x)
    if w.ndim != 2 or not 0 < w.shape[1] <= MAX_SIZE:
        raise ShapeError(f"'w' has shape {tuple(w.shape)}, but (n, k) with k from 1 to {MAX_SIZE} is required.")
    return x, dense("w", w, (x.shape[-1], w.shape[1]), x.dtype)


def compose(u: Tensor, s: Tensor) -> Tensor:
    """``u diag(s) uᵀ`` for u (..., k, k) and s (..., k), exactly symmetric."""
    u = _check_matrices("u", u)
    s = dense("s", s, u.shape[:-1], u.dtype)
    out = torch.empty_like(u)
    _jacobi.compose(*arrays(u, s, out), *_size_arguments(u))
    return out


#: Functions whose derivative the kernel computes: powers a^p, and log(max(a, p)).
POWER, LOGARITHM = 0, 1


def derive(u: Tensor, values: Tensor, grad: Tensor, function: int, parameter: float) -> Tensor:
    """Derivative of POWER or LOGARITHM in matrices with eigenvectors u and eigenvalues ``values``, from ``grad``."""
    u = _check_matrices("u", u)
    values, grad = dense("values", values, u.shape[:-1], u.dtype), dense("grad", grad, u.shape, u.dtype)
    out = torch.empty_like(u)
    _jacobi.derive(*arrays(u, values, grad, out), function, parameter, *_size_arguments(u))
    return out


class Deformed(NamedTuple):
    """Results of :func:`chart` and :func:`unchart`, with their eigenvectors and eigenvalues."""

    value: Tensor
    u: Tensor
    eigenvalues: Tensor


def chart(x: Tensor, c: Tensor, power: float, definite: bool) -> Deformed | None:
    """Factors ``a`` of ``a aᵀ = c⁻¹ x^(2 power) c⁻ᵀ``, the chart of the generalised Bures-Wasserstein metric.

    They are ``c⁻¹ u diag(λ^power)`` for symmetric ``x = u diag(λ) uᵀ`` (..., k, k) and lower triangular ``c``
    (k, k).  None if a matrix is not positive definite or, if ``definite``, singular to working precision.
    """
    return _call_chart_kernel(_jacobi.chart, x, c, power, definite)


def unchart(a: Tensor, c: Tensor, power: float, definite: bool) -> Deformed | None:
    """``(c a aᵀ cᵀ)^power`` for ``a`` (..., k, k) and lower triangular ``c`` (k, k); None as for :func:`chart`."""
    return _call_chart_kernel(_jacobi.unchart, a, c, power, definite)


def _call_chart_kernel(job: Any, x: Tensor, c: Tensor, power: float, definite: bool) -> Deformed | None:
    """Call the kernel of :func:`chart` or :func:`unchart`; None if it rejects a matrix."""
    x = _check_matrices("x", x)
    c = dense("c", c, x.shape[-2:], x.dtype)
    value, u, eigenvalues = torch.empty_like(x), torch.empty_like(x), x.new_empty(x.shape[:-1])
    failures = job(*arrays(x, c, u, eigenvalues, value), power, definite, *_size_arguments(x))
    return None if failures else Deformed(value, u, eigenvalues)


def chart_adjoint(
    _x: Tensor, deformed: Deformed, c: Tensor, power: float, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives in ``x``, ``c`` and the power of a function of :func:`chart` that is invariant to rotated factors.

    The derivative in the power is given for each matrix, (...).
    """
    return _call_chart_adjoint(_jacobi.chart_adjoint, deformed.value, deformed, c, power, grad)


def unchart_adjoint(
    a: Tensor, deformed: Deformed, c: Tensor, power: float, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives in ``a``, ``c`` and the power of a function of :func:`unchart`, as :func:`chart_adjoint`."""
    return _call_chart_adjoint(_jacobi.unchart_adjoint, a, deformed, c, power, grad)


def _call_chart_adjoint(
    job: Any, a: Tensor, deformed: Deformed, c: Tensor, power: float, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Call the kernel of :func:`chart_adjoint` or :func:`unchart_adjoint`."""
    a = _check_matrices("a", a)
    shape, dtype = a.shape, a.dtype
    c, grad = dense("c", c, shape[-2:], dtype), dense("grad", grad, shape, dtype)
    u = dense("u", deformed.u, shape, dtype)
    eigenvalues = dense("eigenvalues", deformed.eigenvalues, shape[:-1], dtype)
    out, slopes = torch.empty_like(a), a.new_empty(shape[:-2])
    sums = a.new_empty(-(-slopes.numel() // BLOCK), *c.shape)
    job(*arrays(a, c, u, eigenvalues, grad, out, sums, slopes), power, *_size_arguments(a))
    return out, sums.sum(0).tril(), slopes


def mapped_charts(x: Tensor, d: Tensor, power: float, definite: bool) -> Deformed | None:
    """Factors :func:`chart` of ``wᵀ x w`` for several orthogonal maps w, from one decomposition of x.

    They are ``d u diag(λ^power)`` for symmetric ``x = u diag(λ) uᵀ`` (..., k, k) and ``d = c⁻¹ wᵀ`` (maps, k, k).

    Returns
    -------
    Deformed or None
        The values (maps, ..., k, k), with eigenvectors and eigenvalues of x; None as for :func:`chart`.
    """
    x = _check_matrices("x", x)
    d = _check_maps(d, x)
    value, u, eigenvalues = x.new_empty(len(d), *x.shape), torch.empty_like(x), x.new_empty(x.shape[:-1])
    memory = arrays(x, d, u, eigenvalues, value)
    failures = _jacobi.mapped_chart(*memory, power, definite, len(d), *_size_arguments(x))
    return None if failures else Deformed(value, u, eigenvalues)


def mapped_charts_adjoint(
    deformed: Deformed, d: Tensor, power: float, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Derivatives of functions of :func:`mapped_charts` that are invariant to rotated factors.

    Returns
    -------
    in_x, in_d, in_w, slopes : Tensors of shape (..., k, k), (maps, k, k), (maps, k, k), (...)
        Derivatives in x, in d alone, and in the power.  The derivative in a map w of ``wᵀ x w`` is ``in_w @ w``.
    """
    u = _check_matrices("u", deformed.u)
    d = _check_maps(d, u)
    shape, dtype = u.shape, u.dtype
    grad = dense("grad", grad, (len(d), *shape), dtype)
    eigenvalues = dense("eigenvalues", deformed.eigenvalues, shape[:-1], dtype)
    out, slopes = torch.empty_like(u), u.new_empty(shape[:-2])
    sums = u.new_empty(-(-slopes.numel() // BLOCK), len(d), 2, *shape[-2:])
    memory = arrays(d, u, eigenvalues, grad, out, sums, slopes)
    _jacobi.mapped_chart_adjoint(*memory, power, len(d), *_size_arguments(u))
    in_d, in_w = sums.sum(0).unbind(1)
    return out, in_d, in_w, slopes


def _check_maps(d: Tensor, x: Tensor) -> Tensor:
    """Return maps ``d`` (maps, k, k) of matrices ``x``, contiguous; raise an error for other shapes."""
    if d.ndim != 3 or not 0 < len(d) <= MAX_MAPS:
        raise ShapeError(f"'d' has shape {tuple(d.shape)}, but (maps, k, k) with 1 to {MAX_MAPS} maps is required.")
    return dense("d", d, (len(d), *x.shape[-2:]), x.dtype)


@lru_cache(maxsize=64)
def _source_indices(shape: tuple[int, ...], batch: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Flat indices that broadcast matrices of a batch ``shape`` to ``batch``, so that the kernel needs no copies.

    It is a NumPy array, because a tensor may be bound to inference mode.
    """
    return np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), batch).copy()


def procrustes(a: Tensor, b: Tensor, derive: bool) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """``min |a - b q|²`` over orthogonal ``q``, for factors (..., k, k) whose batch axes broadcast.

    Returns
    -------
    square, in_a, in_b, failed : Tensors of shape (...), (..., k, k), (..., k, k), (...)
        ``in_a`` and ``in_b`` are half the derivatives in ``a`` and ``b``, ``a - b q`` and ``b - a qᵀ``; None unless
        ``derive``.  ``failed`` is None if no matrix failed.
    """
    a, batch = _check_matrices("a", a), broadcast_shape(a.shape[:-2], b.shape[:-2])
    b = dense("b", b, (*b.shape[:-2], *a.shape[-2:]), a.dtype)
    square, failed = a.new_empty(batch), torch.empty(batch, dtype=torch.bool)
    in_a, in_b = (a.new_empty(*batch, *a.shape[-2:]) if derive else None for _ in range(2))
    which = [torch.from_numpy(_source_indices(x.shape[:-2], batch)) for x in (a, b)]
    memory = arrays(a, b, *which, square, in_a, in_b, failed)
    sizes = (failed.numel(), a.shape[-1], a.element_size(), torch.get_num_threads())
    bad = _jacobi.procrustes(*memory, _count_matrices(a), _count_matrices(b), *sizes)
    return square, in_a, in_b, failed if bad else None


def bures_start(b: Tensor) -> Tensor | None:
    """A factor (..., k, k) of the mean of ``b_j b_jᵀ`` over points (..., m, k, k); None if one is singular."""
    b = _check_points("b", b)
    out = b.new_empty(*b.shape[:-3], *b.shape[-2:])
    return None if _jacobi.bures_start(*arrays(b, out), b.shape[-3], *_size_arguments(out)) else out


def bures_frames(n: Tensor, b: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Frames ``nᵀ b_j = u diag(s) vᵀ`` of points, for ``n`` (..., k, k) and ``b`` (..., m, k, k).

    If the points are already rotated by orthogonal matrices ``before``, ``v`` is relative to the original points.

    Returns
    -------
    u, v, rotated, aligned : Tensors of shape (..., m, k, k)
        ``rotated`` are the points times ``v``, ``aligned`` the points times ``v uᵀ``.  None if a matrix was
        singular or not finite.
    """
    b = _check_points("b", b)
    shape, dtype = b.shape, b.dtype
    n = dense("n", n, (*shape[:-3], *shape[-2:]), dtype)
    before = None if before is None else dense("before", before, shape, dtype)
    u, v, rotated, aligned = (torch.empty_like(b) for _ in range(4))
    memory = arrays(n, b, before, u, v, rotated, aligned)
    return None if _jacobi.bures_frames(*memory, shape[-3], *_size_arguments(b)) else (u, v, rotated, aligned)


def bures_step(n: Tensor, b: Tensor, w: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """``Σ_j w_j b_j q_j`` with the orthogonal ``q_j`` that bring ``b_j`` closest to ``n``.

    Parameters
    ----------
    n, b, w : Tensors, shape (r, k, k), (r, m, k, k), (r, m)
    tolerance : float
        Cosine of two singular vectors of ``nᵀ b_j`` that counts as orthogonal, if above rounding.

    Returns
    -------
    new, residual, rotated, failed : Tensors of shape (r, k, k), (r,), (r, m, k, k), (r,)
        ``rotated`` are the points times their right singular vectors, with which the next step is faster.  ``failed``
        is None if no problem failed.
    """
    n, b, w = _check_problems(n, b, w)
    new, residual, failed = _allocate_results(n)
    rotated = torch.empty_like(b)
    memory = arrays(n, b, w, new, residual, rotated, failed)
    return (
        new,
        residual,
        rotated,
        failed if _jacobi.bures_step(*memory, tolerance, b.shape[1], *_size_arguments(n)) else None,
    )


def bures_iterate_in_frames(
    n: Tensor, b: Tensor, w: Tensor, u: Tensor, tolerance: float, max_steps: int, base: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Iterate :func:`bures_step` to its fixed point, the mean, without decomposing matrices in every step.

    Polar factors are corrected to first order from the frames: the singular vectors at a nearby point.

    Parameters
    ----------
    n, w : Tensors, shape (r, k, k), (r, m)
        First iterates, and weights.
    b, u : Tensors, shape (i, m, k, k)
        Points, each set shared by r / i consecutive problems, and frames: orthogonal matrices for which ``uᵀ nᵀ b``
        is nearly diagonal.
    tolerance : float
        Relative residual of the fixed point.
    max_steps : int
        Maximal number of steps.
    base : Tensor, shape (i, k, k), optional
        The iterates before ``n``.

    Returns
    -------
    mean, residual, steps, converged : Tensors of shape (r, k, k), (r,), (r,), (r,)
        Problems that are too far from the frames or converge slowly stop early: ``mean`` is then the last iterate, and
        ``converged`` is false.
    """
    n, b, w, q = _check_shared_problems(n, b, w)
    u = dense("u", u, b.shape, b.dtype)
    base = None if base is None else dense("base", base, (len(b), *n.shape[1:]), b.dtype)
    mean, residual, failed = _allocate_results(n)
    steps = torch.zeros(len(n), dtype=torch.long)
    memory = arrays(n, b, w, u, base, mean, residual, steps, failed)
    _jacobi.bures_iterate_in_frames(*memory, tolerance, max_steps, q, b.shape[1], *_size_arguments(n))
    return mean, residual, steps, ~failed


def affine_slope(p: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """``Σ_j w_j log(pᵀ b_j b_jᵀ p)``, the step from ``n`` to the affine-invariant mean, for ``p = n⁻ᵀ``.

    Parameters
    ----------
    p, b, w : Tensors, shape (r, k, k), (r, m, k, k), (r, m)

    Returns
    -------
    slope, tau, failed : Tensors of shape (r, k, k), (r,), (r,)
        ``tau`` is the size of the step along the slope.  ``failed`` is None if no problem failed.
    """
    p, b, w = _check_problems(p, b, w)
    slope, tau, failed = _allocate_results(p)
    memory = arrays(p, b, w, slope, tau, failed)
    return slope, tau, failed if _jacobi.affine_slope(*memory, b.shape[1], *_size_arguments(p)) else None


def bures_adjoint(
    n: Tensor, b: Tensor, w: Tensor, grad: Tensor, tolerance: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Derivatives in points and weights of the fixed point of :func:`bures_step`, from the derivative in it.

    Parameters
    ----------
    n, b, w, grad : Tensors, shape (r, k, k), (i, m, k, k), (r, m), (r, k, k)
    tolerance : float
        Relative residual of the linear equation.

    Returns
    -------
    grad_b, grad_w, failed : Tensors of shape (r, m, k, k), (r, m), (r,)
        ``failed`` is None if no problem failed.
    """
    return _call_mean_adjoint(n, b, w, grad, POWER, tolerance)


def affine_adjoint(
    p: Tensor, b: Tensor, w: Tensor, right: Tensor, tolerance: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Derivatives in points and weights of zeros of :func:`affine_slope`, as in :func:`bures_adjoint`.

    ``right`` is the symmetric part of ``nᵀ grad / 2``.
    """
    return _call_mean_adjoint(p, b, w, right, LOGARITHM, tolerance)


def _call_mean_adjoint(
    n: Tensor, b: Tensor, w: Tensor, grad: Tensor, function: int, tolerance: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Call the kernel for derivatives of means: Bures-Wasserstein (POWER) or affine-invariant (LOGARITHM)."""
    n, b, w, q = _check_shared_problems(n, b, w)
    grad = dense("grad", grad, n.shape, n.dtype)
    grad_b, grad_w = b.new_empty(*w.shape, *n.shape[-2:]), torch.empty_like(w)
    failed = torch.empty(len(n), dtype=torch.bool)
    memory = arrays(n, b, w, grad, grad_b, grad_w, failed)
    bad = _jacobi.adjoint(*memory, function, tolerance, q, b.shape[1], *_size_arguments(n))
    return grad_b, grad_w, failed if bad else None


def _check_problems(n: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Check iterates (r, k, k), points (r, m, k, k) and weights (r, m); return them contiguous."""
    b = _check_grouped_points("b", b)
    rows, m, *square = b.shape
    return dense("n", n, (rows, *square), b.dtype), b, dense("w", w, (rows, m), b.dtype)


def _check_shared_problems(n: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """Check iterates (r, k, k), points (i, m, k, k) and weights (r, m); return them contiguous, and r / i.

    Consecutive groups of r / i problems share their points.
    """
    n, b = _check_matrices("n", n, 3), _check_grouped_points("b", b)
    rows, groups = len(n), len(b)
    if rows and (groups == 0 or rows % groups):
        raise ShapeError(
            f"'n' has {rows} rows and 'b' {groups} groups of points, but the rows must be a multiple of the groups."
        )
    n, b = dense("n", n, (rows, *b.shape[2:]), b.dtype), dense("b", b, (groups, *b.shape[1:]), n.dtype)
    return n, b, dense("w", w, (rows, b.shape[1]), n.dtype), rows // groups if rows else 1


def _allocate_results(n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate results of r problems: a matrix (r, k, k), a number (r,) and a flag of failure (r,) for each."""
    return torch.empty_like(n), n.new_empty(len(n)), torch.empty(len(n), dtype=torch.bool)
