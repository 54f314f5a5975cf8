"""Motor imagery through MOABB's own classes, on files in their layout that are written here: no network."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.io

from gbwatt.data.sets import bcic2a, physionet
from tests.data.sets import test_bcic2a, test_physionet

pytestmark = pytest.mark.ecosystem


@pytest.fixture
def datasets(monkeypatch, tmp_path):
    found = pytest.importorskip("moabb.datasets", reason="MOABB is not installed: pip install 'gbwatt[moabb]'")
    from moabb.datasets.base import BaseDataset

    monkeypatch.setenv("MNE_DATA", str(tmp_path))
    monkeypatch.setattr(BaseDataset, "_prefetch_nemar_sourcedata", lambda *_, **__: None)
    return found


def write_bnci(file, day):
    """One day as BNCI Horizon 2020 has it: a run of eye movements, then six of trials, with positions from one."""
    runs = [{"X": day.data[:, :500].T, "trial": [], "y": []}]
    ends = [*(start - test_bcic2a.BREAK for start in day.starts[1:]), day.data.shape[1] - test_bcic2a.BREAK]
    for number, (begin, end) in enumerate(zip(day.starts, ends, strict=True)):
        own = slice(48 * number, 48 * number + 48)
        runs.append({"X": day.data[:, begin:end].T, "trial": day.cues[own] - 500 - begin + 1, "y": day.classes[own]})
    shared = {"fs": 250, "classes": ["left hand", "right hand", "feet", "tongue"], "gender": "male", "age": 22}
    cells = np.empty((1, len(runs)), dtype=object)
    for number, run in enumerate(runs):
        cells[0, number] = run | shared | {"artifacts": np.zeros(len(run["y"]))}
    scipy.io.savemat(file, {"data": cells})
    return file


def test_bnci2014_001_gives_the_trials_of_the_competition_files(datasets, monkeypatch, tmp_path):
    days = {"T": test_bcic2a.make_day("T", 1), "E": test_bcic2a.make_day("E", 2)}
    files = []
    for session, day in days.items():
        write_bnci(tmp_path / f"bnci_A01{session}.mat", day)
        files += [day.write(tmp_path / f"A01{session}.gdf"), day.write_labels(tmp_path / f"A01{session}.mat")]
    from moabb.datasets.bnci import bnci_2014

    monkeypatch.setattr(bnci_2014, "data_path", lambda url, *_: [str(tmp_path / f"bnci_{url.split('/')[-1]}")])
    found, expected = bcic2a.read_moabb((), 1), bcic2a.read_gdf(files, 1)
    np.testing.assert_allclose(found.X, expected.X, atol=0.03)
    for name in ("y", "session", "run"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.frame == expected.frame


def test_physionetmi_gives_the_trials_of_the_files(datasets, monkeypatch, tmp_path):
    files = {run: tmp_path / f"S001R{run:02d}.edf" for run in physionet.RUNS}
    for run, file in files.items():
        test_physionet.write_run(file, seed=run)
    monkeypatch.setattr(
        datasets.PhysionetMI, "_load_data", lambda _, __, runs, **___: [str(files[run]) for run in runs]
    )
    found, expected = physionet.read_moabb((), 1), physionet.read_edf(list(files.values()), 1)
    np.testing.assert_allclose(found.X, expected.X, atol=1e-3)
    for name in ("y", "session", "run"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.frame == expected.frame
