"""Callbacks of a training: logs and a progress display."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gbwatt._io import write_atomically

if TYPE_CHECKING:
    from gbwatt.decoding.training import Trainer

#: Entries of the first epoch for the scores of the initial weights, if these are candidates.
INITIAL = {"valid_loss": "initial_valid_loss", "valid_accuracy": "initial_valid_accuracy"}
COLUMNS = ("epoch", "train_loss", "valid_loss", "valid_accuracy", "lr", "duration")


class StopTraining(Exception):
    """Raised by a callback to end the training; the weights of the best epoch are kept."""


class Callback:
    """Base class of callbacks; override the methods for the events of interest.

    Every method gets the :class:`~gbwatt.decoding.training.Trainer` as ``net``, with the attributes ``module_``,
    ``optimizer_``, ``history``, ``max_epochs``, ``lr``, ``batch_size`` and ``device``.  ``net.history`` is a list with
    a dict for each epoch.  During an epoch its last row has ``epoch`` only; from ``on_epoch_end`` on it has
    ``train_loss``, ``lr`` and ``duration``, and with validation data ``valid_loss`` and ``valid_accuracy``.

    A method may raise :class:`StopTraining` to end the training.  Methods should take ``**kwargs``, since arguments may
    be added.  The names and arguments are those of skorch: callbacks of skorch that use no more than these can be used,
    too.

    Examples
    --------
    >>> import numpy as np
    >>> from gbwatt.decoding import Callback, EEGDecoder
    >>> class HalveRate(Callback):
    ...     def on_epoch_end(self, net, **kwargs):
    ...         for group in net.optimizer_.param_groups:
    ...             group["lr"] /= 2
    >>> X, y = np.random.default_rng(0).standard_normal((20, 4, 64)), np.arange(20) % 2
    >>> decoder = EEGDecoder(lr=0.08, max_epochs=3, callbacks=[HalveRate()]).fit(X, y)
    >>> [row["lr"] for row in decoder.history_]
    [0.08, 0.04, 0.02]
    """

    def initialize(self) -> Self:
        """Called once, before any event, when the trainer is made."""
        return self

    def on_train_begin(self, net: Trainer, **kwargs: Any) -> None:
        """Called before the first epoch; the history has the epochs of a checkpoint."""

    def on_train_end(self, net: Trainer, **kwargs: Any) -> None:
        """Called at the end, also after an error; the module has the weights of the best epoch."""

    def on_epoch_begin(self, net: Trainer, **kwargs: Any) -> None:
        """Called before the batches of an epoch.

        ``dataset_train`` and ``dataset_valid`` are the batches for training and validation, the latter may be None.
        """

    def on_epoch_end(self, net: Trainer, **kwargs: Any) -> None:
        """Called when the row of an epoch is complete; arguments are those of :meth:`on_epoch_begin`."""

    def on_batch_begin(self, net: Trainer, **kwargs: Any) -> None:
        """Called before a training batch, with ``training=True``."""

    def on_batch_end(self, net: Trainer, **kwargs: Any) -> None:
        """Called after a batch of training, with its optimiser step done, or of validation.

        ``training`` tells them apart; ``batch`` is the pair of inputs and class numbers, ``y_pred`` the logits and
        ``loss`` the mean loss, a tensor.  In training, ``net.step`` of ``net.n_steps`` batches are done.  If a batch
        has several shards, ``batch`` and ``y_pred`` are those of the last one.
        """

    def on_grad_computed(self, net: Trainer, **kwargs: Any) -> None:
        """Called before a step of the optimiser with ``named_parameters``, whose gradients may be changed in place."""


def columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Select the entries of an epoch in the history that are written to CSV and TensorBoard logs."""
    return {name: row[name] for name in (*COLUMNS, *INITIAL.values()) if name in row}


class CSVLog(Callback):
    """A CSV file with a row for each epoch, which is complete at any time."""

    def __init__(self, path: str | Path) -> None:
        self.path = path

    def on_train_begin(self, net: Trainer, **_: Any) -> None:
        """Write the header, and the epochs of a checkpoint."""
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        self._write_history(net)

    def on_epoch_end(self, net: Trainer, **_: Any) -> None:
        """Add the row of the epoch."""
        self._write_history(net)

    def _write_history(self, net: Trainer) -> None:
        """Replace the file by one with the header and a row for each epoch so far."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(map(columns, net.history))
        write_atomically(Path(self.path), text.getvalue().encode())


class TensorBoardLog(Callback):
    """Losses, accuracy and learning rate for TensorBoard."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = folder
        self.writer: Any = None

    def initialize(self) -> TensorBoardLog:
        """Check that TensorBoard is installed before any time is spent on training."""
        tensorboard_writer()
        return self

    def on_train_begin(self, net: Trainer, **_: Any) -> None:
        """Open the log without the epochs that an interrupted training wrote after its checkpoint."""
        self.writer = tensorboard_writer()(str(self.folder), purge_step=len(net.history) + 1)

    def on_epoch_end(self, net: Trainer, **_: Any) -> None:
        """Write the scores of the epoch."""
        for name, value in columns(net.history[-1]).items():
            if name != "epoch":
                self.writer.add_scalar(name, value, len(net.history))
        self.writer.flush()

    def on_train_end(self, net: Trainer, **_: Any) -> None:  # noqa: ARG002
        """Close the log."""
        self.writer.close()
        self.writer = None


def tensorboard_writer() -> Any:
    """Return the class ``SummaryWriter`` of torch; raise an error if TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ModuleNotFoundError(
            "tensorboard=... needs the package tensorboard: pip install tensorboard, or use log='file.csv'."
        ) from error
    return SummaryWriter


class EpochDisplay(Callback):
    """Shows epoch, loss, validation accuracy and remaining time: a progress bar on a terminal, else some lines.

    Parameters
    ----------
    console : rich.console.Console, optional
        By default standard error.
    """

    LINES = 10  # number of lines printed in a whole training, besides the first

    def __init__(self, console: Console | None = None) -> None:
        self.console = console
        self.bar: Progress | None = None

    def on_train_begin(self, net: Trainer, **_: Any) -> None:
        """Show an empty bar; for a resumed training, print the epoch after which it continues."""
        self.first = len(net.history) + 1
        if net.history:
            self._print(f"Continuing after epoch {len(net.history)}.")
        console = self._get_console()
        if console.is_terminal:
            self.bar = _start_progress_bar(console, net.max_epochs, len(net.history))

    def on_epoch_end(self, net: Trainer, **_: Any) -> None:
        """Show the number, loss and validation accuracy of the epoch."""
        done, total, row = len(net.history), net.max_epochs, net.history[-1]
        state = f"loss {row['train_loss']:.3f}"
        if "valid_accuracy" in row:
            state += f", validation accuracy {row['valid_accuracy']:.3f}"
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=done, state=state)
        elif done in (self.first, total) or done % -(-total // self.LINES) == 0:
            left = median(epoch["duration"] for epoch in net.history) * (total - done)
            self._print(f"epoch {done}/{total}: {state}, about {left:.0f} s left")

    def show_network(self, number: int, n: int, history: list[dict[str, Any]]) -> None:
        """Print that network ``number``, from 0, of ``n`` networks was trained in another process."""
        state = f", loss {history[-1]['train_loss']:.3f}" if history else ""
        if history and "valid_accuracy" in history[-1]:
            state += f", validation accuracy {history[-1]['valid_accuracy']:.3f}"
        self._print(f"network {number + 1} of {n}: {len(history)} epochs{state}")

    def on_train_end(self, net: Trainer, **_: Any) -> None:  # noqa: ARG002
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()
        self.bar = None

    def _get_console(self) -> Console:
        """The given console, by default one that writes to standard error."""
        return Console(stderr=True) if self.console is None else self.console

    def _print(self, text: str) -> None:
        """Print a line on the console."""
        self._get_console().print(text, highlight=False)


def _start_progress_bar(console: Console, total: int, done: int) -> Progress:
    """Start a progress bar of ``total`` epochs, of which ``done`` are finished."""
    entries = (TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[state]}"))
    bar = Progress(*entries, TimeRemainingColumn(), TextColumn("left"), console=console, transient=True)
    bar.add_task("", total=total, completed=done, state="")
    bar.start()
    return bar
