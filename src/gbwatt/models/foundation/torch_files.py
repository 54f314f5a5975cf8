"""Reads the tensors of PyTorch files without importing, calling or changing anything that a file names.

``torch.save`` writes a pickle beside raw storages, in a zip archive or, before PyTorch 1.6, one after another.  The
pickle is a program.  Here it is interpreted by a machine that knows plain containers and torch's records of tensors;
every other object becomes a :class:`Placeholder`.  Storages are views of the file's bytes, so that a file cannot ask
for more memory than a small multiple of its own size.
"""

from __future__ import annotations

import io
import math
import pickletools
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from gbwatt.models.files import ModelFileError

#: Instructions of a pickle.  A tensor takes about 25; each instruction makes at most one small object.
MAX_INSTRUCTIONS = 1_000_000
MAX_TENSORS, MAX_DIMENSIONS = 100_000, 32
#: Where checkpoints of trainings keep the weights.
_ENTRIES = ("model", "state_dict", "model_state_dict", "module")
_LEGACY_MAGIC, _LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_AGAIN = "copy or download it again"
_ORIGIN = "do not use it; get the weights from the authors of the model"
_SAVE = "save the weights alone with torch.save(model.state_dict(), file) or as safetensors"


class WeightsError(ModelFileError):
    """A weights file is missing, damaged or unsafe, or does not fit the backbone."""


class _RefusedError(Exception):
    """What is wrong with a file, and the remedy."""

    def __init__(self, reason: str, remedy: str = _AGAIN) -> None:
        super().__init__(reason)
        self.remedy = remedy


def read_state_dict(file: Path, content: io.BytesIO) -> dict[str, Tensor]:
    """Tensors by name of a file that ``torch.save`` wrote: a state_dict, or a checkpoint that contains one.

    Parameters
    ----------
    file : Path
        Name of the file in errors.
    content : io.BytesIO
        Its bytes.  Tensors are views of them.

    Raises
    ------
    WeightsError
        If the file is damaged, contains code, describes tensors that it does not hold, or has no state_dict.
    """
    view = content.getbuffer()
    try:
        stored = _read_archive(content, view) if bytes(view[:2]) == b"PK" else _read_legacy(content, view)
        state = _find_state(stored.content)
        if len(state) > MAX_TENSORS:
            raise _RefusedError(f"it has {len(state)} tensors, but at most {MAX_TENSORS} are read", _SAVE)
        return {name: stored.tensor(place) for name, place in state.items()}
    except _RefusedError as error:
        raise WeightsError(f"{file} cannot be used as weights: {error}; {error.remedy}.") from None


def _find_state(content: Any) -> dict[str, _Strided]:
    """The dictionary of tensors in a file, or in the entry of a checkpoint where it usually is."""
    if type(content) is dict:
        if content and all(type(name) is str and isinstance(x, _Strided) for name, x in content.items()):
            return content
        for entry in _ENTRIES:
            inner = content.get(entry)
            if type(inner) is dict:
                state = {name: x for name, x in inner.items() if type(name) is str and isinstance(x, _Strided)}
                if state:
                    return state
    found = _kind(content)
    if type(content) is dict:
        found += f" of {', '.join(map(_shown, list(content)[:5])) or 'nothing'}"
    raise _RefusedError(f"it has no tensors by name: found {found}, but a state_dict is needed", _SAVE)


# ---------------------------------------------------------------------------------------------- what a pickle describes


class Placeholder:
    """Stands for an object that was not rebuilt; ``kind`` is what the file calls it."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


class _Name:
    """A function or class that a file names; it is never looked up."""

    __slots__ = ("path",)

    def __init__(self, module: str, name: str) -> None:
        self.path = f"{_BUILTINS.get(module, module)}.{name}"


_BUILTINS = {"__builtin__": "builtins"}  # as Python 2 names the module, and protocols before 3


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: torch.dtype | None  # None: bytes whose dtype the tensor states
    numel: int

    @property
    def n_bytes(self) -> int:
        return self.numel * (1 if self.dtype is None else self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class _Strided:
    """A tensor by its place in a storage."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the pickle of a file describes, and the bytes of its storages."""

    content: Any
    storages: Mapping[str, memoryview]
    byte_order: str

    def tensor(self, place: _Strided) -> Tensor:
        """A view of the file, or a copy where the processor could not use a view."""
        if 0 in place.size:
            return torch.empty(place.size, dtype=place.dtype)
        width = place.dtype.itemsize
        extent = 1 + sum((n - 1) * step for n, step in zip(place.size, place.stride, strict=True))
        held = self.storages[place.storage.key]
        raw = torch.frombuffer(held, dtype=torch.uint8, offset=place.offset * width, count=extent * width)
        number = width // (2 if place.dtype.is_complex else 1)
        if self.byte_order != sys.byteorder and number > 1:
            raw = raw.view(-1, number).flip(1).flatten()
        if raw.data_ptr() % width:
            raw = raw.clone()
        whole = raw.ne(0) if place.dtype is torch.bool else raw.view(place.dtype)
        return whole.as_strided(place.size, place.stride)


_STORAGES = {
    **{
        f"{name}Storage": dtype
        for name, dtype in {
            "Double": torch.float64,
            "Float": torch.float32,
            "Half": torch.float16,
            "BFloat16": torch.bfloat16,
            "Long": torch.int64,
            "Int": torch.int32,
            "Short": torch.int16,
            "Char": torch.int8,
            "Byte": torch.uint8,
            "Bool": torch.bool,
            "ComplexFloat": torch.complex64,
            "ComplexDouble": torch.complex128,
        }.items()
    },
    "UntypedStorage": None,
}
_DTYPES = {
    f"torch.{name}": dtype
    for name in sorted(vars(torch))
    if isinstance(dtype := getattr(torch, name), torch.dtype) and not name.startswith(("q", "bits"))
}

#: Modules and functions that no weights file needs to call.  Others are not called either, but say nothing of intent.
_HOSTILE_MODULES = (
    *("os", "posix", "nt", "subprocess", "pty", "runpy", "importlib", "socket", "shutil", "ctypes", "webbrowser"),
    *("pdb", "pickle", "_pickle", "marshal", "sys", "torch.hub", "torch.jit", "torch.utils.cpp_extension"),
)
_HOSTILE_BUILTINS = (
    *("eval", "exec", "compile", "open", "__import__", "breakpoint", "input", "setattr", "delattr", "globals"),
)


def _refuse_hostile(path: str) -> None:
    builtin = path.removeprefix("builtins.") in _HOSTILE_BUILTINS
    if builtin or any(path.startswith(f"{module}.") for module in _HOSTILE_MODULES):
        raise _RefusedError(f"its pickle calls {_shown(path)}, which no weights need", _ORIGIN)


# --------------------------------------------------------------------------------------------------------- the machine


class _Machine:
    """Interprets one pickle."""

    def __init__(self, n_bytes: int, budget: int = MAX_INSTRUCTIONS) -> None:
        self.n_bytes, self.budget = n_bytes, budget
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.tensors: list[_Strided] = []

    def run(self, stream: BinaryIO) -> Any:
        """The object that the pickle at the stream's position describes."""
        for code, argument, position in _instructions(stream):
            self.spend(1)
            try:
                if code == "STOP":
                    return self.stack.pop()
                _ACTIONS[code](self, argument)
            except IndexError:
                raise _RefusedError(f"its pickle takes from an empty stack at byte {position}") from None
            except KeyError:
                raise _RefusedError(f"its pickle has a wrong instruction {code} at byte {position}") from None
        raise _RefusedError("its pickle has no end")

    def spend(self, n: int) -> None:
        """Count instructions and copied elements."""
        self.budget -= n
        if self.budget < 0:
            raise _RefusedError(f"its pickle has more than {MAX_INSTRUCTIONS} instructions", _SAVE)

    # ---- stack and memo

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self, _: Any) -> None:
        self.marked.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marked.pop()
        return items

    def put(self, index: Any) -> None:
        if not isinstance(index, int) or not 0 <= index < 2**32:
            raise _RefusedError(f"its pickle has the memo index {_shown(index)}")
        self.memo[index] = self.stack[-1]

    def get(self, index: Any) -> None:
        self.push(self.memo[index])

    def pop(self, _: Any) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.since_mark()

    def pop_mark(self, _: Any) -> None:
        self.since_mark()

    # ---- containers

    def tuple_of(self, n: int) -> None:
        if len(self.stack) < n:
            raise IndexError
        self.stack[-n:] = [tuple(self.stack[-n:])]

    def append(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is list:
            target.extend(values)
        elif not isinstance(target, Placeholder):
            raise _RefusedError(f"its pickle appends to {_kind(target)}", _ORIGIN)

    def append_one(self, _: Any) -> None:
        value = self.stack.pop()
        self.append([value])

    def append_all(self, _: Any) -> None:
        values = self.since_mark()
        self.append(values)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if len(items) % 2:
            raise IndexError
        if type(target) is dict:
            target.update((_key(key), value) for key, value in zip(items[::2], items[1::2], strict=True))
        elif not isinstance(target, Placeholder):
            raise _RefusedError(f"its pickle sets items of {_kind(target)}", _ORIGIN)

    def set_item(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items([key, value])

    def set_all(self, _: Any) -> None:
        items = self.since_mark()
        self.set_items(items)

    def make_dict(self, _: Any) -> None:
        items = self.since_mark()
        self.push({})
        self.set_items(items)

    # ---- objects

    def name(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self.push(_Name(module, name))

    def stacked_name(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise _RefusedError(f"its pickle looks up {_kind(name)} in {_kind(module)}", _ORIGIN)
        self.push(_Name(module, name))

    def instance(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self.since_mark()
        self.push(self.made(_Name(module, name)))

    def made(self, name: Any) -> Placeholder:
        """An object of a class, which is not rebuilt."""
        if not isinstance(name, _Name):
            raise _RefusedError(f"its pickle calls {_kind(name)}", _ORIGIN)
        _refuse_hostile(name.path)
        return Placeholder(name.path)

    def marked_object(self, _: Any) -> None:
        items = self.since_mark()
        self.push(self.made(items[0]))

    def new_object(self, _: Any) -> None:
        _arguments, name = self.stack.pop(), self.stack.pop()
        self.push(self.made(name))

    def new_object_with_keywords(self, _: Any) -> None:
        _keywords, _arguments, name = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.push(self.made(name))

    def build(self, _: Any) -> None:
        """The state of an object: there is no object that could take it."""
        _state, target = self.stack.pop(), self.stack[-1]
        if type(target) not in (dict, list, Placeholder):
            raise _RefusedError(f"its pickle changes {_kind(target)}", _ORIGIN)

    def reduce(self, _: Any) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(arguments, tuple):
            raise _RefusedError(f"its pickle calls with {_kind(arguments)} for arguments")
        self.push(self.called(function, arguments))

    def called(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """Result of the few functions that tensors and containers need; a placeholder for others."""
        if isinstance(function, _Name):
            rebuild = _CALLS.get(function.path)
            if rebuild is not None:
                try:
                    return rebuild(self, *arguments)
                except TypeError:
                    raise _RefusedError(f"its pickle calls {function.path} with wrong arguments") from None
        return self.made(function)

    # ---- tensors

    def storage(self, identity: Any) -> None:
        match identity:
            case ("storage", _Name() as kind, str() as key, str(), int() as numel, *views):
                pass
            case ("module", _Name() as kind, *_):  # a class with its source, before archives
                self.push(kind)
                return
            case _:
                raise _RefusedError(f"its pickle refers to {_kind(identity)} in the place of a storage")
        name = kind.path.removeprefix("torch.").removeprefix("cuda.").removeprefix("storage.")
        if name not in _STORAGES:
            raise _RefusedError(f"it has a storage of the unknown type {_shown(kind.path)}", _SAVE)
        if isinstance(numel, bool) or not 0 <= numel <= self.n_bytes:
            raise _RefusedError(f"storage {_shown(key)} has {_shown(numel)} elements in a file of {self.n_bytes} bytes")
        if any(view is not None for view in views):
            raise _RefusedError("it has views of storages, as PyTorch before 0.4 wrote them", _SAVE)
        self.push(_Storage(key, _STORAGES[name], numel))

    def text_storage(self, identity: str) -> None:
        raise _RefusedError(f"its pickle refers to {_shown(identity)} in the place of a storage")

    def storage_from_stack(self, _: Any) -> None:
        self.storage(self.stack.pop())

    def tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> _Strided:
        if not isinstance(storage, _Storage):
            raise _RefusedError(f"it has a tensor on {_kind(storage)} in the place of a storage")
        if storage.dtype is None:
            raise _RefusedError("it has a tensor of no dtype")
        return self.strided(storage, offset, size, stride, storage.dtype)

    def tensor_with_dtype(
        self, storage: Any, offset: Any, size: Any, stride: Any, _grad: Any, _hooks: Any, dtype: Any, *_: Any
    ) -> _Strided:
        if not isinstance(storage, _Storage):
            raise _RefusedError(f"it has a tensor on {_kind(storage)} in the place of a storage")
        if not isinstance(dtype, _Name) or dtype.path not in _DTYPES:
            raise _RefusedError(f"it has a tensor of the unknown dtype {_kind(dtype)}", _SAVE)
        return self.strided(storage, offset, size, stride, _DTYPES[dtype.path])

    def strided(self, storage: _Storage, offset: Any, size: Any, stride: Any, dtype: torch.dtype) -> _Strided:
        """A tensor whose elements all lie inside its storage, none of them twice."""
        shown = f"size {_shown(size)}, stride {_shown(stride)} and offset {_shown(offset)}"
        where = f"a tensor of {shown} in a storage of {storage.n_bytes} bytes"
        numbers = (offset, *size, *stride) if isinstance(size, tuple) and isinstance(stride, tuple) else ()
        if not numbers or any(type(x) is not int or not 0 <= x < 2**62 for x in numbers):
            raise _RefusedError(f"it has {where}; these must be whole numbers from 0 on")
        if len(size) != len(stride) or len(size) > MAX_DIMENSIONS:
            raise _RefusedError(f"it has {where}; one stride for each of up to {MAX_DIMENSIONS} dimensions is needed")
        available = storage.n_bytes // dtype.itemsize
        if 0 in size:
            if math.prod(x for x in size if x) >= 2**62 or offset > available:
                raise _RefusedError(f"it has {where}, which is too small")
        else:
            extent = 1  # of the dimensions so far, in elements
            for step, n in sorted((step, n) for step, n in zip(stride, size, strict=True) if n > 1):
                if step < extent:
                    raise _RefusedError(f"it has {where}; its elements overlap", _SAVE)
                extent += step * (n - 1)
            if offset + extent > available:
                raise _RefusedError(f"it has {where}, which is too small")
        made = _Strided(storage, offset, size, stride, dtype)
        self.tensors.append(made)
        return made

    # ---- other calls

    def parameter(self, data: Any, *_: Any) -> Any:
        return data

    def from_type(self, function: Any, _type: Any, arguments: Any, _state: Any) -> Any:
        if isinstance(function, _Name) and function.path == "torch._utils._rebuild_from_type_v2":
            raise _RefusedError("it has a tensor of a type in a type", _SAVE)
        return self.called(function, arguments if isinstance(arguments, tuple) else ())

    def ordered_dict(self, items: Any = ()) -> dict[Any, Any]:
        if not isinstance(items, list | tuple):
            raise TypeError
        self.spend(len(items))
        if any(not isinstance(item, list | tuple) or len(item) != 2 for item in items):
            raise TypeError
        return {_key(key): value for key, value in items}

    def size(self, sizes: Any = ()) -> tuple[Any, ...]:
        if not isinstance(sizes, tuple):
            raise TypeError
        return sizes

    def raw_bytes(self, *arguments: Any) -> Placeholder:
        for value in arguments:
            if isinstance(value, int) and value > self.n_bytes:
                raise _RefusedError(f"its pickle asks for {_shown(value)} bytes of memory", _ORIGIN)
        return Placeholder("builtins.bytearray")


_Action = Callable[[_Machine, Any], None]
_VALUES = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)


def _protocol(_: _Machine, number: Any) -> None:
    if number > 5:
        raise _RefusedError(f"its pickle has protocol {number}, but protocols up to 5 are known")


_ACTIONS: Mapping[str, _Action] = {
    **dict.fromkeys(_VALUES, _Machine.push),
    "PROTO": _protocol,
    "FRAME": lambda _machine, _length: None,
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "MARK": _Machine.mark,
    "POP": _Machine.pop,
    "POP_MARK": _Machine.pop_mark,
    "DUP": lambda machine, _: machine.push(machine.stack[-1]),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    "MEMOIZE": lambda machine, _: machine.put(len(machine.memo)),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "EMPTY_SET": lambda machine, _: machine.push(Placeholder("builtins.set")),
    "LIST": lambda machine, _: machine.push(machine.since_mark()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "DICT": _Machine.make_dict,
    "FROZENSET": lambda machine, _: machine.push(Placeholder(f"frozenset of {len(machine.since_mark())}")),
    "APPEND": _Machine.append_one,
    "APPENDS": _Machine.append_all,
    "ADDITEMS": _Machine.append_all,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_all,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.stacked_name,
    "INST": _Machine.instance,
    "OBJ": _Machine.marked_object,
    "NEWOBJ": _Machine.new_object,
    "NEWOBJ_EX": _Machine.new_object_with_keywords,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
    "PERSID": _Machine.text_storage,
    "BINPERSID": _Machine.storage_from_stack,
}
_CALLS: Mapping[str, Callable[..., Any]] = {
    "collections.OrderedDict": _Machine.ordered_dict,
    "torch.Size": _Machine.size,
    "torch._utils._rebuild_tensor": _Machine.tensor,
    "torch._utils._rebuild_tensor_v2": _Machine.tensor,
    "torch._utils._rebuild_tensor_v3": _Machine.tensor_with_dtype,
    "torch._utils._rebuild_parameter": _Machine.parameter,
    "torch._utils._rebuild_parameter_with_state": _Machine.parameter,
    "torch._tensor._rebuild_from_type_v2": _Machine.from_type,
    "builtins.bytearray": _Machine.raw_bytes,
    "builtins.bytes": _Machine.raw_bytes,
}


def _instructions(stream: BinaryIO) -> Iterator[tuple[str, Any, int | None]]:
    try:
        for opcode, argument, position in pickletools.genops(stream):
            yield opcode.name, argument, position
    except (ValueError, struct.error, OverflowError, MemoryError, EOFError) as error:
        raise _RefusedError(f"its pickle is broken ({_shown(str(error))})") from None


def _key(value: Any) -> Any:
    """A key whose hash is cheap and does not collide by design; others get an identity of their own."""
    if type(value) is int:
        return value if abs(value) < 2**61 - 1 else Placeholder("int")
    return value if value is None or type(value) in (str, bytes, float, bool) else Placeholder("key")


def _kind(value: Any) -> str:
    if isinstance(value, _Name):
        return _shown(value.path)
    if isinstance(value, Placeholder):
        return f"an object {_shown(value.kind)}"
    return "a tensor" if isinstance(value, _Strided) else f"a {type(value).__name__.strip('_').lower()}"


def _shown(value: Any) -> str:
    """A value of the file for a message: short, printable, and without computing with huge numbers."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_shown, value[:8])) + ("" if len(value) <= 8 else ", …") + ")"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str | int | float):
        text = repr(value[:200]) if isinstance(value, str) else repr(value)
        return text if len(text) <= 120 else text[:117] + "…"
    return _kind(value)


# ------------------------------------------------------------------------------------------------------------ archives


def _read_archive(content: io.BytesIO, view: memoryview) -> _Stored:
    records = _records(content, view)
    if "constants.pkl" in records or any(name.startswith("code/") for name in records):
        raise _RefusedError("it is a TorchScript archive, which contains code", _SAVE)
    if "data.pkl" not in records:
        raise _RefusedError(f"its archive has no data.pkl, but {_shown(', '.join(sorted(records)[:5]))}")
    order = bytes(records.get("byteorder", memoryview(b"little"))[:20])
    if order not in (b"little", b"big"):
        raise _RefusedError(f"its byte order is {order!r}, neither little nor big")
    machine = _Machine(len(view))
    result = machine.run(io.BytesIO(records["data.pkl"]))
    for tensor in machine.tensors:
        record, storage = records.get(f"data/{tensor.storage.key}"), tensor.storage
        if record is None:
            raise _RefusedError(f"its archive has no storage {_shown(storage.key)}")
        if len(record) != storage.n_bytes:
            stated = f"{len(record)} bytes, but its pickle states {storage.n_bytes}"
            raise _RefusedError(f"storage {_shown(storage.key)} has {stated}")
    held = {key: records[f"data/{key}"] for key in {tensor.storage.key for tensor in machine.tensors}}
    return _Stored(result, held, order.decode())


def _records(content: io.BytesIO, view: memoryview) -> dict[str, memoryview]:
    """Records of a zip archive by their names below its only folder; all intact, and none over another."""
    try:
        entries = zipfile.ZipFile(content).infolist()
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError, OverflowError, EOFError, OSError) as why:
        raise _RefusedError(f"its zip archive is broken ({_shown(str(why))})") from None
    has_checksums = any(entry.CRC for entry in entries)  # torch.serialization.set_crc32_options(False) writes zeros
    found: dict[str, memoryview] = {}
    end, folders = 0, set()
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        folder, slash, name = entry.orig_filename.partition("/")
        parts = name.split("/")
        if not slash or not folder or folder == ".." or "\\" in name or {"", ".", ".."} & set(parts):
            raise _RefusedError(f"its archive has a record {_shown(entry.orig_filename)}, outside of a folder")
        if name in found:
            raise _RefusedError(f"its archive has two records {_shown(name)}")
        start = _start(entry, view)
        if name.startswith("code/") or name == "constants.pkl":  # code is compressed; it is not read
            found[name] = view[:0]
            continue
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise _RefusedError(f"its record {_shown(name)} is compressed, which torch.save does not do", _SAVE)
        if entry.header_offset < end or start + entry.file_size > len(view):
            raise _RefusedError(f"its record {_shown(name)} lies over another or beyond the end")
        end = start + entry.file_size
        found[name] = view[start:end]
        if has_checksums and zlib.crc32(found[name]) != entry.CRC:
            raise _RefusedError(f"the checksum of its record {_shown(name)} is wrong")
        folders.add(folder)
    if len(folders) > 1:
        raise _RefusedError(f"its archive has the folders {_shown(', '.join(sorted(folders)[:5]))} instead of one")
    return found


def _start(entry: zipfile.ZipInfo, view: memoryview) -> int:
    """Where the bytes of a record begin."""
    header = struct.Struct("<4s5H3L2H")
    offset = entry.header_offset
    if offset < 0 or offset + header.size > len(view):
        raise _RefusedError("its zip archive has a record beyond its end")
    signature, _, flags, *_, name_size, extra_size = header.unpack_from(view, offset)
    start = offset + header.size + name_size
    name = bytes(view[offset + header.size : start]).decode("utf-8" if flags & 0x800 else "cp437", "replace")
    if signature != b"PK\x03\x04" or name != entry.orig_filename or flags & 0x1:
        raise _RefusedError(f"its zip archive has no readable record {_shown(entry.orig_filename)}")
    return int(start + extra_size)


# ----------------------------------------------------------------------------------------------------- before archives


def _read_legacy(content: io.BytesIO, view: memoryview) -> _Stored:
    content.seek(0)
    for expected in (_LEGACY_MAGIC, _LEGACY_PROTOCOL):
        if _Machine(len(view), 1000).run(content) != expected:
            raise _RefusedError("it does not begin as files of torch.save do")
    system = _Machine(len(view), 1000).run(content)
    if type(system) is not dict or system.get("little_endian") is not True:
        raise _RefusedError("it does not state that its numbers are little-endian")
    machine = _Machine(len(view))
    result = machine.run(content)
    keys = _Machine(len(view), machine.budget).run(content)
    storages = {tensor.storage.key: tensor.storage for tensor in machine.tensors}
    if any(tensor.storage != storages[tensor.storage.key] for tensor in machine.tensors):
        raise _RefusedError("it has two storages with one key")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
        raise _RefusedError("its list of storages is broken")
    if set(keys) != set(storages):
        raise _RefusedError(f"it lists {len(keys)} storages and uses {len(storages)}")
    held, position = {}, content.tell()
    for key in keys:
        storage, start = storages[key], position + 8
        position = start + storage.n_bytes
        if position > len(view) or struct.unpack_from("<q", view, start - 8)[0] != storage.numel:
            raise _RefusedError(f"storage {_shown(key)} is truncated or has another size than stated")
        held[key] = view[start:position]
    if position != len(view):
        raise _RefusedError(f"{len(view) - position} bytes are left after its last storage")
    return _Stored(result, held, "little")
