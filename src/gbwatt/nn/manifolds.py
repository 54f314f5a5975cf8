"""Parameters on manifolds and their optimiser: the only module that knows geoopt."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

with warnings.catch_warnings():  # a deprecated decorator of torch at geoopt's import
    warnings.simplefilter("ignore", DeprecationWarning)
    import geoopt


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


# --------------------------------------------------------------------------------------------------------- geometries


class _Geometry(Protocol):
    """What Adam has to know of a manifold; points are stacked along a first axis."""

    def slope(self, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Riemannian gradient at x of a Euclidean one, and its squared norm, to be broadcast."""

    def move(self, x: Tensor, u: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        """The point in the direction u from x, and the average, a multiple of u, as a vector there."""


class _Stiefel:
    """Orthonormal columns with the Euclidean metric: retraction by QR, transport by projection."""

    def slope(self, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        grad = _tangent(x, grad)
        return grad, grad.square().sum((-2, -1), keepdim=True)

    def move(self, x: Tensor, u: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        q, r = torch.linalg.qr(x + u)
        diagonal = r.diagonal(dim1=-2, dim2=-1)
        y = q * torch.ones_like(diagonal).copysign(diagonal)[..., None, :]  # of all factors q the one next to x
        return y, _tangent(y, average)


def _tangent(x: Tensor, u: Tensor) -> Tensor:
    """``u - x sym(xᵀ u)``."""
    inner = x.mT @ u
    return torch.baddbmm(u, x, inner + inner.mT, alpha=-0.5)


class _PositiveDefinite:
    r"""SPD matrices with the affine-invariant metric: retraction of second order, parallel transport.

    The transport from x to :math:`y = x (1 + z + z²/2)`, where :math:`z = x^{-1} u`, is :math:`e v e^⊤` with
    :math:`e = (y x^{-1})^{1/2}`.  For a multiple v of u all factors commute in the frame of x, no root is left, and
    :math:`e v e^⊤ = v (1 + z + z²/2)`.
    """

    def slope(self, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
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

    def slope(self, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        grad = self.manifold.egrad2rgrad(x, grad)
        return grad, self.manifold.component_inner(x, grad)

    def move(self, x: Tensor, u: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        y, average = self.manifold.retr_transp(x, u, average)
        return y, average


_KNOWN: dict[type, _Geometry] = {
    geoopt.EuclideanStiefel: _Stiefel(),
    geoopt.SymmetricPositiveDefinite: _PositiveDefinite(),
}


def _geometry(parameter: Tensor) -> _Geometry | None:
    """The geometry of a parameter, None if it is flat."""
    if not isinstance(parameter, geoopt.ManifoldTensor):
        return None
    known = _KNOWN.get(type(parameter.manifold)) if parameter.ndim == 2 else None
    return known or _Other(parameter.manifold)


# ---------------------------------------------------------------------------------------------------------- optimiser


class RiemannianAdam(geoopt.optim.RiemannianAdam):  # type: ignore[misc]
    """Riemannian Adam [1]_: geoopt's, with the same arguments, state and results, in fewer operations.

    Flat parameters go through torch's fused Adam together; points on the same manifold and of the same shape are moved
    together.  Gradients are not changed.

    References
    ----------
    .. [1] G. Bécigneul and O.-E. Ganea, "Riemannian adaptive optimization methods", ICLR 2019.
    """

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step for all parameters that have a gradient; the result is that of the closure."""
        loss = None if closure is None else closure()
        with torch.no_grad():
            for group in self.param_groups:
                self._step(group)
        return loss

    def _step(self, group: dict[str, Any]) -> None:
        alike: dict[Any, list[_Moving]] = {}
        for p in group["params"]:
            if p.grad is not None:
                moving = self._moving(p, group["amsgrad"])
                alike.setdefault(moving.kind(), []).append(moving)
        for key, found in alike.items():
            _step_curved(group, found, key[0]) if key[0] else _step_flat(group, found)
        every = group["stabilize"]
        if every is not None and any(one.state["step"] % every == 0 for found in alike.values() for one in found):
            self.stabilize_group(group)

    def _moving(self, p: Tensor, amsgrad: bool) -> _Moving:
        """A parameter and its state, which begins with its first gradient; the step is counted."""
        grad, state = p.grad, self.state[p]
        if grad is None or grad.is_sparse:
            raise RuntimeError("RiemannianAdam takes no sparse gradients; build the layer with sparse=False.")
        if not state:
            names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if amsgrad else ("exp_avg", "exp_avg_sq")
            state.update({"step": 0, **{name: torch.zeros_like(p) for name in names}})
        state["step"] = int(state["step"]) + 1  # a tensor, if torch has read it
        if grad.stride() != p.stride():  # fused code takes the layout for granted
            grad = torch.empty_like(p).copy_(grad)
        return _Moving(p, grad, state)


class _Moving(NamedTuple):
    """A parameter on its way."""

    point: Tensor
    grad: Tensor
    state: dict[str, Any]

    def kind(self) -> tuple[Any, ...]:
        """What parameters that move together have in common: the geometry first."""
        p, geometry = self.point, _geometry(self.point)
        return geometry, geometry and p.shape, p.dtype, p.device, self.state["step"]


def _step_flat(group: dict[str, Any], moving: list[_Moving]) -> None:
    """Adam for parameters without a manifold, of one precision and device, after as many steps."""
    points, grads, states = map(list, zip(*moving, strict=True))
    largest = [state["max_exp_avg_sq"] for state in states] if group["amsgrad"] else []
    averages = [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states], largest
    rates = {name: group[name] for name in ("lr", "weight_decay", "eps", "amsgrad", "maximize")}
    rates["beta1"], rates["beta2"] = group["betas"]
    steps = torch.tensor(float(states[0]["step"]), device=points[0].device)
    if all(map(_fusable, points)):
        torch._fused_adam_(points, grads, *averages, [steps] * len(points), **rates)
    else:  # it counts the step itself
        adam(points, grads, *averages, [steps - 1 for _ in points], **rates)


def _fusable(point: Tensor) -> bool:
    return point.is_contiguous() and point.is_floating_point() and point.device.type in ("cpu", "cuda")


def _step_curved(group: dict[str, Any], moving: list[_Moving], geometry: _Geometry) -> None:
    """Riemannian Adam for points of one shape on the same manifold, after as many steps."""
    points, grads, states = zip(*moving, strict=True)
    x, grad = torch.stack(points), torch.stack(grads)
    if group["maximize"]:
        grad = -grad
    if group["weight_decay"]:
        grad = grad.add(x, alpha=group["weight_decay"])
    slope, square = geometry.slope(x, grad)
    average = _together(states, "exp_avg").lerp_(slope, 1 - group["betas"][0])
    root = _squares(group, states, square).sqrt()
    first, second = (1 - beta ** states[0]["step"] for beta in group["betas"])  # averages begin at 0
    u = average / root.add_(second**0.5 * group["eps"]) * (-(second**0.5) / first * group["lr"])
    y, transported = geometry.move(x, u, average)
    average.copy_(transported)
    torch._foreach_copy_(points, y.unbind())


def _squares(group: dict[str, Any], states: Sequence[dict[str, Any]], square: Tensor) -> Tensor:
    """The average of squared norms, or the largest average so far."""
    beta = group["betas"][1]
    squares = _together(states, "exp_avg_sq").mul_(beta).add_(square, alpha=1 - beta)
    if not group["amsgrad"]:
        return squares
    largest = _together(states, "max_exp_avg_sq")
    return torch.maximum(largest, squares, out=largest)


def _together(states: Sequence[dict[str, Any]], name: str) -> Tensor:
    """Entries of several states as one tensor, of which they are slices from then on."""
    entries = [state[name] for state in states]
    whole: Tensor | None = entries[0]._base
    if whole is None or not _slices(entries, whole):
        whole = torch.stack(entries)
        for state, entry in zip(states, whole.unbind(), strict=True):
            state[name] = entry
    return whole


def _slices(entries: Sequence[Tensor], whole: Tensor) -> bool:
    """Whether the entries are the slices of a tensor, in their order and no others."""
    size = entries[0].numel()
    return whole.shape == (len(entries), *entries[0].shape) and all(
        entry._base is whole and entry.storage_offset() == number * size for number, entry in enumerate(entries)
    )
