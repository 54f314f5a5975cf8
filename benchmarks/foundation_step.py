"""What a window costs in training foundation models with each head, and what the full corpora would take.

Forward, backward and the optimiser's step of a batch, networks by turns, the shortest of several; operations of the
backbone are counted by torch.  From these and the assumptions below, which stand in the report, follow hours on one
device and on eight.  On a machine with a GPU, ``--device cuda`` measures there what is assumed otherwise.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from gbwatt.clinical import BACKBONES, HEADS
from gbwatt.clinical.finetuning import FINETUNING, FineTuning, group_options
from gbwatt.data.montage import REFERENTIAL
from gbwatt.geometry import _native
from gbwatt.models import create
from gbwatt.models.registry import entry
from gbwatt.nn.optim import RiemannianAdam, parameter_groups

BEGIN, END = "<!-- begin foundation step -->", "<!-- end foundation step -->"
SECONDS = {"tuab": 10, "tuev": 5}
CLASSES = {"tuab": 2, "tuev": 6}
#: Windows of the official training part, of which a fifth is for validation, and of all; as published.
WINDOWS = {"tuab": (372_510, 409_455), "tuev": (83_000, 112_491)}
PEAK = 19.5e12  # operations a second of an A100 in float32
REACHED = 0.30  # part of it that transformers of this size reach
HEAD = 20.0  # assumed speed-up of the head on that device
LINK = 10e9  # bytes a second between devices, each way
SEEDS = 5
DISK = 1e9  # bytes a second that windows are read with


@dataclass(frozen=True)
class Cost:
    """Of one window, or of one step."""

    seconds: float  # of training, on the device that was measured
    operations: float  # of training, of all that torch counts
    parameters: int
    head: float = 0.0  # seconds of the head's part, forward and backward
    head_torch: float = 0.0  # the same without the compiled kernel


def network(backbone: str, head: str, corpus: str, device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    model = create(
        backbone,
        n_chans=len(REFERENTIAL),
        n_outputs=CLASSES[corpus],
        n_times=200 * SECONDS[corpus],
        sfreq=200.0,
        head=head,
        weights="random",
    )
    return model.to(device)


def stepper(model: Any, backbone: str, batch: tuple[Tensor, Tensor]) -> Callable[[], None]:
    training = vars(entry(backbone).training_for(None))
    settings = FineTuning(**{**FINETUNING[backbone], **training})
    groups = parameter_groups(model, settings.weight_decay, lr=settings.lr, **group_options(model, settings))
    optimizer = RiemannianAdam(groups, lr=settings.lr)

    def step() -> None:
        nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure(corpus: str, size: int, rounds: int, device: torch.device) -> dict[tuple[str, str], Cost]:
    """Costs of all six networks, measured in turns."""
    x = 20 * torch.randn(size, len(REFERENTIAL), 200 * SECONDS[corpus], device=device)
    y = torch.randint(CLASSES[corpus], (size,), device=device)
    steps, found = {}, {}
    for backbone in BACKBONES:
        for head in HEADS:
            model = network(backbone, head, corpus, device)
            step = stepper(model, backbone, (x, y))
            with FlopCounterMode(display=False) as counter:
                step()
            steps[backbone, head] = step
            count = sum(p.numel() for p in model.parameters())
            found[backbone, head] = Cost(float("inf"), counter.get_total_flops() / size, count)
    for _ in range(rounds):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds = (time.perf_counter() - began) / size
            found[name] = replace(found[name], seconds=min(seconds, found[name].seconds))
    for name in found:
        found[name] = replace(found[name], **head_costs(network(*name, corpus, device), x, rounds))
    return found


def head_costs(model: Any, x: Tensor, rounds: int) -> dict[str, float]:
    """Seconds of the head alone for a window, with the compiled kernel and without."""
    with torch.no_grad():
        tokens = model.backbone(x)
    tokens.requires_grad_()

    def seconds() -> float:
        began = time.perf_counter()
        features = model.head(tokens)
        if features.numel():
            features.square().sum().backward()
        if x.device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / len(x)

    found = {"head": min(seconds() for _ in range(rounds))}
    kernel, _native._jacobi = _native._jacobi, None
    found["head_torch"] = min(seconds() for _ in range(rounds))
    _native._jacobi = kernel
    return found


def measured_table(corpus: str, costs: dict[tuple[str, str], Cost]) -> list[str]:
    lines = [
        f"**{corpus.upper()}, windows of {SECONDS[corpus]} s**",
        "",
        "| network | parameters | GFLOP per window | ms per window | head, ms | head in torch only, ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (backbone, head), cost in costs.items():
        parts = f"{1e3 * cost.head:.2f} | {1e3 * cost.head_torch:.2f}" if head != "base" else "– | –"
        lines.append(
            f"| {backbone}, {head} | {cost.parameters / 1e6:.2f} M | {cost.operations / 1e9:.2f} | "
            f"{1e3 * cost.seconds:.1f} | {parts} |"
        )
    return [*lines, ""]


def hours(corpus: str, backbone: str, cost: Cost, devices: int, measured_there: bool) -> float:
    """Hours of training: passes over the windows, communication of gradients, and validation."""
    settings = entry(backbone).training_for(None)
    train = 0.8 * WINDOWS[corpus][0]
    validation = 0.2 * WINDOWS[corpus][0] / 3  # a forward pass is a third of a step
    window = cost.seconds if measured_there else cost.operations / (PEAK * REACHED) + cost.head_torch / HEAD
    steps = train / settings.batch_size
    exchange = 0.0 if devices == 1 else 2 * 4 * cost.parameters / LINK * steps
    reading = WINDOWS[corpus][0] * 4 * len(REFERENTIAL) * 200 * SECONDS[corpus] / DISK
    epoch = max((train + validation) * window / devices + exchange, reading)
    return settings.max_epochs * epoch / 3600


def plan_table(found: dict[str, dict[tuple[str, str], Cost]], measured_there: bool) -> list[str]:
    lines = [
        "| corpus | network | epochs | hours, 1 GPU | hours, 8 GPUs |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    total = [0.0, 0.0]
    for corpus, costs in found.items():
        for (backbone, head), cost in costs.items():
            both = [hours(corpus, backbone, cost, n, measured_there) for n in (1, 8)]
            total = [sum(pair) for pair in zip(total, both, strict=True)]
            epochs = entry(backbone).training_for(None).max_epochs
            lines.append(f"| {corpus} | {backbone}, {head} | {epochs} | {both[0]:.2f} | {both[1]:.2f} |")
    lines.append(f"| both | all, {SEEDS} seeds | | {SEEDS * total[0]:.0f} | {SEEDS * total[1]:.0f} |")
    return [*lines, ""]


def report(found: dict[str, dict[tuple[str, str], Cost]], arguments: argparse.Namespace) -> str:
    there = arguments.device != "cpu"
    where = f"{arguments.device}" if there else f"CPU, {arguments.threads} thread(s)"
    lines = [
        f"Measured: {where}, batches of {arguments.batch}, shortest of {arguments.rounds}, torch {torch.__version__}.",
        "",
    ]
    for corpus, costs in found.items():
        lines += measured_table(corpus, costs)
    return "\n".join([*lines, *plan_table(found, there)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16, help="windows")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=Path, help="a page with a place for this report")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    found = {corpus: measure(corpus, arguments.batch, arguments.rounds, device) for corpus in SECONDS}
    text = report(found, arguments)
    if arguments.write is None:
        print(text)
        return
    page = arguments.write.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    arguments.write.write_text(f"{before}{BEGIN}\n{text}{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()
