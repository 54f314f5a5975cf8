"""The checks of layout find what they look for."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from tests.plotting.layout import assert_readable, drawn_texts


def figure_with(*places) -> Figure:
    figure = Figure(figsize=(2, 2))
    for x, y in places:
        figure.text(x, y, "word")
    return figure


def test_words_apart_are_readable():
    assert_readable(figure_with((0.1, 0.1), (0.1, 0.6)))


def test_words_on_top_of_each_other_are_not():
    with pytest.raises(AssertionError, match="on top of each other"):
        assert_readable(figure_with((0.1, 0.1), (0.15, 0.12)))


def test_words_beyond_the_edge_are_not():
    with pytest.raises(AssertionError, match="outside the figure"):
        assert_readable(figure_with((0.9, 0.1)))


def test_ticks_that_overlap_are_not():
    figure = Figure(figsize=(3, 2), layout="constrained")
    figure.subplots().set_xticks([0.5, 0.55], ["name", "another"])
    with pytest.raises(AssertionError, match="on top of each other"):
        assert_readable(figure)


def test_ticks_beyond_the_limits_of_an_axis_are_not_looked_at():
    figure = Figure(figsize=(2, 2))
    axes = figure.subplots()
    axes.set_xticks([0.5, 5], ["within", "beyond"])
    axes.set_xlim(0, 1)
    texts = {text.get_text() for text in drawn_texts(figure)}
    assert "within" in texts
    assert "beyond" not in texts
