"""Options that several commands share, checks of output paths, JSON output, and printed scores."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from gbwatt import _io
from gbwatt._validation import check_at_least
from gbwatt.data.loading import numbered_files
from gbwatt.data.preprocessing import Preprocessing
from gbwatt.data.preprocessing.parsing import EXAMPLE
from gbwatt.errors import ModelFileError, ParameterError

_MAX_IN_RANGE = 10_000  # largest number of integers in a range such as 5-7
#: Exit code after Ctrl-C, as in shells.
INTERRUPTED = 130


def _require_folder(root: Path | None) -> Path | None:
    """Require that the folder of ``--root`` exists, if the option was given."""
    if root is not None and not root.expanduser().is_dir():
        raise ParameterError(f"root={str(root)!r} is not a folder; give the folder of the recordings.")
    return root


_DATASET_HELP = "Name of a data set (see `gbwatt data list`), moabb:NAME, or a file"

# Arguments and options of commands, with their help texts.
ModelFolder = Annotated[Path, typer.Argument(help="Folder of a saved model.")]
Root = Annotated[
    Path | None,
    typer.Option(callback=_require_folder, help="Folder of recordings; default: $GBWATT_DATA, else ~/gbwatt_data."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a single JSON document to stdout.")]
DatasetNames = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        help=f"{_DATASET_HELP}; or several files, of the subjects 1, 2, … in this order, or with numbers: 1=a.edf "
        "1=b.edf 2=c.edf. Default: simulated-ssvep.",
    ),
]
Subjects = Annotated[
    str | None,
    typer.Option(
        "--subject", "--subjects", help="Subjects, e.g. 3 or 1-9, or all; default: the first, or all of several files."
    ),
]
SourceName = Annotated[
    str | None, typer.Option("--source", help="File source (gdf, processed, moabb, …); default: the first available.")
]
Reading = Annotated[
    list[str] | None,
    typer.Option("--read", help="Option of the file reader, e.g. tmin=0.5 or tmax=4; repeatable."),
]
TestedDataset = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        help=f"{_DATASET_HELP}; or several files, as for `gbwatt train`. Files without numbers are of new subjects, "
        "unless they were used for training. Default: the data set used for training.",
    ),
]
TestedSubject = Annotated[
    str | None,
    typer.Option("--subject", "--subjects", help="Subjects, e.g. 3 or 1-9, or all; default: those used for training."),
]
TrainOn = Annotated[
    list[str] | None,
    typer.Option("--train", help="Train on these subjects, e.g. 1-8, or files; test on those of --test."),
]
TestOn = Annotated[list[str] | None, typer.Option("--test", help="Test on these subjects, or files; with --train.")]
Protocol = Annotated[
    str | None,
    typer.Option(
        help="How trials are split: in-order, leave-one-session-out or leave-one-subject-out; --split selects the "
        "session or subject to test on. Default: the protocol of the data set."
    ),
]
_PREPROCESS_HELP = (
    f"Preprocessing steps, e.g. '{EXAMPLE}'; repeatable, in order. Recordings are filtered before trials are cut. "
    "Default: "
)
Preprocess = Annotated[
    list[str] | None,
    typer.Option("--preprocess", help=f"{_PREPROCESS_HELP}the steps of the data set; for files, those of the model."),
]
TrainedPreprocess = Annotated[
    list[str] | None,
    typer.Option(
        "--preprocess", help=f"{_PREPROCESS_HELP}the steps of the data set; for files, those of the weights of --init."
    ),
]
SearchedPreprocess = Annotated[
    list[str] | None,
    typer.Option("--preprocess", help=f"{_PREPROCESS_HELP}the steps of the data set; none for files."),
]
TestedSplit = Annotated[
    int | None, typer.Option("--split", help="Number of the split; default: the one used for training.", min=0)
]
SplitNumber = Annotated[int, typer.Option(help="Number of the split, from 0, if a subject has several.", min=0)]
Seed = Annotated[int, typer.Option(help="Random seed.", min=0)]
Threads = Annotated[int | None, typer.Option(help="Number of torch threads; default: all cores.", min=1)]


def key_values(texts: list[str] | None, name: str = "option") -> dict[str, Any]:
    """Parse ``key=value`` options; values are read as JSON if possible, else as text.

    Examples
    --------
    >>> key_values(["theta=1.5", "metric=bures-wasserstein", "features=false"])
    {'theta': 1.5, 'metric': 'bures-wasserstein', 'features': False}
    """
    values: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"--{name} {text!r} is not of the form key=value.")
        if key in values:
            raise typer.BadParameter(f"--{name} has {key} twice.")
        try:
            values[key] = json.loads(value)
        except (ValueError, RecursionError):
            if value.startswith(("{", "[")):
                raise typer.BadParameter(
                    f"--{name} {text!r}: the value is not valid JSON; names need double quotes, "
                    f"""for example '{key}={{"left": "T1"}}'."""
                ) from None
            values[key] = value
    return values


def numbers(name: str, text: str) -> list[int]:
    """Parse whole numbers and ranges, in their order; ``name`` is the option, for error messages.

    Examples
    --------
    >>> numbers("subjects", "1,2,5-7")
    [1, 2, 5, 6, 7]
    """
    parsed: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        digits = first.isdecimal() and (last.isdecimal() if dash else True) and max(len(first), len(last)) < 10
        if not digits or (dash and int(last) < int(first)):
            raise ParameterError(f"{name}={text!r} has {part!r}; give numbers and ranges, for example 1,2,5-7.")
        if dash and int(last) - int(first) >= _MAX_IN_RANGE:
            raise ParameterError(f"{name}={text!r} has {part!r}; a range has at most {_MAX_IN_RANGE} numbers.")
        parsed.extend(range(int(first), int(last or first) + 1))
    repeated = [number for number, count in Counter(parsed).items() if count > 1]
    if repeated:
        raise ParameterError(f"{name}={text!r} has {repeated[0]} twice.")
    return parsed


def seed_numbers(text: str) -> list[int]:
    """Parse the number of seeds, "3" for 0, 1 and 2, or a list of seeds, "0,5" or "5,"."""
    if text.isdecimal() and len(text) < 10:
        check_at_least("seeds", int(text), 1)
        return numbers("seeds", f"0-{int(text) - 1}")
    return numbers("seeds", text.rstrip(","))


def reading(source: str | None, options: list[str] | None, preprocess: list[str] | None = None) -> dict[str, Any]:
    """Return the arguments of :func:`gbwatt.data.load` from ``--source``, ``--read`` and ``--preprocess``."""
    steps = ",".join(preprocess) if preprocess else None
    if steps is not None:
        Preprocessing.parse(steps)  # raises an error before any data are read
    given = {"source": source, "preprocessing": steps}
    return {**{name: value for name, value in given.items() if value is not None}, **key_values(options, "read")}


def subjects(text: str | None) -> int | list[int] | Literal["all"] | None:
    """Parse the option ``--subjects``.

    Examples
    --------
    >>> subjects("3"), subjects("1-3,7"), subjects("all")
    (3, [1, 2, 3, 7], 'all')
    """
    if text is None or text == "all":
        return text  # type: ignore[return-value]
    parsed = numbers("subjects", text)
    return parsed[0] if len(parsed) == 1 else parsed


def subject_text(subject: int | str) -> str:
    """Return the number of a subject, or several numbers, as text.

    Examples
    --------
    >>> subject_text(3), subject_text("1-3, 7")
    ('subject 3', 'subjects 1-3, 7')
    """
    return f"subject{'s' * (not str(subject).isdecimal())} {subject}"


def recordings(names: list[str] | None) -> str | list[str] | None:
    """Return the value of ``--dataset``: a name, several files, or None."""
    return names[0] if names is not None and len(names) == 1 else names or None


class SeveralValues(TyperCommand):
    """A command whose repeatable options may be followed by several values: ``--dataset a.edf b.edf``.

    Words that begin the command line are its arguments.  If one is missing, it is the last word after several values:
    ``--dataset a.edf FOLDER``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the name of the option before each of its values, as click expects."""
        options = [one for one in self.params if one.param_type_name == "option"]
        repeatable = {name for one in options if getattr(one, "multiple", False) for name in one.opts}
        with_value = {name for one in options if not getattr(one, "is_flag", False) for name in one.opts}
        missing = sum(one.required for one in self.params if one.param_type_name == "argument")
        words: list[str] = []
        further: list[int] = []  # places of the names of options that are repeated
        option = None
        for word in args:
            if word.startswith("-"):
                option = word if word in repeatable else None
            elif option is not None and words[-1] != option:
                further.append(len(words))
                words.append(option)
            elif option is None and not (words and words[-1] in with_value):
                missing -= 1
            words.append(word)
        if missing > 0 and further:
            del words[further[-1]]
        return super().parse_args(ctx, words)


# --------------------------------------------------------------------------------------------------------------- output


def holds_model(folder: Path) -> bool:
    """Return whether a folder holds a model, even a damaged one."""
    from gbwatt.decoding.training_record import FILE
    from gbwatt.models.serialization import CONFIG, WEIGHTS, read_config

    try:
        read_config(folder / CONFIG)
    except ModelFileError:
        return (folder / WEIGHTS).exists() and (folder / FILE).exists()
    return True


def _is_html(file: Path) -> bool:
    """Return whether a file begins like a report or is empty, so that ``--force`` may replace it."""
    start = b"<!doctype html>"
    with file.open("rb") as content:
        return content.read(len(start)).lower() in (start, b"")


def _is_table(file: Path) -> bool:
    """Return whether a file begins like predictions in CSV or JSON or is empty, so that ``--force`` may replace it."""
    with file.open("rb") as content:
        return content.read(10).startswith((b"recording,", b"{")) or not file.stat().st_size


class _OutputKind(NamedTuple):
    """A kind of output: file or folder, and a function that tells whether ``--force`` may replace what exists."""

    is_folder: bool
    replaceable: Callable[[Path], bool]


_OUTPUT_KINDS = {
    "model": _OutputKind(True, holds_model),
    "explanation": _OutputKind(True, lambda _: True),  # files of other names are kept
    "report": _OutputKind(False, _is_html),
    "table": _OutputKind(False, _is_table),
}


def require_free(path: Path, *, kind: str, force: bool) -> None:
    """Raise an error if an output would replace something.

    Parameters
    ----------
    path : path
        File or folder to write.  An empty folder is free.
    kind : "model", "explanation", "report" or "table"
        The first two are folders, the others are files.
    force : bool
        Allow replacing an output of the same kind, and nothing else.

    Raises
    ------
    ParameterError
        If the output exists, or cannot be written there.
    """
    is_folder, replaceable = _OUTPUT_KINDS[kind]
    output = f"output={str(path)!r}"
    if path.exists() and path.is_dir() != is_folder:
        got, needed = ("a file", "a folder") if is_folder else ("a folder", "a file")
        raise ParameterError(f"{output} is {got}; {needed} is needed: choose another with -o.")
    if not is_folder and not path.parent.is_dir():
        raise ParameterError(f"{output}: there is no folder {str(path.parent)!r}; create it first.")
    if not is_folder:
        _io.require_writable(path.parent, output)
    if not path.exists() or (is_folder and not any(path.iterdir())):
        return
    if not force:
        raise ParameterError(f"{output} already exists; choose another with -o, or replace the {kind} with --force.")
    if not replaceable(path):
        raise ParameterError(
            f"{output} is not a {kind} of gbwatt, and --force replaces nothing else; choose another with -o."
        )


def require_writable(folder: Path) -> None:
    """Raise an error if the folder of an output cannot be written; nothing is left behind."""
    _io.require_writable(folder, f"output={str(folder)!r}")


def kernel_note() -> str | None:
    """Note to print if gbwatt was installed without its compiled kernels (pip does not report this), else None."""
    from gbwatt.geometry import _native as geometry
    from gbwatt.nn import _native as filters

    if geometry.available() and filters.available():
        return None
    return (
        "note: gbwatt was installed without its compiled kernels, so training takes several times as long; install a C "
        "compiler, and then gbwatt again."
    )


def use_threads(number: int | None) -> None:
    """Set the number of torch threads; None: do not change it."""
    if number is not None:
        import torch

        torch.set_num_threads(number)


def print_json(document: Any) -> None:
    """Print a JSON document to stdout, with null for NaN and infinities."""
    Console().print_json(_io.to_json(_io.without_nan(document)))


def kind_of_recordings(dataset: str, simulated: bool) -> str:
    """Return in words whether recordings are simulated, from files, or real."""
    if simulated:
        return "simulated recordings"
    files = [file for _, file in numbered_files(dataset)]
    if not all(file.exists() for file in files):
        return "real recordings"
    return "recordings of a file" if len(files) == 1 else f"recordings of {len(files)} files"


def percent(share: float) -> str:
    """Format a share as a percentage."""
    return f"{100 * share:.1f} %"


def print_scores(console: Console, title: str, scores: Mapping[str, Any]) -> None:
    """Print accuracy with interval and chance level, AUC if it is defined, calibration, and the confusion matrix."""
    low, high = scores["accuracy_95"]
    console.print(
        f"{escape(title)}: accuracy [bold]{percent(scores['accuracy'])}[/], {scores['hits']} of {scores['n']} trials; "
        f"95 % confidence interval {100 * low:.1f} to {percent(high)}; chance is {percent(scores['chance'])}.",
        highlight=False,
    )
    if scores["auc"] is not None and math.isfinite(scores["auc"]):  # undefined for trials of one class
        console.print(f"Area under the ROC curve: {scores['auc']:.3f}; chance is 0.5.", highlight=False)
    if scores.get("calibration_error") is not None:
        console.print(
            f"Expected calibration error: {percent(scores['calibration_error'])}, log loss {scores['loss']:.3f}.",
            highlight=False,
        )
    console.print(confusion_table(scores["confusion"], scores["class_names"]))


def confusion_table(confusion: Sequence[Sequence[int]], names: Sequence[str]) -> Table:
    """Return the confusion matrix as a table, with a row for each true class and a column for each predicted class."""
    table = Table("true class", title="Columns: predicted class", title_justify="left")
    for name in names:
        table.add_column(Text(name), justify="right")
    for row, (name, counts) in enumerate(zip(names, confusion, strict=True)):
        cells = [Text(str(n), style="bold" if column == row else "") for column, n in enumerate(counts)]
        table.add_row(Text(name), *cells)
    return table
