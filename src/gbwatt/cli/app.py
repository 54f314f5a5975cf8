"""``gbwatt``: the commands together, and how errors leave it.

Exit codes: 0 done, 1 an unexpected failure (with its traceback), 2 a wrong argument or file.
"""

from __future__ import annotations

import sys
import warnings

import typer
from rich.console import Console
from rich.markup import escape

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
    """Run the command line; warnings, and errors that the user can mend, are printed as a line."""
    warnings.showwarning = _show_warning
    try:
        app()
    except (checks.InputError, ImportError) as error:
        _say("[bold red]error:[/]", str(error))
        sys.exit(2)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _say("[bold yellow]warning:[/]", str(message))


def _say(kind: str, text: str) -> None:
    Console(stderr=True, soft_wrap=True).print(f"{kind} {escape(text)}", highlight=False)
