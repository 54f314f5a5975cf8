"""Is there anything to decode?  A classical pipeline for each kind of recording, beside chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.pipeline import make_pipeline

from gbwatt._validation import check_one_of
from gbwatt.data.splits import Splitter
from gbwatt.data.trials import Trials
from gbwatt.errors import ParameterError
from gbwatt.geometry import AffineInvariant, invsqrtm, logm, vech
from gbwatt.geometry.linalg import congruence

Array = NDArray[Any]


@dataclass(frozen=True)
class Sanity:
    """What a classical pipeline reaches on the test trials of a protocol, and what guessing would.

    ``chance`` is what guessing reaches on average, and ``chance_95`` what it exceeds once in twenty times.
    """

    pipeline: str
    measure: str  # "accuracy" or "AUC"
    score: float
    chance: float
    chance_95: float
    n_test: int

    @property
    def decodable(self) -> bool:
        """Whether the score is above what guessing may reach."""
        return self.score > self.chance_95

    def to_dict(self) -> dict[str, Any]:
        """In a form that JSON keeps."""
        return {**asdict(self), "decodable": self.decodable}


def sanity(trials: Trials, protocol: Splitter, pipeline: str) -> Sanity:
    """Train a pipeline on the training and validation trials of each split, and score it on the test trials.

    Parameters
    ----------
    trials : Trials
    protocol : Splitter
    pipeline : "tangent", "cca" or "lda"
        Covariances in the affine-invariant tangent space with logistic regression; canonical correlation with sines of
        the frequencies that the classes are named after; means over 50 ms with shrinkage LDA.  Two classes of the last
        are scored by the area under the ROC curve, all else by accuracy.
    """
    check_one_of("pipeline", pipeline, tuple(PIPELINES))
    measure = "AUC" if pipeline == "lda" and len(trials.class_names) == 2 else "accuracy"
    truth, scores, found = [], [], []
    for split in protocol.splits(trials):
        known = np.concatenate([split.train, split.valid])
        _require_classes(trials, split.name, known, split.test if measure == "AUC" else known)
        model = PIPELINES[pipeline](trials).fit(trials.X[known], trials.y[known])
        y, x = trials.y[split.test], trials.X[split.test]
        if measure == "AUC":
            scores.append(roc_auc_score(y, model.predict_proba(x)[:, 1]))
        else:
            scores.append(accuracy_score(y, model.predict(x)))
        truth.append(y)
        found.append(len(y))
    chance, limit = _chance(np.concatenate(truth), measure)
    return Sanity(pipeline, measure, float(np.average(scores, weights=found)), chance, limit, sum(found))


def _require_classes(trials: Trials, name: str, *parts: Array) -> None:
    """Refuse parts in which there is nothing to tell apart."""
    for rows in parts:
        there = np.unique(trials.labels[rows])
        if len(there) < 2:
            raise ParameterError(f"split {name!r} has trials of one class only, {there[0]!r}; two are needed.")


def chance_level(counts: Any) -> float:
    """Accuracy of always predicting the most frequent class, from the number of trials of each class.

    Examples
    --------
    >>> chance_level([20, 20, 24, 16])
    0.3
    """
    return float(np.max(counts) / np.sum(counts))


def _chance(y: Array, measure: str) -> tuple[float, float]:
    """Expected score of the best guess that does not look at the trials, and its 95th percentile."""
    n = len(y)
    counts = np.bincount(y)
    if measure == "AUC":
        spread = np.sqrt((n + 1) / (12 * counts[0] * counts[1]))  # of the Mann-Whitney statistic
        return 0.5, float(0.5 + 1.645 * spread)
    share = chance_level(counts)
    return share, float(binom.ppf(0.95, n, share) / n)


class TangentSpace(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Covariances of trials (n, n_chans, n_times), seen from their affine-invariant mean: (n, k (k + 1) / 2)."""

    def fit(self, X: Array, y: Any = None) -> TangentSpace:
        """Find the mean covariance."""
        covariances = _covariances(X)
        self.mean_ = AffineInvariant().mean(covariances)
        self.whitener_ = invsqrtm(self.mean_)
        return self

    def transform(self, X: Array) -> Array:
        """Half vectors of log(G^-½ C G^-½), off the diagonal times √2, so that lengths are distances to the mean."""
        tangents = logm(congruence(self.whitener_, _covariances(X)))
        off_diagonal = 1 - torch.eye(tangents.shape[-1], dtype=tangents.dtype)
        return np.asarray(vech(tangents * (1 + (2**0.5 - 1) * off_diagonal)))


def _covariances(X: Array, shrinkage: float = 1e-3) -> torch.Tensor:
    """Covariances (n, k, k), a little shrunk: a flat or repeated channel must not make them singular."""
    x = torch.from_numpy(np.array(X, dtype=np.float64))
    x = x - x.mean(-1, keepdim=True)
    c = x @ x.mT / x.shape[-1]
    scale = c.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
    return (1 - shrinkage) * c + shrinkage * scale * torch.eye(c.shape[-1], dtype=c.dtype)


class CanonicalCorrelation(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The frequency whose sines and cosines, with harmonics, correlate best with the channels; nothing is learnt."""

    def __init__(self, frequencies: tuple[float, ...], sfreq: float, n_harmonics: int = 3) -> None:
        self.frequencies = frequencies
        self.sfreq = sfreq
        self.n_harmonics = n_harmonics

    def fit(self, X: Array, y: Any = None) -> CanonicalCorrelation:
        """Note the classes."""
        self.classes_ = np.arange(len(self.frequencies))
        return self

    def decision_function(self, X: Array) -> Array:
        """Largest canonical correlation with each frequency (n, n_classes)."""
        x = np.swapaxes(np.asarray(X, dtype=np.float64), 1, 2)  # (n, times, channels)
        bases = _orthonormal(x - x.mean(1, keepdims=True))
        times = np.arange(x.shape[1]) / self.sfreq
        columns = []
        for frequency in self.frequencies:
            phases = 2 * np.pi * frequency * times[:, None] * np.arange(1, self.n_harmonics + 1)
            waves = np.concatenate([np.sin(phases), np.cos(phases)], axis=1)
            reference = _orthonormal(waves - waves.mean(0))
            columns.append(np.linalg.svd(np.swapaxes(bases, 1, 2) @ reference, compute_uv=False)[:, 0])
        return np.stack(columns, axis=1)

    def predict(self, X: Array) -> Array:
        """Class numbers (n,)."""
        return np.asarray(self.decision_function(X).argmax(axis=1))


def _orthonormal(x: Array) -> Array:
    return np.linalg.qr(x)[0]


class TimeBins(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Means of consecutive samples of every channel: (n, n_chans * n_bins)."""

    def __init__(self, width: int) -> None:
        self.width = width

    def fit(self, X: Array, y: Any = None) -> TimeBins:
        """Nothing is learnt."""
        return self

    def transform(self, X: Array) -> Array:
        """Average bins of ``width`` samples; a remainder is left out."""
        x = np.asarray(X, dtype=np.float64)
        n_bins = max(1, x.shape[2] // self.width)
        bins = x[:, :, : n_bins * self.width].reshape(len(x), x.shape[1], n_bins, -1)
        return np.asarray(bins.mean(axis=3)).reshape(len(x), -1)


def _tangent(_: Trials) -> Any:
    return make_pipeline(TangentSpace(), LogisticRegression(C=0.1, max_iter=1000))


def _cca(trials: Trials) -> Any:
    return CanonicalCorrelation(frequencies(trials.class_names), trials.sfreq)


def _lda(trials: Trials) -> Any:
    bins = TimeBins(max(1, round(0.05 * trials.sfreq)))
    return make_pipeline(bins, LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"))


PIPELINES: dict[str, Callable[[Trials], Any]] = {"tangent": _tangent, "cca": _cca, "lda": _lda}


def frequencies(class_names: tuple[str, ...]) -> tuple[float, ...]:
    """Frequencies that classes are named after.

    Examples
    --------
    >>> frequencies(("12 Hz", "8.57"))
    (12.0, 8.57)
    """
    try:
        return tuple(float(name.lower().removesuffix("hz")) for name in class_names)
    except ValueError:
        raise ParameterError(
            f"classes {list(class_names)} are not named after frequencies, as canonical correlation needs: '12 Hz'."
        ) from None
