"""What a model has to know of its input, in braindecode's vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gbwatt import checks


@dataclass(frozen=True)
class Signal:
    """Shape of epochs (n, n_chans, n_times), the number of classes, and the sampling rate in Hz if it is known."""

    n_chans: int
    n_outputs: int
    n_times: int
    sfreq: float | None = None

    @classmethod
    def infer(
        cls,
        n_chans: int | None = None,
        n_outputs: int | None = None,
        n_times: int | None = None,
        sfreq: float | None = None,
        chs_info: Sequence[Any] | None = None,
        input_window_seconds: float | None = None,
    ) -> Signal:
        """Fill in what follows from the rest: channels from ``chs_info``, samples from duration and sampling rate.

        Examples
        --------
        >>> Signal.infer(n_chans=8, n_outputs=5, sfreq=125, input_window_seconds=1)
        Signal(n_chans=8, n_outputs=5, n_times=125, sfreq=125.0)
        """
        if sfreq is None and n_times is not None and input_window_seconds:
            sfreq = n_times / input_window_seconds
        n_chans = _agree("n_chans", n_chans, "len(chs_info)", None if chs_info is None else len(chs_info))
        samples = None if sfreq is None or input_window_seconds is None else round(sfreq * input_window_seconds)
        n_times = _agree("n_times", n_times, "sfreq * input_window_seconds", samples)
        missing = [
            name
            for name, value in (("n_chans", n_chans), ("n_outputs", n_outputs), ("n_times", n_times))
            if value is None
        ]
        if missing or n_chans is None or n_outputs is None or n_times is None:
            raise checks.ParameterError(
                f"{' and '.join(missing)} cannot be inferred; give the numbers, or chs_info for the channels and "
                "sfreq with input_window_seconds for the samples."
            )
        for name, value, least in (("n_chans", n_chans, 1), ("n_outputs", n_outputs, 2), ("n_times", n_times, 2)):
            if value < least:
                raise checks.ParameterError(f"{name}={value} must be at least {least}.")
        if sfreq is not None and not sfreq > 0:
            raise checks.ParameterError(f"sfreq={sfreq} must be positive, in Hz.")
        return cls(int(n_chans), int(n_outputs), int(n_times), None if sfreq is None else float(sfreq))


def _agree(name: str, given: int | None, source: str, inferred: int | None) -> int | None:
    """The one that is known; an error if both are and they differ."""
    if given is not None and inferred is not None and given != inferred:
        raise checks.ParameterError(f"{name}={given} contradicts {source}={inferred}; leave one of them out.")
    return inferred if given is None else given
