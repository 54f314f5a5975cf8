"""``gbwatt predict``: classify unlabelled epochs and continuous recordings with a saved model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gbwatt._io import write_atomically
from gbwatt.cli.options import ModelFolder, Threads, require_free, use_threads
from gbwatt.errors import ParameterError

if TYPE_CHECKING:
    from gbwatt.decoding import Predictions

#: Value of ``--output`` for the standard output.
STDOUT = Path("-")


def predict(
    folder: ModelFolder,
    files: Annotated[
        list[Path],
        typer.Argument(help="Recordings or epochs in a format that MNE reads, or .npz files; labels are not needed."),
    ],
    hop: Annotated[
        float | None,
        typer.Option(help="Classify sliding windows of continuous recordings, which begin every HOP seconds."),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(
            help="Classify the windows around the annotations of this name, or of this class in training; repeatable. "
            "Default: the annotations used in training, or all if the recording has none of them."
        ),
    ] = None,
    tmin: Annotated[
        float | None,
        typer.Option(help="Start of the window in seconds after the event; default: as in training."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Known subject or session of the recordings, for models with alignment or domain normalisation; "
            "default: a new one, to whose windows the model is adapted."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File that ends in .csv or .json; - for standard output.")
    ] = STDOUT,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    threads: Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of CSV.")] = False,
) -> None:
    """Classify unlabelled epochs, or windows of continuous recordings, with a saved model.

    Recordings are prepared by the steps that the model was trained with. The result has a row for each window: file,
    time in seconds, event, overlapping BAD annotation, predicted class, and the probability of each class.
    """
    if output != STDOUT:
        _require_table_name(output, as_json)
        require_free(output, kind="table", force=force)
    from gbwatt.decoding import predict_recordings

    use_threads(threads)
    predictions = predict_recordings(folder, files, hop=hop, events=event, tmin=tmin, group=group)
    text = _document(predictions) if as_json or output.suffix.lower() == ".json" else predictions.to_csv()
    if output == STDOUT:
        typer.echo(text, nl=False)
    else:
        write_atomically(output, text.encode())
        Console(stderr=True, soft_wrap=True).print(_summary(predictions, output), highlight=False, markup=False)


def _require_table_name(output: Path, as_json: bool) -> None:
    """Raise an error for a file that is neither .csv nor .json, or that contradicts ``--json``."""
    allowed = (".json",) if as_json else (".csv", ".json")
    if output.suffix.lower() not in allowed:
        because = " for --json" if as_json else ""
        raise ParameterError(f"output={str(output)!r} must end in {' or '.join(allowed)}{because}.")


def _document(predictions: Predictions) -> str:
    """Return predictions as the text of a JSON document."""
    return json.dumps(predictions.to_dict(), ensure_ascii=False, indent=1) + "\n"


def _summary(predictions: Predictions, output: Path) -> str:
    """Return a line on what was written, for the terminal."""
    bad = int((predictions.bad != "").sum())
    marked = f", of which {bad} overlap a BAD annotation," if bad else ""
    return f"{len(predictions)} windows{marked} written to {output}"
