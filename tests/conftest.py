"""Fixtures that all tests share."""

from __future__ import annotations

import os

# One thread per worker, because tests run in parallel processes; `make portability` also runs them with two.  Libraries
# read the variables when they are imported, and processes that tests start inherit them.
THREADS = os.environ.get("GBWATT_TEST_THREADS", "1")
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, THREADS)

import pytest  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

torch.set_num_threads(int(THREADS))


def pytest_addoption(parser):
    parser.addoption("--torch-path", action="store_true", help="run as if the compiled kernels had not been built")
    parser.addoption("--sanitized", action="store_true", help="require kernels that were built with sanitizers")


def pytest_configure(config):
    if config.getoption("--torch-path"):
        import gbwatt.geometry._native
        import gbwatt.nn._native

        gbwatt.geometry._native._jacobi = None
        gbwatt.nn._native._filters = None


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    """A test that draws without a seed of its own draws the same in every run and every order."""
    torch.manual_seed(0)


SPECTRA = ("spread", "repeated", "clustered", "gap")


def spectrum(kind: str, k: int, cond: float) -> Tensor:
    """Eigenvalues between 1 / cond and 1: log-spaced, in two multiple values, nearly equal in two, or one small."""
    if kind == "spread":
        return torch.logspace(0, -float(torch.tensor(cond, dtype=torch.float64).log10()), k, dtype=torch.float64)
    low = 1 / cond
    half = torch.arange(k) < (k + 1) // 2
    if kind == "gap":
        half = torch.arange(k) < max(k - 1, 1)
    values = torch.where(half, 1.0, low).double()
    if kind == "clustered":
        values = values * (1 + 1e-10 * torch.arange(k, dtype=torch.float64))
    return values


def make_spd(
    *batch: int,
    k: int,
    cond: float = 100.0,
    dtype: torch.dtype = torch.float64,
    kind: str = "spread",
    seed: int = 0,
) -> Tensor:
    """Random SPD matrices (*batch, k, k) with independent orientations and the given condition number."""
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(*batch, k, k, dtype=torch.float64, generator=generator))
    x = (q * spectrum(kind, k, cond)) @ q.mT
    return ((x + x.mT) / 2).to(dtype)


@pytest.fixture
def spd():
    """The one factory of SPD matrices: by batch shape, size, condition number, dtype, kind of spectrum and seed."""
    return make_spd


@pytest.fixture
def softmax_weights():
    """Rows of positive weights that sum to one, shape as asked."""

    def make(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(*shape, dtype=torch.float64, generator=generator).softmax(-1).to(dtype)

    return make


@pytest.fixture
def orthogonal():
    """Random orthogonal matrices (k, k)."""

    def make(k: int, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.linalg.qr(torch.randn(k, k, dtype=torch.float64, generator=generator))[0]

    return make
