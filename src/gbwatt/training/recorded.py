"""What is known of the recording that epochs come from; a model must be given what it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gbwatt import checks
from gbwatt.data.trials import UNITS, Trials


@dataclass(frozen=True)
class Recorded:
    """Channels, sampling rate and unit of epochs, what was done to them, and what their class numbers mean.

    The last two are None if nobody knows.
    """

    ch_names: tuple[str, ...]
    sfreq: float
    unit: str
    steps: tuple[Mapping[str, Any], ...] | None = None
    class_names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, X: Any, y: Any = None) -> Recorded | None:
        """What ``X`` knows of itself: :class:`~gbwatt.data.Trials` all, ``mne.Epochs`` most, an array nothing.

        With labels ``y`` of its own, the class numbers of Trials do not count.
        """
        if isinstance(X, Trials):
            return cls(X.ch_names, X.sfreq, X.unit, X.steps, X.class_names if y is None else None)
        if hasattr(X, "get_data"):
            return cls(tuple(X.ch_names), float(X.info["sfreq"]), "V")
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
        if None not in (self.steps, other.steps) and _prepared(self) != _prepared(other):
            raise checks.MismatchError(
                f"'{name}' was preprocessed by {_prepared(other)}, but the training data by {_prepared(self)}; "
                "take the same steps, or give the bare array if you know better."
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

    def require_classes(self, trials: Trials, name: str) -> None:
        """Refuse class numbers that mean something else."""
        if self.class_names not in (None, trials.class_names):
            raise checks.MismatchError(
                f"'{name}' has the classes {list(trials.class_names)}, but the model was trained on "
                f"{list(self.class_names or ())}; select the same ones, in the same order."
            )


def _prepared(recorded: Recorded) -> list[dict[str, Any]]:
    """Steps without added noise: robustness is tested with other noise than was trained with."""
    return [_plain(step) for step in recorded.steps or () if step["step"] != "noise"]


def _plain(step: Mapping[str, Any]) -> dict[str, Any]:
    """A record as it is after JSON, which has no tuples."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in step.items()}


def _short(value: Any) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) < 120 else text[:117] + "..."
