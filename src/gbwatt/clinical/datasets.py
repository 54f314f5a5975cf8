"""The corpora TUAB and TUEV of Temple University Hospital as data sets by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gbwatt.clinical.corpora.cache import MANIFEST
from gbwatt.data.datasets import Dataset, Source
from gbwatt.data.splits import Split, Splitter
from gbwatt.data.trials import Trials
from gbwatt.errors import ParameterError

WHERE = "https://isip.piconepress.com/projects/tuh_eeg, on request; then: gbwatt corpus build"


def _refuse_to_load(files: Sequence[Path], _subject: int, *, name: str) -> Trials:
    """Reader of a data set that raises an error: a corpus does not fit into memory."""
    raise ParameterError(
        f"{name} does not fit into memory; open it with "
        f"gbwatt.clinical.corpora.Corpus.open({str(files[0].parent)!r}), describe it with `gbwatt corpus describe`, or "
        "train on it with `gbwatt finetune`."
    )


@dataclass(frozen=True)
class OfficialEvaluation(Splitter):
    """Test on the official evaluation part; a fraction of the other subjects is used for validation."""

    valid_fraction: float = 0.2

    def _splits(self, trials: Trials) -> Iterator[Split]:  # noqa: ARG002
        """Raise an error: corpora are split as windows on disk."""
        raise ParameterError("a corpus is split by gbwatt.clinical.corpora.Corpus.part, not as trials.")


def _corpus_dataset(name: str, title: str) -> Dataset:
    """The entry of a corpus in the catalogue of data sets."""
    source = Source("cache", partial(_refuse_to_load, name=name), lambda _subject: (MANIFEST,))
    return Dataset(
        name=name,
        title=title,
        subjects=(1,),  # the whole corpus
        sources=(source,),
        protocol=OfficialEvaluation(),
        task=None,
        pipeline="tangent",
        folder=name,
        where=WHERE,
        only_there=True,
    )


DATASETS = (
    _corpus_dataset("tuab", "TUH Abnormal EEG Corpus: normal or abnormal, 10 s at 200 Hz"),
    _corpus_dataset("tuev", "TUH EEG Events: six kinds of events, 5 s at 200 Hz"),
)
