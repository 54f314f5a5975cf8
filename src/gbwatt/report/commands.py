"""Words of commands that open recordings again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def recording_options(record: Mapping[str, Any]) -> list[str]:
    """Options for the recordings of a training, as they were read then.

    Examples
    --------
    >>> recording_options({"dataset": "mine.edf", "subject": 1, "split": 2, "reading": {"tmin": 0.5}})
    ['--dataset', 'mine.edf', '--subject', '1', '--split', '2', '--read', 'tmin=0.5']
    """
    words = ["--dataset", record["dataset"], "--subject", str(record["subject"])]
    words += ["--split", str(record["split"])] if record.get("split") else []
    for name, value in (record.get("reading") or {}).items():
        text = value if isinstance(value, str) else json.dumps(value)
        words += ["--source", text] if name == "source" else ["--read", f"{name}={text}"]
    return words
