"""What the commands share: arguments that mean the same everywhere, how they are read, and JSON."""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from gbwatt._validation import check_at_least
from gbwatt.errors import ParameterError

if TYPE_CHECKING:
    from gbwatt.data import Trials
    from gbwatt.data.datasets import Dataset
    from gbwatt.data.splits import Split

_MOST = 10_000  # numbers in a range
#: Exit code after Ctrl-C, as shells have it.
INTERRUPTED = 130


def _folder(root: Path | None) -> Path | None:
    if root is not None and not root.expanduser().is_dir():
        raise ParameterError(f"root={str(root)!r} is no folder; it is the one that has the recordings.")
    return root


Root = Annotated[
    Path | None,
    typer.Option(callback=_folder, help="Folder of recordings, instead of GBWATT_DATA or ~/gbwatt_data."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else, on stdout.")]
DatasetName = Annotated[str, typer.Option(help="A data set of `gbwatt data list`, moabb:NAME, or a file.")]
Subject = Annotated[int | None, typer.Option(help="Number of the subject; by default the first.")]
SourceName = Annotated[
    str | None, typer.Option("--source", help="Form of the files; by default the first that is there.")
]
Reading = Annotated[
    list[str] | None,
    typer.Option("--read", help="Option of the reader, e.g. tmin=0.5 and tmax=4 for a recording; repeatable."),
]
TestedDataset = Annotated[
    str | None,
    typer.Option(
        "--dataset", help="A data set of `gbwatt data list`, moabb:NAME, or a file; by default that of training."
    ),
]
TestedSubject = Annotated[
    int | None, typer.Option("--subject", help="Number of the subject; by default that of training, or the first.")
]
TestedSplit = Annotated[
    int | None, typer.Option("--split", help="Which of the subject's splits; by default that of training.", min=0)
]
SplitNumber = Annotated[int, typer.Option(help="Which of the subject's splits, where there are several.", min=0)]
Threads = Annotated[int | None, typer.Option(help="Threads of torch; by default all cores.", min=1)]


def key_values(texts: list[str] | None, name: str = "option") -> dict[str, Any]:
    """``key=value`` as arguments; values are JSON where they can be read as such, else text.

    Examples
    --------
    >>> key_values(["theta=1.5", "metric=bures-wasserstein", "features=false"])
    {'theta': 1.5, 'metric': 'bures-wasserstein', 'features': False}
    """
    found: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"--{name} {text!r} is not of the form key=value.")
        if key in found:
            raise typer.BadParameter(f"--{name} has {key} twice.")
        try:
            found[key] = json.loads(value)
        except (ValueError, RecursionError):
            found[key] = value
    return found


def numbers(name: str, text: str) -> list[int]:
    """Whole numbers and ranges, in their order.

    Examples
    --------
    >>> numbers("subjects", "1,2,5-7")
    [1, 2, 5, 6, 7]
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        digits = first.isdecimal() and (last.isdecimal() if dash else True) and max(len(first), len(last)) < 10
        if not digits or (dash and int(last) < int(first)):
            raise ParameterError(f"{name}={text!r} has {part!r}; numbers and ranges are needed, such as 1,2,5-7.")
        if dash and int(last) - int(first) >= _MOST:
            raise ParameterError(f"{name}={text!r} has {part!r}; at most {_MOST} numbers are possible.")
        found.extend(range(int(first), int(last or first) + 1))
    twice = [number for number, count in Counter(found).items() if count > 1]
    if twice:
        raise ParameterError(f"{name}={text!r} has {twice[0]} twice.")
    return found


def seed_numbers(text: str) -> list[int]:
    """A number of seeds, or the seeds."""
    if text.isdecimal() and len(text) < 10:
        check_at_least("seeds", int(text), 1)
        return numbers("seeds", f"0-{int(text) - 1}")
    return numbers("seeds", text.rstrip(","))


def reading(source: str | None, options: list[str] | None) -> dict[str, Any]:
    """How recordings are read, as arguments of :func:`gbwatt.data.load`: what is given, and nothing else."""
    return {**({} if source is None else {"source": source}), **key_values(options, "read")}


def open_trials(dataset: Dataset, subject: int | None, root: Path | None, how: dict[str, Any]) -> Trials:
    """Trials of a subject."""
    from gbwatt.data import load

    return load(dataset.name, subject, root=root, **how)


def open_split(
    dataset: Dataset, subject: int | None, number: int, root: Path | None, how: dict[str, Any]
) -> tuple[Trials, Split]:
    """Trials of a subject, and one of the ways in which the protocol of the data set divides them."""
    trials = open_trials(dataset, subject, root, how)
    splits = dataset.protocol.splits(trials)
    if not 0 <= number < len(splits):
        which = "only split 0" if len(splits) == 1 else f"the splits 0 to {len(splits) - 1}"
        raise ParameterError(f"split={number} is not there: a subject of {dataset.name} has {which}.")
    return trials, splits[number]


def require_writable(folder: Path) -> None:
    """Find out now, not when the work is done, whether a folder can be written; nothing is left behind."""
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        if new:
            folder.rmdir()
    except OSError as error:
        raise ParameterError(
            f"output={str(folder)!r} cannot be written ({error.strerror or error}); choose another with -o."
        ) from error


def kernel_note() -> str | None:
    """What to say if the compiled kernels are missing; installers keep quiet about it."""
    from gbwatt.geometry import _native as geometry
    from gbwatt.nn import _native as filters

    if geometry.available() and filters.available():
        return None
    return (
        "note: gbwatt was installed without its compiled kernels, and training takes many times as long; install a C "
        "compiler, and then gbwatt again."
    )


def use_threads(number: int | None) -> None:
    """Let torch use that many threads."""
    if number is not None:
        import torch

        torch.set_num_threads(number)


def print_json(document: Any) -> None:
    """Print a document on stdout, with null for what is no number."""
    Console().print_json(to_json(document))


def to_json(document: Any) -> str:
    """A document as text; JSON has neither NaN nor infinities.

    Examples
    --------
    >>> to_json({"kappa": float("nan")})
    '{"kappa": null}'
    """
    return json.dumps(_finite(document), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
