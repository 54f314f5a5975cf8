r"""Weighted Fréchet means of batches of matrices, with separate weights for each query.

:func:`barycenter` maps the points by the chart of the metric, solves the equation of its space, and maps the solution
back.  In flat spaces the mean is a weighted sum.  In the others it is a fixed point
(:mod:`gbwatt.geometry._fixed_point`) in terms of factors, :math:`X_j = B_j B_j^⊤` and :math:`G = N N^⊤`, which avoids
inverses and square roots of ill-conditioned products.  The iteration is accelerated by Anderson's method [1]_.  Every
problem of a batch stops independently of the others.  The derivative is that of the solution, by the implicit function
theorem, not that of the iteration.

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
from gbwatt.geometry._context import apply, differentiable_once, full_precision, single_threaded
from gbwatt.geometry._fixed_point import COMMON_TOLERANCE, EQUATIONS, MeanEquation, Solutions, each_query
from gbwatt.geometry.linalg import in_range, svd, weighted_sums
from gbwatt.geometry.symmetric import require_symmetric, sym

if TYPE_CHECKING:
    from gbwatt.geometry.metrics import Metric

Differentiate = Literal["implicit", "unrolled"]

HISTORY = 5  # number of past steps that Anderson's method combines with the last one; more steps gain little
FAST = 0.1  # a residual that falls by this factor in one step needs no acceleration


@dataclass(frozen=True)
class Barycenter:
    """A weighted Fréchet mean, with diagnostics of the solver.

    Attributes
    ----------
    value : Tensor, shape (..., q, k, k)
        The means.
    steps : Tensor, shape (..., q)
        Number of iterations; 0 for a closed form.
    residual : Tensor, shape (..., q)
        Norm of the Riemannian gradient at the mean, relative to the norm of the mean where the metric has a scale.
    converged : Tensor of bool, shape (..., q)
        Whether the residual reached the tolerance or the rounding level.
    """

    value: Tensor
    steps: Tensor
    residual: Tensor
    converged: Tensor


@dataclass(frozen=True)
class Solver:
    """Options of the fixed-point iteration and of its derivative, as in :func:`barycenter`."""

    tol: float
    max_steps: int
    differentiate: Differentiate = "implicit"


def default_tolerance(dtype: torch.dtype) -> float:
    """Tolerance of :func:`barycenter`: 1e-12 in float64, 2e-6 in float32, a few times the rounding of the residual."""
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
        The metric whose squared distances are averaged.
    points : Tensor, shape (..., m, k, k)
        Matrices to average, shared by all queries.
    weights : Tensor, shape (..., q, m) or (m,), optional
        Non-negative weights that sum to one over the last axis; one mean for each of the q rows.  For a single row
        (m,), or None for equal weights, the result has no query axis.
    tol : float, optional
        Residual at which the iteration stops; by default 1e-12 in float64 and 2e-6 in float32.
    max_steps : int
        Maximal number of iterations.  The solver warns with :class:`~gbwatt.errors.ConvergenceWarning` if it is
        reached.
    differentiate : "implicit" or "unrolled"
        Differentiate the equation that the mean solves (exact, with memory independent of the number of steps), or
        the steps of the plain iteration (for comparison).

    Returns
    -------
    Barycenter
        The means, with number of steps, residual and convergence of each.

    Raises
    ------
    NotSPDError, NotSymmetricError, NotFiniteError
        If ``points`` are not positive definite, not symmetric or not finite.
    ShapeError, WeightsError
        If ``weights`` do not match ``points``, are negative or do not sum to one.

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
    points, rows = _check_arguments(points, weights)
    solver = Solver(default_tolerance(points.dtype) if tol is None else tol, max_steps, differentiate)
    mean = _solve(metric.space.mean_equation, metric.chart(points, "points"), rows, solver)
    if not torch.compiler.is_compiling() and not bool(mean.converged.all()):
        _warn_not_converged(metric, points, mean, solver)
    with single_threaded(points, few=math.prod(mean.value.shape[:-2])):
        value = in_range("the mean", metric.chart.inverse(mean.value))
    if rows is weights:
        return replace(mean, value=value)
    return Barycenter(value.squeeze(-3), mean.steps.squeeze(-1), mean.residual.squeeze(-1), mean.converged.squeeze(-1))


def _check_arguments(points: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Validate points and weights; return them, the weights with a query axis and equal by default."""
    require_symmetric(points=points)
    if points.ndim < 3 or points.shape[-3] == 0:
        raise ShapeError(
            f"'points' {tuple(points.shape)} is not a stack of matrices; (..., m, k, k) with m > 0 is required."
        )
    if weights is None:
        m = points.shape[-3]
        weights = points.new_full((m,), 1 / m)
    check_weights(points, weights)
    return points, weights if weights.ndim > 1 else weights[None]


def _warn_not_converged(metric: Metric, points: Tensor, mean: Barycenter, solver: Solver) -> None:
    """Warn that the iteration did not converge, with the residual and the conditioning of the points."""
    spectrum = torch.linalg.eigvalsh(points.detach())
    relative = float((spectrum[..., 0] / spectrum[..., -1]).min())
    bad = ~mean.converged
    warnings.warn(
        f"the mean of 'points' {tuple(points.shape)} under {metric} did not converge for {int(bad.sum())} of "
        f"{bad.numel()} queries: residual {float(mean.residual[bad].max()):.1e} after {solver.max_steps} steps, "
        f"tolerance {solver.tol:.1e}; smallest eigenvalue of the points {relative:.1e} of the largest. "
        "Raise max_steps or tol, or add a multiple of the identity to the points.",
        ConvergenceWarning,
        stacklevel=4,
    )


# ---------------------------------------------------------------------------------------------------------- the solver


def _solve(equation: MeanEquation | None, points: Tensor, weights: Tensor, solver: Solver) -> Barycenter:
    """Means of points (..., m, k, k) of a space for weights (..., q, m): points (..., q, k, k) of the space."""
    if equation is None:
        value = weighted_sums(weights, points)
        zero = torch.zeros(value.shape[:-2], dtype=value.dtype, device=value.device)
        return Barycenter(sym(value), zero.long(), zero, zero == 0)
    batch = broadcast_shape(points.shape[:-3], weights.shape[:-2])
    b = points.expand(*batch, *points.shape[-3:])
    w = weights.expand(*batch, *weights.shape[-2:])
    if solver.differentiate == "unrolled":
        return _solve_unrolled(equation, b, w, solver)
    if torch.compiler.is_exporting():
        value = torch.ops.gbwatt.fixed_point(b, w, equation.name, solver.tol, solver.max_steps)
        unknown = torch.zeros_like(w[..., 0])
        return Barycenter(value, unknown.long(), unknown, unknown == 0)
    diagnostics: list[Tensor] = []
    value = apply(_ImplicitMean, b, w, equation, solver, diagnostics)
    return Barycenter(value, *diagnostics)


@torch.library.custom_op("gbwatt::fixed_point", mutates_args=())
def _fixed_point_operation(b: Tensor, w: Tensor, flow: str, tol: float, max_steps: int) -> Tensor:
    """The solver as one operation of an exported program, which cannot contain loops that depend on values.

    Exported programs refer to its name and arguments, ``flow`` being a key of :data:`EQUATIONS`.
    """
    solutions, _, _ = _solve_batch(EQUATIONS[flow], b, w, Solver(tol, max_steps))
    return solutions.n.reshape(*w.shape[:-1], *b.shape[-2:])


@_fixed_point_operation.register_fake
def _(b: Tensor, w: Tensor, flow: str, tol: float, max_steps: int) -> Tensor:  # noqa: ARG001
    """Shape of the result of ``gbwatt::fixed_point``, for tracing without data."""
    return b.new_empty(*w.shape[:-1], *b.shape[-2:])


def _solve_unrolled(equation: MeanEquation, b: Tensor, w: Tensor, solver: Solver) -> Barycenter:
    """Iterate with plain steps, through which autograd differentiates."""
    n, _ = equation.start(b, w)
    b = b[..., None, :, :, :].expand(*w.shape, *b.shape[-2:])
    for taken in range(solver.max_steps + 1):
        with torch.no_grad():
            _, residual = equation.advance(n, b, w, svd(equation.relative(n, b)))
            converged = residual <= equation.noise(n).clamp_min(solver.tol)
        if bool(converged.all()) or taken == solver.max_steps:
            break
        n = equation.step(n, b, w)
    return Barycenter(n, torch.full_like(converged, taken, dtype=torch.long), residual, converged)


def _solve_batch(
    equation: MeanEquation, b: Tensor, w: Tensor, solver: Solver
) -> tuple[Solutions, Tensor, Tensor | None]:
    """Solutions (r, ...) for points (..., m, k, k) and weights (..., q, m), one for each of the r rows of weights.

    Also returns the points (i, m, k, k), possibly rotated by orthogonal matrices on the right, and these matrices.
    """
    problems, queries = math.prod(w.shape[:-2]), w.shape[-2]
    b, w = b.reshape(problems, *b.shape[-3:]), w.reshape(problems, *w.shape[-2:])
    rows = w.flatten(0, 1)
    n, frames = equation.start(b, w)
    n = n.flatten(0, 1)
    if frames is None:
        if queries > 1 and b.shape[1] > 2:
            n = _common_mean(equation, b, solver).repeat_interleave(queries, 0)
        return _iterate(equation, n, None, each_query(b, rows), rows, solver), b, None
    solutions = equation.iterate_in_frames(n, rows, frames, solver.tol, solver.max_steps)
    if solutions is None:
        base = frames.base.repeat_interleave(queries, 0)
        solutions = _iterate(equation, n, base, each_query(frames.rotated, rows), rows, solver)
    elif not bool(solutions.converged.all()):
        unsolved = (~solutions.converged).nonzero().squeeze(1)
        used = solutions.steps[unsolved]
        remaining = replace(solver, max_steps=solver.max_steps - int(used.max()))
        again = _iterate(
            equation, solutions.n[unsolved], None, frames.rotated[unsolved // queries], rows[unsolved], remaining
        )
        again = again._replace(steps=used + again.steps)
        for whole, part in zip(solutions, again, strict=True):
            whole[unsolved] = part
    return solutions, frames.rotated, frames.v


def _common_mean(equation: MeanEquation, b: Tensor, solver: Solver) -> Tensor:
    """Approximate means of points (i, m, k, k) for equal weights, from which all queries start."""
    equal = b.new_full(b.shape[:2], 1 / b.shape[1])
    n, _ = equation.start(b, equal[:, None])
    rough = replace(solver, tol=max(COMMON_TOLERANCE, solver.tol))
    return _iterate(equation, n.squeeze(1), None, b, equal, rough).n


def _iterate(equation: MeanEquation, n: Tensor, base: Tensor | None, b: Tensor, w: Tensor, solver: Solver) -> Solutions:
    """Iterate problems (r, k, k), (r, m, k, k), (r, m) until each has converged.

    ``base`` (r, k, k) is the iterate before ``n``, if there is one.
    """
    limit = equation.noise(n).clamp_min(solver.tol)
    floor = limit.maximum(equation.floor(n, b))
    steps = torch.zeros(len(n), dtype=torch.long, device=n.device)
    none_yet = torch.zeros_like(limit, dtype=torch.bool)
    solutions = Solutions(torch.empty_like(n), torch.empty_like(limit), steps, none_yet)
    active = torch.arange(len(n), device=n.device)
    mixer, final_precision = _Anderson(n), solver.tol / 10
    precision = final_precision
    if base is not None:
        n = mixer(base, n, torch.full_like(limit, torch.inf))
        precision = max(1e-6, final_precision)
    for taken in range(solver.max_steps + 1):
        with single_threaded(n, few=len(n)):
            new, residual, b = equation.evaluate(n, b, w, precision)
        # false for NaN, so that problems that cannot converge stop
        unfinished = (residual > limit[active]) & ~((residual <= floor[active]) & mixer.stuck())
        if taken == solver.max_steps:
            unfinished = torch.zeros_like(unfinished)
        elif precision > final_precision:
            unfinished = torch.ones_like(unfinished)
        precision = max(1e-3 * precision, final_precision)  # the decompositions become precise before the iterates do
        if not bool(unfinished.any()) or not bool(unfinished.all()):  # also for an empty batch
            done = active[~unfinished]
            solutions.n[done], solutions.residual[done] = n[~unfinished], residual[~unfinished]
            solutions.steps[done] = taken
            if not bool(unfinished.any()):
                break
            active, n, new, residual, b, w = (x[unfinished] for x in (active, n, new, residual, b, w))
            mixer.keep(unfinished)
        n = mixer(n, new, residual)
    return solutions._replace(converged=solutions.residual <= floor)


class _Anderson:
    """Anderson acceleration of batched iterations: mix past steps to reduce the residual of the next iterate.

    The mixture would minimise the residual if the problem were linear.  Problems that already converge fast take plain
    steps, which are cheaper.  So do problems whose residual has not fallen for a few steps, until it falls: plain steps
    do not diverge.  Calling it with the old iterate, the new one and the residual returns the iterate to continue from.
    """

    def __init__(self, n: Tensor) -> None:
        self.steps: list[tuple[Tensor, Tensor]] = []  # old and new
        self.best = n.new_full((len(n),), torch.inf)
        self.stalled = torch.zeros_like(self.best)

    def keep(self, mask: Tensor) -> None:
        """Keep only the problems in ``mask``."""
        self.steps = [(old[mask], new[mask]) for old, new in self.steps]
        self.best, self.stalled = self.best[mask], self.stalled[mask]

    def stuck(self) -> Tensor:
        """Mask of the problems whose residual has not fallen for three steps."""
        return self.stalled > 2

    def __call__(self, old: Tensor, new: Tensor, residual: Tensor) -> Tensor:
        self.steps = [*self.steps, (old, new)][-HISTORY - 1 :]
        self.stalled = torch.where(residual < self.best, 0, self.stalled + 1)
        plain = (residual < FAST * self.best) | (residual > 2 * self.best) | self.stuck()
        self.best = torch.minimum(self.best, residual)
        if len(self.steps) == 1 or bool(plain.all()):
            return new
        return torch.where(plain[:, None, None], new, self._mix_steps().reshape(new.shape))

    def _mix_steps(self) -> Tensor:
        """Combine the last steps with the weights that make their combined move smallest."""
        moves = torch.stack([(new - old).flatten(1) for old, new in self.steps], 1)  # (r, history, k k)
        mixed = torch.zeros_like(self.best)[:, None]
        for (_, new), weight in zip(self.steps, _minimising_weights(moves).split(1, dim=1), strict=True):
            mixed = torch.addcmul(mixed, weight, new.flatten(1))
        return mixed


def _minimising_weights(moves: Tensor) -> Tensor:
    """Weights (r, h) that sum to one and minimise ``|Σ weight move|``, for moves (r, h, d)."""
    eps = torch.finfo(moves.dtype).eps
    with single_threaded(moves[..., :1]):
        gram = moves @ moves.mT
    largest = gram.diagonal(dim1=-2, dim2=-1).amax(-1)[:, None, None]
    gram = gram / torch.where(largest > 0, largest, 1)
    length = gram.diagonal(dim1=-2, dim2=-1).sqrt().clamp_min(eps)  # at least eps, for steps of zero length
    ridge = 10 * eps * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    cosines = gram / length[:, :, None] / length[:, None, :] + ridge
    weights: Tensor = torch.linalg.solve(cosines, 1 / length) / length
    return weights / weights.sum(-1, keepdim=True)


# ------------------------------------------------------------------------------------------------ implicit derivative


class _ImplicitMean(torch.autograd.Function):
    """Factors of the means, with the derivative of the equation that they solve."""

    @staticmethod
    def forward(
        ctx: Any, b: Tensor, w: Tensor, equation: MeanEquation, solver: Solver, diagnostics: list[Tensor]
    ) -> Tensor:
        shape, k = w.shape, b.shape[-1]
        solutions, rotated, v = _solve_batch(equation, b, w, solver)
        diagnostics += [x.reshape(shape[:-1]) for x in (solutions.steps, solutions.residual, solutions.converged)]
        ctx.save_for_backward(solutions.n, rotated, w, v, b)
        ctx.equation, ctx.tol, ctx.shape = equation, solver.tol, shape
        return solutions.n.reshape(*shape[:-1], k, k)

    @staticmethod
    @differentiable_once("a Fréchet mean")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        n, b, w, v, _ = ctx.saved_tensors
        tolerance = max(ctx.tol, 100 * torch.finfo(grad.dtype).eps)  # the size of the errors of the frames
        rows = w.reshape(len(n), w.shape[-1])
        with single_threaded(n, few=len(n)):
            in_points, in_weights = ctx.equation.gradients(n, b, rows, grad.reshape(n.shape), tolerance)
        in_points = in_points.reshape(len(b), *w.shape[-2:], *n.shape[1:]).sum(1)
        if v is not None:
            in_points = in_points @ v.mT
        shape = ctx.shape
        return in_points.reshape(*shape[:-2], *b.shape[1:]), in_weights.reshape(shape), None, None, None
