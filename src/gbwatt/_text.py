"""Text shown to users: unsafe characters, and whole numbers as ranges."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

#: Control characters, line separators, marks that reorder or hide text, unpaired surrogates and noncharacters.
UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def replace_unsafe(text: str, *, keep: str = "", mark: str | None = None) -> str:
    r"""Replace unsafe characters by their escape sequences, or by ``mark``; characters in ``keep`` remain.

    Examples
    --------
    >>> print(replace_unsafe("C3\x1b[2J\nC4", keep="\n"))
    C3\x1b[2J
    C4
    >>> replace_unsafe("C3\u200b", mark="?")
    'C3?'
    """

    def replacement(match: re.Match[str]) -> str:
        """Return an unsafe character if it is in ``keep``, and otherwise its replacement."""
        if match[0] in keep:
            return match[0]
        return ascii(match[0])[1:-1] if mark is None else mark

    return UNSAFE.sub(replacement, text)


def printable(text: str, limit: int = 4000) -> str:
    r"""Make a message safe for a terminal: escape unsafe characters but line breaks, and shorten it to ``limit``.

    Examples
    --------
    >>> printable("C3\x1b[2J and C4")
    'C3\\x1b[2J and C4'
    """
    shown = replace_unsafe(text, keep="\n")
    return shown if len(shown) <= limit else f"{shown[: limit - 40]} … ({len(shown)} characters)"


def number_ranges(numbers: Iterable[int], dash: str = "-") -> str:
    """Format whole numbers, sorted and without repetitions, as ranges.

    Examples
    --------
    >>> number_ranges([1, 2, 3, 7, 9, 8, 5])
    '1-3, 5, 7-9'
    """
    ordered = enumerate(sorted(set(numbers)))
    runs = ([number for _, number in run] for _, run in groupby(ordered, key=lambda pair: pair[1] - pair[0]))
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}{dash}{run[-1]}" for run in runs)
