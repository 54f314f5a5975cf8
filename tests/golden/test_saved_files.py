"""Models, checkpoints and stores that were written once are read, and say what they said."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from gbwatt import EEGDecoder, GBWAttClassifier
from gbwatt.data import load
from gbwatt.models.files import load_pretrained
from tests.golden import doors, saved
from tests.golden.program import DATA, run, stored

MODELS = {"classifier": GBWAttClassifier, "trained": GBWAttClassifier, "matt": EEGDecoder}
LOSSES = ("train_loss", "valid_loss")


@pytest.fixture
def copied(tmp_path):
    """A copy of a file or folder, which may be changed."""

    def copy(name):
        source = DATA / name
        return shutil.copytree(source, tmp_path / name) if source.is_dir() else shutil.copy(source, tmp_path / name)

    return copy


@pytest.fixture(scope="module")
def simulated():
    return saved.simulated()


def trials_for(name, simulated):
    return load(saved.RECORDINGS, 1) if name == "matt" else simulated


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_read_and_predicts_what_it_predicted(name, copied, simulated):
    known = stored("saved_files")[name]
    found = saved.describe(MODELS[name].from_pretrained(copied(name)), trials_for(name, simulated))
    np.testing.assert_allclose(found["probabilities"], known["probabilities"], rtol=0, atol=1e-5)
    for key in ("classes", "class_names", "best_epoch", "history", "used_for"):
        assert found[key] == known[key], key
    assert {key: found["parameters"].get(key) for key in known["parameters"]} == known["parameters"]


def test_training_trials_are_recognised(simulated):
    used = np.array(stored("saved_files")["classifier"]["used_for"])
    assert set(used[:30]) == {"training"}
    assert set(used[30:40]) == {"validation"}
    assert set(used[40:]) == {"unseen"}
    found = GBWAttClassifier.from_pretrained(DATA / "classifier").used_for(simulated.X)  # no Trials
    assert found[:40].tolist() == used[:40].tolist()


@pytest.mark.parametrize("name", MODELS)
def test_the_network_alone_is_read(name):
    loaded = load_pretrained(DATA / name)
    n = sum(p.numel() for p in loaded.model.parameters())
    assert n == stored("saved_files")[name]["n_parameters"]


def test_a_model_that_is_saved_again_has_the_same_files(copied, simulated, tmp_path):
    decoder = GBWAttClassifier.from_pretrained(copied("classifier"))
    decoder.save_pretrained(tmp_path / "again")
    assert {file.name for file in (tmp_path / "again").iterdir()} == {f.name for f in (DATA / "classifier").iterdir()}
    again = saved.describe(GBWAttClassifier.from_pretrained(tmp_path / "again"), simulated)
    np.testing.assert_allclose(
        again["probabilities"], stored("saved_files")["classifier"]["probabilities"], rtol=0, atol=1e-5
    )


def test_the_program_evaluates_its_model(copied, gbwatt):
    folder = copied("trained")
    found = gbwatt("evaluate", folder, "--dataset", "simulated-ssvep", "--subject", 1, "--all", "--json").document
    known = stored("saved_files")["trained"]
    assert {use: part["n"] for use, part in found["uses"].items()} == known["uses"]
    assert found["training"] == known["training"]
    assert found["accuracy"] == pytest.approx(known["accuracy"], abs=0.0041)  # two trials of 500


def test_a_training_goes_on_from_its_checkpoint(copied):
    known = stored("saved_files")["checkpoint"]
    decoder = saved.continued(copied("checkpoint")).fit(load(saved.RECORDINGS, "all"))
    assert len(decoder.history_) == 6
    assert decoder.history_[:3] == known["history"][:3]
    for found, row in zip(decoder.history_[3:], known["history"][3:], strict=True):
        assert found.keys() == row.keys()
        for name in LOSSES:
            assert found[name] == pytest.approx(row[name], rel=1e-3), name


def test_a_checkpoint_of_another_training_is_refused(copied):
    from gbwatt.training import CheckpointError

    with pytest.raises(CheckpointError):
        saved.continued(copied("checkpoint"), seed=1).fit(load(saved.RECORDINGS, "all"))


# ---- stores


def test_a_store_is_read(copied):
    store = copied("results.db")
    assert doors.stored_rows(store) == stored("rows")
    assert doors.stored_rows(store, create=True) == stored("rows")


def test_an_export_is_read():
    assert doors.read_rows(DATA / "results.csv") == stored("rows")


def test_an_export_goes_into_a_new_store_and_out_again(gbwatt, here):
    assert gbwatt("store", "import", DATA / "results.csv", "--store", "new.db").code == 0
    assert doors.stored_rows(here / "new.db") == stored("rows")
    assert run("store", "export", "again.csv", "--store", "new.db").code == 0
    assert (here / "again.csv").read_bytes() == (DATA / "results.csv").read_bytes()
