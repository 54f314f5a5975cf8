"""Real recordings, where they are: in the folder GBWATT_DATA, or in shared/data beside the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gbwatt.data import MissingFileError, Trials, load

SUBJECTS = range(1, 12)  # of MAMEM-SSVEP-II


def folder() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("GBWATT_DATA", default))


def real(name: str, subject: int, **options) -> Trials:
    """Trials of a real data set; the test is skipped where its files are not."""
    try:
        return load(name, subject, root=folder(), **options)
    except MissingFileError as error:
        pytest.skip(str(error))
