"""Maps of the scalp."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from numpy.typing import ArrayLike

from gbwatt._validation import check_at_least
from gbwatt.data.montage import electrode_name, montage_name
from gbwatt.errors import ParameterError, UnknownPositionError
from gbwatt.plotting import inputs, style
from gbwatt.plotting.inputs import Array
from gbwatt.plotting.style import DOUBLE, TINY, picture

_RING = 0.8  # how far out of the head's radius the ring through Fpz, T7, Oz and T8 is

_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}  # behind names: they may be on the line of the head


@picture
def topomaps(
    values: ArrayLike,
    class_names: Sequence[str],
    ch_names: Sequence[str],
    label: str = "gradient magnitude (a.u.)",
) -> Figure:
    """Maps of the scalp for each class, in colours that all share, beside the names of the electrodes.

    Colours end where there is no electrode near.

    Parameters
    ----------
    values : array (n_classes, n_chans)
        Colours start at 0; where some values are negative, 0 is in their middle.
    class_names : sequence of str
    ch_names : sequence of str
        Names of the 10-05 system, three or more.
    label : str
        What is shown, and its unit.

    Raises
    ------
    UnknownPositionError
        For names of which no position is known: :func:`~gbwatt.plotting.channel_bars` does without.

    Examples
    --------
    >>> figure = topomaps([[0.9, 0.1, 0.3], [0.3, 0.1, 0.9]], ["right", "left"], ["C3", "Cz", "C4"])
    >>> [axes.get_title() for axes in figure.axes]
    ['electrodes', 'right', 'left', '']
    """
    array = inputs.numbers("values", values, "n_classes", "n_chans")
    n, chans = array.shape
    classes = inputs.names("class_names", class_names, n, "classes in 'values'")
    places = positions(inputs.names("ch_names", ch_names, chans, "channels in 'values'"))
    diagram = _diagram_size(places)
    rows = 1 if n <= 2 or (n == 3 and diagram < 2) else 2
    columns = math.ceil(n / rows)
    size = min(1.6, (DOUBLE - diagram - 1.0) / columns)
    figure = style.canvas(DOUBLE, max(diagram, rows * (size + 0.1)) + 0.35)
    grid = figure.add_gridspec(rows, columns + 1, width_ratios=[diagram, *[size] * columns])
    electrodes(figure.add_subplot(grid[:, 0]), places)
    maps = [figure.add_subplot(grid[i // columns, 1 + i % columns]) for i in range(n)]
    shades = style.shades(array)
    for axes, name, map_ in zip(maps, classes, array, strict=True):
        draw_map(axes, map_, places, **shades)
        axes.set_title(style.wrapped(name, size))
    colours = ScalarMappable(Normalize(shades["vmin"], shades["vmax"]), shades["cmap"])
    style.colour_bar(figure, colours, maps, label, figure.get_figheight() - 0.4, shrink=0.8)
    return figure


@picture
def patterns(
    patterns: ArrayLike,
    spectra: ArrayLike,
    freqs: ArrayLike,
    ch_names: Sequence[str],
    most: int = 6,
    ylabel: str = "gain (a.u.)",
) -> Figure:
    """Spatial patterns of the strongest features, each with its spectrum below.

    The strength of a feature is ‖pattern‖ ‖spectrum‖.  The sign of a pattern means nothing, that of its parts relative
    to each other does; each map has its largest value at 1 or -1.

    Parameters
    ----------
    patterns : array (n_features, n_chans)
    spectra : array (n_features, n_freqs)
    freqs : array (n_freqs,)
        In hertz, rising.
    ch_names : sequence of str
        Names of the 10-05 system, three or more.
    most : int
        How many features are shown at most.
    ylabel : str
        What the spectra are, and their unit.

    Raises
    ------
    UnknownPositionError
        For names of which no position is known.

    Examples
    --------
    >>> figure = patterns([[1, 2, 3], [9, 5, 1]], [[0, 1], [1, 0]], [8, 12], ["C3", "Cz", "C4"])
    >>> [axes.get_title() for axes in figure.axes]
    ['feature 2', '', 'feature 1', '', '']
    """
    maps = inputs.numbers("patterns", patterns, "n_features", "n_chans")
    lines = inputs.numbers("spectra", spectra, "n_features", "n_freqs")
    inputs.same_length(patterns=(maps, "features"), spectra=(lines, "features"))
    hertz = inputs.rising("freqs", inputs.numbers("freqs", freqs, "n_freqs"))
    inputs.same_length(freqs=(hertz, "frequencies"), spectra=(lines[0], "frequencies"))
    places = positions(inputs.names("ch_names", ch_names, maps.shape[1], "channels in 'patterns'"))
    check_at_least("most", most, 1)
    strongest = np.argsort(-_lengths(maps) * _lengths(lines), kind="stable")[:most]
    return _draw_patterns(
        maps[strongest], lines[strongest], hertz, places, [f"feature {i + 1}" for i in strongest], ylabel
    )


def _lengths(vectors: Array) -> Array:
    return np.asarray(np.linalg.norm(vectors, axis=1))


def _draw_patterns(
    maps: Array, lines: Array, freqs: Array, places: Mapping[str, Array], names: Sequence[str], ylabel: str
) -> Figure:
    n, columns = len(maps), style.columns_of(len(maps), 6)
    rows = math.ceil(n / columns)
    figure = style.canvas(DOUBLE if n > 2 else style.SINGLE, rows * 2.3 + 0.1)
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[1.2, 0.8] * rows)
    first: Axes | None = None
    tops = []
    for i, (map_, line, name) in enumerate(zip(maps, lines, names, strict=True)):
        row, column = divmod(i, columns)
        top, below = (figure.add_subplot(grid[2 * row + k, column], sharey=first if k else None) for k in (0, 1))
        draw_map(top, map_ / (np.abs(map_).max() or 1), places, cmap=style.DIVERGING, vmin=-1, vmax=1)
        top.set_title(name)
        below.plot(freqs, line, color=style.PALETTE[0])
        below.set_xlabel("frequency (Hz)" if columns < 6 else "freq. (Hz)")
        below.tick_params(labelleft=column == 0)
        below.locator_params(axis="x", nbins=3, steps=[1, 2, 5, 10])
        if column == 0:
            below.set_ylabel(ylabel)
        first = first or below
        tops.append(top)
    if first is not None:  # all share its limits
        first.set_ylim(min(0.0, float(lines.min())), 1.05 * float(lines.max()) or 1.0)
    colours = ScalarMappable(Normalize(-1, 1), style.DIVERGING)
    style.colour_bar(figure, colours, tops, "pattern (largest = 1)", 2.3 * rows - 1.1, shrink=0.8)
    return figure


def draw_map(axes: Axes, values: Array, places: Mapping[str, Array], cmap: str, vmin: float, vmax: float) -> None:
    """One map of the scalp: values (n_chans,) at places (2,), negative contours dashed."""
    import mne

    with mne.utils.use_log_level("ERROR"):
        mne.viz.plot_topomap(
            values,
            np.stack(list(places.values())),
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
    axes.plot(*np.stack(list(places.values())).T, ".", color="black", markersize=1.5)
    for artist in (*axes.images, *axes.collections, *axes.lines):
        artist.set_in_layout(False)  # the head fills its axes: there is no need to measure every contour


def electrodes(axes: Axes, places: Mapping[str, Array]) -> None:
    """A head seen from above, nose up, with the names of electrodes where they are."""
    axes.add_patch(Circle((0, 0), 1, fill=False, linewidth=0.8))
    axes.plot([-0.1, 0, 0.1], [0.995, 1.12, 0.995], color="black", linewidth=0.8)
    for name, (x, y) in places.items():
        axes.text(x, y, name, ha="center", va="center", fontsize=TINY, bbox=_PAPER)
    reach = 1.15 * max(1.0, *(float(np.abs(place).max()) for place in places.values()))
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", title="electrodes")
    axes.axis("off")


def _diagram_size(places: Mapping[str, Array]) -> float:
    """Inches that a diagram needs so that no two names overlap, within reason."""
    widths = np.array([style.text_width(name, TINY) for name in places]) + 0.02
    xy = np.stack(list(places.values()))
    apart = np.abs(xy[:, None] - xy[None]) + 1e-9
    across = (widths[:, None] + widths[None]) / 2 / apart[..., 0]
    up = TINY * 1.15 / 72 / apart[..., 1]
    needed = np.minimum(across, up)[~np.eye(len(places), dtype=bool)].max()
    return float(np.clip(2.5 * needed, 1.4, 3.6))


# ------------------------------------------------------------------------------------------------------------ positions


def positions(ch_names: Sequence[str]) -> dict[str, Array]:
    """Place (2,) of each electrode on a head of radius 1 seen from above: x to the right, y to the nose.

    Distances from the vertex are kept (azimuthal equidistant projection).  Capitals do not matter, nor dots that fill
    up a name.

    Examples
    --------
    >>> [name for name, (x, y) in positions(["C3", "C4", "Oz"]).items() if x < -0.1]
    ['C3']
    """
    known = _montage()
    unknown = [name for name in ch_names if electrode_name(name).casefold() not in known]
    if unknown:
        raise UnknownPositionError(
            f"'ch_names' has {len(unknown)} of {len(ch_names)} channels whose position is not known: {_some(unknown)}. "
            "Use names of the 10-05 system (Fz, C3, Oz), leave these channels out, or draw channel_bars()."
        )
    found = {name: known[electrode_name(name).casefold()] for name in ch_names}
    distinct = {tuple(np.round(place, 6)) for place in found.values()}
    if len(distinct) < len(ch_names) or len(ch_names) < 3:
        raise ParameterError(
            f"'ch_names' has {len(ch_names)} channels at {len(distinct)} places; a map needs three or more, each at a "
            "place of its own. Leave out what is double, or draw channel_bars()."
        )
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")


@lru_cache(maxsize=1)
def _montage() -> dict[str, Array]:
    """All electrodes of the 10-05 system, by their names in small letters."""
    import mne

    with mne.utils.use_log_level("ERROR"):
        montage = mne.channels.make_standard_montage(montage_name())
        info: Any = mne.create_info(montage.ch_names, 1.0, "eeg").set_montage(montage)  # in coordinates of the head
    places = {channel["ch_name"].casefold(): channel["loc"][:3] for channel in info["chs"]}
    centre, frame = _upright(*(places[name] for name in ("fpz", "oz", "t7", "t8")))
    return {name: _flattened(frame @ (place - centre)) for name, place in places.items()}


def _upright(front: Array, back: Array, left: Array, right: Array) -> tuple[Array, Array]:
    """Centre (3,) of the ring of electrodes, and axes (3, 3) in which it lies flat: to the right, to the front, up."""
    y = (front - back) / np.linalg.norm(front - back)
    x = (right - left) - (right - left) @ y * y
    x /= np.linalg.norm(x)
    return (front + back + left + right) / 4, np.stack([x, y, np.cross(x, y)])


def _flattened(place: Array) -> Array:
    """A place (3,) as a point (2,), whose distance from 0 is the angle from the vertex."""
    x, y, z = place
    across = math.hypot(x, y)
    return np.array([x, y]) / (across or 1.0) * math.atan2(across, z) / (math.pi / 2) * _RING
