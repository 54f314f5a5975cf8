"""How long runs will take, from two epochs of each model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from gbwatt.data import find_dataset
from gbwatt.experiments.execution import decoder_of
from gbwatt.experiments.recordings import parts_of
from gbwatt.experiments.runs import Run
from gbwatt.models.registry import entry


def measured_seconds(runs: Sequence[Run], root: str | Path | None = None, threads: int = 1) -> float:
    """Seconds that runs would take, one after the other, if all epochs take as long as the second.

    A model that cannot be built here counts nothing; its runs will say why.
    """
    torch.set_num_threads(threads)
    epoch: dict[tuple[str, str, str], float] = {}
    total = 0.0
    for run in runs:
        like = (run.dataset, run.model, str(sorted(run.options.items())))
        if like not in epoch:
            epoch[like] = _epoch(run, root)
        total += epoch[like] * _epochs(run)
    return total


def _epochs(run: Run) -> int:
    usual = entry(run.model).training_for(find_dataset(run.dataset).task)
    return int(run.training.get("max_epochs", usual.max_epochs))


def _epoch(run: Run, root: str | Path | None) -> float:
    short = replace(run, training={**run.training, "max_epochs": 2}, fraction=1.0)
    parts = parts_of(short, root)
    try:
        decoder = decoder_of(short, parts).fit(parts.train)
    except ImportError:
        return 0.0
    return float(decoder.history_[-1]["duration"])
