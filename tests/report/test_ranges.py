"""Whole numbers as ranges."""

from __future__ import annotations

from gbwatt._text import number_ranges


def test_no_numbers_give_no_text():
    assert number_ranges([]) == ""


def test_two_neighbours_are_a_range():
    assert number_ranges([4, 3], "–") == "3–4"
