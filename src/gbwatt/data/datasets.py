"""What a data set is, and where its files are looked for."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gbwatt._validation import check_one_of
from gbwatt.data.preprocessing import Preprocessing
from gbwatt.data.splits import Splitter
from gbwatt.data.trials import Trials
from gbwatt.errors import MissingFileError

#: Environment variable with the folder of recordings, and the folder without it.
VARIABLE, DEFAULT = "GBWATT_DATA", "~/gbwatt_data"


#: From the files of one subject, its number, and options, to its trials.
Reader = Callable[..., Trials]


def no_files(_subject: int) -> tuple[str, ...]:
    """Files of what is not read from files."""
    return ()


@dataclass(frozen=True)
class Source:
    """One form in which a data set is to be had.

    Attributes
    ----------
    name : str
        ``"gdf"``, ``"processed"``, ``"moabb"``, …
    files : callable
        Names of the files of a subject, in the order in which ``read`` wants them; by default none.
    read : Reader
        From these files to trials, as they are in the files but for margins in time that filters need.
    preprocessing : Preprocessing
        Steps that give the trials of the paper.
    downloads : bool
        Whether reading may fetch files; such a source is used only when it is asked for by name.
    options : tuple of str
        What ``read`` takes besides.
    revision : int
        Goes up when ``read`` gives something else for the same files, or for none; results of before are then not
        those of now.
    """

    name: str
    read: Reader
    files: Callable[[int], tuple[str, ...]] = no_files
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    downloads: bool = False
    options: tuple[str, ...] = ()
    revision: int = 1


@dataclass(frozen=True)
class Dataset:
    """One data set.

    Attributes
    ----------
    name, title : str
    subjects : tuple of int
        All that "all" means; none for a recording, which may be given any number.
    held_back : tuple of int
        Further subjects, whose labels are in a file that not everybody has.
    sources : tuple of Source
        In the order in which they are looked for.
    protocol : Splitter
        How it is divided into training, validation and test.
    task : "mi", "ssvep", "ern" or None
        Preset of the models.
    pipeline : str
        Classical pipeline that shows whether there is anything to decode, see :mod:`gbwatt.data.baselines`.
    folder : str
        Below the folder of recordings.
    only_there : bool
        Whether its files are looked for at the top of that folder and nowhere else: others have names like theirs.
    where : str
        Where to get it.
    """

    name: str
    title: str
    subjects: tuple[int, ...]
    sources: tuple[Source, ...]
    protocol: Splitter
    task: str | None
    pipeline: str
    folder: str = ""
    where: str = ""
    held_back: tuple[int, ...] = ()
    only_there: bool = False

    def source(self, name: str) -> Source:
        """A source by its name."""
        check_one_of("source", name, tuple(source.name for source in self.sources))
        return next(source for source in self.sources if source.name == name)


def data_root(root: str | Path | None = None) -> Path:
    """The folder of recordings: ``root``, else what GBWATT_DATA says, else ~/gbwatt_data."""
    return Path(root if root is not None else os.environ.get(VARIABLE) or DEFAULT).expanduser()


def index_files(dataset: Dataset, root: str | Path | None = None) -> dict[str, Path]:
    """Files of a data set by name, of those that it may have: in its folder below the root and anywhere below that.

    Without such a folder, in the root itself and the folders in it.  Of two files with one name the less deep counts,
    and of two in one depth neither is left out silently.
    """
    if not dataset.folder:  # made, or found by itself
        return {}
    subjects = (*dataset.subjects, *dataset.held_back)
    wanted = {Path(name).name for source in dataset.sources for s in subjects for name in source.files(s)}
    own = data_root(root) / dataset.folder
    top, depth = _where(own, data_root(root), dataset.only_there)
    found: dict[str, Path] = {}
    for level, files in _levels(top, depth):
        for file in wanted.intersection(files):
            other = found.setdefault(file, level / file)
            if other != level / file and len(other.parts) == len(level.parts) + 1:
                warnings.warn(f"{level / file} is not looked at: {other} has the same name.", stacklevel=3)
    return found


def _where(own: Path, root: Path, only_there: bool) -> tuple[Path, int | None]:
    """The folder to look in, and how many levels below it, if not all."""
    if only_there:
        return own, 0
    return (own, None) if own.is_dir() else (root, 1)


def _levels(top: Path, depth: int | None) -> Iterator[tuple[Path, list[str]]]:
    """Folders with their files, the least deep first."""
    walked = []
    for path, folders, files in os.walk(top):
        below = len(Path(path).relative_to(top).parts)
        folders[:] = [] if below == depth else sorted(folders)
        walked.append((below, Path(path), files))
    yield from ((path, files) for _, path, files in sorted(walked, key=lambda step: step[0]))


def find_files(index: Mapping[str, Path], names: Sequence[str]) -> dict[str, Path | None]:
    """Where each of the files is."""
    return {name: index.get(Path(name).name) for name in names}


def find_source(
    dataset: Dataset,
    subject: int,
    root: str | Path | None,
    name: str | None,
    index: Mapping[str, Path] | None = None,
) -> tuple[Source, tuple[Path, ...]]:
    """The source to read a subject from, and its files; without a name the first whose files are all there.

    ``index`` is that of :func:`index_files`, for whoever asks for many subjects.
    """
    index = index_files(dataset, root) if index is None else index
    wanted = [dataset.source(name)] if name is not None else [s for s in dataset.sources if not s.downloads]
    searched = [(source, find_files(index, source.files(subject))) for source in wanted]
    for source, files in searched:
        paths = tuple(path for path in files.values() if path is not None)
        if len(paths) == len(files):
            return source, paths
    raise MissingFileError(_missing(dataset, subject, root, searched))


def subjects_here(dataset: Dataset, root: str | Path | None = None) -> list[int]:
    """Subjects whose files are all there, for one source at least."""
    index = index_files(dataset, root)
    return [s for s in (*dataset.subjects, *dataset.held_back) if _complete(dataset, s, index)]


def _complete(dataset: Dataset, subject: int, index: Mapping[str, Path]) -> bool:
    sources = [source for source in dataset.sources if not source.downloads]
    return any(None not in find_files(index, source.files(subject)).values() for source in sources)


def _missing(
    dataset: Dataset, subject: int, root: str | Path | None, searched: Sequence[tuple[Source, dict[str, Path | None]]]
) -> str:
    place = data_root(root) / dataset.folder
    lines = [f"{dataset.name}, subject {subject}: no complete set of files in {place}. Expected there"]
    for source, files in searched:
        absent = [str(place / name) for name, path in files.items() if path is None]
        there = f" ({len(files) - len(absent)} of {len(files)} files are there)" if len(absent) < len(files) else ""
        shown = ", ".join(absent[:4]) + (f" and {len(absent) - 4} more" if len(absent) > 4 else "")
        lines.append(f"  {source.name}: {shown}{there}")
    here = subjects_here(dataset, root)
    if here:
        lines.append(f"Files are there of subjects {', '.join(map(str, here))}.")
    lines.append(f"The folder is root=, else the environment variable {VARIABLE}, else {DEFAULT}.")
    if dataset.where:
        lines.append(f"Get the files from {dataset.where}.")
    online = [source.name for source in dataset.sources if source.downloads]
    if online:
        lines.append(f"Or let a library download them: source={online[0]!r}.")
    return "\n".join(lines)
