"""Spatial and temporal filters of raw epochs (SFEM, Section 3.1 of the paper)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gbwatt import checks
from gbwatt.geometry._autograd import full_precision
from gbwatt.nn import _native
from gbwatt.nn.correlation import correlate, normalised_correlation, update


class _Filters(nn.Module):
    """The parameters of filters over channels, then over time, and of the normalisation after each."""

    def __init__(
        self, n_chans: int, n_spatial: int, n_temporal: int, kernel: int, branches: int, shared: bool, padded: bool
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
        groups, padding = 1 if shared else branches, kernel // 2 if padded else 0
        self.branches = branches
        self.spatial = nn.Conv1d(n_chans, groups * n_spatial, 1)
        self.spatial_norm = nn.BatchNorm1d(groups * n_spatial)
        self.temporal = nn.Conv1d(groups * n_spatial, branches * n_temporal, kernel, padding=padding, groups=groups)
        self.temporal_norm = nn.BatchNorm1d(branches * n_temporal)

    def _require(self, x: Tensor) -> None:
        """Check epochs (batch, n_chans, n_times): filters that do not pad need as many samples as the kernel has."""
        checks.same_kind(weight=self.spatial.weight, x=x)
        if x.ndim != 3 or x.shape[1] != self.spatial.in_channels or x.shape[2] == 0:
            raise checks.ShapeError(
                f"'x' {tuple(x.shape)} does not hold epochs (batch, {self.spatial.in_channels}, n_times)."
            )
        kernel = self.temporal.kernel_size[0]
        if self.temporal.padding[0] == 0 and x.shape[2] < kernel:
            raise checks.ShapeError(
                f"'x' {tuple(x.shape)} has epochs of {x.shape[2]} samples, but filters of {kernel} samples without "
                f"padding require at least {kernel}; give longer epochs, or lower kernel."
            )


class SpatioTemporalFeatures(_Filters):
    """Linear filters over channels, then over time, each followed by batch normalisation.

    All but the last normalisation is computed as one correlation of the epochs.  ``torch.autocast`` has no influence:
    covariances need features in full precision.

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
        super().__init__(n_chans, n_spatial, n_temporal, kernel, branches, shared, padded=True)

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Filter epochs (batch, n_chans, n_times)."""
        bias, padding = self.temporal.bias, self.temporal.kernel_size[0] // 2
        assert bias is not None  # by construction; said for the type checker
        self._require(x)
        kernel = self._kernel(self._spatial_affine(x))
        y: Tensor = normalised_correlation(x, kernel, padding, bias, self.temporal_norm)
        return y.unflatten(1, (self.branches, -1))  # type: ignore[no-any-return]

    def _kernel(self, affine: Tensor) -> Tensor:
        """The temporal filters of the normalised spatial ones as one kernel (outputs, n_chans + 1, length).

        Nothing between the two convolutions is non-linear, so the product of the filters acts on the channels, and on
        a constant, which makes the offsets of the spatial filters and stops at either end of the epochs.
        """
        weight, groups = self.temporal.weight, self.temporal.groups
        spatial = affine.view(groups, 1, -1, affine.shape[1])
        return (spatial.mT @ weight.reshape(groups, -1, *weight.shape[1:])).flatten(0, 1)

    def _spatial_affine(self, x: Tensor) -> Tensor:
        """The normalised spatial filters (groups * n_spatial, n_chans + 1), with their offsets in the last column."""
        weight, bias, norm = self.spatial.weight[..., 0], self.spatial.bias, self.spatial_norm
        assert bias is not None  # all there by construction; said for the type checker
        assert norm.running_mean is not None
        assert norm.running_var is not None
        mean, var = norm.running_mean, norm.running_var
        if norm.training:
            mean, var = _statistics(x, weight, bias)
            update(norm, mean, var, x.shape[0] * x.shape[2])
        scale = norm.weight * (var + norm.eps).rsqrt()
        return torch.cat([scale[:, None] * weight, (scale * (bias - mean) + norm.bias)[:, None]], dim=1)


class ActivatedFeatures(_Filters):
    """Filters over channels, then over time, each followed by batch normalisation and an exponential linear unit.

    (batch, n_chans, n_times) -> (batch, branches, n_temporal, n_times - kernel + 1): the epochs are not padded.
    ``torch.autocast`` has no influence.

    Parameters
    ----------
    n_chans, n_spatial, n_temporal, kernel, branches, shared
        As in :class:`SpatioTemporalFeatures`; the parameters have the same names and shapes.
    """

    def __init__(
        self, n_chans: int, n_spatial: int, n_temporal: int, kernel: int, branches: int = 1, shared: bool = False
    ) -> None:
        super().__init__(n_chans, n_spatial, n_temporal, kernel, branches, shared, padded=False)

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Filter epochs (batch, n_chans, n_times)."""
        self._require(x)
        x = nn.functional.elu(self.spatial_norm(self.spatial(x)))
        x = nn.functional.elu(self.temporal_norm(self._filtered(x)))
        return x.unflatten(1, (self.branches, -1))  # type: ignore[no-any-return]

    def _filtered(self, x: Tensor) -> Tensor:
        """The temporal filters; one group of them by :func:`correlate`, several times as fast on a CPU."""
        if self.temporal.groups > 1:
            y: Tensor = self.temporal(x)
            return y
        assert self.temporal.bias is not None  # by construction; said for the type checker
        return correlate(x, self.temporal.weight, 0) + self.temporal.bias[:, None]


def _statistics(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of ``weight x + bias`` over batch and time.

    They follow from the covariance of the channels, in float64: a filter may take out most of what the channels share.
    """
    w, moments = weight.double(), _moments(x)
    covariance, centre = moments[:, :-1], moments[:, -1]
    covariance = covariance - torch.outer(centre, centre)
    var = ((w @ covariance) * w).sum(1)
    return (w @ centre).to(x.dtype) + bias, var.to(x.dtype)


def _moments(x: Tensor) -> Tensor:
    """Means over batch and time of products of channels, and of channels in the last column, in float64.

    (batch, n, times) -> (n, n + 1)
    """
    samples = x.shape[0] * x.shape[2]
    if _native.supports(x) and not (x.requires_grad and torch.is_grad_enabled()):
        return _native.channel_moments(x) / samples
    exact = x.double()
    return torch.cat([(exact @ exact.mT).sum(0), exact.sum((0, 2))[:, None]], dim=1) / samples
