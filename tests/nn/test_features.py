"""Spatial and temporal filters."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from gbwatt.checks import ParameterError
from gbwatt.nn import SpatioTemporalFeatures
from tests.geometry.conftest import assert_close


def plainly(layer: SpatioTemporalFeatures, x: torch.Tensor) -> torch.Tensor:
    """The layer as it is written in the paper: one operation after the other."""
    x = layer.temporal(layer.spatial_norm(layer.spatial(x)))
    return layer.temporal_norm(x).unflatten(1, (layer.branches, -1))


@pytest.mark.parametrize(("kernel", "times"), [(36, 126), (12, 126), (7, 125)])
def test_half_a_kernel_of_zeros_stands_at_either_end(kernel, times):
    layer = SpatioTemporalFeatures(8, 10, 4, kernel)
    assert layer(torch.randn(2, 8, 125)).shape == (2, 1, 4, times)


@pytest.mark.parametrize("n_chans", [3, 8])
def test_many_spatial_filters_are_multiplied_out_to_the_same_result(n_chans):
    """Values, gradients and running statistics, in training and in evaluation."""
    torch.manual_seed(0)
    layer = SpatioTemporalFeatures(n_chans, 40, 5, 6).double()
    other = copy.deepcopy(layer)
    x = 5 * torch.randn(16, n_chans, 30, dtype=torch.float64) + torch.arange(n_chans).double()[:, None]
    for _ in range(2):
        value, expected = layer(x), plainly(other, x)
        assert_close(value, expected, 1e-11)
        direction = torch.randn_like(value)
        for module, out in ((layer, value), (other, expected)):
            module.zero_grad()
            (out * direction).sum().backward()
    for (name, one), two in zip(layer.named_parameters(), other.parameters(), strict=True):
        scale = 1 if name.endswith(("spatial.bias", "temporal.bias")) else two.grad.abs().max()
        # biases before a batch normalisation change nothing: their gradients are rounding
        assert (one.grad - two.grad).abs().max() <= 1e-10 * scale, name
    for one, two in zip(layer.buffers(), other.buffers(), strict=True):
        assert_close(one.double(), two.double(), 1e-12)
    assert_close(layer.eval()(x), plainly(other.eval(), x), 1e-11)


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
