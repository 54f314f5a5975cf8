"""``gbwatt evaluate`` as a user meets it."""

from __future__ import annotations

import json
import shutil

import mne
import numpy as np
import pytest

from gbwatt import _io
from gbwatt.data import load
from gbwatt.data.formats.npz import write_npz
from gbwatt.decoding import EEGDecoder, GBWAttClassifier
from gbwatt.errors import ScaleWarning
from tests.cli.conftest import write_recording, write_recordings


@pytest.fixture
def trained(run_json, recordings, tmp_path):
    """The record of a model trained and validated on subject 1, with the folder that it is in."""
    return run_json("train", "--dataset", recordings, "--recipe", "paper", "--max-epochs", "3", "-o", tmp_path / "m")


def test_test_trials_score_as_training_said(run_json, trained, recordings):
    found = run_json("evaluate", trained["folder"], "--dataset", recordings)
    assert found["part"] == "test"
    assert {name: found[name] for name in trained["test"]} == trained["test"]
    assert list(found["uses"]) == ["unseen"]
    assert found["training"]["subject"] == found["subject"] == 1


def test_it_says_what_is_scored_and_that_it_was_not_seen(run, trained, recordings):
    shown = run("evaluate", trained["folder"], "--dataset", recordings).stdout
    assert f"trained on {recordings}, subject 1, split 0" in shown
    assert "test trials of split 0 (subject 1, last trials)" in shown
    assert "recordings of a file" in shown
    assert "not used for training or validation" in shown
    assert "says nothing" not in shown


def test_all_trials_are_told_apart_by_what_the_model_has_seen(run, run_json, trained, recordings):
    arguments = ("evaluate", trained["folder"], "--dataset", recordings, "--all")
    found = run_json(*arguments)
    sizes = {use: part["n"] for use, part in found["uses"].items()}
    assert sizes == {
        "training": trained["trials"]["train"],
        "validation": trained["trials"]["valid"],
        "unseen": trained["trials"]["test"],
    }
    assert found["uses"]["unseen"]["accuracy"] == trained["test"]["accuracy"]
    assert found["n"] == sum(sizes.values()) == 40
    assert found["hits"] == sum(part["hits"] for part in found["uses"].values())
    shown = run(*arguments).stdout
    assert "used for training" in shown
    assert "do not show how well the model generalises" in shown


def test_all_trials_of_a_new_file_are_scored_and_a_part_is_called_one(run, run_json, trained, recordings, tmp_path):
    other = write_recordings(tmp_path / "other.npz", seed=1, subjects=1)
    found = run_json("evaluate", trained["folder"], "--dataset", other)
    assert (found["part"], found["scored"], found["n"]) == ("all", "all trials", 40)
    part = run("evaluate", trained["folder"], "--dataset", other, "--split", "0").stdout
    assert "(recordings of a file): 10 of 40 trials; --all scores all." in part
    seen = run("evaluate", trained["folder"]).stdout
    assert "(recordings of a file): 10 of 40 trials." in seen


def test_commands_on_models_take_several_files(run, run_json, trained, tmp_path):
    files = [write_recordings(tmp_path / f"{seed}.npz", seed, subjects=1) for seed in (1, 2)]
    folder = trained["folder"]
    found = run_json("evaluate", folder, "--dataset", *files)
    assert (found["n"], found["subject"]) == (80, "1-2")
    for words in (
        ["--dataset", files[0], "--dataset", files[1], folder],
        ["--split", 0, "--all", "--dataset", *files, folder],
    ):
        assert run_json("evaluate", *words)["n"] == 80
    assert run_json("evaluate", "--dataset", files[0], folder)["n"] == 40
    assert "(recordings of 2 files)" in run("evaluate", folder, "--dataset", *files).stdout
    assert run("explain", folder, "--dataset", *files, "-o", "out").exit_code == 0
    assert run("report", folder, "--dataset", *files, "-o", "page.html").exit_code == 0


def test_paths_are_those_of_training(run, refused, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    run("models")
    write_recordings(tmp_path / "here" / "own.npz")
    run("train", "--dataset", "own.npz", "--model", "tangent-space", "-o", tmp_path / "m")
    monkeypatch.chdir(tmp_path / "elsewhere")
    said = refused("evaluate", tmp_path / "m")
    assert f"own.npz does not exist in {tmp_path / 'elsewhere'}; the training record has this path" in said
    assert "give --dataset" in said


def test_how_trials_are_aligned_is_said(run, run_json, tmp_path):
    files = [write_recordings(tmp_path / f"{name}.npz", seed, subjects=1) for seed, name in enumerate("abc")]
    run("train", "--dataset", *files[:2], "--model", "tangent-space", "--align", "euclidean", "-o", "m")
    assert "Aligned as a new subject." in run("evaluate", "m", "--dataset", files[2]).stdout
    assert "Aligned as a new subject." in run("explain", "m", "--dataset", files[2]).stdout
    assert run_json("evaluate", "m", "--dataset", files[1])["aligned"] == "as subject 2 of the training"


def test_trials_of_another_subject_were_not_seen(run_json, trained, recordings):
    found = run_json("evaluate", trained["folder"], "--dataset", recordings, "--subject", "2", "--all")
    assert {use: part["n"] for use, part in found["uses"].items()} == {"unseen": 40}
    decoder = GBWAttClassifier.from_pretrained(trained["folder"])
    assert found["accuracy"] == decoder.score(load(recordings, 2))


def test_a_copy_of_the_recordings_is_recognised_and_other_recordings_are_not(run_json, trained, recordings, tmp_path):
    copy = shutil.copy(recordings, tmp_path / "copy.npz")
    other = write_recordings(tmp_path / "other.npz", seed=1)
    found, new = (run_json("evaluate", trained["folder"], "--dataset", file, "--all") for file in (copy, other))
    assert found["uses"]["training"]["n"] == trained["trials"]["train"]
    assert list(new["uses"]) == ["unrecognised"]


def test_of_a_model_without_a_record_and_fingerprints_it_is_unknown(run, run_json, recordings, tmp_path):
    trials = load(recordings, 1)
    EEGDecoder("matt", max_epochs=1).fit(trials).save_pretrained(tmp_path / "m", fingerprints=False)
    found = run_json("evaluate", tmp_path / "m", "--dataset", recordings)
    assert found["training"] is None
    assert list(found["uses"]) == ["unknown"]
    shown = run("evaluate", tmp_path / "m", "--dataset", recordings).stdout
    assert "of unknown origin" in shown
    assert "unknown whether these trials were used for training" in shown
    assert "not used for training" not in shown


def test_a_model_trained_in_python_recognises_its_trials(run_json, recordings, tmp_path):
    trials = load(recordings, 1)
    EEGDecoder("matt", max_epochs=1, validation=list(range(20, 25))).fit(trials[:30]).save_pretrained(tmp_path / "m")
    found = run_json("evaluate", tmp_path / "m", "--dataset", recordings, "--all")
    uses = {use: part["n"] for use, part in found["uses"].items()}
    assert uses == {"training": 25, "validation": 5, "unrecognised": 10}


def test_training_trials_that_were_cut_elsewhere_are_not_called_unused(run, trained, recordings, tmp_path):
    trials = load(recordings, 1)
    shifted = trials.replace(X=np.roll(trials.X, 5, axis=2))
    write_npz(shifted, tmp_path / "shifted.npz")
    shown = run("evaluate", trained["folder"], "--dataset", tmp_path / "shifted.npz", "--all").stdout
    assert "not recognised among the training and validation trials" in shown
    assert "not used for training" not in shown


def containers(trials, folder):
    """The same epochs in other files and units, exact or rounded."""
    whole = trials.replace(X=np.round(trials.X))
    trials.to_mne().save(folder / "same-epo.fif", fmt="single", verbose="error")
    whole.to_mne().save(folder / "whole-epo.fif", verbose="error")
    volts = trials.replace(X=1e-6 * trials.X.astype(float), unit="V")
    write_npz(volts, folder / "volts.npz")
    write_npz(whole.replace(subject=7, class_names=trials.class_names), folder / "whole.npz")
    return {
        "same-epo.fif": [],
        "whole-epo.fif": [],
        "volts.npz": [],
        "whole.npz": ["--subject", "7"],
    }


def test_training_epochs_are_recognised_in_another_container_unit_and_rounding(run_json, trained, recordings, tmp_path):
    for file, options in containers(load(recordings, 1), tmp_path).items():
        found = run_json("evaluate", trained["folder"], "--dataset", tmp_path / file, "--all", *options)
        assert {use: part["n"] for use, part in found["uses"].items()} == {
            "training": trained["trials"]["train"],
            "validation": trained["trials"]["valid"],
            "unrecognised": trained["trials"]["test"],
        }, file


def test_a_model_without_fingerprints_says_what_its_record_knows(run_json, trained, recordings, tmp_path):
    file = tmp_path / "m" / "config.json"
    config = json.loads(file.read_text())
    del config["extra"]["estimator"]["fingerprints"]
    file.write_text(json.dumps(_io.sealed(json.dumps(config))))
    own = run_json("evaluate", trained["folder"], "--dataset", recordings, "--all")
    assert {use: part["n"] for use, part in own["uses"].items()} == {
        "training": trained["trials"]["train"],
        "validation": trained["trials"]["valid"],
        "unseen": trained["trials"]["test"],
    }
    other_subject = run_json("evaluate", trained["folder"], "--dataset", recordings, "--subject", "2", "--all")
    assert list(other_subject["uses"]) == ["unseen"]
    for copy, options in containers(load(recordings, 1), tmp_path).items():
        found = run_json("evaluate", trained["folder"], "--dataset", tmp_path / copy, "--all", *options)
        assert list(found["uses"]) == ["unknown"], copy


def test_an_interrupted_model_says_so(run, trained, recordings, tmp_path):
    file = tmp_path / "m" / "training.json"
    record = {**json.loads(file.read_text()), "status": "interrupted"}
    file.write_text(json.dumps(_io.sealed(json.dumps(record))))
    assert "interrupted after epoch 3" in run("evaluate", trained["folder"], "--dataset", recordings).stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channels": ("C3", "Cz", "Pz")}, "ch_names"),
        (
            {"classes": ("feet", "tongue")},
            "class 'feet' and 1 more, but the model was trained on the classes 0 (left), 1 (right)",
        ),
    ],
)
def test_data_of_another_kind_are_refused(refused, trained, tmp_path, changes, message):
    other = write_recordings(tmp_path / "other.npz", **changes)
    assert message in refused("evaluate", trained["folder"], "--dataset", other)


def test_a_class_that_was_not_learnt_is_refused(refused, recordings, tmp_path):
    trials = load(recordings, 1).replace(class_names=("left", "right", "rest"))
    EEGDecoder("matt", max_epochs=1).fit(trials).save_pretrained(tmp_path / "m")
    write_npz(trials.replace(y=[*trials.y[:-20], *[2] * 20]), tmp_path / "other.npz")
    assert "class 'rest'" in refused("evaluate", tmp_path / "m", "--dataset", tmp_path / "other.npz")


@pytest.mark.filterwarnings("ignore:.*y_true")
def test_trials_of_one_class_have_an_accuracy_but_no_area_under_the_curve(run, run_json, trained, recordings, tmp_path):
    trials = load(recordings, 2).select(classes=["left"]).replace(class_names=("left", "right"))
    write_npz(trials, tmp_path / "left.npz")
    arguments = ("evaluate", trained["folder"], "--dataset", tmp_path / "left.npz", "--all", "--subject", 2)
    found = run_json(*arguments)
    assert found["auc"] is None
    assert found["accuracy"] == GBWAttClassifier.from_pretrained(trained["folder"]).score(trials)
    assert "ROC" not in run(*arguments).stdout


def test_what_is_no_model_is_refused(refused, trained, recordings, tmp_path):
    missing = refused("evaluate", tmp_path / "nowhere", "--dataset", recordings)
    assert "does not contain a model" in missing
    assert "damaged" not in missing
    (tmp_path / "m" / "training.json").write_text("{}")
    assert "training.json is damaged" in refused("evaluate", trained["folder"], "--dataset", recordings)
    (tmp_path / "m" / "model.safetensors").write_bytes(b"")
    assert "truncated" in refused("evaluate", trained["folder"], "--dataset", recordings)


def test_by_default_the_test_trials_of_the_training_recordings_are_scored(run_json, recordings, tmp_path):
    trained = run_json(
        "train",
        "--dataset",
        recordings,
        "--subject",
        "2",
        "--recipe",
        "paper",
        "--max-epochs",
        "1",
        "-o",
        tmp_path / "m",
    )
    found = run_json("evaluate", tmp_path / "m")
    assert (found["dataset"], found["subject"], found["part"]) == (recordings, 2, "test")
    assert {name: found[name] for name in trained["test"]} == trained["test"]
    assert run_json("evaluate", tmp_path / "m", "--dataset", recordings) == found  # the same subject, too
    assert run_json("evaluate", tmp_path / "m", "--subject", "1")["subject"] == 1


def test_without_a_record_of_the_training_a_data_set_must_be_given(refused, trained, tmp_path):
    (tmp_path / "m" / "training.json").unlink()
    assert "give --dataset" in refused("evaluate", trained["folder"])


def test_a_split_that_does_not_exist_is_named(refused, trained):
    assert "split=3 does not exist" in refused("evaluate", trained["folder"], "--split", "3")


def write_epochs(trials, file, event_id, **info):
    """Epochs of another program, filtered to judge by their header."""
    made = mne.create_info(list(trials.ch_names), trials.sfreq, "eeg")
    with made._unlock():
        made.update(info)
    codes = [event_id[name] for name in trials.labels.tolist()]
    events = np.column_stack([np.arange(len(trials)), np.zeros(len(trials), int), codes])
    x = 1e-6 * trials.X.astype(float)
    mne.EpochsArray(x, made, events, event_id=event_id, verbose="error").save(file, verbose="error")
    return str(file)


def test_epochs_with_other_filters_are_refused_and_other_event_codes_are_not(run_json, refused, recordings, tmp_path):
    trials, codes = load(recordings, 1), {"left": 1, "right": 2}
    band = {"highpass": 8.0, "lowpass": 30.0}
    own = write_epochs(trials, tmp_path / "own-epo.fif", codes, **band)
    recoded = write_epochs(trials, tmp_path / "recoded-epo.fif", {"right": 3, "left": 7}, **band)
    unfiltered = write_epochs(trials, tmp_path / "unfiltered-epo.fif", codes)
    run_json("train", "--dataset", own, "--recipe", "paper", "--max-epochs", "3", "-o", tmp_path / "m")
    found, same = (run_json("evaluate", tmp_path / "m", "--dataset", file, "--all") for file in (own, recoded))
    assert (same["confusion"], same["class_names"]) == (found["confusion"], found["class_names"])
    said = refused("evaluate", tmp_path / "m", "--dataset", unfiltered)
    assert "highpass=0 Hz" in said
    assert "filter(8, 30)" in said


def test_the_number_of_a_recording_without_subjects_is_only_a_name(run_json, tmp_path):
    file = write_recording(tmp_path / "own_raw.fif")
    read = ("--read", "tmin=0", "--read", "tmax=0.9")
    run_json("train", "--dataset", file, *read, "--recipe", "paper", "--max-epochs", "1", "-o", tmp_path / "m")
    GBWAttClassifier.from_pretrained(tmp_path / "m").save_pretrained(tmp_path / "m", fingerprints=False)

    def uses(*arguments):
        return list(run_json("evaluate", tmp_path / "m", "--dataset", file, *arguments, "--all")["uses"])

    seen = uses(*read)
    assert set(seen) == {"training", "validation", "unseen"}
    assert uses(*read, "--subject", "2") == seen
    moved = ("--read", "tmin=0.05", "--read", "tmax=0.95", "--subject", "2")
    assert uses(*moved) == ["unknown"]


def test_a_model_is_asked_once_and_warns_once(run_json, trained, recordings, tmp_path, recwarn):
    trials = load(recordings, 1)
    write_npz(trials.replace(X=1e4 * trials.X), tmp_path / "large.npz")
    recwarn.clear()
    run_json("evaluate", trained["folder"], "--dataset", tmp_path / "large.npz", "--all")
    assert [warning.category for warning in recwarn].count(ScaleWarning) == 1
