"""Conventions of scikit-learn, by its own checks where these do not need matrices of features."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.validation import has_fit_parameter

from gbwatt.decoding import EEGDecoder, GBWAttClassifier
from tests.decoding.tiny import make_trials

#: Checks of parameters and tags, which do not fit the estimator.
CHECKS = (
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
)
NEW = {"n_jobs": 2, "calibration": "temperature", "warm_start": True}


@pytest.mark.parametrize("kind", [EEGDecoder, GBWAttClassifier])
@pytest.mark.parametrize("name", CHECKS)
def test_parameters_follow_the_conventions(name, kind):
    getattr(estimator_checks, name)(kind.__name__, kind())


@pytest.mark.parametrize("kind", [EEGDecoder, GBWAttClassifier])
def test_parameters_are_cloned_and_have_no_effect_before_fit(kind):
    decoder = kind(**NEW)
    assert {name: getattr(clone(decoder), name) for name in NEW} == NEW
    assert [name for name in vars(decoder) if name.endswith("_")] == []


def test_fitting_does_not_change_parameters_or_data(decoder, trials):
    x, y = trials
    weights = np.random.default_rng(0).uniform(0.5, 2, 40)
    made = decoder(calibration="temperature", warm_start=True, n_members=2)
    before, copies = made.get_params(), [np.copy(a) for a in (x, y, weights)]
    made.fit(x, y, sample_weight=weights).partial_fit(x, y, sample_weight=weights)
    assert made.get_params() == before
    for a, b in zip((x, y, weights), copies, strict=True):
        np.testing.assert_array_equal(a, b)


def test_features_are_channels(decoder, trials, tmp_path):
    made = decoder()
    assert not hasattr(made, "n_features_in_")
    made.fit(*trials).save_pretrained(tmp_path)
    assert made.n_features_in_ == EEGDecoder.from_pretrained(tmp_path).n_features_in_ == 4
    pipeline = make_pipeline(FunctionTransformer(), decoder()).fit(*trials)
    assert pipeline[-1].n_features_in_ == 4


def test_weights_of_trials_are_a_parameter_of_fit_and_score():
    assert has_fit_parameter(EEGDecoder(), "sample_weight")
    assert has_fit_parameter(GBWAttClassifier(), "sample_weight")


def test_weights_are_routed_in_pipelines_and_cross_validation(decoder):
    x, y = make_trials(n=48, seed=3, gain=1.3)
    weights = np.random.default_rng(0).uniform(0.1, 3, 48)
    direct = decoder().fit(x, y, sample_weight=weights)
    by_name = make_pipeline(FunctionTransformer(), decoder()).fit(x, y, eegdecoder__sample_weight=weights)
    np.testing.assert_array_equal(by_name.predict_proba(x), direct.predict_proba(x))
    with sklearn.config_context(enable_metadata_routing=True):
        requested = decoder().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        folds = cross_validate(
            requested, x, y, cv=3, params={"sample_weight": weights}, return_indices=True, return_estimator=True
        )
    rows = folds["indices"]["train"][0]
    again = decoder().fit(x[rows], y[rows], sample_weight=weights[rows])
    np.testing.assert_array_equal(folds["estimator"][0].predict_proba(x), again.predict_proba(x))


def test_probabilities_after_calibration_sum_to_one_and_agree_with_decisions(decoder):
    x, y = make_trials(n=60, n_classes=3, gain=1.2)
    made = decoder(calibration="temperature").fit(x, y)
    p = made.predict_proba(x)
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_array_equal(p.argmax(1), made.decision_function(x).argmax(1))
    np.testing.assert_array_equal(made.classes_[p.argmax(1)], made.predict(x))
