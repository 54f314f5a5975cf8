"""Descriptions of data sets, and the search for their files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gbwatt._text import number_ranges
from gbwatt._validation import check_one_of
from gbwatt.data.preprocessing import Preprocessing
from gbwatt.data.splits import Splitter
from gbwatt.data.trials import Trials
from gbwatt.errors import MissingFileError

#: Environment variable that names the data folder, and the folder used without it.
VARIABLE, DEFAULT = "GBWATT_DATA", "~/gbwatt_data"


#: Function of the files of one subject, its number and further options that returns the trials.
Reader = Callable[..., Trials]


def no_files(_subject: int) -> tuple[str, ...]:
    """Return no file names, for sources that are not read from files of the data folder."""
    return ()


@dataclass(frozen=True)
class DatasetSource:
    """One file format in which a data set is distributed.

    Attributes
    ----------
    name : str
        ``"gdf"``, ``"processed"``, ``"moabb"``, …
    read : callable
        Reads the files of a subject.  The trials are unprocessed and include the margins that the filters need.
    files : callable
        Returns the file names of a subject in the order that ``read`` expects.
    preprocessing : Preprocessing
        Steps that produce the trials of the paper.
    downloads : bool
        Whether reading may download files.  Such a source is used only if it is requested by name.
    options : tuple of str
        Keyword arguments of ``read``.
    revision : int
        Increased whenever ``read`` returns something else for the same files, so that earlier results are not reused.
    folder : str
        Subfolder of the data folder, if it is not that of the data set.
    preprocesses : bool
        Whether ``read`` has an argument ``preprocessing`` and applies the steps itself, so that filters are applied to
        continuous recordings before trials are cut.
    """

    name: str
    read: Reader
    files: Callable[[int], tuple[str, ...]] = no_files
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    downloads: bool = False
    options: tuple[str, ...] = ()
    revision: int = 1
    folder: str = ""
    preprocesses: bool = False


Source = DatasetSource  # former name


@dataclass(frozen=True)
class Dataset:
    """Description of a data set.

    Attributes
    ----------
    name, title : str
        Identifier and full name.
    subjects : tuple of int
        Subjects selected by "all".  Empty for a single recording, which may be assigned to any subject.
    sources : tuple of DatasetSource
        File formats in order of preference.
    protocol : Splitter
        Division into training, validation and test trials.
    task : "mi", "ssvep", "ern" or None
        Model preset.
    paradigm : "mi", "ssvep", "erp" or None
        Paradigm whose settings GBWAtt uses, see :mod:`gbwatt.decoding.paradigms`; None: that of the task.
    pipeline : str
        Name of the classical model that ``gbwatt data describe`` scores: "tangent-space", "cca" or "lda".
    folder : str
        Subfolder of the data folder, for sources that have no other.
    where : str
        Where to download the files.
    held_back : tuple of int
        Further subjects, whose labels are in a file that must be obtained separately.
    only_there : bool
        Search ``folder`` itself only, without subfolders.  For file names that are not specific to the data set.
    all_by_default : bool
        Load all subjects if none is requested, instead of the first one.
    unnumbered : bool
        Whether the numbers of the subjects only count files, because no numbers were given.

    Examples
    --------
    >>> from gbwatt.data import DATASETS
    >>> dataset = DATASETS["bcic-iv-2a"]
    >>> dataset.subjects, [source.name for source in dataset.sources]
    ((1, 2, 3, 4, 5, 6, 7, 8, 9), ['gdf', 'processed', 'moabb'])
    """

    name: str
    title: str
    subjects: tuple[int, ...]
    sources: tuple[DatasetSource, ...]
    protocol: Splitter
    task: str | None
    pipeline: str
    folder: str = ""
    where: str = ""
    held_back: tuple[int, ...] = ()
    only_there: bool = False
    paradigm: str | None = None
    all_by_default: bool = False
    unnumbered: bool = False

    def source(self, name: str) -> DatasetSource:
        """Return a source by its name.

        Parameters
        ----------
        name : str
            Name of one of the sources.

        Returns
        -------
        DatasetSource

        Raises
        ------
        ParameterError
            If the data set has no source of this name.
        """
        check_one_of("source", name, tuple(source.name for source in self.sources))
        return next(source for source in self.sources if source.name == name)


def data_root(root: str | Path | None = None) -> Path:
    """Return the data folder.

    Parameters
    ----------
    root : path, optional
        The folder.  Default: the value of the environment variable GBWATT_DATA, or ``~/gbwatt_data`` if it is not set.

    Returns
    -------
    Path

    Examples
    --------
    >>> data_root("recordings").name
    'recordings'
    """
    return Path(root if root is not None else os.environ.get(VARIABLE) or DEFAULT).expanduser()


def index_files(dataset: Dataset, root: str | Path | None = None) -> dict[str, Path]:
    """Map the names of a data set's files to their paths.

    The folder of each source is searched with all its subfolders or, if it does not exist, the data folder with its
    immediate subfolders.  With ``dataset.only_there``, only the folder of the source is searched.  If several files
    have the same name, the one at the highest level is used; a warning is issued if two are at the same level.
    """
    if not dataset.folder:  # simulated, or a single file
        return {}
    subjects = (*dataset.subjects, *dataset.held_back)
    names: dict[str, set[str]] = {}  # by folder
    for source in dataset.sources:
        of_source = {Path(name).name for s in subjects for name in source.files(s)}
        names.setdefault(_folder_name(dataset, source), set()).update(of_source)
    index: dict[str, Path] = {}
    for folder, wanted in names.items():
        top, depth = _search_area(data_root(root) / folder, data_root(root), dataset.only_there)
        index |= _index_folder(top, depth, wanted)
    return index


def _folder_name(dataset: Dataset, source: DatasetSource) -> str:
    """Return the subfolder of the data folder for the files of a source."""
    return source.folder or dataset.folder


def _index_folder(top: Path, depth: int | None, names: set[str]) -> dict[str, Path]:
    """Map the ``names`` of files to their paths in ``top`` and its subfolders, up to ``depth`` levels."""
    index: dict[str, Path] = {}
    for folder, files in _folders_by_level(top, depth):
        for file in names.intersection(files):
            first = index.setdefault(file, folder / file)
            if first != folder / file and len(first.parts) == len(folder.parts) + 1:
                warnings.warn(f"{folder / file} is ignored: {first} has the same name.", stacklevel=4)
    return index


def _search_area(folder: Path, root: Path, only_there: bool) -> tuple[Path, int | None]:
    """Return the folder to search for files, and how many levels of subfolders below it; None for all levels.

    That is ``folder``, the folder of the data set, or the data folder ``root`` if it does not exist.
    """
    if only_there:
        return folder, 0
    return (folder, None) if folder.is_dir() else (root, 1)


def _folders_by_level(top: Path, depth: int | None) -> Iterator[tuple[Path, list[str]]]:
    """Yield ``top`` and its subfolders up to ``depth`` levels, with the names of their files, highest level first."""
    found_folders = []
    for path, folders, files in os.walk(top):
        level = len(Path(path).relative_to(top).parts)
        folders[:] = [] if level == depth else sorted(folders)
        found_folders.append((level, Path(path), files))
    yield from ((path, files) for _, path, files in sorted(found_folders, key=lambda entry: entry[0]))


def find_files(index: Mapping[str, Path], names: Sequence[str]) -> dict[str, Path | None]:
    """Look up files in an index of :func:`index_files` by name; the path is None if a file does not exist."""
    return {name: index.get(Path(name).name) for name in names}


def find_source(
    dataset: Dataset,
    subject: int,
    root: str | Path | None,
    name: str | None,
    index: Mapping[str, Path] | None = None,
) -> tuple[DatasetSource, tuple[Path, ...]]:
    """Return the source to read a subject from, and the paths of its files.

    ``name`` selects a source.  By default, it is the first source without downloads whose files all exist.  ``index``
    is the result of :func:`index_files`, which saves a search for every subject.  Raises :class:`MissingFileError` if
    files are missing.
    """
    index = index_files(dataset, root) if index is None else index
    sources = [dataset.source(name)] if name is not None else _local_sources(dataset)
    searched = [(source, find_files(index, source.files(subject))) for source in sources]
    for source, files in searched:
        paths = tuple(path for path in files.values() if path is not None)
        if len(paths) == len(files):
            return source, paths
    raise MissingFileError(_missing_message(dataset, subject, root, searched))


def subjects_here(dataset: Dataset, root: str | Path | None = None) -> list[int]:
    """Return the subjects that can be read from the data folder: all files of at least one source exist."""
    index = index_files(dataset, root)
    return [
        subject
        for subject in (*dataset.subjects, *dataset.held_back)
        if any(None not in find_files(index, source.files(subject)).values() for source in _local_sources(dataset))
    ]


def _local_sources(dataset: Dataset) -> list[DatasetSource]:
    """Return the sources that are read from files of the data folder, without downloads."""
    return [source for source in dataset.sources if not source.downloads]


def _missing_message(
    dataset: Dataset,
    subject: int,
    root: str | Path | None,
    searched: Sequence[tuple[DatasetSource, dict[str, Path | None]]],
) -> str:
    """Return the error message for a subject without a complete set of files.

    It lists the missing files of each source in ``searched``, the available subjects, and where to get the files.
    """
    folders = {source.name: data_root(root) / _folder_name(dataset, source) for source, _ in searched}
    places = " and ".join(dict.fromkeys(map(str, folders.values())))
    lines = [f"{dataset.name}, subject {subject}: no complete set of files in {places}. Missing files by source:"]
    for source, files in searched:
        folder = folders[source.name]
        missing = [str(folder / name) for name, path in files.items() if path is None]
        partly = f" ({len(files) - len(missing)} of {len(files)} files exist)" if len(missing) < len(files) else ""
        shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        lines.append(f"  {source.name}: {shown}{partly}")
    available = subjects_here(dataset, root)
    if available:
        lines.append(f"Available subjects: {number_ranges(available)}.")
    lines.append(f"The data folder is set by root=, or by the environment variable {VARIABLE}; default: {DEFAULT}.")
    if dataset.where:
        lines.append(f"Download the files from {dataset.where}.")
    online = [source.name for source in dataset.sources if source.downloads]
    if online:
        lines.append(f"Or use source={online[0]!r}, which downloads them.")
    return "\n".join(lines)
