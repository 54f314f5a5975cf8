"""A training to be killed: python -m tests.decoding.killed FOLDER.  Slow enough to be caught in the middle."""

from __future__ import annotations

import sys
import time

import torch

from gbwatt.decoding import EEGDecoder
from tests.decoding.tiny import Tiny, make_trials, register_tiny

SETTINGS = {"model": "tiny", "max_epochs": 12, "lr": 0.1, "batch_size": 8, "seed": 5, "class_weight": "balanced"}


def main(folder: str) -> None:
    torch.set_num_threads(1)
    register_tiny()
    forward = Tiny.forward
    Tiny.forward = lambda self, x: (time.sleep(0.02), forward(self, x))[1]
    EEGDecoder(**SETTINGS, checkpoint=folder, log=f"{folder}/log.csv").fit(*make_trials())


if __name__ == "__main__":
    main(sys.argv[1])
