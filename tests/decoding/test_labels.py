"""Labels mean the same from every door: arrays, Trials and epochs of MNE, in fit, score and validation."""

from __future__ import annotations

import json

import mne
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score

from gbwatt import _io
from gbwatt.data.trials import Trials
from gbwatt.decoding import EEGDecoder, UnknownLabelError
from gbwatt.errors import MismatchError, NotFiniteError, ParameterError, RareClassWarning, ScaleWarning
from tests.decoding.tiny import make_trials

CHANNELS = ["C3", "C4", "Cz", "Pz"]


def as_trials(n=40) -> Trials:
    """Labels from 0 on, left before right."""
    x, labels = make_trials(n)
    codes = (labels == "right").astype(int)
    return Trials(X=10 * x, y=codes, class_names=["left", "right"], ch_names=CHANNELS, sfreq=100)


def as_epochs(trials: Trials, event_id=None, **info) -> mne.EpochsArray:
    """The same epochs as another program has them; events 1 and 2 unless told."""
    event_id = event_id or {"left": 1, "right": 2}
    n = len(trials)
    codes = [event_id[name] for name in trials.labels.tolist()]
    made = mne.create_info(CHANNELS, trials.sfreq, "eeg")
    with made._unlock():
        made.update(info)
    events = np.column_stack([np.arange(n), np.zeros(n, int), codes])
    return mne.EpochsArray(1e-6 * trials.X.astype(float), made, events, event_id=event_id, verbose="error")


@pytest.fixture
def trials():
    return as_trials()


@pytest.fixture
def numbered(decoder, trials, tmp_path):
    """A model with classes 0 and 1, as the command line trains them, from its files."""
    decoder(max_epochs=20).fit(trials).save_pretrained(tmp_path / "m")
    return EEGDecoder.from_pretrained(tmp_path / "m")


def test_epochs_are_scored_by_the_names_of_their_events(numbered, trials):
    assert numbered.classes_.tolist() == [0, 1]
    right = numbered.score(trials)
    assert right > 0.8
    for event_id in ({"left": 1, "right": 2}, {"left": 1, "right": 0}, {"right": 7, "left": 9}):
        epochs = as_epochs(trials, event_id)
        assert numbered.score(epochs) == right
        assert numbered.score(epochs, epochs.events[:, 2]) == right
        assert numbered.score(epochs, trials.labels) == right
        assert numbered.score(epochs.get_data() * 1e6, trials.labels.tolist()) == right
        if event_id != {"left": 1, "right": 0}:
            assert numbered.score(epochs, trials.y) == right


@pytest.mark.parametrize("kind", [int, float, str, bool, object])
def test_labels_that_mean_one_class_as_codes_and_another_as_labels_are_refused(numbered, trials, kind):
    epochs = as_epochs(trials, {"left": 1, "right": 0})
    y = trials.y.astype(kind) if kind is not str else trials.y.astype(int).astype(str)
    with pytest.raises(MismatchError, match=r"'y' has the label .*the event 'right'.*'left' of the model.*y=None"):
        numbered.score(epochs, y)
    assert numbered.score(epochs.get_data() * 1e6, trials.y.astype(kind)) == numbered.score(trials)
    assert numbered.score(as_epochs(trials, {"left": 0, "right": 1}), y) == numbered.score(trials)  # both say the same
    some = trials.y.copy()
    some[:2] = 0  # corrected by hand: still the same by both
    assert numbered.score(as_epochs(trials, {"left": 0, "right": 1}), some) == numbered.score(trials.X, some)


@pytest.mark.parametrize("kind", [float, str, bool, object])
def test_codes_of_events_are_understood_in_any_type(numbered, trials, kind):
    epochs = as_epochs(trials, {"left": 1, "right": 0})
    codes = epochs.events[:, 2]
    assert numbered.score(epochs, codes.astype(kind)) == numbered.score(trials)


def test_labels_of_ones_own_may_look_like_codes(decoder, trials):
    epochs, y = as_epochs(trials), np.roll(trials.y, 1) + 1
    fitted = decoder(max_epochs=2).fit(epochs, y)
    assert fitted.classes_.tolist() == [1, 2]
    assert 0 <= fitted.score(epochs, y) <= 1
    assert np.isfinite(cross_val_score(decoder(max_epochs=1), epochs, y, cv=2)).all()
    texts = y.astype(str)
    assert decoder(max_epochs=1).fit(epochs, texts).score(epochs, texts) >= 0
    assert np.isfinite(cross_val_score(decoder(max_epochs=1), epochs, texts, cv=2)).all()


def test_validation_labels_with_two_meanings_are_refused(decoder, trials):
    epochs = as_epochs(trials, {"left": 1, "right": 0})
    with pytest.raises(MismatchError, match="'y_valid' has the label"):
        decoder(max_epochs=1, validation=(epochs[30:], trials.y[30:])).fit(trials[:30])


def test_trials_are_scored_by_the_names_of_their_classes(numbered, trials):
    other = trials.select(classes=["right", "left"])
    assert other.y.tolist() != trials.y.tolist()
    assert numbered.score(other) == numbered.score(other, other.y) == numbered.score(trials)
    unused = trials.replace(class_names=["left", "right", "feet"])
    assert numbered.score(unused) == numbered.score(trials)


@pytest.mark.parametrize(
    "y", [[1, 2] * 20, ["left", "feet"] * 20, ["T1", "T2"] * 20, [0.5, 1] * 20, [None, "left"] * 20]
)
def test_unknown_labels_are_an_error_that_lists_the_known_ones(numbered, trials, y):
    with pytest.raises(UnknownLabelError, match=r"0 \(left\), 1 \(right\)"):
        numbered.score(trials.X, np.array(y, dtype=object if None in y else None))


def test_event_codes_of_other_classes_are_an_error_though_the_numbers_are_known(numbered, trials):
    epochs = as_epochs(trials)
    epochs.event_id = {"feet": 1, "tongue": 2}
    epochs.events[:, 2] -= 1
    epochs.event_id = {"feet": 0, "tongue": 1}
    for y in (None, epochs.events[:, 2]):
        with pytest.raises(UnknownLabelError, match="'feet'"):
            numbered.score(epochs, y)


def test_a_model_of_event_codes_knows_the_names_of_the_events(decoder, trials):
    epochs = as_epochs(trials)
    fitted = decoder(max_epochs=20).fit(epochs, epochs.events[:, 2])
    assert fitted.classes_.tolist() == [1, 2]
    assert fitted.class_names_ == ("left", "right")
    right = fitted.score(epochs, epochs.events[:, 2])
    assert fitted.score(epochs) == fitted.score(trials) == fitted.score(as_epochs(trials, {"left": 5, "right": 4}))
    assert right == fitted.score(trials.X * 1e-6, trials.labels) > 0.8


def test_a_model_of_names_understands_trials(decoder, trials):
    fitted = decoder(max_epochs=20).fit(trials, trials.labels)
    assert fitted.classes_.tolist() == ["left", "right"]
    assert fitted.score(trials) == fitted.score(trials, trials.y) == fitted.score(trials, trials.labels) > 0.8


def test_a_model_of_bare_numbers_takes_the_numbers_of_trials(decoder, trials):
    fitted = decoder(max_epochs=20).fit(trials.X, trials.y)
    assert fitted.class_names_ == ("0", "1")
    assert fitted.score(trials) == fitted.score(trials.X, trials.y) > 0.8
    with pytest.raises(UnknownLabelError, match="'left'"):
        fitted.score(trials.X, trials.labels)


def test_scores_can_be_weighted(numbered, trials):
    right = numbered.predict(trials) == trials.y
    assert numbered.score(trials, sample_weight=right.astype(float)) == 1


def test_names_are_kept_in_files_and_older_files_are_understood(numbered, trials, tmp_path):
    file = tmp_path / "m" / "config.json"
    config = json.loads(file.read_text())
    assert config["extra"]["estimator"].pop("names") == ["left", "right"]
    for name in ("highpass", "lowpass", "custom_ref_applied", "projections"):
        del config["extra"]["estimator"]["recorded"][name]
    file.write_text(json.dumps(_io.sealed(json.dumps(config))))
    older = EEGDecoder.from_pretrained(tmp_path / "m")
    assert older.class_names_ == ("left", "right")
    assert older.score(as_epochs(trials)) == numbered.score(trials)
    assert len(older.predict(as_epochs(trials, highpass=8.0, lowpass=30.0))) == 40  # nothing is known of its filters


def test_weights_of_classes_may_be_given_by_name(decoder, trials):
    by_name = decoder(class_weight={"left": 3.0}).fit(trials)
    by_label = decoder(class_weight={0: 3.0}).fit(trials)
    assert by_name.history_[-1]["train_loss"] == by_label.history_[-1]["train_loss"]


# ---- scikit-learn and validation


def test_epochs_of_mne_can_be_cross_validated(decoder, trials):
    epochs = as_epochs(trials)
    for y in (epochs.events[:, 2], trials.labels):
        scores = cross_val_score(decoder(max_epochs=20), epochs, y, cv=2)
        same = cross_val_score(decoder(max_epochs=20), epochs.get_data(), y, cv=2)
        assert scores.tolist() == same.tolist()
    assert scores.mean() > 0.7
    search = GridSearchCV(decoder(max_epochs=2), {"lr": [0.01, 0.02]}, cv=2).fit(epochs, epochs.events[:, 2])
    assert search.best_estimator_.recorded_.ch_names == tuple(CHANNELS)


def lazily(trials: Trials, reject=None) -> mne.Epochs:
    """The same epochs, to be cut from a recording when their data are needed; the first and the fifth have a peak."""
    n, n_chans, n_times = trials.X.shape
    samples = 1e-6 * trials.X.astype(float)
    if reject is not None:
        samples[[0, 4], 0, 7] = 1.0
    raw = mne.io.RawArray(
        samples.transpose(1, 0, 2).reshape(n_chans, -1), mne.create_info(CHANNELS, trials.sfreq, "eeg"), verbose="error"
    )
    events = np.column_stack([n_times * np.arange(n), np.zeros(n, int), trials.y + 1])
    window = {"tmin": 0, "tmax": (n_times - 1) / trials.sfreq, "baseline": None}
    event_id = {"left": 1, "right": 2}
    return mne.Epochs(raw, events, event_id, **window, reject=reject, preload=False, verbose="error")


@pytest.mark.parametrize("reject", [None, {"eeg": 0.5}], ids=["all", "rejected"])
def test_epochs_may_be_loaded_when_they_are_used(decoder, trials, reject):
    kept = trials if reject is None else trials[[i for i in range(40) if i not in (0, 4)]]
    loaded = as_epochs(kept)
    want = decoder(max_epochs=20).fit(loaded)
    lazy = lazily(trials, reject)
    got = decoder(max_epochs=20).fit(lazy)
    assert not lazy.preload
    assert got.history_[-1]["train_loss"] == pytest.approx(want.history_[-1]["train_loss"], rel=1e-4)
    assert want.score(lazily(trials, reject)) == want.score(loaded) > 0.8
    assert want.labels_of(lazily(trials, reject)).tolist() == kept.labels.tolist()
    assert want.score(lazily(trials, reject), kept.labels) == want.score(loaded)
    assert want.predict(lazily(trials, reject)).tolist() == want.predict(loaded).tolist()
    assert want.used_for(lazily(trials, reject)).tolist() == want.used_for(loaded).tolist()


@pytest.mark.parametrize("reject", [None, {"eeg": 0.5}], ids=["all", "rejected"])
def test_epochs_loaded_when_used_can_be_validated_on_and_cross_validated(decoder, trials, reject):
    train, valid = trials[20:], trials[:20]
    kept = valid if reject is None else valid[[i for i in range(20) if i not in (0, 4)]]
    want = decoder(validation=as_epochs(kept)).fit(as_epochs(train))
    for given in (lazily(valid, reject), (lazily(valid, reject), None)):
        got = decoder(validation=given).fit(as_epochs(train))
        assert got.history_[-1]["valid_loss"] == pytest.approx(want.history_[-1]["valid_loss"], rel=1e-4)
    with pytest.raises(ParameterError, match="training trials too"):
        decoder(validation=lazily(trials[29:], reject)).fit(lazily(trials[20:35]))
    lazy = lazily(trials, reject).drop_bad()  # scikit-learn asks for their number
    y = lazy.events[:, 2]
    scores = cross_val_score(decoder(max_epochs=20), lazy, y, cv=2)
    assert not lazy.preload
    assert scores.tolist() == cross_val_score(decoder(max_epochs=20), lazy.copy().load_data(), y, cv=2).tolist()


def test_validation_may_be_epochs_of_mne(decoder, trials, tmp_path):
    train, valid = trials[:30], trials[30:]
    pair = decoder(validation=(valid.X, valid.y)).fit(train)
    fitted = decoder(validation=as_epochs(valid)).fit(train)
    assert fitted.history_[-1]["valid_loss"] == pytest.approx(pair.history_[-1]["valid_loss"], rel=1e-4)
    epochs = decoder(validation=as_epochs(valid)).fit(as_epochs(train))
    coded = decoder(validation=as_epochs(valid)).fit(as_epochs(train), as_epochs(train).events[:, 2])
    assert epochs.history_[-1]["valid_loss"] == coded.history_[-1]["valid_loss"]
    fitted.save_pretrained(tmp_path / "m")
    assert EEGDecoder.from_pretrained(tmp_path / "m").score(valid) == fitted.score(valid)
    with pytest.raises(ParameterError, match="training trials too"):
        decoder(validation=as_epochs(trials[29:])).fit(as_epochs(train))
    with pytest.raises(MismatchError, match="ch_names"):
        decoder(validation=as_epochs(valid).reorder_channels(CHANNELS[::-1])).fit(train)


def test_a_single_trial_of_a_class_is_trained_on_with_a_warning(decoder, trials):
    rare = trials.replace(class_names=["left", "right", "feet"], y=[2, *trials.y[1:]])
    with pytest.warns(RareClassWarning, match="'?feet'?|2"):
        fitted = decoder(max_epochs=1).fit(rare)
    assert fitted.classes_.tolist() == [0, 1, 2]
    uses = fitted.used_for(rare)
    assert uses[0] == "training"
    assert (uses == "validation").sum() == 8


# ---- the unit of arrays


@pytest.mark.parametrize(("factor", "remedy"), [(1e-6, "1e6"), (1e6, "1e-6"), (1e-3, "1e3")])
def test_arrays_in_another_unit_give_a_warning_with_the_factor(decoder, trials, factor, remedy):
    fitted = decoder(max_epochs=1).fit(trials.X, trials.y)
    with pytest.warns(ScaleWarning, match=f"by {remedy},"):
        fitted.predict(trials.X * factor)
    with pytest.warns(ScaleWarning, match="'X_valid'"):
        decoder(max_epochs=1, validation=(trials.X[:9] * factor, trials.y[:9])).fit(trials.X[9:], trials.y[9:])


def test_warnings_of_the_unit_point_at_the_line_of_the_user(decoder, trials):
    fitted = decoder(max_epochs=1).fit(trials.X, trials.y)
    valid = (trials.X[:9] * 1e6, trials.y[:9])
    calls = [
        lambda: fitted.predict(trials.X * 1e6),
        lambda: fitted.predict_proba(trials.X * 1e6),
        lambda: fitted.score(trials.X * 1e6, trials.y),
        lambda: decoder(max_epochs=1, validation=valid).fit(trials.X[9:], trials.y[9:]),
    ]
    for call in calls:
        with pytest.warns(ScaleWarning) as caught:
            call()
        assert [w.filename for w in caught if w.category is ScaleWarning] == [__file__]


def test_scales_that_differ_by_less_are_no_cause_for_a_warning(decoder, trials, recwarn):
    fitted = decoder(max_epochs=1).fit(trials)
    for x in (trials.X * 30, trials.X / 30, np.zeros_like(trials.X) + 1e-9, as_epochs(trials)):
        fitted.predict(x)
    assert not [w for w in recwarn if issubclass(w.category, ScaleWarning)]


# ---- devices


@pytest.mark.parametrize("device", ["cuda", "cuda:3", "mps", "gpu", "meta"])
def test_a_device_that_is_not_there_is_said_before_training(decoder, trials, tmp_path, monkeypatch, device):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with pytest.raises(ParameterError, match=f"device='{device}'"):
        decoder(device=device, log=tmp_path / "log.csv").fit(trials)
    assert not (tmp_path / "log.csv").exists()
    decoder(max_epochs=1).fit(trials).save_pretrained(tmp_path / "m")
    with pytest.raises(ParameterError, match=f"device='{device}'"):
        EEGDecoder.from_pretrained(tmp_path / "m", device=device)


def test_classes_without_names_are_compared_with_the_labels(numbered, trials):
    bare = trials.replace(class_names=["0", "1"])
    assert numbered.score(bare) == numbered.score(trials)
    with pytest.raises(UnknownLabelError, match="'3'"):
        numbered.score(trials.replace(class_names=["0", "3"]))


# --------------------------------------------------------------------------------------------- names from every door


@pytest.mark.parametrize("kind", ["texts", "objects"])
def test_a_model_of_named_classes_predicts_these_names_from_every_door(decoder, trials, tmp_path, kind):
    y = trials.labels.astype(object) if kind == "objects" else trials.labels
    fitted = decoder(max_epochs=20).fit(trials, y)
    fitted.save_pretrained(tmp_path / "m")
    expected = fitted.predict(trials)
    assert set(expected) == {"left", "right"} == set(fitted.class_names_)
    doors = {
        "arrays": trials.X,
        "Trials": trials,
        "epochs": as_epochs(trials),
        "other codes": as_epochs(trials, {"left": 5, "right": 3}),
    }
    for model in (fitted, EEGDecoder.from_pretrained(tmp_path / "m")):
        assert model.classes_.dtype == y.dtype
        for name, door in doors.items():
            np.testing.assert_array_equal(model.predict(door), expected, err_msg=name)
            assert model.score(door, y) == (expected == y).mean()
            if name != "arrays":
                assert model.score(door) == (expected == y).mean()


def test_a_model_of_epochs_predicts_the_names_of_its_events(decoder, trials):
    fitted = decoder(max_epochs=20).fit(as_epochs(trials))
    assert fitted.classes_.tolist() == ["left", "right"]
    np.testing.assert_array_equal(fitted.predict(trials), fitted.predict(as_epochs(trials)))
    assert set(fitted.predict(1e-6 * trials.X)) == {"left", "right"}


@pytest.mark.parametrize("missing", [np.nan, None])
def test_trials_without_a_label_are_named(missing):
    y = np.array([0.0, 1.0] * 10, dtype=object)
    y[[3, 4, 9]] = missing
    y = y if missing is None else y.astype(float)
    with pytest.raises(NotFiniteError, match=r"'y' has no label .* for trials 3-4, 9.*leave these trials out"):
        EEGDecoder("lda").fit(np.random.default_rng(0).standard_normal((20, 3, 32)), y)


@pytest.mark.parametrize("kind", [as_epochs, lambda trials: trials], ids=["epochs", "trials"])
def test_trials_whose_labels_were_given_under_other_names_need_them_for_scores_too(decoder, trials, kind):
    given, names = kind(trials), np.where(trials.y == 0, "fist", "foot")
    fitted = decoder().fit(given, names)
    assert fitted.score(given, names) > 0.5
    with pytest.raises(
        UnknownLabelError, match=r"on the classes 'fist', 'foot'\. Give y with labels or names of these"
    ):
        fitted.score(given)


def test_labels_of_which_only_some_are_texts_are_refused(decoder, trials):
    with pytest.raises(MismatchError, match=r"different types, such as 1 \(int\) and 'a' \(str\).*y\.astype\(str\)"):
        decoder().fit(trials.X, np.array([1, "a"] * 20, dtype=object))
