"""What many runs say together: means, two kinds of spread, paired tests, intervals.

Scores come as ``{subject: [score of a seed, ...]}``.  Subjects count alike, however many seeds each has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gbwatt._validation import check_at_least
from gbwatt.errors import ParameterError

Scores = Mapping[int, Sequence[float]]

LEAST = 5  # subjects; with fewer, no result of a signed-rank test has p below 0.1
_DECIMALS = 10  # two differences of shares of trials are the same number, or differ by more than rounding


class Summary(NamedTuple):
    """Scores in short.

    Attributes
    ----------
    mean : float
        Over subjects, of their means over seeds.
    over_seeds : float or None
        Standard deviation over the seeds of a subject (``ddof=0``), averaged over subjects: the ± that papers on these
        data sets print.  Subjects with a single seed say nothing about it; None if there are no others.
    between_subjects : float or None
        Standard deviation over subjects (``ddof=1``) of their means; None for a single one.
    subjects : int
    seeds : (int, int)
        The fewest and the most that a subject has.
    """

    mean: float
    over_seeds: float | None
    between_subjects: float | None
    subjects: int
    seeds: tuple[int, int]

    @property
    def size(self) -> str:
        """Subjects and seeds, ``"11 × 10"``, or ``"11 × 8–10"`` where not all have the same number."""
        low, high = self.seeds
        return f"{self.subjects} × {low}" if low == high else f"{self.subjects} × {low}–{high}"


def summarize(scores: Scores) -> Summary | None:
    """Mean and spreads; None without scores.

    Examples
    --------
    >>> summary = summarize({1: [0.5, 0.7], 2: [0.8, 0.8]})
    >>> summary.mean, summary.over_seeds, summary.size
    (0.7, 0.05, '2 × 2')
    """
    found = {subject: np.asarray(values, dtype=float) for subject, values in scores.items() if len(values)}
    if not found:
        return None
    means = np.array([values.mean() for values in found.values()])
    spreads = [values.std() for values in found.values() if len(values) > 1]
    counts = [len(values) for values in found.values()]
    return Summary(
        mean=float(means.mean()),
        over_seeds=float(np.mean(spreads)) if spreads else None,
        between_subjects=float(means.std(ddof=1)) if len(means) > 1 else None,
        subjects=len(found),
        seeds=(min(counts), max(counts)),
    )


class Comparison(NamedTuple):
    """One model beside another, on the subjects that both have.

    Attributes
    ----------
    subjects : int
    difference : float or None
        Median over subjects of the difference of their means over seeds: the size of the effect.
    p : float or None
        Of the Wilcoxon signed-rank test, two-sided.
    why : str
        Why there is no p.
    """

    subjects: int
    difference: float | None
    p: float | None
    why: str = ""


def compare(scores: Scores, reference: Scores) -> Comparison:
    """Paired comparison over subjects; positive differences mean that ``scores`` are higher than ``reference``.

    Subjects without a difference are left out of the test, as Wilcoxon did.  With fewer than five others there is no p:
    the smallest that could come out would be 0.125.

    Examples
    --------
    >>> better = {subject: [0.6 + 0.01 * subject] for subject in range(1, 7)}
    >>> worse = {subject: [0.6] for subject in range(1, 7)}
    >>> compare(better, worse)
    Comparison(subjects=6, difference=0.035, p=0.03125, why='')
    """
    both = [s for s in scores if s in reference and len(scores[s]) and len(reference[s])]
    if not both:
        return Comparison(0, None, None, "no subject in common" if scores and reference else "no runs")
    differences = np.array([np.mean(scores[s]) - np.mean(reference[s]) for s in both]).round(_DECIMALS)
    p, why = _wilcoxon(differences)
    return Comparison(len(both), float(np.median(differences)), p, why)


def _wilcoxon(differences: NDArray[Any]) -> tuple[float | None, str]:
    from scipy import stats

    others = differences[differences != 0]
    if len(differences) < LEAST:
        return None, f"fewer than {LEAST} subjects"
    if len(others) == 0:
        return None, "no subject differs"
    if len(others) < LEAST:
        return None, f"fewer than {LEAST} subjects differ"
    return float(stats.wilcoxon(others).pvalue), ""


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """P-values of a family, corrected by Holm's step-down procedure; None, for a test that was not made, stays None.

    The k-th smallest of n is multiplied by n - k + 1, and none may be below the ones before it.

    Examples
    --------
    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    made = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(made):
        largest = max(largest, min(1.0, p * (len(made) - rank)))
        corrected[place] = largest
    return corrected


def wilson(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval for a probability of which ``hits`` of ``n`` trials were seen.

    Examples
    --------
    >>> low, high = wilson(80, 100)
    >>> round(low, 4), round(high, 4)
    (0.7112, 0.8666)
    """
    check_at_least("n", n, 1)
    check_at_least("hits", hits, 0)
    if hits > n:
        raise ParameterError(f"hits={hits} must not be more than n={n}.")
    if not 0 < level < 1:
        raise ParameterError(f"level={level!r} must be between 0 and 1, such as 0.95.")
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, weight = hits / n, z**2 / n
    centre = (share + weight / 2) / (1 + weight)
    half = z * math.sqrt(share * (1 - share) / n + weight / (4 * n)) / (1 + weight)
    return max(0.0, centre - half), min(1.0, centre + half)


def weighted_f1(confusion: Sequence[Sequence[int]] | NDArray[Any]) -> float:
    """Mean of the classes' F1 scores, weighted by how often they occur, from a row for each true class.

    Examples
    --------
    >>> round(weighted_f1([[1, 0], [1, 1]]), 4)
    0.6667
    """
    counts = np.asarray(confusion, dtype=float)
    hits, true, said = np.diag(counts), counts.sum(1), counts.sum(0)
    f1 = 2 * hits / np.maximum(true + said, 1.0)
    return float((f1 * true).sum() / true.sum())
