"""What an epoch of the classifier costs beyond the steps of its training."""

from __future__ import annotations

import copy
import functools
import statistics
import time
from typing import Any, NamedTuple

import torch
from contestants import Contestant, recordings, split
from skorch.callbacks import Callback
from torch import nn

from gbwatt.data import load
from gbwatt.data.trials import Trials
from gbwatt.decoding import GBWAttClassifier
from gbwatt.decoding.inputs import Examples, Sets
from gbwatt.decoding.training import Batches, Net, start_epoch
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
    """Name, training and validation trials: of MAMEM's first subject, or simulated if the files are not there."""
    try:
        return MAMEM, *split(MAMEM, load(MAMEM, 1))
    except MissingFileError:
        return "simulated-ssvep", *recordings("ssvep")


class Stopwatch(Callback):  # type: ignore[misc]
    """Times epochs, and between them, on a copy, the bare steps of the next one: the same weights and batches.

    It has to be the last of the callbacks, so that an epoch lasts from its end to the end of all others'.
    """

    def on_train_begin(self, net: Net, X: Sets, **_: Any) -> None:
        """Make a copy of the network."""
        self.sets, self.rows = X, []
        model = copy.deepcopy(net.module_)
        self.runner = Contestant("", model, make_optimizer(model, net.lr, net.weight_decay))
        self._bare(net)

    def on_epoch_end(self, net: Net, **_: Any) -> None:
        """Take the time, and then the bare steps."""
        self.rows.append(Seconds(time.perf_counter() - self.start, *self.before))
        self._bare(net)

    def _bare(self, net: Net) -> None:
        self.runner.model.load_state_dict(net.module_.state_dict())
        start_epoch(net.seed, len(net.history) + 1, torch.device("cpu"))
        self.before = _steps(self.runner, self.sets.train, net.batch_size), _predictions(self.runner.model, self.sets)
        self.start = time.perf_counter()


def _steps(runner: Contestant, train: Examples, batch_size: int) -> float:
    """The sum of the steps; taking batches out of the set does not count."""
    runner.model.train()
    return sum(runner.seconds(batch) for batch in Batches(train, batch_size, shuffle=True))


@torch.no_grad()
def _predictions(model: nn.Module, sets: Sets) -> float:
    assert sets.valid is not None
    model.eval()
    start = time.perf_counter()
    nn.functional.cross_entropy(model(sets.valid.x), sets.valid.y)
    return time.perf_counter() - start


class Watched(GBWAttClassifier):
    """The classifier with a stopwatch."""

    def _initialized(self, module: nn.Module, training: Any, weights: Any, watchers: list[Any]) -> Net:
        self.stopwatch_ = Stopwatch()
        return super()._initialized(module, training, weights, [*watchers, self.stopwatch_])


def measure(epochs: int) -> Seconds:
    """Medians over a training: the shortest of long durations and of short ones would not be comparable."""
    _, train, valid = trials()
    classifier = Watched(task="ssvep", max_epochs=epochs, validation=valid).fit(train)
    return Seconds(*(statistics.median(column) for column in zip(*classifier.stopwatch_.rows[1:], strict=True)))
