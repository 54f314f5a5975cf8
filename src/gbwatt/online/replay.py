"""Play a recording as a stream of the Lab Streaming Layer, to try online decoding without an amplifier."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt._validation import check_at_least, check_positive
from gbwatt.data.formats.interchange import unit_and_scale
from gbwatt.data.formats.recordings import find_events, is_epochs
from gbwatt.data.trials import Trials
from gbwatt.decoding.prediction import open_recording
from gbwatt.errors import ParameterError
from gbwatt.online.lsl import library

Array = NDArray[Any]

#: Stream units by the unit of a recording.
_UNITS = {"V": "volts", "mV": "millivolts", "µV": "microvolts", "nV": "nanovolts"}


@dataclass(frozen=True, eq=False)
class Playback:
    """A recording to play.

    Attributes
    ----------
    samples : array (n_chans, n_samples)
    ch_names : tuple of str
    sfreq : float
    unit : str
    events : list of (float, str)
        Times in seconds since the first sample, in this order, and names.
    """

    samples: Array
    ch_names: tuple[str, ...]
    sfreq: float
    unit: str
    events: list[tuple[float, str]]

    @classmethod
    def open(cls, recording: Any) -> Playback:
        """Read a recording.

        Parameters
        ----------
        recording : path, mne.io.Raw or Trials
            A recording that MNE reads with its annotations, or trials, such as an ``.npz`` file.  Trials are played one
            after the other, each with its class as event.

        Returns
        -------
        Playback
        """
        signals = open_recording(recording) if isinstance(recording, str | Path) else recording
        if isinstance(signals, Trials):
            n, n_chans, n_times = signals.shape
            onsets = (np.arange(n) * n_times - round(signals.tmin * signals.sfreq)) / signals.sfreq
            events = [(t, str(name)) for t, name in zip(onsets.tolist(), signals.labels, strict=True) if t >= 0]
            x = signals.X.transpose(1, 0, 2).reshape(n_chans, -1)
            return cls(x, signals.ch_names, signals.sfreq, signals.unit, events)
        if is_epochs(signals):
            raise ParameterError("Epochs of MNE are not a recording; save the raw recording, or trials as .npz.")
        eeg = signals.copy().pick("eeg", exclude=())
        unit, scale = unit_and_scale(eeg, range(len(eeg.ch_names)))
        x = (eeg.get_data() * scale).astype(np.float32)
        samples, names = find_events(signals)
        onsets = (samples - signals.first_samp) / signals.info["sfreq"]
        events = sorted(zip(onsets.tolist(), names, strict=True), key=lambda event: event[0])
        return cls(x, tuple(eeg.ch_names), float(eeg.info["sfreq"]), unit, events)


class Player:
    """Play a recording as an LSL stream, with its events as markers.

    Parameters
    ----------
    playback : Playback
    name : str
        Name of the stream of samples; that of the markers is ``f"{name}-markers"``.
    chunk : int
        Number of samples that are sent at a time.
    speed : float
        1 for real time, 2 for twice as fast.  Time stamps advance by the sampling interval in any case.
    """

    def __init__(self, playback: Playback, name: str, *, chunk: int = 10, speed: float = 1.0) -> None:
        check_at_least("chunk", chunk, 1)
        self._lsl, self._playback, self._chunk = library(), playback, chunk
        self._speed = check_positive("speed", speed)
        n_chans = len(playback.ch_names)
        info = self._lsl.StreamInfo(name, "EEG", n_chans, playback.sfreq, "float32", f"gbwatt-replay-{name}")
        info.set_channel_names(list(playback.ch_names))
        info.set_channel_types("eeg")
        info.set_channel_units(_UNITS.get(playback.unit, "none"))
        self.marker_name = f"{name}-markers"
        markers = self._lsl.StreamInfo(self.marker_name, "Markers", 1, 0.0, "string", f"gbwatt-replay-{name}-markers")
        self._samples, self._markers = self._lsl.StreamOutlet(info), self._lsl.StreamOutlet(markers)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until both streams have a listener; return whether they have, within ``timeout`` seconds."""
        limit = np.inf if timeout is None else time.monotonic() + timeout
        while not (self._samples.has_consumers and self._markers.has_consumers):
            if time.monotonic() > limit:
                return False
            time.sleep(0.02)
        return True

    def play(self, delay_of_markers: float = 0.0) -> None:
        """Play the whole recording.

        Parameters
        ----------
        delay_of_markers : float
            Seconds in the time of the recording by which markers are sent late; their time stamps are right.
        """
        recorded, start = self._playback, float(self._lsl.local_clock())
        events, n = list(recorded.events), recorded.samples.shape[1]
        interval = 1 / recorded.sfreq
        for first in range(0, n, self._chunk):
            x = np.ascontiguousarray(recorded.samples[:, first : first + self._chunk].T)
            end = (first + len(x)) * interval
            time.sleep(max(0.0, start + end / self._speed - float(self._lsl.local_clock())))
            stamps = start + (first + np.arange(len(x))) * interval
            self._samples.push_chunk(x, timestamp=stamps)
            while events and events[0][0] + delay_of_markers < end:
                self._send_marker(start, *events.pop(0))
        for event in events:
            self._send_marker(start, *event)

    def _send_marker(self, start: float, onset: float, name: str) -> None:
        """Send an event."""
        self._markers.push_sample([name], timestamp=start + onset)
