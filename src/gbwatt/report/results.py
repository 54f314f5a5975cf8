"""The report of rows of results."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from gbwatt.experiments.config import Experiment
from gbwatt.experiments.grid import lines as lines_of
from gbwatt.experiments.runs import Cell, Row
from gbwatt.experiments.table_formats import Column, Table, visible
from gbwatt.experiments.tables import Grid, gather, make_table
from gbwatt.report import pictures, runs, summary
from gbwatt.report.page import Block, Code, Fold, Page, Paragraph, Section
from gbwatt.report.study import Study, best_line, others, require_whole, studies
from gbwatt.report.text import counted, ranges


def report_of_rows(
    rows: Sequence[Row],
    experiments: Sequence[Experiment],
    *,
    source: str = "results.sqlite",
    folder: str | None = None,
) -> Page:
    """The page of results: summary, data, tables beside the paper's, figures, all runs, how to repeat them.

    Parameters
    ----------
    rows : sequence of Row
        With their structured columns.
    experiments : sequence of Experiment
        Whose tables are shown, in this order, where there are rows of them.
    source : str
        File of the rows, for the commands.
    folder : str, optional
        Folder of the experiments, for the commands; by default they are called by name.
    """
    require_whole(rows)
    rows = [row._replace(per_class=_visible(row.per_class)) for row in rows]
    every = studies(rows, experiments)
    shown = [study for study in every if not study.begun]
    rest = others(rows, every)
    left = gather(rest, {row.key: row for row in rows})
    sections = [
        summary.summary(rows, shown, {study.experiment.name: study.grid for study in every}),
        summary.data(rows),
        *map(_experiment, shown),
        *_begun([study for study in every if study.begun]),
        *_others(rest, rows, left),
        *_closer({**{study.experiment.title: study.grid for study in shown if study.chooses}, "Other runs": left}),
        runs.all_runs(rows),
        *runs.failures(rows),
        Section("Configuration", tuple(_configuration(rows, shown))),
        Section("Repeat it", tuple(_commands(shown, source, folder, whole=not rest and len(shown) == len(every)))),
    ]
    return Page(_title(rows), tuple(sections), _lead(rows))


def _visible(per_class: dict[str, dict[str, float]] | None) -> dict[str, dict[str, float]] | None:
    """Scores by names of classes that can be drawn; names stay different."""
    return None if per_class is None else {visible(name): scores for name, scores in per_class.items()}


def _title(rows: Sequence[Row]) -> str:
    names = list(summary.by_dataset(rows))
    return f"Results on {', '.join(names) if len(names) < 3 else counted(len(names), 'data set')}"


def _lead(rows: Sequence[Row]) -> str:
    words = {"real": "real recordings", "simulated": "simulated recordings", "from a file": "recordings from a file"}
    kinds = dict.fromkeys(words[summary.kind(name)] for name in summary.by_dataset(rows))
    models = {row.run["model"] for row in rows}
    return f"{counted(len(rows), 'run')} of {counted(len(models), 'model')} on {' and '.join(kinds)}."


# ---------------------------------------------------------------------------------------------------------- experiments


def _experiment(study: Study) -> Section:
    blocks: list[Block] = [study.table()]
    if study.empty:
        said = f"{counted(len(study.empty), 'line')} without a run, with {study.to_come} of the missing runs"
        blocks.append(Fold(said, (Paragraph("; ".join(study.empty)),)))
    return Section(study.experiment.title, (*blocks, *pictures.of_study(study)))


def _begun(found: Sequence[Study]) -> list[Section]:
    """Experiments whose one value that was run is in other tables as well, as a rule."""
    if not found:
        return []
    header = (Column("experiment"), Column("value"), Column("runs done"), Column("values to come"))
    lines = []
    for study in found:
        done = len({row.key for one in study.grid.values() for row in one.done})
        settings = {cell.setting for cell in study.cells}
        more = len(study.experiment.vary.values) - len(settings) if study.experiment.vary else 0
        lines.append((study.experiment.title, "; ".join(settings), str(done), str(more)))
    notes = ("Nothing can be said yet about what these experiments vary: only one value of it was run.",)
    return [Section("Begun", (Table("Experiments with a single value so far", header, tuple(lines), notes),))]


def _others(cells: Sequence[Cell], rows: Sequence[Row], grid: Grid) -> list[Section]:
    """Runs that are in none of the experiments: of other files, or of files that changed since."""
    if not cells:
        return []
    text = "Runs of no experiment that this report was given, by model and what was changed of it."
    table = make_table("Other runs", cells, {row.key: row for row in rows})
    figures = (figure for dataset in grid.datasets for figure in pictures.by_subject(grid, dataset))
    return [Section("Other runs", (Paragraph(text), table, *figures))]


def _closer(grids: Mapping[str, Grid]) -> list[Section]:
    """The highest line of each data set, in the first of the grids that has it."""
    seen: dict[str, list[Block]] = {}
    for title, grid in grids.items():
        for dataset in grid.datasets:
            best = best_line(grid, dataset)
            if best is not None and dataset not in seen:
                seen[dataset] = list(pictures.of_best(best, title))
    blocks = tuple(block for figures in seen.values() for block in figures)
    return [Section("A closer look", blocks)] if blocks else []


# ----------------------------------------------------------------------------------------------------- how it was done


def _configuration(rows: Sequence[Row], found: Sequence[Study]) -> Iterator[Block]:
    yield Paragraph("What models were given; all else is as registered for the model and the task.")
    for study in found:
        yield Fold(study.experiment.title, (_lines(study.experiment),))
    yield runs.versions(rows)
    yield from runs.warnings(rows)


def _lines(experiment: Experiment) -> Table:
    header = tuple(map(Column, ("line", "setting", "model", "options", "training", "noise", "fraction")))
    filled = []
    for line in lines_of(experiment):
        given = line.arguments
        where = " in training, too" if given.get("noisy_training") else ""
        noise, fraction = (f"{given[name]:g}" if name in given else "" for name in ("noise", "fraction"))
        texts = (_pairs(given["options"]), _pairs(given["training"]), noise + where, fraction)
        filled.append((line.label, line.setting, given["model"], *texts))
    return Table(f"Lines of {experiment.name}", header, tuple(filled))


def _pairs(mapping: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in mapping.items())


_AGAIN = "again.sqlite"  # a new store: in the old one all is done


def _commands(found: Sequence[Study], source: str, folder: str | None, whole: bool) -> Iterator[Block]:
    """The commands; ``whole`` if all runs are of the experiments found."""
    benchmarks = [
        _benchmark(_named(study.experiment, folder), dataset, study)
        for study in found
        for dataset in study.grid.datasets
    ]
    if benchmarks:
        yield Paragraph(" ".join(_said(found, whole)))
        yield Code("\n".join([*benchmarks, _report(_AGAIN, folder, "again.html")]))
    yield Paragraph("This page from the same rows:")
    yield Code(_report(source, folder, "report.html"))


def _said(found: Sequence[Study], whole: bool) -> Iterator[str]:
    """What the commands do, as far as it is not what was done here."""
    yield "The experiments that have a table, for the same subjects and seeds in a new store, and their report."
    if any(cell.run.key not in study.rows for study in found for cell in study.every):
        yield "Runs that are missing here are done, too, also of lines without a run."
    if not whole:
        yield "Runs that are in none of these tables are not."
    yield "Recordings that are not simulated must be there:"


def _named(experiment: Experiment, folder: str | None) -> str:
    return experiment.name if folder is None else f"{folder}/{experiment.name}.yaml"


def _report(source: str, folder: str | None, output: str) -> str:
    experiments = [] if folder is None else ["--experiments", folder]
    return shlex.join(["gbwatt", "report", source, *experiments, "-o", output])


def _benchmark(file: str, dataset: str, study: Study) -> str:
    """The command that does the runs of a data set."""
    own = [cell.run for cell in study.cells if cell.run.dataset == dataset]
    subjects, seeds = ({getattr(run, name) for run in own} for name in ("subject", "seed"))
    words = ["gbwatt", "benchmark", file, "--dataset", dataset, "--subjects", _numbers(subjects)]
    return shlex.join([*words, "--seeds", _seeds(seeds), "--store", _AGAIN])


def _seeds(seeds: set[int]) -> str:
    """How many, if they are the first ones, or which: a single number would be read as how many.

    Examples
    --------
    >>> _seeds({0}), _seeds({0, 1, 2}), _seeds({5}), _seeds({1, 2})
    ('1', '3', '5-5', '1-2')
    """
    if seeds == set(range(len(seeds))):
        return str(len(seeds))
    return "{0}-{0}".format(*seeds) if len(seeds) == 1 else _numbers(seeds)


def _numbers(numbers: set[int]) -> str:
    return ranges(numbers, "-").replace(" ", "")
