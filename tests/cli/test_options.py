"""What commands share, and how errors leave the program."""

from __future__ import annotations

import json
import sys

import pytest
import typer

from gbwatt import cli
from gbwatt.cli.options import key_values, numbers, print_json, reading, require_free
from gbwatt.errors import ParameterError


def test_values_are_json_where_they_can_be_read_as_such():
    found = key_values(["a=1", "b=0.5", "c=true", "d=null", "e=[1, 2]", "f=learnt", "g=x=y", "h="])
    assert found == {"a": 1, "b": 0.5, "c": True, "d": None, "e": [1, 2], "f": "learnt", "g": "x=y", "h": ""}
    assert key_values(None) == {}


@pytest.mark.parametrize("text", ["theta", "=1.5", ""])
def test_what_is_no_pair_is_a_wrong_usage(text):
    with pytest.raises(typer.BadParameter, match="key=value"):
        key_values([text])


@pytest.mark.parametrize("text", ["classes={left: T1}", "classes=[T1, T2]"])
def test_values_that_begin_like_json_must_be_json(text):
    with pytest.raises(typer.BadParameter, match=r"not valid JSON; names need double quotes"):
        key_values([text], "read")


def test_repeated_preprocessing_is_applied_in_order():
    assert reading(None, None, ["bandpass=8-30", "resample=125"]) == {"preprocessing": "bandpass=8-30,resample=125"}
    assert reading(None, None, None) == {}


@pytest.mark.parametrize(
    ("text", "found"), [("3", [3]), ("1,2,5-7", [1, 2, 5, 6, 7]), (" 9 , 2 - 3 ", [9, 2, 3]), ("4-4", [4])]
)
def test_numbers_and_ranges_are_read(text, found):
    assert numbers("subjects", text) == found


@pytest.mark.parametrize("text", ["", "1,", "a", "1-", "-1", "3-1", "1.5", "1--2", "1,1", "1-3,2"])
def test_other_texts_are_refused_with_the_name_of_the_argument(text):
    with pytest.raises(ParameterError, match="subjects="):
        numbers("subjects", text)


def test_documents_have_no_number_that_json_does_not_have(capsys):
    print_json({"a": float("nan"), "b": [1.5, float("inf")], "c": {"d": "µ"}})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.5, None], "c": {"d": "µ"}}


# ---- output paths


@pytest.mark.parametrize("kind", ["model", "explanation", "report"])
def test_what_does_not_exist_may_be_written(tmp_path, kind):
    require_free(tmp_path / "new", kind=kind, force=False)


@pytest.mark.parametrize("kind", ["model", "explanation"])
def test_folders_must_be_empty_unless_forced(tmp_path, kind):
    require_free(tmp_path, kind=kind, force=False)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ParameterError, match=r"already exists.*--force"):
        require_free(tmp_path, kind=kind, force=False)
    with pytest.raises(ParameterError, match="is a file"):
        require_free(tmp_path / "config.json", kind=kind, force=True)


def test_force_replaces_outputs_of_the_same_kind_only(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "page.html").write_text("<!DOCTYPE html><title>a report</title>")
    require_free(tmp_path, kind="explanation", force=True)
    require_free(tmp_path / "page.html", kind="report", force=True)
    with pytest.raises(ParameterError, match="not a model"):
        require_free(tmp_path, kind="model", force=True)
    with pytest.raises(ParameterError, match="not a report"):
        require_free(tmp_path / "mine.txt", kind="report", force=True)
    with pytest.raises(ParameterError, match="is a folder"):
        require_free(tmp_path, kind="report", force=True)
    with pytest.raises(ParameterError, match="no folder"):
        require_free(tmp_path / "none" / "page.html", kind="report", force=True)


# ---- errors


class OwnError(Exception):
    """An error that this package would define."""


OwnError.__module__ = "gbwatt.somewhere"


@pytest.mark.parametrize("error", [OwnError("mend it"), ParameterError("mend it"), PermissionError("mend it")])
def test_errors_that_a_user_can_mend_are_a_line_and_exit_code_2(error, capsys, monkeypatch):
    _failing(monkeypatch, error)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert capsys.readouterr() == ("", "error: mend it\n")


def test_other_errors_keep_their_traceback(monkeypatch):
    _failing(monkeypatch, ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        cli.main()


def _failing(monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(cli, "app", fail)
    monkeypatch.setattr(sys, "argv", ["gbwatt"])
