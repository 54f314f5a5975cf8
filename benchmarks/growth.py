"""Growth of the cost of attention and of a whole step with the sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from contestants import STILL, Contestant, first_batch
from geometry import covariances
from torch import Tensor

from gbwatt.models import GBWAtt
from gbwatt.nn import SPDSelfAttention
from gbwatt.nn.optim import make_optimizer

SPREAD = 8e4  # of the sources of the covariances; condition 1e5, as in geometry.py
BATCH, LENGTH, SIZE = 8, 8, 16  # of the attention layer, where another size grows
TRIALS = 16  # of the whole network
SIZES = {
    "m": (2, 4, 8, 16, 32, 64),
    "k": (4, 8, 16, 24, 32, 48, 64),
    "batch": (4, 8, 16, 32, 64, 128),
    "channels": (8, 16, 32, 64, 128),
    "time": (219, 438, 876, 1752, 3504),
}
CAPTIONS = {
    "m": f"sequence m (batch {BATCH}, k = {SIZE})",
    "k": f"size k (batch {BATCH}, m = {LENGTH})",
    "batch": f"batch (m = {LENGTH}, k = {SIZE})",
    "channels": f"channels (whole step, MI preset, batch {TRIALS})",
    "time": f"samples in time (whole step, MI preset, batch {TRIALS})",
}


@dataclass
class Curve:
    """Shortest times over one size."""

    axis: str
    sizes: Sequence[int]
    seconds: list[float] = field(default_factory=list)

    def exponent(self) -> float:
        """Slope of log time over log size for the larger half of the sizes."""
        half = len(self.sizes) // 2
        return float(np.polyfit(np.log(self.sizes[half:]), np.log(self.seconds[half:]), 1)[0])


def attention_call(batch: int, m: int, k: int) -> Callable[[], None]:
    """Forward and backward of the attention layer, to the gradients of its input and parameters."""
    torch.manual_seed(0)
    layer = SPDSelfAttention(k, k, theta=1.5)
    x = covariances(torch.Generator().manual_seed(0), (batch, m, k), SPREAD).float().requires_grad_()
    cotangent = torch.randn(batch, m, k, k)
    leaves = [x, *layer.parameters()]
    return lambda: torch.autograd.grad(layer(x).value, leaves, cotangent) and None


def network_call(recording: Tensor, n_chans: int, n_times: int) -> Callable[[], None]:
    """A whole step of the MI preset for another number of channels or samples."""
    torch.manual_seed(0)
    model = GBWAtt.for_task("mi", n_chans=n_chans, n_times=n_times)
    own = recording if n_chans == len(recording) else torch.randn(n_chans, len(recording)) @ recording
    x = own[:, : TRIALS * n_times].unflatten(1, (TRIALS, n_times)).transpose(0, 1).contiguous()
    x = x / x.std() + 0.1 * torch.randn_like(x)  # more channels than sources would be singular
    runner = Contestant("", model, make_optimizer(model, STILL, 1e-1))
    y = torch.arange(TRIALS) % 4
    return lambda: runner.step((x, y))


def call(axis: str, size: int, recording: Tensor) -> Callable[[], None]:
    """The function to be timed for a size along an axis."""
    if axis in ("m", "k", "batch"):
        return attention_call(*({"batch": BATCH, "m": LENGTH, "k": SIZE} | {axis: size}).values())
    sizes = {"channels": len(recording), "time": 438} | {axis: size}
    return network_call(recording, sizes["channels"], sizes["time"])


def measure(rounds: int) -> list[Curve]:
    """All curves; the sizes of a curve are measured in turns."""
    recording = first_batch("mi")[0].transpose(0, 1).flatten(1)  # (n_chans, trials * n_times)
    curves = []
    for axis, sizes in SIZES.items():
        calls = [call(axis, size, recording) for size in sizes]
        best = [min(_seconds(one), _seconds(one)) for one in calls]
        for _ in range(rounds):
            best = [min(old, _seconds(one)) for old, one in zip(best, calls, strict=True)]
        curves.append(Curve(axis, sizes, best))
    return curves


def _seconds(one: Callable[[], None]) -> float:
    start = time.perf_counter()
    one()
    return time.perf_counter() - start


def plot(curves: Sequence[Curve], path: Path) -> None:
    """Times over sizes, a panel for each, both logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "gbwatt"  # the same picture from the same numbers
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(3 * len(curves), 3.2), layout="constrained")
    for axis, curve in zip(axes, curves, strict=True):
        sizes, times = np.array(curve.sizes), 1e3 * np.array(curve.seconds)
        axis.loglog(sizes, times, "o-", color="black", label="measured")
        slope, half = curve.exponent(), len(sizes) // 2
        axis.loglog(sizes[half:], times[-1] * (sizes[half:] / sizes[-1]) ** slope, ":", label=f"power {slope:.1f}")
        axis.set_title(CAPTIONS[curve.axis].replace(" (", "\n("), fontsize=9)
        axis.set_xlabel(curve.axis)
        axis.set_xticks(sizes, [str(size) for size in sizes], rotation=45)
        axis.minorticks_off()
        axis.grid(alpha=0.25)
        axis.legend(frameon=False)
    axes[0].set_ylabel("ms, forward + backward")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
