"""Localisation compares an attribution with the effects planted in simulated recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import roc_auc_score

from gbwatt.data.trials import Effect, Truth
from gbwatt.errors import MismatchError
from gbwatt.explain.attribution import Attribution, require_attribution
from gbwatt.explain.inputs import Array

TOP = 0.25  # fraction of channels in which planted electrodes are expected


@dataclass(frozen=True)
class Share:
    """Share of an attribution in a planted window or band.

    Attributes
    ----------
    found : float
        Share of the attribution.
    expected : float
        Share of a flat attribution: the relative width of the window or band.
    """

    found: float
    expected: float


@dataclass(frozen=True)
class LocalisationResult:
    """Agreement of the attribution for a class with the effects planted for it.

    Attributes
    ----------
    class_name : str
        Name of the class.
    planted : tuple of str
        Electrodes where the effects of the class are strongest.
    ranks : tuple of int
        Rank of each of these electrodes by mean magnitude; 1 is the largest.
    n_channels : int
        Number of channels.
    level : float
        Mean magnitude over the planted electrodes, divided by the 75th percentile of all channels.
    roc_auc : float
        Area under the ROC curve of the mean magnitude as a score for channels where an effect has at least half its
        maximum; NaN if all or no channels are such.
    window : Share or None
        Share of the magnitude within the time windows of deflections.
    band : Share or None
        Share of the power of the signed attribution (Fourier transform along time) within the bands of oscillations
        and desynchronisations.  It may exceed that of a flat spectrum for random weights, too: the gradient of a
        covariance contains the epoch.
    """

    class_name: str
    planted: tuple[str, ...]
    ranks: tuple[int, ...]
    n_channels: int
    level: float
    roc_auc: float
    window: Share | None
    band: Share | None

    @property
    def best_in_top(self) -> bool:
        """Whether the best-ranked planted electrode is in the top quarter of channels."""
        return min(self.ranks) <= TOP * self.n_channels

    @property
    def all_in_top(self) -> bool:
        """Whether all planted electrodes are in the top quarter of channels."""
        return max(self.ranks) <= TOP * self.n_channels

    @property
    def found(self) -> bool:
        """Whether the best planted electrode is in the top quarter, and the mean of all above its lower end."""
        return self.best_in_top and self.level > 1


def localisation(attribution: Attribution, truth: Truth) -> tuple[LocalisationResult, ...]:
    """Compare an attribution with the effects planted in simulated trials.

    Parameters
    ----------
    attribution : Attribution
        Attribution of simulated trials, by any method.
    truth : Truth
        ``trials.truth`` of simulated trials of one subject.

    Returns
    -------
    tuple of LocalisationResult
        One for each class with trials and with effects.  If one of two classes has no effects, it is compared with
        those of the other, whose absence characterises it.

    Raises
    ------
    MismatchError
        If attribution and truth have different channels or classes.

    Examples
    --------
    >>> from gbwatt.data import load
    >>> from gbwatt.explain import gradient
    >>> from gbwatt.models import GBWAtt
    >>> trials = load("simulated-ssvep", subject=1)[:50]
    >>> network = GBWAtt.for_task("ssvep")
    >>> [result.planted for result in localisation(gradient(network, trials), trials.truth)][:2]
    [('Oz',), ('Oz',)]
    """
    require_attribution(attribution)
    if not isinstance(truth, Truth):
        raise MismatchError(
            f"'truth' is {'None' if truth is None else f'a {type(truth).__name__}'}; trials.truth of simulated trials "
            "of one subject is needed. For other recordings use deletion, insertion and randomisation."
        )
    if attribution.ch_names != truth.ch_names:
        raise MismatchError(
            f"'attribution' has the channels {list(attribution.ch_names)}, but 'truth' {list(truth.ch_names)}; explain "
            "simulated trials with all channels in their order."
        )
    results = [
        _compare(attribution, number, _effects(truth, name)) for number, name in enumerate(attribution.class_names)
    ]
    return tuple(result for result in results if result is not None)


def _effects(truth: Truth, name: str) -> tuple[Effect, ...]:
    """Effects that distinguish the class from the others."""
    if name not in truth.effects:
        raise MismatchError(f"'truth' has no class {name!r}; it has {', '.join(map(repr, truth.effects))}.")
    own = truth.effects[name]
    if own or len(truth.effects) != 2:
        return own
    return tuple(effect for effects in truth.effects.values() for effect in effects)


def _compare(attribution: Attribution, number: int, effects: tuple[Effect, ...]) -> LocalisationResult | None:
    values = attribution.values[attribution.labels == number]
    if not effects or not len(values):
        return None
    channels = abs(values).mean(axis=(0, 2))
    planted = tuple(dict.fromkeys(name for effect in effects for name in effect.channels))
    indices = [attribution.ch_names.index(name) for name in planted]
    rank = (-channels).argsort().argsort() + 1
    return LocalisationResult(
        class_name=attribution.class_names[number],
        planted=planted,
        ranks=tuple(int(rank[index]) for index in indices),
        n_channels=len(channels),
        level=float(channels[indices].mean() / np.percentile(channels, 100 * (1 - TOP))),
        roc_auc=_roc_auc(channels, effects),
        window=_in_window(values, attribution.times, effects),
        band=_in_band(values, attribution.sfreq, effects),
    )


def _roc_auc(channels: Array, effects: Sequence[Effect]) -> float:
    strong = np.max([np.abs(effect.topography) for effect in effects], axis=0) >= 0.5
    return float("nan") if strong.all() or not strong.any() else float(roc_auc_score(strong, channels))


def _in_window(values: Array, times: Array, effects: Sequence[Effect]) -> Share | None:
    windows = [effect.window for effect in effects if effect.kind == "deflection"]
    return _share(abs(values).mean(axis=(0, 1)), times, windows)


def _in_band(values: Array, sfreq: float, effects: Sequence[Effect]) -> Share | None:
    bands = [effect.band for effect in effects if effect.band is not None]
    power = (abs(np.fft.rfft(values)) ** 2).mean(axis=(0, 1))
    return _share(power, np.fft.rfftfreq(values.shape[2], 1 / sfreq), bands)


def _share(amount: Array, axis: Array, intervals: Sequence[tuple[float, float]]) -> Share | None:
    """Share of an amount along an axis that lies in any of the intervals."""
    if not intervals:
        return None
    inside = np.any([(axis >= low) & (axis <= high) for low, high in intervals], axis=0)
    return Share(float(amount[inside].sum() / amount.sum()), float(inside.mean()))
