"""Figures of a network: attention, condition numbers, eigenvalues, metric, features, deletion and insertion."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpecBase
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from gbwatt.errors import ParameterError, ShapeError, WeightsError
from gbwatt.plotting import style
from gbwatt.plotting.style import DOUBLE, SINGLE, SMALL, Array, styled_figure, write_cells

_MAX_NUMBERED = 7  # size of a matrix; larger matrices have no numbers in their cells
_UNIFORM_TOLERANCE = 0.01  # if all weights are this close to 1/m, only deviations are shown
_LOG_ILL = 4  # log10 of the condition number above which the paper calls a matrix ill-conditioned


@styled_figure
def attention_maps(weights: ArrayLike, class_names: Sequence[str]) -> Figure:
    """Draw the attention weights w of each class, and below their deviation from 1/m: 100 (m w - 1) % of 1/m.

    If all weights are within a percentage point of 1/m, only the deviation is drawn.

    Parameters
    ----------
    weights : array (n_classes, m, m)
        One row for each query; rows sum to one.
    class_names : sequence of str
        Names of the classes.

    Returns
    -------
    Figure
        One or two panels for each class.

    Examples
    --------
    >>> figure = attention_maps([[[0.6, 0.4], [0.5, 0.5]]], ["feet"])
    >>> [axes.get_title() for axes in figure.axes]
    ['feet', '', 'feet', '']
    """
    array = _check_attention(weights)
    n, m, _ = array.shape
    classes = style.check_names("class_names", class_names, n, "classes in 'weights'")
    cell = 0.29 if m <= _MAX_NUMBERED else 0.1
    columns = style.columns_of(n, max(1, int((DOUBLE - 0.9) / max(1.0, cell * m))))
    width = SINGLE if n == 1 or (n == 2 and m <= 3) else DOUBLE
    side = min(1.5 if m <= 4 else 2.1, (width - 1.1) / columns)
    rows = math.ceil(n / columns)
    halves = [(100 * (m * array - 1), f"deviation from 1/{m} = {100 / m:.1f} % (% of it)", "{:+.1f}")]
    if not nearly_equal(array):
        halves.insert(0, (100 * array, "attention weight (%)", "{:.1f}"))
    height = rows * (side + 0.25) + 0.4
    heights = [height, 0.15, height][-2 * len(halves) + 1 :]  # a gap, so that labels and titles do not meet
    figure = style.canvas(width, sum(heights))
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    for place, (values, label, form) in enumerate(halves):
        _draw_weights(figure, grid[2 * place].subgridspec(rows, columns), values, classes, side, form, label)
    return figure


def nearly_equal(weights: Array) -> bool:
    """Return whether all weights (..., m) are within a percentage point of 1/m.

    Examples
    --------
    >>> nearly_equal(np.array([0.505, 0.495])), nearly_equal(np.array([0.6, 0.4]))
    (True, False)
    """
    return bool(np.abs(weights - 1 / weights.shape[-1]).max() <= _UNIFORM_TOLERANCE)


def _check_attention(weights: ArrayLike) -> Array:
    """Return attention weights as an array; require rows that sum to one."""
    array = style.check_numbers("weights", weights, "n_classes", "m", "m")
    if array.shape[1] != array.shape[2]:
        raise ShapeError(f"'weights' {array.shape} does not fit; (n_classes, m, m) is needed, one row per query.")
    if array.min() < 0 or np.abs(array.sum(-1) - 1).max() > 1e-3:
        raise WeightsError(
            f"'weights' {array.shape} has negative values or rows that do not sum to one: minimum {array.min():.3g}, "
            f"sums from {array.sum(-1).min():.3g} to {array.sum(-1).max():.3g}. Pass weights after the softmax."
        )
    return array


def _draw_weights(
    figure: Figure, cells: GridSpecBase, values: Array, names: Sequence[str], side: float, form: str, label: str
) -> None:
    """Draw one half of :func:`attention_maps`: the weights of each class, or their deviations.

    Parameters
    ----------
    figure : Figure
        Figure to draw in.
    cells : GridSpecBase
        Grid with a cell for each class.
    values : array (n_classes, m, m)
        Weights or deviations, in percent.
    names : sequence of str
        Names of the classes.
    side : float
        Width of a matrix in inches.
    form : str
        Format of the numbers in cells.
    label : str
        Label of the colour bar.
    """
    n, m, _ = values.shape
    grid = style.panels(cells, n)
    for axes, matrix, name in zip(grid, values, names, strict=True):
        image = axes.imshow(matrix, interpolation="none", **style.shades(values))
        axes.set_title(style.wrapped(name, side))
        axes.spines[:].set_visible(False)
        if m <= _MAX_NUMBERED:
            texts = [[form.format(round(value, 1) + 0.0).replace("-", "−") for value in row] for row in matrix]
            write_cells(axes, image, texts)
    style.count_ticks(grid[0].xaxis, m)
    style.count_ticks(grid[0].yaxis, m)
    for axes in grid[max(n - cells.ncols, 0) :]:
        axes.set_xlabel("key (segment)")
    for axes in grid[:: cells.ncols]:
        axes.set_ylabel("query (segment)")
    style.colour_bar(figure, image, grid, label, cells.nrows * side)


@styled_figure
def condition_histograms(before: ArrayLike, after: ArrayLike) -> Figure:
    """Draw histograms of condition numbers before and after attention, with the share of ill-conditioned matrices.

    A matrix is called ill-conditioned if κ > 10⁴.

    Parameters
    ----------
    before, after : arrays of any shape
        Condition numbers.

    Returns
    -------
    Figure
        Two histograms on a logarithmic axis.

    Examples
    --------
    >>> figure = condition_histograms([1e3, 1e5, 1e6, 1e5], [10, 100, 100, 1e5])
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['before attention: 75.0 % above 10⁴', 'after attention: 25.0 % above 10⁴', 'κ = 10⁴']
    """
    remedy = "Negative condition numbers come from matrices that are not positive definite."
    logs = [
        np.log10(style.check_positive(name, style.check_flat(name, values), remedy))
        for name, values in (("before", before), ("after", after))
    ]
    low, high, ill = _condition_limits(np.concatenate(logs))
    figure = style.canvas(SINGLE, 2.6)
    axes = figure.subplots()
    for number, (name, x) in enumerate(zip(("before", "after"), logs, strict=True)):
        axes.hist(
            x,
            bins=np.linspace(low, high, 41).tolist(),
            weights=np.full(len(x), 100 / len(x)),
            histtype="stepfilled",
            facecolor=(style.PALETTE[number], 0.3),
            edgecolor=style.PALETTE[number],
            linestyle=style.line(number)["linestyle"],
            hatch=("", "////")[number],
            label=f"{name} attention: {100 * np.mean(x > _LOG_ILL):.1f} % above 10⁴",
        )
    if ill:
        axes.axvline(_LOG_ILL, color="black", linewidth=0.8, linestyle=":", label="κ = 10⁴")
    axes.set(xlabel="condition number, log₁₀ κ", ylabel="matrices (%)", xlim=(low, high))
    handles, labels = axes.get_legend_handles_labels()
    style.legend(figure, handles, labels)
    return figure


def _condition_limits(logs: Array) -> tuple[float, float, bool]:
    """Return the limits of an axis of log₁₀ condition numbers, and whether κ = 10⁴ is drawn.

    It is drawn if it is within a decade of the data.
    """
    low, high = float(logs.min()), float(logs.max())
    near = low - 1 <= _LOG_ILL <= high + 1
    low, high = (min(low, _LOG_ILL), max(high, _LOG_ILL)) if near else (low, high)
    margin = max(0.05 * (high - low), 0.1)
    return (low - margin if low < 0 else max(0.0, low - margin)), high + margin, near


@styled_figure
def spectra(before: ArrayLike, after: ArrayLike) -> Figure:
    """Draw eigenvalues before and after attention, largest first: median, quartiles, and 5th to 95th percentile.

    Parameters
    ----------
    before : array (n, k)
        Positive eigenvalues of each matrix before attention, in any order.
    after : array (n', k')
        The same after attention.

    Returns
    -------
    Figure
        Eigenvalues on a logarithmic axis.

    Examples
    --------
    >>> figure = spectra([[1, 0.1], [2, 0.2]], [[1, 0.5]])
    >>> figure.axes[0].get_yscale()
    'log'
    """
    figure = style.canvas(SINGLE, 2.8)
    axes = figure.subplots()
    most = 0
    for number, (name, values) in enumerate((("before", before), ("after", after))):
        array = style.check_numbers(name, values, "n_matrices", "k")
        style.check_positive(name, array, "Clip eigenvalues that rounding made zero or negative.")
        quantiles = np.quantile(-np.sort(-array, axis=1), (0.05, 0.25, 0.5, 0.75, 0.95), axis=0)
        index, looks = np.arange(1, array.shape[1] + 1), style.line(number)
        for low, high, alpha in ((0, 4, 0.15), (1, 3, 0.25)):
            axes.fill_between(index, quantiles[low], quantiles[high], color=looks["color"], alpha=alpha, linewidth=0)
        axes.plot(index, quantiles[2], label=f"{name} attention", **looks)
        most = max(most, len(index))
    axes.set(xlabel="index of the eigenvalue", ylabel="eigenvalue", yscale="log", xlim=(0.5, most + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    _set_decade_limits(axes)
    style.legend(figure, *axes.get_legend_handles_labels())
    return figure


def _set_decade_limits(axes: Axes) -> None:
    """Set the limits of a logarithmic y axis at powers of ten, so that there are at least two ticks."""
    low, high = axes.dataLim.intervaly
    axes.set_ylim(10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high) + 1e-9))
    style.log_ticks(axes.yaxis)


@styled_figure
def metric_spectrum(eigenvalues: ArrayLike) -> Figure:
    """Draw the eigenvalues of the matrix M of the metric, largest first, with its initial value, the identity.

    Parameters
    ----------
    eigenvalues : array (k,)
        Positive eigenvalues, in any order.

    Returns
    -------
    Figure
        Eigenvalues, on a logarithmic axis if they differ by a factor of 20 or more.

    Examples
    --------
    >>> metric_spectrum([0.5, 2.0]).axes[0].get_title()
    'condition number 4'
    """
    values = style.check_numbers("eigenvalues", eigenvalues, "k")
    style.check_positive("eigenvalues", values, "M is positive definite; a smaller learning rate may help.")
    values = -np.sort(-values)
    index = np.arange(1, len(values) + 1)
    figure = style.canvas(SINGLE, 2.2)
    axes = figure.subplots()
    axes.axhline(1, color=style.GREY, linestyle="--", linewidth=0.8, label="M = I")
    axes.vlines(index, 1, values, color=style.PALETTE[0], linewidth=1)
    axes.plot(index, values, "o", color=style.PALETTE[0], label="M, learnt")
    axes.set(xlabel="index of the eigenvalue", ylabel="eigenvalue of M", xlim=(0.5, len(values) + 0.5))
    axes.set_title(f"condition number {values[0] / values[-1]:.3g}")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    if values[0] / values[-1] >= 20:
        axes.set_yscale("log")
        _set_decade_limits(axes)
    axes.legend(loc="upper right")
    return figure


@styled_figure
def embedding(points: ArrayLike, labels: Sequence[int], class_names: Sequence[str], method: str) -> Figure:
    """Draw trials as points in the plane, with a colour and a marker for each class.

    Parameters
    ----------
    points : array (n, 2)
        Coordinates.
    labels : sequence of int
        Index of the class of each point.
    class_names : sequence of str
        Names of the classes.
    method : str
        Method of dimension reduction, for the axis labels.

    Returns
    -------
    Figure
        A scatter plot.

    Examples
    --------
    >>> figure = embedding([[0, 1], [1, 0]], [0, 1], ["left", "right"], "PCA")
    >>> figure.axes[0].get_xlabel()
    'PCA 1 (a.u.)'
    """
    array = style.check_numbers("points", points, "n", "2")
    if array.shape[1] != 2:
        raise ShapeError(f"'points' {array.shape} does not fit; (n, 2) is needed.")
    which = style.check_numbers("labels", labels, "n")
    style.check_same_length(points=(array, "points"), labels=(which, "labels"))
    style.check_not_empty("class_names", class_names)
    if not np.isin(which, range(len(class_names))).all():
        raise ParameterError(
            f"'labels' has values from {which.min():g} to {which.max():g}; they must be indices into "
            f"'class_names', whole numbers from 0 to {len(class_names) - 1}."
        )
    figure = style.canvas(SINGLE, 3.4)
    axes = figure.subplots()
    for number, name in enumerate(class_names):
        looks = style.line(number)
        x, y = array[which == number].T
        axes.scatter(x, y, s=10, c=looks["color"], marker=looks["marker"], alpha=0.75, linewidths=0, label=name)
    axes.set(xlabel=f"{method} 1 (a.u.)", ylabel=f"{method} 2 (a.u.)")
    axes.locator_params(nbins=5)
    style.legend(figure, *axes.get_legend_handles_labels())
    return figure


@styled_figure
def deletion_insertion(
    fractions: ArrayLike,
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    ylabel: str = "probability of the class",
) -> Figure:
    """Draw deletion and insertion curves: a score while the most important inputs are deleted or inserted.

    The legend gives the area under each curve.  For a good explanation it is small for deletion, large for insertion.

    Parameters
    ----------
    fractions : array (n,)
        Fractions of the input that were deleted or inserted, increasing from 0 to 1.
    curves : mapping from str to (deletion (n,), insertion (n,))
        Curves for each ranking of the inputs.
    ylabel : str
        Quantity and unit of the curves.

    Returns
    -------
    Figure
        A panel for deletion, and one for insertion.

    Examples
    --------
    >>> figure = deletion_insertion([0, 0.5, 1], {"gradient": ([1, 0.2, 0], [0, 0.8, 1])})
    >>> [axes.get_title() for axes in figure.axes]
    ['deletion', 'insertion']
    """
    x = style.check_increasing("fractions", style.check_numbers("fractions", fractions, "n"))
    style.check_not_empty("curves", curves)
    figure = style.canvas(DOUBLE, 2.7 + 0.15 * len(curves))
    grid = style.panels(figure.add_gridspec(1, 2), 2)
    for place, (axes, title) in enumerate(zip(grid, ("deletion", "insertion"), strict=True)):
        for number, (name, pair) in enumerate(curves.items()):
            y = style.check_numbers(f"curves[{name!r}][{place}]", pair[place], "n")
            style.check_same_length(fractions=(x, "values"), **{f"curves[{name!r}][{place}]": (y, "values")})
            area = _mean_height(x, y)
            looks = style.line(number) | {"markevery": max(1, len(x) // 10)}
            axes.plot(100 * x, y, label=f"{style.wrapped(name, 1.8, SMALL)}: area {area:.2f}", **looks)
        axes.set_title(title)
        axes.set_xlabel(f"input {'deleted' if place == 0 else 'inserted'}, most important first (%)")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22))
    grid[0].set_ylabel(style.wrapped(ylabel, 1.8))
    return figure


def _mean_height(x: Array, y: Array) -> float:
    """Return the area under a piecewise linear curve, divided by its width, for the legend."""
    if len(x) == 1:
        return float(y[0])
    return float(np.diff(x) @ (y[1:] + y[:-1]) / 2 / (x[-1] - x[0]))
