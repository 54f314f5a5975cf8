r"""Fixed-point equations of Fréchet means, in terms of factors.

With :math:`X_j = B_j B_j^⊤` and :math:`G = N N^⊤`, the mean G solves :math:`Σ w_j f(P X_j P^⊤) = \text{const}`:

==================  ================  ============  ====================
geometry            P                 f             constant
==================  ================  ============  ====================
Bures-Wasserstein   :math:`N^⊤`       square root   :math:`N^⊤ N`
affine-invariant    :math:`N^{-1}`    logarithm     0
==================  ================  ============  ====================

The singular value decomposition :math:`P B_j = U_j S_j V_j^⊤`, called the *frame* of point j, determines both sides of
the equation, the next iterate, and the linearised equation, from which :mod:`gbwatt.geometry.means` computes
derivatives.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from gbwatt.errors import ConvergenceWarning
from gbwatt.geometry import _native
from gbwatt.geometry._context import single_threaded
from gbwatt.geometry.linalg import EXP, LOG, POWER, SVD, factor, gram, inverse, solve, spectral, svd, weighted_sums
from gbwatt.geometry.procrustes import polar
from gbwatt.geometry.symmetric import sym

COMMON_TOLERANCE = 1e-3  # tolerance of the equal-weights mean, from which the iterations of all queries start
COMMON_STEPS = 20  # maximal number of steps to the equal-weights mean
SMALL = 0.25  # norm up to which the exponential is computed from its power series


def _broadcast_pairs(s: Tensor) -> tuple[Tensor, Tensor]:
    """Views (..., k, 1) and (..., 1, k) of values (..., k), which broadcast to all pairs of values."""
    return s[..., :, None], s[..., None, :]


def _weighted_sum(w: Tensor, x: Tensor) -> Tensor:
    """``Σ_j w_j x_j``: (..., m) and (..., m, k, k) -> (..., k, k)."""
    return (w[..., None, None] * x).sum(-3)


def _side_by_side(b: Tensor) -> Tensor:
    """Points side by side in one matrix: (..., m, k, k) -> (..., k, m k)."""
    return b.transpose(-3, -2).flatten(-2)


def _mean_square(b: Tensor) -> Tensor:
    """Mean of ``b_j b_jᵀ`` over the points: (..., m, k, k) -> (..., k, k)."""
    wide = _side_by_side(b)
    return gram(wide) / b.shape[-3]


def each_query(b: Tensor, w: Tensor) -> Tensor:
    """Repeat points (i, m, k, k) for each of the r / i rows of weights (r, m) that share them: (r, m, k, k)."""
    return b.repeat_interleave(len(w) // max(len(b), 1), 0)


def _condition_number(n: Tensor) -> Tensor:
    """Condition number of matrices (..., k, k): ratio of the largest to the smallest singular value, shape (...)."""
    s = svd(n).s
    return s.amax(-1) / s.amin(-1).clamp_min(torch.finfo(s.dtype).tiny)


def _step_exponential(x: Tensor) -> Tensor:
    """Matrix exponential of symmetric ``x`` (..., k, k), by which an iteration moves.

    Matrices with a norm of at most SMALL use the fourth-order power series, which is precise enough for a step.
    """
    square = x @ x
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    series = eye + x + square / 2 + square @ (x / 6 + square / 24)
    large = torch.linalg.matrix_norm(x) > SMALL  # for each matrix, so that none depends on the others of its batch
    if bool(large.any()):
        series[large] = spectral(x[large], EXP)
    return series


def _frobenius_inner(x: Tensor, y: Tensor) -> Tensor:
    """Frobenius inner product of matrices (..., k, k), shape (..., 1, 1)."""
    return (x * y).sum((-2, -1), keepdim=True)


def conjugate_gradients(
    operator: Callable[[Tensor], Tensor], right: Tensor, diagonal: Tensor, tolerance: float
) -> Tensor:
    """Solve ``operator(z) = right`` for batches of symmetric matrices by preconditioned conjugate gradients.

    ``operator`` is linear, self-adjoint and positive definite; ``diagonal`` (..., k, k) approximates it entry by entry.
    Stops at a relative residual of ``tolerance``; warns with ConvergenceWarning if that is not reached.
    """
    scale = diagonal.rsqrt()
    tiny = torch.finfo(right.dtype).tiny
    r = scale * right
    unit = r.abs().amax((-2, -1), keepdim=True)
    unit = torch.where(unit > 0, unit, 1)
    z, r = torch.zeros_like(right), r / unit
    p, rr = r, _frobenius_inner(r, r)
    target = tolerance**2 * rr
    for _ in range(4 * right.shape[-1] + 20):
        if bool((rr <= target).all()):
            break
        q = scale * operator(scale * p)
        step = torch.where(rr > target, rr / _frobenius_inner(p, q).clamp_min(tiny), 0)
        z, r = z + step * p, r - step * q
        old, rr = rr, _frobenius_inner(r, r)
        p = r + rr / old.clamp_min(tiny) * p
    else:
        worst = float((rr / (target / tolerance**2).clamp_min(tiny)).max().sqrt())
        warnings.warn(
            f"the gradient of a mean of {right.shape[-1]}x{right.shape[-1]} matrices has a relative error of "
            f"{worst:.0e}, not {tolerance:.0e}: the points are too ill-conditioned. Add a multiple of the identity.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return sym(scale * (unit * z))


class InitialFrames(NamedTuple):
    """First iterate shared by all queries, and the frames of the points at it.

    ``base`` is the iterate (..., k, k), ``u`` and ``v`` are the singular vectors of the frames (..., m, k, k), and
    ``rotated`` are the points times ``v``.
    """

    base: Tensor
    u: Tensor
    v: Tensor
    rotated: Tensor


class Solutions(NamedTuple):
    """Solutions of problems (r, ...): factors, residuals, numbers of steps, and convergence."""

    n: Tensor
    residual: Tensor
    steps: Tensor
    converged: Tensor


class MeanEquation(ABC):
    """The equation of a Fréchet mean: one step towards its solution, and its linearisation.

    Batch axes come first: iterates ``n`` (..., k, k), points ``b`` (..., m, k, k), weights ``w`` (..., m), frames
    (..., m, k, k) and (..., m, k).
    """

    name: ClassVar[str]  # in exported programs: never change it

    @abstractmethod
    def start(self, b: Tensor, w: Tensor) -> tuple[Tensor, InitialFrames | None]:
        """Iterates (..., q, k, k) from which to solve for the means with weights (..., q, m).

        They are differentiable, and exact for one or two points.  If they result from a step that all q queries
        (rows of weights) share, the frames before this step are returned as well; else None.
        """

    @abstractmethod
    def relative(self, n: Tensor, b: Tensor) -> Tensor:
        """Matrices ``P B_j`` of the equation; their singular value decompositions determine steps and derivatives."""

    @abstractmethod
    def advance(self, n: Tensor, b: Tensor, w: Tensor, frame: SVD) -> tuple[Tensor, Tensor]:
        """Next iterate, and the norm of the Riemannian gradient at ``n``, relative if the metric has a scale."""

    def evaluate(self, n: Tensor, b: Tensor, w: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
        """Next iterate and gradient norm as in :meth:`advance`, with errors of at most ``tolerance``.

        Also returns the points for the next step, possibly rotated by orthogonal matrices on the right.
        """
        return *self.advance(n, b, w, svd(self.relative(n, b))), b

    def iterate_in_frames(
        self, n: Tensor, w: Tensor, frames: InitialFrames, tolerance: float, max_steps: int
    ) -> Solutions | None:
        """Iterate to the solutions without a decomposition in every step; None if this is not implemented.

        Frames are singular vectors at a nearby point, from which polar factors are corrected to first order.  They are
        updated in place.

        Iterates are (r, k, k), weights (r, m) and frames (i, m, k, k); the first r / i problems share the first
        frames, and so on.
        """
        return None

    @abstractmethod
    def step(self, n: Tensor, b: Tensor, w: Tensor) -> Tensor:
        """Next iterate as a differentiable function."""

    def gradients(self, n: Tensor, b: Tensor, w: Tensor, grad: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
        r"""Derivatives in points (r, m, k, k) and weights of the means with factors ``n`` (r, k, k).

        Points are (i, m, k, k), as in :meth:`iterate_in_frames`; ``grad`` is the derivative in the factors.  With
        :math:`dG = N E N^⊤` the linearised equation is :math:`Σ w_j U_j (h_j ∘ U_j^⊤ E U_j) U_j^⊤ = r`, self-adjoint
        and positive definite: one solve by conjugate gradients, in the frames of the mean.
        """
        if not _kernel_accepts(n, b) or len(n) < 4:  # the kernel always computes sixteen problems at a time
            return self._gradients(n, b, w, grad, tolerance)
        in_points, in_weights, failed = self.compiled_gradients(n, b, w, grad, tolerance)
        if failed is not None:
            again = self._gradients(n[failed], each_query(b, w)[failed], w[failed], grad[failed], tolerance)
            in_points[failed], in_weights[failed] = again
        return in_points, in_weights

    @abstractmethod
    def compiled_gradients(
        self, n: Tensor, b: Tensor, w: Tensor, grad: Tensor, tolerance: float
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """:meth:`gradients` by the compiled kernel, and a mask of the problems for which it failed."""

    def _gradients(self, n: Tensor, b: Tensor, w: Tensor, grad: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
        """Compute :meth:`gradients` with torch operations, where the compiled kernel does not apply or has failed."""
        frame = svd(self.relative(n, each_query(b, w)))
        rotation = svd(n)  # n v is a factor of the same mean and has orthogonal columns
        n, u, w_ = n @ rotation.v, rotation.v.mT[..., None, :, :] @ frame.u, w[..., None, None]
        with single_threaded(n):  # the last bit of vectorised logarithms may depend on how threads divide the array
            h, response, values = self.curvature(frame.s), self.response(frame.s), self.values(frame.s)

        def operator(e: Tensor) -> Tensor:
            """Left-hand side of the linearised equation for symmetric ``e``."""
            return (w_ * (u @ (h * (u.mT @ e[..., None, :, :] @ u)) @ u.mT)).sum(-3)

        g = rotation.s.square()
        g = g.maximum(torch.finfo(g.dtype).eps ** 2 * g.amax(-1, keepdim=True))
        z = conjugate_gradients(operator, sym(n.mT @ (grad @ rotation.v)) / 2, self.preconditioner(g), tolerance)
        inner = u.mT @ z[..., None, :, :] @ u
        outer = self.adjoint(n)[..., None, :, :] @ u
        in_points = 2 * w_ * (outer @ (response * inner) @ frame.v.mT)
        return in_points, (inner.diagonal(dim1=-2, dim2=-1) * values).sum(-1)

    @abstractmethod
    def noise(self, n: Tensor) -> Tensor:
        """Residual due to rounding, below which no iteration gets."""

    def floor(self, n: Tensor, b: Tensor) -> Tensor:
        """Residual at which a problem counts as converged if its residual no longer falls."""
        return 4 * self.noise(n)

    @abstractmethod
    def values(self, s: Tensor) -> Tensor:
        """Eigenvalues of ``f(P X_j Pᵀ)``, the terms of the equation, from the singular values of ``P B_j``."""

    @abstractmethod
    def curvature(self, s: Tensor) -> Tensor:
        """Multiplier (..., k, k) of the linearised equation, in the basis of the singular vectors of ``P B_j``."""

    @abstractmethod
    def response(self, s: Tensor) -> Tensor:
        """Multiplier (..., k, k) of the derivative in ``B_j``, in the basis of the singular vectors of ``P B_j``."""

    @abstractmethod
    def adjoint(self, n: Tensor) -> Tensor:
        """Transpose (..., k, k) of the matrix P of the equation, for derivatives."""

    @abstractmethod
    def preconditioner(self, g: Tensor) -> Tensor:
        """Diagonal (..., k, k) for :func:`conjugate_gradients`: the linearised equation if all points were equal.

        ``g`` (..., k) are the eigenvalues of the mean.
        """


def _kernel_accepts(n: Tensor, b: Tensor) -> bool:
    """Whether the kernel accepts factors ``n`` of means of points ``b``; it holds all points of a mean in memory."""
    return _native.supports(n) and b.shape[1:].numel() <= 2**18


class BuresEquation(MeanEquation):
    r"""Bures-Wasserstein mean: :math:`N ← Σ w_j B_j Q_j`, :math:`Q_j = V_j U_j^⊤` (Eq. 21 of the paper)."""

    name = "BuresFlow"

    def start(self, b: Tensor, w: Tensor) -> tuple[Tensor, InitialFrames | None]:
        """Iterates after one step, which all queries take from the same base, and the frames of the points at the base.

        The base is a factor of the arithmetic mean or, with the compiled kernel, of an approximate equal-weights mean.
        With one or two points it is the first point; the step then gives the exact means, and the frames are None.
        """
        # all queries step from one iterate, so that they share the decompositions of the first step
        base = b[..., 0, :, :] if b.shape[-3] <= 2 else self._initial_factor(b)
        u, v, rotated, aligned = self._frames(base, b)
        if b.shape[-3] <= 2:
            return self._first_iterates(w, aligned), None
        if w.shape[-2] > 1 and _kernel_accepts(base, b) and not torch.is_grad_enabled():
            base = self._common_mean(base, rotated, aligned, u)
            u, v, rotated, aligned = self._frames(base, rotated, v)
        return self._first_iterates(w, aligned), InitialFrames(base, u, v, rotated)

    def _first_iterates(self, w: Tensor, aligned: Tensor) -> Tensor:
        """First iterate ``Σ_j w_j b_j q_j`` of each query from aligned points ``b_j q_j``.

        Shapes: (..., q, m) and (..., m, k, k) -> (..., q, k, k).
        """
        return weighted_sums(w, aligned)

    def _common_mean(self, base: Tensor, rotated: Tensor, aligned: Tensor, u: Tensor) -> Tensor:
        """Approximate mean for equal weights, which is close to the means of all queries."""
        *batch, m, k, _ = rotated.shape
        first, equal = aligned.mean(-3).reshape(-1, k, k), rotated.new_full((math.prod(batch), m), 1 / m)
        b, u = rotated.reshape(-1, m, k, k), u.reshape(-1, m, k, k)
        mean, *_ = _native.bures_iterate_in_frames(first, b, equal, u, COMMON_TOLERANCE, COMMON_STEPS, base)
        return mean.reshape(*batch, k, k)

    def _initial_factor(self, b: Tensor) -> Tensor:
        """A factor of the arithmetic mean of the matrices ``b_j b_jᵀ``, from which the iteration starts."""
        base = _native.bures_start(b) if _native.supports(b) and not torch.is_grad_enabled() else None
        return factor(_mean_square(b), "points") if base is None else base

    def _frames(self, n: Tensor, b: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Singular vectors ``u`` and ``v`` of the frames ``nᵀ b_j`` of points ``b``, and the points rotated by them.

        Returns ``u``, ``v``, the points times ``v``, and the points times ``v uᵀ``, all (..., m, k, k); only the last
        are differentiable.  If ``b`` are original points times orthogonal matrices ``before``, the returned ``v``
        includes these: the original points times ``v`` are the rotated ones.
        """
        if _native.supports(n) and not torch.is_grad_enabled():
            frames = _native.bures_frames(n, b, before)
            if frames is not None:
                return frames
        relative = self.relative(n, b)
        frame = svd(relative)
        v = frame.v if before is None else before @ frame.v
        return frame.u, v, b @ frame.v, b @ polar(relative, frame).mT

    def relative(self, n: Tensor, b: Tensor) -> Tensor:
        """Matrices ``Nᵀ B_j``, for which P is ``Nᵀ``."""
        return n[..., None, :, :].mT @ b

    def advance(self, n: Tensor, b: Tensor, w: Tensor, frame: SVD) -> tuple[Tensor, Tensor]:
        """``Σ w_j B_j Q_j``, and the length of this step relative to the norm of ``n``."""
        new = _weighted_sum(w, b @ (frame.v @ frame.u.mT))
        return new, torch.linalg.matrix_norm(new - n) / torch.linalg.matrix_norm(n)

    def evaluate(self, n: Tensor, b: Tensor, w: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
        """Next iterate, length of the step and rotated points, as in :meth:`MeanEquation.evaluate`.

        They are computed by the compiled kernel, or by torch where the kernel fails or does not support the matrices.
        """
        if not _native.supports(n):
            return super().evaluate(n, b, w, tolerance)
        new, residual, rotated, failed = _native.bures_step(n, b, w, tolerance)
        if failed is not None:
            again = super().evaluate(n[failed], b[failed], w[failed], tolerance)
            new[failed], residual[failed], rotated[failed] = again
        return new, residual, rotated

    def iterate_in_frames(
        self, n: Tensor, w: Tensor, frames: InitialFrames, tolerance: float, max_steps: int
    ) -> Solutions | None:
        """Iterate by the compiled kernel; None if it does not accept the matrices."""
        if not _kernel_accepts(n, frames.rotated):
            return None
        limit = max(tolerance, self._rounding_level(n))
        arguments = (n, frames.rotated, w, frames.u, limit, max_steps, frames.base)
        return Solutions(*_native.bures_iterate_in_frames(*arguments))

    def compiled_gradients(
        self, n: Tensor, b: Tensor, w: Tensor, grad: Tensor, tolerance: float
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Derivatives of Bures-Wasserstein means by the compiled kernel, and a mask of failed problems."""
        return _native.bures_adjoint(n, b, w, grad, tolerance)

    def step(self, n: Tensor, b: Tensor, w: Tensor) -> Tensor:
        """Plain step ``Σ w_j B_j Q_j``, through which autograd differentiates."""
        return _weighted_sum(w, b @ polar(self.relative(n, b)).mT)

    def noise(self, n: Tensor) -> Tensor:
        """Residual due to rounding, the same for each mean."""
        return n.new_full(n.shape[:-2], self._rounding_level(n))

    def _rounding_level(self, n: Tensor) -> float:
        """Relative residual due to rounding, the same for all matrices of one size and dtype."""
        return 2 * n.shape[-1] * torch.finfo(n.dtype).eps

    def floor(self, n: Tensor, b: Tensor) -> Tensor:
        """Four times the rounding level; with the less precise LAPACK, times the condition number of the points."""
        if _native.supports(n):
            return super().floor(n, b)
        return super().floor(n, b) * _condition_number(b).amax(-1)  # the precision of LAPACK's small singular vectors

    def values(self, s: Tensor) -> Tensor:
        """The singular values themselves: f is the square root."""
        return s

    def curvature(self, s: Tensor) -> Tensor:
        """Multiplier ``s_i s_j / (s_i + s_j)`` of the linearised equation."""
        a, b = _broadcast_pairs(s)
        return a * (b / (a + b))  # a b may leave the range of float32

    def response(self, s: Tensor) -> Tensor:
        """Multiplier ``s_j / (s_i + s_j)`` of the derivative in ``B_j``."""
        a, b = _broadcast_pairs(s)
        return b / (a + b)

    def adjoint(self, n: Tensor) -> Tensor:
        """Transpose of the matrix P of the equation, ``N``."""
        return n

    def preconditioner(self, g: Tensor) -> Tensor:
        """The curvature if all points were equal: the singular values of their frames are then ``g``."""
        return self.curvature(g)


class KarcherEquation(MeanEquation):
    r"""Affine-invariant mean: :math:`N ← N \exp(\frac{τ}{2} Σ w_j \log(N^{-1} X_j N^{-⊤}))`.

    The step size :math:`τ = 2 / (1 + Σ w_j h_j)` is optimal for a linear equation whose eigenvalues lie between 1 and
    the largest curvatures :math:`h_j` (Bini and Iannazzo, 2013); with a step size of 1 the iteration may diverge.
    """

    name = "KarcherFlow"

    def start(self, b: Tensor, w: Tensor) -> tuple[Tensor, InitialFrames | None]:
        """First iterates: the exact mean of up to two points, otherwise a factor of the arithmetic mean."""
        if b.shape[-3] > 2:
            return factor(sym(weighted_sums(w, b @ b.mT)), "points", "definite"), None
        first, last = b[..., None, 0, :, :], b[..., None, -1, :, :]
        across = solve(first, last).expand(*w.shape[:-1], *b.shape[-2:])
        with single_threaded(b, few=w[..., 0].numel()):
            return first @ spectral(across, POWER, w[..., -1] / 2, gram=True), None

    def relative(self, n: Tensor, b: Tensor) -> Tensor:
        """Matrices ``N⁻¹ B_j``, for which P is ``N⁻¹``."""
        wide = solve(n, _side_by_side(b))  # decompose n once for all points
        return wide.reshape(*b.shape[:-3], b.shape[-1], b.shape[-3], b.shape[-1]).transpose(-3, -2)

    def advance(self, n: Tensor, b: Tensor, w: Tensor, frame: SVD) -> tuple[Tensor, Tensor]:
        """Step of size τ along the weighted sum of logarithms, and the norm of that sum."""
        slope = _weighted_sum(w, (frame.u * self.values(frame.s)[..., None, :]) @ frame.u.mT)
        return self._step_along(n, slope, self._step_size(w, frame.s))

    def _step_along(self, n: Tensor, slope: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
        """Next iterate, a step of size ``tau`` along the slope, and the norm of the slope."""
        return n @ _step_exponential(slope * (tau / 2)[..., None, None]), torch.linalg.matrix_norm(slope)

    def evaluate(self, n: Tensor, b: Tensor, w: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
        """Next iterate, length of the step and unchanged points, as in :meth:`MeanEquation.evaluate`.

        They are computed by the compiled kernel, or by torch where the kernel fails or does not support the matrices.
        ``tolerance`` is not used.
        """
        if not _native.supports(n):
            return super().evaluate(n, b, w, tolerance)
        slope, tau, failed = _native.affine_slope(self.adjoint(n), b, w)
        new, residual = self._step_along(n, slope, tau)
        if failed is not None:
            new[failed], residual[failed], _ = super().evaluate(n[failed], b[failed], w[failed], tolerance)
        return new, residual, b

    def compiled_gradients(
        self, n: Tensor, b: Tensor, w: Tensor, grad: Tensor, tolerance: float
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Derivatives of affine-invariant means by the compiled kernel, and a mask of failed problems."""
        return _native.affine_adjoint(self.adjoint(n), b, w, sym(n.mT @ grad) / 2, tolerance)

    def _step_size(self, w: Tensor, s: Tensor) -> Tensor:
        """Step size τ of each problem from weights (..., m) and singular values (..., m, k) of the frames."""
        half = s.amax(-1).log() - s.amin(-1).log()  # half the log of the condition number
        return 2 / (1 + (w * torch.where(half > 0, half / torch.tanh(half), 1)).sum(-1))

    def step(self, n: Tensor, b: Tensor, w: Tensor) -> Tensor:
        """Plain step, through which autograd differentiates; the step size counts as constant."""
        c = self.relative(n, b)
        tau = self._step_size(w, svd(c).s).detach()
        gradient = _weighted_sum(w, spectral(c, LOG, gram=True))
        return n @ spectral(gradient * (tau / 2)[..., None, None], EXP)

    def noise(self, n: Tensor) -> Tensor:
        """Rounding level, proportional to the condition number of ``n``."""
        return 2 * n.shape[-1] * torch.finfo(n.dtype).eps * _condition_number(n)

    def values(self, s: Tensor) -> Tensor:
        """``2 log s``: f is the logarithm, and the eigenvalues are squares of singular values."""
        return 2 * s.log()

    def curvature(self, s: Tensor) -> Tensor:
        """Multiplier ``(a + b) / 2 · (log a - log b) / (a - b)`` of the linearised equation; a, b: squares of s."""
        a, b = _broadcast_pairs(s.square())
        return (a + b) / 2 * LOG.quotient(a, b, a)

    def response(self, s: Tensor) -> Tensor:
        """Multiplier ``s_j (log a - log b) / (a - b)`` of the derivative in ``B_j``; a, b: squares of s."""
        a, b = _broadcast_pairs(s.square())
        return LOG.quotient(a, b, a) * s[..., None, :]

    def adjoint(self, n: Tensor) -> Tensor:
        """Transpose of the matrix P of the equation, ``N⁻ᵀ``."""
        return inverse(n).mT

    def preconditioner(self, g: Tensor) -> Tensor:
        """Ones: if all points were equal, the linearised equation would be the identity."""
        return torch.ones_like(g[..., :, None] + g[..., None, :])


BURES, KARCHER = BuresEquation(), KarcherEquation()
EQUATIONS: dict[str, MeanEquation] = {equation.name: equation for equation in (BURES, KARCHER)}
