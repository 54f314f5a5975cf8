"""Loading of trials by the name of a data set or file, and fingerprints of what is loaded."""

from __future__ import annotations

import difflib
import hashlib
import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from gbwatt import _plugins
from gbwatt._text import number_ranges
from gbwatt._validation import check_one_of
from gbwatt.data import simulated
from gbwatt.data._reading import SUFFIXES, check_trials, expect_different, expect_no_folder, naming_file
from gbwatt.data.datasets import Dataset, DatasetSource, data_root, find_source, index_files
from gbwatt.data.formats.moabb import open_dataset, read_moabb
from gbwatt.data.formats.npz import read_npz
from gbwatt.data.formats.recordings import read_file
from gbwatt.data.preprocessing import Preprocessing
from gbwatt.data.preprocessing.parsing import EXAMPLE
from gbwatt.data.sets import bci2b, bcic2a, ern, mamem, p300, physionet
from gbwatt.data.splits import InOrder
from gbwatt.data.trials import Trials, concatenate_named
from gbwatt.errors import MismatchError, MissingFileError, ParameterError

#: All data sets by name: those of the paper, those of plugins, and others.
DATASETS = _plugins.PluginMapping(
    _plugins.DATASETS,
    Dataset,
    first=(bcic2a.DATASET, mamem.DATASET, ern.DATASET),
    last=(physionet.DATASET, physionet.LEFT_RIGHT, bci2b.DATASET, *p300.DATASETS, *simulated.DATASETS),
)

_MOABB_PREFIX = "moabb:"  # of names of data sets that MOABB reads


def list_datasets() -> list[str]:
    """Return the names of the data sets that :func:`load` knows.

    Returns
    -------
    list of str

    Examples
    --------
    >>> list_datasets()[:3]
    ['bcic-iv-2a', 'mamem-ssvep-ii', 'bci-ern']
    """
    return list(DATASETS)


#: Data sets and files, as arguments: a name, a path, several files, or the files of each subject.
Recordings = str | Path | Sequence[str | Path] | Mapping[int, str | Path | Sequence[str | Path]]


def find_dataset(name: Recordings) -> Dataset:
    """Find a data set by name.

    Parameters
    ----------
    name : str, path, list of paths or dict
        A name of :func:`list_datasets`, or the part of one before a hyphen if only one name begins with it;
        ``"moabb:NAME"`` for a data set of MOABB; the path of a file; several files, which are recordings of the
        subjects 1, 2, … in this order; or the files of each subject, which are its sessions, ``{1: ["a.edf",
        "b.edf"], 2: "c.edf"}``.  Several files can also be given as a text, ``"1=a.edf + 1=b.edf + 2=c.edf"``.

    Returns
    -------
    Dataset

    Raises
    ------
    ParameterError
        If there is no data set of this name.
    MissingFileError
        If the name looks like a file, which does not exist.

    Examples
    --------
    >>> find_dataset("mamem").name
    'mamem-ssvep-ii'
    >>> find_dataset("mamem-ssvep-ii").protocol
    BySession(train=('1', '2', '3'), valid=('4',), test=('5',))
    """
    if isinstance(name, Mapping):
        for number, files in name.items():
            if not _as_list(files):
                raise ParameterError(f"dataset has no files of subject {number}; give at least one, or leave it out.")
        name = [f"{number}={file}" for number, files in name.items() for file in _as_list(files)]
    if isinstance(name, Sequence) and not isinstance(name, str):
        if not name:
            raise ParameterError("dataset is empty; give the name of a data set, or one file or several.")
        if len(name) == 1:
            return find_dataset(name[0])
        return file_collection([str(file) for file in name])
    text = str(name)
    if text in DATASETS:
        return DATASETS[text]
    if (SEPARATOR in text or split_number(text)[0] is not None) and not Path(text).exists():
        return file_collection(text.split(SEPARATOR))
    if text.startswith(_MOABB_PREFIX):
        return _moabb_dataset(text.removeprefix(_MOABB_PREFIX))
    if isinstance(name, Path) or Path(text).suffix or Path(text).exists():
        return _file_dataset(Path(name).expanduser())
    matches = [known for known in DATASETS if text and known.startswith(f"{text}-")]
    if len(matches) == 1:
        return DATASETS[matches[0]]
    check_one_of("dataset", text, tuple(DATASETS))
    raise AssertionError  # check_one_of has raised


def load(
    name: Recordings,
    subject: int | Iterable[int] | Literal["all"] | None = None,
    *,
    root: str | Path | None = None,
    source: str | None = None,
    preprocessing: Preprocessing | str | Sequence[Mapping[str, Any]] | None = "preset",
    **options: Any,
) -> Trials:
    """Load the trials of one or several subjects.

    Parameters
    ----------
    name : str, path, list of paths or dict
        A name of :func:`list_datasets`; ``"moabb:NAME"`` for a data set of MOABB, which MOABB downloads if necessary;
        a file: ``.npz``, or epochs or a continuous recording in a format that MNE-Python reads; or several files, see
        :func:`find_dataset`.
    subject : int, iterable of int, "all" or None
        Subjects to load; None for the first, or for all of several files.  For a file of a single recording, the number
        to assign to it.
    root : path, optional
        The data folder.  Default: the value of the environment variable GBWATT_DATA, or ``~/gbwatt_data``.
    source : str, optional
        File source (``"gdf"``, ``"processed"``, ``"moabb"``, …).  Default: the first whose files exist.
    preprocessing : Preprocessing, "preset", str, list of dict or None
        Steps to apply: those of the paper (``"preset"``), others, or none.  Other texts are parsed by
        :meth:`Preprocessing.parse`, and lists by :meth:`Preprocessing.from_records`.  Filters are applied to continuous
        recordings before trials are cut from them.  Steps that the trials of a file record already are not repeated.
    **options
        Further arguments of the reader: ``difficulty`` and ``seed`` for simulated recordings; ``classes``, ``tmin``,
        ``tmax``, ``session``, ``run`` and ``channels`` for files that MNE-Python reads; ``band`` and ``resample`` for
        MOABB.

    Returns
    -------
    Trials

    Raises
    ------
    MissingFileError
        If files of a subject do not exist.
    DataError
        If a file is damaged, or its content is not as expected.
    ParameterError
        If the data set, a subject, the source or an option is unknown.

    Examples
    --------
    >>> trials = load("simulated-ssvep", subject=1)
    >>> trials.shape
    (500, 8, 125)
    """
    dataset = find_dataset(name)
    index = index_files(dataset, root)
    parts, names = [], []
    for number in _requested_subjects(dataset, subject):
        chosen, files = find_source(dataset, number, root, source, index)
        _check_options(dataset, chosen, options)
        trials = _read_prepared(chosen, files, number, _choose_preprocessing(preprocessing, chosen), options)
        check_trials(f"{dataset.name}, subject {number}" if dataset.subjects else dataset.name, trials)
        parts.append(trials)
        names.append(_part_name(dataset, number))
    return concatenate_named(parts, names)


def _part_name(dataset: Dataset, subject: int) -> str:
    """Return what messages call the trials of a subject: the first of its files, if the data set is of files."""
    numbered = map(split_number, dataset.name.split(SEPARATOR))
    return next((file for number, file in numbered if number == subject), f"subject {subject}")


def _read_prepared(
    source: DatasetSource, files: Sequence[Path], subject: int, steps: Preprocessing, options: Mapping[str, Any]
) -> Trials:
    """Return the trials of a subject after preprocessing steps, unless their history ends with these steps."""
    if source.preprocesses:
        return source.read(files, subject, preprocessing=steps, **options)
    return _prepared(source.read(files, subject, **options), steps)


def _prepared(trials: Trials, steps: Preprocessing) -> Trials:
    """Return trials after preprocessing steps, unless their history ends with these steps."""
    return trials if steps.are_last_of(trials) else steps(trials)


def _choose_preprocessing(preprocessing: Any, source: DatasetSource) -> Preprocessing:
    """Return the steps that the argument ``preprocessing`` of :func:`load` stands for."""
    if preprocessing == "preset":
        return source.preprocessing
    if isinstance(preprocessing, str):
        if "=" not in preprocessing:
            check_one_of("preprocessing", preprocessing, ("preset",))
        return Preprocessing.parse(preprocessing)
    if isinstance(preprocessing, list | tuple) and all(isinstance(record, Mapping) for record in preprocessing):
        return Preprocessing.from_records(preprocessing)
    if not isinstance(preprocessing, Preprocessing | None):
        raise MismatchError(
            f"preprocessing is a {type(preprocessing).__name__}; Preprocessing(step, ...), 'preset', a text such as "
            f"{EXAMPLE!r} or None is needed."
        )
    return preprocessing or Preprocessing()


def _requested_subjects(dataset: Dataset, subject: Any) -> list[int]:
    """Return the subjects that the argument ``subject`` of :func:`load` stands for, as numbers.

    Raises an error for subjects that are not in the data set or are given twice.
    """
    if subject is None and not dataset.all_by_default:
        return [dataset.subjects[0] if dataset.subjects else 1]
    subject = "all" if subject is None else subject
    if isinstance(subject, str):
        check_one_of("subject", subject, ("all",))
        return list(dataset.subjects) or [1]
    try:
        requested = [operator.index(s) for s in ([subject] if np.ndim(subject) == 0 else subject)]
    except TypeError:
        raise MismatchError(f"subject={subject!r} must be a whole number, several, 'all' or None.") from None
    if not dataset.subjects:  # a recording, which is assigned to the subject
        if len(requested) != 1:
            raise ParameterError(f"{dataset.name} is the recording of one subject, but got subject={requested}.")
        return requested
    existing = (*dataset.subjects, *dataset.held_back)
    unknown = [s for s in requested if s not in existing]
    if len(set(requested)) != len(requested):
        raise ParameterError(f"subject={requested} contains a subject twice.")
    if unknown or not requested:
        which = unknown[0] if unknown else requested
        raise ParameterError(f"subject={which!r} is not in {dataset.name}; it has {number_ranges(existing)}.")
    return requested


def _check_options(dataset: Dataset, source: DatasetSource, options: dict[str, Any]) -> None:
    """Raise an error for options that the reader of the source does not have."""
    for name in options:
        if not source.options and name not in _ARGUMENTS:
            raise ParameterError(f"{dataset.name} ({source.name}) has no options, but got {name}={options[name]!r}.")
        if name not in source.options:
            raise ParameterError(f"{dataset.name} has no option {name!r}{_suggest_option(name, source.options)}")


#: Arguments of :func:`load` that are not options of a reader, by the name of their option on the command line.
_ARGUMENTS = {"preprocess": "preprocessing", "preprocessing": "preprocessing", "subjects": "subject", "root": "root"}


def _suggest_option(name: str, options: Sequence[str]) -> str:
    """Return the end of the message about an unknown option: a similar one, or all of them."""
    known = {**{option: option for option in options}, **_ARGUMENTS}
    close = difflib.get_close_matches(name.casefold(), known, n=1)
    return f". Did you mean {known[close[0]]!r}?" if close else f"; it has {', '.join(map(repr, options))}."


# ---- files and MOABB


def _file_dataset(file: Path) -> Dataset:
    """Return a data set that consists of one file, for :func:`load`."""
    if not file.exists():
        before, equals, after = str(file).partition("=")
        if equals and Path(after).expanduser().exists():
            raise ParameterError(f"{file}: {before!r} is not the number of a subject; write 1={after}, for example.")
        known = "" if file.suffix.lower() in SUFFIXES else f", and is not a data set; these are {', '.join(DATASETS)}"
        raise MissingFileError(f"{file} does not exist{known}.")
    expect_no_folder(file)
    source, subjects = _npz_source(file) if file.suffix == ".npz" else _recording_source(file)
    return Dataset(
        name=str(file),
        title="a file of recordings",
        subjects=subjects,
        sources=(source,),
        protocol=InOrder(),
        task=None,
        pipeline="tangent-space",
        unnumbered=subjects in ((), (1,)),  # 1 is the default in files
    )


def _npz_source(file: Path) -> tuple[DatasetSource, tuple[int, ...]]:
    """Return a source that reads an ``.npz`` file, and the subjects in the file."""
    trials = read_npz(file)

    def read(files: Sequence[Path], subject: int, *, preprocessing: Preprocessing) -> Trials:  # noqa: ARG001
        """Return the trials of a subject from the file, which has been read already, after preprocessing."""
        with naming_file(file):
            return _prepared(trials.select(subject=subject), preprocessing)

    return DatasetSource("npz", read, preprocesses=True), tuple(np.unique(trials.subject).tolist())


def _recording_source(file: Path) -> tuple[DatasetSource, tuple[int, ...]]:
    """Return a source that reads a file with MNE, and an empty tuple, because the subject is not in the file."""

    def read(files: Sequence[Path], subject: int, **options: Any) -> Trials:  # noqa: ARG001
        """Read the file and assign its trials to the subject."""
        return read_file(file, subject=subject, **options)

    options = ("classes", "tmin", "tmax", "session", "run", "channels")
    return DatasetSource("mne", read, options=options, preprocesses=True), ()


#: Between the files of a collection, in its name.
SEPARATOR = " + "
#: A file of a collection with the number of its subject.
_NUMBERED_FILE = re.compile(r"(\d{1,9})=(.+)", re.DOTALL)


def file_collection(names: Sequence[str]) -> Dataset:
    """Return a data set that consists of several files.

    Parameters
    ----------
    names : sequence of str
        Files, each optionally with the number of its subject, ``"2=b.edf"``.  Without numbers, files are recordings of
        the subjects 1, 2, …; ``.npz`` files keep the numbers that they store, if all of them differ.  Files of the same
        subject are its sessions, in this order.

    Raises
    ------
    ParameterError
        If a file is given twice, or only some files have numbers.
    """
    given, paths = zip(*map(split_number, names), strict=True)
    files = [Path(path).expanduser() for path in paths]
    expect_different(files, "a trial must not be in two sets")
    if None in given and any(number is not None for number in given):
        raise ParameterError(f"only some of {', '.join(names)} have the number of their subject; give all or none.")
    datasets = [_file_dataset(file) for file in files]
    stored = [number for dataset in datasets for number in dataset.subjects]
    if None in given and all(dataset.subjects for dataset in datasets) and len(set(stored)) == len(stored):
        members = [_Member(n, dataset, n) for dataset in datasets for n in dataset.subjects]
        shown, by_place = [dataset.name for dataset in datasets], False
    else:
        numbers = [place if n is None else n for place, n in enumerate(given, start=1)]
        members = [_Member(n, dataset, _only_subject(dataset)) for n, dataset in zip(numbers, datasets, strict=True)]
        shown, by_place = [f"{member.subject}={member.dataset.name}" for member in members], None in given
    return Dataset(
        name=SEPARATOR.join(shown),
        title=f"{len(files)} files of recordings" if len(files) > 1 else "a file of recordings",
        subjects=tuple(dict.fromkeys(member.subject for member in members)),
        sources=(_collection_source(members),),
        protocol=InOrder(),
        task=None,
        pipeline="tangent-space",
        all_by_default=True,
        unnumbered=by_place,
    )


def split_number(name: str) -> tuple[int | None, str]:
    """Return the number of the subject and the path of a file of a collection.

    Examples
    --------
    >>> split_number("2=b.edf"), split_number("b.edf")
    ((2, 'b.edf'), (None, 'b.edf'))
    """
    match = _NUMBERED_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else (None, name)


class _Member(NamedTuple):
    """Trials of one subject in one file of a collection."""

    subject: int  # number in the collection
    dataset: Dataset  # the file
    own_number: int | None  # number of the subject in the file; None if the file has none


def _only_subject(dataset: Dataset) -> int | None:
    """Return the number of the subject in a file of a collection; raise an error if it has several."""
    if len(dataset.subjects) > 1:
        raise ParameterError(
            f"{dataset.name} has the subjects {number_ranges(dataset.subjects)}, which are also in another file or "
            "cannot be given one number; renumber the subjects of this file."
        )
    return dataset.subjects[0] if dataset.subjects else None


def _collection_source(members: Sequence[_Member]) -> DatasetSource:
    """Return a source that reads the files of a collection; its options are those of all files."""

    def read(files: Sequence[Path], subject: int, *, preprocessing: Preprocessing, **options: Any) -> Trials:  # noqa: ARG001
        """Read the files of a subject; several files are its sessions."""
        own = [member for member in members if member.subject == subject]
        parts = []
        for session, (_, dataset, own_number) in enumerate(own, start=1):
            source = dataset.sources[0]
            known = {name: value for name, value in options.items() if name in source.options}
            number = subject if own_number is None else own_number
            trials = _read_prepared(source, [Path(dataset.name)], number, preprocessing, known)
            trials = trials.replace(subject=subject, truths={})
            parts.append(trials if len(own) == 1 else trials.replace(session=_session_names(session, trials)))
        return concatenate_named(parts, [member.dataset.name for member in own])

    options = dict.fromkeys(name for member in members for name in member.dataset.sources[0].options)
    return DatasetSource("files", read, options=tuple(options), preprocesses=True)


def _session_names(number: int, trials: Trials) -> list[str]:
    """Return the session of each trial of the file with this number, "2"; "2.T" if the file has several sessions."""
    several = len(np.unique(trials.session)) > 1
    return [f"{number}.{session}" if several else str(number) for session in trials.session.tolist()]


def _as_list(value: Any) -> list[Any]:
    """Return a list as it is, and anything else as a list of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _moabb_dataset(name: str) -> Dataset:
    """Return a data set of MOABB by its name in MOABB, in the form of the other data sets."""
    dataset = open_dataset(name)

    def read(files: Sequence[Path], subject: int, **options: Any) -> Trials:  # noqa: ARG001
        """Read the trials of a subject through MOABB."""
        return read_moabb(name, subject, **options)

    return Dataset(
        name=_MOABB_PREFIX + name,
        title=f"{name} through MOABB",
        subjects=tuple(dataset.subject_list),
        sources=(DatasetSource("moabb", read, options=("band", "resample")),),
        protocol=InOrder(),
        task=None,
        pipeline={"ssvep": "cca", "p300": "lda"}.get(dataset.paradigm, "tangent-space"),
    )


# ---- fingerprints


def fingerprint(
    name: str, subject: int, root: str | Path | None = None, reading: Mapping[str, Any] | None = None
) -> str:
    """Hash the files of a subject and their preprocessing; for simulated recordings, their revision.

    A training record stores it, by which evaluations recognise the training data.  Files that MOABB downloads are not
    hashed, only the name of the source and the steps.

    Parameters
    ----------
    name : str
        Name of the data set, or a file.
    subject : int
    root : path, optional
        The data folder.
    reading : mapping, optional
        The argument ``source`` and the options of the reader that :func:`load` is called with.

    Returns
    -------
    str
        16 hexadecimal digits.

    Examples
    --------
    >>> fingerprint("simulated-mi", 1) == fingerprint("simulated-mi", 2)
    True
    """
    options = dict(reading or {})
    source, files = _source_and_files(name, subject, data_root(root), options.pop("source", None))
    name_and_revision = source.name if source.revision == 1 else f"{source.name} {source.revision}"
    reader_options = [{"options": options}] if options else []
    steps = json.dumps([name_and_revision, *source.preprocessing.records(), *reader_options], sort_keys=True)
    digest = hashlib.sha256(steps.encode())
    for file in files or _named_files(name, subject):
        digest.update(_file_digest(file, file.stat().st_size, file.stat().st_mtime_ns))
    return digest.hexdigest()[:16]


def _named_files(name: str, subject: int) -> list[Path]:
    """Return the files of a subject, if the data set is a file or a collection of files; an empty list otherwise."""
    return [file for number, file in numbered_files(name) if number in (None, subject) and file.is_file()]


def numbered_files(name: str) -> list[tuple[int | None, Path]]:
    """Return the files in the name of a data set that consists of files, each with the number of its subject, if any.

    Examples
    --------
    >>> [(number, str(file)) for number, file in numbered_files("1=a.edf + 2=b.edf")]
    [(1, 'a.edf'), (2, 'b.edf')]
    """
    names = [name] if Path(name).exists() else name.split(SEPARATOR)
    return [(number, Path(file).expanduser()) for number, file in map(split_number, names)]


def is_same_file(file: Path, other: Path) -> bool:
    """Return whether two paths are the same file, or files of the same content."""
    if file.resolve() == other.resolve():
        return True
    if not (file.is_file() and other.is_file()) or file.stat().st_size != other.stat().st_size:
        return False
    first, second = (_file_digest(one, one.stat().st_size, one.stat().st_mtime_ns) for one in (file, other))
    return first == second


def _source_and_files(
    name: str, subject: int, root: Path, source: str | None
) -> tuple[DatasetSource, tuple[Path, ...]]:
    """Return the source and files of a subject, as :func:`find_source`, with a cached index of the data folder.

    If files are missing, the folder is searched again.
    """
    dataset = find_dataset(name)
    try:
        return find_source(dataset, subject, root, source, _cached_index(name, root))
    except MissingFileError:  # files may have been added since the folder was searched
        _cached_index.cache_clear()
        return find_source(dataset, subject, root, source, _cached_index(name, root))


@lru_cache(maxsize=64)
def _cached_index(name: str, root: Path) -> dict[str, Path]:
    """Return the files of a data set by name, see :func:`index_files`; the result is cached."""
    return index_files(find_dataset(name), root)


@lru_cache(maxsize=4096)
def _file_digest(file: Path, _size: int, _modified: int) -> bytes:
    """Return the SHA-256 hash of a file, cached by its path, size and time of modification."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()
