r"""Weighted Fréchet means of batches of matrices, each query with its own weights.

A mean is found on factors, :math:`X_j = B_j B_j^⊤` and :math:`G = N N^⊤`, where no inverse and no square root of an
ill-conditioned product is needed (see :mod:`gbwatt.geometry._fixed_point`).  The fixed point is accelerated by
Anderson's method [1]_; every problem of a batch stops by itself, so its result does not depend on its neighbours.  The
derivative is that of the solution, by the implicit function theorem, not of the iteration.

References
----------
.. [1] H. F. Walker, P. Ni, "Anderson acceleration for fixed-point iterations", SIAM J. Numer. Anal. 49(4), 2011.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from gbwatt._validation import broadcast_shape, check_one_of, check_same_kind, check_weights
from gbwatt.errors import ConvergenceWarning, ParameterError, ShapeError
from gbwatt.geometry._autograd import apply, differentiable_once, full_precision
from gbwatt.geometry._fixed_point import COMMON, FLOWS, Flow, Found, each_query
from gbwatt.geometry._threads import single_threaded
from gbwatt.geometry.linalg import in_range, svd
from gbwatt.geometry.symmetric import require_symmetric

if TYPE_CHECKING:
    from gbwatt.geometry.metrics import Metric

Differentiate = Literal["implicit", "unrolled"]

HISTORY = 5  # past steps that Anderson's method combines with the last; more gain little
FAST = 0.1  # fall of the residual in one step that needs no acceleration


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


@full_precision
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
        Steps after which the iteration stops with a :class:`~gbwatt.errors.ConvergenceWarning`.
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
    check_one_of("differentiate", differentiate, ("implicit", "unrolled"))
    check_same_kind(points=points)
    if tol is not None and not tol > 0:
        raise ParameterError(f"tol={tol} must be positive; leave it out for {default_tolerance(points.dtype)}.")
    if max_steps < 1:
        raise ParameterError(f"max_steps={max_steps} must be at least 1.")
    points, rows = _arguments(points, weights)
    solver = Solver(default_tolerance(points.dtype) if tol is None else tol, max_steps, differentiate)
    factors = metric.chart(points, "points")
    found = metric.space.barycenter(factors, rows, solver)
    if not torch.compiler.is_compiling() and not bool(found.converged.all()):
        _warn(metric, points, found, solver)
    with single_threaded(points, few=math.prod(found.value.shape[:-2])):
        value = in_range("the mean", metric.chart.inverse(found.value))
    if rows is weights:
        return Barycenter(value, found.steps, found.residual, found.converged)
    return Barycenter(
        value.squeeze(-3), found.steps.squeeze(-1), found.residual.squeeze(-1), found.converged.squeeze(-1)
    )


def _arguments(points: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Checked points, and weights with a query axis."""
    require_symmetric(points=points)
    if points.ndim < 3 or points.shape[-3] == 0:
        raise ShapeError(
            f"'points' {tuple(points.shape)} is not a stack of matrices; (..., m, k, k) with m > 0 is needed."
        )
    if weights is None:
        m = points.shape[-3]
        weights = points.new_full((m,), 1 / m)
    check_weights(points, weights)
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
        ConvergenceWarning,
        stacklevel=4,
    )


# ------------------------------------------------------------------------------------------------------ the iteration


def fixed_point(flow: Flow, b: Tensor, w: Tensor, solver: Solver) -> Barycenter:
    """Mean of factors ``b`` (..., m, k, k) for weights ``w`` (..., q, m): factors (..., q, k, k) and how they came."""
    batch = broadcast_shape(b.shape[:-3], w.shape[:-2])
    b = b.expand(*batch, *b.shape[-3:])
    w = w.expand(*batch, *w.shape[-2:])
    if solver.differentiate == "unrolled":
        return _unrolled(flow, b, w, solver)
    if torch.compiler.is_exporting():
        value = torch.ops.gbwatt.fixed_point(b, w, type(flow).__name__, solver.tol, solver.max_steps)
        unknown = torch.zeros_like(w[..., 0])
        return Barycenter(value, unknown.long(), unknown, unknown == 0)
    report: list[Tensor] = []
    value = apply(_Implicit, b, w, flow, solver, report)
    steps, residual, converged = report
    return Barycenter(value, steps, residual, converged)


@torch.library.custom_op("gbwatt::fixed_point", mutates_args=())
def _exported(b: Tensor, w: Tensor, flow: str, tol: float, max_steps: int) -> Tensor:
    """The fixed point as one operation of an exported program, which has no loops that look at values."""
    return _solve_all(FLOWS[flow], b, w, Solver(tol, max_steps))[0].n.reshape(*w.shape[:-1], *b.shape[-2:])


@_exported.register_fake
def _(b: Tensor, w: Tensor, flow: str, tol: float, max_steps: int) -> Tensor:  # noqa: ARG001
    return b.new_empty(*w.shape[:-1], *b.shape[-2:])


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


def _solve_all(flow: Flow, b: Tensor, w: Tensor, solver: Solver) -> tuple[Found, Tensor, Tensor | None]:
    """:func:`_solve` for any batch axes, (..., m, k, k) and (..., q, m)."""
    problems = math.prod(w.shape[:-2])
    return _solve(flow, b.reshape(problems, *b.shape[-3:]), w.reshape(problems, *w.shape[-2:]), solver)


def _solve(flow: Flow, b: Tensor, w: Tensor, solver: Solver) -> tuple[Found, Tensor, Tensor | None]:
    """Means of points (i, m, k, k) for weights (i, q, m): problems (i q, ...).

    Also the points turned by orthogonal matrices, which are returned too, if it is good for their frames.
    """
    queries, rows = w.shape[-2], w.flatten(0, 1)
    n, start = flow.start(b, w)
    n = n.flatten(0, 1)
    if start is None:
        if queries > 1 and b.shape[1] > 2:
            n = _common(flow, b, solver).repeat_interleave(queries, 0)
        return _iterate(flow, n, None, each_query(b, rows), rows, solver), b, None
    found = flow.walk(n, rows, start, solver.tol, solver.max_steps)
    if found is None:
        base = start.base.repeat_interleave(queries, 0)
        return _iterate(flow, n, base, each_query(start.turned, rows), rows, solver), start.turned, start.v
    if not bool(found.converged.all()):
        rest = (~found.converged).nonzero().squeeze(1)
        used = found.steps[rest]
        left = replace(solver, max_steps=solver.max_steps - int(used.max()))
        again = _iterate(flow, found.n[rest], None, start.turned[rest // queries], rows[rest], left)
        again = again._replace(steps=used + again.steps)
        for whole, part in zip(found, again, strict=True):
            whole[rest] = part
    return found, start.turned, start.v


def _common(flow: Flow, b: Tensor, solver: Solver) -> Tensor:
    """About the means of points (i, m, k, k) for equal weights: most of the way is the same for all queries."""
    equal = b.new_full(b.shape[:2], 1 / b.shape[1])
    n, _ = flow.start(b, equal[:, None])
    return _iterate(flow, n.squeeze(1), None, b, equal, replace(solver, tol=max(COMMON, solver.tol))).n


def _iterate(flow: Flow, n: Tensor, base: Tensor | None, b: Tensor, w: Tensor, solver: Solver) -> Found:
    """Iterate problems (r, k, k), (r, m, k, k), (r, m) until each has converged.

    ``base`` (r, k, k) is what ``n`` was a step from, if anything.
    """
    limit = flow.noise(n).clamp_min(solver.tol)
    floor = limit.maximum(flow.floor(n, b))
    steps = torch.zeros(len(n), dtype=torch.long, device=n.device)
    found = Found(torch.empty_like(n), torch.empty_like(limit), steps, torch.zeros_like(limit, dtype=torch.bool))
    active = torch.arange(len(n), device=n.device)
    mixer, needed = _Anderson(n), solver.tol / 10
    exactness = needed
    if base is not None:
        n = mixer(base, n, torch.full_like(limit, torch.inf))
        exactness = max(1e-6, needed)
    for taken in range(solver.max_steps + 1):
        with single_threaded(n, few=len(n)):
            new, now, b = flow.evaluate(n, b, w, exactness)
        # false for NaN: nothing is iterated that cannot converge
        go = (now > limit[active]) & ~((now <= floor[active]) & mixer.stuck())
        if taken == solver.max_steps:
            go = torch.zeros_like(go)
        elif exactness > needed:
            go = torch.ones_like(go)
        exactness = max(1e-3 * exactness, needed)  # decompositions get more exact, ahead of the iteration
        if not bool(go.any()) or not bool(go.all()):  # an empty batch is done too
            done = active[~go]
            found.n[done], found.residual[done], found.steps[done] = n[~go], now[~go], taken
            if not bool(go.any()):
                break
            active, n, new, now, b, w = (x[go] for x in (active, n, new, now, b, w))
            mixer.keep(go)
        n = mixer(n, new, now)
    return found._replace(converged=found.residual <= floor)


class _Anderson:
    """Combination of past steps that would make the residual smallest if the problem were linear.

    Problems that converge fast by themselves take plain steps, which are cheaper.  So do those whose residual has not
    fallen for a few steps, until it does: a plain step never goes astray.
    """

    def __init__(self, n: Tensor) -> None:
        self.steps: list[tuple[Tensor, Tensor]] = []  # old and new
        self.best = n.new_full((len(n),), torch.inf)
        self.stalled = torch.zeros_like(self.best)

    def keep(self, mask: Tensor) -> None:
        self.steps = [(old[mask], new[mask]) for old, new in self.steps]
        self.best, self.stalled = self.best[mask], self.stalled[mask]

    def stuck(self) -> Tensor:
        """Problems whose residual has not fallen for three steps."""
        return self.stalled > 2

    def __call__(self, old: Tensor, new: Tensor, residual: Tensor) -> Tensor:
        self.steps = [*self.steps, (old, new)][-HISTORY - 1 :]
        self.stalled = torch.where(residual < self.best, 0, self.stalled + 1)
        plain = (residual < FAST * self.best) | (residual > 2 * self.best) | self.stuck()
        self.best = torch.minimum(self.best, residual)
        if len(self.steps) == 1 or bool(plain.all()):
            return new
        return torch.where(plain[:, None, None], new, self._mixed().reshape(new.shape))

    def _mixed(self) -> Tensor:
        moves = torch.stack([(new - old).flatten(1) for old, new in self.steps], 1)  # (r, history, k k)
        mixed = torch.zeros_like(self.best)[:, None]
        for (_, new), weight in zip(self.steps, _smallest(moves).split(1, dim=1), strict=True):
            mixed = torch.addcmul(mixed, weight, new.flatten(1))
        return mixed


def _smallest(moves: Tensor) -> Tensor:
    """Weights (r, h) that sum to one and make ``|Σ weight move|`` smallest, for moves (r, h, d)."""
    eps = torch.finfo(moves.dtype).eps
    with single_threaded(moves[..., :1]):
        gram = moves @ moves.mT
    largest = gram.diagonal(dim1=-2, dim2=-1).amax(-1)[:, None, None]
    gram = gram / torch.where(largest > 0, largest, 1)
    length = gram.diagonal(dim1=-2, dim2=-1).sqrt().clamp_min(eps)  # of a step that led nowhere: almost zero
    ridge = 10 * eps * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    cosines = gram / length[:, :, None] / length[:, None, :] + ridge
    weights: Tensor = torch.linalg.solve(cosines, 1 / length) / length
    return weights / weights.sum(-1, keepdim=True)


# ------------------------------------------------------------------------------------------------ implicit derivative


class _Implicit(torch.autograd.Function):
    """Factors of the means, with the derivative of the equation that they solve."""

    @staticmethod
    def forward(ctx: Any, b: Tensor, w: Tensor, flow: Flow, solver: Solver, report: list[Tensor]) -> Tensor:
        shape, k = w.shape, b.shape[-1]
        found, turned, v = _solve_all(flow, b, w, solver)
        report.extend(x.reshape(shape[:-1]) for x in (found.steps, found.residual, found.converged))
        ctx.save_for_backward(found.n, turned, w, v, b)
        ctx.flow, ctx.tol, ctx.shape = flow, solver.tol, shape
        return found.n.reshape(*shape[:-1], k, k)

    @staticmethod
    @differentiable_once("a Fréchet mean")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        n, b, w, v, _ = ctx.saved_tensors
        tolerance = max(ctx.tol, 100 * torch.finfo(grad.dtype).eps)  # errors of the frames are of that size
        rows = w.reshape(len(n), w.shape[-1])
        with single_threaded(n, few=len(n)):
            in_points, in_weights = ctx.flow.gradients(n, b, rows, grad.reshape(n.shape), tolerance)
        in_points = in_points.reshape(len(b), *w.shape[-2:], *n.shape[1:]).sum(1)
        if v is not None:
            in_points = in_points @ v.mT
        shape = ctx.shape
        return in_points.reshape(*shape[:-2], *b.shape[1:]), in_weights.reshape(shape), None, None, None
