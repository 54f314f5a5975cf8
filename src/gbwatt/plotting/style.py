"""Style of figures, helpers for drawing, and saving."""

from __future__ import annotations

import functools
import hashlib
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import ArrayLike, NDArray

from gbwatt.errors import MismatchError, NotFiniteError, ParameterError, ShapeError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.cm import ScalarMappable
    from matplotlib.gridspec import GridSpecBase
    from numpy.typing import NDArray

#: Width in inches of one column and of two columns of a paper.
SINGLE, DOUBLE = 3.4, 7.0
#: Font sizes in points: cells of a matrix, ticks and legends, labels and titles.
TINY, SMALL, NORMAL = 6.0, 7.0, 8.0
#: Height in inches of a line of small text, with spacing.
LINE = 0.125

#: Colours of Okabe and Ito, without yellow, which is hard to see on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (8, 2)), (0, (4, 1, 1, 1, 1, 1)), (0, (2, 2)))
SEQUENTIAL, DIVERGING = "cividis", "RdBu_r"  # colour maps for values from 0, and for values of both signs
GREY = "0.45"

#: Settings of matplotlib (rcParams) for all figures.
RC: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],  # included in matplotlib, so the same everywhere
    "font.size": NORMAL,
    "axes.titlesize": NORMAL,
    "axes.labelsize": NORMAL,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "legend.handlelength": 2.6,  # long enough to show the dashes
    "text.parse_math": False,  # names may contain dollar signs
    "axes.formatter.limits": (-2, 4),  # other numbers have a common power of ten
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.0,
    "hatch.linewidth": 0.5,
    "figure.constrained_layout.h_pad": 0.05,
    "figure.constrained_layout.w_pad": 0.05,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "gbwatt",
    "pdf.fonttype": 42,
}

P = ParamSpec("P")
R = TypeVar("R")


def styled(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to run with our settings on top of matplotlib's defaults, and restore the user's settings."""

    @functools.wraps(function)
    def with_style(*args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function with our settings."""
        with matplotlib.style.context(RC, after_reset=True):
            return function(*args, **kwargs)

    return with_style


def styled_figure(function: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a function that returns a figure: apply our style, and fix the layout.

    Otherwise each drawing would change the layout a little, and no two files would be identical.
    """

    @functools.wraps(function)
    def with_fixed_layout(*args: P.args, **kwargs: P.kwargs) -> Figure:
        """Call the function, compute the layout once, and fix it."""
        figure = function(*args, **kwargs)
        for axes in figure.axes:  # otherwise the ticks depend on the settings at drawing time
            axes.tick_params(which="both", labelsize=SMALL)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return figure

    return styled(with_fixed_layout)


def canvas(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, with constrained layout."""
    return Figure(figsize=(width, height), layout="constrained")


# ---- colours


def line(number: int) -> dict[str, Any]:
    """Return colour, marker and dashes of line ``number``; the pairs of colour and marker of 49 lines differ.

    Examples
    --------
    >>> line(1)["color"], line(1)["marker"], line(8)["marker"]
    ('#D55E00', 's', '^')
    """
    turn, place = divmod(number, len(PALETTE))
    other = (place + turn) % len(PALETTE)
    return {"color": PALETTE[place], "marker": MARKERS[other], "linestyle": DASHES[other]}


def luminance(color: Any) -> float:
    """Return the relative luminance of a colour (WCAG 2.1), from 0, black, to 1, white."""
    rgb = np.asarray(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def ink(background: Any) -> str:
    """Return the colour for text, black or white, whichever has more contrast on the background.

    Examples
    --------
    >>> ink("white"), ink("navy")
    ('black', 'white')
    """
    return "black" if luminance(background) > 0.179 else "white"


def shades(values: NDArray[Any]) -> dict[str, Any]:
    """Return colour map and limits for values, as keyword arguments of ``imshow``.

    The limits are 0 and the maximum or, if there are negative values, symmetric about 0.
    """
    most = float(np.abs(values).max()) or 1.0
    if values.min() < 0:
        return {"cmap": DIVERGING, "vmin": -most, "vmax": most}
    return {"cmap": SEQUENTIAL, "vmin": 0.0, "vmax": most}


# ---- text


def text_width(text: str, size: float) -> float:
    """Return the width in inches of one line of text in a font of ``size`` points."""
    width, _, _ = text_to_path.get_text_width_height_descent(
        text, FontProperties(family=RC["font.family"], size=size), ismath=False
    )
    return float(width) / 72


def widest(texts: Iterable[str], size: float) -> float:
    """Return the width in inches of the widest text in a font of ``size`` points."""
    return max(text_width(text, size) for text in texts)


def wrapped(text: str, width: float, size: float = NORMAL) -> str:
    r"""Wrap text into lines of at most ``width`` inches; wider words are cut with an ellipsis.

    Text in parentheses, such as a unit, is kept on one line if possible.

    Examples
    --------
    >>> wrapped("right hand", 0.5), wrapped("deviation (% of it), mean", 0.9)
    ('right\nhand', 'deviation\n(% of it), mean')
    """
    lines = [""]
    for word in _split_words(text, width, size):
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines += [_cut_word(word, width, size)]
    return "\n".join(part for part in lines if part)


def _split_words(text: str, width: float, size: float) -> list[str]:
    """Split text at spaces, but not inside parentheses that fit in ``width`` inches."""
    groups: list[str] = re.findall(r"(?:\([^()]*\)|\S)+", text)  # with the comma or colon that follows
    return [word for group in groups for word in ([group] if text_width(group, size) <= width else group.split())]


def _cut_word(word: str, width: float, size: float) -> str:
    """Cut a word with an ellipsis if it is wider than ``width`` inches."""
    if text_width(word, size) <= width:
        return word
    while word and text_width(word + "…", size) > width:
        word = word[:-1]
    return word + "…"


def legend(figure: Figure, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """Add one legend above all axes, in as many columns as fit."""
    entry = widest(labels, SMALL) + 0.55  # with its line and the space to the next
    columns = columns_of(len(labels), max(1, int((figure.get_figwidth() - 0.1) / entry)))
    names = [wrapped(label, figure.get_figwidth() - 0.7, SMALL) for label in labels]
    figure.legend(handles, names, loc="outside upper center", ncols=columns, columnspacing=1.2)


# ---- axes


def colour_bar(
    figure: Figure, colours: ScalarMappable, beside: Sequence[Axes], label: str, length: float, shrink: float = 1.0
) -> None:
    """Add one colour bar for the axes ``beside``, about ``length`` inches long, with a label that fits."""
    text = wrapped(label, shrink * length)
    figure.colorbar(colours, ax=list(beside), label=text, aspect=12 * shrink * length, shrink=shrink, pad=0.02)


def panels(grid: GridSpecBase, n: int) -> list[Axes]:
    """Return axes with common scales in the first n cells of a grid, and remove the other cells.

    The lowest axes of each column have tick labels.
    """
    cells: list[Axes] = list(grid.subplots(sharex=True, sharey=True, squeeze=False).flat)
    for unused in cells[n:]:
        unused.remove()
    for axes in cells[max(n - grid.ncols, 0) : n]:
        axes.tick_params(labelbottom=True)
    return cells[:n]


def columns_of(n: int, most: int) -> int:
    """Return the number of columns, at most ``most``, that fills a grid of n panels as evenly as possible.

    Examples
    --------
    >>> [columns_of(n, most=4) for n in (1, 4, 5, 6)]
    [1, 4, 3, 3]
    """
    return math.ceil(n / math.ceil(n / most))


def write_cells(axes: Axes, image: ScalarMappable, texts: Sequence[Sequence[str]], size: float = TINY) -> None:
    """Write text into each cell of a matrix, in black or white, whichever has more contrast."""
    colours = image.to_rgba(np.asarray(image.get_array()))
    for (i, j), _ in np.ndenumerate(colours[..., 0]):
        color = ink(colours[i, j, :3])
        axes.text(j, i, texts[i][j], ha="center", va="center", fontsize=size, color=color)


def name_ticks(axis: Axis, names: Sequence[str], length: float, depth: float) -> None:
    """Put names at the positions 0, 1, … of an axis of ``length`` inches.

    If they do not fit in one row, every second name is ``depth`` inches further out, at the end of a longer tick; if
    they do not fit in two rows, names are left out evenly.
    """
    n = len(names)
    step = max(1, math.ceil(n * LINE / length / 2))
    shown = list(range(0, n, step))
    two_rows = len(shown) * LINE > length
    near, far = (shown[::2], shown[1::2]) if two_rows else (shown, [])
    axis.set_ticks(near, [names[i] for i in near])
    if far:
        axis.set_ticks(far, [names[i] for i in far], minor=True)
        axis.set_tick_params(which="minor", length=3.5 + 72 * depth, width=0.4, labelsize=SMALL, color="0.7")


def count_ticks(axis: Axis, n: int, most: int = 10) -> None:
    """Put ticks 1, 2, … at the positions 0, 1, … of an axis, or every second, fifth, tenth, … of them."""
    step = next(s * 10**p for p in range(9) for s in (1, 2, 5) if n / (s * 10**p) <= most)
    shown = range(n) if step == 1 else range(step - 1, n, step)
    axis.set_ticks(list(shown), [str(i + 1) for i in shown])


def log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis with powers of ten such as 10⁻², without minor ticks."""
    axis.set_major_locator(LogLocator(10, numticks=7))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(round(math.log10(value)))))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def power_of_ten(exponent: int) -> str:
    """Return a power of ten as text.

    Examples
    --------
    >>> power_of_ten(-5)
    '10⁻⁵'
    """
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def at(axis: Axis, values: Sequence[float]) -> None:
    """Put ticks of an axis at these values if there are at most eight; otherwise leave matplotlib's."""
    if len(values) <= 8:
        axis.set_major_locator(FixedLocator(list(values)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))


_VECTOR_SUFFIXES = (".svg", ".pdf")
# Metadata to leave out of files, so that files of the same figure are identical.
_NO_DATES: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
}
_DPI = 300  # of PNG files


@styled
def save(figure: Figure, path: str | Path) -> tuple[Path, Path]:
    """Write a figure as SVG or PDF, and as PNG with 300 dots per inch.

    Text in the SVG and PDF files can be selected.  Files of the same figure are identical.

    Parameters
    ----------
    figure : Figure
        Figure to write.
    path : path
        File name; PDF if it ends in ``.pdf``, SVG otherwise.  The folder is created if it does not exist.

    Returns
    -------
    vector, png : Path
        The two files.

    Raises
    ------
    ParameterError
        If the name has the suffix of another image format.

    Examples
    --------
    >>> import tempfile
    >>> from gbwatt.plotting import metric_spectrum
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in save(metric_spectrum([1.2, 1.0, 0.8]), f"{folder}/metric")]
    ['metric.svg', 'metric.png']
    """
    path = Path(path).expanduser()
    suffix = path.suffix.lower()
    if suffix.lstrip(".") in {*FigureCanvasBase.get_supported_filetypes(), "gif"} - {"svg", "pdf"}:
        raise ParameterError(
            f"path={str(path)!r} ends in {path.suffix}; figures are written as .svg or .pdf, each with a .png."
        )
    stem = path.with_suffix("") if suffix in _VECTOR_SUFFIXES else path
    vector = suffix if suffix in _VECTOR_SUFFIXES else ".svg"
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = stem.with_name(stem.name + vector), stem.with_name(stem.name + ".png")
    for file in files:
        file.write_bytes(_file_content(figure, file.suffix))
    return files


@styled
def to_svg(figure: Figure, title: str = "") -> str:
    """Convert a figure to an ``<svg>`` element for an HTML page.

    Identifiers and style rules are prefixed with a digest of the figure, so that many figures can be on one page.

    Parameters
    ----------
    figure : Figure
        Figure to convert.
    title : str
        Text for screen readers.

    Returns
    -------
    str
        The ``<svg>`` element.

    Examples
    --------
    >>> from gbwatt.plotting import metric_spectrum
    >>> to_svg(metric_spectrum([1.2, 1.0, 0.8]), "The metric")[:38]
    '<svg role="img" aria-label="The metric'
    """
    text = _file_content(figure, ".svg").decode()
    text = text[text.index("<svg") :].strip()
    prefix = f"f{hashlib.sha256(text.encode()).hexdigest()[:12]}-"
    text = _renumber_ids(text, prefix)
    text = text.replace('<style type="text/css">*{', f'<style type="text/css">#{prefix}1 *{{')  # 1 is the whole figure
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ' if title else '<svg role="img" ', 1)


def _file_content(figure: Figure, suffix: str) -> bytes:
    """Return the content of a figure file with this suffix; it depends only on the figure."""
    file = io.BytesIO()
    figure.savefig(file, format=suffix[1:], dpi=_DPI, metadata=_NO_DATES[suffix])
    content = file.getvalue()
    return _renumber_ids(content.decode(), "i").encode() if suffix == ".svg" else content


def _renumber_ids(svg: str, prefix: str) -> str:
    """Replace the identifiers of an SVG file by prefix1, prefix2, …; matplotlib's depend on what was drawn before."""
    tags, name = re.compile(r"<[^>]+>"), re.compile(r'(\sid="|url\(#|href="#)([^")]+)')
    defined = [match[2] for tag in tags.findall(svg) for match in name.finditer(tag) if match[1].endswith('id="')]
    new = {old: f"{prefix}{number}" for number, old in enumerate(defined, 1)}
    return tags.sub(lambda tag: name.sub(lambda match: match[1] + new[match[2]], tag[0]), svg)


Array = NDArray[Any]


def check_numbers(name: str, values: ArrayLike, *axes: str, gaps: bool = False) -> Array:
    """Convert values to an array of finite floats with the named axes; with ``gaps``, NaN is a missing value.

    Examples
    --------
    >>> check_numbers("values", [[1, 2, 3]], "n_classes", "n_chans")
    array([[1., 2., 3.]])
    """
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise MismatchError(f"'{name}' is not an array of numbers ({error}); ({', '.join(axes)}) is needed.") from error
    if array.ndim != len(axes) or array.size == 0:
        raise ShapeError(f"'{name}' {array.shape} does not fit; ({', '.join(axes)}), none of them 0, is needed.")
    bad = np.isinf(array) if gaps else ~np.isfinite(array)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise NotFiniteError(
            f"'{name}' {array.shape} has {int(bad.sum())} NaN or infinite entries, the first at {first}. "
            "Look for a division by zero or an overflow before this call, or leave these entries out."
        )
    return array


def check_flat(name: str, values: ArrayLike) -> Array:
    """Convert values of any shape to a vector of finite floats."""
    array = np.asarray(values)
    return check_numbers(name, array.ravel() if array.dtype != object else values, "n")


def check_positive(name: str, values: Array, remedy: str) -> Array:
    """Require positive values, for a logarithmic axis; ``remedy`` is a sentence for the error message."""
    if values.min() <= 0:
        raise ParameterError(f"'{name}' has values down to {values.min():.3g}; they must be positive. {remedy}")
    return values


def check_fractions(name: str, values: Array) -> Array:
    """Require values from 0 to 1, and return them; ``name`` is for the error message."""
    if values.min() < 0 or values.max() > 1:
        raise ParameterError(
            f"'{name}' has values from {values.min():.3g} to {values.max():.3g}; values from 0 to 1 are needed: divide "
            "percentages by 100."
        )
    return values


def check_same_length(**arrays: tuple[Sequence[Any] | Array, str]) -> None:
    """Require arrays of the same length; each is given with a word for its entries, for the error message."""
    (first, (start, axis)), *others = arrays.items()
    for name, (array, entries) in others:
        if len(array) != len(start):
            raise ShapeError(
                f"'{name}' has {len(array)} {entries} and '{first}' {len(start)} {axis}; the numbers must be equal."
            )


def check_names(name: str, values: Sequence[str], n: int, of: str) -> tuple[str, ...]:
    """Require a name for each of the n entries along an axis; ``of`` says what they are, for the error message.

    Examples
    --------
    >>> check_names("ch_names", ["C3", "C4"], 2, "channels in 'values'")
    ('C3', 'C4')
    """
    if isinstance(values, str):
        raise MismatchError(f"'{name}' is the text {values!r}; a list of names is needed: [{values!r}].")
    if len(values) != n:
        raise ShapeError(f"'{name}' has {len(values)} names for {n} {of}; one for each is needed.")
    return tuple(map(str, values))


def check_increasing(name: str, values: Array) -> Array:
    """Require strictly increasing values, and return them; ``name`` is for the error message."""
    if (np.diff(values) <= 0).any():
        raise ParameterError(f"'{name}' must be strictly increasing; sort it together with the values it belongs to.")
    return values


def check_evenly_spaced(name: str, values: Array) -> float:
    """Require evenly spaced, increasing values, and return the step between them."""
    steps = np.diff(check_increasing(name, values))
    if len(steps) and steps.max() - steps.min() > 0.01 * steps.mean():
        raise ParameterError(
            f"'{name}' has steps from {steps.min():.3g} to {steps.max():.3g}; they must be equal: resample first."
        )
    return float(steps.mean()) if len(steps) else 1.0


def check_not_empty(name: str, values: Any) -> None:
    """Require a mapping or sequence with at least one entry."""
    if len(values) == 0:
        raise ShapeError(f"'{name}' is empty; there is nothing to draw.")
