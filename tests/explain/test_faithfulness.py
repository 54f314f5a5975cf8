from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from gbwatt.errors import MismatchError, ParameterError, ShapeError
from gbwatt.explain import METHODS, Attribution, Curve, deletion, gradient, insertion
from gbwatt.explain.quality import _cell_indices
from tests.explain.planted import make_trials


class OneSample(nn.Module):
    """Knows one class by the magnitude of one channel in the last quarter of the epoch."""

    def forward(self, x):
        return torch.stack([x[:, 2, -5:].abs().sum(1), torch.ones(len(x))], dim=1)


@pytest.fixture
def epochs():
    return np.full((3, 4, 20), 1.0)


def exact(epochs, values=None):
    if values is None:
        values = np.zeros(epochs.shape)
        values[:, 2, -5:] = -1  # the sign does not matter
    return Attribution(values, np.zeros(3, int), ("0", "1"), tuple("0123"), 1.0, 0.0, "gradient")


def silenced(curve, epochs, **options):
    return curve(OneSample(), epochs, exact(epochs), replacement="silence", windows=4, steps=16, **options)


def test_the_most_important_cell_goes_first(epochs):
    gone = silenced(deletion, epochs)
    np.testing.assert_allclose(gone.probability[:, 0], 1 / (1 + np.exp(1 - 5)), rtol=1e-5)
    np.testing.assert_allclose(gone.probability[:, 1:], 1 / (1 + np.exp(1)), rtol=1e-5)


def test_the_most_important_cell_comes_first(epochs):
    back = silenced(insertion, epochs)
    np.testing.assert_allclose(back.probability[:, 0], 1 / (1 + np.exp(1)), rtol=1e-5)
    np.testing.assert_allclose(back.probability[:, 1:], 1 / (1 + np.exp(1 - 5)), rtol=1e-5)


def test_random_orders_find_the_cell_half_way_on_average(epochs):
    gone = silenced(deletion, epochs, orders=60)
    full, none = gone.probability[0, 0], gone.probability[0, -1]
    assert gone.random_areas.mean() == pytest.approx((full + none) / 2, abs=0.05)


@pytest.mark.parametrize("replacement", ["others", "silence"])
def test_curves_begin_with_the_epoch_and_end_with_what_replaces_it(replacement, decoder, trials):
    found = gradient(decoder, trials)
    gone, back = (f(decoder, trials, found, replacement=replacement, steps=3, orders=1) for f in (deletion, insertion))
    whole = decoder.predict_proba(trials)[np.arange(len(trials)), trials.y]
    for curve in (gone.probability, gone.random, back.probability[:, ::-1], back.random[:, ::-1]):
        np.testing.assert_allclose(curve[:, 0], whole, atol=1e-4)
        np.testing.assert_allclose(curve[:, -1], gone.probability[:, -1], atol=1e-4)
    if replacement == "silence":
        silence = decoder.predict_proba(0 * trials.X)[np.arange(len(trials)), trials.y]
        np.testing.assert_allclose(gone.probability[:, -1], silence, atol=1e-4)


@pytest.mark.parametrize("n", [2, 3, 50])
def test_each_epoch_is_replaced_by_another_one(n):
    class Number(nn.Module):
        def forward(self, x):
            seen.append(x[:, 0, 0].tolist())
            return x[:, 0, :2]

    seen, x = [], np.broadcast_to(np.arange(n)[:, None, None], (n, 1, 4)).astype(np.float64)
    found = Attribution(x + 1, np.zeros(n, int), ("0", "1"), ("0",), 1.0, 0.0, "gradient")
    deletion(Number(), x, found, steps=1, windows=1, orders=1)
    last = seen[-1]
    assert sorted(last) == list(range(n))
    assert all(other != own for own, other in enumerate(last))


@pytest.mark.parametrize("method", METHODS)
def test_attributions_of_a_trained_decoder_beat_random_orders(method, decoder):
    trials = make_trials(seed=2)
    found = METHODS[method](decoder, trials)
    assert deletion(decoder, trials, found).gain > 0.05
    assert insertion(decoder, trials, found).gain > 0.05


def test_the_opposite_order_loses_against_random_ones(decoder):
    trials = make_trials(seed=2)
    found = gradient(decoder, trials)
    wrong = replace(found, values=1 / (abs(found.values) + 1e-9))
    assert deletion(decoder, trials, wrong).gain < -0.05


def test_areas_are_those_under_the_curves():
    fraction = np.array([0, 0.5, 1.0])
    curve = Curve("deletion", fraction, np.array([[1.0, 0.5, 0.0]]), np.array([[1.0, 1.0, 0.0]]))
    assert curve.areas.tolist() == [0.5]
    assert curve.random_areas.tolist() == [0.75]
    assert curve.gain == 0.25
    assert replace(curve, kind="insertion").gain == -0.25


def test_random_orders_follow_the_seed(epochs):
    one, same, other = (silenced(deletion, epochs, orders=1, seed=seed).random for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.parametrize(("n_times", "windows"), [(20, 4), (21, 4), (5, 5), (438, 8)])
def test_cells_cover_every_sample_in_stretches_of_nearly_one_length(n_times, windows):
    sizes = np.bincount(_cell_indices((3, n_times), windows).ravel())
    assert len(sizes) == 3 * windows
    assert sizes.max() - sizes.min() <= 1


def test_an_attribution_of_other_trials_is_refused(decoder, trials):
    with pytest.raises(ShapeError, match="pass the trials that it was computed for"):
        deletion(decoder, trials[:10], gradient(decoder, trials))


def test_values_without_names_are_refused(decoder, trials):
    with pytest.raises(MismatchError, match="'attribution' is a ndarray; an Attribution is needed"):
        deletion(decoder, trials, gradient(decoder, trials).values)


def test_a_curve_is_shown_in_a_line():
    long = np.zeros((30, 11))
    shown = repr(Curve("deletion", long[0], long, long))
    assert shown == "Curve(kind='deletion', fraction=array (11,), probability=array (30, 11), random=array (30, 11))"


def test_a_single_trial_has_no_others(epochs):
    one = Attribution(epochs[:1], np.zeros(1, int), ("0", "1"), tuple("0123"), 1.0, 0.0, "gradient")
    with pytest.raises(ParameterError, match="two trials or more"):
        deletion(OneSample(), epochs[:1], one)
    assert deletion(OneSample(), epochs[:1], one, replacement="silence").probability.shape == (1, 11)


@pytest.mark.parametrize(
    "wrong", [{"replacement": "noise"}, {"windows": 0}, {"windows": 21}, {"steps": 0}, {"orders": 0}, {"seed": -1}]
)
def test_impossible_numbers_are_refused(wrong, epochs):
    (name,) = wrong
    with pytest.raises(ParameterError, match=name):
        deletion(OneSample(), epochs, exact(epochs), **wrong)
