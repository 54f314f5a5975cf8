"""Tables as HTML: whole, or a first part with all values beside it for the script of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gbwatt.experiments.table_formats import Column, Table, Value, show
from gbwatt.report.html import Html, clean, element, join

SHOWN = 50  # lines of a big table at a time; page.js has it from the page
LONG = 56  # letters from which on a text takes a wide column, there as well
WRAPS = 20  # letters from which on it may be broken into lines at all

_NUMBER = re.compile(r"< [\d.]+|[-+]?[\d.]+(e[-+]?\d+)?|[-+]?inf|nan")
_JSON = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"})


def whole(table: Table, name: str) -> Html:
    """A table with all its lines; ``name`` is unique in the page."""
    sections = list(_sections(table))
    header = sections[0][1].header
    numbers = _numeric([line for _, part in sections for line in _texts(part)], len(header))
    bodies = (_body(title, part, numbers) for title, part in sections)
    head = _head(header, numbers, [column.name for column in header])
    box = _box(element("table", head, *bodies, aria_labelledby=name), name)
    return element("figure", _caption(table, name), box, _notes(table), class_="table")


def searchable(table: Table, name: str, frozen: int = 0) -> Html:
    """A table that can be sorted and filtered; without scripts, its first lines.  ``frozen`` columns do not scroll."""
    table = table.stacked() if table.groups else table
    table = replace(table, header=tuple(replace(column, spread=False) for column in table.header))  # each ± its own
    texts = list(_texts(table))
    numbers = _numeric(texts, len(table.header))
    buttons = [element("button", column.name, type="button") for column in table.header]
    rows = (_row([(text, "") for text in line], numbers) for line in texts[:SHOWN])
    drawn = element("table", _head(table.header, numbers, buttons), element("tbody", *rows), aria_labelledby=name)
    data = element("script", _data(texts, numbers), type="application/json")
    after = join([_without_script(len(texts)), data])
    limits = {"data_shown": str(SHOWN), "data_long": str(LONG), "data_wraps": str(WRAPS)}
    return element(
        "figure",
        *(_caption(table, name), _notes(table), _controls(name, len(texts)), _box(drawn, name), after),
        class_="table",
        **limits,
        data_frozen=str(frozen) if frozen else None,
    )


# ---------------------------------------------------------------------------------------------------------------- parts


def _caption(table: Table, name: str) -> Html:
    return element("figcaption", table.title, id=name)


def _notes(table: Table) -> str:
    return element("ul", *(element("li", note) for note in table.notes), class_="notes") if table.notes else ""


def _box(drawn: Html, name: str) -> Html:
    """A table in a box of its own, in which it scrolls if it is wide."""
    return element("div", drawn, class_="scroll", role="region", aria_labelledby=name, tabindex="0")


_FILTER = "rows that have all these words"


def _controls(name: str, count: int) -> Html:
    """What the script of the page brings to life, hidden until then."""
    field = f"{name}-filter"
    return element(
        "div",
        element("label", "Filter", for_=field),
        element("input", type="search", id=field, autocomplete="off", spellcheck="false", placeholder=_FILTER),
        element("output", f"{count} of {count} rows", for_=field),
        element("span", "", class_="range"),
        element("button", "Previous", type="button", data_step="-1"),
        element("button", "Next", type="button", data_step="1"),
        class_="controls",
        hidden=True,
    )


def _without_script(count: int) -> str:
    if count <= SHOWN:
        return Html("")
    return element("noscript", element("p", f"The first {SHOWN} of {count} rows; the others need scripts."))


def _head(header: Sequence[Column], numbers: Sequence[bool], names: Sequence[str]) -> Html:
    cells = (
        element("th", name, scope="col", class_=_class(number), aria_sort="none" if isinstance(name, Html) else None)
        for column, name, number in zip(header, names, numbers, strict=True)
        if not column.spread
    )
    return element("thead", element("tr", *cells))


def _body(title: str, part: Table, numbers: Sequence[bool]) -> Html:
    """Lines of a data set, under its name."""
    width = sum(not column.spread for column in part.header)
    first = element("tr", element("th", title, scope="rowgroup", colspan=str(width)), class_="group") if title else ""
    kept = [number for column, number in zip(part.header, numbers, strict=True) if not column.spread]
    return element("tbody", first, *(_row(_joined(part.header, line), kept) for line in _texts(part)))


def _row(cells: Sequence[tuple[str, str]], numbers: Sequence[bool]) -> Html:
    """A line; its first cell says what it is."""
    (name, _), *others = cells
    written = [
        element(
            "td", text, element("span", f" ± {spread}", class_="spread") if spread else "", class_=_class(number, text)
        )
        for (text, spread), number in zip(others, numbers[1:], strict=True)
    ]
    return element("tr", element("th", name, scope="row", class_=_class(numbers[0], name)), *written)


def _class(number: bool, text: str = "") -> str | None:
    """Numbers to the right; only longer texts are broken into lines."""
    return "number" if number else "long" if len(text) > LONG else "wraps" if len(text) > WRAPS else None


# --------------------------------------------------------------------------------------------------------------- values


def _sections(table: Table) -> Iterator[tuple[str, Table]]:
    """The lines of each data set, with its name; all lines, if there are no data sets."""
    if not table.groups:
        yield "", table
        return
    stacked = table.stacked()
    for group in table.groups:
        lines = tuple(line[1:] for line in stacked.lines if line[0] == group)
        yield group, Table(table.title, stacked.header[1:], lines)


def _texts(table: Table) -> Iterator[list[str]]:
    """Values as they are written."""
    for line in table.lines:
        yield [_text(value, column) for value, column in zip(line, table.header, strict=True)]


def _text(value: Value | int, column: Column) -> str:
    return str(value) if isinstance(value, int) else show(value, column.kind)


def _joined(header: Sequence[Column], texts: Sequence[str]) -> list[tuple[str, str]]:
    """Each text with its ±."""
    cells: list[tuple[str, str]] = []
    for column, text in zip(header, texts, strict=True):
        if column.spread and cells:
            cells[-1] = (cells[-1][0], text)
        else:
            cells.append((text, ""))
    return cells


def _numeric(lines: Sequence[Sequence[str]], width: int) -> list[bool]:
    """Which columns have numbers and nothing else."""
    return [_all_numbers([line[place] for line in lines if line[place]]) for place in range(width)]


def _all_numbers(texts: Sequence[str]) -> bool:
    return bool(texts) and all(_NUMBER.fullmatch(text) for text in texts)


def _data(lines: Sequence[Sequence[str]], numbers: Sequence[bool]) -> Html:
    """All values for the script: for each column its different texts, and for each line which of them it has."""
    columns = []
    for place, number in enumerate(numbers):
        texts = [clean(line[place]) for line in lines]
        known = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        columns.append({"number": number, "texts": list(known), "at": [known[text] for text in texts]})
    return Html(json.dumps(columns, ensure_ascii=False, separators=(",", ":")).translate(_JSON))
