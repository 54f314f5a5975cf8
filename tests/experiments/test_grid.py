"""From an experiment to its runs: what is in the grid, and which recordings are taken."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gbwatt.data import DATASETS, MissingFileError
from gbwatt.data.loading import fingerprint
from gbwatt.decoding.paradigms import PARADIGMS
from gbwatt.errors import ParameterError
from gbwatt.experiments.config import experiment_from_dict
from gbwatt.experiments.grid import match_runs
from gbwatt.experiments.runs import Row, training_changes
from gbwatt.experiments.tables import make_tables
from tests.experiments.small import experiment, labelled_runs, one

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
    found = labelled_runs(experiment())
    assert [(labelled.label, labelled.run.subject, labelled.run.seed) for labelled in found] == [
        (label, subject, seed) for seed in (0, 1) for label in ("MAtt", "GBWAtt") for subject in (1, 2)
    ]
    assert len({labelled.run.key for labelled in found}) == len(found) == 8


def test_a_run_has_all_that_its_experiment_says():
    row = {"label": "GBWAtt", "model": "gbwatt", "options": {"theta": 2.0}, "training": {"lr": 1e-2}}
    (labelled,) = labelled_runs(experiment(models=[row], training={"lr": 1, "max_epochs": 3}, subjects=[4], seeds=[7]))
    assert labelled.setting == ""
    assert labelled.run.to_dict() == {
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
    found = labelled_runs(experiment(datasets=["bcic-iv-2a", "bci-ern"], subjects="all", seeds=1))
    by_set = {name: {labelled.run.subject for labelled in found if labelled.run.dataset == name} for name in DATASETS}
    assert by_set["simulated-mi"] == set(range(1, 10))
    assert by_set["simulated-ern"] == set(DATASETS["bci-ern"].subjects)


def test_a_set_with_several_splits_has_a_run_for_each(tmp_path, monkeypatch):
    monkeypatch.setattr("gbwatt.experiments.grid.count_splits", lambda *_: 3)
    assert [
        labelled.run.split for labelled in labelled_runs(experiment(subjects=[1], seeds=1, models=one()["models"]))
    ] == [0, 1, 2]


def test_a_model_may_be_for_some_sets_only():
    rows = [
        {"label": "MAtt", "model": "matt"},
        {"label": "SPDNet", "model": "spdnet", "datasets": ["mamem-ssvep-ii"]},
    ]
    mapping = experiment(datasets=["bcic-iv-2a", "mamem-ssvep-ii"], models=rows, seeds=1, subjects=[1])
    pairs = {(labelled.label, labelled.run.dataset) for labelled in labelled_runs(mapping)}
    assert pairs == {("MAtt", "simulated-mi"), ("MAtt", "simulated-ssvep"), ("SPDNet", "simulated-ssvep")}
    assert labelled_runs(mapping, datasets=["simulated-ssvep"])[-1].label == "SPDNet", "the original is meant, too"


def test_an_experiment_without_a_model_for_a_set_says_so():
    rows = [{"label": "SPDNet", "model": "spdnet", "datasets": ["mamem-ssvep-ii"]}]
    with pytest.raises(ParameterError, match="no model for these data sets"):
        labelled_runs(experiment(datasets=["bcic-iv-2a", "mamem-ssvep-ii"], models=rows), datasets=["bcic-iv-2a"])


LIMITED = [
    {"label": "MAtt", "model": "matt"},
    {"label": "SPDNet", "model": "spdnet", "seeds": 2},
    {"label": "Tangent space", "model": "tangent-space"},
]


def test_a_model_has_at_most_its_own_number_of_seeds_and_a_classical_pipeline_has_one():
    found = labelled_runs(experiment(models=LIMITED, subjects=[1]), seeds=[4, 5, 6])
    seeds = {label: [one.run.seed for one in found if one.label == label] for label in ("MAtt", "SPDNet")}
    assert seeds == {"MAtt": [4, 5, 6], "SPDNet": [4, 5]}
    assert [one.run.seed for one in found if one.label == "Tangent space"] == [4]


def test_rows_of_further_seeds_do_not_make_runs_of_a_limited_model_missing():
    limited = experiment_from_dict(experiment(models=LIMITED, subjects=[1]))
    runs = limited.labelled_runs(seeds=3)
    rows = [Row(run.key, "done", run.to_dict()) for _, _, run in runs]
    assert sorted(match_runs(limited, rows), key=str) == sorted(runs, key=str)


def test_arguments_replace_what_the_file_says():
    found = labelled_runs(experiment(), datasets=["bcic-iv-2a"], subjects=[3], seeds=[5, 6])
    assert {(labelled.run.dataset, labelled.run.subject, labelled.run.seed) for labelled in found} == {
        ("simulated-mi", 3, 5),
        ("simulated-mi", 3, 6),
    }
    assert {labelled.run.seed for labelled in labelled_runs(experiment(), seeds=3)} == {0, 1, 2}
    assert len({labelled.run.subject for labelled in labelled_runs(experiment(), subjects="all")}) == 11


@pytest.mark.parametrize(
    "axis, values, field",
    [("fraction", [0.5, 1], "fraction"), ("noise", [0, 0.2], "noise"), ("options.theta", [1, 2], "options")],
)
def test_what_is_varied_is_all_that_differs(axis, values, field):
    found = labelled_runs(
        one(options={"theta": 1.5}) | {"vary": {"axis": axis, "values": values}, "seeds": 1, "subjects": [1]}
    )
    first, second = (labelled.run.to_dict() for labelled in found)
    assert {name for name in first if first[name] != second[name]} == {field}
    assert [labelled.setting for labelled in found] == [str(float(v)) if field != "options" else str(v) for v in values]


def test_settings_are_shown_in_the_format_that_is_given():
    vary = {"axis": "fraction", "values": [0.5, 1], "label": "{:.0%}"}
    assert list(dict.fromkeys(labelled.setting for labelled in labelled_runs(experiment(vary=vary)))) == ["50%", "100%"]


def test_noise_is_in_training_only_where_it_is_asked_for():
    for where, expected in (("test", [False, False]), ("both", [False, True])):
        vary = {"axis": "noise", "values": [0, 0.2], "where": where}
        found = labelled_runs(experiment(vary=vary, seeds=1, subjects=[1], models=one()["models"]))
        assert [labelled.run.noisy_training for labelled in found] == expected, "no noise is the same run in both"


def test_no_change_along_an_axis_is_the_run_without_it():
    plain = {labelled.run.key for labelled in labelled_runs(experiment())}
    for vary in ({"axis": "fraction", "values": [1]}, {"axis": "noise", "values": [0], "where": "both"}):
        assert {labelled.run.key for labelled in labelled_runs(experiment(vary=vary))} == plain


@pytest.mark.parametrize("one_way, other_way", [(1, 1.0), ([1, 2.0], [1.0, 2])])
def test_a_number_is_the_same_run_however_it_is_written(one_way, other_way):
    vary = [{"axis": "options.theta", "values": list(v) if isinstance(v, list) else [v]} for v in (one_way, other_way)]
    first, second = (labelled_runs(one() | {"vary": v}) for v in vary)
    assert [labelled.run.key for labelled in first] == [labelled.run.key for labelled in second]
    assert [labelled.setting for labelled in first] == [labelled.setting for labelled in second]


# ---------------------------------------------------------------------------------------------------------- recordings


def test_real_recordings_are_taken_where_they_are_and_what_is_missing_is_said(recordings):
    source = experiment_from_dict(experiment(subjects="all")).recordings(recordings)["mamem-ssvep-ii"]
    assert (source.dataset, source.simulated, source.subjects) == ("mamem-ssvep-ii", False, (2, 5))
    assert source.missing == (1, 3, 4, 6, 7, 8, 9, 10, 11)
    assert "no files of subjects 1, 3, 4" in str(source)


def test_simulated_recordings_stand_in_for_missing_ones_and_it_is_said(recordings):
    mapping = experiment(datasets=["bcic-iv-2a", "mamem-ssvep-ii"], subjects="all")
    sources = experiment_from_dict(mapping).recordings(recordings)
    assert [(s.dataset, s.simulated) for s in sources.values()] == [("simulated-mi", True), ("mamem-ssvep-ii", False)]
    said = str(sources["bcic-iv-2a"])
    assert "bcic-iv-2a as simulated-mi" in said
    assert f"none of its files are in {recordings}" in said


def test_runs_on_files_have_the_fingerprint_of_these_files(recordings):
    found = labelled_runs(experiment(subjects="all", seeds=1), simulated="auto", root=recordings)
    data = {labelled.run.subject: labelled.run.data for labelled in found}
    assert data == {2: fingerprint("mamem-ssvep-ii", 2, recordings), 5: fingerprint("mamem-ssvep-ii", 5, recordings)}
    assert data[2] != data[5]


def test_always_is_simulated_even_where_there_are_files(recordings):
    source = experiment_from_dict(experiment(simulated="always")).recordings(recordings)["mamem-ssvep-ii"]
    assert (source.dataset, source.subjects, source.reason) == ("simulated-ssvep", (1, 2), "simulated, as requested")


def test_never_names_all_sets_and_subjects_without_files(recordings):
    mapping = experiment(datasets=["bcic-iv-2a", "mamem-ssvep-ii", "bci-ern"], subjects="all", simulated="never")
    with pytest.raises(MissingFileError) as caught:
        experiment_from_dict(mapping).labelled_runs(root=recordings)
    text = str(caught.value)
    assert "bcic-iv-2a, all of subjects 1, 2, 3, 4, 5, 6, 7, 8, 9" in text
    assert "bci-ern, all of subjects 2, 6, 7, 11" in text
    assert "mamem" not in text, "two of its subjects are there"
    assert "GBWATT_DATA" in text
    assert "simulated='auto'" in text


def test_a_set_without_a_simulated_one_says_so(tmp_path):
    mapping = experiment(datasets=["physionet-mi"])
    with pytest.raises(ParameterError, match="'physionet-mi' has no simulated counterpart"):
        labelled_runs(mapping)
    with pytest.raises(MissingFileError, match="physionet-mi, all of subjects 1, 2"):
        experiment_from_dict(mapping).labelled_runs(root=tmp_path)


def test_a_set_and_its_stand_in_are_not_both_run(tmp_path):
    with pytest.raises(ParameterError, match="'mamem-ssvep-ii' and 'simulated-ssvep' would both"):
        experiment_from_dict(experiment(datasets=["mamem-ssvep-ii", "simulated-ssvep"])).labelled_runs(root=tmp_path)


def test_subjects_are_taken_by_the_sets_that_have_them():
    mapping = experiment(datasets=["mamem-ssvep-ii", "bci-ern"], subjects=[1, 2], seeds=1)
    assert {(c.run.dataset, c.run.subject) for c in labelled_runs(mapping)} == {
        ("simulated-ssvep", 1),
        ("simulated-ssvep", 2),
        ("simulated-ern", 2),
    }
    with pytest.raises(ParameterError, match="99 is in none of the data sets"):
        labelled_runs(experiment(subjects=[1, 99]))


def test_sets_that_have_none_of_the_subjects_are_left_out_and_it_is_said(tmp_path):
    plain = experiment_from_dict(experiment(datasets=["mamem-ssvep-ii", "bci-ern"], seeds=1))
    assert {c.run.dataset for c in plain.labelled_runs(subjects=[1], root=tmp_path)} == {"simulated-ssvep"}
    said = [str(source) for source in plain.recordings(tmp_path, subjects=[1]).values()]
    assert said[1].startswith("bci-ern as simulated-ern: skipped; simulated-ern has none of 1, it has 2, 6, 7")
    mapping = {"datasets": ["mamem-ssvep-ii", "bcic-iv-2a"], "subjects": [11]}
    assert {c.run.dataset for c in plain.labelled_runs(**mapping, root=tmp_path)} == {"simulated-ssvep"}
    assert "skipped; bcic-iv-2a has none of 11, it has 1, 2" in str(plain.recordings(tmp_path, **mapping)["bcic-iv-2a"])
    with pytest.raises(ParameterError, match="subjects: simulated-ern has none of 1, it has 2, 6, 7"):
        plain.labelled_runs(datasets=["bci-ern"], subjects=[1], root=tmp_path)


def test_sets_may_be_abbreviated_and_are_named_in_full():
    assert experiment_from_dict(experiment(datasets=["mamem"])).datasets == ("mamem-ssvep-ii",)


@pytest.mark.parametrize(
    "options, recorded",
    [({}, {"variant": "original"}), ({"variant": "original"}, {"variant": "original"}), ({"variant": "linear"}, {})],
)
def test_results_of_gdlnet_without_a_variant_are_of_the_linear_one(options, recorded):
    """They were there before the option was, and so were their keys."""
    models = [{"label": "G", "model": "gdlnet", "options": options}]
    (found,) = labelled_runs(experiment(models=models, subjects=[4], seeds=[7]))
    assert found.run.options == recorded


def test_what_is_registered_and_what_is_given_are_one_run():
    (plain,) = labelled_runs(experiment(models=[{"label": "M", "model": "matt"}], subjects=[4], seeds=[7]))
    settings = {"lr": 0.005, "batch_size": 64, "max_epochs": 180, "weight_decay": 0.1}
    (given,) = labelled_runs(
        experiment(models=[{"label": "M", "model": "matt", "training": settings}], subjects=[4], seeds=[7])
    )
    assert plain.run.key == given.run.key
    (other,) = labelled_runs(
        experiment(models=[{"label": "M", "model": "matt"}], training={"lr": 1e-3}, subjects=[4], seeds=[7])
    )
    assert other.run.key != given.run.key
    assert training_changes(plain.run) == {}
    assert training_changes(other.run) == {"lr": 1e-3}


# ----------------------------------------------------------------------------------------------------- runs from rows

TWO_LINES = {
    "name": "small",
    "title": "Small",
    "datasets": ["simulated-ssvep"],
    "subjects": [1, 2],
    "seeds": 2,
    "models": [
        {"label": "one", "model": "gbwatt", "options": {"theta": 1, "recipe": "paper"}},
        {"label": "two", "model": "matt"},
    ],
}


def test_runs_of_rows_are_those_of_the_experiment_without_looking_for_recordings():
    experiment = experiment_from_dict(TWO_LINES)
    labelled_runs = experiment.labelled_runs()
    rows = [Row(one.run.key, "done", one.run.to_dict(), accuracy=0.5) for one in labelled_runs]
    assert sorted(match_runs(experiment, rows), key=str) == sorted(labelled_runs, key=str)


def test_what_a_line_lacks_of_what_others_have_is_missing():
    experiment = experiment_from_dict(TWO_LINES)
    rows = [Row(c.run.key, "done", c.run.to_dict()) for c in experiment.labelled_runs() if c.label == "one"]
    found = match_runs(experiment, rows)
    have = {row.key for row in rows}
    assert [one.label for one in found if one.run.key not in have] == ["two"] * 4


def test_rows_of_other_experiments_and_data_sets_are_not_its_runs():
    experiment = experiment_from_dict(TWO_LINES)
    other = experiment_from_dict({**TWO_LINES, "training": {"max_epochs": 3}})
    rows = [Row(one.run.key, "done", one.run.to_dict()) for one in other.labelled_runs()]
    assert match_runs(experiment, rows) == []
    own = [Row(one.run.key, "done", one.run.to_dict()) for one in experiment.labelled_runs()]
    assert match_runs(experiment, own, ["mamem-ssvep-ii"]) == []


def test_rows_of_subjects_that_the_experiment_leaves_out_are_not_its_runs():
    """Development subjects of another experiment have the same runs otherwise."""
    experiment = experiment_from_dict(TWO_LINES)
    rows = [Row(one.run.key, "done", one.run.to_dict()) for one in experiment.labelled_runs()]
    (some, *others) = sorted({one.run.subject for one in experiment.labelled_runs()})
    assert others
    fewer = match_runs(experiment_from_dict({**TWO_LINES, "subjects": [some]}), rows)
    assert {one.run.subject for one in fewer} == {some}


def test_runs_with_weights_of_other_subjects_have_the_recordings_of_all_in_their_key():
    """Rows that were read from a file match them, although lists have become tuples and back."""
    training = {"paradigm": "ssvep", "sources": [1, 2], "pretraining_epochs": 3}
    (first, *_) = labelled_runs(one(training=training))
    (other, *_) = labelled_runs(one(training={**training, "sources": [1, 2, 3]}))
    assert first.run.data.partition("+")[0] == other.run.data.partition("+")[0]
    assert first.run.data != other.run.data
    assert first.run.training["max_epochs"] == 20
    row = Row(first.run.key, "done", json.loads(json.dumps(first.run.to_dict())), accuracy=0.5)
    (matched, *_) = match_runs(experiment_from_dict(one(training=training)), [row])
    assert matched.run.key == first.run.key


@pytest.mark.parametrize("wrong", [3, [], ["1"], [1, 1]])
def test_sources_are_a_list_of_subjects(wrong):
    with pytest.raises(ParameterError, match="sources"):
        experiment_from_dict(one(training={"sources": wrong}))


# ---- all other subjects


UNSEEN = {"paradigm": "ssvep", "sources": "others", "own_trials": "unlabelled", "max_epochs": 3}


def _others(subjects, **training):
    return one(training={**UNSEEN, **training}) | {"subjects": subjects, "seeds": 1}


def _rows(labelled):
    return [Row(one.run.key, "done", json.loads(json.dumps(one.run.to_dict())), accuracy=0.5) for one in labelled]


def test_others_are_the_other_subjects_of_the_experiment(recordings):
    found = labelled_runs(_others([1, 2, 3]))
    assert [(one.run.subject, one.run.training["sources"]) for one in found] == [(1, [2, 3]), (2, [1, 3]), (3, [1, 2])]
    (selected,) = labelled_runs(_others([1, 2, 3]), subjects=[2])
    assert selected in found, "a selection of subjects selects runs and changes none"
    assert [len(one.run.training["sources"]) for one in labelled_runs(_others("all"))] == [10] * 11


def test_others_are_those_whose_files_exist(recordings):
    found = labelled_runs(_others("all"), simulated="auto", root=recordings)
    assert [(one.run.subject, one.run.training["sources"]) for one in found] == [(2, [5]), (5, [2])]
    (alone, *_) = labelled_runs(_others("all"), simulated="auto", root=recordings, subjects=[5])
    assert alone == found[1]
    own = fingerprint("mamem-ssvep-ii", 2, recordings)
    assert found[0].run.data.startswith(f"{own}+")
    (recordings / "mamem" / "U005.mat").write_bytes(b"changed")
    (changed, *_) = labelled_runs(_others("all"), simulated="auto", root=recordings)
    assert changed.run.data.startswith(f"{own}+")
    assert changed.run.key != found[0].run.key, "the recordings of the sources are in the key"
    (recordings / "mamem" / "U007.mat").write_bytes(b"new")
    (more, *_) = labelled_runs(_others("all"), simulated="auto", root=recordings)
    assert more.run.training["sources"] == [5, 7]


def test_without_any_other_subject_there_is_an_error(recordings):
    with pytest.raises(ParameterError, match=r"simulated-ssvep has no other subject with files than 4 .* 'GBWAtt'"):
        labelled_runs(_others([4]))
    with pytest.raises(ParameterError, match="no other subject with files than 5"):
        labelled_runs(_others([5, 6]), simulated="auto", root=recordings)
    with pytest.raises(ParameterError, match="no other subject with files than 1"):
        labelled_runs(_others([1, 2], sources=[1]))


def test_a_subject_is_not_its_own_source_unless_its_labels_are_used():
    unlabelled, labelled = (
        [one.run.training["sources"] for one in labelled_runs(_others([1, 4], sources=[1, 2, 3], own_trials=own))]
        for own in ("unlabelled", "labelled")
    )
    assert unlabelled == [[2, 3], [1, 2, 3]]
    assert labelled == [[1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize("revised", ["mi", "ssvep", "erp"])
def test_a_run_with_any_paradigm_is_new_when_the_settings_of_one_are_revised(revised, monkeypatch):
    before, after = [], []
    for found in (before, after):
        (first, *_) = labelled_runs(one(training={"paradigm": "auto"}))
        found.append(first.run.key)
        newer = replace(PARADIGMS[revised], revision=PARADIGMS[revised].revision + 1)
        monkeypatch.setattr("gbwatt.decoding.paradigms.PARADIGMS", {**PARADIGMS, revised: newer})
    assert before != after


def test_a_network_for_unseen_subjects_is_trained_as_usual_and_not_fine_tuned():
    (unseen, *_), (tuned, *_), (alone, *_) = (
        labelled_runs(one(training={"paradigm": "ssvep", **settings}))
        for settings in ({"sources": "others", "own_trials": "unlabelled"}, {"sources": "others"}, {})
    )
    given = ("lr", "batch_size", "max_epochs", "weight_decay")
    assert [unseen.run.training[name] for name in given] == [alone.run.training[name] for name in given]
    assert [tuned.run.training[name] for name in given] == [2e-4, 64, 20, 1e-2]
    (explicit, *_) = labelled_runs(one(training={"paradigm": "ssvep", "sources": "others", "own_trials": "labelled"}))
    assert explicit == tuned, "labelled is the default"


def test_leave_one_subject_out_is_training_on_the_others_without_own_labels():
    settings = {"paradigm": "ssvep", "max_epochs": 3}
    protocol = {**one(training=settings), "protocol": "leave-one-subject-out"}
    assert labelled_runs(protocol) == labelled_runs(one(training={**UNSEEN}))
    (tuned, *_) = labelled_runs(
        {**one(training={**settings, "own_trials": "labelled"}), "protocol": protocol["protocol"]}
    )
    assert tuned.run.training["sources"] == [2]
    assert "own_trials" not in tuned.run.training
    (session, *_) = runs = labelled_runs({**one(), "protocol": "leave-one-session-out"}, seeds=1, subjects=[1])
    assert [labelled.run.split for labelled in runs] == [0, 1, 2, 3, 4]
    assert session.run.to_dict()["protocol"] == "leave-one-session-out"
    assert "protocol" not in tuned.run.to_dict()


def test_rows_of_other_sources_are_not_mixed_in_one_table():
    """Rows obtained with fewer files, or other subjects, are not used beside those with all."""
    mapping = _others([1, 2, 3])
    opened, found = experiment_from_dict(mapping), labelled_runs(mapping)
    fewer, more = labelled_runs(_others([1, 2])), labelled_runs(_others([1, 2, 3, 4]))
    assert match_runs(opened, _rows(found)) == found
    assert match_runs(opened, _rows(fewer)) == fewer
    assert match_runs(opened, _rows([*found[:1], *fewer])) == found[:1]
    assert match_runs(opened, _rows(more)) == []
    assert match_runs(opened, _rows([*found, *fewer, *more])) == found


def test_notes_of_a_table_name_the_other_subjects_once():
    mapping = _others([1, 2, 3])
    (table,) = make_tables(experiment_from_dict(mapping), _rows(labelled_runs(mapping)))
    trained = [note for note in table.notes if note.startswith("Trained with")]
    assert len(trained) == 1
    assert "sources = all others of [1, 2, 3]" in trained[0]


def test_subjects_can_differ_between_data_sets():
    mapping = experiment(datasets=["mamem-ssvep-ii", "bci-ern", "bcic-iv-2a"], seeds=1, models=one()["models"])
    found = labelled_runs({**mapping, "subjects": {"mamem": [1, 3], "bci-ern": [2]}})
    assert [one.run.subject for one in found if one.run.dataset == "simulated-ern"] == [2]
    assert [one.run.subject for one in found if one.run.dataset == "simulated-ssvep"] == [1, 3]
    assert {one.run.subject for one in found if one.run.dataset == "simulated-mi"} == set(range(1, 10))
    opened = experiment_from_dict({**mapping, "subjects": {"mamem": [1], "bci-ern": [2], "bcic-iv-2a": [4]}})
    assert {(one.run.dataset, one.run.subject) for one in match_runs(opened, _rows(found))} == {
        ("simulated-ssvep", 1),
        ("simulated-ern", 2),
        ("simulated-mi", 4),
    }
    with pytest.raises(ParameterError, match="subjects: 99 is in none of the data sets: bci-ern has"):
        labelled_runs({**mapping, "subjects": {"mamem": [1], "bci-ern": [99]}})


# ---- own recordings


def own(files, **changes):
    """Runs of an experiment on own recordings."""
    reading = {"classes": {"left": "T1", "right": "T2"}, "tmin": 0, "tmax": 1}
    mapping = {**one(), "datasets": [files], "subjects": "all", "seeds": 1, "reading": reading, **changes}
    return [labelled.run for labelled in labelled_runs(mapping, simulated="never")]


@pytest.fixture
def own_files(tmp_path):
    """Three files, which are only looked for here."""
    files = [tmp_path / f"{name}.edf" for name in "abc"]
    for file in files:
        file.write_bytes(b"")
    return [str(file) for file in files]


def test_several_files_are_the_subjects_of_one_data_set(own_files):
    found = own(own_files, protocol="leave-one-subject-out")
    assert [(run.subject, run.training["sources"]) for run in found] == [(1, [2, 3]), (2, [1, 3]), (3, [1, 2])]


def test_files_of_each_subject_are_a_mapping(own_files):
    a, b, c = own_files
    found = own({1: [a, b], 4: c})
    assert [run.subject for run in found] == [1, 4]
    assert {run.dataset for run in found} == {f"1={a} + 1={b} + 4={c}"}


def test_one_file_is_not_the_recording_of_several_subjects(own_files):
    """Otherwise the same trials would be those of training and of the test."""
    with pytest.raises(ParameterError, match=r"a\.edf is the recording of one subject, but 1, 2, 3 are requested"):
        own(own_files[0], subjects=[1, 2, 3], protocol="leave-one-subject-out")
    assert [run.subject for run in own(own_files[0], subjects=[7])] == [7]
