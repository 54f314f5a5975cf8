"""One function for all recordings, by the name of a data set or of a file."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gbwatt import _plugins
from gbwatt._validation import check_one_of
from gbwatt.data import simulated
from gbwatt.data.datasets import Dataset, Source, find_source, index_files
from gbwatt.data.formats.moabb import open_dataset, read_moabb
from gbwatt.data.formats.npz import read_npz
from gbwatt.data.formats.recordings import read_file
from gbwatt.data.plausibility import check_trials
from gbwatt.data.preprocessing import Preprocessing
from gbwatt.data.sets import bcic2a, ern, mamem, physionet
from gbwatt.data.splits import InOrder
from gbwatt.data.trials import Trials, concatenate
from gbwatt.errors import MismatchError, MissingFileError, ParameterError

#: All data sets by name: those of the paper, those of plugins, and others.
DATASETS = _plugins.PluginMapping(
    _plugins.DATASETS,
    Dataset,
    first=(bcic2a.DATASET, mamem.DATASET, ern.DATASET),
    last=(physionet.DATASET, *simulated.DATASETS),
)

_MOABB = "moabb:"


def list_datasets() -> list[str]:
    """Names that :func:`load` knows."""
    return list(DATASETS)


def find_dataset(name: str | Path) -> Dataset:
    """A data set by its name, or the beginning of one; ``"moabb:NAME"`` for any of MOABB; or a file of recordings.

    Examples
    --------
    >>> find_dataset("mamem").name
    'mamem-ssvep-ii'
    >>> find_dataset("mamem-ssvep-ii").protocol
    BySession(train=('1', '2', '3'), valid=('4',), test=('5',))
    """
    text = str(name)
    if text in DATASETS:
        return DATASETS[text]
    if text.startswith(_MOABB):
        return _of_moabb(text.removeprefix(_MOABB))
    if isinstance(name, Path) or Path(text).suffix or Path(text).exists():
        return _of_file(Path(name).expanduser())
    begun = [known for known in DATASETS if text and known.startswith(f"{text}-")]
    if len(begun) == 1:
        return DATASETS[begun[0]]
    check_one_of("dataset", text, tuple(DATASETS))
    raise AssertionError  # one_of has raised


def load(
    name: str | Path,
    subject: int | Iterable[int] | Literal["all"] | None = None,
    *,
    root: str | Path | None = None,
    source: str | None = None,
    preprocessing: Preprocessing | Literal["preset"] | None = "preset",
    **options: Any,
) -> Trials:
    """Trials of a data set.

    Parameters
    ----------
    name : str or path
        One of :func:`list_datasets`; ``"moabb:NAME"`` for any data set of MOABB, which may download it; or a file:
        ``.npz``, or epochs or a recording in a format that MNE reads.
    subject : int, several, "all", or None
        None is the first.  A recording is given the number.
    root : path, optional
        The folder of recordings; by default what the environment variable GBWATT_DATA says, else ``~/gbwatt_data``.
        Files are looked for in the data set's own folder there, and below it.
    source : str, optional
        The form of the files; by default the first whose files are there.  ``"moabb"`` may download.
    preprocessing : Preprocessing, "preset" or None
        Steps to take: those that the source states for the paper's trials, others, or none.
    **options
        Further arguments of the reader: ``difficulty`` and ``seed`` of simulated recordings; ``classes``, ``tmin`` and
        ``tmax`` for recordings with annotations.

    Examples
    --------
    >>> trials = load("simulated-ssvep", subject=1)
    >>> trials.shape
    (500, 8, 125)
    """
    dataset = find_dataset(name)
    index = index_files(dataset, root)
    parts = []
    for number in _subjects(dataset, subject):
        chosen, files = find_source(dataset, number, root, source, index)
        _check_options(dataset, chosen, options)
        steps = _steps(preprocessing, chosen)
        trials = chosen.read(files, number, **options)
        check_trials(f"{dataset.name}, subject {number}" if dataset.subjects else dataset.name, trials)
        parts.append(steps(trials))
    return parts[0] if len(parts) == 1 else concatenate(parts)


def _steps(preprocessing: Preprocessing | str | None, source: Source) -> Preprocessing:
    if isinstance(preprocessing, str):
        check_one_of("preprocessing", preprocessing, ("preset",))
        return source.preprocessing
    if not isinstance(preprocessing, Preprocessing | None):
        raise MismatchError(
            f"preprocessing is a {type(preprocessing).__name__}; Preprocessing(step, ...), 'preset' or None is needed."
        )
    return preprocessing or Preprocessing()


def _subjects(dataset: Dataset, subject: Any) -> list[int]:
    if subject is None:
        return [dataset.subjects[0] if dataset.subjects else 1]
    if isinstance(subject, str):
        check_one_of("subject", subject, ("all",))
        return list(dataset.subjects) or [1]
    try:
        asked = [operator.index(s) for s in ([subject] if np.ndim(subject) == 0 else subject)]
    except TypeError:
        raise MismatchError(f"subject={subject!r} must be a whole number, several, 'all' or None.") from None
    if not dataset.subjects:  # a recording: it is that subject's
        if len(asked) != 1:
            raise ParameterError(f"{dataset.name} is the recording of one subject, but got subject={asked}.")
        return asked
    known = (*dataset.subjects, *dataset.held_back)
    unknown = [s for s in asked if s not in known]
    if len(set(asked)) != len(asked):
        raise ParameterError(f"subject={asked} has a subject twice.")
    if unknown or not asked:
        which = unknown[0] if unknown else asked
        raise ParameterError(f"subject={which!r} is not in {dataset.name}; it has {_ranges(known)}.")
    return asked


def _ranges(numbers: tuple[int, ...]) -> str:
    """Numbers in short, ``"2, 6-7, 11-14"``."""
    ordered = np.sort(numbers)
    parts = np.split(ordered, np.flatnonzero(np.diff(ordered) != 1) + 1)
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _check_options(dataset: Dataset, source: Source, options: dict[str, Any]) -> None:
    for name in options:
        if not source.options:
            raise ParameterError(f"{dataset.name} ({source.name}) has no options, but got {name}={options[name]!r}.")
        check_one_of(f"option of {dataset.name}", name, source.options)


def _of_file(file: Path) -> Dataset:
    """A data set that is one file."""
    if not file.exists():  # some formats are folders
        raise MissingFileError(f"{file} does not exist, and it is no data set: those are {', '.join(DATASETS)}.")
    source, subjects = _arrays(file) if file.suffix == ".npz" else _recording(file)
    return Dataset(
        name=str(file),
        title="a file of recordings",
        subjects=subjects,
        sources=(source,),
        protocol=InOrder(),
        task=None,
        pipeline="tangent",
    )


def _arrays(file: Path) -> tuple[Source, tuple[int, ...]]:
    """A file of arrays, and the subjects in it."""
    trials = read_npz(file)

    def read(files: Sequence[Path], subject: int) -> Trials:  # noqa: ARG001
        return trials.select(subject=subject)

    return Source("npz", read), tuple(np.unique(trials.subject).tolist())


def _recording(file: Path) -> tuple[Source, tuple[int, ...]]:
    """A file that MNE reads, of whatever subject."""

    def read(files: Sequence[Path], subject: int, **options: Any) -> Trials:  # noqa: ARG001
        return read_file(file, subject=subject, **options)

    return Source("mne", read, options=("classes", "tmin", "tmax", "session", "run", "channels")), ()


def _of_moabb(name: str) -> Dataset:
    """Any data set of MOABB."""
    found = open_dataset(name)

    def read(files: Sequence[Path], subject: int, **options: Any) -> Trials:  # noqa: ARG001
        return read_moabb(name, subject, **options)

    return Dataset(
        name=_MOABB + name,
        title=f"{name} through MOABB",
        subjects=tuple(found.subject_list),
        sources=(Source("moabb", read, options=("band", "resample")),),
        protocol=InOrder(),
        task=None,
        pipeline={"ssvep": "cca", "p300": "lda"}.get(found.paradigm, "tangent"),
    )
