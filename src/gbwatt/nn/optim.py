"""Parameters on manifolds, Riemannian Adam, and groups of parameters with their learning rates and weight decay."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from gbwatt._validation import check_one_of
from gbwatt.errors import ParameterError

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
        """Project the Euclidean gradient onto the tangent space at x; return it and its squared norm."""
        grad = _project_to_tangent(x, grad)
        return grad, grad.square().sum((-2, -1), keepdim=True)

    def move(self, x: Tensor, u: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        """Move x along u by a QR decomposition, and project the average onto the new tangent space."""
        q, r = torch.linalg.qr(x + u)
        diagonal = r.diagonal(dim1=-2, dim2=-1)
        y = q * torch.ones_like(diagonal).copysign(diagonal)[..., None, :]  # the factor q that is closest to x
        return y, _project_to_tangent(y, average)


def _project_to_tangent(x: Tensor, u: Tensor) -> Tensor:
    """Project ``u`` onto the tangent space of the Stiefel manifold at ``x``: ``u - x sym(xᵀ u)``."""
    inner = x.mT @ u
    return torch.baddbmm(u, x, inner + inner.mT, alpha=-0.5)


class _PositiveDefinite:
    r"""SPD matrices with the affine-invariant metric: second-order retraction, parallel transport.

    The transport from x to :math:`y = x (1 + z + z²/2)`, where :math:`z = x^{-1} u`, is :math:`e v e^⊤` with
    :math:`e = (y x^{-1})^{1/2}`.  For a multiple v of u all factors commute in the frame of x, so that
    :math:`e v e^⊤ = v (1 + z + z²/2)` without a square root.
    """

    def gradient(self, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Riemannian gradient ``x sym(grad) x``, and its squared affine-invariant norm."""
        half = torch.baddbmm(x, x, grad + grad.mT, beta=0, alpha=0.5)
        return half @ x, (half * half.mT).sum((-2, -1), keepdim=True)

    def move(self, x: Tensor, u: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        """Retract x along u to second order, and transport the average, a multiple of u, to the new point."""
        z = torch.linalg.solve(x, u)
        y = torch.baddbmm(x + u, u, z, alpha=0.5)
        return (y + y.mT).mul_(0.5), torch.baddbmm(average, average, torch.baddbmm(z, z, z, alpha=0.5))


@dataclass(frozen=True)
class _Other:
    """Any other manifold of geoopt."""

    manifold: Any

    def gradient(self, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Riemannian gradient as computed by geoopt, and its squared norm."""
        grad = self.manifold.egrad2rgrad(x, grad)
        return grad, self.manifold.component_inner(x, grad)

    def move(self, x: Tensor, u: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        """Retract x along u, and transport the average to the new point, by geoopt."""
        y, average = self.manifold.retr_transp(x, u, average)
        return y, average


_KNOWN: dict[type, Geometry] = {
    geoopt.EuclideanStiefel: _Stiefel(),
    geoopt.SymmetricPositiveDefinite: _PositiveDefinite(),
}


def geometry_of(parameter: Tensor) -> Geometry | None:
    """Operations of Riemannian Adam on the manifold of a parameter; None if it is Euclidean."""
    if not isinstance(parameter, geoopt.ManifoldTensor):
        return None
    geometry = _KNOWN.get(type(parameter.manifold)) if parameter.ndim == 2 else None
    return geometry or _Other(parameter.manifold)


__all__ = ["RiemannianAdam", "is_part", "make_optimizer", "parameter_groups", "require_parts"]


def parameter_groups(
    model: nn.Module,
    weight_decay: float,
    *,
    stages: Sequence[Sequence[nn.Parameter]] | None = None,
    stage_decay: float = 1.0,
    factors: Mapping[str, float] | None = None,
    lr: float | None = None,
    decay_vectors: bool = True,
) -> list[dict[str, Any]]:
    """Group the trainable parameters of a model by stage, and within a stage by weight decay.

    Weight decay does not apply to parameters on a manifold, where zero has no special meaning, nor to parameters that
    their module names in its attribute ``undecayed``.

    Parameters
    ----------
    model : nn.Module
    weight_decay : float
    stages : sequence of sequences of parameters, optional
        Parameters from input to output, in stages of equal depth.  Parameters in no stage are left out.  By default,
        all parameters of the model are one stage.
    stage_decay : float
        Factor from the learning rate of a stage to that of the stage before it (layer-wise learning-rate decay);
        requires ``lr``.
    factors : mapping of str to float, optional
        Factors of the learning rate by the beginning of the name of parameters, such as "features" or
        "attention.query"; the longest one counts.  Parameters with the same factor are one stage, in order of the
        parameters; those without one have the factor 1.  Instead of ``stages``; requires ``lr``.
    lr : float, optional
        Learning rate of the last stage, or of parameters with factor 1.
    decay_vectors : bool
        Whether weight decay applies to parameters with fewer than two axes, such as biases.

    Returns
    -------
    list of dict
        Groups for an optimiser with the keys "params" and "weight_decay" and, if ``lr`` is given, "lr" and "scale",
        the ratio of "lr" to ``lr``.  The groups are in the order of the stages, with weight decay before without; empty
        groups are left out.  Saved optimiser states depend on this order.

    Raises
    ------
    ParameterError
        If ``stage_decay`` or ``factors`` is given without ``lr``, or ``factors`` together with ``stages``.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    >>> stages = [list(layer.parameters()) for layer in model]
    >>> groups = parameter_groups(model, 0.1, stages=stages, stage_decay=0.5, lr=1e-2, decay_vectors=False)
    >>> for group in groups:
    ...     print([tuple(p.shape) for p in group["params"]], group["weight_decay"], group["lr"])
    [(3, 2)] 0.1 0.005
    [(3,)] 0.0 0.005
    [(1, 3)] 0.1 0.01
    [(1,)] 0.0 0.01
    >>> [group["lr"] for group in parameter_groups(model, 0.1, factors={"0": 0.1}, lr=1e-2)]
    [0.001, 0.01]
    """
    scaled_stages = _scale_stages(model, stages, stage_decay, factors, lr)
    undecayed = {id(getattr(module, name, None)) for module in model.modules() for name in _undecayed_names(module)}
    groups: list[dict[str, Any]] = []
    seen: set[int] = set()
    for scale, stage in scaled_stages:
        rate = {} if lr is None else {"lr": lr * scale, "scale": scale}
        decayed: list[nn.Parameter] = []
        free: list[nn.Parameter] = []
        for p in stage:
            if p.requires_grad and id(p) not in seen:
                seen.add(id(p))
                exempt = on_manifold(p) or id(p) in undecayed or (p.ndim < 2 and not decay_vectors)
                (free if exempt else decayed).append(p)
        groups += [
            {"params": decayed, "weight_decay": weight_decay, **rate},
            {"params": free, "weight_decay": 0.0, **rate},
        ]
    return [group for group in groups if group["params"]]


def _scale_stages(
    model: nn.Module,
    stages: Sequence[Sequence[nn.Parameter]] | None,
    stage_decay: float,
    factors: Mapping[str, float] | None,
    lr: float | None,
) -> list[tuple[float, Sequence[nn.Parameter]]]:
    """Parameters of each stage, with the factor of its learning rate; arguments as in :func:`parameter_groups`."""
    if lr is None and (stage_decay != 1 or factors):
        name = f"factors={dict(factors)}" if factors else f"stage_decay={stage_decay}"
        raise ParameterError(f"{name} requires lr, the learning rate of the last stage.")
    if stages is not None and factors:
        raise ParameterError("factors: learning rates are given by stages already; leave one of them out.")
    if factors:
        return _stages_by_factor(model, factors)
    if stages is None:
        return [(1.0, list(model.parameters()))]
    return [(stage_decay ** (len(stages) - 1 - depth), stage) for depth, stage in enumerate(stages)]


def _stages_by_factor(model: nn.Module, factors: Mapping[str, float]) -> list[tuple[float, Sequence[nn.Parameter]]]:
    """Parameters with the same factor together, in order of the first one."""
    stages: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        prefixes = [prefix for prefix in factors if is_part(name, prefix)]
        stages.setdefault(float(factors[max(prefixes, key=len)]) if prefixes else 1.0, []).append(parameter)
    return list(stages.items())


def is_part(name: str, prefix: str) -> bool:
    """Whether the parameter or module ``name`` is ``prefix`` or a part of it.

    Examples
    --------
    >>> is_part("features.spatial.weight", "features"), is_part("features_2.weight", "features")
    (True, False)
    """
    return name == prefix or name.startswith(f"{prefix}.")


def require_parts(argument: str, prefixes: Iterable[str], model: nn.Module) -> None:
    """Raise ParameterError if a name is not a part of a model that has parameters.

    Parameters
    ----------
    argument : str
        Name of the argument in the message.
    prefixes : iterable of str
        Names of modules or parameters, such as "features" or "attention.query".
    model : nn.Module

    Examples
    --------
    >>> require_parts("frozen", ["bais"], nn.Linear(2, 1))
    Traceback (most recent call last):
    ...
    gbwatt.errors.ParameterError: frozen='bais' is not known; it is one of 'weight', 'bias'. Did you mean 'bias'?
    """
    names = [name.split(".") for name, _ in model.named_parameters()]
    for prefix in prefixes:
        depth = str(prefix).count(".") + 1
        check_one_of(argument, prefix, tuple(dict.fromkeys(".".join(name[:depth]) for name in names)))


def _undecayed_names(module: nn.Module) -> Sequence[str]:
    """Names of the parameters of a layer that have no weight decay."""
    names: Sequence[str] = getattr(module, "undecayed", ())
    return names


def make_optimizer(model: nn.Module, lr: float, weight_decay: float) -> RiemannianAdam:
    """Create the optimiser of a model: Riemannian Adam with the groups of :func:`parameter_groups`.

    Parameters
    ----------
    model : nn.Module
    lr, weight_decay : float

    Returns
    -------
    RiemannianAdam

    Examples
    --------
    >>> from gbwatt.nn import BiMap
    >>> [group["weight_decay"] for group in make_optimizer(BiMap(4, 2), lr=1e-3, weight_decay=0.1).param_groups]
    [0.0]
    """
    return RiemannianAdam(parameter_groups(model, weight_decay), lr=lr)


class RiemannianAdam(geoopt.optim.RiemannianAdam):  # type: ignore[misc]
    """Riemannian Adam [1]_, with the arguments, state and results of geoopt's, but fewer operations.

    All Euclidean parameters are updated together by torch's fused Adam, and so are all parameters of the same shape on
    the same manifold.  Gradients are not changed.

    References
    ----------
    .. [1] G. Bécigneul and O.-E. Ganea, "Riemannian adaptive optimization methods", ICLR 2019.
    """

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient.

        Parameters
        ----------
        closure : callable, optional
            Evaluates the model, and returns the loss.

        Returns
        -------
        The result of ``closure``, or None.
        """
        loss = None if closure is None else closure()
        with torch.no_grad():
            for group in self.param_groups:
                self._step(group)
        return loss

    def _step(self, group: dict[str, Any]) -> None:
        """Update the parameters of a group; those of one shape and manifold together."""
        batches: dict[Any, list[_Update]] = {}
        for p in group["params"]:
            if p.grad is not None:
                update = self._prepare_update(p, group["amsgrad"])
                batches.setdefault(update.kind(), []).append(update)
        for (geometry, *_), updates in batches.items():
            _step_on_manifold(group, updates, geometry) if geometry else _step_euclidean(group, updates)
        every = group["stabilize"]
        if every is not None and any(u.state["step"] % every == 0 for updates in batches.values() for u in updates):
            self.stabilize_group(group)

    def _prepare_update(self, p: Tensor, amsgrad: bool) -> _Update:
        """Count a step of a parameter; return it with its gradient and its state, which is created if needed."""
        grad, state = p.grad, self.state[p]
        if grad is None or grad.is_sparse:
            raise RuntimeError("RiemannianAdam does not support sparse gradients; build the layer with sparse=False.")
        if not state:
            names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if amsgrad else ("exp_avg", "exp_avg_sq")
            state.update({"step": 0, **{name: torch.zeros_like(p) for name in names}})
        state["step"] = int(state["step"]) + 1  # a tensor if torch loaded the state
        if grad.stride() != p.stride():  # the fused code requires equal layouts
            grad = torch.empty_like(p).copy_(grad)
        return _Update(p, grad, state)


class _Update(NamedTuple):
    """A parameter to be updated."""

    point: Tensor
    grad: Tensor
    state: dict[str, Any]

    def kind(self) -> tuple[Any, ...]:
        """Key of the parameters that can be updated together; its first entry is the geometry."""
        p, geometry = self.point, geometry_of(self.point)
        return geometry, geometry and p.shape, p.dtype, p.device, self.state["step"]


def _step_euclidean(group: dict[str, Any], updates: list[_Update]) -> None:
    """Adam for Euclidean parameters of one dtype and device after the same number of steps."""
    points, grads, states = map(list, zip(*updates, strict=True))
    largest = [state["max_exp_avg_sq"] for state in states] if group["amsgrad"] else []
    averages = [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states], largest
    rates = {name: group[name] for name in ("lr", "weight_decay", "eps", "amsgrad", "maximize")}
    rates["beta1"], rates["beta2"] = group["betas"]
    steps = torch.tensor(float(states[0]["step"]), device=points[0].device)
    if all(map(_fusable, points)):
        torch._fused_adam_(points, grads, *averages, [steps] * len(points), **rates)
    else:  # this function counts the step itself
        adam(points, grads, *averages, [steps - 1 for _ in points], **rates)


def _fusable(point: Tensor) -> bool:
    """Whether torch's fused Adam supports a parameter."""
    return point.is_contiguous() and point.is_floating_point() and point.device.type in ("cpu", "cuda")


def _step_on_manifold(group: dict[str, Any], updates: list[_Update], geometry: Geometry) -> None:
    """Riemannian Adam for parameters of one shape on the same manifold after the same number of steps."""
    points, grads, states = zip(*updates, strict=True)
    x, grad = torch.stack(points), torch.stack(grads)
    if group["maximize"]:
        grad = -grad
    if group["weight_decay"]:
        grad = grad.add(x, alpha=group["weight_decay"])
    gradient, square = geometry.gradient(x, grad)
    average = _stack_entries(states, "exp_avg").lerp_(gradient, 1 - group["betas"][0])
    root = _update_second_moment(group, states, square).sqrt()
    first, second = (1 - beta ** states[0]["step"] for beta in group["betas"])  # the averages start at 0
    u = average / root.add_(second**0.5 * group["eps"]) * (-(second**0.5) / first * group["lr"])
    y, transported = geometry.move(x, u, average)
    average.copy_(transported)
    torch._foreach_copy_(points, y.unbind())


def _update_second_moment(group: dict[str, Any], states: Sequence[dict[str, Any]], square: Tensor) -> Tensor:
    """Update the average of squared gradient norms in the states and return it; with AMSGrad, the largest so far."""
    beta = group["betas"][1]
    squares = _stack_entries(states, "exp_avg_sq").mul_(beta).add_(square, alpha=1 - beta)
    if not group["amsgrad"]:
        return squares
    largest = _stack_entries(states, "max_exp_avg_sq")
    return torch.maximum(largest, squares, out=largest)


def _stack_entries(states: Sequence[dict[str, Any]], name: str) -> Tensor:
    """Stack an entry of several states in one tensor, of which the entries become views, to update them together."""
    entries = [state[name] for state in states]
    whole: Tensor | None = entries[0]._base
    if whole is None or not _are_slices(entries, whole):
        whole = torch.stack(entries)
        for state, entry in zip(states, whole.unbind(), strict=True):
            state[name] = entry
    return whole


def _are_slices(entries: Sequence[Tensor], whole: Tensor) -> bool:
    """Whether the entries are exactly the slices of a tensor, in this order."""
    size = entries[0].numel()
    return whole.shape == (len(entries), *entries[0].shape) and all(
        entry._base is whole and entry.storage_offset() == number * size for number, entry in enumerate(entries)
    )
