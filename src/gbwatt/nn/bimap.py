"""Bilinear maps of SPD matrices (Eqs. 11-13 of the paper)."""

from __future__ import annotations

from torch import Tensor, nn

from gbwatt import checks
from gbwatt.geometry.linalg import congruence
from gbwatt.nn.manifolds import stiefel


class BiMap(nn.Module):
    r"""Reduction :math:`X ↦ W^⊤ X W`, (..., n, n) -> (..., k, k), with W (n, k) on the Stiefel manifold [1]_.

    References
    ----------
    .. [1] Z. Huang, L. Van Gool, "A Riemannian network for SPD matrix learning", AAAI 2017.
    """

    def __init__(self, n: int, k: int) -> None:
        super().__init__()
        checks.at_least("n", n, 1)
        checks.at_least("k", k, 1)
        if not 1 <= k <= n:
            raise checks.ParameterError(
                f"k={k} must be between 1 and n={n}: a map with orthonormal columns cannot raise the dimension."
            )
        self.weight = stiefel(n, k)

    def forward(self, x: Tensor) -> Tensor:
        """Map matrices (..., n, n)."""
        return congruence(self.weight.mT, x)
