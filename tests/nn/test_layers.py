"""Bilinear maps, eigenvalue layers, embedding and batch normalisation."""

from __future__ import annotations

import pytest
import torch

from gbwatt.errors import ParameterError, ShapeError
from gbwatt.geometry import AffineInvariant, logm, reeig, vech
from gbwatt.geometry.linalg import congruence, invsqrtm
from gbwatt.nn import BiMap, Embedding, LogEig, ReEig, SegmentCovariance, SPDBatchNorm, Templates
from gbwatt.nn.optim import RiemannianAdam, on_manifold
from tests.geometry.conftest import assert_close

AIM = AffineInvariant()


def test_bilinear_map_is_a_congruence_with_orthonormal_columns(spd):
    layer, x = BiMap(6, 4).double(), spd(3, k=6)
    w = layer.weight
    assert w.shape == (6, 4)
    assert on_manifold(w)
    assert_close(w.mT @ w, torch.eye(4, dtype=torch.float64), 1e-6)
    assert_close(layer(x), w.mT @ x @ w, 1e-13)


@pytest.mark.parametrize(("n", "k", "batch"), [(1, 1, 1), (5, 2, 3), (15, 12, 37), (20, 18, 16)])
def test_derivatives_of_a_bilinear_map_are_those_of_the_product(spd, n, k, batch):
    layer, x = BiMap(n, k).double(), spd(batch, 2, k=n).requires_grad_()
    weight = torch.randn(batch, 2, k, k, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    w = layer.weight.detach().clone().requires_grad_()
    want = torch.autograd.grad((weight * (w.mT @ (x + x.mT) / 2 @ w)).sum(), (x, w))
    found = torch.autograd.grad((weight * layer(x)).sum(), (x, layer.weight))
    for got, right in zip(found, want, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-11, atol=1e-11)


def test_bilinear_map_cannot_raise_the_dimension():
    with pytest.raises(ParameterError, match="k=7 must be between 1 and n=6"):
        BiMap(6, 7)


def test_layers_are_their_functions(spd):
    x = spd(3, k=5, cond=1e6)
    assert_close(ReEig(1e-3)(x), reeig(x, 1e-3), 1e-13)
    assert_close(LogEig()(x), logm(x), 1e-10)


@pytest.mark.parametrize("eps", [1e-9, 1e-2])
def test_embedding_is_rectification_logarithm_and_upper_triangle(spd, eps):
    x = spd(2, 3, k=4, cond=1e5)
    found = Embedding(eps=eps)(x)
    assert found.shape == (2, 30)
    assert_close(found.reshape(2, 3, 10), vech(logm(reeig(x, eps))), 1e-9)
    assert_close(Embedding(logarithm=False)(x), vech(x).flatten(1), 0)


@pytest.mark.parametrize("kind", ["spread", "repeated", "gap"])
def test_embedding_has_the_right_gradient(spd, kind):
    x = spd(2, 2, k=3, cond=100.0, kind=kind).requires_grad_()
    layer = Embedding(eps=0.05)

    def symmetrised(x):
        return layer((x + x.mT) / 2)

    assert torch.autograd.gradcheck(symmetrised, x)


@pytest.mark.parametrize("layer", [ReEig, Embedding])
def test_threshold_must_be_positive(layer):
    with pytest.raises(ParameterError, match="eps=0"):
        layer(eps=0.0)


def test_batch_normalisation_takes_the_converged_mean_and_not_one_karcher_step(spd):
    layer, x = SPDBatchNorm(4).double(), spd(10, 1, k=4)
    arithmetic = x.mean((0, 1))
    step = AIM.exp(arithmetic, AIM.log(arithmetic, x).mean((0, 1)))
    eye = torch.eye(4, dtype=torch.float64)
    assert float(AIM.dist(AIM.mean(congruence(invsqrtm(step), x)[:, 0]), eye)) > 1e-3
    assert float(AIM.dist(AIM.mean(layer(x).detach()[:, 0]), eye)) < 1e-9


def test_batch_normalisation_moves_the_mean_of_the_batch_to_its_bias(spd):
    layer, x = SPDBatchNorm(4).double(), spd(10, 1, k=4)
    assert_close(AIM.mean(layer(x)[:, 0]), torch.eye(4, dtype=torch.float64), 1e-9)
    with torch.no_grad():
        layer.bias.copy_(spd(k=4, seed=1))
    assert_close(AIM.mean(layer(x)[:, 0]), layer.bias.detach(), 1e-9)


def test_running_mean_moves_along_the_geodesic_and_is_used_in_evaluation(spd):
    layer, x = SPDBatchNorm(4, momentum=0.25).double(), spd(10, 1, k=4)
    eye = torch.eye(4, dtype=torch.float64)
    layer(x)
    assert_close(layer.running_mean, AIM.geodesic(eye, AIM.mean(x[:, 0]), 0.25), 1e-10)
    for _ in range(60):
        layer(x)
    assert_close(AIM.mean(layer.eval()(x)[:, 0]), eye, 1e-6)


def test_bias_of_the_normalisation_is_trained_on_its_manifold(spd):
    layer, x, target = SPDBatchNorm(3).double(), spd(8, 1, k=3), spd(k=3, seed=2)
    optimizer = RiemannianAdam(layer.parameters(), lr=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        AIM.sqdist(AIM.mean(layer(x)[:, 0]), target).backward()
        optimizer.step()
    assert_close(layer.bias.detach(), target, 1e-2)
    assert torch.linalg.eigvalsh(layer.bias.detach()).min() > 0


def test_momentum_is_checked():
    with pytest.raises(ParameterError, match="momentum=0"):
        SPDBatchNorm(3, momentum=0.0)


# ---- templates


def test_templates_are_appended_to_the_features():
    layer = Templates(2, 7).double()
    x = torch.randn(3, 2, 4, 7, dtype=torch.float64)
    extended = layer(x)
    assert extended.shape == (3, 2, 6, 7)
    assert torch.equal(extended[:, :, :4], x)
    assert torch.equal(extended[1, 1, 4:], layer.weight)
    extended[..., 4:, :].sum().backward()
    assert torch.equal(layer.weight.grad, torch.full((2, 7), 6.0, dtype=torch.float64))


def test_the_gradients_of_templates_in_covariances_are_those_of_finite_differences():
    layer, covariance = Templates(2, 8).double(), SegmentCovariance(2, shrinkage=0.1, embed_mean=True).double()
    x = torch.randn(3, 1, 2, 8, dtype=torch.float64, requires_grad=True)

    def embedded(x, templates):
        extended = torch.func.functional_call(layer, {"weight": templates}, (x,))
        return covariance(extended)

    assert torch.autograd.gradcheck(embedded, (x, layer.weight))


def test_permuted_channels_permute_the_covariances_with_means_and_templates():
    layer, covariance = Templates(2, 8).double(), SegmentCovariance(2, embed_mean=True).double()
    x, order = torch.randn(3, 1, 4, 8, dtype=torch.float64), [2, 0, 3, 1]
    rows = [*order, 4, 5, 6]  # then the templates, and the row of means
    permuted = covariance(layer(x[:, :, order]))
    assert_close(permuted, covariance(layer(x))[..., rows, :][..., rows], 1e-12)


def test_templates_need_features_of_their_length():
    with pytest.raises(ShapeError, match=r"features \(batch, branches, n, 7\)"):
        Templates(2, 7)(torch.randn(3, 1, 4, 8))
    with pytest.raises(ParameterError, match="n_templates=0"):
        Templates(0, 7)
