"""Windows in memory, and a small backbone for them: what a corpus and a foundation model are like."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from gbwatt.clinical import FoundationClassifier

CHANNELS, TIMES, WIDTH = 4, 80, 16


class InMemory:
    """Oscillations whose phase between channels tells the class."""

    def __init__(self, n: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 2, n)
        t = np.arange(TIMES) / 20
        lag = np.pi * np.arange(CHANNELS)[:, None] / 4 * (1 + 2 * self.labels[:, None, None])
        noise = 0.5 * rng.normal(size=(n, CHANNELS, TIMES))
        self.x = (np.sin(2 * np.pi * t + lag + rng.uniform(0, 6, (n, 1, 1))) + noise).astype(np.float32)

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, indices):
        return self.x[indices], self.labels[indices]


def small_model(seed: int = 0, **options) -> FoundationClassifier:
    """A classifier with dropout, so that its training draws at random."""
    torch.manual_seed(seed)
    patches = nn.Sequential(nn.Unflatten(2, (4, 20)), nn.Linear(20, WIDTH), nn.Tanh(), nn.Dropout(0.2))
    patches.register_buffer("unused", torch.zeros(1))  # buffers go between processes
    return FoundationClassifier(patches, CHANNELS, 2, TIMES, **{"n_groups": 2, **options})
