"""Official layouts, labels of electrodes, and annotation files."""

from __future__ import annotations

import errno
import os

import pytest

from gbwatt.clinical.corpora import MONTAGES, Corpus, build
from gbwatt.clinical.corpora.layout import (
    TCP,
    TUAB,
    TUEV,
    Montage,
    UnusableRecording,
    corpus_folder,
    electrode_indices,
    find_recordings,
    read_events,
)
from gbwatt.data import DataError, MissingFileError
from gbwatt.errors import ParameterError
from tests.clinical.corpora.synthetic import EVENTS, LABELS, write_csv, write_rec, write_tuev


def test_label_subject_and_part_come_from_the_path(small):
    sources, strange = find_recordings(corpus_folder(small / "tuab", TUAB), TUAB)
    found = {(s.split, s.label, s.subject): s.path for s in sources}
    assert strange == []
    assert found["train", 0, "aaaaaaaa"] == "train/normal/01_tcp_ar/aaaaaaaa_s001_t000.edf"
    assert sorted(found) == [
        ("eval", 0, "aaaaaaac"),
        ("eval", 1, "aaaaaaad"),
        ("train", 0, "aaaaaaaa"),
        ("train", 1, "aaaaaaab"),
    ]
    sources, strange = find_recordings(corpus_folder(small / "tuev", TUEV), TUEV)
    assert strange == []
    assert [(s.split, s.subject, s.label) for s in sources] == [
        ("eval", "000", None),
        ("eval", "000", None),
        ("train", "aaaaaaaa", None),
        ("train", "aaaaaaab", None),
    ]


@pytest.mark.parametrize("above", ["", "edf", "versions"])
def test_the_root_may_be_the_corpus_a_version_or_the_edf_folder(tuab, above):
    expected = tuab / "edf"
    root = tuab / above
    if above == "versions":
        (tuab / "v3.0.1").mkdir()
        (tuab / "v3.0.1" / "AAREADME.txt").write_text("")
        expected.rename(tuab / "v3.0.1" / "edf")
        root, expected = tuab, tuab / "v3.0.1" / "edf"
    assert corpus_folder(root, TUAB) == expected


def test_evaluation_files_need_no_folder_of_their_subject(tuev, tmp_path):
    folder = tuev / "edf" / "eval"
    for file in [*(folder / "000").iterdir()]:
        file.rename(folder / file.name)
    (folder / "000").rmdir()
    build(tuev, tmp_path / "cache", corpus="tuev")
    evaluation = Corpus.open(tmp_path / "cache").part("eval")
    assert set(evaluation.subjects.tolist()) == {"000"}
    assert sorted(evaluation.labels.tolist()) == [0, 0, 1, 1]


def test_hidden_files_are_no_recordings(tuab, tmp_path):
    folder = tuab / "edf/train/normal/01_tcp_ar"
    (folder / "._aaaaaaaa_s001_t000.edf").write_bytes(b"junk")
    assert build(tuab, tmp_path / "cache", corpus="tuab").skipped == ()


def test_a_folder_that_cannot_be_listed_is_an_error(tuab, tmp_path, monkeypatch):
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("01_tcp_ar"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"01_tcp_ar: found a folder that cannot be listed \(Permission denied\)"):
        build(tuab, tmp_path / "cache", corpus="tuab")


def remove(name):
    def harm(root):
        (root / name).rename(root / f"{name}-aside")

    return harm


def second_version(root):
    for version in ("v2.0.0", "v3.0.1"):
        (root / version / "edf" / "train").mkdir(parents=True)
    (root / "edf").rename(root / "aside")


@pytest.mark.parametrize(
    ("harm", "error", "words"),
    [
        (remove("edf/eval"), DataError, "no folder eval/normal or eval/abnormal"),
        (remove("edf/train"), DataError, "no folder train/normal or train/abnormal"),
        (remove("edf/train/normal"), DataError, "no folder train/normal"),
        (remove("edf"), DataError, "folders train and eval"),
        (second_version, DataError, "v2.0.0 and v3.0.1"),
        (lambda root: [file.unlink() for file in root.rglob("*.edf")], DataError, "no EDF file"),
        (lambda root: [f.rename(f.with_name(f"x{f.name}.edf")) for f in root.rglob("*.edf")], DataError, "other names"),
        (lambda root: root.rename(root.with_name("elsewhere")), MissingFileError, "is not a folder"),
    ],
)
def test_a_wrong_structure_is_an_error_at_once(tuab, tmp_path, harm, error, words):
    harm(tuab)
    with pytest.raises(error, match=words):
        build(tuab, tmp_path / "cache", corpus="tuab")
    assert not (tmp_path / "cache").exists()


def test_one_corpus_is_not_taken_for_the_other(small, tmp_path):
    with pytest.raises(DataError, match=r"no folder train/normal.*another corpus"):
        build(small / "tuev", tmp_path / "cache", corpus="tuab")
    with pytest.raises(DataError, match="It may be corpus='tuab'"):
        build(small / "tuab", tmp_path / "cache", corpus="tuev")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"corpus": "tuap"}, "Did you mean 'tuab'"),
        ({"montage": "bipolar18"}, "Did you mean 'bipolar16'"),
        ({"jobs": -1}, "jobs=-1"),
        ({"notch": 80}, "notch=80"),
    ],
)
def test_wrong_arguments_are_errors_at_once(small, tmp_path, arguments, words):
    with pytest.raises(ParameterError, match=words):
        build(small / "tuab", tmp_path / "cache", **{"corpus": "tuab", **arguments})
    assert not (tmp_path / "cache").exists()


# ---- electrodes


def test_montages_are_those_of_the_models():
    assert {name: len(montage.ch_names) for name, montage in MONTAGES.items()} == {"bipolar16": 16, "referential23": 23}
    assert set(MONTAGES["bipolar16"].ch_names) < set(TCP)
    assert len(TCP) == 22


@pytest.mark.parametrize("form", ["EEG {}-REF", "EEG {}-LE", "eeg {}-ref  ", "{}", "EEG {}", "{}-AVG", "EEG_{}-REF"])
def test_labels_are_understood_in_all_forms(form):
    names = [label.split()[1].split("-")[0] for label in LABELS]
    montage = MONTAGES["referential23"]
    found = electrode_indices(
        montage, ["EEG EKG1-REF", *(form.format(name) for name in names), "PHOTIC-REF", "EDF Annotations"]
    )
    assert found == {name: names.index(name) + 1 for name in montage.ch_names}


def test_newer_names_stand_for_the_older_ones():
    montage = Montage("m", ("T3-T5", "T4-T6"))
    assert electrode_indices(montage, ["T7", "P7", "T8", "P8"]) == {"T3": 0, "T5": 1, "T4": 2, "T6": 3}


def test_electrodes_of_one_reference_are_taken():
    labels = ["EEG C3-LE", "EEG P3-REF", "EEG C3-REF", "EEG C3-P3"]
    assert electrode_indices(Montage("m", ("C3-P3",)), labels) == {"C3": 2, "P3": 1}
    with pytest.raises(UnusableRecording, match="O1"):
        electrode_indices(Montage("m", ("C3-P3", "P3-O1")), [*labels, "EEG O1-LE"])


# ---- annotations


def test_both_forms_of_annotations_give_the_same_events(tmp_path):
    lines = [(number, 1.0 * number, 1.0 * number + 1, number + 1) for number in range(6)]
    write_rec(tmp_path / "a.rec", lines)
    write_csv(tmp_path / "b.csv", [(TCP[c], start, stop, EVENTS[k - 1]) for c, start, stop, k in lines], 10)
    rec, csv = (read_events(tmp_path / name, TUEV.class_names, 10.0) for name in ("a.rec", "b.csv"))
    assert [(e.start, e.stop, e.label) for e in rec] == [(e.start, e.stop, e.label) for e in csv]
    assert [e.label for e in rec] == list(range(6))


def test_numbers_may_have_a_point(tmp_path):
    (tmp_path / "a.rec").write_text("13.0,2,3,6.0\r\n")
    assert [(e.start, e.label) for e in read_events(tmp_path / "a.rec", TUEV.class_names, 10.0)] == [(2.0, 5)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty-annotations"),
        ("# version = csv_v1.0.0\n", "empty-annotations"),
        ("channel,start_time,stop_time,label,confidence\n", "empty-annotations"),
        ("TERM,0.0,1.0,bckg,1.0\n", "malformed-annotation"),  # no header
        ("channel,start_time,stop_time,label,confidence\nTERM,0.0,1.0,seiz,1.0\n", "unknown-label"),
        ("channel,start_time,stop_time,label,confidence\nNOSE-EAR,0.0,1.0,bckg,1.0\n", "malformed-annotation"),
    ],
)
def test_wrong_csv_files_are_told(tmp_path, text, kind):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UnusableRecording) as found:
        read_events(tmp_path / "a.csv", TUEV.class_names, 10.0)
    assert found.value.kind == kind


def test_a_corpus_with_csv_files_gives_the_same_windows(tmp_path):
    sizes = {"train": 1, "evaluation": 1, "seconds": 10, "events": 2}
    for form in ("rec", "csv"):
        write_tuev(tmp_path / form, **sizes, annotations=form)
        build(tmp_path / form, tmp_path / f"{form}-cache", corpus="tuev")
    rec, csv = (Corpus.open(tmp_path / f"{form}-cache") for form in ("rec", "csv"))
    assert rec.fingerprint == csv.fingerprint
