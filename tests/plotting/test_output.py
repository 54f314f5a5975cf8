"""Files and elements of a page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest
from PIL import Image

from gbwatt import plotting
from gbwatt.errors import ParameterError
from tests.plotting import examples


@pytest.mark.parametrize("name", ["curves", "attention_maps", "topomaps"])
def test_same_figure_gives_same_bytes(tmp_path, name):
    small = {"curves": {}, "attention_maps": {"n": 1}, "topomaps": {"n": 1}}[name]
    first, second = (plotting.save(examples.ALL[name](**small), tmp_path / f"{i}") for i in (1, 2))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_saved_twice_is_saved_the_same(tmp_path):
    figure = examples.condition_histograms()
    first = [path.read_bytes() for path in plotting.save(figure, tmp_path / "a.pdf")]
    assert first == [path.read_bytes() for path in plotting.save(figure, tmp_path / "a.pdf")]


@pytest.mark.parametrize(
    "path, expected",
    [
        ("a", ["a.svg", "a.png"]),
        ("a.svg", ["a.svg", "a.png"]),
        ("a.PDF", ["a.pdf", "a.png"]),
        ("theta-1.5", ["theta-1.5.svg", "theta-1.5.png"]),
        ("new/folder/a", ["a.svg", "a.png"]),
    ],
)
def test_vectors_and_pixels_are_side_by_side(tmp_path, path, expected):
    written = plotting.save(examples.metric_spectrum(), tmp_path / path)
    assert [file.name for file in written] == expected
    assert all(file.stat().st_size > 1000 for file in written)


@pytest.mark.parametrize("path", ["a.png", "a.jpg", "a.eps", "a.gif"])
def test_other_formats_are_refused(tmp_path, path):
    with pytest.raises(ParameterError, match=r"\.svg or \.pdf"):
        plotting.save(examples.metric_spectrum(), tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_pixels_are_300_to_the_inch_and_text_is_text(tmp_path):
    svg, png = plotting.save(examples.metric_spectrum(), tmp_path / "a")
    with Image.open(png) as image:
        assert image.size == (1020, 660)
    assert ">eigenvalue of M</text>" in svg.read_text()
    assert "date" not in svg.read_text().lower()
    pdf, _ = plotting.save(examples.metric_spectrum(), tmp_path / "a.pdf")
    assert (
        b"/FontType 42" in pdf.read_bytes() or b"/TrueType" in pdf.read_bytes() or b"/CIDFontType2" in pdf.read_bytes()
    )
    assert b"CreationDate" not in pdf.read_bytes()


def ids(svg: str) -> set[str]:
    return {element.get("id") for element in ElementTree.fromstring(svg).iter() if element.get("id")}


def test_figures_on_one_page_share_no_identifier():
    first, second = plotting.to_svg(examples.metric_spectrum()), plotting.to_svg(examples.metric_spectrum(0.5))
    assert len(ids(first)) > 10
    assert not ids(first) & ids(second)


def test_references_of_an_element_are_to_itself():
    svg = plotting.to_svg(examples.condition_histograms())
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg))
    targets = {one or other for one, other in used}
    assert targets
    assert targets <= ids(svg)


def test_element_keeps_its_style_to_itself_and_starts_without_a_prolog():
    svg = plotting.to_svg(examples.metric_spectrum())
    assert svg.startswith("<svg ")
    assert svg.endswith("</svg>")
    (rule,) = re.findall(r"<style[^>]*>(.*?)</style>", svg)
    assert rule.startswith("#f")
    assert rule[1:].split()[0] in ids(svg)


def test_title_is_what_a_screen_reader_says():
    root = ElementTree.fromstring(plotting.to_svg(examples.metric_spectrum(), 'M & "I" < 2'))
    assert root.get("aria-label") == 'M & "I" < 2'
    assert root.get("role") == "img"
    assert ElementTree.fromstring(plotting.to_svg(examples.metric_spectrum())).get("aria-label") is None
