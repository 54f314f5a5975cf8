"""The experiments that come with gbwatt: each is complete, can be run, and has all lines of its table in the paper."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gbwatt.data import DATASETS
from gbwatt.decoding.paradigms import PARADIGMS
from gbwatt.experiments.config import PACKAGED, Experiment, read_experiment
from gbwatt.experiments.grid import original
from gbwatt.experiments.paper import TABLES
from gbwatt.experiments.runs import paradigm_of
from gbwatt.models import create
from gbwatt.models.registry import entry
from gbwatt.models.signal import Signal

FOLDER = PACKAGED
SIGNALS = {
    "mamem-ssvep-ii": {"n_chans": 8, "n_outputs": 5, "n_times": 125, "sfreq": 125.0},
    "bci-iv-2b": {"n_chans": 3, "n_outputs": 2, "n_times": 250, "sfreq": 125.0},
    "p300-br41n": {"n_chans": 8, "n_outputs": 2, "n_times": 100, "sfreq": 125.0},
    "bi2012": {"n_chans": 16, "n_outputs": 2, "n_times": 100, "sfreq": 125.0},
    "physionet-lr": {"n_chans": 22, "n_outputs": 2, "n_times": 438, "sfreq": 125.0},
    "physionet-mi": {"n_chans": 22, "n_outputs": 4, "n_times": 438, "sfreq": 125.0},
}
FILES = sorted(FOLDER.glob("*.yaml"))
#: Comparisons of decoders, on real recordings only; they are not in the paper.
DECODERS = {
    "ablations",
    "ablations_imagery",
    "decoders",
    "decoders_imagery",
    "transfer_imagery",
    "transfer_ssvep",
    "unseen_subjects",
}
NOT_IN_PAPER = {"recipes", "regularisation", *DECODERS}
NOT_SIMULATED = {"clinical", *DECODERS}
NAMES = {
    "clinical",
    *DECODERS,
    "design",
    "limited",
    "main",
    "modules",
    "noise",
    "noise_both",
    "recipes",
    "regularisation",
    "theta",
    "time",
}


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def experiment(request) -> Experiment:
    return read_experiment(request.param)


@pytest.fixture(params=[file for file in FILES if file.stem not in NOT_SIMULATED], ids=lambda file: file.stem)
def of_tasks(request) -> Experiment:
    """One on the three sets of epochs, which have simulated counterparts."""
    return read_experiment(request.param)


def variants(experiment: Experiment):
    """Label, setting, and options of all that is compared."""
    return [
        (row, setting, options) for row in experiment.models for setting, options, _ in experiment.variants(row.options)
    ]


def test_every_table_has_a_file():
    assert {file.stem for file in FILES} == NAMES
    assert len(FILES) == len(list(FOLDER.iterdir()))


def test_a_file_has_the_name_of_its_experiment(experiment):
    assert (FOLDER / f"{experiment.name}.yaml").is_file()
    assert len({read_experiment(file).name for file in FILES}) == len(FILES)


def test_the_grid_on_simulated_recordings_is_complete(of_tasks):
    experiment = of_tasks
    labelled_runs = experiment.labelled_runs(simulated="always", seeds=2)
    per_line = {(row.label, setting): 0 for row, setting, _ in variants(experiment)}
    for labelled in labelled_runs:
        per_line[labelled.label, labelled.setting] += 1
    subjects = sum(len(source.subjects) for source in experiment.recordings(simulated="always").values())
    assert set(per_line.values()) == {2 * subjects}
    keys = [(labelled.label, labelled.setting, labelled.run.key) for labelled in labelled_runs]
    assert len(set(keys)) == len(keys) > 0
    assert all(labelled.run.dataset.startswith("simulated-") for labelled in labelled_runs)


def test_every_model_is_known_and_those_that_are_ours_can_be_built(of_tasks):
    experiment = of_tasks
    tasks = {labelled.run.dataset: labelled.run.dataset.removeprefix("simulated-") for labelled in _small(experiment)}
    built = 0
    for row, _, options in variants(experiment):
        if entry(row.model).extra is not None:
            assert options == {}, "options of another library's model are not checked without it"
            continue
        for task in tasks.values():
            create(row.model, task=task, **options)
            built += 1
    assert built >= len(tasks)


@pytest.mark.parametrize("name", ["decoders", "decoders_imagery"])
def test_decoders_are_compared_with_the_settings_of_the_paradigm(name):
    experiment = read_experiment(FOLDER / f"{name}.yaml")
    first, *others = experiment.models
    assert first.label == experiment.reference
    assert first.training.given() == {"paradigm": "dataset", "merge_validation": True}
    assert {row.model for row in others} >= {"tangent-space", "mdm", "csp", "fbcsp", "matt", "spdnet", "eegnet"}
    for row in experiment.models:
        for dataset in row.datasets or experiment.datasets:
            assert paradigm_of(dataset) in PARADIGMS
            if entry(row.model).extra is None:
                create(row.model, **SIGNALS[dataset], **row.options)


@pytest.mark.parametrize("name", ["transfer_imagery", "transfer_ssvep"])
def test_sources_are_no_test_subjects_unless_their_test_trials_are_left_out(name):
    experiment = read_experiment(FOLDER / f"{name}.yaml")
    with_sources = [row for row in experiment.models if row.training.sources is not None]
    assert {row.model for row in with_sources} > {"gbwatt"}  # pipelines may use the same subjects
    assert len({row.training.sources for row in with_sources}) == 1
    sources = set(with_sources[0].training.sources)
    tested = set(DATASETS["mamem-ssvep-ii"].subjects if experiment.subjects == "all" else experiment.subjects)
    assert sources == tested or not sources & tested


def test_unseen_subjects_are_compared_on_the_same_test_trials():
    experiment = read_experiment(FOLDER / "unseen_subjects.yaml")
    *others, tuned, alone = experiment.models
    assert others[0].label == experiment.reference
    given = [row.training.given() for row in others]
    assert all(one["sources"] == "others" and one["own_trials"] == "unlabelled" for one in given)
    assert [one.get("alignment") for one in given] == [None, "euclidean", "riemannian", None, "euclidean", "euclidean"]
    assert [row.options.get("domain_norm") for row in others] == [None] * 3 + ["affine-invariant"] + [None] * 2
    assert (tuned.training.sources, tuned.training.own_trials) == ("others", None)
    assert alone.training.sources is None
    assert not experiment.own_protocol, "all lines are tested by the protocol of the data set"
    pipelines = [row for row in others if row.datasets is not None]
    assert sorted(name for row in pipelines for name in row.datasets) == sorted(experiment.datasets)
    assert all(entry(row.model).classical for row in pipelines)
    imagery = read_experiment(FOLDER / "decoders_imagery.yaml")
    assert experiment.subjects == {"mamem-ssvep-ii": "all", "physionet-lr": imagery.subjects}


@pytest.mark.parametrize("name", ["ablations", "ablations_imagery"])
def test_an_ablation_changes_one_setting_of_the_paradigm(name):
    experiment = read_experiment(FOLDER / f"{name}.yaml")
    usual, *others = experiment.models
    assert usual.label == experiment.reference
    assert not usual.options
    shared = experiment.training.given()
    for row in others:
        changed = row.options.keys() - {"k"}  # k follows from the others
        assert changed == {"n_spatial", "n_temporal"} or len(changed) + len(row.training.given()) == 1
        assert {**shared, **row.training.given()} != shared or row.options
        for dataset in row.datasets or experiment.datasets:
            signal = Signal(**SIGNALS[dataset])
            rule = PARADIGMS[paradigm_of(dataset)].settings("", signal, "")
            assert all(rule.options.get(option) != value for option, value in row.options.items())
            create("gbwatt", **SIGNALS[dataset], **{**rule.options, **row.options})


def _small(experiment: Experiment):
    return experiment.labelled_runs(simulated="always", seeds=1)


def test_every_number_of_the_paper_has_its_line(experiment):
    if experiment.paper is None:
        assert experiment.name in NOT_IN_PAPER
        return
    table = TABLES[experiment.paper]
    sets = {original(name) for name in experiment.datasets}
    found = [
        table.number(row.label, dataset, setting)
        for row, setting, _ in variants(experiment)
        for dataset in sets
        if table.number(row.label, dataset, setting) is not None
    ]
    assert len(found) == len(table.lines) * len(table.columns)
    assert {column.dataset for column in table.columns} <= sets


def test_the_recipe_is_said_wherever_ours_is_compared_with_the_papers(of_tasks):
    experiment = of_tasks
    labels = {row.label for row in experiment.models}
    assert "GBWAtt, best" in labels or experiment.name == "regularisation"
    for row in experiment.models:
        assert (row.options.get("recipe") == "best") == row.label.endswith(", best")


def test_clinical_lines_are_two_backbones_with_three_heads_and_published_weights():
    experiment = read_experiment(FOLDER / "clinical.yaml")
    assert experiment.datasets == ("tuev", "tuab")
    found = [(row.model, row.options["head"]) for row in experiment.models]
    assert found == [(backbone, head) for backbone in ("biot", "labram") for head in ("base", "matt", "gbwatt")]
    assert {row.options["weights"] for row in experiment.models if row.model == "labram"} == {"labram-base.pth"}
    assert "random" not in {row.options["weights"] for row in experiment.models}


def test_the_network_of_the_paper_is_one_run_in_all_tables():
    lines = {
        "main": ("GBWAtt (θ = 1.5)", ""),
        "modules": ("SFEM + GBW-SSAM", ""),
        "design": ("Metric: GBWM", ""),
        "theta": ("GBWAtt", "θ = 1.5"),
        "limited": ("GBWAtt (θ = 1.5)", "100%"),
        "noise": ("GBWAtt (θ = 1.5)", "σ² = 0.0"),
        "noise_both": ("GBWAtt (θ = 1.5)", "σ² = 0.0"),
        "regularisation": ("GBWAtt (θ = 1.5), Fréchet mean", "ρ = 0"),
    }
    assert len({key_of(name, *line) for name, line in lines.items()}) == 1


@pytest.mark.parametrize(
    ("label", "place", "other"),
    [
        ("GBWAtt, best", ("main", ""), ("theta", "θ = 1.5")),
        ("MAtt", ("main", ""), ("regularisation", "ρ = 0")),
        ("SPDNet", ("main", ""), ("regularisation", "ρ = 0")),
    ],
)
def test_defaults_written_out_or_not_are_one_run(label, place, other):
    assert key_of(place[0], label, place[1]) == key_of(other[0], label, other[1])


def key_of(name, label, setting):
    labelled_runs = read_experiment(FOLDER / f"{name}.yaml").labelled_runs(
        datasets=["mamem-ssvep-ii"], subjects=[1], seeds=1, simulated="always"
    )
    (key,) = {labelled.run.key for labelled in labelled_runs if (labelled.label, labelled.setting) == (label, setting)}
    return key


@pytest.mark.slow
def test_a_build_of_the_package_has_the_experiments(tmp_path):
    root = Path(__file__).parents[2]
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    built = {file.stem: file.read_bytes() for file in (tmp_path / "gbwatt/experiments/configs").iterdir()}
    assert built == {file.stem: file.read_bytes() for file in FILES}
