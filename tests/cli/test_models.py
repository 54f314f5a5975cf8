"""``gbwatt models`` as a user meets it."""

from __future__ import annotations

import pytest

from gbwatt.models import create, list_models, registry


@pytest.fixture
def absent():
    """A model whose package is missing."""

    def build(signal, task, **options):
        raise ImportError("nowhere is not installed: pip install 'gbwatt[nowhere]'")

    registry.register("absent", "a model of [nowhere]", extra="nowhere")(build)
    yield "absent"
    del registry._MODELS["absent"]


def test_every_model_is_listed(run, run_json):
    assert [row["name"] for row in run_json("models")] == list(list_models())
    shown = run("models")
    assert shown.exit_code == 0
    assert all(name in shown.stdout for name in list_models())


@pytest.mark.parametrize(
    ("task", "counts"),
    [
        ("mi", {"gbwatt": 9350, "matt": 9026, "tcnetfusion": 12496, "mbeegse": 7706}),
        ("ssvep", {"gbwatt": 72339, "matt": 72195}),
    ],
)
def test_parameters_are_those_of_the_task(run_json, task, counts):
    rows = {row["name"]: row for row in run_json("models", "--task", task)}
    assert {name: rows[name]["parameters"] for name in counts} == counts
    assert rows["gbwatt"]["here"]


def test_the_default_task_is_motor_imagery(run_json):
    count = sum(p.numel() for p in create("spdnet", task="mi").parameters())
    assert next(row for row in run_json("models") if row["name"] == "spdnet")["parameters"] == count


def test_what_cannot_be_built_here_says_why(run, run_json, absent):
    row = next(row for row in run_json("models") if row["name"] == absent)
    assert (row["here"], row["parameters"], row["extra"]) == (False, None, "nowhere")
    assert "pip install" in row["reason"]
    shown = run("models").stdout
    assert "a model of [nowhere]" in shown
    assert "Not available: nowhere is not installed: pip install 'gbwatt[nowhere]'" in shown


def test_a_wrong_task_is_refused(refused):
    assert "Did you mean 'ssvep'" in refused("models", "--task", "ssvp")
