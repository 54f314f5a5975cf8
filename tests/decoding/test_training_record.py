"""The record of a training beside a model: it comes back as it was written, and damage is detected."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from gbwatt import _io
from gbwatt.decoding import TrainingRecord
from gbwatt.decoding.training_record import FILE, FORMAT
from gbwatt.errors import InputError

#: The least that files of before had.
OLD = {"dataset": "mine.npz", "subject": 1, "data": "0123", "seed": 0, "seen": {"train": [0], "valid": []}}
RECORD = TrainingRecord(
    dataset="mine.npz", subject=1, data="0123", seed=0, seen={"train": [0, 1, 4], "valid": [2]}, split=3
)


@pytest.fixture
def folder(tmp_path):
    RECORD.write(tmp_path)
    return tmp_path


def test_a_record_comes_back_as_it_was_written(folder):
    assert TrainingRecord.read(folder) == RECORD
    written = json.loads((folder / FILE).read_text())
    assert _io.is_intact(written)
    assert written["format"] == FORMAT


def test_every_field_is_written_except_a_test_that_was_not_made():
    names = {one.name for one in fields(TrainingRecord)}
    assert set(RECORD.to_dict()) == names - {"test"}
    assert set(replace(RECORD, test={"accuracy": 0.5}).to_dict()) == names


def test_numbers_that_json_lacks_become_null():
    found = TrainingRecord.from_json(replace(RECORD, test={"kappa": float("nan")}).to_json())
    assert found.test == {"kappa": None}


def test_a_folder_without_a_record_has_none(tmp_path):
    assert TrainingRecord.read(tmp_path) is None


@pytest.mark.parametrize("more", [{}, {"another": 1}], ids=["fewer fields", "an unknown field"])
def test_a_record_without_version_and_checksum_is_read(folder, more):
    (folder / FILE).write_text(json.dumps({**OLD, **more}))
    found = TrainingRecord.read(folder)
    assert found == TrainingRecord(**OLD)
    assert (found.status, found.split, found.reading) == ("done", 0, {})


def test_a_newer_format_is_named(folder):
    newer = {**RECORD.to_dict(), "format": FORMAT + 1, "unheard of": 1}
    (folder / FILE).write_text(json.dumps(_io.sealed(json.dumps(newer))))
    with pytest.raises(InputError, match=rf"training\.json has format {FORMAT + 1}.*up to {FORMAT}; update gbwatt"):
        TrainingRecord.read(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("0123", "0133"),
        lambda text: text.replace('"seed": 0', '"seed": 2'),
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: text.replace('"format"', '"fromat"'),
        lambda text: text.replace("sha256", "sha255"),
        lambda text: text[:-20],
        lambda text: "[" * 100_000,
        lambda text: '{"dataset": ' * 100_000,
        lambda text: "[]",
        lambda text: "null",
        lambda text: "\udcff",
        lambda text: json.dumps({**OLD, "seen": {"train": ["0"], "valid": []}}),
        lambda text: json.dumps({**OLD, "seen": {"train": 3, "valid": []}}),
        lambda text: json.dumps({**OLD, "seen": {"train": [-1], "valid": []}}),
        lambda text: json.dumps({**OLD, "seen": {"train": []}}),
        lambda text: json.dumps({**OLD, "dataset": None}),
        lambda text: json.dumps({"subject": 1}),
    ],
)
def test_a_damaged_record_is_named(folder, change):
    path = folder / FILE
    path.write_bytes(change(path.read_text()).encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"training\.json is damaged"):
        TrainingRecord.read(folder)


# ---- what trials were used for


def test_uses_of_the_recordings_of_training_are_known():
    found = RECORD.uses("mine.npz", 1, 6)
    assert found.tolist() == ["training", "training", "validation", "unseen", "training", "unseen"]


def test_other_subjects_were_not_seen_and_other_recordings_may_be_copies():
    assert RECORD.uses("mine.npz", 2, 2).tolist() == ["unseen", "unseen"]
    assert RECORD.uses("other.npz", 1, 2) is None


def test_the_number_of_a_recording_without_subjects_does_not_matter():
    assert RECORD.uses("mine.npz", None, 1).tolist() == ["training"]


def test_a_copy_is_recognised_by_its_content():
    assert RECORD.uses("copy.npz", 1, 1, data=["9999", "0123"]).tolist() == ["training"]
    assert RECORD.uses("mine.npz", 1, 1, data=["9999"]) is None


def test_recordings_read_with_other_options_may_overlap():
    assert RECORD.uses("mine.npz", 1, 2, reading={"tmin": 0.5}).tolist() == ["unknown", "unknown"]


def test_the_record_of_trials_passed_from_python_tells_nothing_about_files():
    assert replace(RECORD, split=None).uses("mine.npz", 1, 2) is None
