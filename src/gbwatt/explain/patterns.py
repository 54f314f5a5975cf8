r"""What the learnt filters of epochs look for, and what the sources look like that they find.

The weights of a filter say how to suppress noise as much as where a signal is; a pattern says how strongly the signal
that the filter picks up is seen at each electrode [1]_.

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
from gbwatt.explain.inputs import Array, Model, Summarised, ask, network, numbers
from gbwatt.nn.features import SpatioTemporalFeatures

_N_FFT = 256  # filters are shorter, and zeros follow: a smooth curve to look at


@dataclass(frozen=True, eq=False, repr=False)
class Patterns(Summarised):
    """Filters over electrodes and the patterns of what they find.

    Attributes
    ----------
    weights : array (n, n_chans)
        Filters, per unit of the recording.
    patterns : array (n, n_chans)
    ch_names : tuple of str
    """

    weights: Array
    patterns: Array
    ch_names: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Spectra(Summarised):
    """Amplitude (n, n_frequencies) of filters at frequencies (n_frequencies,) in Hz."""

    frequencies: Array
    amplitudes: Array


def spatial_patterns(model: Model, trials: Any) -> Patterns:
    r"""Patterns of the spatial filters, :math:`A = Σ_x W^⊤ (W Σ_x W^⊤)^+` (Haufe et al. 2014, Eq. 6).

    W (n_filters, n_chans) are the filters of one branch, after their normalisation, and :math:`Σ_x` is the covariance
    of the channels over all trials.  Filters may be more than channels, hence the pseudo-inverse; but as soon as they
    are as many, A is the (pseudo-)inverse of W whatever was recorded, and says little about a single filter.  The
    network mixes all of them in each of its features: for those there is :func:`feature_patterns`.
    """
    question = ask(model, trials)
    layer = _filters(question.module)
    covariance = _covariance(question.x)
    weights = _spatial(layer) * question.scale
    groups = np.split(weights, layer.temporal.groups)
    patterns = [covariance @ w.T @ np.linalg.pinv(w @ covariance @ w.T, rcond=1e-10, hermitian=True) for w in groups]
    return Patterns(weights, np.concatenate([pattern.T for pattern in patterns]), question.ch_names)


def feature_patterns(model: Model, trials: Any) -> Patterns:
    r"""Patterns of the features: of the temporal filters of the spatial ones, which are one linear map of an epoch.

    A feature has a filter over the electrodes :math:`h(f)` for every frequency.  With the cross-spectra :math:`S(f)` of
    the channels over all trials, :math:`a(f) = S \bar h / (\sum_f h^⊤ S \bar h)^{1/2}` is the covariance of each
    electrode with the feature, at standard deviation one; in time, that with the feature at all lags.  The pattern is
    the real topography that comes closest to all a(f): the first principal axis of their real and imaginary parts, its
    length being that of its part of a.  ``weights`` is the same of h(f).  The sign of either is arbitrary; the largest
    entry is positive.
    """
    question = ask(model, trials)
    layer = _filters(question.module)
    response = _response(_kernel(layer), question.x.shape[2]) * question.scale  # (n, n_chans, n_frequencies)
    spectra = _cross_spectra(question.x)
    seen = np.einsum("fcd,odf->ocf", spectra, response.conj())
    power = np.einsum("ocf,ocf->o", response, seen).real
    covariance = seen / np.sqrt(np.maximum(power, np.finfo(float).tiny))[:, None, None]
    return Patterns(_topographies(response), _topographies(covariance), question.ch_names)


def temporal_spectra(model: Model, sfreq: float | None = None) -> Spectra:
    r"""Amplitude spectrum of each temporal filter, :math:`(\sum_s |\hat w_s(f)|^2)^{1/2}` over the spatial ones.

    It is the spectrum that a feature would have if all spatial filters gave independent white noise of variance one,
    which is the variance that their normalisation gives them.

    Parameters
    ----------
    model : EEGDecoder or nn.Module
    sfreq : float, optional
        Sampling rate in Hz, for a network, or for a decoder that does not know its own.

    Examples
    --------
    >>> from gbwatt.models import GBWAtt
    >>> found = temporal_spectra(GBWAtt.for_task("mi"), sfreq=125)
    >>> found.amplitudes.shape, found.frequencies.shape
    ((20, 129), (129,))
    """
    weights = numbers(_filters(network(model)).temporal.weight)
    sfreq = _sampling_rate(model, sfreq)
    size = max(_N_FFT, weights.shape[2])
    amplitudes = np.sqrt((abs(np.fft.rfft(weights, size)) ** 2).sum(axis=1))
    return Spectra(np.fft.rfftfreq(size, 1 / sfreq), amplitudes)


def _sampling_rate(model: Model, given: float | None) -> float:
    own = model.signal_.sfreq if isinstance(model, EEGDecoder) else None
    if given is None and own is None:
        raise ParameterError("sfreq=None, and 'model' does not know its own; give the sampling rate in Hz.")
    rate = own if given is None else given
    check_number("sfreq", rate)
    assert rate is not None  # as has been checked; said for the type checker
    if rate <= 0:
        raise ParameterError(f"sfreq={rate} must be positive, in Hz.")
    if own is not None and abs(rate - own) > 1e-6 * own:
        raise MismatchError(f"sfreq={rate:g}, but 'model' was trained at {own:g} Hz; leave it out.")
    return float(rate)


# ---- weights


def _filters(module: nn.Module) -> SpatioTemporalFeatures:
    layer = getattr(module, "features", None)
    if not isinstance(layer, SpatioTemporalFeatures):
        raise ParameterError(
            f"'model' is a {type(module).__name__} without linear spatial and temporal filters (features=True of "
            "GBWAtt); attributions work with any network: gbwatt.explain.gradient."
        )
    return layer


def _spatial(layer: SpatioTemporalFeatures) -> Array:
    """Spatial filters (groups * n_spatial, n_chans) after their normalisation."""
    norm = layer.spatial_norm
    assert norm.running_var is not None  # by construction; said for the type checker
    scale = numbers(norm.weight) / np.sqrt(numbers(norm.running_var) + norm.eps)
    return np.asarray(scale[:, None] * numbers(layer.spatial.weight)[..., 0])


def _kernel(layer: SpatioTemporalFeatures) -> Array:
    """Filters and their normalisations as one kernel (outputs, n_chans, length), without offsets."""
    groups, norm = layer.temporal.groups, layer.temporal_norm
    assert norm.running_var is not None  # by construction; said for the type checker
    temporal = np.stack(np.split(numbers(layer.temporal.weight), groups))  # (groups, n, n_spatial, length)
    spatial = np.stack(np.split(_spatial(layer), groups))  # (groups, n_spatial, n_chans)
    kernel = np.einsum("gosl,gsc->gocl", temporal, spatial).reshape(-1, spatial.shape[2], temporal.shape[3])
    scale = numbers(norm.weight) / np.sqrt(numbers(norm.running_var) + norm.eps)
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


def _response(kernel: Array, n_times: int) -> Array:
    """Transfer functions (outputs, n_chans, n_frequencies) of kernels, which are correlated with epochs."""
    whole = np.pad(kernel, ((0, 0), (0, 0), (0, -kernel.shape[2] % n_times)))
    folded = whole.reshape(*kernel.shape[:2], -1, n_times).sum(axis=2)  # of a longer kernel, the same frequencies
    return np.asarray(np.fft.rfft(folded).conj())


def _topographies(a: Array) -> Array:
    """The real vectors (n, n_chans) that come closest to all columns of matrices (n, n_chans, n_frequencies)."""
    axes, sizes, _ = np.linalg.svd(np.concatenate([a.real, a.imag], axis=2), full_matrices=False)
    found = axes[..., 0] * sizes[:, :1]
    largest = np.take_along_axis(found, abs(found).argmax(axis=1)[:, None], axis=1)
    return np.asarray(found * np.sign(largest))
