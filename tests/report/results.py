"""Rows for reports: made up, of the lines that real experiments have."""

from __future__ import annotations

import random
from itertools import islice, product

from gbwatt.experiments.config import experiment_from_dict
from gbwatt.experiments.grid import lines
from gbwatt.experiments.runs import Row, Run

EXPERIMENT = {
    "name": "main",
    "title": "Main table",
    "paper": "main",
    "datasets": ["mamem-ssvep-ii"],
    "reference": "MAtt",
    "models": [
        {"label": "EEGNet", "model": "eegnet"},
        {"label": "MAtt", "model": "matt"},
        {"label": "GBWAtt (θ = 1.5)", "model": "gbwatt", "options": {"theta": 1.5, "recipe": "paper"}},
    ],
}
NOISE = {
    **EXPERIMENT,
    "name": "noise",
    "title": "Noise in test",
    "paper": "noise",
    "models": EXPERIMENT["models"][1:],
    "vary": {"axis": "noise", "values": [0.2, 0.4, 0.6], "label": "σ² = {:.1f}"},
}


def experiment(mapping=EXPERIMENT, **changes):
    return experiment_from_dict({**mapping, **changes})


def done(run, accuracy, **columns):
    """A row with all that a run leaves."""
    right = round(20 * accuracy)
    return Row(
        run.key,
        "done",
        run.to_dict(),
        **{
            "accuracy": accuracy,
            "balanced_accuracy": accuracy,
            "kappa": 2 * accuracy - 1,
            "loss": 1 - accuracy,
            "auc": accuracy,
            "per_class": {name: {"recall": accuracy, "precision": accuracy, "n": 20.0} for name in ("left", "right")},
            "confusion": [[right, 20 - right], [20 - right, right]],
            "valid_accuracy": accuracy,
            "best_epoch": 2,
            "epochs": 3,
            "history": {
                "train_loss": [1.0, 0.5, 0.4],
                "valid_loss": [1.0, 0.6, 0.7],
                "valid_accuracy": [0.5, 0.8, 0.7],
            },
            "conditions": {"before": {"share": 0.5}, "after": {"share": 0.25}},
            "trials": {"train": 60, "valid": 20, "test": 40},
            "parameters": 1234,
            "preprocessing": [],
            "seconds": 12.5,
            "seconds_per_epoch": 0.0625,
            "versions": {"python": "3.11.7", "gbwatt": "0.1.0"},
            "finished": "2025-01-01T00:00:00+00:00",
            **columns,
        },
    )


def failed(run, traceback):
    return Row(run.key, "failed", run.to_dict(), traceback=traceback, finished="2025-01-02T00:00:00+00:00")


def runs(found, dataset="mamem-ssvep-ii", subjects=range(1, 7), seeds=range(2)):
    """All runs of an experiment, line by line."""
    for line, subject, seed in product(lines(found), subjects, seeds):
        yield Run(dataset, subject, seed=seed, data="", **line.on(dataset, subject))


def rows(found, better="gbwatt", **grid):
    """Rows in which one model is better than the others for every subject."""
    draw = random.Random(0)
    return [done(run, 0.5 + 0.3 * (run.model == better) + 0.1 * draw.random()) for run in runs(found, **grid)]


def many(n):
    """That many rows, of several data sets."""
    found = experiment(datasets=["bcic-iv-2a", "mamem-ssvep-ii", "bci-ern"])
    names = ("simulated-mi", "simulated-ssvep", "simulated-ern", "mamem-ssvep-ii")
    each = (runs(found, name, range(1, 17), range(40)) for name in names)
    draw = random.Random(1)
    return found, [done(run, draw.random()) for run in islice((run for some in each for run in some), n)]
