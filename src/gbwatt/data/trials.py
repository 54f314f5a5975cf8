"""Epochs with all that belongs to them: one frozen container for every data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gbwatt import checks
from gbwatt.data.truth import Truth

Array = NDArray[Any]

#: Units of voltage, in volts; anything else, standardised data for one, is "a.u.".
UNITS: Mapping[str, float] = {"V": 1.0, "mV": 1e-3, "µV": 1e-6, "nV": 1e-9}


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
        object.__setattr__(self, "ch_names", tuple(str(name) for name in self.ch_names))
        repeated = [name for name, n in Counter(self.ch_names).items() if n > 1]
        if repeated or not self.ch_names:
            what = f"{repeated[0]!r} twice" if repeated else "no channel"
            raise checks.ParameterError(f"ch_names has {what}; every channel needs a name of its own.")
        for name in ("sfreq", "tmin"):
            checks.number(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.sfreq <= 0:
            raise checks.ParameterError(f"sfreq={self.sfreq} must be positive, in Hz.")
        checks.one_of("unit", self.unit, (*UNITS, "a.u."))


@dataclass(frozen=True, eq=False, kw_only=True)
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
    truth : Truth, optional
        What was planted, for simulated recordings.

    Examples
    --------
    >>> trials = Trials(
    ...     X=np.zeros((4, 2, 50)), y=[0, 1, 0, 1], class_names=["left", "right"], ch_names=["C3", "C4"], sfreq=100
    ... )
    >>> trials.select(classes=["left"]).labels
    array(['left', 'left'], dtype='<U5')
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
    truth: Truth | None = None

    def __post_init__(self) -> None:
        frame = Frame(tuple(self.ch_names), self.sfreq, self.tmin, self.unit)
        x = _samples(self.X, frame.ch_names)
        names = _class_names(self.class_names)
        values: dict[str, Any] = {
            **vars(frame),
            "X": x,
            "y": _codes(self.y, len(x), names),
            "class_names": names,
            "subject": _per_trial("subject", self.subject, len(x), np.int64),
            "session": _per_trial("session", self.session, len(x), np.str_),
            "run": _per_trial("run", self.run, len(x), np.str_),
            "group": _groups(self.group, len(x)),
            "steps": tuple(dict(step) for step in self.steps),
        }
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

    def counts(self) -> dict[str, dict[str, int]]:
        """Number of trials of each class, by session."""
        return {
            str(session): {
                name: int(np.sum((self.session == session) & (self.y == c))) for c, name in enumerate(self.class_names)
            }
            for session in _in_order(self.session)
        }

    # ---- selections

    def __getitem__(self, index: Any) -> Self:
        """Trials by slice, mask or numbers."""
        rows = np.atleast_1d(np.arange(len(self))[index])
        return replace(self, **{name: getattr(self, name)[rows] for name in _ROWS})

    def select(
        self,
        *,
        subject: int | Iterable[int] | None = None,
        session: str | Iterable[str] | None = None,
        run: str | Iterable[str] | None = None,
        classes: Sequence[str] | None = None,
        channels: Sequence[str] | None = None,
    ) -> Self:
        """The trials of some subjects, sessions, runs or classes; of all that is given at once.

        With ``classes``, these become the class names, in that order; ``channels`` are put in the order given.
        """
        keep = np.ones(len(self), dtype=bool)
        for name, wanted in (("subject", subject), ("session", session), ("run", run)):
            if wanted is not None:
                keep &= self._among(name, wanted)
        found = self[keep]
        if classes is not None:
            found = found._only_classes(classes)
        return found if channels is None else found._only_channels(channels)

    def _among(self, name: str, wanted: Any) -> NDArray[np.bool_]:
        values = getattr(self, name)
        asked = [wanted] if isinstance(wanted, str | int | np.integer) else list(wanted)
        known = [str(value) for value in _in_order(values)]
        for value in asked:
            checks.one_of(name, str(value), tuple(known))
        return np.isin(values.astype(str), [str(value) for value in asked])

    def _only_classes(self, classes: Sequence[str]) -> Self:
        for name in classes:
            checks.one_of("classes", name, self.class_names)
        number = {self.class_names.index(name): new for new, name in enumerate(classes)}
        found = self[np.isin(self.y, list(number))]
        return replace(found, class_names=tuple(classes), y=np.array([number[c] for c in found.y.tolist()], dtype=int))

    def _only_channels(self, channels: Sequence[str]) -> Self:
        for name in channels:
            checks.one_of("channels", name, self.ch_names)
        places = [self.ch_names.index(name) for name in channels]
        return replace(self, X=self.X[:, places], ch_names=tuple(channels))

    def replace(self, **changes: Any) -> Self:
        """The same with other values of some fields."""
        return replace(self, **changes)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("Trials are not a sequence; use .X and .y, or trials[0:10] for some of them.")


_ROWS = ("X", "y", "subject", "session", "run", "group")
_SHARED = tuple(f.name for f in fields(Trials) if f.name not in (*_ROWS, "truth"))


def concatenate(parts: Sequence[Trials]) -> Trials:
    """All trials of several containers, which must agree in everything but the trials."""
    if not parts:
        raise checks.ParameterError("there is nothing to concatenate: 'parts' is empty.")
    first = parts[0]
    for number, part in enumerate(parts):
        for name in _SHARED:
            if getattr(part, name) != getattr(first, name):
                raise checks.MismatchError(
                    f"parts[{number}] has {name}={getattr(part, name)!r}, but parts[0] has {getattr(first, name)!r}; "
                    "select the same channels and classes, and resample, first."
                )
        if part.shape[1:] != first.shape[1:]:
            raise checks.ShapeError(f"parts[{number}] {part.shape} and parts[0] {first.shape} differ in samples.")
    rows = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ROWS}
    rows["group"] = _distinct([part.group for part in parts])
    truth = first.truth if all(part.truth == first.truth for part in parts) else None
    return replace(first, **rows, truth=truth)


def _distinct(groups: Sequence[Array]) -> Array:
    """Group numbers that do not repeat from part to part."""
    shifted, start = [], 0
    for group in groups:
        _, numbers = np.unique(group, return_inverse=True)
        shifted.append(numbers + start)
        start += int(numbers.max(initial=-1)) + 1
    return np.concatenate(shifted)


# ---- checks of fields


def _samples(X: Any, ch_names: tuple[str, ...]) -> Array:
    x = np.array(X, dtype=np.float32, order="C")
    if x.ndim != 3 or 0 in x.shape[1:]:
        raise checks.ShapeError(f"'X' {x.shape} does not hold epochs; (n, n_chans, n_times) is needed.")
    if x.shape[1] != len(ch_names):
        raise checks.ShapeError(f"'X' {x.shape} has {x.shape[1]} channels, but {len(ch_names)} have names.")
    bad = ~np.isfinite(x).all(axis=2)
    if bad.any():
        trial, channel = np.argwhere(bad)[0]
        raise checks.NotFiniteError(
            f"'X' {x.shape} has NaN or infinite samples in {np.any(bad, axis=1).sum()} trials, first in trial "
            f"{trial}, channel {ch_names[channel]}. Drop or interpolate them."
        )
    return x


def _class_names(names: Sequence[str]) -> tuple[str, ...]:
    found = tuple(str(name) for name in names)
    if len(set(found)) != len(found) or not found:
        raise checks.ParameterError(f"class_names={list(found)} must be different names, one or more.")
    return found


def _codes(y: Any, n: int, names: tuple[str, ...]) -> Array:
    codes = np.array(y)
    if codes.shape != (n,):
        raise checks.ShapeError(f"'y' {codes.shape} does not match {n} epochs; ({n},) is needed.")
    if codes.dtype.kind not in "iu" and n:
        raise checks.MismatchError(f"'y' has dtype {codes.dtype}; places in class_names, 0 to {len(names) - 1}, do.")
    if n and not (codes.min() >= 0 and codes.max() < len(names)):
        wrong = codes[(codes < 0) | (codes >= len(names))][0]
        raise checks.ParameterError(f"'y' has class {wrong}; {len(names)} classes are named: 0 to {len(names) - 1}.")
    return codes.astype(np.int64)


def _per_trial(name: str, value: Any, n: int, dtype: Any) -> Array:
    try:
        values = np.array(value).astype(dtype)
    except (TypeError, ValueError):
        raise checks.MismatchError(f"'{name}' must be {np.dtype(dtype).name}, got {value!r}.") from None
    if values.shape not in ((), (n,)):
        raise checks.ShapeError(f"'{name}' {values.shape} does not match {n} epochs; one value or ({n},) is needed.")
    return np.array(np.broadcast_to(values, (n,)))


def _groups(value: Any, n: int) -> Array:
    numbers = np.array(value)
    return np.arange(n) if numbers.shape == () and numbers == -1 else _per_trial("group", numbers, n, np.int64)


def _in_order(values: Array) -> list[Any]:
    """Different values in the order in which they first occur."""
    return list(dict.fromkeys(values.tolist()))
