"""Cost of an epoch of the classifier beyond its training steps."""

from __future__ import annotations

import copy
import functools
import statistics
import time
from typing import Any, NamedTuple

import torch
from contestants import Contestant, recordings, split
from torch import nn

from gbwatt.data import load
from gbwatt.data.trials import Trials
from gbwatt.decoding import Callback, GBWAttClassifier
from gbwatt.decoding.training import OrderedBatches, ShuffledBatches, Trainer
from gbwatt.errors import MissingFileError
from gbwatt.nn.optim import make_optimizer

MAMEM = "mamem-ssvep-ii"


class Seconds(NamedTuple):
    """Durations of an epoch and of its parts."""

    epoch: float
    steps: float
    predictions: float


@functools.cache
def trials() -> tuple[str, Trials, Trials]:
    """Name, training and validation trials: of MAMEM's first subject, or simulated ones without its files."""
    try:
        return MAMEM, *split(MAMEM, load(MAMEM, 1))
    except MissingFileError:
        return "simulated-ssvep", *recordings("ssvep")


class Stopwatch(Callback):
    """Times epochs, and between them, on a copy, the bare steps of the next one: the same weights and batches.

    It has to be the last callback, so that an epoch lasts until the callbacks before it are done.
    """

    def on_epoch_begin(self, net: Trainer, dataset_train: Any, dataset_valid: Any, **_: Any) -> None:
        """Make a copy of the network before the first epoch."""
        if len(net.history) == 1:
            self.rows: list[Seconds] = []
            model = copy.deepcopy(net.module_)
            self.runner = Contestant("", model, make_optimizer(model, net.lr, net.weight_decay))
            self._bare(net, dataset_train, dataset_valid)

    def on_epoch_end(self, net: Trainer, dataset_train: Any, dataset_valid: Any, **_: Any) -> None:
        """Take the time, and then the bare steps."""
        self.rows.append(Seconds(time.perf_counter() - self.start, *self.before))
        self._bare(net, dataset_train, dataset_valid)

    def _bare(self, net: Trainer, train: ShuffledBatches, valid: OrderedBatches) -> None:
        self.runner.model.load_state_dict(net.module_.state_dict())
        self.before = _steps(self.runner, train, net.seed, len(net.history) + 1), _predictions(self.runner.model, valid)
        self.start = time.perf_counter()


def _steps(runner: Contestant, train: ShuffledBatches, seed: int, epoch: int) -> float:
    """The sum of the steps; taking batches out of the set does not count."""
    runner.model.train()
    return sum(runner.seconds(batch) for (batch,) in train.epoch(seed, epoch))


@torch.no_grad()
def _predictions(model: nn.Module, valid: OrderedBatches) -> float:
    model.eval()
    start = time.perf_counter()
    nn.functional.cross_entropy(model(valid.examples.x), valid.examples.y)
    return time.perf_counter() - start


def measure(epochs: int) -> Seconds:
    """Medians over a training: the shortest of long durations and of short ones would not be comparable."""
    _, train, valid = trials()
    stopwatch = Stopwatch()
    GBWAttClassifier(task="ssvep", max_epochs=epochs, validation=valid, callbacks=[stopwatch]).fit(train)
    return Seconds(*(statistics.median(column) for column in zip(*stopwatch.rows[1:], strict=True)))
