"""Symmetric matrices: validation, symmetric parts, and vectorisation of upper triangles."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gbwatt._validation import check_alike, check_same_kind, check_square, check_symmetric
from gbwatt.errors import ShapeError
from gbwatt.geometry import _native
from gbwatt.geometry._context import apply


def require_symmetric(**matrices: Tensor) -> None:
    """Require finite matrices (..., k, k) of one dtype, device and size that are symmetric up to rounding."""
    check_alike(**matrices)
    for name, x in matrices.items():
        _require(name, x)


def _require(name: str, x: Tensor, reference: Tensor | float = 0.0) -> bool:
    """Require symmetric matrices; return whether they are exactly symmetric."""
    if torch.compiler.is_compiling():  # a traced graph cannot depend on values
        return False
    exactly = _exactly(x)
    if not exactly:
        check_symmetric(name, x.detach(), reference)
    return exactly


def symmetric_part(name: str, x: Tensor, reference: float = 0.0) -> Tensor:
    """Symmetric parts of matrices (..., k, k), which must be finite and symmetric up to rounding.

    Rounding is relative to the largest entry, or to ``reference`` if that is larger.
    """
    check_alike(**{name: x})
    return x if _require(name, x, reference) else sym(x)


def tangent_vectors(base: Tensor, **vectors: Tensor) -> list[Tensor]:
    """Symmetric parts of tangent vectors (..., k, k) at a base point, all of one dtype, device and size.

    They must be symmetric up to rounding, which is relative to the largest entry of the vector or of the base point:
    short vectors are usually differences of points of that size.
    """
    check_alike(base=base, **vectors)
    _require("base", base)
    size = base.detach().abs().amax((-2, -1))
    return [v if _require(name, v, size) else sym(v) for name, v in vectors.items()]


def _exactly(x: Tensor) -> bool:
    """Whether matrices are finite and exactly symmetric, by the compiled kernel; False without it."""
    return _native.supports(x) and _native.symmetric(x.detach())


def sym(x: Tensor) -> Tensor:
    """Symmetric part ``(x + xᵀ) / 2``, shape (..., k, k)."""
    return (x + x.mT) / 2


def symmetrised(x: Tensor) -> Tensor:
    """:func:`sym` for functions whose derivative is symmetric: exactly symmetric matrices are returned unchanged."""
    return x if _exactly(x) else sym(x)


def vech(x: Tensor) -> Tensor:
    """Half-vectorisation: the upper triangle of symmetric matrices, row by row.

    Off-diagonal entries have no factor √2.  :func:`unvech` is the inverse.

    Parameters
    ----------
    x : Tensor, shape (..., k, k)
        Symmetric matrices.

    Returns
    -------
    Tensor, shape (..., k (k + 1) / 2)

    Examples
    --------
    >>> vech(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1., 2., 3.])
    """
    check_same_kind(x=x)
    check_square(x=x)
    if torch.compiler.is_compiling():
        return x.flatten(-2)[..., _upper(x.shape[-1], x.device)]
    return apply(_Vech, x)


class _Vech(torch.autograd.Function):
    """Half-vectorisation by gather in both directions, which is faster than scatter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.k = k = x.shape[-1]
        upper = _upper(k, x.device)
        return x.flatten(-2).gather(-1, upper.expand(*x.shape[:-2], -1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        place = _place(ctx.k, grad.device)
        full: Tensor = grad.gather(-1, place.flatten().expand(*grad.shape[:-1], -1)).unflatten(-1, place.shape)
        return full.triu()


@lru_cache(maxsize=64)
def _indices(k: int) -> tuple[np.ndarray[Any, np.dtype[np.int64]], ...]:
    """Positions of the upper triangle in a flat matrix (k k), and positions of the entries of a matrix in the triangle.

    These are arrays, because tensors created during tracing or in inference mode cannot be reused afterwards.
    """
    row, column = np.triu_indices(k)
    place = np.empty((k, k), dtype=np.int64)
    place[row, column] = place[column, row] = np.arange(len(row))
    return row * k + column, place


def _upper(k: int, device: torch.device) -> Tensor:
    return torch.from_numpy(_indices(k)[0]).to(device)


def _place(k: int, device: torch.device) -> Tensor:
    return torch.from_numpy(_indices(k)[1]).to(device)


def unvech(v: Tensor) -> Tensor:
    """Symmetric matrices from their upper triangles, the inverse of :func:`vech`.

    Parameters
    ----------
    v : Tensor, shape (..., k (k + 1) / 2)

    Returns
    -------
    Tensor, shape (..., k, k)

    Raises
    ------
    ShapeError
        If the length of the last axis is not k (k + 1) / 2 for some k.

    Examples
    --------
    >>> unvech(torch.tensor([1.0, 2.0, 3.0]))
    tensor([[1., 2.],
            [2., 3.]])
    """
    check_same_kind(v=v)
    length = v.shape[-1] if v.ndim else 0
    k = int((8 * length + 1) ** 0.5 - 1) // 2
    if length == 0 or k * (k + 1) // 2 != length:
        raise ShapeError(
            f"'v' {tuple(v.shape)} does not contain upper triangles; the last axis must have length k (k + 1) / 2."
        )
    return v[..., _place(k, v.device)]
