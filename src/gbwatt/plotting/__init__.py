"""Figures for papers and reports: functions of arrays and names that return a matplotlib figure.

They neither change matplotlib's settings nor use pyplot.
"""

from gbwatt.errors import UnknownPositionError
from gbwatt.plotting.channels import channel_bars, heatmaps, patterns, topomaps
from gbwatt.plotting.network import (
    attention_maps,
    condition_histograms,
    deletion_insertion,
    embedding,
    metric_spectrum,
    spectra,
)
from gbwatt.plotting.results import confusion, curves, reliability_diagram, subjects, training_curves
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
    "reliability_diagram",
    "save",
    "spectra",
    "subjects",
    "to_svg",
    "topomaps",
    "training_curves",
]
