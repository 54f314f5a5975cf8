"""Reports of rows: what they say, and what they do not leave out."""

from __future__ import annotations

import base64
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from gbwatt import plotting
from gbwatt.cli.options import seed_numbers
from gbwatt.errors import ParameterError
from gbwatt.experiments.grid import match_runs
from gbwatt.experiments.row_io import read_csv
from gbwatt.experiments.runs import Row, Run
from gbwatt.experiments.tables import make_table
from gbwatt.report import BigTable, Code, Facts, Figure, Fold, Note, Page, Paragraph, Table, render, report_of_rows
from gbwatt.report.experiment_results import MAX_TRACEBACKS, all_runs

from . import results
from .reading import beyond, read

REAL = Path(__file__).parents[2] / "results/mamem.csv"


@pytest.fixture(scope="module")
def main():
    return results.experiment()


@pytest.fixture
def page(main):
    return report_of_rows(results.rows(main), [main])


def section(page, title):
    (found,) = [section for section in page.sections if section.title == title]
    return found


def blocks(section, kind):
    return [block for block in section.blocks if isinstance(block, kind)]


def said(page):
    return " ".join(read(render(page)).text.split())


def test_a_report_has_a_section_for_everything(page):
    titles = [section.title for section in page.sections]
    assert titles == [
        "Summary",
        "Data",
        "Main table",
        "Best results in detail",
        "All runs",
        "Configuration",
        "Reproduce",
    ]


def test_real_results_make_a_page_that_loads_nothing_and_is_the_same_every_time(drawn):
    rows, found = read_csv(REAL)[:40], results.experiment()
    first, second = (render(report_of_rows(rows, [found])) for _ in range(2))
    assert first == second
    assert beyond(first) == []
    assert len(read(first).pictures) >= 3


def test_the_summary_says_what_was_run(page):
    (facts,) = blocks(section(page, "Summary"), Facts)
    known = dict(facts.pairs)
    assert known["Recordings"] == "mamem-ssvep-ii (real)"
    assert known["Subjects"] == "6 of mamem-ssvep-ii"
    assert known["Seeds"] == "0–1"
    assert known["Runs"] == "36, none failed"
    assert page.lead == "36 runs of 3 models on real recordings."


def test_the_highest_line_is_among_those_with_the_most_runs(main):
    rows = [row for row in results.rows(main) if row.run["model"] != "gbwatt" or row.run["subject"] == 1]
    highest, *_ = blocks(section(report_of_rows(rows, [main]), "Summary"), Table)
    ((dataset, _, line, score, *_),) = highest.lines
    assert (dataset, line) in {("mamem-ssvep-ii", "EEGNet"), ("mamem-ssvep-ii", "MAtt")}
    assert score < 70  # GBWAtt has above 80


def test_claims_that_can_be_tested_have_verdicts_and_the_others_are_counted(page):
    claims = next(table for table in blocks(section(page, "Summary"), Table) if table.title == "Claims of the paper")
    verdicts = {(line[0], line[1]): line[-1] for line in claims.lines}
    assert verdicts["GBWAtt is better than MAtt", "mamem-ssvep-ii"] == "reproduced"
    assert "not testable here" not in verdicts.values()
    assert "further claims" in claims.notes[-1]


def test_without_a_claim_to_test_it_is_said(main):
    rows = results.rows(main, subjects=[1])
    assert "None of the paper's claims can be tested" in said(report_of_rows(rows, [main]))


def test_simulated_recordings_are_marked_and_have_no_number_of_the_paper(main):
    page = report_of_rows(results.rows(main, dataset="simulated-ssvep"), [main])
    (note,) = blocks(section(page, "Summary"), Note)
    assert note.text.startswith("simulated-ssvep is simulated.")
    assert dict(blocks(section(page, "Summary"), Facts)[0].pairs)["Recordings"] == "simulated-ssvep (simulated)"
    assert "paper" not in [column.name for column in section(page, "Main table").blocks[0].header]
    assert "(simulated)" in blocks(section(page, "Main table"), Figure)[0].caption


def test_tables_stand_beside_the_papers_with_paired_tests(page):
    table = section(page, "Main table").blocks[0]
    ours = {line[0]: dict(zip([c.name for c in table.header], line, strict=True)) for line in table.lines}
    assert ours["MAtt"]["paper"] == 65.19
    assert ours["GBWAtt (θ = 1.5)"]["ours"] > 80
    (tests,) = table.more
    assert tests.title == "Scores: compared with MAtt"
    assert next(line for line in tests.lines if line[0].startswith("GBWAtt"))[3] == 0.03125  # p of six subjects


def test_data_are_described_as_rows_recorded_them(main):
    step = {"step": "band", "low": 1, "high": 50}
    rows = [row._replace(preprocessing=[step]) for row in results.rows(main)]
    found = section(report_of_rows(rows, [main]), "Data")
    ((*_, train, valid, test, classes),) = blocks(found, Table)[0].lines
    assert (train, valid, test) == ("60", "20", "40")
    assert classes == "left (20); right (20)"
    assert "step band, low 1, high 50" in blocks(found, Paragraph)[0].text


def test_lines_without_a_run_are_named_and_not_left_out_silently(main):
    rows = [row for row in results.rows(main) if row.run["model"] != "matt"]
    (fold,) = blocks(section(report_of_rows(rows, [main]), "Main table"), Fold)
    assert fold.summary == "1 line without results, 12 missing runs"
    assert fold.blocks[0].text == "MAtt on mamem-ssvep-ii"


def test_runs_are_counted_as_in_the_table_of_the_whole_experiment(main):
    rows = [row for row in results.rows(main) if row.run["model"] != "matt"][1:]
    page = report_of_rows(rows, [main])
    whole = make_table("Scores", match_runs(main, rows), {row.key: row for row in rows})
    (count,) = [note for note in whole.notes if note.startswith("Runs: ")]
    table = section(page, "Main table").blocks[0]
    assert count == "Runs: 23 of 36 done, 0 failed, 13 missing."
    assert count in table.notes
    assert "MAtt" not in [line[0] for line in table.lines]


def test_a_varied_experiment_is_drawn_over_its_values_beside_the_paper():
    noise = results.experiment(results.NOISE)
    page = report_of_rows(results.rows(noise), [noise])
    score, conditions = blocks(section(page, "Noise in test"), Figure)
    assert "numbers from the paper" in score.caption
    assert "condition number above 10⁴" in conditions.caption
    assert [table.title for table in section(page, "Noise in test").blocks[0].tables] == [
        "Scores",
        "Scores: compared with MAtt",
        "Scores: ill-conditioned matrices",
    ]


REGULARISATION = {
    **results.NOISE,
    "name": "regularisation",
    "title": "Regularisation",
    "paper": None,
    "validation": True,
    "models": [{"label": "GBWAtt", "model": "gbwatt"}, {"label": "MAtt", "model": "matt"}],
    "vary": {"axis": "options.shrinkage", "values": [0.2, 0, "oas"], "label": "ρ = {}"},
}


def test_settings_that_are_not_all_numbers_are_drawn_in_the_order_of_the_file(monkeypatch):
    asked = []
    monkeypatch.setattr(plotting, "curves", lambda x, series, *_, **labels: asked.append((x, series, labels)))
    found = results.experiment(REGULARISATION)
    page = report_of_rows(results.rows(found), [found])
    score, validation = blocks(section(page, "Regularisation"), Figure)
    assert [x for x, *_ in asked] == [["0.2", "0", "oas"]] * 2
    assert [set(series) for _, series, _ in asked] == [{"GBWAtt", "MAtt"}] * 2
    assert [labels["ylabel"] for *_, labels in asked] == ["Accuracy (%)", "Validation accuracy (%)"]
    assert {labels["xlabel"] for *_, labels in asked} == {"shrinkage"}
    assert "by subject" not in score.caption
    assert "validation trials" in validation.caption


def test_with_one_seed_nothing_is_said_of_spreads_over_seeds(main):
    noise = results.experiment(results.NOISE)
    several, one = (
        report_of_rows([*results.rows(main, seeds=seeds), *results.rows(noise, seeds=seeds)], [main, noise])
        for seeds in (range(2), [3])
    )
    highest = [blocks(section(page, "Summary"), Table)[0].notes[0] for page in (several, one)]
    points = [blocks(section(page, "Main table"), Figure)[0].caption for page in (several, one)]
    bands = [blocks(section(page, "Noise in test"), Figure)[0].caption for page in (several, one)]
    assert ["±" in note for note in highest] == [True, False]
    assert ["a bar" in caption for caption in points] == [True, False]
    assert ["±" in caption for caption in bands] == [True, False]
    assert dict(blocks(section(one, "Summary"), Facts)[0].pairs)["Seeds"] == "one: seed 3"


def test_an_experiment_with_one_value_of_what_it_varies_is_only_begun():
    noise = results.experiment(results.NOISE)
    rows = [row for row in results.rows(noise) if row.run["noise"] == 0.4]
    page = report_of_rows(rows, [noise])
    assert blocks(section(page, "Started experiments"), Table)[0].lines == (("Noise in test", "σ² = 0.4", "24", "2"),)
    assert "Noise in test" not in [section.title for section in page.sections]


def test_runs_of_no_experiment_have_a_table_of_their_own(main):
    own = [results.done(Run("mamem-ssvep-ii", s, "gbwatt", 0, "", options={"theta": 3}), 0.5) for s in (1, 2)]
    found = section(report_of_rows([*results.rows(main), *own], [main]), "Other runs")
    (line,) = blocks(found, Table)[0].lines
    assert line[:2] == ("gbwatt", "theta = 3")
    assert len(blocks(found, Figure)) == 1
    assert "50.00" in said(Page("", (found,)))


def test_all_runs_are_in_one_table_that_is_searched(page):
    (big,) = blocks(section(page, "All runs"), BigTable)
    assert len(big.table.lines) == 36
    assert {"data set", "changed", "accuracy", "ill after", "seconds"} <= {column.name for column in big.table.header}


def test_failed_runs_are_shown_with_their_tracebacks_and_those_alike_once(main):
    good, runs = results.rows(main), list(results.runs(main))
    bad = [results.failed(run, "Traceback:\n  <module>\nValueError: <b>no</b>") for run in runs[:3]]
    bad.append(results.failed(runs[3], "Traceback:\nMemoryError"))
    page = report_of_rows([*bad, *good[4:]], [main])
    folds = blocks(section(page, "Failed runs"), Fold)
    assert [fold.summary for fold in folds] == ["3 runs: ValueError: <b>no</b>", "1 run: MemoryError"]
    assert [block.text for block in folds[0].blocks][1] == "Traceback:\n  <module>\nValueError: <b>no</b>"
    assert dict(blocks(section(page, "Summary"), Facts)[0].pairs)["Runs"] == "36, 4 failed"
    assert "<b>" not in render(page)


def test_a_page_has_only_so_many_different_tracebacks_and_says_so(main):
    bad = [results.failed(run, f"Error {i}") for i, run in enumerate(results.runs(main, seeds=range(4)))]
    page = report_of_rows(bad, [main])
    found = section(page, "Failed runs")
    assert len(blocks(found, Fold)) == MAX_TRACEBACKS
    assert blocks(found, Paragraph)[-1].text.startswith(f"{len(bad) - MAX_TRACEBACKS} more runs failed")


def test_versions_warnings_and_options_are_there(main):
    rows = [row._replace(warnings=["UserWarning: <a>"]) for row in results.rows(main)]
    words = said(report_of_rows(rows, [main]))
    assert "python 3.11.7 36" in words.replace("python3.11.736", "python 3.11.7 36")
    assert "UserWarning: <a>" in words
    assert "aggregation = frechet" in words


def test_commands_repeat_the_runs_in_a_new_store(page):
    repeat, again = blocks(section(page, "Reproduce"), Code)
    assert repeat.text.splitlines() == [
        "gbwatt benchmark main --dataset mamem-ssvep-ii --subjects 1-6 --seeds 2 --store reproduced.sqlite",
        "gbwatt report reproduced.sqlite -o reproduced.html",
    ]
    assert again.text == "gbwatt report results.sqlite -o report.html"


@pytest.mark.parametrize("seeds", [[0], [0, 1, 2], [5], [1, 2], [0, 2]])
def test_the_command_has_the_seeds_of_the_runs(main, seeds):
    page = report_of_rows(results.rows(main, subjects=[1], seeds=seeds), [main])
    words = shlex.split(blocks(section(page, "Reproduce"), Code)[0].text.splitlines()[0])
    given = words[words.index("--seeds") + 1]
    assert not given.endswith(",")
    assert seed_numbers(given) == seeds


def test_what_the_commands_do_more_or_less_than_was_done_is_said(main):
    rows = results.rows(main)
    other = [results.done(Run("mamem-ssvep-ii", 1, "gbwatt", 0, "", options={"theta": 3}), 0.5)]
    plain, more, less = (
        blocks(section(report_of_rows(some, [main]), "Reproduce"), Paragraph)[0].text
        for some in (rows, rows[1:], [*rows, *other])
    )
    assert ("missing here" in plain, "in none of these tables" in plain) == (False, False)
    assert ("missing here" in more, "in none of these tables" in more) == (True, False)
    assert ("missing here" in less, "in none of these tables" in less) == (False, True)


def test_runs_of_no_experiment_have_no_command(main):
    (again,) = blocks(section(report_of_rows(results.rows(main), []), "Reproduce"), Code)
    assert again.text.startswith("gbwatt report results.sqlite")


def test_names_from_users_are_escaped():
    evil = "<script>alert('x')</script>"
    models = [{"label": f"{evil} {n}", "model": model} for n, model in enumerate(("eegnet", "matt"))]
    found = results.experiment(title=evil, models=models, reference=f"{evil} 0")
    rows = [
        row._replace(run={**row.run}, per_class={evil: {"n": 40.0}}, confusion=[[40]]) for row in results.rows(found)
    ]
    page = render(report_of_rows(rows, [found]))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert len(read(page).scripts) == 1


def test_scores_and_histories_that_are_no_numbers_do_not_stop_a_report(main):
    nan = float("nan")
    broken = {"accuracy": nan, "kappa": nan, "history": {"train_loss": [1.0, nan]}, "conditions": None}
    rows = [row._replace(**broken) if row.run["seed"] else row for row in results.rows(main)]
    assert "Main table" in said(report_of_rows(rows, [main]))
    assert "Main table" in said(report_of_rows([row._replace(**broken) for row in rows], [main]))


def test_rows_with_scores_only_are_enough(main):
    bare = [replace_all(row) for row in results.rows(main)]
    assert "do not record versions" in said(report_of_rows(bare, [main]))


def replace_all(row):
    return type(row)(row.key, row.status, row.run, accuracy=row.accuracy)


def test_nothing_is_no_report(main):
    with pytest.raises(ParameterError, match="rows is empty"):
        report_of_rows([], [main])


def test_a_row_that_does_not_say_what_its_run_was_is_named(main):
    row = results.rows(main)[0]
    with pytest.raises(ParameterError, match=f"row {row.key}: its run .* was not written by this version"):
        report_of_rows([row._replace(run={"dataset": "mamem-ssvep-ii"})], [main])


def test_five_thousand_runs_stay_a_small_page():
    run = next(results.runs(results.experiment()))
    rows = [results.done(replace(run, subject=i % 50, seed=i), i / 5000)._replace(key=f"{i:032x}") for i in range(5000)]
    content = render(Page("All", (all_runs(rows),))).encode()
    assert len(read(content.decode()).data[0][0]["at"]) == 5000
    assert len(content) < 2e6


NAMES = (
    "a\x00b",
    "\x1b[31m",
    "\ud800",
    "\uffff",
    "<script>alert(1)</script>",
    "$\\frac{",
    "two\nlines",
    "\u202e",
    "a\u200b\u200fb",
    "=1+1",
)


def test_no_name_breaks_a_report(main):
    """Names of classes, models, options, data sets, versions and steps, and tracebacks and warnings."""
    rows = []
    for seed, name in enumerate(NAMES):
        scores = {"recall": 0.5, "precision": 0.5, "n": 2.0}
        options = {"metric": name, name: 1}
        run = Run(f"{name}.npz", 1, name, seed=seed, data=name, options=options, training={name: name})
        row = Row(run.key, "done", run.to_dict(), accuracy=0.5, confusion=[[1, 1], [1, 1]], best_epoch=1, epochs=2)
        rows.append(
            row._replace(
                per_class={name: scores, f"{name}'": scores},
                history={"train_loss": [1.0, 0.5], "valid_loss": [1.0, 0.5]},
                preprocessing=[{"step": name}],
                versions={"python": name, name: "1"},
                warnings=[name],
            )
        )
        failed = replace(run, seed=100 + seed)
        rows.append(Row(failed.key, "failed", failed.to_dict(), traceback=f"Traceback\n{name}"))
    text = render(report_of_rows(rows, [main], source=NAMES[1]))
    text.encode()
    assert "<script>alert(1)" not in text
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200f\u202e\ud800-\udfff\uffff]", text)
    pictures = [base64.b64decode(found) for found in re.findall(r"image/svg\+xml;base64,([^\"]+)", text)]
    assert len(pictures) >= len(NAMES)
