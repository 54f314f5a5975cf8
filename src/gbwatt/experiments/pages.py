"""Pages of Markdown whose tables and figures are made of results, and made anew when there are more.

Each stands between two comments, of which the first says what it is, of which seeds if not of all, and for a table with
what others are compared::

    <!-- table: main | reference: MAtt -->
    <!-- /table -->

    <!-- figure: theta | seeds: 1 -->
    <!-- /figure -->
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from gbwatt.errors import ParameterError

_PLACE = re.compile(
    r"^<!-- (?P<kind>table|figure): *(?P<asked>[^\n]*?) *-->\n(?P<old>.*?)^<!-- /(?P=kind) -->$",
    re.MULTILINE | re.DOTALL,
)
_START = re.compile(r"<!--\s*(?P<kind>table|figure):[^\n]*")


class Asked(NamedTuple):
    """What shall stand in a place."""

    experiment: str
    reference: str | None = None
    seeds: str | None = None


Make = Callable[[Asked], str]


def fill(page: str, make: Make, draw: Make) -> str:
    r"""A page with its tables and figures made anew; the rest stays as it is.

    Examples
    --------
    >>> page = "Before\n<!-- table: main | reference: MAtt -->\nold\n<!-- /table -->"
    >>> print(fill(page, lambda asked: f"{asked.experiment} with {asked.reference}\n", repr))
    Before
    <!-- table: main | reference: MAtt -->
    main with MAtt
    <!-- /table -->
    """
    places, starts = list(_PLACE.finditer(page)), list(_START.finditer(page))
    if not starts:
        raise ParameterError("there is no place for a table, such as <!-- table: main --> and <!-- /table -->.")
    if len(places) < len(starts):
        raise ParameterError(_astray(page, [place.start() for place in places]))

    def replaced(place: re.Match[str]) -> str:
        head = place[0].partition("\n")[0]
        asked = _parse(place["asked"], head)
        if place["kind"] == "figure" and asked.reference is not None:
            raise ParameterError(f"{head}: figures compare with nothing; leave out the reference.")
        made = make(asked) if place["kind"] == "table" else draw(asked)
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


def _parse(asked: str, head: str) -> Asked:
    name, *rest = (part.strip() for part in asked.split("|"))
    given = {key.strip(): value.strip() for key, _, value in (part.partition(":") for part in rest)}
    if len(given) < len(rest) or not given.keys() <= {"reference", "seeds"} or not all(given.values()):
        raise ParameterError(f"{head} is not understood; such as: <!-- table: main | reference: MAtt | seeds: 1 -->.")
    return Asked(name, **given)
