"""Steps of preprocessing: each a frozen record of what it does to samples, the same offline and online."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from gbwatt._validation import check_at_least, check_number
from gbwatt.data.trials import UNITS, Frame, Trials, unit_name
from gbwatt.errors import MismatchError, NotFiniteError, ParameterError, ShapeError

Array = NDArray[Any]


class Step(ABC):
    """One thing done to samples (..., n_chans, n_times), each trial by itself.

    Subclasses are frozen dataclasses whose fields are all that the result depends on; they say what they do in
    ``_apply``, in float64.  Samples are rounded to float32 before and after, as :class:`~gbwatt.data.trials.Trials`
    keeps them, so that the same steps give the same numbers for a window and for a container, together and one by one.
    """

    name: ClassVar[str]

    def transform(self, x: Any, frame: Frame) -> tuple[Array, Frame]:
        """New samples in float32, and what their axes mean."""
        before = samples(x, frame)
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is looked at below
            after, meaning = self._apply(before.astype(np.float64), frame)
            result = np.ascontiguousarray(after, dtype=np.float32)
        self._require_finite(result, before, meaning)
        return result, meaning

    @abstractmethod
    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]: ...

    def fit(self, trials: Trials) -> Self:
        """The step with what it learns from training data; most learn nothing."""
        return self

    @property
    def fitted(self) -> bool:
        """Whether all that is learnt from training data is known."""
        return True

    def record(self) -> dict[str, Any]:
        """The step in a form that JSON keeps as it is."""
        values = asdict(self)  # type: ignore[call-overload]
        return {"step": self.name, **{key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}}

    @abstractmethod
    def __str__(self) -> str: ...

    def _set(self, **values: Any) -> None:
        """Fields in the types that they are said to have; for ``__post_init__`` only."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _require_finite(self, result: Array, before: Array, frame: Frame) -> None:
        bad = ~np.isfinite(result).all(axis=-1)
        if bad.any():
            *trial, channel = (int(i) for i in np.argwhere(bad)[0])
            where = f"channel {frame.ch_names[channel]}" + (f" of trial {', '.join(map(str, trial))}" if trial else "")
            why = "they are too large" if np.isfinite(before).all() else "there are such samples before this step"
            raise NotFiniteError(
                f"{self}: the result has NaN or infinite samples, first in {where}; {why}. Drop or repair them."
            )


def samples(x: Any, frame: Frame) -> Array:
    """Samples (..., n_chans, n_times) in float32, as many channels as the frame has names for."""
    found = np.asarray(x)
    if found.dtype.kind not in "fiu":
        raise MismatchError(f"'x' has dtype {found.dtype}; real numbers are needed.")
    if found.ndim < 2 or found.shape[-2] != len(frame.ch_names) or not found.shape[-1]:
        raise ShapeError(f"'x' {found.shape} is not (..., {len(frame.ch_names)} channels, samples).")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(found, dtype=np.float32)


# ---- channels and times


@dataclass(frozen=True)
class Reference(Step):
    """The mean of some channels subtracted from all; of all channels, the common average, if none is named.

    The reference channels stay.  Afterwards the samples have one dimension less, and covariances are singular.
    """

    channels: tuple[str, ...] = ()
    name: ClassVar[str] = "reference"

    def __post_init__(self) -> None:
        self._set(channels=_names(self.channels))

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        places = _places(self.channels or frame.ch_names, frame)
        total: Array = np.zeros(())
        for place in places:  # in this order, whatever the layout in memory
            total = total + x[..., place, :]
        return x - (total / len(places))[..., None, :], frame

    def __str__(self) -> str:
        return f"reference to {_listed(self.channels)}" if self.channels else "reference to the common average"


@dataclass(frozen=True)
class Pick(Step):
    """Some channels, in the order and spelling given; upper and lower case are not distinguished."""

    channels: tuple[str, ...]
    name: ClassVar[str] = "pick"

    def __post_init__(self) -> None:
        self._set(channels=_names(self.channels))
        if not self.channels:
            raise ParameterError("channels=() is empty; name one channel at least.")

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        return x[..., _places(self.channels, frame), :], replace(frame, ch_names=self.channels)

    def __str__(self) -> str:
        return f"pick {_listed(self.channels)}"


@dataclass(frozen=True)
class Crop(Step):
    """The samples from ``tmin`` to ``tmax``, in seconds after the event; the end is not included.

    The window begins at the sample nearest to ``tmin`` and has ``round((tmax - tmin) * sfreq)`` samples.
    """

    tmin: float
    tmax: float
    name: ClassVar[str] = "crop"

    def __post_init__(self) -> None:
        for name in ("tmin", "tmax"):
            check_number(name, getattr(self, name))
            self._set(**{name: float(getattr(self, name))})
        if self.tmin >= self.tmax:
            raise ParameterError(f"tmin={self.tmin} must be before tmax={self.tmax}, in seconds.")

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        start = round((self.tmin - frame.tmin) * frame.sfreq)
        stop = start + round((self.tmax - self.tmin) * frame.sfreq)
        if not 0 <= start < stop <= x.shape[-1]:
            end = frame.tmin + x.shape[-1] / frame.sfreq
            raise ParameterError(
                f"tmin={self.tmin:g}, tmax={self.tmax:g}: the trial has samples from {frame.tmin:g} to {end:g} s "
                f"({x.shape[-1]} at {frame.sfreq:g} Hz); ask for a part of these, one sample at least."
            )
        first = frame.tmin + start / frame.sfreq
        exact = abs(first - self.tmin) < 1e-9  # 0.6, not 0.6000000000000001
        return x[..., start:stop], replace(frame, tmin=self.tmin if exact else first)

    def __str__(self) -> str:
        return f"crop to {self.tmin:g} … {self.tmax:g} s"


# ---- scales


@dataclass(frozen=True)
class Convert(Step):
    """Another unit of voltage: V, mV, µV or nV."""

    unit: str
    name: ClassVar[str] = "convert"

    def __post_init__(self) -> None:
        self._set(unit=unit_name(self.unit))

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        if frame.unit not in UNITS:
            raise ParameterError(
                f"unit={self.unit!r}: the samples are in {frame.unit!r}, which is no voltage; convert before "
                "standardising."
            )
        return x * (UNITS[frame.unit] / UNITS[self.unit]), replace(frame, unit=self.unit)

    def __str__(self) -> str:
        return f"convert to {self.unit}"


@dataclass(frozen=True)
class Standardise(Step):
    """Each channel less its mean, over its standard deviation, both of the training data.

    :meth:`fit` gives the step with ``mean`` and ``scale``, one value a channel.  A channel that is flat in the training
    data, to the precision of float32, has no scale: it is centred only (``scale`` 1).
    """

    mean: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    name: ClassVar[str] = "standardise"

    def __post_init__(self) -> None:
        if self.mean is None and self.scale is None:
            return
        mean, scale = (_numbers(name, getattr(self, name)) for name in ("mean", "scale"))
        if len(mean) != len(scale) or not mean or min(scale) <= 0:
            raise ParameterError(
                f"mean has {len(mean)} values and scale {len(scale)}; both need one for each channel, and scale "
                "positive ones."
            )
        self._set(mean=mean, scale=scale)

    def fit(self, trials: Trials) -> Self:
        """The step with mean and standard deviation of each channel, over trials and time."""
        if not len(trials):
            raise ParameterError("there are no trials to standardise by.")
        x = trials.X.astype(np.float64)
        mean, scale = x.mean(axis=(0, 2)), x.std(axis=(0, 2))
        flat = scale <= np.finfo(np.float32).eps * np.abs(mean)
        return replace(self, mean=tuple(mean.tolist()), scale=tuple(np.where(flat, 1.0, scale).tolist()))

    @property
    def fitted(self) -> bool:
        """Whether mean and scale are known."""
        return self.mean is not None

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        if self.mean is None:
            raise ParameterError(
                "Standardise has not seen training data; use fit(trials), of the step or of the Preprocessing it is in."
            )
        if len(self.mean) != len(frame.ch_names):
            raise ShapeError(
                f"Standardise was fitted on {len(self.mean)} channels, the samples have {len(frame.ch_names)}."
            )
        mean, scale = (np.array(values)[:, None] for values in (self.mean, self.scale))
        return (x - mean) / scale, replace(frame, unit="a.u.")

    def __str__(self) -> str:
        return "standardise " + ("(not fitted)" if self.mean is None else f"{len(self.mean)} channels, as fitted")


@dataclass(frozen=True)
class Noise(Step):
    """White Gaussian noise of a variance, in the unit of the samples squared, to see what a decoder can bear.

    Each trial has a generator of its own, which its samples and ``seed`` start: a trial gets the same noise wherever it
    stands, and different trials get different noise, also those of two parts that are made noisy one after the other.
    """

    variance: float
    seed: int = 0
    name: ClassVar[str] = "noise"

    def __post_init__(self) -> None:
        check_at_least("seed", self.seed, 0)
        self._set(variance=not_negative("variance", self.variance), seed=int(self.seed))

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        noise = np.empty_like(x)
        for place in np.ndindex(x.shape[:-2]):
            own = zlib.crc32(x[place].astype("<f4").tobytes())
            noise[place] = np.random.default_rng([self.seed, own]).standard_normal(x.shape[-2:])
        return x + noise * self.variance**0.5, frame

    def __str__(self) -> str:
        return f"add white noise of variance {self.variance:g} (seed {self.seed})"


# ---- checks of arguments


def positive(name: str, value: Any) -> float:
    """A positive number as float."""
    check_number(name, value)
    if value <= 0:
        raise ParameterError(f"{name}={value} must be positive.")
    return float(value)


def not_negative(name: str, value: Any) -> float:
    """A number that is not negative as float."""
    check_number(name, value)
    if value < 0:
        raise ParameterError(f"{name}={value} must not be negative.")
    return float(value)


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    if values is None or isinstance(values, str | Real):
        raise ParameterError(f"{name}={values!r} must be a sequence of numbers; mean and scale go together.")
    for value in values:
        check_number(name, value)
    return tuple(float(value) for value in values)


def _names(channels: Any) -> tuple[str, ...]:
    several = isinstance(channels, Iterable) and not isinstance(channels, str)
    if not several or not all(isinstance(name, str) for name in channels):
        raise ParameterError(f"channels={channels!r} must be a sequence of names, ['Cz'] for instance.")
    counts = Counter(name.casefold() for name in channels)
    repeated = [name for name in channels if counts[name.casefold()] > 1]
    if repeated:
        raise ParameterError(f"channels={list(channels)} has {repeated[0]!r} twice (in any case of letters).")
    return tuple(str(name) for name in channels)


def _places(channels: Sequence[str], frame: Frame) -> list[int]:
    """Numbers of channels by name: as spelt, else in any case of letters."""
    numbers = {name.casefold(): place for place, name in enumerate(frame.ch_names)}
    numbers |= {name: place for place, name in enumerate(frame.ch_names)}
    missing = [name for name in channels if name not in numbers and name.casefold() not in numbers]
    if missing:
        raise ParameterError(
            f"channels: there is no {', '.join(missing)} among the {len(frame.ch_names)}: {', '.join(frame.ch_names)}."
        )
    return [numbers[name] if name in numbers else numbers[name.casefold()] for name in channels]


def _listed(names: Sequence[str]) -> str:
    shown = names if len(names) <= 6 else (*names[:3], "…", names[-1])
    return f"{', '.join(shown)}" + (f" ({len(names)} channels)" if len(names) > 6 else "")
