"""Published weights of backbones: read without executing anything, all of them or an error that says what is left."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gbwatt.clinical.backbones import BIOT, Backbone, LaBraM
from gbwatt.clinical.torch_files import read_state_dict
from gbwatt.errors import ModelFileError, WeightsFileError
from gbwatt.models.serialization import FLOATS, parse_safetensors

#: Files of weights in a folder of a model hub, in the order in which they are looked for.
_FILES = ("model.safetensors", "pytorch_model.bin")
#: Words in the place of a file: random weights, or those that are set afterwards.
NO_FILE = ("random", "later")


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
    WeightsFileError
        If the file does not exist, is damaged or contains code, or its tensors do not fit the backbone.  The backbone
        is then unchanged.

    Notes
    -----
    Nothing in a file is executed.  Objects beside the weights, such as the settings of a training, are skipped;
    TorchScript archives are refused.
    """
    file = find_file(Path(path).expanduser())
    content = _read(file)
    tensors = _tensors(file, content)
    rules = _RULES.get(type(backbone))
    if rules is None:
        raise WeightsFileError(
            f"nothing is known of the weights of {type(backbone).__name__}; set them with load_state_dict."
        )
    plan = _matched(file, tensors, backbone.state_dict(), rules)
    backbone.load_state_dict(plan.tensors, strict=False)
    digest = hashlib.sha256(content.getbuffer()).hexdigest()
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
        raise WeightsFileError(f"{path} has none of {', '.join(_FILES)}; give the file itself.")
    raise WeightsFileError(
        f"there is no {path}; get the weights from the authors of the backbone, or ask for random ones with "
        "weights='random'."
    )


def _read(file: Path) -> io.BytesIO:
    content = io.BytesIO()
    try:
        with file.open("rb") as stream:
            shutil.copyfileobj(stream, content, 1 << 24)
    except OSError as error:
        raise WeightsFileError(
            f"{file} cannot be read ({error.strerror}); check its permissions and the disk."
        ) from None
    except MemoryError:
        raise WeightsFileError(f"{file} is larger than the available memory; is it the right file?") from None
    return content


def _tensors(file: Path, content: io.BytesIO) -> dict[str, Tensor]:
    """All tensors of a file by name."""
    if file.suffix != ".safetensors":
        return read_state_dict(file, content)
    try:
        return parse_safetensors(file, content.getvalue())
    except ModelFileError as error:
        raise WeightsFileError(str(error)) from None


# ------------------------------------------------------------------------------------------------------------ matching


class _Plan(NamedTuple):
    tensors: dict[str, Tensor]
    cut: dict[str, str]
    new: tuple[str, ...]
    ignored: dict[str, str]


def _matched(file: Path, content: Mapping[str, Tensor], wanted: Mapping[str, Tensor], rules: _Rules) -> _Plan:
    """Which tensor goes where; an error with all that does not fit."""
    plan, problems, named = _Plan({}, {}, (), {}), list[str](), set[str]()
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
        shown = repr(name[:100])
        if own not in wanted:
            problems.append(f"{shown} does not belong to this backbone")
            continue
        named.add(own)
        if own in plan.tensors:
            problems.append(f"{own!r} occurs twice, also as {shown}")
        elif (tensor.dtype in FLOATS) != wanted[own].is_floating_point() or tensor.is_complex():
            problems.append(f"{shown} is {tensor.dtype} and should be {wanted[own].dtype}")
        elif tensor.shape != wanted[own].shape:
            problems += _cut(plan, shown, own, tensor, wanted[own], rules.leading.get(own))
        else:
            plan.tensors[own] = tensor
        if own in plan.tensors and not bool(torch.isfinite(plan.tensors[own].to(wanted[own].dtype)).all()):
            problems.append(f"{shown} has NaN or infinite entries")
    missing = [name for name in wanted if name not in plan.tensors and name not in rules.new]
    problems += [f"{name!r} is missing" for name in missing if name not in named]
    if problems:
        raise WeightsFileError(
            f"{file} does not fit: {len(plan.tensors)} of {len(wanted)} tensors match. {_some(problems, 12, '; ')}. "
            "Use weights of this backbone, of the same size."
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
    if own in _ONE_UNUSED and axis is not None:
        shorter = wanted.narrow(axis, 0, wanted.shape[axis] - 1)
        if tensor.shape == shorter.shape:
            plan.tensors[own] = torch.cat(
                [tensor.to(wanted.dtype), wanted.narrow(axis, shorter.shape[axis], 1).cpu()], axis
            )
            plan.cut[own] = f"all {tensor.shape[axis]}; one more, which is not used, is as initialised"
            return []
    return [f"{own!r} ({name}) is {sizes}"]


def _without_prefix(name: str, prefixes: Sequence[str]) -> str:
    """Without any of the prefixes, as often as they come."""
    start = 0
    while (prefix := next((p for p in prefixes if name.startswith(p, start)), None)) is not None:
        start += len(prefix)
    return name[start:]


def _some(words: Sequence[Any], most: int = 5, between: str = ", ") -> str:
    more = f"{between}and {len(words) - most} more" if len(words) > most else ""
    return between.join(map(str, words[:most])) + more
