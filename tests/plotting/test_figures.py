"""What all pictures have in common."""

from __future__ import annotations

import logging

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from gbwatt import plotting
from gbwatt.errors import MismatchError, NotFiniteError, ShapeError
from tests.plotting import examples
from tests.plotting.layout import assert_readable, drawn_texts, words

PICTURES = sorted(examples.ALL)


def test_every_picture_has_an_example_here():
    assert set(examples.ALL) == set(plotting.__all__) - {"UnknownPositionError", "save", "to_svg"}


@pytest.mark.parametrize("name", PICTURES)
def test_settings_and_pyplot_are_left_alone(name):
    before = dict(matplotlib.rcParams)
    assert isinstance(examples.picture(name), Figure)
    assert dict(matplotlib.rcParams) == before
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize("name", PICTURES)
def test_text_is_inside_and_never_on_other_text(name):
    assert_readable(examples.picture(name))


@pytest.mark.parametrize("name", PICTURES)
def test_size_and_text_fit_a_paper(name):
    figure = examples.picture(name)
    assert figure.get_figwidth() in (3.4, 7.0)  # one column or two
    assert 1.4 <= figure.get_figheight() <= 9.5
    sizes = {text.get_fontsize() for text in drawn_texts(figure)}
    assert sizes
    assert sizes <= {6.0, 7.0, 8.0}


@pytest.mark.parametrize("name", PICTURES)
def test_every_axis_with_numbers_says_what_they_are(name):
    """Axes with numbers at their ticks have a label, or share that of the figure."""
    figure = examples.picture(name)
    common = figure.get_supxlabel(), figure.get_supylabel()
    silent = [
        axis
        for axes in figure.axes
        for axis, shared in zip((axes.xaxis, axes.yaxis), common, strict=True)
        if axes.axison and _numbers(axis) and not (axis.get_label_text() or shared)
    ]
    assert not silent


def _numbers(axis) -> bool:
    return any(label.get_visible() and _is_number(label.get_text()) for label in axis.get_ticklabels())


def _is_number(text: str) -> bool:
    return text.replace("−", "").replace(".", "").isdigit()


def test_settings_of_the_user_change_nothing():
    expected = plotting.to_svg(examples.metric_spectrum())
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "lines.linewidth": 9}):
        assert plotting.to_svg(examples.metric_spectrum()) == expected


def test_dollars_in_names_are_dollars():
    figure = plotting.confusion([[3, 1], [1, 3]], ["$5", "$10"])
    assert {"$5", "$10"} <= set(words(figure))
    assert "$5" in plotting.to_svg(figure)


def some(*values, but_slow=()):
    """Parameters of a test, of which some are for the slow run."""
    return [*values, *(pytest.param(value, marks=pytest.mark.slow) for value in but_slow)]


@pytest.mark.parametrize("n", some(1, 6, but_slow=(2, 3, 4, 5)))
@pytest.mark.parametrize("name", ["heatmaps", "topomaps", "channel_bars", "attention_maps", "embedding", "confusion"])
def test_one_to_six_classes(name, n):
    figure = examples.ALL[name](n)
    assert_readable(figure)
    written = " ".join(words(figure))
    assert all(label in written for label in examples.CLASSES[:n])


@pytest.mark.parametrize("name", ["heatmaps", "topomaps", "channel_bars", "patterns"])
@pytest.mark.parametrize("ch_names", [examples.SSVEP, examples.ERN], ids=len)
def test_8_and_56_channels(name, ch_names):
    """22 of them are in the examples."""
    figure = examples.ALL[name](2, ch_names=ch_names)
    assert_readable(figure)
    if name != "patterns":
        assert set(ch_names) <= set(words(figure))


@pytest.mark.slow
def test_six_patterns_beside_each_other():
    assert_readable(examples.patterns(8))


@pytest.mark.parametrize("scale", [1e-9, 1e7])
@pytest.mark.parametrize("name", ["heatmaps", "channel_bars"])
def test_values_of_any_size(name, scale):
    assert_readable(examples.ALL[name](1, scale=scale))


@pytest.mark.slow
def test_names_that_are_much_too_long_are_wrapped_or_cut():
    names = ["stimulation with the left index finger", "Handbewegungsvorstellung" * 2, "c", "d"]
    values = np.abs(examples.smooth(4, 22, 20))
    for figure in (
        plotting.heatmaps(values, names, examples.MI, np.arange(20) / 125),
        plotting.topomaps(values[..., 0], names, examples.MI),
        plotting.confusion(np.eye(4) * 30, names),
        plotting.attention_maps(examples.attention(4, 3), names),
        plotting.embedding(values[0, :4, :2], [0, 1, 2, 3], names, "PCA"),
    ):
        assert_readable(figure)


WRONG = {
    "heatmaps": lambda v: plotting.heatmaps(v((2, 3, 5)), ["a", "b"], ["C3", "Cz", "C4"], np.arange(5)),
    "topomaps": lambda v: plotting.topomaps(v((2, 3)), ["a", "b"], ["C3", "Cz", "C4"]),
    "channel_bars": lambda v: plotting.channel_bars(v((2, 3)), ["a", "b"], ["x", "y", "z"]),
    "patterns": lambda v: plotting.patterns(v((2, 3)), np.ones((2, 4)), np.arange(4), ["C3", "Cz", "C4"]),
    "attention_maps": lambda v: plotting.attention_maps(v((1, 2, 2)) / 2, ["a"]),
    "condition_histograms": lambda v: plotting.condition_histograms(v((6,)), np.ones(6)),
    "spectra": lambda v: plotting.spectra(v((6, 2)), np.ones((6, 2))),
    "metric_spectrum": lambda v: plotting.metric_spectrum(v((5,))),
    "embedding": lambda v: plotting.embedding(v((4, 2)), [0, 1, 0, 1], ["a", "b"], "PCA"),
    "training_curves": lambda v: plotting.training_curves({"train_loss": v((5,))}, 1),
    "confusion": lambda v: plotting.confusion(v((2, 2)), ["a", "b"]),
    "reliability_diagram": lambda v: plotting.reliability_diagram([1, 2], [0.6, 0.9], v((2,))),
    "subjects": lambda v: plotting.subjects({"GBWAtt": {1: v((3,))}}),
    "deletion_insertion": lambda v: plotting.deletion_insertion([0, 0.5, 1], {"g": (v((3,)), np.ones(3))}),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_nan_is_an_error_that_says_where(name):
    def spoiled(shape):
        values = np.ones(shape)
        values.flat[-1] = np.nan
        return values

    WRONG[name](np.ones)
    with pytest.raises(NotFiniteError, match=r"'.+' \(.*\) has 1 NaN or infinite entries, the first at"):
        WRONG[name](spoiled)


@pytest.mark.parametrize("name", sorted(WRONG))
def test_another_shape_is_an_error_with_both_shapes(name):
    if name == "condition_histograms":  # takes any shape but an empty one
        with pytest.raises(ShapeError, match=r"'before' \(0,\)"):
            plotting.condition_histograms([], [1.0])
        return
    with pytest.raises(ShapeError, match=r"'.+' \(.*\) does not fit; \(.+\)"):
        WRONG[name](lambda shape: np.ones((*shape, 1)))


@pytest.mark.parametrize("name", sorted(WRONG))
def test_text_instead_of_numbers_is_an_error(name):
    with pytest.raises(MismatchError, match="is not an array of numbers"):
        WRONG[name](lambda shape: Undividable(np.full(shape, "many")))


class Undividable(np.ndarray):
    """An array of text that lets a test divide it."""

    def __new__(cls, values):
        return values.view(cls)

    def __truediv__(self, other):
        return self


def test_scalp_maps_are_silent(recwarn, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        examples.topomaps(1)
        examples.patterns(1)
    assert not [str(w.message) for w in recwarn]
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]
