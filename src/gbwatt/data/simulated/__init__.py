"""Simulated recordings whose class effects are known.

Dipoles in a spherical head give voltages at the electrodes of a real set.  Over 1/f activity, a rhythm at the back of
the head, blinks, hum of the mains and drift there is one effect for each class, and ``Trials.truth`` says where, when
and in which band.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from gbwatt._validation import check_at_least, check_number, check_one_of
from gbwatt.data.datasets import Dataset, Source
from gbwatt.data.simulated.paradigms import Paradigm
from gbwatt.data.simulated.recording import make
from gbwatt.data.simulated.sets import ERN, MI, SETS, SSVEP
from gbwatt.data.trials import Trials
from gbwatt.errors import ParameterError

__all__ = ["DATASETS", "ERN", "MI", "SETS", "SSVEP", "Paradigm", "simulate"]


def simulate(name: str, subject: int, *, difficulty: float = 0.5, seed: int = 0) -> Trials:
    """Trials of one simulated subject.

    Parameters
    ----------
    name : "simulated-mi", "simulated-ssvep" or "simulated-ern"
        Motor imagery like BCIC-IV-2a, steady-state potentials like MAMEM-SSVEP-II, error potentials like BCI-ERN.
    subject : int
        Number of the subject, as in the real set.  Subjects differ in the place and size of effects, in their rhythms
        and in their background.
    difficulty : float
        From 0 to 1.  Effects are proportional to one minus it: twice as large as usual at 0, and none at 1, where
        nothing is left to decode.  All the rest is the same.
    seed : int
        Not negative.  Another seed gives other people.

    Examples
    --------
    >>> trials = simulate("simulated-ssvep", subject=1)
    >>> trials.shape, trials.truth.effects["10 Hz"][0].channels
    ((500, 8, 125), ('Oz',))
    """
    check_one_of("name", name, tuple(SETS))
    paradigm = SETS[name]
    if subject not in paradigm.like.subjects:
        allowed = ", ".join(map(str, paradigm.like.subjects))
        raise ParameterError(f"subject={subject!r} is not in {name}; it has {allowed}.")
    check_number("difficulty", difficulty)
    if not 0 <= difficulty <= 1:
        raise ParameterError(f"difficulty={difficulty} must be from 0, easy, to 1, where there is no effect.")
    check_at_least("seed", seed, 0)
    return make(paradigm, subject, difficulty, seed)


def _read(_files: Sequence[Path], subject: int, difficulty: float = 0.5, seed: int = 0, *, name: str) -> Trials:
    return simulate(name, subject, difficulty=difficulty, seed=seed)


def _dataset(paradigm: Paradigm) -> Dataset:
    read = partial(_read, name=paradigm.name)
    source = Source("simulated", read=read, options=("difficulty", "seed"), revision=paradigm.revision)
    title = f"{paradigm.title}, in the shapes of {paradigm.like.name}"
    like = paradigm.like
    return Dataset(paradigm.name, title, like.subjects, (source,), like.protocol, like.task, like.pipeline)


#: The sets as :func:`gbwatt.data.load` knows them.
DATASETS: tuple[Dataset, ...] = tuple(_dataset(paradigm) for paradigm in SETS.values())
