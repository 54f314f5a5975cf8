"""Small samples that the tests of preprocessing share."""

from __future__ import annotations

import numpy as np

from gbwatt.data.preprocessing import Step
from gbwatt.data.trials import Frame, Trials

NAMES = ("Fz", "C3", "Cz", "C4")
FRAME = Frame(NAMES, 250.0, tmin=-1.0)


def noise() -> Trials:
    """Twelve trials of correlated noise with offsets and drifts, -1 to 3 s at 250 Hz."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 4, 1000)).cumsum(axis=-1) + 10 * rng.standard_normal((12, 4, 1000)) + 30
    return Trials(X=x, y=np.arange(12) % 2, class_names=("a", "b"), **vars(FRAME), dataset="noise")


def sine(freq: float, sfreq: float = 250.0, seconds: float = 8.0, phase: float = 0.4) -> np.ndarray:
    return np.sin(2 * np.pi * freq * np.arange(round(seconds * sfreq)) / sfreq + phase)[None]


def run(step: Step, x: np.ndarray, sfreq: float = 250.0, **meaning: object) -> np.ndarray:
    names = meaning.pop("ch_names", tuple(f"ch{i}" for i in range(x.shape[-2])))
    return step.transform(x, Frame(names, sfreq, **meaning))[0]


def middle(x: np.ndarray, part: float = 0.25) -> np.ndarray:
    cut = round(part * x.shape[-1])
    return x[..., cut:-cut]
