"""SPD attention heads on EEG foundation models, and clinical corpora to fine-tune them on."""

from typing import TYPE_CHECKING, Any

from gbwatt._moved import imported_on_use

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
_find, __dir__ = imported_on_use(
    __name__,
    {
        "gbwatt.clinical.backbones": ("BACKBONES", "AnyBackbone", "Backbone"),
        "gbwatt.clinical.classifier": ("HEADS", "FoundationClassifier", "Head", "SPDHead"),
        "gbwatt.clinical.weights": ("WeightsReport", "load_weights"),
        "gbwatt.errors": ("WeightsFileError",),
    },
)


def __getattr__(name: str) -> Any:
    return _find("WeightsFileError" if name == "WeightsError" else name)  # its former name
