"""gbwatt: Riemannian self-attention for EEG under the generalised Bures-Wasserstein metric."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gbwatt import _moved

if TYPE_CHECKING:
    from gbwatt.decoding import EEGDecoder, GBWAttClassifier
    from gbwatt.models import GBWAtt

__version__ = "0.1.0"
__all__ = ["EEGDecoder", "GBWAtt", "GBWAttClassifier", "__version__"]

# Where the names above live: imported when they are asked for, so that gbwatt.geometry needs torch alone.
_HOMES = {"GBWAtt": "gbwatt.models", "EEGDecoder": "gbwatt.decoding", "GBWAttClassifier": "gbwatt.decoding"}


_moved.install()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gbwatt' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
