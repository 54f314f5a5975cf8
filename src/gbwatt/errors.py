"""Exceptions and warnings of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from gbwatt._text import printable


class InputError(ValueError):
    """An argument is not what the function can work with; the base of the errors below."""


class ShapeError(InputError):
    """An array has the wrong shape."""


class MismatchError(InputError, TypeError):
    """Arguments that belong together differ in type, dtype or device."""


class NotFiniteError(InputError):
    """A matrix or weight is NaN or infinite."""


class RangeError(NotFiniteError):
    """A result is too large, or too small, for the floating-point type of its arguments."""


class NotSymmetricError(InputError):
    """A matrix is not symmetric, beyond rounding."""


class NotSPDError(InputError):
    """A matrix is not symmetric positive definite."""


class WeightsError(InputError):
    """Weights are negative or do not sum to one."""


class ParameterError(InputError):
    """A parameter has a value that is not allowed."""


class DomainError(InputError):
    """A geodesic is evaluated outside the interval on which it exists."""


class DoubleBackwardError(RuntimeError):
    """A second derivative is requested, but only the first is implemented."""


class ScaleWarning(UserWarning):
    """Samples are probably in another unit than the training data, judging by their standard deviation."""


class UnknownFilterWarning(UserWarning):
    """The filters of epochs are unknown, or their spectrum indicates other filters than those of the training data."""


class ReferenceWarning(UserWarning):
    """Samples have another reference than the training data, judging by their mean over channels."""


class AlignmentWarning(UserWarning):
    """Initial weights were trained on recordings that were not aligned."""


class RareClassWarning(UserWarning):
    """A class has so few trials that none can be set apart for validation."""


class CalibrationWarning(UserWarning):
    """A temperature cannot be estimated: predictions of the calibration trials are all correct, or not informative."""


class ConvergenceWarning(RuntimeWarning):
    """An iteration stopped before its tolerance was reached."""


class CacheError(InputError):
    """A cache cannot be written, is incomplete, or does not match its manifest."""


class NonFiniteLossError(RuntimeError):
    """The loss or its gradient is NaN or infinite; training was stopped before the weights were updated.

    Attributes
    ----------
    epoch, batch : int
        Epoch and batch in which it occurred, both counted from 1.
    culprit : str
        Description of the first tensor that is not finite.
    """

    def __init__(self, epoch: int, batch: int, culprit: str, remedy: str, training: bool = True) -> None:
        self.epoch, self.batch, self.culprit = epoch, batch, culprit
        phase = "training" if training else "validation"
        super().__init__(
            f"the {phase} loss is not finite in epoch {epoch}, batch {batch}: {culprit}. {remedy} The best weights so "
            "far are kept."
        )

    def __reduce__(self) -> tuple[Any, ...]:  # an error has to reach the parent of a worker process
        return _rebuild, (self.epoch, self.batch, self.culprit, str(self))


def _rebuild(epoch: int, batch: int, culprit: str, message: str) -> NonFiniteLossError:
    """Rebuild a NonFiniteLossError from a pickle, with its complete message."""
    error = NonFiniteLossError(epoch, batch, culprit, "")
    error.args = (message,)
    return error


class CheckpointError(ValueError):
    """A checkpoint is damaged, or belongs to another training."""


class UnknownLabelError(MismatchError):
    """A label that is none of the model's classes."""


class PackageError(ModuleNotFoundError):
    """An optional package is missing or cannot be loaded."""

    @classmethod
    def missing(cls, package: str, purpose: str, extra: str) -> Self:
        """Return the error for a package that is not installed, with the command that installs it.

        Parameters
        ----------
        package : str
            Name of the package.
        purpose : str
            What it is needed for.
        extra : str
            Extra of gbwatt that installs it.

        Examples
        --------
        >>> print(PackageError.missing("dask.distributed", "a Dask cluster", "dask"))
        dask.distributed is not installed, but a Dask cluster needs it: pip install 'gbwatt[dask]'
        """
        return cls(f"{package} is not installed, but {purpose} needs it: {install_command(extra)}", name=package)


def install_command(extra: str) -> str:
    """Return the command that installs an extra of gbwatt."""
    return f"pip install 'gbwatt[{extra}]'"


class PluginError(ImportError):
    """A plugin of an installed package cannot be loaded, or is not what its group of entry points requires."""


class WorkerError(RuntimeError):
    """A worker process has died without a Python error, perhaps for lack of memory."""


class ModelFileError(ValueError):
    """A model cannot be written, or a file of one is missing, damaged, or of another version."""


class WeightsFileError(ModelFileError):
    """A weights file is missing, damaged or unsafe, or does not fit the backbone."""


class ConflictWarning(UserWarning):
    """Two places have different scores for the same run."""


class StoreError(InputError):
    """A store, or a file of rows, cannot be read or written."""


class DataError(InputError):
    """A file is not what its format says: the message has the file, what was found and what was expected."""

    def __init__(self, file: str | Path, found: str, expected: str, remedy: str = "") -> None:
        super().__init__(printable(f"{file}: found {found}; expected {expected}.{' ' + remedy if remedy else ''}"))
        self.file = Path(file)


class MissingFileError(InputError, FileNotFoundError):
    """A file that a data set needs does not exist."""


class MissingStreamError(InputError):
    """A stream of the Lab Streaming Layer is not found."""


class DataWarning(UserWarning):
    """A recording can be read, but something in it should be looked at: its scale, unit, trials left out."""


class EDFError(DataError):
    """An EDF or BDF file is damaged.  ``kind`` is the kind of damage, ``reason`` describes it."""

    def __init__(self, file: Path, kind: str, found: str, expected: str, remedy: str = "Copy it again.") -> None:
        super().__init__(file, found, expected, remedy)
        self.kind = kind
        self.reason = f"found {found}; expected {expected}"


class TimingWarning(DataWarning):
    """A recording has another sampling rate, or shorter trials, than the data set says."""


class UnknownPositionError(ParameterError):
    """A channel has a name that says nothing about its place on the scalp."""
