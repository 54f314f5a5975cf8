"""``gbwatt explain``: what a saved model looks at, as pictures and in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gbwatt._validation import check_one_of
from gbwatt.cli.options import (
    AsJson,
    Reading,
    Root,
    SourceName,
    TestedDataset,
    TestedSplit,
    TestedSubject,
    Threads,
    print_json,
    reading,
    require_writable,
    use_threads,
)
from gbwatt.errors import ParameterError

if TYPE_CHECKING:
    from gbwatt.report.explanation import Picture

CAPTIONS = "captions.md"


def explain(
    folder: Annotated[Path, typer.Argument(help="Folder of a model that `gbwatt train` saved.")],
    dataset: TestedDataset = None,
    subject: TestedSubject = None,
    split: TestedSplit = None,
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
    _require_free(output, force)
    require_writable(output)
    from gbwatt.decoding.evaluation import Asked, open_tested
    from gbwatt.explain import METHODS
    from gbwatt.report.explanation import Explanation

    check_one_of("method", method, tuple(METHODS))
    use_threads(threads)
    tested = open_tested(folder, Asked(dataset, subject, split, reading(source, read)), root)
    explanation = Explanation(tested.decoder, tested.trials, method)
    said = [*filter(None, [tested.warning]), *explanation.findings()]
    drawn = list(explanation.pictures())
    what = f"{tested.decoder.model} in {folder}, on {tested.what}, by {method}"
    files = _save(drawn, output, what, said)
    if as_json:
        about = {"model": tested.decoder.model, "dataset": tested.dataset, "split": tested.split}
        print_json({**about, **explanation.numbers, "findings": said, "files": files})
        return
    console = Console(soft_wrap=True)
    for text in (f"{what}:", *said):
        console.print(text, highlight=False, markup=False)
    console.print(f"{len(drawn)} pictures, and {CAPTIONS}, in {output}", highlight=False, markup=False)


def _require_free(output: Path, force: bool) -> None:
    if output.exists() and not output.is_dir():
        raise ParameterError(f"output={str(output)!r} is a file; a folder is needed: choose another with -o.")
    if output.is_dir() and any(output.iterdir()) and not force:
        raise ParameterError(
            f"output={str(output)!r} has files; choose another with -o, or replace pictures of the same name with "
            "--force."
        )


def _save(drawn: list[Picture], output: Path, what: str, said: list[str]) -> list[str]:
    """Write pictures, and a page of their captions."""
    from gbwatt.plotting import save

    files: list[str] = []
    lines = [f"# Explanation of {what}", "", *(f"- {text}" for text in said)]
    for picture in drawn:
        files += [str(path) for path in save(picture.figure, output / picture.name)]
        lines += ["", f"![{picture.name}]({picture.name}.svg)", "", picture.caption]
    (output / CAPTIONS).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [*files, str(output / CAPTIONS)]
