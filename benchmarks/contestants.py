"""Networks of ``training_step.py``: training trials, one training step, and its accuracy."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from textbook import Floor, Loop, Textbook
from torch import Tensor, nn

from gbwatt.data import load
from gbwatt.data.loading import find_dataset
from gbwatt.data.trials import Trials
from gbwatt.models import GBWAtt, create
from gbwatt.models.presets import TASKS
from gbwatt.models.registry import entry
from gbwatt.nn.optim import make_optimizer

Batch = tuple[Tensor, Tensor]

PAPER, BEST, MATT, SPDNET, EEGNET = "GBWAtt, paper", "GBWAtt, best", "MAtt", "SPDNet", "EEGNet"
SHRUNK = "GBWAtt, shrunk"  # the paper's, of covariances that are shrunk by 0.3
GROUPED = "MAtt, grouped"  # with the branches of our ERN preset, where the published one splits time
TEXTBOOK, LOOP, FLOOR, FLAT = "textbook", "loop", "floor", "floor, 1d"
FLOORS = (FLOOR, FLAT)
OURS = (PAPER, BEST)
REGISTERED = {
    PAPER: "gbwatt",
    SHRUNK: "gbwatt",
    BEST: "gbwatt",
    MATT: "matt",
    GROUPED: "matt",
    SPDNET: "spdnet",
    EEGNET: "eegnet",
}
NAMES = (*REGISTERED, TEXTBOOK, LOOP, *FLOORS)

#: Steps at the preset's learning rate before anything is measured: M has left the identity.
LEARNT_STEPS = 10
#: Learning rate of measured steps: they do all work, but hardly change the weights.
STILL = 1e-9


# ---------------------------------------------------------------------------------------------------------- data


def names(preset: str) -> tuple[str, ...]:
    """Names of the networks of a preset."""
    return tuple(name for name in NAMES if name != GROUPED or TASKS[preset].architecture.split == "grouped")


def split(name: str, trials: Trials) -> tuple[Trials, Trials]:
    """Training and validation trials of the first split of a data set."""
    first = next(iter(find_dataset(name).protocol.splits(trials)))
    return trials[first.train], trials[first.valid]


@functools.cache
def recordings(preset: str) -> tuple[Trials, Trials]:
    """Training and validation trials of the first simulated subject."""
    name = f"simulated-{preset}"
    return split(name, load(name))


def first_batch(preset: str, share: float = 1.0) -> Batch:
    """One batch of the first training trials, scaled to standard deviation 1."""
    train, _ = recordings(preset)
    size = max(4, round(share * TASKS[preset].training.batch_size))
    x = torch.tensor(train.X[:size])
    return x / x.std(), torch.tensor(train.y[:size], dtype=torch.int64)


# ------------------------------------------------------------------------------------------------------ networks


def build(name: str, preset: str) -> nn.Module:
    """A network for a preset; raises ImportError if it requires a package that is not installed."""
    torch.manual_seed(0)
    others: dict[str, Callable[[], nn.Module]] = {
        PAPER: lambda: GBWAtt.for_task(preset, theta=1.5, recipe="paper"),
        SHRUNK: lambda: GBWAtt.for_task(preset, theta=1.5, recipe="paper", shrinkage=0.3),
        BEST: lambda: GBWAtt.for_task(preset, theta=1.5, recipe="best"),
        TEXTBOOK: lambda: Textbook.for_task(preset, theta=1.5),
        LOOP: lambda: Loop.for_task(preset, theta=1.5),
        FLOOR: lambda: Floor(TASKS[preset]),
        FLAT: lambda: Floor(TASKS[preset], flat=True),
        GROUPED: lambda: create("matt", task=preset, split="grouped"),
    }
    return others[name]() if name in others else create(REGISTERED[name], task=preset)


@dataclass
class Contestant:
    """A network and its optimiser, or the convolutions alone without an optimiser."""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer | None

    def step(self, batch: Batch) -> None:
        """Forward pass, backward pass and, except for the floor, optimiser step."""
        x, y = batch
        (self.optimizer or self.model).zero_grad()
        out = self.model(x)
        if self.optimizer is None:
            out.backward(_cotangent(out.shape, out.dtype))
        else:
            nn.functional.cross_entropy(out, y).backward()
            self.optimizer.step()

    def seconds(self, batch: Batch) -> float:
        """The duration of a step."""
        start = time.perf_counter()
        self.step(batch)
        return time.perf_counter() - start


@functools.lru_cache(maxsize=8)
def _cotangent(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def contestant(name: str, preset: str, batch: Batch, learnt: bool = True) -> Contestant:
    """A network after a few training steps, or initialised."""
    model = build(name, preset)
    if name in FLOORS:
        return Contestant(name, model, None)
    training = entry(REGISTERED.get(name, "gbwatt")).training_for(preset)
    if learnt and name in REGISTERED:
        first = Contestant(name, model, make_optimizer(model, training.lr, training.weight_decay))
        for _ in range(LEARNT_STEPS):
            first.step(batch)
    elif learnt:  # the same weights as ours
        model.load_state_dict(contestant(PAPER, preset, batch).model.state_dict())
    return Contestant(name, model, make_optimizer(model, STILL, training.weight_decay))


# ------------------------------------------------------------------------------------------------------ accuracy


def answers(model: nn.Module, batch: Batch) -> Batch:
    """Logits and the gradient of the loss by all parameters, in one vector each, without dropout."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    x, y = batch
    logits = model(x)
    own = [p for p in model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(nn.functional.cross_entropy(logits, y), own)
    return logits.detach().flatten(), torch.cat([g.flatten() for g in gradients])


def reference(model: nn.Module, preset: str) -> nn.Module:
    """The same network in float64; for the textbook network, GBWAtt with its weights."""
    if not isinstance(model, Textbook):
        return copy.deepcopy(model).double()
    ours = build(PAPER, preset)
    ours.load_state_dict(model.state_dict())
    return ours.double()


def errors(model: nn.Module, preset: str, batch: Batch) -> tuple[float, float]:
    """Relative errors of logits and gradient against float64, in the Euclidean norm."""
    dtype = next(model.parameters()).dtype
    found = answers(model, (batch[0].to(dtype), batch[1]))
    truth = answers(reference(model, preset), (batch[0].double(), batch[1]))
    logits, gradient = (float((a.double() - b).norm() / b.norm()) for a, b in zip(found, truth, strict=True))
    return logits, gradient
