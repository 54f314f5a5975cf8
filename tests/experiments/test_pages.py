"""Pages with tables."""

from __future__ import annotations

import pytest

from gbwatt.errors import ParameterError
from gbwatt.experiments.table_formats import fill

PAGE = """# Results

Words before.

<!-- table: main -->
<!-- /table -->

Between.

<!-- table: theta | reference: GBWAtt (θ = 1.5) | seeds: 3 -->
old
<!-- /table -->
After.
<!-- figure: theta | seeds: 1 -->
<!-- /figure -->
"""


def made(experiment, reference, seeds):
    return f"{experiment}, {reference}, {seeds}\n"


def drawn(experiment, reference, seeds):
    return f"![{experiment}]({seeds})\n"


def test_tables_are_made_and_words_stay():
    page = fill(PAGE, made, drawn)
    assert "main, None, None\n<!-- /table -->\n\nBetween." in page
    assert "theta, GBWAtt (θ = 1.5), 3\n<!-- /table -->\nAfter.\n" in page
    assert "old" not in page
    assert page.endswith("<!-- figure: theta | seeds: 1 -->\n![theta](1)\n<!-- /figure -->\n")


def test_a_page_that_is_filled_stays_as_it_is():
    assert fill(fill(PAGE, made, drawn), made, drawn) == fill(PAGE, made, drawn)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("nothing here", "no table"),
        (
            "<!-- table: main -->\n<!-- /table -->\n<!-- table: theta -->\nopen",
            "line 3, <!-- table: theta -->: .*follow",
        ),
        ("words\n<!-- table: theta -->\nopen", "line 2, .*<!-- /table --> must follow"),
        ("<!-- figure: theta -->\nopen\n<!-- /table -->", "line 1, .*<!-- /figure --> must follow"),
        ("<!-- figure: theta | reference: MAtt -->\n<!-- /figure -->", "reference; remove it"),
        (
            "<!-- table: main -->\n<!-- /table -->\n  <!-- table: theta -->\n  <!-- /table -->",
            "line 3, .*alone on its line",
        ),
        ("<!-- table: main | refernce: MAtt -->\n<!-- /table -->", "is not valid"),
        ("<!-- table: main | reference: -->\n<!-- /table -->", "is not valid"),
    ],
)
def test_what_is_not_understood_is_said(page, said):
    with pytest.raises(ParameterError, match=said):
        fill(page, made, drawn)
