"""Windows are read from disk as they are asked for; parts share no subject."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader

from gbwatt.clinical.corpora import CacheError, Corpus
from gbwatt.clinical.corpora import cache as caches
from gbwatt.clinical.corpora.cache import PARTS
from gbwatt.clinical.corpora.layout import CachedRecording, FileState, run_lengths
from gbwatt.data import DataError, MissingFileError
from gbwatt.errors import ParameterError, ShapeError
from tests.clinical.corpora import damage


@pytest.fixture(params=["tuab", "tuev"])
def corpus(request, caches):
    return Corpus.open(caches[request.param])


@pytest.fixture
def part(caches):
    return Corpus.open(caches["tuab"]).part("train")


def test_what_the_windows_are_is_known_from_the_manifest(corpus):
    expected = {
        "tuab": (2000, ("normal", "abnormal")),
        "tuev": (1000, ("spsw", "gped", "pled", "eyem", "artf", "bckg")),
    }
    assert (corpus.n_times, corpus.class_names) == expected[corpus.name]
    assert (corpus.sfreq, corpus.montage, len(corpus.ch_names)) == (200.0, "referential23", 23)
    assert corpus.skipped == ()
    assert len(corpus.fingerprint) == 64
    assert corpus.name in repr(corpus)


def test_parts_divide_the_subjects_and_all_windows(corpus):
    parts = {name: corpus.part(name) for name in PARTS}
    subjects = {name: set(part.subjects.tolist()) for name, part in parts.items()}
    assert sum(map(len, subjects.values())) == len(set().union(*subjects.values()))
    assert sum(map(len, parts.values())) == sum(recording.n_windows for recording in corpus.recordings)
    assert {recording.split for recording in parts["eval"].recordings} == {"eval"}
    assert {r.split for name in ("train", "valid") for r in parts[name].recordings} == {"train"}
    for part in parts.values():
        assert part.labels.dtype == np.int64
        assert len(part) == len(part.labels) == len(part.subjects)


def test_validation_subjects_are_drawn_by_the_seed(corpus):
    def drawn(**options):
        return sorted(set(corpus.part("valid", **options).subjects.tolist()))

    assert drawn() == drawn()
    assert len({tuple(drawn(seed=seed)) for seed in range(12)}) > 1
    assert len(drawn(valid_fraction=0.5)) > len(drawn())
    everyone = {recording.subject for recording in corpus.recordings if recording.split == "train"}
    assert set(corpus.part("train", valid_fraction=0).subjects.tolist()) == everyone


def made_up(subject, *labels, content=None):
    state = FileState(1, 1, content or f"{subject}{labels}")
    return CachedRecording(
        f"train/{subject}.edf", "train", subject, len(labels), run_lengths(np.array(labels)), "f", 1, "x", state
    )


@pytest.mark.parametrize("seed", range(8))
def test_subjects_that_share_a_recording_are_on_one_side(seed):
    """Two names for one person: a window of training would be in validation, too."""
    shared = [made_up("a", 0, content="same"), made_up("b", 0, content="same"), made_up("b", 1, content="more")]
    recordings = [*shared, made_up("c", 1, content="more"), made_up("d", 0), made_up("e", 1)]
    chosen = caches._draw_validation_subjects(recordings, 0.4, seed)
    assert len(chosen & {"a", "b", "c"}) in (0, 3)
    assert 0 < len(chosen) < 5


@pytest.mark.parametrize("seed", range(5))
def test_validation_subjects_have_the_rare_classes_too(seed):
    """10 of 100 subjects have a class that no other has: 2 of these are among 20 for validation."""
    recordings = [made_up(f"s{number:03d}", *([5, 5, 0] if number % 10 == 0 else [5, 5])) for number in range(100)]
    valid = caches._draw_validation_subjects(recordings, 0.2, seed)
    assert len(valid) == 20
    assert sum(int(subject[1:]) % 10 == 0 for subject in valid) == 2


def test_a_subject_with_both_classes_is_in_one_part():
    recordings = [made_up("both", 0, 0), made_up("both", 1, 1), made_up("other", 0)]
    assert caches._draw_validation_subjects(recordings, 0.5, 0) in ({"both"}, {"other"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("test",), "part='test'"),
        (("valid", 0), "no windows with valid_fraction=0"),
        (("valid", 1.0), "below 1"),
        (("valid", -0.1), "at least 0"),
        (("valid", 0.2, -1), "seed=-1"),
    ],
)
def test_wrong_arguments_of_parts_are_told(caches, arguments, words):
    with pytest.raises(ParameterError, match=words):
        Corpus.open(caches["tuab"]).part(*arguments)


def test_one_training_subject_cannot_be_divided():
    with pytest.raises(ParameterError, match="one training subject"):
        caches._draw_validation_subjects([made_up("one", 0)], 0.2, 0)


# ---- windows


def test_windows_are_those_of_the_files_in_any_order(part):
    whole = np.concatenate([np.load(part.cache / recording.file) for recording in part.recordings])
    order = np.random.default_rng(0).permutation(len(part))
    windows, labels = part.read(order)
    np.testing.assert_array_equal(windows, whole[order])
    np.testing.assert_array_equal(labels, part.labels[order])
    assert windows.dtype == np.float32
    assert windows.shape == (len(part), 23, 2000)


def test_a_window_is_an_array_of_its_own_and_a_number(part):
    window, label = part[3]
    np.testing.assert_array_equal(window, part.read([3])[0][0])
    assert type(label) is int
    assert label == part.labels[3]
    window[:] = 0
    assert part[3][0].any()
    np.testing.assert_array_equal(part[-1][0], part[len(part) - 1][0])
    np.testing.assert_array_equal(part.read([2, 2, -1])[0], np.stack([part[2][0], part[2][0], part[-1][0]]))


def test_no_windows_are_an_array_of_none(part):
    windows, labels = part.read([])
    assert (windows.shape, labels.shape) == ((0, 23, 2000), (0,))


@pytest.mark.parametrize("index", [10_000, -10_000])
def test_a_window_that_is_not_there_is_an_index_error(part, index):
    with pytest.raises(IndexError, match=str(index)):
        part[index]
    assert len([*part]) == len(part)  # iteration ends by it


@pytest.mark.parametrize("indices", [[0.5], [[0, 1]], 3, ["a"]])
def test_indices_are_whole_numbers(part, indices):
    with pytest.raises(ShapeError, match="integers"):
        part.read(indices)


def test_no_file_stays_open(part):
    before = set(Path("/proc/self/maps").read_text().splitlines())
    windows = part.read(range(len(part)))[0]
    new = set(Path("/proc/self/maps").read_text().splitlines()) - before
    assert len(windows) == len(part)
    assert not [line for line in new if line.endswith(".npy")]


def test_a_part_can_be_pickled_without_its_windows(part):
    before = part.read([0, 5])
    assert len(part.subjects) == len(part)
    content = pickle.dumps(part)
    assert len(content) < 20_000
    again = pickle.loads(content)
    np.testing.assert_array_equal(again.read([0, 5])[0], before[0])
    np.testing.assert_array_equal(again.subjects, part.subjects)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_torch_loads_batches_of_it(part, num_workers):
    context = "fork" if num_workers else None
    loader = DataLoader(part, batch_size=4, num_workers=num_workers, multiprocessing_context=context)
    windows, labels = zip(*loader, strict=True)
    np.testing.assert_array_equal(np.concatenate([x.numpy() for x in windows]), part.read(range(len(part)))[0])
    np.testing.assert_array_equal(np.concatenate([y.numpy() for y in labels]), part.labels)


def test_labels_cannot_be_changed_by_mistake(part):
    with pytest.raises(ValueError, match="read-only"):
        part.labels[0] = 1


# ---- damage of the cache


@pytest.fixture
def copy(caches, tmp_path):
    return shutil.copytree(caches["tuab"], tmp_path / "cache")


def test_a_sound_cache_is_verified(corpus):
    corpus.verify()


def test_damage_of_a_cache_is_found_and_named(copy):
    corpus = Corpus.open(copy)
    files = [recording.file for recording in corpus.recordings]
    damage.flip(copy / files[0])
    damage.truncate(copy / files[1])
    (copy / files[2]).unlink()
    with pytest.raises(CacheError) as found:
        corpus.verify()
    for words in (f"{files[0]} has another content", f"{files[1]} has", f"{files[2]} does not exist", "3 of"):
        assert words in str(found.value)


def test_a_damaged_file_is_an_error_when_it_is_read(copy):
    part = Corpus.open(copy).part("eval")
    damage.truncate(copy / part.recordings[0].file)
    with pytest.raises(DataError, match="build the cache again"):
        part[0]
    (copy / part.recordings[0].file).unlink()
    with pytest.raises(MissingFileError, match="does not exist"):
        part[0]


def test_what_is_no_cache_is_told(tmp_path):
    with pytest.raises(CacheError, match="not the cache of a corpus"):
        Corpus.open(tmp_path)


def test_the_fingerprint_is_of_the_content(copy, caches):
    corpus = Corpus.open(copy)
    assert corpus.fingerprint == Corpus.open(caches["tuab"]).fingerprint  # and not of the place
    file = copy / "manifest.jsonl"
    file.write_text(file.read_text().replace('"labels": [[1, 2]]', '"labels": [[0, 2]]', 1))
    assert Corpus.open(copy).fingerprint != corpus.fingerprint
