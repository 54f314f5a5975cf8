"""Training: scikit-learn classifiers that wrap a skorch net."""

from gbwatt.decoding.estimator import EEGDecoder, GBWAttClassifier
from gbwatt.errors import CheckpointError, NonFiniteLossError, UnknownLabelError

__all__ = ["CheckpointError", "EEGDecoder", "GBWAttClassifier", "NonFiniteLossError", "UnknownLabelError"]
