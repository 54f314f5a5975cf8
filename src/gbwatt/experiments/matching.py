"""From rows back to the cells of an experiment: tables need no recordings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gbwatt.experiments.config import Experiment
from gbwatt.experiments.grid import Line, lines, original
from gbwatt.experiments.runs import Cell, Row, Run

#: What tells the runs of one line of a table apart.
PLACE = ("dataset", "subject", "split", "seed", "data")


def cells_of(experiment: Experiment, rows: Iterable[Row], datasets: Sequence[str] | None = None) -> list[Cell]:
    """Every line of an experiment with all subjects and seeds that any of its lines has.

    Cells without a row are runs that are missing.  Data sets are those of the rows, or of these the ones that are asked
    for; a real one and its simulated twin are two.
    """
    known = list(lines(experiment))
    wanted = [run for run in (Run.from_dict(row.run) for row in rows) if any(_is_of(run, line) for line in known)]
    places = dict.fromkeys(_place(run) for run in wanted if _asked(run.dataset, experiment, datasets))
    names = dict.fromkeys(place[0] for place in places)  # one data set after the other
    return [
        Cell(line.label, line.setting, Run(**dict(zip(PLACE, place, strict=True)), **line.on(name)))
        for name in names
        for line in known
        if line.is_for(name)
        for place in places
        if place[0] == name
    ]


def _is_of(run: Run, line: Line) -> bool:
    return all(getattr(run, name) == value for name, value in line.on(run.dataset).items())


def _place(run: Run) -> tuple[Any, ...]:
    return tuple(getattr(run, name) for name in PLACE)


def _asked(name: str, experiment: Experiment, datasets: Sequence[str] | None) -> bool:
    return name in datasets if datasets is not None else original(name) in map(original, experiment.datasets)
