"""Experiments as files: what is said about wrong ones, and how values are changed."""

from __future__ import annotations

import math
import textwrap
import time

import pytest
import torch
import yaml

from gbwatt.errors import ParameterError
from gbwatt.experiments.config import ConfigurationError, experiment_from_dict, override, read_experiment
from gbwatt.experiments.yaml_io import show
from tests.experiments.small import experiment, one


@pytest.fixture
def write(tmp_path):
    def write_(text: str):
        file = tmp_path / "small.yaml"
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return file

    return write_


# -------------------------------------------------------------------------------------------------------------- errors


def vary(axis="options.theta", values=(1, 1.5), **how):
    """An experiment with one model, in which something is varied."""
    return {**one(), "vary": {"axis": axis, "values": list(values), **how}}


BAD = {
    "key": (experiment(sedes=3), "sedes: key='sedes' is not known;", "Did you mean 'seeds'?"),
    "missing key": ({k: v for k, v in experiment().items() if k != "datasets"}, "datasets: is missing."),
    "name": (experiment(name="Main table"), "name: name='Main table' must be lower-case letters"),
    "text": (experiment(title=3), "title: must be text, got 3."),
    "paper": (experiment(paper="mian"), "paper: paper_table='mian' is not known", "Did you mean 'main'?"),
    "data set": (experiment(datasets=["bci-em"]), "datasets[0]: dataset='bci-em' is not known", "'bci-ern'?"),
    "no data set": (experiment(datasets=[]), "datasets: datasets must not be empty."),
    "not a list": (experiment(datasets="mamem"), "datasets: must be a list, got 'mamem'."),
    "data set twice": (experiment(datasets=["mamem", "mamem-ssvep-ii"]), "datasets has 'mamem-ssvep-ii' twice."),
    "simulated": (experiment(simulated="allways"), "simulated='allways' is not known", "Did you mean 'always'?"),
    "subjects": (experiment(subjects=3), "subjects=3 must be 'all' or a list of numbers."),
    "subject": (experiment(subjects=[1, "2"]), "subjects[1]='2' must be a whole number, 0 or more."),
    "seeds": (experiment(seeds=0), "seeds=0 must be a whole number, 1 or more."),
    "seeds twice": (experiment(seeds=[0, 1, 0]), "seeds has 0 twice."),
    "negative seed": (experiment(seeds=[0, -1]), "seeds[1]=-1 must be a whole number, 0 or more."),
    "no seed": (experiment(seeds=[]), "seeds must not be empty."),
    "seeds of another kind": (experiment(seeds=True), "seeds=True must be a number of seeds or a list of seeds."),
    "no model": (experiment(models=[]), "models: models must not be empty."),
    "not a model": (experiment(models=["matt"]), "models[0]: must be a mapping, got 'matt'."),
    "model": (one(model="gbwat"), "models[0].model: model='gbwat' is not known", "Did you mean 'gbwatt'?"),
    "option": (one(options={"thta": 1}), "models[0].options.thta: model 'gbwatt': option='thta'", "mean 'theta'?"),
    "option of the signal": (
        one(options={"n_chans": 3}),
        "models[0].options.n_chans: model 'gbwatt': option='n_chans'",
    ),
    "value of an option": (one(options={"theta": 0}), "models[0].options.theta: theta=0 must be a finite number"),
    "name as an option": (one(options={"score": "gausian"}), "options.score: score='gausian'", "mean 'gaussian'?"),
    "size for a set": (one(options={"k": 16}), "models[0].options.k: k=16 must be between 1 and n=15"),
    "type of an option": (one(options={"eps": "small"}), "models[0].options: 'gbwatt' cannot be built with"),
    "part of an option": (one(model="mbeegse", options={"branches": [[1, 2]]}), "options.branches: branches[0]=(1, 2)"),
    "training key": (one(training={"epochs": 3}), "models[0].training.epochs: key='epochs'", "'max_epochs'?"),
    "rate": (experiment(training={"lr": 0}), "training.lr: must be greater than 0, got 0."),
    "rate as text": (experiment(training={"lr": "fast"}), "training.lr: must be a number, got 'fast'."),
    "batch": (
        experiment(training={"batch_size": 1}),
        "training.batch_size: must be greater than or equal to 2, got 1.",
    ),
    "half an epoch": (
        experiment(training={"max_epochs": 0.5}),
        "training.max_epochs: must be an integer, got 0.5.",
    ),
    "label twice": (
        experiment(models=[one()["models"][0]] * 2),
        "models[1].label: label='GBWAtt' is also used by models[0]",
    ),
    "other's set": (
        one(datasets=["bci-ern"]),
        "models[0].datasets[0]: dataset='bci-ern' is not a data set of the experiment",
    ),
    "axis": (experiment(vary={"axis": "nois", "values": [1]}), "vary.axis: axis='nois' is not known", "'noise'?"),
    "axis without a name": (
        experiment(vary={"axis": "options", "values": [1]}),
        "axis='options' must be",
        "options.theta",
    ),
    "axis of no model": (
        experiment(vary={"axis": "options.shrinkge", "values": [0]}),
        "vary.axis: model 'matt': option='shrinkge'",
        "Did you mean 'shrinkage'?",
    ),
    "varied value": (
        experiment(vary={"axis": "options.shrinkage", "values": [0, 1.5]}),
        "vary.values[1]: model 'matt': shrinkage=1.5 must be in [0, 1)",
    ),
    "fraction": (
        experiment(vary={"axis": "fraction", "values": [0.5, 1.5]}),
        "values[1]=1.5: fraction must be above 0",
    ),
    "noise": (experiment(vary={"axis": "noise", "values": [-1]}), "values[0]=-1: noise must be 0 or more."),
    "noise as text": (
        experiment(vary={"axis": "noise", "values": ["low"]}),
        "values[0]='low' must be a finite number.",
    ),
    "value twice": (experiment(vary={"axis": "noise", "values": [1, 1.0]}), "vary.values: values has 1.0 twice."),
    "format": (
        experiment(vary={"axis": "noise", "values": [1], "label": "{:d}"}),
        "vary.label: label='{:d}' cannot format",
    ),
    "format that hides": (
        experiment(vary={"axis": "noise", "values": [0.1, 0.2], "label": "{:.0f}"}),
        "label='{:.0f}' gives different values the same text: 0, 0.",
    ),
    "where": (
        experiment(vary={"axis": "fraction", "values": [1], "where": "both"}),
        "vary.where: where='both' is only allowed with axis: noise",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_an_error_says_where_and_what_is_allowed(kind):
    mapping, *parts = BAD[kind]
    with pytest.raises(ConfigurationError) as caught:
        experiment_from_dict(mapping)
    assert len({problem.path for problem in caught.value.problems}) == 1, "and nothing else is wrong"
    for part in parts:
        assert part in str(caught.value)


def test_all_errors_come_at_once_in_the_order_of_the_file(write):
    file = write(
        """\
        name: small
        title: A small one
        datasets: [mamem-ssvep-ii]
        seeds: -1
        models:
          - label: MAtt
            model: mat
          - {label: MAtt, model: gbwatt, options: {thta: 1, theta: 0, score: sum}}
          - label: SPDNet
            model: spdnet
            options:
              shrinkage: 2
            training: {lr: -1}
        simulatd: auto
        """
    )
    with pytest.raises(ConfigurationError) as caught:
        read_experiment(file)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{file} has 9 errors:"
    assert [line.split(": ")[0].strip() for line in lines[1:]] == [
        "seeds (line 4)",
        "models[0].model (line 7)",
        "models[1].label (line 8)",
        "models[1].options.thta (line 8)",
        "models[1].options.theta (line 8)",
        "models[1].options.score (line 8)",
        "models[2].options.shrinkage (line 12)",
        "models[2].training.lr (line 13)",
        "simulatd (line 14)",
    ]
    assert isinstance(caught.value, ParameterError)
    assert len(caught.value.problems) == 9


@pytest.mark.parametrize(
    "text, said",
    [
        ("name: a\ntitle: [b\n", "line 3, column 1: while parsing a flow sequence"),
        ("name: a\ntitle: b\nname: c\n", "line 3, column 1: the key 'name' is repeated; it is first in line 1."),
        (
            "models:\n  - {label: a, label: b}\n",
            "line 2, column 16: the key 'label' is repeated; it is first in line 2.",
        ),
        ("1: a\n", "line 1, column 1: the key '1' is not text."),
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("- name: a\n", "the file is a list"),
        ("a: &a [*a]\n", "must not contain itself"),
        ("a: !!python/object:os.system {}\n", "line 1, column 4"),
    ],
)
def test_a_file_that_is_no_document_says_where(write, text, said):
    with pytest.raises(ConfigurationError) as caught:
        read_experiment(write(text))
    assert said in str(caught.value)


def bomb(levels, width):
    """A few lines that stand for width ** levels values."""
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text, said",
    [
        pytest.param(bomb(12, 10), ["line 5", "more than 10000 values", "alias"], id="aliases"),
        pytest.param("a: &a {x: 1}\n" + "b: {<<: *a}\n" * 5_000, ["more than 10000 values"], id="values"),
        pytest.param("title: " + "[" * 5000, ["line 1", "nested more than"], id="lists in lists"),
        pytest.param("\n".join(" " * n + "a:" for n in range(400)), ["line 29", "nested more than"], id="deep keys"),
        pytest.param("a: " + "x" * 1_000_000, ["200000 bytes"], id="large file"),
        pytest.param("seeds: " + "9" * 5000, ["line 1, column 8", "digits"], id="digits"),
        pytest.param('title: "\\U00110000"', ["cannot be read"], id="no character"),
        pytest.param('title: "\\ud800"', ["line 1, column 8", "surrogate"], id="surrogate"),
        pytest.param("a: !!timestamp x", ["line 1, column 4", "tag"], id="time"),
        pytest.param("a: !!bool x", ["line 1, column 4", "tag"], id="bool"),
        pytest.param("a: !!int x", ["line 1, column 4", "tag"], id="int"),
        pytest.param("a: *b", ["line 1, column 4", "undefined alias"], id="unknown alias"),
    ],
)
def test_a_document_that_is_too_large_or_strange_is_refused_at_once(write, text, said):
    started = time.process_time()
    with pytest.raises(ConfigurationError) as caught:
        read_experiment(write(text))
    assert all(part in str(caught.value) for part in said), str(caught.value)
    assert len(str(caught.value)) < 2000
    assert time.process_time() - started < 2


def test_aliases_are_still_possible(write):
    file = write("""
        name: small
        title: &title A small one
        datasets: [simulated-ssvep]
        training: &training {max_epochs: 2}
        models:
          - {label: *title, model: spdnet, training: {<<: *training, lr: 1e-3}}
    """)
    assert read_experiment(file).models[0].label == "A small one"
    assert read_experiment(file).models[0].training.given() == {"lr": 0.001, "max_epochs": 2}


HOSTILE = {
    "wide label": (vary(label="{:4000000000}"), "vary.label", "more than 50"),
    "precise label": (vary(label="{:.4000000000f}"), "vary.label", "more than 50"),
    "label in a label": (vary(label="{:{}}"), "vary.label", "no names"),
    "label with attributes": (vary(label="{0.__class__}"), "vary.label", "no names"),
    "label with items": (vary(label="{0[a]}"), "vary.label", "no names"),
    "label that is no format": (vary(label="{"), "vary.label", "not a valid format"),
    "many seeds": (experiment(seeds=10**12), "seeds", "at most 10000"),
    "large seed": (experiment(seeds=[2**40]), "seeds", "at most 2147483647"),
    "many epochs": (experiment(training={"max_epochs": 10**15}), "training.max_epochs", "1000000"),
    "endless warm-up": (experiment(training={"warmup_epochs": math.inf}), "training.warmup_epochs", "finite"),
    "no rate": (experiment(training={"lr": math.nan}), "training.lr", "finite"),
    "many lines": (vary(values=[n / 10**6 for n in range(2000)]), "models", "at most 1000"),
    "huge noise": (vary(axis="noise", values=[10**400]), "", "too large"),
    "large network": (one(options={"n_spatial": 50_000, "n_temporal": 50_000}), "models[0].options", "parameters"),
    "long kernel": (one(options={"kernel": 50_000_000}), "models[0].options", "parameters"),
    "long label": (one(label="x" * 10_000), "models[0].label", "at most 500"),
    "long data set": (experiment(datasets=["x" * 5000 + ".edf"]), "datasets[0]", "x" * 20),
    "null in a data set": (experiment(datasets=["a\0.edf"]), "datasets[0]", "a\\x00"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_values_that_would_take_all_memory_or_time_are_refused_at_once(kind):
    mapping, place, said = HOSTILE[kind]
    started = time.process_time()
    with pytest.raises(ConfigurationError) as caught:
        experiment_from_dict(mapping)
    assert place in {show(problem.path) for problem in caught.value.problems}
    assert said in str(caught.value)
    assert len(str(caught.value)) < 20_000
    assert time.process_time() - started < 5


def test_a_grid_of_too_many_runs_is_refused_with_its_size():
    large = experiment_from_dict({**vary(values=[1, 1.5, 2]), "seeds": 10_000, "subjects": "all"})
    with pytest.raises(ConfigurationError, match=r"3 lines × 11 subjects and splits × 10000 seeds are 330000 runs"):
        large.labelled_runs(simulated="always")


def test_a_file_that_is_not_there_suggests_another(write):
    there = write("name: small")
    with pytest.raises(ConfigurationError, match="does not exist") as caught:
        read_experiment(there.with_name("smal.yaml"))
    assert f"Did you mean {str(there)!r}?" in str(caught.value)


def test_a_file_that_is_not_text_says_so(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        read_experiment(tmp_path / "a.yaml")


def test_numbers_and_words_are_what_they_look_like(write):
    file = write(
        """\
        name: small
        title: no
        datasets: [mamem-ssvep-ii]
        training: {lr: 1e-3}
        models:
          - &all {label: on, model: gbwatt, options: {theta: 15e-1}}
          - {<<: *all, label: 2020-01-01}
        """
    )
    found = read_experiment(file)
    assert (found.title, found.models[0].label, found.models[1].label) == ("no", "on", "2020-01-01")
    assert (found.training.lr, found.models[0].options, found.models[1].model) == (1e-3, {"theta": 1.5}, "gbwatt")


def test_checking_options_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    experiment_from_dict(one(options={"theta": 1.2345}))
    assert torch.equal(torch.rand(2), expected)


# ------------------------------------------------------------------------------------------------------------ override


def test_assignments_change_a_copy():
    before = experiment()
    after = override(
        before, ["seeds=3", "models.0.training.lr=1e-3", "models[1].options.theta=2", "subjects=[4, 5]", "vary=null"]
    )
    assert (after["seeds"], after["subjects"], after["vary"]) == (3, [4, 5], None)
    assert after["models"][0]["training"] == {"lr": 1e-3}
    assert after["models"][1]["options"] == {"theta": 2}
    assert before == experiment()
    assert experiment_from_dict(after).models[0].training.lr == 1e-3


def test_a_star_assigns_to_all_items_of_a_list():
    after = override(experiment(), ["models.*.training.lr=1e-3"])["models"]
    assert [row["training"] for row in after] == [{"lr": 1e-3}] * 2
    assert after[0]["training"] is not after[1]["training"]


def test_keys_that_the_file_leaves_out_may_be_assigned():
    assert override(experiment(), ["training.max_epochs=5"])["training"] == {"max_epochs": 5}
    assert override(experiment(), ["models.0.options.reeig=1e-3"])["models"][0]["options"] == {"reeig": 1e-3}
    vary = override(experiment(), ["vary.axis=noise", "vary.values=[1]"])["vary"]
    assert vary == {"axis": "noise", "values": [1]}


@pytest.mark.parametrize(
    "assignment, said",
    [
        ("seds=3", "key='seds' is not known; it is one of 'name'"),
        ("trainig.lr=3", "Did you mean 'training'?"),
        ("training.batchsize=3", "key of training='batchsize' is not known"),
        ("models.0.lable=x", "Did you mean 'label'?"),
        ("models.2.label=x", "'2' must be an index from 0 to 1, or * for all."),
        ("models.MAtt.label=x", "'MAtt' must be an index from 0 to 1, or * for all."),
        ("title.text=x", "title is 'A small one', which has no keys."),
        ("seeds", "must have the form key=value"),
        ("=3", "must have the form key=value"),
        ("models..label=3", "must have the form key=value"),
        ("seeds=[1", "line 1, column 3: while parsing a flow sequence"),
    ],
)
def test_an_assignment_to_what_does_not_exist_is_refused(assignment, said):
    with pytest.raises(ConfigurationError) as caught:
        override(experiment(), [assignment])
    assert f"--set {assignment}: " in str(caught.value)
    assert said in str(caught.value)


def test_wrong_assignments_and_wrong_values_come_at_once(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(experiment(simulated="maybe")))
    with pytest.raises(ConfigurationError) as caught:
        read_experiment(file, ["seds=3", "models.0.training.lr=-1", "models.1.options.thta=1"])
    text = str(caught.value)
    assert "--set seds=3: key='seds'" in text
    assert "models[0].training.lr (--set models.0.training.lr=-1): must be greater than 0" in text
    assert "models[1].options.thta (--set models.1.options.thta=1): model 'gbwatt'" in text
    assert "simulated (line " in text
    assert len(caught.value.problems) == 4


def test_settings_of_foundation_models_are_refused_for_others():
    wrong = experiment()
    wrong["training"] = {"precision": "bfloat16"}
    with pytest.raises(
        ConfigurationError, match=r"training\.precision: precision is for foundation models; model 'matt'"
    ):
        experiment_from_dict(wrong)
    right = {
        **experiment(),
        "datasets": ["tuab"],
        "simulated": "never",
        "training": {"precision": "bfloat16", "shards": 16},
    }
    right["models"] = [{"label": "a", "model": "biot", "options": {"head": "base", "weights": "random"}}]
    right["vary"], right["reference"] = None, None
    assert experiment_from_dict(right).training.given() == {"precision": "bfloat16", "shards": 16}
