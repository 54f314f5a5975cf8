"""Headers of BrainVision recordings (``.vhdr`` with ``.eeg`` and ``.vmrk``), checked before reading."""

from __future__ import annotations

import configparser
import math
import re
from dataclasses import dataclass
from pathlib import Path

from gbwatt.data._reading import opening, require_file, warn_of
from gbwatt.data.formats.headers import Channel
from gbwatt.errors import DataError

#: Bytes of a sample, by the name of its format.
SAMPLE_BYTES = {"INT_16": 2, "INT_32": 4, "IEEE_FLOAT_32": 4}
_MARK = re.compile(r"Mk([0-9]+)=([^,]*),([^,]*),([0-9]+),[0-9]+,-?[0-9]+(,[0-9]*)?")


@dataclass(frozen=True)
class Header:
    """What a BrainVision header says of its channels, found to be consistent with the other two files."""

    channels: tuple[Channel, ...]


def read_header(file: Path) -> Header:
    """The header of a BrainVision recording, or an error that says what is wrong with the files."""
    require_file(file)
    expected = "a BrainVision header"
    with opening(file, "MNE", expected, "Copy it again."):
        params, comment = _sections(file)
        common = params["Common Infos" if "Common Infos" in params else "Common infos"]
        n_chans = int(common["NumberOfChannels"])
        interval = float(common["SamplingInterval"])  # µs
        if n_chans < 1 or not 0 < interval < math.inf:
            raise DataError(
                file, f"{n_chans} channels every {interval:g} µs", "one or more, and a time between samples"
            )
        channels = _channels(file, params, n_chans, 1e6 / interval)
        _check_interval(file, comment, interval)
        if common.get("DataFormat", "BINARY").strip() == "BINARY":
            n_samples = _expect_data(file, params, common["DataFile"], n_chans)
            _expect_markers(file, common.get("MarkerFile", ""), n_samples)
    return Header(channels)


def _sections(file: Path) -> tuple[configparser.ConfigParser, str]:
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


def _channels(file: Path, params: configparser.ConfigParser, n_chans: int, rate: float) -> tuple[Channel, ...]:
    rows = {key.lower(): value for key, value in params["Channel Infos"].items()}
    wanted = [f"ch{number}" for number in range(1, len(rows) + 1)]
    if n_chans != len(rows) or sorted(rows) != sorted(wanted):
        raise DataError(file, f"{len(rows)} channels in its list", f"{n_chans}, Ch1 to Ch{n_chans}", "Copy it again.")
    found = []
    for key in wanted:
        name, _, resolution, unit = [*rows[key].split(","), "", "", ""][:4]
        gain = float(resolution) if resolution.strip() else 1.0
        if not 0 < gain < math.inf:
            raise DataError(file, f"the resolution {resolution!r} of channel {name}", "a positive number")
        found.append(Channel(name.replace(r"\1", ","), unit.strip() or "µV", gain, rate))
    return tuple(found)


def _check_interval(file: Path, comment: str, interval: float) -> None:
    """Warn of another rate in the comment of the recorder, which programs that resample leave as it was."""
    for pattern, is_rate in (
        (r"Sampling Rate \[Hz\]: *([0-9]+(?:\.[0-9]+)?)", True),
        (r"Sampling Interval \[.S\]: *([0-9]+(?:\.[0-9]+)?)", False),
    ):
        found = re.search(pattern, comment, re.IGNORECASE)
        value = float(found.group(1)) if found else 0.0
        rate = value if is_rate or not value else 1e6 / value
        if rate and not math.isclose(rate, 1e6 / interval, rel_tol=1e-3):
            said = f"SamplingInterval says {1e6 / interval:g} Hz, the recorder's comment says {rate:g} Hz"
            warn_of(file, f"{said}; was it resampled? It is read at {1e6 / interval:g} Hz.", stacklevel=5)
            return


def _expect_data(file: Path, params: configparser.ConfigParser, name: str, n_chans: int) -> int:
    """Number of samples in the data file, which has as many for each channel."""
    form = params["Binary Infos"]["BinaryFormat"].strip()
    if form not in SAMPLE_BYTES:
        raise DataError(file, f"BinaryFormat={form}", f"one of {', '.join(SAMPLE_BYTES)}", "Copy it again.")
    data = file.parent / name.strip()
    require_file(data, f"{file.name} names it as its DataFile")
    n_samples, surplus = divmod(data.stat().st_size, SAMPLE_BYTES[form] * n_chans)
    if surplus or not n_samples:
        found = f"{data.stat().st_size} bytes"
        expected = f"a multiple of {SAMPLE_BYTES[form]} bytes for each of {n_chans} channels, as {file.name} says"
        raise DataError(data, found, expected, "It may be truncated. Copy it again.")
    return n_samples


def _expect_markers(file: Path, name: str, n_samples: int) -> None:
    """Require markers within the recording, each of them complete; warn of missing numbers."""
    markers = file.parent / name.strip()
    if not name.strip():
        return
    if not markers.is_file():
        markers = file.with_suffix(".vmrk")  # as MNE does where files were renamed
    require_file(markers, f"{file.name} names {name.strip()} as its MarkerFile")
    text = markers.read_bytes().decode("latin-1")
    _, section, rest = text.partition("[Marker Infos]")
    if not section:
        raise DataError(markers, f"{len(text)} bytes without [Marker Infos]", "a BrainVision marker file")
    numbers = []
    for line in (line.strip() for line in rest.partition("\n[")[0].splitlines()):
        if not line or line.startswith(";"):
            continue
        found = _MARK.fullmatch(line)
        if found is None:
            raise DataError(markers, f"{line[:60]!r} as a marker", "Mk1=type,description,position,size,…")
        if not 1 <= int(found.group(4)) <= n_samples + 1:
            raise DataError(markers, f"a marker at sample {found.group(4)}", f"1 to {n_samples}", "Copy it again.")
        numbers.append(int(found.group(1)))
    if not text.endswith("\n"):
        warn_of(markers, "the last line is not ended; is the file truncated?", stacklevel=5)
    if numbers != list(range(1, len(numbers) + 1)):
        warn_of(markers, "markers are not numbered from 1 without gaps; is one missing?", stacklevel=5)
