"""Errors of models for invalid input, and their behaviour under autocast."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gbwatt.errors import InputError, MismatchError, ShapeError
from gbwatt.models import create, list_models
from gbwatt.models.registry import entry
from gbwatt.models.signal import as_epochs

#: Models that need no further package and no weights.
OWN = [name for name in list_models() if entry(name).extra is None and entry(name).for_tasks]
EPS = torch.finfo(torch.float32).eps
SPD = [name for name in OWN if name in ("bwatt", "gbwatt", "gdlnet", "matt", "spdnet", "spdnetbn")]


def build(name, **options):
    torch.manual_seed(0)
    return create(name, n_chans=5, n_outputs=3, n_times=128, sfreq=128, **options)


def test_all_networks_of_matrices_are_tested():
    assert len(SPD) == 6
    assert len(OWN) >= 8


@pytest.mark.parametrize("dtype", [torch.int16, torch.int64, torch.bool, torch.complex64, torch.float16], ids=str)
@pytest.mark.parametrize("name", OWN)
def test_models_refuse_other_dtypes_and_say_what_to_do(name, dtype):
    with pytest.raises(MismatchError, match=rf"'x' \(2, 5, 128\) has dtype {dtype}.*x\."):
        build(name)(torch.ones(2, 5, 128).to(dtype))


@pytest.mark.parametrize("name", OWN)
def test_models_refuse_another_precision_than_their_own(name):
    x = torch.randn(2, 5, 128)
    with pytest.raises(MismatchError, match=r"float64.*model has torch.float32.*x\.to\(torch.float32\)"):
        build(name)(x.double())
    assert build(name).double()(x.double()).dtype == torch.float64


@pytest.mark.parametrize("name", OWN)
def test_models_refuse_numpy_arrays_and_name_what_takes_them(name):
    x = torch.randn(2, 5, 128)
    for bad in (x.numpy(), x.tolist(), None):
        with pytest.raises(MismatchError, match=f"{type(bad).__name__}.*torch.as_tensor.*GBWAttClassifier"):
            build(name)(bad)


@pytest.mark.parametrize("shape", [(), (128,), (5, 128), (2, 5, 127), (2, 2, 5, 128), (0, 128, 5)], ids=str)
def test_epochs_of_another_shape_are_refused(shape):
    with pytest.raises(ShapeError, match=r"\(batch, 5, 128\)"):
        as_epochs(torch.zeros(shape), 5, 128, nn.Linear(2, 2))


def test_a_model_of_half_precision_says_that_geometry_has_none():
    with pytest.raises(InputError, match=r"bfloat16.*float32 or float64"):
        build("gbwatt").bfloat16()(torch.randn(2, 5, 128).bfloat16())


@pytest.mark.parametrize("half", [False, True], ids=["float32 input", "bfloat16 input"])
@pytest.mark.parametrize("name", SPD)
def test_networks_of_matrices_work_in_float32_under_autocast(name, half):
    model = build(name, **({} if name == "gdlnet" else {"shrinkage": 0.1}))
    x, y = torch.randn(16, 5, 128).bfloat16().float(), torch.arange(16) % 3
    results = []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            logits = model(x.bfloat16() if half and enabled else x)
            loss = nn.functional.cross_entropy(logits, y)
        loss.backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        results.append((logits.detach(), gradient))
    (want, slope), (got, same_slope) = results
    assert got.dtype == torch.float32
    assert (got - want).abs().max() <= 8 * EPS * want.abs().max()
    assert (same_slope - slope).norm() <= 8 * EPS * slope.norm()


@pytest.mark.parametrize("name", SPD)
def test_backward_inside_autocast_is_finite(name):
    model = build(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.randn(4, 5, 128)).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
