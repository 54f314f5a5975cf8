"""Numbers in words; the examples of the functions say the rest."""

from __future__ import annotations

from gbwatt.report.text import ranges, span


def test_nothing_is_said_of_nothing():
    assert ranges([]) == ""
    assert span([]) == ""


def test_two_neighbours_are_a_range():
    assert ranges([4, 3]) == "3–4"
