"""``gbwatt``: the commands together, and how errors leave it.

Exit codes: 0 done, 1 an unexpected failure (with its traceback), 2 a wrong argument or file.
"""

from __future__ import annotations

import sys

import typer
from rich.console import Console

import gbwatt
from gbwatt import checks
from gbwatt.cli import data

app = typer.Typer(
    name="gbwatt",
    help="Riemannian self-attention for EEG.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")


@app.command()
def version() -> None:
    """Print the version."""
    Console().print(gbwatt.__version__, highlight=False)


def main() -> None:
    """Run the command line; errors that the user can mend are printed without a traceback."""
    try:
        app()
    except (checks.InputError, ImportError) as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {_escaped(str(error))}", highlight=False)
        sys.exit(2)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
