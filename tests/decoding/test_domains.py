"""Estimators that know subjects: alignment, normalisation by domain, adaptation, saving."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
import torch
from sklearn.base import clone

from gbwatt import EEGDecoder, GBWAttClassifier, _io
from gbwatt.data import Trials
from gbwatt.data.trials import concatenate
from gbwatt.decoding import EuclideanAlignment
from gbwatt.errors import MismatchError, ModelFileError, ParameterError, ShapeError
from gbwatt.explain import inputs as explain_inputs

NAMES = ("C3", "Cz", "C4", "Pz")
SMALL = {"n_spatial": 4, "n_temporal": 4, "kernel": 6, "n_segments": 2, "k": 4, "shrinkage": 0.1}
OPTIONS = [
    {"alignment": "euclidean"},
    {"alignment": "riemannian"},
    {"model_options": {**SMALL, "domain_norm": "affine-invariant"}},
    {"model_options": {**SMALL, "domain_norm": "bures-wasserstein"}},
    {"alignment": "euclidean", "model_options": {**SMALL, "domain_norm": "affine-invariant"}},
]


def subject(number, n=24, session=None, mixing=None):
    """Trials whose classes differ in the power of a channel, in the mixture and the amplitude of this subject."""
    rng = np.random.default_rng(number)
    x, y = rng.standard_normal((n, 4, 64)), np.arange(n) % 2
    x[y == 1, 0] *= 3
    mixing = np.linalg.qr(rng.standard_normal((4, 4)))[0] @ np.diag([1, 2, 3, 4]) if mixing is None else mixing
    fields = {"class_names": ("left", "right"), "ch_names": NAMES, "sfreq": 100.0}
    session = np.repeat("1", n) if session is None else session
    return Trials(X=number * mixing @ x, y=y, subject=number, session=session, **fields)


def fitted(options, X=None, **arguments):
    defaults = {"model_options": SMALL, "max_epochs": 2, "lr": 1e-2, "validation": None}
    decoder = EEGDecoder("gbwatt", **{**defaults, **options, **arguments})
    return decoder.fit(concatenate([subject(1), subject(2)]) if X is None else X)


@pytest.fixture(params=OPTIONS, ids=["euclidean", "riemannian", "affine-invariant", "bures-wasserstein", "both"])
def decoder(request):
    return fitted(request.param)


# ---- alignment


def test_alignment_of_the_estimator_is_that_of_the_transformer():
    trials = concatenate([subject(1), subject(2)])
    inside, outside = fitted({"alignment": "euclidean"}), fitted({}, EuclideanAlignment().fit_transform(trials))
    aligned = EuclideanAlignment().fit_transform(trials)
    np.testing.assert_allclose(inside.predict_proba(trials), outside.predict_proba(aligned), atol=1e-5)
    assert inside.recorded_.unit == "µV"
    assert set(inside.used_for(trials)) == {"training"}


def test_groups_replace_subjects():
    trials = concatenate([subject(1), subject(2)])
    arguments = {"alignment": "euclidean", "model_options": SMALL, "max_epochs": 1, "validation": None, "sfreq": 100.0}
    by_groups = EEGDecoder("gbwatt", **arguments).fit(trials.X, trials.labels, groups=trials.subject)
    stored = EEGDecoder("gbwatt", **arguments).fit(trials)
    np.testing.assert_allclose(
        by_groups.predict_proba(trials.X, groups=trials.subject), stored.predict_proba(trials), atol=1e-6
    )
    assert by_groups.score(trials.X, trials.labels, groups=trials.subject) == stored.score(trials)
    assert by_groups.decision_function(trials.X, groups=trials.subject).shape == (48,)


def test_sessions_can_be_domains():
    trials = subject(1, session=np.repeat(["a", "b"], 12))
    assert fitted({"alignment": "euclidean", "domains": "session"}, trials).domains_.names == ["1/a", "1/b"]


def test_domains_without_an_option_change_nothing():
    trials = concatenate([subject(1), subject(2)])
    plain = fitted({})
    assert plain.domains_ is None
    grouped = EEGDecoder("gbwatt", model_options=SMALL, max_epochs=2, lr=1e-2, validation=None)
    grouped.fit(trials, groups=np.arange(48) % 3)
    np.testing.assert_array_equal(grouped.predict_proba(trials), plain.predict_proba(trials))


def test_validation_trials_of_another_subject_are_aligned_by_themselves():
    decoder = fitted({"alignment": "euclidean"}, validation=subject(3))
    assert decoder.domains_.names == [1, 2, 3]
    own = EuclideanAlignment().fit(subject(3)).whiteners_[3]
    np.testing.assert_allclose(decoder.domains_.alignment.whiteners_[3], own)


def test_a_subject_with_other_gains_of_the_channels_is_decoded_by_its_own_alignment():
    one, other = (subject(number, mixing=np.diag(gains)) for number, gains in ((1, [1, 1, 1, 1]), (2, [1, 90, 1, 9])))
    aligned, plain = (fitted(options, one, max_epochs=15) for options in ({"alignment": "euclidean"}, {}))
    assert plain.score(one) > 0.9
    assert aligned.score(other) > 0.9 > plain.score(other)


def test_classical_pipelines_are_aligned_too(tmp_path):
    trials = concatenate([subject(1, mixing=np.eye(4)), subject(2, mixing=np.diag([1, 90, 1, 9]))])
    decoder = EEGDecoder("mdm", alignment="riemannian", validation=0.25).fit(trials)
    assert decoder.score(trials) > 0.9
    decoder.save_pretrained(tmp_path)
    loaded = EEGDecoder.from_pretrained(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(trials), decoder.predict_proba(trials))


def test_domains_of_training_need_enough_trials_for_their_alignment():
    with pytest.raises(ShapeError, match="3 trials of domain 'few' are too few"):
        EEGDecoder("mdm", alignment="euclidean").fit(subject(1), groups=["few"] * 3 + ["many"] * 21)


# ---- domains of prediction


def test_known_subjects_are_predicted_trial_by_trial(decoder):
    trials = subject(2)
    one_by_one = [decoder.predict_proba(trials[[row]])[0] for row in range(4)]
    np.testing.assert_allclose(one_by_one, decoder.predict_proba(trials)[:4], atol=1e-5)


def test_unknown_subjects_are_estimated_from_the_given_trials_or_adapted_to(decoder):
    trials, state = subject(5), {name: x.clone() for name, x in decoder.net_.module_.state_dict().items()}
    transductive = decoder.predict_proba(trials)
    assert all(torch.equal(x, state[name]) for name, x in decoder.net_.module_.state_dict().items())
    assert decoder.domains_.names == [1, 2]
    known = decoder.predict_proba(subject(1))
    assert decoder.adapt(trials) is decoder
    assert decoder.domains_.names == [1, 2, 5]
    np.testing.assert_allclose(decoder.predict_proba(trials), transductive, atol=1e-5)
    np.testing.assert_allclose(decoder.predict_proba(trials[:1]), transductive[:1], atol=1e-5)
    np.testing.assert_allclose(decoder.predict_proba(subject(1)), known, atol=1e-6)
    np.testing.assert_allclose(decoder.predict_proba(trials.X, groups=np.full(24, 5)), transductive, atol=1e-5)


def test_arrays_are_of_the_domain_adapted_to_by_an_array(decoder):
    trials = subject(5)
    want = decoder.predict_proba(trials)
    decoder.adapt(trials.X)
    np.testing.assert_allclose(decoder.predict_proba(trials.X[:1]), want[:1], atol=1e-5)


def test_known_and_unknown_subjects_are_predicted_together(decoder):
    both = concatenate([subject(2), subject(5)])
    np.testing.assert_allclose(decoder.predict_proba(both)[24:], decoder.predict_proba(subject(5)), atol=1e-5)
    np.testing.assert_allclose(decoder.predict_proba(both)[:24], decoder.predict_proba(subject(2)), atol=1e-5)


def test_predictions_do_not_depend_on_the_amplitude_of_an_unknown_subject():
    trials = subject(5)
    for options in OPTIONS[:2]:
        decoder = fitted(options)
        want = decoder.predict_proba(trials)
        np.testing.assert_allclose(decoder.predict_proba(trials.replace(X=30 * trials.X)), want, atol=1e-4)


def test_single_trials_of_unknown_subjects_are_refused(decoder):
    with pytest.raises(ShapeError, match=r"1 trial of domain 5 is too few.*at least 5.*adapt"):
        decoder.predict(subject(5)[:1])
    with pytest.raises(ShapeError, match="arrays without groups"):
        decoder.predict(subject(5).X[:4])
    with pytest.raises(ShapeError, match="at least 5"):
        decoder.adapt(subject(5)[:4])


def test_adaptation_checks_the_trials(decoder):
    with pytest.raises(MismatchError, match="ch_names"):
        decoder.adapt(subject(5).select(channels=NAMES[::-1]))
    with pytest.raises(ShapeError, match=r"groups.*24 trials"):
        decoder.adapt(subject(5), groups=[1])
    with pytest.raises(ParameterError, match=r"alignment=None.*nothing to adapt"):
        fitted({}).adapt(subject(5))


# ---- normalisation by domain


def test_statistics_of_domains_are_those_of_their_trials():
    """At the first step, they are those of all training trials of a domain."""
    decoder = fitted(OPTIONS[2], lr=0.0, max_epochs=1, batch_size=1000)
    before = decoder.net_.module_.domain_norm.running_mean.clone()
    decoder.adapt(concatenate([subject(1), subject(2)]))
    torch.testing.assert_close(decoder.net_.module_.domain_norm.running_mean, before, rtol=1e-2, atol=1e-2)
    assert decoder.net_.module_.config["n_domains"] == 2


@pytest.mark.parametrize("paradigm", ["mi", "erp", "ssvep", pytest.param("auto", marks=pytest.mark.slow)])
def test_all_paradigms_train_with_domains(paradigm):
    trials = concatenate([subject(1, 12), subject(2, 12)])
    decoder = GBWAttClassifier(paradigm=paradigm, domain_norm="affine-invariant", max_epochs=1).fit(trials)
    assert decoder.net_.module_.domain_norm.n_domains == 2
    assert np.isfinite(decoder.predict_proba(subject(5))).all()


def test_validation_needs_training_trials_of_its_domains():
    with pytest.raises(ParameterError, match=r"validation has trials of 3.*domain_norm"):
        fitted(OPTIONS[2], validation=subject(3))
    decoder = fitted(OPTIONS[2], validation=0.25)
    assert "valid_loss" in decoder.history_[0]


def test_networks_of_an_ensemble_are_adapted_together():
    decoder = fitted(OPTIONS[2], n_members=2).adapt(subject(5))
    assert [member.domain_norm.n_domains for member in decoder.net_.module_.members] == [3, 3]


@pytest.mark.filterwarnings("ignore::gbwatt.errors.AlignmentWarning")
def test_fine_tuning_estimates_the_domains_anew(tmp_path):
    fitted(OPTIONS[2]).save_pretrained(tmp_path)
    source = EEGDecoder.from_pretrained(tmp_path).net_.module_.domain_norm
    decoder = GBWAttClassifier(initialization=tmp_path, lr=0.0, max_epochs=1).fit(subject(5))
    norm = decoder.net_.module_.domain_norm
    assert (norm.n_domains, decoder.domains_.names) == (1, [5])
    torch.testing.assert_close(norm.bias, source.bias)
    assert not torch.allclose(norm.running_mean[0], source.running_mean[0], atol=1e-2)


def test_a_checkpoint_with_other_domains_is_refused(tmp_path):
    trials = concatenate([subject(1), subject(2)])
    arguments = {**OPTIONS[2], "max_epochs": 1, "validation": None, "checkpoint": tmp_path}
    EEGDecoder("gbwatt", **arguments).fit(trials)
    EEGDecoder("gbwatt", **arguments).fit(trials)
    with pytest.raises(ValueError, match="training data"):
        EEGDecoder("gbwatt", **arguments).fit(trials, groups=np.arange(48) % 2)


# ---- files


def test_domains_are_saved(decoder, tmp_path):
    decoder.adapt(subject(5)).save_pretrained(tmp_path)
    loaded = EEGDecoder.from_pretrained(tmp_path)
    assert loaded.domains_.names == [1, 2, 5]
    for trials in (subject(1)[:1], subject(5)[:1], subject(6)):
        np.testing.assert_array_equal(loaded.predict_proba(trials), decoder.predict_proba(trials))
    assert clone(loaded).get_params()["alignment"] == decoder.alignment


def rewrite(folder, change):
    """Change the state of the estimator in a saved model, with a new checksum."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config["extra"]["estimator"])
    path.write_text(json.dumps(_io.sealed(json.dumps(config))))


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: saved.pop("domains"),
        lambda saved: saved["domains"].update(names=[1, 1]),
        lambda saved: saved["domains"].update(names=[[1], 2]),
        lambda saved: saved["domains"].update(by="run"),
        lambda saved: saved["domains"].update(whiteners="AAAA"),
        lambda saved: saved["domains"].update(whiteners=base64.b64encode(np.full(32, np.nan).tobytes()).decode()),
    ],
)
def test_damaged_domains_are_refused(tmp_path, change):
    fitted(OPTIONS[0], max_epochs=1).save_pretrained(tmp_path)
    rewrite(tmp_path, change)
    with pytest.raises(ModelFileError):
        EEGDecoder.from_pretrained(tmp_path).predict(subject(5))


def test_names_must_fit_the_number_of_domains(tmp_path):
    fitted(OPTIONS[2], max_epochs=1).save_pretrained(tmp_path)
    rewrite(tmp_path, lambda saved: saved["domains"].update(names=[1, 2, 3]))
    with pytest.raises(ModelFileError, match=r"3 names of 2 domains"):
        EEGDecoder.from_pretrained(tmp_path)


# ---- explanations


def test_explanations_see_what_the_estimator_predicts(decoder):
    for number in (2, 5):
        prepared = explain_inputs.prepare(decoder, subject(number))
        logits = torch.from_numpy(prepared.logits())
        np.testing.assert_allclose(logits.softmax(-1), decoder.predict_proba(subject(number)), atol=1e-5)


def test_networks_with_domains_are_explained_one_domain_at_a_time():
    with pytest.raises(ParameterError, match="2 domains"):
        explain_inputs.prepare(fitted(OPTIONS[2]), concatenate([subject(1), subject(2)]))


# ---- arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alignment": "euclid"}, "Did you mean 'euclidean'"),
        ({"domains": "run"}, "domains='run'"),
        ({"model_options": {**SMALL, "domain_norm": "bures"}}, "domain_norm='bures'.*bures-wasserstein"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        fitted(options)
