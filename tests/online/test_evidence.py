"""Combination of windows, and its calibration on validation trials."""

from __future__ import annotations

import numpy as np
import pytest

from gbwatt.errors import ParameterError, ShapeError
from gbwatt.online import Evidence


def trials(n: int, n_windows: int, overlap: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated probabilities of two classes; windows share a part of their evidence."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    shared, own = rng.standard_normal((n, 1)), rng.standard_normal((n, n_windows))
    x = (2 * y - 1)[:, None] * 0.8 + np.sqrt(overlap) * shared + np.sqrt(1 - overlap) * own
    p = 1 / (1 + np.exp(-1.6 * x))
    return np.stack([1 - p, p], -1), y


def test_one_window_with_weight_one_is_unchanged():
    p = np.array([[0.2, 0.5, 0.3]])
    np.testing.assert_allclose(Evidence().combine(p), p[0])


def test_independent_windows_multiply_their_odds():
    p = np.array([[0.9, 0.1], [0.8, 0.2]])
    np.testing.assert_allclose(Evidence(2).combine(p), np.array([0.72, 0.02]) / 0.74)


def test_zero_probabilities_stay_finite():
    combined = Evidence(3).combine(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    assert np.isfinite(combined).all()
    assert combined.argmax() == 0


@pytest.mark.parametrize("overlap, low, high", [(0.0, 0.8, 1.2), (1.0, 0.2, 0.3)])
def test_the_weight_of_calibrated_windows_is_one_if_independent_and_their_share_if_equal(overlap, low, high):
    p, y = trials(4000, 4, overlap)
    evidence = Evidence.calibrate(p, y)
    assert low < evidence.weight < high
    assert evidence.n_windows == 4
    assert evidence.threshold == 0


def test_the_threshold_reaches_the_accuracy_with_as_many_decisions_as_possible():
    p, y = trials(2000, 3, 0.5)
    evidence = Evidence.calibrate(p, y, accuracy=0.95)
    combined = evidence.combine(p)
    decided = combined.max(1) >= evidence.threshold
    correct = combined.argmax(1) == y
    assert correct[decided].mean() >= 0.95
    confidences = np.sort(combined.max(1))
    lower = confidences[confidences < evidence.threshold]
    assert all(correct[combined.max(1) >= t].mean() < 0.95 for t in lower)
    assert correct.mean() < 0.95


def test_an_accuracy_out_of_reach_is_an_error():
    p = np.full((10, 2, 2), 0.5)
    with pytest.raises(ParameterError, match="not reached on the 10 validation trials"):
        Evidence.calibrate(p, np.arange(10) % 2, accuracy=0.9)


@pytest.mark.parametrize(
    "arguments, message",
    [({"n_windows": 0}, "n_windows=0"), ({"weight": 0}, "weight=0"), ({"threshold": 1.5}, "threshold=1.5")],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ParameterError, match=message):
        Evidence(**arguments)


def test_wrong_calibration_data_are_named():
    with pytest.raises(ShapeError, match="trials, windows, classes"):
        Evidence.calibrate(np.zeros((3, 2)), [0, 1, 0])
    with pytest.raises(ParameterError, match="class numbers from 0 to 1"):
        Evidence.calibrate(np.full((3, 1, 2), 0.5), [0, 1, 2])
    with pytest.raises(ParameterError, match="accuracy=0"):
        Evidence.calibrate(np.full((3, 1, 2), 0.5), [0, 1, 1], accuracy=0)
