"""Predictions for unlabelled epochs and continuous recordings."""

from __future__ import annotations

import csv
import io
import json
import warnings

import mne
import numpy as np
import pytest

from gbwatt.data import concatenate, load, write_npz
from gbwatt.decoding import EEGDecoder, predict_recordings, train_and_evaluate
from gbwatt.errors import (
    DataWarning,
    InputError,
    MismatchError,
    MissingFileError,
    ParameterError,
    ScaleWarning,
    ShapeError,
)

SFREQ, CHANNELS = 200.0, ("C3", "Cz", "C4", "Pz")
READING = {
    "classes": {"left": "T1", "right": "T2"},
    "tmin": 0.0,
    "tmax": 2.0,
    "preprocessing": "bandpass=8-30,resample=100,crop=0.5:1.5",
}


def recording(seed: int = 0, n: int = 12, sfreq: float = SFREQ) -> mne.io.RawArray:
    """A recording with events every 3 s, whose classes differ in the power of a rhythm in C3 and C4."""
    rng = np.random.default_rng(seed)
    times = np.arange(round((3 * n + 3) * sfreq)) / sfreq
    x = rng.standard_normal((len(CHANNELS), len(times)))
    for number in range(n):
        window = (times >= 3 * number + 2) & (times < 3 * number + 4)
        x[2 if number % 2 else 0, window] += 4 * np.sin(2 * np.pi * 12 * times[window])
    raw = mne.io.RawArray(1e-5 * x, mne.create_info(list(CHANNELS), sfreq, "eeg"), verbose="ERROR")
    onsets = 3.0 * np.arange(n) + 2
    return raw.set_annotations(mne.Annotations(onsets, 0, ["T2" if k % 2 else "T1" for k in range(n)]))


def saved(raw, folder, name: str = "mine_raw.fif"):
    raw.save(folder / name, overwrite=True, verbose="ERROR")
    return folder / name


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    file = saved(recording(), tmp_path_factory.mktemp("train"))
    return EEGDecoder("tangent-space").fit(load(file, **READING))


def test_windows_around_events_get_the_probabilities_of_the_same_trials(decoder, tmp_path):
    file = saved(recording(1), tmp_path)
    predictions = predict_recordings(decoder, file)
    expected = decoder.predict_proba(load(file, **READING))
    np.testing.assert_allclose(predictions.probabilities, expected, atol=1e-6)
    assert predictions.event.tolist() == ["T1", "T2"] * 6
    np.testing.assert_allclose(predictions.time, 3.0 * np.arange(12) + 2, atol=1 / SFREQ)
    assert (predictions.names == np.where(predictions.event == "T1", "left", "right")).all()


def test_sliding_windows_that_begin_at_events_get_the_same_probabilities(decoder):
    raw = recording(2)
    around = predict_recordings(decoder, raw)
    sliding = predict_recordings(decoder, raw, hop=0.5)
    starts = np.round(around.time + 0.5, 6)  # trials begin 0.5 s after the event
    rows = np.searchsorted(sliding.time, starts)
    np.testing.assert_allclose(sliding.time[rows], starts)
    np.testing.assert_allclose(sliding.probabilities[rows], around.probabilities, atol=1e-6)
    assert len(sliding) == (39 - 1) / 0.5 + 1


def test_batches_of_windows_give_the_same_probabilities(decoder, monkeypatch):
    whole = predict_recordings(decoder, recording(), hop=0.25)
    monkeypatch.setattr("gbwatt.decoding.prediction.BATCH", 7)
    np.testing.assert_allclose(
        predict_recordings(decoder, recording(), hop=0.25).probabilities, whole.probabilities, rtol=1e-6
    )


def test_channels_are_matched_by_name(decoder):
    raw = recording(3)
    before = predict_recordings(decoder, raw).probabilities
    more = raw.copy().add_channels([raw.copy().pick(["Pz"]).rename_channels({"Pz": "Oz"})], force_update_info=True)
    more.reorder_channels(["Oz", "Pz", "C4", "Cz", "C3"]).rename_channels({"C3": "c3.."})
    np.testing.assert_array_equal(predict_recordings(decoder, more).probabilities, before)


def test_events_are_selected_by_name(decoder):
    predictions = predict_recordings(decoder, recording(), events=["T2"])
    assert set(predictions.event) == {"T2"}
    assert len(predictions) == 6
    assert predict_recordings(decoder, recording(), events="T2").to_csv() == predictions.to_csv()


def test_windows_in_bad_segments_are_marked(decoder):
    raw = recording()
    raw.annotations.append(5.7, 0.1, "BAD_jump")
    bad = predict_recordings(decoder, raw).bad
    assert bad.tolist() == ["", "BAD_jump", *[""] * 10]


def test_windows_that_leave_the_recording_are_left_out_with_a_warning(decoder):
    raw = recording()
    raw.annotations.append(38.5, 0, "T1")
    with pytest.warns(DataWarning, match="1 of 13 windows leave the recording"):
        assert len(predict_recordings(decoder, raw)) == 12


def test_estimators_accept_files_and_recordings(decoder, tmp_path):
    file = saved(recording(4), tmp_path)
    labels = predict_recordings(decoder, file).labels
    assert decoder.predict(file).tolist() == decoder.predict(recording(4)).tolist() == labels.tolist()
    assert decoder.predict_proba(file, hop=1.0).shape == (39 - 1 + 1, 2)
    assert decoder.predict([file, recording(4)]).tolist() == 2 * labels.tolist()


def test_epochs_trials_and_npz_files_with_and_without_labels_are_predicted_alike(decoder, tmp_path):
    trials = load(saved(recording(5), tmp_path), **READING)
    write_npz(trials, tmp_path / "labelled.npz")
    raw = load(saved(recording(5), tmp_path), **{**READING, "preprocessing": None})
    np.savez(tmp_path / "raw.npz", X=raw.X, sfreq=SFREQ, ch_names=CHANNELS)
    expected = decoder.predict_proba(trials)
    for item in (trials, tmp_path / "labelled.npz", trials.to_mne()):
        np.testing.assert_allclose(predict_recordings(decoder, item).probabilities, expected, atol=1e-6)
    unlabelled = predict_recordings(decoder, tmp_path / "raw.npz")  # filtered after cutting
    assert set(unlabelled.event) == {""}
    assert np.isnan(unlabelled.time).all()
    assert (unlabelled.labels == expected.argmax(1)).mean() > 0.9


def test_a_model_of_named_classes_predicts_these_names_in_recordings(tmp_path):
    file = saved(recording(8), tmp_path)
    trials = load(file, **READING)
    named = EEGDecoder("tangent-space").fit(trials, trials.labels)
    named.save_pretrained(tmp_path / "model")
    for model in (named, EEGDecoder.from_pretrained(tmp_path / "model")):
        assert model.predict(file).tolist() == model.predict(trials).tolist() == model.predict(trials.X).tolist()
        predictions = predict_recordings(model, file)
        assert predictions.labels.tolist() == predictions.names.tolist() == model.predict(file).tolist()
        assert set(predictions.names) == {"left", "right"}


def test_a_file_that_is_given_twice_is_an_error(decoder, tmp_path, monkeypatch):
    file = saved(recording(6), tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=r"mine_raw\.fif is given twice; its windows would count twice"):
        predict_recordings(decoder, [file, file.name])


def test_several_recordings_are_joined_in_order(decoder, tmp_path):
    files = [saved(recording(seed), tmp_path, f"{seed}_raw.fif") for seed in (6, 7)]
    both = predict_recordings(decoder, files)
    assert both.recording.tolist() == [str(files[0])] * 12 + [str(files[1])] * 12
    np.testing.assert_array_equal(both.probabilities[12:], predict_recordings(decoder, files[1]).probabilities)


def test_saved_models_predict_as_before(decoder, tmp_path):
    decoder.save_pretrained(tmp_path / "model")
    before = predict_recordings(decoder, recording(8))
    after = predict_recordings(tmp_path / "model", recording(8))
    np.testing.assert_array_equal(after.probabilities, before.probabilities)


def test_csv_and_json_have_a_row_for_each_window(decoder):
    predictions = predict_recordings(decoder, recording(9))
    rows = list(csv.DictReader(io.StringIO(predictions.to_csv())))
    assert list(rows[0]) == ["recording", "time", "event", "bad", "label", "p_left", "p_right"]
    windows = json.loads(json.dumps(predictions.to_dict()))["predictions"]
    assert [row["label"] for row in rows] == [window["label"] for window in windows] == predictions.names.tolist()
    assert float(rows[3]["p_left"]) == pytest.approx(predictions.probabilities[3, 0], abs=1e-6)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"hop": 1e-4}, "hop=0.0001 s must be at least one sample, 0.01 s"),
        ({"hop": 1.0, "events": ["T1"]}, "hop and events exclude each other"),
        ({"events": ["T3"]}, "events='T3' is not known; it is one of 'T1', 'T2'"),
        ({"events": []}, "events is empty; name the annotations"),
        ({"tmin": -60.0}, "all 12 windows leave the recording"),
    ],
)
def test_wrong_arguments_are_errors(decoder, arguments, message):
    with pytest.raises(ParameterError, match=message):
        predict_recordings(decoder, recording(), **arguments)


def test_recordings_without_events_ask_for_sliding_windows(decoder):
    with pytest.raises(ParameterError, match="no events; classify sliding windows: hop"):
        predict_recordings(decoder, recording().set_annotations(None))


def test_recordings_that_do_not_fit_the_model_are_errors(decoder):
    with pytest.raises(ParameterError, match="channels: Pz not found among the 3"):
        predict_recordings(decoder, recording().drop_channels(["Pz"]))
    with pytest.raises(MismatchError, match="highpass=12 Hz"):
        predict_recordings(decoder, recording().filter(12, None, verbose="ERROR"))
    with pytest.raises(ParameterError, match=r"the recording has 0.5 s, but the windows of the model have 1 s"):
        predict_recordings(decoder, recording().crop(0, 0.49), hop=0.1)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda raw: raw.drop_channels(["Pz"]),
            r"Pz not found among the 3: C3, Cz, C4\. The model was trained with C3",
        ),
        (lambda raw: raw.info["bads"].append("Cz"), "Cz: marked as bad in the file, but the model needs it"),
        (lambda raw: raw.apply_function(spoiled, picks=["C4"], verbose="ERROR"), r"channel C4 .* first at 3\.500 s"),
        (lambda raw: raw.filter(12, None, verbose="ERROR"), r"has highpass=12 Hz.* give the unfiltered recording"),
    ],
)
def test_errors_about_recordings_name_the_file(decoder, tmp_path, change, message):
    raw = recording()
    change(raw)
    file = saved(raw, tmp_path, "other_raw.fif")
    with pytest.raises(InputError, match=message) as caught:
        predict_recordings(decoder, file)
    assert str(file) in str(caught.value)
    assert "plain array" not in str(caught.value)


def spoiled(x):
    """A channel with NaN from 3.5 to 4 s."""
    x = x.copy()
    x[round(3.5 * SFREQ) : round(4 * SFREQ)] = np.nan
    return x


def test_sliding_windows_of_epochs_are_an_error(decoder, tmp_path):
    trials = load(saved(recording(5), tmp_path), **READING)
    write_npz(trials, tmp_path / "epochs.npz")
    for item in (trials, trials.to_mne(), tmp_path / "epochs.npz"):
        with pytest.raises(ParameterError, match=r"hop=0.5 is for continuous recordings, but these are epochs"):
            predict_recordings(decoder, item, hop=0.5)


def test_folders_are_no_recordings(decoder, tmp_path):
    with pytest.raises(MissingFileError, match="is a folder; give the files in it"):
        predict_recordings(decoder, tmp_path)


@pytest.fixture(scope="module")
def folder_of_model(tmp_path_factory):
    """The folder of a model with a record of its training."""
    folder = tmp_path_factory.mktemp("trained")
    file = saved(recording(n=24), folder)
    train_and_evaluate(file, "tangent-space", reading=READING, folder=folder / "model")
    return folder / "model"


def test_names_of_classes_stand_for_their_events_in_training(folder_of_model, tmp_path):
    file = saved(recording(1), tmp_path)
    by_class = predict_recordings(folder_of_model, file, events=["left"])
    assert by_class.to_csv() == predict_recordings(folder_of_model, file, events=["T1"]).to_csv()


def test_names_of_classes_whose_events_are_unknown_are_errors(tmp_path):
    trials = load(saved(recording(), tmp_path), **READING)
    first, *steps = trials.steps
    unknown = trials.replace(steps=({k: v for k, v in first.items() if k != "events"}, *steps))
    decoder = EEGDecoder("tangent-space").fit(unknown)
    with pytest.raises(ParameterError, match=r"events='left' is a class of the model, .* annotations 'T1', 'T2'"):
        predict_recordings(decoder, recording(), events=["left"])


def test_only_the_events_of_training_are_classified_unless_there_are_none(folder_of_model):
    raw = recording(1)
    raw.annotations.append(5.5, 0, "pause")
    assert set(predict_recordings(folder_of_model, raw).event) == {"T1", "T2"}
    renamed = raw.copy()
    renamed.annotations.rename({"T1": "one", "T2": "two"})
    with pytest.warns(
        DataWarning, match=r"none of the annotations of the training, 'T1', 'T2'.*: 'one', 'two', 'pause'"
    ):
        assert set(predict_recordings(folder_of_model, renamed).event) == {"one", "two", "pause"}


def test_warnings_about_recordings_name_the_file(folder_of_model, tmp_path):
    raw = recording(1)
    raw.annotations.rename({"T1": "one", "T2": "two"})
    with pytest.warns(DataWarning, match=r"other_raw\.fif: the recording has none"):
        predict_recordings(folder_of_model, saved(raw, tmp_path, "other_raw.fif"))


def recording_trials(folder):
    """The trials of a recording, prepared like those of training."""
    return load(saved(recording(5), folder), **READING)


def test_a_single_window_outside_the_recording_is_named_as_one(decoder):
    raw = recording().set_annotations(mne.Annotations([38.9], 0, ["T1"]))
    with pytest.raises(ParameterError, match="the only window leaves the recording"):
        predict_recordings(decoder, raw)


def test_what_is_no_recording_is_an_error(decoder, tmp_path):
    with pytest.raises(ParameterError, match="recordings has a int"):
        predict_recordings(decoder, [3])
    with pytest.raises(ParameterError, match="recordings is empty"):
        predict_recordings(decoder, [])
    with pytest.raises(ParameterError, match="there are no trials to classify"):
        predict_recordings(decoder, recording_trials(tmp_path)[:0])
    with pytest.raises(MissingFileError, match=r"no.edf does not exist"):
        predict_recordings(decoder, tmp_path / "no.edf")
    with pytest.raises(ParameterError, match=r"hop=1.0 is for continuous recordings"):
        decoder.predict(np.zeros((2, 4, 100)), hop=1.0)


def test_prepared_epochs_without_history_say_what_to_do(decoder, tmp_path):
    np.savez(tmp_path / "short.npz", X=np.ones((2, 4, 100)), sfreq=100.0, ch_names=CHANNELS)
    with pytest.raises(ParameterError, match=r"cannot be prepared like the training data: .*\n.*write_npz"):
        predict_recordings(decoder, tmp_path / "short.npz")


def test_models_of_arrays_need_arrays():
    X, y = np.random.default_rng(0).standard_normal((20, 4, 100)), [0, 1] * 10
    with pytest.raises(ParameterError, match=r"trained on arrays, so the channels .* are unknown"):
        predict_recordings(EEGDecoder("tangent-space").fit(X, y), recording())


# ---- alignment


@pytest.fixture(scope="module")
def aligned(tmp_path_factory):
    file = saved(recording(), tmp_path_factory.mktemp("aligned"))
    return EEGDecoder("tangent-space", alignment="euclidean").fit(load(file, **READING))


def test_recordings_of_new_subjects_are_aligned_by_their_own_windows(aligned, tmp_path, monkeypatch):
    louder = saved(mne.io.RawArray(3 * recording(1).get_data(), recording(1).info, verbose="ERROR"), tmp_path)
    raw = mne.io.read_raw(louder, preload=True, verbose="ERROR").set_annotations(recording(1).annotations)
    trials = load(saved(raw, tmp_path, "new_raw.fif"), **READING)
    expected = aligned.predict_proba(trials.replace(subject=2))
    found = predict_recordings(aligned, raw)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
    monkeypatch.setattr("gbwatt.decoding.prediction.BATCH", 12)  # one alignment for all batches
    sliding = predict_recordings(aligned, raw, hop=0.25)
    assert len(sliding) > 100
    assert aligned.domains_.names == [1]


def test_recordings_of_known_subjects_are_aligned_as_in_training(aligned, tmp_path):
    trials = load(saved(recording(2), tmp_path), **READING)
    expected = aligned.predict_proba(trials)  # of subject 1, as in training
    np.testing.assert_allclose(predict_recordings(aligned, recording(2), group=1).probabilities, expected, atol=1e-5)
    np.testing.assert_allclose(predict_recordings(aligned, trials).probabilities, expected, atol=1e-6)
    with pytest.raises(ParameterError, match="group='9' is not known; it is one of '1'"):
        predict_recordings(aligned, recording(2), group=9)


def test_too_few_windows_to_align_say_how_to_predict_them(aligned, tmp_path):
    short = saved(recording(2).crop(0, 10), tmp_path, "short_raw.fif")
    with pytest.raises(
        ShapeError, match=r"short_raw\.fif.* at least 5 .*--hop 0\.5.*group=1 \(--group 1\)\.$"
    ) as caught:
        predict_recordings(aligned, short)
    assert "adapt first" not in str(caught.value)
    assert len(predict_recordings(aligned, short, group=1)) == 3
    assert len(predict_recordings(aligned, short, hop=0.5)) == 19


# ---- models of trials in memory


MAPPED = {**READING, "classes": {"left": ["T1"], "right": ["T2"]}}


def with_rest(raw):
    """The recording with further annotations, which are not those of a class."""
    rest = mne.Annotations(raw.annotations.onset + 1.0, 0, ["T0"] * len(raw.annotations))
    return raw.set_annotations(raw.annotations + rest)


def test_a_model_of_trials_knows_the_events_of_its_classes(tmp_path):
    trials = load(saved(recording(), tmp_path), **MAPPED)
    model = EEGDecoder("tangent-space").fit(trials)
    raw = with_rest(recording(1))
    model.save_pretrained(tmp_path / "model")
    for one in (model, tmp_path / "model"):
        assert set(predict_recordings(one, raw).event) == {"T1", "T2"}
        assert set(predict_recordings(one, raw, events=["left"]).event) == {"T1"}


def test_trials_whose_events_have_other_names_can_be_joined(tmp_path):
    one = load(saved(recording(), tmp_path), **MAPPED)
    other = recording(1)
    other.annotations.rename({"T1": "hand", "T2": "foot"})
    named = load(saved(other, tmp_path, "b_raw.fif"), **{**READING, "classes": {"left": "hand", "right": "foot"}})
    assert len(concatenate([one, named.replace(run="2")])) == 24


def test_flat_channels_and_implausible_amplitudes_of_a_recording_are_named(decoder, tmp_path):
    raw = recording(1)
    raw._data[0] = 0
    with pytest.warns(DataWarning, match="mine_raw.fif: flat channels: C3"):
        predict_recordings(decoder, saved(raw, tmp_path))
    raw = recording(1)
    raw._data *= 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)
        with pytest.warns(DataWarning, match="mine_raw.fif: .*implausible"):
            predict_recordings(decoder, saved(raw, tmp_path))


def test_epochs_of_another_time_after_the_event_are_named(decoder, tmp_path):
    file = saved(recording(1), tmp_path)
    earlier = load(file, **{**READING, "preprocessing": "bandpass=8-30,resample=100,crop=0.2:1.2"})
    with pytest.raises(MismatchError, match="crop"):
        decoder.predict(earlier)
    plain = {**READING, "preprocessing": "bandpass=8-30,resample=100", "tmin": 0.5, "tmax": 1.5}
    model = EEGDecoder("tangent-space").fit(load(file, **plain))
    with pytest.warns(DataWarning, match="begins 0.2 s after the event, but the training data 0.5 s"):
        model.predict(load(file, **{**plain, "tmin": 0.2, "tmax": 1.2}))


def test_groups_are_for_epochs(aligned):
    with pytest.raises(ParameterError, match=r"predict_recordings\(..., group=...\)"):
        aligned.predict(recording(1), groups=[1])
