"""The first sections of a report of results: what was run, what is highest, what becomes of the paper's claims."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gbwatt.experiments import claims
from gbwatt.experiments.runs import Row
from gbwatt.experiments.table_formats import Column, Table, Value
from gbwatt.experiments.tables import WORDS, Grid, is_simulated, measure
from gbwatt.report.page import BigTable, Block, Facts, Note, Paragraph, Section
from gbwatt.report.study import Study, best_line
from gbwatt.report.text import counted, ranges, span

_SPREAD = 4  # place of the ± in a line of the highest
_ABOUT_SPREAD = " ± is the standard deviation over the seeds of a subject, averaged over subjects."
_UNTESTED = "not testable here"


def by_dataset(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of each data set, in the order of their names."""
    names = sorted({str(row.run["dataset"]) for row in rows}, key=lambda name: (is_simulated(name), name))
    return {name: [row for row in rows if row.run["dataset"] == name] for name in names}


def kind(dataset: str) -> str:
    """What the recordings of a data set are."""
    if is_simulated(dataset):
        return "simulated"
    return "from a file" if Path(dataset).suffix else "real"


def summary(rows: Sequence[Row], found: Sequence[Study], grids: Mapping[str, Grid]) -> Section:
    """What was run, and what came out."""
    blocks: list[Block] = [Facts(tuple(_facts(rows)))]
    simulated = [name for name in by_dataset(rows) if is_simulated(name)]
    if simulated:
        verb = "is" if len(simulated) == 1 else "are"
        text = f"{', '.join(simulated)} {verb} simulated. These scores say nothing about brains, nor about the paper."
        blocks.append(Note(text))
    highest = best_lines(found)
    if highest.lines:
        blocks.append(highest)
    return Section("Summary", (*blocks, *verdicts(grids)))


def _facts(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    sets = by_dataset(rows)
    failed = sum(row.status == "failed" for row in rows)
    models = dict.fromkeys(str(row.run["model"]) for row in rows)
    finished = sorted(row.finished[:10] for row in rows if row.finished)
    yield "Recordings", "\n".join(f"{name} ({kind(name)})" for name in sets)
    yield "Subjects", "\n".join(f"{len(_subjects(own))} of {name}" for name, own in sets.items())
    yield "Models", ", ".join(models)
    yield "Seeds", _seeds({int(row.run["seed"]) for row in rows})
    yield "Runs", f"{len(rows)}, of which {failed} failed" if failed else f"{len(rows)}, none failed"
    if finished:
        yield "Done", finished[0] if finished[0] == finished[-1] else f"{finished[0]} to {finished[-1]}"


def _seeds(seeds: set[int]) -> str:
    return f"one: seed {min(seeds)}" if len(seeds) == 1 else ranges(seeds)


def _subjects(rows: Sequence[Row]) -> set[int]:
    return {int(row.run["subject"]) for row in rows}


# ------------------------------------------------------------------------------------------------------------- the best


def best_lines(found: Sequence[Study]) -> Table:
    """The highest line of each experiment on each data set."""
    header = (
        Column("data set"),
        Column("experiment"),
        Column("highest line"),
        Column("score", kind="percent"),
        Column("over seeds", kind="percent", spread=True),
        Column("of"),
        Column("subjects × seeds"),
        Column("of lines"),
    )
    lines = tuple(_best_lines(found))
    spread = any(line[_SPREAD] is not None for line in lines)
    notes = (
        f"Highest mean test score in percent, among the lines with the most runs.{_ABOUT_SPREAD if spread else ''}",
        "The highest of many is high by luck, too: this describes the tables below and chooses nothing.",
    )
    return Table("Highest lines", header, lines, notes)


def _best_lines(found: Sequence[Study]) -> Iterator[tuple[Value, ...]]:
    for study in (study for study in found if study.chooses):
        for dataset in study.grid.datasets:
            best = best_line(study.grid, dataset)
            rivals = sum(place.dataset == dataset and bool(group.done) for place, group in study.grid.items())
            if best is None or rivals < 2:
                continue
            line = ", ".join(filter(None, best.place[:2]))
            mean, spread, size = best.summary.mean, best.summary.over_seeds, best.summary.size
            yield dataset, study.experiment.title, line, mean, spread, WORDS[measure(dataset)], size, rivals


# --------------------------------------------------------------------------------------------------------------- claims


def verdicts(grids: Mapping[str, Grid]) -> list[Block]:
    """The paper's claims, as far as the rows can test them, and the comparisons behind them."""
    table, *more = claims.claims_table(grids).tables
    stacked = table.stacked()
    tested = tuple(line for line in stacked.lines if line[-1] != _UNTESTED)
    untested = len(stacked.lines) - len(tested)
    if not tested:
        return [Paragraph("None of the paper's claims can be tested with these runs.")]
    # the claim first: it names its line
    header = (stacked.header[1], stacked.header[0], *stacked.header[2:])
    lines = tuple((line[1], line[0], *line[2:]) for line in tested)
    notes = (*table.notes, f"Not testable with these runs: {counted(untested, 'further claim')}, by data set.")
    behind = [BigTable(one) for one in more if one.lines]
    return [Paragraph(_count(lines)), Table(table.title, header, lines, notes), *behind]


def _count(lines: Sequence[tuple[Value, ...]]) -> str:
    words = [str(line[-1]) for line in lines]
    counts = "; ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    return f"Of the paper's claims, by data set, {len(words)} can be tested here: {counts}."


# ----------------------------------------------------------------------------------------------------------------- data


def data(rows: Sequence[Row]) -> Section:
    """Recordings: subjects, trials, classes, and what was done to them."""
    header = (
        Column("data set"),
        Column("recordings"),
        Column("subjects"),
        Column("training trials"),
        Column("validation trials"),
        Column("test trials"),
        Column("classes (test trials)"),
    )
    sets = by_dataset(rows)
    lines = tuple((name, kind(name), *_described(own)) for name, own in sets.items())
    notes = ("Trials are those of one run: the fewest and the most. Test trials were scored once, after training.",)
    steps = (Paragraph(f"{name}, preprocessing as recorded: {_steps(own)}") for name, own in sets.items())
    return Section("Data", (Table("Recordings", header, lines, notes), *steps))


def _described(rows: Sequence[Row]) -> Iterator[str]:
    yield ranges(_subjects(rows))
    for part in ("train", "valid", "test"):
        yield span(int(row.trials[part]) for row in rows if row.trials and part in row.trials)
    yield "; ".join(_classes(rows))


def _classes(rows: Sequence[Row]) -> Iterator[str]:
    names = dict.fromkeys(name for row in rows for name in row.per_class or {})
    for name in names:
        sizes = [int(row.per_class[name].get("n", 0)) for row in rows if row.per_class and name in row.per_class]
        yield f"{name} ({span(sizes)})"


def _steps(rows: Sequence[Row]) -> str:
    """The chains of steps that runs recorded."""
    chains = dict.fromkeys(json.dumps(row.preprocessing) for row in rows if row.preprocessing is not None)
    if not chains:
        return "nothing was recorded."
    return " Or: ".join(map(_chain, map(json.loads, chains)))


def _chain(steps: Sequence[Mapping[str, object]]) -> str:
    if not steps:
        return "no step."
    return "; ".join(", ".join(f"{name} {value}" for name, value in step.items()) for step in steps) + "."
