"""What is in the windows: units, channels, times, frequencies."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

from gbwatt.clinical.corpora import MONTAGES, Corpus, build
from gbwatt.clinical.corpora.layout import TUAB
from gbwatt.clinical.corpora.windows import cut, preprocessing, read_windows
from tests.clinical.corpora.synthetic import ELECTRODES, background, write_edf, write_rec, write_tuev

PLACE = {name: place for place, name in enumerate(ELECTRODES)}


def sine(freq, seconds, sfreq, amplitude=50.0, phase=0.0):
    return amplitude * np.sin(2 * np.pi * freq * np.arange(round(seconds * sfreq)) / sfreq + phase)


@pytest.fixture
def tuab_with(tmp_path):
    """The windows of one recording, whose samples are given by electrode; noise elsewhere."""

    def make(montage="bipolar16", sfreq=250.0, seconds=32.0, notch=60.0, **waves):
        x = 1e-1 * background(np.random.default_rng(0), seconds, sfreq)
        for name, wave in waves.items():
            x[PLACE[name]] = wave
        write_edf(tmp_path / "x.edf", x, sfreq)
        x, starts, _ = read_windows(tmp_path / "x.edf", None, 0, TUAB, MONTAGES[montage], preprocessing(notch))
        return np.stack([*cut(x, starts, 2000)])

    return make


@pytest.mark.parametrize("sfreq", [200.0, 250.0, 256.0, 400.0, 512.0])
def test_a_wave_keeps_its_amplitude_and_time_at_any_rate(tuab_with, sfreq):
    """20 µV at 10 Hz between FP1 and F7 are that in the first channel, window after window; the rest is dropped."""
    windows = tuab_with(
        sfreq=sfreq, FP1=sine(10, 32, sfreq, 50), F7=sine(10, 32, sfreq, 30), F3=sine(10, 32, sfreq, 49)
    )
    assert windows.shape == (3, 16, 2000)
    expected = sine(10, 30, 200, 20).reshape(3, 2000)
    np.testing.assert_allclose(windows[:, 0, 100:-100], expected[:, 100:-100], atol=1.0)
    names = MONTAGES["bipolar16"].ch_names
    assert np.abs(windows[:, names.index("FP1-F3")]).max() < 2


def test_every_channel_is_the_difference_that_its_name_says(tuab_with):
    sizes = {name: 5.0 * (place + 1) for place, name in enumerate(ELECTRODES)}
    waves = {name: sine(10, 32, 250, size) for name, size in sizes.items()}
    windows = tuab_with(**waves)
    for place, name in enumerate(MONTAGES["bipolar16"].ch_names):
        first, second = name.split("-")
        found = np.sqrt(2) * windows[1, place].std() * np.sign(windows[1, place, 5])
        assert found == pytest.approx(sizes[first] - sizes[second], rel=0.02, abs=0.2)


def test_referential_channels_are_the_electrodes(tuab_with):
    windows = tuab_with(montage="referential23", CZ=sine(10, 32, 250, 40))
    place = MONTAGES["referential23"].ch_names.index("CZ")
    assert np.sqrt(2) * windows[1, place].std() == pytest.approx(40, rel=0.02)
    assert np.delete(windows[1], place, axis=0).std(axis=1).max() < 3


@pytest.mark.parametrize(
    ("freq", "notch", "passes"),
    [
        (0.5, 60, True),
        (30, 60, True),
        (70, 60, True),
        (60, 60, False),
        (50, 60, True),
        (50, 50, False),
        (90, 60, False),
    ],
)
def test_the_band_passes_and_the_mains_do_not(tuab_with, freq, notch, passes):
    windows = tuab_with(montage="referential23", notch=notch, CZ=sine(freq, 32, 250, 40))
    found = np.sqrt(2) * windows[1, MONTAGES["referential23"].ch_names.index("CZ")].std()
    assert found > 20 if passes else found < 5


def test_offsets_are_taken_out(tuab_with):
    windows = tuab_with(montage="referential23", CZ=3000 + sine(10, 32, 250, 40))
    assert np.abs(windows[:, MONTAGES["referential23"].ch_names.index("CZ")].mean()) < 1


# ---- events


@pytest.fixture
def tuev_with(tmp_path):
    """The windows of one recording with a sharp wave at some time, for events at others."""

    def make(peak, lines, seconds=30.0):
        root = write_tuev(tmp_path / "tuev", train=1, evaluation=1, seconds=10, events=2)
        file = root / "edf/train/aaaaaaaa/aaaaaaaa_00000001.edf"
        x = 1e-1 * background(np.random.default_rng(0), seconds, 250)
        x[PLACE["CZ"]] = 200 * np.exp(-0.5 * ((np.arange(x.shape[1]) / 250 - peak) / 0.05) ** 2)
        write_edf(file, x, 250)
        write_rec(file.with_suffix(".rec"), lines)
        build(root, tmp_path / "cache", corpus="tuev", montage="referential23")
        part = Corpus.open(tmp_path / "cache").part("train", valid_fraction=0)
        windows, labels = part.read(range(len(part)))
        return windows[:, MONTAGES["referential23"].ch_names.index("CZ")], labels

    return make


def test_the_middle_of_an_event_is_the_middle_of_its_window(tuev_with):
    windows, labels = tuev_with(12.5, [(0, 12.0, 13.0, 4)])
    assert windows.shape == (1, 1000)
    assert labels.tolist() == [3]
    assert abs(int(windows[0].argmax()) - 500) <= 1


def test_windows_at_the_ends_are_moved_inside(tuev_with):
    windows, _ = tuev_with(0.5, [(0, 0.0, 1.0, 1), (0, 29.0, 30.0, 6)])
    assert abs(int(windows[0].argmax()) - 100) <= 1  # half a second after the beginning
    assert np.abs(windows[1]).max() < 50


def test_every_annotation_is_a_window_also_of_one_time(tuev_with):
    lines = [(0, 12.0, 13.0, 1), (1, 12.0, 13.0, 1), (5, 12.0, 13.0, 6)]
    windows, labels = tuev_with(12.5, lines)
    assert labels.tolist() == [0, 0, 5]
    np.testing.assert_array_equal(windows[0], windows[1])


def test_long_events_have_one_window_in_their_middle(tuev_with):
    windows, _ = tuev_with(15.0, [(0, 5.0, 25.0, 6)])
    assert abs(int(windows[0].argmax()) - 500) <= 1


# ---- the synthetic corpora have something to learn


def power(windows, low, high):
    freqs, density = signal.welch(windows, 200, nperseg=400)
    return density[..., (freqs >= low) & (freqs < high)].sum(-1).mean(-1)


def test_synthetic_abnormal_recordings_have_more_slow_power(caches):
    part = Corpus.open(caches["tuab"]).part("train", valid_fraction=0)
    windows, labels = part.read(range(len(part)))
    slow = power(windows, 1, 4) / power(windows, 8, 12)
    assert slow[labels == 1].min() > slow[labels == 0].max()


def test_synthetic_events_have_waveforms_of_their_own(caches):
    part = Corpus.open(caches["tuev"]).part("train", valid_fraction=0)
    windows, labels = part.read(range(len(part)))
    size = np.log(np.abs(windows).max(-1))  # (n, 16)
    patterns = np.stack([size[labels == label].mean(0) for label in range(6)])
    nearest = ((size[:, None] - patterns) ** 2).sum(-1).argmin(1)
    assert (nearest == labels).mean() > 0.7
