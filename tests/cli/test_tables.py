"""Tables and stores from the command line."""

from __future__ import annotations

import csv
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gbwatt.cli import main
from gbwatt.experiments.config import experiment_from_dict, read_experiment
from gbwatt.experiments.grid import lines
from gbwatt.experiments.runs import Row, Run
from gbwatt.experiments.store import Store

EXPERIMENT = {
    "name": "small",
    "title": "Small",
    "paper": "main",
    "datasets": ["simulated-ssvep"],
    "subjects": [1, 2, 3],
    "seeds": 2,
    "models": [{"label": "MAtt", "model": "matt"}, {"label": "SPDNet", "model": "spdnet"}],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an experiment and a store, in which the last run of SPDNet is missing."""
    import yaml

    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/small.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    with Store(tmp_path / "results.sqlite") as store:
        for labelled in experiment_from_dict(EXPERIMENT).labelled_runs()[:-1]:
            accuracy = 0.5 + 0.1 * (labelled.label == "MAtt") + 0.02 * labelled.run.subject
            store.add(Row(labelled.run.key, "done", labelled.run.to_dict(), accuracy=accuracy))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gbwatt(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gbwatt", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("form", ["terminal", "markdown", "latex", "csv"])
def test_a_table_of_an_experiment_by_name_in_every_form(form, monkeypatch, capsys):
    assert gbwatt(monkeypatch, "tables", "small", "--format", form, "--reference", "MAtt") == 0
    said = capsys.readouterr().out
    assert "64.00" in said
    assert "MAtt" in said
    assert "SPDNet" in said


@pytest.mark.usefixtures("folder")
def test_a_table_may_be_of_some_seeds(monkeypatch, capsys):
    gbwatt(monkeypatch, "tables", "small", "--format", "markdown", "--seeds", "1")
    assert "6 of 6 done, 0 failed, 0 missing" in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("folder")
def test_missing_runs_are_counted(monkeypatch, capsys):
    gbwatt(monkeypatch, "tables", "small", "--format", "markdown")
    assert "11 of 12 done, 0 failed, 1 missing" in " ".join(capsys.readouterr().out.split())


def test_results_go_through_a_file_into_another_store_and_the_same_table(folder, monkeypatch, capsys):
    gbwatt(monkeypatch, "tables", "small", "--format", "markdown")
    before = capsys.readouterr().out
    assert gbwatt(monkeypatch, "store", "export", "rows.csv") == 0
    assert gbwatt(monkeypatch, "store", "import", "rows.csv", "--store", "other.sqlite") == 0
    assert gbwatt(monkeypatch, "store", "merge", "results.sqlite", "--store", "third.sqlite") == 0
    with (folder / "rows.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.reader(file))) == 12
    capsys.readouterr()
    for source in (["--store", "other.sqlite"], ["--store", "third.sqlite"], ["--results", "rows.csv"]):
        gbwatt(monkeypatch, "tables", "small", "--format", "markdown", *source)
        assert capsys.readouterr().out == before


def test_a_page_is_filled_with_tables_and_then_stays(folder, monkeypatch, capsys):
    page = folder / "page.md"
    page.write_text("# Here\n<!-- table: small | reference: MAtt -->\n<!-- /table -->\nθ stays.\n", encoding="utf-8")
    assert gbwatt(monkeypatch, "tables", "--fill", "page.md") == 0
    assert "page.md: updated" in capsys.readouterr().out
    filled = page.read_text(encoding="utf-8")
    assert "64.00" in filled
    assert "compared with MAtt" in filled
    assert filled.endswith("<!-- /table -->\nθ stays.\n")
    assert gbwatt(monkeypatch, "tables", "--fill", "page.md") == 0
    assert "page.md: no changes" in capsys.readouterr().out
    assert page.read_text(encoding="utf-8") == filled


def test_a_page_is_filled_with_figures_beside_it(folder, monkeypatch, capsys):
    page = folder / "page.md"
    page.write_text("<!-- figure: small -->\n<!-- /figure -->\n")
    assert gbwatt(monkeypatch, "tables", "--fill", "page.md") == 0
    assert capsys.readouterr().out.splitlines() == ["page.md: updated", "page-small.svg: updated"]
    assert "](page-small.svg)\n\n*Accuracy in percent" in page.read_text(encoding="utf-8")
    assert (folder / "page-small.svg").read_text(encoding="utf-8").startswith("<svg ")
    assert gbwatt(monkeypatch, "tables", "--fill", "page.md") == 0
    assert "page.md: no changes" in capsys.readouterr().out


def test_a_place_without_results_says_how_to_get_some(folder, monkeypatch):
    page = folder / "page.md"
    page.write_text("<!-- table: theta -->\n<!-- /table -->\n<!-- figure: theta -->\nold\n<!-- /figure -->\n")
    assert gbwatt(monkeypatch, "tables", "--fill", "page.md") == 0
    assert page.read_text().count("No results yet: run `gbwatt benchmark theta`") == 2
    assert "old" not in page.read_text()


def test_claims_have_no_figure(folder, monkeypatch, capsys):
    (folder / "page.md").write_text("<!-- figure: claims -->\n<!-- /figure -->\n")
    assert gbwatt(monkeypatch, "tables", "--fill", "page.md") == 2
    assert "--fill page.md: figure: claims has no figure" in capsys.readouterr().err


def test_a_page_that_cannot_be_filled_is_left_alone(folder, monkeypatch, capsys):
    page = folder / "page.md"
    page.write_text("<!-- table: small -->\nold\n<!-- /table -->\n<!-- table: other -->\n<!-- /table -->\n")
    assert gbwatt(monkeypatch, "tables", "--fill", "page.md") == 2
    assert "'other'" in capsys.readouterr().err
    assert "old" in page.read_text()


def test_claims_get_their_verdicts_from_what_there_is(folder, monkeypatch, capsys):
    assert not (folder / "experiments/main.yaml").exists()
    with Store("results.sqlite") as store:
        for line in lines(read_experiment("main", ["training.max_epochs=2"])):
            for subject in range(1, 12):
                run = Run("mamem-ssvep-ii", subject, seed=0, data="", **line.on("mamem-ssvep-ii", subject))
                if line.label in ("MAtt", "GBWAtt (θ = 1.5)"):
                    accuracy = 0.5 + 0.1 * (line.label != "MAtt") + 0.001 * subject * (line.label == "MAtt")
                    store.add(Row(run.key, "done", run.to_dict(), accuracy=accuracy))
    asked = ["tables", "claims", "--format", "csv", "--dataset", "mamem", "-o", "claims.csv"]
    assert gbwatt(monkeypatch, *asked, "--set", "training.max_epochs=2") == 0
    with (folder / "claims.csv").open(encoding="utf-8", newline="") as file:
        verdicts = {line["claim"]: (line["n"], line["verdict"]) for line in csv.DictReader(file)}
    assert verdicts["GBWAtt is better than MAtt"] == ("11 × 1", "reproduced")
    assert verdicts["θ = 1.5 is better than θ = 1"] == ("", "not testable here")
    with (folder / "claims-2.csv").open(encoding="utf-8", newline="") as file:
        (evidence,) = [line for line in csv.DictReader(file) if line["claim"] == "GBWAtt is better than MAtt"]
    assert float(evidence["ours"]) == pytest.approx(9.4)
    capsys.readouterr()
    gbwatt(monkeypatch, "tables", "claims", "--format", "markdown", "--set", "training.max_epochs=2")
    assert r"Trained with max\_epochs = 2" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_results_of_a_changed_experiment_are_shown_with_the_same_change(monkeypatch, capsys):
    changed = experiment_from_dict({**EXPERIMENT, "training": {"max_epochs": 3}})
    with Store("results.sqlite") as store:
        for labelled in changed.labelled_runs():
            store.add(Row(labelled.run.key, "done", labelled.run.to_dict(), accuracy=0.25))
    assert gbwatt(monkeypatch, "tables", "small", "--set", "training.max_epochs=3", "--format", "markdown") == 0
    said = capsys.readouterr().out
    assert "25.00" in said
    assert "64.00" not in said


@pytest.mark.usefixtures("folder")
def test_failed_runs_are_shown_with_their_tracebacks(monkeypatch, capsys):
    run = experiment_from_dict(EXPERIMENT).labelled_runs()[-1].run
    with Store("results.sqlite") as store:
        store.add(Row(run.key, "failed", run.to_dict(), traceback="Traceback …\nValueError: [no] such thing"))
    assert gbwatt(monkeypatch, "store", "failed") == 0
    said = capsys.readouterr().out
    assert str(run) in said
    assert "ValueError: [no] such thing" in said
    assert "1 failed runs" in said


@pytest.mark.usefixtures("folder")
def test_control_characters_in_tracebacks_and_names_do_not_reach_the_terminal(monkeypatch, capsys):
    run = Run("a\x1b[2Jb.npz", 1, "gbwatt\x07", seed=0, data="")
    with Store("results.sqlite") as store:
        store.add(Row(run.key, "failed", run.to_dict(), traceback="Traceback\n\x1b]0;title\x07 why\ud800"))
    assert gbwatt(monkeypatch, "store", "failed") == 0
    assert gbwatt(monkeypatch, "tables", "a\x1b[2Jb") == 2
    said = "".join(capsys.readouterr())
    assert r"\x1b[2Jb" in said
    assert r"\x07 why" in said
    assert all(sign.isprintable() or sign == "\n" for sign in said)


def test_rows_of_a_damaged_store_are_recovered_by_a_command(folder, monkeypatch, capsys):
    with closing(sqlite3.connect("results.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE rows SET accuracy = 0.999 WHERE rowid = 3")
    assert gbwatt(monkeypatch, "tables", "small") == 2
    assert "gbwatt store recover" in capsys.readouterr().err
    assert gbwatt(monkeypatch, "store", "recover", "results.sqlite", "--store", "new.sqlite") == 0
    assert "10 rows of results.sqlite copied to new.sqlite" in " ".join(capsys.readouterr().out.split())
    assert gbwatt(monkeypatch, "tables", "small", "--store", "new.sqlite") == 0


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tables", "--fill", "page.md", "--reference", "MAtt"], "remove the other options"),
        (["tables", "small", "-o", "none/table.md"], "cannot be written"),
        (["store", "export", "results.sqlite"], "is an SQLite file"),
        (["tables"], "give the name of an experiment, or --fill"),
        (["tables", "small", "--fill", "page.md"], "give the name of an experiment, or --fill"),
        (["tables", "claims", "--reference", "MAtt"], "do not give a reference"),
        (["tables", "--fill", "none.md"], "none.md does not exist"),
        (["tables", "smal"], "small"),
        (["tables", "small", "--reference", "Matt"], "Did you mean 'MAtt'"),
        (["tables", "small", "--format", "excel"], "format"),
        (["tables", "small", "--dataset", "mamem"], "results.sqlite: none of the 11 results"),
        (["tables", "small", "--store", "none.sqlite"], "none.sqlite"),
        (["store", "merge", "none.sqlite"], "none.sqlite"),
        (["store", "import", "none.csv"], "none.csv"),
    ],
)
def test_what_is_not_there_is_named(arguments, said, monkeypatch, capsys):
    assert gbwatt(monkeypatch, *arguments) == 2
    assert said in capsys.readouterr().err
