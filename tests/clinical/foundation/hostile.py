"""Weights files as an attacker would write them, assembled instruction by instruction."""

from __future__ import annotations

import io
import struct
import sys
import warnings
import zipfile
from pathlib import Path

import torch

STOP, PROTO = b".", b"\x80\x02"
VALUES = torch.arange(6.0).reshape(2, 3)
STORAGE = VALUES.numpy().tobytes()
FOREIGN_ORDER = b"big" if sys.byteorder == "little" else b"little"


# ---- instructions


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def integer(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return (b"\x8a" + bytes([len(raw)]) if len(raw) < 256 else b"\x8b" + struct.pack("<i", len(raw))) + raw


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def stacked_name(module: str, attribute: str) -> bytes:
    return text(module) + text(attribute) + b"\x93"


def items(*values: bytes) -> bytes:
    return b"(" + b"".join(values) + b"t"


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + items(*arguments) + b"R"


def mapping(**values: bytes) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in values.items()) + b"u"


FLOATS = name("torch", "FloatStorage")


def storage(key: str = "0", kind: bytes = FLOATS, numel: int = 6, view: bytes = b"") -> bytes:
    return items(text("storage"), kind, text(key), text("cpu"), integer(numel), view) + b"Q"


def numbers(values) -> bytes:
    return items(*map(integer, values))


def tensor(size=(2, 3), stride=(3, 1), offset=0, held: bytes | None = None) -> bytes:
    arguments = (storage() if held is None else held, integer(offset), numbers(size), numbers(stride))
    return call(name("torch._utils", "_rebuild_tensor_v2"), *arguments, b"\x89", b"N")


def nested(depth: int) -> bytes:
    """A list in a list in a list ..."""
    return b"]" * depth + b"a" * (depth - 1)


# ---- files


def archive(program: bytes, *, storages=None, records=None, order: bytes = b"little", **how) -> bytes:
    """A file as torch.save writes it, around a pickle."""
    content = {"archive/data.pkl": PROTO + program + STOP, "archive/byteorder": order, "archive/version": b"3\n"}
    content |= {f"archive/data/{key}": raw for key, raw in (storages or {"0": STORAGE}).items()}
    return zipped({**content, **(records or {})}.items(), **how)


def zipped(records, compression=zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as file:
        for path, raw in records:
            file.writestr(path, raw)
    return stream.getvalue()


def legacy(program: bytes, keys=("0",), storages: bytes = struct.pack("<q", 6) + STORAGE, **changes) -> bytes:
    """A file as torch.save wrote it before PyTorch 1.6."""
    magic = changes.get("magic", 0x1950A86A20F9469CFC6C)
    parts = (integer(magic), integer(1001), mapping(little_endian=b"\x88"), program, b"](" + b"".join(map(text, keys)))
    return b"".join(PROTO + part + STOP for part in parts[:4]) + PROTO + parts[4] + b"e" + STOP + storages


def as_weight(value: bytes) -> bytes:
    return archive(mapping(weight=value))


def beside_weights(value: bytes) -> bytes:
    """A checkpoint whose weights are fine, and which has something else."""
    return archive(mapping(model=mapping(weight=tensor()), other=value))


class Writer(torch.nn.Module):
    """Writes a file when torch.jit.load reads it."""

    def __init__(self, path: str):
        super().__init__()
        self.path = path

    @torch.jit.export
    def __getstate__(self):
        return self.path, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, bool]):
        self.path = state[0]
        self.training = state[1]
        torch.save(torch.ones(3), self.path)

    def forward(self, x):
        return x


def torchscript(module: torch.nn.Module) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        torch.jit.save(torch.jit.script(module), stream)
    return stream.getvalue()


def patched(content: bytes, old: bytes, new: bytes) -> bytes:
    assert len(old) == len(new)
    assert old in content
    return content.replace(old, new)


def overlapping() -> bytes:
    """Two entries of the directory with the bytes of one."""
    content = bytearray(archive(mapping(weight=tensor()), storages={"0": STORAGE, "1": STORAGE}))
    first, second = (content.rfind(f"archive/data/{key}".encode()) - 46 for key in "01")
    content[second + 42 : second + 46] = content[first + 42 : first + 46]
    return bytes(content)


GOOD = archive(mapping(weight=tensor()))
PICKLE = PROTO + mapping(weight=tensor()) + STOP


def calls(marker: Path) -> dict[str, bytes]:
    """Functions that a file would have called."""
    touch = text(f"touch {marker}")
    python = text(f"open({str(marker)!r}, 'w')")
    getattr_os = call(name("builtins", "getattr"), name("os", "path"), text("os"))
    return {
        "os.system": as_weight(call(name("os", "system"), touch)),
        "posix.system": as_weight(call(name("posix", "system"), touch)),
        "os.system by name on the stack": as_weight(call(stacked_name("os", "system"), touch)),
        "os.system beside weights": beside_weights(call(name("os", "system"), touch)),
        "os.system as the whole file": archive(call(name("os", "system"), touch)),
        "os.system dropped from the stack": archive(
            call(name("os", "system"), touch) + b"0" + mapping(weight=tensor())
        ),
        "subprocess.Popen": as_weight(call(name("subprocess", "Popen"), touch)),
        "builtins.eval": as_weight(call(name("builtins", "eval"), python)),
        "builtins.exec": as_weight(call(name("builtins", "exec"), python)),
        "__builtin__.eval": as_weight(call(name("__builtin__", "eval"), python)),
        "builtins.open": beside_weights(call(name("builtins", "open"), text(str(marker)), text("w"))),
        "builtins.__import__": beside_weights(call(name("builtins", "__import__"), text("antigravity"))),
        "importlib.import_module": beside_weights(call(name("importlib", "import_module"), text("antigravity"))),
        "a chain of getattr": as_weight(call(call(name("builtins", "getattr"), getattr_os, text("system")), touch)),
        "a dotted name": as_weight(call(stacked_name("os", "path.os.system"), touch)),
        "a call of a call": as_weight(call(call(name("functools", "partial"), name("os", "system")), touch)),
        "operator.methodcaller": as_weight(call(call(name("operator", "methodcaller"), text("system"), touch), b"N")),
        "torch.hub.load": as_weight(call(name("torch.hub", "load"), text("a/b"), text("c"))),
        "torch.jit.load": beside_weights(call(name("torch.jit", "load"), text(str(marker)))),
        "torch.load": as_weight(call(name("torch", "load"), text(str(marker)))),
        "torch.save": as_weight(call(name("torch", "save"), integer(1), text(str(marker)))),
        "torch.zeros of 8 GB": as_weight(call(name("torch", "zeros"), integer(2_000_000_000))),
        "torch.from_file": as_weight(call(name("torch", "from_file"), text(str(marker)), b"\x88", integer(10))),
        "numpy.save": as_weight(call(name("numpy", "save"), text(str(marker)), integer(1))),
        "pickle.loads": as_weight(call(name("pickle", "loads"), text("x"))),
        "a call of a string": as_weight(call(text("os.system"), touch)),
        "a call of a tensor": as_weight(call(tensor(), touch)),
        "a call with a list": as_weight(name("torch", "Size") + b"]R"),
        "INST": as_weight(b"(" + touch + b"ios\nsystem\n"),
        "OBJ": as_weight(b"(" + name("os", "system") + touch + b"o"),
        "NEWOBJ": as_weight(name("subprocess", "Popen") + items(touch) + b"\x81"),
        "NEWOBJ_EX": as_weight(name("subprocess", "Popen") + items(touch) + b"}\x92"),
        "NEWOBJ of no class": as_weight(text("x") + items(touch) + b"\x81"),
        "EXT1": as_weight(b"\x82\x01"),
        "EXT2": as_weight(b"\x83\x01\x00"),
        "EXT4": as_weight(b"\x84\x01\x00\x00\x00"),
    }


def changes() -> dict[str, bytes]:
    """Objects of the process that a file would change."""
    changed_defaults = mapping(__defaults__=items(b"N"))
    return {
        "BUILD on a function of torch": beside_weights(
            name("torch._utils", "_rebuild_tensor_v2") + changed_defaults + b"b"
        ),
        "BUILD on a class": beside_weights(name("torch", "Tensor") + mapping(numel=b"N") + b"b"),
        "BUILD on a module": beside_weights(stacked_name("torch", "nn") + mapping(Linear=b"N") + b"b"),
        "BUILD on a class by slots": beside_weights(
            name("collections", "OrderedDict") + items(b"N", mapping(get=b"N")) + b"b"
        ),
        "BUILD on a tensor": as_weight(tensor() + mapping(data=b"N") + b"b"),
        "BUILD on a dtype": beside_weights(name("torch", "float32") + mapping(itemsize=integer(1)) + b"b"),
        "items of a module": beside_weights(name("sys", "modules") + text("os") + b"Ns"),
        "items of a function": beside_weights(name("os", "environ") + text("PATH") + b"Ns"),
        "append to a name": beside_weights(name("sys", "path") + text("/tmp") + b"a"),
        "extend a tuple": as_weight(b")(" + text("x") + b"e"),
        "builtins.setattr": beside_weights(call(name("builtins", "setattr"), name("torch", "nn"), text("x"), b"N")),
    }


def storages(marker: Path) -> dict[str, bytes]:
    """Storages that a file does not have."""
    touch = text(f"touch {marker}")
    return {
        "PERSID": as_weight(b"P../../../etc/passwd\n"),
        "a storage that is a string": as_weight(text("storage") + b"Q"),
        "a storage of a module": as_weight(tensor(held=items(text("module"), *[text("x")] * 4) + b"Q")),
        "a storage of an unknown type": as_weight(tensor(held=storage(kind=name("os", "system")))),
        "a storage in another folder": as_weight(tensor(held=storage(key="../data.pkl"))),
        "a storage that is missing": as_weight(tensor(held=storage(key="7"))),
        "a storage of another type": as_weight(tensor(held=storage(kind=name("torch", "DoubleStorage")))),
        "a storage of 8 GB": as_weight(tensor(held=storage(numel=2_000_000_000))),
        "a storage of -1": as_weight(tensor(held=storage(numel=-1))),
        "a storage of 2**200": as_weight(tensor(held=storage(numel=2**200))),
        "a tensor on a list": as_weight(tensor(held=b"]")),
        "a tensor of an object": as_weight(
            call(name("torch._utils", "_rebuild_parameter"), call(name("os", "system"), touch), b"\x89", b"N")
        ),
    }


def tensors() -> dict[str, bytes]:
    """Tensors that do not lie in their storage."""
    return {
        "negative size": as_weight(tensor(size=(-2, 3))),
        "negative stride": as_weight(tensor(stride=(-3, 1), offset=3)),
        "negative offset": as_weight(tensor(offset=-1)),
        "size beyond the storage": as_weight(tensor(size=(3, 3))),
        "stride beyond the storage": as_weight(tensor(stride=(300, 1))),
        "offset beyond the storage": as_weight(tensor(offset=1)),
        "expanded to 4 TB": as_weight(tensor(size=(1_000_000, 1_000_000), stride=(0, 0))),
        "overlapping strides": as_weight(tensor(size=(2, 2), stride=(1, 1))),
        "empty but huge": as_weight(tensor(size=(0, 2**40, 2**40), stride=(1, 1, 1))),
        "size of 2**200": as_weight(tensor(size=(2**200, 3))),
        "size of floats": as_weight(
            call(
                name("torch._utils", "_rebuild_tensor_v2"), storage(), integer(0), items(b"G" + bytes(8)), numbers([1])
            )
        ),
        "one stride for two dimensions": as_weight(tensor(stride=(3,))),
        "a thousand dimensions": as_weight(tensor(size=(1,) * 1000, stride=(1,) * 1000)),
        "a tensor without arguments": as_weight(call(name("torch._utils", "_rebuild_tensor_v2"))),
        "an unknown dtype": as_weight(
            call(
                name("torch._utils", "_rebuild_tensor_v3"),
                *(storage(), integer(0), numbers((2, 3)), numbers((3, 1)), b"\x89", b"N", name("os", "system")),
            )
        ),
    }


def under_names(value: bytes, n: int = 10_000) -> bytes:
    """A dictionary with one value under many names."""
    return value + b"q\x000}(" + b"".join(b"\x8c\x05%05d" % i + b"h\x00" for i in range(n)) + b"u"


def in_tensors(n: int = 10_000) -> bytes:
    """A dictionary with many tensors, all of the same 100 000 numbers."""
    arguments = items(large(name("torch", "BoolStorage")), integer(0), numbers([LARGE]), numbers([1]), b"\x89", b"N")
    again = name("torch._utils", "_rebuild_tensor_v2") + b"q\x000" + arguments + b"q\x010}("
    return again + b"".join(b"\x8c\x05%05d" % i + b"h\x00h\x01R" for i in range(n)) + b"u"


LARGE = 100_000


def large(kind: bytes) -> bytes:
    return storage(kind=kind, numel=LARGE)


def large_tensor(kind: str) -> bytes:
    return tensor((LARGE,), (1,), held=large(name("torch", kind)))


def unaligned() -> bytes:
    """Numbers at odd places of the file, under many names."""
    raw = b"\x01" * 8 * LARGE
    for version in (b"3\n", b"3\n\n"):
        records = {"archive/version": version}
        content = archive(under_names(large_tensor("DoubleStorage")), storages={"0": raw}, records=records)
        if content.index(raw) % 8:
            return content
    raise AssertionError


def type_in_type(depth: int) -> bytes:
    function = name("torch._tensor", "_rebuild_from_type_v2")
    return function + b"q\x00" + b"(h\x00N" * depth + b")" + b"Nt" * depth + b"R"


def with_size(size: bytes) -> bytes:
    arguments = (storage(), integer(0), size, numbers((3, 1)), b"\x89", b"N")
    return as_weight(call(name("torch._utils", "_rebuild_tensor_v2"), *arguments))


def bombs() -> dict[str, bytes]:
    """Small files that ask for much memory or time."""
    return {
        "bytearray of 8 GB": beside_weights(call(name("builtins", "bytearray"), integer(8_000_000_000))),
        "bytes of 8 GB": beside_weights(call(name("__builtin__", "bytes"), integer(8_000_000_000))),
        "a range of 1e12": as_weight(call(name("builtins", "list"), call(name("builtins", "range"), integer(10**12)))),
        "lists 100 000 deep": archive(nested(100_000)),
        "tuples 100 000 deep": archive(b")" + b"\x85" * 100_000),
        "a dictionary of itself": archive(b"}q\x00" + text("model") + b"h\x00s"),
        "a key of 2**60 tuples": archive(b")" + b"2\x86" * 60 + b"0}" + b")" + b"2\x86" * 60 + b"Ns"),
        "doubled lists": archive(b"]" + b"q\x00](h\x00h\x00e" * 500),
        "too many instructions": archive(b"]" * 1_000_001),
        "a number of a million digits": archive(b"L" + b"9" * 1_000_000 + b"L\n"),
        "LONG4 beyond the end": archive(b"\x8b\xff\xff\xff\x7f"),
        "LONG4 of negative length": archive(b"\x8b\xff\xff\xff\xff"),
        "a string beyond the end": archive(b"X\xff\xff\xff\xff"),
        "bytes of 2**63": archive(b"\x8e" + b"\xff" * 7 + b"\x7f"),
        "a frame beyond the end": archive(b"\x95" + b"\xff" * 8),
        "a name of ten thousand prefixes": archive(mapping(**{"module." * 10_000: tensor()})),
        "bool under 10 000 names": archive(under_names(large_tensor("BoolStorage")), storages={"0": bytes(LARGE)}),
        "bool in 10 000 tensors": archive(in_tensors(), storages={"0": bytes(LARGE)}),
        "another byte order under 10 000 names": archive(
            under_names(large_tensor("ShortStorage")), storages={"0": bytes(2 * LARGE)}, order=FOREIGN_ORDER
        ),
        "unaligned under 10 000 names": unaligned(),
        "a long name 1000 times": archive(text("x" * 1_000_000) + b"q\x000](" + b"h\x00h\x00\x93" * 1000 + b"e"),
        "types in types 5000 deep": as_weight(type_in_type(5000)),
        "a size 5000 deep": with_size(b")" + b"\x85" * 5000),
        "a size of 8**7 tuples": with_size(b")" + (b"q\x000(" + b"h\x00" * 8 + b"t") * 7),
    }


def broken_pickles() -> dict[str, bytes]:
    """Programs that are none."""
    return {
        "an empty stack": archive(b"0000"),
        "no mark": archive(b"t"),
        "an unknown memo": archive(b"h\x07"),
        "a negative memo": archive(b"Np-1\n"),
        "odd items": archive(b"}(" + text("a") + b"u"),
        "protocol 77": zipped([("archive/data.pkl", b"\x80\x4d" + PICKLE[2:]), ("archive/data/0", STORAGE)]),
        "a buffer from outside": archive(b"\x97"),
    }


def archives(marker: Path) -> dict[str, bytes]:
    """Zip archives that torch.save does not write."""
    return {
        "TorchScript": torchscript(torch.nn.Linear(3, 2)),
        "TorchScript that writes a file": torchscript(Writer(str(marker))),
        "weights with constants.pkl": archive(
            mapping(weight=tensor()), records={"archive/constants.pkl": b"\x80\x02)."}
        ),
        "weights with code": archive(mapping(weight=tensor()), records={"archive/code/__torch__.py": b"import os"}),
        "an archive in an archive": zipped([("archive/data.pkl", GOOD)]),
        "an archive without a pickle": zipped([("archive/data/0", STORAGE)]),
        "an archive of nothing": zipped([]),
        "a compressed bomb": archive(
            mapping(weight=tensor(held=storage(numel=5_000_000))),
            storages={"0": bytes(20_000_000)},
            compression=zipfile.ZIP_DEFLATED,
        ),
        "a path outside": archive(mapping(weight=tensor()), records={"archive/../../outside": b"x"}),
        "an absolute path": archive(mapping(weight=tensor()), records={"/etc/outside": b"x"}),
        "two folders": archive(mapping(weight=tensor()), records={"other/data.pkl": PICKLE}),
        "a name twice": patched(
            archive(mapping(weight=tensor()), storages={"0": STORAGE, "1": STORAGE}), b"data/1", b"data/0"
        ),
        "one record over another": overlapping(),
        "unknown byte order": archive(mapping(weight=tensor()), order=b"middle"),
        "a changed value": patched(GOOD, STORAGE, STORAGE[:-1] + b"\x41"),
        "a changed name": GOOD.replace(b"weight", b"heavyy", 1),
    }


def legacy_files(marker: Path) -> dict[str, bytes]:
    """Files as before PyTorch 1.6."""
    touch = text(f"touch {marker}")
    return {
        "legacy: another magic number": legacy(mapping(weight=tensor()), magic=42),
        "legacy: os.system": legacy(mapping(weight=call(name("os", "system"), touch))),
        "legacy: os.system in the list of storages": legacy(
            mapping(weight=tensor()) + STOP + PROTO + call(name("os", "system"), touch)
        ),
        "legacy: a storage is missing": legacy(mapping(weight=tensor()), keys=(), storages=b""),
        "legacy: truncated": legacy(mapping(weight=tensor()))[:-3],
        "legacy: bytes after the end": legacy(mapping(weight=tensor())) + b"x",
        "legacy: another size": legacy(mapping(weight=tensor()), storages=struct.pack("<q", 7) + STORAGE),
        "legacy: a storage twice": legacy(mapping(weight=tensor()), keys=("0", "0")),
        "legacy: a size of 2**62": legacy(mapping(weight=tensor(held=storage(numel=2**62)))),
    }


def other_files(marker: Path) -> dict[str, bytes]:
    """What is no weights file at all."""
    touch = text(f"touch {marker}")
    return {
        "nothing": b"",
        "a text": b"weights",
        "a pickle": PICKLE,
        "a pickle that runs a program": PROTO + call(name("os", "system"), touch) + STOP,
        "a numpy array": b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n" + PICKLE,
    }


def files(marker: Path) -> dict[str, bytes]:
    """Hostile files by what they try.  Those that run code would create the file ``marker``."""
    return {
        **calls(marker),
        **changes(),
        **storages(marker),
        **tensors(),
        **bombs(),
        **broken_pickles(),
        **archives(marker),
        **legacy_files(marker),
        **other_files(marker),
    }
