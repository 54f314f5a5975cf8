"""The simulated data sets: their montages, sessions and sources, and how their classes differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

from gbwatt.data.datasets import Dataset
from gbwatt.data.sets import bcic2a, ern, mamem
from gbwatt.data.simulated.sources import Person, coloured, frequencies, in_time, peak

Array = NDArray[Any]


@dataclass(frozen=True)
class Area:
    """Location of a source: beneath the centre of some electrodes.

    Attributes
    ----------
    beneath : tuple of str
        Electrodes of the montage, which need not be recorded.
    group : tuple of str
        Recorded electrodes near the source.
    radius : float
        Distance from the centre of the head, relative to its radius; the inner surface of the skull is at 0.9.
    """

    beneath: tuple[str, ...]
    group: tuple[str, ...]
    radius: float = 0.75


@dataclass(frozen=True)
class Stimulation:
    """Input of a function that simulates class effects.

    Attributes
    ----------
    labels : array (n,)
        Class of each segment of recording.
    times : array (n_times,)
        Seconds after the event.
    person : Person
    ease : float
        One minus the difficulty; effects are proportional to it.
    rng : numpy Generator
    """

    labels: Array
    times: Array
    person: Person
    ease: float
    rng: np.random.Generator


@dataclass(frozen=True)
class Planted:
    """An effect of a class in one of the areas; ``sign`` is that of a deflection."""

    label: int
    kind: str
    area: int
    band: tuple[float, float] | None
    window: tuple[float, float]
    sign: int = 1


@dataclass(frozen=True)
class Paradigm:
    """A simulated data set: montage, sessions, sources and class effects.

    Attributes
    ----------
    name, title : str
    number : int
        Part of the random seed, so that the data sets have different noise.
    like : Dataset
        The real data set, whose subjects, shapes, sessions and protocol are used.
    sessions, class_names, ch_names : tuples of str
    reference : tuple of str
        Electrodes whose mean is subtracted.
    sfreq : float
    n_times : int
    tmin : float
    band : (low, high)
        Pass band of the recordings in Hz.
    repeats : int
        Number of trials that are cut from each segment of recording.
    order : callable
        Function of the number of a session, the fraction of errors and a random generator that returns the class and
        the run of each segment.
    areas : tuple of Area
    plant : callable
        Function that simulates the effects: returns signals (n, n_areas, n_times) in µV at the nearest electrode, and
        their description.
    revision : int
        Increased whenever the recordings of a subject change.
    """

    name: str
    number: int
    title: str
    like: Dataset
    sessions: tuple[str, ...]
    class_names: tuple[str, ...]
    ch_names: tuple[str, ...]
    reference: tuple[str, ...]
    sfreq: float
    n_times: int
    tmin: float
    band: tuple[float, float]
    repeats: int
    order: Callable[[int, float, np.random.Generator], tuple[Array, Array]]
    areas: tuple[Area, ...]
    plant: Callable[[Stimulation], tuple[Array, tuple[Planted, ...]]]
    revision: int = 1


# ---- motor imagery

#: Area of :data:`MI` that desynchronises for each class; those of the hands are contralateral.  Each class has one
#: area, so that decoders need every area and explanations should find it.  The area of the tongue is on the left; the
#: rhythm of the corresponding area on the right does not change.
MOTOR_AREAS = (1, 0, 2, 3)
_N_MOTOR_AREAS = 5
_MU, _BETA = 5.0, 2.5  # µV at rest
_DEPTH = 1.1  # relative decrease of amplitude at difficulty 0
_ONSET, _RISE, _END = 0.45, 0.06, 4.0  # seconds after the cue


def desynchronise(stimulation: Stimulation) -> tuple[Array, tuple[Planted, ...]]:
    """Simulate mu and beta rhythms in all areas, which decrease in the area of the class during imagery."""
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
    """Draw the relative decrease of the rhythm (n, n_areas) in each segment; the success of imagery varies."""
    active = np.zeros((len(MOTOR_AREAS), _N_MOTOR_AREAS))
    active[np.arange(len(MOTOR_AREAS)), MOTOR_AREAS] = s.person.responses[: len(MOTOR_AREAS)]
    success = s.rng.normal(1.0, 0.3, len(s.labels)).clip(0.0, 1.6)
    loss = _DEPTH * s.ease * s.person.strength * success[:, None] * active[s.labels]
    return np.asarray(loss.clip(0.0, 0.95), np.float32)


def _rhythm(s: Stimulation, n_areas: int, centre: float, width: float) -> Array:
    """Draw noise (n, n_areas, n_times) of standard deviation one with a peak in its spectrum."""
    sfreq = 1 / (s.times[1] - s.times[0])
    shape = peak(frequencies(len(s.times), sfreq), centre, width)
    return in_time(coloured(s.rng, (len(s.labels), n_areas), shape, len(s.times)), len(s.times))


# ---- steady-state visual evoked potentials

_SSVEP = 5.0  # µV at difficulty 0
_HARMONICS = (1.0, 0.45, 0.2)


def flicker(stimulation: Stimulation) -> tuple[Array, tuple[Planted, ...]]:
    """Simulate a sine with harmonics at the frequency of the class, with random and continuous phase."""
    s, n = stimulation, len(stimulation.labels)
    size = _SSVEP * s.ease * s.person.strength * s.person.responses[s.labels] * np.exp(s.rng.normal(0.0, 0.3, n))
    start = s.rng.uniform(0, 2 * np.pi, n)
    lags = s.rng.uniform(0, 2 * np.pi, (len(mamem.FREQUENCIES), len(_HARMONICS)))[s.labels]  # fixed for a subject
    phase = 2 * np.pi * np.array(mamem.FREQUENCIES)[s.labels, None] * s.times + start[:, None]
    waves = sum(a * np.sin((k + 1) * phase + lags[:, [k]]) for k, a in enumerate(_HARMONICS))
    return (size[:, None] * waves)[:, None], tuple(
        Planted(label, "oscillation", 0, (f - 0.5, f + 0.5), (0.0, 1.0)) for label, f in enumerate(mamem.FREQUENCIES)
    )


# ---- error potentials

#: Waves after an error: area, latency and width (standard deviation) in seconds, amplitude in µV at difficulty 0.
_ERROR = ((0, 0.28, 0.04, -22.0), (1, 0.45, 0.07, 22.0))
#: Waves after every feedback.
_ALWAYS = ((2, 0.11, 0.02, -4.0), (2, 0.19, 0.03, 5.0), (3, 0.36, 0.08, 4.0))


def evoke(stimulation: Stimulation) -> tuple[Array, tuple[Planted, ...]]:
    """Simulate a visual response to every feedback, and after errors (class 0) a negativity and a positivity."""
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


# ---- the data sets

#: Class of each stimulation of MAMEM-SSVEP-II, the same in all sessions.
_FLICKER_ORDER = (3, 1, 2, 4, 0, 1, 4, 3, 1, 2, 0, 4, 3, 2, 1, 3, 0, 1, 4, 2, 3, 0, 2, 0, 2)


def _imagery_order(_session: int, _errors: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw six runs of 48 trials, twelve of each class."""
    runs = [rng.permutation(np.repeat(np.arange(4), 12)) for _ in range(6)]
    return np.concatenate(runs), np.repeat([str(number) for number in range(1, 7)], 48)


def _flicker_order(session: int, _errors: float, _rng: np.random.Generator) -> tuple[Array, Array]:
    return np.array(_FLICKER_ORDER), np.full(len(_FLICKER_ORDER), mamem.SESSIONS[session])


def _feedback_order(session: int, errors: float, rng: np.random.Generator) -> tuple[Array, Array]:
    name, n = tuple(ern.FEEDBACKS.items())[session]
    labels = rng.permutation(np.arange(n) >= round(errors * n)).astype(int)
    return labels, np.full(n, name)


MI = Paradigm(
    name="simulated-mi",
    number=1,
    title="Simulated motor imagery",
    like=bcic2a.DATASET,
    sessions=("T", "E"),
    class_names=bcic2a.CLASSES,
    ch_names=bcic2a.CHANNELS,
    reference=("M1",),
    sfreq=125.0,
    n_times=438,
    tmin=bcic2a.PAPER_WINDOW[0],
    band=(4.0, 38.0),
    repeats=1,
    order=_imagery_order,
    areas=(
        Area(("C3",), ("C3", "C1", "C5", "FC3", "CP3")),
        Area(("C4",), ("C4", "C2", "C6", "FC4", "CP4")),
        Area(("Cz",), ("Cz", "C1", "C2", "FCz", "CPz")),
        Area(("C5", "C5", "T7"), ("C5", "C3", "FC3"), radius=0.72),
        Area(("C6", "C6", "T8"), ("C6", "C4", "FC4"), radius=0.72),
    ),
    plant=desynchronise,
    revision=2,
)

SSVEP = Paradigm(
    name="simulated-ssvep",
    number=2,
    title="Simulated steady-state visual evoked potentials",
    like=mamem.DATASET,
    sessions=mamem.SESSIONS,
    class_names=mamem.CLASS_NAMES,
    ch_names=tuple(mamem.ELECTRODES),
    reference=("Cz",),
    sfreq=125.0,
    n_times=125,
    tmin=0.0,
    band=(1.0, 40.0),
    repeats=mamem.SEGMENTS,
    order=_flicker_order,
    areas=(Area(("Oz",), ("Oz", "O1", "O2"), radius=0.78),),
    plant=flicker,
)

ERN = Paradigm(
    name="simulated-ern",
    number=3,
    title="Simulated error potentials",
    like=ern.DATASET,
    sessions=tuple(ern.FEEDBACKS),
    class_names=ern.CLASS_NAMES,
    ch_names=ern.CHANNELS,
    reference=("M1", "M2"),
    sfreq=128.0,
    n_times=160,
    tmin=0.0,
    band=(1.0, 40.0),
    repeats=1,
    order=_feedback_order,
    areas=(
        Area(("FCz",), ("FCz", "FC1", "FC2", "Fz", "Cz"), radius=0.7),
        Area(("CPz", "Cz"), ("Cz", "CPz", "C1", "C2", "CP1", "CP2", "Pz"), radius=0.65),
        Area(("O1", "O2"), ("O1", "O2", "POz"), radius=0.7),
        Area(("Pz",), ("Pz", "P1", "P2", "CPz", "POz"), radius=0.6),
    ),
    plant=evoke,
)

#: The simulated data sets by name.
SETS: Mapping[str, Paradigm] = MappingProxyType({paradigm.name: paradigm for paradigm in (MI, SSVEP, ERN)})
