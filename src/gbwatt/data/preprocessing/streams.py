"""Causal processing of a running recording: filters with state that accept chunks of any size.

A stream gives the same samples whether a recording arrives one sample at a time, in chunks, or as a whole.  Causal
steps use streams offline, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any

import numpy as np
import scipy  # its parts are imported when they are first used: scipy.signal takes most of a second
from numpy.typing import NDArray

Array = NDArray[Any]

#: Order and stop-band attenuation (dB) of the anti-aliasing filter (Chebyshev, type II).
ANTI_ALIASING_ORDER, ANTI_ALIASING_ATTENUATION = 10, 60.0


def resampled_index(index: float, before: float, after: float) -> int:
    """Return the number of the sample of an event, after resampling from the rate ``before`` to ``after``.

    The event has the time of the sample nearest to ``index`` before resampling.  A time in the middle between two
    samples belongs to the even one, whatever the rounding errors are.

    Examples
    --------
    >>> resampled_index(17, 250, 125), resampled_index(17 + 1e-9, 250, 125), resampled_index(19, 250, 125)
    (8, 8, 10)
    """
    nearest = round(round(index, 6))
    return round(round(nearest * after / before, 6))


class Stream(ABC):
    """State of a step in a running recording."""

    @abstractmethod
    def push(self, x: Array) -> Array:
        """Process the next samples (..., n_times) in float64; a stream that changes the rate may return none."""


class Unchanged(Stream):
    """Samples pass unchanged."""

    def push(self, x: Array) -> Array:
        """Return the samples."""
        return x


class FilterStream(Stream):
    """Filter by second-order sections, in the steady state of the first sample.

    Parameters
    ----------
    sections : array (n, 6)

    Examples
    --------
    >>> sections = scipy.signal.butter(2, 0.2, output="sos")
    >>> x = np.random.default_rng(0).standard_normal((3, 10))
    >>> stream, other = FilterStream(sections), FilterStream(sections)
    >>> np.array_equal(stream.push(x), np.concatenate([other.push(x[:, :4]), other.push(x[:, 4:])], axis=-1))
    True
    """

    def __init__(self, sections: Array) -> None:
        self._sections = sections
        self._state: Array | None = None

    def push(self, x: Array) -> Array:
        """Return the filtered samples (..., n_times)."""
        if not x.shape[-1]:
            return x
        if self._state is None:
            steady = scipy.signal.sosfilt_zi(self._sections)  # (n_sections, 2)
            shape = (len(steady), *(1 for _ in x.shape[:-1]), 2)
            self._state = steady.reshape(shape) * x[None, ..., :1]
        filtered, self._state = scipy.signal.sosfilt(self._sections, x, axis=-1, zi=self._state)
        return np.asarray(filtered)


class ResamplingStream(Stream):
    """Change the rate by ``up / down``; the first sample keeps its time.

    The samples are upsampled with zeros, filtered, and every ``down``-th one is kept.  The first sample is subtracted
    before, so that an offset does not ring and has no images.
    """

    def __init__(self, up: int, down: int) -> None:
        self._up, self._down = up, down
        self._filter = FilterStream(_anti_aliasing(max(up, down)))
        self._offset: Array | None = None
        self._skip = 0  # samples at the higher rate until the next one to keep

    def push(self, x: Array) -> Array:
        """Return the samples at the new rate (..., n_new)."""
        if not x.shape[-1]:
            return x
        if self._offset is None:
            self._offset = x[..., :1].copy()
        raised = np.zeros((*x.shape[:-1], x.shape[-1] * self._up))
        raised[..., :: self._up] = (x - self._offset) * self._up
        kept = self._filter.push(raised)[..., self._skip :: self._down]
        self._skip = (self._skip - raised.shape[-1]) % self._down
        return kept + self._offset


@lru_cache(maxsize=32)
def _anti_aliasing(factor: int) -> Array:
    """Return second-order sections of a low-pass whose stop band begins at ``1 / factor`` of the Nyquist frequency."""
    sections: Array = scipy.signal.cheby2(ANTI_ALIASING_ORDER, ANTI_ALIASING_ATTENUATION, 1 / factor, output="sos")
    return sections


class StandardisingStream(Stream):
    """Subtract the running mean and divide by the running standard deviation, which is at least ``eps``."""

    def __init__(self, decay: float, eps: float) -> None:
        self._mean, self._variance, self._eps = RunningMean(decay), RunningMean(decay), eps

    def push(self, x: Array) -> Array:
        """Return the standardised samples (..., n_times)."""
        centred = x - self._mean.push(x)
        deviation: Array = np.sqrt(self._variance.push(centred**2))
        return np.asarray(centred / np.maximum(deviation, self._eps))


class RunningMean(Stream):
    """Weighted mean of all samples so far, with weights that decrease by ``1 - decay`` from sample to sample."""

    def __init__(self, decay: float) -> None:
        self._coefficients = [decay], [1.0, decay - 1.0]
        self._state: Array | None = None
        self._weight = np.zeros(1)

    def push(self, x: Array) -> Array:
        """Return the mean at each sample (..., n_times)."""
        if not x.shape[-1]:
            return x
        if self._state is None:
            self._state = np.zeros((*x.shape[:-1], 1))
        total, self._state = scipy.signal.lfilter(*self._coefficients, x, axis=-1, zi=self._state)
        weight, self._weight = scipy.signal.lfilter(*self._coefficients, np.ones(x.shape[-1]), zi=self._weight)
        return np.asarray(total / weight)
