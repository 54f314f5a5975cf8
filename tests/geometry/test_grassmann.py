"""Subspaces: closed forms, laws, gradients with repeated eigenvalues."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck

from gbwatt.errors import DoubleBackwardError, MismatchError, ParameterError, ShapeError
from gbwatt.geometry.grassmann import leading_subspace, orthonormalise, projection_distance
from tests.geometry.conftest import DTYPES, assert_close, exact

N, P = 5, 2


def sym(x):
    return (x + x.mT) / 2


def projector(u):
    return u @ u.mT


def bases(*batch, n=N, p=P, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(*batch, n, p, dtype=torch.float64, generator=generator))[0].to(dtype)


def with_spectrum(values, seed=0):
    """A symmetric matrix with the given eigenvalues, and its eigenvectors in that order."""
    u = bases(n=len(values), p=len(values), seed=seed)
    return sym((u * torch.tensor(values, dtype=torch.float64)) @ u.mT), u


SPECTRA = {
    "distinct": [5.0, 4.0, 2.0, 1.0, 0.5],
    "repeated inside": [4.0, 4.0, 2.0, 1.0, 0.5],
    "repeated outside": [5.0, 4.0, 1.0, 1.0, 1.0],
    "repeated on both sides": [3.0, 3.0, 1.0, 1.0, 1.0],
    "nearly repeated": [3.0, 3.0 + 1e-12, 1.0, 1.0 + 1e-12, 1.0 - 1e-12],
    "indefinite": [2.0, 1.0, -1.0, -1.0, -3.0],
}


# ---------------------------------------------------------------------------------------------------- leading subspace


@pytest.mark.parametrize("values", SPECTRA.values(), ids=SPECTRA)
def test_leading_subspace_is_that_of_the_largest_eigenvalues(values):
    x, u = with_spectrum(values)
    assert_close(projector(leading_subspace(x, P)), projector(u[:, :P]), 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [1, 3, N])
def test_leading_subspace_is_orthonormal_in_any_batch(spd, dtype, p):
    x = spd(2, 3, k=N, dtype=dtype)
    u = leading_subspace(x, p)
    assert u.shape == (2, 3, N, p)
    assert u.dtype == dtype
    assert_close(u.mT @ u, torch.eye(p).expand(2, 3, p, p), exact(dtype))
    assert_close(projector(leading_subspace(x[1, 2], p)), projector(u[1, 2]), exact(dtype))


def test_eigenvectors_come_largest_first():
    u = leading_subspace(torch.diag(torch.tensor([1.0, 7.0, 3.0])), 3)
    assert u.abs().argmax(0).tolist() == [1, 2, 0]


@pytest.mark.parametrize("p", [1, 2, 4])
def test_leading_subspace_turns_with_the_matrix(spd, orthogonal, p):
    """U(R X Rᵀ) spans R U(X)."""
    x, r = spd(k=N, cond=100), orthogonal(N, seed=3)
    assert_close(projector(leading_subspace(sym(r @ x @ r.mT), p)), r @ projector(leading_subspace(x, p)) @ r.mT, 1e-11)


def test_leading_subspace_ignores_scale_and_shift(spd):
    x = spd(k=N)
    want = projector(leading_subspace(x, P))
    assert_close(projector(leading_subspace(1e-12 * x, P)), want, 1e-12)
    assert_close(projector(leading_subspace(x + 2 * torch.eye(N).double(), P)), want, 1e-11)


@pytest.mark.parametrize("values", SPECTRA.values(), ids=SPECTRA)
def test_gradient_of_functions_of_the_subspace(values):
    x, _ = with_spectrum(values)
    target = projector(bases(seed=5))
    assert gradcheck(lambda x: projector(leading_subspace(sym(x), P)), x.requires_grad_())
    assert gradcheck(lambda x: (projector(leading_subspace(sym(x), P)) * target).sum(), x)


def test_gradient_is_relative_to_the_size_of_the_matrix():
    """Covariances in V²: the floor of the gap must not swallow them."""
    x, _ = with_spectrum([4.0, 3.0, 2.0, 1.0, 0.5])
    target = projector(bases(seed=5))

    def gradient(scale):
        y = (scale * x).requires_grad_()
        (projector(leading_subspace(y, P)) * target).sum().backward()
        return scale * y.grad

    assert_close(gradient(1e-12), gradient(1.0), 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_is_finite_where_the_subspace_is_not_defined(dtype):
    """All eigenvalues equal, or all zero."""
    for size in (1.0, 0.0):
        x = (size * torch.eye(4, dtype=dtype)).requires_grad_()
        weight = torch.arange(16, dtype=dtype).reshape(4, 4)
        (projector(leading_subspace(x, 2)) * weight).sum().backward()
        assert torch.isfinite(x.grad).all()


def test_the_whole_space_has_no_gradient(spd):
    x = spd(k=3).requires_grad_()
    (projector(leading_subspace(x, 3)) * torch.arange(9.0).reshape(3, 3)).sum().backward()
    assert float(x.grad.abs().max()) == 0


def test_second_derivative_of_the_subspace_is_refused(spd):
    x = spd(k=4).requires_grad_()
    (grad,) = torch.autograd.grad(projector(leading_subspace(x, 2))[0, 1], x, create_graph=True)
    with pytest.raises(DoubleBackwardError, match="leading subspace"):
        grad.sum().backward()


@pytest.mark.parametrize("p", [0, -1, 5])
def test_dimension_outside_the_matrix_is_refused(spd, p):
    with pytest.raises(ParameterError, match=f"p={p} must be between 1 and 4"):
        leading_subspace(spd(k=4), p)


# ----------------------------------------------------------------------------------------------------- orthonormalise


def test_orthonormalise_solves_its_definition():
    y = torch.randn(3, N, P, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    q = orthonormalise(y)
    r = q.mT @ y
    assert_close(q.mT @ q, torch.eye(P).expand(3, P, P), 1e-12)
    assert_close(q @ r, y, 1e-12)
    assert float(r.tril(-1).abs().max()) < 1e-12
    assert float(r.diagonal(dim1=-2, dim2=-1).min()) > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_orthonormalise_keeps_orthonormal_bases(dtype):
    q = bases(4, dtype=dtype)
    got = orthonormalise(q)
    assert got.dtype == dtype
    assert float((got - q).abs().max()) < exact(dtype)


def test_span_depends_on_the_span_alone():
    y = bases(seed=2)
    mix = torch.tensor([[2.0, -1.0], [0.5, 3.0]], dtype=torch.float64)
    assert_close(projector(orthonormalise(y @ mix)), projector(y), 1e-12)


def test_gradient_of_orthonormalise():
    y = torch.randn(2, N, P, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert gradcheck(orthonormalise, y)
    assert gradcheck(lambda y: orthonormalise(-y), y)  # where the sign convention turns columns


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 0)])
def test_what_is_no_basis_is_refused(shape):
    with pytest.raises(ShapeError, match="bases"):
        orthonormalise(torch.zeros(shape))


# ------------------------------------------------------------------------------------------------ projection distance


def test_distance_by_its_definition():
    q, k = bases(3, 1, seed=1), bases(1, 4, seed=2)
    want = torch.linalg.matrix_norm(projector(q) - projector(k))
    assert want.shape == (3, 4)
    assert float((projection_distance(q, k) - want).abs().max()) < 1e-12


@pytest.mark.parametrize("angle", [1e-9, 1e-5, 0.1, 1.0, 1.5707])
def test_distance_of_two_lines_is_the_sine_of_their_angle(angle):
    """√2 sin θ, also for angles whose cosine rounds to 1."""
    angle = torch.tensor(angle, dtype=torch.float64)
    q = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    k = torch.stack([angle.cos(), angle.sin()])[:, None]
    assert float((projection_distance(q, k) / (2**0.5 * angle.sin()) - 1).abs()) < 1e-12


def test_distance_of_orthogonal_subspaces_is_the_largest():
    eye = torch.eye(4, dtype=torch.float64)
    assert float(projection_distance(eye[:, :2], eye[:, 2:])) == pytest.approx(2.0, abs=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_distance_laws(orthogonal, dtype):
    q, k, via = bases(3, seed=4, dtype=dtype)
    r, turn = orthogonal(N, seed=1).to(dtype), orthogonal(P, seed=2).to(dtype)
    d = projection_distance(q, k)
    tol = exact(dtype)
    assert float((d - projection_distance(k, q)).abs()) < tol
    assert float((d - projection_distance(q @ turn, k)).abs()) < tol  # another basis of the same subspace
    assert float((d - projection_distance(r @ q, r @ k)).abs()) < tol
    assert float(d) <= float(projection_distance(q, via) + projection_distance(via, k)) + tol
    assert float(projection_distance(q, q)) == 0
    assert float(projection_distance(q, q @ turn)) < tol


def test_gradient_of_the_distance():
    q, k = bases(2, seed=1).requires_grad_(), bases(2, seed=2).requires_grad_()
    assert gradcheck(projection_distance, (q, k))


def test_gradient_of_the_distance_is_0_at_equality_and_of_unit_size_close_to_it():
    q = bases(seed=1).requires_grad_()
    (grad,) = torch.autograd.grad(projection_distance(q, q.detach().clone()), q)
    assert float(grad.abs().max()) == 0
    angle = torch.tensor(1e-7, dtype=torch.float64, requires_grad=True)
    line = torch.stack([angle.cos(), angle.sin()])[:, None]
    (speed,) = torch.autograd.grad(projection_distance(torch.eye(2).double()[:, :1], line), angle)
    assert float(speed) == pytest.approx(2**0.5, rel=1e-6)


def test_bases_that_do_not_match_are_refused():
    with pytest.raises(ShapeError, match="bases of one size"):
        projection_distance(bases(p=2), bases(p=3))
    with pytest.raises(ShapeError, match="do not broadcast"):
        projection_distance(bases(2), bases(3))
    with pytest.raises(MismatchError, match="float32"):
        projection_distance(bases(), bases(dtype=torch.float32))
