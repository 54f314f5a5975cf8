"""The training loop for examples in memory and for corpora read in shards, and the diagnosis of non-finite losses."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gbwatt.decoding.callbacks import INITIAL, Callback, StopTraining
from gbwatt.decoding.inputs import Examples
from gbwatt.decoding.metrics import BatchScores, summarize, weighted_cross_entropy
from gbwatt.decoding.sharding import Batch, SingleProcess, gather, hash_numbers, seed_generators
from gbwatt.errors import NonFiniteLossError, NotFiniteError, NotSPDError, NotSymmetricError, ParameterError, ShapeError
from gbwatt.nn.optim import RiemannianAdam, is_part, parameter_groups, require_parts

# ------------------------------------------------------------------------------------------------------ random numbers


@contextmanager
def isolated(device: torch.device) -> Iterator[None]:
    """Restore the states of torch's random generators on exit."""
    devices = [] if device.type == "cpu" else [device.index or 0]  # the CPU's generator is always restored
    with torch.random.fork_rng(devices, device_type=device.type if devices else "cuda"):
        yield


def start_epoch(seed: int, epoch: int, device: torch.device) -> None:
    """Seed torch's random generators for an epoch, counted from 1; 0 is the initialisation.

    All random numbers of an epoch depend on ``seed`` and ``epoch`` only, so training can continue after any epoch
    without a stored state.
    """
    seed_generators(hash_numbers(seed, epoch), device)


# ------------------------------------------------------------------------------------------------------------- batches


class TrainingBatches(Protocol):
    """The batches of an epoch; a batch is one or more shards, and each shard is one pass through the network.

    Attributes
    ----------
    sizes : list of int
        Number of examples in each batch of an epoch, those of all processes together.
    n_shards : int
        Number of shards of a batch that this process computes.
    """

    sizes: list[int]
    n_shards: int

    def epoch(self, seed: int, epoch: int, start: int = 0) -> Iterator[Iterable[Batch]]:
        """Batches of an epoch from number ``start`` on, each as this process's shards.

        Seeds torch's random generators by ``seed`` and ``epoch``: once for an epoch, or before each shard.
        """


def batch_sizes(n: int, batch_size: int, merge_single: bool = False) -> list[int]:
    """Sizes of the batches of n trials; with ``merge_single``, a single last trial joins the batch before.

    Batch normalisation cannot estimate a variance from a single trial.

    Examples
    --------
    >>> batch_sizes(9, 4), batch_sizes(9, 4, merge_single=True), batch_sizes(3, 64)
    ([4, 4, 1], [4, 5], [3])
    """
    sizes = [batch_size] * (n // batch_size) + [n % batch_size] * (n % batch_size > 0)
    if merge_single and len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [batch_size + 1]
    return sizes


class ShuffledBatches:
    """Training batches of examples in memory, in a new random order each epoch; a batch is one shard.

    Batch normalisation needs at least two examples, unless its statistics are fixed: then a ``single`` one is enough.
    """

    n_shards = 1

    def __init__(
        self, examples: Examples, batch_size: int, device: str | torch.device = "cpu", *, single: bool = False
    ) -> None:
        if len(examples) < 2 and not single:
            raise ShapeError(f"{len(examples)} training trial is too few; at least 2 are needed.")
        self.examples, self.device = examples, torch.device(device)
        self.sizes = batch_sizes(len(examples), batch_size, merge_single=True)

    def epoch(self, seed: int, epoch: int, start: int = 0) -> Iterator[list[Batch]]:
        """Batches of an epoch, after seeding torch's random generators for it."""
        start_epoch(seed, epoch, self.device)
        for index in torch.randperm(len(self.examples)).split(self.sizes)[start:]:
            yield [self.examples[index]]


class OrderedBatches:
    """Batches of examples in memory, in order and without copies."""

    def __init__(self, examples: Examples, batch_size: int) -> None:
        self.examples, self.sizes = examples, batch_sizes(len(examples), batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for end, size in zip(itertools.accumulate(self.sizes), self.sizes, strict=True):
            yield self.examples[end - size : end]


# ------------------------------------------------------------------------------------------------------------- history


class History(list[dict[str, Any]]):
    """A row for each epoch, the last of which may be incomplete; ``history[-1, "lr"]`` is an entry, as in skorch."""

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, tuple):
            return super().__getitem__(index)
        rows: Any = super().__getitem__(index[0])
        return rows[index[1]] if isinstance(rows, dict) else [row[index[1]] for row in rows]

    def record(self, name: str, value: Any) -> None:
        """Add an entry to the last row."""
        self[-1][name] = value


def best_epoch(history: Sequence[Mapping[str, Any]]) -> int:
    """Number of the epoch with the lowest validation loss, the first of equals; without validation the last.

    0 stands for the initial weights, which are candidates if their loss is in the first row.

    Examples
    --------
    >>> best_epoch([{"valid_loss": 0.9}, {"valid_loss": 0.7}, {"valid_loss": 0.7}])
    2
    >>> best_epoch([{}, {}]), best_epoch([]), best_epoch([{"valid_loss": 0.9, "initial_valid_loss": 0.8}])
    (2, 0, 0)
    """
    losses = [row["valid_loss"] for row in history if "valid_loss" in row]
    if not losses:
        return len(history)
    losses.insert(0, history[0].get(INITIAL["valid_loss"], math.inf))
    return losses.index(min(losses))


def best_row(history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Scores of the weights that are used; of epoch 0, the initial weights, those of validation only."""
    epoch = best_epoch(history)
    if epoch:
        return dict(history[epoch - 1])
    return {"epoch": 0, **{name: history[0][initial] for name, initial in INITIAL.items()}}


# ------------------------------------------------------------------------------------------------------------ schedule

#: Learning rate at the end of a cosine schedule, relative to the highest one.
SMALLEST_RATE = 1e-2


def cosine_rate(step: int, n_steps: int, warmup: float = 0.0) -> float:
    """Learning rate relative to the highest one, which decreases along half a period of a cosine.

    Parameters
    ----------
    step : int
        Number of steps done.
    n_steps : int
        Number of steps of the whole training.
    warmup : float
        Number of steps at the beginning in which the rate increases linearly.

    Returns
    -------
    float

    Examples
    --------
    >>> [round(cosine_rate(step, 100), 2) for step in (0, 50, 100)]
    [1.0, 0.5, 0.01]
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = (step - warmup) / max(1.0, n_steps - warmup)
    return SMALLEST_RATE + (1 - SMALLEST_RATE) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


# ------------------------------------------------------------------------------------------------------------- trainer


class Trainer:
    """A network, its optimiser, and their training on the cross entropy.

    The weights of the epoch with the lowest validation loss are kept.  A loss or gradient that is not finite raises
    :class:`~gbwatt.errors.NonFiniteLossError` before the weights change.

    Parameters
    ----------
    module : nn.Module
        A network with logits as its output.
    lr : float
        Learning rate, of the last stage if ``group_options`` has stages.
    batch_size : int
        :meth:`forward` takes twice as many examples at a time, since it needs no gradients.
    max_epochs : int
    weight_decay : float
    seed : int
    class_weights : Tensor (n_classes,), optional
        Weights of the classes in the loss.
    label_smoothing : float
        Of the training loss.
    early_stopping : int, optional
        Stop when this many epochs in a row have not lowered the validation loss.
    schedule : callable, optional
        Factor of the learning rates as a function of the number of steps done and of the steps per epoch.  By default
        the trainer does not change learning rates.
    group_options : mapping, optional
        Arguments of :func:`~gbwatt.nn.optim.parameter_groups`.
    decoupled_decay : bool
        Multiply decaying weights by ``1 - lr * weight_decay`` after each step, instead of adding to their gradients.
    balanced_accuracy : bool
        Whether ``valid_accuracy`` is the mean recall of the classes.
    frozen : sequence of str
        Names of parts of the module, as in :func:`~gbwatt.nn.optim.require_parts`, whose parameters and statistics stay
        as they are.
    keep_initial : bool
        Also validate the initial weights, and keep them if no epoch has a lower loss.
    fixed_statistics : bool
        Whether all normalisations use their running statistics in training, too, and keep them.
    callbacks : sequence of Callback
    accelerator : accelerate.Accelerator or SingleProcess, optional
        Device and processes; by default one process on the CPU.

    Attributes
    ----------
    module_ : nn.Module
    model : nn.Module
        The module as the accelerator prepared it, for training.
    optimizer_ : torch.optim.Optimizer
    criterion_ : nn.CrossEntropyLoss
    history : History
        A row for each epoch: ``epoch``, ``train_loss``, ``valid_loss``, ``valid_accuracy``, ``lr`` (the highest of the
        last step) and ``duration`` in seconds.
    device : torch.device
    step, n_steps : int
        Number of steps done in the present epoch, and of all its steps.
    losses : list of float
        Training losses of these steps.
    best_weights : dict of str to Tensor
        During training, the weights of the best epoch so far, or the initial ones.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        lr: float,
        batch_size: int,
        max_epochs: int,
        weight_decay: float = 0.0,
        seed: int = 0,
        class_weights: Tensor | None = None,
        label_smoothing: float = 0.0,
        early_stopping: int | None = None,
        schedule: Callable[[int, int], float] | None = None,
        group_options: Mapping[str, Any] | None = None,
        decoupled_decay: bool = False,
        balanced_accuracy: bool = False,
        frozen: Sequence[str] = (),
        keep_initial: bool = False,
        fixed_statistics: bool = False,
        callbacks: Sequence[Callback] = (),
        accelerator: Any = None,
    ) -> None:
        self.lr, self.batch_size, self.max_epochs = lr, batch_size, max_epochs
        self.weight_decay, self.seed = weight_decay, seed
        self.early_stopping, self.schedule, self.balanced_accuracy = early_stopping, schedule, balanced_accuracy
        self.keep_initial = keep_initial
        self.accelerator = SingleProcess() if accelerator is None else accelerator
        self.device: torch.device = self.accelerator.device
        self.callbacks = _initialize(callbacks)
        self.module_ = module.to(self.device)
        self._frozen_modules = freeze(module, frozen)
        if fixed_statistics:
            self._frozen_modules += [part.eval() for part in module.modules() if "running_mean" in part._buffers]
        self.criterion_ = nn.CrossEntropyLoss(class_weights, label_smoothing=label_smoothing).to(self.device)
        groups = parameter_groups(module, weight_decay, lr=lr, **(group_options or {}))
        self._rates = [group["lr"] for group in groups]
        self._decays = [group["weight_decay"] if decoupled_decay else 0.0 for group in groups]
        if decoupled_decay:
            groups = [{**group, "weight_decay": 0.0} for group in groups]
        self.optimizer_: torch.optim.Optimizer = RiemannianAdam(groups, lr=lr)
        self.model, self._optimizer = self.accelerator.prepare(self.module_, self.optimizer_)
        self.history = History()
        self.step, self.n_steps, self.losses = 0, 0, list[float]()
        self.best_weights: dict[str, Tensor] = {}

    def fit(self, train: TrainingBatches, valid: Iterable[Batch] | None = None) -> Trainer:
        """Train for the epochs that the history lacks, unless early stopping or a callback ends it sooner.

        In any case, also after an error, the network has the weights of the best epoch, the history has complete epochs
        only, and callbacks are notified of the end.
        """
        self.best_weights = self.best_weights or self._copy_weights()
        self.notify("on_train_begin")
        try:
            while len(self.history) < self.max_epochs and not self._is_stalled():
                self._run_epoch(train, valid)
        except StopTraining:
            pass
        finally:
            if self.history and "duration" not in self.history[-1]:
                del self.history[-1]
            self.module_.load_state_dict(self.best_weights)
            self.module_.eval()
            self.step, self.losses, self.best_weights = 0, [], {}
            self.notify("on_train_end")
        return self

    @torch.no_grad()
    def forward(self, x: Tensor, *domain: Tensor) -> Tensor:
        """Logits (n, n_outputs) of examples (n, n_chans, n_times) in evaluation mode, on the CPU.

        ``domain`` is the number of each example's domain (n,), for networks that need it.
        """
        self._set_training(False)
        parts = zip(*(values.split(2 * self.batch_size) for values in (x, *domain)), strict=True)
        return torch.cat([self.module_(*(values.to(self.device) for values in part)).cpu() for part in parts])

    def notify(self, event: str, **arguments: Any) -> None:
        """Call a method of all callbacks."""
        for callback in self.callbacks:
            getattr(callback, event)(self, **arguments)

    # ---- epochs

    def _is_stalled(self) -> bool:
        """Whether the validation loss has not improved for ``early_stopping`` epochs."""
        return self.early_stopping is not None and len(self.history) - best_epoch(self.history) >= self.early_stopping

    def _run_epoch(self, train: TrainingBatches, valid: Iterable[Batch] | None) -> None:
        """Train for an epoch, or the rest of one; validate, and add a row to the history."""
        began, epoch = time.perf_counter(), len(self.history) + 1
        self.history.append({"epoch": epoch})
        self.n_steps = len(train.sizes)
        if epoch == 1 and self.step == 0 and self.keep_initial and valid is not None:
            self.history[0] |= {INITIAL[name]: score for name, score in self._validate(valid).items()}
        self.notify("on_epoch_begin", dataset_train=train, dataset_valid=valid)
        self._set_training(True)
        for shards in train.epoch(self.seed, epoch, self.step):
            self._run_step(shards, train.sizes[self.step], train.n_shards)
        mean = sum(loss * size for loss, size in zip(self.losses, train.sizes, strict=True)) / sum(train.sizes)
        scores = {} if valid is None else self._validate(valid)
        lr = max(group["lr"] for group in self.optimizer_.param_groups)
        self.history[-1] |= {"train_loss": mean, **scores, "lr": lr, "duration": time.perf_counter() - began}
        if best_epoch(self.history) == epoch:
            self.best_weights = self._copy_weights()
        self.notify("on_epoch_end", dataset_train=train, dataset_valid=valid)
        self.step, self.losses = 0, []

    def _set_training(self, training: bool) -> None:
        """Switch the network to training or evaluation mode."""
        if self.module_.training != training:  # visiting all modules takes longer than some of their work
            self.module_.train(training)
            for part in self._frozen_modules:
                part.eval()

    def _copy_weights(self) -> dict[str, Tensor]:
        """Return a copy of the parameters and buffers of the network."""
        return {name: x.detach().clone() for name, x in self.module_.state_dict().items()}

    # ---- steps

    def _run_step(self, shards: Iterable[Batch], size: int, n_shards: int) -> None:
        """One step of the optimiser, for a batch of ``size`` examples in all processes together."""
        self._schedule_rates()
        self.notify("on_batch_begin", training=True)
        inputs: list[Batch] = []
        with self._diagnosing(inputs, self.step + 1, training=True):
            loss, batch, logits = self._compute_gradients(shards, size, n_shards, inputs)
            self._require_finite(loss, inputs)
            if self.callbacks:
                self.notify("on_grad_computed", named_parameters=list(self.module_.named_parameters()), training=True)
            self._optimizer.step()
        if not getattr(self._optimizer, "step_was_skipped", False):  # float16 skips steps with too large gradients
            self._decay_weights()
        self.step += 1
        self.losses.append(loss.item())
        self.notify("on_batch_end", batch=batch, training=True, loss=loss, y_pred=logits)

    def _compute_gradients(
        self, shards: Iterable[Batch], size: int, n_shards: int, inputs: list[Batch]
    ) -> tuple[Tensor, Batch, Tensor]:
        """Add up the gradients of a batch of ``size`` examples over its shards, without an optimiser step.

        Returns
        -------
        loss, last shard, logits of the last shard
            The loss is the mean over the batch.  The inputs of all shards are appended to ``inputs``, for diagnosis.
        """
        self._optimizer.zero_grad()
        total = torch.zeros((), device=self.device)
        for number, shard in enumerate(shards, 1):
            x, y, domain, weight = self._unpack(shard)
            inputs.append((x, *domain))
            share = len(y) / size
            with nullcontext() if number == n_shards else self.accelerator.no_sync(self.model):
                logits = self.model(x, *domain)
                loss = weighted_cross_entropy(logits, y, self.criterion_, weight)
                self.accelerator.backward(loss * (share * self.accelerator.num_processes))  # processes are averaged
            total = total + share * loss.detach()
        return self.accelerator.reduce(total, reduction="sum"), (x, y, *domain), logits.detach()

    def _unpack(self, batch: Batch) -> tuple[Tensor, Tensor, tuple[Tensor, ...], Tensor | None]:
        """Examples, class numbers, domains (in a tuple, which may be empty) and weights of a batch, on the device."""
        x, y, domain, weight = (
            None if values is None else values.to(self.device) for values in (*batch, None, None)[:4]
        )
        assert x is not None  # for the type checker
        assert y is not None
        return x, y, () if domain is None else (domain,), weight

    def _schedule_rates(self) -> None:
        """Set the learning rates of this step, if there is a schedule."""
        if self.schedule is not None:
            factor = self.schedule((len(self.history) - 1) * self.n_steps + self.step, self.n_steps)
            for group, rate in zip(self.optimizer_.param_groups, self._rates, strict=True):
                group["lr"] = rate * factor

    @torch.no_grad()
    def _decay_weights(self) -> None:
        """Apply decoupled weight decay to the parameters."""
        for group, decay in zip(self.optimizer_.param_groups, self._decays, strict=True):
            if decay:
                torch._foreach_mul_(group["params"], 1 - group["lr"] * decay)

    def _require_finite(self, loss: Tensor, inputs: list[Batch]) -> None:
        """Raise an error that explains the cause if the loss is not finite; ``inputs`` are epochs."""
        if not math.isfinite(loss.item()):
            self._optimizer.zero_grad()  # gradients are not the cause
            raise self._diagnosis(inputs, self.step + 1, training=True)
        if self.accelerator.scaler is None:  # which checks gradients itself, and skips the step
            grads = [p.grad for group in self.optimizer_.param_groups for p in group["params"]]
            if not finite([grad for grad in grads if grad is not None]):
                raise self._diagnosis(inputs, self.step + 1, training=True)

    # ---- validation

    @torch.no_grad()
    def _validate(self, valid: Iterable[Batch]) -> dict[str, float]:
        """Loss and accuracy of a whole set."""
        self._set_training(False)
        rows: list[BatchScores] = []
        for number, batch in enumerate(valid, 1):
            x, y, domain, weight = self._unpack(batch)
            epochs = (x, *domain)
            with self._diagnosing([epochs], number, training=False):
                logits = self.module_(*epochs)
            rows.append(BatchScores.of(logits, y, self.criterion_.weight, weight))
            if not math.isfinite(rows[-1].loss):
                raise self._diagnosis([epochs], number, training=False)
            loss = torch.tensor(rows[-1].loss / (rows[-1].weight or 1.0))
            self.notify("on_batch_end", batch=(x, batch[1]), training=False, loss=loss, y_pred=logits)
        mean, accuracy = summarize(gather(self.accelerator, rows), self.balanced_accuracy)
        return {"valid_loss": mean, "valid_accuracy": accuracy}

    # ---- numbers that are not finite

    @contextmanager
    def _diagnosing(self, inputs: list[Batch], batch: int, training: bool) -> Iterator[None]:
        """Explain errors of matrix functions that refused their input."""
        try:
            yield
        except NUMERICAL_ERRORS as error:
            if any(find_culprit(self.module_, *x) for x in inputs):
                raise self._diagnosis(inputs, batch, training) from error
            error.add_note(f"This was in epoch {len(self.history)}, batch {batch}.")
            raise

    def _diagnosis(self, inputs: list[Batch], batch: int, training: bool) -> Exception:
        """Return the error that explains results that are not finite."""
        return diagnose(self.module_, inputs, len(self.history), batch, self.lr, training)


def freeze(module: nn.Module, parts: Sequence[str]) -> list[nn.Module]:
    """Exclude parts of a module from training; return those that are modules, in evaluation mode.

    They must stay in this mode in training, so that their statistics do not change.
    """
    require_parts("frozen", parts, module)
    for name, parameter in module.named_parameters():
        if any(is_part(name, part) for part in parts):
            parameter.requires_grad_(False)
    if parts and not any(parameter.requires_grad for parameter in module.parameters()):
        raise ParameterError(f"frozen={list(parts)} leaves no parameters to train; leave some of them out.")
    return [child.eval() for name, child in module.named_modules() if any(is_part(name, part) for part in parts)]


def _initialize(callbacks: Sequence[Callback]) -> list[Callback]:
    """Check and initialize callbacks; return them as a list."""
    for callback in callbacks:
        if isinstance(callback, type) or not hasattr(callback, "on_epoch_end"):
            raise ParameterError(f"callbacks has {callback!r}; instances of gbwatt.decoding.Callback are needed.")
        callback.initialize()
    return list(callbacks)


#: Errors of a forward or backward pass whose numbers are not finite.
NUMERICAL_ERRORS = (
    NotFiniteError,
    NotSPDError,
    NotSymmetricError,
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
)


def finite(tensors: Sequence[Tensor]) -> bool:
    """Whether all entries of all tensors are finite; usually with a single transfer from the device."""
    if not tensors or math.isfinite(torch.cat([x.flatten() for x in tensors]).sum().item()):
        return True
    return all(bool(torch.isfinite(x).all()) for x in tensors)  # sums of large numbers are too large


def first_not_finite(named: Iterable[tuple[str, Tensor | None]]) -> str | None:
    """Name of the first tensor with NaN or infinite entries."""
    return next((name for name, x in named if x is not None and not finite([x])), None)


def diagnose(
    model: nn.Module, inputs: Iterable[Batch], epoch: int, batch: int, lr: float, training: bool
) -> NonFiniteLossError:
    """The error for a batch whose loss or gradients are not finite; ``inputs`` are its shards."""
    culprits = (find_culprit(model, *x) for x in inputs)
    unknown = ("all outputs are finite, but too large for the loss", "Use a smaller lr.")
    culprit, remedy = next(filter(None, culprits), unknown)
    remedy = remedy.replace("a smaller lr", f"a smaller lr than {lr:g}")
    return NonFiniteLossError(epoch, batch, culprit, remedy, training)


def find_culprit(model: nn.Module, x: Tensor, *domain: Tensor) -> tuple[str, str] | None:
    """Describe the first non-finite input, parameter, output or gradient, and the remedy; None if all are finite."""
    if not finite([x]):
        return "the input has NaN or infinite samples", "Clean the data."
    name = first_not_finite(model.named_parameters())
    if name:
        return f"parameter {name!r} is not finite after the previous step", "Use a smaller lr."
    module = first_bad_module(model, x, *domain)
    if module:
        return (
            f"the output of {module} is not finite",
            "Use a smaller lr, scale the input to about unit variance, or regularise the covariances (shrinkage, eps).",
        )
    name = first_not_finite((name, p.grad) for name, p in model.named_parameters())
    if name:
        return (
            f"the gradient of {name!r} is not finite",
            "Use a smaller lr, or regularise the covariances (shrinkage, eps).",
        )
    return None


@torch.no_grad()
def first_bad_module(model: nn.Module, x: Tensor, *domain: Tensor) -> str | None:
    """Run a batch again and name the first module whose output is not finite."""
    bad: list[str] = []

    def watch(name: str, module: nn.Module) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if not bad and not finite(_floats(output)):
                bad.append(f"{name!r} ({type(module).__name__})")

        return module.register_forward_hook(hook)

    handles = [watch(name or "the model", module) for name, module in model.named_modules()]
    try:
        model(x, *domain)
    except NUMERICAL_ERRORS:
        pass  # the hooks have seen all outputs before it
    finally:
        for handle in handles:
            handle.remove()
    return bad[0] if bad else None


def _floats(output: Any) -> list[Tensor]:
    """Return the floating-point tensors in the output of a layer, also in nested tuples and lists."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    return [x for part in output for x in _floats(part)] if isinstance(output, (tuple, list)) else []
