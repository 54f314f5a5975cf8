"""The fields of trials: brought into one form, or an error that says what is wrong with them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from gbwatt._text import UNSAFE
from gbwatt.errors import MismatchError, NotFiniteError, ParameterError, ShapeError

Array = NDArray[Any]
K = TypeVar("K")
V = TypeVar("V")


class ReadOnly(dict[K, V]):
    """A dict that cannot be changed; also in copies, which a ``MappingProxyType`` has none of, and fit for JSON."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("what belongs to trials does not change; make another one: {**this, 'name': value}.")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


def samples(X: Any, ch_names: tuple[str, ...]) -> Array:
    """Finite samples (n, n_chans, n_times) in float32, a copy."""
    x = _numbers("X", X, np.float32)
    if x.ndim != 3 or 0 in x.shape[1:]:
        raise ShapeError(f"'X' {x.shape} does not hold epochs; (n, n_chans, n_times) is needed.")
    if x.shape[1] != len(ch_names):
        raise ShapeError(f"'X' {x.shape} has {x.shape[1]} channels, but {len(ch_names)} have names.")
    bad = ~np.isfinite(x).all(axis=2)
    if bad.any():
        trial, channel = np.argwhere(bad)[0]
        raise NotFiniteError(
            f"'X' {x.shape} has NaN or infinite samples in {np.any(bad, axis=1).sum()} trials, first in trial "
            f"{trial}, channel {ch_names[channel]}. Drop or interpolate them."
        )
    return x


#: Longest name of a channel, class, session, run or data set.
MAX_NAME = 200


def plain_name(what: str, value: Any, limit: int = MAX_NAME) -> str:
    """A name without characters that would break a report, a table or a terminal, and not too long."""
    text = str(value)
    shown = ascii(text if len(text) <= 60 else f"{text[:57]}...")
    if wrong := UNSAFE.search(text):
        raise ParameterError(f"{what} has the name {shown} with the control character {wrong.group()!a}; rename it.")
    if len(text) > limit:
        raise ParameterError(
            f"{what} has the name {shown} of {len(text)} characters; {limit} at most are allowed. Shorten it."
        )
    return text


def class_names(names: Sequence[str]) -> tuple[str, ...]:
    """Different names, one or more."""
    found = tuple(plain_name("class_names", value) for value in names)
    if len(set(found)) != len(found) or not found:
        raise ParameterError(f"class_names={list(found)} must be different names, one or more.")
    return found


def codes(y: Any, n: int, names: tuple[str, ...]) -> Array:
    """Class numbers (n,), each the place of a name."""
    found = np.array(y)
    if found.shape != (n,):
        raise ShapeError(f"'y' {found.shape} does not match {n} epochs; ({n},) is needed.")
    if not n:
        return np.empty(0, dtype=np.int64)
    if found.dtype.kind not in "iu":
        raise MismatchError(f"'y' has dtype {found.dtype}; places in class_names, 0 to {len(names) - 1}, do.")
    wrong = found[(found < 0) | (found >= len(names))]
    if wrong.size:
        raise ParameterError(f"'y' has class {wrong[0]}; {len(names)} classes are named: 0 to {len(names) - 1}.")
    return found.astype(np.int64)


def _numbers(name: str, value: Any, dtype: Any) -> Array:
    """A copy as real numbers of a dtype; what is too large for it becomes infinite."""
    try:
        found = np.asarray(value)
        if found.dtype.kind == "c":
            raise TypeError
        with np.errstate(over="ignore"):
            return np.array(found, dtype=dtype, order="C")
    except (TypeError, ValueError):
        raise MismatchError(f"'{name}' must be real numbers in one array, got {_short(value)}.") from None


def _short(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."


def whole(name: str, value: Any, n: int) -> Array:
    """Whole numbers (n,), of one for all or one for each."""
    return _per_trial(name, _whole(name, value), n)


def text(name: str, value: Any, n: int) -> Array:
    """Names (n,), of one for all or one for each."""
    return _per_trial(name, _text(name, value), n)


def _whole(name: str, value: Any) -> Array:
    numbers = _numbers(name, value, np.float64)
    if not (np.isfinite(numbers).all() and (numbers == np.round(numbers)).all()):
        raise MismatchError(f"'{name}' must be whole numbers, got {_short(value)}.")
    return numbers.astype(np.int64)


def _text(name: str, value: Any) -> Array:
    values = np.array(value)
    if values.dtype.kind in "fc" or (values.dtype.kind == "O" and not all(_is_name(v) for v in values.flat)):
        raise MismatchError(f"'{name}' must be names, or whole numbers to stand for them, got {_short(value)}.")
    texts = values.astype(np.str_)
    for value in np.unique(texts).tolist():
        plain_name(f"'{name}'", value)
    return texts


def _is_name(value: Any) -> bool:
    return isinstance(value, str | int | np.integer)


def _per_trial(name: str, values: Array, n: int) -> Array:
    if values.shape not in ((), (n,)):
        raise ShapeError(f"'{name}' {values.shape} does not match {n} epochs; one value or ({n},) is needed.")
    return np.array(np.broadcast_to(values, (n,)))


def groups(value: Any, n: int) -> Array:
    """Numbers of groups (n,); -1 for all means that each trial is its own."""
    numbers = _whole("group", value)
    return np.arange(n) if numbers.shape == () and numbers == -1 else _per_trial("group", numbers, n)


def settled(value: Any) -> Any:
    """Lists as tuples, so that records are the same before and after JSON, and nothing in them can be changed."""
    if isinstance(value, str):
        return plain_name("a step", value, limit=10_000)
    if isinstance(value, Mapping):
        return ReadOnly({plain_name("a step", key): settled(item) for key, item in value.items()})
    return tuple(settled(item) for item in value) if isinstance(value, list | tuple) else value


def names_of(value: str | Sequence[str]) -> Sequence[str]:
    """One name as a list of one."""
    return [value] if isinstance(value, str) else value


def in_order(values: Array) -> list[Any]:
    """Different values in the order in which they first occur."""
    return list(dict.fromkeys(values.tolist()))


def components(one: Sequence[Hashable], other: Sequence[Hashable]) -> Array:
    """Numbers (n,) that two items share if they have the same value in either sequence, or are linked by others.

    Examples
    --------
    >>> components("aabbc", "xyyzw").tolist()
    [0, 0, 0, 0, 1]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows, columns = (_numbered(values) for values in (one, other))
    links = coo_array((np.ones(len(rows)), (rows, len(rows) + columns)), shape=(2 * len(rows),) * 2)
    _, labels = connected_components(links, directed=False)
    return _numbered(labels[rows].tolist())


def _numbered(values: Sequence[Hashable]) -> Array:
    """Number of each value in the order in which they first occur."""
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(value, len(number)) for value in values], dtype=np.int64)
