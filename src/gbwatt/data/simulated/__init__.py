"""Simulated recordings whose class effects are known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gbwatt._text import number_ranges
from gbwatt._validation import check_at_least, check_number, check_one_of
from gbwatt.data.datasets import Dataset, DatasetSource
from gbwatt.data.simulated import paradigms
from gbwatt.data.simulated.paradigms import (
    ERN,
    MI,
    SETS,
    SSVEP,
    Area,
    Paradigm,
    Person,
    Planted,
    Stimulation,
    draw_person,
    head,
    unit,
)
from gbwatt.data.trials import Effect, Trials, Truth
from gbwatt.errors import ParameterError

__all__ = ["DATASETS", "ERN", "MI", "SETS", "SSVEP", "Paradigm", "simulate"]

Array = NDArray[Any]

N_BACKGROUND = 64  # number of dipoles of ongoing activity
_AREA_JITTER = 0.03  # displacement of areas between subjects, relative to the radius of the head: about 3 mm
_CAP_ROTATION = 0.02  # rotation of the cap between sessions in rad: about 2 mm
_EYES = Area(("Fp1", "Fp2", "AF7", "AF8"), (), radius=0.8)
_SENSOR_NOISE = 1.0  # sensor noise in µV
_STRONG_WEIGHT = 0.8  # minimum weight, relative to the largest, of electrodes where an effect is strongest

# Index of the random stream of each part of the simulation.  They are separate so that difficulty changes only the
# effects.
_PERSON, _ORDER, _PLACE, _EFFECT, _ONGOING, _ARTEFACTS, _DRIFT = range(7)


def simulate(name: str, subject: int, *, difficulty: float = 0.5, seed: int = 0) -> Trials:
    """Simulate the trials of a subject.

    Dipoles in a spherical head produce voltages at the electrodes of a real data set.  The recordings contain 1/f
    activity, a posterior rhythm, blinks, mains hum, drift, and the effect of each class, which is described by
    ``Trials.truth``.

    Parameters
    ----------
    name : "simulated-mi", "simulated-ssvep" or "simulated-ern"
        Motor imagery like BCIC-IV-2a, steady-state potentials like MAMEM-SSVEP-II, error potentials like BCI-ERN.
    subject : int
        Number of the subject, as in the real data set.  Subjects differ in the location and size of effects, in their
        rhythms and in their background activity.
    difficulty : float
        From 0 to 1.  Effects are proportional to ``1 - difficulty``; the rest of the recording does not change.
    seed : int
        Random seed, not negative.  Another seed simulates other subjects.

    Returns
    -------
    Trials

    Raises
    ------
    ParameterError
        If the name or subject is unknown, or a number is out of range.

    Examples
    --------
    >>> trials = simulate("simulated-ssvep", subject=1)
    >>> trials.shape, trials.truth.effects["10 Hz"][0].channels
    ((500, 8, 125), ('Oz',))
    """
    check_one_of("name", name, tuple(SETS))
    paradigm = SETS[name]
    if subject not in paradigm.like.subjects:
        raise ParameterError(f"subject={subject!r} is not in {name}; it has {number_ranges(paradigm.like.subjects)}.")
    check_number("difficulty", difficulty)
    if not 0 <= difficulty <= 1:
        raise ParameterError(f"difficulty={difficulty} must be from 0 (easy) to 1 (no effect).")
    check_at_least("seed", seed, 0)
    return _make_trials(paradigm, subject, difficulty, seed)


def _make_trials(paradigm: Paradigm, subject: int, difficulty: float, seed: int) -> Trials:
    """Simulate the trials of a subject, see :func:`simulate`; the arguments are not checked."""
    streams = [np.random.default_rng([seed, subject, paradigm.number, part]) for part in range(7)]
    person = draw_person(streams[_PERSON], len(paradigm.class_names))
    labels, session, run = _draw_schedule(paradigm, person, streams[_ORDER])
    times = _segment_times(paradigm)
    leads = _draw_leads(paradigm, len(paradigm.sessions), streams[_PLACE])
    signals, planted = paradigm.plant(Stimulation(labels, times, person, 1.0 - difficulty, streams[_EFFECT]))
    samples = _simulate_samples(paradigm, person, leads, signals, session, times, streams)
    segment = np.repeat(np.arange(len(labels)), paradigm.repeats)  # from which each trial is cut
    return Trials(
        X=samples,
        y=labels[segment],
        class_names=paradigm.class_names,
        ch_names=paradigm.ch_names,
        sfreq=paradigm.sfreq,
        tmin=paradigm.tmin,
        subject=np.array(subject),
        session=np.array(paradigm.sessions)[session[segment]],
        run=run[segment],
        group=segment,
        dataset=paradigm.name,
        steps=({"step": "simulated band-pass", "low": paradigm.band[0], "high": paradigm.band[1]},),
        truths={subject: _make_truth(paradigm, leads, planted if difficulty < 1 else (), difficulty, seed)},
    )


def _draw_schedule(paradigm: Paradigm, person: Person, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Return the class, the number of the session and the run (n,) of each segment of recording, in order."""
    parts = [paradigm.order(number, person.errors, rng) for number in range(len(paradigm.sessions))]
    session = np.repeat(np.arange(len(parts)), [len(labels) for labels, _ in parts])
    return np.concatenate([labels for labels, _ in parts]), session, np.concatenate([run for _, run in parts])


def _segment_times(paradigm: Paradigm) -> Array:
    """Return the times of the samples of a segment, with margins of a second for filters and periodic extension."""
    margin = round(paradigm.sfreq)
    n = scipy.fft.next_fast_len(paradigm.n_times * paradigm.repeats + 2 * margin, real=True)
    return paradigm.tmin + (np.arange(n) - margin) / paradigm.sfreq


# ---- leads: the voltages that sources cause at the electrodes


def _draw_leads(paradigm: Paradigm, n_sessions: int, rng: np.random.Generator) -> Array:
    """Return the voltage (n_sessions, n_chans, n_sources) at each electrode of sources of strength one.

    The sources are the areas, the alpha sources, the eyes and the background, in this order.  The maximum weight of
    areas and alpha sources is one, on average over sessions; that of the eyes is one at Fpz.  The total power of the
    background sources is one, on average over electrodes.  Sessions differ in the rotation of the cap.
    """
    dipoles = _draw_dipoles(paradigm, rng)
    positions, orientations = (np.concatenate(part) for part in zip(*dipoles, strict=True))
    caps = Rotation.from_rotvec(rng.normal(0.0, _CAP_ROTATION, (n_sessions, 3)))
    rotated = [np.concatenate([cap.apply(vectors) for cap in caps]) for vectors in (positions, orientations)]
    raw = head().leads((*paradigm.ch_names, "Fpz"), paradigm.reference, *rotated)
    leads = raw.reshape(len(raw), n_sessions, -1).transpose(1, 0, 2)
    return np.concatenate([leads[:, :-1, part] / size for part, size in _source_scales(paradigm, leads)], axis=2)


def _draw_dipoles(paradigm: Paradigm, rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Draw positions and orientations (n, 3) of each kind of source: areas, alpha sources, eyes and background."""
    alpha = [Area((name,), (), 0.7) for name in paradigms.ALPHA_AREAS]
    return [
        _draw_beneath(paradigm.areas, rng),
        _draw_beneath(alpha, rng),
        _draw_beneath([_EYES], rng),
        paradigms.draw_background_dipoles(rng, N_BACKGROUND),
    ]


def _draw_beneath(areas: Sequence[Area], rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw positions and orientations (n, 3) of nearly radial dipoles beneath the electrodes of areas, one in each."""
    centre = np.stack([np.mean([head().directions[name] for name in area.beneath], axis=0) for area in areas])
    directions = unit(unit(centre) + rng.normal(0.0, _AREA_JITTER, centre.shape))
    radius = np.array([area.radius for area in areas]) + rng.normal(0.0, 0.01, len(areas))
    return radius[:, None] * directions, unit(directions + rng.normal(0.0, 0.1, centre.shape))


def _source_scales(paradigm: Paradigm, leads: Array) -> list[tuple[slice, Array]]:
    """Return, for each kind of source, its columns of ``leads`` and the number that its voltages are divided by.

    ``leads`` (n_sessions, n_chans + 1, n_sources) are voltages at the electrodes before :func:`_draw_leads` scales
    them; the last electrode is Fpz, where those of the eyes become one.
    """
    eyes = len(paradigm.areas) + len(paradigms.ALPHA_AREAS)
    average = leads.mean(axis=0)
    rest = leads[:, :-1, eyes + 1 :]
    return [
        (slice(eyes), abs(average[:-1, :eyes]).max(axis=0)),
        (slice(eyes, eyes + 1), average[-1, eyes : eyes + 1]),
        (slice(eyes + 1, None), np.sqrt((rest**2).sum(axis=2).mean())),
    ]


# ---- samples


def _simulate_samples(
    paradigm: Paradigm,
    person: Person,
    leads: Array,
    signals: Array,
    session: Array,
    times: Array,
    streams: Sequence[np.random.Generator],
) -> Array:
    """Return samples (n * repeats, n_chans, n_times) in µV: projected sources, noise, drift and band-pass.

    ``signals`` (n, n_areas, n_times) are those of the areas, and ``session`` (n,) is the number of the session of each
    segment.
    """
    n_times, n_chans = len(times), len(paradigm.ch_names)
    f = paradigms.frequencies(n_times, paradigm.sfreq)
    gain = paradigms.band_pass(f, paradigm.band).astype(np.float32)
    spectra = _source_spectra(person, signals, times, f, streams)
    n_sources = spectra.shape[1]
    spectra = leads[session, :, :n_sources].astype(np.float32) @ spectra
    level = _background_level(person, f, gain) * paradigms.drift(streams[_DRIFT], session, 1, 0.12, 0.08)
    shape = paradigms.slope(f, person.slope)
    rest = leads[session, :, n_sources:] * level[..., None]
    spectra += paradigms.ongoing(streams[_ONGOING], rest, shape, n_times)
    spectra += _draw_noise(len(paradigm.sessions), n_chans, session, times, len(f), streams[_ARTEFACTS])
    spectra *= paradigms.drift(streams[_DRIFT], session, n_chans, 0.06, 0.03).astype(np.float32)[..., None]
    return _cut_trials(paradigm, paradigms.in_time(spectra * gain, n_times))


def _source_spectra(
    person: Person, signals: Array, times: Array, f: Array, streams: Sequence[np.random.Generator]
) -> Array:
    """Return spectra (n, n_sources, n_freqs) of areas, alpha sources and eyes, in the order of the leads.

    ``signals`` (n, n_areas, n_times) are those of the areas, and ``f`` are the frequencies in Hz.
    """
    n = len(signals)
    return np.concatenate(
        [
            paradigms.in_frequency(signals),
            paradigms.alpha(streams[_ONGOING], person, n, f, len(times)),
            paradigms.in_frequency(paradigms.blinks(streams[_ARTEFACTS], person, n, times)),
        ],
        axis=1,
    )


def _background_level(person: Person, f: Array, gain: Array) -> float:
    """Return the standard deviation of the background in µV before the band-pass.

    It is chosen so that the person's level is reached after the band-pass, whose gain is ``gain`` at the frequencies
    ``f``.
    """
    shape = paradigms.slope(f, person.slope)
    return person.level * float(np.sqrt((shape**2).sum() / ((shape * gain) ** 2).sum()))


def _draw_noise(
    n_sessions: int, n_chans: int, session: Array, times: Array, n_freqs: int, rng: np.random.Generator
) -> Array:
    """Draw spectra (n, n_chans, n_freqs) of mains hum and sensor noise.

    ``session`` (n,) is the number of the session of each segment; the size of the hum at an electrode depends on it.
    """
    pattern = (1 + 0.4 * rng.standard_normal((n_sessions, n_chans, 1))).astype(np.float32)
    mains = paradigms.in_frequency(paradigms.hum(rng, len(session), times))
    sensors = paradigms.coloured(rng, (len(session), n_chans), np.ones(n_freqs), len(times))
    return np.asarray(pattern[session] * mains + np.float32(_SENSOR_NOISE) * sensors)


def _cut_trials(paradigm: Paradigm, samples: Array) -> Array:
    """Cut trials (n * repeats, n_chans, n_times) from segments with margins."""
    start, n = round(paradigm.sfreq), paradigm.n_times
    inside = samples[..., start : start + paradigm.repeats * n]
    pieces = inside.reshape(*samples.shape[:2], paradigm.repeats, n)
    return pieces.swapaxes(1, 2).reshape(-1, samples.shape[1], n)


# ---- truth


def _make_truth(paradigm: Paradigm, leads: Array, planted: Sequence[Planted], difficulty: float, seed: int) -> Truth:
    """Return the ground truth: the planted effects by class, with their topographies averaged over sessions."""
    average = leads.mean(axis=0)
    effects: dict[str, tuple[Effect, ...]] = dict.fromkeys(paradigm.class_names, ())
    for source in planted:
        weights = source.sign * average[:, source.area]
        effect = Effect(
            kind=source.kind,
            channels=_strongest_electrodes(paradigm, paradigm.areas[source.area], weights),
            band=source.band,
            window=source.window,
            topography=tuple(weights.tolist()),
        )
        effects[paradigm.class_names[source.label]] += (effect,)
    return Truth(paradigm.ch_names, effects, float(difficulty), int(seed))


def _strongest_electrodes(paradigm: Paradigm, area: Area, weights: Array) -> tuple[str, ...]:
    """Return the electrodes of an area where the source is strong, the strongest first."""
    weight = dict(zip(paradigm.ch_names, abs(weights).tolist(), strict=True))
    ranked = sorted(area.group, key=lambda name: -weight[name])
    return tuple(name for name in ranked if weight[name] >= _STRONG_WEIGHT * weight[ranked[0]])


# ---- as data sets


def _simulate_as_reader(
    _files: Sequence[Path], subject: int, difficulty: float = 0.5, seed: int = 0, *, name: str
) -> Trials:
    """Simulate the trials of a subject, in the form of a reader of a data set; there are no files."""
    return simulate(name, subject, difficulty=difficulty, seed=seed)


def _make_dataset(paradigm: Paradigm) -> Dataset:
    """Return the data set of a paradigm, with the subjects and the protocol of the real data set."""
    read = partial(_simulate_as_reader, name=paradigm.name)
    source = DatasetSource("simulated", read=read, options=("difficulty", "seed"), revision=paradigm.revision)
    title = f"{paradigm.title}, in the shapes of {paradigm.like.name}"
    like = paradigm.like
    return Dataset(paradigm.name, title, like.subjects, (source,), like.protocol, like.task, like.pipeline)


#: The simulated data sets for :func:`gbwatt.data.load`.
DATASETS: tuple[Dataset, ...] = tuple(_make_dataset(paradigm) for paradigm in SETS.values())
