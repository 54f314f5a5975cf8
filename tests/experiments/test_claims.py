"""Claims of the paper: the paper's own numbers are for them, and rows get the verdict that they deserve."""

from __future__ import annotations

import pytest

from gbwatt.experiments.claims import CLAIMS, EXPERIMENTS, Claim, Contrast, claims_table, judge
from gbwatt.experiments.config import PACKAGED, read_experiment
from gbwatt.experiments.grid import collect_results, lines
from gbwatt.experiments.paper import SSVEP, TABLES
from gbwatt.experiments.runs import LabelledRun, Row, Run

FOLDER = PACKAGED
SUBJECTS = range(1, 12)


def grid_of(**scores):
    """A grid of lines A, B, ... on SSVEP; a score is a number, or a function of the subject."""
    labelled, rows = [], {}
    for label, score in scores.items():
        for subject in SUBJECTS:
            run = Run(SSVEP, subject, label, seed=0, data="")
            value = score(subject) if callable(score) else score
            labelled.append(LabelledRun(label, "", run))
            rows[run.key] = Row(run.key, "done", run.to_dict(), accuracy=value, seconds_per_epoch=10 * value)
    return collect_results(labelled, rows)


def claim(*contrasts, quantity="score", table="main"):
    made = tuple(
        Contrast(*(tuple((name, "") for name in side.split("+")) for side in text.split(">"))) for text in contrasts
    )
    return Claim("…", "main", made, (SSVEP,), quantity, table)


def verdict(of, **scores):
    return judge(of, SSVEP, grid_of(**scores)).verdict


def wobbling(subject):
    """A difference that is as often up as down."""
    return 0.5 + 0.02 * (-1) ** subject * subject / 10


def test_a_higher_score_of_every_subject_is_reproduced_and_a_lower_one_reversed():
    assert verdict(claim("A>B"), A=0.7, B=lambda s: 0.6 + s / 1000) == "reproduced"
    assert verdict(claim("B>A"), A=0.7, B=lambda s: 0.6 + s / 1000) == "reversed"


def test_what_differs_by_chance_is_not_reproduced_whichever_is_higher():
    assert verdict(claim("A>B"), A=wobbling, B=0.5) == "not reproduced"
    assert verdict(claim("B>A"), A=wobbling, B=0.5) == "not reproduced"


def test_equal_scores_are_not_reproduced():
    assert verdict(claim("A>B"), A=0.5, B=0.5) == "not reproduced"


def test_all_comparisons_must_hold():
    scores = {"A": 0.7, "B": lambda s: 0.6 + s / 1000, "C": wobbling, "D": lambda s: 0.8 + s / 1000, "E": 0.5}
    assert verdict(claim("A>B", "A>C"), **scores) == "reproduced"
    assert verdict(claim("A>B", "C>E"), **scores) == "not reproduced"  # one for, one by chance
    assert verdict(claim("A>B", "A>D"), **scores) == "not reproduced"  # one for, one against
    assert verdict(claim("A>D", "C>E"), **scores) == "reversed"  # one against, one by chance


def test_without_rows_or_with_few_subjects_there_is_no_verdict():
    assert judge(claim("A>B"), SSVEP, None).verdict == "not testable here"
    assert verdict(claim("A>B"), A=0.7) == "not testable here"
    grid = grid_of(A=0.7, B=0.6)
    for found in grid.values():
        found.done = found.done[:4]
    assert judge(claim("A>B"), SSVEP, grid).verdict == "not testable here"


def test_groups_are_compared_by_their_means():
    (evidence,) = judge(claim("A+B>C"), SSVEP, grid_of(A=0.9, B=0.5, C=0.6)).evidence
    assert evidence.difference == pytest.approx(10.0)


def test_seconds_are_compared_as_seconds():
    (evidence,) = judge(claim("A>B", quantity="seconds"), SSVEP, grid_of(A=0.9, B=0.5)).evidence
    assert evidence.difference == pytest.approx(4.0)


def test_comparisons_of_one_claim_are_corrected_together():
    scores = {"A": 0.7, "B": lambda s: 0.7 - (0.02 if s > 2 else -0.005) - s / 1e4}
    (one,) = judge(claim("A>B"), SSVEP, grid_of(**scores)).evidence
    two = judge(claim("A>B", "A>B"), SSVEP, grid_of(**scores)).evidence
    assert two[0].p == pytest.approx(2 * one.p)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_claims_speak_of_lines_that_experiments_have(name):
    known = {(line.label, line.setting) for line in lines(read_experiment(FOLDER / f"{name}.yaml"))}
    asked = [line for one in CLAIMS if one.experiment == name for c in one.contrasts for side in c for line in side]
    assert asked
    assert set(asked) <= known


def test_one_claim_only_rests_on_a_picture():
    assert [one.experiment for one in CLAIMS if not TABLES[one.table or one.experiment].lines] == ["limited"]


@pytest.mark.parametrize("one", [one for one in CLAIMS if one.experiment != "limited"], ids=lambda claim: claim.text)
def test_the_numbers_of_the_paper_are_for_its_claims(one):
    differences = [one.printed(contrast, dataset) for contrast in one.contrasts for dataset in one.datasets]
    assert all(difference is not None and difference > 0 for difference in differences)


def test_the_table_has_every_claim_and_the_comparisons_there_are():
    table = claims_table({"main": collect_results([], {})})
    assert len(table.lines) == len(CLAIMS)
    verdicts = {value for line in table.lines for value in line if value in ("reproduced", "not testable here")}
    assert verdicts == {"not testable here"}
    assert table.more[0].lines == ()
