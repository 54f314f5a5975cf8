"""On real recordings, decisions online are the predictions for the recorded file, for chunks of any size."""

from __future__ import annotations

import warnings

import mne
import numpy as np
import pytest
import scipy.io

from gbwatt import GBWAttClassifier
from gbwatt.data import load
from gbwatt.decoding import predict_recordings
from gbwatt.errors import DataWarning
from gbwatt.online import OnlineDecoder
from tests.online.test_decoder import play
from tests.recordings import folder

pytestmark = pytest.mark.slow


def existing(name: str):
    file = folder() / name
    if not file.exists():
        pytest.skip(f"{file} does not exist")
    return file


@pytest.fixture(scope="module")
def imagery():
    """A model of two runs of PhysioNet, and the third run."""
    files = [existing(f"eegmmidb/S001/S001R{run:02}.edf") for run in (4, 8, 12)]
    reading = {"classes": {"left": "T1", "right": "T2"}, "tmin": 0.5, "tmax": 4}
    steps = "bandpass=8-30,resample=125,channels=C3;Cz;C4,causal"
    trials = load({1: files[:2]}, **reading, preprocessing=steps)
    model = GBWAttClassifier(task="mi", max_epochs=5).fit(trials)
    return model, mne.io.read_raw_edf(files[2], preload=True, verbose="ERROR"), ["T1", "T2"]


@pytest.fixture(scope="module")
def potentials(tmp_path_factory):
    """A model of the first part of a P300 recording, and the rest."""
    content = scipy.io.loadmat(existing("p300-br41n/S1.mat"))
    trigger = content["trig"].ravel()
    onsets = np.flatnonzero((trigger != 0) & (np.r_[0, trigger[:-1]] == 0))
    info = mne.create_info([f"EEG{number}" for number in range(content["y"].shape[1])], 250.0, "eeg")
    half = len(onsets) // 2

    def part(rows: slice, start: int, stop: int | None) -> mne.io.RawArray:
        """Samples from ``start``, with some of the events."""
        raw = mne.io.RawArray(1e-6 * content["y"][start:stop].T, info, verbose="ERROR")
        names = np.where(trigger[onsets[rows]] == 1, "target", "other")
        return raw.set_annotations(mne.Annotations((onsets[rows] - start) / 250.0, 0, names))

    file = tmp_path_factory.mktemp("p300") / "first_raw.fif"
    part(slice(half - 10), 0, onsets[half]).save(file, verbose="ERROR")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # windows overlap
        trials = load(file, tmin=0.0, tmax=0.8, preprocessing="bandpass=0.5-20,resample=125,causal")
    model = GBWAttClassifier(task="erp", max_epochs=5).fit(trials)
    return model, part(slice(half, half + 200), onsets[half] - 250, onsets[half + 205]), ["target", "other"]


@pytest.mark.parametrize("size", [1, 10, 50])
@pytest.mark.parametrize("recorded", ["imagery", "potentials"])
def test_decisions_at_markers_and_their_accuracy_are_those_for_the_file(recorded, size, request):
    model, raw, events = request.getfixturevalue(recorded)
    offline = predict_recordings(model, raw, events=events)
    online = OnlineDecoder(model, raw.info["sfreq"], raw.ch_names, events=events)
    decisions = play(online, raw, size, marks=True)
    assert len(decisions) == len(offline)
    np.testing.assert_allclose([d.probabilities for d in decisions], offline.probabilities, atol=1e-5)
    assert [d.event for d in decisions] == offline.event.tolist()
    assert [d.label for d in decisions] == offline.names.tolist()
    truth = {"T1": "left", "T2": "right"}
    hits = [d.label == truth.get(d.event, d.event) for d in decisions]
    assert np.mean(hits) == np.mean([n == truth.get(e, e) for n, e in zip(offline.names, offline.event, strict=True)])
    assert np.mean(hits) > 0.4


@pytest.mark.parametrize("size", [10, 50])
@pytest.mark.parametrize("recorded", ["imagery", "potentials"])
def test_sliding_windows_are_those_for_the_file(recorded, size, request):
    model, raw, _ = request.getfixturevalue(recorded)
    raw = raw.copy().crop(0, 40)
    offline = predict_recordings(model, raw, hop=0.1)
    decisions = play(OnlineDecoder(model, raw.info["sfreq"], raw.ch_names, hop=0.1), raw, size)
    np.testing.assert_allclose([d.probabilities for d in decisions], offline.probabilities, atol=1e-5)
