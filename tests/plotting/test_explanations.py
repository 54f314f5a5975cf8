"""Heatmaps, bars, and curves of deletion and insertion."""

from __future__ import annotations

import numpy as np
import pytest

from gbwatt import plotting
from gbwatt.errors import InputError
from tests.plotting.layout import tick_names

TIMES = np.arange(10) / 125
NAMES = ["C3", "Cz", "C4"]


def maps(n: int) -> np.ndarray:
    return np.arange(n * 30, dtype=float).reshape(n, 3, 10)


def test_heatmaps_share_their_colours_and_say_the_unit():
    figure = plotting.heatmaps(maps(2), ["left", "right"], NAMES, TIMES, "gradient (1/µV)")
    left, right, bar = figure.axes
    assert left.images[0].get_clim() == right.images[0].get_clim() == (0, 59)
    assert bar.get_ylabel().split() == ["gradient", "(1/µV)"]


def test_heatmaps_show_what_they_were_given_first_channel_on_top():
    figure = plotting.heatmaps(maps(1), ["left"], NAMES, TIMES)
    axes = figure.axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), maps(1)[0])
    assert tick_names(axes.yaxis) == NAMES
    assert axes.yaxis_inverted()


def test_time_of_heatmaps_is_in_seconds_each_sample_in_the_middle_of_its_cell():
    figure = plotting.heatmaps(maps(1), ["left"], NAMES, 0.5 + TIMES)
    assert figure.axes[0].get_xlim() == pytest.approx((0.5 - 0.004, 0.5 + 0.072 + 0.004))
    assert figure.get_supxlabel() == "time (s)"


@pytest.mark.parametrize("n", [1, 4, 5])
def test_an_epoch_of_a_second_has_three_ticks_or_more(n):
    times = np.arange(125) / 125
    axes = plotting.heatmaps(np.ones((n, 3, 125)), list("abcde")[:n], NAMES, times).axes[0]
    low, high = axes.get_xlim()
    assert sum(low <= tick <= high for tick in axes.get_xticks()) >= 3


def test_signed_heatmaps_have_zero_in_the_middle():
    values = maps(1) - 20
    assert plotting.heatmaps(values, ["left"], NAMES, TIMES).axes[0].images[0].get_clim() == (-20, 20)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"class_names": ["left"]}, "'class_names' has 1 names for 2 classes"),
        ({"ch_names": ["C3"]}, "'ch_names' has 1 names for 3 channels"),
        ({"times": TIMES[:4]}, "'values' has 10 samples and 'times' 4 samples"),
        ({"times": TIMES[::-1]}, "'times' must be strictly increasing"),
        ({"times": TIMES**2}, "'times' has steps from"),
        ({"class_names": "ab"}, r"'class_names' is the text 'ab'; a list of names is needed"),
    ],
)
def test_heatmaps_refuse_what_does_not_belong_together(change, message):
    given = {"values": maps(2), "class_names": ["a", "b"], "ch_names": NAMES, "times": TIMES}
    with pytest.raises(InputError, match=message):
        plotting.heatmaps(**given | change)


def test_bars_share_their_scale_and_name_the_channels():
    figure = plotting.channel_bars([[1, 2, 3], [0, 1, 9]], ["a", "b"], ["occipital 1", "occipital 2", "occipital 3"])
    top, bottom = figure.axes
    assert top.get_ylim() == bottom.get_ylim()
    assert [bar.get_height() for bar in bottom.patches] == [0, 1, 9]
    assert tick_names(bottom.xaxis) == ["occipital 1", "occipital 2", "occipital 3"]
    assert figure.get_supylabel() == "gradient magnitude (a.u.)"


def test_areas_of_deletion_and_insertion_are_those_below_the_lines():
    figure = plotting.deletion_insertion([0, 0.25, 1], {"gradient": ([1, 0, 0], [0, 1, 1])})
    texts = [axes.get_legend().get_texts()[0].get_text() for axes in figure.axes]
    assert texts == ["gradient: area 0.12", "gradient: area 0.88"]
    assert "(%)" in figure.axes[0].get_xlabel()
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()


@pytest.mark.parametrize(
    "fractions, curves, message",
    [
        ([0, 1], {}, "'curves' is empty"),
        ([0, 1], {"g": ([1, 0, 0], [0, 1])}, r"curves\['g'\]\[0\]' has 3 values and 'fractions' 2"),
        ([1, 0], {"g": ([1, 0], [0, 1])}, "'fractions' must be strictly increasing"),
    ],
)
def test_deletion_and_insertion_refuse_what_does_not_fit(fractions, curves, message):
    with pytest.raises(InputError, match=message):
        plotting.deletion_insertion(fractions, curves)
