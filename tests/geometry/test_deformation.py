from __future__ import annotations

import pytest
import torch

from gbwatt.geometry import GeneralizedBuresWasserstein, _native
from gbwatt.geometry.charts import DeformedRoot, deformed_factor, deformed_power, mapped_factors
from tests.geometry.conftest import assert_close

needs_kernel = pytest.mark.skipif(not _native.available(), reason="a property of the kernel, which was not built")
POWERS = (-0.7, 0.5, 1.0, 1.5, 3.0)


def square(a):
    return a @ a.mT


@needs_kernel
@pytest.mark.parametrize("theta", POWERS)
@pytest.mark.parametrize(("k", "batch"), [(1, 3), (5, 1), (12, 17), (18, 40)])
def test_the_kernels_factor_is_one_of_the_deformed_matrix(spd, theta, k, batch):
    x, m = spd(batch, k=k, cond=1e4), spd(k=k, cond=30, seed=5)
    c = torch.linalg.cholesky(m)
    values, u = torch.linalg.eigh(x)
    inverse = torch.linalg.inv(c)
    want = inverse @ ((u * values[:, None, :] ** theta) @ u.mT) @ inverse.mT
    found = deformed_factor(x, c, theta / 2)
    assert found is not None
    assert_close(square(found), want, 1e-11)
    back = deformed_power(found, c, 1 / theta)
    assert back is not None
    assert_close(back, x, 1e-11)
    assert torch.equal(back, back.mT)


def derivatives(theta, x, m, y):
    """Those of a distance and a mean, both of which are blind to turns of factors."""
    x, m, theta = x.clone().requires_grad_(), m.clone().requires_grad_(), theta.clone().requires_grad_()
    metric = GeneralizedBuresWasserstein(m, theta)
    weights = x.new_tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    value = metric.sqdist(x, y).sum() + metric.mean(x, weights)[..., 0, 1].sum()
    return torch.autograd.grad(value, (x, m, theta))


@needs_kernel
@pytest.mark.parametrize("theta", [-0.7, 1.5])
def test_derivatives_equal_those_of_the_torch_path(spd, theta, monkeypatch):
    x, y, m = spd(9, 3, k=6, cond=100.0), spd(9, 3, k=6, cond=100.0, seed=1), spd(k=6, cond=20, seed=2)
    theta = torch.tensor(theta, dtype=x.dtype)
    found = derivatives(theta, x, m, y)
    monkeypatch.setattr(_native, "_jacobi", None)
    for got, want in zip(found, derivatives(theta, x, m, y), strict=True):
        assert_close(got, want, 1e-9)


@needs_kernel
def test_matrices_that_the_kernel_does_not_take_are_left_to_torch(spd):
    x, c = spd(3, k=4), torch.eye(4, dtype=torch.float64)
    x[1] = torch.diag(torch.tensor([1.0, 1.0, 1.0, 0.0]))
    assert deformed_factor(x, c, 0.75) is None
    chart = DeformedRoot(c, 1.5)
    assert_close(square(chart(x)), torch.stack([torch.linalg.matrix_power(s, 3) for s in matrix_root(x)]), 1e-9)


def matrix_root(x):
    values, u = torch.linalg.eigh(x)
    return (u * values.clamp_min(0).sqrt()[..., None, :]) @ u.mT


def test_a_power_for_each_matrix_is_left_to_torch(spd):
    assert deformed_factor(spd(3, k=4), torch.eye(4, dtype=torch.float64), torch.ones(3)) is None


def test_a_power_for_each_matrix_has_no_common_decomposition(spd):
    x, eye = spd(3, k=4), torch.eye(4, dtype=torch.float64)
    assert mapped_factors(x, eye[None], eye, torch.ones(3)) is None


def factors_one_by_one(x, w, c, p):
    """Factors of ``wᵀ x w``, each from its own decomposition."""
    return torch.stack([deformed_factor(one.mT @ x @ one, c, p) for one in w])


@needs_kernel
@pytest.mark.parametrize("theta", POWERS)
@pytest.mark.parametrize(("k", "batch", "maps"), [(1, (3,), 2), (5, (1,), 3), (12, (17, 2), 3), (18, (40,), 1)])
def test_factors_of_mapped_matrices_come_from_one_decomposition(spd, orthogonal, theta, k, batch, maps):
    """Values, and derivatives of functions that are invariant to rotated factors."""
    x, c = spd(*batch, k=k, cond=1e3), torch.linalg.cholesky(spd(k=k, cond=30, seed=5))
    w = torch.stack([orthogonal(k, seed) for seed in range(maps)])
    weights = torch.randn(maps, *x.shape, dtype=x.dtype)
    found = []
    for function in (mapped_factors, factors_one_by_one):
        inputs = [one.clone().requires_grad_() for one in (x, w, c, torch.tensor(theta / 2, dtype=x.dtype))]
        squares = square(function(*inputs))
        found.append((squares.detach(), *torch.autograd.grad((squares * weights).sum(), inputs)))
    for got, want in zip(*found, strict=True):
        assert_close(got, (want + want.mT) / 2 if want.shape == x.shape else want, 1e-9)


@needs_kernel
def test_only_orthogonal_maps_share_a_decomposition(spd, orthogonal):
    x, c, w = spd(3, k=6), torch.eye(6, dtype=torch.float64), torch.stack([orthogonal(6, seed) for seed in range(2)])
    rounding = 6 * torch.finfo(x.dtype).eps
    assert mapped_factors(x, w * (1 + rounding), c, 0.75) is not None
    assert mapped_factors(x, w * (1 + 10 * rounding), c, 0.75) is None
    assert mapped_factors(x, w * torch.nan, c, 0.75) is None
    x[1] = torch.diag(torch.tensor([1.0, 1, 1, 1, 1, 0]))
    assert mapped_factors(x, w, c, 0.75) is None


@needs_kernel
def test_factors_of_mapped_matrices_do_not_depend_on_the_batch(spd, orthogonal):
    x, c, w = (
        spd(40, k=7),
        torch.linalg.cholesky(spd(k=7, seed=1)),
        torch.stack([orthogonal(7, seed) for seed in range(3)]),
    )
    together = mapped_factors(x, w, c, 0.75)
    alone = torch.cat([mapped_factors(one[None], w, c, 0.75) for one in x], 1)
    assert torch.equal(together, alone)
