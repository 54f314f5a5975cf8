"""Temperature of a classifier: one number by which logits are divided, so that probabilities are frequencies."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from gbwatt.data.splits import folds_of
from gbwatt.decoding.inputs import Array, Examples, Sets, user_stacklevel
from gbwatt.errors import CalibrationWarning, ParameterError

#: Kinds of calibration.
CALIBRATIONS = ("temperature",)
#: Folds of the cross-validation that gives logits of trials without a training on them.
FOLDS = 3
#: Range of the temperature.
LOWEST, HIGHEST = 1e-2, 1e2


def fit_temperature(logits: Tensor, y: Tensor) -> float:
    r"""Temperature with the lowest log loss of trials that the logits were not fitted to.

    .. math:: T = \arg\min_T \; -\frac{1}{n} \sum_i \log \mathrm{softmax}(z_i / T)_{y_i}

    Every trial has the same weight, also if the classes had weights in training.  The loss is convex in 1/T, and its
    derivative is zero where the mean logit of the true classes equals the mean logit under the predicted
    probabilities [1]_.  T is between 0.01 and 100; 100 is the result if the logits carry no information.

    Parameters
    ----------
    logits : Tensor, shape (n, n_classes)
    y : Tensor, shape (n,)
        True classes.

    Returns
    -------
    float

    Warns
    -----
    CalibrationWarning
        If the largest logit is that of the true class for all trials: the loss then decreases for every lower
        temperature, and the result is 1.  If the logits carry no information, and the result is 100.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger, "On calibration of modern neural networks", ICML 2017.

    Examples
    --------
    >>> z = torch.log(torch.tensor([[0.9, 0.1]])).expand(4, 2)  # four predictions with probability 0.9 ...
    >>> temperature = fit_temperature(z, torch.tensor([0, 0, 0, 1]))  # ... of which three are correct
    >>> (z / temperature).softmax(-1)[0, 0].item()  # doctest: +ELLIPSIS
    0.75...
    """
    z = logits.double()
    z = z - z.gather(1, y[:, None])  # relative to the true class
    if bool((z <= 0).all()):
        warnings.warn(
            f"All {len(z)} trials for calibration are classified correctly, so that no temperature has the lowest log "
            "loss; it stays 1. More trials are needed to calibrate the probabilities.",
            CalibrationWarning,
            stacklevel=user_stacklevel(),
        )
        return 1.0

    def slope(inverse: float) -> float:
        """Derivative of the loss with respect to the inverse temperature; it increases."""
        return float(((inverse * z).softmax(-1) * z).sum(-1).mean())

    if slope(1 / HIGHEST) >= 0:
        warnings.warn(
            f"The predictions of the {len(z)} trials for calibration carry no information, so that all probabilities "
            f"become nearly equal (temperature {HIGHEST:g}). Train longer, or with more trials.",
            CalibrationWarning,
            stacklevel=user_stacklevel(),
        )
        return HIGHEST
    if slope(1 / LOWEST) <= 0:
        return LOWEST
    return 1 / float(brentq(slope, 1 / HIGHEST, 1 / LOWEST, xtol=1e-12, rtol=1e-12))


#: Indices of the trials for training and for test.
Fold = tuple[Array, Array]


def calibration_folds(sets: Sets) -> list[Fold]:
    """Divide training trials into :data:`FOLDS` folds of consecutive trials of each class; groups are not divided.

    ``sets`` has no validation trials.

    Raises
    ------
    ParameterError
        If a class has a single trial, or trials of one group only.
    """
    y = sets.train.y.numpy()
    group = np.arange(len(y)) if sets.groups is None else np.asarray(sets.groups)
    group = np.concatenate([group, group.max() + 1 + np.arange(len(y) - len(group))])  # separate validation trials
    folds = min(FOLDS, *(len(np.unique(group[y == label])) for label in np.unique(y)))
    if folds < 2:
        raise ParameterError(
            "calibration='temperature' needs two trials of each class for cross-validation, of different groups; give "
            "more trials, or validation trials."
        )
    # a fold has no trials if its groups have several classes and are in other folds
    return [(train, test) for train, test in folds_of(y, group, folds) if len(test)]


def cross_validated_logits(
    train: Examples, folds: Sequence[Fold], train_and_predict: Callable[[Examples, Examples], Tensor]
) -> tuple[Tensor, Tensor]:
    """Logits (n, n_classes) and classes (n,) of training trials, by networks that were trained on the other folds.

    Parameters
    ----------
    train : Examples
    folds : sequence of (train, test)
        Each trial is tested once.
    train_and_predict : callable
        Trains on the first examples, and returns the logits of the second.
    """
    parts = [tuple(Examples(*train[torch.from_numpy(rows)]) for rows in fold) for fold in folds]
    order = torch.from_numpy(np.concatenate([test for _, test in folds]))
    logits = torch.cat([train_and_predict(part, others) for part, others in parts])
    return logits[order.argsort()], train.y
