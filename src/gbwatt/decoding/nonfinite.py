"""Diagnosis of losses and gradients that are not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gbwatt.errors import NonFiniteLossError, NotFiniteError, NotSPDError, NotSymmetricError

#: Errors of a forward or backward pass whose numbers are not finite.
NUMERICAL_ERRORS = (
    NotFiniteError,
    NotSPDError,
    NotSymmetricError,
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
)


def finite(tensors: Sequence[Tensor]) -> bool:
    """Whether all entries of all tensors are finite; usually with a single transfer from the device."""
    if not tensors or math.isfinite(torch.cat([x.flatten() for x in tensors]).sum().item()):
        return True
    return all(bool(torch.isfinite(x).all()) for x in tensors)  # sums of large numbers are too large


def first_not_finite(named: Iterable[tuple[str, Tensor | None]]) -> str | None:
    """Name of the first tensor with NaN or infinite entries."""
    return next((name for name, x in named if x is not None and not finite([x])), None)


def diagnose(
    model: nn.Module, inputs: Iterable[Tensor], epoch: int, batch: int, lr: float, training: bool
) -> NonFiniteLossError:
    """The error for a batch whose loss or gradients are not finite; ``inputs`` are its shards."""
    culprits = (find_culprit(model, x) for x in inputs)
    unknown = ("all outputs are finite, but too large for the loss", "Use a smaller lr.")
    culprit, remedy = next(filter(None, culprits), unknown)
    remedy = remedy.replace("a smaller lr", f"a smaller lr than {lr:g}")
    return NonFiniteLossError(epoch, batch, culprit, remedy, training)


def find_culprit(model: nn.Module, x: Tensor) -> tuple[str, str] | None:
    """The first input, parameter, output or gradient that is not finite, and what to do; None if all are finite."""
    if not finite([x]):
        return "the input has NaN or infinite samples", "Clean the data."
    name = first_not_finite(model.named_parameters())
    if name:
        return f"parameter {name!r} is not finite after the step before", "Use a smaller lr."
    module = first_bad_module(model, x)
    if module:
        return (
            f"the output of {module} is not finite",
            "Use a smaller lr, scale the input to about unit variance, or regularise the covariances (shrinkage, eps).",
        )
    name = first_not_finite((name, p.grad) for name, p in model.named_parameters())
    if name:
        return (
            f"the gradient of {name!r} is not finite",
            "Use a smaller lr, or regularise the covariances (shrinkage, eps).",
        )
    return None


@torch.no_grad()
def first_bad_module(model: nn.Module, x: Tensor) -> str | None:
    """Run a batch again and name the first module whose output is not finite."""
    bad: list[str] = []

    def watch(name: str, module: nn.Module) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if not bad and not finite(_floats(output)):
                bad.append(f"{name!r} ({type(module).__name__})")

        return module.register_forward_hook(hook)

    handles = [watch(name or "the model", module) for name, module in model.named_modules()]
    try:
        model(x)
    except NUMERICAL_ERRORS:
        pass  # the hooks have seen all outputs before it
    finally:
        for handle in handles:
            handle.remove()
    return bad[0] if bad else None


def _floats(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    return [x for part in output for x in _floats(part)] if isinstance(output, (tuple, list)) else []
