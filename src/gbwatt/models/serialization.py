"""Trained models as folders: config.json, model.safetensors and a model card.  No code in them is executed."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import gbwatt
from gbwatt import _io
from gbwatt._io import plain, to_json, write_atomically
from gbwatt.errors import ModelFileError
from gbwatt.models import registry

#: Largest result of a single operation on tensors: some networks measure their layers by trying them on an epoch.
MAX_RESULT = 4 << 30
#: Operations until a network is built: about 70 for GBWAtt, 2 000 for LaBraM.
MAX_OPERATIONS = 50_000


class TooLargeError(Exception):
    """The construction of a model went beyond its limit."""


class MemoryLimit(TorchDispatchMode):
    """Context in which torch refuses to create more than ``n_bytes`` of new tensors, before it allocates them.

    Operations on tensors may have results of up to :data:`MAX_RESULT` bytes.

    Examples
    --------
    >>> with MemoryLimit(1000):
    ...     x = torch.zeros(100)
    >>> with MemoryLimit(1000):
    ...     x = torch.zeros(1000)
    Traceback (most recent call last):
    ...
    gbwatt.models.serialization.TooLargeError: 4000 bytes of new tensors
    """

    def __init__(self, n_bytes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.n_bytes, self.created, self.operations = n_bytes, 0, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            raise TooLargeError(f"more than {MAX_OPERATIONS} operations")
        if not func._schema.is_mutable:
            new = not any(isinstance(x, Tensor) for x in tree_flatten((args, kwargs))[0])
            size = _size_of_result(func, args, {**kwargs, "device": "meta"} if new else kwargs)
            self.created += size if new else 0
            if self.created > self.n_bytes:
                raise TooLargeError(f"{self.created} bytes of new tensors")
            if size > MAX_RESULT:
                raise TooLargeError(f"a tensor of {size} bytes")
        return func(*args, **kwargs)


def _size_of_result(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Bytes of what an operation would give, by trying it on tensors without memory; 0 if that cannot be done."""
    try:
        result = func(*tree_map(_without_memory, args), **tree_map(_without_memory, dict(kwargs)))
    except Exception:  # such operations fail themselves, or have small results
        return 0
    return sum(x.untyped_storage().nbytes() for x in tree_flatten(result)[0] if isinstance(x, Tensor))


def _without_memory(x: Any) -> Any:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") if isinstance(x, Tensor) else x


#: Version of ``config.json``; since 2 it has a checksum of itself.
FORMAT = 2
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
_PENDING = CONFIG + ".new"  # a configuration whose weights may be in place already
#: Kinds of numbers that a floating-point parameter or buffer can be read from.
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_KEYS = ("format", "model", "arguments", "class_names", "preprocessing", "extra", "weights_sha256")


@dataclass(frozen=True)
class Pretrained:
    """A model as it was loaded, in evaluation mode, and what was saved beside it."""

    model: nn.Module
    name: str  # in the registry
    arguments: Mapping[str, Any]  # that it was built with
    class_names: tuple[Any, ...] | None
    preprocessing: Any
    extra: Mapping[str, Any]


# ------------------------------------------------------------------------------------------------------------- saving


def save_pretrained(
    model: nn.Module,
    folder: str | Path,
    *,
    class_names: Sequence[Any] | None = None,
    preprocessing: Any = None,
    extra: Mapping[str, Any] | None = None,
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> None:
    """Write a model into a folder, from which :func:`load_pretrained` builds it again.

    A file is replaced only when its successor is complete, and a save that is interrupted leaves either the old model
    or the new one.  A model that could not be loaded again is refused here.

    Parameters
    ----------
    model : nn.Module
        A model of the registry.
    folder : path
        Made if it does not exist; other files in it are left alone.
    class_names : sequence of str, int, ..., optional
        In the order of the outputs.
    preprocessing, extra : optional
        What else belongs to the model, as JSON.
    name, arguments : optional
        How :func:`~gbwatt.models.create` builds the model.  Needed if its class is not named as in the registry, or
        has no attribute ``config``.
    """
    name = _registered_name(model) if name is None else name
    arguments = getattr(model, "config", None) if arguments is None else arguments
    if arguments is None:
        raise ModelFileError(
            f"{type(model).__name__} has no attribute 'config' that says how it was built; give arguments={{...}}."
        )
    if class_names is not None:
        class_names = [plain(x) for x in class_names]
    tensors = plain_tensors(model.state_dict())
    _check_tensors(_build(name, arguments, "the model"), tensors, f"the model of arguments={dict(arguments)}")
    weights = save(tensors)
    config = {
        "format": FORMAT,
        "model": name,
        "arguments": dict(arguments),
        "class_names": class_names,
        "preprocessing": preprocessing,
        "extra": dict(extra or {}),
        "n_parameters": sum(p.numel() for p in model.parameters()),
        "versions": {"gbwatt": gbwatt.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    _write(Path(folder), config, weights)


def _write(folder: Path, config: dict[str, Any], weights: bytes) -> None:
    text = to_json(_io.sealed(to_json(config))).encode()
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / _PENDING, text)  # found beside the new weights should the next lines not be reached
    write_atomically(folder / WEIGHTS, weights)
    (folder / _PENDING).replace(folder / CONFIG)
    write_atomically(folder / CARD, model_card(config).encode())


def _registered_name(model: nn.Module) -> str:
    name = type(model).__name__.lower()
    if name not in registry.list_models():
        raise ModelFileError(f"{type(model).__name__} is not the name of a registered model; give name='...'.")
    return name


def plain_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU, contiguous, none of a subclass and none sharing memory: what safetensors takes."""
    return {
        name: x.detach().as_subclass(Tensor).to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, x in tensors.items()
    }


# ------------------------------------------------------------------------------------------------------------ loading


def load_pretrained(folder: str | Path) -> Pretrained:
    """Read what :func:`save_pretrained` wrote; all of it, or a :class:`ModelFileError` that says what is wrong."""
    folder = Path(folder)
    content = _read(folder / WEIGHTS)
    tensors = parse_safetensors(folder / WEIGHTS, content)
    config, match = _matching_config(folder, hashlib.sha256(content).hexdigest())
    # weights in half precision are read into a larger model; initial values need some memory of their own
    limit = (64 << 20) + 8 * len(content)
    model = _build(config["model"], config["arguments"], str(folder / CONFIG), limit)
    hint = "" if match else f" The file is not the one that {CONFIG} was written with."
    _check_tensors(model, tensors, f"{folder / WEIGHTS}", hint)
    if not match:
        raise ModelFileError(
            f"{folder / WEIGHTS} was changed since {CONFIG} was written: its SHA-256 differs from 'weights_sha256'. "
            "Copy both files anew, or save the model again."
        )
    _copy_into(model, tensors)
    names = config["class_names"]
    return Pretrained(
        model.eval(),
        config["model"],
        config["arguments"],
        None if names is None else tuple(names),
        config["preprocessing"],
        config["extra"],
    )


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise ModelFileError(f"{path} is not a regular file; save the model anew.")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ModelFileError(
            f"there is no model in {path.parent}: it has no {path.name}; a folder with {CONFIG} and {WEIGHTS}, as "
            "save_pretrained writes it, is needed."
        ) from None
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read ({error.strerror}); a folder with {CONFIG} and {WEIGHTS}, as save_pretrained "
            "writes it, is needed."
        ) from None


def parse_safetensors(path: Path, content: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        tensors: dict[str, Tensor] = load(content)
    except (SafetensorError, ValueError, KeyError, RuntimeError, TypeError, OverflowError, AttributeError) as error:
        raise ModelFileError(
            f"{path} ({len(content)} bytes) is truncated or no safetensors file ({error}); copy it again, or save anew."
        ) from None
    return tensors


def _matching_config(folder: Path, digest: str) -> tuple[dict[str, Any], bool]:
    """The configuration that belongs to the weights, and whether it does.

    The pending one does if a save was interrupted between its two files.
    """
    if (folder / _PENDING).exists():
        config = read_config(folder / _PENDING)
        if config["weights_sha256"] == digest:
            return config, True
    config = read_config(folder / CONFIG)
    return config, config["weights_sha256"] == digest


def read_config(path: Path) -> dict[str, Any]:
    """The content of a ``config.json``, checked for version and completeness."""
    try:
        config = json.loads(_read(path))
    except ModelFileError:
        raise
    except (ValueError, RecursionError) as error:  # also bytes that are no text
        raise ModelFileError(f"{path} is damaged: {error}. Copy it again, or save the model anew.") from None
    if not isinstance(config, dict) or type(config.get("format")) is not int or config["format"] < 1:
        raise ModelFileError(
            f"{path} is no configuration of a gbwatt model: 'format' must be a whole number of at least 1."
        )
    if config["format"] > FORMAT:
        raise ModelFileError(
            f"{path} has format {config['format']}; gbwatt {gbwatt.__version__} reads formats up to {FORMAT}: "
            "install a newer gbwatt."
        )
    missing = [key for key in _KEYS if key not in config]
    kinds = {"model": str, "arguments": dict, "class_names": list | None, "extra": dict, "weights_sha256": str}
    wrong = [key for key, kind in kinds.items() if key in config and not isinstance(config[key], kind)]
    if missing or wrong:
        raise ModelFileError(f"{path} lacks {missing} and has values of a wrong type for {wrong}; save the model anew.")
    if (config["format"] > 1 or _io.KEY in config) and not _io.is_intact(config):
        raise ModelFileError(
            f"{path} is damaged or was changed since it was saved: its content does not match {_io.KEY!r}. Copy "
            f"it again, or save the model anew; to accept a change, set 'format' to 1 and remove {_io.KEY!r}."
        )
    return config


def _build(name: str, arguments: Mapping[str, Any], source: str, limit: int | None = None) -> nn.Module:
    """A new model, of at most ``limit`` bytes; the caller's random numbers are unchanged."""
    if name not in registry.list_models():
        raise ModelFileError(
            f"{source} names the model {name!r}, but gbwatt {gbwatt.__version__} has "
            f"{', '.join(registry.list_models())}. Install the version that wrote it, or register the model first."
        )
    if limit is not None and {"weights"} & arguments.keys() & {*(registry.entry(name).options or ())}:
        arguments = {**arguments, "weights": "later"}  # a folder names no file outside of it
    try:
        with torch.random.fork_rng(devices=[]), nullcontext() if limit is None else MemoryLimit(limit):
            return registry.create(name, **registry.from_record(name, arguments))
    except TooLargeError as error:
        largest = sorted(
            (f"{k}={v!s:.40}" for k, v in arguments.items() if isinstance(v, int | float) and v > 100), key=len
        )
        raise ModelFileError(
            f"{source} describes a model that is too large for the weights beside it: {error}, but at most {limit} are "
            f"expected; see {', '.join(largest[-5:]) or 'its arguments'}. Copy the folder again, or save anew."
        ) from None
    except ImportError:  # says what to install
        raise
    except Exception as error:  # the arguments come from a file and reach code of any kind
        first_line = str(error).strip().partition("\n")[0][:300].rstrip(". ")
        raise ModelFileError(
            f"{source} has arguments that {name!r} of gbwatt {gbwatt.__version__} does not take ({first_line}). "
            "Install the version that wrote it."
        ) from error


def _check_tensors(model: nn.Module, tensors: Mapping[str, Tensor], source: str, hint: str = "") -> None:
    """Require exactly the names, shapes and kinds of numbers that the model has."""
    wanted = model.state_dict()
    faults = [f"{name!r} is missing" for name in wanted if name not in tensors]
    faults += [f"{name!r} is not of this model" for name in tensors if name not in wanted]
    for name in (name for name in wanted if name in tensors):  # in the model's order, not a set's
        got, want = tensors[name], wanted[name]
        same_kind = got.dtype in FLOATS if want.is_floating_point() else got.dtype == want.dtype
        if got.shape != want.shape or not same_kind:
            faults.append(f"{name!r} is {got.dtype} {tuple(got.shape)} and should be {want.dtype} {tuple(want.shape)}")
    if faults:
        shown = "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if len(faults) > 5 else "")
        raise ModelFileError(f"{source} does not fit the model that {CONFIG} describes: {shown}.{hint}")


@torch.no_grad()
def _copy_into(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Set all parameters and buffers, in the precision in which they were saved."""
    for name, x in model.state_dict(keep_vars=True).items():
        x.data = x.data.to(tensors[name].dtype)
        x.copy_(tensors[name])


# --------------------------------------------------------------------------------------------------------- model card


def model_card(config: Mapping[str, Any]) -> str:
    """A README for the folder of a model."""
    arguments = config["arguments"]
    shape = f"(batch, {arguments.get('n_chans', 'n_chans')}, {arguments.get('n_times', 'n_times')})"
    rate = f" at {arguments['sfreq']:g} Hz" if arguments.get("sfreq") else ""
    lines = [
        f"# {config['model']}",
        "",
        f"{_summary(config['model'])}, {config['n_parameters']} parameters.",
        "",
        f"- **Input:** EEG epochs {shape}{rate}.",
        f"- **Classes:** {_classes(config)}.",
        *([f"- **Preprocessing:** `{_line(config['preprocessing'])}`"] if config["preprocessing"] is not None else []),
        *(f"- **{key.capitalize()}:** `{_line(value)}`" for key, value in config["extra"].items() if _short(value)),
        f"- **Written by:** {', '.join(f'{what} {version}' for what, version in config['versions'].items())}.",
        "",
        *_estimator_code(config["extra"].get("estimator")),
        "```python",
        "from gbwatt.models.serialization import load_pretrained",
        "",
        'loaded = load_pretrained("path/to/this/folder")',
        f"logits = loaded.model({_input(config)})",
        "```",
    ]
    return "\n".join(lines) + "\n"


def _estimator_code(estimator: Any) -> list[str]:
    """How the estimator is read, if the folder has one of this package."""
    name = estimator.get("class") if isinstance(estimator, Mapping) else None
    if name not in gbwatt.__all__:
        return []
    return [
        "```python",
        f"from gbwatt import {name}",
        "",
        f'decoder = {name}.from_pretrained("path/to/this/folder")',
        "labels = decoder.predict(epochs)  # mne.Epochs, Trials, or an array in the unit of the training data",
        "```",
        "",
        "The network alone:",
        "",
    ]


def _input(config: Mapping[str, Any]) -> str:
    """What the model is called with; what a training multiplied its epochs by belongs to it."""
    scale = config["extra"].get("multiply epochs by")
    return "epochs" if scale is None else f"{scale!r} * epochs"


def _summary(name: str) -> str:
    text = registry.entry(name).summary
    return text[:1].upper() + text[1:]


def _classes(config: Mapping[str, Any]) -> str:
    names = config["class_names"]
    return f"{config['arguments'].get('n_outputs', '?')}, not named" if names is None else ", ".join(map(str, names))


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _short(value: Any) -> bool:
    return len(_line(value)) < 300
