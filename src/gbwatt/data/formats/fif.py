"""Structure of FIF files, checked before MNE reads them: MNE makes do with what it finds of a damaged one."""

from __future__ import annotations

import struct
from pathlib import Path

from gbwatt.data.files import DataError

_TAG = struct.Struct(">iiii")  # kind, type, bytes of data, place of the next tag
_FILE_ID, _START, _END = 100, 104, 105
_FOLLOWS, _LAST = 0, -1
_KINDS = 1 << 16  # all that are defined are below
_RAW, _SAMPLES, _SMALL = (102, 112, 119), 300, 1024  # blocks of continuous samples, their tags, bytes of other tags


def expect_tags(file: Path) -> None:
    """Require a chain of tags that are within the file, whose blocks are closed in the order in which they began."""
    end = file.stat().st_size
    with file.open("rb") as stream:
        at, opened, n_tags = 0, list[int](), 0
        while at < end:
            stream.seek(at)
            raw = stream.read(_TAG.size)
            if len(raw) < _TAG.size:
                raise _damaged(file, f"{end} bytes that end within a tag")
            kind, _, size, following = _TAG.unpack(raw)
            if not n_tags and kind != _FILE_ID:
                raise _damaged(file, f"{end} bytes that MNE cannot read: they begin with {raw[:8]!r}")
            if size < 0 or at + _TAG.size + size > end:
                raise _damaged(file, f"{end} bytes and a tag at {at} of {size} bytes, which goes on after the end")
            if not 0 < kind < _KINDS:
                raise _damaged(file, f"{end} bytes and a tag at {at} of kind {kind}")
            if kind == _START:
                opened.append(_block(stream.read(4)))
                if opened[-1] >= _KINDS:
                    raise _damaged(file, f"{end} bytes and a block at {at} of kind {opened[-1]}")
            elif opened and opened[-1] in _RAW and size > _SMALL and kind != _SAMPLES:
                raise _damaged(file, f"{end} bytes and a tag at {at} of kind {kind} among the samples")
            elif kind == _END and (not opened or opened.pop() != _block(stream.read(4))):
                raise _damaged(file, f"{end} bytes, and at {at} the end of a block that did not begin")
            n_tags += 1
            if following == _LAST:
                break
            if following != _FOLLOWS and following <= at:
                raise _damaged(file, f"{end} bytes and a tag at {at} whose next one is at {following}")
            at = at + _TAG.size + size if following == _FOLLOWS else following
    if opened or at >= end:
        what = f"a block of kind {opened[-1]} without an end" if opened else "no last tag"
        raise _damaged(file, f"{end} bytes and {what}")


def _block(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _damaged(file: Path, found: str) -> DataError:
    return DataError(file, found, "a complete FIF file", "It may be truncated. Copy it again.")
