"""``gbwatt corpus`` and ``gbwatt finetune``: caches of clinical corpora, and training of foundation models on them."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from gbwatt._validation import check_one_of
from gbwatt.cli.options import (
    INTERRUPTED,
    AsJson,
    confusion_table,
    holds_model,
    key_values,
    percent,
    print_json,
    require_writable,
)
from gbwatt.clinical.corpora import KINDS, BuildSummary, Corpus, Progress, SkippedRecording
from gbwatt.clinical.corpora import build as build_cache
from gbwatt.clinical.corpora.cache import MANIFEST, PARTS
from gbwatt.data.preprocessing import Preprocessing
from gbwatt.errors import ParameterError

if TYPE_CHECKING:
    from gbwatt.clinical.classifier import PretrainedClassifier
    from gbwatt.clinical.finetuning import FineTuning, FineTuningResult
    from gbwatt.decoding import TrainingRecord
    from gbwatt.experiments.runs import Run

# -------------------------------------------------------------------------------------------------------- gbwatt corpus

corpus_app = typer.Typer(
    help="Build, describe and check caches of the clinical corpora TUAB and TUEV.", no_args_is_help=True
)

#: Exit code if some recordings are damaged; the others are in the cache.
SOME_DAMAGED = 3
#: Number of skipped recordings of each kind that are listed.
SHOWN = 5
#: Progress lines of a build without a terminal.
LINES = 10

Cache = Annotated[Path, typer.Argument(help="Folder of the cache.")]


@corpus_app.command()
def build(
    root: Annotated[Path, typer.Argument(help="Folder of the corpus, folder of a version, or its subfolder edf.")],
    cache: Cache,
    corpus: Annotated[str, typer.Option(help="Corpus: tuab or tuev.")],
    montage: Annotated[
        str, typer.Option(help="Montage: referential23 (for LaBraM and BIOT) or bipolar16 (for BIOT).")
    ] = "referential23",
    notch: Annotated[float, typer.Option(help="Mains frequency to filter out, in Hz.")] = 60.0,
    jobs: Annotated[int, typer.Option(help="Number of processes; 0: one per core.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Cut the recordings of a corpus into windows on disk.  The same command resumes an interrupted build."""
    console = Console(stderr=as_json)
    options: dict[str, Any] = {"corpus": corpus, "montage": montage, "notch": notch, "jobs": jobs}
    built = _build_with_progress(console, root, cache, options)
    if as_json:
        print_json(_summary_document(built))
    else:
        _print_summary(console, built)
    if built.damaged:
        raise typer.Exit(SOME_DAMAGED)


def _build_with_progress(console: Console, root: Path, cache: Path, options: dict[str, Any]) -> BuildSummary:
    """Build a cache with a progress bar or, without a terminal, progress lines; ``options`` are those of ``build``."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = console.is_terminal
    with Bar(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task("recordings", total=None)

        def on_progress(progress: Progress) -> None:
            """Update the bar, and print skipped recordings and progress lines."""
            bar.update(task, completed=progress.done, total=progress.total)
            if isinstance(progress.entry, SkippedRecording):
                console.print(_skipped_line(progress.entry), highlight=False, markup=False, soft_wrap=True)
            if not shown and progress.done % -(-progress.total // LINES) == 0:
                console.print(f"{progress.done} of {progress.total} recordings", highlight=False)

        try:
            return build_cache(root, cache, **options, on_progress=on_progress)
        except KeyboardInterrupt:
            bar.stop()
            done, total = bar.tasks[0].completed, bar.tasks[0].total
            left = "" if total is None else f", {total - done:.0f} are left"
            console.print(f"Interrupted. {done:.0f} recordings are done{left}; the same command resumes.")
            raise


def _skipped_line(entry: SkippedRecording) -> str:
    """Return a line on a skipped recording, with the reason."""
    return f"skipped ({entry.kind}): {entry.path}: {entry.reason}"


def _summary_document(built: BuildSummary) -> dict[str, Any]:
    """Return the JSON document of a build."""
    return {
        "cache": str(built.cache),
        "new": built.new,
        "recordings": built.n_recordings,
        "windows": built.n_windows,
        "skipped": built.skipped_kinds,
        "list": str(built.cache / MANIFEST),
    }


def _print_summary(console: Console, built: BuildSummary) -> None:
    """Print the result of a build, the skipped recordings, and the next command."""
    console.print(
        f"{built.n_recordings} recordings are cached, {built.new} of them new: {built.n_windows} windows.",
        highlight=False,
    )
    if built.skipped:
        console.print(_skipped_table(built.skipped))
        message = f"{len(built.skipped)} recordings were skipped; {built.cache / MANIFEST} lists them with reasons"
        console.print(message, highlight=False, markup=False, soft_wrap=True)
    command = shlex.join(["gbwatt", "corpus", "describe", str(built.cache)])
    console.print(f"Next: {command}", highlight=False, markup=False, soft_wrap=True)


def _skipped_table(skipped: Sequence[SkippedRecording]) -> Table:
    """Return a table of the kinds of skipped recordings, with their number and meaning."""
    table = Table("skipped", "recordings", "meaning", title="Not in the cache")
    for kind, recordings in _by_kind(skipped).items():
        table.add_row(kind, str(len(recordings)), KINDS[kind])
    return table


def _by_kind(skipped: Sequence[SkippedRecording]) -> dict[str, list[SkippedRecording]]:
    """Group skipped recordings by kind, in the order of ``KINDS``."""
    groups: dict[str, list[SkippedRecording]] = {}
    for entry in skipped:
        groups.setdefault(entry.kind, []).append(entry)
    return {kind: groups[kind] for kind in KINDS if kind in groups}


# ---- description


@corpus_app.command()
def describe(
    cache: Cache,
    valid_fraction: Annotated[float, typer.Option(help="Fraction of the training subjects used for validation.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Random seed for the choice of validation subjects.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Show the parts, subjects and windows per class of a cache, and the skipped recordings with reasons."""
    if not 0 <= valid_fraction < 1:
        raise ParameterError(f"valid_fraction={valid_fraction} must be at least 0 and below 1.")
    corpus = Corpus.open(cache)
    document = _description_document(corpus, valid_fraction, seed)
    if as_json:
        print_json(document)
        return
    console = Console()
    console.print(repr(corpus), highlight=False, markup=False, soft_wrap=True)
    for step in str(Preprocessing.from_records(corpus.header["steps"])).splitlines():
        console.print(f"  {step}", highlight=False, markup=False)
    table = Table("part", "recordings", "subjects", "windows", *corpus.class_names, title="Windows")
    for name, part in document["parts"].items():
        counts = (part["recordings"], part["subjects"], part["windows"], *part["classes"].values())
        table.add_row(name, *map(str, counts))
    console.print(table)
    for note in document["notes"]:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    _print_skipped(console, corpus)


def _description_document(corpus: Corpus, valid_fraction: float, seed: int) -> dict[str, Any]:
    """Return the JSON document on a cache; parts that cannot be made, with the reason in ``notes``, are left out."""
    parts, notes = {}, []
    for name in PARTS:
        try:
            parts[name] = _describe_part(corpus, name, valid_fraction, seed)
        except ParameterError as error:
            notes.append(str(error))
    return {
        "cache": str(corpus.cache),
        "corpus": corpus.name,
        "montage": corpus.montage,
        "ch_names": list(corpus.ch_names),
        "sfreq": corpus.sfreq,
        "n_times": corpus.n_times,
        "steps": corpus.header["steps"],
        "window": corpus.header["window"],
        "bytes": sum(recording.n_bytes for recording in corpus.recordings),
        "fingerprint": corpus.fingerprint,
        "parts": parts,
        "notes": notes,
        "skipped": [{"path": e.path, "kind": e.kind, "reason": e.reason} for e in corpus.skipped],
    }


def _describe_part(corpus: Corpus, name: str, valid_fraction: float, seed: int) -> dict[str, Any]:
    """Return the numbers of recordings, subjects and windows of a part, and of windows per class."""
    part = corpus.part(name, valid_fraction, seed)
    counts = np.bincount(part.labels, minlength=len(corpus.class_names)).tolist()
    return {
        "recordings": len(part.recordings),
        "subjects": len({recording.subject for recording in part.recordings}),
        "windows": len(part),
        "classes": dict(zip(corpus.class_names, counts, strict=True)),
    }


def _print_skipped(console: Console, corpus: Corpus) -> None:
    """Print a table of skipped recordings, and the first recordings of each kind with reasons."""
    if not corpus.skipped:
        console.print("No recording was skipped.", highlight=False)
        return
    console.print(_skipped_table(corpus.skipped))
    for recordings in _by_kind(corpus.skipped).values():
        for entry in recordings[:SHOWN]:
            console.print(_skipped_line(entry), highlight=False, markup=False, soft_wrap=True)
        if len(recordings) > SHOWN:
            more = f"  … and {len(recordings) - SHOWN} more ({recordings[0].kind}), in {corpus.cache / MANIFEST}"
            console.print(more, highlight=False, markup=False, soft_wrap=True)


@corpus_app.command()
def check(cache: Cache, as_json: AsJson = False) -> None:
    """Compare every file of a cache with its hash in the manifest."""
    corpus = Corpus.open(cache)
    corpus.verify()
    if as_json:
        print_json({"cache": str(cache), "recordings": len(corpus.recordings), "fingerprint": corpus.fingerprint})
        return
    message = f"{len(corpus.recordings)} files match the manifest; fingerprint {corpus.fingerprint[:16]}"
    Console().print(message, highlight=False)


# ------------------------------------------------------------------------------------------------------ gbwatt finetune

RECORD, CHECKPOINT = "finetuning.json", "checkpoint"  # file and folder in the output folder
#: Beginnings of the names of the files that are written after training.
WRITTEN = ("config.json", "model.safetensors", "README.md", "training.json", RECORD)


def finetune(
    cache: Annotated[Path, typer.Argument(help="Cache of a corpus, built by `gbwatt corpus build`.")],
    weights: Annotated[str, typer.Option(help="File with pretrained weights of the backbone, or 'random'.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model and for checkpoints.")],
    backbone: Annotated[str, typer.Option(help="Backbone: biot or labram.")] = "labram",
    head: Annotated[str, typer.Option(help="Head: gbwatt, matt, or base (no SPD attention).")] = "gbwatt",
    frozen: Annotated[bool, typer.Option("--frozen", help="Do not train the backbone.")] = False,
    option: Annotated[list[str] | None, typer.Option(help="Option of the head, e.g. theta=1; repeatable.")] = None,
    lr: Annotated[
        float | None,
        typer.Option(help="Learning rate of the head. The defaults of all training options depend on the backbone."),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Windows per step, over all processes.")] = None,
    max_epochs: Annotated[int | None, typer.Option(help="Maximum number of epochs.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Decoupled weight decay.")] = None,
    layer_decay: Annotated[float | None, typer.Option(help="Layer-wise learning-rate decay factor.")] = None,
    warmup_epochs: Annotated[float | None, typer.Option(help="Epochs of linear learning-rate warm-up.")] = None,
    label_smoothing: Annotated[float | None, typer.Option(help="Label smoothing.")] = None,
    early_stopping: Annotated[
        int | None, typer.Option(help="Stop after this many epochs without a lower validation loss.")
    ] = None,
    schedule: Annotated[str | None, typer.Option(help="Learning-rate schedule: cosine or constant.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="Precision of the backbone: float32, bfloat16 or float16.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(help="Forward passes per step; a multiple of the number of processes.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
    workers: Annotated[int, typer.Option(help="Data-loading processes per training process.", min=0)] = 0,
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints; 0: only after each epoch.", min=0)] = 200,
    store: Annotated[
        Path | None, typer.Option(help="Also add the result to this store, for `gbwatt tables clinical`.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model in the output folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a foundation model on a corpus, test it once on the official evaluation part, and save it.

    The same command resumes interrupted training.  For several devices, use accelerate launch -m gbwatt finetune … or
    torchrun --nproc_per_node N -m gbwatt finetune …; results do not depend on the number of processes.
    """
    from gbwatt.clinical.classifier import HEAD_OPTIONS
    from gbwatt.clinical.corpora import Corpus
    from gbwatt.clinical.finetuning import (
        FINETUNING,
        make_accelerator,
        make_classifier,
        run_of,
        settings_of,
        train_and_test,
    )
    from gbwatt.models.registry import entry

    check_one_of("backbone", backbone, tuple(FINETUNING))
    corpus = Corpus.open(cache)
    requested = {
        "lr": lr,
        "batch_size": batch_size,
        "max_epochs": max_epochs,
        "weight_decay": weight_decay,
        "layer_decay": layer_decay,
        "warmup_epochs": warmup_epochs,
        "label_smoothing": label_smoothing,
        "early_stopping": early_stopping,
        "schedule": schedule,
        "precision": precision,
        "shards": shards,
    }
    training = vars(entry(backbone).training_for(None)) | {k: v for k, v in requested.items() if v is not None}
    settings = settings_of(backbone, corpus, training, seed)
    head_options = key_values(option)
    for name in head_options:
        check_one_of("option", name, HEAD_OPTIONS)
    _require_free(output, force)
    accelerator = make_accelerator(settings.precision)
    console = Console(quiet=as_json or not accelerator.is_main_process, soft_wrap=True)
    options = {"head": head, "weights": weights, "frozen": frozen, **head_options}
    model = make_classifier(backbone, corpus, options, seed)
    if accelerator.is_main_process:
        require_writable(output)
    _print_setup(console, corpus, model, settings, accelerator.num_processes)
    started, on_epoch = time.perf_counter(), partial(_print_epoch, console, settings.max_epochs)
    try:
        result = train_and_test(
            model, corpus, settings, accelerator, output / CHECKPOINT, save_every, workers, on_epoch=on_epoch
        )
    except KeyboardInterrupt:
        message = f"Interrupted. The same command resumes from the checkpoint in {output / CHECKPOINT}."
        console.print(message, highlight=False)
        raise typer.Exit(INTERRUPTED) from None
    record = _result_record(corpus, model, result, settings, accelerator)
    record |= {"options": {**options, "weights": model.initialisation}, "seconds": time.perf_counter() - started}
    if accelerator.is_main_process:
        if store is not None:
            _add_to_store(store, run_of(corpus, model, options, training, seed), result, corpus, model, record)
        _save_model(model, corpus, record, output)
        _print_result(console, record, output)
        if as_json:
            print_json(record)
    accelerator.wait_for_everyone()
    accelerator.end_training()


def _require_free(output: Path, force: bool) -> None:
    """Require a folder that is empty, or has an interrupted training or, with ``force``, a model."""
    if output.exists() and not output.is_dir():
        raise ParameterError(f"output={str(output)!r} is a file, not a folder; choose another with -o.")
    names = [path.name for path in output.iterdir()] if output.is_dir() else []
    our_prefixes = WRITTEN if CHECKPOINT in names else ()
    extra = [name for name in names if name != CHECKPOINT and not name.strip(".").startswith(our_prefixes)]
    if extra and not force:
        raise ParameterError(
            f"output={str(output)!r} already contains {extra[0]!r}; choose another folder with -o, or replace a model "
            "with --force."
        )
    if extra and not (holds_model(output) or (output / RECORD).exists()):
        raise ParameterError(
            f"output={str(output)!r} contains other things than a model of gbwatt, which --force does not replace; "
            "choose another folder with -o."
        )


# ---- result


def _result_record(
    corpus: Corpus, model: PretrainedClassifier, result: FineTuningResult, settings: FineTuning, accelerator: Any
) -> dict[str, Any]:
    """Return all settings and results, as written to ``finetuning.json`` and printed with ``--json``."""
    from dataclasses import asdict

    from gbwatt.clinical.finetuning import environment
    from gbwatt.decoding.metrics import Accuracy
    from gbwatt.experiments.statistics import weighted_f1

    confusion = result.scores["confusion"]
    hits = sum(row[index] for index, row in enumerate(confusion))
    counts = Accuracy.of(hits, sum(map(sum, confusion)))._asdict()
    return {
        "corpus": corpus.name,
        "data": corpus.fingerprint,
        "backbone": model.name,
        "training": asdict(settings),
        "test": {**result.scores, **counts, "weighted_f1": weighted_f1(confusion)},
        "class_names": list(corpus.class_names),
        "best_epoch": result.course.best_epoch,
        "history": result.course.history,
        "processes": accelerator.num_processes,
        "versions": environment(model, accelerator),
    }


def _add_to_store(
    store: Path,
    run: Run,
    result: FineTuningResult,
    corpus: Corpus,
    model: PretrainedClassifier,
    record: Mapping[str, Any],
) -> None:
    """Add the result to a store, as a run of the experiment ``clinical`` would."""
    from datetime import UTC, datetime

    from gbwatt.clinical.finetuning import row_of
    from gbwatt.experiments.store import Store

    row = row_of(run, result, corpus, model, record["versions"])
    with Store(store) as opened:
        opened.add(row._replace(seconds=record["seconds"], finished=datetime.now(UTC).isoformat(timespec="seconds")))


def _save_model(model: PretrainedClassifier, corpus: Corpus, record: Mapping[str, Any], output: Path) -> None:
    """Write the files of a model as ``gbwatt train`` does, and ``finetuning.json``; delete the checkpoint."""
    from gbwatt import _io
    from gbwatt.models.serialization import save_pretrained

    summary = _training_record(model, corpus, record)
    trained = {**summary.training, "seed": summary.seed, "epochs": summary.epochs, "best_epoch": summary.best_epoch}
    extra = {
        "weights began as": model.initialisation,
        "balanced accuracy": record["test"]["balanced_accuracy"],
        "multiply epochs by": 1.0,
        "training": {**trained, "at_best_epoch": summary.at_best_epoch},
    }
    steps = list(corpus.header["steps"])
    (output / "training.json").unlink(missing_ok=True)  # the record of a model that is replaced
    save_pretrained(model, output, name=model.name, class_names=corpus.class_names, preprocessing=steps, extra=extra)
    summary.write(output)
    _io.write_atomically(output / RECORD, _io.to_json(_io.without_nan(dict(record)), indent=None).encode())
    shutil.rmtree(output / CHECKPOINT, ignore_errors=True)


def _training_record(model: PretrainedClassifier, corpus: Corpus, record: Mapping[str, Any]) -> TrainingRecord:
    """Convert the record of a fine-tuning to that of ``gbwatt train``, for the file ``training.json``.

    A corpus has one subject, itself, and no trial numbers.
    """
    test, history = record["test"], record["history"]
    settings = {name: value for name, value in record["training"].items() if name not in ("seed", "early_stopping")}
    best = {name: value for name, value in history[record["best_epoch"] - 1].items() if name != "step_losses"}
    parts = {"train": "train", "valid": "valid", "test": "eval"}
    from gbwatt.data.description import chance_level
    from gbwatt.decoding import TrainingRecord

    return TrainingRecord(
        status="done",
        dataset=corpus.name,
        subject=1,
        split=None,
        tested_on="the official evaluation part",
        simulated=False,
        data=corpus.fingerprint[:16],
        reading={},
        trials={name: len(corpus.part(part)) for name, part in parts.items()},
        model=model.name,
        options=record["options"],
        seed=record["training"]["seed"],
        checkpoint=None,
        versions=record["versions"],
        recipe=None,
        training=settings,
        early_stopping=record["training"]["early_stopping"],
        epochs=len(history),
        best_epoch=record["best_epoch"],
        at_best_epoch=best,
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        seconds=record["seconds"],
        test={
            **test,
            "chance": chance_level([sum(row) for row in test["confusion"]]),
            "class_names": record["class_names"],
        },
        seen={"train": [], "valid": []},
    )


# ---- output


def _print_setup(
    console: Console, corpus: Corpus, model: PretrainedClassifier, settings: FineTuning, processes: int
) -> None:
    """Print the sizes of the corpus parts, the model with its settings, and the weights it starts from."""
    parts = [f"{len(corpus.part(name))} {name}" for name in ("train", "valid", "eval")]
    console.print(
        f"{corpus.name}: windows {', '.join(parts)}; {len(corpus.skipped)} recordings skipped.", highlight=False
    )
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    console.print(
        f"{model.name}, head {model.config['head']}: {count} trainable parameters, at most {settings.max_epochs} "
        f"epochs, {processes} process{'es' * (processes > 1)}, seed {settings.seed}.",
        highlight=False,
    )
    console.print(
        str(model.report or f"The backbone starts from {model.initialisation}."), highlight=False, markup=False
    )


def _print_epoch(console: Console, max_epochs: int, row: Mapping[str, Any]) -> None:
    """Print losses, validation score and duration of an epoch; ``row`` is its entry in the history."""
    console.print(
        f"epoch {row['epoch']}/{max_epochs}: loss {row['train_loss']:.4f}, validation loss {row['valid_loss']:.4f}, "
        f"balanced accuracy {percent(row['valid_accuracy'])}, {row['duration']:.0f} s",
        highlight=False,
    )


def _print_result(console: Console, record: Mapping[str, Any], output: Path) -> None:
    """Print test scores, confusion matrix and folder."""
    test = record["test"]
    auc = "" if test["auc"] is None else f", AUROC {test['auc']:.3f}"
    console.print(
        f"Test on the official evaluation part: balanced accuracy [bold]{percent(test['balanced_accuracy'])}[/]"
        f"{auc}, weighted F1 {test['weighted_f1']:.3f}, Cohen's kappa {test['kappa']:.3f}; weights of epoch "
        f"{record['best_epoch']}.",
        highlight=False,
    )
    console.print(confusion_table(test["confusion"], record["class_names"]))
    console.print(f"Saved in {output}", highlight=False, markup=False)
