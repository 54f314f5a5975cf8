"""Randomisation tests whether an attribution depends on the learned weights.

If it does, it changes when the weights are replaced by random ones [1]_.

References
----------
.. [1] J. Adebayo et al., "Sanity checks for saliency maps", NeurIPS 2018.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from scipy.stats import rankdata
from torch import nn

from gbwatt._validation import check_at_least, check_one_of
from gbwatt.decoding import EEGDecoder, inputs, training
from gbwatt.errors import ParameterError
from gbwatt.explain.attribution import CONTRIBUTIONS, METHODS, Attribution, mean_by_class
from gbwatt.explain.inputs import Array, Model, ShortRepr, Target, network, prepare
from gbwatt.models import create


@dataclass(frozen=True, eq=False, repr=False)
class Randomisation(ShortRepr):
    """Attributions of a trained network and of one with random weights, for the same classes.

    Attributes
    ----------
    trained, random : Attribution
        Attributions of the two networks.
    correlation : array (n_classes,)
        Spearman's rank correlation of the two mean magnitudes over channels and times, for each class: about 0 if the
        attribution depends on the learned weights, near 1 if it does not; NaN for classes without trials.  If the
        method multiplies by the epoch, both are first divided by the mean magnitude of the epochs, a common factor
        that would make them similar whatever the weights.
    """

    trained: Attribution
    random: Attribution
    correlation: Array


def randomisation(
    model: Model, trials: Any, target: Target = "true", *, method: str = "gradient", seed: int = 0
) -> Randomisation:
    """Compare the attribution of a model with that of the same model with random weights.

    Parameters
    ----------
    model, trials, target
        As for :func:`~gbwatt.explain.gradient`.  "predicted" is the prediction of the trained model.
    method : str
        A key of :data:`~gbwatt.explain.METHODS`.
    seed : int
        Random seed of the weights.

    Returns
    -------
    Randomisation
        Both attributions and their rank correlation.

    Raises
    ------
    ParameterError
        If the method is unknown, or the weights cannot be drawn again; see :func:`randomised`.

    Examples
    --------
    >>> from gbwatt.models import GBWAtt
    >>> network = GBWAtt(n_chans=4, n_outputs=2, n_times=60)
    >>> randomisation(network, np.random.randn(5, 4, 60), target=1).correlation.shape
    (2,)
    """
    check_one_of("method", method, tuple(METHODS))
    labels = prepare(model, trials).labels(target)
    trained, random = (METHODS[method](m, trials, labels) for m in (model, randomised(model, seed)))
    return Randomisation(trained, random, rank_correlations(trained, random, inputs.read_epochs(trials, "trials")))


def rank_correlations(trained: Attribution, random: Attribution, x: Array) -> Array:
    """Rank correlations (n_classes,) of two attributions of the epochs x, as in :class:`Randomisation`."""
    pairs = zip(_magnitudes(trained, x), _magnitudes(random, x), strict=True)
    return np.array([_rank_correlation(a, b) for a, b in pairs])


def _magnitudes(attribution: Attribution, x: Array) -> Array:
    """Mean magnitudes by class, divided by those of the epochs if the method multiplies by the epoch."""
    if attribution.method not in CONTRIBUTIONS:
        return attribution.by_class()
    size = mean_by_class(abs(x), attribution.labels, len(attribution.class_names))
    return np.asarray(attribution.by_class() / np.where(size == 0, 1, size))


def _rank_correlation(a: Array, b: Array) -> float:
    if np.isnan(a).any():  # no trials of this class
        return float("nan")
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


# ---- random weights


@overload
def randomised(model: EEGDecoder, seed: int = 0) -> EEGDecoder: ...
@overload
def randomised(model: nn.Module, seed: int = 0) -> nn.Module: ...
def randomised(model: Model, seed: int = 0) -> Model:
    """Copy a model with newly initialised weights.

    Parameters
    ----------
    model : EEGDecoder or nn.Module
        A fitted estimator or a network with ``config`` is built again from its arguments.  Every layer with parameters
        of any other network needs a method ``reset_parameters``.
    seed : int
        Random seed of the weights.

    Returns
    -------
    EEGDecoder or nn.Module
        A model of the same type.

    Raises
    ------
    ParameterError
        If a layer cannot be initialised again.

    Examples
    --------
    >>> network = nn.Linear(3, 2)
    >>> bool((randomised(network).weight == network.weight).any())
    False
    """
    check_at_least("seed", seed, 0)
    module = network(model)
    like = next(module.parameters())
    with training.isolated(like.device):
        training.start_epoch(seed, 0, like.device)
        fresh = _rebuild(model) if isinstance(model, EEGDecoder) else _reinitialise(module)
        fresh = fresh.to(like.device, like.dtype)
    if isinstance(model, nn.Module):
        return fresh
    twin = copy.copy(model)
    twin.net_ = twin._trainer(fresh, twin._training())
    return twin


def _rebuild(decoder: EEGDecoder) -> nn.Module:
    return create(decoder.model, **decoder._arguments(decoder.signal_))


def _reinitialise(module: nn.Module) -> nn.Module:
    config = getattr(module, "config", None)
    if isinstance(config, dict):
        return type(module)(**config)
    fresh = copy.deepcopy(module)
    for name, part in fresh.named_modules():
        reset = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
        elif any(True for _ in part.parameters(recurse=False)):
            raise ParameterError(
                f"'model' has parameters in {name or type(part).__name__!r}, a {type(part).__name__}, that cannot "
                "be initialised again; add a method reset_parameters to the layer, or the arguments as config to the "
                "network."
            )
    return fresh
