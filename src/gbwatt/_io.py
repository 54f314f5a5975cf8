"""Files: atomic writes, JSON, and checksums of JSON records."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gbwatt.errors import ModelFileError, ParameterError

#: Entry of a record with the checksum of all others.
KEY = "sha256"


def digest(record: Mapping[str, Any]) -> str:
    """SHA-256 checksum of the JSON text of a record without its own checksum; the order of keys does not matter.

    Examples
    --------
    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1, "sha256": "..."})
    True
    """
    rest = {key: value for key, value in record.items() if key != KEY}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def sealed(text: str) -> dict[str, Any]:
    """Parse the JSON text of a record, and add its checksum.

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


def plain(value: Any) -> Any:
    """Convert a NumPy scalar to a Python number or string; return any other value unchanged."""
    return value.item() if hasattr(value, "item") else value


def without_nan(value: Any) -> Any:
    """Replace NaN and infinities, which standard JSON does not have, by None.

    Use it for documents that other programs read.  Files that only this package reads keep the exact values.

    Examples
    --------
    >>> without_nan({"kappa": float("nan"), "shares": (0.5, float("inf"))})
    {'kappa': None, 'shares': [0.5, None]}
    """
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(value: Any, indent: int | None = 2) -> str:
    """JSON text of a value; values that JSON cannot represent raise an error."""
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, default=_convert_for_json)
    except (TypeError, ValueError, RecursionError) as error:  # a key that is no text, a circular reference
        raise ModelFileError(f"this cannot be written as JSON: {error}.") from None


def _convert_for_json(value: Any) -> Any:
    """Convert a NumPy scalar for :func:`to_json`; raise ModelFileError for anything else."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    raise ModelFileError(
        f"{value!r} ({type(value).__name__}) cannot be written as JSON; numbers, texts, lists and dicts can."
    )


def write_atomically(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file through a temporary one: readers see either the old content or the complete new content.

    An error of the file system names the file, not the temporary one.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def require_writable(folder: Path, output: str) -> None:
    """Raise ParameterError if a folder cannot be written; nothing is left behind.

    ``output`` is the argument with its value, for the message.
    """
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        if new:
            folder.rmdir()
    except OSError as error:
        reason = error.strerror or error
        raise ParameterError(f"{output} cannot be written ({reason}); choose another (-o).") from error
