"""Scores of classical models that show whether the classes of a data set can be decoded above chance."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom
from sklearn.metrics import accuracy_score, roc_auc_score

from gbwatt.data.description import chance_level
from gbwatt.data.splits import Splitter
from gbwatt.data.trials import Trials
from gbwatt.decoding.estimator import EEGDecoder
from gbwatt.errors import ParameterError
from gbwatt.models.classical import class_frequencies

Array = NDArray[Any]

#: Names that data sets may still use for a model.
FORMER_NAMES = {"tangent": "tangent-space"}


@dataclass(frozen=True)
class BaselineScore:
    """Test score of a classical model, compared with chance.

    Attributes
    ----------
    pipeline : str
        Name of the model.
    measure : "accuracy" or "AUC"
    score : float
    chance : float
        Expected score of guessing.
    chance_95 : float
        95th percentile of the score of guessing.
    n_test : int
        Number of test trials.
    """

    pipeline: str
    measure: str
    score: float
    chance: float
    chance_95: float
    n_test: int

    @property
    def decodable(self) -> bool:
        """Whether the score is significantly above chance (5 % level)."""
        return self.score > self.chance_95

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that can be written as JSON."""
        return {**asdict(self), "decodable": self.decodable}


def evaluate_baseline(trials: Trials, protocol: Splitter, pipeline: str) -> BaselineScore:
    """Fit a classical model to the training and validation trials of each split, and score it on the test trials.

    Parameters
    ----------
    trials : Trials
    protocol : Splitter
    pipeline : str
        Name of a classical model, such as "tangent-space", "cca" or "lda".  For "cca", the classes must be named by
        their frequencies.

    Returns
    -------
    BaselineScore
        The area under the ROC curve for "lda" with two classes, otherwise the accuracy.

    Raises
    ------
    ParameterError
        If a training set has a single class, or the classes are not named by frequencies ("cca").
    """
    pipeline = FORMER_NAMES.get(pipeline, pipeline)
    measure = "AUC" if pipeline == "lda" and len(trials.class_names) == 2 else "accuracy"
    labels, scores, counts = [], [], []
    for split in protocol.splits(trials):
        train, test = trials[np.concatenate([split.train, split.valid])], trials[split.test]
        _require_classes(split.name, train, *([test] if measure == "AUC" else []))
        decoder = EEGDecoder(pipeline, validation=None, model_options=_model_options(pipeline, train)).fit(train)
        if measure == "AUC":
            scores.append(roc_auc_score(test.y, decoder.predict_proba(test)[:, 1]))
        else:
            scores.append(accuracy_score(test.y, decoder.predict(test)))
        labels.append(test.y)
        counts.append(len(test))
    chance, limit = _chance_scores(np.concatenate(labels), measure)
    return BaselineScore(pipeline, measure, float(np.average(scores, weights=counts)), chance, limit, sum(counts))


Sanity, sanity = BaselineScore, evaluate_baseline  # former names


def _require_classes(name: str, *parts: Trials) -> None:
    """Raise an error unless each part of the split ``name`` has at least two classes."""
    for trials in parts:
        classes = np.unique(trials.labels)
        if len(classes) < 2:
            raise ParameterError(f"split {name!r} has trials of one class only, {classes[0]!r}; two are needed.")


def _model_options(pipeline: str, train: Trials) -> dict[str, Any]:
    """Options of the model for these training trials: for "cca", the frequencies in the class names."""
    if pipeline != "cca":
        return {}
    return {"frequencies": class_frequencies([train.class_names[number] for number in np.unique(train.y)])}


def _chance_scores(y: Array, measure: str) -> tuple[float, float]:
    """Return the expected score of guessing without looking at the trials, and the 95th percentile of this score.

    ``y`` are the class numbers of the test trials.  The accuracy is that of always guessing the most frequent class.
    """
    n = len(y)
    counts = np.bincount(y)
    if measure == "AUC":
        spread = np.sqrt((n + 1) / (12 * counts[0] * counts[1]))  # of the Mann-Whitney statistic
        return 0.5, float(0.5 + 1.645 * spread)
    share = chance_level(counts)
    return share, float(binom.ppf(0.95, n, share) / n)
