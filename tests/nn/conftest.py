"""Fixtures of the tests of filters."""

from __future__ import annotations

import pytest
from torch import Tensor

from gbwatt.nn import _native, features


def relative(got: Tensor, want: Tensor) -> float:
    """The largest difference, relative to the largest number that is wanted."""
    assert got.shape == want.shape
    return float((got.detach().double() - want.detach().double()).abs().max() / want.detach().abs().max())


@pytest.fixture(params=["compiled", "spectra", "lags"])
def way(request, monkeypatch):
    """All ways to correlate: the compiled filters, spectra of whole epochs, the sum over lags."""
    if request.param != "compiled":
        monkeypatch.setattr(_native, "_filters", None)
        monkeypatch.setattr(features, "_fourier_is_faster", lambda *_: request.param == "spectra")
    elif not _native.available():
        pytest.skip("the kernel was not built")
