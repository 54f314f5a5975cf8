"""A small experiment that is right, for tests that change it."""

from __future__ import annotations

from gbwatt.experiments.config import experiment_from_dict


def experiment(**changes):
    """A small experiment that is right, with changes."""
    return {
        "name": "small",
        "title": "A small one",
        "datasets": ["mamem-ssvep-ii"],
        "subjects": [1, 2],
        "seeds": 2,
        "models": [
            {"label": "MAtt", "model": "matt"},
            {"label": "GBWAtt", "model": "gbwatt", "options": {"theta": 1.5}},
        ],
        **changes,
    }


def one(**row):
    """An experiment with one model."""
    return experiment(models=[{"label": "GBWAtt", "model": "gbwatt", **row}])


def labelled_runs(mapping, **arguments):
    return experiment_from_dict(mapping).labelled_runs(**{"simulated": "always", **arguments})
