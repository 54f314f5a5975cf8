"""Initial weights from training data: the untrained network is a classical Riemannian pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from torch import Tensor, nn

from gbwatt.errors import ParameterError
from gbwatt.models.classical import copy_classifier, limited_threads, with_influence
from gbwatt.models.gbwatt import GBWAtt
from gbwatt.nn.features import SpatioTemporalFeatures, Templates

Array = NDArray[Any]

#: Candidates for the inverse regularisation strength of the logistic regression.
STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
#: Initial logit of a trained residual connection: 88 % of the weight is on a window itself.
RESIDUAL_LOGIT = 2.0
#: Eigenvalues of the channel covariance below this fraction of the largest one are raised to it.
FLOOR = 1e-6
FOLDS = 5  # of the cross-validation that chooses the strength


@torch.no_grad()
def initialize_classically(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    class_weights: Tensor | None = None,
    domain: Tensor | None = None,
    sample_weight: Tensor | None = None,
) -> None:
    """Set the weights of a network such that it is a classical pipeline fitted to the training data.

    Spatial filters whiten the channels, temporal filters do not change them, bilinear maps keep the leading rows and
    columns, and the last layer is a logistic regression of the embedded training trials.  This is the pipeline of
    tangent space and logistic regression [1]_, applied to every window.  If there are fewer spatial filters than
    channels, they are the leading principal components or, in a network with templates, the components with the
    largest evoked responses, as in Xdawn.  If there are at least twice as many temporal as spatial filters, the
    temporal filters are a filter bank, which divides the amplitude spectrum into bands of equal area.  Templates, if
    the network has any, are the principal components of the class means of the features.  The statistics of the batch
    normalisation stay fixed during training, because those of a small batch would change the outputs of the network
    from the first step.

    Parameters
    ----------
    model : GBWAtt
        With attention of SPD matrices and filters; changed in place.
    x : Tensor, shape (n, n_chans, n_times)
        Training epochs.
    y : Tensor, shape (n,)
        Class numbers.
    class_weights : Tensor, shape (n_classes,), optional
        Weights of the classes in the loss.
    domain : Tensor, shape (n,), optional
        Numbers of the domains of the epochs, for networks with ``domain_norm``.
    sample_weight : Tensor, shape (n,), optional
        Weights of the trials in the logistic regression.  Filters, templates and statistics use all trials.

    Raises
    ------
    ParameterError
        If the model is not a GBWAtt, BWAtt or MAtt network with filters and attention of SPD matrices.

    References
    ----------
    .. [1] A. Barachant, S. Bonnet, M. Congedo, C. Jutten, "Classification of covariance matrices using a
       Riemannian-based kernel for BCI applications", Neurocomputing 112, 2013.
    """
    features = getattr(model, "features", None)
    spd = isinstance(model, GBWAtt) and model.config["attention"] == "spd"
    if not isinstance(model, GBWAtt) or not spd or not isinstance(features, SpatioTemporalFeatures):
        raise ParameterError(
            "initialization='classical' needs a network with filters and attention of SPD matrices (gbwatt, bwatt or "
            "matt with features=True and attention='spd'); use initialization='random' for others."
        )
    model.eval()
    x = model.centered(x)
    evoked = y if isinstance(model.templates, Templates) else None
    _initialize_filters(features, x, evoked)
    features.freeze_statistics()
    attention: Any = model.attention
    for bilinear in (attention.query, attention.key, attention.value):
        bilinear.weight.copy_(torch.eye(*bilinear.weight.shape))
    if attention.residual == "learnt":
        attention.residual_logit.fill_(RESIDUAL_LOGIT)
    if isinstance(model.templates, Templates):
        _initialize_templates(model.templates, features, x, y)
    initialize_final_layer(model, x, y, class_weights, domain, sample_weight)


def whitening(x: Tensor, n_filters: int) -> Tensor:
    """Spatial filters (n_filters, n_chans) whose outputs are uncorrelated and have unit variance, in float64.

    With as many filters as channels they are the symmetric whitening, which changes the channels least; with fewer,
    the leading principal components.  Filters beyond the number of channels are zero.
    """
    covariance = mean_covariance(x)
    if n_filters < x.shape[1]:
        return _scaled_components(covariance)[0].flip(1)[:, :n_filters].mT
    filters = x.new_zeros(n_filters, x.shape[1], dtype=torch.float64)
    filters[: x.shape[1]] = inverse_root(covariance)
    return filters


def mean_covariance(x: Tensor) -> Tensor:
    """Mean covariance (n_chans, n_chans) of epochs (n, n_chans, n_times), in float64."""
    centred = (x - x.mean(-1, keepdim=True)).double()
    return torch.einsum("bct,bdt->cd", centred, centred) / (x.shape[0] * x.shape[2])


def inverse_root(covariance: Tensor) -> Tensor:
    """Inverse square root of a covariance (n, n), whose eigenvalues are at least :data:`FLOOR` of the largest one."""
    scaled, components = _scaled_components(covariance)
    return scaled @ components.mT


def _scaled_components(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvectors of a covariance (n, n) divided by the roots of their eigenvalues, and the eigenvectors."""
    variances, components = torch.linalg.eigh(covariance)
    return components * variances.clamp_min(FLOOR * variances[-1]).rsqrt(), components


def evoked_components(x: Tensor, y: Tensor, n_filters: int) -> Tensor:
    """Spatial filters (n_filters, n_chans) like those of :func:`whitening`, with the largest evoked responses first.

    As in Xdawn, they maximise the power of the evoked responses relative to that of the epochs.  Evoked responses are
    the class means, minus the average of all class means.
    """
    whitener = whitening(x, x.shape[1])
    means = torch.stack([x[y == label].double().mean(0) for label in y.unique()])
    evoked = whitener @ (means - means.mean(0))
    _, components = torch.linalg.eigh((evoked @ evoked.mT).sum(0))
    filters: Tensor = components.flip(1)[:, :n_filters].mT @ whitener
    return filters


def filter_bank(x: Tensor, n_bands: int, length: int) -> Tensor:
    """Band-pass filters (n_bands, length) that divide the amplitude spectrum of epochs equally, in float64.

    A single band passes the signal unchanged.  Several bands are ideal band-pass filters times a Hamming window.
    """
    times = torch.arange(length, dtype=torch.float64) - length // 2
    if n_bands == 1:
        return (times == 0).double()[None]
    amplitude = torch.fft.rfft((x - x.mean(-1, keepdim=True)).double()).abs().mean((0, 1))
    share = amplitude.cumsum(0) / amplitude.sum()
    inner = torch.searchsorted(share, torch.arange(1, n_bands, dtype=torch.float64) / n_bands)
    edges = torch.cat([torch.zeros(1), inner / x.shape[-1], torch.tensor([0.5])]).double()  # cycles per sample
    low_passes = 2 * edges[:, None] * torch.sinc(2 * edges[:, None] * times)
    return low_passes.diff(dim=0) * torch.hamming_window(length + 1 - length % 2, False, dtype=torch.float64)[:length]


def _initialize_filters(features: SpatioTemporalFeatures, x: Tensor, y: Tensor | None) -> None:
    """Set the spatial filters to whiten the channels, and the temporal filters to a filter bank.

    If there are fewer spatial filters than channels, the principal components are kept or, with class numbers ``y``,
    the components with the largest evoked responses.
    """
    spatial, temporal = features.spatial, features.temporal
    n_spatial, n_temporal = spatial.out_channels // temporal.groups, temporal.out_channels // features.branches
    fewer = n_spatial < x.shape[1]
    whitener = whitening(x, n_spatial) if y is None or not fewer else evoked_components(x, y, n_spatial)
    n_components = min(n_spatial, x.shape[1])
    bank = filter_bank(whitener @ x.double(), max(1, n_temporal // n_components), temporal.kernel_size[0])
    spatial.weight.copy_(whitener.repeat(temporal.groups, 1)[:, :, None])
    temporal.weight.zero_()
    for output in range(temporal.out_channels):
        band, component = divmod(output % n_temporal, n_components)
        if band < len(bank):
            temporal.weight[output, component] = bank[band]
    for layer, norm in ((spatial, features.spatial_norm), (temporal, features.temporal_norm)):
        assert layer.bias is not None  # by construction; for the type checker
        assert norm.running_var is not None
        layer.bias.zero_()
        norm.reset_parameters()  # mean 0, variance 1, weight 1, bias 0
        norm.running_var.sub_(norm.eps)
    if len(bank) > 1:  # bands of equal power
        variance = features(x).double().var(3).mean(0).flatten()
        features.temporal_norm.weight.copy_(variance.clamp_min(FLOOR * variance.max()).rsqrt())


def _initialize_templates(templates: Templates, features: nn.Module, x: Tensor, y: Tensor) -> None:
    """Set the templates to the principal components, in time, of the class means minus their average."""
    filtered = features(x)  # (n, branches, n_temporal, times)
    means = torch.stack([filtered[y == label].mean(0) for label in y.unique()])
    means = (means - means.mean(0)).flatten(0, -2).double()  # (classes * branches * n_temporal, times)
    _, scales, components = torch.linalg.svd(means, full_matrices=False)
    rows = torch.zeros(templates.weight.shape, dtype=torch.float64)
    count = min(len(rows), len(components))
    rows[:count] = scales[:count, None] * components[:count]
    templates.weight.copy_(rows / rows.std().clamp_min(torch.finfo(torch.float64).tiny))


def adapt_domains(model: nn.Module, x: Tensor, domain: Tensor | None) -> None:
    """Estimate the statistics of domains from epochs, if the network has any."""
    if getattr(model, "domain_norm", None) is not None:
        model.adapt(x, domain)  # type: ignore[operator]


def initialize_final_layer(
    model: GBWAtt,
    x: Tensor,
    y: Tensor,
    class_weights: Tensor | None,
    domain: Tensor | None = None,
    sample_weight: Tensor | None = None,
) -> None:
    """Set the last layer to a logistic regression of the embedded epochs, regularised as cross-validation selects.

    In networks with ``domain_norm``, the statistics of the domains are estimated first.  Trials of weight 0 have no
    influence on the regression.
    """
    adapt_domains(model, x, domain)
    domain = domain if domain is None or sample_weight is None else domain[sample_weight > 0]
    x, y, sample_weight = with_influence(x, y, sample_weight)
    parts = zip(*(values.split(256) for values in (x, *(() if domain is None else (domain,)))), strict=True)
    embedded, labels = torch.cat([model.embed(*part) for part in parts]).double().numpy(), y.numpy()
    weights = np.ones(model.final_layer.out_features) if class_weights is None else class_weights.double().numpy()
    solver = "newton-cholesky" if len(weights) == 2 else "lbfgs"  # the faster one
    class_weight = dict(enumerate(weights.tolist()))
    regression = LogisticRegression(max_iter=2000, solver=solver, class_weight=class_weight)
    own = None if sample_weight is None else sample_weight.numpy()
    folds = min(FOLDS, int(np.bincount(labels).min()))
    with limited_threads():
        # The regularised coefficients lie in the span of the centred trials, and the intercept is not regularised:
        # coordinates in this span give the same classifier in less time.
        centre = embedded.mean(0)
        basis, coordinates = np.linalg.qr((embedded - centre).T)
        if folds > 1:
            regression.set_params(C=_choose_strength(regression, coordinates.T, labels, weights, folds, own))
        regression.set_params(tol=1e-8).fit(coordinates.T, labels, own)
    regression.coef_ = regression.coef_ @ basis.T
    regression.intercept_ = regression.intercept_ - regression.coef_ @ centre
    copy_classifier(regression, model.final_layer)


def _choose_strength(
    regression: LogisticRegression,
    embedded: Array,
    labels: Array,
    weights: Array,
    folds: int,
    sample_weight: Array | None = None,
) -> float:
    """Inverse regularisation strength with the lowest weighted log loss in cross-validation."""
    losses = np.zeros(len(STRENGTHS))
    for train, test in StratifiedKFold(folds).split(embedded, labels):
        path = clone(regression).set_params(warm_start=True)  # begins with the solution for the previous strength
        for number, strength in enumerate(STRENGTHS):
            own = None if sample_weight is None else sample_weight[train]
            path.set_params(C=strength).fit(embedded[train], labels[train], own)
            probabilities = path.predict_proba(embedded[test])[np.arange(len(test)), labels[test]]
            of_trials = weights[labels[test]] * (1.0 if sample_weight is None else sample_weight[test])
            losses[number] -= of_trials @ np.log(probabilities.clip(1e-12))
    return STRENGTHS[int(losses.argmin())]
