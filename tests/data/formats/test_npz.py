"""Trials in plain .npz files."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

from gbwatt.data import _reading
from gbwatt.data.formats import npz
from gbwatt.data.formats.npz import read_npz, write_npz
from gbwatt.errors import DataError, MissingFileError
from tests.data.formats.test_interchange import assert_same, full
from tests.data.test_trials import make

X = np.random.default_rng(0).standard_normal((4, 2, 10))
PLAIN = {"X": X, "y": np.array([0, 1, 0, 1]), "sfreq": 100.0}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "trials.npz"


def save(file, **changes):
    np.savez(file, **{name: value for name, value in {**PLAIN, **changes}.items() if value is not None})
    return file


# ---- all of it


@pytest.mark.parametrize("unit", ["µV", "a.u."])
def test_all_fields_survive_a_file(file, unit):
    trials = full(unit=unit, tmin=-0.3)
    write_npz(trials, file)
    found = read_npz(file)
    assert_same(found, trials)
    np.testing.assert_array_equal(found.X, trials.X)


def test_no_trials_survive_a_file(file):
    write_npz(make()[[]], file)
    assert read_npz(file).shape == (0, 3, 20)
    assert read_npz(file).class_names == make().class_names


def test_files_have_no_pickles_and_steps_as_json(file):
    write_npz(full(), file)
    with np.load(file, allow_pickle=False) as archive:
        assert {archive[name].dtype.kind for name in archive.files} <= set("fiuU")
        assert json.loads(archive["record"].item())["steps"][0]["step"] == "pick"


def test_a_file_is_written_over_and_nothing_else_is_left(file):
    write_npz(make(), file)
    write_npz(make(n=3), file)
    assert len(read_npz(file)) == 3
    assert list(file.parent.iterdir()) == [file]


def test_an_interrupted_writer_leaves_the_old_file(file, monkeypatch):
    write_npz(make(), file)

    def fail(stream, **arrays):
        stream.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="no space"):
        write_npz(make(n=3), file)
    assert len(read_npz(file)) == 8
    assert list(file.parent.iterdir()) == [file]


def test_a_missing_folder_is_named(file):
    with pytest.raises(MissingFileError, match=r"folder \S*nowhere does not exist"):
        write_npz(make(), file.parent / "nowhere" / "trials.npz")


# ---- a user's own


def test_plain_file_needs_x_y_and_sfreq_only(file):
    trials = read_npz(save(file))
    assert trials.ch_names == ("EEG1", "EEG2")
    assert trials.class_names == ("0", "1")
    assert (trials.sfreq, trials.unit, trials.tmin, trials.dataset) == (100.0, "µV", 0.0, "")
    np.testing.assert_array_equal(trials.X, X.astype(np.float32))


def test_plain_file_may_say_more(file):
    more = {
        "ch_names": ["O1", "O2"],
        "class_names": ["low", "high"],
        "tmin": -0.5,
        "unit": "V",
        "subject": [1, 1, 2, 2],
        "session": "b",
        "run": [1, 2, 1, 2],
        "group": [0, 0, 1, 1],
        "notes": "ignored",
    }
    trials = read_npz(save(file, **more))
    assert trials.ch_names == ("O1", "O2")
    assert trials.labels.tolist() == ["low", "high"] * 2
    assert (trials.tmin, trials.unit) == (-0.5, "V")
    assert trials.subject.tolist() == [1, 1, 2, 2]
    assert set(trials.session.tolist()) == {"b"}
    assert trials.run.tolist() == ["1", "2", "1", "2"]
    assert trials.group.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "y, class_names, names, labels",
    [
        (["b", "a", "b", "c"], None, ("a", "b", "c"), ["b", "a", "b", "c"]),
        (["b", "a", "b", "a"], ["b", "a"], ("b", "a"), ["b", "a", "b", "a"]),
        ([10, 9, 10, 9], None, ("9", "10"), ["10", "9", "10", "9"]),
        ([[1.0], [2.0], [1.0], [2.0]], None, ("1", "2"), ["1", "2", "1", "2"]),
        ([1, 0, 1, 0], ["x", "y"], ("x", "y"), ["y", "x", "y", "x"]),
    ],
)
def test_labels_are_names_or_places_or_numbers(file, y, class_names, names, labels):
    trials = read_npz(save(file, y=y, class_names=class_names))
    assert trials.class_names == names
    assert trials.labels.tolist() == labels


# ---- damaged


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sfreq": None}, r"found the arrays X, y; expected also sfreq\. Add .*sfreq=250"),
        ({"X": None}, "expected also X"),
        ({"y": None}, "expected also y"),
        ({"X": X[0]}, r"X of shape \(2, 10\); expected \(any, any, any\)"),
        ({"X": np.where(np.arange(10) == 3, np.nan, X)}, "NaN or infinite samples in 4 of 4 trials, first in trial 0"),
        ({"X": np.full((4, 2, 10), "a")}, "cannot be converted to trials"),
        ({"y": [0, 1, 0]}, r"'y' \(3,\)"),
        ({"y": [0, 1, 2, 1], "class_names": ["a", "b"]}, "class 2; class_names has 0 to 1"),
        ({"y": ["a", "b", "c", "a"], "class_names": ["a", "b"]}, "y='c'"),
        ({"y": [0.5, 1, 0, 1], "class_names": ["a", "b"]}, "'y' contains 0.5; classes are whole numbers or names"),
        ({"y": np.array(["a", None, "b", 3], dtype=object)}, "as numbers or text"),
        ({"sfreq": -1.0}, "positive"),
        ({"sfreq": [100.0, 100.0]}, "cannot be converted to trials"),
        ({"ch_names": ["Oz"]}, r"ch_names of shape \(1,\); expected \(2\)"),
        ({"ch_names": ["Oz", "Oz"]}, "'Oz' twice"),
        ({"subject": [1, 2]}, r"'subject' \(2,\)"),
        ({"unit": "kV"}, "unit='kV'"),
        ({"sessions": [1, 1, 2, 2]}, "an array 'sessions'; expected 'session'"),
    ],
)
def test_wrong_content_is_named(file, changes, message):
    with pytest.raises(DataError, match=message) as caught:
        read_npz(save(file, **changes))
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("keep", [0, 10, 300, -30])
def test_truncated_file_is_named(file, keep):
    write_npz(make(), file)
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"cannot read.*expected an .npz file") as caught:
        read_npz(file)
    assert str(file) in str(caught.value)


def test_changed_bytes_are_noticed(file):
    write_npz(make(), file)
    content = bytearray(file.read_bytes())
    content[1000] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(DataError, match="CRC"):
        read_npz(file)


def test_other_files_are_named(file):
    with file.open("wb") as stream:
        np.save(stream, X)
    with pytest.raises(DataError, match="one array without a name"):
        read_npz(file)
    file.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="8 bytes that NumPy cannot read"):
        read_npz(file)


def test_missing_file_is_named(file):
    with pytest.raises(MissingFileError, match=r"trials\.npz does not exist"):
        read_npz(file)


# ---- hostile and damaged files


@pytest.mark.parametrize("name", ["X", "y", "subject", "group", "record"])
def test_a_small_file_cannot_fill_the_memory(file, monkeypatch, name):
    monkeypatch.setattr(_reading, "ALWAYS_ALLOWED", 1 << 22)
    save(file, **{name: None})
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        stream = io.BytesIO()
        np.save(stream, np.zeros((1 << 22, 1, 1)))
        archive.writestr(f"{name}.npy", stream.getvalue())
    assert file.stat().st_size < 100_000
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("NumPy was asked to read it"))
    with pytest.raises(DataError, match=r"trials\.npz: found arrays of 33\.6 MB in a file of .*50 times the size"):
        read_npz(file)


def test_files_larger_than_the_memory_are_refused(file, monkeypatch):
    monkeypatch.setattr(_reading, "_physical_memory", lambda: 500)
    with pytest.raises(DataError, match=r"found arrays of .*; expected at most 500 bytes, the size of memory"):
        read_npz(save(file))


@pytest.mark.parametrize("shape", ["(99999999, 99, 999)", "(1, 1, 1)", "(4, 2, -10)", "(4,)", "(9999999999999,)"])
def test_shapes_that_the_archive_does_not_hold_are_refused(file, shape):
    save(file)
    with zipfile.ZipFile(file) as archive:
        content = {member: archive.read(member) for member in archive.namelist()}
    raw = content["X.npy"]
    content["X.npy"] = raw.replace(b"(4, 2, 10), }".ljust(40), f"{shape}, }}".encode().ljust(40))
    assert content["X.npy"] != raw
    with zipfile.ZipFile(file, "w") as archive:
        for member, data in content.items():
            archive.writestr(member, data)
    with pytest.raises(DataError, match=r"trials\.npz: found"):
        read_npz(file)


@pytest.mark.parametrize(
    "record",
    [
        "[" * 100_000,
        "{" * 10,
        "{half",
        "[1, 2]",
        '{"truths": [3]}',
        "[]",
        "1e400",
        "null",
        '"text"',
        '{"steps": 3}',
        '{"steps": [3]}',
        '{"steps": {"a": 1}}',
        '{"truths": []}',
        '{"truths": {"1": {}}}',
        '{"truths": {"x": {}}}',
        '{"truths": {"1e400": {"effects": {}}}}',
        '{"truths": {"1": {"ch_names": 1, "effects": {"a": [{}]}, "difficulty": 0, "seed": 0}}}',
        '{"dataset": "\\u001b[2J"}',
        '{"steps": [{"step": "a\\nb"}]}',
        "9" * 5000,
    ],
)
def test_records_that_are_damaged_are_named_errors(file, record):
    arrays = {name: np.asarray(getattr(make(), name)) for name in npz._ARRAYS}
    np.savez(file, record=np.array(record), **arrays)
    with pytest.raises(DataError, match=r"trials\.npz: found arrays that cannot be converted to trials") as caught:
        read_npz(file)
    assert len(str(caught.value)) < 5000


@pytest.mark.parametrize("name", ["run", "group", "unit", "tmin"])
def test_files_of_our_own_have_all_arrays(file, name):
    write_npz(make(), file)
    with np.load(file) as archive:
        arrays = {other: archive[other] for other in archive.files if other != name}
    np.savez(file, **arrays)
    with pytest.raises(DataError, match=f"expected also {name}"):
        read_npz(file)


def test_other_files_in_the_archive_are_refused(file):
    save(file)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("notes.txt", "mine")
    with pytest.raises(DataError, match=r"'notes\.txt' in the archive"):
        read_npz(file)


def test_files_that_cannot_be_written_are_named():
    with pytest.raises(OSError, match=r"'/proc/trials\.npz'$"):
        write_npz(full(), "/proc/trials.npz")
