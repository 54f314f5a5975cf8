"""Classical pipelines as models: covariances, spatial filters and linear classifiers, fitted without gradient steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import mutual_info_classif
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from gbwatt._validation import check_at_least
from gbwatt.errors import ParameterError
from gbwatt.geometry import AffineInvariant, invsqrtm, logm, vech
from gbwatt.geometry._context import full_precision
from gbwatt.geometry.linalg import congruence
from gbwatt.models.presets import Task
from gbwatt.models.registry import register
from gbwatt.models.signal import Signal, as_epochs

#: Bands of filter-bank common spatial patterns [Ang et al. 2008], in Hz.
BANDS = tuple((low, low + 4.0) for low in (4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0, 32.0, 36.0))
_ORDER = 4  # of the Butterworth response of a band

#: Frequencies in Hz of the classes of the paper's SSVEP task, in the order of its class numbers.
SSVEP_FREQUENCIES = (12.0, 10.0, 8.57, 7.5, 6.66)


class ClassicalModel(nn.Module, ABC):
    """A model that is fitted to all training trials at once.

    Parameters
    ----------
    signal : Signal
        Shape of the epochs, number of classes and sampling rate.
    **options
        Arguments of the model beyond the signal, for ``config``.
    """

    def __init__(self, signal: Signal, **options: Any) -> None:
        super().__init__()
        self.config: dict[str, Any] = {**vars(signal), **options}

    @abstractmethod
    def fit(
        self, x: Tensor, y: Tensor, class_weights: Tensor | None = None, sample_weight: Tensor | None = None
    ) -> None:
        """Fit the model.

        Parameters
        ----------
        x : Tensor, shape (n, n_chans, n_times)
            Training epochs.
        y : Tensor, shape (n,)
            Class numbers; every class needs trials.
        class_weights : Tensor, shape (n_classes,), optional
            Weights of the classes, for classifiers that support them.
        sample_weight : Tensor, shape (n,), optional
            Weights of the trials: 0 or more.  A trial with weight 2 counts as two trials, one with weight 0 not at all.

        Raises
        ------
        ParameterError
            If there are weights of trials, but the model cannot use them.
        """

    @abstractmethod
    def logits(self, x: Tensor) -> Tensor:
        """Logits (batch, n_outputs) of epochs (batch, n_chans, n_times), which are already checked."""

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        """Logits (batch, n_outputs) of epochs (batch, n_chans, n_times)."""
        return self.logits(as_epochs(x, self.config["n_chans"], self.config["n_times"], self))


class LinearModel(ClassicalModel):
    """Features of epochs, and a linear classifier.

    Parameters
    ----------
    signal : Signal
        Shape of the epochs, number of classes and sampling rate.
    n_features : int
        Number of features that the final layer classifies.
    **options
        Arguments of the model beyond the signal, for ``config``.
    """

    def __init__(self, signal: Signal, n_features: int, **options: Any) -> None:
        super().__init__(signal, **options)
        self.final_layer = nn.Linear(n_features, signal.n_outputs)

    @abstractmethod
    def fit_features(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> None:
        """Estimate everything before the final layer from epochs (n, n_chans, n_times) in float64 and labels (n,)."""

    @abstractmethod
    def embed(self, x: Tensor) -> Tensor:
        """Features (n, n_features) of epochs."""

    def classifier(self, class_weight: dict[int, float] | None) -> Any:
        """Linear classifier of scikit-learn for the features: logistic regression with the option ``C``."""
        return LogisticRegression(C=self.config["C"], max_iter=2000, class_weight=class_weight)

    @torch.no_grad()
    def fit(
        self, x: Tensor, y: Tensor, class_weights: Tensor | None = None, sample_weight: Tensor | None = None
    ) -> None:
        """Fit the features, then the classifier."""
        x, y, sample_weight = with_influence(x, y, sample_weight)
        _require_all_classes(y, self.config["n_outputs"])
        weights = None if class_weights is None else dict(enumerate(class_weights.double().tolist()))
        classifier = self.classifier(weights)
        if sample_weight is not None and not has_fit_parameter(classifier, "sample_weight"):
            raise ParameterError(
                "sample_weight: this pipeline ends with a linear discriminant analysis, which has no weights of "
                "trials; leave it out, or use a pipeline with logistic regression: tangent-space, fb-tangent-space or "
                "xdawn."
            )
        self.double()
        self.fit_features(x.double(), y, sample_weight)
        own = {} if sample_weight is None else {"sample_weight": sample_weight.numpy()}
        with limited_threads():
            fitted = classifier.fit(self.embed(x.double()).numpy(), y.numpy(), **own)
        copy_classifier(fitted, self.final_layer)
        self.to(x.dtype)

    def logits(self, x: Tensor) -> Tensor:
        """Output of the linear classifier."""
        logits: Tensor = self.final_layer(self.embed(x))
        return logits


# ---------------------------------------------------------------------------------------------------------- components


def with_influence(x: Tensor, y: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Epochs, labels and weights of the trials whose weight is not 0, with the weights in float64."""
    if weight is None:
        return x, y, None
    rows = weight > 0
    return x[rows], y[rows], weight[rows].double()


def shares(weight: Tensor | None) -> Tensor | None:
    """Weights divided by their sum; None for equal weights."""
    return None if weight is None else weight / weight.sum()


def limited_threads() -> AbstractContextManager[Any]:
    """Limit the threads of NumPy's and SciPy's linear algebra to those of torch; they would use all cores."""
    limits: AbstractContextManager[Any] = threadpool_limits(torch.get_num_threads(), "blas")
    return limits


def copy_classifier(fitted: Any, layer: nn.Linear) -> None:
    """Copy the coefficients of a fitted linear classifier of scikit-learn to a layer that returns logits."""
    coefficients, intercepts = np.asarray(fitted.coef_), np.asarray(fitted.intercept_)
    if len(coefficients) == 1:  # two classes: logits of opposite sign
        coefficients, intercepts = (np.concatenate([-half, half]) for half in (coefficients / 2, intercepts / 2))
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(coefficients))
        layer.bias.copy_(torch.from_numpy(intercepts))


def _require_all_classes(y: Tensor, n_outputs: int) -> None:
    """Raise ParameterError unless every class has training trials."""
    present = y.unique().tolist()
    if present != list(range(n_outputs)):
        raise ParameterError(f"'y' has the classes {present}, but all {n_outputs} classes need training trials.")


def _require_rate(user: str, signal: Signal) -> float:
    """The sampling rate; raise ParameterError if it is unknown.  ``user`` is what needs it, for the message."""
    if signal.sfreq is None:
        raise ParameterError(f"{user} needs the sampling rate; pass sfreq.")
    return signal.sfreq


def _shrinkage_lda() -> LinearDiscriminantAnalysis:
    """Linear discriminant analysis with automatic shrinkage."""
    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")


def oas_covariances(x: Tensor) -> Tensor:
    """Covariances (..., n, n) of signals (..., n, times), with oracle approximating shrinkage as in scikit-learn."""
    centred = x - x.mean(-1, keepdim=True)
    return oas_shrunk(centred @ centred.mT / x.shape[-1], x.shape[-1])


def oas_shrunk(cov: Tensor, times: float) -> Tensor:
    """Covariances (..., n, n) of ``times`` samples with oracle approximating shrinkage."""
    n = cov.shape[-1]
    mean = cov.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    square = cov.square().mean((-2, -1), keepdim=True)
    above = (times + 1) * (square - mean.square() / n)
    rho = ((square + mean.square()) / above.clamp_min(torch.finfo(cov.dtype).tiny)).clamp_max(1)
    return (1 - rho) * cov + rho * mean * torch.eye(n, dtype=cov.dtype, device=cov.device)


def tangent_vectors(covariances: Tensor, whitener: Tensor) -> Tensor:
    """Covariances as vectors of a tangent space, ``vech(log(W C W))`` with off-diagonal entries times √2.

    (..., n, n) -> (..., n (n + 1) / 2).  W is the inverse square root of the mean of the covariances.
    """
    tangents = logm(congruence(whitener, covariances))
    n = tangents.shape[-1]
    scale = torch.full((n, n), 2**0.5, dtype=tangents.dtype, device=tangents.device).fill_diagonal_(1.0)
    return vech(tangents * scale)


def _weighted_mean(x: Tensor, weight: Tensor | None) -> Tensor:
    """Mean of epochs (n, ...) over trials."""
    return x.mean(0) if weight is None else torch.einsum("n,n...->...", weight / weight.sum(), x)


def _covariance_of_all(x: Tensor, weight: Tensor | None) -> Tensor:
    """Covariance (n_chans, n_chans) of epochs (n, n_chans, n_times) one after the other, with OAS shrinkage.

    An epoch with weight 2 counts like two epochs.
    """
    if weight is None:
        return oas_covariances(x.transpose(0, 1).flatten(1))
    times = float(weight.sum()) * x.shape[-1]
    centred = x - torch.einsum("n,nct->c", weight, x)[:, None] / times
    return oas_shrunk(torch.einsum("n,nct,ndt->cd", weight, centred, centred) / times, times)


class FilterBank(nn.Module):
    """Zero-phase band-pass filters in the frequency domain, (batch, n, times) -> (batch, bands, n, times).

    The response is that of a Butterworth filter of order 4, applied forwards and backwards.  Epochs are reflected at
    both ends.

    Parameters
    ----------
    bands : sequence of (low, high)
        Edges in Hz.
    sfreq : float
        Sampling rate in Hz.
    n_times : int
        Number of samples of an epoch.
    """

    gains: Tensor

    def __init__(self, bands: Sequence[tuple[float, float]], sfreq: float, n_times: int) -> None:
        super().__init__()
        for low, high in bands:
            if not 0 < low < high < sfreq / 2:
                raise ParameterError(
                    f"band {low:g} to {high:g} Hz must lie between 0 and half the sampling rate, {sfreq / 2:g} Hz."
                )
        self.margin = n_times - 1
        f = torch.fft.rfftfreq(n_times + 2 * self.margin, 1 / sfreq, dtype=torch.float64).clamp_min(1e-9)
        detuning = [(f**2 - low * high) / (f * (high - low)) for low, high in bands]
        self.register_buffer("gains", torch.stack([1 / (1 + d ** (2 * _ORDER)) for d in detuning]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Filter epochs (batch, n, times)."""
        padded = nn.functional.pad(x, (self.margin, self.margin), mode="reflect")
        spectra = torch.fft.rfft(padded)[:, None] * self.gains[:, None].to(x.dtype)
        filtered: Tensor = torch.fft.irfft(spectra, padded.shape[-1])
        return filtered[..., self.margin : -self.margin or None]


class _OneBand(nn.Module):
    """The epochs themselves, (batch, n, times) -> (batch, 1, n, times)."""

    def forward(self, x: Tensor) -> Tensor:
        """Insert the axis of bands."""
        return x[:, None]


def _make_filter_bank(signal: Signal, bands: Sequence[tuple[float, float]] | None) -> nn.Module:
    """The filter bank of a model; without bands, epochs are used as they are."""
    if bands is None:
        return _OneBand()
    return FilterBank(bands, _require_rate("a filter bank", signal), signal.n_times)


# -------------------------------------------------------------------------------------------------------------- models


class TangentSpace(LinearModel):
    """Covariances in the affine-invariant tangent space at their mean, and logistic regression.

    Parameters
    ----------
    n_chans, n_outputs, n_times : int
        Numbers of channels, classes and samples.
    sfreq : float, optional
        Sampling rate in Hz, for filter banks.
    bands : sequence of (low, high), optional
        Edges in Hz of a filter bank; the tangent vectors of all bands are classified together.
    C : float
        Inverse regularisation strength.
    """

    whiteners: Tensor

    def __init__(
        self,
        n_chans: int,
        n_outputs: int,
        n_times: int,
        *,
        sfreq: float | None = None,
        bands: Sequence[tuple[float, float]] | None = None,
        C: float = 1.0,
    ) -> None:
        signal = Signal(n_chans, n_outputs, n_times, sfreq)
        n_bands, n = 1 if bands is None else len(bands), signal.n_chans
        super().__init__(signal, n_bands * n * (n + 1) // 2, bands=bands, C=C)
        self.bank = _make_filter_bank(signal, bands)
        self.register_buffer("whiteners", torch.eye(n).repeat(n_bands, 1, 1))

    def fit_features(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> None:  # noqa: ARG002
        """Compute the mean covariance of each band."""
        covariances = oas_covariances(self.bank(x)).transpose(0, 1)
        self.whiteners = invsqrtm(AffineInvariant().mean(covariances, shares(sample_weight)))

    def embed(self, x: Tensor) -> Tensor:
        """Tangent vectors of all bands."""
        return tangent_vectors(oas_covariances(self.bank(x)), self.whiteners).flatten(1)


class XdawnTangentSpace(LinearModel):
    """Xdawn filters, covariances with the filtered class means, tangent space and logistic regression [1]_.

    Parameters
    ----------
    n_chans, n_outputs, n_times : int
        Numbers of channels, classes and samples.
    sfreq : float, optional
        Sampling rate in Hz, for filter banks.
    n_filters : int
        Spatial filters for each class.
    C : float
        Inverse regularisation strength.

    References
    ----------
    .. [1] A. Barachant, M. Congedo, "A plug&play P300 BCI using information geometry", arXiv:1409.0107, 2014.
    """

    filters: Tensor
    templates: Tensor
    whitener: Tensor

    def __init__(
        self,
        n_chans: int,
        n_outputs: int,
        n_times: int,
        *,
        sfreq: float | None = None,
        n_filters: int = 4,
        C: float = 1.0,
    ) -> None:
        signal = Signal(n_chans, n_outputs, n_times, sfreq)
        check_at_least("n_filters", n_filters, 1)
        n_rows = signal.n_outputs * min(n_filters, signal.n_chans)
        size = 2 * n_rows  # templates and filtered epochs
        super().__init__(signal, size * (size + 1) // 2, n_filters=n_filters, C=C)
        self.register_buffer("filters", torch.eye(n_rows, signal.n_chans))
        self.register_buffer("templates", torch.zeros(n_rows, signal.n_times))
        self.register_buffer("whitener", torch.eye(size))

    def fit_features(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> None:
        """Compute filters with the largest power of each class mean relative to all epochs, and the mean covariance."""
        per_class = len(self.filters) // self.config["n_outputs"]
        whiten = invsqrtm(_covariance_of_all(x, sample_weight))
        filters, templates = [], []
        for label in range(self.config["n_outputs"]):
            evoked = _weighted_mean(x[y == label], None if sample_weight is None else sample_weight[y == label])
            signal = evoked - evoked.mean(-1, keepdim=True)
            _, vectors = torch.linalg.eigh(whiten @ signal @ signal.mT @ whiten)
            chosen = vectors.flip(1)[:, :per_class].mT @ whiten
            filters.append(chosen)
            templates.append(chosen @ evoked)
        self.filters, self.templates = torch.cat(filters), torch.cat(templates)
        self.whitener = invsqrtm(AffineInvariant().mean(self._template_covariances(x), shares(sample_weight)))

    def _template_covariances(self, x: Tensor) -> Tensor:
        """Covariances of templates and filtered epochs together."""
        filtered = self.filters @ x
        return oas_covariances(torch.cat([self.templates.expand(len(x), -1, -1), filtered], dim=1))

    def embed(self, x: Tensor) -> Tensor:
        """Tangent vectors."""
        return tangent_vectors(self._template_covariances(x), self.whitener)


class CommonSpatialPatterns(LinearModel):
    """Log-variances of common spatial patterns of each class against the others, and shrinkage LDA.

    Parameters
    ----------
    n_chans, n_outputs, n_times : int
        Numbers of channels, classes and samples.
    sfreq : float, optional
        Sampling rate in Hz, for filter banks.
    n_filters : int
        Filters for each class and band: those with the largest variance in the class relative to all trials.
    bands : sequence of (low, high), optional
        Edges in Hz of a filter bank [1]_.
    n_selected : int, optional
        Number of features with the highest mutual information with the labels that are used; by default all.

    References
    ----------
    .. [1] K. K. Ang, Z. Y. Chin, H. Zhang, C. Guan, "Filter bank common spatial pattern (FBCSP) in brain-computer
       interface", IJCNN 2008.
    """

    filters: Tensor
    selected: Tensor

    def __init__(
        self,
        n_chans: int,
        n_outputs: int,
        n_times: int,
        *,
        sfreq: float | None = None,
        n_filters: int = 3,
        bands: Sequence[tuple[float, float]] | None = None,
        n_selected: int | None = None,
    ) -> None:
        check_at_least("n_filters", n_filters, 1)
        signal = Signal(n_chans, n_outputs, n_times, sfreq)
        n_bands, per_class = 1 if bands is None else len(bands), min(n_filters, signal.n_chans)
        n_features = n_bands * signal.n_outputs * per_class
        super().__init__(signal, n_features, n_filters=n_filters, bands=bands, n_selected=n_selected)
        self.bank = _make_filter_bank(signal, bands)
        self.register_buffer("filters", torch.eye(signal.n_outputs * per_class, signal.n_chans).repeat(n_bands, 1, 1))
        self.register_buffer("selected", torch.ones(n_features))

    def fit_features(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> None:  # noqa: ARG002
        """Solve the eigenvalue problem of each class and band, and select features."""
        n_outputs = self.config["n_outputs"]
        per_class = self.filters.shape[1] // n_outputs
        covariances = oas_covariances(self.bank(x))
        covariances = covariances / covariances.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        means = torch.stack([covariances[y == label].mean(0) for label in range(n_outputs)])  # (classes, bands, n, n)
        whiten = invsqrtm(means.mean(0))
        _, vectors = torch.linalg.eigh(whiten @ means @ whiten)
        filters = vectors.flip(-1)[..., :per_class].mT @ whiten  # (classes, bands, per_class, n)
        self.filters = filters.transpose(0, 1).flatten(1, 2)
        self.selected = torch.ones_like(self.selected)
        if self.config["n_selected"] is not None:
            information = mutual_info_classif(self.embed(x).numpy(), y.numpy(), random_state=0)
            order = torch.from_numpy(information).argsort(descending=True)
            self.selected[order[self.config["n_selected"] :]] = 0

    def embed(self, x: Tensor) -> Tensor:
        """Log-variances of all filters and bands; features that are not selected are zero."""
        filtered = self.filters @ self.bank(x)
        variance = filtered.var(-1).clamp_min(torch.finfo(x.dtype).tiny)
        features: Tensor = variance.log().flatten(1) * self.selected
        return features

    def classifier(self, class_weight: dict[int, float] | None) -> Any:  # noqa: ARG002
        """Linear discriminant analysis, which has no class weights."""
        return _shrinkage_lda()


class TimeBinLDA(LinearModel):
    """Means of every channel over consecutive 50 ms, and shrinkage LDA, for event-related potentials [1]_.

    Parameters
    ----------
    n_chans, n_outputs, n_times : int
        Numbers of channels, classes and samples.
    sfreq : float
        Sampling rate in Hz.

    References
    ----------
    .. [1] B. Blankertz, S. Lemm, M. Treder, S. Haufe, K.-R. Müller, "Single-trial analysis and classification of ERP
       components - a tutorial", NeuroImage 56, 2011.
    """

    def __init__(self, n_chans: int, n_outputs: int, n_times: int, *, sfreq: float | None = None) -> None:
        signal = Signal(n_chans, n_outputs, n_times, sfreq)
        width = min(n_times, max(1, round(0.05 * _require_rate("lda", signal))))
        super().__init__(signal, n_chans * (n_times // width))
        self.width = width  # of a bin, in samples

    def fit_features(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> None:
        """Do nothing: the features depend on the epoch alone."""

    def embed(self, x: Tensor) -> Tensor:
        """Means over bins; samples after the last whole bin are not used."""
        return nn.functional.avg_pool1d(x, self.width).flatten(1)

    def classifier(self, class_weight: dict[int, float] | None) -> Any:  # noqa: ARG002
        """Linear discriminant analysis, which has no class weights."""
        return _shrinkage_lda()


class MinimumDistanceToMean(ClassicalModel):
    """Squared affine-invariant distances of the covariance to the class means, with opposite sign, as logits.

    Parameters
    ----------
    n_chans, n_outputs, n_times : int
        Numbers of channels, classes and samples.
    sfreq : float, optional
        Sampling rate in Hz; not used.
    """

    means: Tensor

    def __init__(self, n_chans: int, n_outputs: int, n_times: int, *, sfreq: float | None = None) -> None:
        signal = Signal(n_chans, n_outputs, n_times, sfreq)
        super().__init__(signal)
        self.metric = AffineInvariant()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("means", torch.eye(signal.n_chans).repeat(signal.n_outputs, 1, 1))

    @torch.no_grad()
    def fit(
        self,
        x: Tensor,
        y: Tensor,
        class_weights: Tensor | None = None,  # noqa: ARG002
        sample_weight: Tensor | None = None,
    ) -> None:
        """Compute the mean covariance of each class."""
        x, y, sample_weight = with_influence(x, y, sample_weight)
        _require_all_classes(y, self.config["n_outputs"])
        covariances = oas_covariances(x.double())
        means = []
        for label in range(self.config["n_outputs"]):
            own = None if sample_weight is None else sample_weight[y == label]
            means.append(self.metric.mean(covariances[y == label], shares(own)))
        self.means = torch.stack(means).to(x.dtype)

    def logits(self, x: Tensor) -> Tensor:
        """Negative squared distances."""
        return -self.scale * self.metric.sqdist(oas_covariances(x)[:, None], self.means)


class CanonicalCorrelation(ClassicalModel):
    """Largest canonical correlations of the channels with sines and cosines of the class frequencies, as logits [1]_.

    The predicted class is the one with the largest correlation.  A common factor of the correlations, which does not
    change predictions, is fitted such that the softmax of the logits gives probabilities.

    Parameters
    ----------
    n_chans, n_outputs, n_times : int
        Numbers of channels, classes and samples.
    sfreq : float, optional
        Sampling rate in Hz.
    frequencies : sequence of float, optional
        Frequency of each class in Hz, in the order of the classes; needed to fit the model.
    n_harmonics : int
        Number of multiples of each frequency, itself included; those above half the sampling rate are left out.

    References
    ----------
    .. [1] Z. Lin, C. Zhang, W. Wu, X. Gao, "Frequency recognition based on canonical correlation analysis for
       SSVEP-based BCIs", IEEE Transactions on Biomedical Engineering 53 (12), 2006.
    """

    references: Tensor

    def __init__(
        self,
        n_chans: int,
        n_outputs: int,
        n_times: int,
        *,
        sfreq: float | None = None,
        frequencies: Sequence[float] | None = None,
        n_harmonics: int = 3,
    ) -> None:
        check_at_least("n_harmonics", n_harmonics, 1)
        signal = Signal(n_chans, n_outputs, n_times, sfreq)
        super().__init__(signal, frequencies=frequencies, n_harmonics=n_harmonics)
        self.scale = nn.Parameter(torch.ones(()))
        bases = torch.zeros(n_outputs, n_times, 2 * n_harmonics, dtype=torch.float64)
        if frequencies is not None:
            for basis, waves in zip(bases, _reference_waves(signal, frequencies, n_harmonics), strict=True):
                basis[:, : waves.shape[1]] = torch.linalg.qr(waves - waves.mean(0))[0]
        self.register_buffer("references", bases, persistent=False)

    @torch.no_grad()
    def fit(
        self, x: Tensor, y: Tensor, class_weights: Tensor | None = None, sample_weight: Tensor | None = None
    ) -> None:
        """Fit the factor of the correlations by maximum likelihood."""
        if self.config["frequencies"] is None:
            raise ParameterError(
                "frequencies: canonical correlation needs the frequency of each class in Hz, in the order of the "
                "classes; pass the model option frequencies, such as [12, 10, 8.57]."
            )
        x, y, sample_weight = with_influence(x, y, sample_weight)
        _require_all_classes(y, self.config["n_outputs"])
        correlations, weights = self.correlations(x), None if class_weights is None else class_weights.double()

        def loss(log_scale: float) -> float:
            """Cross entropy of the training trials if correlations are multiplied by ``exp(log_scale)``."""
            logits = np.exp(log_scale) * correlations
            if sample_weight is None:
                return float(nn.functional.cross_entropy(logits, y, weights))
            losses = nn.functional.cross_entropy(logits, y, weights, reduction="none")
            return float(sample_weight @ losses / sample_weight.sum())

        self.scale.fill_(np.exp(minimize_scalar(loss, bounds=(-5, 6), method="bounded").x))

    def correlations(self, x: Tensor) -> Tensor:
        """Largest canonical correlation of epochs (n, n_chans, n_times) with each class, (n, n_outputs), in float64."""
        centred = x.double().mT - x.double().mT.mean(1, keepdim=True)  # (n, times, channels)
        basis, singular, _ = torch.linalg.svd(centred, full_matrices=False)
        noise = singular[:, :1] * max(centred.shape[1:]) * torch.finfo(x.dtype).eps
        basis = basis * (singular > noise)[:, None]  # without channels that depend on others
        largest: Tensor = torch.linalg.svdvals(basis.mT[:, None] @ self.references.double())[..., 0]
        return largest

    def logits(self, x: Tensor) -> Tensor:
        """Scaled correlations."""
        return self.scale * self.correlations(x).to(x.dtype)


def _reference_waves(signal: Signal, frequencies: Sequence[float], n_harmonics: int) -> list[Tensor]:
    """Sines and cosines (n_times, 2 n) of each class frequency and its harmonics below half the sampling rate."""
    rate = _require_rate("cca", signal)
    if len(frequencies) != signal.n_outputs:
        raise ParameterError(
            f"frequencies={list(frequencies)} must have one frequency for each of {signal.n_outputs} classes."
        )
    waves = []
    for frequency in frequencies:
        if not 0 < frequency < rate / 2:
            raise ParameterError(
                f"frequencies: {frequency:g} Hz must lie between 0 and half the sampling rate, {rate / 2:g} Hz."
            )
        harmonics = frequency * torch.arange(1, n_harmonics + 1, dtype=torch.float64)
        times = torch.arange(signal.n_times, dtype=torch.float64)[:, None] / rate
        phases = 2 * torch.pi * times * harmonics[harmonics < rate / 2]
        waves.append(torch.cat([phases.sin(), phases.cos()], dim=1))
    return waves


def class_frequencies(class_names: Sequence[str]) -> tuple[float, ...]:
    """Frequencies in Hz that are the names of classes, for the option ``frequencies`` of canonical correlation.

    Examples
    --------
    >>> class_frequencies(("12 Hz", "8.57"))
    (12.0, 8.57)
    """
    try:
        return tuple(float(name.lower().removesuffix("hz")) for name in class_names)
    except ValueError:
        raise ParameterError(
            f"classes {list(class_names)} are not named by frequencies ('12 Hz'), as canonical correlation needs."
        ) from None


# ------------------------------------------------------------------------------------------------------------ registry


def _bands_below_nyquist(signal: Signal) -> tuple[tuple[float, float], ...]:
    """The bands of FBCSP that the sampling rate allows."""
    rate = _require_rate("a filter bank", signal)
    bands = tuple(band for band in BANDS if band[1] < rate / 2)
    if not bands:
        raise ParameterError(f"sfreq={rate:g} is too low for the lowest band of the filter bank, {BANDS[0]} Hz.")
    return bands


def _register_classical(name: str, summary: str, model: type[ClassicalModel], **defaults: Any) -> None:
    """Register a model under a name, with defaults of its options that differ from those of the class.

    A default that is a function of the signal is called with it.
    """

    @register(name, summary, classical=True)
    def build(signal: Signal, task: Task | None, **options: Any) -> nn.Module:  # noqa: ARG001
        """Build the model, with the defaults for options that are not given."""
        missing = {option: value for option, value in defaults.items() if option not in options}
        made = {option: value(signal) if callable(value) else value for option, value in missing.items()}
        return model(**vars(signal), **made, **options)


_register_classical("tangent-space", "tangent space of covariances and logistic regression", TangentSpace)
_register_classical(
    "fb-tangent-space",
    "tangent spaces of a filter bank and logistic regression",
    TangentSpace,
    bands=_bands_below_nyquist,
)
_register_classical("mdm", "minimum affine-invariant distance to the class means", MinimumDistanceToMean)
_register_classical("csp", "common spatial patterns, log-variances and shrinkage LDA", CommonSpatialPatterns)
_register_classical(
    "fbcsp",
    "filter-bank common spatial patterns, selected by mutual information, and LDA",
    CommonSpatialPatterns,
    bands=_bands_below_nyquist,
    n_filters=2,
    n_selected=12,
)
_register_classical("xdawn", "Xdawn covariances, tangent space and logistic regression", XdawnTangentSpace)
_register_classical("lda", "means of channels over 50 ms and shrinkage LDA, for event-related potentials", TimeBinLDA)


@register("cca", "canonical correlation with sines and cosines of the class frequencies, for SSVEP", classical=True)
def _cca(signal: Signal, task: Task | None, **options: Any) -> nn.Module:
    """Build canonical correlation for the registry, with the frequencies of the paper's SSVEP task."""
    if task is not None and task.name == "ssvep" and signal.n_outputs == task.signal.n_outputs:
        options = {"frequencies": SSVEP_FREQUENCIES, **options}
    return CanonicalCorrelation(**vars(signal), **options)
