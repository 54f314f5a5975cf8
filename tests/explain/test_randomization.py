from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from torch import nn

from gbwatt.errors import ParameterError
from gbwatt.explain import gradient, randomisation, randomised
from gbwatt.models import GBWAtt


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def test_a_randomised_decoder_decodes_by_chance_and_the_trained_one_is_untouched(decoder, trials):
    before, draw = weights(decoder.net_.module_), torch.get_rng_state()
    random = randomised(decoder, seed=1)
    assert type(random) is type(decoder)
    assert abs(random.score(trials) - 0.5) < 0.25
    assert same(before, weights(decoder.net_.module_))
    assert torch.equal(draw, torch.get_rng_state())


def test_random_weights_follow_the_seed(decoder):
    one, again, other = (weights(randomised(decoder, seed).net_.module_) for seed in (0, 0, 1))
    assert same(one, again)
    assert not torch.equal(one["final_layer.weight"], other["final_layer.weight"])


def test_every_drawn_weight_of_a_network_is_new():
    model = GBWAtt(n_chans=6, n_outputs=2, n_times=64).double()
    with torch.no_grad():
        model.attention.metric.M.mul_(2)
    random = randomised(model)
    assert random.final_layer.weight.dtype == torch.float64
    for name in ("features.spatial.weight", "features.temporal.weight", "attention.query.weight", "final_layer.weight"):
        assert not torch.allclose(random.get_parameter(name), model.get_parameter(name))
    assert torch.equal(random.attention.metric.M, torch.eye(len(random.attention.metric.M)).double())


def test_any_network_of_layers_that_can_be_reset():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    nn.init.constant_(model[2].weight, 5)
    random = randomised(model)
    assert not torch.equal(random[1].weight, model[1].weight)
    assert random[2].weight.tolist() == [1.0] * 8
    assert model[2].weight.tolist() == [5.0] * 8


def test_parameters_that_nothing_draws_are_named():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return x.mean((1, 2))[:, None] * self.scale

    with pytest.raises(ParameterError, match=r"'0', a Own, .* reset_parameters"):
        randomised(nn.Sequential(Own()))


def test_attribution_changes_with_the_weights(decoder, trials):
    found = randomisation(decoder, trials)
    assert found.correlation.shape == (2,)
    assert (abs(found.correlation) < 0.6).all()
    np.testing.assert_array_equal(found.trained.values, gradient(decoder, trials).values)


def test_an_attribution_that_ignores_the_weights_is_found_out(trials):
    """The gradient of w Σ x² has the magnitude of x, whatever w is."""

    class Power(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(1, 2)

        def forward(self, x):
            return self.last(x.square().mean((1, 2))[:, None])

    found = randomisation(Power(), trials, 0)
    assert found.correlation[0] > 0.99
    assert np.isnan(found.correlation[1])  # no trial was explained as that class


@pytest.mark.parametrize("method", ["gradient-times-input", "integrated-gradients"])
def test_the_epoch_itself_makes_no_two_maps_alike(method):
    """Weights that are drawn anew are unrelated to the old ones, though the epoch is a factor of both maps."""
    loud = np.exp(2 * np.random.default_rng(0).standard_normal((1, 6, 64))) * np.ones((5, 1, 1))
    model = nn.Sequential(nn.Flatten(), nn.Linear(6 * 64, 2)).double()
    found = randomisation(model, loud, 0, method=method)
    alike = np.corrcoef(rankdata(found.trained.by_class()[0]), rankdata(found.random.by_class()[0]))[0, 1]
    assert alike > 0.5
    assert abs(found.correlation[0]) < 0.15


def test_a_silent_channel_is_no_division_by_zero(decoder, trials):
    silent = trials.X.copy()
    silent[:, 0] = 0
    found = randomisation(decoder, trials.replace(X=silent), method="gradient-times-input")
    assert np.isfinite(found.correlation).all()


def test_a_comparison_is_shown_in_a_line(decoder, trials):
    shown = repr(randomisation(decoder, trials))
    assert shown.startswith("Randomisation(trained=Attribution(…), random=Attribution(…), correlation=[")
    assert len(shown) < 120


def test_both_networks_explain_the_class_that_the_trained_one_predicts(decoder, trials):
    found = randomisation(decoder, trials, "predicted", method="gradient-times-input")
    assert found.random.labels.tolist() == found.trained.labels.tolist() == decoder.predict(trials).tolist()
    assert found.random.method == "gradient-times-input"


def test_an_unknown_method_is_refused(decoder, trials):
    with pytest.raises(ParameterError, match="Did you mean 'smooth-gradient'"):
        randomisation(decoder, trials, method="smoth-gradient")
