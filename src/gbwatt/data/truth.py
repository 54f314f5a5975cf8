"""What was planted into simulated recordings, so that a decoder's explanation can be checked against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gbwatt.data.fields import ReadOnly


@dataclass(frozen=True)
class Effect:
    """One thing by which a class differs.

    Attributes
    ----------
    kind : "desynchronisation", "oscillation" or "deflection"
        Less power in a band, a phase-locked sine with harmonics, or a slow potential.
    channels : tuple of str
        Electrodes where it is strongest.
    band : (low, high) in Hz, or None for a deflection
    window : (start, end) in seconds after the event
    topography : tuple of float
        Weight of the source at every electrode of the recording, the largest magnitude being one; of a deflection with
        its sign.
    """

    kind: str
    channels: tuple[str, ...]
    band: tuple[float, float] | None
    window: tuple[float, float]
    topography: tuple[float, ...]


@dataclass(frozen=True)
class Truth:
    """Effects of each class, over the electrodes ``ch_names``, and the settings that they were made with."""

    ch_names: tuple[str, ...]
    effects: Mapping[str, tuple[Effect, ...]]
    difficulty: float
    seed: int

    def __post_init__(self) -> None:
        effects = {str(name): tuple(found) for name, found in self.effects.items()}
        object.__setattr__(self, "effects", ReadOnly(effects))

    def to_dict(self) -> dict[str, Any]:
        """In a form that JSON keeps."""
        values = asdict(self)
        return {**values, "effects": dict(values["effects"])}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Truth:
        """Of what :meth:`to_dict` gave, also after JSON."""
        effects = {
            name: tuple(
                Effect(
                    kind=e["kind"],
                    channels=tuple(e["channels"]),
                    band=None if e["band"] is None else (float(e["band"][0]), float(e["band"][1])),
                    window=(float(e["window"][0]), float(e["window"][1])),
                    topography=tuple(e["topography"]),
                )
                for e in found
            )
            for name, found in values["effects"].items()
        }
        return cls(tuple(values["ch_names"]), effects, float(values["difficulty"]), int(values["seed"]))
