"""Pages of Markdown whose tables and figures are made of results, and made anew when there are more.

Each stands between two comments, of which the first says what it is, and for a table with what others are compared::

    <!-- table: main | reference: MAtt -->
    <!-- /table -->

    <!-- figure: theta -->
    <!-- /figure -->
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gbwatt import checks

_PLACE = re.compile(
    r"^<!-- (?P<kind>table|figure): *(?P<asked>[^\n]*?) *-->\n(?P<old>.*?)^<!-- /(?P=kind) -->$",
    re.MULTILINE | re.DOTALL,
)
_START = re.compile(r"<!--\s*(?P<kind>table|figure):[^\n]*")

Make = Callable[[str, str | None], str]
Draw = Callable[[str], str]


def fill(page: str, make: Make, draw: Draw) -> str:
    r"""A page with tables made anew by ``make(experiment, reference)``, and figures by ``draw(experiment)``.

    The rest stays as it is.

    Examples
    --------
    >>> page = "Before\n<!-- table: main | reference: MAtt -->\nold\n<!-- /table -->"
    >>> print(fill(page, "{} with {}\n".format, "![{}]()".format))
    Before
    <!-- table: main | reference: MAtt -->
    main with MAtt
    <!-- /table -->
    """
    places, starts = list(_PLACE.finditer(page)), list(_START.finditer(page))
    if not starts:
        raise checks.ParameterError("there is no place for a table, such as <!-- table: main --> and <!-- /table -->.")
    if len(places) < len(starts):
        raise checks.ParameterError(_astray(page, [place.start() for place in places]))

    def replaced(place: re.Match[str]) -> str:
        head = place[0].partition("\n")[0]
        name, reference = _parse(place["asked"], head)
        if place["kind"] == "figure" and reference is not None:
            raise checks.ParameterError(f"{head}: figures compare with nothing; leave out the reference.")
        made = make(name, reference) if place["kind"] == "table" else draw(name)
        return f"{head}\n{made}<!-- /{place['kind']} -->"

    return _PLACE.sub(replaced, page)


def _astray(page: str, known: list[int]) -> str:
    """What is wrong with the first place that is none."""
    start = next(found for found in _START.finditer(page) if found.start() not in known)
    line = page.count("\n", 0, start.start()) + 1
    return (
        f"line {line}, {start[0].strip()}: it must be all of its line, and <!-- /{start['kind']} --> must follow, on a "
        "line of its own."
    )


def _parse(asked: str, head: str) -> tuple[str, str | None]:
    name, *rest = (part.strip() for part in asked.split("|"))
    if not rest:
        return name, None
    key, _, value = rest[0].partition(":")
    if len(rest) > 1 or key.strip() != "reference" or not value.strip():
        raise checks.ParameterError(f"{head} is not understood; such as: <!-- table: main | reference: MAtt -->.")
    return name, value.strip()
