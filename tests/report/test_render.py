"""Pages as HTML: complete in themselves, escaped, accessible, the same every time."""

from __future__ import annotations

import base64
import hashlib
import re
import tomllib
from pathlib import Path

import pytest

import gbwatt.report
from gbwatt.errors import ParameterError
from gbwatt.report import BigTable, Code, Column, Facts, Figure, Fold, Note, Page, Paragraph, Section, Table, render
from gbwatt.report.page import clean

from .reading import beyond, read

EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>]]>--></style>"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle r="4"/></svg>'


def table(text="a", n=1):
    return Table(f"Table of {text}", (Column(text), Column("score", kind="percent")), ((text, 50.0),) * n, (text,))


def whole(text="a"):
    """A page with a block of every kind, and a text in every place."""
    fold = Fold(text, (Paragraph(text), Code(text), table(text), BigTable(table(text))))
    blocks = (Paragraph(text), Note(text), Facts(((text, text),)), table(text), BigTable(table(text, 120)))
    return Page(text, (Section(text, (*blocks, Figure(SVG, text), Code(text), fold)), Section(text, ())), text, text)


def test_text_in_any_place_stays_text():
    page = render(whole(EVIL))
    found = read(page)
    plain = read(render(whole("a")))
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in plain.tags]  # no element more
    assert found.text.count(EVIL) >= 20
    assert found.scripts == plain.scripts
    assert page.count("<script>") == 1


def test_no_element_has_a_handler_or_a_style_of_its_own():
    names = {name for _, attributes in read(render(whole(EVIL))).tags for name in attributes}
    assert names
    assert not {name for name in names if name.startswith("on") or name == "style"}


def test_a_page_loads_nothing():
    page = render(whole("see url(http://example.org/a.png)"))
    assert beyond(page) == []
    assert read(page).all("link") == []


def test_what_would_be_loaded_is_found():
    """The check that others rely on sees images, links, styles and pictures within pictures."""
    inner = base64.b64encode(SVG.replace("<circle", '<image href="https://a/b.png"/><circle').encode()).decode()
    page = (
        "<html><style>@import x.css; a {background: url(https://c)}</style><a href='https://d'></a>"
        f"<img src='data:image/svg+xml;base64,{inner}'></html>"
    )
    assert sorted(beyond(page)) == ["https://a/b.png", "https://c", "https://d", "x.css;"]


def test_the_policy_allows_the_script_and_the_style_of_the_page_and_nothing_else():
    found = read(render(whole()))
    (policy,) = [meta["content"] for meta in found.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for kind, (text,) in {"script-src": found.scripts, "style-src": found.styles}.items():
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[kind] == f"'sha256-{digest}'"


def test_the_same_page_is_the_same_text_and_only_the_time_differs():
    assert render(whole()) == render(whole())
    one, other = (render(Page("a", (), created=when)) for when in ("Monday", "Tuesday"))
    assert one.replace("Monday", "Tuesday") == other


def test_names_of_elements_are_unique_and_links_lead_to_them():
    found = read(render(whole()))
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids)) > 5
    links = [a["href"].removeprefix("#") for a in found.all("a")]
    labels = [value for _, a in found.tags for name, value in a.items() if name in ("for", "aria-labelledby")]
    assert links
    assert labels
    assert set(links) | set(labels) <= set(ids)


def test_tables_say_what_their_cells_belong_to_and_pictures_what_they_show():
    found = read(render(whole("speech")))
    assert all(th["scope"] in ("col", "row", "rowgroup") for th in found.all("th"))
    assert all(img["alt"] == "speech" for img in found.all("img"))
    assert len(found.all("table")) == len(found.all("figure")) - 1 == 4
    assert len(found.all("figcaption")) == 5
    assert found.all("html")[0]["lang"] == "en"


def test_a_picture_is_an_image_so_that_nothing_in_it_runs():
    svg = SVG.replace("<circle", "<script>alert(1)</script><circle")
    page = render(Page("a", (Section("b", (Figure(svg, "c"),)),)))
    assert "alert(1)" not in page
    assert read(page).pictures == [svg]


def test_a_picture_drawn_for_print_is_enlarged_and_another_left_as_it_is():
    sized = SVG.replace("<svg ", '<svg width="504pt" height="90pt" ')
    (large,), (plain,) = (read(render(Page("a", (Section("b", (Figure(s, "c"),)),)))).all("img") for s in (sized, SVG))
    assert large["width"] == "1008"  # 504 pt are 672 pixels
    assert "width" not in plain


@pytest.mark.parametrize("svg", ["", "<svg/>", "<p>text</p>", "<svg xmlns='http://www.w3.org/2000/svg'><g></svg>", "a"])
def test_what_is_no_picture_is_refused(svg):
    with pytest.raises(ParameterError, match="svg="):
        Figure(svg, "caption")


def test_characters_that_no_page_can_have_are_marked():
    assert clean("a\x00b\ud800\x1b[31m\tc\n") == "a\ufffdb\ufffd\ufffd[31m\tc\n"
    render(whole("\x00\ud83d")).encode()


def test_a_quote_does_not_end_an_attribute():
    (image,) = read(render(Page("a", (Section("b", (Figure(SVG, '" onload="x'),)),)))).all("img")
    assert image["alt"] == '" onload="x'
    assert "onload" not in image


def test_templates_are_part_of_the_package():
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    patterns = declared["tool"]["setuptools"]["package-data"]["gbwatt.report"]
    package = Path(gbwatt.report.__file__).parent
    others = {file for file in package.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
    assert others
    assert others == {file for pattern in patterns for file in package.glob(pattern)}


def test_sections_are_added_at_the_end_or_before_another():
    page = Page("a", (Section("one", ()), Section("two", ())))
    more = [Section("new", ())]
    assert [s.title for s in page.with_sections(more).sections] == ["one", "two", "new"]
    assert [s.title for s in page.with_sections(more, before="two").sections] == ["one", "new", "two"]
    with pytest.raises(ParameterError, match="before='three' is not known"):
        page.with_sections(more, before="three")


@pytest.mark.parametrize("frozen", [-1, 5])
def test_only_so_many_columns_can_stay_in_sight(frozen):
    with pytest.raises(ParameterError, match=f"frozen={frozen} must be"):
        BigTable(table(), frozen)


def test_a_table_with_others_is_followed_by_them():
    both = Table("First", (Column("a"),), (("1",),), more=(table("second"),))
    captions = re.findall(r"<figcaption[^>]*>([^<]*)", render(Page("p", (Section("s", (both,)),))))
    assert captions == ["First", "Table of second"]
