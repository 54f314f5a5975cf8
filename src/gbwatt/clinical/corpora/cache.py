"""The cache of a corpus: a manifest, windows that are read from disk when they are needed, and data sets by name."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256 as hasher
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gbwatt._validation import check_at_least, check_number, check_one_of
from gbwatt.clinical.corpora.layout import CachedRecording, Entry, SkippedRecording, from_record, sha256, to_record
from gbwatt.data._reading import opening
from gbwatt.data.datasets import Dataset, Source
from gbwatt.data.splits import Split, Splitter
from gbwatt.data.trials import Trials
from gbwatt.errors import CacheError, DataError, ParameterError, ShapeError

PARTS = ("train", "valid", "eval")
REBUILD = "Delete it and build the cache again."

# ------------------------------------------------------------------------------------------------------------- manifest

MANIFEST = "manifest.jsonl"
FORMAT = 1
BEGIN, END = "begin", "end"

#: Settings that determine the windows.
SETTINGS = (
    "format",
    "corpus",
    "montage",
    "ch_names",
    "sfreq",
    "unit",
    "n_times",
    "window",
    "class_names",
    "steps",
)

#: Settings that follow from another one.  An error does not mention them if the other one differs.
_DEPENDS_ON = {"ch_names": "montage", "n_times": "corpus", "window": "corpus", "class_names": "corpus"}


@dataclass
class Manifest:
    """Content of a manifest.

    Attributes
    ----------
    header : dict
        Settings that the windows depend on, and the version of gbwatt.
    entries : dict
        The last entry of each recording, by its path.
    finished : bool
        Whether the last build has ended.
    """

    header: dict[str, Any]
    entries: dict[str, Entry] = field(default_factory=dict)
    finished: bool = False


def read_manifest(cache: Path) -> Manifest:
    """Read the manifest of a cache.  An incomplete last line is ignored."""
    file = cache / MANIFEST
    if not file.is_file():
        raise CacheError(
            f"{cache} has no {MANIFEST}, so it is not the cache of a corpus. Build one: gbwatt corpus build ROOT "
            f"{cache} --corpus …"
        )
    manifest = _parse_manifest(file, file.read_bytes())[0]
    if manifest is None:
        raise CacheError(
            f"{file} has no header, because its build was interrupted at the start. Run the same command again."
        )
    return manifest


def _parse_manifest(file: Path, content: bytes) -> tuple[Manifest | None, int]:
    """Return the manifest, None without a header, and the number of bytes of its valid lines.

    The last line may be cut off, if a build was killed.
    """
    manifest: Manifest | None = None
    lines = content.splitlines(keepends=True)
    complete = 0
    for number, line in enumerate(lines, 1):
        try:
            if not line.endswith(b"\n"):
                raise ValueError("the line is not complete")
            manifest = _apply_record(manifest, json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):  # a process was killed while it wrote
                break
            problem = f"line {number} that is not a record ({error!r})"
            raise DataError(file, problem, "JSON as `gbwatt corpus build` writes it", "Delete the cache.") from None
        complete += len(line)
    if manifest is not None and manifest.header["format"] != FORMAT:
        version = f"format {manifest.header['format']}"
        raise DataError(file, version, f"format {FORMAT}", "Build a new cache with this version of gbwatt.")
    return manifest, complete


def _apply_record(manifest: Manifest | None, record: Any) -> Manifest:
    """Apply one line of a manifest: the header, a mark, the removal of an entry, or an entry."""
    if manifest is None:
        missing = [name for name in SETTINGS if name not in record]
        if missing:
            raise KeyError(missing[0])
        return Manifest(dict(record))
    if "mark" in record:
        manifest.finished = record["mark"] == END
    elif "forget" in record:
        manifest.entries.pop(record["forget"], None)
    else:
        entry = from_record(record)
        manifest.entries[entry.path] = entry
    return manifest


class ManifestWriter:
    """Appends to a manifest; every line is on disk before the method returns."""

    def __init__(self, stream: IO[bytes], manifest: Manifest) -> None:
        self._stream = stream
        self.manifest = manifest

    def add(self, entry: Entry) -> None:
        """Write the entry of a recording."""
        self.write(to_record(entry))
        self.manifest.entries[entry.path] = entry

    def forget(self, path: str) -> None:
        """Remove the entry of a recording that does not exist any more and was not cached."""
        self.write({"forget": path})
        self.manifest.entries.pop(path)

    def mark(self, mark: str) -> None:
        """Mark the beginning or the end of a build."""
        self.write({"mark": mark, "recordings": len(self.manifest.entries)})
        self.manifest.finished = mark == END

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a line."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        try:
            if self._stream.write(line) != len(line):  # unbuffered: a full disk shows here
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise write_error(Path(self._stream.name), error) from error


@contextmanager
def writing(cache: Path, header: dict[str, Any]) -> Iterator[ManifestWriter]:
    """Open a cache for writing: a new one, or one that was built with the same settings."""
    file = cache / MANIFEST
    try:
        cache.mkdir(parents=True, exist_ok=True)
        stream = file.open("ab", buffering=0)
    except OSError as error:
        raise write_error(cache, error) from error
    with stream, _locked(stream, cache):
        content = file.read_bytes()
        manifest, complete = _parse_manifest(file, content)
        if manifest is not None:
            _require_same_settings(cache, manifest.header, header)
        if complete < len(content):
            stream.truncate(complete)
        writer = ManifestWriter(stream, manifest or Manifest(header))
        if manifest is None:
            writer.write(header)
        yield writer


@contextmanager
def _locked(stream: IO[bytes], cache: Path) -> Iterator[None]:
    """Lock the open manifest of a cache for the time of a build; raise CacheError if another build has the lock.

    Does nothing if the system has no locks.  A process that dies releases its lock.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CacheError(f"another process is building {cache}; wait until it has finished.") from None
    except OSError:  # file systems of clusters may not have locks
        yield
        return
    try:
        yield
    finally:  # closing is not enough: a process that is just being started has inherited the open file
        fcntl.flock(stream, fcntl.LOCK_UN)


def _require_same_settings(cache: Path, present: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    """Raise CacheError, with the differences, if a cache was built with other settings than ``header``."""
    wanted = json.loads(json.dumps(header))  # in the types that JSON returns
    different = [name for name in SETTINGS if present[name] != wanted[name]]
    shown = [name for name in different if _DEPENDS_ON.get(name) not in different]
    if shown:
        differences = [
            f"{name} is {_items_not_in(present[name], wanted[name])!r} there and "
            f"{_items_not_in(wanted[name], present[name])!r} here"
            for name in shown
        ]
        raise CacheError(
            f"{cache} was built with other settings: {'; '.join(differences)}. Use another folder, or delete this one."
        )


def _items_not_in(value: Any, other: Any) -> Any:
    """Return a setting as shown in an error message: of a list, only the items that the other list lacks."""
    return [item for item in value if item not in other] if isinstance(value, list) else value


def write_error(file: Path, error: OSError) -> CacheError:
    """Return the error for a file that cannot be written."""
    return CacheError(
        f"{file} cannot be written ({error.strerror or error}). Free disk space or change the permissions, and run the "
        "same command again: it continues with what is missing."
    )


# -------------------------------------------------------------------------------------------------------------- windows


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """The windows of a corpus on disk, built by :func:`~gbwatt.clinical.corpora.build`.

    Attributes
    ----------
    cache : Path
        Folder of the cache.
    name, montage : str
        Names of the corpus and of its montage.
    ch_names, class_names : tuple of str
        Names of channels and classes.
    sfreq : float
        Sampling rate in Hz.
    n_times : int
        Samples per window.
    recordings : tuple of CachedRecording
        Recordings in the cache, sorted by path.
    skipped : tuple of SkippedRecording
        Recordings that are not in the cache, with the reason.
    header : dict
        Header of the manifest.
    """

    cache: Path
    name: str
    montage: str
    ch_names: tuple[str, ...]
    sfreq: float
    n_times: int
    class_names: tuple[str, ...]
    recordings: tuple[CachedRecording, ...]
    skipped: tuple[SkippedRecording, ...]
    header: dict[str, Any]

    @classmethod
    def open(cls, cache: str | Path) -> Corpus:
        """Open a cache.  Only its manifest is read.

        Parameters
        ----------
        cache : path
            Folder of the cache.

        Returns
        -------
        Corpus

        Raises
        ------
        CacheError
            If there is no cache, its build has not ended, or it has no windows.
        DataError
            If the manifest is damaged.
        """
        cache = Path(cache).expanduser()
        manifest = read_manifest(cache)
        header, entries = manifest.header, [manifest.entries[path] for path in sorted(manifest.entries)]
        command = f"gbwatt corpus build ROOT {cache} --corpus {header['corpus']} --montage {header['montage']}"
        if not manifest.finished:
            raise CacheError(f"{cache} is not finished: {len(entries)} recordings are done. Continue with: {command}")
        recordings = tuple(entry for entry in entries if isinstance(entry, CachedRecording))
        skipped = tuple(entry for entry in entries if isinstance(entry, SkippedRecording))
        if not recordings:
            kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(s.kind for s in skipped).most_common())
            raise CacheError(
                f"{cache} has no windows: all recordings were skipped ({kinds}). Repair them, then run: {command}"
            )
        return cls(
            cache=cache,
            name=header["corpus"],
            montage=header["montage"],
            ch_names=tuple(header["ch_names"]),
            sfreq=float(header["sfreq"]),
            n_times=int(header["n_times"]),
            class_names=tuple(header["class_names"]),
            recordings=recordings,
            skipped=skipped,
            header=header,
        )

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the settings and of the windows, labels, subject and part of every recording.

        It depends neither on the folder and the order of the build nor on the version of gbwatt.
        """
        contents = [[r.path, r.split, r.subject, r.labels, r.sha256] for r in self.recordings]
        settings = {name: self.header[name] for name in SETTINGS}
        return hasher(json.dumps([settings, contents], sort_keys=True).encode()).hexdigest()

    def part(self, name: str, valid_fraction: float = 0.2, seed: int = 0) -> Part:
        """Return the training, validation or evaluation windows.  No subject is in two parts.

        Validation subjects are drawn from the official training part in proportion to the subjects of each class,
        where a subject counts for its rarest class.

        Parameters
        ----------
        name : "train", "valid" or "eval"
            Part of the corpus.
        valid_fraction : float
            Fraction of the training subjects that is used for validation.
        seed : int
            Random seed of the choice of validation subjects.

        Returns
        -------
        Part

        Raises
        ------
        ParameterError
            If the part is unknown or empty, or ``valid_fraction`` is not in [0, 1).
        """
        check_one_of("part", name, PARTS)
        check_number("valid_fraction", valid_fraction)
        check_at_least("seed", seed, 0)
        if not 0 <= valid_fraction < 1:
            raise ParameterError(f"valid_fraction={valid_fraction} must be at least 0 and below 1.")
        chosen = [r for r in self.recordings if r.split == ("eval" if name == "eval" else "train")]
        if name != "eval":
            valid = _draw_validation_subjects(chosen, valid_fraction, seed)
            chosen = [r for r in chosen if (r.subject in valid) == (name == "valid")]
        if not chosen:
            reason = f" with valid_fraction={valid_fraction}" if name == "valid" else ""
            raise ParameterError(f"part={name!r} of {self.cache} has no windows{reason}.")
        return Part(self.cache, name, tuple(chosen), (len(self.ch_names), self.n_times))

    def verify(self) -> None:
        """Compare every cached file with its hash in the manifest.

        Raises
        ------
        CacheError
            If files are missing or differ.  The message names them.
        """
        damaged = [problem for recording in self.recordings if (problem := self._describe_difference(recording))]
        if damaged:
            shown = "; ".join(damaged[:5]) + ("; …" if len(damaged) > 5 else "")
            raise CacheError(
                f"{self.cache}: {len(damaged)} of {len(self.recordings)} cached files differ from the manifest: "
                f"{shown}. Delete these files and build the cache again."
            )

    def _describe_difference(self, recording: CachedRecording) -> str:
        """Describe how the file of a recording differs from the manifest; empty if it does not."""
        file = self.cache / recording.file
        if not file.is_file():
            return f"{recording.file} does not exist"
        if file.stat().st_size != recording.n_bytes:
            return f"{recording.file} has {file.stat().st_size} bytes, not {recording.n_bytes}"
        return "" if sha256(file) == recording.sha256 else f"{recording.file} has another content"

    def __repr__(self) -> str:
        n_windows = sum(recording.n_windows for recording in self.recordings)
        return (
            f"<Corpus {self.name}: {n_windows} windows of {len(self.ch_names)} channels ({self.montage}) and "
            f"{self.n_times} samples at {self.sfreq:g} Hz>"
        )


def _draw_validation_subjects(recordings: Sequence[CachedRecording], fraction: float, seed: int) -> set[str]:
    """Draw the subjects for validation, as in :meth:`Corpus.part`."""
    person = _merge_same_persons(recordings)
    classes: dict[str, set[int]] = {}
    for recording in recordings:
        classes.setdefault(person[recording.subject], set()).update(label for label, _ in recording.labels)
    if not fraction or not classes:
        return set()
    if len(classes) < 2:
        raise ParameterError(
            f"valid_fraction={fraction}: there is only one training subject, and none for validation; use 0."
        )
    frequency = Counter(label for own in classes.values() for label in own)
    rarest = {subject: min(own, key=lambda label: (frequency[label], label)) for subject, own in classes.items()}
    subjects = np.random.default_rng(seed).permutation(sorted(classes)).tolist()
    subjects.sort(key=lambda subject: (frequency[rarest[subject]], rarest[subject]))  # random order within a class
    n_valid = min(max(round(fraction * len(subjects)), 1), len(subjects) - 1)
    positions = (np.arange(n_valid) + 0.5) * len(subjects) / n_valid
    chosen = {subjects[int(position)] for position in positions}
    return {subject for subject, name in person.items() if name in chosen}


def _merge_same_persons(recordings: Sequence[CachedRecording]) -> dict[str, str]:
    """Map each subject to a name of the person; subjects that share a recording are the same person."""
    name = {recording.subject: recording.subject for recording in recordings}
    holder: dict[str, str] = {}
    for recording in (r for r in recordings if r.source.sha256):
        one, other = name[recording.subject], name[holder.setdefault(recording.source.sha256, recording.subject)]
        if one != other:
            first = min(one, other)
            name = {subject: first if current in (one, other) else current for subject, current in name.items()}
    return name


class Part:
    """A part of a corpus: a map-style data set that reads windows from disk.

    ``part[i]`` is a window (n_chans, n_times) in float32 and its label; :meth:`read` returns many at once.  A file is
    mapped only while windows are copied from it.  Nothing stays open between calls, so a part can be pickled and used
    by several processes.

    Attributes
    ----------
    name : str
        "train", "valid" or "eval".
    recordings : tuple of CachedRecording
        Recordings of the part.
    labels : array (n,) of int64
        Label of each window.
    """

    def __init__(self, cache: Path, name: str, recordings: tuple[CachedRecording, ...], shape: tuple[int, int]) -> None:
        self.cache, self.name, self.recordings, self.shape = cache, name, recordings, shape
        self.labels = np.concatenate([recording.window_labels() for recording in recordings])
        self.labels.flags.writeable = False
        self._ends: list[int] = np.cumsum([recording.n_windows for recording in recordings]).tolist()

    @cached_property
    def subjects(self) -> NDArray[np.str_]:
        """Subject of each window (n,)."""
        names = np.array([recording.subject for recording in self.recordings])
        return np.repeat(names, [recording.n_windows for recording in self.recordings])

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        windows, labels = self.read([index])
        return windows[0], int(labels[0])

    def read(self, indices: ArrayLike) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Read windows.

        Parameters
        ----------
        indices : array-like (k,) of int
            Indices of windows, in any order.

        Returns
        -------
        windows : array (k, n_chans, n_times) of float32
            Windows in the order of the indices.
        labels : array (k,) of int64
            Their labels.
        """
        wanted = self._check_indices(indices)
        windows = np.empty((len(wanted), *self.shape), dtype=np.float32)
        files = np.searchsorted(self._ends, wanted, side="right")
        order = np.argsort(files, kind="stable")
        numbers, begins = np.unique(files[order], return_index=True)
        for number, where in zip(numbers.tolist(), np.split(order, begins[1:]), strict=False):
            first = self._ends[number - 1] if number else 0
            windows[where] = _map_windows(self.cache, self.recordings[number], self.shape)[wanted[where] - first]
        return windows, self.labels[wanted]

    def _check_indices(self, indices: ArrayLike) -> NDArray[np.int64]:
        """Return indices as non-negative integers (k,); raise an error if one does not exist."""
        given = np.asarray(indices)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise ShapeError(f"indices {given.shape} of {given.dtype}: a list of integers is needed.")
        wanted = given.astype(np.int64)
        wanted[wanted < 0] += len(self)
        outside = (wanted < 0) | (wanted >= len(self))
        if outside.any():
            raise IndexError(f"window {given[outside][0]} does not exist; the part {self.name!r} has {len(self)}.")
        return wanted

    def __repr__(self) -> str:
        return f"<Part {self.name}: {len(self)} windows of {len(set(self.subjects.tolist()))} subjects>"


def _map_windows(cache: Path, recording: CachedRecording, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Map the file of a recording into memory: windows (n_windows, n_chans, n_times), checked against the manifest."""
    file = cache / recording.file
    expected = (recording.n_windows, *shape)
    with opening(file, "NumPy", f"windows {expected}", REBUILD):
        mapped: NDArray[np.float32] = np.load(file, mmap_mode="r", allow_pickle=False)
        if mapped.shape != expected or mapped.dtype != np.float32:
            raise DataError(file, f"{mapped.dtype} of shape {mapped.shape}", f"float32 of {expected}", REBUILD)
    return mapped


WHERE = "https://isip.piconepress.com/projects/tuh_eeg, on request; then: gbwatt corpus build"


def _refuse_to_load(files: Sequence[Path], _subject: int, *, name: str) -> Trials:
    """Reader of a data set that raises an error: a corpus does not fit into memory."""
    raise ParameterError(
        f"{name} does not fit into memory; open it with "
        f"gbwatt.clinical.corpora.Corpus.open({str(files[0].parent)!r}), describe it with `gbwatt corpus describe`, or "
        "train on it with `gbwatt finetune`."
    )


@dataclass(frozen=True)
class OfficialEvaluation(Splitter):
    """Test on the official evaluation part; a fraction of the other subjects is used for validation."""

    valid_fraction: float = 0.2

    def _splits(self, trials: Trials) -> Iterator[Split]:  # noqa: ARG002
        """Raise an error: corpora are split as windows on disk."""
        raise ParameterError("a corpus is split by gbwatt.clinical.corpora.Corpus.part, not as trials.")


def _corpus_dataset(name: str, title: str) -> Dataset:
    """The entry of a corpus in the catalogue of data sets."""
    source = Source("cache", partial(_refuse_to_load, name=name), lambda _subject: (MANIFEST,))
    return Dataset(
        name=name,
        title=title,
        subjects=(1,),  # the whole corpus
        sources=(source,),
        protocol=OfficialEvaluation(),
        task=None,
        pipeline="tangent-space",
        folder=name,
        where=WHERE,
        only_there=True,
    )


DATASETS = (
    _corpus_dataset("tuab", "TUH Abnormal EEG Corpus: normal or abnormal, 10 s at 200 Hz"),
    _corpus_dataset("tuev", "TUH EEG Events: six kinds of events, 5 s at 200 Hz"),
)
