"""Tables as HTML."""

from __future__ import annotations

import re

import pytest

from gbwatt.report import BigTable, Column, Page, Section, Table, render
from gbwatt.report.page import SHOWN

from .reading import read


def whole(block):
    """The element of a table on a page."""
    page = render(Page("p", (Section("s", (block,)),)))
    return page[page.index("<figure") : page.index("</figure>") + len("</figure>")]


def searchable(table, frozen=0):
    return whole(BigTable(table, frozen))


def of(values, kind="text", name="value"):
    return Table(
        "Title", (Column("name"), Column(name, kind=kind)), tuple((f"row {i}", v) for i, v in enumerate(values))
    )


def cells(page, tag="td"):
    return re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", page)


def texts(page):
    """The rows that the script of a page has."""
    (columns,) = read(page).data
    return [tuple(column["texts"][at] for column, at in zip(columns, line, strict=True)) for line in _lines(columns)]


def _lines(columns):
    return zip(*(column["at"] for column in columns), strict=True)


@pytest.mark.parametrize(
    ("value", "kind", "written"),
    [
        (67.2727, "percent", "67.27"),
        (-0.5, "difference", "-0.50"),
        (0.00001, "p", "&lt; 0.001"),
        (7, "text", "7"),
        (None, "percent", ""),
    ],
)
def test_values_are_written_as_in_all_tables(value, kind, written):
    assert cells(whole(of([value], kind))) == [written]


def test_numbers_stand_right_and_words_left():
    assert "number" in whole(of([1.0, None, 22.5], "percent"))
    assert "number" not in whole(of(["7", "none"]))


def test_data_sets_stand_below_each_other_under_their_names():
    header = (
        Column("model"),
        Column("ours", "one", "percent"),
        Column("±", "one", "percent", True),
        Column("ours", "two"),
    )
    page = whole(Table("T", header, (("MAtt", 61.5, 2.0, None), ("SPDNet", None, None, "none"))))
    assert page.count("<tbody>") == 2
    assert re.findall(r'scope="rowgroup"[^>]*>(\w+)', page) == ["one", "two"]
    assert "61.50" in page
    assert "± 2.00" in read(page).text
    assert page.count("<tr>") == 3  # the head, and a line for each that has something


def test_a_big_table_shows_its_first_rows_and_has_all():
    page = searchable(of([float(i) for i in range(5 * SHOWN)], "percent"))
    assert page.count("<tr>") == 1 + SHOWN
    assert texts(page) == [(f"row {i}", f"{i}.00") for i in range(5 * SHOWN)]
    assert f"{5 * SHOWN} of {5 * SHOWN} rows" in page
    assert f"The first {SHOWN} of {5 * SHOWN} rows" in page


def test_notes_stand_before_a_big_table_and_after_a_small_one():
    noted = Table("T", (Column("name"),), (("a",),), ("What a name is.",))
    assert searchable(noted).index("What a name is.") < searchable(noted).index("<table")
    assert whole(noted).index("What a name is.") > whole(noted).index("</table>")


def test_only_longer_texts_may_be_broken_into_lines():
    page = whole(of(["x" * 20, "y" * 21, "z" * 57]))
    assert re.findall(r'<td(?: class="(\w+)")?>(\w)', page) == [("", "x"), ("wraps", "y"), ("long", "z")]


def test_columns_that_stay_are_told_to_the_script():
    assert read(searchable(of(["a"]), 2)).all("figure")[0]["data-frozen"] == "2"
    assert "data-frozen" not in searchable(of(["a"]))


def test_a_small_one_needs_no_script():
    page = searchable(of([1.0, 2.0], "percent"))
    assert "noscript" not in page
    assert cells(page) == ["1.00", "2.00"]


def test_repeated_texts_are_written_once():
    page = searchable(of(["the same long text"] * 400))
    assert page.count("the same long text") == SHOWN + 1


def test_no_text_ends_the_data_of_a_page():
    text = "</script><!-- <script> \u2028 &amp; \\u003c"
    page = searchable(of([text]))
    assert texts(page) == [("row 0", text)]
    assert len(read(page).data) == 1


def test_every_column_can_be_sorted_by_a_button():
    page = searchable(of(["a"]))
    assert re.findall(r'<th scope="col"[^>]*aria-sort="none"><button type="button">(\w+)</button></th>', page) == [
        "name",
        "value",
    ]


def test_the_script_is_told_which_columns_are_numbers():
    for values, number in ((["1.5", "", "< 0.001", "nan", "-inf"], True), (["1.5", "none"], False), (["", ""], False)):
        (columns,) = read(searchable(of(values))).data
        assert columns[1]["number"] is number
