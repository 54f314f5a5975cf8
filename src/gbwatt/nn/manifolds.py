"""Parameters on manifolds, and the geometry of the manifolds of geoopt."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

with warnings.catch_warnings():  # torch.jit warns that it is deprecated when geoopt is imported
    warnings.simplefilter("ignore", DeprecationWarning)
    import geoopt as geoopt


def stiefel(n: int, k: int) -> nn.Parameter:
    """Create a random parameter (n, k) with orthonormal columns."""
    columns: Tensor = nn.init.orthogonal_(torch.empty(n, k))
    parameter: nn.Parameter = geoopt.ManifoldParameter(columns, manifold=geoopt.EuclideanStiefel())
    return parameter


def positive_definite(k: int) -> nn.Parameter:
    """Create a positive definite parameter (k, k), initially the identity."""
    manifold = geoopt.SymmetricPositiveDefinite()
    parameter: nn.Parameter = geoopt.ManifoldParameter(torch.eye(k), manifold=manifold)
    return parameter


def on_manifold(parameter: Tensor) -> bool:
    """Whether a parameter lies on a manifold."""
    return isinstance(parameter, geoopt.ManifoldParameter)


class Geometry(Protocol):
    """Operations of Riemannian Adam on a manifold; points are stacked along the first axis."""

    def gradient(self, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Riemannian gradient at x from the Euclidean one, and its squared norm, of a shape that broadcasts."""

    def move(self, x: Tensor, u: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        """Retract x along u, and transport the average, a multiple of u, to the new point."""


class _Stiefel:
    """Orthonormal columns with the Euclidean metric: retraction by QR, transport by projection."""

    def gradient(self, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        grad = _tangent(x, grad)
        return grad, grad.square().sum((-2, -1), keepdim=True)

    def move(self, x: Tensor, u: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        q, r = torch.linalg.qr(x + u)
        diagonal = r.diagonal(dim1=-2, dim2=-1)
        y = q * torch.ones_like(diagonal).copysign(diagonal)[..., None, :]  # the factor q that is closest to x
        return y, _tangent(y, average)


def _tangent(x: Tensor, u: Tensor) -> Tensor:
    """``u - x sym(xᵀ u)``."""
    inner = x.mT @ u
    return torch.baddbmm(u, x, inner + inner.mT, alpha=-0.5)


class _PositiveDefinite:
    r"""SPD matrices with the affine-invariant metric: second-order retraction, parallel transport.

    The transport from x to :math:`y = x (1 + z + z²/2)`, where :math:`z = x^{-1} u`, is :math:`e v e^⊤` with
    :math:`e = (y x^{-1})^{1/2}`.  For a multiple v of u all factors commute in the frame of x, so that
    :math:`e v e^⊤ = v (1 + z + z²/2)` without a square root.
    """

    def gradient(self, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        half = torch.baddbmm(x, x, grad + grad.mT, beta=0, alpha=0.5)
        return half @ x, (half * half.mT).sum((-2, -1), keepdim=True)

    def move(self, x: Tensor, u: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        z = torch.linalg.solve(x, u)
        y = torch.baddbmm(x + u, u, z, alpha=0.5)
        return (y + y.mT).mul_(0.5), torch.baddbmm(average, average, torch.baddbmm(z, z, z, alpha=0.5))


@dataclass(frozen=True)
class _Other:
    """Any other manifold of geoopt."""

    manifold: Any

    def gradient(self, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        grad = self.manifold.egrad2rgrad(x, grad)
        return grad, self.manifold.component_inner(x, grad)

    def move(self, x: Tensor, u: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        y, average = self.manifold.retr_transp(x, u, average)
        return y, average


_KNOWN: dict[type, Geometry] = {
    geoopt.EuclideanStiefel: _Stiefel(),
    geoopt.SymmetricPositiveDefinite: _PositiveDefinite(),
}


def geometry_of(parameter: Tensor) -> Geometry | None:
    """Geometry of a parameter, None if it is Euclidean."""
    if not isinstance(parameter, geoopt.ManifoldTensor):
        return None
    geometry = _KNOWN.get(type(parameter.manifold)) if parameter.ndim == 2 else None
    return geometry or _Other(parameter.manifold)


def __getattr__(name: str) -> Any:
    if name == "RiemannianAdam":
        from gbwatt.nn.optim import RiemannianAdam

        message = "RiemannianAdam has moved from gbwatt.nn.manifolds to gbwatt.nn.optim; import it from there."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return RiemannianAdam
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
