"""A network of LSL streams within this process, with the parts of ``mne_lsl.lsl`` that gbwatt uses."""

from __future__ import annotations

from itertools import count

import numpy as np


class LostError(RuntimeError):
    """A stream has gone away."""


class Network:
    """Streams and a clock, which advances only when somebody sleeps."""

    def __init__(self):
        self.streams, self.now, self.numbers = [], 100.0, count()
        network = self

        class Info:
            """Description of a stream."""

            def __init__(self, name, stype, n_channels, sfreq, dtype, source_id):
                self.name, self.stype, self.n_channels, self.sfreq = name, stype, n_channels, sfreq
                self.dtype, self.source_id, self.hostname, self.uid = dtype, source_id, "here", next(network.numbers)
                self.channels = {"names": None, "types": None, "units": None}

            def set_channel_names(self, names):
                self.channels["names"] = list(names)

            def set_channel_types(self, types):
                self.channels["types"] = [types] * self.n_channels if isinstance(types, str) else list(types)

            def set_channel_units(self, units):
                self.channels["units"] = [units] * self.n_channels if isinstance(units, str) else list(units)

            def get_channel_names(self):
                return self.channels["names"]

            def get_channel_types(self):
                return self.channels["types"]

            def get_channel_units(self):
                return self.channels["units"]

        class Outlet:
            """A stream; all that it has sent is kept for inlets that are opened later."""

            def __init__(self, info):
                self.info, self.sent, self.alive = info, [], True
                network.streams.append(self)

            has_consumers = True

            def push_sample(self, x, timestamp):
                self.sent.append((list(x), timestamp))

            def push_chunk(self, x, timestamp):
                self.sent += list(zip(np.asarray(x).tolist(), np.asarray(timestamp).tolist(), strict=True))

            def vanish(self):
                self.alive = False
                network.streams.remove(self)

        class Inlet:
            """A reader of a stream."""

            def __init__(self, info, recover, processing_flags):
                assert not recover
                assert processing_flags == ["clocksync"]
                (self.outlet,) = [one for one in network.streams if one.info is info]
                self.read = 0

            def open_stream(self, timeout=None):
                pass

            close_stream = open_stream

            def get_sinfo(self, timeout):
                return self.outlet.info

            def pull_sample(self, timeout):
                samples, stamps = self.pull_chunk(0.0, 1)
                return (samples[0], stamps[0]) if len(stamps) else ([], None)

            def pull_chunk(self, timeout, max_samples=1024):
                if not self.outlet.alive:
                    raise LostError
                new = self.outlet.sent[self.read : self.read + max_samples]
                self.read += len(new)
                if self.outlet.info.dtype == "string":
                    return [x for x, _ in new], np.array([t for _, t in new])
                return np.array([x for x, _ in new]).reshape(len(new), self.outlet.info.n_channels), np.array(
                    [t for _, t in new]
                )

        self.StreamInfo, self.StreamOutlet, self.StreamInlet = Info, Outlet, Inlet

    def resolve_streams(self, timeout, name=None):
        return [one.info for one in self.streams if name in (None, one.info.name)]

    def local_clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
