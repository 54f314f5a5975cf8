"""Trials out of files of epochs and of recordings that MNE reads."""

from __future__ import annotations

import gzip
import json
import shlex
import struct
import warnings

import edfio
import mne
import numpy as np
import pytest
import scipy.io
from typer.testing import CliRunner

from gbwatt.cli import app
from gbwatt.data import Trials, _reading, load
from gbwatt.data.formats.edf import read_header as edf_header
from gbwatt.data.formats.recordings import read_file
from gbwatt.data.preprocessing import Preprocessing
from gbwatt.data.trials import Frame
from gbwatt.errors import DataError, DataWarning, MissingFileError, NotFiniteError, ParameterError
from tests.data.formats.test_interchange import assert_same, full
from tests.recordings import folder

SFREQ = 100.0
ONSETS = (1.0, 3.0, 5.0, 7.0, 9.0, 11.0)
HANDS = {"left": "T1", "right": "T2"}


def recording(extra: tuple[tuple[float, float, str], ...] = (), stim: bool = False, seconds: int = 14):
    """Two EEG channels and an EOG, with T1 and T2 in turn every two seconds; the EEG counts samples."""
    n = round(seconds * SFREQ)
    counting = np.stack([np.arange(n), -np.arange(n), np.ones(n)]) * 1e-6
    raw = mne.io.RawArray(counting, mne.create_info(["C3", "C4", "EOG"], SFREQ, ["eeg", "eeg", "eog"]), verbose="ERROR")
    marks = [(onset, 0.0, f"T{1 + place % 2}") for place, onset in enumerate(ONSETS)] + list(extra)
    if stim:
        raw.add_channels([trigger(n, marks)], force_update_info=True)
        return raw
    return raw.set_annotations(mne.Annotations(*zip(*marks, strict=True)))


def trigger(n: int, marks) -> mne.io.RawArray:
    pulses = np.zeros((1, n))
    for onset, _, name in marks:
        pulses[0, round(onset * SFREQ)] = int(name[1:])
    return mne.io.RawArray(pulses, mne.create_info(["STI"], SFREQ, "stim"), verbose="ERROR")


@pytest.fixture
def fif(tmp_path):
    file = tmp_path / "mine_raw.fif"
    recording().save(file, fmt="double", verbose="ERROR")
    return file


@pytest.fixture
def edf(tmp_path):
    file = tmp_path / "mine.edf"
    mne.export.export_raw(file, recording().pick("eeg"), physical_range=(-2000.0, 2000.0), verbose="ERROR")
    return file


@pytest.fixture
def epo(tmp_path):
    file = tmp_path / "mine-epo.fif"
    full().to_mne().save(file, verbose="ERROR")
    return file


def starts(trials) -> list[float]:
    """Number of the first sample of each trial."""
    return np.round(trials.X[:, 0, 0]).astype(int).tolist()


# ---- recordings


def test_trials_of_a_recording_are_cut_at_its_annotations(fif):
    trials = read_file(fif, classes=HANDS, tmin=0.5, tmax=1.5)
    assert trials.shape == (6, 2, 100)  # without the sample at 1.5 s, and without the EOG
    assert trials.class_names == ("left", "right")
    assert trials.y.tolist() == [0, 1] * 3
    assert starts(trials) == [round((onset + 0.5) * SFREQ) for onset in ONSETS]
    np.testing.assert_allclose(trials.X[0, 0], np.arange(150, 250), rtol=1e-6)  # microvolts
    assert (trials.tmin, trials.sfreq, trials.unit, trials.ch_names) == (0.5, 100.0, "µV", ("C3", "C4"))


def test_edf_is_read_as_fif(edf, fif):
    options = {"classes": HANDS, "tmin": -0.5, "tmax": 1.0}
    one, other = read_file(edf, **options), read_file(fif, **options)
    assert one.y.tolist() == other.y.tolist()
    np.testing.assert_allclose(one.X, other.X, atol=0.1)  # 16 bits of 4 mV


@pytest.mark.parametrize(
    "classes, names, y",
    [
        (None, ("T1", "T2"), [0, 1] * 3),
        (["T2", "T1"], ("T2", "T1"), [1, 0] * 3),
        ("T2", ("T2",), [0] * 3),
        ({"any": ["T1", "T2"]}, ("any",), [0] * 6),
        ({"right": "T2", "left": "T1"}, ("right", "left"), [1, 0] * 3),
    ],
)
def test_classes_are_named_by_annotations(fif, classes, names, y):
    trials = read_file(fif, classes=classes, tmin=0, tmax=1)
    assert trials.class_names == names
    assert trials.y.tolist() == y


def test_every_other_option_changes_the_trials(fif):
    trials = read_file(fif, tmin=0, tmax=1, subject=4, session="E", run="2", channels=["EOG", "C3"])
    assert (trials.subject[0], trials.session[0], trials.run[0]) == (4, "E", "2")
    assert trials.ch_names == ("EOG", "C3")
    np.testing.assert_allclose(trials.X[:, 0], 1, rtol=1e-6)


def test_trigger_channels_serve_without_annotations(tmp_path):
    recording(stim=True).save(tmp_path / "mine_raw.fif", verbose="ERROR")
    trials = read_file(tmp_path / "mine_raw.fif", classes={"left": 1, "right": 2}, tmin=0, tmax=1)
    assert trials.y.tolist() == [0, 1] * 3
    assert starts(trials) == [round(onset * SFREQ) for onset in ONSETS]
    assert read_file(tmp_path / "mine_raw.fif", tmin=0, tmax=1).class_names == ("1", "2")


def test_cropped_recordings_are_cut_at_the_right_samples(tmp_path):
    recording().crop(2.0, 12.5).save(tmp_path / "mine_raw.fif", verbose="ERROR")
    trials = read_file(tmp_path / "mine_raw.fif", tmin=0, tmax=1)
    assert starts(trials) == [round(onset * SFREQ) for onset in ONSETS[1:]]


def test_marks_of_breaks_begin_no_trials(tmp_path):
    extra = ((2.5, 0.0, "EDGE boundary"), (4.5, 0.0, "boundary"), (4.7, 0.0, "New Segment/"), (13.5, 0.1, "BAD_muscle"))
    recording(extra).save(tmp_path / "mine_raw.fif", verbose="ERROR")
    assert read_file(tmp_path / "mine_raw.fif", tmin=0, tmax=1).class_names == ("T1", "T2")


def test_trials_outside_or_in_bad_parts_are_left_out_with_a_warning(tmp_path):
    recording(((3.2, 0.1, "BAD_muscle"),)).save(tmp_path / "mine_raw.fif", verbose="ERROR")
    message = r"mine_raw\.fif: 2 of 6 trials \(1 leave the recording, 1 overlap a BAD annotation\) are dropped"
    with pytest.warns(UserWarning, match=message) as caught:
        trials = read_file(tmp_path / "mine_raw.fif", tmin=-1.5, tmax=2.0)
    assert len(trials) == 4
    assert caught[0].filename == __file__


# ---- epochs


def test_epochs_keep_all_that_was_written(epo):
    assert_same(read_file(epo), full())


def test_epochs_may_have_any_name(epo):
    renamed = epo.rename(epo.with_name("mine.fif"))
    assert_same(read_file(renamed), full())


def test_classes_window_and_channels_of_epochs_can_be_chosen(epo):
    trials = read_file(epo, classes={"hand": ["left", "right"], "foot": "feet"}, tmin=0.05, tmax=0.15, channels=["Cz"])
    assert trials.class_names == ("hand", "foot")
    assert trials.y.tolist() == [0, 0, 1, 0, 0, 1, 0, 0]
    assert trials.shape == (8, 1, 10)
    assert trials.tmin == pytest.approx(0.05)
    np.testing.assert_allclose(trials.X[:, 0], full().X[:, 1, 5:15], rtol=2e-7)


def test_epochs_of_eeglab_are_read(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 50, 4)).astype(np.float32)  # channels, samples, trials
    labels = ["a", "b", "b", "a"]
    places = np.array([(name,) for name in ("C3", "C4")], dtype=[("labels", object)])
    event = np.array(
        [(n, 50.0 * k + 1, k + 1.0) for k, n in enumerate(labels)],
        dtype=[(f, object) for f in ("type", "latency", "epoch")],
    )
    epoch = np.array(
        [(k + 1.0, 0.0, n) for k, n in enumerate(labels)],
        dtype=[(f, object) for f in ("event", "eventlatency", "eventtype")],
    )
    eeg = {"setname": "s", "nbchan": 2.0, "trials": 4.0, "pnts": 50.0, "srate": 100.0, "xmin": 0.0, "xmax": 0.49}
    scipy.io.savemat(
        tmp_path / "mine.set",
        {
            "EEG": {
                **eeg,
                "data": x,
                "chanlocs": places,
                "event": event,
                "epoch": epoch,
                "icawinv": [],
                "icaweights": [],
                "icasphere": [],
            }
        },
    )
    trials = read_file(tmp_path / "mine.set")
    assert trials.labels.tolist() == labels
    np.testing.assert_allclose(trials.X, x.transpose(2, 0, 1), rtol=1e-5)


# ---- errors


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, r"a recording with the events T1 \(3\), T2 \(3\); expected tmin and tmax.*tmin=0\.5"),
        ({"tmin": 0.0}, "expected tmin and tmax"),
        ({"tmin": 0, "tmax": 1, "classes": ["T1", "T3"]}, r"the events T1 \(3\), T2 \(3\); expected also T3"),
        ({"tmin": 0, "tmax": 1, "classes": {}}, "expected events at which trials begin"),
        ({"tmin": 0, "tmax": 1, "channels": ["C3", "Cz"]}, "the channels C3, C4, EOG; expected also Cz"),
        ({"tmin": 0, "tmax": 60}, "6 of 6 trials .6 leave the recording"),
    ],
)
def test_what_a_recording_does_not_have_is_named(fif, options, message):
    with pytest.raises(DataError, match=message) as caught:
        read_file(fif, **options)
    assert str(fif) in str(caught.value)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"classes": ["hand"]}, r"the events left \(3\), right \(3\), feet \(2\); expected also hand"),
        ({"tmin": -1.0}, "epochs from 0 to 0.2 s; expected all of -1 to 0.2 s"),
        ({"tmax": 0.3}, "expected all of 0 to 0.3 s"),
        ({"channels": ["Oz"]}, "expected also Oz"),
    ],
)
def test_what_epochs_do_not_have_is_named(epo, options, message):
    with pytest.raises(DataError, match=message):
        read_file(epo, **options)


@pytest.mark.parametrize(
    "steps, message",
    [
        ("channels=Oz", "channels: Oz not found among the"),
        ("reference=A1", "channels: A1 not found among the"),
        ("bandpass=8-300", "high=300 Hz must be below 50 Hz"),
        ("notch=90", "freq=90 Hz must be below 50 Hz"),
        ("crop=0.5:4", "tmin=0.5, tmax=4: the trial has samples from 0 to 0.2 s"),
    ],
)
def test_errors_of_steps_name_the_file(fif, epo, steps, message):
    for file in (fif, epo):
        for files in (file, {1: file}):
            with pytest.raises(ParameterError) as caught:
                load(files, tmin=0.0, tmax=0.2, preprocessing=steps)
            assert str(caught.value).startswith(f"{file}: {message}")


def test_class_whose_trials_are_all_left_out_is_an_error(tmp_path):
    recording(((3.2, 0.1, "BAD"), (7.2, 0.1, "BAD"), (11.2, 0.1, "BAD"))).save(tmp_path / "m_raw.fif", verbose="ERROR")
    with pytest.warns(UserWarning, match="3 of 6"), pytest.raises(DataError, match=r"T2 \(0\); expected also T2"):
        read_file(tmp_path / "m_raw.fif", classes=HANDS, tmin=0, tmax=1)


def test_files_that_are_no_recordings_name_the_exception_without_an_empty_text(tmp_path):
    (tmp_path / "text.txt").write_text("hi")
    with pytest.raises(DataError, match=r"2 bytes that MNE cannot read \(AssertionError\); expected a recording"):
        read_file(tmp_path / "text.txt")


def test_recording_without_events_is_an_error(tmp_path):
    recording().set_annotations(None).save(tmp_path / "m_raw.fif", verbose="ERROR")
    with pytest.raises(DataError, match="found no events; expected events"):
        read_file(tmp_path / "m_raw.fif", tmin=0, tmax=1)


def test_requested_events_of_a_recording_without_events_are_named(tmp_path):
    recording().set_annotations(None).save(tmp_path / "m_raw.fif", verbose="ERROR")
    with pytest.raises(DataError, match="found no events; expected T1 and T2"):
        read_file(tmp_path / "m_raw.fif", classes=HANDS, tmin=0, tmax=1)


def test_windows_that_all_overlap_are_said_to_form_one_group(fif):
    with pytest.warns(DataWarning, match=r"all 6 windows overlap .* have 3 s, and the events are 2 s apart"):
        assert set(read_file(fif, tmin=0, tmax=3).group) == {0}


def test_nan_in_a_recording_that_is_filtered_is_named_with_channel_and_time(tmp_path):
    raw = recording()
    raw._data[1, 320] = np.nan
    raw.save(tmp_path / "m_raw.fif", verbose="ERROR")
    with pytest.raises(NotFiniteError, match=r"m_raw\.fif: channel C4 .* first at 3\.200 s"):
        read_file(tmp_path / "m_raw.fif", tmin=0, tmax=1, preprocessing=Preprocessing.parse("bandpass=8-30"))


def test_two_events_at_one_sample_are_an_error(tmp_path):
    recording(((3.0, 0.0, "T1"),)).save(tmp_path / "m_raw.fif", verbose="ERROR")
    with pytest.raises(DataError, match="one event for each trial"):
        read_file(tmp_path / "m_raw.fif", tmin=0, tmax=1)


def test_nan_in_a_trial_is_an_error_of_the_file(tmp_path):
    raw = recording()
    raw._data[1, 320] = np.nan
    raw.save(tmp_path / "m_raw.fif", verbose="ERROR")
    with pytest.raises(DataError, match=r"m_raw\.fif.*NaN.*trial 1, channel C4"):
        read_file(tmp_path / "m_raw.fif", tmin=0, tmax=1)


def test_recording_without_eeg_is_an_error(tmp_path):
    recording().pick(["EOG"]).save(tmp_path / "m_raw.fif", verbose="ERROR")
    with pytest.raises(DataError, match="no good EEG channel, only eog"):
        read_file(tmp_path / "m_raw.fif", tmin=0, tmax=1)


@pytest.mark.parametrize("tmin, tmax", [(1, 1), (2, 1), (np.nan, 1), (0, "1"), (0, 0.001)])
def test_window_must_have_a_length(fif, tmin, tmax):
    with pytest.raises(ParameterError, match=r"tm(ax|in)="):
        read_file(fif, tmin=tmin, tmax=tmax)


def test_event_of_two_classes_is_an_error(fif):
    with pytest.raises(ParameterError, match="'T1' twice"):
        read_file(fif, classes={"a": "T1", "b": ["T1", "T2"]}, tmin=0, tmax=1)


@pytest.mark.parametrize("kind", ["fif", "edf", "epo"])
@pytest.mark.parametrize("keep", [0.0, 0.02, 0.4, 0.7])
def test_truncated_files_are_named(request, kind, keep):
    file = request.getfixturevalue(kind)
    content = file.read_bytes()
    file.write_bytes(content[: round(keep * len(content))])
    with pytest.raises(
        DataError, match=f"found {round(keep * len(content))} bytes.*expected .*Copy it again"
    ) as caught:
        read_file(file, tmin=0, tmax=0.1)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    "name", ["a.fif", "a-epo.fif", "a.edf", "a.gdf", "a.bdf", "a.vhdr", "a.set", "a.txt", "a.abc", "a"]
)
def test_files_of_other_content_are_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"no recording at all\n" * 40)
    with pytest.raises(DataError, match=r"found 800 bytes that (MNE cannot read|begin with)") as caught:
        read_file(tmp_path / name, tmin=0, tmax=1)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize("suffix", [".edf", ".EDF", ".bdf"])
def test_truncated_edf_and_bdf_say_how_many_bytes_there_should_be(tmp_path, suffix):
    file = tmp_path / f"mine{suffix}"
    write = edfio.Edf if suffix != ".bdf" else edfio.Bdf
    signal = edfio.EdfSignal if suffix != ".bdf" else edfio.BdfSignal
    write([signal(np.sin(np.arange(1000)), 100, label="Cz")]).write(file)
    whole = file.stat().st_size
    edf_header(file)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match=f"found {whole - 1} bytes.*expected {whole}, 10 records, as its header says"):
        read_file(file, tmin=0, tmax=0.1)


def test_edf_that_is_still_being_written_is_refused(edf):
    content = bytearray(edf.read_bytes())
    content[236:244] = b"-1      "
    edf.write_bytes(content)
    with pytest.raises(DataError, match=r"a header that says -1 records"):
        read_file(edf, tmin=0, tmax=0.1)


def test_missing_file_is_named(tmp_path):
    for name in ("none.edf", "none.gdf", "none.vhdr", "none.fif", "none.set", "none.mat"):
        with pytest.raises(MissingFileError, match=rf"{name} does not exist"):
            read_file(tmp_path / name)


@pytest.mark.parametrize("name", ["a.edf", "a.bdf", "a.gdf", "a.vhdr"])
def test_a_folder_in_place_of_a_file_is_called_a_folder(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(MissingFileError, match=rf"{name} is a folder, but a file is required"):
        read_file(tmp_path / name)


def test_other_warnings_of_mne_are_passed_on(tmp_path, monkeypatch, fif):
    read_raw = mne.io.read_raw

    def warning(*arguments, **options):
        warnings.warn("odd header", RuntimeWarning, stacklevel=1)
        return read_raw(*arguments, **options)

    monkeypatch.setattr(mne.io, "read_raw", warning)
    with pytest.warns(RuntimeWarning, match=r"mine_raw\.fif: odd header") as caught:
        read_file(fif, tmin=0, tmax=1)
    assert caught[0].filename == __file__


# ---- a real one


def test_real_edf_is_read():
    file = folder() / "eegmmidb" / "S001" / "S001R04.edf"
    if not file.exists():
        pytest.skip(f"{file} is not there; put PhysioNet's motor imagery recordings into GBWATT_DATA/eegmmidb")
    trials = read_file(file, classes={"left": "T1", "right": "T2"}, tmin=0, tmax=4)
    assert trials.shape == (15, 64, 640)
    assert sorted(trials.counts()["1"].values()) == [7, 8]
    assert 10 < trials.describe().amplitude < 200  # microvolts


def test_windows_that_overlap_give_a_warning(tmp_path):
    file = tmp_path / "mine_raw.fif"
    recording().save(file, verbose="error")
    with pytest.warns(UserWarning, match=r"windows overlap .* 2\.5 s.* events are 2 s apart"):
        trials = read_file(file, tmin=0, tmax=2.5)
    assert len(set(trials.group.tolist())) == 1  # every two seconds: each shares samples with the next
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trials = read_file(file, tmin=0, tmax=1.5)
    assert len(set(trials.group.tolist())) == len(trials.y)


# ---- what an error prints can be pasted


def pasted(message: str) -> list[str]:
    """The options for the command line in a message, as a shell would pass them on."""
    return shlex.split(message[message.index("--read") :])


@pytest.mark.parametrize("options", [{}, {"tmin": 0, "tmax": 1, "classes": ["none"]}])
@pytest.mark.parametrize(
    "names", [("T1", "T2"), ("Stimulus/S  1", 'don\'t "go"'), ("links, \x1b[2J", "größer $HOME `ls`")]
)
def test_options_in_an_error_work_when_they_are_pasted(tmp_path, names, options):
    file = tmp_path / "mine_raw.fif"
    raw = recording(seconds=40)
    raw.set_annotations(mne.Annotations(np.arange(1.0, 31.0, 5.0), 0, list(names) * 3))
    raw.save(file, verbose="ERROR")
    with pytest.raises(DataError, match="classes=") as caught:
        load(file, **options)
    message = str(caught.value)
    assert message.isprintable()
    window = [] if not options else ["--read", "tmin=0", "--read", "tmax=1"]
    found = CliRunner().invoke(app, ["data", "describe", str(file), *window, *pasted(message), "--json"])
    assert found.exit_code == 0, found.output
    described = json.loads(found.stdout)
    assert described["n_trials"] == 6
    assert len(described["counts"]["1"]) == 2


@pytest.mark.parametrize(("name", "shown"), [("T1\x1b[2J", "T1\\x1b[2J"), ("a\nb", "a\\nb"), ("\x9b2J", "\\x9b2J")])
def test_control_characters_in_events_are_shown_as_escapes(tmp_path, name, shown):
    file = tmp_path / "m_raw.fif"
    recording(((13.0, 0.0, name),), seconds=20).save(file, verbose="ERROR")
    assert shown in read_file(file, tmin=0, tmax=1).class_names
    for event in (name, shown):
        trials = read_file(file, tmin=0, tmax=1, classes={"one": "T1", "other": event})
        assert trials.counts()["1"] == {"one": 3, "other": 1}
    with pytest.raises(DataError, match=r"the events .*T1") as caught:
        read_file(file)
    assert str(caught.value).isprintable()


def test_control_characters_in_names_of_epochs_are_shown_as_escapes(tmp_path):
    epochs = full().to_mne()
    epochs.event_id = {f"{name}\x1b[2J": code for name, code in epochs.event_id.items()}
    epochs.save(tmp_path / "m-epo.fif", verbose="ERROR")
    assert read_file(tmp_path / "m-epo.fif").class_names == tuple(f"{name}\\x1b[2J" for name in full().class_names)


@pytest.mark.parametrize("name", ["C3\x1b[2J", "C3\n", "x" * 300])
def test_channels_whose_names_break_reports_are_refused(tmp_path, name):
    raw = recording()
    raw.rename_channels({"C3": name}, verbose="ERROR")
    raw.save(tmp_path / "m_raw.fif", verbose="ERROR")
    with pytest.raises(DataError, match=r"m_raw\.fif.*ch_names has the name"):
        read_file(tmp_path / "m_raw.fif", tmin=0, tmax=1)


# ---- MATLAB files of one's own


def test_a_mat_file_of_trials_is_answered_with_what_is_in_it_and_code_that_converts_it(tmp_path, monkeypatch):
    x = np.random.default_rng(0).standard_normal((6, 2, 50))
    scipy.io.savemat(tmp_path / "own.mat", {"EEGdata": x, "labels": [[1], [2]] * 3, "fs": 160.0})
    with pytest.raises(DataError) as caught:
        load(tmp_path / "own.mat")
    message = str(caught.value)
    assert "EEGdata (6, 2, 50) double, labels (6, 1) int64, fs (1, 1) double" in message
    monkeypatch.chdir(tmp_path)
    code = message[message.index("import numpy") : message.index(". Then load(")]
    exec(code)
    trials = load("own.npz")
    assert trials.shape == (6, 2, 50)
    assert trials.class_names == ("1", "2")
    assert trials.sfreq == 160


def test_a_mat_file_of_a_recording_is_answered_with_code_that_converts_it(tmp_path, monkeypatch):
    scipy.io.savemat(tmp_path / "own.mat", {"y": np.random.default_rng(0).standard_normal((2000, 3)), "fs": 160.0})
    with pytest.raises(DataError, match=r"y \(2000, 3\) double") as caught:
        load(tmp_path / "own.mat")
    message = str(caught.value)
    monkeypatch.chdir(tmp_path)
    exec(message[message.index("import mne") : message.index(". Then load(")])
    assert load("own_raw.fif", tmin=0, tmax=1).shape == (2, 3, 160)


def hint_of(file, content):
    scipy.io.savemat(file, content)
    with pytest.raises(DataError) as caught:
        load(file)
    return str(caught.value)


def test_the_code_for_a_mat_file_names_no_sampling_rate_that_is_not_known(tmp_path):
    x = np.zeros((6, 2, 50))
    said = hint_of(tmp_path / "own.mat", {"data": x, "labels": [1, 2] * 3})
    assert "sfreq=...)" in said
    assert "Replace the dots by sfreq." in said
    assert "250" not in said
    said = hint_of(tmp_path / "own.mat", {"data": np.zeros((2, 500))})
    assert "sfreq=..., ch_types" in said
    assert "250" not in said


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 2, 0), (2, 1, 0), (0, 2, 1)])
def test_the_labels_of_a_mat_file_tell_which_axis_has_the_trials(tmp_path, monkeypatch, axes):
    x = np.random.default_rng(0).standard_normal((6, 2, 50))
    content = {"time": np.arange(50.0), "EEG": x.transpose(axes), "Labels": [1, 2] * 3, "fs": 160.0}
    said = hint_of(tmp_path / "own.mat", content)
    monkeypatch.chdir(tmp_path)
    exec(said[said.index("import numpy") : said.index(". Then load(")])
    np.testing.assert_allclose(load("own.npz").X, x, rtol=1e-6)


def test_a_mat_file_without_labels_gets_dots_for_them(tmp_path):
    said = hint_of(tmp_path / "own.mat", {"data": np.zeros((6, 2, 50)), "fs": 160.0})
    assert "y=..., sfreq=float(m['fs'].item())" in said
    assert "m['y']" not in said


def test_fields_of_a_structure_in_a_mat_file_are_found(tmp_path, monkeypatch):
    x = np.random.default_rng(0).standard_normal((6, 2, 50))
    structure = {"x": x.transpose(1, 2, 0), "y": [1, 2] * 3, "fs": 160.0, "name": "S1"}
    said = hint_of(tmp_path / "own.mat", {"epochs": structure})
    assert "epochs (1, 1) struct, epochs.x (2, 50, 6) double" in said
    monkeypatch.chdir(tmp_path)
    exec(said[said.index("import numpy") : said.index(". Then load(")])
    trials = load("own.npz")
    np.testing.assert_allclose(trials.X, x, rtol=1e-6)
    assert trials.sfreq == 160


def test_a_mat_file_without_anything_like_a_recording_is_listed(tmp_path):
    said = hint_of(tmp_path / "own.mat", {"info": {"name": "S1", "age": 30.0}, "fs": 160.0})
    assert "info.age (1, 1) double" in said
    assert "None of these variables looks like" in said
    assert "loadmat('" not in said


@pytest.mark.parametrize("content", [b"no MATLAB file" * 99, b"", b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(600)])
def test_a_mat_file_that_cannot_be_read_is_named(tmp_path, content):
    (tmp_path / "own.mat").write_bytes(content)
    with pytest.raises(DataError, match=r"own\.mat: found"):
        load(tmp_path / "own.mat")


# ---- damaged structure


@pytest.mark.parametrize(
    "description", ['{"gbwatt": ' + "[" * 100_000, '{"gbwatt": {"steps": 3}}', '{"gbwatt": {"truths": {"1": 2}}}']
)
def test_damaged_records_in_epochs_are_named_errors(tmp_path, description):
    epochs = full().to_mne()
    epochs.info["description"] = description
    epochs.save(tmp_path / "m-epo.fif", verbose="ERROR")
    with pytest.raises(DataError, match=r"m-epo\.fif.*record of these trials is damaged"):
        load(tmp_path / "m-epo.fif")


def test_a_changed_record_in_epochs_is_noticed(tmp_path):
    epochs = full().to_mne()
    assert '"seed": 3' in epochs.info["description"]
    epochs.info["description"] = epochs.info["description"].replace('"seed": 3', '"seed": 7')
    epochs.save(tmp_path / "m-epo.fif", verbose="ERROR")
    with pytest.raises(DataError, match="checksum"):
        load(tmp_path / "m-epo.fif")


def test_records_without_a_checksum_are_read():
    epochs = full().to_mne()
    old = json.loads(epochs.info["description"])
    epochs.info["description"] = json.dumps({"gbwatt": old["gbwatt"]})
    assert_same(Trials.from_mne(epochs), full())


def test_a_block_that_is_missing_in_a_fif_file_is_noticed(fif):
    content = fif.read_bytes()
    fif.write_bytes(content[: len(content) // 2] + content[len(content) // 2 + 64 :])
    with pytest.raises(DataError, match="expected a complete FIF file"):
        read_file(fif, tmin=0, tmax=1)


@pytest.mark.parametrize("flipped", [0, 1, 2])
def test_samples_that_are_lost_in_a_fif_file_are_noticed(fif, flipped):
    content = bytearray(fif.read_bytes())
    at = content.index(struct.pack(">i", 300) + struct.pack(">i", 5), 1000)  # a tag of samples, in double precision
    content[at + flipped] ^= 0x20  # MNE passes over tags that it does not know
    fif.write_bytes(content)
    with pytest.raises(DataError, match=r"a tag at \d+ of kind"):
        read_file(fif, tmin=0, tmax=1)


def test_compressed_files_cannot_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(_reading, "ALWAYS_ALLOWED", 1 << 22)
    with gzip.open(tmp_path / "m_raw.fif.gz", "wb") as stream:
        for _ in range(100):
            stream.write(bytes(1 << 20))
    with pytest.raises(DataError, match=r"content of 67\.1 MB in a file of"):
        read_file(tmp_path / "m_raw.fif.gz", tmin=0, tmax=1)


# ---- preprocessing of continuous recordings

STEPS = Preprocessing.parse("lowpass=20,resample=50")


def noisy(sfreq: float = SFREQ, seconds: int = 14) -> mne.io.RawArray:
    """A recording of noise with the events of :func:`recording`."""
    x = np.random.default_rng(0).standard_normal((2, round(seconds * sfreq))) * 1e-5
    raw = mne.io.RawArray(x, mne.create_info(["C3", "C4"], sfreq, "eeg"), verbose="ERROR")
    return raw.set_annotations(recording().annotations)


def test_recordings_are_filtered_before_trials_are_cut(tmp_path):
    noisy().save(tmp_path / "noise_raw.fif", fmt="double", verbose="ERROR")
    file = tmp_path / "noise_raw.fif"
    whole, _ = STEPS.transform(noisy().get_data() * 1e6, Frame(("C3", "C4"), SFREQ))
    trials = read_file(file, tmin=-0.5, tmax=1.5, preprocessing=STEPS)
    for trial, onset in zip(trials.X, ONSETS, strict=True):
        start = round((onset - 0.5) * 50)
        np.testing.assert_allclose(trial, whole[:, start : start + 100], rtol=1e-6, atol=1e-6)
    assert [step["step"] for step in trials.steps] == ["recorded", "band_pass", "resample"]
    assert (trials.sfreq, trials.tmin) == (50.0, -0.5)


def test_steps_after_a_crop_are_applied_to_trials(tmp_path):
    noisy().save(tmp_path / "noise_raw.fif", fmt="double", verbose="ERROR")
    file = tmp_path / "noise_raw.fif"
    both = read_file(file, tmin=0, tmax=2, preprocessing=STEPS + Preprocessing.parse("crop=0.5:1.5,standardise=0.1"))
    cut = read_file(file, tmin=0, tmax=2, preprocessing=STEPS)
    expected = Preprocessing.parse("crop=0.5:1.5,standardise=0.1")(cut)
    np.testing.assert_array_equal(both.X, expected.X)
    assert both.steps == expected.steps


def test_preprocessing_keeps_bad_segments_triggers_and_the_start_of_cropped_recordings(tmp_path):
    raw = recording(stim=True)
    raw.annotations.append(4.9, 0.2, "BAD")
    raw.set_meas_date(0).crop(0.5).save(tmp_path / "mine_raw.fif", fmt="double", verbose="ERROR")
    kwargs = {"tmin": 0.0, "tmax": 1.0, "channels": ["C3"]}
    steps = Preprocessing.parse("channels=C3")
    with pytest.warns(DataWarning, match="1 overlap a BAD"):
        plain = read_file(tmp_path / "mine_raw.fif", **kwargs)
    with pytest.warns(DataWarning, match="1 overlap a BAD"):
        prepared = read_file(tmp_path / "mine_raw.fif", **kwargs, preprocessing=steps)
    np.testing.assert_allclose(prepared.X, plain.X, rtol=1e-6)
    assert prepared.labels.tolist() == plain.labels.tolist()


def test_epochs_are_preprocessed_as_they_are(epo):
    trials = read_file(epo)
    np.testing.assert_array_equal(read_file(epo, preprocessing=STEPS).X, STEPS(trials).X)


def test_filters_of_the_header_and_of_the_steps_are_both_recorded(tmp_path):
    noisy().filter(1, None, verbose="ERROR").save(tmp_path / "noise_raw.fif", fmt="double", verbose="ERROR")
    first, *others = read_file(tmp_path / "noise_raw.fif", tmin=0, tmax=1, preprocessing=STEPS).steps
    assert (first["step"], first["highpass"], first["lowpass"]) == ("recorded", 1.0, SFREQ / 2)
    assert len(others) == 2
