"""What an explanation comes to: numbers for other programs, and the sentences that are made of them."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import binomtest

from gbwatt.explain.attribution import CONTRIBUTIONS
from gbwatt.explain.evidence import SEEDS, Evidence

if TYPE_CHECKING:
    from gbwatt.explain import Curve, Found
    from gbwatt.explain.inputs import Array

Numbers = dict[str, Any]

_MOST = 3  # channels that are named
_ALPHA = 0.05  # of the test against chance
_OTHER, _SAME = 0.3, 0.7  # rank correlations below which two maps are different, and above which they are alike


# ---- numbers


def numbers_in(evidence: Evidence) -> Numbers:
    """All numbers as plain values; the keys are those of ``Explanation.numbers``."""
    found = evidence.attribution
    counts = np.bincount(found.labels)
    return {
        "method": found.method,
        "trials": dict(zip(found.class_names, counts.tolist(), strict=True)),
        "accuracy": _accuracy(evidence.correct, counts),
        "unit": "logit" if found.method in CONTRIBUTIONS else f"1/{evidence.trials.unit}",
        "magnitude": {
            name: dict(zip(found.ch_names, row.tolist(), strict=True))
            for name, row in zip(found.class_names, found.channels(), strict=True)
        },
        "random_weights": {
            "seeds": list(SEEDS),
            "rank_correlation": dict(zip(found.class_names, evidence.correlations.T.tolist(), strict=True)),
        },
        **curves_in(evidence),
        "attention": _attention(evidence),
        "metric": _metric(evidence),
        "localisation": None if evidence.planted is None else [_planted(one) for one in evidence.planted],
        "left_out": evidence.left_out,
    }


def _accuracy(correct: Array, counts: Array) -> Numbers:
    """Beside the share of the most frequent class; of one class alone there is no chance to be better than."""
    n, right, chance = int(counts.sum()), int(correct.sum()), float(counts.max() / counts.sum())
    p = None if len(counts) < 2 else float(binomtest(right, n, chance, alternative="greater").pvalue)
    return {"value": right / n, "correct": right, "trials": n, "chance": chance, "p": p}


def curves_in(evidence: Evidence) -> Numbers:
    """Deletion and insertion alone."""
    removed, back = (None, None) if evidence.curves is None else map(_curve, evidence.curves)
    return {"deletion": removed, "insertion": back}


def _curve(curve: Curve) -> Numbers:
    tenth = int(np.argmin(abs(curve.fraction - 0.1)))
    ordered, random = curve.probability.mean(axis=0), curve.random.mean(axis=0)
    return {
        "gain": curve.gain,
        "trials": len(curve.probability),
        "first": float(ordered[0]),
        "after_10_percent": float(ordered[tenth]),
        "after_10_percent_random": float(random[tenth]),
        "last": float(ordered[-1]),
    }


def _attention(evidence: Evidence) -> Numbers | None:
    if evidence.inside is None:
        return None
    weights = evidence.inside.attention
    return {"m": weights.shape[-1], "smallest": float(weights.min()), "largest": float(weights.max())}


def _metric(evidence: Evidence) -> Numbers | None:
    if evidence.metric is None:
        return None
    eigenvalues = evidence.metric.eigenvalues
    return {
        "theta": evidence.metric.theta,
        "smallest": float(eigenvalues.min()),
        "largest": float(eigenvalues.max()),
        "distance": evidence.metric.distance,
    }


def _planted(one: Found) -> Numbers:
    values = {**asdict(one), "found": one.found}
    values["planted"], values["ranks"] = list(one.planted), list(one.ranks)
    values["roc_auc"] = None if math.isnan(one.roc_auc) else one.roc_auc  # JSON has no NaN
    return values


# ---- sentences


def sentences(numbers: Numbers) -> list[str]:
    """What the numbers come to; the accuracy first, as nothing follows from a decoder that does not decode."""
    return [
        _say_accuracy(numbers),
        *(_say_channels(name, channels) for name, channels in numbers["magnitude"].items()),
        _say_random(numbers),
        *say_curves(numbers),
        *_say_inside(numbers),
        *(_say_planted(one, numbers["method"]) for one in numbers["localisation"] or ()),
        *numbers["left_out"],
    ]


def _say_accuracy(numbers: Numbers) -> str:
    found = numbers["accuracy"]
    reached = f"{100 * found['value']:.1f} % of {found['trials']} trials"
    if found["p"] is None:
        return f"The decoder is right in {reached}; they are all of one class, so that this does not say what it can."
    chance = f"always naming the most frequent class is right in {100 * found['chance']:.1f} %"
    if found["p"] < _ALPHA:
        return f"The decoder is right in {reached}; {chance}."
    return (
        f"The decoder is not better than chance: it is right in {reached}, and {chance} (one-sided binomial test, "
        f"p = {found['p']:.2g}). The explanation of a decoder that has learnt nothing shows nothing."
    )


def _say_channels(name: str, channels: dict[str, float]) -> str:
    first = sorted(channels, key=lambda channel: -channels[channel])[:_MOST]
    return f"{name}: most at {', '.join(first)}."


def _say_random(numbers: Numbers) -> str:
    tested = numbers["random_weights"]
    every = [r for of_class in tested["rank_correlation"].values() for r in of_class]
    if max(every) < _OTHER:
        verdict = "The maps come from what was learnt: networks with random weights give other ones"
    elif max(every) < _SAME:
        verdict = (
            "The maps come in part from what was learnt: networks with random weights give ones that resemble them"
        )
    else:
        verdict = (
            "The maps do not show what was learnt, or not for every class: networks with random weights give nearly "
            "the same ones"
        )
    said = (
        f"{verdict} (rank correlation over channels and times from {min(every):.2f} to {max(every):.2f}, over classes "
        f"and {len(tested['seeds'])} draws of weights; 0 is unrelated, 1 the same)."
    )
    if numbers["method"] in CONTRIBUTIONS:
        said += " The mean magnitude of the epochs is a factor of both maps, and was divided out for this."
    return said


def say_curves(numbers: Numbers) -> list[str]:
    """What deletion and insertion come to, at their beginning and as a whole."""
    gone, back = numbers["deletion"], numbers["insertion"]
    if gone is None or back is None:
        return []
    return [
        f"{what} takes the probability of the true class from {curve['first']:.2f} to {curve['after_10_percent']:.2f}, "
        f"of random ones to {curve['after_10_percent_random']:.2f}; over the whole curve the area is better than in a "
        f"random order by {curve['gain']:+.2f}."
        for what, curve in (
            ("Deletion of the 10 % of cells that are most important", gone),
            ("Insertion of the same cells into other trials", back),
        )
    ]


def _say_inside(numbers: Numbers) -> list[str]:
    said, attention, metric = [], numbers["attention"], numbers["metric"]
    if attention is not None:
        low, high, m = attention["smallest"], attention["largest"], attention["m"]
        said.append(f"Attention weights are from {low:.3f} to {high:.3f}; equal ones are 1/{m} = {1 / m:.3f}.")
    if metric is not None:
        said.append(
            f"M of the metric, which began as the identity, has eigenvalues from {metric['smallest']:.2f} to "
            f"{metric['largest']:.2f}; θ = {metric['theta']:g}."
        )
    return said


def _say_planted(one: Numbers, method: str) -> str:
    ranks = ", ".join(f"number {rank}" for rank in one["ranks"])
    said = (
        f"Planted for {one['class_name']}: {', '.join(one['planted'])}; by magnitude {ranks} of {one['n_channels']} "
        f"channels, {'which stands out' if one['found'] else 'which does not stand out'}"
    )
    if method not in CONTRIBUTIONS and one["band"] is not None:  # products have other frequencies than their factors
        said += f"; {_say_share('power in the planted band', one['band'])}"
    if one["window"] is not None:
        said += f"; {_say_share('magnitude in the planted window', one['window'])}"
    return f"{said}."


def _say_share(what: str, share: Numbers) -> str:
    return f"{100 * share['found']:.0f} % of the {what}, where a flat one has {100 * share['expected']:.0f} %"
