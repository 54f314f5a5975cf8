"""Attributions: gradients of the logits with respect to the samples, and their relatives."""

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
from gbwatt.explain.inputs import Array, Model, Question, Summarised, Target, ask


@dataclass(frozen=True, eq=False, repr=False)
class Attribution(Summarised):
    """What mattered in each trial, with its sign.

    Attributes
    ----------
    values : array (n, n_chans, n_times)
    labels : array (n,)
        Class that each trial was explained as, a place in ``class_names``.
    class_names, ch_names : tuple of str
    sfreq : float
        In Hz; 1 where it is not known, so that times are samples.
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
        """Seconds after the event (n_times,)."""
        return self.tmin + np.arange(self.values.shape[2]) / self.sfreq

    def by_class(self) -> Array:
        """Mean magnitude over the trials of each class (n_classes, n_chans, n_times).

        NaN for a class without any: :attr:`present` has only the others, for pictures say.
        """
        return mean_by_class(abs(self.values), self.labels, len(self.class_names))

    def channels(self) -> Array:
        """Mean magnitude over trials and time (n_classes, n_chans); NaN for a class without trials."""
        return np.asarray(self.by_class().mean(axis=2))

    @property
    def present(self) -> Attribution:
        """The same without the names of classes that no trial was explained as.

        Examples
        --------
        >>> found = Attribution(np.ones((2, 1, 5)), np.array([0, 2]), ("left", "feet", "right"), ("Cz",), 1.0, 0.0, "")
        >>> found.present.class_names, found.present.labels.tolist(), found.present.channels().tolist()
        (('left', 'right'), [0, 1], [[1.0], [1.0]])
        """
        there, labels = np.unique(self.labels, return_inverse=True)
        return replace(self, labels=labels, class_names=tuple(self.class_names[place] for place in there))


def require_attribution(attribution: object) -> None:
    """Refuse what has no names, such as the bare values."""
    if not isinstance(attribution, Attribution):
        raise MismatchError(
            f"'attribution' is a {type(attribution).__name__}; an Attribution is needed, as gradient(model, trials) "
            "and the other methods return it: not its values alone."
        )


def mean_by_class(values: Array, labels: Array, n_classes: int) -> Array:
    """Means (n_classes, ...) of values (n, ...) over the rows of each class; NaN for a class without any."""
    found = np.full((n_classes, *values.shape[1:]), np.nan)
    for label in np.unique(labels):
        found[label] = values[labels == label].mean(axis=0)
    return found


# ---- methods


def gradient(model: Model, trials: Any, target: Target = "true") -> Attribution:
    r"""Gradient :math:`∂ z_c / ∂ x` of a class's logit by the epoch [1]_, the paper's explanation of a decoder.

    The paper shows its magnitude, which is what :meth:`Attribution.by_class` averages.

    References
    ----------
    .. [1] K. Simonyan, A. Vedaldi, A. Zisserman, "Deep inside convolutional networks", ICLR workshop 2014.

    Examples
    --------
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(2 * 50, 3))
    >>> found = gradient(network, np.ones((4, 2, 50)), "predicted")
    >>> found.values.shape, found.channels().shape, found.ch_names
    ((4, 2, 50), (3, 2), ('0', '1'))
    """
    question = ask(model, trials)
    labels = question.labels(target)
    return _attribution(question, labels, question.gradients(labels), "gradient")


def gradient_times_input(model: Model, trials: Any, target: Target = "true") -> Attribution:
    r"""Gradient times epoch, :math:`x ∂ z_c / ∂ x`: what a sample adds to the logit, to first order.

    Where the logits do not depend on the scale of an epoch, as nearly in a GBWAtt, the values of a trial sum to zero.
    """
    question = ask(model, trials)
    labels = question.labels(target)
    return _attribution(question, labels, question.x * question.gradients(labels), "gradient-times-input")


def integrated_gradients(model: Model, trials: Any, target: Target = "true", *, steps: int = 32) -> Attribution:
    r"""Integrated gradients :math:`x \int_0^1 ∂ z_c(a x) / ∂ x \, da` from silence to the epoch [1]_.

    Complete: the values of a trial sum to :math:`z_c(x) - z_c(0)`, or, where the logits jump at silence, to
    :math:`z_c(x) - \lim_{a → 0} z_c(a x)`.  Covariances of trace one do jump, in windows that no offset reaches; there
    the logits do not depend on :math:`a` at all, and the values are proportional to gradient times input.  A trained
    GBWAtt is close to that: its logits hardly depend on the scale of an epoch, so that the two methods give nearly the
    same maps.

    Parameters
    ----------
    model, trials, target
        See :mod:`gbwatt.explain.attribution`.
    steps : int
        Nodes of the Gauss-Legendre quadrature: it has none at silence, where there is no gradient.

    References
    ----------
    .. [1] M. Sundararajan, A. Taly, Q. Yan, "Axiomatic attribution for deep networks", ICML 2017.
    """
    check_at_least("steps", steps, 1)
    question = ask(model, trials)
    labels = question.labels(target)
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    total = np.zeros(question.x.shape)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        total += weight * question.gradients(labels, partial(torch.mul, other=float(node)))
    return _attribution(question, labels, question.x * total, "integrated-gradients")


def smooth_gradient(
    model: Model, trials: Any, target: Target = "true", *, noise: float = 0.15, samples: int = 20, seed: int = 0
) -> Attribution:
    """Mean gradient over noisy copies of the epoch (SmoothGrad) [1]_.

    Parameters
    ----------
    model, trials, target
        See :mod:`gbwatt.explain.attribution`.  The predicted class is that of the epoch without noise.
    noise : float
        Standard deviation of the noise, as a share of the epoch's own.
    samples : int
        Copies of each epoch.
    seed : int

    References
    ----------
    .. [1] D. Smilkov et al., "SmoothGrad: removing noise by adding noise", 2017, arXiv:1706.03825.
    """
    check_number("noise", noise)
    if noise < 0:
        raise ParameterError(f"noise={noise} must be 0 or more, a share of the epoch's standard deviation.")
    check_at_least("samples", samples, 1)
    check_at_least("seed", seed, 0)
    question, rng = ask(model, trials), np.random.default_rng(seed)
    labels = question.labels(target)
    total = sum(question.gradients(labels, lambda x: _noisy(x, noise, rng)) for _ in range(samples))
    return _attribution(question, labels, np.asarray(total) / samples, "smooth-gradient")


def _noisy(x: Tensor, noise: float, rng: np.random.Generator) -> Tensor:
    drawn = torch.from_numpy(rng.standard_normal(x.shape)).to(x.device, x.dtype)
    return x + noise * x.std((1, 2), keepdim=True) * drawn


def _attribution(question: Question, labels: Array, values: Array, method: str) -> Attribution:
    q = question
    return Attribution(values, labels, q.class_names, q.ch_names, q.sfreq, q.tmin, method)


Method = Callable[..., Attribution]

#: Methods whose values are the epoch times something, in parts of the logit; those of the others are per unit of it.
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
