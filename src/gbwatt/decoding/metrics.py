"""Scores of a classifier, with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn import metrics
from torch import Tensor
from torch.nn import CrossEntropyLoss
from torch.nn import functional as F

Array = NDArray[Any]


def wilson_interval(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % confidence interval of a proportion, from ``hits`` successes in ``n`` trials.

    Examples
    --------
    >>> low, high = wilson_interval(80, 100)
    >>> round(low, 4), round(high, 4)
    (0.7112, 0.8666)
    """
    interval = binomtest(hits, n).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


class Accuracy(NamedTuple):
    """Accuracy, with the counts behind it and Wilson's 95 % confidence interval."""

    n: int
    hits: int
    accuracy: float
    accuracy_95: tuple[float, float]

    @classmethod
    def of(cls, hits: int, n: int) -> Accuracy:
        """Accuracy of ``hits`` correct predictions in ``n`` trials.

        Examples
        --------
        >>> Accuracy.of(80, 100).accuracy
        0.8
        """
        return cls(n, hits, hits / n, wilson_interval(hits, n))


#: Number of bins of confidence, of equal width from 0 to 1, in reliability diagrams and their calibration error.
N_BINS = 10


class ReliabilityBin(NamedTuple):
    """Predictions whose confidence, the largest probability, is above ``low`` and at most ``high``."""

    low: float
    high: float
    n: int
    confidence: float  # mean
    accuracy: float


def reliability(hits: Array, confidence: Array, n_bins: int = N_BINS) -> list[ReliabilityBin]:
    """Accuracy of predictions by their confidence, in bins of equal width; bins without predictions are left out.

    Parameters
    ----------
    hits : array (n,)
        Whether each prediction is correct.
    confidence : array (n,)
        Probability of the predicted class.
    n_bins : int

    Examples
    --------
    >>> reliability(np.array([True, False, True, True]), np.array([0.75, 0.75, 1.0, 1.0]), n_bins=2)
    [ReliabilityBin(low=0.5, high=1.0, n=4, confidence=0.875, accuracy=0.75)]
    """
    edges = np.linspace(0, 1, n_bins + 1)
    number = np.searchsorted(edges[1:-1], confidence)
    bins = []
    for place in np.unique(number).tolist():
        rows = number == place
        low, high = edges[place : place + 2].tolist()
        bins.append(
            ReliabilityBin(low, high, int(rows.sum()), float(confidence[rows].mean()), float(hits[rows].mean()))
        )
    return bins


def calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    r"""Expected calibration error [1]_ of the bins of :func:`reliability`.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} |\mathrm{accuracy}_b - \mathrm{confidence}_b|

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger, "On calibration of modern neural networks", ICML 2017, eq. (3).

    Examples
    --------
    >>> certain = reliability(np.array([True, True, False, False]), np.ones(4))
    >>> calibration_error(certain)
    0.5
    """
    return sum(one.n * abs(one.accuracy - one.confidence) for one in bins) / sum(one.n for one in bins)


def score(y: Array, probability: Array, classes: Array, class_names: Sequence[str]) -> dict[str, Any]:
    """All scores of true classes ``y`` (n,) and probabilities (n, n_classes), whose columns are ``classes``.

    Accuracy, balanced accuracy, Cohen's kappa, the area under the ROC curve of the second of two classes, the mean
    negative logarithm of the likelihood, the expected calibration error with the bins of the reliability diagram,
    recall and precision of each class, and the confusion matrix.

    Examples
    --------
    >>> import numpy as np
    >>> scores = score(np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]), np.arange(2), ("no", "yes"))
    >>> scores["balanced_accuracy"], scores["auc"], scores["confusion"]
    (0.75, 1.0, [[1, 0], [1, 1]])
    """
    predicted = classes[probability.argmax(1)]
    confusion = metrics.confusion_matrix(y, predicted, labels=classes)
    chosen = np.searchsorted(classes, y)
    bins = reliability(predicted == y, probability.max(1))
    likelihood = np.clip(probability[np.arange(len(chosen)), chosen], np.finfo(float).tiny, None)
    return {
        "accuracy": float((predicted == y).mean()),
        "balanced_accuracy": mean_recall(np.diag(confusion), confusion.sum(1)),
        "kappa": float(metrics.cohen_kappa_score(y, predicted, labels=classes)),
        "auc": _auc(y == classes[1], probability[:, 1]) if len(classes) == 2 else None,
        "loss": float(-np.log(likelihood).mean()),
        "calibration_error": calibration_error(bins),
        "reliability": [one._asdict() for one in bins],
        "per_class": _scores_per_class(confusion, class_names),
        "confusion": confusion.tolist(),
    }


def mean_recall(hits: Array, true: Array) -> float:
    """Mean recall of the classes that occur, from the correct predictions and the trials of each class.

    Examples
    --------
    >>> mean_recall(np.array([3, 1, 0]), np.array([4, 4, 0]))
    0.5
    """
    return float((hits[true > 0] / true[true > 0]).mean())


def _auc(positive: Array, probability: Array) -> float | None:
    """Area under the ROC curve for a mask of positive trials; None if all trials are of one class."""
    return float(metrics.roc_auc_score(positive, probability)) if 0 < positive.sum() < len(positive) else None


def _scores_per_class(confusion: Array, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Recall, precision and number of trials of each class, by its name."""
    hits, true, predicted = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    return {
        name: {
            "recall": float(hits[i] / max(true[i], 1)),
            "precision": float(hits[i] / max(predicted[i], 1)),
            "n": float(true[i]),
        }
        for i, name in enumerate(names)
    }


# ---------------------------------------------------------------------------------------------------------- validation


def weighted_cross_entropy(
    logits: Tensor, y: Tensor, criterion: CrossEntropyLoss, sample_weight: Tensor | None = None
) -> Tensor:
    r"""Cross entropy with weights of classes and trials, :math:`\sum_i w_i c_{y_i} \ell_i / \sum_i w_i c_{y_i}`.

    As in :class:`torch.nn.CrossEntropyLoss`, which it equals for equal weights of the trials, the sum of the weights
    normalises the loss.  It is 0 if all weights are 0.

    Parameters
    ----------
    logits : Tensor, shape (n, n_classes)
    y : Tensor, shape (n,)
        True classes.
    criterion : CrossEntropyLoss
        With the weights c of the classes, and the label smoothing.
    sample_weight : Tensor, shape (n,), optional
        Weights w of the trials; 0 or more.

    Examples
    --------
    >>> logits, y, w = torch.randn(3, 2), torch.tensor([0, 1, 1]), torch.tensor([1.0, 2.0, 0.0])
    >>> loss = weighted_cross_entropy(logits, y, CrossEntropyLoss(), w)
    >>> torch.allclose(loss, CrossEntropyLoss()(logits[[0, 1, 1]], y[[0, 1, 1]]))
    True
    """
    if sample_weight is None:
        loss: Tensor = criterion(logits, y)
        return loss
    classes = criterion.weight
    losses = F.cross_entropy(logits, y, classes, reduction="none", label_smoothing=criterion.label_smoothing)
    weights = sample_weight.to(losses.dtype)
    total = weights.sum() if classes is None else weights @ classes[y].to(losses.dtype)
    return (weights @ losses) / total.clamp_min(torch.finfo(losses.dtype).tiny)


class BatchScores(NamedTuple):
    """Sums over a batch, in float64, so that the scores of a whole set do not depend on its batches."""

    loss: float
    weight: float
    hits: Array  # correct predictions of each class
    true: Array  # trials of each class

    @classmethod
    def of(
        cls, logits: Tensor, y: Tensor, class_weights: Tensor | None = None, sample_weight: Tensor | None = None
    ) -> BatchScores:
        """Sums of a batch with logits (n, n_classes) and true classes (n,).

        Weights of the classes (n_classes,) and of the trials (n,) apply to the loss, not to the accuracy.
        """
        logits, y = logits.cpu().double(), y.cpu()
        weights = None if class_weights is None else class_weights.cpu().double()
        if sample_weight is None:
            loss = F.cross_entropy(logits, y, weights, reduction="sum")
            weight = len(y) if weights is None else float(weights[y].sum())
        else:
            own = sample_weight.cpu().double()
            loss = own @ F.cross_entropy(logits, y, weights, reduction="none")
            weight = float(own.sum() if weights is None else own @ weights[y])
        hits, true = (torch.bincount(k, minlength=logits.shape[1]).numpy() for k in (y[logits.argmax(-1) == y], y))
        return cls(float(loss), weight, hits, true)


def summarize(batches: Sequence[BatchScores], balanced: bool = False) -> tuple[float, float]:
    """Mean loss and accuracy of a set of batches; ``balanced`` gives the mean recall of the classes as accuracy.

    Examples
    --------
    >>> logits, y = torch.tensor([[0.0, 9.0], [9.0, 0.0], [0.0, 9.0]]), torch.tensor([1, 0, 0])
    >>> loss, accuracy = summarize([BatchScores.of(logits[:2], y[:2]), BatchScores.of(logits[2:], y[2:])])
    >>> round(loss, 3), round(accuracy, 3)
    (3.0, 0.667)
    """
    loss, weight, hits, true = (sum(column) for column in zip(*batches, strict=True))
    return loss / weight, mean_recall(hits, true) if balanced else float(hits.sum() / true.sum())
