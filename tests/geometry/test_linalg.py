"""Functions of symmetric matrices, linear equations and half-vectorisation."""

from __future__ import annotations

import mpmath
import pytest
import scipy.linalg
import torch

from gbwatt.errors import DoubleBackwardError, NotSPDError, ShapeError
from gbwatt.geometry import expm, generalized_lyapunov, invsqrtm, logm, lyapunov, powm, reeig, sqrtm, unvech, vech
from gbwatt.geometry.linalg import EXP, INVSQRT, LOG, POWER, REEIG, SQRT, eigh, factor, spectral, svd
from gbwatt.geometry.procrustes import polar
from tests.conftest import SPECTRA
from tests.geometry.conftest import CONDITIONS, DTYPES, SIZES, assert_close, exact

SCIPY = {
    "log": (logm, lambda x: scipy.linalg.logm(x)),
    "exp": (expm, scipy.linalg.expm),
    "sqrt": (sqrtm, lambda x: scipy.linalg.sqrtm(x)),
    "invsqrt": (invsqrtm, lambda x: scipy.linalg.inv(scipy.linalg.sqrtm(x))),
    "power": (lambda x: powm(x, 0.3), lambda x: scipy.linalg.fractional_matrix_power(x, 0.3)),
    "inverse power": (lambda x: powm(x, -1.7), lambda x: scipy.linalg.fractional_matrix_power(x, -1.7)),
}
QUOTIENTS = {
    "log": (LOG, mpmath.log, 0.0),
    "exp": (EXP, mpmath.exp, 0.0),
    "sqrt": (SQRT, mpmath.sqrt, 0.0),
    "invsqrt": (INVSQRT, lambda x: 1 / mpmath.sqrt(x), 0.0),
    "power 1.5": (POWER, lambda x: x ** mpmath.mpf("1.5"), 1.5),
    "power 0.75": (POWER, lambda x: x ** mpmath.mpf("0.75"), 0.75),
    "power -0.5": (POWER, lambda x: x ** mpmath.mpf("-0.5"), -0.5),
}


@pytest.mark.parametrize("kind", SPECTRA)
@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("name", SCIPY)
def test_matrix_functions_agree_with_scipy(spd, name, k, kind):
    """To 100 eps κ, which bounds the relative error of functions whose derivative grows at most like 1 / λ.

    SciPy's Schur form of a matrix with repeated eigenvalues may have a pair of complex ones, depending on how LAPACK
    rounds on a processor: then its result has an imaginary part, of the size of the error.
    """
    ours, oracle = SCIPY[name]
    x = spd(k=k, cond=1e3, kind=kind)
    want, tolerance = oracle(x.numpy()), exact(torch.float64, 1e3)
    assert abs(want.imag).max() <= tolerance * abs(want).max()
    assert_close(ours(x), torch.from_numpy(want.real.copy()), tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", SIZES)
def test_inverse_functions_undo_each_other(spd, k, dtype):
    x = spd(3, k=k, cond=1e2, dtype=dtype)
    assert_close(expm(logm(x)), x, exact(dtype, 10))
    assert_close(sqrtm(x) @ sqrtm(x), x, exact(dtype))
    assert_close(powm(powm(x, 1.7), 1 / 1.7), x, exact(dtype, 1e2))
    assert_close(invsqrtm(x) @ sqrtm(x), torch.eye(k, dtype=dtype).expand(3, k, k), exact(dtype, 1e2))


@pytest.mark.parametrize("gap", [0.0, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.9, 0.999999])
@pytest.mark.parametrize("size", [1e-12, 1e-5, 1.0, 30.0])
@pytest.mark.parametrize("name", QUOTIENTS)
def test_difference_quotients_are_exact_however_close_the_eigenvalues(name, size, gap):
    """Against 60 digits; the branch for close eigenvalues is relative to their size."""
    f, oracle, p = QUOTIENTS[name]
    a, b = torch.tensor(size, dtype=torch.float64), torch.tensor(size * (1 - gap), dtype=torch.float64)
    with mpmath.workdps(60):
        x, y = mpmath.mpf(float(a)), mpmath.mpf(float(b))
        want = float(mpmath.diff(oracle, x) if x == y else (oracle(x) - oracle(y)) / (x - y))
    got = f.quotient(a, b, torch.tensor(p, dtype=torch.float64))
    assert float(got) == pytest.approx(want, rel=2e-14)
    assert float(f.quotient(b, a, torch.tensor(p, dtype=torch.float64))) == pytest.approx(want, rel=2e-14)


def test_rectification_clips_eigenvalues_and_its_quotients_are_those_of_max(spd):
    x = spd(k=6, cond=1e4)
    values = torch.linalg.eigvalsh(reeig(x, 1e-2))
    assert values.min() == pytest.approx(1e-2, rel=1e-10)
    assert values.max() == pytest.approx(1.0, rel=1e-10)
    a = torch.tensor([3.0, 0.2, 3.0, 0.2, 1.0])
    b = torch.tensor([2.0, 0.1, 0.5, 0.2, 1.0])
    assert REEIG.quotient(a, b, torch.tensor(1.0)).tolist() == pytest.approx([1, 0, 0.8, 0, 0])


@pytest.mark.parametrize("kind", SPECTRA)
@pytest.mark.parametrize("name", ["log", "exp", "sqrt", "invsqrt", "power", "reeig"])
def test_gradient_of_matrix_functions_with_repeated_eigenvalues(spd, name, kind):
    ours = {
        "log": logm,
        "exp": expm,
        "sqrt": sqrtm,
        "invsqrt": invsqrtm,
        "power": lambda x: powm(x, 1.5),
        "reeig": lambda x: reeig(x, 0.3),
    }[name]
    x = spd(2, k=4, cond=20, kind=kind).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ours((x + x.mT) / 2), x)


@pytest.mark.parametrize("name", ["log", "sqrt", "invsqrt", "power"])
def test_gradient_at_the_identity_is_finite_and_right(name):
    """Plain autograd through eigh gives NaN there."""
    ours = {"log": logm, "sqrt": sqrtm, "invsqrt": invsqrtm, "power": lambda x: powm(x, 0.75)}[name]
    slope = {"log": 1.0, "sqrt": 0.5, "invsqrt": -0.5, "power": 0.75}[name]
    x = torch.eye(5, dtype=torch.float64, requires_grad=True)
    weight = torch.arange(25, dtype=torch.float64).reshape(5, 5)
    (gradient,) = torch.autograd.grad((weight * ours(x)).sum(), x)
    assert_close(gradient, slope * (weight + weight.mT) / 2, 1e-14)


def test_power_is_differentiable_in_its_exponent(spd):
    x = spd(3, k=4, cond=50)
    theta = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: powm(x, t), theta)
    per_matrix = torch.tensor([0.8, -1.2, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: powm(x, t), per_matrix)


def test_function_of_a_gram_matrix_equals_function_of_the_product(spd):
    a = torch.linalg.cholesky(spd(2, k=5, cond=1e2)).requires_grad_()
    assert_close(spectral(a, LOG, gram=True), logm((a @ a.mT).detach()), 1e-12)
    assert torch.autograd.gradcheck(lambda a: spectral(a, POWER, 0.4, gram=True), a)


def test_second_derivatives_are_refused_clearly(spd):
    x = spd(k=3).requires_grad_()
    (gradient,) = torch.autograd.grad(logm(x).sum(), x, create_graph=True)
    with pytest.raises(DoubleBackwardError, match="differentiable once"):
        gradient.sum().backward()


def test_a_graph_that_is_not_used_twice_is_not_refused(spd):
    x = spd(k=3).requires_grad_()
    (gradient,) = torch.autograd.grad(logm(x).sum(), x, create_graph=True)
    assert torch.isfinite(gradient.detach()).all()


@pytest.mark.parametrize("kind", SPECTRA)
@pytest.mark.parametrize("k", SIZES)
def test_lyapunov_solves_its_equation_like_scipy(spd, k, kind):
    x, s = spd(2, k=k, cond=1e3, kind=kind)
    got = lyapunov(x, s)
    assert_close(x @ got + got @ x, s, exact(torch.float64, 1e3))
    assert_close(got, torch.from_numpy(scipy.linalg.solve_continuous_lyapunov(x.numpy(), s.numpy())), 1e-9)


@pytest.mark.parametrize("k", SIZES)
def test_generalized_lyapunov_solves_its_equation(spd, k):
    x, m, s = spd(3, k=k, cond=1e2)
    got = generalized_lyapunov(x, m, s)
    assert_close(x @ got @ m + m @ got @ x, s, exact(torch.float64, 1e4))
    assert_close(generalized_lyapunov(x, torch.eye(k, dtype=x.dtype), s), lyapunov(x, s), 1e-12)


def test_lyapunov_solvers_are_twice_differentiable(spd):
    x, m, s = (a.clone().requires_grad_() for a in spd(3, k=3, cond=5))

    def symmetric(f):
        return lambda *args: f(*((a + a.mT) / 2 for a in args))

    assert torch.autograd.gradcheck(symmetric(lyapunov), (x, s))
    assert torch.autograd.gradgradcheck(symmetric(lyapunov), (x, s))
    assert torch.autograd.gradgradcheck(symmetric(generalized_lyapunov), (x, m, s))


def test_lyapunov_at_repeated_eigenvalues_has_a_gradient():
    x = torch.eye(3, dtype=torch.float64, requires_grad=True)
    s = torch.ones(3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, s: lyapunov((x + x.mT) / 2, (s + s.mT) / 2), (x, s))


@pytest.mark.parametrize("k", SIZES)
def test_half_vectors_round_trip(spd, k):
    x = spd(2, 3, k=k)
    assert vech(x).shape == (2, 3, k * (k + 1) // 2)
    assert torch.equal(unvech(vech(x)), x)


def test_half_vectors_have_both_derivatives():
    x = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(vech, x)
    assert torch.autograd.gradgradcheck(vech, x)


def test_half_vector_keeps_plain_entries_of_the_upper_triangle():
    assert vech(torch.tensor([[1.0, 2.0], [9.0, 3.0]])).tolist() == [1, 2, 3]
    with pytest.raises(ShapeError, match="upper triangles"):
        unvech(torch.zeros(4))


def test_polar_factor_is_orthogonal_and_differentiable():
    f = torch.randn(3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    q = polar(f)
    assert_close(q.mT @ q, torch.eye(4, dtype=torch.float64).expand(3, 4, 4), 1e-14)
    want = torch.from_numpy(scipy.linalg.polar(f[0].numpy())[0])
    assert_close(q[0], want, 1e-13)
    assert torch.autograd.gradcheck(polar, f.requires_grad_())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cond", CONDITIONS)
def test_factor_reproduces_the_matrix_also_where_cholesky_fails(spd, dtype, cond):
    """Backward stable: the error is rounding of the largest entry, however small the smallest eigenvalue."""
    x = spd(20, k=18, cond=cond, dtype=dtype, kind="gap")
    a = factor(x)
    assert torch.isfinite(a).all()
    assert_close(a @ a.mT, x, 100 * torch.finfo(dtype).eps)


def test_singular_matrices_are_accepted_by_the_root_and_refused_by_the_logarithm():
    ones = torch.ones(4, 4, dtype=torch.float64)
    assert_close(sqrtm(ones), ones / 2, 1e-7)  # the root of a rounded zero is 1e-8
    for refused in (logm, invsqrtm, lambda x: powm(x, -1.0)):
        with pytest.raises(NotSPDError, match="'x'"):
            refused(ones)


@pytest.mark.parametrize("scale", [1e-14, 1e14])
def test_no_absolute_floor_swallows_small_units(spd, scale):
    """Covariances in V² have entries of 1e-12: functions must scale with them."""
    x = spd(k=5, cond=1e3)
    shift = torch.eye(5, dtype=x.dtype) * torch.tensor(scale, dtype=x.dtype).log()
    assert_close(sqrtm(scale * x), scale**0.5 * sqrtm(x), 1e-12)
    assert_close(logm(scale * x), logm(x) + shift, 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", SIZES)
def test_decompositions_reproduce_their_matrix(spd, k, dtype):
    f = torch.linalg.cholesky(spd(37, k=k, cond=1e4, dtype=dtype)).mT @ spd(37, k=k, cond=1e2, dtype=dtype, seed=1)
    u, s, v = svd(f)
    eps = torch.finfo(dtype).eps
    assert_close((u * s[..., None, :]) @ v.mT, f, 50 * eps)
    eye = torch.eye(k, dtype=dtype).expand(37, k, k)
    assert_close(u.mT @ u, eye, 100 * eps)
    assert_close(v.mT @ v, eye, 100 * eps)
    x = spd(37, k=k, cond=1e3, dtype=dtype)
    values, vectors = eigh(x, "definite")
    assert_close((vectors * values[..., None, :]) @ vectors.mT, x, 100 * eps)
