"""Texts: replacing characters that must not be shown."""

from __future__ import annotations

import re

#: Control characters, line separators, marks that reorder or hide text, halves of surrogate pairs, noncharacters.
UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def replace_unsafe(text: str, *, keep: str = "", mark: str | None = None) -> str:
    r"""Text with each unsafe character replaced by its escape sequence, or by ``mark``; those in ``keep`` remain.

    Examples
    --------
    >>> print(replace_unsafe("C3\x1b[2J\nC4", keep="\n"))
    C3\x1b[2J
    C4
    >>> replace_unsafe("C3\u200b", mark="?")
    'C3?'
    """

    def replacement(found: re.Match[str]) -> str:
        if found[0] in keep:
            return found[0]
        return ascii(found[0])[1:-1] if mark is None else mark

    return UNSAFE.sub(replacement, text)


def printable(text: str, limit: int = 4000) -> str:
    r"""A message in which nothing moves the cursor or hides text: control characters are shown as escapes.

    Examples
    --------
    >>> printable("C3\x1b[2J and C4")
    'C3\\x1b[2J and C4'
    """
    shown = replace_unsafe(text, keep="\n")
    return shown if len(shown) <= limit else f"{shown[: limit - 40]} … ({len(shown)} characters)"
