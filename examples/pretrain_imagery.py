"""Train the weights for motor imagery that are part of the package.

    GBWATT_DATA=... python examples/pretrain_imagery.py src/gbwatt/decoding/weights/physionet-left-right
    GBWATT_DATA=... python examples/pretrain_imagery.py src/gbwatt/decoding/weights/physionet-four-classes \\
        --dataset physionet-mi

The recordings are imagined movements of 25 subjects of the PhysioNet EEG Motor Movement/Imagery Dataset (ODC-By 1.0),
of the left or right fist or, with ``physionet-mi``, also of both fists or both feet.  Each subject is aligned by its
mean covariance.  The subjects are the sources of the experiment transfer_imagery, whose test subjects are not among
them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gbwatt import EEGDecoder
from gbwatt.data import load
from gbwatt.decoding import EuclideanAlignment
from gbwatt.experiments.config import read_experiment
from gbwatt.experiments.execution import PRETRAINING_BATCH


def main() -> None:
    """Train on the sources of the experiment, and save the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to save the weights")
    parser.add_argument("--dataset", choices=["physionet-lr", "physionet-mi"], default="physionet-lr")
    arguments = parser.parse_args()
    settings = read_experiment("transfer_imagery").models[0].training
    trials = EuclideanAlignment().fit_transform(load(arguments.dataset, settings.sources))
    epochs = settings.pretraining_epochs
    decoder = EEGDecoder(paradigm="mi", validation=None, max_epochs=epochs, batch_size=PRETRAINING_BATCH).fit(trials)
    decoder.save_pretrained(arguments.folder, fingerprints=False)


if __name__ == "__main__":
    main()
