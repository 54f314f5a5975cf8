"""Symmetric matrices: requiring them, and making them."""

from __future__ import annotations

import torch
from torch import Tensor

from gbwatt import checks
from gbwatt.geometry import _native


def require_symmetric(**matrices: Tensor) -> None:
    """Require finite matrices (..., k, k) that are symmetric up to rounding, all of one kind and size."""
    checks.alike(**matrices)
    if torch.compiler.is_compiling():  # what follows looks at values
        return
    for name, x in matrices.items():
        if not _exactly(x):
            checks.symmetric(name, x.detach())


def _exactly(x: Tensor) -> bool:
    """Whether the kernel says that they are finite, and symmetric to the last bit: in a fraction of torch's time."""
    return _native.supports(x) and _native.symmetric(x.detach())


def sym(x: Tensor) -> Tensor:
    """Symmetric part ``(x + xᵀ) / 2``, shape (..., k, k)."""
    return (x + x.mT) / 2


def symmetrised(x: Tensor) -> Tensor:
    """:func:`sym` for functions whose derivative is symmetric: what is symmetric to the last bit stays as it is."""
    return x if _exactly(x) else sym(x)
