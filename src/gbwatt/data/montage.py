"""Names and positions of electrodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.errors import ParameterError, UnknownPositionError


def montage_name() -> str:
    """Return the name of the 10-05 montage on the Colin 27 head in the installed version of MNE-Python."""
    import mne

    return "colin27_1005" if "colin27_1005" in mne.channels.get_builtin_montages() else "standard_1005"


def electrode_name(label: str) -> str:
    """Return the name of an electrode without the dots and spaces with which some files pad it.

    Upper and lower case are kept; they do not matter for positions.

    Examples
    --------
    >>> [electrode_name(label) for label in ("Fc5.", "C3..", "Oz ", "T10")]
    ['Fc5', 'C3', 'Oz', 'T10']
    """
    return label.rstrip(". ")


def comparable_name(label: str) -> str:
    """Return the name of a channel for comparisons: in lower case, without trailing dots and spaces.

    Examples
    --------
    >>> comparable_name("Fc5.") == comparable_name("FC5")
    True
    """
    return electrode_name(label).casefold()


# fmt: off
#: Electrodes of recordings with a common reference, in the order that the authors of LaBraM use.
REFERENTIAL = (
    "FP1", "FP2", "F3", "F4", "C3", "C4", "P3", "P4", "O1", "O2", "F7", "F8",
    "T3", "T4", "T5", "T6", "A1", "A2", "FZ", "CZ", "PZ", "T1", "T2",
)
#: Pairs of electrodes of BIOT's bipolar montage: four chains from front to back.
BIPOLAR = (
    "FP1-F7", "F7-T3", "T3-T5", "T5-O1", "FP2-F8", "F8-T4", "T4-T6", "T6-O2",
    "FP1-F3", "F3-C3", "C3-P3", "P3-O1", "FP2-F4", "F4-C4", "C4-P4", "P4-O2",
)
# fmt: on

#: Suffixes of labels that denote a common reference, not a second electrode.
REFERENCES = ("REF", "LE", "AR", "AVG")

#: Names in the 10-10 system, and the older names that clinical recordings use.
OLDER = {"T7": "T3", "T8": "T4", "P7": "T5", "P8": "T6"}


def plain_name(label: str) -> str:
    """Return a channel name for comparisons: upper case, without the prefix "EEG" and the suffix of the reference.

    Examples
    --------
    >>> plain_name("EEG Fp1-REF"), plain_name("F7 - T7")
    ('FP1', 'F7-T7')
    """
    text = label.upper().replace(" ", "").removeprefix("EEG")
    for reference in REFERENCES:
        text = text.removesuffix(f"-{reference}")
    return text


def older_name(name: str) -> str:
    """Return the older name, used in clinical recordings, of an electrode or a pair; ``name`` is in upper case.

    Examples
    --------
    >>> older_name("F7-T7")
    'F7-T3'
    """
    return "-".join(OLDER.get(part, part) for part in name.split("-"))


# ---- positions on the scalp

_RING_RADIUS = 0.8  # radius of the ring through Fpz, T7, Oz and T8, relative to that of the head


def scalp_positions(ch_names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Position (2,) of each electrode on a head of radius 1 seen from above: x to the right, y to the nose.

    The azimuthal equidistant projection preserves distances from the vertex.  Case and trailing dots of names are
    ignored.

    Parameters
    ----------
    ch_names : sequence of str
        Names of the 10-05 system, three or more.

    Returns
    -------
    dict
        Positions by name, in the given order.

    Raises
    ------
    UnknownPositionError
        If the position of a name is unknown.
    ParameterError
        If there are fewer than three electrodes, or two at the same position.

    Examples
    --------
    >>> [name for name, (x, y) in scalp_positions(["C3", "C4", "Oz"]).items() if x < -0.1]
    ['C3']
    """
    electrodes = _projected_montage()
    unknown = [name for name in ch_names if electrode_name(name).casefold() not in electrodes]
    if unknown:
        shown = ", ".join(map(repr, unknown[:8])) + (", …" if len(unknown) > 8 else "")
        raise UnknownPositionError(
            f"'ch_names' has {len(unknown)} of {len(ch_names)} channels with unknown positions: {shown}. Use names of "
            "the 10-05 system (Fz, C3, Oz), leave these channels out, or draw channel_bars()."
        )
    positions = {name: electrodes[electrode_name(name).casefold()] for name in ch_names}
    distinct = {tuple(np.round(position, 6)) for position in positions.values()}
    if len(distinct) < len(ch_names) or len(ch_names) < 3:
        raise ParameterError(
            f"'ch_names' has {len(ch_names)} channels at {len(distinct)} positions; a map needs three or more, all "
            "different. Leave out duplicates, or draw channel_bars()."
        )
    return positions


@lru_cache(maxsize=1)
def _projected_montage() -> dict[str, NDArray[Any]]:
    """Return positions (2,) of all electrodes of the 10-05 system on a flat map, by their names in lower case."""
    import mne

    with mne.utils.use_log_level("ERROR"):
        montage = mne.channels.make_standard_montage(montage_name())
        info: Any = mne.create_info(montage.ch_names, 1.0, "eeg").set_montage(montage)  # in head coordinates
    positions = {channel["ch_name"].casefold(): channel["loc"][:3] for channel in info["chs"]}
    centre, axes = _head_axes(*(positions[name] for name in ("fpz", "oz", "t7", "t8")))
    return {name: _project_to_plane(axes @ (position - centre)) for name, position in positions.items()}


def _head_axes(
    front: NDArray[Any], back: NDArray[Any], left: NDArray[Any], right: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the centre (3,) of the head and its axes (3, 3): right, front and up.

    The positions (3,) are those of electrodes on the ring around the head, in whose plane the first two axes are.
    """
    y = (front - back) / np.linalg.norm(front - back)
    x = (right - left) - (right - left) @ y * y
    x /= np.linalg.norm(x)
    return (front + back + left + right) / 4, np.stack([x, y, np.cross(x, y)])


def _project_to_plane(position: NDArray[Any]) -> NDArray[Any]:
    """Project a position (3,) relative to the centre of the head to a point (2,) on the flat map.

    Its distance from the origin is proportional to the angle from the vertex.
    """
    x, y, z = position
    across = math.hypot(x, y)
    return np.array([x, y]) / (across or 1.0) * math.atan2(across, z) / (math.pi / 2) * _RING_RADIUS
