"""Symmetric matrices as vectors of their upper triangles, and back."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

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
    checks.square(x=x)
    row, column, _ = _half(x.shape[-1], x.device)
    if torch.compiler.is_compiling():
        return x[..., row, column]
    return apply(_Vech, x)


class _Vech(torch.autograd.Function):
    """Gathers both ways: to scatter is slow."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        row, column, _ = _half(x.shape[-1], x.device)
        ctx.k = k = x.shape[-1]
        return x.flatten(-2).gather(-1, (row * k + column).expand(*x.shape[:-2], -1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        place = _half(ctx.k, grad.device)[2]
        full: Tensor = grad.gather(-1, place.flatten().expand(*grad.shape[:-1], -1)).unflatten(-1, place.shape)
        return full.triu()


@lru_cache(maxsize=64)
def _half(k: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and columns of the upper triangle, and where in it each entry of a symmetric matrix is."""
    row, column = torch.triu_indices(k, k, device=device)
    place = torch.empty(k, k, dtype=torch.long, device=device)
    place[row, column] = place[column, row] = torch.arange(len(row), device=device)
    return row, column, place


def unvech(v: Tensor) -> Tensor:
    """Symmetric matrices from their upper triangle: (..., k (k + 1) / 2) -> (..., k, k).

    Examples
    --------
    >>> unvech(torch.tensor([1.0, 2.0, 3.0]))
    tensor([[1., 2.],
            [2., 3.]])
    """
    length = v.shape[-1] if v.ndim else 0
    k = int((8 * length + 1) ** 0.5 - 1) // 2
    if length == 0 or k * (k + 1) // 2 != length:
        raise checks.ShapeError(
            f"'v' {tuple(v.shape)} is not a stack of half vectors; the last axis must be k (k + 1) / 2 long."
        )
    return v[..., _half(k, v.device)[2]]
