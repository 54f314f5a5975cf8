"""Invalid input raises a typed error that names the argument, its shape, the problem and the remedy."""

from __future__ import annotations

import pytest
import torch

from gbwatt import errors
from gbwatt._validation import broadcast_shape
from gbwatt.errors import (
    InputError,
    MismatchError,
    NotFiniteError,
    NotSPDError,
    NotSymmetricError,
    ParameterError,
    ShapeError,
    WeightsError,
)
from gbwatt.geometry import BuresWasserstein, Euclidean, GeneralizedBuresWasserstein, barycenter, logm, lyapunov
from tests.geometry.conftest import METRICS, make_metric

EYE = torch.eye(3, dtype=torch.float64)


def tilted(amount: float) -> torch.Tensor:
    x = EYE.clone()
    x[0, 1] += amount
    return x


@pytest.fixture(params=METRICS)
def metric(request):
    return make_metric(request.param, 3)


def test_all_errors_are_value_errors_and_of_one_family():
    family = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, InputError)]
    assert len(family) >= 8
    assert all(issubclass(e, ValueError) for e in family)


@pytest.mark.parametrize(
    "bad, error, message",
    [
        (torch.ones(3, 4, dtype=torch.float64), ShapeError, r"'y' \(3, 4\) .*square"),
        (torch.ones(3, dtype=torch.float64), ShapeError, r"'y' \(3,\)"),
        (torch.eye(4, dtype=torch.float64), ShapeError, r"'y' \(4, 4\) .*4x4 .* 'x' 3x3"),
        (
            EYE.float(),
            MismatchError,
            r"'x' is torch.float64 and 'y' is torch.float32.*y.to\(x.dtype\)",
        ),
        (torch.eye(3, dtype=torch.long), MismatchError, r"'y' \(3, 3\) has dtype torch.int64"),
        (torch.eye(3, dtype=torch.complex64), MismatchError, "complex64"),
        ([[1.0]], MismatchError, r"'y' is a list.*torch.as_tensor\(y\)"),
        (
            tilted(1e-3),
            NotSymmetricError,
            r"'y' \(3, 3\) is not symmetric.*1.0e-03.*\(y \+ y.mT\) / 2",
        ),
        (EYE * torch.nan, NotFiniteError, r"'y' \(3, 3\) has NaN or infinite"),
        (EYE / torch.zeros((), dtype=torch.float64), NotFiniteError, "NaN or infinite"),
        (-EYE, NotSPDError, r"'y' \(3, 3\) is not positive definite: smallest eigenvalue -1.0e\+00"),
    ],
    ids=[
        "not square",
        "vector",
        "size",
        "dtype",
        "integer",
        "complex",
        "list",
        "asymmetric",
        "nan",
        "inf",
        "negative",
    ],
)
def test_bad_matrices_are_refused_by_every_metric(metric, bad, error, message):
    with pytest.raises(error, match=message):
        metric.dist(EYE, bad)


def test_matrices_on_two_devices_are_refused(metric):
    with pytest.raises(MismatchError, match=r"'x' is on cpu and 'y' on meta"):
        metric.dist(EYE, EYE.to("meta"))


def test_a_bad_matrix_is_found_in_its_batch(metric):
    x = EYE.repeat(4, 5, 1, 1)
    x[2, 3] = torch.diag(torch.tensor([1.0, 1.0, -0.5], dtype=torch.float64))
    with pytest.raises(NotSPDError, match=r"'x' \(4, 5, 3, 3\).*-5.0e-01.*in matrix \(2, 3\).*covariance"):
        metric.dist(x, EYE)
    x[2, 3, 0, 0] = torch.inf
    with pytest.raises(NotFiniteError, match=r"in matrix \(2, 3\)"):
        metric.dist(x, EYE)


SHAPES = [((2, 3), (2, 3)), ((2, 1), (3,)), ((), (4,)), ((1, 5), (2, 1, 5)), ((0, 1), (1, 4)), ((7,), ())]


@pytest.mark.parametrize(("one", "two"), SHAPES)
def test_common_shapes_are_those_of_torch(one, two):
    assert broadcast_shape(one, two) == tuple(torch.broadcast_shapes(one, two))


def test_shapes_without_a_common_one_are_refused():
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(3, 3\) do not broadcast"):
        broadcast_shape((2, 3), (3, 3))


def test_batch_axes_that_do_not_broadcast_are_refused(metric):
    with pytest.raises(ShapeError, match=r"'x' \(2, 3, 3\) and 'y' \(5, 3, 3\) do not broadcast"):
        metric.dist(EYE.expand(2, 3, 3), EYE.expand(5, 3, 3))


def test_every_verb_names_its_own_arguments(metric):
    for call, name in (
        (lambda: metric.log(-EYE, EYE), "base"),
        (lambda: metric.log(EYE, -EYE), "x"),
        (lambda: metric.exp(-EYE, EYE), "base"),
        (lambda: metric.geodesic(-EYE, EYE, 0.5), "x"),
        (lambda: metric.inner(-EYE, EYE, EYE), "base"),
        (lambda: metric.mean(-EYE.expand(2, 3, 3)), "points"),
    ):
        with pytest.raises(NotSPDError, match=f"'{name}'"):
            call()


def test_rounding_is_not_mistaken_for_asymmetry_or_indefiniteness():
    a = torch.randn(50, 20, 60, generator=torch.Generator().manual_seed(0))
    x = a @ a.mT  # symmetric up to rounding of the product
    assert torch.isfinite(BuresWasserstein().dist(x, 2 * x)).all()
    low_rank = a[..., :5] @ a[..., :5].mT  # rank 5 of 20: negative eigenvalues by rounding
    assert torch.isfinite(BuresWasserstein().dist(x, low_rank)).all()


def test_singular_matrices_are_refused_where_a_logarithm_is_needed():
    ones = torch.ones(3, 3)
    for name in ("log-euclidean", "affine-invariant", "gbw-negative"):
        with pytest.raises(NotSPDError, match=r"shrinkage.*BuresWasserstein\(\).*or float64"):
            make_metric(name, 3, torch.float32).dist(ones, torch.eye(3))
    assert BuresWasserstein().dist(ones, torch.eye(3)) > 0


@pytest.mark.parametrize(
    "weights, error, message",
    [
        (
            torch.tensor([0.5, 0.6, -0.1]),
            WeightsError,
            r"'weights' \(3,\) has negative entries, down to -1.0e-01",
        ),
        (torch.tensor([0.5, 0.6, 0.1]), WeightsError, "sum to one over the last axis, got 1.2"),
        (torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.2, 0.2]]), WeightsError, "got 0.9"),
        (
            torch.tensor([0.5, 0.5]),
            ShapeError,
            r"'weights' \(2,\) does not match the 3 matrices of 'points'",
        ),
        (torch.tensor(1.0), ShapeError, r"'weights' \(\)"),
        (torch.full((4, 2, 3), 1 / 3), ShapeError, "do not broadcast"),
        (torch.tensor([0.5, torch.nan, 0.5]), NotFiniteError, "'weights'"),
    ],
    ids=["negative", "sum", "row", "length", "scalar", "batch", "nan"],
)
def test_bad_weights_are_refused(metric, weights, error, message):
    with pytest.raises(error, match=message):
        metric.mean(EYE.expand(5, 3, 3, 3), weights.double())


def test_weights_of_another_dtype_are_refused(metric):
    with pytest.raises(MismatchError, match=r"'weights' is torch\.float32"):
        metric.mean(EYE.expand(2, 3, 3), torch.tensor([0.5, 0.5]))


def test_points_without_a_stack_axis_are_refused(metric):
    with pytest.raises(ShapeError, match=r"'points' \(3, 3\) is not a stack"):
        metric.mean(EYE)
    with pytest.raises(ShapeError, match="m > 0"):
        metric.mean(torch.empty(0, 3, 3, dtype=torch.float64))


@pytest.mark.parametrize("theta", [0.0, torch.nan, torch.inf])
def test_power_of_zero_is_refused_with_the_alternative(theta):
    with pytest.raises(ParameterError, match=r"theta=.*LogEuclidean\(\)"):
        GeneralizedBuresWasserstein(EYE, theta)


def test_bad_metric_parameters_are_refused():
    with pytest.raises(ShapeError, match=r"'M' \(2, 3, 3\) must be a single matrix"):
        GeneralizedBuresWasserstein(EYE.expand(2, 3, 3))
    with pytest.raises(ShapeError, match=r"'theta' \(2,\)"):
        GeneralizedBuresWasserstein(EYE, torch.ones(2))
    with pytest.raises(NotSPDError, match=r"'M'.*S in M = expm\(S\)"):
        GeneralizedBuresWasserstein(-EYE).dist(EYE, EYE)
    with pytest.raises(ShapeError, match=r"'M' \(4, 4\) .*4x4.* 'x' 3x3"):
        GeneralizedBuresWasserstein(torch.eye(4, dtype=torch.float64)).dist(EYE, EYE)
    with pytest.raises(MismatchError, match=r"'M' is torch\.float32"):
        GeneralizedBuresWasserstein(torch.eye(3)).dist(EYE, EYE)


def test_bad_solver_parameters_are_refused():
    points = EYE.expand(3, 3, 3)
    with pytest.raises(ParameterError, match="'implicit', 'unrolled'"):
        barycenter(Euclidean(), points, differentiate="exact")
    with pytest.raises(ParameterError, match="tol=0"):
        barycenter(Euclidean(), points, tol=0)
    with pytest.raises(ParameterError, match="max_steps=0"):
        barycenter(Euclidean(), points, max_steps=0)


def test_functions_check_their_arguments():
    with pytest.raises(NotSymmetricError):
        logm(tilted(0.1))
    with pytest.raises(NotSPDError):
        logm(-EYE)
    with pytest.raises(ShapeError, match="'s'"):
        lyapunov(EYE, torch.eye(4, dtype=torch.float64))


def test_parameters_that_are_not_numbers_are_refused(metric):
    from gbwatt.geometry import powm, reeig

    for call in (
        lambda: metric.geodesic(EYE, 2 * EYE, torch.nan),
        lambda: powm(EYE, torch.inf),
        lambda: reeig(EYE, torch.nan),
    ):
        with pytest.raises(ParameterError, match="must be finite"):
            call()
    with pytest.raises(ShapeError, match="'t'"):
        metric.geodesic(EYE.expand(4, 3, 3), EYE, torch.zeros(3))
    with pytest.raises(MismatchError, match="'theta' has dtype"):
        GeneralizedBuresWasserstein(EYE, torch.tensor(2))
    with pytest.raises(MismatchError, match="'points' is a list"):
        barycenter(metric, [[1.0]], tol=-1)


def test_a_matrix_of_zeros_is_refused(metric):
    """A flat recording, not a covariance."""
    with pytest.raises(NotSPDError, match="'y'"):
        metric.dist(EYE, 0 * EYE)


def test_metrics_can_be_compared():
    assert GeneralizedBuresWasserstein(EYE) != GeneralizedBuresWasserstein(EYE)
    assert BuresWasserstein() == BuresWasserstein()
