"""Checkpoints: all that a training needs to continue, in one safetensors file that is replaced as a whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from skorch.callbacks import Callback
from torch import Tensor, nn

import gbwatt
from gbwatt._io import to_json, write_atomically
from gbwatt.decoding.callbacks import KeepBest
from gbwatt.decoding.inputs import Examples, Sets
from gbwatt.decoding.training import Net
from gbwatt.errors import CheckpointError
from gbwatt.models.serialization import plain_tensors

FILE = "checkpoint.safetensors"
#: Version of the files; since 2 they have a checksum.
FORMAT = 2
_STATE, _CHECKSUM = "state", "sha256"  # entries of the metadata
_MODEL, _BEST, _OPTIMIZER = "model.", "best.", "optimizer."


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
    text, copies = to_json(notes), plain_tensors(tensors)
    metadata = {_STATE: text, _CHECKSUM: _digest(text, copies)}
    write_atomically(Path(folder) / FILE, save(copies, metadata=metadata))


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of all that a checkpoint holds."""
    digest = hashlib.sha256(text.encode())
    for name, x in sorted(tensors.items()):
        digest.update(f"\n{name} {x.dtype} {tuple(x.shape)}\n".encode())
        digest.update(x.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


# ------------------------------------------------------------------------------------------------------------ reading


def read(folder: str | Path) -> State | None:
    """What is in a folder of checkpoints; None if there is nothing yet."""
    path = Path(folder) / FILE
    if not path.exists():
        return None
    try:
        content = path.read_bytes()  # at once: a training may replace the file while it is read
        tensors, metadata = load(content), _metadata(content)
        notes = json.loads(metadata[_STATE])
        if type(notes["format"]) is not int or notes["format"] < 1:
            raise ValueError(f"format {notes['format']!r}")
        if notes["format"] > FORMAT:
            raise CheckpointError(
                f"{path} has format {notes['format']}, but gbwatt {gbwatt.__version__} reads formats up to {FORMAT}; "
                "install a newer gbwatt."
            )
        checked = notes["format"] > 1 or _CHECKSUM in metadata
        if checked and metadata[_CHECKSUM] != _digest(metadata[_STATE], tensors):
            raise ValueError("its content does not match its checksum")
        return _state(notes, tensors)
    except CheckpointError:
        raise
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RuntimeError, OSError) as error:
        raise CheckpointError(
            f"{path} is damaged or no checkpoint ({error!r}); restore it from a copy, or delete it to start afresh."
        ) from None


def _metadata(content: bytes) -> dict[str, str]:
    """Metadata of a safetensors file: eight bytes with the length of the header, then the header in JSON."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata: dict[str, str] = header["__metadata__"]
    return metadata


def _state(notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> State:
    """The content, of the types that a training expects."""
    state = State(notes["fingerprint"], notes["history"], tensors, notes["scalars"], notes.get("progress", {}))
    if not all(isinstance(part, dict) for part in (state.fingerprint, state.scalars, state.progress)):
        raise TypeError("fingerprint, scalars or progress is no dictionary")
    for number, row in enumerate(state.history, 1):
        losses = [row["train_loss"], *([row["valid_loss"]] if "valid_loss" in row else [])]
        timed = {"dur", "duration"} & row.keys()
        if row["epoch"] != number or not timed or any(type(loss) is not float for loss in losses):
            raise ValueError(f"row {number} of the history is broken")
    return state


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
        _require_like(module, state.part(_MODEL))
        if state.history or state.part(_BEST):  # the first epoch may be under way
            _require_like(module, state.part(_BEST))
        module.load_state_dict(state.part(_MODEL))
        _restore_optimizer(optimizer, state)
    except (RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} does not fit this version of the model ({error}); delete it to start afresh."
        ) from error
    return state


def _require_like(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Require the names, shapes and dtypes of a model's own tensors."""
    own = module.state_dict()
    wrong = sorted(own.keys() ^ tensors.keys())
    wrong += [name for name in own.keys() & tensors.keys() if _kind(own[name]) != _kind(tensors[name])]
    if wrong:
        raise ValueError(f"{', '.join(map(repr, wrong[:5]))} differ")


def _kind(x: Tensor) -> tuple[torch.Size, torch.dtype]:
    return x.shape, x.dtype


def best_weights(state: State) -> dict[str, Tensor]:
    """Weights of the best epoch so far."""
    return state.part(_BEST)


def _restore_optimizer(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Set the entries as they were: ``load_state_dict`` would make a float32 tensor of the number of steps."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    entries: dict[int, dict[str, Any]] = {}
    for key, value in {**state.part(_OPTIMIZER), **_strip(state.scalars)}.items():
        index, name = key.split(".", 1)
        if not index.isdecimal() or len(index) > 9 or not _suits(value, parameters[int(index)]):
            raise ValueError(f"the optimiser's state {key!r} is of no parameter, or of another shape or dtype")
        entries.setdefault(int(index), {})[name] = value
    if len({frozenset(names) for names in entries.values()}) > 1:
        raise ValueError("the optimiser's state is incomplete")
    for position, values in entries.items():
        parameter = parameters[position]
        optimizer.state[parameter].update({name: _laid_out(value, parameter) for name, value in values.items()})


def _suits(value: Any, parameter: Tensor) -> bool:
    """Whether a value can be state of a parameter: a number, or a tensor like it."""
    if isinstance(value, Tensor):
        return value.ndim == 0 or _kind(value) == _kind(parameter)
    return type(value) in (int, float)


def _strip(scalars: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(_OPTIMIZER): value for name, value in scalars.items()}


def _laid_out(value: Any, parameter: Tensor) -> Any:
    """A tensor in the memory layout of its parameter: products round differently in another one."""
    if not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    return torch.empty_like(parameter.detach().as_subclass(Tensor)).copy_(value)
