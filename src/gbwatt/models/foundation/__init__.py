"""Heads of SPD attention on foundation models of EEG: BIOT, LaBraM, or any module that gives tokens."""

from gbwatt.models.foundation.backbones import BACKBONES, AnyBackbone, Backbone
from gbwatt.models.foundation.classifier import FoundationClassifier
from gbwatt.models.foundation.heads import HEADS, Head, SPDHead
from gbwatt.models.foundation.torch_files import WeightsError
from gbwatt.models.foundation.weights import WeightsReport, load_weights

__all__ = [
    "BACKBONES",
    "HEADS",
    "AnyBackbone",
    "Backbone",
    "FoundationClassifier",
    "Head",
    "SPDHead",
    "WeightsError",
    "WeightsReport",
    "load_weights",
]
