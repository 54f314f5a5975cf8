"""Search for the settings of a model."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace

import numpy as np
import optuna
import pytest
import torch
from torch import nn

from gbwatt.data import Trials
from gbwatt.data.formats.npz import write_npz
from gbwatt.data.splits import InOrder, Split
from gbwatt.decoding import Callback, EEGDecoder, search, train_and_evaluate
from gbwatt.decoding.evaluation import TrainingSetup, scores
from gbwatt.decoding.hyperparameter_search import _make_objective
from gbwatt.decoding.search_study import STARTUP, Objective
from gbwatt.errors import CheckpointError, PackageError, ParameterError
from gbwatt.models import registry

LR = {"lr": (1e-3, 1e-1, "log")}
FEW = {"max_epochs": 3, "batch_size": 8}

#: A learning rate with which M, a positive definite matrix, overflows in the first step.
DIVERGING = 4e9
SETTINGS = {"space": {**LR, "width": [2, 3], "dropout": (0.0, 0.5)}, "training": FEW, "n_candidates": 6}
BEST = 0.7  # of the option of the model "planted"


class Planted(nn.Module):
    """A classical pipeline: the power of the first channel, which is amplified most for one value of its option."""

    def __init__(self, n_chans, n_outputs, quality=0.0, other="a", task=None):
        super().__init__()
        self.gain, self.mean = 3 - 3 * abs(quality - BEST), nn.Parameter(torch.zeros(()))
        self.final_layer = nn.Linear(n_chans, n_outputs)

    def fit(self, x, y, weights):
        power = self.power(x)
        self.sign = 1.0 if power[y == 0].mean() > power[y == 1].mean() else -1.0
        self.mean.data = power.mean()

    def power(self, x):
        return x[:, 0].square().mean(-1).log()

    def forward(self, x):
        score = self.gain * self.sign * (self.power(x) - self.mean)
        return torch.stack([score, -score], dim=-1)


@pytest.fixture(autouse=True)
def planted():
    registry.register("planted", "a pipeline with a known optimum", classical=True)(
        lambda signal, task, **options: Planted(signal.n_chans, signal.n_outputs, **options)
    )
    yield
    del registry._MODELS["planted"]


def make_trials(n=48, seed=0, **changes):
    """Trials of two classes that differ in the power of a channel."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, 3, 32)) * 10, np.arange(n) % 2
    x[y == 0, 0] *= 2
    values = {"X": x, "y": y, "class_names": ("left", "right"), "ch_names": ("C3", "Cz", "C4"), "sfreq": 100}
    return Trials(**{**values, "dataset": "mine", **changes})


@pytest.fixture
def trials():
    return make_trials()


@pytest.fixture
def split(trials):
    return InOrder().splits(trials)[0]


def results(result):
    """All of the candidates but their durations."""
    return [replace(candidate, seconds=0.0) for candidate in result.candidates]


class Interrupt(Callback):
    """Ctrl-C in an epoch of the training with a number."""

    trainings = 0

    def __init__(self, training, epoch):
        self.training, self.epoch = training, epoch

    def on_train_begin(self, net, **_):
        Interrupt.trainings += 1

    def on_epoch_end(self, net, **_):
        if Interrupt.trainings == self.training and len(net.history) == self.epoch:
            raise KeyboardInterrupt


# ---- what is found


@pytest.mark.parametrize("objective", ["loss", "balanced_accuracy"])
def test_a_planted_optimum_is_found(trials, split, objective):
    space = {"quality": (-2.0, 2.0), "other": ["a", "b"]}
    result = search(trials, "planted", split=split, space=space, n_candidates=25, objective=objective)
    distances = [abs(candidate.settings["quality"] - BEST) for candidate in result.candidates]
    if objective == "loss":
        assert abs(result.best.settings["quality"] - BEST) < 0.2
        assert np.median(distances[STARTUP:]) < np.median(distances[:STARTUP])
        assert result.importance["quality"] > result.importance["other"]
    better = [candidate.score for candidate in result.candidates]
    assert result.best.score == (max(better) if objective == "balanced_accuracy" else min(better))
    assert result.best == result.ranking[0]
    assert sum(result.importance.values()) == pytest.approx(1)


def test_the_first_candidate_has_the_usual_settings_if_the_space_contains_them(trials, split):
    inside = search(trials, "spdnet", split=split, n_candidates=1, training={"max_epochs": 1})
    assert inside.candidates[0].settings["lr"] == registry.entry("spdnet").training_for(None).lr
    outside = search(trials, "tiny", split=split, space={"lr": [0.5, 0.6]}, training=FEW, n_candidates=1)
    assert outside.candidates[0].settings["lr"] in (0.5, 0.6)


def test_all_candidates_have_the_seed_and_the_versions(trials, split):
    result = search(trials, "tiny", split=split, seed=3, **{**SETTINGS, "n_candidates": 2})
    assert [candidate.seed for candidate in result.candidates] == [3, 3]
    assert [candidate.number for candidate in result.candidates] == [0, 1]
    assert all({"torch", "gbwatt", "optuna"} <= set(candidate.versions) for candidate in result.candidates)
    assert all(candidate.epochs == 3 for candidate in result.candidates)


def test_the_search_depends_on_the_seed_only(trials, split):
    torch.manual_seed(1)
    one = search(trials, "tiny", split=split, **SETTINGS)
    torch.manual_seed(2)
    assert results(search(trials, "tiny", split=split, **SETTINGS)) == results(one)
    assert results(search(trials, "tiny", split=split, seed=1, **SETTINGS)) != results(one)


# ---- which trials are used


@pytest.mark.parametrize("folds", [None, 3])
@pytest.mark.parametrize("model", ["tiny", "planted"])
def test_test_trials_are_not_used(trials, split, model, folds):
    space = {"quality": (-2.0, 2.0)} if model == "planted" else SETTINGS["space"]
    training = {} if model == "planted" else FEW
    arguments = {"split": split, "space": space, "training": training, "n_candidates": 4, "folds": folds}
    before = search(trials, model, **arguments)
    damaged = make_trials()
    object.__setattr__(damaged, "X", damaged.X.copy())
    damaged.X[split.test] = np.nan
    object.__setattr__(damaged, "y", damaged.y.copy())
    damaged.y[split.test] = 1 - damaged.y[split.test]
    after = search(damaged, model, **arguments)
    assert results(after) == results(before)
    assert all(candidate.status == "done" for candidate in after.candidates)


def objective_of(trials, split, model="tiny", folds=None, **changes):
    fields = {"dataset": "mine", "task": changes.pop("task", None), "trials": trials, "split": split}
    given = TrainingSetup(**fields, split_number=None, model=model, **changes)
    return _make_objective(given, given.check_and_complete(), folds, "loss")


def test_the_objective_has_training_and_validation_trials_only(trials, split):
    objective = objective_of(trials, split)
    assert np.array_equal(objective.trials.X[objective.train], trials.X[split.train])
    assert np.array_equal(objective.trials.X[objective.valid], trials.X[split.valid])
    assert len(objective.trials) == len(split.train) + len(split.valid)


@pytest.mark.parametrize(
    ("model", "changes", "selects"),
    [
        ("tiny", {}, True),
        ("planted", {}, False),
        ("gbwatt", {"task": "mi"}, False),
        ("gbwatt", {"task": "mi", "training": {"early_stopping": 3}}, True),
        ("gbwatt", {"task": None, "recipe": "paper"}, True),
    ],
)
def test_validation_trials_select_the_epoch_as_in_the_final_training(trials, split, model, changes, selects):
    objective = objective_of(trials, split, model, **changes)
    (part,) = objective.parts(objective.setup)
    assert np.array_equal(part.train, objective.train)
    assert np.array_equal(part.scored, objective.valid)
    assert np.array_equal(part.select, objective.valid) == selects
    folded = replace(objective, folds=3).parts(objective.setup)
    expected = objective.train if selects else np.arange(len(objective.trials))
    for one in folded:
        assert np.array_equal(np.sort([*one.train, *one.scored]), expected)
        assert np.array_equal(one.select, objective.valid if selects else [])
    assert np.array_equal(np.sort(np.concatenate([one.scored for one in folded])), expected)


def test_folds_do_not_divide_a_group():
    trials = make_trials(y=np.repeat(np.arange(12) % 2, 4), group=np.repeat(np.arange(12), 4))
    split = InOrder().splits(trials)[0]
    objective = objective_of(trials, split, "planted", folds=3)
    group = objective.trials.group
    parts = objective.parts(objective.setup)
    assert len(parts) == 3
    for part in parts:
        assert not set(group[part.train]) & set(group[part.scored])
        assert set(objective.trials.y[part.scored]) == {0, 1}


def test_the_score_is_that_of_the_training_with_these_settings(trials, split):
    result = search(trials, "tiny", split=split, **SETTINGS)
    best = result.best
    options = {name: best.settings[name] for name in ("width", "dropout")}
    valid = trials[split.valid]
    decoder = EEGDecoder("tiny", model_options=options, lr=best.settings["lr"], validation=valid, **FEW)
    decoder.fit(trials[split.train])
    assert best.loss == pytest.approx(min(row["valid_loss"] for row in decoder.history_), rel=1e-5)
    assert best.balanced_accuracy == scores(decoder, valid)["balanced_accuracy"]


def test_without_selection_of_the_epoch_the_last_weights_are_scored(trials, split):
    space, sizes = {"lr": [1e-3, 1e-2]}, {"n_spatial": 3, "n_temporal": 3, "kernel": 9, "k": 3}
    arguments = {"task": "mi", "options": sizes, "training": {"max_epochs": 2}}
    result = search(trials, split=split, space=space, n_candidates=1, **arguments)
    alone = Split("valid", split.train, [], split.valid, trials.group)
    lr = result.best.settings["lr"]
    trained = train_and_evaluate(trials, split=alone, task="mi", options=sizes, max_epochs=2, lr=lr)
    assert result.best.loss == trained.evaluation.loss


def test_the_score_of_a_cross_validation_is_the_mean_over_folds(trials, split):
    result = search(trials, "tiny", split=split, folds=3, **SETTINGS)
    best, objective = result.best, objective_of(trials, split, folds=3, training=FEW)
    setup = objective.setup.with_settings(best.settings)
    losses = []
    for part in objective.parts(setup):
        decoder = setup.make_decoder(objective.trials[part.select]).fit(objective.trials[part.train])
        losses.append(scores(decoder, objective.trials[part.scored])["loss"])
    assert best.loss == np.mean(losses)
    assert best.epochs == 3 * FEW["max_epochs"]


# ---- interruptions


@pytest.mark.parametrize("pruning", ["median", "halving"])
@pytest.mark.parametrize("folds", [None, 3])
def test_a_resumed_search_has_the_candidates_of_an_uninterrupted_one(
    trials, split, tmp_path, monkeypatch, pruning, folds
):
    arguments = {**SETTINGS, "split": split, "space": LR, "pruning": pruning, "folds": folds, "n_candidates": 6}
    arguments["training"] = {"max_epochs": 7, "batch_size": 8 if folds else 2}
    expected = search(trials, "tiny", **arguments)
    fit = EEGDecoder.fit
    stop = Interrupt(training=5 if folds else 2, epoch=6)  # of the second candidate, with folds in the second fold
    Interrupt.trainings = 0
    monkeypatch.setattr(EEGDecoder, "fit", lambda self, *a: (self.callbacks.append(stop), fit(self, *a))[1])
    stopped = search(trials, "tiny", storage=tmp_path / "s", **arguments)
    monkeypatch.setattr(EEGDecoder, "fit", fit)
    assert stopped.interrupted
    assert [candidate.number for candidate in stopped.candidates] == [0]
    resumed = search(trials, "tiny", storage=tmp_path / "s", **arguments)
    assert not resumed.interrupted
    assert results(resumed)[: len(stopped.candidates)] == results(stopped)
    assert results(resumed) == results(expected)
    assert any(candidate.status == "pruned" for candidate in expected.candidates)


def test_a_finished_search_can_be_continued_with_more_candidates(trials, split, tmp_path):
    arguments = {**SETTINGS, "split": split, "storage": tmp_path / "s"}
    seen = []
    search(trials, "tiny", **{**arguments, "n_candidates": 2})
    result = search(trials, "tiny", **arguments, on_candidate=seen.append)
    assert [candidate.number for candidate in seen] == [2, 3, 4, 5]
    assert results(result) == results(search(trials, "tiny", **{**arguments, "storage": None}))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"data": make_trials(seed=1)}, "training data is"),
        ({"model": "spdnet", "space": LR}, "model is tiny there and spdnet here"),
        ({"split": InOrder(valid=1 / 4).splits(make_trials())[0]}, "validation data is"),
        ({"space": {"lr": (1e-3, 1e-2, "log")}}, "space is"),
        ({"training": {**FEW, "max_epochs": 4}}, "training is"),
        ({"options": {"dropout": 0.1}, "space": LR}, "options is"),
        ({"folds": 3}, "folds is None there and 3 here"),
        ({"objective": "balanced_accuracy"}, "objective is loss there"),
        ({"pruning": "none"}, "pruning is median there"),
        ({"seed": 1}, "seed is 0 there and 1 here"),
    ],
)
def test_a_storage_of_another_search_is_refused(trials, split, tmp_path, changes, named):
    arguments = {"data": trials, "model": "tiny", "split": split, **SETTINGS, "n_candidates": 1}
    search(**arguments, storage=tmp_path / "s")
    before = (tmp_path / "s").read_bytes()
    with pytest.raises(CheckpointError, match=f"belongs to another search: .*{named}"):
        search(**{**arguments, **changes}, storage=tmp_path / "s")
    assert (tmp_path / "s").read_bytes() == before


@pytest.mark.parametrize("content", [b"{}\n", b"no JSON\n", b"[1]\n", b"\xff\xfe\n"])
def test_another_file_is_refused_as_storage(trials, split, tmp_path, content):
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged or not the file of a search"):
        search(trials, "tiny", split=split, storage=tmp_path / "s", **SETTINGS)
    assert (tmp_path / "s").read_bytes() == content


@pytest.mark.parametrize("name", ["", "missing/s"])
def test_a_storage_that_cannot_be_written_is_named(trials, split, tmp_path, name):
    with pytest.raises(ParameterError, match=r"storage=.*cannot be written"):
        search(trials, "tiny", split=split, storage=tmp_path / name, **SETTINGS)


def test_a_study_of_another_program_is_refused(trials, split, tmp_path):
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    optuna.create_study(storage=JournalStorage(JournalFileBackend(str(tmp_path / "s"))), study_name="other")
    with pytest.raises(CheckpointError, match="not the file of a search"):
        search(trials, "tiny", split=split, storage=tmp_path / "s", **SETTINGS)


def test_after_the_timeout_no_candidate_is_started(trials, split, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("gbwatt.decoding.hyperparameter_search.time.time", lambda: float(next(clock)))
    result = search(trials, "tiny", split=split, timeout=3, **SETTINGS)
    assert len(result.candidates) == 2
    assert not result.interrupted


def test_without_candidates_a_longer_timeout_is_suggested(trials, split, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("gbwatt.decoding.hyperparameter_search.time.time", lambda: float(next(clock)))
    with pytest.raises(ParameterError, match="longer timeout"):
        _ = search(trials, "tiny", split=split, timeout=0.5, **SETTINGS).best


# ---- pruning and failures


@pytest.mark.parametrize("pruning", ["median", "halving"])
@pytest.mark.parametrize("n_members", [1, 2])
def test_bad_candidates_are_stopped_early(trials, split, pruning, n_members):
    arguments = {"split": split, "space": {"lr": (1e-5, 0.1, "log")}, "n_candidates": 6}
    arguments["training"] = {"max_epochs": 9, "batch_size": 2, "n_members": n_members}  # batch statistics settle soon
    result = search(trials, "tiny", pruning=pruning, **arguments)
    stopped = [candidate for candidate in result.candidates if candidate.status == "pruned"]
    assert stopped
    assert all(5 <= candidate.epochs < 9 for candidate in stopped)
    assert all(f"after epoch {candidate.epochs}" in candidate.reason for candidate in stopped)
    assert all(candidate.score is None for candidate in stopped)
    assert max(candidate.settings["lr"] for candidate in stopped) < result.best.settings["lr"]


def test_without_pruning_all_candidates_are_trained_to_the_end(trials, split):
    result = search(trials, "tiny", split=split, pruning="none", **{**SETTINGS, "n_candidates": 8})
    assert [candidate.status for candidate in result.candidates] == ["done"] * 8


def test_settings_are_trained_once(trials, split):
    result = search(trials, "tiny", split=split, space={"lr": [0.01, 0.02]}, training=FEW, n_candidates=5)
    trained = [candidate for candidate in result.candidates if not candidate.reason]
    assert len(trained) == len({candidate.settings["lr"] for candidate in result.candidates})
    scores = {candidate.settings["lr"]: candidate.score for candidate in trained}
    assert all(candidate.score == scores[candidate.settings["lr"]] for candidate in result.candidates)
    assert any("settings of candidate" in candidate.reason for candidate in result.candidates)


@pytest.mark.parametrize("objective", ["loss", "balanced_accuracy"])
def test_bad_candidates_are_stopped_after_a_fold(trials, split, objective):
    arguments = {"space": {"quality": (-2.0, 2.0)}, "n_candidates": 12, "folds": 3, "objective": objective}
    result = search(trials, "planted", split=split, **arguments)
    stopped = [candidate for candidate in result.candidates if candidate.status == "pruned"]
    assert objective == "balanced_accuracy" or stopped
    assert all("of 3" in candidate.reason for candidate in stopped)


def test_failed_candidates_are_recorded_and_the_search_continues(trials, split):
    space = {"k": [3, 99], "lr": [1e-2, DIVERGING]}
    result = search(trials, "gbwatt", recipe="paper", split=split, space=space, training=FEW, n_candidates=12)
    by_status = {status: [c for c in result.candidates if c.status == status] for status in ("done", "failed")}
    assert len(by_status["done"]) + len(by_status["failed"]) == 12
    assert all(candidate.settings == {"k": 3, "lr": 1e-2} for candidate in by_status["done"])
    assert by_status["done"]
    reasons = {candidate.settings["k"]: candidate.reason for candidate in by_status["failed"]}
    assert "NonFiniteLossError" in reasons[3]
    assert "ParameterError: k=99" in reasons[99]
    assert result.best.settings == {"k": 3, "lr": 1e-2}


def test_if_all_candidates_fail_the_reason_is_named(trials, split):
    space = {"lr": [DIVERGING / 2, DIVERGING]}
    result = search(trials, "gbwatt", recipe="paper", split=split, space=space, training=FEW, n_candidates=2)
    assert result.ranking == []
    assert result.to_dict()["settings"] is None
    with pytest.raises(ParameterError, match=r"none of 2 candidates was completed.*NonFiniteLossError"):
        _ = result.best


# ---- arguments


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"objective": "los"}, "Did you mean 'loss'"),
        ({"pruning": "hyperband"}, "pruning='hyperband'"),
        ({"n_candidates": 0}, "n_candidates=0"),
        ({"jobs": -1}, "jobs=-1"),
        ({"timeout": 0}, "timeout=0"),
        ({"training": {"max_epoch": 1}}, "Did you mean 'max_epochs'"),
        ({"training": {"max_epochs": 0}}, "max_epochs=0"),
        ({"training": {"lr": -1.0}}, r"lr=-1\.0"),
        ({"folds": 1}, "folds=1"),
        ({"folds": 30}, "folds=30: class 'left' has"),
        ({"space": {"widht": [2, 3]}}, "Did you mean 'width'"),
        ({"model": "tny"}, "tiny"),
        ({"split": 0}, "split=0"),
        ({"model": "gbwatt", "space": LR}, "give task='mi'"),
    ],
)
def test_wrong_arguments_are_named_before_training(trials, split, monkeypatch, changes, named):
    monkeypatch.setattr(Objective, "evaluate", pytest.fail)
    with pytest.raises(ParameterError, match=named):
        search(**{"data": trials, "model": "tiny", "split": split, **SETTINGS, **changes})


def test_a_split_without_validation_trials_needs_folds(trials, split):
    with pytest.raises(ParameterError, match="give folds=5"):
        search(trials, "tiny", split=split.merged(), **SETTINGS)
    result = search(trials, "tiny", split=split.merged(), folds=2, **SETTINGS)
    assert len(result.ranking) > 0


def test_without_optuna_the_command_that_installs_it_is_named(trials, split, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(PackageError, match=r"pip install 'gbwatt\[search\]'"):
        search(trials, "tiny", split=split, **SETTINGS)


def test_nothing_is_printed_and_the_log_level_of_optuna_remains(trials, split, capfd):
    before = optuna.logging.get_verbosity()
    search(trials, "tiny", split=split, **SETTINGS)
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before


def test_the_setup_and_the_space_are_announced(trials, split):
    seen = []
    result = search(trials, "tiny", split=split, **SETTINGS, on_start=lambda *given: seen.append(given))
    ((setup, space),) = seen
    assert setup.sizes == {part: len(getattr(split, part)) for part in ("train", "valid", "test")}
    assert space == result.space


# ---- the result


def test_the_best_candidate_is_trained_tested_once_and_saved(trials, split, tmp_path):
    result = search(trials, "tiny", split=split, **SETTINGS)
    trained = result.train(tmp_path / "m")
    again = train_and_evaluate(trials, split=split, **result.arguments)
    assert trained.record.test == again.record.test
    assert trained.record.training["lr"] == result.best.settings["lr"]
    assert trained.record.options == {name: result.best.settings[name] for name in ("width", "dropout")}
    assert (trained.folder, trained.evaluation.n) == (tmp_path / "m", len(split.test))


def test_the_arguments_train_the_best_candidate_on_a_file(tmp_path):
    write_npz(make_trials(), tmp_path / "mine.npz")
    result = search(tmp_path / "mine.npz", "spdnet", space=LR, training=FEW, n_candidates=2)
    arguments = json.loads(json.dumps(result.arguments))
    assert arguments["data"] == str(tmp_path / "mine.npz")
    assert train_and_evaluate(**arguments).record.test == result.train().record.test


def test_the_document_can_be_written_as_json(trials, split):
    result = search(trials, "tiny", split=split, **SETTINGS)
    document = json.loads(json.dumps(result.to_dict()))
    assert document["best"] == result.best.number
    assert document["candidates"][0]["settings"] == dict(result.candidates[0].settings)
    assert document["space"]["width"] == "2,3"
    assert document["settings"]["lr"] == result.best.settings["lr"]


def test_the_table_has_a_row_for_each_candidate(trials, split, tmp_path):
    space = {"width": [2, 99], "lr": [1e-2, 1e9]}
    result = search(trials, "tiny", split=split, space=space, training=FEW, n_candidates=8)
    result.to_csv(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    for row, candidate in zip(rows, result.candidates, strict=True):
        assert (int(row["number"]), row["status"], row["reason"]) == (
            candidate.number,
            candidate.status,
            candidate.reason,
        )
        assert float(row["settings.lr"]) == candidate.settings["lr"]
        assert row["score"] == ("" if candidate.score is None else repr(candidate.score))
        assert (int(row["epochs"]), int(row["seed"])) == (candidate.epochs, candidate.seed)
        assert json.loads(row["versions"]) == dict(candidate.versions)
        assert float(row["seconds"]) == candidate.seconds


# ---- processes


def test_a_candidate_whose_process_has_died_has_failed_and_the_others_continue(trials, split, tmp_path, monkeypatch):
    def run(work, tasks, workers):
        for task in tasks:
            yield task, None if task == 1 else work(task)

    monkeypatch.setattr("gbwatt.decoding.hyperparameter_search.run_in_processes", run)
    arguments = {"split": split, **SETTINGS, "n_candidates": 4, "storage": tmp_path / "s"}
    result = search(trials, "tiny", jobs=2, **arguments)
    assert [one.status for one in result.candidates] == ["done", "failed", "done", "done"]
    assert "process has died" in result.candidates[1].reason
    assert results(search(trials, "tiny", **arguments)) == results(result)  # failed candidates are not repeated


@pytest.mark.slow
def test_processes_share_a_search(tmp_path):
    write_npz(make_trials(), tmp_path / "mine.npz")
    arguments = {"space": LR, "training": FEW, "n_candidates": 5, "jobs": 2}
    result = search(tmp_path / "mine.npz", "spdnet", **arguments)
    assert [candidate.number for candidate in result.candidates] == list(range(5))
    assert all(candidate.status == "done" for candidate in result.candidates)
    stored = search(tmp_path / "mine.npz", "spdnet", storage=tmp_path / "s", **arguments)
    assert len(stored.candidates) == 5
