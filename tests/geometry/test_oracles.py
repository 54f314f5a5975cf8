"""Independent oracles: mpmath at 60 digits, and SciPy."""

from __future__ import annotations

import mpmath
import pytest
import scipy.linalg
import torch

from gbwatt.geometry import AffineInvariant, BuresWasserstein, GeneralizedBuresWasserstein, LogEuclidean, barycenter
from tests.geometry.conftest import CONDITIONS, assert_close

BW = BuresWasserstein()
DIGITS = 60


def precise(x):
    """The stored numbers of a tensor, exactly, as an mpmath matrix."""
    return mpmath.matrix(x.double().tolist())


def power(x, p):
    """Power of a symmetric mpmath matrix; negative eigenvalues, which rounding makes, count as zero."""
    values, vectors = mpmath.eigsy(x)
    return vectors * mpmath.diag([mpmath.mpf(max(v, 0)) ** p for v in values]) * vectors.T


def bures(x, y):
    """d_BW of two mpmath matrices by the cancelling formula, harmless at 60 digits."""
    root = power(x, mpmath.mpf(1) / 2)
    inner = root * y * root
    values, _ = mpmath.eigsy((inner + inner.T) / 2)
    cross = sum(mpmath.sqrt(max(v, 0)) for v in values)
    return mpmath.sqrt(sum((x + y)[i, i] for i in range(x.rows)) - 2 * cross)


@pytest.mark.parametrize("k", [2, 9])
@pytest.mark.parametrize("cond", CONDITIONS)
def test_far_distances_in_float64_have_twelve_digits_at_any_condition(spd, k, cond):
    x, y = spd(2, k=k, cond=cond)
    y = 2 * y
    with mpmath.workdps(DIGITS):
        want = float(bures(precise(x), precise(y)))
    assert float(BW.dist(x, y)) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("k", [2, 9])
@pytest.mark.parametrize("cond", [c for c in CONDITIONS if c <= 1e6])
def test_far_distances_in_float32_have_five_digits_up_to_a_million(spd, k, cond):
    x, y = spd(2, k=k, cond=cond, dtype=torch.float32)
    y = 2 * y
    with mpmath.workdps(DIGITS):
        want = float(bures(precise(x), precise(y)))
    assert float(BW.dist(x, y)) == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("gap", [1e-3, 1e-6])
@pytest.mark.parametrize("cond", [1e2, 1e6])
def test_near_distances_lose_only_what_their_smallness_costs(spd, cond, gap):
    """A distance of gap · √tr X is a difference of factors: its error is rounding over gap, not over gap²."""
    x = spd(k=6, cond=cond)
    y = x * (1 + 2 * gap)
    with mpmath.workdps(DIGITS):
        want = float(bures(precise(x), precise(y)))
    assert float(BW.dist(x, y)) == pytest.approx(want, rel=100 * torch.finfo(x.dtype).eps / gap)


@pytest.mark.parametrize("theta", [0.5, 1.5, -0.7])
def test_generalised_distance_at_sixty_digits(spd, theta):
    x, y, m = spd(3, k=5, cond=1e4)
    y = 2 * y
    with mpmath.workdps(DIGITS):
        root = power(precise(m), -mpmath.mpf(1) / 2)
        images = [root * power(precise(a), mpmath.mpf(theta)) * root for a in (x, y)]
        want = float(bures(*((z + z.T) / 2 for z in images)) / abs(theta))
    got = GeneralizedBuresWasserstein(m, theta).dist(x, y)
    # a relative error ε of X is one of ε κ in its smallest eigenvalue, which a negative power makes the largest
    assert float(got) == pytest.approx(want, rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("cond", [1e2, 1e6, 1e12])
def test_mean_solves_its_equation_at_sixty_digits(spd, softmax_weights, cond):
    """|G - Σ w (G^½ X G^½)^½| / |G| of the stored result, checked where nothing is lost."""
    k = 8
    points, w = spd(3, k=k, cond=cond), softmax_weights(3)
    g = barycenter(BW, points, w).value
    with mpmath.workdps(DIGITS):
        root = power(precise(g), mpmath.mpf(1) / 2)
        total = mpmath.zeros(k)
        for x, weight in zip(points, w.tolist(), strict=True):
            inner = root * precise(x) * root
            total += weight * power((inner + inner.T) / 2, mpmath.mpf(1) / 2)
        residual = float(mpmath.mnorm(total - precise(g), "f") / mpmath.mnorm(precise(g), "f"))
    assert residual < 1e-11


def test_affine_invariant_distance_is_that_of_generalised_eigenvalues(spd):
    x, y = spd(2, k=7, cond=1e3)
    values = torch.from_numpy(scipy.linalg.eigvalsh(y.numpy(), x.numpy()))
    assert_close(AffineInvariant().dist(x, y), values.log().square().sum().sqrt(), 1e-11)


def test_log_euclidean_distance_with_scipy(spd):
    x, y = spd(2, k=7, cond=1e3)
    want = scipy.linalg.norm(scipy.linalg.logm(x.numpy()) - scipy.linalg.logm(y.numpy()))
    assert_close(LogEuclidean().dist(x, y), torch.tensor(want), 1e-11)
