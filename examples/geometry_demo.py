"""Tour of gbwatt.geometry on simulated EEG covariances.

Run it with ``make demo``, or ``python examples/geometry_demo.py``.
"""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from gbwatt.geometry import (
    AffineInvariant,
    BuresWasserstein,
    Euclidean,
    GeneralizedBuresWasserstein,
    LogEuclidean,
    barycenter,
)


def segments(batch: int, m: int, channels: int, samples: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Trace-one covariances of short segments: pink-ish sources mixed into correlated channels, plus 1e-5 I."""
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(channels, channels, generator=generator, dtype=torch.float64)
    mixing *= torch.logspace(0, -1.5, channels, dtype=torch.float64)
    signal = mixing @ torch.randn(batch, m, channels, samples, generator=generator, dtype=torch.float64)
    signal = signal - signal.mean(-1, keepdim=True)
    x = signal @ signal.mT
    x = x / x.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    return (x + 1e-5 * torch.eye(channels, dtype=torch.float64)).to(dtype)


def textbook(x: Tensor, y: Tensor) -> Tensor:
    """The usual formula: tr X + tr Y - 2 tr (X^½ Y X^½)^½."""
    values, vectors = torch.linalg.eigh(x)
    root = (vectors * values.sqrt()[..., None, :]) @ vectors.mT
    cross = torch.linalg.eigvalsh(root @ y @ root).sqrt().sum(-1)
    return ((x + y).diagonal(dim1=-2, dim2=-1).sum(-1) - 2 * cross).sqrt()


def compare_distances() -> None:
    """Compare distances of close matrices for increasing condition numbers, in float32."""
    print("\nDistance of a covariance to 1.01 times itself, float32; exact: (√1.01 - 1) √tr X")
    print("  condition      exact     gbwatt    textbook formula")
    orientation = torch.linalg.qr(torch.randn(18, 18, generator=torch.Generator().manual_seed(1)).double())[0]
    for exponent in (1, 3, 5, 7):
        spectrum = torch.logspace(0, -exponent, 18, dtype=torch.float64)
        x = ((orientation * spectrum) @ orientation.mT).float()
        x, y = (x + x.mT) / 2, (x + x.mT) / 2 * 1.01
        exact = (math.sqrt(1.01) - 1) * math.sqrt(float(x.double().trace()))
        ours, theirs = float(BuresWasserstein().dist(x, y)), float(textbook(x, y))
        print(f"  1e{exponent:<8} {exact:9.6f}  {ours:9.6f}   {theirs:9.6f}")


def compare_metrics(points: Tensor) -> None:
    """Compare distances and means of five metrics."""
    k = points.shape[-1]
    metrics = [
        Euclidean(),
        LogEuclidean(),
        AffineInvariant(),
        BuresWasserstein(),
        GeneralizedBuresWasserstein(torch.eye(k), theta=1.5),
    ]
    print("\nTwo segments of one trial, and the mean of its three segments, under each metric")
    print("  metric                                            distance   log det of the mean")
    for metric in metrics:
        volume = float(torch.linalg.slogdet(metric.mean(points).double()).logabsdet)
        print(f"  {metric!s:49} {float(metric.dist(points[0], points[1])):8.4f} {volume:21.3f}")


def attend(points: Tensor) -> None:
    """Compute Riemannian self-attention: weights from distances, one weighted mean per query, and the gradient in M."""
    parameter = torch.eye(points.shape[-1], requires_grad=True)
    metric = GeneralizedBuresWasserstein(parameter, theta=1.5)
    start = time.perf_counter()
    distance = metric.dist(points[:, :, None], points[:, None])
    weights = (1 / (1 + (1 + distance).log())).softmax(-1)
    means = barycenter(metric, points, weights)
    means.value.square().sum().backward()
    elapsed = time.perf_counter() - start
    gradient = parameter.grad
    assert gradient is not None
    batch, m, k, _ = points.shape
    print(f"\nAttention over {batch} trials of {m} segments, {k}x{k}, float32, forward and backward: {elapsed:.3f} s")
    print(
        f"  means: {means.value.shape[0] * means.value.shape[1]}, all converged: {bool(means.converged.all())}, ",
        end="",
    )
    print(f"steps up to {int(means.steps.max())}, residual up to {float(means.residual.max()):.1e}")
    print(f"  gradient of the learnable metric at M = I: finite, norm {float(gradient.norm()):.3f}")


def main() -> None:
    """Run all parts."""
    points = segments(batch=128, m=3, channels=18, samples=146)
    compare_distances()
    compare_metrics(points[0])
    attend(points)


if __name__ == "__main__":
    main()
