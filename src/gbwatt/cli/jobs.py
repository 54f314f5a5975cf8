"""One training: what is asked for, how it is done, and what is kept of it."""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbwatt import checks
from gbwatt.cli import records
from gbwatt.cli.results import scored
from gbwatt.data import Trials
from gbwatt.data.splits import Split

if TYPE_CHECKING:
    from torch import nn

    from gbwatt.training import EEGDecoder


@dataclass(frozen=True)
class Job:
    """What is asked for."""

    dataset: str
    task: str | None
    trials: Trials
    split: Split
    number: int  # of the split
    model: str
    recipe: str | None
    options: dict[str, Any]
    training: dict[str, Any]
    seed: int
    checkpoint: Path | None
    root: Path | None
    reading: dict[str, Any]  # options of the reader

    @property
    def subject(self) -> int:
        """Whose trials they are."""
        return int(self.trials.subject[0])

    @property
    def sizes(self) -> dict[str, int]:
        """Trials of each part."""
        return {part: len(getattr(self.split, part)) for part in ("train", "valid", "test")}


# ---- the model


def _signal(job: Job) -> dict[str, Any]:
    _, n_chans, n_times = job.trials.shape
    n_outputs = len(set(job.trials.y[job.split.train].tolist()))
    return {"n_chans": n_chans, "n_outputs": n_outputs, "n_times": n_times, "sfreq": job.trials.sfreq}


def build(job: Job) -> nn.Module:
    """The network, built once before any time is spent, so that wrong options are found."""
    from gbwatt.models import create

    try:
        return create(job.model, **_signal(job), task=job.task, **job.options)
    except TypeError as error:
        for name in job.options:
            checks.one_of(f"option of {job.model}", name, _known_options(job))
        raise checks.ParameterError(f"the options {job.options} of {job.model} are wrong: {error}.") from error


def _known_options(job: Job) -> tuple[str, ...]:
    from gbwatt.models import create

    module = create(job.model, **_signal(job), task=job.task)
    names = inspect.signature(type(getattr(module, "network", module))).parameters
    return tuple(name for name in names if name not in (*_signal(job), "chs_info", "input_window_seconds"))


def recipe_of(job: Job, module: nn.Module) -> dict[str, Any]:
    """The recipe as an argument, "best" unless another is given, for models that have one."""
    if "recipe" in getattr(module, "config", {}):
        return {"recipe": job.recipe or "best"}
    if job.recipe is not None:
        raise checks.ParameterError(f"recipe={job.recipe!r}: {job.model} has no recipes; leave it out.")
    return {}


def make_decoder(job: Job, module: nn.Module, display: Any) -> EEGDecoder:
    """The classifier, not trained yet; ``display`` is told of every epoch."""
    from gbwatt.training import EEGDecoder, GBWAttClassifier

    arguments: dict[str, Any] = {
        "task": job.task,
        "validation": job.trials[job.split.valid] if len(job.split.valid) else None,
        "seed": job.seed,
        "checkpoint": job.checkpoint,
        "callbacks": [display],
        **job.training,
    }
    recipe = recipe_of(job, module)
    if job.model == "gbwatt":
        return GBWAttClassifier(**recipe, model_options=job.options, **arguments)
    return EEGDecoder(job.model, model_options={**recipe, **job.options}, **arguments)


# ---- the training


def carry_out(job: Job, decoder: EEGDecoder, folder: Path) -> dict[str, Any]:
    """Train, test once and save; Ctrl-C ends it early.  The record of what was done."""
    asked, started = _asked(job), time.perf_counter()
    try:
        decoder.fit(job.trials[job.split.train])
    except KeyboardInterrupt:
        return _keep(job, decoder, folder, {**asked, "seconds": time.perf_counter() - started})
    record = {"status": "done", **asked, **_learnt(decoder), "seconds": time.perf_counter() - started}
    record |= {"test": scored(decoder, job.trials[job.split.test])}
    return records.save(decoder, folder, record, job.split)


def _keep(job: Job, decoder: EEGDecoder, folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """What is left of an interrupted training: a checkpoint, or else the best weights so far, not tested."""
    if not hasattr(decoder, "net_") or not decoder.history_:
        return {"status": "interrupted", "epochs": 0, "folder": None}
    record = {"status": "interrupted", **asked, **_learnt(decoder)}
    if job.checkpoint is not None:
        return {**record, "folder": None}
    return records.save(decoder, folder, record, job.split)


def _asked(job: Job) -> dict[str, Any]:
    """What is known before training."""
    from gbwatt.experiments.environment import versions
    from gbwatt.experiments.recordings import fingerprint

    return {
        "dataset": job.dataset,
        "subject": job.subject,
        "split": job.number,
        "tested_on": job.split.name,
        "simulated": bool(job.trials.truths),
        "data": fingerprint(job.dataset, job.subject, job.root, job.reading),
        "reading": job.reading,
        "trials": job.sizes,
        "model": job.model,
        "options": job.options,
        "seed": job.seed,
        "checkpoint": None if job.checkpoint is None else str(job.checkpoint),
        "versions": versions(),
    }


def _learnt(decoder: EEGDecoder) -> dict[str, Any]:
    """What is known after it, without the test."""
    net = decoder.net_
    return {
        "recipe": getattr(net.module_, "config", {}).get("recipe"),
        "training": {name: getattr(net, name) for name in ("lr", "batch_size", "weight_decay", "max_epochs")},
        "early_stopping": decoder.early_stopping,
        "epochs": len(decoder.history_),
        "best_epoch": decoder.best_epoch_,
        "at_best_epoch": decoder.history_[decoder.best_epoch_ - 1],
        "parameters": sum(p.numel() for p in net.module_.parameters() if p.requires_grad),
    }
