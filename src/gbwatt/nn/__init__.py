"""Layers of SPD networks, based on :mod:`gbwatt.geometry`."""

from gbwatt.nn.attention import (
    Aggregation,
    Attended,
    FixedMetric,
    LearnableMetric,
    MetricLayer,
    Score,
    SPDSelfAttention,
)
from gbwatt.nn.covariance import SegmentCovariance
from gbwatt.nn.features import SpatioTemporalFeatures, Templates
from gbwatt.nn.spd_layers import BiMap, DomainSPDBatchNorm, Embedding, LogEig, ReEig, SPDBatchNorm

__all__ = [
    "Aggregation",
    "Attended",
    "BiMap",
    "DomainSPDBatchNorm",
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
    "Templates",
]
