"""Metrics for which all laws are tested, and tolerances of the laws."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gbwatt.geometry import (
    AffineInvariant,
    BuresWasserstein,
    Euclidean,
    GeneralizedBuresWasserstein,
    LogEuclidean,
    Metric,
)
from tests.conftest import make_spd

SIZES = (1, 2, 3, 5, 8, 13, 20)
CONDITIONS = (1.0, 1e2, 1e4, 1e6, 1e8, 1e10, 1e12)
DTYPES = (torch.float64, torch.float32)
CASES = [(torch.float64, c) for c in CONDITIONS] + [(torch.float32, c) for c in CONDITIONS if c <= 1e6]

# name -> metric for matrices of size k; every exported metric is here (test_metrics.py checks it)
METRICS = {
    "euclidean": lambda k, dtype: Euclidean(),
    "log-euclidean": lambda k, dtype: LogEuclidean(),
    "affine-invariant": lambda k, dtype: AffineInvariant(),
    "bures": lambda k, dtype: BuresWasserstein(),
    "gbw": lambda k, dtype: GeneralizedBuresWasserstein(make_spd(k=k, cond=10, dtype=dtype, seed=99), theta=1.5),
    "gbw-negative": lambda k, dtype: GeneralizedBuresWasserstein(make_spd(k=k, cond=10, dtype=dtype, seed=98), -0.7),
}


@pytest.fixture(params=CASES, ids=lambda p: f"{str(p[0])[-7:]}-{p[1]:.0e}")
def case(request):
    """Dtype and condition number: float32 up to 1e6, beyond which it cannot hold a definite matrix."""
    return request.param


def make_metric(name: str, k: int, dtype: torch.dtype = torch.float64) -> Metric:
    """The metric called ``name`` for matrices of size k."""
    return METRICS[name](k, dtype)


def assert_close(got: Tensor, want: Tensor, tol: float) -> None:
    """Assert that matrices or numbers agree, relative to the largest entry of ``want`` of each batch item."""
    assert got.shape == want.shape, f"shapes differ: {tuple(got.shape)} and {tuple(want.shape)}"
    axes = (-2, -1) if want.ndim >= 2 and want.shape[-1] == want.shape[-2] else ()
    error, size = (got.detach().double() - want.detach().double()).abs(), want.detach().double().abs()
    if axes:
        error, size = error.amax(axes), size.amax(axes)
    worst = float((error / size.clamp_min(1e-300)).max())
    assert worst <= tol, f"relative error {worst:.2e} > {tol:.2e}"


def exact(dtype: torch.dtype, amplification: float | Tensor = 1.0) -> float:
    """The tolerance of a law: 1e-12 in float64, 1e-5 in float32, or rounding times how much the law amplifies it.

    ``amplification`` is the condition number of what is computed: what a relative change of the input of the size of
    one rounding does to the result, worked out in the test that passes it.
    """
    eps = torch.finfo(dtype).eps
    base = 1e-12 if dtype == torch.float64 else 1e-5
    return max(base, 100 * eps * float(torch.as_tensor(amplification).max()))
