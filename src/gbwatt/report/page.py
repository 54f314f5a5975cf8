"""Pages of a report: blocks, and their rendering as one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from xml.etree import ElementTree

from gbwatt._text import replace_unsafe
from gbwatt._validation import check_one_of
from gbwatt.errors import ParameterError
from gbwatt.experiments.table_formats import Column, Table, Value, show

if TYPE_CHECKING:
    from jinja2 import Environment

# ---- blocks


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text."""

    text: str


@dataclass(frozen=True)
class Note:
    """Emphasised text, for example a warning that data are simulated."""

    text: str


@dataclass(frozen=True)
class Code:
    """Commands, or other preformatted text."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Names and values; a value may have several lines."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BigTable:
    """A table with any number of rows that the reader can sort and filter.

    Attributes
    ----------
    table : Table
        Contents.
    frozen : int
        Number of first columns that do not scroll, from 0 to 4; on a phone at most one.
    """

    table: Table
    frozen: int = 0

    def __post_init__(self) -> None:
        """Check the number of frozen columns."""
        if self.frozen not in range(5):
            raise ParameterError(f"frozen={self.frozen!r} must be a number of columns from 0 to 4.")


@dataclass(frozen=True)
class Figure:
    """A picture with a caption.

    Attributes
    ----------
    svg : str
        A complete SVG document.  It is embedded as an image, so that scripts in it do not run.
    caption : str
        Description of what is shown and how it was computed.
    """

    svg: str
    caption: str

    def __post_init__(self) -> None:
        """Require a well-formed SVG document."""
        try:
            tag = ElementTree.fromstring(self.svg.encode()).tag
        except ElementTree.ParseError as error:
            raise ParameterError(f"svg={self.svg[:40]!r}… is not well-formed ({error}).") from None
        if tag != "{http://www.w3.org/2000/svg}svg":
            raise ParameterError(f"svg={self.svg[:40]!r}… is <{tag}>; <svg> with its xmlns is needed.")


@dataclass(frozen=True)
class Fold:
    """Blocks that the reader opens by clicking on a summary."""

    summary: str
    blocks: tuple[Paragraph | Table | BigTable | Code, ...]


#: The tables of ``more`` of a :class:`~gbwatt.experiments.table_formats.Table` become blocks of their own.
Block = Paragraph | Note | Facts | Table | BigTable | Figure | Code | Fold


@dataclass(frozen=True)
class Section:
    """Blocks under a title."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """Contents of a report.

    Attributes
    ----------
    title : str
        Title of the page.
    sections : tuple of Section
        Contents.
    lead : str
        A sentence below the title.
    created : str
        Sentence about the time of creation.  Without it, equal pages have equal HTML.

    Examples
    --------
    >>> page = Page("Tea", (Section("Summary", (Paragraph("2 < 3"),)),))
    >>> "2 &lt; 3" in render(page)
    True
    """

    title: str
    sections: tuple[Section, ...]
    lead: str = ""
    created: str = ""

    def with_sections(self, sections: Iterable[Section], before: str | None = None) -> Self:
        """Insert sections at the end, or before the section with the title ``before``."""
        titles = tuple(section.title for section in self.sections)
        if before is not None:
            check_one_of("before", before, titles)
        index = len(titles) if before is None else titles.index(before)
        return replace(self, sections=(*self.sections[:index], *sections, *self.sections[index:]))


# ---- rendering

_FIGURE_SCALE = 1.5  # figures are drawn for print; enlarged, those of two columns fill the page


def render(page: Page) -> str:
    """Render a page as HTML.

    The page is self-contained, and its Content-Security-Policy forbids all requests and all scripts but its own.  All
    text is escaped.  Equal pages have equal HTML.

    Parameters
    ----------
    page : Page
        Contents.

    Returns
    -------
    str
        A complete HTML document.
    """
    from markupsafe import Markup

    style, script = _read_template("page.css"), _read_template("page.js")
    ids = _UniqueIds()
    named = [(ids.new(section.title), section) for section in page.sections]
    sections = [(name, section.title, list(_block_views(section.blocks, ids))) for name, section in named]
    return (
        _jinja_environment()
        .get_template("page.html")
        .render(
            page=page,
            sections=sections,
            policy=_security_policy(script, style),
            style=Markup(style),  # our own files, not escaped
            script=Markup(script),
        )
    )


def _read_template(name: str) -> str:
    """Return the text of a file in the folder ``templates``: the style sheet or the script of a page."""
    return files(__package__).joinpath("templates", name).read_text("utf-8")


def clean(text: str) -> str:
    """Replace characters that an HTML page must not contain by a replacement mark."""
    return replace_unsafe(text, keep="\t\n\r\u2028\u2029", mark="\ufffd")


@lru_cache(maxsize=1)
def _jinja_environment() -> Environment:
    """Return the Jinja environment of the templates, in which every value is cleaned and escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        """Clean texts that are not marked as safe HTML."""
        return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=PackageLoader("gbwatt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return environment


def _security_policy(script: str, style: str) -> str:
    """Return the Content-Security-Policy: embedded images, this script and this style; nothing else."""
    return (
        f"default-src 'none'; img-src data:; script-src {_source_hash(script)}; style-src {_source_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _source_hash(text: str) -> str:
    """Return the hash by which a Content-Security-Policy allows a script or style."""
    return f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'"


def _base64(content: bytes) -> str:
    """Encode bytes as base64 text."""
    return base64.b64encode(content).decode()


class _UniqueIds:
    """Makes identifiers of HTML elements that are unique on a page."""

    def __init__(self) -> None:
        self._used = {"content"}

    def new(self, title: str) -> str:
        """Return a new identifier made from a title: ``"all-runs"``, then ``"all-runs-2"``."""
        word = re.sub(r"[^\w]+", "-", title.casefold()).strip("-")[:60] or "part"
        name = next(name for n in count(1) if (name := word if n == 1 else f"{word}-{n}") not in self._used)
        self._used.add(name)
        return name


class _BlockView(NamedTuple):
    """A block as the template needs it: the kind selects the HTML, the content depends on the kind."""

    kind: str
    content: Any


def _block_views(blocks: Sequence[Block], ids: _UniqueIds) -> Iterator[_BlockView]:
    """Yield blocks in the form that the template needs; ``ids`` makes the identifiers of tables."""
    for block in blocks:
        match block:
            case Table():
                yield from (_BlockView("table", _table_view(table, ids.new(table.title))) for table in block.tables)
            case BigTable():
                yield _BlockView("table", _big_table_view(block, ids.new(block.table.title)))
            case Figure():
                yield _BlockView("figure", _figure_view(block))
            case Facts():
                yield _BlockView("facts", [(name, text.splitlines() or [""]) for name, text in block.pairs])
            case Fold():
                yield _BlockView("fold", (block.summary, list(_block_views(block.blocks, ids))))
            case _:
                yield _BlockView(type(block).__name__.lower(), block.text)


def _figure_view(figure: Figure) -> dict[str, str | None]:
    """Return a figure in the form that the template needs: the attributes of the image, and the caption."""
    width = re.search(r'<svg\b[^>]*?\swidth="([\d.]+)pt"', figure.svg)
    return {
        "src": f"data:image/svg+xml;base64,{_base64(figure.svg.encode())}",
        "caption": figure.caption,
        "width": None if width is None else f"{_FIGURE_SCALE * float(width[1]) / 0.75:.0f}",
    }


# ---- tables

SHOWN = 50  # number of rows of a big table that are shown at a time
_WIDE_FROM = 56  # number of characters; longer text gets a wide column
_WRAP_FROM = 20  # number of characters; shorter text is not wrapped
# Texts that are sorted and aligned as numbers.
_NUMBER = re.compile(r"< [\d.]+|[-+]?[\d.]+(e[-+]?\d+)?|[-+]?inf|nan")


class _TableCell(NamedTuple):
    """A cell of a table: its text, and its CSS class, if any."""

    text: str
    css: str | None
    spread: str = ""  # shown after ± in the same cell


@dataclass(frozen=True)
class _TableView:
    """A table as the template needs it.

    Attributes
    ----------
    id : str
        Identifier of the caption.
    table : Table
        Title and notes.
    header : list of _TableCell
        Column names.
    groups : list of (title, rows)
        Rows of cells by data set; one group without a title if there are no data sets.
    total : int or None
        Number of rows of a table that can be sorted and filtered; None for other tables.
    attributes : dict
        Attributes of the element, read by the script.
    columns : list of dict
        All values of a table that can be sorted and filtered, for the script.
    """

    id: str
    table: Table
    header: list[_TableCell]
    groups: list[tuple[str, list[list[_TableCell]]]]
    total: int | None = None
    attributes: dict[str, int | None] = field(default_factory=dict)
    columns: list[dict[str, Any]] = field(default_factory=list)


def _table_view(table: Table, name: str) -> _TableView:
    """Convert a table for the template, with a group of rows for each data set; ``name`` is its identifier."""
    sections = list(_split_by_dataset(table))
    columns = sections[0][1].header
    numeric = _numeric_columns([row for _, section in sections for row in _row_texts(section)], len(columns))
    header = _header_cells(columns, numeric)
    return _TableView(name, table, header, [(title, _row_cells(section, numeric)) for title, section in sections])


def _big_table_view(block: BigTable, name: str) -> _TableView:
    """Convert a table that can be sorted and filtered for the template; ``name`` is its identifier.

    The HTML has the first rows only; the script of the page has the values of all rows.
    """
    table = block.table.stacked() if block.table.groups else block.table
    table = replace(table, header=tuple(replace(column, spread=False) for column in table.header))
    texts = list(_row_texts(table))
    numeric = _numeric_columns(texts, len(table.header))
    return _TableView(
        name,
        table,
        _header_cells(table.header, numeric),
        [("", _row_cells(replace(table, lines=table.lines[:SHOWN]), numeric))],
        len(texts),
        {"data-shown": SHOWN, "data-long": _WIDE_FROM, "data-wraps": _WRAP_FROM, "data-frozen": block.frozen or None},
        [_encode_column(number, [clean(row[index]) for row in texts]) for index, number in enumerate(numeric)],
    )


def _encode_column(number: bool, texts: Sequence[str]) -> dict[str, Any]:
    """Encode a column for the script of the page: its distinct texts, and for each row the index of its text.

    ``number`` tells whether the script sorts the column as numbers.
    """
    index = {text: position for position, text in enumerate(dict.fromkeys(texts))}
    return {"number": number, "texts": list(index), "at": [index[text] for text in texts]}


def _split_by_dataset(table: Table) -> Iterator[tuple[str, Table]]:
    """Yield the rows of each data set as a table, with its name; the whole table if there are no data sets."""
    if not table.groups:
        yield "", table
        return
    stacked = table.stacked()
    for group in table.groups:
        lines = tuple(line[1:] for line in stacked.lines if line[0] == group)
        yield group, Table(table.title, stacked.header[1:], lines)


def _header_cells(columns: Sequence[Column], numeric: Sequence[bool]) -> list[_TableCell]:
    """Return the cells of the header of a table; ``numeric`` tells which columns contain only numbers.

    A column of standard deviations has no cell, because they are shown after ± in the column on its left.
    """
    pairs = zip(columns, numeric, strict=True)
    return [_TableCell(column.name, "number" if number else None) for column, number in pairs if not column.spread]


def _row_cells(table: Table, numeric: Sequence[bool]) -> list[list[_TableCell]]:
    """Return the cells of each row; a standard deviation is shown after ± in the cell of the value on its left."""
    rows: list[list[_TableCell]] = []
    for texts in _row_texts(table):
        row: list[_TableCell] = []
        for column, text, number in zip(table.header, texts, numeric, strict=True):
            if column.spread and row:
                row[-1] = row[-1]._replace(spread=text)
            else:
                row.append(_TableCell(text, _css_class(number, text)))
        rows.append(row)
    return rows


def _css_class(number: bool, text: str) -> str | None:
    """Return the CSS class of a cell: numbers are right-aligned, and only longer texts are wrapped."""
    return "number" if number else "long" if len(text) > _WIDE_FROM else "wraps" if len(text) > _WRAP_FROM else None


def _row_texts(table: Table) -> Iterator[list[str]]:
    """Yield the values of each line as texts."""
    for line in table.lines:
        yield [_cell_text(value, column) for value, column in zip(line, table.header, strict=True)]


def _cell_text(value: Value | int, column: Column) -> str:
    """Return a value as text, in the format of its column."""
    return str(value) if isinstance(value, int) else show(value, column.kind)


def _numeric_columns(rows: Sequence[Sequence[str]], width: int) -> list[bool]:
    """Return for each of the ``width`` columns whether it contains only numbers; empty cells are ignored."""
    columns = ([row[index] for row in rows if row[index]] for index in range(width))
    return [bool(texts) and all(map(_NUMBER.fullmatch, texts)) for texts in columns]
