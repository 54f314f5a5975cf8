"""A model that trains in milliseconds and has all kinds of state: buffers, dropout, a manifold, an undecayed scale."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from gbwatt.models import registry
from gbwatt.nn.optim import stiefel


class Tiny(nn.Module):
    """Log-power of orthonormal mixtures of the channels, normalised, with dropout, classified."""

    undecayed = ("scale",)

    def __init__(self, n_chans, n_outputs, width=3, dropout=0.2, task=None):
        super().__init__()
        self.task = task
        self.mix = stiefel(n_chans, width)
        self.norm = nn.BatchNorm1d(width)
        self.dropout = nn.Dropout(dropout)
        self.scale = nn.Parameter(torch.ones(()))
        self.final_layer = nn.Linear(width, n_outputs)

    def forward(self, x):  # (batch, n_chans, n_times) -> (batch, n_outputs)
        power = (self.mix.mT @ x).square().mean(-1).log()
        return self.scale * self.final_layer(self.dropout(self.norm(power)))


def register_tiny() -> None:
    registry.register("tiny", "a model for tests")(
        lambda signal, task, **options: Tiny(signal.n_chans, signal.n_outputs, **options)
    )


def swapped(x, y):
    """Validation data that contradict the training: other trials, whose loss rises when a model learns."""
    return -x, np.where(y == "left", "right", "left")


def make_trials(n=40, n_chans=4, n_times=32, n_classes=2, seed=0, gain=3):
    """Classes that differ in the amplitude of one channel each, by ``gain``; labels are texts."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % n_classes
    x = rng.standard_normal((n, n_chans, n_times))
    x[np.arange(n), codes] *= gain
    return x, np.array(["left", "right", "feet", "tongue"])[codes]
