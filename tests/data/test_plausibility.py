"""Amplitudes, rates and axes that EEG does not have are told by every reader; real ones are not."""

from __future__ import annotations

import warnings

import mne
import numpy as np
import pandas as pd
import pytest
import scipy.io

from gbwatt.data import DataWarning, Trials, load
from gbwatt.errors import DataError
from tests.data.test_trials import make
from tests.recordings import folder

RNG = np.random.default_rng(0)
NAMES = ("C3", "Cz", "C4", "Pz")


def noise(scale: float = 15.0, **factors: float) -> np.ndarray:
    """Trials (12, 4, 100) in µV; some channels are larger by a factor."""
    x = scale * RNG.standard_normal((12, 4, 100))
    for name, factor in factors.items():
        x[:, NAMES.index(name)] *= factor
    return x


def as_npz(file, x):
    np.savez(file.with_suffix(".npz"), X=x, y=[0, 1] * 6, sfreq=100, ch_names=NAMES)
    return load(file.with_suffix(".npz"))


def as_epochs(_, x):
    return Trials.from_mne(mne.EpochsArray(x * 1e-6, mne.create_info(list(NAMES), 100.0, "eeg"), verbose="ERROR"))


def as_epochs_file(file, x):
    epochs = mne.EpochsArray(x * 1e-6, mne.create_info(list(NAMES), 100.0, "eeg"), verbose="ERROR")
    epochs.save(file.with_name("mine-epo.fif"), verbose="ERROR")
    return load(file.with_name("mine-epo.fif"))


def as_recording(file, x):
    raw = mne.io.RawArray(np.hstack(x) * 1e-6, mne.create_info(list(NAMES), 100.0, "eeg"), verbose="ERROR")
    raw.set_annotations(mne.Annotations(np.arange(12.0), 0, ["a", "b"] * 6))
    raw.save(file.with_name("mine_raw.fif"), verbose="ERROR")
    return load(file.with_name("mine_raw.fif"), tmin=0, tmax=1)


def as_moabb(_, x):
    metadata = pd.DataFrame({"subject": [1] * 12, "session": ["0"] * 12, "run": ["0"] * 12})
    return Trials.from_moabb(x, ["a", "b"] * 6, metadata, NAMES, 100.0)


READERS = (as_npz, as_epochs, as_epochs_file, as_recording, as_moabb)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (noise(1e-5), "implausible for EEG"),
        (noise(1e7), "implausible for EEG"),
        (noise(Cz=2e3), r"1 of 4 channels differ .*Cz \(2e\+03 times\)"),
        (noise(Pz=1e-6), r"Pz \(1e-06 times\)"),
        (noise(C4=1e6), r"C4 \(1.\de\+07 µV\)"),
    ],
    ids=["volts", "nanovolts", "millivolts", "small", "volt"],
)
def test_every_reader_tells_of_amplitudes_that_eeg_does_not_have(tmp_path, read, x, message):
    with pytest.warns(DataWarning, match=message):
        read(tmp_path / "mine", x)


@pytest.mark.parametrize("read", READERS)
def test_flat_channels_are_named(tmp_path, read):
    x = noise()
    x[:, 1] = 0
    with pytest.warns(DataWarning, match="flat channels: .*; exclude or repair them"):
        read(tmp_path / "mine", x)


@pytest.mark.parametrize("read", READERS)
def test_drifts_are_no_reason_to_warn(tmp_path, read):
    x = noise() + 3e3 * np.linspace(0, 1, 1200).reshape(12, 1, 100) + 2e4  # a large offset, and a drift
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(tmp_path / "mine", x).shape == (12, 4, 100)


def test_sets_of_mat_files_are_looked_at_too(tmp_path):
    (tmp_path / "mamem").mkdir()
    y = np.tile(np.repeat([0] * 5 + [1] * 5 + [2] * 6 + [3] * 5 + [4] * 4, 4), 5)
    x = 2.55e-6 * np.random.default_rng(0).standard_normal((500, 8, 125))  # far from where its text is rounded
    scipy.io.savemat(tmp_path / "mamem" / "U001.mat", {"x_test": x, "y_test": y[:, None]})
    with pytest.warns(DataWarning, match="mamem-ssvep-ii, subject 1: the standard deviation of channels is 2.5e-12 V"):
        load("mamem-ssvep-ii", root=tmp_path)


@pytest.mark.parametrize("sfreq", [1e-3, 0.5, 2e5, 1e12])
def test_rates_that_eeg_does_not_have_are_told(tmp_path, sfreq):
    np.savez(tmp_path / "mine.npz", X=noise(), y=[0, 1] * 6, sfreq=sfreq)
    with pytest.warns(DataWarning, match="a sampling rate of"):
        load(tmp_path / "mine.npz")


def test_arbitrary_units_have_no_amplitude_to_compare(tmp_path):
    np.savez(tmp_path / "mine.npz", X=noise(1e-9), y=[0, 1] * 6, sfreq=100, unit="a.u.")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(tmp_path / "mine.npz")


# ---- real recordings


def test_real_recordings_give_no_warning():
    files = sorted(folder().glob("bci-iv-2b/*.npz")) + sorted(folder().glob("physionet-mi/*.npz"))[:4]
    subjects = [number for number in range(1, 12) if (folder() / "mamem" / f"U{number:03d}.mat").exists()]
    edf = sorted(folder().glob("eegmmidb/*/*R04.edf"))
    if not (files or subjects or edf):
        pytest.skip(f"there are no recordings in {folder()}")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        for file in files:
            load(file)
        for subject in subjects:
            load("mamem-ssvep-ii", subject, root=folder())
        for file in edf:
            load(file, tmin=0, tmax=3, classes=["T1", "T2"])


def test_real_recording_with_large_drifts_gives_no_warning(tmp_path):
    file = folder() / "bi2012" / "subject_01_session_01.npz"
    if not file.exists():
        pytest.skip(f"{file} is not there; put bi2012 into GBWATT_DATA")
    with np.load(file) as content:
        data, stim = content["data"][:, :16].T, content["stim"].ravel()
    onsets = np.flatnonzero(stim)[:200]
    x = np.stack([data[:, onset : onset + 128] for onset in onsets])
    np.savez(tmp_path / "mine.npz", X=x, y=stim[onsets].astype(int), sfreq=128)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load(tmp_path / "mine.npz")) == 200


# ---- names


BAD = ["C3\x1b[2J", "C3\nC4", "C3\x00x", "\u202eC3", "C3\u2028", "\ud800", "\x9b2J", "x" * 300, "\u200bC3", "C3\r"]


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("field", ["ch_names", "class_names", "session", "run", "dataset", "steps"])
def test_names_that_break_reports_are_refused_and_shown_as_escapes(field, name):
    values = {
        "ch_names": (name, "Cz", "C4"),
        "class_names": (name, "right", "feet"),
        "steps": ({"step": "mine", "note": name},),
    }
    if field == "steps" and len(name) > 200:
        name = "x" * 20_000
        values["steps"] = ({"step": "mine", "note": name},)
    if field == "dataset" and len(name) > 200:
        name = "x" * 5_000
    with pytest.raises(ValueError, match=r"control character|characters; at most \d+") as caught:
        make(**{field: values.get(field, name)})
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 400


@pytest.mark.parametrize("name", ["Größe", "左手", "S  1", "C3-REF", "µ", "می‌خواهم", 'don\'t, "quote" <b>'])
def test_other_names_are_kept(name):
    assert make(class_names=(name, "right", "feet")).class_names[0] == name


@pytest.mark.parametrize("field", ["ch_names", "class_names", "session"])
def test_names_in_files_are_refused_with_the_file(tmp_path, field):
    values = {"ch_names": ["C3\x1b[31m", "Cz", "C4", "Pz"], "class_names": ["a\nb", "c"], "session": "x\x00y\x07"}
    file = tmp_path / "mine.npz"
    np.savez(file, X=noise(), y=[0, 1] * 6, sfreq=100, **{field: values[field]})
    with pytest.raises(DataError, match=r"mine\.npz.*control character") as caught:
        load(file)
    assert str(caught.value).isprintable()
