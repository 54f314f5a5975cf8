"""The classifier in a MOABB evaluation, on MOABB's own simulated data: no network."""

from __future__ import annotations

from typing import ClassVar

import pytest
import sklearn
from sklearn.pipeline import make_pipeline

from gbwatt import GBWAttClassifier
from gbwatt.decoding import EuclideanAlignment, RiemannianAlignment

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


class Watched(RiemannianAlignment):
    """Notes the domains that it was fitted to, and the numbers of trials that it aligned."""

    fitted: ClassVar[list] = []
    aligned: ClassVar[list] = []

    def fit(self, X, y=None, groups=None, target=None):
        super().fit(X, y, groups, target)
        self.fitted.append(set(self.whiteners_))
        return self

    def transform(self, X, groups=None):
        self.aligned.append((len(X), None if groups is None else set(groups)))
        return super().transform(X, groups)


@pytest.fixture
def cross_subject(moabb, tmp_path):
    """Evaluate a pipeline across the subjects of a simulated data set, with a mode for unlabelled target trials."""
    from moabb.datasets.fake import FakeDataset
    from moabb.evaluations import CrossSubjectEvaluation
    from moabb.paradigms import LeftRightImagery

    dataset = FakeDataset(["left_hand", "right_hand"], n_subjects=3, n_sessions=2, n_runs=1, paradigm="imagery")

    def evaluate(pipeline, mode):
        evaluation = CrossSubjectEvaluation(
            paradigm=LeftRightImagery(), datasets=[dataset], hdf5_path=str(tmp_path), overwrite=True, cs_mode=mode
        )
        return evaluation.process({"pipeline": pipeline})

    with sklearn.config_context(enable_metadata_routing=True):
        yield evaluate


@pytest.mark.parametrize(
    ("mode", "target"),
    [("train", set()), ("train_and_target_unlabeled_20p", {None}), ("train_and_target_unlabeled_full", {None})],
)
def test_subjects_are_aligned_in_a_cross_subject_evaluation(cross_subject, mode, target):
    """Each training subject has its own alignment; that of the target is fitted to its unlabelled trials."""
    Watched.fitted, Watched.aligned = [], []
    alignment = Watched(unseen="fit")
    alignment.set_fit_request(groups="subjects", target="X_target_unlabeled")
    alignment.set_transform_request(groups="subjects")
    results = cross_subject(make_pipeline(alignment, GBWAttClassifier(task="mi", max_epochs=1)), mode)
    assert len(results) == 6
    assert results["score"].between(0, 1).all()
    assert sorted(map(sorted, ({name for name in domains if name is not None} for domains in Watched.fitted))) == [
        [1, 2],
        [1, 3],
        [2, 3],
    ]
    assert all(domains & {None} == target for domains in Watched.fitted)
    assert sum(groups is None for _, groups in Watched.aligned) == 6  # each session of the target


@pytest.mark.parametrize("options", [{"alignment": "euclidean"}, {"domain_norm": "affine-invariant"}])
def test_classifier_aligns_subjects_in_a_cross_subject_evaluation(cross_subject, options):
    classifier = GBWAttClassifier(task="mi", max_epochs=1, **options).set_fit_request(groups="subjects")
    results = cross_subject(make_pipeline(classifier), "train")
    assert results["score"].between(0, 1).all()


def test_single_target_trials_need_unlabelled_ones_first(cross_subject):
    alignment = EuclideanAlignment(unseen="fit")
    alignment.set_fit_request(groups="subjects", target="X_target_unlabeled")
    alignment.set_transform_request(groups="subjects")
    pipeline = make_pipeline(alignment, GBWAttClassifier(task="mi", max_epochs=1))
    with pytest.raises(ValueError, match="1 trial of arrays without groups is too few"):
        cross_subject(pipeline, "train_trialwise")
