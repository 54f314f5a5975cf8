"""What callbacks are given, and what they may do."""

from __future__ import annotations

import csv
import io

import pytest
import torch
from rich.console import Console
from sklearn.base import clone

from gbwatt.decoding import Callback, EEGDecoder
from gbwatt.decoding.callbacks import EpochDisplay, StopTraining
from gbwatt.decoding.training import Trainer, best_epoch
from gbwatt.errors import ParameterError
from tests.decoding.test_estimator import losses, same, weights
from tests.decoding.tiny import swapped

EVENTS = (
    *("on_train_begin", "on_epoch_begin", "on_batch_begin", "on_grad_computed"),
    *("on_batch_end", "on_epoch_end", "on_train_end"),
)


class Recorder(Callback):
    """Notes every event, with its arguments."""

    def __init__(self):
        self.events = []


for event in EVENTS:
    setattr(
        Recorder, event, lambda self, net, event=event, **kwargs: self.events.append((event, len(net.history), kwargs))
    )


def test_events_come_in_order_with_their_arguments(decoder, trials):
    watch = Recorder()
    fitted = decoder(callbacks=[watch], max_epochs=2).fit(*trials)
    step = ["on_batch_begin", "on_grad_computed", "on_batch_end"]
    epoch = ["on_epoch_begin", *step, *step, "on_batch_end", "on_epoch_end"]  # 2 batches, and 1 of validation
    assert [name for name, *_ in watch.events] == ["on_train_begin", *epoch, *epoch, "on_train_end"]
    assert [n for name, n, _ in watch.events if name.startswith("on_epoch")] == [1, 1, 2, 2]
    ended = [kwargs for name, _, kwargs in watch.events if name == "on_batch_end"]
    assert [kwargs["training"] for kwargs in ended] == 2 * [True, True, False]
    for kwargs in ended:
        x, y = kwargs["batch"]
        assert kwargs["y_pred"].shape == (len(x), 2)
        assert len(y) == len(x)
        assert not kwargs["loss"].requires_grad
    (first, second, valid), *_ = (ended[:3], ended[3:])
    sizes = [len(kwargs["batch"][1]) for kwargs in (first, second)]
    mean = (first["loss"] * sizes[0] + second["loss"] * sizes[1]) / sum(sizes)
    assert float(mean) == pytest.approx(losses(fitted, "train_loss")[0], rel=1e-6)
    assert float(valid["loss"]) == pytest.approx(losses(fitted)[0], rel=1e-6)


def test_the_documented_attributes_exist(decoder, trials):
    class Look(Callback):
        def on_batch_end(self, net, **_):
            assert isinstance(net, Trainer)
            assert isinstance(net.module_, torch.nn.Module)
            assert isinstance(net.optimizer_, torch.optim.Optimizer)
            assert (net.max_epochs, net.lr, net.batch_size) == (6, 0.02, 16)
            assert torch.zeros(1).to(net.device).device.type == "cpu"
            assert net.history[-1] == {"epoch": len(net.history)}
            assert 1 <= net.step <= net.n_steps == 2

        def on_epoch_end(self, net, **_):
            row = ("epoch", "train_loss", "valid_loss", "valid_accuracy", "lr", "duration")
            assert tuple(net.history[-1]) == row
            assert net.history[-1, "lr"] == 0.02
            assert net.history[:, "epoch"] == list(range(1, len(net.history) + 1))

    decoder(callbacks=[Look()]).fit(*trials)


def test_callbacks_of_skorch_work(decoder, trials):
    import skorch

    class Watch(skorch.callbacks.Callback):
        def __init__(self):
            self.seen = []

        def on_epoch_end(self, net, **kwargs):
            net.history.record("seen", True)
            self.seen.append(net.history[-1, "valid_loss"])

    watch, clip = Watch(), skorch.callbacks.GradientNormClipping(1e-9)
    clipped = decoder(callbacks=[watch, clip]).fit(*trials)
    assert watch.seen == losses(clipped)
    assert clipped.net_.history[0]["seen"]
    assert losses(clipped) != losses(decoder().fit(*trials))


def test_anything_else_is_refused_by_name(decoder, trials):
    for bad in (Recorder, print, None):
        with pytest.raises(ParameterError, match="callbacks"):
            decoder(callbacks=[bad]).fit(*trials)


def test_a_callback_may_stop_the_training_and_the_best_weights_are_kept(decoder, trials):
    class Stop(Callback):
        def on_epoch_end(self, net, **_):
            if len(net.history) == 4:
                raise StopTraining

    settings = {"validation": swapped(*trials), "lr": 0.1}
    stopped = decoder(callbacks=[Stop()], **settings).fit(*trials)
    assert len(stopped.history_) == 4
    assert same(weights(stopped), weights(decoder(max_epochs=4, **settings).fit(*trials)))


def test_a_callback_may_change_the_learning_rate(decoder, trials):
    class Halve(Callback):
        def on_epoch_begin(self, net, **_):
            for group in net.optimizer_.param_groups:
                group["lr"] /= 2

    fitted = decoder(callbacks=[Halve()], max_epochs=3).fit(*trials)
    assert losses(fitted, "lr") == [0.01, 0.005, 0.0025]
    assert losses(fitted) != losses(decoder(max_epochs=3).fit(*trials))


def test_an_estimator_with_callbacks_can_be_cloned(decoder, trials):
    copy = clone(decoder(callbacks=[Recorder(), EpochDisplay()], max_epochs=1))
    assert copy.fit(*trials).callbacks[0].events


def test_the_log_is_complete_after_every_epoch(decoder, trials, tmp_path):
    class Read(Callback):
        def on_epoch_end(self, net, **_):
            with (tmp_path / "log.csv").open(newline="") as file:
                rows = list(csv.DictReader(file))
            assert [int(row["epoch"]) for row in rows] == list(range(1, len(net.history) + 1))
            assert float(rows[-1]["train_loss"]) == net.history[-1]["train_loss"]

    decoder(log=tmp_path / "log.csv", callbacks=[Read()]).fit(*trials)
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_without_a_terminal_some_epochs_are_shown(decoder, trials):
    text = io.StringIO()
    decoder(max_epochs=30, callbacks=[EpochDisplay(Console(file=text, width=120))]).fit(*trials)
    numbers = [line.split(":")[0] for line in text.getvalue().splitlines()]
    assert numbers == [f"epoch {n}/30" for n in (1, *range(3, 31, 3))]


def test_a_terminal_has_a_bar(decoder, trials):
    text = io.StringIO()
    decoder(callbacks=[EpochDisplay(Console(file=text, force_terminal=True, width=120))]).fit(*trials)
    assert "6/6" in text.getvalue()
    assert "validation accuracy" in text.getvalue()


def test_a_continued_training_says_so(decoder, trials, tmp_path):
    EEGDecoder(**decoder(checkpoint=tmp_path, max_epochs=2).get_params()).fit(*trials)
    text = io.StringIO()
    decoder(checkpoint=tmp_path, callbacks=[EpochDisplay(Console(file=text, width=120))]).fit(*trials)
    assert "Continuing after epoch 2" in text.getvalue()


def test_the_best_epoch_is_the_first_of_equals():
    assert best_epoch([{"valid_loss": loss} for loss in (0.5, 0.3, 0.4, 0.3)]) == 2
