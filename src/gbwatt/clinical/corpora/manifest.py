"""The manifest of a cache: a header, a line for each recording as it ends, and marks where builds begin and end."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from gbwatt.clinical.corpora.layout import Entry, from_record, to_record
from gbwatt.errors import CacheError, DataError

NAME = "manifest.jsonl"
FORMAT = 1
BEGIN, END = "begin", "end"

#: What determines the windows; a cache with other values holds other windows.
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

#: Settings that follow from others, and are not named where these differ.
_FOLLOW = {"ch_names": "montage", "n_times": "corpus", "window": "corpus", "class_names": "corpus"}


@dataclass
class Manifest:
    """What a manifest says; the last line about a recording counts."""

    header: dict[str, Any]
    entries: dict[str, Entry] = field(default_factory=dict)
    finished: bool = False


def read(cache: Path) -> Manifest:
    """The manifest of a cache; a last line that is torn is as if it were not there."""
    file = cache / NAME
    if not file.is_file():
        raise CacheError(
            f"{cache} has no {NAME}: it is no cache of a corpus. Make one: gbwatt corpus build ROOT {cache} --corpus …"
        )
    manifest = _parse(file, file.read_bytes())[0]
    if manifest is None:
        raise CacheError(f"{file} has no header: its build was interrupted at once. The same command goes on.")
    return manifest


def _parse(file: Path, content: bytes) -> tuple[Manifest | None, int]:
    """The manifest, and how many bytes of it are complete lines."""
    manifest: Manifest | None = None
    lines = content.splitlines(keepends=True)
    good = 0
    for number, line in enumerate(lines, 1):
        try:
            if not line.endswith(b"\n"):
                raise ValueError("the line is not complete")
            manifest = _apply(manifest, json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):  # torn by the end of a process
                break
            found = f"line {number} that is no record ({error!r})"
            raise DataError(file, found, "JSON as `gbwatt corpus build` writes it", "Delete the cache.") from None
        good += len(line)
    if manifest is not None and manifest.header["format"] != FORMAT:
        found = f"format {manifest.header['format']}"
        raise DataError(file, found, f"format {FORMAT}", "Build the cache anew, with this version of gbwatt.")
    return manifest, good


def _apply(manifest: Manifest | None, record: Any) -> Manifest:
    if manifest is None:
        missing = [name for name in SETTINGS if name not in record]
        if missing:
            raise KeyError(missing[0])
        return Manifest(dict(record))
    if "mark" in record:
        manifest.finished = record["mark"] == END
        return manifest
    if "forget" in record:
        manifest.entries.pop(record["forget"], None)
        return manifest
    entry = from_record(record)
    manifest.entries[entry.path] = entry
    return manifest


# ---- writing


class Writer:
    """The one process that writes a manifest; each line is on disk before the next one is thought of."""

    def __init__(self, stream: IO[bytes], manifest: Manifest) -> None:
        self._stream = stream
        self.manifest = manifest

    def add(self, entry: Entry) -> None:
        """Keep what became of a recording."""
        self._write(to_record(entry))
        self.manifest.entries[entry.path] = entry

    def forget(self, path: str) -> None:
        """Say no more about a recording that is not there, and was not cached when it was."""
        self._write({"forget": path})
        self.manifest.entries.pop(path)

    def mark(self, mark: str) -> None:
        """Say that a build begins or ends."""
        self._write({"mark": mark, "recordings": len(self.manifest.entries)})
        self.manifest.finished = mark == END

    def _write(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        try:
            if self._stream.write(line) != len(line):  # not buffered: what does not fit is told here
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise not_written(Path(self._stream.name), error) from error


@contextmanager
def writing(cache: Path, header: dict[str, Any]) -> Iterator[Writer]:
    """A cache to write into: a new one, or one that was built with the same settings."""
    file = cache / NAME
    try:
        cache.mkdir(parents=True, exist_ok=True)
        stream = file.open("ab", buffering=0)
    except OSError as error:
        raise not_written(cache, error) from error
    with stream, _locked(stream, cache):
        content = file.read_bytes()
        manifest, good = _parse(file, content)
        if manifest is not None:
            _require_same(cache, manifest.header, header)
        if good < len(content):
            stream.truncate(good)
        writer = Writer(stream, manifest or Manifest(header))
        if manifest is None:
            writer._write(header)
        yield writer


@contextmanager
def _locked(stream: IO[bytes], cache: Path) -> Iterator[None]:
    """Refuse two builds at a time, where the system can; a process that dies leaves no lock."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CacheError(f"another process is building {cache}; wait until it has finished.") from None
    except OSError:  # file systems of clusters may have no locks
        yield
        return
    try:
        yield
    finally:  # closing is not enough: a process that is just being started has the open file, too
        fcntl.flock(stream, fcntl.LOCK_UN)


def _require_same(cache: Path, there: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    wanted = json.loads(json.dumps(header))  # in the types that JSON gives back
    other = [name for name in SETTINGS if there[name] != wanted[name]]
    named = [name for name in other if _FOLLOW.get(name) not in other]
    if named:
        differences = [
            f"{name} is {_own(there[name], wanted[name])!r} there and {_own(wanted[name], there[name])!r} here"
            for name in named
        ]
        raise CacheError(
            f"{cache} was built with other settings: {'; '.join(differences)}. Take another folder, or delete this one."
        )


def _own(value: Any, other: Any) -> Any:
    """A value, or of a list the items that the other one has not."""
    return [item for item in value if item not in other] if isinstance(value, list) else value


def not_written(file: Path, error: OSError) -> CacheError:
    """What to say when the system does not let a file be written."""
    return CacheError(
        f"{file} cannot be written ({error.strerror or error}). Make room, or give rights to the folder, and give the "
        "same command again: it goes on with what is missing."
    )
