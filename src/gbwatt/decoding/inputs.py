"""Inputs of estimators: arrays, Trials or MNE epochs and any labels become checked examples."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor
from torch.utils.data import Dataset

from gbwatt._validation import check_one_of
from gbwatt.data.trials import Trials
from gbwatt.decoding.signal_metadata import Recorded, Samples
from gbwatt.errors import (
    MismatchError,
    NotFiniteError,
    ParameterError,
    RareClassWarning,
    ReferenceWarning,
    ScaleWarning,
    ShapeError,
    UnknownFilterWarning,
    UnknownLabelError,
)

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


class Examples(Dataset[tuple[Tensor, Tensor]]):
    """Epochs (n, n_chans, n_times) and their class numbers (n,)."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Any) -> tuple[Tensor, Tensor]:
        if isinstance(index, Tensor) and index.dtype == torch.int64 and index.ndim == 1:
            return self.x.index_select(0, index), self.y.index_select(0, index)  # several times faster than x[index]
        return self.x[index], self.y[index]

    def to(self, dtype: torch.dtype, scale: float) -> Examples:
        """The same in another unit and precision."""
        return Examples((self.x * scale).to(dtype), self.y)


@dataclass(frozen=True)
class Sets:
    """What a model learns from and what it is selected on."""

    train: Examples
    valid: Examples | None

    def to(self, dtype: torch.dtype, scale: float) -> Sets:
        """The same in another unit and precision."""
        return Sets(self.train.to(dtype, scale), None if self.valid is None else self.valid.to(dtype, scale))

    def unit_scale(self) -> float:
        """Factor that brings the median standard deviation of the training channels to 1.

        Volts or microvolts: running statistics of a batch normalisation start at 1, and biases move in steps of that
        size.
        """
        deviations = self.train.x.double().std(-1)
        deviations = deviations[deviations > 0]
        return 1 / float(deviations.median()) if len(deviations) else 1.0


#: Factor between the scales of training data and others from which on a warning is given.
OTHER_SCALE = 100.0
_ENOUGH = 200  # trials to judge the scale by
_PACKAGE = str(Path(__file__).parents[1]) + os.sep


def median_deviation(x: Array) -> float:
    """Median standard deviation of the channels that are not flat, in up to 200 trials; 0 if all are flat."""
    deviations = x[:: -(-len(x) // _ENOUGH)].std(axis=-1, dtype=np.float64)
    deviations = deviations[deviations > 0]
    return float(np.median(deviations)) if deviations.size else 0.0


def warn_of_scale(x: Array, scale: float, name: str, known: bool = False) -> None:
    """Warn of epochs that, multiplied by ``scale``, are far from a standard deviation of 1: they are in another unit.

    ``scale`` is :meth:`Sets.unit_scale` of the training data, and ``known`` whether the unit of these is.
    """
    found = median_deviation(x)
    ratio = found * scale
    if found and not 1 / OTHER_SCALE < ratio < OTHER_SCALE:
        unit = " That is what volts are to microvolts." if 1e-7 < ratio < 1e-5 else ""
        unit = " That is what microvolts are to volts." if 1e5 < ratio < 1e7 else unit
        remedy = "give" if known else "train on"
        warnings.warn(
            f"'{name}' has channels with a standard deviation of {found:.2g}, the training data had {1 / scale:.2g}: a "
            f"factor of {ratio:.1g}.{unit} Multiply '{name}' by {_power_of_ten(1 / ratio)}, or {remedy} Trials or "
            "mne.Epochs, whose unit is known.",
            ScaleWarning,
            stacklevel=_level_of_user(),
        )


def compare(trained: Recorded | None, samples: Samples | None, known: Recorded | None, x: Array, name: str) -> None:
    """Refuse epochs of another kind than the training data, or warn of them where they do not say what they are.

    ``trained`` and ``samples`` are what is known of the training data, and what their samples tell; ``known`` is what
    is known of the epochs, and ``x`` their samples.
    """
    if trained is not None:
        trained.require(known, name)
    reference, filters = None, None
    if samples is not None:
        noisy = any(one is not None and one.is_noisy for one in (trained, known))
        unknown = trained is None or not trained.same_filters_are_known(known)
        rate = samples.sfreq if known is None else known.sfreq
        reference, filters = samples.compared(x, name, unknown and not noisy, rate)
    if reference is not None:
        if trained is not None and known is not None:
            raise MismatchError(f"{reference} If you know better, give the plain array.")
        warnings.warn(reference, ReferenceWarning, stacklevel=_level_of_user())
    if filters is None and trained is not None:
        filters = trained.unknown_filters(known, name)
    if filters is not None:
        warnings.warn(filters, UnknownFilterWarning, stacklevel=_level_of_user())


def _level_of_user() -> int:
    """``stacklevel`` at which a warning of the calling function points at the code that called the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


def _power_of_ten(factor: float) -> str:
    return f"1e{round(math.log10(factor) / 3) * 3}" if abs(math.log10(factor)) > 2.5 else f"{factor:.1g}"


def gathered(X: Any) -> Any:
    """Epochs of MNE as one object with its data in memory; anything else is returned as it is.

    Indexing by scikit-learn makes a list of objects with one epoch each.  Epochs that are not preloaded do not know
    their number before those to be rejected are dropped; a copy is loaded, the given object stays as it is.
    """
    if hasattr(X, "drop_bad") and not X.preload:
        return X.copy().load_data()
    if not isinstance(X, list | tuple) or not X or not all(hasattr(one, "get_data") for one in X):
        return X
    import mne

    other = [type(one).__name__ for one in X if not isinstance(one, mne.BaseEpochs)]
    if other:
        raise MismatchError(
            f"'X' is a list that has {other[0]}; a list of mne.Epochs, one such object, Trials or an array "
            "(n, n_chans, n_times) is needed: np.stack([one.get_data() for one in X]) of signals of the same length."
        )
    return mne.concatenate_epochs(list(X), add_offset=True, on_mismatch="raise", verbose="ERROR")


def on_device(device: Any) -> torch.device:
    """The device of that name, which must be there."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ParameterError(f"device={device!r} is not known to torch ({reason}); 'cpu' always is.") from None
    if found.type == "meta":
        raise ParameterError("device='meta' has no values, and nothing can be computed on it; take device='cpu'.")
    if found.type == "cuda":
        if not torch.cuda.is_available():
            raise ParameterError(
                f"device={str(device)!r}, but CUDA is not available: torch {torch.__version__} "
                f"{'was built without it' if torch.version.cuda is None else 'finds no GPU and driver'}. Take "
                "device='cpu', or install a torch with CUDA on a machine that has a GPU."
            )
        if (found.index or 0) >= torch.cuda.device_count():
            raise ParameterError(
                f"device={str(device)!r}, but there are {torch.cuda.device_count()} GPUs, numbered from 0."
            )
    if found.type == "mps" and not torch.backends.mps.is_available():
        raise ParameterError(f"device={str(device)!r}, but MPS is not available here; take device='cpu'.")
    return found


def read_epochs(X: Any, name: str = "X") -> Array:
    """Check epochs (n, n_chans, n_times): a floating array.

    ``X`` is an array, nested lists, :class:`~gbwatt.data.Trials`, or an object like ``mne.Epochs`` with ``get_data()``.
    """
    if isinstance(X, Trials):
        X = X.X
    elif hasattr(X, "get_data"):
        X = X.get_data()
    try:
        x = np.asarray(X)
        x = x if x.dtype in (np.float32, np.float64) else x.astype(np.float32, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise MismatchError(f"'{name}' is no array of real numbers ({error}); (n, n_chans, n_times) is.") from None
    if x.ndim != 3 or 0 in x.shape:
        hint = f" A single epoch needs an axis: {name}[None]." if x.ndim == 2 else ""
        raise ShapeError(f"'{name}' {x.shape} does not hold epochs; (n, n_chans, n_times) is needed.{hint}")
    _require_finite(x, name)
    return x


def _require_finite(x: Array, name: str) -> None:
    with np.errstate(over="ignore"):  # as models see it, in float32
        bad = ~np.isfinite(x.astype(np.float32, copy=False)).all(axis=2)  # (n, n_chans)
    if bad.any():
        trial, channel = np.argwhere(bad)[0]
        raise NotFiniteError(
            f"'{name}' {x.shape} has NaN or infinite samples, first in trial {trial}, channel {channel}; "
            f"{len(set(np.nonzero(bad)[0]))} trials are affected. Drop or interpolate them."
        )


def encode_labels(y: Any, n: int) -> tuple[Array, Array]:
    """Sorted classes, and the number of each label (n,) among them."""
    labels = read_labels(y, n, "y")
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ParameterError(f"'y' has one class only, {classes.tolist()[0]!r}; at least two are needed.")
    return classes, codes


def split(
    x: Array,
    codes: Array,
    classes: Array,
    validation: Any,
    seed: int,
    groups: Array | None = None,
    names: Sequence[str] | None = None,
) -> Sets:
    """Set apart the validation trials.

    ``validation`` is a fraction, drawn in the same proportion from each class; indices into ``x``, or a mask; a tuple
    of other epochs and their labels; or None.  Trials of one group stay together.  ``names`` of the classes are
    understood as labels.
    """
    if validation is None:
        return Sets(_trials(x, codes), None)
    if isinstance(validation, tuple):
        return Sets(_trials(x, codes), _separate(validation, classes, names, x))
    held_out = _held_out(codes, classes, validation, seed, np.arange(len(x)) if groups is None else groups)
    missing = np.setdiff1d(np.arange(len(classes)), codes[~held_out])
    if missing.size:
        raise ParameterError(f"validation leaves no training trial of class {classes.tolist()[missing[0]]!r}.")
    return Sets(_trials(x[~held_out], codes[~held_out]), _trials(x[held_out], codes[held_out]))


def _trials(x: Array, codes: Array) -> Examples:
    return Examples(torch.from_numpy(np.array(x, order="C")), torch.from_numpy(codes.astype(np.int64)))


def _separate(validation: tuple[Any, ...], classes: Array, names: Sequence[str] | None, train: Array) -> Examples:
    if len(validation) != 2:
        raise ParameterError(
            f"validation is a tuple of {len(validation)}; (X_valid, y_valid) is allowed, or indices as a list or array."
        )
    x = read_epochs(validation[0], "X_valid")
    same_signal(x, train.shape[1:], "X_valid")
    labels = validation[1] if isinstance(validation[1], Labels) else Labels.of(None, validation[1], len(x), "y_valid")
    if (size := median_deviation(train)) > 0:
        warn_of_scale(x, 1 / size, "X_valid")
    return _trials(x, labels.places(classes, names, "y_valid"))


def same_signal(x: Array, signal: tuple[int, ...], name: str) -> None:
    """Require the channels and samples that a model was made for."""
    if x.shape[1:] != signal:
        raise ShapeError(f"'{name}' {x.shape} does not match the model's input: (n, {signal[0]}, {signal[1]}).")


def require_others(X: Any, validation: Any) -> None:
    """Refuse validation trials that are training trials too; flat ones are all alike and do not count."""
    known = {trial.tobytes() for trial in np.asarray(read_epochs(X), dtype=np.float32)}
    asked = np.asarray(read_epochs(validation, "validation"), dtype=np.float32)
    shared = [number for number, trial in enumerate(asked) if trial.tobytes() in known and np.ptp(trial) > 0]
    if shared:
        raise ParameterError(
            f"validation has {len(shared)} trials that are training trials too, first its number {shared[0]}; "
            "take other trials, as trials[split.train] and trials[split.valid] of one split are."
        )


def _held_out(codes: Array, classes: Array, validation: Any, seed: int, groups: Array) -> NDArray[np.bool_]:
    """A mask of the trials for validation."""
    n = len(codes)
    if isinstance(validation, Real):
        chosen = _fraction(codes, classes, float(validation), seed, groups)
    else:
        chosen = np.asarray(validation)
        if chosen.dtype == bool and chosen.shape == (n,):
            chosen = np.flatnonzero(chosen)
    inside = chosen.ndim == 1 and chosen.dtype.kind in "iu" and chosen.size and chosen.min() >= 0 and chosen.max() < n
    if not inside or len(np.unique(chosen)) != len(chosen):
        raise ParameterError(
            f"validation={validation!r} must be a fraction, different indices from 0 to {n - 1}, a mask, a tuple "
            "(X_valid, y_valid), Trials, mne.Epochs or None."
        )
    mask = np.zeros(n, dtype=bool)
    mask[chosen] = True
    divided = np.intersect1d(groups[mask], groups[~mask])
    if divided.size:
        raise ParameterError(
            f"validation has some trials of group {divided[0]} and training the others; they were cut from one stretch "
            "of recording and must stay together."
        )
    return mask


def _fraction(codes: Array, classes: Array, fraction: float, seed: int, groups: Array) -> Array:
    """Trials of the fraction of groups of each class, where a group has the class of its first trial.

    All trials of a class with a single group are left to the training.
    """
    if not 0 < fraction < 1:
        raise ParameterError(f"validation={fraction} must be between 0 and 1; None is no validation.")
    _, first = np.unique(groups, return_index=True)
    first = np.sort(first)
    counts = np.bincount(codes[first])
    rare = np.flatnonzero(counts == 1)
    if rare.size and len(first) > rare.size:
        warnings.warn(
            f"{rare.size} of {np.count_nonzero(counts)} classes have one trial, or trials of one group only: "
            f"{', '.join(repr(classes.tolist()[place]) for place in rare)}. These are used for training, not for "
            "validation.",
            RareClassWarning,
            stacklevel=_level_of_user(),
        )
        first = first[~np.isin(codes[first], rare)]
    try:
        _, chosen = train_test_split(groups[first], test_size=fraction, stratify=codes[first], random_state=seed)
    except ValueError as error:
        raise ParameterError(
            f"validation={fraction} of {len(codes)} trials leaves a class out ({error}) Give more trials or None."
        ) from None
    return np.flatnonzero(np.isin(groups, chosen))


def weigh_classes(class_weight: Any, classes: Array, codes: Array, names: Sequence[str] | None = None) -> Tensor | None:
    """Weight of each class in the loss: None, "balanced" (inverse to its training trials), or by label, else 1.

    A label may also be given by its name.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        check_one_of("class_weight", class_weight, ("balanced",))
        return torch.from_numpy(compute_class_weight("balanced", classes=np.arange(len(classes)), y=codes))
    known = classes.tolist()
    place = dict(zip(names or known, known, strict=True)) | {label: label for label in known}
    wrong = [label for label, weight in class_weight.items() if label not in place or not 0 < weight < np.inf]
    if wrong:
        raise ParameterError(
            f"class_weight has {wrong[0]!r}: {class_weight[wrong[0]]!r}; positive weights of {known} are allowed."
        )
    weights = {place[label]: float(weight) for label, weight in class_weight.items()}
    return torch.tensor([weights.get(label, 1.0) for label in known], dtype=torch.float64)
