"""Windows of one recording: montage, preprocessing, cutting, and writing them to the cache."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha256 as hasher
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt._processes import cores, spread
from gbwatt._validation import check_number
from gbwatt.clinical.corpora.layout import (
    LAYOUTS,
    MONTAGES,
    Cached,
    Entry,
    Event,
    FileState,
    Layout,
    Montage,
    Skipped,
    Source,
    Unusable,
    annotation_file,
    places,
    read_events,
    run_lengths,
    sha256,
    state,
)
from gbwatt.clinical.corpora.manifest import not_written
from gbwatt.data.formats import edf
from gbwatt.data.formats.headers import UNITS
from gbwatt.data.preprocessing import BandPass, Notch, Preprocessing, Resample
from gbwatt.data.trials import Frame
from gbwatt.errors import EDFError, NotFiniteError, ParameterError

#: Sampling rate of the windows, and the band that recordings are filtered to, in Hz.
SFREQ, BAND = 200.0, (0.1, 75.0)

Array = NDArray[Any]


def preprocessing(notch: float = 60.0) -> Preprocessing:
    """What is done to whole recordings; ``notch`` is the frequency of the mains."""
    check_number("notch", notch)
    if not BAND[0] < notch < BAND[1]:
        raise ParameterError(f"notch={notch} must be in the band of {BAND[0]:g} to {BAND[1]:g} Hz: 60 or 50.")
    return Preprocessing(BandPass(*BAND), Notch(notch), Resample(SFREQ))


def n_times(layout: Layout) -> int:
    """Samples of a window."""
    return round(layout.window_seconds * SFREQ)


def rule(layout: Layout) -> str:
    """Where windows are cut, in words."""
    if layout.folders:
        return f"{layout.window_seconds:g} s, one after the other"
    return f"{layout.window_seconds:g} s about each annotated event"


# ---- continuous recordings


def read_continuous(file: Path, header: edf.Header, montage: Montage, steps: Preprocessing) -> NDArray[np.float32]:
    """A recording (n_chans, n) in µV in a montage, after all steps; channel by channel, to spare memory."""
    where = places(montage, [signal.label for signal in header.signals])
    _require_volts(header, where)
    _require_ranges(header, where)
    rate = _rate(header, where)
    digital = dict(zip(where, edf.read_samples(file, header, list(where.values())), strict=True))
    out = np.empty((len(montage.ch_names), 0), dtype=np.float32)
    for place, (name, pair) in enumerate(zip(montage.ch_names, montage.pairs, strict=True)):
        with np.errstate(invalid="ignore"):  # ranges of nothing are found below
            first, *second = (header.signals[where[electrode]].microvolts(digital[electrode]) for electrode in pair)
            x = first - second[0] if second else first
        _require_signal(name, x)
        row = _processed(name, x, rate, steps)
        if not place:
            out = np.empty((len(out), len(row)), dtype=np.float32)
        out[place] = row
    return out


def _require_volts(header: edf.Header, where: dict[str, int]) -> None:
    strange = {name: header.signals[at].unit for name, at in where.items()}
    strange = {name: unit for name, unit in strange.items() if unit.casefold() not in UNITS}
    if strange:
        name, unit = next(iter(strange.items()))
        raise Unusable("wrong-unit", f"{name} is in {unit!r}; uV, mV, V or nV is needed")


def _require_ranges(header: edf.Header, where: dict[str, int]) -> None:
    lowest, highest = header.digital_limits
    for name, (low, high) in ((name, header.signals[at].digital) for name, at in where.items()):
        if low > high or low < lowest or high > highest:
            reason = f"{name} has the digital range {low:g} to {high:g}; one within {lowest:g} to {highest:g} is needed"
            raise Unusable("damaged-header", reason)


def _rate(header: edf.Header, where: dict[str, int]) -> float:
    """The rate that all electrodes have, high enough for the band."""
    rates = {name: header.rate(at) for name, at in where.items()}
    (first, rate), *others = rates.items()
    other = next(((name, own) for name, own in others if own != rate), None)
    if other is not None:
        raise Unusable("wrong-rate", f"{first} has {rate:g} Hz and {other[0]} {other[1]:g} Hz; one rate is needed")
    if rate <= 2 * BAND[1]:
        raise Unusable("wrong-rate", f"{rate:g} Hz; more than {2 * BAND[1]:g} Hz hold the band up to {BAND[1]:g} Hz")
    return rate


def _require_signal(name: str, x: NDArray[np.float64]) -> None:
    if not np.isfinite(x).all():
        raise Unusable("not-finite", f"{name} has NaN or infinite samples; look at the ranges in the EDF header")
    if np.ptp(x) == 0:
        raise Unusable("flat", f"{name} is {x[0]:g} µV from beginning to end")


def _processed(name: str, x: NDArray[np.float64], rate: float, steps: Preprocessing) -> Array:
    try:
        processed, _ = steps.transform(x[None], Frame((name,), rate))
    except NotFiniteError as error:
        raise Unusable("not-finite", f"{name}: {error}") from error
    except ParameterError as error:  # a rate that is in no ratio to ours
        raise Unusable("wrong-rate", f"{rate:.9g} Hz: {error}") from error
    return processed.reshape(-1)


# ---- windows


def read_windows(
    file: Path, annotations: Path | None, label: int | None, layout: Layout, montage: Montage, steps: Preprocessing
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """A recording (n_chans, n), the first samples (n_windows,) of its windows, and their labels.

    Damage is looked for in the order of what it costs to find it.
    """
    header = _read_header(file)
    if header.seconds < layout.window_seconds:
        raise Unusable("too-short", f"{header.seconds:g} s; a window has {layout.window_seconds:g} s")
    events = None if label is not None else _events(annotations, layout, header.seconds)
    x = read_continuous(file, header, montage, steps)
    starts = window_starts(x.shape[1], n_times(layout), events)
    labels = [label] * len(starts) if events is None else [event.label for event in events]
    return x, starts, np.array(labels, dtype=np.int64)


def _read_header(file: Path) -> edf.Header:
    try:
        header = edf.read_header(file)
    except EDFError as error:
        raise Unusable(error.kind, error.reason) from error
    if header.sample_bytes != 2:
        raise Unusable("not-edf", "found a BDF file, of 24 bits; an EDF file is needed")
    if header.discontinuous:
        raise Unusable("discontinuous", "found EDF+D, records with gaps between them; continuous ones are needed")
    return header


def _events(file: Path | None, layout: Layout, seconds: float) -> list[Event]:
    if file is None:
        raise Unusable("missing-annotations", "there is neither a .rec nor a .csv file beside it")
    return read_events(file, layout.class_names, seconds)


def window_starts(n_samples: int, size: int, events: list[Event] | None) -> NDArray[np.int64]:
    """First samples of the windows.

    Without events, one after the other, and what is left over is dropped.  With events, the middle of the window is
    that of the event; near the ends of the recording the window is moved inside, and still has all of the event that
    fits.

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
    """The windows (n_chans, size), one by one."""
    for start in starts.tolist():
        yield x[:, start : start + size]


FOLDER = "windows"
TEMPORARY = ".tmp"


@dataclass(frozen=True)
class Job:
    """A recording to be cached, and how."""

    folder: Path  # of the corpus
    cache: Path
    source: Source
    corpus: str
    montage: str
    notch: float


def cache_recording(job: Job) -> Entry:
    """Write the windows of a recording; what is wrong with it becomes an entry, too."""
    source, file = job.source, job.folder / job.source.path
    states: dict[str, FileState | None] = {"source": None, "annotation": None}
    try:
        annotations = annotation_file(file) if source.label is None else None
        states = {"source": _state(file), "annotation": None if annotations is None else _state(annotations)}
        layout, montage = LAYOUTS[job.corpus], MONTAGES[job.montage]
        x, starts, labels = read_windows(file, annotations, source.label, layout, montage, preprocessing(job.notch))
    except Unusable as error:
        return _skipped(source, error.kind, error.reason, states)
    except OSError as error:
        return _skipped(source, "unreadable", f"{error.strerror or error}", states)
    except Exception as error:  # one recording of thousands: the others go on, and the next call tries again
        return _skipped(source, "failed", f"{type(error).__name__}: {error}", states)
    name = str(PurePosixPath(FOLDER, source.path).with_suffix(".npy"))
    n_bytes, digest = write_windows(job.cache / name, x, starts, n_times(layout))
    return Cached(
        source.path,
        source.split,
        source.subject,
        len(starts),
        run_lengths(labels),
        name,
        n_bytes,
        digest,
        states["source"] or _state(file),
        states["annotation"],
    )


def _state(file: Path) -> FileState:
    return state(file, sha256(file))


def _skipped(source: Source, kind: str, reason: str, states: dict[str, FileState | None]) -> Skipped:
    return Skipped(source.path, source.split, source.subject, kind, reason, **states)


# ---- files


def write_windows(file: Path, x: NDArray[np.float32], starts: NDArray[np.int64], size: int) -> tuple[int, str]:
    """Windows (n, n_chans, size) as a ``.npy`` file, window by window; its bytes and its hash."""
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
        raise not_written(file, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return n_bytes, digest.hexdigest()


def remove_temporaries(cache: Path) -> None:
    """Delete what processes that were killed have left."""
    for file in (cache / FOLDER).rglob(f".*{TEMPORARY}"):
        file.unlink(missing_ok=True)


# ---- processes


def outcomes(jobs: Sequence[Job], workers: int) -> Generator[Entry]:
    """What becomes of recordings, in the order in which they end; in this process if there is one worker.

    A process that dies takes no other recording with it: what was running is tried once more, by itself.
    """
    workers = min(workers or cores(), len(jobs))
    if workers <= 1:
        yield from map(cache_recording, jobs)
        return
    with closing(spread(cache_recording, jobs, workers, initializer=_leave_interrupts)) as done:
        for job, entry in done:
            died = _skipped(job.source, "failed", "its process died twice: out of memory, or killed", {})
            yield died if entry is None else entry


def _leave_interrupts() -> None:
    """Ctrl-C is for the process that waits, which ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
