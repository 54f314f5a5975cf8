"""From an experiment to its runs: what is in the grid, and which recordings are taken."""

from __future__ import annotations

import pytest

from gbwatt.data import DATASETS, MissingFileError
from gbwatt.data.fingerprint import fingerprint
from gbwatt.errors import ParameterError
from gbwatt.experiments.config import from_mapping
from gbwatt.experiments.runs import changes
from tests.experiments.small import cells, experiment, one

MAMEM_FILES = ("U002.mat", "U005.mat")


@pytest.fixture
def recordings(tmp_path):
    """A folder with files of two subjects of MAMEM-SSVEP-II, which are only looked for here."""
    (tmp_path / "data" / "mamem").mkdir(parents=True)
    for name in MAMEM_FILES:
        (tmp_path / "data" / "mamem" / name).write_bytes(name.encode())
    return tmp_path / "data"


# ------------------------------------------------------------------------------------------------------------ the grid


def test_the_grid_has_every_model_subject_and_seed_once():
    found = cells(experiment())
    assert [(cell.label, cell.run.subject, cell.run.seed) for cell in found] == [
        (label, subject, seed) for seed in (0, 1) for label in ("MAtt", "GBWAtt") for subject in (1, 2)
    ]
    assert len({cell.run.key for cell in found}) == len(found) == 8


def test_a_run_has_all_that_its_experiment_says():
    row = {"label": "GBWAtt", "model": "gbwatt", "options": {"theta": 2.0}, "training": {"lr": 1e-2}}
    (cell,) = cells(experiment(models=[row], training={"lr": 1, "max_epochs": 3}, subjects=[4], seeds=[7]))
    assert cell.setting == ""
    assert cell.run.to_dict() == {
        "dataset": "simulated-ssvep",
        "subject": 4,
        "model": "gbwatt",
        "seed": 7,
        "data": fingerprint("simulated-ssvep", 4),
        "split": 0,
        "options": {"aggregation": "frechet", "shrinkage": 0, "theta": 2},
        "training": {"lr": 1e-2, "batch_size": 64, "max_epochs": 3, "weight_decay": 0.1},
        "fraction": 1.0,
        "noise": 0.0,
        "noisy_training": False,
    }


def test_all_subjects_are_those_of_each_set():
    found = cells(experiment(datasets=["bcic-iv-2a", "bci-ern"], subjects="all", seeds=1))
    by_set = {name: {cell.run.subject for cell in found if cell.run.dataset == name} for name in DATASETS}
    assert by_set["simulated-mi"] == set(range(1, 10))
    assert by_set["simulated-ern"] == set(DATASETS["bci-ern"].subjects)


def test_a_set_with_several_splits_has_a_run_for_each(tmp_path, monkeypatch):
    monkeypatch.setattr("gbwatt.experiments.grid.count_splits", lambda name: 3)
    assert [cell.run.split for cell in cells(experiment(subjects=[1], seeds=1, models=one()["models"]))] == [0, 1, 2]


def test_a_model_may_be_for_some_sets_only():
    rows = [
        {"label": "MAtt", "model": "matt"},
        {"label": "SPDNet", "model": "spdnet", "datasets": ["mamem-ssvep-ii"]},
    ]
    mapping = experiment(datasets=["bcic-iv-2a", "mamem-ssvep-ii"], models=rows, seeds=1, subjects=[1])
    pairs = {(cell.label, cell.run.dataset) for cell in cells(mapping)}
    assert pairs == {("MAtt", "simulated-mi"), ("MAtt", "simulated-ssvep"), ("SPDNet", "simulated-ssvep")}
    assert cells(mapping, datasets=["simulated-ssvep"])[-1].label == "SPDNet", "its twin is meant, too"


def test_an_experiment_without_a_model_for_a_set_says_so():
    rows = [{"label": "SPDNet", "model": "spdnet", "datasets": ["mamem-ssvep-ii"]}]
    with pytest.raises(ParameterError, match="no model for these data sets"):
        cells(experiment(datasets=["bcic-iv-2a", "mamem-ssvep-ii"], models=rows), datasets=["bcic-iv-2a"])


def test_arguments_replace_what_the_file_says():
    found = cells(experiment(), datasets=["bcic-iv-2a"], subjects=[3], seeds=[5, 6])
    assert {(cell.run.dataset, cell.run.subject, cell.run.seed) for cell in found} == {
        ("simulated-mi", 3, 5),
        ("simulated-mi", 3, 6),
    }
    assert {cell.run.seed for cell in cells(experiment(), seeds=3)} == {0, 1, 2}
    assert len({cell.run.subject for cell in cells(experiment(), subjects="all")}) == 11


@pytest.mark.parametrize(
    "axis, values, field",
    [("fraction", [0.5, 1], "fraction"), ("noise", [0, 0.2], "noise"), ("options.theta", [1, 2], "options")],
)
def test_what_is_varied_is_all_that_differs(axis, values, field):
    found = cells(one(options={"theta": 1.5}) | {"vary": {"axis": axis, "values": values}, "seeds": 1, "subjects": [1]})
    first, second = (cell.run.to_dict() for cell in found)
    assert {name for name in first if first[name] != second[name]} == {field}
    assert [cell.setting for cell in found] == [str(float(v)) if field != "options" else str(v) for v in values]


def test_settings_are_shown_in_the_format_that_is_given():
    vary = {"axis": "fraction", "values": [0.5, 1], "label": "{:.0%}"}
    assert list(dict.fromkeys(cell.setting for cell in cells(experiment(vary=vary)))) == ["50%", "100%"]


def test_noise_is_in_training_only_where_it_is_asked_for():
    for where, expected in (("test", [False, False]), ("both", [False, True])):
        vary = {"axis": "noise", "values": [0, 0.2], "where": where}
        found = cells(experiment(vary=vary, seeds=1, subjects=[1], models=one()["models"]))
        assert [cell.run.noisy_training for cell in found] == expected, "no noise is the same run in both"


def test_no_change_along_an_axis_is_the_run_without_it():
    plain = {cell.run.key for cell in cells(experiment())}
    for vary in ({"axis": "fraction", "values": [1]}, {"axis": "noise", "values": [0], "where": "both"}):
        assert {cell.run.key for cell in cells(experiment(vary=vary))} == plain


@pytest.mark.parametrize("one_way, other_way", [(1, 1.0), ([1, 2.0], [1.0, 2])])
def test_a_number_is_the_same_run_however_it_is_written(one_way, other_way):
    vary = [{"axis": "options.theta", "values": list(v) if isinstance(v, list) else [v]} for v in (one_way, other_way)]
    first, second = (cells(one() | {"vary": v}) for v in vary)
    assert [cell.run.key for cell in first] == [cell.run.key for cell in second]
    assert [cell.setting for cell in first] == [cell.setting for cell in second]


# ---------------------------------------------------------------------------------------------------------- recordings


def test_real_recordings_are_taken_where_they_are_and_what_is_missing_is_said(recordings):
    source = from_mapping(experiment(subjects="all")).sources(recordings)["mamem-ssvep-ii"]
    assert (source.dataset, source.simulated, source.subjects) == ("mamem-ssvep-ii", False, (2, 5))
    assert source.missing == (1, 3, 4, 6, 7, 8, 9, 10, 11)
    assert "no files of subjects 1, 3, 4" in str(source)


def test_simulated_recordings_stand_in_for_missing_ones_and_it_is_said(recordings):
    mapping = experiment(datasets=["bcic-iv-2a", "mamem-ssvep-ii"], subjects="all")
    sources = from_mapping(mapping).sources(recordings)
    assert [(s.dataset, s.simulated) for s in sources.values()] == [("simulated-mi", True), ("mamem-ssvep-ii", False)]
    said = str(sources["bcic-iv-2a"])
    assert "bcic-iv-2a by simulated-mi" in said
    assert f"none of its files are in {recordings}" in said


def test_runs_on_files_have_the_fingerprint_of_these_files(recordings):
    found = cells(experiment(subjects="all", seeds=1), simulated="auto", root=recordings)
    data = {cell.run.subject: cell.run.data for cell in found}
    assert data == {2: fingerprint("mamem-ssvep-ii", 2, recordings), 5: fingerprint("mamem-ssvep-ii", 5, recordings)}
    assert data[2] != data[5]


def test_always_is_simulated_even_where_there_are_files(recordings):
    source = from_mapping(experiment(simulated="always")).sources(recordings)["mamem-ssvep-ii"]
    assert (source.dataset, source.subjects, source.reason) == ("simulated-ssvep", (1, 2), "simulated, as asked for")


def test_never_names_all_sets_and_subjects_without_files(recordings):
    mapping = experiment(datasets=["bcic-iv-2a", "mamem-ssvep-ii", "bci-ern"], subjects="all", simulated="never")
    with pytest.raises(MissingFileError) as caught:
        from_mapping(mapping).cells(root=recordings)
    text = str(caught.value)
    assert "bcic-iv-2a, all of subjects 1, 2, 3, 4, 5, 6, 7, 8, 9" in text
    assert "bci-ern, all of subjects 2, 6, 7, 11" in text
    assert "mamem" not in text, "two of its subjects are there"
    assert "GBWATT_DATA" in text
    assert "simulated='auto'" in text


def test_a_set_without_a_simulated_one_says_so(tmp_path):
    mapping = experiment(datasets=["physionet-mi"])
    with pytest.raises(ParameterError, match="'physionet-mi' has no simulated set in its place"):
        cells(mapping)
    with pytest.raises(MissingFileError, match="physionet-mi, all of subjects 1, 2"):
        from_mapping(mapping).cells(root=tmp_path)


def test_a_set_and_its_stand_in_are_not_both_run(tmp_path):
    with pytest.raises(ParameterError, match="'mamem-ssvep-ii' and 'simulated-ssvep' are both"):
        from_mapping(experiment(datasets=["mamem-ssvep-ii", "simulated-ssvep"])).cells(root=tmp_path)


def test_subjects_are_taken_by_the_sets_that_have_them():
    mapping = experiment(datasets=["mamem-ssvep-ii", "bci-ern"], subjects=[1, 2], seeds=1)
    assert {(c.run.dataset, c.run.subject) for c in cells(mapping)} == {
        ("simulated-ssvep", 1),
        ("simulated-ssvep", 2),
        ("simulated-ern", 2),
    }
    with pytest.raises(ParameterError, match="99 is in none of the data sets"):
        cells(experiment(subjects=[1, 99]))


def test_sets_that_have_none_of_the_subjects_are_left_out_and_it_is_said(tmp_path):
    plain = from_mapping(experiment(datasets=["mamem-ssvep-ii", "bci-ern"], seeds=1))
    assert {c.run.dataset for c in plain.cells(subjects=[1], root=tmp_path)} == {"simulated-ssvep"}
    said = [str(source) for source in plain.sources(tmp_path, subjects=[1]).values()]
    assert said[1].startswith("bci-ern by simulated-ern: left out; simulated-ern has none of 1, it has 2, 6, 7")
    mapping = {"datasets": ["mamem-ssvep-ii", "bcic-iv-2a"], "subjects": [11]}
    assert {c.run.dataset for c in plain.cells(**mapping, root=tmp_path)} == {"simulated-ssvep"}
    assert "left out; bcic-iv-2a has none of 11, it has 1, 2" in str(plain.sources(tmp_path, **mapping)["bcic-iv-2a"])
    with pytest.raises(ParameterError, match="subjects: simulated-ern has none of 1, it has 2, 6, 7"):
        plain.cells(datasets=["bci-ern"], subjects=[1], root=tmp_path)


def test_sets_may_be_abbreviated_and_are_named_in_full():
    assert from_mapping(experiment(datasets=["mamem"])).datasets == ("mamem-ssvep-ii",)


@pytest.mark.parametrize(
    "options, recorded",
    [({}, {"variant": "original"}), ({"variant": "original"}, {"variant": "original"}), ({"variant": "linear"}, {})],
)
def test_results_of_gdlnet_without_a_variant_are_of_the_linear_one(options, recorded):
    """They were there before the option was, and so were their keys."""
    models = [{"label": "G", "model": "gdlnet", "options": options}]
    (found,) = cells(experiment(models=models, subjects=[4], seeds=[7]))
    assert found.run.options == recorded


def test_what_is_registered_and_what_is_given_are_one_run():
    (plain,) = cells(experiment(models=[{"label": "M", "model": "matt"}], subjects=[4], seeds=[7]))
    settings = {"lr": 0.005, "batch_size": 64, "max_epochs": 180, "weight_decay": 0.1}
    (given,) = cells(
        experiment(models=[{"label": "M", "model": "matt", "training": settings}], subjects=[4], seeds=[7])
    )
    assert plain.run.key == given.run.key
    (other,) = cells(
        experiment(models=[{"label": "M", "model": "matt"}], training={"lr": 1e-3}, subjects=[4], seeds=[7])
    )
    assert other.run.key != given.run.key
    assert changes(plain.run) == {}
    assert changes(other.run) == {"lr": 1e-3}
