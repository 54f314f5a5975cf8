"""Inputs of estimators: check arrays, Trials or MNE epochs with their labels, and convert them to tensors."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import train_test_split
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor
from torch.utils.data import Dataset

from gbwatt._text import number_ranges
from gbwatt._validation import check_one_of
from gbwatt.data.trials import Trials
from gbwatt.decoding.signal_metadata import Recorded, Samples
from gbwatt.errors import (
    DataWarning,
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
    """Labels of n trials.

    Attributes
    ----------
    values : array (n,)
        Labels as they were given.
    names : array (n,) or None
        Name of each trial's class, if it is known.
    events : array (n,) or None
        Only for labels that are event codes of the epochs, but differ from the codes of these trials: the names of the
        events with these codes.  Such labels are ambiguous.
    """

    values: Array
    names: Array | None
    events: Array | None = None

    @classmethod
    def of(cls, X: Any, y: Any, n: int, name: str = "y") -> Labels:
        """Labels of n trials: ``y`` if it is given, else the labels stored in the trials.

        Without ``y``, the labels are the class numbers of :class:`~gbwatt.data.Trials` or the event names of
        ``mne.Epochs``.  If ``y`` equals the class numbers or the event codes of the trials, the names of the classes
        are known from the trials; event codes may also be floats, booleans or strings.
        """
        stored = _stored_labels(X)
        if y is None and stored is not None:
            return cls(stored.labels, stored.names)
        values = read_labels(y, n, name)
        if stored is not None and values.dtype.kind in "iu" and np.array_equal(values, stored.codes):
            return cls(values, stored.names)
        texts = values.astype(str) if values.dtype.kind in "OU" else None
        codes = None if stored is None or isinstance(X, Trials) else _event_codes(values, X.event_id)
        if stored is None or codes is None:
            return cls(values, texts)
        if np.array_equal(codes, stored.codes):
            return cls(values, stored.names)
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
        """Index (n,) of each trial's class in ``classes``.

        Classes are matched by name if both sides have names, else by label; a label that is a string may also be a
        name.  Classes without names are named by their numbers ("0", "1"), which are compared with the labels.

        Parameters
        ----------
        classes : array (n_classes,)
            Labels of the model.
        names : sequence of str or None
            Names of ``classes``, if they are known.
        name : str
            Name of the argument in error messages.
        some : bool
            Whether trials of other classes are allowed; their index is -1.

        Raises
        ------
        UnknownLabelError
            If a class is not in ``classes``, unless ``some`` is true.
        MismatchError
            If labels denote one class as event codes of the epochs, and another class as labels of the model.
        """
        index_of = {label: number for number, label in enumerate(classes.tolist())}
        labels = self.values.tolist()
        if names is not None:
            by_name = {label: number for number, label in enumerate(names)}
            if self.names is None:
                index_of = by_name | index_of
            else:
                by_label = {str(label): number for label, number in index_of.items()}
                labels = self.names.tolist()
                index_of = by_name if any(label in by_name for label in labels) else by_label
        if self.events is not None and names is not None:
            self._require_one_meaning(labels, index_of, by_name, names, name)
        unknown = sorted({label for label in labels if label not in index_of}, key=str)
        if unknown and not some:
            raise UnknownLabelError(_unknown_class_message(name, unknown, classes, names))
        return np.array([index_of.get(label, -1) for label in labels], dtype=np.int64)

    def _require_one_meaning(
        self, labels: list[Any], index_of: dict[Any, int], by_name: dict[str, int], names: Sequence[str], name: str
    ) -> None:
        """Raise an error for labels that denote other classes if they are read as event codes of the epochs."""
        events = [] if self.events is None else self.events.tolist()
        if any(event not in by_name for event in events):
            return
        for label, value, event in zip(labels, self.values.tolist(), events, strict=True):
            if label in index_of and index_of[label] != by_name[event]:
                raise MismatchError(
                    f"'{name}' has the label {value!r}, which is the code of the event {event!r} in these epochs, but "
                    f"the label of the class {names[index_of[label]]!r} of the model, and '{name}' is not equal to the "
                    "codes of the epochs, so that it is not clear which one is meant. Give names of classes "
                    f"({', '.join(map(repr, names))}), or {name}=None for the epochs' own events."
                )


def own_labels(X: Any) -> Array | None:
    """Labels stored in the trials: class numbers of Trials, event names of ``mne.Epochs``; None for arrays."""
    stored = _stored_labels(X)
    return None if stored is None else stored.labels


class _StoredLabels(NamedTuple):
    """Labels, class numbers or event codes, and class names that are stored in trials."""

    labels: Array  # (n,), used if the caller gives no labels
    codes: Array  # (n,), class numbers or event codes
    names: Array  # (n,), names of the classes


def _stored_labels(X: Any) -> _StoredLabels | None:
    """Labels stored in Trials or ``mne.Epochs``; None for arrays, which have none."""
    if isinstance(X, Trials):
        return _StoredLabels(X.y, X.y, X.labels)
    if not hasattr(X, "event_id") or not hasattr(X, "events"):
        return None
    names = {code: name for name, code in X.event_id.items()}
    codes = X.events[:, 2]
    labels = np.array([str(names.get(code, code)) for code in codes.tolist()])
    return _StoredLabels(labels, codes, labels)


def _event_codes(values: Array, event_id: Mapping[str, int]) -> Array | None:
    """Labels, numbers or strings, as integer event codes (n,); None if they are event names or not all are codes."""
    if values.dtype.kind in "OU" and set(map(str, values.tolist())) <= set(event_id):
        return None
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        return None
    return numbers.astype(np.int64) if np.isin(numbers, list(event_id.values())).all() else None


def read_labels(y: Any, n: int, name: str) -> Array:
    """Labels as an array (n,); raise ShapeError for another shape.  ``name`` is the argument in the message.

    A column (n, 1) is flattened, with the warning that scikit-learn gives.
    """
    labels = np.asarray(y)
    if labels.shape == (n, 1):
        warnings.warn(
            f"'{name}' is a column (n, 1), but an array (n,) is expected; use {name}.ravel().",
            DataConversionWarning,
            stacklevel=user_stacklevel(),
        )
        labels = labels.ravel()
    if y is None or labels.shape != (n,):
        got = None if y is None else labels.shape
        raise ShapeError(f"'{name}' {got} does not match {n} epochs; ({n},) is needed, a label for each.")
    return labels


def _require_labels(labels: Array, name: str) -> None:
    """Raise NotFiniteError, with the trials, if labels (n,) are missing, or MismatchError if only some are texts."""
    values = labels.tolist()
    missing = [number for number, label in enumerate(values) if label is None or (label != label) is True]
    if missing:
        shown = f"trial{'s' * (len(missing) > 1)} {number_ranges(missing)}"
        raise NotFiniteError(
            f"'{name}' has no label (NaN or None) for {shown}, counted from 0; leave these trials out: "
            f"keep = pandas.notna({name})."
        )
    kinds = {isinstance(label, str): label for label in values}
    if len(kinds) > 1:
        raise MismatchError(
            f"'{name}' has labels of different types, such as {kinds[False]!r} ({type(kinds[False]).__name__}) and "
            f"{kinds[True]!r} (str); give numbers or names only, for example {name}.astype(str)."
        )


def _unknown_class_message(name: str, unknown: Sequence[Any], classes: Array, names: Sequence[str] | None) -> str:
    """Message of the error for labels that are not classes of the model."""
    labels = classes.tolist()
    named = names is not None and list(names) != labels
    remedy = "Give y with" if name == "X" else "Give"  # the labels are those stored in X
    listed = [f"{label!r} ({text})" for label, text in zip(labels, names or (), strict=True)] if named else labels
    which = f"{unknown[0]!r}" + (f" and {len(unknown) - 1} more" if len(unknown) > 1 else "")
    return (
        f"'{name}' has class {which}, but the model was trained on the classes "
        f"{', '.join(map(str, listed)) if named else ', '.join(map(repr, listed))}. {remedy} labels or names of these, "
        "and leave out trials of other classes."
    )


class Examples(Dataset[tuple[Any, ...]]):
    """Epochs (n, n_chans, n_times) and class numbers (n,), perhaps with numbers of domains and weights (n,).

    An item is a tuple of these, without domains and weights if there are none; with weights but without domains, the
    domains are None.  The weights are those of the trials in the loss, in float64.
    """

    def __init__(self, x: Tensor, y: Tensor, domain: Tensor | None = None, weight: Tensor | None = None) -> None:
        self.x, self.y, self.domain, self.weight = x, y, domain, weight

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        parts: tuple[Tensor | None, ...] = (self.x, self.y, self.domain, self.weight)
        while parts[-1] is None:
            parts = parts[:-1]
        if isinstance(index, Tensor) and index.dtype == torch.int64 and index.ndim == 1:
            # several times faster than x[index]
            return tuple(None if part is None else part.index_select(0, index) for part in parts)
        return tuple(None if part is None else part[index] for part in parts)

    def to(self, dtype: torch.dtype, scale: float) -> Examples:
        """Convert the epochs to another unit, multiplying them by ``scale``, and to another dtype."""
        return Examples((self.x * scale).to(dtype), self.y, self.domain, self.weight)

    def without_domains(self) -> Examples:
        """These examples without the numbers of their domains."""
        return Examples(self.x, self.y, None, self.weight)

    def joined(self, other: Examples) -> Examples:
        """These examples, followed by others; both or none have domains.

        If only some have weights, the others get the mean of these weights.
        """
        x, y = torch.cat([self.x, other.x]), torch.cat([self.y, other.y])
        both = self.domain is not None and other.domain is not None
        domain = torch.cat([self.domain, other.domain]) if both else None  # type: ignore[list-item]
        known = [part.weight for part in (self, other) if part.weight is not None]
        if not known:
            return Examples(x, y, domain)
        usual = torch.cat(known).mean()
        weights = [usual.expand(len(part)) if part.weight is None else part.weight for part in (self, other)]
        return Examples(x, y, domain, torch.cat(weights))


@dataclass(frozen=True)
class Sets:
    """Training data, and validation data if there are any.

    Trials that were cut from one stretch of recording have the same number in ``groups`` (n,), which are the groups of
    the trials that were given to ``fit``: of the training data, and of validation data that were separated from these.
    """

    train: Examples
    valid: Examples | None
    groups: Array | None = None

    def to(self, dtype: torch.dtype, scale: float) -> Sets:
        """Convert all epochs to another unit, multiplying them by ``scale``, and to another dtype."""
        return self.map(lambda examples: examples.to(dtype, scale))

    def merged(self) -> Sets:
        """All examples as training data, without validation data."""
        return self if self.valid is None else Sets(self.train.joined(self.valid), None, self.groups)

    def map(self, change: Callable[[Examples], Examples]) -> Sets:
        """Change training data and validation data."""
        return Sets(change(self.train), None if self.valid is None else change(self.valid), self.groups)

    def unit_scale(self) -> float:
        """Factor that brings the median standard deviation of the training channels to 1.

        The scale matters for training: the running statistics of batch normalisation start at 1, and the steps of
        biases do not depend on the unit of the data.
        """
        deviations = self.train.x.double().std(-1)
        deviations = deviations[deviations > 0]
        return 1 / float(deviations.median()) if len(deviations) else 1.0


#: A warning is issued if the scales of the training data and of other data differ by this factor or more.
OTHER_SCALE = 100.0
_MAX_TRIALS = 200  # number of trials from which the scale is estimated
_PACKAGE = str(Path(__file__).parents[1]) + os.sep  # start of the paths of all modules of gbwatt


def median_deviation(x: Array) -> float:
    """Median standard deviation of the channels that are not flat, in up to 200 trials; 0 if all are flat."""
    deviations = x[:: -(-len(x) // _MAX_TRIALS)].std(axis=-1, dtype=np.float64)
    deviations = deviations[deviations > 0]
    return float(np.median(deviations)) if deviations.size else 0.0


def warn_of_scale(x: Array, scale: float, name: str, has_unit: bool = False) -> None:
    """Warn if epochs are probably in another unit than the training data, judging by their standard deviation.

    Parameters
    ----------
    x : array (n, n_chans, n_times)
        Epochs.
    scale : float
        :meth:`Sets.unit_scale` of the training data: the reciprocal of their standard deviation.
    name : str
        Name of the argument in the warning.
    has_unit : bool
        Whether the unit of the training data is known.  If so, epochs with a unit would be converted, and the warning
        suggests to pass such epochs; if not, to train on them.
    """
    deviation = median_deviation(x)
    ratio = deviation * scale
    if deviation and not 1 / OTHER_SCALE < ratio < OTHER_SCALE:
        unit = " It may be in volts, and the training data in microvolts." if 1e-7 < ratio < 1e-5 else ""
        unit = " It may be in microvolts, and the training data in volts." if 1e5 < ratio < 1e7 else unit
        remedy = "give" if has_unit else "train on"
        warnings.warn(
            f"'{name}' has channels with a standard deviation of {deviation:.2g}, the training data had "
            f"{1 / scale:.2g}: a factor of {ratio:.1g}.{unit} Multiply '{name}' by {_format_factor(1 / ratio)}, or "
            f"{remedy} Trials or mne.Epochs, whose unit is known.",
            ScaleWarning,
            stacklevel=user_stacklevel(),
        )


def compare(
    trained: Recorded | None,
    samples: Samples | None,
    other: Recorded | None,
    x: Array,
    name: str,
    prefix: str = "",
) -> None:
    """Raise an error if epochs differ from the training data; without metadata to compare, only warn.

    Parameters
    ----------
    trained : Recorded or None
        Metadata of the training data.
    samples : Samples or None
        Reference and spectrum of the training data, estimated from their samples.
    other : Recorded or None
        Metadata of the epochs.
    x : array (n, n_chans, n_times)
        The epochs.
    name : str
        Name of the argument in messages.
    prefix : str
        Beginning of the warnings.
    """
    if trained is not None:
        trained.require(other, name)
    reference, filters = None, None
    if samples is not None:
        noisy = any(metadata is not None and metadata.is_noisy for metadata in (trained, other))
        unknown = trained is None or not trained.same_filters_are_known(other)
        rate = samples.sfreq if other is None else other.sfreq
        reference, filters = samples.warnings_for(x, name, unknown and not noisy, rate)
    if reference is not None:
        if trained is not None and other is not None:
            raise MismatchError(f"{reference} To skip this check, give the plain array.")
        warnings.warn(prefix + reference, ReferenceWarning, stacklevel=user_stacklevel())
    if filters is None and trained is not None:
        filters = trained.unknown_filters(other, name)
    if filters is not None:
        warnings.warn(prefix + filters, UnknownFilterWarning, stacklevel=user_stacklevel())


def user_stacklevel() -> int:
    """``stacklevel`` at which a warning of the calling function points at the code that called the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


def _format_factor(factor: float) -> str:
    """Text of a factor between units: large and small factors as powers of 1000, others with one digit."""
    return f"1e{round(math.log10(factor) / 3) * 3}" if abs(math.log10(factor)) > 2.5 else f"{factor:.1g}"


def gathered(X: Any) -> Any:
    """MNE epochs as one object with its data in memory; anything else is returned unchanged.

    When scikit-learn indexes MNE epochs, the result is a list of objects with one epoch each, which are concatenated.
    Of epochs that are not preloaded, a copy is loaded: their number is unknown until bad epochs are dropped.
    """
    if hasattr(X, "drop_bad") and not X.preload:
        return X.copy().load_data()
    if not isinstance(X, list | tuple) or not X or not all(hasattr(item, "get_data") for item in X):
        return X
    import mne

    other = [type(item).__name__ for item in X if not isinstance(item, mne.BaseEpochs)]
    if other:
        raise MismatchError(
            f"'X' is a list that has {other[0]}; a list of mne.Epochs, one such object, Trials or an array "
            "(n, n_chans, n_times) is needed: np.stack([one.get_data() for one in X]) of signals of the same length."
        )
    return mne.concatenate_epochs(list(X), add_offset=True, on_mismatch="raise", verbose="ERROR")


def on_device(device: Any) -> torch.device:
    """Return the torch device of a name; raise an error if it is not available."""
    try:
        checked = torch.device(device)
    except (RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ParameterError(f"device={device!r} is not known to torch ({reason}); 'cpu' always is.") from None
    if checked.type == "meta":
        raise ParameterError("device='meta' has no values, and nothing can be computed on it; take device='cpu'.")
    if checked.type == "cuda":
        if not torch.cuda.is_available():
            raise ParameterError(
                f"device={str(device)!r}, but CUDA is not available: torch {torch.__version__} "
                f"{'was built without it' if torch.version.cuda is None else 'finds no GPU and driver'}. Take "
                "device='cpu', or install a torch with CUDA on a machine that has a GPU."
            )
        if (checked.index or 0) >= torch.cuda.device_count():
            raise ParameterError(
                f"device={str(device)!r}, but there are {torch.cuda.device_count()} GPUs, numbered from 0."
            )
    if checked.type == "mps" and not torch.backends.mps.is_available():
        raise ParameterError(f"device={str(device)!r}, but MPS is not available here; take device='cpu'.")
    return checked


def read_epochs(X: Any, name: str = "X") -> Array:
    """Return epochs as a checked array (n, n_chans, n_times) of float32 or float64.

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
        raise MismatchError(
            f"'{name}' is not an array of real numbers ({error}); (n, n_chans, n_times) is needed."
        ) from None
    if x.ndim != 3 or 0 in x.shape:
        hint = f" A single epoch needs an axis: {name}[None]." if x.ndim == 2 else ""
        if x.ndim == 3 and not len(x):
            raise ShapeError(f"'{name}' {x.shape} has no trials; at least one is needed.")
        raise ShapeError(f"'{name}' {x.shape} does not hold epochs; (n, n_chans, n_times) is needed.{hint}")
    _require_finite(x, name)
    return x


def _require_finite(x: Array, name: str) -> None:
    """Raise NotFiniteError, with the first trial and channel, if samples are NaN or infinite in float32."""
    with np.errstate(over="ignore"):  # as models see it, in float32
        bad = ~np.isfinite(x.astype(np.float32, copy=False)).all(axis=2)  # (n, n_chans)
    if bad.any():
        trial, channel = np.argwhere(bad)[0]
        n = len(set(np.nonzero(bad)[0]))
        raise NotFiniteError(
            f"'{name}' {x.shape} has NaN or infinite samples, first in trial {trial}, channel {channel}; "
            f"{n} {'trial is' if n == 1 else 'trials are'} affected. Drop or interpolate {'it' if n == 1 else 'them'}."
        )


def _require_classes(labels: Array) -> None:
    """Raise ParameterError for labels that are not whole numbers; otherwise require what scikit-learn accepts."""
    if labels.dtype.kind == "f":
        broken = labels[labels != np.round(labels)]
        if broken.size:
            raise ParameterError(
                f"'y' has the label {broken[0]:g}, which is not a whole number; give class numbers or names, such as "
                "y.astype(str) for frequencies."
            )
    check_classification_targets(labels)


def encode_labels(y: Any, n: int) -> tuple[Array, Array]:
    """Sorted classes, and the number of each label (n,) among them."""
    labels = read_labels(y, n, "y")
    _require_labels(labels, "y")
    _require_classes(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ParameterError(f"'y' has one class only, {classes.tolist()[0]!r}; at least two are needed.")
    return classes, codes


def encode_some_labels(labels: Labels, classes: Any, X: Any) -> tuple[Array, Array, tuple[str, ...] | None]:
    """Sorted classes, of which some may not occur in ``X``, the number of each label (n,), and names if they are known.

    Raises
    ------
    ParameterError
        If labels are not in ``classes``, or there is one class only.
    """
    _require_labels(labels.values, "y")
    values = np.unique(np.asarray(classes))
    _require_classes(values)
    unknown = sorted(set(labels.values.tolist()) - set(values.tolist()), key=str)
    if unknown:
        raise ParameterError(f"classes={values.tolist()} lack the label {unknown[0]!r} of 'y'; list all classes.")
    if len(values) < 2:
        raise ParameterError(f"classes={values.tolist()} is one class only; at least two are needed.")
    number = {label: place for place, label in enumerate(values.tolist())}
    codes = np.array([number[label] for label in labels.values.tolist()], dtype=np.int64)
    if labels.names is None:
        return values, codes, None
    stored = dict(enumerate(X.class_names)) if isinstance(X, Trials) else {}
    stored |= {code: name for name, code in getattr(X, "event_id", {}).items()}
    name_of = stored | dict(zip(labels.values.tolist(), labels.names.tolist(), strict=True))
    return values, codes, tuple(str(name_of.get(label, label)) for label in values.tolist())


def split(
    x: Array,
    codes: Array,
    classes: Array,
    validation: Any,
    seed: int,
    groups: Array | None = None,
    names: Sequence[str] | None = None,
    domains: Tensor | None = None,
    weights: Tensor | None = None,
) -> Sets:
    """Split trials into training and validation data.

    ``validation`` is a fraction, drawn in the same proportion from each class; indices into ``x``, or a mask; a tuple
    of other epochs and their labels; or None.  Trials of one group stay together.  Labels of other epochs may also be
    ``names`` of the classes.  ``domains`` (n,) are the numbers of the domains of the trials in ``x``, and ``weights``
    (n,) are their weights in the loss.
    """
    trials = _to_examples(x, codes, domains, weights)
    if validation is None or isinstance(validation, tuple):
        sets = Sets(trials, None if validation is None else _validation_set(validation, classes, names, x), groups)
    else:
        own = np.arange(len(x)) if groups is None else groups
        held_out = _validation_mask(codes, classes, validation, seed, own)
        missing = np.setdiff1d(codes, codes[~held_out])
        if missing.size:
            raise ParameterError(f"validation leaves no training trial of class {classes.tolist()[missing[0]]!r}.")
        rows = torch.from_numpy(held_out)
        sets = Sets(Examples(*trials[~rows]), Examples(*trials[rows]), np.concatenate([own[~held_out], own[held_out]]))
    _require_weights(sets, classes)
    return sets


def _to_examples(x: Array, codes: Array, domains: Tensor | None = None, weights: Tensor | None = None) -> Examples:
    """Copy epochs and class numbers to tensors."""
    numbers = torch.from_numpy(codes.astype(np.int64))
    return Examples(torch.from_numpy(np.array(x, order="C")), numbers, domains, weights)


def _require_weights(sets: Sets, classes: Array) -> None:
    """Raise ParameterError if all training trials of a class, or all validation trials, have weight 0."""
    if sets.train.weight is not None:
        for number in sets.train.y.unique().tolist():
            if not sets.train.weight[sets.train.y == number].any():
                raise ParameterError(
                    f"sample_weight is 0 for all training trials of class {classes.tolist()[number]!r}, which could "
                    "not be learnt; give some of them a positive weight, or leave the class out."
                )
    if sets.valid is not None and sets.valid.weight is not None and not sets.valid.weight.any():
        raise ParameterError(
            "sample_weight is 0 for all validation trials, so that their loss is undefined; choose other validation "
            "trials."
        )


def _validation_set(validation: tuple[Any, ...], classes: Array, names: Sequence[str] | None, train: Array) -> Examples:
    """Check the validation data ``(X_valid, y_valid)`` against the training epochs, and convert them."""
    if len(validation) != 2:
        raise ParameterError(
            f"validation is a tuple of {len(validation)}; (X_valid, y_valid) is allowed, or indices as a list or array."
        )
    x = read_epochs(validation[0], "X_valid")
    same_signal(x, train.shape[1:], "X_valid")
    labels = validation[1] if isinstance(validation[1], Labels) else Labels.of(None, validation[1], len(x), "y_valid")
    if (size := median_deviation(train)) > 0:
        warn_of_scale(x, 1 / size, "X_valid")
    return _to_examples(x, labels.places(classes, names, "y_valid"))


def warn_of_window(trained: Recorded | None, other: Recorded | None, name: str) -> None:
    """Warn if epochs begin at another time after the event than the training data."""
    difference = None if trained is None else trained.window_difference(other, name)
    if difference is not None:
        warnings.warn(difference, DataWarning, stacklevel=user_stacklevel())


def same_signal(
    x: Array, signal: tuple[int, ...], name: str, trained: Recorded | None = None, other: Recorded | None = None
) -> None:
    """Raise ShapeError unless epochs have the (n_chans, n_times) of ``signal``, for which the model was built.

    ``trained`` and ``other`` are the metadata of the training data and of the epochs, if they are known.
    """
    if x.shape[1:] == signal:
        return
    text = f"'{name}' {x.shape} does not match the model's input: (n, {signal[0]}, {signal[1]})."
    theirs = None if other is None else other.window(x.shape[2])
    ours = None if trained is None else trained.window(signal[1])
    if theirs is not None and ours is not None and x.shape[1] == signal[0]:
        (start, stop), (tmin, tmax) = theirs, ours
        text += (
            f" '{name}' has the window from {start:g} to {stop:g} s after the event, and the training data that from "
            f"{tmin:g} to {tmax:g} s. Crop epochs in MNE by epochs.crop({tmin:g}, {tmax:g}, include_tmax=False), or "
            f"read files with tmin={tmin:g} and tmax={tmax:g}."
        )
    raise ShapeError(text)


def require_others(X: Any, validation: Any) -> None:
    """Raise an error if validation trials are also training trials; flat trials are ignored, since all are equal."""
    train = {trial.tobytes() for trial in np.asarray(read_epochs(X), dtype=np.float32)}
    valid = np.asarray(read_epochs(validation, "validation"), dtype=np.float32)
    shared = [number for number, trial in enumerate(valid) if trial.tobytes() in train and np.ptp(trial) > 0]
    if shared:
        raise ParameterError(
            f"validation has {len(shared)} trials that are training trials too, first its number {shared[0]}; "
            "use different trials, for instance trials[split.train] and trials[split.valid] of one split."
        )


def _validation_mask(codes: Array, classes: Array, validation: Any, seed: int, groups: Array) -> NDArray[np.bool_]:
    """Mask (n,) of the trials used for validation; raise ParameterError if it would divide a group."""
    n = len(codes)
    if isinstance(validation, Real):
        chosen = _draw_fraction(codes, classes, float(validation), seed, groups)
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


def _draw_fraction(codes: Array, classes: Array, fraction: float, seed: int, groups: Array) -> Array:
    """Draw a fraction of the groups of each class, and return their trials; a group has the class of its first trial.

    A class with a single group stays in the training data.
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
            stacklevel=user_stacklevel(),
        )
        first = first[~np.isin(codes[first], rare)]
    try:
        _, chosen = train_test_split(groups[first], test_size=fraction, stratify=codes[first], random_state=seed)
    except ValueError as error:
        raise ParameterError(
            f"validation={fraction} of {len(codes)} trials leaves a class out ({error}) Give more trials or None."
        ) from None
    return np.flatnonzero(np.isin(groups, chosen))


def read_weights(sample_weight: Any, n: int) -> Tensor | None:
    """Weights of n trials in the loss, in float64; None if they are not given.

    Raises
    ------
    ShapeError
        If there is not one weight for each trial.
    ParameterError
        If weights are negative, NaN or infinite, or all 0.
    """
    if sample_weight is None:
        return None
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"sample_weight is not an array of numbers ({error}); (n,) is needed.") from None
    if weights.shape != (n,):
        raise ShapeError(f"sample_weight {weights.shape} does not match {n} epochs; ({n},) is needed, one for each.")
    wrong = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
    if wrong.size:
        raise ParameterError(
            f"sample_weight is {weights[wrong[0]]:g} for trial {wrong[0]}; finite numbers, 0 or more, are allowed. "
            "Use 0 for trials without influence on the loss."
        )
    if not weights.any():
        raise ParameterError("sample_weight is 0 for all trials; at least two classes need positive weights.")
    return torch.from_numpy(weights)


def normalize_weights(weights: Tensor | None) -> Tensor | None:
    """Weights with mean 1, since only their ratios matter for networks; None if all are equal."""
    if weights is None or bool((weights == weights[0]).all()):
        return None
    weights = weights / weights.max()  # so that the sum is finite
    return weights / weights.mean()


def weigh_classes(
    class_weight: Any,
    classes: Array,
    codes: Array,
    names: Sequence[str] | None = None,
    weights: Tensor | None = None,
) -> Tensor | None:
    """Weight of each class in the loss.

    ``class_weight`` is None, "balanced" (inversely proportional to the number of training trials, or to the sum of
    their ``weights``), or a dict of weights by label or name, in which missing classes have weight 1.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        check_one_of("class_weight", class_weight, ("balanced",))
        present = np.unique(codes)
        if weights is None and len(present) == len(classes):
            return torch.from_numpy(compute_class_weight("balanced", classes=present, y=codes))
        totals = np.bincount(codes, None if weights is None else weights.numpy(), minlength=len(classes))
        balanced = np.ones(len(classes))
        balanced[present] = totals.sum() / (len(present) * totals[present])
        return torch.from_numpy(balanced)
    labels = classes.tolist()
    label_of = dict(zip(names or labels, labels, strict=True)) | {label: label for label in labels}
    wrong = [label for label, weight in class_weight.items() if label not in label_of or not 0 < weight < np.inf]
    if wrong:
        raise ParameterError(
            f"class_weight has {wrong[0]!r}: {class_weight[wrong[0]]!r}; positive weights of {labels} are allowed."
        )
    given = {label_of[label]: float(weight) for label, weight in class_weight.items()}
    return torch.tensor([given.get(label, 1.0) for label in labels], dtype=torch.float64)
