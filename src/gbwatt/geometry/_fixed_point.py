r"""The two fixed points behind Fréchet means, on factors.

With :math:`X_j = B_j B_j^⊤` and :math:`G = N N^⊤`, the mean G solves :math:`Σ w_j f(P X_j P^⊤) = \text{const}`:

==================  ================  ============  ====================
geometry            P                 f             constant
==================  ================  ============  ====================
Bures-Wasserstein   :math:`N^⊤`       square root   :math:`N^⊤ N`
affine-invariant    :math:`N^{-1}`    logarithm     0
==================  ================  ============  ====================

The singular value decomposition :math:`P B_j = U_j S_j V_j^⊤`, the *frame* of the point j, gives both sides, the
next iterate, and the linearised equation that :mod:`gbwatt.geometry.means` differentiates.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gbwatt.errors import ConvergenceWarning
from gbwatt.geometry import _native
from gbwatt.geometry._threads import single_threaded
from gbwatt.geometry.linalg import EXP, LOG, POWER, SVD, factor, gram, inverse, solve, spectral, svd, weighted_sums
from gbwatt.geometry.procrustes import polar
from gbwatt.geometry.symmetric import sym

COMMON = 1e-3  # residual of the mean that queries start from, and how many steps to it
COMMON_STEPS = 20
SMALL = 0.25  # norm of a matrix whose exponential is a few terms


def _pairs(s: Tensor) -> tuple[Tensor, Tensor]:
    return s[..., :, None], s[..., None, :]


def _weighted(w: Tensor, x: Tensor) -> Tensor:
    """``Σ_j w_j x_j``: (..., m) and (..., m, k, k) -> (..., k, k)."""
    return (w[..., None, None] * x).sum(-3)


def _side_by_side(b: Tensor) -> Tensor:
    """Points in one matrix: (..., m, k, k) -> (..., k, m k)."""
    return b.transpose(-3, -2).flatten(-2)


def _mean_square(b: Tensor) -> Tensor:
    """Mean of ``b_j b_jᵀ`` over the points: (..., m, k, k) -> (..., k, k)."""
    wide = _side_by_side(b)
    return gram(wide) / b.shape[-3]


def each_query(b: Tensor, w: Tensor) -> Tensor:
    """Points (i, m, k, k) shared by queries of weights (r, m), once for each of them: (r, m, k, k)."""
    return b.repeat_interleave(len(w) // max(len(b), 1), 0)


def _condition(n: Tensor) -> Tensor:
    s = svd(n).s
    return s.amax(-1) / s.amin(-1).clamp_min(torch.finfo(s.dtype).tiny)


def _exponential(x: Tensor) -> Tensor:
    """``exp(x)`` of symmetric matrices, of small ones to the fourth order, which is enough for a step."""
    square = x @ x
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    found = eye + x + square / 2 + square @ (x / 6 + square / 24)
    large = torch.linalg.matrix_norm(x) > SMALL  # matrix by matrix: none depends on the others of its batch
    if bool(large.any()):
        found[large] = spectral(x[large], EXP)
    return found


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum((-2, -1), keepdim=True)


def conjugate_gradients(
    operator: Callable[[Tensor], Tensor], right: Tensor, diagonal: Tensor, tolerance: float
) -> Tensor:
    """Solve ``operator(z) = right`` for batches of symmetric matrices, preconditioned by an elementwise multiplier."""
    scale = diagonal.rsqrt()
    tiny = torch.finfo(right.dtype).tiny
    r = scale * right
    unit = r.abs().amax((-2, -1), keepdim=True)
    unit = torch.where(unit > 0, unit, 1)
    z, r = torch.zeros_like(right), r / unit
    p, rr = r, _dot(r, r)
    target = tolerance**2 * rr
    for _ in range(4 * right.shape[-1] + 20):
        if bool((rr <= target).all()):
            break
        q = scale * operator(scale * p)
        step = torch.where(rr > target, rr / _dot(p, q).clamp_min(tiny), 0)
        z, r = z + step * p, r - step * q
        old, rr = rr, _dot(r, r)
        p = r + rr / old.clamp_min(tiny) * p
    else:
        worst = float((rr / (target / tolerance**2).clamp_min(tiny)).max().sqrt())
        warnings.warn(
            f"the gradient of a mean of {right.shape[-1]}x{right.shape[-1]} matrices is exact to {worst:.0e} only, "
            f"not to {tolerance:.0e}: the points are too ill-conditioned. Add a multiple of the identity to them.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return sym(scale * (unit * z))


class Start(NamedTuple):
    """The iterate (..., k, k) that all queries made their first step from, its frames, and the points times ``v``."""

    base: Tensor
    u: Tensor
    v: Tensor
    turned: Tensor


class Found(NamedTuple):
    """Where problems (r, ...) got: factors, residuals there, steps, and whether they are means."""

    n: Tensor
    residual: Tensor
    steps: Tensor
    converged: Tensor


class Flow(ABC):
    """One step towards a mean, and the linearisation of its equation.

    All arrays lead with batch axes: iterates ``n`` (..., k, k), points ``b`` (..., m, k, k), weights ``w`` (..., m),
    frames (..., m, k, k) and (..., m, k).
    """

    @abstractmethod
    def start(self, b: Tensor, w: Tensor) -> tuple[Tensor, Start | None]:
        """First iterates (..., q, k, k) for weights (..., q, m), differentiable; for one or two points the closed form.

        Also what they were a step from, if anything.
        """

    @abstractmethod
    def relative(self, n: Tensor, b: Tensor) -> Tensor:
        """``P B_j``, whose singular values and vectors are the frame."""

    @abstractmethod
    def advance(self, n: Tensor, b: Tensor, w: Tensor, frame: SVD) -> tuple[Tensor, Tensor]:
        """Next iterate, and the norm of the Riemannian gradient at ``n``, relative where the metric has a scale."""

    def evaluate(self, n: Tensor, b: Tensor, w: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
        """Next iterate and gradient norm of :meth:`advance`, good to ``tolerance`` at least.

        Also the points for the next step, possibly turned by orthogonal matrices.
        """
        return *self.advance(n, b, w, svd(self.relative(n, b))), b

    def walk(self, n: Tensor, w: Tensor, start: Start, tolerance: float, max_steps: int) -> Found | None:
        """All steps at once, in the frames of a common start, where the flow knows how.

        Iterates (r, k, k) and weights (r, m); i starts, the first of which belongs to the first r / i problems, and so
        on.
        """
        return None

    @abstractmethod
    def step(self, n: Tensor, b: Tensor, w: Tensor) -> Tensor:
        """Next iterate as a differentiable function."""

    def gradients(self, n: Tensor, b: Tensor, w: Tensor, grad: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
        r"""Derivatives in points (r, m, k, k) and weights of the means with factors ``n`` (r, k, k).

        Points are (i, m, k, k), as for :meth:`walk`; ``grad`` is the derivative in the factors.  With
        :math:`dG = N E N^⊤` the linearised equation is :math:`Σ w_j U_j (h_j ∘ U_j^⊤ E U_j) U_j^⊤ = r`, self-adjoint
        and positive definite: one solve by conjugate gradients, in the frames of the mean.
        """
        if not _fits(n, b) or len(n) < 4:  # the kernel works on sixteen problems at a time, or pretends to
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
        """The same by the kernel, and where it failed."""

    def _gradients(self, n: Tensor, b: Tensor, w: Tensor, grad: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
        frame = svd(self.relative(n, each_query(b, w)))
        turn = svd(n)  # N turned by an orthogonal matrix is a factor of the same mean; take orthogonal columns
        n, u, w_ = n @ turn.v, turn.v.mT[..., None, :, :] @ frame.u, w[..., None, None]
        with single_threaded(n):  # vectorised logarithms may differ in the last bit between the chunks of threads
            h, response, values = self.curvature(frame.s), self.response(frame.s), self.values(frame.s)

        def operator(e: Tensor) -> Tensor:
            return (w_ * (u @ (h * (u.mT @ e[..., None, :, :] @ u)) @ u.mT)).sum(-3)

        g = turn.s.square()
        g = g.maximum(torch.finfo(g.dtype).eps ** 2 * g.amax(-1, keepdim=True))
        z = conjugate_gradients(operator, sym(n.mT @ (grad @ turn.v)) / 2, self.precondition(g), tolerance)
        inner = u.mT @ z[..., None, :, :] @ u
        outer = self.adjoint(n)[..., None, :, :] @ u
        in_points = 2 * w_ * (outer @ (response * inner) @ frame.v.mT)
        return in_points, (inner.diagonal(dim1=-2, dim2=-1) * values).sum(-1)

    @abstractmethod
    def noise(self, n: Tensor) -> Tensor:
        """What rounding leaves of the residual: no iteration gets below it."""

    def floor(self, n: Tensor, b: Tensor) -> Tensor:
        """Residual that is good enough for a problem that does not get better any more."""
        return 4 * self.noise(n)

    @abstractmethod
    def values(self, s: Tensor) -> Tensor:
        """Eigenvalues of ``f(P X_j Pᵀ)`` from the singular values of the frame."""

    @abstractmethod
    def curvature(self, s: Tensor) -> Tensor:
        """Multiplier (..., k, k) in the frame of the linearised equation."""

    @abstractmethod
    def response(self, s: Tensor) -> Tensor:
        """Multiplier (..., k, k) in the frame of the derivative in ``B_j``."""

    @abstractmethod
    def adjoint(self, n: Tensor) -> Tensor:
        """``Pᵀ``."""

    @abstractmethod
    def precondition(self, g: Tensor) -> Tensor:
        """Multiplier (..., k, k) of the linearised equation when all points equal the mean of eigenvalues ``g``."""


def _fits(n: Tensor, b: Tensor) -> bool:
    """Whether the kernel takes these means, which it does with all their points in memory."""
    return _native.supports(n) and b.shape[1:].numel() <= 2**18


class BuresFlow(Flow):
    r"""Bures-Wasserstein: :math:`N ← Σ w_j B_j Q_j`, :math:`Q_j = V_j U_j^⊤` (Eq. 21 of the paper, on factors)."""

    def start(self, b: Tensor, w: Tensor) -> tuple[Tensor, Start | None]:
        # the step of every query from one shared iterate: the decompositions of the first step are shared too
        base = b[..., 0, :, :] if b.shape[-3] <= 2 else self._base(b)
        u, v, turned, aligned = self._frames(base, b)
        if b.shape[-3] <= 2:
            return self._next(w, aligned), None
        if w.shape[-2] > 1 and _fits(base, b) and not torch.is_grad_enabled():
            base = self._common(base, turned, aligned, u)
            u, v, turned, aligned = self._frames(base, turned, v)
        return self._next(w, aligned), Start(base, u, v, turned)

    def _next(self, w: Tensor, aligned: Tensor) -> Tensor:
        """``Σ_j w_j b_j q_j`` for each query: (..., q, m) and (..., m, k, k) -> (..., q, k, k)."""
        return weighted_sums(w, aligned)

    def _common(self, base: Tensor, turned: Tensor, aligned: Tensor, u: Tensor) -> Tensor:
        """About the mean for equal weights, to which those of all queries are close: most of the way is shared."""
        *batch, m, k, _ = turned.shape
        first, equal = aligned.mean(-3).reshape(-1, k, k), turned.new_full((math.prod(batch), m), 1 / m)
        b, u = turned.reshape(-1, m, k, k), u.reshape(-1, m, k, k)
        mean, *_ = _native.bures_walk(first, b, equal, u, COMMON, COMMON_STEPS, base)
        return mean.reshape(*batch, k, k)

    def _base(self, b: Tensor) -> Tensor:
        """A factor of the mean of ``b_j b_jᵀ``."""
        found = _native.bures_start(b) if _native.supports(b) and not torch.is_grad_enabled() else None
        return factor(_mean_square(b), "points") if found is None else found

    def _frames(self, n: Tensor, b: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``u`` and ``v`` of frames, and points times ``v`` and times ``v uᵀ``, which is differentiable.

        ``before`` is what points were turned by already, if they were.
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
        return n[..., None, :, :].mT @ b

    def advance(self, n: Tensor, b: Tensor, w: Tensor, frame: SVD) -> tuple[Tensor, Tensor]:
        new = _weighted(w, b @ (frame.v @ frame.u.mT))
        return new, torch.linalg.matrix_norm(new - n) / torch.linalg.matrix_norm(n)

    def evaluate(self, n: Tensor, b: Tensor, w: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
        if not _native.supports(n):
            return super().evaluate(n, b, w, tolerance)
        new, residual, turned, failed = _native.bures_step(n, b, w, tolerance)
        if failed is not None:
            new[failed], residual[failed], turned[failed] = super().evaluate(n[failed], b[failed], w[failed], tolerance)
        return new, residual, turned

    def walk(self, n: Tensor, w: Tensor, start: Start, tolerance: float, max_steps: int) -> Found | None:
        if not _fits(n, start.turned):
            return None
        enough = max(tolerance, self._noise(n))
        return Found(*_native.bures_walk(n, start.turned, w, start.u, enough, max_steps, start.base))

    def compiled_gradients(
        self, n: Tensor, b: Tensor, w: Tensor, grad: Tensor, tolerance: float
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        return _native.bures_adjoint(n, b, w, grad, tolerance)

    def step(self, n: Tensor, b: Tensor, w: Tensor) -> Tensor:
        return _weighted(w, b @ polar(self.relative(n, b)).mT)

    def noise(self, n: Tensor) -> Tensor:
        return n.new_full(n.shape[:-2], self._noise(n))

    def _noise(self, n: Tensor) -> float:
        return 2 * n.shape[-1] * torch.finfo(n.dtype).eps

    def floor(self, n: Tensor, b: Tensor) -> Tensor:
        if _native.supports(n):
            return super().floor(n, b)
        return super().floor(n, b) * _condition(b).amax(-1)  # LAPACK's vectors of small singular values are that good

    def values(self, s: Tensor) -> Tensor:
        return s

    def curvature(self, s: Tensor) -> Tensor:
        a, b = _pairs(s)
        return a * (b / (a + b))  # a b may leave the range of float32

    def response(self, s: Tensor) -> Tensor:
        a, b = _pairs(s)
        return b / (a + b)

    def adjoint(self, n: Tensor) -> Tensor:
        return n

    def precondition(self, g: Tensor) -> Tensor:
        return self.curvature(g)


class KarcherFlow(Flow):
    r"""Affine-invariant: :math:`N ← N \exp(\frac{τ}{2} Σ w_j \log(N^{-1} X_j N^{-⊤}))`.

    The step :math:`τ = 2 / (1 + Σ w_j h_j)` is the best one for a linear equation whose eigenvalues lie between 1
    and the largest curvatures :math:`h_j` (Bini and Iannazzo, 2013); a step of 1 may diverge.
    """

    def start(self, b: Tensor, w: Tensor) -> tuple[Tensor, Start | None]:
        if b.shape[-3] > 2:
            return factor(sym(weighted_sums(w, b @ b.mT)), "points", "definite"), None
        first, last = b[..., None, 0, :, :], b[..., None, -1, :, :]
        across = solve(first, last).expand(*w.shape[:-1], *b.shape[-2:])
        with single_threaded(b, few=w[..., 0].numel()):
            return first @ spectral(across, POWER, w[..., -1] / 2, gram=True), None

    def relative(self, n: Tensor, b: Tensor) -> Tensor:
        wide = solve(n, _side_by_side(b))  # n is decomposed once for all points
        return wide.reshape(*b.shape[:-3], b.shape[-1], b.shape[-3], b.shape[-1]).transpose(-3, -2)

    def advance(self, n: Tensor, b: Tensor, w: Tensor, frame: SVD) -> tuple[Tensor, Tensor]:
        slope = _weighted(w, (frame.u * self.values(frame.s)[..., None, :]) @ frame.u.mT)
        return self._along(n, slope, self._tau(w, frame.s))

    def _along(self, n: Tensor, slope: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
        """The next iterate, so far along the slope, and the norm of the slope."""
        return n @ _exponential(slope * (tau / 2)[..., None, None]), torch.linalg.matrix_norm(slope)

    def evaluate(self, n: Tensor, b: Tensor, w: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
        if not _native.supports(n):
            return super().evaluate(n, b, w, tolerance)
        slope, tau, failed = _native.affine_slope(self.adjoint(n), b, w)
        new, residual = self._along(n, slope, tau)
        if failed is not None:
            new[failed], residual[failed], _ = super().evaluate(n[failed], b[failed], w[failed], tolerance)
        return new, residual, b

    def compiled_gradients(
        self, n: Tensor, b: Tensor, w: Tensor, grad: Tensor, tolerance: float
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        return _native.affine_adjoint(self.adjoint(n), b, w, sym(n.mT @ grad) / 2, tolerance)

    def _tau(self, w: Tensor, s: Tensor) -> Tensor:
        half = s.amax(-1).log() - s.amin(-1).log()  # half the log of the condition number
        return 2 / (1 + (w * torch.where(half > 0, half / torch.tanh(half), 1)).sum(-1))

    def step(self, n: Tensor, b: Tensor, w: Tensor) -> Tensor:
        c = self.relative(n, b)
        tau = self._tau(w, svd(c).s).detach()
        gradient = _weighted(w, spectral(c, LOG, gram=True))
        return n @ spectral(gradient * (tau / 2)[..., None, None], EXP)

    def noise(self, n: Tensor) -> Tensor:
        return 2 * n.shape[-1] * torch.finfo(n.dtype).eps * _condition(n)

    def values(self, s: Tensor) -> Tensor:
        return 2 * s.log()

    def curvature(self, s: Tensor) -> Tensor:
        a, b = _pairs(s.square())
        return (a + b) / 2 * LOG.quotient(a, b, a)

    def response(self, s: Tensor) -> Tensor:
        a, b = _pairs(s.square())
        return LOG.quotient(a, b, a) * s[..., None, :]

    def adjoint(self, n: Tensor) -> Tensor:
        return inverse(n).mT

    def precondition(self, g: Tensor) -> Tensor:
        return torch.ones_like(g[..., :, None] + g[..., None, :])


FLOWS: dict[str, Flow] = {type(flow).__name__: flow for flow in (BuresFlow(), KarcherFlow())}
