"""Alignment of subjects and sessions: closed forms, laws, domains, singular recordings, pipelines."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from gbwatt.data import Trials
from gbwatt.data.preprocessing import Reference
from gbwatt.data.trials import concatenate
from gbwatt.decoding import EuclideanAlignment, RiemannianAlignment
from gbwatt.decoding.alignment import domain_names
from gbwatt.errors import MismatchError, NotSPDError, ParameterError, ShapeError
from gbwatt.geometry import AffineInvariant, BuresWasserstein, Euclidean, LogEuclidean

NAMES = ("C3", "Cz", "C4", "Pz")
ALIGNMENTS = {
    "euclidean": (EuclideanAlignment(), Euclidean()),
    "affine-invariant": (RiemannianAlignment(), AffineInvariant()),
    "bures-wasserstein": (RiemannianAlignment("bures-wasserstein"), BuresWasserstein()),
    "log-euclidean": (RiemannianAlignment("log-euclidean"), LogEuclidean()),
}


def subject(number, n=24, n_times=64):
    """Trials of a subject with its own mixture and amplitude, in two sessions."""
    rng = np.random.default_rng(number)
    x, y = rng.standard_normal((n, 4, n_times)), np.arange(n) % 2
    x[y == 1, 0] *= 3
    mixing = number * (np.eye(4) + 0.3 * rng.standard_normal((4, 4)))
    session = np.where(np.arange(n) < n // 2, "1", "2")
    fields = {"class_names": ("left", "right"), "ch_names": NAMES, "sfreq": 100.0}
    return Trials(X=mixing @ x, y=y, subject=number, session=session, **fields)


def covariances(x):
    centred = torch.from_numpy(np.array(x)).double()
    centred = centred - centred.mean(-1, keepdim=True)
    return centred @ centred.mT / centred.shape[-1]


@pytest.fixture(params=ALIGNMENTS)
def alignment(request):
    return clone(ALIGNMENTS[request.param][0])


# ---- closed forms and laws


@pytest.mark.parametrize("name", ["euclidean", "affine-invariant"])
def test_the_mean_of_aligned_covariances_is_the_identity(name):
    kind, metric = ALIGNMENTS[name]
    trials = concatenate([subject(1), subject(5)])
    aligned = clone(kind).fit_transform(trials)
    for number in (1, 5):
        mean = metric.mean(covariances(aligned.X[aligned.subject == number]))
        np.testing.assert_allclose(mean, np.eye(4), atol=1e-5)


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_whitener_is_the_inverse_root_of_the_mean_under_the_metric(name):
    kind, metric = ALIGNMENTS[name]
    x = subject(3).X.astype(float)
    whitener = clone(kind).fit(x).whiteners_[None]
    mean = metric.mean(covariances(x)).numpy()
    np.testing.assert_allclose(whitener @ mean @ whitener, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(whitener, whitener.T, rtol=1e-9, atol=1e-12)


def test_alignment_does_not_depend_on_the_amplitude(alignment):
    x = subject(3).X.astype(float)
    want = clone(alignment).fit_transform(x)
    np.testing.assert_allclose(alignment.fit_transform(1e-6 * x), want, rtol=1e-7, atol=1e-9)  # volts


def test_affine_invariant_distances_of_aligned_trials_do_not_depend_on_the_mixture():
    x, mixture = subject(3).X.astype(float), np.random.default_rng(0).standard_normal((4, 4)) + 3 * np.eye(4)
    found = [covariances(RiemannianAlignment().fit_transform(a @ x)) for a in (np.eye(4), mixture)]
    first, second = (AffineInvariant().dist(c[:-1], c[1:]) for c in found)
    torch.testing.assert_close(first, second, rtol=1e-8, atol=1e-9)


def test_a_trial_with_an_artefact_changes_the_riemannian_alignment_less():
    x = subject(1).X.astype(float)
    noisy = x.copy()
    noisy[0] *= 100
    changes = [
        np.linalg.norm(kind().fit(noisy).whiteners_[None] - (clean := kind().fit(x).whiteners_[None]))
        / np.linalg.norm(clean)
        for kind in (EuclideanAlignment, RiemannianAlignment)
    ]
    assert changes[1] < changes[0] / 2


# ---- domains


def test_domains_are_subjects_or_sessions_of_subjects():
    trials = concatenate([subject(1, 4), subject(5, 4)])
    assert EuclideanAlignment().fit(trials).whiteners_.keys() == {1, 5}
    assert EuclideanAlignment(by="session").fit(trials).whiteners_.keys() == {"1/1", "1/2", "5/1", "5/2"}
    assert EuclideanAlignment().fit(trials, groups=list("aabbaabb")).whiteners_.keys() == {"a", "b"}
    assert EuclideanAlignment().fit(trials.X).whiteners_.keys() == {None}


def test_arrays_are_one_domain_unless_groups_are_given(alignment):
    x = np.concatenate([subject(1).X, subject(5).X])
    together, apart = alignment.fit_transform(x), alignment.fit_transform(x, groups=np.repeat(["one", "five"], 24))
    assert together[24:].std() > 2 * together[:24].std()
    np.testing.assert_allclose(apart[24:], alignment.fit_transform(x[24:]), rtol=1e-5, atol=1e-5)


def test_sessions_are_aligned_apart():
    trials = subject(1)
    trials = trials.replace(X=np.where(trials.session == "2", 10.0, 1.0)[:, None, None] * trials.X)
    for by, ratio in (("subject", 10), ("session", 1)):
        x = EuclideanAlignment(by=by).fit_transform(trials).X
        assert x[12:].std() / x[:12].std() == pytest.approx(ratio, rel=0.2)


def test_domains_of_epochs_are_in_their_metadata():
    trials = concatenate([subject(1), subject(5)])
    epochs = trials.to_mne()
    aligned = EuclideanAlignment(by="session").fit_transform(epochs)
    np.testing.assert_allclose(aligned, EuclideanAlignment(by="session").fit_transform(trials).X, rtol=1e-3, atol=1e-4)
    assert domain_names(epochs).tolist() == trials.subject.tolist()
    epochs.metadata = None
    assert domain_names(epochs).tolist() == [None] * 48
    with pytest.raises(ParameterError, match="column 'session'"):
        domain_names(epochs, by="session")


def test_trials_stay_trials_with_a_step(alignment):
    trials = subject(1)
    aligned = alignment.set_params(shrinkage=0.1, by="session").fit_transform(trials)
    assert (aligned.unit, aligned.ch_names, len(aligned.steps)) == ("a.u.", NAMES, 1)
    metric = getattr(alignment, "metric", "euclidean")
    assert aligned.steps[0] == {"step": "alignment", "metric": metric, "by": "session", "shrinkage": 0.1}
    np.testing.assert_array_equal(aligned.y, trials.y)
    assert isinstance(alignment.fit_transform(trials.X), np.ndarray)


def test_trials_of_other_alignments_do_not_fit_a_model(decoder):
    one, other = (kind().fit_transform(subject(1)) for kind in (EuclideanAlignment, RiemannianAlignment))
    fitted = decoder(max_epochs=1).fit(one)
    with pytest.raises(MismatchError, match=r"affine-invariant.*euclidean"):
        fitted.predict(other)
    fitted.predict(one.replace(steps=()))  # aligned by a version that kept no record


# ---- unseen domains


def test_unseen_domains_are_an_error_unless_they_are_fitted(alignment):
    alignment.fit(subject(1))
    with pytest.raises(ParameterError, match=r"2 was not fitted.*unseen='fit'.*Fitted: 1"):
        alignment.transform(subject(2))
    found = alignment.set_params(unseen="fit").transform(subject(2)).X
    np.testing.assert_allclose(found, clone(alignment).fit_transform(subject(2)).X, rtol=1e-6)
    assert alignment.whiteners_.keys() == {1}  # not kept


def test_known_domains_are_not_fitted_again():
    alignment = EuclideanAlignment(unseen="fit").fit(subject(1))
    half = alignment.transform(subject(1)[:3])
    np.testing.assert_array_equal(half.X, alignment.transform(subject(1)).X[:3])


def test_target_trials_are_fitted_as_domains_of_their_own(alignment):
    trials, target = subject(1), subject(2)
    alignment.fit(trials, target=target)
    assert alignment.whiteners_.keys() == {1, 2}
    np.testing.assert_array_equal(alignment.transform(target[:1]).X, alignment.transform(target).X[:1])
    alignment.fit(trials.X, groups=np.ones(24), target=target.X)
    np.testing.assert_allclose(alignment.transform(target.X[:1]), alignment.fit_transform(target.X)[:1], rtol=1e-5)
    with pytest.raises(ParameterError, match="target: arrays without groups is also in X"):
        alignment.fit(trials.X, target=target.X)


@pytest.mark.parametrize("n", [1, 4])
def test_few_trials_of_an_unseen_domain_are_refused(n):
    alignment = EuclideanAlignment(unseen="fit").fit(subject(1))
    with pytest.raises(ShapeError, match=rf"{n} trials? of domain 2 .*at least 5"):
        alignment.transform(subject(2)[:n])
    with pytest.raises(ShapeError, match="at least 5"):
        alignment.fit(subject(1), target=subject(2)[:n])
    alignment.transform(subject(2)[:5])


# ---- singular recordings


def test_average_referenced_trials_keep_their_rank(alignment):
    trials = subject(1).replace(X=Reference().transform(subject(1).X, subject(1).frame)[0])
    x = alignment.fit_transform(trials).X
    assert np.isfinite(x).all()
    mean = covariances(x).mean(0).numpy()
    values = np.linalg.eigvalsh(mean)
    assert values[0] < 1e-6
    assert values[1] > 0.5
    if not hasattr(alignment, "metric"):
        np.testing.assert_allclose(mean, np.eye(4) - 0.25, atol=1e-4)


def test_shrinkage_moves_the_whitener_towards_a_multiple_of_the_identity(alignment):
    x = subject(1).X.astype(float)
    ratios = []
    for shrinkage in (0.0, 0.5, 0.99):
        values = np.linalg.eigvalsh(clone(alignment).set_params(shrinkage=shrinkage).fit(x).whiteners_[None])
        ratios.append(values[-1] / values[0])
    assert ratios[0] > ratios[1] > ratios[2]
    assert ratios[2] < 1.05


def test_trials_with_few_samples_need_shrinkage():
    x = subject(1, n_times=4).X.astype(float)  # rank 3
    with pytest.raises(NotSPDError, match=r"arrays without groups.*singular.*shrinkage"):
        RiemannianAlignment().fit(x)
    for alignment in (
        RiemannianAlignment(shrinkage=0.01),
        RiemannianAlignment("bures-wasserstein"),
        EuclideanAlignment(),
    ):
        assert np.isfinite(alignment.fit_transform(x)).all()


def test_wrong_shapes_are_refused(alignment):
    alignment.fit(subject(1))
    with pytest.raises(ShapeError, match=r"3 channels.*fitted to 4"):
        alignment.transform(subject(1).select(channels=NAMES[:3]))
    with pytest.raises(ShapeError, match=r"groups.*\(2,\).*24 trials"):
        alignment.fit(subject(1), groups=[1, 2])


def test_flat_trials_are_refused(alignment):
    with pytest.raises(NotSPDError, match="flat"):
        alignment.fit(np.ones((6, 4, 20)))


# ---- scikit-learn


def test_parameters_are_those_of_the_constructor(alignment):
    changed = clone(alignment.set_params(by="session", unseen="fit", shrinkage=0.2))
    assert {**changed.get_params(), "metric": None} == {
        "by": "session",
        "unseen": "fit",
        "shrinkage": 0.2,
        "metric": None,
    }


def test_alignment_is_a_step_of_a_pipeline_of_arrays(alignment):
    trials = subject(1)
    powers = FunctionTransformer(lambda x: np.log(x.var(-1)))
    pipeline = make_pipeline(alignment, powers, LogisticRegression()).fit(trials.X, trials.y)
    assert pipeline.score(trials.X, trials.y) > 0.8


def test_groups_and_target_are_routed_through_a_pipeline(alignment):
    trials, target = concatenate([subject(1), subject(5)]), subject(2)
    with sklearn.config_context(enable_metadata_routing=True):
        alignment.set_fit_request(groups="subjects", target=True).set_transform_request(groups="subjects")
        powers = FunctionTransformer(lambda x: np.log(x.var(-1)))
        pipeline = make_pipeline(alignment, powers, LogisticRegression())
        pipeline.fit(trials.X, trials.y, subjects=trials.subject, target=target.X)
    assert pipeline[0].whiteners_.keys() == {1, 5, None}
    assert pipeline.predict(target.X[:1]).shape == (1,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "run"}, "by='run'"),
        ({"unseen": "ignore"}, "unseen='ignore'"),
        ({"shrinkage": 1.0}, r"shrinkage=1.0 must be in \[0, 1\)"),
        ({"metric": "afine-invariant"}, "Did you mean 'affine-invariant'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ParameterError, match=message):
        RiemannianAlignment(**arguments).fit(subject(1))
