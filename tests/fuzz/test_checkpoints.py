"""Damaged checkpoints: a CheckpointError, or the continuation of the undamaged one, bit for bit."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from gbwatt.decoding import EEGDecoder, checkpoints
from gbwatt.models import registry
from tests.decoding.tiny import make_trials, register_tiny
from tests.fuzz.damage import Tally, damaged, flip_bits

pytestmark = pytest.mark.fuzz

X, Y = make_trials(n=20)
SETTINGS = {"model": "tiny", "lr": 0.05, "batch_size": 8, "validation": 0.3, "seed": 3}


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """A checkpoint after three of five epochs."""
    register_tiny()
    folder = tmp_path_factory.mktemp("checkpoint")
    EEGDecoder(**SETTINGS, max_epochs=3, checkpoint=folder).fit(X, Y)
    yield (folder / checkpoints.FILE).read_bytes()
    registry._MODELS.pop("tiny", None)


def continued(folder: Path, content: bytes | None):
    """Weights, losses and predictions of a training that goes on from a checkpoint."""
    if content is not None:
        folder.mkdir(exist_ok=True)
        (folder / checkpoints.FILE).write_bytes(content)
    decoder = EEGDecoder(**SETTINGS, max_epochs=5, checkpoint=folder).fit(X, Y)
    rows = [{name: x for name, x in row.items() if name != "duration"} for row in decoder.history_]
    return dict(decoder.net_.module_.state_dict()), rows, decoder.predict_proba(X)


def equal(a, b) -> bool:
    same = a[0].keys() == b[0].keys() and all(torch.equal(x, b[0][name]) for name, x in a[0].items())
    return same and a[1] == b[1] and np.array_equal(a[2], b[2])


def judge(cases, content, folder, at_least):
    expected, tally = continued(folder / "whole", content), Tally()
    assert equal(expected, continued(folder / "new", None))
    for case, changed in cases:
        tally.add(case, lambda changed=changed: continued(folder, changed), lambda found: equal(found, expected))
    tally.finish(at_least)


def test_damaged_checkpoints_are_refused_or_continued_exactly(content, tmp_path):
    judge(damaged(content, 300, seed=1), content, tmp_path, 300)


def test_every_flipped_bit_of_the_numbers_is_noticed(content, tmp_path):
    """Where nothing but a checksum can notice it."""
    start = 8 + struct.unpack("<Q", content[:8])[0]
    rng = random.Random(2)
    cases = ((f"flip {i}", content[:start] + flip_bits(content[start:], rng)) for i in range(100))
    judge(cases, content, tmp_path, 100)


def test_every_flipped_bit_of_the_record_is_noticed(content, tmp_path):
    start = 8 + struct.unpack("<Q", content[:8])[0]
    rng = random.Random(3)
    cases = ((f"flip {i}", content[:8] + flip_bits(content[8:start], rng) + content[start:]) for i in range(100))
    judge(cases, content, tmp_path, 100)
