"""Messages about trials that cannot be joined, which name the files and the remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gbwatt.data.montage import comparable_name, electrode_name

if TYPE_CHECKING:
    from gbwatt.data.trials import Trials


def describe_difference(field: str, part: Trials, first: Trials, names: Sequence[str]) -> str:
    """Return the text of an error about a field in which two parts differ.

    Parameters
    ----------
    field : str
        Name of the field.
    part, first : Trials
    names : sequence of str
        What the message calls them, usually their files.
    """
    if field == "ch_names":
        return _of_channels(part.ch_names, first.ch_names, names)
    if field == "sfreq":
        return (
            f"{names[0]} is sampled at {part.sfreq:g} Hz, {names[1]} at {first.sfreq:g} Hz; "
            f"add resample={min(part.sfreq, first.sfreq):g} (--preprocess)."
        )
    if field == "steps" and (difference := _of_recordings(part, first, names)):
        return difference
    return (
        f"{names[0]} has {field}={_shortened(getattr(part, field))}, but {names[1]} has "
        f"{_shortened(getattr(first, field))}; select the same channels and classes, and apply the same steps, before."
    )


def _of_channels(theirs: Sequence[str], ours: Sequence[str], names: Sequence[str]) -> str:
    """Return the text of an error about parts with different channels, or the same ones in another order."""
    there = {comparable_name(name) for name in theirs}
    common = [electrode_name(name) for name in ours if comparable_name(name) in there]
    if not common:
        return f"{names[0]} has {_counted(theirs)}, {names[1]} {len(ours)}, and none of the same name; rename them."
    if sorted(ours) == sorted(theirs):
        problem = f"{names[0]} has the {len(theirs)} channels of {names[1]} in another order. Select them in one order"
    else:
        listed = ", ".join(common) if len(common) <= 8 else str(len(common))
        problem = f"{names[0]} has {_counted(theirs)}, {names[1]} {len(ours)}; common: {listed}. Select these"
    return f"{problem}: channels={';'.join(common)} (--preprocess)."


def _counted(channels: Sequence[str]) -> str:
    """Return the number of channels as text."""
    return f"{len(channels)} channel{'s' * (len(channels) != 1)}"


def _of_recordings(part: Trials, first: Trials, names: Sequence[str]) -> str:
    """Return the text of an error about parts that were filtered or referenced before they were saved, or nothing."""
    states = [step for one in (part, first) for step in one.steps if step["step"] == "recorded"]
    rest = [[step for step in one.steps if step["step"] != "recorded"] for one in (part, first)]
    if len(states) != 2 or rest[0] != rest[1]:
        return ""
    edges = [(state.get("highpass"), state.get("lowpass")) for state in states]
    top = max((high for _, high in edges if high is not None), default=math.inf)  # the trials may be resampled
    nyquists = [max(one.sfreq / 2, top) for one in (part, first)]
    if edges[0] == edges[1]:
        return _of_references(states, names)
    theirs, ours = (
        f"{name} was {_band(low, high, nyquist)}"
        for name, (low, high), nyquist in zip(names, edges, nyquists, strict=True)
    )
    return f"{theirs}, {ours}, by their headers; use recordings that were filtered in the same way."


def _of_references(states: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return the text of an error about recordings of which one was re-referenced, or nothing."""
    changed = [bool(state.get("custom_ref_applied")) for state in states]
    if changed[0] == changed[1]:
        return ""
    theirs, other = names if changed[0] else reversed(names)
    return (
        f"the reference of {theirs} was changed before it was saved, but not that of {other}, by their headers; give "
        "both the same one: reference=average (--preprocess)."
    )


def _band(low: float | None, high: float | None, nyquist: float) -> str:
    """Return how a recording was filtered, as text; a low-pass edge at the Nyquist frequency is none."""
    if not low and (high is None or high >= nyquist):
        return "not filtered"
    return f"filtered {low or 0:g}-{nyquist if high is None else high:g} Hz"


def _shortened(value: Any) -> str:
    """Return a value as text of at most 200 characters."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
