"""Explanations of trained decoders: functions of (model, trials, target) that return numbers.

- :mod:`~gbwatt.explain.attribution`: which samples of which channels matter
- :mod:`~gbwatt.explain.internals`: attention, eigenvalues, metric, features, and what the filters extract
- :mod:`~gbwatt.explain.quality`: whether an attribution is trustworthy
- :mod:`~gbwatt.explain.explanation`: all of these for one decoder
"""

from gbwatt.explain.attribution import (
    METHODS,
    Attribution,
    gradient,
    gradient_times_input,
    integrated_gradients,
    smooth_gradient,
)
from gbwatt.explain.explanation import Explanation
from gbwatt.explain.internals import (
    Internals,
    LearntMetric,
    Patterns,
    Spectra,
    embed,
    feature_patterns,
    learnt_metric,
    look_inside,
    spatial_patterns,
    temporal_spectra,
)
from gbwatt.explain.quality import (
    Curve,
    LocalisationResult,
    Randomisation,
    Share,
    deletion,
    insertion,
    localisation,
    randomisation,
    randomised,
)

#: Former names.
Found = LocalisationResult
Inside = Internals

__all__ = [
    "METHODS",
    "Attribution",
    "Curve",
    "Explanation",
    "Found",
    "Inside",
    "Internals",
    "LearntMetric",
    "LocalisationResult",
    "Patterns",
    "Randomisation",
    "Share",
    "Spectra",
    "deletion",
    "embed",
    "feature_patterns",
    "gradient",
    "gradient_times_input",
    "insertion",
    "integrated_gradients",
    "learnt_metric",
    "localisation",
    "look_inside",
    "randomisation",
    "randomised",
    "smooth_gradient",
    "spatial_patterns",
    "temporal_spectra",
]
