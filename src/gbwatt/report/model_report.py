"""Report of a trained model: its test scores, training, explanation, configuration and usage."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gbwatt
from gbwatt.decoding.metrics import wilson_interval
from gbwatt.experiments.table_formats import Column, Table, show
from gbwatt.report import figures
from gbwatt.report.page import Block, Code, Facts, Figure, Fold, Note, Page, Paragraph, Section

if TYPE_CHECKING:
    from torch import nn

    from gbwatt.explain import Explanation

Record = Mapping[str, Any]

_CURVES = ("train_loss", "valid_loss", "valid_accuracy")
_PARTS = {"train": "training", "valid": "validation", "test": "test"}


def report_of_model(folder: str | Path, record: Record | None = None, *, module: nn.Module | None = None) -> Page:
    """Report a trained model.

    Parameters
    ----------
    folder : path
        Folder written by :meth:`~gbwatt.decoding.EEGDecoder.save_pretrained` or
        :func:`~gbwatt.models.serialization.save_pretrained`.
    record : dict, optional
        Training record that `gbwatt train` saved: recordings, settings and test scores.
    module : nn.Module, optional
        The network, if it is already loaded.

    Returns
    -------
    Page
        Summary, test scores, training, configuration and usage.  :func:`explanation_section` adds an explanation.

    Raises
    ------
    ModelFileError
        If the files of the model are damaged.
    """
    from gbwatt.models.serialization import CONFIG, load_pretrained, read_config

    folder = Path(folder)
    module = load_pretrained(folder).model if module is None else module
    config = read_config(folder / CONFIG)
    versions = (record or {}).get("versions") or config.get("versions") or {}
    sections = [
        Section("Summary", tuple(_summary(config, module, record))),
        *_test(record),
        *_training(config["extra"]),
        Section("Configuration", tuple(_configuration(config, module, versions))),
        Section("Usage", tuple(_commands(str(folder), config["extra"].get("estimator"), record))),
    ]
    return Page(f"{config['model']}, a trained model", tuple(sections), _lead(record))


def explanation_section(explanation: Explanation, trials: str, warning: str | None = None) -> Section:
    """Section that explains a model.

    Parameters
    ----------
    explanation : Explanation
        Explanation of the model.
    trials : str
        Description of the trials.
    warning : str, optional
        Warning about the trials.

    Returns
    -------
    Section
        Findings and figures.
    """
    from gbwatt.report.explanation_figures import explanation_figures

    notes = [Note(warning)] if warning else []
    texts = [Paragraph(text) for text in (f"Explained on {trials}.", *explanation.findings())]
    drawn = [figures.figure_block(one.figure, one.caption) for one in explanation_figures(explanation)]
    return Section("Explanation", (*notes, *texts, *drawn))


def _lead(record: Record | None) -> str:
    if record is None:
        return "From the files of the model, which do not record what it was trained on."
    kind = "simulated recordings" if record.get("simulated") else "recordings"
    return f"Trained on {kind} of {record['dataset']}, subject {record['subject']}, seed {record.get('seed')}."


# ---- summary and test


def _summary(config: Record, module: nn.Module, record: Record | None) -> Iterator[Block]:
    if record and record.get("simulated"):
        yield Note("The recordings are simulated: scores say nothing about real EEG.")
    if record and record.get("status") == "interrupted":
        yield Note("Training was interrupted: these are the best weights up to then, and they were not tested.")
    yield Facts(tuple(_facts(config, module, record or {})))


def _facts(config: Record, module: nn.Module, record: Record) -> Iterator[tuple[str, str]]:
    arguments, training = config["arguments"], config["extra"].get("training") or {}
    rate = f" at {arguments['sfreq']:g} Hz" if arguments.get("sfreq") else ""
    yield "Network", f"{config['model']}\n{sum(p.numel() for p in module.parameters())} parameters"
    yield "Input", f"{arguments.get('n_chans', '?')} channels × {arguments.get('n_times', '?')} samples{rate}"
    yield "Classes", ", ".join(map(str, config["class_names"])) if config["class_names"] else "not named"
    if training:
        yield "Training", f"{training.get('epochs')} epochs, weights of epoch {training.get('best_epoch')}"
    if record.get("trials"):
        yield "Trials", ", ".join(f"{n} {_PARTS.get(part, part)}" for part, n in record["trials"].items())
    test = record.get("test")
    if test:
        yield "Test", f"accuracy {show(100 * test['accuracy'])} %\nchance {show(100 * test['chance'])} %"


def _test(record: Record | None) -> list[Section]:
    """Test scores after training."""
    test = (record or {}).get("test")
    if not test or record is None:
        return []
    low, high = (100 * bound for bound in wilson_interval(int(test["hits"]), int(test["n"])))
    text = (
        f"Scored once, after training, on {record.get('tested_on', 'test trials')}: {test['hits']} of {test['n']} "
        f"trials are classified correctly, {show(100 * test['accuracy'])} % (95 % confidence interval {show(low)} to "
        f"{show(high)} %). The most frequent class makes up {show(100 * test['chance'])} %."
    )
    return [Section("Test", (Paragraph(text), _scores(test), *_confusion(test)))]


def _scores(test: Record) -> Table:
    lines = tuple(
        (name, *(_percent(scores.get(score)) for score in ("recall", "precision")), f"{scores.get('n', 0):g}")
        for name, scores in (test.get("per_class") or {}).items()
    )
    header = (Column("class"), Column("recall", kind="percent"), Column("precision", kind="percent"), Column("trials"))
    others = {"balanced accuracy": test.get("balanced_accuracy"), "kappa": test.get("kappa"), "AUC": test.get("auc")}
    note = "; ".join(f"{name} {value:.3f}" for name, value in others.items() if value is not None)
    return Table("Scores by class, in percent", header, lines, (f"All classes: {note}.",) if note else ())


def _percent(share: float | None) -> float | None:
    """None for the precision of a class that was never predicted, or the recall of a class without trials."""
    return None if share is None else 100 * share


def _confusion(test: Record) -> Iterator[Figure]:
    from gbwatt.plotting import confusion

    if test.get("confusion") and test.get("class_names"):
        drawn = confusion(test["confusion"], test["class_names"])
        yield figures.figure_block(drawn, "Confusion matrix of the test trials. Rows are true classes.")


# ---- training and configuration


def _training(extra: Record) -> list[Section]:
    epochs: Sequence[Record] = (extra.get("estimator") or {}).get("history") or ()
    training = extra.get("training") or {}
    if not epochs or not training.get("best_epoch"):
        return []
    curves = {name: [epoch[name] for epoch in epochs] for name in _CURVES if all(name in epoch for epoch in epochs)}
    block: Block = Paragraph("There are no training curves: the history contains NaN or infinite values.")
    if figures.is_drawable(curves):
        block = figures.training_figure(curves, int(training["best_epoch"]), "Loss and accuracy over epochs.")
    settings = {name: value for name, value in training.items() if name != "at_best_epoch"}
    return [Section("Training", (block, _pairs("Training settings", settings)))]


def _configuration(config: Record, module: nn.Module, versions: Mapping[str, str]) -> Iterator[Block]:
    yield _pairs("Arguments of the network", config["arguments"])
    steps = config["preprocessing"]
    yield Paragraph(f"Recorded preprocessing: {_text(steps) if steps else 'none'}.")
    scale = config["extra"].get("multiply epochs by")
    if scale is not None:
        yield Paragraph(f"The estimator multiplies epochs by {scale:g} before they enter the network.")
    shapes = tuple((name, " × ".join(map(str, p.shape)), p.numel()) for name, p in module.named_parameters())
    header = (Column("parameter"), Column("shape"), Column("size"))
    yield Fold("All parameters", (Table("Parameters", header, shapes),))
    yield _pairs("Versions", versions)


def _pairs(title: str, mapping: Mapping[str, Any]) -> Table:
    lines = tuple((name, _text(value)) for name, value in mapping.items())
    return Table(title, (Column("name"), Column("value")), lines)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- usage


def _commands(folder: str, estimator: Record | None, record: Record | None) -> Iterator[Block]:
    """Commands and Python code; a network without an estimator has no labels and cannot be evaluated."""
    options = ["--dataset", "DATASET"] if record is None else recording_options(record)
    commands = [] if estimator is None else [["gbwatt", verb, folder, *options] for verb in ("evaluate", "explain")]
    yield Code("\n".join(map(shlex.join, [*commands, ["gbwatt", "report", folder, "-o", "report.html"]])))
    yield Paragraph("In Python:")
    yield Code(_snippet(folder, estimator))


def recording_options(record: Record) -> list[str]:
    """Command-line options for the recordings of a training record.

    Examples
    --------
    >>> recording_options({"dataset": "mine.edf", "subject": 1, "split": 2, "reading": {"tmin": 0.5}})
    ['--dataset', 'mine.edf', '--subject', '1', '--split', '2', '--read', 'tmin=0.5']
    """
    words = ["--dataset", record["dataset"], "--subject", str(record["subject"])]
    words += ["--split", str(record["split"])] if record.get("split") else []
    for name, value in (record.get("reading") or {}).items():
        text = value if isinstance(value, str) else json.dumps(value)
        words += ["--source", text] if name == "source" else ["--read", f"{name}={text}"]
    return words


def _snippet(folder: str, estimator: Record | None) -> str:
    """Python code that loads the model."""
    path = json.dumps(folder, ensure_ascii=False)
    if estimator is None:
        return f"from gbwatt.models.serialization import load_pretrained\n\nmodel = load_pretrained({path}).model"
    name = estimator.get("class", "EEGDecoder")
    home = "gbwatt" if name in gbwatt.__all__ else "your_module"  # a subclass defined elsewhere
    return f"from {home} import {name}\n\ndecoder = {name}.from_pretrained({path})"
