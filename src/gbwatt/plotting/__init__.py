"""Pictures for papers and pages: functions of arrays and names that return a matplotlib figure.

They know nothing of models or results, and leave matplotlib's settings and pyplot alone.
"""

from gbwatt.errors import UnknownPositionError
from gbwatt.plotting.explanations import channel_bars, deletion_insertion, heatmaps
from gbwatt.plotting.network import attention_maps, condition_histograms, embedding, metric_spectrum, spectra
from gbwatt.plotting.results import confusion, curves, subjects, training_curves
from gbwatt.plotting.scalp import patterns, topomaps
from gbwatt.plotting.style import save, to_svg

__all__ = [
    "UnknownPositionError",
    "attention_maps",
    "channel_bars",
    "condition_histograms",
    "confusion",
    "curves",
    "deletion_insertion",
    "embedding",
    "heatmaps",
    "metric_spectrum",
    "patterns",
    "save",
    "spectra",
    "subjects",
    "to_svg",
    "topomaps",
    "training_curves",
]
