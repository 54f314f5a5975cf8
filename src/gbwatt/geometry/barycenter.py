r"""Weighted Fréchet means of batches of matrices, each query with its own weights.

A mean is found on factors, :math:`X_j = B_j B_j^⊤` and :math:`G = N N^⊤`, where no inverse and no square root of an
ill-conditioned product is needed (see :mod:`gbwatt.geometry.flows`).  The fixed point is accelerated by Anderson's
method [1]_; every problem of a batch stops by itself, so its result does not depend on its neighbours.  The
derivative is that of the solution, by the implicit function theorem, not of the iteration.

References
----------
.. [1] H. F. Walker, P. Ni, "Anderson acceleration for fixed-point iterations", SIAM J. Numer. Anal. 49(4), 2011.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from gbwatt import checks
from gbwatt.geometry._autograd import apply, differentiable_once
from gbwatt.geometry.flows import Flow
from gbwatt.geometry.linalg import SVD, svd, sym

if TYPE_CHECKING:
    from gbwatt.geometry.metrics import Metric

Differentiate = Literal["implicit", "unrolled"]

HISTORY = 5  # past steps that Anderson's method combines; deeper ones gain little


@dataclass(frozen=True)
class Barycenter:
    """A weighted Fréchet mean and how it was found.

    Attributes
    ----------
    value : Tensor, shape (..., q, k, k)
        The means.
    steps : Tensor, shape (..., q)
        Steps of the iteration; 0 for a closed form.
    residual : Tensor, shape (..., q)
        Norm of the Riemannian gradient at the mean, relative to the norm of the mean where the metric has a scale.
    converged : Tensor of bool, shape (..., q)
        Whether the residual reached the tolerance, or the level of rounding.
    """

    value: Tensor
    steps: Tensor
    residual: Tensor
    converged: Tensor


@dataclass(frozen=True)
class Solver:
    """How a mean is iterated and differentiated."""

    tol: float
    max_steps: int
    differentiate: Differentiate = "implicit"


def default_tolerance(dtype: torch.dtype) -> float:
    """1e-12 in float64, 2e-6 in float32: a few times the rounding of the residual."""
    return 1e-12 if dtype == torch.float64 else 2e-6


def barycenter(
    metric: Metric,
    points: Tensor,
    weights: Tensor | None = None,
    *,
    tol: float | None = None,
    max_steps: int = 200,
    differentiate: Differentiate = "implicit",
) -> Barycenter:
    r"""Weighted Fréchet mean :math:`\arg\min_G Σ_j w_j d²(X_j, G)` (Eq. 19 of the paper).

    Parameters
    ----------
    metric : Metric
    points : Tensor, shape (..., m, k, k)
        The matrices to be averaged, shared by all queries.
    weights : Tensor, shape (..., q, m) or (m,), optional
        Non-negative, summing to one over the last axis; one mean for each of the q rows.  A single row (m,), or
        None for equal weights, gives means without a query axis.
    tol : float, optional
        Residual at which a mean is accepted; by default 1e-12 in float64 and 2e-6 in float32.
    max_steps : int
        Steps after which the iteration stops with a :class:`~gbwatt.checks.ConvergenceWarning`.
    differentiate : "implicit" or "unrolled"
        Differentiate the equation that the mean solves (exact, memory independent of the number of steps), or the
        steps of the plain iteration (for comparison).

    Returns
    -------
    Barycenter
        The solution as data: value, steps, residual, converged.

    Examples
    --------
    >>> from gbwatt.geometry import BuresWasserstein
    >>> points = torch.stack([torch.eye(2), 4 * torch.eye(2), 9 * torch.eye(2)])
    >>> solution = barycenter(BuresWasserstein(), points, torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
    >>> solution.value
    tensor([[[2.2500, 0.0000],
             [0.0000, 2.2500]],
            [[9.0000, 0.0000],
             [0.0000, 9.0000]]])
    >>> solution.converged
    tensor([True, True])
    """
    checks.one_of("differentiate", differentiate, ("implicit", "unrolled"))
    if tol is not None and not tol > 0:
        raise checks.ParameterError(f"tol={tol} must be positive; leave it out for {default_tolerance(points.dtype)}.")
    if max_steps < 1:
        raise checks.ParameterError(f"max_steps={max_steps} must be at least 1.")
    points, rows = _arguments(points, weights)
    solver = Solver(default_tolerance(points.dtype) if tol is None else tol, max_steps, differentiate)
    factors = metric.chart(points, "points")
    found = metric.space.barycenter(factors, rows, solver)
    if not bool(found.converged.all()):
        _warn(metric, points, found, solver)
    value = metric.chart.inverse(found.value)
    if rows is weights:
        return Barycenter(value, found.steps, found.residual, found.converged)
    return Barycenter(
        value.squeeze(-3), found.steps.squeeze(-1), found.residual.squeeze(-1), found.converged.squeeze(-1)
    )


def _arguments(points: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Checked points, and weights with a query axis."""
    checks.symmetric(points=points)
    if points.ndim < 3 or points.shape[-3] == 0:
        raise checks.ShapeError(
            f"'points' {tuple(points.shape)} is not a stack of matrices; (..., m, k, k) with m > 0 is needed."
        )
    if weights is None:
        m = points.shape[-3]
        weights = points.new_full((m,), 1 / m)
    checks.weights(points, weights)
    return points, weights if weights.ndim > 1 else weights[None]


def _warn(metric: Metric, points: Tensor, found: Barycenter, solver: Solver) -> None:
    spectrum = torch.linalg.eigvalsh(points.detach())
    relative = float((spectrum[..., 0] / spectrum[..., -1]).min())
    bad = ~found.converged
    warnings.warn(
        f"the mean of 'points' {tuple(points.shape)} under {metric} did not converge for {int(bad.sum())} of "
        f"{bad.numel()} queries: residual {float(found.residual[bad].max()):.1e} after {solver.max_steps} steps, "
        f"tolerance {solver.tol:.1e}; smallest eigenvalue of the points {relative:.1e} of the largest. "
        "Raise max_steps or tol, or add a multiple of the identity to the points.",
        checks.ConvergenceWarning,
        stacklevel=4,
    )


# ------------------------------------------------------------------------------------------------------ the iteration


def fixed_point(flow: Flow, b: Tensor, w: Tensor, solver: Solver) -> Barycenter:
    """Mean of factors ``b`` (..., m, k, k) for weights ``w`` (..., q, m): factors (..., q, k, k) and how they came."""
    batch = torch.broadcast_shapes(b.shape[:-3], w.shape[:-2])
    b = b.expand(*batch, *b.shape[-3:])
    w = w.expand(*batch, *w.shape[-2:])
    if solver.differentiate == "unrolled":
        return _unrolled(flow, b, w, solver)
    report: list[Tensor] = []
    value = apply(_Implicit, b, w, flow, solver, report)
    steps, residual, converged = report
    return Barycenter(value, steps, residual, converged)


def _unrolled(flow: Flow, b: Tensor, w: Tensor, solver: Solver) -> Barycenter:
    n, _ = flow.start(b, w)
    b = b[..., None, :, :, :].expand(*w.shape, *b.shape[-2:])
    for taken in range(solver.max_steps + 1):
        with torch.no_grad():
            _, residual = flow.advance(n, b, w, svd(flow.relative(n, b)))
            converged = residual <= flow.noise(n).clamp_min(solver.tol)
        if bool(converged.all()) or taken == solver.max_steps:
            break
        n = flow.step(n, b, w)
    return Barycenter(n, torch.full_like(converged, taken, dtype=torch.long), residual, converged)


def _precision(taken: int) -> float:
    """How exact the decompositions of a step need be: two digits more with each, ahead of the iteration."""
    return 1e-6 * 1e-2**taken


def _iterate(
    flow: Flow, n: Tensor, guess: Tensor | None, b: Tensor, w: Tensor, solver: Solver
) -> tuple[Tensor, SVD, Tensor, Tensor, Tensor]:
    """Iterate problems (r, k, k), (r, m, k, k), (r, m) until each has converged.

    Returns factors, frames, steps, residual, converged.
    """
    limit = flow.noise(n).clamp_min(solver.tol)
    out, frames = torch.empty_like(n), SVD(torch.empty_like(b), b.new_empty(b.shape[:-1]), torch.empty_like(b))
    steps = torch.zeros(len(n), dtype=torch.long, device=n.device)
    residual = torch.empty_like(limit)
    active = torch.arange(len(n), device=n.device)
    mixer = _Anderson()
    for taken in range(solver.max_steps + 1):
        exactness = min(_precision(taken), solver.tol / 10)
        new, now, frame = flow.evaluate(n, b, w, guess, exactness)
        go = now > limit[active]  # false for NaN: nothing is iterated that cannot converge
        if taken == solver.max_steps:
            go = torch.zeros_like(go)
        if bool(go.all()):
            n, guess = mixer(n, new, now), frame.v
            continue
        stop = ~go
        done = active[stop]
        out[done], residual[done], steps[done] = n[stop], now[stop], taken
        for whole, part in zip(frames, frame, strict=True):
            whole[done] = part[stop]
        if not bool(go.any()):
            break
        active, b, w, guess = active[go], b[go], w[go], frame.v[go]
        mixer.keep(go)
        n = mixer(n[go], new[go], now[go])
    return out, frames, steps, residual, residual <= limit


class _Anderson:
    """Combination of past steps that would make the residual smallest if the problem were linear.

    A problem whose residual has not fallen for a few steps takes plain steps, which never go astray, until it does.
    """

    def __init__(self) -> None:
        self.moves: list[Tensor] = []  # new - old, flattened
        self.ends: list[Tensor] = []
        self.best = self.stalled = torch.empty(0)

    def keep(self, mask: Tensor) -> None:
        self.moves = [x[mask] for x in self.moves]
        self.ends = [x[mask] for x in self.ends]
        if self.moves:
            self.best, self.stalled = self.best[mask], self.stalled[mask]

    def __call__(self, old: Tensor, new: Tensor, residual: Tensor) -> Tensor:
        if not self.moves:
            self.best, self.stalled = residual, torch.zeros_like(residual)
        self.moves = [*self.moves, (new - old).flatten(-2)][-HISTORY - 1 :]
        self.ends = [*self.ends, new.flatten(-2)][-HISTORY - 1 :]
        if len(self.moves) == 1:
            return new
        self.stalled = torch.where(residual < self.best, 0, self.stalled + 1)
        plain = (residual > 2 * self.best) | (self.stalled > 2)
        self.best = torch.minimum(self.best, residual)
        return torch.where(plain[:, None, None], new, new - self._shift().reshape(new.shape))

    def _shift(self) -> Tensor:
        moves = torch.stack([self.moves[-1] - x for x in self.moves[:-1]], -1)  # (r, k k, history)
        ends = torch.stack([self.ends[-1] - x for x in self.ends[:-1]], -1)
        gram = moves.mT @ moves
        trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1).clamp_min(torch.finfo(gram.dtype).tiny)[:, None, None]
        ridge = 10 * torch.finfo(gram.dtype).eps * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        slope = moves.mT @ self.moves[-1][..., None]
        return ends @ torch.linalg.solve(gram / trace + ridge, slope / trace)


# ------------------------------------------------------------------------------------------------ implicit derivative


class _Implicit(torch.autograd.Function):
    r"""Factors of the means, with the derivative of the equation that they solve.

    With :math:`dG = N E N^⊤` the linearised equation is :math:`Σ w_j U_j (h_j ∘ U_j^⊤ E U_j) U_j^⊤ = r`, self-adjoint
    and positive definite; the backward pass is one solve with it by conjugate gradients, in the frames that the
    forward pass ended with.
    """

    @staticmethod
    def forward(ctx: Any, b: Tensor, w: Tensor, flow: Flow, solver: Solver, report: list[Tensor]) -> Tensor:
        shape, k = w.shape, b.shape[-1]

        def each_query(x: Tensor) -> Tensor:  # (..., m, k, k) -> (r, m, k, k)
            return x[..., None, :, :, :].expand(*shape, k, k).reshape(-1, shape[-1], k, k)

        n, guess = flow.start(b, w)
        guess = None if guess is None else each_query(guess)
        n, frame, *how = _iterate(flow, n.reshape(-1, k, k), guess, each_query(b), w.reshape(-1, shape[-1]), solver)
        report.extend(x.reshape(shape[:-1]) for x in how)
        n = n.reshape(*shape[:-1], k, k)
        ctx.save_for_backward(w, n, *(x.reshape(*shape, *x.shape[2:]) for x in frame))
        ctx.flow = flow
        return n

    @staticmethod
    @differentiable_once("a Fréchet mean")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        w, n, u, s, v = ctx.saved_tensors
        flow: Flow = ctx.flow
        turn = svd(n)  # N turned by an orthogonal matrix is a factor of the same mean; take orthogonal columns
        n, u = n @ turn.v, turn.v.mT[..., None, :, :] @ u
        h, w_ = flow.curvature(s), w[..., None, None]

        def operator(e: Tensor) -> Tensor:
            terms: Tensor = w_ * (u @ (h * (u.mT @ e[..., None, :, :] @ u)) @ u.mT)
            return terms.sum(-3)

        eps = torch.finfo(s.dtype).eps
        g = turn.s.square()
        g = g.maximum(eps**2 * g.amax(-1, keepdim=True))
        right = sym(n.mT @ (grad @ turn.v)) / 2
        z = _conjugate_gradients(operator, right, flow.precondition(g))
        inner = u.mT @ z[..., None, :, :] @ u
        grad_b = grad_w = None
        if ctx.needs_input_grad[0]:
            outer = flow.adjoint(n)[..., None, :, :] @ u
            grad_b = (2 * w_ * (outer @ (flow.response(s) * inner) @ v.mT)).sum(-4)
        if ctx.needs_input_grad[1]:
            grad_w = (inner.diagonal(dim1=-2, dim2=-1) * flow.values(s)).sum(-1)
        return grad_b, grad_w, None, None, None


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum((-2, -1), keepdim=True)


def _conjugate_gradients(operator: Callable[[Tensor], Tensor], right: Tensor, diagonal: Tensor) -> Tensor:
    """Solve ``operator(z) = right`` for batches of symmetric matrices, preconditioned by an elementwise multiplier."""
    scale = diagonal.rsqrt()
    eps, tiny = torch.finfo(right.dtype).eps, torch.finfo(right.dtype).tiny
    z, r = torch.zeros_like(right), scale * right
    p, rr = r, _dot(r, r)
    target = (4 * eps) ** 2 * rr
    for _ in range(4 * right.shape[-1] + 20):
        if bool((rr <= target).all()):
            break
        q = scale * operator(scale * p)
        step = torch.where(rr > target, rr / _dot(p, q).clamp_min(tiny), 0)
        z, r = z + step * p, r - step * q
        old, rr = rr, _dot(r, r)
        p = r + rr / old.clamp_min(tiny) * p
    return sym(scale * z)
