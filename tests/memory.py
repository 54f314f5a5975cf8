"""A limit on the memory that a block of a test may take."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Where the kernel enforces a limit on the address space; elsewhere :func:`limited_memory` limits nothing.
ENFORCED = sys.platform == "linux"


@contextmanager
def limited_memory(n_bytes: int) -> Iterator[None]:
    """Fail if a block asks for more than ``n_bytes`` beyond what the process has, whatever becomes of the error.

    The largest memory of a process so far, ``ru_maxrss``, would not do: it stays where it is until it is exceeded.
    """
    if not ENFORCED:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + n_bytes, hard))
    try:
        yield
    except Exception as error:
        if any(map(_is_out_of_memory, _chain(error))):
            raise AssertionError(f"more than {n_bytes} bytes of memory were asked for") from error
        raise
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "allocate memory" in str(error)  # the words of torch
