"""Scores, against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from gbwatt.decoding.metrics import score
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
