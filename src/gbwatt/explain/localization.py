"""Whether an attribution finds what was planted into simulated recordings: where, when, and in which band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import roc_auc_score

from gbwatt.data.trials import Effect, Truth
from gbwatt.errors import MismatchError
from gbwatt.explain.attribution import Attribution, require_attribution
from gbwatt.explain.inputs import Array

TOP = 0.25  # share of channels among which what was planted should be


@dataclass(frozen=True)
class Share:
    """Part of an attribution that lies where something was planted, beside that of one which is flat."""

    found: float
    expected: float


@dataclass(frozen=True)
class Found:
    """How well the attribution to a class agrees with what was planted for it.

    Attributes
    ----------
    class_name : str
    planted : tuple of str
        Electrodes where the effects of the class are strongest.
    ranks : tuple of int
        Of these electrodes among all by mean magnitude, from 1, the largest.
    n_channels : int
    level : float
        Mean magnitude over the planted electrodes, divided by the 75th percentile of all channels.
    roc_auc : float
        How well the mean magnitude tells channels at which an effect has half its size or more from the others: area
        under the ROC curve; NaN if there are only channels of one kind.
    window : Share or None
        Of the magnitude, inside the time of deflections.
    band : Share or None
        Of the power of the signed attribution (Fourier transform along time), in the bands of oscillations and
        desynchronisations.  Random weights give more than a flat spectrum has, too, where the epochs do: the gradient
        of a covariance contains the epoch.
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
        """Whether the planted group stands out: its best electrode in the top quarter, and its mean above it."""
        return self.best_in_top and self.level > 1


def localisation(attribution: Attribution, truth: Truth) -> tuple[Found, ...]:
    """Compare an attribution with the truth, for each class that can be compared.

    A class for which nothing was planted is told by the absence of what was planted for the other, if there are two:
    then that is expected of it too.  Otherwise, and if no trial was explained as a class, it is left out.

    Parameters
    ----------
    attribution : Attribution
        Of signed values, as all methods give.
    truth : Truth
        ``trials.truth`` of simulated trials of one subject.
    """
    require_attribution(attribution)
    if not isinstance(truth, Truth):
        raise MismatchError(
            f"'truth' is {'None' if truth is None else f'a {type(truth).__name__}'}; trials.truth of simulated trials "
            "of one subject is needed. Of other recordings nobody knows it: ask deletion, insertion and randomisation."
        )
    if attribution.ch_names != truth.ch_names:
        raise MismatchError(
            f"'attribution' has the channels {list(attribution.ch_names)}, but 'truth' {list(truth.ch_names)}; explain "
            "simulated trials as they are."
        )
    found = [
        _compared(attribution, number, _effects(truth, name)) for number, name in enumerate(attribution.class_names)
    ]
    return tuple(one for one in found if one is not None)


def _effects(truth: Truth, name: str) -> tuple[Effect, ...]:
    """What a decoder can tell the class by."""
    if name not in truth.effects:
        raise MismatchError(f"'truth' has no class {name!r}; it has {', '.join(map(repr, truth.effects))}.")
    own = truth.effects[name]
    if own or len(truth.effects) != 2:
        return own
    return tuple(effect for effects in truth.effects.values() for effect in effects)


def _compared(attribution: Attribution, number: int, effects: tuple[Effect, ...]) -> Found | None:
    values = attribution.values[attribution.labels == number]
    if not effects or not len(values):
        return None
    channels = abs(values).mean(axis=(0, 2))
    planted = tuple(dict.fromkeys(name for effect in effects for name in effect.channels))
    places = [attribution.ch_names.index(name) for name in planted]
    rank = (-channels).argsort().argsort() + 1
    return Found(
        class_name=attribution.class_names[number],
        planted=planted,
        ranks=tuple(int(rank[place]) for place in places),
        n_channels=len(channels),
        level=float(channels[places].mean() / np.percentile(channels, 100 * (1 - TOP))),
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


def _share(amount: Array, places: Array, intervals: Sequence[tuple[float, float]]) -> Share | None:
    """Part of the amount that lies in any of the intervals."""
    if not intervals:
        return None
    inside = np.any([(places >= low) & (places <= high) for low, high in intervals], axis=0)
    return Share(float(amount[inside].sum() / amount.sum()), float(inside.mean()))
