"""MAMEM-SSVEP-II: processed and raw files in the official layout, written here, and the real processed ones."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from gbwatt.data.datasets import find_source
from gbwatt.data.montage import montage_name
from gbwatt.data.sets import mamem
from gbwatt.errors import DataError, MissingFileError, ParameterError
from tests import recordings
from tests.data.sets.margins import error_of_cutting_first

#: Labels of a session as the authors list them.
SEQUENCE = [4, 2, 3, 5, 1, 2, 5, 4, 2, 3, 1, 5, 4, 3, 2, 4, 1, 2, 5, 3, 4, 1, 3, 1, 3]
ROWS = [int(name[1:]) - 1 for name in mamem.ELECTRODES.values()]
REST = 2.5  # s after each stimulation
RAMP = 20_000  # PO8 counts samples up to this


# ---- official layouts


def processed(seed: int = 0) -> dict[str, np.ndarray]:
    labels = np.tile(np.repeat(np.array(SEQUENCE) - 1, 4), 5)
    times = np.arange(125) / 125
    sines = np.sin(2 * np.pi * np.array(mamem.FREQUENCIES)[labels][:, None, None] * times)
    noise = np.random.default_rng(seed).standard_normal((500, 8, 125))
    return {"x_test": 2 * sines + noise, "y_test": labels[:, None].astype(float)}


def flashes(labels: list[int], frequencies: list[float] | None = None) -> tuple[np.ndarray, list[float]]:
    """Cells (4, n) of DIN_1, and the onsets in s; some flashes before the first stimulation belong to none."""
    onsets = [4.0 + number * (5.0 + REST) for number in range(len(labels))]
    rates = frequencies or [mamem.FREQUENCIES[label - 1] for label in labels]
    times = [np.arange(5) / 24] + [t + np.arange(0, 5, 1 / (2 * f)) for t, f in zip(onsets, rates, strict=True)]
    cells = [("DIN1", round(7e4 + 1000 * t), 0, round(t * 250) + 1) for t in np.concatenate(times)]
    table = np.empty((4, len(cells)), dtype=object)
    table[:] = np.array(cells, dtype=object).T
    return table, onsets


def raw_session(labels: list[int], seed: int = 0) -> dict[str, np.ndarray]:
    """Variables of T001a.mat: a sine at the frequency of each label, larger in later channels of the eight."""
    table, onsets = flashes(labels)
    n = round((onsets[-1] + 5 + REST) * 250)
    rng = np.random.default_rng(seed)
    eeg = np.zeros((257, n), dtype=np.int16)
    signal = np.zeros(n)
    for label, onset in zip(labels, onsets, strict=True):
        t = np.arange(1250) / 250
        signal[round(onset * 250) : round(onset * 250) + 1250] = np.sin(2 * np.pi * mamem.FREQUENCIES[label - 1] * t)
    for size, row in enumerate(ROWS, start=1):
        eeg[row] = 100 * size * signal + 20 * rng.standard_normal(n)
    eeg[ROWS[4]] = np.arange(n) % RAMP
    cells = np.empty((1, len(labels)), dtype=object)
    cells[0] = labels
    return {"eeg": eeg, "DIN_1": table, "labels": cells}


def write_sessions(folder: Path) -> list[Path]:
    """T001a.mat to T001e.mat; the order of labels is another one in each."""
    files = [folder / name for name in mamem.DATASET.source("raw").files(1)]
    for seed, file in enumerate(files):
        labels = [SEQUENCE[place] for place in np.random.default_rng(seed).permutation(25)]
        scipy.io.savemat(file, raw_session(labels, seed))
    return files


@pytest.fixture(scope="module")
def raw_files(tmp_path_factory) -> list[Path]:
    return write_sessions(tmp_path_factory.mktemp("mamem"))


@pytest.fixture(scope="module")
def session() -> dict[str, np.ndarray]:
    return raw_session(SEQUENCE)


@pytest.fixture
def short(session) -> dict[str, np.ndarray]:
    """A session whose recording ends soon: for what is noticed before anything is cut."""
    return {**session, "eeg": session["eeg"][:, :1000]}


@pytest.fixture(scope="module")
def raw(raw_files):
    return mamem.read_raw(raw_files, 1)


# ---- processed files


def test_processed_file_gives_five_sessions_of_labelled_segments(tmp_path):
    content = processed()
    scipy.io.savemat(tmp_path / "U003.mat", content)
    trials = mamem.read_processed([tmp_path / "U003.mat"], 3)
    assert trials.shape == (500, 8, 125)
    assert (trials.sfreq, trials.tmin, trials.unit, trials.dataset) == (125.0, 0.0, "µV", "mamem-ssvep-ii")
    assert set(trials.subject) == {3}
    np.testing.assert_array_equal(trials.session, np.repeat(["1", "2", "3", "4", "5"], 100))
    np.testing.assert_array_equal(trials.group, np.repeat(np.arange(125), 4))
    np.testing.assert_array_equal(trials.y, content["y_test"].ravel())
    np.testing.assert_allclose(trials.X, content["x_test"], rtol=1e-6)
    assert trials.class_names == ("12 Hz", "10 Hz", "8.57 Hz", "7.5 Hz", "6.66 Hz")


def test_channels_of_processed_files_do_not_pretend_to_be_known():
    assert not set(mamem.PROCESSED_CHANNELS) & set(mamem.ELECTRODES)
    assert len(set(mamem.PROCESSED_CHANNELS)) == 8


def _without(name):
    return lambda content: content.pop(name)


def _change(name, index, value):
    def change(content):
        content[name] = content[name].copy()
        content[name][index] = value

    return change


def _keep(name, index):
    return lambda content: content.update({name: content[name][index]})


@pytest.mark.parametrize(
    "damage, found",
    [
        (_without("y_test"), "also y_test"),
        (_keep("x_test", np.s_[:, :7]), r"x_test of shape \(500, 7, 125\); expected \(500, 8, 125\)"),
        (_keep("x_test", np.s_[:400]), r"x_test of shape \(400, 8, 125\)"),
        (_keep("y_test", np.s_[:499]), "499 labels; expected 500"),
        (_change("y_test", 7, 5), "5.0 as label of trial 7; expected one of 0, 1, 2, 3, 4"),
        (_change("y_test", np.s_[:], 2), "no trial with label 0"),
        (_change("y_test", 9, 4), "labels 2, 4, 2, 2 in rows 8 to 11"),
        (_change("x_test", (3, 1, 5), np.nan), "first in trial 3, channel occipital 2"),
    ],
)
def test_damaged_processed_file_is_refused_with_its_name_and_the_finding(tmp_path, damage, found):
    content = processed()
    damage(content)
    scipy.io.savemat(tmp_path / "U001.mat", content)
    with pytest.raises(DataError, match=r"U001\.mat: found .*" + found):
        mamem.read_processed([tmp_path / "U001.mat"], 1)


def test_truncated_processed_file_is_refused(tmp_path):
    file = tmp_path / "U001.mat"
    scipy.io.savemat(file, processed())
    file.write_bytes(file.read_bytes()[:100_000])
    with pytest.raises(DataError, match=r"U001\.mat: found 100000 bytes"):
        mamem.read_processed([file], 1)


def test_labels_that_became_others_are_noticed(tmp_path):
    content = processed()
    content["y_test"][100:104] = (content["y_test"][100:104] + 1) % 5
    scipy.io.savemat(tmp_path / "U001.mat", content)
    with pytest.raises(DataError, match=r"segments with labels 0 to 4 in session 2; expected 20/20/24/20/16"):
        mamem.read_processed([tmp_path / "U001.mat"], 1)


def test_subject_that_does_not_exist_has_no_files(tmp_path):
    with pytest.raises(MissingFileError, match=r"(?s)subject 12.*T012a\.mat.*U012\.mat.*figshare"):
        find_source(mamem.DATASET, 12, tmp_path, None)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(MissingFileError, match=r"U001\.mat"):
        mamem.read_processed([tmp_path / "U001.mat"], 1)


# ---- raw files


def test_raw_sessions_give_four_seconds_of_each_stimulation_with_margins(raw, raw_files):
    assert raw.shape == (500, 8, 1250)
    assert (raw.sfreq, raw.tmin, raw.unit) == (250.0, -2.0, "µV")
    assert raw.ch_names == ("PO7", "PO3", "POz", "PO4", "PO8", "O1", "Oz", "O2")
    np.testing.assert_array_equal(raw.session, np.repeat(["1", "2", "3", "4", "5"], 100))
    np.testing.assert_array_equal(raw.group, np.repeat(np.arange(125), 4))
    for number, file in enumerate(raw_files):
        labels = [int(cell.item()) for cell in scipy.io.loadmat(file)["labels"].ravel()]
        np.testing.assert_array_equal(raw.y[100 * number : 100 * number + 100], np.repeat(labels, 4) - 1)


def test_raw_segments_begin_at_whole_seconds_after_the_first_flash(raw):
    """PO8 counts samples: at time 0 of segment k it shows the sample of the onset plus k seconds."""
    _, onsets = flashes(SEQUENCE)
    expected = [round((onset + second) * 250) % RAMP for onset in onsets for second in (1, 2, 3, 4)]
    at_zero = int(np.flatnonzero(np.isclose(raw.times, 0.0))[0])
    np.testing.assert_array_equal(raw.X[:100, raw.ch_names.index("PO8"), at_zero], expected)


def test_preset_of_raw_files_gives_the_trials_of_the_paper_at_the_planted_frequencies(raw):
    trials = mamem.DATASET.source("raw").preprocessing(raw)
    assert trials.shape == (500, 8, 125)
    assert (trials.sfreq, trials.tmin) == (125.0, 0.0)
    power = np.stack([_power(trials.X[:, [5, 6, 7]], f, 125.0).mean(axis=1) for f in mamem.FREQUENCIES], axis=1)
    np.testing.assert_array_equal(power.argmax(axis=1), trials.y)


@pytest.mark.parametrize("source", ["raw", "moabb"])
def test_margins_are_long_enough_for_the_filter_of_the_preset(source):
    assert error_of_cutting_first(mamem, source) < 0.01


def test_raw_channels_are_those_of_the_electrodes(raw):
    """The sine was planted in proportion to the place among the eight."""
    sizes = raw.X.std(axis=(0, 2))
    order = np.delete(sizes, raw.ch_names.index("PO8"))
    np.testing.assert_allclose(order / order[0], np.array([1, 2, 3, 4, 6, 7, 8]), rtol=0.1)


def test_electrodes_are_the_nearest_of_the_net_on_the_same_side():
    from mne.channels import make_standard_montage
    from mne.channels.montage import transform_to_head

    def positions(name):
        montage = transform_to_head(make_standard_montage(name))
        return {name: place / np.linalg.norm(place) for name, place in montage.get_positions()["ch_pos"].items()}

    net, standard = positions("GSN-HydroCel-256"), positions(montage_name())
    for name, electrode in mamem.ELECTRODES.items():
        side = 0 if name.endswith("z") else (-1 if int(name[-1]) % 2 else 1)
        same = [e for e, place in net.items() if (0 if abs(place[0]) < 1e-3 else np.sign(place[0])) == side]
        assert max(same, key=lambda e, name=name: net[e] @ standard[name]) == electrode
        assert np.degrees(np.arccos(net[electrode] @ standard[name])) < 7


def test_files_of_the_eleventh_subject_are_numbered_thirteen():
    files = mamem.DATASET.source("raw").files
    assert files(1) == ("T001a.mat", "T001b.mat", "T001c.mat", "T001d.mat", "T001e.mat")
    assert files(11)[0] == "T013a.mat"
    assert mamem.DATASET.source("processed").files(11) == ("U011.mat",)


def test_flashes_of_one_box_only_say_nothing_about_the_labels(tmp_path, raw_files, session):
    """All boxes flicker at once: a sensor on one of them has the same rhythm whatever the target is."""
    content = dict(session)
    content["DIN_1"], _ = flashes(SEQUENCE, [12.0] * 25)
    scipy.io.savemat(tmp_path / "T001a.mat", content)
    trials = mamem.read_raw([tmp_path / "T001a.mat", *raw_files[1:]], 1)
    np.testing.assert_array_equal(trials.y[:100], np.repeat(SEQUENCE, 4) - 1)


def _other_flicker(content):
    rates = [mamem.FREQUENCIES[label - 1] for label in SEQUENCE]
    rates[3], rates[4] = rates[4], rates[3]
    content["DIN_1"], _ = flashes(SEQUENCE, rates)


def _reverse(content):
    content["labels"] = 6 - content["labels"]


@pytest.mark.parametrize(
    "damage, found",
    [
        (_without("labels"), "also labels"),
        (_without("DIN_1"), "also DIN_1"),
        (_keep("eeg", np.s_[:128]), r"eeg of shape \(128, "),
        (_keep("eeg", np.s_[:, :900]), "a recording of 3.60 s"),
        (_keep("DIN_1", np.s_[:3]), r"DIN_1 of shape \(3, "),
        (_keep("DIN_1", np.s_[:, :1500]), "stimulations; expected 25 in a session"),
        (_change("DIN_1", (1, 8), "late"), "a cell of DIN_1 that is not a number"),
        (_keep("labels", np.s_[:, :24]), "24 labels; expected 25"),
        (_change("labels", (0, 2), 6), "6.0 as label of trial 2"),
        (_reverse, "4/5/6/5/5 stimulations with labels 1 to 5; expected 5/5/6/5/4"),
        (_other_flicker, "flashes at 12 Hz in stimulation 3, which has label 5; expected 6.66 Hz"),
    ],
)
def test_damaged_raw_file_is_refused_with_its_name_and_the_finding(tmp_path, raw_files, short, damage, found):
    damage(short)
    scipy.io.savemat(tmp_path / "T001a.mat", short)
    with pytest.raises(DataError, match=r"T001a\.mat: found .*" + found):
        mamem.read_raw([tmp_path / "T001a.mat", *raw_files[1:]], 1)


def test_raw_samples_that_are_not_finite_are_refused(tmp_path, raw_files, session):
    content = dict(session)
    content["eeg"] = content["eeg"].astype(np.float32)
    content["eeg"][ROWS[6], 4 * 250 + 300] = np.inf  # in the first segment
    scipy.io.savemat(tmp_path / "T001a.mat", content)
    with pytest.raises(DataError, match="first in trial 0, channel Oz"):
        mamem.read_raw([tmp_path / "T001a.mat", *raw_files[1:]], 1)


# ---- MOABB, as far as it goes without it


def test_moabb_has_no_eleventh_subject_and_the_error_names_other_sources():
    with pytest.raises(ParameterError, match=r"subject=11.*'processed' or source='raw'"):
        mamem.read_moabb([], 11)


def test_missing_moabb_is_said_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "moabb", None)
    monkeypatch.setitem(sys.modules, "moabb.datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'gbwatt\[moabb\]'"):
        mamem.read_moabb([], 1)


# ---- real recordings


@pytest.fixture(scope="module")
def real():
    folder = recordings.folder() / "mamem"
    files = {subject: folder / f"U{subject:03d}.mat" for subject in mamem.DATASET.subjects}
    missing = [str(file) for file in files.values() if not file.is_file()]
    if missing:
        pytest.skip(f"{missing[0]} is not there; put the processed MAMEM-SSVEP-II files into GBWATT_DATA/mamem")
    return {subject: mamem.read_processed([file], subject) for subject, file in files.items()}


def test_real_files_have_the_shape_and_the_split_of_the_paper(real):
    assert len(real) == 11
    for trials in real.values():
        assert trials.shape == (500, 8, 125)
        (split,) = mamem.DATASET.protocol.splits(trials)
        assert (len(split.train), len(split.valid), len(split.test)) == (300, 100, 100)


def test_real_sessions_have_the_counts_that_the_raw_reader_expects(real):
    expected = {name: 4 * n for name, n in zip(mamem.CLASS_NAMES, mamem.TRIALS, strict=True)}
    for trials in real.values():
        assert trials.counts() == dict.fromkeys(("1", "2", "3", "4", "5"), expected)


def test_real_labels_are_in_the_documented_order_of_stimulations(real):
    """So labels of the processed files are those of the raw ones less one, and mean the frequencies documented."""
    for trials in real.values():
        np.testing.assert_array_equal(trials.y, np.tile(np.repeat(SEQUENCE, 4), 5) - 1)


def _power(x: np.ndarray, frequency: float, sfreq: float) -> np.ndarray:
    """Power (n, n_chans) at a frequency, with a Hann window."""
    n = x.shape[-1]
    wave = np.hanning(n) * np.exp(-2j * np.pi * frequency * np.arange(n) / sfreq)
    return np.abs((x - x.mean(axis=-1, keepdims=True)) @ wave) ** 2


def _contrast(trials) -> np.ndarray:
    """Log power at each frequency and its second harmonic for each class, less the mean over classes (5, 5)."""
    levels = [
        sum(np.log(_power(trials.X, h * f, trials.sfreq).mean(axis=1)) for h in (1, 2)) for f in mamem.FREQUENCIES
    ]
    table = np.stack([[level[trials.y == c].mean() for level in levels] for c in range(5)])
    return table - table.mean(axis=0)


def test_real_spectra_peak_at_the_frequency_of_the_label_in_good_subjects(real):
    for subject in (1, 2, 7, 9, 10, 11):
        table = _contrast(real[subject])
        np.testing.assert_array_equal(table.argmax(axis=1), range(5), err_msg=f"subject {subject}")
        np.testing.assert_array_equal(table.argmax(axis=0), range(5), err_msg=f"subject {subject}")


def test_real_spectra_peak_at_the_frequency_of_the_label_over_all_subjects(real):
    table = np.mean([_contrast(trials) for trials in real.values()], axis=0)
    np.testing.assert_array_equal(table.argmax(axis=1), range(5))
    np.testing.assert_array_equal(table.argmax(axis=0), range(5))
    off = table[~np.eye(5, dtype=bool)]
    assert table.diagonal().min() > 2 * off.max()  # 0.31 against 0.09


def test_real_segments_of_a_group_are_one_stretch_of_recording(real):
    """From the end of a segment to the beginning of the next is an ordinary step within groups, a jump between them."""
    for subject, trials in real.items():
        step = np.abs(np.diff(trials.X, axis=-1)).mean()
        seams = np.abs(trials.X[1:, :, 0] - trials.X[:-1, :, -1]).mean(axis=1) / step
        same = trials.group[1:] == trials.group[:-1]
        assert seams[same].mean() < 1.3, subject
        assert seams[~same].mean() > 1.7, subject
