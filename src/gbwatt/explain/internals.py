"""What happens inside a trained GBWAtt: attention, the spectra of its matrices, its metric, and its features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gbwatt._validation import check_at_least, check_one_of
from gbwatt.errors import MismatchError, NotFiniteError, ParameterError, ShapeError
from gbwatt.explain.attribution import mean_by_class
from gbwatt.explain.inputs import Array, Model, Summarised, Target, ask, evaluating, network, numbers
from gbwatt.geometry import AffineInvariant
from gbwatt.models import GBWAtt
from gbwatt.nn import SPDSelfAttention
from gbwatt.nn.attention import LearnableMetric

# ---- a forward pass


@dataclass(frozen=True, eq=False, repr=False)
class Inside(Summarised):
    """What a forward pass of trials saw on its way.

    Attributes
    ----------
    attention : array (n, m, m)
        Weights, a row for each query.
    before, after : arrays (n, m, n_features) and (n, m, k)
        Eigenvalues, in rising order, of the covariances that enter the attention and of the means that leave it.
    features : array (n, n_tangent)
        What enters the last layer.
    labels : array (n,)
        Class of each trial, a place in ``class_names``.
    class_names : tuple of str
    """

    attention: Array
    before: Array
    after: Array
    features: Array
    labels: Array
    class_names: tuple[str, ...]

    def attention_by_class(self) -> Array:
        """Mean weights (n_classes, m, m) over the trials of each class; NaN for a class without any."""
        return mean_by_class(self.attention, self.labels, len(self.class_names))

    def condition_numbers(self) -> tuple[Array, Array]:
        """Largest by smallest eigenvalue (n, m), before attention and after it."""
        return self.before[..., -1] / self.before[..., 0], self.after[..., -1] / self.after[..., 0]


def look_inside(model: Model, trials: Any, target: Target = "true") -> Inside:
    """Attention, eigenvalues and features of trials, which are labelled by ``target``.

    Examples
    --------
    >>> found = look_inside(GBWAtt(n_chans=4, n_outputs=2, n_times=60), np.random.randn(5, 4, 60), "predicted")
    >>> bool(np.allclose(found.attention.sum(axis=-1), 1))
    True
    """
    module = _attending(network(model))
    question = ask(model, trials)
    labels = question.labels(target)
    with evaluating(module), torch.no_grad():
        parts = [_pass(module, batch) for _, batch in question.batches()]
    attention, before, after, features = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Inside(attention, before, after, features, labels, question.class_names)


def _pass(module: GBWAtt, x: Tensor) -> tuple[Array, ...]:
    details = module(x, details=True)
    before, after = (numbers(torch.linalg.eigvalsh(s.double())) for s in (details.covariances, details.attended))
    return numbers(details.attention), before, after, numbers(module.embedding(details.attended))


def _attending(module: nn.Module) -> GBWAtt:
    if isinstance(module, GBWAtt) and isinstance(module.attention, SPDSelfAttention):
        return module
    raise ParameterError(
        f"'model' is a {type(module).__name__} without attention of SPD matrices; GBWAtt with attention='spd' has it, "
        "which is 'gbwatt', 'bwatt' and 'matt' of the registry."
    )


# ---- the metric


@dataclass(frozen=True, eq=False, repr=False)
class LearntMetric(Summarised):
    """M and θ of the generalised Bures-Wasserstein metric, and how far M has come from the identity, where it began.

    Attributes
    ----------
    M : array (k, k)
    theta : float
    eigenvalues : array (k,)
        Of M, in rising order.
    distance : float
        Affine-invariant distance of M and I: the root of the sum of squared logarithms of the eigenvalues.
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

    Examples
    --------
    >>> learnt_metric(GBWAtt.for_task("mi")).distance  # before training
    0.0
    """
    attention = _attending(network(model)).attention
    assert isinstance(attention, SPDSelfAttention)  # as has been checked; said for the type checker
    layer = attention.metric
    if not isinstance(layer, LearnableMetric):
        raise ParameterError(f"'model' has the metric {layer}, which has no M and theta; 'gbw' has.")
    theta = layer.theta
    m = layer.M.detach().double().cpu()
    eye = torch.eye(len(m), dtype=m.dtype)
    return LearntMetric(
        M=numbers(m),
        theta=float(theta.detach()) if isinstance(theta, Tensor) else theta,
        eigenvalues=numbers(torch.linalg.eigvalsh(m)),
        distance=float(AffineInvariant().dist(eye, m)),
        relative=float((m - eye).norm() / eye.norm()),
    )


# ---- features in the plane


def embed(features: Array, method: str = "pca", *, seed: int = 0) -> Array:
    """Points of the plane (n, 2) for features (n, d).

    Parameters
    ----------
    features : array (n, d)
        For instance those of :class:`Inside`.
    method : "pca", "t-sne" or "umap"
        Principal components, which keep what is large; or neighbours, of which t-SNE [1]_ and UMAP [2]_ keep the near
        ones and bend the rest.  UMAP needs the package umap-learn.
    seed : int
        Of t-SNE and UMAP.

    References
    ----------
    .. [1] L. van der Maaten, G. Hinton, "Visualizing data using t-SNE", JMLR 9, 2008.
    .. [2] L. McInnes, J. Healy, J. Melville, "UMAP: uniform manifold approximation and projection", 2018,
       arXiv:1802.03426.
    """
    check_one_of("method", method, tuple(_PLANES))
    check_at_least("seed", seed, 0)
    if isinstance(features, Inside):
        raise MismatchError("'features' is an Inside; its array is needed: embed(inside.features).")
    try:
        x = np.asarray(features, dtype=float)
    except (TypeError, ValueError) as error:
        raise MismatchError(f"'features' is no array of real numbers ({error}); (n, d) is.") from None
    if x.ndim != 2 or len(x) < 3 or x.shape[1] < 2:
        raise ShapeError(f"'features' {x.shape} is no table of 3 rows and 2 columns or more: (n, d) is needed.")
    bad = ~np.isfinite(x).all(axis=1)
    if bad.any():
        raise NotFiniteError(
            f"'features' {x.shape} has NaN or infinite entries in {bad.sum()} rows, first in row {bad.argmax()}; leave "
            "these out, or look for what made them."
        )
    return np.asarray(_PLANES[method](x, seed), dtype=float)


def _pca(x: Array, seed: int) -> Array:  # noqa: ARG001, nothing is random in it
    centred = x - x.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    largest = np.take_along_axis(axes[:2], abs(axes[:2]).argmax(axis=1)[:, None], axis=1)
    return np.asarray(centred @ (axes[:2] * np.sign(largest)).T)  # the sign would depend on the library otherwise


def _tsne(x: Array, seed: int) -> Array:
    from sklearn.manifold import TSNE

    return np.asarray(TSNE(perplexity=_neighbours(x), random_state=seed, init="pca").fit_transform(x))


def _umap(x: Array, seed: int) -> Array:
    try:
        umap = import_module("umap")
    except ImportError:
        raise ImportError("method='umap' needs the package umap-learn: pip install umap-learn.") from None
    neighbours = max(2, int(_neighbours(x)) // 2)
    return np.asarray(umap.UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1).fit_transform(x))


def _neighbours(x: Array) -> float:
    """Neighbours that count: 30, as is usual, or a third of the points."""
    return float(min(30.0, (len(x) - 1) / 3))


_PLANES: Mapping[str, Callable[[Array, int], Array]] = MappingProxyType({"pca": _pca, "t-sne": _tsne, "umap": _umap})
