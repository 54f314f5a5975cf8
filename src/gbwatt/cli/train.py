"""``gbwatt train``: a model for one subject, tested once on trials that it has not seen, and saved."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from gbwatt.cli.options import (
    INTERRUPTED,
    AsJson,
    DatasetName,
    Reading,
    Root,
    SourceName,
    SplitNumber,
    Subject,
    Threads,
    kernel_note,
    key_values,
    open_split,
    print_json,
    reading,
    require_writable,
    use_threads,
)
from gbwatt.cli.output import kind, percent, print_scores
from gbwatt.data import find_dataset
from gbwatt.decoding import training_record
from gbwatt.decoding.evaluation import Job, build, carry_out, make_decoder, recipe_of
from gbwatt.errors import ParameterError

if TYPE_CHECKING:
    from torch import nn

#: Where models are saved by default.
FOLDER = Path("gbwatt-models")


def train(
    dataset: DatasetName = "simulated-ssvep",
    subject: Subject = None,
    model: Annotated[str, typer.Option(help="A model of `gbwatt models`.")] = "gbwatt",
    recipe: Annotated[
        str | None, typer.Option(help="best (default) or paper: regularisation of models of the GBWAtt family.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="Option of the model, e.g. theta=1.5; repeatable.")] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate, above 0; this and the next two default to the model's.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Trials in a batch.", min=2)] = None,
    max_epochs: Annotated[int | None, typer.Option(help="Epochs at most.", min=1)] = None,
    early_stopping: Annotated[
        int | None, typer.Option(help="Stop after so many epochs without a lower validation loss.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is random.", min=0)] = 0,
    split: SplitNumber = 0,
    root: Root = None,
    source: SourceName = None,
    read: Reading = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for the model; by default below gbwatt-models.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a model that is in that folder.")] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder for the state after each epoch: the same command continues there.")
    ] = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Train a model on one subject, test it once on held-out trials, and save it.

    Without arguments: GBWAtt on simulated recordings, which need no files.
    """
    from gbwatt.models.registry import entry

    console = Console(quiet=as_json, soft_wrap=True)
    found, _ = find_dataset(dataset), entry(model)
    if lr is not None and not lr > 0:
        raise ParameterError(f"lr={lr} must be above 0.")
    folder = output or FOLDER / default_name(found.name, subject or _first(found.subjects), model, seed, split)
    require_free(folder, force)
    use_threads(threads)
    how = reading(source, read)
    trials, divided = open_split(found, subject, split, root, how)
    if len(set(trials.y.tolist())) < 2:
        raise ParameterError(
            f"{found.name} has one class, {trials.class_names[trials.y[0]]!r}; two at least are needed."
        )
    training = {"lr": lr, "batch_size": batch_size, "max_epochs": max_epochs, "early_stopping": early_stopping}
    job = Job(
        dataset=found.name,
        task=found.task,
        trials=trials,
        split=divided,
        number=split,
        model=model,
        recipe=recipe,
        options=key_values(option),
        training={name: value for name, value in training.items() if value is not None},
        seed=seed,
        checkpoint=checkpoint,
        root=root,
        reading=how,
    )
    _finish(job, _train(job, folder, console), folder, console, as_json)


def _train(job: Job, folder: Path, console: Console) -> dict[str, Any]:
    """Say what will be done, and do it."""
    from gbwatt.decoding.callbacks import EpochDisplay

    module = build(job)
    decoder = make_decoder(job, module, EpochDisplay(Console(stderr=True)))
    console.print(describe(job), highlight=False, markup=False)
    console.print(_plan(job, module), highlight=False, markup=False)
    if note := kernel_note():
        console.print(note, highlight=False, markup=False)
    require_writable(folder)
    return carry_out(job, decoder, folder)


def _plan(job: Job, module: nn.Module) -> str:
    """What is trained, in a line, and whether for fewer or more epochs than usual."""
    from gbwatt.models.registry import entry

    recipe = {**recipe_of(job, module), **job.options}.get("recipe")
    usual = entry(job.model).training_for(job.task).max_epochs
    epochs = job.training.get("max_epochs", usual)
    count = sum(p.numel() for p in module.parameters() if p.requires_grad)
    return (
        f"{job.model}{f' ({recipe} recipe)' if recipe else ''}: {count} parameters, at most {epochs} epochs"
        f"{f' instead of {usual}' if epochs != usual else ''}, seed {job.seed}."
    )


def _first(subjects: tuple[int, ...]) -> int:
    return subjects[0] if subjects else 1


def default_name(dataset: str, subject: int, model: str, seed: int, split: int) -> str:
    """Name of the folder for a model.

    Examples
    --------
    >>> default_name("recordings/mine.npz", 1, "matt", 0, 0)
    'mine-s1-matt-seed0'
    """
    name = Path(dataset.replace(":", "-")).stem
    return f"{name}-s{subject}-{model}-seed{seed}" + (f"-split{split}" if split else "")


def require_free(folder: Path, force: bool) -> None:
    """Refuse to write where there is something, unless it is a model that is to be replaced."""
    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"output={str(folder)!r} is a file; a folder is needed: choose another with -o.")
    if folder.is_dir() and any(folder.iterdir()):
        if not force:
            raise ParameterError(
                f"output={str(folder)!r} is there already; choose another with -o, or replace the model in it with "
                "--force."
            )
        if not holds_model(folder):
            raise ParameterError(
                f"output={str(folder)!r} has other things in it than a model of gbwatt, and --force replaces models "
                "only; choose another with -o."
            )


def holds_model(folder: Path) -> bool:
    """Whether there is a model in a folder, be it damaged."""
    from gbwatt.errors import ModelFileError
    from gbwatt.models.serialization import CONFIG, WEIGHTS, read_config

    try:
        read_config(folder / CONFIG)
    except ModelFileError:
        return (folder / WEIGHTS).exists() and (folder / training_record.FILE).exists()
    return True


def describe(job: Job) -> str:
    """What the data are, in a line."""
    what = kind(job.dataset, bool(job.trials.truths))
    train, valid, test = job.sizes.values()
    return (
        f"{job.dataset} ({what}), tested: {job.split.name}. Trials: {train} training, {valid} validation, {test} test."
    )


# ---- what is said at the end


def _finish(job: Job, record: dict[str, Any], folder: Path, console: Console, as_json: bool) -> None:
    if as_json:
        print_json(record)
    if record["status"] == "interrupted":
        Console(stderr=True, soft_wrap=True).print(interruption(job, record), highlight=False, markup=False)
        raise typer.Exit(INTERRUPTED)
    console.print(
        f"{record['epochs']} epochs in {record['seconds']:.0f} s; the weights are those of epoch {record['best_epoch']}"
        f"{_selection(record)}.",
        highlight=False,
    )
    print_scores(console, f"Test, once, on {job.split.name}", record["test"])
    console.print(f"Saved in {folder}", highlight=False, markup=False)
    console.print(f"Next: {next_command(job, folder)}", highlight=False, markup=False)
    console.print(f"What it looks at: {next_command(job, folder, 'explain')}", highlight=False, markup=False)


def _selection(record: dict[str, Any]) -> str:
    best = record["at_best_epoch"]
    if "valid_loss" not in best:
        return ""
    return f", with the lowest validation loss (validation accuracy {percent(best['valid_accuracy'])})"


def interruption(job: Job, record: dict[str, Any]) -> str:
    """What was kept of an interrupted training, and how to go on."""
    epochs = record["epochs"]
    if not epochs:
        return "Interrupted before an epoch was complete: there is nothing new to keep."
    done = f"Interrupted after epoch {epochs} of {record['training']['max_epochs']}"
    if job.checkpoint is not None:
        return f"{done}: its state is in {job.checkpoint}. To continue, give the same command again."
    return (
        f"{done}: the best weights so far, of epoch {record['best_epoch']}, are in {record['folder']}, marked as "
        "interrupted and not tested. To start anew, give the same command with --force; with --checkpoint FOLDER it "
        "could be continued."
    )


def next_command(job: Job, folder: Path, verb: str = "evaluate") -> str:
    """The command that opens the model again, on the recordings of the training."""
    from gbwatt.report.model_report import recording_options

    trained = {"dataset": job.dataset, "subject": job.subject, "split": job.number, "reading": job.reading}
    root = [] if job.root is None else ["--root", str(job.root)]
    return shlex.join(["gbwatt", verb, str(folder), *recording_options(trained), *root])
