"""Logits and sizes of the networks of the paper."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gbwatt import GBWAtt
from gbwatt.models import create
from tests.golden import doors
from tests.golden.program import stored

TASKS = {"mi": (22, 438), "ssvep": (8, 125), "ern": (56, 160)}
RECIPES = ("paper", "best")
#: Models that need no other package.
MODELS = ("bwatt", "gbwatt", "gdlnet", "matt", "mbeegse", "spdnet", "spdnetbn", "tcnetfusion")


def epochs(n_chans, n_times, n=3):
    """Sines of many frequencies and a number sequence that looks like noise, the same everywhere."""
    trial, channel, time = np.ogrid[:n, :n_chans, :n_times]
    place = ((trial * n_chans + channel) * n_times + time).astype(np.uint64)
    noise = ((place * np.uint64(1103515245) + np.uint64(12345)) % np.uint64(2**31)).astype(float)
    noise = (noise * (noise + 7) % 65537) / 65537 - 0.5
    waves = np.sin(0.05 * (channel + 1) * time + trial) + np.cos(0.31 * time / (channel + 2) + 2 * trial)
    return torch.from_numpy(waves + 2 * noise)


def logits(task, recipe, dtype):
    torch.manual_seed(0)
    model = GBWAtt.for_task(task, recipe=recipe).to(dtype).eval()
    with torch.no_grad():
        return model(epochs(*TASKS[task]).to(dtype)).double()


def observe():
    return {
        "logits": {f"{t} {r}": logits(t, r, torch.float64).tolist() for t in TASKS for r in RECIPES},
        "parameters": {f"{name} {task}": count(name, task) for name in MODELS for task in TASKS},
    }


def count(name, task):
    return sum(p.numel() for p in create(name, task=task).parameters())


@pytest.mark.parametrize("path", ["kernel", "torch"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("task", TASKS)
def test_logits(task, recipe, dtype, path, monkeypatch):
    if path == "torch":
        doors.without_kernels(monkeypatch)
    elif not doors.has_kernels():
        pytest.skip("the kernels were not built")
    expected = torch.tensor(stored("numbers")["logits"][f"{task} {recipe}"], dtype=torch.float64)
    spread = expected.max() - expected.min()
    assert spread > 0.1
    assert (logits(task, recipe, dtype) - expected).abs().max() <= 1e-4 * spread


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("task", TASKS)
def test_parameter_counts(name, task):
    assert count(name, task) == stored("numbers")["parameters"][f"{name} {task}"]
