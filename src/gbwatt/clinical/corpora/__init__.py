"""Clinical EEG corpora, too large for memory: recordings are cut into windows once, and windows are read from disk."""

from gbwatt.clinical.corpora.building import Built, Progress, build
from gbwatt.clinical.corpora.layout import KINDS, LAYOUTS, MONTAGES, NO_DAMAGE, Cached, Skipped
from gbwatt.clinical.corpora.reading import Corpus, Part
from gbwatt.errors import CacheError

__all__ = [
    "KINDS",
    "LAYOUTS",
    "MONTAGES",
    "NO_DAMAGE",
    "Built",
    "CacheError",
    "Cached",
    "Corpus",
    "Part",
    "Progress",
    "Skipped",
    "build",
]
