"""``gbwatt predict``: what is written where, and errors."""

from __future__ import annotations

import csv
import io
import json

import pytest
from typer.testing import CliRunner

from gbwatt.cli import app
from gbwatt.data import load
from gbwatt.decoding import EEGDecoder, predict_recordings
from gbwatt.errors import ParameterError
from tests.decoding.test_prediction import READING, recording, saved


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The folder of a model, and two recordings."""
    folder = tmp_path_factory.mktemp("predict")
    recordings = [saved(recording(seed), folder, f"{seed}_raw.fif") for seed in (0, 1)]
    EEGDecoder("tangent-space").fit(load(recordings[0], **READING)).save_pretrained(folder / "model")
    return folder / "model", *map(str, recordings)


def run(*words) -> str:
    result = CliRunner().invoke(app, ["predict", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_rows_are_written_to_standard_output(files):
    model, first, second = files
    rows = list(csv.DictReader(io.StringIO(run(model, first, second))))
    assert [row["recording"] for row in rows] == [first] * 12 + [second] * 12
    assert [row["label"] for row in rows] == predict_recordings(model, [first, second]).names.tolist()


def test_labels_are_the_names_of_the_classes_whatever_the_labels_of_training_were(files, tmp_path):
    _, first, _ = files
    trials = load(first, **READING)
    EEGDecoder("tangent-space").fit(trials, trials.labels).save_pretrained(tmp_path / "named")
    by_number, by_name = (
        [row["label"] for row in csv.DictReader(io.StringIO(run(model, first)))]
        for model in (files[0], tmp_path / "named")
    )
    assert by_number == by_name
    assert set(by_name) == {"left", "right"}


def test_json_is_written_for_a_file_of_that_name(files, tmp_path):
    model, first, _ = files
    assert run(model, first, "-o", tmp_path / "out.json", "--hop", 1) == ""
    written = json.loads((tmp_path / "out.json").read_text())
    assert written == json.loads(run(model, first, "--hop", 1, "--json"))
    assert written == predict_recordings(model, first, hop=1.0).to_dict()


def test_options_select_the_windows(files):
    model, first, _ = files
    rows = list(csv.DictReader(io.StringIO(run(model, first, "--event", "T2", "--tmin", 0.6))))
    assert [row["event"] for row in rows] == ["T2"] * 6


def test_existing_files_are_replaced_only_on_request(files, tmp_path):
    model, first, _ = files
    output = tmp_path / "out.csv"
    run(model, first, "-o", output)
    for text, message in ((output.read_text(), "already exists"), ("diary", "already exists")):
        output.write_text(text)
        with pytest.raises(ValueError, match=message):
            run(model, first, "-o", output)
    with pytest.raises(ValueError, match="is not a table of gbwatt"):
        run(model, first, "-o", output, "--force")
    output.write_text("recording,time\n")
    run(model, first, "-o", output, "--force")
    assert output.read_text().startswith("recording,time,event")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "out.xlsx"), r"out\.xlsx' must end in \.csv or \.json\."),
        (("-o", "out"), r"out' must end in \.csv or \.json\."),
        (("-o", "out.csv", "--json"), r"out\.csv' must end in \.json for --json"),
        (("-o", "/proc/out.csv"), r"output='/proc/out\.csv' cannot be written \("),
    ],
)
def test_outputs_that_cannot_be_written_or_contradict_the_format_are_errors(files, monkeypatch, words, message):
    monkeypatch.setattr("gbwatt.decoding.predict_recordings", pytest.fail)
    with pytest.raises(ParameterError, match=message):
        run(*files[:2], *words)


def test_json_may_be_requested_for_a_file_of_that_name(files, tmp_path):
    model, first, _ = files
    run(model, first, "--json", "-o", tmp_path / "out.JSON")
    assert json.loads((tmp_path / "out.JSON").read_text()) == predict_recordings(model, first).to_dict()
