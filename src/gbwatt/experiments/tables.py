"""Tables of results: scores next to those of the paper, paired tests, condition numbers and times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from gbwatt._validation import check_one_of
from gbwatt.errors import ParameterError
from gbwatt.experiments import paper
from gbwatt.experiments.grid import Cell, CellResults, Results, collect_results
from gbwatt.experiments.runs import LabelledRun, Row, has_executor
from gbwatt.experiments.statistics import Comparison, Scores, compare, holm, summarize, weighted_f1
from gbwatt.experiments.table_formats import Column, Table, Value, without_empty

if TYPE_CHECKING:
    from gbwatt.experiments.config import Experiment
    from gbwatt.experiments.store import Store

Measure = Literal["accuracy", "auc", "balanced_accuracy"]
#: The score of a data set, where it is not the accuracy.
MEASURES: Mapping[str, Measure] = {
    "bci-ern": "auc",
    "simulated-ern": "auc",
    "p300-br41n": "auc",
    "bi2012": "auc",
    "tuab": "balanced_accuracy",
    "tuev": "balanced_accuracy",
}
SCORE_NAMES: Mapping[Measure, str] = {"accuracy": "accuracy", "auc": "AUC", "balanced_accuracy": "balanced accuracy"}
#: Name of the table of claims, in the place of an experiment.
CLAIMS = "claims"


def make_tables(
    experiment: str | Path | Experiment,
    results: str | Path | Store | Iterable[Row],
    *,
    datasets: Sequence[str] | None = None,
    seeds: int | Sequence[int] | None = None,
    reference: str | None = None,
    overrides: Sequence[str] = (),
) -> list[Table]:
    r"""Make the tables of an experiment from results.

    Parameters
    ----------
    experiment : str, path or Experiment
        Name or file of an experiment, see :func:`~gbwatt.experiments.config.read_experiment`; "claims" for the claims
        of the paper.
    results : path, Store or iterable of Row
        Results: a store, a CSV file, a folder of CSV files, or rows.
    datasets : sequence of str, optional
        Only these data sets.
    seeds : int or sequence of int, optional
        Only this number of seeds, or these seeds.
    reference : str, optional
        Label of the model to compare the others with; default: the reference of the experiment.
    overrides : sequence of str
        Assignments that change the file, see :func:`~gbwatt.experiments.config.override`.

    Returns
    -------
    list of Table
        The table of the experiment and those that go with it; empty if there are no results of the experiment.

    Examples
    --------
    >>> from gbwatt.experiments import Row, experiment_from_dict, make_tables, to_markdown
    >>> models = [{"label": "MAtt", "model": "matt"}]
    >>> content = {"name": "small", "title": "Small", "datasets": ["simulated-ssvep"], "subjects": [1], "seeds": 1}
    >>> experiment = experiment_from_dict({**content, "models": models})
    >>> rows = [Row(run.key, "done", run.to_dict(), accuracy=0.75) for _, _, run in experiment.labelled_runs()]
    >>> (table,) = make_tables(experiment, rows)
    >>> print(*to_markdown(table).splitlines()[2:6], sep="\n")
    | model | ours | n |
    | --- | ---: | --- |
    | **simulated-ssvep** |  |  |
    | MAtt | 75.00 | 1 × 1 |
    """
    from gbwatt.data import find_dataset
    from gbwatt.experiments.config import Experiment, parse_seeds, read_experiment
    from gbwatt.experiments.grid import match_runs
    from gbwatt.experiments.store import read_rows

    rows = read_rows(results)
    if seeds is not None:
        kept = set(parse_seeds(seeds))
        rows = [row for row in rows if row.run["seed"] in kept]
    by_key = {row.key: row for row in rows}
    names = None if datasets is None else [find_dataset(name).name for name in datasets]
    if experiment == CLAIMS:
        from gbwatt.experiments.claims import EXPERIMENTS, claims_table

        if reference is not None:
            raise ParameterError("the comparisons of claims are those of the paper; do not give a reference.")
        every = {name: match_runs(read_experiment(name, overrides), rows, names) for name in EXPERIMENTS}
        collected = {name: collect_results(runs, by_key) for name, runs in every.items()}
        return list(claims_table(collected, names).tables)
    opened = experiment if isinstance(experiment, Experiment) else read_experiment(experiment, overrides)
    runs = match_runs(opened, rows, names)
    if not runs:
        return []
    if reference is not None:
        check_one_of("reference", reference, tuple(dict.fromkeys(label for label, _, _ in runs)))
    table = make_table(
        opened.title,
        runs,
        by_key,
        paper_table=opened.paper,
        reference=reference or opened.reference,
        validation=opened.validation,
        durations=opened.durations,
    )
    return list(table.tables)


def measure(dataset: str) -> Measure:
    """Return the name of the score that is used on a data set."""
    return MEASURES.get(dataset, "accuracy")


def is_simulated(dataset: str) -> bool:
    """Return whether a data set is simulated, so that it cannot be compared with the paper."""
    return dataset.startswith("simulated-")


def score_of(dataset: str) -> Callable[[Row], float | None]:
    """Return a function from a row to its score in percent; the score is the one used on the data set."""
    return _percent_of(measure(dataset))


def share_of(stage: str) -> Callable[[Row], float | None]:
    """Return a function from a row to its percentage of ill-conditioned matrices "before" or "after" attention."""
    return lambda row: 100 * row.conditions[stage]["share"] if row.conditions else None


def _percent_of(name: str) -> Callable[[Row], float | None]:
    """Return a function from a row to its score ``name`` in percent."""

    def pick(row: Row) -> float | None:
        """Return the score of a row in percent; None if it has none."""
        value: float | None = getattr(row, name)
        return None if value is None else 100 * value

    return pick


# -------------------------------------------------------------------------------------------------------------- tables


#: Columns that are removed if they are empty.
_OPTIONAL = frozenset(
    {"setting", "validation", "± over seeds", "± subjects", "paper", "± of paper", "difference", "why no p", "AUROC"}
    | {"paper before", "paper after", "duration, s", "failed", "missing"}
)
#: Last columns of most tables; n is the number of subjects × seeds.
_COUNT_COLUMNS = (Column("n"), Column("failed"), Column("missing"))


def make_table(
    title: str,
    runs: Sequence[LabelledRun],
    rows: Mapping[str, Row],
    *,
    paper_table: str | None = None,
    reference: str | None = None,
    validation: bool = False,
    durations: bool = False,
) -> Table:
    """Make the table of labelled runs.

    Parameters
    ----------
    title : str
        Title of the table.
    runs : sequence of LabelledRun
        All runs of the experiment, done or not.
    rows : dict
        Results, by the keys of the runs.
    paper_table : str, optional
        One of :data:`gbwatt.experiments.paper.TABLES` to compare with.  The table shows the same quantity: a score,
        seconds per epoch, or the share of ill-conditioned matrices.
    reference : str, optional
        Label to compare the others with, in a separate table.
    validation : bool
        Whether to show validation accuracies.
    durations : bool
        Whether to show the durations of runs.

    Returns
    -------
    Table
        ``table.tables`` are this table and others of the same runs: comparisons with the reference, ill-conditioned
        matrices if there is noise, scores if the table is of ill-conditioned matrices, further scores of corpora.
    """
    quantity = "score" if paper_table is None else paper.find_table(paper_table).quantity
    results = collect_results(runs, rows)
    made = {}
    if quantity != "seconds":  # runs that measure time are too short for meaningful scores
        of_paper = paper_table if quantity == "score" else None
        made["score"] = _score_table(title, results, of_paper, validation=validation, durations=durations)
        if reference is not None:
            made["comparison"] = comparison_table(title, results, reference)
    if any(has_executor(one.run.dataset) for one in runs):
        made["further"] = _corpus_scores(title, results)
    if quantity == "share" or any(one.run.noise for one in runs):
        made["share"] = condition_table(title, results)
    if quantity == "seconds":
        made["seconds"] = time_table(title, results)
    first = made.pop(quantity)
    return replace(first, more=tuple(made.values()))


def comparison_table(title: str, results: Results, reference: str) -> Table:
    """Make the table of paired tests of every line with that of the reference in the same setting and data set."""
    pairs = _compare_all(results, reference)
    corrected = dict(zip(pairs, holm([pair.p for pair in pairs.values()]), strict=True))

    def values(cell: Cell) -> list[Value] | None:
        """Return the paired test of a cell, a value for each column; None without results of the reference."""
        pair = pairs.get(cell)
        return pair and [str(pair.subjects), pair.difference, pair.p, corrected[cell], pair.why or None]

    header = [
        Column("subjects"),
        Column("median difference", kind="difference"),
        Column("p", kind="p"),
        Column("p (Holm)", kind="p"),
        Column("why no p"),
    ]
    tests = sum(pair.p is not None for pair in pairs.values())
    same = " in the same setting" if any(cell.setting for cell in pairs) else ""
    notes = [
        f"Median difference: median over subjects of the score minus that of {reference}{same}. Scores are averaged "
        "over seeds. Subjects without both scores are excluded.",
        "p: two-sided Wilcoxon signed-rank test. Subjects with equal scores are excluded.",
        f"p (Holm): corrected for the {tests} test{'s' * (tests != 1)} of this table.",
    ]
    if not pairs:
        notes = [f"No results can be compared with {reference}."]
    lines = [line for line in results.lines if line[0] != reference]
    return _build_table(f"{title}: compared with {reference}", results, header, values, notes, lines)


def _compare_all(results: Results, reference: str) -> dict[Cell, Comparison]:
    """Compare every line with that of the reference model in the same setting and data set, by cell."""
    pairs = {}
    for cell, group in results.items():
        other = results.get(cell._replace(label=reference))
        if cell.label != reference and other is not None:
            pick = score_of(cell.dataset)
            pairs[cell] = compare(group.scores(pick), other.scores(pick))
    return pairs


def condition_table(title: str, results: Results) -> Table:
    """Make the table of percentages of ill-conditioned matrices before and after attention."""

    def values(cell: Cell) -> list[Value]:
        """Return the percentages of a cell, those of the paper, and the counts."""
        before, after = (results[cell].scores(share_of(stage)) for stage in ("before", "after"))
        return [
            _mean_score(before),
            paper_mean("conditions-before", cell),
            _mean_score(after),
            paper_mean("conditions-after", cell),
            *_count_values(results[cell], after),
        ]

    header = [Column(name, kind="percent") for name in ("before", "paper before", "after", "paper after")]
    notes = [
        "Percentage of matrices with a condition number above 10⁴ in test trials: before attention, and after "
        "attention but before ReEig. Averaged over subjects and seeds.",
        *_paper_notes("conditions-after"),
        *_run_notes(results),
    ]
    return _build_table(f"{title}: ill-conditioned matrices", results, [*header, *_COUNT_COLUMNS], values, notes)


def time_table(title: str, results: Results) -> Table:
    """Make the table of seconds per training epoch."""

    def values(cell: Cell) -> list[Value]:
        """Return the median of a cell, the number of the paper, and the counts."""
        seconds = results[cell].scores(lambda row: row.seconds_per_epoch)
        return [_median(seconds), paper_mean("time", cell), *_count_values(results[cell], seconds)]

    header = [Column("seconds", kind="seconds"), Column("paper", kind="seconds"), *_COUNT_COLUMNS]
    notes = [
        "Seconds per epoch for one subject: median over the epochs of a run, then over runs.",
        *_paper_notes("time"),
        *_run_notes(results),
    ]
    return _build_table(f"{title}: seconds per epoch", results, header, values, notes)


def _score_table(title: str, results: Results, paper_table: str | None, *, validation: bool, durations: bool) -> Table:
    """Make the table of scores with standard deviations, next to those of the paper."""

    def values(cell: Cell) -> list[Value]:
        """Return the scores of a cell, those of the paper, their difference, and the counts."""
        scores = results[cell].scores(score_of(cell.dataset))
        ours, theirs = summarize(scores), _paper_number(paper_table, cell)
        return [
            _mean_score(results[cell].scores(_percent_of("valid_accuracy"))) if validation else None,
            ours and ours.mean,
            ours and ours.over_seeds,
            ours and ours.between_subjects,
            theirs and theirs.mean,
            theirs and theirs.spread,
            ours.mean - theirs.mean if ours and theirs else None,
            _median(results[cell].scores(lambda row: row.seconds)) if durations else None,
            *_count_values(results[cell], scores),
        ]

    header = [
        Column("validation", kind="percent"),
        Column("ours", kind="percent"),
        Column("± over seeds", kind="percent", spread=True),
        Column("± subjects", kind="percent"),
        Column("paper", kind="percent"),
        Column("± of paper", kind="percent", spread=True),
        Column("difference", kind="difference"),
        Column("duration, s", kind="seconds"),
        *_COUNT_COLUMNS,
    ]
    notes = _validation_notes(results) if validation else []
    if durations:
        notes.append(
            "Duration: reading the trials, training and test of a run on one core, which other runs may slow down; "
            "median over runs. Training on other subjects, which several runs share, is not included."
        )
    return _build_table(title, results, header, values, [*_score_notes(results, paper_table), *notes])


def _corpus_scores(title: str, results: Results) -> Table:
    """Make the table of weighted F1, AUROC and Cohen's kappa, which papers on clinical corpora report."""

    def values(cell: Cell) -> list[Value]:
        """Return the scores of a cell and the counts."""
        group = results[cell]
        f1 = group.scores(lambda row: None if row.confusion is None else 100 * weighted_f1(row.confusion))
        rest = (group.scores(pick) for pick in (_percent_of("auc"), _percent_of("kappa")))
        return [_mean_score(f1), *map(_mean_score, rest), *_count_values(group, f1)]

    header = [Column(name, kind="percent") for name in ("weighted F1", "AUROC", "Cohen's kappa")]
    notes = [
        "In percent, mean over seeds. The AUROC, for two classes only, is that of the second class.",
        *_run_notes(results),
    ]
    return _build_table(f"{title}: further scores", results, [*header, *_COUNT_COLUMNS], values, notes)


def _build_table(
    title: str,
    results: Results,
    header: Sequence[Column],
    values: Callable[[Cell], Sequence[Value] | None],
    notes: Sequence[str],
    lines: Sequence[tuple[str, str]] | None = None,
) -> Table:
    """Make a table with the same columns for each data set.

    Parameters
    ----------
    title : str
        Title of the table.
    results : Results
        Results by cell.
    header : sequence of Column
        Columns of each data set.
    values : callable
        Function that returns the values of a cell, one for each column, or None.  It is not called for cells that are
        not in the experiment; these stay empty.
    notes : sequence of str
        Notes below the table.
    lines : sequence of (label, setting), optional
        Lines of the table; default: all.
    """
    filled = []
    for line in results.lines if lines is None else lines:
        cells = (Cell(*line, dataset) for dataset in results.datasets)
        parts = ((values(cell) if cell in results else None) or [None] * len(header) for cell in cells)
        filled.append((*line, *(value for part in parts for value in part)))
    columns = [replace(column, group=dataset) for dataset in results.datasets for column in header]
    table = Table(title, (Column("model"), Column("setting"), *columns), tuple(filled), tuple(notes))
    return without_empty(table, _OPTIONAL)


def _count_values(group: CellResults, scores: Scores) -> list[Value]:
    """Return subjects × seeds and the numbers of failed and missing runs: the values of ``_COUNT_COLUMNS``."""
    summary = summarize(scores)
    gaps = (str(len(keys)) if keys else None for keys in (group.failed, group.missing))
    return [summary.size if summary else "none", *gaps]


def _median(values: Scores) -> float | None:
    """Return the median over all runs; None without values."""
    every = [value for of_subject in values.values() for value in of_subject]
    return float(np.median(every)) if every else None


def _mean_score(scores: Scores) -> float | None:
    """Return the mean over seeds, then over subjects; None without scores."""
    summary = summarize(scores)
    return summary and summary.mean


def _paper_number(table: str | None, cell: Cell) -> paper.Number | None:
    """Return the number of the paper for a cell; None if there is none, as for simulated data sets."""
    if table is None or is_simulated(cell.dataset):
        return None
    return paper.number(table, cell.label, cell.dataset, cell.setting)


def paper_mean(table: str | None, cell: Cell) -> float | None:
    """Return the mean that the paper gives for a cell, or None."""
    number = _paper_number(table, cell)
    return number and number.mean


# --------------------------------------------------------------------------------------------------------------- notes


def _score_notes(results: Results, paper_table: str | None) -> list[str]:
    """Return the notes that explain the columns of a table of scores."""
    by_score: dict[str, list[str]] = defaultdict(list)
    for dataset in results.datasets:
        by_score[SCORE_NAMES[measure(dataset)]].append(dataset)
    scores = "; ".join(f"{name} on {_join(datasets)}" for name, datasets in by_score.items())
    return [
        f"Scores are in percent: {scores}. They are averaged over seeds, then over subjects.",
        "±: standard deviation over the seeds of each subject (ddof = 0), averaged over subjects. ± subjects: standard "
        "deviation over subjects (ddof = 1). n: number of subjects × number of seeds.",
        *_paper_notes(paper_table),
        *_run_notes(results),
    ]


def _paper_notes(paper_table: str | None) -> list[str]:
    """Return notes on the source of the numbers of the paper, and remarks on them."""
    if paper_table is None:
        return []
    theirs = paper.find_table(paper_table)
    differences = " Differences are ours minus the paper's." if theirs.quantity == "score" else ""
    source = [f"The paper's numbers are from its {theirs.where}.{differences}"] if theirs.lines else []
    return [*source, *theirs.remarks]


def _run_notes(results: Results) -> list[str]:
    """Return notes on the number of runs, training settings, initial weights, and simulated data sets."""
    done = len({row.key for group in results.values() for row in group.done})  # a run may be in several lines
    failed = len(set().union(*(group.failed for group in results.values())))
    missing = len(set().union(*(group.missing for group in results.values())))
    notes = [
        f"Runs: {done} of {done + failed + missing} done, {failed} failed, {missing} missing.",
        *training_notes(results),
        *_weight_notes(results),
    ]
    simulated = [dataset for dataset in results.datasets if is_simulated(dataset)]
    if simulated:
        verb = "is" if len(simulated) == 1 else "are"
        notes.append(f"{_join(simulated)} {verb} simulated and cannot be compared with the paper.")
    return notes


def training_notes(results: Results) -> list[str]:
    """Return notes on training settings that differ from the registered ones, with the labels trained with them."""
    return _notes_with_labels("Trained with", {cell: group.training - {""} for cell, group in results.items()})


def _weight_notes(results: Results) -> list[str]:
    """Return notes on the initial weights of backbones, with the labels that use them."""
    weights = {
        cell: {row.versions["weights"] for row in group.done if row.versions and "weights" in row.versions}
        for cell, group in results.items()
    }
    return _notes_with_labels("Backbone initialised with", weights)


def _notes_with_labels(what: str, texts: Mapping[Cell, set[str]]) -> list[str]:
    """Return a note such as "Trained with lr = 0.01: MAtt; SPDNet." for each text; ``what`` are its first words."""
    labels: dict[str, list[str]] = defaultdict(list)
    for cell, own in texts.items():
        for text in sorted(own):
            labels[text].append(cell.label)
    return [f"{what} {text}: {'; '.join(dict.fromkeys(names))}." for text, names in labels.items()]


def _validation_notes(results: Results) -> list[str]:
    """Return notes on the lines with the highest validation accuracy: overall, and for each model."""
    notes = ["validation: accuracy on the validation trials at the selected epoch."]
    for dataset in results.datasets:
        seeds, means = _mean_validation({cell: group for cell, group in results.items() if cell.dataset == dataset})
        if not means:
            continue
        texts = {cell: f"{cell.line}, {100 * mean:.2f} %" for cell, mean in means.items()}
        best = {cell.label: cell for cell in sorted(means, key=lambda cell: means[cell])}
        first = max(means, key=lambda cell: means[cell])
        common = f"seed{'s' * (len(seeds) > 1)} {_join(map(str, sorted(seeds)))}"
        notes.append(f"Highest validation accuracy on {dataset} ({common}): {texts[first]}.")
        if len(best) < len(means):
            labels = dict.fromkeys(cell.label for cell in means)
            notes.append(f"Highest of each model: {'; '.join(texts[best[label]] for label in labels)}.")
    return notes


def _mean_validation(results: Mapping[Cell, CellResults]) -> tuple[set[int], dict[Cell, float]]:
    """Average validation accuracies over seeds, so that lines can be compared.

    Returns
    -------
    seeds : set of int
        Seeds that are complete in all lines that have any complete seed.
    means : dict
        Mean validation accuracy over these seeds, for each such line.
    """
    subjects = {row.run["subject"] for group in results.values() for row in group.done}
    complete = {cell: _complete_seeds(group, subjects) for cell, group in results.items()}
    complete = {cell: seeds for cell, seeds in complete.items() if seeds}
    common = set.intersection(*complete.values()) if complete else set()
    means = {
        cell: float(np.mean([row.valid_accuracy for row in results[cell].done if row.run["seed"] in common]))
        for cell in complete
        if common
    }
    return common, means


def _complete_seeds(group: CellResults, subjects: set[int]) -> set[int]:
    """Return the seeds that have a validation accuracy for every one of the subjects."""
    validated = {(row.run["seed"], row.run["subject"]) for row in group.done if row.valid_accuracy is not None}
    return {seed for seed, _ in validated if all((seed, subject) in validated for subject in subjects)}


def _join(words: Iterable[str]) -> str:
    """Join words with commas."""
    return ", ".join(words)
