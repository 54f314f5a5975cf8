"""Keys of runs: what is in a store is found again, on every machine and in every version."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.golden import doors
from tests.golden.program import RESULTS, stored

#: Their data sets have no simulated recordings in their place.
NOT_SIMULATED = {"ablations", "ablations_imagery", "clinical", "decoders", "decoders_imagery", "transfer_imagery"}


def digest(keys):
    return hashlib.sha256("\n".join(sorted(keys)).encode()).hexdigest()


def observe_results():
    keys = [row["key"] for row in doors.read_rows(RESULTS)]
    return {"rows": len(keys), "keys": digest(keys)}


def observe_experiment(name, root):
    runs = doors.simulated_runs(name, root)
    if runs is None:
        return None
    keys = [key for _, key in runs]
    return {"runs": len(keys), "different": len(set(keys)), "keys": digest(keys), "first": [*runs[0]]}


def observe(root):
    return {
        "results": observe_results(),
        "experiments": {name: observe_experiment(name, root) for name in doors.experiment_names()},
    }


@pytest.mark.parametrize("file", sorted(RESULTS.parent.glob("*.csv")), ids=lambda file: file.stem)
def test_published_rows_have_the_keys_of_their_runs(file):
    rows = doors.read_rows(file)
    assert rows
    assert [row["key"] for row in rows] == [doors.key_of(row["run"]) for row in rows]


def test_published_rows_are_the_same():
    assert observe_results() == stored("run_keys")["results"]


def test_all_experiments_are_still_there():
    assert doors.experiment_names() == sorted(stored("run_keys")["experiments"])


@pytest.mark.parametrize("name", stored("run_keys")["experiments"])
def test_runs_of_an_experiment_have_the_same_keys(name, here):
    found = observe_experiment(name, here)
    assert (found is None) == (name in NOT_SIMULATED)
    assert json.loads(json.dumps(found)) == stored("run_keys")["experiments"][name]


def test_keys_do_not_depend_on_the_machine(tmp_path, monkeypatch):
    known = stored("run_keys")["experiments"]["modules"]["keys"]
    for number, zone in enumerate(("UTC", "Asia/Tokyo")):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in ("HOME", "GBWATT_DATA", "TMPDIR"):
            monkeypatch.setenv(name, str(folder))
        monkeypatch.setenv("TZ", zone)
        monkeypatch.setenv("LC_ALL", "C")
        monkeypatch.chdir(folder)
        for root in (None, folder):
            runs = doors.simulated_runs("modules", root)
            assert digest(key for _, key in runs) == known
            assert str(folder) not in json.dumps([run for run, _ in runs])
