"""What happens at the end of an epoch: scores, selection, logs, a progress bar, early stopping."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skorch.callbacks import Callback
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm  # type: ignore[import-untyped]

from gbwatt._io import write_atomically
from gbwatt.decoding.training import Net, StopTraining

Row = Mapping[str, Any]
COLUMNS = ("epoch", "train_loss", "valid_loss", "valid_accuracy", "lr", "duration")


def best_epoch(history: Sequence[Row]) -> int:
    """Number of the epoch with the lowest validation loss, the first of equals; without validation the last.

    Examples
    --------
    >>> (
    ...     best_epoch([{"valid_loss": 0.9}, {"valid_loss": 0.7}, {"valid_loss": 0.7}]),
    ...     best_epoch([{}, {}]),
    ...     best_epoch([]),
    ... )
    (2, 2, 0)
    """
    losses = [row["valid_loss"] for row in history if "valid_loss" in row]
    return losses.index(min(losses)) + 1 if losses else len(history)


class Scores(Callback):  # type: ignore[misc]
    """Losses and validation accuracy of each epoch, over whole sets: they do not depend on the batches of validation.

    The history keeps these and not the batches.
    """

    def on_epoch_begin(self, net: Net, **_: Any) -> None:
        """Begin new sums."""
        self.train_ = [0.0, 0.0]  # loss, trials
        self.valid_ = [0.0, 0.0, 0.0, 0.0]  # loss, weight, hits, trials
        self.lr_ = net.optimizer_.param_groups[0]["lr"]

    def on_batch_end(self, net: Net, batch: Any, training: bool, loss: Tensor, y_pred: Tensor, **_: Any) -> None:
        """Add a batch."""
        if training:
            self._add(self.train_, float(loss.detach()) * len(batch[1]), len(batch[1]))
            return
        y = batch[1].to(y_pred.device)
        weight = net.criterion_.weight
        total = F.cross_entropy(y_pred.double(), y, None if weight is None else weight.double(), reduction="sum")
        weights = len(y) if weight is None else float(weight[y].double().sum())
        self._add(self.valid_, float(total), weights, int((y_pred.argmax(-1) == y).sum()), len(y))

    @staticmethod
    def _add(sums: list[float], *values: float) -> None:
        sums[:] = [a + b for a, b in zip(sums, values, strict=True)]

    def on_epoch_end(self, net: Net, dataset_valid: Any = None, **_: Any) -> None:
        """Write the row."""
        net.history.record("train_loss", self.train_[0] / self.train_[1])
        if dataset_valid is not None:
            net.history.record("valid_loss", self.valid_[0] / self.valid_[1])
            net.history.record("valid_accuracy", self.valid_[2] / self.valid_[3])
        net.history.record("lr", self.lr_)
        net.history.record("batches", [])


class KeepBest(Callback):  # type: ignore[misc]
    """Keeps the weights of the best epoch in memory and puts them back when training ends."""

    def __init__(self) -> None:
        self.weights_: dict[str, Tensor] = {}

    def on_train_begin(self, net: Net, **_: Any) -> None:
        """Have something to return to, unless a checkpoint has brought it."""
        if not self.weights_:
            self.take(net)

    def take(self, net: Net) -> None:
        """Copy the present weights."""
        self.weights_ = {name: x.detach().clone() for name, x in net.module_.state_dict().items()}

    def on_epoch_end(self, net: Net, **_: Any) -> None:
        """Copy them if this epoch is the best."""
        if best_epoch(net.history) == len(net.history):
            self.take(net)

    def on_train_end(self, net: Net, **_: Any) -> None:
        """Put the best ones back."""
        net.module_.load_state_dict(self.weights_)
        net.module_.eval()
        self.weights_ = {}


class EarlyStopping(Callback):  # type: ignore[misc]
    """Stops when ``patience`` epochs in a row have not lowered the validation loss.

    It looks at nothing but the history, so that a continued training stops where the whole one would.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def on_epoch_begin(self, net: Net, **_: Any) -> None:
        """Stop if the epochs before were enough."""
        done = net.history[:-1]
        if len(done) - best_epoch(done) >= self.patience:
            raise StopTraining


def values(row: Row) -> dict[str, Any]:
    """A row of the history in the columns of a log."""
    named = {**row, "duration": row["dur"]}
    return {column: named[column] for column in COLUMNS if column in named}


class CSVLog(Callback):  # type: ignore[misc]
    """A table with one row for each epoch, written when the epoch ends."""

    def __init__(self, path: str | Path) -> None:
        self.path = path

    def on_train_begin(self, net: Net, **_: Any) -> None:
        """Begin the table with the epochs that a checkpoint brought."""
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(self.path), (",".join(COLUMNS) + "\n" + self._rows(net.history)).encode())

    def on_epoch_end(self, net: Net, **_: Any) -> None:
        """Append a row."""
        with Path(self.path).open("a", encoding="utf-8", newline="") as file:
            file.write(self._rows(net.history[-1:]))

    @staticmethod
    def _rows(rows: Sequence[Row]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, COLUMNS, lineterminator="\n").writerows(map(values, rows))
        return text.getvalue()


class TensorBoardLog(Callback):  # type: ignore[misc]
    """Losses, accuracy and learning rate for TensorBoard."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = folder

    def initialize(self) -> TensorBoardLog:
        """Find the package before any time is spent on training."""
        self.writer_: Any = None
        tensorboard_writer()
        return self

    def on_train_begin(self, net: Net, **_: Any) -> None:
        """Open, and drop what an interrupted training wrote after its checkpoint."""
        self.writer_ = tensorboard_writer()(str(self.folder), purge_step=len(net.history) + 1)

    def on_epoch_end(self, net: Net, **_: Any) -> None:
        """Write the row."""
        for name, value in values(net.history[-1]).items():
            if name != "epoch":
                self.writer_.add_scalar(name, value, len(net.history))
        self.writer_.flush()

    def on_train_end(self, net: Net, **_: Any) -> None:  # noqa: ARG002
        """Close."""
        if self.writer_ is not None:
            self.writer_.close()
        self.writer_ = None


def tensorboard_writer() -> Any:
    """The class that writes for TensorBoard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ModuleNotFoundError(
            "tensorboard=... needs the package tensorboard: pip install tensorboard, or use log='file.csv'."
        ) from error
    return SummaryWriter


class Progress(Callback):  # type: ignore[misc]
    """A progress bar over the epochs."""

    def on_train_begin(self, net: Net, **_: Any) -> None:
        """Show it."""
        self.bar_ = tqdm(total=net.max_epochs, initial=len(net.history), unit="epoch")

    def on_epoch_end(self, net: Net, **_: Any) -> None:
        """Move it."""
        row = values(net.history[-1])
        self.bar_.set_postfix({name: f"{row[name]:.3g}" for name in COLUMNS[1:4] if name in row}, refresh=False)
        self.bar_.update()

    def on_train_end(self, net: Net, **_: Any) -> None:  # noqa: ARG002
        """Leave it as it is."""
        self.bar_.close()
        self.bar_ = None
