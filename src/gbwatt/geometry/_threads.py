"""Results that do not depend on the number of threads.

Libraries of linear algebra may divide a decomposition, or a product that is not one of a batch, among threads, and the
number of these then shows in the last bits.  Matrices that the compiled kernel takes are too small to gain from that:
each is the work of one thread.  Larger ones are left to the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from gbwatt import checks
from gbwatt.geometry._native import BLOCK, MAX_SIZE

_P = ParamSpec("_P")
_R = TypeVar("_R")


class single_threaded:
    """Let torch use one thread inside the block, if ``matrices`` (..., k, k) are small.

    If ``few`` is given, only if there are few of them: as many as the kernel would not divide either, or fewer than
    there are threads.
    """

    def __init__(self, matrices: Tensor, few: int | None = None) -> None:
        self.threads = 1
        if not torch.compiler.is_compiling() and matrices.shape[-1] <= MAX_SIZE:
            threads = torch.get_num_threads()
            if few is None or few <= max(BLOCK, threads):
                self.threads = threads

    def __enter__(self) -> None:
        if self.threads > 1:
            torch.set_num_threads(1)

    def __exit__(self, *_error: object) -> None:
        if self.threads > 1:
            torch.set_num_threads(self.threads)


def thread_independent(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function of matrices (..., k, k): few matrices are the work of one thread."""

    @wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if torch.get_num_threads() == 1:
            return function(*args, **kwargs)
        matrices = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim > 1]
        if not matrices:
            return function(*args, **kwargs)
        with single_threaded(matrices[0], few=_batch(matrices)):
            return function(*args, **kwargs)

    return wrapper


def _batch(matrices: list[Tensor]) -> int:
    """How many matrices there are after broadcasting; 0 if they do not broadcast, which the function will say."""
    try:
        return math.prod(checks.common_shape(*(x.shape[:-2] for x in matrices)))
    except checks.ShapeError:
        return 0


def as_batches(*matrices: Tensor) -> tuple[Tensor, ...]:
    """Matrices with an axis in front if others have one: the product with a single matrix is not one of a batch."""
    if all(x.ndim == 2 for x in matrices):
        return matrices
    return tuple(x[None] if x.ndim == 2 else x for x in matrices)
