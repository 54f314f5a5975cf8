"""Moments of tokens: matrices that contain mean and covariance of groups of features."""

from __future__ import annotations

import pytest
import torch

from gbwatt.errors import InputError
from gbwatt.nn.covariance import TokenMoments


@pytest.fixture
def tokens():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 4, 5, 12, dtype=torch.float64, generator=generator) + 0.3


def test_matrices_hold_second_moment_and_mean_of_each_group(tokens):
    found = TokenMoments(n_groups=2, eps=0.0)(tokens)
    assert found.shape == (3, 2, 5, 5)
    samples = tokens[1, :, :, 6:].flatten(1)  # the second half of the features, in all segments
    samples = samples / samples.square().mean().sqrt()
    mean, cov = samples.mean(1), torch.cov(samples, correction=0)
    expected = torch.cat(
        [
            torch.cat([cov + torch.outer(mean, mean), mean[:, None]], dim=1),
            torch.cat([mean, torch.ones(1, dtype=torch.float64)])[None],
        ]
    )
    torch.testing.assert_close(found[1, 1], expected / 5)


def test_matrices_are_positive_definite_of_trace_one(tokens):
    found = TokenMoments(n_groups=3, eps=0.0)(tokens)
    torch.testing.assert_close(found.diagonal(dim1=-2, dim2=-1).sum(-1), torch.ones(3, 3, dtype=torch.float64))
    assert torch.equal(found, found.mT)
    assert torch.linalg.eigvalsh(found).min() > 1e-4


def test_scale_of_tokens_does_not_matter_but_their_mean_does(tokens):
    moments = TokenMoments(n_groups=2)
    torch.testing.assert_close(moments(1e3 * tokens), moments(tokens))
    assert (moments(tokens + 1) - moments(tokens)).abs().max() > 0.01


def test_equal_tokens_are_lifted_and_shrinkage_draws_to_the_identity(tokens):
    flat = torch.ones_like(tokens)
    assert torch.linalg.eigvalsh(TokenMoments(2, eps=1e-3)(flat)).min() == pytest.approx(1e-3)
    assert torch.isfinite(TokenMoments(2)(torch.zeros_like(tokens))).all()
    shrunk = TokenMoments(2, eps=0.0, shrinkage=0.5)(tokens)
    torch.testing.assert_close(shrunk, 0.5 * TokenMoments(2, eps=0.0)(tokens) + 0.1 * torch.eye(5, dtype=torch.float64))


def test_gradient_is_that_of_finite_differences(tokens):
    x = tokens[:1, :, :2, :4].clone().requires_grad_()
    assert torch.autograd.gradcheck(TokenMoments(n_groups=2), (x,))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TokenMoments(0), "n_groups=0"),
        (lambda: TokenMoments(2, shrinkage=1.0), r"shrinkage=1.0 must be in \[0, 1\)"),
        (lambda: TokenMoments(2, eps=-1.0), r"eps=-1.0 must be in \[0, 1\)"),
        (lambda: TokenMoments(5)(torch.zeros(2, 3, 4, 12)), "n_groups=5 divides"),
        (lambda: TokenMoments(2)(torch.zeros(2, 3, 12)), r"\(2, 3, 12\) must be \(batch, channels, segments, width\)"),
    ],
)
def test_what_cannot_be_is_refused(make, said):
    with pytest.raises(InputError, match=said):
        make()
