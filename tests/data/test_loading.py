"""Where files are looked for, and what is loaded of them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.io

from gbwatt.clinical.corpora import cache
from gbwatt.data import DATASETS, MissingFileError, Trials, concatenate, data_root, find_dataset, list_datasets, load
from gbwatt.data.datasets import index_files
from gbwatt.data.formats.npz import write_npz
from gbwatt.data.loading import fingerprint
from gbwatt.data.preprocessing import Crop, Preprocessing, Standardise
from gbwatt.data.sets import bci2b, p300
from gbwatt.data.splits import BySession
from gbwatt.decoding.baselines import FORMER_NAMES
from gbwatt.errors import InputError, MismatchError, ParameterError
from gbwatt.models import entry
from gbwatt.models.presets import TASKS

MAMEM = "mamem-ssvep-ii"


def write(file, scale: float = 1.0):
    """A processed MAMEM file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    y = np.tile(np.repeat([0] * 5 + [1] * 5 + [2] * 6 + [3] * 5 + [4] * 4, 4), 5)
    x = scale * np.random.default_rng(0).standard_normal((500, 8, 125))
    scipy.io.savemat(file, {"x_test": x, "y_test": y[:, None]})


@pytest.fixture
def root(tmp_path):
    write(tmp_path / "mamem" / "U001.mat")
    return tmp_path


# ---- the place


def test_root_is_the_argument_else_the_variable_else_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("GBWATT_DATA", str(tmp_path / "variable"))
    assert data_root(tmp_path) == tmp_path
    assert data_root() == tmp_path / "variable"
    monkeypatch.delenv("GBWATT_DATA")
    assert data_root().name == "gbwatt_data"
    assert data_root().is_absolute()


def test_the_variable_is_used(root, monkeypatch):
    monkeypatch.setenv("GBWATT_DATA", str(root))
    assert load(MAMEM).shape == (500, 8, 125)


@pytest.mark.parametrize("place", ["mamem/U002.mat", "mamem/deep/er/U002.mat", "U002.mat", "some folder/U002.mat"])
def test_files_are_found_in_the_folder_and_below_or_in_the_root(tmp_path, place):
    write(tmp_path / place)
    assert set(load(MAMEM, 2, root=tmp_path).subject) == {2}


def test_a_root_without_the_folder_is_not_searched_to_its_depths(tmp_path):
    write(tmp_path / "a" / "b" / "U002.mat")
    with pytest.raises(MissingFileError):
        load(MAMEM, 2, root=tmp_path)


def test_the_less_deep_file_counts(root):
    write(root / "mamem" / "old" / "U001.mat", scale=100)
    assert index_files(DATASETS[MAMEM], root)["U001.mat"] == root / "mamem" / "U001.mat"
    assert load(MAMEM, root=root).X.std() < 10


def test_a_missing_file_is_named_with_its_place_and_where_to_get_it(root):
    with pytest.raises(MissingFileError) as caught:
        load(MAMEM, 5, root=root)
    message = str(caught.value)
    assert f"{root}/mamem/U005.mat" in message
    assert "GBWATT_DATA" in message
    assert "https://" in message
    assert "source='moabb'" in message
    assert isinstance(caught.value, FileNotFoundError)


def test_an_incomplete_set_of_files_says_how_many_are_there(tmp_path):
    (tmp_path / "bcic-iv-2a").mkdir()
    (tmp_path / "bcic-iv-2a" / "A01T.gdf").touch()
    with pytest.raises(MissingFileError, match=r"A01T\.mat.*\(1 of 4 files exist\)"):
        load("bcic-iv-2a", root=tmp_path)


# ---- the data sets


@pytest.mark.parametrize("name", list_datasets())
def test_every_data_set_is_complete(name):
    dataset = find_dataset(name)
    assert dataset.sources
    assert entry(FORMER_NAMES.get(dataset.pipeline, dataset.pipeline)).classical
    assert dataset.task in TASKS or dataset in (*cache.DATASETS, bci2b.DATASET, *p300.DATASETS)  # no preset fits
    assert sorted(set(dataset.subjects)) == list(dataset.subjects)
    assert not set(dataset.subjects) & set(dataset.held_back)
    if not name.startswith("simulated"):
        assert "https://" in dataset.where
        assert dataset.sources[0].files(dataset.subjects[0])
    assert not dataset.sources[0].downloads


@pytest.mark.parametrize("name", [name for name in DATASETS if name.startswith("simulated")])
def test_simulated_trials_have_the_shape_of_their_task(name):
    trials, task = load(name), TASKS[find_dataset(name).task]
    assert trials.shape[1:] == (task.signal.n_chans, task.signal.n_times)
    assert trials.sfreq == task.signal.sfreq
    assert len(trials.class_names) == task.signal.n_outputs


def test_several_subjects_are_joined(root):
    write(root / "mamem" / "U003.mat")
    both = load(MAMEM, [1, 3], root=root)
    assert np.unique(both.subject).tolist() == [1, 3]
    assert len(np.unique(both.group)) == 250
    assert len(list(BySession().splits(both))) == 2
    assert (both.X == concatenate([load(MAMEM, 1, root=root), load(MAMEM, 3, root=root)]).X).all()


def test_all_subjects_and_none_given():
    everybody = load("simulated-ssvep", "all")
    assert np.unique(everybody.subject).tolist() == list(range(1, 12))
    assert load("simulated-ern").subject[0] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "simulated-ssvp"}, "Did you mean 'simulated-ssvep'"),
        ({"subject": 12}, "subject=12 is not in simulated-ssvep; it has 1-11"),
        ({"subject": []}, "it has 1-11"),
        ({"subject": [1, 2, 1]}, "contains a subject twice"),
        ({"subject": "al"}, "Did you mean 'all'"),
        ({"source": "gdf"}, "source='gdf' is not known; it is one of 'simulated'"),
        ({"preprocessing": "presets"}, "Did you mean 'preset'"),
        ({"dificulty": 1}, "Did you mean 'difficulty'"),
        ({"name": "Simulated-SSVEP"}, "Did you mean 'simulated-ssvep'"),
        ({"subject": 1.0}, "subject=1.0 must be a whole number"),
        ({"preprocessing": Crop(0, 1)}, "preprocessing is a Crop"),
        ({"preprocessing": [Crop(0, 1)]}, "preprocessing is a list"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message):
    with pytest.raises(InputError, match=message):
        load(**{"name": "simulated-ssvep", **arguments})


def test_options_that_a_reader_does_not_have_are_refused(root):
    with pytest.raises(ParameterError, match="has no options, but got seed=1"):
        load(MAMEM, root=root, seed=1)


# ---- preprocessing


def test_preprocessing_is_the_presets_ones_own_or_none():
    steps = Preprocessing(Crop(0.2, 0.6))
    own = load("simulated-ssvep", preprocessing=None).steps  # of the simulation itself
    assert [step["step"] for step in own] == ["simulated band-pass"]
    cropped = load("simulated-ssvep", preprocessing=steps)
    assert cropped.shape == (500, 8, 50)
    assert cropped.steps == (*own, steps.records()[0])


def test_what_is_learnt_from_training_cannot_be_applied_while_loading():
    with pytest.raises(InputError, match="fit"):
        load("simulated-ssvep", preprocessing=Preprocessing(Standardise()))


# ---- files


def test_a_file_of_arrays_is_a_data_set(tmp_path):
    np.savez(tmp_path / "mine.npz", X=np.random.default_rng(0).standard_normal((6, 2, 9)), y=[0, 1] * 3, sfreq=100)
    assert load(tmp_path / "mine.npz").shape == (6, 2, 9)
    assert load(str(tmp_path / "mine.npz")).sfreq == 100
    with pytest.raises(ParameterError, match="no options"):
        load(tmp_path / "mine.npz", tmin=0)


def test_subjects_of_a_file_of_arrays_are_those_in_it(tmp_path):
    np.savez(
        tmp_path / "mine.npz",
        X=np.random.default_rng(0).standard_normal((6, 2, 9)),
        y=[0, 1] * 3,
        sfreq=100,
        subject=[3, 3, 4, 4, 4, 4],
    )
    assert len(load(tmp_path / "mine.npz", "all")) == 6
    assert len(load(tmp_path / "mine.npz", 4)) == 4
    assert len(load(tmp_path / "mine.npz")) == 2
    with pytest.raises(ParameterError, match="it has 3-4"):
        load(tmp_path / "mine.npz", 1)


@pytest.mark.parametrize(
    ("scale", "shape", "message"),
    [
        (1e-6, (6, 2, 50), "implausible for EEG"),
        (1e6, (6, 2, 50), "is the unit 'µV' right"),
        (10, (6, 50, 2), "axes"),
    ],
)
def test_what_does_not_look_like_eeg_gives_a_warning(tmp_path, scale, shape, message):
    x = scale * np.random.default_rng(0).standard_normal(shape)
    np.savez(tmp_path / "mine.npz", X=x, y=[0, 1] * 3, sfreq=100)
    with pytest.warns(UserWarning, match=message):
        load(tmp_path / "mine.npz")


def test_what_is_not_read_from_files_does_not_look_for_any(monkeypatch, tmp_path):
    def refuse(*_: object) -> None:
        raise AssertionError("walked through the folder")

    monkeypatch.setattr("os.walk", refuse)
    assert len(load("simulated-ssvep", root=tmp_path)) == 500
    with pytest.raises(AssertionError, match="walked"):
        load(MAMEM, root=tmp_path)


def test_a_recording_is_cut_as_the_options_say(tmp_path):
    import mne

    raw = mne.io.RawArray(1e-6 * np.random.default_rng(0).standard_normal((2, 3000)), mne.create_info(2, 100.0, "eeg"))
    raw.set_annotations(mne.Annotations(np.arange(2, 26, 2), 1, ["left", "right"] * 6))
    raw.save(tmp_path / "mine_raw.fif", verbose="error")
    trials = load(tmp_path / "mine_raw.fif", tmin=0, tmax=1.5)
    assert trials.shape == (12, 2, 150)
    assert trials.class_names == ("left", "right")
    assert set(load(tmp_path / "mine_raw.fif", 7, tmin=0, tmax=1.5).subject) == {7}
    with pytest.raises(ParameterError, match="the recording of one subject"):
        load(tmp_path / "mine_raw.fif", [7, 8], tmin=0, tmax=1.5)
    with pytest.raises(ParameterError, match="Did you mean 'tmax'"):
        load(tmp_path / "mine_raw.fif", tmin=0, tmx=1.5)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(MissingFileError, match=r"mine\.fif does not exist"):
        load(tmp_path / "mine.fif")


# ---- several files


def collected(folder, subjects=(1, 1), sessions=None) -> list[str]:
    """Files of trials, each with its number as the value of all samples."""
    for place, subject in enumerate(subjects):
        n = 4 if sessions is None else len(sessions)
        trials = Trials(
            X=np.full((n, 2, 10), float(place)),
            y=[0, 1] * (n // 2),
            class_names=("left", "right"),
            ch_names=("C3", "C4"),
            sfreq=100,
            subject=subject,
            session="1" if sessions is None else sessions,
        )
        write_npz(trials, folder / f"{place}.npz")
    return [str(folder / f"{place}.npz") for place in range(len(subjects))]


def test_several_files_are_several_subjects(tmp_path):
    files = collected(tmp_path)
    trials = load(files)
    assert trials.subject.tolist() == [1] * 4 + [2] * 4
    assert trials.X[:, 0, 0].tolist() == [0.0] * 4 + [1.0] * 4
    assert load(files, 2).X[0, 0, 0] == 1.0
    assert load(find_dataset(files).name).subject.tolist() == trials.subject.tolist()


def test_files_of_a_subject_are_its_sessions(tmp_path):
    files = collected(tmp_path, (1, 1, 1))
    trials = load({7: files[:2], 9: files[2]})
    assert trials.subject.tolist() == [7] * 8 + [9] * 4
    assert trials.session.tolist() == ["1"] * 4 + ["2"] * 4 + ["1"] * 4
    assert load([f"7={files[0]}", f"7={files[1]}", f"9={files[2]}"]).session.tolist() == trials.session.tolist()
    with_sessions = collected(tmp_path, (1, 1), ["T", "T", "E", "E"])
    assert load({1: with_sessions}).session.tolist() == ["1.T", "1.T", "1.E", "1.E", "2.T", "2.T", "2.E", "2.E"]


def test_files_keep_their_own_subjects_if_these_differ(tmp_path):
    files = collected(tmp_path, (3, 5))
    assert load(files).subject.tolist() == [3] * 4 + [5] * 4
    assert find_dataset(files).name == " + ".join(files)


def test_each_file_of_a_collection_has_an_effect_on_the_fingerprint(tmp_path):
    files = collected(tmp_path, (1, 1, 1))
    name = find_dataset({1: files[:2], 2: files[2]}).name
    before = [fingerprint(name, subject) for subject in (1, 2)]
    trials = load(files[1])
    write_npz(trials.replace(X=trials.X + 1), files[1])
    after = [fingerprint(name, subject) for subject in (1, 2)]
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_wrong_options_name_the_file_and_a_similar_option(tmp_path):
    (file,) = collected(tmp_path, (1,))
    with pytest.raises(ParameterError, match="Did you mean 'preprocessing'"):
        load(file, preprocess="bandpass=8-30")


def test_folders_and_missing_files_are_named_plainly(tmp_path):
    with pytest.raises(MissingFileError, match="is a folder; give the files in it"):
        load(tmp_path)
    with pytest.raises(MissingFileError, match=r"no\.edf does not exist\.$"):
        load(tmp_path / "no.edf")


@pytest.mark.parametrize("given", [[], (), {}])
def test_no_files_are_an_error(given):
    with pytest.raises(ParameterError, match=r"dataset is empty; give the name of a data set, or one file or several"):
        load(given)


def test_a_subject_without_files_is_an_error(tmp_path):
    for given in ({1: []}, {1: collected(tmp_path), 2: []}):
        with pytest.raises(ParameterError, match=r"no files of subject (1|2); give at least one"):
            load(given)


def test_files_that_differ_are_named(tmp_path):
    one, other = collected(tmp_path, (1, 1))
    trials = load(other)
    write_npz(trials.replace(X=trials.X[:, :1], ch_names=trials.ch_names[:1]), other)
    for files in ([one, other], {1: [one, other]}):
        with pytest.raises(MismatchError) as caught:
            load(files)
        assert f"{other} has 1 channel, {one} {len(trials.ch_names)}" in str(caught.value)
        assert f"channels={trials.ch_names[0]} (--preprocess)" in str(caught.value)


def test_errors_of_steps_name_the_file_of_trials(tmp_path):
    one, other = collected(tmp_path, (1, 1))
    trials = load(other)
    write_npz(trials.replace(ch_names=("Cz", "C4")), other)
    for files in (other, [one, other]):
        with pytest.raises(ParameterError) as caught:
            load(files, preprocessing="channels=C3")
        assert str(caught.value) == f"{other}: channels: C3 not found among the 2: Cz, C4."


def test_files_that_do_not_go_together_are_errors(tmp_path):
    files = collected(tmp_path)
    with pytest.raises(ParameterError, match="is given twice"):
        load([files[0], files[0]])
    with pytest.raises(ParameterError, match=r"only some of .* have the number of their subject"):
        load([f"1={files[0]}", files[1]])
    with pytest.raises(MissingFileError, match=r"none.npz does not exist"):
        load([files[0], tmp_path / "none.npz"])
    several = collected(tmp_path, ([1, 1, 2, 2], [2, 2, 3, 3]))
    with pytest.raises(ParameterError, match=r"has the subjects 1-2, which are also in another file"):
        load(several)


def test_steps_that_a_file_records_are_not_repeated(tmp_path):
    (file,) = collected(tmp_path, (1,))
    chain = "reference=average"
    write_npz(load(file, preprocessing=chain), tmp_path / "filtered.npz")
    again = load(tmp_path / "filtered.npz", preprocessing=chain)
    np.testing.assert_array_equal(again.X, load(file, preprocessing=chain).X)
    assert len(again.steps) == 1


def test_recordings_that_were_filtered_differently_are_named(tmp_path):
    files = collected(tmp_path, (1, 2))
    for file, (low, high) in zip(files, ((0.0, 125.0), (8.0, 30.0)), strict=True):
        trials = load(file)
        write_npz(trials.replace(steps=({"step": "recorded", "highpass": low, "lowpass": high},)), file)
    with pytest.raises(MismatchError, match="subject 2 was filtered 8-30 Hz, subject 1 was not filtered"):
        load(files)
