"""One simulated subject: sources, leads and artefacts put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gbwatt.data.simulated import sources
from gbwatt.data.simulated.paradigms import Area, Paradigm, Person, Planted, Stimulation, draw_person
from gbwatt.data.simulated.sources import head, unit
from gbwatt.data.trials import Effect, Trials, Truth

Array = NDArray[Any]

N_BACKGROUND = 64  # dipoles of ongoing activity
_JITTER = 0.03  # of areas, from subject to subject: about 3 mm
_CAP = 0.02  # rad by which the cap sits otherwise from session to session: about 2 mm
_EYES = Area(("Fp1", "Fp2", "AF7", "AF8"), (), radius=0.8)
_SENSOR = 1.0  # µV
_STRONG = 0.8  # share of the largest weight from which an electrode counts as one where the source is strongest

# One stream of random numbers for each part, so that difficulty changes the effects and nothing else.
_PERSON, _ORDER, _PLACE, _EFFECT, _ONGOING, _ARTEFACTS, _DRIFT = range(7)


def make(paradigm: Paradigm, subject: int, difficulty: float, seed: int) -> Trials:
    """Trials of one subject."""
    streams = [np.random.default_rng([seed, subject, paradigm.number, part]) for part in range(7)]
    person = draw_person(streams[_PERSON], len(paradigm.class_names))
    labels, session, run = _schedule(paradigm, person, streams[_ORDER])
    times = _times(paradigm)
    leads = _leads(paradigm, len(paradigm.sessions), streams[_PLACE])
    signals, planted = paradigm.plant(Stimulation(labels, times, person, 1.0 - difficulty, streams[_EFFECT]))
    samples = _record(paradigm, person, leads, signals, session, times, streams)
    whole = np.repeat(np.arange(len(labels)), paradigm.repeats)  # the stretch that each trial is cut from
    return Trials(
        X=samples,
        y=labels[whole],
        class_names=paradigm.class_names,
        ch_names=paradigm.ch_names,
        sfreq=paradigm.sfreq,
        tmin=paradigm.tmin,
        subject=np.array(subject),
        session=np.array(paradigm.sessions)[session[whole]],
        run=run[whole],
        group=whole,
        dataset=paradigm.name,
        steps=({"step": "simulated band-pass", "low": paradigm.band[0], "high": paradigm.band[1]},),
        truths={subject: _truth(paradigm, leads, planted if difficulty < 1 else (), difficulty, seed)},
    )


def _schedule(paradigm: Paradigm, person: Person, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Class, number of session, and run (n,) of each stretch."""
    parts = [paradigm.order(number, person.errors, rng) for number in range(len(paradigm.sessions))]
    session = np.repeat(np.arange(len(parts)), [len(labels) for labels, _ in parts])
    return np.concatenate([labels for labels, _ in parts]), session, np.concatenate([run for _, run in parts])


def _times(paradigm: Paradigm) -> Array:
    """Times of the samples that are made: a second more on both sides, in which filters and wraps stay."""
    margin = round(paradigm.sfreq)
    n = scipy.fft.next_fast_len(paradigm.n_times * paradigm.repeats + 2 * margin, real=True)
    return paradigm.tmin + (np.arange(n) - margin) / paradigm.sfreq


# ---- leads


def _leads(paradigm: Paradigm, n_sessions: int, rng: np.random.Generator) -> Array:
    """Weight (n_sessions, n_chans, n_sources) of areas, alpha sources, eyes and background at each electrode.

    Areas and alpha sources have weight one where they are strongest, on average over sessions; eyes have it at Fpz; the
    power of all background sources together is one, on average over electrodes.
    """
    places = _places(paradigm, rng)
    positions, orientations = (np.concatenate(part) for part in zip(*places, strict=True))
    caps = Rotation.from_rotvec(rng.normal(0.0, _CAP, (n_sessions, 3)))
    turned = [np.concatenate([cap.apply(vectors) for cap in caps]) for vectors in (positions, orientations)]
    raw = head().leads((*paradigm.ch_names, "Fpz"), paradigm.reference, *turned)
    leads = raw.reshape(len(raw), n_sessions, -1).transpose(1, 0, 2)
    return np.concatenate([leads[:, :-1, part] / size for part, size in _sizes(paradigm, leads)], axis=2)


def _places(paradigm: Paradigm, rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Positions and orientations of areas, alpha sources, eyes and background."""
    alpha = [Area((name,), (), 0.7) for name in sources.ALPHA_AREAS]
    return [
        _beneath(paradigm.areas, rng),
        _beneath(alpha, rng),
        _beneath([_EYES], rng),
        sources.cortex(rng, N_BACKGROUND),
    ]


def _beneath(areas: Sequence[Area], rng: np.random.Generator) -> tuple[Array, Array]:
    """Positions and orientations (n, 3) of sources at areas: nearly radial, and nowhere the same in two subjects."""
    middle = np.stack([np.mean([head().directions[name] for name in area.beneath], axis=0) for area in areas])
    directions = unit(unit(middle) + rng.normal(0.0, _JITTER, middle.shape))
    radius = np.array([area.radius for area in areas]) + rng.normal(0.0, 0.01, len(areas))
    return radius[:, None] * directions, unit(directions + rng.normal(0.0, 0.1, middle.shape))


def _sizes(paradigm: Paradigm, leads: Array) -> list[tuple[slice, Array]]:
    """What the leads of each kind of source are to be divided by; the last electrode of ``leads`` is Fpz."""
    eyes = len(paradigm.areas) + len(sources.ALPHA_AREAS)
    average = leads.mean(axis=0)
    rest = leads[:, :-1, eyes + 1 :]
    return [
        (slice(eyes), abs(average[:-1, :eyes]).max(axis=0)),
        (slice(eyes, eyes + 1), average[-1, eyes : eyes + 1]),
        (slice(eyes + 1, None), np.sqrt((rest**2).sum(axis=2).mean())),
    ]


# ---- samples


def _record(
    paradigm: Paradigm,
    person: Person,
    leads: Array,
    signals: Array,
    session: Array,
    times: Array,
    streams: Sequence[np.random.Generator],
) -> Array:
    """Samples (n * repeats, n_chans, n_times) in µV: all sources through their leads, noise, drift, and a band-pass."""
    n_times, n_chans = len(times), len(paradigm.ch_names)
    f = sources.frequencies(n_times, paradigm.sfreq)
    gain = sources.band_pass(f, paradigm.band).astype(np.float32)
    spectra = _sources(person, signals, times, f, streams)
    n_sources = spectra.shape[1]
    spectra = leads[session, :, :n_sources].astype(np.float32) @ spectra
    level = _level(person, f, gain) * sources.drift(streams[_DRIFT], session, 1, 0.12, 0.08)
    shape = sources.slope(f, person.slope)
    rest = leads[session, :, n_sources:] * level[..., None]
    spectra += sources.ongoing(streams[_ONGOING], rest, shape, n_times)
    spectra += _noise(len(paradigm.sessions), n_chans, session, times, len(f), streams[_ARTEFACTS])
    spectra *= sources.drift(streams[_DRIFT], session, n_chans, 0.06, 0.03).astype(np.float32)[..., None]
    return _cut(paradigm, sources.in_time(spectra * gain, n_times))


def _sources(person: Person, signals: Array, times: Array, f: Array, streams: Sequence[np.random.Generator]) -> Array:
    """Spectra (n, n_sources, n_freqs) of the areas, of alpha sources and of the eyes, in the order of the leads."""
    n = len(signals)
    return np.concatenate(
        [
            sources.in_frequency(signals),
            sources.alpha(streams[_ONGOING], person, n, f, len(times)),
            sources.in_frequency(sources.blinks(streams[_ARTEFACTS], person, n, times)),
        ],
        axis=1,
    )


def _level(person: Person, f: Array, gain: Array) -> float:
    """Standard deviation of the background before the band-pass, for the one that it should have after it."""
    shape = sources.slope(f, person.slope)
    return person.level * float(np.sqrt((shape**2).sum() / ((shape * gain) ** 2).sum()))


def _noise(
    n_sessions: int, n_chans: int, session: Array, times: Array, n_freqs: int, rng: np.random.Generator
) -> Array:
    """Spectra (n, n_chans, n_freqs) of what does not come from the head: the mains, and each electrode's own noise."""
    pattern = (1 + 0.4 * rng.standard_normal((n_sessions, n_chans, 1))).astype(np.float32)
    mains = sources.in_frequency(sources.hum(rng, len(session), times))
    own = sources.coloured(rng, (len(session), n_chans), np.ones(n_freqs), len(times))
    return np.asarray(pattern[session] * mains + np.float32(_SENSOR) * own)


def _cut(paradigm: Paradigm, samples: Array) -> Array:
    """Trials (n * repeats, n_chans, n_times) out of stretches with margins."""
    start, n = round(paradigm.sfreq), paradigm.n_times
    inside = samples[..., start : start + paradigm.repeats * n]
    pieces = inside.reshape(*samples.shape[:2], paradigm.repeats, n)
    return pieces.swapaxes(1, 2).reshape(-1, samples.shape[1], n)


# ---- truth


def _truth(paradigm: Paradigm, leads: Array, planted: Sequence[Planted], difficulty: float, seed: int) -> Truth:
    average = leads.mean(axis=0)
    effects: dict[str, tuple[Effect, ...]] = dict.fromkeys(paradigm.class_names, ())
    for one in planted:
        weights = one.sign * average[:, one.area]
        found = Effect(
            kind=one.kind,
            channels=_strongest(paradigm, paradigm.areas[one.area], weights),
            band=one.band,
            window=one.window,
            topography=tuple(weights.tolist()),
        )
        effects[paradigm.class_names[one.label]] += (found,)
    return Truth(paradigm.ch_names, effects, float(difficulty), int(seed))


def _strongest(paradigm: Paradigm, area: Area, weights: Array) -> tuple[str, ...]:
    """Electrodes of the area's group where the source is strong, the strongest first."""
    weight = dict(zip(paradigm.ch_names, abs(weights).tolist(), strict=True))
    ranked = sorted(area.group, key=lambda name: -weight[name])
    return tuple(name for name in ranked if weight[name] >= _STRONG * weight[ranked[0]])
