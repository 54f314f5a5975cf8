"""All explanations of one decoder on some trials, and sentences that summarise them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import entr
from scipy.stats import binomtest

from gbwatt._validation import check_one_of
from gbwatt.data.description import chance_level
from gbwatt.data.montage import electrode_name, scalp_positions
from gbwatt.data.trials import Trials
from gbwatt.errors import ParameterError, UnknownPositionError
from gbwatt.explain.attribution import CONTRIBUTIONS, METHODS, Attribution
from gbwatt.explain.inputs import Array, ModelInputs, prepare
from gbwatt.explain.internals import (
    Internals,
    LearntMetric,
    Patterns,
    Spectra,
    feature_patterns,
    learnt_metric,
    logits_with_other_weights,
    look_inside,
    temporal_spectra,
)
from gbwatt.explain.quality import (
    Curve,
    LocalisationResult,
    deletion,
    insertion,
    localisation,
    randomised,
    rank_correlations,
)

if TYPE_CHECKING:
    from gbwatt.decoding import EEGDecoder

SEEDS = (0, 1, 2)  # seeds of the random weights with which the attribution is compared
_MAX_CURVE_TRIALS = 100  # number of trials for deletion and insertion, each of which takes about 100 forward passes


@dataclass(frozen=True, eq=False)
class Explanation:
    """Explanation of a decoder on some trials; each part is computed once, when it is first used.

    Parts that a decoder or a recording does not have are None.

    Parameters
    ----------
    decoder : EEGDecoder
        A fitted estimator.
    trials : Trials
        Labelled trials, preferably not used in training.
    method : str
        Method of the attribution, a key of :data:`gbwatt.explain.METHODS`.

    Raises
    ------
    ParameterError
        If the method is unknown.

    Examples
    --------
    >>> from gbwatt import EEGDecoder
    >>> from gbwatt.data import load
    >>> trials = load("simulated-ssvep", subject=1)
    >>> decoder = EEGDecoder("spdnet", task="ssvep", max_epochs=1, validation=None).fit(trials[:100])
    >>> explanation = Explanation(decoder, trials[100:130])
    >>> explanation.attribution.values.shape
    (30, 8, 125)
    >>> print(explanation.left_out[-1])
    Attention, eigenvalues and features: left out, spdnet has no attention of SPD matrices.
    """

    decoder: EEGDecoder
    trials: Trials
    method: str = "gradient"

    def __post_init__(self) -> None:
        check_one_of("method", self.method, tuple(METHODS))

    # ---- the decoder and its attribution

    @cached_property
    def inputs(self) -> ModelInputs:
        """Network and epochs in the form that explanations use."""
        return prepare(self.decoder, self.trials)

    @cached_property
    def full_attribution(self) -> Attribution:
        """Attribution for the true classes, with all classes of the decoder."""
        return METHODS[self.method](self.decoder, self.trials)

    @cached_property
    def attribution(self) -> Attribution:
        """Attribution for the true classes, with the classes that have trials."""
        return self.full_attribution.present

    @cached_property
    def logits(self) -> Array:
        """Logits of all trials (n, n_classes)."""
        return self.inputs.logits()

    @cached_property
    def correct(self) -> Array:
        """Whether each trial (n,) is classified correctly."""
        return np.asarray(self.logits.argmax(1) == self.full_attribution.labels)

    @cached_property
    def scale_change(self) -> float:
        """Mean change of the logits if epochs are divided by 10, relative to the standard deviation of the logits."""
        small = self.inputs.logits(self.trials.X / 10)
        return float(abs(small - self.logits).mean() / max(self.logits.std(), np.finfo(float).tiny))

    # ---- is the attribution trustworthy

    @cached_property
    def correlations(self) -> Array:
        """Rank correlations (seeds, classes with trials) with the attributions of networks with random weights."""
        labels = self.full_attribution.labels
        networks = (randomised(self.decoder, seed) for seed in SEEDS)
        random = (METHODS[self.method](network, self.trials, labels).present for network in networks)
        return np.stack([rank_correlations(self.attribution, other, self.trials.X) for other in random])

    @cached_property
    def curves(self) -> tuple[Curve, Curve] | None:
        """Deletion and insertion curves of up to 100 trials; None for a single trial."""
        n = len(self.trials.y)
        if n < 2:
            return None
        rows = np.unique(np.linspace(0, n - 1, min(n, _MAX_CURVE_TRIALS)).round().astype(int))
        full = self.full_attribution
        selected = self.trials[rows], replace(full, values=full.values[rows], labels=full.labels[rows])
        return deletion(self.decoder, *selected), insertion(self.decoder, *selected)

    @cached_property
    def localisation(self) -> tuple[LocalisationResult, ...] | None:
        """Comparison with planted effects, for simulated trials of one subject."""
        truth = self.trials.truth
        return None if truth is None else localisation(self.full_attribution, truth)

    # ---- inside the network

    @cached_property
    def internals(self) -> Internals | None:
        """Attention, eigenvalues and features of a network with attention of SPD matrices."""
        try:
            return look_inside(self.decoder, self.trials)
        except ParameterError:
            return None

    @cached_property
    def metric(self) -> LearntMetric | None:
        """Learnt metric of a network that has one."""
        try:
            return learnt_metric(self.decoder)
        except ParameterError:
            return None

    @cached_property
    def filters(self) -> tuple[Patterns, Spectra] | None:
        """Patterns and spectra of a network with spatial and temporal filters."""
        try:
            features = feature_patterns(self.decoder, self.trials)
        except ParameterError:
            return None
        return features, temporal_spectra(self.decoder, self.trials.sfreq)

    # ---- what can be shown

    @cached_property
    def electrodes(self) -> tuple[str, ...]:
        """Names of the electrodes, without the dots and spaces with which some files pad them."""
        return tuple(electrode_name(name) for name in self.trials.ch_names)

    @cached_property
    def why_no_scalp(self) -> str | None:
        """Why values cannot be shown on the scalp; None if they can."""
        try:
            scalp_positions(self.electrodes)
        except UnknownPositionError:
            return "the positions of these electrodes are unknown (known names are, for example, Fz, C3 and Oz)"
        except ParameterError:
            return "a map needs three electrodes or more at different positions"
        return None

    @property
    def why_no_plane(self) -> str | None:
        """Why features cannot be shown in the plane; None if they can, or if there are none."""
        few = self.internals is not None and min(len(self.internals.features) - 1, self.internals.features.shape[1]) < 2
        return "three trials and two features are needed" if few else None

    @property
    def left_out(self) -> list[str]:
        """Figures that are left out, each with the reason."""
        model = self.decoder.model
        networks = len(self.decoder._networks)
        ensemble = f"it is an ensemble of {networks} networks; explain a single one, trained with --members 1"
        without = "{} has no {}" if networks == 1 else ensemble
        no_filters = None if self.filters else without.format(model, "linear spatial and temporal filters")
        no_metric = "it has no trained parameters" if self.internals and not self.metric else None
        reasons = {
            "Scalp maps, replaced by bars": self.why_no_scalp,
            "Patterns of features": no_filters or self.why_no_scalp,
            "Attention, eigenvalues and features": (
                None if self.internals else without.format(model, "attention of SPD matrices")
            ),
            "Metric": no_metric,
            "Features in the plane": self.why_no_plane,
            "Deletion and insertion": None if self.curves else "at least two trials are needed",
        }
        return [f"{figure}: left out, {reason}." for figure, reason in reasons.items() if reason is not None]

    # ---- results

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """All results as values that JSON can represent; None for parts that do not exist.

        Returns
        -------
        dict
            - method; unit of its values, for example "1/µV" or "logit"
            - trials: number of trials by class, for classes with trials
            - accuracy: value, correct, trials; chance, the share of the most frequent class; p of the one-sided
              binomial test against chance, None if there is only one class
            - magnitude: mean by class and channel
            - random_weights: seeds; rank_correlation by class, one for each seed
            - deletion, insertion: gain; trials; first, after_10_percent and last, the mean probabilities of the true
              class with no, a tenth of and all cells changed; after_10_percent_random, the same in random order; or
              None
            - attention: m; smallest and largest weight; entropy, the mean entropy of the weights as a fraction of that
              of uniform weights, None for a single window; accuracy_uniform and accuracy_own, the accuracy of the same
              network with uniform weights and with each window alone; or None
            - metric: theta; smallest and largest eigenvalue of M; distance from the identity; or None
            - localisation: for each class the fields of :class:`~gbwatt.explain.LocalisationResult`, and found; None
              if the trials are not simulated
            - left_out: sentences
        """
        attribution = self.attribution
        names, counts = attribution.class_names, np.bincount(attribution.labels)
        removed, restored = (None, None) if self.curves is None else map(_curve_numbers, self.curves)
        return {
            "method": attribution.method,
            "trials": dict(zip(names, counts.tolist(), strict=True)),
            "accuracy": _accuracy_numbers(self.correct, counts),
            "unit": "logit" if attribution.method in CONTRIBUTIONS else f"1/{self.trials.unit}",
            "magnitude": {
                name: dict(zip(attribution.ch_names, row.tolist(), strict=True))
                for name, row in zip(names, attribution.channels(), strict=True)
            },
            "random_weights": {
                "seeds": list(SEEDS),
                "rank_correlation": dict(zip(names, self.correlations.T.tolist(), strict=True)),
            },
            "deletion": removed,
            "insertion": restored,
            "attention": self._attention_numbers(),
            "metric": self._metric_numbers(),
            "localisation": None if self.localisation is None else list(map(_localisation_numbers, self.localisation)),
            "left_out": self.left_out,
        }

    def findings(self) -> list[str]:
        """The results in sentences.

        Returns
        -------
        list of str
            Accuracy, strongest channels, comparison with random weights, deletion and insertion, attention and metric,
            planted effects if they are known, and figures that are left out.
        """
        return sentences(self.numbers)

    def _attention_numbers(self) -> dict[str, Any] | None:
        """Entry "attention" of :attr:`numbers`: range, entropy and effect of the weights; None without attention."""
        if self.internals is None:
            return None
        weights, labels = self.internals.attention, self.full_attribution.labels
        m = weights.shape[-1]
        entropy = None if m == 1 else float(entr(weights).sum(-1).mean() / np.log(m))
        uniform, own = (
            float(np.mean(logits.argmax(1) == labels))
            for logits in logits_with_other_weights(self.decoder, self.trials)
        )
        attention: Any = self.decoder.net_.module_.attention
        residual, temperature = attention.mixing
        return {
            "m": m,
            "residual": residual,
            "temperature": temperature,
            "smallest": float(weights.min()),
            "largest": float(weights.max()),
            "entropy": entropy,
            "accuracy_uniform": uniform,
            "accuracy_own": own,
        }

    def _metric_numbers(self) -> dict[str, Any] | None:
        """Entry "metric" of :attr:`numbers`: power, eigenvalues, distance from identity; None without learnt metric."""
        if self.metric is None:
            return None
        eigenvalues = self.metric.eigenvalues
        return {
            "theta": self.metric.theta,
            "smallest": float(eigenvalues.min()),
            "largest": float(eigenvalues.max()),
            "distance": self.metric.distance,
        }


def _accuracy_numbers(correct: Array, counts: Array) -> dict[str, Any]:
    """Entry "accuracy" of an explanation's numbers, with chance level and p-value of a one-sided binomial test."""
    n, hits, chance = int(counts.sum()), int(correct.sum()), chance_level(counts)
    p = None if len(counts) < 2 else float(binomtest(hits, n, chance, alternative="greater").pvalue)
    return {"value": hits / n, "correct": hits, "trials": n, "chance": chance, "p": p}


def _curve_numbers(curve: Curve) -> dict[str, Any]:
    """Entry "deletion" or "insertion" of an explanation's numbers: gain over random order, points of the curve."""
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


def _localisation_numbers(result: LocalisationResult) -> dict[str, Any]:
    """Entry of "localisation" in an explanation's numbers: ranks of planted electrodes and more, for JSON."""
    values = {**asdict(result), "found": result.found}
    values["planted"], values["ranks"] = list(result.planted), list(result.ranks)
    values["roc_auc"] = None if math.isnan(result.roc_auc) else result.roc_auc  # JSON has no NaN
    return values


Numbers = dict[str, Any]

_NAMED_CHANNELS = 3  # number of channels that a sentence names
_ALPHA = 0.05  # level of the test against chance
_UNRELATED, _SIMILAR = 0.3, 0.7  # rank correlations below and above which two maps count as unrelated or similar


def sentences(numbers: Numbers) -> list[str]:
    """Summarise :attr:`gbwatt.explain.Explanation.numbers` in sentences.

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
        _accuracy_sentence(numbers),
        *(_strongest_channels_sentence(name, channels) for name, channels in numbers["magnitude"].items()),
        _random_weights_sentence(numbers),
        *curve_sentences(numbers),
        *_attention_and_metric_sentences(numbers),
        *(_planted_effects_sentence(result, numbers["method"]) for result in numbers["localisation"] or ()),
        *numbers["left_out"],
    ]


def _accuracy_sentence(numbers: Numbers) -> str:
    """Sentence on the accuracy; a warning if it is not above chance."""
    accuracy = numbers["accuracy"]
    correct = f"{100 * accuracy['value']:.1f} % of {accuracy['trials']} trials"
    if accuracy["p"] is None:
        return f"The decoder classifies {correct} correctly; all are of one class, so chance level cannot be assessed."
    chance = f"the most frequent class makes up {100 * accuracy['chance']:.1f} %"
    if accuracy["p"] < _ALPHA:
        return f"The decoder classifies {correct} correctly; {chance}."
    return (
        f"The decoder is not significantly better than chance: it classifies {correct} correctly, and {chance} "
        f"(one-sided binomial test, p = {accuracy['p']:.2g}). Its explanation is not meaningful."
    )


def _strongest_channels_sentence(name: str, channels: dict[str, float]) -> str:
    """Sentence on the channels with the largest magnitude for a class."""
    strongest = sorted(channels, key=lambda channel: -channels[channel])[:_NAMED_CHANNELS]
    return f"{name}: strongest at {', '.join(strongest)}."


def _random_weights_sentence(numbers: Numbers) -> str:
    """Sentence on the similarity to maps of networks with random weights."""
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
    """Sentences on deletion and insertion: the change after 10 % of an epoch, and the area under the whole curve."""
    deletion, insertion = numbers["deletion"], numbers["insertion"]
    if deletion is None or insertion is None:
        return []
    return [
        f"{step} changes the probability of the true class from {curve['first']:.2f} to "
        f"{curve['after_10_percent']:.2f} (random cells: {curve['after_10_percent_random']:.2f}); the area under the "
        f"whole curve is {'better' if curve['gain'] >= 0 else 'worse'} than for a random order by "
        f"{abs(curve['gain']):.2f}."
        for step, curve in (
            ("Deletion of the 10 % most important cells", deletion),
            ("Insertion of these cells into other trials", insertion),
        )
    ]


def _attention_and_metric_sentences(numbers: Numbers) -> list[str]:
    """Sentences on attention weights and on the matrix M, for networks that have them."""
    texts, attention, metric = [], numbers["attention"], numbers["metric"]
    if attention is not None:
        low, high, m = attention["smallest"], attention["largest"], attention["m"]
        texts.append(
            f"Attention weights range from {low:.3f} to {high:.3f}; uniform weights would be 1/{m} = {1 / m:.3f}. The "
            f"share of the residual connection is t = {attention['residual']:.3f}, the temperature "
            f"τ = {attention['temperature']:.3g}."
        )
        if attention["entropy"] is not None:
            texts.append(
                f"Their entropy is {100 * attention['entropy']:.1f} % of that of uniform weights. With uniform weights "
                f"the accuracy of the same network would be {100 * attention['accuracy_uniform']:.1f} %, with each "
                f"window alone {100 * attention['accuracy_own']:.1f} %."
            )
    if metric is not None:
        texts.append(
            f"The matrix M of the metric, initially the identity, has eigenvalues from {metric['smallest']:.2f} to "
            f"{metric['largest']:.2f}; θ = {metric['theta']:g}."
        )
    return texts


def _planted_effects_sentence(result: Numbers, method: str) -> str:
    """Sentence on how well the planted effect of a class is found."""
    ranks = ", ".join(map(str, result["ranks"]))
    text = (
        f"Planted for {result['class_name']}: {', '.join(result['planted'])}; rank by magnitude {ranks} of "
        f"{result['n_channels']} channels, which {'stands' if result['found'] else 'does not stand'} out"
    )
    if method not in CONTRIBUTIONS and result["band"] is not None:  # products contain other frequencies
        text += f"; {_share_clause('power is in the planted band', result['band'])}"
    if result["window"] is not None:
        text += f"; {_share_clause('magnitude is in the planted window', result['window'])}"
    return f"{text}."


def _share_clause(where: str, share: Numbers) -> str:
    """Clause that compares the share of an attribution in a planted band or window with that of a constant one."""
    return f"{100 * share['found']:.0f} % of the {where} ({100 * share['expected']:.0f} % for a flat map)"
