"""Clinical EEG corpora, too large for memory: recordings are cut into windows once, and windows are read from disk."""

from gbwatt.data.corpora.building import Built, Progress, build
from gbwatt.data.corpora.layout import LAYOUTS
from gbwatt.data.corpora.manifest import CacheError
from gbwatt.data.corpora.montages import MONTAGES
from gbwatt.data.corpora.problems import KINDS, NO_DAMAGE
from gbwatt.data.corpora.reading import Corpus, Part
from gbwatt.data.corpora.records import Cached, Skipped

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
