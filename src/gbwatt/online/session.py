"""Decisions for a stream of the Lab Streaming Layer, until it is stopped."""

from __future__ import annotations

import csv
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.online.decoder import Decision, OnlineDecoder
from gbwatt.online.lsl import StreamReader

Array = NDArray[Any]

#: Number of recent decisions over which latencies are summarised.
RECENT = 600


class Session:
    """Decode a stream until it is stopped.

    Parameters
    ----------
    decoder : OnlineDecoder
    reader : StreamReader
    on_decision : callable
        Called with each :class:`Decision` and its latency in seconds.
    max_delay : float
        If the stream is this many seconds behind, only the newest sliding window is decoded.

    Attributes
    ----------
    latencies : deque of float
        Seconds from the last sample of a window to its decision, of the last decisions.
    last : Decision or None
        The last decision.
    """

    def __init__(
        self,
        decoder: OnlineDecoder,
        reader: StreamReader,
        on_decision: Callable[[Decision, float], None],
        *,
        max_delay: float = 1.0,
    ) -> None:
        self.decoder, self.reader = decoder, reader
        self._on_decision, self._max_delay = on_decision, max_delay
        self.latencies: deque[float] = deque(maxlen=RECENT)
        self.last: Decision | None = None

    def step(self, wait: float = 0.1) -> None:
        """Read what has arrived, within ``wait`` seconds, and decide on the windows that are complete."""
        samples, times, markers = self.reader.read(wait)
        late = bool(len(times)) and self.reader.clock() - times[-1] > self._max_delay
        decisions: list[Decision] = []
        for moment, event in markers:  # first, while the samples of late ones are there
            decisions += self.decoder.mark(moment, event)
        if len(times):
            decisions += self.decoder.push(samples, times, newest=late)
        for decision in decisions:
            latency = self.reader.clock() - decision.end
            self.latencies.append(latency)
            self.last = decision
            self._on_decision(decision, latency)

    def run(self, duration: float | None = None, on_step: Callable[[], None] | None = None) -> None:
        """Decode until Ctrl-C, or for some seconds.

        Parameters
        ----------
        duration : float, optional
            Number of seconds.
        on_step : callable, optional
            Called between the steps, to update a display for instance.
        """
        limit = np.inf if duration is None else time.monotonic() + duration
        while time.monotonic() < limit:
            self.step()
            if on_step is not None:
                on_step()


@contextmanager
def decision_log(file: Path, class_names: tuple[str, ...]) -> Iterator[Callable[[Decision, float], None]]:
    """Context manager that gives a function which writes decisions, with their latency in seconds, to a CSV file."""
    header = ["time", "end", "event", "label", *(f"p_{name}" for name in class_names), "problems", "latency"]
    with file.open("w", encoding="utf-8", newline="") as content:
        writer = csv.writer(content, lineterminator="\n")
        writer.writerow(header)

        def write(decision: Decision, latency: float) -> None:
            """Write a row, which is kept if the program is stopped."""
            times = (f"{decision.time:.6f}", f"{decision.end:.6f}")
            p = (f"{value:.6f}" for value in decision.probabilities)
            problems = "; ".join(decision.problems)
            writer.writerow([*times, decision.event, decision.label or "", *p, problems, f"{latency:.6f}"])
            content.flush()

        yield write
