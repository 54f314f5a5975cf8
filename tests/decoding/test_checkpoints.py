"""A training that was interrupted and continued is one that was not interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from gbwatt.decoding import CheckpointError, EEGDecoder, callbacks, checkpoints
from tests.decoding import killed
from tests.decoding.test_estimator import losses, same, weights
from tests.decoding.tiny import make_trials, swapped


class Crash(Exception):
    pass


@pytest.fixture
def crash_in(monkeypatch):
    """Make the log, a callback before the checkpoint, raise at the end of an epoch."""

    def at(epoch):
        def on_epoch_end(self, net, **_):
            if len(net.history) == epoch:
                raise Crash

        monkeypatch.setattr(callbacks.CSVLog, "on_epoch_end", on_epoch_end)

    yield at
    monkeypatch.undo()


def without_durations(decoder):
    return [{name: x for name, x in row.items() if name != "duration"} for row in decoder.history_]


def assert_equal(a, b, x):
    assert same(weights(a), weights(b))
    assert without_durations(a) == without_durations(b)
    assert a.best_epoch_ == b.best_epoch_
    assert np.array_equal(a.predict_proba(x), b.predict_proba(x))


def test_killed_and_continued_equals_not_killed(tmp_path):
    """SIGKILL in the middle of an epoch, in a process of its own."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-m", "tests.decoding.killed", str(tmp_path)], cwd=root, env=env)
    try:
        deadline = time.monotonic() + 120
        while (state := checkpoints.read(tmp_path)) is None or len(state.history) < 3:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    done = len(checkpoints.read(tmp_path).history)
    assert 3 <= done < 12
    x, y = make_trials()
    continued = EEGDecoder(**killed.SETTINGS, checkpoint=tmp_path, log=tmp_path / "log.csv").fit(x, y)
    whole = EEGDecoder(**killed.SETTINGS).fit(x, y)
    assert_equal(continued, whole, x)
    rows = (tmp_path / "log.csv").read_text().splitlines()[1:]
    assert [int(row.split(",")[0]) for row in rows] == list(range(1, 13))
    assert [float(row.split(",")[1]) for row in rows] == losses(whole, "train_loss")


def test_a_checkpoint_can_be_read_while_it_is_replaced(tmp_path):
    """A reader sees one checkpoint or the next, never parts of both."""
    versions = []
    for number in range(2):
        settings = killed.SETTINGS | {"max_epochs": 1 + number, "checkpoint": tmp_path / str(number)}
        EEGDecoder(**settings).fit(*make_trials())
        versions.append((tmp_path / str(number) / checkpoints.FILE).read_bytes())
    (tmp_path / checkpoints.FILE).write_bytes(versions[0])
    stop = threading.Event()

    def replace():
        while not stop.is_set():
            for content in versions:
                (tmp_path / "next").write_bytes(content)
                (tmp_path / "next").replace(tmp_path / checkpoints.FILE)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        epochs = {len(checkpoints.read(tmp_path).history) for _ in range(2000)}
    finally:
        stop.set()
        writer.join()
    assert epochs == {1, 2}


@pytest.mark.parametrize("changes", [{}, {"validation": None}, {"validation": 0.2}, {"early_stopping": 4}])
@pytest.mark.parametrize("epoch", [1, 4])
def test_crashed_and_continued_equals_not_crashed(decoder, trials, tmp_path, crash_in, monkeypatch, changes, epoch):
    x, y = trials
    settings = {"max_epochs": 9, "log": tmp_path / "log.csv", "validation": swapped(x, y), **changes}
    crash_in(epoch)
    with pytest.raises(Crash):
        decoder(checkpoint=tmp_path, **settings).fit(x, y)
    monkeypatch.undo()
    continued = decoder(checkpoint=tmp_path, **settings).fit(x, y)
    whole = decoder(**settings).fit(x, y)
    assert_equal(continued, whole, x)
    assert "validation" in changes or whole.best_epoch_ < len(whole.history_)  # both weights matter


def test_gbwatt_continues_exactly(tmp_path, crash_in, monkeypatch):
    x, y = make_trials(n=24, n_times=64)
    settings = {"max_epochs": 4, "batch_size": 8, "lr": 0.01, "log": tmp_path / "log.csv"}
    crash_in(3)
    with pytest.raises(Crash):
        EEGDecoder(checkpoint=tmp_path, **settings).fit(x, y)
    monkeypatch.undo()
    assert_equal(EEGDecoder(checkpoint=tmp_path, **settings).fit(x, y), EEGDecoder(**settings).fit(x, y), x)


def test_the_state_of_the_optimiser_is_in_the_checkpoint_and_needed(decoder, trials, tmp_path, monkeypatch):
    decoder(checkpoint=tmp_path, max_epochs=3).fit(*trials)
    state = checkpoints.read(tmp_path)
    assert "optimizer.0.exp_avg" in state.tensors
    assert set(state.scalars.values()) == {6}  # steps: 2 batches in 3 epochs
    monkeypatch.setattr(checkpoints, "_restore_optimizer", lambda net, state: None)
    forgetful = decoder(checkpoint=tmp_path).fit(*trials)
    assert losses(forgetful)[:3] == losses(decoder().fit(*trials))[:3]
    assert losses(forgetful) != losses(decoder().fit(*trials))


def test_a_finished_training_is_only_read(decoder, trials, tmp_path, monkeypatch):
    first = decoder(checkpoint=tmp_path).fit(*trials)
    monkeypatch.setattr("gbwatt.decoding.training.Trainer._run_step", None)  # any step would fail
    assert_equal(decoder(checkpoint=tmp_path).fit(*trials), first, trials[0])


def test_more_epochs_continue_fewer(decoder, trials, tmp_path):
    decoder(checkpoint=tmp_path, max_epochs=3).fit(*trials)
    longer = decoder(checkpoint=tmp_path, max_epochs=7).fit(*trials)
    assert_equal(longer, decoder(max_epochs=7).fit(*trials), trials[0])
    with pytest.raises(CheckpointError, match="7 epochs, more than max_epochs=5"):
        decoder(checkpoint=tmp_path, max_epochs=5).fit(*trials)


def test_an_early_stopped_training_stays_stopped(decoder, trials, tmp_path):
    settings = {"validation": swapped(*trials), "max_epochs": 60, "early_stopping": 3, "checkpoint": tmp_path}
    first = decoder(**settings).fit(*trials)
    assert_equal(decoder(**settings).fit(*trials), first, trials[0])
    assert len(first.history_) < 60


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"lr": 0.5}, "lr is 0.02 there and 0.5 here"),
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"model_options": {"width": 2}}, "options of the model"),
        ({"batch_size": 8}, "batch_size"),
        ({"weight_decay": 0.5}, "weight_decay"),
        ({"class_weight": "balanced"}, "class weights"),
        ({"early_stopping": 4}, "early_stopping"),
        ({"validation": None}, "validation data"),
        ({"validation": 0.3}, "training data"),
    ],
)
def test_another_training_is_refused_and_told_apart(decoder, trials, tmp_path, changes, message):
    decoder(checkpoint=tmp_path, max_epochs=2).fit(*trials)
    with pytest.raises(CheckpointError, match=f"{message}.*another folder"):
        decoder(checkpoint=tmp_path, **changes).fit(*trials)


def test_a_checkpoint_of_gdlnet_without_a_variant_continues_as_the_linear_one(tmp_path):
    """As they were written before there was the option; the network of today is another training."""
    x, y = make_trials(20)
    settings = {"max_epochs": 1, "checkpoint": tmp_path}
    EEGDecoder("gdlnet", model_options={"variant": "linear"}, **settings).fit(x, y)
    assert checkpoints.read(tmp_path).fingerprint["options of the model"] == {}
    with pytest.raises(CheckpointError, match=r"options of the model is \{\} there and \{'variant': 'original'\} here"):
        EEGDecoder("gdlnet", **settings).fit(x, y)
    again = EEGDecoder("gdlnet", model_options={"variant": "linear"}, **{**settings, "max_epochs": 2}).fit(x, y)
    assert len(again.history_) == 2


def test_other_data_are_refused(decoder, trials, tmp_path):
    x, y = trials
    decoder(checkpoint=tmp_path, max_epochs=2).fit(x, y)
    changed = x.copy()
    changed[0, 0, 0] += 1e-3
    for data in ((changed, y), (x, np.roll(y, 1)), (x[:-2], y[:-2])):
        with pytest.raises(CheckpointError, match="data is"):
            decoder(checkpoint=tmp_path).fit(*data)


def test_a_write_that_fails_at_any_step_leaves_the_old_checkpoint(decoder, trials, tmp_path, monkeypatch):
    decoder(checkpoint=tmp_path, max_epochs=2).fit(*trials)
    before = (tmp_path / checkpoints.FILE).read_bytes()

    def fail(*_):
        raise Crash

    for target in ("os.fsync", "pathlib.Path.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(target, fail)
            with pytest.raises(Crash):
                decoder(checkpoint=tmp_path).fit(*trials)
        assert (tmp_path / checkpoints.FILE).read_bytes() == before
        assert [path.name for path in tmp_path.iterdir()] == [checkpoints.FILE]


def test_leftovers_of_a_killed_write_are_swept(decoder, trials, tmp_path):
    leftover = tmp_path / f".{checkpoints.FILE}.12345.tmp"
    leftover.write_bytes(b"half")
    decoder(checkpoint=tmp_path, max_epochs=1).fit(*trials)
    assert not leftover.exists()


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"\x80\x04K\x01."])
def test_a_damaged_checkpoint_is_named(decoder, trials, tmp_path, damage):
    decoder(checkpoint=tmp_path, max_epochs=1).fit(*trials)
    path = tmp_path / checkpoints.FILE
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"damaged or no checkpoint.*delete it"):
        decoder(checkpoint=tmp_path).fit(*trials)


@pytest.mark.parametrize("where", ["model.mix", "best.mix", "optimizer.0.exp_avg"])
def test_one_changed_bit_of_a_tensor_is_noticed(decoder, trials, tmp_path, where):
    decoder(checkpoint=tmp_path, max_epochs=2).fit(*trials)
    path = tmp_path / checkpoints.FILE
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[:8], "little")
    start, _ = json.loads(bytes(content[8 : 8 + size]))[where]["data_offsets"]
    content[8 + size + start] ^= 1  # the last bit of a float32
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"checksum.*delete it"):
        decoder(checkpoint=tmp_path).fit(*trials)


@pytest.mark.parametrize("old, new", [('"seed\\": 0', '"seed\\": 1'), ("train_loss", "train_lost"), ("step", "stop")])
def test_a_changed_record_is_noticed(decoder, trials, tmp_path, old, new):
    decoder(checkpoint=tmp_path, max_epochs=2).fit(*trials)
    path = tmp_path / checkpoints.FILE
    content = path.read_bytes()
    assert old.encode() in content
    path.write_bytes(content.replace(old.encode(), new.encode(), 1))
    with pytest.raises(CheckpointError, match=r"damaged or no checkpoint .*checksum"):
        decoder(checkpoint=tmp_path).fit(*trials)


def rewritten(folder, change=lambda notes, tensors: None, **metadata):
    """A checkpoint as gbwatt wrote it before there were checksums, with changes."""
    path = folder / checkpoints.FILE
    with safe_open(path, framework="pt") as file:
        notes = json.loads(file.metadata()["state"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    notes["format"] = 1
    change(notes, tensors)
    path.write_bytes(save(tensors, metadata={"state": json.dumps(notes), **metadata}))


def test_a_checkpoint_of_format_1_is_continued(decoder, trials, tmp_path):
    decoder(checkpoint=tmp_path, max_epochs=3).fit(*trials)
    rewritten(tmp_path)
    continued = decoder(checkpoint=tmp_path, max_epochs=7).fit(*trials)
    assert_equal(continued, decoder(max_epochs=7).fit(*trials), trials[0])
    with safe_open(tmp_path / checkpoints.FILE, framework="pt") as file:
        assert set(file.metadata()) == {"state", "sha256"}


@pytest.mark.parametrize(
    "change",
    [
        lambda notes, tensors: notes.update(format=99),
        lambda notes, tensors: notes.update(format=0),
        lambda notes, tensors: notes.update(format="1"),
        lambda notes, tensors: notes.update(format=2),  # and no checksum
        lambda notes, tensors: notes.update(history=3),
        lambda notes, tensors: notes.update(history=[3]),
        lambda notes, tensors: notes.update(history=notes["history"][1:]),
        lambda notes, tensors: notes["history"][0].update(valid_loss="low"),
        lambda notes, tensors: notes["history"][0].pop("train_loss"),
        lambda notes, tensors: notes["history"][0].pop("duration"),
        lambda notes, tensors: notes.update(scalars=[]),
        lambda notes, tensors: notes.update(fingerprint=None),
        lambda notes, tensors: notes.update(progress=[]),
        lambda notes, tensors: notes.pop("scalars"),
        lambda notes, tensors: notes["scalars"].update({"optimizer.-1.step": 3}),
        lambda notes, tensors: notes["scalars"].update({"optimizer.99.step": 3}),
        lambda notes, tensors: notes["scalars"].update({"optimizer.0.step": None}),
        lambda notes, tensors: notes["scalars"].pop("optimizer.0.step"),
        lambda notes, tensors: notes["scalars"].update({"step": 3}),
        lambda notes, tensors: tensors.pop("model.mix"),
        lambda notes, tensors: tensors.pop("best.mix"),
        lambda notes, tensors: tensors.update({"best.mix": tensors["best.mix"].double()}),
        lambda notes, tensors: tensors.update({"model.mix": tensors["model.mix"][:2].clone()}),
        lambda notes, tensors: tensors.update({"model.other": torch.zeros(1)}),
        lambda notes, tensors: tensors.pop("optimizer.0.exp_avg"),
        lambda notes, tensors: tensors.update({"optimizer.0.exp_avg": torch.zeros(7)}),
        lambda notes, tensors: tensors.update({"optimizer.0.exp_avg": torch.zeros(3, dtype=torch.complex64)}),
    ],
)
def test_a_broken_checkpoint_without_a_checksum_is_refused(decoder, trials, tmp_path, change):
    decoder(checkpoint=tmp_path, max_epochs=2).fit(*trials)
    rewritten(tmp_path, change)
    with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors"):
        decoder(checkpoint=tmp_path).fit(*trials)


def test_a_checkpoint_whose_record_is_nested_too_deeply_is_refused(decoder, trials, tmp_path):
    (tmp_path / checkpoints.FILE).write_bytes(save({"x": torch.zeros(1)}, metadata={"state": "[" * 100_000}))
    with pytest.raises(CheckpointError, match="damaged or no checkpoint"):
        decoder(checkpoint=tmp_path).fit(*trials)


def test_a_folder_in_the_place_of_a_checkpoint_is_named(decoder, trials, tmp_path):
    (tmp_path / checkpoints.FILE).mkdir()
    with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors"):
        decoder(checkpoint=tmp_path).fit(*trials)


def test_the_memory_layout_of_the_optimiser_state_is_that_of_its_parameter():
    parameter = torch.zeros(4, 3).mT
    assert checkpoints._in_layout_of(torch.ones(3, 4), parameter).stride() == parameter.stride()
