"""A writer of GDF 1.25 files (General Data Format for biosignals), as the BCI competitions shared them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

#: Numbers that the format gives to types of samples.
TYPES = {"int16": 3, "float32": 16}
STEP = 0.05  # µV for each whole number of an int16 file


def write_gdf(
    file: Path,
    data: np.ndarray,  # (n_chans, n_samples) in µV; NaN where nothing was recorded
    sfreq: int,
    labels: Sequence[str],
    events: Sequence[tuple[int, int, int]],  # sample number from 0, code, duration in samples
    dtype: str = "int16",
) -> Path:
    """One data record a second; the last is filled up as a break is.  NaN is the least number in an int16 file."""
    n_records = -(-data.shape[1] // sfreq)
    padded = np.full((len(data), n_records * sfreq), np.nan)
    padded[:, : data.shape[1]] = data
    samples = padded.astype("<f4") if dtype == "float32" else _whole_numbers(padded)
    records = samples.reshape(len(data), n_records, sfreq).swapaxes(0, 1)
    file.write_bytes(_header(n_records, sfreq, labels, dtype) + records.tobytes() + _events(sfreq, events))
    return file


def _whole_numbers(data: np.ndarray) -> np.ndarray:
    numbers = np.full(data.shape, -(2**15), dtype="<i2")
    there = np.isfinite(data)
    numbers[there] = np.clip(np.round(data[there] / STEP), -(2**15) + 1, 2**15 - 1)
    return numbers


def _header(n_records: int, sfreq: int, labels: Sequence[str], dtype: str) -> bytes:
    n = len(labels)
    low, high = -(2**15), 2**15 - 1
    step = 1.0 if dtype == "float32" else STEP
    fixed = (
        b"GDF 1.25"
        + b"X X".ljust(80)
        + b"written by a test".ljust(80)
        + b"2005010112000000"
        + struct.pack("<q", 256 * (n + 1))
        + bytes(8 + 8 + 8 + 20)  # equipment, laboratory, technician, reserved
        + struct.pack("<qIII", n_records, 1, 1, n)  # records of 1 / 1 s
    )
    fields = (
        b"".join(label.encode().ljust(16) for label in labels),
        b"".ljust(80) * n,
        b"uV".ljust(8) * n,
        struct.pack("<d", low * step) * n,
        struct.pack("<d", high * step) * n,
        struct.pack("<q", low) * n,
        struct.pack("<q", high) * n,
        b"".ljust(80) * n,
        struct.pack("<I", sfreq) * n,
        struct.pack("<I", TYPES[dtype]) * n,
        bytes(32) * n,
    )
    return fixed + b"".join(fields)


def _events(sfreq: int, events: Sequence[tuple[int, int, int]]) -> bytes:
    """Event table of mode 3: with a channel (0, all of them) and a duration for each event; the first sample is 1."""
    places, codes, durations = np.array(sorted(events), dtype=np.int64).reshape(-1, 3).T
    head = struct.pack("<B", 3) + struct.pack("<I", sfreq)[:3] + struct.pack("<I", len(places))
    columns = ((places + 1).astype("<u4"), codes.astype("<u2"), np.zeros(len(places), "<u2"), durations.astype("<u4"))
    return head + b"".join(column.tobytes() for column in columns)
