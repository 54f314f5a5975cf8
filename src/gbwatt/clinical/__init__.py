"""SPD attention heads on EEG foundation models, and clinical corpora to fine-tune them on."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Imported on first use: building a cache of windows does not need torch.
_MODULES = {
    "gbwatt.clinical.backbones": ("BACKBONES", "AnyBackbone", "Backbone"),
    "gbwatt.clinical.classifier": ("HEADS", "FoundationClassifier", "Head", "SPDHead"),
    "gbwatt.clinical.weights": ("WeightsReport", "load_weights"),
    "gbwatt.errors": ("WeightsFileError",),
}


def __getattr__(name: str) -> Any:
    if name == "WeightsError":  # its former name
        name = "WeightsFileError"
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'gbwatt.clinical' has no attribute {name!r}")
