"""What all readers share: errors that name the file, damaged files, and cutting trials out of recordings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


# ---- reading


def size(file: Path) -> str:
    """How large a file is, in words."""
    return f"{file.stat().st_size} bytes" if file.is_file() else "a folder"


@contextmanager
def opening(file: Path, library: str, expected: str, remedy: str = "Copy it again.") -> Iterator[None]:
    """Turn whatever a library raises over a damaged file into a :class:`DataError`."""
    if not file.exists():
        raise MissingFileError(f"{file} is not there.")
    try:
        yield
    except checks.InputError:
        raise
    except Exception as error:
        found = f"{size(file)} that {library} cannot read ({type(error).__name__}: {error})"
        raise DataError(file, found, expected, remedy) from error


def read_mat(file: Path, *names: str, remedy: str = "") -> dict[str, Array]:
    """Variables of a MATLAB file, by name; ``remedy`` is for a file that does not have them."""
    with opening(file, "SciPy", "a MATLAB file, version 4 to 7.2"):
        content = scipy.io.loadmat(file)
    missing = [name for name in names if name not in content]
    if missing:
        there = ", ".join(name for name in content if not name.startswith("__")) or "none"
        raise DataError(file, f"the variables {there}", f"also {', '.join(missing)}", remedy)
    return {name: np.asarray(content[name]) for name in names}


def expect_complete(file: Path) -> None:
    """Require as many records as the header of an EDF or BDF file says; MNE makes do with fewer."""
    if not file.is_file():
        raise MissingFileError(f"{file} is not there.")
    try:
        header, n_records, record = _edf_sizes(file)
    except ValueError as error:
        found = f"{size(file)} without a header that says how many records there are ({error})"
        raise DataError(file, found, "an EDF or BDF file", "Copy it again.") from None
    if (file.stat().st_size - header) // record != n_records:
        expected = f"{header + n_records * record}, {n_records} records, as its header says"
        raise DataError(file, size(file), expected, "It may be truncated. Copy it again.")


def _edf_sizes(file: Path) -> tuple[int, int, int]:
    """Bytes of the header, number of records, and bytes of a record."""
    with file.open("rb") as stream:
        fixed = stream.read(256)
        header, n_records, n_signals = (int(fixed[a:b]) for a, b in ((184, 192), (236, 244), (252, 256)))
        counts = stream.read(256 * n_signals)[216 * n_signals : 224 * n_signals]
    samples = sum(int(counts[place : place + 8]) for place in range(0, 8 * n_signals, 8))
    if samples < 1 or n_records < 0:  # -1 as long as it is being written
        raise ValueError(f"{n_records} of {samples} samples")
    return header, n_records, samples * (3 if fixed[:1] == b"\xff" else 2)  # BDF has 24 bits


# ---- expectations


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


# ---- cutting


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
