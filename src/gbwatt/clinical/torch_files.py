"""Reads the tensors of PyTorch files without importing, calling or changing anything that a file names.

``torch.save`` writes a pickle beside raw storages, in a zip archive or, before PyTorch 1.6, one after another.
:mod:`~gbwatt.clinical.pickle_machine` interprets the pickle.  Tensors are views of the file's bytes where
possible, and a file cannot ask for more memory than a small multiple of its own size.
"""

from __future__ import annotations

import io
import math
import struct
import sys
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gbwatt.clinical.pickle_machine import SAVE_AGAIN, RefusedError, TensorRecord, interpret, kind_of, shown
from gbwatt.errors import WeightsFileError

MAX_TENSORS = 100_000
#: All tensors of a file together have at most this many times its bytes, or MIN_BYTES: some models share weights.
MAX_SHARING, MIN_BYTES = 4, 1 << 20
#: Where checkpoints of trainings keep the weights.
_ENTRIES = ("model", "state_dict", "model_state_dict", "module")
_LEGACY_MAGIC, _LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


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
    WeightsFileError
        If the file is damaged, contains code, describes tensors that it does not hold, or has no state_dict.
    """
    view = content.getbuffer()
    try:
        stored = _read_archive(content, view) if bytes(view[:2]) == b"PK" else _read_legacy(content, view)
        state = _find_state(stored.content)
        if len(state) > MAX_TENSORS:
            raise RefusedError(f"it has {len(state)} tensors, but at most {MAX_TENSORS} are read", SAVE_AGAIN)
        _require_moderate(state, len(view))
        made = {id(record): stored.tensor(record) for record in state.values()}
        return {name: made[id(record)] for name, record in state.items()}
    except RefusedError as error:
        raise WeightsFileError(f"{file} cannot be used as weights: {error}; {error.remedy}.") from None


def _find_state(content: Any) -> dict[str, TensorRecord]:
    """The dictionary of tensors in a file, or in the entry of a checkpoint where it usually is."""
    if type(content) is dict:
        if content and all(type(name) is str and isinstance(x, TensorRecord) for name, x in content.items()):
            return content
        for entry in _ENTRIES:
            inner = content.get(entry)
            if type(inner) is dict:
                state = {name: x for name, x in inner.items() if type(name) is str and isinstance(x, TensorRecord)}
                if state:
                    return state
    found = kind_of(content)
    if type(content) is dict:
        found += f" of {', '.join(map(shown, list(content)[:5])) or 'nothing'}"
    raise RefusedError(f"it has no tensors by name: found {found}, but a state_dict is needed", SAVE_AGAIN)


def _require_moderate(state: Mapping[str, TensorRecord], n_bytes: int) -> None:
    """Refuse a file whose names share so few bytes that copies of them could fill the memory."""
    total = sum(math.prod(record.size) * record.dtype.itemsize for record in state.values())
    limit = max(MAX_SHARING * n_bytes, MIN_BYTES)
    if total > limit:
        raise RefusedError(
            f"its {len(state)} tensors have {total} bytes, but at most {limit} are read from a file of {n_bytes} bytes",
            SAVE_AGAIN,
        )


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the pickle of a file describes, and the bytes of its storages."""

    content: Any
    storages: Mapping[str, memoryview]
    byte_order: str

    def tensor(self, record: TensorRecord) -> Tensor:
        """A view of the file, or a copy of the tensor's elements where the processor could not use a view."""
        if 0 in record.size:
            return torch.empty(record.size, dtype=record.dtype)
        width = record.dtype.itemsize
        # the steps of dimensions of size 1 are never taken, and may be too large for a number of bytes
        strides = [step if n > 1 else 1 for n, step in zip(record.size, record.stride, strict=True)]
        extent = 1 + sum((n - 1) * step for n, step in zip(record.size, strides, strict=True))
        held = self.storages[record.storage.key]
        raw = torch.frombuffer(held, dtype=torch.uint8, offset=record.offset * width, count=extent * width)
        elements = raw.as_strided((*record.size, width), (*(width * step for step in strides), 1))
        if record.dtype is torch.bool:
            return elements.squeeze(-1).ne(0)
        number = width // (2 if record.dtype.is_complex else 1)
        if self.byte_order != sys.byteorder and number > 1:
            elements = elements.unflatten(-1, (-1, number)).flip(-1).flatten(-2).contiguous()
        if elements.data_ptr() % width:
            elements = elements.clone(memory_format=torch.contiguous_format)
        return elements.view(record.dtype).squeeze(-1)


# ------------------------------------------------------------------------------------------------------------ archives


def _read_archive(content: io.BytesIO, view: memoryview) -> _Stored:
    records = _records(content, view)
    if "constants.pkl" in records or any(name.startswith("code/") for name in records):
        raise RefusedError("it is a TorchScript archive, which contains code", SAVE_AGAIN)
    if "data.pkl" not in records:
        raise RefusedError(f"its archive has no data.pkl, but {shown(', '.join(sorted(records)[:5]))}")
    order = bytes(records.get("byteorder", memoryview(b"little"))[:20])
    if order not in (b"little", b"big"):
        raise RefusedError(f"its byte order is {order!r}, neither little nor big")
    found = interpret(io.BytesIO(records["data.pkl"]), len(view))
    for tensor in found.tensors:
        record, storage = records.get(f"data/{tensor.storage.key}"), tensor.storage
        if record is None:
            raise RefusedError(f"its archive has no storage {shown(storage.key)}")
        if len(record) != storage.n_bytes:
            stated = f"{len(record)} bytes, but its pickle states {storage.n_bytes}"
            raise RefusedError(f"storage {shown(storage.key)} has {stated}")
    held = {key: records[f"data/{key}"] for key in {tensor.storage.key for tensor in found.tensors}}
    return _Stored(found.content, held, order.decode())


def _records(content: io.BytesIO, view: memoryview) -> dict[str, memoryview]:
    """Records of a zip archive by their names below its only folder; all intact, and none over another."""
    try:
        entries = zipfile.ZipFile(content).infolist()
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError, OverflowError, EOFError, OSError) as why:
        raise RefusedError(f"its zip archive is broken ({shown(str(why))})") from None
    has_checksums = any(entry.CRC for entry in entries)  # torch.serialization.set_crc32_options(False) writes zeros
    found: dict[str, memoryview] = {}
    end, folders = 0, set()
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        folder, slash, name = entry.orig_filename.partition("/")
        parts = name.split("/")
        if not slash or not folder or folder == ".." or "\\" in name or {"", ".", ".."} & set(parts):
            raise RefusedError(f"its archive has a record {shown(entry.orig_filename)}, outside of a folder")
        if name in found:
            raise RefusedError(f"its archive has two records {shown(name)}")
        start = _start(entry, view)
        if name.startswith("code/") or name == "constants.pkl":  # code is compressed; it is not read
            found[name] = view[:0]
            continue
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise RefusedError(f"its record {shown(name)} is compressed, which torch.save does not do", SAVE_AGAIN)
        if entry.header_offset < end or start + entry.file_size > len(view):
            raise RefusedError(f"its record {shown(name)} lies over another or beyond the end")
        end = start + entry.file_size
        found[name] = view[start:end]
        if has_checksums and zlib.crc32(found[name]) != entry.CRC:
            raise RefusedError(f"the checksum of its record {shown(name)} is wrong")
        folders.add(folder)
    if len(folders) > 1:
        raise RefusedError(f"its archive has the folders {shown(', '.join(sorted(folders)[:5]))} instead of one")
    return found


def _start(entry: zipfile.ZipInfo, view: memoryview) -> int:
    """Where the bytes of a record begin."""
    header = struct.Struct("<4s5H3L2H")
    offset = entry.header_offset
    if offset < 0 or offset + header.size > len(view):
        raise RefusedError("its zip archive has a record beyond its end")
    signature, _, flags, *_, name_size, extra_size = header.unpack_from(view, offset)
    start = offset + header.size + name_size
    name = bytes(view[offset + header.size : start]).decode("utf-8" if flags & 0x800 else "cp437", "replace")
    if signature != b"PK\x03\x04" or name != entry.orig_filename or flags & 0x1:
        raise RefusedError(f"its zip archive has no readable record {shown(entry.orig_filename)}")
    return int(start + extra_size)


# ----------------------------------------------------------------------------------------------------- before archives


def _read_legacy(content: io.BytesIO, view: memoryview) -> _Stored:
    content.seek(0)
    for expected in (_LEGACY_MAGIC, _LEGACY_PROTOCOL):
        if interpret(content, len(view), 1000).content != expected:
            raise RefusedError("it does not begin as files of torch.save do")
    system = interpret(content, len(view), 1000).content
    if type(system) is not dict or system.get("little_endian") is not True:
        raise RefusedError("it does not state that its numbers are little-endian")
    found = interpret(content, len(view))
    keys = interpret(content, len(view), found.budget).content
    storages = {tensor.storage.key: tensor.storage for tensor in found.tensors}
    if any(tensor.storage != storages[tensor.storage.key] for tensor in found.tensors):
        raise RefusedError("it has two storages with one key")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
        raise RefusedError("its list of storages is broken")
    if set(keys) != set(storages):
        raise RefusedError(f"it lists {len(keys)} storages and uses {len(storages)}")
    held, position = {}, content.tell()
    for key in keys:
        storage, start = storages[key], position + 8
        position = start + storage.n_bytes
        if position > len(view) or struct.unpack_from("<q", view, start - 8)[0] != storage.numel:
            raise RefusedError(f"storage {shown(key)} is truncated or has another size than stated")
        held[key] = view[start:position]
    if position != len(view):
        raise RefusedError(f"{len(view) - position} bytes are left after its last storage")
    return _Stored(found.content, held, "little")
