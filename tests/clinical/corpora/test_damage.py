"""Every kind of damage, in real files: the recording is listed with a reason, and all others are cached."""

from __future__ import annotations

import shutil
from pathlib import Path

import edfio
import numpy as np
import pytest

from gbwatt.clinical.corpora import KINDS, NO_DAMAGE, Corpus, build, windows
from tests.clinical.corpora import damage
from tests.clinical.corpora.synthetic import LABELS, RANGE, background, write_edf

RNG = np.random.default_rng(5)
AB, EV = "train/normal/01_tcp_ar/aaaaaaaa_s001_t000", "train/aaaaaaaa/aaaaaaaa_00000001"
AB_EVAL = "eval/normal/01_tcp_ar/aaaaaaac_s001_t000"


def recording(seconds=12.0, sfreq=250.0):
    return background(RNG, seconds, sfreq)


def rename(file):
    file.rename(file.with_name("recording one.edf"))
    return "train/normal/01_tcp_ar/recording one.edf"


def subject_of_evaluation(file):
    new = file.with_name("aaaaaaac_s002_t000.edf")
    write_edf(new, recording(), 250)
    return "train/normal/01_tcp_ar/aaaaaaac_s002_t000.edf"


def copy(file):
    shutil.copy(file, file.with_name("aaaaaaaz_s001_t000.edf"))
    return "train/normal/01_tcp_ar/aaaaaaaz_s001_t000.edf"


def copy_of_evaluation(file):
    shutil.copy(file.parents[3] / f"{AB_EVAL}.edf", file)


def relabelled_copy(file):  # abnormal comes before normal
    shutil.copy(file, file.parents[2] / "abnormal/01_tcp_ar/aaaaaaaz_s001_t000.edf")


def dangling(file):
    file.unlink()
    file.symlink_to("nowhere.edf")


def without_channel(file):
    write_edf(file, recording()[:-1], 250, LABELS[:14] + LABELS[15:])


def mixed_rates(file):
    rates = [256.0 if label == "EEG O2-REF" else 250.0 for label in LABELS]
    signals = [
        edfio.EdfSignal(RNG.standard_normal(int(12 * rate)), rate, label=label, physical_dimension="uV")
        for label, rate in zip(LABELS, rates, strict=True)
    ]
    edfio.Edf(signals, data_record_duration=1.0).write(file)


def flat_channel(file):
    x = recording()
    x[LABELS.index("EEG C3-REF")] = x[LABELS.index("EEG P3-REF")] = 0
    write_edf(file, x, 250)


def annotated(text):
    return lambda file: file.with_suffix(".rec").write_text(text)


# kind, corpus, what is done to a recording, words of the reason
CASES = [
    ("unknown-name", "tuab", rename, "aaaaaaaq_s004_t000.edf"),
    ("subject-in-both", "tuab", subject_of_evaluation, "aaaaaaac"),
    ("duplicate", "tuab", copy, AB),
    ("duplicate", "tuab", copy_of_evaluation, AB_EVAL),
    ("duplicate", "tuab", relabelled_copy, "under another label"),
    ("unreadable", "tuab", dangling, "No such file"),
    ("not-edf", "tuab", lambda file: file.write_bytes(b""), "0 bytes"),
    ("not-edf", "tuab", lambda file: file.write_text("<html>Access denied</html>" * 50), "<html>"),
    (
        "damaged-header",
        "tuab",
        lambda file: damage.patch(file, damage.N_RECORDS, "2", 8),
        "2 records, as its header says",
    ),
    ("discontinuous", "tuab", lambda file: damage.patch(file, damage.RESERVED, "EDF+D", 44), "gaps"),
    ("truncated", "tuab", damage.truncate, "of 12.0 s"),
    ("missing-channel", "tuab", without_channel, "T5 of the 23 electrodes"),
    ("wrong-unit", "tuab", lambda file: damage.patch_signal(file, damage.UNIT, "mmHg", 4), "C3 is in 'mmHg'"),
    ("wrong-rate", "tuab", lambda file: write_edf(file, recording(sfreq=128), 128), "more than 150 Hz"),
    ("wrong-rate", "tuab", mixed_rates, "one rate is needed"),
    ("wrong-rate", "tuab", lambda file: damage.patch(file, damage.RECORD_SECONDS, "0.99871", 8), "not in a ratio"),
    ("too-short", "tuab", lambda file: write_edf(file, recording(9), 250), "9 s; a window has 10 s"),
    ("too-short", "tuev", lambda file: write_edf(file, recording(4), 250), "4 s; a window has 5 s"),
    ("missing-annotations", "tuev", lambda file: file.with_suffix(".rec").unlink(), "neither a .rec nor a .csv"),
    ("empty-annotations", "tuev", annotated("\n# nothing\n"), "no events"),
    ("malformed-annotation", "tuev", annotated("1,2.0,3.0,6\n1,2.0,6\n"), "line 2: found '1,2.0,6'"),
    ("malformed-annotation", "tuev", annotated("1,soon,3.0,6\n"), "line 1"),
    ("malformed-annotation", "tuev", annotated("1,3.0,2.0,6\n"), "0 <= start < stop"),
    ("malformed-annotation", "tuev", annotated("1,nan,2.0,6\n"), "line 1"),
    ("malformed-annotation", "tuev", annotated("22,1.0,2.0,6\n"), "line 1"),
    ("malformed-annotation", "tuev", annotated("\x00\x93\xff\n"), "line 1"),
    ("unknown-label", "tuev", annotated("1,2.0,3.0,6\n1,2.0,3.0,7\n"), "line 2: label '7'"),
    ("unknown-label", "tuev", annotated("1,2.0,3.0,seiz\n"), "spsw, gped, pled"),
    ("annotation-beyond-end", "tuev", annotated("1,2.0,3.0,6\n1,11.5,12.5,6\n"), "12.5 s in a recording of 12 s"),
    ("flat", "tuab", flat_channel, "C3 is "),
    ("not-finite", "tuab", lambda file: damage.patch_signal(file, damage.DIGITAL_MAX, "-32768"), "FP1 has NaN"),
    ("not-finite", "tuab", lambda file: damage.patch_signal(file, damage.PHYSICAL_MAX, "nan"), "FP1 has NaN"),
]


@pytest.mark.parametrize(("kind", "corpus", "harm", "words"), CASES)
def test_a_damaged_recording_is_listed_and_the_others_are_cached(request, tmp_path, kind, corpus, harm, words):
    root = request.getfixturevalue(corpus)
    before = len(list(root.rglob("*.edf")))
    path = harm(root / "edf" / f"{AB if corpus == 'tuab' else EV}.edf")
    path = path if isinstance(path, str) else f"{AB if corpus == 'tuab' else EV}.edf"
    added = len(list(root.rglob("*.edf"))) - before
    built = build(root, tmp_path / "cache", corpus=corpus)
    (skipped,) = built.skipped
    assert (skipped.path, skipped.kind) == (path, kind)
    assert words in skipped.reason
    assert built.n_recordings == before - 1 + added
    assert bool(built.damaged) == (kind not in NO_DAMAGE)
    opened = Corpus.open(tmp_path / "cache")
    assert opened.skipped == built.skipped
    opened.verify()
    again = build(root, tmp_path / "cache", corpus=corpus)  # nothing is said twice
    assert again.new == 0
    assert again.skipped == built.skipped


def test_every_kind_of_damage_has_a_case():
    elsewhere = {"failed", "gone"}  # below
    assert {kind for kind, *_ in CASES} | elsewhere == set(KINDS)


def test_an_error_that_is_not_foreseen_is_listed_and_tried_again(tuab, tmp_path, monkeypatch):
    read = windows.read_windows

    def fail(file, *arguments):
        if "aaaaaaaa" in file.name:
            raise RuntimeError("unforeseen")
        return read(file, *arguments)

    monkeypatch.setattr(windows, "read_windows", fail)
    built = build(tuab, tmp_path / "cache", corpus="tuab")
    assert [(s.kind, s.reason) for s in built.skipped] == [("failed", "RuntimeError: unforeseen")]
    monkeypatch.undo()
    assert build(tuab, tmp_path / "cache", corpus="tuab").skipped == ()


def test_a_process_that_dies_twice_is_listed_and_tried_again(tuab, tmp_path, monkeypatch):
    def die(work, jobs, _workers, **_):  # of one recording, each time
        for job in jobs:
            yield job, None if "aaaaaaaa" in job.recording.path else work(job)

    monkeypatch.setattr(windows, "run_in_processes", die)
    built = build(tuab, tmp_path / "cache", corpus="tuab", jobs=2)
    assert [(s.path, s.kind) for s in built.skipped] == [(f"{AB}.edf", "failed")]
    assert built.new == 3
    assert build(tuab, tmp_path / "cache", corpus="tuab").new == 1


def test_a_recording_that_vanishes_is_listed_and_its_windows_go(tuab, tmp_path):
    build(tuab, tmp_path / "cache", corpus="tuab")
    (tuab / "edf" / f"{AB}.edf").unlink()
    built = build(tuab, tmp_path / "cache", corpus="tuab")
    assert [(s.path, s.kind) for s in built.skipped] == [(f"{AB}.edf", "gone")]
    assert built.damaged == ()
    assert len(list((tmp_path / "cache").rglob("*.npy"))) == built.n_recordings == 3


def test_a_damaged_recording_that_is_deleted_is_forgotten(tuab, tmp_path):
    file = tuab / "edf" / f"{AB}.edf"
    damage.truncate(file)
    assert build(tuab, tmp_path / "cache", corpus="tuab").skipped_kinds == {"truncated": 1}
    file.unlink()
    assert build(tuab, tmp_path / "cache", corpus="tuab").skipped == ()
    assert Corpus.open(tmp_path / "cache").skipped == ()


def test_a_damaged_recording_that_is_mended_is_cached(tuev, tmp_path):
    rec = tuev / "edf" / f"{EV}.rec"
    text = rec.read_text()
    rec.unlink()
    assert build(tuev, tmp_path / "cache", corpus="tuev").skipped_kinds == {"missing-annotations": 1}
    rec.write_text(text)
    built = build(tuev, tmp_path / "cache", corpus="tuev")
    assert (built.new, built.skipped) == (1, ())


def test_copies_with_other_events_are_used_within_a_part_and_not_across(tuev, tmp_path):
    folder = tuev / "edf/eval/000"
    source = folder / "gped_000_a_.edf"
    shutil.copy(source, folder / "gped_000_a_1.edf")
    (folder / "gped_000_a_1.rec").write_text("3,4.0,5.0,6\n")
    shutil.copy(source, tuev / "edf" / f"{EV}.edf")
    built = build(tuev, tmp_path / "cache", corpus="tuev")
    assert [(s.path, s.kind) for s in built.skipped] == [(f"{EV}.edf", "duplicate")]
    assert "eval/000/gped_000_a_1.edf" in {r.path for r in Corpus.open(tmp_path / "cache").recordings}


def test_channels_of_other_montages_may_be_damaged(tuab, tmp_path):
    x = recording()
    x[LABELS.index("EEG T1-REF")] = 0
    write_edf(tuab / "edf" / f"{AB}.edf", x, 250)
    assert build(tuab, tmp_path / "bipolar", corpus="tuab", montage="bipolar16").skipped == ()
    skipped = build(tuab, tmp_path / "referential", corpus="tuab", montage="referential23").skipped
    assert [(s.kind, s.reason.split()[0]) for s in skipped] == [("flat", "T1")]


def test_samples_at_the_end_of_the_range_are_no_damage(tuab, tmp_path):
    x = recording()
    x[0, 1000:2000] = RANGE
    write_edf(tuab / "edf" / f"{AB}.edf", x, 250)
    assert build(tuab, tmp_path / "cache", corpus="tuab").skipped == ()


def test_the_page_about_corpora_names_every_kind():
    page = (Path(__file__).parents[3] / "docs" / "corpora.md").read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert rows == list(KINDS)
