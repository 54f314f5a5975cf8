"""The input of every model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gbwatt import checks


def as_epochs(x: Tensor, n_chans: int, n_times: int, model: nn.Module | None = None) -> Tensor:
    """Epochs (batch, n_chans, n_times) from these or from (batch, 1, n_chans, n_times); any other shape is an error.

    Parameters
    ----------
    x : Tensor
        Real floating numbers.  Half precision is accepted under ``torch.autocast``, and converted.
    n_chans, n_times : int
    model : nn.Module, optional
        If given, ``x`` must have the dtype and the device of its parameters.

    Examples
    --------
    >>> as_epochs(torch.zeros(7, 1, 3, 50), n_chans=3, n_times=50).shape
    torch.Size([7, 3, 50])
    """
    if not isinstance(x, Tensor):
        raise checks.MismatchError(
            f"'x' is a {type(x).__name__}, but a model takes a torch.Tensor: use "
            "torch.as_tensor(x, dtype=torch.float32), or a scikit-learn estimator such as gbwatt.GBWAttClassifier, "
            "which takes NumPy arrays."
        )
    if not x.is_floating_point():
        raise checks.MismatchError(
            f"'x' {tuple(x.shape)} has dtype {x.dtype}, but real floating numbers are required: "
            + ("take a real part or a magnitude, x.abs()." if x.is_complex() else "x.float().")
        )
    if model is not None:
        x = _of_one_kind(x, model)
    if x.ndim == 4 and x.shape[1] == 1:
        x = x[:, 0]
    if x.ndim != 3 or x.shape[1:] != (n_chans, n_times):
        raise checks.ShapeError(
            f"'x' {tuple(x.shape)} does not fit a model for epochs (batch, {n_chans}, {n_times}): "
            "channels and samples are fixed when it is built."
        )
    return x


def _of_one_kind(x: Tensor, model: nn.Module) -> Tensor:
    """Epochs of the dtype and the device of a model's parameters."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), None)
    if weight is None:
        return x
    if x.device != weight.device:
        raise checks.MismatchError(
            f"'x' is on {x.device} and the model on {weight.device}; move one, e.g. x.to({str(weight.device)!r})."
        )
    if x.dtype == weight.dtype:
        return x
    if x.dtype in (torch.bfloat16, torch.float16) and torch.is_autocast_enabled(x.device.type):
        return x.to(weight.dtype)
    other = f", or the model, model.to({x.dtype})" if x.dtype in (torch.float32, torch.float64) else ""
    raise checks.MismatchError(
        f"'x' {tuple(x.shape)} has dtype {x.dtype}, but the model has {weight.dtype}; convert the input, "
        f"x.to({weight.dtype}){other}."
    )
