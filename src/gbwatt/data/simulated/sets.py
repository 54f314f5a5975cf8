"""The three simulated sets, which have the shapes, sessions and protocols of the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data.sets import bcic2a, ern, mamem
from gbwatt.data.simulated.effects import desynchronise, evoke, flicker
from gbwatt.data.simulated.paradigms import Area, Paradigm

Array = NDArray[Any]

#: Class of each trial of a session of MAMEM-SSVEP-II: the same in all.
_FLICKER_ORDER = (3, 1, 2, 4, 0, 1, 4, 3, 1, 2, 0, 4, 3, 2, 1, 3, 0, 1, 4, 2, 3, 0, 2, 0, 2)


def _imagery_order(_session: int, _errors: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Six runs of 48 with twelve of each class."""
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

#: The sets by name.
SETS: Mapping[str, Paradigm] = MappingProxyType({paradigm.name: paradigm for paradigm in (MI, SSVEP, ERN)})
