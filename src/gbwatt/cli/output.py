"""Scores of a trained model on trials, as a document and as a reader sees them; shared by train and evaluate."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from gbwatt.data import Trials
    from gbwatt.decoding import EEGDecoder


def accuracy(hits: int, n: int) -> dict[str, Any]:
    """Share of trials that were right, with Wilson's interval."""
    from gbwatt.experiments.statistics import wilson

    return {"n": n, "hits": hits, "accuracy": hits / n, "accuracy_95": list(wilson(hits, n))}


def scored(decoder: EEGDecoder, trials: Trials) -> dict[str, Any]:
    """Scores of trials, with Wilson's interval of the accuracy and what guessing reaches."""
    return predicted(decoder, trials)[0]


def predicted(decoder: EEGDecoder, trials: Trials) -> tuple[dict[str, Any], NDArray[Any]]:
    """Scores of trials, and whether each of them was right (n,); the model is asked only once."""
    from gbwatt.decoding.metrics import score

    true, probabilities = decoder.labels_of(trials), decoder.predict_proba(trials)
    found = score(true, probabilities, decoder.classes_, decoder.class_names_)
    right: NDArray[Any] = decoder.classes_[probabilities.argmax(-1)] == true
    names = {"chance": chance(trials), "class_names": list(decoder.class_names_)}
    return {**found, **accuracy(int(np.trace(found["confusion"])), len(trials.y)), **names}, right


def chance(trials: Trials) -> float:
    """Accuracy of the best guess that does not look at the trials: the share of the most frequent class."""
    return float(np.bincount(trials.y).max() / len(trials.y))


def kind(dataset: str, simulated: bool) -> str:
    """What recordings are, as far as it is known."""
    if simulated:
        return "simulated recordings"
    return "recordings of a file" if Path(dataset).exists() else "real recordings"


def percent(share: float) -> str:
    """A share as it is printed."""
    return f"{100 * share:.1f} %"


def print_scores(console: Console, what: str, found: dict[str, Any]) -> None:
    """Accuracy beside chance, and which classes are taken for which."""
    low, high = found["accuracy_95"]
    console.print(
        f"{escape(what)}: accuracy [bold]{percent(found['accuracy'])}[/], {found['hits']} of {found['n']} trials; "
        f"95 % confidence interval {100 * low:.1f} to {percent(high)}; chance is {percent(found['chance'])}.",
        highlight=False,
    )
    if found["auc"] is not None and math.isfinite(found["auc"]):  # not so for trials of one class
        console.print(f"Area under the ROC curve: {found['auc']:.3f}; chance is 0.5.", highlight=False)
    console.print(confusion_table(found["confusion"], found["class_names"]))


def confusion_table(confusion: list[list[int]], names: list[str]) -> Table:
    """A row for each true class, a column for each that the model said."""
    table = Table("true class", title="Columns: what the model said", title_justify="left")
    for name in names:
        table.add_column(Text(name), justify="right")
    for place, (name, row) in enumerate(zip(names, confusion, strict=True)):
        cells = [Text(str(n), style="bold" if column == place else "") for column, n in enumerate(row)]
        table.add_row(Text(name), *cells)
    return table
