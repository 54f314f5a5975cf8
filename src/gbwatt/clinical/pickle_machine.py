"""Interprets the pickles of PyTorch files without importing, calling or changing anything that they name.

A pickle is a program.  It is interpreted by a machine that knows only plain containers and torch's records of tensors;
every other object becomes a :class:`Placeholder`.
"""

from __future__ import annotations

import math
import pickletools
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import torch

#: Maximum number of instructions and call arguments of a pickle.  A tensor takes about 40.
MAX_INSTRUCTIONS = 1_000_000
MAX_DIMENSIONS = 32
#: Maximum length of the name of a function or class.
MAX_NAME = 1000
#: Remedies.
COPY_AGAIN = "copy or download it again"
ASK_AUTHORS = "do not use it; get the weights from the authors of the model"
SAVE_AGAIN = "save the weights alone with torch.save(model.state_dict(), file) or as safetensors"


class RefusedError(Exception):
    """A file is damaged or unsafe; ``remedy`` says what to do."""

    def __init__(self, reason: str, remedy: str = COPY_AGAIN) -> None:
        super().__init__(reason)
        self.remedy = remedy


# ---------------------------------------------------------------------------------------------------- described objects


class Placeholder:
    """An object that is not rebuilt; ``kind`` is its name in the file."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


class _Name:
    """Name of a function or class in a file; it is never looked up."""

    __slots__ = ("path",)

    def __init__(self, module: str, name: str) -> None:
        if len(module) + len(name) > MAX_NAME:  # a file can repeat a long text in a few bytes
            raise RefusedError(f"its pickle names {shown(name)} of {shown(module)}, which is too long", ASK_AUTHORS)
        self.path = f"{_BUILTINS.get(module, module)}.{name}"


_BUILTINS = {"__builtin__": "builtins"}  # name of the module in Python 2 and in protocols before 3


@dataclass(frozen=True, slots=True)
class StorageRecord:
    """A storage as a file describes it."""

    key: str
    dtype: torch.dtype | None  # None: bytes whose dtype the tensor states
    numel: int

    @property
    def n_bytes(self) -> int:
        """Size in the file."""
        return self.numel * (1 if self.dtype is None else self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor by its place in a storage."""

    storage: StorageRecord
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


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

#: Modules and functions that weights files never need.  Files that call them are rejected as malicious; other functions
#: are not called either.
_HOSTILE_MODULES = (
    *("os", "posix", "nt", "subprocess", "pty", "runpy", "importlib", "socket", "shutil", "ctypes", "webbrowser"),
    *("pdb", "pickle", "_pickle", "marshal", "sys", "torch.hub", "torch.jit", "torch.utils.cpp_extension"),
)
_HOSTILE_BUILTINS = (
    *("eval", "exec", "compile", "open", "__import__", "breakpoint", "input", "setattr", "delattr", "globals"),
)


def _refuse_hostile(path: str) -> None:
    """Raise RefusedError if the name of a function belongs to a module or builtin that only malicious files call."""
    builtin = path.removeprefix("builtins.") in _HOSTILE_BUILTINS
    if builtin or any(path.startswith(f"{module}.") for module in _HOSTILE_MODULES):
        raise RefusedError(f"its pickle calls {shown(path)}, which weights never need", ASK_AUTHORS)


# ------------------------------------------------------------------------------------------------------------- machine


class Interpreted(NamedTuple):
    """The object that a pickle describes, all tensors in it, and the remaining budget."""

    content: Any
    tensors: list[TensorRecord]
    budget: int


def interpret(stream: BinaryIO, n_bytes: int, budget: int = MAX_INSTRUCTIONS) -> Interpreted:
    """Interpret the pickle at the position of a stream.

    Parameters
    ----------
    stream : binary file
        Afterwards its position is behind the last instruction.
    n_bytes : int
        Size of the file, an upper bound for every object in it.
    budget : int
        Maximum number of instructions and call arguments.

    Raises
    ------
    RefusedError
        If the pickle is damaged, or calls or changes something that weights do not need.
    """
    machine = _Machine(n_bytes, budget)
    content = machine.run(stream)
    return Interpreted(content, machine.tensors, machine.budget)


class _Machine:
    """Stack machine that interprets one pickle; its methods are the effects of instructions and of known calls."""

    def __init__(self, n_bytes: int, budget: int = MAX_INSTRUCTIONS) -> None:
        self.n_bytes, self.budget = n_bytes, budget
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.tensors: list[TensorRecord] = []

    def run(self, stream: BinaryIO) -> Any:
        """Return the object that the pickle at the position of the stream describes."""
        for code, argument, position in _instructions(stream):
            self.spend(1)
            try:
                if code == "STOP":
                    return self.stack.pop()
                _ACTIONS[code](self, argument)
            except IndexError:
                raise RefusedError(f"its pickle takes from an empty stack at byte {position}") from None
            except KeyError:
                raise RefusedError(f"its pickle has a wrong instruction {code} at byte {position}") from None
        raise RefusedError("its pickle has no end")

    def spend(self, n: int) -> None:
        """Reduce the budget by n instructions or copied elements."""
        self.budget -= n
        if self.budget < 0:
            raise RefusedError(f"its pickle has more than {MAX_INSTRUCTIONS} instructions", SAVE_AGAIN)

    # ---- stack and memo

    def push(self, value: Any) -> None:
        """Push a value on the stack."""
        self.stack.append(value)

    def mark(self, _: Any) -> None:
        """Instruction MARK: begin a new stack, and keep the current one."""
        self.marked.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        """Return the values since the last mark, and continue with the stack before it."""
        items, self.stack = self.stack, self.marked.pop()
        return items

    def put(self, index: Any) -> None:
        """Instruction PUT: store the top of the stack in the memo."""
        if not isinstance(index, int) or not 0 <= index < 2**32:
            raise RefusedError(f"its pickle has the memo index {shown(index)}")
        self.memo[index] = self.stack[-1]

    def get(self, index: Any) -> None:
        """Instruction GET: push an object of the memo."""
        self.push(self.memo[index])

    def pop(self, _: Any) -> None:
        """Instruction POP: discard the top of the stack, or the mark if there is nothing above it."""
        if self.stack:
            self.stack.pop()
        else:
            self.since_mark()

    def pop_mark(self, _: Any) -> None:
        """Instruction POP_MARK: discard the values since the last mark."""
        self.since_mark()

    # ---- containers

    def tuple_of(self, n: int) -> None:
        """Replace the top ``n`` values of the stack by a tuple of them."""
        if len(self.stack) < n:
            raise IndexError
        self.stack[-n:] = [tuple(self.stack[-n:])]

    def append(self, values: list[Any]) -> None:
        """Append values to the list on top of the stack; ignore them for a placeholder."""
        target = self.stack[-1]
        if type(target) is list:
            target.extend(values)
        elif not isinstance(target, Placeholder):
            raise RefusedError(f"its pickle appends to {kind_of(target)}", ASK_AUTHORS)

    def append_one(self, _: Any) -> None:
        """Instruction APPEND: append the top of the stack to the list below it."""
        value = self.stack.pop()
        self.append([value])

    def append_all(self, _: Any) -> None:
        """Instruction APPENDS: append the values since the last mark to the list below it."""
        values = self.since_mark()
        self.append(values)

    def set_items(self, items: list[Any]) -> None:
        """Set alternating keys and values in the dict on top of the stack; ignore them for a placeholder."""
        target = self.stack[-1]
        if len(items) % 2:
            raise IndexError
        if type(target) is dict:
            target.update((_safe_key(key), value) for key, value in zip(items[::2], items[1::2], strict=True))
        elif not isinstance(target, Placeholder):
            raise RefusedError(f"its pickle sets items of {kind_of(target)}", ASK_AUTHORS)

    def set_item(self, _: Any) -> None:
        """Instruction SETITEM: set one item of the dict below key and value."""
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items([key, value])

    def set_all(self, _: Any) -> None:
        """Instruction SETITEMS: set the items since the last mark in the dict below it."""
        items = self.since_mark()
        self.set_items(items)

    def make_dict(self, _: Any) -> None:
        """Instruction DICT: make a dict of the keys and values since the last mark."""
        items = self.since_mark()
        self.push({})
        self.set_items(items)

    # ---- objects

    def name(self, argument: str) -> None:
        """Instruction GLOBAL: push the name of a function or class, given as "module name"."""
        module, _, name = argument.partition(" ")
        self.push(_Name(module, name))

    def stacked_name(self, _: Any) -> None:
        """Instruction STACK_GLOBAL: push the name of a function or class, with module and name from the stack."""
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise RefusedError(f"its pickle looks up {kind_of(name)} in {kind_of(module)}", ASK_AUTHORS)
        self.push(_Name(module, name))

    def instance(self, argument: str) -> None:
        """Instruction INST: push a placeholder for an instance of the class "module name"."""
        module, _, name = argument.partition(" ")
        self.since_mark()
        self.push(self.made(_Name(module, name)))

    def made(self, name: Any) -> Placeholder:
        """Return a placeholder for what a class or function would make; raise RefusedError for malicious ones."""
        if not isinstance(name, _Name):
            raise RefusedError(f"its pickle calls {kind_of(name)}", ASK_AUTHORS)
        _refuse_hostile(name.path)
        return Placeholder(name.path)

    def marked_object(self, _: Any) -> None:
        """Instruction OBJ: push a placeholder for an instance of the class after the last mark."""
        items = self.since_mark()
        self.push(self.made(items[0]))

    def new_object(self, _: Any) -> None:
        """Instruction NEWOBJ: push a placeholder for an instance, without its arguments."""
        _arguments, name = self.stack.pop(), self.stack.pop()
        self.push(self.made(name))

    def new_object_with_keywords(self, _: Any) -> None:
        """Instruction NEWOBJ_EX: push a placeholder for an instance, without its arguments and keywords."""
        _keywords, _arguments, name = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.push(self.made(name))

    def build(self, _: Any) -> None:
        """Instruction BUILD: ignore the state of an object, which is only a placeholder."""
        _state, target = self.stack.pop(), self.stack[-1]
        if type(target) not in (dict, list, Placeholder):
            raise RefusedError(f"its pickle changes {kind_of(target)}", ASK_AUTHORS)

    def reduce(self, _: Any) -> None:
        """Instruction REDUCE: push the result of a call, see :meth:`called`."""
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(arguments, tuple):
            raise RefusedError(f"its pickle calls with {kind_of(arguments)} for arguments")
        self.push(self.called(function, arguments))

    def called(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """Return the result of a function that tensors and containers need; a placeholder for any other."""
        self.spend(len(arguments))
        if isinstance(function, _Name):
            rebuild = _CALLS.get(function.path)
            if rebuild is not None:
                try:
                    return rebuild(self, *arguments)
                except TypeError:
                    raise RefusedError(f"its pickle calls {function.path} with wrong arguments") from None
        return self.made(function)

    # ---- tensors

    def storage(self, identity: Any) -> None:
        """Push the record of a storage, which a pickle of torch names by a tuple."""
        if isinstance(identity, list | tuple):
            self.spend(len(identity))
        match identity:
            case ("storage", _Name() as kind, str() as key, str(), int() as numel, *views):
                pass
            case ("module", _Name() as kind, *_):  # a class with its source, before archives
                self.push(kind)
                return
            case _:
                raise RefusedError(f"its pickle refers to {kind_of(identity)} where a storage is expected")
        name = kind.path.removeprefix("torch.").removeprefix("cuda.").removeprefix("storage.")
        if name not in _STORAGES:
            raise RefusedError(f"it has a storage of the unknown type {shown(kind.path)}", SAVE_AGAIN)
        if isinstance(numel, bool) or not 0 <= numel <= self.n_bytes:
            raise RefusedError(f"storage {shown(key)} has {shown(numel)} elements in a file of {self.n_bytes} bytes")
        if any(view is not None for view in views):
            raise RefusedError("it has views of storages, as PyTorch before 0.4 wrote them", SAVE_AGAIN)
        self.push(StorageRecord(key, _STORAGES[name], numel))

    def text_storage(self, identity: str) -> None:
        """Instruction PERSID: raise an error, because torch does not name storages by texts."""
        raise RefusedError(f"its pickle refers to {shown(identity)} where a storage is expected")

    def storage_from_stack(self, _: Any) -> None:
        """Instruction BINPERSID: push the record of the storage whose tuple is on the stack."""
        self.storage(self.stack.pop())

    def tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> TensorRecord:
        """Record of a tensor that torch rebuilds with the dtype of its storage."""
        if not isinstance(storage, StorageRecord):
            raise RefusedError(f"it has a tensor on {kind_of(storage)} where a storage is expected")
        if storage.dtype is None:
            raise RefusedError("it has a tensor of no dtype")
        return self.strided(storage, offset, size, stride, storage.dtype)

    def tensor_with_dtype(
        self, storage: Any, offset: Any, size: Any, stride: Any, _grad: Any, _hooks: Any, dtype: Any, *_: Any
    ) -> TensorRecord:
        """Record of a tensor that torch rebuilds with a dtype of its own."""
        if not isinstance(storage, StorageRecord):
            raise RefusedError(f"it has a tensor on {kind_of(storage)} where a storage is expected")
        if not isinstance(dtype, _Name) or dtype.path not in _DTYPES:
            raise RefusedError(f"it has a tensor of the unknown dtype {kind_of(dtype)}", SAVE_AGAIN)
        return self.strided(storage, offset, size, stride, _DTYPES[dtype.path])

    def strided(self, storage: StorageRecord, offset: Any, size: Any, stride: Any, dtype: torch.dtype) -> TensorRecord:
        """Return the record of a tensor; require that its elements are inside its storage and do not overlap."""
        fault = _stride_fault(storage, offset, size, stride, dtype)
        if fault is not None:
            tensor = f"a tensor of size {shown(size)}, stride {shown(stride)} and offset {shown(offset)}"
            reason, remedy = fault
            raise RefusedError(f"it has {tensor} in a storage of {storage.n_bytes} bytes{reason}", remedy)
        made = TensorRecord(storage, offset, size, stride, dtype)
        self.tensors.append(made)
        return made

    # ---- other calls

    def parameter(self, data: Any, *_: Any) -> Any:
        """Return the tensor of a parameter."""
        return data

    def from_type(self, function: Any, _type: Any, arguments: Any, _state: Any) -> Any:
        """Return the tensor inside a subclass of Tensor; a subclass in a subclass is rejected."""
        if isinstance(function, _Name) and _CALLS.get(function.path) is _Machine.from_type:
            raise RefusedError("it has a tensor of a type in a type", SAVE_AGAIN)
        return self.called(function, arguments if isinstance(arguments, tuple) else ())

    def ordered_dict(self, items: Any = ()) -> dict[Any, Any]:
        """Return a dict for the items of an OrderedDict."""
        if not isinstance(items, list | tuple):
            raise TypeError
        self.spend(len(items))
        if any(not isinstance(item, list | tuple) or len(item) != 2 for item in items):
            raise TypeError
        return {_safe_key(key): value for key, value in items}

    def size(self, sizes: Any = ()) -> tuple[Any, ...]:
        """Return a ``torch.Size`` as a tuple."""
        if not isinstance(sizes, tuple):
            raise TypeError
        return sizes

    def raw_bytes(self, *arguments: Any) -> Placeholder:
        """Return a placeholder for bytes; reject sizes above that of the file."""
        for value in arguments:
            if isinstance(value, int) and value > self.n_bytes:
                raise RefusedError(f"its pickle asks for {shown(value)} bytes of memory", ASK_AUTHORS)
        return Placeholder("builtins.bytearray")


_Action = Callable[[_Machine, Any], None]
_VALUES = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)


def _protocol(_: _Machine, number: Any) -> None:
    """Instruction PROTO: raise RefusedError for protocols that are unknown."""
    if number > 5:
        raise RefusedError(f"its pickle has protocol {number}, but protocols up to 5 are known")


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


def _stride_fault(
    storage: StorageRecord, offset: Any, size: Any, stride: Any, dtype: torch.dtype
) -> tuple[str, str] | None:
    """Return what is wrong with the position of a tensor in its storage, and the remedy; None if it is valid."""
    numbers = (offset, *size, *stride) if isinstance(size, tuple) and isinstance(stride, tuple) else ()
    if not numbers or any(type(x) is not int or not 0 <= x < 2**62 for x in numbers):
        return "; these must be non-negative integers", COPY_AGAIN
    if len(size) != len(stride) or len(size) > MAX_DIMENSIONS:
        return f"; one stride for each of up to {MAX_DIMENSIONS} dimensions is needed", COPY_AGAIN
    available = storage.n_bytes // dtype.itemsize
    if 0 in size:
        too_large = math.prod(x for x in size if x) >= 2**62 or offset > available
        return (", which is too small", COPY_AGAIN) if too_large else None
    extent = 1  # of the dimensions so far, in elements
    for step, n in sorted((step, n) for step, n in zip(stride, size, strict=True) if n > 1):
        if step < extent:
            return "; its elements overlap", SAVE_AGAIN
        extent += step * (n - 1)
    return (", which is too small", COPY_AGAIN) if offset + extent > available else None


def _instructions(stream: BinaryIO) -> Iterator[tuple[str, Any, int | None]]:
    """Yield name, argument and position of each instruction; raise RefusedError if the pickle is broken."""
    try:
        for opcode, argument, position in pickletools.genops(stream):
            yield opcode.name, argument, position
    except (ValueError, struct.error, OverflowError, MemoryError, EOFError) as error:
        raise RefusedError(f"its pickle is broken ({shown(str(error))})") from None


def _safe_key(value: Any) -> Any:
    """Return a dict key whose hash is cheap and cannot be made to collide; a unique placeholder for any other."""
    if type(value) is int:
        return value if abs(value) < 2**61 - 1 else Placeholder("int")
    return value if value is None or type(value) in (str, bytes, float, bool) else Placeholder("key")


def kind_of(value: Any) -> str:
    """Describe the type of a value of the file, for error messages."""
    if isinstance(value, _Name):
        return shown(value.path)
    if isinstance(value, Placeholder):
        return f"an object {shown(value.kind)}"
    return "a tensor" if isinstance(value, TensorRecord) else f"a {type(value).__name__.strip('_').lower()}"


def shown(value: Any) -> str:
    """Describe a value of the file for error messages: short, printable, and without formatting huge numbers."""
    if isinstance(value, tuple):
        inner = [kind_of(x) if isinstance(x, tuple) else shown(x) for x in value[:8]]
        return f"({', '.join(inner)}{', …' if len(value) > 8 else ''})"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str | int | float):
        text = repr(value[:200]) if isinstance(value, str) else repr(value)
        return text if len(text) <= 120 else text[:117] + "…"
    return kind_of(value)
