"""Networks that begin with the weights of others."""

from __future__ import annotations

import numpy as np
import pytest

from gbwatt import EEGDecoder, GBWAttClassifier
from gbwatt.data import Trials
from gbwatt.data.trials import concatenate
from gbwatt.decoding import EuclideanAlignment, list_weights, load_decoder
from gbwatt.errors import AlignmentWarning, DataWarning, MismatchError, ParameterError, UnknownFilterWarning

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
    with pytest.warns(DataWarning, match=r"has no names of channels.*in this order: "):
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


@pytest.mark.filterwarnings("ignore::gbwatt.errors.AlignmentWarning")
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


@pytest.mark.parametrize("n_members", [1, 3])
def test_another_number_of_networks_than_of_weights_is_refused(weights, n_members):
    decoder = GBWAttClassifier(initialization=[weights, weights], n_members=n_members, max_epochs=1)
    with pytest.raises(ParameterError, match=f"n_members={n_members}, but initialization has weights of 2 networks"):
        decoder.fit(subject(3))


@pytest.mark.filterwarnings("ignore::gbwatt.errors.AlignmentWarning")
def test_weights_of_different_architectures_are_no_ensemble(weights, tmp_path):
    EEGDecoder("gbwatt", model_options={**SMALL, "k": 3}, max_epochs=1).fit(subject(1)).save_pretrained(tmp_path / "k")
    with pytest.raises(ParameterError, match="different architectures"):
        GBWAttClassifier(initialization=[weights, tmp_path / "k"]).fit(subject(3))
    with pytest.raises(ParameterError, match=r"initialization=\[\]"):
        GBWAttClassifier(initialization=[]).fit(subject(3))


def test_an_ensemble_begins_with_the_networks_of_an_ensemble(weights, tmp_path):
    aligned = EuclideanAlignment().fit_transform(concatenate([subject(1), subject(2)]))
    options = {**SMALL, "shrinkage": 0.1}
    source = EEGDecoder("gbwatt", model_options=options, n_members=2, max_epochs=2, lr=1e-2, validation=None)
    source.fit(aligned).save_pretrained(tmp_path / "ensemble")
    ensemble = GBWAttClassifier(initialization=tmp_path / "ensemble", max_epochs=1, lr=1e-9).fit(subject(3))
    assert ensemble.settings_.n_members == 2
    for own, trained in zip(ensemble.net_.module_.members, source.net_.module_.members, strict=True):
        assert (own.attention.value.weight - trained.attention.value.weight).abs().max() < 1e-6
    one = GBWAttClassifier(initialization=tmp_path / "ensemble", n_members=1, max_epochs=1).fit(subject(3))
    assert one.settings_.n_members == 1


# ---- recordings of the weights and new ones


@pytest.fixture
def filtered_weights(tmp_path):
    """Folder of a decoder that was trained with alignment on trials filtered from 8 to 30 Hz."""
    decoder = GBWAttClassifier(task="mi", alignment="euclidean", max_epochs=1, lr=1e-3)
    decoder.fit(prepared(1)).save_pretrained(tmp_path / "filtered")
    return tmp_path / "filtered"


def prepared(number, low=8.0, high=30.0, reference=0, **changes):
    """Trials of a subject whose file has the edges of filters and the reference."""
    header = {"highpass": low, "lowpass": high, "custom_ref_applied": reference}
    return subject(number).replace(steps=({"step": "recorded", **header},), **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"low": 0.0, "high": 50.0}, r"filtered' does not fit: 'X' has highpass=0 Hz.*raw\.filter\(8, 30\).*--init"),
        ({"high": 20.0}, "lowpass=20 Hz"),
        ({"reference": 1}, "another reference"),
        ({"sfreq": 160.0}, r"100 Hz.*160 Hz.*--preprocess 'resample=100'"),
    ],
)
def test_recordings_prepared_in_another_way_than_those_of_the_weights_are_refused(filtered_weights, changes, message):
    with pytest.raises(MismatchError, match=message):
        untrained(filtered_weights).fit(prepared(2, **changes))


def test_a_unit_that_cannot_be_converted_is_refused_unless_the_recordings_were_aligned(filtered_weights, tmp_path):
    untrained(filtered_weights).fit(prepared(2, unit="a.u."))
    GBWAttClassifier(task="mi", max_epochs=1).fit(prepared(1)).save_pretrained(tmp_path / "raw")
    with pytest.warns(AlignmentWarning), pytest.raises(MismatchError, match=r"unit='a\.u\.'"):
        untrained(tmp_path / "raw").fit(prepared(2, unit="a.u."))


def test_a_window_more_channels_and_another_order_are_no_difference(filtered_weights):
    trials = prepared(2)
    x = np.concatenate([trials.X[:, ::-1], trials.X[:, :1]], axis=1)[..., :48]
    steps = (*trials.steps, {"step": "crop", "tmin": 0.0, "tmax": 0.48})
    other = trials.replace(X=x, ch_names=(*reversed(NAMES), "Oz"), steps=steps)
    assert untrained(filtered_weights).fit(other).predict_proba(other).shape == (24, 2)


def test_unknown_filters_are_a_warning(filtered_weights):
    with pytest.warns(UnknownFilterWarning, match=r"initialization=.*filters of 'X' are unknown.*from 8 to 30 Hz"):
        untrained(filtered_weights).fit(subject(2))


def test_alignment_in_the_history_of_the_weights_is_no_difference(tmp_path):
    """Neither the step nor the unit of aligned trials."""
    aligned = EuclideanAlignment().fit_transform(concatenate([prepared(1), prepared(2)]))
    GBWAttClassifier(task="mi", max_epochs=1).fit(aligned).save_pretrained(tmp_path / "aligned")
    assert untrained(tmp_path / "aligned").fit(prepared(3)).recorded_.unit == "µV"


def test_weights_of_recordings_that_were_not_aligned_are_a_warning(tmp_path):
    GBWAttClassifier(task="mi", max_epochs=1).fit(subject(1)).save_pretrained(tmp_path / "raw")
    with pytest.warns(AlignmentWarning, match=r"raw'.*alignment='euclidean' \(--align euclidean\)"):
        untrained(tmp_path / "raw").fit(subject(2))


def test_case_and_trailing_dots_of_channels_do_not_matter(weights):
    trials = subject(2)
    expected = untrained(weights).fit(trials).predict_proba(trials)
    other = trials.replace(ch_names=("C3..", "CZ..", "c4..", "Pz.."))
    np.testing.assert_allclose(untrained(weights).fit(other).predict_proba(other), expected, atol=1e-6)


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
    with pytest.warns(UnknownFilterWarning, match=f"initialization='{name}': The filters .* unknown"):
        decoder = GBWAttClassifier(initialization=name, max_epochs=1).fit(trials)
    assert decoder.settings_.reason == f"initial weights of {name}"
    assert decoder.predict_proba(trials).shape == (20, 2)
    with pytest.raises(MismatchError, match=channels[0]):
        GBWAttClassifier(initialization=name).fit(trials.replace(X=x[:, 1:], ch_names=channels[1:]))


def test_names_of_weights_are_suggested():
    with pytest.raises(ParameterError, match="physionet-left-right"):
        GBWAttClassifier(initialization="physionet-left").fit(subject(3))
