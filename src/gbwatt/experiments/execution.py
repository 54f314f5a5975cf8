"""One run: load the data, train, test once, and make the row."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gbwatt.data import Trials, find_dataset, load
from gbwatt.data.splits import add_noise
from gbwatt.decoding.estimator import EEGDecoder
from gbwatt.decoding.evaluation import scores
from gbwatt.decoding.training_record import versions
from gbwatt.experiments.runs import Row, Run, find_executor
from gbwatt.models.gbwatt import GBWAtt
from gbwatt.models.registry import from_record


class Parts(NamedTuple):
    """What a model learns from, is selected on, and is tested on."""

    train: Trials
    valid: Trials | None
    test: Trials


def parts_of(run: Run, root: str | Path | None = None) -> Parts:
    """The trials of a run, divided by the protocol of the data set, those for training as the run wants them."""
    dataset = find_dataset(run.dataset)
    trials = load(run.dataset, run.subject, root=root)
    split = dataset.protocol.splits(trials)[run.split]
    if run.fraction != 1:
        split = split.limited(trials.y, run.fraction, run.seed)
    train, valid, test = (trials[part] for part in (split.train, split.valid, split.test))
    if run.noisy_training:
        train = add_noise(train, run.noise, run.seed + 1)
        valid = add_noise(valid, run.noise, run.seed + 2) if len(valid.y) else valid
    return Parts(train, valid if len(valid.y) else None, test)


def noisy(test: Trials, run: Run) -> Trials:
    """The trials for test as the run wants them."""
    return add_noise(test, run.noise, run.seed) if run.noise else test


ILL = 1e4  # condition number that counts as ill


def attempt(runs: Sequence[Run], root: str | Path | None = None, threads: int = 1) -> list[Row]:
    """The rows of runs with one training; of what fails, those of its failure, with the traceback."""
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            rows = execute(runs, root, threads)
        except Exception:  # whatever it was, the other runs go on
            said = traceback.format_exc()
            rows = [Row(run.key, "failed", run.to_dict(), traceback=said, versions=versions()) for run in runs]
    texts = list(dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in caught)) or None
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return [row._replace(seconds=time.perf_counter() - started, finished=now, warnings=texts) for row in rows]


def execute(runs: Sequence[Run], root: str | Path | None = None, threads: int = 1) -> list[Row]:
    """Train as runs with one training say, and test; trials for test are scored once, after training."""
    torch.set_num_threads(threads)
    executor = find_executor(runs[0].dataset)
    if executor is not None:
        return [executor.execute(run, root) for run in runs]
    parts = parts_of(runs[0], root)
    decoder = decoder_of(runs[0], parts).fit(parts.train)
    return [_row(run, decoder, parts) for run in runs]


def _row(run: Run, decoder: EEGDecoder, parts: Parts) -> Row:
    """What a trained decoder leaves of a run."""
    history, test = decoder.history_, noisy(parts.test, run)
    at_best = history[decoder.best_epoch_ - 1]
    return Row(
        run.key,
        "done",
        run.to_dict(),
        **scores(decoder, test),
        valid_accuracy=at_best.get("valid_accuracy"),
        valid_loss=at_best.get("valid_loss"),
        best_epoch=decoder.best_epoch_,
        epochs=len(history),
        history=columns(history),
        conditions=conditions(decoder, test),
        trials={name: 0 if part is None else len(part.y) for name, part in parts._asdict().items()},
        parameters=sum(p.numel() for p in decoder.net_.module_.parameters() if p.requires_grad),
        preprocessing=[dict(step) for step in test.steps],
        seconds_per_epoch=float(np.median([row["duration"] for row in history])),
        versions=versions(),
    )


def columns(history: list[dict[str, Any]]) -> dict[str, list[float]]:
    """What is told of a training, a list for each quantity, to five digits.

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


def decoder_of(run: Run, parts: Parts) -> EEGDecoder:
    """The classifier of a run, not trained yet."""
    return EEGDecoder(
        run.model,
        task=find_dataset(run.dataset).task,
        model_options=from_record(run.model, run.options),
        validation=parts.valid,
        seed=run.seed,
        **run.training,
    )


def conditions(decoder: EEGDecoder, test: Trials) -> dict[str, dict[str, float]] | None:
    """Condition numbers of the matrices before and after attention; None for networks without."""
    module = decoder.net_.module_
    if not isinstance(module, GBWAtt) or module.config["attention"] != "spd":
        return None
    x = torch.as_tensor(test.X * decoder.scale_, dtype=next(module.parameters()).dtype)
    with torch.no_grad():
        before, after = module(x, details=True).condition_numbers()
    return {"before": _summary(before.numpy()), "after": _summary(after.numpy())}


def _summary(values: NDArray[Any]) -> dict[str, float]:
    return {
        "share": float((values > ILL).mean()),
        "median": float(np.median(values)),
        "largest": float(values.max()),
    }
