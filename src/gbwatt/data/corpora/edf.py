"""EDF files, as far as large corpora need them: a header that is checked, and the samples of some channels.

MNE reads all channels in float64, interpolates those with other rates, and accepts files that end early.  Here a
recording takes two bytes a sample, and whatever is not as it should be is found before samples are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gbwatt.data.corpora.problems import Unusable

#: µV of each unit; files that name none are in µV.
UNITS = {"uv": 1.0, "µv": 1.0, "μv": 1.0, "": 1.0, "mv": 1e3, "v": 1e6, "nv": 1e-3}

FIXED, PER_SIGNAL, SAMPLE = 256, 256, 2  # bytes
BLOCK = 1 << 24  # bytes that are read at once

_Number = TypeVar("_Number", int, float)

#: Fields of a signal: name, where it begins among the 256 bytes of a signal, and how long it is.
_FIELDS = {
    "label": (0, 16),
    "unit": (96, 8),
    "physical_min": (104, 8),
    "physical_max": (112, 8),
    "digital_min": (120, 8),
    "digital_max": (128, 8),
    "n_samples": (216, 8),
}


@dataclass(frozen=True)
class Signal:
    """A channel of an EDF file."""

    label: str
    unit: str
    first: int  # of its samples in a record
    n_samples: int  # in a record
    gain: float  # physical values are gain * digital + offset
    offset: float

    def microvolts(self, digital: NDArray[np.int16]) -> NDArray[np.float64]:
        """Samples in µV."""
        scale = UNITS[self.unit.casefold()]
        return digital.astype(np.float64) * (self.gain * scale) + self.offset * scale


@dataclass(frozen=True)
class Header:
    """What an EDF file says of itself, found to be consistent with its size."""

    n_bytes: int
    n_records: int
    record_seconds: float
    signals: tuple[Signal, ...]

    @property
    def record_samples(self) -> int:
        """Samples of a record, of all signals."""
        return sum(signal.n_samples for signal in self.signals)

    @property
    def seconds(self) -> float:
        """Length of the recording."""
        return self.n_records * self.record_seconds

    def rate(self, place: int) -> float:
        """Sampling rate of a signal in Hz."""
        return self.signals[place].n_samples / self.record_seconds


def read_header(file: Path) -> Header:
    """The header of an EDF file, or what is wrong with the file."""
    n_bytes = file.stat().st_size
    with file.open("rb") as stream:
        fixed = stream.read(FIXED)
        if len(fixed) < FIXED or fixed[:8].strip() != b"0":
            found = f"a file of {n_bytes} bytes" + (f" that begins with {fixed[:8]!r}" if fixed else "")
            raise Unusable("not-edf", f"found {found}; an EDF file begins with '0' and has {FIXED} bytes at least")
        if fixed[192:197] == b"EDF+D":
            raise Unusable("discontinuous", "found EDF+D, records with gaps between them; continuous ones are needed")
        size, n_records, n_signals = (_number(fixed, *at, int) for at in ((184, 8), (236, 8), (252, 4)))
        record_seconds = _number(fixed, 244, 8, float)
        if n_signals < 1 or size != FIXED + n_signals * PER_SIGNAL or not 0 < record_seconds < np.inf:
            raise Unusable(
                "damaged-header",
                f"found a header of {size} bytes for {n_signals} signals and records of {record_seconds:g} s",
            )
        rest = stream.read(n_signals * PER_SIGNAL)
    if len(rest) < n_signals * PER_SIGNAL:
        raise Unusable("truncated", f"the file ends within its header, after {n_bytes} of {size} bytes")
    header = Header(size, n_records, record_seconds, _signals(rest, n_signals))
    _require_complete(header, n_bytes)
    return header


def _require_complete(header: Header, n_bytes: int) -> None:
    record = header.record_samples * SAMPLE
    expected = header.n_bytes + header.n_records * record
    if header.n_records < 1:  # -1 as long as it is being written
        raise Unusable("truncated", f"the header says {header.n_records} records: the file was never completed")
    if n_bytes < expected:
        there = max(n_bytes - header.n_bytes, 0) / record * header.record_seconds
        raise Unusable(
            "truncated",
            f"{n_bytes} of the {expected} bytes that the header says, {there:.1f} of {header.seconds:.1f} s",
        )
    if n_bytes >= expected + record:
        raise Unusable("damaged-header", f"{n_bytes} bytes, and a header that says {expected}")


def _number(raw: bytes, start: int, length: int, kind: type[_Number]) -> _Number:
    text = raw[start : start + length].decode("latin-1").strip(" \0")
    try:
        return kind(text)
    except ValueError:
        raise Unusable("damaged-header", f"found {text!r} at byte {start}, where a number is needed") from None


def _signals(raw: bytes, n_signals: int) -> tuple[Signal, ...]:
    def texts(name: str) -> list[str]:
        start, length = _FIELDS[name]
        starts = (start * n_signals + place * length for place in range(n_signals))
        return [raw[at : at + length].decode("latin-1").strip(" \0") for at in starts]

    def numbers(name: str, kind: type[int] | type[float] = float) -> NDArray[Any]:
        start, length = _FIELDS[name]
        return np.array([_number(raw, start * n_signals + n * length, length, kind) for n in range(n_signals)])

    counts = numbers("n_samples", int)
    if counts.min() < 1:
        raise Unusable("damaged-header", f"found a signal with {counts.min()} samples in a record")
    low, high, bottom, top = map(numbers, ("digital_min", "digital_max", "physical_min", "physical_max"))
    with np.errstate(divide="ignore", invalid="ignore"):  # what comes of it is found where samples are looked at
        gains = (top - bottom) / (high - low)
        offsets = bottom - gains * low
    firsts = np.cumsum(counts) - counts
    described = zip(texts("label"), texts("unit"), firsts, counts, gains, offsets, strict=True)
    return tuple(Signal(label, unit, int(a), int(n), float(g), float(o)) for label, unit, a, n, g, o in described)


def read_samples(file: Path, header: Header, which: Sequence[int]) -> NDArray[np.int16]:
    """Digital samples (n_chans, n) of signals that have one rate."""
    signals = [header.signals[place] for place in which]
    size = signals[0].n_samples
    digital = np.empty((len(signals), header.n_records, size), dtype=np.int16)
    at_once = max(1, BLOCK // (header.record_samples * SAMPLE))
    with file.open("rb") as stream:
        stream.seek(header.n_bytes)
        for start in range(0, header.n_records, at_once):
            count = min(at_once, header.n_records - start)
            block = np.frombuffer(stream.read(count * header.record_samples * SAMPLE), dtype="<i2")
            if block.size != count * header.record_samples:
                raise Unusable("truncated", "the file became shorter while it was read")
            records = block.reshape(count, -1)
            for row, signal in zip(digital, signals, strict=True):
                row[start : start + count] = records[:, signal.first : signal.first + size]
    return digital.reshape(len(signals), -1)
