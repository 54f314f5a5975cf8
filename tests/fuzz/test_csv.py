"""Damaged and hostile CSV files: refused, or equal to what was exported; whatever is read makes a report."""

from __future__ import annotations

import json
import random

import pytest

from gbwatt.experiments.row_io import COLUMNS, KINDS, flatten, read_csv, write_csv
from gbwatt.experiments.store import Store
from gbwatt.report import render, report_of_rows
from tests.experiments.rows import make
from tests.fuzz.damage import Tally, damaged
from tests.fuzz.test_stores import row

pytestmark = pytest.mark.fuzz


@pytest.fixture
def rows():
    return [row(seed) for seed in range(12)]


@pytest.fixture
def file(tmp_path, rows):
    write_csv(tmp_path / "rows.csv", map(flatten, rows))
    assert read_csv(tmp_path / "rows.csv") == rows
    return tmp_path / "rows.csv"


def imported(file):
    """The rows of a file, which also enter a store, all or none."""
    store = Store(file.with_suffix(".sqlite"))
    try:
        count = store.import_csv(file)
    except Exception:
        assert len(store) == 0
        raise
    finally:
        found = store.rows()
        store.path.unlink()
    assert count == len(found)
    return sorted(found)


def test_damaged_files_are_refused_or_equal(file, rows, tmp_path):
    tally = Tally()
    for number, (case, changed) in enumerate(damaged(file.read_bytes(), 150, seed=1)):
        path = tmp_path / f"damaged-{number}.csv"
        path.write_bytes(changed)
        tally.add(case, lambda path=path: imported(path), lambda found: found == sorted(rows), plausible)
        path.unlink()
    tally.finish(at_least=150)


def plausible(found):
    """CSV has no checksum: rows may be missing, or have other values, but each must be one that a run could leave."""
    return bool(render(report_of_rows(found, []))) if found else True


#: What a hostile file has in the place of a value.
ANYTHING = [
    *(None, True, False, 0, -1, 1, 2, 1.5, -0.0, 1e308, 10**30, "", " ", "a", "nan", "\x00", "\x1b[2J", "<b>", "=1+1"),
    *([], {}, [[]], [1], ["a"], [[1, 2]], [[1, 2], [3, 4]], {"a": 1}, {"a": []}, {"a": {"n": 1}}, {"before": {}}),
    *({"test": 1}, {"train_loss": [1]}, {"": ""}, {"a": "b"}, [{}], [{"step": 1}], [None], [[None]]),
]
TEXTS = ["NaN", "Infinity", "-Infinity", "1e999", "-0", "[" * 50 + "]" * 50, '{"a":' * 30 + "1" + "}" * 30, "9" * 5000]


def test_hostile_values_are_refused_or_make_a_report(tmp_path):
    rng, tally = random.Random(2), Tally()
    for number in range(200):
        path, name = tmp_path / f"hostile-{number}.csv", rng.choice(COLUMNS)
        value = rng.choice(TEXTS) if rng.random() < 0.2 else written(rng.choice(ANYTHING), KINDS[name])
        cells = dict(zip(COLUMNS, flatten(row(number)), strict=True))
        write(path, [{**cells, name: value}])
        tally.add(f"{number}: {name}={value!r:.60}", lambda path=path: imported(path), reported)
        path.unlink()
    tally.finish(at_least=200)
    assert tally.counts["refused"] > 100
    assert tally.counts["same"] > 10


def test_hostile_runs_are_refused_or_make_a_report(tmp_path):
    """Values in the run of a row, with the key that belongs to it wherever there is one."""
    from gbwatt.experiments.runs import Run

    rng, tally = random.Random(3), Tally()
    for number in range(150):
        path, good = tmp_path / f"hostile-{number}.csv", make(number, accuracy=0.5)
        name = rng.choice([*good.run, "other"])
        run = {**good.run, name: rng.choice(ANYTHING)}
        try:
            key = Run.from_dict(run).key
        except TypeError:
            key = good.key
        write(path, [{"key": key, "status": "done", "run": json.dumps(run), "accuracy": "0.5"}])
        tally.add(f"{number}: run.{name}={run[name]!r:.60}", lambda path=path: imported(path), reported)
        path.unlink()
    tally.finish(at_least=150)
    assert tally.counts["refused"] > 80
    assert tally.counts["same"] > 10


def written(value, kind):
    """A value in a cell: JSON where the column has it, else text."""
    return value if isinstance(value, str) and kind is str else None if value is None else json.dumps(value)


def reported(found):
    """Whether rows make a page, and come back from another file as they are."""
    return bool(render(report_of_rows(found, [])))


def write(path, lines):
    """A CSV file of texts, whatever they are."""
    names = list(lines[0])

    def field(value):
        return "" if value is None else '"' + str(value).replace('"', '""') + '"'

    text = ",".join(names) + "\n" + "".join(",".join(field(line[name]) for name in names) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
