"""Labels of trials, by one rule wherever they come from: a class has a label and a name, and both are understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data.trials import Trials
from gbwatt.errors import MismatchError, ShapeError, UnknownLabelError

Array = NDArray[Any]


@dataclass(frozen=True)
class Labels:
    """Labels (n,) as they were given, and the name of each trial's class, if it is known.

    Labels that are event codes of the epochs, but not the codes of these very trials, may mean something else;
    ``events`` are the names of the events with these codes.
    """

    values: Array
    names: Array | None
    events: Array | None = None

    @classmethod
    def of(cls, X: Any, y: Any, n: int, name: str = "y") -> Labels:
        """Labels of n trials: those given, else those that the trials bring with them.

        Without ``y``, :class:`~gbwatt.data.Trials` have the numbers of their classes, and ``mne.Epochs`` the names of
        their events.  With a ``y`` that has the class numbers or the event codes of the trials, the names are known;
        the codes may also be floating numbers, truth values or texts.
        """
        own = _own(X)
        if y is None and own is not None:
            values, _, names = own
            return cls(values, names)
        values = read_labels(y, n, name)
        if own is not None and values.dtype.kind in "iu" and np.array_equal(values, own[1]):
            return cls(values, own[2])
        texts = values.astype(str) if values.dtype.kind in "OU" else None
        codes = None if own is None or isinstance(X, Trials) else _codes(values, X.event_id)
        if own is None or codes is None:
            return cls(values, texts)
        if np.array_equal(codes, own[1]):
            return cls(values, own[2])
        event = {code: name for name, code in X.event_id.items()}
        return cls(values, texts, np.array([str(event[code]) for code in codes.tolist()]))

    def names_of(self, classes: Array) -> tuple[str, ...] | None:
        """Names of the classes, in their order, if they are known."""
        if self.names is None:
            return None
        name_of = dict(zip(self.values.tolist(), self.names.tolist(), strict=True))
        return tuple(str(name_of[label]) for label in classes.tolist())

    def places(
        self, classes: Array, names: Sequence[str] | None, name: str = "y", *, some: bool = False
    ) -> NDArray[np.int64]:
        """Place (n,) of each trial's class among ``classes``, whose ``names`` may be known.

        Names are compared where they are known on both sides, else labels; a label that is a text may also be a name.
        Classes without names are called by their numbers ("0", "1"), which are compared with the labels.
        All must be known; with ``some``, the place of those that are not is -1.  Labels that are event codes and mean
        one class by the events of the epochs, and another by the model's labels, are refused.
        """
        place = {label: number for number, label in enumerate(classes.tolist())}
        given = self.values.tolist()
        if names is not None:
            by_name = {label: number for number, label in enumerate(names)}
            if self.names is None:
                place = by_name | place
            else:
                by_label = {str(label): number for label, number in place.items()}
                given = self.names.tolist()
                place = by_name if any(label in by_name for label in given) else by_label
        if self.events is not None and names is not None:
            self._require_one_meaning(given, place, by_name, names, name)
        unknown = sorted({label for label in given if label not in place}, key=str)
        if unknown and not some:
            raise UnknownLabelError(_unknown(name, unknown, classes, names))
        return np.array([place.get(label, -1) for label in given], dtype=np.int64)

    def _require_one_meaning(
        self, given: list[Any], place: dict[Any, int], by_name: dict[str, int], names: Sequence[str], name: str
    ) -> None:
        """Refuse labels that are other classes if they are read as event codes of the epochs."""
        events = [] if self.events is None else self.events.tolist()
        if any(event not in by_name for event in events):
            return
        for label, value, event in zip(given, self.values.tolist(), events, strict=True):
            if label in place and place[label] != by_name[event]:
                raise MismatchError(
                    f"'{name}' has the label {value!r}, which is the code of the event {event!r} in these epochs, but "
                    f"the label of the class {names[place[label]]!r} of the model, and '{name}' is not equal to the "
                    "codes of the epochs, so that it is not clear which one is meant. Give names of classes "
                    f"({', '.join(map(repr, names))}), or {name}=None for the epochs' own events."
                )


def own_labels(X: Any) -> Array | None:
    """Labels that epochs bring with them: class numbers of Trials, names of the events of ``mne.Epochs``."""
    own = _own(X)
    return None if own is None else own[0]


def _own(X: Any) -> tuple[Array, Array, Array] | None:
    """Labels, codes and names of the trials' classes."""
    if isinstance(X, Trials):
        return X.y, X.y, X.labels
    if not hasattr(X, "event_id") or not hasattr(X, "events"):
        return None
    names = {code: name for name, code in X.event_id.items()}
    codes = X.events[:, 2]
    labels = np.array([str(names.get(code, code)) for code in codes.tolist()])
    return labels, codes, labels


def _codes(values: Array, event_id: Mapping[str, int]) -> Array | None:
    """Labels as event codes (n,), if all of them are such, as numbers or texts; names of events are none."""
    if values.dtype.kind in "OU" and set(map(str, values.tolist())) <= set(event_id):
        return None
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        return None
    return numbers.astype(np.int64) if np.isin(numbers, list(event_id.values())).all() else None


def read_labels(y: Any, n: int, name: str) -> Array:
    """Labels as an array (n,)."""
    labels = np.asarray(y)
    if y is None or labels.shape != (n,):
        got = None if y is None else labels.shape
        raise ShapeError(f"'{name}' {got} does not match {n} epochs; ({n},) is needed, a label for each.")
    return labels


def _unknown(name: str, unknown: Sequence[Any], classes: Array, names: Sequence[str] | None) -> str:
    known = classes.tolist()
    named = names is not None and list(names) != known
    listed = [f"{label!r} ({text})" for label, text in zip(known, names or (), strict=True)] if named else known
    which = f"{unknown[0]!r}" + (f" and {len(unknown) - 1} more" if len(unknown) > 1 else "")
    return (
        f"'{name}' has class {which}, but the model was trained on the classes "
        f"{', '.join(map(str, listed)) if named else ', '.join(map(repr, listed))}. Give labels or names of these, and "
        "leave out trials of other classes."
    )
