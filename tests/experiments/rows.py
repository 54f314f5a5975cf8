"""Rows to keep."""

from __future__ import annotations

import math

from gbwatt.experiments.runs import Row, Run


def make(seed=0, status="done", **columns):
    run = Run(columns.pop("dataset", "simulated-mi"), columns.pop("subject", 1), "gbwatt", seed=seed, data="")
    return Row(run.key, status, run.to_dict(), **columns)


def full(seed=0):
    """A row with a value in every column, and what is hard to write among them."""
    return make(
        seed,
        accuracy=0.1 + 0.2,
        balanced_accuracy=1 / 3,
        kappa=-0.25,
        auc=5e-324,
        loss=math.inf,
        per_class={
            "left ☜": {"recall": 1 / 3, "precision": 1 / 6, "n": 3.0},
            "=right": {"recall": 2 / 7, "precision": 0.5, "n": 7.0},
        },
        confusion=[[1, 2], [5, 2]],
        valid_accuracy=1.0,
        valid_loss=1e-300,
        best_epoch=3,
        epochs=5000,
        history={"train_loss": [1e-17 + i / 7 for i in range(5000)], "valid_loss": [math.inf] * 5000},
        conditions={"before": {"share": 0.0, "median": 1e4, "largest": 1e300}},
        trials={"train": 252, "valid": 36, "test": 10},
        parameters=2**62,
        preprocessing=[{"step": "band", "low": None, "unit": "µV", "quotes": 'a "b", c\n'}],
        seconds=0.1,
        seconds_per_epoch=1.7976931348623157e308,
        versions={"python": "3.11"},
        finished="2025-01-01T00:00:00+00:00",
        traceback='θ, "quoted",\r\n\tlines\r\rwith 💥\x00 and, commas\n',
        warnings=["one\ntwo", ""],
    )
