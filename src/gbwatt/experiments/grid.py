"""From an experiment to its runs, and from rows of results back to the experiment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gbwatt._validation import check_one_of
from gbwatt.data import MissingFileError, data_root, find_dataset
from gbwatt.data.datasets import subjects_here
from gbwatt.data.fingerprint import fingerprint
from gbwatt.data.simulated import SETS
from gbwatt.errors import ParameterError
from gbwatt.experiments.runs import Cell, Row, Run, find_executor, tidy, written_out
from gbwatt.experiments.yaml_io import ConfigurationError, Problem

if TYPE_CHECKING:
    from gbwatt.experiments.config import Experiment


Subjects = Sequence[int] | Literal["all"]
#: Runs of one experiment; the largest of the paper's has some ten thousand.
MOST_RUNS = 200_000

ATTENTIVE = frozenset({"gbwatt", "bwatt", "matt"})  # models with recipes
REGULARISED = frozenset({"spdnet", "spdnetbn"})  # others whose covariances can be regularised


class Provenance(NamedTuple):
    """Where the recordings of a data set come from."""

    asked: str  # the data set of the experiment
    dataset: str  # the one that is read: itself, or the simulated one in its place
    subjects: tuple[int, ...]
    missing: tuple[int, ...]  # subjects that were asked for and have no files
    reason: str  # or why it is left out, if it has no subjects

    @property
    def simulated(self) -> bool:
        """Whether the recordings are simulated."""
        return self.dataset in SETS

    def __str__(self) -> str:
        what = self.asked if self.dataset == self.asked else f"{self.asked} by {self.dataset}"
        if not self.subjects:
            return f"{what}: left out; {self.reason}"
        return f"{what}: {_count(self.subjects)}; {self.reason}"


def _count(subjects: Sequence[int]) -> str:
    return "1 subject" if len(subjects) == 1 else f"{len(subjects)} subjects"


def twin(name: str) -> str | None:
    """The simulated set in the shapes of a real one.

    Examples
    --------
    >>> twin("mamem-ssvep-ii")
    'simulated-ssvep'
    """
    return next((paradigm.name for paradigm in SETS.values() if paradigm.like.name == name), None)


def original(name: str) -> str:
    """The real set that a simulated one is like; others are themselves."""
    return SETS[name].like.name if name in SETS else name


# ---------------------------------------------------------------------------------------------------------- recordings


def find_recordings(
    datasets: Sequence[str], subjects: Subjects, simulated: str, root: str | Path | None = None
) -> dict[str, Provenance]:
    """Real or simulated recordings for each data set; those that have none of the subjects are without any."""
    _require_known(datasets, subjects)
    found = {name: _provenance(name, _asked(name, subjects), simulated, root, subjects) for name in datasets}
    absent = [source for source in found.values() if source.missing and not source.subjects]
    if found and not any(source.subjects or source.missing for source in found.values()):
        raise ParameterError(f"subjects: {'; '.join(source.reason for source in found.values())}.")
    if absent:
        raise MissingFileError(_nothing(absent, simulated, root))
    by_source: dict[str, str] = {}
    for source in (source for source in found.values() if source.subjects):
        other = by_source.setdefault(source.dataset, source.asked)
        if other != source.asked:
            raise ParameterError(
                f"datasets: {other!r} and {source.asked!r} are both {source.dataset!r} here; leave one of them out."
            )
    return found


def _require_known(datasets: Sequence[str], subjects: Subjects) -> None:
    if isinstance(subjects, str):
        return
    known = {name: _known(name) for name in datasets}
    for number in subjects:
        if not any(number in numbers or not numbers for numbers in known.values()):
            all_ = "; ".join(f"{name} has {', '.join(map(str, numbers))}" for name, numbers in known.items())
            raise ParameterError(f"subjects: {number} is in none of the data sets: {all_}.")


def _known(name: str) -> tuple[int, ...]:
    dataset = find_dataset(name)
    return (*dataset.subjects, *dataset.held_back)


def _asked(name: str, subjects: Subjects) -> tuple[int, ...]:
    """Subjects of a data set that are asked for, maybe none; a number that only other sets have is theirs."""
    if isinstance(subjects, str):
        return find_dataset(name).subjects or (1,)
    known = _known(name)
    return _common(subjects, known) if known else tuple(subjects)


def _common(subjects: Sequence[int], known: Sequence[int]) -> tuple[int, ...]:
    return tuple(number for number in subjects if number in known)


def _without(asked: str, name: str, subjects: Subjects, known: Sequence[int]) -> Provenance:
    """A data set that is left out, because the one that would be read has none of the subjects."""
    reason = f"{name} has none of {', '.join(map(str, subjects))}, it has {', '.join(map(str, known))}"
    return Provenance(asked, name, (), (), reason)


def _provenance(
    name: str, asked: tuple[int, ...], simulated: str, root: str | Path | None, subjects: Subjects
) -> Provenance:
    check_one_of("simulated", simulated, ("auto", "always", "never"))
    if not asked:
        return _without(name, name, subjects, _known(name))
    if name in SETS:
        return Provenance(name, name, asked, (), "simulated")
    if simulated == "always":
        return _simulated(name, asked, "simulated, as asked for")
    dataset = find_dataset(name)
    present = subjects_here(dataset, root) if dataset.subjects else asked  # a recording is there, or was not found
    here = tuple(number for number in asked if number in present)
    missing = tuple(number for number in asked if number not in here)
    if here or simulated == "never" or twin(name) is None:
        left = f"no files of subjects {', '.join(map(str, missing))}" if missing else "all files are there"
        return Provenance(name, name, here, missing, left)
    return _simulated(name, asked, f"simulated, because none of its files are in {data_root(root)}")


def _simulated(name: str, asked: tuple[int, ...], reason: str) -> Provenance:
    other = twin(name)
    if other is None:
        pairs = ", ".join(paradigm.like.name for paradigm in SETS.values())
        raise ParameterError(f"dataset={name!r} has no simulated set in its place; those that have: {pairs}.")
    known = find_dataset(other).subjects
    there = _common(asked, known)
    if not there:
        return _without(name, other, asked, known)
    missing = tuple(number for number in asked if number not in there)
    return Provenance(name, other, there, missing, reason)


def _nothing(absent: Iterable[Provenance], simulated: str, root: str | Path | None) -> str:
    lines = [f"simulated={simulated!r}, and in {data_root(root)} files are missing:"]
    for source in absent:
        where = find_dataset(source.asked).where
        lines.append(f"  {source.asked}, all of subjects {', '.join(map(str, source.missing))}")
        lines += [f"    from {where}"] * bool(where)
    lines.append("The folder is root=, else the environment variable GBWATT_DATA, else ~/gbwatt_data.")
    if any(twin(source.asked) for source in absent):
        lines.append("simulated='auto' takes simulated recordings where there are no files.")
    return "\n".join(lines)


# --------------------------------------------------------------------------------------------------------------- cells


def count_splits(name: str) -> int:
    """How many splits each subject of a data set has."""
    protocol = find_dataset(name).protocol
    if protocol.per_subject is None:
        raise ParameterError(
            f"dataset={name!r} is divided between subjects ({type(protocol).__name__}); runs are of one subject each."
        )
    return protocol.per_subject


def expand(
    experiment: Experiment, recordings: Iterable[Provenance], seeds: Sequence[int], root: str | Path | None = None
) -> list[Cell]:
    """All cells, seed by seed: whoever stops half-way has the whole table with fewer seeds."""
    recordings = list(recordings)
    _require_few_runs(experiment, recordings, len(seeds))
    first = [cell for source in recordings for cell in _cells(experiment, source, root)]
    if not first:
        raise ParameterError(f"experiment {experiment.name!r} has no model for these data sets.")
    return [Cell(label, setting, Run(seed=seed, **arguments)) for seed in seeds for label, setting, arguments in first]


def _require_few_runs(experiment: Experiment, recordings: Sequence[Provenance], seeds: int) -> None:
    """Refuse a grid that would take all memory, before it does."""
    lines = len(experiment.models) * (1 if experiment.vary is None else len(experiment.vary.values))
    parts = sum(len(source.subjects) * count_splits(source.dataset) for source in recordings)
    if lines * parts * seeds > MOST_RUNS:
        text = (
            f"{lines} lines × {parts} subjects and splits × {seeds} seeds are {lines * parts * seeds} runs; at most "
            f"{MOST_RUNS} are possible: take fewer seeds or subjects, or several experiments."
        )
        raise ConfigurationError(f"experiment {experiment.name!r}", [Problem(("seeds",), text)])


class Line(NamedTuple):
    """A line of a table: what its runs have in common."""

    label: str
    setting: str
    arguments: dict[str, Any]  # of a run; of training what is given
    datasets: frozenset[str] | None  # that it is for, real ones, if not for all

    def on(self, dataset: str) -> dict[str, Any]:
        """The arguments of its runs on a data set, with all settings of training."""
        given = self.arguments
        return {**given, "training": written_out(given["model"], dataset, given["training"])}

    def is_for(self, dataset: str) -> bool:
        """Whether it is for a data set, or for the one that this is like."""
        return self.datasets is None or original(dataset) in self.datasets


def lines(experiment: Experiment) -> Iterator[Line]:
    """All lines of an experiment, those of a model one after the other."""
    for row in experiment.models:
        training = {**experiment.training.given(), **row.training.given()}
        only = None if row.datasets is None else frozenset(map(original, row.datasets))
        for setting, options, changes in experiment.variants(row.options):
            model = {"model": row.model, "options": settled(row.model, options), "training": training}
            yield Line(row.label, setting, {**model, **changes}, only)


def _cells(
    experiment: Experiment, source: Provenance, root: str | Path | None
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Label, setting, and all of a run but the seed."""
    parts = [
        {"dataset": source.dataset, "subject": subject, "split": split, "data": data}
        for subject, data in ((number, _fingerprint(source.dataset, number, root)) for number in source.subjects)
        for split in range(count_splits(source.dataset))
    ]
    for line in lines(experiment):
        if line.is_for(source.asked):
            yield from ((line.label, line.setting, _placed(line, part, root)) for part in parts)


def _fingerprint(name: str, subject: int, root: str | Path | None) -> str:
    executor = find_executor(name)
    return fingerprint(name, subject, root) if executor is None else executor.fingerprint(name, root)


def _placed(line: Line, part: dict[str, Any], root: str | Path | None) -> dict[str, Any]:
    """Return the arguments of a line's runs on a part of the recordings."""
    arguments = {**part, **line.on(part["dataset"])}
    executor = find_executor(part["dataset"])
    if executor is not None:  # the data of runs on corpora include the pretrained weights
        arguments["data"] = executor.extend_fingerprint(part["data"], arguments["options"], root)
    return arguments


def settled(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options, with what a recipe stands for, or none, written out: the same network is the same run everywhere.

    When a recipe changes, its runs are others.

    Examples
    --------
    >>> settled("gbwatt", {"theta": 1, "recipe": "paper"})
    {'aggregation': 'frechet', 'shrinkage': 0, 'theta': 1}
    >>> settled("spdnet", {})
    {'shrinkage': 0}
    """
    from gbwatt.models.gbwatt import RECIPES  # imports torch
    from gbwatt.models.registry import to_record

    given = to_record(model, options)
    if model in ATTENTIVE:
        given = {**RECIPES[given.pop("recipe", "paper")], **given}
    elif model in REGULARISED:
        given = {"shrinkage": 0, **given}
    return {name: tidy(value) for name, value in given.items()}


#: What tells the runs of one line of a table apart.
PLACE = ("dataset", "subject", "split", "seed", "data")
Place = tuple[Any, ...]


def cells_of(experiment: Experiment, rows: Iterable[Row], datasets: Sequence[str] | None = None) -> list[Cell]:
    """Every line of an experiment with all subjects and seeds that any of its lines has.

    Cells without a row are runs that are missing.  Data sets are those of the rows, or of these the ones that are asked
    for; a real one and its simulated twin are two.
    """
    known = list(lines(experiment))
    places: dict[Place, None] = {}
    data: dict[tuple[int, Place], str] = {}  # of a line's own runs: on corpora, weights are among the data
    for run in (Run.from_dict(row.run) for row in rows):
        of = [number for number, line in enumerate(known) if _is_of(run, line)]
        if of and _is_requested(run.dataset, experiment, datasets):
            places[_place(run)] = None
            data.update(dict.fromkeys(((number, _place(run)) for number in of), run.data))
    names = dict.fromkeys(place[0] for place in places)  # one data set after the other
    return [
        Cell(line.label, line.setting, _run(line, place, data.get((number, place)) or place[-1]))
        for name in names
        for number, line in enumerate(known)
        if line.is_for(name)
        for place in places
        if place[0] == name
    ]


def _run(line: Line, place: Place, data: str) -> Run:
    where = dict(zip(PLACE, (*place[:-1], data), strict=True))
    return Run(**where, **line.on(place[0]))


def _is_of(run: Run, line: Line) -> bool:
    return all(getattr(run, name) == value for name, value in line.on(run.dataset).items())


def _place(run: Run) -> Place:
    *where, data = (getattr(run, name) for name in PLACE)
    executor = find_executor(run.dataset)
    return (*where, data if executor is None else executor.base_fingerprint(data))


def _is_requested(name: str, experiment: Experiment, datasets: Sequence[str] | None) -> bool:
    return name in datasets if datasets is not None else original(name) in map(original, experiment.datasets)
