"""The command: what it takes, what it refuses, and what it says."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gbwatt.cli.report import report
from gbwatt.data import load
from gbwatt.decoding import EEGDecoder
from gbwatt.errors import ParameterError
from gbwatt.experiments.config import PACKAGED, read_experiment
from gbwatt.experiments.store import Store, StoreError, read_csv
from gbwatt.models import create
from gbwatt.models.serialization import save_pretrained

from . import results
from .reading import read

REAL = Path(__file__).parents[2] / "results/mamem.csv"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with an experiment and a store."""
    monkeypatch.chdir(tmp_path)
    Path("experiments").mkdir()
    Path("experiments/main.yaml").write_text(yaml.safe_dump(results.EXPERIMENT), encoding="utf-8")
    with Store("results.sqlite") as store:
        for row in results.rows(results.experiment(), subjects=[1, 2], seeds=[0]):
            store.add(row._replace(confusion=None))  # accuracies are made up, and no number of trials has them
    return tmp_path


def write(source, output="report.html", experiments="experiments", force=False, **options):
    report(Path(source), Path(output), None if experiments is None else Path(experiments), force, **options)
    return Path(output).read_text(encoding="utf-8")


def test_a_store_becomes_a_page_and_its_path_and_size_are_said(here, capsys):
    page = write("results.sqlite")
    assert "6 runs of 3 models on real recordings." in read(page).text
    assert "Created by gbwatt" in read(page).text
    assert capsys.readouterr().out == f"report.html ({len(page.encode()) / 1e6:.1f} MB)\n"


def test_files_of_rows_and_a_folder_of_them_give_the_same_rows(here):
    Path("tables").mkdir()
    shutil.copy(REAL, "tables/a.csv")
    Store("results.sqlite").export_csv("tables/b.csv")
    first, second = len(read_csv("tables/a.csv")), len(read_csv("tables/b.csv"))
    assert first > second == 6
    assert f"{first} runs of " in write("tables/a.csv")
    assert f"{first + second} runs of " in write("tables", "both.html")


def test_the_folder_of_a_model_becomes_a_page(here):
    save_pretrained(create("gbwatt", n_chans=4, n_outputs=2, n_times=64, sfreq=100), "mine")
    assert "gbwatt, a trained model" in write("mine", experiments=None)


def test_experiments_are_those_of_the_folder_and_those_that_come_with_gbwatt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    theta = read_experiment(PACKAGED / "theta.yaml")
    with Store("results.sqlite") as store:
        for row in results.rows(theta, subjects=[1, 2], seeds=[0]):
            store.add(row)
    assert theta.title in read(write("results.sqlite", experiments=None)).text
    Path("experiments").mkdir()
    changed = (PACKAGED / "theta.yaml").read_text("utf-8").replace(theta.title, "My own title")
    Path("experiments/theta.yaml").write_text(changed, encoding="utf-8")
    assert "My own title" in read(write("results.sqlite", experiments=None, force=True)).text


RECORDINGS = {"dataset": "simulated-mi", "subject": 2, "split": 0, "form": "gdf", "read": ["tmin=0.5"], "root": Path()}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", RECORDINGS)
def test_options_for_recordings_are_refused_for_results(name):
    option = {"form": "source"}.get(name, name)
    with pytest.raises(ParameterError, match=rf"--{option} .* is for a model"):
        write("results.sqlite", **{name: RECORDINGS[name]})
    assert not Path("report.html").exists()


@pytest.mark.parametrize("name", [name for name in RECORDINGS if name != "dataset"])
def test_options_for_recordings_without_a_data_set_mean_that_of_training(here, monkeypatch, name):
    save_pretrained(create("gbwatt", n_chans=4, n_outputs=2, n_times=64, sfreq=100), "mine")
    opened = []

    def stop(_folder, recordings, _reading):
        opened.append(recordings)
        raise ParameterError("opened")

    monkeypatch.setattr("gbwatt.cli.report._open_trials", stop)
    write("mine", experiments=None)
    assert opened == []
    with pytest.raises(ParameterError, match="opened"):
        write("mine", experiments=None, force=True, **{name: RECORDINGS[name]})
    assert [recordings.get("dataset") for recordings in opened] == [None]


def test_the_subject_of_a_report_of_a_model_has_an_effect(here):
    EEGDecoder("spdnet", task="ssvep", max_epochs=1).fit(load("simulated-ssvep", 1)).save_pretrained("mine")
    with pytest.raises(ParameterError, match=r"give --dataset"):  # unknown recordings of training: not ignored
        write("mine", experiments=None, subject="2")
    assert not Path("report.html").exists()
    with pytest.raises(ParameterError, match="--experiments experiments is for results"):
        write("mine")


@pytest.mark.usefixtures("here")
def test_experiments_are_refused_before_a_model_is_read():
    Path("mine").mkdir()
    Path("mine/config.json").write_text("damaged")
    with pytest.raises(ParameterError, match="--experiments experiments is for results"):
        write("mine")


@pytest.mark.usefixtures("here")
def test_a_file_is_replaced_only_if_forced():
    Path("report.html").write_text("<!doctype html>mine")
    with pytest.raises(ParameterError, match=r"report\.html' already exists; .* --force"):
        write("results.sqlite")
    assert Path("report.html").read_text() == "<!doctype html>mine"
    assert "mine" not in write("results.sqlite", force=True)


@pytest.mark.usefixtures("here")
def test_even_forced_it_replaces_nothing_but_pages():
    before = Path("results.sqlite").read_bytes()
    with pytest.raises(ParameterError, match=r"results\.sqlite' is not a report"):
        report(Path("results.sqlite"), Path("results.sqlite"), Path("experiments"), True)
    assert Path("results.sqlite").read_bytes() == before


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "nothing.sqlite"}, "source='nothing.sqlite' does not exist"),
        ({"source": "empty"}, "source='empty' has neither config.json"),
        ({"source": "results.sqlite", "output": "no/report.html"}, "there is no folder 'no'; create it first"),
        ({"source": "results.sqlite", "output": "empty"}, "output='empty' is a folder; a file is needed"),
        ({"source": "results.sqlite", "experiments": "none"}, "experiments='none' is not a folder"),
        ({"source": "none.sqlite"}, "source='none.sqlite' has no rows"),
    ],
)
def test_what_is_wrong_is_named(arguments, message):
    Path("empty").mkdir()
    Store("none.sqlite")
    with pytest.raises(ParameterError, match=message):
        write(**arguments)
    assert not Path("report.html").exists()


@pytest.mark.usefixtures("here")
def test_what_is_no_store_or_a_newer_one_is_refused():
    Path("text.sqlite").write_text("no database " * 100)
    with pytest.raises(StoreError, match="not an SQLite file"):
        write("text.sqlite")
    with sqlite3.connect("results.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="has version 99"):
        write("results.sqlite")


@pytest.mark.usefixtures("here")
def test_a_table_of_something_else_is_refused():
    Path("other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StoreError, match="does not contain result rows"):
        write("other.csv")


def test_the_command_is_imported_without_what_is_slow():
    code = (
        "import sys; import gbwatt.cli.report; print([m for m in ('torch', 'matplotlib', 'mne') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
