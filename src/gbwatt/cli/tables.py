"""``gbwatt tables``: the results of an experiment beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console

from gbwatt._validation import check_one_of
from gbwatt.cli.options import experiment_file, seed_numbers
from gbwatt.cli.store import STORE
from gbwatt.errors import ParameterError

if TYPE_CHECKING:
    from gbwatt.experiments.config import Experiment
    from gbwatt.experiments.runs import Cell, Row
    from gbwatt.experiments.table_formats import Table

FORMATS = ("terminal", "markdown", "latex", "csv")
CLAIMS = "claims"  # instead of an experiment


def tables(
    experiment: Annotated[
        str | None,
        typer.Argument(help="Name of an experiment, e.g. main, or a file; `claims` for what the paper says."),
    ] = None,
    store: Annotated[Path, typer.Option(help="Where results are kept.")] = STORE,
    results: Annotated[
        list[Path] | None, typer.Option(help="CSV file of results, instead of a store; repeatable.")
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; repeatable.")] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Only so many seeds, or which, as for `benchmark`; by default all.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change the file, as for `benchmark`: a.b=c; repeatable.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Line that all others are compared with; by default that of the file.")
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}; by default the first.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write, instead of printing.")] = None,
    page: Annotated[
        Path | None,
        typer.Option("--fill", help="Markdown file with places for tables and figures, which are made anew."),
    ] = None,
) -> None:
    """Ours, the paper's, the difference, spreads over seeds and subjects, and paired tests between models."""
    check_one_of("format", form or FORMATS[0], FORMATS)
    if (experiment is None) == (page is None):
        raise ParameterError("give the name of an experiment, or --fill and a page.")
    if page is not None and (reference or form or output or set_):
        raise ParameterError("--fill makes the tables that the page names; leave out the other options.")
    source = Source(_rows(store, results), _where(store, results), dataset, tuple(set_ or ())).of(seeds)
    if page is not None:
        _fill(page, source)
    elif experiment is not None:
        _print(source.table(experiment, reference), form or FORMATS[0], output)


def _fill(page: Path, source: Source) -> None:
    from gbwatt.experiments.pages import Asked, fill
    from gbwatt.experiments.table_formats import markdown, to_markdown

    pictures: dict[Path, str] = {}

    def make(asked: Asked) -> str:
        known = source.of(asked.seeds)
        if not known.has(asked.experiment):
            return _nothing(asked.experiment)
        return "\n".join(to_markdown(one) for one in known.table(asked.experiment, asked.reference).tables)

    def draw(asked: Asked) -> str:
        lines, experiment = [], asked.experiment
        for number, (title, svg, caption) in enumerate(source.of(asked.seeds).figures(experiment), 1):
            file = page.with_name(f"{page.stem}-{experiment}{'' if number == 1 else f'-{number}'}.svg")
            pictures[file] = svg + "\n"
            lines.append(f"![{markdown(title)}]({file.name})\n\n*{markdown(caption)}*\n")
        return "\n".join(lines) or _nothing(experiment)

    if not page.is_file():
        raise ParameterError(f"--fill {page} is no file; make one, with places for tables.")
    old = page.read_text(encoding="utf-8")
    try:
        new = {page: fill(old, make, draw), **pictures}
    except ParameterError as error:
        raise ParameterError(f"--fill {page}: {error}") from error
    changed = [file for file, text in new.items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    for file in changed:
        file.write_text(new[file], encoding="utf-8")
    typer.echo("\n".join(f"{file}: made anew" for file in changed) or f"{page}: nothing new")


def _nothing(experiment: str) -> str:
    return f"*There are no results yet: `gbwatt benchmark {experiment}` makes them.*\n"


def _print(table: Table, form: str, output: Path | None) -> None:
    from gbwatt.experiments.table_formats import to_csv, to_latex, to_markdown, to_rich

    if form == "terminal" and output is None:
        for one in table.tables:
            Console().print(to_rich(one))
        return
    render = {"markdown": to_markdown, "latex": to_latex, "csv": to_csv, "terminal": to_markdown}[form]
    texts = [render(one).strip() + "\n" for one in table.tables]
    if output is None:
        typer.echo("\n".join(texts), nl=False)
    elif form == "csv":  # a file has one header
        for number, text in enumerate(texts, 1):
            _write(output if number == 1 else output.with_stem(f"{output.stem}-{number}"), text)
    else:
        _write(output, "\n".join(texts))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ParameterError(f"output={str(path)!r} cannot be written: {error.strerror or error}.") from error
    typer.echo(str(path))


class Source(NamedTuple):
    """Rows, where they come from, and what is asked of them."""

    rows: list[Row]
    where: str
    datasets: list[str] | None
    overrides: tuple[str, ...] = ()

    def table(self, name: str, reference: str | None) -> Table:
        """The table of an experiment, or that of all claims."""
        from gbwatt.experiments.tables import make_table

        if name == CLAIMS:
            return self._claims(reference)
        found, cells = self._cells(name)
        if not cells:
            raise ParameterError(
                f"there are {len(self.rows)} results in {self.where}, and none of experiment {found.name!r} as "
                f"{experiment_file(name)} has it; `gbwatt benchmark {experiment_file(name)}` makes them. What was run "
                "with --set, or another --dataset, is shown with the same."
            )
        if reference is not None:
            check_one_of("reference", reference, tuple(dict.fromkeys(cell.label for cell in cells)))
        by_key = {row.key: row for row in self.rows}
        return make_table(
            found.title,
            cells,
            by_key,
            paper_table=found.paper,
            reference=reference or found.reference,
            validation=found.validation,
        )

    def of(self, seeds: str | None) -> Source:
        """Only these seeds, if any are given."""
        if seeds is None:
            return self
        kept = set(seed_numbers(seeds))
        return self._replace(rows=[row for row in self.rows if row.run["seed"] in kept])

    def has(self, name: str) -> bool:
        """Whether there are results of an experiment, or claims, which are there without any."""
        return name == CLAIMS or bool(self._cells(name)[1])

    def figures(self, name: str) -> list[tuple[str, str, str]]:
        """Figures of an experiment: title, SVG, and caption."""
        if name == CLAIMS:
            raise ParameterError(f"figure: {CLAIMS} has no figure, only a table.")
        from gbwatt.experiments.config import read
        from gbwatt.report.experiment_results import results_by_experiment
        from gbwatt.report.figures import experiment_figures

        experiment = read(experiment_file(name), self.overrides)
        results = results_by_experiment(self.rows, [experiment])
        found = [figure for one in results for figure in experiment_figures(one)]
        return [(experiment.title, one.svg, one.caption) for one in found]

    def _claims(self, reference: str | None) -> Table:
        from gbwatt.experiments.claims import EXPERIMENTS, claims_table
        from gbwatt.experiments.tables import gather

        if reference is not None:
            raise ParameterError("claims are compared as the paper does; leave out the reference.")
        by_key = {row.key: row for row in self.rows}
        grids = {name: gather(self._cells(name)[1], by_key) for name in EXPERIMENTS}
        return claims_table(grids, None if self.datasets is None else self._names())

    def _names(self) -> list[str]:
        from gbwatt.data import find_dataset

        return [find_dataset(dataset).name for dataset in self.datasets or ()]

    def _cells(self, name: str) -> tuple[Experiment, list[Cell]]:
        from gbwatt.experiments.config import read
        from gbwatt.experiments.grid import cells_of

        found = read(experiment_file(name), self.overrides)
        return found, cells_of(found, self.rows, None if self.datasets is None else self._names())


def _where(store: Path, results: list[Path] | None) -> str:
    return ", ".join(map(str, results)) if results else str(store)


def _rows(store: Path, results: list[Path] | None) -> list[Row]:
    from gbwatt.experiments.row_io import read_csv
    from gbwatt.experiments.store import Store

    if results:
        return [row for file in results for row in read_csv(file)]
    with Store(store, create=False) as kept:
        return kept.rows()
