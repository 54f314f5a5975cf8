"""Damaged and hostile weights files: a WeightsFileError, or the weights of the undamaged file."""

from __future__ import annotations

import argparse
import io
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torch import nn

from gbwatt.clinical import AnyBackbone, load_weights, weights
from tests.clinical.foundation import hostile
from tests.fuzz.damage import Tally, damaged

pytestmark = pytest.mark.fuzz

MODULE = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
MARKER = Path("gbwatt-hostile-fuzz")


@pytest.fixture
def backbone(monkeypatch):
    rules = weights._NameRules(("module.",), ((r"^", "network."),), (), (), {})
    monkeypatch.setattr(weights, "_RULES", {AnyBackbone: rules})
    return AnyBackbone(nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))


def content(kind: str) -> bytes:
    torch.manual_seed(0)
    state = {name: torch.randn(x.shape) if x.is_floating_point() else x for name, x in MODULE.state_dict().items()}
    if kind == "safetensors":
        return save(state)
    if kind == "legacy":  # torch writes addresses of the process into them
        return legacy(state)
    stream = io.BytesIO()
    torch.save({"model": state, "args": argparse.Namespace(lr=1.0), "best": np.float64(0.5), "epoch": 3}, stream)
    return stream.getvalue()


def legacy(state: dict[str, torch.Tensor]) -> bytes:
    tensors, raw = {}, b""
    for key, (name, x) in enumerate(state.items()):
        kind = hostile.name("torch", "FloatStorage" if x.is_floating_point() else "LongStorage")
        held = hostile.storage(str(key), kind, x.numel(), view=b"N")
        tensors[name] = hostile.tensor(x.shape, x.stride(), held=held)
        raw += struct.pack("<q", x.numel()) + x.numpy().tobytes()
    program = hostile.mapping(model=hostile.mapping(**tensors), epoch=hostile.integer(3))
    return hostile.legacy(program, keys=tuple(map(str, range(len(state)))), storages=raw)


def start_of_numbers(kind: str, whole: bytes) -> int:
    """Where a format without checksums has nothing but the entries of tensors from there on."""
    if kind == "archive":
        return len(whole)
    if kind == "safetensors":
        return 8 + int.from_bytes(whole[:8], "little")
    return len(whole) - sum(8 + x.numel() * x.itemsize for x in MODULE.state_dict().values())


def load(backbone, file: Path) -> dict[str, torch.Tensor]:
    load_weights(backbone, file)
    return {name: x.clone() for name, x in backbone.state_dict().items()}


def equal(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(x, b[name]) for name, x in a.items())


@pytest.mark.parametrize("kind, n", [("archive", 400), ("legacy", 150), ("safetensors", 150)])
def test_damaged_weights_are_refused_or_unchanged(backbone, tmp_path, kind, n):
    whole, tally = content(kind), Tally()
    file = tmp_path / ("file.safetensors" if kind == "safetensors" else "file.pth")
    file.write_bytes(whole)
    expected = load(backbone, file)
    for case, changed in damaged(whole, n, seed=len(kind)):
        file.write_bytes(changed)
        # neither the format before archives nor safetensors has checksums of its numbers
        start = start_of_numbers(kind, whole)
        only_numbers = len(changed) == len(whole) and changed[:start] == whole[:start]
        tally.add(
            f"{kind} {case}",
            lambda: load(backbone, file),
            lambda found: equal(found, expected),
            lambda _, only_numbers=only_numbers: only_numbers,
        )
    tally.finish(n)


def test_damage_inside_hostile_files_does_not_make_them_work(backbone, tmp_path):
    tally, file = Tally(), tmp_path / "file.pth"
    for number, (name, whole) in enumerate(hostile.files(tmp_path / MARKER).items()):
        if len(whole) < 100 or len(whole) > 100_000:
            continue
        for case, changed in damaged(whole, 3, seed=number):
            file.write_bytes(changed)
            tally.add(f"{name}, {case}", lambda: load(backbone, file), lambda _: False)
    tally.finish(250)
    assert not (tmp_path / MARKER).exists()


def test_random_programs_are_refused(backbone, tmp_path):
    """Bytes drawn from real instructions reach deeper than random bytes."""
    rng, tally, file = np.random.default_rng(0), Tally(), tmp_path / "file.pth"
    pieces = [
        *(hostile.tensor(), hostile.storage(), hostile.text("model"), hostile.mapping(weight=hostile.tensor())),
        *(hostile.name("collections", "OrderedDict"), hostile.name("torch._utils", "_rebuild_parameter")),
        *(bytes([code]) for code in b"()}]lduaestRb0122Nq\x00h\x00\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94Q"),
    ]
    for number in range(600):
        program = b"".join(pieces[i] for i in rng.integers(len(pieces), size=rng.integers(1, 40)))
        file.write_bytes(hostile.archive(program))
        tally.add(f"program {number}", lambda: load(backbone, file), lambda _: False)
    tally.finish(600)
