"""Checks of the header and event table of GDF files (General Data Format for biosignals, versions 1 and 2).

MNE trusts the header.  This module checks it for consistency, and against the size of the file and the event table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data._reading import require_file
from gbwatt.data.formats.headers import Channel
from gbwatt.errors import DataError

Array = NDArray[Any]

FIXED = PER_CHANNEL = 256  # bytes

#: Bytes per sample by the number of the data type.
SAMPLE_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 8, 8: 8, 16: 4, 17: 8}
WHOLE = range(1, 9)
_UNITS = {4256: "V", 4274: "mV", 4275: "uV", 4276: "nV", 0: "", 512: "1"}

#: For files of version 2 whose header is longer than its channels require.
_ADDITIONAL = (
    "The file has an additional header (tag, length, value), which is not supported: export it without one, or as EDF. "
    "If it should not have one, the file is damaged."
)


@dataclass(frozen=True)
class _Layout:
    """Offsets of the channel fields in bytes per channel, and the data types that differ between versions."""

    unit: tuple[int, str]
    physical_min: int
    digital: str
    n_samples: int


_LAYOUTS = {1: _Layout((96, "S8"), 104, "<i8", 216), 2: _Layout((102, "<u2"), 104, "<f8", 216)}


def read_channels(file: Path) -> tuple[Channel, ...]:
    """Return the channels of a GDF file, whose header must agree with its size and its event table."""
    require_file(file)
    n_bytes = file.stat().st_size
    with file.open("rb") as stream:
        fixed = stream.read(FIXED)
        version = _version(file, fixed, n_bytes)
        n_chans = int(np.frombuffer(fixed, "<u4" if version == 1 else "<u2", 1, 252)[0])
        blocks = "<i8" if version == 1 else "<u2"
        declared = int(np.frombuffer(fixed, blocks, 1, 184)[0]) * (1 if version == 1 else 256)
        size = FIXED + n_chans * PER_CHANNEL
        if n_chans < 1 or declared != size or size > n_bytes:
            found = f"{n_bytes} bytes and a header of {declared} bytes for {n_chans} channels"
            remedy = _ADDITIONAL if version == 2 and n_chans and size < declared <= n_bytes else "Copy it again."
            raise DataError(file, found, f"{FIXED} bytes plus {PER_CHANNEL} for each channel", remedy)
        rest = stream.read(n_chans * PER_CHANNEL)
    n_records = int(np.frombuffer(fixed, "<i8", 1, 236)[0])
    seconds, parts = np.frombuffer(fixed, "<u4", 2, 244).tolist()
    if not (seconds and parts) or n_records < 1:
        found = f"{n_bytes} bytes, {n_records} records of {seconds}/{parts} s"
        raise DataError(file, found, "at least one record of positive duration", "Copy it again.")
    return _channels(file, version, rest, n_chans, n_records, seconds / parts)


def _version(file: Path, fixed: bytes, n_bytes: int) -> int:
    try:
        if len(fixed) < FIXED or not fixed.startswith(b"GDF "):
            raise ValueError
        number = float(fixed[4:8])
        if not 1 <= number < 3:
            raise ValueError
    except ValueError:
        begin = f" that begin with {fixed[:8]!r}" if fixed else ""
        expected = "a file in the General Data Format, version 1 or 2"
        raise DataError(file, f"{n_bytes} bytes{begin}", expected, "Copy it again.") from None
    return 1 if number < 1.9 else 2


def _channels(file: Path, version: int, rest: bytes, n: int, n_records: int, seconds: float) -> tuple[Channel, ...]:
    layout = _LAYOUTS[version]

    def column(start: int, dtype: str) -> Array:
        return np.frombuffer(rest, dtype, n, start * n)

    counts, kinds = column(layout.n_samples, "<i4"), column(layout.n_samples + 4, "<i4")
    unknown = [int(kind) for kind in kinds if kind not in SAMPLE_BYTES]
    if unknown or counts.min() < 1:
        found = f"samples of type {unknown[0]}" if unknown else f"{counts.min()} samples of a channel in a record"
        expected = f"at least one, of the types {', '.join(map(str, SAMPLE_BYTES))}"
        raise DataError(file, found, expected, "Copy it again.")
    record = sum(int(count) * SAMPLE_BYTES[int(kind)] for count, kind in zip(counts, kinds, strict=True))
    end = FIXED + n * PER_CHANNEL + n_records * record
    if file.stat().st_size < end:
        found, expected = f"{file.stat().st_size} bytes", f"{end}, {n_records} records, as its header says"
        raise DataError(file, found, expected, "It may be truncated. Copy it again.")
    rates = counts / seconds
    _check_events(file, version, end, int(counts.max()) * n_records, float(rates.max()))
    bottom, top = (column(layout.physical_min + 8 * k, "<f8") for k in (0, 1))
    low, high = (column(layout.physical_min + 16 + 8 * k, layout.digital).astype(float) for k in (0, 1))
    units = [_unit(raw) for raw in column(*layout.unit).tolist()]
    labels = [raw.decode("latin-1").strip(" \0") for raw in column(0, "S16").tolist()]
    with np.errstate(all="ignore"):
        gains = (top - bottom) / (high - low)
    return tuple(
        Channel(
            name=labels[k],
            unit=units[k],
            gain=float(gains[k]),
            rate=float(rates[k]),
            physical=(float(bottom[k]), float(top[k])),
            digital=(float(low[k]), float(high[k])),
            limits=_limits(int(kinds[k])),
        )
        for k in range(n)
    )


def _unit(raw: bytes | int) -> str:
    return _UNITS.get(raw, f"code {raw}") if isinstance(raw, int) else raw.decode("latin-1").strip(" \0")


def _limits(kind: int) -> tuple[float, float] | None:
    """Return the range of a data type, including the number after the maximum; None for floating point."""
    bits = 8 * SAMPLE_BYTES[kind]
    if kind not in WHOLE:
        return None
    return (0.0, 2.0**bits) if kind % 2 == 0 else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))


def _check_events(file: Path, version: int, start: int, n_samples: int, rate: float) -> None:
    """Require an event table that ends with the file, with events within the recording and its sampling rate."""
    with file.open("rb") as stream:
        stream.seek(start)
        table = stream.read()
    if not table:
        return
    if len(table) >= 8:
        three, four = int.from_bytes(table[1:4], "little"), int.from_bytes(table[4:8], "little")
        n_events, sfreq = (four, float(three)) if version == 1 else (three, float(np.frombuffer(table, "<f4", 1, 4)[0]))
        size = 8 + n_events * {1: 6, 3: 12}.get(table[0], math.nan)
        if len(table) == size:
            _expect_events(file, table, n_events, n_samples, sfreq, rate)
            return
    found = f"{len(table)} bytes after its records"
    raise DataError(file, found, "an event table that ends with the file", "Copy it again.")


def _expect_events(file: Path, table: bytes, n_events: int, n_samples: int, sfreq: float, rate: float) -> None:
    places = np.frombuffer(table, "<u4", n_events, 8)
    outside = places[(places < 1) | (places > n_samples + 1)]
    if outside.size:
        raise DataError(file, f"an event at sample {outside[0]}", f"1 to {n_samples}", "Copy it again.")
    if n_events and sfreq and not math.isclose(sfreq, rate, rel_tol=1e-3):
        raise DataError(file, f"events at {sfreq:g} Hz and samples at {rate:g} Hz", "the same rate", "Copy it again.")
