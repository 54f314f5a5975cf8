"""Coordinates of a metric at its origin."""

from __future__ import annotations

import pytest
import torch

from gbwatt.geometry import BuresWasserstein, GeneralizedBuresWasserstein, LogEuclidean, logm, powm, sqrtm

from .conftest import METRICS, assert_close, make_metric


@pytest.mark.parametrize("name", METRICS)
def test_point_undoes_coordinates(spd, name):
    metric, x = make_metric(name, 5), spd(4, k=5)
    assert_close(metric.point(metric.coordinates(x)), x, 1e-10)


@pytest.mark.parametrize("name", METRICS)
def test_norm_of_coordinates_is_the_distance_from_the_origin(spd, name):
    metric, x = make_metric(name, 5), spd(4, k=5)
    origin = metric.point(torch.zeros(5, 5, dtype=torch.float64))
    assert_close(torch.linalg.matrix_norm(metric.coordinates(x)), metric.dist(origin, x), 1e-10)


def test_coordinates_have_closed_forms(spd):
    x, eye = spd(4, k=5), torch.eye(5, dtype=torch.float64)
    assert_close(BuresWasserstein().coordinates(x), sqrtm(x) - eye, 1e-12)
    assert_close(LogEuclidean().coordinates(x), logm(x), 1e-12)
    deformed = GeneralizedBuresWasserstein(eye, 1.5)
    assert_close(deformed.coordinates(x), (powm(x, 0.75) - eye) / 1.5, 1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_coordinates_are_differentiable(spd, name):
    metric, x = make_metric(name, 3), spd(2, k=3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: metric.coordinates((x + x.mT) / 2), x)
    assert torch.autograd.gradcheck(
        lambda c: metric.point((c + c.mT) / 2), metric.coordinates(x.detach()).requires_grad_()
    )


@pytest.mark.parametrize("name", METRICS)
def test_a_tangent_mean_is_the_point_of_mean_coordinates(spd, softmax_weights, name):
    metric, x, weights = make_metric(name, 5), spd(4, 3, k=5), softmax_weights(4, 2, 3)
    expected = metric.point(torch.einsum("bqm,bmij->bqij", weights, metric.coordinates(x)))
    assert_close(metric.tangent_mean(x, weights), expected, 1e-10)
