"""Weighted Fréchet means."""

from __future__ import annotations

import pytest
import torch

from gbwatt.errors import ConvergenceWarning
from gbwatt.geometry import BuresWasserstein, GeneralizedBuresWasserstein, barycenter, sqrtm
from gbwatt.geometry._fixed_point import BuresEquation
from gbwatt.geometry.linalg import factor
from tests.conftest import SPECTRA, spectrum
from tests.geometry.conftest import CONDITIONS, DTYPES, METRICS, SIZES, assert_close, exact, make_metric

BW = BuresWasserstein()


@pytest.fixture(params=METRICS)
def name(request):
    return request.param


def total(w, x):
    """Σ_j w_j x_j."""
    return (w[..., None, None] * x).sum(-3)


@pytest.mark.parametrize("k", SIZES)
def test_mean_of_two_points_is_on_their_geodesic(spd, name, k):
    """The closed form: weights (1 - t, t) give γ(t), without a step."""
    metric = make_metric(name, k)
    x, y = spd(2, k=k, cond=1e2)
    found = barycenter(metric, torch.stack([x, y]), torch.tensor([[0.7, 0.3], [0.2, 0.8]], dtype=torch.float64))
    assert_close(found.value[0], metric.geodesic(x, y, 0.3), 1e-11)
    assert_close(found.value[1], metric.geodesic(x, y, 0.8), 1e-11)
    assert found.steps.max() == 0
    assert found.converged.all()


def test_mean_of_two_points_in_the_paper_s_closed_form(spd):
    """(1-ω)² X + ω² Y + ω (1-ω) ((X Y)^½ + (Y X)^½)."""
    x, y = spd(2, k=6, cond=1e2)
    cross = torch.linalg.cholesky(x)
    root = cross @ sqrtm(cross.mT @ y @ cross) @ torch.linalg.inv(cross)  # (X Y)^½
    want = 0.49 * x + 0.09 * y + 0.21 * (root + root.mT)
    assert_close(BW.mean(torch.stack([x, y]), torch.tensor([0.7, 0.3], dtype=torch.float64)), want, 1e-12)


@pytest.mark.parametrize("k", SIZES)
def test_mean_of_commuting_matrices_is_exact_after_one_step(softmax_weights, case, k):
    """(Σ w √a)²."""
    dtype, cond = case
    a = torch.stack([spectrum("spread", k, cond), spectrum("spread", k, cond).flip(0), spectrum("gap", k, cond)])
    w = softmax_weights(3)
    points = torch.diag_embed(a).to(dtype)
    want = torch.diag((w[:, None] * a.sqrt()).sum(0).square())
    arithmetic = factor(total(w.to(dtype), points))
    one_step = BuresEquation().step(arithmetic, factor(points), w.to(dtype))
    assert_close(one_step @ one_step.mT, want, exact(dtype))
    assert_close(BW.mean(points, w.to(dtype)), want, exact(dtype))


@pytest.mark.parametrize("kind", SPECTRA)
@pytest.mark.parametrize("k", [1, 3, 8, 20])
def test_mean_solves_its_equation_and_the_variance_identity(spd, softmax_weights, case, k, kind):
    """G = Σ w (G^½ X G^½)^½, and Σ w d²(X, G) = tr Σ w X - tr G."""
    dtype, cond = case
    points, w = spd(3, k=k, cond=cond, dtype=dtype, kind=kind), softmax_weights(2, 3, dtype=dtype)
    found = barycenter(BW, points, w)
    assert found.converged.all()
    g = found.value.double()
    root = sqrtm(g)[:, None]
    product = root @ points.double() @ root
    fixed = total(w.double(), sqrtm((product + product.mT) / 2))
    # the product of two matrices has the product of their condition numbers: the check, not the mean, loses digits
    assert_close(fixed, g, max(1e-7, exact(dtype)) if cond > 1e4 else exact(dtype, cond))
    spread = (w * BW.sqdist(points, found.value[:, None])).sum(-1)
    trace = (total(w, points.expand(2, 3, k, k)) - found.value).diagonal(dim1=-2, dim2=-1).sum(-1)
    size = points.diagonal(dim1=-2, dim2=-1).sum(-1).max()
    assert (spread - trace).abs().max() <= exact(dtype) * size


@pytest.mark.parametrize("k", [1, 3, 8, 20])
def test_mean_is_where_the_weighted_logarithms_cancel(spd, softmax_weights, name, k):
    """Σ w_j Log_G X_j = 0 for every metric."""
    metric = make_metric(name, k)
    points, w = spd(2, 4, k=k, cond=1e2), softmax_weights(2, 3, 4)
    g = metric.mean(points, w)
    logs = metric.log(g[:, :, None], points[:, None])
    assert total(w, logs).abs().max() <= 1e-10 * logs.abs().max().clamp_min(1)


def test_mean_minimises_the_weighted_squared_distances(spd, softmax_weights, name):
    metric = make_metric(name, 4)
    points, w = spd(5, k=4, cond=50), softmax_weights(5)
    g = metric.mean(points, w)

    def cost(x):
        return (w * metric.sqdist(points, x)).sum()

    for other in spd(6, k=4, cond=3, seed=7):
        assert cost(g) <= cost(metric.geodesic(g, other, 0.01))


def test_order_of_points_does_not_matter(spd, softmax_weights, name):
    metric = make_metric(name, 5)
    points, w = spd(4, k=5), softmax_weights(4)
    order = torch.tensor([2, 0, 3, 1])
    assert_close(metric.mean(points[order], w[order]), metric.mean(points, w), 1e-10)


def test_points_without_weight_do_not_count(spd, name):
    metric = make_metric(name, 5)
    points = spd(4, k=5)
    w = torch.tensor([[0.5, 0.0, 0.2, 0.3], [0.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    got = metric.mean(points, w)
    assert_close(got[0], metric.mean(points[[0, 2, 3]], w[0, [0, 2, 3]]), 1e-10)
    assert_close(got[1], points[1], 1e-10)


def test_each_query_has_its_own_weights_and_each_batch_item_its_own_points(spd, softmax_weights, name):
    metric = make_metric(name, 4)
    points, w = spd(2, 3, 4, k=4, cond=20), softmax_weights(2, 3, 5, 4)
    got = metric.mean(points, w)
    assert got.shape == (2, 3, 5, 4, 4)
    assert_close(got[1, 2, 3], metric.mean(points[1, 2], w[1, 2, 3]), 1e-10)


def test_points_and_weights_broadcast(spd, softmax_weights):
    points, w = spd(3, k=4), softmax_weights(6, 2, 3)
    assert BW.mean(points, w).shape == (6, 2, 4, 4)
    assert BW.mean(spd(5, 3, k=4), softmax_weights(2, 3)).shape == (5, 2, 4, 4)
    assert_close(BW.mean(points, w)[4], BW.mean(points, w[4]), 1e-12)


def test_without_weights_all_points_count_the_same(spd, name):
    metric = make_metric(name, 4)
    points = spd(2, 3, k=4)
    got = metric.mean(points)
    assert got.shape == (2, 4, 4)
    assert_close(got, metric.mean(points, torch.full((1, 3), 1 / 3, dtype=torch.float64))[:, 0], 1e-12)


def test_mean_of_one_point_is_the_point(spd, name):
    x = spd(1, k=5)
    assert_close(make_metric(name, 5).mean(x), x[0], 1e-12)


def test_result_of_a_problem_does_not_depend_on_its_batch(spd, softmax_weights):
    """Easy and hard problems side by side: each stops by itself."""
    points = torch.cat([spd(4, 3, k=5, cond=2), spd(4, 3, k=5, cond=1e8)])
    w = softmax_weights(8, 2, 3)
    together = barycenter(BW, points, w)
    alone = barycenter(BW, points[6:7], w[6:7])
    assert torch.equal(alone.steps[0], together.steps[6])
    assert together.steps[:4].max() < together.steps[4:].min()
    assert_close(alone.value[0], together.value[6], 1e-11)


@pytest.mark.parametrize("points_shape", [(3,), (2, 3)])
def test_a_gradient_that_is_asked_for_does_not_change_the_mean(spd, softmax_weights, name, points_shape):
    """Without one the iteration keeps less and takes cheaper steps."""
    metric = make_metric(name, 6)
    points, w = spd(*points_shape, k=6, cond=1e4), softmax_weights(2, 3)
    assert_close(metric.mean(points.clone().requires_grad_(), w), metric.mean(points, w), 1e-10)


def test_generalised_mean_ignores_the_scale_of_its_parameter(spd, softmax_weights):
    """M → c M changes no mean."""
    points, w, m = spd(4, k=5), softmax_weights(2, 4), spd(k=5, cond=10, seed=3)
    one, two = (GeneralizedBuresWasserstein(c * m, 1.5).mean(points, w) for c in (1, 7))
    assert_close(one, two, 1e-11)


def test_generalised_mean_is_equivariant_under_congruence(spd, softmax_weights):
    """Mean(G X Gᵀ; G M Gᵀ) = G Mean(X; M) Gᵀ."""
    points, w, m, g = (
        spd(4, k=5, cond=10),
        softmax_weights(2, 4),
        spd(k=5, cond=10, seed=3),
        spd(k=5, cond=5, seed=4),
    )

    def move(a):
        a = g @ a @ g.mT
        return (a + a.mT) / 2

    assert_close(
        GeneralizedBuresWasserstein(move(m)).mean(move(points), w),
        move(GeneralizedBuresWasserstein(m).mean(points, w)),
        1e-11,
    )


def test_typical_problems_converge_in_a_few_steps(spd, softmax_weights):
    """Matrices as near to each other as the segments of a trial: no more than ten steps to 1e-12."""
    base = spd(k=18, cond=1e3)
    root = torch.linalg.cholesky(base)
    noise = torch.randn(32, 3, 18, 108, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    points = root @ (noise @ noise.mT / 108) @ root.mT
    found = barycenter(BW, (points + points.mT) / 2, softmax_weights(32, 3, 3))
    assert found.converged.all()
    assert found.steps.max() <= 10


def test_failure_to_converge_warns_with_residual_and_remedy(spd):
    with pytest.warns(ConvergenceWarning, match=r"BuresWasserstein\(\).*1 of 1.*residual .* after 2 steps.*max_steps"):
        found = barycenter(BW, spd(4, k=6, cond=1e6), max_steps=2)
    assert not found.converged
    assert found.residual > 1e-12
    assert found.steps == 2
    assert torch.isfinite(found.value).all()


def test_tolerance_is_obeyed(spd, softmax_weights):
    points, w = spd(4, k=6, cond=1e3), softmax_weights(4)
    loose, tight = (barycenter(BW, points, w, tol=tol) for tol in (1e-3, 1e-10))
    assert 1e-10 < loose.residual <= 1e-3
    assert tight.residual <= 1e-10
    assert loose.steps < tight.steps


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cond", CONDITIONS)
def test_means_and_their_gradients_are_finite_at_any_condition_number(spd, softmax_weights, dtype, cond):
    points = spd(4, 3, k=12, cond=cond, dtype=dtype).requires_grad_()
    w = softmax_weights(4, 3, 3, dtype=dtype)
    found = barycenter(BW, points, w)
    (gradient,) = torch.autograd.grad(found.value.square().sum(), points)
    assert found.converged.all()
    assert torch.isfinite(found.value).all()
    assert torch.isfinite(gradient).all()
