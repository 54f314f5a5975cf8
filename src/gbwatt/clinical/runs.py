"""Runs of experiments on corpora: fingerprints, training, test and checkpoints."""

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

from gbwatt.clinical.classifier import PretrainedClassifier
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
from gbwatt.clinical.weights import NO_FILE, find_file
from gbwatt.data.datasets import data_root, find_source
from gbwatt.data.loading import find_dataset
from gbwatt.decoding.metrics import score
from gbwatt.decoding.training import isolated, start_epoch
from gbwatt.decoding.training_record import versions
from gbwatt.errors import ParameterError, WeightsFileError
from gbwatt.experiments.runs import Row, Run, canonicalize
from gbwatt.models.registry import create

#: Folders beside the recordings: pretrained weights of backbones, and checkpoints of unfinished runs.
WEIGHTS, CHECKPOINTS = "weights", "checkpoints"
SEPARATOR = "+"  # between the fingerprint of a corpus and that of weights
SAVE_EVERY = 200  # steps between checkpoints
TIMED_WINDOWS = 16  # batch size of the steps that are timed


class CorpusExecutor:
    """Does the runs of experiments on corpora; see :class:`gbwatt.experiments.runs.Executor`."""

    def fingerprint(self, dataset: str, root: str | Path | None = None) -> str:
        """Return the hash of the windows of a corpus."""
        return open_corpus(dataset, root).fingerprint[:16]

    def extend_fingerprint(self, data: str, options: Mapping[str, Any], root: str | Path | None = None) -> str:
        """Append the hash of the weights file to the fingerprint of a corpus, if the options name one."""
        weights = options.get("weights")
        if weights is None or weights in NO_FILE:
            return data
        try:
            content = find_file(weights_file(weights, root)).read_bytes()
        except WeightsFileError:  # the run will report it
            return f"{data}{SEPARATOR}absent"
        return f"{data}{SEPARATOR}{hashlib.sha256(content).hexdigest()[:16]}"

    def base_fingerprint(self, data: str) -> str:
        """Return the part of a fingerprint that belongs to the corpus.

        Examples
        --------
        >>> CorpusExecutor().base_fingerprint("0123456789abcdef+fedcba9876543210")
        '0123456789abcdef'
        """
        return data.partition(SEPARATOR)[0]

    def execute(self, run: Run, root: str | Path | None = None) -> Row:
        """Train, resuming from the checkpoint of the run if there is one, and test once."""
        _check_run(run)
        corpus = open_corpus(run.dataset, root)
        settings = settings_of(run.model, corpus, run.training, run.seed)
        accelerator = make_accelerator(settings.precision)
        model = make_classifier(run.model, corpus, _with_weights_path(run.options, root), run.seed)
        result = train_and_test(model, corpus, settings, accelerator, checkpoint_folder(run, root))
        return row_of(run, result, corpus, model, environment(model, accelerator))

    def epoch_seconds(self, run: Run, root: str | Path | None = None) -> float:
        """Extrapolate the duration of an epoch from the second of two steps on a few windows."""
        _check_run(run)
        corpus = open_corpus(run.dataset, root)
        train, valid = (corpus.part(name) for name in ("train", "valid"))
        size = min(TIMED_WINDOWS, len(train) // 2)
        changes: dict[str, Any] = {"max_epochs": 1, "warmup_epochs": 0.0, "batch_size": size, "shards": 1}
        settings = replace(settings_of(run.model, corpus, run.training, run.seed), **changes)
        times = [time.perf_counter()]
        model = make_classifier(run.model, corpus, _with_weights_path(run.options, root), run.seed)
        finetune(
            model,
            _FirstWindows(train, 2 * size),
            _FirstWindows(valid, 1),
            settings,
            on_step=lambda *_: times.append(time.perf_counter()),
        )
        per_window = (times[-1] - times[-2]) / size
        return per_window * (len(train) + len(valid) / 3)  # a forward pass takes a third of a step

    def discard_checkpoint(self, run: Run, root: str | Path | None = None) -> None:
        """Delete the checkpoint of a finished run."""
        shutil.rmtree(checkpoint_folder(run, root), ignore_errors=True)


#: The executor of all corpora.
EXECUTOR = CorpusExecutor()


class _FirstWindows:
    """The first windows of a part."""

    def __init__(self, part: Part, n: int) -> None:
        self.part, self.labels = part, part.labels[:n]

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, indices: Any) -> Any:
        """Return the windows and labels at these indices."""
        return self.part.read(indices)


def open_corpus(name: str, root: str | Path | None = None) -> Corpus:
    """Open the cache of a corpus in its folder below that of the recordings."""
    _, (manifest,) = find_source(find_dataset(name), 1, root, None)
    return Corpus.open(manifest.parent)


def weights_file(name: str, root: str | Path | None = None) -> Path:
    """Return the path of a weights file, or of a folder of a model hub, in the folder of weights."""
    return data_root(root) / WEIGHTS / name


def checkpoint_folder(run: Run, root: str | Path | None = None) -> Path:
    """Return the folder of a run's checkpoint."""
    return data_root(root) / CHECKPOINTS / run.key


def _with_weights_path(options: Mapping[str, Any], root: str | Path | None) -> dict[str, Any]:
    """Replace the name of a weights file in the options by its path."""
    name = options.get("weights")
    if name is None or name in NO_FILE:
        return dict(options)
    return {**options, "weights": weights_file(name, root)}


def _check_run(run: Run) -> None:
    """Require a backbone, all training windows and no added noise."""
    if run.model not in FINETUNING:
        raise ParameterError(
            f"model={run.model!r} cannot be trained on {run.dataset}, which does not fit into memory; use "
            f"{' or '.join(FINETUNING)}."
        )
    for name, value, usual in (("fraction", run.fraction, 1.0), ("noise", run.noise, 0.0)):
        if value != usual:
            raise ParameterError(f"{name}={value:g} is not supported for runs on {run.dataset}; leave it out.")


# -------------------------------------------------------------------------------------------------- training and result


class FineTuningResult(NamedTuple):
    """The course of a training, and the scores on the official evaluation part by the columns of a row."""

    course: Course
    scores: dict[str, Any]


def settings_of(model: str, corpus: Corpus, training: Mapping[str, Any], seed: int) -> FineTuning:
    """Return the training settings of a backbone on a corpus; ``training`` overrides its defaults."""
    return finetuning_of(model, len(corpus.class_names), {**training, "seed": seed})


def make_classifier(name: str, corpus: Corpus, options: Mapping[str, Any], seed: int) -> PretrainedClassifier:
    """Build a model for the windows of a corpus, with initial weights that depend on the seed alone."""
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
    assert isinstance(model, PretrainedClassifier)
    return model


def train_and_test(
    model: PretrainedClassifier,
    corpus: Corpus,
    settings: FineTuning,
    accelerator: Any,
    checkpoint: Path,
    save_every: int = SAVE_EVERY,
    workers: int = 0,
    on_epoch: EpochWatch | None = None,
) -> FineTuningResult:
    """Train on the windows of a corpus, resuming from a checkpoint if there is one, and test once."""
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
    return FineTuningResult(course, score_logits(logits, test.labels, corpus.class_names))


def score_logits(logits: Any, labels: Any, class_names: tuple[str, ...]) -> dict[str, Any]:
    """Return the scores of logits (n, n_outputs) by the columns of a row."""
    probability = scipy.special.softmax(logits.astype(np.float64), axis=1)
    return score(labels, probability, np.arange(len(class_names)), class_names)


def environment(model: PretrainedClassifier, accelerator: Any) -> dict[str, str]:
    """Return package versions, the initial weights, and the number and type of devices."""
    processes = f"{accelerator.num_processes} × {accelerator.device.type}"
    return {**versions(), "weights": model.initialisation, "processes": processes}


def row_of(
    run: Run, result: FineTuningResult, corpus: Corpus, model: PretrainedClassifier, environment: dict[str, str]
) -> Row:
    """Return the row of a finished run."""
    course = result.course
    best = course.history[course.best_epoch - 1]
    columns = ("train_loss", "valid_loss", "valid_accuracy")
    parts = {"train": "train", "valid": "valid", "test": "eval"}
    return Row(
        run.key,
        "done",
        run.to_dict(),
        **result.scores,
        valid_accuracy=best["valid_accuracy"],
        valid_loss=best["valid_loss"],
        best_epoch=course.best_epoch,
        epochs=len(course.history),
        history={name: [float(f"{epoch[name]:.5g}") for epoch in course.history] for name in columns},
        trials={name: len(corpus.part(part)) for name, part in parts.items()},
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        preprocessing=list(corpus.header["steps"]),
        seconds_per_epoch=float(np.median([epoch["duration"] for epoch in course.history])),
        versions=environment,
    )


def run_of(
    corpus: Corpus, model: PretrainedClassifier, options: Mapping[str, Any], training: Mapping[str, Any], seed: int
) -> Run:
    """Return the run of an experiment that has the model and settings of a single training."""
    options = {name: value for name, value in options.items() if value is not False}
    data = corpus.fingerprint[:16]
    if model.report is not None:
        options["weights"] = Path(model.report.source).name
        data = f"{data}{SEPARATOR}{model.report.sha256[:16]}"
    return Run(
        corpus.name,
        1,
        model.name,
        seed=seed,
        data=data,
        options={name: canonicalize(value) for name, value in options.items()},
        training={name: canonicalize(value) for name, value in training.items()},
    )
