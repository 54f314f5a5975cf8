"""What the saved files of this folder were made of."""

from __future__ import annotations

import numpy as np

from gbwatt import EEGDecoder, GBWAttClassifier
from gbwatt.data import load
from tests.golden.program import DATA

SIZES = {"n_spatial": 6, "n_temporal": 5, "kernel": 9}
RECORDINGS = DATA / "recordings.npz"
SAMPLES = DATA / "simulated.npy"
ASKED = slice(0, 50, 3)  # trials whose probabilities are kept
TRAIN = (
    *("train", "--dataset", "simulated-ssvep", "--subject", 1, "--max-epochs", 2, "--seed", 3, "--lr", 0.01),
    *("--option", "n_spatial=6", "--option", "n_temporal=5", "--option", "kernel=9", "--option", "k=4"),
)


def write_recordings():
    """Trials of two classes in whole numbers, so that sums over them are the same on every machine."""
    place = np.arange(48 * 3 * 64, dtype=np.int64)
    noise = (place * 1103515245 + 12345) % 2**31
    x = (noise // 65536 % 41 - 20).reshape(48, 3, 64)
    y = np.tile(["left", "right"], 24)
    x[y == "left", 0] *= 3
    subject = np.repeat([1, 2], 24)
    np.savez(RECORDINGS, X=x.astype(np.float32), y=y, sfreq=100, ch_names=["C3", "Cz", "C4"], subject=subject)


def write_simulated():
    """Samples of simulated trials, in hundredths of a microvolt: other processors simulate others."""
    x = load("simulated-ssvep", 1).X[:50]
    np.save(SAMPLES, np.round(100 * x).astype(np.int16))


def simulated():
    """Simulated trials, with all that is known of them, and the samples that were written."""
    return load("simulated-ssvep", 1)[:50].replace(X=np.load(SAMPLES).astype(np.float32) / 100)


def classifier(trials):
    """Trained on the first 30 trials, validated on the next 10."""
    decoder = GBWAttClassifier(
        model_options=SIZES, k=4, n_segments=3, lr=0.01, max_epochs=4, seed=1, validation=trials[30:40]
    )
    return decoder.fit(trials[:30])


def matt(trials):
    options = {**SIZES, "n_segments": 2, "k": 4}
    return EEGDecoder("matt", model_options=options, lr=0.01, max_epochs=3, validation=0.25).fit(trials)


def continued(folder, **changes):
    """A classifier that keeps its state in a folder, and goes on from there, with the settings of that time."""
    settings = {"model_options": SIZES, "k": 4, "n_segments": 2, "lr": 0.01, "batch_size": 8, "max_epochs": 6}
    return GBWAttClassifier(
        **{"paradigm": None, "validation": 0.2, **settings, **changes},
        checkpoint=folder,
    )


def describe(decoder, trials):
    """What a loaded model says of trials."""
    return {
        "probabilities": decoder.predict_proba(trials[ASKED]).tolist(),
        "used_for": decoder.used_for(trials).tolist(),
        "classes": decoder.classes_.tolist(),
        "class_names": list(decoder.class_names_),
        "best_epoch": decoder.best_epoch_,
        "history": decoder.history_,
        "parameters": {name: repr(value) for name, value in decoder.get_params(deep=False).items()},
    }
