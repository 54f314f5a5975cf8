"""How long a subject of each simulated set takes to make.

    python benchmarks/simulated.py [--subjects 3]

The head model, made once by the first subject, is not counted.
"""

from __future__ import annotations

import argparse
import time

import torch

from gbwatt.data import load
from gbwatt.data.simulated import DATASETS


def main() -> None:
    """Print the seconds of each set: the quickest and the slowest subject, on one core."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subjects", type=int, default=3, help="how many subjects of each set")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for dataset in DATASETS:
        subjects = dataset.subjects[: args.subjects]
        load(dataset.name, subjects[0])
        seconds = []
        for subject in subjects:
            start = time.perf_counter()
            load(dataset.name, subject, seed=1)
            seconds.append(time.perf_counter() - start)
        print(f"{dataset.name:16} {min(seconds):.2f} to {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
