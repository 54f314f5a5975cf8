"""Groups of parameters: weight decay acts on Euclidean parameters only, and stages have their learning rates."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gbwatt.errors import ParameterError
from gbwatt.models import create
from gbwatt.nn.optim import RiemannianAdam, make_optimizer, on_manifold, parameter_groups, require_parts
from tests.decoding.tiny import Tiny


def names(model, group):
    by_id = {id(p): name for name, p in model.named_parameters()}
    return {by_id[id(p)] for p in group["params"]}


def test_manifold_and_undecayed_parameters_have_no_weight_decay():
    model = Tiny(4, 2)
    decayed, free = parameter_groups(model, 0.1)
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)
    assert names(model, free) == {"mix", "scale"}
    assert names(model, decayed) == {"norm.weight", "norm.bias", "final_layer.weight", "final_layer.bias"}


def test_every_trainable_parameter_of_gbwatt_is_in_one_group():
    model = create("gbwatt", n_chans=4, n_outputs=2, n_times=64, learn_theta=True, shrinkage="learnt")
    decayed, free = parameter_groups(model, 0.1)
    assert names(model, decayed) | names(model, free) == {name for name, _ in model.named_parameters()}
    assert not names(model, decayed) & names(model, free)
    assert {name for name, p in model.named_parameters() if on_manifold(p)} < names(model, free)
    assert any("theta" in name for name in names(model, free))


def test_frozen_and_shared_parameters_are_not_repeated():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    (only,) = parameter_groups(model, 0.1)
    assert len(only["params"]) == 1
    model[0].weight.requires_grad_(False)
    assert parameter_groups(model, 0.1) == []


def test_weight_decay_shrinks_what_it_should_and_steps_stay_on_the_manifold():
    model = Tiny(4, 2)
    optimizer = make_optimizer(model, lr=0.1, weight_decay=1.0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert torch.equal(model.scale, before["scale"])
    assert torch.allclose(model.mix, before["mix"], atol=1e-6)
    assert (model.norm.weight < before["norm.weight"]).all()
    model.mix.grad = torch.randn(model.mix.shape, generator=torch.Generator().manual_seed(0))
    optimizer.step()
    assert not torch.allclose(model.mix, before["mix"], atol=1e-3)
    assert torch.allclose(model.mix.mT @ model.mix, torch.eye(3), atol=1e-5)


# ------------------------------------------------------------------------------------------------------------- stages


def layers():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), Tiny(4, 2))
    return model, [list(layer.parameters()) for layer in model]


def test_stages_are_in_order_and_decayed_parameters_come_first():
    """Saved optimiser states are by position."""
    model, stages = layers()
    groups = parameter_groups(model, 0.1, stages=stages, lr=1e-2)
    assert [g["weight_decay"] for g in groups] == [0.1, 0.1, 0.1, 0.0]
    in_order = [id(p) for group in groups[:2] for p in group["params"]]
    assert in_order == [id(p) for stage in stages[:2] for p in stage]
    assert {id(p) for group in groups[2:] for p in group["params"]} == {id(p) for p in stages[2]}


def test_without_stages_the_order_is_that_of_the_parameters():
    model, _ = layers()
    decayed, free = parameter_groups(model, 0.1)
    own = [id(p) for p in model.parameters()]
    for group in (decayed, free):
        positions = [own.index(id(p)) for p in group["params"]]
        assert positions == sorted(positions)
    assert set(decayed) == {"params", "weight_decay"}


def test_earlier_stages_learn_more_slowly():
    model, stages = layers()
    groups = parameter_groups(model, 0.1, stages=stages, stage_decay=0.5, lr=1e-2)
    assert [g["scale"] for g in groups] == [0.25, 0.5, 1.0, 1.0]
    assert all(g["lr"] == 1e-2 * g["scale"] for g in groups)
    with pytest.raises(ParameterError, match=r"stage_decay=0\.5 .*lr"):
        parameter_groups(model, 0.1, stages=stages, stage_decay=0.5)


def test_vectors_decay_unless_told_otherwise():
    model, _ = layers()
    decayed, free = parameter_groups(model, 0.1, decay_vectors=False)
    assert all(p.ndim > 1 for p in decayed["params"])
    assert {p.ndim for p in free["params"]} >= {1}
    assert any(p.ndim == 1 for p in parameter_groups(model, 0.1)[0]["params"])


def test_parameters_of_no_stage_are_left_out():
    model, stages = layers()
    groups = parameter_groups(model, 0.1, stages=stages[:1])
    assert [id(p) for group in groups for p in group["params"]] == [id(p) for p in stages[0]]


def test_the_former_place_of_riemannian_adam_warns():
    with pytest.warns(DeprecationWarning, match=r"gbwatt\.nn\.optim"):
        from gbwatt.nn.manifolds import RiemannianAdam as former
    assert former is RiemannianAdam


# -------------------------------------------------------------------------------------------------- rates of parts


def test_parts_have_their_learning_rates_and_the_longest_name_counts():
    model = create("gbwatt", n_chans=4, n_outputs=2, n_times=64)
    factors = {"features": 0.1, "features.temporal": 0.5, "attention.query": 2.0}
    groups = parameter_groups(model, 0.1, factors=factors, lr=1e-2)
    rates = {name: group["lr"] for group in groups for name in names(model, group)}
    assert rates.keys() == {name for name, p in model.named_parameters() if p.requires_grad}
    assert rates["features.spatial.weight"] == pytest.approx(1e-3)
    assert rates["features.temporal.weight"] == pytest.approx(5e-3)
    assert rates["features.temporal_norm.weight"] == pytest.approx(1e-3)  # not a part of features.temporal
    assert rates["attention.query.weight"] == pytest.approx(2e-2)
    assert rates["attention.key.weight"] == rates["final_layer.weight"] == pytest.approx(1e-2)
    assert all(group["weight_decay"] == 0 for group in groups if "attention.query.weight" in names(model, group))


def test_factors_need_a_learning_rate_and_no_stages():
    model = nn.Linear(2, 1)
    with pytest.raises(ParameterError, match=r"factors.*requires lr"):
        parameter_groups(model, 0.0, factors={"weight": 0.1})
    with pytest.raises(ParameterError, match="stages already"):
        parameter_groups(model, 0.0, factors={"weight": 0.1}, stages=[[model.weight]], lr=0.1)


@pytest.mark.parametrize(("part", "meant"), [("featres", "features"), ("features.spatal", "features.spatial")])
def test_parts_that_a_model_does_not_have_are_named(part, meant):
    model = create("gbwatt", n_chans=4, n_outputs=2, n_times=64)
    require_parts("frozen", ["features", "attention.query.weight"], model)
    with pytest.raises(ParameterError, match=f"frozen='{part}'.*Did you mean '{meant}'"):
        require_parts("frozen", [part], model)
