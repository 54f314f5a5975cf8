"""The report of a trained model: what its folder has."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gbwatt
from gbwatt.experiments.statistics import wilson
from gbwatt.experiments.table_formats import Column, Table, show
from gbwatt.report import pictures
from gbwatt.report.commands import recording_options
from gbwatt.report.page import Block, Code, Facts, Figure, Fold, Note, Page, Paragraph, Section

if TYPE_CHECKING:
    from gbwatt.models.serialization import Pretrained

Record = Mapping[str, Any]

_CURVES = ("train_loss", "valid_loss", "valid_accuracy")
_PARTS = {"train": "training", "valid": "validation", "test": "test"}


def report_of_model(folder: str | Path, record: Record | None = None) -> Page:
    """The page of a model: what it is, how it was trained, its configuration, and how it is used.

    Parameters
    ----------
    folder : path
        Of a model that :meth:`~gbwatt.decoding.EEGDecoder.save_pretrained` or
        :func:`~gbwatt.models.serialization.save_pretrained` wrote.
    record : dict, optional
        What `gbwatt train` wrote beside it: which recordings, and the scores of the test.

    Notes
    -----
    Explanations need recordings, too: add their sections by :meth:`Page.with_sections`.
    """
    from gbwatt.models.serialization import CONFIG, load_pretrained, read_config

    folder = Path(folder)
    found = load_pretrained(folder)
    versions = (record or {}).get("versions") or read_config(folder / CONFIG).get("versions") or {}
    sections = [
        Section("Summary", tuple(_summary(found, record))),
        *_test(record),
        *_training(found),
        Section("Configuration", tuple(_configuration(found, versions))),
        Section("Use it", tuple(_commands(str(folder), found.extra.get("estimator"), record))),
    ]
    return Page(f"{found.name}, a trained model", tuple(sections), _lead(record))


def _lead(record: Record | None) -> str:
    if record is None:
        return "What its folder tells; it does not say which recordings it was trained on."
    kind = "simulated recordings" if record.get("simulated") else "recordings"
    return f"Trained on {kind} of {record['dataset']}, subject {record['subject']}, seed {record.get('seed')}."


# -------------------------------------------------------------------------------------------------------------- summary


def _summary(found: Pretrained, record: Record | None) -> Iterator[Block]:
    if record and record.get("simulated"):
        yield Note("The recordings are simulated: scores say nothing about brains.")
    if record and record.get("status") == "interrupted":
        yield Note("The training was interrupted: these are the best weights until then, and they were not tested.")
    yield Facts(tuple(_facts(found, record or {})))


def _facts(found: Pretrained, record: Record) -> Iterator[tuple[str, str]]:
    given = found.arguments
    rate = f" at {given['sfreq']:g} Hz" if given.get("sfreq") else ""
    yield "Network", f"{found.name}\n{sum(p.numel() for p in found.model.parameters())} parameters"
    yield "Input", f"{given.get('n_chans', '?')} channels × {given.get('n_times', '?')} samples{rate}"
    yield "Classes", ", ".join(map(str, found.class_names)) if found.class_names else "not named"
    trained = found.extra.get("training") or {}
    if trained:
        yield "Training", f"{trained.get('epochs')} epochs, weights of epoch {trained.get('best_epoch')}"
    if record.get("trials"):
        yield "Trials", ", ".join(f"{n} {_PARTS.get(part, part)}" for part, n in record["trials"].items())
    test = record.get("test")
    if test:
        yield "Test", f"accuracy {show(100 * test['accuracy'])} %\nchance {show(100 * test['chance'])} %"


def _test(record: Record | None) -> list[Section]:
    """Scores of the test trials, as they were when the model was trained."""
    test = (record or {}).get("test")
    if not test or record is None:
        return []
    low, high = (100 * bound for bound in wilson(int(test["hits"]), int(test["n"])))
    text = (
        f"Scored once, after training, on {record.get('tested_on', 'test trials')}: {test['hits']} of {test['n']} "
        f"trials are right, {show(100 * test['accuracy'])} %; 95 % confidence interval {show(low)} to {show(high)} %; "
        f"the most frequent class alone would reach {show(100 * test['chance'])} %."
    )
    return [Section("Test", (Paragraph(text), _scores(test), *_confusion(test)))]


def _scores(test: Record) -> Table:
    lines = tuple(
        (name, *(_percent(one.get(score)) for score in ("recall", "precision")), f"{one.get('n', 0):g}")
        for name, one in (test.get("per_class") or {}).items()
    )
    header = (Column("class"), Column("recall", kind="percent"), Column("precision", kind="percent"), Column("trials"))
    others = {"balanced accuracy": test.get("balanced_accuracy"), "kappa": test.get("kappa"), "AUC": test.get("auc")}
    note = "; ".join(f"{name} {value:.3f}" for name, value in others.items() if value is not None)
    return Table("Classes, in percent", header, lines, (f"All classes: {note}.",) if note else ())


def _percent(share: float | None) -> float | None:
    """None for the precision of a class that was never predicted, or the recall of one without trials."""
    return None if share is None else 100 * share


def _confusion(test: Record) -> Iterator[Figure]:
    from gbwatt.plotting import confusion

    if test.get("confusion") and test.get("class_names"):
        drawn = confusion(test["confusion"], test["class_names"])
        yield pictures.figure(drawn, "What test trials were taken for. Rows are true classes.")


# ------------------------------------------------------------------------------------------------------------- training


def _training(found: Pretrained) -> list[Section]:
    epochs: Sequence[Record] = (found.extra.get("estimator") or {}).get("history") or ()
    best = (found.extra.get("training") or {}).get("best_epoch")
    if not epochs or not best:
        return []
    curves = {name: [epoch[name] for epoch in epochs] for name in _CURVES if all(name in epoch for epoch in epochs)}
    blocks: list[Block] = []
    if pictures.drawable(curves):
        blocks.append(pictures.training(curves, int(best), "Loss and accuracy over epochs."))
    else:
        blocks.append(Paragraph("The history has values that are no numbers: the training diverged at some point."))
    settings = {name: value for name, value in found.extra["training"].items() if name != "at_best_epoch"}
    return [Section("Training", (*blocks, _pairs("Settings of the training", settings)))]


# -------------------------------------------------------------------------------------------------------- configuration


def _configuration(found: Pretrained, versions: Mapping[str, str]) -> Iterator[Block]:
    yield _pairs("Arguments of the network", found.arguments)
    yield Paragraph(f"Preprocessing as recorded: {_text(found.preprocessing) if found.preprocessing else 'none'}.")
    scale = found.extra.get("multiply epochs by")
    if scale is not None:
        yield Paragraph(f"Epochs are multiplied by {scale:g} before they reach the network; the estimator does so.")
    shapes = tuple((name, " × ".join(map(str, p.shape)), p.numel()) for name, p in found.model.named_parameters())
    header = (Column("parameter"), Column("shape"), Column("numbers"))
    yield Fold("All parameters", (Table("Parameters", header, shapes),))
    yield _pairs("Versions", versions)


def _pairs(title: str, mapping: Mapping[str, Any]) -> Table:
    lines = tuple((name, _text(value)) for name, value in mapping.items())
    return Table(title, (Column("name"), Column("value")), lines)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------------------------------------------------------- use


def _commands(folder: str, estimator: Record | None, record: Record | None) -> Iterator[Block]:
    """How the model is opened again; a network without an estimator knows no labels, and cannot be scored."""
    given = ["--dataset", "DATASET"] if record is None else recording_options(record)
    commands = [] if estimator is None else [["gbwatt", verb, folder, *given] for verb in ("evaluate", "explain")]
    yield Code("\n".join(map(shlex.join, [*commands, ["gbwatt", "report", folder, "-o", "report.html"]])))
    yield Paragraph("In Python:")
    yield Code(_snippet(folder, estimator))


def _snippet(folder: str, estimator: Record | None) -> str:
    """Python that loads what the folder holds, by the class that it was saved as."""
    path = json.dumps(folder, ensure_ascii=False)
    if estimator is None:
        return f"from gbwatt.models.serialization import load_pretrained\n\nmodel = load_pretrained({path}).model"
    name = estimator.get("class", "EEGDecoder")
    home = "gbwatt" if name in gbwatt.__all__ else "your_module"  # a subclass of somebody's own
    return f"from {home} import {name}\n\ndecoder = {name}.from_pretrained({path})"
