"""Official layouts of the corpora: recordings, subjects, annotations and montages."""

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

#: Every kind, and what it says; the order is that in which they are looked for.
KINDS = {
    "unknown-name": "the file is not named, or not placed, as the corpus has it",
    "subject-in-both": "a training recording of a subject who is also in the evaluation part",
    "duplicate": "the same content as another recording, of which the first in order is kept",
    "unreadable": "the system cannot read the file",
    "not-edf": "the file is empty, or is no EDF file",
    "damaged-header": "the EDF header contradicts itself or the size of the file",
    "discontinuous": "an EDF+ file with gaps",
    "truncated": "the file is shorter than its EDF header says",
    "missing-channel": "an electrode of the montage is missing",
    "wrong-unit": "the samples are in no unit of voltage",
    "wrong-rate": "the sampling rate is too low for the band, or differs among the electrodes",
    "too-short": "the recording is shorter than a window",
    "missing-annotations": "there is no annotation file",
    "empty-annotations": "the annotation file has no events",
    "malformed-annotation": "a line of the annotation file cannot be understood",
    "unknown-label": "an annotation has a label that the corpus does not define",
    "annotation-beyond-end": "an annotated event ends after the recording",
    "flat": "a channel has one value from beginning to end",
    "not-finite": "samples are NaN or infinite",
    "failed": "an error that is not foreseen, or a process that died; tried again by the next call",
    "gone": "the recording was cached once, and is not in the corpus folder any more",
}

#: Left out although nothing is damaged.
NO_DAMAGE = ("subject-in-both", "duplicate", "gone")

#: May be otherwise the next time, though the file has not changed.
TRANSIENT = ("unreadable", "failed")


class Unusable(Exception):
    """A recording cannot be used: one of :data:`KINDS`, and the reason in words."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True)
class FileState:
    """A file of the corpus as it was read; the hash is empty where it was not read to the end."""

    size: int
    mtime_ns: int
    sha256: str = ""


@dataclass(frozen=True)
class Skipped:
    """A recording that is not in the cache: a kind of :data:`~gbwatt.clinical.corpora.layout.KINDS`, and the reason."""

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


_LABEL = re.compile(rf"(?:EEG[\s_]+)?(?P<electrode>[A-Z]+\d*)(?:\s*-\s*(?P<reference>{'|'.join(REFERENCES)}))?")


@dataclass(frozen=True)
class Montage:
    """Channels of a model: electrodes against the reference of the recording, or differences of two."""

    name: str
    ch_names: tuple[str, ...]

    @property
    def pairs(self) -> tuple[tuple[str, ...], ...]:
        """The electrode, or both, of each channel."""
        return tuple(tuple(name.split("-")) for name in self.ch_names)

    @property
    def electrodes(self) -> tuple[str, ...]:
        """All electrodes that are needed, each once."""
        return tuple(dict.fromkeys(name for pair in self.pairs for name in pair))


MONTAGES = {montage.name: montage for montage in (Montage("bipolar16", BIPOLAR), Montage("referential23", REFERENTIAL))}

# fmt: off
#: Channels of the temporal central parasagittal montage, by whose numbers events are annotated.
TCP = (
    "FP1-F7", "F7-T3", "T3-T5", "T5-O1", "FP2-F8", "F8-T4", "T4-T6", "T6-O2", "A1-T3", "T3-C3", "C3-CZ",
    "CZ-C4", "C4-T4", "T4-A2", "FP1-F3", "F3-C3", "C3-P3", "P3-O1", "FP2-F4", "F4-C4", "C4-P4", "P4-O2",
)
# fmt: on


def electrode(label: str) -> tuple[str, str] | None:
    """Electrode and reference of an EDF label; None for what is no electrode against a reference.

    Examples
    --------
    >>> [electrode(label) for label in ("EEG FP1-REF", "eeg t7-le ", "Cz", "EEG FP1-F7", "EDF Annotations")]
    [('FP1', 'REF'), ('T3', 'LE'), ('CZ', ''), None, None]
    """
    found = _LABEL.fullmatch(label.strip().upper())
    if found is None:
        return None
    name = found["electrode"]
    return older_name(name), found["reference"] or ""


def places(montage: Montage, labels: Sequence[str]) -> dict[str, int]:
    """Where the electrodes of a montage are among the labels of a file, all against one reference."""
    by_reference: dict[str, dict[str, int]] = {}
    for place, label in enumerate(labels):
        found = electrode(label)
        if found is not None:
            by_reference.setdefault(found[1], {}).setdefault(found[0], place)
    best = max(by_reference.values(), key=lambda own: len(own.keys() & set(montage.electrodes)), default={})
    missing = [name for name in montage.electrodes if name not in best]
    if missing:
        raise Unusable(
            "missing-channel",
            f"{', '.join(missing)} of the {len(montage.electrodes)} electrodes of {montage.name} not among the "
            f"{len(labels)} channels: {', '.join(labels)}",
        )
    return {name: best[name] for name in montage.electrodes}


#: Forms of annotation files, in the order in which they are looked for.
SUFFIXES = (".rec", ".csv")

#: What ``.csv`` files call an event that is not of one channel.
ALL_CHANNELS = "TERM"
HEADER = ("channel", "start_time", "stop_time", "label", "confidence")


@dataclass(frozen=True)
class Event:
    """One annotation: from when to when, in seconds, and the number of its class from 0."""

    start: float
    stop: float
    label: int
    line: int  # of the file


def annotation_file(recording: Path) -> Path | None:
    """The annotations beside a recording, if there are any."""
    return next((file for suffix in SUFFIXES if (file := recording.with_suffix(suffix)).is_file()), None)


def read_events(file: Path, class_names: Sequence[str], seconds: float) -> list[Event]:
    """Events of a recording that lasts so many seconds, in the order of the file."""
    text = file.read_bytes().decode("utf-8-sig", errors="replace")
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if file.suffix == ".csv" and lines:
        _require_header(file, *lines.pop(0))
    if not lines:
        raise Unusable("empty-annotations", f"{file.name} has no events")
    events = [_event(file, number, line, class_names) for number, line in lines]
    late = [event for event in events if event.stop > seconds]
    if late:
        raise Unusable(
            "annotation-beyond-end",
            f"{file.name}, line {late[0].line}: an event until {late[0].stop:g} s, in a recording of {seconds:g} s"
            + (f"; {len(late)} such events" if len(late) > 1 else ""),
        )
    return events


def _require_header(file: Path, number: int, line: str) -> None:
    names = tuple(name.strip() for name in line.split(","))
    if names[:4] != HEADER[:4]:
        raise _malformed(file, number, line, ",".join(HEADER))


def _event(file: Path, number: int, line: str, class_names: Sequence[str]) -> Event:
    fields = [field.strip() for field in line.split(",")]
    allowed = (4,) if file.suffix == ".rec" else (4, 5)
    try:
        if len(fields) not in allowed or not _is_channel(fields[0]):
            raise ValueError
        start, stop = float(fields[1]), float(fields[2])
        if not (math.isfinite(stop) and 0 <= start < stop):
            raise ValueError
    except ValueError:
        raise _malformed(file, number, line, "channel,start,stop,label with 0 <= start < stop") from None
    return Event(start, stop, _label(file, number, fields[3], class_names), number)


def _is_channel(text: str) -> bool:
    number = _whole(text)
    return text.upper() in (*TCP, ALL_CHANNELS) if number is None else 0 <= number < len(TCP)


def _whole(text: str) -> int | None:
    """The number that a text is, also as ``6.0``; None for what is no whole number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _label(file: Path, number: int, text: str, class_names: Sequence[str]) -> int:
    """Numbers count from 1 in both forms; names are those of the classes."""
    if text.casefold() in class_names:
        return class_names.index(text.casefold())
    found = _whole(text)
    if found is not None and 1 <= found <= len(class_names):
        return found - 1
    raise Unusable(
        "unknown-label",
        f"{file.name}, line {number}: label {text!r}; 1 to {len(class_names)} are {', '.join(class_names)}",
    )


def _malformed(file: Path, number: int, line: str, needed: str) -> Unusable:
    return Unusable("malformed-annotation", f"{file.name}, line {number}: found {line[:80]!r}; {needed} is needed")


SPLITS = ("train", "eval")


@dataclass(frozen=True)
class Layout:
    """What is known of a corpus before any file is read.

    ``folders`` are the classes, where these are folders; otherwise each window is an annotated event.
    """

    name: str
    title: str
    class_names: tuple[str, ...]
    window_seconds: float
    names: re.Pattern[str]  # of files, without suffix, with a group for the subject
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
class Source:
    """A recording of a corpus: its path below the folder that has ``train`` and ``eval``, and what that says."""

    path: str
    split: str
    subject: str
    label: int | None  # None where events are annotated


def find_layout(name: str) -> Layout:
    """The layout of a corpus by name."""
    check_one_of("corpus", name, tuple(LAYOUTS))
    return LAYOUTS[name]


# ---- folders


def corpus_folder(root: str | Path, layout: Layout) -> Path:
    """The folder that has ``train`` and ``eval``: the root, its ``edf``, or that of the one version below it."""
    root = Path(root).expanduser()
    if not root.is_dir():
        raise MissingFileError(f"root={str(root)!r} is no folder; it is the one that has the {layout.title}.")
    for candidates in ([root], [root / "edf"], sorted(root.glob("*/edf"))):
        found = [folder for folder in candidates if any((folder / split).is_dir() for split in SPLITS)]
        if len(found) > 1:
            versions = " and ".join(folder.parent.name for folder in found)
            raise DataError(root, f"several versions, {versions}", "one", f"Name one of them: {found[0].parent}")
        if found:
            _require_folders(found[0], layout)
            return found[0]
    there = ", ".join(sorted(child.name for child in root.iterdir())[:6]) or "nothing"
    raise DataError(root, there, f"folders train and eval, here, in edf or in VERSION/edf, as {layout.title} has them")


def _require_folders(folder: Path, layout: Layout) -> None:
    needed = [split for split in SPLITS if not layout.folders] + [f"{s}/{c}" for s in SPLITS for c in layout.folders]
    missing = [name for name in needed if not (folder / name).is_dir()]
    if missing:
        remedy = "Is it another corpus, or has not all of it been copied?"
        raise DataError(folder, f"no folder {' nor '.join(missing)}", f"files as {layout.example}", remedy)
    if not layout.folders and any((folder / "train" / name).is_dir() for name in TUAB.folders):
        raise DataError(folder, "train/normal", f"files as {layout.example}", f"It may be corpus={TUAB.name!r}.")


# ---- recordings


def find_recordings(folder: Path, layout: Layout) -> tuple[list[Source], list[Skipped]]:
    """All recordings in the order of their paths, and the files whose names say not enough."""
    sources: list[Source] = []
    strange: list[Skipped] = []
    for path in sorted(path for split in SPLITS for path in _edf_files(folder, split)):
        found = _source(path, layout)
        if isinstance(found, Source):
            sources.append(found)
        else:
            strange.append(found)
    if not sources:
        found_text = f"{len(strange)} EDF files with other names" if strange else "no EDF file"
        raise DataError(folder, found_text, f"recordings as {layout.example}")
    return sources, strange


def _edf_files(folder: Path, split: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder / split, followlinks=True, onerror=_not_listed):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if name.lower().endswith(".edf") and not name.startswith("."):
                yield (Path(place) / name).relative_to(folder).as_posix()


def _not_listed(error: OSError) -> None:
    """A folder that cannot be listed may have any number of recordings: that is no matter of one of them."""
    raise DataError(error.filename, f"a folder that cannot be listed ({error.strerror})", "one that can be read")


def _source(path: str, layout: Layout) -> Source | Skipped:
    split, *between, file = path.split("/")
    named = layout.names.fullmatch(file[: -len(".edf")])
    place = between[0] if between else ""
    if named is None or (layout.folders and place not in layout.folders):
        return Skipped(path, split, "", "unknown-name", f"the path is not as {layout.example}")
    subject = next(name for name in named.groups() if name)
    return Source(path, split, subject, layout.folders.index(place) if layout.folders else None)
