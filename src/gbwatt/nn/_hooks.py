"""Whether modules may be replaced by other computations of the same result."""

from __future__ import annotations

from torch import nn


def is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module is exactly of this class and has no hooks, which would not be called."""
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return type(module) is kind and not hooks
