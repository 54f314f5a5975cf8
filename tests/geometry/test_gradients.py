"""Derivatives of distances and means: against finite differences and unrolling, and at repeated eigenvalues."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck

from gbwatt.errors import DoubleBackwardError
from gbwatt.geometry import BuresWasserstein, GeneralizedBuresWasserstein, barycenter
from tests.conftest import SPECTRA
from tests.geometry.conftest import DTYPES, METRICS, assert_close, make_metric

ITERATED = ["affine-invariant", "bures", "gbw", "gbw-negative"]


def sym(x):
    return (x + x.mT) / 2


@pytest.mark.parametrize("kind", SPECTRA)
@pytest.mark.parametrize("name", METRICS)
def test_distances(spd, name, kind):
    metric = make_metric(name, 4)
    x, y = (a.clone().requires_grad_() for a in (spd(2, k=4, cond=20, kind=kind), 2 * spd(2, k=4, cond=20, seed=1)))
    assert gradcheck(lambda x, y: metric.sqdist(sym(x), sym(y)), (x, y))
    assert gradcheck(lambda x, y: metric.dist(sym(x), sym(y)), (x, y))


@pytest.mark.parametrize("name", METRICS)
def test_squared_distance_of_equal_matrices_is_flat(spd, name):
    """Q = K: the squared distance has a minimum there."""
    metric = make_metric(name, 4)
    x = spd(k=4, cond=20)
    assert gradcheck(lambda a: metric.sqdist(sym(a), x), x.clone().requires_grad_(), atol=1e-5)


@pytest.mark.parametrize("name", METRICS)
def test_distance_close_to_zero_has_a_gradient_of_unit_length(spd, name):
    """|∇ d| = 1 in the metric, down to distances of 1e-6 where the cancelling formula has no digit left."""
    metric = make_metric(name, 4)
    x, v = spd(2, k=4, cond=5)
    y = metric.exp(x, 1e-6 * v)
    t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    path = metric.geodesic(x, y, t)
    (speed,) = torch.autograd.grad(metric.dist(path, y), t)
    assert_close(speed, -metric.dist(x, y), 1e-3)


@pytest.mark.parametrize("name", METRICS)
def test_geodesics(spd, name):
    metric = make_metric(name, 3)
    x, y = (a.clone().requires_grad_() for a in spd(2, k=3, cond=10))
    t = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, y, t: metric.geodesic(sym(x), sym(y), t), (x, y, t))


@pytest.mark.parametrize("name", ["euclidean", "affine-invariant", "bures"])
def test_log_exp_and_inner(spd, name):
    metric = make_metric(name, 3)
    x, y, v = (a.clone().requires_grad_() for a in spd(3, k=3, cond=10))
    assert gradcheck(lambda x, y: metric.log(sym(x), sym(y)), (x, y))
    assert gradcheck(lambda x, v: metric.exp(sym(x), 0.1 * sym(v)), (x, v))
    assert gradcheck(lambda x, u, v: metric.inner(sym(x), sym(u), sym(v)), (x, y, v))


@pytest.mark.parametrize("name", ["log-euclidean", "gbw", "gbw-negative"])
def test_log_exp_and_inner_of_pull_backs_in_all_but_the_base(spd, name):
    """Their derivative in the base point would need second derivatives of matrix functions: refused, not wrong."""
    metric = make_metric(name, 3)
    x, y, v = (a.clone().requires_grad_() for a in spd(3, k=3, cond=10))
    base = x.detach()
    assert gradcheck(lambda y: metric.log(base, sym(y)), y)
    assert gradcheck(lambda v: metric.exp(base, 0.1 * sym(v)), v)
    assert gradcheck(lambda u, v: metric.inner(base, sym(u), sym(v)), (y, v))
    with pytest.raises(DoubleBackwardError, match="detach the base point"):
        metric.log(x, y).sum().backward()


@pytest.mark.parametrize("kind", SPECTRA)
@pytest.mark.parametrize("name", METRICS)
def test_means(spd, softmax_weights, name, kind):
    """Finite differences of the converged mean, in points and weights."""
    metric = make_metric(name, 3)
    points = torch.stack([spd(k=3, cond=20, kind=kind), 2 * spd(k=3, cond=20, seed=1), spd(k=3, cond=5, seed=2)])
    scores = softmax_weights(2, 3).log().requires_grad_()
    assert gradcheck(lambda p, s: metric.mean(sym(p), s.softmax(-1)), (points.requires_grad_(), scores), rtol=2e-3)


@pytest.mark.parametrize("m", [1, 2, 5])
@pytest.mark.parametrize("cond", [1.0, 1e2, 1e4])
@pytest.mark.parametrize("name", ITERATED)
def test_implicit_equals_unrolled(spd, softmax_weights, name, cond, m):
    metric = make_metric(name, 5)
    points = (spd(2, m, k=5, cond=cond) * torch.arange(1, m + 1)[:, None, None]).requires_grad_()
    scores = softmax_weights(2, 3, m).log().requires_grad_()
    cotangent = sym(torch.randn(2, 3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))

    def gradients(how):
        value = barycenter(metric, sym(points), scores.softmax(-1), max_steps=1000, differentiate=how).value
        return torch.autograd.grad((cotangent * value).sum(), (points, scores))

    implicit, unrolled = gradients("implicit"), gradients("unrolled")
    size = implicit[0].abs().max()
    for a, b in zip(implicit, unrolled, strict=True):
        assert (a - b).abs().max() <= 1e-8 * max(size, b.abs().max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_generalised_metric_learns_its_parameters_from_the_identity(spd, softmax_weights, dtype):
    """Gradients at M = I are finite and not zero, for distances and means, in M and θ."""
    m = torch.eye(4, dtype=dtype, requires_grad=True)
    theta = torch.tensor(1.5, dtype=dtype, requires_grad=True)
    metric = GeneralizedBuresWasserstein(m, theta)
    points, w = spd(3, k=4, dtype=dtype), softmax_weights(2, 3, dtype=dtype)
    loss = metric.dist(points[0], points).sum() + metric.mean(points, w).square().sum()
    for gradient in torch.autograd.grad(loss, (m, theta)):
        assert torch.isfinite(gradient).all()
        assert gradient.abs().max() > 1e-3


@pytest.mark.parametrize("theta", [0.5, 1.0, 1.5, -0.7])
def test_generalised_metric_in_its_parameters(spd, softmax_weights, theta):
    points, w = spd(3, k=3, cond=20), softmax_weights(2, 3)
    power = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    for m in (torch.eye(3, dtype=torch.float64), spd(k=3, cond=5, seed=5)):

        def distance(m, t):
            return GeneralizedBuresWasserstein(sym(m), t).dist(points[0], points[1:])

        def mean(m, t):
            return GeneralizedBuresWasserstein(sym(m), t).mean(points, w)

        assert gradcheck(distance, (m.clone().requires_grad_(), power))
        assert gradcheck(mean, (m.clone().requires_grad_(), power))


def test_a_metric_object_can_be_used_for_several_backward_passes(spd):
    theta = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    metric = GeneralizedBuresWasserstein(torch.eye(3, dtype=torch.float64), theta)
    x, y = spd(2, k=3)
    first = torch.autograd.grad(metric.dist(x, y), theta)
    assert first == torch.autograd.grad(metric.dist(x, y), theta)


def test_near_singular_matrices_have_right_gradients(spd):
    """Condition 1e8: the gradient of d² is I - T, with T from the transport equation at 1e-16 of the largest entry."""
    x, y = spd(2, k=5, cond=1e8)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(BuresWasserstein().sqdist(leaf, y), leaf)
    t = torch.eye(5, dtype=torch.float64) - gradient
    assert_close(t @ x @ t, y, 1e-8)


@pytest.mark.parametrize("what", ["dist", "sqdist", "mean", "geodesic", "log"])
@pytest.mark.parametrize("name", METRICS)
def test_second_derivatives_are_refused_not_wrong(spd, name, what):
    """In both ways of asking for them; what is flat has right ones."""
    metric = make_metric(name, 3)
    x, y = spd(2, k=3)
    if (name == "euclidean" and what != "dist") or (name in ("log-euclidean", "gbw", "gbw-negative") and what == "log"):
        return  # flat, or refused at the first derivative already
    call = {
        "dist": lambda x: metric.dist(x, y),
        "sqdist": lambda x: metric.sqdist(x, y),
        "mean": lambda x: metric.mean(torch.stack([x, y, 2 * y])),
        "geodesic": lambda x: metric.geodesic(x, y, 0.3),
        "log": lambda x: metric.log(x, y),
    }[what]
    for second in (lambda g, x: g.square().sum().backward(), lambda g, x: torch.autograd.grad(g.square().sum(), x)):
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(call(leaf).sum(), leaf, create_graph=True)
        with pytest.raises(DoubleBackwardError, match="differentiable once"):
            second(gradient, leaf)


def test_second_derivatives_of_flat_distances_are_right(spd):
    metric = make_metric("euclidean", 3)
    x, y = spd(2, k=3)
    assert torch.autograd.gradgradcheck(lambda x: metric.sqdist(sym(x), y), x.clone().requires_grad_())


def test_gradients_are_symmetric(spd, softmax_weights):
    x = spd(3, k=6, cond=1e4).requires_grad_()
    metric = BuresWasserstein()
    for value in (metric.dist(x[0], x[1]), metric.mean(x, softmax_weights(3)).square().sum()):
        (gradient,) = torch.autograd.grad(value, x)
        assert torch.equal(gradient, gradient.mT)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-12, 1e20, 1e30])
@pytest.mark.parametrize("queries", [2, 6])
def test_gradients_of_means_have_the_scale_of_their_points(spd, softmax_weights, scale, queries):
    """G(s X) = s G(X): the derivative of the mean does not depend on the units, also at the ends of float32."""
    points = spd(3, k=5, cond=1e2, dtype=torch.float32)
    w = softmax_weights(queries, 3, dtype=torch.float32)
    cotangent = sym(torch.randn(queries, 5, 5, generator=torch.Generator().manual_seed(0)))

    def gradient(s):
        leaf = (s * points).requires_grad_()
        return torch.autograd.grad((cotangent * BuresWasserstein().mean(leaf, w)).sum(), leaf)[0]

    assert_close(gradient(scale), gradient(1.0), 1e-3)


def test_gradient_of_one_mean_over_many_points(spd):
    """Few problems take another path than many."""
    points = spd(40, k=4, cond=20).requires_grad_()
    metric = BuresWasserstein()
    alone = torch.autograd.grad(metric.mean(points).square().sum(), points)[0]
    w = torch.full((5, 40), 1 / 40, dtype=torch.float64)
    assert_close(torch.autograd.grad(metric.mean(points, w)[3].square().sum(), points)[0], alone, 1e-9)


@pytest.mark.parametrize("shared", [(3, 1), (1, 4), (1, 1)])
def test_gradients_of_distances_sum_over_the_axes_that_were_broadcast(spd, shared):
    x, y = spd(2, *shared, k=4).requires_grad_(), spd(2, 3, 4, k=4, seed=1)
    weight = torch.arange(1.0, 25.0, dtype=x.dtype).reshape(2, 3, 4)
    (found,) = torch.autograd.grad((weight * BuresWasserstein().sqdist(x, y)).sum(), x)
    each = x.detach().expand(y.shape).clone().requires_grad_()
    (apart,) = torch.autograd.grad((weight * BuresWasserstein().sqdist(each, y)).sum(), each)
    assert_close(found, apart.sum_to_size(x.shape), 1e-12)
