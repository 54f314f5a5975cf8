"""EDF files: the same samples as MNE reads, in less memory, and damage that is found before reading."""

from __future__ import annotations

import warnings

import edfio
import mne
import numpy as np
import pytest

from gbwatt.data import DataError, DataWarning, load
from gbwatt.data.formats import edf
from gbwatt.errors import EDFError
from tests.clinical.corpora import damage
from tests.clinical.corpora.synthetic import LABELS, background, write_edf


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
    with pytest.raises(EDFError) as found:
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
    with pytest.raises(EDFError, match="gaps"):
        edf.expect_continuous(file, header)


# ---- headers of recordings that become trials


PLACES = {name: (256 + start * 9, length) for name, (start, length) in edf._FIELDS.items()}  # 8 channels, annotations
CZ = 2
OPTIONS = {"tmin": 0.0, "tmax": 1.0, "classes": {"left": "T1", "right": "T2"}}


def write_plus(file, names=("Fz", "C3", "Cz", "C4", "P3", "Pz", "P4", "Oz"), ranges=None, units=None):
    """An EDF+ or BDF+ file of noise, with T1 and T2 in turn; all channels have one range unless told."""
    x = 15 * np.random.default_rng(0).standard_normal((len(names), 2400))
    kind = edfio.BdfSignal if file.suffix == ".bdf" else edfio.EdfSignal
    signals = [
        kind(
            row,
            100,
            label=name,
            physical_dimension=(units or {}).get(name, "uV"),
            physical_range=(ranges or {}).get(name, (-800, 800)),
        )
        for name, row in zip(names, x, strict=True)
    ]
    marks = [edfio.EdfAnnotation(2.0 + 2 * k, 1.0, f"T{1 + k % 2}") for k in range(10)]
    (edfio.Bdf if file.suffix == ".bdf" else edfio.Edf)(signals, annotations=marks).write(file)
    return file


@pytest.fixture(params=["mine.edf", "mine.bdf"])
def plus(tmp_path, request):
    return write_plus(tmp_path / request.param)


def patch_cz(file, name, value):
    start, length = PLACES[name]
    damage.patch(file, start + CZ * length, value, length)


def test_sound_files_are_read_without_warnings(plus):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(plus, **OPTIONS).shape == (10, 8, 100)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("physical_max", "-800", "physical range -800 to -800 of channel Cz"),
        ("physical_max", "nan", "physical range -800 to nan of channel Cz|MNE cannot read"),
        ("digital_min", "9999999", "digital range 1e.07 to .* of channel Cz"),
        ("digital_max", "99999999", "digital range .* of channel Cz; expected a range within"),
        ("unit", "mmHg", "Cz in 'mmHg'; expected channels in V, mV, uV or nV"),
        ("n_samples", "50", "bytes.*expected .* as its header says"),
        ("n_samples", "99", "no time stamp in '.DF Annotations' of record 0"),
        ("n_samples", "1e2", "'1e2' at .*; expected a whole number"),
        ("label", "", "1 of 8 channels without a name"),
        ("label", "C\x1b[2J", "the byte b'.x1b'"),
    ],
)
def test_fields_of_a_channel_that_cannot_be_true_are_refused(plus, field, value, message):
    patch_cz(plus, field, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        with pytest.raises(DataError, match=message):
            load(plus, **OPTIONS)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("unit", "mV", r"channel Cz \(1e\+03 times\) with another scale"),
        ("unit", "V", r"channel Cz \(1e\+06 times\) with another scale"),
        ("unit", "nV", r"channel Cz \(0.001 times\) with another scale"),
        ("unit", "", "channel Cz without a unit, assumed to be µV"),
        ("physical_max", "8000", r"channel Cz \(5.5 times\) with another scale"),
        ("physical_min", "900", "channel Cz with a physical minimum above the maximum"),
        ("digital_max", "1000", "channel Cz"),
        ("label", "C3", "several channels are called 'C3'"),
    ],
)
def test_a_channel_unlike_its_neighbours_is_told(plus, field, value, message):
    patch_cz(plus, field, value)
    with pytest.warns(DataWarning, match=message):
        load(plus, **OPTIONS)


@pytest.mark.parametrize(("unit", "factor"), [("nV", 1e-3), ("mV", 1e3), ("", 1.0), ("UV", 1.0)])
def test_units_that_mne_takes_for_volts_are_converted(tmp_path, unit, factor):
    names = ("Fz", "C3", "Cz")
    plain = write_plus(tmp_path / "plain.edf", names)
    other = write_plus(tmp_path / "other.edf", names, units=dict.fromkeys(names, unit))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        np.testing.assert_allclose(load(other, **OPTIONS).X, factor * load(plain, **OPTIONS).X, rtol=1e-6)


@pytest.mark.parametrize("value", ["2", "0.5", "1.01", "0.999"])
def test_another_duration_of_records_contradicts_their_times(plus, value):
    damage.patch(plus, damage.RECORD_SECONDS, value, 8)
    with pytest.raises(DataError, match=rf"record (\d) at \1 s.*for records of {float(value):g} s"):
        load(plus, **OPTIONS)


@pytest.mark.parametrize(("at", "value"), [(236, "99999999"), (252, "9999"), (184, "99999999"), (244, "1e-300")])
def test_sizes_that_the_file_does_not_have_are_refused_before_anything_is_allocated(plus, at, value, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("MNE was asked to read it")

    monkeypatch.setattr(mne.io, "read_raw", refuse)
    damage.patch(plus, at, value, 4 if at == 252 else 8)
    with pytest.raises(DataError, match="expected"):
        load(plus, **OPTIONS)


def test_a_channel_of_a_low_rate_is_told_since_it_is_interpolated(tmp_path):
    x = 15 * np.random.default_rng(0).standard_normal((3, 2400))
    signals = [edfio.EdfSignal(row, 100, label=f"C{k}", physical_range=(-99, 99)) for k, row in enumerate(x)]
    slow = edfio.EdfSignal(x[0, :24], 1, label="slow", physical_range=(-99, 99))
    marks = [edfio.EdfAnnotation(2.0 + 2 * k, 1.0, "T1") for k in range(10)]
    edfio.Edf([*signals, slow], annotations=marks).write(tmp_path / "x.edf")
    with pytest.warns(DataWarning, match=r"slow \(1 Hz\) with another sampling rate than 100 Hz"):
        load(tmp_path / "x.edf", tmin=0, tmax=1)


def test_bytes_after_the_last_record_are_told(plus):
    plus.write_bytes(plus.read_bytes() + bytes(10))
    with pytest.warns(DataWarning, match="10 bytes after the last record"):
        load(plus, **OPTIONS)


def test_ranges_fitted_to_each_channel_are_no_reason_to_warn(tmp_path):
    ranges = {name: (-100 - 50 * k, 100 + 50 * k) for k, name in enumerate(("Fz", "C3", "Cz", "C4", "P3"))}
    file = write_plus(tmp_path / "mine.edf", tuple(ranges), ranges)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(file, **OPTIONS)


@pytest.mark.parametrize(("onset", "is_gap"), [(b"+1.1", False), (b"+1.9", True)])
def test_long_annotations_do_not_make_the_times_of_records_stricter(tmp_path, onset, is_gap):
    slow = edfio.EdfSignal(np.arange(8.0), 1, label="slow", physical_range=(-99, 99))
    file = tmp_path / "x.edf"
    edfio.Edf([slow], annotations=[edfio.EdfAnnotation(2.0, 1.0, "a long text " * 9)]).write(file)
    content = file.read_bytes()
    assert content.count(b"+1\x14\x14\0\0\0") == 1
    file.write_bytes(content.replace(b"+1\x14\x14\0\0\0", onset + b"\x14\x14\0", 1))
    header = edf.read_header(file)
    assert header.signals[1].n_samples > 20
    if is_gap:
        with pytest.raises(EDFError, match=r"record 1 at 1\.9 s"):
            edf.expect_continuous(file, header)
    else:
        edf.expect_continuous(file, header)
