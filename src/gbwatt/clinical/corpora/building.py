"""Building a cache of windows: planning, duplicates, and the build itself."""

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
from gbwatt.clinical.corpora import manifest, windows
from gbwatt.clinical.corpora.layout import (
    MONTAGES,
    NO_DAMAGE,
    TRANSIENT,
    Cached,
    Entry,
    FileState,
    Layout,
    Montage,
    Skipped,
    Source,
    annotation_file,
    corpus_folder,
    find_layout,
    find_recordings,
    sha256,
    state,
)
from gbwatt.clinical.corpora.windows import Job, outcomes, remove_temporaries

PROBE = 1 << 16  # bytes


def duplicates(folder: Path, sources: Iterable[Source], before: Mapping[str, Entry]) -> dict[Source, str]:
    """Recordings that repeat one that comes before them in the order of paths, and what they repeat.

    Files of one size whose beginning, middle and end agree are compared by the hashes of their contents; of the others
    nothing more is read.  Within a part, a recording with other annotations is no duplicate: copies of a recording may
    have the events of different classes.  Between the parts it is: ``eval`` comes first, and is kept.
    """
    alike = _groups(sources, lambda source: _probe(folder / source.path))
    found: dict[Source, str] = {}
    for group in alike:
        for same in _groups(group, lambda source: _content(folder, source, before)):
            found |= _repeated(folder, sorted(same))
    return found


def _groups(sources: Iterable[Source], key: Callable[[Source], Hashable | None]) -> list[list[Source]]:
    """Sources with the same key, where there are several; those without a key are left out."""
    groups: dict[Hashable, list[Source]] = {}
    for source in sources:
        found = key(source)
        if found is not None:
            groups.setdefault(found, []).append(source)
    return [group for group in groups.values() if len(group) > 1]


def _probe(file: Path) -> Hashable | None:
    """Size, and a hash of three small parts; None for what cannot be read, or is empty."""
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


def _content(folder: Path, source: Source, before: Mapping[str, Entry]) -> str | None:
    file, old = folder / source.path, before.get(source.path)
    try:
        known = old.source if old is not None else None
        if known is not None and known.sha256 and state(file, known.sha256) == known:
            return known.sha256
        return sha256(file)
    except OSError:
        return None


def _repeated(folder: Path, same: list[Source]) -> dict[Source, str]:
    """Of recordings with one content, in order, those that are not kept."""
    found: dict[Source, str] = {}
    kept: dict[str, Source] = {}  # by their annotations
    for source in same:
        other = next((k for k in kept.values() if k.split != source.split), None)
        own = _annotated(folder, source)
        twin = other or kept.get(own)
        if twin is None:
            kept[own] = source
            continue
        conflict = "" if twin.label == source.label else ", under another label"
        found[source] = f"the same content as {twin.path}{conflict}"
    return found


def _annotated(folder: Path, source: Source) -> str:
    file = annotation_file(folder / source.path) if source.label is None else None
    return "" if file is None else sha256(file)


@dataclass(frozen=True)
class Plan:
    """Recordings to read, entries that change without reading, and paths of which there is no more to say."""

    todo: list[Source]
    changed: list[Entry]
    forgotten: list[str]

    def __bool__(self) -> bool:
        return bool(self.todo or self.changed or self.forgotten)


def plan(folder: Path, cache: Path, sources: list[Source], strange: list[Skipped], before: Mapping[str, Entry]) -> Plan:
    """Compare the recordings of a corpus with what a manifest says of them."""
    usable, excluded = _excluded(folder, sources, before)
    excluded += strange
    todo: list[Source] = []
    changed: list[Entry] = [entry for entry in excluded if before.get(entry.path) != entry]
    for source in usable:
        old = before.get(source.path)
        now = None if old is None or not _holds(cache, old) else _unchanged(folder, source, old)
        if now is None:
            todo.append(source)
        elif now != old:
            changed.append(now)
    known = {entry.path for entry in excluded} | {source.path for source in usable}
    vanished = [old for path, old in before.items() if path not in known]
    changed += [_gone(old) for old in vanished if isinstance(old, Cached)]
    return Plan(todo, changed, [old.path for old in vanished if isinstance(old, Skipped) and old.kind != "gone"])


def _excluded(folder: Path, sources: list[Source], before: Mapping[str, Entry]) -> tuple[list[Source], list[Skipped]]:
    """Recordings that may be used, and those that the protocol excludes."""
    tested = {source.subject for source in sources if source.split == "eval"}
    both = {source for source in sources if source.split == "train" and source.subject in tested}
    twins = duplicates(folder, [source for source in sources if source not in both], before)
    excluded = []
    for source in sources:
        if source in both:
            excluded.append(_skip(source, "subject-in-both", f"subject {source.subject} is in eval, too"))
        elif source in twins:
            excluded.append(_skip(source, "duplicate", twins[source]))
    return [source for source in sources if source not in both and source not in twins], excluded


def _skip(source: Source, kind: str, reason: str) -> Skipped:
    return Skipped(source.path, source.split, source.subject, kind, reason)


def _gone(old: Cached) -> Skipped:
    return Skipped(old.path, old.split, old.subject, "gone", "the file is not in the corpus folder any more")


def _holds(cache: Path, old: Entry) -> bool:
    """Whether what is written down still holds, as far as the cache goes."""
    if isinstance(old, Skipped):
        return old.source is not None and old.kind not in TRANSIENT
    file = cache / old.file
    return file.is_file() and file.stat().st_size == old.n_bytes


def _unchanged(folder: Path, source: Source, old: Entry) -> Entry | None:
    """The entry, with new times where only these have changed; None if the content is another."""
    file = folder / source.path
    beside = annotation_file(file) if source.label is None else None
    if (beside is None) != (old.annotation is None):
        return None
    try:
        recording, annotation = _same(file, old.source), _same(beside, old.annotation)
    except OSError:
        return None
    if recording is None or (beside is not None and annotation is None):
        return None
    return replace(old, source=recording, annotation=annotation)


def _same(file: Path | None, old: FileState | None) -> FileState | None:
    """The state of a file now; None if its content is not the same."""
    if file is None or old is None:
        return None
    now = state(file, old.sha256)
    return now if now == old or (now.size == old.size and sha256(file) == old.sha256) else None


@dataclass(frozen=True)
class Progress:
    """How far a build is: recordings done by this call, of all it has to do, and the last one."""

    done: int
    total: int
    entry: Entry


@dataclass(frozen=True)
class Built:
    """What a build leaves.

    Attributes
    ----------
    cache : Path
    new : int
        Recordings that this call cached.
    n_recordings, n_windows : int
        What the cache has in all.
    skipped : tuple of Skipped
        All recordings that are not in it.
    """

    cache: Path
    new: int
    n_recordings: int
    n_windows: int
    skipped: tuple[Skipped, ...]

    @property
    def skipped_kinds(self) -> dict[str, int]:
        """How many recordings were skipped, by kind."""
        return dict(Counter(entry.kind for entry in self.skipped).most_common())

    @property
    def damaged(self) -> tuple[Skipped, ...]:
        """Those that were skipped because something is wrong with them."""
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
) -> Built:
    """Cut a corpus into windows and keep them on disk; go on where an earlier call was stopped.

    A recording is in memory at a time for each of the ``jobs``, the corpus never.  Recordings that cannot be used are
    skipped and listed in the manifest with a kind and a reason.  A second call does what is missing or has changed.

    Parameters
    ----------
    root : path
        The corpus as downloaded: its folder, a version in it, or the folder ``edf``.
    cache : path
        Folder for the windows; a new one, or one that was built with the same settings.
    corpus : "tuab" or "tuev"
    montage : "referential23" or "bipolar16"
        Channels of the windows.
    notch : float
        Frequency of the mains that is filtered out, in Hz.
    jobs : int
        Processes; 0 for one a core.
    on_progress : callable, optional
        Is called in this process after each recording.

    Returns
    -------
    Built

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
    sources, strange = find_recordings(folder, layout)
    with manifest.writing(target, header) as writer:
        remove_temporaries(target)
        work = plan(folder, target, sources, strange, writer.manifest.entries)
        tasks = [Job(folder, target, source, corpus, montage, notch) for source in work.todo]
        new = 0
        if work or not writer.manifest.finished:
            writer.mark(manifest.BEGIN)
            _leave_out(writer, target, work)
            new = _carry_out(writer, target, tasks, jobs, on_progress)
            writer.mark(manifest.END)
        return _built(target, new, writer.manifest.entries.values())


def _leave_out(writer: manifest.Writer, cache: Path, work: Plan) -> None:
    for entry in work.changed:
        _replace(writer, cache, entry)
    for path in work.forgotten:
        writer.forget(path)


def _carry_out(
    writer: manifest.Writer, cache: Path, tasks: list[Job], jobs: int, on_progress: Callable[[Progress], None] | None
) -> int:
    """Read recordings and write down what becomes of them; how many were cached."""
    new = 0
    try:
        with closing(outcomes(tasks, jobs)) as entries:
            for done, entry in enumerate(entries, 1):
                _replace(writer, cache, entry)
                new += isinstance(entry, Cached)
                if on_progress is not None:
                    on_progress(Progress(done, len(tasks), entry))
    finally:  # after an interrupt, what processes that were ended had begun
        remove_temporaries(cache)
    return new


def settings(layout: Layout, montage: Montage, notch: float) -> dict[str, Any]:
    """The header of a manifest: all that the windows depend on, and who made them."""
    return {
        "format": manifest.FORMAT,
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


def _built(cache: Path, new: int, entries: Iterable[Entry]) -> Built:
    entries = sorted(entries, key=lambda entry: entry.path)
    cached = [entry for entry in entries if isinstance(entry, Cached)]
    skipped = tuple(entry for entry in entries if isinstance(entry, Skipped))
    return Built(cache, new, len(cached), sum(entry.n_windows for entry in cached), skipped)


def _replace(writer: manifest.Writer, cache: Path, entry: Entry) -> None:
    """Write down what became of a recording; windows that it had and has no more are deleted."""
    old = writer.manifest.entries.get(entry.path)
    writer.add(entry)
    if isinstance(old, Cached) and not isinstance(entry, Cached):
        (cache / old.file).unlink(missing_ok=True)
