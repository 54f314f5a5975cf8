"""One call for every picture, with numbers like real ones: what all pictures have in common is tested on these."""

from __future__ import annotations

from functools import cache

import numpy as np
from matplotlib.figure import Figure

from gbwatt import plotting
from gbwatt.data.sets import bcic2a, ern, mamem

MI, ERN, SSVEP = bcic2a.CHANNELS, ern.CHANNELS, tuple(mamem.ELECTRODES)[:8]
CLASSES = ("left hand", "right hand", "feet", "tongue", "rest", "mental arithmetic")


def smooth(*shape: int, seed: int = 0) -> np.ndarray:
    """Random values that vary slowly along the last axis."""
    noise = np.random.default_rng(seed).standard_normal((*shape[:-1], shape[-1] + 9))
    return np.stack([noise[..., i : i + 10].mean(-1) for i in range(shape[-1])], axis=-1)


def attention(n: int, m: int) -> np.ndarray:
    scores = np.exp(0.1 * np.random.default_rng(1).standard_normal((n, m, m)))
    return scores / scores.sum(-1, keepdims=True)


def heatmaps(n: int = 4, ch_names=MI, scale: float = 1.0):
    values = np.abs(smooth(n, len(ch_names), 160))
    return plotting.heatmaps(scale * values, CLASSES[:n], ch_names, np.arange(160) / 128, "gradient (1/µV)")


def topomaps(n: int = 2, ch_names=MI):
    return plotting.topomaps(smooth(n, len(ch_names)), CLASSES[:n], ch_names, "gradient (1/µV)")


def channel_bars(n: int = 4, ch_names=MI, scale: float = 1.0):
    return plotting.channel_bars(scale * np.abs(smooth(n, len(ch_names))), CLASSES[:n], ch_names, "gradient (1/µV)")


def patterns(n: int = 3, ch_names=MI):
    freqs = np.linspace(0, 45, 46)
    return plotting.patterns(smooth(n, len(ch_names)), np.abs(smooth(n, 46, seed=1)), freqs, ch_names)


def attention_maps(n: int = 4, m: int = 3):
    return plotting.attention_maps(attention(n, m), CLASSES[:n])


def condition_histograms():
    logs = np.random.default_rng(0).normal(4, 1, (2, 50, 3))
    return plotting.condition_histograms(10 ** logs[0], 10 ** (logs[1] - 2))


def spectra():
    values = np.exp(-np.arange(20) / 2 + 0.1 * smooth(50, 20))
    return plotting.spectra(values, values[:, :18])


def metric_spectrum(spread: float = 0.3, k: int = 18):
    return plotting.metric_spectrum(np.exp(spread * np.linspace(-1, 1, k)))


def embedding(n: int = 4):
    rng = np.random.default_rng(0)
    return plotting.embedding(rng.standard_normal((60, 2)), np.arange(60) % n, CLASSES[:n], "t-SNE")


def training_curves(epochs: int = 350):
    t = np.arange(epochs)
    history = {
        "train_loss": np.exp(-t / 90),
        "valid_loss": 0.4 + np.exp(-t / 60),
        "valid_accuracy": 0.8 - 0.5 * np.exp(-t / 60),
    }
    return plotting.training_curves(history, best_epoch=epochs // 2 + 1)


def confusion(n: int = 4, count: int = 60):
    return plotting.confusion(np.full((n, n), count // 10) + np.diag([count] * n), CLASSES[:n])


def reliability_diagram(n: int = 6):
    confidence = np.linspace(0.3, 0.97, n)
    accuracy = confidence**2
    interval = (accuracy - 0.05, np.minimum(accuracy + 0.05, 1))
    return plotting.reliability_diagram(np.arange(n) * 25 + 4, confidence, accuracy, interval, error=0.1, chance=0.25)


def subjects(n: int = 9, labels: int = 3):
    rng = np.random.default_rng(0)
    scores = {f"model {i}": {s: rng.uniform(0.3, 0.9, 10) for s in range(1, n + 1)} for i in range(labels)}
    return plotting.subjects(scores, chance=0.25)


def curves(labels: int = 4):
    theta = np.arange(1, 9) / 4
    series = {f"model {i}": (60 + i + theta, 58 + i + theta, 62 + i + theta) for i in range(labels)}
    return plotting.curves(theta, series, {"model 0": 66 + theta}, xlabel="power θ", ylabel="accuracy (%)")


def deletion_insertion(labels: int = 3):
    x = np.linspace(0, 1, 21)
    return plotting.deletion_insertion(x, {f"ranking {i}": (np.exp(-(i + 1) * x), x) for i in range(labels)})


ALL = {
    make.__name__: make
    for make in (
        heatmaps,
        topomaps,
        channel_bars,
        patterns,
        attention_maps,
        condition_histograms,
        spectra,
        metric_spectrum,
        embedding,
        training_curves,
        confusion,
        reliability_diagram,
        subjects,
        curves,
        deletion_insertion,
    )
}


@cache
def picture(name: str) -> Figure:
    """The example of a picture; made once, for tests that only look at it."""
    return ALL[name]()
