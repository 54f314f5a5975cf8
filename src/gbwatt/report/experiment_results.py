"""Results of experiments: rows sorted into the lines of each experiment, the best lines, and tables of single runs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gbwatt.errors import ParameterError
from gbwatt.experiments import paper, runs
from gbwatt.experiments.config import Experiment
from gbwatt.experiments.grid import Cell, CellResults, Results, collect_results, match_runs
from gbwatt.experiments.runs import LabelledRun, Row, Run
from gbwatt.experiments.statistics import Summary, summarize
from gbwatt.experiments.table_formats import Column, Kind, Table, Value, visible, without_empty
from gbwatt.experiments.tables import make_table, score_of
from gbwatt.report.page import BigTable, Block, Code, Fold, Paragraph, Section

#: Titles of tables by the quantity that they show.
_TITLES: Mapping[paper.Quantity, str] = {"score": "Scores", "share": "Matrices", "seconds": "Time"}


class BestLine(NamedTuple):
    """The line of a table with the highest mean score on a data set: its cell, results, and summary of scores."""

    cell: Cell
    runs: CellResults
    summary: Summary

    @property
    def name(self) -> str:
        """Label and setting."""
        return line_name(self.cell)


@dataclass(frozen=True)
class ExperimentResults:
    """An experiment and its rows.

    Attributes
    ----------
    experiment : Experiment
        The experiment.
    cells : tuple of LabelledRun
        All runs, done or missing, of lines that have results.
    rows : dict
        Rows by the keys of their runs.
    grid : Results
        Results by line and data set.
    empty_lines : tuple of str
        Lines without results.
    all_cells : tuple of LabelledRun
        All runs of the experiment, including those of lines without results.
    """

    experiment: Experiment
    cells: tuple[LabelledRun, ...]
    rows: Mapping[str, Row]
    grid: Results
    empty_lines: tuple[str, ...]
    all_cells: tuple[LabelledRun, ...]

    @property
    def quantity(self) -> paper.Quantity:
        """The quantity in the tables of the experiment."""
        name = self.experiment.paper
        return "score" if name is None else paper.find_table(name).quantity

    @property
    def reference(self) -> str | None:
        """Label of the model that others are compared with; None if there is only one.

        It is the reference of the experiment if that has results, else the first label.
        """
        labels = list(dict.fromkeys(cell.label for cell, results in self.grid.items() if results.done))
        if len(labels) < 2:
            return None
        return self.experiment.reference if self.experiment.reference in labels else labels[0]

    @property
    def has_single_value(self) -> bool:
        """Whether the experiment varies something, but has results for one value only."""
        return self.experiment.vary is not None and len({cell.setting for cell in self.cells}) < 2

    @property
    def compares_models(self) -> bool:
        """Whether its lines compete; lines with different noise or amounts of data do not."""
        vary = self.experiment.vary
        return self.quantity == "score" and (vary is None or vary.axis.startswith("options"))

    @property
    def n_runs_of_empty_lines(self) -> int:
        """Number of runs of the lines without results."""
        return len({cell.run.key for cell in self.all_cells if _cell_of(cell) not in self.grid})

    def table(self) -> Table:
        """Make the tables of the experiment: our results, those of the paper, and paired tests.

        Only lines with results are included; the notes count the runs of all lines.
        """
        notes = (
            {table.title: table.notes for table in self._table_of_runs(self.all_cells).tables}
            if self.empty_lines
            else {}
        )
        first, *more = (
            replace(one, notes=notes.get(one.title, one.notes)) for one in self._table_of_runs(self.cells).tables
        )
        return replace(first, more=tuple(more))

    def _table_of_runs(self, cells: Sequence[LabelledRun]) -> Table:
        """Make the table of the given runs, with the reference and the table of the paper of the experiment."""
        return make_table(
            _TITLES[self.quantity],
            cells,
            self.rows,
            paper_table=self.experiment.paper,
            reference=self.reference,
            validation=self.experiment.validation,
            durations=self.experiment.durations,
        )


def results_by_experiment(rows: Sequence[Row], experiments: Iterable[Experiment]) -> list[ExperimentResults]:
    """Sort rows by experiment; return the results of each experiment that has rows."""
    by_key = {row.key: row for row in rows}
    results = (_experiment_results(experiment, rows, by_key) for experiment in experiments)
    return [one for one in results if one.cells]


def _experiment_results(experiment: Experiment, rows: Sequence[Row], by_key: Mapping[str, Row]) -> ExperimentResults:
    """Sort rows into the lines of an experiment; lines without results are left out and named."""
    cells = match_runs(experiment, rows)
    all_results = collect_results(cells, by_key)
    grid = Results({cell: results for cell, results in all_results.items() if results.done or results.failed})
    kept = tuple(run for run in cells if _cell_of(run) in grid)
    empty_lines = tuple(f"{line_name(cell)} on {cell.dataset}" for cell in all_results if cell not in grid)
    return ExperimentResults(experiment, kept, by_key, grid, empty_lines, tuple(cells))


def _cell_of(labelled: LabelledRun) -> Cell:
    """Return the cell of the table that a run belongs to."""
    return Cell(labelled.label, labelled.setting, labelled.run.dataset)


def line_name(cell: Cell) -> str:
    """Return the name of the table line of a cell: label and setting."""
    return ", ".join(filter(None, cell[:2]))


def best_line(grid: Results, dataset: str) -> BestLine | None:
    """Return the line with the highest mean score on a data set; None without scores.

    Only lines with the largest number of runs are considered, because means over fewer runs are not comparable.
    """
    lines = {cell: results for cell, results in grid.items() if cell.dataset == dataset and results.done}
    most = max((len(results.done) for results in lines.values()), default=0)
    candidates = [
        BestLine(cell, results, summary)
        for cell, results in lines.items()
        if len(results.done) == most
        if (summary := summarize(results.scores(score_of(dataset)))) and summary.mean == summary.mean
    ]
    return max(candidates, key=lambda line: line.summary.mean, default=None)


def other_runs(rows: Sequence[Row], results: Sequence[ExperimentResults]) -> list[LabelledRun]:
    """Return the runs that belong to none of the experiments; their lines are named by model and changed options."""
    cells = [cell for one in results for cell in one.grid.values()]
    assigned = {row.key for cell in cells for row in cell.done}.union(*(cell.failed for cell in cells))
    unassigned = [Run.from_dict(row.run) for row in rows if row.key not in assigned]
    return [LabelledRun(visible(run.model), changed_options(run), run) for run in unassigned]


def changed_options(run: Run) -> str:
    """Return the options of a run that differ from the defaults of its model, as text.

    Examples
    --------
    >>> changed_options(Run("simulated-mi", 1, "gbwatt", seed=0, data="", options={"theta": 1.5}, fraction=0.5))
    'theta = 1.5, fraction = 0.5'
    """
    options = dict(sorted({**run.options, **runs.training_changes(run)}.items()))
    options |= {"split": run.split} if run.split else {}
    options |= {"fraction": run.fraction} if run.fraction != 1 else {}
    options |= {"noise": run.noise} if run.noise else {}
    options |= {"noise in training": "yes"} if run.noisy_training else {}
    return visible(", ".join(f"{name} = {value}" for name, value in options.items()))


def require_rows(rows: Sequence[Row]) -> None:
    """Require at least one row, and a valid run in each."""
    if not rows:
        raise ParameterError("rows is empty: there is nothing to report. Make results with `gbwatt benchmark`.")
    for row in rows:
        try:
            Run.from_dict(row.run)
        except TypeError as error:
            raise ParameterError(
                f"row {row.key}: its run {row.run!s:.80} was not written by this version ({error})."
            ) from None


def counted(n: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


#: Maximum number of different tracebacks on a page; each may have thousands of characters.
MAX_TRACEBACKS = 40
_MAX_LISTED = 20  # number of runs that are listed with a traceback

#: Columns of the table of single runs, and how their values are formatted.
_RUN_COLUMNS: Mapping[str, Kind] = {
    **dict.fromkeys(("model", "data set", "subject", "seed", "changed", "status"), "text"),
    **dict.fromkeys(("accuracy", "balanced", "AUC"), "percent"),
    **dict.fromkeys(("kappa", "loss"), "text"),
    **dict.fromkeys(("validation", "ill before", "ill after"), "percent"),
    **dict.fromkeys(("best epoch", "epochs", "parameters"), "text"),
    **dict.fromkeys(("s per epoch", "seconds"), "seconds"),
    **dict.fromkeys(("finished (UTC)", "key"), "text"),
}
_FROZEN = 4  # number of first columns that do not scroll, because they identify the run


def all_runs(rows: Sequence[Row]) -> Section:
    """Return the section with a table of all runs, which the reader can sort and filter."""
    lines = tuple(tuple(_run_values(row)) for row in rows)
    notes = (
        "Scores are those of test trials, in percent. Validation: accuracy on validation trials at the best epoch. Ill "
        "before, ill after: percentage of matrices with a condition number above 10⁴ before and after attention.",
        "Changed: options that differ from the defaults of the model.",
        "Key: beginning of the key in the store.",
    )
    header = tuple(Column(name, kind=kind) for name, kind in _RUN_COLUMNS.items())
    table = without_empty(Table("One row per run", header, lines, notes), frozenset(_RUN_COLUMNS))
    return Section("All runs", (BigTable(table, frozen=_FROZEN),))


def _run_values(row: Row) -> Iterator[Value]:
    """Yield the values of a row in the table of single runs, in the order of its columns."""
    run = Run.from_dict(row.run)
    yield from (run.model, run.dataset, run.subject, run.seed, changed_options(run), row.status)
    yield from map(_percent, (row.accuracy, row.balanced_accuracy, row.auc))
    yield from (None if value is None else f"{value:.3f}" for value in (row.kappa, row.loss))
    yield _percent(row.valid_accuracy)
    yield from (_percent((row.conditions or {}).get(when, {}).get("share")) for when in ("before", "after"))
    yield from (row.best_epoch, row.epochs, row.parameters, row.seconds_per_epoch, row.seconds)
    yield from (row.finished.replace("+00:00", "").replace("T", " "), row.key[:12])


def _percent(share: float | None) -> float | None:
    """Return a share in percent; None if it is missing or NaN."""
    return None if share is None or math.isnan(share) else 100 * share


# ---- failures


def failures(rows: Sequence[Row]) -> list[Section]:
    """Return the section on failed runs, grouped by traceback, in a list; empty if no run failed."""
    by_traceback: dict[str, list[Run]] = defaultdict(list)
    for row in rows:
        if row.status == "failed":
            by_traceback[row.traceback or "No traceback was recorded."].append(Run.from_dict(row.run))
    if not by_traceback:
        return []
    groups = sorted(by_traceback.items(), key=lambda group: -len(group[1]))
    blocks: list[Block] = [_failure_block(traceback, runs) for traceback, runs in groups[:MAX_TRACEBACKS]]
    rest = sum(len(runs) for _, runs in groups[MAX_TRACEBACKS:])
    if rest:
        blocks.append(Paragraph(f"{counted(rest, 'more run')} failed with other tracebacks; see the store."))
    total = sum(len(runs) for _, runs in groups)
    text = (
        f"{counted(total, 'run')} failed, with {counted(len(groups), 'different traceback')}. Tables count them as "
        "failed, without a score."
    )
    return [Section("Failed runs", (Paragraph(text), *blocks))]


def _failure_block(traceback: str, runs: Sequence[Run]) -> Fold:
    """Return a collapsible block of the page, with a traceback and the runs that failed with it."""
    last = (traceback.strip().splitlines() or [""])[-1][:200]
    named = "\n".join(map(str, runs[:_MAX_LISTED]))
    more = f"\nand {len(runs) - _MAX_LISTED} more" if len(runs) > _MAX_LISTED else ""
    return Fold(f"{counted(len(runs), 'run')}: {last}", (Code(named + more), Code(traceback.strip())))


# ---- warnings and versions


def warnings(rows: Sequence[Row]) -> list[Block]:
    """Return a collapsible block with the warnings of runs and how many runs gave each; empty without warnings."""
    counts = Counter(text.strip() for row in rows for text in row.warnings or ())
    if not counts:
        return []
    lines = tuple(counts.most_common(MAX_TRACEBACKS))
    table = Table("Warnings during runs", (Column("warning"), Column("runs")), lines)
    return [Fold(f"{counted(len(counts), 'warning')} during runs", (table,))]


def versions(rows: Sequence[Row]) -> Table:
    """Return the table of package versions, with the number of runs for each."""
    counts = Counter(pair for row in rows for pair in (row.versions or {}).items())
    lines = tuple((name, version, n) for (name, version), n in counts.items())
    notes = () if lines else ("The rows do not record versions.",)
    return Table("Versions", (Column("package"), Column("version"), Column("runs")), lines, notes)
