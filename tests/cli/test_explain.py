"""``gbwatt explain`` as a user meets it, and the report of a model with its explanation."""

from __future__ import annotations

import json
import re

import pytest

from gbwatt import _io
from gbwatt.data import load
from gbwatt.data.formats.npz import write_npz
from tests.cli.conftest import write_recording, write_recordings

ALL = {
    "attention",
    "conditions",
    "faithfulness",
    "features",
    "heatmaps",
    "metric",
    "patterns",
    "spectra",
    "topomaps",
}


@pytest.fixture
def trained(run_json, recordings, tmp_path):
    return run_json("train", "--dataset", recordings, "--task", "mi", "--max-epochs", "3", "-o", tmp_path / "m")


def test_every_picture_is_written_twice_and_has_a_caption(run, trained, recordings, tmp_path):
    run("train", "--dataset", recordings, "--task", "mi", "--max-epochs", "25", "-o", trained["folder"], "--force")
    result = run("explain", trained["folder"], "--dataset", recordings, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.exception
    assert {file.stem for file in (tmp_path / "out").glob("*.svg")} == ALL
    assert {file.stem for file in (tmp_path / "out").glob("*.png")} == ALL
    captions = (tmp_path / "out" / "captions.md").read_text(encoding="utf-8")
    for name in ALL:
        _, _, after = captions.partition(f"![{name}]({name}.svg)\n\n")
        assert len(after.partition("\n")[0]) > 30, name
    assert "left: strongest at C" in result.stdout
    assert "rank correlation" in result.stdout


def test_electrodes_without_a_place_get_bars(run_json, tmp_path):
    file = write_recordings(tmp_path / "mine.npz", channels=("one", "two", "three"))
    run_json("train", "--dataset", file, "--task", "mi", "--max-epochs", "1", "-o", tmp_path / "m")
    found = run_json("explain", tmp_path / "m", "--dataset", file, "-o", tmp_path / "out")
    assert set(found["magnitude"]["left"]) == {"one", "two", "three"}
    names = {path.rpartition("/")[2].partition(".")[0] for path in found["files"]}
    assert names == ALL - {"topomaps", "patterns"} | {"channels", "captions"}


def test_a_network_without_attention_has_what_any_network_has(run_json, recordings, tmp_path):
    run_json("train", "--dataset", recordings, "--model", "mbeegse", "--max-epochs", "1", "-o", tmp_path / "m")
    found = run_json(
        "explain", tmp_path / "m", "--dataset", recordings, "--method", "gradient-times-input", "-o", tmp_path / "out"
    )
    assert {path.rpartition("/")[2] for path in found["files"] if path.endswith("svg")} == {
        "heatmaps.svg",
        "topomaps.svg",
        "faithfulness.svg",
    }


def test_a_class_without_test_trials_is_left_out(run_json, trained, recordings, tmp_path):
    trials = load(recordings, 2)
    last = trials.y[-20:].copy()
    write_npz(trials.replace(y=[*trials.y[:-20], *(0 * last)]), tmp_path / "left.npz")
    file = tmp_path / "left.npz"
    found = run_json("explain", trained["folder"], "--dataset", file, "--split", "0", "-o", tmp_path / "out")
    assert any(text.startswith("left: strongest at") for text in found["findings"])


@pytest.mark.slow
def test_where_things_were_planted_is_said(run_json, tmp_path):
    run_json("train", "--max-epochs", "1", "-o", tmp_path / "m")
    found = run_json("explain", tmp_path / "m", "--dataset", "simulated-ssvep", "-o", tmp_path / "out")
    assert any(text.startswith("Planted for 10 Hz: Oz; rank by magnitude") for text in found["findings"])


@pytest.mark.slow
def test_trials_are_by_default_those_that_the_model_was_tested_on(run, run_json, recordings, tmp_path):
    trained = run_json(
        "train", "--dataset", recordings, "--subject", "2", "--task", "mi", "--max-epochs", "1", "-o", tmp_path / "m"
    )
    said = run("explain", trained["folder"], "-o", tmp_path / "one").stdout
    assert "test trials of" in said
    assert "subject 2" in said
    assert "subject 1" in run("explain", trained["folder"], "--subject", "1", "-o", tmp_path / "other").stdout
    page = tmp_path / "page.html"
    assert run("report", trained["folder"], "--dataset", recordings, "-o", page).exit_code == 0
    assert "(subject 2" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_recording_is_read_as_in_training(run, run_json, tmp_path):
    file = write_recording(tmp_path / "mine_raw.fif")
    how = ("--read", "tmin=0", "--read", "tmax=0.9")
    trained = run_json("train", "--dataset", file, *how, "--task", "mi", "--max-epochs", "1", "-o", tmp_path / "m")
    assert run("explain", trained["folder"], "-o", tmp_path / "out").exit_code == 0
    assert run("report", trained["folder"], "--dataset", file, "-o", tmp_path / "one.html").exit_code == 0
    assert run("report", trained["folder"], "--dataset", file, *how, "-o", tmp_path / "two.html").exit_code == 0


@pytest.mark.slow
def test_trials_that_the_model_has_seen_are_said_to_be_so(run, run_json, trained, tmp_path):
    record = tmp_path / "m" / "training.json"
    content = json.loads(record.read_text())
    content["seen"]["train"] = list(range(40))
    record.write_text(json.dumps(_io.sealed(json.dumps(content))))
    found = run_json("explain", trained["folder"], "-o", tmp_path / "out")
    assert "were used for training" in found["findings"][0]
    run("report", trained["folder"], "--dataset", content["dataset"], "-o", tmp_path / "page.html")
    assert "were used for training" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_without_a_record_of_the_training_a_data_set_is_needed(refused, trained, tmp_path):
    (tmp_path / "m" / "training.json").unlink()
    assert "give --dataset" in refused("explain", trained["folder"], "-o", tmp_path / "out")


def test_a_place_that_cannot_be_written_is_found_before_the_work(refused, trained, tmp_path):
    (tmp_path / "file").write_text("")
    said = refused("explain", trained["folder"], "-o", tmp_path / "file" / "out")
    assert "cannot be written" in said
    assert "choose another (-o)" in said


def test_pictures_are_not_replaced_unless_forced(run, refused, trained, recordings, tmp_path):
    arguments = ("explain", trained["folder"], "--dataset", recordings, "-o", tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    assert "--force" in refused(*arguments)
    assert run(*arguments, "--force").exit_code == 0
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "gradint"], "Did you mean 'gradient'"),
        (["--dataset", "simulated-mi"], "was trained on ['C3', 'Cz', 'C4']"),
        (["--split", "3"], "split=3 does not exist"),
    ],
)
def test_wrong_arguments_are_named(refused, trained, recordings, tmp_path, arguments, said):
    given = [] if "--dataset" in arguments else ["--dataset", recordings]
    assert said in refused("explain", trained["folder"], *given, *arguments, "-o", tmp_path / "out")


def test_a_report_of_a_model_explains_it_on_recordings(run, trained, recordings, tmp_path):
    assert run("report", trained["folder"], "-o", tmp_path / "plain.html").exit_code == 0
    assert run("report", trained["folder"], "--dataset", recordings, "-o", tmp_path / "more.html").exit_code == 0
    plain, more = ((tmp_path / f"{name}.html").read_text(encoding="utf-8") for name in ("plain", "more"))
    assert ">Explanation<" not in plain
    assert ">Explanation<" in more
    assert more.count("<figure") == plain.count("<figure") + len(ALL)
    (tmp_path / "rows.csv").write_text("")
    refused = run("report", tmp_path / "rows.csv", "--dataset", recordings, "-o", tmp_path / "x.html")
    assert "is for a model" in str(refused.exception)


@pytest.mark.slow
def test_a_report_explains_a_model_on_the_subject_that_is_asked_for(run, tmp_path):
    model, pages, pictures = tmp_path / "m", {}, {}
    command = ["train", "--dataset", "simulated-ssvep", "--subject", "1", "--max-epochs", "2", "-o", model]
    assert run(*command).exit_code == 0
    for subject in (1, 2):
        file = tmp_path / f"{subject}.html"
        assert run("report", model, "--subject", subject, "-o", file).exit_code == 0
        pages[subject] = file.read_text(encoding="utf-8")
        pictures[subject] = set(re.findall(r'src="data:image[^"]*"', pages[subject]))
        assert f"test trials of simulated-ssvep (subject {subject}, session 5)." in pages[subject]
        assert f"test trials of simulated-ssvep (subject {3 - subject}" not in pages[subject]
        assert "Trained on simulated recordings of simulated-ssvep, subject 1, seed 0." in pages[subject]
    assert len(pictures[1]) == len(pictures[2])
    assert len(pictures[1] - pictures[2]) > len(pictures[1]) / 2  # those of the training are the same
