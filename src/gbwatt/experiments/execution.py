"""Execution of a run: load the data, train, evaluate once, and return the row."""

from __future__ import annotations

import json
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gbwatt.data import Trials, concatenate, find_dataset, load
from gbwatt.data.splits import Splitter, add_noise, find_protocol
from gbwatt.decoding.alignment import EuclideanAlignment
from gbwatt.decoding.estimator import EEGDecoder
from gbwatt.decoding.evaluation import scores
from gbwatt.decoding.training import best_row
from gbwatt.decoding.training_record import versions
from gbwatt.errors import ParameterError
from gbwatt.experiments.runs import Row, Run, find_executor
from gbwatt.models.gbwatt import GBWAtt
from gbwatt.models.registry import entry, from_record

#: Training, validation (if any) and test trials.
Parts = tuple[Trials, Trials | None, Trials]


def load_parts(run: Run, root: str | Path | None = None) -> Parts:
    """Load the trials of a run and split them by the protocol of the data set; the test trials have no noise yet."""
    trials = load(run.dataset, run.subject, root=root, **run.reading)
    split = _find_protocol(run.dataset, run.protocol).splits(trials)[run.split]
    if run.fraction != 1:
        split = split.limited(trials.y, run.fraction, run.seed)
    if run.training.get("merge_validation"):
        split = split.merged()
    train, valid, test = (trials[part] for part in (split.train, split.valid, split.test))
    if run.noisy_training:
        train = add_noise(train, run.noise, run.seed + 1)
        valid = add_noise(valid, run.noise, run.seed + 2) if len(valid.y) else valid
    return train, valid if len(valid.y) else None, test


def _find_protocol(dataset: str, name: str) -> Splitter:
    """Return the protocol with this name or, if it is empty, that of the data set."""
    return find_protocol(name) if name else find_dataset(dataset).protocol


def with_test_noise(test: Trials, run: Run) -> Trials:
    """Add the noise of a run to its test trials."""
    return add_noise(test, run.noise, run.seed) if run.noise else test


PRETRAINING_BATCH = 64  # trials of all sources together
ILL_CONDITIONED = 1e4  # condition number above which a matrix counts as ill-conditioned


def attempt(runs: Sequence[Run], root: str | Path | None = None, threads: int = 1) -> list[Row]:
    """Execute runs that share one training, and add duration, time and warnings to their rows.

    An exception is not raised: all runs get rows with the status "failed" and the traceback.
    """
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            rows = execute(runs, root, threads)
        except Exception:  # any error: the other runs continue
            text = traceback.format_exc()
            rows = [Row(run.key, "failed", run.to_dict(), traceback=text, versions=versions()) for run in runs]
    texts = list(dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in caught)) or None
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return [row._replace(seconds=time.perf_counter() - started, finished=now, warnings=texts) for row in rows]


def execute(runs: Sequence[Run], root: str | Path | None = None, threads: int = 1) -> list[Row]:
    """Train once for runs that share their training, and evaluate the network on the test trials of each run.

    Runs on a data set with an :class:`~gbwatt.experiments.runs.Executor` are executed by it, one by one.
    """
    torch.set_num_threads(threads)
    executor = find_executor(runs[0].dataset)
    if executor is not None:
        return [executor.execute(run, root) for run in runs]
    if runs[0].unlabelled:
        return list(_execute_unlabelled(runs, root))
    parts = load_parts(runs[0], root)
    with TemporaryDirectory() as folder:
        weights: list[Path] = []
        if _has_sources(runs[0]):
            if entry(runs[0].model).classical:
                parts = _pool_sources(runs[0], parts, root)
            else:
                weights = _pretrain_members(runs[0], root, Path(folder))
        decoder = make_decoder(runs[0], parts[1], weights).fit(parts[0])
    return [_make_row(run, decoder, parts) for run in runs]


def _pretrain_members(run: Run, root: str | Path | None, folder: Path) -> list[Path]:
    """Train the initial weights of a run on its source subjects, and return their folders, one for each network."""
    folders = [folder / str(number) for number in range(run.training.get("n_members", 1))]
    for number, path in enumerate(folders):
        path.mkdir()
        for name, content in _pretrain(_pretraining_record(run), run.seed + 1000 * number, root):
            (path / name).write_bytes(content)
    return folders


def _has_sources(run: Run) -> bool:
    """Return whether a run uses trials of other subjects, to pretrain a network or to train a classical pipeline."""
    return "sources" in run.training


def _pretraining_record(run: Run) -> str:
    """Describe the pretraining of a run, except its seed, as JSON text: the key by which runs share its result.

    If the subject is itself a source, test trials of all sources are left out; otherwise all trials of the sources are
    used.
    """
    whole = run.subject not in run.training["sources"]
    names = ("sources", "pretraining_epochs", "paradigm")  # pipelines have the first only
    settings = {name: run.training[name] for name in names if name in run.training}
    record = {"dataset": run.dataset, "options": run.options, "reading": run.reading, "protocol": run.protocol}
    return json.dumps({**record, "split": None if whole else run.split, **settings}, sort_keys=True)


@lru_cache(maxsize=5)
def _pretrain(record: str, seed: int, root: str | Path | None) -> list[tuple[str, bytes]]:
    """Train a network on aligned trials of source subjects, and return the files of the saved model.

    ``record`` is that of :func:`_pretraining_record`.  Runs of the same process share the result.
    """
    settings = json.loads(record)
    decoder = EEGDecoder(
        "gbwatt",
        model_options=settings["options"],
        validation=None,
        seed=seed,
        batch_size=PRETRAINING_BATCH,
        paradigm=settings["paradigm"],
        max_epochs=settings.get("pretraining_epochs"),
    ).fit(_load_aligned_sources(record, root))
    with TemporaryDirectory() as folder:
        decoder.save_pretrained(folder, fingerprints=False)
        return [(path.name, path.read_bytes()) for path in sorted(Path(folder).iterdir())]


@lru_cache(maxsize=2)
def _load_aligned_sources(record: str, root: str | Path | None) -> Trials:
    """Load the trials of all source subjects in a record of :func:`_pretraining_record`.

    The trials of each subject are aligned by their own mean covariance.
    """
    aligned: Trials = EuclideanAlignment().fit_transform(_load_sources(json.loads(record), root))
    return aligned


def _load_sources(settings: Mapping[str, Any], root: str | Path | None) -> Trials:
    """Load the trials of all source subjects; ``settings`` is a record of :func:`_pretraining_record`.

    If a split is given, its test trials are left out.  A source without this split has no run that is tested on it.
    """
    name, split = settings["dataset"], settings["split"]
    parts = []
    for subject in settings["sources"]:
        trials = load(name, subject, root=root, **settings["reading"])
        splits = [] if split is None else _find_protocol(name, settings["protocol"]).splits(trials)
        parts.append(trials[splits[split].merged().train] if split is not None and split < len(splits) else trials)
    return concatenate(parts)


def training_trials(run: Run, root: str | Path | None = None) -> tuple[Trials, Trials | None]:
    """Load the labelled training trials of a run, and its validation trials, if any.

    Runs without labels of their own subject have all trials of the sources, and no validation trials.

    Raises
    ------
    ParameterError
        If a subject whose labels must not be used is among the sources.
    """
    if not run.unlabelled:
        return load_parts(run, root)[:2]
    sources = run.training.get("sources") or ()
    if not sources or run.subject in sources:
        raise ParameterError(
            f"sources={list(sources)} must be other subjects than {run.subject}, whose labels are not used "
            "(own_trials: unlabelled)."
        )
    return _load_sources(json.loads(_pretraining_record(run)), root), None


def _execute_unlabelled(runs: Sequence[Run], root: str | Path | None) -> Iterator[Row]:
    """Train once on other subjects and, for each run, adapt to its training trials, whose labels are not used."""
    sources, _ = training_trials(runs[0], root)
    decoder = make_decoder(runs[0], None).fit(sources)
    for run in runs:
        train, valid, test = load_parts(run, root)
        if decoder.domains_ is not None:  # estimated anew for each run
            decoder.adapt(_joined(train, valid))
        yield _make_row(run, decoder, (sources, None, test))


def _joined(train: Trials, valid: Trials | None) -> Trials:
    """Return training and validation trials together."""
    return train if valid is None else concatenate([train, valid])


def _pool_sources(run: Run, parts: Parts, root: str | Path | None) -> Parts:
    """Add the trials of source subjects to the training trials of a run with a classical pipeline.

    All trials are aligned.  The alignment of the subject is fitted to its training trials.
    """
    train, valid, test = parts
    own = _joined(train, valid)
    alignment = EuclideanAlignment().fit(own)
    sources = _load_aligned_sources(_pretraining_record(run), root)
    sources = sources[sources.subject != run.subject]  # whose trials are among the own ones
    return concatenate([sources, alignment.transform(own)]), None, alignment.transform(test)


def _make_row(run: Run, decoder: EEGDecoder, parts: Parts) -> Row:
    """Evaluate a trained decoder on the test trials of a run, and return the row of results."""
    history, test = decoder.history_, with_test_noise(parts[2], run)
    at_best = best_row(history) if history else {}
    sizes = [0 if part is None else len(part.y) for part in parts]
    return Row(
        run.key,
        "done",
        run.to_dict(),
        **{name: value for name, value in scores(decoder, test).items() if name in Row._fields},
        valid_accuracy=at_best.get("valid_accuracy"),
        valid_loss=at_best.get("valid_loss"),
        best_epoch=decoder.best_epoch_,
        epochs=len(history),
        history=columns(history),
        conditions=conditions(decoder, test),
        trials=dict(zip(("train", "valid", "test"), sizes, strict=True)),
        parameters=sum(p.numel() for p in decoder.net_.module_.parameters() if p.requires_grad),
        preprocessing=[dict(step) for step in test.steps],
        seconds_per_epoch=float(np.median([row["duration"] for row in history])) if history else None,
        versions=versions(),
    )


def columns(history: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Convert a training history for a row of results: losses and validation accuracy, each as a list over epochs.

    Values are rounded to five significant digits.

    Examples
    --------
    >>> columns([{"train_loss": 1.2345678, "lr": 0.1}, {"train_loss": 0.5, "lr": 0.1}])
    {'train_loss': [1.2346, 0.5]}
    """
    return {
        name: [float(f"{row[name]:.5g}") for row in history]
        for name in ("train_loss", "valid_loss", "valid_accuracy")
        if history and name in history[0]
    }


#: Training settings that the split, the key and the pretraining use.
_NOT_FOR_DECODER = ("merge_validation", "paradigm_revision", "sources", "own_trials", "pretraining_epochs")


def make_decoder(run: Run, validation: Trials | None, initialization: Sequence[Path] = ()) -> EEGDecoder:
    """Make the untrained classifier of a run.

    ``validation`` are its validation trials, and ``initialization`` the folders of weights from other subjects, which
    determine the architecture.
    """
    training = {name: value for name, value in run.training.items() if name not in _NOT_FOR_DECODER}
    options = from_record(run.model, run.options)
    if initialization:
        options, training = {}, {**training, "paradigm": None, "initialization": list(initialization)}
    return EEGDecoder(
        run.model,
        task=find_dataset(run.dataset).task,
        model_options=options,
        validation=validation,
        seed=run.seed,
        **training,
    )


def conditions(decoder: EEGDecoder, test: Trials) -> dict[str, dict[str, float]] | None:
    """Summarize the condition numbers of the test trials' matrices before and after attention, for a row of results.

    None for networks without attention on SPD matrices.
    """
    module = decoder.net_.module_
    if not isinstance(module, GBWAtt) or module.config["attention"] != "spd":
        return None
    network, aligned, domain = decoder.network_for(test)
    x = torch.as_tensor(aligned * decoder.scale_, dtype=next(module.parameters()).dtype)
    with torch.no_grad():
        before, after = network(x, *domain, details=True).condition_numbers()
    return {"before": _summarize_conditions(before.numpy()), "after": _summarize_conditions(after.numpy())}


def _summarize_conditions(values: NDArray[Any]) -> dict[str, float]:
    """Return the share of ill-conditioned matrices, and the median and largest condition number."""
    return {
        "share": float((values > ILL_CONDITIONED).mean()),
        "median": float(np.median(values)),
        "largest": float(values.max()),
    }
