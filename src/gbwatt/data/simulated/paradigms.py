"""What a simulated set is, and what the person who sits in it is like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data.datasets import Dataset

Array = NDArray[Any]


@dataclass(frozen=True)
class Area:
    """Place of a source: beneath the middle of some electrodes.

    Attributes
    ----------
    beneath : tuple of str
        Electrodes of the montage, recorded or not.
    group : tuple of str
        Recorded electrodes among which the source is seen best.
    radius : float
        Distance from the centre of the head, as a fraction of the head's radius; the inner skull is at 0.9.
    """

    beneath: tuple[str, ...]
    group: tuple[str, ...]
    radius: float = 0.75


@dataclass(frozen=True)
class Person:
    """One subject.

    Attributes
    ----------
    strength : float
        Size of all class effects, about one.
    responses : array (n_classes,)
        Size of the effect of each class, about one.
    level : float
        Standard deviation of the background in µV, after the band-pass.
    slope : float
        Exponent of the background's power, f^-slope.
    alpha, alpha_level : float
        Rhythm at the back of the head: peak in Hz and standard deviation in µV.
    mu, beta : float
        Peaks of the rhythms of the motor areas in Hz.
    delay : float
        By how much evoked responses are later than on average, in seconds.
    blinks : float
        Blinks in a second.
    errors : float
        Share of feedbacks that are errors.
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
    """Some subject."""
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


@dataclass(frozen=True)
class Stimulation:
    """What the function that plants the effects is told.

    Attributes
    ----------
    labels : array (n,)
        Class of each stretch of recording.
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
    """One thing that was planted for a class, at one of the areas; ``sign`` is that of a deflection."""

    label: int
    kind: str
    area: int
    band: tuple[float, float] | None
    window: tuple[float, float]
    sign: int = 1


@dataclass(frozen=True)
class Paradigm:
    """A simulated set: montage, sessions, sources, and how the classes differ.

    Attributes
    ----------
    number : int
        Part of the seed, so that the sets do not share their noise.
    like : Dataset
        The real set, whose subjects, shapes, sessions and protocol it has.
    band : (low, high) in Hz
        Band-pass that the recordings have gone through.
    reference : tuple of str
        Electrodes whose mean is subtracted.
    repeats : int
        Trials that are cut from one stretch of recording.
    order : callable
        Class of each stretch of one session and the run it is in, of the number of the session, the errors' share and
        a generator.
    areas : tuple of Area
    plant : callable
        Signals (n, n_areas, n_times) in µV at the electrode that is nearest, and what was planted.
    revision : int
        Goes up when the same subject gets other recordings.
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
