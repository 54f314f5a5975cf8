"""Runs of an experiment, and rows of results sorted by the table cell that they belong to."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gbwatt._moved import renamed
from gbwatt._validation import check_one_of
from gbwatt.data import MissingFileError, data_root, find_dataset, load
from gbwatt.data.datasets import subjects_here
from gbwatt.data.loading import fingerprint
from gbwatt.data.simulated import SETS
from gbwatt.data.splits import find_protocol
from gbwatt.errors import ParameterError
from gbwatt.experiments.runs import (
    UNLABELLED,
    LabelledRun,
    Row,
    Run,
    canonicalize,
    complete_training,
    find_executor,
    training_changes,
)
from gbwatt.experiments.statistics import Scores
from gbwatt.experiments.yaml_io import ConfigurationError, Problem

if TYPE_CHECKING:
    from gbwatt.experiments.config import Experiment, ModelRow


Subjects = Sequence[int] | Literal["all"]
#: Sources that stand for all other subjects of the experiment whose files exist.
OTHERS = "others"
#: Largest number of runs of one experiment; those of the paper have up to ten thousand.
MOST_RUNS = 200_000

ATTENTION_MODELS = frozenset({"gbwatt", "bwatt", "matt"})  # models with the option "recipe"
COVARIANCE_MODELS = frozenset({"spdnet", "spdnetbn"})  # other models with the option "shrinkage"


class Recordings(NamedTuple):
    """The recordings that are used for a data set: real, or simulated in their place."""

    requested: str  # data set of the experiment
    dataset: str  # data set that is read: the same, or its simulated counterpart
    subjects: tuple[int, ...]  # empty if the data set is skipped
    missing: tuple[int, ...]  # requested subjects without files
    reason: str  # why these recordings, or why the data set is skipped

    @property
    def simulated(self) -> bool:
        """Whether the recordings are simulated."""
        return self.dataset in SETS

    def __str__(self) -> str:
        """Return a line for the terminal: data set, number of subjects, and the reason for the choice."""
        name = self.requested if self.dataset == self.requested else f"{self.requested} as {self.dataset}"
        if not self.subjects:
            return f"{name}: skipped; {self.reason}"
        return f"{name}: {_count_subjects(self.subjects)}; {self.reason}"


def _count_subjects(subjects: Sequence[int]) -> str:
    """Return the number of subjects with its noun, "1 subject" or "3 subjects"."""
    return "1 subject" if len(subjects) == 1 else f"{len(subjects)} subjects"


def simulated_counterpart(name: str) -> str | None:
    """Name of the simulated data set with the shapes of a real one; None if there is none.

    Examples
    --------
    >>> simulated_counterpart("mamem-ssvep-ii")
    'simulated-ssvep'
    """
    return next((paradigm.name for paradigm in SETS.values() if paradigm.like.name == name), None)


def original(name: str) -> str:
    """Name of the real data set that a simulated one imitates; any other name is returned unchanged."""
    return SETS[name].like.name if name in SETS else name


# ---------------------------------------------------------------------------------------------------------- recordings


def subjects_on(subjects: Subjects | Mapping[str, Subjects], dataset: str) -> Subjects:
    """Return the subjects of a data set, or of its simulated counterpart; ``subjects`` may be a mapping by data set.

    Data sets that are not in the mapping have all subjects.

    Examples
    --------
    >>> subjects_on({"mamem-ssvep-ii": (1, 2)}, "simulated-ssvep"), subjects_on({"mamem-ssvep-ii": (1, 2)}, "bi2012")
    ((1, 2), 'all')
    """
    if not isinstance(subjects, Mapping):
        return subjects
    return next((own for name, own in subjects.items() if original(name) == original(dataset)), "all")


def find_recordings(
    datasets: Sequence[str],
    subjects: Subjects | Mapping[str, Subjects],
    simulated: str,
    root: str | Path | None = None,
) -> dict[str, Recordings]:
    """Choose real or simulated recordings for each data set.

    Parameters
    ----------
    datasets : sequence of str
        Names of data sets.
    subjects : "all", sequence of int, or mapping
        Requested subjects; of a mapping, for each data set.  A data set without any of them is skipped.
    simulated : "auto", "always" or "never"
        Use simulated recordings where files are missing, for all data sets, or never.
    root : path, optional
        Folder of recordings.

    Returns
    -------
    dict
        Recordings of each data set, by its name.

    Raises
    ------
    ParameterError
        If no data set has the subjects, or two data sets would use the same simulated one.
    MissingFileError
        If files are missing and must not be simulated.
    """
    _require_known_subjects(datasets, subjects)
    chosen = {name: _choose_recordings(name, subjects_on(subjects, name), simulated, root) for name in datasets}
    if chosen and not any(one.subjects or one.missing for one in chosen.values()):
        raise ParameterError(f"subjects: {'; '.join(one.reason for one in chosen.values())}.")
    absent = [one for one in chosen.values() if one.missing and not one.subjects]
    if absent:
        raise MissingFileError(_describe_missing(absent, simulated, root))
    by_dataset: dict[str, str] = {}
    for one in (one for one in chosen.values() if one.subjects):
        other = by_dataset.setdefault(one.dataset, one.requested)
        if other != one.requested:
            raise ParameterError(
                f"datasets: {other!r} and {one.requested!r} would both use {one.dataset!r}; remove one of them."
            )
    return chosen


def _require_known_subjects(datasets: Sequence[str], subjects: Subjects | Mapping[str, Subjects]) -> None:
    """Reject subjects that none of the data sets has; data sets without a list of subjects may have any."""
    if isinstance(subjects, Mapping):
        for name in datasets:
            _require_known_subjects([name], subjects_on(subjects, name))
        return
    if isinstance(subjects, str):
        return
    known = {name: _known_subjects(name) for name in datasets}
    for number in subjects:
        if not any(number in numbers or not numbers for numbers in known.values()):
            available = "; ".join(f"{name} has {_join(numbers)}" for name, numbers in known.items())
            raise ParameterError(f"subjects: {number} is in none of the data sets: {available}.")


def _known_subjects(name: str) -> tuple[int, ...]:
    """Return all subjects of a data set, also those that are held back; empty if the data set has no list."""
    dataset = find_dataset(name)
    return (*dataset.subjects, *dataset.held_back)


def _requested_subjects(name: str, subjects: Subjects) -> tuple[int, ...]:
    """Return the requested subjects that a data set has, possibly none."""
    if isinstance(subjects, str):
        return find_dataset(name).subjects or (1,)
    known = _known_subjects(name)
    if not known and len(subjects) > 1:
        raise ParameterError(
            f"subjects: {name} is the recording of one subject, but {_join(subjects)} are requested; list the files of "
            "the other subjects, too: datasets: [[a.edf, b.edf, c.edf]]."
        )
    return tuple(number for number in subjects if number in known or not known)


def _skip_dataset(requested: str, name: str, subjects: Subjects, known: Sequence[int]) -> Recordings:
    """Return recordings without subjects, for a data set that has none of the requested ones.

    ``requested`` is the data set of the experiment, ``name`` the one that would be read, ``known`` are its subjects.
    """
    return Recordings(requested, name, (), (), f"{name} has none of {_join(subjects)}, it has {_join(known)}")


def _choose_recordings(name: str, subjects: Subjects, simulated: str, root: str | Path | None) -> Recordings:
    """Choose real or simulated recordings for one data set."""
    check_one_of("simulated", simulated, ("auto", "always", "never"))
    requested = _requested_subjects(name, subjects)
    if not requested:
        return _skip_dataset(name, name, subjects, _known_subjects(name))
    if name in SETS:
        return Recordings(name, name, requested, (), "simulated")
    if simulated == "always":
        return _simulate_dataset(name, requested, "simulated, as requested")
    dataset = find_dataset(name)
    present = subjects_here(dataset, root) if dataset.subjects else requested  # a file given by its path exists
    available = tuple(number for number in requested if number in present)
    missing = tuple(number for number in requested if number not in available)
    if available or simulated == "never" or simulated_counterpart(name) is None:
        reason = f"no files of subjects {_join(missing)}" if missing else "all files exist"
        return Recordings(name, name, available, missing, reason)
    return _simulate_dataset(name, requested, f"simulated, because none of its files are in {data_root(root)}")


def _simulate_dataset(name: str, requested: tuple[int, ...], reason: str) -> Recordings:
    """Return the recordings of the simulated counterpart of a data set, for those subjects that it has."""
    simulated = simulated_counterpart(name)
    if simulated is None:
        names = _join(paradigm.like.name for paradigm in SETS.values())
        raise ParameterError(f"dataset={name!r} has no simulated counterpart; data sets that have one: {names}.")
    known = find_dataset(simulated).subjects
    available = tuple(number for number in requested if number in known)
    if not available:
        return _skip_dataset(name, simulated, requested, known)
    missing = tuple(number for number in requested if number not in known)
    return Recordings(name, simulated, available, missing, reason)


def _describe_missing(absent: Iterable[Recordings], simulated: str, root: str | Path | None) -> str:
    """Return the error message for data sets without files: what is missing, its source, and the remedy."""
    lines = [f"simulated={simulated!r}, and files are missing in {data_root(root)}:"]
    for one in absent:
        where = find_dataset(one.requested).where
        lines.append(f"  {one.requested}, all of subjects {_join(one.missing)}")
        lines += [f"    from {where}"] * bool(where)
    lines.append("The folder is root=, else the environment variable GBWATT_DATA, else ~/gbwatt_data.")
    if any(simulated_counterpart(one.requested) for one in absent):
        lines.append("simulated='auto' uses simulated recordings where files are missing.")
    return "\n".join(lines)


def _join(items: Iterable[object]) -> str:
    """Join items with commas."""
    return ", ".join(map(str, items))


# ---------------------------------------------------------------------------------------------------------------- runs


def count_splits(source: Recordings, experiment: Experiment, root: str | Path | None = None) -> int:
    """Return the number of splits into training, validation and test trials that each subject of a data set has.

    If the protocol does not fix it, the trials of the first subject are split.
    """
    name = source.dataset
    protocol = find_protocol(experiment.own_protocol) if experiment.own_protocol else find_dataset(name).protocol
    if protocol.per_subject is None:
        raise ParameterError(
            f"dataset={name!r} is split between subjects ({type(protocol).__name__}); a run has one subject."
        )
    if protocol.per_subject:
        return protocol.per_subject
    return len(protocol.splits(load(name, source.subjects[0], root=root, **experiment.how_to_read)))


def expand(
    experiment: Experiment, recordings: Iterable[Recordings], seeds: Sequence[int], root: str | Path | None = None
) -> list[LabelledRun]:
    """Return all runs of an experiment with their table lines.

    Runs are ordered by seed, so that an interrupted benchmark gives a complete table with fewer seeds.
    """
    recordings = list(recordings)
    n_splits = [count_splits(source, experiment, root) for source in recordings]
    _require_few_runs(experiment, recordings, n_splits, len(seeds))
    without_seed = [
        one
        for source, n in zip(recordings, n_splits, strict=True)
        for one in _expand_lines(experiment, source, n, root)
    ]
    if not without_seed:
        raise ParameterError(f"experiment {experiment.name!r} has no model for these data sets.")
    return [
        LabelledRun(line.label, line.setting, Run(seed=seed, **arguments))
        for number, seed in enumerate(seeds)
        for line, arguments in without_seed
        if number < line.n_seeds
    ]


def _require_few_runs(
    experiment: Experiment, recordings: Sequence[Recordings], splits: Sequence[int], n_seeds: int
) -> None:
    """Raise an error if an experiment has more than ``MOST_RUNS`` runs, before the runs are made."""
    n_lines = len(experiment.models) * (1 if experiment.vary is None else len(experiment.vary.values))
    n_splits = sum(len(source.subjects) * n for source, n in zip(recordings, splits, strict=True))
    n_runs = n_lines * n_splits * n_seeds
    if n_runs > MOST_RUNS:
        text = (
            f"{n_lines} lines × {n_splits} subjects and splits × {n_seeds} seeds are {n_runs} runs; at most "
            f"{MOST_RUNS} are allowed: use fewer seeds or subjects, or several experiments."
        )
        raise ConfigurationError(f"experiment {experiment.name!r}", [Problem(("seeds",), text)])


class Line(NamedTuple):
    """A line of a table: the arguments that its runs have in common."""

    label: str
    setting: str
    arguments: dict[str, Any]  # of a run; "training" has only the settings of the experiment
    datasets: frozenset[str] | None  # real data sets that it is for; None: all
    n_seeds: float  # largest number of seeds; infinity: all of the experiment

    def on(self, dataset: str, subject: int, pool: Sequence[int] = ()) -> dict[str, Any]:
        """Return the arguments that all runs of the line on a subject have, with all training settings.

        The sources "others" are replaced by the subjects in ``pool`` other than ``subject``.
        """
        training = complete_training(self.arguments["model"], dataset, self.arguments["training"])
        if self.uses_others:
            training["sources"] = sorted(number for number in pool if number != subject)
        elif "sources" in training and training.get("own_trials") == UNLABELLED:
            training["sources"] = [number for number in training["sources"] if number != subject]
        return {**self.arguments, "training": training}

    @property
    def uses_others(self) -> bool:
        """Whether the sources are all other subjects of the experiment."""
        return bool(self.arguments["training"].get("sources") == OTHERS)

    def is_for(self, dataset: str) -> bool:
        """Return whether the line includes a data set, or the real one that a simulated data set imitates."""
        return self.datasets is None or original(dataset) in self.datasets


def lines(experiment: Experiment) -> Iterator[Line]:
    """Yield the lines of the table of an experiment, model by model."""
    for row in experiment.models:
        training = {**experiment.protocol_training, **experiment.training.given(), **row.training.given()}
        if training.get("own_trials") != UNLABELLED:
            training.pop("own_trials", None)  # the default
        datasets = None if row.datasets is None else frozenset(map(original, row.datasets))
        for setting, options, changes in experiment.variants(row.options):
            # with a paradigm, options that are not given follow from the training data
            recorded = canonicalize(options) if "paradigm" in training else canonical_options(row.model, options)
            model = {"model": row.model, "options": recorded, "training": training}
            model |= {"reading": experiment.how_to_read, "protocol": experiment.own_protocol}
            yield Line(row.label, setting, {**model, **changes}, datasets, _count_seeds(row))


def _count_seeds(row: ModelRow) -> float:
    """Return the largest number of seeds of a model: 1 for classical pipelines, infinity if it is not limited."""
    from gbwatt.models.registry import entry  # imports torch

    if entry(row.model).classical:
        return 1
    return math.inf if row.seeds is None else row.seeds


def _expand_lines(
    experiment: Experiment, source: Recordings, n_splits: int, root: str | Path | None
) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Yield line and all run arguments except the seed, for each line, subject and split of a data set."""
    name, reading = source.dataset, experiment.how_to_read
    parts = [
        {"dataset": name, "subject": subject, "split": split, "data": data}
        for subject, data in ((number, _fingerprint_of(name, number, root, reading)) for number in source.subjects)
        for split in range(n_splits)
    ]
    pool: tuple[int, ...] | None = None
    for line in lines(experiment):
        if not line.is_for(source.requested):
            continue
        if line.uses_others and pool is None:
            pool = _find_pool(experiment, source, root)
        yield from ((line, _run_arguments(line, part, pool or (), root)) for part in parts)


def _find_pool(experiment: Experiment, source: Recordings, root: str | Path | None) -> tuple[int, ...]:
    """Return all subjects of the experiment whose files exist, also those that are not selected for this call."""
    simulated = "always" if source.simulated else "never"
    subjects = subjects_on(experiment.subjects, source.requested)
    return _choose_recordings(source.requested, subjects, simulated, root).subjects


def _fingerprint_of(name: str, subject: int, root: str | Path | None, reading: Mapping[str, Any]) -> str:
    """Return the fingerprint of the recordings of a subject, or of the whole corpus if it has an executor."""
    executor = find_executor(name)
    return fingerprint(name, subject, root, reading) if executor is None else executor.fingerprint(name, root)


def _run_arguments(line: Line, part: dict[str, Any], pool: Sequence[int], root: str | Path | None) -> dict[str, Any]:
    """Return all arguments of a run except the seed: those of its line, and ``part``, which selects its trials.

    ``pool`` are the subjects that the sources "others" stand for.
    """
    arguments = {**part, **line.on(part["dataset"], part["subject"], pool)}
    executor = find_executor(part["dataset"])
    if executor is not None:  # the data of runs on corpora include the pretrained weights
        arguments["data"] = executor.extend_fingerprint(part["data"], arguments["options"], root)
    elif "sources" in arguments["training"]:
        reading, sources = arguments["reading"], arguments["training"]["sources"]
        if not sources:
            raise ParameterError(
                f"sources: {part['dataset']} has no other subject with files than {part['subject']} among the sources "
                f"of {line.label!r}; add subjects or files."
            )
        others = [_fingerprint_of(part["dataset"], number, root, reading) for number in sources]
        arguments["data"] = f"{part['data']}+{hashlib.sha256(' '.join(others).encode()).hexdigest()[:16]}"
    return arguments


def canonical_options(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write out the options that a recipe, or its default, stands for: the same network gets the same key.

    Examples
    --------
    >>> canonical_options("gbwatt", {"theta": 1, "recipe": "paper"})
    {'aggregation': 'frechet', 'shrinkage': 0, 'theta': 1}
    >>> canonical_options("spdnet", {})
    {'shrinkage': 0}
    """
    from gbwatt.models.gbwatt import RECIPES  # imports torch
    from gbwatt.models.registry import to_record

    recorded = to_record(model, options)
    if model in ATTENTION_MODELS:
        recorded = {**RECIPES[recorded.pop("recipe", "paper")], **recorded}
    elif model in COVARIANCE_MODELS:
        recorded = {"shrinkage": 0, **recorded}
    return {name: canonicalize(value) for name, value in recorded.items()}


#: Fields that distinguish the runs of one line of a table.
_FIELDS_IN_LINE = ("dataset", "subject", "split", "seed", "data")
_SEED = _FIELDS_IN_LINE.index("seed")
_RunIndex = tuple[Any, ...]  # values of these fields


def match_runs(experiment: Experiment, rows: Iterable[Row], datasets: Sequence[str] | None = None) -> list[LabelledRun]:
    """Return the runs of an experiment that rows belong to, derived from the rows.

    Each line of the table gets the subjects, splits and seeds that any line has, up to its own number of seeds.  Runs
    without a row are missing.

    Parameters
    ----------
    experiment : Experiment
        Experiment whose lines are matched.
    rows : iterable of Row
        Results; rows of other experiments are ignored.
    datasets : sequence of str, optional
        Only these data sets; a real data set and its simulated counterpart are two.
    """
    table_lines = list(lines(experiment))
    matched, pools = _match_lines(experiment, table_lines, rows, datasets)
    indices: dict[_RunIndex, None] = {}
    data: dict[tuple[int, _RunIndex], str] = {}  # by line: the fingerprint includes weights and other subjects
    for run, matches in matched:
        index = _index_in_line(run)
        indices[index] = None
        data.update({(number, index): run.data for number in matches})
    by_dataset: dict[str, list[_RunIndex]] = defaultdict(list)
    for index in indices:
        by_dataset[index[0]].append(index)
    return [
        LabelledRun(
            line.label,
            line.setting,
            _make_run(line, index, data.get((number, index)) or index[-1], pools.get(name, ())),
        )
        for name, group in by_dataset.items()
        for number, line in enumerate(table_lines)
        if line.is_for(name)
        for index in _with_first_seeds(group, line.n_seeds)
    ]


def _match_lines(
    experiment: Experiment, table_lines: Sequence[Line], rows: Iterable[Row], datasets: Sequence[str] | None
) -> tuple[list[tuple[Run, list[int]]], dict[str, tuple[int, ...]]]:
    """Return the runs of rows with the numbers of their lines, and for each data set the pool of "others".

    If rows have different pools, because some were obtained with fewer files, those of the largest pool are matched.
    """
    of_others = {number for number, line in enumerate(table_lines) if line.uses_others}
    requested = (run for run in (Run.from_dict(row.run) for row in rows) if _is_requested(run, experiment, datasets))
    numbered = [(run, [n for n, line in enumerate(table_lines) if _is_run_of(run, line)]) for run in requested]
    matched = [(run, numbers) for run, numbers in numbered if numbers]
    pools: dict[str, tuple[int, ...]] = {}
    for name in {run.dataset for run, _ in matched} if of_others else ():
        every = _requested_subjects(name, subjects_on(experiment.subjects, name))
        seen = {_pool_of(run) for run, numbers in matched if run.dataset == name and of_others & set(numbers)}
        own = [pool for pool in seen if set(pool) <= set(every)]
        pools[name] = max(own, key=lambda pool: (len(pool), pool), default=every)
    kept = (
        (run, [n for n in numbers if n not in of_others or _pool_of(run) == pools[run.dataset]])
        for run, numbers in matched
    )
    return [(run, numbers) for run, numbers in kept if numbers], pools


def _pool_of(run: Run) -> tuple[int, ...]:
    """Return the subjects of which a run has trials, in order: its sources, if any, and its own."""
    return tuple(sorted({*run.training.get("sources", ()), run.subject}))


def _with_first_seeds(indices: Sequence[_RunIndex], n_seeds: float) -> Iterator[_RunIndex]:
    """Yield the indices whose seed is one of the smallest ``n_seeds`` seeds."""
    seeds = sorted({index[_SEED] for index in indices})
    return (index for index in indices if seeds.index(index[_SEED]) < n_seeds)


def _make_run(line: Line, index: _RunIndex, data: str, pool: Sequence[int]) -> Run:
    """Make the run with an index of :func:`_index_in_line` in a line.

    ``data`` is the fingerprint of its data, and ``pool`` are the subjects that the sources "others" stand for.
    """
    return Run(**dict(zip(_FIELDS_IN_LINE, (*index[:-1], data), strict=True)), **line.on(index[0], index[1], pool))


def _is_run_of(run: Run, line: Line) -> bool:
    """Return whether a run belongs to a line of a table, because it has all arguments of the line."""
    others = (getattr(run, name) == value for name, value in line.arguments.items() if name != "training")
    # settings of training take longer to look up
    return all(others) and run.training == line.on(run.dataset, run.subject, _pool_of(run))["training"]


def _index_in_line(run: Run) -> _RunIndex:
    """Return what distinguishes a run from others of its line: data set, subject, split, seed and recordings."""
    *values, data = (getattr(run, name) for name in _FIELDS_IN_LINE)
    executor = find_executor(run.dataset)
    return (*values, data.partition("+")[0] if executor is None else executor.base_fingerprint(data))


def _is_requested(run: Run, experiment: Experiment, datasets: Sequence[str] | None) -> bool:
    """Return whether a run has a subject of the experiment, and a data set that is requested.

    Requested are ``datasets`` or, without these, the data sets of the experiment and their simulated counterparts.
    """
    subjects = subjects_on(experiment.subjects, run.dataset)
    if not isinstance(subjects, str) and run.subject not in subjects:
        return False
    name = run.dataset
    return name in datasets if datasets is not None else original(name) in map(original, experiment.datasets)


# ------------------------------------------------------------------------------------------------------------- results


class Cell(NamedTuple):
    """A cell of a table: its line and its data set."""

    label: str
    setting: str
    dataset: str

    @property
    def line(self) -> str:
        """Label and setting in one text."""
        return ", ".join(filter(None, self[:2]))


@dataclass
class CellResults:
    """Results of the runs of one cell."""

    done: list[Row] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)  # keys of runs
    missing: set[str] = field(default_factory=set)  # keys of runs
    training: set[str] = field(default_factory=set)  # training settings that differ from the registered ones

    def scores(self, pick: Callable[[Row], float | None]) -> Scores:
        """Values that ``pick`` takes from the rows, by subject, one for each seed; splits are averaged."""
        values: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in self.done:
            value = pick(row)
            if value is not None:
                values[row.run["subject"]][row.run["seed"]].append(value)
        return {subject: [float(np.mean(v)) for v in seeds.values()] for subject, seeds in sorted(values.items())}


class Results(dict[Cell, CellResults]):
    """Results of an experiment by table cell, in the order of its lines."""

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Label and setting of each line."""
        return list(dict.fromkeys((cell.label, cell.setting) for cell in self))

    @property
    def datasets(self) -> list[str]:
        """Names of the data sets."""
        return list(dict.fromkeys(cell.dataset for cell in self))


def collect_results(runs: Sequence[LabelledRun], rows: Mapping[str, Row]) -> Results:
    """Sort rows of results into the cells of a table.

    Parameters
    ----------
    runs : sequence of LabelledRun
        All runs of the table.
    rows : dict
        Rows by the keys of their runs.  A run without a row counts as missing.
    """
    results, of_cells = Results(), defaultdict[Cell, dict[str, Run]](dict)
    for label, setting, run in runs:
        of_cells[Cell(label, setting, run.dataset)].setdefault(run.key, run)
    for cell, unique in of_cells.items():
        results[cell] = _collect_cell(unique, rows)
    return results


def _collect_cell(runs: Mapping[str, Run], rows: Mapping[str, Row]) -> CellResults:
    """Sort the rows of the runs of one cell; both are given by key."""
    executed = [run for key, run in runs.items() if key in rows]
    group = CellResults(training=_training_texts(executed or list(runs.values())))
    for key in runs:
        row = rows.get(key)
        if row is None:
            group.missing.add(key)
        elif row.status == "failed":
            group.failed.add(key)
        else:
            group.done.append(row)
    return group


def _training_texts(runs: Sequence[Run]) -> set[str]:
    """Return texts of the training settings of runs that differ from the registered ones.

    Sources that are all other subjects are the same setting for all subjects.
    """
    changes = [training_changes(run) for run in runs]
    pools = {_pool_of(run) for run in runs}
    if len(pools) == 1 and len({tuple(one.get("sources", ())) for one in changes}) > 1:
        others = f"all others of {[*pools.pop()]}"
        changes = [{**one, "sources": others} if "sources" in one else one for one in changes]
    return {_join(f"{name} = {value}" for name, value in sorted(one.items())) for one in changes}


__getattr__ = renamed(__name__, {"twin": "simulated_counterpart"})
