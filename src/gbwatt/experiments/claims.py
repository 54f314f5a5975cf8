"""Claims of the paper as comparisons of table lines, and whether results support them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from gbwatt.experiments import paper
from gbwatt.experiments.grid import Cell, Results
from gbwatt.experiments.paper import ERN, MI, NOISES, SSVEP
from gbwatt.experiments.statistics import LEAST, Scores, compare, holm
from gbwatt.experiments.table_formats import Column, Table, Value, show
from gbwatt.experiments.tables import score_of, share_of, training_notes

Quantity = Literal["score", "ill before", "ill after", "seconds"]
Verdict = Literal["reproduced", "not reproduced", "reversed", "not testable here"]

LEVEL = 0.05  # significance level

#: Label and setting of a table line, such as ("GBWAtt", "θ = 1.5"); the setting may be empty.
LineName = tuple[str, str]


class Contrast(NamedTuple):
    """Two groups of lines; according to the paper, the mean of the first is higher than that of the second."""

    higher: tuple[LineName, ...]
    lower: tuple[LineName, ...]

    def __str__(self) -> str:
        """Return the comparison as text, such as "GBWAtt > MAtt"."""
        return " > ".join(_describe_group(side) for side in self)


@dataclass(frozen=True)
class Claim:
    """One claim of the paper.

    Attributes
    ----------
    text : str
        The claim in a few words.
    experiment : str
        Experiment whose lines are compared.
    contrasts : tuple of Contrast
        Comparisons, all of which must hold.
    datasets : tuple of str
        Data sets that the claim is about.
    quantity : Quantity
        Quantity that is compared: the score, the share of ill-conditioned matrices before or after attention, or the
        seconds per epoch.
    table : str
        Table of the paper with this quantity; empty: the one with the name of the experiment.
    """

    text: str
    experiment: str
    contrasts: tuple[Contrast, ...]
    datasets: tuple[str, ...] = (MI, SSVEP, ERN)
    quantity: Quantity = "score"
    table: str = ""

    def printed(self, contrast: Contrast, dataset: str) -> float | None:
        """Return the paper's difference, higher minus lower side, on a data set; None if the paper lacks a number."""
        sides = [
            [paper.number(self.table or self.experiment, label, dataset, setting) for label, setting in side]
            for side in contrast
        ]
        if any(number is None for side in sides for number in side):
            return None
        high, low = (np.mean([number.mean for number in side if number]) for side in sides)
        return float(high - low)


# --------------------------------------------------------------------------------------------------------- the claims


def _line_names(*labels: str, setting: str = "") -> tuple[LineName, ...]:
    """Return label and setting of some table lines, for one side of a contrast; all have the same setting."""
    return tuple((label, setting) for label in labels)


def _above_each(label: str, others: Iterable[str]) -> tuple[Contrast, ...]:
    """Return one contrast for each other label: the line ``label`` is higher than the other line."""
    return tuple(Contrast(_line_names(label), _line_names(other)) for other in others)


def _above_in_each_setting(settings: Iterable[str], higher: str, lower: str) -> tuple[Contrast, ...]:
    """Return one contrast for each setting: the line ``higher`` is above the line ``lower`` in that setting."""
    return tuple(Contrast(((higher, setting),), ((lower, setting),)) for setting in settings)


# Labels and settings of the lines of experiments, as in their files.
FULL, MATT = "GBWAtt (θ = 1.5)", "MAtt"
CONVNETS = ("EEGNet", "ShallowConvNet", "SCCNet", "FBCNet", "TCNet-Fusion", "MBEEGSE")
RIEMANNIAN = ("SPDNet", "SPDNetBN", MATT, "GDLNet")
THETAS = tuple(f"θ = {theta}" for theta in ("0.25", "0.5", "0.75", "1", "1.25", "2"))
SHARES = tuple(f"{percent}%" for percent in range(50, 101, 10))  # of the training data
WEAK, STRONG = NOISES[0], NOISES[-1]  # lowest and highest noise level

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Riemannian networks are better than convolutional ones on average",
        "main",
        (Contrast(_line_names(*RIEMANNIAN, FULL), _line_names(*CONVNETS)),),
    ),
    Claim(
        "SPD matrices (SPDNet, SPDNetBN, MAtt) are better than subspaces (GDLNet)",
        "main",
        (Contrast(_line_names("SPDNet", "SPDNetBN", MATT), _line_names("GDLNet")),),
        (MI,),
    ),
    Claim("GBWAtt is the best model", "main", _above_each(FULL, (*CONVNETS, *RIEMANNIAN))),
    Claim("GBWAtt is better than MAtt", "main", _above_each(FULL, [MATT])),
    Claim("θ = 1.5 is better than θ = 1", "main", _above_each(FULL, ["GBWAtt (θ = 1)"])),
    Claim("Every module is needed", "modules", _above_each("SFEM + GBW-SSAM", ("SFEM", "GBW-SSAM"))),
    Claim(
        "Attention on SPD matrices is better than Euclidean attention",
        "modules",
        _above_each("SFEM + GBW-SSAM", ["SFEM + ESAM"]),
    ),
    Claim(
        "The generalised Bures-Wasserstein metric is the best",
        "design",
        _above_each("Metric: GBWM", ("Metric: Euclidean", "Metric: AIM", "Metric: BWM")),
        (SSVEP, ERN),
    ),
    Claim(
        "The inverse-log score is the best",
        "design",
        _above_each(
            "Score: inverse-log distance",
            ("Score: inner product", "Score: Gaussian kernel", "Score: negative squared distance"),
        ),
        (SSVEP, ERN),
    ),
    Claim(
        "Distance-based scores are better than the inner product on average",
        "design",
        (
            Contrast(
                _line_names(
                    "Score: Gaussian kernel", "Score: negative squared distance", "Score: inverse-log distance"
                ),
                _line_names("Score: inner product"),
            ),
        ),
        (SSVEP, ERN),
    ),
    Claim(
        "The Fréchet mean is the best",
        "design",
        _above_each("Aggregation: Fréchet mean", ("Aggregation: Euclidean", "Aggregation: tangent space")),
        (SSVEP, ERN),
    ),
    Claim("The logarithm (MEEM) is needed", "design", _above_each(FULL, ["Without MEEM"]), (SSVEP, ERN)),
    Claim(
        "A small θ is worse",
        "theta",
        (Contrast((("GBWAtt", "θ = 1.5"),), (("GBWAtt", "θ = 0.25"),)),),
        (SSVEP, ERN),
    ),
    Claim(
        "θ = 1.5 is the best",
        "theta",
        tuple(Contrast((("GBWAtt", "θ = 1.5"),), (("GBWAtt", other),)) for other in THETAS),
        (SSVEP, ERN),
    ),
    Claim(
        "GBWAtt improves BIOT and LaBraM on TUAB and TUEV, more than MAtt does",
        "clinical",
        tuple(
            Contrast(_line_names(f"{name}-GBWAtt"), _line_names(f"{name}-{other}"))
            for name in ("BIOT", "LaBraM")
            for other in ("Base", MATT)
        ),
        ("tuev", "tuab"),
    ),
    Claim(
        "GBWAtt is better than MAtt with 50 to 100 % of the data",
        "limited",
        _above_in_each_setting(SHARES, FULL, MATT),
        (SSVEP,),
    ),
    Claim(
        "GBWAtt is better than MAtt at every noise level (noise in test)",
        "noise",
        _above_in_each_setting(NOISES, FULL, MATT),
        (SSVEP,),
    ),
    Claim(
        "The advantage over MAtt is smaller in strong noise (noise in test)",
        "noise",
        (Contrast(((FULL, WEAK), (MATT, STRONG)), ((MATT, WEAK), (FULL, STRONG))),),
        (SSVEP,),
    ),
    Claim(
        "Noise makes matrices ill-conditioned (before attention)",
        "noise",
        tuple(Contrast(((name, STRONG),), ((name, WEAK),)) for name in (MATT, FULL)),
        (SSVEP,),
        "ill before",
        "conditions-before",
    ),
    Claim(
        "After attention, GBWAtt has fewer ill-conditioned matrices than MAtt",
        "noise",
        _above_in_each_setting(NOISES, MATT, FULL),
        (SSVEP,),
        "ill after",
        "conditions-after",
    ),
    Claim(
        "GBWAtt is better than MAtt at every noise level (noise in training and test)",
        "noise_both",
        _above_in_each_setting(NOISES, FULL, MATT),
        (SSVEP,),
        "score",
        "noise",
    ),
    Claim("GBWAtt takes longer than MAtt", "time", _above_each(FULL, [MATT]), (MI, SSVEP, ERN), "seconds"),
)

#: Names of the experiments that the claims need, in the order of the claims.
EXPERIMENTS = tuple(dict.fromkeys(claim.experiment for claim in CLAIMS))


# ----------------------------------------------------------------------------------------------------------- verdicts


class Evidence(NamedTuple):
    """Result of one comparison: the differences in the paper and in our results, and the p-value of ours."""

    contrast: Contrast
    printed: float | None  # difference in the paper
    subjects: int  # number of subjects with results on both sides
    difference: float | None  # our difference, mean over subjects
    p: float | None  # corrected for the comparisons of the claim; None if too few subjects differ

    @property
    def counts(self) -> int:
        """Return 1 if the test supports the claim, -1 if it contradicts it, 0 if it is not significant."""
        if self.p is None or self.p >= LEVEL or not self.difference:
            return 0
        return 1 if self.difference > 0 else -1


@dataclass(frozen=True)
class Judgement:
    """Result of testing a claim on one data set."""

    claim: Claim
    dataset: str
    evidence: tuple[Evidence, ...]
    seeds: int = 0  # smallest number of seeds of any subject in any line

    @property
    def size(self) -> str | None:
        """Smallest number of subjects × smallest number of seeds, as text; None without subjects."""
        subjects = min(comparison.subjects for comparison in self.evidence)
        return f"{subjects} × {self.seeds}" if subjects else None

    @property
    def verdict(self) -> Verdict:
        """Reproduced if every test supports the claim; reversed if some contradict it and none support it."""
        if any(comparison.subjects < LEAST for comparison in self.evidence):
            return "not testable here"
        counts = [comparison.counts for comparison in self.evidence]
        if all(count > 0 for count in counts):
            return "reproduced"
        return "reversed" if min(counts) < 0 and max(counts) <= 0 else "not reproduced"


def judge(claim: Claim, dataset: str, results: Results | None) -> Judgement:
    """Test a claim on one data set.

    Parameters
    ----------
    claim : Claim
        Claim to test.
    dataset : str
        Data set whose results are compared.
    results : Results or None
        Results of the experiment of the claim; None if it has none.

    Returns
    -------
    Judgement
        One :class:`Evidence` for each contrast of the claim, with p-values corrected for all of them.
    """
    lines = {line for contrast in claim.contrasts for side in contrast for line in side}
    scores = {line: _scores_of_line(results, line, dataset, claim.quantity) for line in lines}
    comparisons = []
    for contrast in claim.contrasts:
        high, low = (_mean_over_lines([scores[line] for line in side]) for side in contrast)
        common = sorted(set(high) & set(low))
        difference = float(np.mean([high[s][0] - low[s][0] for s in common])) if common else None
        printed = claim.printed(contrast, dataset)
        comparisons.append(Evidence(contrast, printed, len(common), difference, compare(high, low).p))
    corrected = holm([comparison.p for comparison in comparisons])
    evidence = tuple(comparison._replace(p=p) for comparison, p in zip(comparisons, corrected, strict=True))
    seeds = [len(values) for of_line in scores.values() for values in of_line.values()]
    return Judgement(claim, dataset, evidence, min(seeds, default=0))


def _scores_of_line(results: Results | None, line: LineName, dataset: str, quantity: Quantity) -> Scores:
    """Return the values of a table line that a claim compares, by subject; empty if there are no results."""
    cell = Cell(*line, dataset)
    if results is None or cell not in results:
        return {}
    pick = {
        "score": score_of(dataset),
        "ill before": share_of("before"),
        "ill after": share_of("after"),
        "seconds": lambda row: row.seconds_per_epoch,
    }[quantity]
    return results[cell].scores(pick)


def _mean_over_lines(lines: Sequence[Scores]) -> Scores:
    """Average the table lines on one side of a contrast, for each subject that all of them have."""
    subjects = set(lines[0]).intersection(*lines[1:])
    return {subject: [float(np.mean([np.mean(scores[subject]) for scores in lines]))] for subject in sorted(subjects)}


def claims_table(results: Mapping[str, Results], datasets: Sequence[str] | None = None) -> Table:
    """Make the table of claims with their verdicts; its ``more`` is the table of all comparisons behind them.

    Parameters
    ----------
    results : dict
        Results of each experiment, by its name.
    datasets : sequence of str, optional
        Only claims about these data sets.
    """
    judgements = [
        judge(claim, dataset, results.get(claim.experiment))
        for claim in CLAIMS
        for dataset in claim.datasets
        if datasets is None or dataset in datasets
    ]
    sets = tuple(dict.fromkeys(one.dataset for one in judgements))
    by_cell = {(one.claim.text, one.dataset): _summary_values(one) for one in judgements}
    names = ("paper", "ours", "n", "tests", "verdict")
    header = (Column("claim"), *(Column(name, dataset) for dataset in sets for name in names))
    empty: list[Value] = [None] * len(names)
    lines = tuple(
        (claim.text, *(value for dataset in sets for value in by_cell.get((claim.text, dataset), empty)))
        for claim in CLAIMS
        if any((claim.text, dataset) in by_cell for dataset in sets)
    )
    notes = (
        "A claim is tested by one or more comparisons. A comparison is the difference between two lines of a table, or "
        "between the means of two groups of lines, averaged over subjects. The unit is percentage points (scores, "
        "shares of ill-conditioned matrices) or seconds. If a claim has several comparisons, this table shows the "
        "smallest and the largest difference, and the next table shows all of them.",
        f"tests: number of comparisons that support the claim (for) and that contradict it (against). Only significant "
        f"differences count: Wilcoxon signed-rank test over subjects, p < {LEVEL} after Holm's correction for the "
        "comparisons of the claim.",
        "verdict: reproduced if all comparisons support the claim; reversed if at least one contradicts it and none "
        "supports it; not testable here if a comparison has results of fewer than "
        f"{LEAST} subjects; otherwise not reproduced.",
        "n: number of subjects × number of seeds, the smallest among the compared lines.",
        *dict.fromkeys(note for one in results.values() for note in training_notes(one)),
    )
    return Table("Claims of the paper", header, lines, notes, more=(_evidence_table(judgements),))


def _summary_values(judgement: Judgement) -> list[Value]:
    """Return the values of a judgement in the table of claims: paper, ours, n, tests and verdict."""
    counts = [e.counts for e in judgement.evidence]
    tests = f"{counts.count(1)} for, {counts.count(-1)} against, of {len(counts)}"
    return [
        _show_range([e.printed for e in judgement.evidence]),
        _show_range([e.difference for e in judgement.evidence]),
        judgement.size,
        None if judgement.verdict == "not testable here" else tests,
        judgement.verdict,
    ]


def _evidence_table(judgements: Sequence[Judgement]) -> Table:
    """Make the table of all comparisons that have results, one line for each contrast of each claim."""
    lines = [
        (judgement.claim.text, judgement.dataset, str(e.contrast), e.printed, e.difference, str(e.subjects), e.p)
        for judgement in judgements
        for e in judgement.evidence
        if e.difference is not None
    ]
    header = (
        Column("claim"),
        Column("data set"),
        Column("comparison"),
        Column("paper", kind="difference"),
        Column("ours", kind="difference"),
        Column("subjects"),
        Column("p (Holm)", kind="p"),
    )
    return Table("Comparisons of the claims", header, tuple(lines))


def _show_range(values: Sequence[float | None]) -> str | None:
    """Return the smallest and the largest difference as text, "+0.50 to +2.10"; None without values."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return None
    low, high = show(min(numbers), "difference"), show(max(numbers), "difference")
    return low if low == high else f"{low} to {high}"


def _describe_group(lines: Sequence[LineName]) -> str:
    """Return one side of a contrast as text: the name of its line, or "mean of" and the names of its lines."""
    names = [", ".join(filter(None, line)) for line in lines]
    return names[0] if len(names) == 1 else f"mean of {', '.join(names)}"
