"""Training curves, confusion, subjects, and curves beside the paper's."""

from __future__ import annotations

import numpy as np
import pytest

from gbwatt import plotting
from gbwatt.errors import InputError, ShapeError
from tests.plotting import examples
from tests.plotting.layout import assert_readable, tick_names

HISTORY = {"train_loss": [1.4, 1.0, 0.8], "valid_loss": [1.4, 1.2, 1.3], "valid_accuracy": [0.3, 0.5, 0.45]}


def legend(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_training_curves_start_at_epoch_one_and_mark_the_best():
    figure = plotting.training_curves(HISTORY, best_epoch=2)
    loss, accuracy = figure.axes
    train, valid, best = loss.lines
    np.testing.assert_array_equal(train.get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(valid.get_ydata(), HISTORY["valid_loss"])
    assert list(best.get_xdata()) == [2, 2]
    np.testing.assert_allclose(accuracy.lines[0].get_ydata(), [30, 50, 45])
    assert legend(figure) == ["training", "validation", "best epoch, 2"]


def test_training_without_validation_has_one_panel():
    assert len(plotting.training_curves({"train_loss": [1.0, 0.5]}, 1).axes) == 1


@pytest.mark.parametrize("epochs", [1, 2])
def test_short_training_is_readable(epochs):
    assert_readable(examples.training_curves(epochs))


@pytest.mark.parametrize(
    "history, best, message",
    [
        (HISTORY | {"valid_los": [1, 2, 3]}, 1, "Did you mean 'valid_loss'"),
        ({"valid_loss": [1.0]}, 1, "'train_loss' is needed"),
        (HISTORY | {"valid_loss": [1.0]}, 1, r"has 1 epochs and 'history\['train_loss'\]' 3 epochs"),
        (HISTORY, 4, "best_epoch=4 must be one of the 3 epochs"),
        (HISTORY, 0, "best_epoch=0"),
        (HISTORY | {"valid_accuracy": [30, 50, 45]}, 1, "divide percentages by 100"),
    ],
)
def test_training_curves_refuse_what_does_not_fit(history, best, message):
    with pytest.raises(InputError, match=message):
        plotting.training_curves(history, best)


def test_confusion_has_counts_and_shares_of_the_true_class():
    figure = plotting.confusion([[6, 2], [0, 0]], ["left", "right"])
    axes, bar = figure.axes
    assert [text.get_text() for text in axes.texts] == ["6\n75 %", "2\n25 %", "0\n0 %", "0\n0 %"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted class", "true class")
    assert tick_names(axes.xaxis) == tick_names(axes.yaxis) == ["left", "right"]
    assert "(%)" in bar.get_ylabel()


def test_cells_are_written_light_on_dark_and_dark_on_light():
    inks = [text.get_color() for text in plotting.confusion([[9, 1], [1, 9]], ["a", "b"]).axes[0].texts]
    assert inks == ["black", "white", "white", "black"]


def test_large_counts_fit_their_cells():
    assert_readable(examples.confusion(6, count=100_000))


@pytest.mark.parametrize("matrix", [np.ones((2, 3)), [[1, -1], [0, 2]]])
def test_confusion_refuses_what_is_no_square_of_counts(matrix):
    with pytest.raises(ShapeError, match=r"counts \(n_classes, n_classes\) are needed"):
        plotting.confusion(matrix, ["a", "b"])


def test_a_reliability_diagram_has_a_point_and_a_count_for_each_bin():
    interval = ([0.4, 0.6], [0.7, 1.0])
    figure = plotting.reliability_diagram([10, 30], [0.65, 0.9], [0.6, 0.7], interval, error=0.1625, chance=0.5)
    axes, below = figure.axes
    diagonal, points = axes.get_lines()
    assert diagonal.get_xydata().tolist() == [[0, 0], [100, 100]]
    np.testing.assert_allclose(points.get_xydata(), [[65, 60], [90, 70]])
    np.testing.assert_allclose(axes.collections[0].get_segments()[1], [[90, 60], [90, 100]])
    np.testing.assert_allclose(below.collections[0].get_segments()[0], [[65, 0], [65, 10]])
    assert 45 < axes.get_xlim()[0] < 50 < 100 < axes.get_xlim()[1]
    assert "16.2 %" in figure.legends[0].get_texts()[1].get_text()


@pytest.mark.parametrize(
    ("n", "confidence", "accuracy", "message"),
    [([], [], [], "'n'"), ([1, 0], [0.5, 0.6], [0, 1], "'n'"), ([1], [1.5], [1], "'confidence'")],
)
def test_reliability_diagrams_refuse_what_is_no_bin(n, confidence, accuracy, message):
    with pytest.raises(InputError, match=message):
        plotting.reliability_diagram(n, confidence, accuracy)


def test_subjects_have_a_point_for_each_seed_and_a_line_for_the_mean():
    figure = plotting.subjects({"GBWAtt": {7: [0.5, 0.7]}}, chance=0.2)
    points, mean, chance = figure.axes[0].lines
    np.testing.assert_allclose(points.get_ydata(), [50, 70])
    np.testing.assert_allclose(mean.get_ydata(), [60, 60])
    np.testing.assert_allclose(chance.get_ydata(), [20, 20])
    assert legend(figure) == ["GBWAtt: mean 60.0 %", "chance: 20.0 %"]
    assert figure.axes[0].get_ylabel() == "accuracy (%)"


def test_a_single_seed_is_a_point_without_a_bar():
    figure = plotting.subjects({"a": {1: [0.5], 2: [0.4, 0.6]}, "b": {1: [0.7]}})
    alone, two, bar, other = figure.axes[0].lines
    assert [len(line.get_ydata()) for line in (alone, two, other)] == [1, 2, 1]
    assert (alone.get_marker(), bar.get_marker(), other.get_marker()) == ("o", "None", "s")
    assert [handle.get_linestyle() for handle in figure.legends[0].get_lines()] == ["-", "None"]


def test_subjects_that_only_one_model_has_keep_their_place():
    figure = plotting.subjects({"a": {1: [0.5], 3: [0.5]}, "b": {2: [0.4], 3: [0.4]}})
    assert tick_names(figure.axes[0].xaxis) == ["1", "3", "2"]
    assert legend(figure) == ["a: mean 50.0 %", "b: mean 40.0 %"]


def test_mean_counts_every_subject_once_however_many_seeds_it_has():
    assert legend(plotting.subjects({"a": {1: [0.2, 0.2, 0.2], 2: [0.6]}}))[0] == "a: mean 40.0 %"


@pytest.mark.parametrize("n, labels", [(1, 1), (16, 7), (60, 1)])
def test_few_and_many_subjects_are_readable(n, labels):
    assert_readable(examples.subjects(n, labels))


def test_long_names_of_subjects_are_upright():
    scores = {f"participant {i}": [0.5] for i in range(20)}
    assert_readable(plotting.subjects({"a": scores}))


@pytest.mark.parametrize(
    "scores, message",
    [
        ({}, "'scores' is empty"),
        ({"a": {}}, "is empty"),
        ({"a": {1: [67.0]}}, r"'scores\['a'\]\[1\]' has values from 67 to 67; .* divide percentages by 100"),
    ],
)
def test_subjects_refuse_what_are_no_scores(scores, message):
    with pytest.raises(InputError, match=message):
        plotting.subjects(scores)


def curves(**change):
    given = {"x": [1, 2], "series": {"a": ([5, 6], [4, 5], [6, 7])}, "paper": {"a": [7, 8], "b": [1, 2]}}
    return plotting.curves(**given | change, xlabel="θ", ylabel="accuracy (%)")


def test_paper_is_dashed_and_hollow_in_the_colour_of_ours():
    figure = curves()
    ours, same, other, _ = figure.axes[0].lines
    assert (ours.get_linestyle(), same.get_linestyle(), other.get_linestyle()) == ("-", "--", "--")
    assert ours.get_color() == same.get_color() != other.get_color()
    assert same.get_markerfacecolor() == "white" != ours.get_markerfacecolor()
    assert legend(figure) == ["a", "b", "dashed: the paper"]


def test_without_the_paper_nothing_is_said_of_it():
    assert legend(curves(paper=None)) == ["a"]


def test_band_goes_from_low_to_high():
    band, _ = curves().axes[0].collections
    y = band.get_paths()[0].vertices[:, 1]
    assert (y.min(), y.max()) == (4, 7)


def test_settings_with_names_stand_side_by_side_in_their_order():
    names = ["0", "0.5", "oas", "learnt"]
    line = ([5, 6, 7, np.nan],) * 3
    figure = plotting.curves(names, {"a": line}, xlabel="shrinkage", ylabel="accuracy (%)")
    assert tick_names(figure.axes[0].xaxis) == names
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xdata(), range(4))
    assert_readable(figure)


def test_long_names_of_settings_are_upright():
    names = [f"a rather long setting {i}" for i in range(6)]
    assert_readable(plotting.curves(names, {"a": (range(6),) * 3}, xlabel="setting", ylabel="accuracy (%)"))


def test_a_result_without_neighbours_has_a_line_from_low_to_high():
    gaps = ([5, np.nan, 7, 8], [4, np.nan, 6, 7], [6, np.nan, 9, 9])
    _, alone = plotting.curves([1, 2, 3, 4], {"a": gaps}, xlabel="θ", ylabel="accuracy (%)").axes[0].collections
    (line,) = alone.get_segments()
    np.testing.assert_array_equal(line, [[1, 4], [1, 6]])


def test_results_that_are_missing_leave_a_gap():
    figure = curves(series={"a": ([5, np.nan], [4, np.nan], [6, np.nan])})
    assert np.isnan(figure.axes[0].lines[0].get_ydata()[1])
    assert_readable(figure)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"series": {}}, "'series' is empty"),
        ({"x": [2, 1]}, "'x' must be strictly increasing"),
        ({"x": ["a"]}, "has 2 values and 'x' 1"),
        ({"x": ["a", 1]}, "'x' is not an array of numbers"),
        ({"paper": {"a": [1, 2, 3]}}, r"'paper\['a'\]' has 3 values and 'x' 2"),
        ({"series": {"a": ([5, np.inf], [4, 5], [6, 7])}}, r"'series\['a'\]\[0\]' .* infinite"),
    ],
)
def test_curves_refuse_what_does_not_fit(change, message):
    with pytest.raises(InputError, match=message):
        curves(**change)
