"""Pictures, sentences and numbers of an explanation: what they say of a decoder, and of one that has learnt nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gbwatt import explain
from gbwatt.data.trials import Effect, Truth
from gbwatt.decoding import EEGDecoder
from gbwatt.errors import ParameterError
from gbwatt.explain import evidence
from gbwatt.explain.findings import sentences
from gbwatt.report.explanation import Explanation
from tests.explain.planted import CHANNELS, make_trials

ALL = {"attention", "conditions", "faithfulness", "features", "heatmaps", "metric", "patterns", "spectra", "topomaps"}
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


def trained(trials, model="gbwatt", max_epochs=1):
    return EEGDecoder(model, max_epochs=max_epochs, lr=1e-2, validation=None).fit(trials)


@pytest.fixture(scope="module")
def decoder():
    return trained(make_trials(), max_epochs=15)


@pytest.fixture(scope="module")
def trials():
    return make_trials(n=40, seed=1)


@pytest.fixture(scope="module")
def explanation(decoder, trials):
    return Explanation(decoder, trials)


@pytest.fixture(scope="module")
def captions(explanation):
    return {picture.name: picture.caption for picture in explanation.pictures()}


# ---- numbers


def test_numbers_are_those_of_the_functions_and_json_keeps_them(decoder, trials, explanation):
    numbers = explanation.numbers
    assert set(numbers) == KEYS
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    found = explain.gradient(decoder, trials)
    assert numbers["trials"] == {"left": 20, "right": 20}
    assert numbers["accuracy"]["value"] == pytest.approx(decoder.score(trials))
    assert list(numbers["magnitude"]["left"]) == list(CHANNELS)
    np.testing.assert_allclose([list(row.values()) for row in numbers["magnitude"].values()], found.channels())
    alike = explain.randomisation(decoder, trials, seed=1).correlation
    np.testing.assert_allclose([rows[1] for rows in numbers["random_weights"]["rank_correlation"].values()], alike)
    for curve in (explain.deletion(decoder, trials, found), explain.insertion(decoder, trials, found)):
        got = numbers[curve.kind]
        assert got["gain"] == pytest.approx(curve.gain)
        assert got["after_10_percent"] == pytest.approx(curve.probability[:, 1].mean())
        assert got["after_10_percent_random"] == pytest.approx(curve.random[:, 1].mean())
    assert 0 < numbers["attention"]["smallest"] < 1 / numbers["attention"]["m"] < numbers["attention"]["largest"]
    assert numbers["metric"]["smallest"] <= numbers["metric"]["largest"]
    assert (numbers["unit"], numbers["localisation"], numbers["left_out"]) == ("1/µV", None, [])


def test_a_network_without_attention_has_none_of_its_numbers_and_says_so(trials):
    numbers = Explanation(trained(trials, "mbeegse"), trials[:10], "gradient-times-input").numbers
    assert set(numbers) == KEYS
    assert numbers["attention"] is None
    assert numbers["metric"] is None
    assert numbers["unit"] == "logit"
    assert [text.partition(":")[0] for text in numbers["left_out"]] == [
        "Patterns of features",
        "Attention, eigenvalues and features",
    ]


def test_nothing_is_computed_twice(decoder, trials, monkeypatch):
    calls = []
    for name in ("deletion", "insertion", "look_inside", "feature_patterns", "learnt_metric"):
        real = getattr(explain, name)
        monkeypatch.setattr(explain, name, lambda *a, name=name, real=real: calls.append(name) or real(*a))
    real = evidence.attribute
    monkeypatch.setattr(evidence, "attribute", lambda *a: calls.append("attribute") or real(*a))
    found = Explanation(decoder, trials[:8])
    assert found.findings()
    assert len(list(found.pictures())) == len(ALL)
    assert found.numbers is found.numbers
    assert sorted(calls) == sorted(set(calls))
    assert len(calls) == 6


def test_what_was_planted_is_said_where_it_is_known(decoder, trials):
    topographies = {name: tuple(float(channel == name) for channel in CHANNELS) for name in ("C3", "C4")}
    effects = {
        label: (Effect("oscillation", (name,), (8.0, 12.0), (0.0, 1.0), topographies[name]),)
        for label, name in (("left", "C4"), ("right", "C3"))
    }
    known = trials.replace(truths={int(trials.subject[0]): Truth(CHANNELS, effects, 0.5, 0)})
    for method, banded in (("gradient", True), ("gradient-times-input", False)):
        found = Explanation(decoder, known, method)
        (one, _), (wanted, _) = found.numbers["localisation"], explain.localisation(found.whole, known.truth)
        assert (one["class_name"], one["planted"], one["ranks"]) == ("left", ["C4"], list(wanted.ranks))
        assert one["found"] == wanted.found
        assert json.dumps(found.numbers, allow_nan=False)
        (said,) = (text for text in found.findings() if text.startswith("Planted for left: C4; by magnitude number"))
        assert ("planted band" in said) == banded
        assert ("does not stand out" in said) != wanted.found


# ---- sentences


def test_findings_begin_with_the_accuracy(explanation):
    first = explanation.findings()[0]
    assert first.startswith("The decoder is right in ")
    assert first.endswith("% of 40 trials; always naming the most frequent class is right in 50.0 %.")


def test_a_decoder_that_is_not_better_than_chance_explains_nothing(decoder, trials):
    mixed = trials.replace(y=np.arange(len(trials)) // 2 % 2)
    first = Explanation(decoder, mixed).findings()[0]
    assert first.startswith("The decoder is not better than chance")
    assert first.endswith("The explanation of a decoder that has learnt nothing shows nothing.")


def test_trials_of_one_class_have_no_chance_to_compare_with(decoder, trials):
    numbers = Explanation(decoder, trials[trials.y == 1]).numbers
    assert numbers["accuracy"]["p"] is None
    assert list(numbers["magnitude"]) == list(numbers["trials"]) == ["right"]
    assert "all of one class" in sentences(numbers)[0]


@pytest.mark.parametrize(
    ("correlations", "said"),
    [
        ([-0.1, 0.2], "The maps come from what was learnt"),
        ([0.41, 0.56], "The maps come in part from what was learnt"),
        ([0.1, 0.9], "The maps do not show what was learnt, or not for every class"),
    ],
)
def test_a_comparison_with_random_weights_says_first_what_it_means(explanation, correlations, said):
    tested = {"seeds": [0, 1], "rank_correlation": {"left": correlations, "right": correlations[::-1]}}
    (found,) = (
        text for text in sentences(explanation.numbers | {"random_weights": tested}) if "random weights" in text
    )
    assert found.startswith(said)
    assert f"from {min(correlations):.2f} to {max(correlations):.2f}" in found
    assert "divided out" not in found


def test_the_beginning_of_a_curve_is_said_beside_its_area(explanation, captions):
    curve = {"first": 0.66, "after_10_percent": 0.22, "after_10_percent_random": 0.42, "gain": 0.02}
    said = sentences(explanation.numbers | {"deletion": curve})
    (found,) = (text for text in said if text.startswith("Deletion of the 10 % of cells"))
    assert "from 0.66 to 0.22, of random ones to 0.42;" in found
    assert "+0.02" in found
    own = explanation.numbers["insertion"]
    assert (
        f"to {own['after_10_percent']:.2f}, of random ones to {own['after_10_percent_random']:.2f}"
        in (captions["faithfulness"])
    )
    assert "may be of the same class" in captions["faithfulness"]


# ---- pictures


def test_every_picture_has_a_caption_that_defines_what_is_in_it(captions):
    assert set(captions) == ALL
    assert "how far they are from" in captions["attention"]
    assert "rows are queries, columns keys" in captions["attention"]
    assert "5 to 95 %" in captions["spectra"]
    assert "by the length of the pattern times that of the spectrum" in captions["patterns"]


@pytest.mark.parametrize("method", ["gradient-times-input", "integrated-gradients"])
def test_magnitudes_of_contributions_are_labelled_as_such(decoder, trials, method):
    found = Explanation(decoder, trials, method)
    heat = next(found.pictures())
    assert " ".join(heat.figure.axes[-1].get_ylabel().split()) == "|contribution to the logit|"
    assert "hardly depend on the scale of an epoch" in heat.caption
    assert any("divided out" in text for text in found.findings())


def test_nothing_is_said_of_the_scale_where_logits_depend_on_it(decoder, trials):
    found = Explanation(decoder, trials, "gradient-times-input")
    found.__dict__["scale_change"] = 0.2
    assert "scale" not in next(found.pictures()).caption


def test_names_that_are_filled_up_with_dots_have_a_place(trials):
    dotted = trials.replace(ch_names=[f"{name.lower()}.." for name in CHANNELS])
    found = Explanation(trained(dotted), dotted)
    assert {"topomaps", "patterns"} <= {picture.name for picture in found.pictures()}
    assert found.left_out == []


@pytest.mark.parametrize(
    ("names", "reason"),
    [(("one", "two", "three"), "not known where"), (("C3", "C4"), "three electrodes or more")],
)
def test_pictures_that_are_left_out_are_told(trials, names, reason):
    some = trials.replace(X=trials.X[:, : len(names)], ch_names=names)
    found = Explanation(trained(some), some)
    drawn = {picture.name: picture.caption for picture in found.pictures()}
    assert set(drawn) == ALL - {"topomaps", "patterns"} | {"channels"}
    assert reason in drawn["channels"]
    assert [text.partition(":")[0] for text in found.findings() if reason in text] == [
        "Maps of the scalp, instead of which there are bars",
        "Patterns of features",
    ]


def test_one_trial_has_none_to_be_replaced_with(decoder, trials):
    found = Explanation(decoder, trials[:1])
    assert {picture.name for picture in found.pictures()} == ALL - {"faithfulness", "features"}
    assert found.numbers["deletion"] is None
    assert any("there is one trial only" in text for text in found.findings())
    assert json.dumps(found.numbers, allow_nan=False)


def test_an_unknown_method_is_refused_before_anything_is_computed(decoder, trials):
    with pytest.raises(ParameterError, match="Did you mean 'gradient'"):
        Explanation(decoder, trials, "gradint")
