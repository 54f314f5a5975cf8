"""What a decision rests on: channels and times, and what happens when they are taken away."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from gbwatt.plotting import inputs, style
from gbwatt.plotting.inputs import Array
from gbwatt.plotting.style import DOUBLE, LINE, SINGLE, SMALL, picture

_ONE_ROW = 30  # names of channels below each other in one row; more are in two


@picture
def heatmaps(
    values: ArrayLike,
    class_names: Sequence[str],
    ch_names: Sequence[str],
    times: ArrayLike,
    label: str = "gradient magnitude (a.u.)",
) -> Figure:
    """Channels and time for each class, in colours that all share.

    Parameters
    ----------
    values : array (n_classes, n_chans, n_times)
        Colours start at 0; where some values are negative, 0 is in their middle.
    class_names, ch_names : sequence of str
    times : array (n_times,)
        In seconds, in equal steps.
    label : str
        What is shown, and its unit.

    Examples
    --------
    >>> import numpy as np
    >>> figure = heatmaps(np.ones((2, 3, 50)), ["left", "right"], ["C3", "Cz", "C4"], np.arange(50) / 125)
    >>> [axes.get_title() for axes in figure.axes]
    ['left', 'right', '']
    """
    array = inputs.numbers("values", values, "n_classes", "n_chans", "n_times")
    n, chans, _ = array.shape
    classes = inputs.names("class_names", class_names, n, "classes in 'values'")
    channels = inputs.names("ch_names", ch_names, chans, "channels in 'values'")
    seconds = inputs.numbers("times", times, "n_times")
    inputs.same_length(times=(seconds, "samples"), values=(array[0, 0], "samples"))
    half = inputs.evenly_spaced("times", seconds) / 2
    height = max(0.8, chans * LINE / (2 if chans > _ONE_ROW else 1))
    columns = style.columns_of(n, 4)
    rows = math.ceil(n / columns)
    width = SINGLE if n == 1 else DOUBLE
    figure = style.canvas(width, rows * (height + 0.25) + 0.45)
    grid = style.panels(figure.add_gridspec(rows, columns), n)
    extent = (seconds[0] - half, seconds[-1] + half, chans - 0.5, -0.5)
    for place, (axes, name, map_) in enumerate(zip(grid, classes, array, strict=True)):
        image = axes.imshow(map_, aspect="auto", interpolation="none", extent=extent, **style.shades(array))
        axes.set_title(style.wrapped(name, (width - 1.4) / columns))
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
        axes.spines[:].set_visible(False)
        axes.tick_params(which="both", left=place % columns == 0)
    style.name_ticks(grid[0].yaxis, channels, height, style.widest(channels, SMALL) + 0.03)
    figure.supxlabel("time (s)", fontsize=style.NORMAL)
    style.colour_bar(figure, image, grid, label, rows * height)
    return figure


@picture
def channel_bars(
    values: ArrayLike,
    class_names: Sequence[str],
    ch_names: Sequence[str],
    label: str = "gradient magnitude (a.u.)",
) -> Figure:
    """A bar for each channel, a row for each class: for channels whose place on the scalp is not known.

    Parameters
    ----------
    values : array (n_classes, n_chans)
    class_names, ch_names : sequence of str
    label : str
        What is shown, and its unit.

    Examples
    --------
    >>> figure = channel_bars([[0.2, 0.7], [0.6, 0.1]], ["left", "right"], ["ch 1", "ch 2"])
    >>> len(figure.axes)
    2
    """
    array = inputs.numbers("values", values, "n_classes", "n_chans")
    n, chans = array.shape
    classes = inputs.names("class_names", class_names, n, "classes in 'values'")
    channels = inputs.names("ch_names", ch_names, chans, "channels in 'values'")
    width, depth = SINGLE if chans * LINE < SINGLE - 0.8 else DOUBLE, style.widest(channels, SMALL)
    figure = style.canvas(width, 0.85 * n + 0.3 + depth)
    grid = style.panels(figure.add_gridspec(n, 1), n)
    for axes, name, bars in zip(grid, classes, array, strict=True):
        axes.bar(range(chans), bars, color=style.PALETTE[0], width=0.75)
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_title(style.wrapped(name, width - 1))
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.margins(x=0.01)
        axes.tick_params(which="both", bottom=axes is grid[-1])
    bottom = grid[-1]
    style.name_ticks(bottom.xaxis, channels, width - 0.8, depth + 0.03)
    bottom.tick_params(axis="x", which="both", rotation=90)
    figure.supylabel(style.wrapped(label, 0.85 * n + 0.2), fontsize=style.NORMAL)
    return figure


@picture
def deletion_insertion(
    fractions: ArrayLike,
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    ylabel: str = "probability of the class",
) -> Figure:
    """What is left of a decision when the most important inputs are deleted, or are all there is.

    The area below each curve is in the legend: small for a good explanation on the left, large on the right.

    Parameters
    ----------
    fractions : array (n,)
        Fractions of the input that were deleted or inserted, rising, from 0 to 1.
    curves : mapping from str to (deletion (n,), insertion (n,))
        For each way to rank the inputs.
    ylabel : str

    Examples
    --------
    >>> figure = deletion_insertion([0, 0.5, 1], {"gradient": ([1, 0.2, 0], [0, 0.8, 1])})
    >>> [axes.get_title() for axes in figure.axes]
    ['deletion', 'insertion']
    """
    x = inputs.rising("fractions", inputs.numbers("fractions", fractions, "n"))
    inputs.filled("curves", curves)
    figure = style.canvas(DOUBLE, 2.7 + 0.15 * len(curves))
    grid = style.panels(figure.add_gridspec(1, 2), 2)
    for place, (axes, title) in enumerate(zip(grid, ("deletion", "insertion"), strict=True)):
        for number, (name, pair) in enumerate(curves.items()):
            y = inputs.numbers(f"curves[{name!r}][{place}]", pair[place], "n")
            inputs.same_length(fractions=(x, "values"), **{f"curves[{name!r}][{place}]": (y, "values")})
            area = _mean_height(x, y)
            looks = style.line(number) | {"markevery": max(1, len(x) // 10)}
            axes.plot(100 * x, y, label=f"{style.wrapped(name, 1.8, SMALL)}: area {area:.2f}", **looks)
        axes.set_title(title)
        axes.set_xlabel(f"input {'deleted' if place == 0 else 'inserted'}, most important first (%)")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22))
    grid[0].set_ylabel(style.wrapped(ylabel, 1.8))
    return figure


def _mean_height(x: Array, y: Array) -> float:
    """Area below a polygonal line, over its width."""
    if len(x) == 1:
        return float(y[0])
    return float(np.diff(x) @ (y[1:] + y[:-1]) / 2 / (x[-1] - x[0]))
