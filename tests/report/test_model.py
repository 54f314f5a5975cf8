"""Reports of trained models."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gbwatt.cli import app
from gbwatt.data.splits import BySubject
from gbwatt.decoding import EEGDecoder, GBWAttClassifier, train_and_evaluate
from gbwatt.errors import ModelFileError
from gbwatt.models import create, serialization
from gbwatt.models.serialization import WEIGHTS, save_pretrained
from gbwatt.report import Code, Facts, Note, Page, Paragraph, Section, Table, render, report_of_model
from tests.decoding.tiny import make_trials

from .reading import beyond, read

HISTORY = [
    {"epoch": n, "train_loss": 1 / n, "valid_loss": 1 / n, "valid_accuracy": 0.5, "duration": 0.1} for n in (1, 2, 3)
]
RECORD = {
    "status": "done",
    "dataset": "simulated-mi",
    "subject": 2,
    "simulated": True,
    "seed": 5,
    "tested_on": "session E",
    "trials": {"train": 8, "valid": 2, "test": 10},
    "versions": {"torch": "2.9", "scipy": "1.17"},
    "test": {
        "n": 10,
        "hits": 7,
        "accuracy": 0.7,
        "chance": 0.5,
        "kappa": 0.4,
        "auc": None,
        "balanced_accuracy": 0.7,
        "per_class": {"left": {"recall": 0.8, "precision": 0.6, "n": 5.0}, "<b>": {"recall": None, "n": 5.0}},
        "confusion": [[4, 1], [2, 3]],
        "class_names": ["left", "<b>"],
    },
}


@pytest.fixture
def folder(tmp_path):
    """A model as the estimator saves it."""
    training = {"lr": 0.01, "epochs": 3, "best_epoch": 2, "at_best_epoch": HISTORY[1]}
    extra = {"multiply epochs by": 0.5, "training": training, "estimator": {"class": "EEGDecoder", "history": HISTORY}}
    model = create("gbwatt", n_chans=4, n_outputs=2, n_times=64, sfreq=100)
    save_pretrained(model, tmp_path / "mine", class_names=["left", "<b>"], extra=extra)
    return tmp_path / "mine"


def said(page):
    return " ".join(read(render(page)).text.split())


def test_a_model_alone_shows_what_its_folder_has(folder):
    page = report_of_model(folder)
    assert [section.title for section in page.sections] == ["Summary", "Training", "Configuration", "Usage"]
    assert "do not record what it was trained on" in page.lead
    words = said(page)
    for text in (
        "gbwatt",
        "left, <b>",
        "4 channels × 64 samples at 100 Hz",
        "weights of epoch 2",
        "multiplies epochs by 0.5",
    ):
        assert text in words
    assert beyond(render(page)) == []
    assert len(read(render(page)).pictures) == 1


def test_with_its_record_it_also_shows_the_test(folder):
    page = report_of_model(folder, RECORD)
    summary, test, *_ = page.sections
    assert test.title == "Test"
    assert [type(block) for block in summary.blocks] == [Note, Facts]
    words = said(page)
    for text in (
        "7 of 10 trials are classified correctly, 70.00 %",
        "39.68 to 89.22 %",
        "session E",
        "kappa 0.400",
        "scipy",
    ):
        assert text in words
    assert "AUC" not in words  # there is none
    (table,) = [block for block in test.blocks if isinstance(block, Table)]
    assert table.lines == (("left", 80.0, 60.0, "5"), ("<b>", None, None, "5"))  # no class is left out
    assert f"gbwatt evaluate {folder} gbwatt explain" in words


def commands(page):
    """What "Usage" prints: commands, and Python."""
    return [block.text for block in page.sections[-1].blocks if isinstance(block, Code)]


@pytest.mark.parametrize("kind", [EEGDecoder, GBWAttClassifier])
def test_the_python_that_is_printed_opens_the_model(tmp_path, monkeypatch, kind):
    x, y = make_trials(n=16, n_times=64)
    kind(sfreq=64, max_epochs=1, batch_size=8).fit(x, y).save_pretrained(tmp_path / 'a "model"')
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(commands(report_of_model('a "model"'))[1], scope)
    assert type(scope["decoder"]) is kind
    assert scope["decoder"].predict(x).shape == y.shape


def test_of_a_network_without_an_estimator_the_network_is_opened_and_nothing_scored(tmp_path):
    save_pretrained(create("gbwatt", n_chans=4, n_outputs=2, n_times=64, sfreq=100), tmp_path)
    shell, python = commands(report_of_model(tmp_path))
    scope = {}
    exec(python, scope)
    assert type(scope["model"]).__name__ == "GBWAtt"
    assert shell == f"gbwatt report {tmp_path} -o report.html"


def test_a_subclass_is_imported_from_where_only_its_author_knows(tmp_path):
    model = create("gbwatt", n_chans=4, n_outputs=2, n_times=64, sfreq=100)
    save_pretrained(model, tmp_path, extra={"estimator": {"class": "Mine"}})
    assert "from your_module import Mine\n" in commands(report_of_model(tmp_path))[1]


@pytest.mark.parametrize(
    ("record", "options"), [(RECORD | {"split": 3}, ""), (RECORD | {"split": None}, " --dataset DATASET")]
)
def test_commands_use_the_test_trials_if_the_record_knows_them(folder, record, options):
    evaluate, explain, report = commands(report_of_model(folder, record))[0].splitlines()
    assert evaluate == f"gbwatt evaluate {folder}{options}"
    assert explain == f"gbwatt explain {folder}{options}"
    assert report == f"gbwatt report {folder} -o report.html"


def test_the_command_that_is_printed_reproduces_the_test(tmp_path):
    result = train_and_evaluate(
        "simulated-ssvep", "tangent-space", subject=[1, 2], protocol=BySubject((1,), (2,)), folder=tmp_path
    )
    record = result.record.to_dict()
    page = report_of_model(tmp_path, record)
    assert page.lead == "Trained on simulated recordings of simulated-ssvep, subject 1, seed 0; tested on subject 2."
    program, *words = commands(page)[0].splitlines()[0].split()
    assert program == "gbwatt"
    shown = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert {name: shown[name] for name in record["test"]} == record["test"]


def test_files_that_were_trained_on_and_tested_are_named(folder):
    protocol = {"protocol": "BySubject", "train": [1, 2], "test": [3], "valid": 0.125}
    record = RECORD | {"dataset": "1=a.edf + 2=b.edf + 3=c.edf", "subject": "1-3", "protocol": protocol}
    assert report_of_model(folder, record | {"simulated": False}).lead == (
        "Trained on recordings of a.edf, b.edf, seed 5; tested on c.edf."
    )


def test_paradigm_initial_weights_and_alignment_are_shown_by_report_and_card(tmp_path):
    x, y = make_trials(n=16, n_times=64)
    options = {"n_spatial": 4, "n_temporal": 4, "kernel": 6, "k": 3, "domain_norm": "affine-invariant"}
    first = GBWAttClassifier(
        task="mi", sfreq=64, max_epochs=1, batch_size=8, alignment="euclidean", model_options=options
    ).fit(x, y)
    first.save_pretrained(tmp_path)
    record = RECORD | {"training": {"initialization": ["others"]}}
    facts = dict(report_of_model(tmp_path, record).sections[0].blocks[-1].pairs)
    assert (facts["Paradigm"], facts["Initial weights"]) == ("mi", "others")
    assert facts["Alignment"] == "euclidean and affine-invariant normalisation, by subject"
    assert ("Initial weights", "classical") in report_of_model(tmp_path).sections[0].blocks[-1].pairs
    card = (tmp_path / "README.md").read_text()
    assert "- **Paradigm:** mi.\n- **Initial weights:** classical.\n- **Alignment:** euclidean and affine" in card


def test_an_interrupted_training_is_marked(folder):
    record = {key: value for key, value in RECORD.items() if key != "test"} | {"status": "interrupted"}
    assert "was interrupted" in said(report_of_model(folder, record))


def test_a_training_that_diverged_has_no_curve_but_a_sentence(tmp_path):
    history = [{"train_loss": float("nan")}, {"train_loss": 1.0}]
    model = create("gbwatt", n_chans=4, n_outputs=2, n_times=64, sfreq=100)
    extra = {"training": {"best_epoch": 2}, "estimator": {"history": history}}
    save_pretrained(model, tmp_path, extra=extra)
    assert "NaN or infinite" in said(report_of_model(tmp_path))


def test_a_network_without_a_history_has_no_section_of_training(tmp_path):
    save_pretrained(create("gbwatt", n_chans=4, n_outputs=2, n_times=64, sfreq=100), tmp_path)
    page = report_of_model(tmp_path)
    assert [section.title for section in page.sections] == ["Summary", "Configuration", "Usage"]


def test_sections_of_a_caller_come_where_they_belong(folder):
    explained = Section("Explanations", (Paragraph("C3"),))
    page = report_of_model(folder).with_sections([explained], before="Configuration")
    assert isinstance(page, Page)
    assert [s.title for s in page.sections] == ["Summary", "Training", "Explanations", "Configuration", "Usage"]


def test_a_damaged_model_is_refused(folder):
    (folder / WEIGHTS).write_bytes(b"short")
    with pytest.raises(ModelFileError, match="truncated"):
        report_of_model(folder)


def test_a_network_that_is_loaded_is_not_loaded_again(folder, monkeypatch):
    module = serialization.load_pretrained(folder).model
    wanted = render(report_of_model(folder, RECORD))
    monkeypatch.setattr(serialization, "load_pretrained", None)
    assert render(report_of_model(folder, RECORD, module=module)) == wanted


def test_the_calibration_of_test_trials_is_drawn_if_it_was_recorded(folder):
    assert "calibration error" not in said(report_of_model(folder, RECORD))
    bins = [{"low": 0.6, "high": 0.7, "n": 6, "confidence": 0.65, "accuracy": 0.5}]
    bins += [{"low": 0.9, "high": 1.0, "n": 4, "confidence": 0.95, "accuracy": 1.0}]
    test = {**RECORD["test"], "loss": 0.6, "calibration_error": 0.11, "reliability": bins}
    page = report_of_model(folder, {**RECORD, "test": test})
    words = said(page)
    assert "log loss 0.600; expected calibration error 0.110" in words
    assert "Accuracy of the test trials by the confidence of their predictions" in words
    assert beyond(render(page)) == []
