"""Steps that filter along time: band-pass, notch, resampling and running standardisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import scipy  # its parts are imported when they are first used: scipy.signal takes most of a second
from numpy.typing import NDArray

from gbwatt._validation import check_at_least
from gbwatt.data.preprocessing.steps import Step, not_negative, positive
from gbwatt.data.trials import Frame
from gbwatt.errors import ParameterError, ShapeError

Array = NDArray[Any]

#: Number of zero crossings of the resampling filter on each side, and beta of its Kaiser window.  They limit ripple and
#: aliases to 1e-4.
CROSSINGS, KAISER = 16, 8.0


@dataclass(frozen=True)
class BandPass(Step):
    """Zero-phase Butterworth filter, applied forwards and backwards.

    The filter needs samples beyond both ends of a window: cut trials with a margin of about ``2 / low`` seconds, and
    crop them afterwards.

    Parameters
    ----------
    low, high : float or None
        Edges in Hz, where half the amplitude passes; None for a low-pass or a high-pass.
    order : int
        Order of the filter for each direction.
    """

    low: float | None
    high: float | None
    order: int = 4
    name: ClassVar[str] = "band_pass"

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise ParameterError("low and high are both None; at least one is needed.")
        edges = {key: positive(key, edge) for key in ("low", "high") if (edge := getattr(self, key)) is not None}
        if len(edges) == 2 and edges["low"] >= edges["high"]:
            raise ParameterError(f"low={self.low} must be below high={self.high}, in Hz.")
        check_at_least("order", self.order, 1)
        self._set_fields(**edges, order=int(self.order))

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Filter samples (..., n_chans, n_times), and return them with the unchanged frame."""
        for name in ("low", "high"):
            _require_below_nyquist(name, getattr(self, name) or 0.0, frame)
        sections = butterworth(self.low, self.high, self.order, frame.sfreq)
        return zero_phase(x, sections, padding=round(frame.sfreq / self.low) if self.low else 0), frame

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            edge = f"low-pass {self.high:g}" if self.low is None else f"high-pass {self.low:g}"
        else:
            edge = f"band-pass {self.low:g}-{self.high:g}"
        return f"{edge} Hz (Butterworth {self.order}, zero-phase)"


@dataclass(frozen=True)
class Notch(Step):
    """Zero-phase notch filter.

    Parameters
    ----------
    freq : float or tuple of float
        Frequencies to remove in Hz.
    width : float
        Width of each stop band in Hz; outside, more than half of the amplitude passes.
    """

    freq: float | tuple[float, ...]
    width: float = 2.0
    name: ClassVar[str] = "notch"

    def __post_init__(self) -> None:
        several = self.freq if isinstance(self.freq, Sequence) else (self.freq,)
        freqs, width = tuple(positive("freq", freq) for freq in several), positive("width", self.width)
        if not freqs or min(freqs) <= width / 2:
            raise ParameterError(
                f"freq={self.freq} must be one or more frequencies above width / 2 = {width / 2:g} Hz."
            )
        self._set_fields(freq=freqs, width=width)

    @property
    def freqs(self) -> tuple[float, ...]:
        """The frequencies as a tuple."""
        return self.freq if isinstance(self.freq, tuple) else (self.freq,)

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Filter samples (..., n_chans, n_times), and return them with the unchanged frame."""
        _require_below_nyquist("freq", max(self.freqs), frame)
        sections = notches(self.freqs, self.width, frame.sfreq)
        return zero_phase(x, sections, padding=round(frame.sfreq / self.width)), frame

    def __str__(self) -> str:
        return f"notch {', '.join(f'{f:g}' for f in self.freqs)} Hz ({self.width:g} Hz wide, zero-phase)"


@dataclass(frozen=True)
class Resample(Step):
    """Resample with an anti-aliasing filter; the first sample keeps its time.

    A trial of ``n`` samples has ``round(n * new / old)`` afterwards.

    Parameters
    ----------
    sfreq : float
        New sampling rate in Hz.  Its ratio to the old rate must be one of whole numbers up to 1000.
    """

    sfreq: float
    name: ClassVar[str] = "resample"

    def __post_init__(self) -> None:
        self._set_fields(sfreq=positive("sfreq", self.sfreq))

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Resample (..., n_chans, n_times), and return the samples and the frame with the new rate."""
        ratio = self._rate_ratio(frame.sfreq)
        after = replace(frame, sfreq=self.sfreq)
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
        return f"resample to {self.sfreq:g} Hz"


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
        self._set_fields(decay=positive("decay", self.decay), eps=positive("eps", self.eps))
        if self.decay >= 1:
            raise ParameterError(f"decay={self.decay} must be above 0 and below 1.")
        self._set_fields(start=not_negative("start", self.start))

    def _apply(self, x: Array, frame: Frame) -> tuple[Array, Frame]:
        """Standardise samples (..., n_chans, n_times), and return them and the frame with the unit "a.u."."""
        n_start, n_times = round(self.start * frame.sfreq), x.shape[-1]
        if self.start and not 1 <= n_start <= n_times:
            raise ParameterError(
                f"start={self.start:g} s are {n_start} samples at {frame.sfreq:g} Hz; 1 to {n_times} are allowed."
            )
        return running_standard(x, self.decay, self.eps, n_start), replace(frame, unit="a.u.")

    def __str__(self) -> str:
        start = f", from the first {self.start:g} s" if self.start else ""
        return f"exponential standardisation (decay {self.decay:g}, deviation at least {self.eps:g}{start})"


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


def running_standard(x: Array, decay: float, eps: float, n_start: int = 0) -> Array:
    """Subtract the running mean and divide by the running standard deviation, which is at least ``eps``.

    The running values start from the mean and variance of the first ``n_start`` samples.  With ``n_start=0``, they are
    weighted means of all samples so far, with weights that decrease by ``1 - decay`` from sample to sample.
    """
    block = x[..., :n_start]
    mean, variance = (block.mean(-1, keepdims=True), block.var(-1, keepdims=True)) if n_start else (None, None)
    centred = x - running_mean(x, decay, mean)
    return centred / np.maximum(np.sqrt(running_mean(centred**2, decay, variance)), eps)


def running_mean(x: Array, decay: float, start: Array | None = None) -> Array:
    """Compute the recursion m[t] = (1 - decay) m[t - 1] + decay x[t] from m[-1] = ``start``.

    Without ``start``, the recursion starts at zero and is divided by the sum of its weights.
    """
    log_left = math.log1p(-decay) * np.arange(1, x.shape[-1] + 1)  # log weight of the start
    recursion: Array = scipy.signal.lfilter([decay], [1.0, decay - 1.0], x)
    return recursion / -np.expm1(log_left) if start is None else recursion + np.exp(log_left) * start
