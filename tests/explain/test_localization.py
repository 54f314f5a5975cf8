"""An explanation should find what was planted: here for made-up attributions, and for trained decoders."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gbwatt.data import find_dataset, load
from gbwatt.data.trials import Effect, Truth
from gbwatt.decoding import GBWAttClassifier
from gbwatt.errors import MismatchError
from gbwatt.explain import Attribution, localisation, randomisation

CHANNELS = tuple("abcdefgh")
TIMES = np.arange(100) / 100


def effect(kind="desynchronisation", channels=("a",), band=(8.0, 12.0), window=(0.2, 0.4)):
    topography = tuple(1.0 if name in channels else 0.1 for name in CHANNELS)
    return Effect(kind, channels, band, window, topography)


def attribution(values, labels=None, class_names=("one", "two")):
    values = np.asarray(values, float)
    labels = np.zeros(len(values), int) if labels is None else np.asarray(labels)
    return Attribution(values, labels, class_names, CHANNELS, 100.0, 0.0, "gradient")


def truth(**effects):
    return Truth(CHANNELS, effects, 0.5, 0)


def ramp(order):
    """An attribution (1, 8, 100) that is largest at the first channel of ``order``."""
    size = {name: 8 - place for place, name in enumerate(order)}
    return np.array([[[size[name]] for name in CHANNELS]]) * np.ones(100)


@pytest.mark.parametrize(
    ("order", "ranks", "best", "every", "found"),
    [
        ("abcdefgh", (1, 2), True, True, True),
        ("bcdefgha", (8, 1), True, False, False),  # one of two is first, but the group is not above the rest
        ("cdabefgh", (3, 4), False, False, False),
    ],
)
def test_planted_electrodes_are_ranked(order, ranks, best, every, found):
    (one,) = localisation(attribution(ramp(order)), truth(one=(effect(channels=("a", "b")),), two=()))
    assert one.ranks == ranks
    assert (one.best_in_top, one.all_in_top, one.found) == (best, every, found)


def test_roc_is_of_channels_with_half_the_effect_or_more():
    planted = replace(effect(), topography=(1.0, -0.6, 0.5, 0.49, 0, 0, 0, 0))
    for order, wanted in (("cbadefgh", 1.0), ("defghabc", 0.0)):
        (one,) = localisation(attribution(ramp(order)), truth(one=(planted,), two=()))
        assert one.roc_auc == wanted


def test_share_in_the_band_is_that_of_the_signed_values():
    waves = np.sin(2 * np.pi * 10 * TIMES) + np.sin(2 * np.pi * 30 * TIMES)
    (one,) = localisation(attribution(np.tile(waves, (1, 8, 1))), truth(one=(effect(),), two=()))
    assert one.band.found == pytest.approx(0.5)
    assert one.band.expected == pytest.approx(5 / 51)
    assert one.window is None


def test_share_in_the_window_of_a_deflection():
    values = np.zeros((1, 8, 100))
    values[..., 20:30], values[..., 60:70] = -3.0, 1.0
    (one,) = localisation(attribution(values), truth(one=(effect("deflection", band=None),), two=()))
    assert one.window.found == pytest.approx(0.75)
    assert one.window.expected == pytest.approx(0.21)  # both ends belong to it
    assert one.band is None


def test_of_two_classes_the_one_without_effects_is_expected_to_lack_those_of_the_other():
    values = attribution(np.concatenate([ramp("abcdefgh"), ramp("bacdefgh")]), labels=[0, 1])
    one, two = localisation(values, truth(one=(effect(),), two=()))
    assert (one.class_name, one.ranks, two.class_name, two.ranks) == ("one", (1,), "two", (2,))


def test_classes_without_effects_or_without_trials_are_left_out():
    three = ("one", "two", "three")
    values = attribution(ramp("abcdefgh"), class_names=three)
    assert [one.class_name for one in localisation(values, truth(one=(effect(),), two=(effect(),), three=()))] == [
        "one"
    ]


def test_what_does_not_belong_together_is_refused():
    values = attribution(ramp("abcdefgh"))
    with pytest.raises(MismatchError, match="'truth' has no class 'two'"):
        localisation(values, truth(one=(effect(),), other=()))
    with pytest.raises(MismatchError, match="explain simulated trials with all channels"):
        localisation(replace(values, ch_names=tuple("hgfedcba")), truth(one=(effect(),), two=()))


@pytest.mark.parametrize("wrong", [None, {"one": ()}])
def test_recordings_without_a_truth_are_refused_with_the_remedy(wrong):
    with pytest.raises(MismatchError, match=r"'truth' is (None|a dict); trials.truth of simulated"):
        localisation(attribution(ramp("abcdefgh")), wrong)
    with pytest.raises(MismatchError, match="'attribution' is a ndarray"):
        localisation(ramp("abcdefgh"), truth(one=(effect(),), two=()))


# ---- trained decoders

#: A subject of each set whom a decoder can decode after a few epochs; an explanation finds no more than was learnt.
RECORDINGS = {"simulated-mi": (1, 50), "simulated-ssvep": (1, 30), "simulated-ern": (6, 45)}
IN_ONE_PROCESS = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in RECORDINGS]  # see the cache below


@cache
def explained(name, seed):
    """What the gradients of a trained decoder and of a randomised one find in the test trials, by class."""
    subject, epochs = RECORDINGS[name]
    dataset, trials = find_dataset(name), load(name, subject=subject)
    (split,) = dataset.protocol.splits(trials)
    decoder = GBWAttClassifier(task=dataset.task, validation=trials[split.valid], max_epochs=epochs, seed=seed)
    test = trials[split.test]
    checked = randomisation(decoder.fit(trials[split.train]), test, seed=seed)
    trained, random = (localisation(one, test.truth) for one in (checked.trained, checked.random))
    assert [one.class_name for one in trained] == list(test.class_names)
    return trained, random


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", IN_ONE_PROCESS)
def test_explanation_of_a_trained_decoder_finds_what_was_planted(name, seed):
    """Of each class, every planted electrode is in the top quarter of channels, and their mean is above it."""
    trained, _ = explained(name, seed)
    assert all(one.found and one.all_in_top for one in trained)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", IN_ONE_PROCESS)
def test_explanation_of_a_trained_decoder_lies_in_the_planted_band_or_window(name, seed):
    for one, chance in zip(*explained(name, seed), strict=True):
        if one.class_name == "correct":  # known by what is not there, at no time of its own
            continue
        share, random = (found.window or found.band for found in (one, chance))
        assert share.found > max(1.2 * random.found, 1.3 * share.expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_ONE_PROCESS)
def test_explanation_of_a_randomised_decoder_does_not(name):
    """A class is found by chance now and then, as a quarter of the channels is the top quarter; never are all."""
    pairs = [explained(name, seed) for seed in (0, 1, 2)]
    for trained, random in pairs:
        assert not all(one.found for one in random)
        assert all(one.level > chance.level for one, chance in zip(trained, random, strict=True))
    assert np.mean([one.found for _, random in pairs for one in random]) < 0.5
