"""Heads of SPD attention on foundation models of EEG: BIOT, LaBraM, or any module that gives tokens."""

from gbwatt.clinical.backbones import BACKBONES, AnyBackbone, Backbone
from gbwatt.clinical.classifier import HEADS, FoundationClassifier, Head, SPDHead
from gbwatt.clinical.weights import WeightsReport, load_weights
from gbwatt.errors import WeightsFileError

__all__ = [
    "BACKBONES",
    "HEADS",
    "AnyBackbone",
    "Backbone",
    "FoundationClassifier",
    "Head",
    "SPDHead",
    "WeightsFileError",
    "WeightsReport",
    "load_weights",
]
