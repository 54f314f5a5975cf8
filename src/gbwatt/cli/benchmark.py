"""``gbwatt benchmark``: execute the runs of an experiment that are not in the store yet."""

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
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from gbwatt._validation import check_one_of
from gbwatt.cli.options import AsJson, Root, kernel_note, numbers, print_json, seed_numbers
from gbwatt.cli.results import STORE
from gbwatt.errors import ParameterError, install_command
from gbwatt.experiments import runner
from gbwatt.experiments.runner import BenchmarkPlan
from gbwatt.experiments.runs import Row, Run, discard_checkpoint
from gbwatt.experiments.store import Store
from gbwatt.experiments.table_formats import visible
from gbwatt.experiments.tables import SCORE_NAMES, measure

#: Exit code if runs failed; the other runs are in the store.
SOME_FAILED = 3


def benchmark(
    file: Annotated[Path, typer.Argument(help="Name of an experiment, e.g. main, or a YAML file.")],
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set; repeatable.")] = None,
    subjects: Annotated[str | None, typer.Option(help="Only these subjects, e.g. 1,2,5-7.")] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Number of seeds, e.g. 3 for seeds 0, 1 and 2; or a list, e.g. 0,5 or '5,'.")
    ] = None,
    simulated: Annotated[
        str | None, typer.Option(help="Use simulated recordings: auto (if files are missing), always or never.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a value of the experiment, e.g. training.lr=1e-3; repeatable."),
    ] = None,
    store: Annotated[Path, typer.Option(help="SQLite file of results.")] = STORE,
    jobs: Annotated[int, typer.Option(help="Number of processes; 0: one per core.", min=0)] = 0,
    threads: Annotated[int, typer.Option(help="Number of threads of each process.", min=1)] = 1,
    engine: Annotated[str, typer.Option(help="Where runs are executed: local, or dask for a cluster.")] = "local",
    scheduler: Annotated[str | None, typer.Option(help="Address of the Dask scheduler, tcp://HOST:8786.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Execute failed runs again.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only count the runs and estimate their duration, from stored times or two epochs per model.",
        ),
    ] = False,
    export: Annotated[Path | None, typer.Option(help="Also write all rows of the store to this CSV file.")] = None,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Execute the runs of an experiment that are not in the store yet.  Run the command again to resume a benchmark."""
    console = Console(stderr=as_json)
    _check_engine(engine, scheduler)
    chosen: dict[str, Any] = {
        "datasets": dataset,
        "subjects": None if subjects is None else numbers("subjects", subjects),
        "seeds": None if seeds is None else seed_numbers(seeds),
        "simulated": simulated,
        "overrides": set_ or (),
        "retry_failed": retry_failed,
        "root": root,
    }
    if dry_run:
        plan = runner.plan_benchmark(file, store, local=engine == "local", **chosen)
        _show_plan(console, plan, store)
        _show_estimate(console, plan, store, jobs if engine == "local" else 1, threads, root, as_json)
        return
    with _show_progress(console, store, root) as progress, _interrupted_by_sigterm():
        workers: dict[str, Any] = {"jobs": jobs, "threads": threads, "scheduler": scheduler}
        runner.benchmark(file, store, **chosen, **workers, on_start=progress.start, on_row=progress.add)
    if export is not None:
        Store(store, create=False).export_csv(export)
    plan, counts = progress.plan, progress.counts
    _print_outcome(console, plan, counts, store, as_json)
    if not as_json:
        repeated = [word for name in dataset or () for word in ("--dataset", name)]
        repeated += [word for text in set_ or () for word in ("--set", text)]
        words = ["gbwatt", "tables", str(file), "--store", str(store), *repeated]
        console.print(f"Next: {shlex.join(words)}", highlight=False, markup=False, soft_wrap=True)
    if counts["failed"] or (plan.failed and not retry_failed):
        raise typer.Exit(SOME_FAILED)


def _check_engine(engine: str, scheduler: str | None) -> None:
    """Require a known engine, and a scheduler exactly if the engine is Dask."""
    check_one_of("engine", engine, ("local", "dask"))
    if engine == "local" and scheduler is not None:
        raise ParameterError(f"scheduler={scheduler!r} is for --engine dask.")
    if engine == "dask" and scheduler is None:
        raise ParameterError("--engine dask needs --scheduler tcp://HOST:8786.")


# ---- before


def _show_plan(console: Console, plan: BenchmarkPlan, store: Path) -> None:
    """Print the recordings, a table of the runs, and how many of them the store has."""
    for recordings in plan.recordings.values():
        console.print(visible(str(recordings)), highlight=False, markup=False)
    table = Table("data set", "subjects", "splits", "models", "settings", "seeds", title=escape(plan.experiment.title))
    for name in dict.fromkeys(one.run.dataset for one in plan.labelled_runs):
        labelled_runs = [one for one in plan.labelled_runs if one.run.dataset == name]
        counts = (
            {one.run.subject for one in labelled_runs},
            {one.run.split for one in labelled_runs},
            {one.label for one in labelled_runs},
            {one.setting for one in labelled_runs},
            {one.run.seed for one in labelled_runs},
        )
        table.add_row(escape(visible(name)), *(str(len(values)) for values in counts))
    console.print(table)
    console.print(
        f"{len(plan.runs)} runs: {len(plan.done)} done, {len(plan.failed)} failed before, {len(plan.todo)} to do "
        f"(store: {store})",
        highlight=False,
    )
    if note := kernel_note():
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    for extra, count in plan.unavailable.items():
        console.print(
            f"{count} runs are skipped: packages of their models are not installed; {install_command(extra)}",
            highlight=False,
            markup=False,
        )


def _show_estimate(
    console: Console, plan: BenchmarkPlan, store: Path, jobs: int, threads: int, root: Path | None, as_json: bool
) -> None:
    """Print the estimated duration of the runs that are to do, as text or as a JSON document."""
    rows = Store(store, create=False).rows(structured=False) if store.exists() else []
    workers = runner.count_workers(jobs, threads, len(runner.group_runs(plan.todo)))
    seconds = runner.estimate_seconds(plan.todo, rows, root, threads) / workers
    if as_json:
        document = {"runs": len(plan.runs), "done": len(plan.done), "failed": len(plan.failed)}
        print_json({**document, "todo": len(plan.todo), "seconds": seconds})
        return
    parallel = f", {workers} at a time" if workers > 1 else " on one worker"
    console.print(f"About {_duration_text(seconds)}{parallel}.", highlight=False)


def _duration_text(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, as text."""
    minutes = round(seconds / 60)
    return f"{round(seconds)} s" if seconds < 90 else f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"


# ---- during


class _BenchmarkProgress:
    """Prints the plan, a progress bar, and a line for each failed run or, without a terminal, for each run.

    Its methods are callbacks of :func:`gbwatt.experiments.benchmark`.
    """

    plan: BenchmarkPlan

    def __init__(self, console: Console, bar: Progress, store: Path, root: Path | None) -> None:
        """Store where to print; ``store`` and ``root`` are options of the command."""
        self.console, self.bar, self.store, self.root = console, bar, store, root
        self.todo, self.counts = 0, {"done": 0, "failed": 0}

    def start(self, plan: BenchmarkPlan) -> None:
        """Print the plan, and start the progress bar if there are runs to do."""
        self.plan, self.todo = plan, len(plan.todo)
        _show_plan(self.console, plan, self.store)
        # the first label of a run that is in several lines
        self.names = {one.run.key: _join(one.label, one.setting) for one in reversed(plan.labelled_runs)}
        if plan.todo:
            self.bar.add_task("runs", total=len(plan.todo))
            self.bar.start()

    def stop(self) -> None:
        """Stop the progress bar, if it was started."""
        if self.todo:  # a bar that was not started would print an empty line
            self.bar.stop()

    def add(self, row: Row) -> None:
        """Count a new row, delete the checkpoint of its run if it is done, and print its line."""
        self.counts[row.status] += 1
        discard_checkpoint(row, self.root)
        self.bar.advance(TaskID(0))
        if row.status == "failed" or not self.console.is_terminal:
            line = visible(_run_line(row, self.names[row.key]))
            self.bar.console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _show_progress(console: Console, store: Path, root: Path | None) -> Iterator[_BenchmarkProgress]:
    """Show the progress of a benchmark; after Ctrl-C, print how many runs are stored."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=console)
    progress = _BenchmarkProgress(console, bar, store, root)
    try:
        yield progress
    except KeyboardInterrupt:
        progress.stop()
        left = progress.todo - sum(progress.counts.values())
        console.print(
            f"Stopped. {progress.counts['done']} runs are stored, {left} are left; run the same command to continue."
        )
        raise
    finally:
        progress.stop()


def _run_line(row: Row, name: str) -> str:
    """Return a line on a finished run: its score and duration, or why it failed; ``name`` is its line of the table."""
    run = Run.from_dict(row.run)
    where = _join(run.dataset, f"subject {run.subject}", f"split {run.split}" * (run.split > 0), name)
    if row.status == "failed":
        return f"failed: {where}, seed {run.seed}: {(row.traceback or '').strip().splitlines()[-1]}"
    score = measure(run.dataset)
    return f"{where}, seed {run.seed}: {SCORE_NAMES[score]} {getattr(row, score) or 0.0:.3f} in {row.seconds:.0f} s"


def _join(*words: str) -> str:
    """Join the words that are not empty with commas."""
    return ", ".join(filter(None, words))


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Handle SIGTERM, which batch schedulers send, like Ctrl-C, within the context."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        """Raise the exception of Ctrl-C."""
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


# ---- after


def _print_outcome(console: Console, plan: BenchmarkPlan, counts: dict[str, int], store: Path, as_json: bool) -> None:
    """Print what was done as a JSON document, or hints on failed runs as text."""
    if as_json:
        document = {"experiment": plan.experiment.name, "runs": len(plan.runs), "before": len(plan.done), **counts}
        print_json({**document, "store": str(store)})
        return
    if plan.failed:
        console.print(
            f"{len(plan.failed)} runs had failed before; --retry-failed executes them again.", highlight=False
        )
    if plan.failed or counts["failed"]:
        console.print(f"Reasons: gbwatt store failed --store {store}", highlight=False, markup=False, soft_wrap=True)
