"""Input of a model: its sizes in the terms of braindecode, and checks of epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gbwatt.errors import MismatchError, ParameterError, ShapeError


@dataclass(frozen=True)
class Signal:
    """Shape of epochs (n, n_chans, n_times), number of classes, and sampling rate in Hz if it is known."""

    n_chans: int
    n_outputs: int
    n_times: int
    sfreq: float | None = None

    @classmethod
    def infer(
        cls,
        n_chans: int | None = None,
        n_outputs: int | None = None,
        n_times: int | None = None,
        sfreq: float | None = None,
        chs_info: Sequence[Any] | None = None,
        input_window_seconds: float | None = None,
    ) -> Signal:
        """Infer missing sizes: channels from ``chs_info``, samples from duration and sampling rate.

        Examples
        --------
        >>> Signal.infer(n_chans=8, n_outputs=5, sfreq=125, input_window_seconds=1)
        Signal(n_chans=8, n_outputs=5, n_times=125, sfreq=125.0)
        """
        if sfreq is None and n_times is not None and input_window_seconds:
            sfreq = n_times / input_window_seconds
        n_chans = _agreed_value("n_chans", n_chans, "len(chs_info)", None if chs_info is None else len(chs_info))
        samples = None if sfreq is None or input_window_seconds is None else round(sfreq * input_window_seconds)
        n_times = _agreed_value("n_times", n_times, "sfreq * input_window_seconds", samples)
        missing = [
            name
            for name, value in (("n_chans", n_chans), ("n_outputs", n_outputs), ("n_times", n_times))
            if value is None
        ]
        if missing or n_chans is None or n_outputs is None or n_times is None:
            raise ParameterError(
                f"{' and '.join(missing)} cannot be inferred; give them, or chs_info for the channels and sfreq with "
                "input_window_seconds for the samples."
            )
        for name, value, least in (("n_chans", n_chans, 1), ("n_outputs", n_outputs, 2), ("n_times", n_times, 2)):
            if value < least:
                raise ParameterError(f"{name}={value} must be at least {least}.")
        if sfreq is not None and not sfreq > 0:
            raise ParameterError(f"sfreq={sfreq} must be positive, in Hz.")
        return cls(int(n_chans), int(n_outputs), int(n_times), None if sfreq is None else float(sfreq))


def _agreed_value(name: str, given: int | None, source: str, inferred: int | None) -> int | None:
    """The given or the inferred value of ``name``; raise ParameterError if both are known and differ.

    ``source`` is the origin of the inferred value, for the message.
    """
    if given is not None and inferred is not None and given != inferred:
        raise ParameterError(f"{name}={given} contradicts {source}={inferred}; leave one of them out.")
    return inferred if given is None else given


def as_epochs(x: Tensor, n_chans: int, n_times: int, model: nn.Module | None = None) -> Tensor:
    """Check epochs (batch, n_chans, n_times) or (batch, 1, n_chans, n_times), and return them in the former shape.

    Parameters
    ----------
    x : Tensor
        Real floating-point numbers.  Half precision is accepted and converted under ``torch.autocast``.
    n_chans, n_times : int
    model : nn.Module, optional
        If given, ``x`` must have the dtype and device of its parameters.

    Returns
    -------
    Tensor, shape (batch, n_chans, n_times)

    Raises
    ------
    MismatchError
        If ``x`` is not a real floating-point tensor of the dtype and device of the model.
    ShapeError
        If ``x`` has another shape.

    Examples
    --------
    >>> as_epochs(torch.zeros(7, 1, 3, 50), n_chans=3, n_times=50).shape
    torch.Size([7, 3, 50])
    """
    if not isinstance(x, Tensor):
        raise MismatchError(
            f"'x' is a {type(x).__name__}, but a model takes a torch.Tensor: use "
            "torch.as_tensor(x, dtype=torch.float32), or a scikit-learn estimator such as gbwatt.GBWAttClassifier, "
            "which takes NumPy arrays."
        )
    if not x.is_floating_point():
        raise MismatchError(
            f"'x' {tuple(x.shape)} has dtype {x.dtype}, but real floating-point numbers are required: "
            + ("use the real part or the magnitude, x.abs()." if x.is_complex() else "x.float().")
        )
    if model is not None:
        x = _in_model_dtype(x, model)
    if x.ndim == 4 and x.shape[1] == 1:
        x = x[:, 0]
    if x.ndim != 3 or x.shape[1:] != (n_chans, n_times):
        raise ShapeError(
            f"'x' {tuple(x.shape)} does not fit a model for epochs (batch, {n_chans}, {n_times}): "
            "the numbers of channels and samples are fixed when a model is built."
        )
    return x


def _in_model_dtype(x: Tensor, model: nn.Module) -> Tensor:
    """Return epochs in the dtype of the model, converted from half precision under autocast.

    Raises MismatchError for another dtype or device.
    """
    weight = next((p for p in model.parameters() if p.is_floating_point()), None)
    if weight is None:
        return x
    if x.device != weight.device:
        raise MismatchError(
            f"'x' is on {x.device} and the model on {weight.device}; move one, e.g. x.to({str(weight.device)!r})."
        )
    if x.dtype == weight.dtype:
        return x
    if x.dtype in (torch.bfloat16, torch.float16) and torch.is_autocast_enabled(x.device.type):
        return x.to(weight.dtype)
    other = f", or the model, model.to({x.dtype})" if x.dtype in (torch.float32, torch.float64) else ""
    raise MismatchError(
        f"'x' {tuple(x.shape)} has dtype {x.dtype}, but the model has {weight.dtype}; convert the input, "
        f"x.to({weight.dtype}){other}."
    )
