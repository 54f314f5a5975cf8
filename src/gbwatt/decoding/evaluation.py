"""Training, testing once and recording; evaluation of saved models."""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbwatt._validation import check_one_of
from gbwatt.data import Trials, find_dataset
from gbwatt.data.splits import Split
from gbwatt.decoding import training_record
from gbwatt.decoding.metrics import score
from gbwatt.errors import MismatchError, ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from gbwatt.data.datasets import Dataset
    from gbwatt.decoding import EEGDecoder


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
            check_one_of(f"option of {job.model}", name, _known_options(job))
        raise ParameterError(f"the options {job.options} of {job.model} are wrong: {error}.") from error


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
        raise ParameterError(f"recipe={job.recipe!r}: {job.model} has no recipes; leave it out.")
    return {}


def make_decoder(job: Job, module: nn.Module, display: Any) -> EEGDecoder:
    """The classifier, not trained yet; ``display`` is told of every epoch."""
    from gbwatt.decoding import EEGDecoder, GBWAttClassifier

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
    from gbwatt.cli.output import scored

    record |= {"test": scored(decoder, job.trials[job.split.test])}
    return training_record.save(decoder, folder, record, job.split)


def _keep(job: Job, decoder: EEGDecoder, folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """What is left of an interrupted training: a checkpoint, or else the best weights so far, not tested."""
    if not hasattr(decoder, "net_") or not decoder.history_:
        return {"status": "interrupted", "epochs": 0, "folder": None}
    record = {"status": "interrupted", **asked, **_learnt(decoder)}
    if job.checkpoint is not None:
        return {**record, "folder": None}
    return training_record.save(decoder, folder, record, job.split)


def _asked(job: Job) -> dict[str, Any]:
    """What is known before training."""
    from gbwatt.data.fingerprint import fingerprint
    from gbwatt.decoding.training_record import versions

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


def open_model(folder: Path) -> EEGDecoder:
    """The estimator in a folder, of the class that it was saved as."""
    from gbwatt.decoding import EEGDecoder, GBWAttClassifier
    from gbwatt.models.serialization import CONFIG, read_config

    saved = read_config(folder / CONFIG)["extra"].get("estimator") or {}
    kind = GBWAttClassifier if saved.get("class") == GBWAttClassifier.__name__ else EEGDecoder
    return kind.from_pretrained(folder)


def uses_of(
    decoder: EEGDecoder,
    record: dict[str, Any] | None,
    dataset: Dataset,
    trials: Trials,
    root: Path | None,
    how: dict[str, Any],
) -> NDArray[Any]:
    """What each trial of a subject was used for, one of :data:`records.USES`.

    Known from the fingerprints of the trials that the model keeps, and from the record of its training.  Trials of
    other files that match no fingerprint are "unrecognised": they may be training trials that were cut elsewhere.
    """
    from gbwatt.data.fingerprint import fingerprint

    subject, name = int(trials.subject[0]), dataset.name
    contents = None
    if record is not None and Path(name).is_file():  # it may be a copy; records of before have no options in the hash
        contents = [fingerprint(name, subject, root, options) for options in (record.get("reading"), None)]
    own = subject if dataset.subjects else None
    recorded = training_record.uses(record, name, own, contents, len(trials.y), how)
    compared = decoder.used_for(trials).astype(object)
    if recorded is None:
        return np.where(compared == "unseen", "unrecognised", compared)
    return np.where(np.isin(compared, ("training", "validation")), compared, recorded)


class Asked(NamedTuple):
    """What a command was given; None, or nothing, for what is to be as it was in training."""

    dataset: str | None
    subject: int | None
    split: int | None
    reading: dict[str, Any]

    def completed(self, record: dict[str, Any] | None) -> Asked:
        """As in training where that was the same data set; else the first subject, and the first split."""
        if self.dataset is None and record is None:
            raise ParameterError(
                f"dataset: the folder has no {training_record.FILE}, so the training data are unknown; give --dataset."
            )
        if record is None or (self.dataset is not None and find_dataset(self.dataset).name != record["dataset"]):
            return self._replace(split=self.split or 0)
        subject = record["subject"] if self.subject is None else self.subject
        split = record.get("split", 0) if self.split is None else self.split
        return Asked(record["dataset"], subject, split, self.reading or record.get("reading", {}))


class Tested(NamedTuple):
    """A model and test trials."""

    decoder: EEGDecoder
    trials: Trials
    dataset: str
    split: str  # its name
    warning: str | None  # of trials that the model has seen

    @property
    def what(self) -> str:
        """What the trials are, in words."""
        return f"{len(self.trials.y)} test trials of {self.dataset} ({self.split})"


def open_tested(folder: Path, asked: Asked, root: Path | None) -> Tested:
    """The model in a folder, and the test trials of a split."""
    decoder, record = open_model(folder), training_record.read(folder)
    asked = asked.completed(record)
    found = find_dataset(asked.dataset or "")
    from gbwatt.cli.options import open_split

    trials, split = open_split(found, asked.subject, asked.split or 0, root, asked.reading)
    _require_alike(decoder, trials, record)
    seen = uses_of(decoder, record, found, trials, root, asked.reading)[split.test]
    return Tested(decoder, trials[split.test], found.name, split.name, _warning(seen.tolist()))


def _require_alike(decoder: EEGDecoder, trials: Trials, record: dict[str, Any] | None) -> None:
    """Refuse recordings of another kind than those of the training, with the name of the latter."""
    from gbwatt.decoding.signal_metadata import Recorded

    if decoder.recorded_ is None:
        return
    try:
        decoder.recorded_.require(Recorded.of(trials), "trials")
    except MismatchError as error:
        why, remedy = str(error).partition(";")[0], "the recordings of the training are needed, or some like them"
        trained = "." if record is None else f": {record['dataset']}, which is taken without --dataset."
        raise ParameterError(f"dataset={trials.dataset!r} does not fit the model: {why}; {remedy}{trained}") from error


def _warning(uses: list[str]) -> str | None:
    counts = {use: uses.count(use) for use in ("training", "validation") if use in uses}
    if not counts:
        return None
    said = " and ".join(f"{count} were {training_record.USES[use]}" for use, count in counts.items())
    return f"Of these {len(uses)} trials {said}: what is found in them may not hold for new ones."


def scores(decoder: EEGDecoder, test: Trials) -> dict[str, Any]:
    """All scores of test trials, by the columns of a row."""
    return score(decoder.labels_of(test), decoder.predict_proba(test), decoder.classes_, decoder.class_names_)
