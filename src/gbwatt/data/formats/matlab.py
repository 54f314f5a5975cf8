"""MATLAB files: checked for their structure and size before SciPy reads them.

SciPy allocates whatever a file says, and a damaged one can make it crash.  A MATLAB file of version 5 to 7.2 is a
sequence of elements, some of which have elements in them; all of them are looked at here without building anything.
"""

from __future__ import annotations

import math
import mmap
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import NDArray

from gbwatt.data.files import DataError, allowed_bytes, expect_expansion, opening

Array = NDArray[Any]

_HEAD = 128  # bytes before the first element
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15

#: Bytes of a number, by type of element: (u)int8 to 32, single, double, (u)int64, and text in UTF-8, 16 and 32.
_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8, 16: 1, 17: 2, 18: 4}

_CELL, _STRUCT, _OBJECT, _CHAR, _SPARSE = 1, 2, 3, 4, 5
_NUMERIC = range(6, 16)
_COMPLEX = 0x0800
_DEEPEST = 50


class _Damaged(ValueError):
    """The elements of a file contradict each other."""


def read_mat(file: Path, *names: str, remedy: str = "") -> dict[str, Array]:
    """Variables of a MATLAB file, by name; ``remedy`` is for a file that does not have them."""
    with opening(file, "SciPy", "a MATLAB file, version 4 to 7.2"):
        there = mat_variables(file)
        missing = [name for name in names if name not in there]
        if missing:
            raise DataError(file, f"the variables {', '.join(there) or 'none'}", f"also {', '.join(missing)}", remedy)
        content = scipy.io.loadmat(file, variable_names=names)
    return {name: np.asarray(content[name]) for name in names}


def mat_variables(file: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shapes and classes of the variables of a MATLAB file whose structure is sound."""
    expect_structure(file)
    return {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(file)}


def expect_structure(file: Path) -> None:
    """Require elements that are complete and agree with each other; files of version 4 and 7.3 are left to SciPy."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(_HEAD)
    if not head.startswith(b"MATLAB 5.0"):
        return
    if head[124:128] not in (b"\x00\x01IM", b"\x01\x00MI"):
        raise DataError(
            file, f"{size} bytes, version {head[124:128]!r}", "a MATLAB file of version 5", "Copy it again."
        )
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            _Walk(file, "<" if head[126:128] == b"IM" else ">").variables(content)
    except _Damaged as error:
        raise DataError(file, f"{size} bytes: {error}", "a complete MATLAB file", "Copy it again.") from None


class _Walk:
    """Goes through the elements of a file, and raises where they contradict each other."""

    def __init__(self, file: Path, order: str) -> None:
        self.file, self.one, self.two = file, struct.Struct(f"{order}I"), struct.Struct(f"{order}II")
        self.limit = allowed_bytes(file)
        self.unpacked = 0

    def variables(self, content: Any) -> None:
        at, end = _HEAD, len(content)
        while at < end:
            kind, start, stop, at = self.element(content, at, end)
            inside = content
            if kind == _COMPRESSED:
                inside = self.decompressed(content[start:stop])
                kind, start, stop, _ = self.element(inside, 0, len(inside))
            self.expect(kind == _MATRIX, f"a variable of type {kind}")
            self.matrix(inside, start, stop)

    def decompressed(self, raw: bytes) -> bytes:
        unpack, parts = zlib.decompressobj(), []
        data, block = raw, 1 << 24
        while data and not unpack.eof:
            parts.append(unpack.decompress(data, block))
            self.unpacked += len(parts[-1])
            if self.unpacked > self.limit:
                expect_expansion(self.file, self.unpacked, "variables")
            data = unpack.unconsumed_tail
        self.expect(unpack.eof, "a compressed variable that ends early")
        return b"".join(parts)

    def element(self, content: Any, at: int, end: int) -> tuple[int, int, int, int]:
        """Type of the element at a place, begin and end of its data, and where the next one begins."""
        self.expect(at + 8 <= end, f"{end - at} bytes too many, or too few, at {at}")
        kind, size = self.two.unpack_from(content, at)
        if kind >> 16:  # up to four bytes, in the element itself
            kind, size = kind & 0xFFFF, kind >> 16
            self.expect(size <= 4, f"a small element of {size} bytes at {at}")
            return kind, at + 4, at + 4 + size, at + 8
        self.expect(at + 8 + size <= end, f"an element of {size} bytes at {at}, which goes on after the end")
        padded = size if kind == _COMPRESSED else -(-size // 8) * 8
        return kind, at + 8, at + 8 + size, min(at + 8 + padded, end)

    def number(self, content: Any, at: int) -> int:
        return int(self.one.unpack_from(content, at)[0])

    def matrix(self, content: Any, at: int, end: int, depth: int = 0) -> None:
        self.expect(depth < _DEEPEST, f"structures that are more than {_DEEPEST} levels deep")
        if at == end:
            return  # empty
        kind, start, stop, at = self.element(content, at, end)
        self.expect((kind, stop - start) == (_UINT32, 8), f"no array flags at {start}")
        flags = self.number(content, start)
        kind, start, stop, at = self.element(content, at, end)
        self.expect(kind == _INT32 and stop - start >= 8 and (stop - start) % 4 == 0, f"no dimensions at {start}")
        shape = [self.number(content, place) for place in range(start, stop, 4)]
        kind, start, stop, at = self.element(content, at, end)
        self.expect(kind == _INT8, f"no name at {start}")
        self.content_of(flags & 0xFF, bool(flags & _COMPLEX), math.prod(shape), content, at, end, depth)

    def content_of(self, group: int, has_imaginary: bool, n: int, content: Any, at: int, end: int, depth: int) -> None:
        if group in _NUMERIC or group == _CHAR:
            for _ in range(2 if has_imaginary else 1):
                if group == _CHAR and at == end and not n:
                    return
                at = self.numbers(content, at, end, n, exact=group != _CHAR)
        elif group == _CELL:
            self.matrices(content, at, end, n, depth)
        elif group in (_STRUCT, _OBJECT):
            if group == _OBJECT:
                *_, at = self.element(content, at, end)
            _, start, stop, at = self.element(content, at, end)
            length = self.number(content, start) if stop - start == 4 else 0
            _, start, stop, at = self.element(content, at, end)
            self.expect(length > 0 and (stop - start) % length == 0, f"no names of fields at {start}")
            self.matrices(content, at, end, n * ((stop - start) // length), depth)
        elif group == _SPARSE:
            for _ in range(3):
                at = self.numbers(content, at, end, None)
        else:
            raise _Damaged(f"a variable of class {group} at {at}")

    def numbers(self, content: Any, at: int, end: int, n: int | None, exact: bool = True) -> int:
        """Pass over n numbers, and say where the next element begins."""
        kind, start, stop, at = self.element(content, at, end)
        self.expect(kind in _BYTES, f"numbers of type {kind} at {start}")
        there = (stop - start) / _BYTES[kind]
        right = n is None or (there == n if exact or kind != 16 else there >= n)  # letters may take several bytes
        self.expect(there == int(there) and right, f"{there:g} numbers at {start}, where the shape says {n}")
        return at

    def matrices(self, content: Any, at: int, end: int, n: int, depth: int) -> None:
        self.expect(8 * n <= end - at, f"{n} cells in {end - at} bytes at {at}")
        for _ in range(n):
            kind, start, stop, at = self.element(content, at, end)
            self.expect(kind == _MATRIX, f"a cell of type {kind} at {start}")
            self.matrix(content, start, stop, depth + 1)

    @staticmethod
    def expect(condition: bool, otherwise: str) -> None:
        if not condition:
            raise _Damaged(otherwise)
