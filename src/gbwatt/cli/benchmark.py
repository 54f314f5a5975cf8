"""``gbwatt benchmark``: all runs of an experiment, as far as the store does not have them."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from gbwatt._validation import check_one_of
from gbwatt.cli.options import AsJson, Root, experiment_file, kernel_note, numbers, print_json, seed_numbers
from gbwatt.cli.store import STORE
from gbwatt.data import find_dataset
from gbwatt.errors import ParameterError, install_command
from gbwatt.experiments.config import Experiment, read
from gbwatt.experiments.runner import Cluster, Engine, Local, Plan, carry_out, grouped, plan
from gbwatt.experiments.runs import Cell, Row, Run, discard_checkpoint
from gbwatt.experiments.store import Store
from gbwatt.experiments.table_formats import visible
from gbwatt.experiments.tables import WORDS, measure

#: Exit code if runs failed; the others are in the store.
SOME_FAILED = 3


def benchmark(
    file: Annotated[Path, typer.Argument(help="Experiment: its name, e.g. main, or a file.")],
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; repeatable.")] = None,
    subjects: Annotated[str | None, typer.Option(help="Only these, for instance 1,2,5-7.")] = None,
    seeds: Annotated[str | None, typer.Option(help="How many seeds, or which: 3 is 0,1,2; '5,' is seed 5.")] = None,
    simulated: Annotated[
        str | None, typer.Option(help="Simulated recordings: auto (where files are missing), always or never.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Change the file: a.b=c; repeatable.")] = None,
    store: Annotated[Path, typer.Option(help="Where results are kept.")] = STORE,
    jobs: Annotated[int, typer.Option(help="Processes; 0 for one a core.", min=0)] = 0,
    threads: Annotated[int, typer.Option(help="Threads of each process.", min=1)] = 1,
    engine: Annotated[str, typer.Option(help="local, or dask for a cluster.")] = "local",
    scheduler: Annotated[str | None, typer.Option(help="Address of the Dask scheduler, tcp://HOST:8786.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Do failed runs again.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show the grid and how long it may take: from the store, else from two epochs of each model.",
        ),
    ] = False,
    export: Annotated[Path | None, typer.Option(help="Write all rows of the store into this CSV file, too.")] = None,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Do all runs of an experiment that the store does not have; stop and go on whenever you like."""
    console = Console(stderr=as_json)
    experiment = read(experiment_file(file), set_ or ())
    where = _engine(engine, scheduler, jobs, threads, root)
    narrow: dict[str, Any] = {
        "datasets": None if dataset is None else [find_dataset(name).name for name in dataset],
        "subjects": None if subjects is None else numbers("subjects", subjects),
        "simulated": simulated,
    }
    for source in experiment.sources(root, **narrow).values():
        console.print(visible(str(source)), highlight=False, markup=False)
    cells = experiment.cells(**narrow, seeds=None if seeds is None else seed_numbers(seeds), root=root)
    rows = _rows(store, dry_run)
    found = plan(cells, rows, retry_failed, here=engine == "local")
    _show_plan(console, experiment, cells, found, store)
    if dry_run:
        _show_estimate(console, found, rows, where, root, as_json)
        return
    with Store(store) as kept:
        outcome = _work(console, found.todo, kept, where, _names(cells), root)
        if export is not None:
            kept.export_csv(export)
    repeated = [word for name in dataset or () for word in ("--dataset", name)]
    repeated += [word for text in set_ or () for word in ("--set", text)]
    _conclude(console, experiment, found, outcome, store, as_json)
    if not as_json:
        words = ["gbwatt", "tables", str(file), "--store", str(store), *repeated]
        console.print(f"Next: {shlex.join(words)}", highlight=False, markup=False, soft_wrap=True)
    if outcome["failed"] or (found.failed and not retry_failed):
        raise typer.Exit(SOME_FAILED)


def _rows(store: Path, dry_run: bool) -> list[Row]:
    """What the store has; it is made if there is none, but not by a dry run."""
    if dry_run and not store.exists():
        return []
    with Store(store, create=not dry_run) as kept:
        return kept.rows(structured=False)


def _engine(name: str, scheduler: str | None, jobs: int, threads: int, root: Path | None) -> Engine:
    check_one_of("engine", name, ("local", "dask"))
    if name == "local":
        if scheduler is not None:
            raise ParameterError(f"scheduler={scheduler!r} is for --engine dask.")
        return Local(jobs, threads, root)
    if scheduler is None:
        raise ParameterError("--engine dask needs --scheduler tcp://HOST:8786.")
    return Cluster(scheduler, threads, root)


# ---- before


def _show_plan(console: Console, experiment: Experiment, cells: list[Cell], found: Plan, store: Path) -> None:
    """The grid in a table, and what of it is there."""
    table = Table("data set", "subjects", "splits", "models", "settings", "seeds", title=escape(experiment.title))
    for name in dict.fromkeys(cell.run.dataset for cell in cells):
        own = [cell for cell in cells if cell.run.dataset == name]
        counts = (
            {cell.run.subject for cell in own},
            {cell.run.split for cell in own},
            {cell.label for cell in own},
            {cell.setting for cell in own},
            {cell.run.seed for cell in own},
        )
        table.add_row(escape(visible(name)), *(str(len(values)) for values in counts))
    console.print(table)
    console.print(
        f"{len(found.runs)} runs: {len(found.done)} done, {len(found.failed)} failed before, {len(found.todo)} to do "
        f"(store: {store})",
        highlight=False,
    )
    if note := kernel_note():
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    for package, count in found.barred.items():
        console.print(
            f"{count} runs are left out: packages of their models are not installed; {install_command(package)}",
            highlight=False,
            markup=False,
        )


def _show_estimate(
    console: Console, found: Plan, rows: list[Row], engine: Engine, root: Path | None, as_json: bool
) -> None:
    """How long the rest may take: from the store, and for what is not like anything there, from two epochs."""
    from gbwatt.experiments.runner import expected_seconds, measured_seconds

    trainings = [group[0] for group in grouped(found.todo)]
    seconds, unknown = expected_seconds(trainings, rows)
    seconds += measured_seconds(unknown, root, engine.threads)
    workers = engine.workers(len(trainings)) if isinstance(engine, Local) else 1
    if as_json:
        document = {"runs": len(found.runs), "done": len(found.done), "failed": len(found.failed)}
        print_json({**document, "todo": len(found.todo), "seconds": seconds / workers})
        return
    share = f", {workers} at a time" if workers > 1 else " on one worker"
    console.print(f"About {_duration(seconds / workers)}{share}.", highlight=False)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{round(seconds)} s" if seconds < 90 else f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"


# ---- the work


def _names(cells: list[Cell]) -> dict[str, str]:
    """How each run is called in the table, by its key; the first place that it has."""
    return {cell.run.key: _listed(cell.label, cell.setting) for cell in reversed(cells)}


def _work(
    console: Console,
    todo: tuple[Run, ...],
    store: Store,
    engine: Engine,
    names: dict[str, str],
    root: Path | None,
) -> dict[str, Any]:
    """Do the runs under a progress bar; Ctrl-C ends it, with what is done in the store."""
    counts: dict[str, Any] = {"done": 0, "failed": 0}
    if not todo:
        return counts
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress, _terminable():
        task = progress.add_task("runs", total=len(todo))

        def watch(row: Row) -> None:
            counts[row.status] += 1
            discard_checkpoint(row, root)
            progress.advance(task)
            if row.status == "failed" or not console.is_terminal:
                said = visible(_line(row, names[row.key]))
                progress.console.print(said, highlight=False, markup=False, soft_wrap=True)

        try:
            carry_out(todo, store, engine, watch)
        except KeyboardInterrupt:
            left = len(todo) - counts["done"] - counts["failed"]
            progress.stop()
            console.print(
                f"Stopped. {counts['done']} runs are in the store, {left} are left; the same command goes on."
            )
            raise
    return counts


def _line(row: Row, name: str) -> str:
    run = Run.from_dict(row.run)
    where = _listed(run.dataset, f"subject {run.subject}", f"split {run.split}" * (run.split > 0), name)
    if row.status == "failed":
        return f"failed: {where}, seed {run.seed}: {(row.traceback or '').strip().splitlines()[-1]}"
    by = measure(run.dataset)
    return f"{where}, seed {run.seed}: {WORDS[by]} {getattr(row, by) or 0.0:.3f} in {row.seconds:.0f} s"


def _listed(*words: str) -> str:
    return ", ".join(filter(None, words))


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM, which batch schedulers send, end like Ctrl-C."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- after


def _conclude(
    console: Console,
    experiment: Experiment,
    found: Plan,
    outcome: dict[str, Any],
    store: Path,
    as_json: bool,
) -> None:
    if as_json:
        document = {"experiment": experiment.name, "runs": len(found.runs), "before": len(found.done), **outcome}
        print_json({**document, "store": str(store)})
        return
    if found.failed:
        console.print(f"{len(found.failed)} runs had failed before; --retry-failed does them again.", highlight=False)
    if found.failed or outcome["failed"]:
        console.print(f"Why: gbwatt store failed --store {store}", highlight=False, markup=False, soft_wrap=True)
