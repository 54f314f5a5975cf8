"""Accumulation of the evidence of several windows, and a threshold below which no decision is made."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from gbwatt._validation import check_at_least, check_number
from gbwatt.errors import ParameterError, ShapeError

Array = NDArray[Any]

#: Smallest probability whose logarithm is taken.
TINY = 1e-12


@dataclass(frozen=True)
class Evidence:
    r"""How the probabilities of successive windows are combined.

    With the probabilities :math:`p_1, …, p_n` of the last n windows, those of a decision are

    .. math:: p ∝ \exp\Big(w \sum_{i=1}^n \log p_i\Big).

    Independent windows have the weight :math:`w = 1`, identical windows :math:`w = 1 / n`; :meth:`calibrate` estimates
    the weight of windows that overlap.

    Parameters
    ----------
    n_windows : int
        Number of windows that are combined.
    weight : float
        The weight w.
    threshold : float
        Smallest probability of the most probable class for a decision, from 0 (always) to 1.

    Examples
    --------
    >>> evidence = Evidence(n_windows=2)
    >>> evidence.combine(np.array([[0.8, 0.2], [0.8, 0.2]])).round(3)
    array([0.941, 0.059])
    """

    n_windows: int = 1
    weight: float = 1.0
    threshold: float = 0.0

    def __post_init__(self) -> None:
        check_at_least("n_windows", self.n_windows, 1)
        for name in ("weight", "threshold"):
            check_number(name, getattr(self, name))
        if not self.weight > 0:
            raise ParameterError(f"weight={self.weight} must be positive.")
        if not 0 <= self.threshold <= 1:
            raise ParameterError(f"threshold={self.threshold} must be between 0 and 1.")

    def combine(self, probabilities: Array) -> Array:
        """Combine the probabilities of windows.

        Parameters
        ----------
        probabilities : array (..., n_windows, n_classes)

        Returns
        -------
        array (..., n_classes)
        """
        logs = np.log(np.maximum(probabilities, TINY)).sum(-2)
        return _softmax(self.weight * logs)

    @classmethod
    def calibrate(cls, probabilities: Any, labels: Any, *, accuracy: float | None = None) -> Self:
        """Choose weight and threshold on validation trials.

        Parameters
        ----------
        probabilities : array (n_trials, n_windows, n_classes)
            Probabilities of successive windows of each validation trial, as an online decoder gives them.
        labels : array (n_trials,)
            Class numbers.
        accuracy : float, optional
            Accuracy of the decisions that is wanted: the threshold is the lowest one that reaches it on the validation
            trials.  By default, a decision is always made.

        Returns
        -------
        Evidence
            The weight with the lowest log loss.

        Raises
        ------
        ParameterError
            If no threshold reaches the accuracy.
        """
        p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
        if p.ndim != 3 or y.shape != p.shape[:1] or not len(y):
            raise ShapeError(
                f"'probabilities' {p.shape} and 'labels' {y.shape} are not (trials, windows, classes) and (trials,)."
            )
        if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= p.shape[2]:
            raise ParameterError(f"'labels' must be class numbers from 0 to {p.shape[2] - 1}.")
        logs = np.log(np.maximum(p, TINY)).sum(1)

        def loss(log_weight: float) -> float:
            combined = _softmax(np.exp(log_weight) * logs)
            return float(-np.log(np.maximum(combined[np.arange(len(y)), y], TINY)).mean())

        bounds = (np.log(1e-2 / p.shape[1]), np.log(10.0))
        weight = float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))
        combined = _softmax(weight * logs)
        return cls(p.shape[1], weight, 0.0 if accuracy is None else _threshold(combined, y, accuracy))


def _threshold(probabilities: Array, y: Array, accuracy: float) -> float:
    """Return the lowest threshold for which decisions on trials reach an accuracy."""
    check_number("accuracy", accuracy)
    if not 0 < accuracy <= 1:
        raise ParameterError(f"accuracy={accuracy} must be above 0 and at most 1.")
    confidence, correct = probabilities.max(1), probabilities.argmax(1) == y
    order = np.argsort(-confidence, kind="stable")
    reached = np.cumsum(correct[order]) / np.arange(1, len(y) + 1)  # accuracy of the most confident trials
    last_of_ties = np.append(np.diff(confidence[order]) != 0, True)
    enough = np.flatnonzero((reached >= accuracy) & last_of_ties)
    if not enough.size:
        raise ParameterError(
            f"accuracy={accuracy:g} is not reached on the {len(y)} validation trials, not even by the most confident "
            f"decisions (at most {reached.max():.3f}); ask for less, or combine more windows."
        )
    return float(confidence[order][enough[-1]])


def _softmax(x: Array) -> Array:
    """Return the softmax over the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    total: Array = e / e.sum(-1, keepdims=True)
    return total


class Accumulator:
    """The probabilities of the last windows of a running recording.

    Parameters
    ----------
    evidence : Evidence
    """

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self._last: deque[Array] = deque(maxlen=evidence.n_windows)

    def reset(self) -> None:
        """Forget all windows."""
        self._last.clear()

    def add(self, probabilities: Array) -> Array:
        """Add the probabilities (n_classes,) of a window; return the combined ones (n_classes,)."""
        if self.evidence.n_windows == 1 and self.evidence.weight == 1:
            return probabilities
        self._last.append(probabilities)
        return self.evidence.combine(np.stack(self._last))
