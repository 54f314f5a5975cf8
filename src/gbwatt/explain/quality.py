"""Tests of whether an attribution is trustworthy.

Faithfulness: deletion and insertion test whether a decoder uses what an attribution marks as important.  An epoch is
divided into cells, each a channel within a time window.  Deletion replaces cells one after another, the most important
first; insertion starts from the replacements and restores the cells.  For a faithful attribution the probability of the
explained class falls, or rises, faster than with cells in random order [1]_.  Modified epochs do not look like
recordings: filters cancel what electrodes share, and a replaced cell shares nothing with its neighbours.  A few random
cells may disturb a decoder as much as a few important ones, so both curves are needed.

Randomisation: an attribution that depends on the learned weights changes when they are replaced by random ones [2]_.

Localisation: an attribution is compared with the effects planted in simulated recordings.

References
----------
.. [1] V. Petsiuk, A. Das, K. Saenko, "RISE: randomized input sampling for explanation of black-box models", BMVC 2018.
.. [2] J. Adebayo et al., "Sanity checks for saliency maps", NeurIPS 2018.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict, Unpack, overload

import numpy as np
from scipy.special import softmax
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score
from torch import nn

from gbwatt._validation import check_at_least, check_one_of
from gbwatt.data.trials import Effect, Truth
from gbwatt.decoding import EEGDecoder, inputs, training
from gbwatt.errors import MismatchError, ParameterError, ShapeError
from gbwatt.explain.attribution import CONTRIBUTIONS, METHODS, Attribution, mean_by_class, require_attribution
from gbwatt.explain.inputs import Array, Model, ModelInputs, ShortRepr, Target, network, prepare
from gbwatt.models import Ensemble, create


@dataclass(frozen=True, eq=False, repr=False)
class Curve(ShortRepr):
    """Probability of the explained class while cells are replaced or restored.

    Attributes
    ----------
    kind : "deletion" or "insertion"
        Whether cells are replaced or restored.
    fraction : array (steps + 1,)
        Fraction of cells that are replaced or restored, from 0 to 1.
    probability : array (n, steps + 1)
        For each trial, with cells in order of the attribution.
    random : array (n, steps + 1)
        The same with cells in random order, averaged over several orders.
    """

    kind: str
    fraction: Array
    probability: Array
    random: Array

    @property
    def areas(self) -> Array:
        """Area under the curve of each trial (n,)."""
        return _area_under(self.probability, self.fraction)

    @property
    def random_areas(self) -> Array:
        """Area under the curve of each trial (n,), with cells in random order."""
        return _area_under(self.random, self.fraction)

    @property
    def gain(self) -> float:
        """Mean difference of areas to the random order, positive if the attribution is better."""
        difference = float((self.areas - self.random_areas).mean())
        return -difference if self.kind == "deletion" else difference


class CurveOptions(TypedDict, total=False):
    """Options of :func:`deletion` and :func:`insertion`."""

    replacement: str
    windows: int
    steps: int
    orders: int
    seed: int


def deletion(model: Model, trials: Any, attribution: Attribution, **options: Unpack[CurveOptions]) -> Curve:
    """Probability of the class while parts of epochs are replaced, the most important first.

    The parts are cells: a channel within a time window each.

    Parameters
    ----------
    model, trials
        The model and the trials of the attribution.
    attribution : Attribution
        The importance of a cell is the mean magnitude in it.
    replacement : "others" or "silence", default "others"
        Content of replaced cells: the same cell of another trial, drawn once for each trial from all trials whatever
        their class; or zeros.  Zeros are not neutral if a class is characterised by the absence of a rhythm.
    windows : int, default 8
        Number of time windows.
    steps : int, default 10
        Number of points of the curve after the first.
    orders : int, default 5
        Number of random orders to compare with.
    seed : int, default 0
        Random seed for the choice of other trials and for the random orders.

    Returns
    -------
    Curve
        Probabilities while cells are replaced.

    Raises
    ------
    ShapeError
        If the attribution was computed for other trials.

    Examples
    --------
    >>> from torch import nn
    >>> from gbwatt.explain import gradient
    >>> network, epochs = nn.Sequential(nn.Flatten(), nn.Linear(2 * 50, 3)), np.random.randn(4, 2, 50)
    >>> deletion(network, epochs, gradient(network, epochs, "predicted"), steps=5).probability.shape
    (4, 6)
    """
    return _Perturbation("deletion", **options).curve(prepare(model, trials), attribution)


def insertion(model: Model, trials: Any, attribution: Attribution, **options: Unpack[CurveOptions]) -> Curve:
    """Probability of the class while replaced parts of epochs are restored, the most important first.

    The parts are cells, as for :func:`deletion`; at first, all of them are replaced.

    Parameters
    ----------
    model, trials, attribution, **options
        As for :func:`deletion`.

    Returns
    -------
    Curve
        Probabilities while cells are restored.
    """
    return _Perturbation("insertion", **options).curve(prepare(model, trials), attribution)


@dataclass(frozen=True)
class _Perturbation:
    """Settings of deletion and insertion; :meth:`curve` computes the probabilities."""

    kind: str
    replacement: str = "others"
    windows: int = 8
    steps: int = 10
    orders: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        check_one_of("replacement", self.replacement, ("others", "silence"))
        for name, least in (("windows", 1), ("steps", 1), ("orders", 1), ("seed", 0)):
            check_at_least(name, getattr(self, name), least)

    def curve(self, inputs: ModelInputs, attribution: Attribution) -> Curve:
        """Change cells (windows of channels) in the order of the attribution and, for comparison, in random orders."""
        _require_same_trials(inputs, attribution, self.windows)
        rng, cell = np.random.default_rng(self.seed), _cell_indices(attribution.values.shape[1:], self.windows)
        others = self._replacements(inputs.x, rng)
        importance = _cell_means(abs(attribution.values), cell)
        follow = partial(self._probabilities, inputs, attribution.labels, others, cell)
        random = [follow(_rank_cells(rng.random(importance.shape))) for _ in range(self.orders)]
        return Curve(self.kind, self._fractions, follow(_rank_cells(-importance)), np.mean(random, axis=0))

    @property
    def _fractions(self) -> Array:
        """Fractions (steps + 1,) of an epoch that are changed at the points of the curve."""
        return np.linspace(0, 1, self.steps + 1)

    def _replacements(self, x: Array, rng: np.random.Generator) -> Array:
        """Epochs whose samples replace those of ``x``: other trials, or zeros."""
        if self.replacement == "silence":
            return np.zeros_like(x)
        if len(x) < 2:
            raise ParameterError("replacement='others' needs two trials or more; 'silence' needs one.")
        order = rng.permutation(len(x))
        return x[np.roll(order, 1)[order.argsort()]]  # the predecessor in a random cycle, never the trial itself

    def _probabilities(self, inputs: ModelInputs, labels: Array, others: Array, cell: Array, ranks: Array) -> Array:
        """Probability (n, steps + 1) of each trial's class while its cells are changed in the order of ``ranks``.

        ``cell`` (n_chans, n_times) is the index of each sample's cell, a time window of one channel.
        """
        before, after = (inputs.x, others) if self.kind == "deletion" else (others, inputs.x)
        columns = []
        for fraction in self._fractions:
            changed = (ranks < round(fraction * ranks.shape[1]))[:, cell]  # (n, n_chans, n_times)
            probabilities = softmax(inputs.logits(np.where(changed, after, before)), axis=1)
            columns.append(probabilities[np.arange(len(labels)), labels])
        return np.stack(columns, axis=1)


def _require_same_trials(inputs: ModelInputs, attribution: Attribution, windows: int) -> None:
    """Raise an error unless the attribution belongs to these trials, and there are enough samples for the windows."""
    require_attribution(attribution)
    if attribution.values.shape != inputs.x.shape:
        raise ShapeError(
            f"'attribution' {attribution.values.shape} does not match the trials {inputs.x.shape}; pass the trials "
            "that it was computed for."
        )
    if windows > inputs.x.shape[2]:
        raise ParameterError(f"windows={windows} must not exceed the {inputs.x.shape[2]} samples of an epoch.")


def _cell_indices(shape: tuple[int, ...], windows: int) -> Array:
    """Index (n_chans, n_times) of the cell of each sample; a cell is one of the time ``windows`` of one channel."""
    n_chans, n_times = shape
    return np.arange(n_chans)[:, None] * windows + np.arange(n_times) * windows // n_times


def _cell_means(importance: Array, cell: Array) -> Array:
    """Mean importance (n, n_cells) in each cell, a time window of one channel; ``cell`` is that of each sample."""
    size = np.bincount(cell.ravel())
    return np.stack([np.bincount(cell.ravel(), trial.ravel()) for trial in importance]) / size


def _rank_cells(keys: Array) -> Array:
    """Rank (n, n_cells) of each cell of a trial by ascending key: the order in which cells are changed."""
    return np.asarray(keys.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable"))


def _area_under(curves: Array, fraction: Array) -> Array:
    """Area (n,) under curves (n, points) over the changed ``fraction`` (points,) of epochs, by the trapezoidal rule."""
    return np.asarray(((curves[:, 1:] + curves[:, :-1]) / 2 * np.diff(fraction)).sum(axis=1))


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
    pairs = zip(_comparable_magnitudes(trained, x), _comparable_magnitudes(random, x), strict=True)
    return np.array([_rank_correlation(a, b) for a, b in pairs])


def _comparable_magnitudes(attribution: Attribution, x: Array) -> Array:
    """Mean magnitudes by class for rank correlations; divided by those of epochs if the method multiplies by them."""
    if attribution.method not in CONTRIBUTIONS:
        return attribution.by_class()
    size = mean_by_class(abs(x), attribution.labels, len(attribution.class_names))
    return np.asarray(attribution.by_class() / np.where(size == 0, 1, size))


def _rank_correlation(a: Array, b: Array) -> float:
    """Spearman's rank correlation of two maps; NaN for a class without trials."""
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
        fresh = _rebuild_network(model) if isinstance(model, EEGDecoder) else _reinitialise(module)
        fresh = fresh.to(like.device, like.dtype)
    if isinstance(model, nn.Module):
        return fresh
    copied = copy.copy(model)
    copied.net_ = copied._make_trainer(fresh, copied.settings_)
    return copied


def _rebuild_network(decoder: EEGDecoder) -> nn.Module:
    """Build the network of an estimator again, with new initial weights."""
    return create(decoder.model, **decoder._ensemble_arguments())


def _reinitialise(module: nn.Module) -> nn.Module:
    """Copy a network with new initial weights: from its ``config``, or by ``reset_parameters`` of each layer."""
    if isinstance(module, Ensemble):
        return Ensemble([_reinitialise(member) for member in module.members])
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
        """Whether the best planted electrode is in the top quarter of channels, and ``level`` is above 1.

        The level is above 1 if the planted electrodes are, on average, above the lower end of this quarter.
        """
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
        _localise_class(attribution, number, _effects_of(truth, name))
        for number, name in enumerate(attribution.class_names)
    ]
    return tuple(result for result in results if result is not None)


def _effects_of(truth: Truth, name: str) -> tuple[Effect, ...]:
    """Effects that distinguish a class from the others: its own or, for one of two classes without any, the other's."""
    if name not in truth.effects:
        raise MismatchError(f"'truth' has no class {name!r}; it has {', '.join(map(repr, truth.effects))}.")
    own = truth.effects[name]
    if own or len(truth.effects) != 2:
        return own
    return tuple(effect for effects in truth.effects.values() for effect in effects)


def _localise_class(attribution: Attribution, number: int, effects: tuple[Effect, ...]) -> LocalisationResult | None:
    """Compare the attribution for class ``number`` with planted effects; None without effects or trials."""
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
        roc_auc=_planted_channels_auc(channels, effects),
        window=_share_in_windows(values, attribution.times, effects),
        band=_share_in_bands(values, attribution.sfreq, effects),
    )


def _planted_channels_auc(channels: Array, effects: Sequence[Effect]) -> float:
    """How well the magnitude of channels detects those with strong planted effects: area under the ROC curve."""
    strong = np.max([np.abs(effect.topography) for effect in effects], axis=0) >= 0.5
    return float("nan") if strong.all() or not strong.any() else float(roc_auc_score(strong, channels))


def _share_in_windows(values: Array, times: Array, effects: Sequence[Effect]) -> Share | None:
    """Share of the magnitude in the time windows of deflections; None if there are none."""
    windows = [effect.window for effect in effects if effect.kind == "deflection"]
    return _share_inside(abs(values).mean(axis=(0, 1)), times, windows)


def _share_in_bands(values: Array, sfreq: float, effects: Sequence[Effect]) -> Share | None:
    """Share of the power in the frequency bands of effects; None if there are none."""
    bands = [effect.band for effect in effects if effect.band is not None]
    power = (abs(np.fft.rfft(values)) ** 2).mean(axis=(0, 1))
    return _share_inside(power, np.fft.rfftfreq(values.shape[2], 1 / sfreq), bands)


def _share_inside(amount: Array, axis: Array, intervals: Sequence[tuple[float, float]]) -> Share | None:
    """Share of magnitude over time, or of power over frequency, that lies in any interval; None without any."""
    if not intervals:
        return None
    inside = np.any([(axis >= low) & (axis <= high) for low, high in intervals], axis=0)
    return Share(float(amount[inside].sum() / amount.sum()), float(inside.mean()))
