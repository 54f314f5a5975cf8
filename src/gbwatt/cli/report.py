"""``gbwatt report``: a self-contained HTML page about results or a trained model."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import gbwatt
from gbwatt.cli.options import (
    Preprocess,
    Reading,
    Root,
    SourceName,
    TestedSplit,
    TestedSubject,
    Threads,
    reading,
    recordings,
    require_free,
    subjects,
    use_threads,
)
from gbwatt.errors import ParameterError

if TYPE_CHECKING:
    from gbwatt.decoding import EvaluationSet
    from gbwatt.experiments.config import Experiment
    from gbwatt.experiments.runs import Row
    from gbwatt.report import Page


def report(
    source: Annotated[
        Path, typer.Argument(help="Store, CSV file of results, folder of such CSV files, or folder of a model.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path("report.html"),
    experiments: Annotated[
        Path | None,
        typer.Option(help="Folder of experiments to show; default: ./experiments and the experiments of gbwatt."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing report.")] = False,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="Data set or files on which a model is explained; default: the one used for training. A model is "
            "explained only if this option, --subject, --split, --root, --source, --read or --preprocess is given."
        ),
    ] = None,
    subject: TestedSubject = None,
    split: TestedSplit = None,
    root: Root = None,
    form: SourceName = None,
    read: Reading = None,
    preprocess: Preprocess = None,
    threads: Threads = None,
) -> None:
    """Write a report of results or of a model: one HTML file that works offline."""
    require_free(output, kind="report", force=force)
    if not source.exists():
        raise ParameterError(
            f"source={str(source)!r} does not exist; a store, a CSV file of results or the folder of a model is needed."
        )
    given = {"dataset": recordings(dataset), "subject": subject, "split": split, "root": root, "source": form}
    given |= {"read": read, "preprocess": preprocess}
    given = {name: value for name, value in given.items() if value not in (None, [])}
    use_threads(threads)
    if _is_model(source):
        _require_config(source)
        if experiments is not None:
            raise ParameterError(f"--experiments {experiments} is for results, but {source} is a model; leave it out.")
        page = _page_of_model(source, given, reading(form, read, preprocess))
    else:
        for name, value in given.items():
            raise ParameterError(f"--{name} {value} is for a model, but {source} has results; leave it out.")
        page = _page_of_results(source, experiments)
    now = datetime.now(UTC).isoformat(sep=" ", timespec="minutes").removesuffix("+00:00")
    size = _write_page(replace(page, created=f"Created by gbwatt {gbwatt.__version__} on {now} UTC."), output)
    typer.echo(f"{output} ({size / 1e6:.1f} MB)")


def _write_page(page: Page, output: Path) -> int:
    """Write a page as HTML, and return its size in bytes."""
    from gbwatt._io import write_atomically
    from gbwatt.report import render

    content = render(page).encode()
    write_atomically(output, content)
    return len(content)


# ---- models


def _is_model(source: Path) -> bool:
    """Return whether the source is a folder without CSV files of results, as that of a model."""
    return source.is_dir() and not _csv_files(source)


def _require_config(folder: Path) -> None:
    """Require the configuration file that every folder of a model has."""
    from gbwatt.models.serialization import CONFIG

    if not (folder / CONFIG).exists():
        raise ParameterError(
            f"source={str(folder)!r} has neither {CONFIG}, which a model has, nor CSV files of results; give the "
            "folder of a model, a store, or CSV files."
        )


def _page_of_model(folder: Path, given: dict[str, Any], how: dict[str, Any]) -> Page:
    """Make the report of a model; with options for recordings, also its explanation.

    Parameters
    ----------
    folder : path
        Folder of the model.
    given : dict
        Options for recordings that were given; if it is empty, the model is not explained.
    how : dict
        Arguments of :func:`gbwatt.data.load`.
    """
    from gbwatt.decoding import TrainingRecord
    from gbwatt.report import report_of_model

    saved = TrainingRecord.read(folder)
    record = None if saved is None else saved.to_dict()
    if not given:
        return report_of_model(folder, record)
    from gbwatt.explain import Explanation
    from gbwatt.report.model_report import explanation_section

    tested = _open_trials(folder, given, how)
    explanation = Explanation(tested.decoder, tested.trials)
    page = report_of_model(folder, record, module=explanation.inputs.module)
    aligned = "" if tested.alignment is None else f", aligned {tested.alignment}"
    section = explanation_section(explanation, f"{tested.description}{aligned}", tested.warning)
    return page.with_sections([section], before="Configuration")


def _open_trials(folder: Path, given: dict[str, Any], how: dict[str, Any]) -> EvaluationSet:
    """Open the model and the trials to explain it on."""
    from gbwatt.decoding import EvaluationSet

    dataset, split, root = (given.get(name) for name in ("dataset", "split", "root"))
    numbers = subjects(given.get("subject"))
    return EvaluationSet.open(folder, dataset, subject=numbers, split=split, reading=how, root=root)


# ---- results


def _page_of_results(source: Path, folder: Path | None) -> Page:
    """Make the report of results; ``folder`` has the experiments, None for all known ones."""
    from gbwatt.report import report_of_rows

    rows = _read_results(source)
    if not rows:
        raise ParameterError(f"source={str(source)!r} has no rows: there is nothing to report yet.")
    name = None if folder is None else str(folder)
    return report_of_rows(rows, _read_experiments(folder), source=str(source), folder=name)


def _csv_files(folder: Path) -> list[Path]:
    """Return the CSV files of a folder."""
    return sorted(folder.glob("*.csv"))


def _read_results(source: Path) -> list[Row]:
    """Read all rows of a store, of a CSV file, or of the CSV files of a folder.

    If files of a folder have the same run, a finished row takes precedence over a failed one.
    """
    from gbwatt.experiments.store import read_rows

    return read_rows(source)


def _read_experiments(folder: Path | None) -> list[Experiment]:
    """Read the experiments of a folder, or all known ones; those of the paper first, in its order."""
    from gbwatt.experiments import claims
    from gbwatt.experiments.config import list_experiments, read_experiment

    if folder is not None and not folder.is_dir():
        raise ParameterError(
            f"experiments={str(folder)!r} is not a folder; give the folder of experiments whose tables are to be shown."
        )
    files = list_experiments().values() if folder is None else sorted(folder.glob("*.yaml"))
    experiments = [read_experiment(file) for file in files]
    order = {name: number for number, name in enumerate(claims.EXPERIMENTS)}
    return sorted(experiments, key=lambda one: order.get(one.name, len(order)))
