"""Characters that hide or reorder text are known in one place, and everything that writes names uses it."""

from __future__ import annotations

import unicodedata

import pytest

from gbwatt._text import UNSAFE, printable, replace_unsafe
from gbwatt.data.trials import plain_name
from gbwatt.errors import InputError, ParameterError
from gbwatt.experiments.config import experiment_from_dict
from gbwatt.experiments.table_formats import markdown, visible, visible_lines
from gbwatt.report.page import clean

HIDDEN = ["\x00", "\x1b", "\x9b", "\u061c", "\u200b", "\u200e", "\u200f", "\u202e", "\u2060", "\u2066", "\ufeff"]
HIDDEN += ["\ufff9", "\ufffe", "\uffff", "\ud800", "\U000e0041"]


@pytest.mark.parametrize("character", HIDDEN, ids=ascii)
def test_every_place_treats_a_hidden_character_alike(character):
    name = f"C{character}3"
    shown = f"C{ascii(character)[1:-1]}3"
    assert replace_unsafe(name) == printable(name) == visible(name) == visible_lines(name) == shown
    assert character not in markdown(name)
    assert clean(name) == "C\ufffd3"
    with pytest.raises(ParameterError, match=r"C.*3"):
        plain_name("ch_names", name)


def test_every_control_character_is_unsafe():
    controls = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cs", "Zl", "Zp")]
    assert len(controls) > 2000
    assert all(UNSAFE.fullmatch(control) for control in controls)


@pytest.mark.parametrize("text", ["Größe", "左手", "می‌خواهم", "µV", "a b", "👩‍🔬"])
def test_other_text_stays_as_it_is(text):
    assert replace_unsafe(text) == visible(text) == clean(text) == text


def test_lines_and_tabs_stay_where_they_are_kept():
    assert visible_lines("a\tb\r\nc") == "a\tb\nc"
    assert printable("a\nb\tc") == "a\nb\\tc"
    assert clean("a\tb\r\nc\u2028") == "a\tb\r\nc\u2028"


@pytest.mark.parametrize("character", ["\u200b", "\u200f", "\ufeff"], ids=ascii)
def test_names_in_experiment_files_have_no_hidden_characters(character):
    with pytest.raises(InputError, match="control characters"):
        experiment_from_dict(
            {"name": "small", "title": f"Main{character} table", "datasets": ["simulated-ssvep"], "models": ["gbwatt"]}
        )
