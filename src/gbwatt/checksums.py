"""Checksums of JSON records, so that damage to a file is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

#: Entry of a record with the checksum of all others.
KEY = "sha256"


def digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record as it is after JSON, without its own checksum; order and white space do not matter.

    Examples
    --------
    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1, "sha256": "..."})
    True
    """
    rest = {key: value for key, value in record.items() if key != KEY}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def sealed(text: str) -> dict[str, Any]:
    """The record of a JSON text, with its checksum.

    Examples
    --------
    >>> sorted(sealed('{"a": 1}'))
    ['a', 'sha256']
    """
    record: dict[str, Any] = json.loads(text)
    return {**record, KEY: digest(record)}


def is_intact(record: Mapping[str, Any]) -> bool:
    """Whether the checksum of a record is right; one without a checksum, or nested too deeply, counts as damaged.

    Examples
    --------
    >>> is_intact(sealed('{"a": 1}')), is_intact({"a": 1})
    (True, False)
    """
    try:
        return record.get(KEY) == digest(record)
    except RecursionError:  # json reads a little deeper than it writes
        return False
