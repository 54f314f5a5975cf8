"""Weights files: published forms are read, and hostile ones neither run code nor change or exhaust the process."""

from __future__ import annotations

import argparse
import functools
import io
import os
import struct
import sys
import tempfile
import types
from collections import OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torch import nn

from gbwatt.clinical import AnyBackbone, WeightsFileError, load_weights, weights
from gbwatt.clinical.pickle_machine import MAX_INSTRUCTIONS
from gbwatt.clinical.weights import read_state_dict
from tests.clinical.foundation import hostile
from tests.memory import limited_memory

MARKER = Path(tempfile.gettempdir()) / f"gbwatt-hostile-{os.getpid()}"
HOSTILE = hostile.files(MARKER)
FUNCTIONS = (torch._utils._rebuild_tensor_v2, torch._utils._rebuild_parameter, torch.load, torch.nn.Linear.forward)


def read(content: bytes) -> dict[str, torch.Tensor]:
    return read_state_dict(Path("some.pth"), io.BytesIO(content))


def saved(value, **how) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, **how)
    return stream.getvalue()


def snapshot():
    """What a file could have changed in this process."""
    functions = [(f.__defaults__, f.__kwdefaults__, f.__code__, dict(f.__dict__)) for f in FUNCTIONS]
    classes = [set(vars(x)) for x in (torch.Tensor, torch.nn.Linear, OrderedDict, torch.nn, torch)]
    return functions, classes, dict(os.environ), list(sys.path), "antigravity" in sys.modules


@pytest.fixture
def backbone(monkeypatch):
    """A backbone that takes files with a tensor 'weight' (2, 3)."""
    rules = weights._NameRules(("module.", "model."), ((r"^", "network."),), (), (), {})
    monkeypatch.setattr(weights, "_RULES", {AnyBackbone: rules})
    return AnyBackbone(nn.Linear(3, 2, bias=False))


# ---- what has to be read


def test_what_torch_saves_is_read_bit_for_bit():
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(6, 8, generator=generator)
    dtypes = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8)
    state = {f"of {dtype}": (10 * base).to(dtype) for dtype in (*dtypes, torch.uint8, torch.complex64, torch.uint16)}
    state |= {"bool": base > 0, "transposed": base.mT, "part": base[1:4, ::2], "scalar": base[0, 0], "row": base[2]}
    state |= {"empty": torch.empty(0, 3), "parameter": nn.Parameter(base), "float8": base.to(torch.float8_e4m3fn)}
    state |= {"of size one": base.as_strided((1, 8), (0, 1))}
    for content in (saved(state), saved(state, _use_new_zipfile_serialization=False), saved(OrderedDict(state))):
        found = read(content)
        assert list(found) == list(state)
        for key, x in state.items():
            assert found[key].dtype == x.dtype
            assert found[key].shape == x.shape
            pairs = [y.detach().flatten().contiguous().view(torch.uint8) for y in (found[key], x)]
            assert torch.equal(*pairs)


def test_the_state_of_a_module_is_read_with_its_metadata_and_shared_storages():
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    module[2].weight = module[0].weight
    found = read(saved(module.state_dict()))
    assert all(torch.equal(x, found[key]) for key, x in module.state_dict().items())
    assert found["0.weight"].data_ptr() == found["2.weight"].data_ptr()


class Settings:
    """A class that whoever reads the file does not have."""

    def __init__(self):
        self.rate = 3


@pytest.mark.parametrize("entry", ["model", "state_dict", "model_state_dict", "module"])
def test_objects_beside_the_weights_are_skipped(entry, tmp_path):
    module = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    other = {
        "args": argparse.Namespace(lr=1e-3, output=tmp_path, nested=argparse.Namespace(a={1, 2})),
        "optimizer": optimizer.state_dict(),
        "numpy": [np.int64(3), np.float64(0.5), np.arange(4), np.array(["a"])],
        "settings": Settings(),
        "norm": functools.partial(nn.LayerNorm, eps=1e-6),
        "name space": types.SimpleNamespace(a=1),
        "default": defaultdict(list, a=[1]),
        "more": [
            {1, 2},
            frozenset({3}),
            1j,
            bytearray(b"x"),
            b"x",
            2**100,
            {(1, 2): 3},
            torch.float32,
            torch.Size([1]),
        ],
        "device": torch.device("cpu"),
    }
    for how in ({}, {"pickle_protocol": 4}, {"_use_new_zipfile_serialization": False}):
        found = read(saved({entry: module.state_dict(), **other}, **how))
        assert set(found) == {"weight", "bias"}
        assert torch.equal(found["weight"], module.weight)


def test_a_file_without_checksums_is_read():
    torch.serialization.set_crc32_options(False)
    try:
        content = saved({"weight": hostile.VALUES})
    finally:
        torch.serialization.set_crc32_options(True)
    assert torch.equal(read(content)["weight"], hostile.VALUES)


def test_numbers_of_the_other_byte_order_are_turned():
    big = hostile.VALUES.numpy().astype(">f4").tobytes()
    program = hostile.mapping(weight=hostile.tensor(), turned=hostile.tensor((3, 2), (1, 3)))
    found = read(hostile.archive(program, storages={"0": big}, order=b"big"))
    assert torch.equal(found["weight"], hostile.VALUES)
    assert torch.equal(found["turned"], hostile.VALUES.mT)


def test_unaligned_numbers_are_read():
    program = hostile.mapping(weight=hostile.tensor(), column=hostile.tensor((2,), (3,), offset=1))
    for version in (b"3", b"3\n", b"3\n\n", b"3\n\n\n"):  # moves the storage behind it
        found = read(hostile.archive(program, records={"archive/version": version}))
        assert torch.equal(found["weight"], hostile.VALUES)
        assert torch.equal(found["column"], hostile.VALUES[:, 1])
        assert all(x.data_ptr() % 4 == 0 for x in found.values())


def test_parts_of_one_storage_and_shared_weights_are_read():
    base = torch.arange(90_000).reshape(300, 300) % 7 > 2
    state = {f"column {i}": base[:, i] for i in range(300)} | {f"shared {i}": base for i in range(3)}
    found = read(saved(state))
    assert all(torch.equal(found[key], x) for key, x in state.items())
    assert len({found[f"shared {i}"].data_ptr() for i in range(3)}) == 1


def test_more_names_than_a_file_has_bytes_for_are_refused_with_both_sizes():
    content = HOSTILE["bool under 10 000 names"]
    with pytest.raises(
        WeightsFileError, match=f"10000 tensors have {10_000 * hostile.LARGE} bytes.*{len(content)} bytes"
    ):
        read(content)


def test_the_assembled_files_are_those_of_torch():
    """Otherwise the hostile ones could be refused for another reason."""
    good = hostile.mapping(weight=hostile.tensor())
    old = hostile.mapping(weight=hostile.tensor(held=hostile.storage(view=b"N")))
    for content in (hostile.archive(good), hostile.legacy(old), hostile.beside_weights(b"N")):
        assert torch.equal(read(content)["weight"], hostile.VALUES)
        loaded = torch.load(io.BytesIO(content), weights_only=True)
        assert torch.equal(loaded.get("model", loaded)["weight"], hostile.VALUES)


def test_weights_are_copied_into_the_backbone_with_a_report(backbone, tmp_path):
    (tmp_path / "some.pth").write_bytes(hostile.beside_weights(b"N"))
    report = load_weights(backbone, tmp_path / "some.pth")
    assert torch.equal(backbone.network.weight, hostile.VALUES)
    assert report.matched == ("network.weight",)
    assert len(report.sha256) == 64


# ---- what must not be


def test_there_are_enough_hostile_files():
    assert len(HOSTILE) >= 100


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_without_effect(case, backbone, tmp_path):
    file = tmp_path / "file.pth"
    file.write_bytes(HOSTILE[case])
    before, old = snapshot(), backbone.network.weight.detach().clone()
    with pytest.raises(WeightsFileError, match=r"file\.pth") as caught, limited_memory(400 << 20):
        load_weights(backbone, file)
    assert len(str(caught.value)) < 1500
    assert str(caught.value).isprintable()
    assert snapshot() == before
    assert not MARKER.exists()
    assert torch.equal(backbone.network.weight, old)


def test_a_million_tensors_on_one_storage_are_refused():
    program = (
        b"}" + hostile.tensor() + b"q\x000(" + b"".join(b"\x8c\x06%06d" % i + b"h\x00" for i in range(120_000)) + b"u"
    )
    with pytest.raises(WeightsFileError, match="120000 tensors"):
        read(hostile.archive(program))


@pytest.mark.parametrize(
    ("part", "repeated"),
    [
        (b"](" + b"(NNt" * 1000 + b"e", b"ccollections\nOrderedDict\nh\x00\x85R"),
        (hostile.items(*[b"N"] * 1000), b"ctorch._utils\n_rebuild_parameter\nh\x00R"),
        (hostile.storage()[:-2] + b"N" * 1000 + b"t", b"h\x00Q"),
    ],
    ids=["items", "arguments", "storages"],
)
def test_instructions_are_counted_also_inside_calls(part, repeated):
    program = part + b"q\x000](" + repeated * (MAX_INSTRUCTIONS // 1000) + b"e"
    with pytest.raises(WeightsFileError, match=f"more than {MAX_INSTRUCTIONS} instructions"):
        read(hostile.archive(program))


@pytest.mark.parametrize(
    "state, message",
    [
        ({"weight": torch.zeros(2, 3, dtype=torch.complex64)}, "complex64"),
        ({"weight": torch.zeros(2, 3, dtype=torch.int32)}, "int32"),
        ({"weight": torch.zeros(2, 3, dtype=torch.float8_e4m3fn)}, "float8"),
        ({"weight": torch.full((2, 3), 1e300, dtype=torch.float64)}, "infinite"),
        ({"weight": torch.zeros(2, 3), "module.weight": torch.zeros(2, 3)}, "occurs twice"),
        ({"weight": torch.zeros(3)}, r"\(3,\) in the file and \(2, 3\)"),
        ({"x" * 100_000: torch.zeros(3)}, "'xxx"),
        ({1: torch.zeros(2, 3)}, "no tensors by name"),
        ({}, "no tensors by name"),
    ],
)
def test_tensors_that_do_not_fit_are_named(backbone, tmp_path, state, message):
    (tmp_path / "some.pt").write_bytes(saved(state))
    with pytest.raises(WeightsFileError, match=message) as caught:
        load_weights(backbone, tmp_path / "some.pt")
    assert len(str(caught.value)) < 1500


# ---- safetensors


def safetensors(header: bytes, data: bytes = hostile.STORAGE) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        safetensors(b"{}", b"x"),
        safetensors(b"[" * 100_000),
        safetensors(b'{"weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,25]}}'),
        safetensors(b'{"weight":{"dtype":"F32","shape":[2,4],"data_offsets":[0,24]}}'),
        safetensors(b'{"weight":{"dtype":"F32","shape":[2,-3],"data_offsets":[0,24]}}'),
        safetensors(b'{"weight":{"dtype":"F32","shape":[9223372036854775807,9],"data_offsets":[0,24]}}'),
        safetensors(b'{"weight":{"dtype":"O","shape":[2,3],"data_offsets":[0,24]}}'),
        safetensors(b'{"weight":{"dtype":"F4","shape":[2,24],"data_offsets":[0,24]}}'),
        safetensors(b'{"weight":{"dtype":"F8_E8M0","shape":[24],"data_offsets":[0,24]}}'),
        safetensors(b'{"weight":3}'),
        save({"weight": hostile.VALUES})[:-1],
        save({"weight": hostile.VALUES.to(torch.complex64)}),
        save({"weight": torch.full((2, 3), torch.nan)}),
    ],
)
def test_safetensors_that_are_damaged_or_do_not_fit_are_refused(backbone, tmp_path, content):
    (tmp_path / "some.safetensors").write_bytes(content)
    with pytest.raises(WeightsFileError, match=r"some\.safetensors"):
        load_weights(backbone, tmp_path / "some.safetensors")
