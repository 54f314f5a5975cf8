"""Report of results: summary, data, tables and figures of experiments, all runs, and how to reproduce them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gbwatt._text import number_ranges
from gbwatt.experiments import claims
from gbwatt.experiments.config import Experiment
from gbwatt.experiments.grid import Results, collect_results
from gbwatt.experiments.grid import lines as lines_of
from gbwatt.experiments.runs import LabelledRun, Row
from gbwatt.experiments.table_formats import Column, Table, Value, visible
from gbwatt.experiments.tables import SCORE_NAMES, is_simulated, make_table, measure
from gbwatt.report import experiment_results, figures
from gbwatt.report.experiment_results import (
    ExperimentResults,
    best_line,
    counted,
    other_runs,
    require_rows,
    results_by_experiment,
)
from gbwatt.report.page import BigTable, Block, Code, Facts, Fold, Note, Page, Paragraph, Section

_UNTESTED = "not testable here"  # verdict on claims without enough results
_NEW_STORE = "reproduced.sqlite"  # store in the commands; in the existing one, all runs are done


def report_of_rows(
    rows: Sequence[Row],
    experiments: Sequence[Experiment],
    *,
    source: str = "results.sqlite",
    folder: str | None = None,
) -> Page:
    """Report results next to those of the paper.

    Parameters
    ----------
    rows : sequence of Row
        Results.
    experiments : sequence of Experiment
        Experiments whose tables are shown, in this order, if they have results.
    source : str
        File of the rows, for the commands.
    folder : str, optional
        Folder of the experiments, for the commands; by default they are called by name.

    Returns
    -------
    Page
        Summary, data, tables and figures of experiments, all runs, configuration, and commands to reproduce them.

    Raises
    ------
    ParameterError
        If there are no rows, or a row was not written by this version.
    """
    require_rows(rows)
    rows = [row._replace(per_class=_visible_names(row.per_class)) for row in rows]
    results = results_by_experiment(rows, experiments)
    shown = [one for one in results if not one.has_single_value]
    others = other_runs(rows, results)
    other_grid = collect_results(others, {row.key: row for row in rows})
    grids = {one.experiment.title: one.grid for one in shown if one.compares_models}
    complete = not others and len(shown) == len(results)
    sections = [
        _summary(rows, shown, {one.experiment.name: one.grid for one in results}),
        _data_section(rows),
        *map(_experiment_section, shown),
        *_started_section([one for one in results if one.has_single_value]),
        *_other_runs_section(others, rows, other_grid),
        *_best_result_sections({**grids, "Other runs": other_grid}),
        experiment_results.all_runs(rows),
        *experiment_results.failures(rows),
        Section("Configuration", tuple(_configuration_blocks(rows, shown))),
        Section("Reproduce", tuple(_commands(shown, source, folder, complete))),
    ]
    return Page(_page_title(rows), tuple(sections), _lead_sentence(rows))


def _visible_names(per_class: dict[str, dict[str, float]] | None) -> dict[str, dict[str, float]] | None:
    """Return scores by class with control characters in class names escaped."""
    return None if per_class is None else {visible(name): scores for name, scores in per_class.items()}


def _page_title(rows: Sequence[Row]) -> str:
    """Return the title of the page, with the names of the data sets or their number."""
    names = list(_by_dataset(rows))
    return f"Results on {', '.join(names) if len(names) < 3 else counted(len(names), 'data set')}"


def _lead_sentence(rows: Sequence[Row]) -> str:
    """Return the sentence below the title: numbers of runs and models, and kinds of recordings."""
    nouns = {"real": "real recordings", "simulated": "simulated recordings", "from a file": "recordings from a file"}
    kinds = dict.fromkeys(nouns[_kind_of(name)] for name in _by_dataset(rows))
    models = {row.run["model"] for row in rows}
    return f"{counted(len(rows), 'run')} of {counted(len(models), 'model')} on {' and '.join(kinds)}."


def _by_dataset(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each data set, sorted by name, real data sets first."""
    names = sorted({str(row.run["dataset"]) for row in rows}, key=lambda name: (is_simulated(name), name))
    return {name: [row for row in rows if row.run["dataset"] == name] for name in names}


def _kind_of(dataset: str) -> str:
    """Return the kind of the recordings of a data set: "real", "simulated" or "from a file"."""
    if is_simulated(dataset):
        return "simulated"
    return "from a file" if Path(dataset).suffix else "real"


# ---- summary


def _summary(rows: Sequence[Row], results: Sequence[ExperimentResults], grids: Mapping[str, Results]) -> Section:
    """Return the summary: facts, a note on simulated data, the best lines, and the claims of the paper.

    ``results`` are the experiments with tables, ``grids`` the results of all experiments by name.
    """
    blocks: list[Block] = [Facts(tuple(_summary_facts(rows)))]
    simulated = [name for name in _by_dataset(rows) if is_simulated(name)]
    if simulated:
        verb = "is" if len(simulated) == 1 else "are"
        text = f"{', '.join(simulated)} {verb} simulated. These scores say nothing about real EEG, nor about the paper."
        blocks.append(Note(text))
    best = _best_line_table(results)
    return Section("Summary", (*blocks, *([best] if best.lines else []), *_claim_blocks(grids)))


def _summary_facts(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield names and values: recordings, subjects, models, seeds, runs and dates."""
    by_dataset = _by_dataset(rows)
    seeds = {int(row.run["seed"]) for row in rows}
    failed = sum(row.status == "failed" for row in rows)
    dates = sorted(row.finished[:10] for row in rows if row.finished)
    yield "Recordings", "\n".join(f"{name} ({_kind_of(name)})" for name in by_dataset)
    yield "Subjects", "\n".join(f"{len(_subjects_of(part))} of {name}" for name, part in by_dataset.items())
    yield "Models", ", ".join(dict.fromkeys(str(row.run["model"]) for row in rows))
    yield "Seeds", f"one: seed {min(seeds)}" if len(seeds) == 1 else number_ranges(seeds, "–")
    yield "Runs", f"{len(rows)}, {failed or 'none'} failed"
    if dates:
        yield "Finished", dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"


def _subjects_of(rows: Sequence[Row]) -> set[int]:
    """Return the subjects of rows."""
    return {int(row.run["subject"]) for row in rows}


def _best_line_table(results: Sequence[ExperimentResults]) -> Table:
    """Return the table with the best line of each experiment on each data set."""
    header = (
        Column("data set"),
        Column("experiment"),
        Column("best line"),
        Column("score", kind="percent"),
        Column("over seeds", kind="percent", spread=True),
        Column("measure"),
        Column("subjects × seeds"),
        Column("of lines"),
    )
    lines = tuple(_best_line_rows(results))
    spread = header.index(next(column for column in header if column.spread))
    plus_minus = " ± is the standard deviation over the seeds of a subject, averaged over subjects."
    notes = (
        "Highest mean test score in percent, among the lines with the most runs."
        f"{plus_minus if any(line[spread] is not None for line in lines) else ''}",
        "The best of many lines is partly due to chance. This table is a description and was not used for selection.",
    )
    return Table("Best results", header, lines, notes)


def _best_line_rows(results: Sequence[ExperimentResults]) -> Iterator[tuple[Value, ...]]:
    """Yield the rows of the table of best lines; experiments with a single line on a data set are left out."""
    for one in results:
        for dataset in one.grid.datasets if one.compares_models else ():
            best = best_line(one.grid, dataset)
            n_lines = sum(cell.dataset == dataset and bool(runs.done) for cell, runs in one.grid.items())
            if best is not None and n_lines > 1:
                mean, spread, size = best.summary.mean, best.summary.over_seeds, best.summary.size
                name = SCORE_NAMES[measure(dataset)]
                yield dataset, one.experiment.title, best.name, mean, spread, name, size, n_lines


def _claim_blocks(grids: Mapping[str, Results]) -> list[Block]:
    """Return the verdicts on the claims of the paper that the rows can test, and the comparisons behind them."""
    table, *more = claims.claims_table(grids).tables
    stacked = table.stacked()
    tested = [line for line in stacked.lines if line[-1] != _UNTESTED]
    if not tested:
        return [Paragraph("None of the paper's claims can be tested with these runs.")]
    # the claim before the data set
    header = (stacked.header[1], stacked.header[0], *stacked.header[2:])
    lines = tuple((line[1], line[0], *line[2:]) for line in tested)
    untested = counted(len(stacked.lines) - len(tested), "further claim")
    notes = (*table.notes, f"Not testable with these runs: {untested}, counted by data set.")
    verdicts = [str(line[-1]) for line in lines]
    counts = "; ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    text = f"{counted(len(verdicts), 'claim')} of the paper can be tested here, counted by data set: {counts}."
    return [Paragraph(text), Table(table.title, header, lines, notes), *(BigTable(one) for one in more if one.lines)]


# ---- data


def _data_section(rows: Sequence[Row]) -> Section:
    """Return the section on recordings, numbers of trials, classes and preprocessing."""
    names = ("data set", "recordings", "subjects", "training trials", "validation trials", "test trials")
    header = (*map(Column, names), Column("classes (test trials)"))
    by_dataset = _by_dataset(rows)
    lines = tuple((name, _kind_of(name), *_data_columns(part)) for name, part in by_dataset.items())
    notes = ("Trials per run, minimum and maximum. Test trials were scored once, after training.",)
    steps = (Paragraph(f"{name}, recorded preprocessing: {_preprocessing(part)}") for name, part in by_dataset.items())
    return Section("Data", (Table("Recordings", header, lines, notes), *steps))


def _data_columns(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the columns of a data set in the table of recordings: subjects, numbers of trials, classes."""
    yield number_ranges(_subjects_of(rows), "–")
    for part in ("train", "valid", "test"):
        yield _min_to_max(int(row.trials[part]) for row in rows if row.trials and part in row.trials)
    yield "; ".join(_class_sizes(rows))


def _min_to_max(numbers: Iterable[int]) -> str:
    """Return minimum and maximum as text, or the number if they are equal.

    Examples
    --------
    >>> _min_to_max([288, 288]), _min_to_max([270, 288]), _min_to_max([])
    ('288', '270–288', '')
    """
    ordered = sorted(set(numbers))
    return "–".join(str(end) for end in dict.fromkeys((*ordered[:1], *ordered[-1:])))


def _class_sizes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield each class with its number of test trials per run."""
    names = dict.fromkeys(name for row in rows for name in row.per_class or {})
    for name in names:
        sizes = [int(row.per_class[name].get("n", 0)) for row in rows if row.per_class and name in row.per_class]
        yield f"{name} ({_min_to_max(sizes)})"


def _preprocessing(rows: Sequence[Row]) -> str:
    """Return the preprocessing steps that runs recorded, as text."""
    chains = dict.fromkeys(json.dumps(row.preprocessing) for row in rows if row.preprocessing is not None)
    if not chains:
        return "not recorded."
    return " Or: ".join(map(_steps_text, map(json.loads, chains)))


def _steps_text(steps: Sequence[Mapping[str, object]]) -> str:
    """Return a list of preprocessing steps as a sentence."""
    return ("; ".join(", ".join(f"{name} {value}" for name, value in step.items()) for step in steps) or "none") + "."


# ---- experiments


def _experiment_section(results: ExperimentResults) -> Section:
    """Return the section of an experiment: tables, lines without results, and figures."""
    blocks: list[Block] = [results.table()]
    if results.empty_lines:
        missing = results.n_runs_of_empty_lines
        summary = f"{counted(len(results.empty_lines), 'line')} without results, {counted(missing, 'missing run')}"
        blocks.append(Fold(summary, (Paragraph("; ".join(results.empty_lines)),)))
    return Section(results.experiment.title, (*blocks, *figures.experiment_figures(results)))


def _started_section(results: Sequence[ExperimentResults]) -> list[Section]:
    """Return the section on experiments with results for one value only, in a list; empty if there are none.

    Their runs are usually in other tables, too.
    """
    if not results:
        return []
    header = tuple(map(Column, ("experiment", "value", "runs done", "missing values")))
    lines = []
    for one in results:
        done = len({row.key for runs in one.grid.values() for row in runs.done})
        settings = {cell.setting for cell in one.cells}
        missing = len(one.experiment.vary.values) - len(settings) if one.experiment.vary else 0
        lines.append((one.experiment.title, "; ".join(settings), str(done), str(missing)))
    notes = ("The effect of the varied quantity cannot be assessed yet: only one value was run.",)
    table = Table("Experiments with a single value so far", header, tuple(lines), notes)
    return [Section("Started experiments", (table,))]


def _other_runs_section(cells: Sequence[LabelledRun], rows: Sequence[Row], grid: Results) -> list[Section]:
    """Return the section on runs that belong to none of the experiments, in a list; empty if there are none."""
    if not cells:
        return []
    text = "Runs that belong to none of the experiments of this report, by model and changed options."
    table = make_table("Other runs", cells, {row.key: row for row in rows})
    drawn = (figure for dataset in grid.datasets for figure in figures.subject_figures(grid, dataset))
    return [Section("Other runs", (Paragraph(text), table, *drawn))]


def _best_result_sections(grids: Mapping[str, Results]) -> list[Section]:
    """Return a section with figures of the best model on each data set, in a list; empty if there are no figures.

    If several experiments have results on a data set, the first one counts.
    """
    drawn: dict[str, list[Block]] = {}
    for title, grid in grids.items():
        for dataset in grid.datasets:
            best = best_line(grid, dataset)
            if best is not None and dataset not in drawn:
                drawn[dataset] = list(figures.best_line_figures(best, title))
    blocks = tuple(block for blocks in drawn.values() for block in blocks)
    return [Section("Best results in detail", blocks)] if blocks else []


# ---- configuration and commands


def _configuration_blocks(rows: Sequence[Row], results: Sequence[ExperimentResults]) -> Iterator[Block]:
    """Yield the options of each experiment, versions of packages, and warnings during runs."""
    yield Paragraph("Options that were set; all others are the defaults of the model and the task.")
    for one in results:
        yield Fold(one.experiment.title, (_option_table(one.experiment),))
    yield experiment_results.versions(rows)
    yield from experiment_results.warnings(rows)


def _option_table(experiment: Experiment) -> Table:
    """Return the table of options, training settings, noise and fraction of each line of an experiment."""
    header = tuple(map(Column, ("line", "setting", "model", "options", "training", "noise", "fraction")))
    lines = []
    for line in lines_of(experiment):
        arguments = line.arguments
        also_training = " (also in training)" if arguments.get("noisy_training") else ""
        noise, fraction = (f"{arguments[name]:g}" if name in arguments else "" for name in ("noise", "fraction"))
        texts = (_pairs_text(arguments["options"]), _pairs_text(arguments["training"]), noise + also_training, fraction)
        lines.append((line.label, line.setting, arguments["model"], *texts))
    return Table(f"Lines of {experiment.name}", header, tuple(lines))


def _pairs_text(mapping: Mapping[str, object]) -> str:
    """Return a mapping as text, "name = value, name = value"."""
    return ", ".join(f"{name} = {value}" for name, value in mapping.items())


def _commands(results: Sequence[ExperimentResults], source: str, folder: str | None, complete: bool) -> Iterator[Block]:
    """Yield the commands that reproduce the results and this page.

    Parameters
    ----------
    results : sequence of ExperimentResults
        Experiments to run again.
    source : str
        File of the rows of this page.
    folder : str or None
        Folder of the experiments; None: they are called by name.
    complete : bool
        Whether all runs belong to the experiments.
    """
    benchmarks = [
        _benchmark_command(
            one.experiment.name if folder is None else f"{folder}/{one.experiment.name}.yaml", dataset, one
        )
        for one in results
        for dataset in one.grid.datasets
    ]
    if benchmarks:
        yield Paragraph(" ".join(_command_notes(results, complete)))
        yield Code("\n".join([*benchmarks, _report_command(_NEW_STORE, folder, "reproduced.html")]))
    yield Paragraph("To create this page again from the same rows:")
    yield Code(_report_command(source, folder, "report.html"))


def _command_notes(results: Sequence[ExperimentResults], complete: bool) -> Iterator[str]:
    """Yield sentences that say what the commands run, and which runs they do not include."""
    yield "These commands run the experiments above for the same subjects and seeds in a new store, and report them."
    if any(cell.run.key not in one.rows for one in results for cell in one.all_cells):
        yield "Runs that are missing here are included, also those of lines without results."
    if not complete:
        yield "Runs that are in none of these tables are not included."
    yield "Real recordings must be available:"


def _report_command(source: str, folder: str | None, output: str) -> str:
    """Return the command that writes a report of ``source`` to ``output``."""
    experiments = [] if folder is None else ["--experiments", folder]
    return shlex.join(["gbwatt", "report", source, *experiments, "-o", output])


def _benchmark_command(file: str, dataset: str, results: ExperimentResults) -> str:
    """Return the command that executes the runs of an experiment on a data set, for the same subjects and seeds."""
    runs = [cell.run for cell in results.cells if cell.run.dataset == dataset]
    subjects, seeds = {run.subject for run in runs}, {run.seed for run in runs}
    words = ["gbwatt", "benchmark", file, "--dataset", dataset, "--subjects", _ranges(subjects)]
    return shlex.join([*words, "--seeds", _seeds_option(seeds), "--store", _NEW_STORE])


def _seeds_option(seeds: set[int]) -> str:
    """Return the value of ``--seeds``: the number of seeds if they are 0, 1, …, else a list.

    A single number would be read as the number of seeds.

    Examples
    --------
    >>> _seeds_option({0}), _seeds_option({0, 1, 2}), _seeds_option({5}), _seeds_option({1, 2})
    ('1', '3', '5-5', '1-2')
    """
    if seeds == set(range(len(seeds))):
        return str(len(seeds))
    return "{0}-{0}".format(*seeds) if len(seeds) == 1 else _ranges(seeds)


def _ranges(numbers: set[int]) -> str:
    """Return numbers as ranges for the command line, "1-3,5"."""
    return number_ranges(numbers).replace(" ", "")
