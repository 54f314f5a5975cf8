"""Results that do not depend on the number of threads.

Libraries of linear algebra may divide a decomposition, or a product that is not one of a batch, among threads, and the
number of these then shows in the last bits.  Matrices that the compiled kernel takes are too small to gain from that:
each is the work of one thread.  Larger ones are left to the library.

``torch.set_num_threads`` is not meant for that: threads of Python that call torch for the first time take over the
number that was set last, and keep it.  The number of the calling thread alone is set through OpenMP and MKL themselves.
Where these are not found, results depend on the number of threads unless no other thread of Python runs.
"""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

from gbwatt._validation import broadcast_shape
from gbwatt.errors import ShapeError
from gbwatt.geometry._native import BLOCK, MAX_SIZE

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Runtime(NamedTuple):
    """Functions that set the number of threads for operations of the calling thread; MKL's returns what was set."""

    openmp: Callable[[int], None]
    mkl: Callable[[int], int] | None


@cache
def _runtime() -> _Runtime | None:
    """OpenMP and MKL as torch uses them; None if they cannot be found, or if torch uses threads of another kind."""
    name = "libtorch_cpu.dylib" if sys.platform == "darwin" else "libtorch_cpu.so"
    try:
        library: Any = ctypes.PyDLL(str(Path(torch.__file__).parent / "lib" / name))
        openmp, mkl = library.omp_set_num_threads, None
        openmp.argtypes, openmp.restype = (ctypes.c_int,), None
        if torch.backends.mkl.is_available():
            mkl = library.MKL_Set_Num_Threads_Local
            mkl.argtypes = (ctypes.c_int,)
    except (OSError, AttributeError):
        return None
    threads = torch.get_num_threads()
    openmp(threads + 1)
    followed = torch.get_num_threads() == threads + 1
    openmp(threads)
    return _Runtime(openmp, mkl) if followed else None


class single_threaded:
    """Let torch use one thread inside the block, if ``matrices`` (..., k, k) are small.

    If ``few`` is given, only if there are few of them: as many as the kernel would not divide either, or fewer than
    there are threads.  Other threads of Python keep their number of threads.  On platforms where it cannot be set for
    one of them alone, the block has no effect while others run.
    """

    def __init__(self, matrices: Tensor, few: int | None = None) -> None:
        self.threads = 1
        if not torch.compiler.is_compiling() and matrices.shape[-1] <= MAX_SIZE:
            threads = torch.get_num_threads()
            if few is None or few <= max(BLOCK, threads):
                self.threads = threads

    def __enter__(self) -> None:
        if self.threads == 1:
            return
        self.runtime = _runtime()
        if self.runtime is not None:
            self.runtime.openmp(1)
            if self.runtime.mkl is not None:
                self.mkl_threads = self.runtime.mkl(1)
        elif threading.active_count() == 1:
            torch.set_num_threads(1)
        else:
            self.threads = 1

    def __exit__(self, *_error: object) -> None:
        if self.threads == 1:
            return
        if self.runtime is None:
            torch.set_num_threads(self.threads)
            return
        self.runtime.openmp(self.threads)
        if self.runtime.mkl is not None:
            self.runtime.mkl(self.mkl_threads)


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
        return math.prod(broadcast_shape(*(x.shape[:-2] for x in matrices)))
    except ShapeError:
        return 0


def as_batches(*matrices: Tensor) -> tuple[Tensor, ...]:
    """Matrices with an axis in front if others have one: the product with a single matrix is not one of a batch."""
    if all(x.ndim == 2 for x in matrices):
        return matrices
    return tuple(x[None] if x.ndim == 2 else x for x in matrices)
