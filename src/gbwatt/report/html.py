"""Elements of HTML: the one place where text becomes markup."""

from __future__ import annotations

import html
from collections.abc import Iterable

from gbwatt._text import replace_unsafe

_VOID = frozenset({"img", "input", "meta"})


class Html(str):
    """Markup.  Any other text is escaped where it enters an element."""

    __slots__ = ()


def escape(text: str) -> Html:
    """Text as it is shown, whatever it contains.

    Examples
    --------
    >>> escape("<script>")
    '&lt;script&gt;'
    """
    return text if isinstance(text, Html) else Html(html.escape(clean(text)))


def clean(text: str) -> str:
    """Text with a replacement mark for each character that a page cannot have."""
    return replace_unsafe(text, keep="\t\n\r\u2028\u2029", mark="\ufffd")


def element(name: str, /, *children: str, **attributes: str | bool | None) -> Html:
    """An element; ``class_`` is class, ``aria_label`` aria-label, True an attribute without a value, None none.

    Examples
    --------
    >>> element("th", "a & b", scope="col", class_="number", hidden=True, id=None)
    '<th scope="col" class="number" hidden>a &amp; b</th>'
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(parts: Iterable[str], between: str = "") -> Html:
    """Parts one after the other, each escaped unless it is markup."""
    return Html(between.join(map(escape, parts)))


def _attribute(key: str, value: str | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
