"""The container of trials."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import tempfile

import joblib
import numpy as np
import pytest
import sklearn.base
from sklearn.preprocessing import FunctionTransformer

from gbwatt.data.preprocessing import Preprocessing
from gbwatt.data.splits import Split
from gbwatt.data.trials import UNITS, Effect, Frame, Trials, Truth, concatenate
from gbwatt.errors import DataWarning, MismatchError, NotFiniteError, ParameterError, ShapeError

TRUTH = Truth(
    ch_names=("C3", "Cz", "C4"),
    effects={"left": (Effect("desynchronisation", ("C4",), (8.0, 12.0), (0.5, 2.0), (0.1, 0.2, 1.0)),)},
    difficulty=0.5,
    seed=3,
)
OTHER = dataclasses.replace(TRUTH, seed=4)


def make(n: int = 8, **changes) -> Trials:
    values = {
        "X": np.random.default_rng(0).standard_normal((n, 3, 20)),
        "y": np.arange(n) % 3,
        "class_names": ("left", "right", "feet"),
        "ch_names": ("C3", "Cz", "C4"),
        "sfreq": 100,
        "session": np.where(np.arange(n) < n // 2, "T", "E"),
        "run": (np.arange(n) // 2).astype(str),
    }
    return Trials(**{**values, **changes})


# ---- what it holds


def test_fields_are_brought_into_one_form():
    trials = make(subject=3, run=2)
    assert trials.X.dtype == np.float32
    assert trials.y.dtype == np.int64
    assert isinstance(trials.sfreq, float)
    assert trials.subject.tolist() == [3] * 8
    assert trials.run.tolist() == ["2"] * 8
    assert trials.group.tolist() == list(range(8))


def test_one_group_for_all_is_one_group():
    assert set(make(group=7).group.tolist()) == {7}


def test_times_shape_labels_and_frame_describe_the_samples():
    trials = make(tmin=-0.5)
    assert trials.shape == (8, 3, 20)
    assert len(trials) == 8
    np.testing.assert_allclose(trials.times[[0, -1]], [-0.5, -0.31])
    assert trials.labels[:4].tolist() == ["left", "right", "feet", "left"]
    assert trials.frame == Frame(("C3", "Cz", "C4"), 100.0, -0.5, "µV")


def test_counts_are_by_session_in_order_of_appearance():
    counts = make().counts()
    assert list(counts) == ["T", "E"]
    assert counts["T"] == {"left": 2, "right": 1, "feet": 1}
    assert sum(sum(by_class.values()) for by_class in counts.values()) == 8


def test_lists_and_tuples_in_records_are_the_same():
    one = make(steps=[{"step": "pick", "channels": ["C3"]}])
    other = make(steps=[{"step": "pick", "channels": ("C3",)}])
    assert one.steps == other.steps == tuple(json.loads(json.dumps(one.steps), object_hook=lambda d: tuple_values(d)))


def tuple_values(record: dict) -> dict:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}


# ---- it does not change


@pytest.mark.parametrize("name", ["X", "y", "subject", "session", "run", "group"])
def test_arrays_are_read_only(name):
    with pytest.raises(ValueError, match="read-only"):
        getattr(make(), name)[0] = getattr(make(), name)[1]


def test_fields_cannot_be_assigned():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().sfreq = 3.0


def test_arrays_and_records_are_copies():
    x, step = np.zeros((2, 3, 5), dtype=np.float32), {"step": "noise", "variance": 1.0}
    trials = make(n=2, X=x, steps=(step,))
    x[:] = 9
    step["variance"] = 2.0
    assert trials.X.max() == 0
    assert x.flags.writeable
    assert trials.steps[0]["variance"] == 1.0


def as_is(trials: Trials) -> Trials:
    return trials


def through_joblib(trials: Trials) -> Trials:
    """As another process of joblib gets them: arrays are parts of a file that is mapped into memory."""
    with tempfile.TemporaryDirectory() as folder:
        joblib.dump(trials, f"{folder}/trials.joblib")
        return joblib.load(f"{folder}/trials.joblib", mmap_mode="r+")


COPIES = {
    "itself": as_is,
    "pickle": lambda trials: pickle.loads(pickle.dumps(trials)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "clone": lambda trials: sklearn.base.clone(trials, safe=False),
    "clone of what has it": lambda trials: sklearn.base.clone(FunctionTransformer(kw_args=trials)).kw_args,
    "joblib": through_joblib,
}


@pytest.mark.parametrize("how", COPIES)
def test_copies_are_the_same_and_can_be_changed_as_little(how):
    trials = make(steps=[{"step": "mine", "tmin": 1.0, "at": {"a": [1, 2]}}], truths={1: TRUTH})
    found = COPIES[how](trials)
    for f in dataclasses.fields(Trials):
        np.testing.assert_equal(getattr(found, f.name), getattr(trials, f.name))
        if isinstance(getattr(found, f.name), np.ndarray):
            assert not getattr(found, f.name).flags.writeable, f.name
    assert found[2:].select(classes="left").labels.tolist() == ["left"] * 2
    for mapping in (found.steps[0], found.steps[0]["at"], found.truths, found.truth.effects):
        with pytest.raises(TypeError, match="cannot be changed"):
            mapping[next(iter(mapping))] = 99


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.update(tmin=99),
        lambda record: record.pop("tmin"),
        lambda record: record.popitem(),
        lambda record: record.clear(),
        lambda record: record.setdefault("more", 1),
        lambda record: record.__delitem__("tmin"),
        lambda record: record.__ior__({"tmin": 99}),
    ],
)
def test_records_are_read_only_but_otherwise_dicts(change):
    record = {"step": "crop", "tmin": 0.0}
    (kept,) = make(steps=[record]).steps
    with pytest.raises(TypeError, match="cannot be changed"):
        change(kept)
    assert kept == record
    assert json.loads(json.dumps(kept)) == record
    assert {**kept, "tmin": 99} == {"step": "crop", "tmin": 99}
    assert repr(kept) == repr(record)


def test_replace_gives_another_and_keeps_the_rest():
    trials = make(group=np.arange(8) // 4)
    other = trials.replace(unit="V", X=trials.X * 2)
    assert (trials.unit, other.unit) == ("µV", "V")
    assert other.group.tolist() == trials.group.tolist()
    np.testing.assert_array_equal(other.X, trials.X * 2)


# ---- selections


@pytest.mark.parametrize("index", [3, slice(3, 4), [3], np.arange(8) == 3, np.array([3])])
def test_index_takes_rows_of_all_fields(index):
    trials = make(subject=np.arange(8) + 1)
    one = trials[index]
    assert one.shape == (1, 3, 20)
    np.testing.assert_array_equal(one.X[0], trials.X[3])
    assert (one.y[0], one.subject[0], one.session[0], one.run[0], one.group[0]) == (0, 4, "T", "1", 3)


def test_index_outside_is_an_error():
    with pytest.raises(IndexError):
        make()[8]


def test_trials_are_no_sequence():
    with pytest.raises(TypeError, match=r"use \.X and \.y"):
        list(make())


def test_selection_is_of_all_that_is_given_at_once():
    trials = make(subject=[1, 2] * 4)
    found = trials.select(subject=2, session="T", run=["0", "1"])
    assert found.group.tolist() == [1, 3]
    assert trials.select(run=2).group.tolist() == [4, 5]  # a number stands for its name


def test_selected_classes_are_numbered_in_the_order_given():
    trials = make()
    found = trials.select(classes=["feet", "left"])
    assert found.class_names == ("feet", "left")
    assert found.labels.tolist() == [name for name in trials.labels.tolist() if name != "right"]
    assert set(found.y.tolist()) == {0, 1}


def test_selected_channels_are_in_the_order_given():
    trials = make()
    found = trials.select(channels=["C4", "C3"])
    assert found.ch_names == ("C4", "C3")
    np.testing.assert_array_equal(found.X, trials.X[:, [2, 0]])


def test_selected_channels_are_a_step_that_can_be_taken_again():
    trials = make(steps=[{"step": "noise", "variance": 1.0}])
    found = trials.select(session="T", channels=["C4", "C3"])
    assert found.steps == (*trials.steps, {"step": "pick", "channels": ("C4", "C3")})
    again = Preprocessing.from_records(found.steps[1:])(trials.select(session="T"))
    np.testing.assert_array_equal(again.X, found.X)
    assert again.steps == found.steps
    assert trials.select(session="T", classes=["left"]).steps == trials.steps  # no sample is another


def test_a_single_name_stands_for_itself():
    trials = make()
    assert trials.select(classes="left").class_names == ("left",)
    assert trials.select(channels="Cz").ch_names == ("Cz",)


def test_nothing_left_is_an_empty_container():
    nothing = make().select(session="T", run="3")
    assert nothing.shape == (0, 3, 20)
    assert nothing.select(classes="left").labels.tolist() == []


@pytest.mark.parametrize(
    "asked, message",
    [
        ({"subject": 9}, "subject='9'.*'1'"),
        ({"session": "Z"}, "session='Z'.*'T', 'E'"),
        ({"run": ["0", "12"]}, "run='12'"),
        ({"classes": ["lefd"]}, "Did you mean 'left'"),
        ({"channels": ["C5"]}, "channels='C5'.*'Cz'"),
        ({"channels": ["cz"]}, "channels='cz'.*'Cz'"),
        ({"classes": ["left", "left"]}, "different names"),
        ({"channels": ["C3", "C3"]}, "'C3' twice"),
    ],
)
def test_selection_of_what_is_not_there_is_an_error(asked, message):
    with pytest.raises(ParameterError, match=message):
        make().select(**asked)


# ---- several


def test_concatenation_keeps_trials_in_order_and_groups_apart():
    one, other = make(subject=1, group=[5] * 4 + [9] * 4), make(subject=2, group=[5] * 8)
    both = concatenate([one, other])
    assert both.subject.tolist() == [1] * 8 + [2] * 8
    assert both.group.tolist() == [0] * 4 + [1] * 4 + [2] * 8
    np.testing.assert_array_equal(both.X, np.concatenate([one.X, other.X]))


@pytest.mark.parametrize("rows", [[0, 4, 1, 5, 2, 6, 3, 7], [7, 6, 5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5, 6, 7]])
def test_parts_of_one_recording_that_are_joined_again_have_its_groups(rows):
    trials = make(run="1", session="1", group=[4, 4, 4, 4, 0, 0, 0, 0])
    joined = concatenate([trials[rows[:3]], trials[rows[3:6]], trials[rows[6:]]])
    same = joined.group[:, None] == joined.group
    np.testing.assert_array_equal(same, trials.group[rows][:, None] == trials.group[rows])
    with pytest.raises(ParameterError, match="both train and test"):
        Split("leak", [0, 1, 2], [], [3, 4, 5], joined.group)


@pytest.mark.parametrize("name, values", [("subject", (1, 2)), ("session", ("T", "E")), ("run", ("1", "2"))])
def test_groups_of_different_recordings_stay_apart(name, values):
    alike = {"subject": 1, "session": "1", "run": "1", "group": [0, 0, 1, 1]}
    both = concatenate([make(n=4, **{**alike, name: value}) for value in values])
    assert both.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_group_over_several_runs_is_not_divided():
    trials = make(group=[0] * 5 + [1] * 3)
    assert concatenate([trials[:4], trials[4:]]).group.tolist() == [0, 0, 0, 0, 1, 2, 2, 2]  # runs 0, 1 and 2
    assert concatenate([trials[::2], trials[1::2]]).group.tolist() == [0, 0, 0, 1, 0, 0, 1, 1]
    assert concatenate([trials, trials[:0]]).group.tolist() == [0] * 5 + [1] * 3


def test_nothing_and_nothing_is_nothing():
    assert concatenate([make()[:0], make()[:0]]).shape == (0, 3, 20)


@pytest.mark.parametrize(
    "changes",
    [
        {"unit": "V"},
        {"tmin": 0.5},
        {"class_names": ("right", "left", "feet")},
        {"dataset": "other"},
        {"steps": ({"step": "noise"},)},
    ],
)
def test_concatenation_of_what_differs_is_an_error(changes):
    with pytest.raises(MismatchError, match=rf"parts\[1\] has {next(iter(changes))}="):
        concatenate([make(), make(**changes)])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sfreq": 128}, r"parts\[1\] is sampled at 128 Hz, parts\[0\] at 100 Hz; add resample=100"),
        ({"ch_names": ("C3", "C4", "Cz")}, r"in another order\. Select them in one order: channels=C3;Cz;C4"),
        ({"ch_names": ("C3", "C4", "Oz")}, r"has 3 channels, parts\[0\] 3; common: C3, C4\. .* channels=C3;C4"),
        ({"ch_names": ("O1", "O2", "Oz")}, "none of the same name"),
    ],
)
def test_other_channels_and_rates_are_errors_with_the_step_that_helps(changes, message):
    with pytest.raises(MismatchError, match=message):
        concatenate([make(), make(**changes)])


def test_recordings_that_would_form_groups_by_accident_are_a_warning():
    alike = {"subject": 1, "session": "1", "run": "1", "group": np.arange(8)}
    with pytest.warns(DataWarning, match=r"parts\[1\] .* of trials in parts\[0\].*run='2'"):
        concatenate([make(**alike), make(**alike)])


def test_concatenation_of_other_lengths_is_an_error():
    with pytest.raises(ShapeError, match="differ in the number of samples"):
        concatenate([make(), make(X=np.zeros((8, 3, 21)))])


def test_concatenation_of_nothing_is_an_error():
    with pytest.raises(ParameterError, match="'parts' is empty"):
        concatenate([])


# ---- errors


@pytest.mark.parametrize(
    "changes, kind, message",
    [
        ({"X": np.zeros((8, 20))}, ShapeError, r"\(n, n_chans, n_times\)"),
        ({"X": np.zeros((8, 3, 0))}, ShapeError, "does not have the shape"),
        ({"X": np.zeros((8, 2, 20))}, ShapeError, "2 channels, but there are 3 channel names"),
        ({"X": np.zeros((8, 3, 20), dtype=complex)}, MismatchError, "real numbers"),
        ({"X": [[1, 2], [3]]}, MismatchError, "array of real numbers"),
        ({"X": np.full((8, 3, 20), np.nan)}, NotFiniteError, "8 trials, first in trial 0, channel C3"),
        ({"X": np.full((8, 3, 20), 1e300)}, NotFiniteError, "infinite"),
        ({"y": np.arange(8) % 4}, ParameterError, "class 3; class_names has 0 to 2"),
        ({"y": np.arange(8) % 3 - 1}, ParameterError, "class -1"),
        ({"y": np.zeros(7, dtype=int)}, ShapeError, r"\(8,\) is needed"),
        ({"y": np.zeros(8)}, MismatchError, "float64"),
        ({"y": ["left"] * 8}, MismatchError, "indices into class_names"),
        ({"class_names": ("left", "left", "feet")}, ParameterError, "different names"),
        ({"class_names": ()}, ParameterError, "one or more"),
        ({"ch_names": ("C3", "C3", "C4")}, ParameterError, "'C3' twice"),
        ({"ch_names": ()}, ParameterError, "no channel"),
        ({"ch_names": ("C3", "", "C4")}, ParameterError, "an empty name"),
        ({"sfreq": 0}, ParameterError, "positive"),
        ({"sfreq": np.nan}, ParameterError, "finite"),
        ({"sfreq": "100"}, ParameterError, "finite number"),
        ({"tmin": np.inf}, ParameterError, "tmin"),
        ({"unit": "kV"}, ParameterError, "unit='kV'.*'µV'"),
        ({"subject": "one"}, MismatchError, "'subject' must be"),
        ({"subject": 1.5}, MismatchError, "whole numbers"),
        ({"subject": [1] * 7}, ShapeError, r"'subject' \(7,\) does not match 8"),
        ({"session": ["T"] * 9}, ShapeError, "'session'"),
        ({"session": None}, MismatchError, "'session' must be names"),
        ({"run": 0.5}, MismatchError, "'run' must be names"),
        ({"group": [0.5] * 8}, MismatchError, "'group' must be whole"),
        ({"group": [[1]]}, ShapeError, "'group'"),
    ],
)
def test_wrong_fields_are_named(changes, kind, message):
    with pytest.raises(kind, match=message):
        make(**changes)


def test_nan_is_found_where_it_is():
    x = np.zeros((8, 3, 20))
    x[5, 1, 7] = np.nan
    with pytest.raises(NotFiniteError, match="1 trial, first in trial 5, channel Cz"):
        make(X=x)


def test_every_unit_is_taken():
    assert {make(unit=unit).unit for unit in (*UNITS, "a.u.")} == {"V", "mV", "µV", "nV", "a.u."}


@pytest.mark.parametrize("unit", ["uV", "µV", "\u03bcV"])
def test_microvolts_have_one_spelling(unit):
    assert make(unit=unit).unit == "µV"


def test_recordings_of_other_references_can_be_joined_after_a_reference_step():
    recorded = {"step": "recorded", "highpass": 0.0, "lowpass": 80.0, "projections": 0}
    step = {"step": "reference", "channels": []}
    one, other = (make(n=4, run=str(r), steps=({**recorded, "custom_ref_applied": r}, step)) for r in (0, 1))
    assert len(concatenate([one, other])) == 8


def test_recordings_of_which_one_was_referenced_again_are_named_with_the_remedy():
    recorded = {"step": "recorded", "highpass": 0.0, "lowpass": 80.0, "projections": 0}
    one, other = (make(n=4, run=str(r), steps=({**recorded, "custom_ref_applied": r},)) for r in (0, 1))
    with pytest.raises(MismatchError, match=r"reference of parts\[1\] was changed .* not that of parts\[0\].*average"):
        concatenate([one, other])
