r"""Functions of symmetric matrices, their derivatives, and the linear equations of the Bures-Wasserstein geometry.

Batch axes come first, and matrices are the last two axes.  All functions support float32 and float64 on the device of
their input.  Derivatives use the Daleckii-Krein formula with quotients that stay accurate when eigenvalues coincide, as
at the identity, where autograd through ``torch.linalg.eigh`` returns NaN.  Second derivatives raise
:class:`~gbwatt.errors.DoubleBackwardError`, except for the Lyapunov solvers, which are twice differentiable.

References
----------
.. [1] Yu. L. Daleckii, S. G. Krein, "Integration and differentiation of functions of Hermitian operators and
   applications to the theory of perturbations", AMS Translations 47, 1965.
.. [2] R. Bhatia, T. Jain, Y. Lim, "On the Bures-Wasserstein distance between positive definite matrices",
   Expositiones Mathematicae 37(2), 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from gbwatt._validation import broadcast_shape, check_finite, check_in_range, raise_not_spd
from gbwatt.errors import DoubleBackwardError
from gbwatt.geometry import _native
from gbwatt.geometry._context import (
    apply,
    as_batches,
    differentiable_once,
    full_precision,
    single_threaded,
    thread_independent,
)
from gbwatt.geometry.symmetric import require_symmetric, sym, symmetric_part, tangent_vectors
from gbwatt.geometry.symmetric import unvech as unvech
from gbwatt.geometry.symmetric import vech as vech

Domain = Literal["symmetric", "rectified", "semidefinite", "definite"]


# ----------------------------------------------------------------------------------------------------- decompositions


class SVD(NamedTuple):
    """Singular value decomposition ``f = u diag(s) vᵀ``; the singular values are in no particular order."""

    u: Tensor
    s: Tensor
    v: Tensor


@torch.no_grad()
def svd(f: Tensor) -> SVD:
    """Singular value decomposition of square matrices; not differentiable.

    Small matrices on the CPU are decomposed by the compiled one-sided Jacobi iteration, which is several times faster
    than LAPACK and preserves the relative precision of small singular values; all others by ``torch.linalg.svd``.

    Parameters
    ----------
    f : Tensor, shape (..., k, k)

    Returns
    -------
    SVD
        ``u`` (..., k, k), ``s`` (..., k), ``v`` (..., k, k).
    """
    if not _native.supports(f):
        return _lapack_svd(f)
    u, s, v, failed = _native.svd(f)
    assert v is not None  # for the type checker
    if failed is not None:
        u[failed], s[failed], v[failed] = _lapack_svd(f[failed])
    return SVD(u, s, v)


def _eigh_of_gram(a: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (..., k) and eigenvectors (..., k, k) of ``a aᵀ`` from the singular values of ``a`` (..., k, k)."""
    if _native.supports(a):
        u, s, _, failed = _native.svd(a, right=False)
        if failed is not None:
            u[failed], s[failed], _ = _lapack_svd(a[failed])
    else:
        u, s, _ = _lapack_svd(a)
    return s.square().clamp_min(torch.finfo(a.dtype).tiny), u


def _lapack_svd(f: Tensor) -> SVD:
    """Singular value decomposition by torch, where the compiled kernel is unavailable or has failed."""
    with single_threaded(f), converging(f):
        u, s, vh = torch.linalg.svd(f)
    return SVD(u, s, vh.mT)


def _eigh(x: Tensor, definite: bool) -> tuple[Tensor, Tensor]:
    """Eigenvalues (..., k) and eigenvectors (..., k, k), in no particular order.

    ``definite`` says that the matrices are mostly positive definite; the kernel then decomposes their Cholesky factors,
    and LAPACK the matrices for which that fails.
    """
    if not definite or not _native.supports(x):
        return _lapack_eigh(x)
    values, u, failed = _native.eigh(x)
    if failed is not None:
        values[failed], u[failed] = _lapack_eigh(x[failed])
    return values, u


@contextmanager
def converging(x: Tensor) -> Iterator[None]:
    """Context that raises RangeError if a decomposition does not converge because its matrix ``x`` has overflowed."""
    try:
        yield
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        check_in_range("an intermediate matrix", x.detach())
        raise


def _lapack_eigh(x: Tensor) -> tuple[Tensor, Tensor]:
    """Eigendecomposition by torch, where the compiled kernel is unavailable or has failed."""
    with single_threaded(x), converging(x):
        values, vectors = torch.linalg.eigh(x)
    return values, vectors


def eigh(x: Tensor, domain: Domain = "symmetric", name: str = "x") -> tuple[Tensor, Tensor]:
    r"""Eigenvalues (..., k) and eigenvectors (..., k, k), with the eigenvalues checked against a domain.

    Not differentiable, and in no particular order.  "symmetric" accepts all symmetric matrices.  So does "rectified",
    for functions that rectify eigenvalues and are mostly applied to definite matrices.  "definite" requires
    :math:`λ_{\min} > ε λ_{\max}`.  "semidefinite" accepts eigenvalues that are negative due to rounding and lifts them
    to :math:`ε λ_{\max}`, but rejects zero matrices.  Floors are relative to the largest eigenvalue, so that
    covariances in V² are not affected.
    """
    with torch.no_grad():
        values, vectors = _eigh(x, domain != "symmetric")
        if domain in ("symmetric", "rectified"):
            return values, vectors
        eps = torch.finfo(x.dtype).eps
        high = values.amax(-1)
        low = values.amin(-1)
        bad = low <= eps * high if domain == "definite" else (low < -8 * x.shape[-1] * eps * high) | (high <= 0)
        if not torch.compiler.is_compiling() and bool(bad.any()):
            raise_not_spd(name, x, values, bad)
        floor = (eps * high).clamp_min(torch.finfo(x.dtype).tiny)
        return values.maximum(floor[..., None]), vectors


def factor(x: Tensor, name: str = "x", domain: Domain = "semidefinite") -> Tensor:
    """A matrix ``a`` with ``x = a aᵀ``, shape (..., k, k), differentiable.

    The Cholesky factor.  If it does not exist because ``x`` is singular to working precision, the symmetric square root
    with eigenvalues lifted to the rounding level is used instead, unless ``domain`` is "definite".
    """
    low: Tensor
    if torch.compiler.is_compiling():
        low, _ = torch.linalg.cholesky_ex(x)
        return low
    with single_threaded(x):
        low, info = torch.linalg.cholesky_ex(x.detach())
    if not bool(info.any()):
        return apply(_Cholesky, x, low) if x.requires_grad else low
    failed = info > 0
    if domain == "definite":
        raise_not_spd(name, x, torch.linalg.eigvalsh(x.detach()), failed)
    failed, eye = failed[..., None, None], torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    root = spectral(torch.where(failed, x, eye), SQRT, name=name)
    return torch.where(failed, root, apply(_Cholesky, x, torch.where(failed, eye, low)))


class _Cholesky(torch.autograd.Function):
    r"""A precomputed Cholesky factor ``low`` (L) of ``x``, with the derivative :math:`L^{-⊤} Φ(L^⊤ \bar L) L^{-1}`.

    Φ takes the lower triangle, with half the diagonal.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: Tensor) -> Tensor:  # noqa: ARG004
        out = low.view_as(low)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @full_precision
    @thread_independent
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        (low,) = ctx.saved_tensors
        inner = (low.mT @ grad[0]).tril()
        inner = inner - inner.diagonal(dim1=-2, dim2=-1).diag_embed() / 2
        half = solve_lower(low, inner.mT, transposed=True).mT  # Φ L⁻¹
        return sym(solve_lower(low, half, transposed=True)), None


class _SolveLower(torch.autograd.Function):
    """``l⁻¹ b`` or ``l⁻ᵀ b`` for lower triangular ``l``."""

    @staticmethod
    def forward(ctx: Any, low: Tensor, b: Tensor, transposed: bool) -> Tensor:
        with single_threaded(low):
            out: Tensor = torch.linalg.solve_triangular(low.mT if transposed else low, b, upper=transposed)
        ctx.save_for_backward(low, out)
        ctx.transposed = transposed
        return out

    @staticmethod
    @full_precision
    @thread_independent
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        low, out = ctx.saved_tensors
        in_b = solve_lower(low, grad[0], not ctx.transposed)
        in_low = out @ in_b.mT if ctx.transposed else in_b @ out.mT
        return -in_low.tril(), in_b, None


def solve_lower(low: Tensor, b: Tensor, transposed: bool = False) -> Tensor:
    """``l⁻¹ b``, or ``l⁻ᵀ b`` if ``transposed``, for lower triangular ``low`` (..., k, k) and ``b`` (..., k, n)."""
    if torch.compiler.is_compiling():
        out: Tensor = torch.linalg.solve_triangular(low.mT if transposed else low, b, upper=transposed)
        return out
    return apply(_SolveLower, low, b, transposed)


# ------------------------------------------------------------------------------------------------- spectral functions


@dataclass(frozen=True)
class SpectralFunction:
    """A scalar function f(λ; p) of the eigenvalues of a symmetric matrix, with its first differences.

    Parameters
    ----------
    name : str
        Name in error messages.
    value : callable (λ, p) -> f(λ; p)
    quotient : callable (a, b, p) -> (f(a) - f(b)) / (a - b)
        The Loewner matrix, f'(a) where a = b, accurate for any distance of a and b.
    slope : callable (λ, p) -> ∂f/∂p, optional
        Required if the parameter itself is differentiated.
    domain : "symmetric", "rectified", "semidefinite" or "definite"
        Matrices on which the function is defined, see :func:`eigh`.
    native : int, optional
        Number of the function in the compiled kernel, if that computes its derivative.
    exponent : float, optional
        Parameter p in the kernel of a function that has no parameter itself, such as the square root.
    """

    name: str
    value: Callable[[Tensor, Tensor], Tensor]
    quotient: Callable[[Tensor, Tensor, Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor] | None = None
    domain: Domain = "symmetric"
    native: int | None = None
    exponent: float | None = None


def _log_ratio(a: Tensor, b: Tensor) -> Tensor:
    """``log(a / b)`` without cancellation."""
    z = (a - b) / (a + b)
    return torch.where(z.abs() < 0.5, 2 * torch.atanh(z), a.log() - b.log())


def _log_quotient(a: Tensor, b: Tensor, _p: Tensor) -> Tensor:
    """Difference quotient ``(log a - log b) / (a - b)`` without cancellation; the derivative if a = b."""
    return torch.where(a == b, 1 / a, _log_ratio(a, b) / torch.where(a == b, 1, a - b))


def _exp_quotient(a: Tensor, b: Tensor, _p: Tensor) -> Tensor:
    """Difference quotient ``(e^a - e^b) / (a - b)`` without cancellation; the derivative if a = b."""
    gap = (a - b).abs()
    mean_of_decay = torch.where(gap == 0, 1, -torch.expm1(-gap) / torch.where(gap == 0, 1, gap))
    return torch.maximum(a, b).exp() * mean_of_decay


def _power_quotient(a: Tensor, b: Tensor, p: Tensor) -> Tensor:
    """Difference quotient ``(a^p - b^p) / (a - b)`` without cancellation; the derivative if a = b."""
    half = _log_ratio(a, b) / 2  # a^p - b^p = 2 (ab)^(p/2) sinh(p half)
    ratio = torch.where(half == 0, p, torch.sinh(p * half) / torch.where(half == 0, 1, torch.sinh(half)))
    close = (a.log() + b.log()).mul((p - 1) / 2).exp() * ratio
    return torch.where(half.abs() < 0.5, close, (a**p - b**p) / torch.where(a == b, 1, a - b))


def _reeig_quotient(a: Tensor, b: Tensor, p: Tensor) -> Tensor:
    """Difference quotient of ``max(x, p)`` at a and b; the derivative if a = b."""
    rise = torch.maximum(a, p) - torch.maximum(b, p)
    mixed = (a > p) != (b > p)
    return torch.where(mixed, rise / torch.where(a == b, 1, a - b), ((a > p) & (b > p)).to(a.dtype))


def _log_reeig_quotient(a: Tensor, b: Tensor, p: Tensor) -> Tensor:
    """Difference quotient of ``log max(x, p)`` at a and b; the derivative if a = b."""
    return _log_quotient(torch.maximum(a, p), torch.maximum(b, p), p) * _reeig_quotient(a, b, p)


LOG = SpectralFunction(
    "the matrix logarithm", lambda x, _: x.log(), _log_quotient, domain="definite", native=_native.LOGARITHM
)
EXP = SpectralFunction("the matrix exponential", lambda x, _: x.exp(), _exp_quotient)
SQRT = SpectralFunction(
    "the matrix square root",
    lambda x, _: x.sqrt(),
    lambda a, b, _: 1 / (a.sqrt() + b.sqrt()),
    domain="semidefinite",
    native=_native.POWER,
    exponent=0.5,
)
INVSQRT = SpectralFunction(
    "the inverse square root",
    lambda x, _: x.rsqrt(),
    lambda a, b, _: -1 / (a.sqrt() * b.sqrt() * (a.sqrt() + b.sqrt())),
    domain="definite",
    native=_native.POWER,
    exponent=-0.5,
)
POWER = SpectralFunction(
    "the matrix power",
    lambda x, p: x**p,
    _power_quotient,
    lambda x, p: x**p * x.log(),
    domain="semidefinite",
    native=_native.POWER,
)
INVERSE_POWER = replace(POWER, domain="definite")
REEIG = SpectralFunction("ReEig", torch.maximum, _reeig_quotient, domain="rectified")
LOG_REEIG = SpectralFunction(
    "the logarithm of rectified eigenvalues",
    lambda x, p: torch.maximum(x, p).log(),
    _log_reeig_quotient,
    domain="rectified",
    native=_native.LOGARITHM,
)


def _difference_quotients(f: SpectralFunction, values: Tensor, p: Tensor) -> Tensor:
    """Loewner matrix: difference quotients of f at all pairs of eigenvalues, shape (..., k, k)."""
    with single_threaded(values):
        return f.quotient(values[..., :, None], values[..., None, :], p[..., None, None])


def _from_eigenvalues(u: Tensor, values: Tensor) -> Tensor:
    """Symmetric matrix ``u diag(values) uᵀ``, shape (..., k, k)."""
    if _native.supports(u) and values.shape == u.shape[:-1]:
        return _native.compose(u, values)
    left = u * values[..., None, :]
    return sym(product(left, u.mT.expand(left.shape)))


def _daleckii_krein(u: Tensor, quotients: Tensor, v: Tensor) -> Tensor:
    """Daleckii-Krein derivative ``u (quotients ∘ uᵀ sym(v) u) uᵀ`` in direction ``v``, shape (..., k, k)."""
    return sym(u @ (quotients * (u.mT @ sym(v) @ u)) @ u.mT)


def _spectral_gradient(f: SpectralFunction, p: Tensor, values: Tensor, u: Tensor, grad: Tensor) -> Tensor:
    """Gradient in the matrix of ``f(x; p)``, from the eigendecomposition and the gradient ``grad`` of the result."""
    if f.native is not None and p.numel() == 1 and _native.supports(u):
        return _native.derive(u, values, grad, f.native, float(p) if f.exponent is None else f.exponent)
    return _daleckii_krein(u, _difference_quotients(f, values, p), grad)


class _Spectral(torch.autograd.Function):
    """f(x), or f(x xᵀ) for ``gram``, with the Daleckii-Krein derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: Tensor, f: SpectralFunction, gram: bool, name: str) -> Tensor:
        if gram:
            values, u = _eigh_of_gram(x)
        else:
            values, u = eigh(x, f.domain, name)
        ctx.save_for_backward(x, values, u, p)
        ctx.f, ctx.gram = f, gram
        with single_threaded(x):  # the last bit of vectorised functions may depend on how threads divide the array
            values = f.value(values, p[..., None])
        return _from_eigenvalues(u, values)

    @staticmethod
    @differentiable_once("a function of a symmetric matrix")
    @thread_independent
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, values, u, p = ctx.saved_tensors
        grad_x = grad_p = None
        if ctx.needs_input_grad[0]:
            grad_x = _spectral_gradient(ctx.f, p, values, u, grad)
            grad_x = grad_x.mul_(2) @ x if ctx.gram else grad_x
        if ctx.needs_input_grad[1]:
            inner = u.mT @ sym(grad) @ u
            slope = inner.diagonal(dim1=-2, dim2=-1) * ctx.f.slope(values, p[..., None])
            grad_p = slope.sum(-1).sum_to_size(p.shape)
        return grad_x, grad_p, None, None, None


def spectral(x: Tensor, f: SpectralFunction, p: Tensor | float = 0.0, *, gram: bool = False, name: str = "x") -> Tensor:
    r"""Function of symmetric matrices, :math:`f(X) = U f(Λ) U^⊤` for :math:`X = U Λ U^⊤` (Eqs. 1-2 of the paper).

    The derivative is that of Daleckii and Krein [1]_: :math:`U (K ∘ U^⊤ H U) U^⊤` with
    :math:`K_{ij} = (f(λ_i) - f(λ_j)) / (λ_i - λ_j)`.

    Parameters
    ----------
    x : Tensor, shape (..., k, k)
        Symmetric matrices, or any square matrices if ``gram``.
    f : SpectralFunction
    p : Tensor, shape broadcastable to (...), or float
        The parameter of ``f``; differentiable if ``f`` has a slope.
    gram : bool
        Evaluate :math:`f(X X^⊤)` from the singular values of x, which is more precise than from the eigenvalues of the
        product.
    name : str
        Name of ``x`` in error messages.

    Returns
    -------
    Tensor, shape (..., k, k)
    """
    p = torch.as_tensor(p, dtype=x.dtype, device=x.device)
    return apply(_Spectral, x, p, f, gram, name)


class _SpectralDerivative(torch.autograd.Function):
    """Directional derivative, which is self-adjoint in v, so that the backward pass is the same function."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, kernel: Tensor, u: Tensor, x: Tensor, p: Tensor) -> Tensor:
        ctx.save_for_backward(kernel, u, x, p)
        return _daleckii_krein(u, kernel, v)

    @staticmethod
    @full_precision
    @thread_independent
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        if any(ctx.needs_input_grad[3:]):
            raise DoubleBackwardError(
                "the directional derivative of a matrix function is differentiable in the direction, not in the "
                "matrix or its parameter: detach the base point and theta."
            )
        return apply(_SpectralDerivative, grad[0], *ctx.saved_tensors), *[None] * 4


def spectral_derivative(
    x: Tensor, v: Tensor, f: SpectralFunction, p: Tensor | float = 0.0, *, inverse: bool = False
) -> Tensor:
    r"""Directional derivative :math:`Df(X)[V]` of a spectral function, or the solution W of :math:`Df(X)[W] = V`.

    Differentiable in ``v``.  Derivatives in ``x`` and ``p``, which would require second derivatives of the spectral
    function, raise :class:`~gbwatt.errors.DoubleBackwardError`.

    Parameters
    ----------
    x, v : Tensor, shape (..., k, k)
        Symmetric matrices.
    f : SpectralFunction
    p : Tensor, shape broadcastable to (...), or float
    inverse : bool
        Solve for the direction instead.

    Returns
    -------
    Tensor, shape (..., k, k)
    """
    p = torch.as_tensor(p, dtype=x.dtype, device=x.device)
    with torch.no_grad():
        values, u = eigh(x, f.domain)
        kernel = _difference_quotients(f, values, p)
        kernel = 1 / kernel if inverse else kernel
    return apply(_SpectralDerivative, v, kernel, u, x, p)


@full_precision
@thread_independent
def logm(x: Tensor) -> Tensor:
    """Matrix logarithm of positive definite matrices.

    Parameters
    ----------
    x : Tensor, shape (..., k, k)
        Positive definite matrices.

    Returns
    -------
    Tensor, shape (..., k, k)

    Raises
    ------
    NotSPDError
        If a matrix is not positive definite.

    Examples
    --------
    >>> logm(torch.eye(2))
    tensor([[0., 0.],
            [0., 0.]])
    """
    require_symmetric(x=x)
    return in_range("logm(x)", spectral(x, LOG))


@full_precision
@thread_independent
def expm(x: Tensor) -> Tensor:
    """Matrix exponential of symmetric matrices.

    Parameters
    ----------
    x : Tensor, shape (..., k, k)
        Symmetric matrices.

    Returns
    -------
    Tensor, shape (..., k, k)

    Raises
    ------
    RangeError
        If the result exceeds the range of the dtype.

    Examples
    --------
    >>> expm(torch.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    return in_range("expm(x)", spectral(symmetric_part("x", x, 1.0), EXP))


def in_range(what: str, x: Tensor) -> Tensor:
    """Return ``x``; raise :class:`~gbwatt.errors.RangeError` if it is not finite.  ``what`` names it in the message."""
    if not torch.compiler.is_compiling():
        check_in_range(what, x.detach())
    return x


@full_precision
@thread_independent
def sqrtm(x: Tensor) -> Tensor:
    """Symmetric square root of positive (semi)definite matrices.

    Parameters
    ----------
    x : Tensor, shape (..., k, k)
        Positive definite or semidefinite matrices.

    Returns
    -------
    Tensor, shape (..., k, k)

    Raises
    ------
    NotSPDError
        If a matrix has negative eigenvalues beyond rounding.

    Examples
    --------
    >>> sqrtm(4 * torch.eye(2))
    tensor([[2., 0.],
            [0., 2.]])
    """
    require_symmetric(x=x)
    return in_range("sqrtm(x)", spectral(x, SQRT))


@full_precision
@thread_independent
def invsqrtm(x: Tensor) -> Tensor:
    """Inverse of the symmetric square root of positive definite matrices.

    Parameters
    ----------
    x : Tensor, shape (..., k, k)
        Positive definite matrices.

    Returns
    -------
    Tensor, shape (..., k, k)

    Raises
    ------
    NotSPDError
        If a matrix is not positive definite.

    Examples
    --------
    >>> invsqrtm(4 * torch.eye(2))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]])
    """
    require_symmetric(x=x)
    return in_range("invsqrtm(x)", spectral(x, INVSQRT))


@full_precision
@thread_independent
def powm(x: Tensor, theta: Tensor | float) -> Tensor:
    """Real power of positive definite matrices, also differentiable in ``theta``.

    Parameters
    ----------
    x : Tensor, shape (..., k, k)
        Positive definite matrices; for positive powers also singular ones.
    theta : float or Tensor, shape broadcastable to (...)
        The power.

    Returns
    -------
    Tensor, shape (..., k, k)

    Raises
    ------
    NotSPDError
        If a matrix is not positive definite, or singular and the power negative.

    Examples
    --------
    >>> x = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    >>> powm(x, 2.0)
    tensor([[5.0000, 4.0000],
            [4.0000, 5.0000]])
    """
    require_symmetric(x=x)
    check_finite(theta=theta)
    return in_range("powm(x, theta)", spectral(x, power_function(theta), theta))


def power_function(theta: Tensor | float) -> SpectralFunction:
    """The spectral function λ^θ; negative powers require definite matrices."""
    positive = bool((torch.as_tensor(theta) > 0).all())
    return POWER if positive else INVERSE_POWER


@full_precision
@thread_independent
def reeig(x: Tensor, eps: float = 1e-5) -> Tensor:
    r"""Eigenvalue rectification :math:`U \max(ε, Λ) U^⊤` of symmetric matrices.

    Parameters
    ----------
    x : Tensor, shape (..., k, k)
        Symmetric matrices.
    eps : float
        Threshold ε.

    Returns
    -------
    Tensor, shape (..., k, k)

    Examples
    --------
    >>> reeig(torch.diag(torch.tensor([1.0, -1.0])), eps=0.5)
    tensor([[1.0000, 0.0000],
            [0.0000, 0.5000]])
    """
    require_symmetric(x=x)
    check_finite(eps=eps)
    return in_range("reeig(x)", spectral(x, REEIG, eps))


# ------------------------------------------------------------------------------------------------- Lyapunov equations


class _Lyapunov(torch.autograd.Function):
    """Solution of ``X L + L X = S`` in the eigenbasis of X.

    The derivative solves a Lyapunov equation too, so that it is differentiable again.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, s: Tensor) -> Tensor:
        values, u = eigh(x, "semidefinite")
        out = sym(u @ ((u.mT @ s @ u) / (values[..., :, None] + values[..., None, :])) @ u.mT)
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    @full_precision
    @thread_independent
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        x, out = ctx.saved_tensors
        grad_s = apply(_Lyapunov, x, sym(grad[0]))
        return -2 * sym(grad_s @ out), grad_s


@full_precision
@thread_independent
def lyapunov(x: Tensor, s: Tensor) -> Tensor:
    r"""Solution :math:`L` of the Lyapunov equation :math:`X L + L X = S` (Eq. 6 of the paper); twice differentiable.

    Parameters
    ----------
    x : Tensor, shape (..., k, k)
        Positive definite matrices.
    s : Tensor, shape (..., k, k)
        Symmetric matrices.

    Returns
    -------
    Tensor, shape (..., k, k)
        Symmetric matrices.

    Examples
    --------
    >>> lyapunov(torch.eye(2), torch.ones(2, 2))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    require_symmetric(x=x)
    return in_range("lyapunov(x, s)", _lyapunov(x, *tangent_vectors(x, s=s)))


def _lyapunov(x: Tensor, s: Tensor) -> Tensor:
    """Solve ``X L + L X = S`` for matrices that have been checked."""
    x, s = torch.broadcast_tensors(x, s)
    return apply(_Lyapunov, sym(x), sym(s))


@full_precision
@thread_independent
def generalized_lyapunov(x: Tensor, m: Tensor, s: Tensor) -> Tensor:
    r"""Solution :math:`L` of :math:`X L M + M L X = S`; twice differentiable.

    With :math:`M = C C^⊤` it is the Lyapunov equation of :math:`C^{-1} X C^{-⊤}` and :math:`C^{-1} S C^{-⊤}`.

    Parameters
    ----------
    x, m : Tensor, shape (..., k, k)
        Positive definite matrices.
    s : Tensor, shape (..., k, k)
        Symmetric matrices.

    Returns
    -------
    Tensor, shape (..., k, k)
        Symmetric matrices.

    Examples
    --------
    >>> generalized_lyapunov(torch.eye(2), 2 * torch.eye(2), torch.ones(2, 2))
    tensor([[0.2500, 0.2500],
            [0.2500, 0.2500]])
    """
    require_symmetric(x=x, m=m)
    (s,) = tangent_vectors(x, s=s)
    c = factor(m, "m", "definite")
    solution = congruence(inverse(c).mT, _lyapunov(whiten(c, x), whiten(c, s)))
    return in_range("generalized_lyapunov(x, m, s)", solution)


def congruence(a: Tensor, x: Tensor) -> Tensor:
    """``a x aᵀ``, exactly symmetric, shape (..., k, k)."""
    a, x = as_batches(a, x)
    return sym(a @ x @ a.mT)


class _Solve(torch.autograd.Function):
    """``a⁻¹ b``; the derivative is the solution of another system, so that it is differentiable again."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        with single_threaded(a):
            out: Tensor = torch.linalg.solve(a, b)
        ctx.save_for_backward(a, out)
        return out

    @staticmethod
    @full_precision
    @thread_independent
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        a, out = ctx.saved_tensors
        in_b = apply(_Solve, a.mT, grad[0])
        return -in_b @ out.mT if ctx.needs_input_grad[0] else None, in_b


def solve(a: Tensor, b: Tensor) -> Tensor:
    """``a⁻¹ b``, shape (..., k, k) and (..., k, n), whose batch axes broadcast."""
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    if torch.compiler.is_compiling():
        out: Tensor = torch.linalg.solve(a, b)
        return out
    return apply(_Solve, a, b)


def inverse(a: Tensor) -> Tensor:
    """``a⁻¹``, shape (..., k, k)."""
    return solve(a, torch.eye(a.shape[-1], dtype=a.dtype, device=a.device))


def weighted_sums(w: Tensor, x: Tensor) -> Tensor:
    """``Σ_j w_ij x_j``: (..., q, m) and (..., m, k, k) -> (..., q, k, k), whose batch axes broadcast."""
    batch = broadcast_shape(w.shape[:-2], x.shape[:-3])
    flat = x.flatten(-2)
    sums = product(w.expand(*batch, *w.shape[-2:]), flat.expand(*batch, *flat.shape[-2:]))
    return sums.reshape(*sums.shape[:-1], *x.shape[-2:])


def gram(a: Tensor) -> Tensor:
    """``a aᵀ``, exactly symmetric: (..., k, n) -> (..., k, k)."""
    return sym(product(a, a.mT))


class _Product(torch.autograd.Function):
    """``a b``, independent of the number of threads; its derivatives are such products."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        with single_threaded(a[..., :1]):
            return a @ b

    @staticmethod
    @full_precision
    @thread_independent
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        return apply(_Product, grad[0], b.mT), apply(_Product, a.mT, grad[0])


def product(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product ``a b`` for equal batch axes; a single product does not depend on the number of threads."""
    single = math.prod(a.shape[:-2]) == 1 and not torch.compiler.is_compiling()
    return apply(_Product, a, b) if single else a @ b


def whiten(a: Tensor, x: Tensor) -> Tensor:
    """``a⁻¹ x a⁻ᵀ``, exactly symmetric, shape (..., k, k)."""
    return sym(solve(a, solve(a, x).mT))
