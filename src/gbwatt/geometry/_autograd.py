"""What derivatives share: full precision under autocast, and a clear error for second derivatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from gbwatt.errors import DoubleBackwardError

_Gradients = tuple[Tensor | None, ...]
_P = ParamSpec("_P")
_R = TypeVar("_R")


def full_precision(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function of tensors that ``torch.autocast`` has no influence on.

    Inside autocast the tensors among its arguments that have half precision are converted to float32, as for the
    functions of torch that autocast runs in float32; outside of it nothing is changed.
    """

    @wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for x in (*args, *kwargs.values()):
            if isinstance(x, Tensor):
                kind = x.device.type
                break
        else:
            kind = "cpu"
        if kind == "meta" or not torch.is_autocast_enabled(kind):
            return function(*args, **kwargs)
        with torch.autocast(kind, enabled=False):
            return function(*map(_widen, args), **{name: _widen(x) for name, x in kwargs.items()})

    return wrapper


def _widen(x: Any) -> Any:
    half = isinstance(x, Tensor) and x.dtype in (torch.bfloat16, torch.float16)
    return x.float() if half else x


class _Unused:
    """What a forward pass gets for its context when there will be no backward pass."""

    def __init__(self, inputs: int) -> None:
        self.needs_input_grad = (False,) * inputs

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep nothing."""

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Nothing is."""


def apply(function: type[torch.autograd.Function], *args: Any) -> Tensor:
    """``function.apply``, typed; without its overhead where no gradients are wanted."""
    out: Tensor
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        out = function.apply(*args)
    else:
        out = function.forward(_Unused(len(args)), *args)
    return out


class _Refuse(torch.autograd.Function):
    """The identity, whose derivative is an error."""

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

    The refusal hangs on what the result depends on: the incoming gradients and the saved inputs.  A function must
    therefore save its differentiable inputs, or its output.
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
            return tuple(None if x is None else apply(_Refuse, x, what, *sources) for x in out)

        return wrapper

    return decorate
