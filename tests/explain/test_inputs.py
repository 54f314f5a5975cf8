from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

from gbwatt.decoding import EEGDecoder
from gbwatt.errors import MismatchError, ParameterError, ShapeError
from gbwatt.explain import gradient, inputs
from gbwatt.explain.inputs import prepare
from gbwatt.models import GBWAtt


def linear(n_chans=6, n_times=64, n_outputs=2):
    return nn.Sequential(nn.Flatten(), nn.Linear(n_chans * n_times, n_outputs))


# ---- targets


def test_true_target_is_the_class_of_each_trial(decoder, trials):
    assert prepare(decoder, trials).labels("true").tolist() == trials.y.tolist()


def test_predicted_target_is_what_the_decoder_predicts(decoder, trials):
    assert prepare(decoder, trials).labels("predicted").tolist() == decoder.predict(trials).tolist()


@pytest.mark.parametrize("target", ["right", 1, np.int64(1)])
def test_one_class_by_name_or_number(decoder, trials, target):
    assert prepare(decoder, trials).labels(target).tolist() == [1] * len(trials)


def test_a_class_for_each_trial(decoder, trials):
    wanted = np.arange(len(trials)) % 2
    assert prepare(decoder, trials.X).labels(wanted).tolist() == wanted.tolist()


def test_names_of_classes_for_each_trial(decoder, trials):
    wanted = np.arange(len(trials)) % 2
    for names in (np.array(["left", "right"])[wanted], np.array(["left", "right"], object)[wanted]):
        assert prepare(decoder, trials.X).labels(names).tolist() == wanted.tolist()
        assert prepare(decoder, trials.X).labels(names.tolist()).tolist() == wanted.tolist()


def test_true_target_of_an_array_is_refused_with_the_remedy(decoder, trials):
    with pytest.raises(ParameterError, match=r"target='true' needs.*'trials', an array, .*pass Trials"):
        gradient(decoder, trials.X, "true")


def test_true_target_of_epochs_is_the_name_of_the_event(decoder, trials):
    epochs = trials.to_mne()
    assert prepare(decoder, epochs).labels("true").tolist() == trials.y.tolist()
    epochs.event_id = {"left": 1, "rest": 2}
    with pytest.raises(ParameterError, match="class of trial 1 was not in the training data"):
        gradient(decoder, epochs)


def test_true_target_of_epochs_for_a_decoder_of_named_labels(trials):
    epochs = trials.to_mne()
    decoder = EEGDecoder("gbwatt", max_epochs=1, validation=None).fit(epochs)
    assert prepare(decoder, epochs[::2]).labels("true").tolist() == trials.y[::2].tolist()


def test_a_bare_network_does_not_know_the_order_of_the_events(trials):
    with pytest.raises(ParameterError, match="'trials', an EpochsArray, has no labels"):
        gradient(linear(), trials.to_mne())


@pytest.mark.parametrize("target", [2, -1, 1.0, np.zeros(3, int), ["left"] * 3, np.array(["left"] * 59 + ["rest"])])
def test_a_class_that_is_not_there_is_refused(decoder, trials, target):
    with pytest.raises(ParameterError, match=r"from 0 to 1: one, or one for each of 60 trials"):
        gradient(decoder, trials, target)


def test_a_long_target_is_not_printed(decoder, trials):
    with pytest.raises(ParameterError) as refused:
        gradient(decoder, trials, np.full(5000, 7))
    assert "(5000,)" in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_misspelt_class_is_suggested(decoder, trials):
    with pytest.raises(ParameterError, match="Did you mean 'right'"):
        gradient(decoder, trials, "rihgt")


def test_classes_that_training_never_saw_move_the_numbers_of_the_others(trials):
    three = trials.replace(class_names=("left", "rest", "right"), y=2 * trials.y)
    decoder = EEGDecoder("gbwatt", max_epochs=1, validation=None).fit(three)
    prepared = prepare(decoder, three)
    assert prepared.class_names == ("left", "right")
    assert prepared.labels("true").tolist() == trials.y.tolist()
    with pytest.raises(ParameterError, match="class of trial 1 was not in the training data"):
        prepare(decoder, three.replace(y=np.where(three.y == 2, 1, 0))).labels("true")


def test_text_labels_are_matched_by_name(trials):
    decoder = EEGDecoder("gbwatt", max_epochs=1, validation=None).fit(trials, np.array(["right", "left"])[trials.y])
    swapped = trials.replace(class_names=("right", "left"))
    assert prepare(decoder, swapped).labels("true").tolist() == (1 - trials.y).tolist()  # sorted: left is 0


# ---- models and names


def test_trials_have_names_and_arrays_numbers(trials):
    named, bare = prepare(linear(), trials), prepare(linear(), trials.X)
    assert (named.ch_names, named.class_names, named.sfreq, named.tmin) == (
        trials.ch_names,
        trials.class_names,
        64.0,
        0.5,
    )
    assert (bare.ch_names, bare.class_names, bare.sfreq) == (tuple("012345"), ("0", "1"), 1.0)


def test_a_decoder_knows_the_names_of_an_array(decoder, trials):
    assert prepare(decoder, trials.X).ch_names == trials.ch_names


def test_trials_of_another_recording_are_refused(decoder, trials):
    with pytest.raises(MismatchError, match="sfreq"):
        gradient(decoder, trials.replace(sfreq=100.0))


def test_a_network_with_other_classes_is_refused(trials):
    with pytest.raises(MismatchError, match=r"2 classes.*3 outputs"):
        gradient(linear(n_outputs=3), trials)


def test_what_is_no_model_is_refused(trials):
    with pytest.raises(MismatchError, match="'model' is a str"):
        gradient("gbwatt", trials)
    with pytest.raises(NotFittedError):
        gradient(EEGDecoder(), trials)


def test_epochs_that_a_network_was_not_made_for_are_named_and_the_cause_is_kept(trials):
    with pytest.raises(MismatchError, match=r"'trials' \(60, 6, 64\).*Sequential.*\(1, 6, 64\)") as refused:
        gradient(linear(n_chans=5), trials)
    assert isinstance(refused.value.__cause__, RuntimeError)


def test_what_a_network_says_itself_of_its_input_is_left(trials):
    with pytest.raises(ShapeError, match="5"):
        gradient(GBWAtt(n_chans=5, n_outputs=2, n_times=64), trials)


@pytest.mark.parametrize("answer", [lambda z: z[:, 0], lambda z: (z, z), lambda z: z[None]], ids=["1-D", "two", "3-D"])
def test_outputs_that_are_no_logits_are_refused(answer, trials):
    class Odd(nn.Module):
        def forward(self, x):
            return answer(x.mean(2))

    with pytest.raises(ShapeError, match=r"'model', a Odd, gives .*logits \(batch, n_classes\) are needed"):
        gradient(Odd(), trials.X, 0)


@pytest.mark.parametrize("constant", [False, True])
def test_a_network_without_gradients_is_refused(constant, trials):
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(2))

        def forward(self, x):
            with torch.no_grad():
                seen = x.mean((1, 2))[:, None] * torch.ones(2)
            return seen + self.bias if constant else seen

    with pytest.raises(ParameterError, match=r"'model', a Hidden.*torch.no_grad"):
        gradient(Hidden(), trials, 0)


def test_trials_that_cannot_be_written_raise_no_warning(trials):
    assert not trials.y.flags.writeable
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = gradient(linear(), trials)
    assert found.labels.flags.writeable


def test_prepared_inputs_are_shown_in_a_line(decoder, trials):
    assert repr(prepare(decoder, trials)).startswith("ModelInputs(module=GBWAtt(…), x=array (60, 6, 64), ")
    assert "\n" not in repr(prepare(decoder, trials))


# ---- the network is left as it was


def test_modes_are_restored_and_parameters_have_no_gradients(decoder, trials):
    module = decoder.net_.module_
    module.zero_grad()
    module.train()
    module.embedding.eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    try:
        gradient(decoder, trials)
        assert module.training
        assert not module.embedding.training
    finally:
        module.eval()
    assert all(p.grad is None for p in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_modes_are_restored_after_an_error(trials):
    class Failing(nn.Module):
        def forward(self, x):
            raise RuntimeError("no")

    model = Failing().train()
    with pytest.raises(MismatchError, match="raises no"):
        prepare(model, trials)
    assert model.training


def test_explanations_are_of_the_evaluation_mode(trials):
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(6 * 64), nn.Dropout(0.5), nn.Linear(6 * 64, 2)).train()
    wanted = model[3].weight[0] / (1 + model[1].eps) ** 0.5
    found = gradient(model, trials.X, 0).values
    np.testing.assert_allclose(found[3].ravel(), wanted.detach().numpy(), rtol=1e-5)


def test_gradients_are_taken_where_the_caller_has_switched_them_off(decoder, trials):
    whole = gradient(decoder, trials).values
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            np.testing.assert_array_equal(gradient(decoder, trials).values, whole)


def test_batches_do_not_change_the_result(decoder, trials, monkeypatch):
    whole = gradient(decoder, trials).values
    monkeypatch.setattr(inputs, "BATCH", 7)
    np.testing.assert_allclose(gradient(decoder, trials).values, whole, rtol=1e-4, atol=1e-4 * abs(whole).max())


def test_no_batch_is_larger_than_memory_allows(trials):
    sizes = []

    class Counting(nn.Module):
        def forward(self, x):
            sizes.append(len(x))
            return x.sum((1, 2))[:, None] * torch.ones(2)

    gradient(Counting(), np.concatenate([trials.X] * 3), "predicted")
    assert sum(sizes) >= 2 * 180
    assert max(sizes) <= inputs.BATCH


def test_trials_are_matched_with_the_classes_of_a_model_by_name(trials):
    epochs = trials.to_mne()
    fitted = EEGDecoder("spdnet", max_epochs=1).fit(epochs, epochs.events[:, 2])  # classes 1 and 2
    renumbered = trials.select(classes=trials.class_names[::-1])
    for given in (trials, renumbered):
        prepared = prepare(fitted, given)
        assert [fitted.class_names_[place] for place in prepared.y] == given.labels.tolist()
    with pytest.raises(MismatchError, match="'another' and 1 more"):
        prepare(fitted, trials.replace(class_names=["other", "another"]))
