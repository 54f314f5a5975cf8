"""A loss that is not a number stops the training, says why, and loses nothing."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from gbwatt.decoding import EEGDecoder, NonFiniteLossError, training
from gbwatt.models import create
from tests.decoding.test_estimator import same, weights
from tests.decoding.tiny import Tiny, make_trials


@pytest.fixture
def break_in(monkeypatch):
    """Change the model's forward pass from a number of training calls on."""

    def after(calls, change):
        forward, count = Tiny.forward, [0]

        def broken(self, x):
            count[0] += self.training
            return change(self, x, forward) if count[0] > calls and self.training else forward(self, x)

        monkeypatch.setattr(Tiny, "forward", broken)

    return after


def spoil_parameter(self, x, forward):
    with torch.no_grad():
        self.final_layer.weight[0, 0] = float("nan")
    return forward(self, x)


def spoil_output(self, x, forward):
    return forward(self, x) * torch.inf


def spoil_layer(self, x, forward):
    return forward(self, x * 0)  # the logarithm of no power


class _BadGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * float("nan")


def spoil_gradient(self, x, forward):
    return _BadGradient.apply(forward(self, x))


@pytest.mark.parametrize(
    "spoil, culprit",
    [
        (spoil_parameter, "parameter 'final_layer.weight'"),
        (spoil_output, r"output of 'the model' \(Tiny\)"),
        (spoil_layer, r"output of 'norm' \(BatchNorm1d\)"),
        (spoil_gradient, "gradient of 'mix'|gradient of 'scale'"),
    ],
)
@pytest.mark.parametrize("validation", [0.2, None])
def test_the_error_says_where_and_what_and_the_best_weights_stay(
    decoder, trials, break_in, monkeypatch, spoil, culprit, validation
):
    whole = decoder(max_epochs=3, validation=validation).fit(*trials)
    per_epoch = 2 if validation else 3  # batches of 16 in 32 or 40 trials
    with monkeypatch.context():
        break_in(3 * per_epoch + 1, spoil)
        broken = decoder(validation=validation)
        with pytest.raises(NonFiniteLossError, match=culprit) as caught:
            broken.fit(*trials)
    assert (caught.value.epoch, caught.value.batch) == (4, 2)
    assert "epoch 4, batch 2" in str(caught.value)
    assert "smaller lr than 0.02" in str(caught.value)
    monkeypatch.undo()
    assert len(broken.history_) == 3
    assert same(weights(broken), weights(whole))
    assert np.array_equal(broken.predict(trials[0]), whole.predict(trials[0]))


def test_a_loss_of_validation_is_watched_too(decoder, trials, monkeypatch):
    forward = Tiny.forward
    monkeypatch.setattr(Tiny, "forward", lambda self, x: forward(self, x) * (1 if self.training else torch.nan))
    with pytest.raises(NonFiniteLossError, match="the validation loss is not finite in epoch 1"):
        decoder().fit(*trials)


def test_an_input_that_is_not_finite_is_the_first_suspect():
    culprit, remedy = training.find_culprit(Tiny(4, 2), torch.full((2, 4, 8), torch.inf))
    assert "input" in culprit
    assert "Clean" in remedy
    assert training.find_culprit(Tiny(4, 2), torch.randn(2, 4, 8)) is None


def test_numbers_are_finite_also_if_their_sum_is_not():
    large = torch.full((3,), 3e38)
    assert training.finite([])
    assert training.finite([large, torch.ones(2, dtype=torch.float64)])
    for bad in (torch.nan, torch.inf, -torch.inf):
        assert not training.finite([torch.ones(2), torch.tensor([1.0, bad])])
    assert not training.finite([torch.tensor([torch.inf, -torch.inf]), large])


def test_a_matrix_function_that_refuses_nan_is_explained(monkeypatch):
    """The geometry raises before there is a loss; the message still names epoch, batch and parameter."""
    x, y = make_trials(n=24, n_times=64)

    def build(*args, **kwargs):
        model = create(*args, **kwargs)
        torch.nn.init.constant_(model.final_layer.weight, 0)
        with torch.no_grad():
            next(model.features.parameters())[:] = torch.nan
        return model

    monkeypatch.setattr("gbwatt.decoding.estimator.create", build)
    with pytest.raises(NonFiniteLossError, match=r"epoch 1, batch 1: parameter 'features"):
        EEGDecoder(max_epochs=1).fit(x, y)


def test_the_error_survives_the_way_between_processes():
    error = NonFiniteLossError(3, 4, "the input", "Clean it.")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.epoch, copy.batch, copy.culprit) == (str(error), 3, 4, "the input")


def test_an_interruption_reaches_the_caller_and_keeps_the_best_weights(decoder, trials, break_in, monkeypatch):
    def interrupt(self, x, forward):
        raise KeyboardInterrupt

    whole = decoder(max_epochs=3).fit(*trials)
    break_in(7, interrupt)
    stopped = decoder()
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(*trials)
    monkeypatch.undo()
    assert same(weights(stopped), weights(whole))
