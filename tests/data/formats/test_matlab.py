"""MATLAB files: damaged structures that crash SciPy, and sizes that fill the memory, are refused before."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import scipy.io

from gbwatt.data import DataError, _reading, load
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
        (132, 1 << 30, "beyond the end"),
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
    monkeypatch.setattr(_reading, "ALWAYS_ALLOWED", 1 << 22)
    file = tmp_path / "x.mat"
    scipy.io.savemat(file, {"x": np.zeros((1 << 22, 1))}, do_compression=True)
    monkeypatch.setattr(scipy.io, "loadmat", lambda *_, **__: pytest.fail("SciPy was asked to read it"))
    with pytest.raises(DataError, match=r"variables of .* MB in a file of .*50 times"):
        read_mat(file, "x")


def changed(file, at, value):
    content = bytearray(file.read_bytes())
    content[at : at + len(value)] = value
    file.write_bytes(content)


@pytest.mark.parametrize("suffix", ["mat", "set"])
@pytest.mark.parametrize(
    ("at", "value"),
    [(0, b"XATLAB"), (0, b" " * 116), (124, b"\x07\x01"), (0, b"MATLAB 7.3")],
    ids=["other text", "no text", "other minor version", "text of version 7.3"],
)
def test_the_text_of_a_header_does_not_switch_off_the_limit(tmp_path, monkeypatch, at, value, suffix):
    monkeypatch.setattr(_reading, "ALWAYS_ALLOWED", 1 << 22)
    file = tmp_path / f"x.{suffix}"
    scipy.io.savemat(file, {"x": np.zeros((1 << 22, 1))}, do_compression=True, appendmat=False)
    changed(file, at, value)
    assert scipy.io.whosmat(file, appendmat=False) == [("x", (1 << 22, 1), "double")]  # SciPy reads it
    monkeypatch.setattr(scipy.io, "loadmat", lambda *_, **__: pytest.fail("SciPy was asked to read it"))
    with pytest.raises(DataError, match=r"variables of .* MB in a file of .*50 times"):
        load(file, tmin=0, tmax=1)


@pytest.mark.parametrize("suffix", ["mat", "set"])
@pytest.mark.parametrize("version", [b"\x00\x02IM", b"\x02\x00MI"])
def test_files_of_version_7_3_are_refused_with_the_way_to_save_them(tmp_path, version, suffix):
    file = tmp_path / f"x.{suffix}"
    scipy.io.savemat(file, {"x": np.eye(3)}, appendmat=False)
    changed(file, 124, version)
    with pytest.raises(DataError, match=r"7\.3.*'-v7'"):
        load(file, tmin=0, tmax=1)


@pytest.mark.parametrize("version", [b"\x00\x01  ", b"\x00\x03IM", b"\x01\x00IM", b"\x00\x01MI"])
def test_headers_of_unknown_versions_are_refused(tmp_path, version):
    file = tmp_path / "x.mat"
    scipy.io.savemat(file, {"x": np.eye(3)})
    changed(file, 124, version)
    with pytest.raises(DataError, match="version 4 to 7"):
        expect_structure(file)


def version_4(kind=0, rows=2, columns=3, imaginary=0, length=2, order="<"):
    return struct.pack(f"{order}5i", kind, rows, columns, imaginary, length) + b"x\0" + bytes(48)


@pytest.mark.parametrize("order", ["<", ">"])
def test_matrices_of_version_4_pass_in_both_byte_orders(tmp_path, order):
    file = tmp_path / "x.mat"
    file.write_bytes(2 * version_4(1000 if order == ">" else 0, order=order))
    assert mat_variables(file) == {"x": ((2, 3), "double")}


def test_every_kind_of_matrix_of_version_4_passes(tmp_path):
    kinds = ("float64", "float32", "int32", "int16", "uint16", "uint8", "complex128")
    content = {kind: np.arange(6).reshape(2, 3).astype(kind) for kind in kinds}
    content |= {"text": "left hand", "empty": np.empty((0, 3)), "sparse": scipy.sparse.csc_array(np.eye(3))}
    scipy.io.savemat(tmp_path / "x.mat", content, format="4")
    assert list(mat_variables(tmp_path / "x.mat")) == list(content)


@pytest.mark.parametrize(
    "content",
    [
        version_4(rows=1 << 30, columns=1 << 30),
        version_4(rows=3),
        version_4(rows=-1, columns=-1),
        version_4(imaginary=1),
        version_4(imaginary=7),
        version_4(length=1 << 30),
        version_4(length=-1),
        version_4(kind=60),
        version_4(kind=3),
        version_4(kind=100),
        version_4(kind=2000),
        version_4(kind=2, rows=3, columns=2),
        version_4()[:-1],
        version_4() + b"rest",
        b"\0\0\0\0",
        bytes(8),
    ],
    ids=range(16),
)
def test_matrices_of_version_4_that_are_not_complete_are_refused_before_scipy_reads_them(
    tmp_path, monkeypatch, content
):
    (tmp_path / "x.mat").write_bytes(content)
    for name in ("loadmat", "whosmat"):
        monkeypatch.setattr(scipy.io, name, lambda *_, **__: pytest.fail("SciPy was asked to read it"))
    with pytest.raises(DataError, match=r"x\.mat: found"):
        read_mat(tmp_path / "x.mat", "x")


def test_missing_variables_are_named_with_those_that_are_there(tmp_path):
    scipy.io.savemat(tmp_path / "x.mat", {"a": 1})
    with pytest.raises(DataError, match=r"the variables a; expected also b\. Look elsewhere"):
        read_mat(tmp_path / "x.mat", "a", "b", remedy="Look elsewhere.")
