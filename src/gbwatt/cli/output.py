"""Scores as the commands print them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text


def kind_of_recordings(dataset: str, simulated: bool) -> str:
    """Where recordings come from, in words."""
    if simulated:
        return "simulated recordings"
    return "recordings of a file" if Path(dataset).exists() else "real recordings"


def percent(share: float) -> str:
    """Format a share as a percentage."""
    return f"{100 * share:.1f} %"


def print_scores(console: Console, title: str, scores: Mapping[str, Any]) -> None:
    """Print accuracy with confidence interval and chance level, and the confusion matrix."""
    low, high = scores["accuracy_95"]
    console.print(
        f"{escape(title)}: accuracy [bold]{percent(scores['accuracy'])}[/], {scores['hits']} of {scores['n']} trials; "
        f"95 % confidence interval {100 * low:.1f} to {percent(high)}; chance is {percent(scores['chance'])}.",
        highlight=False,
    )
    if scores["auc"] is not None and math.isfinite(scores["auc"]):  # undefined for trials of one class
        console.print(f"Area under the ROC curve: {scores['auc']:.3f}; chance is 0.5.", highlight=False)
    console.print(confusion_table(scores["confusion"], scores["class_names"]))


def confusion_table(confusion: Sequence[Sequence[int]], names: Sequence[str]) -> Table:
    """Confusion matrix with a row for each true class and a column for each predicted class."""
    table = Table("true class", title="Columns: predicted class", title_justify="left")
    for name in names:
        table.add_column(Text(name), justify="right")
    for row, (name, counts) in enumerate(zip(names, confusion, strict=True)):
        cells = [Text(str(n), style="bold" if column == row else "") for column, n in enumerate(counts)]
        table.add_row(Text(name), *cells)
    return table
