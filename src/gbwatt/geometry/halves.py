"""Symmetric matrices as vectors of their upper triangles, and back."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gbwatt import checks
from gbwatt.geometry._autograd import apply


def vech(x: Tensor) -> Tensor:
    """Upper triangle of symmetric matrices, row by row: (..., k, k) -> (..., k (k + 1) / 2).

    Plain entries, no factor √2 off the diagonal; :func:`unvech` is the inverse.

    Examples
    --------
    >>> vech(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1., 2., 3.])
    """
    checks.same_kind(x=x)
    checks.square(x=x)
    if torch.compiler.is_compiling():
        return x.flatten(-2)[..., _upper(x.shape[-1], x.device)]
    return apply(_Vech, x)


class _Vech(torch.autograd.Function):
    """Gathers both ways: to scatter is slow."""

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
    """Positions of the upper triangle in a flat matrix (k k), and where in it each entry of a symmetric matrix is.

    Arrays, not tensors: a tensor made while a graph is traced, or in inference mode, is of no use afterwards.
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
    """Symmetric matrices from their upper triangle: (..., k (k + 1) / 2) -> (..., k, k).

    Examples
    --------
    >>> unvech(torch.tensor([1.0, 2.0, 3.0]))
    tensor([[1., 2.],
            [2., 3.]])
    """
    checks.same_kind(v=v)
    length = v.shape[-1] if v.ndim else 0
    k = int((8 * length + 1) ** 0.5 - 1) // 2
    if length == 0 or k * (k + 1) // 2 != length:
        raise checks.ShapeError(
            f"'v' {tuple(v.shape)} is not a stack of half vectors; the last axis must be k (k + 1) / 2 long."
        )
    return v[..., _place(k, v.device)]
