"""``gbwatt search`` as a user meets it."""

from __future__ import annotations

import csv
import inspect
import json
import shlex
from pathlib import Path

import pytest
import yaml

from gbwatt.cli import search as cli
from gbwatt.data import load
from gbwatt.data.splits import InOrder
from gbwatt.decoding import EEGDecoder, TrainingRecord, search, train_and_evaluate
from gbwatt.decoding.search_study import CandidateRunner
from tests.cli.conftest import write_recordings

FEW = ("--model", "spdnet", "--max-epochs", "2", "--space", "lr=1e-3:1e-1:log", "--space", "k=3,6", "--trials", "2")


def test_the_best_candidates_and_the_command_are_printed(run, recordings):
    shown = run("search", "--dataset", recordings, *FEW)
    assert shown.exit_code == 0, (shown.output, shown.exception)
    sizes = InOrder().splits(load(recordings, 1))[0]
    counts = f"{len(sizes.train)} training, {len(sizes.valid)} validation, {len(sizes.test)} test"
    assert counts in shown.stdout
    assert "scored on the validation trials. Space: lr=0.001:0.1:log; k=3,6." in shown.stdout
    assert "Best of 2 candidates (2 done)" in shown.stdout
    assert [line.split(":")[0] for line in shown.stderr.splitlines()] == ["candidate 0", "candidate 1"]
    assert "Train the best: gbwatt train --dataset" in shown.stdout


def test_the_printed_command_trains_the_saved_model(run_json, recordings, tmp_path):
    arguments = ["--dataset", recordings, "--subject", "2", "--option", "kernel=9", *FEW, "--seed", "3"]
    found = run_json("search", *arguments, "-o", tmp_path / "m")
    assert found["trained"]["folder"] == str(tmp_path / "m")
    again = run_json(*found["command"][1:], "-o", tmp_path / "again")
    assert again["test"] == found["trained"]["test"] == TrainingRecord.read(tmp_path / "m").test
    best = found["candidates"][found["best"]]
    assert again["training"]["lr"] == best["settings"]["lr"]
    assert again["options"] == {"kernel": 9, "k": best["settings"]["k"]}
    assert again["seed"] == 3


def test_words_with_spaces_are_quoted_in_the_command(run, recordings):
    shown = run("search", "--dataset", recordings, "--model", "fbcsp", "--trials", "1", "--space",
                "bands=[[[8, 13]], [[8, 13], [13, 30]]]", "--space", "n_filters=1")  # fmt: skip
    assert shown.exit_code == 0, (shown.output, shown.exception)
    (line,) = [line for line in shown.stdout.splitlines() if line.startswith("Train the best: ")]
    words = shlex.split(line.removeprefix("Train the best: "))
    assert any(word.startswith("bands=[[8, 13]") for word in words)
    assert run(*words[1:], "-o", "m").exit_code == 0


@pytest.mark.parametrize(("name", "read"), [("best.json", json.loads), ("best.yaml", yaml.safe_load)])
def test_settings_and_candidates_are_written(run_json, recordings, tmp_path, name, read):
    found = run_json(
        "search", "--dataset", recordings, *FEW, "--settings", tmp_path / name, "--csv", tmp_path / "all.csv"
    )
    settings = read((tmp_path / name).read_text())
    assert settings == found["settings"]
    assert train_and_evaluate(**settings).record.training["lr"] == settings["lr"]
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["settings.lr"]) for row in rows] == [one["settings"]["lr"] for one in found["candidates"]]


def test_the_options_reach_the_search(run_json, recordings, tmp_path):
    arguments = ("--folds", "2", "--objective", "balanced_accuracy", "--pruning", "none")
    storage = ("--storage", tmp_path / "s", "--timeout", "1000")
    found = run_json("search", "--dataset", recordings, *FEW, *arguments, *storage)
    assert (found["folds"], found["objective"], found["storage"]) == (2, "balanced_accuracy", str(tmp_path / "s"))
    assert [one["epochs"] for one in found["candidates"]] == [4, 4]
    assert all(one["score"] == one["balanced_accuracy"] for one in found["candidates"])
    more = run_json("search", "--dataset", recordings, *FEW, *arguments, *storage, "--trials", "3")
    assert more["candidates"][:2] == found["candidates"]
    assert len(more["candidates"]) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--space", "lr"], "NAME=LOW:HIGH"),
        (["--space", "lr=1:2:linear"], "LOW:HIGH:log"),
        (["--space", "lr=2:1"], "is empty"),
        (["--space", "lr=0:1:log"], "above 0"),
        (["--space", "lr=a:b"], "finite number"),
        (["--space", "lr=1,1"], "twice"),
        (["--space", "lr=1:2", "--space", "lr=3:4"], "twice"),
        (["--space", "lrr=1:2"], "Did you mean 'lr'"),
        (["--space", "shrinkag=0,1"], "Did you mean 'shrinkage'"),
        (["--space", "k=2,3", "--option", "k=3"], "both fixed and in the space"),
        (["--objective", "accuracy"], "Did you mean 'balanced_accuracy'"),
        (["--pruning", "hyperband"], "'median', 'halving', 'none'"),
        (["--timeout", "0"], "timeout=0"),
        (["--model", "spdne"], "Did you mean 'spdnet'"),
        (["--model", "gbwatt"], "give task='mi'"),
        (["--model", "gbwatt", "--task", "mii"], "Did you mean 'mi'"),
        (["--settings", "best.txt"], "give a name in .json or .yaml"),
        (["--csv", "none/all.csv"], "create it first"),
        (["--storage", "none/s"], "cannot be written"),
        (["--folds", "40"], "use fewer folds"),
    ],
)
def test_wrong_arguments_are_named_before_training(refused, recordings, monkeypatch, arguments, message):
    monkeypatch.setattr(EEGDecoder, "fit", pytest.fail)
    assert message in refused("search", "--dataset", recordings, "--model", "spdnet", *arguments)


def test_an_existing_model_is_not_replaced_unless_forced(run, refused, recordings, tmp_path):
    arguments = ("search", "--dataset", recordings, *FEW, "-o", tmp_path / "m")
    assert run(*arguments).exit_code == 0
    assert "already exists" in refused(*arguments)
    assert run(*arguments, "--force").exit_code == 0


def test_the_storage_of_another_search_is_refused(run, refused, recordings, tmp_path):
    arguments = ("search", "--dataset", recordings, *FEW, "--storage", tmp_path / "s")
    assert run(*arguments).exit_code == 0
    assert "subject is 1 there and 2 here" in refused(*arguments, "--subject", "2")


def test_if_no_candidate_is_completed_the_reason_is_named(run, recordings):
    arguments = ("--model", "spdnet", "--space", "k=98,99", "--trials", "1", "--csv", "all.csv")
    shown = run("search", "--dataset", recordings, *arguments)
    assert shown.exit_code != 0
    assert "candidate 0: failed, ParameterError: k=9" in shown.stderr
    assert "none of 1 candidates was completed; the first failed: ParameterError: k=9" in str(shown.exception)
    assert "ParameterError: k=9" in Path("all.csv").read_text()


def test_ctrl_c_keeps_completed_candidates_and_the_same_command_continues(run, run_json, recordings, monkeypatch):
    once = CandidateRunner.run

    def stop(self, study, number):
        if number == 1:
            raise KeyboardInterrupt
        return once(self, study, number)

    arguments = ("search", "--dataset", recordings, *FEW, "--storage", "s")
    monkeypatch.setattr(CandidateRunner, "run", stop)
    stopped = run(*arguments, "-o", "m")
    assert stopped.exit_code == 130
    assert "Interrupted after 1 candidates. They are stored in s." in stopped.stderr
    assert "Train the best" in stopped.stdout
    assert "Training with" not in stopped.stdout
    assert "--storage FILE" in run(*arguments[:-2]).stderr
    monkeypatch.setattr(CandidateRunner, "run", once)
    assert [one["number"] for one in run_json(*arguments)["candidates"]] == [0, 1]


def test_ctrl_c_in_the_final_training_saves_the_weights_without_a_test(run, recordings, tmp_path, monkeypatch):
    def stop(_display, net, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gbwatt.decoding.callbacks.EpochDisplay.on_epoch_end", stop)
    stopped = run("search", "--dataset", recordings, *FEW, "-o", tmp_path / "m")
    assert stopped.exit_code == 130
    assert "Interrupted during the final training" in stopped.stderr
    assert "marked as interrupted and not tested" in stopped.stderr
    record = TrainingRecord.read(tmp_path / "m")
    assert (record.status, record.test) == ("interrupted", None)


def test_the_defaults_are_those_of_the_function():
    command, function = inspect.signature(cli.search).parameters, inspect.signature(search).parameters
    same = ("objective", "pruning", "jobs", "seed", "split", "folds", "timeout", "model", "task", "recipe")
    assert {name: command[name].default for name in same} == {name: function[name].default for name in same}
    assert command["trials"].default == function["n_candidates"].default


def test_the_command_names_several_subjects_and_their_protocol(run_json, tmp_path):
    recordings = write_recordings(tmp_path / "four.npz", subjects=4)
    shared = ("search", "--dataset", recordings, "--model", "spdnet", "--max-epochs", 1, "--trials", 1)
    found = run_json(*shared, "--space", "shrinkage=0.1,0.2", "--train", "1-2", "--test", "4")
    words = found["command"]
    assert [words[words.index(name) + 1] for name in ("--train", "--test")] == ["1-2", "4"]
    trained = run_json(*words[1:], "-o", "model")
    assert trained["tested_on"] == "subject 4"
    other = run_json(
        *shared, "--space", "shrinkage=0.1,0.2", "--subjects", "1-3", "--protocol", "leave-one-subject-out"
    )
    words = other["command"]
    assert [words[words.index(name) + 1] for name in ("--subject", "--protocol")] == ["1-3", "leave-one-subject-out"]
