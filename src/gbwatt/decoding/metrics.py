"""Scores of a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

Array = NDArray[Any]


def score(y: Array, probability: Array, classes: Array, class_names: Sequence[str]) -> dict[str, Any]:
    """All scores of true classes ``y`` (n,) and probabilities (n, n_classes), whose columns are ``classes``.

    Accuracy, balanced accuracy, Cohen's kappa, the area under the ROC curve of the second of two classes, the mean
    negative logarithm of the likelihood, recall and precision of each class, and the confusion matrix.

    Examples
    --------
    >>> import numpy as np
    >>> found = score(np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]), np.arange(2), ("no", "yes"))
    >>> found["balanced_accuracy"], found["auc"], found["confusion"]
    (0.75, 1.0, [[1, 0], [1, 1]])
    """
    predicted = classes[probability.argmax(1)]
    confusion = metrics.confusion_matrix(y, predicted, labels=classes)
    chosen = np.searchsorted(classes, y)
    likelihood = np.clip(probability[np.arange(len(chosen)), chosen], np.finfo(float).tiny, None)
    return {
        "accuracy": float((predicted == y).mean()),
        "balanced_accuracy": _mean_recall(confusion),
        "kappa": float(metrics.cohen_kappa_score(y, predicted, labels=classes)),
        "auc": _auc(y == classes[1], probability[:, 1]) if len(classes) == 2 else None,
        "loss": float(-np.log(likelihood).mean()),
        "per_class": _per_class(confusion, class_names),
        "confusion": confusion.tolist(),
    }


def _mean_recall(confusion: Array) -> float:
    """Over the classes that occur."""
    true = confusion.sum(1)
    return float((np.diag(confusion)[true > 0] / true[true > 0]).mean())


def _auc(positive: Array, probability: Array) -> float | None:
    """Area under the curve; None if all are of one class."""
    return float(metrics.roc_auc_score(positive, probability)) if 0 < positive.sum() < len(positive) else None


def _per_class(confusion: Array, names: Sequence[str]) -> dict[str, dict[str, float]]:
    hits, true, said = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    return {
        name: {
            "recall": float(hits[i] / max(true[i], 1)),
            "precision": float(hits[i] / max(said[i], 1)),
            "n": float(true[i]),
        }
        for i, name in enumerate(names)
    }
