"""Pages of Markdown whose tables are made of results, and made anew when there are more.

A table stands between two comments, of which the first says what it is, and with what others are compared::

    <!-- table: main | reference: MAtt -->
    <!-- /table -->
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gbwatt import checks

_PLACE = re.compile(r"^<!-- table: *(?P<asked>[^\n]*?) *-->\n(?P<old>.*?)^<!-- /table -->$", re.MULTILINE | re.DOTALL)
_START = re.compile(r"<!--\s*table:")

Make = Callable[[str, str | None], str]


def fill(page: str, make: Make) -> str:
    r"""A page with its tables made anew by ``make(experiment, reference)``; the rest stays as it is.

    Examples
    --------
    >>> print(fill("Before\n<!-- table: main | reference: MAtt -->\nold\n<!-- /table -->", "{} with {}\n".format))
    Before
    <!-- table: main | reference: MAtt -->
    main with MAtt
    <!-- /table -->
    """
    places, starts = list(_PLACE.finditer(page)), _START.findall(page)
    if not starts:
        raise checks.ParameterError("there is no place for a table, such as <!-- table: main --> and <!-- /table -->.")
    if len(places) < len(starts):
        raise checks.ParameterError(
            "a <!-- table: … --> is not at the beginning of a line, or has no <!-- /table -->, on a line of its own, "
            "after it."
        )

    def replaced(place: re.Match[str]) -> str:
        head = place[0].partition("\n")[0]
        return f"{head}\n{make(*_parse(place['asked']))}<!-- /table -->"

    return _PLACE.sub(replaced, page)


def _parse(asked: str) -> tuple[str, str | None]:
    name, *rest = (part.strip() for part in asked.split("|"))
    if not rest:
        return name, None
    key, _, value = rest[0].partition(":")
    if len(rest) > 1 or key.strip() != "reference" or not value.strip():
        raise checks.ParameterError(f"<!-- table: {asked} --> is not understood; such as: main | reference: MAtt.")
    return name, value.strip()
