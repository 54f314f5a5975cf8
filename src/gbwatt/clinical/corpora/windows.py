"""Windows of one recording: montage, preprocessing, cutting, and writing to the cache."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha256 as hasher
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt._processes import cores, ignore_interrupts, run_in_processes
from gbwatt._validation import check_number
from gbwatt.clinical.corpora.cache import write_error
from gbwatt.clinical.corpora.layout import (
    LAYOUTS,
    MONTAGES,
    CachedRecording,
    Entry,
    Event,
    FileState,
    Layout,
    Montage,
    Recording,
    SkippedRecording,
    UnusableRecording,
    annotation_file,
    electrode_indices,
    read_events,
    run_lengths,
    sha256,
    state,
)
from gbwatt.data.formats import edf
from gbwatt.data.formats.headers import UNITS
from gbwatt.data.preprocessing import BandPass, Notch, Preprocessing, Resample
from gbwatt.data.trials import Frame
from gbwatt.errors import EDFError, NotFiniteError, ParameterError

#: Sampling rate of the windows, and pass band of the filter, in Hz.
SFREQ, BAND = 200.0, (0.1, 75.0)

Array = NDArray[Any]


def preprocessing(notch: float = 60.0) -> Preprocessing:
    """Return the preprocessing of whole recordings; ``notch`` is the mains frequency."""
    check_number("notch", notch)
    if not BAND[0] < notch < BAND[1]:
        raise ParameterError(f"notch={notch} must be between {BAND[0]:g} and {BAND[1]:g} Hz, usually 60 or 50.")
    return Preprocessing(BandPass(*BAND), Notch(notch), Resample(SFREQ))


def n_times(layout: Layout) -> int:
    """Return the number of samples per window."""
    return round(layout.window_seconds * SFREQ)


def rule(layout: Layout) -> str:
    """Return a description of where windows are cut, for the manifest."""
    if layout.folders:
        return f"{layout.window_seconds:g} s, one after the other"
    return f"{layout.window_seconds:g} s about each annotated event"


# ---- continuous recordings


def read_continuous(file: Path, header: edf.Header, montage: Montage, steps: Preprocessing) -> NDArray[np.float32]:
    """Read a recording (n_chans, n) in µV and preprocess it channel by channel, to save memory."""
    where = electrode_indices(montage, [signal.label for signal in header.signals])
    _require_volts(header, where)
    _require_digital_ranges(header, where)
    rate = _common_rate(header, where)
    digital = dict(zip(where, edf.read_samples(file, header, list(where.values())), strict=True))
    out = np.empty((len(montage.ch_names), 0), dtype=np.float32)
    for row_number, (name, pair) in enumerate(zip(montage.ch_names, montage.pairs, strict=True)):
        with np.errstate(invalid="ignore"):  # empty ranges are detected below
            first, *second = (header.signals[where[electrode]].microvolts(digital[electrode]) for electrode in pair)
            x = first - second[0] if second else first
        _require_signal(name, x)
        row = _preprocess(name, x, rate, steps)
        if not row_number:
            out = np.empty((len(out), len(row)), dtype=np.float32)
        out[row_number] = row
    return out


def _require_volts(header: edf.Header, where: dict[str, int]) -> None:
    """Require a unit of voltage for every electrode."""
    units = {name: header.signals[at].unit for name, at in where.items()}
    wrong = {name: unit for name, unit in units.items() if unit.casefold() not in UNITS}
    if wrong:
        name, unit = next(iter(wrong.items()))
        raise UnusableRecording("wrong-unit", f"{name} is in {unit!r}; uV, mV, V or nV is needed")


def _require_digital_ranges(header: edf.Header, where: dict[str, int]) -> None:
    """Require digital ranges in the header that the sample type can represent."""
    lowest, highest = header.digital_limits
    for name, (low, high) in ((name, header.signals[at].digital) for name, at in where.items()):
        if low > high or low < lowest or high > highest:
            reason = f"{name} has the digital range {low:g} to {high:g}; one within {lowest:g} to {highest:g} is needed"
            raise UnusableRecording("damaged-header", reason)


def _common_rate(header: edf.Header, where: dict[str, int]) -> float:
    """Return the sampling rate, which must be the same for all electrodes and high enough for the band."""
    rates = {name: header.rate(at) for name, at in where.items()}
    (first, rate), *others = rates.items()
    other = next(((name, own) for name, own in others if own != rate), None)
    if other is not None:
        raise UnusableRecording(
            "wrong-rate", f"{first} has {rate:g} Hz and {other[0]} {other[1]:g} Hz; one rate is needed"
        )
    if rate <= 2 * BAND[1]:
        raise UnusableRecording(
            "wrong-rate", f"{rate:g} Hz; more than {2 * BAND[1]:g} Hz is needed for the band up to {BAND[1]:g} Hz"
        )
    return rate


def _require_signal(name: str, x: NDArray[np.float64]) -> None:
    """Require finite samples that are not constant."""
    if not np.isfinite(x).all():
        raise UnusableRecording("not-finite", f"{name} has NaN or infinite samples; check the ranges in the EDF header")
    if np.ptp(x) == 0:
        raise UnusableRecording("flat", f"{name} is constant, {x[0]:g} µV")


def _preprocess(name: str, x: NDArray[np.float64], rate: float, steps: Preprocessing) -> Array:
    """Apply the preprocessing to one channel."""
    try:
        processed, _ = steps.transform(x[None], Frame((name,), rate))
    except NotFiniteError as error:
        raise UnusableRecording("not-finite", f"{name}: {error}") from error
    except ParameterError as error:  # a rate without a rational ratio to SFREQ
        raise UnusableRecording("wrong-rate", f"{rate:.9g} Hz: {error}") from error
    return processed.reshape(-1)


# ---- windows


def read_windows(
    file: Path, annotations: Path | None, label: int | None, layout: Layout, montage: Montage, steps: Preprocessing
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Return a recording (n_chans, n), the first samples (n_windows,) of its windows, and their labels (n_windows,).

    Cheap checks for damage come first.
    """
    header = _read_header(file)
    if header.seconds < layout.window_seconds:
        raise UnusableRecording("too-short", f"{header.seconds:g} s; a window has {layout.window_seconds:g} s")
    events = None if label is not None else _annotated_events(annotations, layout, header.seconds)
    x = read_continuous(file, header, montage, steps)
    starts = window_starts(x.shape[1], n_times(layout), events)
    labels = [label] * len(starts) if events is None else [event.label for event in events]
    return x, starts, np.array(labels, dtype=np.int64)


def _read_header(file: Path) -> edf.Header:
    """Read the header of an EDF file; raise UnusableRecording if the file is damaged, has gaps, or is a BDF file."""
    try:
        header = edf.read_header(file)
    except EDFError as error:
        raise UnusableRecording(error.kind, error.reason) from error
    if header.sample_bytes != 2:
        raise UnusableRecording("not-edf", "found a BDF file of 24 bits; an EDF file is needed")
    if header.discontinuous:
        raise UnusableRecording("discontinuous", "found EDF+D, with gaps between records; a continuous file is needed")
    return header


def _annotated_events(file: Path | None, layout: Layout, seconds: float) -> list[Event]:
    """Read the events in an annotation file; raise UnusableRecording if there is no file."""
    if file is None:
        raise UnusableRecording("missing-annotations", "neither a .rec nor a .csv file exists beside it")
    return read_events(file, layout.class_names, seconds)


def window_starts(n_samples: int, size: int, events: list[Event] | None) -> NDArray[np.int64]:
    """Return the first sample of each window.

    Without events, windows follow each other, and the remainder is dropped.  With events, windows are centred on the
    events; near the ends of the recording a window is shifted inside.

    Examples
    --------
    >>> window_starts(4500, 2000, None).tolist()
    [0, 2000]
    >>> window_starts(4500, 1000, [Event(0.0, 1.0, 5, 1), Event(10.0, 11.0, 5, 2), Event(21.0, 22.0, 5, 3)]).tolist()
    [0, 1600, 3500]
    """
    if events is None:
        return np.arange(n_samples // size, dtype=np.int64) * size
    middles = np.array([(event.start + event.stop) / 2 for event in events])
    starts = np.round(middles * SFREQ).astype(np.int64) - size // 2
    return starts.clip(0, n_samples - size)


def cut(x: NDArray[np.float32], starts: NDArray[np.int64], size: int) -> Iterator[NDArray[np.float32]]:
    """Yield the windows (n_chans, size) of a recording (n_chans, n) that begin at the samples ``starts``."""
    for start in starts.tolist():
        yield x[:, start : start + size]


FOLDER = "windows"  # in the cache
TEMPORARY = ".tmp"  # suffix of files that are not complete


@dataclass(frozen=True)
class Job:
    """A recording to be cached, with the settings."""

    folder: Path  # folder of the corpus
    cache: Path
    recording: Recording
    corpus: str
    montage: str
    notch: float


def cache_recording(job: Job) -> Entry:
    """Write the windows of a recording and return its entry, also if the recording cannot be used."""
    recording, file = job.recording, job.folder / job.recording.path
    states: dict[str, FileState | None] = {"source": None, "annotation": None}
    try:
        annotations = annotation_file(file) if recording.label is None else None
        states = {
            "source": _read_file_state(file),
            "annotation": None if annotations is None else _read_file_state(annotations),
        }
        layout, montage = LAYOUTS[job.corpus], MONTAGES[job.montage]
        x, starts, labels = read_windows(file, annotations, recording.label, layout, montage, preprocessing(job.notch))
    except UnusableRecording as error:
        return _skip_entry(recording, error.kind, error.reason, states)
    except OSError as error:
        return _skip_entry(recording, "unreadable", f"{error.strerror or error}", states)
    except Exception as error:  # the other recordings are still processed, and the next call retries this one
        return _skip_entry(recording, "failed", f"{type(error).__name__}: {error}", states)
    name = str(PurePosixPath(FOLDER, recording.path).with_suffix(".npy"))
    n_bytes, digest = write_windows(job.cache / name, x, starts, n_times(layout))
    return CachedRecording(
        recording.path,
        recording.split,
        recording.subject,
        len(starts),
        run_lengths(labels),
        name,
        n_bytes,
        digest,
        states["source"] or _read_file_state(file),
        states["annotation"],
    )


def _read_file_state(file: Path) -> FileState:
    """Return size, modification time and hash of a file; the whole file is read for the hash."""
    return state(file, sha256(file))


def _skip_entry(recording: Recording, kind: str, reason: str, states: dict[str, FileState | None]) -> SkippedRecording:
    """Return the manifest entry of a recording that could not be used; ``states`` are those of its files."""
    return SkippedRecording(recording.path, recording.split, recording.subject, kind, reason, **states)


# ---- files


def write_windows(file: Path, x: NDArray[np.float32], starts: NDArray[np.int64], size: int) -> tuple[int, str]:
    """Write windows (n, n_chans, size) to a ``.npy`` file one by one; return its size and hash."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}{TEMPORARY}")
    header = {"descr": "<f4", "fortran_order": False, "shape": (len(starts), len(x), size)}
    digest = hasher()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w+b") as stream:
            np.lib.format.write_array_header_1_0(stream, header)
            stream.seek(0)
            digest.update(stream.read())
            for window in cut(x, starts, size):
                content = np.ascontiguousarray(window, dtype="<f4").data
                stream.write(content)
                digest.update(content)
            stream.flush()
            os.fsync(stream.fileno())
            n_bytes = stream.tell()
        temporary.replace(file)
    except OSError as error:
        raise write_error(file, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return n_bytes, digest.hexdigest()


def remove_temporaries(cache: Path) -> None:
    """Delete temporary files that killed processes have left."""
    for file in (cache / FOLDER).rglob(f".*{TEMPORARY}"):
        file.unlink(missing_ok=True)


# ---- processes


def process_recordings(jobs: Sequence[Job], workers: int) -> Generator[Entry]:
    """Yield the entries of recordings as they are completed; one worker means this process.

    Recordings that were running when a process died are retried once, one at a time.
    """
    workers = min(workers or cores(), len(jobs))
    if workers <= 1:
        yield from map(cache_recording, jobs)
        return
    with closing(run_in_processes(cache_recording, jobs, workers, initializer=ignore_interrupts)) as done:
        for job, entry in done:
            died = _skip_entry(job.recording, "failed", "its process died twice: out of memory, or killed", {})
            yield died if entry is None else entry
