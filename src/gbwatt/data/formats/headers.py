"""Headers of recordings, checked before MNE reads the samples."""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gbwatt.data._reading import warn_of
from gbwatt.errors import DataError

#: µV of each unit of voltage.  Files that name no unit are taken to be in µV, with a warning.
UNITS: Mapping[str, float] = {
    unit.casefold(): factor
    for unit, factor in (
        *((name, 1.0) for name in ("uV", "\u00b5V", "\u03bcV", "\x83\xcaV", "")),  # the fourth is Japanese
        ("mV", 1e3),
        ("V", 1e6),
        ("nV", 1e-3),
    )
}


def microvolts(unit: str) -> float:
    """µV of a unit; NaN if it is none of voltage."""
    return UNITS.get(unit.casefold(), math.nan)


#: Channels whose scale may differ from that of EEG.
_NO_EEG = re.compile(
    r"eog|veo|heo|ecg|ekg|emg|resp|gsr|pleth|photic|temp|status|sti|trig|aux|acc|dc[0-9]", re.IGNORECASE
)


@dataclass(frozen=True)
class Channel:
    """A channel as a header describes it: its values are ``gain`` times the stored numbers, and an offset.

    ``physical`` and ``digital`` are the ranges of values and of stored numbers; ``limits`` is what these can be at all.
    """

    name: str
    unit: str
    gain: float
    rate: float
    physical: tuple[float, float] | None = None
    digital: tuple[float, float] | None = None
    limits: tuple[float, float] | None = None

    @property
    def step(self) -> float:
        """µV for each step of the stored numbers."""
        return self.gain * microvolts(self.unit)


def expect_ranges(file: Path, channels: Sequence[Channel]) -> None:
    """Require physical and digital ranges that define a scale, digital ones within what the samples can hold."""
    for channel in channels:
        limits = channel.limits
        if channel.physical is None or channel.digital is None:
            continue
        for name, (low, high) in (("physical", channel.physical), ("digital", channel.digital)):
            if not (math.isfinite(low) and math.isfinite(high)) or low == high or (name == "digital" and low > high):
                found = f"the {name} range {low:g} to {high:g} of channel {channel.name}"
                raise DataError(file, found, "a minimum below the maximum", _leave_out(channel, channels))
        if limits is not None and (channel.digital[0] < limits[0] or channel.digital[1] > limits[1]):
            found = f"the digital range {channel.digital[0]:g} to {channel.digital[1]:g} of channel {channel.name}"
            raise DataError(file, found, f"one within {limits[0]:g} to {limits[1]:g}", _leave_out(channel, channels))


def is_strange(channel: Channel) -> bool:
    """Whether a channel is in no unit of voltage, although its name does not say that it is no EEG."""
    return math.isnan(microvolts(channel.unit)) and not _NO_EEG.search(channel.name)


def expect_volts(file: Path, channels: Sequence[Channel]) -> None:
    """Require a unit of voltage."""
    strange = [channel for channel in channels if math.isnan(microvolts(channel.unit))]
    if strange:
        found = ", ".join(f"{channel.name} in {channel.unit!r}" for channel in strange[:4])
        raise DataError(file, found, "channels in V, mV, uV or nV", _leave_out(strange[0], channels))


def _leave_out(channel: Channel, channels: Sequence[Channel]) -> str:
    others = [other.name for other in channels if other is not channel][:3]
    return f"Copy the file again, or choose other channels: channels={[*others]}." if others else "Copy it again."


def check_channels(file: Path, channels: Sequence[Channel], stacklevel: int = 3) -> None:
    """Warn of what is possible but unlikely: no unit, other rates or scales than the neighbours', inverted ranges."""
    problems = []
    without = [channel.name for channel in channels if not channel.unit]
    if without:
        problems.append(f"{_names(without)} without a unit, taken as µV")
    if inverted := [c.name for c in channels if c.physical is not None and c.physical[0] > c.physical[1]]:
        problems.append(f"{_names(inverted)} with a physical minimum above the maximum, which inverts the sign")
    usual = Counter(channel.rate for channel in channels).most_common(1)[0][0] if channels else 0.0
    if other := [f"{c.name} ({c.rate:g} Hz)" for c in channels if c.rate != usual]:
        problems.append(f"{_names(other)} with another sampling rate than {usual:g} Hz, interpolated by MNE")
    odd = odd_scales({c.name: c.step for c in channels if not _NO_EEG.search(c.name)})
    if odd:
        listed = _names([f"{name} ({ratio:.3g} times)" for name, ratio in odd.items()])
        problems.append(f"{listed} with another scale than the other channels")
    if problems:
        text = "; ".join(problems)
        warn_of(file, f"{text}. Compare the header with the amplifier, or leave these channels out.", stacklevel + 1)


def odd_scales(scales: Mapping[str, float]) -> dict[str, float]:
    """Channels whose scale differs from that of most others, and by which factor.

    Amplifiers give all EEG channels one scale.  If at least three channels and 60 % of all have the same, any other is
    reported; if each channel has its own, as in files whose ranges were fitted to the data, factors of 1e3 are.

    Examples
    --------
    >>> odd_scales({"C3": 0.1, "Cz": 0.1, "C4": 0.1, "Pz": 1.0})
    {'Pz': 10.0}
    >>> odd_scales({"C3": 0.1, "Cz": 0.3, "C4": 0.2, "Pz": 0.7})
    {}
    """
    values = np.array(list(scales.values()))
    if len(values) < 3:
        return {}
    common, count = Counter(values.tolist()).most_common(1)[0]
    if count >= max(3, 0.6 * len(values)):
        ratios = values / common
        odd = values != common
    else:
        ratios = values / np.median(np.abs(values))
        odd = ~((np.abs(ratios) < 1e3) & (np.abs(ratios) > 1e-3))
    return {name: float(ratio) for name, ratio, is_odd in zip(scales, ratios, odd, strict=True) if is_odd}


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return f"{'channels' if len(names) > 1 else 'channel'} {shown}"


_TAG = struct.Struct(">iiii")  # kind, type, bytes of data, place of the next tag
_FILE_ID, _START, _END = 100, 104, 105
_FOLLOWS, _LAST = 0, -1
_KINDS = 1 << 16  # all that are defined are below
_RAW, _SAMPLES, _SMALL = (102, 112, 119), 300, 1024  # blocks of continuous samples, their tags, bytes of other tags


def expect_tags(file: Path) -> None:
    """Require a chain of tags that are within the file, whose blocks are closed in the order in which they began."""
    end = file.stat().st_size
    with file.open("rb") as stream:
        at, opened, n_tags = 0, list[int](), 0
        while at < end:
            stream.seek(at)
            raw = stream.read(_TAG.size)
            if len(raw) < _TAG.size:
                raise _damaged(file, f"{end} bytes that end within a tag")
            kind, _, size, following = _TAG.unpack(raw)
            if not n_tags and kind != _FILE_ID:
                raise _damaged(file, f"{end} bytes that MNE cannot read: they begin with {raw[:8]!r}")
            if size < 0 or at + _TAG.size + size > end:
                raise _damaged(file, f"{end} bytes and a tag at {at} of {size} bytes, which goes on after the end")
            if not 0 < kind < _KINDS:
                raise _damaged(file, f"{end} bytes and a tag at {at} of kind {kind}")
            if kind == _START:
                opened.append(_block(stream.read(4)))
                if opened[-1] >= _KINDS:
                    raise _damaged(file, f"{end} bytes and a block at {at} of kind {opened[-1]}")
            elif opened and opened[-1] in _RAW and size > _SMALL and kind != _SAMPLES:
                raise _damaged(file, f"{end} bytes and a tag at {at} of kind {kind} among the samples")
            elif kind == _END and (not opened or opened.pop() != _block(stream.read(4))):
                raise _damaged(file, f"{end} bytes, and at {at} the end of a block that did not begin")
            n_tags += 1
            if following == _LAST:
                break
            if following != _FOLLOWS and following <= at:
                raise _damaged(file, f"{end} bytes and a tag at {at} whose next one is at {following}")
            at = at + _TAG.size + size if following == _FOLLOWS else following
    if opened or at >= end:
        what = f"a block of kind {opened[-1]} without an end" if opened else "no last tag"
        raise _damaged(file, f"{end} bytes and {what}")


def _block(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _damaged(file: Path, found: str) -> DataError:
    return DataError(file, found, "a complete FIF file", "It may be truncated. Copy it again.")
