"""Figures of results, with captions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gbwatt.data.description import chance_level
from gbwatt.decoding.metrics import wilson_interval
from gbwatt.experiments.config import Vary
from gbwatt.experiments.grid import Cell, Results
from gbwatt.experiments.runs import Row, Run
from gbwatt.experiments.statistics import summarize
from gbwatt.experiments.tables import SCORE_NAMES, is_simulated, measure, paper_mean, score_of, share_of
from gbwatt.report.experiment_results import BestLine, ExperimentResults, counted, line_name
from gbwatt.report.page import Figure, clean

if TYPE_CHECKING:
    import matplotlib.figure

Score = Callable[[Row], float | None]  # function from a row to a score, None if it is missing

_MAX_LINES = 24  # lines in a figure; more cannot be distinguished
#: Labels of the horizontal axis, by the quantity that is varied.
_AXIS_LABELS = {
    "fraction": "Fraction of the training trials",
    "noise": "Variance of the noise (unit of the recordings, squared)",
    "options.theta": "θ",
}


def figure_block(drawn: matplotlib.figure.Figure, caption: str) -> Figure:
    """Convert a figure of :mod:`gbwatt.plotting` to a block of a page."""
    from gbwatt.plotting import to_svg

    return Figure(clean(to_svg(drawn)), caption)


def reliability_figure(test: Mapping[str, Any], caption: str) -> Figure | None:
    """Return the reliability diagram of test scores; None if they were recorded by a version without it."""
    from gbwatt.plotting import reliability_diagram

    bins = test.get("reliability")
    if not bins:
        return None
    n, confidence, accuracy = ([one[name] for one in bins] for name in ("n", "confidence", "accuracy"))
    intervals = [wilson_interval(round(one["n"] * one["accuracy"]), int(one["n"])) for one in bins]
    low, high = zip(*intervals, strict=True)
    chance = 1 / len(test.get("class_names") or (1,))
    error = test.get("calibration_error")
    drawn = reliability_diagram(n, confidence, accuracy, (low, high), error=error, chance=0 if chance == 1 else chance)
    return figure_block(drawn, caption)


# ---- experiments


def experiment_figures(results: ExperimentResults) -> Iterator[Figure]:
    """Yield figures for each data set: scores by subject or, if the experiment varies something, over its values.

    There are none for experiments that measure computing time.
    """
    if results.quantity == "seconds":
        return
    for dataset in results.grid.datasets:
        if results.experiment.vary is not None:
            yield from _curve_figures(results, dataset)
        else:
            yield from subject_figures(results.grid, dataset)


def subject_figures(grid: Results, dataset: str) -> Iterator[Figure]:
    """Yield a figure of the scores of each subject on a data set; none if there are too many lines to distinguish."""
    from gbwatt.plotting import subjects

    lines = {cell: results for cell, results in grid.items() if cell.dataset == dataset}
    scores = {line_name(cell): results.scores(_score_as_fraction(dataset)) for cell, results in lines.items()}
    scores = {name: by_subject for name, by_subject in scores.items() if by_subject}
    if not 0 < len(scores) <= _MAX_LINES:
        return
    name = _score_name(dataset)
    chance = _chance_level([row for results in lines.values() for row in results.done], dataset)
    several = any(len(seeds) > 1 for by_subject in scores.values() for seeds in by_subject.values())
    points = ": a point for each seed, a bar for the mean over seeds" if several else ", for one seed"
    caption = (
        f"{name} in percent on {_display_name(dataset)}, by subject{points}. The legend gives means over subjects."
    )
    yield figure_block(subjects(scores, chance, name), caption)


def _score_as_fraction(dataset: str) -> Score:
    """Return a function from a row to its score from 0 to 1, not in percent; None for NaN and missing scores."""
    name = measure(dataset)

    def score(row: Row) -> float | None:
        """Return the score of a row; None if it is missing or not from 0 to 1."""
        value: float | None = getattr(row, name)
        return value if value is not None and 0 <= value <= 1 else None

    return score


def _chance_level(rows: Sequence[Row], dataset: str) -> float | None:
    """Return the chance level of the score of a data set; None if the rows have no class counts.

    For the accuracy it is the share of the most frequent test class, averaged over runs.
    """
    if measure(dataset) == "auc":
        return 0.5
    counts = [[scores.get("n", 0) for scores in row.per_class.values()] for row in rows if row.per_class]
    counts = [by_class for by_class in counts if sum(by_class) > 0]
    if not counts:
        return None
    if measure(dataset) == "balanced_accuracy":
        return 1 / len(counts[0])
    return float(np.mean([chance_level(by_class) for by_class in counts]))


def _curve_figures(results: ExperimentResults, dataset: str) -> Iterator[Figure]:
    """Yield figures of means against the varied value: scores, validation accuracies, ill-conditioned matrices."""
    name, where = _score_name(dataset), f"on {_display_name(dataset)}"
    means = "averaged over seeds, then over subjects"
    table = results.experiment.paper if results.quantity == "score" else None
    yield from _score_curves(
        results, dataset, score_of(dataset), table, f"{name} (%)", f"{name} in percent {where}, {means}"
    )
    if results.experiment.validation:
        caption = f"Accuracy on validation trials at the best epoch, in percent, {where}, {means}"
        yield from _score_curves(results, dataset, _validation_accuracy, None, "Validation accuracy (%)", caption)
    if results.experiment.vary and results.experiment.vary.axis == "noise":
        caption = f"Matrices with a condition number above 10⁴ after attention, in percent, {where}, {means}"
        yield from _score_curves(
            results, dataset, share_of("after"), "conditions-after", "Ill-conditioned (%)", caption
        )


def _score_curves(
    results: ExperimentResults, dataset: str, score: Score, table: str | None, ylabel: str, caption: str
) -> Iterator[Figure]:
    """Yield a figure of mean scores against the varied value, with a curve for each model.

    Models with results for fewer than two values are left out; if none remain, there is no figure.

    Parameters
    ----------
    results : ExperimentResults
        Results of the experiment.
    dataset : str
        Data set.
    score : callable
        Function from a row to the quantity that is drawn.
    table : str or None
        Table of the paper whose numbers are drawn, too.
    ylabel, caption : str
        Axis label, and beginning of the caption.
    """
    from gbwatt.plotting import curves

    vary = results.experiment.vary
    if vary is None:
        return
    values, labels = _varied_values(vary), dict.fromkeys(cell.label for cell in results.grid)
    bands = {
        label: [_curve_point(results.grid, Cell(label, setting, dataset), score) for setting in values]
        for label in labels
    }
    series = {label: tuple(np.array(band).T) for label, band in bands.items() if np.isfinite(band).all(1).sum() > 1}
    if not series:
        return
    printed = {
        label: np.array([paper_mean(table, Cell(label, setting, dataset)) for setting in values], float)
        for label in series
    }
    printed = {label: numbers for label, numbers in printed.items() if np.isfinite(numbers).any()}
    xlabel = _AXIS_LABELS.get(vary.axis, vary.axis.partition(".")[2])
    drawn = curves(list(values.values()), series, printed, xlabel=xlabel, ylabel=ylabel)
    has_spread = any((high > low).any() for _, low, high in series.values())
    spread = "; the band is ± one standard deviation over seeds, averaged over subjects" if has_spread else ""
    dashed = " Dashed lines: numbers from the paper." if printed else ""
    yield figure_block(drawn, f"{caption}{spread}.{dashed}")


def _varied_values(vary: Vary) -> dict[str, Any]:
    """Return the varied values by their settings: sorted numbers or, if not all are numbers, names in file order."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in vary.values):
        return {vary.show(value): float(value) for value in sorted(vary.values)}
    return {vary.show(value): str(value) for value in vary.values}


def _validation_accuracy(row: Row) -> float | None:
    """Return the validation accuracy of a row in percent; None if it is missing."""
    return None if row.valid_accuracy is None else 100 * row.valid_accuracy


def _curve_point(grid: Results, cell: Cell, score: Score) -> tuple[float, float, float]:
    """Return one point of a curve: the mean score of a cell, and the lower and upper edge of the band around it.

    The edges are the mean minus and plus the spread over seeds.  All three are NaN without scores.
    """
    summary = summarize(grid[cell].scores(score)) if cell in grid else None
    if summary is None or not np.isfinite(summary.mean):
        return (float("nan"),) * 3
    spread = summary.over_seeds or 0.0
    return summary.mean, summary.mean - spread, summary.mean + spread


def _score_name(dataset: str) -> str:
    """Return the name of the score of a data set, with a capital letter."""
    name = SCORE_NAMES[measure(dataset)]
    return name[0].upper() + name[1:]


def _display_name(dataset: str) -> str:
    """Return the name of a data set, followed by "(simulated)" if it is simulated."""
    return f"{dataset} (simulated)" if is_simulated(dataset) else dataset


# ---- the best line


def best_line_figures(best: BestLine, title: str) -> Iterator[Figure]:
    """Yield the confusion matrix of a best line, and the training curves of one of its runs.

    ``title`` is the title of its experiment.
    """
    dataset = best.cell.dataset
    yield from _confusion_figure(best.runs.done, f"{best.name} on {_display_name(dataset)} ({title})")
    yield from _median_run_figure(best.runs.done, dataset, best.name)


def _confusion_figure(rows: Sequence[Row], line: str) -> Iterator[Figure]:
    """Yield a figure of the summed confusion matrices of runs with the same classes, if any; ``line`` names them."""
    from gbwatt.plotting import confusion

    complete = [row for row in rows if row.confusion and row.per_class]
    names = list(complete[0].per_class or ()) if complete else []
    same_classes = [row for row in complete if list(row.per_class or ()) == names]
    if same_classes:
        matrix = np.sum([np.array(row.confusion) for row in same_classes], axis=0)
        caption = (
            f"Confusion matrix of test trials: {line}, sum over {counted(len(same_classes), 'run')} with "
            f"{int(matrix.sum())} trials. Rows are true classes."
        )
        yield figure_block(confusion(matrix, names), caption)


def _median_run_figure(rows: Sequence[Row], dataset: str, line: str) -> Iterator[Figure]:
    """Yield the training curves of the run with the median score, if a run has a score and a history."""
    score = _score_as_fraction(dataset)
    scored = [(value, row.key, row) for row in rows if _has_history(row) and (value := score(row)) is not None]
    if not scored:
        return
    *_, row = sorted(scored, key=lambda entry: entry[:2])[(len(scored) - 1) // 2]
    run = Run.from_dict(row.run)
    caption = (
        f"Training of one run: {line} on {_display_name(dataset)}, subject {run.subject}, seed {run.seed}, the run "
        "with the median score."
    )
    yield training_figure(row.history or {}, row.best_epoch or 1, caption)


def _has_history(row: Row) -> bool:
    """Return whether a row has a training history that can be drawn."""
    return bool(row.history and row.best_epoch and is_drawable(row.history))


def is_drawable(history: Mapping[str, Sequence[float]]) -> bool:
    """Return whether a history has a training loss and only finite values; diverged training has others."""
    return bool(history.get("train_loss")) and all(np.isfinite(values).all() for values in history.values())


def training_figure(history: Mapping[str, Sequence[float]], best_epoch: int, caption: str) -> Figure:
    """Return the figure of loss and accuracy over epochs; ``best_epoch`` is the epoch whose weights were kept."""
    from gbwatt.plotting import training_curves

    drawn = training_curves(history, best_epoch)
    return figure_block(drawn, f"{caption} The weights of epoch {best_epoch} were kept.")
