"""Numbers and findings of an explanation."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gbwatt import explain
from gbwatt.data.trials import Effect, Truth
from gbwatt.decoding import EEGDecoder
from gbwatt.errors import ParameterError
from gbwatt.explain import Explanation
from gbwatt.explain import explanation as module
from gbwatt.explain.explanation import sentences
from tests.explain.planted import CHANNELS, make_trials

KEYS = {
    "method",
    "unit",
    "trials",
    "accuracy",
    "magnitude",
    "random_weights",
    "deletion",
    "insertion",
    "attention",
    "metric",
    "localisation",
    "left_out",
}


@pytest.fixture(scope="module")
def unseen():
    return make_trials(n=40, seed=1)


@pytest.fixture(scope="module")
def explanation(decoder, unseen):
    return Explanation(decoder, unseen)


# ---- numbers


def test_numbers_are_those_of_the_functions_and_json_keeps_them(decoder, unseen, explanation):
    numbers = explanation.numbers
    assert set(numbers) == KEYS
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    attribution = explain.gradient(decoder, unseen)
    assert numbers["trials"] == {"left": 20, "right": 20}
    assert numbers["accuracy"]["value"] == pytest.approx(decoder.score(unseen))
    assert list(numbers["magnitude"]["left"]) == list(CHANNELS)
    magnitudes = [list(row.values()) for row in numbers["magnitude"].values()]
    np.testing.assert_allclose(magnitudes, attribution.channels())
    correlation = explain.randomisation(decoder, unseen, seed=1).correlation
    by_class = numbers["random_weights"]["rank_correlation"].values()
    np.testing.assert_allclose([seeds[1] for seeds in by_class], correlation)
    for curve in (explain.deletion(decoder, unseen, attribution), explain.insertion(decoder, unseen, attribution)):
        got = numbers[curve.kind]
        assert got["gain"] == pytest.approx(curve.gain)
        assert got["after_10_percent"] == pytest.approx(curve.probability[:, 1].mean())
        assert got["after_10_percent_random"] == pytest.approx(curve.random[:, 1].mean())
    assert 0 < numbers["attention"]["smallest"] < 1 / numbers["attention"]["m"] < numbers["attention"]["largest"]
    assert numbers["metric"]["smallest"] <= numbers["metric"]["largest"]
    assert (numbers["unit"], numbers["localisation"], numbers["left_out"]) == ("1/µV", None, [])


def test_a_network_without_attention_has_none_of_its_numbers_and_says_so(unseen):
    decoder = EEGDecoder("mbeegse", max_epochs=1, lr=1e-2, validation=None).fit(unseen)
    numbers = Explanation(decoder, unseen[:10], "gradient-times-input").numbers
    assert set(numbers) == KEYS
    assert numbers["attention"] is None
    assert numbers["metric"] is None
    assert numbers["unit"] == "logit"
    assert [text.partition(":")[0] for text in numbers["left_out"]] == [
        "Patterns of features",
        "Attention, eigenvalues and features",
    ]


def test_nothing_is_computed_twice(decoder, unseen, monkeypatch):
    calls = []

    def counting(name, function):
        return lambda *arguments: calls.append(name) or function(*arguments)

    for name in ("deletion", "insertion", "look_inside", "feature_patterns", "learnt_metric", "prepare"):
        monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    monkeypatch.setattr(module, "METHODS", {"gradient": counting("gradient", explain.gradient)})
    explanation = Explanation(decoder, unseen[:8])
    assert explanation.findings()
    assert explanation.scale_change >= 0
    assert explanation.numbers is explanation.numbers
    assert calls.count("gradient") == 1 + len(module.SEEDS)  # the decoder, and networks with random weights
    others = [name for name in calls if name != "gradient"]
    assert sorted(others) == sorted(set(others))
    assert len(others) == 6


def test_planted_effects_are_compared_where_they_are_known(decoder, unseen):
    topographies = {name: tuple(float(channel == name) for channel in CHANNELS) for name in ("C3", "C4")}
    effects = {
        label: (Effect("oscillation", (name,), (8.0, 12.0), (0.0, 1.0), topographies[name]),)
        for label, name in (("left", "C4"), ("right", "C3"))
    }
    known = unseen.replace(truths={int(unseen.subject[0]): Truth(CHANNELS, effects, 0.5, 0)})
    for method, banded in (("gradient", True), ("gradient-times-input", False)):
        explanation = Explanation(decoder, known, method)
        wanted, _ = explain.localisation(explanation.full_attribution, known.truth)
        one, _ = explanation.numbers["localisation"]
        assert (one["class_name"], one["planted"], one["ranks"]) == ("left", ["C4"], list(wanted.ranks))
        assert one["found"] == wanted.found
        assert json.dumps(explanation.numbers, allow_nan=False)
        (text,) = (text for text in explanation.findings() if text.startswith("Planted for left: C4; rank"))
        assert ("planted band" in text) == banded
        assert ("does not stand out" in text) != wanted.found


# ---- findings


def test_findings_begin_with_the_accuracy(explanation):
    first = explanation.findings()[0]
    assert first.startswith("The decoder classifies ")
    assert "of 40 trials correctly" in first
    assert "50.0 %" in first


def test_a_decoder_that_is_not_better_than_chance_explains_nothing(decoder, unseen):
    mixed = unseen.replace(y=np.arange(len(unseen)) // 2 % 2)
    first = Explanation(decoder, mixed).findings()[0]
    assert first.startswith("The decoder is not significantly better than chance")
    assert first.endswith("Its explanation is not meaningful.")


def test_trials_of_one_class_have_no_chance_level(decoder, unseen):
    numbers = Explanation(decoder, unseen[unseen.y == 1]).numbers
    assert numbers["accuracy"]["p"] is None
    assert list(numbers["magnitude"]) == list(numbers["trials"]) == ["right"]
    assert "all are of one class" in sentences(numbers)[0]


@pytest.mark.parametrize(
    ("correlations", "verdict"),
    [
        ([-0.1, 0.2], "The maps depend on the learned weights"),
        ([0.41, 0.56], "The maps depend in part on the learned weights"),
        ([0.1, 0.9], "The maps do not depend on the learned weights for at least one class"),
    ],
)
def test_a_comparison_with_random_weights_begins_with_its_verdict(explanation, correlations, verdict):
    test = {"seeds": [0, 1], "rank_correlation": {"left": correlations, "right": correlations[::-1]}}
    (text,) = (text for text in sentences(explanation.numbers | {"random_weights": test}) if "random weights" in text)
    assert text.startswith(verdict)
    assert f"from {min(correlations):.2f} to {max(correlations):.2f}" in text
    assert "common factor" not in text


@pytest.mark.parametrize(
    ("gain", "words"), [(0.02, "better than for a random order by 0.02"), (-0.07, "worse than for")]
)
def test_the_beginning_of_a_curve_is_reported_beside_its_area(explanation, gain, words):
    curve = {"first": 0.66, "after_10_percent": 0.22, "after_10_percent_random": 0.42, "gain": gain}
    texts = sentences(explanation.numbers | {"deletion": curve})
    (text,) = (text for text in texts if text.startswith("Deletion of the 10 % most important cells"))
    assert "from 0.66 to 0.22 (random cells: 0.42)" in text
    assert words in text


@pytest.mark.parametrize("method", ["gradient-times-input", "integrated-gradients"])
def test_the_common_factor_of_contributions_is_mentioned(decoder, unseen, method):
    assert any("common factor" in text for text in Explanation(decoder, unseen, method).findings())


def test_a_single_trial_has_no_curves(decoder, unseen):
    explanation = Explanation(decoder, unseen[:1])
    assert explanation.numbers["deletion"] is None
    assert any("at least two trials are needed" in text for text in explanation.findings())
    assert json.dumps(explanation.numbers, allow_nan=False)


def test_an_unknown_method_is_refused_before_anything_is_computed(decoder, unseen):
    with pytest.raises(ParameterError, match="Did you mean 'gradient'"):
        Explanation(decoder, unseen, "gradint")


def test_of_an_ensemble_it_says_why_parts_are_left_out(unseen):
    sizes = {"n_spatial": 4, "n_temporal": 4, "kernel": 6, "n_segments": 2, "k": 3}
    ensemble = EEGDecoder("gbwatt", model_options=sizes, n_members=2, max_epochs=1, validation=None).fit(unseen)
    reason = "left out, it is an ensemble of 2 networks; explain a single one, trained with --members 1."
    left_out = Explanation(ensemble, unseen).left_out
    assert f"Patterns of features: {reason}" in left_out
    assert f"Attention, eigenvalues and features: {reason}" in left_out
