"""The same grid on a Dask cluster."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from gbwatt.errors import ParameterError
from gbwatt.experiments.config import experiment_from_dict
from gbwatt.experiments.runner import benchmark, run_on_cluster
from gbwatt.experiments.runs import Row

pytestmark = pytest.mark.ecosystem
distributed = pytest.importorskip("distributed")

EXPERIMENT = {
    "name": "small",
    "title": "Small",
    "datasets": ["simulated-ssvep"],
    "subjects": [1, 2],
    "seeds": 3,
    "training": {"max_epochs": 4},
    "models": [{"label": "SPDNet", "model": "spdnet"}, {"label": "MAtt", "model": "matt"}],
}


def scores(rows: list[Row]) -> dict[str, tuple[str, float, float]]:
    return {row.key: (row.status, row.accuracy, row.loss) for row in rows}


def test_a_cluster_that_loses_a_worker_finds_the_same_numbers(tmp_path):
    experiment = experiment_from_dict(EXPERIMENT)
    expected = scores(benchmark(experiment, tmp_path / "here.sqlite", jobs=2))
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        victim = next(iter(cluster.workers.values())).pid
        killed = threading.Event()

        def kill(row):
            if not killed.is_set():
                killed.set()
                os.kill(victim, signal.SIGKILL)

        there = benchmark(experiment, tmp_path / "there.sqlite", scheduler=cluster.scheduler_address, on_row=kill)
        assert killed.is_set()
        assert [row.status for row in there] == ["done"] * 12
        assert scores(there) == expected


def test_a_scheduler_that_is_not_there_is_named():
    runs = [experiment_from_dict(EXPERIMENT).labelled_runs()[0].run]
    with pytest.raises(ParameterError, match=r"tcp://127\.0\.0\.1:9.*dask scheduler"):
        next(run_on_cluster(runs, "tcp://127.0.0.1:9"))
