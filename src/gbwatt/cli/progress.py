"""A training as one sees it: a live bar on a terminal, a line now and then elsewhere.

Imports torch, so that commands import it when they train.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from skorch.callbacks import Callback

from gbwatt.decoding.callbacks import Row
from gbwatt.decoding.training import Net

LINES = 10  # of a whole training after the first, where there is no terminal


class EpochDisplay(Callback):  # type: ignore[misc]
    """Epoch, loss, validation accuracy and time left."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def on_train_begin(self, net: Net, **_: Any) -> None:
        """Show an empty bar, or say where a checkpoint left off."""
        self.bar_: Progress | None = None
        self.first_ = len(net.history) + 1
        if net.history:
            self.console.print(f"Continuing after epoch {len(net.history)}.", highlight=False)
        if self.console.is_terminal:
            self.bar_, self.task_ = _bar(self.console, net.max_epochs, len(net.history))

    def on_epoch_end(self, net: Net, **_: Any) -> None:
        """Show the epoch."""
        done, total, row = len(net.history), net.max_epochs, net.history[-1]
        if self.bar_ is not None:
            self.bar_.update(self.task_, completed=done, state=_state(row))
        elif done in (self.first_, total) or done % -(-total // LINES) == 0:
            left = median(epoch["dur"] for epoch in net.history) * (total - done)
            self.console.print(f"epoch {done}/{total}: {_state(row)}, about {left:.0f} s left", highlight=False)

    def on_train_end(self, net: Net, **_: Any) -> None:  # noqa: ARG002
        """Take the bar away."""
        if self.bar_ is not None:
            self.bar_.stop()
        self.bar_ = None


def _bar(console: Console, total: int, done: int) -> tuple[Progress, TaskID]:
    columns = (TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[state]}"))
    bar = Progress(*columns, TimeRemainingColumn(), TextColumn("left"), console=console, transient=True)
    task = bar.add_task("", total=total, completed=done, state="")
    bar.start()
    return bar, task


def _state(row: Row) -> str:
    text = f"loss {row['train_loss']:.3f}"
    return text + (f", validation accuracy {row['valid_accuracy']:.3f}" if "valid_accuracy" in row else "")
