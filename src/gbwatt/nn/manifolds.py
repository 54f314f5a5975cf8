"""Parameters on manifolds and their optimiser: the only module that knows geoopt."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

with warnings.catch_warnings():  # a deprecated decorator of torch at geoopt's import
    warnings.simplefilter("ignore", DeprecationWarning)
    import geoopt

RiemannianAdam: type[torch.optim.Optimizer] = geoopt.optim.RiemannianAdam


def stiefel(n: int, k: int) -> nn.Parameter:
    """A random parameter (n, k) with orthonormal columns, which the optimiser keeps orthonormal."""
    columns: Tensor = nn.init.orthogonal_(torch.empty(n, k))
    parameter: nn.Parameter = geoopt.ManifoldParameter(columns, manifold=geoopt.EuclideanStiefel())
    return parameter


def positive_definite(k: int) -> nn.Parameter:
    """A parameter (k, k) that starts at the identity and that the optimiser keeps positive definite."""
    manifold = geoopt.SymmetricPositiveDefinite()
    parameter: nn.Parameter = geoopt.ManifoldParameter(torch.eye(k), manifold=manifold)
    return parameter


def on_manifold(parameter: Tensor) -> bool:
    """Whether the optimiser moves this parameter on a manifold."""
    return isinstance(parameter, geoopt.ManifoldParameter)
