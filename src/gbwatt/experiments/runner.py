"""Benchmarks: the runs of an experiment that a store lacks, executed on this machine or a cluster."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gbwatt._processes import cores, run_in_processes
from gbwatt._validation import check_at_least
from gbwatt.errors import PackageError, ParameterError
from gbwatt.experiments.config import Experiment, read_experiment
from gbwatt.experiments.grid import Recordings, Subjects
from gbwatt.experiments.runs import Executor, LabelledRun, Row, Run, complete_training, find_executor
from gbwatt.experiments.store import Store

#: Packages of the optional dependencies that models need.
EXTRAS = {"braindecode": ("braindecode",), "clinical": ("accelerate", "braindecode")}
EXTRAS["foundation"] = EXTRAS["clinical"]  # former name


@dataclass(frozen=True)
class BenchmarkPlan:
    """The runs of an experiment and their state in a store."""

    experiment: Experiment
    recordings: Mapping[str, Recordings]  # of each data set
    labelled_runs: tuple[LabelledRun, ...]
    runs: Mapping[str, Run]  # by key; a run may be in several lines of the table
    done: frozenset[str]  # keys
    failed: frozenset[str]  # keys
    todo: tuple[Run, ...]
    unavailable: Mapping[str, int]  # numbers of runs that need optional dependencies which are not installed


def benchmark(
    experiment: str | Path | Experiment,
    store: str | Path = "results.sqlite",
    *,
    datasets: Sequence[str] | None = None,
    subjects: Subjects | None = None,
    seeds: int | Sequence[int] | None = None,
    simulated: str | None = None,
    overrides: Sequence[str] = (),
    jobs: int = 0,
    threads: int = 1,
    scheduler: str | None = None,
    retry_failed: bool = False,
    root: str | Path | None = None,
    on_start: Callable[[BenchmarkPlan], None] | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Execute all runs of an experiment that a store lacks.

    Each row is stored when its run ends.  After an interruption, the same call executes the remaining runs.

    Parameters
    ----------
    experiment : str, path or Experiment
        Name or file of an experiment, see :func:`~gbwatt.experiments.config.read_experiment`.
    store : path
        SQLite file of results, which is created if it does not exist.
    datasets : sequence of str, optional
        Only these data sets.
    subjects : "all" or sequence of int, optional
        Only these subjects.
    seeds : int or sequence of int, optional
        Number of seeds, or the seeds, instead of those of the experiment.
    simulated : "auto", "always" or "never", optional
        When to use simulated recordings, instead of what the experiment says.
    overrides : sequence of str
        Assignments that change the file, see :func:`~gbwatt.experiments.config.override`.
    jobs : int
        Number of processes; 0: one per core.
    threads : int
        Number of threads of each process.
    scheduler : str, optional
        Address of a Dask scheduler, ``tcp://HOST:8786``, to execute the runs on a cluster.
    retry_failed : bool
        Whether to execute failed runs again.
    root : path, optional
        Folder of recordings; default: the environment variable GBWATT_DATA, or ``~/gbwatt_data``.
    on_start : callable, optional
        Called with the :class:`BenchmarkPlan` before the first run.
    on_row : callable, optional
        Called with each new row after it is stored.

    Returns
    -------
    list of Row
        The rows of the experiment in the store, also those of earlier calls and of failed runs.

    Raises
    ------
    ConfigurationError
        The experiment has errors.
    MissingFileError
        Recordings are missing, and must not be simulated.
    StoreError
        The store is damaged or cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from gbwatt.experiments import benchmark, experiment_from_dict
    >>> models = [{"label": "SPDNet", "model": "spdnet", "training": {"max_epochs": 1}}]
    >>> content = {"name": "small", "title": "Small", "datasets": ["simulated-ssvep"], "subjects": [1], "seeds": 1}
    >>> experiment = experiment_from_dict({**content, "models": models})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = benchmark(experiment, f"{folder}/results.sqlite", jobs=1)
    >>> [(row.status, row.run["model"], row.epochs) for row in rows]
    [('done', 'spdnet', 1)]
    """
    check_at_least("jobs", jobs, 0)
    check_at_least("threads", threads, 1)
    plan = plan_benchmark(
        experiment,
        store,
        datasets=datasets,
        subjects=subjects,
        seeds=seeds,
        simulated=simulated,
        overrides=overrides,
        retry_failed=retry_failed,
        root=root,
        local=scheduler is None,
        create=True,
    )
    if on_start is not None:
        on_start(plan)
    if scheduler is None:
        new_rows = run_locally(plan.todo, jobs, threads, root)
    else:
        new_rows = run_on_cluster(plan.todo, scheduler, threads, root)
    results = Store(store)
    with closing(new_rows):
        for row in new_rows if plan.todo else ():
            results.add(row)
            if on_row is not None:
                on_row(row)
    return results.rows(plan.runs)


def plan_benchmark(
    experiment: str | Path | Experiment,
    store: str | Path,
    *,
    datasets: Sequence[str] | None = None,
    subjects: Subjects | None = None,
    seeds: int | Sequence[int] | None = None,
    simulated: str | None = None,
    overrides: Sequence[str] = (),
    retry_failed: bool = False,
    root: str | Path | None = None,
    local: bool = True,
    create: bool = False,
) -> BenchmarkPlan:
    """Compare the runs of an experiment with a store, without executing any.

    Parameters are those of :func:`benchmark`, and:

    Parameters
    ----------
    local : bool
        Whether runs are executed on this machine.  If so, ``todo`` omits runs whose packages are missing.
    create : bool
        Whether to create the store if it does not exist.
    """
    opened = experiment if isinstance(experiment, Experiment) else read_experiment(experiment, overrides)
    recordings = opened.recordings(root, datasets=datasets, subjects=subjects, simulated=simulated)
    labelled = opened.labelled_runs(datasets=datasets, subjects=subjects, seeds=seeds, simulated=simulated, root=root)
    runs = {labelled_run.run.key: labelled_run.run for labelled_run in labelled}
    results = Store(store, create=create) if create or Path(store).exists() else None
    done, failed = (results.keys(status) & runs.keys() if results else set() for status in ("done", "failed"))
    finished = done if retry_failed else done | failed
    unfinished = [run for key, run in runs.items() if key not in finished]
    extras = [_missing_extra(run.model) if local else None for run in unfinished]
    todo = tuple(run for run, extra in zip(unfinished, extras, strict=True) if extra is None)
    unavailable = Counter(extra for extra in extras if extra is not None)
    return BenchmarkPlan(
        opened, recordings, tuple(labelled), runs, frozenset(done), frozenset(failed), todo, unavailable
    )


def _missing_extra(model: str) -> str | None:
    """Return the optional dependency that a model needs, if its packages are not installed; else None."""
    from gbwatt.models.registry import entry  # imports torch

    extra = entry(model).extra
    return None if extra is None or all(find_spec(package) for package in EXTRAS[extra]) else extra


# ----------------------------------------------------------------------------------------------------------- execution


def group_runs(runs: Sequence[Run]) -> list[tuple[Run, ...]]:
    """Group runs that share one training, in the order of the first of each group."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.training_run.key, []).append(run)
    return [tuple(group) for group in groups.values()]


def count_workers(jobs: int, threads: int, n_tasks: int) -> int:
    """Return the number of processes for ``n_tasks`` tasks; ``jobs=0``: one per core, or per ``threads`` cores."""
    return max(1, min(jobs or cores() // threads or 1, n_tasks))


def run_locally(runs: Sequence[Run], jobs: int = 0, threads: int = 1, root: str | Path | None = None) -> Generator[Row]:
    """Execute runs in processes of this machine and yield their rows as they finish.

    Runs of a process that dies are tried once more, one at a time.  Closing the iterator stops the processes.
    """
    groups = group_runs(runs)
    work = partial(_run_group, root=None if root is None else str(root), threads=threads)
    with closing(run_in_processes(work, groups, count_workers(jobs, threads, len(groups)), threads)) as results:
        for group, rows in results:
            died = "The process of this run died twice without a Python error: out of memory, or killed by a signal."
            yield from _failed_rows(group, died) if rows is None else rows


def run_on_cluster(
    runs: Sequence[Run], scheduler: str, threads: int = 1, root: str | Path | None = None
) -> Generator[Row]:
    """Execute runs on a Dask cluster and yield their rows as they finish.

    The workers read the recordings themselves, from ``root`` or their GBWATT_DATA.  Runs of a worker that dies are
    given to other workers.
    """
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise PackageError.missing("dask.distributed", "a Dask cluster", "dask") from error
    folder = None if root is None else str(root)
    with _connect(Client, scheduler) as client:
        futures = {client.submit(_run_group, group, folder, threads, pure=False): group for group in group_runs(runs)}
        for future in as_completed(futures):
            if future.status == "finished":
                yield from future.result()
            else:
                yield from _failed_rows(futures[future], f"The cluster could not execute it: {future.exception()!r}")


def _connect(client: Any, scheduler: str) -> Any:
    """Connect to a Dask scheduler; ``client`` is the class ``distributed.Client``."""
    try:
        return client(scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        raise ParameterError(
            f"scheduler={scheduler!r}: no Dask scheduler responds ({error}); start one with `dask scheduler`, and "
            "workers with `dask worker tcp://HOST:8786`."
        ) from error


def _run_group(group: tuple[Run, ...], root: str | None, threads: int) -> list[Row]:
    """Execute runs that share one training, in a worker process; failures become rows, too."""
    from gbwatt.experiments.execution import attempt  # imports torch, in the process that needs it

    return attempt(group, root, threads)


def _failed_rows(group: tuple[Run, ...], reason: str) -> list[Row]:
    """Return rows of failed runs with a reason instead of a traceback, for workers that died."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return [Row(run.key, "failed", run.to_dict(), traceback=reason, finished=now) for run in group]


# ------------------------------------------------------------------------------------------------------ time estimates


def estimate_seconds(
    runs: Sequence[Run], rows: Iterable[Row], root: str | Path | None = None, threads: int = 1
) -> float:
    """Estimate the duration of runs, executed one after the other.

    Epochs take as long as in the rows of the same network on the same data set.  Networks without such a row are
    trained for two epochs here.
    """
    trainings = [group[0] for group in group_runs(runs)]
    seconds, unknown = expected_seconds(trainings, rows)
    return seconds + measured_seconds(unknown, root, threads)


def expected_seconds(runs: Sequence[Run], rows: Iterable[Row]) -> tuple[float, list[Run]]:
    """Estimate the duration of runs from the rows of earlier runs.

    Returns
    -------
    seconds : float
        Expected duration of all runs with a comparable row: the same network on the same data set.
    unknown : list of Run
        Runs without a comparable row.
    """
    seconds_per_epoch: dict[str, list[float]] = {}
    for row in rows:
        if row.status == "done" and row.seconds is not None and row.epochs is not None:
            duration = row.seconds / max(row.epochs, 1)
            seconds_per_epoch.setdefault(_cost_key(Run.from_dict(row.run)), []).append(duration)
    timed = [run for run in runs if _cost_key(run) in seconds_per_epoch]
    seconds = sum(statistics.median(seconds_per_epoch[_cost_key(run)]) * _max_epochs(run) for run in timed)
    return seconds, [run for run in runs if _cost_key(run) not in seconds_per_epoch]


def _cost_key(run: Run) -> str:
    """Return a text that is the same for runs whose epochs take equally long."""
    training = run.training
    transfer = [len(training.get("sources", ())), training.get("own_trials"), training.get("pretraining_epochs")]
    return f"{run.dataset}, {run.model}, {sorted(run.options.items())}, {run.fraction}, {transfer}"


def measured_seconds(runs: Sequence[Run], root: str | Path | None = None, threads: int = 1) -> float:
    """Estimate the duration of runs by training two epochs of each network; models that cannot be built count 0."""
    import torch

    torch.set_num_threads(threads)
    seconds_per_epoch: dict[str, float] = {}
    total = 0.0
    for run in runs:
        whole = replace(run, fraction=1.0)
        if _cost_key(whole) not in seconds_per_epoch:
            seconds_per_epoch[_cost_key(whole)] = _measure_epoch(whole, root)
        total += seconds_per_epoch[_cost_key(whole)] * _max_epochs(run)
    return total


#: Epochs of a run whose paradigm is chosen by cross-validation, for the estimate of its duration.
CHOICE_EPOCHS = 600


def _max_epochs(run: Run) -> int:
    """Return the maximum number of epochs of a run; classical pipelines count as one."""
    return max(1, int(complete_training(run.model, run.dataset, run.training).get("max_epochs", CHOICE_EPOCHS)))


def _measure_epoch(run: Run, root: str | Path | None) -> float:
    """Return the seconds of one epoch of a run, measured by training two epochs; 0 if its packages are missing.

    For classical pipelines, these are the seconds of the fit.  For runs with an executor, the executor estimates them.
    """
    executor = find_executor(run.dataset)
    if executor is not None:
        return _estimate_epoch(executor, run, root)
    from gbwatt.experiments.execution import make_decoder, training_trials

    short = replace(run, training={**run.training, "max_epochs": 2})
    train, valid = training_trials(short, root)
    began = time.perf_counter()
    try:
        decoder = make_decoder(short, valid).fit(train)
    except ImportError:
        return 0.0
    history = decoder.history_
    return float(history[-1]["duration"]) if history else time.perf_counter() - began


def _estimate_epoch(executor: Executor, run: Run, root: str | Path | None) -> float:
    """Return the seconds of one epoch that an executor estimates; 0 if a package or the weights are missing."""
    try:
        return executor.epoch_seconds(run, root)
    except (ImportError, ValueError):  # no package, or no weights: the runs will report it
        return 0.0
