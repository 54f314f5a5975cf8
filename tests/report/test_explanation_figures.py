"""Figures of an explanation and their captions."""

from __future__ import annotations

import pytest

from gbwatt.decoding import EEGDecoder
from gbwatt.explain import Explanation
from gbwatt.report.model_report import explanation_figures
from tests.explain.planted import CHANNELS, make_trials

ALL = {"attention", "conditions", "faithfulness", "features", "heatmaps", "metric", "patterns", "spectra", "topomaps"}


def trained(trials, max_epochs=1):
    return EEGDecoder("gbwatt", max_epochs=max_epochs, lr=1e-2, validation=None).fit(trials)


def captions_of(explanation):
    return {figure.name: figure.caption for figure in explanation_figures(explanation)}


@pytest.fixture(scope="module")
def decoder():
    return trained(make_trials(), max_epochs=15)


@pytest.fixture(scope="module")
def trials():
    return make_trials(n=40, seed=1)


@pytest.fixture(scope="module")
def explanation(decoder, trials):
    return Explanation(decoder, trials)


def test_every_figure_has_a_caption_that_defines_what_is_in_it(explanation):
    captions = captions_of(explanation)
    assert set(captions) == ALL
    assert "the uniform weight 1/2" in captions["attention"]
    assert "rows are queries, columns keys" in captions["attention"]
    assert "5 to 95 %" in captions["spectra"]
    assert "norm of the pattern times that of the spectrum" in captions["patterns"]
    assert "may be of the same class" in captions["faithfulness"]
    insertion = explanation.numbers["insertion"]
    after, random = insertion["after_10_percent"], insertion["after_10_percent_random"]
    assert f"to {after:.2f} (random cells: {random:.2f})" in captions["faithfulness"]


@pytest.mark.parametrize("method", ["gradient-times-input", "integrated-gradients"])
def test_magnitudes_of_contributions_are_labelled_as_such(decoder, trials, method):
    heatmaps = next(explanation_figures(Explanation(decoder, trials, method)))
    assert " ".join(heatmaps.figure.axes[-1].get_ylabel().split()) == "|contribution to the logit|"
    assert "hardly depend on the scale of an epoch" in heatmaps.caption


def test_the_scale_is_not_mentioned_where_logits_depend_on_it(decoder, trials):
    explanation = Explanation(decoder, trials, "gradient-times-input")
    explanation.__dict__["scale_change"] = 0.2
    assert "scale" not in next(explanation_figures(explanation)).caption


def test_names_padded_with_dots_have_positions(trials):
    dotted = trials.replace(ch_names=[f"{name.lower()}.." for name in CHANNELS])
    explanation = Explanation(trained(dotted), dotted)
    assert {"topomaps", "patterns"} <= set(captions_of(explanation))
    assert explanation.left_out == []


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("one", "two", "three"), "positions of these electrodes are unknown"),
        (("C3", "C4"), "three electrodes or more"),
    ],
)
def test_figures_that_are_left_out_are_listed(trials, names, reason):
    some = trials.replace(X=trials.X[:, : len(names)], ch_names=names)
    explanation = Explanation(trained(some), some)
    captions = captions_of(explanation)
    assert set(captions) == ALL - {"topomaps", "patterns"} | {"channels"}
    assert reason in captions["channels"]
    assert [text.partition(":")[0] for text in explanation.findings() if reason in text] == [
        "Scalp maps, replaced by bars",
        "Patterns of features",
    ]


def test_a_single_trial_has_neither_curves_nor_a_plane_of_features(decoder, trials):
    assert set(captions_of(Explanation(decoder, trials[:1]))) == ALL - {"faithfulness", "features"}
