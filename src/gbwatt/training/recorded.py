"""What is known of the recording that epochs come from; a model must be given what it was trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gbwatt import checks
from gbwatt.data.formats.interchange import RECORDED, recorded_state, steps_of
from gbwatt.data.trials import UNITS, Trials

#: Edges in Hz that are settings of amplifiers, and no preprocessing: high-pass up to, low-pass from.
HARDWARE_HIGHPASS, HARDWARE_LOWPASS = 0.2, 70.0
#: Relative difference between edges of the same filter.
SAME_EDGE = 0.05


@dataclass(frozen=True)
class Recorded:
    """Channels, sampling rate and unit of epochs, what was done to them, and what their class numbers mean.

    All but the first three are None where they are unknown.

    Attributes
    ----------
    ch_names, sfreq, unit
    steps : tuple of dict
        Steps of preprocessing.
    class_names : tuple of str
        What class numbers mean.
    highpass, lowpass : float
        Edges of the filters in Hz, of ``info`` of MNE or of the steps.
    custom_ref_applied, projections : int
        As in ``info`` of MNE: whether the reference was changed, and how many projections are active.
    """

    ch_names: tuple[str, ...]
    sfreq: float
    unit: str
    steps: tuple[Mapping[str, Any], ...] | None = None
    class_names: tuple[str, ...] | None = None
    highpass: float | None = None
    lowpass: float | None = None
    custom_ref_applied: int | None = None
    projections: int | None = None

    @classmethod
    def of(cls, X: Any, y: Any = None) -> Recorded | None:
        """What ``X`` knows of itself: :class:`~gbwatt.data.Trials` all, ``mne.Epochs`` most, an array nothing.

        With labels ``y`` of its own, the class numbers of Trials do not count.
        """
        if isinstance(X, Trials):
            names = X.class_names if y is None else None
            return cls(X.ch_names, X.sfreq, X.unit, X.steps, names, **_state(X.steps))
        if hasattr(X, "get_data"):
            steps = steps_of(X)
            state = recorded_state(X.info) if steps is None else _state(steps)
            return cls(tuple(X.ch_names), float(X.info["sfreq"]), "V", steps, **state)
        return None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Recorded | None:
        """Of what ``vars`` gave, also after JSON."""
        if values is None:
            return None
        steps = None if values["steps"] is None else tuple(values["steps"])
        names = values.get("class_names")
        return cls(
            tuple(values["ch_names"]),
            float(values["sfreq"]),
            values["unit"],
            steps,
            None if names is None else tuple(names),
            **{name: _number(name, values.get(name)) for name in _STATE},
        )

    def require(self, other: Recorded | None, name: str) -> None:
        """Refuse epochs of another kind; what is not known of them is not compared."""
        if other is None:
            return
        for field in ("ch_names", "sfreq"):
            got, want = getattr(other, field), getattr(self, field)
            if got != want:
                raise checks.MismatchError(
                    f"'{name}' has {field}={_short(got)}, but the model was trained on {_short(want)}; "
                    f"prepare '{name}' as the training data, or give the bare array if you know better."
                )
        self.scale_of(other, name)
        self._require_filters(other, name)
        self._require_reference(other, name)
        if None not in (self.steps, other.steps) and _prepared(self) != _prepared(other):
            raise checks.MismatchError(
                f"'{name}' was preprocessed by {_prepared(other)}, but the training data by {_prepared(self)}; "
                "take the same steps, or give the bare array if you know better."
            )

    def prepared_like(self, other: Recorded | None) -> bool:
        """Whether other epochs were prepared in the same way, noise included, as far as that is known."""
        if other is None:
            return True
        noise = [[_plain(step) for step in one.steps or () if step["step"] == "noise"] for one in (self, other)]
        try:
            self.require(other, "X")
        except checks.MismatchError:
            return False
        return None in (self.steps, other.steps) or noise[0] == noise[1]

    def unknown_filters(self, other: Recorded | None, name: str) -> str | None:
        """What to say of epochs whose filters are unknown, if these were filtered; None if nothing is to be said."""
        if other is None or other.highpass is not None or other.lowpass is not None:
            return None
        filtered = (self.highpass or 0) > HARDWARE_HIGHPASS or (self.lowpass or math.inf) < self._hardware_lowpass
        if not filtered:
            return None
        return (
            f"The filters of '{name}' are unknown, but the model was trained on data filtered {_band(self)}. Make sure "
            f"that '{name}' was filtered in the same way."
        )

    @property
    def _hardware_lowpass(self) -> float:
        return min(HARDWARE_LOWPASS, 0.9 * self.sfreq / 2)

    def _require_filters(self, other: Recorded, name: str) -> None:
        nyquist, limit = self.sfreq / 2, self._hardware_lowpass
        for field in ("highpass", "lowpass"):
            got, want = getattr(other, field), getattr(self, field)
            if got is None or want is None or math.isclose(got, want, rel_tol=SAME_EDGE):
                continue
            if max(got, want) <= HARDWARE_HIGHPASS if field == "highpass" else min(got, want) >= limit:
                continue
            raise checks.MismatchError(
                f"'{name}' has {field}={got:g} Hz, but the model was trained on data with {field}={want:g} Hz "
                f"({_band(self)}); filter '{name}' as the training data, for instance by "
                f"raw.filter({_edge(self.highpass, 0.0)}, {_edge(self.lowpass, nyquist)}) before cutting epochs. If it "
                f"is filtered already and its header does not say so, give the plain array."
            )

    def _require_reference(self, other: Recorded, name: str) -> None:
        for field in ("custom_ref_applied", "projections"):
            got, want = getattr(other, field), getattr(self, field)
            if None not in (got, want) and got != want:
                verb = "epochs.apply_proj()" if field == "projections" else "epochs.set_eeg_reference(...)"
                remedy = f"do the same by {verb}" if want else f"leave out {verb}"
                raise checks.MismatchError(
                    f"'{name}' has {_REFERENCE[field][bool(got)]} ({field}={got}), but the training data had "
                    f"{_REFERENCE[field][bool(want)]} ({field}={want}); {remedy}. If "
                    "the reference is the same and the header does not say so, give the plain array."
                )

    def scale_of(self, other: Recorded | None, name: str) -> float:
        """Factor that brings other epochs into the unit of these."""
        if other is None or other.unit == self.unit:
            return 1.0
        if not {self.unit, other.unit} <= set(UNITS):
            raise checks.MismatchError(
                f"'{name}' has unit='{other.unit}', but the model was trained on '{self.unit}', and nothing leads from "
                "one to the other; standardise both, or give the bare array if you know better."
            )
        return UNITS[other.unit] / UNITS[self.unit]


def _prepared(recorded: Recorded) -> list[dict[str, Any]]:
    """Steps that are compared.

    Without added noise: robustness is tested with other noise than was trained with.  Nor what the header of a file
    says, which is compared edge by edge.
    """
    return [_plain(step) for step in recorded.steps or () if step["step"] not in ("noise", RECORDED)]


#: What entries of ``info`` mean if they are zero, and if not.
_REFERENCE = {
    "custom_ref_applied": ("the reference of the recording", "another reference"),
    "projections": ("no active projections", "active projections"),
}
_STATE = ("highpass", "lowpass", "custom_ref_applied", "projections")


def _state(steps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Filters and reference after some steps, as far as these tell."""
    found: dict[str, Any] = dict.fromkeys(_STATE)
    for step in steps:
        if step["step"] in (RECORDED, "mne"):
            found |= {name: _number(name, step[name]) for name in _STATE if name in step}
        elif step["step"] == "band_pass":
            edges = {"highpass": (step.get("low"), max), "lowpass": (step.get("high"), min)}
            for name, (edge, stronger) in edges.items():
                if edge is not None:
                    found[name] = float(edge) if found[name] is None else stronger(found[name], float(edge))
        elif step["step"] == "resample" and found["lowpass"] is not None:
            found["lowpass"] = min(found["lowpass"], float(step["sfreq"]) / 2)
        elif step["step"] == "reference":
            found["custom_ref_applied"] = 1
    return found


def _number(name: str, value: Any) -> Any:
    """A number of the state, None if it is unknown."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r} is no number")
    return float(value) if name.endswith("pass") else int(value)


def _edge(value: float | None, default: float) -> str:
    """An argument of ``filter``: None where nothing is to be filtered."""
    return "None" if value is None or value == default else f"{value:g}"


def _band(recorded: Recorded) -> str:
    low, high = ("unknown" if edge is None else f"{edge:g}" for edge in (recorded.highpass, recorded.lowpass))
    return f"from {low} to {high} Hz"


def _plain(step: Mapping[str, Any]) -> dict[str, Any]:
    """A record as it is after JSON, which has no tuples."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in step.items()}


def _short(value: Any) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) < 120 else text[:117] + "..."
