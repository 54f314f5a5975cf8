"""Internals of a trained network: attention, matrices, learnt metric, features, and what its filters extract.

The weights of a spatial filter suppress noise as well as pick up a signal.  Its pattern gives the strength of that
signal at each electrode [1]_.

References
----------
.. [1] S. Haufe et al., "On the interpretation of weight vectors of linear models in multivariate neuroimaging",
   NeuroImage 87, 2014.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gbwatt._validation import check_at_least, check_one_of, check_positive
from gbwatt.decoding import EEGDecoder
from gbwatt.errors import MismatchError, NotFiniteError, ParameterError, ShapeError
from gbwatt.explain.attribution import mean_by_class
from gbwatt.explain.inputs import Array, Model, ShortRepr, Target, evaluating, network, prepare, to_numpy
from gbwatt.geometry import AffineInvariant
from gbwatt.models import GBWAtt
from gbwatt.nn import SPDSelfAttention
from gbwatt.nn.attention import LearnableMetric
from gbwatt.nn.features import SpatioTemporalFeatures

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
    """Embedding (n, 2) by the first two principal components."""
    centred = x - x.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    largest = np.take_along_axis(axes[:2], abs(axes[:2]).argmax(axis=1)[:, None], axis=1)
    return np.asarray(centred @ (axes[:2] * np.sign(largest)).T)  # fixes the sign, which depends on the LAPACK library


def _tsne(x: Array, seed: int) -> Array:
    """Embedding (n, 2) by t-SNE of scikit-learn."""
    from sklearn.manifold import TSNE

    return np.asarray(TSNE(perplexity=_neighbourhood_size(x), random_state=seed, init="pca").fit_transform(x))


def _umap(x: Array, seed: int) -> Array:
    """Embedding (n, 2) by UMAP; raise ImportError if umap-learn is not installed."""
    try:
        umap = import_module("umap")
    except ImportError:
        raise ImportError("method='umap' needs the package umap-learn: pip install umap-learn.") from None
    neighbours = max(2, int(_neighbourhood_size(x)) // 2)
    return np.asarray(umap.UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1).fit_transform(x))


def _neighbourhood_size(x: Array) -> float:
    """Perplexity of t-SNE, twice the number of neighbours of UMAP: 30, the usual value, or a third of few points."""
    return float(min(30.0, (len(x) - 1) / 3))


_EMBEDDINGS: Mapping[str, Callable[[Array, int], Array]] = {"pca": _pca, "t-sne": _tsne, "umap": _umap}

# -------------------------------------------------------------------------------------------------------------- filters

_N_FFT = 256  # filters are shorter and padded with zeros, for a smooth curve


@dataclass(frozen=True, eq=False, repr=False)
class Patterns(ShortRepr):
    """Spatial filters and their patterns.

    Attributes
    ----------
    weights : array (n, n_chans)
        Filters, per unit of the recording.
    patterns : array (n, n_chans)
        Pattern of each filter.
    ch_names : tuple of str
        Names of the channels.
    """

    weights: Array
    patterns: Array
    ch_names: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Spectra(ShortRepr):
    """Amplitude spectra of filters.

    Attributes
    ----------
    frequencies : array (n_frequencies,)
        Frequencies in Hz.
    amplitudes : array (n, n_frequencies)
        Amplitude of each filter.
    """

    frequencies: Array
    amplitudes: Array


def spatial_patterns(model: Model, trials: Any) -> Patterns:
    r"""Patterns of the spatial filters, :math:`A = Σ_x W^⊤ (W Σ_x W^⊤)^+` (Haufe et al. 2014, Eq. 6).

    W (n_filters, n_chans) are the filters of one branch, including their normalisation, and :math:`Σ_x` is the
    covariance of the channels over all trials.

    Parameters
    ----------
    model : EEGDecoder or nn.Module
        A network with spatial and temporal filters, such as GBWAtt, or a fitted estimator of one.
    trials : Trials, mne.Epochs or array (n, n_chans, n_times)
        Epochs, in the unit of the recording.

    Returns
    -------
    Patterns
        One for each spatial filter.

    Raises
    ------
    ParameterError
        If the network has no such filters.

    Notes
    -----
    There may be more filters than channels, hence the pseudo-inverse.  With at least as many filters as channels, A is
    the pseudo-inverse of W and does not depend on the recording, so that it tells little about a single filter.
    Features mix all spatial filters; :func:`feature_patterns` gives their patterns.

    Examples
    --------
    >>> from gbwatt.models import GBWAtt
    >>> spatial_patterns(GBWAtt(n_chans=4, n_outputs=2, n_times=60), np.random.randn(5, 4, 60)).patterns.shape
    (16, 4)
    """
    inputs = prepare(model, trials)
    layer = _require_filters(inputs.module)
    covariance = _channel_covariance(inputs.x)
    weights = _spatial_filters(layer) * inputs.scale
    groups = np.split(weights, layer.temporal.groups)
    patterns = [covariance @ w.T @ np.linalg.pinv(w @ covariance @ w.T, rcond=1e-10, hermitian=True) for w in groups]
    return Patterns(weights, np.concatenate([pattern.T for pattern in patterns]), inputs.ch_names)


def feature_patterns(model: Model, trials: Any) -> Patterns:
    r"""Patterns of the features, each a spatial and temporal filter of the epoch.

    A feature has a spatial filter :math:`h(f)` at each frequency.  With the cross-spectra :math:`S(f)` of the channels
    over all trials, :math:`a(f) = S \bar h / (\sum_f h^⊤ S \bar h)^{1/2}` is the covariance of each electrode with the
    feature, scaled to unit variance.  The pattern is the best real approximation of all :math:`a(f)`: the first
    principal axis of their real and imaginary parts, scaled by its singular value.  ``weights`` is the same for
    :math:`h(f)`.  Signs are arbitrary; the largest entry is positive.

    Parameters
    ----------
    model, trials
        As for :func:`spatial_patterns`.

    Returns
    -------
    Patterns
        One for each feature.

    Raises
    ------
    ParameterError
        If the network has no such filters.

    Examples
    --------
    >>> from gbwatt.models import GBWAtt
    >>> feature_patterns(GBWAtt(n_chans=4, n_outputs=2, n_times=60), np.random.randn(5, 4, 60)).patterns.shape
    (15, 4)
    """
    inputs = prepare(model, trials)
    layer = _require_filters(inputs.module)
    response = (
        _transfer_functions(_normalised_kernel(layer), inputs.x.shape[2]) * inputs.scale
    )  # (n, n_chans, n_frequencies)
    spectra = _cross_spectra(inputs.x)
    cross = np.einsum("fcd,odf->ocf", spectra, response.conj())
    power = np.einsum("ocf,ocf->o", response, cross).real
    covariance = cross / np.sqrt(np.maximum(power, np.finfo(float).tiny))[:, None, None]
    return Patterns(_topographies(response), _topographies(covariance), inputs.ch_names)


def temporal_spectra(model: Model, sfreq: float | None = None) -> Spectra:
    r"""Amplitude spectrum of each temporal filter, :math:`(\sum_s |\hat w_s(f)|^2)^{1/2}`, over spatial filters s.

    This is the spectrum of a feature if the outputs of all spatial filters were independent white noise of variance
    one, the variance to which they are normalised.

    Parameters
    ----------
    model : EEGDecoder or nn.Module
        A network with spatial and temporal filters, such as GBWAtt, or a fitted estimator of one.
    sfreq : float, optional
        Sampling rate in Hz.  Required for a network, and for an estimator fitted without a sampling rate.

    Returns
    -------
    Spectra
        One for each temporal filter.

    Raises
    ------
    ParameterError
        If the network has no such filters, or the sampling rate is unknown.

    Examples
    --------
    >>> from gbwatt.models import GBWAtt
    >>> spectra = temporal_spectra(GBWAtt.for_task("mi"), sfreq=125)
    >>> spectra.amplitudes.shape, spectra.frequencies.shape
    ((20, 129), (129,))
    """
    weights = to_numpy(_require_filters(network(model)).temporal.weight)
    sfreq = _resolve_sfreq(model, sfreq)
    size = max(_N_FFT, weights.shape[2])
    amplitudes = np.sqrt((abs(np.fft.rfft(weights, size)) ** 2).sum(axis=1))
    return Spectra(np.fft.rfftfreq(size, 1 / sfreq), amplitudes)


def _resolve_sfreq(model: Model, sfreq: float | None) -> float:
    """The sampling rate in Hz: the argument, or that of the estimator; raise an error if both differ or are unknown."""
    trained = model.signal_.sfreq if isinstance(model, EEGDecoder) else None
    if sfreq is None and trained is None:
        raise ParameterError("sfreq=None, but 'model' does not know its sampling rate; pass it in Hz.")
    rate = check_positive("sfreq", trained if sfreq is None else sfreq, "Hz")
    if trained is not None and abs(rate - trained) > 1e-6 * trained:
        raise MismatchError(f"sfreq={rate:g}, but 'model' was trained at {trained:g} Hz; leave it out.")
    return rate


# ---- weights


def _require_filters(module: nn.Module) -> SpatioTemporalFeatures:
    """Return the layer of spatial and temporal filters of a network; raise ParameterError if it has none."""
    layer = getattr(module, "features", None)
    if not isinstance(layer, SpatioTemporalFeatures):
        raise ParameterError(
            f"'model' is a {type(module).__name__} without linear spatial and temporal filters (features=True of "
            "GBWAtt); for other networks use attributions, such as gbwatt.explain.gradient."
        )
    return layer


def _spatial_filters(layer: SpatioTemporalFeatures) -> Array:
    """Spatial filters (groups * n_spatial, n_chans), including their normalisation."""
    norm = layer.spatial_norm
    assert norm.running_var is not None  # by construction; for the type checker
    scale = to_numpy(norm.weight) / np.sqrt(to_numpy(norm.running_var) + norm.eps)
    return np.asarray(scale[:, None] * to_numpy(layer.spatial.weight)[..., 0])


def _normalised_kernel(layer: SpatioTemporalFeatures) -> Array:
    """Spatial and temporal filters and normalisations as one kernel (outputs, n_chans, length), without offsets."""
    groups, norm = layer.temporal.groups, layer.temporal_norm
    assert norm.running_var is not None  # by construction; for the type checker
    temporal = np.stack(np.split(to_numpy(layer.temporal.weight), groups))  # (groups, n, n_spatial, length)
    spatial = np.stack(np.split(_spatial_filters(layer), groups))  # (groups, n_spatial, n_chans)
    kernel = np.einsum("gosl,gsc->gocl", temporal, spatial).reshape(-1, spatial.shape[2], temporal.shape[3])
    scale = to_numpy(norm.weight) / np.sqrt(to_numpy(norm.running_var) + norm.eps)
    return np.asarray(scale[:, None, None] * kernel)


# ---- second moments


def _channel_covariance(x: Array) -> Array:
    """Covariance of channels (n_chans, n_chans) over trials and time, each trial centred."""
    centred = (x - x.mean(axis=2, keepdims=True)).astype(float)
    return np.asarray(np.einsum("nct,ndt->cd", centred, centred, optimize=True) / (x.shape[0] * x.shape[2]))


def _cross_spectra(x: Array) -> Array:
    """Cross-spectra (n_frequencies, n_chans, n_chans) of channels: mean X conj(X) of transforms of centred trials."""
    transform = np.fft.rfft((x - x.mean(axis=2, keepdims=True)).astype(float))  # (n, n_chans, n_frequencies)
    rows = transform.transpose(2, 1, 0)
    return np.asarray(rows @ rows.conj().swapaxes(1, 2) / (x.shape[0] * x.shape[2]))


def _transfer_functions(kernel: Array, n_times: int) -> Array:
    """Transfer functions (outputs, n_chans, n_frequencies) of kernels, which the layer correlates with epochs."""
    whole = np.pad(kernel, ((0, 0), (0, 0), (0, -kernel.shape[2] % n_times)))
    folded = whole.reshape(*kernel.shape[:2], -1, n_times).sum(axis=2)  # aliases a kernel longer than the epoch
    return np.asarray(np.fft.rfft(folded).conj())


def _topographies(a: Array) -> Array:
    """Scalp maps (n, n_chans) that best approximate the columns of complex matrices (n, n_chans, n_frequencies)."""
    axes, sizes, _ = np.linalg.svd(np.concatenate([a.real, a.imag], axis=2), full_matrices=False)
    first = axes[..., 0] * sizes[:, :1]
    largest = np.take_along_axis(first, abs(first).argmax(axis=1)[:, None], axis=1)
    return np.asarray(first * np.sign(largest))
