"""The record that is saved beside a trained model: its data, settings, trials seen in training, and test scores."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt import _io
from gbwatt._text import number_ranges
from gbwatt.data.loading import numbered_files
from gbwatt.errors import InputError

FILE = "training.json"
#: Version of the file.  Files written before it had a version have none, and may lack a checksum.
FORMAT = 1

#: What a trial was used for when a model was trained, and the words for it.
USES = {
    "training": "used for training",
    "validation": "used for validation",
    "unseen": "not used for training or validation",
    "unrecognised": "not recognised among the training and validation trials",
    "unknown": "unknown whether used for training",
}
_PARTS = {"train": "training", "valid": "validation"}  # parts of a split, and the use of their trials


@dataclass(frozen=True, kw_only=True)
class TrainingRecord:
    """Data, settings and scores of a training.

    :func:`~gbwatt.decoding.train_and_evaluate` and ``gbwatt train`` write it as ``training.json`` beside the model.

    Attributes
    ----------
    status : "done" or "interrupted"
        An interrupted training keeps the best weights so far, which are not tested.
    dataset : str
        Name of the data set, or the path of the file.
    subject : int or str
        Number of the subject; several numbers as text, such as "1-3, 5".
    split : int or None
        Number of the split among those that the protocol of the data set makes.  None if the trials cannot be loaded
        again by name: they were passed as Python objects, or are windows of a corpus.
    protocol : dict or None
        Protocol, as :meth:`gbwatt.data.Splitter.describe` gives it; None for that of the data set.
    tested_on : str
        Name of the split, for example "subject 1, session 5".
    simulated : bool
        Whether the recordings are simulated.
    data : str or None
        Fingerprint of the recordings, see :func:`gbwatt.data.loading.fingerprint`.
    reading : dict
        Options that the recordings were read with.
    trials : dict
        Number of trials for "train", "valid" and "test".
    model, recipe, options
        Name of the model, recipe if it has one, and other model options.
    seed : int
        Random seed.
    checkpoint : str or None
        Folder of the checkpoint.
    versions : dict
        Versions of Python and of packages.
    training : dict
        Learning rate, batch size, weight decay and maximum number of epochs; also initial weights of other models,
        frozen parts, factors of learning rates, alignment and its domains, and the temperature of the calibration, if
        they were set.
    settings : dict
        Paradigm and the reason for its choice, model options, initial weights and schedule, see
        :class:`~gbwatt.decoding.paradigms.Settings`.
    early_stopping : int or None
        Patience of early stopping, in epochs.
    epochs, best_epoch : int
        Number of epochs, and the epoch whose weights were kept, counted from 1.
    at_best_epoch : dict
        Losses and validation accuracy of that epoch.
    parameters : int
        Number of trainable parameters.
    seconds : float
        Duration of the training.
    test : dict or None
        Scores of the test trials, as :meth:`gbwatt.decoding.Evaluation.to_dict` gives them; None if not tested.
    seen : dict
        Numbers of the trials used for training, "train", and for validation, "valid".
    format : int
        Version of the file format.

    Examples
    --------
    >>> record = TrainingRecord(dataset="mine.npz", subject=1, data=None, seen={"train": [0, 1], "valid": [2]})
    >>> TrainingRecord.from_json(record.to_json()) == record
    True
    """

    status: str = "done"
    dataset: str
    subject: int | str
    split: int | None = 0
    protocol: Mapping[str, Any] | None = None
    tested_on: str = "test trials"
    simulated: bool = False
    data: str | None
    reading: Mapping[str, Any] = field(default_factory=dict)
    trials: Mapping[str, int] = field(default_factory=dict)
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    checkpoint: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    recipe: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    early_stopping: int | None = None
    epochs: int = 0
    best_epoch: int = 0
    at_best_epoch: Mapping[str, Any] = field(default_factory=dict)
    parameters: int | None = None
    seconds: float | None = None
    test: Mapping[str, Any] | None = None
    seen: Mapping[str, list[int]]
    format: int = FORMAT

    def __post_init__(self) -> None:
        """Raise InputError for fields of a wrong type, as read from a damaged file."""
        kinds = {"dataset": str, "subject": int | str, "data": str | None, "seen": Mapping}
        wrong = [name for name, kind in kinds.items() if not isinstance(getattr(self, name), kind)]
        if not wrong and not all(_are_indices(self.seen.get(part)) for part in _PARTS):
            wrong = ["seen"]
        if wrong:
            raise InputError(f"wrong value for {', '.join(wrong)} in a training record.")

    @property
    def subjects(self) -> int | list[int]:
        """Number of the subject, or numbers of several subjects."""
        numbers = _numbers(self.subject)
        return numbers[0] if len(numbers) == 1 else numbers

    def to_dict(self) -> dict[str, Any]:
        """All fields as values that JSON keeps; ``test`` is left out if there was no test."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        if self.test is None:
            del values["test"]
        return values

    def to_json(self) -> str:
        """JSON text, with a checksum."""
        content = _io.to_json(_io.without_nan(self.to_dict()), indent=None)
        return _io.to_json(_io.sealed(content), indent=None)

    @classmethod
    def from_json(cls, text: str, name: str = "the training record") -> TrainingRecord:
        """Read what :meth:`to_json` wrote.

        Parameters
        ----------
        text : str
            JSON text.  Records of earlier versions, with fewer fields and no checksum, are read, too.
        name : str
            What the text is called in errors.

        Raises
        ------
        InputError
            If the text is damaged, or was written by a newer version of gbwatt.
        """
        try:
            values = json.loads(text)
            if (_io.KEY in values or "format" in values) and not _io.is_intact(values):
                raise ValueError(f"the content does not match {_io.KEY!r}")
            version = values.get("format", FORMAT)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise _damaged_error(name, error) from None
        if type(version) is int and version > FORMAT:
            raise InputError(
                f"{name} has format {version}, but this version of gbwatt reads formats up to {FORMAT}; update gbwatt."
            )
        names = {one.name for one in fields(cls)}
        try:
            return cls(**{key: value for key, value in values.items() if key in names})
        except (InputError, TypeError) as error:
            raise _damaged_error(name, error) from None

    @classmethod
    def read(cls, folder: str | Path) -> TrainingRecord | None:
        """Read the record in the folder of a model; None if there is none.

        Raises
        ------
        InputError
            If the file is damaged, or was written by a newer version of gbwatt.
        """
        path = Path(folder) / FILE
        if not path.exists():
            return None
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise _damaged_error(str(path), error) from None
        return cls.from_json(text, str(path))

    def write(self, folder: str | Path) -> None:
        """Write the record into the folder of its model."""
        _io.write_atomically(Path(folder) / FILE, self.to_json().encode())

    def uses(
        self,
        dataset: str,
        subject: int | str | None,
        n: int,
        *,
        reading: Mapping[str, Any] | None = None,
        data: Collection[str] | None = None,
    ) -> NDArray[Any] | None:
        """Use of each of a subject's ``n`` trials in training, one of :data:`USES`.

        Parameters
        ----------
        dataset : str
            Name of the data set.
        subject : int, str or None
            Number of the subject, or several as in :attr:`subject`; None for a recording without subjects of its own,
            whose number is only a name.
        n : int
            Number of trials.
        reading : dict, optional
            Options that the recordings were read with.  With other options than in training, trials may overlap with
            those of the training, and their use is "unknown".
        data : collection of str, optional
            Fingerprints of a file.  If given, they are compared instead of the name: the file may be a copy.

        Returns
        -------
        array (n,) or None
            None for another data set or file, which may be a copy of the training data in another format, if the
            record has no split, and for some of the subjects of training with others.  Trials of other subjects of the
            same data set are "unseen".
        """
        same = self.dataset == dataset if data is None else self.data in data
        if self.split is None or not same:
            return None
        if subject is not None and self.subject != subject:
            shared = set(_numbers(self.subject)) & set(_numbers(subject))
            return None if shared else np.full(n, "unseen", dtype=object)
        if self.reading != (reading or {}):
            return np.full(n, "unknown", dtype=object)
        uses = np.full(n, "unseen", dtype=object)
        for part, use in _PARTS.items():
            uses[[number for number in self.seen[part] if number < n]] = use
        return uses


def trained_and_tested(record: Mapping[str, Any]) -> tuple[str, str] | None:
    """In words, the recordings that a model was trained and tested on; None if these are parts of the same ones.

    Examples
    --------
    >>> by_subject = {"protocol": "BySubject", "train": [1, 2], "test": [3]}
    >>> trained_and_tested({"dataset": "1=a.edf + 2=b.edf + 3=c.edf", "protocol": by_subject})
    ('a.edf, b.edf', 'c.edf')
    >>> trained_and_tested({"dataset": "simulated-mi", "protocol": by_subject})
    ('simulated-mi, subjects 1-2', 'subject 3')
    """
    protocol, files = record.get("protocol") or {}, numbered_files(record["dataset"])
    one_subject = len(files) > 1 and len({number for number, _ in files}) == 1
    if protocol.get("protocol") == "BySession" and one_subject:
        files = list(enumerate((file for _, file in files), start=1))  # the sessions of one subject
    elif protocol.get("protocol") != "BySubject":
        return None
    train, test = (list(map(int, protocol[part])) for part in ("train", "test"))
    if all(number is not None for number, _ in files):
        first, second = (", ".join(str(file) for number, file in files if number in part) for part in (train, test))
        return first, second
    first, second = (f"subject{'s' * (len(part) > 1)} {number_ranges(part)}" for part in (train, test))
    return f"{record['dataset']}, {first}", second


def _numbers(subjects: int | str) -> list[int]:
    """Numbers of subjects, from a number or a text such as "1-3, 5"."""
    pairs = [part.strip().split("-") for part in str(subjects).split(",")]
    return [number for pair in pairs for number in range(int(pair[0]), int(pair[-1]) + 1)]


def _damaged_error(name: str, error: Exception) -> InputError:
    """The error for a record that cannot be read."""
    return InputError(
        f"{name} is damaged ({error!r}); copy it again, or delete it: then it is unknown what the model was trained on."
    )


def _are_indices(numbers: Any) -> bool:
    """Whether a value is a list of non-negative integers."""
    return isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers)


#: Packages whose version may affect a result.
PACKAGES = ("gbwatt", "torch", "numpy", "scipy", "scikit-learn", "geoopt", "mne", "braindecode", "accelerate")


def versions() -> dict[str, str]:
    """Versions of Python and of installed packages, and the kind of machine, for records of trainings and results."""
    installed = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed
