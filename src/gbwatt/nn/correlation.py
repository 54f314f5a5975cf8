"""Correlation of many channels with long kernels, directly or through the Fourier transform."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

#: What an operation of a Fourier transform costs in operations of a convolution, as measured on the CPU.
_TRANSFORM = 3.0


def correlate(x: Tensor, kernel: Tensor, padding: int) -> Tensor:
    """``y[b, o, t] = Σ_i,s kernel[o, i, s] x[b, i, t + s - padding]``, with zeros around the epochs.

    (batch, n_in, times), (n_out, n_in, length) -> (batch, n_out, times + 2 padding - length + 1), as by ``conv1d``.
    Where that takes fewer operations the sum over s becomes a product of spectra; the result is the same to rounding.
    """
    if padding >= kernel.shape[-1] or not _fourier_is_faster(x, kernel):
        return nn.functional.conv1d(x, kernel, padding=padding)
    times, length = x.shape[-1], kernel.shape[-1]
    size = _smooth(times + length - 1)
    # contiguous: a product of many small complex matrices would copy each by itself
    spectrum = torch.fft.rfft(x, size).permute(2, 0, 1).contiguous()  # (frequencies, batch, n_in)
    response = torch.fft.rfft(kernel.flip(-1), size).permute(2, 1, 0).contiguous()  # (frequencies, n_in, n_out)
    full: Tensor = torch.fft.irfft((spectrum @ response).permute(1, 2, 0), size)
    first = length - 1 - padding
    return full[..., first : first + times + 2 * padding - length + 1]


def _fourier_is_faster(x: Tensor, kernel: Tensor) -> bool:
    """Whether operations are saved, on a device and in a precision where they are what counts."""
    if torch.compiler.is_compiling():  # one graph for every size of a batch
        return False
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return False
    (batch, n_in, times), (n_out, _, length) = x.shape, kernel.shape
    size = times + length - 1
    direct = 2 * batch * times * n_in * n_out * length
    transforms = 2.5 * size * math.log2(size) * (batch * (n_in + n_out) + n_in * n_out)
    return _TRANSFORM * transforms + 4 * batch * n_in * n_out * size < direct


def _smooth(least: int) -> int:
    """The smallest number from ``least`` on without prime factors above 5: transforms of such lengths are fast."""
    size = least
    while not _is_smooth(size):
        size += 1
    return size


def _is_smooth(number: int) -> bool:
    for factor in (2, 3, 5):
        while number % factor == 0:
            number //= factor
    return number == 1
