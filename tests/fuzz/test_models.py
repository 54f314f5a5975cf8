"""Damaged and hostile model folders: a named error, or the predictions of the undamaged model."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from gbwatt import _io
from gbwatt.decoding import EEGDecoder, TrainingRecord, training_record
from gbwatt.models import registry
from tests.decoding.tiny import make_trials, register_tiny
from tests.fuzz.damage import Tally, damaged
from tests.memory import limited_memory

pytestmark = pytest.mark.fuzz

X, Y = make_trials(n=20)
CONFIG, WEIGHTS = "config.json", "model.safetensors"
#: Values that belong nowhere in a configuration.
HOSTILE: dict[str, Any] = {
    "null": None,
    "-1": -1,
    "1e400": math.inf,
    "NaN": math.nan,
    "10**400": 10**400,
    "2**63": 2**63,
    "text": "\x00<script>",
    "true": True,
    "list": [[]],
    "dict": {"a": {}},
    "nested": None,  # filled in as text
}
NESTED = "[" * 900 + "]" * 900


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    register_tiny()
    folder = tmp_path_factory.mktemp("model") / "original"
    decoder = EEGDecoder("tiny", max_epochs=2, lr=0.05, validation=0.3, class_weight="balanced").fit(X, Y)
    decoder.save_pretrained(folder)
    seen = {"train": list(range(12)), "valid": list(range(12, 16))}
    TrainingRecord(dataset="mine.npz", subject=1, data="0123", epochs=2, seen=seen).write(folder)
    yield folder
    registry._MODELS.pop("tiny", None)


@pytest.fixture
def folder(original, tmp_path):
    return Path(shutil.copytree(original, tmp_path / "copy"))


def outcome(folder: Path) -> tuple[Any, ...]:
    """All that a user sees of a folder."""
    decoder = EEGDecoder.from_pretrained(folder)
    return decoder.predict_proba(X), decoder.predict(X), TrainingRecord.read(folder)


def outcome_in_limited_memory(folder: Path) -> tuple[Any, ...]:
    with limited_memory(500 << 20):
        return outcome(folder)


def equal(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return np.array_equal(a[0], b[0]) and np.array_equal(a[1], b[1]) and a[2] == b[2]


def judge(cases: Iterator[tuple[str, str, bytes]], folder: Path, at_least: int) -> None:
    """Write each file in the place of the original one."""
    expected, tally = outcome(folder), Tally()
    for case, name, content in cases:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        tally.add(f"{name}, {case}", lambda: outcome_in_limited_memory(folder), lambda found: equal(found, expected))
        (folder / name).write_bytes(whole)
    tally.finish(at_least)


@pytest.mark.parametrize("name, n", [(CONFIG, 200), (WEIGHTS, 150), (training_record.FILE, 80)])
def test_damaged_files_are_refused_or_unchanged(folder, name, n):
    whole = (folder / name).read_bytes()
    judge(((case, name, changed) for case, changed in damaged(whole, n, seed=n)), folder, n)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def with_value(config: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed: Any = copy.deepcopy(config)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed  # type: ignore[no-any-return]


def text_of(config: dict[str, Any], kind: str, resealed: bool) -> bytes:
    text = json.dumps(config).replace('"nested here"', NESTED)
    return (json.dumps(_io.sealed(text)) if resealed and kind != "nested" else text).encode()


def hostile_values(folder: Path, name: str, n: int, resealed: bool) -> Iterator[tuple[str, str, bytes]]:
    config = json.loads((folder / name).read_text())
    rng = random.Random(n)
    valid = {("classes", "text"), ("scale", "2**63")}  # of another model, which nobody can tell from this one
    every = [(path, kind) for path in places(config) for kind in HOSTILE if not {(key, kind) for key in path} & valid]
    for path, kind in rng.sample(every, min(n, len(every))):
        value = "nested here" if kind == "nested" else HOSTILE[kind]
        changed = with_value(config, path, value)
        yield f"{'.'.join(map(str, path))} = {kind}", name, text_of(changed, kind, resealed)


@pytest.mark.parametrize("resealed", [False, True])
def test_hostile_values_are_refused_or_without_effect(folder, resealed):
    """Also where whoever changed a value has computed the checksum anew."""
    judge(hostile_values(folder, CONFIG, 300, resealed), folder, 300)


def test_missing_and_unknown_entries_are_refused_or_without_effect(folder):
    config = json.loads((folder / CONFIG).read_text())

    def cases() -> Iterator[tuple[str, str, bytes]]:
        for path in places(config):
            changed = with_value(config, path, None)
            inner: Any = changed
            for key in path[:-1]:
                inner = inner[key]
            if isinstance(inner, dict):
                del inner[path[-1]]
                yield f"without {path}", CONFIG, text_of(changed, "", resealed=True)
                inner[f"{path[-1]}?"] = 1
                yield f"unknown beside {path}", CONFIG, text_of(changed, "", resealed=True)

    judge(cases(), folder, 100)


def changed_weights(content: bytes) -> Iterator[tuple[str, bytes]]:
    tensors = load(content)
    for name, x in tensors.items():
        changes: dict[str, Callable[[], Any]] = {
            "missing": lambda name=name: {k: v for k, v in tensors.items() if k != name},
            "renamed": lambda name=name, x=x: {**{k: v for k, v in tensors.items() if k != name}, name + "?": x},
            "larger": lambda name=name, x=x: {**tensors, name: torch.zeros(*x.shape, 2)},
            "as numbers": lambda name=name, x=x: {**tensors, name: x.to(torch.int32)},
            "as float8": lambda name=name, x=x: {**tensors, name: x.float().to(torch.float8_e4m3fn)},
            "complex": lambda name=name, x=x: {**tensors, name: x.to(torch.complex64)},
            "of bool": lambda name=name, x=x: {**tensors, name: x.bool()},
        }
        for kind, change in changes.items():
            yield f"{name} {kind}", save(change())
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    for path in places(header):
        for kind in ("-1", "2**63", "text", "null", "dict"):
            raw = json.dumps(with_value(header, path, HOSTILE[kind])).encode()
            yield f"header {path} = {kind}", struct.pack("<Q", len(raw)) + raw + content[8 + size :]


def test_other_weights_are_refused(folder):
    """Whoever changes them can also change the checksum beside them."""
    config = json.loads((folder / CONFIG).read_text())

    def cases() -> Iterator[tuple[str, str, bytes]]:
        for case, changed in changed_weights((folder / WEIGHTS).read_bytes()):
            digest = hashlib.sha256(changed).hexdigest()
            own = {**config, "weights_sha256": digest}
            (folder / CONFIG).write_bytes(text_of(own, "", resealed=True))
            yield case, WEIGHTS, changed
        (folder / CONFIG).write_bytes(text_of(config, "", resealed=True))

    judge(cases(), folder, 150)
