"""The base class of preprocessing steps, and steps on channels, time windows and scales."""

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
    """A preprocessing step of samples (..., n_chans, n_times), applied to each trial separately.

    Subclasses are frozen dataclasses whose fields determine the result, and implement ``_apply`` in float64.  Samples
    are rounded to float32 before and after each step, as :class:`~gbwatt.data.trials.Trials` stores them, so that the
    result is the same for arrays and trials, and for all steps together and one by one.
    """

    name: ClassVar[str]

    def transform(self, x: Any, frame: Frame) -> tuple[Array, Frame]:
        """Return new samples in float32, and their frame."""
        before = samples(x, frame)
        with np.errstate(over="ignore", invalid="ignore"):  # the result is checked below
            after, meaning = self._apply(before.astype(np.float64), frame)
            result = np.ascontiguousarray(after, dtype=np.float32)
        self._require_finite(result, before, meaning)
        return result, meaning

    @abstractmethod
    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Return new samples (..., n_chans, n_times) and their frame, from samples in float64; for subclasses."""

    def fit(self, trials: Trials) -> Self:
        """Return the step fitted to training data; most steps have nothing to fit."""
        return self

    @property
    def fitted(self) -> bool:
        """Whether the step is fitted, or has nothing to fit."""
        return True

    def record(self) -> dict[str, Any]:
        """Return the step as a dict for JSON."""
        values = asdict(self)  # type: ignore[call-overload]
        return {"step": self.name, **{key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}}

    @abstractmethod
    def __str__(self) -> str: ...

    def _set_fields(self, **values: Any) -> None:
        """Set fields to values of the declared type; for ``__post_init__`` only."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _require_finite(self, result: Array, before: Array, frame: Frame) -> None:
        """Raise an error if the result has NaN or infinite samples; ``before`` are the samples before the step."""
        bad = ~np.isfinite(result).all(axis=-1)
        if bad.any():
            *trial, channel = (int(i) for i in np.argwhere(bad)[0])
            where = f"channel {frame.ch_names[channel]}" + (f" of trial {', '.join(map(str, trial))}" if trial else "")
            why = "the samples are too large" if np.isfinite(before).all() else "its input has such samples"
            raise NotFiniteError(
                f"{self}: the result has NaN or infinite samples, first in {where}; {why}. Drop or repair them."
            )


def samples(x: Any, frame: Frame) -> Array:
    """Return samples (..., n_chans, n_times) in float32; require the number of channels of the frame."""
    array = np.asarray(x)
    if array.dtype.kind not in "fiu":
        raise MismatchError(f"'x' has dtype {array.dtype}; real numbers are needed.")
    if array.ndim < 2 or array.shape[-2] != len(frame.ch_names) or not array.shape[-1]:
        raise ShapeError(f"'x' {array.shape} is not (..., {len(frame.ch_names)} channels, samples).")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)


# ---- channels and times


@dataclass(frozen=True)
class Reference(Step):
    """Subtract the mean of the reference channels, or of all channels (common average), from all channels.

    The reference channels are kept.  The rank of the samples decreases by one, so that covariances become singular.

    Parameters
    ----------
    channels : tuple of str
        Reference channels; empty for the common average.
    """

    channels: tuple[str, ...] = ()
    name: ClassVar[str] = "reference"

    def __post_init__(self) -> None:
        self._set_fields(channels=_to_channel_names(self.channels))

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Subtract the reference from samples (..., n_chans, n_times), and return them with the unchanged frame."""
        indices = _channel_indices(self.channels or frame.ch_names, frame)
        total: Array = np.zeros(())
        for index in indices:  # in this order, independent of the memory layout
            total = total + x[..., index, :]
        return x - (total / len(indices))[..., None, :], frame

    def __str__(self) -> str:
        return f"reference to {_list_channels(self.channels)}" if self.channels else "reference to the common average"


@dataclass(frozen=True)
class Pick(Step):
    """Select channels; upper and lower case are not distinguished.

    Parameters
    ----------
    channels : tuple of str
        Channels in the new order and spelling.
    """

    channels: tuple[str, ...]
    name: ClassVar[str] = "pick"

    def __post_init__(self) -> None:
        self._set_fields(channels=_to_channel_names(self.channels))
        if not self.channels:
            raise ParameterError("channels=() is empty; at least one channel is needed.")

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Return the samples of the channels, and the frame with their names."""
        return x[..., _channel_indices(self.channels, frame), :], replace(frame, ch_names=self.channels)

    def __str__(self) -> str:
        return f"pick {_list_channels(self.channels)}"


@dataclass(frozen=True)
class Crop(Step):
    """Crop trials to a time window.

    The window begins at the sample nearest to ``tmin`` and has ``round((tmax - tmin) * sfreq)`` samples.

    Parameters
    ----------
    tmin, tmax : float
        Start and end in seconds after the event; the end is not included.
    """

    tmin: float
    tmax: float
    name: ClassVar[str] = "crop"

    def __post_init__(self) -> None:
        for name in ("tmin", "tmax"):
            check_number(name, getattr(self, name))
            self._set_fields(**{name: float(getattr(self, name))})
        if self.tmin >= self.tmax:
            raise ParameterError(f"tmin={self.tmin} must be before tmax={self.tmax}, in seconds.")

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Return the samples within the window, and the frame with their start."""
        start = round((self.tmin - frame.tmin) * frame.sfreq)
        stop = start + round((self.tmax - self.tmin) * frame.sfreq)
        if not 0 <= start < stop <= x.shape[-1]:
            end = frame.tmin + x.shape[-1] / frame.sfreq
            raise ParameterError(
                f"tmin={self.tmin:g}, tmax={self.tmax:g}: the trial has samples from {frame.tmin:g} to {end:g} s "
                f"({x.shape[-1]} at {frame.sfreq:g} Hz); the window must lie within and have at least one sample."
            )
        first = frame.tmin + start / frame.sfreq
        exact = abs(first - self.tmin) < 1e-9  # 0.6, not 0.6000000000000001
        return x[..., start:stop], replace(frame, tmin=self.tmin if exact else first)

    def __str__(self) -> str:
        return f"crop to {self.tmin:g} … {self.tmax:g} s"


# ---- scales


@dataclass(frozen=True)
class Convert(Step):
    """Convert samples to another unit of voltage.

    Parameters
    ----------
    unit : "V", "mV", "µV" or "nV"
    """

    unit: str
    name: ClassVar[str] = "convert"

    def __post_init__(self) -> None:
        self._set_fields(unit=unit_name(self.unit))

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Scale the samples to the new unit, and return them and the frame with this unit."""
        if frame.unit not in UNITS:
            raise ParameterError(
                f"unit={self.unit!r}: the samples are in {frame.unit!r}, which is not a voltage; convert before "
                "standardising."
            )
        return x * (UNITS[frame.unit] / UNITS[self.unit]), replace(frame, unit=self.unit)

    def __str__(self) -> str:
        return f"convert to {self.unit}"


@dataclass(frozen=True)
class Standardise(Step):
    """Subtract the mean of each channel and divide by its standard deviation, both of the training data.

    Channels that are flat in the training data, to the precision of float32, are only centred (scale 1).

    Parameters
    ----------
    mean, scale : tuples of float, optional
        One value per channel.  :meth:`fit` computes them.
    """

    mean: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    name: ClassVar[str] = "standardise"

    def __post_init__(self) -> None:
        if self.mean is None and self.scale is None:
            return
        mean, scale = (_to_float_tuple(name, getattr(self, name)) for name in ("mean", "scale"))
        if len(mean) != len(scale) or not mean or min(scale) <= 0:
            raise ParameterError(
                f"mean has {len(mean)} values and scale {len(scale)}; both need one per channel, and scale must be "
                "positive."
            )
        self._set_fields(mean=mean, scale=scale)

    def fit(self, trials: Trials) -> Self:
        """Compute mean and standard deviation of each channel over trials and time."""
        if not len(trials):
            raise ParameterError("there are no trials to fit Standardise to.")
        x = trials.X.astype(np.float64)
        mean, scale = x.mean(axis=(0, 2)), x.std(axis=(0, 2))
        flat = scale <= np.finfo(np.float32).eps * np.abs(mean)
        return replace(self, mean=tuple(mean.tolist()), scale=tuple(np.where(flat, 1.0, scale).tolist()))

    @property
    def fitted(self) -> bool:
        """Whether mean and scale are known."""
        return self.mean is not None

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Scale the samples (..., n_chans, n_times), and return them and the frame with the unit "a.u."."""
        if self.mean is None:
            raise ParameterError(
                "Standardise is not fitted; call fit(trials) of the step or of the Preprocessing that contains it."
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
    """Add white Gaussian noise, to test the robustness of decoders.

    The random generator of a trial is seeded by ``seed`` and the samples of the trial.  A trial gets the same noise at
    any position, and different trials get different noise.

    Parameters
    ----------
    variance : float
        Variance in the squared unit of the samples.
    seed : int
        Random seed.
    """

    variance: float
    seed: int = 0
    name: ClassVar[str] = "noise"

    def __post_init__(self) -> None:
        check_at_least("seed", self.seed, 0)
        self._set_fields(variance=not_negative("variance", self.variance), seed=int(self.seed))

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Add noise to each trial of samples (..., n_chans, n_times), and return them with the unchanged frame."""
        noise = np.empty_like(x)
        for trial in np.ndindex(x.shape[:-2]):
            checksum = zlib.crc32(x[trial].astype("<f4").tobytes())
            noise[trial] = np.random.default_rng([self.seed, checksum]).standard_normal(x.shape[-2:])
        return x + noise * self.variance**0.5, frame

    def __str__(self) -> str:
        return f"add white noise of variance {self.variance:g} (seed {self.seed})"


# ---- argument checks


def positive(name: str, value: Any) -> float:
    """Return a number as float; raise an error that names the parameter unless it is positive."""
    check_number(name, value)
    if value <= 0:
        raise ParameterError(f"{name}={value} must be positive.")
    return float(value)


def not_negative(name: str, value: Any) -> float:
    """Return a number as float; raise an error that names the parameter if it is negative."""
    check_number(name, value)
    if value < 0:
        raise ParameterError(f"{name}={value} must not be negative.")
    return float(value)


def _to_float_tuple(name: str, values: Any) -> tuple[float, ...]:
    """Return a sequence of numbers as a tuple of float; ``name`` is that of the parameter."""
    if values is None or isinstance(values, str | Real):
        raise ParameterError(f"{name}={values!r} must be a sequence of numbers; mean and scale are both needed.")
    for value in values:
        check_number(name, value)
    return tuple(float(value) for value in values)


def _to_channel_names(channels: Any) -> tuple[str, ...]:
    """Return the parameter ``channels`` as a tuple; require names that differ in more than upper and lower case."""
    several = isinstance(channels, Iterable) and not isinstance(channels, str)
    if not several or not all(isinstance(name, str) for name in channels):
        raise ParameterError(f"channels={channels!r} must be a sequence of names, such as ['Cz'].")
    counts = Counter(name.casefold() for name in channels)
    repeated = [name for name in channels if counts[name.casefold()] > 1]
    if repeated:
        raise ParameterError(f"channels={list(channels)} contains {repeated[0]!r} twice (ignoring case).")
    return tuple(str(name) for name in channels)


def _channel_indices(channels: Sequence[str], frame: Frame) -> list[int]:
    """Return the indices of channels in the frame; an exact name has precedence over one that differs in case."""
    index_of = {name.casefold(): index for index, name in enumerate(frame.ch_names)}
    index_of |= {name: index for index, name in enumerate(frame.ch_names)}
    missing = [name for name in channels if name not in index_of and name.casefold() not in index_of]
    if missing:
        raise ParameterError(
            f"channels: {', '.join(missing)} not found among the {len(frame.ch_names)}: {', '.join(frame.ch_names)}."
        )
    return [index_of[name] if name in index_of else index_of[name.casefold()] for name in channels]


def _list_channels(names: Sequence[str]) -> str:
    """Return channel names as text; of more than six, only the first three and the last."""
    shown = names if len(names) <= 6 else (*names[:3], "…", names[-1])
    return f"{', '.join(shown)}" + (f" ({len(names)} channels)" if len(names) > 6 else "")
