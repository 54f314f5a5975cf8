"""Dipoles in a spherical head and ongoing activity: what every simulated recording contains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from gbwatt.data.montage import montage_name
from gbwatt.data.simulated.paradigms import Person

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Head:
    """A head of three spherical shells and the electrodes on it.

    Attributes
    ----------
    directions : mapping from str to array (3,)
        Unit vectors from the centre of the sphere to each electrode: x to the right, y to the front, z up.
    sphere : mne.bem.ConductorModel
    info : mne.Info
        All electrodes of the montage.
    """

    directions: Mapping[str, Array]
    sphere: Any
    info: Any

    def leads(
        self, ch_names: tuple[str, ...], reference: tuple[str, ...], positions: Array, orientations: Array
    ) -> Array:
        """Voltage (n_chans, n) between each electrode and the reference, for dipoles of unit moment.

        Positions (n, 3) are fractions of the head's radius away from its centre, less than 0.9 for the inner skull;
        orientations (n, 3) are unit vectors.
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
    """The head; made once in a process."""
    import mne

    with mne.utils.use_log_level("ERROR"):
        montage = mne.channels.make_standard_montage(montage_name())
        info = mne.create_info(montage.ch_names, 1.0, "eeg").set_montage(montage)
        places = np.stack([channel["loc"][:3] for channel in info["chs"]])
        sphere = mne.make_sphere_model(*_fit_sphere(places))
    directions = unit(places - sphere["r0"])
    return Head(dict(zip(info["ch_names"], directions, strict=True)), sphere, info)


def unit(vectors: Array) -> Array:
    """Vectors (..., 3) of length one, in the same directions."""
    found: Array = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return found


def _fit_sphere(points: Array) -> tuple[Array, float]:
    """Centre (3,) and radius of the sphere that is nearest to points (n, 3), by |p|² = 2 p·c + (r² - |c|²)."""
    system = np.column_stack([2 * points, np.ones(len(points))])
    *centre, rest = np.linalg.lstsq(system, (points**2).sum(axis=1), rcond=None)[0]
    return np.array(centre), float(np.sqrt(rest + np.dot(centre, centre)))


MAINS = 50.0  # Hz; all three real sets were recorded in Europe


# ---- noise by its spectrum


def frequencies(n_times: int, sfreq: float) -> Array:
    """Frequencies in Hz (n_times // 2 + 1,) of a spectrum."""
    return np.fft.rfftfreq(n_times, 1 / sfreq)


def coloured(rng: np.random.Generator, shape: tuple[int, ...], amplitude: Array, n_times: int) -> Array:
    """Spectra (*shape, n_freqs) of Gaussian noise whose amplitude follows ``amplitude``; standard deviation one."""
    parts = rng.standard_normal((*shape, len(amplitude), 2), dtype=np.float32)
    scale = n_times / 2 / np.sqrt((amplitude**2).sum())
    parts *= (scale * amplitude).astype(np.float32)[:, None]
    return parts.view(np.complex64)[..., 0]


def in_time(spectra: Array, n_times: int) -> Array:
    """Samples (..., n_times) of spectra (..., n_freqs)."""
    return np.asarray(scipy.fft.irfft(spectra, n_times, axis=-1))


def in_frequency(signals: Array) -> Array:
    """Spectra (..., n_freqs) of samples (..., n_times)."""
    return np.asarray(scipy.fft.rfft(signals.astype(np.float32), axis=-1))


def peak(f: Array, centre: float, width: float) -> Array:
    """Amplitudes of a rhythm: a bell around ``centre``."""
    return np.asarray(np.exp(-0.5 * ((f - centre) / width) ** 2))


def slope(f: Array, exponent: float) -> Array:
    """Amplitudes of noise whose power goes as f^-exponent; flat below half a hertz, and none at zero."""
    return np.where(f > 0, f.clip(0.5) ** (-exponent / 2), 0.0)


def band_pass(f: Array, band: tuple[float, float]) -> Array:
    """Gain of a Butterworth filter of order 4 that is applied forward and backward."""
    low, high = band
    return np.asarray(1 / (1 + (low / f.clip(1e-3)) ** 8) / (1 + (f / high) ** 8))


# ---- where it comes from

#: Electrodes above the rhythm at the back of the head.
ALPHA_AREAS = ("Pz", "PO3", "PO4", "POz", "PO7", "PO8")


def cortex(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Positions and orientations (n, 3) of dipoles all over the brain but its base."""
    height, angle = rng.uniform(-0.4, 1.0, n), rng.uniform(0, 2 * np.pi, n)
    ring = np.sqrt(1 - height**2)
    directions = np.stack([ring * np.cos(angle), ring * np.sin(angle), height], axis=1)
    return rng.uniform(0.5, 0.8, (n, 1)) * directions, unit(rng.standard_normal((n, 3)))


def ongoing(rng: np.random.Generator, leads: Array, amplitude: Array, n_times: int) -> Array:
    """Spectra (n, n_chans, n_freqs) at the electrodes of noise from sources with leads (n, n_chans, n_sources).

    Each source is stronger in some trials than in others.
    """
    waxing = np.exp(rng.normal(0.0, 0.3, (len(leads), 1, leads.shape[2])))
    # L z with white z has covariance L Lᵀ = Rᵀ R, as Rᵀ z has: fewer numbers to draw than there are sources.
    factor = np.asarray(np.linalg.qr((leads * waxing).swapaxes(1, 2), mode="r"), np.float32).swapaxes(1, 2)
    return np.asarray(factor @ coloured(rng, (len(leads), factor.shape[2]), amplitude, n_times))


def alpha(rng: np.random.Generator, person: Person, n: int, f: Array, n_times: int) -> Array:
    """Spectra (n, 6, n_freqs) of the rhythm at the back of the head in µV, which comes and goes."""
    waxing = person.alpha_level * np.exp(rng.normal(0.0, 0.4, (n, 1, 1))).astype(np.float32)
    waves = coloured(rng, (n, len(ALPHA_AREAS)), peak(f, person.alpha, 0.8), n_times)
    return np.asarray(waxing / np.float32(len(ALPHA_AREAS) ** 0.5) * waves)


# ---- artefacts


def blinks(rng: np.random.Generator, person: Person, n: int, times: Array) -> Array:
    """Blinks (n, 1, n_times) in µV at Fpz, one at most in a stretch."""
    length = times[-1] - times[0]
    there = rng.uniform(size=n) < 1 - np.exp(-person.blinks * length)
    size = there * 90.0 * np.exp(rng.normal(0.0, 0.25, n))
    since = times - rng.uniform(times[0], times[-1], n)[:, None]
    rebound = 0.2 * _bump(since - 0.2, 0.15)
    return np.asarray(size[:, None] * (_bump(since, 0.09) - rebound))[:, None]


def _bump(t: Array, rise: float) -> Array:
    """A wave that begins at zero and has its maximum, one, at ``rise``."""
    u = t.clip(0) / rise
    return np.asarray(u**2 * np.exp(2 * (1 - u)))


def hum(rng: np.random.Generator, n: int, times: Array) -> Array:
    """Interference of the mains (n, 1, n_times) in µV."""
    size = 3.0 * np.exp(rng.normal(0.0, 0.3, (n, 1)))
    return (size * np.sin(2 * np.pi * MAINS * times + rng.uniform(0, 2 * np.pi, (n, 1))))[:, None]


# ---- drift


def drift(rng: np.random.Generator, session: Array, n: int, between: float, within: float) -> Array:
    """Factors (len(session), n) about one that jump from session to session and wander a little in each."""
    factors = np.zeros((len(session), n))
    for number in np.unique(session):
        rows = session == number
        steps = rng.standard_normal((rows.sum(), n)) * within / np.sqrt(rows.sum())
        factors[rows] = rng.normal(0.0, between, n) + steps.cumsum(axis=0)
    return np.exp(factors)
