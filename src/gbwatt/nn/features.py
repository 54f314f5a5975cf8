"""Spatial and temporal filters (SFEM), computed as a single correlation, or as a product and a correlation."""

from __future__ import annotations

import math
from typing import Any, Self

import torch
from torch import Tensor, nn

from gbwatt._validation import check_at_least, check_same_kind
from gbwatt.errors import ShapeError
from gbwatt.geometry._context import apply, differentiable_once, full_precision
from gbwatt.nn import _native
from gbwatt.nn._hooks import is_plain

#: Channels for each spatial filter from which it is faster to apply the spatial filters first, measured on the CPU.
_SPATIAL_FIRST = 2

#: Cost of an operation of a Fourier transform relative to one of a convolution, measured on the CPU.
_TRANSFORM = 3.0


def correlate(x: Tensor, kernel: Tensor, padding: int, bias: Tensor | None = None) -> Tensor:
    """``y[b, o, t] = bias[o] + Σ_i,s kernel[o, i, s] x[b, i, t + s - padding]``, with zeros around the epochs.

    (batch, n_in, times), (n_out, n_in, length) -> (batch, n_out, times + 2 padding - length + 1), as ``conv1d``.
    If the kernel has one input more than x, this input is the constant 1, between the same zeros.
    The compiled filters, Fourier transforms and ``conv1d`` give the same result up to rounding.
    """
    if _native.supports_filters(x, kernel, padding):
        return apply(_Correlation, x, kernel, bias, padding)
    n_in = x.shape[1]
    y = _correlate_channels(x, kernel[:, :n_in], padding)
    if kernel.shape[1] == n_in:
        return y if bias is None else y + bias[:, None]
    return y + nn.functional.conv1d(x.new_ones(1, 1, x.shape[2]), kernel[:, n_in:], bias, padding=padding)


def normalised_correlation(x: Tensor, kernel: Tensor, padding: int, bias: Tensor, norm: nn.BatchNorm1d) -> Tensor:
    """``norm(correlate(x, kernel, padding, bias))``; updates running statistics."""
    if not (_native.supports_filters(x, kernel, padding) and _is_plain(norm, x)):
        out: Tensor = norm(correlate(x, kernel, padding, bias))
        return out
    if not norm.training:
        assert norm.running_mean is not None  # true if _is_plain; for the type checker
        assert norm.running_var is not None
        kernel, bias = _normalised_filters(kernel, bias, norm, norm.running_mean, norm.running_var)
        return correlate(x, kernel, padding, bias)
    y: Tensor
    args = (x, kernel, bias, norm.weight, norm.bias, padding, norm.eps)
    y, moments = _NormalisedCorrelation.apply(*args)  # type: ignore[no-untyped-call]
    mean, var = moments.to(x.dtype).unbind(1)
    update(norm, mean, var, y.shape[0] * y.shape[2])
    return y


def update(norm: nn.BatchNorm1d, mean: Tensor, var: Tensor, samples: int) -> None:
    """Update the running statistics with those of a batch, as ``norm`` itself does."""
    # true if _is_plain; for the type checker
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    with torch.no_grad():
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(var * (samples / max(samples - 1, 1)), norm.momentum)
        norm.num_batches_tracked.add_(1)


def _is_plain(norm: nn.BatchNorm1d, x: Tensor) -> bool:
    """Whether the kernel can replace ``norm``: a standard BatchNorm1d without hooks, dtype of x, several samples."""
    usual = norm.affine and norm.track_running_stats and norm.momentum is not None and norm.weight.dtype == x.dtype
    return is_plain(norm, nn.BatchNorm1d) and usual and x.shape[0] * x.shape[2] > 1


class _Correlation(torch.autograd.Function):
    """:func:`correlate` by the compiled filters."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor, bias: Tensor | None, padding: int) -> Tensor:
        ctx.save_for_backward(x, kernel)
        ctx.padding = padding
        return _native.correlate(x, kernel, bias, padding)

    @staticmethod
    @differentiable_once("the correlation of epochs")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel = ctx.saved_tensors
        in_x, in_kernel, in_bias, _ = ctx.needs_input_grad
        grad = grad.contiguous()
        return (
            _gradient_in_epochs(grad, x, kernel, ctx.padding) if in_x else None,
            _native.filter_gradient(x, grad, kernel, ctx.padding) if in_kernel else None,
            grad.sum((0, 2)) if in_bias else None,
            None,
        )


class _Mixture(torch.autograd.Function):
    """:func:`mix` by the compiled filters."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, offset: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return _native.mix(x, w, offset)

    @staticmethod
    @differentiable_once("a spatial filter")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        in_x = _native.mix(grad, w.mT, grad.new_zeros(w.shape[1])) if ctx.needs_input_grad[0] else None
        return in_x, *_native.mix_gradient(x, grad)


def mix(x: Tensor, w: Tensor, offset: Tensor) -> Tensor:
    """Filters of channels, ``w x + offset``: (batch, n_in, times), (n_out, n_in), (n_out,) -> (batch, n_out, times)."""
    if _native.supports(x) and x.dtype == w.dtype:
        return apply(_Mixture, x, w, offset)
    return w @ x + offset[:, None]


class _NormalisedFilters(torch.autograd.Function):
    """Filters and bias whose results are those of a normalisation with given statistics."""

    @staticmethod
    def forward(
        ctx: Any, w: Tensor, bias: Tensor, weight: Tensor, shift: Tensor, mean: Tensor, var: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        inverse = (var + eps).rsqrt()
        scale, centred = weight * inverse, bias - mean
        ctx.save_for_backward(w, weight, inverse, scale, centred)
        return w * _along(scale, w), torch.addcmul(shift, scale, centred)

    @staticmethod
    @differentiable_once("a normalisation")
    def backward(ctx: Any, in_filters: Tensor, in_offset: Tensor) -> tuple[Tensor | None, ...]:
        w, weight, inverse, scale, centred = ctx.saved_tensors
        in_scale = torch.addcmul((in_filters * w).flatten(1).sum(1), in_offset, centred)
        in_bias, in_weight = scale * in_offset, in_scale * inverse
        in_mean = -in_bias if ctx.needs_input_grad[4] else None
        in_var = in_weight * weight * inverse.square() / -2 if ctx.needs_input_grad[5] else None
        return in_filters * _along(scale, w), in_bias, in_weight, in_offset, in_mean, in_var, None


def _along(scale: Tensor, w: Tensor) -> Tensor:
    """Numbers (n,) with axes of length 1, to multiply filters ``w`` (n, ...)."""
    return scale.view(-1, *[1] * (w.ndim - 1))


def _normalised_filters(
    w: Tensor, bias: Tensor, norm: nn.BatchNorm1d, mean: Tensor, var: Tensor
) -> tuple[Tensor, Tensor]:
    """Filters (n, ...) and bias (n,) followed by a normalisation with these statistics, as filters and bias."""
    filters, offset = _NormalisedFilters.apply(w, bias, norm.weight, norm.bias, mean, var, norm.eps)  # type: ignore[no-untyped-call]
    return filters, offset


class _NormalisedCorrelation(torch.autograd.Function):
    """Batch normalisation of :func:`correlate`, and its means and variances (n_out, 2)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, kernel: Tensor, bias: Tensor, weight: Tensor, shift: Tensor, padding: int, eps: float
    ) -> tuple[Tensor, Tensor]:
        y = _native.correlate(x, kernel, bias, padding)
        out, moments = _native.normalise(y, weight, shift, eps)
        ctx.save_for_backward(x, kernel, bias, weight, shift, y, moments)
        ctx.padding, ctx.eps = padding, eps
        ctx.mark_non_differentiable(moments)
        return out, moments

    @staticmethod
    @differentiable_once("the normalised correlation of epochs")
    def backward(ctx: Any, grad: Tensor, _moments: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel, bias, weight, _, y, moments = ctx.saved_tensors
        grad = grad.contiguous()
        (in_weight, in_shift), coefficients = _native.normalise_gradient(y, grad, weight, moments, ctx.eps)
        in_x = None
        if ctx.needs_input_grad[0]:
            scale, slope, centre, rest = coefficients[:, :, None].unbind(1)
            in_x = _gradient_in_epochs(scale * grad + (slope * (y - centre) + rest), x, kernel, ctx.padding)
        in_kernel = None
        if ctx.needs_input_grad[1]:
            in_kernel = _native.filter_gradient(x, grad, kernel, ctx.padding, y, coefficients)
        # the normalisation removes the bias
        return in_x, in_kernel, torch.zeros_like(bias), in_weight, in_shift, None, None


def _gradient_in_epochs(grad: Tensor, x: Tensor, kernel: Tensor, padding: int) -> Tensor:
    """Derivative of :func:`correlate` in x: a correlation with the reversed kernel."""
    back = kernel[:, : x.shape[1]].transpose(0, 1).flip(-1)
    return _native.correlate(grad, back, None, kernel.shape[-1] - 1 - padding)


def _correlate_channels(x: Tensor, kernel: Tensor, padding: int) -> Tensor:
    """Correlation by torch, with Fourier transforms if that takes fewer operations."""
    if padding >= kernel.shape[-1] or not _fourier_is_faster(x, kernel):
        return nn.functional.conv1d(x, kernel, padding=padding)
    times, length = x.shape[-1], kernel.shape[-1]
    size = _fast_transform_length(times + length - 1)
    # contiguous: otherwise the product of many small complex matrices copies each of them
    spectrum = torch.fft.rfft(x, size).permute(2, 0, 1).contiguous()  # (frequencies, batch, n_in)
    response = torch.fft.rfft(kernel.flip(-1), size).permute(2, 1, 0).contiguous()  # (frequencies, n_in, n_out)
    full: Tensor = torch.fft.irfft((spectrum @ response).permute(1, 2, 0), size)
    first = length - 1 - padding
    return full[..., first : first + times + 2 * padding - length + 1]


def _fourier_is_faster(x: Tensor, kernel: Tensor) -> bool:
    """Whether Fourier transforms take fewer operations, on devices and dtypes where this determines the speed."""
    if torch.compiler.is_compiling():  # the graph must not depend on the batch size
        return False
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return False
    (batch, n_in, times), (n_out, _, length) = x.shape, kernel.shape
    size = times + length - 1
    direct = 2 * batch * times * n_in * n_out * length
    transforms = 2.5 * size * math.log2(size) * (batch * (n_in + n_out) + n_in * n_out)
    return _TRANSFORM * transforms + 4 * batch * n_in * n_out * size < direct


def _fast_transform_length(least: int) -> int:
    """Smallest length of at least ``least`` without prime factors above 5, for which Fourier transforms are fast."""
    size = least
    while not _is_smooth(size):
        size += 1
    return size


def _is_smooth(number: int) -> bool:
    """Whether a number has no prime factors above 5."""
    for factor in (2, 3, 5):
        while number % factor == 0:
            number //= factor
    return number == 1


class _Filters(nn.Module):
    """Parameters of spatial filters, temporal filters, and the batch normalisation after each."""

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
            check_at_least(name, value, 1)
        groups, padding = 1 if shared else branches, kernel // 2 if padded else 0
        self.branches, self.frozen_statistics = branches, False
        self.spatial = nn.Conv1d(n_chans, groups * n_spatial, 1)
        self.spatial_norm = nn.BatchNorm1d(groups * n_spatial)
        self.temporal = nn.Conv1d(groups * n_spatial, branches * n_temporal, kernel, padding=padding, groups=groups)
        self.temporal_norm = nn.BatchNorm1d(branches * n_temporal)

    def freeze_statistics(self) -> None:
        """Use the running statistics of the batch normalisation in training, too, and keep them as they are."""
        self.frozen_statistics = True
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode; frozen statistics stay in evaluation mode."""
        super().train(mode)
        if self.frozen_statistics:
            self.spatial_norm.eval()
            self.temporal_norm.eval()
        return self

    def _check_epochs(self, x: Tensor) -> None:
        """Check epochs (batch, n_chans, n_times); without padding they must be at least as long as the kernel."""
        check_same_kind(weight=self.spatial.weight, x=x)
        if x.ndim != 3 or x.shape[1] != self.spatial.in_channels or x.shape[2] == 0:
            raise ShapeError(
                f"'x' {tuple(x.shape)} does not contain epochs (batch, {self.spatial.in_channels}, n_times)."
            )
        kernel = self.temporal.kernel_size[0]
        if self.temporal.padding[0] == 0 and x.shape[2] < kernel:
            raise ShapeError(
                f"'x' {tuple(x.shape)} has epochs of {x.shape[2]} samples, but filters of {kernel} samples without "
                f"padding require at least {kernel}; use longer epochs or a shorter kernel."
            )


class SpatioTemporalFeatures(_Filters):
    """Spatial filters, then temporal filters, each followed by batch normalisation.

    (batch, n_chans, n_times) -> (batch, branches, n_temporal, times), where times is n_times, plus one if the kernel
    is even: epochs are padded with half a kernel of zeros at either end.

    Everything except the last normalisation is computed as one correlation of the epochs or, if there are many channels
    for each spatial filter, of the spatially filtered epochs.  ``torch.autocast`` has no effect, because covariances
    need features in full precision.

    Parameters
    ----------
    n_chans : int
        Number of channels.
    n_spatial : int
        Number of spatial filters: of each branch, or of all branches together if ``shared``.
    n_temporal : int
        Number of temporal filters of each branch.
    kernel : int
        Length of the temporal filters in samples.
    branches : int
        Number of parallel sets of filters.
    shared : bool
        Whether all branches use the same spatial filters.

    Examples
    --------
    >>> SpatioTemporalFeatures(n_chans=8, n_spatial=16, n_temporal=10, kernel=25)(torch.randn(4, 8, 125)).shape
    torch.Size([4, 1, 10, 125])
    """

    def __init__(
        self, n_chans: int, n_spatial: int, n_temporal: int, kernel: int, branches: int = 1, shared: bool = False
    ) -> None:
        super().__init__(n_chans, n_spatial, n_temporal, kernel, branches, shared, padded=True)

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Filter epochs (batch, n_chans, n_times)."""
        bias, padding = self.temporal.bias, self.temporal.kernel_size[0] // 2
        assert bias is not None  # by construction; for the type checker
        self._check_epochs(x)
        spatial, offset = self._normalised_spatial_filters(x)
        if self._is_spatial_first():
            x, kernel = mix(x, spatial, offset), self.temporal.weight
        else:
            kernel = self._combined_kernel(torch.cat([spatial, offset[:, None]], dim=1))
        y: Tensor = normalised_correlation(x, kernel, padding, bias, self.temporal_norm)
        return y.unflatten(1, (self.branches, -1))  # type: ignore[no-any-return]

    def _is_spatial_first(self) -> bool:
        """Whether the spatial filters are applied first, because they reduce the number of channels enough."""
        n_spatial, n_chans = self.spatial.weight.shape[:2]
        return self.temporal.groups == 1 and n_chans >= _SPATIAL_FIRST * n_spatial

    def _combined_kernel(self, affine: Tensor) -> Tensor:
        """Spatial and temporal filters combined into one kernel (outputs, n_chans + 1, length).

        The two convolutions are linear, so that the product of the filters can be applied to the channels and to a
        constant, which represents the offsets of the spatial filters and is zero outside of the epochs.
        """
        weight, groups = self.temporal.weight, self.temporal.groups
        spatial = affine.view(groups, 1, -1, affine.shape[1])
        return (spatial.mT @ weight.reshape(groups, -1, *weight.shape[1:])).flatten(0, 1)

    def _normalised_spatial_filters(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised spatial filters (groups * n_spatial, n_chans) and their offsets (groups * n_spatial,).

        In training, the statistics are those of the batch, and the running ones are updated.
        """
        weight, bias, norm = self.spatial.weight[..., 0], self.spatial.bias, self.spatial_norm
        assert bias is not None  # by construction; for the type checker
        assert norm.running_mean is not None
        assert norm.running_var is not None
        mean, var = norm.running_mean, norm.running_var
        if norm.training:
            mean, var = _output_statistics(x, weight, bias)
            update(norm, mean, var, x.shape[0] * x.shape[2])
        return _normalised_filters(weight, bias, norm, mean, var)


class Templates(nn.Module):
    """Trained signals appended to features, (batch, branches, n, times) -> (batch, branches, n + p, times).

    Products of features and templates are the outputs of matched filters.  The covariance of the extended features is
    that of the ERP covariances of pyRiemann [1]_, with trained instead of fixed templates.

    Parameters
    ----------
    n_templates : int
        Number p of templates.
    times : int
        Number of samples.

    References
    ----------
    .. [1] A. Barachant, M. Congedo, "A plug&play P300 BCI using information geometry", arXiv:1409.0107, 2014.
    """

    def __init__(self, n_templates: int, times: int) -> None:
        super().__init__()
        check_at_least("n_templates", n_templates, 1)
        self.weight = nn.Parameter(torch.randn(n_templates, times))

    def forward(self, x: Tensor) -> Tensor:
        """Append the templates to features (batch, branches, n, times)."""
        check_same_kind(weight=self.weight, x=x)
        if x.ndim != 4 or x.shape[-1] != self.weight.shape[-1]:
            raise ShapeError(
                f"'x' {tuple(x.shape)} must be features (batch, branches, n, {self.weight.shape[-1]}), with as many "
                "samples as the templates."
            )
        return torch.cat([x, self.weight.expand(*x.shape[:2], -1, -1)], dim=2)


class ActivatedFeatures(_Filters):
    """Spatial filters, then temporal filters, each followed by batch normalisation and an exponential linear unit.

    (batch, n_chans, n_times) -> (batch, branches, n_temporal, n_times - kernel + 1): epochs are not padded.
    ``torch.autocast`` has no effect.

    Parameters
    ----------
    n_chans, n_spatial, n_temporal, kernel, branches, shared
        As in :class:`SpatioTemporalFeatures`; weights have the same names and shapes.
    """

    def __init__(
        self, n_chans: int, n_spatial: int, n_temporal: int, kernel: int, branches: int = 1, shared: bool = False
    ) -> None:
        super().__init__(n_chans, n_spatial, n_temporal, kernel, branches, shared, padded=False)

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Filter epochs (batch, n_chans, n_times)."""
        self._check_epochs(x)
        x = nn.functional.elu(self.spatial_norm(self.spatial(x)))
        x = nn.functional.elu(self.temporal_norm(self._filtered(x)))
        return x.unflatten(1, (self.branches, -1))  # type: ignore[no-any-return]

    def _filtered(self, x: Tensor) -> Tensor:
        """Apply the temporal filters; a single group by :func:`correlate`, which is faster on a CPU."""
        if self.temporal.groups > 1:
            y: Tensor = self.temporal(x)
            return y
        assert self.temporal.bias is not None  # by construction; for the type checker
        return correlate(x, self.temporal.weight, 0) + self.temporal.bias[:, None]


def _output_statistics(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the outputs ``weight x + bias`` of spatial filters over batch and time.

    They are computed from the covariance of the channels in float64, because filters may cancel most of the variance.
    """
    w, moments = weight.double(), _channel_moments(x)
    covariance, centre = moments[:, :-1], moments[:, -1]
    covariance = covariance - torch.outer(centre, centre)
    var = ((w @ covariance) * w).sum(1)
    return (w @ centre).to(x.dtype) + bias, var.to(x.dtype)


def _channel_moments(x: Tensor) -> Tensor:
    """Means over batch and time of products of channels, and of the channels in the last column, in float64.

    (batch, n, times) -> (n, n + 1)
    """
    samples = x.shape[0] * x.shape[2]
    if _native.supports(x) and not (x.requires_grad and torch.is_grad_enabled()):
        return _native.channel_moments(x) / samples
    exact = x.double()
    return torch.cat([(exact @ exact.mT).sum(0), exact.sum((0, 2))[:, None]], dim=1) / samples
