"""Annotated events: ``.rec`` files of the events corpus, and the newer ``.csv`` files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gbwatt.data.corpora.montages import TCP
from gbwatt.data.corpora.problems import Unusable

#: Forms of annotation files, in the order in which they are looked for.
SUFFIXES = (".rec", ".csv")

#: What ``.csv`` files call an event that is not of one channel.
ALL_CHANNELS = "TERM"
HEADER = ("channel", "start_time", "stop_time", "label", "confidence")


@dataclass(frozen=True)
class Event:
    """One annotation: from when to when, in seconds, and the number of its class from 0."""

    start: float
    stop: float
    label: int
    line: int  # of the file


def annotation_file(recording: Path) -> Path | None:
    """The annotations beside a recording, if there are any."""
    return next((file for suffix in SUFFIXES if (file := recording.with_suffix(suffix)).is_file()), None)


def read_events(file: Path, class_names: Sequence[str], seconds: float) -> list[Event]:
    """Events of a recording that lasts so many seconds, in the order of the file."""
    text = file.read_bytes().decode("utf-8-sig", errors="replace")
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if file.suffix == ".csv" and lines:
        _require_header(file, *lines.pop(0))
    if not lines:
        raise Unusable("empty-annotations", f"{file.name} has no events")
    events = [_event(file, number, line, class_names) for number, line in lines]
    late = [event for event in events if event.stop > seconds]
    if late:
        raise Unusable(
            "annotation-beyond-end",
            f"{file.name}, line {late[0].line}: an event until {late[0].stop:g} s, in a recording of {seconds:g} s"
            + (f"; {len(late)} such events" if len(late) > 1 else ""),
        )
    return events


def _require_header(file: Path, number: int, line: str) -> None:
    names = tuple(name.strip() for name in line.split(","))
    if names[:4] != HEADER[:4]:
        raise _malformed(file, number, line, ",".join(HEADER))


def _event(file: Path, number: int, line: str, class_names: Sequence[str]) -> Event:
    fields = [field.strip() for field in line.split(",")]
    allowed = (4,) if file.suffix == ".rec" else (4, 5)
    try:
        if len(fields) not in allowed or not _is_channel(fields[0]):
            raise ValueError
        start, stop = float(fields[1]), float(fields[2])
        if not (math.isfinite(stop) and 0 <= start < stop):
            raise ValueError
    except ValueError:
        raise _malformed(file, number, line, "channel,start,stop,label with 0 <= start < stop") from None
    return Event(start, stop, _label(file, number, fields[3], class_names), number)


def _is_channel(text: str) -> bool:
    number = _whole(text)
    return text.upper() in (*TCP, ALL_CHANNELS) if number is None else 0 <= number < len(TCP)


def _whole(text: str) -> int | None:
    """The number that a text is, also as ``6.0``; None for what is no whole number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _label(file: Path, number: int, text: str, class_names: Sequence[str]) -> int:
    """Numbers count from 1 in both forms; names are those of the classes."""
    if text.casefold() in class_names:
        return class_names.index(text.casefold())
    found = _whole(text)
    if found is not None and 1 <= found <= len(class_names):
        return found - 1
    raise Unusable(
        "unknown-label",
        f"{file.name}, line {number}: label {text!r}; 1 to {len(class_names)} are {', '.join(class_names)}",
    )


def _malformed(file: Path, number: int, line: str, needed: str) -> Unusable:
    return Unusable("malformed-annotation", f"{file.name}, line {number}: found {line[:80]!r}; {needed} is needed")
