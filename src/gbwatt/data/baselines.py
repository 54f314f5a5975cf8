"""Classical pipelines that show whether the classes of a data set can be decoded above chance."""

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
class BaselineScore:
    """Test score of a classical pipeline, compared with chance.

    Attributes
    ----------
    pipeline : str
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
    """Train a pipeline on the training and validation trials of each split, and score it on the test trials.

    Parameters
    ----------
    trials : Trials
    protocol : Splitter
    pipeline : "tangent", "cca" or "lda"
        "tangent": covariances in the affine-invariant tangent space and logistic regression.  "cca": canonical
        correlation with sines of the frequencies in the class names.  "lda": means over 50 ms and shrinkage LDA; with
        two classes, its measure is the area under the ROC curve.  Otherwise it is the accuracy.

    Returns
    -------
    BaselineScore

    Raises
    ------
    ParameterError
        If a training set has a single class, or the classes are not named by frequencies ("cca").
    """
    check_one_of("pipeline", pipeline, tuple(PIPELINES))
    measure = "AUC" if pipeline == "lda" and len(trials.class_names) == 2 else "accuracy"
    labels, scores, counts = [], [], []
    for split in protocol.splits(trials):
        train = np.concatenate([split.train, split.valid])
        _require_classes(trials, split.name, train, split.test if measure == "AUC" else train)
        model = PIPELINES[pipeline](trials).fit(trials.X[train], trials.y[train])
        y, x = trials.y[split.test], trials.X[split.test]
        if measure == "AUC":
            scores.append(roc_auc_score(y, model.predict_proba(x)[:, 1]))
        else:
            scores.append(accuracy_score(y, model.predict(x)))
        labels.append(y)
        counts.append(len(y))
    chance, limit = _chance_scores(np.concatenate(labels), measure)
    return BaselineScore(pipeline, measure, float(np.average(scores, weights=counts)), chance, limit, sum(counts))


Sanity, sanity = BaselineScore, evaluate_baseline  # former names


def _require_classes(trials: Trials, name: str, *parts: Array) -> None:
    """Raise an error unless each of ``parts``, indices of trials, has at least two classes; ``name`` is the split."""
    for rows in parts:
        classes = np.unique(trials.labels[rows])
        if len(classes) < 2:
            raise ParameterError(f"split {name!r} has trials of one class only, {classes[0]!r}; two are needed.")


def chance_level(counts: Any) -> float:
    """Accuracy of always predicting the most frequent class, from the number of trials of each class.

    Examples
    --------
    >>> chance_level([20, 20, 24, 16])
    0.3
    """
    return float(np.max(counts) / np.sum(counts))


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


class TangentSpace(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transformer from trials (n, k, n_times) to tangent vectors (n, k (k + 1) / 2) of their covariances."""

    def fit(self, X: Array, y: Any = None) -> TangentSpace:
        """Compute the affine-invariant mean of the covariances, at which the tangent space is taken."""
        covariances = _covariances(X)
        self.mean_ = AffineInvariant().mean(covariances)
        self.whitener_ = invsqrtm(self.mean_)
        return self

    def transform(self, X: Array) -> Array:
        """Return vech(log(G^-½ C G^-½)) with off-diagonal entries times √2: lengths are distances to the mean."""
        tangents = logm(congruence(self.whitener_, _covariances(X)))
        off_diagonal = 1 - torch.eye(tangents.shape[-1], dtype=tangents.dtype)
        return np.asarray(vech(tangents * (1 + (2**0.5 - 1) * off_diagonal)))


def _covariances(X: Array, shrinkage: float = 1e-3) -> torch.Tensor:
    """Return covariances (n, k, k) of trials (n, k, n_times), shrunk towards a multiple of the identity.

    Without shrinkage, flat or repeated channels would make them singular.
    """
    x = torch.from_numpy(np.array(X, dtype=np.float64))
    x = x - x.mean(-1, keepdim=True)
    c = x @ x.mT / x.shape[-1]
    scale = c.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
    return (1 - shrinkage) * c + shrinkage * scale * torch.eye(c.shape[-1], dtype=c.dtype)


class CanonicalCorrelation(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts the frequency whose sines, cosines and harmonics correlate best with the channels; needs no training."""

    def __init__(self, frequencies: tuple[float, ...], sfreq: float, n_harmonics: int = 3) -> None:
        self.frequencies = frequencies
        self.sfreq = sfreq
        self.n_harmonics = n_harmonics

    def fit(self, X: Array, y: Any = None) -> CanonicalCorrelation:
        """Set the classes; nothing is learned."""
        self.classes_ = np.arange(len(self.frequencies))
        return self

    def decision_function(self, X: Array) -> Array:
        """Return the largest canonical correlation with each frequency (n, n_classes)."""
        x = np.swapaxes(np.asarray(X, dtype=np.float64), 1, 2)  # (n, times, channels)
        bases = _orthonormal_basis(x - x.mean(1, keepdims=True))
        times = np.arange(x.shape[1]) / self.sfreq
        columns = []
        for frequency in self.frequencies:
            phases = 2 * np.pi * frequency * times[:, None] * np.arange(1, self.n_harmonics + 1)
            waves = np.concatenate([np.sin(phases), np.cos(phases)], axis=1)
            reference = _orthonormal_basis(waves - waves.mean(0))
            columns.append(np.linalg.svd(np.swapaxes(bases, 1, 2) @ reference, compute_uv=False)[:, 0])
        return np.stack(columns, axis=1)

    def predict(self, X: Array) -> Array:
        """Return class numbers (n,)."""
        return np.asarray(self.decision_function(X).argmax(axis=1))


def _orthonormal_basis(x: Array) -> Array:
    """Return an orthonormal basis of the columns of each matrix (..., n_times, k)."""
    return np.linalg.qr(x)[0]


class TimeBins(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transformer from trials to means of ``width`` consecutive samples of every channel (n, n_chans * n_bins)."""

    def __init__(self, width: int) -> None:
        self.width = width

    def fit(self, X: Array, y: Any = None) -> TimeBins:
        """Return the transformer unchanged; nothing is learned."""
        return self

    def transform(self, X: Array) -> Array:
        """Average bins of ``width`` samples; a remainder is dropped."""
        x = np.asarray(X, dtype=np.float64)
        n_bins = max(1, x.shape[2] // self.width)
        bins = x[:, :, : n_bins * self.width].reshape(len(x), x.shape[1], n_bins, -1)
        return np.asarray(bins.mean(axis=3)).reshape(len(x), -1)


def _make_tangent(_: Trials) -> Any:
    """Return tangent space and logistic regression; the trials are not used."""
    return make_pipeline(TangentSpace(), LogisticRegression(C=0.1, max_iter=1000))


def _make_cca(trials: Trials) -> Any:
    """Return canonical correlation with the frequencies in the class names."""
    return CanonicalCorrelation(frequencies(trials.class_names), trials.sfreq)


def _make_lda(trials: Trials) -> Any:
    """Return means over 50 ms and linear discriminant analysis with automatic shrinkage."""
    bins = TimeBins(max(1, round(0.05 * trials.sfreq)))
    return make_pipeline(bins, LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"))


#: Function that creates the untrained pipeline of each name; some need classes and sampling rate of the trials.
PIPELINES: dict[str, Callable[[Trials], Any]] = {"tangent": _make_tangent, "cca": _make_cca, "lda": _make_lda}


def frequencies(class_names: tuple[str, ...]) -> tuple[float, ...]:
    """Return the frequencies in Hz that are the names of classes, for canonical correlation.

    Examples
    --------
    >>> frequencies(("12 Hz", "8.57"))
    (12.0, 8.57)
    """
    try:
        return tuple(float(name.lower().removesuffix("hz")) for name in class_names)
    except ValueError:
        raise ParameterError(
            f"classes {list(class_names)} are not named by frequencies ('12 Hz'), as canonical correlation needs."
        ) from None
