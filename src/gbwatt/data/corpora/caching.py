"""The windows of one recording, written so that a file is complete or not there; and processes that do many."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha256 as hasher
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from gbwatt.data.corpora.annotations import annotation_file
from gbwatt.data.corpora.layout import LAYOUTS, Source
from gbwatt.data.corpora.manifest import not_written
from gbwatt.data.corpora.montages import MONTAGES
from gbwatt.data.corpora.problems import Unusable
from gbwatt.data.corpora.records import Cached, Entry, FileState, Skipped, run_lengths, sha256, state
from gbwatt.data.corpora.windows import cut, n_times, preprocessing, read_windows
from gbwatt.processes import cores, spread

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
