"""Preprocessing as explicit steps, each a frozen record of what it does, the same offline and online."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Self

from numpy.typing import NDArray

from gbwatt._validation import check_one_of
from gbwatt.data.preprocessing.filters import BandPass, ExponentialStandardise, Notch, Resample
from gbwatt.data.preprocessing.steps import Convert, Crop, Noise, Pick, Reference, Standardise, Step, samples
from gbwatt.data.trials import Frame, Trials
from gbwatt.errors import InputError, MismatchError, ParameterError

__all__ = [
    "BandPass",
    "Convert",
    "Crop",
    "ExponentialStandardise",
    "Noise",
    "Notch",
    "Pick",
    "Preprocessing",
    "Reference",
    "Resample",
    "Standardise",
    "Step",
]

Array = NDArray[Any]


@dataclass(frozen=True, init=False)
class Preprocessing:
    """Steps, one after the other.

    Trials go through the call, which writes the steps into their history; windows of a running recording, one or a
    batch of them, go through :meth:`transform` and come out with the same numbers.

    Examples
    --------
    >>> steps = Preprocessing(BandPass(4, 38), Resample(125), Crop(0.5, 4.0), Standardise())
    >>> print(steps)
    band-pass 4-38 Hz (Butterworth 4, zero-phase)
    resample to 125 Hz
    crop to 0.5 … 4 s
    standardise (not fitted)
    >>> Preprocessing.from_records(steps.records()) == steps
    True
    """

    steps: tuple[Step, ...]

    def __init__(self, *steps: Step) -> None:
        for place, step in enumerate(steps):
            if not isinstance(step, Step):
                raise MismatchError(
                    f"steps[{place}] is a {type(step).__name__}; steps are wanted, one argument each: "
                    "Preprocessing(BandPass(4, 38), Resample(125))."
                )
        object.__setattr__(self, "steps", steps)

    def fit(self, trials: Trials) -> Self:
        """The same steps, each with what it learns from these trials as those before it have made them."""
        learning = [place for place, step in enumerate(self.steps) if type(step).fit is not Step.fit]
        done: list[Step] = []
        for place, step in enumerate(self.steps):
            done.append(step.fit(trials))
            if learning and place < learning[-1]:  # nobody looks at the trials after that
                trials = Preprocessing(done[-1])(trials)
        return type(self)(*done)

    @property
    def fitted(self) -> bool:
        """Whether all that is learnt from training data is known."""
        return all(step.fitted for step in self.steps)

    def __call__(self, trials: Trials) -> Trials:
        """The trials after all steps, with the steps added to their history."""
        if not isinstance(trials, Trials):
            raise MismatchError(
                f"steps are called with Trials, not a {type(trials).__name__}; for arrays there is transform(x, frame)."
            )
        x, frame = self.transform(trials.X, trials.frame)
        return trials.replace(X=x, **vars(frame), steps=(*trials.steps, *self.records()))

    def transform(self, x: Any, frame: Frame) -> tuple[Array, Frame]:
        """Samples (..., n_chans, n_times) after all steps, in float32, and what their axes mean."""
        x = samples(x, frame).copy()  # a window may be overwritten by the next one
        for step in self.steps:
            x, frame = step.transform(x, frame)
        return x, frame

    def __add__(self, other: Preprocessing | Step) -> Self:
        more = other.steps if isinstance(other, Preprocessing) else (other,)
        return type(self)(*self.steps, *more)

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps)) or "no preprocessing"

    # ---- records

    def records(self) -> list[dict[str, Any]]:
        """The steps in a form that JSON keeps as it is."""
        return [step.record() for step in self.steps]

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Any]]) -> Self:
        """The steps of :meth:`records` or of :attr:`Trials.steps`, also after JSON.

        Fields that have a default may be left out.  All that is wrong is reported at once.
        """
        steps, problems = [], []
        for place, record in enumerate(records):
            try:
                steps.append(_step(record))
            except InputError as error:
                problems += [f"records[{place}]: {line}" for line in str(error).splitlines()]
        if problems:
            raise ParameterError("\n".join(problems))
        return cls(*steps)


def _step(record: Any) -> Step:
    if not isinstance(record, Mapping) or "step" not in record:
        raise ParameterError(f"{record!r} is no step; {{'step': 'crop', 'tmin': 0, 'tmax': 1}} would be one.")
    kinds = {kind.name: kind for kind in Step.__subclasses__()}  # also those that a user has defined
    check_one_of("step", record["step"], tuple(kinds))
    kind = kinds[record["step"]]
    values = {str(name): value for name, value in record.items() if name != "step"}
    problems = _wrong_fields(kind, values)
    if problems:
        raise ParameterError("\n".join(problems))
    return kind(**values)


def _wrong_fields(kind: type[Step], values: Mapping[str, Any]) -> list[str]:
    known = fields(kind)  # type: ignore[arg-type]
    problems = []
    for name in values:
        try:
            check_one_of(f"field of {kind.name}", name, tuple(f.name for f in known))
        except ParameterError as error:
            problems.append(str(error))
    needed = [f.name for f in known if f.default is MISSING and f.default_factory is MISSING]
    return problems + [f"{kind.name} needs {name!r}." for name in needed if name not in values]
