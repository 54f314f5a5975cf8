"""Training on a corpus that does not fit into memory, by one process or many, with the same result."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gbwatt._validation import check_at_least, check_one_of
from gbwatt.decoding import checkpoints
from gbwatt.decoding.sharding import Windows, batches, own_shards, stream
from gbwatt.decoding.training import isolated
from gbwatt.errors import CheckpointError, NonFiniteLossError, PackageError, ParameterError
from gbwatt.nn.manifolds import RiemannianAdam, on_manifold

if TYPE_CHECKING:
    from accelerate import Accelerator

    from gbwatt.clinical import FoundationClassifier

Precision = Literal["float32", "bfloat16", "float16"]
_PRECISIONS: dict[str, Any] = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}
_REMEDY = "Lower lr, or take precision='float32'."
_KEPT = "A checkpoint, if there is one, is from before."
_SMALLEST_RATE = 1e-2  # of the schedule's end, as a part of the highest


#: How each backbone is trained, besides learning rate, batch, epochs and weight decay, which are registered with it: as
#: the programs of their authors do on the corpora.  Here BIOT's decay is decoupled, and the loss ends its training.
FINETUNING: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "biot": {"layer_decay": 1.0, "schedule": "constant", "early_stopping": 5},
        "labram": {"layer_decay": 0.65, "schedule": "cosine"},
    }
)
#: Part of the epochs in which LaBraM's rate rises, and its label smoothing where there are more than two classes.
WARMUP, SMOOTHING = 0.1, 0.1


def finetuning_of(backbone: str, n_classes: int, given: Mapping[str, Any]) -> FineTuning:
    """How a backbone is trained on so many classes, with what is given instead."""
    usual = dict(FINETUNING[backbone])
    if backbone == "labram":
        usual |= {"warmup_epochs": WARMUP * given["max_epochs"], "label_smoothing": SMOOTHING * (n_classes > 2)}
    return FineTuning(**{**usual, **given})


@dataclass(frozen=True)
class FineTuning:
    """How a classifier on a backbone is trained; all of it determines the result.

    Attributes
    ----------
    lr : float
        Highest learning rate, of the head.
    batch_size : int
        Windows of a step, those of all processes together.
    max_epochs : int
    weight_decay : float
        Decoupled, of matrices that are not on a manifold.
    layer_decay : float
        Factor from the learning rate of a stage to that of the one before it.
    schedule : "cosine" or "constant"
        How the learning rate goes on after it has risen: down half a cosine, or not at all.
    warmup_epochs : float
        In which it rises from zero.
    label_smoothing : float
    precision : "float32", "bfloat16" or "float16"
        Of the backbone; matrices are in float32 always.
    shards : int
        Passes that a batch is divided into; the number of processes has to divide it.
    seed : int
    early_stopping : int, optional
        Epochs without a lower validation loss after which training ends.
    """

    lr: float = 5e-4
    batch_size: int = 512
    max_epochs: int = 50
    weight_decay: float = 0.05
    layer_decay: float = 0.65
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_epochs: float = 0.0
    label_smoothing: float = 0.0
    precision: Precision = "float32"
    shards: int = 8
    seed: int = 0
    early_stopping: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_epochs", "shards"):
            check_at_least(name, getattr(self, name), 1)
        if self.early_stopping is not None:
            check_at_least("early_stopping", self.early_stopping, 1)
        check_one_of("schedule", self.schedule, ("cosine", "constant"))
        if not 0 <= self.warmup_epochs < self.max_epochs:
            raise ParameterError(
                f"warmup_epochs={self.warmup_epochs} must be 0 or more, and below max_epochs={self.max_epochs}."
            )
        check_at_least("seed", self.seed, 0)
        check_one_of("precision", self.precision, tuple(_PRECISIONS))
        for name, low, high in (("lr", 0, 1), ("layer_decay", 0, 1), ("weight_decay", -1e-300, 1)):
            if not low < getattr(self, name) <= high:
                raise ParameterError(f"{name}={getattr(self, name)} must be above {max(low, 0)}, at most {high}.")
        if not 0 <= self.label_smoothing < 1:
            raise ParameterError(f"label_smoothing={self.label_smoothing} must be in [0, 1).")

    def rate(self, step: int, steps: int) -> float:
        """Part of the highest learning rate at a step, counted from 0, of an epoch's ``steps``."""
        rising = self.warmup_epochs * steps
        if step < rising:
            return (step + 1) / (rising + 1)
        if self.schedule == "constant":
            return 1.0
        done = (step - rising) / max(1.0, self.max_epochs * steps - rising)
        return _SMALLEST_RATE + (1 - _SMALLEST_RATE) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


@dataclass
class Course:
    """How a training went: a row for each epoch, and the weights of the best.

    A row has ``epoch``, ``train_loss``, ``step_losses``, ``valid_loss``, ``valid_accuracy`` (balanced) and ``duration``
    in seconds.
    """

    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)

    @property
    def best_epoch(self) -> int:
        """The epoch with the lowest validation loss, from 1."""
        return 1 + int(np.argmin([row["valid_loss"] for row in self.history]))


#: Told of every step: epoch, step and steps, from 1, and the loss of this process's part; and of every epoch, its row.
StepWatch = Callable[[int, int, int, float], None]
EpochWatch = Callable[[Mapping[str, Any]], None]


def make_accelerator(precision: Precision = "float32") -> Accelerator:
    """The processes and the device as accelerate, or torchrun, set them up."""
    try:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
    except ImportError as error:
        raise PackageError.missing("accelerate", "training on a corpus", "clinical") from error
    # without the word torchrun's processes on CPUs would not know of each other
    alone = not torch.cuda.is_available() and not torch.backends.mps.is_available()
    if precision == "float16" and alone:
        raise ParameterError("precision='float16' needs a GPU; on a CPU take 'bfloat16' or 'float32'.")
    wanted = _PRECISIONS[precision]
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != wanted:
        AcceleratorState._reset_state()  # it keeps one precision for a process, which may train twice
    return Accelerator(mixed_precision=wanted, cpu=alone)


def finetune(
    model: FoundationClassifier,
    train: Windows,
    valid: Windows,
    settings: FineTuning,
    *,
    accelerator: Accelerator | None = None,
    checkpoint: str | Path | None = None,
    save_every: int = 0,
    fingerprint: Mapping[str, Any] | None = None,
    workers: int = 0,
    on_step: StepWatch | None = None,
    on_epoch: EpochWatch | None = None,
) -> Course:
    """Train a classifier, and leave it with the weights of its best epoch.

    The result is a function of model, windows and settings: random numbers belong to shards, so one process, several,
    or one that was killed and started again give the same numbers up to rounding.

    Parameters
    ----------
    model : FoundationClassifier
    train, valid : Windows
        Parts of a :class:`~gbwatt.clinical.corpora.Corpus`, for instance.
    settings : FineTuning
    accelerator : accelerate.Accelerator, optional
        By default one that :func:`make_accelerator` makes.
    checkpoint : path, optional
        Folder in which the state is kept, and from which a call with the same arguments goes on.
    save_every : int
        Steps between checkpoints inside an epoch; 0 for one at the end of each.
    fingerprint : mapping, optional
        What else determines the result, so that a checkpoint of something else is refused: the data, the weights.
    workers : int
        Processes that read ahead.
    on_step, on_epoch : callable, optional
        Told of progress.
    """
    accelerator = make_accelerator(settings.precision) if accelerator is None else accelerator
    _require_classes(model, train, valid)
    with isolated(accelerator.device):
        training = _Training(model, train, valid, settings, accelerator, workers)
        identity = {**asdict(settings), **_identity(model, train, valid), **(fingerprint or {})}
        training.resume(checkpoint, identity, save_every)
        training.run(on_step, on_epoch)
    accelerator.unwrap_model(training.model, keep_fp32_wrapper=False)  # from here on it computes as it is saved
    return training.course


def _require_classes(model: FoundationClassifier, train: Windows, valid: Windows) -> None:
    n_outputs = model.final_layer.out_features
    for name, part in (("train", train), ("valid", valid)):
        if not len(part):
            raise ParameterError(f"{name!r} has no windows.")
        low, high = int(np.min(part.labels)), int(np.max(part.labels))
        if low < 0 or high >= n_outputs:
            raise ParameterError(
                f"{name!r} has labels from {low} to {high}; with n_outputs={n_outputs} of the model they must be from "
                f"0 to {n_outputs - 1}."
            )


def _identity(model: nn.Module, train: Windows, valid: Windows) -> dict[str, str]:
    """What tells one training from another with the same settings."""
    parameters = [(name, tuple(p.shape), p.requires_grad) for name, p in model.named_parameters()]
    labels = [hashlib.sha256(np.asarray(part.labels).tobytes()).hexdigest()[:16] for part in (train, valid)]
    return {
        "parameters": hashlib.sha256(repr(parameters).encode()).hexdigest()[:16],
        "training windows": f"{len(train)}, labels {labels[0]}",
        "validation windows": f"{len(valid)}, labels {labels[1]}",
    }


def parameter_groups(model: FoundationClassifier, settings: FineTuning) -> list[dict[str, Any]]:
    """Trainable parameters by stage and by whether they decay, with the learning rate of the stage."""
    stages = model.stages()
    undecayed = {
        id(p) for m in model.modules() for name in getattr(m, "undecayed", ()) for p in [getattr(m, name, None)]
    }
    groups = []
    for depth, stage in enumerate(stages):
        scale = settings.layer_decay ** (len(stages) - 1 - depth)
        trained = [p for p in stage if p.requires_grad]
        decays = [p.ndim > 1 and not on_manifold(p) and id(p) not in undecayed for p in trained]
        for decay in (True, False):
            own = [p for p, does in zip(trained, decays, strict=True) if does == decay]
            if own:
                kept = {"scale": scale, "decay": settings.weight_decay if decay else 0.0}
                groups.append({"params": own, "lr": settings.lr * scale, "weight_decay": 0.0, **kept})
    return groups


class _Training:
    """One training on its way."""

    def __init__(
        self,
        model: FoundationClassifier,
        train: Windows,
        valid: Windows,
        settings: FineTuning,
        accelerator: Accelerator,
        workers: int,
    ) -> None:
        self.plain, self.train, self.valid, self.settings = model, train, valid, settings
        self.accelerator, self.workers, self.course = accelerator, workers, Course()
        self.shards = own_shards(settings.shards, accelerator.process_index, accelerator.num_processes)
        self.module = model.to(accelerator.device)
        self.bare = RiemannianAdam(parameter_groups(model, settings), lr=settings.lr)
        self.model, self.optimizer = accelerator.prepare(self.module, self.bare)
        self.step, self.losses = 0, list[float]()  # steps of the epoch that are done, and their losses
        self.folder: Path | None = None
        self.identity: Mapping[str, Any] = {}
        self.save_every = 0

    # ---- checkpoints

    def resume(self, folder: str | Path | None, identity: Mapping[str, Any], save_every: int) -> None:
        """Go on where a checkpoint left off, and write new ones."""
        check_at_least("save_every", save_every, 0)
        if folder is None:
            return
        self.folder, self.identity, self.save_every = Path(folder), identity, save_every
        state = checkpoints.restore(folder, self.module, self.bare, identity, self.settings.max_epochs)
        self.accelerator.wait_for_everyone()
        if state is not None:
            self.course.history.extend(state.history)
            self.course.best = checkpoints.best_weights(state)
            try:
                self._resume_epoch(state.progress)
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                raise CheckpointError(
                    f"{self.folder / checkpoints.FILE} is damaged: its progress inside an epoch is broken ({error!r}); "
                    "delete it to start afresh."
                ) from None

    def _resume_epoch(self, progress: Mapping[str, Any]) -> None:
        step, losses = progress.get("step", 0), list(progress.get("losses", ()))
        steps = len(batches(len(self.train), self.settings.batch_size, self.settings.shards, self.settings.seed, 1))
        if type(step) is not int or not 0 <= step < steps or len(losses) != step:
            raise ValueError(f"step {step!r} of {steps} with {len(losses)} losses")
        self.step, self.losses = step, [float(loss) for loss in losses]
        if self.accelerator.scaler is not None and "scaler" in progress:
            self.accelerator.scaler.load_state_dict(dict(progress["scaler"]))

    def save(self) -> None:
        if self.folder is not None and self.accelerator.is_main_process:
            progress: dict[str, Any] = {"step": self.step, "losses": self.losses}
            if self.accelerator.scaler is not None:
                progress["scaler"] = self.accelerator.scaler.state_dict()
            course = self.course
            checkpoints.write(self.folder, self.module, self.bare, course.best, self.identity, course.history, progress)

    # ---- epochs

    def run(self, on_step: StepWatch | None, on_epoch: EpochWatch | None) -> None:
        while len(self.course.history) < self.settings.max_epochs and not self._stopped():
            row = self._epoch(1 + len(self.course.history), on_step)
            self.course.history.append(row)
            if self.course.best_epoch == row["epoch"]:
                self.course.best = {name: x.detach().cpu().clone() for name, x in self.module.state_dict().items()}
            self.step, self.losses = 0, []
            self.save()
            if on_epoch is not None:
                on_epoch(row)
        self.module.load_state_dict(self.course.best)

    def _stopped(self) -> bool:
        patience, done = self.settings.early_stopping, len(self.course.history)
        return patience is not None and done > 0 and done - self.course.best_epoch >= patience

    def _epoch(self, epoch: int, on_step: StepWatch | None) -> dict[str, Any]:
        began, settings = time.perf_counter(), self.settings
        plan = batches(len(self.train), settings.batch_size, settings.shards, settings.seed, epoch)
        self.model.train()
        own = [batch[number] for batch in plan[self.step :] for number in self.shards]
        shards = stream(self.train, own, self.accelerator.device, self.workers)
        unsaved: list[Tensor] = []
        for number in range(self.step, len(plan)):
            self._set_rates((epoch - 1) * len(plan) + number, len(plan))
            unsaved.append(self._step(epoch, number, sum(map(len, plan[number])), shards))
            if on_step is not None:
                on_step(epoch, number + 1, len(plan), float(unsaved[-1]))
            if self.save_every and (number + 1) % self.save_every == 0 and number + 1 < len(plan):
                self._note(unsaved, epoch, number + 1)
                self.save()
        self._note(unsaved, epoch, len(plan))
        sizes = [sum(map(len, batch)) for batch in plan]
        logits = predict(self.module, self.valid, settings.batch_size, self.accelerator, self.workers)
        loss, accuracy = _judged(logits, self.valid.labels)
        if not math.isfinite(loss):
            raise NonFiniteLossError(epoch, 1, "the logits", _REMEDY, training=False, kept=_KEPT)
        return {
            "epoch": epoch,
            "train_loss": float(np.average(self.losses, weights=sizes)),
            "step_losses": list(self.losses),
            "valid_loss": loss,
            "valid_accuracy": accuracy,
            "duration": time.perf_counter() - began,
        }

    def _set_rates(self, step: int, steps: int) -> None:
        rate = self.settings.lr * self.settings.rate(step, steps)
        for group in self.bare.param_groups:
            group["lr"] = rate * group["scale"]

    def _step(self, epoch: int, number: int, size: int, shards: Any) -> Tensor:
        """One step; the sum over this process's windows of their losses, as a part of the batch's mean."""
        processes, total = self.accelerator.num_processes, torch.zeros((), device=self.accelerator.device)
        for shard in self.shards:
            x, y = next(shards)
            _seed(self.settings.seed, epoch, number, shard)
            last = shard == self.shards[-1]
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                part = nn.functional.cross_entropy(
                    self.model(x).float(), y, reduction="sum", label_smoothing=self.settings.label_smoothing
                )
                self.accelerator.backward(part * (processes / size))  # processes' gradients are averaged
            total += part.detach() / size
        self.optimizer.step()
        if not self.optimizer.step_was_skipped:  # as half precision does when gradients are too large
            self._decay()
        self.optimizer.zero_grad()
        return total

    @torch.no_grad()
    def _decay(self) -> None:
        for group in self.bare.param_groups:
            if group["decay"]:
                torch._foreach_mul_(group["params"], 1 - group["lr"] * group["decay"])

    def _note(self, unsaved: list[Tensor], epoch: int, step: int) -> None:
        """Add up the losses of all processes, and remember them."""
        if unsaved:
            summed: Any = self.accelerator.reduce(torch.stack(unsaved), reduction="sum")
            self.losses += [float(loss) for loss in summed]
            unsaved.clear()
        bad = [number for number, loss in enumerate(self.losses, 1) if not math.isfinite(loss)]
        if bad:
            raise NonFiniteLossError(epoch, bad[0], "the loss", _REMEDY, kept=_KEPT)
        self.step = step


def _seed(*numbers: int) -> None:
    """Set torch's generators, on all devices, by numbers."""
    torch.manual_seed(int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1))


def predict(
    model: nn.Module, windows: Windows, batch_size: int, accelerator: Accelerator, workers: int = 0
) -> NDArray[np.float32]:
    """Logits (n, n_outputs) of all windows, in every process; each computes its part of them."""
    from accelerate.utils import gather_object

    whole, n = np.arange(len(windows)), accelerator.num_processes
    own = np.array_split(whole, n)[accelerator.process_index]
    places = np.array_split(own, math.ceil(len(own) / batch_size)) if len(own) else []
    was = model.training
    model.eval()
    found = []
    with torch.no_grad():
        for x, _ in stream(windows, places, accelerator.device, workers):
            found.append(model(x).float().cpu().numpy())
    model.train(was)
    parts = gather_object([np.concatenate(found)] if found else [])
    return np.concatenate(parts)


def _judged(logits: NDArray[Any], labels: NDArray[Any]) -> tuple[float, float]:
    """Mean cross-entropy, and mean recall of the classes that there are."""
    shifted = logits.astype(np.float64) - logits.max(1, keepdims=True)
    likelihood = shifted[np.arange(len(labels)), labels] - np.log(np.exp(shifted).sum(1))
    hits = logits.argmax(1) == labels
    recalls = [hits[labels == label].mean() for label in np.unique(labels)]
    return float(-likelihood.mean()), float(np.mean(recalls))
