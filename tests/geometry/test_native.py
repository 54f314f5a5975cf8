"""The compiled kernel, compared with torch."""

from __future__ import annotations

import pytest
import torch

from gbwatt.geometry import AffineInvariant, BuresWasserstein, _native, barycenter, linalg
from gbwatt.geometry.procrustes import _procrustes, _procrustes_by_torch
from tests.geometry.conftest import DTYPES, assert_close


@pytest.fixture
def without_kernel(monkeypatch):
    monkeypatch.setattr(_native, "_jacobi", None)


@pytest.mark.parametrize("metric", [BuresWasserstein(), AffineInvariant()], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 2, 7, 18])
def test_both_paths_give_the_same_distances_means_and_gradients(spd, softmax_weights, monkeypatch, metric, k, dtype):
    x = spd(4, 3, k=k, cond=1e3, dtype=dtype) * torch.tensor([1, 2, 3], dtype=dtype)[:, None, None]
    w = softmax_weights(4, 2, 3, dtype=dtype)
    towards = spd(4, 2, k=k, seed=5, dtype=dtype)  # not the points: at the mean their distances have no slope

    def run():
        points, weights = x.clone().requires_grad_(), w.clone().requires_grad_()
        found = barycenter(metric, points, weights)
        d = metric.dist(points[:, :, None], towards[:, None])
        loss = (d**2).sum() + (found.value * towards).sum()
        in_points, in_weights = torch.autograd.grad(loss, (points, weights))
        return found.value.detach(), d.detach(), in_points, in_weights.diag_embed()  # relative to the largest of a row

    native = run()
    monkeypatch.setattr(_native, "_jacobi", None)
    assert not _native.supports(x)
    # an iteration stops at a residual of 1e-12 or 1e-6, which the condition of the points, 1e3, multiplies
    found = 1e-9 if dtype == torch.float64 else 1e-3
    # affine-invariant slopes are those of x^-½ y x^-½, whose condition is the product of those of x and y, 1e3 and 1e2
    slope = max(found, torch.finfo(dtype).eps * 1e5) if metric == AffineInvariant() else found
    for a, b, tolerance in zip(native, run(), (found, found, slope, found), strict=True):
        assert_close(a, b, tolerance)


@pytest.mark.usefixtures("without_kernel")
def test_torch_path_reproduces_the_matrix(spd):
    f = spd(5, k=6)
    u, s, v = linalg.svd(f)
    assert_close((u * s[..., None, :]) @ v.mT, f, 1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_zero_and_graded_matrices_are_decomposed(dtype):
    """Zero columns cannot be normalised by rotations: such matrices go to LAPACK."""
    k = 5
    f = torch.stack(
        [
            torch.zeros(k, k, dtype=dtype),
            torch.ones(k, k, dtype=dtype),
            torch.diag(torch.tensor([1e-12, 1.0, 1e-6, 1e-9, 1e-3], dtype=dtype)),
            torch.eye(k, dtype=dtype) * 1e-30,
        ]
    )
    u, s, v = linalg.svd(f)
    eye = torch.eye(k, dtype=dtype).expand(4, k, k)
    assert_close(u.mT @ u, eye, 1e-5)
    assert_close(v.mT @ v, eye, 1e-5)
    assert_close((u * s[..., None, :]) @ v.mT + 1e-30, f + 1e-30, 1e-5)
    assert sorted(s[2].tolist()) == pytest.approx([1e-12, 1e-9, 1e-6, 1e-3, 1], rel=1e-6)


def test_small_singular_values_keep_their_digits(orthogonal):
    """Columns of very different length: rotations are relative to them, LAPACK's bidiagonalisation is not."""
    if not _native.available():
        pytest.skip("the kernel was not built")
    scale = torch.logspace(0, -12, 8, dtype=torch.float64)
    q = orthogonal(8)
    s = linalg.svd(q * scale).s.sort().values
    assert s.tolist() == pytest.approx(scale.sort().values.tolist(), rel=1e-13)


def test_result_of_a_matrix_does_not_depend_on_its_batch(spd):
    if not _native.available():
        pytest.skip("a property of the kernel, which was not built")
    f = spd(50, k=9, cond=1e4) @ spd(50, k=9, seed=1)
    whole = linalg.svd(f)
    for i in (0, 17, 49):
        for a, b in zip(linalg.svd(f[i : i + 1]), whole, strict=True):
            assert torch.equal(a[0], b[i])


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices_with_exact_zeros_are_decomposed_alone_as_in_a_batch(spd, dtype):
    """Columns that are orthogonal from the start must not hide others that are not."""
    generator = torch.Generator().manual_seed(0)
    sparse = torch.randn(300, 5, 5, generator=generator) * (torch.rand(300, 5, 5, generator=generator) < 0.4)
    sparse = (sparse + torch.diag_embed(torch.logspace(-2, 1, 5).expand(300, 5))).to(dtype)
    block = torch.block_diag(torch.eye(1), torch.tensor([[0.1, 0.0], [0.3, 2.0]]), torch.eye(2)).to(dtype)
    eye = torch.eye(5, dtype=dtype)
    eps = torch.finfo(dtype).eps
    together = linalg.svd(torch.cat([sparse, spd(4, k=5, dtype=dtype)]))
    for i, f in enumerate([*sparse, block]):
        u, s, v = (x[0] for x in linalg.svd(f[None]))
        assert_close((u * s) @ v.mT, f, 100 * eps)
        assert_close(u.mT @ u, eye, 100 * eps)
        assert_close(v.mT @ v, eye, 100 * eps)
        if i < 300 and _native.available():
            assert torch.equal(s, together.s[i])


def test_block_matrices_have_the_distance_of_their_blocks():
    x = torch.block_diag(torch.eye(1), torch.tensor([[0.01, 0.03], [0.03, 4.09]])).double()
    eye = torch.eye(3, dtype=torch.float64)
    values = torch.linalg.eigvalsh(x)
    assert_close(BuresWasserstein().sqdist(x, eye), (values.sqrt() - 1).square().sum(), 1e-12)
    assert_close(
        linalg.logm(x),
        torch.linalg.eigh(x).eigenvectors @ torch.diag(values.log()) @ torch.linalg.eigh(x).eigenvectors.mT,
        1e-12,
    )


def test_number_of_threads_does_not_change_the_result(spd):
    f = spd(100, k=6, cond=1e4)
    one = linalg.svd(f)
    torch.set_num_threads(2)
    try:
        two = linalg.svd(f)
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_empty_batches_pass_through():
    assert linalg.svd(torch.empty(0, 4, 4)).s.shape == (0, 4)
    assert BuresWasserstein().dist(torch.empty(0, 4, 4), torch.eye(4)).shape == (0,)
    for metric in (BuresWasserstein(), AffineInvariant()):
        assert metric.mean(torch.empty(0, 3, 4, 4), torch.empty(0, 2, 3)).shape == (0, 2, 4, 4)


def test_infinite_input_of_the_kernel_is_marked_as_failed():
    f = torch.full((1, 3, 3), torch.nan)
    if _native.supports(f):
        failed = _native.svd(f)[3]
        assert failed is not None
        assert failed.tolist() == [True]


def residual(n: torch.Tensor, points: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What is left of the fixed-point equation of means with factors ``n``, by LAPACK in float64."""
    n, b, w = n.double(), torch.linalg.cholesky(points.double()), weights.double()
    u, _, vh = torch.linalg.svd(n[..., None, :, :].mT @ b[:, None])
    new = (w[..., None, None] * (b[:, None] @ (vh.mT @ u.mT))).sum(-3)
    return torch.linalg.matrix_norm(new - n) / torch.linalg.matrix_norm(n)


@pytest.fixture
def walks(monkeypatch):
    """Lets the kernel go so many steps at most, and tells which problems it solved, call by call."""
    seen, walk = [], _native.bures_iterate_in_frames

    def limit(steps):
        def spy(n, b, w, u, tolerance, max_steps, base=None):
            result = walk(n, b, w, u, tolerance, min(steps, max_steps), base)
            seen.append(result[3].clone())
            return result

        monkeypatch.setattr(_native, "bures_iterate_in_frames", spy)
        return seen

    return limit


@pytest.mark.parametrize(("cond", "steps"), [(10.0, 50), (1e9, 100), (1e9, 3)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 5, 12])
def test_means_solve_their_equation_whichever_way_they_were_found(spd, softmax_weights, walks, k, cond, steps, dtype):
    """In the frames of a common start, in new ones as often as far points need them, or step by step: as good."""
    cond = min(cond, 1e6) if dtype == torch.float32 else cond
    x, w = spd(8, 4, k=k, cond=cond, dtype=dtype), softmax_weights(8, 3, 4, dtype=dtype)
    seen = walks(steps)
    found = barycenter(BuresWasserstein(), x, w)
    if _native.available() and k > 1:
        _common, solved = seen  # the mean for equal weights, from which queries start, and theirs
        assert solved.all() if steps > 3 else not solved.all()
    assert found.converged.all()
    factor = torch.linalg.cholesky(found.value.double())
    # the equation at the mean itself, which is known to rounding times the condition of its factor
    rounding = torch.finfo(dtype).eps * torch.linalg.cond(factor) * 4 * k
    assert (residual(factor, x, w) <= 1.1 * found.residual.double() + rounding).all()


def test_a_mean_does_not_depend_on_the_others_of_its_batch(spd, softmax_weights):
    if not _native.available():
        pytest.skip("a property of the kernel, which was not built")
    x, w = spd(9, 3, k=6, cond=50.0), softmax_weights(9, 1, 3).squeeze(1)
    x[4] = spd(3, k=6, cond=1e9, seed=3)  # one that takes the long way
    b, n = torch.linalg.cholesky(x), torch.linalg.cholesky(x.mean(1))
    u, _, turned, *_ = _native.bures_frames(n, b)
    whole = _native.bures_iterate_in_frames(n, turned, w, u, 1e-12, 25)
    assert whole[3].any()
    assert not whole[3].all()
    for i in range(9):
        part = slice(i, i + 1)
        alone = _native.bures_iterate_in_frames(n[part], turned[part], w[part], u[part], 1e-12, 25)
        assert all(torch.equal(a[0], b[i]) for a, b in zip(alone, whole, strict=True))


FUNCTIONS = [
    *((linalg.POWER, p) for p in (-1.0, 0.25, 0.5, 0.75, 1.0, 1.5, 4.0)),
    *((f, 0.0) for f in (linalg.LOG, linalg.SQRT, linalg.INVSQRT)),
    *((linalg.LOG_REEIG, floor) for floor in (1e-5, 0.3)),
]


@pytest.mark.parametrize("kind", ["spread", "repeated", "clustered", "gap"])
@pytest.mark.parametrize(("f", "p"), FUNCTIONS, ids=lambda value: str(getattr(value, "name", value)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_both_paths_give_the_same_derivative_of_a_function(spd, monkeypatch, f, p, kind, dtype):
    """Also for equal and nearly equal eigenvalues, and for those below the floor of a rectification."""
    x = spd(37, k=7, cond=1e4, kind=kind)
    values, u = (part.to(dtype) for part in torch.linalg.eigh(x))
    grad = torch.randn(37, 7, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    parameter = torch.tensor(p, dtype=dtype)
    native = linalg._spectral_gradient(f, parameter, values, u, grad)
    value = linalg._from_eigenvalues(u, f.value(values, parameter))
    monkeypatch.setattr(_native, "_jacobi", None)
    exact = linalg._spectral_gradient(f, parameter.double(), values.double(), u.double(), grad.double())
    tolerance = 1e-12 if dtype == torch.float64 else 3e-5  # differences of eigenvalues cancel before they are divided
    assert ((native.double() - exact).flatten(1).norm(dim=1) <= tolerance * exact.flatten(1).norm(dim=1)).all()
    assert_close(value, linalg._from_eigenvalues(u, f.value(values, parameter)), 20 * torch.finfo(dtype).eps)
    assert (native == native.mT).all()
    assert (value == value.mT).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_rectified_functions_take_matrices_that_are_not_positive(spd, dtype):
    x = torch.cat([spd(3, k=5, dtype=dtype), spd(3, k=5, dtype=dtype) - torch.eye(5, dtype=dtype) / 2])
    values, vectors = torch.linalg.eigh(x.double())
    expected = (vectors * values.clamp_min(0.1).log()[..., None, :]) @ vectors.mT
    assert_close(linalg.spectral(x, linalg.LOG_REEIG, 0.1).double(), expected, 50 * torch.finfo(dtype).eps)


# ------------------------------------------------------------------------------------------------------ polar factors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 2, 5, 12, 18])
@pytest.mark.parametrize("cond", [1.0, 1e1, 1e2, 1e3, 1e4, 1e6, 1e9])
def test_distances_are_exact_whether_by_steps_or_by_rotations(dtype, k, cond):
    """Halley's method where the condition is moderate, from double precision where it is not, or a decomposition."""
    torch.manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(2, 40, k, k, dtype=torch.float64)).Q for _ in range(2))
    s = torch.logspace(0, -torch.tensor(cond).log10().item() / 2, k, dtype=torch.float64)
    a, b = ((u * s) @ v.mT).to(dtype)
    square, in_a, in_b = _procrustes(a, b, True)
    exact = _procrustes_by_torch(a.double(), b.double())
    eps = torch.finfo(dtype).eps
    if _native.available() and cond * eps < 1:  # of bᵀ a; beyond, it is singular to rounding and may be left to LAPACK
        assert _native.procrustes(a, b, True)[3] is None
    norm = torch.linalg.matrix_norm(a.double())
    assert ((square - exact[0]).abs() <= (k + 5) * eps * norm**2).all()  # products of k terms
    for found, right in zip((in_a, in_b), exact[1:], strict=True):
        # the alignment of the smallest directions is known to rounding over them, and as small as they are
        assert (torch.linalg.matrix_norm(found.double() - right) <= 20 * k * eps * cond**0.5 * norm).all()


@pytest.mark.parametrize("cond", [1e3, 1e5])
def test_alignments_of_short_columns_are_exact_relative_to_their_length(cond):
    """Factors of nearly singular covariances: columns of all lengths, in single precision."""
    if not _native.available():
        pytest.skip("a property of the kernel, which was not built")
    torch.manual_seed(0)
    s = torch.logspace(0, -torch.tensor(cond).log10().item() / 2, 12, dtype=torch.float64)
    a, b = ((torch.eye(12) + 0.02 * torch.randn(60, 12, 12, dtype=torch.float64)) * s for _ in range(2))
    a, b = a.float(), b.float()
    found = _native.procrustes(a, b, True)[1]
    wrong = torch.linalg.vector_norm(found.double() - _procrustes_by_torch(a.double(), b.double())[1], dim=-2)
    assert (wrong / s).max() <= 100 * torch.finfo(torch.float32).eps


def test_a_distance_does_not_depend_on_the_others_of_its_batch(spd):
    if not _native.available():
        pytest.skip("a property of the kernel, which was not built")
    a, b = (torch.linalg.cholesky(spd(20, k=7, cond=30.0, seed=i)).float() for i in range(2))
    for i, cond in ((3, 1e6), (4, 1e5), (11, 1e9), (17, 1e12)):  # the longer ways
        a[i], b[i] = (torch.linalg.cholesky(spd(k=7, cond=cond, seed=j)).float() for j in range(2))
    whole = _native.procrustes(a, b, True)
    for i in range(20):
        part = slice(i, i + 1)
        alone = _native.procrustes(a[part], b[part], True)
        assert all(torch.equal(x[0], y[i]) for x, y in zip(alone[:3], whole[:3], strict=True))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 0.1])
def test_the_kernel_sees_what_is_not_symmetric(value):
    if not _native.available():
        pytest.skip("a property of the kernel, which was not built")
    x = torch.eye(5).expand(20, 5, 5).contiguous()
    assert _native.symmetric(x)
    x[17, 3, 1] = value
    assert not _native.symmetric(x)
    x[17, 1, 3] = value
    assert _native.symmetric(x) == (value == 0.1)
