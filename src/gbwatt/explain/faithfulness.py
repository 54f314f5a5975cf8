"""Deletion and insertion test whether a decoder uses what an attribution marks as important.

An epoch is divided into cells, each a channel within a time window.  Deletion replaces cells one after another, the
most important first; insertion starts from the replacements and restores the cells.  For a faithful attribution the
probability of the explained class falls, or rises, faster than with cells in random order [1]_.

Modified epochs do not look like recordings: filters cancel what electrodes share, and a replaced cell shares nothing
with its neighbours.  A few random cells may disturb a decoder as much as a few important ones, so both curves are
needed.

References
----------
.. [1] V. Petsiuk, A. Das, K. Saenko, "RISE: randomized input sampling for explanation of black-box models", BMVC 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict, Unpack

import numpy as np
from scipy.special import softmax

from gbwatt._validation import check_at_least, check_one_of
from gbwatt.errors import ParameterError, ShapeError
from gbwatt.explain.attribution import Attribution, require_attribution
from gbwatt.explain.inputs import Array, Model, ModelInputs, ShortRepr, prepare


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
        return _area(self.probability, self.fraction)

    @property
    def random_areas(self) -> Array:
        """Area under the curve of each trial (n,), with cells in random order."""
        return _area(self.random, self.fraction)

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
    """Replace cells, the most important first.

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
    """Restore cells in epochs in which all were replaced, the most important first.

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
    """How cells are replaced, and in how many steps."""

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
        """The curve in order of the attribution, and the mean of those in random order."""
        _require_same_trials(inputs, attribution, self.windows)
        rng, cell = np.random.default_rng(self.seed), _cells(attribution.values.shape[1:], self.windows)
        others = self._replacements(inputs.x, rng)
        importance = _cell_means(abs(attribution.values), cell)
        follow = partial(self._probabilities, inputs, attribution.labels, others, cell)
        random = [follow(_ranks(rng.random(importance.shape))) for _ in range(self.orders)]
        return Curve(self.kind, self._fraction, follow(_ranks(-importance)), np.mean(random, axis=0))

    @property
    def _fraction(self) -> Array:
        return np.linspace(0, 1, self.steps + 1)

    def _replacements(self, x: Array, rng: np.random.Generator) -> Array:
        """Epochs from which replaced cells are taken."""
        if self.replacement == "silence":
            return np.zeros_like(x)
        if len(x) < 2:
            raise ParameterError("replacement='others' needs two trials or more; 'silence' needs one.")
        order = rng.permutation(len(x))
        return x[np.roll(order, 1)[order.argsort()]]  # the predecessor in a random cycle, never the trial itself

    def _probabilities(self, inputs: ModelInputs, labels: Array, others: Array, cell: Array, ranks: Array) -> Array:
        """Probability (n, steps + 1) of each trial's class while cells are changed in the order of their ranks."""
        before, after = (inputs.x, others) if self.kind == "deletion" else (others, inputs.x)
        columns = []
        for fraction in self._fraction:
            changed = (ranks < round(fraction * ranks.shape[1]))[:, cell]  # (n, n_chans, n_times)
            probabilities = softmax(inputs.logits(np.where(changed, after, before)), axis=1)
            columns.append(probabilities[np.arange(len(labels)), labels])
        return np.stack(columns, axis=1)


def _require_same_trials(inputs: ModelInputs, attribution: Attribution, windows: int) -> None:
    require_attribution(attribution)
    if attribution.values.shape != inputs.x.shape:
        raise ShapeError(
            f"'attribution' {attribution.values.shape} does not match the trials {inputs.x.shape}; pass the trials "
            "that it was computed for."
        )
    if windows > inputs.x.shape[2]:
        raise ParameterError(f"windows={windows} must not exceed the {inputs.x.shape[2]} samples of an epoch.")


def _cells(shape: tuple[int, ...], windows: int) -> Array:
    """Index of the cell of each sample (n_chans, n_times)."""
    n_chans, n_times = shape
    return np.arange(n_chans)[:, None] * windows + np.arange(n_times) * windows // n_times


def _cell_means(importance: Array, cell: Array) -> Array:
    """Mean importance (n, cells) in each cell."""
    size = np.bincount(cell.ravel())
    return np.stack([np.bincount(cell.ravel(), one.ravel()) for one in importance]) / size


def _ranks(keys: Array) -> Array:
    """Rank (n, cells) of each cell in ascending order of its key."""
    return np.asarray(keys.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable"))


def _area(curves: Array, fraction: Array) -> Array:
    """Integral (n,) by the trapezoidal rule."""
    return np.asarray(((curves[:, 1:] + curves[:, :-1]) / 2 * np.diff(fraction)).sum(axis=1))
