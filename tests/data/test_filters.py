"""Filters along time against closed forms, other libraries and loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal

from gbwatt.data.preprocessing import BandPass, ExponentialStandardise, Notch, Resample
from gbwatt.data.trials import Trials
from gbwatt.errors import ParameterError, ShapeError
from tests.data.samples import FRAME, middle, noise, run, sine


@pytest.fixture
def trials() -> Trials:
    return noise()


# ---- band-pass and notch


def butterworth_gain(freq: float, low: float | None, high: float | None, order: int, sfreq: float) -> float:
    """Closed form: the squared amplitude response of a Butterworth filter after the bilinear transform."""
    w, w1, w2 = (np.tan(np.pi * (f or 0.0) / sfreq) for f in (freq, low, high))
    ratio = w / w2 if low is None else w1 / w if high is None else (w * w - w1 * w2) / (w * (w2 - w1))
    return 1 / (1 + ratio ** (2 * order))


@pytest.mark.parametrize("low, high", [(4, 38), (8, None), (None, 30)])
@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.parametrize("freq", [3, 4, 8, 20, 30, 38, 60])
def test_band_pass_has_the_closed_form_gain_and_no_delay(low, high, order, freq):
    gain = butterworth_gain(freq, low, high, order, 250.0)
    filtered = run(BandPass(low, high, order), sine(freq))
    np.testing.assert_allclose(middle(filtered), gain * middle(sine(freq)), atol=2e-5)
    if freq in (low, high):
        assert gain == pytest.approx(0.5)


def test_band_pass_agrees_with_mne(trials):
    import mne

    with mne.use_log_level("ERROR"):
        settings = {"method": "iir", "iir_params": {"order": 4, "ftype": "butter", "output": "sos"}}
        theirs = mne.filter.filter_data(trials.X.astype(np.float64), 250.0, 4, 38, **settings)
    ours = run(BandPass(4, 38), trials.X)
    np.testing.assert_allclose(middle(ours), middle(theirs), atol=1e-3 * theirs.std())


def test_band_pass_takes_out_offset_and_drift_up_to_the_ends():
    offset, drift = run(BandPass(1, 40), np.stack([np.full(1000, 1e4), np.linspace(-500, 500, 1000)]))
    assert np.abs(offset).max() < 1e-6
    assert np.abs(drift).max() < 1


def test_a_margin_of_two_slow_periods_makes_filtering_trials_like_filtering_the_recording():
    recording = np.random.default_rng(1).standard_normal((2, 5000)).cumsum(-1)
    whole = run(BandPass(2, 30), recording)[:, 2000:2500]
    trial = run(BandPass(2, 30), recording[:, 1750:2750])[:, 250:750]
    unaided = run(BandPass(2, 30), recording[:, 2000:2500])
    assert np.std(trial - whole) < 3e-3 * np.std(whole) < np.std(unaided - whole)


def test_notch_takes_out_its_frequency_and_leaves_others():
    keep, hum = sine(20), sine(50) + sine(100)
    filtered = run(Notch((50, 100)), keep + hum)
    assert np.abs(middle(filtered - keep)).max() < 0.01
    assert np.abs(middle(run(Notch(50), keep + hum) - keep - sine(100))).max() < 0.01


@pytest.mark.parametrize("width", [1.0, 3.0])
def test_notch_lets_half_the_amplitude_through_half_a_width_away(width):
    for freq in (50 - width / 2, 50 + width / 2):
        np.testing.assert_allclose(middle(run(Notch(50, width), sine(freq))), 0.5 * middle(sine(freq)), atol=0.02)


@pytest.mark.parametrize("step, least", [(BandPass(4, 38), 28), (BandPass(4, None, order=2), 10), (Notch(50), 10)])
def test_windows_too_short_for_a_filter_are_an_error_that_says_how_many_samples_do(step, least):
    x = np.random.default_rng(0).standard_normal((1, least))
    assert run(step, x).shape == (1, least)
    with pytest.raises(ShapeError, match=f"{least - 1} samples are too short .* needs at least {least}"):
        run(step, x[:, 1:])


@pytest.mark.parametrize("step", [BandPass(4, 64), BandPass(70, None), Notch((50, 64))], ids=str)
def test_frequencies_from_half_the_sampling_rate_are_an_error(step):
    with pytest.raises(ParameterError, match=r"=(64|70) Hz must be below 64 Hz, half the sampling rate of 128"):
        run(step, np.zeros((1, 500)), sfreq=128.0)


# ---- resampling

RATES = [(250, 125), (200, 128), (160, 125), (128, 125), (125, 250), (512, 125)]


@pytest.mark.parametrize("old, new", RATES)
def test_resampling_agrees_with_fourier_on_band_limited_periodic_signals(old, new):
    rng = np.random.default_rng(0)
    x = sum(rng.standard_normal((3, 1)) * sine(f, old, seconds=8.0, phase=f) for f in (2, 7.5, 11, 30, 45))
    theirs = scipy.signal.resample(x, 8 * new, axis=-1)
    ours = run(Resample(new), x, sfreq=old)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(middle(ours, 0.1), middle(theirs, 0.1), atol=2e-3)


@pytest.mark.parametrize("old, new", RATES)
@pytest.mark.parametrize("n_times", [1, 2, 3, 125, 437, 1000, 1001])
def test_resampling_keeps_constants_and_has_the_rounded_length(old, new, n_times):
    n = round(n_times * new / old)
    if n:
        np.testing.assert_allclose(run(Resample(new), np.full((2, n_times), 5e4), sfreq=old), np.full((2, n), 5e4))
    else:
        with pytest.raises(ShapeError, match="less than one at"):
            run(Resample(new), np.ones((2, n_times)), sfreq=old)


@pytest.mark.parametrize("old, new", RATES)
def test_resampling_does_not_ring_at_the_ends(old, new):
    t_old, t_new = np.arange(4 * old) / old, np.arange(4 * new) / new
    drift, slow = 1e3 + 200 * t_old, np.cos(2 * np.pi * 3.3 * t_old)
    found = run(Resample(new), np.stack([drift, slow]), sfreq=old)
    np.testing.assert_allclose(found[0], 1e3 + 200 * t_new, atol=0.1)
    np.testing.assert_allclose(found[1], np.cos(2 * np.pi * 3.3 * t_new), atol=0.02)


@pytest.mark.parametrize("freq", [75, 90, 115])
def test_resampling_takes_out_what_the_new_rate_cannot_hold(freq):
    assert np.abs(middle(run(Resample(125), sine(freq)))).max() < 2e-4


def test_resampling_to_the_same_rate_changes_nothing(trials):
    np.testing.assert_array_equal(run(Resample(250), trials.X), trials.X)


def test_rates_without_a_ratio_of_whole_numbers_are_an_error_that_offers_a_rate():
    with pytest.raises(ParameterError, match=r"ratio of whole numbers up to 1000; use 99\.0\d+ Hz") as error:
        run(Resample(99.0123456), np.zeros((1, 500)))
    offered = float(str(error.value).split("use ")[1].split(" Hz")[0])
    run(Resample(offered), np.zeros((1, 500)))
    with pytest.raises(ParameterError, match=r"use 0\.25 Hz"):
        run(Resample(0.01), np.zeros((1, 500)))


# ---- running standardisation


@pytest.mark.parametrize("start", [0.0, 0.4])
@pytest.mark.parametrize("decay", [1e-3, 0.2])
def test_exponential_standardisation_is_the_recursion(start, decay):
    x = np.random.default_rng(0).standard_normal(300).cumsum() + 40
    n, expected = round(start * 250), []
    left, mean, variance = (1.0, x[:n].mean(), x[:n].var()) if n else (0.0, 0.0, 0.0)
    for sample in x:
        left = 1.0 if n else (1 - decay) * left + decay  # sum of the weights
        mean = (1 - decay) * mean + decay * sample
        variance = (1 - decay) * variance + decay * (sample - mean / left) ** 2
        expected.append((sample - mean / left) / max(np.sqrt(variance / left), 1e-4))
    found = run(ExponentialStandardise(decay, start=start), x[None])
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5)


def test_exponential_standardisation_agrees_with_pandas(trials):
    import pandas as pd

    x = trials.X[0].astype(np.float64).T
    centred = x - pd.DataFrame(x).ewm(alpha=1e-2).mean().to_numpy()
    deviation = np.sqrt(pd.DataFrame(centred**2).ewm(alpha=1e-2).mean().to_numpy())
    found = run(ExponentialStandardise(1e-2), trials.X[0])
    np.testing.assert_allclose(found, (centred / np.maximum(deviation, 1e-4)).T, rtol=1e-5, atol=1e-5)


def test_exponential_standardisation_does_not_look_ahead(trials):
    step, x = ExponentialStandardise(), trials.X.copy()
    before = run(step, x)
    x[..., 600:] += 1e3
    after = run(step, x)
    np.testing.assert_array_equal(before[..., :600], after[..., :600])
    assert (before[..., 600] != after[..., 600]).all()


def test_exponential_standardisation_makes_flat_channels_zero_and_has_no_unit():
    x, frame = ExponentialStandardise().transform(np.full((1, 4, 500), 7.0), FRAME)
    assert np.abs(x).max() < 1e-6
    assert frame.unit == "a.u."


@pytest.mark.parametrize("start", [5.0, 0.001])
def test_a_start_that_the_window_does_not_have_is_an_error(start):
    with pytest.raises(ParameterError, match=r"samples at 250 Hz; 1 to 1000 are allowed"):
        run(ExponentialStandardise(start=start), np.zeros((1, 1000)))
