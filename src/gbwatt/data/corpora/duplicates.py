"""Recordings that are there twice, found without reading all of a corpus."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from hashlib import sha256 as hasher
from pathlib import Path

from gbwatt.data.corpora.annotations import annotation_file
from gbwatt.data.corpora.layout import Source
from gbwatt.data.corpora.records import Entry, sha256, state

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
