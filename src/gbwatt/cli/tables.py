"""``gbwatt tables``: the results of an experiment beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gbwatt import checks
from gbwatt.cli.store import STORE

if TYPE_CHECKING:
    from gbwatt.experiments.runs import Row

FORMATS = ("terminal", "markdown", "latex", "csv")
FOLDER = Path("experiments")


def tables(
    experiment: Annotated[str, typer.Argument(help="Name of a file in experiments/, or a file.")],
    store: Annotated[Path, typer.Option(help="Where results are kept.")] = STORE,
    results: Annotated[
        list[Path] | None, typer.Option(help="CSV file of results, instead of a store; repeatable.")
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; repeatable.")] = None,
    reference: Annotated[str | None, typer.Option(help="Line that all others are compared with.")] = None,
    form: Annotated[str, typer.Option("--format", help=", ".join(FORMATS))] = "terminal",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write, instead of printing.")] = None,
) -> None:
    """Ours, the paper's, the difference, spreads over seeds and subjects, and paired tests between models."""
    from gbwatt.data import find_dataset
    from gbwatt.experiments.config import read
    from gbwatt.experiments.formats import to_csv, to_latex, to_markdown, to_rich
    from gbwatt.experiments.matching import cells_of
    from gbwatt.experiments.tables import make_table

    checks.one_of("format", form, FORMATS)
    found = read(_file(experiment))
    rows = _rows(store, results)
    names = None if dataset is None else [find_dataset(name).name for name in dataset]
    cells = cells_of(found, rows, names)
    if not cells:
        raise checks.ParameterError(
            f"there is no result of experiment {found.name!r} in {_where(store, results)}; "
            f"`gbwatt benchmark {_file(experiment)}` makes them."
        )
    if reference is not None:
        checks.one_of("reference", reference, tuple(dict.fromkeys(cell.label for cell in cells)))
    table = make_table(found.title, cells, {row.key: row for row in rows}, paper_table=found.paper, reference=reference)
    if form == "terminal" and output is None:
        for one in table.tables:
            Console().print(to_rich(one))
        return
    render = {"markdown": to_markdown, "latex": to_latex, "csv": to_csv, "terminal": to_markdown}[form]
    text = "\n\n".join(render(one).strip() for one in table.tables) + "\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


def _file(name: str) -> Path:
    """A file, or the one of that name in the folder of experiments."""
    path = Path(name)
    return path if path.suffix or path.exists() else FOLDER / f"{name}.yaml"


def _where(store: Path, results: list[Path] | None) -> str:
    return ", ".join(map(str, results)) if results else str(store)


def _rows(store: Path, results: list[Path] | None) -> list[Row]:
    from gbwatt.experiments.store import Store
    from gbwatt.experiments.tabular import read_csv

    if results:
        return [row for file in results for row in read_csv(file)]
    with Store(store, create=False) as kept:
        return kept.rows()
