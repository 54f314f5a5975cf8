"""The compiled singular value decomposition of small matrices, where it could be built.

The extension ``_jacobi`` is plain C and optional: without a compiler the package installs all the same and
:func:`gbwatt.geometry.linalg.svd` takes torch's LAPACK path.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_jacobi: Any
try:
    from gbwatt.geometry import _jacobi
except ImportError:  # no compiler when the package was installed: torch does the work
    _jacobi = None

MAX_SIZE = 64  # beyond it LAPACK's blocked algorithm wins (benchmarks/geometry.py --svd)


def available() -> bool:
    """Whether the compiled kernel was built with the package."""
    return _jacobi is not None


def supports(f: Tensor) -> bool:
    """Whether the compiled kernel takes these matrices: small, real, dense, on the CPU."""
    return (
        _jacobi is not None
        and f.device.type == "cpu"
        and f.dtype in (torch.float32, torch.float64)
        and 0 < f.shape[-1] <= MAX_SIZE
        and not torch.compiler.is_compiling()
    )


def svd(f: Tensor, start: Tensor | None, right: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """``f = u diag(s) vᵀ`` by one-sided Jacobi, for the matrices that :func:`supports` accepts.

    Parameters
    ----------
    f : Tensor, shape (..., k, k)
    start : Tensor, shape (..., k, k) or None
        Orthogonal matrices close to ``v``, from which the iteration starts.
    right : bool
        Whether ``v`` is wanted.

    Returns
    -------
    u, s, v, failed : Tensors of shape (..., k, k), (..., k), (..., k, k) or None, (...)
        ``failed`` marks singular or non-finite matrices, whose vectors are not to be trusted.
    """
    f = f.contiguous()
    start = None if start is None else start.expand(f.shape).contiguous()
    u, s = torch.empty_like(f), f.new_empty(f.shape[:-1])
    v = torch.empty_like(f) if right or start is not None else None
    failed = torch.empty(f.shape[:-2], dtype=torch.bool)
    _jacobi.svd(
        f.data_ptr(),
        0 if start is None else start.data_ptr(),
        u.data_ptr(),
        s.data_ptr(),
        0 if v is None else v.data_ptr(),
        failed.data_ptr(),
        failed.numel(),
        f.shape[-1],
        f.element_size(),
        torch.get_num_threads(),
    )
    return u, s, v, failed
