"""Trials as MNE's epochs and MOABB's arrays, and back."""

from __future__ import annotations

import mne
import numpy as np
import pandas as pd
import pytest

from gbwatt.data.preprocessing import Preprocessing
from gbwatt.data.trials import Trials
from gbwatt.errors import InputError, MismatchError, ParameterError
from tests.data.test_trials import OTHER, TRUTH, make

FIELDS = ("class_names", "ch_names", "sfreq", "tmin", "unit", "dataset", "steps", "truths")
ROWS = ("y", "subject", "session", "run", "group")
STEPS = ({"step": "pick", "channels": ("C3", "Cz", "C4")},)
TRUTHS = {1: TRUTH, 2: OTHER}


def assert_same(one: Trials, other: Trials) -> None:
    for name in FIELDS:
        assert getattr(one, name) == getattr(other, name), name
    for name in ROWS:
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
    np.testing.assert_allclose(one.X, other.X, rtol=2e-7)  # float32 rounding


def full(**changes) -> Trials:
    values = {"subject": [1, 2] * 4, "group": np.arange(8) // 2, "dataset": "mine", "steps": STEPS, "truths": TRUTHS}
    return make(**{**values, **changes})


# ---- MNE


@pytest.mark.parametrize("unit", ["µV", "a.u."])
@pytest.mark.parametrize("tmin, sfreq", [(0.0, 100), (-0.3, 128), (0.5, 125)])  # the last is half a sample
def test_round_trip_through_mne_is_exact(unit, tmin, sfreq):
    trials = full(unit=unit, tmin=tmin, sfreq=sfreq)
    assert_same(Trials.from_mne(trials.to_mne()), trials)


@pytest.mark.parametrize("unit", ["µV", "a.u."])
def test_round_trip_through_a_file_of_mne_is_exact(tmp_path, unit):
    trials = full(unit=unit, tmin=0.5, sfreq=125)
    trials.to_mne().save(tmp_path / "mine-epo.fif", verbose="ERROR")
    assert_same(Trials.from_mne(mne.read_epochs(tmp_path / "mine-epo.fif", verbose="ERROR")), trials)


def test_epochs_are_in_volts_with_events_metadata_and_positions():
    trials = full(tmin=-0.1)
    epochs = trials.to_mne()
    np.testing.assert_allclose(epochs.get_data() * 1e6, trials.X, rtol=1e-6)
    assert epochs.event_id == {"left": 1, "right": 2, "feet": 3}
    assert epochs.events[:, 2].tolist() == (trials.y + 1).tolist()
    assert list(epochs.metadata) == ["subject", "session", "run", "group", "label"]
    assert epochs.metadata["label"].tolist() == trials.labels.tolist()
    assert epochs.baseline is None
    assert epochs.tmin == pytest.approx(-0.1)
    assert epochs.get_montage() is not None
    assert len(epochs["left"]) == 3


@pytest.mark.parametrize("unit, volts", [("V", 1.0), ("mV", 1e-3), ("nV", 1e-9)])
def test_other_units_become_volts_and_then_microvolts(unit, volts):
    trials = make(unit=unit, X=make().X * 1e-5 / volts)
    np.testing.assert_allclose(trials.to_mne().get_data(), trials.X * volts, rtol=1e-6)
    back = Trials.from_mne(trials.to_mne())
    assert back.unit == "µV"
    np.testing.assert_allclose(back.X, trials.X * volts * 1e6, rtol=1e-6)


def test_arbitrary_units_are_not_scaled():
    trials = make(unit="a.u.")
    np.testing.assert_array_equal(trials.to_mne().get_data(), trials.X)


def test_unknown_electrodes_have_no_position():
    assert make(ch_names=("C3", "Cz", "mine")).to_mne().get_montage() is None


def test_class_without_trials_survives_the_round_trip():
    trials = make()[[0, 2]]  # none of class 1
    assert Trials.from_mne(trials.to_mne()).labels.tolist() == ["left", "feet"]
    assert Trials.from_mne(trials.to_mne()).class_names == trials.class_names


def test_no_trials_are_no_epochs():
    with pytest.raises(ParameterError, match="no trials"):
        make()[[]].to_mne()


def foreign(**options) -> mne.EpochsArray:
    """Epochs that another program made: EEG and EOG, odd codes, no metadata."""
    x = np.random.default_rng(0).standard_normal((6, 3, 30)) * 1e-5
    info = mne.create_info(["Oz", "EOG", "Pz"], 100.0, ["eeg", "eog", "eeg"])
    events = np.column_stack([np.arange(6) * 30, np.zeros(6, int), [20, 4, 20, 4, 20, 20]])
    return mne.EpochsArray(x, info, events, event_id={"high": 20, "low": 4}, verbose="ERROR", **options)


def test_foreign_epochs_have_the_eeg_channels_and_classes_in_order_of_codes():
    trials = Trials.from_mne(foreign(), subject=4, session="day", run="a", group=[0, 0, 1, 1, 2, 2], dataset="theirs")
    assert trials.ch_names == ("Oz", "Pz")
    assert trials.class_names == ("low", "high")
    assert trials.labels.tolist() == ["high", "low", "high", "low", "high", "high"]
    np.testing.assert_allclose(trials.X, foreign().get_data()[:, [0, 2]] * 1e6, rtol=1e-6)
    assert (trials.subject[0], trials.session[0], trials.run[0], trials.dataset) == (4, "day", "a", "theirs")
    assert trials.group.tolist() == [0, 0, 1, 1, 2, 2]


def test_metadata_goes_before_arguments():
    epochs = foreign(metadata=pd.DataFrame({"subject": range(6), "session": list("aabbcc"), "age": 30}))
    trials = Trials.from_mne(epochs, subject=9, run="7")
    assert trials.subject.tolist() == list(range(6))
    assert trials.session.tolist() == list("aabbcc")
    assert set(trials.run.tolist()) == {"7"}


def test_bad_channels_are_left_out_unless_they_are_asked_for():
    epochs = foreign()
    epochs.info["bads"] = ["Oz"]
    assert Trials.from_mne(epochs).ch_names == ("Pz",)
    assert Trials.from_mne(epochs, channels=["Pz", "Oz"]).ch_names == ("Pz", "Oz")


def test_rejected_epochs_are_left_out_and_the_epochs_stay_as_they_were():
    x = np.zeros((2, 600))
    x[:, 250:260] = 1e-3
    x[:, ::2] += 1e-6
    raw = mne.io.RawArray(x, mne.create_info(2, 100.0, "eeg"), verbose="ERROR")
    events = np.array([[100, 0, 1], [200, 0, 2], [400, 0, 2]])
    epochs = mne.Epochs(raw, events, {"a": 1, "b": 2}, 0, 0.99, baseline=None, reject={"eeg": 5e-4}, verbose="ERROR")
    assert Trials.from_mne(epochs).labels.tolist() == ["a", "b"]
    assert len(epochs.events) == 3
    everything = epochs.copy().drop_bad(reject={"eeg": 1e-9}, verbose="ERROR")
    with pytest.raises(ParameterError, match="all 3 epochs were rejected"):
        Trials.from_mne(everything)


def test_epochs_that_were_cropped_in_mne_start_where_they_do():
    epochs = full(tmin=0.5, sfreq=125).to_mne().crop(0.52, None, verbose="ERROR")
    assert Trials.from_mne(epochs).tmin == pytest.approx(0.52)


CHANGES = {
    "filter": (lambda e: e.filter(8, 13, verbose="ERROR"), {"highpass": 8.0, "lowpass": 13.0}),
    "resample": (lambda e: e.resample(50, verbose="ERROR"), {"lowpass": 25.0, "sfreq": 50.0, "n_times": 50}),
    "crop": (lambda e: e.crop(0.2, 0.49, verbose="ERROR"), {"tmin": 0.2, "n_times": 30}),
    "reference": (lambda e: e.set_eeg_reference(["Cz"], verbose="ERROR"), {"custom_ref_applied": 1}),
    "projection": (
        lambda e: e.set_eeg_reference(projection=True, verbose="ERROR").apply_proj(verbose="ERROR"),
        {"projections": 1},
    ),
    "baseline": (lambda e: e.apply_baseline((0, 0.3), verbose="ERROR"), {"baseline": (0, 0.3)}),
}


@pytest.mark.parametrize("in_file", [False, True], ids=["memory", "file"])
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.filterwarnings("ignore:.*flat channels. Cz")  # the reference
def test_what_was_done_in_mne_is_a_step_of_the_history(tmp_path, what, in_file):
    change, differs = CHANGES[what]
    trials = full(X=np.random.default_rng(0).standard_normal((8, 3, 100)))
    epochs = change(trials.to_mne())
    if in_file:
        epochs.save(tmp_path / "mine-epo.fif", verbose="ERROR")
        epochs = mne.read_epochs(tmp_path / "mine-epo.fif", proj=False, verbose="ERROR")
    found = Trials.from_mne(epochs)
    assert found.steps[:-1] == trials.steps
    assert found.steps[-1]["step"] == "mne"
    assert set(found.steps[-1]) == {"step", *differs}
    for name, value in differs.items():
        assert found.steps[-1][name] == pytest.approx(value), name
    assert Trials.from_mne(found.to_mne()).steps == found.steps  # told once


def test_what_was_chosen_on_the_way_back_from_mne_is_a_step_that_can_be_taken_again():
    trials = full(unit="mV")
    found = Trials.from_mne(trials.to_mne(), channels=["C4", "C3"])
    assert found.steps[1:] == ({"step": "pick", "channels": ("C4", "C3")}, {"step": "convert", "unit": "µV"})
    again = Preprocessing.from_records(found.steps[1:])(trials)
    assert_same(again, found)


def test_channels_that_have_other_names_after_mne_are_told():
    epochs = full().to_mne().rename_channels({"C4": "C6"}, verbose="ERROR")
    assert Trials.from_mne(epochs).steps[-1] == {"step": "mne", "channels": ("C3", "Cz", "C6")}


def test_truths_of_subjects_whose_epochs_are_gone_are_gone():
    epochs = full().to_mne()
    assert Trials.from_mne(epochs[::2]).truths == {1: TRUTH}
    epochs.metadata = None
    assert Trials.from_mne(epochs, subject=2).truth == OTHER


def test_epochs_without_eeg_are_an_error():
    with pytest.raises(ParameterError, match=r"no good EEG channel, only eog"):
        Trials.from_mne(foreign().pick(["EOG"]))


def test_unknown_channels_are_an_error():
    with pytest.raises(ParameterError, match=r"channels='O1'.*'Oz'"):
        Trials.from_mne(foreign(), channels=["O1"])


def test_channels_of_two_units_are_an_error():
    epochs = (
        make(unit="a.u.").to_mne().add_channels([make(ch_names=("Oz", "O1", "O2")).to_mne()], force_update_info=True)
    )
    with pytest.raises(MismatchError, match="some channels are in volts"):
        Trials.from_mne(epochs)
    assert Trials.from_mne(epochs, channels=["Oz"]).unit == "µV"


# ---- MOABB


def test_round_trip_through_moabbs_form_is_exact():
    trials = full(group=[5, 5, 0, 0, 0, 1, 1, 2])
    x, y, metadata = trials.to_moabb()
    assert (x.dtype, x.shape) == (np.float64, (8, 3, 20))
    assert list(metadata) == ["subject", "session", "run", "group"]
    rest = {"class_names": trials.class_names, "dataset": "mine", "steps": STEPS, "truths": TRUTHS}
    assert_same(Trials.from_moabb(x, y, metadata, trials.ch_names, trials.sfreq, **rest), trials)


def test_moabbs_form_is_in_microvolts_or_arbitrary_units():
    np.testing.assert_allclose(make(unit="V").to_moabb()[0], make().X * 1e6, rtol=1e-6)
    np.testing.assert_array_equal(make(unit="a.u.").to_moabb()[0], make().X)


def test_classes_of_moabbs_labels_are_sorted_unless_given():
    x, y, metadata = make().to_moabb()
    metadata["session"] = "0train"
    metadata["run"] = "0"
    trials = Trials.from_moabb(x, y, metadata, make().ch_names, 100, tmin=2.0)
    assert trials.class_names == ("feet", "left", "right")
    assert trials.labels.tolist() == y.tolist()
    assert set(trials.session.tolist()) == {"0train"}
    assert trials.tmin == 2.0


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda x, y, m: (np.stack([x, x], -1), y, m), "filter bank"),
        (lambda x, y, m: (x, y[:-1], m), r"'y' \(7,\)"),
        (lambda x, y, m: (x, y, m[:-1]), r"'subject' \(7,\)"),
        (lambda x, y, m: (x, y, m.drop(columns="run")), "'run' is missing"),
        (lambda x, y, m: (x, np.full(8, "hand"), m), "y='hand'"),
    ],
)
def test_what_does_not_belong_together_is_an_error(change, message):
    x, y, metadata = change(*make().to_moabb())
    with pytest.raises(InputError, match=message):
        Trials.from_moabb(x, y, metadata, make().ch_names, 100, class_names=make().class_names)
