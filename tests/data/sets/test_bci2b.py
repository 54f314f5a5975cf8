"""BCI Competition IV 2b: epochs in the layout of the shared files, written here, and the real ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gbwatt.data import find_dataset, load
from gbwatt.data.sets import bci2b
from gbwatt.errors import DataError, MissingFileError
from tests import recordings


def content(subject: int = 1, per_session: int = 4) -> dict[str, np.ndarray]:
    """Arrays of a file: five sessions in which left and right alternate."""
    n = 5 * per_session
    return {
        "X": 2 * np.random.default_rng(subject).standard_normal((n, 3, 1000)).astype(np.float32),
        "y": np.arange(n) % 2,
        "class_names": np.array(["left", "right"]),
        "ch_names": np.array(["C3", "Cz", "C4"]),
        "sfreq": np.array(250.0),
        "session": np.repeat(np.arange(1, 6), per_session),
        "subject": np.full(n, subject),
    }


def write(folder: Path, **changes: np.ndarray) -> Path:
    file = folder / "bci-iv-2b" / "S01.npz"
    file.parent.mkdir(exist_ok=True)
    np.savez(file, **{**content(), **changes})
    return file


def test_epochs_keep_samples_labels_and_sessions(tmp_path):
    trials = bci2b.read_processed([write(tmp_path)], 1)
    np.testing.assert_array_equal(trials.X, content()["X"])
    np.testing.assert_array_equal(trials.y, content()["y"])
    np.testing.assert_array_equal(trials.session, np.repeat(["1", "2", "3", "4", "5"], 4))
    assert trials.class_names == ("left hand", "right hand")
    assert (trials.sfreq, trials.tmin, trials.unit, trials.dataset) == (250.0, 0.0, "µV", "bci-iv-2b")


def test_preset_is_two_seconds_of_imagery(tmp_path):
    write(tmp_path)
    trials = load("bci-iv-2b", 1, root=tmp_path)
    assert trials.shape == (20, 3, 250)
    assert trials.sfreq == 125
    assert trials.times[0] == pytest.approx(0.496)  # half a sample early


def test_protocol_tests_on_the_evaluation_sessions(tmp_path):
    trials = bci2b.read_processed([write(tmp_path)], 1)
    (split,) = find_dataset("bci-iv-2b").protocol.splits(trials)
    sessions = [sorted(set(trials.session[part].tolist())) for part in (split.train, split.valid, split.test)]
    assert sessions == [["1", "2"], ["3"], ["4", "5"]]


def test_files_of_other_folders_are_not_taken_for_those_of_the_data_set(tmp_path):
    write(tmp_path).rename(tmp_path / "S01.npz")
    with pytest.raises(MissingFileError, match=r"bci-iv-2b/S01\.npz"):
        load("bci-iv-2b", 1, root=tmp_path)


DAMAGES = {
    "channels": ({"ch_names": np.array(["C4", "Cz", "C3"])}, "found ch_names C4, Cz, C3; expected C3, Cz, C4"),
    "classes": ({"class_names": np.array(["right", "left"])}, "found class_names right, left; expected left, right"),
    "rate": ({"sfreq": np.array(128.0)}, "found 128 Hz; expected 250 Hz"),
    "length": ({"X": np.ones((20, 3, 500))}, r"found X of shape \(20, 3, 500\); expected \(any, 3, 1000\)"),
    "subject": ({"subject": np.full(20, 2)}, "found trials of subject 2; expected trials of subject 1"),
    "session missing": ({"session": np.repeat([1, 2, 3, 4, 4], 4)}, "found the sessions 1, 2, 3, 4; expected"),
    "class missing": ({"y": np.repeat([0, 1, 0, 1, 0], 4)}, "found no trial of right in session 1; expected both"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_wrong_file_is_named_with_what_is_wrong(case, tmp_path):
    changes, message = DAMAGES[case]
    with pytest.raises(DataError, match=rf"S01\.npz: {message}"):
        bci2b.read_processed([write(tmp_path, **changes)], 1)


# ---- real recordings


@pytest.mark.parametrize("subject", [1, 2, 3, 4, 5])
def test_real_epochs_begin_with_the_cue(subject):
    """The evoked response of the training sessions is largest 0.25 to 0.45 s after the first sample."""
    trials = recordings.real("bci-iv-2b", subject, preprocessing=None)
    assert trials.shape == (600, 3, 1000)
    training = trials.select(session=["1", "2", "3"])
    evoked = np.abs(training.X.mean(axis=0)).mean(axis=0)
    assert 0.25 < training.times[evoked.argmax()] < 0.45


def test_real_epochs_are_band_passed():
    """As the documentation says: almost no power below 6 Hz and above 30 Hz."""
    trials = recordings.real("bci-iv-2b", 1, preprocessing=None)
    power = (np.abs(np.fft.rfft(trials.X[:, :, 125:875])) ** 2).mean(axis=(0, 1))
    freqs = np.fft.rfftfreq(750, 1 / 250)
    inside = (freqs > 6) & (freqs < 30)
    assert power[inside].sum() > 0.98 * power.sum()
