"""Figures of channels: heatmaps over time, bars, scalp maps and patterns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from gbwatt._validation import check_at_least
from gbwatt.data.montage import scalp_positions
from gbwatt.plotting import style
from gbwatt.plotting.style import DOUBLE, LINE, SINGLE, SMALL, TINY, Array, styled_figure

_MAX_IN_ONE_COLUMN = 30  # number of channel names; more names are staggered in two columns
_NAME_BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}  # behind names on the outline of the head


@styled_figure
def heatmaps(
    values: ArrayLike,
    class_names: Sequence[str],
    ch_names: Sequence[str],
    times: ArrayLike,
    label: str = "gradient magnitude (a.u.)",
) -> Figure:
    """Draw a heatmap over channels and time for each class, with a common colour scale.

    Parameters
    ----------
    values : array (n_classes, n_chans, n_times)
        The colour scale starts at 0, or is symmetric about 0 if there are negative values.
    class_names, ch_names : sequence of str
        Names of classes and channels.
    times : array (n_times,)
        Times in seconds, evenly spaced.
    label : str
        Quantity and unit of the values.

    Returns
    -------
    Figure
        One panel for each class.

    Examples
    --------
    >>> import numpy as np
    >>> figure = heatmaps(np.ones((2, 3, 50)), ["left", "right"], ["C3", "Cz", "C4"], np.arange(50) / 125)
    >>> [axes.get_title() for axes in figure.axes]
    ['left', 'right', '']
    """
    array = style.check_numbers("values", values, "n_classes", "n_chans", "n_times")
    n, chans, _ = array.shape
    classes = style.check_names("class_names", class_names, n, "classes in 'values'")
    channels = style.check_names("ch_names", ch_names, chans, "channels in 'values'")
    seconds = style.check_numbers("times", times, "n_times")
    style.check_same_length(times=(seconds, "samples"), values=(array[0, 0], "samples"))
    half = style.check_evenly_spaced("times", seconds) / 2
    height = max(0.8, chans * LINE / (2 if chans > _MAX_IN_ONE_COLUMN else 1))
    columns = style.columns_of(n, 4)
    rows = math.ceil(n / columns)
    width = SINGLE if n == 1 else DOUBLE
    figure = style.canvas(width, rows * (height + 0.25) + 0.45)
    grid = style.panels(figure.add_gridspec(rows, columns), n)
    extent = (seconds[0] - half, seconds[-1] + half, chans - 0.5, -0.5)
    for index, (axes, name, map_) in enumerate(zip(grid, classes, array, strict=True)):
        image = axes.imshow(map_, aspect="auto", interpolation="none", extent=extent, **style.shades(array))
        axes.set_title(style.wrapped(name, (width - 1.4) / columns))
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
        axes.spines[:].set_visible(False)
        axes.tick_params(which="both", left=index % columns == 0)
    style.name_ticks(grid[0].yaxis, channels, height, style.widest(channels, SMALL) + 0.03)
    figure.supxlabel("time (s)", fontsize=style.NORMAL)
    style.colour_bar(figure, image, grid, label, rows * height)
    return figure


@styled_figure
def channel_bars(
    values: ArrayLike,
    class_names: Sequence[str],
    ch_names: Sequence[str],
    label: str = "gradient magnitude (a.u.)",
) -> Figure:
    """Draw a bar for each channel, for channels with unknown positions.

    Parameters
    ----------
    values : array (n_classes, n_chans)
        Heights of the bars.
    class_names, ch_names : sequence of str
        Names of classes and channels.
    label : str
        Quantity and unit of the values.

    Returns
    -------
    Figure
        One row for each class.

    Examples
    --------
    >>> figure = channel_bars([[0.2, 0.7], [0.6, 0.1]], ["left", "right"], ["ch 1", "ch 2"])
    >>> len(figure.axes)
    2
    """
    array = style.check_numbers("values", values, "n_classes", "n_chans")
    n, chans = array.shape
    classes = style.check_names("class_names", class_names, n, "classes in 'values'")
    channels = style.check_names("ch_names", ch_names, chans, "channels in 'values'")
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


@styled_figure
def topomaps(
    values: ArrayLike,
    class_names: Sequence[str],
    ch_names: Sequence[str],
    label: str = "gradient magnitude (a.u.)",
) -> Figure:
    """Draw a scalp map for each class, with a common colour scale, and a diagram of the electrodes.

    Values are interpolated between electrodes, and not extrapolated far beyond them.

    Parameters
    ----------
    values : array (n_classes, n_chans)
        The colour scale starts at 0, or is symmetric about 0 if there are negative values.
    class_names : sequence of str
        Names of the classes.
    ch_names : sequence of str
        Names of the 10-05 system, three or more.
    label : str
        Quantity and unit of the values.

    Returns
    -------
    Figure
        A diagram of the electrodes, and one map for each class.

    Raises
    ------
    UnknownPositionError
        If the position of a channel is unknown; use :func:`channel_bars` instead.

    Examples
    --------
    >>> figure = topomaps([[0.9, 0.1, 0.3], [0.3, 0.1, 0.9]], ["right", "left"], ["C3", "Cz", "C4"])
    >>> [axes.get_title() for axes in figure.axes]
    ['electrodes', 'right', 'left', '']
    """
    array = style.check_numbers("values", values, "n_classes", "n_chans")
    n, chans = array.shape
    classes = style.check_names("class_names", class_names, n, "classes in 'values'")
    positions = scalp_positions(style.check_names("ch_names", ch_names, chans, "channels in 'values'"))
    diagram = _diagram_size(positions)
    rows = 1 if n <= 2 or (n == 3 and diagram < 2) else 2
    columns = math.ceil(n / rows)
    size = min(1.6, (DOUBLE - diagram - 1.0) / columns)
    figure = style.canvas(DOUBLE, max(diagram, rows * (size + 0.1)) + 0.35)
    grid = figure.add_gridspec(rows, columns + 1, width_ratios=[diagram, *[size] * columns])
    electrodes(figure.add_subplot(grid[:, 0]), positions)
    maps = [figure.add_subplot(grid[i // columns, 1 + i % columns]) for i in range(n)]
    shades = style.shades(array)
    for axes, name, map_ in zip(maps, classes, array, strict=True):
        draw_map(axes, map_, positions, **shades)
        axes.set_title(style.wrapped(name, size))
    colours = ScalarMappable(Normalize(shades["vmin"], shades["vmax"]), shades["cmap"])
    style.colour_bar(figure, colours, maps, label, figure.get_figheight() - 0.4, shrink=0.8)
    return figure


@styled_figure
def patterns(
    patterns: ArrayLike,
    spectra: ArrayLike,
    freqs: ArrayLike,
    ch_names: Sequence[str],
    most: int = 6,
    ylabel: str = "gain (a.u.)",
) -> Figure:
    """Draw the spatial patterns of the strongest features, each with its spectrum below.

    The strength of a feature is ‖pattern‖ ‖spectrum‖.  The overall sign of a pattern is arbitrary.  Each map is scaled
    to a maximum magnitude of 1.

    Parameters
    ----------
    patterns : array (n_features, n_chans)
        Pattern of each feature.
    spectra : array (n_features, n_freqs)
        Spectrum of each feature.
    freqs : array (n_freqs,)
        Frequencies in Hz, increasing.
    ch_names : sequence of str
        Names of the 10-05 system, three or more.
    most : int
        Maximum number of features to show.
    ylabel : str
        Quantity and unit of the spectra.

    Returns
    -------
    Figure
        A map and a spectrum for each feature.

    Raises
    ------
    UnknownPositionError
        If the position of a channel is unknown.

    Examples
    --------
    >>> figure = patterns([[1, 2, 3], [9, 5, 1]], [[0, 1], [1, 0]], [8, 12], ["C3", "Cz", "C4"])
    >>> [axes.get_title() for axes in figure.axes]
    ['feature 2', '', 'feature 1', '', '']
    """
    maps = style.check_numbers("patterns", patterns, "n_features", "n_chans")
    lines = style.check_numbers("spectra", spectra, "n_features", "n_freqs")
    style.check_same_length(patterns=(maps, "features"), spectra=(lines, "features"))
    hertz = style.check_increasing("freqs", style.check_numbers("freqs", freqs, "n_freqs"))
    style.check_same_length(freqs=(hertz, "frequencies"), spectra=(lines[0], "frequencies"))
    positions = scalp_positions(style.check_names("ch_names", ch_names, maps.shape[1], "channels in 'patterns'"))
    check_at_least("most", most, 1)
    strongest = np.argsort(-_row_norms(maps) * _row_norms(lines), kind="stable")[:most]
    return _draw_patterns(
        maps[strongest], lines[strongest], hertz, positions, [f"feature {i + 1}" for i in strongest], ylabel
    )


def _row_norms(vectors: Array) -> Array:
    """Return the Euclidean norm of each row."""
    return np.asarray(np.linalg.norm(vectors, axis=1))


def _draw_patterns(
    maps: Array, lines: Array, freqs: Array, positions: Mapping[str, Array], names: Sequence[str], ylabel: str
) -> Figure:
    """Draw each pattern as a scalp map, with its spectrum below.

    Parameters
    ----------
    maps : array (n, n_chans)
        Patterns.
    lines : array (n, n_freqs)
        Spectra.
    freqs : array (n_freqs,)
        Frequencies in Hz.
    positions : dict
        Position (2,) of each channel, by name.
    names : sequence of str
        Titles of the maps.
    ylabel : str
        Quantity and unit of the spectra.
    """
    n, columns = len(maps), style.columns_of(len(maps), 6)
    rows = math.ceil(n / columns)
    figure = style.canvas(DOUBLE if n > 2 else style.SINGLE, rows * 2.3 + 0.1)
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[1.2, 0.8] * rows)
    first: Axes | None = None
    map_axes = []
    for i, (map_, line, name) in enumerate(zip(maps, lines, names, strict=True)):
        row, column = divmod(i, columns)
        top, below = (figure.add_subplot(grid[2 * row + k, column], sharey=first if k else None) for k in (0, 1))
        draw_map(top, map_ / (np.abs(map_).max() or 1), positions, cmap=style.DIVERGING, vmin=-1, vmax=1)
        top.set_title(name)
        below.plot(freqs, line, color=style.PALETTE[0])
        below.set_xlabel("frequency (Hz)" if columns < 6 else "freq. (Hz)")
        below.tick_params(labelleft=column == 0)
        below.locator_params(axis="x", nbins=3, steps=[1, 2, 5, 10])
        if column == 0:
            below.set_ylabel(ylabel)
        first = first or below
        map_axes.append(top)
    if first is not None:  # all spectra share its limits
        first.set_ylim(min(0.0, float(lines.min())), 1.05 * float(lines.max()) or 1.0)
    colours = ScalarMappable(Normalize(-1, 1), style.DIVERGING)
    style.colour_bar(figure, colours, map_axes, "pattern (largest = 1)", 2.3 * rows - 1.1, shrink=0.8)
    return figure


def draw_map(axes: Axes, values: Array, positions: Mapping[str, Array], cmap: str, vmin: float, vmax: float) -> None:
    """Draw one scalp map of values (n_chans,) at the positions (2,) of channels, with dashed negative contours."""
    import mne

    with mne.utils.use_log_level("ERROR"):
        mne.viz.plot_topomap(
            values,
            np.stack(list(positions.values())),
            ch_type="eeg",
            sphere=1.0,
            extrapolate="local",
            cmap=cmap,
            vlim=(vmin, vmax),
            contours=np.linspace(vmin, vmax, 9)[1:-1],
            sensors=False,
            axes=axes,
            show=False,
        )
    for outline in axes.lines:
        outline.set_linewidth(0.7)
    axes.plot(*np.stack(list(positions.values())).T, ".", color="black", markersize=1.5)
    for artist in (*axes.images, *axes.collections, *axes.lines):
        artist.set_in_layout(False)  # the head fills its axes: measuring every contour would be slow


def electrodes(axes: Axes, positions: Mapping[str, Array]) -> None:
    """Draw a head seen from above, nose up, with the names of electrodes at their positions."""
    axes.add_patch(Circle((0, 0), 1, fill=False, linewidth=0.8))
    axes.plot([-0.1, 0, 0.1], [0.995, 1.12, 0.995], color="black", linewidth=0.8)
    for name, (x, y) in positions.items():
        axes.text(x, y, name, ha="center", va="center", fontsize=TINY, bbox=_NAME_BOX)
    reach = 1.15 * max(1.0, *(float(np.abs(position).max()) for position in positions.values()))
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", title="electrodes")
    axes.axis("off")


def _diagram_size(positions: Mapping[str, Array]) -> float:
    """Return the size in inches, from 1.4 to 3.6, at which no two names of electrodes overlap in the diagram."""
    widths = np.array([style.text_width(name, TINY) for name in positions]) + 0.02
    xy = np.stack(list(positions.values()))
    distances = np.abs(xy[:, None] - xy[None]) + 1e-9
    horizontal = (widths[:, None] + widths[None]) / 2 / distances[..., 0]
    vertical = TINY * 1.15 / 72 / distances[..., 1]
    scale = np.minimum(horizontal, vertical)[~np.eye(len(positions), dtype=bool)].max()
    return float(np.clip(2.5 * scale, 1.4, 3.6))
