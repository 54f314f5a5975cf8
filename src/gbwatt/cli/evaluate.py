"""``gbwatt evaluate``: score a saved model, and tell whether it was trained on the trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gbwatt.cli.options import (
    AsJson,
    ModelFolder,
    Reading,
    Root,
    SourceName,
    TestedDataset,
    TestedSplit,
    TestedSubject,
    Threads,
    kind_of_recordings,
    percent,
    print_json,
    print_scores,
    reading,
    use_threads,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gbwatt.decoding import Evaluation, EvaluationSet, TrainingRecord

#: Fields of the training record that are shown.
_RECORD_FIELDS = ("status", "dataset", "subject", "split", "simulated", "seed", "epochs", "best_epoch")


def evaluate(
    folder: ModelFolder,
    dataset: TestedDataset = None,
    subject: TestedSubject = None,
    split: TestedSplit = None,
    everything: Annotated[bool, typer.Option("--all", help="Score all trials, not only the test trials.")] = False,
    root: Root = None,
    source: SourceName = None,
    read: Reading = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Score a saved model.

    By default, the test trials of the data set and subject used for training are scored.
    """
    from gbwatt.decoding import EvaluationSet

    use_threads(threads)
    part = "all" if everything else "test"
    chosen = EvaluationSet.open(
        folder, dataset, subject=subject, split=split, part=part, reading=reading(source, read), root=root
    )
    document = document_of(folder, chosen, chosen.evaluate(), part)
    if as_json:
        print_json(document)
    else:
        _print_document(Console(soft_wrap=True), document)


def document_of(folder: Path, chosen: EvaluationSet, result: Evaluation, part: str) -> dict[str, Any]:
    """Return the document that ``--json`` prints.

    Parameters
    ----------
    folder : path
        Folder of the model.
    chosen : EvaluationSet
        The model, and the trials that were scored.
    result : Evaluation
        Scores.
    part : "test" or "all"
        Trials that were requested.
    """
    return {
        "model": chosen.decoder.model,
        "folder": str(folder),
        "training": _training_summary(chosen.record),
        "dataset": chosen.dataset,
        "subject": int(chosen.trials.subject[0]),
        "simulated": bool(chosen.trials.truths),
        "part": part,
        "scored": chosen.selection,
        "uses": {use: accuracy._asdict() for use, accuracy in result.uses.items()},
        **result.to_dict(),
    }


def _training_summary(record: TrainingRecord | None) -> dict[str, Any] | None:
    """Return the fields of a training record that the document contains; None without a record."""
    return None if record is None else {name: getattr(record, name) for name in _RECORD_FIELDS}


# ---------------------------------------------------------------------------------------------------------------- print


def _print_document(console: Console, document: dict[str, Any]) -> None:
    """Print the document of :func:`document_of` as text: model, trials, scores, and their use in training."""
    kind = kind_of_recordings(document["dataset"], document["simulated"])
    console.print(f"Model: {document['model']}, {_origin(document['training'])}.", highlight=False, markup=False)
    console.print(
        f"Scored: {document['scored']} of {document['dataset']}, subject {document['subject']} ({kind}).",
        highlight=False,
        markup=False,
    )
    print_scores(console, "Result", document)
    _print_uses(console, document["uses"])


def _origin(training: dict[str, Any] | None) -> str:
    """Return as text what the model was trained on; ``training`` is that of the document."""
    from gbwatt.decoding.training_record import FILE

    if training is None:
        return f"of unknown origin: its folder has no {FILE}"
    split = "" if training["split"] is None else f", split {training['split']}"
    stopped = f", interrupted after epoch {training['epochs']}" if training["status"] == "interrupted" else ""
    return f"trained on {training['dataset']}, subject {training['subject']}{split}{stopped}"


def _print_uses(console: Console, uses: dict[str, dict[str, Any]]) -> None:
    """Print whether the trials were used for training or validation; scores for each use if there are several."""
    from gbwatt.decoding.training_record import USES

    if list(uses) == ["unknown"]:
        console.print("It is unknown whether these trials were used for training or validation.", highlight=False)
    elif len(uses) == 1:
        console.print(f"These trials were {USES[next(iter(uses))]}.", highlight=False)
    else:
        table = Table("trials", "accuracy", "95 %", "correct", title="By use in training", title_justify="left")
        for use, part in uses.items():
            low, high = (f"{100 * bound:.1f}" for bound in part["accuracy_95"])
            table.add_row(USES[use], percent(part["accuracy"]), f"{low} – {high} %", f"{part['hits']} of {part['n']}")
        console.print(table)
    if {"training", "validation"} & set(uses):
        note = "Scores on trials used for training or validation do not show how well the model generalises."
        console.print(f"[bold yellow]{note}[/]")
