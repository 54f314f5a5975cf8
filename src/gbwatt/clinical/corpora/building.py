"""Building a cache of windows: which recordings to read, duplicates, and the build itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256 as hasher
from pathlib import Path
from typing import Any

import gbwatt
from gbwatt._validation import check_at_least, check_one_of
from gbwatt.clinical.corpora import cache as caches
from gbwatt.clinical.corpora import windows
from gbwatt.clinical.corpora.cache import ManifestWriter
from gbwatt.clinical.corpora.layout import (
    MONTAGES,
    NO_DAMAGE,
    TRANSIENT,
    CachedRecording,
    Entry,
    FileState,
    Layout,
    Montage,
    Recording,
    SkippedRecording,
    annotation_file,
    corpus_folder,
    find_layout,
    find_recordings,
    sha256,
    state,
)
from gbwatt.clinical.corpora.windows import Job, process_recordings, remove_temporaries

PROBE = 1 << 16  # bytes read at the beginning, middle and end of a file to find possible duplicates

# ----------------------------------------------------------------------------------------------------------- duplicates


def duplicates(folder: Path, recordings: Iterable[Recording], before: Mapping[str, Entry]) -> dict[Recording, str]:
    """Return the recordings that repeat an earlier one in the order of paths, with a description.

    Files of the same size whose beginning, middle and end agree are compared by the hashes of their contents; nothing
    more of other files is read.  Within a part, a recording with other annotations is not a duplicate, because copies
    of a recording may have the events of different classes.  Between the parts it is, and the one in ``eval``, which
    comes first, is kept.
    """
    repeated: dict[Recording, str] = {}
    for similar in _groups_by(recordings, lambda recording: _quick_fingerprint(folder / recording.path)):
        for same in _groups_by(similar, lambda recording: _content_hash(folder, recording, before)):
            repeated |= _duplicates_in_group(folder, sorted(same))
    return repeated


def _groups_by(recordings: Iterable[Recording], key: Callable[[Recording], Hashable | None]) -> list[list[Recording]]:
    """Return groups of two or more recordings with the same key; None is not a key."""
    groups: dict[Hashable, list[Recording]] = {}
    for recording in recordings:
        value = key(recording)
        if value is not None:
            groups.setdefault(value, []).append(recording)
    return [group for group in groups.values() if len(group) > 1]


def _quick_fingerprint(file: Path) -> Hashable | None:
    """Return the size of a file and a hash of its beginning, middle and end, equal for files that may be duplicates.

    None for a file that is empty or cannot be read.
    """
    try:
        size = file.stat().st_size
        parts = hasher()
        with file.open("rb") as stream:
            for start in (0, size // 2, max(size - PROBE, 0)):
                stream.seek(start)
                parts.update(stream.read(PROBE))
    except OSError:
        return None
    return (size, parts.digest()) if size else None


def _content_hash(folder: Path, recording: Recording, before: Mapping[str, Entry]) -> str | None:
    """Return the hash of a file, from the manifest if the file has not changed since."""
    file, old = folder / recording.path, before.get(recording.path)
    try:
        recorded = old.source if old is not None else None
        if recorded is not None and recorded.sha256 and state(file, recorded.sha256) == recorded:
            return recorded.sha256
        return sha256(file)
    except OSError:
        return None


def _duplicates_in_group(folder: Path, group: list[Recording]) -> dict[Recording, str]:
    """Return the duplicates in a group of recordings with the same content, with a description of each.

    ``group`` is sorted by path.  A recording is a duplicate if an earlier one that is kept has the same annotations or
    belongs to the other part.
    """
    repeated: dict[Recording, str] = {}
    kept: dict[str, Recording] = {}  # by the hash of their annotations
    for recording in group:
        other = next((k for k in kept.values() if k.split != recording.split), None)
        annotations = _annotation_hash(folder, recording)
        original = other or kept.get(annotations)
        if original is None:
            kept[annotations] = recording
            continue
        conflict = "" if original.label == recording.label else ", under another label"
        repeated[recording] = f"the same content as {original.path}{conflict}"
    return repeated


def _annotation_hash(folder: Path, recording: Recording) -> str:
    """Hash of the annotation file of a recording; empty if there is none, or the whole recording has one label."""
    file = annotation_file(folder / recording.path) if recording.label is None else None
    return "" if file is None else sha256(file)


# ----------------------------------------------------------------------------------------------------------------- plan


@dataclass(frozen=True)
class BuildPlan:
    """Changes to a cache: recordings to read, entries to write without reading, and paths to remove."""

    todo: list[Recording]
    changed: list[Entry]
    forgotten: list[str]

    def __bool__(self) -> bool:
        return bool(self.todo or self.changed or self.forgotten)


def plan_build(
    folder: Path,
    cache: Path,
    recordings: list[Recording],
    misplaced: list[SkippedRecording],
    before: Mapping[str, Entry],
) -> BuildPlan:
    """Decide what a build must do to bring a cache up to date with its corpus.

    New and changed recordings, and those whose cached windows are not valid, are to be read.  Duplicates, training
    recordings of subjects that are also in ``eval``, and ``misplaced`` files become skipped entries without being read.
    Recordings that are no longer in the corpus are removed from the cache.  ``before`` has the entries of the
    manifest of the cache, by path.
    """
    usable, excluded = _apply_protocol(folder, recordings, before)
    excluded += misplaced
    todo: list[Recording] = []
    changed: list[Entry] = [entry for entry in excluded if before.get(entry.path) != entry]
    for recording in usable:
        old = before.get(recording.path)
        now = None if old is None or not _is_valid(cache, old) else _refreshed_entry(folder, recording, old)
        if now is None:
            todo.append(recording)
        elif now != old:
            changed.append(now)
    present = {entry.path for entry in excluded} | {recording.path for recording in usable}
    vanished = [old for path, old in before.items() if path not in present]
    changed += [_gone_entry(old) for old in vanished if isinstance(old, CachedRecording)]
    forgotten = [old.path for old in vanished if isinstance(old, SkippedRecording) and old.kind != "gone"]
    return BuildPlan(todo, changed, forgotten)


def _apply_protocol(
    folder: Path, recordings: list[Recording], before: Mapping[str, Entry]
) -> tuple[list[Recording], list[SkippedRecording]]:
    """Divide recordings into those that may be used and those that the protocol excludes."""
    evaluated = {recording.subject for recording in recordings if recording.split == "eval"}
    both = {r for r in recordings if r.split == "train" and r.subject in evaluated}
    repeated = duplicates(folder, [recording for recording in recordings if recording not in both], before)
    excluded = []
    for recording in recordings:
        if recording in both:
            reason = f"subject {recording.subject} is also in eval"
            excluded.append(_skip_entry(recording, "subject-in-both", reason))
        elif recording in repeated:
            excluded.append(_skip_entry(recording, "duplicate", repeated[recording]))
    return [r for r in recordings if r not in both and r not in repeated], excluded


def _skip_entry(recording: Recording, kind: str, reason: str) -> SkippedRecording:
    """Return the manifest entry of a recording that is skipped without being read."""
    return SkippedRecording(recording.path, recording.split, recording.subject, kind, reason)


def _gone_entry(old: CachedRecording) -> SkippedRecording:
    """Return the manifest entry of a cached recording that is no longer in the corpus."""
    return SkippedRecording(old.path, old.split, old.subject, "gone", "the file is no longer in the corpus folder")


def _is_valid(cache: Path, old: Entry) -> bool:
    """Return whether an entry can be kept: its cached file is complete, or it was skipped for a lasting reason."""
    if isinstance(old, SkippedRecording):
        return old.source is not None and old.kind not in TRANSIENT
    file = cache / old.file
    return file.is_file() and file.stat().st_size == old.n_bytes


def _refreshed_entry(folder: Path, recording: Recording, old: Entry) -> Entry | None:
    """Return a manifest entry with the present times of its files; None if the contents of the files have changed."""
    file = folder / recording.path
    annotations = annotation_file(file) if recording.label is None else None
    if (annotations is None) != (old.annotation is None):
        return None
    try:
        source, annotation = _state_if_unchanged(file, old.source), _state_if_unchanged(annotations, old.annotation)
    except OSError:
        return None
    if source is None or (annotations is not None and annotation is None):
        return None
    return replace(old, source=source, annotation=annotation)


def _state_if_unchanged(file: Path | None, old: FileState | None) -> FileState | None:
    """Return the present state of a file if its content is still that of the state ``old``; else None."""
    if file is None or old is None:
        return None
    now = state(file, old.sha256)
    return now if now == old or (now.size == old.size and sha256(file) == old.sha256) else None


# ---------------------------------------------------------------------------------------------------------------- build


@dataclass(frozen=True)
class Progress:
    """Progress of a build.

    Attributes
    ----------
    done, total : int
        Recordings processed so far by this call, and in all.
    entry : CachedRecording or SkippedRecording
        The recording that was processed last.
    """

    done: int
    total: int
    entry: Entry


@dataclass(frozen=True)
class BuildSummary:
    """Result of a build.

    Attributes
    ----------
    cache : Path
        Folder of the cache.
    new : int
        Recordings that this call added.
    n_recordings, n_windows : int
        Recordings and windows in the cache.
    skipped : tuple of SkippedRecording
        Recordings that are not in the cache.
    """

    cache: Path
    new: int
    n_recordings: int
    n_windows: int
    skipped: tuple[SkippedRecording, ...]

    @property
    def skipped_kinds(self) -> dict[str, int]:
        """Number of skipped recordings by kind."""
        return dict(Counter(entry.kind for entry in self.skipped).most_common())

    @property
    def damaged(self) -> tuple[SkippedRecording, ...]:
        """Recordings that were skipped because they are damaged."""
        return tuple(entry for entry in self.skipped if entry.kind not in NO_DAMAGE)


def build(
    root: str | Path,
    cache: str | Path,
    *,
    corpus: str,
    montage: str = "referential23",
    notch: float = 60.0,
    jobs: int = 1,
    on_progress: Callable[[Progress], None] | None = None,
) -> BuildSummary:
    """Cut a corpus into windows and write them to disk; resume an interrupted build.

    Each process holds one recording in memory.  Recordings that cannot be used are skipped and listed in the manifest
    with a kind and a reason.  A second call processes only what is missing or has changed.

    Parameters
    ----------
    root : path
        The corpus as downloaded: its folder, the folder of a version, or ``edf``.
    cache : path
        Folder for the windows: a new one, or one that was built with the same settings.
    corpus : "tuab" or "tuev"
        Name of the corpus.
    montage : "referential23" or "bipolar16"
        Channels of the windows.
    notch : float
        Mains frequency to filter out, in Hz.
    jobs : int
        Number of processes; 0: one per core.
    on_progress : callable, optional
        Called in this process after each recording with a :class:`Progress`.

    Returns
    -------
    BuildSummary

    Raises
    ------
    CacheError
        If the cache cannot be written or has other settings.
    DataError, MissingFileError
        If the root does not exist or does not have the folders of the corpus.
    """
    layout = find_layout(corpus)
    check_one_of("montage", montage, tuple(MONTAGES))
    check_at_least("jobs", jobs, 0)
    header = settings(layout, MONTAGES[montage], notch)
    folder, target = corpus_folder(root, layout), Path(cache).expanduser()
    recordings, misplaced = find_recordings(folder, layout)
    with caches.writing(target, header) as writer:
        remove_temporaries(target)
        work = plan_build(folder, target, recordings, misplaced, writer.manifest.entries)
        tasks = [Job(folder, target, recording, corpus, montage, notch) for recording in work.todo]
        new = 0
        if work or not writer.manifest.finished:
            writer.mark(caches.BEGIN)
            _update_entries(writer, target, work)
            new = _process_and_write(writer, target, tasks, jobs, on_progress)
            writer.mark(caches.END)
        return _summarise(target, new, writer.manifest.entries.values())


def settings(layout: Layout, montage: Montage, notch: float) -> dict[str, Any]:
    """Return the header for the manifest of a cache: all settings that its windows depend on, and the gbwatt version.

    A cache can be continued only with the same settings.
    """
    return {
        "format": caches.FORMAT,
        "gbwatt": gbwatt.__version__,
        "corpus": layout.name,
        "montage": montage.name,
        "ch_names": list(montage.ch_names),
        "sfreq": windows.SFREQ,
        "unit": "µV",
        "n_times": windows.n_times(layout),
        "window": windows.rule(layout),
        "class_names": list(layout.class_names),
        "steps": windows.preprocessing(notch).records(),
    }


def _update_entries(writer: ManifestWriter, cache: Path, work: BuildPlan) -> None:
    """Write the changes of a plan that need no recording to be read."""
    for entry in work.changed:
        _write_entry(writer, cache, entry)
    for path in work.forgotten:
        writer.forget(path)


def _process_and_write(
    writer: ManifestWriter, cache: Path, tasks: list[Job], jobs: int, on_progress: Callable[[Progress], None] | None
) -> int:
    """Process recordings and write their entries; return how many were cached."""
    new = 0
    try:
        with closing(process_recordings(tasks, jobs)) as entries:
            for done, entry in enumerate(entries, 1):
                _write_entry(writer, cache, entry)
                new += isinstance(entry, CachedRecording)
                if on_progress is not None:
                    on_progress(Progress(done, len(tasks), entry))
    finally:  # after an interrupt: files that killed processes had begun
        remove_temporaries(cache)
    return new


def _write_entry(writer: ManifestWriter, cache: Path, entry: Entry) -> None:
    """Write the entry of a recording; delete its windows if it is no longer cached."""
    old = writer.manifest.entries.get(entry.path)
    writer.add(entry)
    if isinstance(old, CachedRecording) and not isinstance(entry, CachedRecording):
        (cache / old.file).unlink(missing_ok=True)


def _summarise(cache: Path, new: int, entries: Iterable[Entry]) -> BuildSummary:
    """Count the entries of a manifest."""
    entries = sorted(entries, key=lambda entry: entry.path)
    cached = [entry for entry in entries if isinstance(entry, CachedRecording)]
    skipped = tuple(entry for entry in entries if isinstance(entry, SkippedRecording))
    return BuildSummary(cache, new, len(cached), sum(entry.n_windows for entry in cached), skipped)
