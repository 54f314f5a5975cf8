"""Runs of experiments on corpora: their data, weights and checkpoints, training and test."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import torch

from gbwatt.clinical import datasets
from gbwatt.clinical.classifier import Registered
from gbwatt.clinical.corpora import Corpus, Part
from gbwatt.clinical.finetuning import (
    FINETUNING,
    Course,
    EpochWatch,
    FineTuning,
    finetune,
    finetuning_of,
    make_accelerator,
    predict,
)
from gbwatt.clinical.weights import UNREAD
from gbwatt.data.datasets import data_root, find_source
from gbwatt.data.loading import find_dataset
from gbwatt.decoding.metrics import score
from gbwatt.decoding.training import isolated, start_epoch
from gbwatt.decoding.training_record import versions
from gbwatt.errors import ParameterError
from gbwatt.experiments.runs import Row, Run, tidy
from gbwatt.models.registry import create

CORPORA = frozenset(dataset.name for dataset in datasets.DATASETS)
#: Folders beside the recordings: weights of backbones, and what unfinished runs have come to.
WEIGHTS, CHECKPOINTS = "weights", "checkpoints"
AND = "+"  # between the fingerprint of a corpus and that of weights


def open_corpus(name: str, root: str | Path | None = None) -> Corpus:
    """The windows of a corpus, in its folder below that of the recordings."""
    _, (manifest,) = find_source(find_dataset(name), 1, root, None)
    return Corpus.open(manifest.parent)


def fingerprint(name: str, root: str | Path | None = None) -> str:
    """Hash of the windows of a corpus."""
    return open_corpus(name, root).fingerprint[:16]


def weights_file(name: str, root: str | Path | None = None) -> Path:
    """Where the weights are that a run names: a file, or a folder, in the folder of weights."""
    return data_root(root) / WEIGHTS / name


def with_weights(data: str, weights: str | None, root: str | Path | None = None) -> str:
    """Fingerprint of a corpus together with that of the weights that a run begins with, if they are in a file."""
    from gbwatt.clinical.weights import UNREAD, find_file
    from gbwatt.errors import WeightsFileError  # imports torch

    if weights is None or weights in UNREAD:
        return data
    try:
        digest = hashlib.sha256(find_file(weights_file(weights, root)).read_bytes()).hexdigest()[:16]
    except WeightsFileError:  # the run will say so
        digest = "absent"
    return f"{data}{AND}{digest}"


def without_weights(data: str) -> str:
    """The part of a fingerprint that is the corpus's.

    Examples
    --------
    >>> without_weights("0123456789abcdef+fedcba9876543210")
    '0123456789abcdef'
    """
    return data.partition(AND)[0]


def checkpoint_of(run: Run, root: str | Path | None = None) -> Path:
    """Where a run keeps what it has come to."""
    return data_root(root) / CHECKPOINTS / run.key


def discard_checkpoint(row: Row, root: str | Path | None = None) -> None:
    """Remove what a run kept to go on from, once its row is in the store; a failed one may go on."""
    if row.status == "done":
        shutil.rmtree(checkpoint_of(Run.from_dict(row.run), root), ignore_errors=True)


SAVE_EVERY = 200  # steps between checkpoints
FEW = 16  # windows of a step, where only its duration is asked for


class Trained(NamedTuple):
    """How a training went, and the scores of the official evaluation part, by the columns of a row."""

    course: Course
    scores: dict[str, Any]


def execute(run: Run, root: str | Path | None = None) -> Row:
    """Train as the run says, from where it was stopped if it was, and test once."""
    _require_plain(run)
    corpus = open_corpus(run.dataset, root)
    settings = settings_of(run.model, corpus, run.training, run.seed)
    accelerator = make_accelerator(settings.precision)
    model = classifier(run.model, corpus, _with_weights(run.options, root), run.seed)
    trained = train_and_test(model, corpus, settings, accelerator, checkpoint_of(run, root))
    return row_of(run, trained, corpus, model, made_with(model, accelerator))


def train_and_test(
    model: Registered,
    corpus: Corpus,
    settings: FineTuning,
    accelerator: Any,
    checkpoint: Path,
    save_every: int = SAVE_EVERY,
    workers: int = 0,
    on_epoch: EpochWatch | None = None,
) -> Trained:
    """Train on the windows of a corpus, from where it was stopped if it was, and test once."""
    train, valid, test = (corpus.part(name) for name in ("train", "valid", "eval"))
    course = finetune(
        model,
        train,
        valid,
        settings,
        accelerator=accelerator,
        checkpoint=checkpoint,
        save_every=save_every,
        fingerprint={"data": corpus.fingerprint, "model": model.config, "weights": model.initialisation},
        workers=workers,
        on_epoch=on_epoch,
    )
    logits = predict(model, test, settings.batch_size, accelerator, workers)
    return Trained(course, evaluate(logits, test.labels, corpus.class_names))


def epoch_seconds(run: Run, root: str | Path | None = None) -> float:
    """How long an epoch may take: from the second of two steps on a few windows, all of them alike."""
    _require_plain(run)
    corpus = open_corpus(run.dataset, root)
    train, valid = (corpus.part(name) for name in ("train", "valid"))
    size = min(FEW, len(train) // 2)
    few = Few(train, 2 * size)
    changes: dict[str, Any] = {"max_epochs": 1, "warmup_epochs": 0.0, "batch_size": size, "shards": 1}
    settings = replace(settings_of(run.model, corpus, run.training, run.seed), **changes)
    times = [time.perf_counter()]
    model = classifier(run.model, corpus, _with_weights(run.options, root), run.seed)
    finetune(model, few, Few(valid, 1), settings, on_step=lambda *_: times.append(time.perf_counter()))
    window = (times[-1] - times[-2]) / settings.batch_size
    return window * (len(train) + len(valid) / 3)  # a third of a step is the forward pass


class Few:
    """The first windows of a part."""

    def __init__(self, part: Part, n: int) -> None:
        self.part, self.labels = part, part.labels[:n]

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, indices: Any) -> Any:
        """Windows and labels at places."""
        return self.part.read(indices)


def settings_of(model: str, corpus: Corpus, training: Mapping[str, Any], seed: int) -> FineTuning:
    """How a backbone is trained, with what is given for this run."""
    return finetuning_of(model, len(corpus.class_names), {**training, "seed": seed})


def classifier(name: str, corpus: Corpus, options: Mapping[str, Any], seed: int) -> Registered:
    """A model for the windows of a corpus; what is random in it follows from the seed."""
    cpu = torch.device("cpu")
    with isolated(cpu):
        start_epoch(seed, 0, cpu)
        model = create(
            name,
            n_chans=len(corpus.ch_names),
            n_outputs=len(corpus.class_names),
            n_times=corpus.n_times,
            sfreq=corpus.sfreq,
            ch_names=corpus.ch_names,
            **options,
        )
    assert isinstance(model, Registered)
    return model


def evaluate(logits: Any, labels: Any, class_names: tuple[str, ...]) -> dict[str, Any]:
    """Scores of logits, by the columns of a row."""
    probability = scipy.special.softmax(logits.astype(np.float64), axis=1)
    return score(labels, probability, np.arange(len(class_names)), class_names)


def _require_plain(run: Run) -> None:
    """What is varied on small sets is not here."""
    if run.model not in FINETUNING:
        raise ParameterError(
            f"model={run.model!r} is not for corpora, which do not fit into memory; take {', '.join(FINETUNING)}."
        )
    for name, value, usual in (("fraction", run.fraction, 1.0), ("noise", run.noise, 0.0)):
        if value != usual:
            raise ParameterError(f"{name}={value:g}: runs on {run.dataset} do not vary it; leave it out.")


def _with_weights(options: Mapping[str, Any], root: str | Path | None) -> dict[str, Any]:
    """Options, with the place of the weights, which are named by their file in the folder of weights."""
    given = dict(options)
    name = given.get("weights")
    if name is not None and name not in UNREAD:
        given["weights"] = weights_file(name, root)
    return given


def made_with(model: Registered, accelerator: Any) -> dict[str, str]:
    """Versions, and what else a result was made with."""
    where = f"{accelerator.num_processes} × {accelerator.device.type}"
    return {**versions(), "weights": model.initialisation, "processes": where}


def row_of(run: Run, trained: Trained, corpus: Corpus, model: Registered, made: dict[str, str]) -> Row:
    """What a training leaves."""
    course = trained.course
    at_best = course.history[course.best_epoch - 1]
    columns = ("train_loss", "valid_loss", "valid_accuracy")
    parts = {"train": "train", "valid": "valid", "test": "eval"}
    return Row(
        run.key,
        "done",
        run.to_dict(),
        **trained.scores,
        valid_accuracy=at_best["valid_accuracy"],
        valid_loss=at_best["valid_loss"],
        best_epoch=course.best_epoch,
        epochs=len(course.history),
        history={name: [float(f"{row[name]:.5g}") for row in course.history] for name in columns},
        trials={name: len(corpus.part(part)) for name, part in parts.items()},
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        preprocessing=list(corpus.header["steps"]),
        seconds_per_epoch=float(np.median([row["duration"] for row in course.history])),
        versions=made,
    )


def run_of(
    corpus: Corpus, model: Registered, options: Mapping[str, Any], training: Mapping[str, Any], seed: int
) -> Run:
    """The run that a training by itself is, so that its row stands where that of an experiment would."""
    given = {name: value for name, value in options.items() if value is not False}
    data = corpus.fingerprint[:16]
    if model.report is not None:
        given["weights"], data = Path(model.report.source).name, f"{data}{AND}{model.report.sha256[:16]}"
    tidied = {name: tidy(value) for name, value in given.items()}
    settings = {name: tidy(value) for name, value in training.items()}
    return Run(corpus.name, 1, model.name, seed=seed, data=data, options=tidied, training=settings)
