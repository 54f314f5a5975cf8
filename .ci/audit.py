"""Look up the exact versions of requirements.lock in the advisory database of the Python package index.

The data are those of ``pip-audit``, which reports "no known vulnerabilities" even where it could look up nothing.  Here
every package without data is named.  Exit code 1: a version has a known vulnerability that ``advisories.toml`` does not
list.  If no advisory data are available, this is reported and the exit code is 0.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
LOCK, LISTED = HERE.parent / "requirements.lock", HERE / "advisories.toml"
SECONDS = 10.0  # to wait for an answer


class Unreachable(Exception):
    """The index does not answer."""


class Pin(NamedTuple):
    """A package and its version."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def read_lock(text: str) -> list[Pin]:
    """The pins of a lock file; any other line is an error."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    found = [re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s;]+)", line) for line in lines if line]
    if not found or None in found:
        raise SystemExit(f"{LOCK.name} must have lines of the form name==version, and no others")
    return [Pin(*match.groups()) for match in found if match is not None]


def read_listed(text: str) -> dict[str, str]:
    """Identifiers of advisories that were judged, with the reasons."""
    listed = tomllib.loads(text)
    empty = [name for name, reason in listed.items() if not isinstance(reason, str) or not reason.strip()]
    if empty:
        raise SystemExit(f"{LISTED.name} must give a reason for {', '.join(empty)}")
    return listed


def fetch(path: str) -> dict[str, Any] | None:
    """A document of the index; None if it has none there."""
    from pip._internal.models.index import PyPI  # the index that pip takes by default

    try:
        with urllib.request.urlopen(f"{PyPI.pypi_url}/{path}/json", timeout=SECONDS) as answer:
            document: dict[str, Any] = json.load(answer)
            return document
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise Unreachable(f"the index answers {error.code}") from error
    except (OSError, ValueError) as error:
        raise Unreachable(str(error)) from error


def advisories(pin: Pin) -> list[dict[str, Any]] | None:
    """Known vulnerabilities of a version; None if there are no data for it.

    An index that has no documents of single versions, as some mirrors, has those of the newest.
    """
    document = fetch(f"{pin.name}/{pin.version}") or fetch(pin.name)
    if document is None or document["info"]["version"] != pin.version or "vulnerabilities" not in document:
        return None
    return [found for found in document["vulnerabilities"] if not found.get("withdrawn")]


def look_up(pins: list[Pin]) -> dict[Pin, list[dict[str, Any]] | None]:
    """Advisories of all pins; the first is asked for alone, so that an index out of reach costs little time."""
    first, *others = pins
    answers = [advisories(first)]
    with ThreadPoolExecutor(8) as pool:
        answers += pool.map(_if_reached, others)
    return dict(zip(pins, answers, strict=True))


def _if_reached(pin: Pin) -> list[dict[str, Any]] | None:
    """Advisories; None also where the index does not answer, twice: one failure must not hide what others say."""
    for _ in range(2):
        try:
            return advisories(pin)
        except Unreachable:
            continue
    return None


def report(found: dict[Pin, list[dict[str, Any]] | None], listed: dict[str, str]) -> int:
    """Print what was found; the exit code."""
    unknown = [str(pin) for pin, answers in found.items() if answers is None]
    if len(unknown) == len(found):
        print(f"NOT AUDITED: the index gave no advisory data for any of the {len(found)} packages of {LOCK.name}")
        return 0
    print(f"{len(found) - len(unknown)} of {len(found)} packages of {LOCK.name} were looked up")
    if unknown:
        print(f"NOT AUDITED, because the index gave no advisory data for these versions: {', '.join(unknown)}")
    code, seen = 0, set()
    for pin, answers in found.items():
        for one in answers or ():
            names = {one["id"], *one.get("aliases", ())}
            seen |= names
            reason = next((listed[name] for name in sorted(names) if name in listed), None)
            fixed = ", ".join(one.get("fixed_in") or ()) or "no version"
            what = f"{pin}: {one['id']} (fixed in {fixed}): {one.get('summary') or one.get('details') or ''}"[:300]
            print(f"listed, {reason}: {what}" if reason else f"VULNERABLE: {what}")
            code = code if reason else 1
    for name in sorted(listed.keys() - seen):
        print(f"note: {name} in {LISTED.name} was not found; take it out unless its package was not looked up")
    return code


def main() -> int:
    """Audit the lock file."""
    pins = read_lock(LOCK.read_text(encoding="utf-8"))
    listed = read_listed(LISTED.read_text(encoding="utf-8"))
    try:
        return report(look_up(pins), listed)
    except Unreachable as problem:
        print(f"NOT AUDITED: no advisory data for {LOCK.name} could be reached ({problem})")
        return 0


if __name__ == "__main__":
    sys.exit(main())
