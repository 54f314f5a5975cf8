"""How classes differ: rhythms that desynchronise, steady-state responses, and evoked potentials."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

from gbwatt.data.sets.mamem import FREQUENCIES
from gbwatt.data.simulated.paradigms import Planted, Stimulation
from gbwatt.data.simulated.sources import coloured, frequencies, in_time, peak

Array = NDArray[Any]

# ---- motor imagery

#: Area of :data:`gbwatt.data.simulated.sets.MI` that desynchronises for each class: the hand's is on the other side.
#: One for each, so that a decoder can spare none and an explanation of it has no reason to miss one.  Tongue's is on
#: the left; the one on the right has its rhythm, and keeps it.
MOTOR_AREAS = (1, 0, 2, 3)
_N_MOTOR_AREAS = 5
_MU, _BETA = 5.0, 2.5  # µV at rest
_DEPTH = 1.1  # share of amplitude that is lost in an easy recording
_ONSET, _RISE, _END = 0.45, 0.06, 4.0  # seconds after the cue


def desynchronise(stimulation: Stimulation) -> tuple[Array, tuple[Planted, ...]]:
    """Mu and beta rhythms at all areas, less of them at the areas of the class while it is imagined."""
    s, person = stimulation, stimulation.person
    n, n_areas = len(s.labels), _N_MOTOR_AREAS
    depth = _loss(s)  # (n, n_areas)
    onset = s.rng.normal(_ONSET, 0.08, n)
    course = scipy.special.expit((s.times - onset[:, None]) / _RISE).astype(np.float32)
    signals = np.zeros((n, n_areas, len(s.times)), np.float32)
    for centre, width, level in ((person.mu, 1.0, _MU), (person.beta, 2.0, _BETA)):
        waves = _rhythm(s, n_areas, centre, width)
        waves *= level * np.exp(s.rng.normal(0.0, 0.25, (n, n_areas, 1))).astype(np.float32)
        signals += waves
    signals *= 1 - depth[..., None] * course[:, None]
    return signals, tuple(
        Planted(label, "desynchronisation", area, band, (_ONSET, _END))
        for label, area in enumerate(MOTOR_AREAS)
        for band in ((person.mu - 2.0, person.mu + 2.0), (person.beta - 4.0, person.beta + 4.0))
    )


def _loss(s: Stimulation) -> Array:
    """Share of the rhythm (n, n_areas) that each area loses in each stretch; imagery succeeds now more, now less."""
    active = np.zeros((len(MOTOR_AREAS), _N_MOTOR_AREAS))
    active[np.arange(len(MOTOR_AREAS)), MOTOR_AREAS] = s.person.responses[: len(MOTOR_AREAS)]
    success = s.rng.normal(1.0, 0.3, len(s.labels)).clip(0.0, 1.6)
    loss = _DEPTH * s.ease * s.person.strength * success[:, None] * active[s.labels]
    return np.asarray(loss.clip(0.0, 0.95), np.float32)


def _rhythm(s: Stimulation, n_areas: int, centre: float, width: float) -> Array:
    """Noise (n, n_areas, n_times) of standard deviation one with a peak in its spectrum."""
    sfreq = 1 / (s.times[1] - s.times[0])
    shape = peak(frequencies(len(s.times), sfreq), centre, width)
    return in_time(coloured(s.rng, (len(s.labels), n_areas), shape, len(s.times)), len(s.times))


# ---- steady-state visual evoked potentials

_SSVEP = 5.0  # µV in an easy recording
_HARMONICS = (1.0, 0.45, 0.2)


def flicker(stimulation: Stimulation) -> tuple[Array, tuple[Planted, ...]]:
    """A sine with harmonics, at the frequency looked at; its phase is free, and goes on through the stretch."""
    s, n = stimulation, len(stimulation.labels)
    size = _SSVEP * s.ease * s.person.strength * s.person.responses[s.labels] * np.exp(s.rng.normal(0.0, 0.3, n))
    start = s.rng.uniform(0, 2 * np.pi, n)
    lags = s.rng.uniform(0, 2 * np.pi, (len(FREQUENCIES), len(_HARMONICS)))[
        s.labels
    ]  # of harmonics, fixed for a subject
    phase = 2 * np.pi * np.array(FREQUENCIES)[s.labels, None] * s.times + start[:, None]
    waves = sum(a * np.sin((k + 1) * phase + lags[:, [k]]) for k, a in enumerate(_HARMONICS))
    return (size[:, None] * waves)[:, None], tuple(
        Planted(label, "oscillation", 0, (f - 0.5, f + 0.5), (0.0, 1.0)) for label, f in enumerate(FREQUENCIES)
    )


# ---- error potentials

#: Waves after an error: area, latency and width (standard deviation) in seconds, µV in an easy recording.
_ERROR = ((0, 0.28, 0.04, -22.0), (1, 0.45, 0.07, 22.0))
#: Waves after every feedback.
_ALWAYS = ((2, 0.11, 0.02, -4.0), (2, 0.19, 0.03, 5.0), (3, 0.36, 0.08, 4.0))


def evoke(stimulation: Stimulation) -> tuple[Array, tuple[Planted, ...]]:
    """A visual response to every feedback; after errors (class 0) a negativity at FCz and a positivity behind it."""
    s, n = stimulation, len(stimulation.labels)
    signals = np.zeros((n, 4, len(s.times)))
    size = s.ease * s.person.strength * s.person.responses[0] * (s.labels == 0)
    for waves, scale in ((_ALWAYS, np.ones(n)), (_ERROR, size)):
        for area, latency, width, amplitude in waves:
            when = s.rng.normal(latency + s.person.delay, 0.015, n)
            amount = amplitude * scale * s.rng.normal(1.0, 0.3, n)
            signals[:, area] += amount[:, None] * np.exp(-0.5 * ((s.times - when[:, None]) / width) ** 2)
    return signals, tuple(
        Planted(0, "deflection", area, None, (centre - 2 * width, centre + 2 * width), -1 if amplitude < 0 else 1)
        for area, latency, width, amplitude in _ERROR
        for centre in (latency + s.person.delay,)
    )
