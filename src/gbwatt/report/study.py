"""An experiment and what there is of it: the lines that have runs, and the highest of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gbwatt.errors import ParameterError
from gbwatt.experiments import paper, runs
from gbwatt.experiments.config import Experiment
from gbwatt.experiments.grid import cells_of
from gbwatt.experiments.runs import Cell, Row, Run
from gbwatt.experiments.statistics import Summary, summarize
from gbwatt.experiments.table_formats import Table, visible
from gbwatt.experiments.tables import Found, Grid, Place, gather, make_table, score_of

_CAPTIONS: Mapping[paper.Quantity, str] = {"score": "Scores", "share": "Matrices", "seconds": "Time"}


class Best(NamedTuple):
    """The highest line on a data set."""

    place: Place
    found: Found
    summary: Summary


@dataclass(frozen=True)
class Study:
    """An experiment with the rows of its runs.

    Attributes
    ----------
    experiment : Experiment
    cells : tuple of Cell
        All runs, also those that are missing, of lines that have any.
    rows : dict
        By the keys of their runs.
    grid : Grid
        The same, sorted into places.
    empty : tuple of str
        Lines without a run.
    every : tuple of Cell
        All runs of the experiment, those of lines without a run as well.
    """

    experiment: Experiment
    cells: tuple[Cell, ...]
    rows: Mapping[str, Row]
    grid: Grid
    empty: tuple[str, ...]
    every: tuple[Cell, ...]

    @property
    def quantity(self) -> paper.Quantity:
        """What the tables of the experiment are of."""
        name = self.experiment.paper
        return "score" if name is None else paper.find_table(name).quantity

    @property
    def reference(self) -> str | None:
        """The label that others are compared with: that of the file, or else the first; None if it would be alone."""
        labels = list(dict.fromkeys(place.label for place, found in self.grid.items() if found.done))
        if len(labels) < 2:
            return None
        return self.experiment.reference if self.experiment.reference in labels else labels[0]

    @property
    def begun(self) -> bool:
        """Whether something is varied, but only one value was run: often for another experiment."""
        return self.experiment.vary is not None and len({cell.setting for cell in self.cells}) < 2

    @property
    def chooses(self) -> bool:
        """Whether its lines are rivals; those with less noise or more data are not."""
        vary = self.experiment.vary
        return self.quantity == "score" and (vary is None or vary.axis.startswith("options"))

    @property
    def to_come(self) -> int:
        """How many runs the lines have that have none."""
        return len({cell.run.key for cell in self.every if _place(cell) not in self.grid})

    def table(self) -> Table:
        """Ours beside the paper's, with paired tests: lines that have runs, and notes that count those of all."""
        whole = {table.title: table.notes for table in self._table(self.every).tables} if self.empty else {}
        first, *more = (replace(one, notes=whole.get(one.title, one.notes)) for one in self._table(self.cells).tables)
        return replace(first, more=tuple(more))

    def _table(self, cells: Sequence[Cell]) -> Table:
        return make_table(
            _CAPTIONS[self.quantity],
            cells,
            self.rows,
            paper_table=self.experiment.paper,
            reference=self.reference,
            validation=self.experiment.validation,
        )


def best_line(grid: Grid, dataset: str) -> Best | None:
    """The highest mean score among the lines with the most runs: on fewer, a mean says something else."""
    here = {place: found for place, found in grid.items() if place.dataset == dataset and found.done}
    most = max((len(found.done) for found in here.values()), default=0)
    whole = {place: found for place, found in here.items() if len(found.done) == most}
    known = [
        Best(place, found, summary)
        for place, found in whole.items()
        if (summary := summarize(found.of(score_of(dataset)))) and summary.mean == summary.mean
    ]
    return max(known, key=lambda one: one.summary.mean, default=None)


def studies(rows: Sequence[Row], experiments: Iterable[Experiment]) -> list[Study]:
    """What there is of each experiment that has a row."""
    by_key = {row.key: row for row in rows}
    found = (_study(experiment, rows, by_key) for experiment in experiments)
    return [study for study in found if study.cells]


def _study(experiment: Experiment, rows: Sequence[Row], by_key: Mapping[str, Row]) -> Study:
    cells = cells_of(experiment, rows)
    every = gather(cells, by_key)
    grid = Grid({place: found for place, found in every.items() if found.done or found.failed})
    kept = tuple(cell for cell in cells if _place(cell) in grid)
    empty = tuple(_name(place) for place in every if place not in grid)
    return Study(experiment, kept, by_key, grid, empty, tuple(cells))


def _place(cell: Cell) -> Place:
    return Place(cell.label, cell.setting, cell.run.dataset)


def _name(place: Place) -> str:
    return f"{', '.join(filter(None, place[:2]))} on {place.dataset}"


def others(rows: Sequence[Row], found: Sequence[Study]) -> list[Cell]:
    """Runs that belong to none of the experiments, in lines by model and what was changed of it."""
    places = [one for study in found for one in study.grid.values()]
    known = {row.key for one in places for row in one.done}.union(*(one.failed for one in places))
    runs = [Run.from_dict(row.run) for row in rows if row.key not in known]
    return [Cell(visible(run.model), changes(run), run) for run in runs]


def changes(run: Run) -> str:
    """What a run has otherwise than its model by default.

    Examples
    --------
    >>> changes(Run("simulated-mi", 1, "gbwatt", seed=0, data="", options={"theta": 1.5}, fraction=0.5))
    'theta = 1.5, fraction = 0.5'
    """
    given = dict(sorted({**run.options, **runs.changes(run)}.items()))
    given |= {"split": run.split} if run.split else {}
    given |= {"fraction": run.fraction} if run.fraction != 1 else {}
    given |= {"noise": run.noise} if run.noise else {}
    given |= {"noise in training": "yes"} if run.noisy_training else {}
    return visible(", ".join(f"{name} = {value}" for name, value in given.items()))


def require_whole(rows: Sequence[Row]) -> None:
    """Require rows, and that each says what its run was."""
    if not rows:
        raise ParameterError("rows is empty: there is nothing to report. Do some runs: `gbwatt benchmark`.")
    for row in rows:
        try:
            Run.from_dict(row.run)
        except TypeError as error:
            raise ParameterError(
                f"row {row.key}: its run {row.run!s:.80} is not one of this version ({error})."
            ) from None
