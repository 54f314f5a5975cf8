"""Whether trials are cut with the margins that the filter of their preset needs."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np

from gbwatt.data._reading import cut
from gbwatt.data.preprocessing import BandPass, Crop, Preprocessing
from gbwatt.data.trials import Trials


def error_of_cutting_first(data_set: ModuleType, source: str) -> float:
    """Relative error in the window, against a recording that is filtered as a whole, of a random walk."""
    sfreq, window, margin = data_set.SFREQ, data_set.WINDOW, data_set.MARGIN
    (band,) = [s for s in data_set.DATASET.source(source).preprocessing.steps if isinstance(s, BandPass)]
    recording = np.random.default_rng(0).standard_normal((1, round(60 * sfreq))).cumsum(axis=1)
    onsets = [round(t * sfreq) for t in range(5, 50, 3)]

    def filtered(x: np.ndarray, tmin: float, *more: Crop) -> np.ndarray:
        y = np.zeros(len(x), dtype=int)
        return Preprocessing(band, *more)(
            Trials(X=x, y=y, class_names=("a", "b"), ch_names=("Cz",), sfreq=sfreq, tmin=tmin)
        ).X

    cut_last = cut(Path(), filtered(recording[None], 0.0)[0], onsets, sfreq, window)
    cut_first = filtered(cut(Path(), recording, onsets, sfreq, window, margin), window[0] - margin, Crop(*window))
    return float(np.linalg.norm(cut_first - cut_last) / np.linalg.norm(cut_last))
