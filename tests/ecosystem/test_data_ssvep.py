"""MAMEM-SSVEP-II through MOABB's own reader, on files in the official layout: no network."""

from __future__ import annotations

import numpy as np
import pytest

from gbwatt.data.sets import mamem
from gbwatt.errors import DataError
from tests.data.sets.test_mamem import write_sessions

pytestmark = pytest.mark.ecosystem


@pytest.fixture(scope="module")
def raw_files(tmp_path_factory):
    return write_sessions(tmp_path_factory.mktemp("mamem"))


@pytest.fixture
def dataset(monkeypatch, raw_files):
    """MAMEM2 with files that are already there; it stores them under numbers."""
    pytest.importorskip("moabb", reason="MOABB is not installed: pip install 'gbwatt[moabb]'")
    from moabb.datasets import MAMEM2

    listed = [{"id": number, "name": file.name, "supplied_md5": ""} for number, file in enumerate(raw_files)]
    stored = [file.with_name(str(number)) for number, file in enumerate(raw_files)]
    for file, link in zip(raw_files, stored, strict=True):
        if not link.exists():
            link.hardlink_to(file)
    monkeypatch.setattr(MAMEM2, "_prefetch_nemar_sourcedata", lambda *_, **__: None)
    monkeypatch.setattr(MAMEM2, "_load_or_fetch_filelist", lambda *_, **__: listed)
    monkeypatch.setattr(MAMEM2, "data_path", lambda *_, **__: [str(link) for link in stored])
    return MAMEM2()


def test_moabb_gives_the_trials_of_the_raw_files(dataset, raw_files):
    expected, found = mamem.read_raw(raw_files, 1), mamem.read_moabb([], 1)
    np.testing.assert_array_equal(found.y, expected.y)
    np.testing.assert_array_equal(found.session, expected.session)
    np.testing.assert_array_equal(found.group, expected.group)
    np.testing.assert_allclose(found.X, expected.X, rtol=1e-5, atol=1e-3)
    assert found.frame == expected.frame
    assert mamem.DATASET.source("moabb").preprocessing(found).shape == (500, 8, 125)


def test_moabb_without_a_session_is_refused(dataset, monkeypatch):
    whole = type(dataset).get_data

    def partial(self, subjects):
        data = whole(self, subjects)
        data[1]["0"].pop("3")
        return data

    monkeypatch.setattr(type(dataset), "get_data", partial)
    with pytest.raises(DataError, match="subject 1: found the runs 0, 1, 2, 4; expected the runs 0, 1, 2, 3, 4"):
        mamem.from_moabb(dataset, 1)
