"""What is written in a figure, and where it ends up when the figure is drawn."""

from __future__ import annotations

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def drawn_texts(figure: Figure) -> list[Text]:
    """All texts that a drawing of the figure shows."""
    if not isinstance(figure.canvas, FigureCanvasAgg):  # not drawn by an earlier look at it
        FigureCanvasAgg(figure).draw()
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    ticks = {label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in _labels(axis, axes)}
    hidden = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for label in (*axis.get_ticklabels(which="both"), axis.get_offset_text())
    } - ticks
    off = {text for axes in figure.axes if not axes.axison for text in (axes.xaxis.label, axes.yaxis.label)}
    return [text for text in dict.fromkeys(shown) if text not in hidden and text not in off]


def _labels(axis, axes) -> list[Text]:
    """Labels of those ticks that are within the limits of an axis."""
    if not axes.axison:
        return []
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * (high - low)
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    inside = [tick for tick in ticks if low - slack <= tick.get_loc() <= high + slack and tick.get_visible()]
    found = [label for tick in inside for label in (tick.label1, tick.label2) if label.get_visible()]
    return [*found, axis.get_offset_text()]


def assert_readable(figure: Figure) -> None:
    """Every text is inside the figure, and no two overlap."""
    texts = drawn_texts(figure)
    assert texts
    boxes = [(text.get_text(), text.get_window_extent().padded(-0.5)) for text in texts]
    width, height = figure.bbox.size
    outside = [name for name, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height]
    assert not outside, f"outside the figure: {outside}"
    pairs = [(a, b) for (a, one), (b, other) in combinations(boxes, 2) if Bbox.intersection(one, other) is not None]
    assert not pairs, f"on top of each other: {pairs[:5]}"


def words(figure: Figure) -> list[str]:
    """Everything that is written in a figure, as it is read."""
    return [" ".join(text.get_text().split()) for text in drawn_texts(figure)]


def tick_names(axis) -> list[str]:
    """Names at the ticks of an axis, by their place."""
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    return [tick.label1.get_text() for tick in sorted(ticks, key=lambda tick: tick.get_loc())]
