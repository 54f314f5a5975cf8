"""A page as one HTML file, which loads nothing: style, script and pictures are in it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import count

from gbwatt.report import tables
from gbwatt.report.html import Html, element, join
from gbwatt.report.page import BigTable, Block, Code, Facts, Figure, Fold, Note, Page, Paragraph, Section, Table

_ENLARGED = 1.5  # pictures of two columns then fill the page


def render(page: Page) -> str:
    """The HTML of a page: the same page, the same text.

    The page has a Content-Security-Policy that forbids every request, and scripts other than its own; what comes from
    users is escaped besides.
    """
    style, script = (Html(files(__package__).joinpath(name).read_text("utf-8")) for name in ("page.css", "page.js"))
    ids = _Ids()
    named = [(ids.of(section.title), section) for section in page.sections]
    body = element(
        "body",
        element("a", "To the content", href="#content", class_="skip"),
        _contents(named),
        element("main", _header(page), *(_section(name, section, ids) for name, section in named), id="content"),
        element("script", script),
    )
    root = element("html", _head(page.title, style, script), body, lang="en")
    return f"<!doctype html>\n{root}\n"


def _head(title: str, style: Html, script: Html) -> Html:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(script, style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", style),
    )


def policy(script: str, style: str) -> str:
    """Nothing is loaded, but pictures within the page; this script and this style, by their hashes, and no others."""
    return (
        f"default-src 'none'; img-src data:; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ---------------------------------------------------------------------------------------------------------------- parts


class _Ids:
    """Names of elements, each once."""

    def __init__(self) -> None:
        self._used = {"content"}

    def of(self, title: str) -> str:
        """A readable one: ``"all-runs"``, and ``"all-runs-2"`` for the next."""
        word = re.sub(r"[^\w]+", "-", title.casefold()).strip("-")[:60] or "part"
        name = next(name for n in count(1) if (name := word if n == 1 else f"{word}-{n}") not in self._used)
        self._used.add(name)
        return name


def _contents(named: Sequence[tuple[str, Section]]) -> Html:
    links = (element("li", element("a", section.title, href=f"#{name}")) for name, section in named)
    return element("nav", element("ul", *links), aria_label="Contents")


def _header(page: Page) -> Html:
    lead = element("p", page.lead, class_="lead") if page.lead else ""
    created = element("p", page.created, class_="created") if page.created else ""
    return element("header", element("h1", page.title), lead, created)


def _section(name: str, section: Section, ids: _Ids) -> Html:
    blocks = (_block(block, ids) for block in section.blocks)
    return element("section", element("h2", section.title, id=name), *blocks, aria_labelledby=name)


def _block(block: Block, ids: _Ids) -> Html:
    match block:
        case Paragraph():
            return element("p", block.text)
        case Note():
            return element("p", block.text, class_="note", role="note")
        case Facts():
            return element("dl", *_facts(block))
        case Table():
            return join(tables.whole(table, ids.of(table.title)) for table in block.tables)
        case BigTable():
            return tables.searchable(block.table, ids.of(block.table.title), block.frozen)
        case Figure():
            return _figure(block)
        case Code():
            return element("pre", element("code", block.text), tabindex="0")
        case Fold():
            return element("details", element("summary", block.summary), *(_block(one, ids) for one in block.blocks))


def _facts(block: Facts) -> Iterator[Html]:
    for name, text in block.pairs:
        lines = (element("dd", line) for line in text.splitlines() or [""])
        yield element("div", element("dt", name), *lines)


def _figure(block: Figure) -> Html:
    """A picture as an image, so that its names, its style and whatever is in it stay its own."""
    source = f"data:image/svg+xml;base64,{base64.b64encode(block.svg.encode()).decode()}"
    image = element("img", src=source, alt=block.caption, width=_width(block.svg))
    return element("figure", element("div", image, class_="picture"), element("figcaption", block.caption))


def _width(svg: str) -> str | None:
    """Pixels of a picture that was drawn for print: larger, as screens are read from further away than paper."""
    found = re.search(r'<svg\b[^>]*?\swidth="([\d.]+)pt"', svg)
    return None if found is None else f"{_ENLARGED * float(found[1]) / 0.75:.0f}"
