"""MATLAB files: damaged structures that crash SciPy, and sizes that fill the memory, are refused before."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import scipy.io

from gbwatt.data import DataError, files
from gbwatt.data.formats.matlab import expect_structure, mat_variables, read_mat


def cells(values):
    found = np.empty((1, len(values)), dtype=object)
    found[0] = values
    return found


CONTENT = {
    "x": np.arange(24.0).reshape(2, 3, 4),
    "small": np.array([[1]], dtype=np.int16),
    "z": np.array([[1 + 2j, 3]]),
    "text": "left hand",
    "umlaut": "Größe 左",
    "cells": cells([1.0, "two", np.arange(3)]),
    "nested": {"a": 1.0, "b": {"c": "d", "e": cells(["f", 2])}},
    "structs": np.array([(1, "a"), (2, "b")], dtype=[("n", object), ("s", object)]),
    "empty": np.empty((0, 3)),
    "flags": np.array([[True, False]]),
    "sparse": scipy.sparse.csc_array(np.eye(3)),
}


@pytest.mark.parametrize("compressed", [False, True])
def test_sound_files_of_every_class_pass(tmp_path, compressed):
    file = tmp_path / "x.mat"
    scipy.io.savemat(file, CONTENT, do_compression=compressed)
    expect_structure(file)
    assert mat_variables(file)["x"] == ((2, 3, 4), "double")
    np.testing.assert_array_equal(read_mat(file, "x")["x"], CONTENT["x"])


def test_files_of_version_4_are_read(tmp_path):
    scipy.io.savemat(tmp_path / "x.mat", {"x": np.eye(3)}, format="4")
    np.testing.assert_array_equal(read_mat(tmp_path / "x.mat", "x")["x"], np.eye(3))


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (128, 99, "a variable of type 99"),
        (132, 1 << 30, "goes on after the end"),
        (144, 0x63, "a variable of class 99"),
        (160, 99, "numbers at .* where the shape says"),
        (136, 7, "no array flags"),
        (152, 7, "no dimensions"),
    ],
)
def test_elements_that_contradict_each_other_are_refused(tmp_path, at, value, message):
    file = tmp_path / "x.mat"
    scipy.io.savemat(file, {"variable": np.arange(6.0).reshape(2, 3)})
    content = bytearray(file.read_bytes())
    content[at : at + 4] = struct.pack("<I", value)
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_mat(file, "variable")


def test_cells_that_are_not_there_are_refused(tmp_path):
    file = tmp_path / "x.mat"
    scipy.io.savemat(file, {"c": cells([1.0, 2.0])})
    content = file.read_bytes()
    dims = struct.pack("<iiII", 5, 8, 1, 2)
    assert content.count(dims) == 1
    for n in (3, 1 << 30):
        file.write_bytes(content.replace(dims, struct.pack("<iiII", 5, 8, 1, n)))
        with pytest.raises(DataError, match="bytes"):
            read_mat(file, "c")


def test_a_small_file_cannot_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ALWAYS_ALLOWED", 1 << 22)
    file = tmp_path / "x.mat"
    scipy.io.savemat(file, {"x": np.zeros((1 << 22, 1))}, do_compression=True)
    monkeypatch.setattr(scipy.io, "loadmat", lambda *_, **__: pytest.fail("SciPy was asked to read it"))
    with pytest.raises(DataError, match=r"variables of .* MB in a file of .*50 times"):
        read_mat(file, "x")


def test_missing_variables_are_named_with_those_that_are_there(tmp_path):
    scipy.io.savemat(tmp_path / "x.mat", {"a": 1})
    with pytest.raises(DataError, match=r"the variables a; expected also b\. Look elsewhere"):
        read_mat(tmp_path / "x.mat", "a", "b", remedy="Look elsewhere.")
