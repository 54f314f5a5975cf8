"""Official layouts of the corpora: recordings, subjects, annotations and montages, and the entries of a manifest."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt._validation import check_one_of
from gbwatt.data.montage import BIPOLAR, REFERENCES, REFERENTIAL, older_name
from gbwatt.errors import DataError, MissingFileError

#: Reasons to skip a recording, in the order in which they are checked.
KINDS = {
    "unknown-name": "the file name or folder does not follow the layout of the corpus",
    "subject-in-both": "a training recording of a subject who is also in the evaluation part",
    "duplicate": "the same content as an earlier recording, which is kept",
    "unreadable": "the file cannot be read",
    "not-edf": "the file is empty or not an EDF file",
    "damaged-header": "the EDF header contradicts itself or the size of the file",
    "discontinuous": "an EDF+ file with gaps",
    "truncated": "the file is shorter than its EDF header says",
    "missing-channel": "an electrode of the montage is missing",
    "wrong-unit": "the unit of the samples is not a voltage",
    "wrong-rate": "the sampling rate is too low for the band, or differs among the electrodes",
    "too-short": "the recording is shorter than a window",
    "missing-annotations": "the annotation file does not exist",
    "empty-annotations": "the annotation file has no events",
    "malformed-annotation": "a line of the annotation file cannot be parsed",
    "unknown-label": "an annotation has a label that the corpus does not define",
    "annotation-beyond-end": "an annotated event ends after the recording",
    "flat": "a channel is constant",
    "not-finite": "samples are NaN or infinite",
    "failed": "an unexpected error, or a process that died; retried by the next call",
    "gone": "the recording was cached, but is no longer in the corpus folder",
}

#: Kinds of recordings that are skipped although they are not damaged.
NO_DAMAGE = ("subject-in-both", "duplicate", "gone")

#: Kinds that are retried even if the file has not changed.
TRANSIENT = ("unreadable", "failed")


class UnusableRecording(Exception):
    """A recording cannot be used; ``kind`` is one of :data:`KINDS`."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True)
class FileState:
    """Size, modification time and hash of a file; the hash is empty if the file was not read."""

    size: int
    mtime_ns: int
    sha256: str = ""


@dataclass(frozen=True)
class SkippedRecording:
    """A recording that is not in the cache.

    Attributes
    ----------
    path : str
        Path below the folder that contains ``train`` and ``eval``.
    split : "train" or "eval"
        Official part of the corpus.
    subject : str
        Name of the subject.
    kind : str
        One of :data:`~gbwatt.clinical.corpora.layout.KINDS`.
    reason : str
        Description of the problem.
    source, annotation : FileState or None
        State of the recording and of its annotation file.
    """

    path: str
    split: str
    subject: str
    kind: str
    reason: str
    source: FileState | None = None
    annotation: FileState | None = None


@dataclass(frozen=True)
class CachedRecording:
    """A recording in the cache.

    Attributes
    ----------
    path : str
        Path below the folder that contains ``train`` and ``eval``.
    split : "train" or "eval"
        Official part of the corpus.
    subject : str
        Name of the subject.
    n_windows : int
        Number of windows.
    labels : tuple of (int, int)
        Labels of the windows as runs of (label, count).
    file : str
        File of the windows, below the folder of the cache.
    n_bytes, sha256 : int, str
        Size and hash of that file.
    source, annotation : FileState or None
        State of the recording and of its annotation file.
    """

    path: str
    split: str
    subject: str
    n_windows: int
    labels: tuple[tuple[int, int], ...]
    file: str
    n_bytes: int
    sha256: str
    source: FileState
    annotation: FileState | None = None

    def window_labels(self) -> NDArray[np.int64]:
        """Return the label of each window."""
        values, counts = np.array(self.labels, dtype=np.int64).reshape(-1, 2).T
        return np.repeat(values, counts)


Entry = CachedRecording | SkippedRecording


def run_lengths(labels: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Encode the labels of windows as runs of (label, count), as in the entries of a manifest.

    Examples
    --------
    >>> run_lengths(np.array([5, 5, 5, 0, 5]))
    ((5, 3), (0, 1), (5, 1))
    """
    starts = np.flatnonzero(np.diff(labels, prepend=labels[:1] - 1))
    counts = np.diff(starts, append=len(labels))
    return tuple((int(labels[start]), int(count)) for start, count in zip(starts, counts, strict=True))


def to_record(entry: Entry) -> dict[str, Any]:
    """Return an entry of a manifest as a dictionary for JSON."""
    return asdict(entry)


def from_record(record: dict[str, Any]) -> Entry:
    """Return the entry of a dictionary of :func:`to_record`; a wrong one raises KeyError or TypeError."""
    states = {name: None if record[name] is None else FileState(**record[name]) for name in ("source", "annotation")}
    if "kind" in record:
        return SkippedRecording(**{**record, **states})
    labels = tuple((int(label), int(count)) for label, count in record["labels"])
    return CachedRecording(**{**record, **states, "labels": labels})


def sha256(file: Path) -> str:
    """Return the hash of a file."""
    with file.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def state(file: Path, content: str = "") -> FileState:
    """Return the state of a file without reading it; ``content`` is the hash of its content, if it is known."""
    status = file.stat()
    return FileState(status.st_size, status.st_mtime_ns, content)


# an electrode, perhaps with its reference, in a label of an EDF file
_LABEL = re.compile(rf"(?:EEG[\s_]+)?(?P<electrode>[A-Z]+\d*)(?:\s*-\s*(?P<reference>{'|'.join(REFERENCES)}))?")


@dataclass(frozen=True)
class Montage:
    """Channels of a model: electrodes against the reference of the recording, or differences of two electrodes."""

    name: str
    ch_names: tuple[str, ...]

    @property
    def pairs(self) -> tuple[tuple[str, ...], ...]:
        """The one or two electrodes of each channel."""
        return tuple(tuple(name.split("-")) for name in self.ch_names)

    @property
    def electrodes(self) -> tuple[str, ...]:
        """All electrodes that are needed."""
        return tuple(dict.fromkeys(name for pair in self.pairs for name in pair))


MONTAGES = {montage.name: montage for montage in (Montage("bipolar16", BIPOLAR), Montage("referential23", REFERENTIAL))}

# fmt: off
#: Channels of the temporal central parasagittal montage; annotations refer to their numbers.
TCP = (
    "FP1-F7", "F7-T3", "T3-T5", "T5-O1", "FP2-F8", "F8-T4", "T4-T6", "T6-O2", "A1-T3", "T3-C3", "C3-CZ",
    "CZ-C4", "C4-T4", "T4-A2", "FP1-F3", "F3-C3", "C3-P3", "P3-O1", "FP2-F4", "F4-C4", "C4-P4", "P4-O2",
)
# fmt: on


def electrode(label: str) -> tuple[str, str] | None:
    """Return the electrode and reference of an EDF label; None if the label has another form.

    Examples
    --------
    >>> [electrode(label) for label in ("EEG FP1-REF", "eeg t7-le ", "Cz", "EEG FP1-F7", "EDF Annotations")]
    [('FP1', 'REF'), ('T3', 'LE'), ('CZ', ''), None, None]
    """
    match = _LABEL.fullmatch(label.strip().upper())
    return None if match is None else (older_name(match["electrode"]), match["reference"] or "")


def electrode_indices(montage: Montage, labels: Sequence[str]) -> dict[str, int]:
    """Return the index of each electrode of a montage among the labels of a file, all against one reference."""
    by_reference: dict[str, dict[str, int]] = {}
    for index, label in enumerate(labels):
        parsed = electrode(label)
        if parsed is not None:
            name, reference = parsed
            by_reference.setdefault(reference, {}).setdefault(name, index)
    best = max(by_reference.values(), key=lambda own: len(own.keys() & set(montage.electrodes)), default={})
    missing = [name for name in montage.electrodes if name not in best]
    if missing:
        raise UnusableRecording(
            "missing-channel",
            f"{', '.join(missing)} of the {len(montage.electrodes)} electrodes of {montage.name} are not among the "
            f"{len(labels)} channels: {', '.join(labels)}",
        )
    return {name: best[name] for name in montage.electrodes}


#: Suffixes of annotation files, in the order in which they are looked for.
SUFFIXES = (".rec", ".csv")

#: Channel of events in ``.csv`` files that concern all channels.
ALL_CHANNELS = "TERM"
HEADER = ("channel", "start_time", "stop_time", "label", "confidence")


@dataclass(frozen=True)
class Event:
    """An annotated event: start and stop in seconds, and the number of its class, from 0."""

    start: float
    stop: float
    label: int
    line: int  # of the file


def annotation_file(recording: Path) -> Path | None:
    """Return the annotation file of a recording, or None."""
    return next((file for suffix in SUFFIXES if (file := recording.with_suffix(suffix)).is_file()), None)


def read_events(file: Path, class_names: Sequence[str], seconds: float) -> list[Event]:
    """Read the events of a recording of the given duration, in the order of the file."""
    text = file.read_bytes().decode("utf-8-sig", errors="replace")
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if file.suffix == ".csv" and lines:
        _require_header(file, *lines.pop(0))
    if not lines:
        raise UnusableRecording("empty-annotations", f"{file.name} has no events")
    events = [_parse_event(file, number, line, class_names) for number, line in lines]
    late = [event for event in events if event.stop > seconds]
    if late:
        raise UnusableRecording(
            "annotation-beyond-end",
            f"{file.name}, line {late[0].line}: an event ends at {late[0].stop:g} s in a recording of {seconds:g} s"
            + (f"; {len(late)} such events" if len(late) > 1 else ""),
        )
    return events


def _require_header(file: Path, number: int, line: str) -> None:
    """Require the column names in the first line of a ``.csv`` file."""
    names = tuple(name.strip() for name in line.split(","))
    if names[:4] != HEADER[:4]:
        raise _malformed_error(file, number, line, ",".join(HEADER))


def _parse_event(file: Path, number: int, line: str, class_names: Sequence[str]) -> Event:
    """Parse one line of an annotation file."""
    fields = [field.strip() for field in line.split(",")]
    allowed = (4,) if file.suffix == ".rec" else (4, 5)
    try:
        if len(fields) not in allowed or not _is_channel(fields[0]):
            raise ValueError
        start, stop = float(fields[1]), float(fields[2])
        if not (math.isfinite(stop) and 0 <= start < stop):
            raise ValueError
    except ValueError:
        raise _malformed_error(file, number, line, "channel,start,stop,label with 0 <= start < stop") from None
    return Event(start, stop, _parse_label(file, number, fields[3], class_names), number)


def _is_channel(text: str) -> bool:
    """Whether a text is the number or name of a channel of the montage."""
    number = _parse_integer(text)
    return text.upper() in (*TCP, ALL_CHANNELS) if number is None else 0 <= number < len(TCP)


def _parse_integer(text: str) -> int | None:
    """Return the integer in a text such as ``6`` or ``6.0``, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _parse_label(file: Path, number: int, text: str, class_names: Sequence[str]) -> int:
    """Return the index of the class that a label in line ``number`` of a file denotes: by name, or counted from 1."""
    if text.casefold() in class_names:
        return class_names.index(text.casefold())
    value = _parse_integer(text)
    if value is not None and 1 <= value <= len(class_names):
        return value - 1
    raise UnusableRecording(
        "unknown-label",
        f"{file.name}, line {number}: label {text!r}; 1 to {len(class_names)} are {', '.join(class_names)}",
    )


def _malformed_error(file: Path, number: int, line: str, needed: str) -> UnusableRecording:
    """Return the error for a line that cannot be parsed."""
    return UnusableRecording(
        "malformed-annotation", f"{file.name}, line {number}: found {line[:80]!r}; {needed} is needed"
    )


SPLITS = ("train", "eval")


@dataclass(frozen=True)
class Layout:
    """Folders, classes and windows of a corpus.

    Attributes
    ----------
    name, title : str
        Short and full name.
    class_names : tuple of str
        Names of the classes.
    window_seconds : float
        Duration of a window.
    names : re.Pattern
        Pattern of file names without suffix, with a group for the subject.
    example : str
        Path of a recording, for messages.
    folders : tuple of str
        Folders of the classes; empty if each window is an annotated event.
    """

    name: str
    title: str
    class_names: tuple[str, ...]
    window_seconds: float
    names: re.Pattern[str]
    example: str
    folders: tuple[str, ...] = ()


TUAB = Layout(
    name="tuab",
    title="TUH Abnormal EEG Corpus",
    class_names=("normal", "abnormal"),
    window_seconds=10.0,
    names=re.compile(r"(?P<subject>[a-z0-9]+)_s\d+_t\d+"),
    example="train/normal/01_tcp_ar/aaaaaaaq_s004_t000.edf",
    folders=("normal", "abnormal"),
)
TUEV = Layout(
    name="tuev",
    title="TUH EEG Events Corpus",
    class_names=("spsw", "gped", "pled", "eyem", "artf", "bckg"),
    window_seconds=5.0,
    names=re.compile(r"(?P<subject>[a-z0-9]{8})_\d{8}|[a-z]{4}_(?P<number>\d{3})_[a-z]_\d*"),
    example="train/aaaaaaar/aaaaaaar_00000001.edf or eval/000/bckg_000_a_.edf",
)
LAYOUTS = {layout.name: layout for layout in (TUAB, TUEV)}


@dataclass(frozen=True, order=True)
class Recording:
    """A recording of a corpus: its path below the folder that contains ``train`` and ``eval``, and its meaning."""

    path: str
    split: str
    subject: str
    label: int | None  # None if events are annotated


def find_layout(name: str) -> Layout:
    """Return the layout of a corpus."""
    check_one_of("corpus", name, tuple(LAYOUTS))
    return LAYOUTS[name]


# ---- folders


def corpus_folder(root: str | Path, layout: Layout) -> Path:
    """Return the folder with ``train`` and ``eval``: the root, ``edf`` in it, or ``edf`` of its only version."""
    root = Path(root).expanduser()
    if not root.is_dir():
        raise MissingFileError(f"root={str(root)!r} is not a folder; give the folder of the {layout.title}.")
    for candidates in ([root], [root / "edf"], sorted(root.glob("*/edf"))):
        folders = [folder for folder in candidates if any((folder / split).is_dir() for split in SPLITS)]
        if len(folders) > 1:
            versions = " and ".join(folder.parent.name for folder in folders)
            raise DataError(root, f"several versions, {versions}", "one", f"Give one of them: {folders[0].parent}")
        if folders:
            _require_folders(folders[0], layout)
            return folders[0]
    content = ", ".join(sorted(child.name for child in root.iterdir())[:6]) or "nothing"
    raise DataError(root, content, f"the folders train and eval of the {layout.title}, here, in edf or in VERSION/edf")


def _require_folders(folder: Path, layout: Layout) -> None:
    """Require the folders of the layout; recognise TUAB if another corpus is requested."""
    needed = [split for split in SPLITS if not layout.folders] + [f"{s}/{c}" for s in SPLITS for c in layout.folders]
    missing = [name for name in needed if not (folder / name).is_dir()]
    if missing:
        remedy = "It may be another corpus, or incompletely copied."
        raise DataError(folder, f"no folder {' or '.join(missing)}", f"files such as {layout.example}", remedy)
    if not layout.folders and any((folder / "train" / name).is_dir() for name in TUAB.folders):
        raise DataError(folder, "train/normal", f"files such as {layout.example}", f"It may be corpus={TUAB.name!r}.")


# ---- recordings


def find_recordings(folder: Path, layout: Layout) -> tuple[list[Recording], list[SkippedRecording]]:
    """Return all recordings in the order of their paths, and the EDF files that do not follow the layout."""
    recordings: list[Recording] = []
    misplaced: list[SkippedRecording] = []
    for path in sorted(path for split in SPLITS for path in _edf_files(folder, split)):
        recording = _parse_path(path, layout)
        if isinstance(recording, Recording):
            recordings.append(recording)
        else:
            misplaced.append(recording)
    if not recordings:
        content = f"{len(misplaced)} EDF files with other names" if misplaced else "no EDF file"
        raise DataError(folder, content, f"recordings such as {layout.example}")
    return recordings, misplaced


def _edf_files(folder: Path, split: str) -> Iterator[str]:
    """Yield the paths of the EDF files of a split, relative to ``folder``; hidden files are ignored."""
    for parent, folders, files in os.walk(folder / split, followlinks=True, onerror=_raise_not_listed):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if name.lower().endswith(".edf") and not name.startswith("."):
                yield (Path(parent) / name).relative_to(folder).as_posix()


def _raise_not_listed(error: OSError) -> None:
    """Stop at a folder that cannot be listed: it may contain any number of recordings."""
    raise DataError(error.filename, f"a folder that cannot be listed ({error.strerror})", "one that can be read")


def _parse_path(path: str, layout: Layout) -> Recording | SkippedRecording:
    """Derive split, subject and label of a recording from its path; a skipped one if it does not follow the layout."""
    split, *between, file = path.split("/")
    named = layout.names.fullmatch(file[: -len(".edf")])
    folder = between[0] if between else ""
    if named is None or (layout.folders and folder not in layout.folders):
        return SkippedRecording(path, split, "", "unknown-name", f"the path is not like {layout.example}")
    subject = next(name for name in named.groups() if name)
    return Recording(path, split, subject, layout.folders.index(folder) if layout.folders else None)
