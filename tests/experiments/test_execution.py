"""Runs: what they are made of, and what they leave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gbwatt.data import MissingFileError, find_dataset, load
from gbwatt.data.loading import fingerprint
from gbwatt.decoding.alignment import EuclideanAlignment
from gbwatt.decoding.estimator import EEGDecoder
from gbwatt.decoding.evaluation import scores
from gbwatt.errors import MismatchError
from gbwatt.experiments.execution import (
    _load_aligned_sources,
    _pretrain,
    attempt,
    execute,
    load_parts,
    make_decoder,
    with_test_noise,
)
from gbwatt.experiments.runner import count_workers, group_runs
from gbwatt.experiments.runs import Run

SMALL = {"max_epochs": 1}


@pytest.fixture
def run() -> Run:
    data = fingerprint("simulated-ssvep", 1)
    return Run("simulated-ssvep", 1, "spdnet", seed=0, data=data, training=SMALL)


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_same_run_gives_the_same_numbers_and_another_seed_others(run):
    (one,), (two,), (other,) = (execute([r]) for r in (run, run, replace(run, seed=1)))
    assert (one.accuracy, one.loss, one.history) == (two.accuracy, two.loss, two.history)
    assert one.loss != other.loss


@pytest.mark.parametrize(
    "options, variant", [({}, "linear"), ({"p": 4}, "linear"), ({"variant": "original"}, "original")]
)
def test_a_run_of_gdlnet_builds_the_network_of_its_record(run, options, variant):
    decoder = make_decoder(replace(run, model="gdlnet", options=options), None)
    assert decoder.model_options == {**options, "variant": variant}


def test_a_row_says_what_was_done(run):
    (row,) = attempt([replace(run, model="gbwatt")])
    assert row.status == "done"
    assert Run.from_dict(row.run).key == row.key
    assert row.trials == {"train": 300, "valid": 100, "test": 100}
    assert np.sum(row.confusion) == 100
    assert row.accuracy == pytest.approx(np.trace(row.confusion) / 100)
    assert sum(each["n"] for each in row.per_class.values()) == 100
    assert 0 <= row.conditions["after"]["share"] <= row.conditions["before"]["share"] <= 1
    assert row.parameters == 72339
    assert {"gbwatt", "torch", "python"} <= set(row.versions)
    assert len(row.history["valid_loss"]) == row.epochs == 1


@pytest.mark.parametrize(
    "change",
    [
        {"subject": 2},
        {"model": "matt"},
        {"seed": 1},
        {"data": "other"},
        {"options": {"k": 5}},
        {"training": {"max_epochs": 3}},
        {"fraction": 0.5},
        {"noise": 0.2},
        {"noise": 0.2, "noisy_training": True},
    ],
)
def test_all_that_determines_a_result_is_in_the_key(run, change):
    assert replace(run, **change).key != run.key


def test_trials_of_training_are_thinned_and_those_of_test_are_not(run):
    (train, valid, test), half = load_parts(run), load_parts(replace(run, fraction=0.5))
    assert len(half[0].y) == len(train.y) // 2
    assert np.array_equal(half[1].X, valid.X)
    assert np.array_equal(half[2].X, test.X)


def test_noise_is_added_to_what_is_tested_and_to_the_rest_if_it_says_so(run):
    (train, valid, test), both = load_parts(run), load_parts(replace(run, noise=4.0, noisy_training=True))
    tested = with_test_noise(test, replace(run, noise=4.0))
    assert np.std(tested.X - test.X) == pytest.approx(2, rel=0.05)
    assert np.array_equal(load_parts(replace(run, noise=4.0))[0].X, train.X)
    assert np.std(both[0].X - train.X) == pytest.approx(2, rel=0.05)
    assert np.std(both[1].X - valid.X) == pytest.approx(2, rel=0.05)


def test_one_training_serves_all_noise_in_the_trials_for_test(run):
    levels = [replace(run, noise=variance) for variance in (0.0, 1e4, 1e6)]
    noisy_too = replace(run, noise=1e4, noisy_training=True)
    assert [len(group) for group in group_runs([*levels, noisy_too])] == [3, 1]
    rows = attempt(levels)
    assert len({str(row.history) for row in rows}) == 1
    assert rows[0].loss == execute([run])[0].loss
    assert len({row.loss for row in rows}) == 3


def test_a_class_that_was_never_learnt_is_named():
    trials = load("simulated-ssvep")
    decoder = EEGDecoder("spdnet", task="ssvep", max_epochs=1).fit(trials[np.flatnonzero(trials.y < 4)])
    with pytest.raises(MismatchError, match=r"has class '6\.66 Hz'"):
        scores(decoder, trials)


def test_two_classes_have_an_area_under_the_curve_unless_only_one_is_tested():
    trials = load("simulated-ern")
    decoder = EEGDecoder("spdnet", task="ern", max_epochs=1).fit(trials[np.arange(180)])
    assert 0 <= scores(decoder, trials[np.arange(180, 340)])["auc"] <= 1
    assert scores(decoder, trials[np.flatnonzero(trials.y == 1)])["auc"] is None


def test_a_failure_is_a_row_with_its_traceback(run):
    (row,) = attempt([replace(run, split=7)])
    assert row.status == "failed"
    assert "IndexError" in row.traceback
    assert row.accuracy is None
    assert row.finished


def test_a_fingerprint_follows_the_files(tmp_path):
    from gbwatt.data.formats.npz import write_npz

    file, trials = tmp_path / "mine.npz", load("simulated-ssvep")
    write_npz(trials, file)
    before = fingerprint(str(file), 1)
    assert fingerprint(str(file), 1) == before
    write_npz(trials[np.arange(400)], file)
    assert fingerprint(str(file), 1) != before


def test_a_fingerprint_follows_the_revision_of_what_is_read(monkeypatch):
    before = fingerprint("simulated-ssvep", 1)
    dataset = find_dataset("simulated-ssvep")
    newer = replace(dataset, sources=(replace(dataset.sources[0], revision=2),))
    monkeypatch.setattr("gbwatt.data.loading.find_dataset", lambda _name: newer)
    assert fingerprint("simulated-ssvep", 1) != before


def test_processes_are_at_most_as_many_as_runs():
    assert count_workers(4, 1, 2) == 2
    assert count_workers(4, 1, 9) == 4
    assert count_workers(0, 1, 1) == 1


def test_a_fingerprint_is_of_the_source_and_the_options_that_are_read(tmp_path):
    from gbwatt.data.formats.npz import write_npz

    online = fingerprint("bcic-iv-2a", 1, tmp_path, {"source": "moabb"})  # without any file
    with pytest.raises(MissingFileError):
        fingerprint("bcic-iv-2a", 1, tmp_path)
    for name in ("A01T.gdf", "A01T.mat", "A01E.gdf", "A01E.mat"):
        (tmp_path / name).write_bytes(name.encode())
    files = fingerprint("bcic-iv-2a", 1, tmp_path)
    assert fingerprint("bcic-iv-2a", 1, tmp_path, {"source": "gdf"}) == files != online
    assert fingerprint("bcic-iv-2a", 1, tmp_path, {"source": "moabb"}) == online
    assert fingerprint("bcic-iv-2a", 1, tmp_path, {}) == files
    write_npz(load("simulated-ssvep")[:20], file := tmp_path / "mine.npz")
    assert fingerprint(str(file), 1, None, {"tmin": 0.5}) != fingerprint(str(file), 1)


def test_fingerprints_of_default_sources_stay():
    """They are part of the keys of results."""
    assert fingerprint("simulated-ssvep", 1) == "439ae79510ecf314"
    assert fingerprint("simulated-mi", 1) == "900fac2fdac9c2b5"


# ---- weights from other subjects

SIZES = {"n_spatial": 4, "n_temporal": 4, "kernel": 9, "k": 3}


def _pretrained_run(run: Run, subject: int, **changes) -> Run:
    training = {"paradigm": "ssvep", "max_epochs": 1, "sources": [1, 2], "pretraining_epochs": 1, **changes}
    return replace(run, model="gbwatt", subject=subject, options=SIZES, training=training)


def test_a_run_begins_with_weights_of_its_sources(run):
    _pretrain.cache_clear()
    one = _pretrained_run(run, 3)
    (row,), (again,), (others,) = (execute([r]) for r in (one, one, _pretrained_run(run, 3, sources=[1, 4])))
    assert _pretrain.cache_info().misses == 2  # once for each set of sources
    assert row.loss == again.loss != others.loss
    (ensemble,) = execute([_pretrained_run(run, 3, n_members=2)])
    assert ensemble.parameters == 2 * row.parameters


def test_pretraining_never_contains_test_trials_of_the_subject(run, monkeypatch):
    """A subject that is a source itself: sources leave out the test trials of the split; otherwise all trials count."""
    seen = []

    class Watching(EuclideanAlignment):
        def fit(self, X, y=None, groups=None):
            seen.append(X)
            return super().fit(X, y, groups)

    monkeypatch.setattr("gbwatt.experiments.execution.EuclideanAlignment", Watching)
    for subject, sessions in ((1, {"1", "2", "3", "4"}), (3, {"1", "2", "3", "4", "5"})):
        _pretrain.cache_clear()
        _load_aligned_sources.cache_clear()
        seen.clear()
        execute([_pretrained_run(run, subject)])
        assert set(seen[0].subject) == {1, 2}
        assert set(map(str, seen[0].session)) == sessions


def test_trials_of_sources_join_those_of_a_classical_pipeline(run):
    """500 trials of each source that is not the subject; of the subject itself the training trials only."""
    for subject, sources, n in ((3, [1, 2], 400 + 1000), (1, [1, 2], 400 + 400)):
        (row,) = execute([replace(run, model="tangent-space", subject=subject, training={"sources": sources})])
        assert row.trials == {"train": n, "valid": 0, "test": 100}
        assert 0.2 < row.accuracy <= 1
