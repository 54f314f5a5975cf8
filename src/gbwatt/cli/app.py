"""``gbwatt``: the commands together, and how errors leave it.

Exit codes: 0 done, 1 an unexpected failure (with its traceback), 2 a wrong argument or file, 3 some runs failed and the
others are done, 130 interrupted by Ctrl-C.  Errors are a line on stderr; with ``--json``, stdout has one document.
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
from gbwatt.cli import benchmark, corpus, data, evaluate, explain, finetune, models, report, store, tables, train
from gbwatt.experiments.table_formats import visible_lines

app = typer.Typer(
    name="gbwatt",
    help="Riemannian self-attention for EEG.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(train.train)
app.command()(finetune.finetune)
app.command()(evaluate.evaluate)
app.command()(explain.explain)
app.command()(benchmark.benchmark)
app.command()(tables.tables)
app.command()(report.report)
app.command()(models.models)
app.add_typer(data.app, name="data")
app.add_typer(corpus.app, name="corpus")
app.add_typer(store.app, name="store")


def _version(asked: bool) -> None:
    if asked:
        Console().print(gbwatt.__version__, highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Riemannian self-attention for EEG."""


@app.command()
def version() -> None:
    """Print the version."""
    _version(True)


def main() -> None:
    """Run the command line; warnings, and errors that the user can mend, are printed as a line."""
    warnings.showwarning = _show_warning
    try:
        app()
    except Exception as error:
        if not mendable(error):
            raise
        if os.environ.get("RANK", "0") == "0":  # of several processes that do one thing, one says what is wrong
            _say("[bold red]error:[/]", str(error))
        sys.exit(2)


def mendable(error: Exception) -> bool:
    """Whether an error is the user's to mend.

    So are those with a name of their own in this package, which say what to do; missing packages; files.
    """
    ours = type(error).__module__.partition(".")[0] == gbwatt.__name__
    return ours or isinstance(error, ImportError | OSError)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _say("[bold yellow]warning:[/]", str(message))


def _say(kind: str, text: str) -> None:
    Console(stderr=True, soft_wrap=True).print(f"{kind} {escape(visible_lines(text))}", highlight=False)
