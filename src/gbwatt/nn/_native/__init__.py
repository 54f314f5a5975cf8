"""Binding of the compiled filters of epochs and covariances of windows.

The extension ``_filters`` is written in C and optional, like that of :mod:`gbwatt.geometry._native`.  Without it,
callers use torch instead, with the same results.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gbwatt.errors import MismatchError, ShapeError
from gbwatt.geometry._native import arrays, dense, load_kernel

INTERFACE = 3  # of _filters, as in _filters.c; increase both when arguments or results of a function change
_filters = load_kernel("gbwatt.nn._native._filters", INTERFACE)

MAX_CHANNELS = 2**20  # also of filters
MAX_LENGTH = 4096  # of filters; blocks of longer ones do not fit in the cache
#: Cost of one number in one stage of a transform, in complex products.
_STAGE = 0.75


def available() -> bool:
    """Whether the compiled kernel is used."""
    return _filters is not None


def supports(x: Tensor) -> bool:
    """Whether the compiled kernel accepts these epochs or features: real, dense, not empty, on the CPU."""
    return (
        _filters is not None
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and not torch.compiler.is_compiling()
        and x.numel() > 0
        and x.shape[-2] <= MAX_CHANNELS
    )


def supports_filters(x: Tensor, kernel: Tensor, padding: int) -> bool:
    """Whether :func:`correlate` supports filters (n_out, n_in or n_in + 1, length) of epochs (batch, n_in, times).

    Both must have the same dtype; filters must be longer than the padding, but not longer than the padded epochs.
    """
    length = kernel.shape[-1]
    return supports(x) and x.dtype == kernel.dtype and padding < length <= min(MAX_LENGTH, x.shape[2] + 2 * padding)


@lru_cache(256)
def block_size(n_in: int, n_out: int, length: int, width: int, batch: int) -> int:
    """Length in samples, a power of two, of the blocks in which :func:`correlate` transforms epochs fastest."""

    def cost(size: int) -> float:
        """Relative number of operations with blocks of ``size`` samples."""
        blocks = math.ceil(width / (size - length + 1))
        transforms = batch * math.ceil(
            blocks / 2
        )  # of pairs of blocks at all frequencies, or of one block at half of them
        products = transforms * (1.0 if blocks > 1 else 0.5) * n_in * n_out
        return size * (products + _STAGE * math.log2(size) * (transforms * (n_in + n_out) + n_in * n_out))

    least = max(4, (length - 1).bit_length())
    most = max(least, (width + length - 2).bit_length())
    return min((1 << power for power in range(least, most + 1)), key=cost)


def _size_arguments(x: Tensor, n_out: int, length: int, padding: int) -> tuple[Any, ...]:
    """Shape, strides, filter sizes and block size, the arguments of kernel functions for epochs."""
    width = x.shape[2] + 2 * padding - length + 1
    size = block_size(x.shape[1], n_out, length, width, x.shape[0])
    return tuple(x.shape), x.stride(), (n_out, length, padding), size


def _check_epochs(name: str, x: Tensor) -> Tensor:
    """Return ``x`` (batch, n, times), with any strides; raise an error unless the kernel accepts it."""
    if x.ndim != 3 or x.numel() == 0 or x.shape[1] > MAX_CHANNELS:
        raise ShapeError(
            f"'{name}' has shape {tuple(x.shape)}, but three non-empty axes, the second of at most "
            f"{MAX_CHANNELS}, are required."
        )
    if x.dtype not in (torch.float32, torch.float64) or not x.is_cpu or x.layout is not torch.strided:
        raise MismatchError(
            f"'{name}' is {x.dtype}, {x.layout} on {x.device}, but dense float32 or float64 on the CPU is required."
        )
    return x.resolve_neg()


def _memory_of_strided(x: Tensor) -> tuple[int, int]:
    """Address of an array with any strides, and the number of bytes to the end of its storage, for the kernel."""
    return arrays(x)[0][0], x.untyped_storage().nbytes() - int(x.storage_offset()) * x.element_size()


def _check_contiguous_epochs(name: str, x: Tensor) -> Tensor:
    """Return ``x`` (batch, n, times), contiguous; raise an error unless the kernel accepts it."""
    return _check_epochs(name, x).contiguous()


def _check_filters(x: Tensor, kernel: Tensor, padding: int) -> tuple[int, int, int]:
    """Raise an error unless filters fit the epochs; return the numbers of filters, of their inputs and samples."""
    if kernel.ndim != 3 or not 0 < kernel.shape[0] <= MAX_CHANNELS or kernel.shape[1] - x.shape[1] not in (0, 1):
        n = x.shape[1]
        raise ShapeError(f"'kernel' has shape {tuple(kernel.shape)}, but (n_out, {n} or {n + 1}, length) is required.")
    n_out, inputs, length = kernel.shape
    if not 0 <= padding < length <= min(MAX_LENGTH, x.shape[2] + 2 * padding):
        raise ShapeError(
            f"filters of {length} samples with padding {padding} do not fit epochs {tuple(x.shape)}; the padding must "
            f"be shorter than the filters, and these at most {MAX_LENGTH} samples and as long as the padded epochs."
        )
    return n_out, inputs, length


def correlate(x: Tensor, kernel: Tensor, bias: Tensor | None, padding: int) -> Tensor:
    """Correlate epochs with filters; an additional input of the filters is 1 at all times of the epoch.

    Parameters
    ----------
    x, kernel, bias : Tensors, shape (batch, n_in, times), (n_out, n_in or n_in + 1, length), (n_out,)
    padding : int
        Zeros at either end, fewer than ``length``.

    Returns
    -------
    y : Tensor, shape (batch, n_out, times + 2 padding - length + 1)
    """
    x = _check_epochs("x", x)
    n_out, inputs, length = _check_filters(x, kernel, padding)
    kernel = dense("kernel", kernel, kernel.shape, x.dtype)
    bias = None if bias is None else dense("bias", bias, (n_out,), x.dtype)
    out = x.new_empty(x.shape[0], n_out, x.shape[2] + 2 * padding - length + 1)
    memory = (_memory_of_strided(x), *arrays(kernel, bias, out))
    sizes = _size_arguments(x, n_out, length, padding)
    _filters.correlate(*memory, *sizes, inputs > x.shape[1], x.element_size(), torch.get_num_threads())
    return out


def filter_gradient(
    x: Tensor, grad: Tensor, kernel: Tensor, padding: int, y: Tensor | None = None, coefficients: Tensor | None = None
) -> Tensor:
    """Derivative of :func:`correlate` in the filters, from the derivative in the results or in the normalised results.

    Parameters
    ----------
    x, grad, kernel : Tensors, shape (batch, n_in, times), (batch, n_out, width), (n_out, n_in or n_in + 1, length)
    padding : int
    y, coefficients : Tensors, shape (batch, n_out, width), (n_out, 4), optional
        Results and coefficients of their normalisation, from :func:`normalise_gradient`.
    """
    x = _check_epochs("x", x)
    n_out, inputs, length = _check_filters(x, kernel, padding)
    results = (x.shape[0], n_out, x.shape[2] + 2 * padding - length + 1)
    grad = dense("grad", grad, results, x.dtype)
    if y is None or coefficients is None:
        y = coefficients = None
    else:
        y, coefficients = dense("y", y, results, x.dtype), dense("coefficients", coefficients, (n_out, 4), x.dtype)
    sizes = _size_arguments(x, n_out, length, padding)
    pairs = x.shape[0] * math.ceil(grad.shape[2] / (sizes[-1] - length + 1) / 2)
    pieces = max(1, min(8, pairs // 16))  # added in float64, independently of the number of threads
    out = torch.empty(pieces, n_out, inputs, length, dtype=torch.float64)
    memory = (_memory_of_strided(x), *arrays(y, grad, coefficients, out))
    constant = inputs > x.shape[1]
    _filters.filter_gradient(*memory, *sizes, constant, pieces, x.element_size(), torch.get_num_threads())
    return out.sum(0).to(x.dtype)


def mix(x: Tensor, w: Tensor, offset: Tensor) -> Tensor:
    """Filters of channels, ``w x + offset``: (batch, n_in, times), (n_out, n_in), (n_out,) -> (batch, n_out, times)."""
    x = _check_epochs("x", x)
    if w.ndim != 2 or not 0 < len(w) <= MAX_CHANNELS:
        raise ShapeError(f"'w' has shape {tuple(w.shape)}, but (n_out, {x.shape[1]}) is required.")
    w, offset = dense("w", w, (len(w), x.shape[1]), x.dtype), dense("offset", offset, (len(w),), x.dtype)
    out = x.new_empty(x.shape[0], len(w), x.shape[2])
    memory = (_memory_of_strided(x), *arrays(w, offset, out))
    _filters.mix(*memory, tuple(x.shape), x.stride(), len(w), x.element_size(), torch.get_num_threads())
    return out


def mix_gradient(x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives of :func:`mix` in w and offset, from the derivative in its result (batch, n_out, times)."""
    x = _check_epochs("x", x)
    if grad.ndim != 3 or not 0 < grad.shape[1] <= MAX_CHANNELS:
        raise ShapeError(f"'grad' has shape {tuple(grad.shape)}, but (batch, n_out, times) is required.")
    n_out = grad.shape[1]
    grad = dense("grad", grad, (x.shape[0], n_out, x.shape[2]), x.dtype)
    pieces = _pieces(x)
    out = torch.empty(pieces, n_out, x.shape[1] + 1, dtype=torch.float64)
    memory = (_memory_of_strided(x), *arrays(grad, out))
    sizes = (tuple(x.shape), x.stride(), n_out, pieces, x.element_size(), torch.get_num_threads())
    _filters.mix_gradient(*memory, *sizes)
    sums = out.sum(0).to(x.dtype)
    return sums[:, :-1], sums[:, -1]


def _pieces(x: Tensor) -> int:
    """Number of parts of a sum over trials, which threads share; independent of their number."""
    return max(1, min(8, x.shape[0] // 4))


def channel_moments(x: Tensor) -> Tensor:
    """Sums over batch and time of products of channels, and of channels in the last column, in float64.

    (batch, n, times) -> (n, n + 1)
    """
    x = _check_epochs("x", x)
    pieces = _pieces(x)
    out = torch.empty(pieces, x.shape[1], x.shape[1] + 1, dtype=torch.float64)
    memory = (_memory_of_strided(x), *arrays(out))
    _filters.channel_moments(*memory, tuple(x.shape), x.stride(), pieces, x.element_size(), torch.get_num_threads())
    return out.sum(0)


def normalise(y: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Batch normalisation of (batch, n, times), and its means and variances (n, 2) in float64."""
    y = _check_contiguous_epochs("y", y)
    n = y.shape[1]
    weight, bias = dense("weight", weight, (n,), y.dtype), dense("bias", bias, (n,), y.dtype)
    out, moments = torch.empty_like(y), torch.empty(y.shape[1], 2, dtype=torch.float64)
    coefficients = y.new_empty(y.shape[1], 3)
    memory = arrays(y, weight, bias, coefficients, moments, out)
    _filters.normalise(*memory, tuple(y.shape), eps, y.element_size(), torch.get_num_threads())
    return out, moments


def normalise_gradient(y: Tensor, grad: Tensor, weight: Tensor, moments: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Derivatives of :func:`normalise` in weight and bias (2, n), and coefficients (n, 4) of the derivative in y.

    The coefficients a, b, c, d give the derivative ``a grad + b (y - c) + d``.
    """
    y = _check_contiguous_epochs("y", y)
    n = y.shape[1]
    grad, weight = dense("grad", grad, y.shape, y.dtype), dense("weight", weight, (n,), y.dtype)
    moments = dense("moments", moments, (n, 2), torch.float64)
    out, coefficients = y.new_empty(2, y.shape[1]), y.new_empty(y.shape[1], 4)
    memory = arrays(y, grad, weight, moments, coefficients, out)
    _filters.normalise_gradient(*memory, tuple(y.shape), eps, y.element_size(), torch.get_num_threads())
    return out, coefficients


def covariances(x: Tensor, windows: int, keep: float, lift: float, embed_mean: bool = False) -> Tensor:
    """``keep Σ + lift I`` for trace-one covariances Σ of windows, (items, n, times) -> (items, windows, n, n).

    With ``embed_mean``, windows are not centred and have an additional row of ones: the results are (n + 1, n + 1).
    """
    x = _check_windows(x, windows)
    n = x.shape[1] + embed_mean
    out = x.new_empty(x.shape[0], windows, n, n)
    _call_covariance_kernel(x, None, out, windows, keep, lift, embed_mean)
    return out


def covariance_gradient(x: Tensor, grad: Tensor, keep: float, embed_mean: bool = False) -> Tensor:
    """Derivative of :func:`covariances` in x, from the derivative in its result (items, windows, n, n)."""
    if grad.ndim != 4:
        raise ShapeError(f"'grad' has shape {tuple(grad.shape)}, but (items, windows, n, n) is required.")
    x = _check_windows(x, grad.shape[1])
    n = x.shape[1] + embed_mean
    grad = dense("grad", grad, (x.shape[0], grad.shape[1], n, n), x.dtype)
    out = torch.empty_like(x)
    _call_covariance_kernel(x, grad, out, grad.shape[1], keep, 0.0, embed_mean)
    return out


def _call_covariance_kernel(
    x: Tensor, grad: Tensor | None, out: Tensor, windows: int, keep: float, lift: float, embed_mean: bool
) -> None:
    """Call the kernel for covariances of windows, or for their derivative if ``grad`` is given."""
    sizes = (tuple(x.shape), windows, keep, lift, embed_mean)
    _filters.covariances(*arrays(x, grad, out), *sizes, x.element_size(), torch.get_num_threads())


def _check_windows(x: Tensor, windows: int) -> Tensor:
    """Return epochs, contiguous; raise an error unless they have a sample for each window."""
    x = _check_contiguous_epochs("x", x)
    if not 1 <= windows <= x.shape[2]:
        raise ShapeError(f"{windows} windows of {x.shape[2]} samples: each window needs at least one sample.")
    return x
