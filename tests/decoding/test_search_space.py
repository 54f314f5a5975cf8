"""Settings that a search varies: their texts, checks, and defaults."""

from __future__ import annotations

import pytest

from gbwatt.decoding.evaluation import TrainingSetup, recording_fields
from gbwatt.decoding.search_space import (
    Choices,
    Range,
    default_space,
    encode_settings,
    format_space,
    make_dimension,
    make_space,
    parse_space,
    setting_names,
    usual_settings,
)
from gbwatt.errors import ParameterError
from gbwatt.models import entry, list_models

EMPTY = {"mdm", "lda"}  # models without options


def make_setup(model="spdnet", dataset="simulated-ssvep", **changes):
    fields = recording_fields(dataset, None, 0, None, None, None, {})
    return TrainingSetup(**fields, model=model, **changes).check_and_complete()


# ---- texts


@pytest.mark.parametrize(
    ("text", "dimension"),
    [
        ("a=1:4", Range(1, 4)),
        ("a=1.0:4", Range(1.0, 4)),
        ("a=1e-4:1e-2:log", Range(1e-4, 1e-2, log=True)),
        ("a=-1:1", Range(-1, 1)),
        ("a=0,0.1,samples", Choices((0, 0.1, "samples"))),
        ("a=true,false", Choices((True, False))),
        ("a=1,true", Choices((1, True))),
        ("a=3", Choices((3,))),
        (" a = 1 , 2 ", Choices((1, 2))),
        ("a=[[8, 13], [13, 30]]", Choices(([8, 13], [13, 30]))),
    ],
)
def test_texts_are_ranges_or_choices(text, dimension):
    assert parse_space([text]) == {"a": dimension}


@pytest.mark.parametrize(
    "dimension",
    [Range(1, 4), Range(0.5, 2.0), Range(1e-4, 1e-2, log=True), Choices((0, "a", True)), Choices(([1], [2]))],
)
def test_the_text_of_a_dimension_gives_the_dimension(dimension):
    assert parse_space([f"a={dimension}"]) == {"a": dimension}


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["lr"], "NAME=LOW:HIGH"),
        (["=1:2"], "NAME=LOW:HIGH"),
        (["lr="], "NAME=LOW:HIGH"),
        (["lr=1:2", "lr=3:4"], "'lr' twice"),
        (["lr=1e-4-1e-2"], "a range is LOW:HIGH"),
        (["lr=1:2:linear"], "LOW:HIGH:log"),
        (["lr=1:2:log:3"], "LOW:HIGH:log"),
        (["lr=1:"], "finite number"),
        (["lr=a:b"], "finite number"),
        (["lr=0.1:NaN"], "finite number"),
        (["lr=true:2"], "finite number"),
        (["lr=2:1"], "is empty"),
        (["lr=1:1"], "is empty"),
        (["lr=0:1:log"], "above 0"),
        (["lr=-1:1:log"], "above 0"),
        (["lr=1,,2"], "empty one"),
        (["lr=NaN,1"], "not finite"),
        (["lr=1,2,1"], "value 1 twice"),
        (["lr=[1, 2"], "not a JSON list"),
        (["lr=[]"], "no values"),
    ],
)
def test_wrong_texts_are_named(texts, named):
    with pytest.raises(ParameterError, match=named):
        parse_space(texts)


@pytest.mark.parametrize(
    ("given", "dimension"),
    [
        ((1, 4), Range(1, 4)),
        ((1e-4, 1e-2, "log"), Range(1e-4, 1e-2, log=True)),
        ([0, 0.1], Choices((0, 0.1))),
        ("1:4", Range(1, 4)),
        (Range(1, 4), Range(1, 4)),
        (Choices((1, 2)), Choices((1, 2))),
    ],
)
def test_python_values_are_ranges_or_choices(given, dimension):
    assert make_dimension("a", given) == dimension


@pytest.mark.parametrize("given", [3, None, {"low": 1}, (1,), (1, 2, "lin"), (1, 2, 3, 4), Range(2, 1), Choices(())])
def test_wrong_python_values_name_the_setting(given):
    with pytest.raises(ParameterError, match="space: a="):
        make_dimension("a", given)


# ---- settings as parameters of Optuna


class FirstOrLast:
    """Draws an end of each range, as a trial of Optuna does."""

    def __init__(self, last):
        self.last = last

    def suggest_int(self, name, low, high, log):
        return high if self.last else low

    suggest_float = suggest_int

    def suggest_categorical(self, name, choices):
        return choices[-1 if self.last else 0]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dimension", [Range(1, 4), Range(0.12345, 2.98765), Choices((0, True, "a", [1, 2]))])
def test_drawn_settings_are_in_the_dimension(dimension, last):
    value = dimension.draw(FirstOrLast(last), "a")
    assert value == dimension.ends[-1 if last else 0]
    assert dimension.encode(value) is not None


def test_real_numbers_are_drawn_with_three_digits():
    class Middle(FirstOrLast):
        def suggest_float(self, name, low, high, log):
            return 0.123456

    assert Range(0.1, 0.2).draw(Middle(False), "a") == 0.123


@pytest.mark.parametrize(
    ("dimension", "value"),
    [(Range(1, 4), 5), (Range(1, 4), 2.0), (Range(0.5, 2.0), "learnt"), (Range(0, 1), True), (Choices((0, 1)), True)],
)
def test_other_settings_are_not_in_the_dimension(dimension, value):
    assert encode_settings({"a": dimension}, {"a": value}) is None


# ---- checks against the model


@pytest.mark.parametrize(
    ("space", "named"),
    [
        ({"lrr": (1e-4, 1e-2)}, "Did you mean 'lr'"),
        (["shrinkag=0,1"], "Did you mean 'shrinkage'"),
        ({"recipe": ["best", "paper"]}, "recipe"),
        ({"theta": (0.5, 2.0)}, "theta"),  # spdnet has none
        ({"kernel": [9, 11]}, "both fixed and in the space"),
        ({"max_epochs": [1, 2]}, "both fixed and in the space"),
        ({"batch_size": (1, 8)}, "batch_size=1 must be a whole number, 2 or more"),
        ({"batch_size": (2.5, 8)}, r"batch_size=2\.5"),
        ({"n_members": [0, 1]}, "n_members=0"),
        ({"early_stopping": [0, 3]}, "early_stopping=0"),
        ({"lr": [0, 1]}, "lr=0 must be above 0"),
        ({"lr": ["fast", 1]}, "lr='fast'"),
        ({"weight_decay": (-1.0, 1.0)}, r"weight_decay=-1\.0"),
        ({}, "nothing to choose from"),
        ({"shrinkage": [0.1]}, "nothing to choose from"),
    ],
)
def test_names_and_values_are_checked(space, named):
    setup = make_setup(options={"kernel": 9}, training={"max_epochs": 1})
    with pytest.raises(ParameterError, match=named):
        make_space(setup, space)


def test_a_single_text_is_a_space():
    assert make_space(make_setup(), "lr=0.1,0.2") == {"lr": Choices((0.1, 0.2))}


def test_classical_pipelines_have_no_training_settings():
    with pytest.raises(ParameterError, match="'lr' is not known"):
        make_space(make_setup("tangent-space"), {"lr": (1e-4, 1e-2)})


# ---- defaults

MODELS = [name for name in list_models() if entry(name).extra is None and name != "tiny"]


def test_models_are_found():
    assert {"gbwatt", "matt", "spdnet", "tangent-space"} <= set(MODELS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dataset", ["simulated-ssvep", "simulated-mi"])
@pytest.mark.parametrize("model", MODELS)
def test_the_default_space_has_the_usual_settings(model, dataset):
    setup = make_setup(model, dataset)
    space = default_space(setup)
    assert bool(space) == (model not in EMPTY)
    assert set(space) <= set(setting_names(setup))
    usual = encode_settings(space, usual_settings(setup))
    assert usual is not None
    assert parse_space([f"{name}={text}" for name, text in format_space(space).items()]) == space


@pytest.mark.parametrize("model", sorted(EMPTY))
def test_a_model_without_options_has_nothing_to_search(model):
    with pytest.raises(ParameterError, match="nothing to choose from"):
        make_space(make_setup(model), None)


def test_the_default_space_is_that_of_the_paradigm():
    steady, imagery = (default_space(make_setup("gbwatt", f"simulated-{name}")) for name in ("ssvep", "mi"))
    assert {"lr", "shrinkage", "n_segments", "kernel", "k", "theta", "residual"} <= set(steady) & set(imagery)
    assert "n_temporal" in steady
    assert "n_temporal" not in imagery  # its initial weights from a classical pipeline keep all channels
    assert steady["n_segments"] == Range(1, 7)


def test_fixed_settings_are_not_in_the_default_space():
    space = default_space(make_setup(options={"kernel": 9}, training={"lr": 0.1}))
    assert not {"kernel", "lr"} & set(space)
    assert "shrinkage" in space


def test_the_usual_settings_are_those_of_the_recipe():
    assert usual_settings(make_setup("matt"))["shrinkage"] == 0.3
    assert usual_settings(make_setup("matt", recipe="paper"))["shrinkage"] == 0.0
    assert usual_settings(make_setup("matt", options={"recipe": "paper"}))["shrinkage"] == 0.0
