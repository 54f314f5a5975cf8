"""Numerical context of differentiable functions: precision, number of threads, and first derivatives only."""

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
from gbwatt.errors import DoubleBackwardError, ShapeError
from gbwatt.geometry._native import BLOCK, MAX_SIZE

_Gradients = tuple[Tensor | None, ...]
_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


# ---------------------------------------------------------------------------------------------------------- precision


def full_precision(function: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Decorate a function of tensors so that ``torch.autocast`` does not affect it.

    Inside autocast, tensor arguments of half precision are converted to float32, as for the functions of torch that
    autocast runs in float32.  Outside of autocast the decorator changes nothing.
    """

    @wraps(function)
    def wrapper(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        for x in (*args, *kwargs.values()):
            if isinstance(x, Tensor):
                device_type = x.device.type
                break
        else:
            device_type = "cpu"
        if device_type == "meta" or not torch.is_autocast_enabled(device_type):
            return function(*args, **kwargs)
        with torch.autocast(device_type, enabled=False):
            return function(*map(_to_float32, args), **{name: _to_float32(x) for name, x in kwargs.items()})

    return wrapper


def _to_float32(x: Any) -> Any:
    """Convert a float16 or bfloat16 tensor to float32; return any other argument unchanged."""
    half = isinstance(x, Tensor) and x.dtype in (torch.bfloat16, torch.float16)
    return x.float() if half else x


# ---------------------------------------------------------------------------------------------------------- derivatives


class _NoBackwardContext:
    """Context (``ctx``) for calling the forward pass of an autograd function directly; it saves nothing."""

    def __init__(self, inputs: int) -> None:
        self.needs_input_grad = (False,) * inputs

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save nothing."""

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Do nothing."""


def apply(function: type[torch.autograd.Function], *args: Any) -> Tensor:
    """Call ``function.apply(*args)`` with a return type, and without its overhead when gradients are disabled."""
    out: Tensor
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        out = function.apply(*args)
    else:
        out = function.forward(_NoBackwardContext(len(args)), *args)
    return out


class _NotDifferentiable(torch.autograd.Function):
    """Identity on ``x`` whose backward pass raises DoubleBackwardError; ``what`` names the operation in the message.

    ``_sources`` are the tensors whose gradient cannot be computed; passing them connects ``x`` to them in the graph.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, what: str, *_sources: Tensor) -> Tensor:
        ctx.what = what
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *_grad: Tensor) -> _Gradients:
        raise DoubleBackwardError(
            f"{ctx.what} is differentiable once; its second derivative is not implemented. "
            "Call backward without create_graph=True, or detach the gradient before using it in a loss."
        )


def differentiable_once(what: str) -> Callable[[Callable[..., _Gradients]], Callable[..., _Gradients]]:
    """Decorate a backward pass: no graph is recorded, and differentiating its result raises DoubleBackwardError.

    The error is attached to the incoming gradients and the saved tensors.  A function must therefore save its
    differentiable inputs or its output.
    """

    def decorate(backward: Callable[..., _Gradients]) -> Callable[..., _Gradients]:
        backward = full_precision(backward)

        @wraps(backward)
        def wrapper(ctx: Any, *grads: Tensor) -> _Gradients:
            with torch.no_grad():
                out = backward(ctx, *grads)
            if not torch.is_grad_enabled():
                return out
            sources = [x for x in (*grads, *ctx.saved_tensors) if isinstance(x, Tensor) and x.requires_grad]
            if not sources:
                return out
            return tuple(None if x is None else apply(_NotDifferentiable, x, what, *sources) for x in out)

        return wrapper

    return decorate


# -------------------------------------------------------------------------------------------------------------- threads
#
# Linear algebra libraries may divide a single decomposition or product among threads; the last bits of the result then
# depend on the number of threads.  Matrices small enough for the compiled kernel do not gain from this, so each is
# computed by one thread.  Larger matrices are left to the library.
#
# torch.set_num_threads does not serve: Python threads that call torch for the first time inherit the number that was
# set last and keep it.  OpenMP and MKL can set the number of the calling thread alone.  Where they are not found,
# results may depend on the number of threads while other Python threads run.


class _ThreadSetters(NamedTuple):
    """Functions that set the number of threads of the calling thread; that of MKL returns the previous number."""

    openmp: Callable[[int], None]
    mkl: Callable[[int], int] | None


@cache
def _thread_setters() -> _ThreadSetters | None:
    """Find the functions of OpenMP and MKL, as loaded by torch, that set the number of threads of one Python thread.

    Returns None if they are not found or torch uses another threading library.
    """
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
    torch_follows = torch.get_num_threads() == threads + 1
    openmp(threads)
    return _ThreadSetters(openmp, mkl) if torch_follows else None


class single_threaded:
    """Context in which torch uses one thread, if ``matrices`` (..., k, k) are small.

    If ``few`` is given, it is the number of matrices, and the context applies only if that number is small: at most one
    block of the kernel or one matrix per thread.  Other Python threads keep their number of threads.  On platforms
    where the number cannot be set for one Python thread alone, the context has no effect while others run.
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
        self.runtime = _thread_setters()
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


def thread_independent(function: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Decorate a function of matrices (..., k, k): small batches of small matrices are computed by one thread.

    Their results therefore do not depend on the number of threads.
    """

    @wraps(function)
    def wrapper(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        if torch.get_num_threads() == 1:
            return function(*args, **kwargs)
        matrices = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim > 1]
        if not matrices:
            return function(*args, **kwargs)
        with single_threaded(matrices[0], few=_batch_size(matrices)):
            return function(*args, **kwargs)

    return wrapper


def _batch_size(matrices: list[Tensor]) -> int:
    """Number of matrices after broadcasting; 0 if they do not broadcast, which the function itself reports."""
    try:
        return math.prod(broadcast_shape(*(x.shape[:-2] for x in matrices)))
    except ShapeError:
        return 0


def as_batches(*matrices: Tensor) -> tuple[Tensor, ...]:
    """Add a batch axis to single matrices if others have one, so that all products are batched products."""
    if all(x.ndim == 2 for x in matrices):
        return matrices
    return tuple(x[None] if x.ndim == 2 else x for x in matrices)
