"""What a manifest says of each recording: what was cached of it, or why it was not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class FileState:
    """A file of the corpus as it was read; the hash is empty where it was not read to the end."""

    size: int
    mtime_ns: int
    sha256: str = ""


@dataclass(frozen=True)
class Skipped:
    """A recording that is not in the cache: a kind of :data:`~gbwatt.data.corpora.problems.KINDS`, and the reason."""

    path: str
    split: str
    subject: str
    kind: str
    reason: str
    source: FileState | None = None
    annotation: FileState | None = None


@dataclass(frozen=True)
class Cached:
    """The windows of a recording: where they are, and their labels as runs of (label, count)."""

    path: str
    split: str
    subject: str
    n_windows: int
    labels: tuple[tuple[int, int], ...]
    file: str  # below the cache
    n_bytes: int
    sha256: str
    source: FileState
    annotation: FileState | None = None

    def window_labels(self) -> NDArray[np.int64]:
        """The label of each window."""
        values, counts = np.array(self.labels, dtype=np.int64).reshape(-1, 2).T
        return np.repeat(values, counts)


Entry = Cached | Skipped


def run_lengths(labels: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Labels as runs of (label, count).

    Examples
    --------
    >>> run_lengths(np.array([5, 5, 5, 0, 5]))
    ((5, 3), (0, 1), (5, 1))
    """
    starts = np.flatnonzero(np.diff(labels, prepend=labels[:1] - 1))
    counts = np.diff(starts, append=len(labels))
    return tuple((int(labels[start]), int(count)) for start, count in zip(starts, counts, strict=True))


def to_record(entry: Entry) -> dict[str, Any]:
    """An entry in a form that JSON keeps."""
    return asdict(entry)


def from_record(record: dict[str, Any]) -> Entry:
    """The entry of :func:`to_record`, after JSON; a KeyError or TypeError if it is none."""
    states = {name: None if record[name] is None else FileState(**record[name]) for name in ("source", "annotation")}
    if "kind" in record:
        return Skipped(**{**record, **states})
    labels = tuple((int(label), int(count)) for label, count in record["labels"])
    return Cached(**{**record, **states, "labels": labels})


def sha256(file: Path) -> str:
    """Hash of a file's content."""
    with file.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def state(file: Path, content: str = "") -> FileState:
    """Size and time of a file, with the hash of its content if it is known."""
    status = file.stat()
    return FileState(status.st_size, status.st_mtime_ns, content)
