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
        _require_symmetric_up_to_rounding(name, x)


def _require_symmetric_up_to_rounding(name: str, x: Tensor, reference: Tensor | float = 0.0) -> bool:
    """Raise an error unless ``x`` is finite and symmetric up to rounding; return whether it is exactly symmetric.

    Rounding is relative to the largest entry, or to ``reference`` if that is larger.  ``name`` is used in the message.
    """
    if torch.compiler.is_compiling():  # a traced graph cannot depend on values
        return False
    exact = _is_exactly_symmetric(x)
    if not exact:
        check_symmetric(name, x.detach(), reference)
    return exact


def symmetric_part(name: str, x: Tensor, reference: float = 0.0) -> Tensor:
    """Symmetric parts of matrices (..., k, k), which must be finite and symmetric up to rounding.

    Rounding is relative to the largest entry, or to ``reference`` if that is larger.
    """
    check_alike(**{name: x})
    return x if _require_symmetric_up_to_rounding(name, x, reference) else sym(x)


def tangent_vectors(base: Tensor, **vectors: Tensor) -> list[Tensor]:
    """Symmetric parts of tangent vectors (..., k, k) at a base point, all of one dtype, device and size.

    They must be symmetric up to rounding, which is relative to the largest entry of the vector or of the base point:
    short vectors are usually differences of points of that size.
    """
    check_alike(base=base, **vectors)
    _require_symmetric_up_to_rounding("base", base)
    size = base.detach().abs().amax((-2, -1))
    return [v if _require_symmetric_up_to_rounding(name, v, size) else sym(v) for name, v in vectors.items()]


def _is_exactly_symmetric(x: Tensor) -> bool:
    """Whether matrices are finite and exactly symmetric, by the compiled kernel; False without it."""
    return _native.supports(x) and _native.symmetric(x.detach())


def sym(x: Tensor) -> Tensor:
    """Symmetric part ``(x + xᵀ) / 2``, shape (..., k, k)."""
    return (x + x.mT) / 2


def symmetrised(x: Tensor) -> Tensor:
    """:func:`sym` for functions whose derivative is symmetric: exactly symmetric matrices are returned unchanged."""
    return x if _is_exactly_symmetric(x) else sym(x)


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
        return x.flatten(-2)[..., _upper_positions(x.shape[-1], x.device)]
    return apply(_Vech, x)


class _Vech(torch.autograd.Function):
    """Half-vectorisation by gather in both directions, which is faster than scatter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.k = k = x.shape[-1]
        upper = _upper_positions(k, x.device)
        return x.flatten(-2).gather(-1, upper.expand(*x.shape[:-2], -1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        positions = _triangle_positions(ctx.k, grad.device)
        full: Tensor = grad.gather(-1, positions.flatten().expand(*grad.shape[:-1], -1)).unflatten(-1, positions.shape)
        return full * torch.ones_like(positions, dtype=grad.dtype).triu()  # faster than triu of many matrices


@lru_cache(maxsize=64)
def _triangle_indices(k: int) -> tuple[np.ndarray[Any, np.dtype[np.int64]], ...]:
    """Index arrays for :func:`vech` and :func:`unvech` of k×k matrices.

    The first holds the positions of the upper triangle in a flat matrix (k k), the second (k, k) the position of each
    matrix entry in the triangle.  They are NumPy arrays, because tensors created during tracing or in inference mode
    cannot be reused afterwards.
    """
    row, column = np.triu_indices(k)
    position = np.empty((k, k), dtype=np.int64)
    position[row, column] = position[column, row] = np.arange(len(row))
    return row * k + column, position


def _upper_positions(k: int, device: torch.device) -> Tensor:
    """Positions of the upper triangle in a flat k×k matrix, as a tensor."""
    return torch.from_numpy(_triangle_indices(k)[0]).to(device)


def _triangle_positions(k: int, device: torch.device) -> Tensor:
    """Position in the upper triangle of each entry of a symmetric matrix, as a tensor (k, k)."""
    return torch.from_numpy(_triangle_indices(k)[1]).to(device)


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
    return v[..., _triangle_positions(k, v.device)]
