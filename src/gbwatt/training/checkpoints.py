"""Checkpoints: all that a training needs to continue, in one safetensors file that is replaced as a whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from skorch.callbacks import Callback
from torch import Tensor, nn

from gbwatt.models.files import plain_tensors, to_json, write_atomically
from gbwatt.training.callbacks import KeepBest
from gbwatt.training.inputs import Examples, Sets
from gbwatt.training.net import Net

FILE = "checkpoint.safetensors"
FORMAT = 1
_MODEL, _BEST, _OPTIMIZER = "model.", "best.", "optimizer."


class CheckpointError(ValueError):
    """A checkpoint is damaged, or belongs to another training."""


@dataclass(frozen=True)
class State:
    """Content of a checkpoint."""

    fingerprint: Mapping[str, Any]
    history: list[dict[str, Any]]
    tensors: Mapping[str, Tensor]
    scalars: Mapping[str, Any]  # of the optimiser, by parameter and name
    progress: Mapping[str, Any]  # inside an epoch, where checkpoints are written there

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Tensors whose names begin with a prefix, without it."""
        return {name.removeprefix(prefix): x for name, x in self.tensors.items() if name.startswith(prefix)}


# -------------------------------------------------------------------------------------------------------- fingerprint


def describe_data(sets: Sets) -> dict[str, str]:
    """Shape and hash of the trials."""
    return {
        "training data": _describe(sets.train),
        "validation data": "none" if sets.valid is None else _describe(sets.valid),
    }


def _describe(trials: Examples) -> str:
    digest = hashlib.sha256()
    for x in (trials.x, trials.y):
        digest.update(x.contiguous().numpy().data)
    return f"{tuple(trials.x.shape)}, SHA-256 {digest.hexdigest()[:16]}"


def _require_same(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    if names:
        differences = "; ".join(f"{name} is {there.get(name)} there and {here.get(name)} here" for name in names)
        raise CheckpointError(
            f"{path} belongs to another training: {differences}. Choose another folder for this one, or delete "
            "the file to start afresh."
        )


# ------------------------------------------------------------------------------------------------------------ writing


class Checkpoint(Callback):  # type: ignore[misc]
    """Writes the state of the training after every epoch."""

    def __init__(self, folder: str | Path, fingerprint: Mapping[str, Any], best: KeepBest) -> None:
        self.folder, self.fingerprint, self.best = folder, fingerprint, best

    def on_epoch_end(self, net: Net, **_: Any) -> None:
        """Write it."""
        write(self.folder, net.module_, net.optimizer_, self.best.weights_, self.fingerprint, list(net.history))


def write(
    folder: str | Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    best: Mapping[str, Tensor],
    fingerprint: Mapping[str, Any],
    history: list[dict[str, Any]],
    progress: Mapping[str, Any] | None = None,
) -> None:
    """Put all of it into the checkpoint of a folder, which is made if it is not there."""
    tensors = {_MODEL + name: x for name, x in module.state_dict().items()}
    tensors |= {_BEST + name: x for name, x in best.items()}
    scalars: dict[str, Any] = {}
    for index, entries in optimizer.state_dict()["state"].items():
        for name, value in entries.items():
            (tensors if isinstance(value, Tensor) else scalars)[f"{_OPTIMIZER}{index}.{name}"] = value
    notes = {"format": FORMAT, "fingerprint": fingerprint, "history": history, "scalars": scalars}
    if progress:
        notes["progress"] = progress
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_atomically(Path(folder) / FILE, save(plain_tensors(tensors), metadata={"state": to_json(notes)}))


# ------------------------------------------------------------------------------------------------------------ reading


def read(folder: str | Path) -> State | None:
    """What is in a folder of checkpoints; None if there is nothing yet."""
    path = Path(folder) / FILE
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            notes = json.loads((file.metadata() or {})["state"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if notes["format"] > FORMAT:
            raise CheckpointError(f"{path} has format {notes['format']}, of a newer gbwatt; install that.")
        return State(notes["fingerprint"], notes["history"], tensors, notes["scalars"], notes.get("progress", {}))
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path} is damaged or no checkpoint ({error!r}); delete it to start afresh.") from None


def resume(net: Net, best: KeepBest, folder: str | Path, fingerprint: Mapping[str, Any]) -> None:
    """Put an initialised net where the checkpoint in a folder, if there is one, left it."""
    state = restore(folder, net.module_, net.optimizer_, fingerprint, net.max_epochs)
    if state is None:
        return
    net.history.extend(state.history)
    best.weights_ = {name: x.to(net.device) for name, x in best_weights(state).items()}


def restore(
    folder: str | Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    fingerprint: Mapping[str, Any],
    max_epochs: int,
) -> State | None:
    """Put a model and its optimiser where the checkpoint in a folder left them; None if there is none."""
    for leftover in Path(folder).glob(f".{FILE}.*.tmp"):  # of a killed process
        leftover.unlink(missing_ok=True)
    state = read(folder)
    if state is None:
        return None
    path = Path(folder) / FILE
    _require_same(path, state.fingerprint, json.loads(to_json(fingerprint)))
    if len(state.history) > max_epochs:
        raise CheckpointError(
            f"{path} has {len(state.history)} epochs, more than max_epochs={max_epochs}; raise it, or choose "
            "another folder."
        )
    try:
        module.load_state_dict(state.part(_MODEL))
        _restore_optimizer(optimizer, state)
    except (RuntimeError, KeyError, IndexError, ValueError) as error:
        raise CheckpointError(f"{path} does not fit this version of the model ({error}); delete it.") from error
    return state


def best_weights(state: State) -> dict[str, Tensor]:
    """Weights of the best epoch so far."""
    return state.part(_BEST)


def _restore_optimizer(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Set the entries as they were: ``load_state_dict`` would make a float32 tensor of the number of steps."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for key, value in {**state.part(_OPTIMIZER), **_strip(state.scalars)}.items():
        index, name = key.split(".", 1)
        parameter = parameters[int(index)]
        optimizer.state[parameter][name] = _laid_out(value, parameter)


def _strip(scalars: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(_OPTIMIZER): value for name, value in scalars.items()}


def _laid_out(value: Any, parameter: Tensor) -> Any:
    """A tensor in the memory layout of its parameter: products round differently in another one."""
    if not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    return torch.empty_like(parameter.detach().as_subclass(Tensor)).copy_(value)
