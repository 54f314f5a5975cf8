"""Trials: an immutable container for epochs and their metadata."""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from gbwatt._moved import renamed
from gbwatt._text import UNSAFE
from gbwatt._validation import check_number, check_one_of, check_positive
from gbwatt.data._differences import describe_difference
from gbwatt.errors import DataWarning, MismatchError, NotFiniteError, ParameterError, ShapeError

if TYPE_CHECKING:
    import mne
    import pandas as pd

    from gbwatt.data.description import Description

Array = NDArray[Any]
K = TypeVar("K")
V = TypeVar("V")


class ReadOnly(dict[K, V]):
    """An immutable dict; unlike ``MappingProxyType``, it can be copied and written as JSON."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Raise an error; replaces all methods of ``dict`` that change it."""
        raise TypeError("metadata of trials cannot be changed; create a new dict: {**this, 'name': value}.")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


# ---- ground truth


@dataclass(frozen=True)
class Effect:
    """A known effect by which a class of simulated recordings differs from the others.

    Attributes
    ----------
    kind : "desynchronisation", "oscillation" or "deflection"
        A decrease of power in a band, a phase-locked sine with harmonics, or a slow potential.
    channels : tuple of str
        Electrodes where the effect is strongest.
    band : (low, high) or None
        Frequency band in Hz; None for a deflection.
    window : (start, end)
        Time window in seconds after the event.
    topography : tuple of float
        Weight of the source at every electrode, with a maximum magnitude of one.  For a deflection, its sign is that of
        the potential.

    Examples
    --------
    >>> from gbwatt.data import load
    >>> load("simulated-ssvep").truth.effects["12 Hz"][0].band
    (11.5, 12.5)
    """

    kind: str
    channels: tuple[str, ...]
    band: tuple[float, float] | None
    window: tuple[float, float]
    topography: tuple[float, ...]


@dataclass(frozen=True)
class Truth:
    """Ground truth of the simulated recordings of a subject.

    Attributes
    ----------
    ch_names : tuple of str
        Electrodes of the topographies.
    effects : mapping from str to tuple of Effect
        Effects of each class.
    difficulty : float
    seed : int
        Settings of the simulation.

    Examples
    --------
    >>> from gbwatt.data import load
    >>> truth = load("simulated-ssvep", difficulty=0.2).truth
    >>> truth.difficulty, Truth.from_dict(truth.to_dict()) == truth
    (0.2, True)
    """

    ch_names: tuple[str, ...]
    effects: Mapping[str, tuple[Effect, ...]]
    difficulty: float
    seed: int

    def __post_init__(self) -> None:
        effects = {str(name): tuple(of_class) for name, of_class in self.effects.items()}
        object.__setattr__(self, "effects", ReadOnly(effects))

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that can be written as JSON."""
        values = asdict(self)
        return {**values, "effects": dict(values["effects"])}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Truth:
        """Create the truth from the result of :meth:`to_dict`, also after JSON."""
        effects = {
            name: tuple(
                Effect(
                    kind=e["kind"],
                    channels=tuple(e["channels"]),
                    band=None if e["band"] is None else (float(e["band"][0]), float(e["band"][1])),
                    window=(float(e["window"][0]), float(e["window"][1])),
                    topography=tuple(e["topography"]),
                )
                for e in of_class
            )
            for name, of_class in values["effects"].items()
        }
        return cls(tuple(values["ch_names"]), effects, float(values["difficulty"]), int(values["seed"]))


# ---- validation and conversion


def samples(X: Any, ch_names: tuple[str, ...]) -> Array:
    """Return a copy in float32 of samples (n, n_chans, n_times); require finite values and one row per channel name."""
    x = _to_real_numbers("X", X, np.float32)
    if x.ndim != 3 or 0 in x.shape[1:]:
        raise ShapeError(f"'X' {x.shape} does not have the shape (n, n_chans, n_times).")
    if x.shape[1] != len(ch_names):
        raise ShapeError(f"'X' {x.shape} has {x.shape[1]} channels, but there are {len(ch_names)} channel names.")
    bad = ~np.isfinite(x).all(axis=2)
    if bad.any():
        trial, channel = np.argwhere(bad)[0]
        n = int(np.any(bad, axis=1).sum())
        raise NotFiniteError(
            f"'X' {x.shape} has NaN or infinite samples in {n} trial{'s' * (n != 1)}, first in trial "
            f"{trial}, channel {ch_names[channel]}. Drop or interpolate them."
        )
    return x


#: Maximum length of the name of a channel, class, session, run or data set.
MAX_NAME = 200


def plain_name(what: str, value: Any, limit: int = MAX_NAME) -> str:
    """Return a name as text; require at most ``limit`` characters and no control characters.

    ``what`` says in the error message whose name it is.
    """
    text = str(value)
    shown = ascii(text if len(text) <= 60 else f"{text[:57]}...")
    if wrong := UNSAFE.search(text):
        raise ParameterError(f"{what} has the name {shown} with the control character {wrong.group()!a}; rename it.")
    if len(text) > limit:
        raise ParameterError(
            f"{what} has the name {shown} of {len(text)} characters; at most {limit} are allowed. Shorten it."
        )
    return text


def class_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return class names as a tuple; require at least one, without repetitions."""
    plain = tuple(plain_name("class_names", value) for value in names)
    if len(set(plain)) != len(plain) or not plain:
        raise ParameterError(f"class_names={list(plain)} must be one or more different names.")
    return plain


def codes(y: Any, n: int, names: tuple[str, ...]) -> Array:
    """Return class numbers as integers (n,); require that they are indices into ``names``."""
    numbers = np.array(y)
    if numbers.shape != (n,):
        raise ShapeError(f"'y' {numbers.shape} does not match {n} epochs; ({n},) is needed.")
    if not n:
        return np.empty(0, dtype=np.int64)
    if numbers.dtype.kind not in "iu":
        raise MismatchError(
            f"'y' has dtype {numbers.dtype}; indices into class_names, 0 to {len(names) - 1}, are needed."
        )
    wrong = numbers[(numbers < 0) | (numbers >= len(names))]
    if wrong.size:
        raise ParameterError(f"'y' contains class {wrong[0]}; class_names has 0 to {len(names) - 1}.")
    return numbers.astype(np.int64)


def _to_real_numbers(name: str, value: Any, dtype: Any) -> Array:
    """Return a copy of an array-like as real numbers of a dtype; numbers that are too large for it become infinite.

    ``name`` is what the error message calls the value.
    """
    try:
        array = np.asarray(value)
        if array.dtype.kind == "c":
            raise TypeError
        with np.errstate(over="ignore"):
            return np.array(array, dtype=dtype, order="C")
    except (TypeError, ValueError):
        raise MismatchError(f"'{name}' must be an array of real numbers, got {_short_repr(value)}.") from None


def _short_repr(value: Any) -> str:
    """Return the ``repr`` of a value, shortened to 60 characters, for error messages."""
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."


def whole(name: str, value: Any, n: int) -> Array:
    """Return the field ``name`` of trials as whole numbers (n,), from one number for all trials or one for each."""
    return _repeat_for_trials(name, _to_whole_numbers(name, value), n)


def text(name: str, value: Any, n: int) -> Array:
    """Return the field ``name`` of trials as names (n,), from one name for all trials or one for each."""
    return _repeat_for_trials(name, _to_names(name, value), n)


def _to_whole_numbers(name: str, value: Any) -> Array:
    """Return an array-like of whole numbers as integers; raise an error for fractions, NaN and infinity."""
    numbers = _to_real_numbers(name, value, np.float64)
    if not (np.isfinite(numbers).all() and (numbers == np.round(numbers)).all()):
        raise MismatchError(f"'{name}' must be whole numbers, got {_short_repr(value)}.")
    return numbers.astype(np.int64)


def _to_names(name: str, value: Any) -> Array:
    """Return an array-like of names or whole numbers as an array of text."""
    values = np.array(value)
    if values.dtype.kind in "fc" or (values.dtype.kind == "O" and not all(_is_name(v) for v in values.flat)):
        raise MismatchError(f"'{name}' must be names or whole numbers, got {_short_repr(value)}.")
    texts = values.astype(np.str_)
    for value in np.unique(texts).tolist():
        plain_name(f"'{name}'", value)
    return texts


def _is_name(value: Any) -> bool:
    """Whether a value is text or a whole number, which are allowed as names."""
    return isinstance(value, str | int | np.integer)


def _repeat_for_trials(name: str, values: Array, n: int) -> Array:
    """Return values (n,); a single value () is repeated for all ``n`` trials."""
    if values.shape not in ((), (n,)):
        raise ShapeError(f"'{name}' {values.shape} does not match {n} epochs; one value or ({n},) is needed.")
    return np.array(np.broadcast_to(values, (n,)))


def groups(value: Any, n: int) -> Array:
    """Return group numbers (n,); if ``value`` is -1, the default of :class:`Trials`, each trial is its own group."""
    numbers = _to_whole_numbers("group", value)
    return np.arange(n) if numbers.shape == () and numbers == -1 else _repeat_for_trials("group", numbers, n)


def freeze(value: Any) -> Any:
    """Return an immutable copy of a preprocessing record, with tuples for lists, also in nested values.

    It is the same for a record and for the result of writing the record as JSON and reading it again.
    """
    if isinstance(value, str):
        return plain_name("a step", value, limit=10_000)
    if isinstance(value, Mapping):
        return ReadOnly({plain_name("a step", key): freeze(item) for key, item in value.items()})
    return tuple(freeze(item) for item in value) if isinstance(value, list | tuple) else value


def names_of(value: str | Sequence[str]) -> Sequence[str]:
    """Return a sequence of names; a single name becomes a list of one."""
    return [value] if isinstance(value, str) else value


def in_order(values: Array) -> list[Any]:
    """Return the unique values in order of first occurrence."""
    return list(dict.fromkeys(values.tolist()))


def components(one: Sequence[Hashable], other: Sequence[Hashable]) -> Array:
    """Number the connected components of items, two of which are connected if they share a value in either sequence.

    Groups of trials are merged in this way.  Returns the number of the component of each item (n,), in order of first
    occurrence.

    Examples
    --------
    >>> components("aabbc", "xyyzw").tolist()
    [0, 0, 0, 0, 1]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows, columns = (_number_values(values) for values in (one, other))
    links = coo_array((np.ones(len(rows)), (rows, len(rows) + columns)), shape=(2 * len(rows),) * 2)
    _, labels = connected_components(links, directed=False)
    return _number_values(labels[rows].tolist())


def _number_values(values: Sequence[Hashable]) -> Array:
    """Replace equal values by the same number; numbers count from 0 in order of first occurrence."""
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(value, len(number)) for value in values], dtype=np.int64)


__all__ = ["UNITS", "Effect", "Frame", "Trials", "Truth", "concatenate", "unit_name"]


#: Units of voltage, in volts.  Other data, such as standardised samples, are in "a.u.".
UNITS: Mapping[str, float] = {"V": 1.0, "mV": 1e-3, "µV": 1e-6, "nV": 1e-9}


def unit_name(unit: str, allowed: tuple[str, ...] = tuple(UNITS)) -> str:
    """Return the usual spelling of a unit; "uV" and "μV" (Greek mu) become "µV"."""
    name = {"uV": "µV", "\u03bcV": "µV"}.get(unit, unit)
    check_one_of("unit", name, allowed)
    return name


@dataclass(frozen=True)
class Frame:
    """Metadata of samples (..., n_chans, n_times).

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
        object.__setattr__(self, "ch_names", tuple(plain_name("ch_names", n) for n in self.ch_names))
        repeated = [name for name, n in Counter(self.ch_names).items() if n > 1]
        if repeated or not self.ch_names or "" in self.ch_names:
            problem = f"{repeated[0]!r} twice" if repeated else "no channel" if not self.ch_names else "an empty name"
            raise ParameterError(f"ch_names has {problem}; every channel needs a unique name.")
        object.__setattr__(self, "sfreq", check_positive("sfreq", self.sfreq, "Hz"))
        check_number("tmin", self.tmin)
        object.__setattr__(self, "tmin", float(self.tmin))
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
        x = samples(self.X, frame.ch_names)
        names = class_names(self.class_names)
        values: dict[str, Any] = {
            **vars(frame),
            "X": x,
            "y": codes(self.y, len(x), names),
            "class_names": names,
            "subject": (subject := whole("subject", self.subject, len(x))),
            "session": text("session", self.session, len(x)),
            "run": text("run", self.run, len(x)),
            "group": groups(self.group, len(x)),
            "dataset": plain_name("dataset", self.dataset, limit=4096),  # it may be a path
            "steps": tuple(freeze(step) for step in self.steps),
            "truths": _checked_truths(self.truths, subject),
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
        return next(iter(self.truths.values()), None) if len(in_order(self.subject)) == 1 else None

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
            for session in in_order(self.session)
        }

    # ---- selections

    def __getitem__(self, index: Any) -> Self:
        """Select trials by a slice, a mask or indices."""
        rows = np.atleast_1d(np.arange(len(self))[index])
        fields = {name: getattr(self, name)[rows] for name in _TRIAL_FIELDS}
        remaining = in_order(fields["subject"])
        return replace(self, **fields, truths={s: truth for s, truth in self.truths.items() if s in remaining})

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
                keep &= self._matching_trials(name, requested)
        selected = self[keep]
        if classes is not None:
            selected = selected._only_classes(names_of(classes))
        return selected if channels is None else selected._only_channels(names_of(channels))

    def _matching_trials(self, name: str, requested: Any) -> NDArray[np.bool_]:
        """Return a mask (n,) of the trials whose field ``name`` (subject, session or run) has a requested value."""
        values = getattr(self, name)
        several = [requested] if isinstance(requested, str | int | np.integer) else list(requested)
        existing = [str(value) for value in in_order(values)]
        for value in several:
            check_one_of(name, str(value), tuple(existing))
        return np.isin(values.astype(str), [str(value) for value in several])

    def _only_classes(self, classes: Sequence[str]) -> Self:
        """Return the trials of some classes, which are renumbered in the order of ``classes``."""
        for name in classes:
            check_one_of("classes", name, self.class_names)
        number = {self.class_names.index(name): new for new, name in enumerate(classes)}
        kept = self[np.isin(self.y, list(number))]
        return replace(kept, class_names=tuple(classes), y=np.array([number[c] for c in kept.y.tolist()], dtype=int))

    def _only_channels(self, channels: Sequence[str]) -> Self:
        """Return trials with some channels, in the order of ``channels``, and add the selection to the steps."""
        for name in channels:
            check_one_of("channels", name, self.ch_names)
        from gbwatt.data.preprocessing.steps import Pick

        indices = [self.ch_names.index(name) for name in channels]
        steps = (*self.steps, Pick(tuple(channels)).record())
        return replace(self, X=self.X[:, indices], ch_names=tuple(channels), steps=steps)

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


_SEGMENT_KEY = ("subject", "session", "run", "group")  # their values together identify a segment of a recording
#: Fields with one value for each trial, and fields that hold for all trials.
_TRIAL_FIELDS = ("X", "y", *_SEGMENT_KEY)
_SHARED_FIELDS = tuple(f.name for f in dataclasses.fields(Trials) if f.name not in (*_TRIAL_FIELDS, "truths"))


def _checked_truths(truths: Mapping[int, Truth], subject: Array) -> Mapping[int, Truth]:
    """Return the ground truth of simulated subjects as an immutable mapping; refuse subjects without trials."""
    subjects = in_order(subject)
    unknown = [number for number in truths if number not in subjects]
    if unknown:
        raise ParameterError(f"truths has subject {unknown[0]!r}, but the trials are of {subjects}.")
    return ReadOnly({int(number): truth for number, truth in truths.items()})


def concatenate(parts: Sequence[Trials]) -> Trials:
    """Concatenate trials with the same channels, classes, sampling rate, window, unit, data set and steps.

    Groups are renumbered.  Trials of the same group remain so.  Trials of different parts with the same subject,
    session, run and group are assumed to come from the same recording; different recordings need different names of
    subject, session or run.  A :class:`~gbwatt.errors.DataWarning` is issued if all trials of a part are of such
    groups.

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
    joined = concatenate_named(parts, [f"parts[{number}]" for number in range(len(parts))])
    _warn_about_same_segments(parts)
    return joined


def concatenate_named(parts: Sequence[Trials], names: Sequence[str]) -> Trials:
    """Concatenate trials like :func:`concatenate`, with the name of each part in errors, such as its file."""
    for number, part in enumerate(parts):
        _expect_compatible(parts[0], part, (names[number], names[0]))
    rows: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _TRIAL_FIELDS}
    return replace(parts[0], **{**rows, "group": _joined_groups(parts)}, truths=_merge_truths(parts))


def _expect_compatible(first: Trials, part: Trials, names: tuple[str, str]) -> None:
    """Raise an error unless ``part`` can be concatenated with ``first``; ``names`` are theirs in the message."""
    for field_name in _SHARED_FIELDS:
        same = _same_history(part, first) if field_name == "steps" else False
        if not same and getattr(part, field_name) != getattr(first, field_name):
            raise MismatchError(describe_difference(field_name, part, first, names))
    if part.shape[1:] != first.shape[1:]:
        raise ShapeError(f"{names[0]} {part.shape} and {names[1]} {first.shape} differ in the number of samples.")


def _same_history(part: Trials, first: Trials) -> bool:
    """Whether two parts were prepared alike: by the same steps, after recordings with the same filters and reference.

    The names of the events do not matter, nor does the reference of recordings that a step has re-referenced.
    """
    histories = []
    for one in (part, first):
        names = [step["step"] for step in one.steps]
        ignored = {"events", "custom_ref_applied"} if "reference" in names else {"events"}
        histories.append(
            [{k: v for k, v in step.items() if step["step"] != "recorded" or k not in ignored} for step in one.steps]
        )
    return bool(histories[0] == histories[1])


def _warn_about_same_segments(parts: Sequence[Trials]) -> None:
    """Warn if trials that are alone in their groups have the groups of another part, as in two files of one name."""
    seen: dict[Any, int] = {}
    for number, part in enumerate(parts):
        rows = list(zip(*(getattr(part, name).tolist() for name in _SEGMENT_KEY), strict=True))
        owners = {seen.get(key) for key in rows}
        if 1 < len(rows) == len(set(rows)) and None not in owners:
            warnings.warn(
                f"all trials of parts[{number}] have the subject, session, run and group of trials in "
                f"parts[{owners.pop()}], and form groups with them, as if they were cut from the same recording. If "
                "they were not, change the run of one: trials.replace(run='2').",
                DataWarning,
                stacklevel=3,
            )
        if len(rows) == len(set(rows)):
            seen |= dict.fromkeys(rows, number)


def _merge_truths(parts: Sequence[Trials]) -> dict[int, Truth]:
    """Return the ground truth of the subjects of all parts; raise an error if two parts differ about a subject."""
    truths: dict[int, Truth | None] = {}
    for number, part in enumerate(parts):
        for subject in in_order(part.subject):
            if truths.setdefault(subject, part.truths.get(subject)) != part.truths.get(subject):
                raise MismatchError(
                    f"parts[{number}] has another truth of subject {subject} than the parts before it; renumber "
                    "subjects of other simulations: replace(subject=..., truths=...)."
                )
    return {subject: truth for subject, truth in truths.items() if truth is not None}


def _joined_groups(parts: Sequence[Trials]) -> Array:
    """Return the group numbers (n,) of the trials of all parts together, numbered in order of occurrence.

    Trials have the same group if they have it within a part, or have the same subject, session, run and group in two
    parts.
    """
    within_parts = [(number, g) for number, part in enumerate(parts) for g in part.group.tolist()]
    keys = [key for part in parts for key in zip(*(getattr(part, name).tolist() for name in _SEGMENT_KEY), strict=True)]
    return components(within_parts, keys)


__getattr__ = renamed(__name__, {"settled": "freeze"})
