"""``gbwatt tables``: the results of an experiment beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console

from gbwatt import checks
from gbwatt.cli.store import STORE

if TYPE_CHECKING:
    from gbwatt.experiments.config import Experiment
    from gbwatt.experiments.formats import Table
    from gbwatt.experiments.runs import Cell, Row

FORMATS = ("terminal", "markdown", "latex", "csv")
FOLDER = Path("experiments")
CLAIMS = "claims"  # instead of an experiment


def tables(
    experiment: Annotated[
        str | None,
        typer.Argument(help="Name of a file in experiments/, or a file; `claims` for what the paper says."),
    ] = None,
    store: Annotated[Path, typer.Option(help="Where results are kept.")] = STORE,
    results: Annotated[
        list[Path] | None, typer.Option(help="CSV file of results, instead of a store; repeatable.")
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; repeatable.")] = None,
    reference: Annotated[str | None, typer.Option(help="Line that all others are compared with.")] = None,
    form: Annotated[str, typer.Option("--format", help=", ".join(FORMATS))] = "terminal",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write, instead of printing.")] = None,
    page: Annotated[
        Path | None, typer.Option("--fill", help="Markdown file with places for tables, which are made anew.")
    ] = None,
) -> None:
    """Ours, the paper's, the difference, spreads over seeds and subjects, and paired tests between models."""
    checks.one_of("format", form, FORMATS)
    if (experiment is None) == (page is None):
        raise checks.ParameterError("give the name of an experiment, or --fill and a page.")
    source = Source(_rows(store, results), _where(store, results), dataset)
    if page is not None:
        _fill(page, source)
    elif experiment is not None:
        _print(source.table(experiment, reference), form, output)


def _fill(page: Path, source: Source) -> None:
    from gbwatt.experiments.formats import to_markdown
    from gbwatt.experiments.pages import fill

    def make(experiment: str, reference: str | None) -> str:
        return "\n".join(to_markdown(one) for one in source.table(experiment, reference).tables)

    old = page.read_text(encoding="utf-8")
    new = fill(old, make)
    if new != old:
        page.write_text(new, encoding="utf-8")
    typer.echo(f"{page}: {'made anew' if new != old else 'nothing new'}")


def _print(table: Table, form: str, output: Path | None) -> None:
    from gbwatt.experiments.formats import to_csv, to_latex, to_markdown, to_rich

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


class Source(NamedTuple):
    """Rows, and where they come from."""

    rows: list[Row]
    where: str
    datasets: list[str] | None

    def table(self, name: str, reference: str | None) -> Table:
        """The table of an experiment, or that of all claims."""
        from gbwatt.experiments.tables import make_table

        if name == CLAIMS:
            return self._claims(reference)
        found, cells = self._cells(name)
        if not cells:
            raise checks.ParameterError(
                f"there is no result of experiment {found.name!r} in {self.where}; "
                f"`gbwatt benchmark {_file(name)}` makes them."
            )
        if reference is not None:
            checks.one_of("reference", reference, tuple(dict.fromkeys(cell.label for cell in cells)))
        by_key = {row.key: row for row in self.rows}
        return make_table(
            found.title,
            cells,
            by_key,
            paper_table=found.paper,
            reference=reference,
            validation=found.validation,
        )

    def _claims(self, reference: str | None) -> Table:
        from gbwatt.experiments.claims import EXPERIMENTS, claims_table
        from gbwatt.experiments.tables import gather

        if reference is not None:
            raise checks.ParameterError("claims are compared as the paper does; leave out the reference.")
        by_key = {row.key: row for row in self.rows}
        here = [name for name in EXPERIMENTS if _file(name).exists()]
        return claims_table({name: gather(self._cells(name)[1], by_key) for name in here})

    def _cells(self, name: str) -> tuple[Experiment, list[Cell]]:
        from gbwatt.data import find_dataset
        from gbwatt.experiments.config import read
        from gbwatt.experiments.matching import cells_of

        found = read(_file(name))
        names = None if self.datasets is None else [find_dataset(dataset).name for dataset in self.datasets]
        return found, cells_of(found, self.rows, names)


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
