"""How much shrinkage of the covariances validation data prefer: the choice behind recipe="best".

    python benchmarks/shrinkage.py [--root FOLDER] [--subjects 1 3 6 7 10] [--shrinkages 0 0.1 0.2 0.3 0.5 oas learnt]

Trains the SSVEP network on sessions 1-3 of MAMEM-SSVEP-II and prints the lowest loss on
session 4.  Session 5, the test set, is not looked at.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from gbwatt import GBWAttClassifier
from gbwatt.data import Trials, load


def shrinkage(text: str) -> float | str:
    """A number, or the name of an estimate."""
    return text if text in ("oas", "learnt") else float(text)


def validation_loss(trials: Trials, value: float | str, epochs: int) -> float:
    """Lowest loss on session 4 after training on sessions 1-3."""
    decoder = GBWAttClassifier(
        task="ssvep", shrinkage=value, validation=trials.select(session="4"), max_epochs=epochs
    ).fit(trials.select(session=["1", "2", "3"]))
    return min(row["valid_loss"] for row in decoder.history_)


def main() -> None:
    """Print a row for each subject, a column for each shrinkage, and the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, help="folder of recordings, instead of GBWATT_DATA or ~/gbwatt_data")
    parser.add_argument("--subjects", type=int, nargs="+", default=[1, 3, 6, 7, 10])
    parser.add_argument("--shrinkages", type=shrinkage, nargs="+", default=[0.0, 0.1, 0.2, 0.3, 0.5, "oas", "learnt"])
    parser.add_argument("--epochs", type=int, default=100)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("subject " + " ".join(f"{value!s:>8}" for value in args.shrinkages))
    rows = []
    for subject in args.subjects:
        trials = load("mamem-ssvep-ii", subject, root=args.root)
        rows.append([validation_loss(trials, value, args.epochs) for value in args.shrinkages])
        print(f"{subject:>7} " + " ".join(f"{loss:8.3f}" for loss in rows[-1]), flush=True)
    print("   mean " + " ".join(f"{loss:8.3f}" for loss in np.mean(rows, axis=0)))


if __name__ == "__main__":
    main()
