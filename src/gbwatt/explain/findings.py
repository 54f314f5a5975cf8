"""Sentences that summarise the numbers of an explanation."""

from __future__ import annotations

from typing import Any

from gbwatt.explain.attribution import CONTRIBUTIONS

Numbers = dict[str, Any]

_NAMED_CHANNELS = 3
_ALPHA = 0.05  # level of the test against chance
_UNRELATED, _SIMILAR = 0.3, 0.7  # rank correlations below and above which two maps count as unrelated or similar


def sentences(numbers: Numbers) -> list[str]:
    """Summarise :attr:`gbwatt.explain.Explanation.numbers`.

    Parameters
    ----------
    numbers : dict
        Numbers of an explanation.

    Returns
    -------
    list of str
        One sentence or two for each result.  The accuracy comes first, because an explanation of a decoder at chance
        level means nothing.
    """
    return [
        _accuracy(numbers),
        *(_strongest_channels(name, channels) for name, channels in numbers["magnitude"].items()),
        _random_weights(numbers),
        *curve_sentences(numbers),
        *_attention_and_metric(numbers),
        *(_planted_effects(result, numbers["method"]) for result in numbers["localisation"] or ()),
        *numbers["left_out"],
    ]


def _accuracy(numbers: Numbers) -> str:
    accuracy = numbers["accuracy"]
    correct = f"{100 * accuracy['value']:.1f} % of {accuracy['trials']} trials"
    if accuracy["p"] is None:
        return f"The decoder classifies {correct} correctly; all are of one class, so chance level cannot be assessed."
    chance = f"the most frequent class makes up {100 * accuracy['chance']:.1f} %"
    if accuracy["p"] < _ALPHA:
        return f"The decoder classifies {correct} correctly; {chance}."
    return (
        f"The decoder is not better than chance: it classifies {correct} correctly, and {chance} (one-sided binomial "
        f"test, p = {accuracy['p']:.2g}). Its explanation is not meaningful."
    )


def _strongest_channels(name: str, channels: dict[str, float]) -> str:
    strongest = sorted(channels, key=lambda channel: -channels[channel])[:_NAMED_CHANNELS]
    return f"{name}: strongest at {', '.join(strongest)}."


def _random_weights(numbers: Numbers) -> str:
    test = numbers["random_weights"]
    correlations = [r for of_class in test["rank_correlation"].values() for r in of_class]
    low, high = min(correlations), max(correlations)
    if high < _UNRELATED:
        verdict = "The maps depend on the learned weights: networks with random weights give different maps"
    elif high < _SIMILAR:
        verdict = "The maps depend in part on the learned weights: networks with random weights give related maps"
    else:
        verdict = (
            "The maps do not depend on the learned weights for at least one class: networks with random weights give "
            "nearly the same maps"
        )
    text = (
        f"{verdict} (rank correlation over channels and times from {low:.2f} to {high:.2f}, over classes and "
        f"{len(test['seeds'])} random initialisations; 0 means unrelated, 1 identical)."
    )
    if numbers["method"] in CONTRIBUTIONS:
        text += " Both maps were divided by the mean magnitude of the epochs, their common factor."
    return text


def curve_sentences(numbers: Numbers) -> list[str]:
    """Summarise deletion and insertion: the change after 10 % of the cells, and the area under the whole curve."""
    deletion, insertion = numbers["deletion"], numbers["insertion"]
    if deletion is None or insertion is None:
        return []
    return [
        f"{step} changes the probability of the true class from {curve['first']:.2f} to "
        f"{curve['after_10_percent']:.2f} (random cells: {curve['after_10_percent_random']:.2f}); the area under the "
        f"whole curve is better than for a random order by {curve['gain']:+.2f}."
        for step, curve in (
            ("Deletion of the 10 % most important cells", deletion),
            ("Insertion of these cells into other trials", insertion),
        )
    ]


def _attention_and_metric(numbers: Numbers) -> list[str]:
    texts, attention, metric = [], numbers["attention"], numbers["metric"]
    if attention is not None:
        low, high, m = attention["smallest"], attention["largest"], attention["m"]
        texts.append(
            f"Attention weights range from {low:.3f} to {high:.3f}; uniform weights would be 1/{m} = {1 / m:.3f}."
        )
    if metric is not None:
        texts.append(
            f"The matrix M of the metric, initially the identity, has eigenvalues from {metric['smallest']:.2f} to "
            f"{metric['largest']:.2f}; θ = {metric['theta']:g}."
        )
    return texts


def _planted_effects(result: Numbers, method: str) -> str:
    ranks = ", ".join(map(str, result["ranks"]))
    text = (
        f"Planted for {result['class_name']}: {', '.join(result['planted'])}; rank by magnitude {ranks} of "
        f"{result['n_channels']} channels, which {'stands' if result['found'] else 'does not stand'} out"
    )
    if method not in CONTRIBUTIONS and result["band"] is not None:  # products contain other frequencies
        text += f"; {_share('power is in the planted band', result['band'])}"
    if result["window"] is not None:
        text += f"; {_share('magnitude is in the planted window', result['window'])}"
    return f"{text}."


def _share(where: str, share: Numbers) -> str:
    return f"{100 * share['found']:.0f} % of the {where} ({100 * share['expected']:.0f} % for a flat map)"
