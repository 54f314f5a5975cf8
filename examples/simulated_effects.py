"""Draw the simulated class effects, and the class differences measured in the recordings, of each simulated data set.

Run it with ``python examples/simulated_effects.py FOLDER``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import mne
import numpy as np
import scipy.signal
from matplotlib.figure import Figure

from gbwatt.data.montage import montage_name
from gbwatt.data.simulated import simulate
from gbwatt.data.trials import Effect, Trials


def topomap(values: Any, trials: Trials, axes: Any, title: str) -> None:
    info = mne.create_info(list(trials.ch_names), trials.sfreq, "eeg")
    info.set_montage(montage_name(), verbose="ERROR")
    limit = float(np.abs(values).max())
    mne.viz.plot_topomap(values, info, axes=axes, show=False, vlim=(-limit, limit), extrapolate="local")
    axes.set_title(title, fontsize=9)


def spectra(trials: Trials) -> tuple[Any, Any]:
    """Return frequencies (n_freqs,) and power in dB (n_classes, n_chans, n_freqs)."""
    f, power = scipy.signal.welch(trials.X, trials.sfreq, nperseg=int(trials.sfreq), axis=-1)
    return f, np.stack([10 * np.log10(power[trials.y == c].mean(axis=0)) for c in range(len(trials.class_names))])


def first_effect(trials: Trials, name: str) -> Effect:
    assert trials.truth is not None
    return trials.truth.effects[name][0]


def in_band(f: Any, band: tuple[float, float] | None) -> Any:
    assert band is not None
    return (f >= band[0]) & (f <= band[1])


def by_class(trials: Trials) -> Figure:
    """Draw simulated and measured topographies and spectra of classes that differ in their spectrum."""
    assert trials.truth is not None
    f, power = spectra(trials)
    n = len(trials.class_names)
    figure, axes = plt.subplots(3, n, figsize=(3 * n, 8), layout="constrained")
    for c, name in enumerate(trials.class_names):
        effect = first_effect(trials, name)
        others = power[np.arange(n) != c].mean(axis=0)
        simulated = np.sum([e.topography for e in trials.truth.effects[name] if e.band == effect.band], axis=0)
        topomap(simulated, trials, axes[0, c], f"{name}\nsimulated")
        measured = (power[c] - others)[:, in_band(f, effect.band)].mean(axis=1)
        low, high = effect.band or (0, 0)
        topomap(measured, trials, axes[1, c], f"measured, {low:.1f} to {high:.1f} Hz, dB")
        best = trials.ch_names.index(effect.channels[0])
        axes[2, c].plot(f, power[c, best], f, others[best])
        axes[2, c].axvspan(low, high, alpha=0.15)
        axes[2, c].set(xlim=(2, 60), ylim=(-35, 15), xlabel="Hz", ylabel="dB re 1 µV²/Hz", title=effect.channels[0])
        axes[2, c].legend([name, "others"], fontsize=7)
    return figure


def by_time(trials: Trials) -> Figure:
    """Draw simulated and measured topographies of error potentials, and their mean time course."""
    assert trials.truth is not None
    mean = np.stack([trials.X[trials.y == c].mean(axis=0) for c in (0, 1)])
    effects = trials.truth.effects["error"]
    figure, axes = plt.subplots(len(effects), 3, figsize=(12, 3.5 * len(effects)), layout="constrained")
    for row, effect in zip(axes, effects, strict=True):
        start, end = effect.window
        inside = (trials.times >= start) & (trials.times < end)
        topomap(np.array(effect.topography), trials, row[0], "simulated")
        topomap(
            (mean[0] - mean[1])[:, inside].mean(axis=1), trials, row[1], f"measured, {start:.2f} to {end:.2f} s, µV"
        )
        best = trials.ch_names.index(effect.channels[0])
        row[2].plot(trials.times, mean[:, best].T, trials.times, mean[0, best] - mean[1, best], "k--")
        row[2].axvspan(start, end, alpha=0.15)
        row[2].set(xlabel="s after feedback", ylabel="µV", title=effect.channels[0])
        row[2].legend([*trials.class_names, "difference"], fontsize=7)
    return figure


def traces(trials: Trials, n: int = 4) -> Figure:
    """Draw a few trials."""
    figure, axes = plt.subplots(1, n, figsize=(4 * n, 7), sharey=True, layout="constrained")
    step = 6 * float(trials.X.std())
    for number, axis in enumerate(axes):
        axis.plot(trials.times, trials.X[number].T - step * np.arange(trials.shape[1]), "k", lw=0.5)
        axis.set(xlabel="s", title=trials.labels[number])
    axes[0].set_yticks(-step * np.arange(trials.shape[1]), trials.ch_names, fontsize=6)
    axes[0].set_ylabel(f"{step:.0f} µV between lines")
    return figure


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, subject, draw in (
        ("simulated-mi", 1, by_class),
        ("simulated-ssvep", 1, by_class),
        ("simulated-ern", 2, by_time),
    ):
        trials = simulate(name, subject)
        for kind, figure in (("effects", draw(trials)), ("traces", traces(trials))):
            figure.savefig(folder / f"{name}-{kind}.png", dpi=100)
            plt.close(figure)
            print(folder / f"{name}-{kind}.png")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/simulated_effects.py FOLDER")
    main(Path(sys.argv[1]))
