"""Classical pipelines find what is there, and nothing where nothing is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from gbwatt.data.baselines import CanonicalCorrelation, TangentSpace, TimeBins, evaluate_baseline, frequencies
from gbwatt.data.splits import BySession, InOrder
from gbwatt.data.trials import Trials
from gbwatt.errors import ParameterError
from gbwatt.geometry import AffineInvariant

SFREQ = 125


def ssvep(amplitude: float) -> Trials:
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(5), 20)
    f = np.array([12, 10, 8.57, 7.5, 6.66])[y]
    times = np.arange(SFREQ) / SFREQ
    wave = np.sin(2 * np.pi * f[:, None] * times + rng.uniform(0, 6, (100, 1)))
    x = rng.standard_normal((100, 8, SFREQ)) + amplitude * wave[:, None] * rng.uniform(0.5, 1, (1, 8, 1))
    names = ["12 Hz", "10 Hz", "8.57 Hz", "7.5 Hz", "6.66 Hz"]
    return Trials(X=x, y=y, class_names=names, ch_names=[f"O{i}" for i in range(8)], sfreq=SFREQ)


def imagery(contrast: float) -> Trials:
    rng = np.random.default_rng(1)
    y = np.tile([0, 1], 60)
    sources = rng.standard_normal((120, 6, 200))
    sources[np.arange(120), y] *= contrast
    x = np.einsum("cs,nst->nct", rng.standard_normal((6, 6)), sources)
    return Trials(X=x, y=y, class_names=["left", "right"], ch_names=[f"C{i}" for i in range(6)], sfreq=100)


def potential(size: float) -> Trials:
    rng = np.random.default_rng(2)
    y = (rng.random(300) < 0.7).astype(int)
    x = rng.standard_normal((300, 4, 128))
    x[y == 0, 1] -= size * np.exp(-((np.arange(128) / 128 - 0.3) ** 2) / 0.005)
    return Trials(X=x, y=y, class_names=["error", "correct"], ch_names=["Fz", "FCz", "Cz", "Pz"], sfreq=128)


@pytest.mark.parametrize(
    ("make", "strong", "pipeline", "measure"),
    [
        (ssvep, 0.7, "cca", "accuracy"),
        (imagery, 0.4, "tangent", "accuracy"),
        (potential, 0.8, "lda", "AUC"),
    ],
)
def test_pipeline_decodes_an_effect_and_only_that(make, strong, pipeline, measure):
    found = evaluate_baseline(make(strong), InOrder(), pipeline)
    assert (found.pipeline, found.measure) == (pipeline, measure)
    assert found.decodable
    assert found.score > 0.8
    nothing = evaluate_baseline(make(1.0 if pipeline == "tangent" else 0.0), InOrder(), pipeline)
    assert nothing.score < nothing.chance + 0.2
    assert not nothing.decodable
    assert found.to_dict()["decodable"] is True


def test_chance_is_that_of_the_largest_class():
    trials = potential(0).replace(y=np.repeat([0, 1, 0, 0, 1], 60), session=np.repeat(list("12345"), 60))
    found = evaluate_baseline(trials.replace(class_names=["a", "b"]), BySession(), "tangent")
    assert found.n_test == 60
    assert found.chance == 1.0  # the last session has one class only
    assert evaluate_baseline(imagery(1.0), InOrder(), "tangent").chance == 0.5


def test_chance_of_an_area_has_the_spread_of_random_scores():
    rng = np.random.default_rng(0)
    trials = potential(0)
    found = evaluate_baseline(trials, InOrder(), "lda")
    (split,) = InOrder().splits(trials)
    y = trials.y[split.test]
    areas = [stats.mannwhitneyu(s[y == 1], s[y == 0]).statistic for s in rng.standard_normal((2000, len(y)))]
    share = np.array(areas) / (np.sum(y == 1) * np.sum(y == 0))
    assert found.chance_95 == pytest.approx(np.quantile(share, 0.95), abs=0.01)


def test_tangent_vectors_have_the_length_of_the_distance_to_the_mean():
    x = imagery(0.5).X[:20]
    space = TangentSpace().fit(x)
    lengths = np.linalg.norm(space.transform(x), axis=1)
    c = torch.as_tensor(np.stack([np.cov(trial, bias=True) for trial in x.astype(float)]))
    scale = c.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
    c = 0.999 * c + 0.001 * scale * torch.eye(6, dtype=torch.float64)
    mean = AffineInvariant().mean(c)
    assert lengths == pytest.approx(AffineInvariant().dist(c, mean).numpy(), rel=1e-6)


@pytest.mark.peers
def test_tangent_vectors_are_those_of_pyriemann():
    tangentspace = pytest.importorskip("pyriemann.tangentspace", reason="install the extra [peers]")
    from gbwatt.data.baselines import _covariances

    x = imagery(0.5).X
    ours = TangentSpace().fit(x[:60]).transform(x[60:])
    theirs = tangentspace.TangentSpace().fit(_covariances(x[:60]).numpy()).transform(_covariances(x[60:]).numpy())
    assert ours == pytest.approx(theirs, abs=1e-5)


def test_correlation_is_that_of_scikit_learn():
    from sklearn.cross_decomposition import CCA

    trials = ssvep(0.5)
    ours = CanonicalCorrelation((12.0,), SFREQ, n_harmonics=1).fit(trials.X).decision_function(trials.X[:3])[:, 0]
    phases = 2 * np.pi * 12 * np.arange(SFREQ) / SFREQ
    reference = np.stack([np.sin(phases), np.cos(phases)], axis=1)
    for trial, value in zip(trials.X[:3], ours, strict=True):
        a, b = CCA(n_components=1, max_iter=5000, tol=1e-9).fit_transform(trial.T, reference)
        assert value == pytest.approx(abs(np.corrcoef(a[:, 0], b[:, 0])[0, 1]), abs=1e-4)


def test_harmonics_help_a_wave_that_has_them():
    times = np.arange(SFREQ) / SFREQ
    x = np.sin(2 * np.pi * 20 * times)[None, None] + 0.1 * np.random.default_rng(0).standard_normal((1, 2, SFREQ))
    one, two = (CanonicalCorrelation((10.0,), SFREQ, n).fit(x).decision_function(x) for n in (1, 2))
    assert one < 0.5 < 0.95 < two


def test_bins_are_means_of_consecutive_samples():
    x = np.arange(2 * 7, dtype=float).reshape(1, 2, 7)
    assert TimeBins(3).fit(x).transform(x).tolist() == [[1, 4, 8, 11]]


def test_a_flat_and_a_repeated_channel_do_not_break_it():
    trials = imagery(0.4)
    x = trials.X.copy()
    x[:, 4], x[:, 5] = 0, x[:, 0]
    assert evaluate_baseline(trials.replace(X=x), InOrder(), "tangent").score > 0.7


def test_classes_without_frequencies_are_refused():
    assert frequencies(("6.66", "7.50 Hz")) == (6.66, 7.5)
    with pytest.raises(ParameterError, match="not named by frequencies"):
        evaluate_baseline(imagery(1), InOrder(), "cca")
    with pytest.raises(ParameterError, match="Did you mean 'tangent'"):
        evaluate_baseline(imagery(1), InOrder(), "tangnt")
