"""Clinical corpora of Temple University: abnormal recordings (TUAB) and events (TUEV).

They do not fit into memory: :func:`gbwatt.clinical.corpora.build` makes windows of the official files once, and
:class:`gbwatt.clinical.corpora.Corpus` reads them.  Here they have their names among the data sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gbwatt.clinical.corpora import manifest
from gbwatt.data.datasets import Dataset, Source
from gbwatt.data.splits import Split, Splitter
from gbwatt.data.trials import Trials
from gbwatt.errors import ParameterError

WHERE = "https://isip.piconepress.com/projects/tuh_eeg, on request; then: gbwatt corpus build"


def _too_large(files: Sequence[Path], _subject: int, *, name: str) -> Trials:
    raise ParameterError(
        f"{name} is a corpus, which is not loaded as a whole: open it with "
        f"gbwatt.clinical.corpora.Corpus.open({str(files[0].parent)!r}), look at it with `gbwatt corpus describe`, or "
        "train with `gbwatt finetune`."
    )


@dataclass(frozen=True)
class OfficialEvaluation(Splitter):
    """The official files for evaluation are the test; a part of the other subjects is for validation."""

    valid_fraction: float = 0.2

    def _splits(self, trials: Trials) -> Iterator[Split]:  # noqa: ARG002
        raise ParameterError("a corpus is divided by Corpus.part(...), not as trials.")


def _dataset(name: str, title: str) -> Dataset:
    source = Source("cache", partial(_too_large, name=name), lambda _subject: (manifest.NAME,))
    return Dataset(
        name=name,
        title=title,
        subjects=(1,),  # the corpus as a whole
        sources=(source,),
        protocol=OfficialEvaluation(),
        task=None,
        pipeline="tangent",
        folder=name,
        where=WHERE,
        only_there=True,
    )


DATASETS = (
    _dataset("tuab", "TUH Abnormal EEG Corpus: normal or abnormal, 10 s at 200 Hz"),
    _dataset("tuev", "TUH EEG Events: six kinds of events, 5 s at 200 Hz"),
)
