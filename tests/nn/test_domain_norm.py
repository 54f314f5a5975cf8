"""Batch normalisation with statistics of domains: closed forms, laws, gradients, running statistics, adaptation."""

from __future__ import annotations

import pytest
import torch

from gbwatt.errors import ParameterError, ShapeError
from gbwatt.geometry import AffineInvariant, BuresWasserstein
from gbwatt.geometry.linalg import congruence
from gbwatt.nn import DomainSPDBatchNorm
from gbwatt.nn.optim import on_manifold
from tests.geometry.conftest import assert_close

METRICS = {"affine-invariant": AffineInvariant(), "bures-wasserstein": BuresWasserstein()}
EYE = torch.eye(4, dtype=torch.float64)
DOMAIN = torch.tensor([0, 2, 0, 2, 2, 0, 1, 2, 1, 0])  # of different sizes


@pytest.fixture(params=METRICS)
def metric(request):
    return request.param


@pytest.fixture
def x(spd):
    """Sequences of two matrices, at another place and with another dispersion in each domain."""
    scale = torch.tensor([1.0, 5.0, 0.1], dtype=torch.float64)[DOMAIN]
    return scale[:, None, None, None] * spd(10, 2, k=4, cond=20)


def make(metric, **arguments):
    return DomainSPDBatchNorm(4, 3, metric, **{"momentum": 1.0, "eps": 1e-14, **arguments}).double()


def mean_and_dispersion(metric, x):
    x = x.detach().flatten(0, 1)
    mean = METRICS[metric].mean(x)
    return mean, METRICS[metric].sqdist(x, mean.expand_as(x)).mean().sqrt()


# ---- closed forms


def test_every_domain_gets_the_identity_as_mean_and_the_dispersion_one(metric, x):
    y = make(metric)(x, DOMAIN)
    for number in range(3):
        mean, dispersion = mean_and_dispersion(metric, y[number == DOMAIN])
        assert_close(mean, EYE, 1e-9)
        assert float(dispersion) == pytest.approx(1, abs=1e-9)


def test_bias_is_the_mean_and_scale_the_dispersion_of_every_domain(metric, x, spd):
    layer = make(metric)
    with torch.no_grad():
        layer.scale.fill_(0.5)
    for number in range(3):
        assert float(mean_and_dispersion(metric, layer(x, DOMAIN)[number == DOMAIN])[1]) == pytest.approx(0.5, abs=1e-9)
    with torch.no_grad():
        layer.bias.copy_(spd(k=4, seed=1))
    for number in range(3):
        assert_close(mean_and_dispersion(metric, layer(x, DOMAIN)[number == DOMAIN])[0], layer.bias.detach(), 1e-8)


def test_commuting_matrices_are_normalised_in_their_eigenvalues():
    values = torch.tensor([[1.0, 4.0], [4.0, 1.0]], dtype=torch.float64)
    x = torch.diag_embed(values)[:, None]
    logarithms, roots = values.log(), values.sqrt()
    d = logarithms - logarithms.mean(0)
    d = d / d.square().sum(1).mean().sqrt()
    aim = DomainSPDBatchNorm(2, momentum=1.0, eps=1e-14).double()
    assert_close(aim(x), torch.diag_embed(d.exp())[:, None], 1e-12)
    d = roots / roots.mean(0) - 1
    d = d / d.square().sum(1).mean().sqrt()
    bw = DomainSPDBatchNorm(2, metric="bures-wasserstein", momentum=1.0, eps=1e-14).double()
    assert_close(bw(x), torch.diag_embed((1 + d) ** 2)[:, None], 1e-12)


def test_matrices_stay_positive_definite_beyond_the_end_of_the_bures_geodesic(spd):
    layer = DomainSPDBatchNorm(4, metric="bures-wasserstein", momentum=1.0).double()
    with torch.no_grad():
        layer.scale.fill_(20.0)
    assert float(torch.linalg.eigvalsh(layer(spd(8, 1, k=4)).detach()).min()) > 0


# ---- laws


def test_affine_invariant_normalisation_is_invariant_under_congruence_up_to_a_rotation(x, spd):
    a = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 3 * EYE
    one, other = make("affine-invariant")(x, DOMAIN), make("affine-invariant")(congruence(a, x), DOMAIN)
    for number in range(3):
        rows = number == DOMAIN
        distances = [AffineInvariant().dist(y[rows][:1], y[rows]) for y in (one, other)]
        assert_close(*distances, 1e-9)
        assert_close(*(torch.linalg.eigvalsh(y[rows]) for y in (one, other)), 1e-9)


def test_normalisation_commutes_with_rotations_and_ignores_the_amplitude(metric, x, orthogonal):
    q = orthogonal(4)
    assert_close(make(metric)(100 * congruence(q, x), DOMAIN), congruence(q, make(metric)(x, DOMAIN)), 1e-9)


def test_domains_do_not_influence_each_other(metric, x):
    together, alone = make(metric)(x, DOMAIN), make(metric)(x[DOMAIN == 2], DOMAIN[DOMAIN == 2])
    assert_close(together[DOMAIN == 2], alone, 1e-9)


@pytest.mark.parametrize("training", [True, False])
def test_gradients_are_right(metric, spd, training):
    def normalised(x, scale, bias):
        layer = DomainSPDBatchNorm(3, 2, metric, momentum=0.5).double().train(training)
        values = {"scale": scale, "bias": (bias + bias.mT) / 2}
        return torch.func.functional_call(layer, values, ((x + x.mT) / 2, torch.arange(5) % 2))

    x, bias = spd(5, 2, k=3), spd(k=3, seed=1)
    scale = torch.tensor(0.7, dtype=torch.float64)
    assert torch.autograd.gradcheck(normalised, [value.requires_grad_() for value in (x, scale, bias)])


# ---- running statistics


def test_running_statistics_converge_to_those_of_repeated_batches(metric, x):
    layer = make(metric, momentum=0.2)
    layer(0.5 * x.flip(0), DOMAIN)
    for _ in range(150):
        layer(x, DOMAIN)
    for number in range(3):
        mean, _ = mean_and_dispersion(metric, layer.eval()(x, DOMAIN)[number == DOMAIN])
        assert_close(mean, EYE, 1e-8)
    assert layer.n_batches.tolist() == [5, 5, 5]


def test_the_first_batches_of_a_domain_have_equal_weights():
    layer = DomainSPDBatchNorm(1, momentum=0.01).double()
    for value in (1.0, 4.0, 16.0):
        layer(torch.full((3, 1, 1, 1), value, dtype=torch.float64))
    assert float(layer.running_mean) == pytest.approx(4.0)  # the geometric mean


def test_a_batch_moves_the_mean_along_the_geodesic_and_leaves_other_domains_alone(metric, x):
    layer = make(metric, momentum=0.25)
    layer.adapt(x, DOMAIN)
    before, rows = layer.running_mean.clone(), DOMAIN == 1
    layer(3 * x[rows], DOMAIN[rows])
    mean = METRICS[metric].mean(3 * x[rows].flatten(0, 1))
    assert_close(layer.running_mean[1], METRICS[metric].geodesic(before[1], mean, 0.25), 1e-9)
    assert torch.equal(layer.running_mean[[0, 2]], before[[0, 2]])


def test_evaluation_changes_no_statistics(metric, x):
    layer = make(metric).eval()
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    layer(x, DOMAIN)
    assert all(torch.equal(value, state[name]) for name, value in layer.state_dict().items())


# ---- adaptation


def test_adaptation_gives_the_statistics_of_a_training_step_with_the_same_matrices(metric, x):
    trained, adapted = make(metric), make(metric)
    want = trained(x, DOMAIN)
    adapted.adapt(x, DOMAIN)
    assert_close(adapted.running_mean, trained.running_mean, 1e-9)
    torch.testing.assert_close(adapted.running_var, trained.running_var)
    assert_close(adapted.eval()(x, DOMAIN), want.detach(), 1e-8)


def test_a_new_domain_is_added_and_the_others_are_kept(metric, x):
    layer = make(metric)
    layer(x, DOMAIN)
    before = layer.running_mean.clone()
    new = torch.full((10,), 3)
    layer.adapt(7 * x, new)
    assert layer.n_domains == 4
    assert torch.equal(layer.running_mean[:3], before)
    assert_close(mean_and_dispersion(metric, layer.eval()(7 * x, new))[0], EYE, 1e-9)


def test_a_plain_batch_is_domain_zero(metric, x):
    layer = make(metric)
    assert torch.equal(layer(x), make(metric)(x, torch.zeros(10, dtype=torch.long)))
    assert layer.n_batches.tolist() == [1, 0, 0]


def test_statistics_are_saved_and_bias_is_on_its_manifold(metric, x):
    layer, other = make(metric), make(metric)
    layer(x, DOMAIN)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.eval()(x, DOMAIN), layer.eval()(x, DOMAIN))
    assert on_manifold(layer.bias)
    assert "n_domains=3" in repr(layer)


# ---- errors


def test_wrong_arguments_name_their_remedy(x):
    with pytest.raises(ParameterError, match="affine-invariant"):
        DomainSPDBatchNorm(4, metric="affine")
    with pytest.raises(ParameterError, match="n_domains=0"):
        DomainSPDBatchNorm(4, 0)
    with pytest.raises(ParameterError, match="momentum=0"):
        DomainSPDBatchNorm(4, momentum=0.0)
    layer = make("affine-invariant")
    with pytest.raises(ParameterError, match=r"3 is not known.*adapt"):
        layer(x, torch.full((10,), 3))
    with pytest.raises(ParameterError, match="-1 must be 0"):
        layer(x, torch.full((10,), -1))
    with pytest.raises(ShapeError, match=r"\(10,\) is required"):
        layer(x, torch.zeros(9, dtype=torch.long))
    with pytest.raises(ShapeError, match="int64"):
        layer(x, torch.zeros(10))
    with pytest.raises(ShapeError, match="sequences"):
        layer(x[:, 0])
