"""Latency of online decoding: from the arrival of the last sample of a window to its decision.

    python benchmarks/online.py [--minutes 30] [--hop 0.1] [--chunk 10] [--threads 1]

For the settings of each paradigm, noise is pushed in chunks, as fast as possible, and the time for every chunk that
completes a window is measured.  It is divided into the time for the filters and for the network; the rest is for the
administration of windows.  The table also shows the windows without a decision and the growth of the memory of the
process after the first minute.  The transmission by the Lab Streaming Layer is not included; ``gbwatt online`` shows
the latency with it.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch

from gbwatt import GBWAttClassifier
from gbwatt.data import load
from gbwatt.data.preprocessing import Preprocessing
from gbwatt.online import OnlineDecoder

RECORDINGS = {"mi": "simulated-mi", "ssvep": "simulated-ssvep", "erp": "simulated-ern"}
STEPS = "bandpass=1-40,causal"


def memory() -> float:
    """Largest memory of the process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(paradigm: str, minutes: float, hop: float, chunk: int) -> str:
    """One line of the table."""
    trials = Preprocessing.parse(STEPS)(load(RECORDINGS[paradigm]))
    model = GBWAttClassifier(task=paradigm, max_epochs=1).fit(trials[:100])
    online = OnlineDecoder(model, trials.sfreq, trials.ch_names, hop=hop)
    rng = np.random.default_rng(0)
    noise = float(trials.X.std()) * rng.standard_normal((len(trials.ch_names), 100 * chunk))
    total, parts, used = [], [], 0.0
    n_chunks = round(60 * minutes * trials.sfreq / chunk)
    for number in range(n_chunks):
        x = noise[:, chunk * (number % 100) : chunk * (number % 100 + 1)]
        before, started = dict(online.seconds), time.perf_counter()
        if online.push(x):
            total.append(time.perf_counter() - started)
            parts.append([online.seconds[name] - before[name] for name in ("filter", "model")])
        if number == round(60 * trials.sfreq / chunk):
            used = memory()
    starts = np.round(np.arange(60 * minutes / hop) * hop * trials.sfreq)
    expected = int(np.sum(starts <= n_chunks * chunk - trials.shape[2]))
    median, high, highest = 1e3 * np.percentile(total, [50, 95, 99])
    filters, network = 1e3 * np.median(parts, axis=0)
    return (
        f"| {paradigm} | {trials.shape[1]} × {trials.shape[2]} | {online.counts.decisions} | "
        f"{expected - online.counts.decisions} | {median:.2f} | {high:.2f} | {highest:.2f} | {filters:.2f} | "
        f"{network:.2f} | {memory() - used:.1f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="duration of the signal")
    parser.add_argument("--hop", type=float, default=0.1)
    parser.add_argument("--chunk", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(
        "| paradigm | channels × samples | decisions | missing | p50, ms | p95, ms | p99, ms | filters, ms | "
        "network, ms | memory growth, MB |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for paradigm in RECORDINGS:
        print(measure(paradigm, arguments.minutes, arguments.hop, arguments.chunk), flush=True)


if __name__ == "__main__":
    main()
