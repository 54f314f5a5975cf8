"""Damaged stores: every one is refused, or has the rows that were written; none is changed by the attempt."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import pytest

from gbwatt.experiments.store import Store
from tests.experiments.rows import make
from tests.fuzz.damage import Tally, damaged

pytestmark = pytest.mark.fuzz


def row(seed):
    """A row as runs leave them, of a few kilobytes."""
    rng = random.Random(seed)
    return make(
        seed,
        "failed" if seed % 10 == 9 else "done",
        accuracy=0.5,
        kappa=rng.random(),
        loss=rng.random(),
        confusion=[[1, 2], [3, 4]],
        per_class={name: {"recall": rng.random(), "n": n} for name, n in (("left", 3.0), ("right", 7.0))},
        best_epoch=seed % 60 + 1,
        epochs=60,
        history={"train_loss": [rng.random() for _ in range(60)], "valid_loss": [rng.random() for _ in range(60)]},
        versions={"python": "3.11"},
        finished="2025-01-01T00:00:00+00:00",
        traceback="Traceback:\n  why\n" if seed % 10 == 9 else None,
    )


@pytest.fixture
def store(tmp_path):
    found = Store(tmp_path / "results.sqlite")
    for seed in range(60):
        found.add(row(seed))
    return found


def opened(path):
    """All that can be read of a store, by all doors."""
    store = Store(path, create=False)
    rows = store.rows()
    assert store.keys() == {one.key for one in rows}
    assert len(store) == len(rows)
    return rows


def test_damaged_stores_are_refused_or_equal(store, tmp_path):
    content, rows, tally = store.path.read_bytes(), store.rows(), Tally()
    damage = [*damaged(content, 160, seed=1), *in_values(content, 40, seed=2)]
    for number, (case, changed) in enumerate(damage):
        path = tmp_path / f"damaged-{number}.sqlite"
        path.write_bytes(changed)
        tally.add(case, lambda path=path: opened(path), lambda found: found == rows)
        assert path.read_bytes() == changed, f"{case}: it was changed"
        tally.add(f"{case}, written", lambda path=path: written(path), lambda found: found == [*rows, row(60)])
        path.unlink()
    tally.finish(at_least=400)


def written(path):
    """The rows after one was added; an error leaves the rows that there are."""
    store = Store(path)
    store.add(row(60))
    return store.rows()


def in_values(content, n, seed):
    """Digits that are others than were written, which no structure of the file shows."""
    rng = random.Random(seed)
    digits = [place for place in range(len(content)) if content[place : place + 1].isdigit()]
    for number in range(n):
        changed = bytearray(content)
        place = rng.choice(digits)
        changed[place] = rng.choice([digit for digit in b"0123456789" if digit != changed[place]])
        yield f"{number}: digit at {place}", bytes(changed)


def test_damaged_stores_of_older_versions_are_refused_or_have_rows_of_their_runs(store, tmp_path):
    """Rows without checksums may have other values; their structure, types and runs are checked all the same."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE rows DROP COLUMN checksum")
    rows, tally = Store(store.path, create=False).rows(), Tally()
    runs = {one.key: one.run for one in rows}
    for number, (case, changed) in enumerate(damaged(store.path.read_bytes(), 100, seed=3)):
        path = tmp_path / f"damaged-{number}.sqlite"
        path.write_bytes(changed)
        tally.add(
            case,
            lambda path=path: opened(path),
            lambda found: found == rows,
            only_samples=lambda found: {one.key: one.run for one in found} == runs,
        )
        path.unlink()
    tally.finish(at_least=100)


def test_rows_recovered_from_damaged_stores_are_those_that_were_written(store, tmp_path):
    rows, tally, taken = store.rows(), Tally(), 0
    for number, (case, changed) in enumerate(damaged(store.path.read_bytes(), 60, seed=4)):
        path, new = tmp_path / f"damaged-{number}.sqlite", Store(tmp_path / f"new-{number}.sqlite")
        path.write_bytes(changed)
        tally.add(
            case,
            lambda path=path, new=new: new.recover(path),
            lambda _, new=new: all(one in rows for one in new.rows()),
        )
        taken += len(new)
        path.unlink()
    tally.finish(at_least=60)
    assert taken > 20 * len(rows), "many rows are recovered from most of them"
