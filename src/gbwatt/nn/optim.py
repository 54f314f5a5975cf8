"""The optimiser: Riemannian Adam, with weight decay where it has a meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from gbwatt.nn.manifolds import RiemannianAdam, on_manifold

__all__ = ["RiemannianAdam", "make_optimizer", "parameter_groups"]


def parameter_groups(
    model: nn.Module,
    weight_decay: float,
    *,
    stages: Sequence[Sequence[nn.Parameter]] | None = None,
    stage_decay: float = 1.0,
    lr: float | None = None,
    decay_vectors: bool = True,
) -> list[dict[str, Any]]:
    """Trainable parameters in groups, by stage and by whether weight decay applies.

    Weight decay does not apply to parameters on a manifold, where zero is not a point, and to those that a module names
    in its attribute ``undecayed``.

    Parameters
    ----------
    model : nn.Module
    weight_decay : float
    stages : sequence of sequences of parameters, optional
        Parameters from input to output; by default all parameters form one stage.
    stage_decay : float
        Ratio of the learning rate of a stage to that of the next one.
    lr : float, optional
        Learning rate of the last stage; without it, groups have no learning rate of their own.
    decay_vectors : bool
        Whether weight decay applies to parameters with fewer than two dimensions.

    Returns
    -------
    list of dict
        Groups for an optimiser, in the order of the stages; within a stage, the group with weight decay comes first.
    """
    undecayed = {id(getattr(m, name, None)) for m in model.modules() for name in getattr(m, "undecayed", ())}
    stages = [list(model.parameters())] if stages is None else stages
    groups = []
    for distance, stage in zip(range(len(stages) - 1, -1, -1), stages, strict=True):
        split: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for p in stage:
            if p.requires_grad:
                decays = (decay_vectors or p.ndim > 1) and not on_manifold(p) and id(p) not in undecayed
                split[decays].append(p)
        rate = {} if lr is None else {"lr": lr * stage_decay**distance}
        for decays, parameters in split.items():
            groups.append({"params": parameters, "weight_decay": weight_decay if decays else 0.0, **rate})
    return [group for group in groups if group["params"]]


def make_optimizer(model: nn.Module, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """Riemannian Adam for a model.

    References
    ----------
    .. [1] G. Bécigneul and O.-E. Ganea, "Riemannian adaptive optimization methods", ICLR 2019.
    """
    return RiemannianAdam(parameter_groups(model, weight_decay), lr=lr)
