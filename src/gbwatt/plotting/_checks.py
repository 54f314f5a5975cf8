"""Checks of arrays and names; errors say which argument is wrong, what was passed and what is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gbwatt.errors import MismatchError, NotFiniteError, ParameterError, ShapeError

Array = NDArray[Any]


def numbers(name: str, values: ArrayLike, *axes: str, gaps: bool = False) -> Array:
    """Convert values to an array of finite floats with the named axes; with ``gaps``, NaN is a missing value.

    Examples
    --------
    >>> numbers("values", [[1, 2, 3]], "n_classes", "n_chans")
    array([[1., 2., 3.]])
    """
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise MismatchError(f"'{name}' is not an array of numbers ({error}); ({', '.join(axes)}) is needed.") from error
    if array.ndim != len(axes) or array.size == 0:
        raise ShapeError(f"'{name}' {array.shape} does not fit; ({', '.join(axes)}), none of them 0, is needed.")
    bad = np.isinf(array) if gaps else ~np.isfinite(array)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise NotFiniteError(
            f"'{name}' {array.shape} has {int(bad.sum())} NaN or infinite entries, the first at {first}. "
            "Look for a division by zero or an overflow before this call, or leave these entries out."
        )
    return array


def flat(name: str, values: ArrayLike) -> Array:
    """Convert values of any shape to a vector of finite floats."""
    array = np.asarray(values)
    return numbers(name, array.ravel() if array.dtype != object else values, "n")


def positive(name: str, values: Array, remedy: str) -> Array:
    """Require positive values, for a logarithmic axis."""
    if values.min() <= 0:
        raise ParameterError(f"'{name}' has values down to {values.min():.3g}; they must be positive. {remedy}")
    return values


def fractions(name: str, values: Array) -> Array:
    """Require values from 0 to 1."""
    if values.min() < 0 or values.max() > 1:
        raise ParameterError(
            f"'{name}' has values from {values.min():.3g} to {values.max():.3g}; values from 0 to 1 are needed: divide "
            "percentages by 100."
        )
    return values


def same_length(**arrays: tuple[Sequence[Any] | Array, str]) -> None:
    """Require arrays of the same length; each comes with a word for the entries of its first axis."""
    (first, (start, axis)), *others = arrays.items()
    for name, (array, entries) in others:
        if len(array) != len(start):
            raise ShapeError(
                f"'{name}' has {len(array)} {entries} and '{first}' {len(start)} {axis}; the numbers must be equal."
            )


def names(name: str, values: Sequence[str], n: int, of: str) -> tuple[str, ...]:
    """Require a name for each of the n entries along an axis.

    Examples
    --------
    >>> names("ch_names", ["C3", "C4"], 2, "channels in 'values'")
    ('C3', 'C4')
    """
    if isinstance(values, str):
        raise MismatchError(f"'{name}' is the text {values!r}; a list of names is needed: [{values!r}].")
    if len(values) != n:
        raise ShapeError(f"'{name}' has {len(values)} names for {n} {of}; one for each is needed.")
    return tuple(map(str, values))


def increasing(name: str, values: Array) -> Array:
    """Require strictly increasing values."""
    if (np.diff(values) <= 0).any():
        raise ParameterError(f"'{name}' must be strictly increasing; sort it together with the values it belongs to.")
    return values


def evenly_spaced(name: str, values: Array) -> float:
    """The step between evenly spaced, increasing values."""
    steps = np.diff(increasing(name, values))
    if len(steps) and steps.max() - steps.min() > 0.01 * steps.mean():
        raise ParameterError(
            f"'{name}' has steps from {steps.min():.3g} to {steps.max():.3g}; they must be equal: resample first."
        )
    return float(steps.mean()) if len(steps) else 1.0


def not_empty(name: str, values: Any) -> None:
    """Require a mapping or sequence with at least one entry."""
    if len(values) == 0:
        raise ShapeError(f"'{name}' is empty; there is nothing to draw.")
