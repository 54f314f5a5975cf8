"""What a page consists of: plain sections of plain blocks, before anybody thinks of HTML."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self
from xml.etree import ElementTree

from gbwatt._validation import check_one_of
from gbwatt.errors import ParameterError
from gbwatt.experiments.table_formats import Column, Table, Value

__all__ = ["BigTable", "Block", "Code", "Column", "Facts", "Figure", "Fold", "Note", "Page", "Paragraph", "Section"]
__all__ += ["Table", "Value"]

_SVG = "{http://www.w3.org/2000/svg}svg"


@dataclass(frozen=True)
class Paragraph:
    """Text."""

    text: str


@dataclass(frozen=True)
class Note:
    """Text that nobody should miss, such as that data are simulated."""

    text: str


@dataclass(frozen=True)
class Facts:
    """A few facts, each with its name; a fact may be several lines."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class BigTable:
    """A table of any number of lines, which the reader sorts and filters.

    Attributes
    ----------
    table : Table
    frozen : int
        The first columns that stay in sight while the others scroll, up to four; on a phone it is one at most.
    """

    table: Table
    frozen: int = 0

    def __post_init__(self) -> None:
        if self.frozen not in range(5):
            raise ParameterError(f"frozen={self.frozen!r} must be how many columns stay in sight, 0 to 4.")


@dataclass(frozen=True)
class Figure:
    """A picture, and what was computed for it.

    Attributes
    ----------
    svg : str
        A whole SVG document.  The page shows it as an image, so nothing in it is executed or loaded.
    caption : str
    """

    svg: str
    caption: str

    def __post_init__(self) -> None:
        try:
            found = ElementTree.fromstring(self.svg.encode()).tag
        except ElementTree.ParseError as error:
            raise ParameterError(f"svg={self.svg[:40]!r}… is not well-formed ({error}).") from None
        if found != _SVG:
            raise ParameterError(f"svg={self.svg[:40]!r}… is <{found}>; SVG with its xmlns is needed.")


@dataclass(frozen=True)
class Code:
    """Commands, or other text whose lines and spaces count."""

    text: str


@dataclass(frozen=True)
class Fold:
    """Blocks behind a line that opens them."""

    summary: str
    blocks: tuple[Paragraph | Table | BigTable | Code, ...]


#: A :class:`~gbwatt.experiments.table_formats.Table` is a block; the tables of its ``more`` are separate blocks.
Block = Paragraph | Note | Facts | Table | BigTable | Figure | Code | Fold


@dataclass(frozen=True)
class Section:
    """Blocks under a title."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A page before it is written.

    Attributes
    ----------
    title : str
    sections : tuple of Section
    lead : str
        A sentence below the title.
    created : str
        When, as the page shall say it; the same page without it is the same text.

    Examples
    --------
    >>> from gbwatt.report import render
    >>> page = Page("Tea", (Section("Summary", (Paragraph("2 < 3"),)),))
    >>> "2 &lt; 3" in render(page)
    True
    """

    title: str
    sections: tuple[Section, ...]
    lead: str = ""
    created: str = ""

    def with_sections(self, sections: Iterable[Section], before: str | None = None) -> Self:
        """The page with further sections, at its end or before the section of that title."""
        titles = tuple(section.title for section in self.sections)
        if before is not None:
            check_one_of("before", before, titles)
        place = len(titles) if before is None else titles.index(before)
        return replace(self, sections=(*self.sections[:place], *sections, *self.sections[place:]))
