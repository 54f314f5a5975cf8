"""Internals of a trained GBWAtt: attention, eigenvalues of its matrices, learnt metric and features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gbwatt._validation import check_at_least, check_one_of
from gbwatt.errors import MismatchError, NotFiniteError, ParameterError, ShapeError
from gbwatt.explain.attribution import mean_by_class
from gbwatt.explain.inputs import Array, Model, ShortRepr, Target, evaluating, network, prepare, to_numpy
from gbwatt.geometry import AffineInvariant
from gbwatt.models import GBWAtt
from gbwatt.nn import SPDSelfAttention
from gbwatt.nn.attention import LearnableMetric

# ---- a forward pass


@dataclass(frozen=True, eq=False, repr=False)
class Internals(ShortRepr):
    """Intermediate results of a forward pass.

    Attributes
    ----------
    attention : array (n, m, m)
        Attention weights, one row for each query.
    before, after : arrays (n, m, n_features) and (n, m, k)
        Eigenvalues, in ascending order, of the covariances that enter the attention and of the means that leave it.
    features : array (n, n_tangent)
        Input of the last layer.
    labels : array (n,)
        Class of each trial, as an index into ``class_names``.
    class_names : tuple of str
        Names of the classes.
    """

    attention: Array
    before: Array
    after: Array
    features: Array
    labels: Array
    class_names: tuple[str, ...]

    def attention_by_class(self) -> Array:
        """Mean attention weights (n_classes, m, m) over the trials of each class; NaN for classes without trials."""
        return mean_by_class(self.attention, self.labels, len(self.class_names))

    def condition_numbers(self) -> tuple[Array, Array]:
        """Ratio of the largest to the smallest eigenvalue (n, m), before and after attention."""
        return self.before[..., -1] / self.before[..., 0], self.after[..., -1] / self.after[..., 0]


def look_inside(model: Model, trials: Any, target: Target = "true") -> Internals:
    """Attention weights, eigenvalues and features of trials.

    Parameters
    ----------
    model : EEGDecoder or nn.Module
        A GBWAtt with attention of SPD matrices, or a fitted estimator of one.
    trials : Trials, mne.Epochs or array (n, n_chans, n_times)
        Epochs, in the unit of the recording.
    target : "true", "predicted", str, int or array (n,)
        Class of each trial, as for :func:`~gbwatt.explain.gradient`.

    Returns
    -------
    Internals
        Intermediate results for all trials.

    Raises
    ------
    ParameterError
        If the network has no attention of SPD matrices.

    Examples
    --------
    >>> internals = look_inside(GBWAtt(n_chans=4, n_outputs=2, n_times=60), np.random.randn(5, 4, 60), "predicted")
    >>> bool(np.allclose(internals.attention.sum(axis=-1), 1))
    True
    """
    module = _require_attention(network(model))
    inputs = prepare(model, trials)
    labels = inputs.labels(target)
    with evaluating(module), torch.no_grad():
        parts = [_batch_internals(module, batch) for _, batch in inputs.batches()]
    attention, before, after, features = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Internals(attention, before, after, features, labels, inputs.class_names)


def _batch_internals(module: GBWAtt, x: Tensor) -> tuple[Array, ...]:
    """Attention weights, eigenvalues before and after attention, and features of a batch."""
    details = module(x, details=True)
    before, after = (to_numpy(torch.linalg.eigvalsh(s.double())) for s in (details.covariances, details.attended))
    return to_numpy(details.attention), before, after, to_numpy(module.embedding(details.attended))


def logits_with_other_weights(model: Model, trials: Any) -> tuple[Array, Array]:
    """Logits of a trained network with its attention weights replaced by uniform ones, and by the identity.

    Parameters
    ----------
    model : EEGDecoder or nn.Module
        A GBWAtt with attention of SPD matrices, or a fitted estimator of one.
    trials : Trials, mne.Epochs or array (n, n_chans, n_times)
        Epochs, in the unit of the recording.

    Returns
    -------
    uniform, own : array (n, n_classes)
        Logits if each window attends to all windows equally, and if it attends to itself only.

    Raises
    ------
    ParameterError
        If the network has no attention of SPD matrices.
    """
    module = _require_attention(network(model))
    with evaluating(module), torch.no_grad():
        parts = [_replaced_weights_logits(module, batch) for _, batch in prepare(model, trials).batches()]
    uniform, own = (np.concatenate(part) for part in zip(*parts, strict=True))
    return uniform, own


def _replaced_weights_logits(module: GBWAtt, x: Tensor) -> tuple[Array, Array]:
    """Logits of a batch with uniform attention weights, and with the identity as weights."""
    covariances = module(x, details=True).covariances
    own = torch.eye(covariances.shape[1])
    weights = (torch.full_like(own, 1 / len(own)), own)
    uniform, alone = (to_numpy(module._classify(module.attention(covariances, w).value)) for w in weights)
    return uniform, alone


def _require_attention(module: nn.Module) -> GBWAtt:
    """Return the network; raise ParameterError unless it is a GBWAtt with attention of SPD matrices."""
    if isinstance(module, GBWAtt) and isinstance(module.attention, SPDSelfAttention):
        return module
    raise ParameterError(
        f"'model' is a {type(module).__name__} without attention of SPD matrices; use 'gbwatt', 'bwatt' or 'matt' "
        "of the registry, or GBWAtt with attention='spd'."
    )


# ---- the metric


@dataclass(frozen=True, eq=False, repr=False)
class LearntMetric(ShortRepr):
    """Parameters of the generalised Bures-Wasserstein metric, and the distance of M from its initial value I.

    Attributes
    ----------
    M : array (k, k)
        Matrix of the metric.
    theta : float
        Power of the deformation.
    eigenvalues : array (k,)
        Eigenvalues of M, in ascending order.
    distance : float
        Affine-invariant distance between M and I: the root of the sum of squared logarithms of the eigenvalues.
    relative : float
        ‖M - I‖ / ‖I‖ in the Frobenius norm.
    """

    M: Array
    theta: float
    eigenvalues: Array
    distance: float
    relative: float


def learnt_metric(model: Model) -> LearntMetric:
    """The metric of the attention.

    Parameters
    ----------
    model : EEGDecoder or nn.Module
        A GBWAtt with a learnable metric, or a fitted estimator of one.

    Returns
    -------
    LearntMetric
        Parameters of the metric.

    Raises
    ------
    ParameterError
        If the network has no attention of SPD matrices, or its metric has no parameters.

    Examples
    --------
    >>> learnt_metric(GBWAtt.for_task("mi")).distance  # before training
    0.0
    """
    attention = _require_attention(network(model)).attention
    assert isinstance(attention, SPDSelfAttention)  # checked above; for the type checker
    layer = attention.metric
    if not isinstance(layer, LearnableMetric):
        raise ParameterError(f"'model' has the metric {layer}, which has no M and theta; use metric='gbw'.")
    theta = layer.theta
    m = layer.M.detach().double().cpu()
    eye = torch.eye(len(m), dtype=m.dtype)
    return LearntMetric(
        M=to_numpy(m),
        theta=float(theta.detach()) if isinstance(theta, Tensor) else theta,
        eigenvalues=to_numpy(torch.linalg.eigvalsh(m)),
        distance=float(AffineInvariant().dist(eye, m)),
        relative=float((m - eye).norm() / eye.norm()),
    )


# ---- features in the plane


def embed(features: Array, method: str = "pca", *, seed: int = 0) -> Array:
    """Embed features (n, d) in the plane (n, 2).

    Parameters
    ----------
    features : array (n, d)
        For example :attr:`Internals.features`.
    method : "pca", "t-sne" or "umap"
        Principal components preserve large distances; t-SNE [1]_ and UMAP [2]_ preserve neighbourhoods and distort
        large distances.  UMAP needs the package umap-learn.
    seed : int
        Random seed of t-SNE and UMAP.

    Returns
    -------
    array (n, 2)
        Points of the plane.

    Raises
    ------
    ShapeError
        If there are fewer than three rows or two columns.
    NotFiniteError
        If features are NaN or infinite.

    References
    ----------
    .. [1] L. van der Maaten, G. Hinton, "Visualizing data using t-SNE", JMLR 9, 2008.
    .. [2] L. McInnes, J. Healy, J. Melville, "UMAP: uniform manifold approximation and projection", 2018,
       arXiv:1802.03426.

    Examples
    --------
    >>> embed(np.random.randn(10, 4)).shape
    (10, 2)
    """
    check_one_of("method", method, tuple(_EMBEDDINGS))
    check_at_least("seed", seed, 0)
    if isinstance(features, Internals):
        raise MismatchError("'features' is an Internals; its array is needed: embed(internals.features).")
    try:
        x = np.asarray(features, dtype=float)
    except (TypeError, ValueError) as error:
        raise MismatchError(f"'features' is not an array of real numbers ({error}); (n, d) is needed.") from None
    if x.ndim != 2 or len(x) < 3 or x.shape[1] < 2:
        raise ShapeError(f"'features' {x.shape} has too few rows or columns; (n, d) with n ≥ 3 and d ≥ 2 is needed.")
    bad = ~np.isfinite(x).all(axis=1)
    if bad.any():
        raise NotFiniteError(
            f"'features' {x.shape} has NaN or infinite entries in {bad.sum()} rows, first in row {bad.argmax()}; leave "
            "these rows out, or look for the cause."
        )
    return np.asarray(_EMBEDDINGS[method](x, seed), dtype=float)


def _pca(x: Array, seed: int) -> Array:  # noqa: ARG001, deterministic
    """The first two principal components (n, 2)."""
    centred = x - x.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    largest = np.take_along_axis(axes[:2], abs(axes[:2]).argmax(axis=1)[:, None], axis=1)
    return np.asarray(centred @ (axes[:2] * np.sign(largest)).T)  # fixes the sign, which depends on the LAPACK library


def _tsne(x: Array, seed: int) -> Array:
    """Embedding (n, 2) by t-SNE of scikit-learn."""
    from sklearn.manifold import TSNE

    return np.asarray(TSNE(perplexity=_neighbours(x), random_state=seed, init="pca").fit_transform(x))


def _umap(x: Array, seed: int) -> Array:
    """Embedding (n, 2) by UMAP; raise ImportError if umap-learn is not installed."""
    try:
        umap = import_module("umap")
    except ImportError:
        raise ImportError("method='umap' needs the package umap-learn: pip install umap-learn.") from None
    neighbours = max(2, int(_neighbours(x)) // 2)
    return np.asarray(umap.UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1).fit_transform(x))


def _neighbours(x: Array) -> float:
    """Number of neighbours: 30, the usual value, or a third of the points."""
    return float(min(30.0, (len(x) - 1) / 3))


_EMBEDDINGS: Mapping[str, Callable[[Array, int], Array]] = {"pca": _pca, "t-sne": _tsne, "umap": _umap}
