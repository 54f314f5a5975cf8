"""Rows come back as they were, from a store and from a CSV file, and a damaged file is an error that names the line."""

from __future__ import annotations

import csv
import json
import math
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from gbwatt.errors import InputError
from gbwatt.experiments import store as module
from gbwatt.experiments.row_io import COLUMNS, KINDS, flatten, write_csv
from gbwatt.experiments.runs import STRUCTURED, Run
from gbwatt.experiments.store import Store, StoreError, read_csv
from tests.experiments.rows import full, make

RESULTS = Path(__file__).parents[2] / "results/mamem.csv"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results.sqlite")


def content(path):
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


# ------------------------------------------------------------------------------------------------------------- columns


def test_columns_of_a_version_stay_as_they_are():
    """Stores of this version have these columns: with others, raise VERSION, and read the older stores, too."""
    expected = (
        "key status run accuracy balanced_accuracy kappa auc loss per_class confusion valid_accuracy valid_loss "
        "best_epoch epochs history conditions trials parameters preprocessing seconds seconds_per_epoch versions "
        "finished traceback warnings"
    )
    assert module.VERSION == 1
    assert expected.split() == list(COLUMNS)
    assert {name for name, kind in KINDS.items() if kind in (dict, list)} == STRUCTURED
    assert {name for name, kind in KINDS.items() if kind is int} == {"best_epoch", "epochs", "parameters"}


def test_every_column_comes_back_as_it_was(store, tmp_path):
    row = full()
    assert all(value is not None for value in row)
    store.add(row)
    store.export_csv(tmp_path / "rows.csv")
    for found in (store.get(row.key), *read_csv(tmp_path / "rows.csv")):
        assert found == row
        assert [type(value) for value in found] == [type(value) for value in row]


def test_every_column_may_be_none_or_empty(store, tmp_path):
    rows = [make(0), make(1, "failed", warnings=[], per_class={})]
    for row in rows:
        store.add(row)
    store.export_csv(tmp_path / "rows.csv")
    assert store.rows() == read_csv(tmp_path / "rows.csv") == rows


def test_nan_comes_back_as_nan_and_not_as_none(store, tmp_path):
    row = make(loss=math.nan, history={"valid_loss": [math.nan]})
    store.add(row)
    store.export_csv(tmp_path / "rows.csv")
    for found in (store.get(row.key), *read_csv(tmp_path / "rows.csv")):
        assert math.isnan(found.loss)
        assert math.isnan(found.history["valid_loss"][0])


def test_values_of_numpy_become_plain_ones(store):
    row = make(accuracy=np.float32(0.5), epochs=np.int64(3), confusion=np.eye(2, dtype=int), trials={"n": np.int8(1)})
    store.add(row)
    found = store.get(row.key)
    assert (found.accuracy, found.epochs, found.confusion, found.trials) == (0.5, 3, [[1, 0], [0, 1]], {"n": 1})


def test_text_that_is_no_unicode_is_kept_readable(store):
    row = make(status="failed", traceback="file \udce9.mat", warnings=["\udce9"])
    store.add(row)
    assert store.get(row.key).traceback == r"file \udce9.mat"
    assert store.get(row.key).warnings == ["\udce9"]


@pytest.mark.parametrize(
    "change, said",
    [
        ({"key": ""}, "key"),
        ({"status": "don"}, "Did you mean 'done'"),
        ({"run": None}, "run=None"),
        ({"history": {1: object()}}, "history"),
        ({"accuracy": "good"}, "accuracy='good'"),
        ({"epochs": 2.5}, "epochs=2.5"),
    ],
)
def test_a_row_that_cannot_be_kept_is_refused(store, change, said):
    with pytest.raises(InputError, match=said):
        store.add(make()._replace(**change))
    assert len(store) == 0


def test_a_value_that_was_changed_by_hand_is_an_error_that_names_the_row(store):
    store.add(make())
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("UPDATE rows SET history = '[]'")
    with pytest.raises(StoreError, match=f"row {make().key}: "):
        store.rows()


# ----------------------------------------------------------------------------------------------------------- CSV files


@pytest.fixture
def table(store, tmp_path):
    for seed in range(3):
        store.add(full(seed))
    store.add(make(3, "failed", traceback="Traceback:\n  why\n"))
    store.export_csv(tmp_path / "rows.csv")
    return tmp_path / "rows.csv"


def test_export_and_import_give_equal_stores_and_equal_files(store, table, tmp_path):
    other = Store(tmp_path / "other.sqlite")
    assert other.import_csv(table) == 4
    assert other.import_csv(table) == 0
    assert other.rows() == store.rows() == read_csv(table)
    other.export_csv(tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == table.read_bytes()


def test_a_new_row_is_one_more_record_in_the_file(store, tmp_path):
    for seed in (1, 3):
        store.add(make(seed))
    store.export_csv(tmp_path / "rows.csv")
    before = (tmp_path / "rows.csv").read_text().splitlines()
    store.add(make(2))
    store.export_csv(tmp_path / "rows.csv")
    after = (tmp_path / "rows.csv").read_text().splitlines()
    assert before == after[:2] + after[3:]
    assert make(2).key in after[2]


def test_other_programs_read_the_file(table):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(table)
    assert list(frame.columns) == list(COLUMNS)
    assert frame.accuracy.tolist()[:3] == pytest.approx([0.3] * 3)
    assert math.isnan(frame.accuracy[3])
    assert frame.traceback[3] == "Traceback:\n  why\n"


def test_an_export_that_fails_leaves_the_old_file(store, table, monkeypatch):
    before = table.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StoreError, match=r"rows\.csv cannot be written: No space left.*not changed"):
        store.export_csv(table)
    assert table.read_bytes() == before
    assert {file.name for file in table.parent.iterdir()} == {"rows.csv", "results.sqlite"}
    with pytest.raises(StoreError, match="cannot be written"):
        store.export_csv(table / "below a file.csv")


def test_columns_in_another_order_and_older_files_are_read(tmp_path):
    path = tmp_path / "rows.csv"
    row = make(1, accuracy=0.5)
    run = json.dumps(row.run).replace('"', '""')
    path.write_bytes(f'\ufeffstatus,accuracy,key,run\r\ndone,0.5,{row.key},"{run}"\r\n'.encode())
    assert read_csv(path) == [row]


DAMAGES = {
    "cut off in a row": (lambda text: text[:-20], r"line \d+"),
    "cut off before the end of the last line": (lambda text: text[:-1], "in the middle of a row"),
    "cut off in quotes": (lambda text: text[: text.index(b"Traceback:\n") + 11], "not valid CSV"),
    "empty": (lambda text: b"", "line 1: no column 'key'"),
    "no header": (lambda text: text.split(b"\n", 1)[1], "line 1"),
    "column unknown": (lambda text: text.replace(b",auc,", b",acu,", 1), "line 1: column 'acu' is unknown"),
    "column twice": (lambda text: text.replace(b",auc,", b",loss,", 1), "line 1: column 'loss' is repeated"),
    "too many fields": (lambda text: text[:-1] + b",1\n", "26 fields, but the header has 25"),
    "no JSON": (lambda text: text[:-1] + b"[\n", "warnings is '\\['"),
    "JSON of another type": (lambda text: text[:-1] + b"{}\n", "warnings is '{}', which is not a list"),
    "no number": (lambda text: text.replace(b",0.30000000000000004,", b",high,", 1), "line 2: accuracy is 'high'"),
    "no status": (lambda text: text.replace(b",failed,", b",fine,"), "status is 'fine'"),
    "no key": (lambda text: text.replace(make(3).key.encode(), b""), "key is empty"),
    "row twice": (lambda text: text + text[text.index(b"\n" + make(3).key.encode()) + 1 :], "is also in line"),
    "no text": (lambda text: text.replace(b"  why", b"\xff\xfe"), "not UTF-8 text"),
    "marks of a merge": (lambda text: text + b"<<<<<<< HEAD\n", "1 fields"),
    "a quote too many": (lambda text: text.replace(b",failed,", b',fai"led",'), "status is 'fai"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_import_of_a_damaged_file_changes_nothing(table, tmp_path, damage):
    spoil, said = DAMAGES[damage]
    spoilt = spoil(table.read_bytes())
    assert spoilt != table.read_bytes()
    table.write_bytes(spoilt)
    other = Store(tmp_path / "other.sqlite")
    other.add(make(99))
    before = content(other.path)
    with pytest.raises(StoreError, match=rf"rows\.csv, line \d+: .*{said}|rows\.csv, {said}"):
        other.import_csv(table)
    with pytest.raises(StoreError, match="line"):
        read_csv(table)
    assert content(other.path) == before


def test_the_line_of_an_error_counts_lines_in_quotes(table):
    text = table.read_bytes().replace(b",failed,", b",fine,")
    table.write_bytes(text)
    line = text[: text.index(b",fine,")].count(b"\n") + 1
    with pytest.raises(StoreError, match=f"line {line}: "):
        read_csv(table)


def test_a_missing_table_is_an_error_that_names_it(store, tmp_path):
    with pytest.raises(StoreError, match=r"rows\.csv cannot be read: No such file"):
        store.import_csv(tmp_path / "rows.csv")


def test_thousands_of_rows_are_found_by_their_keys_and_survive_export(store, tmp_path):
    rows = [make(seed, accuracy=seed / 5000, history={"valid_loss": [seed / 3]}) for seed in range(5000)]
    assert store._add_rows(map(module.flatten, rows), "here") == 5000
    assert len(store) == len(store.keys()) == 5000
    assert store.rows(row.key for row in rows) == store.rows() == rows
    store.export_csv(tmp_path / "rows.csv")
    assert Store(tmp_path / "other.sqlite").import_csv(tmp_path / "rows.csv") == 5000
    assert Store(tmp_path / "other.sqlite").rows() == rows
    assert Store(tmp_path / "third.sqlite").merge(store.path) == 5000
    assert store.forget(row.key for row in rows) == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda row: row._replace(key="0" * 32), "not that of its run"),
        (lambda row: row._replace(run={**row.run, "seed": 99}), "not that of its run"),
        (lambda row: row._replace(run={"seed": 1}), "run.dataset is missing"),
        (lambda row: row._replace(accuracy=22.0), "accuracy is 22.0, but must be less than or equal to 1"),
        (lambda row: row._replace(auc=math.nan), "auc is nan, but must be"),
    ],
)
def test_rows_that_cannot_be_are_not_imported(changed, said, store, tmp_path):
    write_csv(tmp_path / "rows.csv", [flatten(make(7)), flatten(changed(make(8, accuracy=0.5)))])
    with pytest.raises(StoreError, match=f"line 3: .*{said}"):
        store.import_csv(tmp_path / "rows.csv")
    assert len(store) == 0


def run_of(row, **changes):
    """The row of another run, with the key of that."""
    run = {**row.run, **changes}
    try:
        return row._replace(run=run, key=Run.from_dict(run).key)
    except TypeError:
        return row._replace(run=run)


def of_class(**values):
    return {"left": {"recall": 0.5, "precision": 0.5, "n": 10.0, **values}}


HOSTILE = {
    "run": [
        lambda row: row._replace(run={"seed": 1}),
        lambda row: run_of(row, dataset=7),
        lambda row: run_of(row, dataset=" "),
        lambda row: run_of(row, subject="1"),
        lambda row: run_of(row, subject=-1),
        lambda row: run_of(row, subject=1.5),
        lambda row: run_of(row, subject=True),
        lambda row: run_of(row, seed=None),
        lambda row: run_of(row, model=["gbwatt"]),
        lambda row: run_of(row, data=3),
        lambda row: run_of(row, split=-1),
        lambda row: run_of(row, options=[]),
        lambda row: run_of(row, options={"theta": math.inf}),
        lambda row: run_of(row, training="fast"),
        lambda row: run_of(row, fraction=2),
        lambda row: run_of(row, noise=-1.0),
        lambda row: run_of(row, noise=math.nan),
        lambda row: run_of(row, noisy_training="no"),
        lambda row: run_of(row, other=1),
    ],
    "key": [lambda row: row._replace(key="0" * 32), lambda row: row._replace(run={**row.run, "seed": 99})],
    "accuracy": [lambda row: row._replace(accuracy=22.0), lambda row: row._replace(accuracy=-math.inf)],
    "balanced_accuracy": [lambda row: row._replace(balanced_accuracy=1.5)],
    "kappa": [lambda row: row._replace(kappa=-7.0)],
    "auc": [lambda row: row._replace(auc=math.nan)],
    "loss": [lambda row: row._replace(loss=-3.0)],
    "per_class": [
        lambda row: row._replace(per_class={"left": 3}),
        lambda row: row._replace(per_class=of_class(recall="good")),
        lambda row: row._replace(per_class=of_class(precision=7)),
        lambda row: row._replace(per_class=of_class(n=-1)),
        lambda row: row._replace(per_class=of_class(n=math.inf)),
        lambda row: row._replace(per_class=of_class(other=1)),
        lambda row: row._replace(confusion=[[3]], per_class=of_class()),
        lambda row: row._replace(confusion=[[3, 0], [0, 3]], per_class=of_class()),
    ],
    "confusion": [
        lambda row: row._replace(confusion=[1, 2]),
        lambda row: row._replace(confusion=[[1, 2]]),
        lambda row: row._replace(confusion=[[1, -2], [0, 1]]),
        lambda row: row._replace(confusion=[[1, 0.5], [0, 1]]),
        lambda row: row._replace(confusion=[["1", 0], [0, 1]]),
        lambda row: row._replace(confusion=[[5, 0], [0, 5]], trials={"test": 11}),
        lambda row: row._replace(confusion=[[5, 0], [0, 5]], accuracy=0.5),
    ],
    "valid_accuracy": [lambda row: row._replace(valid_accuracy=1.01)],
    "valid_loss": [lambda row: row._replace(valid_loss=-math.inf)],
    "best_epoch": [lambda row: row._replace(best_epoch=-1), lambda row: row._replace(best_epoch=9, epochs=8)],
    "epochs": [lambda row: row._replace(epochs=-1)],
    "history": [
        lambda row: row._replace(history={"train_loss": 3}),
        lambda row: row._replace(history={"train_loss": ["a"]}),
        lambda row: row._replace(history={"train_loss": [None]}),
        lambda row: row._replace(history={"train_loss": [1.0]}, epochs=2),
    ],
    "conditions": [
        lambda row: row._replace(conditions={"before": 3}),
        lambda row: row._replace(conditions={"between": {"share": 0.5}}),
        lambda row: row._replace(conditions={"before": {"share": 50}}),
        lambda row: row._replace(conditions={"before": {"median": "large"}}),
    ],
    "trials": [
        lambda row: row._replace(trials={"test": -1}),
        lambda row: row._replace(trials={"test": "many"}),
        lambda row: row._replace(trials={"exam": 1}),
    ],
    "parameters": [lambda row: row._replace(parameters=-1)],
    "preprocessing": [lambda row: row._replace(preprocessing=["band"])],
    "seconds": [lambda row: row._replace(seconds=-1.0), lambda row: row._replace(seconds=math.inf)],
    "seconds_per_epoch": [lambda row: row._replace(seconds_per_epoch=math.nan)],
    "versions": [lambda row: row._replace(versions={"torch": 2})],
    "finished": [lambda row: row._replace(finished="yesterday")],
    "warnings": [lambda row: row._replace(warnings=[3])],
}


def test_every_column_is_validated():
    assert set(HOSTILE) == set(COLUMNS) - {"status", "traceback"}


@pytest.mark.parametrize("column", HOSTILE)
def test_values_that_cannot_be_are_named_with_column_and_line(column, store, tmp_path):
    for change in HOSTILE[column]:
        write_csv(tmp_path / "rows.csv", [flatten(make(7)), flatten(change(make(8)))])
        with pytest.raises(StoreError, match=rf"rows\.csv(?s:.*)line 3: .*\b{column}\b"):
            store.import_csv(tmp_path / "rows.csv")
    assert len(store) == 0


def test_all_errors_of_a_file_are_reported_together(store, tmp_path):
    rows = [make(0), make(1, accuracy=3.0, kappa=9.0), make(2), make(3)._replace(key="x"), make(0)]
    write_csv(tmp_path / "rows.csv", map(flatten, rows))
    with (tmp_path / "rows.csv").open("a") as file:
        file.write("a,b\n")
    with pytest.raises(StoreError, match="has 5 errors") as caught:
        store.import_csv(tmp_path / "rows.csv")
    lines = [line.strip().partition(":")[0] for line in str(caught.value).splitlines()[1:6]]
    assert lines == ["line 3", "line 3", "line 5", "line 6", "line 7"]
    assert len(store) == 0


@pytest.mark.parametrize("depth", [20, 100_000])
def test_json_that_is_nested_deeply_is_refused(store, tmp_path, depth):
    row = make(7)
    run = json.dumps({**row.run, "options": {"a": "?"}}).replace('"?"', "[" * depth + "]" * depth).replace('"', '""')
    (tmp_path / "rows.csv").write_text(f'key,status,run\n{row.key},done,"{run}"\n')
    with pytest.raises(StoreError, match="line 2: run"):
        store.import_csv(tmp_path / "rows.csv")


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-a", "@a", "\t=1", "\r=1", "'=1", "''=1", "'a", "'", "a=1"])
def test_text_that_looks_like_a_formula_is_guarded_and_comes_back(store, tmp_path, text):
    row = make(1, "failed", traceback=text, kappa=-0.5, loss=math.inf, per_class={"=a": {"n": 1.0}})
    store.add(row)
    store.export_csv(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
        (cells,) = csv.DictReader(file)
    assert not cells["traceback"].startswith(("=", "+", "-", "@", "\t", "\r"))
    assert not cells["per_class"].startswith("=")
    assert cells["kappa"] == "-0.5"
    assert read_csv(tmp_path / "rows.csv") == [row]


@pytest.mark.parametrize("text", ["+1", "-1", "-2.5e-3"])
def test_text_that_is_a_number_is_no_formula_and_files_that_guard_it_are_read(store, tmp_path, text):
    row, file = make(1, "failed", traceback=text), tmp_path / "rows.csv"
    store.add(row)
    store.export_csv(file)
    assert "'" not in file.read_text()
    assert read_csv(file) == [row]
    file.write_text(file.read_text().replace(f",{text}", f",'{text}"))  # as before
    assert "'" in file.read_text()
    assert read_csv(file) == [row]


def test_the_results_of_the_repository_are_imported(store):
    assert store.import_csv(RESULTS) == len(store) >= 1510


def test_a_store_is_never_overwritten_by_its_own_export(store):
    store.add(make(1))
    with pytest.raises(StoreError, match="is an SQLite file"):
        store.export_csv(store.path)
    assert len(store) == 1


def test_rows_of_pipelines_without_epochs_are_read_back(tmp_path):
    row = full()._replace(best_epoch=0, epochs=0, history={}, seconds_per_epoch=None)
    write_csv(tmp_path / "rows.csv", [flatten(row)])
    assert read_csv(tmp_path / "rows.csv") == [row]
