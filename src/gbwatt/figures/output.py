"""Figures as files, and as part of a page.  The same figure gives the same bytes."""

from __future__ import annotations

import hashlib
import io
import re
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from gbwatt import checks
from gbwatt.figures.style import styled

_VECTOR = (".svg", ".pdf")
_NO_DATES: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
}
_DPI = 300


@styled
def save(figure: Figure, path: str | Path) -> tuple[Path, Path]:
    """Write a figure as vectors, with its text as text, and beside it as PNG with 300 dots per inch.

    Parameters
    ----------
    figure : Figure
    path : path
        Ends in ``.pdf`` for PDF; with ``.svg``, or any other end of a name, it is SVG.  The folder is made if need be.

    Returns
    -------
    vectors, pixels : Path
        The two files.

    Examples
    --------
    >>> import tempfile
    >>> from gbwatt.figures import metric_spectrum
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in save(metric_spectrum([1.2, 1.0, 0.8]), f"{folder}/metric")]
    ['metric.svg', 'metric.png']
    """
    path = Path(path).expanduser()
    suffix = path.suffix.lower()
    if suffix.lstrip(".") in {*FigureCanvasBase.get_supported_filetypes(), "gif"} - {"svg", "pdf"}:
        raise checks.ParameterError(
            f"path={str(path)!r} ends in {path.suffix}; figures are written as .svg or .pdf, with a .png beside it."
        )
    stem = path.with_suffix("") if suffix in _VECTOR else path
    vector = suffix if suffix in _VECTOR else ".svg"
    stem.parent.mkdir(parents=True, exist_ok=True)
    vectors, pixels = (stem.with_name(stem.name + end) for end in (vector, ".png"))
    for file in (vectors, pixels):
        file.write_bytes(_bytes(figure, file.suffix))
    return vectors, pixels


@styled
def to_svg(figure: Figure, title: str = "") -> str:
    """A figure as an ``<svg>`` element for a page of HTML.

    Identifiers start with a digest of the figure, so that many figures can be on one page; nothing in it reaches beyond
    it.

    Parameters
    ----------
    figure : Figure
    title : str
        What a screen reader says instead of the picture.

    Examples
    --------
    >>> from gbwatt.figures import metric_spectrum
    >>> to_svg(metric_spectrum([1.2, 1.0, 0.8]), "The metric")[:38]
    '<svg role="img" aria-label="The metric'
    """
    text = _bytes(figure, ".svg").decode()
    text = text[text.index("<svg") :].strip()
    prefix = f"f{hashlib.sha256(text.encode()).hexdigest()[:12]}-"
    text = _renumbered(text, prefix)
    text = text.replace('<style type="text/css">*{', f'<style type="text/css">#{prefix}1 *{{')  # the whole figure is 1
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ' if title else '<svg role="img" ', 1)


def _bytes(figure: Figure, suffix: str) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format=suffix[1:], dpi=_DPI, metadata=_NO_DATES[suffix])
    content = file.getvalue()
    return _renumbered(content.decode(), "i").encode() if suffix == ".svg" else content


def _renumbered(svg: str, prefix: str) -> str:
    """The same with identifiers 1, 2, …: matplotlib's are digests of numbers that depend on what was drawn before."""
    tags, name = re.compile(r"<[^>]+>"), re.compile(r'(\sid="|url\(#|href="#)([^")]+)')
    defined = [found[2] for tag in tags.findall(svg) for found in name.finditer(tag) if found[1].endswith('id="')]
    new = {old: f"{prefix}{number}" for number, old in enumerate(defined, 1)}
    return tags.sub(lambda tag: name.sub(lambda found: found[1] + new[found[2]], tag[0]), svg)
