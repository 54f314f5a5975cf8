"""Trials know what they are: a model learns it, keeps it in its files and refuses what does not fit."""

from __future__ import annotations

import mne
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score

from gbwatt import checks
from gbwatt.data.trials import Trials
from gbwatt.training import EEGDecoder, inputs
from tests.training.tiny import make_trials

CROP = {"step": "crop", "tmin": 0.0, "tmax": 0.32}


@pytest.fixture
def recorded():
    x, labels = make_trials()
    return Trials(
        X=x,
        y=(labels == "right").astype(int),
        class_names=["left", "right"],
        ch_names=["C3", "C4", "Cz", "Pz"],
        sfreq=100,
        steps=(CROP,),
    )


def test_trials_bring_labels_rate_and_preprocessing(decoder, recorded):
    fitted = decoder().fit(recorded)
    assert fitted.classes_.tolist() == [0, 1]
    assert fitted.class_names_ == ("left", "right")
    assert fitted.signal_.sfreq == 100
    assert fitted.recorded_.steps == (CROP,)
    assert fitted.score(recorded) == fitted.score(recorded, recorded.y) > 0.8
    assert (fitted.predict(recorded) == fitted.predict(recorded.X)).all()
    assert decoder().fit(recorded.X, recorded.labels).recorded_ is None


def test_columns_are_in_the_order_of_the_classes_and_not_of_their_names(decoder, recorded):
    renamed = recorded.replace(class_names=["wrong", "correct"])
    fitted = decoder(max_epochs=20).fit(renamed)
    assert fitted.class_names_ == ("wrong", "correct")
    assert roc_auc_score(renamed.y, fitted.predict_proba(renamed)[:, 1]) > 0.9
    assert cross_val_score(decoder(max_epochs=20), renamed, renamed.y, cv=2, scoring="roc_auc").mean() > 0.8
    assert fitted.score(renamed[:10]) == fitted.score(renamed[:10], renamed.y[:10])
    with pytest.raises(checks.MismatchError, match=r"\['left', 'right'\], but the model was trained on"):
        fitted.score(recorded)
    assert len(fitted.predict(recorded)) == 40  # what the classes are called does not matter to predict


def test_labels_of_ones_own_come_before_those_of_the_trials(decoder, recorded):
    fitted = decoder().fit(recorded, recorded.labels)
    assert fitted.classes_.tolist() == ["left", "right"]
    assert fitted.class_names_ == ("left", "right")


def test_validation_may_be_trials(decoder, recorded):
    numbers = decoder(validation=recorded[30:]).fit(recorded[:30])
    same = decoder(validation=(recorded.X[30:], recorded.y[30:])).fit(recorded[:30])
    names = decoder(validation=recorded[30:]).fit(recorded[:30], recorded.labels[:30])
    assert numbers.history_[-1]["valid_loss"] == same.history_[-1]["valid_loss"] == names.history_[-1]["valid_loss"]
    in_volts = recorded[30:].replace(X=1e-6 * recorded.X[30:], unit="V")
    assert decoder(validation=in_volts).fit(recorded[:30]).history_[-1]["valid_loss"] == pytest.approx(
        numbers.history_[-1]["valid_loss"], rel=1e-5
    )
    with pytest.raises(checks.MismatchError, match=r"'validation' has unit='a.u.'"):
        decoder(validation=recorded[30:].replace(unit="a.u.")).fit(recorded[:30])
    with pytest.raises(checks.MismatchError, match=r"'validation' has the classes \['right', 'left'\]"):
        decoder(validation=recorded[30:].replace(class_names=["right", "left"])).fit(recorded[:30])


def test_validation_trials_that_are_trained_on_are_refused(decoder, recorded):
    with pytest.raises(checks.ParameterError, match="2 trials that are training trials too, first its number 0"):
        decoder(validation=recorded[28:]).fit(recorded[:30])


def test_segments_of_one_stretch_stay_on_one_side_of_the_validation(decoder, recorded):
    codes = np.repeat(np.tile([0, 1], 5), 4)
    grouped = recorded.replace(y=codes, group=np.arange(40) // 4)
    for seed in range(5):
        sets = inputs.split(grouped.X, codes, np.arange(2), 0.2, seed, grouped.group)
        held_out = {trial.tobytes() for trial in sets.valid.x.numpy()}
        sides = [{trial.tobytes() in held_out for trial in grouped.X[4 * g : 4 * g + 4]} for g in range(10)]
        assert all(len(side) == 1 for side in sides)
        assert len(sets.valid) == 8
        assert np.bincount(sets.valid.y.numpy()).tolist() == [4, 4]
    with pytest.raises(checks.ParameterError, match="group 0 and training the others"):
        decoder(validation=[0, 1]).fit(grouped)
    assert len(decoder(max_epochs=1, validation=[0, 1, 2, 3, 4, 5, 6, 7]).fit(grouped).history_) == 1


def test_trials_can_be_cross_validated(decoder, recorded):
    scores = cross_val_score(decoder(max_epochs=20), recorded, recorded.y, cv=2)
    assert scores.mean() > 0.7
    clone(decoder(validation=recorded[30:]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ch_names": ["C4", "C3", "Cz", "Pz"]}, r"ch_names=\['C4', 'C3'"),
        ({"sfreq": 128}, "sfreq=128.0, but the model was trained on 100.0"),
        ({"unit": "a.u."}, "unit='a.u.', but the model was trained on 'µV'"),
        ({"steps": ()}, r"preprocessed by \[\], but the training data by .*crop"),
        ({"steps": ({**CROP, "tmax": 0.3},)}, "preprocessed"),
    ],
)
def test_other_recordings_are_refused(decoder, recorded, change, message):
    fitted = decoder(max_epochs=1).fit(recorded)
    with pytest.raises(checks.MismatchError, match=message):
        fitted.predict(recorded.replace(**change))
    assert len(fitted.predict(recorded.replace(**change).X)) == 40  # the bare array is the user's own affair


def test_noise_is_no_preprocessing(decoder, recorded):
    noisy = recorded.replace(steps=(CROP, {"step": "noise", "variance": 0.2, "seed": 0}))
    assert len(decoder(max_epochs=1).fit(recorded).predict(noisy)) == 40


def test_epochs_of_mne_must_have_the_channels_of_training(decoder, recorded):
    info = mne.create_info(["C3", "C4", "Cz", "Pz"], 100.0, "eeg")
    epochs = mne.EpochsArray(1e-6 * recorded.X.astype(float), info, verbose="error")
    fitted = decoder(max_epochs=1).fit(epochs, recorded.labels)
    assert len(fitted.predict(epochs)) == 40
    with pytest.raises(checks.MismatchError, match="ch_names"):
        fitted.predict(epochs.copy().reorder_channels(["C4", "C3", "Cz", "Pz"]))
    assert fitted.predict_proba(recorded.replace(steps=())) == pytest.approx(fitted.predict_proba(epochs), abs=1e-5)
    assert decoder(max_epochs=1).fit(recorded).predict_proba(epochs) == pytest.approx(
        decoder(max_epochs=1).fit(recorded).predict_proba(recorded), abs=1e-5
    )


def test_epochs_of_mne_bring_their_labels(decoder, recorded):
    epochs = recorded.to_mne()
    fitted = decoder().fit(epochs)
    assert fitted.classes_.tolist() == ["left", "right"]
    assert fitted.score(epochs) == fitted.score(epochs, recorded.labels) > 0.8


def test_preprocessing_is_saved_with_the_model(decoder, recorded, tmp_path):
    fitted = decoder(max_epochs=2, validation=recorded[30:]).fit(recorded[:30])
    fitted.save_pretrained(tmp_path / "model")
    loaded = EEGDecoder.from_pretrained(tmp_path / "model")
    assert loaded.recorded_ == fitted.recorded_
    assert loaded.class_names_ == ("left", "right")
    assert loaded.classes_.tolist() == [0, 1]
    assert "left, right" in (tmp_path / "model" / "README.md").read_text()
    assert (loaded.predict_proba(recorded) == fitted.predict_proba(recorded)).all()
    with pytest.raises(checks.MismatchError, match="ch_names"):
        loaded.predict(recorded.replace(ch_names=["C4", "C3", "Cz", "Pz"]))
    assert '"crop"' in (tmp_path / "model" / "config.json").read_text()
    assert "crop" in (tmp_path / "model" / "README.md").read_text()


def test_tuples_in_a_step_survive_a_file(decoder, recorded, tmp_path):
    picked = recorded.replace(steps=({"step": "pick", "channels": ("C3", "C4", "Cz", "Pz")},))
    fitted = decoder(max_epochs=1).fit(picked)
    fitted.save_pretrained(tmp_path / "model")
    assert np.isfinite(EEGDecoder.from_pretrained(tmp_path / "model").predict_proba(picked)).all()
