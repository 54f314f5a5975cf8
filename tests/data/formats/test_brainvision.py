"""BrainVision recordings: boundaries are no events, and headers are compared with the other files."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from gbwatt.data import DataError, DataWarning, MissingFileError, load
from gbwatt.data.formats.recordings import read_file
from tests.data.formats.brainvision import write_brainvision

NAMES = ("C3", "Cz", "C4", "Pz")
SFREQ = 250
CUES = [("Stimulus", f"S  {1 + k % 2}", SFREQ * (2 + 2 * k)) for k in range(6)]
WINDOW = {"tmin": 0, "tmax": 1}


def write(folder, markers=CUES):
    x = 10 * np.random.default_rng(0).standard_normal((len(NAMES), 16 * SFREQ))
    return write_brainvision(folder / "mine.vhdr", x, NAMES, SFREQ, markers)


def replace(file, old, new):
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


BOUNDARIES = [
    ("New Segment", "", 700),
    ("Comment", "boundary", 710),
    ("Comment", "New Segment", 720),
    ("Comment", "EDGE boundary", 730),
    ("boundary", "", 740),
]


def test_boundaries_and_comments_of_boundaries_are_no_events(tmp_path):
    file = write(tmp_path, [*CUES, *BOUNDARIES])
    trials = read_file(file, **WINDOW)
    assert trials.class_names == ("Stimulus/S  1", "Stimulus/S  2")
    assert len(trials) == 6
    with pytest.raises(DataError) as caught:
        read_file(file)
    assert "boundary" not in str(caught.value)
    assert "New Segment" not in str(caught.value)


def test_trials_in_a_stretch_that_a_comment_calls_bad_are_left_out(tmp_path):
    file = write(tmp_path, [*CUES, ("Comment", "BAD_muscle", CUES[2][2] + 20)])
    with pytest.warns(DataWarning, match="1 of 6 trials .*1 overlap a BAD annotation"):
        trials = read_file(file, **WINDOW)
    assert trials.class_names == ("Stimulus/S  1", "Stimulus/S  2")
    assert len(trials) == 5


def test_other_comments_remain_events(tmp_path):
    trials = read_file(write(tmp_path, [*CUES, ("Comment", "rest", 3500)]), **WINDOW)
    assert "Comment/rest" in trials.class_names


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("NumberOfChannels=4", "NumberOfChannels=3", "4 channels in its list; expected 3"),
        ("NumberOfChannels=4", "NumberOfChannels=0", "0 channels"),
        ("NumberOfChannels=4", "NumberOfChannels=999999999999", "4 channels in its list; expected 999999999999"),
        ("Ch2=Cz,,0.1,µV", "Ch2=Cz,,-0.1,µV", "resolution '-0.1' of channel Cz"),
        ("BinaryFormat=INT_16", "BinaryFormat=INT_24", "BinaryFormat=INT_24"),
    ],
)
def test_headers_that_contradict_themselves_are_refused(tmp_path, old, new, message):
    file = write(tmp_path)
    replace(file, old, new)
    with pytest.raises(DataError, match=message):
        read_file(file, **WINDOW)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("Ch2=Cz,,0.1,mV", r"channel Cz \(1e\+03 times\)"),
        ("Ch2=Cz,,1,µV", r"channel Cz \(10 times\)"),
        ("Ch2=Cz,,0.1,kg", "Cz in 'kg'"),
    ],
)
def test_a_channel_with_another_scale_or_unit_is_told(tmp_path, new, message):
    file = write(tmp_path)
    replace(file, "Ch2=Cz,,0.1,µV", new)
    with pytest.warns(DataWarning, match=message):
        read_file(file, **WINDOW)


@pytest.mark.parametrize("line", ["Sampling Rate [Hz]: 1000", "Sampling Interval [µS]: 1000"])
def test_a_resampled_recording_is_read_with_a_warning_of_both_rates(tmp_path, line):
    file = write(tmp_path)
    old = "Sampling Rate [Hz]: 250" if "Rate" in line else "Sampling Interval [µS]: 4000"
    replace(file, old, line)
    with pytest.warns(DataWarning, match=r"250 Hz.* comment says 1000 Hz; was it resampled") as caught:
        trials = read_file(file, **WINDOW)
    assert len(caught) == 1
    assert trials.sfreq == SFREQ
    assert trials.shape == (6, 4, SFREQ)


@pytest.mark.parametrize("line", ["Sampling Rate [Hz]: 1.2.3", "Sampling Rate [Hz]: ...", "Sampling Rate [Hz]: 0"])
def test_a_comment_without_a_rate_is_no_reason_to_refuse_a_recording(tmp_path, line):
    file = write(tmp_path)
    text = file.read_text(encoding="utf-8").partition("[Comment]")[0]
    file.write_text(f"{text}[Comment]\n{line}\n", encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        assert read_file(file, **WINDOW).sfreq == SFREQ


def test_data_that_do_not_fill_all_channels_are_refused(tmp_path):
    file = write(tmp_path)
    data = file.with_suffix(".eeg")
    data.write_bytes(data.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"mine\.eeg: found 31998 bytes; expected a multiple of 2 bytes for each of 4"):
        read_file(file, **WINDOW)
    data.unlink()
    with pytest.raises(MissingFileError, match=r"mine\.eeg does not exist"):
        read_file(file, **WINDOW)


@pytest.mark.parametrize(
    ("new", "message"),
    [("Mk3=Stimulus,S  2,99999,1,0", "marker at sample 99999; expected 1 to 4000"), ("Mk3=Stimul", "'Mk3=Stimul' as")],
)
def test_markers_that_are_incomplete_or_outside_are_refused(tmp_path, new, message):
    file = write(tmp_path)
    replace(file.with_suffix(".vmrk"), "Mk3=Stimulus,S  2,1001,1,0", new)
    with pytest.raises(DataError, match=message):
        read_file(file, **WINDOW)


@pytest.mark.parametrize(
    ("old", "message"),
    [("Mk3=Stimulus,S  2,1001,1,0\n", "is one missing"), ("Mk7=Stimulus,S  2,3001,1,0\n", "truncated")],
)
def test_missing_markers_are_told(tmp_path, old, message):
    file = write(tmp_path)
    replace(file.with_suffix(".vmrk"), old, "" if "Mk3" in old else old.rstrip())
    with pytest.warns(DataWarning, match=message):
        read_file(file, **WINDOW)


def test_sound_recordings_are_read_without_warnings(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(write(tmp_path), **WINDOW).shape == (6, 4, 250)
