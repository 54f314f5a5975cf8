"""The same loop trains on windows of a corpus, here by one process and without accelerate."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gbwatt.clinical.finetuning import FineTuning, finetune, group_options, predict
from gbwatt.decoding import Callback, checkpoints
from gbwatt.decoding.sharding import OrderedWindows, ShardedBatches, SingleProcess
from gbwatt.decoding.training import Trainer
from gbwatt.errors import CheckpointError, NonFiniteLossError
from tests.decoding.test_estimator import same
from tests.decoding.windows import InMemory, small_model

SETTINGS = FineTuning(lr=1e-2, batch_size=32, max_epochs=3, warmup_epochs=0.5, shards=4, layer_decay=0.8)
#: Written within the second of the three epochs, after the third of five steps, before there was one loop.
CHECKPOINT = Path(__file__).parent / "data" / "corpus" / checkpoints.FILE


class Interrupted(Exception):
    pass


def trained(settings=SETTINGS, **arguments):
    model = small_model()
    course = finetune(model, InMemory(150), InMemory(61, seed=1), settings, accelerator=SingleProcess(), **arguments)
    return model, course


def losses(course):
    return [loss for row in course.history for loss in row["step_losses"]]


@pytest.fixture(scope="module")
def whole():
    return trained()


def test_it_learns_and_keeps_its_best_weights(whole):
    model, course = whole
    assert course.history[-1]["valid_accuracy"] > 0.9
    assert same(model.state_dict(), course.best)
    assert len(losses(course)) == 3 * 5
    logits = predict(model, InMemory(61, seed=1), 16, SingleProcess())
    likelihood = torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(InMemory(61, 1).labels))
    assert float(likelihood) == pytest.approx(course.history[course.best_epoch - 1]["valid_loss"], rel=1e-5)


@pytest.mark.parametrize("at", [(1, 2), (2, 1), (2, 4), (3, 1)])
def test_interrupted_within_an_epoch_and_resumed_equals_not_interrupted(whole, tmp_path, at):
    def interrupt(epoch, step, *_):
        if (epoch, step) == at:
            raise Interrupted

    with pytest.raises(Interrupted):
        trained(checkpoint=tmp_path, save_every=1, on_step=interrupt)
    steps = []
    model, course = trained(checkpoint=tmp_path, save_every=1, on_step=lambda *step: steps.append(step[:3]))
    assert steps[0] == (*at, 5)  # the interrupted step is done again, and none before it
    assert same(model.state_dict(), whole[0].state_dict())
    assert losses(course) == losses(whole[1])


def test_a_checkpoint_of_an_earlier_version_is_continued(whole, tmp_path):
    shutil.copy(CHECKPOINT, tmp_path)
    steps = []
    _, course = trained(checkpoint=tmp_path, on_step=lambda *step: steps.append(step[:3]))
    assert steps[0] == (2, 4, 5)
    assert len(course.history) == 3
    np.testing.assert_allclose(losses(course), losses(whole[1]), rtol=1e-3)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    shutil.copy(CHECKPOINT, tmp_path)
    with pytest.raises(CheckpointError, match=r"layer_decay is 0\.8 there and 1\.0 here"):
        trained(replace(SETTINGS, layer_decay=1.0), checkpoint=tmp_path)


def test_early_stopping_ends_after_its_patience():
    _, course = trained(replace(SETTINGS, lr=1e-12, weight_decay=0.0, max_epochs=30, early_stopping=2))
    assert len(course.history) == course.best_epoch + 2 < 30


def test_shards_have_random_numbers_of_their_own(whole):
    settings = replace(SETTINGS, max_epochs=1)
    other = trained(replace(settings, shards=2))[1]
    assert losses(other) != losses(whole[1])[:5]
    assert losses(trained(replace(settings, seed=1))[1]) != losses(whole[1])[:5]


def test_windows_that_are_not_finite_are_named_and_leave_no_checkpoint(tmp_path):
    bad, model = InMemory(60), small_model()
    bad.x[7] = np.nan
    with pytest.raises(NonFiniteLossError, match="the input has NaN"):
        finetune(model, bad, InMemory(20), SETTINGS, accelerator=SingleProcess(), checkpoint=tmp_path)
    assert not (tmp_path / checkpoints.FILE).exists()
    assert same(model.state_dict(), small_model().state_dict())  # the initial weights


class Rates(Callback):
    """Learning rates of all groups at each step."""

    def __init__(self):
        self.rates = []

    def on_grad_computed(self, net, **_):
        self.rates.append([group["lr"] for group in net.optimizer_.param_groups])


def test_the_schedule_scales_the_rates_of_all_stages():
    model, rates, process = small_model(), Rates(), SingleProcess()
    net = Trainer(
        model,
        lr=1e-2,
        batch_size=32,
        max_epochs=3,
        schedule=SETTINGS.rate,
        group_options=group_options(model, SETTINGS),
        callbacks=[rates],
    )
    net.fit(ShardedBatches(InMemory(150), 32, 4, process), OrderedWindows(InMemory(20), 32, process))
    scales = {0.8 ** (len(model.stages()) - 1 - depth) for depth in range(len(model.stages()))}
    for step, found in enumerate(rates.rates):
        assert set(np.round(found, 12)) == {round(1e-2 * SETTINGS.rate(step, 5) * scale, 12) for scale in scales}
    assert [row["lr"] for row in net.history] == [max(rates.rates[step]) for step in (4, 9, 14)]


@pytest.mark.parametrize("decoupled", [False, True])
def test_decoupled_decay_shrinks_weights_by_the_rate(decoupled):
    model, process = small_model(), SingleProcess()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    options = {"lr": 0.5, "batch_size": 60, "max_epochs": 1, "weight_decay": 0.1, "decoupled_decay": decoupled}
    net = Trainer(model, **options, group_options=group_options(model, SETTINGS), callbacks=[NoGradients()])
    net.fit(ShardedBatches(InMemory(60), 60, 4, process))
    shrunk = model.final_layer.weight / before["final_layer.weight"]
    if decoupled:
        assert torch.allclose(shrunk, torch.tensor(1 - 0.5 * 0.1))
        assert torch.equal(model.final_layer.bias, before["final_layer.bias"])
    else:  # Adam makes a step of the size of the rate of any gradient
        moved = (before["final_layer.weight"] - model.final_layer.weight).abs()
        assert torch.allclose(moved, torch.tensor(0.5), rtol=1e-3)


class NoGradients(Callback):
    def on_grad_computed(self, net, named_parameters, **_):
        for _, parameter in named_parameters:
            parameter.grad.zero_()
