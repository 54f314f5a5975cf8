"""Tables of hand-made rows whose means are known, and how they are written."""

from __future__ import annotations

import csv
import html
import io
import re

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from gbwatt.experiments.grid import collect_results
from gbwatt.experiments.row_io import flatten, read_csv, write_csv
from gbwatt.experiments.runs import LabelledRun, Row, Run
from gbwatt.experiments.table_formats import (
    Column,
    Table,
    escape,
    markdown,
    show,
    to_csv,
    to_latex,
    to_markdown,
    to_rich,
    visible,
)
from gbwatt.experiments.tables import comparison_table, condition_table, make_table, measure, time_table
from tests.experiments.rows import make

SSVEP, ERN, SIMULATED = "mamem-ssvep-ii", "bci-ern", "simulated-ssvep"
FULL, OTHER = "GBWAtt (θ = 1.5)", "MAtt"


def run(label: str, dataset: str, subject: int, seed: int, noise: float = 0.0, split: int = 0) -> Run:
    return Run(dataset, subject, label, seed=seed, data="", noise=noise, split=split)


def done(of: Run, score: float, **columns) -> Row:
    return Row(of.key, "done", of.to_dict(), accuracy=score, auc=score / 2, **columns)


class Runs:
    """Labelled runs and rows as a test describes them."""

    def __init__(self) -> None:
        self.labelled: list[LabelledRun] = []
        self.rows: dict[str, Row] = {}

    def add(self, label, dataset, scores, setting="", noise=0.0, **columns):
        """``scores[subject][seed]``; None is a run that is missing, "failed" one that failed."""
        for subject, of_seeds in enumerate(scores, 1):
            for seed, score in enumerate(of_seeds):
                one = run(label, dataset, subject, seed, noise)
                self.labelled.append(LabelledRun(label, setting, one))
                if score == "failed":
                    self.rows[one.key] = Row(one.key, "failed", one.to_dict(), traceback="…")
                elif score is not None:
                    self.rows[one.key] = done(one, score, **columns)
        return self

    @property
    def results(self):
        return collect_results(self.labelled, self.rows)

    def table(self, title="A table", **options) -> Table:
        return make_table(title, self.labelled, self.rows, **options)


def look(table: Table, label: str, name: str, group: str = SSVEP, setting: str | None = None):
    """The one value in the line of a label, and the column of a name."""
    names = [column.name for column in table.header]
    (place,) = [i for i, c in enumerate(table.header) if c.name == name and c.group == group]
    lines = [line for line in table.lines if line[0] == label]
    if setting is not None:
        lines = [line for line in lines if line[names.index("setting")] == setting]
    (line,) = lines
    return line[place]


def columns_of(table: Table, group: str) -> list[str]:
    return [column.name for column in table.header if column.group == group]


def test_ours_stands_beside_the_papers_with_the_difference():
    table = Runs().add(FULL, SSVEP, [[0.5, 0.7], [0.8, 1.0]]).table(paper_table="main")
    assert look(table, FULL, "ours") == pytest.approx(75.0)
    assert look(table, FULL, "± over seeds") == pytest.approx(10.0)
    assert look(table, FULL, "± subjects") == pytest.approx(30 / 2**0.5)
    assert look(table, FULL, "paper") == 67.27
    assert look(table, FULL, "± of paper") == 2.62
    assert look(table, FULL, "difference") == pytest.approx(75 - 67.27)
    assert look(table, FULL, "n") == "2 × 2"


def test_spread_over_seeds_is_zero_if_seeds_agree():
    table = Runs().add(FULL, SSVEP, [[0.5, 0.5], [0.8, 0.8]]).table()
    assert look(table, FULL, "± over seeds") == 0


def test_score_is_the_auc_for_ern_and_the_accuracy_elsewhere():
    assert [measure(d) for d in (ERN, "simulated-ern", SSVEP, "simulated-mi", "mine.npz")] == ["auc"] * 2 + [
        "accuracy"
    ] * 3
    table = Runs().add(OTHER, SSVEP, [[0.8]]).add(OTHER, ERN, [[0.8]]).table()
    assert look(table, OTHER, "ours", SSVEP) == pytest.approx(80)
    assert look(table, OTHER, "ours", ERN) == pytest.approx(40)
    assert f"accuracy on {SSVEP}" in table.notes[0]
    assert f"AUC on {ERN}" in table.notes[0]


def test_simulated_sets_have_no_number_of_the_paper_and_are_named():
    table = Runs().add(OTHER, SSVEP, [[0.6]]).add(OTHER, SIMULATED, [[0.9]]).table(paper_table="main")
    assert "paper" in columns_of(table, SSVEP)
    assert not {"paper", "difference"} & set(columns_of(table, SIMULATED))
    assert any(f"{SIMULATED} is simulated" in note for note in table.notes)


def test_missing_and_failed_runs_are_counted_where_they_belong():
    runs = Runs().add(FULL, SSVEP, [[0.5, 0.7], [0.8, None], ["failed", None]]).add(OTHER, SSVEP, [[0.6, 0.6]])
    table = runs.table()
    assert [look(table, FULL, name) for name in ("n", "failed", "missing")] == ["2 × 1–2", "1", "2"]
    assert [look(table, OTHER, name) for name in ("n", "failed", "missing")] == ["1 × 2", None, None]
    assert "Runs: 5 of 8 done, 1 failed, 2 missing." in table.notes


def test_line_without_any_run_done_is_empty_but_keeps_the_papers_number():
    table = Runs().add(FULL, SSVEP, [[None, None]]).add(OTHER, SSVEP, [[0.6]]).table(paper_table="main")
    assert look(table, FULL, "ours") is None
    assert look(table, FULL, "difference") is None
    assert look(table, FULL, "paper") == 67.27
    assert (look(table, FULL, "n"), look(table, FULL, "missing")) == ("none", "2")


def test_model_that_is_not_on_a_data_set_leaves_its_cells_empty():
    table = Runs().add(FULL, SSVEP, [[0.6]]).add(OTHER, ERN, [[0.6]]).table()
    assert look(table, FULL, "ours", ERN) is None
    assert look(table, FULL, "n", ERN) is None


def test_unequal_seeds_are_told_and_do_not_weigh():
    table = Runs().add(FULL, SSVEP, [[1.0, 1.0, 1.0], [0.0]]).table()
    assert look(table, FULL, "ours") == pytest.approx(50)
    assert look(table, FULL, "n") == "2 × 1–3"


def test_splits_of_a_subject_are_averaged_and_are_no_seeds():
    runs = Runs()
    for split, score in enumerate((0.4, 0.8)):
        one = run(FULL, SSVEP, 1, 0, split=split)
        runs.labelled.append(LabelledRun(FULL, "", one))
        runs.rows[one.key] = done(one, score)
    table = runs.table()
    assert look(table, FULL, "ours") == pytest.approx(60)
    assert look(table, FULL, "n") == "1 × 1"
    assert "± over seeds" not in columns_of(table, SSVEP)


def test_run_that_stands_twice_in_a_line_counts_once():
    runs = Runs().add(FULL, SSVEP, [[0.5, None]])
    (found,) = collect_results(runs.labelled * 2, runs.rows).values()
    assert (len(found.done), len(found.missing)) == (1, 1)


def test_run_in_two_lines_counts_in_both_but_is_one_run():
    one = run(FULL, SSVEP, 1, 0)
    table = make_table("", [LabelledRun("a", "", one), LabelledRun("b", "", one)], {one.key: done(one, 0.5)})
    assert look(table, "a", "ours") == look(table, "b", "ours") == pytest.approx(50)
    assert "Runs: 1 of 1 done, 0 failed, 0 missing." in table.notes


def test_settings_are_lines_of_their_own_with_their_own_numbers():
    runs = Runs().add(OTHER, SSVEP, [[0.6]], "σ² = 0.2", 0.2).add(OTHER, SSVEP, [[0.5]], "σ² = 0.4", 0.4)
    table = runs.table(paper_table="noise")
    assert look(table, OTHER, "ours", setting="σ² = 0.2") == pytest.approx(60)
    assert look(table, OTHER, "paper", setting="σ² = 0.2") == 63.52
    assert look(table, OTHER, "paper", setting="σ² = 0.4") == 63.22


def test_settings_have_no_column_where_nothing_is_varied():
    assert "setting" not in [c.name for c in Runs().add(OTHER, SSVEP, [[0.6]]).table().header]


def test_no_columns_for_the_paper_without_its_table():
    assert columns_of(Runs().add(OTHER, SSVEP, [[0.6, 0.7], [0.1, 0.2]]).table(), SSVEP) == [
        "ours",
        "± over seeds",
        "± subjects",
        "n",
    ]


def test_remarks_on_the_papers_table_are_notes():
    table = Runs().add(OTHER, SSVEP, [[0.6]]).table(paper_table="limited")
    assert any("without numbers" in note for note in table.notes)


def test_training_that_is_not_as_registered_is_told():
    short = [Run(SSVEP, 1, "matt", seed=seed, data="", training={"max_epochs": 2, "lr": 0.1}) for seed in range(2)]
    cells = [*(LabelledRun(OTHER, "", one) for one in short), LabelledRun(FULL, "", run(FULL, SSVEP, 1, 0))]
    notes = [note for note in make_table("", cells, {}).notes if note.startswith("Trained")]
    assert notes == ["Trained with lr = 0.1, max_epochs = 2: MAtt."]


# ---------------------------------------------------------------------------------------------------------- comparisons


def rivals() -> Runs:
    """Six subjects: one model better on all, one worse on all, one the same."""
    runs = Runs().add(OTHER, SSVEP, [[0.5]] * 6)
    runs.add("better", SSVEP, [[0.5 + 0.01 * s] for s in range(1, 7)])
    runs.add("worse", SSVEP, [[0.5 - 0.01 * s] for s in range(1, 7)])
    return runs.add("same", SSVEP, [[0.5]] * 6)


def test_comparisons_come_with_the_table_and_are_corrected_over_it():
    table = rivals().table(reference=OTHER)
    (second,) = table.more
    assert table.tables == (table, second)
    assert [line[0] for line in second.lines] == ["better", "worse", "same"]
    assert look(second, "better", "median difference") == pytest.approx(3.5)
    assert look(second, "worse", "median difference") == pytest.approx(-3.5)
    assert look(second, "better", "p") == pytest.approx(0.03125)
    assert look(second, "better", "p (Holm)") == pytest.approx(0.0625)
    assert look(second, "same", "p") is None
    assert look(second, "same", "why no p") == "no subject differs"
    assert any("corrected for the 2 tests" in note for note in second.notes)


def test_comparisons_are_within_a_setting_and_a_data_set():
    runs = Runs()
    for setting, noise, shift in (("σ² = 0.2", 0.2, 0.1), ("σ² = 0.4", 0.4, -0.2)):
        runs.add(OTHER, SSVEP, [[0.5]] * 5, setting, noise)
        runs.add(FULL, SSVEP, [[0.5 + shift]] * 5, setting, noise)
    runs.add(FULL, ERN, [[0.5]] * 5, "σ² = 0.2", 0.2)
    second = comparison_table("", runs.results, OTHER)
    assert look(second, FULL, "median difference", setting="σ² = 0.2") == pytest.approx(10)
    assert look(second, FULL, "median difference", setting="σ² = 0.4") == pytest.approx(-20)
    assert look(second, FULL, "median difference", ERN, setting="σ² = 0.2") is None


def test_reference_that_is_not_there_is_told():
    (second,) = rivals().table(reference="TSception").more
    assert second.notes == ("No results can be compared with TSception.",)


# ------------------------------------------------------------------------------------------------- conditions and times


def shares(before: float, after: float) -> dict[str, dict[str, float]]:
    return {"before": {"share": before}, "after": {"share": after}}


def test_noise_brings_the_shares_of_ill_conditioned_matrices():
    runs = Runs().add(FULL, SSVEP, [[0.6], [0.6]], "σ² = 0.2", 0.2, conditions=shares(0.5, 0.25))
    runs.add("EEGNet", SSVEP, [[0.6]], "σ² = 0.2", 0.2)
    (second,) = runs.table(paper_table="noise").more
    assert look(second, FULL, "before") == pytest.approx(50)
    assert look(second, FULL, "after") == pytest.approx(25)
    assert look(second, FULL, "paper before") == 54.77
    assert look(second, FULL, "paper after") == 0.0
    assert look(second, "EEGNet", "before") is None


def test_conditions_are_averaged_over_subjects():
    runs = Runs().add(FULL, SSVEP, [[0.6]], conditions=shares(0.2, 0.1))
    one = run(FULL, SSVEP, 2, 0)
    runs.labelled.append(LabelledRun(FULL, "", one))
    runs.rows[one.key] = done(one, 0.6, conditions=shares(0.4, 0.0))
    table = condition_table("", runs.results)
    assert look(table, FULL, "before") == pytest.approx(30)
    assert look(table, FULL, "after") == pytest.approx(5)


def test_table_of_times_has_the_median_and_no_scores():
    runs = Runs()
    for subject, seconds in enumerate((0.1, 0.2, 0.9), 1):
        one = run(OTHER, SSVEP, subject, 0)
        runs.labelled.append(LabelledRun(OTHER, "", one))
        runs.rows[one.key] = done(one, 0.6, seconds_per_epoch=seconds)
    table = runs.table(paper_table="time", reference=OTHER)
    assert look(table, OTHER, "seconds") == 0.2
    assert look(table, OTHER, "paper") == 2.55
    assert not table.more
    assert time_table("", runs.results).lines == table.lines


# -------------------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (67.2749, "percent", "67.27"),
        (5.0, "percent", "5.00"),
        (5.0, "difference", "+5.00"),
        (-0.001, "difference", "+0.00"),
        (-1.236, "difference", "-1.24"),
        (0.0314, "p", "0.031"),
        (0.0005, "p", "< 0.001"),
        (0.05123, "seconds", "0.0512"),
        (2.5512, "seconds", "2.55"),
        (0.65, "seconds", "0.650"),
        (123.4, "seconds", "123"),
        (None, "percent", ""),
        ("11 × 10", "text", "11 × 10"),
    ],
)
def test_numbers_are_written_in_one_way(value, kind, text):
    assert show(value, kind) == text


def small() -> Table:
    runs = Runs().add(FULL, SSVEP, [[0.5, 0.7], [0.8, 1.0]]).add(OTHER, SSVEP, [[None, None]] * 2)
    return runs.add(FULL, SIMULATED, [[0.9]]).table("50 % of A_1 & B|C", paper_table="main")


def test_markdown_has_a_row_for_each_line_and_the_notes():
    text = to_markdown(small())
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == "| model | ours ± | ± subjects | paper ± | difference | n | missing |"
    assert rows[2:] == [
        "| **mamem-ssvep-ii** |  |  |  |  |  |  |",
        f"| {FULL} | 75.00 ± 10.00 | 21.21 | 67.27 ± 2.62 | +7.73 | 2 × 2 |  |",
        f"| {OTHER} |  |  | 65.19 ± 3.14 |  | none | 4 |",
        "| **simulated-ssvep** |  |  |  |  |  |  |",
        f"| {FULL} | 90.00 |  |  |  | 1 × 1 |  |",
    ]
    assert "- Runs: 5 of 9 done, 0 failed, 4 missing." in text


def test_markdown_escapes_bars():
    table = Table("t", (Column("model"), Column("n")), (("a|b", "1"),))
    assert r"| a\|b | 1 |" in to_markdown(table)


HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![](http://example.org/a.png)",
    "[click](javascript:alert(1))",
    "https://example.org/a",
    "www.example.org",
    "`code`",
    "*a* **b** a*b*c",
    "_a_ __b__ n_spatial",
    "~a~ ~~b~~",
    "a * b_ ~ c",
    "a | b",
    "two\nlines\n\n# title",
    "back\\| slash",
    "&lt;b&gt;",
    "\x1b[2J\x1b]0;title\x07",
    "a\x00b",
    "\ud800",
    "\u202egnp.exe",
    "a\u200bb\ufeffc",
    "\u061c\u200e\u200fgnp.exe",
    "\u2060\ufff9\U000e0041",
)


def hostile(text):
    """A table with a text in all its places."""
    return Table(text, (Column(text), Column("n", text, "percent")), ((text, 1.0),), (text,))


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_markup_in_markdown(text):
    written = to_markdown(hostile(text))
    assert len(written.splitlines()) == 8
    assert not re.search(r"<[A-Za-z/!?]", written)
    assert not re.search(r"(?<!\\)(\\\\)*[\[\]`]", written)  # each has a backslash before it
    rows = [line for line in written.splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows] == [3] * 4
    written.encode()


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_a_text_as_it_is(text):
    written, shown = markdown(text), visible(text)
    inside = f"*{written}*\n\n| a |\n|---|\n| {written} |"
    rendered = MarkdownIt().enable(["table", "strikethrough"]).render(inside)
    assert html.unescape(re.search(r"<p><em>(.*)</em></p>", rendered)[1]) == shown
    assert html.unescape(re.search(r"<td>(.*)</td>", rendered)[1]) == shown
    assert set(re.findall(r"</?(\w+)", rendered)) == {"p", "em", "table", "thead", "tbody", "tr", "th", "td"}


@pytest.mark.parametrize("text", ["https://example.org", "HTTP://example.org", "www.example.org", "ftp://example.org"])
def test_addresses_are_not_links_in_markdown(text):
    written = to_markdown(hostile(f"see {text}"))
    assert not re.search(r"(?<!\\)://|www\.", written, re.IGNORECASE)  # what GitHub looks for


@pytest.mark.parametrize("write", [to_markdown, to_latex, to_csv])
@pytest.mark.parametrize("text", HOSTILE)
def test_no_control_character_is_written(write, text):
    written = write(hostile(text))
    assert all(sign.isprintable() or sign in "\r\n" for sign in written)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_control_character_reaches_a_terminal(text):
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=200)
    console.print(to_rich(hostile(text)))
    said = re.sub(r"\x1b\[\d*m", "", console.file.getvalue())  # styles of the table itself
    assert all(sign.isprintable() or sign == "\n" for sign in said)


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|' /C calc'!A0", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "=HYPERLINK(1)"]
)
def test_text_in_a_csv_table_is_no_formula(text):
    rows = list(csv.reader(io.StringIO(to_csv(Table("t", (Column("name"), Column("d")), ((text, "x"),))))))
    assert not rows[1][0].startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert text.strip() in rows[1][0]


@pytest.mark.parametrize("text", ["=1+1", "'=1+1", "''@a", "'a", "-0.25", "+1", "a"])
def test_text_is_guarded_by_the_same_rule_in_tables_and_in_files_of_rows(tmp_path, text):
    table = list(csv.reader(io.StringIO(to_csv(Table("t", (Column("name"),), ((text,),))))))
    write_csv(tmp_path / "rows.csv", [flatten(make(1, "failed", traceback=text))])
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert table[1] == [row["traceback"]]
    assert read_csv(tmp_path / "rows.csv")[0].traceback == text


def test_numbers_in_a_csv_table_stay_numbers():
    header = (Column("a", kind="difference"), Column("b", kind="difference"), Column("kappa"))
    rows = list(csv.reader(io.StringIO(to_csv(Table("t", header, ((-0.5, 1.0, "-0.250"),))))))
    assert rows[1] == ["-0.50", "+1.00", "-0.250"]


def test_latex_escapes_and_has_the_rules_of_booktabs():
    text = to_latex(small())
    assert r"\caption{50 \% of A\_1 \& B|C}" in text
    assert r"\begin{tabular}{lrrrrll}" in text
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert r"\multicolumn{7}{l}{\textit{mamem-ssvep-ii}} \\" in rows
    full = r"GBWAtt ($\theta$ = 1.5) & 75.00 $\pm$ 10.00 & 21.21 & 67.27 $\pm$ 2.62 & $+7.73$ & 2 $\times$ 2 &  \\"
    assert full in rows
    assert {row.count("&") for row in rows if "multicolumn" not in row} == {6}


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a_b", r"a\_b"),
        ("100%", r"100\%"),
        ("R&D #1 {$}", r"R\&D \#1 \{\$\}"),
        ("a\\b", r"a\textbackslash{}b"),
        ("x^2~y", r"x\textasciicircum{}2\textasciitilde{}y"),
        ("σ² = 0.2", r"$\sigma$$^2$ = 0.2"),
        ("< 0.001", "$<$ 0.001"),
        ("-1.24", "$-1.24$"),
        ("TCNet-Fusion", "TCNet-Fusion"),
    ],
)
def test_latex_prints_what_is_meant(text, escaped):
    assert escape(text) == escaped


def test_latex_leaves_no_sign_that_it_cannot_print():
    runs = rivals().add(FULL, SSVEP, [[0.6]], "σ² = 0.2", 0.2, conditions=shares(0.5, 0.2))
    for table in runs.table(paper_table="noise", reference=OTHER).tables:
        assert not set(to_latex(table)) & set("±×−–²⁴θσκρ")


@pytest.mark.parametrize("write", [to_markdown, to_latex, to_csv, to_rich])
def test_table_without_lines_can_be_written(write):
    (empty,) = rivals().table(reference="TSception").more
    assert write(empty)
    assert write(Table("t", (Column("model"), Column("n")), ()))


def test_data_sets_without_a_line_are_not_named():
    runs = rivals().add(FULL, ERN, [[0.5]])
    (second,) = runs.table(reference=OTHER).more
    assert SSVEP in to_markdown(second)
    assert ERN not in to_markdown(second)


def test_csv_has_a_line_for_each_model_and_data_set():
    rows = list(csv.DictReader(io.StringIO(to_csv(small()))))
    assert [(row["data set"], row["model"]) for row in rows] == [(SSVEP, FULL), (SSVEP, OTHER), (SIMULATED, FULL)]
    assert (rows[0]["ours"], rows[0]["± over seeds"], rows[0]["paper"]) == ("75.00", "10.00", "67.27")
    assert (rows[1]["ours"], rows[1]["n"], rows[1]["missing"]) == ("", "none", "4")
    assert (rows[2]["ours"], rows[2]["paper"]) == ("90.00", "")


def test_screen_shows_numbers_labels_and_notes():
    from rich.console import Console

    console = Console(width=120, file=io.StringIO(), record=True)
    table = Runs().add("[bold]x[/]", SSVEP, [[0.5, 0.7]]).add(OTHER, ERN, [[0.5]]).table("A [title]")
    console.print(to_rich(table))
    text = console.export_text()
    for part in ("[bold]x[/]", "60.00 ± 10.00", "A [title]", "bci-ern", "Runs: 3 of 3 done"):
        assert part in text


def test_validation_stands_beside_and_says_what_it_would_choose():
    runs = Runs()
    runs.add("A", SSVEP, [[0.9], [0.7]], valid_accuracy=0.5)
    runs.add("B", SSVEP, [[0.6], [0.6]], valid_accuracy=0.7)
    runs.add("C", SSVEP, [[0.6], [None]], valid_accuracy=0.9)  # not all of its runs are there
    table = runs.table(validation=True)
    assert look(table, "B", "validation") == pytest.approx(70.0)
    assert "Highest validation accuracy on mamem-ssvep-ii (seed 0): B, 70.00 %." in table.notes
    assert "validation" not in [column.name for column in runs.table().header]


def test_durations_are_medians_over_runs_and_only_shown_on_request():
    runs = Runs().add("A", SSVEP, [[0.9], [0.7], [0.8]]).add("B", SSVEP, [[0.9]])
    for number, seconds in enumerate((1.0, 30.0, 5.0), 1):
        key = run("A", SSVEP, number, 0).key
        runs.rows[key] = runs.rows[key]._replace(seconds=seconds)
    table = runs.table(durations=True)
    assert (look(table, "A", "duration, s"), look(table, "B", "duration, s")) == (5.0, None)
    assert any(note.startswith("Duration: ") for note in table.notes)
    assert "duration, s" not in [column.name for column in runs.table().header]


def test_what_validation_would_choose_is_compared_on_seeds_that_all_lines_have():
    runs = Runs()
    runs.add("A", SSVEP, [[0.9, 0.9], [0.7, 0.7]], setting="one", valid_accuracy=0.5)
    runs.add("A", SSVEP, [[0.9, 0.9], [0.7, 0.7]], setting="two", valid_accuracy=0.6)
    runs.add("B", SSVEP, [[0.6], [0.6]], setting="one", valid_accuracy=0.7)
    notes = runs.table(validation=True).notes
    assert "Highest validation accuracy on mamem-ssvep-ii (seed 0): B, one, 70.00 %." in notes
    assert "Highest of each model: A, two, 60.00 %; B, one, 70.00 %." in notes


def test_sentences_are_wrapped_in_latex_and_words_are_not():
    table = Table("A", (Column("claim"), Column("verdict"), Column("n", kind="percent")), (("so " * 20, "no", 1.0),))
    assert r"\begin{tabular}{p{4.5cm}lr}" in to_latex(table)


def test_corpora_have_a_table_of_further_scores_and_say_how_their_backbones_began():
    scores = {"balanced_accuracy": 0.7, "kappa": 0.4, "confusion": [[8, 2], [4, 6]]}
    runs = Runs().add("LaBraM-Base", "tuab", [[0.7, 0.7]], **scores, versions={"weights": "random weights"})
    runs.add("LaBraM-GBWAtt", "tuab", [[0.7]], **scores, versions={"weights": "base.pth, SHA-256 12"})
    table = runs.table(paper_table="clinical")
    assert look(table, "LaBraM-Base", "ours", "tuab") == pytest.approx(70.0)
    assert look(table, "LaBraM-Base", "paper", "tuab") == 81.40
    (further,) = table.more
    assert look(further, "LaBraM-Base", "AUROC", "tuab") == pytest.approx(35.0)
    assert look(further, "LaBraM-Base", "Cohen's kappa", "tuab") == pytest.approx(40.0)
    f1 = (2 * 8 / (10 + 12) + 2 * 6 / (10 + 8)) / 2
    assert look(further, "LaBraM-Base", "weighted F1", "tuab") == pytest.approx(100 * f1)
    for one in (table, further):
        assert "Backbone initialised with random weights: LaBraM-Base." in one.notes
        assert "Backbone initialised with base.pth, SHA-256 12: LaBraM-GBWAtt." in one.notes


def test_other_sets_have_no_such_table():
    assert Runs().add(FULL, SSVEP, [[0.5]]).table().more == ()
