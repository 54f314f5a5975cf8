"""What a reader of a page finds, by Python's own parser."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"img", "input", "meta", "link", "br"}


@dataclass
class Found:
    """All elements of a page, with their attributes, and all its text."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    text: str = ""
    data: list[list[dict]] = field(default_factory=list)  # of big tables
    scripts: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]

    @property
    def pictures(self) -> list[str]:
        head = "data:image/svg+xml;base64,"
        return [base64.b64decode(img["src"].removeprefix(head)).decode() for img in self.all("img")]


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found, self.open = Found(), []

    def handle_starttag(self, tag, attrs):
        self.found.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop()[0] == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        tag, attributes = self.open[-1] if self.open else ("", {})
        if tag == "script" and attributes.get("type") == "application/json":
            self.found.data.append(json.loads(data))
        elif tag in ("script", "style"):
            getattr(self.found, f"{tag}s").append(data)
        else:
            self.found.text += data


def read(page: str) -> Found:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open, "elements are not closed"
    return reader.found


def beyond(page: str) -> list[str]:
    """Everything that a page, its style or its pictures would load from elsewhere."""
    found = read(page)
    addresses = [
        value for _, a in found.tags for name, value in a.items() if name in ("src", "href", "srcset", "action")
    ]
    for text in (*found.styles, *found.pictures):
        addresses += re.findall(r"url\(\s*['\"]?([^'\")]*)", text)
        addresses += re.findall(r"""(?:href|src)\s*=\s*["']([^"']*)""", text)
        addresses += re.findall(r"@import\s+(\S+)", text)
    return [address for address in addresses if not address.startswith(("#", "data:"))]
