"""Caches are built once, go on after any interruption, and notice what has changed."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import resource
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from gbwatt.clinical.corpora import CacheError, Corpus, build
from gbwatt.clinical.corpora.cache import MANIFEST
from gbwatt.data import DataError
from tests.clinical.corpora import damage
from tests.clinical.corpora.synthetic import background, write_edf, write_tuab

FIRST = "edf/train/normal/01_tcp_ar/aaaaaaaa_s001_t000.edf"


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    """A cache that was built without interruption."""
    cache = tmp_path_factory.mktemp("whole")
    build(small / "tuab", cache, corpus="tuab")
    return Corpus.open(cache)


def lines(cache):
    return [json.loads(line) for line in (cache / MANIFEST).read_text().splitlines()]


def temporaries(cache):
    return [file for file in cache.rglob("*") if file.name.endswith(".tmp")]


# ---- what is written


def test_the_manifest_says_all_that_the_windows_depend_on(whole):
    header, begin, *records, end = lines(whole.cache)
    assert (header["corpus"], header["montage"]) == ("tuab", "referential23")
    assert (header["sfreq"], header["n_times"]) == (200, 2000)
    assert [step["step"] for step in header["steps"]] == ["band_pass", "notch", "resample"]
    assert {"format", "gbwatt", "ch_names", "class_names"} <= set(header)
    assert (begin["mark"], end["mark"]) == ("begin", "end")
    assert {record["path"] for record in records} == {recording.path for recording in whole.recordings}
    for record in records:
        assert len(record["source"]["sha256"]) == len(record["sha256"]) == 64
        assert record["file"] == f"windows/{record['path'][:-4]}.npy"
        assert np.load(whole.cache / record["file"]).shape == (record["n_windows"], 23, 2000)


def test_a_second_call_does_nothing(small, whole):
    before = {file: file.stat().st_mtime_ns for file in whole.cache.rglob("*")}
    built = build(small / "tuab", whole.cache, corpus="tuab")
    assert (built.new, built.n_recordings, built.n_windows, built.skipped) == (0, 4, 4, ())
    assert {file: file.stat().st_mtime_ns for file in whole.cache.rglob("*")} == before


def test_the_cache_does_not_depend_on_where_the_corpus_is(tuab, tmp_path, whole):
    build(tuab / "edf", tmp_path / "cache", corpus="tuab")
    assert Corpus.open(tmp_path / "cache").fingerprint == whole.fingerprint


def test_processes_give_the_same_cache(small, tmp_path, whole):
    seen = []
    built = build(small / "tuab", tmp_path / "cache", corpus="tuab", jobs=2, on_progress=seen.append)
    assert [(progress.done, progress.total) for progress in seen] == [(n, 4) for n in (1, 2, 3, 4)]
    assert {progress.entry.path for progress in seen} == {recording.path for recording in whole.recordings}
    assert built.new == 4
    assert Corpus.open(tmp_path / "cache").fingerprint == whole.fingerprint


# ---- interruptions


def interrupt(after):
    def watch(progress):
        if progress.done == after:
            raise KeyboardInterrupt

    return watch


def test_ctrl_c_leaves_a_cache_that_goes_on(small, tmp_path, whole):
    cache = tmp_path / "cache"
    with pytest.raises(KeyboardInterrupt):
        build(small / "tuab", cache, corpus="tuab", on_progress=interrupt(after=2))
    assert temporaries(cache) == []
    with pytest.raises(CacheError, match=f"not finished: 2 recordings.*gbwatt corpus build ROOT {cache} --corpus tuab"):
        Corpus.open(cache)
    assert build(small / "tuab", cache, corpus="tuab").new == 2
    assert Corpus.open(cache).fingerprint == whole.fingerprint


def killed(root, cache, where):
    """Build in a process that is killed after two recordings, or while it writes the third."""
    written = []

    def kill(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def watch(progress):
        written.append(progress)
        if where == "after" and len(written) == 2:
            kill()

    if where == "while":
        replace = Path.replace
        Path.replace = lambda self, target: kill() if len(written) == 2 else replace(self, target)
    build(root, cache, corpus="tuab", on_progress=watch)


@pytest.mark.parametrize("where", ["after", "while"])
def test_a_process_that_is_killed_loses_no_more_than_what_it_was_doing(small, tmp_path, whole, where):
    cache = tmp_path / "cache"
    process = multiprocessing.get_context("fork").Process(target=killed, args=(small / "tuab", cache, where))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert len(temporaries(cache)) == (where == "while")
    with (cache / MANIFEST).open("ab") as stream:  # and the last line may be torn
        stream.write(b'{"path": "train/nor')
    with pytest.raises(CacheError, match="not finished"):
        Corpus.open(cache)
    assert build(small / "tuab", cache, corpus="tuab").new == 2
    assert temporaries(cache) == []
    assert Corpus.open(cache).fingerprint == whole.fingerprint


@pytest.mark.parametrize("content", [b"", b'{"format": 1, "corp', b"\0\0\0\0\n"])
def test_a_manifest_that_was_torn_at_once_is_begun_anew(small, tmp_path, whole, content):
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / MANIFEST).write_bytes(content)
    with pytest.raises(CacheError, match="no header"):
        Corpus.open(cache)
    build(small / "tuab", cache, corpus="tuab")
    assert Corpus.open(cache).fingerprint == whole.fingerprint


def test_a_manifest_that_is_damaged_within_is_an_error(small, tmp_path):
    cache = tmp_path / "cache"
    build(small / "tuab", cache, corpus="tuab")
    content = (cache / MANIFEST).read_text().splitlines()
    (cache / MANIFEST).write_text("\n".join([*content[:2], content[2][:50], *content[3:]]) + "\n")
    for call in (lambda: Corpus.open(cache), lambda: build(small / "tuab", cache, corpus="tuab")):
        with pytest.raises(DataError, match="line 3"):
            call()


@pytest.mark.slow
def test_a_worker_that_is_killed_takes_no_recording_with_it(tmp_path):
    root = write_tuab(tmp_path / "tuab", train=6, evaluation=1, seconds=60)

    def watch(progress):
        if progress.done == 3:
            os.kill(next(iter(children())), signal.SIGKILL)

    built = build(root, tmp_path / "cache", corpus="tuab", jobs=2, on_progress=watch)
    assert (built.new, built.skipped) == (14, ())
    assert temporaries(tmp_path / "cache") == []


def children():
    """Worker processes of this one."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_text()
        except OSError:
            continue
        if parent == os.getpid() and "popen_loky" in command:
            yield int(folder.name)


@pytest.mark.slow
def test_ctrl_c_ends_all_processes(small, tmp_path, whole):
    cache = tmp_path / "cache"
    with pytest.raises(KeyboardInterrupt):
        build(small / "tuab", cache, corpus="tuab", jobs=2, on_progress=interrupt(after=1))
    assert temporaries(cache) == []
    build(small / "tuab", cache, corpus="tuab")
    assert Corpus.open(cache).fingerprint == whole.fingerprint


# ---- changes


def test_a_changed_recording_is_read_again_and_a_touched_one_is_not(tuab, tmp_path):
    cache = tmp_path / "cache"
    build(tuab, cache, corpus="tuab")
    before = Corpus.open(cache).fingerprint
    os.utime(tuab / FIRST)
    assert build(tuab, cache, corpus="tuab").new == 0
    assert Corpus.open(cache).fingerprint == before
    write_edf(tuab / FIRST, background(np.random.default_rng(1), 12, 200), 200)  # as many bytes
    assert build(tuab, cache, corpus="tuab").new == 1
    assert Corpus.open(cache).fingerprint != before


def test_changed_annotations_are_read_again(tuev, tmp_path):
    cache = tmp_path / "cache"
    build(tuev, cache, corpus="tuev")
    rec = tuev / "edf/train/aaaaaaaa/aaaaaaaa_00000001.rec"
    rec.write_text("0,2.0,3.0,6\n")
    assert build(tuev, cache, corpus="tuev").new == 1
    (recording,) = (r for r in Corpus.open(cache).recordings if r.subject == "aaaaaaaa")
    assert recording.labels == ((5, 1),)


def test_a_new_recording_is_added(tuab, tmp_path):
    build(tuab, tmp_path / "cache", corpus="tuab")
    write_tuab(tmp_path / "more", train=2, evaluation=1, seconds=12, seed=1)
    new = "edf/train/normal/01_tcp_ar/aaaaaaab_s001_t000.edf"
    (tmp_path / "more" / new).rename((tuab / new).with_name("aaaaaaax_s001_t000.edf"))
    built = build(tuab, tmp_path / "cache", corpus="tuab")
    assert (built.new, built.n_recordings) == (1, 5)


@pytest.mark.parametrize("harm", [Path.unlink, damage.truncate])
def test_windows_that_are_lost_are_made_again(tuab, tmp_path, harm):
    build(tuab, tmp_path / "cache", corpus="tuab")
    before = Corpus.open(tmp_path / "cache").fingerprint
    harm(next((tmp_path / "cache").rglob("*.npy")))
    assert build(tuab, tmp_path / "cache", corpus="tuab").new == 1
    Corpus.open(tmp_path / "cache").verify()
    assert Corpus.open(tmp_path / "cache").fingerprint == before


def test_a_subject_who_comes_into_the_evaluation_leaves_training(tuab, tmp_path):
    build(tuab, tmp_path / "cache", corpus="tuab")
    file = next((tuab / "edf/eval/normal").rglob("*.edf"))
    file.rename(file.with_name("aaaaaaaa_s009_t000.edf"))
    built = build(tuab, tmp_path / "cache", corpus="tuab")
    assert built.skipped_kinds == {"subject-in-both": 1, "gone": 1}
    assert not (tmp_path / "cache" / "windows" / FIRST.removeprefix("edf/")).with_suffix(".npy").exists()
    corpus = Corpus.open(tmp_path / "cache")
    parts = [set(corpus.part(name, valid_fraction=0).subjects.tolist()) for name in ("train", "eval")]
    assert parts[0].isdisjoint(parts[1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"montage": "bipolar16"}, "montage is 'referential23' there and 'bipolar16' here"),
        ({"notch": 50.0}, "notch.*60.0.* there and .*50.0.* here"),
    ],
)
def test_a_cache_with_other_settings_is_refused(small, whole, arguments, words):
    before = (whole.cache / MANIFEST).read_bytes()
    with pytest.raises(CacheError, match=words):
        build(small / "tuab", whole.cache, corpus="tuab", **arguments)
    assert (whole.cache / MANIFEST).read_bytes() == before


def test_a_cache_of_another_corpus_is_refused(small, whole):
    with pytest.raises(CacheError, match="corpus is 'tuab' there and 'tuev' here"):
        build(small / "tuev", whole.cache, corpus="tuev")


def test_a_cache_of_another_format_is_refused(tuab, tmp_path):
    build(tuab, tmp_path / "cache", corpus="tuab")
    file = tmp_path / "cache" / MANIFEST
    file.write_text(file.read_text().replace('"format": 1', '"format": 99', 1))
    with pytest.raises(DataError, match="format 99; expected format 1"):
        Corpus.open(tmp_path / "cache")


# ---- what the system refuses


def test_two_builds_of_one_cache_are_refused(small, tmp_path):
    def again(_):
        build(small / "tuab", tmp_path / "cache", corpus="tuab")

    with pytest.raises(CacheError, match="another process"):
        build(small / "tuab", tmp_path / "cache", corpus="tuab", on_progress=again)


def test_the_lock_ends_with_the_build_though_a_process_has_inherited_it(small, tmp_path):
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))

    def watch(progress):
        if progress.done == 1:
            process.start()

    try:
        build(small / "tuab", tmp_path / "cache", corpus="tuab", on_progress=watch)
        assert process.is_alive()
        assert build(small / "tuab", tmp_path / "cache", corpus="tuab").new == 0
    finally:
        process.kill()
        process.join()


def test_a_file_system_without_locks_will_do(small, tmp_path, monkeypatch, whole):
    def refuse(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    build(small / "tuab", tmp_path / "cache", corpus="tuab")
    assert Corpus.open(tmp_path / "cache").fingerprint == whole.fingerprint


def test_a_full_disk_is_told_and_leaves_nothing_torn(small, tmp_path, whole):
    """A limit of the system on the size of files stands for the disk: the write itself fails."""
    cache, limits = tmp_path / "cache", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(CacheError, match=r"windows/eval.*cannot be written \(File too large\).*same command"):
            build(small / "tuab", cache, corpus="tuab")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert temporaries(cache) == [] == list(cache.rglob("*.npy"))
    build(small / "tuab", cache, corpus="tuab")
    assert Corpus.open(cache).fingerprint == whole.fingerprint


def test_a_cache_that_cannot_be_written_is_told(small, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot be written"):
        build(small / "tuab", tmp_path / "file" / "cache", corpus="tuab")


def test_a_corpus_of_damaged_recordings_only_has_no_windows(tuab, tmp_path):
    for file in tuab.rglob("*.edf"):
        damage.truncate(file)
    built = build(tuab, tmp_path / "cache", corpus="tuab")
    assert (built.n_windows, built.skipped_kinds) == (0, {"truncated": 4})
    with pytest.raises(CacheError, match=r"no windows.*4 truncated"):
        Corpus.open(tmp_path / "cache")
