"""Networks that begin with the weights of others."""

from __future__ import annotations

import numpy as np
import pytest

from gbwatt import EEGDecoder, GBWAttClassifier
from gbwatt.data import Trials
from gbwatt.data.trials import concatenate
from gbwatt.decoding import EuclideanAlignment, list_weights, load_decoder
from gbwatt.errors import MismatchError, ParameterError

NAMES = ("C3", "Cz", "C4", "Pz")
SMALL = {"n_spatial": 4, "n_temporal": 4, "kernel": 6, "n_segments": 2, "k": 4}


def subject(number, n=24, names=NAMES, classes=("left", "right")):
    """Trials whose classes differ in the power of a channel, in the mixture and the amplitude of this subject."""
    rng = np.random.default_rng(number)
    x, y = rng.standard_normal((n, len(names), 64)), np.arange(n) % len(classes)
    x[y == 1, 0] *= 3
    mixing = np.eye(len(names)) + 0.3 * rng.standard_normal((len(names), len(names)))
    return Trials(X=number * mixing @ x, y=y, class_names=classes, ch_names=names, sfreq=100.0, subject=number)


@pytest.fixture
def weights(tmp_path):
    """Folder of a network of two subjects, the second of which is subject 2."""
    trials = EuclideanAlignment().fit_transform(concatenate([subject(1), subject(2)]))
    options = {**SMALL, "shrinkage": 0.1}
    decoder = EEGDecoder("gbwatt", model_options=options, max_epochs=30, lr=1e-2, validation=None).fit(trials)
    decoder.save_pretrained(tmp_path / "weights")
    return tmp_path / "weights"


# ---- initial weights


def untrained(folder, **arguments):
    """A classifier that keeps its initial weights."""
    return GBWAttClassifier(initialization=folder, lr=0.0, max_epochs=1, **arguments)


def test_a_network_with_the_weights_of_others_aligns_its_input_itself(weights):
    """On raw trials it gives the probabilities of the trained network on aligned ones."""
    trials = subject(2)
    source = EEGDecoder.from_pretrained(weights)
    expected = source.predict_proba(EuclideanAlignment().fit_transform(trials))
    decoder = untrained(weights).fit(trials)
    np.testing.assert_allclose(decoder.predict_proba(trials), expected, atol=1e-4)
    assert decoder.settings_.initialization == "pretrained"
    assert str(weights) in decoder.settings_.reason
    assert decoder.net_.module_.config["n_temporal"] == 4


def test_channels_are_matched_by_name(weights):
    trials = subject(2)
    expected = untrained(weights).fit(trials).predict_proba(trials)
    extra = Trials(
        X=np.concatenate([trials.X[:, ::-1], np.random.default_rng(0).standard_normal((24, 1, 64))], axis=1),
        y=trials.y,
        class_names=trials.class_names,
        ch_names=("pz", "c4", "CZ", "c3", "EOG"),
        sfreq=100.0,
    )
    np.testing.assert_allclose(untrained(weights).fit(extra).predict_proba(extra), expected, atol=1e-4)


def test_arrays_are_taken_in_the_order_of_the_weights(weights):
    trials = subject(2)
    expected = untrained(weights).fit(trials).predict_proba(trials)
    labels = np.array(["left", "right"])[trials.y]
    decoder = untrained(weights, sfreq=100.0).fit(trials.X, labels)
    np.testing.assert_allclose(decoder.predict_proba(trials.X), expected, atol=1e-6)


def test_training_continues_from_the_weights(weights):
    trials = subject(2)
    start, decoder = untrained(weights).fit(trials), GBWAttClassifier(initialization=weights, seed=1).fit(trials)
    assert (decoder.net_.lr, len(decoder.history_), decoder.settings_.schedule) == (2e-4, 20, "cosine")
    first, last = (decoder.history_[row]["train_loss"] for row in (0, -1))
    assert last < first
    assert not np.allclose(decoder.predict_proba(trials), start.predict_proba(trials), atol=1e-6)


def test_other_classes_get_a_new_last_layer(weights):
    trials = subject(2, classes=("left", "right", "feet"))
    decoder = untrained(weights).fit(trials)
    assert decoder.predict_proba(trials).shape == (24, 3)
    assert decoder.score(trials) > 0.4  # a logistic regression of the training trials


def test_initial_weights_take_part_in_the_selection(weights):
    trials = subject(2)
    decoder = GBWAttClassifier(initialization=weights, lr=100.0, max_epochs=2, validation=0.25).fit(trials)
    assert decoder.best_epoch_ == 0


def test_a_model_with_weights_of_others_is_saved_without_their_path(weights, tmp_path):
    trials = subject(2)
    decoder = untrained(weights).fit(trials)
    decoder.save_pretrained(tmp_path / "own")
    assert str(weights) not in (tmp_path / "own" / "config.json").read_text().replace(decoder.settings_.reason, "")
    loaded = GBWAttClassifier.from_pretrained(tmp_path / "own")
    np.testing.assert_array_equal(loaded.predict_proba(trials), decoder.predict_proba(trials))
    assert loaded.settings_ == decoder.settings_


def test_a_network_of_aligned_trials_refuses_others(weights):
    with pytest.raises(MismatchError, match="unit"):
        EEGDecoder.from_pretrained(weights).predict(subject(2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.select(channels=NAMES[1:]), "C3"),
        (lambda t: t.replace(sfreq=250.0), r"100 Hz.*250 Hz"),
    ],
)
def test_recordings_that_do_not_fit_the_weights_are_refused(weights, change, message):
    with pytest.raises(MismatchError, match=message):
        untrained(weights).fit(change(subject(2)))


def test_arrays_with_another_number_of_channels_are_refused(weights):
    with pytest.raises(MismatchError, match=r"4 channels.*3"):
        untrained(weights).fit(subject(2).X[:, :3], subject(2).y)


def test_wrong_arguments_are_refused_before_training(weights, tmp_path):
    trials = subject(2)
    with pytest.raises(ParameterError, match=r"initialization.*'classical'"):
        GBWAttClassifier(initialization=tmp_path / "none").fit(trials)
    with pytest.raises(ParameterError, match="architecture; leave out k"):
        GBWAttClassifier(initialization=weights, k=3).fit(trials)

    with pytest.raises(ParameterError, match="architecture; leave out paradigm"):
        GBWAttClassifier(initialization=weights, paradigm="erp").fit(trials)
    with pytest.raises(ParameterError, match=r"'gbwatt'.*'matt'"):
        EEGDecoder("matt", initialization=weights).fit(trials)


def test_weights_for_another_paradigm_are_refused(tmp_path):
    GBWAttClassifier(task="mi", max_epochs=1).fit(subject(1)).save_pretrained(tmp_path / "mi")
    with pytest.raises(ParameterError, match=r"'mi'.*task='erp'"):
        untrained(tmp_path / "mi", task="erp").fit(subject(2))


def test_weights_of_networks_without_such_filters_are_refused(tmp_path):
    EEGDecoder("mbeegse", max_epochs=1, validation=None).fit(subject(1)).save_pretrained(tmp_path / "cnn")
    with pytest.raises(ParameterError, match=r"'mbeegse'.*gbwatt"):
        EEGDecoder("mbeegse", initialization=tmp_path / "cnn").fit(subject(2))


def test_a_checkpoint_with_other_initial_weights_is_refused(weights, tmp_path):
    arguments = {"initialization": weights, "max_epochs": 1, "checkpoint": tmp_path / "state"}
    GBWAttClassifier(**arguments).fit(subject(2))
    trials = EuclideanAlignment().fit_transform(subject(1))
    options = {**SMALL, "shrinkage": 0.1}
    EEGDecoder("gbwatt", model_options=options, max_epochs=1, validation=None).fit(trials).save_pretrained(weights)
    with pytest.raises(ValueError, match="initial weights"):
        GBWAttClassifier(**arguments).fit(subject(2))


def test_each_network_of_an_ensemble_begins_with_its_own_weights(weights, tmp_path):
    target, other = subject(3), tmp_path / "other"
    GBWAttClassifier(initialization=weights, max_epochs=3).fit(subject(4)).save_pretrained(other)
    ensemble = GBWAttClassifier(initialization=[weights, other], max_epochs=1, lr=1e-9).fit(target)
    assert ensemble.settings_.n_members == 2
    for member, folder in zip(ensemble.net_.module_.members, (weights, other), strict=True):
        alone = GBWAttClassifier(initialization=folder, max_epochs=1, lr=1e-9).fit(target).net_.module_
        difference = member.attention.value.weight - alone.attention.value.weight
        assert difference.abs().max() < 1e-6
    assert GBWAttClassifier(initialization=[weights], max_epochs=1).fit(target).settings_.n_members == 1


def test_weights_of_different_architectures_are_no_ensemble(weights, tmp_path):
    EEGDecoder("gbwatt", model_options={**SMALL, "k": 3}, max_epochs=1).fit(subject(1)).save_pretrained(tmp_path / "k")
    with pytest.raises(ParameterError, match="different architectures"):
        GBWAttClassifier(initialization=[weights, tmp_path / "k"]).fit(subject(3))
    with pytest.raises(ParameterError, match=r"initialization=\[\]"):
        GBWAttClassifier(initialization=[]).fit(subject(3))


# ---- fine-tuning


def trained_parts(weights, **arguments):
    """Top-level parts of the network whose parameters or statistics changed in training."""
    start = untrained(weights).fit(subject(2)).net_.module_.state_dict()
    decoder = GBWAttClassifier(initialization=weights, max_epochs=2, lr=1e-2, **arguments).fit(subject(2))
    state = decoder.net_.module_.state_dict()
    changed = [name for name in state if (state[name].double() - start[name].double()).abs().max() > 1e-6]
    return {name.split(".")[0] for name in changed}


def test_frozen_parts_stay_as_they_are(weights):
    assert trained_parts(weights) == {"features", "attention", "final_layer"}
    assert trained_parts(weights, frozen=["features"]) == {"attention", "final_layer"}
    assert trained_parts(weights, frozen=("features", "attention")) == {"final_layer"}


def test_statistics_of_frozen_parts_stay_as_they_are():
    options = {**SMALL, "shrinkage": 0.1}
    decoder = EEGDecoder("gbwatt", model_options=options, frozen=["features.temporal_norm"], max_epochs=1)
    features = decoder.fit(subject(1)).net_.module_.features
    assert features.temporal_norm.num_batches_tracked == 0
    assert features.spatial_norm.num_batches_tracked > 0


def test_parts_learn_at_their_own_rates(weights):
    slow, fast = (
        GBWAttClassifier(initialization=weights, max_epochs=1, lr=1e-3, layer_lr={"features": factor})
        .fit(subject(2))
        .net_.module_.state_dict()
        for factor in (1e-6, 1.0)
    )
    start = untrained(weights).fit(subject(2)).net_.module_.state_dict()
    changes = [
        (state["features.spatial.weight"] - start["features.spatial.weight"]).abs().max() for state in (slow, fast)
    ]
    assert changes[0] < 1e-4 * changes[1]


def test_fine_tuning_is_saved_and_part_of_the_checkpoint(weights, tmp_path):
    arguments = {"initialization": weights, "max_epochs": 1, "checkpoint": tmp_path / "state"}
    decoder = GBWAttClassifier(**arguments, frozen=("features",), layer_lr={"attention": 0.5}).fit(subject(2))
    decoder.save_pretrained(tmp_path / "own")
    loaded = GBWAttClassifier.from_pretrained(tmp_path / "own")
    assert (loaded.frozen, loaded.layer_lr) == (["features"], {"attention": 0.5})
    with pytest.raises(ValueError, match="frozen"):
        GBWAttClassifier(**arguments, layer_lr={"attention": 0.5}).fit(subject(2))
    with pytest.raises(ValueError, match="layer_lr"):
        GBWAttClassifier(**arguments, frozen=("features",)).fit(subject(2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"frozen": ["feature"]}, "frozen='feature'.*Did you mean 'features'"),
        ({"frozen": "features"}, r"must be a sequence of names: \['features'\]"),
        ({"frozen": ["features", "attention", "final_layer"]}, "leaves no parameters to train"),
        ({"layer_lr": {"atention": 0.1}}, "layer_lr='atention'.*Did you mean 'attention'"),
        ({"layer_lr": {"features": 0}}, "'features': 0; positive.*use frozen"),
        ({"layer_lr": {"features": "slow"}}, "'slow'"),
        ({"layer_lr": {"features": float("inf")}}, "inf"),
    ],
)
def test_wrong_parts_and_rates_are_refused(weights, arguments, message):
    with pytest.raises(ParameterError, match=message):
        GBWAttClassifier(initialization=weights, max_epochs=1, **arguments).fit(subject(2))


def test_classical_pipelines_have_no_parts_to_freeze():
    with pytest.raises(ParameterError, match="classical pipelines"):
        EEGDecoder("mdm", frozen=["features"]).fit(subject(2))


@pytest.mark.parametrize("alignment", ["euclidean", "riemannian"])
def test_weights_of_a_decoder_with_alignment_begin_a_training_on_raw_trials(tmp_path, alignment):
    """On raw trials, the network gives the probabilities of the source, which aligns them itself."""
    options = {**SMALL, "shrinkage": 0.1}
    source = EEGDecoder("gbwatt", model_options=options, alignment=alignment, max_epochs=10, lr=1e-2, validation=None)
    source.fit(concatenate([subject(1), subject(2)])).save_pretrained(tmp_path)
    decoder = untrained(tmp_path).fit(subject(2))
    np.testing.assert_allclose(decoder.predict_proba(subject(2)), source.predict_proba(subject(2)), atol=1e-4)


# ---- weights of the package


@pytest.mark.parametrize("name", list_weights())
def test_weights_of_the_package_have_a_provenance_and_begin_a_training(name):
    folder = list_weights()[name]
    provenance = (folder / "PROVENANCE.md").read_text()
    assert all(word in provenance for word in ("Recordings", "License", "Command", "Evidence"))
    source = load_decoder(folder)
    assert source.fingerprints_ is None  # nothing of the recordings
    channels = (*reversed(source.recorded_.ch_names), "Oz")  # in another order, with one more
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, len(channels), 250))
    trials = Trials(X=x, y=np.arange(20) % 2, class_names=("l", "r"), ch_names=channels, sfreq=source.signal_.sfreq)
    decoder = GBWAttClassifier(initialization=name, max_epochs=1).fit(trials)
    assert decoder.settings_.reason == f"initial weights of {name}"
    assert decoder.predict_proba(trials).shape == (20, 2)
    with pytest.raises(MismatchError, match=channels[0]):
        GBWAttClassifier(initialization=name).fit(trials.replace(X=x[:, 1:], ch_names=channels[1:]))


def test_names_of_weights_are_suggested():
    with pytest.raises(ParameterError, match="physionet-left-right"):
        GBWAttClassifier(initialization="physionet-left").fit(subject(3))
