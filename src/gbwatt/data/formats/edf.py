"""EDF and BDF files: checks of the header, and reading of samples.

MNE reads all channels in float64, interpolates those with other rates, and accepts truncated files and inconsistent
headers.  This module checks the header for consistency, against the size of the file and, in EDF+ and BDF+, against the
time stamp of every record, before samples are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data._reading import require_file, warn_about
from gbwatt.data.formats.headers import Channel, microvolts
from gbwatt.errors import EDFError

FIXED, PER_SIGNAL = 256, 256  # bytes of the header: its fixed part, and the part for each signal
BLOCK = 1 << 24  # bytes read at once
#: Labels of signals that contain annotations.
ANNOTATIONS = ("EDF Annotations", "BDF Annotations")

#: Header fields of a signal: offset and length within its 256 bytes, if the file had a single signal.
_FIELDS = {
    "label": (0, 16),
    "unit": (96, 8),
    "physical_min": (104, 8),
    "physical_max": (112, 8),
    "digital_min": (120, 8),
    "digital_max": (128, 8),
    "n_samples": (216, 8),
}

# Text of numbers in the header, bytes that are not text, and the time stamp at the beginning of annotations.
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?")
_CONTROL_BYTE = re.compile(rb"[\x01-\x1f\x7f]")
_RECORD_ONSET = re.compile(rb"([+-][0-9]+(?:\.[0-9]*)?)\x14")


@dataclass(frozen=True)
class Signal:
    """A signal of an EDF or BDF file, as described by the header."""

    label: str
    unit: str
    first: int  # position of its first sample in a record
    n_samples: int  # per record
    physical: tuple[float, float]  # NaN where the header has no number
    digital: tuple[float, float]

    @property
    def gain(self) -> float:
        """Factor of the conversion of stored numbers: physical values are gain * digital + offset."""
        (low, high), (bottom, top) = self.digital, self.physical
        return (top - bottom) / (high - low) if high != low else math.nan

    @property
    def offset(self) -> float:
        """Physical value of digital zero."""
        return self.physical[0] - self.gain * self.digital[0]

    @property
    def is_annotations(self) -> bool:
        """Whether the signal holds annotations, as text, instead of samples."""
        return self.label in ANNOTATIONS

    def microvolts(self, digital: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Convert digital samples to µV."""
        scale = microvolts(self.unit)
        return digital.astype(np.float64) * (self.gain * scale) + self.offset * scale


@dataclass(frozen=True)
class Header:
    """Header of an EDF or BDF file, consistent with the size of the file."""

    n_bytes: int
    n_records: int
    record_seconds: float
    signals: tuple[Signal, ...]
    sample_bytes: int = 2  # 3 in a BDF file
    surplus: int = 0  # bytes after the last record
    discontinuous: bool = False

    @property
    def record_samples(self) -> int:
        """Number of samples per record, of all signals."""
        return sum(signal.n_samples for signal in self.signals)

    @property
    def record_bytes(self) -> int:
        """Number of bytes per record."""
        return self.record_samples * self.sample_bytes

    @property
    def seconds(self) -> float:
        """Duration of the recording in seconds."""
        return self.n_records * self.record_seconds

    @property
    def digital_limits(self) -> tuple[float, float]:
        """Range of the numbers that a sample can store."""
        return -(2.0 ** (8 * self.sample_bytes - 1)), 2.0 ** (8 * self.sample_bytes - 1) - 1

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Signals other than annotations, as the :class:`Channel` that all formats share."""
        return tuple(
            Channel(s.label, s.unit, s.gain, self.rate(index), s.physical, s.digital, self.digital_limits)
            for index, s in enumerate(self.signals)
            if not s.is_annotations
        )

    def rate(self, index: int) -> float:
        """Sampling rate in Hz of the signal with index ``index``."""
        return self.signals[index].n_samples / self.record_seconds


def read_header(file: Path) -> Header:
    """Read the header of an EDF or BDF file, and check it against the size of the file."""
    require_file(file)
    n_bytes = file.stat().st_size
    with file.open("rb") as stream:
        fixed = stream.read(FIXED)
        is_bdf = fixed[:8] == b"\xffBIOSEMI"
        if len(fixed) < FIXED or not (is_bdf or fixed[:8].strip() == b"0"):
            found = f"{n_bytes} bytes" + (f" that begin with {fixed[:8]!r}" if fixed else "")
            raise EDFError(file, "not-edf", found, f"an EDF or BDF file of at least {FIXED} bytes")
        _expect_text(file, fixed[8:], 8)
        size, n_records, n_signals = (_field_integer(file, fixed, *at) for at in ((184, 8), (236, 8), (252, 4)))
        record_seconds = _field_number(fixed, 244, 8)
        if n_signals < 1 or size != FIXED + n_signals * PER_SIGNAL or not 0 < record_seconds < math.inf:
            found = f"{n_bytes} bytes, a header of {size} bytes, {n_signals} signals, records of {record_seconds:g} s"
            expected = f"{FIXED} bytes plus {PER_SIGNAL} for each signal, and records of positive duration"
            raise EDFError(file, "damaged-header", found, expected)
        if n_bytes < size:
            raise EDFError(file, "truncated", f"{n_bytes} bytes", f"a header of {size} bytes and at least one record")
        rest = stream.read(n_signals * PER_SIGNAL)
    _expect_text(file, rest, FIXED)
    signals = _parse_signals(file, rest, n_signals)
    header = Header(
        n_bytes=size,
        n_records=n_records,
        record_seconds=record_seconds,
        signals=signals,
        sample_bytes=3 if is_bdf else 2,
        discontinuous=fixed[192:197] in (b"EDF+D", b"BDF+D"),
    )
    return _expect_complete(file, header, n_bytes)


def _expect_complete(file: Path, header: Header, n_bytes: int) -> Header:
    """Require the number of records that the header states, and return the header with the number of surplus bytes.

    ``n_bytes`` is the size of the file.
    """
    record = header.record_bytes
    expected = header.n_bytes + header.n_records * record
    declared = f"{expected}, {header.n_records} records, as its header says"
    if header.n_records < 1:  # -1 while the file is being written
        found = f"{n_bytes} bytes and a header that says {header.n_records} records"
        raise EDFError(file, "truncated", found, "the number of records", "Was the file ever completed? Copy it again.")
    if n_bytes < expected:
        seconds = max(n_bytes - header.n_bytes, 0) / record * header.record_seconds
        found = f"{n_bytes} bytes, {seconds:.1f} of {header.seconds:.1f} s"
        raise EDFError(file, "truncated", found, declared, "It may be truncated. Copy it again.")
    if n_bytes >= expected + record:
        raise EDFError(file, "damaged-header", f"{n_bytes} bytes", declared)
    return Header(**{**vars(header), "surplus": n_bytes - expected})


def _expect_text(file: Path, raw: bytes, start: int) -> None:
    """Raise an error unless a part of the header, at the position ``start``, is printable text; NUL is allowed."""
    if match := _CONTROL_BYTE.search(raw):
        at = start + match.start()
        raise EDFError(file, "damaged-header", f"the byte {match.group()!r} at {at} of its header", "printable text")


def _field_text(raw: bytes, start: int, length: int, fill: str = " \0") -> str:
    """Return a header field as text, without the padding characters ``fill``."""
    return raw[start : start + length].decode("latin-1").strip(fill)


def _field_integer(file: Path, raw: bytes, start: int, length: int) -> int:
    """Return a header field as an integer; raise an error if it is not a whole number."""
    text = _field_text(raw, start, length)
    if not _INTEGER.fullmatch(text):
        raise EDFError(file, "damaged-header", f"{file.stat().st_size} bytes, {text!r} at {start}", "a whole number")
    return int(text)


def _field_number(raw: bytes, start: int, length: int) -> float:
    """Return a header field as a number, with a decimal point or comma; NaN if it is not a number."""
    text = _field_text(raw, start, length)
    return float(text.replace(",", ".")) if _DECIMAL.fullmatch(text) else math.nan


def _parse_signals(file: Path, raw: bytes, n_signals: int) -> tuple[Signal, ...]:
    """Return the signals described by ``raw``, the part of the header after its fixed part."""

    def locate_field(name: str, index: int) -> tuple[int, int]:
        """Return start and length of a header field of a signal; fields are stored one after the other."""
        start, length = _FIELDS[name]
        return start * n_signals + index * length, length

    signals: list[Signal] = []
    first = 0
    for index in range(n_signals):
        label, unit = (
            _field_text(raw, *locate_field("label", index), fill=" "),
            _field_text(raw, *locate_field("unit", index)),
        )
        limits = ("physical_min", "physical_max", "digital_min", "digital_max")
        ranges = [_field_number(raw, *locate_field(name, index)) for name in limits]
        count = _field_integer(file, raw, *locate_field("n_samples", index))
        if count < 1:
            raise EDFError(file, "damaged-header", f"{count} samples of {label!r} in a record", "at least one")
        signals.append(Signal(label, unit, first, count, (ranges[0], ranges[1]), (ranges[2], ranges[3])))
        first += count
    return tuple(signals)


# ---- time


def expect_continuous(file: Path, header: Header) -> None:
    """Require records without gaps, of the duration in the header.

    In EDF+ and BDF+ files every record has a time stamp, which reveals gaps and a wrong duration, and thus a wrong
    sampling rate.
    """
    annotations = next((signal for signal in header.signals if signal.is_annotations), None)
    if annotations is None:
        if header.discontinuous:
            raise EDFError(
                file, "discontinuous", "records with gaps, and no annotations", "a time stamp for each record"
            )
        return
    start, size = annotations.first * header.sample_bytes, annotations.n_samples * header.sample_bytes
    onsets = []
    with file.open("rb") as stream:
        for number in range(header.n_records):
            stream.seek(header.n_bytes + number * header.record_bytes + start)
            match = _RECORD_ONSET.match(stream.read(min(size, 64)))
            if match is None:
                found = f"no time stamp in {annotations.label!r} of record {number}"
                raise EDFError(file, "damaged-header", found, "a time stamp for each record")
            onsets.append(float(match.group(1)))
    late = np.array(onsets) - onsets[0] - np.arange(header.n_records) * header.record_seconds
    counts = [signal.n_samples for signal in header.signals if not signal.is_annotations]
    shortest = header.record_seconds / max(counts, default=1)
    wrong = np.flatnonzero(np.abs(late) > max(0.5 * shortest, 1e-5))
    if wrong.size:
        number = int(wrong[0])
        found = f"record {number} at {onsets[number]:g} s; {wrong.size} records begin at unexpected times"
        expected = f"{onsets[0] + number * header.record_seconds:g} s, for records of {header.record_seconds:g} s"
        remedy = "The recording has a gap, or its header is damaged: split it at the gap, or copy it again."
        raise EDFError(file, "discontinuous", found, expected, remedy)


def check_file(file: Path, header: Header, stacklevel: int = 3) -> None:
    """Raise an error for channels without a name; warn about repeated names and bytes after the last record.

    ``stacklevel`` is that of ``warnings.warn`` if the calling function called it directly.
    """
    labels = [channel.name for channel in header.channels]
    if broken := [label for label in labels if "\0" in label]:
        raise EDFError(file, "damaged-header", f"the label {broken[0]!r}", "printable text")
    if "" in labels:
        found = f"{labels.count('')} of {len(labels)} channels without a name"
        raise EDFError(file, "damaged-header", found, "a label for each channel")
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if header.surplus:
        warn_about(
            file, f"{header.surplus} bytes after the last record are ignored; is the header right?", stacklevel + 1
        )
    if twice:
        warn_about(file, f"several channels are called {', '.join(map(repr, twice[:4]))}.", stacklevel + 1)


# ---- samples


def read_samples(file: Path, header: Header, which: Sequence[int]) -> NDArray[np.int16]:
    """Read digital samples (n_chans, n) of an EDF file; ``which`` are indices of signals with the same rate."""
    signals = [header.signals[index] for index in which]
    size = signals[0].n_samples
    digital = np.empty((len(signals), header.n_records, size), dtype=np.int16)
    at_once = max(1, BLOCK // header.record_bytes)
    with file.open("rb") as stream:
        stream.seek(header.n_bytes)
        for start in range(0, header.n_records, at_once):
            count = min(at_once, header.n_records - start)
            block = np.frombuffer(stream.read(count * header.record_bytes), dtype="<i2")
            if block.size != count * header.record_samples:
                raise EDFError(file, "truncated", "a file that was truncated while it was read", "all of its records")
            records = block.reshape(count, -1)
            for row, signal in zip(digital, signals, strict=True):
                row[start : start + count] = records[:, signal.first : signal.first + size]
    return digital.reshape(len(signals), -1)
