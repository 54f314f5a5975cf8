"""PhysioNet's motor imagery: EDF files written here, and the real recordings where they are at hand."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gbwatt.data import load
from gbwatt.data.datasets import find_source, subjects_here
from gbwatt.data.montage import montage_name
from gbwatt.data.sets import bcic2a, physionet
from gbwatt.errors import DataError, MissingFileError, TimingWarning
from tests import recordings

REST, IMAGERY = 4.2, 4.1  # seconds, in most of the real recordings
PADDED = {"Fp": "Fp", "FC": "Fc", "CP": "Cp", "AF": "Af", "FT": "Ft", "TP": "Tp", "PO": "Po"}


def file_label(name: str) -> str:
    """The name of an electrode as the files have it, ``"Fc5."``."""
    return (PADDED.get(name[:2], name[:2]) + name[2:]).ljust(4, ".")


def marks(order: str, rest: float = REST, imagery: float = IMAGERY) -> list[tuple[float, float, str]]:
    """Annotations of a run: a rest before each of the trials, "1" for T1 and "2" for T2."""
    found = []
    for number, code in enumerate(order):
        begin = number * (rest + imagery)
        found += [(begin, rest, "T0"), (begin + rest, imagery, f"T{code}")]
    return found


def write_run(
    file: Path,
    seed: int,
    order: str = "1221",
    sfreq: int = 160,
    names: tuple[str, ...] = physionet.CHANNELS,
    annotations: list[tuple[float, float, str]] | None = None,
    seconds: int | None = None,
) -> tuple[np.ndarray, list[tuple[float, float, str]]]:
    """An EDF+ file as the database has them; the samples (n_chans, n) in µV, and its annotations."""
    import edfio

    if annotations is None:
        annotations = marks(order)
    if seconds is None:
        seconds = int(np.ceil(annotations[-1][0] + annotations[-1][1]))
    data = 20 * np.random.default_rng(seed).standard_normal((len(names), seconds * sfreq))
    signals = [
        edfio.EdfSignal(x, sfreq, label=file_label(name), physical_dimension="uV", physical_range=(-300, 300))
        for name, x in zip(names, data, strict=True)
    ]
    noted = [edfio.EdfAnnotation(onset, duration, text) for onset, duration, text in annotations]
    file.parent.mkdir(exist_ok=True)
    edfio.Edf(signals, annotations=noted).write(file)
    return data, annotations


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Six runs of four trials: folder, files, samples of each run and annotations of each run."""
    root = tmp_path_factory.mktemp("data")
    folder = root / "eegmmidb"
    folder.mkdir()
    files = [folder / "S001" / f"S001R{run:02d}.edf" for run in physionet.RUNS]
    content = [write_run(file, seed) for seed, file in enumerate(files)]
    return SimpleNamespace(root=root, files=files, data=[c[0] for c in content], marks=[c[1] for c in content])


@pytest.fixture(scope="module")
def trials(written):
    return physionet.read_edf(written.files, 1)


def test_trials_are_those_with_imagery_and_their_class_depends_on_the_run(trials):
    assert trials.shape == (24, 64, 880)
    assert (trials.sfreq, trials.tmin, trials.unit, trials.dataset) == (160, -0.5, "µV", "physionet-mi")
    hands, feet = ["left fist", "right fist"], ["both fists", "both feet"]
    for run in ("4", "8", "12"):
        assert trials.select(run=run).labels.tolist() == [hands[0], hands[1], hands[1], hands[0]]
    for run in ("6", "10", "14"):
        assert trials.select(run=run).labels.tolist() == [feet[0], feet[1], feet[1], feet[0]]
    assert set(trials.session) == {"1"}


def test_samples_are_those_around_the_annotation(trials, written):
    onset = round((2 * REST + IMAGERY) * 160)  # the second trial
    np.testing.assert_allclose(trials.X[1], written.data[0][:, onset - 80 : onset + 800], atol=0.01)


def test_margin_behind_the_last_trial_is_repeated(written, trials):
    last, onset = trials.X[3], round((4 * REST + 3 * IMAGERY) * 160)
    there = written.data[0].shape[1] - (onset - 80)
    assert 4 * 160 + 80 < there < 880
    np.testing.assert_allclose(last[:, :there], written.data[0][:, onset - 80 :], atol=0.01)
    assert np.ptp(last[:, there:], axis=1).max() == 0


def test_preset_gives_the_input_of_the_network_for_motor_imagery(trials):
    found = physionet.DATASET.source("edf").preprocessing(trials)
    assert found.shape == (24, 22, 438)
    assert found.ch_names == bcic2a.CHANNELS
    assert found.sfreq == 125
    assert found.times[0] == pytest.approx(0.492)


def test_protocol_leaves_out_rounds_that_have_all_classes(trials):
    splits = list(physionet.DATASET.protocol.splits(trials))
    assert [sorted(set(trials.run[split.test])) for split in splits] == [["4", "6"], ["10", "8"], ["12", "14"]]
    for split in splits:
        assert set(trials.y[split.test]) == set(trials.y[split.train]) == {0, 1, 2, 3}


def test_files_are_found_by_their_names_and_missing_ones_are_listed(written):
    source, files = find_source(physionet.DATASET, 1, written.root, None)
    assert source.name == "edf"
    assert list(files) == written.files
    with pytest.raises(MissingFileError, match=r"S109R04\.edf[\s\S]*physionet\.org/content/eegmmidb"):
        find_source(physionet.DATASET, 109, written.root, None)


def test_every_label_of_the_files_becomes_a_name_of_the_montage():
    assert [physionet.channel_name(file_label(name)) for name in physionet.CHANNELS] == list(physionet.CHANNELS)


# ---- compact files


def compact(trials, file: Path, **changes) -> Path:
    """Write trials of EDF files as the compact files have them: 22 channels, whole µV, to 4 s after the cue."""
    rounds = {run: number for number, runs in enumerate(physionet.ROUNDS, start=1) for run in runs}
    picked = trials.select(channels=bcic2a.CHANNELS)
    arrays = {
        "X": np.round(picked.X[:, :, :720]).astype(np.int16),
        "y": picked.y,
        "class_names": np.array(["left", "right", "fists", "feet"]),
        "ch_names": np.array(bcic2a.CHANNELS),
        "sfreq": np.array(160.0),
        "tmin": np.array(-0.5),
        "unit": np.array("µV"),
        "session": np.array([rounds[run] for run in picked.run.tolist()]),
        "subject": picked.subject,
    }
    file.parent.mkdir(exist_ok=True)
    np.savez(file, **{**arrays, **changes})
    return file


def test_compact_file_gives_the_trials_of_the_edf_files(trials, tmp_path):
    found = physionet.read_compact([compact(trials, tmp_path / "S001.npz")], 1)
    expected = trials.select(channels=bcic2a.CHANNELS)
    np.testing.assert_allclose(found.X, expected.X[:, :, :720], atol=0.51)
    for name in ("y", "session", "run", "subject"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.frame == expected.frame
    assert (found.class_names, found.dataset) == (expected.class_names, expected.dataset)


def test_presets_of_both_sources_agree_up_to_the_end_of_the_window(trials, tmp_path):
    """The filter has no margin at the end of compact files: there it differs, and before it hardly does."""
    found = physionet.PREPROCESSING(physionet.read_compact([compact(trials, tmp_path / "S001.npz")], 1))
    expected = physionet.PREPROCESSING(trials)
    assert_agree_up_to_the_end(found, expected)
    assert (found.frame, found.steps) == (expected.frame, expected.steps)  # can be concatenated


def assert_agree_up_to_the_end(found, expected):
    assert found.shape == expected.shape
    early, error = slice(0, -32), found.X - expected.X  # to 3.74 s
    assert np.linalg.norm(error[..., early]) < 0.03 * np.linalg.norm(expected.X[..., early])
    assert np.linalg.norm(error) < 0.25 * np.linalg.norm(expected.X)


def test_each_source_has_its_folder(written, trials, tmp_path):
    (tmp_path / "eegmmidb").symlink_to(written.root / "eegmmidb")
    compact(trials.replace(subject=2), tmp_path / "physionet-mi" / "S002.npz")
    assert subjects_here(physionet.DATASET, tmp_path) == [1, 2]
    both = load("physionet-mi", [1, 2], root=tmp_path)
    assert both.shape == (48, 22, 438)
    assert len(physionet.DATASET.protocol.splits(both)) == 6
    with pytest.raises(
        MissingFileError, match=r"eegmmidb and .*physionet-mi\.[\s\S]*compact: .*physionet-mi/S003\.npz"
    ):
        load("physionet-mi", 3, root=tmp_path)


COMPACT_DAMAGES = {
    "channels": ({"ch_names": np.array(bcic2a.CHANNELS[::-1])}, "found ch_names POz, .*; expected Fz, FC3"),
    "start": ({"tmin": np.array(0.0)}, "found tmin 0 s; expected -0.5 s after the cue"),
    "rounds": ({"session": np.ones(24, dtype=int)}, "found the sessions 1; expected the sessions 1, 2, 3"),
    "class missing": ({"y": np.repeat([0, 1, 2, 3], 6)}, "found no trial of both fists in run 6; expected"),
    "subject": ({"subject": np.full(24, 2)}, "found trials of subject 2; expected trials of subject 1"),
    "rate": ({"sfreq": np.array(128.0)}, "found 128 Hz; expected 160 Hz"),
}


@pytest.mark.parametrize("case", COMPACT_DAMAGES)
def test_wrong_compact_file_is_named_with_what_is_wrong(case, trials, tmp_path):
    changes, message = COMPACT_DAMAGES[case]
    with pytest.raises(DataError, match=rf"S001\.npz: {message}"):
        physionet.read_compact([compact(trials, tmp_path / "S001.npz", **changes)], 1)


# ---- left and right fist


def test_left_and_right_fist_are_read_from_three_runs(written, trials, tmp_path):
    for run in (6, 10, 14):
        assert f"S001R{run:02d}.edf" not in str(physionet.LEFT_RIGHT.source("edf").files(1))
    found = load("physionet-lr", 1, root=written.root, preprocessing=None)
    expected = trials.select(classes=["left fist", "right fist"])
    np.testing.assert_array_equal(found.X, expected.X)
    for name in ("y", "run", "class_names", "frame"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.dataset == "physionet-lr"
    splits = physionet.LEFT_RIGHT.protocol.splits(found)
    assert [set(found.run[split.test]) for split in splits] == [{"4"}, {"8"}, {"12"}]
    again = physionet.read_left_right_compact([compact(trials, tmp_path / "S001.npz")], 1)
    assert (again.run.tolist(), again.y.tolist()) == (found.run.tolist(), found.y.tolist())


# ---- other timing: noticed, and told


def test_other_sampling_rate_is_told_and_the_window_stays(tmp_path):
    files = [tmp_path / f"S088R{run:02d}.edf" for run in physionet.RUNS]
    for seed, file in enumerate(files):
        write_run(file, seed, sfreq=128, annotations=marks("12", rest=1.375, imagery=5.125))
    with pytest.warns(TimingWarning, match=r"subject 88: recorded at 128 Hz instead of 160 Hz"):
        found = physionet.read_edf(files, 88)
    assert found.shape == (12, 64, 704)
    assert found.sfreq == 128
    assert physionet.PREPROCESSING(found).shape == (12, 22, 438)


@pytest.mark.parametrize(
    "annotations, seconds, left, shortest",
    [
        ([*marks("1212"), (34.0, 1.4, "T1")], 40, 4, "1.40"),  # imagery ends early
        ([*marks("1212"), (33.5, 4.1, "T1")], 36, 4, "2.50"),  # the recording does
    ],
)
def test_trial_shorter_than_the_window_is_left_out_and_told(written, tmp_path, annotations, seconds, left, shortest):
    file = tmp_path / "S001R04.edf"
    write_run(file, 0, annotations=annotations, seconds=seconds)
    with pytest.warns(TimingWarning, match=rf"S001R04\.edf: 1 of 5 trials .* the shortest {shortest} s"):
        found = physionet.read_edf([file, *written.files[1:]], 1)
    assert len(found.select(run="4")) == left


# ---- damaged files: each writes another S001R06.edf


def _truncated(file):
    write_run(file, 1)
    file.write_bytes(file.read_bytes()[:-5000])


def _no_header(file):
    file.write_text("Too many requests. " * 50)


def _empty(file):
    file.write_bytes(b"")


def _absent(file):
    pass


def _without_names(file):
    """No electrode has a name."""
    write_run(file, 1)
    content = bytearray(file.read_bytes())
    content[256 : 256 + 16 * 64] = b" " * 16 * 64
    file.write_bytes(content)


DAMAGES = {
    "absent": (_absent, r"S001R06\.edf does not exist"),
    "truncated": (_truncated, r"S001R06\.edf: found \d+ bytes, .* s; expected \d+, \d+ records, as its header says"),
    "empty": (_empty, r"S001R06\.edf: found 0 bytes; expected an EDF or BDF file"),
    "not an EDF file": (_no_header, r"S001R06\.edf: found 950 bytes that begin with b'Too many'; expected an EDF"),
    "channels without names": (
        _without_names,
        r"S001R06\.edf: found 64 of 64 channels without a name; expected",
    ),
    "channel missing": (
        lambda file: write_run(file, 1, names=tuple(n for n in physionet.CHANNELS if n not in ("Cz", "Iz"))),
        r"S001R06\.edf: found 62 channels without 2 electrodes: Cz, Iz; expected all 64",
    ),
    "unknown annotation": (
        lambda file: write_run(file, 1, annotations=[*marks("1212"), (10.0, 1.0, "T3")], seconds=34),
        r"S001R06\.edf: found an annotation 'T3'; expected T0, T1 or T2",
    ),
    "class empty": (
        lambda file: write_run(file, 1, order="1111"),
        r"S001R06\.edf: found no trial of both feet; expected trials",
    ),
    "no trial": (
        lambda file: write_run(file, 1, annotations=[(0.0, 4.0, "T0")], seconds=9),
        r"S001R06\.edf: found no trial of both fists and both feet; expected",
    ),
    "other sampling rate than the other runs": (
        lambda file: write_run(file, 1, sfreq=128),
        r"S001R06\.edf: found 128 Hz; expected 160 Hz, as in S001R04\.edf",
    ),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damaged_file_is_named_with_what_is_wrong(case, written, tmp_path):
    damage, message = DAMAGES[case]
    file = tmp_path / "S001R06.edf"
    damage(file)
    with pytest.raises((DataError, MissingFileError), match=message):
        physionet.read_edf([written.files[0], file, *written.files[2:]], 1)


# ---- MOABB, in the form of an object with its method


def as_moabb(written) -> SimpleNamespace:
    """What PhysionetMI gives: runs 4, 8, 12, 6, 10 and 14 in V, with events 1 (rest) to 5 in a channel of their own."""
    import mne

    info = mne.create_info([*physionet.CHANNELS, "STIM"], 160, ["eeg"] * 64 + ["stim"])
    runs = {}
    for number, place in enumerate((0, 2, 4, 1, 3, 5)):
        stim = np.zeros(written.data[place].shape[1])
        for onset, _, text in written.marks[place]:
            stim[round(onset * 160)] = {"T0": 1, "T1": 2 if number < 3 else 4, "T2": 3 if number < 3 else 5}[text]
        runs[str(number)] = mne.io.RawArray(np.vstack([written.data[place] * 1e-6, stim]), info, verbose="ERROR")
    return SimpleNamespace(get_data=lambda subjects: {s: {"0": runs} for s in subjects}, runs=runs)


def test_moabb_gives_the_trials_of_the_files(written, trials):
    found = physionet.from_moabb(as_moabb(written), 1)
    np.testing.assert_allclose(found.X, trials.X, atol=0.01)
    for name in ("y", "session", "run", "subject"):
        np.testing.assert_array_equal(getattr(found, name), getattr(trials, name))
    assert found.frame == trials.frame


def test_what_is_missing_in_moabb_is_named(written):
    dataset = as_moabb(written)
    dataset.runs["1"], kept = dataset.runs["3"], dataset.runs["1"]
    with pytest.raises(DataError, match=r"PhysionetMI, subject 1, run 8: found event 4; expected 1, 2 or 3"):
        physionet.from_moabb(dataset, 1)
    dataset.runs["1"] = kept
    del dataset.runs["5"]
    with pytest.raises(DataError, match=r"subject 1: found 5 runs; expected 6"):
        physionet.from_moabb(dataset, 1)


# ---- real recordings


def real(subject: int):
    folder = recordings.folder() / "eegmmidb"
    if not (folder / f"S{subject:03d}").is_dir():
        pytest.skip(
            f"{folder} has no S{subject:03d}; put the EDF files of PhysioNet's eegmmidb into GBWATT_DATA/eegmmidb"
        )
    _, files = find_source(physionet.DATASET, subject, recordings.folder(), "edf")
    return physionet.read_edf(files, subject)


@pytest.mark.parametrize("subject", [1, 2, 3, 7, 49])
def test_real_recordings_have_about_45_trials_a_task(subject):
    with warnings.catch_warnings():
        warnings.simplefilter("error", TimingWarning)
        trials = real(subject)
    counts = Counter(trials.labels.tolist())
    assert counts["left fist"] + counts["right fist"] == 45
    assert counts["both fists"] + counts["both feet"] == 45
    assert min(counts.values()) >= 20
    assert trials.shape == (90, 64, 880)
    assert 5 < np.median(trials.X.std(axis=2)) < 200  # µV
    assert physionet.PREPROCESSING(trials[:3]).shape == (3, 22, 438)


def test_real_recordings_cut_like_compact_files_agree_with_them_up_to_the_end(tmp_path):
    trials = real(1)
    found = physionet.read_compact([compact(trials, tmp_path / "S001.npz")], 1)
    assert_agree_up_to_the_end(physionet.PREPROCESSING(found), physionet.PREPROCESSING(trials))


@pytest.mark.parametrize("subject", [23, 71])
def test_real_compact_files_have_about_45_trials_a_task(subject):
    trials = recordings.real("physionet-mi", subject, source="compact")
    counts = Counter(trials.labels.tolist())
    assert counts["left fist"] + counts["right fist"] == pytest.approx(45, abs=2)
    assert counts["both fists"] + counts["both feet"] == pytest.approx(45, abs=2)
    assert trials.shape[1:] == (22, 438)
    assert 3 < np.median(trials.X.std(axis=2)) < 100  # µV, filtered
    assert len(recordings.real("physionet-lr", subject, source="compact")) == pytest.approx(45, abs=2)


def test_real_recordings_of_subject_88_are_noticed():
    with pytest.warns(TimingWarning, match="subject 88: recorded at 128 Hz"):
        trials = real(88)
    assert trials.shape == (114, 64, 704)
    assert physionet.PREPROCESSING(trials[:3]).shape == (3, 22, 438)


def test_all_electrodes_have_a_place_in_the_montage():
    import mne

    places = set(mne.channels.make_standard_montage(montage_name()).ch_names)
    assert set(physionet.CHANNELS) <= places
    assert set(bcic2a.CHANNELS) <= set(physionet.CHANNELS)
    assert len(set(physionet.CHANNELS)) == 64
