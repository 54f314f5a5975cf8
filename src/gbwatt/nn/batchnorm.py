"""Batch normalisation of SPD matrices."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gbwatt import checks
from gbwatt.geometry import AffineInvariant
from gbwatt.geometry._autograd import full_precision
from gbwatt.geometry.linalg import congruence, invsqrtm, sqrtm
from gbwatt.geometry.symmetry import symmetric_part
from gbwatt.nn.manifolds import positive_definite


class SPDBatchNorm(nn.Module):
    r"""Affine-invariant batch normalisation, (batch, ..., k, k) -> (batch, ..., k, k) [1]_.

    Matrices are moved so that their mean G becomes the learnt B:
    :math:`X ↦ B^{1/2} G^{-1/2} X G^{-1/2} B^{1/2}`.  In training G is the Karcher mean of the batch, treated as a
    constant, and the running mean moves towards it along the geodesic; in evaluation G is the running mean.

    The Karcher mean is converged.  The authors' program takes one step of the Karcher flow from the arithmetic mean
    instead, which is near the mean for matrices that are near each other, and not for others.

    Parameters
    ----------
    k : int
    momentum : float in (0, 1]
        How far the running mean moves in each step.

    References
    ----------
    .. [1] D. Brooks, O. Schwander, F. Barbaresco, J.-Y. Schneider, M. Cord, "Riemannian batch normalization for SPD
       neural networks", NeurIPS 2019.
    """

    running_mean: Tensor

    def __init__(self, k: int, momentum: float = 0.1) -> None:
        super().__init__()
        if not 0 < momentum <= 1:
            raise checks.ParameterError(f"momentum={momentum} must be in (0, 1].")
        self.momentum, self.metric = momentum, AffineInvariant()
        self.bias = positive_definite(k)
        self.register_buffer("running_mean", torch.eye(k))

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Normalise matrices (batch, ..., k, k)."""
        checks.same_kind(bias=self.bias, x=x)
        x = symmetric_part("x", x)
        checks.square(bias=self.bias, x=x)
        if self.training:
            mean = self.metric.mean(x.detach().reshape(-1, *x.shape[-2:]))
            with torch.no_grad():
                self.running_mean.copy_(self.metric.geodesic(self.running_mean, mean, self.momentum))
        else:
            mean = self.running_mean
        return congruence(sqrtm(self.bias), congruence(invsqrtm(mean), x))
