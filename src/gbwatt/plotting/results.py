"""Figures of training and of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from gbwatt._validation import check_at_least, check_one_of
from gbwatt.errors import ParameterError, ShapeError
from gbwatt.plotting import style
from gbwatt.plotting.style import DOUBLE, SINGLE, SMALL, Array, styled_figure, write_cells

# Style of the results of the paper.
_HOLLOW: dict[str, Any] = {"linestyle": "--", "markerfacecolor": "white", "linewidth": 0.9}
# Losses of a training history, and their labels.
_LOSS_LABELS = {"train_loss": "training", "valid_loss": "validation"}


@styled_figure
def training_curves(history: Mapping[str, Sequence[float]], best_epoch: int) -> Figure:
    """Draw loss and accuracy over epochs, and mark the epoch whose weights were kept.

    Parameters
    ----------
    history : mapping
        ``train_loss`` and, optionally, ``valid_loss`` and ``valid_accuracy`` (from 0 to 1), one value per epoch each.
    best_epoch : int
        Number of the epoch whose weights were kept, counted from 1.

    Returns
    -------
    Figure
        A panel for the losses and, with validation, one for the accuracy.

    Examples
    --------
    >>> history = {"train_loss": [1.4, 1.1], "valid_loss": [1.4, 1.2], "valid_accuracy": [0.3, 0.5]}
    >>> [axes.get_ylabel() for axes in training_curves(history, best_epoch=2).axes]
    ['loss (cross-entropy, nats)', 'validation accuracy (%)']
    """
    values = _check_history(history)
    n = len(values["train_loss"])
    check_at_least("best_epoch", best_epoch, 1)
    if best_epoch > n:
        raise ParameterError(f"best_epoch={best_epoch} must be one of the {n} epochs in 'history'.")
    accuracy = values.pop("valid_accuracy", None)
    figure = style.canvas(SINGLE if accuracy is None else DOUBLE, 2.4)
    losses, *rest = figure.subplots(1, 1 if accuracy is None else 2, squeeze=False)[0]
    for number, (name, y) in enumerate(values.items()):
        _plot_over_epochs(losses, y, number, _LOSS_LABELS[name])
    losses.set(ylabel="loss (cross-entropy, nats)", ylim=(0, None))
    for axes in rest:
        _plot_over_epochs(axes, 100 * np.asarray(accuracy), 1, "validation")
        axes.set(ylabel="validation accuracy (%)", ylim=(0, 100))
    for axes in (losses, *rest):
        axes.axvline(best_epoch, color=style.GREY, linewidth=0.8, linestyle=":", label=f"best epoch, {best_epoch}")
        axes.set(xlabel="epoch", xlim=(min(1, n - 1), n))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    style.legend(figure, *losses.get_legend_handles_labels())
    return figure


def _check_history(history: Mapping[str, Sequence[float]]) -> dict[str, Array]:
    """Return the training history as arrays; require known names and equal lengths."""
    allowed = (*_LOSS_LABELS, "valid_accuracy")
    for name in history:
        check_one_of("a name in 'history'", name, allowed)
    if "train_loss" not in history:
        raise ParameterError(f"'history' has {', '.join(history) or 'nothing'}; 'train_loss' is needed.")
    values = {
        name: style.check_numbers(f"history[{name!r}]", history[name], "n_epochs")
        for name in allowed
        if name in history
    }
    style.check_same_length(**{f"history[{name!r}]": (y, "epochs") for name, y in values.items()})
    if "valid_accuracy" in values:
        style.check_fractions("history['valid_accuracy']", values["valid_accuracy"])
    return values


def _plot_over_epochs(axes: Axes, y: Array, number: int, label: str) -> None:
    """Draw one quantity ``y`` against the epochs, in the style of line ``number``."""
    looks = style.line(number) | {"linestyle": "-", "linewidth": 0.9, "markevery": max(1, len(y) // 12)}
    axes.plot(np.arange(1, len(y) + 1), y, label=label, **looks)


@styled_figure
def confusion(matrix: ArrayLike, class_names: Sequence[str]) -> Figure:
    r"""Draw a confusion matrix: counts, and the share of the true class in percent as the colour.

    Parameters
    ----------
    matrix : array (n_classes, n_classes)
        Number of trials of the class of the row that were classified as the class of the column.
    class_names : sequence of str
        Names of the classes.

    Returns
    -------
    Figure
        One cell for each pair of classes.

    Examples
    --------
    >>> figure = confusion([[30, 10], [5, 15]], ["left", "right"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['30\n75 %', '10\n25 %', '5\n25 %', '15\n75 %']
    """
    counts = style.check_numbers("matrix", matrix, "n_classes", "n_classes")
    n = len(counts)
    if counts.shape != (n, n) or counts.min() < 0:
        raise ShapeError(
            f"'matrix' {counts.shape}, from {counts.min():g}, does not fit; counts (n_classes, n_classes) are needed."
        )
    classes = style.check_names("class_names", class_names, n, "classes in 'matrix'")
    share = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    word = style.widest((word for name in classes for word in name.split()), SMALL)
    narrow, wide = ((width - 1.3) / (n + 1) for width in (SINGLE, DOUBLE))  # one column for the names on the left
    fits = narrow > max(0.4, word + 0.05)
    width, cell = (SINGLE, narrow) if fits else (DOUBLE, wide)
    names = [style.wrapped(name, cell - 0.05, SMALL) for name in classes]
    figure = style.canvas(width, 0.45 * n + 1.0)
    axes = figure.subplots()
    image = axes.imshow(share, cmap=style.SEQUENTIAL, vmin=0, vmax=100, aspect="auto", interpolation="none")
    texts = [
        [f"{count:g}\n{part:.0f} %" for count, part in zip(*rows, strict=True)]
        for rows in zip(counts, share, strict=True)
    ]
    write_cells(axes, image, texts, SMALL)
    axes.set_xticks(range(n), names)
    axes.set_yticks(range(n), names)
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, label="share of the\ntrue class (%)", aspect=15, pad=0.02)
    return figure


@styled_figure
def reliability_diagram(
    n: ArrayLike,
    confidence: ArrayLike,
    accuracy: ArrayLike,
    interval: tuple[ArrayLike, ArrayLike] | None = None,
    *,
    error: float | None = None,
    chance: float = 0.0,
) -> Figure:
    """Draw the accuracy of predictions against their confidence, and how many predictions each bin has.

    The probabilities of a calibrated classifier are frequencies: its points are on the diagonal.  Points below it are
    predictions with too much confidence.

    Parameters
    ----------
    n : array (n_bins,)
        Number of predictions of each bin; at least 1.
    confidence, accuracy : array (n_bins,)
        Mean confidence of the predictions, the probability of the predicted class, and the share of correct ones, from
        0 to 1.
    interval : (low (n_bins,), high (n_bins,)), optional
        Confidence intervals of the accuracy, drawn as vertical lines.
    error : float, optional
        Expected calibration error, for the legend.
    chance : float
        Lowest possible confidence, one over the number of classes, where the axis begins.

    Returns
    -------
    Figure
        A panel for the accuracy, and below it one for the number of predictions.

    Examples
    --------
    >>> figure = reliability_diagram([10, 30], [0.65, 0.9], [0.6, 0.7], error=0.1625)
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['calibrated', 'accuracy; expected calibration error 16.2 %']
    """
    low, high = (accuracy, accuracy) if interval is None else interval
    given = {"n": n, "confidence": confidence, "accuracy": accuracy, "interval[0]": low, "interval[1]": high}
    values = {name: style.check_numbers(name, numbers, "n_bins") for name, numbers in given.items()}
    style.check_same_length(**{name: (numbers, "bins") for name, numbers in values.items()})
    for name, numbers in values.items():
        if name != "n":
            values[name] = 100 * style.check_fractions(name, numbers)
    counts, x, y, lower, upper = values.values()
    style.check_positive("n", counts, "leave out bins without predictions.")
    left = 100 * float(style.check_fractions("chance", style.check_flat("chance", chance))[0])
    figure = style.canvas(SINGLE, 3.6)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    axes.plot([0, 100], [0, 100], color=style.GREY, linewidth=0.8, linestyle=":", label="calibrated")
    looks = style.line(0) | {"linestyle": "-"}
    axes.vlines(x, lower, upper, color=looks["color"], alpha=0.4)
    label = "accuracy" if error is None else f"accuracy; expected calibration error {100 * error:.1f} %"
    axes.plot(x, y, label=label, clip_on=False, **looks)
    axes.set(ylabel="accuracy (%)", ylim=(0, 100))
    below.vlines(x, 0, counts, color=looks["color"], linewidth=4)
    margin = 0.03 * (100 - left)
    below.set(xlabel="confidence (%)", ylabel="predictions", xlim=(left - margin, 100 + margin), ylim=(0, None))
    below.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    figure.align_ylabels([axes, below])
    style.legend(figure, *axes.get_legend_handles_labels())
    return figure


@styled_figure
def subjects(
    scores: Mapping[str, Mapping[Any, Sequence[float]]], chance: float | None = None, score: str = "accuracy"
) -> Figure:
    """Draw the scores of each subject: a point for each seed and, if there are several, a bar for their mean.

    The legend gives the mean over subjects.

    Parameters
    ----------
    scores : mapping from label to mapping from subject to scores of its seeds
        Scores from 0 to 1.
    chance : float, optional
        Chance level, from 0 to 1.
    score : str
        Name of the score.

    Returns
    -------
    Figure
        One column for each subject.

    Examples
    --------
    >>> figure = subjects({"GBWAtt": {1: [0.8, 0.9], 2: [0.5, 0.6]}}, chance=0.25)
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['GBWAtt: mean 70.0 %', 'chance: 25.0 %']
    """
    style.check_not_empty("scores", scores)
    everyone = list(dict.fromkeys(subject for of in scores.values() for subject in of))
    style.check_not_empty("scores", everyone)
    room = max(
        len(everyone) * (0.2 + 0.09 * len(scores)), len(everyone) * (style.widest(map(str, everyone), SMALL) + 0.08)
    )
    figure = style.canvas(SINGLE if room < SINGLE - 0.6 else DOUBLE, 2.6 + 0.1 * len(scores))
    axes = figure.subplots()
    handles = []
    for number, (label, of) in enumerate(scores.items()):
        means = _draw_subjects(axes, of, everyone, number, len(scores), label)
        looks = style.line(number) | {"linestyle": "-" if any(len(seeds) > 1 for seeds in of.values()) else "none"}
        handles.append(Line2D([], [], label=f"{label}: mean {100 * np.mean(means):.1f} %", **looks))
    if chance is not None:
        level = 100 * float(style.check_fractions("chance", style.check_flat("chance", chance))[0])
        looks = {"color": style.GREY, "linewidth": 0.8, "linestyle": ":"}
        axes.axhline(level, **looks)
        handles.append(Line2D([], [], label=f"chance: {level:.1f} %", **looks))
    _label_positions(axes, list(map(str, everyone)), figure.get_figwidth() - 0.7)
    axes.set(xlabel="subject", ylabel=f"{score} (%)", xlim=(-0.6, len(everyone) - 0.4))
    style.legend(figure, handles, [str(handle.get_label()) for handle in handles])
    return figure


def _draw_subjects(
    axes: Axes, scores: Mapping[Any, Sequence[float]], all_subjects: list[Any], number: int, n: int, label: str
) -> list[float]:
    """Draw the scores of one label as points, with a bar for the mean of each subject.

    Parameters
    ----------
    axes : Axes
        Axes to draw on.
    scores : mapping
        Scores of the seeds of each subject, from 0 to 1.
    all_subjects : list
        All subjects, in the order of the axis.
    number, n : int
        Number of this label, and how many labels share the place of a subject.
    label : str
        Label, for error messages.

    Returns
    -------
    list of float
        Mean score of each subject.
    """
    style.check_not_empty(f"scores[{label!r}]", scores)
    step = 0.8 / n
    looks, means = style.line(number), []
    for subject, seeds in scores.items():
        name = f"scores[{label!r}][{subject!r}]"
        y = 100 * style.check_fractions(name, style.check_numbers(name, seeds, "n_seeds"))
        x = all_subjects.index(subject) + step * (number - (n - 1) / 2)
        several = len(y) > 1  # otherwise the bar would hide the point
        alpha, size = (0.45, 3) if several else (1.0, 4)
        axes.plot(np.full(len(y), x), y, looks["marker"], color=looks["color"], alpha=alpha, markersize=size, mew=0)
        if several:
            axes.plot([x - 0.42 * step, x + 0.42 * step], [y.mean()] * 2, color=looks["color"], linewidth=1.6)
        means.append(float(y.mean()) / 100)
    return means


def _label_positions(axes: Axes, names: list[str], length: float) -> None:
    """Put names at the positions 0, 1, … of the x axis, rotated if they are too wide for ``length`` inches."""
    width = style.widest(names, SMALL)
    if len(names) * (width + 0.05) <= length:
        axes.set_xticks(range(len(names)), names)
    else:
        style.name_ticks(axes.xaxis, names, length, width + 0.03)
        axes.tick_params(axis="x", which="both", rotation=90)


@styled_figure
def curves(
    x: ArrayLike | Sequence[str],
    series: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike]],
    paper: Mapping[str, ArrayLike] | None = None,
    *,
    xlabel: str,
    ylabel: str,
) -> Figure:
    """Draw results against a setting, each with a band, and the paper's results dashed with hollow markers.

    Parameters
    ----------
    x : array (n,), or sequence of str
        Values of the setting, increasing; or names of settings, drawn in their order.
    series : mapping from label to (mean (n,), low (n,), high (n,))
        Results; NaN for missing ones.
    paper : mapping from label to array (n,), optional
        Results of the paper; those with a label of ``series`` have its colour.
    xlabel, ylabel : str
        Axis labels with units.

    Returns
    -------
    Figure
        One line for each label.

    Examples
    --------
    >>> ours = {"GBWAtt": ([62, 64], [61, 62], [63, 66])}
    >>> figure = curves([0.5, 1.0], ours, {"GBWAtt": [66, 67]}, xlabel="θ", ylabel="accuracy (%)")
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['GBWAtt', 'dashed: the paper']
    """
    style.check_not_empty("series", series)
    names = _setting_names(x)
    setting = np.arange(len(names)) if names else style.check_increasing("x", style.check_numbers("x", x, "n"))
    order = list(dict.fromkeys((*series, *(paper or {}))))
    figure = style.canvas(SINGLE, 2.5 + 0.13 * len(order))
    axes = figure.subplots()
    for label, bands in series.items():
        mean, low, high = (_check_values(setting, f"series[{label!r}][{i}]", band) for i, band in enumerate(bands))
        looks = style.line(order.index(label)) | {"linestyle": "-"}
        axes.fill_between(setting, low, high, color=looks["color"], alpha=0.15, linewidth=0)
        isolated = _without_neighbours(mean)
        axes.vlines(setting[isolated], low[isolated], high[isolated], color=looks["color"], alpha=0.4)
        axes.plot(setting, mean, label=label, **looks)
    for label, printed in (paper or {}).items():
        looks = style.line(order.index(label)) | _HOLLOW
        name = f"_{label}" if label in series else label  # one entry for both
        axes.plot(setting, _check_values(setting, f"paper[{label!r}]", printed), label=name, **looks)
    if paper:
        axes.plot([], [], "o", color=style.GREY, **_HOLLOW, label="dashed: the paper")
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if names:
        _label_positions(axes, names, SINGLE - 0.7)
        axes.set_xlim(-0.4, len(names) - 0.6)
    else:
        style.at(axes.xaxis, setting.tolist())
    style.legend(figure, *axes.get_legend_handles_labels())
    return figure


def _setting_names(x: object) -> list[str]:
    """Return the names of settings as a list; empty if the settings are numbers."""
    values = list(x) if isinstance(x, Sequence) and not isinstance(x, str) else []
    return values if all(isinstance(value, str) for value in values) else []


def _without_neighbours(values: Array) -> Array:
    """Return which values have no finite neighbour, so that their band would have no width."""
    finite = np.isfinite(np.concatenate([[np.nan], values, [np.nan]]))
    return np.asarray(finite[1:-1] & ~finite[:-2] & ~finite[2:])


def _check_values(x: Array, name: str, values: ArrayLike) -> Array:
    """Return values as an array (n,), with NaN for gaps; require as many as there are settings ``x``."""
    y = style.check_numbers(name, values, "n", gaps=True)
    style.check_same_length(x=(x, "values"), **{name: (y, "values")})
    return y
