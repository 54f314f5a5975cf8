"""Other geometry libraries as oracles, on well-conditioned matrices for which they are accurate."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from gbwatt.geometry import AffineInvariant, BuresWasserstein, Euclidean, LogEuclidean
from tests.geometry.conftest import assert_close

pytestmark = pytest.mark.peers

PYRIEMANN = {
    "euclid": Euclidean(),
    "logeuclid": LogEuclidean(),
    "riemann": AffineInvariant(),
    "wasserstein": BuresWasserstein(),
}


@pytest.fixture
def data(spd, softmax_weights):
    return spd(4, k=5, cond=50), softmax_weights(4)


@pytest.mark.parametrize("name", PYRIEMANN)
def test_pyriemann(data, name):
    from pyriemann.geometry.distance import distance
    from pyriemann.geometry.geodesic import geodesic
    from pyriemann.geometry.mean import gmean
    from pyriemann.geometry.tangentspace import exp_map, log_map

    metric = PYRIEMANN[name]
    points, w = data
    x, y = points[0], points[1]
    a, b = x.numpy(), y.numpy()
    assert float(metric.dist(x, y)) == pytest.approx(distance(b, a, metric=name), rel=1e-8)
    assert_close(metric.geodesic(x, y, 0.3), torch.from_numpy(geodesic(a, b, 0.3, metric=name)), 1e-8)
    iterated = {"tol": 1e-12} if name in ("riemann", "wasserstein") else {}
    mean = gmean(points.numpy(), metric=name, sample_weight=w.numpy(), **iterated)
    assert_close(metric.mean(points, w), torch.from_numpy(mean), 1e-7)
    if name == "logeuclid":  # its maps are in the coordinates of the logarithm
        return
    unwhitened = {"riemann": ({"C12": True}, {"Cm12": True})}.get(name, ({}, {}))
    tangent = log_map(b[None], a, metric=name, **unwhitened[0])
    assert_close(metric.log(x, y), torch.from_numpy(tangent[0]), 1e-8)
    arrived = exp_map(0.5 * tangent, a, metric=name, **unwhitened[1])
    assert_close(metric.exp(x, 0.5 * metric.log(x, y)), torch.from_numpy(arrived[0]), 1e-8)


def test_pot(data):
    import ot

    points, w = data
    x, y = points[0], points[1]
    zero = np.zeros(5)
    want = ot.gaussian.bures_wasserstein_distance(zero, zero, x.numpy(), y.numpy())
    assert float(BuresWasserstein().dist(x, y)) == pytest.approx(float(want), rel=1e-9)
    _, mean = ot.gaussian.bures_wasserstein_barycenter(
        np.zeros((4, 5)), points.numpy(), weights=w.numpy(), num_iter=2000, eps=1e-14
    )
    assert_close(BuresWasserstein().mean(points, w), torch.from_numpy(mean), 1e-7)
    transport, _ = ot.gaussian.bures_wasserstein_mapping(zero, zero, x.numpy(), y.numpy())
    t = torch.from_numpy(transport)
    log = (t - torch.eye(5)) @ x
    assert_close(BuresWasserstein().log(x, y), log + log.mT, 1e-8)


@pytest.fixture
def geomstats_spd():
    os.environ.setdefault("GEOMSTATS_BACKEND", "numpy")
    if not hasattr(np, "trapz"):  # its 2.8.0 still imports the name that numpy 2.4 dropped
        np.trapz = np.trapezoid  # noqa: NPY201
    return pytest.importorskip("geomstats.geometry.spd_matrices")


def test_geomstats(data, geomstats_spd):
    points, _ = data
    x, y, v = points[0], points[1], 0.1 * points[2]
    space = geomstats_spd.SPDMatrices(5, equip=False)
    for ours, cls in (
        (BuresWasserstein(), geomstats_spd.SPDBuresWassersteinMetric),
        (AffineInvariant(), geomstats_spd.SPDAffineMetric),
        (Euclidean(), geomstats_spd.SPDEuclideanMetric),
        (LogEuclidean(), geomstats_spd.SPDLogEuclideanMetric),
    ):
        space.equip_with_metric(cls)
        theirs = space.metric
        a, b, s = x.numpy(), y.numpy(), v.numpy()
        assert float(ours.sqdist(x, y)) == pytest.approx(float(theirs.squared_dist(a, b)), rel=1e-8)
        assert_close(ours.log(x, y), torch.from_numpy(theirs.log(b, a)), 1e-8)
        assert_close(ours.exp(x, v), torch.from_numpy(theirs.exp(s, a)), 1e-8)
        assert float(ours.inner(x, v, y)) == pytest.approx(float(theirs.inner_product(s, b, a)), rel=1e-8)


def test_spd_learn(data):
    functional = pytest.importorskip("spd_learn.functional")
    points, _ = data
    want = functional.bures_wasserstein_distance(points[0], points[1])
    assert float(BuresWasserstein().dist(points[0], points[1])) == pytest.approx(float(want), rel=1e-6)
