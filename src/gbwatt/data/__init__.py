"""EEG data: readers, simulated recordings, preprocessing, and protocols."""

from gbwatt.data.datasets import Dataset, data_root
from gbwatt.data.formats.npz import write_npz
from gbwatt.data.loading import DATASETS, find_dataset, list_datasets, load
from gbwatt.data.preprocessing import Preprocessing
from gbwatt.data.splits import (
    BySession,
    BySubject,
    HeldOutSession,
    InOrder,
    LeaveOneRoundOut,
    LeaveOneSessionOut,
    LeaveOneSubjectOut,
    Split,
    Splitter,
    add_noise,
)
from gbwatt.data.trials import Effect, Trials, Truth, concatenate
from gbwatt.errors import DataError, DataWarning, MissingFileError

__all__ = [
    "DATASETS",
    "BySession",
    "BySubject",
    "DataError",
    "DataWarning",
    "Dataset",
    "Effect",
    "HeldOutSession",
    "InOrder",
    "LeaveOneRoundOut",
    "LeaveOneSessionOut",
    "LeaveOneSubjectOut",
    "MissingFileError",
    "Preprocessing",
    "Split",
    "Splitter",
    "Trials",
    "Truth",
    "add_noise",
    "concatenate",
    "data_root",
    "find_dataset",
    "list_datasets",
    "load",
    "write_npz",
]
