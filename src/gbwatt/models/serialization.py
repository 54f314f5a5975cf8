"""Save and load models as folders with config.json, model.safetensors and a model card; loading executes no code."""

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

#: Largest result in bytes of a single operation; some networks determine sizes of layers by applying them to an epoch.
MAX_RESULT = 4 << 30
#: Maximal number of operations to build a network: GBWAtt takes about 70, LaBraM 2 000.
MAX_OPERATIONS = 50_000


class TooLargeError(Exception):
    """The construction of a model exceeds its limits."""


class MemoryLimit(TorchDispatchMode):
    """Context that raises TooLargeError before more than ``n_bytes`` of new tensors are allocated.

    Operations on existing tensors may have results of up to :data:`MAX_RESULT` bytes.

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
    """Bytes of the result of an operation, determined on the meta device; 0 if that is not possible."""
    try:
        result = func(*tree_map(_on_meta_device, args), **tree_map(_on_meta_device, dict(kwargs)))
    except Exception:  # these operations fail themselves or have small results
        return 0
    return sum(x.untyped_storage().nbytes() for x in tree_flatten(result)[0] if isinstance(x, Tensor))


def _on_meta_device(x: Any) -> Any:
    """A tensor of the same shape and dtype without memory; anything else is returned unchanged."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") if isinstance(x, Tensor) else x


#: Version of ``config.json``; since version 2 it contains a checksum of itself.
FORMAT = 2
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
_PENDING = CONFIG + ".new"  # a configuration whose weights may already be in place
#: Dtypes from which a floating-point parameter or buffer can be loaded.
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
#: Keys that every ``config.json`` must have.
_KEYS = ("format", "model", "arguments", "class_names", "preprocessing", "extra", "weights_sha256")


@dataclass(frozen=True)
class Pretrained:
    """A loaded model with its metadata.

    Attributes
    ----------
    model : nn.Module
        In evaluation mode.
    name : str
        Name in the registry.
    arguments : mapping
        Arguments with which it was built.
    class_names : tuple or None
        Names of the classes, in the order of the outputs.
    preprocessing, extra
        Metadata that were given to :func:`save_pretrained`.
    """

    model: nn.Module
    name: str
    arguments: Mapping[str, Any]
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
    """Save a model to a folder, from which :func:`load_pretrained` loads it.

    Files are replaced atomically: an interrupted save leaves either the old model or the new one.  A model that could
    not be loaded again raises an error.

    Parameters
    ----------
    model : nn.Module
        A registered model.
    folder : path
        Created if it does not exist; other files in it are not changed.
    class_names : sequence, optional
        Names or labels of the classes, in the order of the outputs.
    preprocessing : optional
        Description of the preprocessing, serialisable as JSON.
    extra : mapping, optional
        Further metadata, serialisable as JSON.
    name : str, optional
        Name in the registry; by default the name of the class in lower case.
    arguments : mapping, optional
        Arguments of :func:`~gbwatt.models.create`; by default the attribute ``config`` of the model.

    Raises
    ------
    ModelFileError
        If the model is not registered, the arguments do not build it, or the folder cannot be written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from gbwatt.models import create
    >>> with TemporaryDirectory() as folder:
    ...     save_pretrained(create("spdnet", n_chans=4, n_outputs=2, n_times=64), folder, class_names=["left", "right"])
    ...     loaded = load_pretrained(folder)
    >>> loaded.name, loaded.class_names
    ('spdnet', ('left', 'right'))
    """
    name = _registered_name(model) if name is None else name
    arguments = getattr(model, "config", None) if arguments is None else arguments
    if arguments is None:
        raise ModelFileError(
            f"{type(model).__name__} has no attribute 'config' with its arguments; give arguments={{...}}."
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
    _write_files(Path(folder), config, weights)


def _write_files(folder: Path, config: dict[str, Any], weights: bytes) -> None:
    """Write configuration, weights and model card so that an interruption leaves a model that can be loaded."""
    text = to_json(_io.sealed(to_json(config))).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / _PENDING, text)  # used with the new weights if the next lines are not reached
        write_atomically(folder / WEIGHTS, weights)
        (folder / _PENDING).replace(folder / CONFIG)
        write_atomically(folder / CARD, model_card(config).encode())
    except OSError as error:
        raise ModelFileError(
            f"{folder} cannot be written ({error.strerror or error}); choose another folder."
        ) from error


def _registered_name(model: nn.Module) -> str:
    """Name of a model in the registry, from the name of its class; raise ModelFileError if there is none."""
    name = type(model).__name__.lower()
    if name not in registry.list_models():
        raise ModelFileError(f"{type(model).__name__} is not the name of a registered model; give name='...'.")
    return name


def plain_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies on the CPU, without subclasses and shared memory, which safetensors requires."""
    return {
        name: x.detach().as_subclass(Tensor).to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, x in tensors.items()
    }


# ------------------------------------------------------------------------------------------------------------ loading


def load_pretrained(folder: str | Path) -> Pretrained:
    """Load a model saved by :func:`save_pretrained`.

    Parameters
    ----------
    folder : path

    Returns
    -------
    Pretrained
        The model in evaluation mode, and its metadata.

    Raises
    ------
    ModelFileError
        If a file is missing, damaged, changed or inconsistent, or was written by a newer version.
    """
    folder = Path(folder)
    content = _read_bytes(folder / WEIGHTS)
    tensors = parse_safetensors(folder / WEIGHTS, content)
    config, match = _matching_config(folder, hashlib.sha256(content).hexdigest())
    # weights in half precision are loaded into a larger model; initial values need additional memory
    limit = (64 << 20) + 8 * len(content)
    model = _build(config["model"], config["arguments"], str(folder / CONFIG), limit)
    hint = "" if match else f" The file was not saved together with {CONFIG}."
    _check_tensors(model, tensors, f"{folder / WEIGHTS}", hint)
    if not match:
        raise ModelFileError(
            f"{folder / WEIGHTS} was changed after {CONFIG} was written: its SHA-256 differs from 'weights_sha256'. "
            "Copy both files again, or save the model again."
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


def _read_bytes(path: Path) -> bytes:
    """Read a file of a model; raise ModelFileError if it does not exist or cannot be read."""
    if path.exists() and not path.is_file():
        raise ModelFileError(f"{path} is not a regular file; save the model again.")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ModelFileError(
            f"{path.parent} does not contain a model: {path.name} does not exist. A folder with {CONFIG} and "
            f"{WEIGHTS}, saved by save_pretrained, is required."
        ) from None
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read ({error.strerror}); a folder with {CONFIG} and {WEIGHTS}, saved by "
            "save_pretrained, is required."
        ) from None


def parse_safetensors(path: Path, content: bytes) -> dict[str, Tensor]:
    """Tensors of a safetensors file; raise ModelFileError if it is damaged."""
    try:
        tensors: dict[str, Tensor] = load(content)
    except (SafetensorError, ValueError, KeyError, RuntimeError, TypeError, OverflowError, AttributeError) as error:
        raise ModelFileError(
            f"{path} ({len(content)} bytes) is truncated or not a safetensors file ({error}); copy it again, or "
            "save the model again."
        ) from None
    return tensors


def _matching_config(folder: Path, digest: str) -> tuple[dict[str, Any], bool]:
    """The configuration of the weights, and whether its checksum matches theirs.

    The pending configuration matches if saving was interrupted between the two files.
    """
    if (folder / _PENDING).exists():
        config = read_config(folder / _PENDING)
        if config["weights_sha256"] == digest:
            return config, True
    config = read_config(folder / CONFIG)
    return config, config["weights_sha256"] == digest


def read_config(path: Path) -> dict[str, Any]:
    """Read a ``config.json``, and check its version and completeness."""
    try:
        config = json.loads(_read_bytes(path))
    except ModelFileError:
        raise
    except (ValueError, RecursionError) as error:  # also for bytes that are not text
        raise ModelFileError(f"{path} is damaged: {error}. Copy it again, or save the model again.") from None
    if not isinstance(config, dict) or type(config.get("format")) is not int or config["format"] < 1:
        raise ModelFileError(
            f"{path} is not a configuration of a gbwatt model: 'format' must be an integer of at least 1."
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
        raise ModelFileError(
            f"{path} lacks {missing} and has values of a wrong type for {wrong}; save the model again."
        )
    if (config["format"] > 1 or _io.KEY in config) and not _io.is_intact(config):
        raise ModelFileError(
            f"{path} is damaged or was changed after it was saved: its content does not match {_io.KEY!r}. Copy "
            f"it again, or save the model again; to accept a change, set 'format' to 1 and remove {_io.KEY!r}."
        )
    return config


def _build(name: str, arguments: Mapping[str, Any], source: str, limit: int | None = None) -> nn.Module:
    """Build a model of at most ``limit`` bytes, without changing the state of the random number generator."""
    if name not in registry.list_models():
        raise ModelFileError(
            f"{source} names the model {name!r}, but gbwatt {gbwatt.__version__} has "
            f"{', '.join(registry.list_models())}. Install the version that wrote it, or register the model first."
        )
    if limit is not None and {"weights"} & arguments.keys() & {*(registry.entry(name).options or ())}:
        arguments = {**arguments, "weights": "later"}  # a saved folder must not refer to files outside of it
    try:
        with torch.random.fork_rng(devices=[]), nullcontext() if limit is None else MemoryLimit(limit):
            return registry.create(name, **registry.from_record(name, arguments))
    except TooLargeError as error:
        largest = sorted(
            (f"{k}={v!s:.40}" for k, v in arguments.items() if isinstance(v, int | float) and v > 100), key=len
        )
        raise ModelFileError(
            f"{source} describes a model that is too large for its weights: {error}, but at most {limit} are expected; "
            f"see {', '.join(largest[-5:]) or 'its arguments'}. Copy the folder again, or save the model again."
        ) from None
    except ImportError:  # its message names the package to install
        raise
    except Exception as error:  # arguments from a file may fail anywhere
        first_line = str(error).strip().partition("\n")[0][:300].rstrip(". ")
        raise ModelFileError(
            f"{source} has arguments that {name!r} of gbwatt {gbwatt.__version__} does not accept ({first_line}). "
            "Install the version that wrote it."
        ) from error


def _check_tensors(model: nn.Module, tensors: Mapping[str, Tensor], source: str, hint: str = "") -> None:
    """Raise ModelFileError unless tensors of a file have the names, shapes and dtypes of the model."""
    wanted = model.state_dict()
    faults = [f"{name!r} is missing" for name in wanted if name not in tensors]
    faults += [f"{name!r} is not part of this model" for name in tensors if name not in wanted]
    for name in (name for name in wanted if name in tensors):  # in the order of the model
        got, want = tensors[name], wanted[name]
        same_kind = got.dtype in FLOATS if want.is_floating_point() else got.dtype == want.dtype
        if got.shape != want.shape or not same_kind:
            faults.append(f"{name!r} is {got.dtype} {tuple(got.shape)} and should be {want.dtype} {tuple(want.shape)}")
    if faults:
        shown = "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if len(faults) > 5 else "")
        raise ModelFileError(f"{source} does not fit the model that {CONFIG} describes: {shown}.{hint}")


@torch.no_grad()
def _copy_into(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Set all parameters and buffers, in the dtype in which they were saved."""
    for name, x in model.state_dict(keep_vars=True).items():
        x.data = x.data.to(tensors[name].dtype)
        x.copy_(tensors[name])


# --------------------------------------------------------------------------------------------------------- model card


def model_card(config: Mapping[str, Any]) -> str:
    """Text of the README in the folder of a model: its input, classes, metadata, and code that loads it."""
    arguments = config["arguments"]
    shape = f"(batch, {arguments.get('n_chans', 'n_chans')}, {arguments.get('n_times', 'n_times')})"
    rate = f" at {arguments['sfreq']:g} Hz" if arguments.get("sfreq") else ""
    lines = [
        f"# {config['model']}",
        "",
        f"{_model_summary(config['model'])}, {config['n_parameters']} parameters.",
        "",
        f"- **Input:** EEG epochs {shape}{rate}.",
        f"- **Classes:** {_describe_classes(config)}.",
        *([f"- **Preprocessing:** `{_json(config['preprocessing'])}`"] if config["preprocessing"] is not None else []),
        *(f"- **{name}:** {value}." for name, value in training_facts(config)),
        *(f"- **{key.capitalize()}:** `{_json(value)}`" for key, value in config["extra"].items() if _is_short(value)),
        f"- **Written by:** {', '.join(f'{what} {version}' for what, version in config['versions'].items())}.",
        "",
        *_estimator_code(config["extra"].get("estimator")),
        "```python",
        "from gbwatt.models.serialization import load_pretrained",
        "",
        'loaded = load_pretrained("path/to/this/folder")',
        f"logits = loaded.model({_input_code(config)})",
        "```",
    ]
    return "\n".join(lines) + "\n"


def training_facts(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values of the paradigm, the initial weights and the alignment, if an estimator saved the model."""
    estimator = config["extra"].get("estimator")
    if not isinstance(estimator, Mapping):
        return []
    settings, parameters = estimator.get("settings") or {}, estimator.get("parameters") or {}
    paradigm = settings.get("paradigm") or parameters.get("task")
    facts = {
        "Paradigm": paradigm and str(paradigm),
        "Initial weights": estimator.get("history") and settings.get("initialization"),
        "Alignment": _describe_alignment(parameters, config["arguments"]),
    }
    return [(name, str(value)) for name, value in facts.items() if value]


def _describe_alignment(parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Alignment and normalisation of domains, in words, from the parameters of the estimator and of the network."""
    kinds = [parameters.get("alignment"), (norm := arguments.get("domain_norm")) and f"{norm} normalisation"]
    found = " and ".join(str(kind) for kind in kinds if kind)
    return f"{found}, by {parameters.get('domains') or 'subject'}" if found else "none"


def _estimator_code(estimator: Any) -> list[str]:
    """Lines of the model card with code that loads the estimator, if the folder contains one of this package."""
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


def _input_code(config: Mapping[str, Any]) -> str:
    """Code of the model card for the model's input: epochs, times the factor by which training multiplied them."""
    scale = config["extra"].get("multiply epochs by")
    return "epochs" if scale is None else f"{scale!r} * epochs"


def _model_summary(name: str) -> str:
    """Summary of a registered model for the model card, as the beginning of a sentence."""
    text = registry.entry(name).summary
    return text[:1].upper() + text[1:]


def _describe_classes(config: Mapping[str, Any]) -> str:
    """Names of the classes for the model card, or their number if they have no names."""
    names = config["class_names"]
    return f"{config['arguments'].get('n_outputs', '?')}, not named" if names is None else ", ".join(map(str, names))


def _json(value: Any) -> str:
    """JSON text of a value in one line, for the model card."""
    return json.dumps(value, ensure_ascii=False)


def _is_short(value: Any) -> bool:
    """Whether a value is short enough for the model card."""
    return len(_json(value)) < 300
