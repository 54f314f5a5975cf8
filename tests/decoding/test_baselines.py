"""Classical models decode an effect that exists, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gbwatt.data.splits import BySession, InOrder
from gbwatt.data.trials import Trials
from gbwatt.decoding.baselines import evaluate_baseline
from gbwatt.errors import ParameterError

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
        (imagery, 0.4, "tangent-space", "accuracy"),
        (potential, 0.8, "lda", "AUC"),
    ],
)
def test_pipeline_decodes_an_effect_and_only_that(make, strong, pipeline, measure):
    found = evaluate_baseline(make(strong), InOrder(), pipeline)
    assert (found.pipeline, found.measure) == (pipeline, measure)
    assert found.decodable
    assert found.score > 0.8
    nothing = evaluate_baseline(make(1.0 if pipeline == "tangent-space" else 0.0), InOrder(), pipeline)
    assert nothing.score < nothing.chance + 0.2
    assert not nothing.decodable
    assert found.to_dict()["decodable"] is True


def test_chance_is_that_of_the_largest_class():
    trials = potential(0).replace(y=np.repeat([0, 1, 0, 0, 1], 60), session=np.repeat(list("12345"), 60))
    found = evaluate_baseline(trials.replace(class_names=["a", "b"]), BySession(), "tangent-space")
    assert found.n_test == 60
    assert found.chance == 1.0  # the last session has one class only
    assert evaluate_baseline(imagery(1.0), InOrder(), "tangent-space").chance == 0.5


def test_chance_of_an_area_has_the_spread_of_random_scores():
    rng = np.random.default_rng(0)
    trials = potential(0)
    found = evaluate_baseline(trials, InOrder(), "lda")
    (split,) = InOrder().splits(trials)
    y = trials.y[split.test]
    areas = [stats.mannwhitneyu(s[y == 1], s[y == 0]).statistic for s in rng.standard_normal((2000, len(y)))]
    share = np.array(areas) / (np.sum(y == 1) * np.sum(y == 0))
    assert found.chance_95 == pytest.approx(np.quantile(share, 0.95), abs=0.01)


def test_a_flat_and_a_repeated_channel_do_not_break_it():
    trials = imagery(0.4)
    x = trials.X.copy()
    x[:, 4], x[:, 5] = 0, x[:, 0]
    assert evaluate_baseline(trials.replace(X=x), InOrder(), "tangent-space").score > 0.7


def test_classes_without_frequencies_are_refused():
    with pytest.raises(ParameterError, match="not named by frequencies"):
        evaluate_baseline(imagery(1), InOrder(), "cca")
    with pytest.raises(ParameterError, match="Did you mean 'tangent-space'"):
        evaluate_baseline(imagery(1), InOrder(), "tangent-spac")


def test_the_former_name_of_the_tangent_space_is_accepted():
    former, current = (evaluate_baseline(imagery(0.7), InOrder(), name) for name in ("tangent", "tangent-space"))
    assert former == current
    assert current.pipeline == "tangent-space"


def test_frequencies_belong_to_the_classes_of_the_training_trials():
    trials = ssvep(0.7)
    kept = trials[trials.y != 1]
    assert evaluate_baseline(kept, InOrder(), "cca").score > 0.8
