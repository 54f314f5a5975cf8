"""BCI Competition IV 2a: files in the official layout, written here; the recordings themselves are not at hand."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.io

from gbwatt.data.datasets import find_source
from gbwatt.data.sets import bcic2a
from gbwatt.errors import DataError, MissingFileError
from tests.data.sets.gdf import STEP, write_gdf

SFREQ, BREAK = 250, 100
LABELS = [f"EEG-{name}" if name in ("Fz", "C3", "Cz", "C4", "Pz") else "EEG" for name in bcic2a.CHANNELS]
LABELS += ["EOG-left", "EOG-central", "EOG-right"]


@dataclass
class Day:
    """One day in the official layout, with short pauses: eyes open, then six runs of 48 trials, breaks between."""

    data: np.ndarray  # (25, n) µV
    events: list[tuple[int, int, int]]
    cues: np.ndarray  # sample numbers
    classes: np.ndarray  # 1 to 4
    starts: list[int]  # of the six runs

    def write(self, file: Path, **options: object) -> Path:
        arguments = {"labels": LABELS, "events": self.events, "sfreq": SFREQ} | options
        return write_gdf(file, self.data, **arguments)

    def write_labels(self, file: Path) -> Path:
        scipy.io.savemat(file, {"classlabel": self.classes[:, None]})
        return file


def make_day(session: str, seed: int) -> Day:
    rng = np.random.default_rng(seed)
    classes = np.concatenate([rng.permutation(np.repeat([1, 2, 3, 4], 12)) for _ in range(6)])
    parts, events, cues, starts = [500], [(0, 32766, 0), (10, 276, 400)], [], []
    for run in range(6):
        begin = starts_at = sum(parts) + BREAK
        starts.append(starts_at)
        events.append((begin, 32766, 0))
        own = begin + 600 + 100 * np.arange(48)  # 0.4 s from cue to cue
        cues.extend(own.tolist())
        parts += [BREAK, 600 + 47 * 100 + (1100 if run == 5 else 1300)]  # the last ends within the margin
    for number, (cue, label) in enumerate(zip(cues, classes, strict=True)):
        events += [(cue - 500, 768, 1500), (cue, 768 + label if session == "T" else 783, 312)]
        if number % 20 == 0:
            events.append((cue - 500, 1023, 1500))  # marked as an artefact
    data = 10 * rng.standard_normal((25, sum(parts) + BREAK))
    edges = np.cumsum([0, *parts])
    for place in (*edges[1::2], edges[-1]):
        data[:, place : place + BREAK] = np.nan
    return Day(data, events, np.array(cues), classes, starts)


@pytest.fixture(scope="module")
def days() -> dict[str, Day]:
    return {"T": make_day("T", 1), "E": make_day("E", 2)}


@pytest.fixture(scope="module")
def folder(days, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "bcic-iv-2a"
    folder.mkdir()
    for session, day in days.items():
        day.write(folder / f"A01{session}.gdf")
        day.write_labels(folder / f"A01{session}.mat")
    return folder


@pytest.fixture(scope="module")
def files(folder) -> list[Path]:
    return [folder / name for name in ("A01T.gdf", "A01T.mat", "A01E.gdf", "A01E.mat")]


@pytest.fixture(scope="module")
def trials(files):
    return bcic2a.read_gdf(files, 1)


# ---- the official files


def test_competition_files_give_576_trials_of_22_channels(trials):
    assert trials.shape == (576, 22, 1375)
    assert (trials.sfreq, trials.tmin, trials.unit, trials.dataset) == (250, -0.5, "µV", "bcic-iv-2a")
    assert trials.ch_names == bcic2a.CHANNELS
    assert trials.class_names == ("left hand", "right hand", "feet", "tongue")
    assert trials.counts() == {session: dict.fromkeys(trials.class_names, 72) for session in "TE"}
    assert set(trials.subject) == {1}


def test_six_runs_of_48_are_counted_without_the_run_of_eye_movements(trials):
    assert Counter(zip(trials.session, trials.run, strict=True)) == {(s, str(r)): 48 for s in "TE" for r in range(1, 7)}


@pytest.mark.parametrize("session", ["T", "E"])
def test_samples_and_classes_are_those_around_each_cue(trials, days, session):
    day, own = days[session], trials.select(session=session)
    np.testing.assert_array_equal(own.y + 1, day.classes)
    for number in (0, 20, 100, 280):  # 20 and 100 are marked as artefacts
        expected = day.data[:22, day.cues[number] - 125 : day.cues[number] + 1250]
        np.testing.assert_allclose(own.X[number], expected, atol=STEP / 2 + 1e-4)


@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_margin_does_not_reach_into_a_break(days, files, tmp_path, dtype):
    """The last run ends 4.4 s after its last cue; from there its last sample is repeated, however NaN is written."""
    recording = days["T"].write(tmp_path / "A01T.gdf", dtype=dtype)
    last = bcic2a.read_gdf([recording, *files[1:]], 1).select(session="T").X[-1]
    cue = days["T"].cues[-1]
    np.testing.assert_allclose(last[:, : 125 + 1100], days["T"].data[:22, cue - 125 : cue + 1100], atol=STEP)
    np.testing.assert_array_equal(last[:, 1225:], np.repeat(last[:, [1224]], 150, axis=1))


def test_channel_at_its_lowest_value_is_not_a_break(days, files, tmp_path):
    day = make_day("T", 1)
    day.data[3, 2000:9000] = -1500  # saturated
    found = bcic2a.read_gdf([day.write(tmp_path / "A01T.gdf"), *files[1:]], 1)
    assert found.X[10, 3].max() == pytest.approx(-1500)


def test_without_run_starts_every_48_trials_are_a_run(days, files, tmp_path, trials):
    events = [event for event in days["T"].events if event[1] != 32766]
    found = bcic2a.read_gdf([days["T"].write(tmp_path / "A01T.gdf", events=events), *files[1:]], 1)
    np.testing.assert_array_equal(found.run, trials.run)


def test_preset_gives_the_438_samples_of_the_paper(trials):
    few = trials[[0, 300]]
    found = bcic2a.DATASET.source("gdf").preprocessing(few)
    assert found.shape == (2, 22, 438)
    assert found.sfreq == 125
    assert found.times[[0, -1]] == pytest.approx([0.492, 3.988])


def test_protocol_has_252_36_and_288_trials(trials):
    (split,) = bcic2a.DATASET.protocol.splits(trials)
    assert (len(split.train), len(split.valid), len(split.test)) == (252, 36, 288)
    assert set(trials.session[split.test]) == {"E"}


def test_competition_files_are_found_by_their_names(folder, files):
    source, found = find_source(bcic2a.DATASET, 1, folder.parent, None)
    assert source.name == "gdf"
    assert list(found) == files
    with pytest.raises(MissingFileError, match=r"A02T\.gdf.*A02E\.mat[\s\S]*BCIC_S02_T\.mat[\s\S]*bbci\.de"):
        find_source(bcic2a.DATASET, 2, folder.parent, None)


# ---- damaged files: each takes the day T, and gives what to read in place of A01T.gdf and A01T.mat


def _events(change):
    return lambda day, folder: (day.write(folder / "A01T.gdf", events=change(day.events)), None)


def _labels(change):
    def damage(day, folder):
        scipy.io.savemat(folder / "A01T.mat", {"classlabel": change(day.classes.copy())[:, None]})
        return None, folder / "A01T.mat"

    return damage


def _truncated(share):
    def damage(day, folder):
        file = day.write(folder / "A01T.gdf")
        file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
        return file, None

    return damage


def _samples(place, value):
    def damage(day, folder):
        data = day.data.copy()
        data[place(day)] = value
        return write_gdf(folder / "A01T.gdf", data, SFREQ, LABELS, day.events, dtype="float32"), None

    return damage


def _without_channel(day, folder):
    labels = [*LABELS[:21], *LABELS[22:]]
    return write_gdf(folder / "A01T.gdf", day.data[:24], SFREQ, labels, day.events), None


def _no_variable(day, folder):
    scipy.io.savemat(folder / "A01T.mat", {"labels": day.classes})
    return None, folder / "A01T.mat"


def _of_bnci(day, folder):
    """The file that BNCI Horizon 2020 has under the same name."""
    scipy.io.savemat(folder / "A01T.mat", {"data": np.array([[{"X": day.data[:, :9].T, "y": day.classes}]])})
    return None, folder / "A01T.mat"


def _text(day, folder):
    (folder / "A01T.gdf").write_text("<html>Please accept the terms</html>" * 99)
    return folder / "A01T.gdf", None


def _nothing(day, folder):
    return folder / "A01T.gdf", None


def _swapped(labels):
    return [labels[9], *labels[1:9], labels[0], *labels[10:]]


def _first_cue_as(code):
    return lambda events: [(p, code if c == 769 else c, d) for p, c, d in events]


NO_GDF = r"A01T\.gdf: found \d+ bytes that begin with b'<html>Pl'; expected a file in the General Data Format"
CUT_GDF = r"A01T\.gdf: found \d+ bytes; expected \d+, \d+ records, as its header says.*truncated"
CUT_EVENTS = r"A01T\.gdf: found \d+ bytes after its records; expected an event table that ends with the file"
DAMAGES = {
    "absent": (_nothing, r"A01T\.gdf does not exist"),
    "not a GDF file": (_text, NO_GDF),
    "truncated in the samples": (_truncated(0.5), CUT_GDF),
    "truncated in the events": (_truncated(0.9999), CUT_EVENTS),
    "channel missing": (_without_channel, r"found EOG-left as channel 22 of 24; expected EEG, for POz"),
    "channels in another order": (
        lambda day, folder: (day.write(folder / "A01T.gdf", labels=_swapped(LABELS)), None),
        r"found EEG-Cz as channel 1 of 25; expected EEG-Fz",
    ),
    "other sampling rate": (
        lambda day, folder: (day.write(folder / "A01T.gdf", sfreq=125), None),
        r"found 125 Hz; expected 250 Hz",
    ),
    "unknown event": (_events(lambda events: [*events, (999, 1234, 0)]), r"event code 1234; expected 276.*session T"),
    "cues of the other day": (_events(_first_cue_as(783)), r"event code 783; expected .*T and E interchanged"),
    "trial missing": (
        _events(lambda events: [e for e in events if e != max(e for e in events if 769 <= e[1] <= 772)]),
        r"found 287 cues, in runs of 48, 48, 48, 48, 48, 47; expected 288, in 6 runs of 48",
    ),
    "break in a trial": (
        _samples(lambda day: (slice(None), slice(day.cues[0] + 300, day.cues[0] + 310)), np.nan),
        r"a break or the end of the recording in trial 0, whose cue is at .* s; expected samples from 0\.5 to 4\.0 s",
    ),
    "NaN in a channel": (
        _samples(lambda day: (7, day.cues[95] + 900), np.nan),
        r"NaN or infinite samples in \d+ of 288 trials, first in trial \d+, channel C3",
    ),
    "label missing": (_labels(lambda y: y[:-1]), r"A01T\.mat: found 287 labels; expected 288"),
    "label out of range": (
        _labels(lambda y: np.where(y == 4, 5, y)),
        r"A01T\.mat: found 5 as label.*one of 1, 2, 3, 4",
    ),
    "class empty": (_labels(lambda y: np.where(y == 4, 1, y)), r"A01T\.mat: found no trial with label 4"),
    "labels of another day": (_labels(lambda y: y[::-1]), r"A01T\.mat: found class .* the cue in A01T\.gdf"),
    "file of BNCI Horizon": (
        _of_bnci,
        r"A01T\.mat: found the variables data; .*may be .* BNCI Horizon 2020.*true labels .*bbci\.de",
    ),
    "labels under another name": (_no_variable, r"A01T\.mat: found the variables labels; expected also classlabel"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damaged_competition_file_is_named_with_what_is_wrong(case, days, files, tmp_path):
    damage, message = DAMAGES[case]
    recording, labels = damage(days["T"], tmp_path)
    with pytest.raises((DataError, MissingFileError), match=message):
        bcic2a.read_gdf([recording or files[0], labels or files[1], *files[2:]], 1)


# ---- processed files


@pytest.fixture(scope="module")
def processed(tmp_path_factory) -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    y = np.tile([0, 1, 2, 3], 72)[:, None]
    x = rng.standard_normal((288, 22, 563)).astype(np.float32)
    return {"T": {"x_train": x, "y_train": y}, "E": {"x_test": x + 1, "y_test": y[::-1]}}


def write_processed(folder: Path, content: dict[str, dict[str, np.ndarray]]) -> list[Path]:
    for session, variables in content.items():
        scipy.io.savemat(folder / f"BCIC_S01_{session}.mat", variables)
    return [folder / f"BCIC_S01_{session}.mat" for session in content]


def test_processed_files_give_exactly_the_slice_of_the_paper(processed, tmp_path):
    trials = bcic2a.read_processed(write_processed(tmp_path, processed), 1)
    found = bcic2a.DATASET.source("processed").preprocessing(trials)
    assert found.shape == (576, 22, 438)
    np.testing.assert_array_equal(found.select(session="T").X, processed["T"]["x_train"][:, :, 124:562])
    np.testing.assert_array_equal(found.select(session="E").X, processed["E"]["x_test"][:, :, 124:562])
    np.testing.assert_array_equal(found.select(session="E").y, processed["E"]["y_test"].ravel())
    assert found.times[0] == pytest.approx(0.492)
    assert found.run[[0, 47, 48, -1]].tolist() == ["1", "1", "2", "6"]


def test_processed_files_may_have_an_axis_for_convolutions(processed, tmp_path):
    wide = {s: {k: v[:, None] if k[0] == "x" else v for k, v in content.items()} for s, content in processed.items()}
    found = bcic2a.read_processed(write_processed(tmp_path, wide), 1)
    np.testing.assert_array_equal(found.X[:288], processed["T"]["x_train"])


PROCESSED_DAMAGES = {
    "channel missing": ("x_train", lambda x: x[:, :21], r"_T\.mat: found x_train of shape \(288, 21, 563\)"),
    "too short": ("x_train", lambda x: x[:, :, :561], r"x_train of 561 samples; expected at least 562"),
    "days of different length": ("x_train", lambda x: x[:, :, :562], r"_E\.mat: found x_test .*as in BCIC_S01_T"),
    "labels from one": ("y_train", lambda y: y + 1, r"found 4 as label of trial 3; expected one of 0, 1, 2, 3"),
    "NaN": ("x_train", lambda x: np.where(np.arange(288)[:, None, None] == 5, np.nan, x), r"trial 5, channel Fz"),
}


@pytest.mark.parametrize("case", PROCESSED_DAMAGES)
def test_damaged_processed_file_is_named_with_what_is_wrong(case, processed, tmp_path):
    name, change, message = PROCESSED_DAMAGES[case]
    content = {"T": {**processed["T"], name: change(processed["T"][name])}, "E": processed["E"]}
    with pytest.raises(DataError, match=message):
        bcic2a.read_processed(write_processed(tmp_path, content), 1)


def test_truncated_processed_file_is_named(processed, tmp_path):
    files = write_processed(tmp_path, processed)
    files[1].write_bytes(files[1].read_bytes()[:100_000])
    with pytest.raises(DataError, match=r"BCIC_S01_E\.mat: found 100000 bytes: .*expected a complete MATLAB file"):
        bcic2a.read_processed(files, 1)


# ---- MOABB, in the form of an object with its method


def as_moabb(days: dict[str, Day]) -> SimpleNamespace:
    """What BNCI2014_001 gives: a recording for each run, in V, with events at the beginning of trials."""
    import mne

    names = [*bcic2a.CHANNELS, "EOG1", "EOG2", "EOG3", "STI"]
    info = mne.create_info(names, SFREQ, ["eeg"] * 22 + ["eog"] * 3 + ["stim"])
    sessions: dict[str, dict[str, object]] = {}
    for name, day in zip(("0train", "1test"), days.values(), strict=True):
        stim = np.zeros(day.data.shape[1])
        stim[day.cues - 500] = day.classes
        data = np.vstack([day.data * 1e-6, stim])
        ends = [*(start - BREAK for start in day.starts[1:]), day.data.shape[1] - BREAK]
        raws = [mne.io.RawArray(data[:, a:b], info, verbose="ERROR") for a, b in zip(day.starts, ends, strict=True)]
        sessions[name] = {str(number): raw for number, raw in enumerate(raws)}
    return SimpleNamespace(get_data=lambda subjects: dict.fromkeys(subjects, sessions), sessions=sessions)


def test_moabb_gives_the_trials_of_the_competition_files(days, trials):
    found = bcic2a.from_moabb(as_moabb(days), 1)
    np.testing.assert_allclose(found.X, trials.X, atol=STEP / 2 + 1e-4)
    for name in ("y", "session", "run", "subject"):
        np.testing.assert_array_equal(getattr(found, name), getattr(trials, name))
    assert found.frame == trials.frame


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda sessions: sessions.pop("1test"), r"subject 1: found the sessions 0train; expected 0train and 1test"),
        (lambda sessions: sessions["1test"].pop("3"), r"found 5 runs in session 1test; expected 6"),
        (lambda sessions: sessions["0train"]["2"].drop_channels("CPz"), r"session 0train, run 2: .*expected also CPz"),
        (lambda sessions: sessions["0train"]["2"].crop(0, 15), r"session 0train, run 2: found 37 labels; expected 48"),
        (lambda sessions: sessions["0train"]["2"].resample(125), r"session 0train, run 2: found 125 Hz"),
    ],
)
def test_what_is_missing_in_moabb_is_named(days, damage, message):
    dataset = as_moabb(days)
    damage(dataset.sessions)
    with pytest.raises(DataError, match=message):
        bcic2a.from_moabb(dataset, 1)


def test_without_moabb_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "moabb", None)
    monkeypatch.setitem(sys.modules, "moabb.datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r"MOABB is not installed.*pip install 'gbwatt\[moabb\]'"):
        bcic2a.read_moabb((), 1)


def test_moabb_is_used_only_when_asked_for(tmp_path):
    with pytest.raises(MissingFileError, match="source='moabb'"):
        find_source(bcic2a.DATASET, 1, tmp_path, None)
    assert find_source(bcic2a.DATASET, 1, tmp_path, "moabb")[0].downloads
