"""Figures of results, each with a caption that says what was computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median_low
from typing import TYPE_CHECKING, Any

import numpy as np

from gbwatt.experiments import paper
from gbwatt.experiments.config import Vary
from gbwatt.experiments.runs import Row, Run
from gbwatt.experiments.statistics import summarize
from gbwatt.experiments.tables import WORDS, Grid, Place, is_simulated, measure, score_of, share_of
from gbwatt.report.html import clean
from gbwatt.report.page import Figure
from gbwatt.report.study import Best, Study
from gbwatt.report.text import counted

if TYPE_CHECKING:
    import matplotlib.figure

Pick = Callable[[Row], float | None]

_MOST = 24  # lines in a figure
_AXES = {
    "fraction": "Part of the training trials",
    "noise": "Variance of the noise (unit of the recordings, squared)",
    "options.theta": "θ",
}


def figure(drawn: matplotlib.figure.Figure, caption: str) -> Figure:
    """A figure of :mod:`gbwatt.plotting` as a block."""
    from gbwatt.plotting import to_svg

    return Figure(clean(to_svg(drawn)), caption)


# ----------------------------------------------------------------------------------------------------------- experiment


def of_study(study: Study) -> Iterator[Figure]:
    """Scores by subject or, where something is varied, over its values; one data set after the other."""
    if study.quantity == "seconds":
        return
    for dataset in study.grid.datasets:
        if study.experiment.vary is not None:
            yield from _curves(study, dataset)
        else:
            yield from by_subject(study.grid, dataset)


def by_subject(grid: Grid, dataset: str) -> Iterator[Figure]:
    """Scores of each subject on a data set, unless there are more lines than can be told apart."""
    from gbwatt.plotting import subjects

    places = {place: grid[place] for place in grid if place.dataset == dataset}
    found = {", ".join(filter(None, place[:2])): one.of(_fraction_of(dataset)) for place, one in places.items()}
    scores = {label: known for label, known in found.items() if known}
    if 0 < len(scores) <= _MOST:
        name = _word(dataset)
        chance = _chance([row for one in places.values() for row in one.done], dataset)
        several = any(len(seeds) > 1 for of in scores.values() for seeds in of.values())
        points = ": a point for each seed, a bar for the mean of several" if several else ", of one seed"
        yield figure(
            subjects(scores, chance, name),
            f"{name} in percent on {dataset}{_simulated(dataset)}, by subject{points}; means over subjects are beside "
            "the names.",
        )


def _fraction_of(dataset: str) -> Pick:
    """From a row to its score, from 0 to 1; None for what is no number."""
    name = measure(dataset)

    def pick(row: Row) -> float | None:
        value: float | None = getattr(row, name)
        return value if value is not None and 0 <= value <= 1 else None

    return pick


def _chance(rows: Sequence[Row], dataset: str) -> float | None:
    """What guessing reaches; for an accuracy, the share of the most frequent class in test, mean over runs."""
    sizes = [[one.get("n", 0) for one in row.per_class.values()] for row in rows if row.per_class]
    known = [size for size in sizes if sum(size) > 0]
    if measure(dataset) == "auc":
        return 0.5
    if not known:
        return None
    if measure(dataset) == "balanced_accuracy":
        return 1 / len(known[0])
    return float(np.mean([max(size) / sum(size) for size in known]))


def _values(vary: Vary) -> dict[str, Any]:
    """Settings with their numbers or, if not all are numbers, with their names, in the order of the file."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in vary.values):
        return {vary.show(value): float(value) for value in sorted(vary.values)}
    return {vary.show(value): str(value) for value in vary.values}


def _curves(study: Study, dataset: str) -> Iterator[Figure]:
    """Means over what is varied, for lines that have more than one value of it."""
    word = _word(dataset)
    where = f"on {dataset}{_simulated(dataset)}"
    means = "mean over subjects of their means over seeds"
    yield from _curve(
        study,
        dataset,
        score_of(dataset),
        study.experiment.paper if study.quantity == "score" else None,
        f"{word} (%)",
        f"{word} in percent {where}: {means}",
    )
    if study.experiment.validation:
        yield from _curve(
            study,
            dataset,
            _valid,
            None,
            "Validation accuracy (%)",
            f"Accuracy on validation trials at the epoch that they chose, in percent, {where}: {means}",
        )
    if study.experiment.vary and study.experiment.vary.axis == "noise":
        yield from _curve(
            study,
            dataset,
            share_of("after"),
            "conditions-after",
            "Ill-conditioned (%)",
            f"Matrices with a condition number above 10⁴ after attention, in percent, {where}: {means}",
        )


def _curve(study: Study, dataset: str, pick: Pick, table: str | None, ylabel: str, caption: str) -> Iterator[Figure]:
    from gbwatt.plotting import curves

    vary = study.experiment.vary
    if vary is None:
        return
    values, labels = _values(vary), dict.fromkeys(place.label for place in study.grid)
    ours = {label: [_band(study.grid, Place(label, setting, dataset), pick) for setting in values] for label in labels}
    series = {label: tuple(np.array(bands).T) for label, bands in ours.items() if np.isfinite(bands).all(1).sum() > 1}
    if not series:
        return
    theirs = {label: [_printed(table, Place(label, setting, dataset)) for setting in values] for label in series}
    printed = {label: numbers for label, numbers in theirs.items() if np.isfinite(numbers).any()}
    xlabel = _AXES.get(vary.axis, vary.axis.partition(".")[2])
    drawn = curves(list(values.values()), series, printed, xlabel=xlabel, ylabel=ylabel)
    spread = any((high > low).any() for _, low, high in series.values())
    band = "; the band is ± one standard deviation over seeds, averaged over subjects" if spread else ""
    beside = " Dashed: the numbers that the paper prints." if printed else ""
    yield figure(drawn, f"{caption}{band}.{beside}")


def _valid(row: Row) -> float | None:
    return None if row.valid_accuracy is None else 100 * row.valid_accuracy


def _band(grid: Grid, place: Place, pick: Pick) -> tuple[float, float, float]:
    """Mean, and mean minus and plus the spread over seeds."""
    found = summarize(grid[place].of(pick)) if place in grid else None
    if found is None or not np.isfinite(found.mean):
        return (float("nan"),) * 3
    spread = found.over_seeds or 0.0
    return found.mean, found.mean - spread, found.mean + spread


def _printed(table: str | None, place: Place) -> float:
    known = None if table is None or is_simulated(place.dataset) else paper.number(table, *_named(place))
    return float("nan") if known is None else known.mean


def _named(place: Place) -> tuple[str, str, str]:
    return place.label, place.dataset, place.setting


def _word(dataset: str) -> str:
    word = WORDS[measure(dataset)]
    return word[0].upper() + word[1:]


def _simulated(dataset: str) -> str:
    return " (simulated)" if is_simulated(dataset) else ""


# --------------------------------------------------------------------------------------------------------- closer look


def of_best(best: Best, title: str) -> Iterator[Figure]:
    """What the highest line of an experiment takes for what, and how one of its trainings went."""
    line = ", ".join(filter(None, best.place[:2]))
    yield from _confusion(best.found.done, f"{line} on {best.place.dataset}{_simulated(best.place.dataset)} ({title})")
    yield from _training(best.found.done, best.place.dataset, line)


def _confusion(rows: Sequence[Row], what: str) -> Iterator[Figure]:
    from gbwatt.plotting import confusion

    known = [row for row in rows if row.confusion and row.per_class]
    names = list(known[0].per_class or ()) if known else []
    alike = [row for row in known if list(row.per_class or ()) == names]
    if alike:
        matrix = np.sum([np.array(row.confusion) for row in alike], axis=0)
        yield figure(
            confusion(matrix, names),
            f"What test trials were taken for: {what}, sum of the confusion matrices of {counted(len(alike), 'run')} "
            f"with {int(matrix.sum())} trials. Rows are true classes.",
        )


def _training(rows: Sequence[Row], dataset: str, line: str) -> Iterator[Figure]:
    """The run whose score is the median, so that neither a lucky nor an unlucky one is shown."""
    score = _fraction_of(dataset)
    known = {row.key: (value, row.key) for row in rows if _drawable(row) and (value := score(row)) is not None}
    if not known:
        return
    middle = median_low(known.values())[1]
    row = next(row for row in rows if row.key == middle)
    run = Run.from_dict(row.run)
    yield training(
        row.history or {},
        row.best_epoch or 1,
        f"The training of one run: {line} on {dataset}{_simulated(dataset)}, subject {run.subject}, seed {run.seed}, "
        "the run with the median score of its line.",
    )


def _drawable(row: Row) -> bool:
    return bool(row.history and row.best_epoch and drawable(row.history))


def drawable(history: Mapping[str, Sequence[float]]) -> bool:
    """Whether a history has a loss, and only numbers: a training that diverged has others."""
    return bool(history.get("train_loss")) and all(np.isfinite(values).all() for values in history.values())


def training(history: Mapping[str, Sequence[float]], best_epoch: int, caption: str) -> Figure:
    """Loss and accuracy over epochs."""
    from gbwatt.plotting import training_curves

    return figure(training_curves(history, best_epoch), f"{caption} Its weights are those of epoch {best_epoch}.")
