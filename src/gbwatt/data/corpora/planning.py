"""What a build has to do: recordings that are new or have changed, and those that are left out without reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gbwatt.data.corpora.annotations import annotation_file
from gbwatt.data.corpora.duplicates import duplicates
from gbwatt.data.corpora.layout import Source
from gbwatt.data.corpora.problems import TRANSIENT
from gbwatt.data.corpora.records import Cached, Entry, FileState, Skipped, sha256, state


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
