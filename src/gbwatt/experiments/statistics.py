"""Statistics of scores: means, spreads, paired tests and confidence intervals.

Scores are given as ``{subject: [score of a seed, ...]}``.  All subjects have the same weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Scores = Mapping[int, Sequence[float]]  # {subject: [score of a seed, ...]}

LEAST = 5  # smallest number of subjects for a test; with fewer, a signed-rank test cannot give p < 0.1
_DECIMALS = 10  # to which differences are rounded, so that rounding errors do not make equal scores differ


class Summary(NamedTuple):
    """Summary of scores.

    Attributes
    ----------
    mean : float
        Mean over subjects of the mean over seeds.
    over_seeds : float or None
        Standard deviation over the seeds of a subject (``ddof=0``), averaged over subjects with several seeds: the ±
        in papers on these data sets.  None if there are no such subjects.
    between_subjects : float or None
        Standard deviation over subjects (``ddof=1``) of their means; None for a single subject.
    subjects : int
        Number of subjects.
    seeds : (int, int)
        Smallest and largest number of seeds of a subject.
    """

    mean: float
    over_seeds: float | None
    between_subjects: float | None
    subjects: int
    seeds: tuple[int, int]

    @property
    def size(self) -> str:
        """Subjects × seeds, ``"11 × 10"``, or ``"11 × 8–10"`` if the number of seeds differs."""
        low, high = self.seeds
        return f"{self.subjects} × {low}" if low == high else f"{self.subjects} × {low}–{high}"


def summarize(scores: Scores) -> Summary | None:
    """Return the mean of scores, and their spreads over seeds and between subjects; None without scores.

    Examples
    --------
    >>> summary = summarize({1: [0.5, 0.7], 2: [0.8, 0.8]})
    >>> summary.mean, summary.over_seeds, summary.size
    (0.7, 0.05, '2 × 2')
    """
    by_subject = {subject: np.asarray(values, dtype=float) for subject, values in scores.items() if len(values)}
    if not by_subject:
        return None
    means = np.array([values.mean() for values in by_subject.values()])
    spreads = [values.std() for values in by_subject.values() if len(values) > 1]
    counts = [len(values) for values in by_subject.values()]
    return Summary(
        mean=float(means.mean()),
        over_seeds=float(np.mean(spreads)) if spreads else None,
        between_subjects=float(means.std(ddof=1)) if len(means) > 1 else None,
        subjects=len(by_subject),
        seeds=(min(counts), max(counts)),
    )


class Comparison(NamedTuple):
    """Comparison of two models on the subjects that both have.

    Attributes
    ----------
    subjects : int
        Number of common subjects.
    difference : float or None
        Median over subjects of the difference of the means over seeds.
    p : float or None
        p-value of the two-sided Wilcoxon signed-rank test.
    why : str
        Reason if p is None.
    """

    subjects: int
    difference: float | None
    p: float | None
    why: str = ""


#: Number of subjects up to which the test enumerates all choices of signs.
MOST_ENUMERATED = 13


def compare(scores: Scores, reference: Scores) -> Comparison:
    """Compare paired scores over subjects; differences are positive where ``scores`` are higher than ``reference``.

    Subjects without a difference are excluded from the test, as in Wilcoxon's original.  With fewer than five other
    subjects there is no p, since it could not be below 0.125.

    Examples
    --------
    >>> better = {subject: [0.6 + 0.01 * subject] for subject in range(1, 7)}
    >>> worse = {subject: [0.6] for subject in range(1, 7)}
    >>> compare(better, worse)
    Comparison(subjects=6, difference=0.035, p=0.03125, why='')
    """
    common = [s for s in scores if s in reference and len(scores[s]) and len(reference[s])]
    if not common:
        return Comparison(0, None, None, "no subject in common" if scores and reference else "no runs")
    differences = np.array([np.mean(scores[s]) - np.mean(reference[s]) for s in common]).round(_DECIMALS)
    p, why = _wilcoxon(differences)
    return Comparison(len(common), float(np.median(differences)), p, why)


def _wilcoxon(differences: NDArray[Any]) -> tuple[float | None, str]:
    """Return p of the signed-rank test of differences over subjects, or None and the reason why there is no p."""
    from scipy import stats

    nonzero = differences[differences != 0]
    if len(differences) < LEAST:
        return None, f"fewer than {LEAST} subjects"
    if len(nonzero) == 0:
        return None, "no subject differs"
    if len(nonzero) < LEAST:
        return None, f"fewer than {LEAST} subjects differ"
    if len(nonzero) > MOST_ENUMERATED:
        return float(stats.wilcoxon(nonzero).pvalue), ""
    return _exact_p(stats.rankdata(np.abs(nonzero)), nonzero > 0), ""


def _exact_p(ranks: NDArray[Any], positive: NDArray[np.bool_]) -> float:
    """Return the two-sided p of the signed-rank test from all choices of signs of the ranks (n,), which may be tied."""
    signs = np.arange(2 ** len(ranks))[:, None] >> np.arange(len(ranks)) & 1
    centre = ranks.sum() / 2
    observed = abs(ranks[positive].sum() - centre)
    return float(np.mean(np.abs(signs @ ranks - centre) >= observed - 1e-9))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Correct p-values by Holm's step-down procedure; None, for a test that was not made, stays None.

    The k-th smallest of n p-values is multiplied by n - k + 1; the results are made monotonic and at most 1.

    Examples
    --------
    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    tests = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(tests):
        largest = max(largest, min(1.0, p * (len(tests) - rank)))
        corrected[index] = largest
    return corrected


def weighted_f1(confusion: Sequence[Sequence[int]] | NDArray[Any]) -> float:
    """Return the mean of the F1 scores of the classes, weighted by their number of trials.

    ``confusion`` has one row for each true class.

    Examples
    --------
    >>> round(weighted_f1([[1, 0], [1, 1]]), 4)
    0.6667
    """
    counts = np.asarray(confusion, dtype=float)
    hits, true, predicted = np.diag(counts), counts.sum(1), counts.sum(0)
    f1 = 2 * hits / np.maximum(true + predicted, 1.0)
    return float((f1 * true).sum() / true.sum())
