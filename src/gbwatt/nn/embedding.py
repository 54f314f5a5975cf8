"""From SPD matrices to vectors (MEEM, Section 3.1 of the paper)."""

from __future__ import annotations

import math

from torch import Tensor, nn

from gbwatt import checks
from gbwatt.geometry._autograd import full_precision
from gbwatt.geometry.halves import vech
from gbwatt.geometry.linalg import LOG, LOG_REEIG, REEIG, in_range, spectral
from gbwatt.geometry.symmetry import symmetric_part


def _threshold(eps: float) -> float:
    if not (math.isfinite(eps) and eps > 0):
        raise checks.ParameterError(f"eps={eps} must be a positive number.")
    return eps


class ReEig(nn.Module):
    r"""Rectification :math:`U \max(ε, Λ) U^⊤` of the eigenvalues, (..., k, k) -> (..., k, k)."""

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = _threshold(eps)

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Rectify matrices (..., k, k)."""
        return in_range("ReEig", spectral(symmetric_part("x", x), REEIG, self.eps))


class LogEig(nn.Module):
    """Matrix logarithm, (..., k, k) -> (..., k, k)."""

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Logarithm of positive definite matrices (..., k, k)."""
        return spectral(symmetric_part("x", x), LOG)


class Embedding(nn.Module):
    """Upper triangles of a sequence in one vector, (batch, m, k, k) -> (batch, m * k * (k + 1) / 2).

    Parameters
    ----------
    logarithm : bool
        Take :class:`ReEig` and :class:`LogEig` first, in one decomposition.
    eps : float
        Threshold of the rectification.
    """

    def __init__(self, logarithm: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        self.logarithm, self.eps = logarithm, _threshold(eps)

    def extra_repr(self) -> str:
        """What repr shows."""
        return f"eps={self.eps:g}" if self.logarithm else "logarithm=False"

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Embed sequences (batch, m, k, k)."""
        x = symmetric_part("x", x)
        if x.ndim < 3:
            raise checks.ShapeError(
                f"'x' {tuple(x.shape)} is a single matrix, but sequences (batch, m, k, k) are required: x[None, None]."
            )
        if self.logarithm:
            x = spectral(x, LOG_REEIG, self.eps)
        return vech(x).flatten(1)
