"""``gbwatt store``: export, import and merge results, and list failed runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gbwatt.experiments.runs import Run
from gbwatt.experiments.store import Store
from gbwatt.experiments.table_formats import visible, visible_lines

app = typer.Typer(help="Export, import, merge and recover results; list failed runs.", no_args_is_help=True)

Where = Annotated[Path, typer.Option("--store", help="Store of results.")]
STORE = Path("results.sqlite")  # default of --store


@app.command("export")
def export(
    file: Annotated[Path, typer.Argument(help="CSV file to write.")],
    store: Where = STORE,
) -> None:
    """Write all rows to a CSV file."""
    with Store(store, create=False) as kept:
        kept.export_csv(file)
        Console().print(f"{len(kept)} rows in {file}", highlight=False)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="CSV file that `gbwatt store export` wrote.")],
    store: Where = STORE,
) -> None:
    """Add the rows of a CSV file to the store."""
    with Store(store) as kept:
        Console().print(f"{kept.import_csv(file)} new rows, {len(kept)} in {store}", highlight=False)


@app.command()
def merge(
    others: Annotated[list[Path], typer.Argument(help="Stores to read.")],
    store: Where = STORE,
) -> None:
    """Add the rows of other stores, for instance of other machines."""
    with Store(store) as kept:
        for other in others:
            Console().print(f"{kept.merge(other)} new rows from {other}", highlight=False)
        Console().print(f"{len(kept)} in {store}", highlight=False)


@app.command()
def recover(
    damaged: Annotated[Path, typer.Argument(help="Damaged store.")],
    store: Annotated[Path, typer.Option("--store", help="Store to copy the rows to; not the damaged one.")],
) -> None:
    """Copy the undamaged rows of a damaged store."""
    with Store(store) as kept:
        Console().print(f"{kept.recover(damaged)} rows of {damaged} copied to {store}", highlight=False)


@app.command()
def failed(store: Where = STORE) -> None:
    """List the failed runs with their tracebacks."""
    console = Console(soft_wrap=True)
    with Store(store, create=False) as kept:
        rows = kept.rows(kept.keys("failed"))
    for row in rows:
        console.print(
            f"[bold red]failed:[/] {escape(visible(str(Run.from_dict(row.run))))} ({row.finished})", highlight=False
        )
        console.print(visible_lines(row.traceback or ""), highlight=False, markup=False)
    console.print(f"{len(rows)} failed runs; `gbwatt benchmark … --retry-failed` executes them again.", highlight=False)
