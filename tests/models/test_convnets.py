"""TCNet-Fusion and MBEEGSE: sizes, shapes, gradients, options."""

from __future__ import annotations

import copy

import pytest
import torch

from gbwatt.errors import ParameterError, ShapeError
from gbwatt.models import registry
from gbwatt.models.convnets import MBEEGSE, CausalBlock, MaxNormLinear, MaxNormSpatial, SqueezeExcite, TCNetFusion
from gbwatt.models.presets import TASKS

MODELS = {"tcnetfusion": TCNetFusion, "mbeegse": MBEEGSE}
SMALL = {"n_chans": 3, "n_outputs": 2, "n_times": 80}

every_model = pytest.mark.parametrize("name", MODELS)


def count(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def build(name, **changes):
    torch.manual_seed(0)
    return MODELS[name](**{**SMALL, **changes})


def epochs(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "name, n_times, parameters",
    [("tcnetfusion", 438, 12496), ("tcnetfusion", 1125, 17248), ("mbeegse", 438, 7706), ("mbeegse", 1125, 10170)],
)
def test_parameter_counts_are_those_of_the_originals(name, n_times, parameters):
    assert count(MODELS[name](n_chans=22, n_outputs=4, n_times=n_times)) == parameters


@every_model
@pytest.mark.parametrize("task", TASKS)
def test_logits_for_every_task(name, task):
    signal = TASKS[task].signal
    model = registry.create(name, task=task)
    assert isinstance(model, MODELS[name])
    logits = model(epochs(2, signal.n_chans, signal.n_times))
    assert logits.shape == (2, signal.n_outputs)
    assert torch.isfinite(logits).all()


@every_model
def test_a_singleton_axis_is_accepted(name):
    model, x = build(name).eval(), epochs(2, 3, 80)
    assert torch.equal(model(x), model(x[:, None]))


@every_model
@pytest.mark.parametrize("shape", [(2, 4, 80), (2, 3, 81), (3, 80), (2, 2, 3, 80)])
def test_epochs_of_another_shape_are_refused(name, shape):
    with pytest.raises(ShapeError, match=r"epochs \(batch, 3, 80\)"):
        build(name)(epochs(*shape))


OFFSETS = {
    "tcnetfusion": {"block.1.bias"} | {f"causal.{i}.convolutions.{j}.bias" for i in (0, 1) for j in (1, 6)},
    "mbeegse": {f"branches.{i}.0.1.bias" for i in (0, 1, 2)},
}


@every_model
def test_gradients_reach_every_parameter(name):
    """But for offsets before a batch normalisation, which takes them away."""
    model = build(name, n_times=160).double()
    torch.nn.functional.cross_entropy(model(epochs(8, 3, 160).double()), torch.arange(8) % 2).backward()
    silent = {key for key, p in model.named_parameters() if not float(p.grad.abs().max()) > 1e-12}
    assert silent == OFFSETS[name]


@every_model
def test_state_dict_and_config_make_the_same_model(name):
    model, x = build(name), epochs(4, 3, 80)
    model(x)  # moves the running statistics
    other = registry.create(name, **model.config)
    assert not torch.equal(other.eval()(x), model.eval()(x))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))
    assert torch.equal(copy.deepcopy(model)(x), model(x))


@every_model
def test_epochs_that_are_too_short_are_refused_with_a_remedy_that_works(name):
    with pytest.raises(ParameterError, match=r"n_times=63 is too short.*64 samples.*pool=7 or less"):
        build(name, n_times=63)
    assert build(name, n_times=63, pool=7)(epochs(2, 3, 63)).shape == (2, 2)
    assert build(name, n_times=64)(epochs(2, 3, 64)).shape == (2, 2)


OPTIONS = [
    ("tcnetfusion", "n_filters", 8),
    ("tcnetfusion", "kernel", 9),
    ("tcnetfusion", "n_causal", 6),
    ("tcnetfusion", "causal_kernel", 2),
    ("tcnetfusion", "causal_blocks", 3),
    ("tcnetfusion", "pool", 4),
    ("tcnetfusion", "dropout", 0.6),
    ("tcnetfusion", "max_norm", 0.1),
    ("mbeegse", "branches", [[4, 16, 0.0, 4]]),
    ("mbeegse", "pool", 4),
    ("mbeegse", "max_norm", 0.1),
]


@pytest.mark.parametrize("name, option, value", OPTIONS)
def test_every_option_changes_the_model(name, option, value):
    def outcome(**changes):
        model = build(name, **changes)
        torch.manual_seed(1)
        return count(model), model(epochs(4, 3, 80)).detach()

    (n, logits), (m, changed) = outcome(), outcome(**{option: value})
    assert torch.equal(logits, outcome()[1])  # the seed fixes everything else
    assert n != m or not torch.allclose(logits, changed)


@every_model
def test_every_option_is_in_the_test_above(name):
    assert {option for model, option, _ in OPTIONS if model == name} == build(name).config.keys() - SMALL.keys()


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("tcnetfusion", {"dropout": 1.0}, "dropout=1.0"),
        ("tcnetfusion", {"max_norm": 0.0}, "max_norm=0.0"),
        ("tcnetfusion", {"causal_blocks": 0}, "causal_blocks=0"),
        ("mbeegse", {"branches": [[4, 16, 0.0]]}, r"branches\[0\].*n_filters, kernel, dropout, ratio"),
        ("mbeegse", {"branches": [[4, 16, 0.0, 4], [8, 0, 0.1, 4]]}, r"branches\[1\].kernel=0"),
        ("mbeegse", {"pool": 0}, "pool=0"),
    ],
)
def test_impossible_options_are_refused(name, options, message):
    with pytest.raises(ParameterError, match=message):
        build(name, **options)


# ------------------------------------------------------------------------------------------------------------- layers


def test_max_norm_caps_long_rows_and_leaves_short_ones():
    layer = MaxNormLinear(4, 3, max_norm=0.5)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 0, 4, 0], [0.1, 0.2, 0, 0], [0, 0, 0, 0]]))
        layer.bias.zero_()
    acting = layer(torch.eye(4)).T
    assert torch.allclose(acting, torch.tensor([[0.3, 0, 0.4, 0], [0.1, 0.2, 0, 0], [0, 0, 0, 0]]))
    layer(torch.ones(1, 4)).sum().backward()
    assert torch.isfinite(layer.weight.grad).all()  # also of the row of zeros
    assert torch.equal(layer.weight.grad[2], torch.ones(4))


def test_spatial_filters_act_with_a_norm_of_at_most_one():
    layer = MaxNormSpatial(2, 5)
    with torch.no_grad():
        layer.weight.mul_(100)
    acting = layer(torch.eye(5)[:, None].repeat(1, 2, 1)[..., None])[:, :, 0, 0]  # (channel, filter)
    assert torch.allclose(acting.norm(dim=0), torch.ones(4))


def test_causal_block_does_not_look_ahead():
    block = CausalBlock(3, 4, kernel=4, dilation=2, dropout=0.3).eval()
    x = epochs(1, 3, 30)
    y = x.clone()
    y[..., 20:] += 1
    difference = (block(x) - block(y)).detach().abs().amax((0, 1))
    assert float(difference[:20].max()) == 0
    assert float(difference[20:].min()) > 0


def test_squeeze_excite_scales_each_feature_by_one_gate_between_0_and_1():
    x = epochs(2, 8, 1, 6)
    gates = (SqueezeExcite(8, ratio=4)(x) / x).detach()
    assert torch.allclose(gates, gates[..., :1].expand_as(gates), atol=1e-5)
    assert float(gates.min()) > 0
    assert float(gates.max()) < 1
