"""Protocols that split trials into training, validation and test sets."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt._text import number_ranges
from gbwatt._validation import check_at_least, check_number, check_one_of
from gbwatt.data.preprocessing import Noise, Preprocessing
from gbwatt.data.trials import Trials, freeze
from gbwatt.errors import ParameterError, RareClassWarning, ShapeError

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Indices of the training, validation and test trials.

    Parameters
    ----------
    name : str
        Name of the test set, such as ``"subject 1, session E"``.
    train, valid, test : arrays of int
        Indices of trials; ``valid`` may be empty.
    groups : array (n,)
        Group of every trial, see :class:`Trials`.

    Raises
    ------
    ParameterError
        If two of the sets share a trial or a group of trials, or if ``train`` or ``test`` is empty.

    Examples
    --------
    >>> Split("last trials", train=[0, 1], valid=[2], test=[3], groups=np.arange(4))
    <Split last trials: train 2, valid 1, test 1>
    """

    name: str
    train: Indices
    valid: Indices
    test: Indices
    groups: Indices

    def __repr__(self) -> str:
        sizes = ", ".join(f"{part} {len(getattr(self, part))}" for part in ("train", "valid", "test"))
        return f"<Split {self.name}: {sizes}>"

    def __post_init__(self) -> None:
        parts = {part: np.array(getattr(self, part), dtype=np.int64) for part in ("train", "valid", "test")}
        for part, indices in parts.items():
            _check_part(self.name, part, indices, len(self.groups))
            indices.flags.writeable = False
            object.__setattr__(self, part, indices)
        for first, second in (("train", "valid"), ("train", "test"), ("valid", "test")):
            shared = np.intersect1d(self.groups[parts[first]], self.groups[parts[second]])
            if shared.size:
                raise ParameterError(
                    f"split {self.name!r}: group {shared[0]} has trials in both {first} and {second}; "
                    "trials cut from the same segment of a recording must not be divided."
                )

    def merged(self) -> Split:
        """Return the split with the validation trials among the training trials, and none for validation."""
        return replace(self, train=np.sort(np.concatenate([self.train, self.valid])), valid=self.valid[:0])

    def limited(self, y: Any, fraction: float, seed: int = 0) -> Split:
        """Return the split with a random fraction of the training trials of each class.

        Validation and test sets do not change.  With the same seed, smaller fractions are subsets of larger ones.

        Parameters
        ----------
        y : array (n,)
            Class of every trial.
        fraction : float
            Above 0, at most 1.
        seed : int
            Random seed.

        Returns
        -------
        Split
        """
        check_number("fraction", fraction)
        if not 0 < fraction <= 1:
            raise ParameterError(f"fraction={fraction} must be above 0 and at most 1.")
        if len(y) != len(self.groups):
            raise ShapeError(f"'y' has {len(y)} labels, but the split has {len(self.groups)} trials.")
        labels = np.asarray(y)[self.train]
        rng = np.random.default_rng(seed)
        kept = []
        for label in np.unique(labels):
            members = rng.permutation(self.train[labels == label])
            kept.append(members[: max(1, round(fraction * len(members)))])
        return replace(self, train=np.sort(np.concatenate(kept)))


def _check_part(name: str, part: str, indices: Indices, n: int) -> None:
    """Raise an error unless ``indices`` are unique indices of ``n`` trials, and not empty except for validation.

    ``name`` is that of the split, and ``part`` "train", "valid" or "test".
    """
    if not indices.size and part != "valid":
        raise ParameterError(f"split {name!r}: {part} is empty.")
    if indices.ndim != 1 or (indices.size and not (indices.min() >= 0 and indices.max() < n)):
        raise ParameterError(f"split {name!r}: {part} must contain indices of trials, 0 to {n - 1}.")
    if len(np.unique(indices)) != len(indices):
        raise ParameterError(f"split {name!r}: {part} contains a trial twice.")


class Splitter(ABC):
    """Base class of protocols, which split trials into training, validation and test sets."""

    @property
    def per_subject(self) -> int | None:
        """Number of splits per subject; 0 if subjects may differ in it, None if they are split from each other."""
        return 1

    def splits(self, trials: Trials) -> list[Split]:
        """Split the trials.

        Parameters
        ----------
        trials : Trials

        Returns
        -------
        list of Split
            One for each test set.

        Raises
        ------
        ParameterError
            If sessions, runs or subjects are missing, or a class has too few trials.
        """
        return list(self._splits(trials))

    def pooled(self, trials: Trials) -> list[Split]:
        """Split the trials of several subjects for one model.

        Protocols that split each subject by itself give the first split of all subjects together, their second one,
        and so on.  For others, the result is that of :meth:`splits`.

        Parameters
        ----------
        trials : Trials

        Returns
        -------
        list of Split

        Raises
        ------
        ParameterError
            If the subjects have different numbers of splits.

        Examples
        --------
        >>> from gbwatt.data import load
        >>> InOrder().pooled(load("simulated-ssvep", [1, 2]))
        [<Split subjects 1-2, last trials: train 632, valid 120, test 248>]
        """
        splits = self.splits(trials)
        if self.per_subject is None:
            return splits
        by_subject: dict[int, list[Split]] = {}
        for split in splits:
            by_subject.setdefault(int(trials.subject[split.test[0]]), []).append(split)
        counts = {subject: len(several) for subject, several in by_subject.items()}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{n} (subject {subject})" for subject, n in counts.items())
            raise ParameterError(f"the subjects have different numbers of splits: {listed}; use another protocol.")
        return [_unite(list(by_subject), several) for several in zip(*by_subject.values(), strict=True)]

    @abstractmethod
    def _splits(self, trials: Trials) -> Iterator[Split]:
        """Yield the splits; implemented by each protocol."""

    def describe(self) -> dict[str, Any]:
        """Return the protocol and its parameters as a dict for JSON."""
        return {"protocol": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class BySession(Splitter):
    """Split each subject by session; the protocol of the paper for MAMEM-SSVEP-II and BCI-ERN.

    Parameters
    ----------
    train, valid, test : tuples of str
        Sessions.

    Examples
    --------
    >>> from gbwatt.data import load
    >>> BySession().splits(load("simulated-ssvep"))
    [<Split subject 1, session 5: train 300, valid 100, test 100>]
    """

    train: tuple[str, ...] = ("1", "2", "3")
    valid: tuple[str, ...] = ("4",)
    test: tuple[str, ...] = ("5",)

    def _splits(self, trials: Trials) -> Iterator[Split]:
        """Yield one split for each subject, in which each set consists of whole sessions."""
        for subject in np.unique(trials.subject):
            parts = []
            for sessions in (self.train, self.valid, self.test):
                _require_names("session", trials, int(subject), sessions)
                parts.append(np.flatnonzero((trials.subject == subject) & np.isin(trials.session, sessions)))
            yield _make_split(trials, f"subject {subject}, session {'+'.join(self.test)}", *parts)


@dataclass(frozen=True)
class HeldOutSession(Splitter):
    """Train and validate on one session, test on another; the protocol of the paper for BCIC-IV-2a.

    Parameters
    ----------
    train, test : str
        Sessions.
    valid : float
        Fraction of the training session, the last trials of each class, that is used for validation.

    Examples
    --------
    >>> from gbwatt.data import load
    >>> HeldOutSession("T", "E", valid=1 / 8).splits(load("simulated-mi"))
    [<Split subject 1, session E: train 252, valid 36, test 288>]
    """

    train: str = "T"
    test: str = "E"
    valid: float = 1 / 8

    def __post_init__(self) -> None:
        _check_fractions(valid=self.valid)

    def _splits(self, trials: Trials) -> Iterator[Split]:
        """Yield one split for each subject, tested on the session ``test``."""
        for subject in np.unique(trials.subject):
            _require_names("session", trials, int(subject), (self.train, self.test))
            of_subject = trials.subject == subject
            first_session = np.flatnonzero(of_subject & (trials.session == self.train))
            train, valid = _hold_out_last(trials, first_session, self.valid)
            test = np.flatnonzero(of_subject & (trials.session == self.test))
            yield _make_split(trials, f"subject {subject}, session {self.test}", train, valid, test)


@dataclass(frozen=True)
class LeaveOneRoundOut(Splitter):
    """Test on each round of runs in turn.

    For data sets whose classes are recorded in different runs, such as PhysioNet's motor imagery, where leaving out a
    single run would leave out classes.

    Parameters
    ----------
    rounds : tuple of tuples of str
        Runs of each round.
    valid : float
        Fraction of the other rounds, the last trials of each class, that is used for validation.

    Examples
    --------
    >>> from gbwatt.data import load
    >>> LeaveOneRoundOut((("1", "2", "3"), ("4", "5", "6"))).splits(load("simulated-mi"))[0]
    <Split subject 1, runs 1+2+3: train 252, valid 36, test 288>
    """

    rounds: tuple[tuple[str, ...], ...]
    valid: float = 1 / 8

    def __post_init__(self) -> None:
        _check_fractions(valid=self.valid)

    @property
    def per_subject(self) -> int:
        """Number of rounds."""
        return len(self.rounds)

    def _splits(self, trials: Trials) -> Iterator[Split]:
        """Yield one split for each subject and round of runs."""
        for subject in np.unique(trials.subject):
            of_subject = trials.subject == subject
            in_rounds = of_subject & np.isin(trials.run, sum(self.rounds, ()))
            for runs in self.rounds:
                _require_names("run", trials, int(subject), runs)
                test = np.flatnonzero(of_subject & np.isin(trials.run, runs))
                train, valid = _hold_out_last(trials, np.setdiff1d(np.flatnonzero(in_rounds), test), self.valid)
                yield _make_split(trials, f"subject {subject}, runs {'+'.join(runs)}", train, valid, test)


@dataclass(frozen=True)
class LeaveOneSubjectOut(Splitter):
    """Test on each subject in turn, after training on the others.

    Parameters
    ----------
    n_valid : int
        Number of subjects for validation: those after the test subject, in cyclic order.

    Examples
    --------
    >>> from gbwatt.data import load
    >>> LeaveOneSubjectOut().splits(load("simulated-ssvep", [1, 2, 3]))[0]
    <Split subject 1: train 500, valid 500, test 500>
    """

    n_valid: int = 1

    def __post_init__(self) -> None:
        check_at_least("n_valid", self.n_valid, 0)

    @property
    def per_subject(self) -> None:
        """None: subjects are split from each other."""
        return

    def _splits(self, trials: Trials) -> Iterator[Split]:
        """Yield one split for each test subject."""
        subjects = np.unique(trials.subject)
        if len(subjects) < self.n_valid + 2:
            raise ParameterError(
                f"leave-one-subject-out with {self.n_valid} for validation needs at least {self.n_valid + 2} subjects; "
                f"got {len(subjects)}: {subjects.tolist()}. To train on one and test on another, use BySubject "
                "(--train 1 --test 2)."
            )
        for position, subject in enumerate(subjects):
            valid = np.take(subjects, range(position + 1, position + 1 + self.n_valid), mode="wrap")
            in_valid, in_test = np.isin(trials.subject, valid), trials.subject == subject
            parts = [np.flatnonzero(mask) for mask in (~in_valid & ~in_test, in_valid, in_test)]
            yield _make_split(trials, f"subject {subject}", *parts)


@dataclass(frozen=True)
class LeaveOneSessionOut(Splitter):
    """Test on each session of a subject in turn, after training on its other sessions.

    Parameters
    ----------
    valid : float
        Fraction of the training sessions, the last trials of each class, that is used for validation.

    Examples
    --------
    >>> from gbwatt.data import load
    >>> LeaveOneSessionOut().splits(load("simulated-mi"))[1]
    <Split subject 1, session T: train 252, valid 36, test 288>
    """

    valid: float = 1 / 8

    def __post_init__(self) -> None:
        _check_fractions(valid=self.valid)

    @property
    def per_subject(self) -> int:
        """0: subjects may have different numbers of sessions."""
        return 0

    def _splits(self, trials: Trials) -> Iterator[Split]:
        """Yield one split for each subject and session."""
        for subject in np.unique(trials.subject):
            of_subject = np.flatnonzero(trials.subject == subject)
            sessions = np.unique(trials.session[of_subject]).tolist()
            if len(sessions) < 2:
                raise ParameterError(f"subject {subject} has one session, {sessions[0]!r}; at least two are needed.")
            for session in sessions:
                in_test = trials.session[of_subject] == session
                train, valid = _hold_out_last(trials, of_subject[~in_test], self.valid)
                yield _make_split(trials, f"subject {subject}, session {session}", train, valid, of_subject[in_test])


@dataclass(frozen=True)
class BySubject(Splitter):
    """Train on some subjects and test on others.

    Parameters
    ----------
    train, test : tuples of int
        Subjects.
    valid : float
        Fraction of the trials of each training subject, the last ones of each class, that is used for validation.

    Examples
    --------
    >>> from gbwatt.data import load
    >>> BySubject(train=(1, 2), test=(3,)).splits(load("simulated-ssvep", [1, 2, 3]))
    [<Split subject 3: train 880, valid 120, test 500>]
    """

    train: tuple[int, ...]
    test: tuple[int, ...]
    valid: float = 1 / 8

    def __post_init__(self) -> None:
        _check_fractions(valid=self.valid)
        for name in ("train", "test"):
            object.__setattr__(self, name, tuple(map(int, getattr(self, name))))
            if not getattr(self, name):
                raise ParameterError(f"{name}=() has no subject; at least one is needed.")
        if shared := set(self.train) & set(self.test):
            raise ParameterError(f"subject {min(shared)} is in both train and test; leave it out of one of them.")

    @property
    def per_subject(self) -> None:
        """None: subjects are split from each other."""
        return

    def _splits(self, trials: Trials) -> Iterator[Split]:
        """Yield the only split."""
        missing = sorted({*self.train, *self.test} - set(trials.subject.tolist()))
        if missing:
            raise ParameterError(f"subject {missing[0]} has no trials; there are {number_ranges(trials.subject)}.")
        parts = [_hold_out_last(trials, np.flatnonzero(trials.subject == number), self.valid) for number in self.train]
        train, valid = (np.concatenate(rows) for rows in zip(*parts, strict=True))
        test = np.flatnonzero(np.isin(trials.subject, self.test))
        name = "subject" if len(self.test) == 1 else "subjects"
        yield _make_split(trials, f"{name} {number_ranges(self.test)}", train, valid, test)


@dataclass(frozen=True)
class InOrder(Splitter):
    """Split each class in temporal order: first training, then validation, then test.

    Parameters
    ----------
    valid, test : float
        Fractions of the trials of each class.

    Examples
    --------
    >>> from gbwatt.data import load
    >>> InOrder().splits(load("simulated-mi"))
    [<Split subject 1, last trials: train 360, valid 72, test 144>]
    """

    valid: float = 1 / 8
    test: float = 1 / 4

    def __post_init__(self) -> None:
        _check_fractions(valid=self.valid, test=self.test)
        if not self.test:
            raise ParameterError("test=0 leaves no trials for the test; it must be above 0.")

    def _splits(self, trials: Trials) -> Iterator[Split]:
        """Yield one split for each subject, tested on the last trials of each class."""
        for subject in np.unique(trials.subject):
            of_subject = np.flatnonzero(trials.subject == subject)
            remaining, test = _hold_out_last(trials, of_subject, self.test)
            train, valid = _hold_out_last(trials, remaining, self.valid / (1 - self.test))
            yield _make_split(trials, f"subject {subject}, last trials", train, valid, test)


#: Protocols that the command line and experiment files know by name.
PROTOCOLS: Mapping[str, Callable[[], Splitter]] = MappingProxyType(
    {
        "in-order": InOrder,
        "leave-one-session-out": LeaveOneSessionOut,
        "leave-one-subject-out": LeaveOneSubjectOut,
    }
)


def find_protocol(name: str | Splitter | Mapping[str, Any]) -> Splitter:
    """Return a protocol by its name, or from the result of :meth:`Splitter.describe`, also after JSON.

    Examples
    --------
    >>> find_protocol("leave-one-session-out"), find_protocol(BySubject((1, 2), (3,)).describe())
    (LeaveOneSessionOut(valid=0.125), BySubject(train=(1, 2), test=(3,), valid=0.125))
    """
    if isinstance(name, Splitter):
        return name
    if isinstance(name, str):
        check_one_of("protocol", name, tuple(PROTOCOLS))
        return PROTOCOLS[name]()
    kinds = {kind.__name__: kind for kind in Splitter.__subclasses__()}
    check_one_of("protocol", str(name.get("protocol")), tuple(kinds))
    return kinds[name["protocol"]](**{key: freeze(value) for key, value in name.items() if key != "protocol"})


def _unite(subjects: Sequence[int], splits: Sequence[Split]) -> Split:
    """Return one split with the trials of the splits of several subjects."""
    if len(splits) == 1:
        return splits[0]
    rows = {
        part: np.sort(np.concatenate([getattr(one, part) for one in splits])) for part in ("train", "valid", "test")
    }
    tested = {one.name.partition(", ")[2] for one in splits}
    name = f"subjects {number_ranges(subjects)}, {' / '.join(sorted(tested))}"
    return Split(name, groups=splits[0].groups, **rows)


def _make_split(trials: Trials, name: str, train: Indices, valid: Indices, test: Indices) -> Split:
    """Return a split of ``trials``; their groups are passed on, because a split must not divide them."""
    return Split(name, train, valid, test, trials.group)


def _require_names(what: str, trials: Trials, subject: int, names: Sequence[str]) -> None:
    """Raise an error unless a subject has all sessions or runs in ``names``.

    ``what`` is "session" or "run".
    """
    existing = dict.fromkeys(getattr(trials, what)[trials.subject == subject].tolist())
    missing = [name for name in names if name not in existing]
    if missing:
        raise ParameterError(
            f"subject {subject} has no {what} {missing[0]!r}, only {', '.join(map(repr, existing)) or 'none'}."
        )


def _check_fractions(**fractions: float) -> None:
    """Raise an error unless each fraction is from 0 to below 1, and their sum is below 1."""
    for name, value in fractions.items():
        check_number(name, value)
        if not 0 <= value < 1:
            raise ParameterError(f"{name}={value} must be a fraction, at least 0 and below 1.")
    if sum(fractions.values()) >= 1:
        raise ParameterError(f"{' + '.join(fractions)} must be below 1, or no trials are left for training.")


def _hold_out_last(trials: Trials, rows: Indices, fraction: float) -> tuple[Indices, Indices]:
    """Split indices of trials into the first ones, and the last ``fraction`` of each class.

    At least one group of each class is held out, and groups are not divided.  A class with a single group is not held
    out, with a warning, if there are at least two other classes.

    Returns
    -------
    remaining, held_out : arrays of int
        Elements of ``rows``.
    """
    held_out: list[int] = []
    rare: list[str] = []
    for label in np.unique(trials.y[rows]):
        members = rows[trials.y[rows] == label]
        groups = list(dict.fromkeys(trials.group[members].tolist()))
        n_last = max(1, round(fraction * len(groups))) if fraction else 0
        if n_last and len(groups) == 1:
            rare.append(trials.class_names[label])
            continue
        if n_last >= len(groups):
            raise ParameterError(
                f"class {trials.class_names[label]!r} has {len(groups)} trials or groups of trials, too few to split."
            )
        last = groups[len(groups) - n_last :]
        held_out.extend(members[np.isin(trials.group[members], last)].tolist())
    if rare and len(set(trials.y[held_out].tolist())) < 2:
        raise ParameterError(
            f"class {', '.join(map(repr, rare))} has a single trial or group; a validation set needs at least two "
            "other classes."
        )
    if rare:
        warnings.warn(
            f"{', '.join(map(repr, rare))}: classes with a single trial or group are used for training only.",
            RareClassWarning,
            stacklevel=3,
        )
    mask = np.isin(rows, held_out)
    return rows[~mask], rows[mask]


def consecutive_folds(trials: Trials, n: int) -> list[tuple[Indices, Indices]]:
    """Divide trials into folds for cross-validation.

    The trials of each class are divided in temporal order, and groups of trials are not divided.

    Parameters
    ----------
    trials : Trials
    n : int
        Number of folds, at least 2.

    Returns
    -------
    list of (train, test)
        Indices of trials for each fold.

    Raises
    ------
    ParameterError
        If a class has fewer groups of trials than there are folds.

    Examples
    --------
    >>> X, group = np.zeros((8, 1, 9)), [0, 0, 1, 1, 2, 2, 3, 3]
    >>> trials = Trials(X=X, y=[0, 0, 1, 1, 0, 0, 1, 1], group=group, class_names="ab", ch_names=["Oz"], sfreq=100)
    >>> [test.tolist() for _, test in consecutive_folds(trials, 2)]
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    """
    check_at_least("folds", n, 2)
    for label in np.unique(trials.y):
        groups = np.unique(trials.group[trials.y == label])
        if len(groups) < n:
            raise ParameterError(
                f"folds={n}: class {trials.class_names[label]!r} has {len(groups)} trials or groups of trials, too few "
                "for as many folds; use fewer folds."
            )
    return folds_of(trials.y, trials.group, n)


def folds_of(y: Indices, group: Indices, n: int) -> list[tuple[Indices, Indices]]:
    """Divide trials with class numbers (n_trials,) and groups (n_trials,) as :func:`consecutive_folds` does."""
    fold_of_group: dict[int, int] = {}
    for label in np.unique(y):
        groups = list(dict.fromkeys(group[y == label].tolist()))
        for fold, part in enumerate(np.array_split(groups, n)):
            for number in part.tolist():
                fold_of_group.setdefault(number, fold)  # a group may have several classes
    folds = np.array([fold_of_group[number] for number in group.tolist()])
    return [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(n)]


def add_noise(trials: Trials, variance: float, seed: int = 0) -> Trials:
    """Add white Gaussian noise, which depends on the trial and the seed, not on the position of the trial.

    Parameters
    ----------
    trials : Trials
    variance : float
        Variance of the noise, in the squared unit of the samples.
    seed : int
        Random seed.

    Returns
    -------
    Trials

    Examples
    --------
    >>> trials = Trials(X=np.zeros((2, 1, 9)), y=[0, 1], class_names="ab", ch_names=["Oz"], sfreq=100)
    >>> add_noise(trials, variance=0.2).steps[-1]
    {'step': 'noise', 'variance': 0.2, 'seed': 0}
    """
    return Preprocessing(Noise(variance, seed))(trials)
