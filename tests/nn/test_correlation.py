"""Correlation of epochs with filters, by all implementations."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gbwatt.errors import DoubleBackwardError
from gbwatt.nn import _native, features
from tests.geometry.conftest import DTYPES
from tests.nn.conftest import relative

#: batch, inputs, outputs, length, times, padding
SIZES = [
    (3, 4, 5, 7, 30, 3),
    (2, 3, 2, 8, 31, 4),
    (1, 1, 1, 1, 9, 0),
    (2, 3, 4, 10, 10, 0),
    (2, 3, 4, 10, 4, 5),
    (1, 9, 17, 3, 200, 2),
    (7, 2, 6, 5, 1, 2),
    (2, 3, 4, 4, 9, 6),
]


def epochs(size, dtype=torch.float64, constant=True):
    """Epochs, filters, with a constant input or without, and a bias."""
    torch.manual_seed(0)
    batch, n_in, n_out, length, times, padding = size
    x, kernel = torch.randn(batch, n_in, times), torch.randn(n_out, n_in + constant, length)
    return x.to(dtype), kernel.to(dtype), padding, torch.randn(n_out).to(dtype)


def plainly(x, kernel, padding, bias):
    """By conv1d, with the constant as a channel of its own."""
    ones = x.new_ones(len(x), kernel.shape[1] - x.shape[1], x.shape[2])
    return nn.functional.conv1d(torch.cat([x, ones], 1), kernel, bias, padding=padding)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_values_and_derivatives_are_those_of_conv1d(size, dtype):
    x, kernel, padding, bias = epochs(size, dtype)
    found = [t.clone().requires_grad_() for t in (x, kernel, bias)]
    exact = [t.double().requires_grad_() for t in (x, kernel, bias)]
    y, expected = (f(a, b, padding, c) for f, (a, b, c) in ((features.correlate, found), (plainly, exact)))
    assert y.dtype == dtype
    eps = 100 * torch.finfo(dtype).eps
    assert relative(y, expected) <= eps
    direction = torch.randn_like(y)
    y.backward(direction)
    expected.backward(direction.double())
    for a, b in zip(found, exact, strict=True):
        assert relative(a.grad, b.grad) <= eps


@pytest.mark.usefixtures("way")
def test_filters_without_a_constant_input_have_no_ends():
    x, kernel, padding, _ = epochs(SIZES[0], constant=False)
    expected = nn.functional.conv1d(x, kernel, padding=padding)
    assert relative(features.correlate(x, kernel, padding), expected) <= 1e-13
    bias = torch.randn(len(kernel), dtype=x.dtype)
    assert relative(features.correlate(x, kernel, padding, bias), expected + bias[:, None]) <= 1e-13


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "n_in", "n_out", "times"), [(1, 1, 1, 1), (5, 7, 3, 33), (9, 20, 11, 64)])
def test_mixtures_of_channels_are_products(batch, n_in, n_out, times, dtype):
    """Also of epochs that are not dense; values and derivatives."""
    torch.manual_seed(0)
    x = torch.randn(batch, times, 2 * n_in).to(dtype).mT[:, ::2]
    given = [x, torch.randn(n_out, n_in).to(dtype), torch.randn(n_out).to(dtype)]
    found, exact = ([t.clone().to(d).requires_grad_() for t in given] for d in (dtype, torch.float64))
    y, expected = features.mix(*found), exact[1] @ exact[0] + exact[2][:, None]
    eps = 30 * torch.finfo(dtype).eps
    assert relative(y, expected) <= eps
    assert relative(features.mix(x, *given[1:]), expected) <= eps
    direction = torch.randn_like(y)
    y.backward(direction)
    expected.backward(direction.double())
    for a, b in zip(found, exact, strict=True):
        assert relative(a.grad, b.grad) <= eps


@pytest.mark.usefixtures("way")
def test_epochs_need_not_be_dense():
    x, kernel, padding, bias = epochs((4, 6, 5, 7, 60, 3))
    expected = features.correlate(x[::2, 1::2, ::3].contiguous(), kernel[:, :4], padding, bias)
    assert relative(features.correlate(x[::2, 1::2, ::3], kernel[:, :4], padding, bias), expected) <= 1e-14
    turned = x.mT.contiguous().mT
    expected = features.correlate(x, kernel, padding, bias)
    assert relative(features.correlate(turned, kernel, padding, bias), expected) <= 1e-14


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("training", [True, False])
def test_a_normalised_correlation_is_the_normalisation_of_a_correlation(training):
    """On results whose mean is far from zero; gradients too, and what the normalisation keeps."""
    x, kernel, padding, bias = epochs((5, 3, 4, 6, 33, 3))
    bias = bias + 1e4
    ours, theirs = nn.BatchNorm1d(4).double(), nn.BatchNorm1d(4).double()
    for norm in (ours, theirs):
        nn.init.uniform_(norm.weight.data, 0.5, 0.5)
        norm.running_mean.fill_(1e4)
        norm.train(training)
    one, two = ([t.clone().requires_grad_() for t in (x, kernel)] for _ in range(2))
    found = features.normalised_correlation(*one, padding, bias, ours)
    expected = theirs(plainly(*two, padding, bias))
    assert relative(found, expected) <= 1e-10
    found.pow(3).sum().backward()
    expected.pow(3).sum().backward()
    for a, b in zip([*one, *ours.parameters()], [*two, *theirs.parameters()], strict=True):
        assert relative(a.grad, b.grad) <= 1e-8
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        assert torch.allclose(a.double(), b.double(), rtol=1e-12, atol=0)


def test_a_variance_needs_more_than_one_sample():
    x, kernel, padding, bias = epochs((1, 3, 4, 1, 1, 0))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        features.normalised_correlation(x, kernel, padding, bias, nn.BatchNorm1d(4).double())


def test_second_derivatives_of_the_compiled_filters_are_refused():
    if not _native.available():
        pytest.skip("torch has them")
    x, kernel, padding, bias = epochs(SIZES[0])
    x.requires_grad_()
    y = features.correlate(x, kernel, padding, bias)
    (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(DoubleBackwardError, match="the correlation of epochs"):
        gradient.sum().backward()
    y = features.normalised_correlation(x, kernel, padding, bias, nn.BatchNorm1d(5).double())
    (gradient,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
    with pytest.raises(DoubleBackwardError, match="the normalised correlation of epochs"):
        gradient.sum().backward()


def test_other_precisions_and_empty_batches_take_the_torch_path():
    x, kernel, padding, bias = epochs(SIZES[0])
    low = features.correlate(x.bfloat16(), kernel.bfloat16(), padding, bias.bfloat16())
    assert low.dtype == torch.bfloat16
    assert relative(low, plainly(x, kernel, padding, bias)) < 0.05
    assert features.correlate(x[:0], kernel, padding, bias).shape == (0, 5, 30)
