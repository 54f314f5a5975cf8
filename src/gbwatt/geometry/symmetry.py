"""Symmetric matrices: requiring them, and making them."""

from __future__ import annotations

import torch
from torch import Tensor

from gbwatt import checks
from gbwatt.geometry import _native


def require_symmetric(**matrices: Tensor) -> None:
    """Require finite matrices (..., k, k) that are symmetric up to rounding, all of one kind and size."""
    checks.alike(**matrices)
    for name, x in matrices.items():
        _require(name, x)


def _require(name: str, x: Tensor, reference: Tensor | float = 0.0) -> bool:
    """Require symmetric matrices; whether they are so to the last bit is returned."""
    if torch.compiler.is_compiling():  # what follows looks at values
        return False
    exactly = _exactly(x)
    if not exactly:
        checks.symmetric(name, x.detach(), reference)
    return exactly


def symmetric_part(name: str, x: Tensor, reference: float = 0.0) -> Tensor:
    """Symmetric parts of matrices (..., k, k) that have to be finite, and symmetric up to rounding.

    Rounding is relative to the largest entry, or to ``reference`` where that is larger.
    """
    checks.alike(**{name: x})
    return x if _require(name, x, reference) else sym(x)


def tangent_vectors(base: Tensor, **vectors: Tensor) -> list[Tensor]:
    """Symmetric parts of tangent vectors (..., k, k) at a base point, all of one kind and size.

    They have to be symmetric up to rounding, which is relative to the largest entry of the base point where that is
    larger: a short vector is usually the difference of points of that size.
    """
    checks.alike(base=base, **vectors)
    _require("base", base)
    size = base.detach().abs().amax((-2, -1))
    return [v if _require(name, v, size) else sym(v) for name, v in vectors.items()]


def _exactly(x: Tensor) -> bool:
    """Whether the kernel says that they are finite, and symmetric to the last bit: in a fraction of torch's time."""
    return _native.supports(x) and _native.symmetric(x.detach())


def sym(x: Tensor) -> Tensor:
    """Symmetric part ``(x + xᵀ) / 2``, shape (..., k, k)."""
    return (x + x.mT) / 2


def symmetrised(x: Tensor) -> Tensor:
    """:func:`sym` for functions whose derivative is symmetric: what is symmetric to the last bit stays as it is."""
    return x if _exactly(x) else sym(x)
