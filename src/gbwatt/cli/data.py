"""``gbwatt data``: list and describe data sets."""

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

app = typer.Typer(help="List and describe data sets.", no_args_is_help=True)


@app.command("list")
def list_(root: Root = None, as_json: AsJson = False) -> None:
    """List the data sets, and the number of subjects whose files exist."""
    rows = [_dataset_row(dataset, root) for dataset in DATASETS.values()]
    console = Console()
    if as_json:
        print_json(rows)
        return
    table = Table("name", "title", "subjects", "available", "sources", title=f"Recordings in {data_root(root)}")
    for row in rows:
        available = str(len(row["here"]) or "-")
        table.add_row(row["name"], row["title"], str(len(row["subjects"])), available, ", ".join(row["sources"]))
    console.print(table)
    if not data_root(root).is_dir():
        console.print(f"The folder {data_root(root)} does not exist.", highlight=False)
    console.print("Files that MNE-Python reads, .npz files and moabb:NAME can also be used.", highlight=False)
    console.print("Next: gbwatt data describe NAME", highlight=False)


def _dataset_row(dataset: Dataset, root: Path | None) -> dict[str, Any]:
    """Return what ``gbwatt data list`` shows of a data set, with the subjects whose files exist."""
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
    name: Annotated[str, typer.Argument(help="Name of a data set (see `gbwatt data list`), moabb:NAME, or a file.")],
    subject: Annotated[int | None, typer.Option(help="Number of the subject; default: the first.")] = None,
    root: Root = None,
    source: Annotated[
        str | None, typer.Option(help="File source (gdf, processed, moabb, …); default: the first available.")
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option("--read", "--option", help="Option of the reader, e.g. difficulty=0.8 or tmax=4; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Describe the trials of a subject, and score a classical baseline."""
    dataset = find_dataset(name)
    trials = load(name, subject, root=root, source=source, **key_values(read, "read"))
    description, console = trials.describe(), Console()
    if not as_json:
        _print_description(console, description)
    evaluation = _evaluate_baseline(trials, dataset)
    if as_json:
        print_json({**description.to_dict(), **evaluation})
    else:
        _print_evaluation(console, evaluation)


def _evaluate_baseline(trials: Trials, dataset: Dataset) -> dict[str, Any]:
    """Return the sizes of the protocol's splits and the baseline score, or the reason why there is none."""
    from gbwatt.decoding.baselines import evaluate_baseline  # imports torch

    evaluation: dict[str, Any] = {"splits": None, "sanity": None}
    try:
        evaluation["splits"] = _split_sizes(trials, dataset)
        evaluation["sanity"] = evaluate_baseline(trials, dataset.protocol, dataset.pipeline).to_dict()
    except InputError as error:
        evaluation["no_sanity"] = str(error)
    return evaluation


def _split_sizes(trials: Trials, dataset: Dataset) -> list[dict[str, Any]]:
    """Return the numbers of training, validation and test trials of each split of the protocol."""
    return [
        {"test": split.name, "n_train": len(split.train), "n_valid": len(split.valid), "n_test": len(split.test)}
        for split in dataset.protocol.splits(trials)
    ]


def _class_counts(description: Description) -> Table:
    """Return a table of the numbers of trials per session and class."""
    classes = list(next(iter(description.counts.values()), {}))
    table = Table("session", *classes, title="Trials")
    for session, counts in description.counts.items():
        table.add_row(session, *(str(counts[name]) for name in classes))
    return table


def _print_description(console: Console, description: Description) -> None:
    """Print the properties of the trials, and their numbers per session and class."""
    facts = Table.grid(padding=(0, 2))
    for name, value in description.rows():
        facts.add_row(Text(name, style="bold"), Text(value))
    console.print(facts)
    console.print(_class_counts(description))


def _print_evaluation(console: Console, evaluation: dict[str, Any]) -> None:
    """Print the sizes of the splits and the baseline score, or the reason why there is none."""
    if evaluation["splits"]:
        table = Table("test set", "training", "validation", "test", title="Protocol")
        for part in evaluation["splits"]:
            table.add_row(part["test"], str(part["n_train"]), str(part["n_valid"]), str(part["n_test"]))
        console.print(table)
    score = evaluation["sanity"]
    if score is None:
        console.print(Text.assemble(("No baseline score: ", "yellow"), evaluation["no_sanity"]))
        return
    verdict = "above chance" if score["decodable"] else "[yellow]not above chance[/]"
    console.print(
        f"Baseline ({score['pipeline']}): {score['measure']} [bold]{score['score']:.3f}[/] on {score['n_test']} test "
        f"trials, {verdict} ({score['chance']:.3f} on average, 95th percentile {score['chance_95']:.3f}).",
        highlight=False,
    )
