"""A cache of windows, read as it is needed: only the manifest is in memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256 as hasher
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gbwatt._validation import check_at_least, check_number, check_one_of
from gbwatt.clinical.corpora import manifest
from gbwatt.clinical.corpora.layout import Cached, Skipped, sha256
from gbwatt.data._reading import opening
from gbwatt.errors import CacheError, DataError, ParameterError, ShapeError

PARTS = ("train", "valid", "eval")


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Windows of a corpus on disk, as :func:`~gbwatt.clinical.corpora.build` wrote them.

    Attributes
    ----------
    cache : Path
    name, montage : str
    ch_names, class_names : tuple of str
    sfreq : float
        Sampling rate in Hz.
    n_times : int
        Samples of a window.
    recordings : tuple of Cached
        In the order of their paths.
    skipped : tuple of Skipped
        What is not in the cache, and why.
    header : dict
        The first line of the manifest.
    """

    cache: Path
    name: str
    montage: str
    ch_names: tuple[str, ...]
    sfreq: float
    n_times: int
    class_names: tuple[str, ...]
    recordings: tuple[Cached, ...]
    skipped: tuple[Skipped, ...]
    header: dict[str, Any]

    @classmethod
    def open(cls, cache: str | Path) -> Corpus:
        """Read the manifest of a cache that is finished and has windows."""
        cache = Path(cache).expanduser()
        found = manifest.read(cache)
        header, entries = found.header, [found.entries[path] for path in sorted(found.entries)]
        command = f"gbwatt corpus build ROOT {cache} --corpus {header['corpus']} --montage {header['montage']}"
        if not found.finished:
            raise CacheError(f"{cache} is not finished: {len(entries)} recordings are done. Go on: {command}")
        recordings = tuple(entry for entry in entries if isinstance(entry, Cached))
        skipped = tuple(entry for entry in entries if isinstance(entry, Skipped))
        if not recordings:
            kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(s.kind for s in skipped).most_common())
            raise CacheError(
                f"{cache} has no windows: all recordings were skipped ({kinds}). Mend them, then: {command}"
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
        """Hash of the settings, and of every recording's windows, labels, subject and part.

        Neither the place of the cache nor the order in which it was built enters, nor the version that built it.
        """
        known = [[r.path, r.split, r.subject, r.labels, r.sha256] for r in self.recordings]
        settings = {name: self.header[name] for name in manifest.SETTINGS}
        return hasher(json.dumps([settings, known], sort_keys=True).encode()).hexdigest()

    def part(self, name: str, valid_fraction: float = 0.2, seed: int = 0) -> Part:
        """Training, validation or evaluation windows; no subject is in two parts.

        Validation subjects are drawn from those of the official training part, about ``valid_fraction`` of them, and
        in proportion from the subjects that have each class: a subject counts for the rarest class it has.
        """
        check_one_of("part", name, PARTS)
        check_number("valid_fraction", valid_fraction)
        check_at_least("seed", seed, 0)
        if not 0 <= valid_fraction < 1:
            raise ParameterError(f"valid_fraction={valid_fraction} must be 0 or more, and below 1.")
        chosen = [r for r in self.recordings if r.split == ("eval" if name == "eval" else "train")]
        if name != "eval":
            valid = _validation_subjects(chosen, valid_fraction, seed)
            chosen = [r for r in chosen if (r.subject in valid) == (name == "valid")]
        if not chosen:
            why = f" with valid_fraction={valid_fraction}" if name == "valid" else ""
            raise ParameterError(f"part={name!r} of {self.cache} has no windows{why}.")
        return Part(self.cache, name, tuple(chosen), (len(self.ch_names), self.n_times))

    def verify(self) -> None:
        """Compare every cached file with the hash in the manifest; an error names those that differ."""
        damaged = [found for recording in self.recordings if (found := self._difference(recording))]
        if damaged:
            shown = "; ".join(damaged[:5]) + ("; …" if len(damaged) > 5 else "")
            raise CacheError(
                f"{self.cache}: {len(damaged)} of {len(self.recordings)} cached files are not what the manifest says: "
                f"{shown}. Delete these files, and build again."
            )

    def _difference(self, recording: Cached) -> str:
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


def _validation_subjects(recordings: Sequence[Cached], fraction: float, seed: int) -> set[str]:
    person = _same_person(recordings)
    classes: dict[str, set[int]] = {}
    for recording in recordings:
        classes.setdefault(person[recording.subject], set()).update(label for label, _ in recording.labels)
    if not fraction or not classes:
        return set()
    if len(classes) < 2:
        raise ParameterError(
            f"valid_fraction={fraction}: there is one training subject only, and none for validation; take 0."
        )
    frequency = Counter(label for own in classes.values() for label in own)
    rarest = {subject: min(own, key=lambda label: (frequency[label], label)) for subject, own in classes.items()}
    subjects = np.random.default_rng(seed).permutation(sorted(classes)).tolist()
    subjects.sort(key=lambda subject: (frequency[rarest[subject]], rarest[subject]))  # at random within a class
    n_valid = min(max(round(fraction * len(subjects)), 1), len(subjects) - 1)
    places = (np.arange(n_valid) + 0.5) * len(subjects) / n_valid
    chosen = {subjects[int(place)] for place in places}
    return {subject for subject, name in person.items() if name in chosen}


def _same_person(recordings: Sequence[Cached]) -> dict[str, str]:
    """For each subject one name for all that share a recording with it, whatever they are called."""
    name = {recording.subject: recording.subject for recording in recordings}
    holder: dict[str, str] = {}
    for recording in (r for r in recordings if r.source.sha256):
        one, other = name[recording.subject], name[holder.setdefault(recording.source.sha256, recording.subject)]
        if one != other:
            first = min(one, other)
            name = {subject: first if known in (one, other) else known for subject, known in name.items()}
    return name


class Part:
    """Windows of some recordings: a map-style data set that reads from disk what is asked for.

    ``part[i]`` is a window (n_chans, n_times) in float32 and its label; :meth:`read` gives many at once.  One file is
    mapped at a time, for as long as windows are copied out of it: nothing stays open between calls, so that a part can
    be pickled, and used by several processes.

    Attributes
    ----------
    name : str
    recordings : tuple of Cached
    labels : array (n,) of int64
    """

    def __init__(self, cache: Path, name: str, recordings: tuple[Cached, ...], shape: tuple[int, int]) -> None:
        self.cache, self.name, self.recordings, self.shape = cache, name, recordings, shape
        self.labels = np.concatenate([recording.window_labels() for recording in recordings])
        self.labels.flags.writeable = False
        self._ends: list[int] = np.cumsum([recording.n_windows for recording in recordings]).tolist()

    @cached_property
    def subjects(self) -> NDArray[np.str_]:
        """The subject of each window (n,)."""
        names = np.array([recording.subject for recording in self.recordings])
        return np.repeat(names, [recording.n_windows for recording in self.recordings])

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        windows, labels = self.read([index])
        return windows[0], int(labels[0])

    def read(self, indices: ArrayLike) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Windows (k, n_chans, n_times) in float32 and their labels (k,), in the order of the indices."""
        wanted = self._indices(indices)
        windows = np.empty((len(wanted), *self.shape), dtype=np.float32)
        files = np.searchsorted(self._ends, wanted, side="right")
        order = np.argsort(files, kind="stable")
        numbers, begins = np.unique(files[order], return_index=True)
        for number, where in zip(numbers.tolist(), np.split(order, begins[1:]), strict=False):
            first = self._ends[number - 1] if number else 0
            windows[where] = _mapped(self.cache, self.recordings[number], self.shape)[wanted[where] - first]
        return windows, self.labels[wanted]

    def _indices(self, indices: ArrayLike) -> NDArray[np.int64]:
        found = np.asarray(indices)
        if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
            raise ShapeError(f"indices {found.shape} of {found.dtype}: a list of whole numbers is needed.")
        wanted = found.astype(np.int64)
        wanted[wanted < 0] += len(self)
        outside = (wanted < 0) | (wanted >= len(self))
        if outside.any():
            raise IndexError(f"window {found[outside][0]} does not exist; the part {self.name!r} has {len(self)}.")
        return wanted

    def __repr__(self) -> str:
        return f"<Part {self.name}: {len(self)} windows of {len(set(self.subjects.tolist()))} subjects>"


def _mapped(cache: Path, recording: Cached, shape: tuple[int, int]) -> NDArray[np.float32]:
    file = cache / recording.file
    expected = (recording.n_windows, *shape)
    with opening(file, "NumPy", f"windows {expected}", "Delete it, and build the cache again."):
        mapped: NDArray[np.float32] = np.load(file, mmap_mode="r", allow_pickle=False)
        if mapped.shape != expected or mapped.dtype != np.float32:
            found = f"{mapped.dtype} of shape {mapped.shape}"
            raise DataError(file, found, f"float32 of {expected}", "Delete it, and build the cache again.")
    return mapped
