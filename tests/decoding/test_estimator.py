"""The classifier as scikit-learn and its users expect it."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import mne
import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from gbwatt.data import load
from gbwatt.decoding import Callback, EEGDecoder, GBWAttClassifier
from gbwatt.errors import ParameterError
from gbwatt.explain import Explanation
from gbwatt.models.registry import OWN_DATA, TASKS
from tests.decoding.tiny import Tiny, make_trials, swapped


def weights(decoder):
    return {name: x.clone() for name, x in decoder.net_.module_.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def losses(decoder, column="valid_loss"):
    return [row[column] for row in decoder.history_]


# ---- learning and prediction


def test_it_learns_what_distinguishes_the_classes(decoder):
    x, y = make_trials(n=90, n_classes=3)
    fitted = decoder(max_epochs=25, lr=0.05).fit(x[:60], y[:60])
    assert fitted.score(x[60:], y[60:]) > 0.9
    assert losses(fitted)[-1] < losses(fitted)[0]


def test_labels_of_any_kind_come_back(decoder, trials):
    x, y = trials
    for labels in (y, np.where(y == "left", 7, -2), np.where(y == "left", "a", "b").astype(object), y == "left"):
        fitted = decoder().fit(x, labels)
        assert set(fitted.predict(x)) <= set(labels)
        assert fitted.predict(x).dtype == labels.dtype
        assert fitted.classes_.tolist() == sorted(set(labels.tolist()))


def test_probabilities_sum_to_one_and_agree_with_logits_and_labels(decoder):
    x, y = make_trials(n=45, n_classes=3)
    fitted = decoder().fit(x, y)
    p, logits = fitted.predict_proba(x), fitted.decision_function(x)
    assert p.shape == logits.shape == (45, 3)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(np.log(p[:, 0] / p[:, 1]), logits[:, 0] - logits[:, 1], atol=1e-9)
    assert (fitted.classes_[p.argmax(1)] == fitted.predict(x)).all()


def test_two_classes_have_one_decision_value(decoder, trials):
    fitted = decoder().fit(*trials)
    values = fitted.decision_function(trials[0])
    assert values.shape == (40,)
    assert ((values > 0) == (fitted.predict(trials[0]) == fitted.classes_[1])).all()


@pytest.mark.parametrize("kind", ["float32", "float16", "list", "fortran", "int"])
def test_arrays_of_any_kind_are_taken(decoder, trials, kind):
    x, y = (trials[0] * 100).round(), trials[1]
    other = {"list": x.tolist, "fortran": lambda: np.asfortranarray(x), "int": lambda: x.astype(np.int16)}
    given = other[kind]() if kind in other else x.astype(kind)
    assert same(weights(decoder().fit(x, y)), weights(decoder().fit(given, y)))


def test_epochs_of_mne_bring_their_sampling_rate(decoder, trials):
    epochs = mne.EpochsArray(trials[0], mne.create_info(4, 250.0, "eeg"), verbose="error")
    fitted = decoder().fit(epochs, trials[1])
    assert fitted.signal_.sfreq == 250
    assert fitted.score(epochs, trials[1]) == fitted.score(*trials)
    with pytest.raises(ParameterError, match="sfreq=100 contradicts"):
        decoder(sfreq=100).fit(epochs, trials[1])
    assert decoder(sfreq=100).fit(*trials).signal_.sfreq == 100


def test_a_model_in_float64_gets_float64(decoder, trials):
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        fitted = decoder(class_weight="balanced").fit(*trials)
    finally:
        torch.set_default_dtype(default)
    assert next(fitted.net_.module_.parameters()).dtype == torch.float64
    assert fitted.predict_proba(trials[0]).shape == (40, 2)


def test_gbwatt_learns_with_every_argument_of_its_own(trials):
    x, y = make_trials(n=24, n_times=64)
    plain = GBWAttClassifier(paradigm="mi", max_epochs=2, batch_size=12)
    base = weights(plain.fit(x, y))
    config = plain.net_.module_.config
    assert config["recipe"] == "best"
    changes = {
        "recipe": "paper",
        "metric": "bures-wasserstein",
        "theta": 0.5,
        "shrinkage": 0.4,
        "n_segments": 3,
        "k": 3,
    }
    for name, value in changes.items():
        other = clone(plain).set_params(**{name: value}).fit(x, y)
        assert other.net_.module_.config[name] == value != config[name]
        assert not same(weights(other), base)
    other = clone(plain).set_params(model_options={"score": "gaussian"}).fit(x, y)
    assert other.net_.module_.config["score"] == "gaussian"


def test_the_task_sets_the_training_that_is_not_given(decoder, trials):
    own = decoder(lr=None)._registered().training
    task = decoder(lr=None, batch_size=None, task="ssvep")._registered().training
    assert own.lr == OWN_DATA.lr
    assert own.batch_size == 16
    assert (task.lr, task.batch_size) == (TASKS["ssvep"].training.lr, TASKS["ssvep"].training.batch_size)
    assert task.max_epochs == 6


# ---- scikit-learn


def test_parameters_clone_and_change(decoder):
    original = decoder(model_options={"width": 2}, validation=[1, 2], class_weight={"left": 2.0})
    copy = clone(original)
    assert copy.get_params() == original.get_params()
    assert copy.set_params(lr=0.5).lr == 0.5
    assert is_classifier(copy)
    assert "model" not in GBWAttClassifier().get_params()
    assert clone(GBWAttClassifier(theta=2.0)).theta == 2.0


def test_pipelines_cross_validation_and_grid_search(decoder):
    x, y = make_trials(n=36)
    pipeline = make_pipeline(FunctionTransformer(lambda x: x * 1e-6), decoder(max_epochs=2))
    scores = cross_val_score(pipeline, x, y, cv=2, scoring="roc_auc", error_score="raise")
    assert ((scores >= 0) & (scores <= 1)).all()
    search = GridSearchCV(
        decoder(max_epochs=2), {"model_options": [{"width": 1}, {"width": 3}]}, cv=2, error_score="raise"
    )
    best = search.fit(x, y).best_estimator_
    assert best.net_.module_.mix.shape[1] == best.model_options["width"]


def test_a_fitted_decoder_can_be_sent_to_another_process(decoder, trials, tmp_path):
    fitted = decoder(verbose=1, checkpoint=tmp_path, early_stopping=2).fit(*trials)
    copy = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(copy.predict_proba(trials[0]), fitted.predict_proba(trials[0]))


def test_prediction_needs_a_fit(decoder, trials):
    for method in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(decoder(), method)(trials[0])
    with pytest.raises(NotFittedError):
        _ = decoder().best_epoch_


# ---- reproducibility


def test_the_seed_determines_everything(decoder, trials):
    torch.manual_seed(1)
    first = decoder(seed=3).fit(*trials)
    torch.manual_seed(2)
    np.random.seed(5)  # noqa: NPY002
    second = decoder(seed=3).fit(*trials)
    assert same(weights(first), weights(second))
    assert losses(first) == losses(second)
    assert not same(weights(first), weights(decoder(seed=4).fit(*trials)))


def test_the_random_numbers_of_the_caller_are_not_touched(decoder, trials):
    before, state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    decoder().fit(*trials).predict(trials[0])
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_every_epoch_has_an_order_and_a_dropout_of_its_own(decoder, trials, monkeypatch):
    seen = []

    def forward(self, x, original=Tiny.forward):
        if self.training:
            seen.append((x[:, 0, 0].tolist(), self.dropout(torch.ones(50)).tolist()))
        return original(self, x)

    monkeypatch.setattr(Tiny, "forward", forward)
    for seed in (0, 1):
        decoder(validation=None, batch_size=40, max_epochs=3, seed=seed).fit(*trials)
    orders, masks = zip(*seen, strict=True)
    assert len(seen) == len(set(map(tuple, orders))) == len(set(map(tuple, masks))) == 6
    assert len({tuple(sorted(order)) for order in orders}) == 1


# ---- validation, selection, loss


def test_the_weights_of_the_lowest_validation_loss_are_kept(decoder, trials):
    settings = {"lr": 0.1, "validation": swapped(*trials)}
    fitted = decoder(**settings, max_epochs=12).fit(*trials)
    best = fitted.best_epoch_
    assert losses(fitted)[best - 1] == min(losses(fitted))
    assert best < 12  # else this shows nothing
    shorter = decoder(**settings, max_epochs=best).fit(*trials)
    assert same(weights(fitted), weights(shorter))


def test_without_validation_the_last_weights_are_kept(decoder, trials):
    fitted = decoder(validation=None, lr=0.3, max_epochs=5).fit(*trials)
    assert fitted.best_epoch_ == 5
    assert "valid_loss" not in fitted.history_[0]
    assert fitted.net_.module_.norm.num_batches_tracked == 5 * 3  # 40 trials in batches of 16


@pytest.mark.parametrize("weighted", [None, "balanced"])
def test_the_validation_loss_is_that_of_the_whole_set_in_evaluation_mode(decoder, trials, weighted):
    x, y = trials
    held = np.r_[0:9, 20:24:2]
    fitted = decoder(validation=held, batch_size=4, class_weight=weighted, max_epochs=3).fit(x, y)
    logits = torch.from_numpy(np.log(fitted.predict_proba(x[held])))
    codes = torch.from_numpy(np.searchsorted(fitted.classes_, y[held]))
    rest = np.delete(y, held)
    weight = torch.tensor([len(rest) / (2 * (rest == name).sum()) for name in fitted.classes_]) if weighted else None
    expected = float(torch.nn.functional.cross_entropy(logits, codes, weight))
    assert fitted.history_[fitted.best_epoch_ - 1]["valid_loss"] == pytest.approx(expected, rel=1e-5)
    assert fitted.history_[fitted.best_epoch_ - 1]["valid_accuracy"] == fitted.score(x[held], y[held])


def test_all_forms_of_validation_agree(decoder, trials):
    x, y = trials
    held = np.array([3, 8, 21, 30])
    mask = np.isin(np.arange(40), held)
    by_index = decoder(validation=held).fit(x, y)
    for other in (
        decoder(validation=held.tolist()).fit(x, y),
        decoder(validation=mask).fit(x, y),
        decoder(validation=(x[held], y[held])).fit(x[~mask], y[~mask]),
    ):
        assert same(weights(by_index), weights(other))


def test_class_weights_move_the_decision(decoder):
    x, y = make_trials(n=60)
    x = np.random.default_rng(0).standard_normal(x.shape)  # nothing to learn but the prior
    patient = decoder(max_epochs=40, validation=None)
    share = {
        w: (clone(patient).set_params(class_weight={"left": w}).fit(x, y).predict(x) == "left").mean()
        for w in (0.05, 1, 20.0)
    }
    assert share[0.05] < 0.2
    assert share[20.0] > 0.8


def test_early_stopping_ends_after_its_patience(decoder, trials):
    fitted = decoder(validation=swapped(*trials), max_epochs=60, early_stopping=3).fit(*trials)
    assert len(fitted.history_) == fitted.best_epoch_ + 3 < 60


@pytest.mark.parametrize("n", [33, 17, 5])
def test_no_training_batch_has_a_single_trial(decoder, n):
    x, y = make_trials(n=n)
    fitted = decoder(validation=None, batch_size=16, max_epochs=1).fit(x, y)  # BatchNorm would raise
    assert fitted.net_.module_.norm.num_batches_tracked == max(1, n // 16)


# ---- reports


def test_verbose_shows_progress_and_silence_is_silent(decoder, trials, capsys):
    decoder().fit(*trials)
    assert capsys.readouterr() == ("", "")
    decoder(verbose=1).fit(*trials)
    out, err = capsys.readouterr()
    assert out == ""
    assert "6/6" in err
    assert "validation accuracy" in err


def test_callbacks_of_a_caller_are_told_of_finished_epochs(decoder, trials, tmp_path):
    class Watch(Callback):
        def __init__(self):
            self.seen = []

        def on_epoch_end(self, net, **_):
            self.seen.append(net.history[-1]["valid_loss"])

    watch = Watch()
    fitted = decoder(callbacks=[watch]).fit(*trials)
    assert watch.seen == losses(fitted)
    fitted.save_pretrained(tmp_path)
    assert EEGDecoder.from_pretrained(tmp_path).callbacks is None


def test_the_log_has_a_row_for_each_epoch(decoder, trials, tmp_path):
    log = tmp_path / "new" / "log.csv"
    for _ in range(2):  # a second fit begins anew
        fitted = decoder(log=log).fit(*trials)
    header, *rows = log.read_text().splitlines()
    assert header == "epoch,train_loss,valid_loss,valid_accuracy,lr,duration"
    assert [int(row.split(",")[0]) for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [float(row.split(",")[2]) for row in rows] == losses(fitted)
    assert float(rows[0].split(",")[4]) == 0.02


def test_tensorboard_gets_the_scalars(decoder, trials, tmp_path, monkeypatch):
    written = []

    class Writer:
        def __init__(self, folder, purge_step):
            written.append((folder, purge_step))

        def add_scalar(self, name, value, step):
            written.append((name, value, step))

        def flush(self): ...

        def close(self): ...

    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    fitted = decoder(tensorboard=tmp_path / "tb").fit(*trials)
    assert written[0] == (str(tmp_path / "tb"), 1)
    assert ("valid_loss", losses(fitted)[5], 6) in written


def test_a_missing_tensorboard_is_named_before_training(decoder, trials, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match="pip install tensorboard"):
        decoder(tensorboard="tb").fit(*trials)


def test_the_decoder_takes_its_model_first():
    assert EEGDecoder("matt").model == "matt"


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_do_not_matter(scale):
    """Volts, as MNE has them, are learnt like microvolts, also in evaluation."""
    x, y = make_trials(n=40, n_times=64)
    arguments = {"task": "mi", "max_epochs": 15, "lr": 1e-2}
    one = GBWAttClassifier(**arguments).fit(x, y)
    other = GBWAttClassifier(**arguments).fit(scale * x, y)
    assert one.score(x, y) > 0.9
    np.testing.assert_allclose(other.predict_proba(scale * x), one.predict_proba(x), atol=1e-2)
    assert other.scale_ == pytest.approx(one.scale_ / scale, rel=1e-6)


def test_numbers_of_numpy_are_numbers(tmp_path):
    x, y = make_trials(n=24, n_times=64)
    options = {"batch_size": np.int64(8), "max_epochs": np.int32(2), "seed": np.int64(3), "lr": np.float32(1e-3)}
    decoder = GBWAttClassifier(task="mi", **options).fit(x, y)
    decoder.save_pretrained(tmp_path)
    again = GBWAttClassifier.from_pretrained(tmp_path)
    np.testing.assert_array_equal(again.predict_proba(x), decoder.predict_proba(x))


# ----------------------------------------------------------------------------------------------------------- ensembles


def test_an_ensemble_averages_the_probabilities_of_networks_with_different_seeds(decoder, trials, tmp_path):
    x, _ = trials
    together, alone = decoder(n_members=3).fit(*trials), decoder().fit(*trials)
    members = together.net_.module_.members
    assert len(members) == together.settings_.n_members == 3
    assert same(members[0].state_dict(), alone.net_.module_.state_dict())
    assert not torch.equal(members[0].final_layer.weight, members[1].final_layer.weight)
    epochs = torch.tensor(x * together.scale_, dtype=torch.float32)
    with torch.no_grad():
        mean = torch.stack([member(epochs).softmax(-1) for member in members]).mean(0)
    np.testing.assert_allclose(together.predict_proba(x), mean.numpy(), atol=1e-6)
    together.save_pretrained(tmp_path)
    again = EEGDecoder.from_pretrained(tmp_path)
    np.testing.assert_array_equal(again.predict_proba(x), together.predict_proba(x))


def test_ensembles_of_gbwatt_are_saved_and_explained(tmp_path):
    trials = load("simulated-ssvep", 1)[:60]
    sizes = {"n_spatial": 4, "n_temporal": 4, "kernel": 9, "k": 3}
    ensemble = GBWAttClassifier(task="mi", n_members=2, max_epochs=1, model_options=sizes).fit(trials)
    ensemble.save_pretrained(tmp_path)
    again = GBWAttClassifier.from_pretrained(tmp_path)
    np.testing.assert_array_equal(again.predict_proba(trials), ensemble.predict_proba(trials))
    assert Explanation(again, trials).attribution.values.shape[-2:] == (8, 125)


def test_networks_of_an_ensemble_have_their_own_checkpoints_and_logs(decoder, trials, tmp_path):
    files = {"checkpoint": tmp_path / "state", "log": tmp_path / "log.csv"}
    first = decoder(n_members=2, **files).fit(*trials)
    assert {path.name for path in tmp_path.iterdir()} == {"state", "state-2", "log.csv", "log-2.csv"}
    resumed = decoder(n_members=2, **files).fit(*trials)
    np.testing.assert_array_equal(resumed.predict_proba(trials[0]), first.predict_proba(trials[0]))


@pytest.mark.parametrize("number", [0, -1, 1.5])
def test_an_ensemble_needs_a_network(decoder, trials, number):
    with pytest.raises(ParameterError, match="n_members"):
        decoder(n_members=number).fit(*trials)
