"""P300: recordings in the layouts of the files, written here, and the real ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.io
import yaml

from gbwatt.data import find_dataset, load
from gbwatt.data.sets import p300
from gbwatt.errors import DataError, MissingFileError
from tests import recordings
from tests.data.sets.margins import error_of_cutting_first

SYMBOLS, FLASHES, LEAD = 5, 16, 5.0  # flashes of each symbol; seconds before the first and after each symbol
SPACING = 0.18  # s between flashes


def flashes(sfreq: float) -> tuple[np.ndarray, np.ndarray, int]:
    """Sample numbers of the flashes, whether each is a target (every eighth), and the length of the recording."""
    period = LEAD + SPACING * FLASHES
    seconds = [LEAD + symbol * period + SPACING * number for symbol in range(SYMBOLS) for number in range(FLASHES)]
    target = np.arange(SYMBOLS * FLASHES) % 8 == 3
    return np.round(np.array(seconds) * sfreq).astype(int), target, round((LEAD + SYMBOLS * period) * sfreq)


def signal(sfreq: float, n_chans: int) -> np.ndarray:
    """Noise (n, n_chans) on large offsets; 0.3 s after each target a deflection of 60 µV in the third channel."""
    onsets, target, n = flashes(sfreq)
    x = 5 * np.random.default_rng(0).standard_normal((n, n_chans)) + 1000 * np.arange(n_chans)
    width = round(0.1 * sfreq)
    for onset in onsets[target]:
        peak = onset + round(0.3 * sfreq)
        x[peak - width : peak + width + 1, 2] += 60 * np.hanning(2 * width + 1)
    return x


def br41n() -> dict[str, np.ndarray]:
    """Variables of a file; the marks of a flash last three samples."""
    onsets, target, n = flashes(250.0)
    trig = np.zeros((n, 1), dtype=np.int16)
    for length in range(3):
        trig[onsets + length, 0] = np.where(target, 1, -1)
    return {"y": signal(250.0, 8), "trig": trig, "fs": np.array([[250]], dtype=np.uint8)}


def bi2012() -> dict[str, np.ndarray]:
    onsets, target, n = flashes(128.0)
    stim = np.zeros(n, dtype=np.int16)
    stim[onsets] = np.where(target, 2, 1)
    return {"data": signal(128.0, 17).astype(np.float32), "stim": stim}


def write_br41n(root: Path, **changes: np.ndarray) -> list[Path]:
    file = root / "p300-br41n" / "S1.mat"
    file.parent.mkdir(exist_ok=True)
    scipy.io.savemat(file, {**br41n(), **changes})
    return [file]


def write_bi2012(root: Path, description: dict | None = None, **changes: np.ndarray) -> list[Path]:
    files = [root / "bi2012" / f"subject_01_session_01.{kind}" for kind in ("npz", "yml")]
    files[0].parent.mkdir(exist_ok=True)
    np.savez(files[0], **{**bi2012(), **changes})
    acquisition = {"samplingrate": 128, "sensors": list(p300.BI2012_CHANNELS), **(description or {})}
    files[1].write_text(yaml.safe_dump({"acquisition": acquisition}), encoding="utf-8")
    return files


WRITERS = {"p300-br41n": write_br41n, "bi2012": write_bi2012}


@pytest.fixture(params=WRITERS)
def written(request, tmp_path):
    """A data set, its recording and where it is."""
    WRITERS[request.param](tmp_path)
    return SimpleNamespace(dataset=find_dataset(request.param), root=tmp_path)


def test_trials_are_cut_at_the_first_sample_of_each_flash_with_margins(written):
    dataset = written.dataset
    trials = load(dataset.name, 1, root=written.root, preprocessing=None)
    onsets, target, _ = flashes(trials.sfreq)
    data = signal(trials.sfreq, 8 if dataset is p300.BR41N else 17).T[: len(trials.ch_names)]
    np.testing.assert_array_equal(trials.y, target)
    assert (trials.class_names, trials.unit, trials.tmin) == (("non-target", "target"), "µV", -4.0)
    margin = round(4 * trials.sfreq)
    expected = data[:, onsets[7] - margin : onsets[7] - margin + trials.shape[2]]
    np.testing.assert_allclose(trials.X[7], expected, rtol=1e-6)


def test_preset_shows_the_planted_response_of_targets(written):
    trials = load(written.dataset.name, 1, root=written.root)
    assert trials.shape == (SYMBOLS * FLASHES, len(trials.ch_names), 100)
    assert (trials.sfreq, trials.tmin) == (125.0, 0.0)
    difference = trials.X[trials.y == 1].mean(axis=0) - trials.X[trials.y == 0].mean(axis=0)
    channel, place = np.unravel_index(difference.argmax(), difference.shape)
    assert channel == 2
    assert trials.times[place] == pytest.approx(0.3, abs=0.02)


def test_protocol_divides_the_recording_between_symbols_in_order(written):
    trials = load(written.dataset.name, 1, root=written.root)
    np.testing.assert_array_equal(trials.group, np.repeat(np.arange(SYMBOLS), FLASHES))
    (split,) = written.dataset.protocol.splits(trials)
    assert [sorted(set(trials.group[part].tolist())) for part in (split.train, split.valid, split.test)] == [
        [0, 1],
        [2],
        [3, 4],
    ]


@pytest.mark.parametrize("dataset, sfreq", [(p300.BR41N, p300.BR41N_SFREQ), (p300.BI2012, p300.BI2012_SFREQ)])
def test_margins_are_long_enough_for_the_filter_of_the_preset(dataset, sfreq):
    module = SimpleNamespace(SFREQ=sfreq, WINDOW=p300.WINDOW, MARGIN=p300.MARGIN, DATASET=dataset)
    assert error_of_cutting_first(module, dataset.sources[0].name) < 0.01


BR41N_DAMAGES = {
    "channels": ({"y": np.ones((100, 7))}, r"found y of shape \(100, 7\); expected \(any, 8\)"),
    "rate": ({"fs": np.array([[256]])}, "found a sampling rate of 256 Hz; expected 250 Hz"),
    "marks": ({"trig": np.zeros((9, 1))}, r"found 9 marks of stimuli; expected \d+, one for each sample"),
    "code": ({"trig": np.where(br41n()["trig"] > 0, 2, -1)}, "expected one of -1, 1"),
    "no target": ({"trig": -np.abs(br41n()["trig"])}, "found no trial with label 1; expected trials of all 2 classes"),
    "truncated": ({"y": br41n()["y"][:-1700], "trig": br41n()["trig"][:-1700]}, "found a recording of"),
}


@pytest.mark.parametrize("case", BR41N_DAMAGES)
def test_wrong_matlab_file_is_named_with_what_is_wrong(case, tmp_path):
    changes, message = BR41N_DAMAGES[case]
    with pytest.raises(DataError, match=rf"S1\.mat: .*{message}"):
        p300.read_br41n(write_br41n(tmp_path, **changes), 1)


BI2012_DAMAGES = {
    "columns": ({"data": np.ones((9, 16))}, r"npz: found data of shape \(9, 16\); expected \(any, 17\)"),
    "marks": ({"stim": np.zeros(9)}, "npz: found 9 marks of stimuli"),
    "code": ({"stim": 3 * bi2012()["stim"]}, "npz: found 3 as label of trial 0; expected one of 1, 2"),
    "sensors": ({"description": {"sensors": ["F7"]}}, "yml: found the sensors F7; expected F7, F3"),
    "rate": ({"description": {"samplingrate": 512}}, "yml: found a sampling rate of 512 Hz; expected 128 Hz"),
    "no sensors": ({"description": {"sensors": None}}, r"yml: found \d+ bytes that PyYAML cannot read"),
}


@pytest.mark.parametrize("case", BI2012_DAMAGES)
def test_wrong_npz_or_yaml_file_is_named_with_what_is_wrong(case, tmp_path):
    changes, message = BI2012_DAMAGES[case]
    with pytest.raises(DataError, match=rf"subject_01_session_01\.{message}"):
        p300.read_bi2012(write_bi2012(tmp_path, **changes), 1)


def test_npz_file_without_marks_or_damaged_is_named(tmp_path):
    files = write_bi2012(tmp_path)
    np.savez(files[0], data=bi2012()["data"])
    with pytest.raises(DataError, match="found the arrays data; expected also stim"):
        p300.read_bi2012(files, 1)
    files[0].write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"10 bytes that NumPy cannot read .*; expected an \.npz file with data, stim"):
        p300.read_bi2012(files, 1)
    files[1].unlink()
    with pytest.raises(MissingFileError, match=r"session_01\.yml"):
        load("bi2012", 1, root=tmp_path)


# ---- real recordings


@pytest.mark.parametrize(
    "name, subject, n_flashes, n_targets, n_symbols",
    [("p300-br41n", 1, 1200, 150, 5), ("p300-br41n", 2, 1200, 150, 5), ("bi2012", 1, 768, 128, 8)],
)
def test_real_recordings_show_a_late_response_to_targets(name, subject, n_flashes, n_targets, n_symbols):
    trials = recordings.real(name, subject)
    assert trials.counts() == {"1": {"non-target": n_flashes - n_targets, "target": n_targets}}
    assert len(np.unique(trials.group)) == n_symbols
    assert trials.shape[2] == 100
    first, second = (trials.X[trials.y == c] for c in (0, 1))
    error = np.sqrt(first.var(axis=0) / len(first) + second.var(axis=0) / len(second))
    t = np.abs(second.mean(axis=0) - first.mean(axis=0)) / error
    assert t[:, 12:].max() > 5 > t[:, :6].max()  # not in the first 50 ms
