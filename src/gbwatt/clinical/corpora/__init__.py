"""Clinical EEG corpora that do not fit into memory, as windows on disk."""

from gbwatt.clinical.corpora.building import BuildSummary, Progress, build
from gbwatt.clinical.corpora.cache import Corpus, Part
from gbwatt.clinical.corpora.layout import (
    KINDS,
    LAYOUTS,
    MONTAGES,
    NO_DAMAGE,
    CachedRecording,
    SkippedRecording,
)
from gbwatt.errors import CacheError

# Former names.
Built, Cached, Skipped = BuildSummary, CachedRecording, SkippedRecording

__all__ = [
    "KINDS",
    "LAYOUTS",
    "MONTAGES",
    "NO_DAMAGE",
    "BuildSummary",
    "CacheError",
    "CachedRecording",
    "Corpus",
    "Part",
    "Progress",
    "SkippedRecording",
    "build",
]
