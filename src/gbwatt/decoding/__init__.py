"""Training and evaluation: scikit-learn classifiers of EEG epochs, and functions that train, test and record."""

from gbwatt.decoding.alignment import EuclideanAlignment, RiemannianAlignment
from gbwatt.decoding.callbacks import Callback
from gbwatt.decoding.estimator import EEGDecoder, GBWAttClassifier
from gbwatt.decoding.evaluation import (
    Evaluation,
    EvaluationSet,
    TrainingResult,
    evaluate,
    load_decoder,
    train_and_evaluate,
)
from gbwatt.decoding.hyperparameter_search import SearchResult, search
from gbwatt.decoding.prediction import Predictions, predict_recordings
from gbwatt.decoding.training_record import TrainingRecord
from gbwatt.decoding.transfer import list_weights
from gbwatt.errors import CheckpointError, NonFiniteLossError, UnknownLabelError

__all__ = [
    "Callback",
    "CheckpointError",
    "EEGDecoder",
    "EuclideanAlignment",
    "Evaluation",
    "EvaluationSet",
    "GBWAttClassifier",
    "NonFiniteLossError",
    "Predictions",
    "RiemannianAlignment",
    "SearchResult",
    "TrainingRecord",
    "TrainingResult",
    "UnknownLabelError",
    "evaluate",
    "list_weights",
    "load_decoder",
    "predict_recordings",
    "search",
    "train_and_evaluate",
]
