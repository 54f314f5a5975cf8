"""EDF files: the same samples as MNE reads, in less memory, and damage that is found before reading."""

from __future__ import annotations

import edfio
import mne
import numpy as np
import pytest

from gbwatt.data.formats import edf
from tests.data.corpora import damage
from tests.data.corpora.synthetic import LABELS, background, write_edf


@pytest.fixture
def file(tmp_path):
    x = background(np.random.default_rng(0), 4, 250)
    write_edf(tmp_path / "x.edf", x, 250)
    return tmp_path / "x.edf"


def test_samples_are_those_that_mne_reads(file):
    header = edf.read_header(file)
    found = edf.read_samples(file, header, range(len(LABELS)))
    raw = mne.io.read_raw_edf(file, preload=True, verbose="error")
    assert tuple(raw.ch_names[:23]) == LABELS
    assert [signal.label for signal in header.signals] == raw.ch_names
    assert header.seconds == raw.n_times / raw.info["sfreq"] == 4.0
    assert header.rate(0) == raw.info["sfreq"]
    for place, digital in enumerate(found):
        np.testing.assert_allclose(header.signals[place].microvolts(digital), raw[place][0][0] * 1e6, atol=1e-6)


def test_any_channels_are_read_in_any_order_and_by_blocks(file, monkeypatch):
    header = edf.read_header(file)
    whole = edf.read_samples(file, header, [0, 7, 22])
    monkeypatch.setattr(edf, "BLOCK", 3 * header.record_bytes)
    np.testing.assert_array_equal(edf.read_samples(file, header, [22, 0, 7]), whole[[2, 0, 1]])


def test_records_need_not_be_of_one_second(tmp_path):
    x = background(np.random.default_rng(0), 2.5, 256)
    write_edf(tmp_path / "x.edf", x, 256)
    header = edf.read_header(tmp_path / "x.edf")
    assert header.seconds == pytest.approx(2.5)
    digital = edf.read_samples(tmp_path / "x.edf", header, [3])[0]
    np.testing.assert_allclose(header.signals[3].microvolts(digital), x[3], atol=0.2)


@pytest.mark.parametrize(("unit", "factor"), [("uV", 1), ("mV", 1e3), ("V", 1e6), ("nV", 1e-3), ("", 1)])
def test_units_of_voltage_are_converted(tmp_path, unit, factor):
    signal = edfio.EdfSignal(np.linspace(-1, 1, 200), 200, label="EEG CZ-REF", physical_dimension=unit)
    edfio.Edf([signal]).write(tmp_path / "x.edf")
    header = edf.read_header(tmp_path / "x.edf")
    found = header.signals[0].microvolts(edf.read_samples(tmp_path / "x.edf", header, [0])[0])
    np.testing.assert_allclose(found, factor * np.linspace(-1, 1, 200), atol=1e-4 * factor)


def kind(file):
    with pytest.raises(edf.EDFError) as found:
        edf.read_header(file)
    return found.value.kind


@pytest.mark.parametrize("share", [0.999, 0.5, 0.05])
def test_truncated_files_are_found(file, share):
    damage.truncate(file, share)
    assert kind(file) == "truncated"


def test_a_file_that_was_never_completed_is_truncated(file):
    damage.patch(file, damage.N_RECORDS, "-1", 8)
    assert kind(file) == "truncated"


@pytest.mark.parametrize("content", [b"", b"0", b"not an EDF file" * 100, b"\xffBIOSEMX" + b" " * 300])
def test_what_is_no_edf_is_told(file, content):
    file.write_bytes(content)
    assert kind(file) == "not-edf"


@pytest.mark.parametrize(
    ("at", "text", "length"),
    [(236, "2", 8), (236, "many", 8), (236, "nan", 8), (184, "100", 8), (252, "-3", 4), (244, "0", 8), (244, "inf", 8)],
)
def test_headers_that_contradict_themselves_are_told(file, at, text, length):
    damage.patch(file, at, text, length)
    assert kind(file) == "damaged-header"


def test_signals_without_samples_are_told(file):
    damage.patch_signal(file, (216, 8), "0")
    assert kind(file) == "damaged-header"


def test_recordings_with_gaps_are_told(file):
    damage.patch(file, damage.RESERVED, "EDF+D", 44)
    header = edf.read_header(file)
    assert header.discontinuous
    with pytest.raises(edf.EDFError, match="gaps"):
        edf.expect_continuous(file, header)
