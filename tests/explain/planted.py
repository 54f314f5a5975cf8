"""Small recordings in which it is known what tells the classes apart."""

from __future__ import annotations

import numpy as np

from gbwatt.data import Trials

CHANNELS = ("F3", "F4", "C3", "C4", "P3", "P4")
PLANTED = {"left": "C4", "right": "C3"}


def make_trials(n: int = 60, n_times: int = 64, seed: int = 0) -> Trials:
    """White noise in µV, three times as large at C4 in trials of "left" and at C3 in trials of "right"."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = 10 * rng.standard_normal((n, len(CHANNELS), n_times))
    for label, name in enumerate(PLANTED.values()):
        x[y == label, CHANNELS.index(name)] *= 3
    return Trials(X=x, y=y, class_names=tuple(PLANTED), ch_names=CHANNELS, sfreq=64.0, tmin=0.5)
