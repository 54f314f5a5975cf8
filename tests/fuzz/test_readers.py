"""Damaged recordings in every format that is read: a named error or warning, or the trials of the undamaged file.

Formats without checksums cannot detect damage inside samples, texts of annotations and names of channels; such cases
are counted apart and listed.
"""

from __future__ import annotations

import random
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import edfio
import mne
import numpy as np
import pytest
import scipy.io

from gbwatt.data import Trials, load
from gbwatt.data.formats.npz import write_npz
from gbwatt.data.sets import ern, mamem
from gbwatt.errors import DataWarning
from tests.data.formats.brainvision import write_brainvision
from tests.data.formats.test_interchange import full
from tests.data.sets import test_ern, test_mamem
from tests.data.sets.gdf import write_gdf
from tests.fuzz.damage import Tally, damaged, flip_bits, zero_block

pytestmark = pytest.mark.fuzz

FIELDS = ("class_names", "ch_names", "sfreq", "tmin", "unit", "dataset", "steps", "truths")
ROWS = ("X", "y", "subject", "session", "run", "group")
NAMES = ("Fz", "C3", "Cz", "C4", "P3", "Pz", "P4", "Oz")
SFREQ, SECONDS = 100, 24
ONSETS = tuple(2.0 + 2 * k for k in range(10))
MARKS = [("Stimulus", f"S  {1 + k % 2}", round(onset * SFREQ)) for k, onset in enumerate(ONSETS)]
WINDOW = {"tmin": 0.0, "tmax": 1.0, "classes": {"left": "T1", "right": "T2"}}


def samples(n_chans: int = len(NAMES)) -> np.ndarray:
    """EEG-like noise (n_chans, n) in µV."""
    return 15 * np.random.default_rng(0).standard_normal((n_chans, SFREQ * SECONDS))


def differences(one: Trials, other: Trials) -> set[str]:
    """Fields in which trials differ."""
    found = {name for name in FIELDS if getattr(one, name) != getattr(other, name)}
    return found | {name for name in ROWS if not np.array_equal(getattr(one, name), getattr(other, name))}


@dataclass(frozen=True)
class Outcome:
    """Trials of a damaged file, and the fields in which they differ from the undamaged ones."""

    trials: Trials
    fields: set[str]

    def __str__(self) -> str:
        return f"{sorted(self.fields)} of {self.trials}"


class Fuzz:
    """Damages one file of a recording, and reads it each time."""

    def __init__(self, file: Path, read: Callable[[], Trials]) -> None:
        self.file, self.content, self.tally = file, file.read_bytes(), Tally()
        self._read = read
        self.original = self.read()

    def read(self) -> Trials:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DataWarning)  # what is said aloud is not silent
            return self._read()

    def case(
        self, name: str, content: bytes, data: Sequence[range] = (), undefined: Callable[[Outcome], bool] | None = None
    ) -> None:
        """One damaged file.

        Within ``data``, ranges of bytes, a format without checksums cannot detect damage; ``undefined`` is for damage
        that changes the size of a file whose size is not written anywhere.
        """

        def undetectable(found: Outcome) -> bool:
            if undefined is not None and undefined(found):
                return True
            mended = restored(content, self.content, data)
            if mended is None:
                return False
            overwrite(self.file, mended, content)
            try:
                return not self._outcome().fields
            finally:
                overwrite(self.file, content, mended)

        overwrite(self.file, content, self.content)
        try:
            self.tally.add(name, self._outcome, lambda found: not found.fields, undetectable)
        finally:
            overwrite(self.file, self.content, content)

    def _outcome(self) -> Outcome:
        trials = self.read()
        return Outcome(trials, differences(trials, self.original))

    def random(
        self, n: int, seed: int, data: Sequence[range] = (), undefined: Callable[[Outcome], bool] | None = None
    ) -> None:
        """Random damage anywhere."""
        for name, content in damaged(self.content, n, seed):
            self.case(name, content, data, undefined)

    def header(self, n: int, seed: int, header: range, data: Sequence[range] = ()) -> None:
        """Random damage in a range of bytes that keeps the size of the file."""
        rng = random.Random(seed)
        start, stop = header.start, header.stop
        for number in range(n):
            harm = rng.choice((flip_bits, flip_bits, zero_block))
            part = harm(self.content[start:stop], rng)
            self.case(f"header {number}: {harm.__name__}", self.content[:start] + part + self.content[stop:], data)


def overwrite(file: Path, content: bytes, before: bytes) -> None:
    """Write content into a file; what is the same as before is not written again if the size is the same."""
    if len(content) != len(before):
        file.write_bytes(content)
        return
    changed = np.flatnonzero(np.frombuffer(content, np.uint8) != np.frombuffer(before, np.uint8))
    if changed.size:
        first, last = int(changed[0]), int(changed[-1]) + 1
        with file.open("r+b") as stream:
            stream.seek(first)
            stream.write(content[first:last])


def restored(content: bytes, original: bytes, data: Sequence[range]) -> bytes | None:
    """A damaged file whose damage within some ranges is undone; None if there is none to undo."""
    if len(content) != len(original):
        return None
    mended = bytearray(content)
    for places in data:
        mended[places.start : places.stop] = original[places.start : places.stop]
    return None if mended == content else bytes(mended)


# ---- EDF and BDF


def write_edf(file: Path, bdf: bool = False) -> Path:
    signal: Any = edfio.BdfSignal if bdf else edfio.EdfSignal
    signals = [
        signal(row, SFREQ, label=name, physical_dimension="uV", physical_range=(-800, 800))
        for name, row in zip(NAMES, samples(), strict=True)
    ]
    marks = [edfio.EdfAnnotation(onset, 1.0, f"T{1 + k % 2}") for k, onset in enumerate(ONSETS)]
    (edfio.Bdf if bdf else edfio.Edf)(signals, annotations=marks).write(file)
    return file


#: Where fields of the fixed header are, how long, and wrong values.
FIXED = {
    "version": (0, 8, ("1", "", "BIOSEMI", "\x1b[2J")),
    "header bytes": (184, 8, ("0", "256", "2561", "99999999", "-1", "2560.0", "", "2 560")),
    "records": (236, 8, ("0", "-1", "1", "23", "25", "99999999", "2_4", "24.0", "1e9", "", "nan")),
    "duration": (244, 8, ("0", "2", "0.5", "1.01", "1e-6", "1e9", "-1", "inf", "nan", "", "1_0", "0.999")),
    "signals": (252, 4, ("0", "1", "8", "10", "9999", "-9", "", "9.0", "x")),
}
#: The same for the fields of a signal, of 256 bytes for each.
SIGNAL = {
    "label": (0, 16, ("", "C3", "X9", "EDF Annotations", "BDF Annotations", "\x1b[31mC3", "a\nb", "C\x00z")),
    "unit": (96, 8, ("", "mV", "V", "nV", "MV", "kV", "mmHg", "degC", "%", "u\nV", "uVrms")),
    "physical min": (104, 8, ("0", "800", "-80", "-8000", "-8e8", "nan", "inf", "", "x", "-1e300", "900", "-799")),
    "physical max": (112, 8, ("0", "-800", "80", "8000", "8e8", "nan", "-inf", "", "x", "1e300", "-900", "801")),
    "digital min": (120, 8, ("0", "32767", "-3276", "-99999", "-9999999", "nan", "", "x", "1e9", "8388607")),
    "digital max": (128, 8, ("0", "-32768", "3276", "99999", "9999999", "nan", "", "x", "-1e9", "-8388608")),
    "samples": (216, 8, ("0", "1", "99", "101", "200", "10000000", "-100", "1e2", "", "x")),
}


def field_changes(content: bytes, places: tuple[int, ...]) -> Iterator[tuple[str, bytes]]:
    """Wrong values of every field of a header, of the signals at some places too."""
    n_signals = int(content[252:256])

    def changed(at: int, length: int, value: str) -> bytes:
        return content[:at] + value.encode("latin-1").ljust(length)[:length] + content[at + length :]

    for name, (at, length, values) in FIXED.items():
        for value in values:
            yield f"{name}={value!r}", changed(at, length, value)
    for name, (start, length, values) in SIGNAL.items():
        for place in places:
            for value in values:
                at = 256 + start * n_signals + place * length
                yield f"{name} of signal {place}={value!r}", changed(at, length, value)


@pytest.mark.parametrize("bdf", [False, True], ids=["edf", "bdf"])
def test_damaged_edf_files_are_noticed(tmp_path, bdf):
    file = write_edf(tmp_path / ("mine.bdf" if bdf else "mine.edf"), bdf)
    fuzz = Fuzz(file, lambda: load(file, **WINDOW))
    n_bytes = int(fuzz.content[184:192])
    n_signals = int(fuzz.content[252:256])
    labels = range(256, 256 + 16 * (n_signals - 1))
    for name, content in field_changes(fuzz.content, (0, 4, n_signals - 1) if not bdf else (2,)):
        fuzz.case(name, content, [labels])
    data = [labels, range(n_bytes, len(fuzz.content))]
    fuzz.header(60, 1, range(n_bytes), [labels])
    fuzz.random(60, 2, data)
    fuzz.tally.finish(at_least=210)


# ---- GDF


def test_damaged_gdf_files_are_noticed(tmp_path):
    events = [(round(onset * SFREQ), 769 + k % 2, SFREQ) for k, onset in enumerate(ONSETS)]
    file = write_gdf(tmp_path / "mine.gdf", samples(), SFREQ, NAMES, events)
    options = {"tmin": 0.0, "tmax": 1.0, "classes": {"left": "769", "right": "770"}}
    fuzz = Fuzz(file, lambda: load(file, **options))
    n = len(NAMES)
    header = 256 * (n + 1)
    for at, form, values in (
        (184, "<q", (0, 256, -1, 1 << 40)),
        (236, "<q", (0, -1, 1, SECONDS + 1, 1 << 60)),
        (244, "<I", (0, 2, 1 << 31)),
        (248, "<I", (0, 2, 1 << 31)),
        (252, "<I", (0, 1, n + 1, 1 << 31)),
        (256 + 104 * n, "<d", (0.0, float("nan"), 1e9, -1e9, 1638.35)),
        (256 + 112 * n, "<d", (0.0, float("inf"), 1e9, 16383.5, -1638.4)),
        (256 + 120 * n, "<q", (0, 32767, 1 << 40, -(1 << 40))),
        (256 + 128 * n, "<q", (0, -32768, 1 << 40, 3276)),
        (256 + 216 * n, "<i", (0, -1, SFREQ + 1, 1 << 30)),
        (256 + 220 * n, "<i", (0, 1, 5, 16, 17, 99, -3)),
    ):
        for value in values:
            raw = struct.pack(form, value)
            fuzz.case(f"{value!r} at {at}", fuzz.content[:at] + raw + fuzz.content[at + len(raw) :])
    for unit in (b"mV", b"V", b"nV", b"", b"kg", b"u\x1bV"):
        at = 256 + 96 * n
        fuzz.case(f"unit {unit!r}", fuzz.content[:at] + unit.ljust(8) + fuzz.content[at + 8 :])
    table = len(fuzz.content) - 12 * len(ONSETS)
    labels = range(256, 256 + 16 * n)
    fuzz.header(50, 3, range(header), [labels])
    fuzz.header(20, 4, range(table - 8, table))
    fuzz.random(40, 5, [labels, range(header, len(fuzz.content))])
    fuzz.tally.finish(at_least=150)


# ---- BrainVision


BRAINVISION = {
    "DataFile=mine.eeg": ("DataFile=", "DataFile=nowhere.eeg", "DataFile=/dev/zero"),
    "MarkerFile=mine.vmrk": ("MarkerFile=mine.eeg",),
    "DataFormat=BINARY": ("DataFormat=ASCII", "DataFormat="),
    "DataOrientation=MULTIPLEXED": ("DataOrientation=VECTORIZED", "DataOrientation="),
    "NumberOfChannels=8": (
        "NumberOfChannels=0",
        "NumberOfChannels=7",
        "NumberOfChannels=80000000",
        "NumberOfChannels=x",
    ),
    "SamplingInterval=10000": (
        "SamplingInterval=0",
        "SamplingInterval=1000",
        "SamplingInterval=-1",
        "SamplingInterval=nan",
    ),
    "BinaryFormat=INT_16": ("BinaryFormat=INT_32", "BinaryFormat=IEEE_FLOAT_32", "BinaryFormat=", "BinaryFormat=INT_8"),
    "Ch3=Cz,,0.1,µV": (
        "Ch3=Cz,,0.1,mV",
        "Ch3=Cz,,0.1,V",
        "Ch3=Cz,,0.1,kg",
        "Ch3=Cz,,1,µV",
        "Ch3=Cz,,100000,µV",
        "Ch3=Cz,,0,µV",
        "Ch3=Cz,,-0.1,µV",
        "Ch3=Cz,,nan,µV",
        "Ch3=Cz,,,µV",
        "Ch4=Cz,,0.1,µV",
        "Ch3=",
        "Ch3=C3,,0.1,µV",
        "Ch3=\x1b[2J,,0.1,µV",
        "Ch3=Cz",
        "",
    ),
}


def test_damaged_brainvision_files_are_noticed(tmp_path):
    header = write_brainvision(tmp_path / "mine.vhdr", samples(), NAMES, SFREQ, MARKS)
    options = {"tmin": 0.0, "tmax": 1.0, "classes": {"left": "Stimulus/S  1", "right": "Stimulus/S  2"}}
    fuzz = Fuzz(header, lambda: load(header, **options))
    for line, values in BRAINVISION.items():
        assert line.encode() in fuzz.content
        for value in values:
            fuzz.case(f"{line} -> {value}", fuzz.content.replace(line.encode(), value.encode(), 1))
    names = [range(at, at + len(name)) for name in NAMES for at in [fuzz.content.index(f"={name},".encode()) + 1]]
    for number, (name, content) in enumerate(damaged(fuzz.content, 60, 6)):
        fuzz.case(f"vhdr {number} {name}", content, names)
    markers = Fuzz(header.with_suffix(".vmrk"), lambda: load(header, **options))
    start = markers.content.index(b"[Marker Infos]") + len(b"[Marker Infos]")
    first = markers.original.X

    def fewer(found: Outcome) -> bool:
        """Whether whole lines are missing at the end, which the format cannot detect."""
        return len(found.trials) < len(first) and bool((first[: len(found.trials)] == found.trials.X).all())

    markers.random(40, 7, [range(start, len(markers.content))], fewer)
    data = Fuzz(header.with_suffix(".eeg"), lambda: load(header, **options))
    data.random(20, 8, [range(len(data.content))], lambda found: found.fields == {"X"})
    for other in (markers, data):
        fuzz.tally.counts.update(other.tally.counts)
        fuzz.tally.undetectable += other.tally.undetectable
        fuzz.tally.wrong += other.tally.wrong
    fuzz.tally.finish(at_least=150)


# ---- MNE


def write_fif(file: Path) -> Path:
    raw = mne.io.RawArray(samples() * 1e-6, mne.create_info(list(NAMES), SFREQ, "eeg"), verbose="ERROR")
    raw.set_annotations(mne.Annotations(ONSETS, 1.0, [f"T{1 + k % 2}" for k in range(len(ONSETS))]))
    raw.save(file, verbose="ERROR")
    return file


#: Tags of a FIF file whose content is nowhere repeated: samples, events, sampling rate, pass band.
UNCHECKED = {300: "samples", 302: "epochs", 3561: "events", 201: "rate", 219: "low-pass", 223: "high-pass"}
ANNOTATIONS, METADATA = 3810, 3811  # blocks of texts and times


def data_tags(content: bytes) -> list[range]:
    """Bytes of a FIF file whose damage cannot be detected, names of channels included."""
    at, found, block = 0, [], 0
    while at + 16 <= len(content):
        kind, _, size, following = struct.unpack(">iiii", content[at : at + 16])
        data = range(at + 16, at + 16 + size)
        if kind == 104:
            block = int.from_bytes(content[data.start : data.stop], "big")
        elif kind in UNCHECKED or (block in (ANNOTATIONS, METADATA) and kind != 105):
            found.append(data)
        elif kind == 203:  # a channel
            found.append(range(data.start + 80, data.stop))
        if following < 0:
            break
        at = following if following > 0 else data.stop
    return found


@pytest.mark.parametrize("kind", ["raw", "epochs"])
def test_damaged_fif_files_are_noticed(tmp_path, kind):
    if kind == "raw":
        file, options = write_fif(tmp_path / "mine_raw.fif"), WINDOW
    else:
        file, options = tmp_path / "mine-epo.fif", {}
        full(X=15 * np.random.default_rng(0).standard_normal((8, 3, 100))).to_mne().save(file, verbose="ERROR")
    fuzz = Fuzz(file, lambda: load(file, **options))
    data = data_tags(fuzz.content)
    largest = [places for places in data if len(places) > 1000]  # of samples
    fuzz.random(60, 9, data)
    fuzz.header(50, 10, range(largest[0].start), data)
    fuzz.header(30, 11, range(largest[-1].stop, len(fuzz.content)), data)
    fuzz.tally.finish(at_least=140)


# ---- arrays


def test_damaged_npz_files_are_noticed(tmp_path):
    file = tmp_path / "mine.npz"
    write_npz(full(X=15 * np.random.default_rng(0).standard_normal((8, 3, 100))), file)
    fuzz = Fuzz(file, lambda: load(file, "all"))
    fuzz.random(120, 12)
    directory = fuzz.content.index(b"PK\x01\x02")
    fuzz.header(60, 13, range(directory, len(fuzz.content)))
    fuzz.header(30, 14, range(400))
    fuzz.tally.finish(at_least=210)


def numbers_of(content: bytes, arrays: list[np.ndarray]) -> list[range]:
    """Where the numbers of arrays are in a MATLAB file that is not compressed."""
    places = []
    for array in arrays:
        raw = np.asfortranarray(array).tobytes("F")
        at = content.index(raw)
        places.append(range(at, at + len(raw)))
    return places


def test_damaged_processed_mat_files_are_noticed(tmp_path):
    file = tmp_path / "mamem" / "U001.mat"
    file.parent.mkdir()
    content = test_mamem.processed()
    content["x_test"] = content["x_test"].astype(np.float32)
    scipy.io.savemat(file, content)
    fuzz = Fuzz(file, lambda: load("mamem-ssvep-ii", 1, root=tmp_path))
    x, y = numbers_of(fuzz.content, [content["x_test"], content["y_test"]])
    fuzz.random(40, 15, [x])
    fuzz.header(40, 16, range(x.start))
    fuzz.header(30, 17, range(x.stop, y.start))
    fuzz.header(30, 18, range(y.start, y.stop))
    fuzz.tally.finish(at_least=140)


def test_damaged_raw_mat_files_are_noticed(tmp_path):
    content = test_mamem.raw_session(test_mamem.SEQUENCE)
    file = tmp_path / "T001a.mat"
    scipy.io.savemat(file, {**content, "eeg": content["eeg"]})
    fuzz = Fuzz(file, lambda: mamem._read_session(file, 1, "1"))
    (x,) = numbers_of(fuzz.content, [content["eeg"]])
    fuzz.header(20, 19, range(x.start))
    fuzz.header(40, 20, range(x.stop, len(fuzz.content)))
    fuzz.tally.finish(at_least=60)


def test_damaged_tables_of_the_challenge_are_noticed(tmp_path):
    file = tmp_path / "Data_S02_Sess01.csv"
    test_ern.session_table(1).to_csv(file, index=False)

    def read() -> Trials:
        x = ern._read_session(file, "1")
        y = np.resize([0, 1], len(x))
        return Trials(X=x, y=y, class_names=("a", "b"), ch_names=ern.CHANNELS, sfreq=ern.SFREQ)

    fuzz = Fuzz(file, read)
    body = fuzz.content.index(b"\n") + 1
    fuzz.header(20, 21, range(body))
    fuzz.random(30, 22, [range(body, len(fuzz.content))], lambda found: found.fields == {"X"})
    fuzz.tally.finish(at_least=50)


def test_damaged_labels_of_the_challenge_are_noticed(tmp_path):
    file = tmp_path / "TrainLabels.csv"
    test_ern.label_table((2,)).to_csv(file, index=False)
    content, tally = file.read_bytes(), Tally()

    def read() -> list[float]:
        known = ern._read_labels(file, 2)
        labels = [ern._find_label(file, known, 2, s, k) for s, n in ern.FEEDBACKS.items() for k in range(1, n + 1)]
        return ern.expect_labels(file, np.array(labels), 340, (0, 1)).tolist()

    original = read()
    for name, changed in damaged(content, 60, 23):
        file.write_bytes(changed)
        tally.add(name, read, lambda found: found == original, lambda _, c=changed: len(c) == len(content))
    tally.finish(at_least=60)


# ---- EEGLAB


def write_set(file: Path) -> np.ndarray:
    x = samples().reshape(len(NAMES), -1, 8)[:, :100].astype(np.float32)
    labels = ["a", "b"] * 4
    places = np.array([(name,) for name in NAMES], dtype=[("labels", object)])
    event = np.array(
        [(n, 100.0 * k + 1, k + 1.0) for k, n in enumerate(labels)],
        dtype=[(f, object) for f in ("type", "latency", "epoch")],
    )
    epoch = np.array(
        [(k + 1.0, 0.0, n) for k, n in enumerate(labels)],
        dtype=[(f, object) for f in ("event", "eventlatency", "eventtype")],
    )
    eeg: dict[str, Any] = {"setname": "s", "nbchan": float(len(NAMES)), "trials": 8.0, "pnts": 100.0, "srate": 100.0}
    eeg |= {"xmin": 0.0, "xmax": 0.99, "data": x, "chanlocs": places, "event": event, "epoch": epoch}
    eeg |= {"icawinv": [], "icaweights": [], "icasphere": []}
    scipy.io.savemat(file, {"EEG": eeg})
    return x


def test_damaged_eeglab_files_are_noticed(tmp_path):
    file = tmp_path / "mine.set"
    x = write_set(file)
    fuzz = Fuzz(file, lambda: load(file))
    (data,) = numbers_of(fuzz.content, [x])
    fuzz.random(40, 24, [data])
    fuzz.header(20, 25, range(data.start))
    fuzz.header(20, 26, range(data.stop, len(fuzz.content)))
    fuzz.tally.finish(at_least=80)
