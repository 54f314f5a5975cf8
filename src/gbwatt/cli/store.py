"""``gbwatt store``: results out of a store and into it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gbwatt.experiments.runs import Run
from gbwatt.experiments.store import Store
from gbwatt.experiments.table_formats import visible, visible_lines

app = typer.Typer(help="Results: export, import, merge, and what failed.", no_args_is_help=True)

Where = Annotated[Path, typer.Option("--store", help="The store.")]
STORE = Path("results.sqlite")


@app.command("export")
def export(
    file: Annotated[Path, typer.Argument(help="CSV file to write.")],
    store: Where = STORE,
) -> None:
    """Write all rows into a CSV file."""
    with Store(store, create=False) as kept:
        kept.export_csv(file)
        Console().print(f"{len(kept)} rows in {file}", highlight=False)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="CSV file that `gbwatt store export` wrote.")],
    store: Where = STORE,
) -> None:
    """Take the rows of a CSV file into the store."""
    with Store(store) as kept:
        Console().print(f"{kept.import_csv(file)} new rows, {len(kept)} in {store}", highlight=False)


@app.command()
def merge(
    others: Annotated[list[Path], typer.Argument(help="Stores whose rows are taken.")],
    store: Where = STORE,
) -> None:
    """Take the rows of other stores, of other machines for instance."""
    with Store(store) as kept:
        for other in others:
            Console().print(f"{kept.merge(other)} new rows of {other}", highlight=False)
        Console().print(f"{len(kept)} in {store}", highlight=False)


@app.command()
def recover(
    damaged: Annotated[Path, typer.Argument(help="A store that cannot be opened because it is damaged.")],
    store: Annotated[Path, typer.Option("--store", help="Where its rows go: a new store, or another.")],
) -> None:
    """Copy the undamaged rows of a damaged store."""
    with Store(store) as kept:
        Console().print(f"{kept.recover(damaged)} rows of {damaged} in {store}", highlight=False)


@app.command()
def failed(store: Where = STORE) -> None:
    """Runs that failed, each with its traceback."""
    console = Console(soft_wrap=True)
    with Store(store, create=False) as kept:
        rows = kept.rows(kept.keys("failed"))
    for row in rows:
        console.print(
            f"[bold red]failed:[/] {escape(visible(str(Run.from_dict(row.run))))} ({row.finished})", highlight=False
        )
        console.print(visible_lines(row.traceback or ""), highlight=False, markup=False)
    console.print(f"{len(rows)} failed runs; `gbwatt benchmark … --retry-failed` does them again.", highlight=False)
