"""Steps: what all have in common, and what those for channels, times and scales do."""

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
from gbwatt.errors import InputError, NotFiniteError, ParameterError, ShapeError
from tests.data.samples import FRAME, NAMES, noise, run

#: For every step one instance, and for every field of it another value that must change the result.
EXAMPLES: dict[type[Step], tuple[Step, dict[str, object]]] = {
    BandPass: (BandPass(4, 38), {"low": 6.0, "high": None, "order": 2, "causal": True}),
    Notch: (Notch(50), {"freq": (50.0, 100.0), "width": 4.0, "causal": True}),
    Reference: (Reference(), {"channels": ("Cz",)}),
    Resample: (Resample(125), {"sfreq": 100.0, "causal": True}),
    Crop: (Crop(0.5, 1.5), {"tmin": 0.6, "tmax": 1.6}),
    Pick: (Pick(["C4", "Cz"]), {"channels": ("Cz", "C4")}),
    Convert: (Convert("mV"), {"unit": "V"}),
    ExponentialStandardise: (ExponentialStandardise(), {"decay": 1e-2, "eps": 50.0, "start": 0.5}),
    Standardise: (
        Standardise((1, 2, 3, 4), (1, 1, 2, 2)),
        {"mean": (0.0, 2.0, 3.0, 4.0), "scale": (1.0, 1.0, 2.0, 3.0)},
    ),
    Noise: (Noise(0.2), {"variance": 0.3, "seed": 1}),
}
STEPS = [example for example, _ in EXAMPLES.values()]
ids = [type(step).__name__ for step in STEPS]


@pytest.fixture
def trials() -> Trials:
    return noise()


# ---- all steps


def test_every_step_has_an_example_and_every_field_another_value():
    own = {kind for kind in Step.__subclasses__() if kind.__module__.startswith("gbwatt.")}
    assert own == set(EXAMPLES)
    for kind, (_, others) in EXAMPLES.items():
        assert set(others) == {field.name for field in dataclasses.fields(kind)}
    assert len({kind.name for kind in EXAMPLES}) == len(EXAMPLES) == 10


@pytest.mark.parametrize(
    "kind, name", [(kind, name) for kind, (_, others) in EXAMPLES.items() for name in others], ids=str
)
def test_every_argument_changes_the_result(trials, kind, name):
    step, others = EXAMPLES[kind]
    x, _ = step.transform(trials.X, FRAME)
    changed, _ = dataclasses.replace(step, **{name: others[name]}).transform(trials.X, FRAME)
    assert x.shape != changed.shape or np.abs(x - changed).max() > 1e-3 * np.abs(x).max()


@pytest.mark.parametrize("step", STEPS, ids=ids)
def test_a_step_survives_json(step):
    record = step.record()
    assert json.loads(json.dumps(record)) == record
    (read,) = Preprocessing.from_records([json.loads(json.dumps(record))]).steps
    assert read == step
    assert type(read) is type(step)


@pytest.mark.parametrize("step", STEPS, ids=ids)
def test_a_step_describes_itself_in_one_line_that_its_arguments_change(step):
    assert str(step)
    assert "\n" not in str(step)
    for name, value in EXAMPLES[type(step)][1].items():
        if name not in ("mean", "scale"):  # too many numbers for a line
            assert str(dataclasses.replace(step, **{name: value})) != str(step)


@pytest.mark.parametrize("step", STEPS, ids=ids)
def test_results_are_float32_of_their_own_and_leave_the_input_alone(trials, step):
    x = trials.X.copy()
    result, frame = step.transform(x, FRAME)
    assert result.dtype == np.float32
    assert not np.shares_memory(result, x)
    np.testing.assert_array_equal(x, trials.X)
    assert result.shape[-2] == len(frame.ch_names)


@pytest.mark.parametrize("step", STEPS, ids=ids)
def test_single_windows_and_batches_get_the_same_bits(trials, step):
    offline, frame = step.transform(trials.X, FRAME)
    layouts = {
        "as it is": lambda window: window,
        "more digits": lambda window: window.astype(np.float64) * (1 + 1e-9),  # the same in float32
        "samples first": lambda window: np.asfortranarray(window),
        "every second": lambda window: np.repeat(window, 2, axis=-1)[:, ::2],
        "one in a batch": lambda window: window[None, None],
        "list": lambda window: window.tolist(),
    }
    for what, layout in layouts.items():
        for window, expected in zip(trials.X[:3], offline, strict=False):
            online, same = step.transform(layout(window), FRAME)
            np.testing.assert_array_equal(np.squeeze(online), expected, err_msg=what, strict=True)
            assert same == frame


@pytest.mark.parametrize("step", STEPS, ids=ids)
def test_no_trials_stay_no_trials(trials, step):
    one, frame = step.transform(trials.X[:1], FRAME)
    none, same = step.transform(trials.X[:0], FRAME)
    assert none.shape == (0, *one.shape[1:])
    assert same == frame


@pytest.mark.parametrize("step", STEPS, ids=ids)
def test_not_a_number_is_an_error_that_says_where(trials, step):
    x = trials.X.copy()
    x[2, 3, 500] = np.nan
    with pytest.raises(NotFiniteError, match=r"channel \w+ of trial 2; its input has such samples"):
        step.transform(x, FRAME)
    with pytest.raises(NotFiniteError, match=r"channel \w+; its input has such samples"):
        step.transform(x[2], FRAME)


def test_a_broken_channel_may_be_left_out(trials):
    x = trials.X.copy()
    x[:, 3] = np.inf
    np.testing.assert_array_equal(Pick(NAMES[:3]).transform(x, FRAME)[0], trials.X[:, :3])


def test_samples_too_large_for_the_new_unit_are_an_error():
    with pytest.raises(NotFiniteError, match=r"convert to nV: .* channel ch0 of trial 1; the samples are too large"):
        run(Convert("nV"), np.array([[[1.0]], [[1e32]]]), unit="V")


@pytest.mark.parametrize(
    "x, error",
    [
        (np.zeros((3, 250)), r"\(3, 250\) is not \(\.\.\., 4 channels, samples\)"),
        (np.zeros(250), r"\(250,\) is not"),
        (np.zeros((4, 0)), r"\(4, 0\) is not"),
        (np.zeros((4, 250), complex), "complex128; real numbers"),
    ],
    ids=["channels", "axes", "no samples", "complex"],
)
def test_what_is_no_window_is_an_error(x, error):
    for transform in (Crop(-1, -0.5).transform, Preprocessing().transform):
        with pytest.raises(InputError, match=error):
            transform(x, FRAME)


def test_descriptions_read_well():
    steps = Preprocessing(
        *STEPS, BandPass(None, 30), BandPass(1, None, 2), Reference(("A1", "A2")), Pick([*"abcdefgh"])
    )
    assert str(steps).splitlines() == [
        "band-pass 4-38 Hz (Butterworth 4, zero-phase)",
        "notch 50 Hz (2 Hz wide, zero-phase)",
        "reference to the common average",
        "resample to 125 Hz",
        "crop to 0.5 … 1.5 s",
        "pick C4, Cz",
        "convert to mV",
        "exponential standardisation (decay 0.001, deviation at least 0.0001)",
        "standardise 4 channels, as fitted",
        "add white noise of variance 0.2 (seed 0)",
        "low-pass 30 Hz (Butterworth 4, zero-phase)",
        "high-pass 1 Hz (Butterworth 2, zero-phase)",
        "reference to A1, A2",
        "pick a, b, c, …, h (8 channels)",
    ]


# ---- channels and times


def test_the_common_average_is_subtracted_and_named_channels_are_averaged(trials):
    x = trials.X.astype(np.float64)
    np.testing.assert_allclose(run(Reference(), x), x - x.mean(1, keepdims=True), atol=1e-4)
    named = Reference(["C3", "c4"]).transform(x, FRAME)[0]
    np.testing.assert_allclose(named, x - x[:, [1, 3]].mean(1, keepdims=True), atol=1e-4)
    assert np.abs(Reference(("Cz",)).transform(x, FRAME)[0][:, 2]).max() == 0


def test_picking_selects_and_orders_whatever_the_case(trials):
    x, frame = Pick(["c4", "FZ"]).transform(trials.X, FRAME)
    np.testing.assert_array_equal(x, trials.X[:, [3, 0]])
    assert frame.ch_names == ("c4", "FZ")
    back, _ = Pick(["Fz", "C4"]).transform(x, frame)
    np.testing.assert_array_equal(back, trials.X[:, [0, 3]])


def test_picking_prefers_the_exact_spelling():
    x = np.array([[1.0], [2.0], [3.0]])
    assert [float(run(Pick([name]), x, ch_names=("a1", "A1", "b"))[0, 0]) for name in ("a1", "A1", "B")] == [1, 2, 3]


@pytest.mark.parametrize("step", [Pick(("Cz", "Oz", "Pz")), Reference(("Oz", "Pz"))], ids=str)
def test_missing_channels_are_all_named_with_what_there_is(trials, step):
    with pytest.raises(ParameterError, match=r"Oz, Pz not found among the 4: Fz, C3, Cz, C4"):
        step.transform(trials.X, FRAME)


def test_cropping_takes_the_samples_at_these_times_without_the_end(trials):
    x, frame = Crop(0.5, 2).transform(trials.X, FRAME)
    times = trials.times
    np.testing.assert_array_equal(x, trials.X[..., (times > 0.499) & (times < 1.999)])
    assert frame == Frame(NAMES, 250.0, tmin=0.5)


def test_a_window_off_the_grid_begins_at_the_nearest_sample(trials):
    x, frame = Crop(0.5011, 2.0011).transform(trials.X, FRAME)
    assert frame.tmin == pytest.approx(0.5)
    np.testing.assert_array_equal(x, Crop(0.5, 2.0).transform(trials.X, FRAME)[0])


def test_cropping_twice_is_cropping_to_the_smaller_window(trials):
    once = Preprocessing(Crop(0.5, 1.5))(trials)
    twice = Preprocessing(Crop(-0.5, 2.0), Crop(0.5, 1.5))(trials)
    np.testing.assert_array_equal(once.X, twice.X)
    assert once.frame == twice.frame
    np.testing.assert_array_equal(Preprocessing(Crop(-1, 3))(trials).X, trials.X)


@pytest.mark.parametrize("tmin, tmax", [(-1.1, 1), (2, 3.01), (5, 6), (-3, -2), (0, 0.0001)])
def test_cropping_outside_the_trial_is_an_error_that_says_what_there_is(trials, tmin, tmax):
    with pytest.raises(ParameterError, match=r"the trial has samples from -1 to 3 s \(1000 at 250 Hz\)"):
        Crop(tmin, tmax).transform(trials.X, FRAME)


def test_the_window_of_bcic_2a_has_the_samples_of_the_paper():
    x, frame = Preprocessing(Resample(125), Crop(0.5, 4.0)).transform(
        np.zeros((1, 22, 1375)), Frame(tuple(map(str, range(22))), 250.0, tmin=-0.5)
    )
    assert x.shape == (1, 22, 438)
    assert (frame.sfreq, frame.tmin) == (125.0, 0.5)


# ---- scales


@pytest.mark.parametrize("unit, factor", [("V", 1e-6), ("mV", 1e-3), ("µV", 1), ("nV", 1e3), ("uV", 1), ("μV", 1)])
def test_converting_scales_and_comes_back(trials, unit, factor):
    x, frame = Convert(unit).transform(trials.X, FRAME)
    np.testing.assert_allclose(x, trials.X * factor, rtol=1e-6)
    back, same = Convert("µV").transform(x, frame)
    np.testing.assert_allclose(back, trials.X, rtol=3e-7)
    assert same == FRAME


def test_standardised_samples_have_no_voltage_to_convert(trials):
    with pytest.raises(ParameterError, match=r"'a\.u\.', which is not a voltage"):
        Preprocessing(ExponentialStandardise(), Convert("mV"))(trials)


def test_standardising_gives_training_channels_mean_zero_and_deviation_one(trials):
    step = Standardise().fit(trials)
    x, frame = step.transform(trials.X, trials.frame)
    np.testing.assert_allclose(x.mean((0, 2), dtype=np.float64), 0, atol=1e-5)
    np.testing.assert_allclose(x.std((0, 2), dtype=np.float64), 1, rtol=1e-5)
    assert frame == Frame(NAMES, 250.0, -1.0, "a.u.")


def test_a_channel_that_is_flat_in_training_is_centred_only(trials):
    x = trials.X.copy()
    x[:, 1], x[:, 2] = 0.1, 0.0
    x[:, 1, ::2] = np.nextafter(np.float32(0.1), np.float32(1))  # no more than the last digit
    step = Standardise().fit(trials.replace(X=x))
    assert step.scale[1:3] == (1.0, 1.0)
    assert step.scale[0] != 1.0
    x[:, 1] += 5
    np.testing.assert_allclose(step.transform(x, FRAME)[0][:, 1], 5, rtol=1e-6)


def test_standardising_needs_training_data_and_its_channels(trials):
    with pytest.raises(ParameterError, match=r"not fitted; call fit\(trials\)"):
        Preprocessing(Crop(0, 1), Standardise())(trials)
    with pytest.raises(ShapeError, match="fitted on 4 channels, the samples have 2"):
        Preprocessing(Pick(["C3", "C4"]), Standardise().fit(trials))(trials)
    with pytest.raises(ParameterError, match="no trials to fit"):
        Standardise().fit(trials[:0])


def test_noise_has_its_variance_and_differs_from_trial_to_trial():
    x = np.arange(50.0)[:, None, None] * np.ones((2, 500))
    noise = run(Noise(4.0, seed=3), x) - x
    assert noise.var() == pytest.approx(4.0, rel=0.03)
    between = np.corrcoef(noise.reshape(50, -1)) - np.eye(50)
    assert abs(between).max() < 0.2
    np.testing.assert_array_equal(run(Noise(0.0), noise), noise.astype(np.float32))


def test_noise_is_that_of_the_trial_wherever_it_stands(trials):
    rows = [7, 2, 2, 11]
    everywhere = run(Noise(4.0), trials.X)
    np.testing.assert_array_equal(run(Noise(4.0), trials.X[rows]), everywhere[rows])
    assert abs(np.corrcoef((everywhere - trials.X)[[2, 7]].reshape(2, -1))[0, 1]) < 0.1


def test_noise_that_is_added_twice_is_not_the_same_twice(trials):
    once = run(Noise(4.0), trials.X)
    twice = run(Noise(4.0), once)
    assert abs(np.corrcoef((once - trials.X).ravel(), (twice - once).ravel())[0, 1]) < 0.05


# ---- arguments


@pytest.mark.parametrize(
    "make, error",
    [
        (lambda: BandPass(38, 4), "low=38 must be below high=4"),
        (lambda: BandPass(4, 4), "low=4 must be below high=4"),
        (lambda: BandPass(None, None), "both None"),
        (lambda: BandPass(0, 38), "low=0 must be positive"),
        (lambda: BandPass(4, float("inf")), "high=inf must be a finite number"),
        (lambda: BandPass(4, 38, order=0), "order=0 must be a whole number, 1 or more"),
        (lambda: BandPass(4, 38, order=2.5), "order=2.5 must be a whole number"),
        (lambda: Notch(-50), "freq=-50 must be positive"),
        (lambda: Notch(()), "one or more frequencies"),
        (lambda: Notch(0.5, 2), "above width / 2 = 1 Hz"),
        (lambda: Notch(50, 0), "width=0 must be positive"),
        (lambda: Notch("50"), "freq='5' must be a finite number"),
        (lambda: Reference("Cz"), r"channels='Cz' must be a sequence of names"),
        (lambda: Reference(3), r"channels=3 must be a sequence of names"),
        (lambda: Reference(("Cz", "Cz")), "contains 'Cz' twice"),
        (lambda: Pick(("Cz", "CZ")), "contains 'Cz' twice"),
        (lambda: Pick(()), "empty; at least one"),
        (lambda: Pick((1, 2)), "must be a sequence of names"),
        (lambda: Resample(0), "sfreq=0 must be positive"),
        (lambda: Crop(2, 1), "tmin=2.0 must be before tmax=1.0"),
        (lambda: Crop(0, None), "tmax=None must be a finite number"),
        (lambda: Convert("a.u."), "unit='a.u.' is not known"),
        (lambda: Convert("mv"), "it is one of 'V', 'mV', 'µV', 'nV'"),
        (lambda: ExponentialStandardise(decay=1), "decay=1.0 must be above 0 and below 1"),
        (lambda: ExponentialStandardise(decay=0), "decay=0 must be positive"),
        (lambda: ExponentialStandardise(eps=0), "eps=0 must be positive"),
        (lambda: ExponentialStandardise(start=-1), "start=-1 must not be negative"),
        (lambda: Standardise(mean=(1, 2)), "scale=None must be a sequence of numbers; mean and scale are both needed"),
        (lambda: Standardise((1, 2), (1,)), "mean has 2 values and scale 1"),
        (lambda: Standardise((1, 2), (1, 0)), "scale must be positive"),
        (lambda: Standardise((1, np.nan), (1, 1)), "mean=nan must be a finite number"),
        (lambda: Noise(-1), "variance=-1 must not be negative"),
        (lambda: Noise(1, seed=-1), "seed=-1 must be a whole number, 0 or more"),
    ],
)
def test_wrong_arguments_are_refused_when_the_step_is_made(make, error):
    with pytest.raises(ParameterError, match=error):
        make()
