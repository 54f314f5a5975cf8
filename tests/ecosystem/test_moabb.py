"""The classifier in a MOABB evaluation, on MOABB's own simulated data: no network."""

from __future__ import annotations

import pytest

from gbwatt import GBWAttClassifier

pytestmark = pytest.mark.ecosystem


@pytest.fixture
def moabb():
    return pytest.importorskip("moabb", reason="MOABB is not installed: pip install 'gbwatt[moabb]'")


def test_classifier_runs_in_a_within_session_evaluation(moabb, tmp_path):
    from moabb.datasets.fake import FakeDataset
    from moabb.evaluations import WithinSessionEvaluation
    from moabb.paradigms import LeftRightImagery

    dataset = FakeDataset(["left_hand", "right_hand"], n_subjects=1, n_sessions=1, n_runs=1, paradigm="imagery")
    evaluation = WithinSessionEvaluation(
        paradigm=LeftRightImagery(), datasets=[dataset], hdf5_path=str(tmp_path), overwrite=True
    )
    results = evaluation.process({"GBWAtt": GBWAttClassifier(max_epochs=3)})
    assert len(results) >= 1
    assert results["score"].between(0, 1).all()
    assert set(results["pipeline"]) == {"GBWAtt"}
