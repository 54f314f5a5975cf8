"""Trials: an immutable container for epochs and their metadata."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from gbwatt._validation import check_number, check_one_of
from gbwatt.data import _trial_fields
from gbwatt.data._trial_fields import Effect, Truth
from gbwatt.errors import MismatchError, ParameterError, ShapeError

if TYPE_CHECKING:
    import mne
    import pandas as pd

    from gbwatt.data.description import Description


__all__ = ["UNITS", "Effect", "Frame", "Trials", "Truth", "concatenate", "unit_name"]

Array = NDArray[Any]

#: Units of voltage, in volts.  Other data, such as standardised samples, are in "a.u.".
UNITS: Mapping[str, float] = {"V": 1.0, "mV": 1e-3, "µV": 1e-6, "nV": 1e-9}


def unit_name(unit: str, allowed: tuple[str, ...] = tuple(UNITS)) -> str:
    """Return the usual spelling of a unit; "uV" and "μV" (Greek mu) become "µV"."""
    name = {"uV": "µV", "\u03bcV": "µV"}.get(unit, unit)
    check_one_of("unit", name, allowed)
    return name


@dataclass(frozen=True)
class Frame:
    """Meaning of samples (..., n_chans, n_times).

    Attributes
    ----------
    ch_names : tuple of str
    sfreq : float
        Sampling rate in Hz.
    tmin : float
        Time of the first sample in seconds after the event.
    unit : "V", "mV", "µV", "nV" or "a.u."
    """

    ch_names: tuple[str, ...]
    sfreq: float
    tmin: float = 0.0
    unit: str = "µV"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ch_names", tuple(_trial_fields.plain_name("ch_names", n) for n in self.ch_names))
        repeated = [name for name, n in Counter(self.ch_names).items() if n > 1]
        if repeated or not self.ch_names or "" in self.ch_names:
            problem = f"{repeated[0]!r} twice" if repeated else "no channel" if not self.ch_names else "an empty name"
            raise ParameterError(f"ch_names has {problem}; every channel needs a unique name.")
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
        Samples, stored in float32.
    y : array (n,)
        Class numbers, indices into ``class_names``.
    class_names, ch_names : sequences of str
        Names of the classes and channels.
    sfreq : float
        Sampling rate in Hz.
    tmin : float
        Time of the first sample in seconds after the event.
    unit : "V", "mV", "µV", "nV" or "a.u."
        Unit of the samples.
    subject : int or array (n,)
        Subject of all trials, or of each.
    session, run : str or array (n,)
        A session is usually a visit to the laboratory, a run a recording without a break.
    group : array (n,), optional
        Trials of the same group were cut from the same segment of a recording and must not be divided by a split.
        Default: each trial is its own group.
    dataset : str
        Name of the data set.
    steps : tuple of dict
        Preprocessing of the samples since they were read, in order, as records of :mod:`gbwatt.data.preprocessing`.
    truths : mapping of int to Truth, optional
        Ground truth of each subject of simulated recordings.  For a single subject, it is also in :attr:`truth`.

    Raises
    ------
    ShapeError, MismatchError
        If shapes or types do not fit.
    NotFiniteError
        If samples are NaN or infinite.
    ParameterError
        If names or numbers are invalid.

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
    group: Array = field(default_factory=lambda: np.array(-1))  # each trial is its own group
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
        """Set fields and make arrays read-only, also in copies and in trials from another process."""
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    # ---- properties

    def __len__(self) -> int:
        return len(self.X)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of trials, channels and samples."""
        n, n_chans, n_times = self.X.shape
        return n, n_chans, n_times

    @property
    def frame(self) -> Frame:
        """Channels, sampling rate, start and unit of ``X``."""
        return Frame(self.ch_names, self.sfreq, self.tmin, self.unit)

    @property
    def times(self) -> Array:
        """Times of the samples in seconds after the event (n_times,)."""
        return self.tmin + np.arange(self.X.shape[2]) / self.sfreq

    @property
    def labels(self) -> Array:
        """Class name of each trial (n,)."""
        return np.array(self.class_names)[self.y]

    @property
    def truth(self) -> Truth | None:
        """Ground truth of a single simulated subject, otherwise None; see also :attr:`truths`."""
        return next(iter(self.truths.values()), None) if len(_trial_fields.in_order(self.subject)) == 1 else None

    def counts(self) -> dict[str, dict[str, int]]:
        """Count the trials of each class in each session.

        Returns
        -------
        dict of dict
            Number of trials by session and class name.
        """
        return {
            str(session): {
                name: int(np.sum((self.session == session) & (self.y == c))) for c, name in enumerate(self.class_names)
            }
            for session in _trial_fields.in_order(self.session)
        }

    # ---- selections

    def __getitem__(self, index: Any) -> Self:
        """Select trials by a slice, a mask or indices."""
        rows = np.atleast_1d(np.arange(len(self))[index])
        fields = {name: getattr(self, name)[rows] for name in _ROWS}
        left = _trial_fields.in_order(fields["subject"])
        return replace(self, **fields, truths={s: truth for s, truth in self.truths.items() if s in left})

    def select(
        self,
        *,
        subject: int | Iterable[int] | None = None,
        session: str | Iterable[str] | None = None,
        run: str | Iterable[str] | None = None,
        classes: str | Sequence[str] | None = None,
        channels: str | Sequence[str] | None = None,
    ) -> Self:
        """Select the trials that meet all conditions.

        Parameters
        ----------
        subject : int or iterable of int, optional
        session, run : str or iterable of str, optional
        classes : str or sequence of str, optional
            Classes to keep, which become the class names in this order.
        channels : str or sequence of str, optional
            Channels to keep, in this order.  The selection is added to ``steps``.

        Returns
        -------
        Trials

        Raises
        ------
        ParameterError
            If a value does not occur in the trials.
        """
        keep = np.ones(len(self), dtype=bool)
        for name, requested in (("subject", subject), ("session", session), ("run", run)):
            if requested is not None:
                keep &= self._among(name, requested)
        selected = self[keep]
        if classes is not None:
            selected = selected._only_classes(_trial_fields.names_of(classes))
        return selected if channels is None else selected._only_channels(_trial_fields.names_of(channels))

    def _among(self, name: str, requested: Any) -> NDArray[np.bool_]:
        values = getattr(self, name)
        several = [requested] if isinstance(requested, str | int | np.integer) else list(requested)
        known = [str(value) for value in _trial_fields.in_order(values)]
        for value in several:
            check_one_of(name, str(value), tuple(known))
        return np.isin(values.astype(str), [str(value) for value in several])

    def _only_classes(self, classes: Sequence[str]) -> Self:
        for name in classes:
            check_one_of("classes", name, self.class_names)
        number = {self.class_names.index(name): new for new, name in enumerate(classes)}
        kept = self[np.isin(self.y, list(number))]
        return replace(kept, class_names=tuple(classes), y=np.array([number[c] for c in kept.y.tolist()], dtype=int))

    def _only_channels(self, channels: Sequence[str]) -> Self:
        for name in channels:
            check_one_of("channels", name, self.ch_names)
        from gbwatt.data.preprocessing.steps import Pick

        places = [self.ch_names.index(name) for name in channels]
        steps = (*self.steps, Pick(tuple(channels)).record())
        return replace(self, X=self.X[:, places], ch_names=tuple(channels), steps=steps)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values of some fields.

        Parameters
        ----------
        **changes
            New values by the name of the field.

        Returns
        -------
        Trials
        """
        return replace(self, **changes)

    # ---- conversion

    def to_mne(self) -> mne.EpochsArray:
        """Convert the trials to MNE-Python epochs, see :func:`gbwatt.data.formats.interchange.to_mne`."""
        from gbwatt.data.formats import interchange

        return interchange.to_mne(self)

    @staticmethod
    def from_mne(epochs: mne.BaseEpochs, **options: Any) -> Trials:
        """Convert MNE-Python epochs to trials, see :func:`gbwatt.data.formats.interchange.from_mne`."""
        from gbwatt.data import _reading
        from gbwatt.data.formats import interchange

        trials = interchange.from_mne(epochs, **options)
        _reading.check_trials("epochs", trials)
        return trials

    def to_moabb(self) -> tuple[Array, Array, pd.DataFrame]:
        """Convert the trials to arrays of MOABB, see :func:`gbwatt.data.formats.interchange.to_moabb`."""
        from gbwatt.data.formats import interchange

        return interchange.to_moabb(self)

    @staticmethod
    def from_moabb(
        X: Any, y: Any, metadata: pd.DataFrame, ch_names: Sequence[str], sfreq: float, **options: Any
    ) -> Trials:
        """Convert arrays of MOABB to trials, see :func:`gbwatt.data.formats.interchange.from_moabb`."""
        from gbwatt.data import _reading
        from gbwatt.data.formats import interchange

        trials = interchange.from_moabb(X, y, metadata, ch_names, sfreq, **options)
        _reading.check_trials("arrays of MOABB", trials)
        return trials

    def describe(self) -> Description:
        """Summarize the trials, see :func:`gbwatt.data.description.describe`."""
        from gbwatt.data import description

        return description.describe(self)

    def __repr__(self) -> str:
        n, n_chans, n_times = self.shape
        name = f" {self.dataset}" if self.dataset else ""
        return f"<Trials{name}: {n} of {n_chans} channels and {n_times} samples at {self.sfreq:g} Hz>"

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("Trials are not a sequence; use .X and .y, or trials[0:10] for some of them.")


_KEY = ("subject", "session", "run", "group")  # identifies a segment of a recording
_ROWS = ("X", "y", *_KEY)
_SHARED = tuple(f.name for f in dataclasses.fields(Trials) if f.name not in (*_ROWS, "truths"))


def _truths(truths: Mapping[int, Truth], subject: Array) -> Mapping[int, Truth]:
    subjects = _trial_fields.in_order(subject)
    unknown = [number for number in truths if number not in subjects]
    if unknown:
        raise ParameterError(f"truths has subject {unknown[0]!r}, but the trials are of {subjects}.")
    return _trial_fields.ReadOnly({int(number): truth for number, truth in truths.items()})


def concatenate(parts: Sequence[Trials]) -> Trials:
    """Concatenate trials with the same channels, classes, sampling rate, window, unit, data set and steps.

    Groups are renumbered.  Trials of the same group remain so.  Trials of different parts with the same subject,
    session, run and group are assumed to come from the same recording; different recordings need different names of
    subject, session or run.

    Parameters
    ----------
    parts : sequence of Trials
        One or more.

    Returns
    -------
    Trials

    Raises
    ------
    MismatchError, ShapeError
        If the parts differ in more than their trials.
    ParameterError
        If there are no parts.

    Examples
    --------
    >>> first, second = (
    ...     Trials(X=np.zeros((2, 1, 9)), y=[0, 1], class_names="ab", ch_names=["Oz"], sfreq=100, run=r) for r in "12"
    ... )
    >>> concatenate([first, second]).group.tolist()
    [0, 1, 2, 3]
    """
    if not parts:
        raise ParameterError("'parts' is empty; at least one is needed.")
    for number, part in enumerate(parts):
        _expect_like(parts[0], part, number)
    rows: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ROWS}
    return replace(parts[0], **{**rows, "group": _joined(parts)}, truths=_merged(parts))


def _expect_like(first: Trials, part: Trials, number: int) -> None:
    for name in _SHARED:
        if getattr(part, name) != getattr(first, name):
            raise MismatchError(
                f"parts[{number}] has {name}={getattr(part, name)!r}, but parts[0] has {getattr(first, name)!r}; "
                "select the same channels and classes, and apply the same steps, before."
            )
    if part.shape[1:] != first.shape[1:]:
        raise ShapeError(f"parts[{number}] {part.shape} and parts[0] {first.shape} differ in the number of samples.")


def _merged(parts: Sequence[Trials]) -> dict[int, Truth]:
    """Merge the ground truth of all subjects."""
    truths: dict[int, Truth | None] = {}
    for number, part in enumerate(parts):
        for subject in _trial_fields.in_order(part.subject):
            if truths.setdefault(subject, part.truths.get(subject)) != part.truths.get(subject):
                raise MismatchError(
                    f"parts[{number}] has another truth of subject {subject} than the parts before it; renumber "
                    "subjects of other simulations: replace(subject=..., truths=...)."
                )
    return {subject: truth for subject, truth in truths.items() if truth is not None}


def _joined(parts: Sequence[Trials]) -> Array:
    """Return group numbers (n,) in order of occurrence."""
    inside = [(place, g) for place, part in enumerate(parts) for g in part.group.tolist()]
    across = [row for part in parts for row in zip(*(getattr(part, name).tolist() for name in _KEY), strict=True)]
    return _trial_fields.components(inside, across)
