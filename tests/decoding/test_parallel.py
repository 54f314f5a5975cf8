"""Networks of an ensemble that are trained in processes."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
import torch
from loky.backend.reduction import dumps, loads

from gbwatt._processes import cores
from gbwatt.decoding import Callback, EEGDecoder, GBWAttClassifier, network_training
from gbwatt.decoding.callbacks import EpochDisplay, StopTraining
from gbwatt.decoding.network_training import count_processes
from gbwatt.errors import NonFiniteLossError, ParameterError, WorkerError
from tests.decoding.tiny import make_trials

SIZES = {"n_spatial": 4, "n_temporal": 4, "kernel": 9, "k": 3}


class Die(Callback):
    """Ends the process of a training as the operating system does."""

    def on_epoch_begin(self, net, **_):
        os._exit(9)


class StopAfterTwo(Callback):
    def on_epoch_end(self, net, **_):
        if len(net.history) == 2:
            raise StopTraining


class Spoil(Callback):
    """Makes the gradients of all networks but the first one NaN."""

    def on_grad_computed(self, net, named_parameters, **_):
        if net.seed:
            next(p for _, p in named_parameters if p.grad is not None).grad.fill_(float("nan"))


@pytest.fixture
def pretend(monkeypatch):
    """Run the work of processes here, in reverse order, with everything pickled as for a process."""
    calls = []

    def run(work, tasks, workers, threads=1, initializer=None):
        calls.append({"workers": workers, "threads": threads})
        for task in reversed(tasks):
            yield task, loads(dumps(loads(dumps(work))(task)))

    monkeypatch.setattr(network_training, "run_in_processes", run)
    return calls


def same(a, b):
    a, b = (decoder.net_.module_.state_dict() for decoder in (a, b))
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def without_durations(history):
    return [{name: value for name, value in row.items() if name != "duration"} for row in history]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"validation": None},
        {"initialization": "classical"},
        {"schedule": "cosine", "class_weight": "balanced"},
        {"alignment": "euclidean", "model_options": SIZES | {"domain_norm": "affine-invariant"}},
        {"validation": None, "calibration": "temperature"},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_networks_are_those_of_a_training_one_after_the_other(pretend, options):
    x, y = make_trials(n=40, n_times=64)
    options = {"n_members": 3, "max_epochs": 2, "model_options": SIZES, **options}
    weights = np.random.default_rng(0).uniform(0.5, 2, 40)
    fits = [EEGDecoder("gbwatt", n_jobs=n, **options).fit(x, y, sample_weight=weights) for n in (None, 2)]
    assert same(*fits)
    assert fits[0].temperature_ == fits[1].temperature_
    assert without_durations(fits[0].history_) == without_durations(fits[1].history_)
    assert [call["workers"] for call in pretend] == [2] * (4 if "calibration" in options else 1)  # with three folds


def test_models_that_are_registered_in_this_process_only_can_be_trained(pretend, decoder, trials):
    assert same(decoder(n_members=2).fit(*trials), decoder(n_members=2, n_jobs=2).fit(*trials))


def test_trainings_continue_in_processes(pretend, decoder, trials):
    fits = [decoder(n_members=2, n_jobs=n, warm_start=True).fit(*trials).fit(*trials) for n in (1, 2)]
    assert same(*fits)


def test_each_network_has_its_checkpoint_and_log(pretend, decoder, trials, tmp_path):
    files = {"checkpoint": tmp_path / "state", "log": tmp_path / "log.csv"}
    first = decoder(n_members=2, n_jobs=2, **files).fit(*trials)
    assert {path.name for path in tmp_path.iterdir()} == {"state", "state-2", "log.csv", "log-2.csv"}
    again = decoder(n_members=2, **files).fit(*trials)  # from the checkpoints, one after the other
    assert same(first, again)
    assert [row["duration"] for row in first.history_] == [row["duration"] for row in again.history_]


def test_callbacks_act_in_the_processes(pretend, decoder, trials):
    fitted = decoder(n_members=2, n_jobs=2, callbacks=[StopAfterTwo()]).fit(*trials)
    assert len(fitted.history_) == 2


def test_progress_is_shown_by_network(pretend, decoder, trials, capsys):
    decoder(n_members=2, n_jobs=2, verbose=1).fit(*trials)
    shown = capsys.readouterr().err
    assert "network 2 of 2: 6 epochs, loss " in shown
    assert "network 1 of 2" in shown
    assert "epoch 1/6" not in shown


def test_a_display_of_the_caller_shows_networks(pretend, decoder, trials, capsys):
    display = EpochDisplay()
    display.lock = threading.Lock()  # cannot be pickled, and need not be
    decoder(n_members=2, n_jobs=2, callbacks=[display]).fit(*trials)
    assert "network 1 of 2" in capsys.readouterr().err


def test_callbacks_that_cannot_be_sent_are_named(pretend, decoder, trials):
    callback = StopAfterTwo()
    callback.lock = threading.Lock()
    with pytest.raises(ParameterError, match=r"callbacks has StopAfterTwo, which cannot be sent.*n_jobs=1"):
        decoder(n_members=2, n_jobs=2, callbacks=[callback]).fit(*trials)
    decoder(n_members=2, n_jobs=1, callbacks=[callback]).fit(*trials)


def test_an_error_says_which_network_it_is_of(pretend, decoder, trials):
    with pytest.raises(NonFiniteLossError) as raised:
        decoder(n_members=2, n_jobs=2, callbacks=[Spoil()]).fit(*trials)
    assert raised.value.__notes__ == ["This was in network 2 of 2."]


def test_a_dead_process_is_named(monkeypatch, decoder, trials):
    monkeypatch.setattr(network_training, "run_in_processes", lambda *_, **__: iter_closing([(1, None)]))
    with pytest.raises(WorkerError, match=r"network 2 of 3 has died twice.*n_jobs=2"):
        decoder(n_members=3, n_jobs=2).fit(*trials)


def iter_closing(items):
    yield from items


def test_after_an_interruption_a_complete_network_or_the_checkpoint_is_kept(monkeypatch, decoder, trials, tmp_path):
    def interrupted(after):
        def run(work, tasks, workers, threads=1, initializer=None):
            for task in tasks[:after]:
                yield task, work(task)
            raise KeyboardInterrupt

        return run

    alone = decoder().fit(*trials)
    for after, files in ((1, {}), (0, {"checkpoint": tmp_path / "state"})):
        if files:
            decoder(**files).fit(*trials)  # the state of the first network
        monkeypatch.setattr(network_training, "run_in_processes", interrupted(after))
        stopped = decoder(n_members=3, n_jobs=2, **files)
        with pytest.raises(KeyboardInterrupt):
            stopped.fit(*trials)
        assert same(stopped, alone)
        assert len(stopped.history_) == 6
    stopped = decoder(n_members=3, n_jobs=2)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(*trials)
    assert not hasattr(stopped, "net_")


def test_processes_share_the_cores(pretend, decoder, trials):
    decoder(n_members=4, n_jobs=-1).fit(*trials)
    if cores() > 1:
        assert pretend[0]["workers"] == min(4, cores())
        assert pretend[0]["workers"] * pretend[0]["threads"] <= max(cores(), pretend[0]["workers"])


def test_a_single_network_needs_no_processes(pretend, decoder, trials):
    decoder(n_jobs=4).fit(*trials)
    EEGDecoder("mdm", n_jobs=4, n_members=2).fit(*trials)
    assert not pretend


def test_numbers_of_processes_are_counted_as_in_scikit_learn():
    assert [count_processes(n, 99) for n in (None, 1, 3)] == [1, 1, 3]
    assert count_processes(-1, 99) == cores()
    assert count_processes(-1 - cores(), 99) == 1
    assert count_processes(8, 2) == 2


@pytest.mark.parametrize("n", [0, 1.5, True, "2"])
def test_wrong_numbers_of_processes_are_named(decoder, trials, n):
    with pytest.raises(ParameterError, match="n_jobs="):
        decoder(n_members=2, n_jobs=n).fit(*trials)


def test_the_number_of_processes_is_not_saved(pretend, decoder, trials, tmp_path):
    fitted = decoder(n_members=2, n_jobs=2).fit(*trials)
    fitted.save_pretrained(tmp_path)
    assert EEGDecoder.from_pretrained(tmp_path).n_jobs is None


@pytest.mark.slow
def test_real_processes_give_the_same_networks_and_their_death_is_reported(tmp_path):
    x, y = make_trials(n=40, n_times=64)
    options = {"task": "mi", "n_members": 3, "max_epochs": 2, "model_options": SIZES}
    fits = [GBWAttClassifier(n_jobs=n, log=tmp_path / f"{n}.csv", **options).fit(x, y) for n in (1, 2)]
    assert same(*fits)
    assert len(list(tmp_path.iterdir())) == 6
    with pytest.raises(WorkerError, match=r"network . of 3 has died twice"):
        GBWAttClassifier(n_jobs=2, callbacks=[Die()], **options).fit(x, y)
