"""Whether samples look like EEG: amplitudes in their unit, channels against each other, sampling rate, axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gbwatt.data._reading import warn_of
from gbwatt.data.trials import UNITS, Trials

#: Typical standard deviation within a trial, in µV.  EEG has 1 to 100; unfiltered recordings drift by some mV, filtered
#: ones in a narrow band go down to tenths.
TYPICAL = (0.1, 1e4)

#: The same of a single channel: electrodes without contact pick up tens of mV, amplifiers saturate below 1 V, and the
#: noise of an amplifier with shorted inputs is some tenths of a µV.
SINGLE = (1e-3, 1e5)

#: A channel and the median of all differ by less, whatever is wrong with an electrode; wrong units differ by more.
RATIO = 1e3

#: Sampling rates in Hz.
RATES = (1.0, 1e5)

_MOST = 200  # trials that are looked at


def check_trials(where: str | Path, trials: Trials, stacklevel: int = 2) -> None:
    """Warn if samples do not look like EEG in their unit; channels that do not change at all are passed over."""
    problems = [*_amplitudes(trials), *_axes(trials)]
    if problems:
        warn_of(where, "; ".join(problems), stacklevel + 1)


def _amplitudes(trials: Trials) -> list[str]:
    n = len(trials)
    if not n:
        return []
    rows = np.unique(np.linspace(0, n - 1, min(n, _MOST)).astype(int))
    spread = np.median(trials.X[rows].std(axis=2, dtype=np.float64), axis=0)  # (n_chans,)
    spread[spread == 0] = np.nan  # flat
    if np.isnan(spread).all():
        return []
    typical = float(np.nanmedian(spread))
    problems = _absolute(trials, spread, typical)
    odd = (spread > RATIO * typical) | (spread < typical / RATIO)
    if odd.any() and trials.shape[1] > 2:
        listed = ", ".join(f"{trials.ch_names[c]} ({spread[c] / typical:.2g} times)" for c in np.flatnonzero(odd)[:6])
        problems.append(
            f"{odd.sum()} of {len(spread)} channels differ in amplitude from the others by a factor of {RATIO:g} or "
            f"more: {listed}; are their units right? Correct them, or leave these channels out"
        )
    return problems


def _absolute(trials: Trials, spread: np.ndarray, typical: float) -> list[str]:
    if trials.unit not in UNITS:
        return []
    microvolts = UNITS[trials.unit] / UNITS["µV"]
    if not TYPICAL[0] < typical * microvolts < TYPICAL[1]:
        return [
            f"channels vary by {typical * UNITS[trials.unit]:.1e} V, which EEG hardly does; is the unit "
            f"{trials.unit!r} right?"
        ]
    wrong = (spread * microvolts < SINGLE[0]) | (spread * microvolts > SINGLE[1])
    if not wrong.any():
        return []
    listed = ", ".join(f"{trials.ch_names[c]} ({spread[c] * microvolts:.1e} µV)" for c in np.flatnonzero(wrong)[:6])
    return [f"amplitudes that EEG does not have: {listed}; correct their unit, or leave these channels out"]


def _axes(trials: Trials) -> list[str]:
    _, n_chans, n_times = trials.shape
    problems = []
    if not RATES[0] <= trials.sfreq <= RATES[1]:
        problems.append(f"a sampling rate of {trials.sfreq:g} Hz, which EEG does not have; is sfreq in Hz?")
    if n_chans > n_times:
        problems.append(f"{n_chans} channels and {n_times} samples; are the axes (n, n_chans, n_times)?")
    return problems
