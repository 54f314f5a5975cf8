"""Published weights of backbones: read without executing anything, all of them or an error that says what is left."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gbwatt.models.files import ModelFileError, parse_safetensors
from gbwatt.models.foundation.backbones import BIOT, Backbone, LaBraM

#: Files of weights in a folder of a model hub, in the order in which they are looked for.
_FILES = ("model.safetensors", "pytorch_model.bin")
#: Words in the place of a file: random weights, or those that are set afterwards.
UNREAD = ("random", "later")
#: Where checkpoints of trainings keep the weights.
_ENTRIES = ("model", "state_dict", "model_state_dict", "module")


class WeightsError(ModelFileError):
    """A file has no weights for the backbone, or not all of them."""


@dataclass(frozen=True)
class WeightsReport:
    """What became of the tensors of a file.

    Attributes
    ----------
    source, sha256 : str
        The file and its hash.
    matched : tuple of str
        Parameters and buffers of the backbone that were set, by their names there.
    cut : dict
        Those of which only a part was taken, and which.
    new : tuple of str
        Those that such a file does not have; they are as initialised.
    ignored : dict
        Tensors of the file that do not belong to the backbone, and why.
    """

    source: str
    sha256: str
    matched: tuple[str, ...]
    cut: Mapping[str, str]
    new: tuple[str, ...]
    ignored: Mapping[str, str]

    def __str__(self) -> str:
        lines = [f"{self.source} (SHA-256 {self.sha256[:16]}): {len(self.matched)} tensors matched"]
        lines += [f"  {name}: {how}" for name, how in self.cut.items()]
        lines += [f"  not in the file, as initialised: {', '.join(self.new)}"] * bool(self.new)
        reasons: dict[str, list[str]] = {}
        for name, why in self.ignored.items():
            reasons.setdefault(why, []).append(name)
        lines += [f"  left out, {why}: {_some(names)}" for why, names in reasons.items()]
        return "\n".join(lines)


class _Rules(NamedTuple):
    """How the names of files become those of a backbone."""

    prefixes: tuple[str, ...]  # that files may have
    renamed: tuple[tuple[str, str], ...]  # patterns
    ignored: tuple[tuple[str, str], ...]  # patterns, and why
    new: tuple[str, ...]  # what files may lack
    leading: Mapping[str, int]  # of these, more along an axis is allowed: the first are taken


_ONE_UNUSED = frozenset({"network.temporal_embedding"})
_HEAD = "of another classifier"
_PRETRAINING = "of the pretraining alone"
_RULES: Mapping[type[Backbone], _Rules] = MappingProxyType(
    {
        BIOT: _Rules(
            prefixes=("module.", "model.", "biot.", "encoder."),
            renamed=((r"^", "encoder."),),
            ignored=(
                (r"^index$", "numbers of channels"),
                (r"^(classifier|final_layer)", _HEAD),
                (r"^prediction\.", _PRETRAINING),
            ),
            new=(),
            leading={"encoder.channel_tokens.weight": 0},
        ),
        LaBraM: _Rules(
            prefixes=("module.", "student."),
            renamed=(
                (r"^pos_embed$", "position_embedding"),
                (r"^time_embed$", "temporal_embedding"),
                (r"^patch_embed\.(conv|norm)", r"patch_embed.temporal_conv.\1"),
                (r"\.mlp\.fc1\.", ".mlp.0."),
                (r"\.mlp\.fc2\.", ".mlp.2."),
                (r"^(?!fc_norm)", "network."),
            ),
            ignored=(
                (r"^(lm_head|mask_token|projection_head|logit_scale)", _PRETRAINING),
                (r"^(head|final_layer)\.", _HEAD),
                (r"^norm\.", "the norm of the class token, where the mean of all is taken"),
            ),
            new=("fc_norm.weight", "fc_norm.bias"),
            leading={"network.temporal_embedding": 1},
        ),
    }
)


def load_weights(backbone: Backbone, path: str | Path) -> WeightsReport:
    """Set all parameters of a backbone from a file in the format of its authors, or of braindecode.

    Parameters
    ----------
    backbone : Backbone
        BIOT's or LaBraM's.
    path : path
        ``.ckpt``, ``.pth``, ``.pt``, ``.bin`` or ``.safetensors``; or a folder of a model hub.

    Returns
    -------
    WeightsReport

    Raises
    ------
    WeightsError
        If there is no such file, or it needs code to be read, or lacks a parameter, or has one that nobody knows.
        Then the backbone is as it was.
    """
    file = find_file(Path(path).expanduser())
    content = _tensors(file)
    rules = _RULES.get(type(backbone))
    if rules is None:
        raise WeightsError(
            f"nothing is known of the weights of {type(backbone).__name__}; set them with load_state_dict."
        )
    plan = _matched(file, content, backbone.state_dict(), rules)
    backbone.load_state_dict(plan.tensors, strict=False)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return WeightsReport(str(file), digest, tuple(plan.tensors), plan.cut, plan.new, plan.ignored)


# ------------------------------------------------------------------------------------------------------------- reading


def find_file(path: Path) -> Path:
    """The file at a path: itself, or the one in a folder of a model hub."""
    if path.is_file():
        return path
    if path.is_dir():
        found = [path / name for name in _FILES if (path / name).is_file()]
        if found:
            return found[0]
        raise WeightsError(f"{path} has none of {', '.join(_FILES)}; give the file itself.")
    raise WeightsError(
        f"there is no {path}; get the weights from the authors of the backbone, or ask for random ones with "
        "weights='random'."
    )


def _tensors(file: Path) -> dict[str, Tensor]:
    """All tensors of a file by name."""
    if file.suffix == ".safetensors":
        return parse_safetensors(file, file.read_bytes())
    try:
        content = torch.load(file, map_location="cpu", weights_only=False, pickle_module=_INERT)
    except Exception as error:
        raise WeightsError(f"{file} is truncated or no file of torch ({_first_line(error)}); copy it again.") from error
    return _state(file, content)


class _Inert(pickle.Unpickler):
    """Reads tensors and plain containers; in the place of everything else it puts objects that can do nothing.

    Checkpoints of trainings have settings beside their weights, objects of whatever class.  None of these classes, and
    no function that a file names, is looked up.
    """

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _HARMLESS or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        return type(f"{module}.{name}", (_Unread,), {})


class _Unread:
    """What stands for an object that was not read."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, _state: Any) -> None:
        pass

    def __setitem__(self, _key: Any, _value: Any) -> None:
        pass

    def append(self, _value: Any) -> None:
        """As lists do."""

    def extend(self, _values: Any) -> None:
        """As lists do."""

    def __hash__(self) -> int:
        return id(self)


_HARMLESS = {
    ("collections", "OrderedDict"),
    ("torch", "Size"),
    ("torch", "device"),
    *(("torch._utils", f"_rebuild_{what}") for what in ("tensor", "tensor_v2", "tensor_v3", "parameter")),
    # as Python 2 called the module, and so do files of its protocol
    *(("__builtin__", name) for name in ("set", "frozenset", "complex", "bytearray")),
    *(("builtins", name) for name in ("set", "frozenset", "complex", "bytearray")),
}
#: What :func:`torch.load` wants of a module.
_INERT: Any = SimpleNamespace(__name__="inert", Unpickler=_Inert, load=lambda file, **how: _Inert(file, **how).load())


def _state(file: Path, content: Any) -> dict[str, Tensor]:
    """The dictionary of tensors in what was read."""
    if isinstance(content, Mapping):
        if content and all(isinstance(value, Tensor) for value in content.values()):
            return dict(content)
        for entry in _ENTRIES:
            if isinstance(content.get(entry), Mapping):
                return _state(file, {k: v for k, v in content[entry].items() if isinstance(v, Tensor)})
    there = f"a {type(content).__name__}" + (f" of {_some(list(content))}" if isinstance(content, Mapping) else "")
    raise WeightsError(f"{file} has no tensors by name: found {there}; a state_dict is needed.")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


# ------------------------------------------------------------------------------------------------------------ matching


class _Plan(NamedTuple):
    tensors: dict[str, Tensor]
    cut: dict[str, str]
    new: tuple[str, ...]
    ignored: dict[str, str]


def _matched(file: Path, content: Mapping[str, Tensor], wanted: Mapping[str, Tensor], rules: _Rules) -> _Plan:
    """Which tensor goes where; an error with all that does not fit."""
    plan, problems = _Plan({}, {}, (), {}), []
    only_students = any(name.startswith("student.") for name in content)
    for name, tensor in content.items():
        plain = _without_prefix(name, rules.prefixes)
        why = next((why for pattern, why in rules.ignored if re.search(pattern, plain)), None)
        if why is None and only_students and not name.startswith("student."):
            why = _PRETRAINING
        if why is not None:
            plan.ignored[name] = why
            continue
        own = plain
        for pattern, replacement in rules.renamed:
            own = re.sub(pattern, replacement, own, count=1)
        if own not in wanted:
            problems.append(f"{name!r} is not of this backbone")
        elif own in plan.tensors:
            problems.append(f"{own!r} is there twice, once as {name!r}")
        elif not bool(torch.isfinite(tensor).all()):
            problems.append(f"{name!r} has NaN or infinite entries")
        elif tensor.shape == wanted[own].shape:
            plan.tensors[own] = tensor
        else:
            problems += _cut(plan, name, own, tensor, wanted[own], rules.leading.get(own))
    missing = [name for name in wanted if name not in plan.tensors and name not in rules.new]
    named = {problem.partition("' ")[0].strip("'") for problem in problems}
    problems += [f"{name!r} is missing" for name in missing if name not in named]
    if problems:
        raise WeightsError(
            f"{file} does not fit: {len(plan.tensors)} of {len(wanted)} tensors match. {_some(problems, 12, '; ')}. "
            "Is it of this backbone, in this size?"
        )
    return plan._replace(new=tuple(name for name in rules.new if name not in plan.tensors))


def _cut(plan: _Plan, name: str, own: str, tensor: Tensor, wanted: Tensor, axis: int | None) -> list[str]:
    """Take the first entries along an axis where a file has more of them; otherwise say what is wrong.

    braindecode has one place in time more than there are segments, which is never used; a file may lack it.
    """
    sizes = f"{tuple(tensor.shape)} in the file and {tuple(wanted.shape)} here"
    if axis is not None and tensor.ndim == wanted.ndim and tensor.shape[axis] > wanted.shape[axis]:
        part = tensor.narrow(axis, 0, wanted.shape[axis])
        if part.shape == wanted.shape:
            plan.tensors[own] = part
            plan.cut[own] = f"the first {part.shape[axis]} of {tensor.shape[axis]}"
            return []
    if own in _ONE_UNUSED and axis is not None and tensor.shape[axis] == wanted.shape[axis] - 1:
        plan.tensors[own] = torch.cat([tensor, wanted.narrow(axis, tensor.shape[axis], 1).cpu()], axis)
        plan.cut[own] = f"all {tensor.shape[axis]}; one more, which is not used, is as initialised"
        return []
    return [f"{own!r} ({name}) is {sizes}"]


def _without_prefix(name: str, prefixes: Sequence[str]) -> str:
    """Without any of the prefixes, as often as they come."""
    for prefix in prefixes:
        if name.startswith(prefix):
            return _without_prefix(name.removeprefix(prefix), prefixes)
    return name


def _some(words: Sequence[Any], most: int = 5, between: str = ", ") -> str:
    more = f"{between}and {len(words) - most} more" if len(words) > most else ""
    return between.join(map(str, words[:most])) + more
