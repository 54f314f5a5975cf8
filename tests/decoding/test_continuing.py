"""Trainings that continue: ``warm_start`` and ``partial_fit``."""

from __future__ import annotations

import mne
import numpy as np
import pytest
import torch

from gbwatt.data import Trials, load
from gbwatt.decoding import Callback, EEGDecoder, GBWAttClassifier
from gbwatt.decoding.paradigms import FINE_TUNING, UPDATE_EPOCHS, fine_tuning_for
from gbwatt.errors import (
    CheckpointError,
    MismatchError,
    NonFiniteLossError,
    ParameterError,
    ScaleWarning,
    ShapeError,
    UnknownLabelError,
)
from tests.decoding.tiny import make_trials

SIZES = {"n_spatial": 4, "n_temporal": 4, "kernel": 9, "k": 3}


def state(decoder):
    return {name: x.clone() for name, x in decoder.net_.module_.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class Watch(Callback):
    """Keeps the weights before the first epoch."""

    def on_train_begin(self, net, **_):
        self.first = {name: x.clone() for name, x in net.module_.state_dict().items()}
        self.net = net


@pytest.fixture
def more():
    return make_trials(n=20, seed=5)


def as_trials(x, y, **changes):
    codes = np.where(y == "left", 0, 1)
    fields = {"ch_names": ["C3", "C4", "Cz", "Pz"], "sfreq": 128.0, "class_names": ("left", "right"), "unit": "µV"}
    return Trials(X=x, y=codes, **{**fields, **changes})


# ---------------------------------------------------------------------------------------------------------- warm start


def test_without_warm_start_fit_begins_again(decoder, trials, more):
    first = decoder().fit(*trials)
    assert same(state(first), state(decoder().fit(*more).fit(*trials)))


def test_with_warm_start_fit_continues_from_the_previous_weights(decoder, trials, more):
    watch = Watch()
    fitted = decoder(warm_start=True).fit(*trials)
    before, scale = state(fitted), fitted.scale_
    fitted.set_params(callbacks=[watch], max_epochs=3).fit(more[0] * 2, more[1])
    assert same(watch.first, before)
    assert not same(state(fitted), before)
    assert fitted.scale_ == scale
    assert len(fitted.history_) == 3


def test_the_first_fit_with_warm_start_is_an_ordinary_one(decoder, trials):
    assert same(state(decoder(warm_start=True).fit(*trials)), state(decoder().fit(*trials)))


def test_continued_trainings_are_reproducible_and_have_another_order_of_trials(decoder, trials):
    twice = [decoder(warm_start=True, lr=0.0).fit(*trials) for _ in range(2)]
    assert same(*map(state, twice))
    fits = [decoder(warm_start=True).fit(*trials).fit(*trials) for _ in range(2)]
    assert same(*map(state, fits))
    first, again = Watch(), Watch()
    decoder(warm_start=True, callbacks=[first]).fit(*trials).set_params(callbacks=[again]).fit(*trials)
    assert first.net.seed != again.net.seed


def test_the_previous_weights_are_kept_if_training_does_not_lower_the_validation_loss(decoder, trials):
    x, y = trials
    fitted = decoder(warm_start=True).fit(*trials)
    before = state(fitted)
    wrong = np.where(y == "left", "right", "left")
    fitted.set_params(validation=(x, y)).fit(x[::-1] * 1.01, wrong[::-1])
    assert fitted.best_epoch_ == 0
    assert same(state(fitted), before)


def test_ensembles_and_saved_models_continue(decoder, trials, more, tmp_path):
    fitted = decoder(warm_start=True, n_members=2).fit(*trials)
    fitted.save_pretrained(tmp_path)
    loaded = EEGDecoder.from_pretrained(tmp_path)
    assert loaded.warm_start
    for one in (fitted, loaded):
        one.fit(*more)
    assert same(state(fitted), state(loaded))
    assert len(fitted.net_.module_.members) == 2


def test_all_training_trials_are_remembered(decoder, trials, more):
    fitted = decoder(warm_start=True, validation=None).fit(*trials).fit(*more)
    assert set(fitted.used_for(trials[0])) == set(fitted.used_for(more[0])) == {"training"}
    assert set(fitted.used_for(make_trials(n=5, seed=9)[0])) == {"unseen"}


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        (lambda x, y: (x[:, :3], y), ShapeError, "does not match the model's input"),
        (lambda x, y: (x[..., :16], y), ShapeError, "does not match the model's input"),
        (lambda x, y: (x, np.where(y == "left", "up", y)), UnknownLabelError, "'up'"),
        (lambda x, y: (x[y == "left"], y[y == "left"]), ParameterError, "no trial of class 'right'.*partial_fit"),
    ],
)
def test_other_signals_and_classes_are_refused(decoder, trials, changes, error, text):
    fitted = decoder(warm_start=True).fit(*trials)
    before = state(fitted)
    with pytest.raises(error, match=text):
        fitted.fit(*changes(*trials))
    assert same(state(fitted), before)


@pytest.mark.parametrize(
    "changes", [{"model_options": {"width": 2}}, {"n_members": 2}, {"model": "spdnet"}], ids=lambda one: next(iter(one))
)
def test_another_network_is_refused(decoder, trials, changes):
    fitted = decoder(warm_start=True).fit(*trials)
    with pytest.raises(ParameterError, match="warm_start=True continues with the network of the previous fit"):
        fitted.set_params(**changes).fit(*trials)


def test_the_checkpoint_of_the_previous_fit_is_not_continued(decoder, trials, tmp_path):
    fitted = decoder(warm_start=True, checkpoint=tmp_path / "a").fit(*trials)
    with pytest.raises(CheckpointError, match="initial weights"):
        fitted.fit(*trials)
    fitted.set_params(checkpoint=tmp_path / "b").fit(*trials)


def test_classical_pipelines_have_no_warm_start(trials):
    with pytest.raises(ParameterError, match=r"warm_start=True: .*'mdm' is a classical pipeline"):
        EEGDecoder("mdm", warm_start=True).fit(*trials)


# --------------------------------------------------------------------------------------------------------- partial fit


def test_partial_fit_trains_on_the_new_trials_from_the_present_weights(decoder, trials, more):
    fitted, watch = decoder().fit(*trials), Watch()
    before = state(fitted)
    fitted.set_params(callbacks=[watch]).partial_fit(*more)
    assert same(watch.first, before)
    assert not same(state(fitted), before)
    assert len(fitted.history_) == UPDATE_EPOCHS == fitted.best_epoch_
    assert "valid_loss" not in fitted.history_[0]
    assert len({row["lr"] for row in fitted.history_}) == 1


def test_partial_fit_learns(decoder, trials):
    x, y = trials
    fitted = decoder(max_epochs=20, lr=0.05).fit(x, y)
    wrong = np.where(y == "left", "right", "left")  # the user has changed hands
    before = fitted.score(x, wrong)
    for _ in range(6):
        fitted.partial_fit(x, wrong)
    assert before < 0.3
    assert fitted.score(x, wrong) > 0.7


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_few_trials_of_a_class_are_enough_and_statistics_stay(decoder, trials, n):
    x, y = trials
    fitted = decoder().fit(x, y)
    norm, scale = fitted.net_.module_.norm, fitted.scale_
    mean, var = norm.running_mean.clone(), norm.running_var.clone()
    fitted.partial_fit(20 * x[:n], np.repeat("left", n))
    norm = fitted.net_.module_.norm
    assert torch.equal(norm.running_mean, mean)
    assert torch.equal(norm.running_var, var)
    assert fitted.scale_ == scale


def test_the_learning_rate_is_that_of_fine_tuning_unless_it_is_given(trials):
    x, y = make_trials(n=24, n_times=64)
    for task in ("mi", "ssvep"):
        fitted = GBWAttClassifier(task=task, max_epochs=1, model_options=SIZES).fit(x, y).partial_fit(x, y)
        training = fine_tuning_for(task)
        assert (fitted.net_.lr, fitted.net_.batch_size) == (training.lr, training.batch_size)
        assert fitted.set_params(lr=1e-4).partial_fit(x, y).net_.lr == 1e-4
        assert {row["lr"] for row in fitted.history_} == {1e-4}
    plain = EEGDecoder("spdnet", max_epochs=1).fit(x, y)
    lr = plain.net_.lr
    assert plain.partial_fit(x, y).net_.lr == lr != FINE_TUNING.lr


def test_the_first_call_is_a_fit(decoder, trials):
    assert same(state(decoder().partial_fit(*trials)), state(decoder().fit(*trials)))


def test_classes_that_do_not_occur_yet_are_named_in_the_first_call(decoder, trials, more):
    x, y = trials
    fitted = decoder(validation=None).partial_fit(x, y, classes=["right", "left", "feet"])
    assert fitted.classes_.tolist() == ["feet", "left", "right"] == list(fitted.class_names_)
    assert fitted.predict_proba(x).shape == (40, 3)
    for _ in range(3):
        fitted.partial_fit(more[0], np.where(more[1] == "left", "feet", "right"))
    assert "feet" in fitted.predict(more[0])


def test_names_of_classes_that_do_not_occur_come_from_the_trials(decoder, trials):
    x, y = trials
    data = as_trials(x, y, class_names=("left", "right", "feet"))
    fitted = decoder().partial_fit(data, classes=[0, 1, 2])
    assert fitted.class_names_ == ("left", "right", "feet")


@pytest.mark.parametrize(
    ("classes", "text"), [(["left"], "lack the label 'right'"), (["left", "right", "up"], "differ from those")]
)
def test_wrong_classes_are_named(decoder, trials, classes, text):
    fitted = decoder() if "lack" in text else decoder().fit(*trials)
    with pytest.raises(ParameterError, match=text):
        fitted.partial_fit(*trials, classes=classes)


def test_weights_fitted_to_trials_need_all_classes(trials):
    decoder = EEGDecoder("gbwatt", initialization="classical", model_options=SIZES)
    with pytest.raises(ParameterError, match=r"initialization='classical' needs trials of all classes.*'up'"):
        decoder.partial_fit(*trials, classes=["left", "right", "up"])


def test_unknown_labels_and_other_trials_are_refused(decoder, trials):
    x, y = trials
    fitted = decoder().fit(as_trials(x, y))
    with pytest.raises(UnknownLabelError):
        fitted.partial_fit(x, np.repeat("up", 40))
    with pytest.raises(MismatchError, match="ch_names"):
        fitted.partial_fit(as_trials(x, y, ch_names=["C3", "C4", "Cz", "Oz"]))


def test_trials_in_another_unit_are_converted(decoder, trials, more):
    x, y = trials
    fits = [decoder().fit(as_trials(x, y)) for _ in range(2)]
    fits[0].partial_fit(as_trials(*more))
    fits[1].partial_fit(as_trials(more[0] * 1e-3, more[1], unit="mV"))
    np.testing.assert_allclose(fits[0].predict_proba(x), fits[1].predict_proba(x), atol=1e-5)


def test_arrays_in_another_unit_give_a_warning(decoder, trials, more):
    fitted = decoder().fit(*trials)
    with pytest.warns(ScaleWarning, match="'X' has channels with a standard deviation"):
        fitted.partial_fit(1e6 * more[0], more[1])


def test_epochs_of_mne_update_a_model_of_named_classes(decoder, trials, more):
    x, y = trials
    info = mne.create_info(["C3", "C4", "Cz", "Pz"], 128.0, "eeg")
    codes = np.where(more[1] == "left", 7, 3)
    events = np.c_[np.arange(20) * 100, np.zeros(20, int), codes]
    epochs = mne.EpochsArray(more[0] * 1e-6, info, events, event_id={"right": 3, "left": 7}, verbose="ERROR")
    fitted = decoder().fit(as_trials(x, y), y)
    by_epochs = fitted.partial_fit(epochs)
    by_trials = decoder().fit(as_trials(x, y), y).partial_fit(as_trials(*more))
    np.testing.assert_allclose(by_epochs.predict_proba(x), by_trials.predict_proba(x), atol=1e-4)


def test_new_trials_are_remembered_as_training_trials(decoder, trials, more, tmp_path):
    fitted = decoder().fit(*trials)
    assert set(fitted.used_for(more[0])) == {"unseen"}
    fitted.partial_fit(more[0][:5], more[1][:5])
    fitted.save_pretrained(tmp_path)
    uses = EEGDecoder.from_pretrained(tmp_path).used_for(more[0])
    assert uses.tolist() == ["training"] * 5 + ["unseen"] * 15
    assert {"training", "validation"} == set(fitted.used_for(trials[0]))


def test_saved_models_are_updated_alike(decoder, trials, more, tmp_path):
    fitted = decoder(n_members=2).fit(*trials)
    fitted.save_pretrained(tmp_path)
    loaded = EEGDecoder.from_pretrained(tmp_path)
    for one in (fitted, loaded):
        one.partial_fit(*more).partial_fit(*more)
    assert same(state(fitted), state(loaded))


def test_new_trials_can_be_weighted(decoder, trials, more):
    plain, ones, weighted = (decoder().fit(*trials) for _ in range(3))
    plain.partial_fit(*more)
    ones.partial_fit(*more, sample_weight=np.ones(20))
    weighted.partial_fit(*more, sample_weight=np.arange(1, 21))
    assert same(state(plain), state(ones))
    assert not same(state(plain), state(weighted))


def test_new_domains_are_added(trials):
    x, y = make_trials(n=60, n_times=64)
    domain = np.repeat([1, 2, 3], 20)
    decoder = EEGDecoder(
        "gbwatt", alignment="euclidean", model_options=SIZES | {"domain_norm": "affine-invariant"}, max_epochs=1
    ).fit(x[:40], y[:40], groups=domain[:40])
    whitener = decoder.domains_.alignment.whiteners_[1]
    mean = decoder.net_.module_.domain_norm.running_mean.clone()
    decoder.partial_fit(x[40:], y[40:], groups=domain[40:])
    assert decoder.domains_.names == [1, 2, 3]
    assert decoder.domains_.alignment.whiteners_[1] is whitener
    assert torch.equal(decoder.net_.module_.domain_norm.running_mean[:2], mean)
    assert decoder.predict(x[40:41], groups=[3]).shape == (1,)
    with pytest.raises(ShapeError, match="at least 5"):
        decoder.partial_fit(x[:2], y[:2], groups=[4, 4])
    assert decoder.domains_.names == [1, 2, 3]


def test_an_update_that_fails_changes_nothing(decoder, trials, more):
    class Spoil(Callback):
        def on_grad_computed(self, net, named_parameters, **_):
            next(p for _, p in named_parameters if p.grad is not None).grad.fill_(float("nan"))

    fitted = decoder().fit(*trials)
    before, history = state(fitted), fitted.history_
    with pytest.raises(NonFiniteLossError):
        fitted.set_params(callbacks=[Spoil()]).partial_fit(*more)
    assert same(state(fitted), before)
    assert fitted.history_ == history
    assert set(fitted.used_for(more[0])) == {"unseen"}


@pytest.mark.parametrize("model", ["tangent-space", "csp"])
def test_classical_pipelines_have_no_partial_fit(trials, model):
    with pytest.raises(ParameterError, match=f"'{model}' has no partial_fit.*Call fit"):
        EEGDecoder(model).partial_fit(*trials)


def test_fine_tuned_simulated_recordings_stay_consistent():
    trials = load("simulated-ssvep", 1)
    decoder = GBWAttClassifier(task="ssvep", max_epochs=1, model_options=SIZES).fit(trials[:60])
    decoder.partial_fit(trials[60:80])
    assert set(decoder.predict(trials[80:100])) <= set(decoder.classes_)
