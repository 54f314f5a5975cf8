"""Attributions: gradients of the logits with respect to the samples, and methods derived from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gbwatt._validation import check_at_least, check_number
from gbwatt.errors import MismatchError, ParameterError
from gbwatt.explain.inputs import Array, Model, ModelInputs, ShortRepr, Target, prepare


@dataclass(frozen=True, eq=False, repr=False)
class Attribution(ShortRepr):
    """Signed importance of each sample in each trial.

    Attributes
    ----------
    values : array (n, n_chans, n_times)
        Importance of each sample for the logit of the trial's class.
    labels : array (n,)
        Class that each trial was explained for, as an index into ``class_names``.
    class_names, ch_names : tuple of str
        Names of classes and channels.
    sfreq : float
        Sampling rate in Hz; 1 if it is unknown, so that times are sample numbers.
    tmin : float
        Time of the first sample in seconds.
    method : str
        A key of :data:`METHODS`.
    """

    values: Array
    labels: Array
    class_names: tuple[str, ...]
    ch_names: tuple[str, ...]
    sfreq: float
    tmin: float
    method: str

    @property
    def times(self) -> Array:
        """Time of each sample in seconds (n_times,)."""
        return self.tmin + np.arange(self.values.shape[2]) / self.sfreq

    def by_class(self) -> Array:
        """Mean magnitude over the trials of each class (n_classes, n_chans, n_times).

        NaN for classes without trials; :attr:`present` leaves them out.
        """
        return mean_by_class(abs(self.values), self.labels, len(self.class_names))

    def channels(self) -> Array:
        """Mean magnitude over trials and time (n_classes, n_chans); NaN for classes without trials."""
        return np.asarray(self.by_class().mean(axis=2))

    @property
    def present(self) -> Attribution:
        """The same attribution without the classes that have no trials.

        Examples
        --------
        >>> values, names = np.ones((2, 1, 5)), ("left", "feet", "right")
        >>> present = Attribution(values, np.array([0, 2]), names, ("Cz",), 1.0, 0.0, "gradient").present
        >>> present.class_names, present.labels.tolist(), present.channels().tolist()
        (('left', 'right'), [0, 1], [[1.0], [1.0]])
        """
        classes, labels = np.unique(self.labels, return_inverse=True)
        return replace(self, labels=labels, class_names=tuple(self.class_names[index] for index in classes))


def require_attribution(attribution: object) -> None:
    """Raise an error for anything but an Attribution, such as its array of values."""
    if not isinstance(attribution, Attribution):
        raise MismatchError(
            f"'attribution' is a {type(attribution).__name__}; an Attribution is needed, as gradient(model, trials) "
            "and the other methods return it, not its values alone."
        )


def mean_by_class(values: Array, labels: Array, n_classes: int) -> Array:
    """Means (n_classes, ...) of values (n, ...) over the rows of each class; NaN for classes without rows."""
    means = np.full((n_classes, *values.shape[1:]), np.nan)
    for label in np.unique(labels):
        means[label] = values[labels == label].mean(axis=0)
    return means


# ---- methods


def gradient(model: Model, trials: Any, target: Target = "true") -> Attribution:
    r"""Gradient :math:`∂ z_c / ∂ x` of a class's logit with respect to the epoch [1]_.

    This is the explanation that the paper uses.  It shows the magnitude, averaged as in :meth:`Attribution.by_class`.

    Parameters
    ----------
    model : EEGDecoder or nn.Module
        A fitted estimator, or a network from (batch, n_chans, n_times) to logits.
    trials : Trials, mne.Epochs or array (n, n_chans, n_times)
        Epochs to explain, in the unit of the recording.
    target : "true", "predicted", str, int or array (n,)
        Class that each trial is explained for: its true class, the predicted class, one class for all trials, or a
        class for each trial.

    Returns
    -------
    Attribution
        Its values are in logits per unit of the recording.

    References
    ----------
    .. [1] K. Simonyan, A. Vedaldi, A. Zisserman, "Deep inside convolutional networks", ICLR workshop 2014.

    Examples
    --------
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(2 * 50, 3))
    >>> attribution = gradient(network, np.ones((4, 2, 50)), "predicted")
    >>> attribution.values.shape, attribution.channels().shape, attribution.ch_names
    ((4, 2, 50), (3, 2), ('0', '1'))
    """
    inputs = prepare(model, trials)
    labels = inputs.labels(target)
    return _make_attribution(inputs, labels, inputs.gradients(labels), "gradient")


def gradient_times_input(model: Model, trials: Any, target: Target = "true") -> Attribution:
    r"""Gradient times epoch, :math:`x ∂ z_c / ∂ x`: the contribution of a sample to the logit, to first order.

    If the logits do not depend on the scale of an epoch, as is nearly true for GBWAtt, the values of a trial sum to
    zero.

    Parameters
    ----------
    model, trials, target
        As for :func:`gradient`.

    Returns
    -------
    Attribution
        Its values are in logits.

    Examples
    --------
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(2 * 50, 3))
    >>> bool(gradient_times_input(network, np.zeros((4, 2, 50)), "predicted").values.any())
    False
    """
    inputs = prepare(model, trials)
    labels = inputs.labels(target)
    return _make_attribution(inputs, labels, inputs.x * inputs.gradients(labels), "gradient-times-input")


def integrated_gradients(model: Model, trials: Any, target: Target = "true", *, steps: int = 32) -> Attribution:
    r"""Integrated gradients :math:`x \int_0^1 ∂ z_c(a x) / ∂ x \, da` from the zero epoch to the epoch [1]_.

    Parameters
    ----------
    model, trials, target
        As for :func:`gradient`.
    steps : int
        Number of nodes of the Gauss-Legendre quadrature.  None of them is at zero, where there may be no gradient.

    Returns
    -------
    Attribution
        Its values are in logits.

    Notes
    -----
    The method is complete: the values of a trial sum to :math:`z_c(x) - z_c(0)` or, if the logits are discontinuous at
    zero, to :math:`z_c(x) - \lim_{a → 0} z_c(a x)`.  Covariances normalised to trace one are discontinuous at zero
    unless an offset is added.  Then the logits do not depend on :math:`a`, and the values are proportional to gradient
    times input.  The logits of a trained GBWAtt hardly depend on the scale of an epoch, so that both methods give
    nearly the same maps.

    References
    ----------
    .. [1] M. Sundararajan, A. Taly, Q. Yan, "Axiomatic attribution for deep networks", ICML 2017.

    Examples
    --------
    >>> from torch import nn
    >>> network, epochs = nn.Sequential(nn.Flatten(), nn.Linear(2 * 50, 3, bias=False)), np.ones((4, 2, 50))
    >>> values = integrated_gradients(network, epochs, target=0).values
    >>> with torch.no_grad():
    ...     logits = network(torch.ones(4, 2, 50))[:, 0].numpy()
    >>> bool(np.allclose(values.sum(axis=(1, 2)), logits, atol=1e-5))
    True
    """
    check_at_least("steps", steps, 1)
    inputs = prepare(model, trials)
    labels = inputs.labels(target)
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    total = np.zeros(inputs.x.shape)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        total += weight * inputs.gradients(labels, partial(torch.mul, other=float(node)))
    return _make_attribution(inputs, labels, inputs.x * total, "integrated-gradients")


def smooth_gradient(
    model: Model, trials: Any, target: Target = "true", *, noise: float = 0.15, samples: int = 20, seed: int = 0
) -> Attribution:
    """Mean gradient over noisy copies of the epoch (SmoothGrad) [1]_.

    Parameters
    ----------
    model, trials, target
        As for :func:`gradient`.  The predicted class is that of the epoch without noise.
    noise : float
        Standard deviation of the noise, relative to that of the epoch.
    samples : int
        Number of noisy copies of each epoch.
    seed : int
        Random seed of the noise.

    Returns
    -------
    Attribution
        Its values are in logits per unit of the recording.

    References
    ----------
    .. [1] D. Smilkov et al., "SmoothGrad: removing noise by adding noise", 2017, arXiv:1706.03825.

    Examples
    --------
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(2 * 50, 3))
    >>> smooth_gradient(network, np.ones((4, 2, 50)), "predicted", samples=3).method
    'smooth-gradient'
    """
    check_number("noise", noise)
    if noise < 0:
        raise ParameterError(f"noise={noise} must be 0 or more, relative to the epoch's standard deviation.")
    check_at_least("samples", samples, 1)
    check_at_least("seed", seed, 0)
    inputs, rng = prepare(model, trials), np.random.default_rng(seed)
    labels = inputs.labels(target)
    total = sum(inputs.gradients(labels, lambda x: _add_noise(x, noise, rng)) for _ in range(samples))
    return _make_attribution(inputs, labels, np.asarray(total) / samples, "smooth-gradient")


def _add_noise(x: Tensor, noise: float, rng: np.random.Generator) -> Tensor:
    """Add white noise to epochs; ``noise`` is its standard deviation relative to that of each epoch."""
    drawn = torch.from_numpy(rng.standard_normal(x.shape)).to(x.device, x.dtype)
    return x + noise * x.std((1, 2), keepdim=True) * drawn


def _make_attribution(inputs: ModelInputs, labels: Array, values: Array, method: str) -> Attribution:
    """Make an Attribution from values and the metadata of the inputs."""
    return Attribution(values, labels, inputs.class_names, inputs.ch_names, inputs.sfreq, inputs.tmin, method)


Method = Callable[..., Attribution]

#: Methods that multiply by the epoch, so that their values are in logits; those of the others are in logits per unit.
CONTRIBUTIONS = ("gradient-times-input", "integrated-gradients")

#: The methods by name.
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "gradient": gradient,
        "gradient-times-input": gradient_times_input,
        "integrated-gradients": integrated_gradients,
        "smooth-gradient": smooth_gradient,
    }
)
