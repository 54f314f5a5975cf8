"""Real recordings, where they are: in the folder GBWATT_DATA, or in shared/data beside the project."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.io

SUBJECTS = range(1, 12)


def folder() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("GBWATT_DATA", default))


def mamem(subject: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Processed MAMEM-SSVEP-II of one subject: segments (500, 8, 125), labels (500,) and sessions 1 to 5 (500,)."""
    file = folder() / "mamem" / f"U{subject:03d}.mat"
    if not file.exists():
        pytest.skip(f"{file} is not there; put the processed MAMEM-SSVEP-II files into GBWATT_DATA/mamem")
    content = scipy.io.loadmat(file)
    return content["x_test"], content["y_test"].ravel(), np.repeat(np.arange(1, 6), 100)
