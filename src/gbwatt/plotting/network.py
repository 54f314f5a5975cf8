"""What happens inside the network: attention, conditioning, eigenvalues, the learnt metric, the embedding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpecBase
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from gbwatt.errors import ParameterError, ShapeError, WeightsError
from gbwatt.plotting import inputs, style
from gbwatt.plotting.inputs import Array
from gbwatt.plotting.style import DOUBLE, SINGLE, TINY, picture

_NUMBERS = 7  # matrices up to this size have numbers in their cells
_EVEN = 0.01  # weights that are all as close to 1/m are shown by how far they are from it alone
_ILL = 4  # log10 of the condition number from which on a matrix is ill-conditioned in the paper


@picture
def attention_maps(weights: ArrayLike, class_names: Sequence[str]) -> Figure:
    """Attention for each class, and below how far it is from even: 100 (m w - 1) per cent of 1/m.

    Where no weight is a percent point from 1/m, the weights would all look alike, and there is the second half alone.

    Parameters
    ----------
    weights : array (n_classes, m, m)
        A row for each query; rows sum to one.
    class_names : sequence of str

    Examples
    --------
    >>> figure = attention_maps([[[0.6, 0.4], [0.5, 0.5]]], ["feet"])
    >>> [axes.get_title() for axes in figure.axes]
    ['feet', '', 'feet', '']
    """
    array = _attention(weights)
    n, m, _ = array.shape
    classes = inputs.names("class_names", class_names, n, "classes in 'weights'")
    cell = 0.29 if m <= _NUMBERS else 0.1
    columns = style.columns_of(n, max(1, int((DOUBLE - 0.9) / max(1.0, cell * m))))
    width = SINGLE if n == 1 or (n == 2 and m <= 3) else DOUBLE
    side = min(1.5 if m <= 4 else 2.1, (width - 1.1) / columns)
    rows = math.ceil(n / columns)
    halves = [(100 * (m * array - 1), f"deviation from 1/{m} = {100 / m:.1f} % (% of it)", "{:+.1f}")]
    if not nearly_equal(array):
        halves.insert(0, (100 * array, "attention weight (%)", "{:.1f}"))
    height = rows * (side + 0.25) + 0.4
    heights = [height, 0.15, height][-2 * len(halves) + 1 :]  # apart, or what is below one would be the other's title
    figure = style.canvas(width, sum(heights))
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    for place, (values, label, form) in enumerate(halves):
        _matrices(figure, grid[2 * place].subgridspec(rows, columns), values, classes, side, form, label)
    return figure


def nearly_equal(weights: Array) -> bool:
    """Whether all weights (..., m) are within a percent point of 1/m.

    Examples
    --------
    >>> nearly_equal(np.array([0.505, 0.495])), nearly_equal(np.array([0.6, 0.4]))
    (True, False)
    """
    return bool(np.abs(weights - 1 / weights.shape[-1]).max() <= _EVEN)


def _attention(weights: ArrayLike) -> Array:
    array = inputs.numbers("weights", weights, "n_classes", "m", "m")
    if array.shape[1] != array.shape[2]:
        raise ShapeError(f"'weights' {array.shape} does not fit; (n_classes, m, m) is needed, a row per query.")
    if array.min() < 0 or np.abs(array.sum(-1) - 1).max() > 1e-3:
        raise WeightsError(
            f"'weights' {array.shape} is negative or has rows that do not sum to one: from {array.min():.3g}, sums "
            f"from {array.sum(-1).min():.3g} to {array.sum(-1).max():.3g}. Rows are queries, after the softmax."
        )
    return array


def _matrices(
    figure: Figure, cells: GridSpecBase, values: Array, names: Sequence[str], side: float, form: str, label: str
) -> None:
    """One half of :func:`attention_maps`."""
    n, m, _ = values.shape
    grid = style.panels(cells, n)
    for axes, matrix, name in zip(grid, values, names, strict=True):
        image = axes.imshow(matrix, interpolation="none", **style.shades(values))
        axes.set_title(style.wrapped(name, side))
        axes.spines[:].set_visible(False)
        if m <= _NUMBERS:
            texts = [[form.format(round(value, 1) + 0.0).replace("-", "−") for value in row] for row in matrix]
            write_cells(axes, image, texts)
    style.count_ticks(grid[0].xaxis, m)
    style.count_ticks(grid[0].yaxis, m)
    for axes in grid[max(n - cells.ncols, 0) :]:
        axes.set_xlabel("key (segment)")
    for axes in grid[:: cells.ncols]:
        axes.set_ylabel("query (segment)")
    style.colour_bar(figure, image, grid, label, cells.nrows * side)


def write_cells(axes: Axes, image: ScalarMappable, texts: Sequence[Sequence[str]], size: float = TINY) -> None:
    """Text in each cell of a matrix, black or white, whichever its colour leaves readable."""
    colours = image.to_rgba(np.asarray(image.get_array()))
    for (i, j), _ in np.ndenumerate(colours[..., 0]):
        ink = style.ink(colours[i, j, :3])
        axes.text(j, i, texts[i][j], ha="center", va="center", fontsize=size, color=ink)


@picture
def condition_histograms(before: ArrayLike, after: ArrayLike) -> Figure:
    """Condition numbers before attention and after it, with the share of ill-conditioned matrices, κ > 10⁴.

    Parameters
    ----------
    before, after : arrays of any shape
        Condition numbers.

    Examples
    --------
    >>> figure = condition_histograms([1e3, 1e5, 1e6, 1e5], [10, 100, 100, 1e5])
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['before attention: 75.0 % above 10⁴', 'after attention: 25.0 % above 10⁴', 'κ = 10⁴']
    """
    remedy = "A condition number is 1 or more, and negative for a matrix that is not positive definite."
    logs = [
        np.log10(inputs.positive(name, inputs.flat(name, values), remedy))
        for name, values in (("before", before), ("after", after))
    ]
    low, high, ill = _range_of_logs(np.concatenate(logs))
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
            label=f"{name} attention: {100 * np.mean(x > _ILL):.1f} % above 10⁴",
        )
    if ill:
        axes.axvline(_ILL, color="black", linewidth=0.8, linestyle=":", label="κ = 10⁴")
    axes.set(xlabel="condition number, log₁₀ κ", ylabel="matrices (%)", xlim=(low, high))
    handles, labels = axes.get_legend_handles_labels()
    style.legend(figure, handles, labels)
    return figure


def _range_of_logs(logs: Array) -> tuple[float, float, bool]:
    """Limits that fit the data, and whether what is ill-conditioned is within, or nearer than a decade."""
    low, high = float(logs.min()), float(logs.max())
    near = low - 1 <= _ILL <= high + 1
    low, high = (min(low, _ILL), max(high, _ILL)) if near else (low, high)
    margin = max(0.05 * (high - low), 0.1)
    return (low - margin if low < 0 else max(0.0, low - margin)), high + margin, near


@picture
def spectra(before: ArrayLike, after: ArrayLike) -> Figure:
    """Eigenvalues before attention and after it, largest first: median, quartiles, and 5 to 95 % of the matrices.

    Parameters
    ----------
    before : array (n, k)
    after : array (n', k')
        Positive eigenvalues of each matrix, in any order.

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
        array = inputs.numbers(name, values, "n_matrices", "k")
        inputs.positive(
            name, array, "Eigenvalues of SPD matrices are; raise rounded ones to the smallest positive one."
        )
        quantiles = np.quantile(-np.sort(-array, axis=1), (0.05, 0.25, 0.5, 0.75, 0.95), axis=0)
        index, looks = np.arange(1, array.shape[1] + 1), style.line(number)
        for low, high, alpha in ((0, 4, 0.15), (1, 3, 0.25)):
            axes.fill_between(index, quantiles[low], quantiles[high], color=looks["color"], alpha=alpha, linewidth=0)
        axes.plot(index, quantiles[2], label=f"{name} attention", **looks)
        most = max(most, len(index))
    axes.set(xlabel="number of the eigenvalue", ylabel="eigenvalue", yscale="log", xlim=(0.5, most + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    _whole_decades(axes)
    style.legend(figure, *axes.get_legend_handles_labels())
    return figure


def _whole_decades(axes: Axes) -> None:
    """Limits of a logarithmic axis at powers of ten, so that there are two ticks at least."""
    low, high = axes.dataLim.intervaly
    axes.set_ylim(10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high) + 1e-9))
    style.log_ticks(axes.yaxis)


@picture
def metric_spectrum(eigenvalues: ArrayLike) -> Figure:
    """Eigenvalues of the metric's M, largest first, beside the identity from which it starts.

    Parameters
    ----------
    eigenvalues : array (k,)

    Examples
    --------
    >>> metric_spectrum([0.5, 2.0]).axes[0].get_title()
    'condition number 4'
    """
    values = inputs.numbers("eigenvalues", eigenvalues, "k")
    inputs.positive("eigenvalues", values, "M is positive definite: look for a step of learning that was too large.")
    values = -np.sort(-values)
    index = np.arange(1, len(values) + 1)
    figure = style.canvas(SINGLE, 2.2)
    axes = figure.subplots()
    axes.axhline(1, color=style.GREY, linestyle="--", linewidth=0.8, label="M = I")
    axes.vlines(index, 1, values, color=style.PALETTE[0], linewidth=1)
    axes.plot(index, values, "o", color=style.PALETTE[0], label="M, learnt")
    axes.set(xlabel="number of the eigenvalue", ylabel="eigenvalue of M", xlim=(0.5, len(values) + 0.5))
    axes.set_title(f"condition number {values[0] / values[-1]:.3g}")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    if values[0] / values[-1] >= 20:
        axes.set_yscale("log")
        _whole_decades(axes)
    axes.legend(loc="upper right")
    return figure


@picture
def embedding(points: ArrayLike, labels: Sequence[int], class_names: Sequence[str], method: str) -> Figure:
    """Trials as points of the plane, a colour and a marker for each class.

    Parameters
    ----------
    points : array (n, 2)
    labels : sequence of int
        Index of the class of each point.
    class_names : sequence of str
    method : str
        What made two numbers out of many; it names the axes.

    Examples
    --------
    >>> figure = embedding([[0, 1], [1, 0]], [0, 1], ["left", "right"], "PCA")
    >>> figure.axes[0].get_xlabel()
    'PCA 1 (a.u.)'
    """
    array = inputs.numbers("points", points, "n", "2")
    if array.shape[1] != 2:
        raise ShapeError(f"'points' {array.shape} does not fit; (n, 2) is needed.")
    which = inputs.numbers("labels", labels, "n")
    inputs.same_length(points=(array, "points"), labels=(which, "labels"))
    inputs.filled("class_names", class_names)
    if not np.isin(which, range(len(class_names))).all():
        raise ParameterError(
            f"'labels' has values from {which.min():g} to {which.max():g}; they are places in 'class_names', whole "
            f"numbers from 0 to {len(class_names) - 1}."
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
