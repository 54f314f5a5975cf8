"""Print which shrinkage GBWAtt uses for subjects of MAMEM-SSVEP-II with each rule, and the accuracy on session 4.

GBWATT_DATA=... python examples/shrinkage_mamem.py --subjects 1 6 10
"""

from __future__ import annotations

import argparse

import torch

from gbwatt import GBWAttClassifier
from gbwatt.data import find_dataset, load
from gbwatt.decoding import EEGDecoder
from gbwatt.nn import SegmentCovariance


@torch.no_grad()
def shrinkages(decoder: EEGDecoder, x: torch.Tensor) -> torch.Tensor:
    """Shrinkage ρ of each window of epochs (n, n_chans, n_times), from the matrices with and without it."""
    model = decoder.net_.module_
    features = model.features(x)
    options = {"n_segments": model.config["n_segments"], "eps": 0.0}
    plain = SegmentCovariance(**options)(features)
    layer = SegmentCovariance(**options, shrinkage=model.config["shrinkage"])
    layer.load_state_dict(model.covariances.state_dict())
    # off the diagonal, the shrunk matrix is (1 - ρ) times the other
    off = ~torch.eye(plain.shape[-1], dtype=torch.bool)
    return 1 - layer(features)[..., off].norm(dim=-1) / plain[..., off].norm(dim=-1)


def main() -> None:
    """Train with each rule, and print a line for each subject."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subjects", type=int, nargs="+", default=[1, 6, 10])
    for subject in parser.parse_args().subjects:
        trials = load("mamem-ssvep-ii", subject)
        (split,) = find_dataset("mamem-ssvep-ii").protocol.splits(trials)
        for rule in (0.3, "samples", "oas", "learnt"):
            decoder = GBWAttClassifier(task="ssvep", shrinkage=rule).fit(trials[split.train])
            rho = shrinkages(decoder, torch.tensor(trials[split.valid].X * decoder.scale_, dtype=torch.float32))
            valid = f"accuracy {decoder.score(trials[split.valid]):.2f}"
            print(f"subject {subject}, {rule}: ρ {rho.mean():.3f} ± {rho.std():.3f}, {valid}", flush=True)


if __name__ == "__main__":
    main()
