"""Laws that hold for every metric, and those of the pull-backs."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import pytest
import torch
from hypothesis import given, settings

import gbwatt.geometry
from gbwatt.errors import DomainError
from gbwatt.geometry import (
    BuresWasserstein,
    Euclidean,
    GeneralizedBuresWasserstein,
    LogEuclidean,
    Metric,
    PullBack,
    invsqrtm,
    powm,
)
from gbwatt.geometry.charts import DeformedRoot, Logarithm
from gbwatt.geometry.spaces import Symmetric
from tests.conftest import SPECTRA, make_spd, spectrum
from tests.geometry.conftest import DTYPES, METRICS, SIZES, assert_close, exact, make_metric

CURVED = [name for name in METRICS if name != "euclidean"]


@pytest.fixture(params=METRICS)
def name(request):
    return request.param


def test_every_exported_metric_is_under_test():
    exported = {
        cls
        for cls in vars(gbwatt.geometry).values()
        if isinstance(cls, type) and issubclass(cls, Metric) and cls not in (Metric, PullBack)
    }
    assert exported
    assert {type(make_metric(n, 3)) for n in METRICS} == exported


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", SPECTRA)
def test_distance_of_a_matrix_to_itself_is_exactly_zero(spd, name, kind, dtype):
    metric = make_metric(name, 7, dtype)
    x = spd(4, k=7, cond=1e4, dtype=dtype, kind=kind).requires_grad_()
    d = metric.dist(x, x.detach().clone())
    assert d.tolist() == [0.0] * 4
    (gradient,) = torch.autograd.grad(d.sum() + metric.sqdist(x, x.detach()).sum(), x)
    assert gradient.abs().max() == 0


@pytest.mark.parametrize("k", SIZES)
def test_distance_is_symmetric_positive_and_satisfies_the_triangle_inequality(spd, name, k):
    metric = make_metric(name, k)
    x, y, z = spd(3, k=k, cond=1e3) * torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)[:, None, None]
    assert_close(metric.dist(x, y), metric.dist(y, x), 1e-10)
    assert metric.dist(x, y) > 0
    assert metric.dist(x, z) <= (metric.dist(x, y) + metric.dist(y, z)) * (1 + 1e-12)
    assert_close(metric.dist(x, y) ** 2, metric.sqdist(x, y), 1e-14)


@pytest.mark.parametrize("k", SIZES)
def test_length_of_log_is_the_distance_and_exp_inverts_it(spd, name, k):
    """|Log_X Y| = d and Exp_X(Log_X Y) = Y."""
    metric = make_metric(name, k)
    x, y = spd(2, k=k, cond=30)
    v = metric.log(x, y)
    assert_close(metric.inner(x, v, v), metric.sqdist(x, y), 1e-11)
    assert_close(metric.exp(x, v), y, 1e-11)


@pytest.mark.parametrize("k", SIZES)
def test_inner_product_is_the_second_derivative_of_the_squared_distance(spd, name, k):
    """d²(X, Exp_X(t V)) = t² g_X(V, V): the metric and the distance belong together."""
    metric = make_metric(name, k)
    x, v = spd(2, k=k, cond=30)
    t = 1e-3
    assert_close(metric.sqdist(x, metric.exp(x, t * v)), t**2 * metric.inner(x, v, v), 1e-8)


def test_inner_product_is_symmetric_and_bilinear(spd, name):
    metric = make_metric(name, 4)
    x, u, v, w = spd(4, k=4, cond=30)
    assert_close(metric.inner(x, u, v), metric.inner(x, v, u), 1e-12)
    assert_close(metric.inner(x, 2 * u - w, v), 2 * metric.inner(x, u, v) - metric.inner(x, w, v), 1e-11)


@pytest.mark.parametrize("k", SIZES)
def test_geodesic_has_constant_speed_and_its_ends(spd, name, k):
    metric = make_metric(name, k)
    x, y = spd(2, k=k, cond=50)
    y = 2 * y
    assert_close(metric.geodesic(x, y, 0.0), x, 1e-12)
    assert_close(metric.geodesic(x, y, 1.0), y, 1e-12)
    d = metric.dist(x, y)
    assert_close(metric.dist(x, metric.geodesic(x, y, 0.3)), 0.3 * d, 1e-10)
    assert_close(metric.dist(metric.geodesic(x, y, 0.3), metric.geodesic(x, y, 0.8)), 0.5 * d, 1e-10)
    assert_close(metric.geodesic(x, y, 0.3), metric.exp(x, 0.3 * metric.log(x, y)), 1e-10)


def test_geodesic_takes_a_batch_of_times(spd, name):
    metric = make_metric(name, 3)
    x, y = spd(2, k=3, cond=20)
    t = torch.linspace(0, 1, 5, dtype=torch.float64)
    path = metric.geodesic(x, y, t)
    assert path.shape == (5, 3, 3)
    assert_close(path[3], metric.geodesic(x, y, float(t[3])), 1e-13)


def test_geodesics_know_their_interval(spd, name):
    """Inside the interval positive definite, outside an error; complete metrics have no end."""
    metric = make_metric(name, 4)
    x, y = spd(2, k=4, cond=20)
    v = metric.log(x, y)
    low, high = metric.interval(x, v)
    assert low < 0 < 1 < high
    if name in ("log-euclidean", "affine-invariant"):
        assert torch.isinf(low)
        assert torch.isinf(high)
        return
    for end in (low, high):
        if torch.isfinite(end):
            assert torch.linalg.eigvalsh(metric.geodesic(x, y, float(end) * (1 - 1e-3))).min() > 0
            with pytest.raises(DomainError, match=r"interval \("):
                metric.geodesic(x, y, float(end) * 1.001)
            with pytest.raises(DomainError, match="smaller step"):
                metric.exp(x, 1.001 * end * v)
    assert torch.isfinite(low) or torch.isfinite(high)


@settings(max_examples=25, deadline=None)
@given(shapes=hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3))
@pytest.mark.parametrize("metric_name", list(METRICS))
def test_batch_axes_broadcast(metric_name, shapes):
    metric = make_metric(metric_name, 2)
    x, y = (make_spd(*s, k=2, cond=5, seed=i) for i, s in enumerate(shapes.input_shapes))
    batch = tuple(shapes.result_shape)
    assert metric.dist(x, y).shape == batch
    assert metric.log(x, y).shape == (*batch, 2, 2)
    assert metric.geodesic(x, y, 0.5).shape == (*batch, 2, 2)
    assert metric.inner(x, y, y).shape == batch
    wide = [a.expand(*batch, 2, 2) for a in (x, y)]
    if all(batch):
        assert_close(metric.dist(x, y), metric.dist(*wide), 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_keep_the_dtype(spd, name, dtype):
    metric = make_metric(name, 3, dtype)
    x, y = spd(2, k=3, cond=10, dtype=dtype)
    results = [
        metric.sqdist(x, y),
        metric.dist(x, y),
        metric.log(x, y),
        metric.exp(x, 0.1 * y),
        metric.geodesic(x, y, 0.5),
        metric.inner(x, x, y),
        metric.mean(torch.stack([x, y, x + y])),
    ]
    assert {r.dtype for r in results} == {dtype}


# ------------------------------------------------------------------------------------------------- pull-backs


@pytest.mark.parametrize("theta", [0.25, 1.5, -0.7])
@pytest.mark.parametrize("k", SIZES)
def test_chart_of_the_generalised_metric_is_inverted(spd, k, theta):
    """ψ⁻¹ ∘ ψ = id."""
    x, m = spd(2, k=k, cond=1e2)
    chart = DeformedRoot(m, theta)
    assert_close(chart.inverse(chart(x)), x, 1e-11)


@pytest.mark.parametrize("theta", [0.25, 1.0, 1.5, -0.7])
@pytest.mark.parametrize("k", SIZES)
def test_generalised_distance_is_that_of_the_images(spd, k, theta):
    """d_θ(X, Y) = d_BW(ψX, ψY) / |θ| with ψ(X) = M^-½ X^θ M^-½ formed as written."""
    x, y, m = spd(3, k=k, cond=1e2)
    y = 2 * y
    root = invsqrtm(m)
    images = [(z := root @ powm(a, theta) @ root, (z + z.mT) / 2)[1] for a in (x, y)]
    want = BuresWasserstein().dist(*images) / abs(theta)
    assert_close(GeneralizedBuresWasserstein(m, theta).dist(x, y), want, 1e-11)


@pytest.mark.parametrize("dtype", DTYPES)
def test_squares_deform_to_the_euclidean_distance(dtype):
    """θ = 2, M = I, commuting: d² = ¼ Σ (a - b)²."""
    a, b = spectrum("spread", 6, 1e4).to(dtype), 3 * spectrum("spread", 6, 1e2).to(dtype)
    metric = GeneralizedBuresWasserstein(torch.eye(6, dtype=dtype), theta=2.0)
    want = (a.double() - b.double()).square().sum() / 4
    assert_close(metric.sqdist(torch.diag(a), torch.diag(b)), want, exact(dtype))


def test_small_powers_approach_the_log_euclidean_metric_linearly(spd):
    """θ → 0 with M = I: d² → ¼ |log X - log Y|² and the mean → the log-Euclidean mean, with an error of order θ."""
    x, y, z = spd(3, k=5, cond=20)
    eye = torch.eye(5, dtype=torch.float64)
    points = torch.stack([x, y, z])

    def errors(theta):
        metric = GeneralizedBuresWasserstein(eye, theta)
        limit, centre = LogEuclidean().sqdist(x, y) / 4, LogEuclidean().mean(points)
        mean = torch.linalg.matrix_norm(metric.mean(points) - centre) / torch.linalg.matrix_norm(centre)
        return (metric.sqdist(x, y) / limit - 1).abs(), mean

    for big, small in zip(errors(2e-2), errors(1e-2), strict=True):
        assert small < 0.05
        assert 1.7 < float(big / small) < 4.5  # 2 for order θ, 4 for order θ²


@pytest.mark.parametrize("theta", [1.0, 1.5])
def test_deformed_distance_keeps_float32_usable(spd, theta):
    """Condition 1e6, where X^θ itself has no correct small eigenvalue left in float32."""
    x, y = spd(2, 10, k=12, cond=1e6)
    m = spd(k=12, cond=3, seed=5)
    want = GeneralizedBuresWasserstein(m, theta).dist(x, y)
    got = GeneralizedBuresWasserstein(m.float(), theta).dist(x.float(), y.float())
    assert_close(got, want, 1e-5)


def test_log_euclidean_is_the_pull_back_of_the_flat_metric(spd):
    x, y = spd(2, k=4)
    own = PullBack(Symmetric(), Logarithm(), scale=4.0)
    assert_close(own.sqdist(x, y), 4 * LogEuclidean().sqdist(x, y), 1e-14)
    assert_close(own.mean(torch.stack([x, y])), LogEuclidean().mean(torch.stack([x, y])), 1e-14)


def test_affine_invariance(spd):
    """d(G X Gᵀ, G Y Gᵀ) = d(X, Y), d(X⁻¹, Y⁻¹) = d(X, Y)."""
    metric = make_metric("affine-invariant", 5)
    x, y, g = spd(3, k=5, cond=10)
    moved = [(z := g @ a @ g.mT, (z + z.mT) / 2)[1] for a in (x, y)]
    assert_close(metric.dist(*moved), metric.dist(x, y), 1e-11)
    assert_close(metric.dist(powm(x, -1.0), powm(y, -1.0)), metric.dist(x, y), 1e-11)


def test_metrics_print_what_they_are():
    assert repr(Euclidean()) == "Euclidean()"
    assert repr(GeneralizedBuresWasserstein(torch.eye(3), 1.5)) == "GeneralizedBuresWasserstein(M 3x3, theta=1.5)"


def test_a_metric_whose_root_is_kept_is_the_same_metric(spd):
    x, y, m = spd(4, 5, k=6), spd(4, 5, k=6, seed=1), spd(k=6, seed=2).requires_grad_()
    plain = GeneralizedBuresWasserstein(m, 1.5)
    kept = plain.with_cached_root()
    assert plain.root is None
    assert kept.root is not None
    for metric in (plain, kept):
        loss = metric.dist(x, y).sum() + metric.mean(x).sum()
        metric_gradient = torch.autograd.grad(loss, m)[0]
        if metric is plain:
            want = loss.detach(), metric_gradient
    assert_close(loss.detach(), want[0], 1e-14)
    assert_close(metric_gradient, want[1], 1e-12)
