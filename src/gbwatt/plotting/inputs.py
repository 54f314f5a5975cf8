"""What pictures require of arrays and names; errors say which argument, what was got and what is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gbwatt.errors import MismatchError, NotFiniteError, ParameterError, ShapeError

Array = NDArray[Any]


def numbers(name: str, values: ArrayLike, *axes: str, gaps: bool = False) -> Array:
    """Values as an array of finite floats with the named axes; with ``gaps``, NaN is a value that is missing.

    Examples
    --------
    >>> numbers("values", [[1, 2, 3]], "n_classes", "n_chans")
    array([[1., 2., 3.]])
    """
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise MismatchError(f"'{name}' is no array of numbers ({error}); ({', '.join(axes)}) is needed.") from error
    if array.ndim != len(axes) or array.size == 0:
        raise ShapeError(f"'{name}' {array.shape} does not fit; ({', '.join(axes)}), none of them 0, is needed.")
    bad = np.isinf(array) if gaps else ~np.isfinite(array)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise NotFiniteError(
            f"'{name}' {array.shape} has {int(bad.sum())} NaN or infinite entries, the first at {first}. "
            "Look for a division by zero or an overflow before this call, or leave them out."
        )
    return array


def flat(name: str, values: ArrayLike) -> Array:
    """Values of any shape as one row of finite floats."""
    array = np.asarray(values)
    return numbers(name, array.ravel() if array.dtype != object else values, "n")


def positive(name: str, values: Array, remedy: str) -> Array:
    """Require values above zero, for a logarithmic axis."""
    if values.min() <= 0:
        raise ParameterError(f"'{name}' has values down to {values.min():.3g}; they must be positive. {remedy}")
    return values


def same_length(**arrays: tuple[Sequence[Any] | Array, str]) -> None:
    """Require arrays of one length; with each comes the name of what its first axis counts."""
    (first, (start, axis)), *others = arrays.items()
    for name, (array, what) in others:
        if len(array) != len(start):
            raise ShapeError(f"'{name}' has {len(array)} {what} and '{first}' {len(start)} {axis}; as many are needed.")


def names(name: str, given: Sequence[str], n: int, of: str) -> tuple[str, ...]:
    """Require a name for each of the n entries along an axis.

    Examples
    --------
    >>> names("ch_names", ["C3", "C4"], 2, "channels in 'values'")
    ('C3', 'C4')
    """
    if isinstance(given, str):
        raise MismatchError(f"'{name}' is the text {given!r}; a list of names is needed: [{given!r}].")
    if len(given) != n:
        raise ShapeError(f"'{name}' has {len(given)} names for {n} {of}; one for each is needed.")
    return tuple(map(str, given))


def rising(name: str, values: Array) -> Array:
    """Require values that rise from each to the next."""
    if (np.diff(values) <= 0).any():
        raise ParameterError(f"'{name}' must rise from each value to the next; sort it, with what belongs to it.")
    return values


def evenly_spaced(name: str, values: Array) -> float:
    """The step between values that rise in equal steps."""
    steps = np.diff(rising(name, values))
    if len(steps) and steps.max() - steps.min() > 0.01 * steps.mean():
        raise ParameterError(
            f"'{name}' rises in steps from {steps.min():.3g} to {steps.max():.3g}; they must be equal: resample first."
        )
    return float(steps.mean()) if len(steps) else 1.0


def filled(name: str, given: Any) -> None:
    """Require a mapping or sequence that has something in it."""
    if len(given) == 0:
        raise ShapeError(f"'{name}' is empty; there is nothing to draw.")
