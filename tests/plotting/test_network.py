"""Attention, conditioning, eigenvalues, the metric, the embedding."""

from __future__ import annotations

import numpy as np
import pytest

from gbwatt import plotting
from gbwatt.errors import ParameterError, ShapeError, WeightsError
from tests.plotting.examples import CLASSES, attention
from tests.plotting.layout import assert_readable


def cells(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_attention_has_its_weights_above_and_their_deviation_below():
    figure = plotting.attention_maps([[[0.55, 0.45], [0.5, 0.5]]], ["feet"])
    above, first_bar, below, second_bar = figure.axes
    assert cells(above) == ["55.0", "45.0", "50.0", "50.0"]
    assert cells(below) == ["+10.0", "−10.0", "+0.0", "+0.0"]
    assert first_bar.get_ylabel() == "attention weight (%)"
    assert " ".join(second_bar.get_ylabel().split()) == "deviation from 1/2 = 50.0 % (% of it)"
    assert (above.get_xlabel(), above.get_ylabel()) == ("key (segment)", "query (segment)")


def test_attention_of_all_classes_has_one_scale():
    figure = plotting.attention_maps(attention(3, 3), CLASSES[:3])
    limits = [axes.images[0].get_clim() for axes in figure.axes if axes.images]
    assert len(limits) == 6
    assert len(set(limits[:3])) == len(set(limits[3:])) == 1
    assert limits[0][0] == 0
    assert limits[3][0] == -limits[3][1]


@pytest.mark.parametrize("m, numbers", [(7, True), (8, False)])
def test_cells_have_numbers_as_long_as_they_fit(m, numbers):
    figure = plotting.attention_maps(attention(1, m), ["feet"])
    assert len(figure.axes[0].texts) == (m * m if numbers else 0)
    assert_readable(figure)


@pytest.mark.slow
def test_numbers_fit_with_seven_segments_and_six_classes():
    assert_readable(plotting.attention_maps(attention(6, 7), CLASSES))


def test_even_attention_deviates_nowhere():
    figure = plotting.attention_maps(np.full((1, 2, 2), 0.5), ["feet"])
    assert cells(figure.axes[0]) == ["+0.0"] * 4


@pytest.mark.parametrize("off, panels", [(0.009, 1), (0.011, 2)])
def test_weights_within_a_percent_point_are_shown_by_their_deviation_alone(off, panels):
    figure = plotting.attention_maps([[[0.5 + off, 0.5 - off], [0.5, 0.5]]], ["feet"])
    assert sum(bool(axes.images) for axes in figure.axes) == panels
    assert cells(figure.axes[2 * panels - 2])[0] == f"+{200 * off:.1f}"
    assert_readable(figure)


def test_halves_of_attention_are_apart():
    above, _, below, _ = plotting.attention_maps(attention(1, 7), ["feet"]).axes
    assert above.xaxis.label.get_text()
    gap = above.xaxis.label.get_window_extent().y0 - below.title.get_window_extent().y1
    assert gap > 15  # pixels, of 100 an inch


@pytest.mark.parametrize("weights", [np.full((1, 2, 2), 0.6), np.array([[[1.5, -0.5], [0.5, 0.5]]])])
def test_rows_that_are_no_weights_are_refused(weights):
    with pytest.raises(WeightsError, match="after the softmax"):
        plotting.attention_maps(weights, ["feet"])


def test_attention_must_be_square():
    with pytest.raises(ShapeError, match=r"'weights' \(1, 2, 4\)"):
        plotting.attention_maps(np.full((1, 2, 4), 0.25), ["feet"])


def test_legend_of_condition_numbers_has_the_shares_above_ten_thousand():
    figure = plotting.condition_histograms([[1e3, 1e5], [1e5, 1e4]], [10.0, 100.0, 1e3])
    before, after, line = (text.get_text() for text in figure.legends[0].get_texts())
    assert before == "before attention: 50.0 % above 10⁴"
    assert after == "after attention: 0.0 % above 10⁴"
    assert line == "κ = 10⁴"


@pytest.mark.parametrize("before, after, seen", [([4, 25], [10], False), ([4, 2e3], [10], True), ([1e7], [1e8], False)])
def test_conditions_are_drawn_where_they_are_with_ten_thousand_only_if_near(before, after, seen):
    figure = plotting.condition_histograms(before, after)
    low, high = figure.axes[0].get_xlim()
    logs = np.log10([*before, *after])
    assert low <= logs.min() < logs.max() <= high
    assert (low <= 4 <= high) == bool(figure.axes[0].lines) == seen
    assert low >= 0
    if not seen:
        assert high - low < 1.5 * np.ptp(logs) + 0.3
    assert "above 10⁴" in figure.legends[0].get_texts()[0].get_text()


def test_both_histograms_are_shares_of_their_own_matrices():
    figure = plotting.condition_histograms(np.full(40, 1e5), np.full(3, 1e2))
    heights = [patch.get_xy()[:, 1].max() for patch in figure.axes[0].patches]
    assert heights == pytest.approx([100, 100])


@pytest.mark.parametrize("bad", [0.0, -3.0])
def test_condition_numbers_must_be_positive(bad):
    with pytest.raises(ParameterError, match="'after' has values down to"):
        plotting.condition_histograms([10.0], [10.0, bad])


def test_spectra_have_the_median_of_sorted_eigenvalues():
    figure = plotting.spectra([[1, 4], [6, 2], [3, 9]], [[5.0, 7.0, 1.0]])
    before, after = (line.get_ydata() for line in figure.axes[0].lines)
    np.testing.assert_allclose(before, [6, 2])
    np.testing.assert_allclose(after, [7, 5, 1])


def test_spectra_have_two_bands_each():
    figure = plotting.spectra(np.exp(np.random.default_rng(0).standard_normal((50, 3))), np.ones((4, 2)))
    outer, inner = (band.get_datalim(figure.axes[0].transData) for band in figure.axes[0].collections[:2])
    assert len(figure.axes[0].collections) == 4
    assert outer.height > inner.height


def test_eigenvalues_that_are_not_positive_are_refused():
    with pytest.raises(ParameterError, match="'before' has values down to 0"):
        plotting.spectra([[1.0, 0.0]], [[1.0, 1.0]])
    with pytest.raises(ParameterError, match="'eigenvalues' has values down to -1"):
        plotting.metric_spectrum([1.0, -1.0])


@pytest.mark.parametrize("spread, scale", [(0.3, "linear"), (3.0, "log")])
def test_metric_is_drawn_on_a_logarithmic_axis_where_it_is_wide(spread, scale):
    figure = plotting.metric_spectrum(np.exp(spread * np.array([-1.0, 1.0, 0.0])))
    assert figure.axes[0].get_yscale() == scale
    np.testing.assert_allclose(figure.axes[0].lines[1].get_ydata(), np.exp(spread * np.array([1.0, 0.0, -1.0])))
    assert_readable(figure)


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], np.full(18, 3.0), np.full(18, 1e-6), [1e-9, 1e9]])
def test_metric_of_any_size_is_readable(values):
    assert_readable(plotting.metric_spectrum(values))


def test_embedding_has_the_points_of_each_class_and_the_method_on_its_axes():
    figure = plotting.embedding([[0, 1], [2, 3], [4, 5]], [1, 0, 1], ["left", "right"], "UMAP")
    left, right = figure.axes[0].collections
    np.testing.assert_array_equal(left.get_offsets(), [[2, 3]])
    np.testing.assert_array_equal(right.get_offsets(), [[0, 1], [4, 5]])
    assert figure.axes[0].get_ylabel() == "UMAP 2 (a.u.)"


@pytest.mark.parametrize("labels", [[0, 2], [-1, 0], [0.5, 1]])
def test_labels_of_an_embedding_are_places_in_the_names(labels):
    with pytest.raises(ParameterError, match="whole numbers from 0 to 1"):
        plotting.embedding([[0, 1], [1, 0]], labels, ["a", "b"], "PCA")


def test_points_of_an_embedding_have_two_coordinates():
    with pytest.raises(ShapeError, match=r"\(n, 2\) is needed"):
        plotting.embedding(np.ones((4, 3)), [0, 0, 0, 0], ["a"], "PCA")
