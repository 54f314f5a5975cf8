"""Scores, against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from gbwatt.decoding.metrics import Accuracy, score, wilson_interval
from gbwatt.experiments.statistics import weighted_f1


@pytest.mark.parametrize("n_classes", [2, 6])
def test_scores_are_those_of_scikit_learn(n_classes):
    rng = np.random.default_rng(0)
    y, probability = rng.integers(0, n_classes, 200), rng.dirichlet(np.ones(n_classes), 200)
    probability[np.arange(200), y] += 0.2
    probability /= probability.sum(1, keepdims=True)
    predicted = probability.argmax(1)
    found = score(y, probability, np.arange(n_classes), [f"class {c}" for c in range(n_classes)])
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, predicted))
    assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(y, predicted))
    assert found["kappa"] == pytest.approx(metrics.cohen_kappa_score(y, predicted))
    assert found["loss"] == pytest.approx(metrics.log_loss(y, probability))
    assert weighted_f1(found["confusion"]) == pytest.approx(metrics.f1_score(y, predicted, average="weighted"))
    if n_classes == 2:
        assert found["auc"] == pytest.approx(metrics.roc_auc_score(y, probability[:, 1]))
    else:
        assert found["auc"] is None
    assert found["per_class"]["class 1"]["recall"] == pytest.approx(metrics.recall_score(y == 1, predicted == 1))


def test_a_class_that_does_not_occur_does_not_count():
    y, probability = np.array([0, 0, 1]), np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.8, 0.1]])
    found = score(y, probability, np.arange(3), ("a", "b", "c"))
    assert found["balanced_accuracy"] == pytest.approx(0.75)
    assert weighted_f1(found["confusion"]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(("hits", "n"), [(0, 20), (1, 20), (50, 100), (99, 100), (288, 288)])
def test_wilson_interval_bounds_are_the_roots_of_the_score_test(hits, n):
    """Each bound p, unless it is at the edge, satisfies n (hits/n - p)² = z² p (1 - p)."""
    z = 1.959963984540054
    low, high = wilson_interval(hits, n)
    for p, edge in ((low, 0), (high, 1)):
        assert p == edge == hits / n or n * (hits / n - p) ** 2 == pytest.approx(z**2 * p * (1 - p), rel=1e-9)


def test_wilson_interval_contains_the_share_and_narrows_with_n():
    small, large = wilson_interval(7, 10), wilson_interval(700, 1000)
    assert small[0] < large[0] < 0.7 < large[1] < small[1]
    assert wilson_interval(5, 10)[0] == pytest.approx(1 - wilson_interval(5, 10)[1])


@pytest.mark.parametrize(("hits", "n"), [(3, 2), (-1, 2), (0, 0)])
def test_wilson_interval_refuses_impossible_counts(hits, n):
    with pytest.raises(ValueError, match=r"."):
        wilson_interval(hits, n)


def test_accuracy_comes_with_counts_and_interval():
    assert Accuracy.of(3, 4) == (4, 3, 0.75, wilson_interval(3, 4))
