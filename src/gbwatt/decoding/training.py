"""The training loop: batches, random numbers, optimiser, and checks of the loss."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from skorch import NeuralNet
from skorch.utils import TeeGenerator
from torch import Tensor, nn

from gbwatt.decoding import nonfinite
from gbwatt.decoding.inputs import Examples, Sets
from gbwatt.errors import NonFiniteLossError, ShapeError
from gbwatt.nn.manifolds import RiemannianAdam
from gbwatt.nn.optim import make_optimizer


@contextmanager
def isolated(device: torch.device) -> Iterator[None]:
    """Give torch's generators back as they were."""
    if device.type == "cpu":
        with torch.random.fork_rng(devices=[]):
            yield
    else:
        with torch.random.fork_rng(devices=[device.index or 0], device_type=device.type):
            yield


def start_epoch(seed: int, epoch: int, device: torch.device) -> None:
    """Set the generators for an epoch, counted from 1; 0 is the initialisation.

    All that is random in an epoch follows, so a training can continue after any of them without a stored state.
    """
    value = int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0])
    torch.default_generator.manual_seed(value)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(value)


def batch_sizes(n: int, batch_size: int, whole: bool = False) -> list[int]:
    """Sizes of the batches of n trials; with ``whole`` none has a single trial: a last one joins the batch before.

    Batch normalisation has no variance of a single trial.

    Examples
    --------
    >>> batch_sizes(9, 4), batch_sizes(9, 4, whole=True), batch_sizes(3, 64)
    ([4, 4, 1], [4, 5], [3])
    """
    sizes = [batch_size] * (n // batch_size) + [n % batch_size] * (n % batch_size > 0)
    if whole and len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [batch_size + 1]
    return sizes


class Batches:
    """All trials once, in batches; shuffled for training, in order otherwise."""

    def __init__(self, trials: Examples, batch_size: int, shuffle: bool) -> None:
        if shuffle and len(trials) < 2:
            raise ShapeError(f"{len(trials)} training trial is too few; at least 2 are needed.")
        self.trials, self.shuffle = trials, shuffle
        self.sizes = batch_sizes(len(trials), batch_size, whole=shuffle)

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.trials)).split(self.sizes) if self.shuffle else self._slices()
        for index in order:
            yield self.trials[index]

    def _slices(self) -> Iterator[slice]:
        """Trials in order, which need no copy."""
        ends = itertools.accumulate(self.sizes)
        return (slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True))


class StopTraining(Exception):
    """Raised by a callback at the end of an epoch: the training has done enough."""


class Net(NeuralNet):  # type: ignore[misc]
    """A classifier's module, its optimiser and its training.

    ``class_weights`` (n_classes,) weigh the cross entropy.  ``seed`` and the number of an epoch determine all that is
    random in it.  The other arguments are skorch's.
    """

    def __init__(
        self,
        *args: Any,
        seed: int = 0,
        weight_decay: float = 0.0,
        class_weights: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, criterion=nn.CrossEntropyLoss, optimizer=RiemannianAdam, **kwargs)
        self.seed = seed
        self.weight_decay = weight_decay
        self.class_weights = class_weights

    # ---- what skorch asks for

    def get_default_callbacks(self) -> list[Any]:
        """None: all are given."""
        return []

    def initialize_criterion(self) -> Net:
        """Cross entropy of logits."""
        self.criterion_ = nn.CrossEntropyLoss(weight=self.class_weights)
        return self

    def initialize_optimizer(self, triggered_directly: None = None) -> Net:  # noqa: ARG002
        """Riemannian Adam, with weight decay on Euclidean parameters."""
        self.optimizer_ = make_optimizer(self.module_, self.lr, self.weight_decay)
        return self

    def get_split_datasets(self, X: Sets, y: None = None, **_: Any) -> tuple[Examples, Examples | None]:  # noqa: ARG002
        """The sets as they are: the split was made before."""
        return X.train, X.valid

    def get_iterator(self, dataset: Examples, training: bool = False) -> Batches:
        """Batches, shuffled for training, else of twice the size: without a graph they need no more memory."""
        return Batches(dataset, self.batch_size * (1 if training else 2), shuffle=training)

    def on_epoch_begin(self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any) -> None:
        """Open a row of the history, and set the random numbers."""
        super().on_epoch_begin(net, dataset_train=dataset_train, dataset_valid=dataset_valid, **kwargs)
        start_epoch(self.seed, len(self.history), torch.device(self.device))

    # ---- training

    def learn(self, sets: Sets) -> None:
        """Train for the epochs that the history lacks, to the end or until a callback stops it.

        Whatever ends it, callbacks see the end, and the history has complete epochs only.
        """
        self.notify("on_train_begin", X=sets)
        try:
            self.fit_loop(sets, epochs=self.max_epochs - len(self.history))
        except StopTraining:
            pass  # a regular end, which early stopping asked for
        finally:
            while self.history and "train_loss" not in self.history[-1]:
                del self.history[-1]
            self.notify("on_train_end", X=sets)

    def _set_training(self, training: bool = True) -> None:
        """Only where it is not so already: to ask every module takes longer than some of their work."""
        if self.module_.training != training:
            super()._set_training(training)

    def run_single_epoch(self, iterator: Batches | None, training: bool, prefix: str, step_fn: Any, **_: Any) -> None:
        """All batches once, each with its row in the history."""
        if iterator is None:
            return
        rows = self.history[-1]["batches"]
        for batch in iterator:
            self.notify("on_batch_begin", batch=batch, training=training)
            step = step_fn(batch)
            rows[-1] |= {f"{prefix}_loss": step["loss"].item(), f"{prefix}_batch_size": len(batch[0])}
            self.notify("on_batch_end", batch=batch, training=training, **step)
        self.history.record(f"{prefix}_batch_count", len(iterator))

    def train_step(self, batch: Any, **_: Any) -> dict[str, Tensor]:
        """One step of the optimiser, if the numbers are finite."""
        with self._watched(batch, training=True):
            self.optimizer_.zero_grad()
            step: dict[str, Tensor] = self.train_step_single(batch)
            parameters = TeeGenerator(self.get_all_learnable_params())
            self.notify("on_grad_computed", named_parameters=parameters, batch=batch, training=True)
            self.optimizer_.step()
        return step

    def validation_step(self, batch: Any, **params: Any) -> Any:
        """The loss of a batch in evaluation mode."""
        with self._watched(batch, training=False):
            return super().validation_step(batch, **params)

    def infer(self, x: Tensor, **_: Any) -> Tensor:
        """The logits."""
        logits: Tensor = self.module_(x.to(self.device))
        return logits

    def get_loss(self, y_pred: Tensor, y_true: Tensor, X: Tensor, training: bool = False) -> Tensor:
        """The loss, which has to be finite."""
        loss: Tensor = self.criterion_(y_pred, y_true.to(y_pred.device))
        if not math.isfinite(loss.item()):
            raise self._explained(X, training)
        return loss

    def on_grad_computed(self, net: Any, named_parameters: Any, batch: Any = None, **kwargs: Any) -> None:
        """Require finite gradients before the optimiser uses them."""
        super().on_grad_computed(net, named_parameters, batch=batch, **kwargs)
        trained = (p.grad for group in self.optimizer_.param_groups for p in group["params"])
        if not nonfinite.finite([grad for grad in trained if grad is not None]):
            raise self._explained(batch[0], training=True)

    @contextmanager
    def _watched(self, batch: Any, training: bool) -> Iterator[None]:
        """Say where it was, if the numbers were such that a matrix function refused them."""
        try:
            yield
        except nonfinite.NUMERICAL_ERRORS as error:
            if nonfinite.find_culprit(self.module_, batch[0].to(self.device)) is not None:
                raise self._explained(batch[0], training) from error
            error.add_note(f"This was in epoch {len(self.history)}, batch {self._batch()}.")
            raise

    def _batch(self) -> int:
        return len(self.history[-1]["batches"])

    def _explained(self, x: Tensor, training: bool) -> NonFiniteLossError:
        found = nonfinite.find_culprit(self.module_, x.to(self.device))
        culprit, remedy = found or ("all outputs are finite, but too large for the loss", "Take a smaller lr.")
        remedy = remedy.replace("a smaller lr", f"a smaller lr than {self.lr:g}")
        return NonFiniteLossError(len(self.history), self._batch(), culprit, remedy, training)
