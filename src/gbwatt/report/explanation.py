"""What explains a decoder on some trials: pictures with captions that say what was computed, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbwatt import explain, plotting
from gbwatt.explain.attribution import CONTRIBUTIONS
from gbwatt.explain.evidence import Evidence
from gbwatt.explain.findings import curves_in, numbers_in, say_curves, sentences
from gbwatt.plotting.network import nearly_equal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gbwatt.plotting.inputs import Array

_FREE = 0.05  # change of the logits below which they hardly depend on the scale of an epoch


class Picture(NamedTuple):
    """A figure, the name of its file, and what was computed for it."""

    name: str
    figure: Figure
    caption: str


class Explanation(Evidence):
    """Pictures, sentences and numbers of a decoder on some trials, of one computation."""

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """All of it as numbers, in values that JSON has; None for what a decoder or a recording does not have.

        Returns
        -------
        dict
            - method, and the unit of its values: "1/µV", say, or "logit"
            - trials: number by class, of the classes that have some
            - accuracy: value, correct, trials; chance, the share of the most frequent class; p of the one-sided
              binomial test against it, None if there is one class only
            - magnitude: mean by class and channel
            - random_weights: seeds; rank_correlation by class, one for each seed
            - deletion, insertion: gain; trials; first, after_10_percent and last, the mean probabilities of the true
              class where no cell, a tenth and all are changed; after_10_percent_random, the same in random order; or
              None
            - attention: m; smallest and largest weight; or None
            - metric: theta; smallest and largest eigenvalue of M; distance from the identity; or None
            - localisation: for each class the fields of :class:`gbwatt.explain.Found`, and found; None if not simulated
            - left_out: sentences
        """
        return numbers_in(self)

    def findings(self) -> list[str]:
        """What it comes to, in sentences.

        First the accuracy, then the strongest channels, random weights, deletion and insertion, attention and metric,
        the truth if it is known, and which pictures there are none of.
        """
        return sentences(self.numbers)

    def pictures(self) -> Iterator[Picture]:
        """All pictures that a decoder has: those of any network, and those of attention if there is some."""
        yield from _of_attribution(self)
        yield from _of_filters(self)
        yield from _of_attention(self)
        yield from _of_metric(self)
        yield from _of_curves(self)


# ---- what matters in an epoch


def _of_attribution(given: Evidence) -> Iterator[Picture]:
    found, label = given.attribution, _quantity(given)
    what = f"Mean magnitude over trials of the {found.method.replace('-', ' ')} of the logit of the true class"
    heat = plotting.heatmaps(found.by_class(), found.class_names, found.ch_names, found.times, label)
    caption = f"{what}, for each channel and time; one panel a class, {_counts(given)}.{_scale(given)}"
    yield Picture("heatmaps", heat, caption)
    over_time, values = f"{what}, averaged over time.", found.channels()
    if given.without_places is None:
        scalp = plotting.topomaps(values, found.class_names, given.electrodes, label)
        yield Picture("topomaps", scalp, f"{over_time} Between electrodes it is interpolated.")
    else:
        bars = plotting.channel_bars(values, found.class_names, found.ch_names, label)
        yield Picture("channels", bars, f"{over_time} There is no map of the scalp: {given.without_places}.")


def _quantity(given: Evidence) -> str:
    if given.method in CONTRIBUTIONS:
        return "|contribution to the logit|"
    return f"|∂ logit / ∂ x| (1/{given.trials.unit})"


def _counts(given: Evidence) -> str:
    found = given.attribution
    counted = zip(found.class_names, np.bincount(found.labels), strict=True)
    return ", ".join(f"{n} trials of {name}" for name, n in counted)


def _scale(given: Evidence) -> str:
    """What follows for a method with the epoch as a factor, if the logits do not depend on its scale."""
    if given.method not in CONTRIBUTIONS or given.scale_change > _FREE:
        return ""
    return (
        f" The logits of this network hardly depend on the scale of an epoch (at a tenth of it they change by "
        f"{100 * given.scale_change:.1f} % of their standard deviation), so that integrated gradients are nearly "
        "proportional to gradient times input."
    )


# ---- filters


def _of_filters(given: Evidence) -> Iterator[Picture]:
    if given.filters is None or given.without_places is not None:
        return
    found, spectra = given.filters
    drawn = plotting.patterns(found.patterns, spectra.amplitudes, spectra.frequencies, given.electrodes)
    caption = (
        "Patterns of the strongest learnt features, by the length of the pattern times that of the spectrum: the "
        "topography of what a feature finds in these trials (after Haufe et al. 2014), not its weights; below, the "
        "amplitude spectrum of its temporal filters."
    )
    yield Picture("patterns", drawn, caption)


# ---- inside the network


def _of_attention(given: Evidence) -> Iterator[Picture]:
    if given.inside is None:
        return
    inside, names = given.inside, given.attribution.class_names
    weights = inside.attention_by_class()[np.unique(inside.labels)]
    yield Picture("attention", plotting.attention_maps(weights, names), _about_attention(weights))
    histograms = plotting.condition_histograms(*(numbers.ravel() for numbers in inside.condition_numbers()))
    yield Picture(
        "conditions", histograms, "Condition numbers of the matrices of all trials, before attention and after it."
    )
    spectra = plotting.spectra(*(values.reshape(-1, values.shape[-1]) for values in (inside.before, inside.after)))
    caption = (
        "Eigenvalues of the same matrices, from the largest: the line is their median, the darker band has the middle "
        "half of the matrices, the paler one 5 to 95 % of them."
    )
    yield Picture("spectra", spectra, caption)
    if given.without_plane is None:
        plane = plotting.embedding(explain.embed(inside.features), inside.labels.tolist(), inside.class_names, "PCA")
        caption = "Features that enter the last layer, in the plane of their first two principal components."
        yield Picture("features", plane, caption)


def _about_attention(weights: Array) -> str:
    m, means = weights.shape[-1], "mean over the trials of each class; rows are queries, columns keys."
    if nearly_equal(weights):
        return (
            f"All attention weights are within a percent point of 1/{m}, which equal ones would be: how far they are "
            f"from it, in percent of it, {means}"
        )
    return f"Attention weights, and below them how far they are from 1/{m}, which equal ones would be, {means}"


def _of_metric(given: Evidence) -> Iterator[Picture]:
    metric = given.metric
    if metric is None:
        return
    caption = (
        f"Eigenvalues of the learnt M, which began as the identity; θ = {metric.theta:g}. Its affine-invariant "
        f"distance from the identity is {metric.distance:.2g}, its relative one in the Frobenius norm "
        f"{metric.relative:.2g}."
    )
    yield Picture("metric", plotting.metric_spectrum(metric.eigenvalues), caption)


# ---- whether to believe it


def _of_curves(given: Evidence) -> Iterator[Picture]:
    if given.curves is None:
        return
    removed, back = given.curves
    lines = {
        given.method.replace("-", " "): (removed.probability.mean(0), back.probability.mean(0)),
        "random order": (removed.random.mean(0), back.random.mean(0)),
    }
    caption = (
        f"Probability of the true class, mean over {len(removed.probability)} trials, while cells of a channel and an "
        "eighth of the epoch are replaced by the same cells of another of these trials, which is drawn at random and "
        f"may be of the same class (deletion), or given back (insertion). {' '.join(say_curves(curves_in(given)))}"
    )
    yield Picture("faithfulness", plotting.deletion_insertion(removed.fraction, lines), caption)
