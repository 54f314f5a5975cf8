"""Functions that all readers share: checks of files and their content, plausibility, and cutting of trials."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt._text import printable
from gbwatt.data.trials import UNITS, Trials
from gbwatt.errors import DataError, DataWarning, InputError, MissingFileError, ParameterError

Array = NDArray[Any]


class MNEDataWarning(DataWarning, RuntimeWarning):
    """A warning of MNE about a recording."""


def warn_about(file: str | Path, problem: str, stacklevel: int = 2, category: type[DataWarning] = DataWarning) -> None:
    """Issue the warning ``"file: problem"``, without unprintable characters.

    ``stacklevel`` is that of ``warnings.warn`` if the calling function called it directly.
    """
    warnings.warn(printable(f"{file}: {problem}"), category, stacklevel=stacklevel + 1)


# ---- reading


def size_text(file: Path) -> str:
    """Return the size of a file as text for an error message, ``"1024 bytes"``; ``"a folder"`` for a folder."""
    return f"{file.stat().st_size} bytes" if file.is_file() else "a folder"


#: Endings of common files of recordings, and of recordings that are folders.
SUFFIXES = (".edf", ".bdf", ".gdf", ".fif", ".gz", ".vhdr", ".ahdr", ".set", ".npz", ".mat", ".cnt")
FOLDER_SUFFIXES = (".ds", ".mff")


def expect_no_folder(path: Path) -> None:
    """Raise :class:`MissingFileError` for a folder, unless its name ends like a format that consists of folders."""
    if path.is_dir() and path.suffix.lower() not in FOLDER_SUFFIXES:
        raise MissingFileError(f"{path} is a folder; give the files in it.")


def expect_different(files: Iterable[Path], why: str) -> None:
    """Raise :class:`ParameterError` if a file is given twice; ``why`` is the end of the message."""
    repeated = [file for file, n in Counter(file.resolve() for file in files).items() if n > 1]
    if repeated:
        raise ParameterError(f"{repeated[0]} is given twice; {why}.")


def require_file(file: Path, why: str = "", *, folders: bool = False) -> None:
    """Raise :class:`MissingFileError` unless ``file`` is an existing file, or with ``folders`` a file or folder.

    ``why`` is added to the message and says what needs the file.
    """
    because = f"; {why}" if why else ""
    if not file.exists():
        raise MissingFileError(f"{file} does not exist{because}.")
    if not (folders or file.is_file()):
        raise MissingFileError(f"{file} is a folder, but a file is required{because}.")


@contextmanager
def opening(file: Path, library: str, expected: str, remedy: str = "Copy it again.") -> Iterator[None]:
    """Context manager that turns any exception of a library into a :class:`DataError` about ``file``.

    Libraries raise many kinds of exceptions for damaged files.  ``library`` is the name of the library, ``expected``
    what the file should contain, and ``remedy`` what the user can do.  Errors of this package pass unchanged.
    A missing file is an error, too.
    """
    require_file(file, folders=True)
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        found = f"{size_text(file)} that {library} cannot read ({error_text(error)})"
        raise DataError(file, found, expected, remedy) from error


@contextmanager
def naming_file(file: str | Path, change: Callable[[str], str] = str) -> Iterator[None]:
    """Context manager in which errors of this package name the file; ``change`` is applied to their texts."""
    try:
        yield
    except InputError as error:
        if not isinstance(error, DataError | MissingFileError):
            text = change(str(error))
            error.args = (printable(text if str(file) in text else f"{file}: {text}"),)
        raise


def error_text(error: Exception) -> str:
    """Return the text of an exception, preceded by its type unless it is an error of this package."""
    if isinstance(error, InputError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# ---- sizes, before memory is allocated

#: A file may expand to 50 times its size, or to 256 MiB if that is more; real recordings compress less than tenfold.
MAX_EXPANSION, ALWAYS_ALLOWED = 50, 1 << 28


def allowed_bytes(file: Path) -> int:
    """Return the largest number of bytes to which a file may expand in memory before it counts as damaged."""
    return max(MAX_EXPANSION * file.stat().st_size, ALWAYS_ALLOWED)


def expect_plausible_size(file: Path, n_bytes: int, what: str = "arrays") -> None:
    """Raise :class:`DataError` if the content of a file is too large for the file or for the memory of the computer.

    ``n_bytes`` is the size of the content in memory, and ``what`` names the content in the message.
    """
    size_on_disk = file.stat().st_size
    if n_bytes > allowed_bytes(file):
        raise DataError(
            file,
            f"{what} of {in_words(n_bytes)} in a file of {in_words(size_on_disk)}",
            f"at most {MAX_EXPANSION} times the size of the file",
            "The file is damaged or malicious; if it is neither, save it without compression.",
        )
    if n_bytes > (memory := _physical_memory()):
        raise DataError(
            file, f"{what} of {in_words(n_bytes)}", f"at most {in_words(memory)}, the size of memory", "Split the file."
        )


def in_words(n_bytes: int) -> str:
    """Return a number of bytes as text with a unit for error messages, ``"8.1 GB"``."""
    power = 0 if n_bytes < 1000 else min(4, (len(str(n_bytes)) - 1) // 3)
    return f"{n_bytes / 1000**power:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"


def _physical_memory() -> int:
    """Return the size of physical memory in bytes, which arrays must not exceed; 1 TiB if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not available on every system
        return 1 << 40


# ---- content


def expect_shape(file: Path, name: str, array: Array, shape: Sequence[int | None]) -> None:
    """Raise :class:`DataError` unless an array of a file has the expected shape, in which None allows any length."""
    if array.ndim != len(shape) or any(want not in (None, got) for got, want in zip(array.shape, shape, strict=True)):
        expected = ", ".join("any" if want is None else str(want) for want in shape)
        raise DataError(file, f"{name} of shape {array.shape}", f"({expected})")


def expect_labels(file: Path, labels: Array, n: int, allowed: Sequence[int], name: str = "labels") -> Array:
    """Return labels as integers (n,); require ``n`` labels, and that the values are exactly those in ``allowed``.

    ``name`` is what the message calls the labels.
    """
    flat = np.asarray(labels).ravel()
    if flat.size != n:
        raise DataError(file, f"{flat.size} {name}", f"{n}, one for each trial")
    wrong = np.flatnonzero(~np.isin(flat, allowed))
    if wrong.size:
        first = int(wrong[0])
        raise DataError(file, f"{flat[first]!s} as label of trial {first}", f"one of {', '.join(map(str, allowed))}")
    absent = [code for code in allowed if code not in flat]
    if absent:
        raise DataError(file, f"no trial with label {absent[0]}", f"trials of all {len(allowed)} classes")
    return flat.astype(np.int64)


def expect_finite(file: Path, x: Array, ch_names: Sequence[str]) -> None:
    """Require trials (n, n_chans, n_times) without NaN and infinite samples."""
    bad = ~np.isfinite(x).all(axis=-1)
    if bad.any():
        trial, channel = np.argwhere(bad)[0]
        raise DataError(
            file,
            f"NaN or infinite samples in {np.any(bad, axis=1).sum()} of {len(x)} trials, first in trial {trial}, "
            f"channel {ch_names[channel]}",
            "finite samples",
            "Interpolate the channel or drop the trials first.",
        )


def expect_origin(
    file: Path,
    trials: Trials,
    subject: int,
    ch_names: Sequence[str],
    class_names: Sequence[str],
    sfreq: float,
    n_times: int,
) -> None:
    """Raise :class:`DataError` unless trials of a file are those of a subject, with the properties of a data set."""
    for name, expected in (("ch_names", tuple(ch_names)), ("class_names", tuple(class_names))):
        if getattr(trials, name) != expected:
            raise DataError(file, f"{name} {', '.join(getattr(trials, name))}", ", ".join(expected))
    if trials.sfreq != sfreq:
        raise DataError(file, f"{trials.sfreq:g} Hz", f"{sfreq:g} Hz")
    expect_shape(file, "X", trials.X, (None, len(ch_names), n_times))
    others = sorted(set(trials.subject.tolist()) - {subject})
    if others:
        raise DataError(file, f"trials of subject {others[0]}", f"trials of subject {subject}")


# ---- plausibility

#: Plausible range, in µV, of the standard deviation within a trial of the median channel.  EEG has 1 to 100;
#: unfiltered recordings drift by several mV, and narrow frequency bands go down to tenths.
TYPICAL = (0.1, 1e4)

#: Plausible range, in µV, of the standard deviation of a single channel.  Electrodes without contact pick up tens of
#: mV, amplifiers saturate below 1 V, and the noise of an amplifier with shorted inputs is some tenths of a µV.
SINGLE = (1e-3, 1e5)

#: Bad electrodes differ from the median channel by less than this factor; wrong units differ by more.
RATIO = 1e3

#: Range of plausible sampling rates in Hz.
RATES = (1.0, 1e5)

_MAX_EXAMINED_TRIALS = 200  # trials whose amplitudes are checked, evenly spaced over all trials


def check_trials(where: str | Path, trials: Trials, stacklevel: int = 2) -> None:
    """Warn if amplitudes, sampling rate or axes of trials are implausible for EEG, or if some channels are flat.

    ``where`` is the file or data set that the warning names.
    """
    problems = [*_amplitude_problems(trials), *_axis_problems(trials)]
    if problems:
        warn_about(where, "; ".join(problems), stacklevel + 1)


def _amplitude_problems(trials: Trials) -> list[str]:
    """Return texts for a warning about amplitudes that are implausible, or very different between channels."""
    n = len(trials)
    if not n:
        return []
    rows = np.unique(np.linspace(0, n - 1, min(n, _MAX_EXAMINED_TRIALS)).astype(int))
    deviations = np.median(trials.X[rows].std(axis=2, dtype=np.float64), axis=0)  # (n_chans,)
    deviations[deviations == 0] = np.nan  # flat
    flat = [trials.ch_names[c] for c in np.flatnonzero(np.isnan(deviations))]
    if len(flat) == len(deviations):
        return []
    listed = f"{', '.join(flat[:6])}{', …' * (len(flat) > 6)}"
    problems = [f"flat channels: {listed}; exclude or repair them"] if flat else []
    typical = float(np.nanmedian(deviations))
    problems += _unit_problems(trials, deviations, typical)
    odd = (deviations > RATIO * typical) | (deviations < typical / RATIO)
    if odd.any() and trials.shape[1] > 2:
        ratios = [f"{trials.ch_names[c]} ({deviations[c] / typical:.2g} times)" for c in np.flatnonzero(odd)[:6]]
        problems.append(
            f"{odd.sum()} of {len(deviations)} channels differ in amplitude from the others by a factor of {RATIO:g} "
            f"or more: {', '.join(ratios)}; check their units, or exclude these channels"
        )
    return problems


def _unit_problems(trials: Trials, deviations: Array, typical: float) -> list[str]:
    """Return at most one text for a warning about amplitudes that are implausible for EEG in the unit of the trials.

    ``deviations`` (n_chans,) are the standard deviations of channels, NaN if flat, and ``typical`` is their median.
    """
    if trials.unit not in UNITS:
        return []
    microvolts = UNITS[trials.unit] / UNITS["µV"]
    if not TYPICAL[0] < typical * microvolts < TYPICAL[1]:
        return [
            f"the standard deviation of channels is {typical * UNITS[trials.unit]:.1e} V, which is implausible for "
            f"EEG; is the unit {trials.unit!r} right?"
        ]
    wrong = (deviations * microvolts < SINGLE[0]) | (deviations * microvolts > SINGLE[1])
    if not wrong.any():
        return []
    values = [f"{trials.ch_names[c]} ({deviations[c] * microvolts:.1e} µV)" for c in np.flatnonzero(wrong)[:6]]
    return [f"implausible amplitudes for EEG: {', '.join(values)}; correct the unit, or exclude these channels"]


def _axis_problems(trials: Trials) -> list[str]:
    """Return texts for a warning about an implausible sampling rate, or axes that may be interchanged."""
    _, n_chans, n_times = trials.shape
    problems = []
    if not RATES[0] <= trials.sfreq <= RATES[1]:
        problems.append(f"a sampling rate of {trials.sfreq:g} Hz is implausible for EEG; is sfreq in Hz?")
    if n_chans > n_times:
        problems.append(f"{n_chans} channels and {n_times} samples; are the axes (n, n_chans, n_times)?")
    return problems


# ---- cutting


def cut(
    file: Path, data: Array, onsets: Sequence[int], sfreq: float, window: tuple[float, float], margin: float = 0.0
) -> Array:
    """Cut trials (n, n_chans, n_times) from a recording (n_chans, n_samples) at the sample numbers ``onsets``.

    ``window`` is in seconds after the onset, without its end, and must lie within the recording.  Trials extend beyond
    it by ``margin`` seconds on both sides, in which filters settle.  Where the recording does not cover the margin, its
    first or last sample is repeated.
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
        indices = np.arange(onset + start - extra, onset + stop + extra).clip(0, n_samples - 1)
        trials.append(data[:, indices])
    return np.stack(trials) if trials else np.empty((0, len(data), stop - start + 2 * extra), data.dtype)
