"""Sequences of covariance matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.covariance import oas

from gbwatt.errors import DoubleBackwardError, ParameterError, ShapeError
from gbwatt.nn import SegmentCovariance
from gbwatt.nn.covariance import centred_product
from tests.geometry.conftest import assert_close


def features(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_windows_are_centred_normalised_and_lifted():
    """Lengths T // m, the first T % m windows one sample longer."""
    x = features(2, 1, 3, 23)
    found = SegmentCovariance(4, eps=1e-3)(x)
    assert found.shape == (2, 4, 3, 3)
    for trial in range(2):
        for window, (start, stop) in enumerate([(0, 6), (6, 12), (12, 18), (18, 23)]):
            cov = np.cov(x[trial, 0, :, start:stop].numpy())
            expected = cov / np.trace(cov) + 1e-3 * np.eye(3)
            assert_close(found[trial, window], torch.from_numpy(expected), 1e-13)


def test_branches_follow_one_another():
    x = features(2, 3, 4, 20)
    together = SegmentCovariance(2)(x)
    assert together.shape == (2, 6, 4, 4)
    for branch in range(3):
        assert_close(together[:, 2 * branch : 2 * branch + 2], SegmentCovariance(2)(x[:, [branch]]), 1e-13)


def test_means_of_windows_are_embedded():
    """[[C + μ μᵀ, μ], [μᵀ, 1]], divided by its trace, for mean μ and covariance C (ddof 0) of each window."""
    x = features(2, 1, 3, 23) + torch.tensor([3.0, -1.0, 0.0])[:, None]
    embedded = SegmentCovariance(4, eps=1e-3, shrinkage=0.25, embed_mean=True)(x)
    assert embedded.shape == (2, 4, 4, 4)
    for trial in range(2):
        for window, (start, stop) in enumerate([(0, 6), (6, 12), (12, 18), (18, 23)]):
            samples = x[trial, 0, :, start:stop].numpy()
            mean, cov = samples.mean(1), np.cov(samples, ddof=0)
            expected = np.block([[cov + np.outer(mean, mean), mean[:, None]], [mean[None], np.ones((1, 1))]])
            expected = 0.75 * expected / np.trace(expected) + (0.25 / 4 + 1e-3) * np.eye(4)
            assert_close(embedded[trial, window], torch.from_numpy(expected), 1e-13)


@pytest.mark.parametrize("shrinkage", [0.3, "samples", "oas", "learnt"])
def test_embedded_means_have_their_derivative(shrinkage):
    layer = SegmentCovariance(2, shrinkage=shrinkage, embed_mean=True).double()
    x = features(2, 2, 3, 9).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: layer(x).pow(3), x, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e18, 1e30])
def test_embedded_means_of_extreme_amplitudes_are_finite(scale, dtype):
    """The constant row dominates for small amplitudes and vanishes for large ones."""
    x = (scale * features(1, 1, 3, 20)).to(dtype).requires_grad_()
    embedded = SegmentCovariance(1, eps=0, embed_mean=True)(x)
    embedded.square().sum().backward()
    corner = 1.0 if scale < 1 else 0.0
    assert abs(embedded[0, 0, 3, 3].item() - corner) <= 10 * torch.finfo(dtype).eps
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("embed_mean", [False, True])
@pytest.mark.parametrize("shrinkage", [0.0, 0.25, "samples", "oas"])
def test_covariances_that_are_not_normalised_are_the_normalised_ones_times_their_trace(shrinkage, embed_mean):
    x = 3 * features(2, 2, 3, 23)
    plain = SegmentCovariance(4, 0, shrinkage, embed_mean, normalize_trace=False)(x)
    trace = plain.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    assert_close(plain, trace * SegmentCovariance(4, 0, shrinkage, embed_mean)(x), 1e-12)
    if not embed_mean:
        expected = sum(np.var(x[1, 0, row, :6].numpy(), ddof=1) for row in range(3))
        assert trace[1, 0].item() == pytest.approx(expected)
    assert torch.autograd.gradcheck(
        lambda x: SegmentCovariance(4, 1e-5, shrinkage, embed_mean, normalize_trace=False)(x),
        features(1, 1, 2, 9).requires_grad_(),
    )


def test_fixed_shrinkage_moves_towards_the_identity():
    x = features(2, 1, 3, 20)
    plain, shrunk = SegmentCovariance(1, eps=0)(x), SegmentCovariance(1, eps=0, shrinkage=0.25)(x)
    assert_close(shrunk, 0.75 * plain + 0.25 * torch.eye(3, dtype=torch.float64) / 3, 1e-13)
    assert_close(shrunk.diagonal(dim1=-2, dim2=-1).sum(-1), torch.ones(2, 1, dtype=torch.float64), 1e-13)


@pytest.mark.parametrize(("times", "embed_mean"), [(20, False), (100, False), (100, True), (101, False)])
def test_shrinkage_by_samples_adds_as_many_samples_of_white_noise_as_rows(times, embed_mean):
    """A window of L samples of n features and n orthogonal samples with the mean variance of the features."""
    x = features(2, 1, 3, times)
    n, length = 3 + embed_mean, times / 2
    plain = SegmentCovariance(2, eps=0, embed_mean=embed_mean)(x)
    with_noise = (length * plain + n * torch.eye(n, dtype=x.dtype) / n) / (length + n)
    assert_close(SegmentCovariance(2, 0, "samples", embed_mean)(x), with_noise, 1e-13)


@pytest.mark.parametrize("samples", [5, 12, 100])
def test_oas_is_that_of_scikit_learn(samples):
    x = features(1, 1, 6, samples) * torch.arange(1, 7)[:, None]
    x = x - x.mean(-1, keepdim=True)
    expected, _ = oas(x[0, 0].numpy().T, assume_centered=True)
    found = SegmentCovariance(1, eps=0, shrinkage="oas")(x)[0, 0]
    assert_close(found, torch.from_numpy(expected / np.trace(expected)), 1e-12)


def test_learnt_shrinkage_is_trained():
    layer = SegmentCovariance(1, shrinkage="learnt").double()
    found = layer(features(4, 1, 3, 20))
    found[..., 0, 1].sum().backward()
    assert layer.shrinkage_logit.grad.abs() > 0
    assert layer.shrinkage_logit.sigmoid().item() == pytest.approx(0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1e6, 1e-18, 1e18])
def test_amplitudes_do_not_matter(scale, dtype):
    x = features(2, 1, 4, 30).to(dtype)
    layer = SegmentCovariance(3)
    assert_close(layer(scale * x), layer(x), 100 * torch.finfo(dtype).eps)


def test_a_silent_window_gives_the_lifted_zero_and_no_nan():
    x = features(1, 1, 3, 20)
    x[..., :10] = 7.0
    x.requires_grad_()
    found = SegmentCovariance(2, eps=1e-4)(x)
    assert_close(found[0, 0], 1e-4 * torch.eye(3, dtype=torch.float64), 1e-12)
    found.sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_segments": 0}, "n_segments=0"),
        ({"n_segments": 2, "eps": -1.0}, "eps=-1.0"),
        ({"n_segments": 2, "shrinkage": 1.0}, "shrinkage=1.0"),
        ({"n_segments": 2, "shrinkage": "oass"}, "Did you mean 'oas'"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ParameterError, match=message):
        SegmentCovariance(**arguments)


def test_epochs_that_are_too_short_are_refused():
    with pytest.raises(ShapeError, match=r"9 samples .* 5 windows of 1"):
        SegmentCovariance(5)(features(1, 1, 3, 9))


def test_products_of_centred_windows_have_their_derivative():
    x = features(2, 3, 7).requires_grad_()
    centred = x.detach() - x.detach().mean(-1, keepdim=True)
    assert_close(centred_product(x), centred @ centred.mT, 1e-14)
    assert torch.autograd.gradcheck(centred_product, (x + 5,))
    (gradient,) = torch.autograd.grad(centred_product(x).square().sum(), x, create_graph=True)
    with pytest.raises(DoubleBackwardError, match="the covariance of windows"):
        gradient.sum().backward()
