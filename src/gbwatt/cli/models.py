"""``gbwatt models``, ``gbwatt evaluate`` and ``gbwatt explain``: list models, score and explain saved ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gbwatt._validation import check_one_of
from gbwatt.cli.options import (
    AsJson,
    ModelFolder,
    Preprocess,
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
    recordings,
    require_free,
    require_writable,
    subject_text,
    subjects,
    use_threads,
)
from gbwatt.errors import InputError

if TYPE_CHECKING:
    from gbwatt.decoding import Evaluation, EvaluationSet, TrainingRecord
    from gbwatt.report.model_report import NamedFigure

# -------------------------------------------------------------------------------------------------------- gbwatt models

#: Input for which the parameters of models for corpora are counted: windows of TUAB.
_CORPUS_INPUT: dict[str, Any] = {"n_chans": 23, "n_outputs": 2, "n_times": 2000, "sfreq": 200.0, "weights": "random"}


def models(
    task: Annotated[
        str, typer.Option(help="Task of the paper for which parameters are counted: mi, ssvep or ern.")
    ] = "mi",
    as_json: AsJson = False,
) -> None:
    """List all models, the packages they require, and their numbers of parameters."""
    from gbwatt.models import list_models
    from gbwatt.models.presets import find_task

    signal = find_task(task).signal
    rows = [_model_row(name, task) for name in list_models()]
    if as_json:
        print_json(rows)
        return
    console = Console()
    shape = f"{signal.n_chans} channels, {signal.n_times} samples, {signal.n_outputs} classes"
    table = Table("name", "description", "extra", "available", title=f"Models; parameters for {task} ({shape})")
    table.add_column("parameters", justify="right")
    for row in rows:
        count = "-" if row["parameters"] is None else str(row["parameters"])
        available = Text("yes") if row["here"] else Text("no", style="yellow")
        table.add_row(Text(row["name"]), Text(row["summary"]), Text(row["extra"] or "-"), available, count)
    console.print(table)
    console.print("Models for corpora: 23 channels, 2000 samples, 2 classes.", highlight=False)
    for reason in dict.fromkeys(row["reason"] for row in rows if row["reason"]):
        console.print(f"Not available: {reason}", highlight=False, markup=False, soft_wrap=True)
    console.print("Next: gbwatt train --model NAME", highlight=False)


def _model_row(name: str, task: str) -> dict[str, Any]:
    """Return what ``gbwatt models`` shows of a model: properties, number of parameters or why it cannot be built."""
    from gbwatt.models import create, entry

    registered = entry(name)
    count, reason = None, None
    try:
        model = create(name, task=task) if registered.for_tasks else create(name, **_CORPUS_INPUT)
        count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    except (InputError, ImportError) as error:
        reason = str(error)
    return {
        "name": name,
        "summary": registered.summary,
        "extra": registered.extra,
        "here": reason is None,
        "reason": reason,
        "parameters": count,
    }


# ------------------------------------------------------------------------------------------------------ gbwatt evaluate

#: Fields of the training record that are shown.
_RECORD_FIELDS = ("status", "dataset", "subject", "split", "simulated", "seed", "epochs", "best_epoch")


def evaluate(
    folder: ModelFolder,
    dataset: TestedDataset = None,
    subject: TestedSubject = None,
    split: TestedSplit = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Score all trials, not only the test trials; default for new files.")
    ] = False,
    root: Root = None,
    source: SourceName = None,
    read: Reading = None,
    preprocess: Preprocess = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Score a saved model.

    By default, the test trials of the data set and subject used for training are scored, and all trials of files that
    the model was not trained on.
    """
    from gbwatt.decoding import EvaluationSet

    use_threads(threads)
    chosen = EvaluationSet.open(
        folder,
        recordings(dataset),
        subject=subjects(subject),
        split=split,
        part="all" if everything else None,
        reading=reading(source, read, preprocess),
        root=root,
    )
    document = document_of(folder, chosen, chosen.evaluate())
    if as_json:
        print_json(document)
    else:
        _print_document(Console(soft_wrap=True), document, chosen)


def document_of(folder: Path, chosen: EvaluationSet, result: Evaluation) -> dict[str, Any]:
    """Return the document that ``--json`` prints.

    Parameters
    ----------
    folder : path
        Folder of the model.
    chosen : EvaluationSet
        The model, and the trials that were scored.
    result : Evaluation
        Scores.
    """
    from gbwatt.decoding.evaluation import name_subjects  # imports torch

    return {
        "model": chosen.decoder.model,
        "folder": str(folder),
        "training": _training_summary(chosen.record),
        "dataset": chosen.dataset,
        "subject": name_subjects(chosen.trials),
        "simulated": bool(chosen.trials.truths),
        "part": chosen.part,
        "scored": chosen.selection,
        **({} if chosen.alignment is None else {"aligned": chosen.alignment}),
        "uses": {use: accuracy._asdict() for use, accuracy in result.uses.items()},
        **result.to_dict(),
    }


def _training_summary(record: TrainingRecord | None) -> dict[str, Any] | None:
    """Return the fields of a training record that :func:`document_of` includes; None without a record."""
    return None if record is None else {name: getattr(record, name) for name in _RECORD_FIELDS}


# ---------------------------------------------------------------------------------------------------------------- print


def _print_document(console: Console, document: dict[str, Any], chosen: EvaluationSet) -> None:
    """Print the document of :func:`document_of` as text: model, trials, scores, and their use in training."""
    kind = kind_of_recordings(document["dataset"], document["simulated"])
    console.print(f"Model: {document['model']}, {_describe_origin(chosen.record)}.", highlight=False, markup=False)
    console.print(
        f"Scored: {document['scored']} of {document['dataset']}, {subject_text(document['subject'])} ({kind})"
        f"{chosen.share and f': {chosen.share}'}.",
        highlight=False,
        markup=False,
    )
    if "aligned" in document:
        console.print(f"Aligned {document['aligned']}.", highlight=False, markup=False)
    print_scores(console, "Result", document)
    _print_uses(console, document["uses"])


def _describe_origin(record: TrainingRecord | None) -> str:
    """Return as text what a model was trained on."""
    from gbwatt.decoding.training_record import FILE, trained_and_tested

    if record is None:
        return f"of unknown origin: its folder has no {FILE}"
    stopped = f", interrupted after epoch {record.epochs}" if record.status == "interrupted" else ""
    if (parts := trained_and_tested(record.to_dict())) is not None:
        return f"trained on {parts[0]}{stopped or f'; tested on {parts[1]}'}"
    split = "" if record.split is None else f", split {record.split}"
    return f"trained on {record.dataset}, {subject_text(record.subject)}{split}{stopped}"


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


# ------------------------------------------------------------------------------------------------------- gbwatt explain

CAPTIONS = "captions.md"  # file with findings and captions, beside the figures


def explain(
    folder: ModelFolder,
    dataset: TestedDataset = None,
    subject: TestedSubject = None,
    split: TestedSplit = None,
    method: Annotated[
        str,
        typer.Option(
            help="Attribution method: gradient, gradient-times-input, integrated-gradients or smooth-gradient."
        ),
    ] = "gradient",
    root: Root = None,
    source: SourceName = None,
    read: Reading = None,
    preprocess: Preprocess = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the figures.")] = Path("explanation"),
    force: Annotated[bool, typer.Option("--force", help="Replace existing figures.")] = False,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Explain a model on test trials: print findings, and write figures (SVG and PNG) with captions."""
    require_free(output, kind="explanation", force=force)
    require_writable(output)
    from gbwatt.decoding import EvaluationSet
    from gbwatt.explain import METHODS, Explanation
    from gbwatt.report.model_report import explanation_figures

    check_one_of("method", method, tuple(METHODS))
    use_threads(threads)
    tested = EvaluationSet.open(
        folder,
        recordings(dataset),
        subject=subjects(subject),
        split=split,
        reading=reading(source, read, preprocess),
        root=root,
    )
    explanation = Explanation(tested.decoder, tested.trials, method)
    aligned = None if tested.alignment is None else f"Aligned {tested.alignment}."
    findings = [*filter(None, [tested.warning, aligned]), *explanation.findings()]
    figures = list(explanation_figures(explanation))
    title = f"{tested.decoder.model} in {folder}, on {tested.description}, by {method}"
    files = _save_figures(figures, output, title, findings)
    if as_json:
        about = {"model": tested.decoder.model, "dataset": tested.dataset, "split": tested.split}
        print_json({**about, **explanation.numbers, "findings": findings, "files": files})
        return
    console = Console(soft_wrap=True)
    for text in (f"{title}:", *findings):
        console.print(text, highlight=False, markup=False)
    console.print(f"{len(figures)} figures and {CAPTIONS} written to {output}", highlight=False, markup=False)


def _save_figures(figures: list[NamedFigure], output: Path, title: str, findings: list[str]) -> list[str]:
    """Write figures, and a Markdown file with findings and captions; return the paths of all files."""
    from gbwatt.plotting import save

    files: list[str] = []
    lines = [f"# Explanation of {title}", "", *(f"- {text}" for text in findings)]
    for name, figure, caption in figures:
        files += [str(path) for path in save(figure, output / name)]
        lines += ["", f"![{name}]({name}.svg)", "", caption]
    (output / CAPTIONS).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [*files, str(output / CAPTIONS)]
