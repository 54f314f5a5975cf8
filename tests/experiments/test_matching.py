"""Tables from rows alone."""

from __future__ import annotations

from gbwatt.experiments.config import from_mapping
from gbwatt.experiments.grid import cells_of
from gbwatt.experiments.runs import Row

EXPERIMENT = {
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


def test_cells_of_rows_are_those_of_the_experiment_without_looking_for_recordings():
    experiment = from_mapping(EXPERIMENT)
    cells = experiment.cells()
    rows = [Row(cell.run.key, "done", cell.run.to_dict(), accuracy=0.5) for cell in cells]
    assert sorted(cells_of(experiment, rows), key=str) == sorted(cells, key=str)


def test_what_a_line_lacks_of_what_others_have_is_missing():
    experiment = from_mapping(EXPERIMENT)
    rows = [Row(c.run.key, "done", c.run.to_dict()) for c in experiment.cells() if c.label == "one"]
    found = cells_of(experiment, rows)
    have = {row.key for row in rows}
    assert [cell.label for cell in found if cell.run.key not in have] == ["two"] * 4


def test_rows_of_other_experiments_and_data_sets_are_not_its_cells():
    experiment = from_mapping(EXPERIMENT)
    other = from_mapping({**EXPERIMENT, "training": {"max_epochs": 3}})
    rows = [Row(cell.run.key, "done", cell.run.to_dict()) for cell in other.cells()]
    assert cells_of(experiment, rows) == []
    own = [Row(cell.run.key, "done", cell.run.to_dict()) for cell in experiment.cells()]
    assert cells_of(experiment, own, ["mamem-ssvep-ii"]) == []
