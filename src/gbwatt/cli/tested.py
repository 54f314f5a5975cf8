"""A saved model, and the trials that it is asked about: by default those that it was tested on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbwatt import checks
from gbwatt.cli import records
from gbwatt.cli.options import open_split
from gbwatt.data import Trials, find_dataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gbwatt.data.catalogue import Dataset
    from gbwatt.training import EEGDecoder


def open_model(folder: Path) -> EEGDecoder:
    """The estimator in a folder, of the class that it was saved as."""
    from gbwatt.models.files import CONFIG, read_config
    from gbwatt.training import EEGDecoder, GBWAttClassifier

    saved = read_config(folder / CONFIG)["extra"].get("estimator") or {}
    kind = GBWAttClassifier if saved.get("class") == GBWAttClassifier.__name__ else EEGDecoder
    return kind.from_pretrained(folder)


def uses_of(
    decoder: EEGDecoder,
    record: dict[str, Any] | None,
    dataset: Dataset,
    trials: Trials,
    root: Path | None,
    how: dict[str, Any],
) -> NDArray[Any]:
    """What each trial of a subject was used for, one of :data:`records.USES`.

    Known from the fingerprints of the trials that the model keeps, and from the record of its training.  Trials of
    other files that match no fingerprint are "unrecognised": they may be training trials that were cut elsewhere.
    """
    from gbwatt.experiments.recordings import fingerprint

    subject, name = int(trials.subject[0]), dataset.name
    contents = None
    if record is not None and Path(name).is_file():  # it may be a copy; records of before have no options in the hash
        contents = [fingerprint(name, subject, root, options) for options in (record.get("reading"), None)]
    own = subject if dataset.subjects else None
    recorded = records.uses(record, name, own, contents, len(trials.y), how)
    compared = decoder.used_for(trials).astype(object)
    if recorded is None:
        return np.where(compared == "unseen", "unrecognised", compared)
    return np.where(np.isin(compared, ("training", "validation")), compared, recorded)


class Asked(NamedTuple):
    """What a command was given; None, or nothing, for what is to be as it was in training."""

    dataset: str | None
    subject: int | None
    split: int | None
    reading: dict[str, Any]

    def completed(self, record: dict[str, Any] | None) -> Asked:
        """As in training where that was the same data set; else the first subject, and the first split."""
        if self.dataset is None and record is None:
            raise checks.ParameterError(
                f"dataset: the folder has no {records.FILE}, so it is not known what the model was trained on; give "
                "--dataset."
            )
        if record is None or (self.dataset is not None and find_dataset(self.dataset).name != record["dataset"]):
            return self._replace(split=self.split or 0)
        subject = record["subject"] if self.subject is None else self.subject
        split = record.get("split", 0) if self.split is None else self.split
        return Asked(record["dataset"], subject, split, self.reading or record.get("reading", {}))


class Tested(NamedTuple):
    """A model and test trials."""

    decoder: EEGDecoder
    trials: Trials
    dataset: str
    split: str  # its name
    warning: str | None  # of trials that the model has seen

    @property
    def what(self) -> str:
        """What the trials are, in words."""
        return f"{len(self.trials.y)} test trials of {self.dataset} ({self.split})"


def open_tested(folder: Path, asked: Asked, root: Path | None) -> Tested:
    """The model in a folder, and the test trials of a split."""
    decoder, record = open_model(folder), records.read(folder)
    asked = asked.completed(record)
    found = find_dataset(asked.dataset or "")
    trials, split = open_split(found, asked.subject, asked.split or 0, root, asked.reading)
    _require_alike(decoder, trials, record)
    seen = uses_of(decoder, record, found, trials, root, asked.reading)[split.test]
    return Tested(decoder, trials[split.test], found.name, split.name, _warning(seen.tolist()))


def _require_alike(decoder: EEGDecoder, trials: Trials, record: dict[str, Any] | None) -> None:
    """Refuse recordings of another kind than those of the training, with the name of the latter."""
    from gbwatt.training.recorded import Recorded

    if decoder.recorded_ is None:
        return
    try:
        decoder.recorded_.require(Recorded.of(trials), "trials")
    except checks.MismatchError as error:
        why, remedy = str(error).partition(";")[0], "the recordings of the training are needed, or some like them"
        trained = "." if record is None else f": {record['dataset']}, which is taken without --dataset."
        raise checks.ParameterError(
            f"dataset={trials.dataset!r} does not fit the model: {why}; {remedy}{trained}"
        ) from error


def _warning(uses: list[str]) -> str | None:
    counts = {use: uses.count(use) for use in ("training", "validation") if use in uses}
    if not counts:
        return None
    said = " and ".join(f"{count} were {records.USES[use]}" for use, count in counts.items())
    return f"Of these {len(uses)} trials {said}: what is found in them may not hold for new ones."
