"""Benchmarks and tables as functions, with runs that a test makes up."""

from __future__ import annotations

import pytest

import gbwatt.experiments as package
from gbwatt.errors import ParameterError
from gbwatt.experiments import (
    Row,
    Store,
    benchmark,
    experiment_from_dict,
    list_experiments,
    make_tables,
    read_experiment,
    read_rows,
    runner,
)
from tests.experiments.small import experiment

SMALL = experiment(datasets=["simulated-ssvep"])  # two models, subjects and seeds


@pytest.fixture
def executed(monkeypatch):
    """Keys of the runs that are executed; those of subject 2 fail."""
    keys = []

    def execute(runs, jobs, threads, root):
        for run in runs:
            keys.append(run.key)
            status = "failed" if run.subject == 2 else "done"
            yield Row(run.key, status, run.to_dict(), accuracy=0.5 if status == "done" else None)

    monkeypatch.setattr(runner, "run_locally", execute)
    return keys


def test_public_names_can_be_imported():
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert set(package.__all__) <= set(dir(package))


def test_a_benchmark_returns_all_rows_of_the_experiment_and_only_executes_what_the_store_lacks(executed, tmp_path):
    store = tmp_path / "results.sqlite"
    rows = benchmark(experiment_from_dict(SMALL), store, seeds=1)
    assert [(row.run["subject"], row.status) for row in rows] == [(1, "done"), (2, "failed")] * 2
    assert len(executed) == 4
    assert len(benchmark(experiment_from_dict(SMALL), store)) == len(set(executed)) == len(executed) == 8
    assert benchmark(experiment_from_dict(SMALL), store, seeds=1) == rows
    assert len(executed) == 8


def test_failed_runs_are_executed_again_on_request(executed, tmp_path):
    store = tmp_path / "results.sqlite"
    first = benchmark(experiment_from_dict(SMALL), store)
    benchmark(experiment_from_dict(SMALL), store, retry_failed=True)
    assert executed[8:] == [key for key in executed[:8] if key in {row.key for row in first if row.status == "failed"}]


def test_callbacks_get_the_plan_and_each_row_after_it_is_stored(executed, tmp_path):
    store, plans, stored = tmp_path / "results.sqlite", [], []
    callbacks = {"on_start": plans.append, "on_row": lambda row: stored.append(Store(store).get(row.key) is not None)}
    benchmark(experiment_from_dict(SMALL), store, **callbacks)
    assert [(len(plan.runs), len(plan.todo), len(plan.done)) for plan in plans] == [(8, 8, 0)]
    assert stored == [True] * 8


def test_wrong_arguments_are_named_and_no_store_is_made(executed, tmp_path):
    for name, value in (("jobs", -1), ("threads", 0), ("seeds", 0), ("subjects", [99]), ("simulated", "maybe")):
        with pytest.raises(ParameterError, match=name):
            benchmark(experiment_from_dict(SMALL), tmp_path / "results.sqlite", **{name: value})
    assert not any(tmp_path.iterdir())
    assert not executed


def test_experiments_are_found_by_name_and_the_users_take_precedence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert {"main", "theta"} <= set(list_experiments())
    assert read_experiment("theta", ["seeds=[7]"]).seeds == (7,)
    (tmp_path / "experiments").mkdir()
    text = list_experiments()["theta"].read_text(encoding="utf-8").replace("title: ", "title: My ")
    (tmp_path / "experiments/theta.yaml").write_text(text, encoding="utf-8")
    assert read_experiment("theta").title == "My Effect of θ"
    with pytest.raises(ParameterError, match="Did you mean 'theta'"):
        read_experiment("tehta")


def test_tables_are_made_from_rows_a_store_a_file_or_a_folder(executed, tmp_path):
    known, store = experiment_from_dict(SMALL), tmp_path / "results.sqlite"
    rows = benchmark(known, store)
    (tmp_path / "rows").mkdir()
    Store(store).export_csv(tmp_path / "rows/rows.csv")
    (table,) = make_tables(known, rows)
    for results in (store, str(store), Store(store), tmp_path / "rows/rows.csv", tmp_path / "rows"):
        assert read_rows(results) == rows
        assert make_tables(known, results) == [table]


def test_tables_are_of_the_seeds_data_sets_and_reference_that_are_given(executed, tmp_path):
    known = experiment_from_dict(SMALL)
    rows = benchmark(known, tmp_path / "results.sqlite")
    assert "Runs: 2 of 4 done, 2 failed, 0 missing." in make_tables(known, rows, seeds=1)[0].notes
    assert [table.title for table in make_tables(known, rows, reference="MAtt")][1:] == [
        "A small one: compared with MAtt"
    ]
    assert make_tables(known, rows, datasets=["bci-ern"]) == []
    assert make_tables(known, []) == []
    with pytest.raises(ParameterError, match="Did you mean 'MAtt'"):
        make_tables(known, rows, reference="Matt")
    with pytest.raises(ParameterError, match="reference"):
        make_tables("claims", rows, reference="MAtt")
    claims, comparisons = make_tables("claims", rows)
    assert claims.lines
    assert not comparisons.lines
