from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gbwatt import plotting
from gbwatt.errors import ParameterError
from gbwatt.explain import METHODS, Attribution, gradient, gradient_times_input, integrated_gradients, smooth_gradient
from gbwatt.models import GBWAtt
from tests.explain.planted import CHANNELS, PLANTED


@pytest.fixture
def smooth():
    """A curved network in float64."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 20, 8), nn.Tanh(), nn.Linear(8, 4)).double()


@pytest.fixture
def epochs():
    return np.random.default_rng(0).standard_normal((5, 3, 20))


def logits(model, x):
    with torch.no_grad():
        return model(torch.as_tensor(x)).numpy()


# ---- laws


@pytest.mark.parametrize("method", METHODS)
def test_attribution_of_a_linear_network_is_its_weights(method, epochs):
    model = nn.Sequential(nn.Flatten(), nn.Linear(60, 4)).double()
    weights = model[1].weight[2].detach().numpy().reshape(3, 20)
    wanted = np.broadcast_to(weights, epochs.shape)
    if method in ("gradient-times-input", "integrated-gradients"):
        wanted = wanted * epochs
    np.testing.assert_allclose(METHODS[method](model, epochs, 2).values, wanted, rtol=1e-12)


def test_gradient_agrees_with_finite_differences(smooth, epochs):
    found, h = gradient(smooth, epochs, 1).values, 1e-6
    for channel, time in ((0, 0), (2, 19), (1, 7)):
        step = np.zeros_like(epochs)
        step[:, channel, time] = h
        slope = (logits(smooth, epochs + step) - logits(smooth, epochs - step))[:, 1] / (2 * h)
        np.testing.assert_allclose(found[:, channel, time], slope, rtol=1e-6)


def test_integrated_gradients_are_complete(smooth, epochs):
    """The values of a trial sum to the difference of its logit and that of silence."""
    labels = np.array([0, 1, 2, 3, 0])
    total = integrated_gradients(smooth, epochs, labels).values.sum(axis=(1, 2))
    difference = (logits(smooth, epochs) - logits(smooth, 0 * epochs))[np.arange(5), labels]
    assert abs(difference).min() > 1e-3
    np.testing.assert_allclose(total, difference, rtol=1e-9)


@pytest.mark.parametrize("task", ["mi", "ssvep", "ern"])
def test_integrated_gradients_of_gbwatt_are_complete_up_to_the_jump_at_silence(task):
    model = GBWAtt.for_task(task, recipe="best").double().eval()
    for norm in (model.features.spatial_norm, model.features.temporal_norm):
        nn.init.normal_(norm.bias, std=0.2)
    x = np.random.default_rng(0).standard_normal((4, model.config["n_chans"], model.config["n_times"]))
    total = integrated_gradients(model, x, 0).values.sum(axis=(1, 2))
    difference = (logits(model, x) - logits(model, 1e-7 * x))[:, 0]
    assert abs(difference).max() > 1e-2
    np.testing.assert_allclose(total, difference, atol=2e-3)


def test_more_steps_bring_integrated_gradients_closer(smooth, epochs):
    difference = (logits(smooth, 3 * epochs) - logits(smooth, 0 * epochs))[:, 0]
    errors = [
        abs(integrated_gradients(smooth, 3 * epochs, 0, steps=n).values.sum(axis=(1, 2)) - difference).max()
        for n in (1, 4, 16)
    ]
    assert errors[0] > 10 * errors[1] > 100 * errors[2]


def test_smooth_gradient_is_the_gradient_without_noise(smooth, epochs):
    found = smooth_gradient(smooth, epochs, 0, noise=0.0, samples=2).values
    np.testing.assert_allclose(found, gradient(smooth, epochs, 0).values)


def test_smooth_gradient_is_the_mean_gradient_of_noisy_epochs(epochs):
    """For z = Σ x³ / 3 it is x² + σ² on average."""

    class Cubic(nn.Module):
        def forward(self, x):
            return (x**3 / 3).sum((1, 2))[:, None]

    found = smooth_gradient(Cubic(), epochs, 0, noise=0.5, samples=400)
    variance = 0.25 * epochs.std(axis=(1, 2), ddof=1) ** 2
    excess = (found.values - epochs**2).mean(axis=(1, 2))
    np.testing.assert_allclose(excess, variance, rtol=0.25)


def test_noise_of_smooth_gradient_follows_the_seed(smooth, epochs):
    one, same, other = (smooth_gradient(smooth, epochs, 0, samples=3, seed=seed).values for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert abs(one - other).max() > 0


# ---- units


def test_gradients_are_per_unit_of_the_recording(decoder, trials):
    in_volts = trials.replace(X=trials.X * 1e-6, unit="V")
    found, again = gradient(decoder, trials).values, gradient(decoder, in_volts).values
    np.testing.assert_allclose(again, 1e6 * found, rtol=1e-3, atol=1e-3 * abs(again).max())
    np.testing.assert_allclose(
        gradient_times_input(decoder, in_volts).values.sum(axis=(1, 2)),
        gradient_times_input(decoder, trials).values.sum(axis=(1, 2)),
        atol=1e-3,
    )


def test_the_scale_of_a_decoder_is_part_of_the_chain(decoder, trials):
    module, scale = decoder.net_.module_, decoder.scale_
    assert scale < 0.5  # epochs of 10 µV
    bare = gradient(module, trials.X * scale, trials.y).values
    np.testing.assert_allclose(gradient(decoder, trials).values, scale * bare, rtol=1e-3, atol=1e-3 * scale)


# ---- results


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_planted_electrodes(method, decoder, trials):
    found = METHODS[method](decoder, trials)
    assert found.method == method
    assert found.values.shape == trials.shape
    largest = [CHANNELS[place] for place in found.channels().argmax(axis=1)]
    assert set(largest) <= set(PLANTED.values())


def test_means_are_of_magnitudes_by_class():
    values = np.array([[[1.0, -3.0]], [[-3.0, 5.0]], [[2.0, 2.0]]])
    found = Attribution(values, np.array([0, 0, 2]), ("a", "b", "c"), ("Cz",), 100.0, 0.5, "gradient")
    np.testing.assert_array_equal(found.by_class(), [[[2.0, 4.0]], [[np.nan, np.nan]], [[2.0, 2.0]]])
    np.testing.assert_array_equal(found.channels(), [[3.0], [np.nan], [2.0]])
    np.testing.assert_allclose(found.times, [0.5, 0.51])


def test_only_classes_that_have_trials_are_present_and_can_be_drawn():
    values = np.array([[[1.0, -3.0]], [[-3.0, 5.0]], [[2.0, 2.0]]])
    found = Attribution(values, np.array([0, 0, 2]), ("a", "b", "c"), ("Cz",), 100.0, 0.5, "gradient").present
    assert found.class_names == ("a", "c")
    np.testing.assert_array_equal(found.by_class(), [[[2.0, 4.0]], [[2.0, 2.0]]])
    drawn = plotting.heatmaps(found.by_class(), found.class_names, found.ch_names, found.times)
    assert [axes.get_title() for axes in drawn.axes][:2] == ["a", "c"]


def test_an_attribution_is_shown_in_a_line(decoder, trials):
    shown = repr(gradient(decoder, trials))
    assert "values=array (60, 6, 64)" in shown
    assert "('left', 'right')" in shown
    assert "method='gradient'" in shown
    assert "\n" not in shown
    assert len(shown) < 250


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        (integrated_gradients, {"steps": 0}),
        (smooth_gradient, {"noise": -0.1}),
        (smooth_gradient, {"samples": 0}),
        (smooth_gradient, {"seed": -1}),
    ],
)
def test_impossible_numbers_are_refused(method, wrong, smooth, epochs):
    (name,) = wrong
    with pytest.raises(ParameterError, match=name):
        method(smooth, epochs, 0, **wrong)
