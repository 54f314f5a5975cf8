"""Preprocessing steps written as text, for the command line and experiment files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gbwatt._validation import check_one_of
from gbwatt.data.preprocessing.steps import (
    BandPass,
    Convert,
    Crop,
    ExponentialStandardise,
    Notch,
    Pick,
    Reference,
    Resample,
    Step,
)
from gbwatt.errors import ParameterError

#: An example for error messages and help texts.
EXAMPLE = "bandpass=8-30,resample=125,reference=average,channels=C3;Cz;C4"


#: Word for causal filters.
CAUSAL = "causal"


def parse_steps(text: str) -> tuple[Step, ...]:
    """Return the steps that a text describes; raise one error that lists all problems.

    Parameters
    ----------
    text : str
        Assignments separated by commas, in the order of their application; several channels or frequencies are
        separated by semicolons.

    Examples
    --------
    >>> [str(step) for step in parse_steps("channels=C3;Cz;C4,resample=125")]
    ['pick C3, Cz, C4', 'resample to 125 Hz']
    """
    if not text.strip():
        raise ParameterError(f"preprocess is empty; an example is {EXAMPLE!r}.")
    steps, problems = [], []
    for part in text.split(","):
        try:
            steps.append(_parse_step(part.strip()))
        except ParameterError as error:
            problems.append(f"preprocess {part.strip()!r}: {error}")
    if problems:
        raise ParameterError("\n".join(problems))
    return tuple(steps)


def _parse_step(text: str) -> Step:
    """Return the step of one assignment, such as "resample=125"."""
    name, equals, value = (piece.strip() for piece in text.partition("="))
    if not (name and equals and value):
        raise ParameterError(f"NAME=VALUE is needed; an example is {EXAMPLE!r}.")
    check_one_of("step", name, tuple(_STEPS))
    if "=" in value:
        raise ParameterError(f"{value!r} has another step; steps are separated by commas: {EXAMPLE!r}.")
    return _STEPS[name](value)


def _number(text: str) -> float:
    """Return a number as float."""
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"{text!r} is not a number.") from None


def _pair(text: str, separator: str, example: str) -> tuple[float, float]:
    """Return two numbers with a separator between them."""
    first, found, second = text.partition(separator)
    if not found:
        raise ParameterError(f"{text!r} has no {separator!r} between two numbers; an example is {example!r}.")
    return _number(first), _number(second)


def _names(text: str) -> tuple[str, ...]:
    """Return channel names separated by semicolons."""
    return tuple(name.strip() for name in text.split(";") if name.strip())


def _band_pass(text: str) -> Step:
    """Return the band-pass filter of a text such as "8-30"."""
    low, high = _pair(text, "-", "bandpass=8-30")
    return BandPass(low, high)


def _crop(text: str) -> Step:
    """Return the time window of a text such as "-0.2:0.8"."""
    tmin, tmax = _pair(text, ":", "crop=0.5:4")
    return Crop(tmin, tmax)


#: Function that makes the step from the value, for each name.
_STEPS: Mapping[str, Callable[[str], Step]] = MappingProxyType(
    {
        "bandpass": _band_pass,
        "highpass": lambda text: BandPass(_number(text), None),
        "lowpass": lambda text: BandPass(None, _number(text)),
        "notch": lambda text: Notch(tuple(_number(freq) for freq in text.split(";"))),
        "resample": lambda text: Resample(_number(text)),
        "reference": lambda text: Reference(() if text == "average" else _names(text)),
        "channels": lambda text: Pick(_names(text)),
        "crop": _crop,
        "standardise": lambda text: ExponentialStandardise(_number(text)),
        "unit": Convert,
    }
)
