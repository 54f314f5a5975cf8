"""Layers raise errors that name the invalid argument."""

from __future__ import annotations

import pytest
import torch

from gbwatt.errors import MismatchError, NotFiniteError, NotSymmetricError, ShapeError
from gbwatt.models.manifold_nets import FullRankMap, GrassmannSelfAttention
from gbwatt.nn import (
    BiMap,
    Embedding,
    LogEig,
    ReEig,
    SegmentCovariance,
    SpatioTemporalFeatures,
    SPDBatchNorm,
    SPDSelfAttention,
    _native,
)
from gbwatt.nn.attention import Segments
from gbwatt.nn.covariance import TokenMoments
from gbwatt.nn.features import ActivatedFeatures
from tests.conftest import make_spd

#: Layers of symmetric matrices (batch, m, 4, 4).
MATRICES = {
    "LogEig": LogEig,
    "ReEig": ReEig,
    "Embedding": Embedding,
    "Embedding without logarithm": lambda: Embedding(logarithm=False),
    "BiMap": lambda: BiMap(4, 3),
    "SPDBatchNorm": lambda: SPDBatchNorm(4),
    "SPDSelfAttention": lambda: SPDSelfAttention(4, 3),
}
#: All others, and the shape of what they take.
OTHERS = {
    "SegmentCovariance": (lambda: SegmentCovariance(2), (2, 1, 3, 20)),
    "SegmentCovariance, learnt": (lambda: SegmentCovariance(2, shrinkage="learnt"), (2, 1, 3, 20)),
    "TokenMoments": (lambda: TokenMoments(2), (2, 3, 5, 4)),
    "Segments": (lambda: Segments(2), (2, 1, 3, 20)),
    "SpatioTemporalFeatures": (lambda: SpatioTemporalFeatures(3, 4, 4, 5), (2, 3, 20)),
    "ActivatedFeatures": (lambda: ActivatedFeatures(3, 4, 4, 5), (2, 3, 20)),
    "ActivatedFeatures, grouped": (lambda: ActivatedFeatures(3, 4, 4, 5, branches=2), (2, 3, 20)),
    "FullRankMap": (lambda: FullRankMap(4, 3), (2, 3, 4, 2)),
    "GrassmannSelfAttention": (lambda: GrassmannSelfAttention(4, 3), (2, 3, 4, 2)),
}
ALL = {name: (make, (2, 3, 4, 4)) for name, make in MATRICES.items()} | OTHERS


def take(name):
    """A layer, and an input for it."""
    make, shape = ALL[name]
    x = make_spd(*shape[:-2], k=4, dtype=torch.float32) if name in MATRICES else torch.rand(shape)
    return make(), x


def finite(out):
    """Whether a result, or that of an attention, is finite."""
    return bool((out if isinstance(out, torch.Tensor) else out.value).isfinite().all())


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_layers_refuse_other_dtypes_than_real_floating_ones(name, dtype):
    layer, x = take(name)
    with pytest.raises(MismatchError, match=f"{dtype}.*float32 or float64"):
        layer(x.to(dtype))


@pytest.mark.parametrize("name", ALL)
def test_layers_refuse_arrays_of_numpy(name):
    layer, x = take(name)
    with pytest.raises(MismatchError, match=r"ndarray.*torch.as_tensor"):
        layer(x.numpy())


@pytest.mark.parametrize("name", [name for name in ALL if list(take(name)[0].parameters())])
def test_layers_with_parameters_refuse_another_precision(name):
    layer, x = take(name)
    if name != "SegmentCovariance, learnt":  # its parameter is a number, of any precision
        with pytest.raises(MismatchError, match=r"float64.*x\.to\("):
            layer(x.double())
    assert finite(layer.double()(x.double()))


@pytest.mark.parametrize("name", ALL)
def test_layers_refuse_other_shapes(name):
    layer, x = take(name)
    four_axes = name.startswith(("Segment", "Token"))
    for bad in (x.flatten(), x[0] if four_axes else x[..., :-1, :]):
        with pytest.raises(ShapeError, match=r"'x' \(|'tokens' \("):
            layer(bad)


@pytest.mark.parametrize("name", ["BiMap", "SPDBatchNorm", "SPDSelfAttention"])
def test_layers_of_one_size_refuse_others(name):
    with pytest.raises(ShapeError, match=r"\(2, 3, 6, 6\)"):
        MATRICES[name]()(make_spd(2, 3, k=6, dtype=torch.float32))


@pytest.mark.parametrize("name", MATRICES)
def test_layers_of_matrices_refuse_skew_and_infinite_ones(name):
    layer, x = take(name)
    skew, infinite = x.clone(), x.clone()
    skew[0, 1, 0, 1] += 0.5
    infinite[1, 0, 2, 2] = torch.inf
    with pytest.raises(NotSymmetricError, match=r"in matrix \(0, 1\)"):
        layer(skew)
    with pytest.raises(NotFiniteError, match=r"in matrix \(1, 0\)"):
        layer(infinite)


@pytest.mark.parametrize("name", [name for name in ALL if name != "Segments"])
def test_layers_work_in_float32_under_autocast(name):
    layer, x = take(name)
    layer.eval()
    want = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = layer(x)
    want, got = ((y,) if isinstance(y, torch.Tensor) else y for y in (want, got))
    assert all(map(torch.equal, want, got))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", [name for name in ALL if "Features" in name])
def test_filters_without_the_compiled_kernel_work_in_float32_under_autocast(name, training, monkeypatch):
    monkeypatch.setattr(_native, "supports_filters", lambda *_: False)
    layer, x = take(name)
    want = layer.train(training)(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = layer(x)
    assert torch.equal(got, want)


def test_filters_without_padding_refuse_epochs_shorter_than_the_kernel():
    layer = ActivatedFeatures(3, 4, 4, 5)
    assert layer(torch.rand(2, 3, 5)).shape == (2, 1, 4, 1)
    with pytest.raises(ShapeError, match=r"'x' \(2, 3, 4\).* 4 samples.* at least 5"):
        layer(torch.rand(2, 3, 4))
    assert SpatioTemporalFeatures(3, 4, 4, 5)(torch.rand(2, 3, 4)).shape == (2, 1, 4, 4)
