"""Preprocessing steps: their base class, and steps on channels, time windows, scales and along time."""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy  # its parts are imported when they are first used: scipy.signal takes most of a second
from numpy.typing import NDArray

from gbwatt._validation import check_at_least, check_number, check_positive
from gbwatt.data.montage import comparable_name
from gbwatt.data.preprocessing.streams import (
    FilterStream,
    ResamplingStream,
    StandardisingStream,
    Stream,
    Unchanged,
)
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
    #: Whether the step may be applied to a whole recording, before trials are cut from it.
    continuous: ClassVar[bool] = True
    #: Whether each new sample depends on the samples at the same time only, so that the step needs no state online.
    pointwise: ClassVar[bool] = False

    def transform(self, x: Any, frame: Frame) -> tuple[Array, Frame]:
        """Return new samples in float32, and their metadata: channels, sampling rate, start and unit."""
        before = samples(x, frame)
        with np.errstate(over="ignore", invalid="ignore"):  # the result is checked below
            after, meaning = self._apply(before.astype(np.float64), frame)
            result = np.ascontiguousarray(after, dtype=np.float32)
        self._require_finite(result, before, meaning)
        return result, meaning

    @abstractmethod
    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Return new samples (..., n_chans, n_times) and their metadata, from samples in float64; for subclasses."""

    def fit(self, trials: Trials) -> Self:
        """Return the step fitted to training data; most steps have nothing to fit."""
        return self

    @property
    def fitted(self) -> bool:
        """Whether the step is fitted, or has nothing to fit."""
        return True

    @property
    def is_causal(self) -> bool:
        """Whether new samples depend on earlier samples only; steps with two forms say so in their field ``causal``."""
        return bool(getattr(self, "causal", True))

    def as_causal(self) -> Self:
        """Return the causal form of the step."""
        return self if self.is_causal else replace(self, causal=True)  # type: ignore[type-var]

    def stream(self, frame: Frame) -> Stream:
        """Return the state of the step at the start of a running recording.

        Parameters
        ----------
        frame : Frame
            Metadata of the samples that will be pushed.

        Returns
        -------
        Stream
            Its samples are those of :meth:`transform` for the whole recording.

        Raises
        ------
        ParameterError
            If the step needs later samples, or is for trials only.
        """
        if not self.is_causal:
            raise ParameterError(
                f"{self}: this step needs later samples, which an online decoder does not have; {CAUSAL_REMEDY}"
            )
        return self._stream(frame)

    def _stream(self, frame: Frame) -> Stream:
        """Return the state of a causal step; for subclasses that are not pointwise."""
        if not self.pointwise:
            raise ParameterError(f"{self}: this step has no form for running recordings; leave it out.")
        return _PointwiseStream(self, frame)

    def output_frame(self, frame: Frame) -> Frame:
        """Return the metadata of the samples after the step, for those before it."""
        return self._apply(np.zeros((len(frame.ch_names), 1)), frame)[1]

    def record(self) -> dict[str, Any]:
        """Return the step as a dict for JSON."""
        values = asdict(self)  # type: ignore[call-overload]
        if not values.get("causal", True):  # as in the records of earlier versions
            del values["causal"]
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


class _PointwiseStream(Stream):
    """A step without state, in a running recording."""

    def __init__(self, step: Step, frame: Frame) -> None:
        self._step, self._frame = step, frame

    def push(self, x: Array) -> Array:
        """Apply the step to the next samples."""
        return self._step._apply(x, self._frame)[0]


#: Text for errors about steps that need later samples.
CAUSAL_REMEDY = (
    "train the model with causal steps: Preprocessing(..., causal=True) in Python, or --preprocess "
    '"bandpass=8-30,causal" on the command line.'
)


def samples(x: Any, frame: Frame) -> Array:
    """Return samples (..., n_chans, n_times) in float32; require as many channels as their metadata ``frame`` has."""
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
    pointwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._set_fields(channels=_to_channel_names(self.channels))

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Subtract the reference from samples (..., n_chans, n_times), and return them with unchanged metadata."""
        indices = _channel_indices(self.channels or frame.ch_names, frame)
        total: Array = np.zeros(())
        for index in indices:  # in this order, independent of the memory layout
            total = total + x[..., index, :]
        return x - (total / len(indices))[..., None, :], frame

    def __str__(self) -> str:
        return f"reference to {_list_channels(self.channels)}" if self.channels else "reference to the common average"


@dataclass(frozen=True)
class Pick(Step):
    """Select channels; upper and lower case are not distinguished, and trailing dots, as in "C3..", are ignored.

    Parameters
    ----------
    channels : tuple of str
        Channels in the new order and spelling.
    """

    channels: tuple[str, ...]
    name: ClassVar[str] = "pick"
    pointwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._set_fields(channels=_to_channel_names(self.channels))
        if not self.channels:
            raise ParameterError("channels=() is empty; at least one channel is needed.")

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Return the samples of the selected channels, and the metadata with their names."""
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
    continuous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("tmin", "tmax"):
            check_number(name, getattr(self, name))
            self._set_fields(**{name: float(getattr(self, name))})
        if self.tmin >= self.tmax:
            raise ParameterError(f"tmin={self.tmin} must be before tmax={self.tmax}, in seconds.")

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Return the samples within the window, and the metadata with the new start."""
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
    pointwise: ClassVar[bool] = True
    continuous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._set_fields(unit=unit_name(self.unit))

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Scale the samples to the new unit, and return them and the metadata with this unit."""
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
    pointwise: ClassVar[bool] = True
    continuous: ClassVar[bool] = False

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
        """Scale the samples (..., n_chans, n_times), and return them and the metadata with the unit "a.u."."""
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
    continuous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_at_least("seed", self.seed, 0)
        self._set_fields(variance=not_negative("variance", self.variance), seed=int(self.seed))

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Add noise to each trial of samples (..., n_chans, n_times), and return them with unchanged metadata."""
        noise = np.empty_like(x)
        for trial in np.ndindex(x.shape[:-2]):
            checksum = zlib.crc32(x[trial].astype("<f4").tobytes())
            noise[trial] = np.random.default_rng([self.seed, checksum]).standard_normal(x.shape[-2:])
        return x + noise * self.variance**0.5, frame

    def __str__(self) -> str:
        return f"add white noise of variance {self.variance:g} (seed {self.seed})"


# ---- argument checks


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
    """Return the indices of ``channels`` in samples.

    Upper and lower case are not distinguished, and trailing dots, as in "C3..", are ignored; an exact name has
    precedence.
    """
    index_of = {comparable_name(name): index for index, name in enumerate(frame.ch_names)}
    index_of |= {name: index for index, name in enumerate(frame.ch_names)}
    indices = [index_of.get(name, index_of.get(comparable_name(name))) for name in channels]
    missing = [name for name, index in zip(channels, indices, strict=True) if index is None]
    if missing:
        raise ParameterError(
            f"channels: {', '.join(missing)} not found among the {len(frame.ch_names)}: {', '.join(frame.ch_names)}."
        )
    return [index for index in indices if index is not None]


def _list_channels(names: Sequence[str]) -> str:
    """Return channel names as text for messages; of more than six, only the first three and the last."""
    shown = names if len(names) <= 6 else (*names[:3], "…", names[-1])
    return f"{', '.join(shown)}" + (f" ({len(names)} channels)" if len(names) > 6 else "")


#: Number of zero crossings of the resampling filter on each side, and beta of its Kaiser window.  They limit ripple and
#: aliases to 1e-4.
CROSSINGS, KAISER = 16, 8.0


@dataclass(frozen=True)
class BandPass(Step):
    """Butterworth filter, applied forwards and backwards (zero-phase), or forwards only (causal).

    The zero-phase filter needs samples beyond both ends of a window: cut trials with a margin of about ``2 / low``
    seconds, and crop them afterwards.  The causal filter delays the signal, and starts in the steady state of the first
    sample.

    Parameters
    ----------
    low, high : float or None
        Edges in Hz, where half the amplitude passes, or half the power if the filter is causal; None for a low-pass or
        a high-pass.
    order : int
        Order of the filter for each direction.
    causal : bool
    """

    low: float | None
    high: float | None
    order: int = 4
    causal: bool = False
    name: ClassVar[str] = "band_pass"

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise ParameterError("low and high are both None; at least one is needed.")
        edges = {key: check_positive(key, edge) for key in ("low", "high") if (edge := getattr(self, key)) is not None}
        if len(edges) == 2 and edges["low"] >= edges["high"]:
            raise ParameterError(f"low={self.low} must be below high={self.high}, in Hz.")
        check_at_least("order", self.order, 1)
        self._set_fields(**edges, order=int(self.order), causal=_truth("causal", self.causal))

    def _stream(self, frame: Frame) -> Stream:
        """Return the state of the causal filter at the start of a running recording."""
        return FilterStream(self._sections(frame))

    def _sections(self, frame: Frame) -> Array:
        """Return the second-order sections of the filter."""
        for name in ("low", "high"):
            _require_below_nyquist(name, getattr(self, name) or 0.0, frame)
        return butterworth(self.low, self.high, self.order, frame.sfreq)

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Filter samples (..., n_chans, n_times), and return them with unchanged metadata."""
        if self.causal:
            return self._stream(frame).push(x), frame
        return zero_phase(x, self._sections(frame), padding=round(frame.sfreq / self.low) if self.low else 0), frame

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            edge = f"low-pass {self.high:g}" if self.low is None else f"high-pass {self.low:g}"
        else:
            edge = f"band-pass {self.low:g}-{self.high:g}"
        return f"{edge} Hz (Butterworth {self.order}, {_phase(self.causal)})"


@dataclass(frozen=True)
class Notch(Step):
    """Notch filter, zero-phase or causal.

    Parameters
    ----------
    freq : float or tuple of float
        Frequencies to remove in Hz.
    width : float
        Width of each stop band in Hz; outside, more than half of the amplitude passes, or half of the power if the
        filter is causal.
    causal : bool
    """

    freq: float | tuple[float, ...]
    width: float = 2.0
    causal: bool = False
    name: ClassVar[str] = "notch"

    def __post_init__(self) -> None:
        several = self.freq if isinstance(self.freq, Sequence) else (self.freq,)
        freqs, width = tuple(check_positive("freq", freq) for freq in several), check_positive("width", self.width)
        if not freqs or min(freqs) <= width / 2:
            raise ParameterError(
                f"freq={self.freq} must be one or more frequencies above width / 2 = {width / 2:g} Hz."
            )
        self._set_fields(freq=freqs, width=width, causal=_truth("causal", self.causal))

    @property
    def freqs(self) -> tuple[float, ...]:
        """The frequencies as a tuple."""
        return self.freq if isinstance(self.freq, tuple) else (self.freq,)

    def _stream(self, frame: Frame) -> Stream:
        """Return the state of the causal filter at the start of a running recording."""
        return FilterStream(self._sections(frame))

    def _sections(self, frame: Frame) -> Array:
        """Return the second-order sections of the filter."""
        _require_below_nyquist("freq", max(self.freqs), frame)
        return notches(self.freqs, self.width, frame.sfreq)

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Filter samples (..., n_chans, n_times), and return them with unchanged metadata."""
        if self.causal:
            return self._stream(frame).push(x), frame
        return zero_phase(x, self._sections(frame), padding=round(frame.sfreq / self.width)), frame

    def __str__(self) -> str:
        return f"notch {', '.join(f'{f:g}' for f in self.freqs)} Hz ({self.width:g} Hz wide, {_phase(self.causal)})"


@dataclass(frozen=True)
class Resample(Step):
    """Resample with an anti-aliasing filter; the first sample keeps its time.

    A trial of ``n`` samples has ``round(n * new / old)`` afterwards, rounded up if the filter is causal.  The filter
    has a linear phase without delay; the causal one delays the signal by about 1.7 samples of the lower rate, and
    passes frequencies up to a third of this rate.

    Parameters
    ----------
    sfreq : float
        New sampling rate in Hz.  Its ratio to the old rate must be one of whole numbers up to 1000.
    causal : bool
    """

    sfreq: float
    causal: bool = False
    name: ClassVar[str] = "resample"

    def __post_init__(self) -> None:
        self._set_fields(sfreq=check_positive("sfreq", self.sfreq), causal=_truth("causal", self.causal))

    def _stream(self, frame: Frame) -> Stream:
        """Return the state of causal resampling at the start of a running recording."""
        ratio = self._rate_ratio(frame.sfreq)
        return Unchanged() if ratio == 1 else ResamplingStream(ratio.numerator, ratio.denominator)

    def output_frame(self, frame: Frame) -> Frame:
        """Return the metadata with the new rate."""
        self._rate_ratio(frame.sfreq)
        return replace(frame, sfreq=self.sfreq)

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Resample (..., n_chans, n_times), and return the samples and the metadata with the new rate."""
        after = self.output_frame(frame)
        if self.causal:
            return self._stream(frame).push(x), after
        ratio = self._rate_ratio(frame.sfreq)
        if not round(x.shape[-1] * ratio):
            raise ShapeError(
                f"{x.shape[-1]} samples at {frame.sfreq:g} Hz are less than one at {self.sfreq:g} Hz; "
                "use longer windows."
            )
        return (x, after) if ratio == 1 else (resample(x, ratio.numerator, ratio.denominator), after)

    def _rate_ratio(self, sfreq: float) -> Fraction:
        """Return the new rate divided by ``sfreq`` as a fraction of whole numbers up to 1000."""
        near = Fraction(self.sfreq / sfreq).limit_denominator(1000)
        if near.numerator not in range(1, 1001) or abs(float(near) * sfreq / self.sfreq - 1) > 1e-9:
            raise ParameterError(
                f"sfreq={self.sfreq:.12g} and the {sfreq:.12g} Hz of the samples are not in a ratio of whole numbers "
                f"up to 1000; use {float(near) * sfreq or sfreq / 1000:.12g} Hz, for example."
            )
        return near

    def __str__(self) -> str:
        return f"resample to {self.sfreq:g} Hz" + (" (causal)" if self.causal else "")


@dataclass(frozen=True)
class ExponentialStandardise(Step):
    """Subtract the running mean of each channel and divide by its running standard deviation, within each trial.

    By default the running averages start at the first sample, with normalised weights, and are causal: the result does
    not depend on later samples, and the first one is zero.

    Parameters
    ----------
    decay : float
        Weight of the newest sample in the exponential averages, between 0 and 1.
    eps : float
        Lower bound of the standard deviation, in the unit of the samples.  Flat channels give zeros.
    start : float
        If positive, start from the mean and variance of the first ``start`` seconds, which is more stable but not
        causal within these seconds.
    """

    decay: float = 1e-3
    eps: float = 1e-4
    start: float = 0.0
    name: ClassVar[str] = "exponential_standardise"

    def __post_init__(self) -> None:
        self._set_fields(decay=check_positive("decay", self.decay), eps=check_positive("eps", self.eps))
        if self.decay >= 1:
            raise ParameterError(f"decay={self.decay} must be above 0 and below 1.")
        self._set_fields(start=not_negative("start", self.start))

    @property
    def is_causal(self) -> bool:
        """Whether the running averages start at the first sample."""
        return not self.start

    def as_causal(self) -> Self:
        """Return the step with running averages that start at the first sample."""
        return replace(self, start=0.0)

    def _stream(self, frame: Frame) -> Stream:
        """Return the running averages at the start of a running recording."""
        return StandardisingStream(self.decay, self.eps)

    def output_frame(self, frame: Frame) -> Frame:
        """Return the metadata with the unit "a.u."."""
        return replace(frame, unit="a.u.")

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Standardise samples (..., n_chans, n_times), and return them and the metadata with the unit "a.u."."""
        if not self.start:
            return self._stream(frame).push(x), self.output_frame(frame)
        n_start, n_times = round(self.start * frame.sfreq), x.shape[-1]
        if not 1 <= n_start <= n_times:
            raise ParameterError(
                f"start={self.start:g} s are {n_start} samples at {frame.sfreq:g} Hz; 1 to {n_times} are allowed."
            )
        return running_standard(x, self.decay, self.eps, n_start), self.output_frame(frame)

    def __str__(self) -> str:
        start = f", from the first {self.start:g} s" if self.start else ""
        return f"exponential standardisation (decay {self.decay:g}, deviation at least {self.eps:g}{start})"


def _truth(name: str, value: Any) -> bool:
    """Return a parameter that is True or False; raise an error that names it otherwise."""
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"{name}={value!r} must be True or False.")
    return bool(value)


def _phase(causal: bool) -> str:
    """Return the kind of a filter as text."""
    return "causal" if causal else "zero-phase"


def _require_below_nyquist(name: str, freq: float, frame: Frame) -> None:
    """Raise an error unless a frequency is below half the sampling rate; ``name`` is that of the parameter."""
    if freq >= frame.sfreq / 2:
        raise ParameterError(
            f"{name}={freq:g} Hz must be below {frame.sfreq / 2:g} Hz, half the sampling rate of {frame.sfreq:g} Hz."
        )


# ---- filters of samples (..., n_times) in float64


@lru_cache(maxsize=32)
def butterworth(low: float | None, high: float | None, order: int, sfreq: float) -> Array:
    """Return second-order sections (n, 6) of a band-pass, high-pass (``high`` None) or low-pass (``low`` None)."""
    edges = [edge for edge in (low, high) if edge is not None]
    kind = "bandpass" if len(edges) == 2 else "highpass" if high is None else "lowpass"
    sections: Array = scipy.signal.butter(order, edges if len(edges) == 2 else edges[0], kind, fs=sfreq, output="sos")
    return sections


@lru_cache(maxsize=32)
def notches(freqs: tuple[float, ...], width: float, sfreq: float) -> Array:
    """Return second-order sections (n, 6) of notches that are ``width`` Hz wide at half power."""
    return np.array([np.concatenate(scipy.signal.iirnotch(freq, freq / width, fs=sfreq)) for freq in freqs])


def zero_phase(x: Array, sections: Array, padding: int) -> Array:
    """Filter samples (..., n_chans, n_times) forwards and backwards.

    Both ends are extended by an odd reflection of ``padding`` samples, or fewer in a shorter window, but at least three
    times the length of the filter's recursion.
    """
    n_times, least = x.shape[-1], 3 * (2 * len(sections) + 1)
    if n_times <= least:
        raise ShapeError(
            f"windows of {n_times} samples are too short for this filter, which needs at least {least + 1}: "
            "use longer windows or a lower order, or filter before cutting."
        )
    length = min(max(padding, least), n_times - 1)
    filtered = np.empty_like(x)
    for place in np.ndindex(x.shape[:-2]):  # twice as fast as all trials at once, because a trial fits into the cache
        filtered[place] = scipy.signal.sosfiltfilt(sections, x[place], padlen=length)
    return filtered


@lru_cache(maxsize=32)
def _resampling_filter(up: int, down: int) -> Array:
    """Return the coefficients of the FIR low-pass for resampling by ``up / down``, a windowed sinc.

    The coefficients that contribute to one output sample have the sum ``1 / up``, so that constants are preserved.
    """
    slower = max(up, down)
    taps: Array = scipy.signal.firwin(2 * CROSSINGS * slower + 1, 1 / slower, window=("kaiser", KAISER))
    for phase in range(up):  # normalise the weights of each output sample, so that constants are preserved
        taps[phase::up] /= up * taps[phase::up].sum()
    return taps


def resample(x: Array, up: int, down: int) -> Array:
    """Resample (..., n_times) to ``up / down`` times the rate: (..., round(n_times * up / down)).

    The cut-off of the linear-phase filter is the lower of the two Nyquist frequencies, where half the amplitude passes;
    a sixth above, it is 1e-4.  Both ends are extended by an odd reflection, so that offsets and drifts do not ring.
    """
    n_times = round(x.shape[-1] * up / down)
    if x.shape[-1] == 1:  # without a reflection, SciPy's compiled code would divide by zero and abort the process
        return np.repeat(x, n_times, axis=-1)
    taps = _resampling_filter(up, down)
    longer: Array = scipy.signal.resample_poly(x, up, down, axis=-1, window=taps, padtype="antireflect")
    return longer[..., :n_times]


def running_standard(x: Array, decay: float, eps: float, n_start: int) -> Array:
    """Subtract the running mean and divide by the running standard deviation, which is at least ``eps``.

    The running values start from the mean and variance of the first ``n_start`` samples.
    """
    block = x[..., :n_start]
    centred = x - running_mean(x, decay, block.mean(-1, keepdims=True))
    return centred / np.maximum(np.sqrt(running_mean(centred**2, decay, block.var(-1, keepdims=True))), eps)


def running_mean(x: Array, decay: float, start: Array) -> Array:
    """Compute the recursion m[t] = (1 - decay) m[t - 1] + decay x[t] from m[-1] = ``start``."""
    log_left = math.log1p(-decay) * np.arange(1, x.shape[-1] + 1)  # log weight of the start
    recursion: Array = scipy.signal.lfilter([decay], [1.0, decay - 1.0], x)
    mean: Array = recursion + np.exp(log_left) * start
    return mean
