"""Tables and figures of the published rows: every number of them."""

from __future__ import annotations

import csv
import re

import pytest

from tests.golden import doors
from tests.golden.program import RESULTS, ROOT, run, stored

PAGE = ROOT / "docs" / "results.md"
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")
PLACE = re.compile(r"^(<!-- (table|figure):[^\n]*-->\n).*?^(<!-- /\2 -->)$", re.MULTILINE | re.DOTALL)
GEOMETRY = re.compile(r'\s(d|transform|x|y|x1|x2|y1|y2|width|height|viewBox|points|cx|cy|r)="([^"]*)"')


def observe():
    return {"tables": {name: doors.tables(name) for name in doors.experiment_names()}, "claims": doors.claims()}


def agree(found, known, place=""):
    """The same structure, with numbers within 1e-6."""
    if isinstance(known, dict):
        assert list(found) == list(known), place
        for name in known:
            agree(found[name], known[name], f"{place}/{name}")
    elif isinstance(known, list | tuple):
        assert len(found) == len(known), place
        for number, (one, other) in enumerate(zip(found, known, strict=True)):
            agree(one, other, f"{place}/{number}")
    elif isinstance(known, float):
        assert found == pytest.approx(known, rel=0, abs=1e-6), place
    else:
        assert found == known, place


@pytest.mark.parametrize("name", stored("result_tables")["tables"])
def test_numbers_of_a_table(name):
    agree(doors.tables(name), stored("result_tables")["tables"][name])


def test_verdicts_of_the_claims():
    agree(doors.claims(), stored("result_tables")["claims"])


def test_the_command_prints_these_numbers(gbwatt):
    """In CSV: data set, model and setting first, then numbers in the order of the table."""
    left = gbwatt("tables", "theta", "--results", RESULTS, "--format", "csv")
    assert left.code == 0
    (table,) = stored("result_tables")["tables"]["theta"]
    lines = list(csv.reader(left.out.splitlines()))[1:]
    assert [line[1:3] for line in lines] == [line[:2] for line in table]
    for line, known in zip(lines, table, strict=True):
        numbers = [float(text) for text in line[3:] if "." in text]
        assert numbers == pytest.approx([value for value in known[2:] if isinstance(value, float)], abs=0.00501)


def table_numbers(text):
    return [NUMBER.findall(line) for line in text.splitlines() if line.startswith("|")]


def figure_numbers(file):
    found = GEOMETRY.findall(file.read_text(encoding="utf-8"))
    return [float(number) for _, text in found for number in NUMBER.findall(text)]


@pytest.mark.slow
def test_the_page_of_results_is_made_again(tmp_path):
    page = tmp_path / PAGE.name
    empty = PLACE.sub(r"\1\3", PAGE.read_text(encoding="utf-8"))
    assert len(table_numbers(empty)) < len(table_numbers(PAGE.read_text(encoding="utf-8"))) / 2
    page.write_text(empty, encoding="utf-8")
    rows = [word for file in sorted(RESULTS.parent.glob("*.csv")) for word in ("--results", file)]
    left = run("tables", "--fill", page, *rows)
    assert left.code == 0, left.err
    known = sorted(PAGE.parent.glob("results-*.svg"))
    assert {file.name for file in tmp_path.iterdir()} == {PAGE.name, *(file.name for file in known)}
    assert table_numbers(page.read_text(encoding="utf-8")) == table_numbers(PAGE.read_text(encoding="utf-8"))
    for file in known:
        numbers = figure_numbers(file)
        assert len(numbers) > 100
        assert figure_numbers(tmp_path / file.name) == pytest.approx(numbers, abs=1e-2), file.name
