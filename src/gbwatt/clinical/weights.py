"""Published weights of backbones, read without executing anything that a file contains.

``torch.save`` writes a pickle beside raw storages, in a zip archive or, before PyTorch 1.6, one after another.
:mod:`~gbwatt.clinical.pickle_machine` interprets the pickle.  Tensors are views of the file's bytes if possible, and
the memory that a file needs is at most a small multiple of its size.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
import shutil
import struct
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gbwatt.clinical.backbones import BIOT, Backbone, LaBraM
from gbwatt.clinical.pickle_machine import SAVE_AGAIN, RefusedError, TensorRecord, interpret, kind_of, shown
from gbwatt.errors import ModelFileError, WeightsFileError
from gbwatt.models.serialization import FLOATS, parse_safetensors

#: Weights files in a folder of a model hub, in the order in which they are looked for.
_FILES = ("model.safetensors", "pytorch_model.bin")
#: Values of ``weights`` that are not files: random weights, or weights that are set afterwards.
NO_FILE = ("random", "later")
MAX_TENSORS = 100_000
#: The tensors of a file have at most this many times its bytes, or MIN_BYTES, because some models share weights.
MAX_SHARING, MIN_BYTES = 4, 1 << 20
#: Entries of a checkpoint that may contain the weights.
_ENTRIES = ("model", "state_dict", "model_state_dict", "module")
_LEGACY_MAGIC, _LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


@dataclass(frozen=True)
class WeightsReport:
    """Which tensors of a file were used.

    Attributes
    ----------
    source, sha256 : str
        The file and its hash.
    matched : tuple of str
        Parameters and buffers of the backbone that were set.
    cut : dict
        Those that were set from a part of a tensor, with a description of the part.
    new : tuple of str
        Those that are not in the file and keep their initial values.
    ignored : dict
        Tensors of the file that do not belong to the backbone, with the reason.
    """

    source: str
    sha256: str
    matched: tuple[str, ...]
    cut: Mapping[str, str]
    new: tuple[str, ...]
    ignored: Mapping[str, str]

    def __str__(self) -> str:
        lines = [f"{self.source} (SHA-256 {self.sha256[:16]}): {len(self.matched)} tensors matched"]
        lines += [f"  {name}: {part}" for name, part in self.cut.items()]
        lines += [f"  not in the file, initial values kept: {', '.join(self.new)}"] * bool(self.new)
        reasons: dict[str, list[str]] = {}
        for name, why in self.ignored.items():
            reasons.setdefault(why, []).append(name)
        lines += [f"  left out, {why}: {_joined(names)}" for why, names in reasons.items()]
        return "\n".join(lines)


class _NameRules(NamedTuple):
    """Rules that turn names in files into names of a backbone."""

    prefixes: tuple[str, ...]  # prefixes that are removed
    renamed: tuple[tuple[str, str], ...]  # patterns and replacements
    ignored: tuple[tuple[str, str], ...]  # patterns of tensors that are not used, and the reason
    new: tuple[str, ...]  # parameters that files may lack
    leading: Mapping[str, int]  # parameters that may be longer along an axis, of which the first entries are used


_ONE_UNUSED = frozenset({"network.temporal_embedding"})  # parameters whose last entry is never used
_HEAD = "part of another classifier"
_PRETRAINING = "only used in pretraining"
_RULES: Mapping[type[Backbone], _NameRules] = MappingProxyType(
    {
        BIOT: _NameRules(
            prefixes=("module.", "model.", "biot.", "encoder."),
            renamed=((r"^", "encoder."),),
            ignored=(
                (r"^index$", "channel numbers"),
                (r"^(classifier|final_layer)", _HEAD),
                (r"^prediction\.", _PRETRAINING),
            ),
            new=(),
            leading={"encoder.channel_tokens.weight": 0},
        ),
        LaBraM: _NameRules(
            prefixes=("module.", "student."),
            renamed=(
                (r"^pos_embed$", "position_embedding"),
                (r"^time_embed$", "temporal_embedding"),
                (r"^patch_embed\.(conv|norm)", r"patch_embed.temporal_conv.\1"),
                (r"\.mlp\.fc1\.", ".mlp.0."),
                (r"\.mlp\.fc2\.", ".mlp.2."),
                (r"^(?!fc_norm)", "network."),
            ),
            ignored=(
                (r"^(lm_head|mask_token|projection_head|logit_scale)", _PRETRAINING),
                (r"^(head|final_layer)\.", _HEAD),
                (r"^norm\.", "norm of the class token, which is not used"),
            ),
            new=("fc_norm.weight", "fc_norm.bias"),
            leading={"network.temporal_embedding": 1},
        ),
    }
)


def load_weights(backbone: Backbone, path: str | Path) -> WeightsReport:
    """Set all parameters of a backbone from a file in the format of its authors or of braindecode.

    Parameters
    ----------
    backbone : Backbone
        :class:`~gbwatt.clinical.backbones.BIOT` or :class:`~gbwatt.clinical.backbones.LaBraM`.
    path : path
        A file ``.ckpt``, ``.pth``, ``.pt``, ``.bin`` or ``.safetensors``, or a folder of a model hub.

    Returns
    -------
    WeightsReport
        Which tensors were used.

    Raises
    ------
    WeightsFileError
        If the file does not exist, is damaged or contains code, or its tensors do not fit the backbone.  The backbone
        is then unchanged.

    Notes
    -----
    Nothing in a file is executed.  Objects beside the weights, such as training settings, are skipped.  TorchScript
    archives are rejected.
    """
    file = find_file(Path(path).expanduser())
    content = _read_bytes(file)
    tensors = _read_tensors(file, content)
    rules = _RULES.get(type(backbone))
    if rules is None:
        raise WeightsFileError(
            f"the format of weights of {type(backbone).__name__} is unknown; use load_state_dict instead."
        )
    matching = _match(file, tensors, backbone.state_dict(), rules)
    backbone.load_state_dict(matching.tensors, strict=False)
    digest = hashlib.sha256(content.getbuffer()).hexdigest()
    return WeightsReport(str(file), digest, tuple(matching.tensors), matching.cut, matching.new, matching.ignored)


# ------------------------------------------------------------------------------------------------------------- reading


def find_file(path: Path) -> Path:
    """Return the weights file at a path, which may be a folder of a model hub."""
    if path.is_file():
        return path
    if path.is_dir():
        for name in _FILES:
            if (path / name).is_file():
                return path / name
        raise WeightsFileError(f"{path} has none of {', '.join(_FILES)}; give the path of the file.")
    raise WeightsFileError(
        f"{path} does not exist; get the weights from the authors of the backbone, or use weights='random'."
    )


def _read_bytes(file: Path) -> io.BytesIO:
    """Read a file into memory; raise WeightsFileError if that is not possible."""
    content = io.BytesIO()
    try:
        with file.open("rb") as stream:
            shutil.copyfileobj(stream, content, 1 << 24)
    except OSError as error:
        raise WeightsFileError(
            f"{file} cannot be read ({error.strerror}); check its permissions and the disk."
        ) from None
    except MemoryError:
        raise WeightsFileError(f"{file} is larger than the available memory; is it the right file?") from None
    return content


def _read_tensors(file: Path, content: io.BytesIO) -> dict[str, Tensor]:
    """Return the tensors of a file by name."""
    if file.suffix != ".safetensors":
        return read_state_dict(file, content)
    try:
        return parse_safetensors(file, content.getvalue())
    except ModelFileError as error:
        raise WeightsFileError(str(error)) from None


# ------------------------------------------------------------------------------------------------------------ matching


class _Matching(NamedTuple):
    """Tensors by the names of the backbone, and the other fields of a :class:`WeightsReport`."""

    tensors: dict[str, Tensor]
    cut: dict[str, str]
    new: tuple[str, ...]
    ignored: dict[str, str]


def _match(file: Path, content: Mapping[str, Tensor], wanted: Mapping[str, Tensor], rules: _NameRules) -> _Matching:
    """Match the tensors of a file with those of a backbone; an error lists all problems."""
    plan, problems, named = _Matching({}, {}, (), {}), list[str](), set[str]()
    only_students = any(name.startswith("student.") for name in content)
    for name, tensor in content.items():
        plain = _without_prefix(name, rules.prefixes)
        why = next((why for pattern, why in rules.ignored if re.search(pattern, plain)), None)
        if why is None and only_students and not name.startswith("student."):
            why = _PRETRAINING
        if why is not None:
            plan.ignored[name] = why
            continue
        target = plain
        for pattern, replacement in rules.renamed:
            target = re.sub(pattern, replacement, target, count=1)
        shown = repr(name[:100])
        if target not in wanted:
            problems.append(f"{shown} does not belong to this backbone")
            continue
        named.add(target)
        if target in plan.tensors:
            problems.append(f"{target!r} occurs twice, also as {shown}")
        elif (tensor.dtype in FLOATS) != wanted[target].is_floating_point() or tensor.is_complex():
            problems.append(f"{shown} is {tensor.dtype} and should be {wanted[target].dtype}")
        elif tensor.shape != wanted[target].shape:
            problems += _use_part(plan, shown, target, tensor, wanted[target], rules.leading.get(target))
        else:
            plan.tensors[target] = tensor
        if target in plan.tensors and not bool(torch.isfinite(plan.tensors[target].to(wanted[target].dtype)).all()):
            problems.append(f"{shown} has NaN or infinite entries")
    missing = [name for name in wanted if name not in plan.tensors and name not in rules.new]
    problems += [f"{name!r} is missing" for name in missing if name not in named]
    if problems:
        raise WeightsFileError(
            f"{file} does not fit: {len(plan.tensors)} of {len(wanted)} tensors match. {_joined(problems, 12, '; ')}. "
            "Use weights of this backbone, of the same size."
        )
    return plan._replace(new=tuple(name for name in rules.new if name not in plan.tensors))


def _use_part(plan: _Matching, name: str, own: str, tensor: Tensor, wanted: Tensor, axis: int | None) -> list[str]:
    """Use a part of a tensor whose shape differs from that of the parameter ``own``, and note it in ``plan``.

    If a file has more entries along ``axis``, the first ones are used.  braindecode has one more temporal embedding
    than segments.  It is never used, and a file may lack it.  Returns the problem if the tensor does not fit.
    """
    sizes = f"{tuple(tensor.shape)} in the file and {tuple(wanted.shape)} here"
    if axis is not None and tensor.ndim == wanted.ndim and tensor.shape[axis] > wanted.shape[axis]:
        part = tensor.narrow(axis, 0, wanted.shape[axis])
        if part.shape == wanted.shape:
            plan.tensors[own] = part
            plan.cut[own] = f"the first {part.shape[axis]} of {tensor.shape[axis]}"
            return []
    if own in _ONE_UNUSED and axis is not None:
        shorter = wanted.narrow(axis, 0, wanted.shape[axis] - 1)
        if tensor.shape == shorter.shape:
            plan.tensors[own] = torch.cat(
                [tensor.to(wanted.dtype), wanted.narrow(axis, shorter.shape[axis], 1).cpu()], axis
            )
            plan.cut[own] = f"all {tensor.shape[axis]}; one more, which is not used, keeps its initial value"
            return []
    return [f"{own!r} ({name}) is {sizes}"]


def _without_prefix(name: str, prefixes: Sequence[str]) -> str:
    """Return a name without prefixes, which may be repeated."""
    start = 0
    while (prefix := next((p for p in prefixes if name.startswith(p, start)), None)) is not None:
        start += len(prefix)
    return name[start:]


def _joined(words: Sequence[Any], most: int = 5, between: str = ", ") -> str:
    """Join the first ``most`` words for a message, with the number of the others."""
    more = f"{between}and {len(words) - most} more" if len(words) > most else ""
    return between.join(map(str, words[:most])) + more


# ------------------------------------------------------------------------------------------------------- files of torch


def read_state_dict(file: Path, content: io.BytesIO) -> dict[str, Tensor]:
    """Read a state_dict, or a checkpoint that contains one, from a file that ``torch.save`` wrote.

    Parameters
    ----------
    file : Path
        Name of the file in errors.
    content : io.BytesIO
        Its bytes.  Tensors are views of them.

    Returns
    -------
    dict
        Tensors by name.

    Raises
    ------
    WeightsFileError
        If the file is damaged, contains code, describes tensors that it does not hold, or has no state_dict.
    """
    view = content.getbuffer()
    try:
        stored = _read_archive(content, view) if bytes(view[:2]) == b"PK" else _read_legacy(content, view)
        state = _find_state_dict(stored.content)
        if len(state) > MAX_TENSORS:
            raise RefusedError(f"it has {len(state)} tensors, but at most {MAX_TENSORS} are read", SAVE_AGAIN)
        _require_moderate_size(state, len(view))
        made = {id(record): stored.tensor(record) for record in state.values()}
        return {name: made[id(record)] for name, record in state.items()}
    except RefusedError as error:
        raise WeightsFileError(f"{file} cannot be used as weights: {error}; {error.remedy}.") from None


def _find_state_dict(content: Any) -> dict[str, TensorRecord]:
    """Return the dictionary of tensors of a file, which may be an entry of a checkpoint."""
    if type(content) is dict:
        if content and all(type(name) is str and isinstance(x, TensorRecord) for name, x in content.items()):
            return content
        for entry in _ENTRIES:
            inner = content.get(entry)
            if type(inner) is dict:
                state = {name: x for name, x in inner.items() if type(name) is str and isinstance(x, TensorRecord)}
                if state:
                    return state
    kind = kind_of(content)
    if type(content) is dict:
        kind += f" of {', '.join(map(shown, list(content)[:5])) or 'nothing'}"
    raise RefusedError(f"it has no tensors by name: found {kind}, but a state_dict is needed", SAVE_AGAIN)


def _require_moderate_size(state: Mapping[str, TensorRecord], n_bytes: int) -> None:
    """Reject a file whose tensors share so few bytes that copies of them could fill the memory."""
    total = sum(math.prod(record.size) * record.dtype.itemsize for record in state.values())
    limit = max(MAX_SHARING * n_bytes, MIN_BYTES)
    if total > limit:
        raise RefusedError(
            f"its {len(state)} tensors have {total} bytes, but at most {limit} are read from a file of {n_bytes} bytes",
            SAVE_AGAIN,
        )


@dataclass(frozen=True, slots=True)
class _StoredFile:
    """The object that the pickle of a file describes, and the bytes of its storages."""

    content: Any
    storages: Mapping[str, memoryview]
    byte_order: str

    def tensor(self, record: TensorRecord) -> Tensor:
        """Return a tensor as a view of the file, or a copy if its data are not aligned or have another byte order."""
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


def _read_archive(content: io.BytesIO, view: memoryview) -> _StoredFile:
    """Read a zip archive of torch, the format since PyTorch 1.6; raise RefusedError if it is damaged or has code."""
    records = _archive_records(content, view)
    if "constants.pkl" in records or any(name.startswith("code/") for name in records):
        raise RefusedError("it is a TorchScript archive, which contains code", SAVE_AGAIN)
    if "data.pkl" not in records:
        raise RefusedError(f"its archive has no data.pkl, but {shown(', '.join(sorted(records)[:5]))}")
    order = bytes(records.get("byteorder", memoryview(b"little"))[:20])
    if order not in (b"little", b"big"):
        raise RefusedError(f"its byte order is {order!r}, neither little nor big")
    described = interpret(io.BytesIO(records["data.pkl"]), len(view))
    for tensor in described.tensors:
        record, storage = records.get(f"data/{tensor.storage.key}"), tensor.storage
        if record is None:
            raise RefusedError(f"its archive has no storage {shown(storage.key)}")
        if len(record) != storage.n_bytes:
            stated = f"{len(record)} bytes, but its pickle states {storage.n_bytes}"
            raise RefusedError(f"storage {shown(storage.key)} has {stated}")
    held = {key: records[f"data/{key}"] for key in {tensor.storage.key for tensor in described.tensors}}
    return _StoredFile(described.content, held, order.decode())


def _archive_records(content: io.BytesIO, view: memoryview) -> dict[str, memoryview]:
    """Return the records of a zip archive by name below its only folder; reject damaged and overlapping ones."""
    try:
        entries = zipfile.ZipFile(content).infolist()
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError, OverflowError, EOFError, OSError) as why:
        raise RefusedError(f"its zip archive is broken ({shown(str(why))})") from None
    has_checksums = any(entry.CRC for entry in entries)  # torch.serialization.set_crc32_options(False) writes zeros
    records: dict[str, memoryview] = {}
    end, folders = 0, set()
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        folder, slash, name = entry.orig_filename.partition("/")
        parts = name.split("/")
        if not slash or not folder or folder == ".." or "\\" in name or {"", ".", ".."} & set(parts):
            raise RefusedError(f"its archive has a record {shown(entry.orig_filename)}, outside of a folder")
        if name in records:
            raise RefusedError(f"its archive has two records {shown(name)}")
        start = _record_start(entry, view)
        if name.startswith("code/") or name == "constants.pkl":  # code is compressed; it is not read
            records[name] = view[:0]
            continue
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise RefusedError(f"its record {shown(name)} is compressed, which torch.save does not do", SAVE_AGAIN)
        if entry.header_offset < end or start + entry.file_size > len(view):
            raise RefusedError(f"its record {shown(name)} lies over another or beyond the end")
        end = start + entry.file_size
        records[name] = view[start:end]
        if has_checksums and zlib.crc32(records[name]) != entry.CRC:
            raise RefusedError(f"the checksum of its record {shown(name)} is wrong")
        folders.add(folder)
    if len(folders) > 1:
        raise RefusedError(f"its archive has the folders {shown(', '.join(sorted(folders)[:5]))} instead of one")
    return records


def _record_start(entry: zipfile.ZipInfo, view: memoryview) -> int:
    """Return the position of the first byte of a record."""
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


def _read_legacy(content: io.BytesIO, view: memoryview) -> _StoredFile:
    """Read a file of PyTorch before 1.6: several pickles, then the storages; raise RefusedError if it is damaged."""
    content.seek(0)
    for expected in (_LEGACY_MAGIC, _LEGACY_PROTOCOL):
        if interpret(content, len(view), 1000).content != expected:
            raise RefusedError("it does not begin as files of torch.save do")
    system = interpret(content, len(view), 1000).content
    if type(system) is not dict or system.get("little_endian") is not True:
        raise RefusedError("it does not state that its numbers are little-endian")
    described = interpret(content, len(view))
    keys = interpret(content, len(view), described.budget).content
    storages = {tensor.storage.key: tensor.storage for tensor in described.tensors}
    if any(tensor.storage != storages[tensor.storage.key] for tensor in described.tensors):
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
    return _StoredFile(described.content, held, "little")
