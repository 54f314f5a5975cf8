"""Trials know what they are: a model learns it, keeps it in its files and refuses what does not fit."""

from __future__ import annotations

import json
import warnings

import mne
import numpy as np
import pytest
from scipy.signal import butter, sosfiltfilt
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score

from gbwatt import _io
from gbwatt.data import load
from gbwatt.data.formats.npz import write_npz
from gbwatt.data.splits import add_noise
from gbwatt.data.trials import Trials
from gbwatt.decoding import EEGDecoder, inputs
from gbwatt.decoding.signal_metadata import Recorded
from gbwatt.errors import MismatchError, ModelFileError, ParameterError, ReferenceWarning, UnknownFilterWarning
from tests.decoding.tiny import make_trials

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
    with pytest.raises(MismatchError, match=r"'left'.*0 \(wrong\), 1 \(correct\)"):
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
    with pytest.raises(MismatchError, match=r"'validation' has unit='a.u.'"):
        decoder(validation=recorded[30:].replace(unit="a.u.")).fit(recorded[:30])
    renumbered = recorded[30:].select(classes=["right", "left"])
    assert decoder(validation=renumbered).fit(recorded[:30]).history_[-1]["valid_loss"] == pytest.approx(
        numbers.history_[-1]["valid_loss"], rel=1e-5
    )
    with pytest.raises(MismatchError, match=r"'y_valid' has class 'feet'.*0 \(left\), 1 \(right\)"):
        decoder(validation=recorded[30:].replace(class_names=["left", "feet"])).fit(recorded[:30])


def test_validation_trials_that_are_trained_on_are_refused(decoder, recorded):
    with pytest.raises(ParameterError, match="2 trials that are training trials too, first its number 0"):
        decoder(validation=recorded[28:]).fit(recorded[:30])
    for given in (
        (recorded.X[28:], recorded.y[28:]),
        (recorded.X[28:].astype(float), recorded.labels[28:]),
        (recorded[28:], recorded.y[28:]),
    ):
        with pytest.raises(ParameterError, match="2 trials that are training trials too, first its number 0"):
            decoder(validation=given).fit(recorded[:30])
        with pytest.raises(ParameterError, match="2 trials that are training trials too"):
            decoder(validation=given).fit(
                recorded.X[:30], recorded.y[:30] if given[1].dtype.kind == "i" else recorded.labels[:30]
            )
    epochs = filtered(recorded, 0.0, 50.0)
    with pytest.raises(ParameterError, match="2 trials that are training trials too"):
        decoder(validation=(epochs[28:], recorded.labels[28:])).fit(epochs[:30])
    flat = recorded.X.copy()
    flat[[0, 35]] = 0
    inputs.require_others(flat[:30], flat[30:])


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
    with pytest.raises(ParameterError, match="group 0 and training the others"):
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
    with pytest.raises(MismatchError, match=message):
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
    with pytest.raises(MismatchError, match="ch_names"):
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
    with pytest.raises(MismatchError, match="ch_names"):
        loaded.predict(recorded.replace(ch_names=["C4", "C3", "Cz", "Pz"]))
    assert '"crop"' in (tmp_path / "model" / "config.json").read_text()
    assert "crop" in (tmp_path / "model" / "README.md").read_text()


def test_noisy_copies_of_training_trials_are_not_called_unseen(decoder, recorded):
    fitted = decoder(max_epochs=1, validation=None).fit(recorded[:30])
    noisy = add_noise(recorded, 100.0, 0)
    assert set(fitted.used_for(noisy)) == {"unknown"}
    assert set(fitted.used_for(recorded.replace(X=noisy.X))) == {"unseen"}
    assert fitted.used_for(recorded).tolist() == ["training"] * 30 + ["unseen"] * 10


def test_tuples_in_a_step_survive_a_file(decoder, recorded, tmp_path):
    picked = recorded.replace(steps=({"step": "pick", "channels": ("C3", "C4", "Cz", "Pz")},))
    fitted = decoder(max_epochs=1).fit(picked)
    fitted.save_pretrained(tmp_path / "model")
    assert np.isfinite(EEGDecoder.from_pretrained(tmp_path / "model").predict_proba(picked)).all()


# ---- filters and reference


def filtered(recorded, highpass, lowpass, **info):
    """Epochs of another program, which were filtered to judge by their header."""
    made = mne.create_info(["C3", "C4", "Cz", "Pz"], recorded.sfreq, "eeg")
    with made._unlock():
        made.update(highpass=highpass, lowpass=lowpass, **info)
    n = len(recorded)
    events = np.column_stack([np.arange(n), np.zeros(n, int), recorded.y + 1])
    event_id = {"left": 1, "right": 2}
    return mne.EpochsArray(1e-6 * recorded.X.astype(float), made, events, event_id=event_id, verbose="error")


@pytest.mark.parametrize(
    ("trained", "given", "message"),
    [
        ((8.0, 30.0), (0.0, 50.0), "highpass=0 Hz.*highpass=8 Hz"),
        ((0.0, 50.0), (8.0, 30.0), "highpass=8 Hz.*highpass=0 Hz"),
        ((8.0, 30.0), (8.0, 50.0), "lowpass=50 Hz.*lowpass=30 Hz"),
        ((0.1, 20.0), (1.0, 20.0), "highpass=1 Hz.*highpass=0.1 Hz"),
        ((0.0, 50.0), (0.0, 32.0), "lowpass=32 Hz.*lowpass=50 Hz"),  # resampled from 64 Hz
    ],
)
def test_epochs_with_other_filters_are_refused(decoder, recorded, tmp_path, trained, given, message):
    decoder(max_epochs=1).fit(filtered(recorded, *trained)).save_pretrained(tmp_path)
    fitted = EEGDecoder.from_pretrained(tmp_path)
    assert len(fitted.predict(filtered(recorded, *trained))) == 40
    for use in (fitted.predict, fitted.score):
        with pytest.raises(MismatchError, match=message) as error:
            use(filtered(recorded, *given))
    unfiltered = trained == (0.0, 50.0)
    assert ("unfiltered data are needed" in str(error.value)) == unfiltered
    assert ("raw.filter(" in str(error.value)) == (not unfiltered)
    with pytest.raises(MismatchError, match=message):
        decoder(validation=filtered(recorded, *given)[30:]).fit(filtered(recorded, *trained)[:30])
    assert len(fitted.predict(filtered(recorded, *given).get_data())) == 40  # plain arrays are not checked


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((0.0, 50.0), (0.016, 50.0)),  # the time constant of an amplifier
        ((0.0, 50.0), (0.1, 46.0)),  # an anti-aliasing filter near the Nyquist frequency
        ((8.0, 30.0), (8.0000001, 29.9999)),  # the precision of a file
    ],
)
def test_settings_of_amplifiers_are_no_filters(decoder, recorded, one, other):
    assert len(decoder(max_epochs=1).fit(filtered(recorded, *one)).predict(filtered(recorded, *other))) == 40
    assert len(decoder(max_epochs=1).fit(filtered(recorded, *other)).predict(filtered(recorded, *one))) == 40


def test_a_changed_reference_is_refused(decoder, recorded):
    plain = filtered(recorded, 8.0, 30.0)
    average = plain.copy().set_eeg_reference("average", verbose="error")
    projected = plain.copy().set_eeg_reference("average", projection=True, verbose="error").apply_proj(verbose="error")
    fitted = decoder(max_epochs=1).fit(average)
    assert len(fitted.predict(average)) == 40
    with pytest.raises(MismatchError, match=r"custom_ref_applied=0.*custom_ref_applied=1"):
        fitted.predict(plain)
    with pytest.raises(MismatchError, match=r"projections=1.*projections=0"):
        decoder(max_epochs=1).fit(plain).predict(projected)


def test_filters_of_trials_and_of_epochs_are_compared(decoder, recorded):
    band = {"step": "band_pass", "low": 8.0, "high": 30.0, "order": 4}
    fitted = decoder(max_epochs=1).fit(recorded.replace(steps=(band,)))
    assert (fitted.recorded_.highpass, fitted.recorded_.lowpass) == (8.0, 30.0)
    assert len(fitted.predict(filtered(recorded, 8.0, 30.0))) == 40
    with pytest.raises(MismatchError, match="highpass=0 Hz"):
        fitted.predict(filtered(recorded, 0.0, 50.0))
    with pytest.raises(MismatchError, match="highpass=8 Hz"):
        decoder(max_epochs=1).fit(filtered(recorded, 1.0, 30.0)).predict(recorded.replace(steps=(band,)))
    assert len(decoder(max_epochs=1).fit(recorded).predict(filtered(recorded, 8.0, 30.0))) == 40  # nothing is known


def test_files_of_epochs_keep_their_filters(decoder, recorded, tmp_path):
    for name, band in (("filtered", (8.0, 30.0)), ("same", (8.0, 30.0)), ("raw", (0.0, 50.0))):
        filtered(recorded, *band).save(tmp_path / f"{name}-epo.fif", verbose="error")
    fitted = decoder(max_epochs=1).fit(load(tmp_path / "filtered-epo.fif"))
    write_npz(load(tmp_path / "raw-epo.fif"), tmp_path / "raw.npz")
    assert len(fitted.predict(load(tmp_path / "same-epo.fif"))) == 40
    for file in ("raw-epo.fif", "raw.npz"):
        with pytest.raises(MismatchError, match="highpass=0 Hz"):
            fitted.predict(load(tmp_path / file))
    older = Recorded.from_dict({"ch_names": recorded.ch_names, "sfreq": 100, "unit": "µV", "steps": []})
    older.require(Recorded.of(load(tmp_path / "raw-epo.fif")), "X")  # of a model that was trained on such a file before


def test_epochs_of_ours_have_their_whole_history(decoder, recorded):
    fitted = decoder(max_epochs=1).fit(recorded)
    epochs = recorded.to_mne()
    assert fitted.predict(epochs).tolist() == fitted.predict(recorded).tolist()
    with pytest.raises(MismatchError, match=r"preprocessed by .*'mne'"):
        fitted.predict(epochs.copy().filter(8, 30, method="iir", verbose="error"))


@pytest.mark.parametrize("value", ["8", [8], True])
def test_damaged_filters_are_refused(decoder, recorded, tmp_path, value):
    decoder(max_epochs=1).fit(recorded).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["extra"]["estimator"]["recorded"]["highpass"] = value
    (tmp_path / "config.json").write_text(json.dumps(_io.sealed(json.dumps(config))))
    with pytest.raises(ModelFileError, match="highpass"):
        EEGDecoder.from_pretrained(tmp_path)


def test_epochs_with_unknown_filters_give_a_warning_if_the_model_was_trained_on_filtered_ones(decoder, recorded):
    info = mne.create_info(list(recorded.ch_names), recorded.sfreq, "eeg")
    with info._unlock():
        info.update(highpass=8.0, lowpass=30.0)
    epochs = mne.EpochsArray(1e-6 * recorded.X.astype(float), info, verbose="error")
    fitted = decoder(max_epochs=1).fit(epochs, recorded.labels)
    unknown = recorded.replace(steps=())
    with pytest.warns(UnknownFilterWarning, match="from 8 to 30 Hz"):
        fitted.predict(unknown)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict(epochs)
        decoder(max_epochs=1).fit(unknown).predict(unknown)


def test_averages_are_no_epochs(decoder, recorded):
    epochs = filtered(recorded, 0.0, 50.0)
    fitted = decoder(max_epochs=1).fit(epochs)
    with pytest.raises(MismatchError, match=r"'X' is a list that has EvokedArray; a list of mne.Epochs"):
        fitted.predict([epochs["left"].average(), epochs["right"].average()])
    assert len(fitted.predict([epochs[:2], epochs[2:5]])) == 5


# ---- what the samples themselves tell


def noise(n=40, seed=0, n_chans=8, n_times=500, sfreq=125.0):
    """Trials like a recording: pink noise that channels share in part, in µV."""
    rng = np.random.default_rng(seed)
    frequencies = np.fft.rfftfreq(n_times, 1 / sfreq)
    white = np.fft.rfft(rng.standard_normal((n, n_chans + 1, n_times)))
    pink = np.fft.irfft(white / np.maximum(frequencies, 1.0), n_times)
    x = 100 * (pink[:, :-1] + pink[:, -1:])
    x[::2, 0] *= 3
    names = [f"E{place}" for place in range(n_chans)]
    return Trials(X=x, y=np.arange(n) % 2, class_names=["left", "right"], ch_names=names, sfreq=sfreq)


def passed(trials, low, high):
    """The same trials, filtered by someone who does not say so."""
    sos = butter(4, [low, high], "band", fs=trials.sfreq, output="sos")
    return trials.replace(X=sosfiltfilt(sos, trials.X).astype(np.float32))


def averaged(trials):
    return trials.replace(X=trials.X - trials.X.mean(1, keepdims=True))


def said(call, *arguments):
    """Categories of the warnings of a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*arguments)
    return [warning.category for warning in caught]


def test_an_average_reference_is_seen_in_the_samples(decoder, tmp_path):
    """MNE says custom_ref_applied=1 of both references."""
    trials = noise()
    single = trials.replace(X=trials.X - trials.X[:, :1] / 2).to_mne().set_eeg_reference(["E7"], verbose="error")
    average = trials.to_mne().set_eeg_reference("average", verbose="error")
    assert single.info["custom_ref_applied"] == average.info["custom_ref_applied"] == 1
    for trained, given, message in (
        (single, average, "average-referenced"),
        (average, single, "not average-referenced"),
    ):
        decoder(max_epochs=1).fit(trained).save_pretrained(tmp_path)
        fitted = EEGDecoder.from_pretrained(tmp_path)
        with pytest.raises(MismatchError, match=rf"'X' is {message}.*plain array"):
            fitted.predict(given)
        with pytest.raises(MismatchError, match=message):
            decoder(max_epochs=1, validation=given[30:]).fit(trained[:30])
        assert said(fitted.predict, given.get_data()) == [ReferenceWarning]
        assert said(fitted.predict, trained) == said(fitted.predict, trained.get_data()[:1]) == []


def test_the_reference_of_arrays_is_warned_of(decoder):
    trials = noise()
    fitted = decoder(max_epochs=1).fit(averaged(trials).X, trials.y)
    assert fitted.samples_.average_reference
    with pytest.warns(ReferenceWarning, match="not average-referenced.*set_eeg_reference"):
        fitted.predict(trials.X[:1])
    assert said(fitted.predict, np.rint(averaged(trials).X)) == []  # a file in whole microvolts
    few = decoder(max_epochs=1).fit(averaged(noise(n_chans=3)).X, trials.y)
    assert few.samples_.average_reference is None


@pytest.mark.parametrize("single", [False, True], ids=["all", "one trial"])
@pytest.mark.parametrize(
    ("trained", "given", "message"),
    [
        ((8, 30), None, "dB more power from 2 to 4 Hz"),
        (None, (8, 30), "dB less power from 2 to 4 Hz"),
        ((1, 40), (8, 30), "dB less power from 2 to 4 Hz"),
        ((8, 30), (1, 40), "dB more power from 2 to 4 Hz"),
    ],
)
def test_other_filters_are_seen_in_the_spectrum(decoder, tmp_path, trained, given, message, single):
    ours, theirs = (
        noise(seed=seed) if band is None else passed(noise(seed=seed), *band)
        for seed, band in enumerate((trained, given))
    )
    theirs = theirs[:1] if single else theirs
    decoder(max_epochs=1).fit(ours).save_pretrained(tmp_path)
    fitted = EEGDecoder.from_pretrained(tmp_path)
    for x in (theirs, theirs.X):
        with pytest.warns(UnknownFilterWarning, match=message) as caught:
            fitted.predict(x)
        assert len(caught) == 1
    arrays = decoder(max_epochs=1, sfreq=125.0).fit(ours.X, ours.y)
    assert said(arrays.predict, theirs.X) == said(arrays.predict, theirs) == [UnknownFilterWarning]
    assert said(decoder(max_epochs=1).fit(ours.X, ours.y).predict, theirs.X) == []  # in Hz it is not known
    assert said(fitted.predict, ours[:1]) == said(fitted.predict, ours.X) == []


def test_known_filters_are_compared_by_their_edges_and_not_twice(decoder):
    header = {"step": "recorded", "highpass": 0.0, "lowpass": 62.5, "custom_ref_applied": 0, "projections": 0}
    known = noise().replace(steps=(header,))
    fitted = decoder(max_epochs=1).fit(known)
    assert said(fitted.predict, passed(known, 8, 30)) == []
    band = {"step": "band_pass", "low": 8.0, "high": 30.0, "order": 4}
    filtered = decoder(max_epochs=1).fit(passed(noise(), 8, 30).replace(steps=(band,)))
    assert said(filtered.predict, noise().X) == [UnknownFilterWarning]


def test_added_noise_is_no_filter(decoder):
    band = passed(noise(), 8, 30)
    assert said(decoder(max_epochs=1).fit(band).predict, add_noise(band, 0.2, 0)) == []


def test_rounding_is_no_filter(decoder):
    band = passed(noise(), 8, 30)
    fitted = decoder(max_epochs=1, sfreq=125.0).fit(10 * band.X, band.y)
    assert said(fitted.predict, np.rint(10 * band.X)) == []


def test_a_model_that_was_saved_without_a_spectrum_is_read(decoder, tmp_path):
    trials = noise()
    fitted = decoder(max_epochs=1).fit(trials)
    fitted.save_pretrained(tmp_path)
    assert EEGDecoder.from_pretrained(tmp_path).samples_ == fitted.samples_
    config = json.loads((tmp_path / "config.json").read_text())
    del config["extra"]["estimator"]["samples"]
    (tmp_path / "config.json").write_text(json.dumps(_io.sealed(json.dumps(config))))
    older = EEGDecoder.from_pretrained(tmp_path)
    assert older.samples_ is None
    assert said(older.predict, passed(averaged(trials), 8, 30).X) == []
    older.save_pretrained(tmp_path)
    assert EEGDecoder.from_pretrained(tmp_path).recorded_ == fitted.recorded_


@pytest.mark.parametrize("change", [{"spectrum": [0.0]}, {"sfreq": None}, {"average_reference": 1}, {"sfreq": "a"}])
def test_damaged_spectra_are_refused(decoder, tmp_path, change):
    decoder(max_epochs=1).fit(noise()).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["extra"]["estimator"]["samples"] |= change
    (tmp_path / "config.json").write_text(json.dumps(_io.sealed(json.dumps(config))))
    with pytest.raises(ModelFileError):
        EEGDecoder.from_pretrained(tmp_path)


@pytest.mark.parametrize("n_times", [16, 40, 64, 100])
def test_short_flat_and_slow_epochs_have_no_spectrum_to_compare(decoder, n_times):
    x = noise(n_times=n_times).X
    fitted = decoder(max_epochs=1, sfreq=125.0).fit(x, np.arange(40) % 2)
    assert said(fitted.predict, x[:1]) == said(fitted.predict, np.zeros_like(x)) == []
    assert decoder(max_epochs=1, sfreq=3.0).fit(x, np.arange(40) % 2).samples_.spectrum == ()


def test_a_later_filter_narrows_the_band_and_does_not_widen_it(decoder):
    band = {"step": "band_pass", "low": 8.0, "high": 30.0, "order": 4}
    trials = noise(n_times=800, sfreq=160.0)
    narrow = passed(trials, 8, 30).replace(steps=(band,))
    info = mne.create_info(list(trials.ch_names), 160.0, "eeg")
    with info._unlock():
        info.update(highpass=1.0, lowpass=40.0)
    wide = mne.EpochsArray(1e-6 * trials.X.astype(float), info, verbose="error")
    fitted = decoder(max_epochs=1).fit(wide, trials.y)
    refiltered = narrow.to_mne().filter(1, 40, verbose="error")
    with pytest.raises(MismatchError, match="highpass=8 Hz"):
        fitted.predict(refiltered)
    known = Recorded.of(refiltered)
    assert (known.highpass, known.lowpass) == (8.0, 30.0)
    resampled = Recorded.of(narrow.to_mne().resample(100, verbose="error").resample(160, verbose="error"))
    assert (resampled.highpass, resampled.lowpass) == (8.0, 30.0)


# ---- names of channels


def padded(names):
    """Names as PhysioNet writes them: "Fc5.", "C3.."."""
    return [name.capitalize().ljust(4, ".") for name in names]


def test_case_and_trailing_dots_of_channels_do_not_matter(decoder, recorded):
    fitted, other = decoder().fit(recorded), recorded.replace(ch_names=padded(recorded.ch_names))
    np.testing.assert_array_equal(fitted.predict_proba(other), fitted.predict_proba(recorded))


def test_epochs_with_more_channels_are_told_to_pick_those_of_the_model(decoder, recorded):
    fitted = decoder().fit(recorded)
    extra = np.concatenate([recorded.X[:, :1] * 0.5, recorded.X], axis=1)
    other = recorded.replace(X=extra, ch_names=["EOG", *padded(recorded.ch_names)])
    with pytest.raises(MismatchError, match=r"pick these .* by trials\.select\(channels=\['C3\.\.'"):
        fitted.predict(other)
    picked = other.select(channels=padded(recorded.ch_names))
    np.testing.assert_array_equal(fitted.predict_proba(picked), fitted.predict_proba(recorded))
