"""The command line: its commands, and how errors are reported.

Exit codes: 0 success, 1 unexpected error (with traceback), 2 wrong argument or file, 3 some runs failed and the others
are done, 130 interrupted by Ctrl-C.  Errors are printed to stderr; with ``--json``, stdout has a single document.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import gbwatt
from gbwatt.cli import benchmark, clinical, data, models, online, predict, report, results, search, train
from gbwatt.cli.options import SeveralValues, kernel_note
from gbwatt.experiments.table_formats import visible_lines

app = typer.Typer(
    name="gbwatt",
    help="Riemannian self-attention for EEG.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(cls=SeveralValues)(train.train)
app.command(cls=SeveralValues)(search.search)
app.command()(clinical.finetune)
app.command(cls=SeveralValues)(models.evaluate)
app.command()(predict.predict)
app.command()(online.online)
app.command()(online.replay)
app.command(cls=SeveralValues)(models.explain)
app.command()(benchmark.benchmark)
app.command()(results.tables)
app.command(cls=SeveralValues)(report.report)
app.command()(models.models)
app.add_typer(data.app, name="data")
app.add_typer(clinical.corpus_app, name="corpus")
app.add_typer(results.store_app, name="store")


def _print_version(requested: bool) -> None:
    """Print the version and exit, if the option was given."""
    if requested:
        Console().print(gbwatt.__version__, highlight=False)
        raise typer.Exit


@app.callback()
def _global_options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Riemannian self-attention for EEG."""


@app.command()
def version() -> None:
    """Print the version, and whether the compiled kernels are installed."""
    console = Console(soft_wrap=True)
    console.print(gbwatt.__version__, highlight=False)
    console.print(kernel_note() or "The compiled kernels are installed.", highlight=False)


def main() -> None:
    """Run the command line.  Warnings and user errors are printed without a traceback."""
    warnings.showwarning = _show_warning
    try:
        app()
    except Exception as error:
        if not is_user_error(error):
            raise
        if os.environ.get("RANK", "0") == "0":  # only one of several cooperating processes reports the error
            _print_message("[bold red]error:[/]", str(error))
        sys.exit(2)


def is_user_error(error: Exception) -> bool:
    """Return whether the user can fix the cause of an error, so that no traceback is needed.

    True for exceptions of this package, which say what to do, missing packages, and errors of the file system.
    """
    is_own = type(error).__module__.partition(".")[0] == gbwatt.__name__
    return is_own or isinstance(error, ImportError | OSError)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning to stderr, without file and line; replaces ``warnings.showwarning``."""
    _print_message("[bold yellow]warning:[/]", str(message))


def _print_message(label: str, text: str) -> None:
    """Print a label, which may have Rich markup, and a text to stderr; the text is escaped."""
    Console(stderr=True, soft_wrap=True).print(f"{label} {escape(visible_lines(text))}", highlight=False)
