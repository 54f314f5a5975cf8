"""``gbwatt corpus`` as a user meets it."""

from __future__ import annotations

import json

import pytest

from gbwatt.cli import clinical as command
from gbwatt.clinical.corpora import Corpus
from tests.clinical.corpora import damage
from tests.clinical.corpora.synthetic import write_tuab, write_tuev


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Both corpora; not to be changed."""
    root = tmp_path_factory.mktemp("corpora")
    write_tuab(root / "tuab", train=2, evaluation=1, seconds=12, sfreq=200)
    write_tuev(root / "tuev", train=2, evaluation=3, seconds=10, events=2, sfreq=200)
    return root


@pytest.fixture
def harmed(tmp_path):
    """A corpus with two truncated recordings and a copy."""
    root = write_tuab(tmp_path / "tuab", train=2, evaluation=1, seconds=12, sfreq=200)
    files = sorted((root / "edf" / "train").rglob("*.edf"))
    for file in files[:2]:
        damage.truncate(file)
    files[2].with_name("aaaaaaaz_s001_t000.edf").write_bytes(files[2].read_bytes())
    return root


def test_a_corpus_is_built_described_and_checked(run, run_json, small, tmp_path):
    cache = tmp_path / "cache"
    built = run("corpus", "build", small / "tuev", cache, "--corpus", "tuev", "--jobs", 1)
    assert built.exit_code == 0, built.output
    for words in ("8 recordings are cached, 8 of them new: 16 windows", f"gbwatt corpus describe {cache}"):
        assert words in built.output
    found = run_json("corpus", "describe", cache)
    assert found["parts"]["eval"]["subjects"] == 3
    assert found["parts"]["eval"]["classes"] == dict.fromkeys(("spsw", "gped", "pled", "eyem", "artf", "bckg"), 2)
    assert [found["parts"][name]["subjects"] for name in ("train", "valid")] == [1, 1]
    assert (found["skipped"], found["notes"], found["n_times"]) == ([], [], 1000)
    assert found["bytes"] == sum(file.stat().st_size for file in cache.rglob("*.npy"))
    shown = run("corpus", "describe", cache)
    assert shown.exit_code == 0
    for words in (
        "16 windows of 23 channels",
        "band-pass 0.1-75 Hz",
        "notch 60 Hz",
        "bckg",
        "No recording was skipped",
    ):
        assert words in shown.output
    assert run_json("corpus", "check", cache)["fingerprint"] == Corpus.open(cache).fingerprint
    assert "8 files match the manifest" in run("corpus", "check", cache).output


def test_options_reach_the_cache(run, small, tmp_path):
    options = ("--corpus", "tuab", "--montage", "referential23", "--notch", 50, "--jobs", 1)
    assert run("corpus", "build", small / "tuab", tmp_path / "cache", *options).exit_code == 0
    corpus = Corpus.open(tmp_path / "cache")
    assert (corpus.name, corpus.montage, len(corpus.ch_names)) == ("tuab", "referential23", 23)
    assert {"step": "notch", "freq": [50.0], "width": 2.0} in corpus.header["steps"]


def test_damaged_recordings_are_counted_listed_and_told_by_the_exit_code(run, harmed, tmp_path):
    cache = tmp_path / "cache"
    for _ in range(2):  # the second call says the same
        done = run("corpus", "build", harmed, cache, "--corpus", "tuab", "--jobs", 1)
        assert done.exit_code == command.SOME_DAMAGED == 3
        for words in ("3 recordings were skipped", str(cache / "manifest.jsonl"), "truncated", "duplicate"):
            assert words in done.output.replace("\n", "")
    done = run("corpus", "build", harmed, cache, "--corpus", "tuab", "--jobs", 1, "--json")
    assert done.exit_code == 3
    document = json.loads(done.stdout)
    assert document["skipped"] == {"truncated": 2, "duplicate": 1}
    assert (document["new"], document["recordings"]) == (0, 4)
    shown = run("corpus", "describe", cache).output
    assert "the same content as train/" in shown
    assert shown.count("skipped (truncated): ") == 2


def test_long_lists_of_skipped_recordings_are_cut(run, harmed, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "SHOWN", 1)
    run("corpus", "build", harmed, tmp_path / "cache", "--corpus", "tuab", "--jobs", 1)
    shown = run("corpus", "describe", tmp_path / "cache").output
    assert shown.count("skipped (truncated): ") == 1
    assert "… and 1 more (truncated)" in shown


def test_what_the_protocol_leaves_out_is_no_failure(run, tmp_path):
    root = write_tuab(tmp_path / "tuab", train=1, evaluation=1, seconds=12, sfreq=200)
    file = next((root / "edf" / "train").rglob("*.edf"))
    file.with_name("aaaaaaaz_s001_t000.edf").write_bytes(file.read_bytes())
    done = run("corpus", "build", root, tmp_path / "cache", "--corpus", "tuab", "--jobs", 1)
    assert done.exit_code == 0
    assert "1 recordings were skipped" in done.output


def test_ctrl_c_says_what_is_done(run, small, tmp_path, monkeypatch):
    real = command.build_cache

    def build(*arguments, on_progress, **options):
        def watch(progress):
            on_progress(progress)
            raise KeyboardInterrupt

        return real(*arguments, **options, on_progress=watch)

    monkeypatch.setattr(command, "build_cache", build)
    done = run("corpus", "build", small / "tuab", tmp_path / "cache", "--corpus", "tuab", "--jobs", 1)
    assert done.exit_code == 130
    assert "Interrupted. 1 recordings are done, 5 are left" in done.output


def test_a_cache_with_one_training_subject_is_described(run_json, run, tmp_path):
    root = write_tuev(tmp_path / "tuev", train=1, evaluation=1, seconds=10, events=2, sfreq=200)
    run("corpus", "build", root, tmp_path / "cache", "--corpus", "tuev", "--jobs", 1)
    found = run_json("corpus", "describe", tmp_path / "cache")
    assert list(found["parts"]) == ["eval"]
    assert "one training subject" in found["notes"][0]
    assert list(run_json("corpus", "describe", tmp_path / "cache", "--valid-fraction", 0)["parts"]) == ["train", "eval"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["build", "{root}/tuab", "cache", "--corpus", "tuap"], "Did you mean 'tuab'?"),
        (["build", "{root}/tuab", "cache", "--corpus", "tuab", "--montage", "bipolar"], "Did you mean 'bipolar16'?"),
        (["build", "{root}/tuab", "cache", "--corpus", "tuab", "--notch", "80"], "notch=80"),
        (["build", "{root}/tuev", "cache", "--corpus", "tuab"], "no folder train/normal"),
        (["build", "/nowhere", "cache", "--corpus", "tuab"], "is not a folder"),
        (["describe", "/nowhere"], "not the cache of a corpus"),
        (["describe", "/nowhere", "--valid-fraction", "2"], "valid_fraction=2.0 must be at least 0 and below 1"),
        (["check", "/nowhere"], "not the cache of a corpus"),
    ],
)
def test_errors_are_a_line_and_exit_code_2(refused, small, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert words in refused("corpus", *(argument.format(root=small) for argument in arguments))


def test_a_damaged_cache_fails_its_check(run, refused, small, tmp_path):
    run("corpus", "build", small / "tuab", tmp_path / "cache", "--corpus", "tuab", "--jobs", 1)
    damage.flip(next((tmp_path / "cache").rglob("*.npy")))
    assert "has another content" in refused("corpus", "check", tmp_path / "cache")
