"""Colours, lines, and names that fit."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from gbwatt.plotting import style
from tests.plotting.layout import assert_readable, tick_names


def grey(name: str) -> np.ndarray:
    return np.array([style.luminance(color) for color in matplotlib.colormaps[name](np.linspace(0, 1, 65))[:, :3]])


def test_magnitudes_rise_from_dark_to_light_in_grey():
    steps = np.diff(grey(style.SEQUENTIAL))
    assert steps.min() > 0
    assert grey(style.SEQUENTIAL)[-1] > 0.6


def test_signed_values_darken_on_both_sides_of_zero_alike():
    values = grey(style.DIVERGING)
    assert np.diff(values[:33]).min() > 0
    assert np.diff(values[32:]).max() < 0
    assert np.abs(values - values[::-1]).max() < 0.12


def test_colours_are_those_of_okabe_and_ito():
    assert to_rgb(style.PALETTE[0]) == pytest.approx((0, 114 / 255, 178 / 255))
    assert len(set(style.PALETTE)) == len(style.MARKERS) == len(style.DASHES) == 7
    assert max(map(style.luminance, style.PALETTE)) < 0.5  # seen on white


def test_lines_differ_in_colour_and_marker_up_to_49():
    pairs = {(style.line(i)["color"], style.line(i)["marker"]) for i in range(49)}
    assert len(pairs) == 49


def test_seven_lines_differ_without_their_colour():
    assert len({(style.line(i)["marker"], str(style.line(i)["linestyle"])) for i in range(7)}) == 7


@pytest.mark.parametrize("name", [style.SEQUENTIAL, style.DIVERGING])
def test_ink_has_contrast_on_every_colour(name):
    """4.5 to 1 is what WCAG 2.1 asks of text."""
    for background in matplotlib.colormaps[name](np.linspace(0, 1, 65))[:, :3]:
        low, high = sorted((style.luminance(background), style.luminance(style.ink(background))))
        assert (high + 0.05) / (low + 0.05) >= 4.5


def test_shades_start_at_zero_or_have_it_in_the_middle():
    assert style.shades(np.array([0.2, 3.0])) == {"cmap": "cividis", "vmin": 0.0, "vmax": 3.0}
    assert style.shades(np.array([-2.0, 1.0])) == {"cmap": "RdBu_r", "vmin": -2.0, "vmax": 2.0}
    assert style.shades(np.zeros(3))["vmax"] > 0


@pytest.mark.parametrize("text", ["left", "a name of many words", "Donaudampfschifffahrtsgesellschaft", ""])
def test_wrapped_text_is_no_wider_than_asked(text):
    found = style.wrapped(text, 0.8)
    assert all(style.text_width(line, style.NORMAL) <= 0.8 for line in found.splitlines())
    assert found.split()[:1] == text.split()[:1] or found.endswith("…")


@pytest.mark.parametrize("text", ["GBWAtt (θ = 1.5), mean", "GBWAtt (θ = 1.5): mean", "f(a b) c"])
def test_what_follows_a_parenthesis_stays_with_it(text):
    assert style.wrapped(text, 3) == text
    assert style.wrapped(text, 0.6).replace("\n", " ") == text


@pytest.mark.parametrize("n, named", [(8, 8), (22, 22), (44, 44), (200, 40)])
def test_names_of_ticks_are_in_two_rows_or_left_out_when_they_are_many(n, named):
    figure = Figure(figsize=(4, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.set_ylim(-0.5, n - 0.5)
    names = [f"E{i}" for i in range(n)]
    style.name_ticks(axes.yaxis, names, 2.8, 0.3)
    axes.tick_params(which="both", labelsize=style.SMALL)
    assert_readable(figure)
    shown = tick_names(axes.yaxis)
    assert named <= len(shown) <= n
    assert shown == sorted(shown, key=names.index)


@pytest.mark.parametrize("n, expected", [(3, ["1", "2", "3"]), (16, ["2", "4", "6", "8", "10", "12", "14", "16"])])
def test_counts_start_at_one(n, expected):
    axes = Figure().subplots()
    style.count_ticks(axes.xaxis, n)
    assert tick_names(axes.xaxis) == expected
    assert axes.get_xticks()[0] == int(expected[0]) - 1
