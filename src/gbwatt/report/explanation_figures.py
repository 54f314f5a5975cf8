"""Figures of an explanation, with captions that say what was computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbwatt import plotting
from gbwatt.explain.attribution import CONTRIBUTIONS
from gbwatt.explain.explanation import Explanation, curve_sentences
from gbwatt.explain.internals import embed
from gbwatt.plotting.network import nearly_equal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gbwatt.explain.inputs import Array

_SCALE_FREE = 0.05  # relative change of the logits below which they hardly depend on the scale of an epoch


class NamedFigure(NamedTuple):
    """A figure, its file name without suffix, and its caption."""

    name: str
    figure: Figure
    caption: str


def explanation_figures(explanation: Explanation) -> Iterator[NamedFigure]:
    """All figures of an explanation.

    Parameters
    ----------
    explanation : Explanation
        Explanation of a decoder.

    Yields
    ------
    NamedFigure
        Figures of the attribution, the filters, the attention, the metric, and deletion and insertion.  Figures of
        modules that the decoder does not have are left out.
    """
    yield from _attribution_figures(explanation)
    yield from _filter_figures(explanation)
    yield from _internals_figures(explanation)
    yield from _metric_figures(explanation)
    yield from _faithfulness_figures(explanation)


def _attribution_figures(explanation: Explanation) -> Iterator[NamedFigure]:
    """Yield a heatmap of the attribution over channels and time, and a scalp map or, without positions, bars."""
    attribution, label = explanation.attribution, _attribution_label(explanation)
    names, ch_names, values = attribution.class_names, attribution.ch_names, attribution.channels()
    counts = zip(names, np.bincount(attribution.labels), strict=True)
    trials = ", ".join(f"{n} trials of {name}" for name, n in counts)
    method = attribution.method.replace("-", " ")
    mean = f"Mean magnitude over trials of the {method} of the logit of the true class"
    heatmaps = plotting.heatmaps(attribution.by_class(), names, ch_names, attribution.times, label)
    yield NamedFigure(
        "heatmaps", heatmaps, f"{mean}, for each channel and time. Panels: {trials}.{_remark_on_scale(explanation)}"
    )
    over_time = f"{mean}, averaged over time."
    if explanation.why_no_scalp is None:
        topomaps = plotting.topomaps(values, names, explanation.electrodes, label)
        yield NamedFigure("topomaps", topomaps, f"{over_time} Values are interpolated between electrodes.")
    else:
        bars = plotting.channel_bars(values, names, ch_names, label)
        yield NamedFigure("channels", bars, f"{over_time} There is no scalp map: {explanation.why_no_scalp}.")


def _attribution_label(explanation: Explanation) -> str:
    """Return the quantity and unit of the attribution, for colour bars and axes."""
    if explanation.method in CONTRIBUTIONS:
        return "|contribution to the logit|"
    return f"|∂ logit / ∂ x| (1/{explanation.trials.unit})"


def _remark_on_scale(explanation: Explanation) -> str:
    """Return a sentence for the caption if the logits hardly depend on the scale of an epoch; else an empty text.

    It concerns only methods that multiply the gradient by the epoch.
    """
    if explanation.method not in CONTRIBUTIONS or explanation.scale_change > _SCALE_FREE:
        return ""
    return (
        f" The logits of this network hardly depend on the scale of an epoch: at a tenth of the amplitude they change "
        f"by {100 * explanation.scale_change:.1f} % of their standard deviation. Integrated gradients are therefore "
        "nearly proportional to gradient times input."
    )


def _filter_figures(explanation: Explanation) -> Iterator[NamedFigure]:
    """Yield the patterns and spectra of the strongest features; nothing without filters or electrode positions."""
    if explanation.filters is None or explanation.why_no_scalp is not None:
        return
    features, spectra = explanation.filters
    drawn = plotting.patterns(features.patterns, spectra.amplitudes, spectra.frequencies, explanation.electrodes)
    caption = (
        "Patterns of the strongest learnt features, ranked by the norm of the pattern times that of the spectrum. A "
        "pattern is the topography of the signal that a feature extracts from these trials (Haufe et al. 2014), not "
        "its weights. Below: amplitude spectrum of its temporal filters."
    )
    yield NamedFigure("patterns", drawn, caption)


def _internals_figures(explanation: Explanation) -> Iterator[NamedFigure]:
    """Yield figures of attention weights, condition numbers, eigenvalues, and the input of the last layer."""
    internals = explanation.internals
    if internals is None:
        return
    weights = internals.attention_by_class()[np.unique(internals.labels)]
    drawn = plotting.attention_maps(weights, explanation.attribution.class_names)
    yield NamedFigure("attention", drawn, _attention_caption(weights))
    drawn = plotting.condition_histograms(*(numbers.ravel() for numbers in internals.condition_numbers()))
    yield NamedFigure(
        "conditions", drawn, "Condition numbers of the matrices of all trials, before and after attention."
    )
    drawn = plotting.spectra(*(values.reshape(-1, values.shape[-1]) for values in (internals.before, internals.after)))
    caption = (
        "Eigenvalues of the same matrices, largest first: median (line), middle half of the matrices (dark band) and 5 "
        "to 95 % of them (light band)."
    )
    yield NamedFigure("spectra", drawn, caption)
    if explanation.why_no_plane is None:
        drawn = plotting.embedding(embed(internals.features), internals.labels.tolist(), internals.class_names, "PCA")
        caption = "Input of the last layer, projected on its first two principal components."
        yield NamedFigure("features", drawn, caption)


def _attention_caption(weights: Array) -> str:
    """Return the caption of the attention maps (n_classes, m, m), depending on whether weights are nearly uniform."""
    m, means = weights.shape[-1], "mean over the trials of each class; rows are queries, columns keys."
    if nearly_equal(weights):
        return (
            f"All attention weights are within a percentage point of the uniform weight 1/{m}. Shown is the deviation "
            f"from 1/{m} in percent of it, {means}"
        )
    return f"Attention weights, and below their deviation from the uniform weight 1/{m}, {means}"


def _metric_figures(explanation: Explanation) -> Iterator[NamedFigure]:
    """Yield the eigenvalues of the matrix M of the metric; nothing if the model has no such metric."""
    metric = explanation.metric
    if metric is None:
        return
    caption = (
        f"Eigenvalues of the learnt matrix M, initially the identity; θ = {metric.theta:g}. The affine-invariant "
        f"distance of M from the identity is {metric.distance:.2g}, the relative Frobenius distance "
        f"{metric.relative:.2g}."
    )
    yield NamedFigure("metric", plotting.metric_spectrum(metric.eigenvalues), caption)


def _faithfulness_figures(explanation: Explanation) -> Iterator[NamedFigure]:
    """Yield the deletion and insertion curves; nothing if they were not computed."""
    if explanation.curves is None:
        return
    deletion, insertion = explanation.curves
    lines = {
        explanation.method.replace("-", " "): (deletion.probability.mean(0), insertion.probability.mean(0)),
        "random order": (deletion.random.mean(0), insertion.random.mean(0)),
    }
    caption = (
        f"Probability of the true class, mean over {len(deletion.probability)} trials. A cell is a channel in an "
        "eighth of the epoch. Deletion replaces cells by those of another trial, drawn at random, which may be of the "
        f"same class; insertion restores them. {' '.join(curve_sentences(explanation.numbers))}"
    )
    yield NamedFigure("faithfulness", plotting.deletion_insertion(deletion.fraction, lines), caption)
