"""The same grid on a Dask cluster."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from gbwatt.errors import ParameterError
from gbwatt.experiments.config import from_mapping
from gbwatt.experiments.runner import Cluster, Local, carry_out
from gbwatt.experiments.store import Store

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


def scores(store: Store) -> dict[str, tuple[str, float, float]]:
    return {row.key: (row.status, row.accuracy, row.loss) for row in store.rows()}


def test_a_cluster_that_loses_a_worker_finds_the_same_numbers(tmp_path):
    runs = [cell.run for cell in from_mapping(EXPERIMENT).cells()]
    with Store(tmp_path / "here.sqlite") as here:
        carry_out(runs, here, Local(jobs=2), lambda row: None)
        expected = scores(here)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Store(tmp_path / "there.sqlite") as there,
    ):
        victim = next(iter(cluster.workers.values())).pid
        killed = threading.Event()

        def kill(row):
            if not killed.is_set():
                killed.set()
                os.kill(victim, signal.SIGKILL)

        outcome = carry_out(runs, there, Cluster(cluster.scheduler_address), kill)
        assert killed.is_set()
        assert (outcome.done, outcome.failed) == (12, 0)
        assert scores(there) == expected


def test_a_scheduler_that_is_not_there_is_named():
    runs = [from_mapping(EXPERIMENT).cells()[0].run]
    with pytest.raises(ParameterError, match=r"tcp://127\.0\.0\.1:9.*dask scheduler"):
        next(Cluster("tcp://127.0.0.1:9").rows(runs))
