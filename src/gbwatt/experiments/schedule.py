"""How the model of a run is trained: all settings written out, so that a run says what made its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gbwatt.data import DATASETS
from gbwatt.experiments.runs import Run, tidy


def registered(model: str, dataset: str) -> dict[str, Any]:
    """The settings that are registered for a model and the task of a data set.

    Examples
    --------
    >>> registered("matt", "mamem-ssvep-ii")
    {'lr': 0.005, 'batch_size': 64, 'max_epochs': 180, 'weight_decay': 0.1}
    """
    from gbwatt.models.registry import entry  # imports torch

    task = DATASETS[dataset].task if dataset in DATASETS else None  # recordings of one's own have none
    return {name: tidy(value) for name, value in asdict(entry(model).training_for(task)).items()}


def written_out(model: str, dataset: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings: what is given, and for the rest what is registered."""
    return {**registered(model, dataset), **{name: tidy(value) for name, value in given.items()}}


def changes(run: Run) -> dict[str, Any]:
    """What a run has otherwise than registered; all of it, if its model is not."""
    from gbwatt.models.registry import list_models  # imports torch

    usual = registered(run.model, run.dataset) if run.model in list_models() else {}
    return {name: value for name, value in run.training.items() if usual.get(name) != tidy(value)}
