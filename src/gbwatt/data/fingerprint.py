"""Fingerprints of recordings: hashes of a subject's files and of the preprocessing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gbwatt.data.datasets import Source, data_root, find_source, index_files
from gbwatt.data.loading import find_dataset
from gbwatt.errors import MissingFileError


def fingerprint(
    name: str, subject: int, root: str | Path | None = None, reading: Mapping[str, Any] | None = None
) -> str:
    """Hash of a subject's files and of what is done to them; of simulated recordings, of which revision they are.

    ``reading`` are the arguments ``source``, and options of the reader, that :func:`gbwatt.data.load` is given.  What a
    library downloads is not hashed: of its recordings, the name of the source and the steps are.

    Examples
    --------
    >>> fingerprint("simulated-mi", 1) == fingerprint("simulated-mi", 2)
    True
    """
    options = dict(reading or {})
    source, files = _files(name, subject, data_root(root), options.pop("source", None))
    name_and_revision = source.name if source.revision == 1 else f"{source.name} {source.revision}"
    read = [{"options": options}] if options else []
    steps = json.dumps([name_and_revision, *source.preprocessing.records(), *read], sort_keys=True)
    digest = hashlib.sha256(steps.encode())
    for file in _contents(name, files):
        digest.update(_digest(file, file.stat().st_size, file.stat().st_mtime_ns))
    return digest.hexdigest()[:16]


def _files(name: str, subject: int, root: Path, source: str | None) -> tuple[Source, tuple[Path, ...]]:
    dataset = find_dataset(name)
    try:
        return find_source(dataset, subject, root, source, _index(name, root))
    except MissingFileError:  # they may have come since the folder was looked at
        _index.cache_clear()
        return find_source(dataset, subject, root, source, _index(name, root))


@lru_cache(maxsize=64)
def _index(name: str, root: Path) -> dict[str, Path]:
    return index_files(find_dataset(name), root)


def _contents(name: str, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files of a data set, or the file that it is."""
    own = Path(name).expanduser()
    return files or ((own,) if own.is_file() else ())


@lru_cache(maxsize=4096)
def _digest(file: Path, _size: int, _modified: int) -> bytes:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()
