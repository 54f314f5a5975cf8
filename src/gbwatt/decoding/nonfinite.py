"""Why a loss is not a number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gbwatt.errors import NotFiniteError, NotSPDError, NotSymmetricError

#: What a forward or backward pass may raise when numbers have left their range.
NUMERICAL_ERRORS = (
    NotFiniteError,
    NotSPDError,
    NotSymmetricError,
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
)


def finite(tensors: Sequence[Tensor]) -> bool:
    """Whether all entries of all tensors are finite; if they are, with one look at the device."""
    if not tensors or math.isfinite(torch.cat([x.flatten() for x in tensors]).sum().item()):
        return True
    return all(bool(torch.isfinite(x).all()) for x in tensors)  # sums of large numbers are too large


def first_not_finite(named: Iterable[tuple[str, Tensor | None]]) -> str | None:
    """Name of the first tensor with NaN or infinite entries."""
    return next((name for name, x in named if x is not None and not finite([x])), None)


def find_culprit(model: nn.Module, x: Tensor) -> tuple[str, str] | None:
    """What is not finite, input, parameter, output or gradient, and what to do; None if all are."""
    slower = "Take a smaller lr"
    if not finite([x]):
        return "the input has NaN or infinite samples", "Clean the data."
    name = first_not_finite(model.named_parameters())
    if name:
        return f"parameter {name!r} is not finite after the step before", f"{slower}."
    module = first_bad_module(model, x)
    if module:
        return (
            f"the output of {module} is not finite",
            f"{slower}, scale the input to about unit variance, or regularise the covariances (shrinkage, eps).",
        )
    name = first_not_finite((name, p.grad) for name, p in model.named_parameters())
    if name:
        return f"the gradient of {name!r} is not finite", f"{slower}, or regularise the covariances (shrinkage, eps)."
    return None


@torch.no_grad()
def first_bad_module(model: nn.Module, x: Tensor) -> str | None:
    """Run a batch again and name the first module whose output is not finite, or that refuses its input."""
    found: list[str] = []

    def watch(name: str, module: nn.Module) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if not found and not finite(_floats(output)):
                found.append(f"{name!r} ({type(module).__name__})")

        return module.register_forward_hook(hook)

    handles = [watch(name or "the model", module) for name, module in model.named_modules()]
    try:
        model(x)
    except NUMERICAL_ERRORS:
        pass  # the hooks have seen what came before it
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def _floats(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    return [x for part in output for x in _floats(part)] if isinstance(output, (tuple, list)) else []
