"""``gbwatt train`` as a user meets it."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import gbwatt
from gbwatt.data import Trials, find_dataset, load
from gbwatt.data.datasets import Source
from gbwatt.data.formats.npz import write_npz
from gbwatt.data.loading import DATASETS, fingerprint
from gbwatt.data.sets import bcic2a
from gbwatt.decoding import EEGDecoder, GBWAttClassifier, callbacks
from gbwatt.errors import RareClassWarning
from gbwatt.models.serialization import load_pretrained
from tests.cli.conftest import write_recording, write_recordings

FEW = ("--task", "mi", "--max-epochs", "3")
#: In the background of a shell, tests and what they start would ignore it.
HEED_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "


def weights(folder):
    return load_pretrained(folder).model.state_dict()


def same(one, other):
    return all(one[name].equal(other[name]) for name in one)


# ---- the main job


def test_without_arguments_it_works_on_simulated_recordings(run):
    shown = run("train", "--max-epochs", "1")
    assert shown.exit_code == 0, (shown.output, shown.exception)
    assert "simulated-ssvep (simulated recordings)" in shown.stdout
    assert "400 training, 0 validation, 100 test" in shown.stdout
    assert "gbwatt (best recipe): 121089 parameters, 1 epoch (default: 120), seed 0." in shown.stdout
    assert "95 % confidence interval" in shown.stdout
    assert "chance is 24.0 %" in shown.stdout
    assert all(name in shown.stdout for name in ("12 Hz", "8.57 Hz", "6.66 Hz"))
    assert "epoch 1/1" in shown.stderr
    folder = Path("gbwatt-models/simulated-ssvep-s1-gbwatt-seed0")
    assert GBWAttClassifier.from_pretrained(folder).recipe == "best"
    assert f"gbwatt evaluate {folder}\n" in shown.stdout
    assert f"gbwatt explain {folder}\n" in shown.stdout


def test_the_result_is_that_of_the_saved_model_on_trials_it_has_not_seen(run_json, recordings, tmp_path):
    found = run_json("train", "--dataset", recordings, "--subject", 2, "-o", tmp_path / "m", *FEW)
    trials = load(recordings, 2)
    split = find_dataset(recordings).protocol.splits(trials)[0].merged()
    decoder = GBWAttClassifier.from_pretrained(found["folder"])
    test = found["test"]
    assert test["accuracy"] == decoder.score(trials[split.test])
    assert test["hits"] / test["n"] == test["accuracy"] > 0.6
    assert test["accuracy_95"][0] < test["accuracy"] <= test["accuracy_95"][1]
    assert np.sum(test["confusion"]) == test["n"] == found["trials"]["test"] == len(split.test)
    assert test["chance"] == 0.5
    assert test["class_names"] == ["left", "right"]
    record = json.loads((tmp_path / "m" / "training.json").read_text())
    assert record["seen"] == {"train": split.train.tolist(), "valid": split.valid.tolist()}
    assert (record["status"], record["subject"], record["simulated"]) == ("done", 2, False)
    assert record["test"] == test


def test_the_test_trials_are_scored_once_after_training(run_json, recordings, monkeypatch):
    calls, predict, fit = [], EEGDecoder.predict_proba, EEGDecoder.fit
    monkeypatch.setattr(EEGDecoder, "predict_proba", lambda *a: (calls.append("test"), predict(*a))[1])
    monkeypatch.setattr(EEGDecoder, "fit", lambda *a: (fit(*a), calls.append("fitted"))[0])
    run_json("train", "--dataset", recordings, *FEW)
    assert calls == ["fitted", "test"]


def test_json_is_all_of_stdout_and_progress_is_on_stderr(run, recordings):
    result = run("train", "--dataset", recordings, "--recipe", "paper", "--max-epochs", "30", "--json")
    document = json.loads(result.stdout)
    assert document["epochs"] == 30
    shown = [line for line in result.stderr.splitlines() if line.startswith("epoch")]
    assert [line.split(":")[0] for line in shown] == [f"epoch {n}/30" for n in (1, *range(3, 31, 3))]
    assert "validation accuracy" in shown[0]


def test_a_terminal_sees_a_bar(recordings):
    text = io.StringIO()
    display = callbacks.EpochDisplay(Console(file=text, force_terminal=True, width=120))
    trials = load(recordings, 1)
    GBWAttClassifier(recipe="paper", max_epochs=2, callbacks=[display]).fit(trials)
    shown = text.getvalue()
    assert "2/2" in shown
    assert "loss" in shown
    assert "validation accuracy" in shown


# ---- arguments


def test_arguments_reach_the_model_and_its_training(run_json, recordings):
    arguments = ["--recipe", "paper", "--option", "theta=0.5", "--option", "metric=bures-wasserstein", "--lr", "0.01"]
    arguments += ["--max-epochs", "3", "--batch-size", "8", "--early-stopping", "2", "--weight-decay", "0.05"]
    found = run_json("train", "--dataset", recordings, *arguments)
    assert found["recipe"] == "paper"
    assert found["training"] == {"lr": 0.01, "batch_size": 8, "weight_decay": 0.05, "max_epochs": 3}
    assert found["early_stopping"] == 2
    config = load_pretrained(found["folder"]).arguments
    assert (config["theta"], config["metric"], config["shrinkage"]) == (0.5, "bures-wasserstein", 0.0)


def test_weights_of_another_subject_are_fine_tuned(run_json, refused, recordings):
    source = run_json("train", "--dataset", recordings, "--subject", 1, *FEW, "--align", "riemannian", "-o", "source")
    assert source["training"]["alignment"] == "riemannian"
    fine_tuning = ("--init", "source", "--freeze", "features", "--layer-lr", "attention=0.1", "--max-epochs", 1)
    found = run_json("train", "--dataset", recordings, "--subject", 2, *fine_tuning, "-o", "own")
    assert found["training"]["initialization"] == ["source"]
    assert (found["training"]["frozen"], found["training"]["layer_lr"]) == (["features"], {"attention": 0.1})
    assert same(
        {name: x for name, x in weights("source").items() if "temporal" in name},
        {name: x for name, x in weights("own").items() if "temporal" in name},
    )
    assert "Did you mean 'features'" in refused(
        "train", "--dataset", recordings, "--init", "source", "--freeze", "featurs", "-o", "other"
    )


@pytest.fixture
def filtered(run_json, tmp_path):
    """Folder of a model of three channels that was trained on filtered and aligned recordings."""
    file = write_recordings(tmp_path / "others.npz", seed=1, channels=("C3", "Cz", "C4"))
    filters = ("--preprocess", "bandpass=8-30,crop=0:0.6", "--align", "euclidean")
    return run_json("train", "--dataset", file, *FEW, *filters, "-o", tmp_path / "filtered")["folder"]


def test_files_are_prepared_like_those_of_the_initial_weights(run, run_json, recordings, filtered):
    """But the window is that of the file; and the same steps are used again in predictions."""
    found = run_json("train", "--dataset", recordings, "--init", filtered, "--max-epochs", 1, "-o", "own")
    decoder = GBWAttClassifier.from_pretrained("own")
    assert [step["step"] for step in decoder.recorded_.steps] == ["band_pass"]
    assert (decoder.recorded_.highpass, decoder.recorded_.lowpass, decoder.signal_.n_times) == (8.0, 30.0, 64)
    assert [step["step"] for step in found["reading"]["preprocessing"]] == ["band_pass"]
    evaluated = run_json("evaluate", "own")
    assert evaluated["n"] == found["test"]["n"]
    shown = run("train", "--dataset", recordings, "--init", filtered, "--max-epochs", 1, "-o", "again")
    assert "Preprocessing of the initial weights: band-pass 8" in shown.stdout.replace("–", "-")


def test_channels_of_files_are_picked_in_the_order_of_the_initial_weights(run_json, refused, filtered, tmp_path):
    more = write_recordings(tmp_path / "more.npz", channels=("EOG", "C4..", "Cz..", "c3.."))
    run_json("train", "--dataset", more, "--init", filtered, "--max-epochs", 1, "-o", "own")
    assert GBWAttClassifier.from_pretrained("own").recorded_.ch_names == ("C3", "Cz", "C4")
    fewer = write_recordings(tmp_path / "fewer.npz", channels=("C3", "C4"))
    assert "lack the channels Cz" in refused("train", "--dataset", fewer, "--init", filtered, "-o", "none")


def test_preprocessing_that_differs_from_that_of_the_initial_weights_is_refused(refused, recordings, filtered):
    arguments = ("train", "--dataset", recordings, "--init", filtered, "--preprocess", "bandpass=4-40")
    message = refused(*arguments, "-o", "own")
    assert "does not fit: 'X' has highpass=4 Hz" in message
    assert "without --preprocess" in message


def test_steps_that_a_file_records_already_are_not_repeated(run_json, recordings, filtered, tmp_path):
    write_npz(load(recordings, "all", preprocessing="bandpass=8-30"), tmp_path / "prepared.npz")
    prepared = tmp_path / "prepared.npz"
    run_json("train", "--dataset", prepared, "--init", filtered, "--max-epochs", 1, "-o", "own")
    assert len(GBWAttClassifier.from_pretrained("own").recorded_.steps) == 1


def test_domains_are_normalised(run_json, recordings):
    found = run_json(
        "train", "--dataset", recordings, *FEW, "--domain-norm", "bures-wasserstein", "--domains", "session"
    )
    assert found["options"] == {"domain_norm": "bures-wasserstein"}
    assert load_pretrained(found["folder"]).arguments["domain_norm"] == "bures-wasserstein"
    assert found["training"]["domains"] == "session"


@pytest.mark.parametrize(("model", "recipe"), [("matt", "best"), ("spdnet", None)])
def test_other_models_are_trained_too(run_json, recordings, model, recipe):
    found = run_json("train", "--dataset", recordings, *FEW, "--model", model)
    assert found["recipe"] == recipe
    assert Path(found["folder"]).name == f"mine-s1-{model}-seed0"
    assert EEGDecoder.from_pretrained(found["folder"]).model == model


def test_ensembles_are_trained_in_processes(run, run_json, refused, recordings, tmp_path, monkeypatch):
    def here(work, tasks, workers, threads=1, initializer=None):
        assert workers == 2
        yield from ((task, work(task)) for task in tasks)

    monkeypatch.setattr("gbwatt.decoding.network_training.run_in_processes", here)
    words = ("train", "--dataset", recordings, *FEW, "--members", "2")
    run_json(*words, "-o", tmp_path / "a")
    shown = run(*words, "--jobs", "2", "-o", tmp_path / "b")
    assert "network 2 of 2: 3 epochs" in shown.stderr
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert "--members" in refused("train", "--dataset", recordings, "--jobs", "2")


def test_probabilities_are_calibrated(run, run_json, recordings, tmp_path, monkeypatch):
    monkeypatch.setattr("gbwatt.decoding.estimator.fit_temperature", lambda *_: 2.0)  # all trials are easy
    words = ("train", "--dataset", recordings, *FEW)
    plain = run_json(*words, "-o", tmp_path / "plain")
    shown = run(*words, "--calibrate", "-o", tmp_path / "calibrated")
    decoder = GBWAttClassifier.from_pretrained(tmp_path / "calibrated")
    assert decoder.calibration == "temperature"
    assert f"temperature {decoder.temperature_:.3g}" in shown.stdout
    assert "Expected calibration error: " in shown.stdout
    assert "temperature" not in plain["training"]
    record = json.loads((tmp_path / "calibrated" / "training.json").read_text())
    assert record["training"]["temperature"] == decoder.temperature_
    assert record["test"]["accuracy"] == plain["test"]["accuracy"]
    assert "Expected calibration error: " in run("evaluate", tmp_path / "calibrated").stdout
    found = run_json("evaluate", tmp_path / "calibrated")
    assert found["calibration_error"] == record["test"]["calibration_error"]


def test_the_seed_determines_the_weights(run_json, recordings):
    one, again, other = (
        run_json("train", "--dataset", recordings, *FEW, "-o", name, "--seed", seed)
        for name, seed in (("one", 0), ("again", 0), ("other", 1))
    )
    assert same(weights(one["folder"]), weights(again["folder"]))
    assert not same(weights(one["folder"]), weights(other["folder"]))
    assert one["test"] == again["test"]


def test_threads_are_set(run_json, recordings, monkeypatch):
    asked = []
    monkeypatch.setattr("torch.set_num_threads", asked.append)
    run_json("train", "--dataset", recordings, *FEW, "--threads", 1)
    assert asked == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "simulated-mii"], "Did you mean 'simulated-mi'"),
        (["--subject", "99"], "it has 1-11"),
        (["--split", "1"], "split=1 does not exist: there is only split 0"),
        (["--model", "gbwat"], "Did you mean 'gbwatt'"),
        (["--recipe", "bets"], "Did you mean 'best'"),
        (["--model", "spdnet", "--recipe", "best"], "spdnet has no recipes"),
        (["--option", "thetta=1"], "Did you mean 'theta'"),
        (["--option", "k=many"], "k='many'"),
        (["--model", "mbeegse", "--option", "dropout=0.1"], "option of mbeegse='dropout' is not known"),
        (["--lr", "-1"], "lr=-1.0 must be"),
        (["--lr", "0"], "lr=0.0 must be"),
        (["--dataset", "mamem-ssvep-ii", "--root", "/nowhere"], "root='/nowhere' is not a folder"),
        (["--read", "difficult=1"], "Did you mean 'difficulty'"),
        (["--source", "moab"], "source='moab'"),
        (["--task", "mii"], "Did you mean 'mi'"),
        (["--task", "motor"], "task='motor' is not known; it is one of 'mi', 'ssvep'"),
        (
            ["--init", "nofolder"],
            "'physionet-left-right'. Or give the folder of a model; there is no folder 'nofolder'",
        ),
    ],
)
def test_wrong_arguments_are_refused_before_training(refused, arguments, message, tmp_path):
    assert message in refused("train", *arguments, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_option_without_a_value_or_given_twice_is_a_wrong_usage(run):
    assert run("train", "--option", "theta").exit_code == 2
    assert run("train", "--option", "theta=1", "--option", "theta=2").exit_code == 2


def test_missing_files_are_named(refused, tmp_path):
    assert f"{tmp_path}/mamem/U001.mat" in refused("train", "--dataset", "mamem", "--root", tmp_path)


def test_one_class_is_named(refused, recordings, tmp_path):
    write_npz(load(recordings, 2).select(classes=["left"]), tmp_path / "left.npz")
    assert "has one class, 'left'" in refused("train", "--dataset", tmp_path / "left.npz")


def test_a_recording_is_read_as_told_and_evaluated_the_same_way(run_json, refused, tmp_path):
    file = write_recording(tmp_path / "mine_raw.fif")
    assert "--read tmin=0.5" in refused("train", "--dataset", file)
    reading = ("--read", "tmin=0", "--read", "tmax=0.6")
    found = run_json("train", "--dataset", file, *reading, *FEW, "-o", tmp_path / "m")
    assert found["reading"] == {"tmin": 0, "tmax": 0.6}
    for options in ((), ("--dataset", file), ("--dataset", file, *reading)):
        again = run_json("evaluate", tmp_path / "m", *options)
        assert again["accuracy"] == found["test"]["accuracy"]
        assert set(again["uses"]) == {"unseen"}
    other = run_json("evaluate", tmp_path / "m", "--dataset", file, "--read", "tmin=0.1", "--read", "tmax=0.7")
    assert set(other["uses"]) == {"unknown"}


def test_arguments_are_checked_before_files_are_read(refused, tmp_path):
    file = write_recording(tmp_path / "mine_raw.fif")  # reading it needs tmin and tmax
    said = refused("train", "--dataset", file, "--align", "euclidian")
    assert "alignment='euclidian' is not known; it is one of 'euclidean', 'riemannian'" in said


# ---- folders


def test_a_model_is_not_replaced_unless_forced_and_that_is_known_before_training(
    run, run_json, refused, recordings, tmp_path, monkeypatch
):
    arguments = ("train", "--dataset", recordings, *FEW, "-o", tmp_path / "m")
    run_json(*arguments)
    first = weights(tmp_path / "m")
    with monkeypatch.context() as patch:
        patch.setattr(EEGDecoder, "fit", pytest.fail)
        assert "--force" in refused(*arguments, "--seed", "1")
    assert same(weights(tmp_path / "m"), first)
    assert run(*arguments, "--seed", "1", "--force").exit_code == 0
    assert not same(weights(tmp_path / "m"), first)


def test_force_replaces_models_and_nothing_else(refused, recordings, tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "config.json").write_text("{}")
    (tmp_path / "project" / "README.md").write_text("mine")
    said = refused("train", "--dataset", recordings, *FEW, "-o", tmp_path / "project", "--force")
    assert "is not a model of gbwatt" in said
    assert (tmp_path / "project" / "README.md").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_found_before_training(refused, recordings, monkeypatch):
    monkeypatch.setattr(EEGDecoder, "fit", pytest.fail)
    assert "cannot be written" in refused("train", "--dataset", recordings, "-o", "/proc/model")


def test_a_file_is_never_written_over(refused, recordings):
    assert "is a file" in refused("train", "--dataset", recordings, "-o", recordings, "--force")


# ---- interruption


@pytest.fixture
def interrupt(monkeypatch):
    """Let Ctrl-C come at the end of an epoch."""

    def at(epoch):
        shown = callbacks.EpochDisplay.on_epoch_end

        def stop(self, net, **arguments):
            shown(self, net, **arguments)
            if len(net.history) == epoch:
                raise KeyboardInterrupt

        patch = pytest.MonkeyPatch()
        patch.setattr(callbacks.EpochDisplay, "on_epoch_end", stop)
        return patch

    return at


def test_an_interrupted_training_goes_on_from_its_checkpoint(run, run_json, interrupt, recordings, tmp_path):
    arguments = ("train", "--dataset", recordings, "--task", "mi", "--max-epochs", "6")
    patch = interrupt(2)
    stopped = run(*arguments, "--checkpoint", tmp_path / "state", "-o", tmp_path / "m")
    patch.undo()
    assert stopped.exit_code == 130
    assert f"after epoch 2 of 6. The state is saved in {tmp_path / 'state'}" in stopped.stderr
    assert "the same command again" in stopped.stderr
    assert not (tmp_path / "m").exists()
    resumed = run(*arguments, "--checkpoint", tmp_path / "state", "-o", tmp_path / "m")
    assert resumed.exit_code == 0, resumed.exception
    assert "Continuing after epoch 2" in resumed.stderr
    whole = run_json(*arguments, "-o", tmp_path / "whole")
    assert same(weights(tmp_path / "m"), weights(whole["folder"]))


def test_a_checkpoint_of_another_training_is_refused(run_json, refused, recordings, tmp_path):
    arguments = ("train", "--dataset", recordings, *FEW, "--checkpoint", tmp_path / "state")
    run_json(*arguments, "-o", tmp_path / "one")
    assert "belongs to another training" in refused(*arguments, "--seed", "1", "-o", tmp_path / "two")


def test_an_interruption_before_the_first_epoch_leaves_nothing(run, recordings, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(EEGDecoder, "fit", stop)
    stopped = run("train", "--dataset", recordings, "-o", tmp_path / "m", "--json")
    assert stopped.exit_code == 130
    assert json.loads(stopped.stdout) == {"status": "interrupted", "epochs": 0, "folder": None}
    assert not (tmp_path / "m").exists()


def test_ctrl_c_keeps_the_best_weights_so_far_and_does_not_test_them(tmp_path):
    recordings = write_recordings(tmp_path / "mine.npz")
    command = [sys.executable, "-c", f"{HEED_CTRL_C}from gbwatt.cli import main; main()", "train"]
    endless = [
        "--dataset",
        recordings,
        "--task",
        "mi",
        "--max-epochs",
        "1000000",
        "--threads",
        "1",
        "-o",
        str(tmp_path / "m"),
        "--json",
    ]
    with subprocess.Popen([*command, *endless], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            first = process.stderr.readline()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert first.startswith("epoch 1/1000000")
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "marked as interrupted and not tested" in err
    document = json.loads(out)
    assert (document["status"], document["folder"]) == ("interrupted", str(tmp_path / "m"))
    assert "test" not in document
    assert json.loads((tmp_path / "m" / "training.json").read_text())["status"] == "interrupted"
    decoder = GBWAttClassifier.from_pretrained(tmp_path / "m")
    assert len(decoder.history_) == document["epochs"] >= 1
    assert decoder.best_epoch_ == document["best_epoch"]


def test_missing_kernels_are_said(run, recordings, monkeypatch):
    assert "compiled kernels" not in run("train", "--dataset", recordings, *FEW, "-o", "one").stdout
    monkeypatch.setattr("gbwatt.nn._native._filters", None)
    assert "without its compiled kernels" in run("train", "--dataset", recordings, *FEW, "-o", "two").stdout


# ---- sources, versions and rare classes


def test_the_record_is_of_the_source_that_was_read(run_json, refused, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)

    def read(_files, subject):
        x, session = rng.standard_normal((48, 22, 64)), np.repeat(["T", "E"], 24)
        return Trials(
            X=x, y=np.arange(48) % 4, class_names=bcic2a.CLASSES, ch_names=bcic2a.CHANNELS, sfreq=125, session=session,
            subject=subject, dataset=bcic2a.NAME,
        )  # fmt: skip

    online = Source("moabb", read, downloads=True)
    changed = replace(bcic2a.DATASET, sources=(bcic2a.DATASET.source("gdf"), online), task=None)
    monkeypatch.setitem(DATASETS, bcic2a.NAME, changed)
    arguments = ("train", "--dataset", bcic2a.NAME, "--root", tmp_path, "--model", "spdnet", *FEW)
    assert "A01T.gdf" in refused(*arguments)
    found = run_json(*arguments, "--source", "moabb", "-o", tmp_path / "m")
    assert found["data"] == fingerprint(bcic2a.NAME, 1, tmp_path, {"source": "moabb"})
    again = run_json(
        "evaluate", tmp_path / "m", "--dataset", bcic2a.NAME, "--root", tmp_path, "--source", "moabb", "--all"
    )
    assert set(again["uses"]) == {"training", "validation", "unseen"}


def test_the_version_can_be_asked_for(run):
    asked, command = run("--version"), run("version")
    assert asked.exit_code == command.exit_code == 0
    assert asked.stdout == f"{gbwatt.__version__}\n"
    assert command.stdout.startswith(asked.stdout)


@pytest.mark.parametrize("available", [True, False])
def test_the_version_says_whether_the_kernels_are_installed(run, monkeypatch, available):
    monkeypatch.setattr("gbwatt.geometry._native.available", lambda: available)
    monkeypatch.setattr("gbwatt.nn._native.available", lambda: True)
    _, kernels = run("version").stdout.splitlines()
    assert ("without its compiled kernels" in kernels) != available


def test_the_card_of_a_model_shows_how_it_is_used(run_json, recordings, tmp_path):
    run_json("train", "--dataset", recordings, *FEW, "-o", tmp_path / "m")
    card = (tmp_path / "m" / "README.md").read_text()
    code = card.partition("```python\n")[2].partition("```")[0].replace("path/to/this/folder", str(tmp_path / "m"))
    found = {"epochs": load(recordings, 1)}
    exec(code, found)
    assert "GBWAttClassifier.from_pretrained" in code
    assert len(found["labels"]) == 40


@pytest.mark.filterwarnings("ignore:.*y_true")
@pytest.mark.parametrize("count", [1, 2])
def test_a_class_with_one_trial_is_trained_on_with_a_warning(run_json, recordings, tmp_path, count):
    trials = load(recordings, 1)
    y = trials.y.copy()
    y[[3, 30][:count]] = 2
    write_npz(trials.replace(class_names=("left", "right", "rest"), y=y), tmp_path / "rare.npz")
    with pytest.warns(RareClassWarning, match="'rest'"):
        found = run_json("train", "--dataset", tmp_path / "rare.npz", *FEW, "-o", tmp_path / "m")
    assert 3 in json.loads((tmp_path / "m" / "training.json").read_text())["seen"]["train"]
    assert found["test"]["class_names"] == ["left", "right", "rest"]


# ---- several recordings


CONTINUOUS = ("--read", "tmin=0", "--read", "tmax=0.8", "--model", "tangent-space", "--preprocess", "bandpass=4-40")


@pytest.fixture
def several(tmp_path):
    return [write_recording(tmp_path / f"{name}_raw.fif", seed) for seed, name in enumerate("abc")]


def test_an_option_takes_several_files(run_json, several):
    found = run_json("train", "--dataset", *several, *CONTINUOUS, "-o", "m")
    assert found["dataset"] == " + ".join(f"{number}={file}" for number, file in enumerate(several, start=1))
    assert found["subject"] == "1-3"
    assert found["tested_on"] == "subjects 1-3, last trials"
    again = run_json("evaluate", "m")
    assert again["accuracy"] == found["test"]["accuracy"]
    assert [step["step"] for step in EEGDecoder.from_pretrained("m").recorded_.steps] == ["recorded", "band_pass"]


def test_files_are_trained_on_and_others_tested(run_json, several):
    found = run_json("train", "--train", *several[:2], "--test", several[2], *CONTINUOUS, "-o", "m")
    assert (found["subject"], found["tested_on"]) == ("1-3", "subject 3")
    assert found["protocol"] == {"protocol": "BySubject", "train": [1, 2], "test": [3], "valid": 0.125}
    repeated = run_json(
        "train", "--train", several[0], "--train", several[1], "--test", several[2], *CONTINUOUS, "-o", "n"
    )
    assert repeated["test"] == found["test"]


def test_evaluation_says_what_was_trained_on_and_what_tested(run, several):
    run("train", "--train", *several[:2], "--test", several[2], *CONTINUOUS, "-o", "m")
    shown = run("evaluate", "m").stdout
    assert f"trained on {several[0]}, {several[1]}; tested on {several[2]}." in shown


def test_files_of_one_subject_are_trained_on_and_another_tested(run, run_json, several):
    numbered = [f"3={file}" for file in several]
    found = run_json("train", "--train", *numbered[:2], "--test", numbered[2], *CONTINUOUS, "-o", "m")
    assert (found["subject"], found["tested_on"]) == (3, "subject 3, session 3")
    assert found["trials"]["test"] == len(load({3: several[2]}, tmin=0, tmax=0.8))
    assert f"trained on {several[0]}, {several[1]}; tested on {several[2]}." in run("evaluate", "m").stdout
    assert run_json("evaluate", "m")["accuracy"] == found["test"]["accuracy"]


def test_a_single_file_can_have_a_number(run_json, several):
    found = run_json("train", "--dataset", f"3={several[0]}", *CONTINUOUS, "-o", "m")
    assert found["subject"] == 3
    for name in (several[0], f"3={several[0]}", f"5={several[0]}"):
        uses = run_json("evaluate", "m", "--dataset", name, "--all")["uses"]
        assert uses["training"]["n"] == found["trials"]["train"]


def test_subjects_are_trained_on_and_others_tested(run_json, recordings):
    found = run_json(
        "train", "--dataset", recordings, "--train", "1", "--test", "2", "--model", "tangent-space", "-o", "m"
    )
    assert (found["subject"], found["tested_on"], found["trials"]["test"]) == ("1-2", "subject 2", 40)


def test_protocols_and_subjects_are_options(run_json, tmp_path):
    recordings = write_recordings(tmp_path / "four.npz", subjects=4)
    found = run_json(
        *("train", "--dataset", recordings, "--subjects", "1-3", "--protocol", "leave-one-subject-out"),
        *("--split", 1, "--model", "tangent-space", "-o", "m"),
    )
    assert found["tested_on"] == "subject 2"


def test_the_other_splits_of_a_protocol_are_mentioned(run, tmp_path):
    recordings = write_recordings(tmp_path / "four.npz", subjects=4)
    protocol = ("--subjects", "1-4", "--protocol", "leave-one-subject-out", "--split", 1, "--model", "tangent-space")
    said = run("train", "--dataset", recordings, *protocol, "-o", "m").output
    assert "This is split 1 of 4, from 0; `gbwatt benchmark` runs all of them." in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train", "1"], "--train and --test belong together"),
        (["--train", "1", "--test", "2", "--subject", "1"], "leave out --subject and --protocol"),
        (["--dataset", "anna=a.edf"], "a.edf does not exist"),
        (["--train", "1", "--test", "1"], "subject 1 is in both train and test"),
        (["--train", "a.edf", "--test", "b.edf", "--dataset", "c.edf"], "which replace --dataset"),
        (["--train", "a.edf", "--test", "a.edf"], "a.edf is given twice"),
        (["--dataset", "1=a.edf", "b.edf"], "have the number of their subject; give all or none"),
        (["--subjects", "1-x"], "give numbers and ranges"),
        (["--protocol", "leave-one-out"], "protocol='leave-one-out' is not known"),
        (["--preprocess", "bandpas=8-30"], "Did you mean 'bandpass'"),
    ],
)
def test_contradictions_between_recordings_are_explained(refused, options, message):
    assert message in refused("train", *options)


def test_only_numbers_name_subjects(refused, recordings):
    said = refused("train", "--dataset", f"anna={recordings}")
    assert f"'anna' is not the number of a subject; write 1={recordings}" in said


def test_a_subject_in_train_and_test_besides_others_is_refused_with_a_remedy(refused, several):
    files = [f"{number}={file}" for number, file in zip((1, 3, 3), several, strict=True)]
    said = refused("train", "--train", *files[:2], "--test", files[2])
    assert "subject 3 is in both train and test" in said
    assert "--protocol leave-one-session-out" in said
