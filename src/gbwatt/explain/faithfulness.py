"""Whether an attribution tells what the decoder uses: take away what it calls important, and see what is left.

An epoch is divided into cells, a channel in a stretch of time each.  Deletion replaces them one after the other, the
most important first; insertion starts from what replaced them and gives them back.  The probability of the explained
class should fall, or rise, faster than in a random order [1]_.

No recording looks like a changed epoch: filters cancel what electrodes share, and a replaced cell shares nothing with
its neighbours.  A few random cells may disturb a decoder as much as a few important ones, so both curves are needed.

References
----------
.. [1] V. Petsiuk, A. Das, K. Saenko, "RISE: randomized input sampling for explanation of black-box models", BMVC 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax

from gbwatt._validation import check_at_least, check_one_of
from gbwatt.errors import ParameterError, ShapeError
from gbwatt.explain.attribution import Attribution, require_attribution
from gbwatt.explain.inputs import Array, Model, Question, Summarised, ask


@dataclass(frozen=True, eq=False, repr=False)
class Curve(Summarised):
    """Probability of the explained class while cells are changed.

    Attributes
    ----------
    kind : "deletion" or "insertion"
    fraction : array (steps + 1,)
        Share of cells that are changed, from 0 to 1.
    probability : array (n, steps + 1)
        Of each trial, in the order of the attribution.
    random : array (n, steps + 1)
        The same for cells in random order, the mean of several.
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
        """The same in random order (n,)."""
        return _area(self.random, self.fraction)

    @property
    def gain(self) -> float:
        """By how much the attribution beats the random order: the mean difference of areas, positive if it does."""
        difference = float((self.areas - self.random_areas).mean())
        return -difference if self.kind == "deletion" else difference


def deletion(
    model: Model,
    trials: Any,
    attribution: Attribution,
    *,
    replacement: str = "others",
    windows: int = 8,
    steps: int = 10,
    orders: int = 5,
    seed: int = 0,
) -> Curve:
    """Replace cells, the most important first.

    Parameters
    ----------
    model, trials
        As the attribution was asked with.
    attribution : Attribution
        A cell is as important as the mean magnitude in it.
    replacement : "others" or "silence"
        What is put in the place of a cell: the same one of another trial, of whatever class, drawn once for each trial
        from those that are given; or zeros.  Zeros
        are no neutral value where a class is known by the lack of a rhythm: they are the very lack.
    windows : int
        Stretches of time that each channel is divided into.
    steps : int
        Points of the curve after the first.
    orders : int
        Random orders to compare with.
    seed : int
        Of the other trials and the random orders.
    """
    plan = _Plan("deletion", replacement, windows, steps, orders, seed)
    return plan.curve(ask(model, trials), attribution)


def insertion(
    model: Model,
    trials: Any,
    attribution: Attribution,
    *,
    replacement: str = "others",
    windows: int = 8,
    steps: int = 10,
    orders: int = 5,
    seed: int = 0,
) -> Curve:
    """Give cells back to what replaces them, the most important first; the arguments are those of :func:`deletion`."""
    plan = _Plan("insertion", replacement, windows, steps, orders, seed)
    return plan.curve(ask(model, trials), attribution)


@dataclass(frozen=True)
class _Plan:
    """How cells are changed."""

    kind: str
    replacement: str
    windows: int
    steps: int
    orders: int
    seed: int

    def __post_init__(self) -> None:
        check_one_of("replacement", self.replacement, ("others", "silence"))
        for name, least in (("windows", 1), ("steps", 1), ("orders", 1), ("seed", 0)):
            check_at_least(name, getattr(self, name), least)

    def curve(self, question: Question, attribution: Attribution) -> Curve:
        """The curve of the attribution, and the mean of those in random order."""
        _require_alike(question, attribution, self.windows)
        rng, cell = np.random.default_rng(self.seed), _cells(attribution.values.shape[1:], self.windows)
        other = self._other(question.x, rng)
        score = _scores(abs(attribution.values), cell)
        follow = partial(self._follow, question, attribution.labels, other, cell)
        drawn = [follow(_ranks(rng.random(score.shape))) for _ in range(self.orders)]
        return Curve(self.kind, self._fraction, follow(_ranks(-score)), np.mean(drawn, axis=0))

    @property
    def _fraction(self) -> Array:
        return np.linspace(0, 1, self.steps + 1)

    def _other(self, x: Array, rng: np.random.Generator) -> Array:
        """What takes the place of the epochs."""
        if self.replacement == "silence":
            return np.zeros_like(x)
        if len(x) < 2:
            raise ParameterError("replacement='others' needs two trials or more; 'silence' needs one.")
        order = rng.permutation(len(x))
        return x[np.roll(order, 1)[order.argsort()]]  # each has its neighbour in a random round, never itself

    def _follow(self, question: Question, labels: Array, other: Array, cell: Array, ranks: Array) -> Array:
        """Probability (n, steps + 1) of the classes as the cells are changed in the order of their ranks."""
        before, after = (question.x, other) if self.kind == "deletion" else (other, question.x)
        found = []
        for share in self._fraction:
            changed = (ranks < round(share * ranks.shape[1]))[:, cell]  # (n, n_chans, n_times)
            probabilities = softmax(question.logits(np.where(changed, after, before)), axis=1)
            found.append(probabilities[np.arange(len(labels)), labels])
        return np.stack(found, axis=1)


def _require_alike(question: Question, attribution: Attribution, windows: int) -> None:
    require_attribution(attribution)
    if attribution.values.shape != question.x.shape:
        raise ShapeError(
            f"'attribution' {attribution.values.shape} is not of the trials {question.x.shape}; explain the same ones."
        )
    if windows > question.x.shape[2]:
        raise ParameterError(f"windows={windows} must not be more than the {question.x.shape[2]} samples.")


def _cells(shape: tuple[int, ...], windows: int) -> Array:
    """Number of the cell of each sample (n_chans, n_times)."""
    n_chans, n_times = shape
    return np.arange(n_chans)[:, None] * windows + np.arange(n_times) * windows // n_times


def _scores(importance: Array, cell: Array) -> Array:
    """Mean importance (n, cells) in each cell."""
    size = np.bincount(cell.ravel())
    return np.stack([np.bincount(cell.ravel(), one.ravel()) for one in importance]) / size


def _ranks(keys: Array) -> Array:
    """Place (n, cells) of each cell in rising order of its key."""
    return np.asarray(keys.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable"))


def _area(curves: Array, fraction: Array) -> Array:
    """Integral (n,) by the trapezoidal rule."""
    return np.asarray(((curves[:, 1:] + curves[:, :-1]) / 2 * np.diff(fraction)).sum(axis=1))
