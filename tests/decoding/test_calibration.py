"""Calibration error, and the temperature that makes probabilities frequencies."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.nn import functional as F

from gbwatt.data import Trials
from gbwatt.decoding import EEGDecoder, GBWAttClassifier, evaluate
from gbwatt.decoding.calibration import (
    FOLDS,
    HIGHEST,
    LOWEST,
    calibration_folds,
    cross_validated_logits,
    fit_temperature,
)
from gbwatt.decoding.inputs import Examples, Sets
from gbwatt.decoding.metrics import N_BINS, calibration_error, reliability, score
from gbwatt.errors import CalibrationWarning, ModelFileError, ParameterError
from gbwatt.models.serialization import CONFIG
from tests.decoding.tiny import make_trials

SIZES = {"n_spatial": 4, "n_temporal": 4, "kernel": 9, "k": 3}


@pytest.fixture
def noisy():
    """Trials of two classes that overlap."""
    return make_trials(n=120, seed=3, gain=1.15)


def logits_and_classes(n=400, n_classes=3, scale=4.0, seed=0):
    """Logits that are ``scale`` times too large, and classes that follow the probabilities."""
    rng = np.random.default_rng(seed)
    z = torch.tensor(rng.standard_normal((n, n_classes)))
    y = torch.tensor([rng.choice(n_classes, p=p) for p in z.softmax(-1).numpy()])
    return scale * z, y


# --------------------------------------------------------------------------------------------------- calibration error


def test_the_error_of_constant_confidence_is_its_difference_from_the_accuracy():
    for confidence, share in ((0.9, 0.5), (0.55, 1.0), (0.8, 0.8)):
        bins = reliability(np.arange(10) < 10 * share, np.full(10, confidence))
        assert calibration_error(bins) == pytest.approx(abs(confidence - share))


def test_bins_are_weighted_by_their_predictions():
    bins = reliability(np.array([1, 0, 1, 1]) == 1, np.array([0.6, 0.6, 0.6, 0.9]))
    assert [(one.n, round(one.low, 9), round(one.high, 9)) for one in bins] == [(3, 0.5, 0.6), (1, 0.8, 0.9)]
    assert calibration_error(bins) == pytest.approx(3 / 4 * (2 / 3 - 0.6) + 1 / 4 * 0.1)


def test_a_bin_has_its_upper_edge():
    edges = np.linspace(0, 1, N_BINS + 1)
    assert [one.high for one in reliability(np.ones(N_BINS, bool), edges[1:])] == edges[1:].tolist()
    assert reliability(np.ones(1, bool), np.zeros(1))[0].low == 0


def test_the_error_is_that_of_a_loop_over_predictions():
    rng = np.random.default_rng(0)
    confidence, hits = rng.uniform(0.2, 1, 500), rng.random(500) < 0.6
    expected = 0.0
    for k in range(N_BINS):
        rows = [i for i in range(500) if k / N_BINS < confidence[i] <= (k + 1) / N_BINS]
        if rows:
            expected += len(rows) / 500 * abs(np.mean(hits[rows]) - np.mean(confidence[rows]))
    assert calibration_error(reliability(hits, confidence)) == pytest.approx(expected)


def test_scores_contain_the_error_and_its_bins(noisy):
    x, y = noisy
    decoder = EEGDecoder("tiny", max_epochs=5).fit(x, y)
    p = decoder.predict_proba(x)
    scores = score(y, p, decoder.classes_, decoder.class_names_)
    assert 0 <= scores["calibration_error"] <= 1
    assert sum(one["n"] for one in scores["reliability"]) == 120
    result = evaluate(decoder, x, y)
    assert (result.calibration_error, result.reliability) == (scores["calibration_error"], scores["reliability"])
    assert result.to_dict()["calibration_error"] == result.calibration_error


# --------------------------------------------------------------------------------------------------------- temperature


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("scale", [0.2, 1.0, 7.0])
def test_the_temperature_minimises_the_log_loss(n_classes, scale):
    z, y = logits_and_classes(n_classes=n_classes, scale=scale)
    temperature = fit_temperature(z, y)
    best = minimize_scalar(lambda log: F.cross_entropy(z / np.exp(log), y).item(), bounds=(-4, 4), method="bounded")
    assert np.log(temperature) == pytest.approx(best.x, abs=1e-3)
    assert temperature == pytest.approx(scale, rel=0.5)  # up to the noise of 400 trials


def test_the_mean_logit_of_the_classes_is_that_of_the_calibrated_probabilities():
    z, y = logits_and_classes()
    calibrated = z / fit_temperature(z, y)
    true = calibrated.gather(1, y[:, None]).mean()
    expected = (calibrated.softmax(-1) * calibrated).sum(-1).mean()
    torch.testing.assert_close(true, expected)


def test_the_temperature_has_the_scale_of_the_logits_and_ignores_their_offset():
    z, y = logits_and_classes()
    temperature = fit_temperature(z, y)
    assert fit_temperature(3 * z + 5, y) == pytest.approx(3 * temperature)
    assert fit_temperature(z[:, [2, 0, 1]], (y + 1) % 3) == pytest.approx(temperature)


def test_certain_logits_stay_as_they_are_with_a_warning():
    with pytest.warns(CalibrationWarning, match="All 3 trials"):
        assert fit_temperature(torch.eye(3), torch.arange(3)) == 1


def test_the_temperature_has_bounds():
    with pytest.warns(CalibrationWarning, match="3 trials for calibration carry no information"):
        assert fit_temperature(torch.eye(3), torch.tensor([1, 2, 0])) == HIGHEST  # wrong throughout
    z = torch.tensor([[1.0, 0.0]]).repeat(2000, 1) * 1e-6
    assert fit_temperature(z, torch.tensor([0] * 1999 + [1])) == LOWEST


# -------------------------------------------------------------------------------------------------- in the classifiers


@pytest.mark.parametrize("n_members", [1, 2])
def test_calibration_on_validation_trials_lowers_their_loss_and_changes_no_prediction(decoder, noisy, n_members):
    x, y = noisy
    held_out = np.arange(60, 120)
    options = {"validation": held_out, "max_epochs": 30, "lr": 0.05, "n_members": n_members}
    plain, calibrated = (decoder(calibration=kind, **options).fit(x, y) for kind in (None, "temperature"))
    assert plain.temperature_ == 1 != calibrated.temperature_
    np.testing.assert_array_equal(calibrated.predict(x), plain.predict(x))
    np.testing.assert_allclose(
        calibrated.decision_function(x), plain.decision_function(x) / calibrated.temperature_, rtol=1e-12
    )
    losses = [evaluate(one, x[held_out], y[held_out]).loss for one in (plain, calibrated)]
    assert losses[1] < losses[0]
    for factor in (0.9, 1.1):
        changed = decoder(calibration="temperature", **options).fit(x, y)
        changed.temperature_ *= factor
        assert evaluate(changed, x[held_out], y[held_out]).loss > losses[1]


@pytest.mark.parametrize("options", [{"model": "tiny", "validation": None}, {"model": "mdm"}, {"model": "csp"}])
def test_without_validation_trials_training_trials_are_cross_validated(noisy, options):
    x, y = noisy
    options = {"max_epochs": 20, "lr": 0.05, "batch_size": 16, **options}
    if options["model"] != "tiny":
        options = {"model": options["model"]}
    plain, calibrated = (EEGDecoder(calibration=kind, **options).fit(x[:90], y[:90]) for kind in (None, "temperature"))
    assert calibrated.temperature_ != 1
    np.testing.assert_array_equal(calibrated.predict(x), plain.predict(x))
    for a, b in zip(
        plain.net_.module_.state_dict().values(), calibrated.net_.module_.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b)


def test_calibration_reduces_the_calibration_error_of_an_overconfident_network():
    x, y = make_trials(n=360, seed=3, gain=1.15)
    options = {"validation": None, "max_epochs": 60, "lr": 0.1}  # 90 training trials are learnt by heart
    scores = {}
    for kind in (None, "temperature"):
        decoder = EEGDecoder("spdnet", calibration=kind, **options).fit(x[:90], y[:90])
        scores[kind] = evaluate(decoder, x[90:], y[90:])
    assert scores["temperature"].accuracy == scores[None].accuracy
    assert scores["temperature"].loss < 0.8 * scores[None].loss
    assert scores["temperature"].calibration_error < 0.5 * scores[None].calibration_error


def test_folds_are_consecutive_do_not_divide_groups_and_test_each_trial_once():
    y, group = torch.arange(24) % 2, np.arange(24) // 2 % 6
    x = torch.arange(24.0)[:, None, None]
    seen = []

    def train_and_predict(train, test):
        seen.append((train.x.flatten().int().numpy(), test.x.flatten().int().numpy()))
        return test.x[:, 0] * torch.tensor([[1.0, 2.0]])

    sets = Sets(Examples(x, y), None, group)
    logits, classes = cross_validated_logits(sets.train, calibration_folds(sets), train_and_predict)
    assert len(seen) == FOLDS
    torch.testing.assert_close(logits, x[:, 0] * torch.tensor([[1.0, 2.0]]))
    assert torch.equal(classes, y)
    for train, test in seen:
        assert not set(group[train]) & set(group[test])
        assert sorted([*train, *test]) == list(range(24))
    assert sorted(np.concatenate([test for _, test in seen])) == list(range(24))


def test_groups_of_trials_stay_together_in_the_calibration(decoder, noisy, monkeypatch):
    x, y = noisy
    codes, group = np.where(y == "left", 0, 1), np.arange(120) // 2
    trials = Trials(
        X=x, y=codes, group=group, class_names=("left", "right"), ch_names=["C3", "C4", "Cz", "Pz"], sfreq=128.0
    )
    found = []

    def spy(sets):
        found.append(sets.groups)
        return calibration_folds(sets)

    monkeypatch.setattr("gbwatt.decoding.estimator.calibration_folds", spy)
    decoder(validation=None, calibration="temperature", max_epochs=1).fit(trials)
    EEGDecoder("mdm", calibration="temperature", validation=np.arange(0, 20)).fit(trials)
    assert found[0].tolist() == group.tolist()
    assert found[1].tolist() == [*group[20:], *group[:20]]  # a pipeline is fitted to training, then validation trials


@pytest.mark.filterwarnings("ignore:The predictions of the .* carry no information")
def test_the_networks_of_the_folds_begin_like_the_network_itself(noisy, tmp_path):
    x, y = noisy
    sizes = {"model_options": SIZES, "max_epochs": 1}
    GBWAttClassifier(task="mi", **sizes).fit(x, y).save_pretrained(tmp_path)
    tuned = GBWAttClassifier(initialization=str(tmp_path), max_epochs=1, calibration="temperature").fit(x, y)
    assert tuned.temperature_ != 1
    normalised = GBWAttClassifier(task="mi", domain_norm="affine-invariant", calibration="temperature", **sizes)
    assert normalised.fit(x, y, groups=np.arange(120) // 40).temperature_ != 1


def test_files_of_the_training_are_not_those_of_the_folds(decoder, noisy, tmp_path):
    files = {"checkpoint": tmp_path / "state", "log": tmp_path / "log.csv"}
    first = decoder(validation=None, calibration="temperature", **files).fit(*noisy)
    assert (tmp_path / "log.csv").read_text().count("\n") == 1 + 6
    again = decoder(validation=None, calibration="temperature", **files).fit(*noisy)
    assert again.temperature_ == first.temperature_


def test_the_temperature_is_saved(decoder, noisy, tmp_path):
    calibrated = decoder(calibration="temperature", max_epochs=20).fit(*noisy)
    calibrated.save_pretrained(tmp_path)
    again = EEGDecoder.from_pretrained(tmp_path)
    assert again.temperature_ == calibrated.temperature_ != 1
    np.testing.assert_array_equal(again.predict_proba(noisy[0]), calibrated.predict_proba(noisy[0]))
    decoder().fit(*noisy).save_pretrained(tmp_path)
    assert EEGDecoder.from_pretrained(tmp_path).temperature_ == 1


@pytest.mark.parametrize("wrong", [0, -1.0, "1", True, None, 1e-300])
def test_a_damaged_temperature_is_named(decoder, noisy, tmp_path, wrong):
    decoder(calibration="temperature", max_epochs=20).fit(*noisy).save_pretrained(tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    config["extra"]["estimator"]["temperature"] = wrong
    del config["sha256"]
    (tmp_path / CONFIG).write_text(json.dumps({**config, "format": 1}))
    with pytest.raises(ModelFileError, match="temperature"):
        EEGDecoder.from_pretrained(tmp_path)


def test_partial_fit_keeps_the_temperature(decoder, noisy):
    calibrated = decoder(calibration="temperature", max_epochs=20).fit(*noisy)
    temperature = calibrated.temperature_
    assert calibrated.partial_fit(noisy[0][:4], noisy[1][:4]).temperature_ == temperature != 1


def test_other_kinds_and_too_few_trials_are_named(decoder, trials):
    with pytest.raises(ParameterError, match="calibration='isotonic'"):
        decoder(calibration="isotonic").fit(*trials)
    x, y = trials
    fewer = decoder(calibration="temperature", validation=None)
    with pytest.raises(ParameterError, match="two trials of each class"):
        fewer.fit(x[[0, 1, 3]], y[[0, 1, 3]])
    assert not hasattr(fewer, "net_")  # before training


def test_a_continued_training_needs_validation_trials_for_calibration(decoder, noisy):
    calibrated = decoder(warm_start=True, calibration="temperature", max_epochs=20).fit(*noisy).fit(*noisy)
    assert calibrated.temperature_ != 1
    with pytest.raises(ParameterError, match="warm_start=True needs validation trials"):
        calibrated.set_params(validation=None).fit(*noisy)


def test_no_warning_without_calibration(decoder, trials):
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        decoder(max_epochs=1).fit(*trials)
