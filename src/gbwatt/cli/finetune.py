"""``gbwatt finetune``: a foundation model with a head, on the windows of a corpus, by one process or many."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from gbwatt._validation import check_one_of
from gbwatt.cli.options import INTERRUPTED, AsJson, key_values, print_json, require_writable, to_json
from gbwatt.cli.output import accuracy, confusion_table, percent
from gbwatt.cli.train import holds_model
from gbwatt.errors import ParameterError

if TYPE_CHECKING:
    from gbwatt.clinical.classifier import Registered
    from gbwatt.clinical.corpora import Corpus
    from gbwatt.clinical.finetuning import FineTuning
    from gbwatt.clinical.runs import Trained
    from gbwatt.experiments.runs import Run

RECORD, CHECKPOINT = "finetuning.json", "checkpoint"
#: Beginnings of the names of files that a training writes into its folder at last.
WRITTEN = ("config.json", "model.safetensors", "README.md", RECORD)


def finetune(
    cache: Annotated[Path, typer.Argument(help="Windows of a corpus, as `gbwatt corpus build` made them.")],
    weights: Annotated[str, typer.Option(help="File with the weights of the backbone; or 'random', to use none.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model, and for what is on its way.")],
    backbone: Annotated[str, typer.Option(help="biot or labram.")] = "labram",
    head: Annotated[str, typer.Option(help="gbwatt, matt, or base for none.")] = "gbwatt",
    frozen: Annotated[bool, typer.Option("--frozen", help="Leave the backbone as it is.")] = False,
    option: Annotated[list[str] | None, typer.Option(help="Option of the head, e.g. theta=1; repeatable.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate; this and the next defaults are the model's.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Windows of a step, in all processes together.")] = None,
    max_epochs: Annotated[int | None, typer.Option(help="Epochs at most.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay, decoupled.")] = None,
    layer_decay: Annotated[
        float | None, typer.Option(help="From the learning rate of a layer to the one below.")
    ] = None,
    warmup_epochs: Annotated[float | None, typer.Option(help="Epochs in which the learning rate rises.")] = None,
    label_smoothing: Annotated[float | None, typer.Option(help="Label smoothing.")] = None,
    early_stopping: Annotated[int | None, typer.Option(help="Stop after so many epochs without a gain.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Of the learning rate: cosine or constant.")] = None,
    precision: Annotated[str | None, typer.Option(help="Of the backbone: float32, bfloat16 or float16.")] = None,
    shards: Annotated[int | None, typer.Option(help="Passes of a step; a multiple of the processes.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is random.", min=0)] = 0,
    workers: Annotated[int, typer.Option(help="Processes that read ahead, for each that trains.", min=0)] = 0,
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints; 0 for one an epoch.", min=0)] = 200,
    store: Annotated[Path | None, typer.Option(help="Put the result here, too, for `gbwatt tables clinical`.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a model that is in the folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a foundation model on a corpus, test it once on the official evaluation part, and save it.

    Killed at any moment, the same command goes on.  On several devices: accelerate launch -m gbwatt finetune …, or
    torchrun --nproc_per_node N -m gbwatt finetune …; the result is the same.
    """
    from gbwatt.clinical.classifier import HEAD_OPTIONS
    from gbwatt.clinical.corpora import Corpus
    from gbwatt.clinical.finetuning import FINETUNING, make_accelerator
    from gbwatt.clinical.runs import classifier, run_of, settings_of, train_and_test
    from gbwatt.models.registry import entry

    check_one_of("backbone", backbone, tuple(FINETUNING))
    corpus = Corpus.open(cache)
    given = {
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
    training = vars(entry(backbone).training_for(None)) | {k: v for k, v in given.items() if v is not None}
    settings = settings_of(backbone, corpus, training, seed)
    chosen = key_values(option)
    for name in chosen:
        check_one_of("option", name, HEAD_OPTIONS)
    _require_free(output, force)
    accelerator = make_accelerator(settings.precision)
    console = Console(quiet=as_json or not accelerator.is_main_process, soft_wrap=True)
    options = {"head": head, "weights": weights, "frozen": frozen, **chosen}
    model = classifier(backbone, corpus, options, seed)
    if accelerator.is_main_process:
        require_writable(output)
    _describe(console, corpus, model, settings, accelerator.num_processes)
    began, tell = time.perf_counter(), partial(_tell, console, settings.max_epochs)
    try:
        trained = train_and_test(
            model, corpus, settings, accelerator, output / CHECKPOINT, save_every, workers, on_epoch=tell
        )
    except KeyboardInterrupt:
        said = f"Stopped; what is done is in {output / CHECKPOINT}, and the same command goes on."
        console.print(said, highlight=False)
        raise typer.Exit(INTERRUPTED) from None
    record = _record(corpus, model, trained, settings, accelerator)
    record |= {"options": {**options, "weights": model.initialisation}, "seconds": time.perf_counter() - began}
    if accelerator.is_main_process:
        if store is not None:
            _keep(store, run_of(corpus, model, options, training, seed), trained, corpus, model, record)
        _save(model, corpus, record, output)
        _conclude(console, record, output)
        if as_json:
            print_json(record)
    accelerator.wait_for_everyone()
    accelerator.end_training()


def _keep(
    store: Path, run: Run, trained: Trained, corpus: Corpus, model: Registered, record: Mapping[str, Any]
) -> None:
    """Put the result into a store, where that of an experiment would be."""
    from datetime import UTC, datetime

    from gbwatt.clinical.runs import row_of
    from gbwatt.experiments.store import Store

    row = row_of(run, trained, corpus, model, record["versions"])
    with Store(store) as kept:
        kept.add(row._replace(seconds=record["seconds"], finished=datetime.now(UTC).isoformat(timespec="seconds")))


def _require_free(output: Path, force: bool) -> None:
    """Refuse a folder that has something else than a training that goes on, be it killed while it was saved."""
    if output.exists() and not output.is_dir():
        raise ParameterError(f"output={str(output)!r} is a file; a folder is needed: choose another with -o.")
    inside = [path.name for path in output.iterdir()] if output.is_dir() else []
    ours = WRITTEN if CHECKPOINT in inside else ()
    others = [name for name in inside if name != CHECKPOINT and not name.strip(".").startswith(ours)]
    if others and not force:
        raise ParameterError(
            f"output={str(output)!r} has {others[0]!r} in it; choose another folder, or replace a model with --force."
        )
    if others and not (holds_model(output) or (output / RECORD).exists()):
        raise ParameterError(
            f"output={str(output)!r} has other things in it than a model of gbwatt; choose another folder with -o."
        )


def _describe(console: Console, corpus: Corpus, model: Registered, settings: FineTuning, processes: int) -> None:
    parts = [f"{len(corpus.part(name))} {name}" for name in ("train", "valid", "eval")]
    console.print(
        f"{corpus.name}: windows {', '.join(parts)}; {len(corpus.skipped)} recordings skipped.", highlight=False
    )
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    console.print(
        f"{model.name}, head {model.config['head']}: {count} parameters to train, at most {settings.max_epochs} "
        f"epochs, {processes} process{'es' * (processes > 1)}, seed {settings.seed}.",
        highlight=False,
    )
    console.print(
        str(model.report or f"The backbone begins with {model.initialisation}."), highlight=False, markup=False
    )


def _tell(console: Console, max_epochs: int, row: Mapping[str, Any]) -> None:
    console.print(
        f"epoch {row['epoch']}/{max_epochs}: loss {row['train_loss']:.4f}, validation loss {row['valid_loss']:.4f}, "
        f"balanced accuracy {percent(row['valid_accuracy'])}, {row['duration']:.0f} s",
        highlight=False,
    )


def _record(
    corpus: Corpus, model: Registered, trained: Trained, settings: FineTuning, accelerator: Any
) -> dict[str, Any]:
    """What came out, as it is written beside the model."""
    from dataclasses import asdict

    from gbwatt.clinical.runs import made_with
    from gbwatt.experiments.statistics import weighted_f1

    confusion = trained.scores["confusion"]
    hits = sum(row[place] for place, row in enumerate(confusion))
    counted = accuracy(hits, sum(map(sum, confusion)))
    return {
        "corpus": corpus.name,
        "data": corpus.fingerprint,
        "backbone": model.name,
        "training": asdict(settings),
        "test": {**trained.scores, **counted, "weighted_f1": weighted_f1(confusion)},
        "class_names": list(corpus.class_names),
        "best_epoch": trained.course.best_epoch,
        "history": trained.course.history,
        "processes": accelerator.num_processes,
        "versions": made_with(model, accelerator),
    }


def _save(model: Registered, corpus: Corpus, record: Mapping[str, Any], output: Path) -> None:
    from gbwatt._io import write_atomically
    from gbwatt.models.serialization import save_pretrained

    extra = {"weights began as": model.initialisation, "balanced accuracy": record["test"]["balanced_accuracy"]}
    steps = list(corpus.header["steps"])
    save_pretrained(model, output, name=model.name, class_names=corpus.class_names, preprocessing=steps, extra=extra)
    write_atomically(output / RECORD, to_json(dict(record)).encode())
    shutil.rmtree(output / CHECKPOINT, ignore_errors=True)


def _conclude(console: Console, record: Mapping[str, Any], output: Path) -> None:
    test = record["test"]
    auc = "" if test["auc"] is None else f", AUROC {test['auc']:.3f}"
    console.print(
        f"Test, once, on the official evaluation part: balanced accuracy [bold]{percent(test['balanced_accuracy'])}[/]"
        f"{auc}, weighted F1 {test['weighted_f1']:.3f}, Cohen's kappa {test['kappa']:.3f}; weights of epoch "
        f"{record['best_epoch']}.",
        highlight=False,
    )
    console.print(confusion_table(test["confusion"], record["class_names"]))
    console.print(f"Saved in {output}", highlight=False, markup=False)
