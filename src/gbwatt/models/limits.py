"""A limit on the memory that the construction of a model may take, for sizes that come from a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

#: Largest result of a single operation on tensors: some networks measure their layers by trying them on an epoch.
MAX_RESULT = 4 << 30
#: Operations until a network is built: about 70 for GBWAtt, 2 000 for LaBraM.
MAX_OPERATIONS = 50_000


class TooLargeError(Exception):
    """The construction of a model went beyond its limit."""


class MemoryLimit(TorchDispatchMode):
    """Context in which torch refuses to create more than ``n_bytes`` of new tensors, before it allocates them.

    Operations on tensors may have results of up to :data:`MAX_RESULT` bytes.

    Examples
    --------
    >>> with MemoryLimit(1000):
    ...     x = torch.zeros(100)
    >>> with MemoryLimit(1000):
    ...     x = torch.zeros(1000)
    Traceback (most recent call last):
    ...
    gbwatt.models.limits.TooLargeError: 4000 bytes of new tensors
    """

    def __init__(self, n_bytes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.n_bytes, self.created, self.operations = n_bytes, 0, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            raise TooLargeError(f"more than {MAX_OPERATIONS} operations")
        if not func._schema.is_mutable:
            new = not any(isinstance(x, Tensor) for x in tree_flatten((args, kwargs))[0])
            size = _size_of_result(func, args, {**kwargs, "device": "meta"} if new else kwargs)
            self.created += size if new else 0
            if self.created > self.n_bytes:
                raise TooLargeError(f"{self.created} bytes of new tensors")
            if size > MAX_RESULT:
                raise TooLargeError(f"a tensor of {size} bytes")
        return func(*args, **kwargs)


def _size_of_result(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Bytes of what an operation would give, by trying it on tensors without memory; 0 if that cannot be done."""
    try:
        result = func(*tree_map(_without_memory, args), **tree_map(_without_memory, dict(kwargs)))
    except Exception:  # such operations fail themselves, or have small results
        return 0
    return sum(x.untyped_storage().nbytes() for x in tree_flatten(result)[0] if isinstance(x, Tensor))


def _without_memory(x: Any) -> Any:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") if isinstance(x, Tensor) else x
