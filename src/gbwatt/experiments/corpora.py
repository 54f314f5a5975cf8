"""Corpora of runs: where their windows and the weights for them are, and which they are."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from gbwatt.data.catalogue import data_root, find_source
from gbwatt.data.corpora import Corpus
from gbwatt.data.loading import find_dataset
from gbwatt.data.sets import tuh
from gbwatt.experiments.runs import Row, Run

CORPORA = frozenset(dataset.name for dataset in tuh.DATASETS)
#: Folders beside the recordings: weights of backbones, and what unfinished runs have come to.
WEIGHTS, CHECKPOINTS = "weights", "checkpoints"


def open_corpus(name: str, root: str | Path | None = None) -> Corpus:
    """The windows of a corpus, in its folder below that of the recordings."""
    _, (manifest,) = find_source(find_dataset(name), 1, root, None)
    return Corpus.open(manifest.parent)


def fingerprint(name: str, root: str | Path | None = None) -> str:
    """Hash of a corpus and of the files with weights beside it: what decides about a result besides the run."""
    digest = hashlib.sha256(open_corpus(name, root).fingerprint.encode())
    folder = data_root(root) / WEIGHTS
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if file.is_file():
            digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def checkpoint_of(run: Run, root: str | Path | None = None) -> Path:
    """Where a run keeps what it has come to."""
    return data_root(root) / CHECKPOINTS / run.key


def discard_checkpoint(row: Row, root: str | Path | None = None) -> None:
    """Remove what a run kept to go on from, once its row is in the store; a failed one may go on."""
    if row.status == "done":
        shutil.rmtree(checkpoint_of(Run.from_dict(row.run), root), ignore_errors=True)
