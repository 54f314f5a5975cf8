"""How long runs will take: from rows of the same network, or from two epochs of it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from gbwatt.experiments.corpora import CORPORA
from gbwatt.experiments.execution import decoder_of
from gbwatt.experiments.recordings import parts_of
from gbwatt.experiments.runs import Row, Run
from gbwatt.experiments.schedule import written_out


def expected_seconds(runs: Sequence[Run], rows: Iterable[Row]) -> tuple[float, list[Run]]:
    """Seconds that runs will take, one after the other, from the epochs of the same networks on the same data set.

    Also the runs that are like nothing that was done before, which are not counted.
    """
    seen: dict[str, list[float]] = {}
    for row in rows:
        if row.status == "done" and row.seconds is not None and row.epochs:
            seen.setdefault(_like(Run.from_dict(row.run)), []).append(row.seconds / row.epochs)
    known = [run for run in runs if _like(run) in seen]
    seconds = sum(statistics.median(seen[_like(run)]) * _epochs(run) for run in known)
    return seconds, [run for run in runs if _like(run) not in seen]


def _like(run: Run) -> str:
    """What runs have in common whose epochs take as long."""
    return f"{run.dataset}, {run.model}, {sorted(run.options.items())}, {run.fraction}"


def measured_seconds(runs: Sequence[Run], root: str | Path | None = None, threads: int = 1) -> float:
    """Seconds that runs would take, one after the other, if all epochs take as long as the second.

    A model that cannot be built here counts nothing; its runs will say why.
    """
    torch.set_num_threads(threads)
    epoch: dict[str, float] = {}
    total = 0.0
    for run in runs:
        whole = replace(run, fraction=1.0)
        if _like(whole) not in epoch:
            epoch[_like(whole)] = _epoch(whole, root)
        total += epoch[_like(whole)] * _epochs(run)
    return total


def _epochs(run: Run) -> int:
    return int(written_out(run.model, run.dataset, run.training)["max_epochs"])


def _epoch(run: Run, root: str | Path | None) -> float:
    if run.dataset in CORPORA:
        return _corpus_epoch(run, root)
    short = replace(run, training={**run.training, "max_epochs": 2})
    parts = parts_of(short, root)
    try:
        decoder = decoder_of(short, parts).fit(parts.train)
    except ImportError:
        return 0.0
    return float(decoder.history_[-1]["duration"])


def _corpus_epoch(run: Run, root: str | Path | None) -> float:
    from gbwatt.experiments.clinical import epoch_seconds

    try:
        return epoch_seconds(run, root)
    except (ImportError, ValueError):  # no package, or no weights: its runs will say so
        return 0.0
