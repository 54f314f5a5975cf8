"""``gbwatt data``: which data sets there are, and what is in one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gbwatt.cli.options import AsJson, Root, key_values, print_json
from gbwatt.data import DATASETS, find_dataset, load
from gbwatt.data.datasets import Dataset, data_root, subjects_here
from gbwatt.data.description import Description
from gbwatt.data.trials import Trials
from gbwatt.errors import InputError

app = typer.Typer(help="Data sets: which there are, and what is in one.", no_args_is_help=True)


@app.command("list")
def list_(root: Root = None, as_json: AsJson = False) -> None:
    """Data sets, and of which subjects the files are there."""
    rows = [_row(dataset, root) for dataset in DATASETS.values()]
    console = Console()
    if as_json:
        print_json(rows)
        return
    table = Table("name", "what it is", "subjects", "here", "forms of files", title=f"Recordings in {data_root(root)}")
    for row in rows:
        here = f"{len(row['here'])}" if row["here"] else "-"
        table.add_row(row["name"], row["title"], str(len(row["subjects"])), here, ", ".join(row["sources"]))
    console.print(table)
    if not data_root(root).is_dir():
        console.print(f"There is no folder {data_root(root)}.", highlight=False)
    console.print("Also any file that MNE reads, an .npz file, and moabb:NAME.", highlight=False)
    console.print("Next: gbwatt data describe NAME", highlight=False)


def _row(dataset: Dataset, root: Path | None) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "title": dataset.title,
        "subjects": list(dataset.subjects),
        "here": subjects_here(dataset, root),
        "sources": [source.name for source in dataset.sources],
        "where": dataset.where,
    }


@app.command()
def describe(
    name: Annotated[str, typer.Argument(help="A data set of `gbwatt data list`, moabb:NAME, or a file.")],
    subject: Annotated[int | None, typer.Option(help="Number of the subject; by default the first.")] = None,
    root: Root = None,
    source: Annotated[str | None, typer.Option(help="Form of the files; by default the first that is there.")] = None,
    read: Annotated[
        list[str] | None,
        typer.Option("--read", "--option", help="Option of the reader, e.g. difficulty=0.8 or tmax=4; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Counts, channels, rate, units and preprocessing of a subject, and what a classical pipeline decodes of it."""
    dataset = find_dataset(name)
    trials = load(name, subject, root=root, source=source, **key_values(read, "read"))
    description, console = trials.describe(), Console()
    if not as_json:
        _print_description(console, description)
    judged = _judge(trials, dataset)
    if as_json:
        print_json({**description.to_dict(), **judged})
    else:
        _print_judgement(console, judged)


def _judge(trials: Trials, dataset: Dataset) -> dict[str, Any]:
    """Sizes of the protocol's splits and the sanity score; where there can be none, why."""
    from gbwatt.data.baselines import sanity  # takes a second to import

    found: dict[str, Any] = {"splits": None, "sanity": None}
    try:
        found["splits"] = _parts(trials, dataset)
        found["sanity"] = sanity(trials, dataset.protocol, dataset.pipeline).to_dict()
    except InputError as error:
        found["no_sanity"] = str(error)
    return found


def _parts(trials: Trials, dataset: Dataset) -> list[dict[str, Any]]:
    return [
        {"test": split.name, "n_train": len(split.train), "n_valid": len(split.valid), "n_test": len(split.test)}
        for split in dataset.protocol.splits(trials)
    ]


def _counts(description: Description) -> Table:
    classes = list(next(iter(description.counts.values()), {}))
    table = Table("session", *classes, title="Trials")
    for session, counts in description.counts.items():
        table.add_row(session, *(str(counts[name]) for name in classes))
    return table


def _print_description(console: Console, description: Description) -> None:
    facts = Table.grid(padding=(0, 2))
    for name, value in description.rows():
        facts.add_row(Text(name, style="bold"), Text(value))
    console.print(facts)
    console.print(_counts(description))


def _print_judgement(console: Console, judged: dict[str, Any]) -> None:
    if judged["splits"]:
        table = Table("tested on", "training", "validation", "test", title="Protocol")
        for part in judged["splits"]:
            table.add_row(part["test"], str(part["n_train"]), str(part["n_valid"]), str(part["n_test"]))
        console.print(table)
    score = judged["sanity"]
    if score is None:
        console.print(Text.assemble(("No sanity score: ", "yellow"), judged["no_sanity"]))
        return
    verdict = "above chance" if score["decodable"] else "[yellow]not above chance[/]"
    console.print(
        f"Sanity: {score['pipeline']} reaches {score['measure']} [bold]{score['score']:.3f}[/] on {score['n_test']} "
        f"test trials; chance is {score['chance']:.3f}, in 95 % of cases at most {score['chance_95']:.3f}: {verdict}.",
        highlight=False,
    )
