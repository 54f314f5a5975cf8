"""Explanations of trained decoders as numbers: functions of (model, trials, target).

What matters in an epoch (:mod:`~gbwatt.explain.attribution`), what filters find (:mod:`~gbwatt.explain.patterns`), what
happens inside the network (:mod:`~gbwatt.explain.internals`), and whether to believe it
(:mod:`~gbwatt.explain.faithfulness`, :mod:`~gbwatt.explain.randomization`, :mod:`~gbwatt.explain.localization`).
"""

from gbwatt.explain.attribution import (
    METHODS,
    Attribution,
    gradient,
    gradient_times_input,
    integrated_gradients,
    smooth_gradient,
)
from gbwatt.explain.faithfulness import Curve, deletion, insertion
from gbwatt.explain.internals import Inside, LearntMetric, embed, learnt_metric, look_inside
from gbwatt.explain.localization import Found, Share, localisation
from gbwatt.explain.patterns import Patterns, Spectra, feature_patterns, spatial_patterns, temporal_spectra
from gbwatt.explain.randomization import Randomisation, randomisation, randomised

__all__ = [
    "METHODS",
    "Attribution",
    "Curve",
    "Found",
    "Inside",
    "LearntMetric",
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
