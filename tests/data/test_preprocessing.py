"""Steps one after the other: the same offline, online and after JSON."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

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
from gbwatt.data.trials import Frame, Trials
from gbwatt.errors import MismatchError, ParameterError
from tests.data.samples import FRAME, NAMES, noise


@pytest.fixture
def trials() -> Trials:
    return noise()


# ---- one after the other

CHAIN = Preprocessing(
    Reference(),
    Notch(50),
    BandPass(4, 38),
    Resample(125),
    Crop(0.6, 2.0),
    Pick(("C4", "C3")),
    Convert("mV"),
    Standardise(),
    Noise(0.01),
)


def test_trials_keep_their_labels_and_get_a_new_frame_and_history(trials):
    steps = CHAIN.fit(trials)
    done = steps(trials)
    assert done.shape == (12, 2, 175)
    assert done.frame == Frame(("C4", "C3"), 125.0, 0.6, "a.u.")
    assert done.dataset == "noise"
    np.testing.assert_array_equal(done.y, trials.y)
    assert Preprocessing.from_records(done.steps) == steps
    assert trials.steps == ()
    assert steps(trials[:0]).shape == (0, 2, 175)


def test_online_windows_get_the_bits_of_the_trials(trials):
    steps = CHAIN.fit(trials[:6])
    offline = steps(trials)
    online = Preprocessing.from_records(json.loads(json.dumps(list(offline.steps))))
    for window, expected in zip(trials.X.astype(np.float64), offline.X, strict=True):
        x, frame = online.transform(window * (1 + 1e-9), trials.frame)
        np.testing.assert_array_equal(x, expected, strict=True)
        assert frame == offline.frame
    batch, _ = online.transform(trials.X.reshape(3, 4, 4, 1000), trials.frame)
    np.testing.assert_array_equal(batch.reshape(offline.X.shape), offline.X)


def test_steps_together_do_what_they_do_one_by_one(trials):
    steps = CHAIN.fit(trials)
    done = trials
    for step in steps.steps:
        done = Preprocessing(step)(done)
    together = steps(trials)
    np.testing.assert_array_equal(done.X, together.X)
    assert done.steps == together.steps
    assert done.frame == together.frame


def test_each_step_is_fitted_on_what_those_before_it_make(trials):
    before = Preprocessing(BandPass(4, 38), Pick(("Cz",)))
    steps = (before + Standardise() + Crop(0, 1)).fit(trials)
    assert steps.steps[2] == Standardise().fit(before(trials))
    assert steps.steps[:2] == before.steps
    twice = Preprocessing(Standardise(), Standardise()).fit(trials)
    np.testing.assert_allclose(twice.steps[1].mean, 0, atol=1e-5)
    np.testing.assert_allclose(twice.steps[1].scale, 1, atol=1e-5)


def test_fitting_sees_only_the_trials_it_is_given_and_leaves_the_original_alone(trials):
    train, test = trials[:6], trials[6:]
    fitted = CHAIN.fit(train)
    loud = test.replace(X=test.X * 100)
    assert CHAIN.fit(train) == fitted != CHAIN.fit(test)
    fitted(loud)
    assert fitted == CHAIN.fit(train)
    assert fitted.fitted
    assert not CHAIN.fitted
    assert fitted.fit(test) == CHAIN.fit(test)  # anew


def test_fitting_does_not_run_steps_whose_result_nobody_learns_from(trials):
    impossible = Crop(100, 101)
    steps = Preprocessing(Standardise(), impossible).fit(trials)
    assert steps.fitted
    with pytest.raises(ParameterError, match="the trial has samples"):
        Preprocessing(impossible, Standardise()).fit(trials)


def test_no_steps_change_nothing_but_give_a_copy(trials):
    x, frame = Preprocessing().transform(trials.X, FRAME)
    np.testing.assert_array_equal(x, trials.X)
    assert not np.shares_memory(x, trials.X)
    assert frame == FRAME
    assert str(Preprocessing()) == "no preprocessing"
    assert Preprocessing().fit(trials).fitted


def test_joining_puts_the_steps_in_order():
    one, two = Preprocessing(Crop(0, 1)), Preprocessing(Notch(50), Convert("V"))
    assert one + two == Preprocessing(Crop(0, 1), Notch(50), Convert("V"))
    assert one + Notch(50) == Preprocessing(Crop(0, 1), Notch(50))
    for wrong in (lambda: Preprocessing([Notch(50)]), lambda: one + "notch", lambda: Preprocessing(Notch)):
        with pytest.raises(MismatchError, match="each argument must be a step"):
            wrong()


# ---- records


def test_all_that_is_wrong_in_records_is_reported_at_once():
    records = [
        {"step": "bandpass", "low": 4, "high": 38},
        {"step": "crop", "tmn": 0, "tmax": 1, "unit": "s"},
        {"step": "notch", "freq": 50},
        {"step": "resample", "sfreq": -1},
        {"low": 4},
        "notch",
    ]
    with pytest.raises(ParameterError) as error:
        Preprocessing.from_records(records)
    found = str(error.value).splitlines()
    expected = [
        ("records[0]", "step='bandpass' is not known", "Did you mean 'band_pass'?"),
        ("records[1]", "field of crop='tmn' is not known", "Did you mean 'tmin'?"),
        ("records[1]", "field of crop='unit' is not known"),
        ("records[1]", "crop needs 'tmin'"),
        ("records[3]", "sfreq=-1 must be positive"),
        ("records[4]", "is not a step"),
        ("records[5]", "'notch' is not a step"),
    ]
    assert len(found) == len(expected)
    for line, parts in zip(found, expected, strict=True):
        assert all(part in line for part in parts), line


def test_fields_with_a_default_may_be_left_out_of_a_record():
    assert Preprocessing.from_records([{"step": "notch", "freq": 50}]) == Preprocessing(Notch(50))


def test_a_step_that_a_user_defines_can_be_recorded_and_read(trials):
    @dataclasses.dataclass(frozen=True)
    class Gain(Step):
        factor: float
        name = "gain"

        def _apply(self, x, frame):
            return self.factor * x, frame

        def __str__(self) -> str:
            return f"gain {self.factor:g}"

    done = Preprocessing(Gain(2.0))(trials)
    np.testing.assert_array_equal(done.X, 2 * trials.X)
    assert Preprocessing.from_records(done.steps) == Preprocessing(Gain(2.0))


def test_added_noise_is_a_step_of_the_history(trials):
    from gbwatt.data.splits import add_noise

    noisy = add_noise(trials, variance=0.5, seed=7)
    again = Preprocessing.from_records(noisy.steps)(trials)
    np.testing.assert_array_equal(noisy.X, again.X)
    assert noisy.steps == again.steps


def test_numbers_of_numpy_become_plain_ones():
    steps = Preprocessing(
        BandPass(np.float32(4), np.int64(38), np.int64(3)),
        Notch(np.float64(50)),
        Pick(np.array(NAMES)),
        Standardise(np.zeros(4), np.ones(4)),
        Noise(np.float64(1), np.int64(2)),
    )
    assert json.loads(json.dumps(steps.records())) == steps.records()
    assert steps == Preprocessing(
        BandPass(4, 38, 3), Notch(50), Pick(NAMES), Standardise((0,) * 4, (1,) * 4), Noise(1, 2)
    )


def test_steps_can_be_written_as_text():
    text = (
        "highpass=1,lowpass=40,notch=50;100,resample=125,reference=A1;A2,channels=C3;Cz,crop=-0.2:0.8,standardise=0.01,"
        "unit=uV"
    )
    assert Preprocessing.parse(text) == Preprocessing(
        BandPass(1, None),
        BandPass(None, 40),
        Notch((50.0, 100.0)),
        Resample(125),
        Reference(("A1", "A2")),
        Pick(("C3", "Cz")),
        Crop(-0.2, 0.8),
        ExponentialStandardise(0.01),
        Convert("µV"),
    )
    assert Preprocessing.parse("reference=average") == Preprocessing(Reference())


@pytest.mark.parametrize(
    "text, messages",
    [
        ("", ["preprocess is empty"]),
        ("bandpas=8-30", ["Did you mean 'bandpass'"]),
        ("bandpass=8", ["'8' has no '-' between two numbers"]),
        ("bandpass=30-8", ["low=30.0 must be below high=8.0"]),
        ("resample=fast", ["'fast' is not a number"]),
        ("bandpass=8-30;resample=125", ["'8-30;resample=125' has another step; steps are separated by commas"]),
        ("channels=;", ["at least one channel is needed"]),
        ("resample", ["NAME=VALUE is needed"]),
        ("crop=4:1,notch=x", ["tmin=4.0 must be before tmax=1.0", "'x' is not a number"]),
    ],
)
def test_errors_in_a_text_of_steps_are_reported_together(text, messages):
    with pytest.raises(ParameterError) as caught:
        Preprocessing.parse(text)
    assert all(message in str(caught.value) for message in messages)


def test_steps_for_recordings_end_before_the_first_one_for_trials():
    chain = Preprocessing.parse("bandpass=8-30,crop=0.5:4,resample=125")
    first, second = chain.divide()
    assert first + second == chain
    assert first == Preprocessing(BandPass(8, 30))
    assert Preprocessing.parse("resample=125").divide()[1] == Preprocessing()


def test_channels_are_found_without_the_dots_of_padded_names():
    frame = Frame(("C3..", "Cz."), 100.0)
    x, after = Preprocessing(Pick(("cz", "C3"))).transform(np.array([[1.0], [2.0]]), frame)
    assert x.tolist() == [[2.0], [1.0]]
    assert after.ch_names == ("cz", "C3")
