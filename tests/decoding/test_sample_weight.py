"""Weights of trials: what they do to the loss, to classical pipelines and to initial weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.exceptions import DataConversionWarning
from torch.nn import CrossEntropyLoss
from torch.nn import functional as F

from gbwatt.decoding import EEGDecoder, GBWAttClassifier
from gbwatt.decoding.checkpoints import describe_data
from gbwatt.decoding.inputs import Examples, Sets, normalize_weights, weigh_classes
from gbwatt.decoding.metrics import BatchScores, summarize, weighted_cross_entropy
from gbwatt.errors import CheckpointError, ParameterError, ShapeError
from tests.decoding.tiny import make_trials

#: Pipelines that use weights of trials.
WEIGHTED = ("tangent-space", "xdawn", "mdm")
SIZES = {"n_spatial": 4, "n_temporal": 4, "kernel": 9, "k": 3}


def state(decoder):
    return {name: x.clone() for name, x in decoder.net_.module_.state_dict().items()}


def same(a, b, **tolerance):
    if tolerance:
        return all(torch.allclose(a[name].double(), b[name].double(), **tolerance) for name in a)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture
def noisy():
    """Classes that overlap, so that weights matter."""
    return make_trials(n=48, seed=3, gain=1.3)


def weights_of(n, seed=1):
    return np.random.default_rng(seed).uniform(0.1, 3, n)


# ------------------------------------------------------------------------------------------------------------ the loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [None, torch.tensor([0.5, 2.0, 1.0])])
def test_equal_weights_give_the_cross_entropy_of_torch(classes, smoothing):
    logits, y = torch.randn(9, 3), torch.arange(9) % 3
    criterion = CrossEntropyLoss(classes, label_smoothing=smoothing)
    loss = weighted_cross_entropy(logits, y, criterion, torch.full((9,), 2.5))
    torch.testing.assert_close(loss, criterion(logits, y))
    assert torch.equal(weighted_cross_entropy(logits, y, criterion), criterion(logits, y))


def test_the_loss_is_the_weighted_mean_of_the_losses_of_the_trials():
    logits, y, w = torch.randn(5, 2, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1]), torch.rand(5).double()
    classes = torch.tensor([1.0, 3.0], dtype=torch.float64)
    each = w * classes[y]
    expected = (each * F.cross_entropy(logits, y, reduction="none")).sum() / each.sum()
    torch.testing.assert_close(weighted_cross_entropy(logits, y, CrossEntropyLoss(classes), w), expected)
    parts = [BatchScores.of(logits[rows], y[rows], classes, w[rows]) for rows in (slice(0, 2), slice(2, 5))]
    assert summarize(parts)[0] == pytest.approx(expected.item())


def test_a_trial_of_weight_zero_has_no_gradient_and_a_batch_of_them_no_loss():
    logits, y = torch.randn(3, 2, requires_grad=True), torch.tensor([0, 1, 1])
    weighted_cross_entropy(logits, y, CrossEntropyLoss(), torch.tensor([1.0, 0.0, 2.0])).backward()
    assert (logits.grad[1] == 0).all()
    assert (logits.grad[0] != 0).all()
    loss = weighted_cross_entropy(logits, y, CrossEntropyLoss(), torch.zeros(3))
    loss.backward()
    assert loss == 0
    assert torch.isfinite(logits.grad).all()


# ------------------------------------------------------------------------------------------------------------ networks


@pytest.mark.parametrize("validation", [0.25, None])
def test_equal_weights_give_the_same_network_as_no_weights(decoder, trials, validation):
    plain = decoder(validation=validation).fit(*trials)
    for weight in (1.0, 0.3):
        weighted = decoder(validation=validation).fit(*trials, sample_weight=np.full(40, weight))
        assert same(state(plain), state(weighted))
        assert [row["train_loss"] for row in weighted.history_] == [row["train_loss"] for row in plain.history_]


def test_only_ratios_of_weights_matter(decoder, noisy):
    weights = weights_of(48)
    first = decoder().fit(*noisy, sample_weight=weights)
    assert same(state(first), state(decoder().fit(*noisy, sample_weight=8 * weights)))
    assert same(state(first), state(decoder().fit(*noisy, sample_weight=3 * weights)), rtol=1e-4, atol=1e-6)
    assert not same(state(first), state(decoder().fit(*noisy)))


def test_labels_of_trials_of_weight_zero_do_not_matter(decoder, noisy):
    x, y = noisy
    weights = np.ones(48)
    weights[:8] = 0
    wrong = y.copy()
    wrong[:8] = np.where(y[:8] == "left", "right", "left")
    fits = [decoder(validation=None).fit(x, labels, sample_weight=weights) for labels in (y, wrong)]
    assert same(*map(state, fits))


def test_weights_move_the_decision(decoder, noisy):
    x, y = noisy
    likes = {
        name: decoder(max_epochs=20).fit(x, y, sample_weight=np.where(y == name, 20.0, 1.0)).predict(x)
        for name in ("left", "right")
    }
    assert (likes["left"] == "left").mean() > (likes["right"] == "left").mean()


def test_weights_of_classes_and_trials_are_multiplied(decoder, noisy):
    x, y = noisy
    by_class = decoder(class_weight={"left": 4.0}).fit(x, y, sample_weight=np.where(y == "left", 1.0, 2.0))
    by_trial = decoder().fit(x, y, sample_weight=np.where(y == "left", 4.0, 2.0))
    assert same(state(by_class), state(by_trial), rtol=1e-4, atol=1e-6)


def test_balanced_classes_have_equal_sums_of_weights():
    codes, weights = np.array([0, 0, 0, 1]), torch.tensor([1.0, 1.0, 1.0, 6.0])
    balanced = weigh_classes("balanced", np.arange(2), codes, None, weights)
    totals = np.bincount(codes, weights.numpy() * balanced.numpy()[codes])
    assert totals[0] == pytest.approx(totals[1])


def test_the_validation_loss_uses_the_weights_of_validation_trials(decoder, noisy):
    x, y = noisy
    weights, held_out = weights_of(48), np.arange(0, 48, 3)
    fitted = decoder(validation=held_out, max_epochs=1).fit(x, y, sample_weight=weights)
    z = torch.tensor(np.log(fitted.predict_proba(x[held_out])))
    losses = F.nll_loss(z, torch.from_numpy((y[held_out] == "right").astype(int)), reduction="none").numpy()
    assert fitted.history_[0]["valid_loss"] == pytest.approx(np.average(losses, weights=weights[held_out]), rel=1e-5)


def test_weights_are_part_of_the_fingerprint_of_a_checkpoint(decoder, noisy, tmp_path):
    weights = weights_of(48)
    first = decoder(checkpoint=tmp_path).fit(*noisy, sample_weight=weights)
    assert same(state(decoder(checkpoint=tmp_path).fit(*noisy, sample_weight=weights)), state(first))
    with pytest.raises(CheckpointError, match="training data"):
        decoder(checkpoint=tmp_path).fit(*noisy)


def test_checkpoints_without_weights_are_described_as_before():
    x, y = torch.zeros(2, 1, 3), torch.tensor([0, 1])
    plain, weighted = (describe_data(Sets(Examples(x, y, None, w), None)) for w in (None, torch.ones(2)))
    assert plain["training data"] == "(2, 1, 3), SHA-256 19ea44be89eece0f" != weighted["training data"]


def test_networks_of_an_ensemble_are_all_weighted(decoder, noisy):
    weights = weights_of(48)
    ensemble = decoder(n_members=2).fit(*noisy, sample_weight=weights)
    alone = decoder().fit(*noisy, sample_weight=weights)
    members = ensemble.net_.module_.members
    assert same(members[0].state_dict(), state(alone))
    assert not same(members[1].state_dict(), decoder(n_members=2).fit(*noisy).net_.module_.members[1].state_dict())


def test_joined_examples_keep_their_weights_and_others_get_the_mean():
    x, y = torch.zeros(2, 1, 3), torch.tensor([0, 1])
    joined = Examples(x, y, None, torch.tensor([1.0, 3.0])).joined(Examples(x, y))
    assert joined.weight.tolist() == [1, 3, 2, 2]
    assert Examples(x, y).joined(Examples(x, y)).weight is None


def test_normalized_weights_have_mean_one():
    assert normalize_weights(torch.tensor([1.0, 2.0, 6.0])).mean() == pytest.approx(1)
    assert normalize_weights(torch.full((3,), 1e300, dtype=torch.float64)) is None
    assert torch.isfinite(normalize_weights(torch.tensor([1e308, 1e308, 1e307], dtype=torch.float64))).all()


# ------------------------------------------------------------------------------------------------- classical pipelines


@pytest.mark.parametrize("model", WEIGHTED)
def test_weights_of_one_change_nothing_in_a_pipeline(noisy, model):
    fits = [EEGDecoder(model, sfreq=32).fit(*noisy, sample_weight=w) for w in (None, np.ones(48))]
    assert same(*map(state, fits))


@pytest.mark.parametrize("model", WEIGHTED)
def test_a_whole_weight_is_a_repeated_trial_for_a_pipeline(noisy, model):
    x, y = noisy
    counts = np.random.default_rng(0).integers(0, 3, 48)
    weighted = EEGDecoder(model, validation=None).fit(x, y, sample_weight=counts)
    repeated = EEGDecoder(model, validation=None).fit(np.repeat(x, counts, axis=0), np.repeat(y, counts))
    np.testing.assert_allclose(weighted.decision_function(x), repeated.decision_function(x), rtol=1e-3, atol=1e-3)
    assert not np.allclose(
        EEGDecoder(model, validation=None).fit(x, y).decision_function(x), weighted.decision_function(x)
    )


@pytest.mark.parametrize("model", WEIGHTED)
def test_labels_of_trials_of_weight_zero_do_not_matter_to_a_pipeline(noisy, model):
    x, y = noisy
    weights, wrong = np.ones(48), y.copy()
    weights[:8] = 0
    wrong[:8] = np.where(y[:8] == "left", "right", "left")
    fits = [EEGDecoder(model).fit(x, labels, sample_weight=weights) for labels in (y, wrong)]
    assert fits[0].classes_.tolist() == ["left", "right"]
    # which trials are for validation depends on the labels, but a pipeline is fitted to all of them, in another order
    np.testing.assert_allclose(fits[0].predict_proba(x), fits[1].predict_proba(x), atol=1e-3)


def test_the_scale_of_canonical_correlations_is_fitted_to_the_weighted_trials():
    rng, times = np.random.default_rng(0), np.arange(64) / 64
    x, y = rng.standard_normal((40, 2, 64)), np.arange(40) % 2
    x[:, 0] += 0.5 * np.sin(2 * np.pi * np.where(y == 0, 8, 12)[:, None] * times)
    counts = np.where(rng.random(40) < 0.5, 3, 1)
    options = {"model_options": {"frequencies": [8, 12]}, "sfreq": 64, "validation": None}
    weighted = EEGDecoder("cca", **options).fit(x, y, sample_weight=counts)
    repeated = EEGDecoder("cca", **options).fit(np.repeat(x, counts, axis=0), np.repeat(y, counts))
    scales = [decoder.net_.module_.scale.item() for decoder in (weighted, repeated)]
    assert scales[0] == pytest.approx(scales[1], rel=1e-3)


@pytest.mark.parametrize("model", ["csp", "lda"])
def test_discriminant_analysis_refuses_weights(noisy, model):
    with pytest.raises(ParameterError, match=r"sample_weight: .* no weights of trials"):
        EEGDecoder(model, sfreq=32).fit(*noisy, sample_weight=weights_of(48))


# ----------------------------------------------------------------------------------------------------- initial weights


def test_the_classical_start_ignores_trials_of_weight_zero_and_counts_others(noisy):
    x, y = noisy
    options = {"initialization": "classical", "validation": None, "model_options": SIZES, "lr": 0.0, "max_epochs": 1}
    weights, wrong = np.ones(48), y.copy()
    weights[:8] = 0
    wrong[:8] = np.where(y[:8] == "left", "right", "left")
    fits = [EEGDecoder("gbwatt", **options).fit(x, labels, sample_weight=weights) for labels in (y, wrong)]
    assert same(*map(state, fits))
    layers = [
        EEGDecoder("gbwatt", **options).fit(x, y, sample_weight=w).net_.module_.final_layer.weight
        for w in (None, np.ones(48), weights_of(48))
    ]
    assert torch.equal(layers[0], layers[1])
    assert not torch.allclose(layers[0], layers[2])


def test_weights_reach_the_comparison_of_paradigms(noisy):
    decoder = GBWAttClassifier(max_epochs=1, model_options=SIZES).fit(*noisy, sample_weight=weights_of(48))
    plain = GBWAttClassifier(max_epochs=1, model_options=SIZES).fit(*noisy)
    assert decoder.settings_.reason != plain.settings_.reason


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("weights", "error", "text"),
    [
        (np.ones(39), ShapeError, r"sample_weight \(39,\) does not match 40 epochs"),
        (np.ones((40, 1)), ShapeError, r"sample_weight \(40, 1\)"),
        (-np.ones(40), ParameterError, "sample_weight is -1 for trial 0"),
        (np.where(np.arange(40) == 3, np.nan, 1), ParameterError, "sample_weight is nan for trial 3"),
        (np.where(np.arange(40) == 3, np.inf, 1), ParameterError, "sample_weight is inf for trial 3"),
        (np.zeros(40), ParameterError, "sample_weight is 0 for all trials"),
        (np.arange(40) % 2, ParameterError, "sample_weight is 0 for all training trials of class 'left'"),
        (["many"] * 40, ParameterError, "sample_weight is not an array of numbers"),
    ],
)
def test_wrong_weights_are_named(decoder, trials, weights, error, text):
    with pytest.raises(error, match=text):
        decoder().fit(*trials, sample_weight=weights)


def test_validation_trials_need_a_weight(decoder, trials):
    weights = np.ones(40)
    weights[:10] = 0
    with pytest.raises(ParameterError, match="sample_weight is 0 for all validation trials"):
        decoder(validation=np.arange(10)).fit(*trials, sample_weight=weights)


# --------------------------------------------------------------------------------------------------- columns of labels


def test_a_column_of_labels_is_flattened_with_the_warning_of_scikit_learn(decoder, trials):
    x, y = trials
    plain = decoder().fit(x, y)
    with pytest.warns(DataConversionWarning, match="'y' is a column"):
        column = decoder().fit(x, y[:, None])
    assert same(state(plain), state(column))
    with pytest.warns(DataConversionWarning):
        assert column.score(x, y[:, None]) == plain.score(x, y)
    with pytest.raises(ShapeError):
        decoder().fit(x, np.stack([y, y], 1))
