"""The two corpora: where their recordings are, whose they are, and how windows are labelled."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gbwatt import checks
from gbwatt.data.corpora.records import Skipped
from gbwatt.data.files import DataError, MissingFileError

SPLITS = ("train", "eval")


@dataclass(frozen=True)
class Layout:
    """What is known of a corpus before any file is read.

    ``folders`` are the classes, where these are folders; otherwise each window is an annotated event.
    """

    name: str
    title: str
    class_names: tuple[str, ...]
    window_seconds: float
    names: re.Pattern[str]  # of files, without suffix, with a group for the subject
    example: str
    folders: tuple[str, ...] = ()


TUAB = Layout(
    name="tuab",
    title="TUH Abnormal EEG Corpus",
    class_names=("normal", "abnormal"),
    window_seconds=10.0,
    names=re.compile(r"(?P<subject>[a-z0-9]+)_s\d+_t\d+"),
    example="train/normal/01_tcp_ar/aaaaaaaq_s004_t000.edf",
    folders=("normal", "abnormal"),
)
TUEV = Layout(
    name="tuev",
    title="TUH EEG Events Corpus",
    class_names=("spsw", "gped", "pled", "eyem", "artf", "bckg"),
    window_seconds=5.0,
    names=re.compile(r"(?P<subject>[a-z0-9]{8})_\d{8}|[a-z]{4}_(?P<number>\d{3})_[a-z]_\d*"),
    example="train/aaaaaaar/aaaaaaar_00000001.edf or eval/000/bckg_000_a_.edf",
)
LAYOUTS = {layout.name: layout for layout in (TUAB, TUEV)}


@dataclass(frozen=True, order=True)
class Source:
    """A recording of a corpus: its path below the folder that has ``train`` and ``eval``, and what that says."""

    path: str
    split: str
    subject: str
    label: int | None  # None where events are annotated


def find_layout(name: str) -> Layout:
    """The layout of a corpus by name."""
    checks.one_of("corpus", name, tuple(LAYOUTS))
    return LAYOUTS[name]


# ---- folders


def corpus_folder(root: str | Path, layout: Layout) -> Path:
    """The folder that has ``train`` and ``eval``: the root, its ``edf``, or that of the one version below it."""
    root = Path(root).expanduser()
    if not root.is_dir():
        raise MissingFileError(f"root={str(root)!r} is no folder; it is the one that has the {layout.title}.")
    for candidates in ([root], [root / "edf"], sorted(root.glob("*/edf"))):
        found = [folder for folder in candidates if any((folder / split).is_dir() for split in SPLITS)]
        if len(found) > 1:
            versions = " and ".join(folder.parent.name for folder in found)
            raise DataError(root, f"several versions, {versions}", "one", f"Name one of them: {found[0].parent}")
        if found:
            _require_folders(found[0], layout)
            return found[0]
    there = ", ".join(sorted(child.name for child in root.iterdir())[:6]) or "nothing"
    raise DataError(root, there, f"folders train and eval, here, in edf or in VERSION/edf, as {layout.title} has them")


def _require_folders(folder: Path, layout: Layout) -> None:
    needed = [split for split in SPLITS if not layout.folders] + [f"{s}/{c}" for s in SPLITS for c in layout.folders]
    missing = [name for name in needed if not (folder / name).is_dir()]
    if missing:
        remedy = "Is it another corpus, or has not all of it been copied?"
        raise DataError(folder, f"no folder {' nor '.join(missing)}", f"files as {layout.example}", remedy)
    if not layout.folders and any((folder / "train" / name).is_dir() for name in TUAB.folders):
        raise DataError(folder, "train/normal", f"files as {layout.example}", f"It may be corpus={TUAB.name!r}.")


# ---- recordings


def find_recordings(folder: Path, layout: Layout) -> tuple[list[Source], list[Skipped]]:
    """All recordings in the order of their paths, and the files whose names say not enough."""
    sources: list[Source] = []
    strange: list[Skipped] = []
    for path in sorted(path for split in SPLITS for path in _edf_files(folder, split)):
        found = _source(path, layout)
        if isinstance(found, Source):
            sources.append(found)
        else:
            strange.append(found)
    if not sources:
        found_text = f"{len(strange)} EDF files with other names" if strange else "no EDF file"
        raise DataError(folder, found_text, f"recordings as {layout.example}")
    return sources, strange


def _edf_files(folder: Path, split: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder / split, followlinks=True, onerror=_not_listed):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if name.lower().endswith(".edf") and not name.startswith("."):
                yield (Path(place) / name).relative_to(folder).as_posix()


def _not_listed(error: OSError) -> None:
    """A folder that cannot be listed may have any number of recordings: that is no matter of one of them."""
    raise DataError(error.filename, f"a folder that cannot be listed ({error.strerror})", "one that can be read")


def _source(path: str, layout: Layout) -> Source | Skipped:
    split, *between, file = path.split("/")
    named = layout.names.fullmatch(file[: -len(".edf")])
    place = between[0] if between else ""
    if named is None or (layout.folders and place not in layout.folders):
        return Skipped(path, split, "", "unknown-name", f"the path is not as {layout.example}")
    subject = next(name for name in named.groups() if name)
    return Source(path, split, subject, layout.folders.index(place) if layout.folders else None)
