"""The limit on memory in tests notices what it has to."""

from __future__ import annotations

import pytest
import torch

from tests.memory import ENFORCED, limited_memory

pytestmark = pytest.mark.skipif(not ENFORCED, reason="only Linux enforces a limit on the address space")


def python_memory():
    bytearray(500 << 20)


def torch_memory():
    torch.empty(500 << 20, dtype=torch.uint8)


def handled_memory():
    try:
        torch.empty(500 << 20, dtype=torch.uint8)
    except RuntimeError:
        raise ValueError("something else") from None


@pytest.mark.parametrize("ask", [python_memory, torch_memory, handled_memory])
def test_too_much_memory_fails_also_after_more_was_used_before(ask):
    ask()
    with pytest.raises(AssertionError, match=str(100 << 20)), limited_memory(100 << 20):
        ask()
    ask()


def test_other_errors_and_moderate_blocks_pass():
    with pytest.raises(KeyError), limited_memory(100 << 20):
        {}[torch.empty(1 << 20)]
