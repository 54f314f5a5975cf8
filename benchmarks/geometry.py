"""How fast each library computes the distances and means of one attention layer, and whether rightly.

    python benchmarks/geometry.py [--quick] [--threads 1 2] [--write docs/benchmarks.md]

Every peer's answer is compared with a float64 reference before its time counts. Libraries take turns, and the
shortest of several calls is shown, so that a busy machine hurts everyone alike.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from peers import (
    IN_FLOAT64,
    LOW_FLOOR,
    RELAXED,
    Peer,
    load_peers,
    publish,
    quiet,
    setting,
    table,
    textbook_distance,
    textbook_mean,
)
from threadpoolctl import threadpool_limits
from torch import Tensor

Shape = tuple[int, int, int]  # batch b, sequence m, size k
Pair = tuple[Tensor, Tensor]
SHAPES: list[Shape] = [(128, 3, 18), (64, 7, 12)]  # the MI and SSVEP presets
SPECTRA = {"condition 1e3": 7e2, "condition 1e5": 8e4}  # spread of the sources; sampling adds the rest
DTYPES = {"float64": torch.float64, "float32": torch.float32}
#: Largest relative errors of an answer, and of its gradient, that still count as right.
LIMITS = {"float64": (1e-6, 1e-4), "float32": (1e-4, 1e-2)}
INTRODUCTION = """# Benchmarks

Times of the two Bures-Wasserstein operations of an attention layer, of gbwatt and of other public libraries.
The part below is written by `benchmarks/geometry.py`; `benchmarks/README.md` says how the peers are called.
"""


@dataclass(frozen=True)
class Case:
    """One operation on one batch, with the answer in float64: ``operation(peer, *inputs)``."""

    task: str  # "distances" or "means"
    column: str
    dtype: str
    inputs: Pair
    answer: Tensor
    gradients: Pair
    cotangent: Tensor

    def call(self, peer: Peer, inputs: Pair) -> Tensor:
        return peer.cross_dist(*inputs) if self.task == "distances" else peer.mean(*inputs)


@dataclass
class Timing:
    """What one peer did in one case."""

    peer: Peer
    items: int  # batch items per call; the time is scaled to the whole batch
    seconds: float = math.inf
    error: float = math.nan
    gradient_error: float | None = None
    failure: str = ""
    scale: float = 1.0

    def right(self, dtype: str) -> bool:
        limit, gradient_limit = LIMITS[dtype]
        gradient_right = self.gradient_error is None or self.gradient_error <= gradient_limit
        return not self.failure and self.error <= limit and gradient_right


# ------------------------------------------------------------------------------------------------------- data


def covariances(rng: torch.Generator, shape: Shape, spread: float, samples: int = 146) -> Tensor:
    """Trace-one covariances (b, m, k, k): segments of a trial share a mixing matrix, their sources vary."""
    b, m, k = shape
    mixing, _ = torch.linalg.qr(_normal(rng, b, 1, k, k))
    amplitudes = torch.logspace(0, -math.log10(spread) / 2, k, dtype=torch.float64)
    gains = amplitudes * torch.exp(0.2 * _normal(rng, b, m, k))
    signals = mixing @ (gains[..., None] * _normal(rng, b, m, k, samples))
    covariance = signals @ signals.mT
    return covariance / covariance.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]


def attention(rng: torch.Generator, b: int, m: int) -> Tensor:
    """Rows of attention weights: the softmax of small scores, (b, m, m)."""
    return torch.softmax(0.2 * _normal(rng, b, m, m), -1)


def _normal(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=rng, dtype=torch.float64)


def cases(task: str, dtype: str, shapes: Sequence[Shape]) -> Iterator[Case]:
    """All inputs of one table, rounded to its dtype, with their references."""
    for b, m, k in shapes:
        for name, spread in SPECTRA.items():
            rng = torch.Generator().manual_seed(0)
            x = covariances(rng, (b, m, k), spread)
            second = covariances(rng, (b, m, k), spread) if task == "distances" else attention(rng, b, m)
            inputs = (x.to(DTYPES[dtype]), second.to(DTYPES[dtype]))
            answer, gradients, cotangent = reference(task, inputs, rng)
            yield Case(task, f"{b}×{m}×{k}×{k}, {name}", dtype, inputs, answer, gradients, cotangent)


# ------------------------------------------------------------------------------------------------- references


def reference(task: str, inputs: Pair, rng: torch.Generator) -> tuple[Tensor, Pair, Tensor]:
    """Answer, gradients and cotangent in float64: the textbook, iterated to the last digit and unrolled."""
    x, y = (t.requires_grad_() for t in in_float64(task, inputs))
    distances = task == "distances"
    answer = textbook_distance(x[:, :, None], y[:, None]) if distances else textbook_mean(x, y, 1e-14)
    cotangent = _normal(rng, *answer.shape)
    if not distances:
        cotangent = (cotangent + cotangent.mT) / 2
    gradients = torch.autograd.grad(answer, (x, y), cotangent)
    return answer.detach(), gradients, cotangent


def in_float64(task: str, inputs: Pair) -> Pair:
    """Copies in float64; weights that sum to one in float32 have to be told so again."""
    x, y = (t.double().clone() for t in inputs)
    return (x, y) if task == "distances" else (x, y / y.sum(-1, keepdim=True))


def second_opinion(case: Case) -> float | None:
    """Largest relative difference between the reference and gbwatt, converged; None without gbwatt."""
    try:
        from gbwatt.geometry import BuresWasserstein, barycenter
    except ImportError:
        return None
    x, y = in_float64(case.task, case.inputs)
    if case.task == "distances":
        ours = BuresWasserstein().dist(x[:, :, None], y[:, None])
    else:
        ours = barycenter(BuresWasserstein(), x, y, tol=1e-14).value
    return relative_error(ours, case.answer, case.task)


def relative_error(value: Tensor, truth: Tensor, task: str) -> float:
    """Largest relative error over the batch: of numbers for distances, of matrices (Frobenius) for means."""
    value = value.detach().double()
    if task == "distances":
        return ((value - truth).abs() / truth).max().item()
    return (torch.linalg.matrix_norm(value - truth) / torch.linalg.matrix_norm(truth)).max().item()


def gradient_error(gradients: Sequence[Tensor], truths: Sequence[Tensor]) -> float:
    """Largest relative error over both inputs and all batch items.

    Judged along the directions that exist: symmetric matrices, weights whose sum stays one.
    """
    return max(_gradient_error(g.double(), t) for g, t in zip(gradients, truths, strict=True))


def _gradient_error(gradient: Tensor, truth: Tensor) -> float:
    if truth.ndim == 4:
        gradient, truth = gradient + gradient.mT, truth + truth.mT
    else:
        gradient, truth = (g - g.mean(-1, keepdim=True) for g in (gradient, truth))
    return ((gradient - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)).max().item()


# ----------------------------------------------------------------------------------------------------- timing


def timed(case: Case, timing: Timing, backward: bool) -> tuple[float, Tensor, Sequence[Tensor]]:
    """Seconds of one call on the first ``timing.items`` batch items, its answer and its gradients."""
    inputs = tuple(t[: timing.items].clone().requires_grad_(backward) for t in case.inputs)
    cotangent = case.cotangent[: timing.items].to(inputs[0].dtype)
    with timing.peer.settings():
        start = time.perf_counter()
        value = case.call(timing.peer, inputs)
        gradients = torch.autograd.grad(value, inputs, cotangent) if backward else ()
        return time.perf_counter() - start, value, gradients


def first_call(case: Case, peer: Peer, backward: bool, budget: float) -> Timing:
    """Grow the part of the batch until it is the whole or exceeds the budget, and judge the answer."""
    timing = Timing(peer, items=2)
    try:
        seconds, value, gradients = timed(case, timing, backward)
        while timing.items < len(case.answer) and seconds < budget:
            timing.items = min(4 * timing.items, len(case.answer))
            seconds, value, gradients = timed(case, timing, backward)
    except (ArithmeticError, ValueError, RuntimeError, np.linalg.LinAlgError) as problem:
        timing.failure = type(problem).__name__.lstrip("_")
        return timing
    timing.scale = len(case.answer) / timing.items
    timing.seconds = seconds * timing.scale
    timing.error = relative_error(value, case.answer[: timing.items], case.task)
    if backward:
        timing.gradient_error = gradient_error(gradients, [g[: timing.items] for g in case.gradients])
    return timing


def measure(case: Case, peers: Sequence[Peer], backward: bool, rounds: int, budget: float) -> list[Timing]:
    """Shortest times; the peers take turns, and those that exceed the budget are not called again."""
    timings = [first_call(case, peer, backward, budget) for peer in peers]
    for _ in range(rounds):
        for timing in timings:
            if not timing.failure and timing.seconds <= budget * timing.scale:
                seconds, _, _ = timed(case, timing, backward)
                timing.seconds = min(timing.seconds, seconds * timing.scale)
    return timings


# ----------------------------------------------------------------------------------------------------- report


def show(timing: Timing | None, dtype: str) -> str:
    """One table cell: milliseconds (error), or why there is none."""
    if timing is None:
        return "no gradient"
    if timing.failure:
        return f"✗ {timing.failure}"
    errors = f"{timing.error:.1e}"
    if timing.gradient_error is not None:
        errors += f", {timing.gradient_error:.1e}"
    mark = "" if timing.right(dtype) else "✗ "
    scaled = "" if timing.scale == 1 else f" ⅟{timing.scale:.0f}"
    return f"{mark}{_milliseconds(timing.seconds)} ({errors}){scaled}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}" if seconds < 0.1 else f"{1e3 * seconds:,.0f}"


def advantage(ours: str, timings: Sequence[Timing], dtype: str, libraries: bool) -> str:
    """Time of the fastest right library, or else of the fastest right textbook variant, over ours, if ours is right."""
    own = [t for t in timings if t.peer.name == ours and t.right(dtype)]
    others = [
        t
        for t in timings
        if t.peer.distribution != "gbwatt" and t.peer.name.startswith("textbook") != libraries and t.right(dtype)
    ]
    if not own:
        return "–"
    if not others:
        return "none is right"
    fastest = min(others, key=lambda t: t.seconds)
    return f"**{fastest.seconds / own[0].seconds:.1f}** ({fastest.peer.name})"


def tabulate(title: str, dtype: str, peers: Sequence[Peer], results: dict[str, list[Timing]]) -> str:
    """A row for each library, a column for each case."""
    by_place = {(column, t.peer.name): t for column, timings in results.items() for t in timings}
    rows = [[p.name, *(show(by_place.get((column, p.name)), dtype) for column in results)] for p in peers]
    for ours in (p.name for p in peers if p.distribution == "gbwatt"):
        for what, libraries in (("fastest right library", True), ("textbook", False)):
            ratios = (advantage(ours, timings, dtype, libraries) for timings in results.values())
            rows.append([f"{what} / {ours}", *ratios])
    return f"**{title}**\n\n{table(['ms (error)', *results], rows)}"


def contestants(peers: Sequence[Peer], task: str, dtype: str) -> list[Peer]:
    """Peers without the variants that would make no difference here."""
    idle = {RELAXED} if task == "distances" else set()
    idle |= {IN_FLOAT64, LOW_FLOOR} if dtype == "float64" else set()
    return [p for p in peers if p.name not in idle]


def legend(agreement: Sequence[float]) -> str:
    """How to read the tables."""
    (limit64, slope64), (limit32, slope32) = LIMITS["float64"], LIMITS["float32"]
    opinions = f"; gbwatt, converged in float64, agrees with it to {max(agreement):.0e}" if agreement else ""
    return (
        "Milliseconds for the whole batch (largest relative error of the answer, and of its gradient). "
        f"✗: wrong, that is an error above {limit64:.0e} in float64 or {limit32:.0e} in float32 "
        f"(gradients: {slope64:.0e}, {slope32:.0e}), NaN or an exception. "
        "⅟n: timed on one n-th of the batch and multiplied. "
        f"The reference is the textbook formula or iteration in float64, run to the last digit{opinions}."
    )


def run(peers: Sequence[Peer], args: argparse.Namespace) -> tuple[list[str], list[float]]:
    """All tables for one number of threads, and the differences between the two references."""
    tables, agreement = [], []
    shapes = [(b // 8, m, k) for b, m, k in SHAPES] if args.quick else SHAPES
    for task in args.tasks:
        for dtype in DTYPES:
            columns = list(cases(task, dtype, shapes))
            agreement += [a for a in map(second_opinion, columns) if a is not None]
            rows = contestants(peers, task, dtype)
            for direction in ("forward", "forward + backward"):
                results = compare(columns, rows, direction != "forward", args)
                tables.append(tabulate(f"{task.capitalize()}, {direction}, {dtype}", dtype, rows, results))
                print(tables[-1], end="\n\n", flush=True)
    return tables, agreement


def compare(
    columns: Sequence[Case], peers: Sequence[Peer], backward: bool, args: argparse.Namespace
) -> dict[str, list[Timing]]:
    """Measure all peers that can in all cases."""
    able = [p for p in peers if p.differentiable or not backward]
    with quiet():
        return {c.column: measure(c, able, backward, args.rounds, args.budget) for c in columns}


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="an eighth of the batch, two rounds")
    parser.add_argument("--tasks", nargs="+", choices=["distances", "means"], default=["distances", "means"])
    parser.add_argument(
        "--threads",
        type=int,
        nargs="+",
        default=[torch.get_num_threads()],
        help="torch threads, a section for each (default: torch's own, %(default)s)",
    )
    parser.add_argument("--rounds", type=int, default=5, help="show the shortest of these (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=0.5, help="seconds per call (default: %(default)s)")
    parser.add_argument("--peers", nargs="+", metavar="NAME", help="only these libraries")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this markdown file")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.budget = min(args.rounds, 2), min(args.budget, 0.1)
    return args


def main() -> None:
    """Print the tables."""
    args = parse()
    peers, missing = load_peers(args.peers)
    sections = []
    for threads in args.threads:
        torch.set_num_threads(threads)
        where = setting(peers, missing)
        print(where, end="\n\n")
        with threadpool_limits(threads):
            tables, agreement = run(peers, args)
        print(legend(agreement), end="\n\n")
        sections += [f"## {threads} thread(s)", where, legend(agreement), *tables]
    if args.write:
        publish("\n\n".join(sections), args.write, "benchmarks", INTRODUCTION)


if __name__ == "__main__":
    main()
