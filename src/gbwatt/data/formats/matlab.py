"""MATLAB files: checks of their structure and size before SciPy reads them.

SciPy allocates the sizes that a file declares, and a damaged file can crash it.  A MATLAB file of version 5 to 7.2 is a
sequence of nested elements, one of version 4 a sequence of matrices; both are checked here without allocating arrays.
Files of version 7.3 (HDF5) are not supported.
"""

from __future__ import annotations

import math
import mmap
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.io
from numpy.typing import NDArray

from gbwatt.data._reading import allowed_bytes, expect_plausible_size, opening
from gbwatt.errors import DataError

Array = NDArray[Any]

_HEADER_SIZE = 128  # bytes before the first element
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15  # types of elements

#: Bytes per number by type of element: (u)int8 to 32, single, double, (u)int64, and text in UTF-8, 16 and 32.
_NUMBER_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8, 16: 1, 17: 2, 18: 4}

#: Bytes per number by type in files of version 4: double, single, int32, int16, uint16, uint8.
_NUMBER_BYTES_4 = {0: 8, 1: 4, 2: 4, 3: 2, 4: 2, 5: 1}

#: Classes of arrays; those of numbers; the flag of complex arrays; and the allowed depth of nested structures.
_CELL, _STRUCT, _OBJECT, _CHAR, _SPARSE = 1, 2, 3, 4, 5
_NUMERIC = range(6, 16)
_COMPLEX = 0x0800
_MAX_DEPTH = 50


class _Damaged(ValueError):
    """The structure of a MATLAB file is inconsistent; becomes a :class:`DataError` that names the file."""


def read_mat(file: Path, *names: str, remedy: str = "") -> dict[str, Array]:
    """Read variables of a MATLAB file by name, after a check of its structure.

    ``remedy`` is what the error message recommends if a variable is missing.
    """
    with opening(file, "SciPy", "a MATLAB file, version 4 to 7.2"):
        variables = mat_variables(file)
        missing = [name for name in names if name not in variables]
        if missing:
            raise DataError(
                file, f"the variables {', '.join(variables) or 'none'}", f"also {', '.join(missing)}", remedy
            )
        content = scipy.io.loadmat(file, variable_names=names)
    return {name: np.asarray(content[name]) for name in names}


def mat_variables(file: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and MATLAB class of each variable of a MATLAB file, after a check of its structure."""
    expect_structure(file)
    return {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(file)}


def expect_structure(file: Path) -> None:
    """Require a complete and consistent MATLAB file of version 4 to 7.2.

    As in SciPy, the version is determined by binary fields, not by the text at the beginning of the header.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(_HEADER_SIZE)
    is_version_4 = 0 in head[:4]
    if not is_version_4:
        _expect_version_5(file, size, head)
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if is_version_4:
                _check_version_4(content)
            else:
                _ElementChecker(file, "<" if head[126:128] == b"IM" else ">").check_variables(content)
    except _Damaged as error:
        raise DataError(file, f"{size} bytes: {error}", "a complete MATLAB file", "Copy it again.") from None


def _expect_version_5(file: Path, size: int, head: bytes) -> None:
    """Raise an error unless the header is that of version 5 to 7.2; ``size`` is that of the file."""
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


def _check_version_4(content: Any) -> None:
    """Require a complete sequence of matrices, which a file of version 4 consists of.

    Each matrix has a header of five integers, a name and its values.
    """
    first = int.from_bytes(content[:4], "little", signed=True)
    header = struct.Struct("<5i" if 0 <= first <= 5000 else ">5i")
    at, end = 0, len(content)
    while at < end:
        if at + header.size > end:
            raise _Damaged(f"{end - at} surplus or missing bytes at {at}")
        kind, n_rows, n_columns, has_imaginary, name_length = header.unpack_from(content, at)
        order, unused, number, group = kind // 1000, kind // 100 % 10, kind // 10 % 10, kind % 10
        if order not in (0, 1) or unused or number not in _NUMBER_BYTES_4 or group not in (0, 1, 2):
            raise _Damaged(f"a matrix of type {kind} at {at}")
        if n_rows < 0 or n_columns < 0 or name_length < 1 or has_imaginary not in (0, 1):
            raise _Damaged(f"a matrix of {n_rows} rows and {n_columns} columns, name of {name_length} bytes, at {at}")
        if group == 2 and (n_rows < 1 or n_columns not in (3, 4)):
            raise _Damaged(f"a sparse matrix of {n_rows} rows and {n_columns} columns at {at}")
        parts = 2 if has_imaginary and group != 2 else 1
        n_bytes = parts * n_rows * n_columns * _NUMBER_BYTES_4[number]
        at += header.size + name_length
        if at + n_bytes > end:
            raise _Damaged(f"a matrix of {n_bytes} bytes at {at}, beyond the end")
        at += n_bytes


class _ElementChecker:
    """Checks that the elements of a file of version 5 to 7.2 are complete and consistent, without creating arrays.

    Methods take the bytes ``content``, the position ``at`` in them, and the position ``end`` that elements must not
    exceed.  They raise :class:`_Damaged`.  ``order`` is the byte order, "<" or ">".
    """

    def __init__(self, file: Path, order: str) -> None:
        self.file, self.uint32, self.two_uint32 = file, struct.Struct(f"{order}I"), struct.Struct(f"{order}II")
        self.limit = allowed_bytes(file)
        self.unpacked = 0

    def check_variables(self, content: Any) -> None:
        """Check all variables of the file, which follow the header."""
        at, end = _HEADER_SIZE, len(content)
        while at < end:
            kind, start, stop, at = self.read_element(content, at, end)
            inside = content
            if kind == _COMPRESSED:
                inside = self.decompress(content[start:stop])
                kind, start, stop, _ = self.read_element(inside, 0, len(inside))
            self.expect(kind == _MATRIX, f"a variable of type {kind}")
            self.check_matrix(inside, start, stop)

    def decompress(self, raw: bytes) -> bytes:
        """Return the decompressed bytes of a variable; raise an error if the file expands too much."""
        unpack, parts = zlib.decompressobj(), []
        data, block = raw, 1 << 24
        while data and not unpack.eof:
            parts.append(unpack.decompress(data, block))
            self.unpacked += len(parts[-1])
            if self.unpacked > self.limit:
                expect_plausible_size(self.file, self.unpacked, "variables")
            data = unpack.unconsumed_tail
        self.expect(unpack.eof, "a truncated compressed variable")
        return b"".join(parts)

    def read_element(self, content: Any, at: int, end: int) -> tuple[int, int, int, int]:
        """Return type, start and end of the data of the element at a position, and the position of the next element."""
        self.expect(at + 8 <= end, f"{end - at} surplus or missing bytes at {at}")
        kind, size = self.two_uint32.unpack_from(content, at)
        if kind >> 16:  # up to four bytes, in the element itself
            kind, size = kind & 0xFFFF, kind >> 16
            self.expect(size <= 4, f"a small element of {size} bytes at {at}")
            return kind, at + 4, at + 4 + size, at + 8
        self.expect(at + 8 + size <= end, f"an element of {size} bytes at {at}, beyond the end")
        padded = size if kind == _COMPRESSED else -(-size // 8) * 8
        return kind, at + 8, at + 8 + size, min(at + 8 + padded, end)

    def read_integer(self, content: Any, at: int) -> int:
        """Return the unsigned integer of four bytes at a position."""
        return int(self.uint32.unpack_from(content, at)[0])

    def check_matrix(self, content: Any, at: int, end: int, depth: int = 0) -> None:
        """Check an array: flags, shape, name and content; ``depth`` is the number of arrays that contain it."""
        self.expect(depth < _MAX_DEPTH, f"structures nested more than {_MAX_DEPTH} levels deep")
        if at == end:
            return  # empty
        kind, start, stop, at = self.read_element(content, at, end)
        self.expect((kind, stop - start) == (_UINT32, 8), f"no array flags at {start}")
        flags = self.read_integer(content, start)
        kind, start, stop, at = self.read_element(content, at, end)
        self.expect(kind == _INT32 and stop - start >= 8 and (stop - start) % 4 == 0, f"no dimensions at {start}")
        shape = [self.read_integer(content, offset) for offset in range(start, stop, 4)]
        kind, start, stop, at = self.read_element(content, at, end)
        self.expect(kind == _INT8, f"no name at {start}")
        self.check_body(flags & 0xFF, bool(flags & _COMPLEX), math.prod(shape), content, at, end, depth)

    def check_body(self, group: int, has_imaginary: bool, n: int, content: Any, at: int, end: int, depth: int) -> None:
        """Check the content of an array of the class ``group`` with ``n`` entries."""
        if group in _NUMERIC or group == _CHAR:
            for _ in range(2 if has_imaginary else 1):
                if group == _CHAR and at == end and not n:
                    return
                at = self.skip_numbers(content, at, end, n, exact=group != _CHAR)
        elif group == _CELL:
            self.check_matrices(content, at, end, n, depth)
        elif group in (_STRUCT, _OBJECT):
            if group == _OBJECT:
                *_, at = self.read_element(content, at, end)
            _, start, stop, at = self.read_element(content, at, end)
            length = self.read_integer(content, start) if stop - start == 4 else 0
            _, start, stop, at = self.read_element(content, at, end)
            self.expect(length > 0 and (stop - start) % length == 0, f"no names of fields at {start}")
            self.check_matrices(content, at, end, n * ((stop - start) // length), depth)
        elif group == _SPARSE:
            for _ in range(3):
                at = self.skip_numbers(content, at, end, None)
        else:
            raise _Damaged(f"a variable of class {group} at {at}")

    def skip_numbers(self, content: Any, at: int, end: int, n: int | None, exact: bool = True) -> int:
        """Check an element of numbers and return the position of the next element.

        There must be ``n`` numbers, or any number if ``n`` is None.  If not ``exact``, UTF-8 text may have more bytes.
        """
        kind, start, stop, at = self.read_element(content, at, end)
        self.expect(kind in _NUMBER_BYTES, f"numbers of type {kind} at {start}")
        count = (stop - start) / _NUMBER_BYTES[kind]
        right = n is None or (count == n if exact or kind != 16 else count >= n)  # characters may take several bytes
        self.expect(count == int(count) and right, f"{count:g} numbers at {start}, where the shape says {n}")
        return at

    def check_matrices(self, content: Any, at: int, end: int, n: int, depth: int) -> None:
        """Check ``n`` arrays, which are the entries of a cell array or the fields of structures."""
        self.expect(8 * n <= end - at, f"{n} cells in {end - at} bytes at {at}")
        for _ in range(n):
            kind, start, stop, at = self.read_element(content, at, end)
            self.expect(kind == _MATRIX, f"a cell of type {kind} at {start}")
            self.check_matrix(content, start, stop, depth + 1)

    @staticmethod
    def expect(condition: bool, otherwise: str) -> None:
        """Raise :class:`_Damaged` with the text ``otherwise`` unless the condition is true."""
        if not condition:
            raise _Damaged(otherwise)


# ---- files without a known layout

#: MATLAB's names of NumPy's types.
_MATLAB_TYPES = {"float64": "double", "float32": "single", "bool": "logical", "object": "cell"}
#: Usual names of the variables with the labels, without underscores, and with the sampling rate.
# fmt: off
_LABEL_NAMES = (
    "y", "label", "labels", "class", "classes", "target", "targets", "classlabel", "event", "events", "trialtype",
)
# fmt: on
_RATE_NAMES = ("fs", "sfreq", "srate", "sampling_rate", "samplingrate", "freq", "fsample")


class _Variable(NamedTuple):
    """A variable of a MATLAB file, or a field of a structure.

    ``code`` is the Python expression for its value, ``path`` its name with that of the structure, and ``kind`` its
    type.
    """

    code: str
    path: str
    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def is_number(self) -> bool:
        """Whether it is an array of numbers."""
        return self.kind in ("double", "single", "logical") or "int" in self.kind

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    @property
    def is_vector(self) -> bool:
        """Whether it is a vector of at least two numbers."""
        return self.is_number and 1 < self.size == max(self.shape)


def unknown_layout(file: Path) -> DataError:
    """Return an error that lists the variables of a MATLAB file and contains Python code to convert the file."""
    expected = (
        "epochs or a recording with channel names and a sampling rate; a .mat file has no standard layout for these"
    )
    with opening(file, "SciPy", expected):
        variables = _list_variables(file)
        listed = ", ".join(f"{variable.path} {variable.shape} {variable.kind}" for variable in variables) or "none"
        code = (
            _trials_conversion_advice(file, variables)
            or _recording_conversion_advice(file, variables)
            or _manual_conversion_advice(file)
        )
    return DataError(file, f"a MATLAB file with the variables {listed}", expected, f"Convert it once. {code}")


def _list_variables(file: Path) -> list[_Variable]:
    """Return the variables of a MATLAB file, and the fields of its structures."""
    variables = [_Variable(f"m[{name!r}]", name, name, *about) for name, about in mat_variables(file).items()]
    structures = [variable for variable in variables if variable.kind == "struct" and variable.size == 1]
    content = read_mat(file, *(structure.name for structure in structures)) if structures else {}
    for structure in structures:
        value = content[structure.name]
        for field in value.dtype.names or ():
            inside = np.asarray(value[field].flat[0])
            kind = _MATLAB_TYPES.get(inside.dtype.name, inside.dtype.name)
            code = f"{structure.code}[{field!r}][0, 0]"
            variables.append(_Variable(code, f"{structure.name}.{field}", field, inside.shape, kind))
    return variables


def _trials_conversion_advice(file: Path, variables: Sequence[_Variable]) -> str | None:
    """Return advice, with code, on saving the largest array of three axes as trials (``.npz``); None without one.

    The length of the vector of labels identifies the axis of trials.
    """
    arrays = [variable for variable in variables if variable.is_number and len(variable.shape) == 3]
    x = max(arrays, key=lambda variable: variable.size, default=None)
    if x is None:
        return None
    target, labels = file.with_suffix(".npz").name, _find_labels(variables, x)
    transpose, layout = "", "X must be (trials, channels, samples)"
    if labels is not None:
        trials = x.shape.index(labels.size)
        channels, samples = sorted((axis for axis in range(3) if axis != trials), key=lambda axis: x.shape[axis])
        if trials == 0 and x.shape[1] == x.shape[2]:
            channels, samples = 1, 2
        transpose = "" if (trials, channels, samples) == (0, 1, 2) else f".transpose({trials}, {channels}, {samples})"
        layout += f"; here {x.shape[channels]} channels of {x.shape[samples]} samples are assumed" if transpose else ""
    y, rate = "..." if labels is None else f"{labels.code}.ravel()", _sampling_rate_code(variables)
    unknown = [name for name, code in (("y, a label for each trial,", y), ("sfreq", rate)) if code == "..."]
    replace = f" Replace the dots by {' and '.join(unknown)}." if unknown else ""
    return (
        f"{layout}; sfreq is the sampling rate in Hz.{replace} Code: import numpy as np, scipy.io; "
        f"m = scipy.io.loadmat({file.name!r}); "
        f"np.savez({target!r}, X={x.code}{transpose}, y={y}, sfreq={rate}). Then load({target!r})."
    )


def _find_labels(variables: Sequence[_Variable], x: _Variable) -> _Variable | None:
    """Return the variable that is probably the labels of the array ``x``, or None.

    It is a vector as long as an axis of ``x``: the first with a usual name, or the only one, or one as long as the
    first axis.
    """
    fitting = [variable for variable in variables if variable.is_vector and variable.size in x.shape]
    named = [variable for variable in fitting if variable.name.lower().replace("_", "") in _LABEL_NAMES]
    if named:
        return named[0]
    if len(fitting) == 1:
        return fitting[0]
    return next((variable for variable in fitting if variable.size == x.shape[0]), None)


def _recording_conversion_advice(file: Path, variables: Sequence[_Variable]) -> str | None:
    """Return advice, with code, on saving the largest matrix as a recording (FIF); None if there is no matrix."""
    matrices = [v for v in variables if v.is_number and len(v.shape) == 2 and min(v.shape) > 1]
    x = max(matrices, key=lambda variable: variable.size, default=None)
    if x is None:
        return None
    transpose = ".T" if x.shape[0] > x.shape[1] else ""
    target, rate = f"{file.stem}_raw.fif", _sampling_rate_code(variables)
    replace = " Replace the dots by the sampling rate in Hz." if rate == "..." else ""
    return (
        f"Adapt unit (µV here) and events.{replace} Code: import mne, scipy.io; "
        f"m = scipy.io.loadmat({file.name!r}); x = {x.code}{transpose} * 1e-6; "
        f"raw = mne.io.RawArray(x, mne.create_info({min(x.shape)}, sfreq={rate}, ch_types='eeg')); "
        "raw.set_annotations(mne.Annotations(onset=[1.0, 2.0], duration=0, description=['left', 'right'])); "
        f"raw.save({target!r}). Then load({target!r}, tmin=0.5, tmax=4.0)."
    )


def _manual_conversion_advice(file: Path) -> str:
    """Return advice on converting a file in which neither trials nor a recording were recognised."""
    return (
        "None of these variables looks like epochs or a recording. Read them by scipy.io.loadmat, and write "
        f"np.savez({file.with_suffix('.npz').name!r}, X=..., y=..., sfreq=...) with X (trials, channels, samples), a "
        "label for each trial and the sampling rate in Hz."
    )


def _sampling_rate_code(variables: Sequence[_Variable]) -> str:
    """Return the sampling rate in suggested code: a variable with a usual name, or "..." for the user to replace."""
    rates = (v for v in variables if v.name.lower() in _RATE_NAMES and v.is_number and v.size == 1)
    rate = next(rates, None)
    return "..." if rate is None else f"float({rate.code}.item())"
