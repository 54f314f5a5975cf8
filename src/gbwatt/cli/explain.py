"""``gbwatt explain``: what a saved model looks at, as pictures and in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gbwatt import checks
from gbwatt.cli.options import (
    AsJson,
    DatasetName,
    Reading,
    Root,
    SourceName,
    SplitNumber,
    Subject,
    Threads,
    open_split,
    print_json,
    reading,
    use_threads,
)
from gbwatt.data import find_dataset

if TYPE_CHECKING:
    from gbwatt.report.explanation import Picture

CAPTIONS = "captions.md"


def explain(
    folder: Annotated[Path, typer.Argument(help="Folder of a model that `gbwatt train` saved.")],
    dataset: DatasetName,
    subject: Subject = None,
    split: SplitNumber = 0,
    method: Annotated[
        str, typer.Option(help="gradient, gradient-times-input, integrated-gradients or smooth-gradient.")
    ] = "gradient",
    root: Root = None,
    source: SourceName = None,
    read: Reading = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")] = Path("explanation"),
    force: Annotated[bool, typer.Option("--force", help="Replace pictures that are there.")] = False,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Draw what a model looks at in the test trials of a subject: SVG and PNG, each with a caption."""
    from gbwatt.cli.evaluate import open_model
    from gbwatt.explain import METHODS
    from gbwatt.report.explanation import findings, pictures_of

    checks.one_of("method", method, tuple(METHODS))
    _require_free(output, force)
    use_threads(threads)
    decoder, found = open_model(folder), find_dataset(dataset)
    trials, divided = open_split(found, subject, split, root, reading(source, read))
    tested = trials[divided.test]
    said = findings(decoder, tested, method)
    drawn = list(pictures_of(decoder, tested, method))
    what = f"{decoder.model} in {folder}, on {len(tested.y)} test trials of {found.name} ({divided.name})"
    files = _save(drawn, output, what, said)
    if as_json:
        print_json({"model": decoder.model, "dataset": found.name, "findings": said, "files": files})
        return
    console = Console(soft_wrap=True)
    for text in (f"{what[0].upper()}{what[1:]}, by {method}:", *said):
        console.print(text, highlight=False, markup=False)
    console.print(f"{len(drawn)} pictures, and {CAPTIONS}, in {output}", highlight=False, markup=False)


def _require_free(output: Path, force: bool) -> None:
    if output.exists() and not output.is_dir():
        raise checks.ParameterError(f"output={str(output)!r} is a file; a folder is needed: choose another with -o.")
    if output.is_dir() and any(output.iterdir()) and not force:
        raise checks.ParameterError(
            f"output={str(output)!r} has files; choose another with -o, or replace pictures of the same name with "
            "--force."
        )


def _save(drawn: list[Picture], output: Path, what: str, said: list[str]) -> list[str]:
    """Write pictures, and a page of their captions."""
    from gbwatt.figures import save

    files: list[str] = []
    lines = [f"# Explanation of {what}", "", *(f"- {text}" for text in said)]
    for picture in drawn:
        files += [str(path) for path in save(picture.figure, output / picture.name)]
        lines += ["", f"![{picture.name}]({picture.name}.svg)", "", picture.caption]
    (output / CAPTIONS).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [*files, str(output / CAPTIONS)]
