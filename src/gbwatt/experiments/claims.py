"""What the paper claims, as comparisons of lines of its tables, and what rows say to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from gbwatt.experiments import paper
from gbwatt.experiments.paper import ERN, MI, NOISES, SSVEP
from gbwatt.experiments.statistics import LEAST, Scores, compare, holm
from gbwatt.experiments.table_formats import Column, Table, Value, show
from gbwatt.experiments.tables import Grid, Place, about_training, score_of, share_of

Quantity = Literal["score", "ill before", "ill after", "seconds"]
Verdict = Literal["reproduced", "not reproduced", "reversed", "not testable here"]

LEVEL = 0.05  # of a test that counts


class Line(NamedTuple):
    """A line of an experiment."""

    label: str
    setting: str = ""

    def __str__(self) -> str:
        return f"{self.label}, {self.setting}" if self.setting else self.label


class Contrast(NamedTuple):
    """Two groups of lines, the mean of the first being higher than that of the second, says the paper."""

    higher: tuple[Line, ...]
    lower: tuple[Line, ...]

    def __str__(self) -> str:
        return " > ".join(_named(side) for side in self)


@dataclass(frozen=True)
class Claim:
    """One claim of the paper.

    Attributes
    ----------
    text : str
        In a few words.
    experiment : str
        Whose lines are compared.
    contrasts : tuple of Contrast
        All of which must hold.
    datasets : tuple of str
        For which it is made.
    quantity : Quantity
        What is compared: the score, the share of ill-conditioned matrices before or after attention, or seconds of an
        epoch.
    table : str
        Of the paper, with the same quantity.
    """

    text: str
    experiment: str
    contrasts: tuple[Contrast, ...]
    datasets: tuple[str, ...] = (MI, SSVEP, ERN)
    quantity: Quantity = "score"
    table: str = ""

    def printed(self, contrast: Contrast, dataset: str) -> float | None:
        """The difference of the paper's numbers, None where it has them not."""
        sides = [
            [paper.number(self.table or self.experiment, line.label, dataset, line.setting) for line in side]
            for side in contrast
        ]
        if any(number is None for side in sides for number in side):
            return None
        high, low = (np.mean([number.mean for number in side if number]) for side in sides)
        return float(high - low)


# --------------------------------------------------------------------------------------------------------- the claims


def _one(label: str, setting: str = "") -> tuple[Line, ...]:
    return (Line(label, setting),)


def _best(label: str, others: Iterable[str]) -> tuple[Contrast, ...]:
    return tuple(Contrast(_one(label), _one(other)) for other in others)


def _at(settings: Iterable[str], higher: str, lower: str) -> tuple[Contrast, ...]:
    return tuple(Contrast(_one(higher, setting), _one(lower, setting)) for setting in settings)


FULL, MATT = "GBWAtt (θ = 1.5)", "MAtt"
CONVNETS = ("EEGNet", "ShallowConvNet", "SCCNet", "FBCNet", "TCNet-Fusion", "MBEEGSE")
RIEMANNIAN = ("SPDNet", "SPDNetBN", MATT, "GDLNet")
THETAS = tuple(f"θ = {theta}" for theta in ("0.25", "0.5", "0.75", "1", "1.25", "2"))
SHARES = tuple(f"{percent}%" for percent in range(50, 101, 10))
WEAK, STRONG = NOISES[0], NOISES[-1]
SPD_MODELS = (Line("SPDNet"), Line("SPDNetBN"), Line(MATT))

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Riemannian networks, on average, are better than convolutional ones",
        "main",
        (Contrast(tuple(Line(name) for name in (*RIEMANNIAN, FULL)), tuple(map(Line, CONVNETS))),),
    ),
    Claim(
        "SPD matrices (SPDNet, SPDNetBN, MAtt) are better than subspaces (GDLNet)",
        "main",
        (Contrast(SPD_MODELS, _one("GDLNet")),),
        (MI,),
    ),
    Claim("GBWAtt is the best of all", "main", _best(FULL, (*CONVNETS, *RIEMANNIAN))),
    Claim("GBWAtt is better than MAtt", "main", _best(FULL, [MATT])),
    Claim("θ = 1.5 is better than θ = 1", "main", _best(FULL, ["GBWAtt (θ = 1)"])),
    Claim("Every module is needed", "modules", _best("SFEM + GBW-SSAM", ("SFEM", "GBW-SSAM"))),
    Claim("Attention of matrices is better than Euclidean", "modules", _best("SFEM + GBW-SSAM", ["SFEM + ESAM"])),
    Claim(
        "The generalised Bures-Wasserstein metric is the best",
        "design",
        _best("Metric: GBWM", ("Metric: Euclidean", "Metric: AIM", "Metric: BWM")),
        (SSVEP, ERN),
    ),
    Claim(
        "The inverse-log score is the best",
        "design",
        _best(
            "Score: inverse-log distance",
            ("Score: inner product", "Score: Gaussian kernel", "Score: negative squared distance"),
        ),
        (SSVEP, ERN),
    ),
    Claim(
        "Scores by distance, on average, are better than by the inner product",
        "design",
        (
            Contrast(
                (
                    Line("Score: Gaussian kernel"),
                    Line("Score: negative squared distance"),
                    Line("Score: inverse-log distance"),
                ),
                _one("Score: inner product"),
            ),
        ),
        (SSVEP, ERN),
    ),
    Claim(
        "The Fréchet mean is the best",
        "design",
        _best("Aggregation: Fréchet mean", ("Aggregation: Euclidean", "Aggregation: tangent space")),
        (SSVEP, ERN),
    ),
    Claim("The logarithm (MEEM) is needed", "design", _best(FULL, ["Without MEEM"]), (SSVEP, ERN)),
    Claim(
        "A small θ is worse",
        "theta",
        (Contrast(_one("GBWAtt", "θ = 1.5"), _one("GBWAtt", "θ = 0.25")),),
        (SSVEP, ERN),
    ),
    Claim(
        "θ = 1.5 is the best",
        "theta",
        tuple(Contrast(_one("GBWAtt", "θ = 1.5"), _one("GBWAtt", other)) for other in THETAS),
        (SSVEP, ERN),
    ),
    Claim(
        "On TUAB and TUEV, GBWAtt improves BIOT and LaBraM, and more than MAtt does",
        "clinical",
        tuple(
            Contrast(_one(f"{name}-GBWAtt"), _one(f"{name}-{other}"))
            for name in ("BIOT", "LaBraM")
            for other in ("Base", MATT)
        ),
        ("tuev", "tuab"),
    ),
    Claim("GBWAtt is better than MAtt with 50 to 100 % of the data", "limited", _at(SHARES, FULL, MATT), (SSVEP,)),
    Claim("GBWAtt is better than MAtt at every noise (in test)", "noise", _at(NOISES, FULL, MATT), (SSVEP,)),
    Claim(
        "The advantage over MAtt is smaller in strong noise (in test)",
        "noise",
        (Contrast((Line(FULL, WEAK), Line(MATT, STRONG)), (Line(MATT, WEAK), Line(FULL, STRONG))),),
        (SSVEP,),
    ),
    Claim(
        "Noise makes matrices ill-conditioned (before attention)",
        "noise",
        tuple(Contrast(_one(name, STRONG), _one(name, WEAK)) for name in (MATT, FULL)),
        (SSVEP,),
        "ill before",
        "conditions-before",
    ),
    Claim(
        "After attention, GBWAtt has fewer ill-conditioned matrices than MAtt",
        "noise",
        _at(NOISES, MATT, FULL),
        (SSVEP,),
        "ill after",
        "conditions-after",
    ),
    Claim(
        "GBWAtt is better than MAtt at every noise (in training, too)",
        "noise_both",
        _at(NOISES, FULL, MATT),
        (SSVEP,),
        "score",
        "noise",
    ),
    Claim("GBWAtt takes longer than MAtt", "time", _best(FULL, [MATT]), (MI, SSVEP, ERN), "seconds"),
)

EXPERIMENTS = tuple(dict.fromkeys(claim.experiment for claim in CLAIMS))


# ----------------------------------------------------------------------------------------------------------- verdicts


class Evidence(NamedTuple):
    """What rows say to one contrast."""

    contrast: Contrast
    printed: float | None  # the difference in the paper
    subjects: int
    difference: float | None  # ours: mean over subjects
    p: float | None  # corrected for the contrasts of the claim; None if hardly a subject differs

    @property
    def counts(self) -> int:
        """1 for the claim, -1 against it, 0 if the test does not tell."""
        if self.p is None or self.p >= LEVEL or not self.difference:
            return 0
        return 1 if self.difference > 0 else -1


@dataclass(frozen=True)
class Judgement:
    """What rows say to a claim on one data set."""

    claim: Claim
    dataset: str
    evidence: tuple[Evidence, ...]
    seeds: int = 0  # the fewest of any subject in any line

    @property
    def size(self) -> str | None:
        """Subjects and seeds, the fewest of each."""
        subjects = min(one.subjects for one in self.evidence)
        return f"{subjects} × {self.seeds}" if subjects else None

    @property
    def verdict(self) -> Verdict:
        """Reproduced if every test is for the claim, reversed if some are against it and none for it."""
        if any(one.subjects < LEAST for one in self.evidence):
            return "not testable here"
        counts = [one.counts for one in self.evidence]
        if all(count > 0 for count in counts):
            return "reproduced"
        return "reversed" if min(counts) < 0 and max(counts) <= 0 else "not reproduced"


def judge(claim: Claim, dataset: str, grid: Grid | None) -> Judgement:
    """Hold a claim against what there is of its experiment."""
    lines = {line for contrast in claim.contrasts for side in contrast for line in side}
    scores = {line: _scores(grid, line, dataset, claim.quantity) for line in lines}
    found = []
    for contrast in claim.contrasts:
        high, low = (_group([scores[line] for line in side]) for side in contrast)
        both = sorted(set(high) & set(low))
        difference = float(np.mean([high[s][0] - low[s][0] for s in both])) if both else None
        printed = claim.printed(contrast, dataset)
        found.append(Evidence(contrast, printed, len(both), difference, compare(high, low).p))
    corrected = holm([one.p for one in found])
    evidence = tuple(one._replace(p=p) for one, p in zip(found, corrected, strict=True))
    seeds = [len(values) for of_line in scores.values() for values in of_line.values()]
    return Judgement(claim, dataset, evidence, min(seeds, default=0))


def _scores(grid: Grid | None, line: Line, dataset: str, quantity: Quantity) -> Scores:
    place = Place(line.label, line.setting, dataset)
    if grid is None or place not in grid:
        return {}
    pick = {
        "score": score_of(dataset),
        "ill before": share_of("before"),
        "ill after": share_of("after"),
        "seconds": lambda row: row.seconds_per_epoch,
    }[quantity]
    return grid[place].of(pick)


def _group(lines: Sequence[Scores]) -> Scores:
    """The mean over lines of each subject that all of them have."""
    subjects = set(lines[0]).intersection(*lines[1:])
    return {subject: [float(np.mean([np.mean(one[subject]) for one in lines]))] for subject in sorted(subjects)}


def claims_table(grids: Mapping[str, Grid], datasets: Sequence[str] | None = None) -> Table:
    """All claims with their verdicts, and in a second table every comparison behind them.

    Parameters
    ----------
    grids : dict
        What there is of each experiment, by its name.
    datasets : sequence of str, optional
        Only claims for these.
    """
    judged = [
        judge(claim, dataset, grids.get(claim.experiment))
        for claim in CLAIMS
        for dataset in claim.datasets
        if datasets is None or dataset in datasets
    ]
    sets = tuple(dict.fromkeys(one.dataset for one in judged))
    by_place = {(one.claim.text, one.dataset): _summary(one) for one in judged}
    names = ("paper", "ours", "n", "tests", "verdict")
    header = (Column("claim"), *(Column(name, dataset) for dataset in sets for name in names))
    empty: list[Value] = [None] * len(names)
    lines = tuple(
        (claim.text, *(value for dataset in sets for value in by_place.get((claim.text, dataset), empty)))
        for claim in CLAIMS
        if any((claim.text, dataset) in by_place for dataset in sets)
    )
    notes = (
        "A claim is one comparison or several, each the mean over subjects of the difference of two lines, or of means "
        "of lines: of scores in percent, of percent of ill-conditioned matrices, or of seconds. Of several, the "
        "smallest and the largest difference stand here; all are in the next table.",
        f"Tests: how many comparisons are for the claim and how many against it by a Wilcoxon signed-rank test over "
        f"subjects, p < {LEVEL} after Holm's correction for the comparisons of the claim.",
        "Reproduced: all are for it. Reversed: some are against it, and none is for it. Not reproduced: anything else. "
        f"Not testable here: for one of them, or for all, there are no results, or of fewer than {LEAST} subjects.",
        "n: subjects × seeds, the fewest of all lines that are compared.",
        *dict.fromkeys(note for grid in grids.values() for note in about_training(grid)),
    )
    return Table("Claims of the paper", header, lines, notes, more=(_evidence_table(judged),))


def _summary(one: Judgement) -> list[Value]:
    counts = [e.counts for e in one.evidence]
    tests = f"{counts.count(1)} for, {counts.count(-1)} against, of {len(counts)}"
    return [
        _range([e.printed for e in one.evidence]),
        _range([e.difference for e in one.evidence]),
        one.size,
        None if one.verdict == "not testable here" else tests,
        one.verdict,
    ]


def _evidence_table(judged: Sequence[Judgement]) -> Table:
    lines = [
        (one.claim.text, one.dataset, str(e.contrast), e.printed, e.difference, str(e.subjects), e.p)
        for one in judged
        for e in one.evidence
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
    return Table("Comparisons behind the verdicts", header, tuple(lines))


def _range(values: Sequence[float | None]) -> str | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = show(min(known), "difference"), show(max(known), "difference")
    return low if low == high else f"{low} to {high}"


def _named(side: Sequence[Line]) -> str:
    return str(side[0]) if len(side) == 1 else f"mean of {', '.join(map(str, side))}"
