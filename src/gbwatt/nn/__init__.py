"""Layers of SPD networks; every forward calls :mod:`gbwatt.geometry`."""

from gbwatt.nn.aggregation import Aggregation
from gbwatt.nn.attention import Attended, SPDSelfAttention
from gbwatt.nn.batchnorm import SPDBatchNorm
from gbwatt.nn.bimap import BiMap
from gbwatt.nn.covariance import SegmentCovariance
from gbwatt.nn.embedding import Embedding, LogEig, ReEig
from gbwatt.nn.features import SpatioTemporalFeatures
from gbwatt.nn.metric import FixedMetric, LearnableMetric, MetricLayer
from gbwatt.nn.score import Score

__all__ = [
    "Aggregation",
    "Attended",
    "BiMap",
    "Embedding",
    "FixedMetric",
    "LearnableMetric",
    "LogEig",
    "MetricLayer",
    "ReEig",
    "SPDBatchNorm",
    "SPDSelfAttention",
    "Score",
    "SegmentCovariance",
    "SpatioTemporalFeatures",
]
