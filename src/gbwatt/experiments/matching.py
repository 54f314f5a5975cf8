"""From rows back to the cells of an experiment: tables need no recordings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gbwatt.experiments.config import Experiment
from gbwatt.experiments.corpora import without_weights
from gbwatt.experiments.grid import Line, lines, original
from gbwatt.experiments.runs import Cell, Row, Run

#: What tells the runs of one line of a table apart.
PLACE = ("dataset", "subject", "split", "seed", "data")
Place = tuple[Any, ...]


def cells_of(experiment: Experiment, rows: Iterable[Row], datasets: Sequence[str] | None = None) -> list[Cell]:
    """Every line of an experiment with all subjects and seeds that any of its lines has.

    Cells without a row are runs that are missing.  Data sets are those of the rows, or of these the ones that are asked
    for; a real one and its simulated twin are two.
    """
    known = list(lines(experiment))
    places: dict[Place, None] = {}
    data: dict[tuple[int, Place], str] = {}  # of a line's own runs: on corpora, weights are among the data
    for run in (Run.from_dict(row.run) for row in rows):
        of = [number for number, line in enumerate(known) if _is_of(run, line)]
        if of and _asked(run.dataset, experiment, datasets):
            places[_place(run)] = None
            data.update(dict.fromkeys(((number, _place(run)) for number in of), run.data))
    names = dict.fromkeys(place[0] for place in places)  # one data set after the other
    return [
        Cell(line.label, line.setting, _run(line, place, data.get((number, place)) or place[-1]))
        for name in names
        for number, line in enumerate(known)
        if line.is_for(name)
        for place in places
        if place[0] == name
    ]


def _run(line: Line, place: Place, data: str) -> Run:
    where = dict(zip(PLACE, (*place[:-1], data), strict=True))
    return Run(**where, **line.on(place[0]))


def _is_of(run: Run, line: Line) -> bool:
    return all(getattr(run, name) == value for name, value in line.on(run.dataset).items())


def _place(run: Run) -> Place:
    *where, data = (getattr(run, name) for name in PLACE)
    return (*where, without_weights(data))


def _asked(name: str, experiment: Experiment, datasets: Sequence[str] | None) -> bool:
    return name in datasets if datasets is not None else original(name) in map(original, experiment.datasets)
