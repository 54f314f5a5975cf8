"""Tables of an experiment: our scores beside the paper's, and paired tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from gbwatt.experiments import paper
from gbwatt.experiments.runs import Cell, Row, changes, has_executor
from gbwatt.experiments.statistics import Comparison, Scores, compare, holm, summarize, weighted_f1
from gbwatt.experiments.table_formats import (
    Column,
    Table,
    Value,
    show,
    to_csv,
    to_latex,
    to_markdown,
    to_rich,
    without_empty,
)

if TYPE_CHECKING:
    pass


def choices(grid: Grid) -> list[str]:
    """The lines with the highest accuracy in validation, in sentences: of each model, and of all."""
    notes = ["Validation: accuracy on validation trials at the epoch that they chose; test trials choose nothing."]
    for dataset in grid.datasets:
        seeds, means = _compared({place: grid[place] for place in grid if place.dataset == dataset})
        if not means:
            continue
        best = {place.label: place for place in sorted(means, key=lambda place: means[place])}
        first = max(means, key=lambda place: means[place])
        notes.append(f"The highest in validation on {dataset}{_of(seeds)}: {_named(first, means)}.")
        if len(best) < len(means):
            each = "; ".join(_named(best[label], means) for label in dict.fromkeys(place.label for place in means))
            notes.append(f"The highest of each model: {each}.")
    return notes


def _compared(places: Mapping[Place, Found]) -> tuple[set[int], dict[Place, float]]:
    """Seeds that all subjects have in every line that is complete for any seed, and the lines' means over these."""
    subjects = {row.run["subject"] for found in places.values() for row in found.done}
    complete = {place: _seeds(found, subjects) for place, found in places.items()}
    complete = {place: seeds for place, seeds in complete.items() if seeds}
    common = set.intersection(*complete.values()) if complete else set()
    return common, {place: _mean_over_seeds(places[place], common) for place in complete if common}


def _seeds(found: Found, subjects: set[int]) -> set[int]:
    """Seeds with which every subject was done and validated."""
    known = {(row.run["seed"], row.run["subject"]) for row in found.done if row.valid_accuracy is not None}
    return {seed for seed, _ in known if all((seed, subject) in known for subject in subjects)}


def _mean_over_seeds(found: Found, seeds: set[int]) -> float:
    return float(np.mean([row.valid_accuracy for row in found.done if row.run["seed"] in seeds]))


def _of(seeds: set[int]) -> str:
    return f" (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))})"


def _named(place: Place, means: Mapping[Place, float]) -> str:
    return f"{', '.join(filter(None, place[:2]))}, {100 * means[place]:.2f} %"


__all__ = [
    "Column",
    "Table",
    "comparison_table",
    "condition_table",
    "make_table",
    "measure",
    "show",
    "time_table",
    "to_csv",
    "to_latex",
    "to_markdown",
    "to_rich",
]

Measure = Literal["accuracy", "auc", "balanced_accuracy"]
#: The score of a data set, where it is not the accuracy.
MEASURES: Mapping[str, Measure] = {
    "bci-ern": "auc",
    "simulated-ern": "auc",
    "tuab": "balanced_accuracy",
    "tuev": "balanced_accuracy",
}
WORDS: Mapping[Measure, str] = {"accuracy": "accuracy", "auc": "AUC", "balanced_accuracy": "balanced accuracy"}


def measure(dataset: str) -> Measure:
    """The score by which a data set is judged."""
    return MEASURES.get(dataset, "accuracy")


def is_simulated(dataset: str) -> bool:
    """Whether a data set is made, so that nothing in the paper can be compared with it."""
    return dataset.startswith("simulated-")


class Place(NamedTuple):
    """Where a number stands: the line, and the data set."""

    label: str
    setting: str
    dataset: str


@dataclass
class Found:
    """Runs of one place: what came out, which did not work or are to come, and what their training changes."""

    done: list[Row] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)  # keys
    missing: set[str] = field(default_factory=set)
    training: set[str] = field(default_factory=set)

    def of(self, pick: Callable[[Row], float | None]) -> Scores:
        """What ``pick`` says of the runs, by subject, a number for each seed; several splits are averaged."""
        found: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in self.done:
            value = pick(row)
            if value is not None:
                found[row.run["subject"]][row.run["seed"]].append(value)
        return {subject: [float(np.mean(v)) for v in seeds.values()] for subject, seeds in sorted(found.items())}

    def counts(self, scores: Scores) -> list[Value]:
        """Subjects × seeds, and how many runs failed or are missing: the columns of ``_COUNTS``."""
        summary = summarize(scores)
        gaps = (str(len(keys)) if keys else None for keys in (self.failed, self.missing))
        return [summary.size if summary else "none", *gaps]


class Grid(dict[Place, Found]):
    """All places of an experiment, in its order."""

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Label and setting of each line."""
        return list(dict.fromkeys((place.label, place.setting) for place in self))

    @property
    def datasets(self) -> list[str]:
        """Data sets."""
        return list(dict.fromkeys(place.dataset for place in self))


def gather(cells: Sequence[Cell], rows: Mapping[str, Row]) -> Grid:
    """Sort rows, by the keys of their runs, into their places."""
    grid, seen = Grid(), set()
    for label, setting, run in cells:
        place, key = Place(label, setting, run.dataset), run.key
        found = grid.setdefault(place, Found())
        row = rows.get(key)
        if (place, key) in seen:
            continue
        seen.add((place, key))
        found.training.add(_listed(f"{name} = {value}" for name, value in sorted(changes(run).items())))
        if row is None:
            found.missing.add(key)
        elif row.status == "failed":
            found.failed.add(key)
        else:
            found.done.append(row)
    return grid


def score_of(dataset: str) -> Callable[[Row], float | None]:
    """From a row to its score in percent."""
    return _percent_of(measure(dataset))


#: Columns that are left out when there is nothing in them.
_OPTIONAL = frozenset(
    {"setting", "validation", "± over seeds", "± subjects", "paper", "± of paper", "difference", "why no p", "AUROC"}
    | {"paper before", "paper after", "failed", "missing"}
)
_COUNTS = (Column("n"), Column("failed"), Column("missing"))


def make_table(
    title: str,
    cells: Sequence[Cell],
    rows: Mapping[str, Row],
    *,
    paper_table: str | None = None,
    reference: str | None = None,
    validation: bool = False,
) -> Table:
    """The table of an experiment, ours beside the paper's.

    Parameters
    ----------
    title : str
    cells : sequence of Cell
        All runs of the experiment, done or not.
    rows : dict
        What there is of them, by the keys of the runs.
    paper_table : str, optional
        One of :data:`gbwatt.experiments.paper.TABLES`; its quantity, a score, seconds of an epoch or shares of
        ill-conditioned matrices, is what the table shows.
    reference : str, optional
        Label whose scores all others are compared with, in a table of its own.
    validation : bool
        Whether accuracies on validation trials stand beside.

    Returns
    -------
    Table
        ``table.tables`` are this one and others of the same runs: comparisons with the reference; shares of
        ill-conditioned matrices where there is noise; scores, where the table is of such shares; further scores of
        corpora.
    """
    quantity = "score" if paper_table is None else paper.find_table(paper_table).quantity
    grid = gather(cells, rows)
    made = {}
    if quantity != "seconds":  # runs for the clock are too short for scores that mean anything
        made["score"] = _score_table(title, grid, paper_table if quantity == "score" else None, validation)
        if reference is not None:
            made["comparison"] = comparison_table(title, cells, rows, reference)
    if any(has_executor(cell.run.dataset) for cell in cells):
        made["further"] = _further_table(title, grid)
    if quantity == "share" or any(cell.run.noise for cell in cells):
        made["share"] = condition_table(title, cells, rows)
    if quantity == "seconds":
        made["seconds"] = time_table(title, cells, rows)
    first = made.pop(quantity)
    return replace(first, more=tuple(made.values()))


def comparison_table(title: str, cells: Sequence[Cell], rows: Mapping[str, Row], reference: str) -> Table:
    """Every label beside the reference, in the same setting and on the same data set."""
    grid = gather(cells, rows)
    pairs = _compare_all(grid, reference)
    corrected = dict(zip(pairs, holm([pair.p for pair in pairs.values()]), strict=True))

    def values(place: Place) -> list[Value] | None:
        pair = pairs.get(place)
        return pair and [str(pair.subjects), pair.difference, pair.p, corrected[place], pair.why or None]

    header = [
        Column("subjects"),
        Column("median difference", kind="difference"),
        Column("p", kind="p"),
        Column("p (Holm)", kind="p"),
        Column("why no p"),
    ]
    tests = sum(pair.p is not None for pair in pairs.values())
    same = " in the same setting" if any(place.setting for place in pairs) else ""
    notes = [
        f"Median over subjects of the score, mean over seeds, minus that of {reference}{same}; of subjects with both.",
        "p of the Wilcoxon signed-rank test, two-sided, without subjects that do not differ.",
        f"p (Holm) is corrected for the {tests} test{'s' * (tests != 1)} of this table.",
    ]
    if not pairs:
        notes = [f"There is nothing to compare with {reference}."]
    lines = [line for line in grid.lines if line[0] != reference]
    return _build(f"{title}: compared with {reference}", grid, header, values, notes, lines)


def _compare_all(grid: Grid, reference: str) -> dict[Place, Comparison]:
    pairs = {}
    for place, found in grid.items():
        other = grid.get(place._replace(label=reference))
        if place.label != reference and other is not None:
            pick = score_of(place.dataset)
            pairs[place] = compare(found.of(pick), other.of(pick))
    return pairs


def condition_table(title: str, cells: Sequence[Cell], rows: Mapping[str, Row]) -> Table:
    """Shares of ill-conditioned matrices before attention and after it."""
    grid = gather(cells, rows)

    def values(place: Place) -> list[Value]:
        found = grid[place]
        before, after = (found.of(share_of(when)) for when in ("before", "after"))
        return [
            _mean(before),
            _paper_mean("conditions-before", place),
            _mean(after),
            _paper_mean("conditions-after", place),
            *found.counts(after),
        ]

    header = [Column(name, kind="percent") for name in ("before", "paper before", "after", "paper after")]
    notes = [
        "Percent of matrices of test trials with a condition number above 10⁴, before attention and after it, before "
        "ReEig; mean over subjects and seeds.",
        *_remarks("conditions-after"),
        *_about_runs(grid),
    ]
    return _build(f"{title}: ill-conditioned matrices", grid, [*header, *_COUNTS], values, notes)


def time_table(title: str, cells: Sequence[Cell], rows: Mapping[str, Row]) -> Table:
    """Seconds of an epoch of training."""
    grid = gather(cells, rows)

    def values(place: Place) -> list[Value]:
        seconds = grid[place].of(lambda row: row.seconds_per_epoch)
        every = [value for of_subject in seconds.values() for value in of_subject]
        return [float(np.median(every)) if every else None, _paper_mean("time", place), *grid[place].counts(seconds)]

    header = [Column("seconds", kind="seconds"), Column("paper", kind="seconds"), *_COUNTS]
    notes = [
        "Median over runs of the median seconds of an epoch, for one subject.",
        *_remarks("time"),
        *_about_runs(grid),
    ]
    return _build(f"{title}: seconds per epoch", grid, header, values, notes)


def _score_table(title: str, grid: Grid, paper_table: str | None, validation: bool) -> Table:
    def values(place: Place) -> list[Value]:
        scores = grid[place].of(score_of(place.dataset))
        ours, theirs = summarize(scores), _paper(paper_table, place)
        return [
            _mean(grid[place].of(_valid)) if validation else None,
            ours and ours.mean,
            ours and ours.over_seeds,
            ours and ours.between_subjects,
            theirs and theirs.mean,
            theirs and theirs.spread,
            ours.mean - theirs.mean if ours and theirs else None,
            *grid[place].counts(scores),
        ]

    header = [
        Column("validation", kind="percent"),
        Column("ours", kind="percent"),
        Column("± over seeds", kind="percent", spread=True),
        Column("± subjects", kind="percent"),
        Column("paper", kind="percent"),
        Column("± of paper", kind="percent", spread=True),
        Column("difference", kind="difference"),
        *_COUNTS,
    ]
    notes = choices(grid) if validation else []
    return _build(title, grid, header, values, [*_score_notes(grid, paper_table), *notes])


def _further_table(title: str, grid: Grid) -> Table:
    """Scores by which corpora are judged besides the balanced accuracy."""

    def values(place: Place) -> list[Value]:
        found = grid[place]
        f1 = found.of(lambda row: None if row.confusion is None else 100 * weighted_f1(row.confusion))
        rest = (found.of(pick) for pick in (_percent_of("auc"), _percent_of("kappa")))
        return [_mean(f1), *map(_mean, rest), *found.counts(f1)]

    header = [Column(name, kind="percent") for name in ("weighted F1", "AUROC", "Cohen's kappa")]
    notes = ["Percent, the mean over seeds; the AUROC is that of the second of two classes.", *_about_runs(grid)]
    return _build(f"{title}: further scores", grid, [*header, *_COUNTS], values, notes)


def _percent_of(name: str) -> Callable[[Row], float | None]:
    def pick(row: Row) -> float | None:
        value: float | None = getattr(row, name)
        return None if value is None else 100 * value

    return pick


def _build(
    title: str,
    grid: Grid,
    header: Sequence[Column],
    values: Callable[[Place], Sequence[Value] | None],
    notes: Sequence[str],
    lines: Sequence[tuple[str, str]] | None = None,
) -> Table:
    """A table with these columns for each data set; places that are not in the experiment stay empty."""
    filled = []
    for line in grid.lines if lines is None else lines:
        places = (Place(*line, dataset) for dataset in grid.datasets)
        parts = ((values(place) if place in grid else None) or [None] * len(header) for place in places)
        filled.append((*line, *(value for part in parts for value in part)))
    columns = [replace(column, group=dataset) for dataset in grid.datasets for column in header]
    table = Table(title, (Column("model"), Column("setting"), *columns), tuple(filled), tuple(notes))
    return without_empty(table, _OPTIONAL)


def share_of(when: str) -> Callable[[Row], float | None]:
    """From a row to its percent of ill-conditioned matrices, "before" attention or "after" it."""
    return lambda row: 100 * row.conditions[when]["share"] if row.conditions else None


def _mean(scores: Scores) -> float | None:
    summary = summarize(scores)
    return summary and summary.mean


def _paper(table: str | None, place: Place) -> paper.Number | None:
    """The paper's number; what is simulated has none."""
    if table is None or is_simulated(place.dataset):
        return None
    return paper.number(table, place.label, place.dataset, place.setting)


def _paper_mean(table: str, place: Place) -> float | None:
    found = _paper(table, place)
    return found and found.mean


def _score_notes(grid: Grid, paper_table: str | None) -> list[str]:
    words = dict.fromkeys(WORDS[measure(dataset)] for dataset in grid.datasets)
    which = "; ".join(f"{word} on {_listed(d for d in grid.datasets if WORDS[measure(d)] == word)}" for word in words)
    return [
        f"Percent: {which}. Mean over subjects of their means over seeds.",
        "± is the standard deviation over seeds of a subject (n in the denominator), averaged over subjects; "
        "± subjects is that between subjects (n - 1); n is subjects × seeds.",
        *_remarks(paper_table),
        *_about_runs(grid),
    ]


def _valid(row: Row) -> float | None:
    return None if row.valid_accuracy is None else 100 * row.valid_accuracy


def _remarks(paper_table: str | None) -> list[str]:
    if paper_table is None:
        return []
    theirs = paper.find_table(paper_table)
    where = [f"The paper's numbers are those of its {theirs.where}; a difference is ours minus the paper's."]
    return [*(where if theirs.lines else []), *theirs.remarks]


def _about_runs(grid: Grid) -> list[str]:
    """How many runs there are, how they were trained, and which of their data sets are simulated."""
    done = len({row.key for found in grid.values() for row in found.done})  # one may stand in several lines
    failed = len(set().union(*(found.failed for found in grid.values())))
    missing = len(set().union(*(found.missing for found in grid.values())))
    notes = [
        f"Runs: {done} of {done + failed + missing} done, {failed} failed, {missing} missing.",
        *about_training(grid),
        *_about_weights(grid),
    ]
    simulated = [dataset for dataset in grid.datasets if is_simulated(dataset)]
    if simulated:
        verb = "is" if len(simulated) == 1 else "are"
        notes.append(f"{_listed(simulated)} {verb} simulated: no number of the paper belongs there.")
    return notes


def about_training(grid: Grid) -> list[str]:
    """What was trained otherwise than registered: such scores are not those of the paper's recipe."""
    changed: dict[str, list[str]] = defaultdict(list)
    for place, found in grid.items():
        for training in sorted(found.training - {""}):
            changed[training].append(place.label)
    return [f"Trained with {how}: {'; '.join(dict.fromkeys(labels))}." for how, labels in changed.items()]


def _about_weights(grid: Grid) -> list[str]:
    """Where backbones began: with which weights, or with random ones."""
    began: dict[str, list[str]] = defaultdict(list)
    for place, found in grid.items():
        for weights in sorted(
            {row.versions["weights"] for row in found.done if row.versions and "weights" in row.versions}
        ):
            began[weights].append(place.label)
    return [f"The backbone began with {what}: {'; '.join(dict.fromkeys(labels))}." for what, labels in began.items()]


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
