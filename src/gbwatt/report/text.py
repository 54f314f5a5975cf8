"""Numbers and counts in words."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby


def ranges(numbers: Iterable[int], dash: str = "–") -> str:
    """Whole numbers in short.

    Examples
    --------
    >>> ranges([1, 2, 3, 7, 9, 8, 5])
    '1–3, 5, 7–9'
    """
    ordered = sorted(set(numbers))
    runs = ([number for _, number in run] for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0]))
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}{dash}{run[-1]}" for run in runs)


def span(numbers: Iterable[int]) -> str:
    """The smallest and the largest.

    Examples
    --------
    >>> span([288, 288]), span([270, 288])
    ('288', '270–288')
    """
    found = sorted(numbers)
    if not found:
        return ""
    return str(found[0]) if found[0] == found[-1] else f"{found[0]}–{found[-1]}"


def counted(n: int, word: str) -> str:
    """A number with its noun.

    Examples
    --------
    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{n} {word}" if n == 1 else f"{n} {word}s"
