"""Whether an attribution depends on what was learnt: it should change when the weights are drawn anew.

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
from gbwatt.explain.inputs import Array, Model, Summarised, Target, ask, network
from gbwatt.models import create


@dataclass(frozen=True, eq=False, repr=False)
class Randomisation(Summarised):
    """Attributions of a trained network and of one with random weights, to the same classes.

    Attributes
    ----------
    trained, random : Attribution
    correlation : array (n_classes,)
        Rank correlation (Spearman) of the two mean magnitudes over channels and times, by class: about 0 where the
        attribution depends on what was learnt, and near 1 where it does not.  NaN for a class without trials.  Where
        the method multiplies by the epoch, both are divided by the mean magnitude of the epochs before: whatever the
        weights are, it is in both, and would make them alike.
    """

    trained: Attribution
    random: Attribution
    correlation: Array


def randomisation(
    model: Model, trials: Any, target: Target = "true", *, method: str = "gradient", seed: int = 0
) -> Randomisation:
    """Compare the attribution of a model with that of :func:`randomised`.

    Parameters
    ----------
    model, trials, target
        See :mod:`gbwatt.explain.attribution`.  "predicted" is what the trained model predicts.
    method : str
        A key of :data:`~gbwatt.explain.attribution.METHODS`.
    seed : int
        Of the random weights.
    """
    check_one_of("method", method, tuple(METHODS))
    labels = ask(model, trials).labels(target)
    trained, random = (METHODS[method](m, trials, labels) for m in (model, randomised(model, seed)))
    return Randomisation(trained, random, rank_correlations(trained, random, inputs.read_epochs(trials, "trials")))


def rank_correlations(trained: Attribution, random: Attribution, x: Array) -> Array:
    """``correlation`` of a :class:`Randomisation` (n_classes,), of attributions of the epochs x to the same classes."""
    pairs = zip(_gains(trained, x), _gains(random, x), strict=True)
    return np.array([_rank_correlation(a, b) for a, b in pairs])


def _gains(found: Attribution, x: Array) -> Array:
    """Mean magnitudes by class, without that of the epochs."""
    if found.method not in CONTRIBUTIONS:
        return found.by_class()
    size = mean_by_class(abs(x), found.labels, len(found.class_names))
    return np.asarray(found.by_class() / np.where(size == 0, 1, size))


def _rank_correlation(a: Array, b: Array) -> float:
    if np.isnan(a).any():  # no trial of that class
        return float("nan")
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


# ---- random weights


@overload
def randomised(model: EEGDecoder, seed: int = 0) -> EEGDecoder: ...
@overload
def randomised(model: nn.Module, seed: int = 0) -> nn.Module: ...
def randomised(model: Model, seed: int = 0) -> Model:
    """A copy whose weights are as before any training, drawn with a seed.

    A decoder, and a network with ``config``, is built again; of any other network each part must have
    ``reset_parameters``.
    """
    check_at_least("seed", seed, 0)
    module = network(model)
    like = next(module.parameters())
    with training.isolated(like.device):
        training.start_epoch(seed, 0, like.device)
        fresh = (_rebuilt(model) if isinstance(model, EEGDecoder) else _drawn(module)).to(like.device, like.dtype)
    if isinstance(model, nn.Module):
        return fresh
    twin = copy.copy(model)
    twin.net_ = twin._initialized(fresh, twin._training(), None, [])
    return twin


def _rebuilt(decoder: EEGDecoder) -> nn.Module:
    return create(decoder.model, **decoder._arguments(decoder.signal_))


def _drawn(module: nn.Module) -> nn.Module:
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
                f"'model' has parameters in {name or type(part).__name__!r}, a {type(part).__name__}, that nothing "
                "draws anew; give the layer a method reset_parameters, or the network its arguments as config."
            )
    return fresh
