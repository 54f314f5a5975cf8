r"""Patterns and spectra of the learnt spatial and temporal filters.

The weights of a spatial filter suppress noise as well as pick up a signal.  Its pattern gives the strength of that
signal at each electrode [1]_.

References
----------
.. [1] S. Haufe et al., "On the interpretation of weight vectors of linear models in multivariate neuroimaging",
   NeuroImage 87, 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from gbwatt._validation import check_number
from gbwatt.decoding import EEGDecoder
from gbwatt.errors import MismatchError, ParameterError
from gbwatt.explain.inputs import Array, Model, ShortRepr, network, prepare, to_numpy
from gbwatt.nn.features import SpatioTemporalFeatures

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
    covariance = _covariance(inputs.x)
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
    response = _responses(_full_kernel(layer), inputs.x.shape[2]) * inputs.scale  # (n, n_chans, n_frequencies)
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
    rate = trained if sfreq is None else sfreq
    check_number("sfreq", rate)
    assert rate is not None  # checked above; for the type checker
    if rate <= 0:
        raise ParameterError(f"sfreq={rate} must be positive, in Hz.")
    if trained is not None and abs(rate - trained) > 1e-6 * trained:
        raise MismatchError(f"sfreq={rate:g}, but 'model' was trained at {trained:g} Hz; leave it out.")
    return float(rate)


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


def _full_kernel(layer: SpatioTemporalFeatures) -> Array:
    """Filters and their normalisations as one kernel (outputs, n_chans, length), without offsets."""
    groups, norm = layer.temporal.groups, layer.temporal_norm
    assert norm.running_var is not None  # by construction; for the type checker
    temporal = np.stack(np.split(to_numpy(layer.temporal.weight), groups))  # (groups, n, n_spatial, length)
    spatial = np.stack(np.split(_spatial_filters(layer), groups))  # (groups, n_spatial, n_chans)
    kernel = np.einsum("gosl,gsc->gocl", temporal, spatial).reshape(-1, spatial.shape[2], temporal.shape[3])
    scale = to_numpy(norm.weight) / np.sqrt(to_numpy(norm.running_var) + norm.eps)
    return np.asarray(scale[:, None, None] * kernel)


# ---- second moments


def _covariance(x: Array) -> Array:
    """Covariance of channels (n_chans, n_chans) over trials and time, each trial centred."""
    centred = (x - x.mean(axis=2, keepdims=True)).astype(float)
    return np.asarray(np.einsum("nct,ndt->cd", centred, centred, optimize=True) / (x.shape[0] * x.shape[2]))


def _cross_spectra(x: Array) -> Array:
    """Mean products X conj(X) (n_frequencies, n_chans, n_chans) of the transforms of centred trials."""
    transform = np.fft.rfft((x - x.mean(axis=2, keepdims=True)).astype(float))  # (n, n_chans, n_frequencies)
    rows = transform.transpose(2, 1, 0)
    return np.asarray(rows @ rows.conj().swapaxes(1, 2) / (x.shape[0] * x.shape[2]))


def _responses(kernel: Array, n_times: int) -> Array:
    """Transfer functions (outputs, n_chans, n_frequencies) of kernels, which the layer correlates with epochs."""
    whole = np.pad(kernel, ((0, 0), (0, 0), (0, -kernel.shape[2] % n_times)))
    folded = whole.reshape(*kernel.shape[:2], -1, n_times).sum(axis=2)  # aliases a kernel longer than the epoch
    return np.asarray(np.fft.rfft(folded).conj())


def _topographies(a: Array) -> Array:
    """Best real rank-one approximation (n, n_chans) of the columns of matrices (n, n_chans, n_frequencies)."""
    axes, sizes, _ = np.linalg.svd(np.concatenate([a.real, a.imag], axis=2), full_matrices=False)
    first = axes[..., 0] * sizes[:, :1]
    largest = np.take_along_axis(first, abs(first).argmax(axis=1)[:, None], axis=1)
    return np.asarray(first * np.sign(largest))
