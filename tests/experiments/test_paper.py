"""Numbers of the paper: spot checks against the print, and that none is forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from gbwatt.errors import ParameterError
from gbwatt.experiments import config, paper
from gbwatt.experiments.config import PACKAGED
from gbwatt.experiments.paper import ERN, MI, SSVEP, TABLES, Number

MODELS = (
    "EEGNet",
    "ShallowConvNet",
    "SCCNet",
    "FBCNet",
    "TCNet-Fusion",
    "MBEEGSE",
    "SPDNet",
    "SPDNetBN",
    "MAtt",
    "GDLNet",
    "GBWAtt (θ = 1)",
    "GBWAtt (θ = 1.5)",
)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("main", "GBWAtt (θ = 1.5)", SSVEP), Number(67.27, 2.62)),
        (("main", "GBWAtt (θ = 1.5)", MI), Number(74.95, 1.83)),
        (("main", "GBWAtt (θ = 1.5)", ERN), Number(80.90, 1.97)),
        (("main", "GBWAtt (θ = 1)", ERN), Number(80.42, 2.12)),
        (("main", "MAtt", SSVEP), Number(65.19, 3.14)),
        (("main", "ShallowConvNet", MI), Number(57.43, 6.25)),
        (("main", "GDLNet", ERN), Number(78.23, 2.52)),
        (("modules", "SFEM + ESAM", MI), Number(49.42, 2.15)),
        (("modules", "GBW-SSAM", SSVEP), Number(30.18, 2.43)),
        (("theta", "GBWAtt (θ = 1)", ERN), Number(80.08, 1.79)),
        (("theta", "GBWAtt (θ = 2)", SSVEP), Number(67.03, 2.21)),
        (("noise", "MAtt", SSVEP, "σ² = 0.6"), Number(62.25, 3.18)),
        (("noise", "GBWAtt (θ = 1.5)", SSVEP, "σ² = 1.0"), Number(60.31, 2.13)),
        (("conditions-before", "MAtt", SSVEP, "σ² = 0.2"), Number(54.77)),
        (("conditions-after", "MAtt", SSVEP, "σ² = 1.0"), Number(14.27)),
        (("conditions-after", "GBWAtt (θ = 1.5)", SSVEP, "σ² = 0.8"), Number(5.42)),
        (("time", "GBWAtt (θ = 1.5)", SSVEP), Number(3.32)),
        (("time", "MAtt", ERN), Number(0.98)),
        (("clinical", "LaBraM-GBWAtt", "tuab"), Number(81.90, 0.14)),
        (("clinical", "BIOT-Base", "tuev"), Number(52.81, 2.25)),
    ],
)
def test_numbers_are_as_printed(place, expected):
    assert paper.number(*place) == expected


@pytest.mark.parametrize("dataset", [MI, SSVEP, ERN])
@pytest.mark.parametrize("label", MODELS)
def test_main_table_has_every_model_on_every_data_set(label, dataset):
    found = paper.number("main", label, dataset)
    assert 40 < found.mean < 90
    assert 1 < found.spread < 8


def test_every_line_of_every_table_has_a_number_for_every_column():
    found = [
        paper.number(name, label, column.dataset, column.setting)
        for name, table in TABLES.items()
        for label in table.lines
        for column in table.columns
    ]
    assert None not in found
    assert len(found) == 36 + 12 + 26 + 14 + 12 + 10 + 10 + 10 + 6


def experiment_files() -> list[Path]:
    return sorted(PACKAGED.glob("*.yaml"))


def test_every_score_and_time_of_the_paper_has_its_place_in_an_experiment():
    asked = set()
    for experiment in map(config.read_experiment, experiment_files()):
        for row in experiment.models:
            for setting, _, _ in experiment.variants(row.options):
                places = ((experiment.paper, row.label, dataset, setting) for dataset in experiment.datasets)
                asked |= {(place[0], place[2], paper.number(*place)) for place in places if experiment.paper}
    printed = {
        (name, column.dataset, paper.number(name, label, *column))
        for name, table in TABLES.items()
        if table.quantity != "share"
        for label in table.lines
        for column in table.columns
    }
    assert len(printed) > 90
    assert printed <= asked


def test_the_best_is_in_every_column_what_the_paper_prints_in_bold():
    for name in ("main", "modules", "theta", "design", "noise", "clinical"):
        table = TABLES[name]
        for column in table.columns:
            best = max(table.lines, key=lambda label: paper.number(name, label, column.dataset, column.setting).mean)
            assert "GBW" in best, (name, column)


def test_full_model_is_the_same_in_all_ablations():
    full = paper.number("main", "GBWAtt (θ = 1.5)", SSVEP)
    assert paper.number("modules", "SFEM + GBW-SSAM", SSVEP) == full
    assert paper.number("theta", "GBWAtt (θ = 1.5)", SSVEP) == full
    for component in ("Metric: GBWM", "Score: inverse-log distance", "Aggregation: Fréchet mean"):
        assert paper.number("design", component, SSVEP) == full


def test_setting_may_be_part_of_the_label():
    assert paper.number("theta", "GBWAtt", SSVEP, "θ = 0.25") == Number(65.57, 3.12)
    assert paper.number("theta", "GBWAtt (θ=2.0)", SSVEP) == Number(67.03, 2.21)
    assert paper.number("noise", "MAtt", SSVEP, "σ² = 1") == Number(59.85, 2.76)


def test_labels_that_begin_alike_are_not_mixed_up():
    assert paper.number("main", "SPDNet", MI) != paper.number("main", "SPDNetBN", MI)
    assert paper.number("theta", "GBWAtt (θ = 1)", SSVEP) != paper.number("theta", "GBWAtt (θ = 1.25)", SSVEP)


@pytest.mark.parametrize(
    "place",
    [
        ("main", "GBWAtt (best)", SSVEP),
        ("main", "MAtt", "simulated-ssvep"),
        ("main", "MAtt", SSVEP, "σ² = 0.2"),
        ("noise", "MAtt", SSVEP),
        ("design", "Metric: AIM", MI),
        ("limited", "MAtt", SSVEP, "50 %"),
    ],
)
def test_what_the_paper_does_not_have_is_none(place):
    assert paper.number(*place) is None


def test_unknown_table_is_an_error_that_names_the_known():
    with pytest.raises(ParameterError, match=r"paper_table='mian' .* Did you mean 'main'"):
        paper.number("mian", "MAtt", SSVEP)


def test_contradictions_of_the_paper_are_told():
    assert paper.number("main", "GBWAtt (θ = 1)", ERN) != paper.number("theta", "GBWAtt (θ = 1)", ERN)
    assert any("80.08" in remark for remark in TABLES["main"].remarks)
    assert any("80.42" in remark for remark in TABLES["theta"].remarks)
