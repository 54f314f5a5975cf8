"""Report of a trained model: its test scores, training, explanation, configuration and usage."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import gbwatt
from gbwatt import plotting
from gbwatt.decoding.metrics import wilson_interval
from gbwatt.decoding.training_record import trained_and_tested
from gbwatt.experiments.table_formats import Column, Table, show
from gbwatt.explain.attribution import CONTRIBUTIONS
from gbwatt.explain.explanation import Explanation, curve_sentences
from gbwatt.explain.internals import embed
from gbwatt.models.serialization import training_facts
from gbwatt.plotting.network import nearly_equal
from gbwatt.report import figures
from gbwatt.report.page import Block, Code, Facts, Figure, Fold, Note, Page, Paragraph, Section

if TYPE_CHECKING:
    import matplotlib.figure
    from torch import nn

    from gbwatt.explain.inputs import Array

Record = Mapping[str, Any]  # content of a JSON file: training record, configuration, or a part of these

_CURVES = ("train_loss", "valid_loss", "valid_accuracy")  # quantities of the history that are drawn
_PART_NAMES = {"train": "training", "valid": "validation", "test": "test"}


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
        Section("Summary", tuple(_summary_blocks(config, module, record))),
        *_test_sections(record),
        *_training_sections(config["extra"]),
        Section("Configuration", tuple(_configuration_blocks(config, module, versions))),
        Section("Usage", tuple(_usage_blocks(str(folder), config["extra"].get("estimator"), record))),
    ]
    return Page(f"{config['model']}, a trained model", tuple(sections), _lead_sentence(record))


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
    notes = [Note(warning)] if warning else []
    texts = [Paragraph(text) for text in (f"Explained on {trials}.", *explanation.findings())]
    drawn = [figures.figure_block(one.figure, one.caption) for one in explanation_figures(explanation)]
    return Section("Explanation", (*notes, *texts, *drawn))


def _lead_sentence(record: Record | None) -> str:
    """Return the sentence below the title: what the model was trained on."""
    if record is None:
        return "From the files of the model, which do not record what it was trained on."
    kind = "simulated recordings" if record.get("simulated") else "recordings"
    if (parts := trained_and_tested(record)) is not None:
        tested = f"; tested on {parts[1]}" if record.get("test") else ""
        return f"Trained on {kind} of {parts[0]}, seed {record.get('seed')}{tested}."
    name = "subject" if str(record["subject"]).isdecimal() else "subjects"
    return f"Trained on {kind} of {record['dataset']}, {name} {record['subject']}, seed {record.get('seed')}."


# ---- summary and test


def _summary_blocks(config: Record, module: nn.Module, record: Record | None) -> Iterator[Block]:
    """Yield notes on simulated recordings and interrupted training, and the main facts."""
    if record and record.get("simulated"):
        yield Note("The recordings are simulated: scores say nothing about real EEG.")
    if record and record.get("status") == "interrupted":
        yield Note("Training was interrupted: these are the best weights up to then, and they were not tested.")
    yield Facts(tuple(_summary_facts(config, module, record or {})))


def _summary_facts(config: Record, module: nn.Module, record: Record) -> Iterator[tuple[str, str]]:
    """Yield names and values: network, input, classes, training, trials and test accuracy."""
    arguments, training = config["arguments"], config["extra"].get("training") or {}
    rate = f" at {arguments['sfreq']:g} Hz" if arguments.get("sfreq") else ""
    yield "Network", f"{config['model']}\n{sum(p.numel() for p in module.parameters())} parameters"
    yield "Input", f"{arguments.get('n_chans', '?')} channels × {arguments.get('n_times', '?')} samples{rate}"
    yield "Classes", ", ".join(map(str, config["class_names"])) if config["class_names"] else "not named"
    if training:
        epochs, best = training.get("epochs"), training.get("best_epoch")
        weights = f"weights of epoch {best}" if best else "initial weights"
        yield "Training", f"{epochs} epochs, {weights}" if epochs else "without training epochs"
    given = (record.get("training") or {}).get("initialization")  # other models, whose paths the model does not save
    folders = [given] if isinstance(given, str) else given or ()
    for name, value in training_facts(config):
        yield name, ", ".join(folders) if folders and name == "Initial weights" else value
    if record.get("trials"):
        yield "Trials", ", ".join(f"{n} {_PART_NAMES.get(part, part)}" for part, n in record["trials"].items())
    test = record.get("test")
    if test:
        yield "Test", f"accuracy {show(100 * test['accuracy'])} %\nchance {show(100 * test['chance'])} %"


def _test_sections(record: Record | None) -> list[Section]:
    """Return the section on the test scores of the training record, in a list; empty without test scores."""
    test = (record or {}).get("test")
    if not test or record is None:
        return []
    low, high = (100 * bound for bound in wilson_interval(int(test["hits"]), int(test["n"])))
    text = (
        f"Scored once, after training, on {record.get('tested_on', 'test trials')}: {test['hits']} of {test['n']} "
        f"trials are classified correctly, {show(100 * test['accuracy'])} % (95 % confidence interval {show(low)} to "
        f"{show(high)} %). The most frequent class makes up {show(100 * test['chance'])} %."
    )
    return [Section("Test", (Paragraph(text), _class_scores(test), *_confusion_figure(test), *_reliability(test)))]


def _class_scores(test: Record) -> Table:
    """Return the table of recall and precision of each class, with the other scores in a note."""
    lines = tuple(
        (name, *(_percent(scores.get(score)) for score in ("recall", "precision")), f"{scores.get('n', 0):g}")
        for name, scores in (test.get("per_class") or {}).items()
    )
    header = (Column("class"), Column("recall", kind="percent"), Column("precision", kind="percent"), Column("trials"))
    others = {"balanced accuracy": test.get("balanced_accuracy"), "kappa": test.get("kappa"), "AUC": test.get("auc")}
    if test.get("calibration_error") is not None:
        others |= {"log loss": test.get("loss"), "expected calibration error": test["calibration_error"]}
    note = "; ".join(f"{name} {value:.3f}" for name, value in others.items() if value is not None)
    return Table("Scores by class, in percent", header, lines, (f"All classes: {note}.",) if note else ())


def _percent(share: float | None) -> float | None:
    """Return a share in percent; None for the precision of a class that was never predicted, for instance."""
    return None if share is None else 100 * share


def _confusion_figure(test: Record) -> Iterator[Figure]:
    """Yield the confusion matrix of the test trials, if it was recorded."""
    from gbwatt.plotting import confusion

    if test.get("confusion") and test.get("class_names"):
        drawn = confusion(test["confusion"], test["class_names"])
        yield figures.figure_block(drawn, "Confusion matrix of the test trials. Rows are true classes.")


def _reliability(test: Record) -> Iterator[Figure]:
    """Yield the reliability diagram of the test trials, if its bins were recorded."""
    caption = (
        "Accuracy of the test trials by the confidence of their predictions, with 95 % confidence intervals, and the "
        "number of trials in each of the ten bins. Points below the dotted line: the model is too confident."
    )
    figure = figures.reliability_figure(test, caption)
    if figure is not None:
        yield figure


# ---- training and configuration


def _training_sections(extra: Record) -> list[Section]:
    """Return the section on the training curves and settings, in a list; empty if there is no history.

    ``extra`` is the part of the model's configuration that the estimator saved.
    """
    epochs: Sequence[Record] = (extra.get("estimator") or {}).get("history") or ()
    training = extra.get("training") or {}
    if not epochs or not training.get("best_epoch"):
        return []
    curves = {name: [epoch[name] for epoch in epochs] for name in _CURVES if all(name in epoch for epoch in epochs)}
    block: Block = Paragraph("There are no training curves: the history contains NaN or infinite values.")
    if figures.is_drawable(curves):
        block = figures.training_figure(curves, int(training["best_epoch"]), "Loss and accuracy over epochs.")
    settings = {name: value for name, value in training.items() if name != "at_best_epoch"}
    return [Section("Training", (block, _pair_table("Training settings", settings)))]


def _configuration_blocks(config: Record, module: nn.Module, versions: Mapping[str, str]) -> Iterator[Block]:
    """Yield the arguments of the network, preprocessing, parameters, and versions of packages."""
    yield _pair_table("Arguments of the network", config["arguments"])
    steps = config["preprocessing"]
    yield Paragraph(f"Recorded preprocessing: {_value_text(steps) if steps else 'none'}.")
    scale = config["extra"].get("multiply epochs by")
    if scale is not None:
        yield Paragraph(f"The estimator multiplies epochs by {scale:g} before they enter the network.")
    shapes = tuple((name, " × ".join(map(str, p.shape)), p.numel()) for name, p in module.named_parameters())
    header = (Column("parameter"), Column("shape"), Column("size"))
    yield Fold("All parameters", (Table("Parameters", header, shapes),))
    yield _pair_table("Versions", versions)


def _pair_table(title: str, mapping: Mapping[str, Any]) -> Table:
    """Return a table of the names and values of a mapping."""
    lines = tuple((name, _value_text(value)) for name, value in mapping.items())
    return Table(title, (Column("name"), Column("value")), lines)


def _value_text(value: Any) -> str:
    """Return a text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- usage


def _usage_blocks(folder: str, estimator: Record | None, record: Record | None) -> Iterator[Block]:
    """Yield commands and Python code that use the model in ``folder``.

    A network without an estimator has no labels; commands that evaluate and explain it are left out.  Without options,
    these use the test trials of the training record.
    """
    known = record is not None and record.get("split", 0) is not None
    options = [] if known else ["--dataset", "DATASET"]
    commands = [] if estimator is None else [["gbwatt", verb, folder, *options] for verb in ("evaluate", "explain")]
    yield Code("\n".join(map(shlex.join, [*commands, ["gbwatt", "report", folder, "-o", "report.html"]])))
    yield Paragraph("In Python:")
    yield Code(_loading_code(folder, estimator))


def _loading_code(folder: str, estimator: Record | None) -> str:
    """Return Python code that loads the model, as an estimator if it was saved as one."""
    path = json.dumps(folder, ensure_ascii=False)
    if estimator is None:
        return f"from gbwatt.models.serialization import load_pretrained\n\nmodel = load_pretrained({path}).model"
    name = estimator.get("class", "EEGDecoder")
    home = "gbwatt" if name in gbwatt.__all__ else "your_module"  # a subclass defined elsewhere
    return f"from {home} import {name}\n\ndecoder = {name}.from_pretrained({path})"


# -------------------------------------------------------------------------------------------- figures of an explanation

_SCALE_FREE = 0.05  # relative change of the logits below which they hardly depend on the scale of an epoch


class NamedFigure(NamedTuple):
    """A figure, its file name without suffix, and its caption."""

    name: str
    figure: matplotlib.figure.Figure
    caption: str


def explanation_figures(explanation: Explanation) -> Iterator[NamedFigure]:
    """All figures of an explanation.

    Parameters
    ----------
    explanation : Explanation
        Explanation of a decoder.

    Yields
    ------
    NamedFigure
        Figures of the attribution, the filters, the attention, the metric, and deletion and insertion.  Figures of
        modules that the decoder does not have are left out.
    """
    yield from _attribution_figures(explanation)
    yield from _filter_figures(explanation)
    yield from _internals_figures(explanation)
    yield from _metric_figures(explanation)
    yield from _faithfulness_figures(explanation)


def _attribution_figures(explanation: Explanation) -> Iterator[NamedFigure]:
    """Yield a heatmap of the attribution over channels and time, and a scalp map or, without positions, bars."""
    attribution, label = explanation.attribution, _attribution_label(explanation)
    names, ch_names, values = attribution.class_names, attribution.ch_names, attribution.channels()
    counts = zip(names, np.bincount(attribution.labels), strict=True)
    trials = ", ".join(f"{n} trials of {name}" for name, n in counts)
    method = attribution.method.replace("-", " ")
    mean = f"Mean magnitude over trials of the {method} of the logit of the true class"
    heatmaps = plotting.heatmaps(attribution.by_class(), names, ch_names, attribution.times, label)
    yield NamedFigure(
        "heatmaps", heatmaps, f"{mean}, for each channel and time. Panels: {trials}.{_remark_on_scale(explanation)}"
    )
    over_time = f"{mean}, averaged over time."
    if explanation.why_no_scalp is None:
        topomaps = plotting.topomaps(values, names, explanation.electrodes, label)
        yield NamedFigure("topomaps", topomaps, f"{over_time} Values are interpolated between electrodes.")
    else:
        bars = plotting.channel_bars(values, names, ch_names, label)
        yield NamedFigure("channels", bars, f"{over_time} There is no scalp map: {explanation.why_no_scalp}.")


def _attribution_label(explanation: Explanation) -> str:
    """Return the quantity and unit of the attribution, for colour bars and axes."""
    if explanation.method in CONTRIBUTIONS:
        return "|contribution to the logit|"
    return f"|∂ logit / ∂ x| (1/{explanation.trials.unit})"


def _remark_on_scale(explanation: Explanation) -> str:
    """Return a sentence for the caption if the logits hardly depend on the scale of an epoch; else an empty text.

    It concerns only methods that multiply the gradient by the epoch.
    """
    if explanation.method not in CONTRIBUTIONS or explanation.scale_change > _SCALE_FREE:
        return ""
    return (
        f" The logits of this network hardly depend on the scale of an epoch: at a tenth of the amplitude they change "
        f"by {100 * explanation.scale_change:.1f} % of their standard deviation. Integrated gradients are therefore "
        "nearly proportional to gradient times input."
    )


def _filter_figures(explanation: Explanation) -> Iterator[NamedFigure]:
    """Yield the patterns and spectra of the strongest features; nothing without filters or electrode positions."""
    if explanation.filters is None or explanation.why_no_scalp is not None:
        return
    features, spectra = explanation.filters
    drawn = plotting.patterns(features.patterns, spectra.amplitudes, spectra.frequencies, explanation.electrodes)
    caption = (
        "Patterns of the strongest learnt features, ranked by the norm of the pattern times that of the spectrum. A "
        "pattern is the topography of the signal that a feature extracts from these trials (Haufe et al. 2014), not "
        "its weights. Below: amplitude spectrum of its temporal filters."
    )
    yield NamedFigure("patterns", drawn, caption)


def _internals_figures(explanation: Explanation) -> Iterator[NamedFigure]:
    """Yield figures of attention weights, condition numbers, eigenvalues, and the input of the last layer."""
    internals = explanation.internals
    if internals is None:
        return
    weights = internals.attention_by_class()[np.unique(internals.labels)]
    drawn = plotting.attention_maps(weights, explanation.attribution.class_names)
    yield NamedFigure("attention", drawn, _attention_caption(weights))
    drawn = plotting.condition_histograms(*(numbers.ravel() for numbers in internals.condition_numbers()))
    yield NamedFigure(
        "conditions", drawn, "Condition numbers of the matrices of all trials, before and after attention."
    )
    drawn = plotting.spectra(*(values.reshape(-1, values.shape[-1]) for values in (internals.before, internals.after)))
    caption = (
        "Eigenvalues of the same matrices, largest first: median (line), middle half of the matrices (dark band) and 5 "
        "to 95 % of them (light band)."
    )
    yield NamedFigure("spectra", drawn, caption)
    if explanation.why_no_plane is None:
        drawn = plotting.embedding(embed(internals.features), internals.labels.tolist(), internals.class_names, "PCA")
        caption = "Input of the last layer, projected on its first two principal components."
        yield NamedFigure("features", drawn, caption)


def _attention_caption(weights: Array) -> str:
    """Return the caption of the attention maps (n_classes, m, m), depending on whether weights are nearly uniform."""
    m, means = weights.shape[-1], "mean over the trials of each class; rows are queries, columns keys."
    if nearly_equal(weights):
        return (
            f"All attention weights are within a percentage point of the uniform weight 1/{m}. Shown is the deviation "
            f"from 1/{m} in percent of it, {means}"
        )
    return f"Attention weights, and below their deviation from the uniform weight 1/{m}, {means}"


def _metric_figures(explanation: Explanation) -> Iterator[NamedFigure]:
    """Yield the eigenvalues of the matrix M of the metric; nothing if the model has no such metric."""
    metric = explanation.metric
    if metric is None:
        return
    caption = (
        f"Eigenvalues of the learnt matrix M, initially the identity; θ = {metric.theta:g}. The affine-invariant "
        f"distance of M from the identity is {metric.distance:.2g}, the relative Frobenius distance "
        f"{metric.relative:.2g}."
    )
    yield NamedFigure("metric", plotting.metric_spectrum(metric.eigenvalues), caption)


def _faithfulness_figures(explanation: Explanation) -> Iterator[NamedFigure]:
    """Yield the deletion and insertion curves; nothing if they were not computed."""
    if explanation.curves is None:
        return
    deletion, insertion = explanation.curves
    lines = {
        explanation.method.replace("-", " "): (deletion.probability.mean(0), insertion.probability.mean(0)),
        "random order": (deletion.random.mean(0), insertion.random.mean(0)),
    }
    caption = (
        f"Probability of the true class, mean over {len(deletion.probability)} trials. A cell is a channel in an "
        "eighth of the epoch. Deletion replaces cells by those of another trial, drawn at random, which may be of the "
        f"same class; insertion restores them. {' '.join(curve_sentences(explanation.numbers))}"
    )
    yield NamedFigure("faithfulness", plotting.deletion_insertion(deletion.fraction, lines), caption)
