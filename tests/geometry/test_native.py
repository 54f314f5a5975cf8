"""The compiled kernel and the torch path it stands in for."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest
import torch

from gbwatt.geometry import BuresWasserstein, _native, barycenter, linalg
from tests.geometry.conftest import DTYPES, assert_close

COMPILER = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])
HEADER = Path(sysconfig.get_path("include"), "Python.h")


@pytest.mark.skipif(not COMPILER or not HEADER.exists(), reason="no C compiler: the torch path is used")
def test_the_kernel_is_built_where_a_compiler_is(pytestconfig):
    assert _native.available() != pytestconfig.getoption("--torch-path")


@pytest.fixture
def without_kernel(monkeypatch):
    monkeypatch.setattr(_native, "_jacobi", None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 2, 7, 18])
def test_both_paths_give_the_same_distances_means_and_gradients(spd, softmax_weights, monkeypatch, k, dtype):
    x = spd(4, 3, k=k, cond=1e3, dtype=dtype)
    w = softmax_weights(4, 2, 3, dtype=dtype)

    def run():
        points = x.clone().requires_grad_()
        found = barycenter(BuresWasserstein(), points, w)
        d = BuresWasserstein().dist(points[:, :, None], found.value[:, None])
        return found.value.detach(), d.detach(), *torch.autograd.grad((d**2).sum(), points)

    native = run()
    monkeypatch.setattr(_native, "_jacobi", None)
    assert not _native.supports(x)
    for a, b in zip(native, run(), strict=True):
        assert_close(a, b, 1e-9 if dtype == torch.float64 else 1e-3)


@pytest.mark.usefixtures("without_kernel")
def test_torch_path_reproduces_the_matrix(spd):
    f = spd(5, k=6)
    u, s, v = linalg.svd(f, start=torch.eye(6, dtype=f.dtype))
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


def test_infinite_input_of_the_kernel_is_marked_as_failed():
    f = torch.full((1, 3, 3), torch.nan)
    if _native.supports(f):
        assert _native.svd(f, None, right=True)[3].tolist() == [True]
