"""What a step of training costs, and a prediction, beside the convolutions alone, other networks and naive code.

    python benchmarks/training_step.py [--quick] [--threads 1 2] [--presets mi] [--only step]
                                       [--write docs/benchmarks_training.md] [--plot docs/benchmarks_training.svg]

Networks take turns, and the shortest of many steps is shown, so that a busy machine hurts everyone alike. Trials are
simulated recordings, because covariances of white noise would be too kind; an epoch is of MAMEM, if the folder in the
environment variable GBWATT_DATA has it. EEGNet is braindecode's: run it in .venv-ecosystem to have that row.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path

import epochs
import growth
import memory
import torch
import turns
from contestants import (
    FLAT,
    FLOOR,
    FLOORS,
    GROUPED,
    LOOP,
    MATT,
    NAMES,
    OURS,
    PAPER,
    TEXTBOOK,
    Batch,
    Contestant,
    contestant,
    errors,
    first_batch,
    names,
)
from peers import publish, quiet, setting, table
from threadpoolctl import threadpool_limits
from torch import Tensor

from gbwatt.models.presets import TASKS

PARTS = ("step", "latency", "memory", "growth", "epoch")
PACKAGES = ("gbwatt", "geoopt", "braindecode")
BLOCK = 20  # predictions in a row
#: Largest share of the floor that a step of ours may cost.
FLOOR_LIMITS = {"mi": 1.0, "ssvep": 0.6, "ern": 1.0}
INTRODUCTION = """# Benchmarks of training

What a step of training and a prediction cost. The parts below are written by

    GBWATT_DATA=FOLDER .venv-ecosystem/bin/python benchmarks/training_step.py --threads 1 2 \\
        --write docs/benchmarks_training.md --plot docs/benchmarks_training.svg

`benchmarks/textbook.py` has the naive networks and the floor: the plain convolutions of a preset with their batch
norms. FOLDER holds `mamem/U001.mat`; without it an epoch is measured on simulated trials of the same shape.
"""


@dataclass(frozen=True)
class Criterion:
    """A promise, and what was found."""

    what: str
    value: float
    limit: float
    at_least: bool = False

    def kept(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{'yes' if self.kept() else 'NO '}  {self.what}: {self.value:.2f} ({sign} {self.limit:g})"


@dataclass(frozen=True)
class Part:
    """Text of a part of the report, and its criteria."""

    text: str
    criteria: list[Criterion]


@dataclass(frozen=True)
class Package:
    """A distribution and its version, as :func:`peers.setting` shows them."""

    distribution: str
    version: str


# ---------------------------------------------------------------------------------------------------------- steps


def assemble(preset: str, batch: Batch) -> tuple[list[Contestant], dict[str, str]]:
    """All networks that can be built, and why others cannot."""
    found, missing = [], {}
    for name in names(preset):
        try:
            found.append(contestant(name, preset, batch))
        except ImportError as error:
            missing[name] = str(error).partition(",")[0]
    return found, missing


def shortest_steps(
    preset: str, batch: Batch, threads: int, rounds: int, budget: float
) -> tuple[dict[str, float], dict[str, str]]:
    """Shortest durations of the networks that can be built, and why others cannot."""
    with contextlib.ExitStack() as stack:
        racers = [stack.enter_context(turns.Racer(name, preset, batch, threads)) for name in names(preset)]
        missing = {racer.name: reason for racer in racers if (reason := racer.ready())}
        return turns.shortest([r for r in racers if r.name not in missing], rounds, budget), missing


def step_rows(
    best: dict[str, float], wrong: dict[str, tuple[float, float]], missing: dict[str, str]
) -> list[list[str]]:
    """Milliseconds, the time as a multiple of others' times, and errors of each network."""
    rows = []
    for name in (name for name in NAMES if name in best or name in missing):
        if name in missing:
            rows.append([name, missing[name], *["–"] * 7])
            continue
        ratios = [f"{best[name] / best[other]:.2f}" for other in (FLOOR, FLAT, MATT, TEXTBOOK, LOOP)]
        precision = [f"{error:.0e}" for error in wrong[name]] if name in wrong else ["–", "–"]
        rows.append([name, f"{1e3 * best[name]:.1f}", *ratios, *precision])
    return rows


def step_criteria(preset: str, best: dict[str, float], where: str) -> list[Criterion]:
    """Promises about a step; of the two recipes the slower counts, against naive code the one it computes."""
    ours = max(best[name] for name in OURS)
    found = [
        Criterion(f"{where}, step / floor", ours / best[FLOOR], FLOOR_LIMITS[preset]),
        Criterion(f"{where}, step / floor, 1d", ours / best[FLAT], FLOOR_LIMITS[preset]),
        Criterion(f"{where}, step / MAtt", ours / best[MATT], 1.25),
    ]
    if GROUPED in best:
        found.append(Criterion(f"{where}, step / MAtt with the same branches", ours / best[GROUPED], 1.25))
    if preset != "ern":
        found += [
            Criterion(f"{where}, loop / step", best[LOOP] / best[PAPER], 10, at_least=True),
            Criterion(f"{where}, textbook / step", best[TEXTBOOK] / best[PAPER], 4, at_least=True),
        ]
    return found


def steps(args: argparse.Namespace) -> Part:
    """Time and error of a step of all networks."""
    parts, criteria = [], []
    for preset in args.presets:
        batch = first_batch(preset, args.share)
        runners, _ = assemble(preset, batch)
        wrong = {r.name: errors(r.model, preset, batch) for r in runners if r.name not in FLOORS}
        exact = errors(contestant(TEXTBOOK, preset, batch).model.double(), preset, batch)
        for threads in args.threads:
            best, missing = shortest_steps(preset, batch, threads, args.rounds, args.budget)
            over = [f"/ {name}" for name in (FLOOR, FLAT, MATT, TEXTBOOK, LOOP)]
            header = ["network", "ms", *over, "error of logits", "of gradient"]
            title = f"**{preset.upper()}, batch {len(batch[0])}, {threads} thread(s)**"
            parts.append(f"{title}\n\n{table(header, step_rows(best, wrong, missing))}")
            show(parts[-1])
            if threads == max(args.threads):
                criteria += step_criteria(preset, best, f"{preset}, {threads} thread(s)")
        parts.append(f"In float64 the textbook's five steps still leave {exact[0]:.0e} and {exact[1]:.0e}.")
        show(parts[-1])
    legend = (
        "Forward, backward and the optimiser's step in float32; for the floor, the plain convolutions with their batch "
        "norms, forward and backward, written over images as EEG networks do, or, *1d*, over times, which torch "
        "computes faster. Each network is in a process of its own, as when it is trained. Errors are relative, in the "
        "Euclidean norm, against float64 with the same weights; those of textbook and loop against GBWAtt in float64. "
        "All have the batch size of the preset. GBWAtt has the paper's recipe, the Fréchet mean of covariances as they "
        "are; *shrunk*, the same of covariances shrunk by 0.3; or *best*, with the tangent mean as well. For ERN MAtt "
        "as published splits time, and SPDNet has no branches either: they filter less. *MAtt, grouped* has the three "
        "branches of GBWAtt."
    )
    return Part("\n\n".join(["## A step of training", legend, *parts]), criteria)


# -------------------------------------------------------------------------------------------------------- latency


@torch.no_grad()
def latencies(runners: Sequence[Contestant], batch: Batch, repeats: int) -> dict[str, list[float]]:
    """Durations of predictions of single trials; the networks take turns, ``BLOCK`` predictions each, the loop one."""
    found: dict[str, list[float]] = {runner.name: [] for runner in runners}
    for _ in range(max(1, repeats // BLOCK)):
        for runner in runners:
            runner.model.eval()(batch[0][:1])  # back in the caches
            found[runner.name] += [seconds(runner, trial) for trial in batch[0][: 1 if runner.name == LOOP else BLOCK]]
    return found


def seconds(runner: Contestant, trial: Tensor) -> float:
    """The duration of a prediction."""
    start = time.perf_counter()
    runner.model(trial[None])
    return time.perf_counter() - start


def latency(args: argparse.Namespace) -> Part:
    """Prediction of one trial on one thread."""
    columns, criteria = {}, []
    for preset in args.presets:
        batch = first_batch(preset, max(args.share, 0.7))  # trials enough for a block
        runners, _ = assemble(preset, batch)
        with limited(1), quiet():
            columns[preset] = times = latencies(runners, batch, args.repeats)
        if preset == "ssvep":
            slower = max(statistics.median(times[name]) for name in OURS)
            criteria.append(Criterion("ssvep, median ms of a prediction, 1 thread", 1e3 * slower, 2))
    shown = [name for name in NAMES if any(name in names(preset) for preset in columns)]
    rows = [[name, *(spread(columns[p].get(name), name in names(p)) for p in columns)] for name in shown]
    text = f"Median (95th percentile) in ms, one trial, one thread.\n\n{table(['network', *columns], rows)}"
    show(text)
    return Part(f"## Prediction of one trial\n\n{text}", criteria)


def spread(times: list[float] | None, exists: bool) -> str:
    """Median and 95th percentile in milliseconds."""
    if times is None:
        return "not installed" if exists else "–"
    high = sorted(times)[math.ceil(0.95 * len(times)) - 1]
    return f"{1e3 * statistics.median(times):.2f} ({1e3 * high:.2f})"


# --------------------------------------------------------------------------------------------------------- memory


def peaks(args: argparse.Namespace) -> Part:
    """Peak memory of a step."""
    rows, criteria = [], []
    for preset in args.presets:
        batch = first_batch(preset, args.share)
        found = {n: measured_peak(n, preset, batch, max(args.threads)) for n in names(preset) if n != LOOP}
        for name, one in found.items():
            cells = ["not installed"] * 4 if one is None else peak_cells(one, found[FLOOR])
            rows.append([f"{preset}, {name}", *cells])
        for what in memory.Peak._fields:
            ours = max(getattr(found[name], what) for name in OURS)
            criteria.append(Criterion(f"{preset}, peak memory / floor, {what}", ours / getattr(found[FLOOR], what), 3))
    header = ["network", "process, MB", "/ floor", "tensors, MB", "/ floor"]
    text = (
        "Highest memory during a step beyond that before it, in a process of its own: the resident set, and what torch "
        f"allocated for tensors.\n\n{table(header, rows)}"
    )
    show(text)
    return Part(f"## Memory of a step\n\n{text}", criteria)


def measured_peak(name: str, preset: str, batch: Batch, threads: int) -> memory.Peak | None:
    """The peaks of a network; None if it cannot be built."""
    try:
        return memory.peak(name, preset, batch, threads)
    except ImportError:
        return None


def peak_cells(one: memory.Peak, floor: memory.Peak) -> list[str]:
    """Megabytes and ratios."""
    cells = []
    for value, base in zip(one, floor, strict=True):
        cells += [f"{value / 1e6:.1f}", f"{value / base:.2f}"]
    return cells


# --------------------------------------------------------------------------------------------------------- growth


def growing(args: argparse.Namespace) -> Part:
    """How the cost grows with each size."""
    with limited(max(args.threads)), quiet():
        curves = growth.measure(max(1, args.rounds // 2))
    texts = []
    for curve in curves:
        times = [f"{1e3 * seconds:.1f}" for seconds in curve.seconds]
        header = [growth.CAPTIONS[curve.axis], *map(str, curve.sizes), "exponent"]
        texts.append(table(header, [["ms", *times, f"{curve.exponent():.2f}"]]))
        show(texts[-1])
    if args.plot:
        growth.plot(curves, args.plot)
        texts.append(f"![Cost over sizes]({args.plot.name})")
    legend = (
        "Forward and backward of the attention layer, float32, covariances of condition 1e5; for channels and time a "
        "whole step. The exponent is fitted to the larger half of the sizes."
    )
    limits = {"m": 2, "k": 3}
    criteria = [
        Criterion(f"growth exponent of {c.axis}", c.exponent(), limits[c.axis]) for c in curves if c.axis in limits
    ]
    return Part("\n\n".join(["## Growth", legend, *texts]), criteria)


# ---------------------------------------------------------------------------------------------------------- epoch


def epoch(args: argparse.Namespace) -> Part:
    """An epoch of the classifier against the sum of its steps."""
    with limited(max(args.threads)), quiet():
        found = epochs.measure(args.epochs)
    name, train, valid = epochs.trials()
    rows = [
        ["epoch, all told", *_cells(found.epoch, found.steps)],
        ["its steps", *_cells(found.steps, found.steps)],
        [f"predictions of {len(valid)} trials", *_cells(found.predictions, found.steps)],
        ["all else", *_cells(found.epoch - found.steps - found.predictions, found.steps)],
    ]
    text = (
        f"`GBWAttClassifier(task='ssvep').fit` on {name}, {len(train)} trials, {max(args.threads)} thread(s): from the "
        f"end of an epoch to that of the next, and the same steps without the classifier; medians of {args.epochs - 1}."
        f"\n\n{table(['part', 'ms', '/ steps'], rows)}"
    )
    show(text)
    return Part(f"## An epoch\n\n{text}", [Criterion("ssvep, epoch / its steps", found.epoch / found.steps, 1.15)])


def _cells(seconds: float, base: float) -> list[str]:
    return [f"{1e3 * seconds:.1f}", f"{seconds / base:.3f}"]


# --------------------------------------------------------------------------------------------------------- report

RUN = {"step": steps, "latency": latency, "memory": peaks, "growth": growing, "epoch": epoch}


@contextlib.contextmanager
def limited(threads: int) -> Iterator[None]:
    """Give torch and the libraries below it that many threads."""
    torch.set_num_threads(threads)
    with threadpool_limits(threads):
        yield


def show(text: str) -> None:
    """Print a part as soon as it is there."""
    print(text, end="\n\n", flush=True)


def where(quick: bool) -> str:
    """Versions and machine."""
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(Package(name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            missing.append(name)
    today = f" Measured on {date.today().isoformat()}."
    return setting(found, missing) + today + (" Quick: a part of the batch, few repetitions." if quick else "")


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="an eighth of the batch, few repetitions")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="criteria are for the largest")
    parser.add_argument("--presets", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each network (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds; slower steps are taken twice")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the parts into this markdown file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the growth (default: beside FILE, as SVG)")
    args = parser.parse_args()
    args.share, args.repeats, args.epochs = 1.0, 400, 60
    if args.quick:
        args.share, args.repeats, args.epochs, args.rounds = 0.125, 40, 4, min(args.rounds, 5)
    if args.write and not args.plot:
        args.plot = args.write.with_suffix(".svg")
    return args


def verdict(criteria: Sequence[Criterion]) -> str:
    """A line for each promise."""
    return "\n".join(["```", *map(str, criteria), "```"])


def main() -> None:
    """Print all parts, and then whether the promises are kept."""
    args = parse()
    criteria: list[Criterion] = []
    torch.set_num_threads(max(args.threads))
    show(where(args.quick))
    for name in args.only:
        part = RUN[name](args)
        criteria += part.criteria
        if args.write:
            text = "\n\n".join([part.text, verdict(part.criteria), where(args.quick)])
            publish(text, args.write, f"training {name}", INTRODUCTION)
    print("Criteria\n" + "\n".join(map(str, criteria)))


if __name__ == "__main__":
    main()
