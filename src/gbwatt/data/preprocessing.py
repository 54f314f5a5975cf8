"""Preprocessing as explicit steps, each a frozen record of what it does, the same offline and online."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from gbwatt.data.trials import Frame, Trials

Array = NDArray[Any]


class Step(ABC):
    """One thing done to samples (..., n_chans, n_times), each trial by itself.

    Subclasses are frozen dataclasses whose fields are all that the result depends on.
    """

    name: ClassVar[str]

    @abstractmethod
    def transform(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """New samples, and what their axes mean."""

    def fit(self, trials: Trials) -> Self:
        """The step with what it learns from training data; most learn nothing."""
        return self

    @property
    def fitted(self) -> bool:
        """Whether all that is learnt from training data is known."""
        return True

    def record(self) -> dict[str, Any]:
        """The step in a form that JSON keeps."""
        return {"step": self.name, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True, init=False)
class Preprocessing:
    """Steps, one after the other."""

    steps: tuple[Step, ...]

    def __init__(self, *steps: Step) -> None:
        object.__setattr__(self, "steps", steps)
