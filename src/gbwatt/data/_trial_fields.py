"""The fields of trials: ground truth, validation and conversion."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from gbwatt._text import UNSAFE
from gbwatt.errors import MismatchError, NotFiniteError, ParameterError, ShapeError

Array = NDArray[Any]
K = TypeVar("K")
V = TypeVar("V")


class ReadOnly(dict[K, V]):
    """An immutable dict; unlike ``MappingProxyType``, it can be copied and written as JSON."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("metadata of trials cannot be changed; create a new dict: {**this, 'name': value}.")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


# ---- ground truth


@dataclass(frozen=True)
class Effect:
    """A known effect by which a class of simulated recordings differs from the others.

    Attributes
    ----------
    kind : "desynchronisation", "oscillation" or "deflection"
        A decrease of power in a band, a phase-locked sine with harmonics, or a slow potential.
    channels : tuple of str
        Electrodes where the effect is strongest.
    band : (low, high) or None
        Frequency band in Hz; None for a deflection.
    window : (start, end)
        Time window in seconds after the event.
    topography : tuple of float
        Weight of the source at every electrode, with a maximum magnitude of one.  For a deflection, its sign is that of
        the potential.

    Examples
    --------
    >>> from gbwatt.data import load
    >>> load("simulated-ssvep").truth.effects["12 Hz"][0].band
    (11.5, 12.5)
    """

    kind: str
    channels: tuple[str, ...]
    band: tuple[float, float] | None
    window: tuple[float, float]
    topography: tuple[float, ...]


@dataclass(frozen=True)
class Truth:
    """Ground truth of the simulated recordings of a subject.

    Attributes
    ----------
    ch_names : tuple of str
        Electrodes of the topographies.
    effects : mapping from str to tuple of Effect
        Effects of each class.
    difficulty : float
    seed : int
        Settings of the simulation.

    Examples
    --------
    >>> from gbwatt.data import load
    >>> truth = load("simulated-ssvep", difficulty=0.2).truth
    >>> truth.difficulty, Truth.from_dict(truth.to_dict()) == truth
    (0.2, True)
    """

    ch_names: tuple[str, ...]
    effects: Mapping[str, tuple[Effect, ...]]
    difficulty: float
    seed: int

    def __post_init__(self) -> None:
        effects = {str(name): tuple(own) for name, own in self.effects.items()}
        object.__setattr__(self, "effects", ReadOnly(effects))

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that can be written as JSON."""
        values = asdict(self)
        return {**values, "effects": dict(values["effects"])}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Truth:
        """Create the truth from the result of :meth:`to_dict`, also after JSON."""
        effects = {
            name: tuple(
                Effect(
                    kind=e["kind"],
                    channels=tuple(e["channels"]),
                    band=None if e["band"] is None else (float(e["band"][0]), float(e["band"][1])),
                    window=(float(e["window"][0]), float(e["window"][1])),
                    topography=tuple(e["topography"]),
                )
                for e in own
            )
            for name, own in values["effects"].items()
        }
        return cls(tuple(values["ch_names"]), effects, float(values["difficulty"]), int(values["seed"]))


# ---- validation and conversion


def samples(X: Any, ch_names: tuple[str, ...]) -> Array:
    """Return a copy of finite samples (n, n_chans, n_times) in float32."""
    x = _numbers("X", X, np.float32)
    if x.ndim != 3 or 0 in x.shape[1:]:
        raise ShapeError(f"'X' {x.shape} does not have the shape (n, n_chans, n_times).")
    if x.shape[1] != len(ch_names):
        raise ShapeError(f"'X' {x.shape} has {x.shape[1]} channels, but there are {len(ch_names)} channel names.")
    bad = ~np.isfinite(x).all(axis=2)
    if bad.any():
        trial, channel = np.argwhere(bad)[0]
        raise NotFiniteError(
            f"'X' {x.shape} has NaN or infinite samples in {np.any(bad, axis=1).sum()} trials, first in trial "
            f"{trial}, channel {ch_names[channel]}. Drop or interpolate them."
        )
    return x


#: Maximum length of the name of a channel, class, session, run or data set.
MAX_NAME = 200


def plain_name(what: str, value: Any, limit: int = MAX_NAME) -> str:
    """Return a name; require that it is not too long and has no unsafe characters."""
    text = str(value)
    shown = ascii(text if len(text) <= 60 else f"{text[:57]}...")
    if wrong := UNSAFE.search(text):
        raise ParameterError(f"{what} has the name {shown} with the control character {wrong.group()!a}; rename it.")
    if len(text) > limit:
        raise ParameterError(
            f"{what} has the name {shown} of {len(text)} characters; at most {limit} are allowed. Shorten it."
        )
    return text


def class_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return at least one name, without repetitions."""
    plain = tuple(plain_name("class_names", value) for value in names)
    if len(set(plain)) != len(plain) or not plain:
        raise ParameterError(f"class_names={list(plain)} must be one or more different names.")
    return plain


def codes(y: Any, n: int, names: tuple[str, ...]) -> Array:
    """Return class numbers (n,), indices into ``names``."""
    numbers = np.array(y)
    if numbers.shape != (n,):
        raise ShapeError(f"'y' {numbers.shape} does not match {n} epochs; ({n},) is needed.")
    if not n:
        return np.empty(0, dtype=np.int64)
    if numbers.dtype.kind not in "iu":
        raise MismatchError(
            f"'y' has dtype {numbers.dtype}; indices into class_names, 0 to {len(names) - 1}, are needed."
        )
    wrong = numbers[(numbers < 0) | (numbers >= len(names))]
    if wrong.size:
        raise ParameterError(f"'y' contains class {wrong[0]}; class_names has 0 to {len(names) - 1}.")
    return numbers.astype(np.int64)


def _numbers(name: str, value: Any, dtype: Any) -> Array:
    """Return a copy as real numbers of a dtype; numbers too large for it become infinite."""
    try:
        array = np.asarray(value)
        if array.dtype.kind == "c":
            raise TypeError
        with np.errstate(over="ignore"):
            return np.array(array, dtype=dtype, order="C")
    except (TypeError, ValueError):
        raise MismatchError(f"'{name}' must be an array of real numbers, got {_short(value)}.") from None


def _short(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."


def whole(name: str, value: Any, n: int) -> Array:
    """Return whole numbers (n,) from one value or one per trial."""
    return _per_trial(name, _whole(name, value), n)


def text(name: str, value: Any, n: int) -> Array:
    """Return names (n,) from one value or one per trial."""
    return _per_trial(name, _text(name, value), n)


def _whole(name: str, value: Any) -> Array:
    numbers = _numbers(name, value, np.float64)
    if not (np.isfinite(numbers).all() and (numbers == np.round(numbers)).all()):
        raise MismatchError(f"'{name}' must be whole numbers, got {_short(value)}.")
    return numbers.astype(np.int64)


def _text(name: str, value: Any) -> Array:
    values = np.array(value)
    if values.dtype.kind in "fc" or (values.dtype.kind == "O" and not all(_is_name(v) for v in values.flat)):
        raise MismatchError(f"'{name}' must be names or whole numbers, got {_short(value)}.")
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
    """Return group numbers (n,); with -1, each trial is its own group."""
    numbers = _whole("group", value)
    return np.arange(n) if numbers.shape == () and numbers == -1 else _per_trial("group", numbers, n)


def settled(value: Any) -> Any:
    """Make a record immutable, with tuples for lists, so that it is the same before and after JSON."""
    if isinstance(value, str):
        return plain_name("a step", value, limit=10_000)
    if isinstance(value, Mapping):
        return ReadOnly({plain_name("a step", key): settled(item) for key, item in value.items()})
    return tuple(settled(item) for item in value) if isinstance(value, list | tuple) else value


def names_of(value: str | Sequence[str]) -> Sequence[str]:
    """Return one name as a list."""
    return [value] if isinstance(value, str) else value


def in_order(values: Array) -> list[Any]:
    """Return the unique values in order of first occurrence."""
    return list(dict.fromkeys(values.tolist()))


def components(one: Sequence[Hashable], other: Sequence[Hashable]) -> Array:
    """Number the connected components (n,) of items that share a value in either sequence.

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
    """Number the values in order of first occurrence."""
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(value, len(number)) for value in values], dtype=np.int64)
