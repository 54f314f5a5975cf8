"""Training: scikit-learn classifiers that wrap a skorch net."""

from gbwatt.training.checkpoints import CheckpointError
from gbwatt.training.classifier import GBWAttClassifier
from gbwatt.training.diagnosis import NonFiniteLossError
from gbwatt.training.estimator import EEGDecoder
from gbwatt.training.labels import UnknownLabelError

__all__ = ["CheckpointError", "EEGDecoder", "GBWAttClassifier", "NonFiniteLossError", "UnknownLabelError"]
