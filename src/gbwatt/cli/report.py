"""``gbwatt report``: one page, complete in itself, of results or of a trained model."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

import gbwatt
from gbwatt.cli.options import (
    Reading,
    Root,
    SourceName,
    TestedSplit,
    TestedSubject,
    Threads,
    experiment_files,
    reading,
    require_writable,
    use_threads,
)
from gbwatt.errors import ParameterError

if TYPE_CHECKING:
    from gbwatt.decoding.evaluation import Asked
    from gbwatt.experiments.config import Experiment
    from gbwatt.experiments.runs import Row
    from gbwatt.report import Page

_HTML = b"<!doctype html>"  # how reports begin


def report(
    source: Annotated[
        Path, typer.Argument(help="A store, a CSV file of results or a folder of them, or the folder of a model.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path("report.html"),
    experiments: Annotated[
        Path | None,
        typer.Option(help="Folder of experiments whose tables are shown; default: ./experiments and gbwatt's own."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Recordings on which a model is explained. Without it and the options below, only the saved metadata "
            "are reported; with one of these, the recordings of training are used."
        ),
    ] = None,
    subject: TestedSubject = None,
    split: TestedSplit = None,
    root: Root = None,
    form: SourceName = None,
    read: Reading = None,
    threads: Threads = None,
) -> None:
    """Write a report that can be sent: one HTML file, which loads nothing and works offline."""
    require_free(output, force)
    recordings = {"dataset": dataset, "subject": subject, "split": split, "root": root, "source": form, "read": read}
    given = {name: value for name, value in recordings.items() if value not in (None, [])}
    if source.exists():
        _require_model(source, given)
    use_threads(threads)
    page = _page(source, experiments)
    if given:
        from gbwatt.decoding.evaluation import Asked

        page = _explained(page, source, Asked(dataset, subject, split, reading(form, read)), root)
    now = datetime.now(UTC).isoformat(sep=" ", timespec="minutes").removesuffix("+00:00")
    size = _write(replace(page, created=f"Made by gbwatt {gbwatt.__version__} on {now} UTC."), output)
    typer.echo(f"{output} ({size / 1e6:.1f} MB)")


def _require_model(source: Path, recordings: dict[str, Any]) -> None:
    """Refuse options for recordings, which have no effect on the report of results."""
    if recordings and not _is_model(source):
        name, value = next(iter(recordings.items()))
        raise ParameterError(f"--{name} {value} is for a model, but {source} has results; leave it out.")


def _is_model(source: Path) -> bool:
    return source.is_dir() and not _tables(source)


def require_free(output: Path, force: bool) -> None:
    """Refuse to write where there is something else, or no folder; before any work is done."""
    if output.is_dir():
        raise ParameterError(f"output={str(output)!r} is a folder; a file is needed: {output / 'report.html'}.")
    if not output.parent.is_dir():
        raise ParameterError(f"output={str(output)!r}: there is no folder {str(output.parent)!r}; make it first.")
    if output.exists() and not force:
        raise ParameterError(
            f"output={str(output)!r} is there already; choose another with -o, or replace it with --force."
        )
    require_writable(output.parent)
    if output.exists() and not _is_page(output):
        raise ParameterError(
            f"output={str(output)!r} is something else than a report, and --force replaces reports only; choose "
            "another with -o."
        )


def _is_page(file: Path) -> bool:
    with file.open("rb") as content:
        return content.read(len(_HTML)).lower() in (_HTML, b"")


def _write(page: Page, output: Path) -> int:
    from gbwatt._io import write_atomically
    from gbwatt.report import render

    content = render(page).encode()
    write_atomically(output, content)
    return len(content)


# --------------------------------------------------------------------------------------------------------------- source


def _page(source: Path, folder: Path | None) -> Page:
    """The page of whatever is there."""
    if not source.exists():
        raise ParameterError(
            f"source={str(source)!r} does not exist; a store, a CSV file of results or the folder of a model is needed."
        )
    if _is_model(source):
        _require_config(source)
        if folder is not None:
            raise ParameterError(f"--experiments {folder} is for results, but {source} is a model; leave it out.")
        return _of_model(source)
    from gbwatt.report import report_of_rows

    rows = _rows(source)
    if not rows:
        raise ParameterError(f"source={str(source)!r} has no row: there is nothing to report yet.")
    given = None if folder is None else str(folder)
    return report_of_rows(rows, _experiments(folder), source=str(source), folder=given)


def _explained(page: Page, folder: Path, asked: Asked, root: Path | None) -> Page:
    """The page of a model with what it looks at in test trials, before its configuration."""
    from gbwatt.decoding.evaluation import open_tested
    from gbwatt.report import Note, Paragraph, Section
    from gbwatt.report.explanation import Explanation
    from gbwatt.report.pictures import figure

    tested = open_tested(folder, asked, root)
    notes = [Note(tested.warning)] if tested.warning else []
    explanation = Explanation(tested.decoder, tested.trials)
    said = [Paragraph(text) for text in (f"On {tested.what}.", *explanation.findings())]
    drawn = [figure(picture.figure, picture.caption) for picture in explanation.pictures()]
    return page.with_sections([Section("What it looks at", (*notes, *said, *drawn))], before="Configuration")


def _require_config(folder: Path) -> None:
    from gbwatt.models.serialization import CONFIG

    if not (folder / CONFIG).exists():
        raise ParameterError(
            f"source={str(folder)!r} is a folder without {CONFIG}, so no model, and has no CSV files of results; give "
            "one of these, or a store."
        )


def _of_model(folder: Path) -> Page:
    from gbwatt.decoding import training_record
    from gbwatt.report import report_of_model

    return report_of_model(folder, training_record.read(folder))


def _tables(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.csv"))


def _rows(source: Path) -> list[Row]:
    """All rows of a store, of a file, or of the files of a folder, where what is done counts more than what failed."""
    from gbwatt.experiments.store import Store, read_csv

    if source.suffix.lower() == ".csv":
        return read_csv(source)
    if not source.is_dir():
        with Store(source, create=False) as kept:
            return kept.rows()
    with TemporaryDirectory() as scratch, Store(Path(scratch) / "results.sqlite") as merged:
        for file in _tables(source):
            merged.import_csv(file)
        return merged.rows()


def _experiments(folder: Path | None) -> list[Experiment]:
    """All experiments of a folder, or all known ones; those of the paper's tables first, in their order."""
    from gbwatt.experiments import claims
    from gbwatt.experiments.config import read

    if folder is not None and not folder.is_dir():
        raise ParameterError(
            f"experiments={str(folder)!r} is no folder; give that of the experiments whose tables shall be shown."
        )
    files = experiment_files().values() if folder is None else sorted(folder.glob("*.yaml"))
    found = [read(file) for file in files]
    order = {name: place for place, name in enumerate(claims.EXPERIMENTS)}
    return sorted(found, key=lambda one: order.get(one.name, len(order)))
