"""What is written beside a trained model: what it was trained on, which trials it has seen, and what came out."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gbwatt import _io
from gbwatt.data.splits import Split
from gbwatt.errors import InputError

if TYPE_CHECKING:
    from gbwatt.decoding import EEGDecoder

FILE = "training.json"

#: What a trial was used for, and how that is said.
USES = {
    "training": "used for training",
    "validation": "used for validation",
    "unseen": "not used for training or validation",
    "unrecognised": "not recognised among the training and validation trials",
    "unknown": "unknown whether used for training",
}
_PARTS = {"train": "training", "valid": "validation"}


def save(decoder: EEGDecoder, folder: Path, record: dict[str, Any], split: Split) -> dict[str, Any]:
    """Write a model, and its record with the numbers of the trials that it has seen; the record with the folder."""
    from gbwatt._io import write_atomically
    from gbwatt.cli.options import to_json

    (folder / FILE).unlink(missing_ok=True)  # of a model that is replaced
    decoder.save_pretrained(folder)
    seen = {part: getattr(split, part).tolist() for part in _PARTS}
    write_atomically(folder / FILE, to_json(_io.sealed(to_json({**record, "seen": seen}))).encode())
    return {**record, "folder": str(folder)}


def read(folder: Path) -> dict[str, Any] | None:
    """The record of a model; None if it was not trained by this program."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        _check(record)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path} is damaged ({error!r}); copy it again, or delete it, and it will not be known what the model was "
            "trained on."
        ) from None
    return {key: value for key, value in record.items() if key != _io.KEY}


def _check(record: Any) -> None:
    """Require an intact record; older ones have no checksum."""
    kinds = {"dataset": str, "subject": int | str, "data": str | None, "seen": dict}
    wrong = [key for key, kind in kinds.items() if not isinstance(record[key], kind)]
    seen = [number for part in _PARTS for number in record["seen"][part]]
    if wrong or any(type(number) is not int or number < 0 for number in seen):
        raise TypeError(f"wrong values for {', '.join(wrong) or 'seen'}")
    if _io.KEY in record and not _io.is_intact(record):
        raise ValueError(f"the content does not match {_io.KEY!r}")


def uses(
    record: dict[str, Any] | None,
    dataset: str,
    subject: int | None,
    data: Collection[str] | None,
    n: int,
    reading: dict[str, Any] | None = None,
) -> NDArray[Any] | None:
    """What each of a subject's n trials was used for, one of :data:`USES`, by the record of the training.

    The recordings are those of the training if the data set has the same name or, for a file of recordings, one of the
    fingerprints ``data`` of its content.  Read with other options, their trials may overlap with those of the training:
    "unknown".  None for other recordings, which may be copies in another format: the record says nothing of them.

    ``subject`` is None for a recording without subjects of its own, where the number that it is given is only a name.
    """
    if record is None or (record["dataset"] != dataset if data is None else record["data"] not in data):
        return None
    found = np.full(n, "unseen", dtype=object)
    if subject is not None and record["subject"] != subject:
        return found
    if record.get("reading", {}) != (reading or {}):
        return np.full(n, "unknown", dtype=object)
    for part, use in _PARTS.items():
        found[[number for number in record["seen"][part] if number < n]] = use
    return found


#: Packages whose version may show in a result.
PACKAGES = ("gbwatt", "torch", "numpy", "scipy", "scikit-learn", "geoopt", "mne", "braindecode", "accelerate")


def versions() -> dict[str, str]:
    """Packages, Python and machine."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
