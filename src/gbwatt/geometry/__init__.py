"""Geometry of symmetric positive definite matrices, accurate for the ill-conditioned covariances of EEG.

Metrics share the methods ``sqdist``, ``dist``, ``log``, ``exp``, ``geodesic``, ``interval``, ``inner`` and ``mean``.
There are also differentiable functions of symmetric matrices and batched weighted Fréchet means.
"""

from gbwatt.geometry.linalg import (
    expm,
    generalized_lyapunov,
    invsqrtm,
    logm,
    lyapunov,
    powm,
    reeig,
    sqrtm,
    unvech,
    vech,
)
from gbwatt.geometry.means import Barycenter, barycenter
from gbwatt.geometry.metrics import (
    AffineInvariant,
    BuresWasserstein,
    Euclidean,
    GeneralizedBuresWasserstein,
    LogEuclidean,
    Metric,
    PullBack,
)

__all__ = [
    "AffineInvariant",
    "Barycenter",
    "BuresWasserstein",
    "Euclidean",
    "GeneralizedBuresWasserstein",
    "LogEuclidean",
    "Metric",
    "PullBack",
    "barycenter",
    "expm",
    "generalized_lyapunov",
    "invsqrtm",
    "logm",
    "lyapunov",
    "powm",
    "reeig",
    "sqrtm",
    "unvech",
    "vech",
]
