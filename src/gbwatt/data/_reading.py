"""What all readers share: errors that name the file, damaged files, and cutting trials out of recordings."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt._text import printable
from gbwatt.errors import DataError, DataWarning, InputError, MissingFileError

Array = NDArray[Any]


class MNEDataWarning(DataWarning, RuntimeWarning):
    """What MNE warns of while it reads a recording."""


def warn_of(file: str | Path, problem: str, stacklevel: int = 2, category: type[DataWarning] = DataWarning) -> None:
    """Warn of something in a recording."""
    warnings.warn(printable(f"{file}: {problem}"), category, stacklevel=stacklevel + 1)


# ---- reading


def size(file: Path) -> str:
    """How large a file is, in words."""
    return f"{file.stat().st_size} bytes" if file.is_file() else "a folder"


def require_file(file: Path, why: str = "", *, folders: bool = False) -> None:
    """Require a file, or with ``folders`` also a folder; ``why`` says who needs it."""
    because = f"; {why}" if why else ""
    if not file.exists():
        raise MissingFileError(f"{file} does not exist{because}.")
    if not (folders or file.is_file()):
        raise MissingFileError(f"{file} is a folder, but a file is required{because}.")


@contextmanager
def opening(file: Path, library: str, expected: str, remedy: str = "Copy it again.") -> Iterator[None]:
    """Turn whatever a library raises over a damaged file into a :class:`DataError`."""
    require_file(file, folders=True)
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        found = f"{size(file)} that {library} cannot read ({type(error).__name__}: {error})"
        raise DataError(file, found, expected, remedy) from error


# ---- sizes, before anything is allocated

#: A file may unpack to this many times its size, or to this many bytes: real recordings compress less than tenfold.
MAX_EXPANSION, ALWAYS_ALLOWED = 50, 1 << 28


def allowed_bytes(file: Path) -> int:
    """How many bytes a file may unpack to."""
    return max(MAX_EXPANSION * file.stat().st_size, ALWAYS_ALLOWED)


def expect_expansion(file: Path, n_bytes: int, what: str = "arrays") -> None:
    """Require that what a file unpacks to is in proportion to the file, and fits into memory."""
    size_on_disk = file.stat().st_size
    if n_bytes > allowed_bytes(file):
        raise DataError(
            file,
            f"{what} of {in_words(n_bytes)} in a file of {in_words(size_on_disk)}",
            f"{MAX_EXPANSION} times the size of the file at most",
            "Such a file is damaged, or made to fill the memory; if it is neither, save it without compression.",
        )
    if n_bytes > (memory := _memory()):
        raise DataError(
            file, f"{what} of {in_words(n_bytes)}", f"what fits into {in_words(memory)} of memory", "Divide the file."
        )


def in_words(n_bytes: int) -> str:
    """A number of bytes, ``"8.1 GB"``."""
    power = 0 if n_bytes < 1000 else min(4, (len(str(n_bytes)) - 1) // 3)
    return f"{n_bytes / 1000**power:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not every system says
        return 1 << 40


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
