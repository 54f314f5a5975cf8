"""Cost of a training step and of a prediction with the settings of each paradigm, beside plain convolutions.

    python benchmarks/paradigm_step.py [--repeats 60] [--threads 1]

The decoder is ``GBWAttClassifier(task=...)``, after two epochs on a simulated recording.  The convolutions are those of
its network in plain PyTorch, with batch normalisation and without an optimiser.  Steps alternate; the shortest of each
counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from contestants import STILL, Contestant
from textbook import Floor

from gbwatt import GBWAttClassifier
from gbwatt.data import find_dataset, load
from gbwatt.models.presets import Architecture, Task
from gbwatt.nn.optim import make_optimizer

RECORDINGS = {"mi": "simulated-mi", "ssvep": "simulated-ssvep", "erp": "simulated-ern"}


def shortest(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Shortest durations of two functions that alternate, in seconds."""
    durations: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for function, times in zip((first, second), durations, strict=True):
            function()  # with warm caches, as in training
            started = time.perf_counter()
            function()
            times.append(time.perf_counter() - started)
    return min(durations[0]), min(durations[1])


def measure(paradigm: str, repeats: int) -> str:
    """One line of the table."""
    name = RECORDINGS[paradigm]
    trials = load(name)
    split = find_dataset(name).protocol.splits(trials)[0]
    decoder = GBWAttClassifier(task=paradigm, max_epochs=2).fit(trials[split.train])
    model, training = decoder.net_.module_.train(), decoder.settings_.training
    sizes = {field: model.config[field] for field in ("n_spatial", "n_temporal", "kernel", "split", "n_segments", "k")}
    floor = Floor(Task(paradigm, decoder.signal_, Architecture(**sizes), training, sizes["k"]))
    x = torch.tensor(trials.X[split.train][: training.batch_size] * decoder.scale_, dtype=torch.float32)
    batch = x, torch.tensor(trials.y[split.train][: training.batch_size], dtype=torch.int64)
    ours = Contestant(paradigm, model, make_optimizer(model, STILL, training.weight_decay))
    plain = Contestant("floor", floor, None)
    step, convolutions = shortest(lambda: ours.step(batch), lambda: plain.step(batch), repeats)
    model.eval()
    with torch.inference_mode():
        single, _ = shortest(lambda: model(x[:1]), lambda: None, repeats)
    return (
        f"| {paradigm} | {tuple(x.shape)} | {1e3 * step:.1f} | {1e3 * convolutions:.1f} | {step / convolutions:.2f} "
        f"| {1e3 * single:.2f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print("| paradigm | batch | step, ms | convolutions, ms | ratio | prediction of one trial, ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    for paradigm in RECORDINGS:
        print(measure(paradigm, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
