"""Checks of file headers before MNE reads the samples: channels of any format, BrainVision, FIF and GDF."""

from __future__ import annotations

import configparser
import math
import re
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data._reading import opening, require_file, warn_about
from gbwatt.errors import DataError

if TYPE_CHECKING:
    import mne

#: µV per unit of voltage.  Files without a unit are assumed to be in µV, with a warning.
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
    """Return the factor from a unit to µV, or NaN if it is not a unit of voltage."""
    return UNITS.get(unit.casefold(), math.nan)


#: Names of channels that are not EEG, whose scale may differ.
_NOT_EEG = re.compile(
    r"eog|veo|heo|ecg|ekg|emg|resp|gsr|pleth|photic|temp|status|sti|trig|aux|acc|dc[0-9]", re.IGNORECASE
)


@dataclass(frozen=True)
class Channel:
    """A channel as described by a header: values are ``gain`` times the stored numbers, plus an offset.

    ``physical`` and ``digital`` are the ranges of the values and of the stored numbers; ``limits`` is the range of the
    data type.
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
        """Quantisation step in µV: the difference between the values of stored numbers that differ by one."""
        return self.gain * microvolts(self.unit)


def expect_ranges(file: Path, channels: Sequence[Channel]) -> None:
    """Raise an error unless physical and digital ranges define a scale, and digital ranges fit the data type."""
    for channel in channels:
        limits = channel.limits
        if channel.physical is None or channel.digital is None:
            continue
        for name, (low, high) in (("physical", channel.physical), ("digital", channel.digital)):
            if not (math.isfinite(low) and math.isfinite(high)) or low == high or (name == "digital" and low > high):
                found = f"the {name} range {low:g} to {high:g} of channel {channel.name}"
                raise DataError(file, found, "a minimum below the maximum", _remedy_for_channel(channel, channels))
        if limits is not None and (channel.digital[0] < limits[0] or channel.digital[1] > limits[1]):
            found = f"the digital range {channel.digital[0]:g} to {channel.digital[1]:g} of channel {channel.name}"
            raise DataError(
                file, found, f"a range within {limits[0]:g} to {limits[1]:g}", _remedy_for_channel(channel, channels)
            )


def expect_volts(file: Path, channels: Sequence[Channel]) -> None:
    """Raise an error unless all channels have units of voltage."""
    others = [channel for channel in channels if math.isnan(microvolts(channel.unit))]
    if others:
        found = ", ".join(f"{channel.name} in {channel.unit!r}" for channel in others[:4])
        raise DataError(file, found, "channels in V, mV, uV or nV", _remedy_for_channel(others[0], channels))


def _remedy_for_channel(channel: Channel, channels: Sequence[Channel]) -> str:
    """Return what to do about a damaged channel: copy the file again, or select other channels."""
    others = [other.name for other in channels if other is not channel][:3]
    return f"Copy the file again, or select other channels: channels={[*others]}." if others else "Copy it again."


def check_channels(file: Path, channels: Sequence[Channel], stacklevel: int = 3) -> None:
    """Warn about missing units, deviating sampling rates or scales, and inverted ranges.

    ``stacklevel`` is that of ``warnings.warn`` if the calling function called it directly.
    """
    problems = []
    without = [channel.name for channel in channels if not channel.unit]
    if without:
        problems.append(f"{_list_names(without)} without a unit, assumed to be µV")
    if inverted := [c.name for c in channels if c.physical is not None and c.physical[0] > c.physical[1]]:
        problems.append(f"{_list_names(inverted)} with a physical minimum above the maximum, which inverts the sign")
    usual = Counter(channel.rate for channel in channels).most_common(1)[0][0] if channels else 0.0
    if other := [f"{c.name} ({c.rate:g} Hz)" for c in channels if c.rate != usual]:
        problems.append(f"{_list_names(other)} with another sampling rate than {usual:g} Hz, interpolated by MNE")
    odd = odd_scales({c.name: c.step for c in channels if not _NOT_EEG.search(c.name)})
    if odd:
        listed = _list_names([f"{name} ({ratio:.3g} times)" for name, ratio in odd.items()])
        problems.append(f"{listed} with another scale than the other channels")
    if problems:
        text = "; ".join(problems)
        warn_about(file, f"{text}. Compare the header with the amplifier, or exclude these channels.", stacklevel + 1)


def odd_scales(scales: Mapping[str, float]) -> dict[str, float]:
    """Return the channels whose scale differs from that of most others, with the ratio.

    Amplifiers use one scale for all EEG channels.  If at least three channels and 60 % of all share a scale, any other
    is returned.  If the scales are individual, as in files whose ranges were fitted to the data, those that differ from
    the median by a factor of 1000 or more are returned.

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


def _list_names(names: Sequence[str]) -> str:
    """Return channel names as text for a warning; at most six are listed."""
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return f"{'channels' if len(names) > 1 else 'channel'} {shown}"


# ---- samples and their header


def check_signals(file: Path, signals: Any, header: Sequence[Channel], channels: Sequence[str] | None = None) -> None:
    """Convert samples to volts by the unit in the header, in place, and warn about implausible scales, units and rates.

    ``signals`` is a recording or epochs of MNE, ``header`` the channels in the header of the file, in the same order
    and empty for some formats, and ``channels`` the names to check; by default all EEG channels.
    """
    described = dict(zip(signals.ch_names, header, strict=False))
    chosen = _eeg_channels(signals) if channels is None else list(channels)
    picked = [described[name] for name in chosen if name in described]
    if channels is None and (left := [c for c in header if c.name not in chosen and _may_be_eeg(c)]):
        listed = ", ".join(f"{channel.name} in {channel.unit!r}" for channel in left[:6])
        warn_about(file, f"not read as EEG: {listed}. Check the unit, or select channels=[...].", 5)
    if picked:
        expect_ranges(file, picked)
        expect_volts(file, picked)
        check_channels(file, picked, stacklevel=4)
        for name in chosen:
            _convert_to_volts(file, signals, name, described[name])
            _check_sample_range(file, signals, name, described[name])
    elif odd := odd_scales({name: _stored_scale(signals.info, name) for name in chosen}):
        listed = ", ".join(f"{name} ({ratio:.3g} times)" for name, ratio in list(odd.items())[:6])
        warn_about(file, f"channels with another scale than the others: {listed}. Is that right?", stacklevel=3)


def _may_be_eeg(channel: Channel) -> bool:
    """Whether a channel may be EEG by its name, although MNE ignores it because its unit is not a voltage."""
    return math.isnan(microvolts(channel.unit)) and not _NOT_EEG.search(channel.name)


def _eeg_channels(signals: Any) -> list[str]:
    """Return the names of the channels that MNE takes for EEG."""
    import mne

    return [signals.ch_names[pick] for pick in mne.pick_types(signals.info, eeg=True)]


def _stored_scale(info: mne.Info, name: str) -> float:
    """Return the factor by which MNE multiplies the stored numbers of a channel, to find channels with odd scales."""
    channel = info["chs"][info["ch_names"].index(name)]
    return float(channel["cal"] * channel["range"] * 10.0 ** int(channel["unit_mul"]))


def _convert_to_volts(file: Path, raw: mne.io.BaseRaw, name: str, channel: Channel) -> None:
    """Convert a channel to volts, in place, if MNE does not recognise its unit and has read it as volts."""
    known = {".gdf": ("uV",), ".vhdr": ("V", "mV", "µV", "uV", "nV"), ".ahdr": ("V", "mV", "µV", "uV", "nV")}
    if channel.unit in known.get(file.suffix.lower(), ("uV", "µV", "\u03bcV", "\x83\xcaV", "mV", "V")):
        return
    if file.suffix.lower() == ".gdf" and channel.unit[:2] == "uV":
        return
    factor = microvolts(channel.unit) * 1e-6
    if factor != 1.0:
        raw.apply_function(lambda x: x * factor, picks=[name], channel_wise=True, verbose="ERROR")


def _check_sample_range(file: Path, raw: mne.io.BaseRaw, name: str, channel: Channel) -> None:
    """Warn about samples outside the physical range in the header."""
    if channel.physical is None:
        return
    low, high = sorted(limit * microvolts(channel.unit) * 1e-6 for limit in channel.physical)
    slack = 1e-6 * (high - low)
    x = raw.get_data(picks=[name], verbose="ERROR")
    with np.errstate(invalid="ignore"):
        n_outside = int(np.sum((x < low - slack) | (x > high + slack)))
    if n_outside:
        limits = f"{channel.physical[0]:g} to {channel.physical[1]:g} {channel.unit}"
        problem = f"channel {name} has {n_outside} samples outside the range of its header, {limits}"
        warn_about(file, f"{problem}; is the header right?", 4)


# ---- BrainVision

#: Bytes per sample by the name of the format.
BRAINVISION_SAMPLE_BYTES = {"INT_16": 2, "INT_32": 4, "IEEE_FLOAT_32": 4}
_MARKER_LINE = re.compile(r"Mk([0-9]+)=([^,]*),([^,]*),([0-9]+),[0-9]+,-?[0-9]+(,[0-9]*)?")


def read_brainvision(file: Path) -> tuple[Channel, ...]:
    """Return the channels of a BrainVision header (``.vhdr``), which must agree with its data and marker file."""
    require_file(file)
    with opening(file, "MNE", "a BrainVision header"):
        params, comment = _brainvision_sections(file)
        common = params["Common Infos" if "Common Infos" in params else "Common infos"]
        n_chans = int(common["NumberOfChannels"])
        interval = float(common["SamplingInterval"])  # µs
        if n_chans < 1 or not 0 < interval < math.inf:
            found = f"{n_chans} channels with a sampling interval of {interval:g} µs"
            raise DataError(file, found, "at least one channel and a positive interval")
        channels = _brainvision_channels(file, params, n_chans, 1e6 / interval)
        _check_recorder_rate(file, comment, interval)
        if common.get("DataFormat", "BINARY").strip() == "BINARY":
            n_samples = _expect_data_file(file, params, common["DataFile"], n_chans)
            _expect_marker_file(file, common.get("MarkerFile", ""), n_samples)
    return channels


def _brainvision_sections(file: Path) -> tuple[configparser.ConfigParser, str]:
    """Parse a BrainVision header; return its sections and the text of its comment section."""
    raw = file.read_bytes()
    if not re.match(rb"Brain ?Vision", raw[:40], re.I) and not raw.startswith(b"\xef\xbb\xbfBrain"):
        raise DataError(file, f"{len(raw)} bytes that MNE cannot read", "a BrainVision header", "Copy it again.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    params, _, comment = text.partition("[Comment]")
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(params.partition("\n")[2])
    return parser, comment


def _brainvision_channels(
    file: Path, params: configparser.ConfigParser, n_chans: int, rate: float
) -> tuple[Channel, ...]:
    """Return the channels listed in a BrainVision header; raise an error unless there are ``n_chans``."""
    rows = {key.lower(): value for key, value in params["Channel Infos"].items()}
    keys = [f"ch{number}" for number in range(1, len(rows) + 1)]
    if n_chans != len(rows) or sorted(rows) != sorted(keys):
        raise DataError(file, f"{len(rows)} channels in its list", f"{n_chans}, Ch1 to Ch{n_chans}", "Copy it again.")
    channels = []
    for key in keys:
        name, _, resolution, unit = [*rows[key].split(","), "", "", ""][:4]
        gain = float(resolution) if resolution.strip() else 1.0
        if not 0 < gain < math.inf:
            raise DataError(file, f"the resolution {resolution!r} of channel {name}", "a positive number")
        channels.append(Channel(name.replace(r"\1", ","), unit.strip() or "µV", gain, rate))
    return tuple(channels)


def _check_recorder_rate(file: Path, comment: str, interval: float) -> None:
    """Warn if the comment of the recorder in a BrainVision header states another sampling rate.

    Programs that resample do not update the comment.  ``interval`` is the sampling interval in µs.
    """
    for pattern, is_rate in (
        (r"Sampling Rate \[Hz\]: *([0-9]+(?:\.[0-9]+)?)", True),
        (r"Sampling Interval \[.S\]: *([0-9]+(?:\.[0-9]+)?)", False),
    ):
        match = re.search(pattern, comment, re.IGNORECASE)
        value = float(match.group(1)) if match else 0.0
        rate = value if is_rate or not value else 1e6 / value
        if rate and not math.isclose(rate, 1e6 / interval, rel_tol=1e-3):
            rates = f"SamplingInterval says {1e6 / interval:g} Hz, the recorder's comment says {rate:g} Hz"
            warn_about(file, f"{rates}; was it resampled? It is read at {1e6 / interval:g} Hz.", stacklevel=6)
            return


def _expect_data_file(file: Path, params: configparser.ConfigParser, name: str, n_chans: int) -> int:
    """Return the number of samples in the data file of a BrainVision header, from its size.

    Raises an error unless the file exists and has the same number of samples for each channel.
    """
    form = params["Binary Infos"]["BinaryFormat"].strip()
    if form not in BRAINVISION_SAMPLE_BYTES:
        raise DataError(file, f"BinaryFormat={form}", f"one of {', '.join(BRAINVISION_SAMPLE_BYTES)}", "Copy it again.")
    data = file.parent / name.strip()
    require_file(data, f"{file.name} names it as its DataFile")
    n_samples, surplus = divmod(data.stat().st_size, BRAINVISION_SAMPLE_BYTES[form] * n_chans)
    if surplus or not n_samples:
        found = f"{data.stat().st_size} bytes"
        expected = (
            f"a multiple of {BRAINVISION_SAMPLE_BYTES[form]} bytes for each of {n_chans} channels, as {file.name} says"
        )
        raise DataError(data, found, expected, "It may be truncated. Copy it again.")
    return n_samples


def _expect_marker_file(file: Path, name: str, n_samples: int) -> None:
    """Check the marker file of a BrainVision header; an empty name means that there is none.

    Raises an error for damaged lines and markers outside the recording, and warns about gaps in the numbers of markers.
    """
    markers = file.parent / name.strip()
    if not name.strip():
        return
    if not markers.is_file():
        markers = file.with_suffix(".vmrk")  # as MNE does for renamed files
    require_file(markers, f"{file.name} names {name.strip()} as its MarkerFile")
    text = markers.read_bytes().decode("latin-1")
    _, section, rest = text.partition("[Marker Infos]")
    if not section:
        raise DataError(markers, f"{len(text)} bytes without [Marker Infos]", "a BrainVision marker file")
    numbers = []
    for line in (line.strip() for line in rest.partition("\n[")[0].splitlines()):
        if not line or line.startswith(";"):
            continue
        match = _MARKER_LINE.fullmatch(line)
        if match is None:
            raise DataError(markers, f"{line[:60]!r} as a marker", "Mk1=type,description,position,size,…")
        if not 1 <= int(match.group(4)) <= n_samples + 1:
            raise DataError(markers, f"a marker at sample {match.group(4)}", f"1 to {n_samples}", "Copy it again.")
        numbers.append(int(match.group(1)))
    if not text.endswith("\n"):
        warn_about(markers, "the last line is incomplete; is the file truncated?", stacklevel=6)
    if numbers != list(range(1, len(numbers) + 1)):
        warn_about(markers, "markers are not numbered from 1 without gaps; is one missing?", stacklevel=6)


# ---- FIF

# A FIF file is a chain of tags: a header of 16 bytes, followed by data.
_TAG = struct.Struct(">iiii")  # header: kind, type, bytes of data, position of the next tag
_FILE_ID, _BLOCK_START, _BLOCK_END = 100, 104, 105  # kinds of tags
_NEXT_FOLLOWS, _NO_NEXT = 0, -1  # special positions of the next tag
_KIND_LIMIT = 1 << 16  # all defined kinds are below
# Kinds of blocks that contain continuous samples, kind of the tags with these samples, and maximum size of other tags.
_RAW_BLOCKS, _RAW_DATA, _MAX_OTHER = (102, 112, 119), 300, 1024


def expect_tags(file: Path) -> None:
    """Raise an error unless a FIF file is a chain of tags within the file, with properly nested blocks."""
    end = file.stat().st_size
    with file.open("rb") as stream:
        at, opened, n_tags = 0, list[int](), 0
        while at < end:
            stream.seek(at)
            raw = stream.read(_TAG.size)
            if len(raw) < _TAG.size:
                raise _damaged_fif(file, f"{end} bytes that end within a tag")
            kind, _, size, following = _TAG.unpack(raw)
            if not n_tags and kind != _FILE_ID:
                raise _damaged_fif(file, f"{end} bytes that MNE cannot read: they begin with {raw[:8]!r}")
            if size < 0 or at + _TAG.size + size > end:
                raise _damaged_fif(file, f"{end} bytes and a tag at {at} of {size} bytes, beyond the end")
            if not 0 < kind < _KIND_LIMIT:
                raise _damaged_fif(file, f"{end} bytes and a tag at {at} of kind {kind}")
            if kind == _BLOCK_START:
                opened.append(_parse_integer(stream.read(4)))
                if opened[-1] >= _KIND_LIMIT:
                    raise _damaged_fif(file, f"{end} bytes and a block at {at} of kind {opened[-1]}")
            elif opened and opened[-1] in _RAW_BLOCKS and size > _MAX_OTHER and kind != _RAW_DATA:
                raise _damaged_fif(file, f"{end} bytes and a tag at {at} of kind {kind} among the samples")
            elif kind == _BLOCK_END and (not opened or opened.pop() != _parse_integer(stream.read(4))):
                raise _damaged_fif(file, f"{end} bytes, and at {at} the end of a block that did not begin")
            n_tags += 1
            if following == _NO_NEXT:
                break
            if following != _NEXT_FOLLOWS and following <= at:
                raise _damaged_fif(file, f"{end} bytes and a tag at {at} whose successor is at {following}")
            at = at + _TAG.size + size if following == _NEXT_FOLLOWS else following
    if opened or at >= end:
        problem = f"a block of kind {opened[-1]} without an end" if opened else "no last tag"
        raise _damaged_fif(file, f"{end} bytes and {problem}")


def _parse_integer(raw: bytes) -> int:
    """Return an integer of a FIF file, which is big-endian."""
    return int.from_bytes(raw, "big")


def _damaged_fif(file: Path, found: str) -> DataError:
    """Return the error for a damaged FIF file."""
    return DataError(file, found, "a complete FIF file", "It may be truncated. Copy it again.")


Array = NDArray[Any]

# ---- GDF

FIXED = PER_CHANNEL = 256  # bytes of the header: its fixed part, and the part for each channel

#: Bytes per sample by the number of the data type; types that are whole numbers; units by their code in version 2.
GDF_SAMPLE_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 8, 8: 8, 16: 4, 17: 8}
GDF_WHOLE = range(1, 9)
_GDF_UNITS = {4256: "V", 4274: "mV", 4275: "uV", 4276: "nV", 0: "", 512: "1"}

#: What to do about files of version 2 whose header is longer than its channels require.
_ADDITIONAL_HEADER = (
    "The file has an additional header (tag, length, value), which is not supported: export it without one, or as EDF. "
    "If it should not have one, the file is damaged."
)


@dataclass(frozen=True)
class _GDFLayout:
    """Offsets of the channel fields in bytes per channel, and the data types that differ between versions."""

    unit: tuple[int, str]
    physical_min: int
    digital: str
    n_samples: int


_GDF_LAYOUTS = {1: _GDFLayout((96, "S8"), 104, "<i8", 216), 2: _GDFLayout((102, "<u2"), 104, "<f8", 216)}


def read_gdf(file: Path) -> tuple[Channel, ...]:
    """Return the channels of a GDF file; raise an error unless its header agrees with its size and its event table."""
    require_file(file)
    n_bytes = file.stat().st_size
    with file.open("rb") as stream:
        fixed = stream.read(FIXED)
        version = _gdf_version(file, fixed, n_bytes)
        n_chans = int(np.frombuffer(fixed, "<u4" if version == 1 else "<u2", 1, 252)[0])
        blocks = "<i8" if version == 1 else "<u2"
        declared = int(np.frombuffer(fixed, blocks, 1, 184)[0]) * (1 if version == 1 else 256)
        size = FIXED + n_chans * PER_CHANNEL
        if n_chans < 1 or declared != size or size > n_bytes:
            found = f"{n_bytes} bytes and a header of {declared} bytes for {n_chans} channels"
            remedy = _ADDITIONAL_HEADER if version == 2 and n_chans and size < declared <= n_bytes else "Copy it again."
            raise DataError(file, found, f"{FIXED} bytes plus {PER_CHANNEL} for each channel", remedy)
        rest = stream.read(n_chans * PER_CHANNEL)
    n_records = int(np.frombuffer(fixed, "<i8", 1, 236)[0])
    seconds, parts = np.frombuffer(fixed, "<u4", 2, 244).tolist()
    if not (seconds and parts) or n_records < 1:
        found = f"{n_bytes} bytes, {n_records} records of {seconds}/{parts} s"
        raise DataError(file, found, "at least one record of positive duration", "Copy it again.")
    return _gdf_channels(file, version, rest, n_chans, n_records, seconds / parts)


def _gdf_version(file: Path, fixed: bytes, n_bytes: int) -> int:
    """Return the major version, 1 or 2, of a GDF file from the fixed part of its header."""
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


def _gdf_channels(file: Path, version: int, rest: bytes, n: int, n_records: int, seconds: float) -> tuple[Channel, ...]:
    """Return the channels of a GDF file; raise an error unless the file has the size that its header states.

    ``rest`` is the part of the header after its fixed part, ``n`` the number of channels, and ``seconds`` the duration
    of a record.
    """
    layout = _GDF_LAYOUTS[version]

    def read_field(start: int, dtype: str) -> Array:
        """Return the values of a header field for all channels; fields are stored one after the other."""
        return np.frombuffer(rest, dtype, n, start * n)

    counts, kinds = read_field(layout.n_samples, "<i4"), read_field(layout.n_samples + 4, "<i4")
    unknown = [int(kind) for kind in kinds if kind not in GDF_SAMPLE_BYTES]
    if unknown or counts.min() < 1:
        found = f"samples of type {unknown[0]}" if unknown else f"{counts.min()} samples of a channel in a record"
        expected = f"at least one, of the types {', '.join(map(str, GDF_SAMPLE_BYTES))}"
        raise DataError(file, found, expected, "Copy it again.")
    record = sum(int(count) * GDF_SAMPLE_BYTES[int(kind)] for count, kind in zip(counts, kinds, strict=True))
    end = FIXED + n * PER_CHANNEL + n_records * record
    if file.stat().st_size < end:
        found, expected = f"{file.stat().st_size} bytes", f"{end}, {n_records} records, as its header says"
        raise DataError(file, found, expected, "It may be truncated. Copy it again.")
    rates = counts / seconds
    _expect_event_table(file, version, end, int(counts.max()) * n_records, float(rates.max()))
    bottom, top = (read_field(layout.physical_min + 8 * k, "<f8") for k in (0, 1))
    low, high = (read_field(layout.physical_min + 16 + 8 * k, layout.digital).astype(float) for k in (0, 1))
    units = [_gdf_unit(raw) for raw in read_field(*layout.unit).tolist()]
    labels = [raw.decode("latin-1").strip(" \0") for raw in read_field(0, "S16").tolist()]
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
            limits=_gdf_limits(int(kinds[k])),
        )
        for k in range(n)
    )


def _gdf_unit(raw: bytes | int) -> str:
    """Return the unit of a GDF channel: text in version 1, a code in version 2."""
    return _GDF_UNITS.get(raw, f"code {raw}") if isinstance(raw, int) else raw.decode("latin-1").strip(" \0")


def _gdf_limits(kind: int) -> tuple[float, float] | None:
    """Return the digital range that is allowed for a GDF data type, up to one above its maximum; None for floats."""
    bits = 8 * GDF_SAMPLE_BYTES[kind]
    if kind not in GDF_WHOLE:
        return None
    return (0.0, 2.0**bits) if kind % 2 == 0 else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))


def _expect_event_table(file: Path, version: int, start: int, n_samples: int, rate: float) -> None:
    """Raise an error unless the bytes of a GDF file from ``start`` are a complete event table, or there are none.

    ``n_samples`` and ``rate`` are those of the recording, within which the events must be.
    """
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
            _expect_events_within(file, table, n_events, n_samples, sfreq, rate)
            return
    found = f"{len(table)} bytes after its records"
    raise DataError(file, found, "an event table that ends with the file", "Copy it again.")


def _expect_events_within(file: Path, table: bytes, n_events: int, n_samples: int, sfreq: float, rate: float) -> None:
    """Raise an error unless all events of a table are within the recording and have its sampling rate."""
    positions = np.frombuffer(table, "<u4", n_events, 8)
    outside = positions[(positions < 1) | (positions > n_samples + 1)]
    if outside.size:
        raise DataError(file, f"an event at sample {outside[0]}", f"1 to {n_samples}", "Copy it again.")
    if n_events and sfreq and not math.isclose(sfreq, rate, rel_tol=1e-3):
        raise DataError(file, f"events at {sfreq:g} Hz and samples at {rate:g} Hz", "the same rate", "Copy it again.")
