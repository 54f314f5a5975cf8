"""The recordings of a run: which they are, whether they are there, and how they are divided."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from gbwatt import checks
from gbwatt.data import MissingFileError, Trials, find_dataset, load
from gbwatt.data.catalogue import Source, data_root, find_source, index_files
from gbwatt.data.splits import add_noise
from gbwatt.experiments import corpora
from gbwatt.experiments.runs import Run


class Parts(NamedTuple):
    """What a model learns from, is selected on, and is tested on."""

    train: Trials
    valid: Trials | None
    test: Trials


def fingerprint(
    name: str, subject: int, root: str | Path | None = None, reading: Mapping[str, Any] | None = None
) -> str:
    """Hash of a subject's files and of what is done to them; of simulated recordings, of which revision they are.

    ``reading`` are the arguments ``source``, and options of the reader, that :func:`gbwatt.data.load` is given.  What a
    library downloads is not hashed: of its recordings, the name of the source and the steps are.

    Examples
    --------
    >>> fingerprint("simulated-mi", 1) == fingerprint("simulated-mi", 2)
    True
    """
    if find_dataset(name).name in corpora.CORPORA:
        return corpora.fingerprint(name, root)
    options = dict(reading or {})
    source, files = _files(name, subject, data_root(root), options.pop("source", None))
    name_and_revision = source.name if source.revision == 1 else f"{source.name} {source.revision}"
    read = [{"options": options}] if options else []
    steps = json.dumps([name_and_revision, *source.preprocessing.records(), *read], sort_keys=True)
    digest = hashlib.sha256(steps.encode())
    for file in _contents(name, files):
        digest.update(_digest(file, file.stat().st_size, file.stat().st_mtime_ns))
    return digest.hexdigest()[:16]


def _files(name: str, subject: int, root: Path, source: str | None) -> tuple[Source, tuple[Path, ...]]:
    dataset = find_dataset(name)
    try:
        return find_source(dataset, subject, root, source, _index(name, root))
    except MissingFileError:  # they may have come since the folder was looked at
        _index.cache_clear()
        return find_source(dataset, subject, root, source, _index(name, root))


@lru_cache(maxsize=64)
def _index(name: str, root: Path) -> dict[str, Path]:
    return index_files(find_dataset(name), root)


def _contents(name: str, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files of a data set, or the file that it is."""
    own = Path(name).expanduser()
    return files or ((own,) if own.is_file() else ())


@lru_cache(maxsize=4096)
def _digest(file: Path, _size: int, _modified: int) -> bytes:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def parts_of(run: Run, root: str | Path | None = None) -> Parts:
    """The trials of a run, divided by the protocol of the data set, those for training as the run wants them."""
    dataset = find_dataset(run.dataset)
    trials = load(run.dataset, run.subject, root=root)
    split = dataset.protocol.splits(trials)[run.split]
    if run.fraction != 1:
        split = split.limited(trials.y, run.fraction, run.seed)
    train, valid, test = (trials[part] for part in (split.train, split.valid, split.test))
    if run.noisy_training:
        train = add_noise(train, run.noise, run.seed + 1)
        valid = add_noise(valid, run.noise, run.seed + 2) if len(valid.y) else valid
    return Parts(train, valid if len(valid.y) else None, test)


def noisy(test: Trials, run: Run) -> Trials:
    """The trials for test as the run wants them."""
    return add_noise(test, run.noise, run.seed) if run.noise else test


def count_splits(name: str) -> int:
    """How many splits each subject of a data set has."""
    protocol = find_dataset(name).protocol
    if protocol.per_subject is None:
        raise checks.ParameterError(
            f"dataset={name!r} is divided between subjects ({type(protocol).__name__}); runs are of one subject each."
        )
    return protocol.per_subject
