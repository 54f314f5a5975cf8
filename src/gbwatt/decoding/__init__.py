"""Training: scikit-learn classifiers of EEG epochs."""

from gbwatt.decoding.callbacks import Callback
from gbwatt.decoding.estimator import EEGDecoder, GBWAttClassifier
from gbwatt.errors import CheckpointError, NonFiniteLossError, UnknownLabelError

__all__ = ["Callback", "CheckpointError", "EEGDecoder", "GBWAttClassifier", "NonFiniteLossError", "UnknownLabelError"]
