"""Spatial and temporal filters of raw epochs (SFEM, Section 3.1 of the paper)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gbwatt import checks
from gbwatt.nn.correlation import correlate


class SpatioTemporalFeatures(nn.Module):
    """Linear filters over channels, then over time, each followed by batch normalisation.

    All but the last normalisation is computed as one correlation of the epochs.

    (batch, n_chans, n_times) -> (batch, branches, n_temporal, times), where times is n_times, plus one if the kernel
    is even: there is half a kernel of zeros at either end.

    Parameters
    ----------
    n_chans : int
    n_spatial : int
        Spatial filters, of each branch unless ``shared``.
    n_temporal : int
        Temporal filters of each branch.
    kernel : int
        Length of the temporal filters, in samples.
    branches : int
        Parallel sets of filters.
    shared : bool
        Whether all branches start from the same spatial filters.
    """

    def __init__(
        self, n_chans: int, n_spatial: int, n_temporal: int, kernel: int, branches: int = 1, shared: bool = False
    ) -> None:
        super().__init__()
        sizes = {
            "n_chans": n_chans,
            "n_spatial": n_spatial,
            "n_temporal": n_temporal,
            "kernel": kernel,
            "branches": branches,
        }
        for name, value in sizes.items():
            checks.at_least(name, value, 1)
        groups = 1 if shared else branches
        self.branches = branches
        self.spatial = nn.Conv1d(n_chans, groups * n_spatial, 1)
        self.spatial_norm = nn.BatchNorm1d(groups * n_spatial)
        self.temporal = nn.Conv1d(groups * n_spatial, branches * n_temporal, kernel, padding=kernel // 2, groups=groups)
        self.temporal_norm = nn.BatchNorm1d(branches * n_temporal)

    def forward(self, x: Tensor) -> Tensor:
        """Filter epochs (batch, n_chans, n_times)."""
        a, c = self._spatial_affine(x)
        out: Tensor = self.temporal_norm(self._temporal_of_spatial(x, a, c)).unflatten(1, (self.branches, -1))
        return out

    def _temporal_of_spatial(self, x: Tensor, a: Tensor, c: Tensor) -> Tensor:
        """The temporal filters of ``a x + c``, which stops at either end of the epochs, in one correlation.

        Nothing between the two convolutions is non-linear, so the product of the filters acts on the channels, and what
        it makes of the offsets c depends on the distance to the ends only.
        """
        groups, padding = self.temporal.groups, self.temporal.kernel_size[0] // 2
        weight = self.temporal.weight.unflatten(0, (groups, -1))  # (groups, outputs, n_spatial, kernel)
        kernel = torch.einsum("gost,gsi->goit", weight, a.unflatten(0, (groups, -1))).flatten(0, 1)
        offset = torch.einsum("gost,gs->got", weight, c.unflatten(0, (groups, -1))).flatten(0, 1)
        ends = nn.functional.conv1d(x.new_ones(1, 1, x.shape[2]), offset[:, None], self.temporal.bias, padding=padding)
        return correlate(x, kernel, padding) + ends

    def _spatial_affine(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The normalised spatial filters as weights (groups * n_spatial, n_chans) and offsets (groups * n_spatial,)."""
        weight, bias, norm = self.spatial.weight[..., 0], self.spatial.bias, self.spatial_norm
        # all there by construction; said for the type checker
        assert bias is not None
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.num_batches_tracked is not None
        assert norm.momentum is not None
        if self.training:
            mean, var, samples = _statistics(x, weight, bias)
            with torch.no_grad():
                norm.running_mean.lerp_(mean, norm.momentum)
                norm.running_var.lerp_(var * (samples / max(samples - 1, 1)), norm.momentum)
                norm.num_batches_tracked.add_(1)
        else:
            mean, var = norm.running_mean, norm.running_var
        scale = norm.weight * (var + norm.eps).rsqrt()
        return scale[:, None] * weight, scale * (bias - mean) + norm.bias


def _statistics(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, int]:
    """Mean and variance of ``weight x + bias`` over batch and time, and the number of samples.

    They follow from the covariance of the channels, in float64: a filter may take out most of what the channels share.
    """
    exact, w, samples = x.double(), weight.double(), x.shape[0] * x.shape[2]
    centre = exact.mean((0, 2))
    covariance = (exact @ exact.mT).sum(0) / samples - torch.outer(centre, centre)
    var = ((w @ covariance) * w).sum(1)
    return (w @ centre).to(x.dtype) + bias, var.to(x.dtype), samples
