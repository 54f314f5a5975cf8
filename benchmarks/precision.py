"""How many digits of Bures-Wasserstein distances and means each library gets right, judged by mpmath.

    python benchmarks/precision.py [--quick] [--write docs/precision.md]

The oracle receives the stored floating-point numbers exactly, so only the arithmetic of a library is
judged, not the rounding of its input. The exit code is 1 if gbwatt breaks one of its promises
(:func:`violations`).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import mpmath
import numpy as np
import torch
from mpmath import mp
from peers import FACTORIES, IN_FLOAT64, RELAXED, Peer, load_peers, publish, quiet, setting, table
from torch import Tensor

K = 18
DTYPES = {"float64": torch.float64, "float32": torch.float32}
CONDITIONS = [1e2, 1e4, 1e6, 1e8, 1e10, 1e12]
#: Pairs at this distance in units of the root of the trace; None: independent matrices.
KINDS = {"far": None, "near 1e-4": 1e-4, "near 1e-7": 1e-7}
INTRODUCTION = """# Precision

Relative errors of Bures-Wasserstein distances, and relative residuals of the equation of the weighted mean,
of gbwatt and of other public libraries, judged by mpmath at 60 digits. The part below is written by
`benchmarks/precision.py`. `textbook` is the usual formula `tr X + tr Y - 2 tr (X^½ Y X^½)^½` on
`torch.linalg.eigh`, and the fixed-point iteration of the mean on it. `NaN` is what a library returned, the
name of an exception what it raised. The means of peers are asked for a residual of 1e-8 in float64 and 1e-5 in
float32; gbwatt keeps its defaults.
"""
Outcome = float | str  # an error, or the name of an exception


@dataclass(frozen=True)
class Cell:
    """What one peer did in one situation: the largest error over all samples."""

    peer: str
    quantity: str  # a key of KINDS, or "mean"
    dtype: str
    cond: float
    outcome: Outcome


# ---------------------------------------------------------------------------------------------------- samples


def random_spd(rng: np.random.Generator, cond: float) -> np.ndarray:
    """Trace-one matrix, random orientation, eigenvalues equally spaced on a logarithmic scale: (k, k)."""
    basis, _ = np.linalg.qr(rng.standard_normal((K, K)))
    values = np.logspace(0, -math.log10(cond), K)
    return _symmetric((basis * (values / values.sum())) @ basis.T)


def neighbour(rng: np.random.Generator, x: np.ndarray, distance: float) -> np.ndarray:
    """``(I + S) X (I + S)``, ``S`` symmetric, such that ``d(X, Y) = ||S X^1/2|| = distance (tr X)^1/2``."""
    s = _symmetric(rng.standard_normal(x.shape))
    s *= distance * math.sqrt(np.trace(x) / np.trace(s @ x @ s))
    transport = np.eye(K) + s
    return _symmetric(transport @ x @ transport)


def _symmetric(x: np.ndarray) -> np.ndarray:
    return (x + x.T) / 2


def sample_pairs(kind: str, cond: float, count: int, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    """Pairs of (k, k) matrices, the same for every library."""
    rng = np.random.default_rng([int(math.log10(cond)), list(KINDS).index(kind)])
    distance, pairs = KINDS[kind], []
    for _ in range(count):
        x = random_spd(rng, cond)
        y = random_spd(rng, cond) if distance is None else neighbour(rng, x, distance)
        pairs.append((torch.tensor(x, dtype=dtype), torch.tensor(y, dtype=dtype)))
    return pairs


def sample_problems(cond: float, count: int, dtype: torch.dtype, m: int = 3) -> list[tuple[Tensor, Tensor]]:
    """Points (m, k, k) with weights (m,) that sum to one."""
    rng = np.random.default_rng([int(math.log10(cond)), 99])
    problems = []
    for _ in range(count):
        points = np.stack([random_spd(rng, cond) for _ in range(m)])
        weights = np.exp(0.3 * rng.standard_normal(m))
        weights /= weights.sum()
        problems.append((torch.tensor(points, dtype=dtype), torch.tensor(weights, dtype=dtype)))
    return problems


# ----------------------------------------------------------------------------------------------------- oracle


def exact(x: Tensor) -> mpmath.matrix:
    """The stored numbers as an mpmath matrix, projected onto the cone of PSD matrices if rounding left it."""
    matrix = mp.matrix(x.double().tolist())
    if torch.linalg.eigvalsh(x.double())[0] > 0:
        return matrix
    values, vectors = mp.eigsy(matrix)
    return _assemble([max(v, mp.zero) for v in values], vectors)


def root(x: mpmath.matrix) -> mpmath.matrix:
    """Square root of a PSD matrix; negative eigenvalues count as zero."""
    values, vectors = mp.eigsy((x + x.T) / 2)
    return _assemble([mp.sqrt(max(v, mp.zero)) for v in values], vectors)


def _assemble(values: Sequence[mpmath.mpf], vectors: mpmath.matrix) -> mpmath.matrix:
    return vectors * mp.diag(values) * vectors.T


def exact_distance(x: Tensor, y: Tensor) -> mpmath.mpf:
    """The textbook formula, whose cancellation is harmless at 60 digits."""
    a, b = exact(x), exact(y)
    half = root(a)
    product = half * b * half
    values = mp.eigsy((product + product.T) / 2, eigvals_only=True)
    fidelity = mp.fsum(mp.sqrt(max(v, mp.zero)) for v in values)
    return mp.sqrt(max(_trace(a) + _trace(b) - 2 * fidelity, mp.zero))


def _trace(x: mpmath.matrix) -> mpmath.mpf:
    return mp.fsum(x[i, i] for i in range(x.rows))


def exact_residual(mean: Tensor, points: Sequence[mpmath.matrix], weights: Tensor) -> float:
    """``||G - sum_j w_j (G^1/2 X_j G^1/2)^1/2|| / ||G||``."""
    g = mp.matrix(mean.double().tolist())
    half = root(g)
    image = mp.zeros(g.rows)
    for x, w in zip(points, weights.double().tolist(), strict=True):
        image += mp.mpf(w) * root(half * x * half)
    return float(mp.mnorm(g - image, "f") / mp.mnorm(g, "f"))


# ------------------------------------------------------------------------------------------------ measurement


def worst(errors: Sequence[Outcome]) -> Outcome:
    """The largest error; an exception or a NaN beats every number."""
    failures = [e for e in errors if isinstance(e, str) or math.isnan(e)]
    return failures[0] if failures else max(errors)


def attempt(peer: Peer, judge: Callable[[], float]) -> Outcome:
    """The error, or the name of what was raised."""
    try:
        with quiet(), peer.settings():
            return judge()
    except (ArithmeticError, ValueError, RuntimeError, np.linalg.LinAlgError) as problem:
        return type(problem).__name__.lstrip("_")


def distance_error(peer: Peer, x: Tensor, y: Tensor, truth: mpmath.mpf) -> float:
    """Relative error of one distance."""
    value = peer.dist(x[None], y[None]).item()
    return math.nan if math.isnan(value) else float(abs(mp.mpf(value) - truth) / truth)


def mean_residual(peer: Peer, points: Tensor, weights: Tensor, truth: Sequence[mpmath.matrix]) -> float:
    """Relative residual of one weighted mean of ``points``, which are exactly ``truth``."""
    mean = peer.mean(points[None], weights[None, None])[0, 0]
    return exact_residual(mean, truth, weights) if mean.isfinite().all() else math.nan


def judge_distances(peers: Sequence[Peer], kind: str, dtype: str, cond: float, count: int) -> list[Cell]:
    """One row of a table of distances."""
    pairs = sample_pairs(kind, cond, count, DTYPES[dtype])
    truths = [exact_distance(x, y) for x, y in pairs]

    def outcome(peer: Peer) -> Outcome:
        together = zip(pairs, truths, strict=True)
        return worst([attempt(peer, partial(distance_error, peer, x, y, d)) for (x, y), d in together])

    return [Cell(peer.name, kind, dtype, cond, outcome(peer)) for peer in peers]


def judge_means(peers: Sequence[Peer], dtype: str, cond: float, count: int) -> list[Cell]:
    """One row of a table of means."""
    problems = [(x, w, [exact(p) for p in x]) for x, w in sample_problems(cond, count, DTYPES[dtype])]

    def outcome(peer: Peer) -> Outcome:
        return worst([attempt(peer, partial(mean_residual, peer, *problem)) for problem in problems])

    return [Cell(peer.name, "mean", dtype, cond, outcome(peer)) for peer in peers]


def violations(cells: Sequence[Cell]) -> list[str]:
    """Broken promises of gbwatt.

    Distances of far pairs to 1e-12 in float64 up to condition 1e12, to 1e-5 in float32 up to 1e6; and never a
    NaN or an exception.
    """
    limits = {"float64": (1e12, 1e-12), "float32": (1e6, 1e-5)}
    ours = [c for c in cells if c.peer == "gbwatt"]
    broken = [] if ours else ["gbwatt was not judged"]
    for cell in ours:
        up_to, limit = limits[cell.dtype]
        promised = cell.quantity == "far" and cell.cond <= up_to
        value = math.nan if isinstance(cell.outcome, str) else cell.outcome
        if math.isnan(value) or (promised and value > limit):
            broken.append(f"{cell.quantity}, {cell.dtype}, condition {cell.cond:.0e}: {show(cell.outcome)}")
    return broken


# ----------------------------------------------------------------------------------------------------- report


def show(outcome: Outcome) -> str:
    """One table cell."""
    if isinstance(outcome, str):
        return outcome
    return "NaN" if math.isnan(outcome) else f"{outcome:.0e}"


def caption(quantity: str, dtype: str, count: int) -> str:
    """What a table shows."""
    what = {
        "far": f"Relative error of the distance, independent matrices, largest of {count} pairs",
        "mean": f"Relative residual of the weighted mean's equation, 3 points, largest of {count} problems",
    }.get(quantity, f"Relative error of the distance, d ≈ {quantity[5:]} (tr X)^½, largest of {count} pairs")
    rounded = (
        " Rounding to float32 makes matrices of condition 1e8 and more indefinite: "
        "there the oracle works on the rounded matrix projected onto the PSD cone."
    )
    return f"**{what}, {dtype}, k = {K}.**{rounded if dtype == 'float32' else ''}"


def tabulate(cells: Sequence[Cell], count: int) -> str:
    """One quantity in one dtype: a row for each condition number, a column for each library."""
    names = list(dict.fromkeys(c.peer for c in cells))
    by_place = {(c.cond, c.peer): c.outcome for c in cells}
    conds = list(dict.fromkeys(c.cond for c in cells))
    rows = [[f"{cond:.0e}", *(show(by_place[cond, name]) for name in names)] for cond in conds]
    return f"{caption(cells[0].quantity, cells[0].dtype, count)}\n\n{table(['condition', *names], rows)}"


PANELS = [("far", "float64"), ("near 1e-4", "float64"), ("far", "float32"), ("near 1e-4", "float32")]
MARKS = "osv^D*XP"  # to tell the lines apart without colour


def plot(cells: Sequence[Cell], path: Path) -> None:
    """Errors of distances over condition numbers; NaN and exceptions as crosses along the upper edge."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "gbwatt"  # the same picture from the same numbers
    import matplotlib.pyplot as plt

    names = [n for n in dict.fromkeys(c.peer for c in cells) if "," not in n and n != IN_FLOAT64]
    colours = dict(zip(names, plt.get_cmap("cividis")(np.linspace(0, 0.92, len(names))), strict=True))
    figure, axes = plt.subplots(1, 4, figsize=(12, 3.3), sharey=True, layout="constrained")
    for axis, (quantity, dtype) in zip(axes, PANELS, strict=True):
        for name, mark in zip(names, MARKS, strict=False):
            own = [c for c in cells if (c.peer, c.quantity, c.dtype) == (name, quantity, dtype)]
            good = [c for c in own if not isinstance(c.outcome, str) and not math.isnan(c.outcome)]
            style = {"color": "black", "linewidth": 2.5} if name == "gbwatt" else {"color": colours[name]}
            x, y = [c.cond for c in good], [min(float(c.outcome), 1e3) for c in good]
            axis.plot(x, y, marker=mark, markersize=5, label=name, **style)
            failed = [c.cond for c in own if c not in good]
            axis.plot(failed, [3e4] * len(failed), marker="x", linestyle="", color="crimson", label="_NaN or error")
        kind = "unrelated pairs" if quantity == "far" else "neighbours"
        axis.set(xscale="log", yscale="log", title=f"{kind}, {dtype}", xlabel="condition number", ylim=(1e-16, 1e5))
        axis.axhline(1, color="grey", linewidth=0.8, linestyle=":")
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("relative error of $d_{BW}$")
    axes[-1].plot([], [], marker="x", linestyle="", color="crimson", label="NaN or error")
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside right center", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def contestants(peers: Sequence[Peer], dtype: str) -> list[Peer]:
    """Casting to float64 says something in float32 only."""
    return [p for p in peers if dtype == "float32" or p.name != IN_FLOAT64]


def run(peers: Sequence[Peer], conds: Sequence[float], count: int, problems: int) -> tuple[list[Cell], list[str]]:
    """All cells and all tables."""
    cells, tables = [], []
    for quantity in [*KINDS, "mean"]:
        for dtype in DTYPES:
            if (quantity, dtype) == ("near 1e-7", "float32"):
                continue  # below the resolution of float32
            who = contestants(peers, dtype)
            if quantity == "mean":
                part = [c for cond in conds for c in judge_means(who, dtype, cond, problems)]
            else:
                part = [c for cond in conds for c in judge_distances(who, quantity, dtype, cond, count)]
            cells += part
            tables.append(tabulate(part, problems if quantity == "mean" else count))
            print(tables[-1], end="\n\n", flush=True)
    return cells, tables


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer condition numbers, one sample per cell")
    parser.add_argument("--pairs", type=int, default=3, help="distances per cell (default: %(default)s)")
    parser.add_argument("--problems", type=int, default=2, help="means per cell (default: %(default)s)")
    parser.add_argument("--digits", type=int, default=60, help="digits of the oracle (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default: %(default)s)")
    names = [name for name in FACTORIES if name != RELAXED]
    parser.add_argument("--peers", nargs="+", metavar="NAME", default=names, help="only these libraries")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this markdown file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the errors of distances (needs matplotlib)")
    return parser.parse_args()


def main() -> int:
    """Print the tables; 1 if gbwatt broke a promise."""
    args = parse()
    mp.dps = args.digits
    torch.set_num_threads(args.threads)
    peers, missing = load_peers(args.peers, patient=True)
    conds = CONDITIONS[::2] if args.quick else CONDITIONS
    where = setting(peers, missing)
    print(where, end="\n\n")
    cells, tables = run(peers, conds, *((1, 1) if args.quick else (args.pairs, args.problems)))
    if args.write:
        publish("\n\n".join([where, *tables]), args.write, "precision", INTRODUCTION)
    if args.plot:
        plot(cells, args.plot)
    broken = violations(cells)
    for line in broken:
        print(f"promise broken: {line}", file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
