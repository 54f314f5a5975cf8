"""Spatial and temporal filters."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from gbwatt import GBWAtt
from gbwatt.errors import ParameterError
from gbwatt.models.presets import TASKS
from gbwatt.nn import SpatioTemporalFeatures, features
from tests.geometry.conftest import assert_close
from tests.nn.conftest import relative


def plainly(layer: SpatioTemporalFeatures, x: torch.Tensor) -> torch.Tensor:
    """The layer as it is written in the paper: one operation after the other."""
    x = layer.temporal(layer.spatial_norm(layer.spatial(x)))
    return layer.temporal_norm(x).unflatten(1, (layer.branches, -1))


@pytest.mark.parametrize(("kernel", "times"), [(36, 126), (12, 126), (7, 125)])
def test_half_a_kernel_of_zeros_stands_at_either_end(kernel, times):
    layer = SpatioTemporalFeatures(8, 10, 4, kernel)
    assert layer(torch.randn(2, 8, 125)).shape == (2, 1, 4, times)


LAYERS = {
    "more filters than channels": {"n_chans": 3, "n_spatial": 40, "n_temporal": 5, "kernel": 6},
    "as many": {"n_chans": 8, "n_spatial": 8, "n_temporal": 5, "kernel": 7},
    "fewer": {"n_chans": 9, "n_spatial": 4, "n_temporal": 3, "kernel": 1},
    "branches": {"n_chans": 6, "n_spatial": 5, "n_temporal": 4, "kernel": 8, "branches": 3},
    "shared": {"n_chans": 6, "n_spatial": 5, "n_temporal": 4, "kernel": 9, "branches": 3, "shared": True},
}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("sizes", LAYERS.values(), ids=LAYERS)
def test_one_correlation_gives_what_two_convolutions_give(sizes):
    """Values, gradients and running statistics, in training and in evaluation."""
    torch.manual_seed(0)
    layer = SpatioTemporalFeatures(**sizes).double()
    other = copy.deepcopy(layer)
    x = 5 * torch.randn(16, layer.spatial.in_channels, 30, dtype=torch.float64)
    x = x + torch.arange(x.shape[1]).double()[:, None]
    for _ in range(2):
        one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
        value, expected = layer(one), plainly(other, two)
        assert relative(value, expected) <= 1e-13  # sums of at most 300 products, 300 eps
        direction = torch.randn_like(value)
        for module, out in ((layer, value), (other, expected)):
            module.zero_grad()
            (out * direction).sum().backward()
    assert (one.grad - two.grad).abs().max() <= 1e-10 * two.grad.abs().max()
    for (name, one), two in zip(layer.named_parameters(), other.parameters(), strict=True):
        # biases before a batch normalisation change nothing, without ends to see them: their gradients are rounding
        idle = name in ("spatial.bias", "temporal.bias") or (name == "spatial_norm.bias" and sizes["kernel"] == 1)
        assert (one.grad - two.grad).abs().max() <= 1e-10 * (1 if idle else two.grad.abs().max()), name
    for one, two in zip(layer.buffers(), other.buffers(), strict=True):
        assert_close(one.double(), two.double(), 1e-12)
    assert relative(layer.eval()(x), plainly(other.eval(), x)) <= 1e-13


@pytest.mark.parametrize(("n_chans", "branches", "first"), [(7, 1, False), (8, 1, True), (8, 2, False)])
def test_spatial_filters_come_first_if_they_halve_the_channels(n_chans, branches, first, monkeypatch):
    """Of a single group of filters; the results are the same."""
    torch.manual_seed(0)
    layer = SpatioTemporalFeatures(n_chans, n_spatial=4, n_temporal=5, kernel=6, branches=branches)
    x, calls, mix = torch.randn(3, n_chans, 40), [], features.mix
    monkeypatch.setattr(features, "mix", lambda *given: calls.append(given) or mix(*given))
    found = layer(x)
    assert bool(calls) == first
    monkeypatch.setattr(features, "_SPATIAL_FIRST", 1e9 if first else 1)
    assert relative(layer(x), found) <= 1e-6  # sums of at most 48 products


@pytest.mark.parametrize("task", ["mi", "ssvep", "ern"])
def test_single_precision_is_as_good_as_that_of_two_convolutions(task):
    """On channels that share most of what they record, as EEG does."""
    torch.manual_seed(0)
    layer = GBWAtt.for_task(task).features
    x = torch.randn(32, layer.spatial.in_channels, TASKS[task].signal.n_times)
    x = x + 30 * torch.randn(32, 1, x.shape[2])
    exact = plainly(copy.deepcopy(layer).double(), x.double())
    ours, plain = (out.double() for out in (copy.deepcopy(layer)(x), plainly(copy.deepcopy(layer), x)))
    error = (ours - exact).norm() / exact.norm()
    assert error <= max(2e-6, 2 * (plain - exact).norm() / exact.norm())


def test_long_kernels_on_many_channels_go_through_the_fourier_transform():
    x = torch.randn(32, 20, 150)
    assert features._fourier_is_faster(x, torch.randn(20, 20, 40))
    assert not features._fourier_is_faster(x, torch.randn(20, 20, 2))
    assert not features._fourier_is_faster(x[:1], torch.randn(20, 20, 40))
    assert not features._fourier_is_faster(x.bfloat16(), torch.randn(20, 20, 40))


@pytest.mark.usefixtures("way")
def test_gradients_in_evaluation_are_those_of_two_convolutions():
    torch.manual_seed(0)
    layer = SpatioTemporalFeatures(6, 5, 4, 8, branches=2).double()
    layer(3 + torch.randn(9, 6, 40, dtype=torch.float64))  # running statistics
    layer.eval()
    one = torch.randn(3, 6, 40, dtype=torch.float64, requires_grad=True)
    two = one.detach().clone().requires_grad_()
    found = torch.autograd.grad(layer(one).square().sum(), [one, *layer.parameters()])
    expected = torch.autograd.grad(plainly(layer, two).square().sum(), [two, *layer.parameters()])
    for a, b in zip(found, expected, strict=True):
        assert relative(a, b) <= 1e-11


def test_a_frozen_normalisation_keeps_its_statistics():
    layer = SpatioTemporalFeatures(4, 3, 2, 5)
    for norm in (layer.spatial_norm, layer.temporal_norm):
        norm.eval()
    before = copy.deepcopy(layer.state_dict())
    x = 5 + torch.randn(6, 4, 30)
    assert relative(layer(x), plainly(layer, x)) <= 1e-5
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_hooks_of_the_normalisation_are_called():
    layer, seen = SpatioTemporalFeatures(4, 3, 2, 5), []
    layer.temporal_norm.register_forward_hook(lambda *args: seen.append(args[2].shape))
    layer(torch.randn(6, 4, 30))
    assert seen == [(6, 2, 30)]


def test_grouped_branches_have_filters_of_their_own():
    layer = SpatioTemporalFeatures(6, 4, 3, 5, branches=3).eval()
    x = torch.randn(2, 6, 20)
    before = layer(x)
    with torch.no_grad():
        layer.spatial.weight[4:8] += 1  # those of the second branch
    changed = (layer(x) - before).abs().amax((0, 2, 3)) > 0
    assert changed.tolist() == [False, True, False]


def test_shared_branches_start_from_the_same_spatial_filters():
    layer = SpatioTemporalFeatures(6, 4, 3, 5, branches=3, shared=True).eval()
    assert layer.spatial.out_channels == 4
    x = torch.randn(2, 6, 20)
    before = layer(x)
    with torch.no_grad():
        layer.spatial.weight[0] += 1
    assert ((layer(x) - before).abs().amax((0, 2, 3)) > 0).all()


def test_there_is_no_nonlinearity():
    layer = SpatioTemporalFeatures(4, 3, 2, 4).eval()
    x, y = torch.randn(2, 1, 4, 10)
    middle = layer((x + y) / 2)
    assert_close(middle, (layer(x) + layer(y)) / 2, 1e-5)


def test_sizes_must_be_positive():
    with pytest.raises(ParameterError, match="kernel=0"):
        SpatioTemporalFeatures(4, 3, 2, 0)


def test_parameters_are_those_of_two_convolutions_and_two_normalisations():
    layer = SpatioTemporalFeatures(22, 22, 20, 12)
    expected = 22 * 22 + 22 + 2 * 22 + 22 * 20 * 12 + 20 + 2 * 20
    assert sum(p.numel() for p in layer.parameters()) == expected
    assert isinstance(layer.spatial, nn.Conv1d)
