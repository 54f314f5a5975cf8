"""Properties of the compiled filters and covariances that torch does not share."""

from __future__ import annotations

import pytest
import torch

from gbwatt.nn import SegmentCovariance, _native, features
from tests.geometry.conftest import DTYPES
from tests.nn.conftest import relative


@pytest.fixture
def kernel_only():
    if not _native.available():
        pytest.skip("the kernel was not built")


@pytest.fixture
def threads():
    """Sets the number of threads, and sets it back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def everything(x, kernel, weight, bias):
    """What all functions of the kernel return."""
    y = _native.correlate(x, kernel, bias, 3)
    out, moments = _native.normalise(y, weight, bias, 1e-5)
    gradients, coefficients = _native.normalise_gradient(y, out, weight, moments, 1e-5)
    filters = _native.filter_gradient(x, out, kernel, 3, y, coefficients)
    mixed = _native.mix(x, kernel[:, :-1, 0], bias)
    covariances = _native.covariances(out, 3, 0.9, 1e-3)
    embedded = _native.covariances(out, 3, 0.9, 1e-3, embed_mean=True)
    return [
        y,
        out,
        moments,
        gradients,
        filters,
        _native.channel_moments(x),
        mixed,
        *_native.mix_gradient(x, mixed),
        covariances,
        _native.covariance_gradient(out, covariances, 0.9),
        embedded,
        _native.covariance_gradient(out, embedded, 0.9, embed_mean=True),
    ]


@pytest.mark.usefixtures("kernel_only")
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_the_number_of_threads(dtype, threads):
    torch.manual_seed(0)
    x, kernel = torch.randn(37, 5, 90).to(dtype), torch.randn(6, 6, 7).to(dtype)
    weight, bias = torch.rand(6).to(dtype), torch.randn(6).to(dtype)
    threads(1)
    alone = everything(x, kernel, weight, bias)
    for number in (2, 3):
        threads(number)
        for a, b in zip(everything(x, kernel, weight, bias), alone, strict=True):
            assert torch.equal(a, b)


@pytest.mark.usefixtures("kernel_only")
@pytest.mark.parametrize("times", [20, 30, 100])
def test_the_result_of_a_trial_does_not_depend_on_its_batch(times, monkeypatch):
    """Whether it is one block, an even number of them or an odd one."""
    monkeypatch.setattr(_native, "block_size", lambda *_: 32)
    torch.manual_seed(0)
    x, kernel, bias = torch.randn(13, 3, times), torch.randn(4, 4, 9), torch.randn(4)
    x[::2] *= 1e8
    whole, mixed = _native.correlate(x, kernel, bias, 4), _native.mix(x, kernel[:, :3, 0], bias)
    for trial in (0, 7, 12):
        assert torch.equal(_native.correlate(x[[trial]], kernel, bias, 4)[0], whole[trial])
        assert torch.equal(_native.mix(x[[trial]], kernel[:, :3, 0], bias)[0], mixed[trial])


@pytest.mark.usefixtures("kernel_only")
def test_blocks_of_any_size_give_the_same(monkeypatch):
    torch.manual_seed(0)
    x, kernel, bias = (torch.randn(*s, dtype=torch.float64) for s in ((3, 5, 100), (4, 6, 12), (4,)))
    y = _native.correlate(x, kernel, bias, 6)
    gradient = _native.filter_gradient(x, y, kernel, 6)
    for size in (16, 32, 64, 128, 256):
        monkeypatch.setattr(_native, "block_size", lambda *_, size=size: size)
        assert relative(_native.correlate(x, kernel, bias, 6), y) <= 1e-13
        assert relative(_native.filter_gradient(x, y, kernel, 6), gradient) <= 1e-13


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 64, 300])
def test_blocks_hold_the_filter_and_are_powers_of_two(length):
    size = _native.block_size(22, 20, length, 400, 16)
    assert size >= max(16, length)
    assert size.bit_count() == 1


@pytest.mark.usefixtures("kernel_only")
def test_sums_of_channels_are_exact_where_single_precision_is_not():
    torch.manual_seed(0)
    x = 1000 + torch.randn(9, 7, 50)
    moments, exact = _native.channel_moments(x), x.double()
    assert relative(moments[:, :-1], torch.einsum("bit,bjt->ij", exact, exact)) <= 1e-14
    assert relative(moments[:, -1], exact.sum((0, 2))) <= 1e-14


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_a_number_is_seen_in_its_trial(value):
    torch.manual_seed(0)
    x, kernel = torch.randn(24, 3, 100), torch.randn(4, 4, 6)
    clean = features.correlate(x, kernel, 3, torch.zeros(4))
    x[5, 1, 50] = value
    y = features.correlate(x, kernel, 3, torch.zeros(4))
    assert not y[5].isfinite().all(-1).any()
    covariances = SegmentCovariance(2)(y[:, None])
    assert not covariances[5].isfinite().all()
    others = [trial for trial in range(24) if trial != 5]
    assert torch.equal(y[others], clean[others])


@pytest.mark.usefixtures("kernel_only")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 1, 3, 23), (3, 2, 5, 40), (1, 1, 1, 8), (2, 3, 20, 146), (1, 1, 4, 9)])
@pytest.mark.parametrize("shrinkage", [0.0, 0.2, "samples", "oas"])
@pytest.mark.parametrize("embed_mean", [False, True])
def test_both_paths_give_the_same_covariances_and_gradients(shape, shrinkage, embed_mean, dtype, monkeypatch):
    torch.manual_seed(0)
    x = (3 + torch.randn(shape)).to(dtype)
    layer = SegmentCovariance(4, shrinkage=shrinkage, embed_mean=embed_mean)
    results = []
    for _ in range(2):
        point = x.clone().requires_grad_()
        found = layer(point)
        results.append((found.detach(), *torch.autograd.grad(found.pow(3).sum(), point)))
        monkeypatch.setattr(_native, "_filters", None)
    for a, b in zip(*results, strict=True):
        assert (a - b).abs().max() <= 200 * torch.finfo(dtype).eps * max(1, b.abs().max())


@pytest.mark.usefixtures("kernel_only")
def test_covariances_are_symmetric_to_the_last_bit_and_need_no_dense_features():
    torch.manual_seed(0)
    x = torch.randn(4, 50, 9).mT[:, None]
    for embed_mean in (False, True):
        layer = SegmentCovariance(3, embed_mean=embed_mean)
        covariances = layer(x)
        assert torch.equal(covariances, covariances.mT)
        assert torch.equal(covariances, layer(x.contiguous()))
