"""From SPD matrices to vectors (MEEM, Section 3.1 of the paper)."""

from __future__ import annotations

import math

from torch import Tensor, nn

from gbwatt import checks
from gbwatt.geometry.halves import vech
from gbwatt.geometry.linalg import LOG, LOG_REEIG, REEIG, spectral
from gbwatt.geometry.symmetry import symmetrised


def _threshold(eps: float) -> float:
    if not (math.isfinite(eps) and eps > 0):
        raise checks.ParameterError(f"eps={eps} must be a positive number.")
    return eps


class ReEig(nn.Module):
    r"""Rectification :math:`U \max(ε, Λ) U^⊤` of the eigenvalues, (..., k, k) -> (..., k, k)."""

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = _threshold(eps)

    def forward(self, x: Tensor) -> Tensor:
        """Rectify matrices (..., k, k)."""
        return spectral(symmetrised(x), REEIG, self.eps)


class LogEig(nn.Module):
    """Matrix logarithm, (..., k, k) -> (..., k, k)."""

    def forward(self, x: Tensor) -> Tensor:
        """Logarithm of positive definite matrices (..., k, k)."""
        return spectral(symmetrised(x), LOG)


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

    def forward(self, x: Tensor) -> Tensor:
        """Embed sequences (batch, m, k, k)."""
        if self.logarithm:
            x = spectral(symmetrised(x), LOG_REEIG, self.eps)
        return vech(x).flatten(1)
