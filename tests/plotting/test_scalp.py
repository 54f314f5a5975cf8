"""Maps of the scalp, and where electrodes are."""

from __future__ import annotations

import numpy as np
import pytest

from gbwatt import plotting
from gbwatt.data.montage import scalp_positions
from gbwatt.data.sets import mamem
from gbwatt.errors import InputError, ParameterError, ShapeError
from tests.plotting import examples

NAMES = ["C3", "Cz", "C4", "Pz"]


def test_electrodes_are_where_the_10_20_system_has_them():
    place = scalp_positions(["Fpz", "Oz", "T7", "T8", "Cz", "C3", "C4"])
    assert np.hypot(*place["Cz"]) < 0.05
    assert place["Fpz"] == pytest.approx((0, 0.8), abs=0.05)  # the ring is at about 0.8 of the radius
    assert place["Oz"] == pytest.approx((0, -0.8), abs=0.05)
    assert place["T7"] == pytest.approx((-0.8, 0), abs=0.06)
    assert place["T8"] == pytest.approx((0.8, 0), abs=0.06)
    assert place["C3"][0] == pytest.approx(-place["C4"][0], abs=0.03)
    assert -0.5 < place["C3"][0] < -0.3


def test_capitals_do_not_matter():
    upper, usual = scalp_positions(["FCZ", "CPZ", "OZ"]), scalp_positions(["FCz", "CPz", "Oz"])
    np.testing.assert_array_equal(list(upper.values()), list(usual.values()))


def test_names_are_known_however_they_are_written():
    plain, padded = scalp_positions(["C3", "Cz", "FC5"]), scalp_positions(["C3..", "CZ ", "Fc5."])
    assert np.array_equal([*plain.values()], [*padded.values()])


def test_channels_without_a_position_are_named_with_a_way_out():
    names = [*NAMES[:3], "occipital 1"]
    with pytest.raises(plotting.UnknownPositionError, match=r"1 of 4 channels .* 'occipital 1'\. .*channel_bars"):
        plotting.topomaps(np.ones((1, 4)), ["a"], names)
    with pytest.raises(plotting.UnknownPositionError, match="8 of 8"):
        plotting.patterns(np.ones((2, 8)), np.ones((2, 3)), [1, 2, 3], mamem.PROCESSED_CHANNELS)


@pytest.mark.parametrize("names", [["C3", "Cz"], ["C3", "Cz", "C3"], ["C3", "Cz", "c3"]])
def test_too_few_places_are_refused(names):
    with pytest.raises(ParameterError, match=r"channels at 2 positions; a map needs three or more"):
        plotting.topomaps(np.ones((1, len(names))), ["a"], names)


@pytest.mark.parametrize("names", [["C3", "Cz", "C4"], ["Fz", "Cz", "Pz"]])
def test_three_electrodes_in_a_line_are_enough(names):
    assert len(plotting.topomaps([[1.0, 2.0, 3.0]], ["a"], names).axes) == 3


def test_maps_share_their_colours_and_the_diagram_names_the_electrodes():
    figure = plotting.topomaps([[1, 2, 3, 4], [0, 1, 2, 8]], ["a", "b"], NAMES, "gradient (1/µV)")
    diagram, *maps, bar = figure.axes
    assert [text.get_text() for text in diagram.texts] == NAMES
    assert [axes.get_title() for axes in maps] == ["a", "b"]
    assert {axes.images[0].get_clim() for axes in maps} == {(0, 8)}
    assert bar.get_ylim() == (0, 8)
    assert bar.get_ylabel() == "gradient (1/µV)"


def test_map_has_at_each_electrode_the_value_given():
    values = [3.0, 0.0, 9.0, 6.0]
    image = plotting.topomaps([values], ["a"], NAMES).axes[1].images[0]
    left, right, bottom, top = image.get_extent()
    n = len(image.get_array())
    for (x, y), expected in zip(scalp_positions(NAMES).values(), values, strict=True):
        row, column = int(n * (y - bottom) / (top - bottom)), int(n * (x - left) / (right - left))
        assert image.get_array()[row, column] == pytest.approx(expected, abs=1)


def test_names_of_the_wrong_number_are_refused():
    with pytest.raises(ShapeError, match="'ch_names' has 4 names for 3 channels"):
        plotting.topomaps(np.ones((1, 3)), ["a"], NAMES)


def titles(figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


def test_patterns_show_the_strongest_features_first():
    maps = np.ones((4, 4)) * np.array([[1], [4], [2], [3]])
    figure = plotting.patterns(maps, np.ones((4, 5)), np.arange(5), NAMES, most=2)
    assert titles(figure) == ["feature 2", "feature 4"]


def test_strength_of_a_feature_counts_its_spectrum_too():
    spectra = np.ones((3, 5)) * np.array([[1], [9], [3]])
    figure = plotting.patterns(np.ones((3, 4)), spectra, np.arange(5), NAMES)
    assert titles(figure) == ["feature 2", "feature 3", "feature 1"]
    lines = [axes for axes in figure.axes if axes.get_xlabel()]
    assert [axes.lines[0].get_ydata()[0] for axes in lines] == [9, 3, 1]
    assert len({axes.get_ylim() for axes in lines}) == 1
    low, high = lines[0].get_ylim()
    assert (low, high > 9) == (0, True)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"spectra": np.ones((3, 5))}, "'spectra' has 3 features and 'patterns' 2 features"),
        ({"freqs": [1, 2]}, "'spectra' has 5 frequencies and 'freqs' 2 frequencies"),
        ({"freqs": [5, 4, 3, 2, 1]}, "'freqs' must be strictly increasing"),
        ({"most": 0}, "most=0"),
    ],
)
def test_patterns_refuse_what_does_not_belong_together(change, message):
    given = {"patterns": np.ones((2, 4)), "spectra": np.ones((2, 5)), "freqs": np.arange(5), "ch_names": NAMES}
    with pytest.raises(InputError, match=message):
        plotting.patterns(**given | change)


def test_sets_that_come_with_the_package_have_positions():
    for names in (examples.MI, examples.ERN, examples.SSVEP):
        assert len(scalp_positions(names)) == len(names)
