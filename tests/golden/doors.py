"""All that the tests of this folder import from inside the package, a function for each purpose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import gbwatt
from tests.golden.program import RESULTS

#: Verdicts of the claims' table, whatever they are called.
VERDICTS = {"reproduced": "for", "not reproduced": "neither", "reversed": "against", "not testable here": "unknown"}
_COUNTS = re.compile(r"\d+( × \d+)?")


# ---- experiments and their runs


def experiment_names() -> list[str]:
    """Experiments that come with the package."""
    from gbwatt.experiments.config import PACKAGED

    return sorted(file.stem for file in PACKAGED.glob("*.yaml"))


def simulated_runs(name: str, root: Path) -> list[tuple[dict[str, Any], str]] | None:
    """Runs of an experiment on simulated recordings, two seeds, and their keys; None if it cannot be simulated."""
    from gbwatt.errors import ParameterError

    try:
        cells = _experiment(name).labelled_runs(simulated="always", seeds=2, root=root)
    except ParameterError:
        return None
    return [(cell.run.to_dict(), cell.run.key) for cell in cells]


def key_of(run: Mapping[str, Any]) -> str:
    """The key of a run, from its record."""
    from gbwatt.experiments.runs import Run

    return Run.from_dict(run).key


def _experiment(name: str) -> Any:
    from gbwatt.experiments.config import PACKAGED, read_experiment

    return read_experiment(PACKAGED / f"{name}.yaml")


# ---- rows


@cache
def _rows(file: Path) -> list[Any]:
    from gbwatt.experiments.row_io import read_csv

    return read_csv(file)


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Rows of a CSV file."""
    return [row._asdict() for row in _rows(file)]


def stored_rows(store: Path, create: bool = False) -> list[dict[str, Any]]:
    """Rows of a store; ``create`` opens it for writing."""
    from gbwatt.experiments.store import Store

    with Store(store, create=create) as kept:
        return [row._asdict() for row in kept.rows()]


def add_rows(store: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Put rows into a store, which is made if it is not there; those without a key get that of their run."""
    from gbwatt.experiments.runs import Row
    from gbwatt.experiments.store import Store

    with Store(store) as kept:
        for row in rows:
            kept.add(Row(**{"key": key_of(row["run"]), **row}))


def runs_of(file: Path) -> list[dict[str, Any]]:
    """Runs of the experiment in a file."""
    from gbwatt.experiments.config import read_experiment

    return [cell.run.to_dict() for cell in read_experiment(file).labelled_runs()]


# ---- tables of results/mamem.csv


@cache
def _cells(name: str) -> tuple[Any, list[Any]]:
    from gbwatt.experiments.grid import match_runs

    experiment = _experiment(name)
    return experiment, match_runs(experiment, _rows(RESULTS))


def tables(name: str) -> list[list[list[Any]]] | None:
    """Tables of an experiment: for each line, labels of model and setting, then numbers; None if there are no rows."""
    from gbwatt.experiments.tables import make_table

    experiment, cells = _cells(name)
    if not cells:
        return None
    by_key = {row.key: row for row in _rows(RESULTS)}
    made = make_table(
        experiment.title,
        cells,
        by_key,
        paper_table=experiment.paper,
        reference=experiment.reference,
        validation=experiment.validation,
    )
    return [[_line(table.header, line) for line in table.lines] for table in made.tables]


def _line(header: Any, line: Any) -> list[Any]:
    labels = [value for column, value in zip(header, line, strict=True) if not column.group]
    return [*labels, *(_number(value) for column, value in zip(header, line, strict=True) if column.group)]


def _number(value: Any) -> Any:
    """A number, or counts such as 11 × 3; None for words."""
    if not isinstance(value, str):
        return value
    return [int(part) for part in value.split(" × ")] if _COUNTS.fullmatch(value) else None


def claims() -> list[dict[str, Any]]:
    """Every claim on every data set, in order: lines that are compared, the verdict, and the numbers behind it."""
    from gbwatt.experiments.claims import CLAIMS, EXPERIMENTS, judge
    from gbwatt.experiments.grid import collect_results

    by_key = {row.key: row for row in _rows(RESULTS)}
    grids = {name: collect_results(_cells(name)[1], by_key) for name in EXPERIMENTS}
    judged = [judge(claim, dataset, grids[claim.experiment]) for claim in CLAIMS for dataset in claim.datasets]
    return [
        {
            "experiment": one.claim.experiment,
            "dataset": one.dataset,
            "verdict": VERDICTS[one.verdict],
            "seeds": one.seeds,
            "evidence": [
                {
                    "lines": [[list(line) for line in side] for side in e.contrast],
                    "numbers": [e.printed, e.difference, e.p, e.subjects, e.counts],
                }
                for e in one.evidence
            ],
        }
        for one in judged
    ]


# ---- others


def commands() -> dict[str, Any]:
    """Commands by name, as click has them."""
    import typer

    from gbwatt.cli import app

    found: dict[str, Any] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        found[" ".join(words)] = command
        for name, below in getattr(command, "commands", {}).items():
            walk(below, (*words, name))

    walk(typer.main.get_command(app), ("gbwatt",))
    return found


def without_kernels(monkeypatch: Any) -> None:
    """Compute as if the compiled kernels had not been built."""
    import gbwatt.geometry._native
    import gbwatt.nn._native

    monkeypatch.setattr(gbwatt.geometry._native, "_jacobi", None)
    monkeypatch.setattr(gbwatt.nn._native, "_filters", None)


def has_kernels() -> bool:
    """Whether the compiled kernels are used."""
    import gbwatt.geometry._native
    import gbwatt.nn._native

    return gbwatt.geometry._native.available() and gbwatt.nn._native.available()


def break_training(monkeypatch: Any, error: BaseException) -> None:
    """Let every training raise this."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(gbwatt.EEGDecoder, "fit", fail)


def write_corpus(folder: Path) -> None:
    """A small corpus in the layout of TUEV."""
    from tests.clinical.corpora.synthetic import write_tuev

    write_tuev(folder, train=2, evaluation=3, seconds=10, events=2, sfreq=200)
