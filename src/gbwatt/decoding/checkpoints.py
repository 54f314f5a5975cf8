"""Checkpoints: the state of a training in one safetensors file, which is replaced atomically."""

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
from torch import Tensor, nn

import gbwatt
from gbwatt._io import to_json, write_atomically
from gbwatt.decoding.callbacks import Callback
from gbwatt.decoding.inputs import Examples, Sets
from gbwatt.decoding.training import Trainer
from gbwatt.errors import CheckpointError
from gbwatt.models.serialization import plain_tensors

FILE = "checkpoint.safetensors"
#: Version of the files; version 2 added a checksum.
FORMAT = 2
_STATE, _CHECKSUM = "state", "sha256"  # keys of the metadata
_MODEL, _BEST, _OPTIMIZER = "model.", "best.", "optimizer."  # prefixes of the names of tensors


@dataclass(frozen=True)
class State:
    """Content of a checkpoint."""

    fingerprint: Mapping[str, Any]
    history: list[dict[str, Any]]
    tensors: Mapping[str, Tensor]
    scalars: Mapping[str, Any]  # numbers in the state of the optimiser, by parameter and name
    progress: Mapping[str, Any]  # within an epoch: steps done and their losses; state of the gradient scaler

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Tensors of one part of the state, whose names begin with ``prefix``, by their names without it."""
        return {name.removeprefix(prefix): x for name, x in self.tensors.items() if name.startswith(prefix)}


# -------------------------------------------------------------------------------------------------------- fingerprint


def describe_data(sets: Sets) -> dict[str, str]:
    """Describe training and validation data by shape and hash, for the fingerprint of a checkpoint."""
    return {
        "training data": _describe_examples(sets.train),
        "validation data": "none" if sets.valid is None else _describe_examples(sets.valid),
    }


def _describe_examples(trials: Examples) -> str:
    """Text with the shape of the epochs and a short hash of epochs, class numbers, and any domains and weights."""
    digest = hashlib.sha256()
    for x in (trials.x, trials.y, trials.domain, trials.weight):
        if x is not None:
            digest.update(x.contiguous().numpy().data)
    return f"{tuple(trials.x.shape)}, SHA-256 {digest.hexdigest()[:16]}"


#: What the file of a training or of a search is chosen by, for error messages.
_CONTAINER = {"training": "folder", "search": "storage file"}


def require_same_fingerprint(path: Path, kind: str, saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Raise CheckpointError, listing all differences, unless the fingerprint in a file is the current one.

    ``kind`` says what the file belongs to: "training" or "search".
    """
    current = json.loads(to_json(current))
    names = [name for name in {**saved, **current} if saved.get(name) != current.get(name)]
    if names:
        differences = "; ".join(f"{name} is {saved.get(name)} there and {current.get(name)} here" for name in names)
        raise CheckpointError(
            f"{path} belongs to another {kind}: {differences}. Choose another {_CONTAINER[kind]} for this one, or "
            "delete the file to start again."
        )


# ---------------------------------------------------------------------------------------------------------- checkpoint


class Checkpoint(Callback):
    """Writes the state of a training after every epoch, and every ``save_every`` steps within an epoch.

    Parameters
    ----------
    folder : path
        Created if it does not exist.
    fingerprint : mapping
        Everything that the result depends on; a checkpoint with another fingerprint is refused.
    save_every : int
        0 for no checkpoints within an epoch.
    """

    def __init__(self, folder: str | Path, fingerprint: Mapping[str, Any], save_every: int = 0) -> None:
        self.folder, self.fingerprint, self.save_every = Path(folder), fingerprint, save_every
        self.path = self.folder / FILE

    def on_batch_end(self, net: Trainer, training: bool = True, **_: Any) -> None:
        """Write the state within an epoch."""
        if training and self.save_every and net.step % self.save_every == 0 and net.step < net.n_steps:
            self._write_state(net, net.history[:-1], {"step": net.step, "losses": net.losses})

    def on_epoch_end(self, net: Trainer, **_: Any) -> None:
        """Write the state after an epoch."""
        self._write_state(net, list(net.history), {})

    def _write_state(self, net: Trainer, history: list[dict[str, Any]], progress: dict[str, Any]) -> None:
        """Write weights, optimiser state and ``history`` to the file; only the main process does.

        ``progress`` has the steps and losses of an unfinished epoch; it is empty between epochs.
        """
        if not net.accelerator.is_main_process:
            return
        if net.accelerator.scaler is not None:
            progress = {**progress, "scaler": net.accelerator.scaler.state_dict()}
        tensors = {_MODEL + name: x for name, x in net.module_.state_dict().items()}
        tensors |= {_BEST + name: x for name, x in net.best_weights.items()}
        scalars: dict[str, Any] = {}
        for index, entries in net.optimizer_.state_dict()["state"].items():
            for name, value in entries.items():
                (tensors if isinstance(value, Tensor) else scalars)[f"{_OPTIMIZER}{index}.{name}"] = value
        notes = {"format": FORMAT, "fingerprint": self.fingerprint, "history": history, "scalars": scalars}
        text, copies = to_json(notes | ({"progress": progress} if progress else {})), plain_tensors(tensors)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, save(copies, metadata={_STATE: text, _CHECKSUM: _digest(text, copies)}))

    def restore(self, net: Trainer, n_steps: int) -> None:
        """Continue the training of the checkpoint in the folder, if there is one; epochs have ``n_steps``."""
        for leftover in self.folder.glob(f".{FILE}.*.tmp"):  # of a killed process
            leftover.unlink(missing_ok=True)
        state = read(self.folder)
        net.accelerator.wait_for_everyone()  # before a process writes the next one
        if state is None:
            return
        require_same_fingerprint(self.path, "training", state.fingerprint, self.fingerprint)
        if len(state.history) > net.max_epochs:
            raise CheckpointError(
                f"{self.path} has {len(state.history)} epochs, more than max_epochs={net.max_epochs}; raise it, or "
                "choose another folder."
            )
        try:
            _restore_weights(net, state)
            _restore_optimizer(net.optimizer_, state)
        except (RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{self.path} does not fit this version of the model ({error}); delete it to start again."
            ) from error
        net.history.extend(state.history)
        try:
            _restore_progress(net, state.progress, n_steps)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"{self.path} is damaged: its progress inside an epoch is broken ({error!r}); delete it to start again."
            ) from None


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the JSON text and all tensors of a checkpoint, by which damage is detected."""
    digest = hashlib.sha256(text.encode())
    for name, x in sorted(tensors.items()):
        digest.update(f"\n{name} {x.dtype} {tuple(x.shape)}\n".encode())
        digest.update(x.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


# ------------------------------------------------------------------------------------------------------------ reading


def read(folder: str | Path) -> State | None:
    """Read and check the checkpoint in a folder; None if there is none.

    Raises CheckpointError if the file is damaged or was written by a newer version.
    """
    path = Path(folder) / FILE
    if not path.exists():
        return None
    try:
        content = path.read_bytes()  # at once: a training may replace the file while it is read
        tensors, metadata = load(content), _read_metadata(content)
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
        return _parse_state(notes, tensors)
    except CheckpointError:
        raise
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RuntimeError, OSError) as error:
        raise CheckpointError(
            f"{path} is damaged or no checkpoint ({error!r}); restore it from a copy, or delete it to start again."
        ) from None


def _read_metadata(content: bytes) -> dict[str, str]:
    """Metadata of a safetensors file: eight bytes with the length of the header, then the header in JSON."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata: dict[str, str] = header["__metadata__"]
    return metadata


def _parse_state(notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> State:
    """Check the types of the JSON part ``notes``, and return the content of the checkpoint."""
    history = [_parse_history_row(row, number) for number, row in enumerate(notes["history"], 1)]
    state = State(notes["fingerprint"], history, tensors, notes["scalars"], notes.get("progress", {}))
    if not all(isinstance(part, dict) for part in (state.fingerprint, state.scalars, state.progress)):
        raise TypeError("fingerprint, scalars or progress is no dictionary")
    return state


def _parse_history_row(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Check the row of epoch ``number``, and convert rows of earlier versions.

    These called ``duration`` ``dur``, and had entries about batches.
    """
    losses = [row["train_loss"], *([row["valid_loss"]] if "valid_loss" in row else [])]
    timed = {"dur", "duration"} & row.keys()
    if row["epoch"] != number or not timed or any(type(loss) is not float for loss in losses):
        raise ValueError(f"row {number} of the history is broken")
    former = {"dur", "batches", "train_batch_count", "valid_batch_count"}
    kept = {name: value for name, value in row.items() if name not in former}
    return {**kept, "duration": row["dur"]} if "dur" in row else kept


# ---------------------------------------------------------------------------------------------------------- restoring


def _restore_weights(net: Trainer, state: State) -> None:
    """Load the current weights into the module, and set the weights of the best epoch."""
    weights, best = state.part(_MODEL), state.part(_BEST)
    _require_like(net.module_, weights)
    if state.history or best:  # in the first epoch there may be none
        _require_like(net.module_, best)
    net.module_.load_state_dict(weights)
    net.best_weights = {name: x.to(net.device) for name, x in best.items()}


def _restore_progress(net: Trainer, progress: Mapping[str, Any], n_steps: int) -> None:
    """Set the steps and losses of an unfinished epoch with ``n_steps``, and the state of the gradient scaler."""
    step, losses = progress.get("step", 0), list(progress.get("losses", ()))
    if type(step) is not int or not 0 <= step < n_steps or len(losses) != step:
        raise ValueError(f"step {step!r} of {n_steps} with {len(losses)} losses")
    net.step, net.losses = step, [float(loss) for loss in losses]
    if net.accelerator.scaler is not None and "scaler" in progress:
        net.accelerator.scaler.load_state_dict(dict(progress["scaler"]))


def _require_like(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless tensors have the names, shapes and dtypes of the state of a module."""
    own = module.state_dict()
    wrong = sorted(own.keys() ^ tensors.keys())
    wrong += [name for name in own.keys() & tensors.keys() if _shape_dtype(own[name]) != _shape_dtype(tensors[name])]
    if wrong:
        raise ValueError(f"{', '.join(map(repr, wrong[:5]))} differ")


def _shape_dtype(x: Tensor) -> tuple[torch.Size, torch.dtype]:
    """Shape and dtype of a tensor, for comparisons."""
    return x.shape, x.dtype


def _restore_optimizer(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Set the state of the optimiser exactly as it was saved.

    ``load_state_dict`` would make a float32 tensor of the number of steps.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    entries: dict[int, dict[str, Any]] = {}
    for key, value in {**state.part(_OPTIMIZER), **_optimizer_scalars(state.scalars)}.items():
        index, name = key.split(".", 1)
        if not index.isdecimal() or len(index) > 9 or not _can_be_state_of(value, parameters[int(index)]):
            raise ValueError(f"the optimiser's state {key!r} is of no parameter, or of another shape or dtype")
        entries.setdefault(int(index), {})[name] = value
    if len({frozenset(names) for names in entries.values()}) > 1:
        raise ValueError("the optimiser's state is incomplete")
    for position, values in entries.items():
        parameter = parameters[position]
        optimizer.state[parameter].update({name: _in_layout_of(value, parameter) for name, value in values.items()})


def _can_be_state_of(value: Any, parameter: Tensor) -> bool:
    """Whether a value can be optimiser state of a parameter: a number, or a tensor of its shape and dtype."""
    if isinstance(value, Tensor):
        return value.ndim == 0 or _shape_dtype(value) == _shape_dtype(parameter)
    return type(value) in (int, float)


def _optimizer_scalars(scalars: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers in the saved state of the optimiser, by their names without the prefix of the checkpoint."""
    return {name.removeprefix(_OPTIMIZER): value for name, value in scalars.items()}


def _in_layout_of(value: Any, parameter: Tensor) -> Any:
    """Copy a tensor to the memory layout of its parameter, because products round differently in another layout.

    Numbers and tensors of another shape are returned unchanged.
    """
    if not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    return torch.empty_like(parameter.detach().as_subclass(Tensor)).copy_(value)
