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
AND = "+"  # between the fingerprint of a corpus and that of weights


def open_corpus(name: str, root: str | Path | None = None) -> Corpus:
    """The windows of a corpus, in its folder below that of the recordings."""
    _, (manifest,) = find_source(find_dataset(name), 1, root, None)
    return Corpus.open(manifest.parent)


def fingerprint(name: str, root: str | Path | None = None) -> str:
    """Hash of the windows of a corpus."""
    return open_corpus(name, root).fingerprint[:16]


def weights_file(name: str, root: str | Path | None = None) -> Path:
    """Where the weights are that a run names: a file, or a folder, in the folder of weights."""
    return data_root(root) / WEIGHTS / name


def with_weights(data: str, weights: str | None, root: str | Path | None = None) -> str:
    """Fingerprint of a corpus together with that of the weights that a run begins with, if they are in a file."""
    from gbwatt.models.foundation.torch_files import WeightsError  # imports torch
    from gbwatt.models.foundation.weights import UNREAD, find_file

    if weights is None or weights in UNREAD:
        return data
    try:
        digest = hashlib.sha256(find_file(weights_file(weights, root)).read_bytes()).hexdigest()[:16]
    except WeightsError:  # the run will say so
        digest = "absent"
    return f"{data}{AND}{digest}"


def without_weights(data: str) -> str:
    """The part of a fingerprint that is the corpus's.

    Examples
    --------
    >>> without_weights("0123456789abcdef+fedcba9876543210")
    '0123456789abcdef'
    """
    return data.partition(AND)[0]


def checkpoint_of(run: Run, root: str | Path | None = None) -> Path:
    """Where a run keeps what it has come to."""
    return data_root(root) / CHECKPOINTS / run.key


def discard_checkpoint(row: Row, root: str | Path | None = None) -> None:
    """Remove what a run kept to go on from, once its row is in the store; a failed one may go on."""
    if row.status == "done":
        shutil.rmtree(checkpoint_of(Run.from_dict(row.run), root), ignore_errors=True)
