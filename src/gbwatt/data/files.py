"""What all readers share: errors that name the file, MATLAB files, and cutting trials out of recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import NDArray

from gbwatt import checks

Array = NDArray[Any]


class DataError(checks.InputError):
    """A file is not what its format says: the message has the file, what was found and what was expected."""

    def __init__(self, file: str | Path, found: str, expected: str, remedy: str = "") -> None:
        super().__init__(f"{file}: found {found}; expected {expected}.{' ' + remedy if remedy else ''}")
        self.file = Path(file)


class MissingFileError(checks.InputError, FileNotFoundError):
    """A file that a data set needs is not there."""


def read_mat(file: Path, *names: str) -> dict[str, Array]:
    """Variables of a MATLAB file, by name."""
    if not file.is_file():
        raise MissingFileError(f"{file} is not there.")
    try:
        content = scipy.io.loadmat(file)
    except Exception as error:  # SciPy raises whatever a damaged stream leads to
        size = file.stat().st_size
        raise DataError(
            file, f"{size} bytes that are no MATLAB file ({error})", "a MATLAB file, version 4 to 7.2", "Copy it again."
        ) from error
    missing = [name for name in names if name not in content]
    if missing:
        there = ", ".join(name for name in content if not name.startswith("__")) or "none"
        raise DataError(file, f"the variables {there}", f"also {', '.join(missing)}")
    return {name: np.asarray(content[name]) for name in names}


def expect_shape(file: Path, name: str, array: Array, shape: Sequence[int | None]) -> None:
    """Require a shape; None stands for any length."""
    if array.ndim != len(shape) or any(want not in (None, got) for got, want in zip(array.shape, shape, strict=True)):
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise DataError(file, f"{name} of shape {array.shape}", f"({wanted})")


def expect_labels(file: Path, labels: Array, n: int, allowed: Sequence[int], name: str = "labels") -> Array:
    """Whole numbers (n,) among the allowed ones, each of which occurs."""
    flat = np.asarray(labels).ravel()
    if flat.size != n:
        raise DataError(file, f"{flat.size} {name}", f"{n}, one for each trial")
    wrong = flat[~np.isin(flat, allowed)]
    if wrong.size:
        at = int(np.flatnonzero(~np.isin(flat, allowed))[0])
        raise DataError(file, f"{wrong[0]!s} as label of trial {at}", f"one of {', '.join(map(str, allowed))}")
    absent = [code for code in allowed if code not in flat]
    if absent:
        raise DataError(file, f"no trial with label {absent[0]}", f"trials of all {len(allowed)} classes")
    return flat.astype(np.int64)


def expect_finite(file: Path, x: Array, ch_names: Sequence[str]) -> None:
    """Require trials (n, n_chans, n_times) without NaN and infinities."""
    bad = ~np.isfinite(x).all(axis=-1)
    if bad.any():
        trial, channel = np.argwhere(bad)[0]
        raise DataError(
            file,
            f"NaN or infinite samples in {np.any(bad, axis=1).sum()} of {len(x)} trials, first in trial {trial}, "
            f"channel {ch_names[channel]}",
            "finite samples",
            "Interpolate the channel or leave the trials out before.",
        )


def cut(
    file: Path, data: Array, onsets: Sequence[int], sfreq: float, window: tuple[float, float], margin: float = 0.0
) -> Array:
    """Trials (n, n_chans, n_times) out of a recording (n_chans, n_samples), at sample numbers ``onsets``.

    ``window`` is in seconds after the onset; its end is not included.  The trials are longer by ``margin`` seconds on
    either side, so that filters have run in before the window begins; where the recording does not reach that far, its
    first or last sample is repeated.  The window itself must be inside.
    """
    start, stop = (round(t * sfreq) for t in window)
    extra, n_samples = round(margin * sfreq), data.shape[1]
    trials = []
    for number, onset in enumerate(onsets):
        if onset + start < 0 or onset + stop > n_samples:
            raise DataError(
                file,
                f"a recording of {n_samples / sfreq:.2f} s",
                f"samples from {(onset + start) / sfreq:.2f} to {(onset + stop) / sfreq:.2f} s for trial {number}",
                "The file may be truncated: copy it again.",
            )
        places = np.arange(onset + start - extra, onset + stop + extra).clip(0, n_samples - 1)
        trials.append(data[:, places])
    return np.stack(trials) if trials else np.empty((0, len(data), stop - start + 2 * extra), data.dtype)
