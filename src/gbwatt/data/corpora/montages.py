"""Electrodes of clinical recordings, and the montages that models take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gbwatt.data.corpora.problems import Unusable
from gbwatt.electrodes import BIPOLAR, REFERENCES, REFERENTIAL, older_name

_LABEL = re.compile(rf"(?:EEG[\s_]+)?(?P<electrode>[A-Z]+\d*)(?:\s*-\s*(?P<reference>{'|'.join(REFERENCES)}))?")


@dataclass(frozen=True)
class Montage:
    """Channels of a model: electrodes against the reference of the recording, or differences of two."""

    name: str
    ch_names: tuple[str, ...]

    @property
    def pairs(self) -> tuple[tuple[str, ...], ...]:
        """The electrode, or both, of each channel."""
        return tuple(tuple(name.split("-")) for name in self.ch_names)

    @property
    def electrodes(self) -> tuple[str, ...]:
        """All electrodes that are needed, each once."""
        return tuple(dict.fromkeys(name for pair in self.pairs for name in pair))


MONTAGES = {montage.name: montage for montage in (Montage("bipolar16", BIPOLAR), Montage("referential23", REFERENTIAL))}

# fmt: off
#: Channels of the temporal central parasagittal montage, by whose numbers events are annotated.
TCP = (
    "FP1-F7", "F7-T3", "T3-T5", "T5-O1", "FP2-F8", "F8-T4", "T4-T6", "T6-O2", "A1-T3", "T3-C3", "C3-CZ",
    "CZ-C4", "C4-T4", "T4-A2", "FP1-F3", "F3-C3", "C3-P3", "P3-O1", "FP2-F4", "F4-C4", "C4-P4", "P4-O2",
)
# fmt: on


def electrode(label: str) -> tuple[str, str] | None:
    """Electrode and reference of an EDF label; None for what is no electrode against a reference.

    Examples
    --------
    >>> [electrode(label) for label in ("EEG FP1-REF", "eeg t7-le ", "Cz", "EEG FP1-F7", "EDF Annotations")]
    [('FP1', 'REF'), ('T3', 'LE'), ('CZ', ''), None, None]
    """
    found = _LABEL.fullmatch(label.strip().upper())
    if found is None:
        return None
    name = found["electrode"]
    return older_name(name), found["reference"] or ""


def places(montage: Montage, labels: Sequence[str]) -> dict[str, int]:
    """Where the electrodes of a montage are among the labels of a file, all against one reference."""
    by_reference: dict[str, dict[str, int]] = {}
    for place, label in enumerate(labels):
        found = electrode(label)
        if found is not None:
            by_reference.setdefault(found[1], {}).setdefault(found[0], place)
    best = max(by_reference.values(), key=lambda own: len(own.keys() & set(montage.electrodes)), default={})
    missing = [name for name in montage.electrodes if name not in best]
    if missing:
        raise Unusable(
            "missing-channel",
            f"{', '.join(missing)} of the {len(montage.electrodes)} electrodes of {montage.name} not among the "
            f"{len(labels)} channels: {', '.join(labels)}",
        )
    return {name: best[name] for name in montage.electrodes}
