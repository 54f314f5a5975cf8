"""Limiting cases: tiny tangent vectors, large steps, empty batches."""

from __future__ import annotations

import pytest
import torch

from gbwatt.errors import DomainError, NotFiniteError, NotSymmetricError, RangeError
from gbwatt.geometry import (
    AffineInvariant,
    BuresWasserstein,
    Euclidean,
    GeneralizedBuresWasserstein,
    LogEuclidean,
    expm,
    generalized_lyapunov,
    logm,
    lyapunov,
    powm,
    sqrtm,
)
from tests.conftest import make_spd
from tests.geometry.conftest import METRICS, assert_close, exact, make_metric


def skewed(base, size, skew):
    """Tangent vectors with entries of about ``size`` and a skew part of about ``skew``."""
    noise = torch.randn(base.shape, dtype=base.dtype)
    return size * (noise + noise.mT) + skew * (noise - noise.mT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", METRICS)
def test_short_vectors_may_be_skew_by_the_rounding_of_the_base_point(name, dtype):
    eps, base = torch.finfo(dtype).eps, 3 * make_spd(4, k=5, cond=10, dtype=dtype)
    v = skewed(base, 10 * eps, 0.5 * eps)
    metric, symmetric = make_metric(name, 5, dtype), (v + v.mT) / 2
    assert torch.equal(metric.exp(base, v), metric.exp(base, symmetric))
    assert torch.equal(metric.inner(base, v, v), metric.inner(base, symmetric, symmetric))
    assert torch.equal(metric.interval(base, v)[1], metric.interval(base, symmetric)[1])
    assert torch.equal(metric.exp(base, v), metric.exp(base, v).mT)
    assert metric.point(v).isfinite().all()


@pytest.mark.parametrize("name", METRICS)
def test_vectors_that_are_skew_beyond_rounding_are_refused(name):
    base = make_spd(4, k=5, cond=10)
    v = skewed(base, 1e-3, 1e-9)
    for call in (
        lambda m: m.exp(base, v),
        lambda m: m.inner(base, v, base),
        lambda m: m.inner(base, base, v),
        lambda m: m.interval(base, v),
        lambda m: m.point(v),
    ):
        with pytest.raises(NotSymmetricError, match="is not symmetric"):
            call(make_metric(name, 5))


def test_a_small_argument_of_expm_may_be_skew_by_the_rounding_of_one():
    x = skewed(torch.zeros(3, 4, 4), 1e-6, 1e-8)
    assert torch.equal(expm(x), expm((x + x.mT) / 2))
    with pytest.raises(NotSymmetricError, match="'x'"):
        expm(skewed(torch.zeros(4, 4), 1.0, 1e-3))
    base = make_spd(k=4, dtype=torch.float32)
    s = skewed(base, 1e-7, 1e-8)
    assert torch.equal(lyapunov(base, s), lyapunov(base, (s + s.mT) / 2))
    assert torch.equal(generalized_lyapunov(base, base, s), generalized_lyapunov(base, base, (s + s.mT) / 2))


def test_one_infinite_entry_is_found_wherever_it_is():
    for entry in ((0, 0), (0, 1), (1, 0)):
        x = torch.eye(2)
        x[entry] = torch.inf
        for call in (logm, sqrtm, expm, lambda x: BuresWasserstein().dist(x, torch.eye(2))):
            with pytest.raises(NotFiniteError, match="'x'"):
                call(x)


def test_a_base_point_does_not_excuse_nan():
    v = torch.full((2, 2), torch.nan)
    with pytest.raises(NotFiniteError, match="'v'"):
        BuresWasserstein().exp(torch.eye(2), v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_geodesics_that_leave_the_range_of_numbers_are_an_error(dtype):
    """The affine-invariant geodesic exists at all times: here its end, 1e-6 exp(1e4), is no number of either type."""
    base = torch.diag(torch.tensor([1.0, 1e-6], dtype=dtype))
    v = torch.diag(torch.tensor([0.0, 0.01], dtype=dtype))
    kind = str(dtype).removeprefix("torch.")
    for metric in (AffineInvariant(), LogEuclidean()):
        with pytest.raises(RangeError, match=rf"exp\(base, v\).*{kind}"):
            metric.exp(base, v)
        with pytest.raises(RangeError, match=r"geodesic\(x, y, t\)"):
            metric.geodesic(torch.eye(2, dtype=dtype), base, -1000.0)
    with pytest.raises(RangeError, match="expm"):
        expm(800 * torch.eye(2, dtype=dtype))
    with pytest.raises(RangeError, match="powm"):
        powm(base, -100.0)


@pytest.mark.parametrize("size", [2, 70], ids=["kernel", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_geodesics_that_shrink_to_nothing_are_an_error(dtype, size):
    """exp(-2000) is zero in both types, as is 1e-6 exp(-1e4), and zero is not positive definite."""
    one = torch.eye(size, dtype=dtype)
    base, v = one.clone(), torch.zeros_like(one)
    base[-1, -1], v[-1, -1] = 1e-6, -0.01
    kind = str(dtype).removeprefix("torch.")
    for metric in (AffineInvariant(), LogEuclidean()):
        for at, step in ((one, -2000 * one), (base, v)):
            with pytest.raises(RangeError, match=rf"exp\(base, v\) falls below the range of {kind}.*smaller step"):
                metric.exp(at, step)
        with pytest.raises(RangeError, match=r"geodesic\(x, y, t\) falls below"):
            metric.geodesic(one, base, 1000.0)
        with pytest.raises(RangeError, match=r"point\(c\) falls below"):
            metric.point(-2000 * one)
        assert metric.exp(one, -50 * one).diagonal().min() > 0
    inverted = GeneralizedBuresWasserstein(one, -0.02)
    with pytest.raises(RangeError, match=r"exp\(base, v\) falls below"):
        inverted.exp(one, -1e16 * one)


def test_underflow_is_placed_in_the_batch():
    base = torch.eye(3).expand(4, 3, 3)
    v = torch.zeros(4, 3, 3)
    v[2] = -200 * torch.eye(3)
    with pytest.raises(RangeError, match=r"in matrix \(2,\)"):
        AffineInvariant().exp(base, v)


def test_singular_matrices_stay_allowed_where_they_are_points():
    singular = torch.diag(torch.tensor([1.0, 0.0]))
    assert_close(BuresWasserstein().geodesic(singular, 4 * singular, 0.5), 2.25 * singular, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("length", [1.0, 10.0, 60.0, -60.0])
def test_large_affine_invariant_steps_are_exact(dtype, length):
    """For commuting matrices exp(base, v) = base exp(v / base); rounding of the exponent is amplified by its size."""
    values = torch.tensor([1.0, 1e-2, 1e-4], dtype=torch.float64)
    q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    steps = length * torch.tensor([0.3, 1.0, -0.5], dtype=torch.float64)
    base, v, want = ((q * s) @ q.mT for s in (values, steps * values, values * steps.exp()))
    base, v = ((x + x.mT).to(dtype) / 2 for x in (base, v))
    assert_close(AffineInvariant().exp(base, v), want, exact(dtype, 2 * abs(length) / 1e-4))


@pytest.mark.parametrize("metric", [Euclidean(), BuresWasserstein(), GeneralizedBuresWasserstein(torch.eye(3), 0.5)])
def test_matrices_beyond_the_end_of_the_geometry_are_no_coordinates(metric):
    with pytest.raises(DomainError, match=r"coordinates.*smallest eigenvalue"):
        metric.point(-10 * torch.eye(3))
    assert metric.point(-0.5 * torch.eye(3)).isfinite().all()


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)], ids=str)
@pytest.mark.parametrize("name", METRICS)
def test_the_mean_of_an_empty_batch_has_an_empty_gradient(name, shape):
    points = torch.empty(*shape, 4, 5, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.empty(*shape, 2, 4, dtype=torch.float64, requires_grad=True)
    mean = make_metric(name, 5).mean(points, weights)
    assert mean.shape == (*shape, 2, 5, 5)
    mean.sum().backward()
    assert points.grad.shape == points.shape
    assert weights.grad.shape == weights.shape


@pytest.mark.parametrize("name", METRICS)
def test_no_queries_give_no_means(name):
    points = make_spd(3, 4, k=5).requires_grad_()
    mean = make_metric(name, 5).mean(points, torch.empty(3, 0, 4, dtype=torch.float64))
    assert mean.shape == (3, 0, 5, 5)
    mean.sum().backward()
    assert torch.equal(points.grad, torch.zeros_like(points))
