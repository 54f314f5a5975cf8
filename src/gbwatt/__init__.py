"""gbwatt: Riemannian self-attention for EEG under the generalised Bures-Wasserstein metric."""

from typing import TYPE_CHECKING

from gbwatt import _moved

if TYPE_CHECKING:
    from gbwatt.decoding import EEGDecoder, GBWAttClassifier
    from gbwatt.models import GBWAtt

__version__ = "0.1.0"
__all__ = ["EEGDecoder", "GBWAtt", "GBWAttClassifier", "__version__"]

_moved.install()

# Imported on first use, so that gbwatt.geometry needs torch alone.
__getattr__, __dir__ = _moved.imported_on_use(
    __name__, {"gbwatt.models": ["GBWAtt"], "gbwatt.decoding": ["EEGDecoder", "GBWAttClassifier"]}
)
