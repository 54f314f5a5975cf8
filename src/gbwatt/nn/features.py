"""Spatial and temporal filters of raw epochs (SFEM, Section 3.1 of the paper)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gbwatt import checks


class SpatioTemporalFeatures(nn.Module):
    """Linear filters over channels, then over time, each followed by batch normalisation.

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
        if self.spatial.out_channels > x.shape[1] + 1 and self.temporal.groups == 1:
            x = self._temporal_of_spatial(x)
        else:
            x = self.temporal(self.spatial_norm(self.spatial(x)))
        out: Tensor = self.temporal_norm(x).unflatten(1, (self.branches, -1))
        return out

    def _temporal_of_spatial(self, x: Tensor) -> Tensor:
        """Both convolutions in one, for spatial filters that outnumber the channels.

        What comes before the temporal filters is ``a x + c``, with zeros at either end of the epoch where c stops, too:
        the product of the filters acts on the channels and on one more that is 1.
        """
        a, c = self._spatial_affine(x)
        kernel = torch.einsum("ost,si->oit", self.temporal.weight, torch.cat([a, c[:, None]], 1))
        x = torch.cat([x, x.new_ones(x.shape[0], 1, x.shape[2])], 1)
        return nn.functional.conv1d(x, kernel, self.temporal.bias, padding=self.temporal.padding)

    def _spatial_affine(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The normalised spatial filters as weights (n_spatial, n_chans) and offsets (n_spatial,).

        The statistics of the batch follow from the covariance of the channels.
        """
        weight, bias, norm = self.spatial.weight[..., 0], self.spatial.bias, self.spatial_norm
        # all there by construction; said for the type checker
        assert bias is not None
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.num_batches_tracked is not None
        assert norm.momentum is not None
        if self.training:
            flat = x.transpose(0, 1).flatten(1)  # (n_chans, batch * n_times)
            centre, samples = flat.mean(1), flat.shape[1]
            flat = flat - centre[:, None]
            var = ((weight @ (flat @ flat.mT)) * weight).sum(1) / samples
            mean = weight @ centre + bias
            with torch.no_grad():
                norm.running_mean.lerp_(mean, norm.momentum)
                norm.running_var.lerp_(var * (samples / max(samples - 1, 1)), norm.momentum)
                norm.num_batches_tracked.add_(1)
        else:
            mean, var = norm.running_mean, norm.running_var
        scale = norm.weight * (var + norm.eps).rsqrt()
        return scale[:, None] * weight, scale * (bias - mean) + norm.bias
