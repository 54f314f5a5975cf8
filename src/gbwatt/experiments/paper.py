"""Numbers of the paper, as printed, by the labels that experiments use.

Accuracies with limited training data are missing: the paper shows them in a figure only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from gbwatt._validation import check_one_of

# Data sets of the paper by paradigm: motor imagery, steady-state visual evoked potentials, error-related negativity.
MI, SSVEP, ERN = "bcic-iv-2a", "mamem-ssvep-ii", "bci-ern"
#: Settings of the experiments with noise: variances.
NOISES = tuple(f"σ² = {variance}" for variance in ("0.2", "0.4", "0.6", "0.8", "1.0"))


#: A score in percent, seconds per epoch, or a share of matrices in percent.
Quantity = Literal["score", "seconds", "share"]


class Number(NamedTuple):
    """A number of the paper in percent or seconds, and the value after ±, if any."""

    mean: float
    spread: float | None = None


class Column(NamedTuple):
    """Data set and setting of a column of a paper table."""

    dataset: str
    setting: str = ""


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper.

    Attributes
    ----------
    where : str
        Number of the table in the paper.
    quantity : Quantity
        Quantity that the table shows.
    columns : sequence of Column
        Data set and setting of each column.
    lines : dict
        Numbers of the columns as printed, for each label.
    scale : float
        Factor to percent.
    remarks : tuple of str
        Remarks on the numbers, such as contradictions or missing information in the paper.
    """

    where: str
    quantity: Quantity
    columns: Sequence[Column] = ()
    lines: Mapping[str, str] = field(default_factory=dict)
    scale: float = 1.0
    remarks: tuple[str, ...] = ()

    def number(self, label: str, dataset: str, setting: str = "") -> Number | None:
        """Return the number of a label on a data set in a setting; None if the paper does not give it.

        A setting may also be part of the label: "GBWAtt (θ = 2)" is "GBWAtt" in the setting "θ = 2".
        """
        for name, line in self.lines.items():
            for column, printed in zip(self.columns, line.split("|"), strict=True):
                if column.dataset == dataset and _normalize(name, column.setting) == _normalize(label, setting):
                    return self._parse(printed)
        return None

    def _parse(self, printed: str) -> Number:
        """Convert a number as printed, "67.27 ± 2.62", to percent or seconds."""
        mean, *spread = (round(float(part) * self.scale, 6) for part in printed.split("±"))
        return Number(mean, *spread)


def _normalize(label: str, setting: str) -> str:
    """Join label and setting without spaces, parentheses, capitals and trailing zeros, for comparisons."""
    text = re.sub(r"[\s()]", "", label + setting).casefold()
    return re.sub(r"\d+\.\d+", lambda decimal: f"{float(decimal[0]):g}", text)


def _dataset_columns(*names: str) -> tuple[Column, ...]:
    """Return the columns of a table that has one column for each of these data sets."""
    return tuple(map(Column, names))


_FULL_MI, _FULL_SSVEP, _FULL_ERN = "74.95 ± 1.83", "67.27 ± 2.62", "80.90 ± 1.97"  # GBWAtt, in several tables
_FULL = f"{_FULL_SSVEP} | {_FULL_ERN}"

_MAIN = PaperTable(
    "Table 3",
    "score",
    _dataset_columns(MI, SSVEP, ERN),
    {
        "EEGNet": "61.84 ± 6.39 | 53.72 ± 7.23 | 74.28 ± 2.47",
        "ShallowConvNet": "57.43 ± 6.25 | 56.93 ± 6.97 | 71.86 ± 2.64",
        "SCCNet": "71.95 ± 5.05 | 62.11 ± 7.70 | 70.93 ± 2.31",
        "FBCNet": "56.52 ± 3.07 | 53.09 ± 5.67 | 60.47 ± 3.06",
        "TCNet-Fusion": "71.45 ± 4.45 | 45.00 ± 6.45 | 70.46 ± 2.94",
        "MBEEGSE": "64.58 ± 6.07 | 56.45 ± 7.27 | 75.46 ± 2.34",
        "SPDNet": "72.93 ± 4.33 | 62.30 ± 3.12 | 72.05 ± 4.43",
        "SPDNetBN": "73.02 ± 3.67 | 62.76 ± 3.01 | 72.34 ± 3.46",
        "MAtt": "74.71 ± 5.01 | 65.19 ± 3.14 | 75.68 ± 2.23",
        "GDLNet": "69.32 ± 2.89 | 65.52 ± 2.86 | 78.23 ± 2.52",
        "GBWAtt (θ = 1)": "74.54 ± 2.04 | 67.12 ± 2.94 | 80.42 ± 2.12",
        "GBWAtt (θ = 1.5)": f"{_FULL_MI} | {_FULL}",
    },
    remarks=(
        "The paper's table mentions 10 runs; its text mentions 10-fold cross-validation.",
        "For θ = 1, the paper's table on the effect of θ differs: 80.08 ± 1.79 on ERN, and ± 2.62 on SSVEP.",
        "On SSVEP and ERN, the paper's numbers for the baselines are identical to those of an earlier paper.",
        "All our models are trained with Riemannian Adam. The original MAtt uses Adam on the Euclidean gradient and "
        "orthonormalises by QR. The original GDLNet uses RAdam with gradient clipping, and the dimension of its "
        "subspaces is selected for each subject. The original SPDNetBN computes the mean of a batch by one Karcher "
        "step; ours is iterated to convergence.",
    ),
)

_MODULES = PaperTable(
    "Table 4",
    "score",
    _dataset_columns(MI, SSVEP, ERN),
    {
        "SFEM": "26.22 ± 0.84 | 20.26 ± 1.23 | 73.22 ± 2.63",
        "GBW-SSAM": "55.96 ± 3.58 | 30.18 ± 2.43 | 58.10 ± 3.24",
        "SFEM + ESAM": "49.42 ± 2.15 | 22.97 ± 2.33 | 63.95 ± 2.44",
        "SFEM + GBW-SSAM": f"{_FULL_MI} | {_FULL}",
    },
)

_DESIGN = PaperTable(
    "Table 5",
    "score",
    _dataset_columns(SSVEP, ERN),
    {
        "Metric: Euclidean": "56.55 ± 2.91 | 63.95 ± 3.24",
        "Metric: AIM": "64.39 ± 2.74 | 76.42 ± 2.78",
        "Metric: BWM": "65.85 ± 2.54 | 79.82 ± 2.24",
        "Metric: GBWM": _FULL,
        "Score: inner product": "63.72 ± 3.15 | 75.37 ± 2.62",
        "Score: Gaussian kernel": "64.23 ± 2.75 | 76.62 ± 2.48",
        "Score: negative squared distance": "63.54 ± 2.49 | 75.42 ± 2.64",
        "Score: inverse-log distance": _FULL,
        "Aggregation: Euclidean": "56.55 ± 3.07 | 70.62 ± 2.48",
        "Aggregation: tangent space": "61.21 ± 2.91 | 76.42 ± 2.64",
        "Aggregation: Fréchet mean": _FULL,
        "Without MEEM": "59.46 ± 2.35 | 68.52 ± 4.27",
        "GBWAtt (θ = 1.5)": _FULL,
    },
    remarks=(
        "The paper states that distance-based scores are better than the inner product, but in its table the "
        "negative squared distance is worse on SSVEP.",
        "Some of the paper's numbers occur twice: 56.55 on SSVEP (Euclidean metric, Euclidean aggregation), 76.42 on "
        "ERN (AIM, tangent space) and 63.95 on ERN (Euclidean metric, SFEM + ESAM in the ablation of the modules).",
    ),
)

_THETA = PaperTable(
    "Table 6",
    "score",
    _dataset_columns(SSVEP, ERN),
    {
        "GBWAtt (θ = 0.25)": "65.57 ± 3.12 | 78.46 ± 2.12",
        "GBWAtt (θ = 0.5)": "66.27 ± 2.75 | 79.25 ± 2.16",
        "GBWAtt (θ = 0.75)": "66.79 ± 3.42 | 80.72 ± 2.24",
        "GBWAtt (θ = 1)": "67.12 ± 2.62 | 80.08 ± 1.79",
        "GBWAtt (θ = 1.25)": "67.04 ± 3.12 | 80.14 ± 2.08",
        "GBWAtt (θ = 1.5)": _FULL,
        "GBWAtt (θ = 2)": "67.03 ± 2.21 | 79.74 ± 2.32",
    },
    remarks=("For θ = 1, the paper's main table differs: 80.42 ± 2.12 on ERN, and ± 2.94 on SSVEP.",),
)

_CLINICAL = PaperTable(
    "Table 7",
    "score",
    _dataset_columns("tuev", "tuab"),
    {
        "BIOT-Base": "0.5281 ± 0.0225 | 0.7959 ± 0.0057",
        "BIOT-MAtt": "0.5304 ± 0.0218 | 0.7972 ± 0.0083",
        "BIOT-GBWAtt": "0.5362 ± 0.0154 | 0.8016 ± 0.0034",
        "LaBraM-Base": "0.6409 ± 0.0065 | 0.8140 ± 0.0019",
        "LaBraM-MAtt": "0.6356 ± 0.0072 | 0.8162 ± 0.0016",
        "LaBraM-GBWAtt": "0.6504 ± 0.0045 | 0.8190 ± 0.0014",
    },
    scale=100.0,
)

_LIMITED = PaperTable("a figure", "score", remarks=("The paper shows these results in a figure, without numbers.",))

_NOISE = PaperTable(
    "Table 8",
    "score",
    tuple(Column(SSVEP, noise) for noise in NOISES),
    {
        "MAtt": "63.52 ± 2.56 | 63.22 ± 2.74 | 62.25 ± 3.18 | 60.31 ± 3.01 | 59.85 ± 2.76",
        "GBWAtt (θ = 1.5)": "66.69 ± 2.18 | 64.61 ± 2.60 | 62.71 ± 2.31 | 60.51 ± 2.57 | 60.31 ± 2.13",
    },
    remarks=(
        "The paper does not state the unit of the noise, whether it is also added in training, or the value of θ.",
    ),
)

_BEFORE = "54.77 | 60.49 | 75.03 | 84.34 | 91.09"  # the same for both networks, although each learns its own filters
_CONDITIONS_BEFORE = PaperTable("Table 9", "share", _NOISE.columns, {"MAtt": _BEFORE, "GBWAtt (θ = 1.5)": _BEFORE})
_CONDITIONS_AFTER = PaperTable(
    "Table 9",
    "share",
    _NOISE.columns,
    {"MAtt": "1.42 | 3.16 | 6.74 | 10.42 | 14.27", "GBWAtt (θ = 1.5)": "0.00 | 0.40 | 1.50 | 5.42 | 7.46"},
    remarks=("Before attention, the paper gives the same numbers for both networks; ours are given for each network.",),
)

_TIME = PaperTable(
    "Table 10",
    "seconds",
    _dataset_columns(MI, ERN, SSVEP),
    {"MAtt": "1.84 | 0.98 | 2.55", "GBWAtt (θ = 1.5)": "2.47 | 1.43 | 3.32"},
    remarks=("The paper's times are for an Intel i9-13900HX with an NVIDIA RTX 4060. The value of θ is not stated.",),
)

#: Tables of the paper, by the names that experiments use.
TABLES: Mapping[str, PaperTable] = MappingProxyType(
    {
        "main": _MAIN,
        "modules": _MODULES,
        "design": _DESIGN,
        "theta": _THETA,
        "clinical": _CLINICAL,
        "limited": _LIMITED,
        "noise": _NOISE,
        "conditions-before": _CONDITIONS_BEFORE,
        "conditions-after": _CONDITIONS_AFTER,
        "time": _TIME,
    }
)


def find_table(name: str) -> PaperTable:
    """Return a table of the paper by its name."""
    check_one_of("paper_table", name, tuple(TABLES))
    return TABLES[name]


def number(table: str, label: str, dataset: str, setting: str = "") -> Number | None:
    """Return the number of the paper for a label on a data set; None if it does not give one.

    Examples
    --------
    >>> number("main", "GBWAtt (θ = 1.5)", "mamem-ssvep-ii")
    Number(mean=67.27, spread=2.62)
    >>> number("main", "MAtt", "simulated-ssvep") is None
    True
    """
    return find_table(table).number(label, dataset, setting)
