"""Epochs with their metadata: one immutable container for every data set."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from gbwatt._validation import check_number, check_one_of
from gbwatt.data import _trial_fields
from gbwatt.data._trial_fields import ReadOnly
from gbwatt.errors import MismatchError, ParameterError, ShapeError

if TYPE_CHECKING:
    import mne
    import pandas as pd

    from gbwatt.data.description import Description


@dataclass(frozen=True)
class Effect:
    """One thing by which a class differs.

    Attributes
    ----------
    kind : "desynchronisation", "oscillation" or "deflection"
        Less power in a band, a phase-locked sine with harmonics, or a slow potential.
    channels : tuple of str
        Electrodes where it is strongest.
    band : (low, high) in Hz, or None for a deflection
    window : (start, end) in seconds after the event
    topography : tuple of float
        Weight of the source at every electrode of the recording, the largest magnitude being one; of a deflection with
        its sign.
    """

    kind: str
    channels: tuple[str, ...]
    band: tuple[float, float] | None
    window: tuple[float, float]
    topography: tuple[float, ...]


@dataclass(frozen=True)
class Truth:
    """Effects of each class, over the electrodes ``ch_names``, and the settings that they were made with."""

    ch_names: tuple[str, ...]
    effects: Mapping[str, tuple[Effect, ...]]
    difficulty: float
    seed: int

    def __post_init__(self) -> None:
        effects = {str(name): tuple(found) for name, found in self.effects.items()}
        object.__setattr__(self, "effects", ReadOnly(effects))

    def to_dict(self) -> dict[str, Any]:
        """In a form that JSON keeps."""
        values = asdict(self)
        return {**values, "effects": dict(values["effects"])}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Truth:
        """Of what :meth:`to_dict` gave, also after JSON."""
        effects = {
            name: tuple(
                Effect(
                    kind=e["kind"],
                    channels=tuple(e["channels"]),
                    band=None if e["band"] is None else (float(e["band"][0]), float(e["band"][1])),
                    window=(float(e["window"][0]), float(e["window"][1])),
                    topography=tuple(e["topography"]),
                )
                for e in found
            )
            for name, found in values["effects"].items()
        }
        return cls(tuple(values["ch_names"]), effects, float(values["difficulty"]), int(values["seed"]))


Array = NDArray[Any]

#: Units of voltage, in volts; anything else, standardised data for one, is "a.u.".
UNITS: Mapping[str, float] = {"V": 1.0, "mV": 1e-3, "µV": 1e-6, "nV": 1e-9}


def unit_name(unit: str, allowed: tuple[str, ...] = tuple(UNITS)) -> str:
    """A unit in its one spelling: microvolts are written with u or with a Greek mu, too."""
    name = {"uV": "µV", "\u03bcV": "µV"}.get(unit, unit)
    check_one_of("unit", name, allowed)
    return name


@dataclass(frozen=True)
class Frame:
    """What the axes of samples (..., n_chans, n_times) mean.

    ``tmin`` is the time of the first sample in seconds after the event that the trial was cut at.
    """

    ch_names: tuple[str, ...]
    sfreq: float
    tmin: float = 0.0
    unit: str = "µV"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ch_names", tuple(_trial_fields.plain_name("ch_names", n) for n in self.ch_names))
        repeated = [name for name, n in Counter(self.ch_names).items() if n > 1]
        if repeated or not self.ch_names or "" in self.ch_names:
            what = f"{repeated[0]!r} twice" if repeated else "no channel" if not self.ch_names else "an empty name"
            raise ParameterError(f"ch_names has {what}; every channel needs a name of its own.")
        for name in ("sfreq", "tmin"):
            check_number(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.sfreq <= 0:
            raise ParameterError(f"sfreq={self.sfreq} must be positive, in Hz.")
        object.__setattr__(self, "unit", unit_name(self.unit, (*UNITS, "a.u.")))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Trials:
    """Labelled epochs of one or several subjects.

    Parameters
    ----------
    X : array (n, n_chans, n_times)
        Samples; kept in float32.
    y : array (n,)
        Class numbers, places in ``class_names``.
    class_names, ch_names : sequences of str
    sfreq : float
        Sampling rate in Hz.
    tmin : float
        Time of the first sample, in seconds after the event.
    unit : "V", "mV", "µV", "nV" or "a.u."
    subject : int or array (n,)
    session, run : str or array (n,)
        A session is a visit to the laboratory (or what the data set calls so); a run is a recording without a break.
    group : array (n,), optional
        Trials of one group were cut from one stretch of recording, and belong on the same side of a split.  By default
        each trial is a group of its own.
    dataset : str
        Name of the data set.
    steps : tuple of dict
        What was done to the samples since they were read, in order; each a record of a step of
        :mod:`gbwatt.data.preprocessing`.
    truths : mapping of int to Truth, optional
        What was planted into the recordings of each subject, for simulated ones; :attr:`truth` is that of the only one.

    Examples
    --------
    >>> trials = Trials(
    ...     X=np.zeros((4, 2, 50)), y=[0, 1, 0, 1], class_names=["left", "right"], ch_names=["C3", "C4"], sfreq=100
    ... )
    >>> trials.select(classes=["left"]).labels.tolist()
    ['left', 'left']
    """

    X: Array
    y: Array
    class_names: tuple[str, ...]
    ch_names: tuple[str, ...]
    sfreq: float
    tmin: float = 0.0
    unit: str = "µV"
    subject: Array = field(default_factory=lambda: np.array(1))
    session: Array = field(default_factory=lambda: np.array("1"))
    run: Array = field(default_factory=lambda: np.array("1"))
    group: Array = field(default_factory=lambda: np.array(-1))  # numbers of their own
    dataset: str = ""
    steps: tuple[Mapping[str, Any], ...] = ()
    truths: Mapping[int, Truth] = field(default_factory=dict)

    def __post_init__(self) -> None:
        frame = Frame(tuple(self.ch_names), self.sfreq, self.tmin, self.unit)
        x = _trial_fields.samples(self.X, frame.ch_names)
        names = _trial_fields.class_names(self.class_names)
        values: dict[str, Any] = {
            **vars(frame),
            "X": x,
            "y": _trial_fields.codes(self.y, len(x), names),
            "class_names": names,
            "subject": (subject := _trial_fields.whole("subject", self.subject, len(x))),
            "session": _trial_fields.text("session", self.session, len(x)),
            "run": _trial_fields.text("run", self.run, len(x)),
            "group": _trial_fields.groups(self.group, len(x)),
            "dataset": _trial_fields.plain_name("dataset", self.dataset, limit=4096),  # it may be a path
            "steps": tuple(_trial_fields.settled(step) for step in self.steps),
            "truths": _truths(self.truths, subject),
        }
        self.__setstate__(values)

    def __setstate__(self, values: Mapping[str, Any]) -> None:
        """Set fields; also those of copies and of what comes from another process, whose arrays could be written to."""
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    # ---- what there is

    def __len__(self) -> int:
        return len(self.X)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Trials, channels, samples."""
        n, n_chans, n_times = self.X.shape
        return n, n_chans, n_times

    @property
    def frame(self) -> Frame:
        """What the axes of ``X`` mean."""
        return Frame(self.ch_names, self.sfreq, self.tmin, self.unit)

    @property
    def times(self) -> Array:
        """Seconds after the event (n_times,)."""
        return self.tmin + np.arange(self.X.shape[2]) / self.sfreq

    @property
    def labels(self) -> Array:
        """Name of the class of each trial (n,)."""
        return np.array(self.class_names)[self.y]

    @property
    def truth(self) -> Truth | None:
        """What was planted, if it is known and all trials are of one subject; for several there is :attr:`truths`."""
        return next(iter(self.truths.values()), None) if len(_trial_fields.in_order(self.subject)) == 1 else None

    def counts(self) -> dict[str, dict[str, int]]:
        """Number of trials of each class, by session."""
        return {
            str(session): {
                name: int(np.sum((self.session == session) & (self.y == c))) for c, name in enumerate(self.class_names)
            }
            for session in _trial_fields.in_order(self.session)
        }

    # ---- selections

    def __getitem__(self, index: Any) -> Self:
        """Trials by slice, mask or numbers."""
        rows = np.atleast_1d(np.arange(len(self))[index])
        found = {name: getattr(self, name)[rows] for name in _ROWS}
        left = _trial_fields.in_order(found["subject"])
        return replace(self, **found, truths={s: truth for s, truth in self.truths.items() if s in left})

    def select(
        self,
        *,
        subject: int | Iterable[int] | None = None,
        session: str | Iterable[str] | None = None,
        run: str | Iterable[str] | None = None,
        classes: str | Sequence[str] | None = None,
        channels: str | Sequence[str] | None = None,
    ) -> Self:
        """The trials of some subjects, sessions, runs or classes; of all that is given at once.

        With ``classes``, these become the class names, in that order; ``channels`` are put in the order given, which
        changes the samples and so is a step of the history.
        """
        keep = np.ones(len(self), dtype=bool)
        for name, wanted in (("subject", subject), ("session", session), ("run", run)):
            if wanted is not None:
                keep &= self._among(name, wanted)
        found = self[keep]
        if classes is not None:
            found = found._only_classes(_trial_fields.names_of(classes))
        return found if channels is None else found._only_channels(_trial_fields.names_of(channels))

    def _among(self, name: str, wanted: Any) -> NDArray[np.bool_]:
        values = getattr(self, name)
        asked = [wanted] if isinstance(wanted, str | int | np.integer) else list(wanted)
        known = [str(value) for value in _trial_fields.in_order(values)]
        for value in asked:
            check_one_of(name, str(value), tuple(known))
        return np.isin(values.astype(str), [str(value) for value in asked])

    def _only_classes(self, classes: Sequence[str]) -> Self:
        for name in classes:
            check_one_of("classes", name, self.class_names)
        number = {self.class_names.index(name): new for new, name in enumerate(classes)}
        found = self[np.isin(self.y, list(number))]
        return replace(found, class_names=tuple(classes), y=np.array([number[c] for c in found.y.tolist()], dtype=int))

    def _only_channels(self, channels: Sequence[str]) -> Self:
        for name in channels:
            check_one_of("channels", name, self.ch_names)
        from gbwatt.data.preprocessing.steps import Pick

        places = [self.ch_names.index(name) for name in channels]
        steps = (*self.steps, Pick(tuple(channels)).record())
        return replace(self, X=self.X[:, places], ch_names=tuple(channels), steps=steps)

    def replace(self, **changes: Any) -> Self:
        """The same with other values of some fields."""
        return replace(self, **changes)

    # ---- to and from other libraries

    def to_mne(self) -> mne.EpochsArray:
        """The same as epochs of MNE-Python, see :func:`gbwatt.data.formats.interchange.to_mne`."""
        from gbwatt.data.formats import interchange

        return interchange.to_mne(self)

    @staticmethod
    def from_mne(epochs: mne.BaseEpochs, **options: Any) -> Trials:
        """Trials of MNE's epochs, see :func:`gbwatt.data.formats.interchange.from_mne` for the options."""
        from gbwatt.data import plausibility
        from gbwatt.data.formats import interchange

        trials = interchange.from_mne(epochs, **options)
        plausibility.check_trials("epochs", trials)
        return trials

    def to_moabb(self) -> tuple[Array, Array, pd.DataFrame]:
        """X, labels and metadata as MOABB has them, see :func:`gbwatt.data.formats.interchange.to_moabb`."""
        from gbwatt.data.formats import interchange

        return interchange.to_moabb(self)

    @staticmethod
    def from_moabb(
        X: Any, y: Any, metadata: pd.DataFrame, ch_names: Sequence[str], sfreq: float, **options: Any
    ) -> Trials:
        """Trials of MOABB's arrays, see :func:`gbwatt.data.formats.interchange.from_moabb` for the options."""
        from gbwatt.data import plausibility
        from gbwatt.data.formats import interchange

        trials = interchange.from_moabb(X, y, metadata, ch_names, sfreq, **options)
        plausibility.check_trials("arrays of MOABB", trials)
        return trials

    def describe(self) -> Description:
        """What is in these trials, to read or as JSON."""
        from gbwatt.data import description

        return description.describe(self)

    def __repr__(self) -> str:
        n, n_chans, n_times = self.shape
        name = f" {self.dataset}" if self.dataset else ""
        return f"<Trials{name}: {n} of {n_chans} channels and {n_times} samples at {self.sfreq:g} Hz>"

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("Trials are not a sequence; use .X and .y, or trials[0:10] for some of them.")


_KEY = ("subject", "session", "run", "group")  # of one stretch of recording
_ROWS = ("X", "y", *_KEY)
_SHARED = tuple(f.name for f in dataclasses.fields(Trials) if f.name not in (*_ROWS, "truths"))


def _truths(truths: Mapping[int, Truth], subject: Array) -> Mapping[int, Truth]:
    there = _trial_fields.in_order(subject)
    unknown = [number for number in truths if number not in there]
    if unknown:
        raise ParameterError(f"truths has subject {unknown[0]!r}, but the trials are of {there}.")
    return _trial_fields.ReadOnly({int(number): truth for number, truth in truths.items()})


def concatenate(parts: Sequence[Trials]) -> Trials:
    """All trials of several containers, which must agree in everything but the trials.

    Groups are numbered anew.  Trials that are of one group in a part still are, and so are trials of two parts with the
    same subject, session, run and group: they are taken to be of one recording.  Those of different recordings need
    different names, of the run for instance.
    """
    if not parts:
        raise ParameterError("there is nothing to concatenate: 'parts' is empty.")
    for number, part in enumerate(parts):
        _expect_like(parts[0], part, number)
    rows: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ROWS}
    return replace(parts[0], **{**rows, "group": _joined(parts)}, truths=_merged(parts))


def _expect_like(first: Trials, part: Trials, number: int) -> None:
    for name in _SHARED:
        if getattr(part, name) != getattr(first, name):
            raise MismatchError(
                f"parts[{number}] has {name}={getattr(part, name)!r}, but parts[0] has {getattr(first, name)!r}; "
                "select the same channels and classes, and resample, first."
            )
    if part.shape[1:] != first.shape[1:]:
        raise ShapeError(f"parts[{number}] {part.shape} and parts[0] {first.shape} differ in samples.")


def _merged(parts: Sequence[Trials]) -> dict[int, Truth]:
    """What was planted into the recordings of all subjects."""
    found: dict[int, Truth | None] = {}
    for number, part in enumerate(parts):
        for subject in _trial_fields.in_order(part.subject):
            if found.setdefault(subject, part.truths.get(subject)) != part.truths.get(subject):
                raise MismatchError(
                    f"parts[{number}] has another truth of subject {subject} than the parts before it; recordings that "
                    "were made in another way are of another subject: replace(subject=..., truths=...)."
                )
    return {subject: truth for subject, truth in found.items() if truth is not None}


def _joined(parts: Sequence[Trials]) -> Array:
    """Numbers of groups (n,) in the order in which they occur."""
    inside = [(place, g) for place, part in enumerate(parts) for g in part.group.tolist()]
    across = [row for part in parts for row in zip(*(getattr(part, name).tolist() for name in _KEY), strict=True)]
    return _trial_fields.components(inside, across)
