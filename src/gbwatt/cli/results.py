"""``gbwatt tables`` and ``gbwatt store``: tables of results beside those of the paper, and stores of results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gbwatt._validation import check_one_of
from gbwatt.cli.options import seed_numbers
from gbwatt.errors import ParameterError
from gbwatt.experiments.runs import Row, Run
from gbwatt.experiments.store import Store, read_rows
from gbwatt.experiments.table_formats import (
    Table,
    fill,
    markdown,
    to_csv,
    to_latex,
    to_markdown,
    to_rich,
    visible,
    visible_lines,
)

STORE = Path("results.sqlite")  # default of --store

# -------------------------------------------------------------------------------------------------------- gbwatt tables

FORMATS = ("terminal", "markdown", "latex", "csv")


def tables(
    experiment: Annotated[
        str | None,
        typer.Argument(help="Name of an experiment, e.g. main, or a YAML file; `claims` for the claims of the paper."),
    ] = None,
    store: Annotated[Path, typer.Option(help="SQLite file of results.")] = STORE,
    results: Annotated[
        list[Path] | None, typer.Option(help="CSV file of results, instead of a store; repeatable.")
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; repeatable.")] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Number of seeds, or a list, as for `benchmark`; default: all.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a value of the experiment, as for `benchmark`; repeatable."),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Model to compare the others with; default: that of the experiment.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help=f"Format: {', '.join(FORMATS)}; default: {FORMATS[0]}.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write, instead of printing.")] = None,
    page: Annotated[
        Path | None, typer.Option("--fill", help="Markdown file whose tables and figures are replaced.")
    ] = None,
) -> None:
    """Show our scores beside those of the paper, with standard deviations and paired tests between models."""
    from gbwatt.experiments import make_tables
    from gbwatt.experiments.config import find_experiment

    check_one_of("format", form or FORMATS[0], FORMATS)
    if (experiment is None) == (page is None):
        raise ParameterError("give the name of an experiment, or --fill and a page.")
    if page is not None and (reference or form or output or set_):
        raise ParameterError("--fill makes the tables that the page names; remove the other options.")
    rows = [row for source in results or [store] for row in read_rows(source)]
    chosen = None if seeds is None else seed_numbers(seeds)
    if page is not None:
        _fill_page(page, _select_seeds(rows, chosen), dataset)
    elif experiment is not None:
        made = make_tables(experiment, rows, datasets=dataset, seeds=chosen, reference=reference, overrides=set_ or ())
        if not made:
            file, where = find_experiment(experiment), ", ".join(map(str, results or [store]))
            raise ParameterError(
                f"{where}: none of the {len(rows)} results belong to experiment {experiment!r} ({file}); run `gbwatt "
                f"benchmark {experiment}` first. For results of a benchmark with --set or --dataset, use the same "
                "options here."
            )
        _print_tables(made, form or FORMATS[0], output)


def _select_seeds(rows: Sequence[Row], seeds: Sequence[int] | None) -> list[Row]:
    """Return the rows with these seeds; all rows if seeds is None."""
    return [row for row in rows if seeds is None or row.run["seed"] in seeds]


def _fill_page(page: Path, rows: Sequence[Row], datasets: list[str] | None) -> None:
    """Replace the tables and figures of a Markdown page, write the figures beside it, and print what changed."""
    from gbwatt.experiments import make_tables

    pictures: dict[Path, str] = {}

    def selected(seeds: str | None) -> list[Row]:
        """Return the rows of the seeds that the page names; all rows by default."""
        return _select_seeds(rows, None if seeds is None else seed_numbers(seeds))

    def table(experiment: str, reference: str | None, seeds: str | None) -> str:
        """Return the tables of an experiment as Markdown."""
        made = make_tables(experiment, selected(seeds), datasets=datasets, reference=reference)
        return "\n".join(map(to_markdown, made)) or _no_results_note(experiment)

    def figure(experiment: str, _reference: str | None, seeds: str | None) -> str:
        """Collect the figures of an experiment in ``pictures``, and return the Markdown that shows them."""
        lines = []
        for number, (title, svg, caption) in enumerate(_figures_of(experiment, selected(seeds)), 1):
            file = page.with_name(f"{page.stem}-{experiment}{'' if number == 1 else f'-{number}'}.svg")
            pictures[file] = svg + "\n"
            lines.append(f"![{markdown(title)}]({file.name})\n\n*{markdown(caption)}*\n")
        return "\n".join(lines) or _no_results_note(experiment)

    if not page.is_file():
        raise ParameterError(f"--fill {page} does not exist or is not a file.")
    try:
        new = {page: fill(page.read_text(encoding="utf-8"), table, figure), **pictures}
    except ParameterError as error:
        raise ParameterError(f"--fill {page}: {error}") from error
    changed = [file for file, text in new.items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    for file in changed:
        file.write_text(new[file], encoding="utf-8")
    typer.echo("\n".join(f"{file}: updated" for file in changed) or f"{page}: no changes")


def _no_results_note(experiment: str) -> str:
    """Return the Markdown that stands for an experiment without results."""
    return f"*No results yet: run `gbwatt benchmark {experiment}`.*\n"


def _figures_of(name: str, rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Return title, SVG and caption of each figure of an experiment, for a Markdown page."""
    from gbwatt.experiments import read_experiment
    from gbwatt.experiments.tables import CLAIMS
    from gbwatt.report.experiment_results import results_by_experiment
    from gbwatt.report.figures import experiment_figures

    if name == CLAIMS:
        raise ParameterError(f"figure: {CLAIMS} has no figure, only a table.")
    experiment = read_experiment(name)
    figures = [one for results in results_by_experiment(rows, [experiment]) for one in experiment_figures(results)]
    return [(experiment.title, one.svg, one.caption) for one in figures]


def _print_tables(made: Sequence[Table], form: str, output: Path | None) -> None:
    """Print tables in a format, or write them to a file; CSV needs one file for each table."""
    if form == "terminal" and output is None:
        for one in made:
            Console().print(to_rich(one))
        return
    render = {"markdown": to_markdown, "latex": to_latex, "csv": to_csv, "terminal": to_markdown}[form]
    texts = [render(one).strip() + "\n" for one in made]
    if output is None:
        typer.echo("\n".join(texts), nl=False)
    elif form == "csv":  # a file has one header
        for number, text in enumerate(texts, 1):
            _write_text(output if number == 1 else output.with_stem(f"{output.stem}-{number}"), text)
    else:
        _write_text(output, "\n".join(texts))


def _write_text(path: Path, text: str) -> None:
    """Write a text to a file, and print its path."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ParameterError(f"output={str(path)!r} cannot be written: {error.strerror or error}.") from error
    typer.echo(str(path))


# --------------------------------------------------------------------------------------------------------- gbwatt store

store_app = typer.Typer(help="Export, import, merge and recover results; list failed runs.", no_args_is_help=True)

Where = Annotated[Path, typer.Option("--store", help="SQLite file of results.")]


@store_app.command("export")
def export(
    file: Annotated[Path, typer.Argument(help="CSV file to write.")],
    store: Where = STORE,
) -> None:
    """Write all rows of the store to a CSV file."""
    with Store(store, create=False) as kept:
        kept.export_csv(file)
        Console().print(f"{len(kept)} rows in {file}", highlight=False)


@store_app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="CSV file written by `gbwatt store export`.")],
    store: Where = STORE,
) -> None:
    """Add the rows of a CSV file to the store."""
    with Store(store) as kept:
        Console().print(f"{kept.import_csv(file)} new rows, {len(kept)} in {store}", highlight=False)


@store_app.command()
def merge(
    others: Annotated[list[Path], typer.Argument(help="Stores to read.")],
    store: Where = STORE,
) -> None:
    """Add the rows of other stores, for instance from other machines."""
    with Store(store) as kept:
        for other in others:
            Console().print(f"{kept.merge(other)} new rows from {other}", highlight=False)
        Console().print(f"{len(kept)} in {store}", highlight=False)


@store_app.command()
def recover(
    damaged: Annotated[Path, typer.Argument(help="Damaged store.")],
    store: Annotated[Path, typer.Option("--store", help="Store to copy the rows to; not the damaged one.")],
) -> None:
    """Copy the undamaged rows of a damaged store to another store."""
    with Store(store) as kept:
        Console().print(f"{kept.recover(damaged)} rows of {damaged} copied to {store}", highlight=False)


@store_app.command()
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
