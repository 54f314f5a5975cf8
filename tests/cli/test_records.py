"""The record of a training beside a model: damage is noticed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from gbwatt.decoding import training_record
from gbwatt.errors import InputError

RECORD = {"dataset": "mine.npz", "subject": 1, "data": "0123", "seed": 0}


class Saved:
    def save_pretrained(self, folder):
        folder.mkdir(exist_ok=True)


@pytest.fixture
def folder(tmp_path):
    split = SimpleNamespace(train=np.array([0, 1, 4]), valid=np.array([2]))
    training_record.save(Saved(), tmp_path, RECORD, split)
    return tmp_path


def test_a_record_comes_back_without_its_checksum(folder):
    assert "sha256" in json.loads((folder / training_record.FILE).read_text())
    assert training_record.read(folder) == {**RECORD, "seen": {"train": [0, 1, 4], "valid": [2]}}


def test_a_record_without_a_checksum_is_read(folder):
    old = {**RECORD, "seen": {"train": [0], "valid": []}}
    (folder / training_record.FILE).write_text(json.dumps(old))
    assert training_record.read(folder) == old


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("0123", "0133"),
        lambda text: text.replace('"seed": 0', '"seed": 2'),
        lambda text: text[:-20],
        lambda text: "[" * 100_000,
        lambda text: '{"dataset": ' * 100_000,
        lambda text: "[]",
        lambda text: "null",
        lambda text: "\udcff",
        lambda text: json.dumps({**RECORD, "seen": {"train": ["0"], "valid": []}}),
        lambda text: json.dumps({**RECORD, "seen": {"train": 3, "valid": []}}),
        lambda text: json.dumps({**RECORD, "seen": {"train": [-1], "valid": []}}),
        lambda text: json.dumps({**RECORD, "dataset": None, "seen": {"train": [], "valid": []}}),
    ],
)
def test_a_damaged_record_is_named(folder, change):
    path = folder / training_record.FILE
    path.write_bytes(change(path.read_text()).encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"training\.json is damaged"):
        training_record.read(folder)
