"""Seeded damage to files, and what becomes of it.

Every damaged file must lead to an error of gbwatt's own, or to the result of the undamaged file.  Damage inside samples
that a format cannot detect, because it has no checksum, is counted apart.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


def damaged(content: bytes, n: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """``n`` damaged versions of a file, each with a description of the damage."""
    rng = random.Random(seed)
    for number in range(n):
        damage = rng.choice((flip_bits, truncate, zero_block, insert_noise, remove_block))
        changed = damage(content, rng)
        yield f"{number}: {damage.__name__}", changed


def flip_bits(content: bytes, rng: random.Random) -> bytes:
    """One to four bits are inverted."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(content: bytes, rng: random.Random) -> bytes:
    """The end is missing."""
    return content[: rng.randrange(len(content))]


def zero_block(content: bytes, rng: random.Random) -> bytes:
    """A block is overwritten with zeros."""
    start = rng.randrange(len(content))
    size = min(rng.randint(1, 512), len(content) - start)
    return content[:start] + bytes(size) + content[start + size :]


def insert_noise(content: bytes, rng: random.Random) -> bytes:
    """Random bytes are inserted."""
    start = rng.randrange(len(content) + 1)
    return content[:start] + rng.randbytes(rng.randint(1, 64)) + content[start:]


def remove_block(content: bytes, rng: random.Random) -> bytes:
    """A block is missing."""
    start = rng.randrange(len(content))
    return content[:start] + content[start + rng.randint(1, 512) :]


@dataclass
class Tally:
    """Outcomes of damaged inputs: refused by a named error, unchanged, undetectable, or wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    undetectable: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(
        self,
        case: str,
        read: Callable[[], Any],
        same: Callable[[Any], bool],
        only_samples: Callable[[Any], bool] = lambda _: False,
    ) -> None:
        """Read a damaged input and judge what comes of it.

        Parameters
        ----------
        case : str
            Name of the case in a failure.
        read : callable
            Reads the damaged input.
        same : callable
            Whether a result equals that of the undamaged input.
        only_samples : callable
            Whether a result differs in nothing but finite sample values, for formats without checksums.
        """
        try:
            result = read()
        except Exception as error:
            if is_named(error):
                self.counts["refused"] += 1
            else:
                self.wrong.append(f"{case}: raw {type(error).__module__}.{type(error).__name__}: {str(error)[:200]}")
            return
        if same(result):
            self.counts["same"] += 1
        elif only_samples(result):
            self.counts["undetectable"] += 1
            self.undetectable.append(case)
        else:
            self.wrong.append(f"{case}: silently different: {str(result)[:200]}")

    def finish(self, at_least: int) -> None:
        """Print the counts; fail on wrong outcomes, on too few cases, and if nothing was refused."""
        total = sum(self.counts.values()) + len(self.wrong)
        print(f"{total} cases: {dict(self.counts)}; undetectable: {self.undetectable}")  # noqa: T201
        assert not self.wrong, f"{len(self.wrong)} of {total} cases:\n" + "\n".join(self.wrong[:40])
        assert total >= at_least
        assert self.counts["refused"] > 0


def is_named(error: BaseException) -> bool:
    """Whether an error is one of gbwatt's own, with a message."""
    return type(error).__module__.partition(".")[0] == "gbwatt" and bool(str(error).strip())
