"""A buffer of the last samples of a running recording."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class SampleBuffer:
    """The last samples of a running recording, addressed by their number since its start.

    Parameters
    ----------
    n_rows : int
        Number of channels.
    keep : int
        Number of samples that :meth:`trim` keeps.
    dtype : numpy dtype

    Attributes
    ----------
    first, end : int
        Number of the first sample in the buffer, and of the next one to come.

    Examples
    --------
    >>> buffer = SampleBuffer(1, keep=3)
    >>> buffer.append(np.arange(8)[None])
    >>> buffer.trim()
    >>> buffer.first, buffer.end, buffer.between(6, 8).tolist()
    (5, 8, [[6.0, 7.0]])
    """

    def __init__(self, n_rows: int, keep: int, dtype: Any = np.float64) -> None:
        self._keep, self._samples = keep, np.empty((n_rows, 2 * keep + 1), dtype)
        self._start = 0  # column of the first sample
        self.first = self.end = 0

    def append(self, x: Array) -> None:
        """Add samples (n_rows, n)."""
        kept, n = self.end - self.first, x.shape[1]
        if self._start + kept + n > self._samples.shape[1]:  # move the samples to the beginning, of a larger array if
            last = self._samples[:, self._start : self._start + kept]  # that is too small
            if kept + n > self._samples.shape[1]:
                self._samples = np.empty((len(last), 2 * (kept + n)), last.dtype)
            self._samples[:, :kept] = last.copy()
            self._start = 0
        column = self._start + kept
        self._samples[:, column : column + n] = x
        self.end += n

    def between(self, start: int, stop: int) -> Array:
        """Return the samples from ``start`` up to, but not including, ``stop``: a view (n_rows, stop - start)."""
        assert self.first <= start <= stop <= self.end
        return self._samples[:, self._start + start - self.first : self._start + stop - self.first]

    def trim(self) -> None:
        """Forget all samples but the last ``keep``."""
        forgotten = max(self.end - self.first - self._keep, 0)
        self._start, self.first = self._start + forgotten, self.first + forgotten
