"""GDF files: headers and event tables are compared with each other and with the size of the file."""

from __future__ import annotations

import struct
import warnings

import numpy as np
import pytest

from gbwatt.data import DataError, DataWarning, load
from tests.data.sets.gdf import write_gdf

NAMES = ("Fz", "C3", "Cz", "C4")
N = len(NAMES)
OPTIONS = {"tmin": 0.0, "tmax": 1.0, "classes": {"left": "769", "right": "770"}}
#: Of the second channel: where its physical range, digital range, samples and type are.
UNIT, PHYSICAL_MAX, DIGITAL_MAX, SAMPLES, TYPE = (
    256 + start * N + length for start, length in ((96, 8), (112, 8), (128, 8), (216, 4), (220, 4))
)


@pytest.fixture
def file(tmp_path):
    x = 15 * np.random.default_rng(0).standard_normal((N, 2400))
    events = [(200 + 200 * k, 769 + k % 2, 100) for k in range(10)]
    return write_gdf(tmp_path / "mine.gdf", x, 100, NAMES, events)


def patch(file, at, form, value):
    raw = value if form is None else struct.pack(form, value)
    content = bytearray(file.read_bytes())
    content[at : at + len(raw)] = raw
    file.write_bytes(content)


def test_sound_files_are_read_without_warnings(file):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(file, **OPTIONS).shape == (10, 4, 100)


@pytest.mark.parametrize(
    ("at", "form", "value", "message"),
    [
        (0, None, b"GDF 9.99", "version 1 or 2"),
        (184, "<q", 99, "a header of 99 bytes for 4 channels"),
        (236, "<q", 0, "0 records"),
        (236, "<q", 1 << 50, "as its header says"),
        (244, "<I", 0, "records of 0/1 s"),
        (244, "<I", 2, "events at 100 Hz and samples at 50 Hz"),
        (252, "<I", 1 << 31, "channels"),
        (PHYSICAL_MAX, "<d", float("nan"), "physical range .* of channel C3"),
        (DIGITAL_MAX, "<q", -32768, "digital range -32768 to -32768 of channel C3"),
        (DIGITAL_MAX, "<q", 1 << 40, "digital range .* of channel C3; expected a range within"),
        (SAMPLES, "<i", -5, "-5 samples"),
        (SAMPLES, "<i", 101, "as its header says|after its records"),
        (TYPE, "<i", 77, "samples of type 77"),
        (UNIT, None, b"mmHg    ", "C3 in 'mmHg'"),
    ],
)
def test_headers_that_cannot_be_true_are_refused(file, at, form, value, message):
    patch(file, at, form, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        with pytest.raises(DataError, match=message):
            load(file, **OPTIONS)


@pytest.mark.parametrize(
    ("at", "form", "value", "message"),
    [
        (PHYSICAL_MAX, "<d", 1e6, r"channel C3 \(.* times\) with another scale"),
        (UNIT, None, b"mV      ", r"channel C3 \(1e\+03 times\) with another scale"),
        (UNIT, None, b"        ", "channel C3 without a unit"),
    ],
)
def test_a_channel_unlike_its_neighbours_is_told(file, at, form, value, message):
    patch(file, at, form, value)
    with pytest.warns(DataWarning, match=message):
        load(file, **OPTIONS)


def test_events_outside_the_recording_are_refused(file):
    patch(file, len(file.read_bytes()) - 12 * 10, "<I", 99_999)
    with pytest.raises(DataError, match="an event at sample 99999; expected 1 to 2400"):
        load(file, **OPTIONS)


def test_an_additional_header_of_version_2_is_named_with_what_to_do(file):
    content = file.read_bytes()
    extra = struct.pack("<BBBB", 3, 4, 0, 0) + b"test"
    size = 256 * (N + 1)
    file.write_bytes(content[:size] + extra.ljust(256, b"\0") + content[size:])
    patch(file, 0, None, b"GDF 2.20")
    patch(file, 184, "<H", N + 2)
    patch(file, 252, "<H", N)
    with pytest.raises(DataError, match=r"additional header .*not supported.* EDF") as caught:
        load(file, **OPTIONS)
    assert "Copy it again" not in str(caught.value)


def test_a_header_longer_than_its_file_is_no_additional_header(file):
    patch(file, 0, None, b"GDF 2.20")
    patch(file, 184, "<H", 60_000)
    with pytest.raises(DataError, match="Copy it again"):
        load(file, **OPTIONS)
