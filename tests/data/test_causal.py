"""Causal preprocessing: the same samples for chunks of any size, offline and online."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal

from gbwatt.data.preprocessing import (
    BandPass,
    Convert,
    Crop,
    ExponentialStandardise,
    Noise,
    Notch,
    Pick,
    Preprocessing,
    Reference,
    Resample,
    Standardise,
    Step,
)
from gbwatt.data.trials import Frame
from gbwatt.errors import ParameterError, ShapeError
from tests.data.samples import FRAME, NAMES

CAUSAL = {
    "band-pass": BandPass(8, 30, causal=True),
    "high-pass": BandPass(0.5, None, causal=True),
    "low-pass": BandPass(None, 40, order=2, causal=True),
    "notch": Notch((50, 100), causal=True),
    "decimation": Resample(125, causal=True),
    "rational rate": Resample(160, causal=True),
    "higher rate": Resample(512, causal=True),
    "same rate": Resample(FRAME.sfreq, causal=True),
    "average reference": Reference(),
    "channels": Pick((NAMES[2], NAMES[0])),
    "unit": Convert("mV"),
    "running standardisation": ExponentialStandardise(0.01),
    "standardisation": Standardise((1, 2, 3, 4), (1, 1, 2, 2)),
}
CHAIN = Preprocessing(
    Notch(50), BandPass(4, 38), Resample(125), Reference(), Pick(NAMES[:3]), ExponentialStandardise(), causal=True
)


def recording(n_times: int = 1500, offset: float = 2e4) -> np.ndarray:
    """Noise with offsets that are large compared to it, as in a raw recording in µV."""
    generator = np.random.default_rng(0)
    return generator.standard_normal((len(NAMES), n_times)) * 20 + offset * np.arange(1, len(NAMES) + 1)[:, None]


def in_chunks(chain: Preprocessing, x: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Samples of a stream to which chunks of these sizes are pushed in turn."""
    stream, parts, start, turn = chain.stream(FRAME), [], 0, 0
    while start < x.shape[1]:
        size = sizes[turn % len(sizes)]
        parts.append(stream.push(x[:, start : start + size]))
        start, turn = start + size, turn + 1
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("sizes", [[1], [10], [50], [1, 0, 7, 300], [10**6]], ids=str)
@pytest.mark.parametrize("step", [*CAUSAL.values(), CHAIN], ids=[*CAUSAL, "chain"])
def test_chunks_of_any_size_give_the_samples_of_the_whole_recording(step, sizes):
    chain = step if isinstance(step, Preprocessing) else Preprocessing(step)
    x = recording()
    offline, frame = chain.transform(x, FRAME)
    np.testing.assert_array_equal(in_chunks(chain, x, sizes), offline, strict=True)
    assert chain.stream(FRAME).frame == frame
    assert chain.is_causal


@pytest.mark.parametrize("step", CAUSAL.values(), ids=CAUSAL)
def test_later_samples_do_not_matter(step):
    x = recording()
    changed = x.copy()
    changed[:, 1000:] = np.random.default_rng(1).standard_normal((len(NAMES), 500)) * 1e3
    (one, frame), (other, _) = step.transform(x, FRAME), step.transform(changed, FRAME)
    known = int(1000 * frame.sfreq / FRAME.sfreq)
    np.testing.assert_array_equal(one[:, :known], other[:, :known])
    assert not np.array_equal(one[:, known:], other[:, known:])


@pytest.mark.parametrize("step", [BandPass(8, 30), BandPass(0.5, None), BandPass(None, 40), Notch(50)], ids=str)
def test_a_causal_filter_has_half_the_attenuation_of_the_zero_phase_filter(step):
    """In decibels, at every frequency: one direction instead of two."""
    impulse = np.zeros((len(NAMES), 2**15))
    impulse[:, 2**14] = 1.0
    twice, once = (np.abs(np.fft.rfft(one.transform(impulse, FRAME)[0][0])) for one in (step, step.as_causal()))
    np.testing.assert_allclose(once**2, twice, atol=2e-4)


@pytest.mark.parametrize("sfreq", [125.0, 160.0, 100.0])
def test_causal_resampling_keeps_offsets_and_slow_waves_and_removes_aliases(sfreq):
    step, t = Resample(sfreq, causal=True), np.arange(5000) / FRAME.sfreq
    constant, _ = step.transform(np.full((len(NAMES), 5000), 3e4), FRAME)
    np.testing.assert_array_equal(constant, np.float32(3e4))
    for freq, gain in ((0.2 * sfreq, 1.0), (0.3 * sfreq, 1.0), (0.5 * sfreq + 0.01, 0.0)):
        wave, frame = step.transform(np.tile(np.sin(2 * np.pi * freq * t), (len(NAMES), 1)), FRAME)
        settled = wave[0, wave.shape[1] // 2 :]
        assert abs(np.sqrt(2) * settled.std() - gain) < 0.01
    assert frame.sfreq == sfreq


def test_the_delay_of_causal_resampling_is_as_documented():
    for sfreq in (125.0, 50.0, 25.0):
        t = np.arange(5000) / FRAME.sfreq
        wave, _ = Resample(sfreq, causal=True).transform(np.tile(t, (len(NAMES), 1)), FRAME)  # a ramp shows its delay
        delay = (np.arange(wave.shape[1]) / sfreq - wave[0])[-1] * sfreq
        assert 1.2 < delay < 1.8


def test_a_filter_starts_in_the_steady_state_of_the_first_sample():
    constant = np.full((len(NAMES), 200), 5e4)
    np.testing.assert_allclose(BandPass(1, 40, causal=True).transform(constant, FRAME)[0], 0, atol=1e-3)
    np.testing.assert_allclose(BandPass(None, 40, causal=True).transform(constant, FRAME)[0], 5e4, rtol=1e-6)


def test_a_causal_band_pass_is_that_of_scipy():
    x = recording(offset=0.0)
    x -= x[:, :1]  # so that the steady state of the first sample is zero
    sections = scipy.signal.butter(4, (8, 30), "bandpass", fs=FRAME.sfreq, output="sos")
    expected = scipy.signal.sosfilt(sections, x.astype(np.float32).astype(float))
    np.testing.assert_allclose(BandPass(8, 30, causal=True).transform(x, FRAME)[0], expected, rtol=1e-5, atol=1e-5)


def test_causal_makes_every_step_causal():
    chain = Preprocessing(BandPass(4, 38), Notch(50), Resample(125), ExponentialStandardise(start=0.5), Crop(0, 1))
    assert not chain.is_causal
    causal = Preprocessing(*chain.steps, causal=True)
    assert causal.is_causal
    assert all(step.is_causal for step in causal.steps)
    assert Preprocessing.from_records(causal.records()) == causal
    assert Preprocessing.parse("bandpass=4-38,notch=50,resample=125,causal") == Preprocessing(
        BandPass(4, 38), Notch(50), Resample(125), causal=True
    )


def test_records_of_zero_phase_steps_are_those_of_earlier_versions():
    """Otherwise models that were saved before would not accept the same recordings."""
    assert BandPass(8, 30).record() == {"step": "band_pass", "low": 8.0, "high": 30.0, "order": 4}
    assert Notch(50).record() == {"step": "notch", "freq": [50.0], "width": 2.0}
    assert Resample(125).record() == {"step": "resample", "sfreq": 125.0}
    assert BandPass(8, 30, causal=True).record()["causal"] is True


@pytest.mark.parametrize("step", [BandPass(8, 30), Notch(50), Resample(125), ExponentialStandardise(start=1)], ids=str)
def test_a_step_that_needs_later_samples_has_no_stream(step):
    with pytest.raises(ParameterError, match=r"needs later samples.*causal=True.*--preprocess"):
        Preprocessing(step).stream(FRAME)


@pytest.mark.parametrize("step", [Crop(0, 1), Noise(1.0)], ids=str)
def test_a_step_for_trials_has_no_stream(step):
    with pytest.raises(ParameterError, match="no form for running recordings"):
        Preprocessing(step).stream(FRAME)


def test_a_step_of_a_user_has_no_stream_unless_it_says_so():
    class Absolute(Step):
        name = "absolute of a user"

        def _apply(self, x, frame):
            return np.abs(x), frame

        def __str__(self):
            return "absolute"

    try:
        with pytest.raises(ParameterError, match=r"absolute: .*no form for running recordings"):
            Preprocessing(Absolute()).stream(FRAME)
        Absolute.pointwise = True
        x = recording()
        np.testing.assert_array_equal(in_chunks(Preprocessing(Absolute()), x, [7]), np.abs(x).astype(np.float32))
    finally:
        del Absolute


@pytest.mark.parametrize("wrong", [np.zeros(4), np.zeros((3, 5)), np.zeros((2, 4, 5))], ids=lambda x: str(x.shape))
def test_chunks_of_another_shape_are_an_error(wrong):
    with pytest.raises(ShapeError, match=r"is not \(4 channels, samples\)"):
        CHAIN.stream(FRAME).push(wrong)


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_causal_is_true_or_false(value):
    with pytest.raises(ParameterError, match=r"causal=.* must be True or False"):
        BandPass(8, 30, causal=value)


def test_edges_are_compared_with_the_sampling_rate_when_a_stream_begins():
    with pytest.raises(ParameterError, match="half the sampling rate"):
        Preprocessing(BandPass(8, 30, causal=True)).stream(Frame(NAMES, 50.0))
