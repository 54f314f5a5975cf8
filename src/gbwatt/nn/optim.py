"""The optimiser: Riemannian Adam, with weight decay where it has a meaning."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gbwatt.nn.manifolds import RiemannianAdam, on_manifold


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Trainable parameters in two groups, with weight decay and without.

    Without are those on a manifold, where zero is no point to be drawn to, and those that their module names in its
    attribute ``undecayed``.
    """
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    seen: set[int] = set()
    for module in model.modules():
        undecayed = getattr(module, "undecayed", ())
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                (free if on_manifold(parameter) or name in undecayed else decayed).append(parameter)
    groups = ({"params": decayed, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0})
    return [group for group in groups if group["params"]]


def make_optimizer(model: nn.Module, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """Riemannian Adam for a model.

    References
    ----------
    .. [1] G. Bécigneul and O.-E. Ganea, "Riemannian adaptive optimization methods", ICLR 2019.
    """
    return RiemannianAdam(parameter_groups(model, weight_decay), lr=lr)
