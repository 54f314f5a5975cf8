"""Text in CSV files that spreadsheets would take for a formula."""

from __future__ import annotations

import re

# Apostrophes are included so that guarded text can be told from text that had one before.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")


def guarded(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would evaluate; numbers stay as they are.

    Examples
    --------
    >>> guarded("=1+1"), guarded("'=1+1"), guarded("-0.25"), guarded("a=1")
    ("'=1+1", "''=1+1", '-0.25', 'a=1')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unguarded(text: str) -> str:
    """Undo :func:`guarded`.

    Examples
    --------
    >>> unguarded("'=1+1"), unguarded("''=1+1"), unguarded("-0.25"), unguarded("'a")
    ('=1+1', "'=1+1", '-0.25', "'a")
    """
    return text[1:] if text[:1] == "'" and _FORMULA.match(text) else text
