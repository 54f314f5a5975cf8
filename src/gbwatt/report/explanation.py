"""What explains a decoder on some trials: pictures with captions that say what was computed, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbwatt import checks, explain, figures
from gbwatt.data import Trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gbwatt.explain import Attribution
    from gbwatt.training import EEGDecoder

_CURVE_TRIALS = 100  # at most, for deletion and insertion: each takes a hundred forward passes
_MOST = 3  # channels that are named


class Picture(NamedTuple):
    """A figure, the name of its file, and what was computed for it."""

    name: str
    figure: Figure
    caption: str


def pictures_of(decoder: EEGDecoder, trials: Trials, method: str = "gradient") -> Iterator[Picture]:
    """All pictures that a decoder has: those of any network, and those of attention if there is some.

    Parameters
    ----------
    decoder : EEGDecoder
        Fitted.
    trials : Trials
        That the decoder has not been trained on, say.
    method : str
        Of the attribution, a key of :data:`gbwatt.explain.METHODS`.
    """
    attribution = attribute(decoder, trials, method)
    yield from _of_attribution(attribution, trials.unit)
    yield from _of_filters(decoder, trials)
    yield from _of_attention(decoder, trials)
    yield _faithful(decoder, trials, method)


def attribute(decoder: EEGDecoder, trials: Trials, method: str) -> Attribution:
    """The attribution of the true classes."""
    checks.one_of("method", method, tuple(explain.METHODS))
    return explain.METHODS[method](decoder, trials)


# ---- what matters in an epoch


def _of_attribution(found: Attribution, unit: str) -> Iterator[Picture]:
    values, names = _present(found)
    label = _quantity(found.method, unit)
    what = f"Mean magnitude over trials of the {found.method.replace('-', ' ')} of the logit of the true class"
    heat = figures.heatmaps(values, names, found.ch_names, found.times, label)
    yield Picture("heatmaps", heat, f"{what}, for each channel and time; one panel a class, {_counts(found)}.")
    over_time = f"{what}, averaged over time."
    try:
        scalp = figures.topomaps(values.mean(axis=2), names, found.ch_names, label)
        yield Picture("topomaps", scalp, f"{over_time} Between electrodes it is interpolated.")
    except figures.UnknownPositionError:
        bars = figures.channel_bars(values.mean(axis=2), names, found.ch_names, label)
        yield Picture("channels", bars, f"{over_time} It is not known where these electrodes are.")


def _present(found: Attribution) -> tuple[np.ndarray, list[str]]:
    """Mean magnitudes of the classes that have trials, and their names."""
    values = found.by_class()
    there = [place for place in range(len(values)) if not np.isnan(values[place]).any()]
    return values[there], [found.class_names[place] for place in there]


def _quantity(method: str, unit: str) -> str:
    if method in ("gradient", "smooth-gradient"):
        return f"|∂ logit / ∂ x| (1/{unit})"
    return "contribution to the logit"


def _counts(found: Attribution) -> str:
    numbers = np.bincount(found.labels, minlength=len(found.class_names))
    return ", ".join(f"{n} trials of {name}" for name, n in zip(found.class_names, numbers, strict=True) if n)


# ---- filters


def _of_filters(decoder: EEGDecoder, trials: Trials) -> Iterator[Picture]:
    try:
        found = explain.feature_patterns(decoder, trials)
        spectra = explain.temporal_spectra(decoder, trials.sfreq)
        drawn = figures.patterns(found.patterns, spectra.amplitudes, spectra.frequencies, found.ch_names)
    except (checks.ParameterError, figures.UnknownPositionError):  # no filters of our kind, or nowhere to draw them
        return
    caption = (
        "Patterns of the strongest learnt features: the topography of what a feature finds in these trials (after "
        "Haufe et al. 2014), not its weights; below, the amplitude spectrum of its temporal filters."
    )
    yield Picture("patterns", drawn, caption)


# ---- inside the network


def _of_attention(decoder: EEGDecoder, trials: Trials) -> Iterator[Picture]:
    try:
        inside = explain.look_inside(decoder, trials)
    except checks.ParameterError:  # no attention of matrices
        return
    there = np.unique(inside.labels)
    names = [inside.class_names[label] for label in there]
    attention = figures.attention_maps(inside.attention_by_class()[there], names)
    yield Picture("attention", attention, "Attention weights, mean over the trials of each class; rows are queries.")
    histograms = figures.condition_histograms(*(numbers.ravel() for numbers in inside.condition_numbers()))
    yield Picture(
        "conditions", histograms, "Condition numbers of the matrices of all trials, before attention and after it."
    )
    spectra = figures.spectra(*(values.reshape(-1, values.shape[-1]) for values in (inside.before, inside.after)))
    yield Picture("spectra", spectra, "Eigenvalues of the same matrices, from the largest: median and spread.")
    plane = figures.embedding(explain.embed(inside.features), inside.labels.tolist(), inside.class_names, "PCA")
    yield Picture(
        "features", plane, "Features that enter the last layer, in the plane of their first two principal components."
    )
    yield from _of_metric(decoder)


def _of_metric(decoder: EEGDecoder) -> Iterator[Picture]:
    try:
        metric = explain.learnt_metric(decoder)
    except checks.ParameterError:  # a metric without parameters
        return
    caption = (
        f"Eigenvalues of the learnt M, which began as the identity; θ = {metric.theta:g}. Its affine-invariant "
        f"distance from the identity is {metric.distance:.2g}, its relative one in the Frobenius norm "
        f"{metric.relative:.2g}."
    )
    yield Picture("metric", figures.metric_spectrum(metric.eigenvalues), caption)


# ---- whether to believe it


def _faithful(decoder: EEGDecoder, trials: Trials, method: str) -> Picture:
    some = trials if len(trials.y) <= _CURVE_TRIALS else trials[_spread(trials)]
    attribution = attribute(decoder, some, method)
    removed, given = (curve(decoder, some, attribution) for curve in (explain.deletion, explain.insertion))
    lines = {
        method.replace("-", " "): (removed.probability.mean(0), given.probability.mean(0)),
        "random order": (removed.random.mean(0), given.random.mean(0)),
    }
    caption = (
        f"Probability of the true class, mean over {len(some.y)} trials, while cells of a channel and an eighth of the "
        "epoch are replaced by those of another trial (deletion), or given back (insertion), the most important first. "
        f"Deletion gains {removed.gain:+.2f} over a random order, insertion {given.gain:+.2f}."
    )
    return Picture("faithfulness", figures.deletion_insertion(removed.fraction, lines), caption)


def _spread(trials: Trials) -> np.ndarray:
    return np.unique(np.linspace(0, len(trials.y) - 1, _CURVE_TRIALS).round().astype(int))


def findings(decoder: EEGDecoder, trials: Trials, method: str = "gradient") -> list[str]:
    """What an explanation comes to, in sentences: the strongest channels, random weights, the truth if it is known."""
    tested = explain.randomisation(decoder, trials, method=method)
    values, names = _present(tested.trained)
    said = []
    for name, channels in zip(names, values.mean(axis=2), strict=True):
        first = [tested.trained.ch_names[place] for place in np.argsort(-channels)[:_MOST]]
        said.append(f"{name}: most at {', '.join(first)}.")
    known = tested.correlation[~np.isnan(tested.correlation)]
    said.append(
        f"Random weights give another picture if this is near 0, the same if near 1: rank correlation "
        f"{known.min():.2f} to {known.max():.2f} over classes."
    )
    return said + _planted(tested.trained, trials)


def _planted(found: Attribution, trials: Trials) -> list[str]:
    """For simulated trials of one subject, where the planted electrodes stand."""
    truth = trials.truth if len(trials.truths) == 1 else None
    if truth is None:
        return []
    return [
        f"Planted for {one.class_name}: {', '.join(one.planted)}; by magnitude "
        f"{', '.join(f'number {rank}' for rank in one.ranks)} of {one.n_channels} channels."
        for one in explain.localisation(found, truth)
    ]
