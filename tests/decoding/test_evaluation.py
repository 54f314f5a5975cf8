"""Training, testing and evaluating from Python."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import numpy as np
import pytest

from gbwatt.data import Trials, load
from gbwatt.data.formats.npz import write_npz
from gbwatt.data.splits import BySubject, InOrder
from gbwatt.decoding import (
    Callback,
    EEGDecoder,
    EvaluationSet,
    GBWAttClassifier,
    TrainingRecord,
    evaluate,
    load_decoder,
    train_and_evaluate,
)
from gbwatt.decoding.evaluation import _complete_selection
from gbwatt.errors import DataError, MismatchError, ModelFileError, ParameterError, ShapeError, UnknownLabelError
from gbwatt.models import create
from gbwatt.models.serialization import load_pretrained, save_pretrained
from tests.decoding.test_prediction import READING, recording, saved

SIZES = {"n_spatial": 4, "n_temporal": 4, "kernel": 9, "k": 3}
CHANNELS = ("C3", "Cz", "C4")


def make_trials(seed=0, subject=1, **changes):
    """Trials of two classes that differ in the power of a channel."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((40, 3, 64)) * 10, np.arange(40) % 2
    x[y == 0, 0] *= 3
    values = {"X": x, "y": y, "class_names": ("left", "right"), "ch_names": CHANNELS, "sfreq": 100}
    return Trials(**{**values, "subject": subject, "dataset": "mine", **changes})


@pytest.fixture
def trials():
    return make_trials()


@pytest.fixture
def split(trials):
    return InOrder().splits(trials)[0]


@pytest.fixture
def file(trials, tmp_path):
    write_npz(trials, tmp_path / "mine.npz")
    return tmp_path / "mine.npz"


class Stop(Callback):
    """Ctrl-C at the end of an epoch."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, net, **_):
        if len(net.history) == self.epoch:
            raise KeyboardInterrupt


# ---- train_and_evaluate


def test_the_result_is_that_of_the_saved_model(file, tmp_path):
    result = train_and_evaluate(file, options=SIZES, max_epochs=3, folder=tmp_path / "m")
    trials = load(file, 1)
    test = trials[InOrder().splits(trials)[0].test]
    assert result.evaluation.accuracy == result.decoder.score(test) == load_decoder(tmp_path / "m").score(test)
    assert TrainingRecord.read(tmp_path / "m") == result.record
    assert result.record.test == result.evaluation.to_dict()
    assert (result.folder, result.record.status, result.record.epochs) == (tmp_path / "m", "done", 3)


def test_trials_and_a_split_of_ones_own_are_trained_on(trials, split, tmp_path):
    result = train_and_evaluate(trials, "spdnet", split=split, max_epochs=1, folder=tmp_path / "m")
    assert result.record.trials == {part: len(getattr(split, part)) for part in ("train", "valid", "test")}
    assert result.evaluation.n == len(split.test)
    assert (result.record.dataset, result.record.split, result.record.data) == ("mine", None, None)
    with pytest.raises(ParameterError, match=r"mine.*give --dataset"):  # they cannot be loaded again
        evaluate(tmp_path / "m")
    uses = evaluate(tmp_path / "m", trials).uses
    assert {use: part.n for use, part in uses.items()} == {
        "training": len(split.train),
        "validation": len(split.valid),
        "unrecognised": len(split.test),
    }


def test_without_a_folder_nothing_is_saved(trials, split, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train_and_evaluate(trials, "spdnet", split=split, max_epochs=1).folder is None
    assert not list(tmp_path.iterdir())


def test_settings_reach_the_training_and_the_record(trials, split):
    settings = {"lr": 0.01, "batch_size": 8, "max_epochs": 2, "weight_decay": 0.05}
    result = train_and_evaluate(
        trials, split=split, options=SIZES, recipe="paper", seed=3, early_stopping=2, **settings
    )
    record = result.record
    assert record.training == settings
    assert (record.recipe, record.seed, record.early_stopping, record.options) == ("paper", 3, 2, SIZES)
    assert result.decoder.net_.module_.config["shrinkage"] == 0.0


def test_transfer_settings_reach_the_training_and_the_record(trials, split, tmp_path):
    others = make_trials(seed=1, subject=2, session=np.repeat(["1", "2"], 20))
    arguments = {"split": split, "max_epochs": 1, "recipe": "best"}
    source = train_and_evaluate(others, options=SIZES, task="mi", alignment="euclidean", folder=tmp_path, **arguments)
    assert source.record.training["alignment"] == "euclidean"
    assert source.record.training["domains"] == "subject"
    setups = []
    fine_tuning = {"initialization": tmp_path, "frozen": ["features"], "layer_lr": {"attention": 0.5}}
    result = train_and_evaluate(trials, on_start=setups.append, **fine_tuning, **arguments)
    assert {name: result.record.training[name] for name in fine_tuning} == {
        **fine_tuning,
        "initialization": [str(tmp_path)],
    }
    network = result.decoder.net_.module_
    assert setups[0].n_parameters == result.record.parameters < sum(p.numel() for p in network.parameters())
    assert network.config["k"] == source.decoder.net_.module_.config["k"]
    usual = train_and_evaluate(trials, split=split, initialization=tmp_path, on_start=setups.append, max_epochs=1)
    assert (setups[1].usual_epochs, usual.record.settings["initialization"]) == (120, "pretrained")
    assert TrainingRecord.from_json(result.record.to_json()).training == result.record.training


def test_domains_are_normalised_by_session(split):
    trials = make_trials(session=np.repeat(["1", "2"], 20))
    settings = {"domain_norm": "affine-invariant", "domains": "session", "max_epochs": 1}
    result = train_and_evaluate(trials, split=split, options=SIZES, task="mi", **settings)
    assert result.record.options["domain_norm"] == "affine-invariant"
    assert result.record.training["domains"] == "session"
    assert result.decoder.domains_.names == ["1/1", "1/2"]


def test_the_setup_is_announced_before_training(trials, split, monkeypatch):
    events, fit = [], EEGDecoder.fit
    monkeypatch.setattr(EEGDecoder, "fit", lambda *a: (events.append("fit"), fit(*a))[1])
    result = train_and_evaluate(trials, "spdnet", split=split, max_epochs=1, on_start=events.append)
    setup, then = events
    assert then == "fit"
    assert (setup.sizes, setup.n_parameters, setup.max_epochs) == (result.record.trials, result.record.parameters, 1)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"split": 0}, "split=0"),
        ({"subject": 1}, "subject"),
        ({"model": "spdnett"}, "spdnet"),
        ({"options": {"thetta": 1}, "model": "gbwatt"}, "theta"),
        ({"recipe": "best"}, "spdnet has no recipes"),
        ({"model": "gbwatt", "frozen": ["featres"]}, "Did you mean 'features'"),
        ({"model": "gbwatt", "layer_lr": {"atention": 0.1}}, "Did you mean 'attention'"),
        ({"model": "gbwatt", "domain_norm": "affine"}, "Did you mean 'affine-invariant'"),
        ({"domain_norm": "affine-invariant"}, "domain_norm"),
        ({"model": "gbwatt", "initialization": "physionet-left", "task": "mi"}, "physionet-left-right"),
        ({"model": "gbwatt", "initialization": "physionet-left-right", "options": {"k": 3}}, "leave out k"),
    ],
)
def test_wrong_arguments_are_named_before_training(trials, split, monkeypatch, changes, named):
    monkeypatch.setattr(EEGDecoder, "fit", pytest.fail)
    arguments = {"model": "spdnet", "split": split, **changes}
    with pytest.raises(ParameterError, match=named):
        train_and_evaluate(trials, **arguments)


def test_a_single_class_is_named(split):
    with pytest.raises(ParameterError, match="'left'"):
        train_and_evaluate(make_trials(y=np.zeros(40, int)), "spdnet", split=split)


def test_an_interruption_keeps_the_best_weights_and_does_not_test_them(trials, split, tmp_path):
    result = train_and_evaluate(trials, "spdnet", split=split, max_epochs=5, callbacks=[Stop(2)], folder=tmp_path / "m")
    assert (result.record.status, result.record.epochs, result.record.test) == ("interrupted", 2, None)
    assert result.evaluation is None
    assert TrainingRecord.read(tmp_path / "m") == result.record
    assert len(load_decoder(tmp_path / "m").history_) == 2


def test_an_interrupted_training_continues_from_its_checkpoint(trials, split, tmp_path):
    def train(callbacks=(), **changes):
        return train_and_evaluate(trials, "spdnet", split=split, max_epochs=4, callbacks=callbacks, **changes)

    state = {"checkpoint": tmp_path / "state", "folder": tmp_path / "m"}
    stopped = train([Stop(2)], **state)
    assert (stopped.record.status, stopped.folder) == ("interrupted", None)
    assert not (tmp_path / "m").exists()
    again, whole = train(**state), train()
    assert again.evaluation == whole.evaluation
    assert again.record.checkpoint == str(tmp_path / "state")


# ---- load_decoder


def test_a_decoder_is_of_the_class_that_was_saved(trials, tmp_path):
    for kind, decoder in (
        (GBWAttClassifier, GBWAttClassifier(task="mi", max_epochs=1)),
        (EEGDecoder, EEGDecoder("spdnet")),
    ):
        decoder.set_params(max_epochs=1).fit(trials).save_pretrained(tmp_path / kind.__name__)
        assert type(load_decoder(tmp_path / kind.__name__)) is kind


def test_a_network_saved_without_a_classifier_is_evaluated(trials, tmp_path):
    decoder = EEGDecoder("spdnet", max_epochs=2).fit(trials)
    module = decoder.net_.module_
    save_pretrained(module, tmp_path / "m", class_names=("left", "right"))
    loaded = load_decoder(tmp_path / "m")
    x = trials.X * decoder.scale_  # it gets epochs as they are
    assert np.array_equal(loaded.predict_proba(x), decoder.predict_proba(trials))
    assert loaded.class_names_ == ("left", "right")
    result = evaluate(tmp_path / "m", trials.replace(X=x))
    assert result.accuracy == decoder.score(trials)
    assert list(result.uses) == ["unknown"]
    assert evaluate(tmp_path / "m", x, trials.y).accuracy == result.accuracy
    with pytest.raises(ParameterError, match=r"training\.json"):
        evaluate(tmp_path / "m")
    with pytest.raises(ShapeError, match="'X'"):
        evaluate(tmp_path / "m", x[:, :2], trials.y)


def test_a_network_that_knows_its_channels_checks_them(trials, tmp_path, monkeypatch):
    save_pretrained(create("spdnet", n_chans=3, n_outputs=2, n_times=64, sfreq=100), tmp_path / "m")
    loaded = load_pretrained(tmp_path / "m")
    named = replace(loaded, arguments={**loaded.arguments, "ch_names": ["C3", "Cz", "Pz"]})
    monkeypatch.setattr("gbwatt.decoding.evaluation.load_pretrained", lambda _: named)
    with pytest.raises(MismatchError, match="ch_names"):
        evaluate(tmp_path / "m", trials)


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(ModelFileError, match="nowhere"):
        load_decoder(tmp_path / "nowhere")


# ---- evaluate


def test_scores_come_with_interval_chance_and_uses(trials):
    decoder = EEGDecoder("spdnet", max_epochs=2, validation=trials[24:30]).fit(trials[:24])
    result = evaluate(decoder, trials)
    assert result.accuracy == decoder.score(trials) == result.hits / result.n
    assert result.accuracy_95[0] < result.accuracy <= result.accuracy_95[1]
    assert (result.chance, result.n, np.sum(result.confusion)) == (0.5, 40, 40)
    assert {use: part.n for use, part in result.uses.items()} == {"training": 24, "validation": 6, "unrecognised": 10}
    assert sum(part.hits for part in result.uses.values()) == result.hits
    assert "uses" not in result.to_dict()


def test_arrays_need_labels_that_the_model_knows(trials):
    decoder = EEGDecoder("spdnet", max_epochs=1).fit(trials)
    assert evaluate(decoder, trials.X, trials.y) == evaluate(decoder, trials.X, trials.labels)
    with pytest.raises(UnknownLabelError, match="'feet'"):
        evaluate(decoder, trials.X, np.full(40, "feet"))


def test_arguments_that_cannot_apply_are_refused(trials):
    decoder = EEGDecoder("spdnet", max_epochs=1).fit(trials)
    with pytest.raises(ParameterError, match="data"):
        evaluate(decoder)
    with pytest.raises(ParameterError, match="subject"):
        evaluate(decoder, trials, subject=1)


def test_the_folder_of_a_model_knows_its_test_trials(file, tmp_path):
    result = train_and_evaluate(file, "spdnet", max_epochs=1, folder=tmp_path / "m")
    found = evaluate(tmp_path / "m")
    assert found.to_dict() == result.evaluation.to_dict()
    assert list(found.uses) == ["unseen"]
    assert evaluate(tmp_path / "m", part="all").n == 40
    chosen = EvaluationSet.open(tmp_path / "m", file)
    assert chosen.evaluate() == found
    assert chosen.description == f"{found.n} test trials of {file} (subject 1, last trials)"
    assert chosen.warning is None
    assert "were used for training" in EvaluationSet.open(tmp_path / "m", part="all").warning


RECORD = TrainingRecord(
    dataset="simulated-mi", subject=3, split=2, reading={"tmax": 3}, data=None, seen={"train": [], "valid": []}
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None, None, {}), ("simulated-mi", 3, 2, {"tmax": 3}, None)),
        (("simulated-mi", 4, None, {}), ("simulated-mi", 4, 2, {"tmax": 3}, None)),
        (("simulated-mi", 3, 0, {"tmax": 2}), ("simulated-mi", 3, 0, {"tmax": 2}, None)),
        (("simulated-ssvep", None, None, {}), ("simulated-ssvep", None, 0, {}, None)),
    ],
)
def test_what_is_not_given_is_as_in_training(given, expected):
    dataset, *others = _complete_selection(EEGDecoder(), RECORD, *given)
    assert (dataset.name, *others) == expected


def test_protocol_and_subjects_are_as_in_training():
    record = replace(RECORD, subject="1-2, 4", protocol=BySubject((1, 2), (4,)).describe())
    chosen = _complete_selection(EEGDecoder(), record, None, None, None, None)
    assert (chosen.subject, chosen.protocol) == ([1, 2, 4], BySubject((1, 2), (4,)))
    assert _complete_selection(EEGDecoder(), record, None, 3, None, None).protocol is None


def test_a_folder_that_cannot_be_written_is_found_before_training(trials, split, file, monkeypatch):
    monkeypatch.setattr(EEGDecoder, "fit", pytest.fail)
    for folder in (file, "/proc/model"):
        with pytest.raises(ParameterError, match=rf"folder='{folder}' cannot be written \(.+\); choose another"):
            train_and_evaluate(trials, "tangent-space", split=split, folder=folder)


# ---- several subjects and files


def files_of(folder, n: int = 3, **steps) -> list[str]:
    """Files of several subjects, with a class that differs in the power of a channel."""
    for number in range(n):
        x = np.random.default_rng(number).standard_normal((24, 3, 100))
        x[1::2, 0] *= 3
        trials = Trials(X=x, y=[0, 1] * 12, class_names=("rest", "move"), ch_names=CHANNELS, sfreq=100, **steps)
        write_npz(trials, folder / f"{number}.npz")
    return [str(folder / f"{number}.npz") for number in range(n)]


def test_models_are_trained_on_some_files_and_tested_on_others(tmp_path):
    files = files_of(tmp_path)
    result = train_and_evaluate(
        files, "tangent-space", protocol=BySubject((1, 2), (3,)), folder=tmp_path / "model", task="mi"
    )
    assert (result.record.subject, result.record.tested_on) == ("1-3", "subject 3")
    assert result.record.trials == {"train": 40, "valid": 8, "test": 24}
    assert result.evaluation.accuracy > 0.9
    again = evaluate(tmp_path / "model")
    assert again.to_dict() == result.evaluation.to_dict()
    assert dict(again.uses) == {"unseen": again.uses["unseen"]}
    assert set(evaluate(tmp_path / "model", files[0], part="all").uses) == {"training", "validation"}


def test_several_subjects_are_trained_and_tested_together(tmp_path):
    result = train_and_evaluate("simulated-ssvep", "tangent-space", subject=[1, 2], folder=tmp_path / "model")
    assert (result.record.subject, result.record.tested_on) == ("1-2", "subjects 1-2, session 5")
    assert result.record.trials == {"train": 600, "valid": 200, "test": 200}
    assert evaluate(tmp_path / "model").n == 200
    assert set(evaluate(tmp_path / "model", subject=3).uses) <= {"unseen", "unrecognised"}
    one = evaluate(tmp_path / "model", subject=2, part="all").uses
    assert {name: accuracy.n for name, accuracy in one.items()} == {
        "training": 300,
        "validation": 100,
        "unrecognised": 100,
    }


@pytest.mark.parametrize(
    ("protocol", "split", "tested"),
    [("leave-one-subject-out", 2, "subject 3"), ("leave-one-session-out", 0, "subjects 1-3, session 1")],
)
def test_protocols_are_selected_by_name(protocol, split, tested):
    result = train_and_evaluate("simulated-ssvep", "tangent-space", subject=[1, 2, 3], protocol=protocol, split=split)
    assert result.record.tested_on == tested


def test_other_files_are_prepared_like_those_of_training(tmp_path):
    files = files_of(tmp_path)
    chain = "bandpass=4-40,resample=50"
    train_and_evaluate(
        files[0], "tangent-space", reading={"preprocessing": chain}, folder=tmp_path / "model", task="mi"
    )
    prepared = load(files[1], preprocessing=chain)
    result = evaluate(tmp_path / "model", files[1], part="all")
    assert result.to_dict() == evaluate(tmp_path / "model", prepared).to_dict()
    with pytest.raises(
        ParameterError,
        match=r"has highpass=8 Hz, .* highpass=4 Hz .* Without --preprocess, files are prepared by the steps",
    ):
        evaluate(tmp_path / "model", files[1], part="all", reading={"preprocessing": "bandpass=8-30,resample=50"})


@pytest.mark.parametrize("rounded", [False, True])
def test_a_copy_of_a_training_file_is_no_test(tmp_path, monkeypatch, rounded):
    files = files_of(tmp_path, 2)
    copied = load(files[1])
    write_npz(copied.replace(X=np.round(copied.X, 3) if rounded else copied.X), tmp_path / "copy.npz")
    monkeypatch.setattr(EEGDecoder, "fit", pytest.fail)
    message = r"24 of 24 test trials are also among the training or validation trials: trials 48-71, of subject 3"
    with pytest.raises(ParameterError, match=message):
        train_and_evaluate([*files, tmp_path / "copy.npz"], protocol=BySubject((1, 2), (3,)))


def test_single_test_trials_that_were_trained_on_are_named(trials, split, monkeypatch):
    monkeypatch.setattr(EEGDecoder, "fit", pytest.fail)
    x = trials.X.copy()
    x[split.test[3]] = x[split.train[5]]
    with pytest.raises(ParameterError, match=f"1 of {len(split.test)} test trials are .*: trials {split.test[3]}, of"):
        train_and_evaluate(trials.replace(X=x), "spdnet", split=split)


# ---- aligned models and other files


def person(folder, name, mixing, seed, n=24, subject=1):
    """A file of one person, whose channels have gains of their own."""
    x = np.random.default_rng(seed).standard_normal((n, 3, 100))
    x[1::2, 0] *= 3
    trials = Trials(
        X=np.asarray(mixing)[:, None] * x,
        y=np.arange(n) % 2,
        class_names=("rest", "move"),
        ch_names=CHANNELS,
        sfreq=100,
        subject=subject,
    )
    write_npz(trials, folder / f"{name}.npz")
    return str(folder / f"{name}.npz")


@pytest.fixture
def aligned(tmp_path):
    """Files of Anna and Ben, on which an aligned model was trained, and of Carla, and the folder of the model."""
    gains = {"anna": [1, 1, 1], "ben": [1, 20, 5], "carla": [9, 90, 1]}
    files = [person(tmp_path, name, mixing, seed) for seed, (name, mixing) in enumerate(gains.items())]
    train_and_evaluate(files[:2], "tangent-space", alignment="euclidean", folder=tmp_path / "model", task="mi")
    return [*files, tmp_path / "model"]


def whitener(chosen, number=1):
    return chosen.decoder.domains_.alignment.whiteners_.get(number)


def test_a_file_without_a_number_is_a_new_subject(aligned):
    *_, carla, model = aligned
    chosen = EvaluationSet.open(model, carla, part="all")
    assert chosen.alignment == "as a new subject"
    trials, decoder = chosen.trials, load_decoder(model)
    np.testing.assert_allclose(
        chosen.decoder.predict_proba(trials), decoder.predict_proba(trials, groups=np.repeat("Carla", 24))
    )
    assert np.abs(decoder.predict_proba(trials) - chosen.decoder.predict_proba(trials)).max() > 0.05


def test_several_files_without_numbers_are_new_subjects(aligned, tmp_path):
    *_, carla, model = aligned
    david = person(tmp_path, "david", [1, 1, 9], 7)
    assert EvaluationSet.open(model, [carla, david], part="all").alignment == "as 2 new subjects"


def test_a_number_that_is_given_is_that_of_the_training(aligned, tmp_path):
    *_, carla, model = aligned
    decoder = load_decoder(model)
    for number in (1, 2):
        chosen = EvaluationSet.open(model, {number: carla}, part="all")
        assert chosen.alignment == f"as subject {number} of the training"
        np.testing.assert_array_equal(whitener(chosen, number), decoder.domains_.alignment.whiteners_[number])
    assert EvaluationSet.open(model, {7: carla}, part="all").alignment == "as a new subject"
    stored = person(tmp_path, "stored", [1, 1, 1], 8, subject=2)
    assert EvaluationSet.open(model, stored, part="all").alignment == "as subject 2 of the training"


def test_a_file_of_the_training_or_its_copy_is_the_subject_that_it_was(aligned, tmp_path):
    anna, ben, carla, model = aligned
    (tmp_path / "copy.npz").write_bytes((tmp_path / "ben.npz").read_bytes())
    trained = load_decoder(model).domains_.alignment.whiteners_
    for file in (ben, tmp_path / "copy.npz"):
        chosen = EvaluationSet.open(model, file, part="all")
        assert chosen.alignment == "as subject 2 of the training"
        np.testing.assert_array_equal(whitener(chosen), trained[2])
    chosen = EvaluationSet.open(model, [carla, ben, anna], part="all")
    assert chosen.alignment == "as subjects 1-2 of the training and a new subject"
    np.testing.assert_array_equal(whitener(chosen, 2), trained[2])
    np.testing.assert_array_equal(whitener(chosen, 3), trained[1])
    assert EvaluationSet.open(model).alignment == "as subjects 1-2 of the training"


def test_all_trials_of_new_files_are_scored(aligned, tmp_path):
    anna, _, carla, model = aligned
    assert [evaluate(model, file).n for file in (carla, [carla, person(tmp_path, "david", [1, 1, 9], 7)])] == [24, 48]
    assert EvaluationSet.open(model, carla).part == "all"
    for data, split in ((anna, None), (None, None), (carla, 0)):  # of training, or asked for
        chosen = EvaluationSet.open(model, data, split=split)
        assert (chosen.part, len(chosen.trials)) == ("test", 6 if data else 12)
    assert EvaluationSet.open(model, carla, split=0).share == "6 of 24 trials; --all scores all"
    assert EvaluationSet.open(model).share == "12 of 48 trials"
    assert EvaluationSet.open(model, carla).share == ""


def test_too_few_test_trials_to_align_are_an_error_with_a_remedy(aligned, tmp_path):
    few = person(tmp_path, "few", [1, 1, 9], 7, n=12)
    with pytest.raises(
        ShapeError, match=r"4 trials of domain 1 are too few .* --all \(part='all' in Python\) scores all 12"
    ):
        evaluate(aligned[-1], few, part="test")
    assert evaluate(aligned[-1], few).n == 12


def test_subjects_of_another_data_set_are_new(tmp_path):
    train_and_evaluate("simulated-ssvep", "tangent-space", alignment="euclidean", folder=tmp_path)
    assert EvaluationSet.open(tmp_path, subject=1).alignment == "as subject 1 of the training"
    record = replace(TrainingRecord.read(tmp_path), dataset="simulated-mi")
    record.write(tmp_path)
    assert EvaluationSet.open(tmp_path, "simulated-ssvep").alignment == "as a new subject"


def test_sessions_of_a_file_without_a_number_are_new(aligned, tmp_path):
    anna, ben, carla, _ = aligned
    arguments = {"alignment": "euclidean", "domains": "session", "folder": tmp_path / "m", "task": "mi"}
    train_and_evaluate([anna, ben], "tangent-space", **arguments)
    assert EvaluationSet.open(tmp_path / "m", carla, part="all").alignment == "as a new session"
    assert EvaluationSet.open(tmp_path / "m", ben, part="all").alignment == "as session 2/1 of the training"
    assert EvaluationSet.open(tmp_path / "m").alignment == "as sessions 1/1, 2/1 of the training"


def test_models_without_alignment_say_nothing_of_it(file, tmp_path):
    train_and_evaluate(file, "tangent-space", folder=tmp_path / "m", task="mi")
    assert EvaluationSet.open(tmp_path / "m").alignment is None


def test_wrong_protocols_are_errors(tmp_path):
    files = files_of(tmp_path, 2)
    with pytest.raises(ParameterError, match=r"Did you mean 'leave-one-subject-out'"):
        train_and_evaluate(files, protocol="leave-one-subjet-out")
    with pytest.raises(ParameterError, match="subject 7 has no trials; there are 1-2"):
        train_and_evaluate(files, protocol=BySubject((1,), (7,)))
    with pytest.raises(ParameterError, match="subject 1 is in both train and test"):
        BySubject((1, 2), (1,))
    trials = load(files[0])
    with pytest.raises(ParameterError, match="subject, protocol, root and reading are for data sets"):
        train_and_evaluate(trials, split=InOrder().splits(trials)[0], protocol="in-order")


# ---- recordings with other annotations and windows


@pytest.fixture(scope="module")
def trained_on_recording(tmp_path_factory):
    """The folder of a model that was trained on a recording, with the annotations T1 and T2 for its classes."""
    folder = tmp_path_factory.mktemp("recording")
    train_and_evaluate(saved(recording(n=24), folder), "tangent-space", reading=READING, folder=folder / "model")
    return folder / "model"


def renamed(folder, **names):
    """A recording with other names for its annotations, which has a pause, too."""
    raw = recording(1)
    raw.annotations.append(0, 0, "T0")
    raw.annotations.rename(names)
    return saved(raw, folder, "other_raw.fif")


def suggested_classes(error):
    """The classes in the command that an error suggests."""
    (option,) = [word for word in shlex.split(str(error.value)) if word.startswith("classes=") and word.endswith("}")]
    return json.loads(option.removeprefix("classes="))


def test_errors_about_other_annotations_suggest_events_for_the_classes_of_the_model(trained_on_recording, tmp_path):
    file = renamed(tmp_path, T1="hand", T2="foot")
    with pytest.raises(DataError, match=r"expected also T1 and T2\. Choose the events of each class") as caught:
        evaluate(trained_on_recording, file, part="all")
    assert suggested_classes(caught) == {"left": "foot", "right": "hand"}
    result = evaluate(trained_on_recording, file, reading={"classes": {"left": "hand", "right": "foot"}})
    assert result.accuracy > 0.9


def test_classes_that_the_model_does_not_have_suggest_events_for_its_classes(tmp_path):
    reading = {name: value for name, value in READING.items() if name != "classes"}
    train_and_evaluate(saved(recording(n=24), tmp_path), "tangent-space", reading=reading, folder=tmp_path / "model")
    with pytest.raises(UnknownLabelError, match=r"has the classes 'T0', 'foot', 'hand', but .* 'T1', 'T2'") as caught:
        evaluate(tmp_path / "model", renamed(tmp_path, T1="hand", T2="foot"))
    assert suggested_classes(caught) == {"T1": "foot", "T2": "hand"}


def test_recordings_without_annotations_cannot_be_scored_but_predicted(trained_on_recording, tmp_path):
    file = saved(recording(1).set_annotations(None), tmp_path, "none_raw.fif")
    with pytest.raises(DataError, match=r"neither annotations nor a trigger channel.* gbwatt predict MODEL FILE --hop"):
        evaluate(trained_on_recording, file, part="all")


def test_errors_about_another_window_say_the_window_of_the_training_data(tmp_path):
    file, reading = saved(recording(n=24), tmp_path), {**READING, "preprocessing": "bandpass=8-30,resample=100"}
    decoder = train_and_evaluate(file, "tangent-space", reading=reading, folder=tmp_path / "model").decoder
    other = saved(recording(1), tmp_path, "other_raw.fif")
    trials = load(other, **{**reading, "tmin": 0.5})
    message = r"window from 0\.5 to 2 s after the event, and the training data that from 0 to 2 s"
    for X in (trials, trials.to_mne()):
        with pytest.raises(
            ShapeError, match=rf"'X' \(12, 4, 150\) .*{message}.*epochs\.crop\(0, 2, include_tmax=False"
        ):
            decoder.predict(X)
    with pytest.raises(ShapeError, match=rf"{message}.*Without --read tmin, the window of training is used"):
        evaluate(tmp_path / "model", other, reading={"tmin": 0.5})
    epochs = trials.to_mne()
    epochs.save(tmp_path / "other-epo.fif", verbose="ERROR")
    with pytest.raises(ShapeError, match=r"other-epo\.fif \(12, 4, 150\) does not match .* 0\.5 to 2 s after"):
        decoder.predict(tmp_path / "other-epo.fif")
    with pytest.raises(ShapeError, match=r"\(12, 4, 150\) does not match the model's input: \(n, 4, 200\)\.$"):
        decoder.predict(trials.X)


def test_early_stopping_of_a_training_that_begins_with_other_weights_uses_validation_trials(trials, split, tmp_path):
    shared = {"alignment": "euclidean", "max_epochs": 1, "split": split}
    train_and_evaluate(trials, task="mi", folder=tmp_path / "others", **shared)
    result = train_and_evaluate(trials, initialization=tmp_path / "others", early_stopping=1, **shared)
    assert result.record.trials["valid"] == len(split.valid) > 0
    assert result.decoder.early_stopping == 1
