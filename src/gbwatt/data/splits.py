"""Protocols: which trials are for training, for validation and for test."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt._validation import check_at_least, check_number
from gbwatt.data.preprocessing import Noise, Preprocessing
from gbwatt.data.trials import Trials
from gbwatt.errors import ParameterError, RareClassWarning, ShapeError

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Numbers of the trials for training, validation and test.

    No trial is in two of them, and no group of trials (segments of one stretch of recording) is divided between two:
    a split that did so cannot be made.

    Attributes
    ----------
    name : str
        What is tested, ``"session E"`` for instance.
    train, valid, test : arrays of int
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
        for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
            shared = np.intersect1d(self.groups[parts[one]], self.groups[parts[other]])
            if shared.size:
                raise ParameterError(
                    f"split {self.name!r}: group {shared[0]} has trials in both {one} and {other}; "
                    "what was cut from one stretch of recording must stay on one side."
                )

    def limited(self, y: Any, fraction: float, seed: int = 0) -> Split:
        """The same split with a part of the training trials: that fraction of each class, drawn with ``seed``.

        Validation and test are not touched, and with one seed smaller parts are contained in larger ones.
        """
        check_number("fraction", fraction)
        if not 0 < fraction <= 1:
            raise ParameterError(f"fraction={fraction} must be above 0 and at most 1.")
        if len(y) != len(self.groups):
            raise ShapeError(f"'y' has {len(y)} labels, but the split is of {len(self.groups)} trials.")
        labels = np.asarray(y)[self.train]
        rng = np.random.default_rng(seed)
        kept = []
        for label in np.unique(labels):
            members = rng.permutation(self.train[labels == label])
            kept.append(members[: max(1, round(fraction * len(members)))])
        return replace(self, train=np.sort(np.concatenate(kept)))


def _check_part(name: str, part: str, indices: Indices, n: int) -> None:
    if not indices.size and part != "valid":
        raise ParameterError(f"split {name!r}: no trial is left for {part}.")
    if indices.ndim != 1 or (indices.size and not (indices.min() >= 0 and indices.max() < n)):
        raise ParameterError(f"split {name!r}: {part} must have numbers of trials, 0 to {n - 1}.")
    if len(np.unique(indices)) != len(indices):
        raise ParameterError(f"split {name!r}: {part} has a trial twice.")


class Splitter(ABC):
    """A rule that divides trials."""

    @property
    def per_subject(self) -> int | None:
        """How many splits each subject has; None if splits are between subjects."""
        return 1

    def splits(self, trials: Trials) -> list[Split]:
        """One split for each part that is tested."""
        return list(self._splits(trials))

    @abstractmethod
    def _splits(self, trials: Trials) -> Iterator[Split]: ...

    def describe(self) -> dict[str, Any]:
        """The rule in a form that JSON keeps."""
        return {"protocol": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class BySession(Splitter):
    """Sessions for training, for validation and for test: MAMEM-SSVEP-II and BCI-ERN in the paper."""

    train: tuple[str, ...] = ("1", "2", "3")
    valid: tuple[str, ...] = ("4",)
    test: tuple[str, ...] = ("5",)

    def _splits(self, trials: Trials) -> Iterator[Split]:
        for subject in np.unique(trials.subject):
            parts = []
            for sessions in (self.train, self.valid, self.test):
                _require("session", trials, int(subject), sessions)
                parts.append(np.flatnonzero((trials.subject == subject) & np.isin(trials.session, sessions)))
            yield _split(trials, f"subject {subject}, session {'+'.join(self.test)}", *parts)


@dataclass(frozen=True)
class HeldOutSession(Splitter):
    """One session for training, of which the last trials of each class are for validation, another for test.

    With an eighth for validation, BCIC-IV-2a in the paper.
    """

    train: str = "T"
    test: str = "E"
    valid: float = 1 / 8

    def __post_init__(self) -> None:
        _check_fractions(valid=self.valid)

    def _splits(self, trials: Trials) -> Iterator[Split]:
        for subject in np.unique(trials.subject):
            _require("session", trials, int(subject), (self.train, self.test))
            own = trials.subject == subject
            known = np.flatnonzero(own & (trials.session == self.train))
            train, valid = _last_of_each_class(trials, known, self.valid)
            test = np.flatnonzero(own & (trials.session == self.test))
            yield _split(trials, f"subject {subject}, session {self.test}", train, valid, test)


@dataclass(frozen=True)
class LeaveOneRoundOut(Splitter):
    """Each round of runs is tested once; of the others, the last trials of each class are for validation.

    For sets in which classes are recorded in different runs, such as PhysioNet's motor imagery: leaving out single
    runs would leave out classes.
    """

    rounds: tuple[tuple[str, ...], ...]
    valid: float = 1 / 8

    def __post_init__(self) -> None:
        _check_fractions(valid=self.valid)

    @property
    def per_subject(self) -> int:
        """One for each round."""
        return len(self.rounds)

    def _splits(self, trials: Trials) -> Iterator[Split]:
        for subject in np.unique(trials.subject):
            own = trials.subject == subject
            for runs in self.rounds:
                _require("run", trials, int(subject), runs)
                test = np.flatnonzero(own & np.isin(trials.run, runs))
                known = np.flatnonzero(own & ~np.isin(trials.run, runs) & np.isin(trials.run, sum(self.rounds, ())))
                train, valid = _last_of_each_class(trials, known, self.valid)
                yield _split(trials, f"subject {subject}, runs {'+'.join(runs)}", train, valid, test)


@dataclass(frozen=True)
class LeaveOneSubjectOut(Splitter):
    """Each subject is tested once; the next ``n_valid`` subjects are for validation, all others for training."""

    n_valid: int = 1

    def __post_init__(self) -> None:
        check_at_least("n_valid", self.n_valid, 0)

    @property
    def per_subject(self) -> None:
        """None: they are between subjects."""
        return

    def _splits(self, trials: Trials) -> Iterator[Split]:
        subjects = np.unique(trials.subject)
        if len(subjects) < self.n_valid + 2:
            raise ParameterError(
                f"leaving a subject out, with n_valid={self.n_valid}, needs at least {self.n_valid + 2} subjects; "
                f"there are {len(subjects)}: {subjects.tolist()}."
            )
        for place, subject in enumerate(subjects):
            valid = np.take(subjects, range(place + 1, place + 1 + self.n_valid), mode="wrap")
            in_valid, in_test = np.isin(trials.subject, valid), trials.subject == subject
            parts = [np.flatnonzero(mask) for mask in (~in_valid & ~in_test, in_valid, in_test)]
            yield _split(trials, f"subject {subject}", *parts)


@dataclass(frozen=True)
class InOrder(Splitter):
    """Of each class the first trials for training, the next for validation, the last for test: one session, in time."""

    valid: float = 1 / 8
    test: float = 1 / 4

    def __post_init__(self) -> None:
        _check_fractions(valid=self.valid, test=self.test)
        if not self.test:
            raise ParameterError("test=0 leaves nothing to test on.")

    def _splits(self, trials: Trials) -> Iterator[Split]:
        for subject in np.unique(trials.subject):
            own = np.flatnonzero(trials.subject == subject)
            known, test = _last_of_each_class(trials, own, self.test)
            train, valid = _last_of_each_class(trials, known, self.valid / (1 - self.test))
            yield _split(trials, f"subject {subject}, last trials", train, valid, test)


def _split(trials: Trials, name: str, train: Indices, valid: Indices, test: Indices) -> Split:
    return Split(name, train, valid, test, trials.group)


def _require(what: str, trials: Trials, subject: int, names: Sequence[str]) -> None:
    """Require sessions or runs of a subject."""
    there = dict.fromkeys(getattr(trials, what)[trials.subject == subject].tolist())
    missing = [name for name in names if name not in there]
    if missing:
        raise ParameterError(
            f"subject {subject} has no {what} {missing[0]!r}; there are {', '.join(map(repr, there)) or 'none'}."
        )


def _check_fractions(**fractions: float) -> None:
    for name, value in fractions.items():
        check_number(name, value)
        if not 0 <= value < 1:
            raise ParameterError(f"{name}={value} must be a fraction, 0 or more and below 1.")
    if sum(fractions.values()) >= 1:
        raise ParameterError(f"{' + '.join(fractions)} must be below 1: nothing is left for training.")


def _last_of_each_class(trials: Trials, rows: Indices, fraction: float) -> tuple[Indices, Indices]:
    """Trials without, and with, the last ``fraction`` of each class, one group at least; groups are not divided.

    A class with a single group is left to the first of the two, with a warning, if there are two others at least.
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
                f"class {trials.class_names[label]!r} has {len(groups)} trials, or groups of them; too few to set some "
                "apart and keep some."
            )
        last = groups[len(groups) - n_last :]
        held_out.extend(members[np.isin(trials.group[members], last)].tolist())
    if rare and len(set(trials.y[held_out].tolist())) < 2:
        raise ParameterError(
            f"class {', '.join(map(repr, rare))} has one trial or one group; with fewer than two other classes no "
            "validation set can be made."
        )
    if rare:
        warnings.warn(
            f"{', '.join(map(repr, rare))}: classes with one trial, or trials of one group only, stay in the training.",
            RareClassWarning,
            stacklevel=3,
        )
    mask = np.isin(rows, held_out)
    return rows[~mask], rows[mask]


def add_noise(trials: Trials, variance: float, seed: int = 0) -> Trials:
    """The same trials and labels with white Gaussian noise of a variance in the unit of the samples, squared.

    Examples
    --------
    >>> trials = Trials(X=np.zeros((2, 1, 9)), y=[0, 1], class_names="ab", ch_names=["Oz"], sfreq=100)
    >>> add_noise(trials, variance=0.2).steps[-1]
    {'step': 'noise', 'variance': 0.2, 'seed': 0}
    """
    return Preprocessing(Noise(variance, seed))(trials)
