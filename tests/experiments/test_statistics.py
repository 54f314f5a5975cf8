"""Means, spreads and paired tests against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gbwatt.experiments.statistics import compare, holm, summarize


def test_summary_is_the_mean_of_subjects_with_both_spreads():
    summary = summarize({1: [0.5, 0.7], 2: [0.8, 1.0], 3: [0.3, 0.3]})
    assert summary.mean == pytest.approx((0.6 + 0.9 + 0.3) / 3)
    assert summary.over_seeds == pytest.approx((0.1 + 0.1 + 0.0) / 3)  # ddof 0, then averaged
    assert summary.between_subjects == pytest.approx(0.3)  # ddof 1 of 0.6, 0.9, 0.3
    assert summary.size == "3 × 2"


def test_spread_over_seeds_is_zero_if_seeds_agree():
    summary = summarize({1: [0.25] * 4, 2: [0.75] * 4})
    assert summary.over_seeds == 0
    assert summary.between_subjects > 0


def test_subjects_count_alike_when_seeds_are_unequal():
    summary = summarize({1: [1.0, 1.0, 1.0, 1.0], 2: [0.0]})
    assert summary.mean == 0.5
    assert summary.size == "2 × 1–4"


def test_single_seed_says_nothing_about_the_spread_over_seeds():
    assert summarize({1: [0.5], 2: [0.6]}).over_seeds is None
    mixed = summarize({1: [0.5], 2: [0.4, 0.8]})
    assert mixed.over_seeds == pytest.approx(0.2)  # of the subject that has two, not diluted by the other


def test_single_subject_says_nothing_about_the_spread_between_subjects():
    assert summarize({7: [0.5, 0.6]}).between_subjects is None


def test_nothing_has_no_summary():
    assert summarize({}) is None
    assert summarize({1: []}) is None


def test_comparison_uses_seed_means_of_the_subjects_that_both_have():
    ours = {s: [0.5 + 0.01 * s, 0.5 + 0.03 * s] for s in range(1, 9)}
    theirs = {s: [0.5] for s in range(3, 20)}
    found = compare(ours, theirs)
    assert found.subjects == 6
    assert found.difference == pytest.approx(np.median([0.02 * s for s in range(3, 9)]))
    assert found.p == pytest.approx(2 / 2**6)  # all six signs agree
    assert not found.why


def test_comparison_is_the_signed_rank_test_of_scipy():
    rng = np.random.default_rng(3)
    a, b = rng.uniform(size=(2, 11))
    found = compare({s: [a[s]] for s in range(11)}, {s: [b[s]] for s in range(11)})
    assert found.p == pytest.approx(stats.wilcoxon(a, b).pvalue)


@pytest.mark.parametrize("n", [5, 9, 13, 14, 20])
def test_tied_differences_have_the_p_of_scipy(n):
    differences = np.random.default_rng(n).integers(-3, 7, n) / 100
    differences[differences == 0] = 0.02
    found = compare({s: [differences[s]] for s in range(n)}, {s: [0.0] for s in range(n)})
    assert found.p == pytest.approx(stats.wilcoxon(differences).pvalue)


def test_comparison_changes_its_sign_with_the_order():
    a, b = {s: [0.1 * s] for s in range(8)}, {s: [0.3] for s in range(8)}
    assert compare(a, b).difference == -compare(b, a).difference
    assert compare(a, b).p == compare(b, a).p


def test_equal_differences_are_ties_in_spite_of_rounding():
    """0.3 - 0.2 and 0.2 - 0.1 differ in the last bit, and 0.1 + 0.2 - 0.3 is not 0 there."""
    ours = {1: [0.3], 2: [0.2], 3: [0.8], 4: [0.6], 5: [0.4], 6: [0.1 + 0.2]}
    theirs = {1: [0.2], 2: [0.1], 3: [0.7], 4: [0.5], 5: [0.3], 6: [0.3]}
    found = compare(ours, theirs)
    assert found.p == pytest.approx(stats.wilcoxon([1.0] * 5).pvalue)


@pytest.mark.parametrize(
    ("ours", "why"),
    [
        ({1: [0.5], 2: [0.6], 3: [0.7], 4: [0.8]}, "fewer than 5 subjects"),
        ({s: [0.1] for s in range(1, 8)}, "no subject differs"),
        ({s: [0.1 + (s < 4)] for s in range(1, 8)}, "fewer than 5 subjects differ"),
        ({99: [0.1]}, "no subject in common"),
        ({}, "no runs"),
    ],
)
def test_without_enough_differences_there_is_a_reason_instead_of_p(ours, why):
    found = compare(ours, {s: [0.1] for s in range(1, 8)})
    assert found.p is None
    assert found.why == why


def test_holm_by_hand():
    """0.005 x 4, 0.01 x 3, then 0.03 x 2 and 0.04 x 1, which may not be below the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_is_monotone_and_never_below_p():
    p = np.random.default_rng(0).uniform(size=50).tolist()
    corrected = holm(p)
    assert all(c >= raw for c, raw in zip(corrected, p, strict=True))
    assert all(c <= 1 for c in corrected)
    in_order = [corrected[i] for i in np.argsort(p)]
    assert in_order == sorted(in_order)


def test_holm_counts_only_tests_that_were_made():
    assert holm([None, 0.02, None, 0.5]) == pytest.approx([None, 0.04, None, 0.5])
    assert holm([0.3]) == [0.3]
    assert holm([]) == []
