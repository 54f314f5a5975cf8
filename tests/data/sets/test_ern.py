"""BCI-ERN: files in the layouts of the challenge and of the papers, written here; the recordings are not at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io

from gbwatt.data.datasets import find_source
from gbwatt.data.montage import montage_name
from gbwatt.data.sets import ern
from gbwatt.errors import DataError, MissingFileError
from tests.data.sets.margins import error_of_cutting_first

COUNTS = (60, 60, 60, 60, 100)
OFFICIAL = [name if name != "PO8" else "P08" for name in ern.CHANNELS]  # with a zero
SPACING, LEAD = 60, 300  # samples between feedbacks and before the first
PEAK = 40  # samples after the feedback, 0.2 s: the planted deflection of errors at FCz
FIRST = np.array([1, 0, 1, 1, 0])  # labels go round


def labels_of(session: int) -> np.ndarray:
    return np.resize(np.roll(FIRST, session), COUNTS[session - 1])


def session_table(session: int) -> pd.DataFrame:
    """Whole microvolts, different in each channel; FCz is -80 µV around 0.2 s after an error."""
    labels = labels_of(session)
    onsets = LEAD + SPACING * np.arange(len(labels))
    n = int(onsets[-1]) + 400
    values = np.random.default_rng(session).integers(-20, 20, (n, 58))
    values[:, OFFICIAL.index("Fz")] = np.arange(n)  # counts samples
    bump = np.round(-80 * np.hanning(21)).astype(int)
    for onset in onsets[labels == 0]:
        values[onset + PEAK - 10 : onset + PEAK + 11, OFFICIAL.index("FCz")] += bump
    table = pd.DataFrame(values, columns=[*OFFICIAL, "EOG", "FeedBackEvent"])
    table["FeedBackEvent"] = np.isin(np.arange(n), onsets).astype(int)
    table.insert(0, "Time", np.round(np.arange(n) / 200, 3))
    return table


def label_table(subjects: tuple[int, ...]) -> pd.DataFrame:
    rows = [
        (f"S{subject:02d}_Sess{session:02d}_FB{number:03d}", label)
        for subject in subjects
        for session in range(1, 6)
        for number, label in enumerate(labels_of(session), start=1)
    ]
    return pd.DataFrame(rows, columns=["IdFeedBack", "Prediction"])


@pytest.fixture(scope="module")
def tables() -> dict[int, pd.DataFrame]:
    return {session: session_table(session) for session in range(1, 6)}


@pytest.fixture(scope="module")
def root(tmp_path_factory, tables) -> Path:
    """The challenge as downloaded: subject 2 of the training set, subject 3 of the test set."""
    root = tmp_path_factory.mktemp("recordings")
    train, test = (root / "bci-ern" / part for part in ("train", "test"))
    train.mkdir(parents=True)
    test.mkdir()
    for session, table in tables.items():
        file = train / f"Data_S02_Sess{session:02d}.csv"
        table.to_csv(file, index=False)
        (test / file.name.replace("S02", "S03")).hardlink_to(file)
    label_table((2, 6)).to_csv(root / "bci-ern" / "TrainLabels.csv", index=False)
    labels = label_table(ern.TEST)["Prediction"].to_numpy(copy=True)
    labels[340:680] = 1 - labels[340:680]  # of subject 3, the second
    pd.Series(labels).to_csv(root / "bci-ern" / "true_labels.csv", index=False, header=False)
    return root


@pytest.fixture(scope="module")
def files(root) -> list[Path]:
    _, paths = find_source(ern.DATASET, 2, root, "csv")
    return list(paths)


@pytest.fixture(scope="module")
def trials(files):
    return ern.read_csv(files, 2)


# ---- the files of the challenge


def test_files_are_found_in_the_folders_of_the_challenge(root, files):
    assert [file.name for file in files] == [*(f"Data_S02_Sess0{s}.csv" for s in range(1, 6)), "TrainLabels.csv"]
    assert files[0].parent.name == "train"
    _, paths = find_source(ern.DATASET, 3, root, "csv")
    assert paths[0] == root / "bci-ern" / "test" / "Data_S03_Sess01.csv"
    assert paths[-1] == root / "bci-ern" / "true_labels.csv"


def test_csv_files_give_all_feedbacks_with_margins_labels_and_sessions(trials):
    assert trials.shape == (340, 56, 1050)
    assert (trials.sfreq, trials.tmin, trials.unit, trials.dataset) == (200.0, -2.0, "µV", "bci-ern")
    assert trials.ch_names == ern.CHANNELS
    np.testing.assert_array_equal(trials.session, np.repeat(["1", "2", "3", "4", "5"], COUNTS))
    np.testing.assert_array_equal(trials.run, trials.session)
    np.testing.assert_array_equal(trials.y, np.concatenate([labels_of(s) for s in range(1, 6)]))
    assert trials.class_names == ("error", "correct")
    (split,) = ern.DATASET.protocol.splits(trials)
    assert (len(split.train), len(split.valid), len(split.test)) == (180, 60, 100)


def test_csv_trials_are_cut_at_the_feedback_and_keep_their_microvolts(trials, tables):
    at_zero = int(np.flatnonzero(np.isclose(trials.times, 0.0))[0])
    counted = trials.X[:60, trials.ch_names.index("Fz"), at_zero]
    np.testing.assert_array_equal(counted, LEAD + SPACING * np.arange(60))
    onset = LEAD + SPACING * 7
    expected = tables[1][OFFICIAL].to_numpy()[onset - 400 : onset + 650].T
    np.testing.assert_array_equal(trials.X[7], expected)


def test_preset_of_csv_files_gives_the_trials_of_the_paper_with_the_planted_deflection(trials):
    ready = ern.DATASET.source("csv").preprocessing(trials[:60])
    assert ready.shape == (60, 56, 160)
    assert (ready.sfreq, ready.tmin) == (128.0, 0.0)
    difference = ready.X[ready.y == 0].mean(axis=0) - ready.X[ready.y == 1].mean(axis=0)
    early = ready.times < 0.4  # before the next feedback
    channel, place = np.unravel_index(difference[:, early].argmin(), (56, int(early.sum())))
    assert ready.ch_names[channel] == "FCz"
    assert ready.times[place] == pytest.approx(PEAK / 200, abs=0.01)


def test_margins_are_long_enough_for_the_filter_of_the_preset():
    assert error_of_cutting_first(ern, "csv") < 0.01


def test_channels_may_be_spelt_with_a_letter_and_in_any_order(tmp_path, files, tables, trials):
    table = tables[1].rename(columns={"P08": "PO8"})
    table = table[["Time", *reversed(table.columns[1:])]]
    table.to_csv(tmp_path / "Data_S02_Sess01.csv", index=False)
    other = ern.read_csv([tmp_path / "Data_S02_Sess01.csv", *files[1:]], 2)
    np.testing.assert_array_equal(other.X, trials.X)


def test_labels_of_the_test_set_are_read_without_names_in_the_order_of_subjects(root, trials):
    _, paths = find_source(ern.DATASET, 3, root, "csv")
    found = ern.read_csv(paths, 3)
    np.testing.assert_array_equal(found.y, 1 - trials.y)  # the second subject's were turned round
    assert set(found.subject) == {3}


def test_labels_of_the_test_set_are_read_with_names(root, tmp_path, trials):
    _, paths = find_source(ern.DATASET, 3, root, "csv")
    label_table(ern.TEST).to_csv(tmp_path / "true_labels.csv", index=False)
    found = ern.read_csv([*paths[:-1], tmp_path / "true_labels.csv"], 3)
    np.testing.assert_array_equal(found.y, trials.y)


def test_a_column_of_labels_alone_may_have_its_name_above(root, tmp_path):
    _, paths = find_source(ern.DATASET, 3, root, "csv")
    (tmp_path / "true_labels.csv").write_text("Prediction\n" + paths[-1].read_text())
    assert ern._read_labels(tmp_path / "true_labels.csv", 3) == ern._read_labels(paths[-1], 3)


def test_a_session_without_errors_is_no_damage(tmp_path, files):
    labels = label_table((2,))
    labels.loc[labels["IdFeedBack"].str.contains("Sess03"), "Prediction"] = 1
    labels.to_csv(tmp_path / "TrainLabels.csv", index=False)
    assert ern.read_csv([*files[:-1], tmp_path / "TrainLabels.csv"], 2).counts()["3"] == {"error": 0, "correct": 60}


# ---- damage


def _drop(column):
    return lambda table: table.drop(columns=column)


def _set(row, column, value):
    def change(table):
        table = table.astype({column: object})
        table.loc[row, column] = value
        return table

    return change


@pytest.mark.parametrize(
    "damage, found",
    [
        (_drop("FCz"), "57 columns without FCz; expected Time, 56 channels, FeedBackEvent"),
        (_drop("FeedBackEvent"), "columns without FeedBackEvent"),
        (lambda table: table.iloc[:3000], "45 feedbacks; expected 60 in session 1"),
        (lambda table: table.iloc[: LEAD + SPACING * 59 + 100], "a recording of 19.70 s"),
        (lambda table: table.iloc[:1], "1 samples; expected a recording at 200 Hz"),
        (lambda table: table.assign(FeedBackEvent=0), "0 feedbacks"),
        (lambda table: table.assign(Time=table["Time"] / 3), "s apart in column Time; expected 0.005 s: 200 Hz"),
        (lambda table: table.drop(index=range(750, 800)), "0.255 s from row 749 to row 750 .* Rows may be missing"),
        (lambda table: table.drop(index=4000), "0.01 s from row 3999 to row 4000 in column Time; 1 of"),
        (lambda table: table.iloc[[*range(99), *range(98, len(table))]], "0 s from row 98 to row 99"),
        (_set(77, "Time", np.nan), "nan s from row 76 to row 77 in column Time; 2 of"),
        (_set(500, "Cz", np.nan), "first in trial 0, channel Cz"),
        (_set(500, "Cz", "broken"), "bytes that pandas cannot read .*expected a table of numbers"),
        (_set(LEAD, "FeedBackEvent", 2), "2 as FeedBackEvent in row 300; expected 0 or 1"),
    ],
)
def test_damaged_recording_is_refused_with_its_name_and_the_finding(tmp_path, files, tables, damage, found):
    damage(tables[1].copy()).to_csv(tmp_path / "Data_S02_Sess01.csv", index=False)
    with pytest.raises(DataError, match=r"Data_S02_Sess01\.csv: found .*" + found):
        ern.read_csv([tmp_path / "Data_S02_Sess01.csv", *files[1:]], 2)


@pytest.mark.parametrize("size", [0, 100, 400_000])
def test_truncated_recording_is_refused(tmp_path, files, size):
    file = tmp_path / "Data_S02_Sess01.csv"
    file.write_bytes(files[0].read_bytes()[:size])
    with pytest.raises(DataError, match=r"Data_S02_Sess01\.csv: found"):
        ern.read_csv([file, *files[1:]], 2)


@pytest.mark.parametrize(
    "damage, found",
    [
        (
            lambda table: table.drop(index=5),
            "no label for S02_Sess01_FB006; .*labels of subject 2 are in TrainLabels.csv",
        ),
        (_set(5, "Prediction", 2), "2.0 as label of trial 5; expected one of 0, 1"),
        (_set(5, "Prediction", "yes"), "a label that is not a number"),
        (lambda table: table.assign(Prediction=1), "no trial with label 0"),
        (lambda table: table.rename(columns={"Prediction": "Answer"}), "begins with .*Answer"),
        (lambda table: table[["Prediction"]].iloc[1:], "339 labels; expected 3400, of the whole test set"),
        (
            lambda table: pd.concat([table, table.iloc[[7]]]),
            "S02_Sess01_FB008 in more than one row; expected one label for each feedback",
        ),
    ],
)
def test_damaged_labels_are_refused_with_the_name_of_the_file_and_the_finding(tmp_path, files, damage, found):
    damage(label_table((2,))).to_csv(tmp_path / "TrainLabels.csv", index=False)
    with pytest.raises(DataError, match=r"TrainLabels\.csv: found .*" + found):
        ern.read_csv([*files[:-1], tmp_path / "TrainLabels.csv"], 2)


def test_labels_without_names_must_be_those_of_the_whole_test_set(tmp_path, root):
    _, paths = find_source(ern.DATASET, 3, root, "csv")
    pd.Series([0, 1] * 170).to_csv(tmp_path / "true_labels.csv", index=False, header=False)
    with pytest.raises(DataError, match=r"340 labels; expected 3400, of the whole test set"):
        ern.read_csv([*paths[:-1], tmp_path / "true_labels.csv"], 3)


def test_subject_of_the_test_set_has_no_label_in_the_training_file(root):
    _, paths = find_source(ern.DATASET, 3, root, "csv")
    with pytest.raises(DataError, match=r"no label for S03_Sess01_FB001.*subject 3 are in true_labels\.csv"):
        ern.read_csv([*paths[:-1], root / "bci-ern" / "TrainLabels.csv"], 3)


def test_missing_labels_are_named_with_the_place_where_to_get_them(tmp_path, root):
    for file in (root / "bci-ern" / "test").iterdir():
        (tmp_path / file.name).hardlink_to(file)
    with pytest.raises(MissingFileError, match=r"(?s)true_labels\.csv.*kaggle\.com/c/inria-bci-challenge"):
        find_source(ern.DATASET, 3, tmp_path, "csv")


def test_subject_that_does_not_exist_has_no_files(root):
    with pytest.raises(MissingFileError, match=r"(?s)subject 27.*Data_S27_Sess01\.csv.*Data_S27_Sess\.mat"):
        find_source(ern.DATASET, 27, root, None)


def test_missing_files_are_named(tmp_path, files):
    for absent in (0, -1):
        given = list(files)
        given[absent] = tmp_path / files[absent].name
        with pytest.raises(MissingFileError, match=files[absent].name):
            ern.read_csv(given, 2)


# ---- processed files


def processed() -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((340, 56, 160))
    return {"x_test": x, "y_test": np.concatenate([labels_of(s) for s in range(1, 6)])[None].astype(float)}


def test_processed_file_gives_the_same_sessions_as_the_recordings(tmp_path, trials):
    content = processed()
    scipy.io.savemat(tmp_path / "Data_S02_Sess.mat", content)
    found = ern.read_processed([tmp_path / "Data_S02_Sess.mat"], 2)
    assert found.shape == (340, 56, 160)
    assert (found.sfreq, found.tmin) == (128.0, 0.0)
    np.testing.assert_allclose(found.X, content["x_test"], rtol=1e-6)
    for name in ("y", "session", "run", "subject"):
        np.testing.assert_array_equal(getattr(found, name), getattr(trials, name))


@pytest.mark.parametrize(
    "change, found",
    [
        ({"x_test": None}, "also x_test"),
        ({"x_test": np.zeros((340, 56, 161))}, r"x_test of shape \(340, 56, 161\); expected \(340, 56, 160\)"),
        ({"x_test": np.full((340, 56, 160), np.nan)}, "in 340 of 340 trials, first in trial 0, channel Fp1"),
        ({"y_test": np.zeros(300)}, "300 labels; expected 340"),
        ({"y_test": np.zeros(340)}, "no trial with label 1"),
        ({"y_test": np.full(340, -1.0)}, "-1.0 as label of trial 0"),
    ],
)
def test_damaged_processed_file_is_refused_with_its_name_and_the_finding(tmp_path, change, found):
    content = {name: value for name, value in {**processed(), **change}.items() if value is not None}
    scipy.io.savemat(tmp_path / "Data_S02_Sess.mat", content)
    with pytest.raises(DataError, match=r"Data_S02_Sess\.mat: found .*" + found):
        ern.read_processed([tmp_path / "Data_S02_Sess.mat"], 2)


# ---- what is known of the data set


def test_subjects_are_26_of_which_16_have_labels():
    assert sorted((*ern.DATASET.subjects, *ern.DATASET.held_back)) == list(range(1, 27))
    assert (len(ern.LABELLED), len(ern.TEST)) == (16, 10)
    assert not set(ern.LABELLED) & set(ern.TEST)


def test_all_channels_have_a_place_on_the_head():
    from mne.channels import make_standard_montage

    assert len(set(ern.CHANNELS)) == 56
    assert set(ern.CHANNELS) <= set(make_standard_montage(montage_name()).ch_names)
