"""The input of every model."""

from __future__ import annotations

from torch import Tensor

from gbwatt import checks


def as_epochs(x: Tensor, n_chans: int, n_times: int) -> Tensor:
    """Epochs (batch, n_chans, n_times) from these or from (batch, 1, n_chans, n_times); an error for all else.

    Examples
    --------
    >>> import torch
    >>> as_epochs(torch.zeros(7, 1, 3, 50), n_chans=3, n_times=50).shape
    torch.Size([7, 3, 50])
    """
    if x.ndim == 4 and x.shape[1] == 1:
        x = x[:, 0]
    if x.ndim != 3 or x.shape[1:] != (n_chans, n_times):
        raise checks.ShapeError(
            f"'x' {tuple(x.shape)} does not fit a model for epochs (batch, {n_chans}, {n_times}): "
            "channels and samples are fixed when it is built."
        )
    return x
