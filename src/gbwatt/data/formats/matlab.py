"""MATLAB files: checked for their structure and size before SciPy reads them.

SciPy allocates whatever a file says, and a damaged one can make it crash.  A MATLAB file of version 5 to 7.2 is a
sequence of elements, some of which have elements in them, one of version 4 a sequence of matrices; all of them are
checked here without building anything.  Files of version 7.3 are HDF5 files, and are refused.
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

from gbwatt.data._reading import allowed_bytes, expect_expansion, opening
from gbwatt.errors import DataError

Array = NDArray[Any]

_HEAD = 128  # bytes before the first element
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15

#: Bytes of a number, by type of element: (u)int8 to 32, single, double, (u)int64, and text in UTF-8, 16 and 32.
_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8, 16: 1, 17: 2, 18: 4}

#: The same for files of version 4: double, single, int32, int16, uint16, uint8.
_BYTES_4 = {0: 8, 1: 4, 2: 4, 3: 2, 4: 2, 5: 1}

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
    """Require a MATLAB file of version 4 to 7.2 whose parts are complete and agree with each other.

    The version is decided as SciPy does, by binary fields: the text at the beginning of a header says nothing.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(_HEAD)
    is_version_4 = 0 in head[:4]
    if not is_version_4:
        _expect_version_5(file, size, head)
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if is_version_4:
                _walk_version_4(content)
            else:
                _Walk(file, "<" if head[126:128] == b"IM" else ">").variables(content)
    except _Damaged as error:
        raise DataError(file, f"{size} bytes: {error}", "a complete MATLAB file", "Copy it again.") from None


def _expect_version_5(file: Path, size: int, head: bytes) -> None:
    """Require the header of a file of version 5 to 7.2, which share one layout."""
    mark, version = head[126:128], head[124:126]
    if mark not in (b"IM", b"MI"):
        found = f"{size} bytes" + (f" that begin with {head[:8]!r} and lack IM or MI at byte 126" if head else "")
        raise DataError(file, found, "a MATLAB file, version 4 to 7.2", "Copy it again.")
    major = version[1] if mark == b"IM" else version[0]
    if major == 2:
        remedy = "Save it again in MATLAB: save(file, '-v7'); or export the recording as EDF."
        raise DataError(file, "a MATLAB file of version 7.3 (HDF5)", "version 4 to 7.2", remedy)
    if major != 1:
        found = f"{size} bytes, version {version!r}"
        raise DataError(file, found, "a MATLAB file, version 4 to 7.2", "Copy it again.")


def _walk_version_4(content: Any) -> None:
    """Pass over the matrices of a file of version 4, each a header of five numbers, a name and its values."""
    first = int.from_bytes(content[:4], "little", signed=True)
    header = struct.Struct("<5i" if 0 <= first <= 5000 else ">5i")
    at, end = 0, len(content)
    while at < end:
        if at + header.size > end:
            raise _Damaged(f"{end - at} bytes too many, or too few, at {at}")
        kind, n_rows, n_columns, has_imaginary, name_length = header.unpack_from(content, at)
        order, unused, number, group = kind // 1000, kind // 100 % 10, kind // 10 % 10, kind % 10
        if order not in (0, 1) or unused or number not in _BYTES_4 or group not in (0, 1, 2):
            raise _Damaged(f"a matrix of type {kind} at {at}")
        if n_rows < 0 or n_columns < 0 or name_length < 1 or has_imaginary not in (0, 1):
            raise _Damaged(f"a matrix of {n_rows} rows and {n_columns} columns, name of {name_length} bytes, at {at}")
        if group == 2 and (n_rows < 1 or n_columns not in (3, 4)):
            raise _Damaged(f"a sparse matrix of {n_rows} rows and {n_columns} columns at {at}")
        parts = 2 if has_imaginary and group != 2 else 1
        n_bytes = parts * n_rows * n_columns * _BYTES_4[number]
        at += header.size + name_length
        if at + n_bytes > end:
            raise _Damaged(f"a matrix of {n_bytes} bytes at {at}, which goes on after the end")
        at += n_bytes


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
