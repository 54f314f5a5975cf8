"""Variants of architecture and training of GBWAtt on development data, which are never used for a test.

    GBWATT_DATA=... python benchmarks/training_variants.py mi [--variants default ema]

Development data are, for each paradigm:

mi
    PhysioNet left or right fist, subjects 23 to 38, leaving out one round of runs: 30 training trials.
trials
    Motor imagery with more trials: sessions 1 to 3 of BCI IV 2b, leaving out one: 240 training trials.
ssvep
    MAMEM-SSVEP-II, trained on sessions 1 to 3, scored on session 4: 300 training trials.
erp
    Training and validation trials of the P300 recordings, in three blocks, leaving out one: 320 or 480 training trials.

A line has the mean accuracy (erp: AUC) and log loss over all folds, and the mean difference of the log loss from the
first variant with its standard error over folds.  Variants that are not arguments of the classifier are callbacks,
which change the trials of every epoch or the final weights, or replace a layer of the network.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sklearn.metrics import log_loss, roc_auc_score
from torch import Tensor, nn
from torch.nn import functional as F

from gbwatt import GBWAtt, GBWAttClassifier
from gbwatt.data import Trials, find_dataset, load
from gbwatt.decoding import Callback
from gbwatt.decoding.inputs import Examples
from gbwatt.nn import SPDSelfAttention
from gbwatt.nn.attention import Attended

Fold = tuple[Trials, Trials]


# ---- development data


def _imagery() -> Iterator[Fold]:
    for subject in range(23, 39):
        trials = load("physionet-lr", subject)
        for split in find_dataset("physionet-lr").protocol.splits(trials):
            split = split.merged()
            yield trials[split.train], trials[split.test]


def _imagery_with_more_trials() -> Iterator[Fold]:
    for subject in range(1, 6):
        trials = load("bci-iv-2b", subject)
        trials = trials[np.isin(trials.session, ["1", "2", "3"])]
        for session in "123":
            yield trials[trials.session != session], trials[trials.session == session]


def _steady_state() -> Iterator[Fold]:
    for subject in range(1, 12):
        trials = load("mamem-ssvep-ii", subject)
        (split,) = find_dataset("mamem-ssvep-ii").protocol.splits(trials)
        yield trials[split.train], trials[split.valid]


def _potentials() -> Iterator[Fold]:
    for name, subjects in (("p300-br41n", (1, 2)), ("bi2012", (1,))):
        for subject in subjects:
            trials = load(name, subject)
            (split,) = find_dataset(name).protocol.splits(trials)
            rows = np.sort(np.concatenate([split.train, split.valid]))
            for block in np.array_split(rows, 3):
                yield trials[np.setdiff1d(rows, block)], trials[block]


DATA: dict[str, tuple[str, Callable[[], Iterator[Fold]]]] = {
    "mi": ("mi", _imagery),
    "trials": ("mi", _imagery_with_more_trials),
    "ssvep": ("ssvep", _steady_state),
    "erp": ("erp", _potentials),
}


# ---- callbacks


class MovingAverage(Callback):
    """Exponential moving average of the weights over steps, used at the end."""

    def __init__(self, decay: float) -> None:
        self.decay = decay

    def on_train_begin(self, net: Any, **_: Any) -> None:
        """Begin with the initial weights."""
        self.average = {name: x.clone() for name, x in net.module_.state_dict().items()}

    def on_batch_end(self, net: Any, training: bool, **_: Any) -> None:
        """Update the average."""
        if training:
            for name, x in net.module_.state_dict().items():
                self.average[name].lerp_(x, 1 - self.decay) if x.is_floating_point() else self.average[name].copy_(x)

    def on_train_end(self, net: Any, **_: Any) -> None:
        """Use the average."""
        net.module_.load_state_dict(self.average)


class Augmentation(Callback):
    """New random changes of the training trials in every epoch."""

    def __init__(self, change: Callable[[Tensor, Tensor, torch.Generator], Tensor]) -> None:
        self.change = change

    def on_train_begin(self, net: Any, **_: Any) -> None:
        """Begin with the same random numbers for the same seed."""
        self.generator = torch.Generator().manual_seed(net.seed)
        self.original: Any = None

    def on_epoch_begin(self, *_: Any, dataset_train: Any, **__: Any) -> None:
        """Change the original trials."""
        self.original = self.original or dataset_train.examples
        x, y = self.original.x, self.original.y
        dataset_train.examples = Examples(self.change(x, y, self.generator), y)


def shift(x: Tensor, _: Tensor, generator: torch.Generator) -> Tensor:
    """Circular shifts in time by up to a twentieth of the epoch."""
    most = x.shape[2] // 20
    steps = torch.randint(-most, most + 1, (len(x),), generator=generator)
    return torch.stack([trial.roll(int(step), 1) for trial, step in zip(x, steps, strict=True)])


def drop_channels(x: Tensor, _: Tensor, generator: torch.Generator) -> Tensor:
    """Each channel of a trial is zero with a probability of 0.1."""
    return x * (torch.rand(x.shape[:2], generator=generator) > 0.1)[..., None]


def scale_channels(x: Tensor, _: Tensor, generator: torch.Generator) -> Tensor:
    """Amplitudes of the channels of a trial, changed by factors with a standard deviation of 0.1."""
    return x * (0.1 * torch.randn(x.shape[:2], generator=generator)).exp()[..., None]


def add_noise(x: Tensor, _: Tensor, generator: torch.Generator) -> Tensor:
    """White noise with a tenth of the standard deviation of the trials."""
    return x + 0.1 * x.std() * torch.randn(x.shape, generator=generator)


def mix_halves(x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    """Half of the trials get the second half of another trial of their class."""
    mixed, middle = x.clone(), x.shape[2] // 2
    for label in y.unique():
        rows = torch.nonzero(y == label)[:, 0]
        others = rows[torch.randperm(len(rows), generator=generator)]
        chosen = torch.rand(len(rows), generator=generator) < 0.5
        mixed[rows[chosen], :, middle:] = x[others[chosen], :, middle:]
    return mixed


# ---- layers


class OverlappingWindows(nn.Module):
    """Three windows of half the epoch, which overlap by half, instead of consecutive windows."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Covariances (batch, 3, n, n) of features (batch, 1, n, times)."""
        half = x.shape[-1] // 2
        return self.layer(torch.cat([x[..., start : start + half] for start in (0, half // 2, half)], -1))


class Heads(nn.Module):
    """Two heads of half the size, whose outputs are the diagonal blocks of the matrices."""

    def __init__(self, layer: SPDSelfAttention, config: dict[str, Any]) -> None:
        super().__init__()
        n, k = layer.query.weight.shape
        options = {name: config[name] for name in ("metric", "theta", "aggregation", "residual", "temperature")}
        self.heads = nn.ModuleList(SPDSelfAttention(n, size, **options) for size in (k // 2, k - k // 2))

    def forward(self, x: Tensor) -> Attended:
        """Matrices (batch, m, k, k) from matrices (batch, m, n, n), and the weights of the first head."""
        first, second = (head(x) for head in self.heads)
        k, size = first.value.shape[-1], first.value.shape[-1] + second.value.shape[-1]
        blocks = F.pad(first.value, (0, size - k, 0, size - k)) + F.pad(second.value, (k, 0, k, 0))
        return Attended(blocks, first.weights)


@contextmanager
def changed_network(change: Callable[[GBWAtt], None] | None) -> Iterator[None]:
    """Change every network when it is built."""
    build = GBWAtt.__init__

    def build_and_change(self: GBWAtt, *args: Any, **options: Any) -> None:
        build(self, *args, **options)
        if change is not None:
            change(self)

    GBWAtt.__init__ = build_and_change  # type: ignore[method-assign]
    try:
        yield
    finally:
        GBWAtt.__init__ = build  # type: ignore[method-assign]


def _overlap(model: GBWAtt) -> None:
    model.covariances = OverlappingWindows(model.covariances)


def _divide_heads(model: GBWAtt) -> None:
    model.attention = Heads(model.attention, model.config)  # type: ignore[arg-type]


# ---- variants

#: Variant by name: arguments of the classifier, callbacks, and change of the network.
VARIANTS: dict[str, tuple[dict[str, Any], Callable[[], list[Callback]], Callable[[GBWAtt], None] | None]] = {
    "default": ({}, list, None),
    "offsets kept": ({"model_options": {"center_epochs": False}}, list, None),
    "random weights": ({"initialization": "random"}, list, None),
    "filter bank": (
        {"initialization": "classical", "k": 15, "model_options": {"n_spatial": 3, "n_temporal": 15, "kernel": 62}},
        list,
        None,
    ),
    "moving average": ({}, lambda: [MovingAverage(0.99)], None),
    "shift": ({}, lambda: [Augmentation(shift)], None),
    "channel dropout": ({}, lambda: [Augmentation(drop_channels)], None),
    "amplitude": ({}, lambda: [Augmentation(scale_channels)], None),
    "noise": ({}, lambda: [Augmentation(add_noise)], None),
    "mixed halves": ({}, lambda: [Augmentation(mix_halves)], None),
    "overlapping windows": ({"n_segments": 3}, list, _overlap),
    "two heads": ({}, list, _divide_heads),
    "selected epoch": ({"validation": 0.2}, list, None),
    "ensemble of 3": ({"n_members": 3}, list, None),
}
#: Variants for some of the data only: heads need random initial weights, the filter bank is for three channels.
LIMITED = {"two heads": ("trials", "ssvep"), "filter bank": ("trials",)}


def score(variant: str, task: str, folds: list[Fold], seed: int) -> tuple[float, np.ndarray]:
    """Mean accuracy or AUC, and the log loss of each fold."""
    arguments, callbacks, change = VARIANTS[variant]
    scores, losses = [], []
    for train, test in folds:
        with changed_network(change):
            decoder = GBWAttClassifier(task=task, seed=seed, callbacks=callbacks(), **arguments).fit(train)
        probability = decoder.predict_proba(test)
        auc = task == "erp"
        scores.append(roc_auc_score(test.y, probability[:, 1]) if auc else np.mean(probability.argmax(1) == test.y))
        losses.append(log_loss(test.y, probability, labels=np.arange(probability.shape[1])))
    return float(np.mean(scores)), np.array(losses)


def main() -> None:
    """Print a line for each variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    task, generate = DATA[arguments.data]
    folds = list(generate())
    print(f"| {arguments.data} | {'AUC' if task == 'erp' else 'accuracy'} | log loss | difference | seconds |")
    print("| --- | --- | --- | --- | --- |")
    first = None
    for variant in arguments.variants:
        if arguments.data not in LIMITED.get(variant, DATA):
            continue
        started = time.perf_counter()
        mean, losses = score(variant, task, folds, arguments.seed)
        first = losses if first is None else first
        difference = losses - first
        error = difference.std(ddof=1) / len(difference) ** 0.5
        text = f"| {variant} | {mean:.3f} | {losses.mean():.4f} | {difference.mean():+.4f} ± {error:.4f} "
        print(text + f"| {time.perf_counter() - started:.0f} |", flush=True)


if __name__ == "__main__":
    main()
