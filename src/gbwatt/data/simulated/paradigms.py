"""The simulated head, person and background activity, and the simulated paradigms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.fft
import scipy.special
from numpy.typing import NDArray

from gbwatt.data.datasets import Dataset
from gbwatt.data.montage import montage_name
from gbwatt.data.sets import bcic2a, ern, mamem

Array = NDArray[Any]


# ---- the head

# MNE-Python computes these numbers from its 10-05 montage, in single precision and by an optimisation that ends at
# different points on different processors.  They are fixed here so that recordings do not depend on the processor.
#: Rotation and translation (m) from the coordinates of the montage to those of the head.
_ROTATION = (
    (0.9999936819076538, 0.003551873844116926, 0.00020204810425639153),
    (-0.003557568648830056, 0.9983891248703003, 0.0566258579492569),
    (-5.947367753833532e-07, -0.05662621930241585, 0.9983954429626465),
)
_TRANSLATION = (-0.0017627249525299085, 0.03109435042779479, 0.039597249076132754)
#: Centre and radius (m) of the sphere that fits the electrodes best.
_CENTRE, _RADIUS = (-0.0010011737307565646, 0.01482242024252519, 0.03935408410293495), 0.09859813854151302
#: Relative radii and conductivities (S/m) of brain, cerebrospinal fluid, skull and scalp.
_LAYERS = {"relative_radii": (0.90, 0.92, 0.97, 1.0), "sigmas": (0.33, 1.0, 0.004, 0.33)}
#: Eccentricities and magnitudes of the three dipoles in a homogeneous sphere that replace one in these layers [1]_.
_SERIES_MU = (0.9450681269849635, 0.6679974145042571, -0.2915794177167607)
_SERIES_LAMBDA = (0.41332072741676434, 2.0729172527508317, -0.03057251753663591)


@dataclass(frozen=True, eq=False)
class Head:
    """A head of four spherical layers with electrodes on it.

    Attributes
    ----------
    directions : mapping from str to array (3,)
        Unit vectors from the centre of the sphere to each electrode: x to the right, y to the front, z up.
    sphere : mne.bem.ConductorModel
    info : mne.Info
        All electrodes of the montage.

    References
    ----------
    .. [1] P. Berg and M. Scherg, "A fast method for forward computation of multiple-shell spherical head models",
       Electroencephalography and Clinical Neurophysiology 90(1), 1994.
    """

    directions: Mapping[str, Array]
    sphere: Any
    info: Any

    def leads(
        self, ch_names: tuple[str, ...], reference: tuple[str, ...], positions: Array, orientations: Array
    ) -> Array:
        """Voltage (n_chans, n) between each electrode and the reference, for dipoles of unit moment.

        Positions (n, 3) are relative to the centre of the head, in units of its radius; their length must be below 0.9,
        the inner surface of the skull.  Orientations (n, 3) are unit vectors.
        """
        import mne

        names = list(dict.fromkeys((*ch_names, *reference)))
        info = mne.pick_info(self.info, [self.info["ch_names"].index(name) for name in names])
        places, n = self.sphere["r0"] + self.sphere.radius * positions, len(positions)
        dipoles = mne.Dipole(np.zeros(n), places, np.ones(n), orientations, np.ones(n))
        with mne.utils.use_log_level("ERROR"):
            solution, _ = mne.make_forward_dipole(dipoles, self.sphere, info)
        potential: Array = solution["sol"]["data"]
        zero: Array = potential[[names.index(name) for name in reference]].mean(axis=0)
        return np.asarray(potential[: len(ch_names)] - zero)


@lru_cache(maxsize=1)
def head() -> Head:
    """Return the head with the electrodes of the 10-05 montage, which is created once per process."""
    import mne

    with mne.utils.use_log_level("ERROR"):
        in_montage = mne.channels.make_standard_montage(montage_name()).get_positions()["ch_pos"]
        positions = np.stack(list(in_montage.values())) @ np.transpose(_ROTATION) + _TRANSLATION
        montage = mne.channels.make_dig_montage(dict(zip(in_montage, positions, strict=True)), coord_frame="head")
        info = mne.create_info(list(in_montage), 1.0, "eeg").set_montage(montage)
        sphere = mne.make_sphere_model(_CENTRE, _RADIUS, **_LAYERS)
    sphere["mu"], sphere["lambda"] = np.array(_SERIES_MU), np.array(_SERIES_LAMBDA)
    directions = unit(positions - _CENTRE)
    return Head(dict(zip(in_montage, directions, strict=True)), sphere, info)


def unit(vectors: Array) -> Array:
    """Scale vectors (..., 3) to length one."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


# ---- the person


@dataclass(frozen=True)
class Person:
    """Characteristics of a simulated subject.

    Attributes
    ----------
    strength : float
        Relative size of all class effects.
    responses : array (n_classes,)
        Relative size of the effect of each class.
    level : float
        Standard deviation of the background in µV, after the band-pass.
    slope : float
        Exponent of the background's power, f^-slope.
    alpha, alpha_level : float
        Peak of the posterior rhythm in Hz, and its standard deviation in µV.
    mu, beta : float
        Peaks of the motor rhythms in Hz.
    delay : float
        Additional latency of evoked responses in seconds.
    blinks : float
        Blinks per second.
    errors : float
        Fraction of feedbacks that are errors.
    """

    strength: float
    responses: Array
    level: float
    slope: float
    alpha: float
    alpha_level: float
    mu: float
    beta: float
    delay: float
    blinks: float
    errors: float


def draw_person(rng: np.random.Generator, n_classes: int) -> Person:
    """Draw the characteristics of a random subject."""
    alpha = float(np.clip(rng.normal(10.0, 0.7), 8.3, 11.7))
    return Person(
        strength=float(np.exp(rng.normal(0.0, 0.2))),
        responses=np.exp(rng.normal(0.0, 0.12, n_classes)),
        level=float(7.5 * np.exp(rng.normal(0.0, 0.15))),
        slope=float(rng.normal(1.4, 0.15)),
        alpha=alpha,
        alpha_level=float(4.0 * np.exp(rng.normal(0.0, 0.35))),
        mu=float(alpha + rng.normal(0.8, 0.4)),
        beta=float(rng.normal(21.0, 1.2)),
        delay=float(rng.normal(0.0, 0.012)),
        blinks=float(rng.uniform(0.02, 0.08)),
        errors=float(np.clip(rng.normal(0.3, 0.03), 0.2, 0.4)),
    )


MAINS = 50.0  # Hz; all three real data sets were recorded in Europe


# ---- spectra of noise and rhythms, and the filter of the recordings


def frequencies(n_times: int, sfreq: float) -> Array:
    """Return the frequencies in Hz (n_times // 2 + 1,) of the spectrum of ``n_times`` samples."""
    return np.fft.rfftfreq(n_times, 1 / sfreq)


def coloured(rng: np.random.Generator, shape: tuple[int, ...], amplitude: Array, n_times: int) -> Array:
    """Draw spectra (*shape, n_freqs) of Gaussian noise.

    ``amplitude`` (n_freqs,) is the shape of the amplitude spectrum; the samples have a standard deviation of one.
    """
    parts = rng.standard_normal((*shape, len(amplitude), 2), dtype=np.float32)
    scale = n_times / 2 / np.sqrt((amplitude**2).sum())
    parts *= (scale * amplitude).astype(np.float32)[:, None]
    return parts.view(np.complex64)[..., 0]


def in_time(spectra: Array, n_times: int) -> Array:
    """Transform spectra (..., n_freqs) to samples (..., n_times)."""
    return np.asarray(scipy.fft.irfft(spectra, n_times, axis=-1))


def in_frequency(signals: Array) -> Array:
    """Transform samples (..., n_times) to spectra (..., n_freqs)."""
    return np.asarray(scipy.fft.rfft(signals.astype(np.float32), axis=-1))


def peak(f: Array, centre: float, width: float) -> Array:
    """Return the amplitude spectrum of a rhythm at frequencies ``f``: a Gaussian around ``centre``, in Hz."""
    return np.asarray(np.exp(-0.5 * ((f - centre) / width) ** 2))


def slope(f: Array, exponent: float) -> Array:
    """Return the amplitude spectrum of noise with the power f^-exponent; constant below 0.5 Hz, and zero at 0 Hz."""
    return np.where(f > 0, f.clip(0.5) ** (-exponent / 2), 0.0)


def band_pass(f: Array, band: tuple[float, float]) -> Array:
    """Return the gain at frequencies ``f`` of the filter of the simulated recordings.

    It is a Butterworth band-pass filter of order 4, applied forwards and backwards.
    """
    low, high = band
    return np.asarray(1 / (1 + (low / f.clip(1e-3)) ** 8) / (1 + (f / high) ** 8))


# ---- ongoing activity

#: Electrodes above the sources of the posterior rhythm.
ALPHA_AREAS = ("Pz", "PO3", "PO4", "POz", "PO7", "PO8")


def draw_background_dipoles(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Draw positions and orientations (n, 3) of dipoles in the whole brain except its base."""
    height, angle = rng.uniform(-0.4, 1.0, n), rng.uniform(0, 2 * np.pi, n)
    ring = np.sqrt(1 - height**2)
    directions = np.stack([ring * np.cos(angle), ring * np.sin(angle), height], axis=1)
    return rng.uniform(0.5, 0.8, (n, 1)) * directions, unit(rng.standard_normal((n, 3)))


def ongoing(rng: np.random.Generator, leads: Array, amplitude: Array, n_times: int) -> Array:
    """Draw spectra (n, n_chans, n_freqs) of background activity at the electrodes.

    ``leads`` (n, n_chans, n_sources) are the weights of its sources, and ``amplitude`` is their amplitude
    spectrum.  The strength of each source varies from trial to trial.
    """
    strength = np.exp(rng.normal(0.0, 0.3, (len(leads), 1, leads.shape[2])))
    # L z with white noise z has the covariance L Lᵀ = Rᵀ R of Rᵀ z, which needs fewer random numbers.
    factor = np.asarray(np.linalg.qr((leads * strength).swapaxes(1, 2), mode="r"), np.float32).swapaxes(1, 2)
    return np.asarray(factor @ coloured(rng, (len(leads), factor.shape[2]), amplitude, n_times))


def alpha(rng: np.random.Generator, person: Person, n: int, f: Array, n_times: int) -> Array:
    """Draw spectra (n, 6, n_freqs) of the posterior rhythm in µV, of the sources beneath :data:`ALPHA_AREAS`.

    The strength varies from trial to trial.
    """
    strength = person.alpha_level * np.exp(rng.normal(0.0, 0.4, (n, 1, 1))).astype(np.float32)
    waves = coloured(rng, (n, len(ALPHA_AREAS)), peak(f, person.alpha, 0.8), n_times)
    return np.asarray(strength / np.float32(len(ALPHA_AREAS) ** 0.5) * waves)


# ---- artefacts


def blinks(rng: np.random.Generator, person: Person, n: int, times: Array) -> Array:
    """Draw blinks (n, 1, n_times) in µV at Fpz, at most one per segment."""
    length = times[-1] - times[0]
    occurs = rng.uniform(size=n) < 1 - np.exp(-person.blinks * length)
    size = occurs * 90.0 * np.exp(rng.normal(0.0, 0.25, n))
    since = times - rng.uniform(times[0], times[-1], n)[:, None]
    rebound = 0.2 * _transient(since - 0.2, 0.15)
    return np.asarray(size[:, None] * (_transient(since, 0.09) - rebound))[:, None]


def _transient(t: Array, rise: float) -> Array:
    """Return the shape of a blink at times ``t``: it starts at zero and has its maximum, one, at ``rise``."""
    u = t.clip(0) / rise
    return np.asarray(u**2 * np.exp(2 * (1 - u)))


def hum(rng: np.random.Generator, n: int, times: Array) -> Array:
    """Draw mains hum (n, 1, n_times) in µV."""
    size = 3.0 * np.exp(rng.normal(0.0, 0.3, (n, 1)))
    return (size * np.sin(2 * np.pi * MAINS * times + rng.uniform(0, 2 * np.pi, (n, 1))))[:, None]


# ---- drift


def drift(rng: np.random.Generator, session: Array, n: int, between: float, within: float) -> Array:
    """Draw factors of amplitudes (len(session), n), around one, which jump between sessions and drift within each.

    ``session`` is the number of the session of each segment.  ``between`` and ``within`` are the standard deviations of
    the logarithm of a jump, and of the drift over a whole session.
    """
    factors = np.zeros((len(session), n))
    for number in np.unique(session):
        rows = session == number
        steps = rng.standard_normal((rows.sum(), n)) * within / np.sqrt(rows.sum())
        factors[rows] = rng.normal(0.0, between, n) + steps.cumsum(axis=0)
    return np.exp(factors)


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
    """An effect of a class in an area, as simulated, from which the :class:`Effect` of the ground truth is made.

    ``label`` and ``area`` are indices of the class and the area; ``sign`` is that of a deflection.
    """

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
_MU_LEVEL, _BETA_LEVEL = 5.0, 2.5  # standard deviation of the rhythms at rest in µV
_DECREASE = 1.1  # relative decrease of amplitude at difficulty 0
_ONSET, _RISE, _END = 0.45, 0.06, 4.0  # start, time constant of the beginning and end of the decrease in s


def desynchronise(stimulation: Stimulation) -> tuple[Array, tuple[Planted, ...]]:
    """Simulate mu and beta rhythms in all areas, which decrease in the area of the class during imagery."""
    s, person = stimulation, stimulation.person
    n, n_areas = len(s.labels), _N_MOTOR_AREAS
    depth = _draw_decrease(s)  # (n, n_areas)
    onset = s.rng.normal(_ONSET, 0.08, n)
    course = scipy.special.expit((s.times - onset[:, None]) / _RISE).astype(np.float32)
    signals = np.zeros((n, n_areas, len(s.times)), np.float32)
    for centre, width, level in ((person.mu, 1.0, _MU_LEVEL), (person.beta, 2.0, _BETA_LEVEL)):
        waves = _draw_rhythm(s, n_areas, centre, width)
        waves *= level * np.exp(s.rng.normal(0.0, 0.25, (n, n_areas, 1))).astype(np.float32)
        signals += waves
    signals *= 1 - depth[..., None] * course[:, None]
    return signals, tuple(
        Planted(label, "desynchronisation", area, band, (_ONSET, _END))
        for label, area in enumerate(MOTOR_AREAS)
        for band in ((person.mu - 2.0, person.mu + 2.0), (person.beta - 4.0, person.beta + 4.0))
    )


def _draw_decrease(s: Stimulation) -> Array:
    """Draw the relative decrease of the rhythm (n, n_areas) in each segment of recording.

    It is zero except in the area of the class, and varies with the success of imagery.
    """
    active = np.zeros((len(MOTOR_AREAS), _N_MOTOR_AREAS))
    active[np.arange(len(MOTOR_AREAS)), MOTOR_AREAS] = s.person.responses[: len(MOTOR_AREAS)]
    success = s.rng.normal(1.0, 0.3, len(s.labels)).clip(0.0, 1.6)
    loss = _DECREASE * s.ease * s.person.strength * success[:, None] * active[s.labels]
    return np.asarray(loss.clip(0.0, 0.95), np.float32)


def _draw_rhythm(s: Stimulation, n_areas: int, centre: float, width: float) -> Array:
    """Draw noise (n, n_areas, n_times) of standard deviation one with a peak in its spectrum, given in Hz."""
    sfreq = 1 / (s.times[1] - s.times[0])
    shape = peak(frequencies(len(s.times), sfreq), centre, width)
    return in_time(coloured(s.rng, (len(s.labels), n_areas), shape, len(s.times)), len(s.times))


# ---- steady-state visual evoked potentials

_SSVEP_LEVEL = 5.0  # amplitude in µV at difficulty 0
_HARMONIC_SIZES = (1.0, 0.45, 0.2)  # relative amplitudes of the frequency and its multiples


def flicker(stimulation: Stimulation) -> tuple[Array, tuple[Planted, ...]]:
    """Simulate a sine with harmonics at the frequency of the class, with random and continuous phase, in one area."""
    s, n = stimulation, len(stimulation.labels)
    size = _SSVEP_LEVEL * s.ease * s.person.strength * s.person.responses[s.labels] * np.exp(s.rng.normal(0.0, 0.3, n))
    start = s.rng.uniform(0, 2 * np.pi, n)
    lags = s.rng.uniform(0, 2 * np.pi, (len(mamem.FREQUENCIES), len(_HARMONIC_SIZES)))[s.labels]  # fixed for a subject
    phase = 2 * np.pi * np.array(mamem.FREQUENCIES)[s.labels, None] * s.times + start[:, None]
    waves = sum(a * np.sin((k + 1) * phase + lags[:, [k]]) for k, a in enumerate(_HARMONIC_SIZES))
    return (size[:, None] * waves)[:, None], tuple(
        Planted(label, "oscillation", 0, (f - 0.5, f + 0.5), (0.0, 1.0)) for label, f in enumerate(mamem.FREQUENCIES)
    )


# ---- error potentials

#: Waves after an error: area, latency and width (standard deviation) in seconds, amplitude in µV at difficulty 0.
_ERROR_WAVES = ((0, 0.28, 0.04, -22.0), (1, 0.45, 0.07, 22.0))
#: Waves after every feedback, likewise.
_FEEDBACK_WAVES = ((2, 0.11, 0.02, -4.0), (2, 0.19, 0.03, 5.0), (3, 0.36, 0.08, 4.0))


def evoke(stimulation: Stimulation) -> tuple[Array, tuple[Planted, ...]]:
    """Simulate a visual response to every feedback, and after errors (class 0) a negativity and a positivity."""
    s, n = stimulation, len(stimulation.labels)
    signals = np.zeros((n, 4, len(s.times)))
    size = s.ease * s.person.strength * s.person.responses[0] * (s.labels == 0)
    for waves, scale in ((_FEEDBACK_WAVES, np.ones(n)), (_ERROR_WAVES, size)):
        for area, latency, width, amplitude in waves:
            when = s.rng.normal(latency + s.person.delay, 0.015, n)
            amount = amplitude * scale * s.rng.normal(1.0, 0.3, n)
            signals[:, area] += amount[:, None] * np.exp(-0.5 * ((s.times - when[:, None]) / width) ** 2)
    return signals, tuple(
        Planted(0, "deflection", area, None, (centre - 2 * width, centre + 2 * width), -1 if amplitude < 0 else 1)
        for area, latency, width, amplitude in _ERROR_WAVES
        for centre in (latency + s.person.delay,)
    )


# ---- the data sets

#: Class of each stimulation of MAMEM-SSVEP-II, the same in all sessions.
_FLICKER_ORDER = (3, 1, 2, 4, 0, 1, 4, 3, 1, 2, 0, 4, 3, 2, 1, 3, 0, 1, 4, 2, 3, 0, 2, 0, 2)


def _imagery_order(_session: int, _errors: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return class and run (288,) of the trials of a session: six runs of 48 trials, twelve of each class."""
    runs = [rng.permutation(np.repeat(np.arange(4), 12)) for _ in range(6)]
    return np.concatenate(runs), np.repeat([str(number) for number in range(1, 7)], 48)


def _flicker_order(session: int, _errors: float, _rng: np.random.Generator) -> tuple[Array, Array]:
    """Return class and run (25,) of the stimulations of a session, which are the same in all sessions."""
    return np.array(_FLICKER_ORDER), np.full(len(_FLICKER_ORDER), mamem.SESSIONS[session])


def _feedback_order(session: int, errors: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return class and run (n,) of the feedbacks of a session, of which the fraction ``errors`` has class 0."""
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
