"""Streams of the Lab Streaming Layer (LSL): reading samples and markers, and sending decisions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gbwatt._validation import check_positive
from gbwatt.errors import MismatchError, MissingStreamError, PackageError, ParameterError
from gbwatt.online.decoder import Decision

Array = NDArray[Any]

#: Units of voltage, by the names that streams give them.  Numbers are powers of ten, as of mne-lsl.
UNIT_NAMES = {
    **dict.fromkeys(("microvolts", "microvolt", "uv", "µv", "μv", "-6"), "µV"),
    **dict.fromkeys(("millivolts", "millivolt", "mv", "-3"), "mV"),
    **dict.fromkeys(("nanovolts", "nanovolt", "nv", "-9"), "nV"),
    **dict.fromkeys(("volts", "volt", "v", "0"), "V"),
}
#: Largest number of samples that are pulled at once.
_MOST = 4096
#: Seconds between attempts to find a stream that has gone away.
_RETRY = 0.5


def library() -> Any:
    """Return the module ``mne_lsl.lsl``; raise PackageError if it is not installed."""
    try:
        import mne_lsl.lsl
    except ModuleNotFoundError as error:
        raise PackageError.missing("mne_lsl", "a stream of the Lab Streaming Layer", "lsl") from error
    return mne_lsl.lsl


class Pulled(NamedTuple):
    """What has arrived since the last call.

    Attributes
    ----------
    samples : array (n_chans, n)
    times : array (n,)
        Time stamps, in the clock of this computer.
    markers : list of (float, str)
        Time stamps and names of events.
    """

    samples: Array
    times: Array
    markers: list[tuple[float, str]]


class StreamReader:
    """EEG samples and markers of LSL streams.  A stream that goes away is searched for again.

    Parameters
    ----------
    name : str
        Name of the stream of samples.
    markers : str, optional
        Name of the stream of markers.
    timeout : float
        Number of seconds to wait for the streams at the start.

    Attributes
    ----------
    ch_names : tuple of str
        EEG channels; channels without a type count as EEG.
    sfreq : float
    unit : str or None
        Unit of these channels; None if the stream does not say it, or in an unknown way.
    connected : bool
        Whether the stream is there, as far as known.
    reconnections : int
        How often it was found again.

    Raises
    ------
    PackageError
        If mne-lsl is not installed.
    MissingStreamError
        If a stream is not found; the message lists those that are there.
    MismatchError
        If a stream returns with other channels or another sampling rate.
    """

    def __init__(self, name: str, markers: str | None = None, *, timeout: float = 10.0) -> None:
        self._lsl = library()
        self.name, self._marker_name = name, markers
        self.connected, self.reconnections = True, 0
        self._inlet = self._open(name, check_positive("timeout", timeout, "s"))
        self._markers = None if markers is None else self._open(markers, timeout)
        info = self._inlet.get_sinfo(timeout)
        self.sfreq = float(info.sfreq)
        if not self.sfreq:
            raise MismatchError(f"stream {name!r} has no regular sampling rate; a stream of samples is needed.")
        self._layout = _channels(info)
        self._rows = [row for row, kind in enumerate(self._layout.types) if kind in ("eeg", "")]
        if not self._rows:
            raise MismatchError(f"stream {name!r} has no EEG channel; its types are {', '.join(self._layout.types)}.")
        self.ch_names = tuple(self._layout.names[row] for row in self._rows)
        units = {UNIT_NAMES.get(self._layout.units[row].casefold()) for row in self._rows}
        self.unit = units.pop() if len(units) == 1 else None
        self._next_attempt = 0.0

    def _open(self, name: str, timeout: float) -> Any:
        """Connect to the stream of this name."""
        found = self._lsl.resolve_streams(timeout, name=name)
        if not found:
            there = sorted({info.name for info in self._lsl.resolve_streams(1.0)})
            listed = f"the streams {', '.join(map(repr, there))} are there" if there else "no stream is there"
            raise MissingStreamError(
                f"stream={name!r} was not found within {timeout:g} s; {listed}. Is the program of the "
                "amplifier running, and in the same network?"
            )
        if len({info.uid for info in found}) > 1:
            raise ParameterError(
                f"stream={name!r}: there are {len(found)} streams of this name, from "
                f"{', '.join(sorted({info.hostname for info in found}))}; stop or rename the others."
            )
        inlet = self._lsl.StreamInlet(found[0], recover=False, processing_flags=["clocksync"])
        inlet.open_stream(timeout)
        return inlet

    def read(self, wait: float = 0.1) -> Pulled:
        """Return what has arrived since the last call.

        Parameters
        ----------
        wait : float
            Largest number of seconds to wait for the first sample.

        Returns
        -------
        Pulled
        """
        samples, times = self._read_samples(wait)
        return Pulled(samples, times, self._read_markers())

    def _read_samples(self, wait: float) -> tuple[Array, Array]:
        """Return new samples (n_chans, n) and their time stamps; wait for the first one."""
        nothing = np.empty((len(self._rows), 0)), np.empty(0)
        if not self.connected and not self._reconnect(wait):
            return nothing
        try:
            first, stamp = self._inlet.pull_sample(timeout=wait)
            if stamp is None or not len(first):
                return nothing
            more, stamps = self._inlet.pull_chunk(timeout=0.0, max_samples=_MOST)
        except Exception as error:
            if not _is_lost(error):
                raise
            self.connected = False
            return nothing
        x = np.concatenate([np.asarray(first, dtype=np.float64)[None], np.asarray(more).reshape(-1, len(first))])
        return x.T[self._rows], np.concatenate([[stamp], stamps])

    def _read_markers(self) -> list[tuple[float, str]]:
        """Return new events."""
        if self._markers is None:
            return []
        try:
            names, stamps = self._markers.pull_chunk(timeout=0.0)
        except Exception as error:
            if not _is_lost(error):
                raise
            self.connected = False  # both are opened anew
            return []
        return [(float(stamp), str(name[0])) for name, stamp in zip(names, stamps, strict=True)]

    def _reconnect(self, wait: float) -> bool:
        """Try to find the streams again; return whether they are there."""
        if time.monotonic() < self._next_attempt:
            time.sleep(wait)
            return False
        try:
            inlet = self._open(self.name, _RETRY)
            markers = None if self._marker_name is None else self._open(self._marker_name, _RETRY)
        except (MissingStreamError, TimeoutError):
            self._next_attempt = time.monotonic() + _RETRY
            return False
        info = inlet.get_sinfo(5.0)
        if _channels(info) != self._layout or float(info.sfreq) != self.sfreq:
            raise MismatchError(
                f"stream {self.name!r} has returned with {info.n_channels} channels at {info.sfreq:g} Hz that differ "
                f"from the {len(self._layout.names)} at {self.sfreq:g} Hz before; start again."
            )
        self._inlet, self._markers, self.connected = inlet, markers, True
        self.reconnections += 1
        return True

    def clock(self) -> float:
        """Return the time now, in the clock of the time stamps."""
        return float(self._lsl.local_clock())

    def close(self) -> None:
        """Disconnect."""
        for inlet in (self._inlet, self._markers):
            if inlet is not None:
                inlet.close_stream()


class _Layout(NamedTuple):
    """Names, types and units of the channels of a stream; empty where it does not say them."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    units: tuple[str, ...]


def _channels(info: Any) -> _Layout:
    """Return what a stream says about its channels; channels without names are numbered."""
    numbers = [str(number + 1) for number in range(info.n_channels)]
    nothing = [""] * info.n_channels
    names, types, units = info.get_channel_names(), info.get_channel_types(), info.get_channel_units()
    return _Layout(
        tuple(name or number for name, number in zip(names or numbers, numbers, strict=True)),
        tuple((kind or "").casefold() for kind in types or nothing),
        tuple(unit or "" for unit in units or nothing),
    )


def _is_lost(error: Exception) -> bool:
    """Return whether an error of mne-lsl says that a stream has gone away."""
    return type(error).__name__ in ("LostError", "TimeoutError")


class DecisionOutlet:
    """Send decisions as an LSL stream.

    Its channels are the number of the class (-1 without a decision), 1 or 0 for reliable or not, and the probability of
    each class; its time stamps are the ends of the windows.

    Parameters
    ----------
    name : str
        Name of the stream.
    class_names : sequence of str
    """

    def __init__(self, name: str, class_names: Sequence[str]) -> None:
        lsl = library()
        self._class_names = tuple(class_names)
        channels = ["class", "reliable", *(f"p_{label}" for label in class_names)]
        info = lsl.StreamInfo(name, "Decisions", len(channels), 0.0, "float64", f"gbwatt-{name}")
        info.set_channel_names(channels)
        self._outlet = lsl.StreamOutlet(info)

    def send(self, decision: Decision) -> None:
        """Send a decision."""
        number = -1 if decision.label is None else self._class_names.index(decision.label)
        values = np.array([number, decision.reliable, *decision.probabilities], dtype=np.float64)
        self._outlet.push_sample(values, timestamp=decision.end)
