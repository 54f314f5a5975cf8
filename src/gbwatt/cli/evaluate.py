"""``gbwatt evaluate``: scores of a saved model, and whether it has seen the trials before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from gbwatt.cli.options import (
    AsJson,
    DatasetName,
    Reading,
    Root,
    SourceName,
    SplitNumber,
    Subject,
    Threads,
    open_split,
    open_trials,
    print_json,
    reading,
    use_threads,
)
from gbwatt.cli.output import accuracy, kind, percent, predicted, print_scores
from gbwatt.data import Trials, find_dataset
from gbwatt.decoding import training_record
from gbwatt.decoding.evaluation import open_model, uses_of

if TYPE_CHECKING:
    from gbwatt.data.datasets import Dataset


def evaluate(
    folder: Annotated[Path, typer.Argument(help="Folder of a model that `gbwatt train` saved.")],
    dataset: DatasetName,
    subject: Subject = None,
    split: SplitNumber = 0,
    everything: Annotated[bool, typer.Option("--all", help="All trials, not only those for test.")] = False,
    root: Root = None,
    source: SourceName = None,
    read: Reading = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Score a saved model on the test trials of a subject, or on all of them."""
    use_threads(threads)
    decoder, record = open_model(folder), training_record.read(folder)
    found = find_dataset(dataset)
    how = reading(source, read)
    trials, rows, which = _chosen(found, subject, split, everything, root, how)
    scores, right = predicted(decoder, trials[rows])
    uses = uses_of(decoder, record, found, trials, root, how)[rows]
    document = {
        "model": decoder.model,
        "folder": str(folder),
        "training": _short(record),
        "dataset": found.name,
        "subject": int(trials.subject[0]),
        "simulated": bool(trials.truths),
        "part": "all" if everything else "test",
        "scored": which,
        "uses": _by_use(right, uses),
        **scores,
    }
    if as_json:
        print_json(document)
    else:
        _print(Console(soft_wrap=True), document)


def _chosen(
    dataset: Dataset, subject: int | None, number: int, everything: bool, root: Path | None, how: dict[str, Any]
) -> tuple[Trials, NDArray[Any], str]:
    """Trials of the subject, which of them are scored, and what these are."""
    if everything:
        trials = open_trials(dataset, subject, root, how)
        return trials, np.arange(len(trials.y)), "all trials"
    trials, split = open_split(dataset, subject, number, root, how)
    return trials, split.test, f"test trials of split {number} ({split.name})"


def _by_use(right: NDArray[Any], uses: NDArray[Any]) -> dict[str, dict[str, Any]]:
    """Accuracy by what the trials were to the model."""
    found = {}
    for use in dict.fromkeys(uses.tolist()):
        mask = uses == use
        found[use] = accuracy(int(right[mask].sum()), int(mask.sum()))
    return found


def _short(record: dict[str, Any] | None) -> dict[str, Any] | None:
    kept = ("status", "dataset", "subject", "split", "simulated", "seed", "epochs", "best_epoch")
    return None if record is None else {name: record.get(name) for name in kept}


# ---- print


def _print(console: Console, document: dict[str, Any]) -> None:
    what = kind(document["dataset"], document["simulated"])
    console.print(f"Model: {document['model']}, {_origin(document['training'])}.", highlight=False, markup=False)
    console.print(
        f"Scored: {document['scored']} of {document['dataset']}, subject {document['subject']} ({what}).",
        highlight=False,
        markup=False,
    )
    print_scores(console, "Result", document)
    _print_uses(console, document["uses"])


def _origin(training: dict[str, Any] | None) -> str:
    if training is None:
        return f"of unknown origin: its folder has no {training_record.FILE}"
    stopped = f", interrupted after epoch {training['epochs']}" if training["status"] == "interrupted" else ""
    return f"trained on {training['dataset']}, subject {training['subject']}, split {training['split']}{stopped}"


def _print_uses(console: Console, uses: dict[str, dict[str, Any]]) -> None:
    if list(uses) == ["unknown"]:
        console.print("It is unknown whether these trials were used for training or validation.", highlight=False)
    elif len(uses) == 1:
        console.print(f"These trials were {training_record.USES[next(iter(uses))]}.", highlight=False)
    else:
        table = Table("trials", "accuracy", "95 %", "right", title="By what the model has seen", title_justify="left")
        for use, found in uses.items():
            low, high = (f"{100 * bound:.1f}" for bound in found["accuracy_95"])
            cells = percent(found["accuracy"]), f"{low} – {high} %", f"{found['hits']} of {found['n']}"
            table.add_row(training_record.USES[use], *cells)
        console.print(table)
    if {"training", "validation"} & set(uses):
        note = "Scores on trials used for training or validation do not show how well the model generalises."
        console.print(f"[bold yellow]{note}[/]")
